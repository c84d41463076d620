//! One module per subcommand.

pub(crate) mod again;
pub(crate) mod apply;
pub(crate) mod bench;
pub(crate) mod cache;
pub(crate) mod gather;
pub(crate) mod get;
#[cfg(feature = "index")]
pub(crate) mod index;
#[cfg(feature = "index")]
mod index_export;
pub(crate) mod info;
pub(crate) mod read;
pub(crate) mod remote;
pub(crate) mod sample;
pub(crate) mod search;
#[cfg(feature = "zarr")]
pub(crate) mod zarr;
#[cfg(feature = "zarr")]
mod zarr_check;

mod found;
mod record;
pub(crate) mod session;
