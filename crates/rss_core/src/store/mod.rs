//! Bytes: stores of locations, their access, the HTTP rules of requests, and the file cache.

mod address;
mod body;
mod bucket;
mod cache;
mod fault;
mod headers;
mod host;
mod keys;
mod lines;
mod meter;
mod network;
#[cfg(any(feature = "cog", feature = "gdal"))]
mod object;
mod of_bucket;
mod options;
#[cfg(any(feature = "cog", feature = "gdal"))]
mod ranges;
mod reach;
mod redirect;
mod registry;
mod resolve;
mod retry;
mod sign;
mod task;
mod tls;
mod trace;
mod version;
mod watched;
mod wire;

#[cfg(feature = "index")]
pub(crate) use self::address::{left_out, shareable, shareable_text};
#[cfg(feature = "zarr")]
pub(crate) use self::body::read_at_most;
#[cfg(feature = "gdal")]
pub(crate) use self::bucket::Hosting;
#[cfg(feature = "cog")]
pub(crate) use self::object::Disk;
pub(crate) use self::{
    address::{is_secret_field, shareable_json},
    cache::{CacheSettings, CachedFile, FillRequest, GivenAs, Made, hex, is_same},
    fault::{Fault, check_file, error, of_io, of_status, status_of},
    headers::HostHeaders,
    meter::Meter,
    network::{Network, Notices, retry_after},
    of_bucket::BucketOptions,
    registry::OwnStores,
    retry::{Limits, Patience, Remedy, later},
    sign::is_signed,
    task::{spawned, told},
};
pub use self::{
    cache::{CacheStats, FileCache, Mode, Removed},
    meter::Traffic,
    options::StoreOptions,
    registry::Registry,
    version::Version,
};
#[cfg(any(feature = "cog", feature = "gdal"))]
pub(crate) use self::{
    object::Object,
    ranges::{Fetch, Merge, coalesce},
};
