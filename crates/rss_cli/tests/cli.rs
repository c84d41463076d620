//! The command line, run as a user runs it: a process, its exit code, stdout and stderr.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

mod cli {
    pub(crate) mod absent;
    #[cfg(feature = "zarr")]
    pub(crate) mod again;
    pub(crate) mod apply;
    pub(crate) mod bench;
    pub(crate) mod cache;
    pub(crate) mod canary;
    #[cfg(feature = "index")]
    pub(crate) mod export;
    pub(crate) mod gather;
    pub(crate) mod get;
    pub(crate) mod hostile;
    #[cfg(feature = "index")]
    pub(crate) mod index;
    #[cfg(feature = "zarr")]
    pub(crate) mod kills;
    pub(crate) mod logs;
    pub(crate) mod manners;
    pub(crate) mod memory;
    #[cfg(all(feature = "zarr", target_os = "linux"))]
    pub(crate) mod powercut;
    pub(crate) mod raster;
    pub(crate) mod remote;
    pub(crate) mod sample;
    pub(crate) mod search;
    pub(crate) mod stage;
    pub(crate) mod trust;
    #[cfg(feature = "zarr")]
    pub(crate) mod zarr;
}
