//! The GDAL backend: every raster GDAL reads, on worker threads that keep datasets open.
//!
//! GDAL's calls block and its datasets belong to one thread, so all of them run on [`workers`]; what
//! GDAL says of a failure is understood in [`said`], and how a bucket is reached in [`options`]. Where
//! the session says so, GDAL reads through our own stores: [`vsi`].

#[cfg(not(feature = "gdal"))]
#[path = "disabled.rs"]
mod backend;
#[cfg(feature = "gdal")]
#[path = "enabled.rs"]
mod backend;
#[cfg(feature = "gdal")]
mod options;
#[cfg(feature = "gdal")]
mod raw;
#[cfg(feature = "gdal")]
mod said;
#[cfg(feature = "gdal")]
mod translate;
#[cfg(feature = "gdal")]
mod vsi;
#[cfg(feature = "gdal")]
mod workers;

pub(crate) use self::backend::{clear_caches, configure_path, hand_out, open, translate};
