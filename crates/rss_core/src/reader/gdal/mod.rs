//! The GDAL backend, feature `gdal`: every raster GDAL reads, on worker threads that keep datasets open.
//!
//! GDAL's calls block and its datasets belong to one thread, so all of them run on [`workers`]; what
//! GDAL says of a failure is understood in [`said`], and how a bucket is reached in [`options`]. Where
//! the session says so, GDAL reads through our own stores: [`vsi`].

mod diagnostics;
mod options;
mod raw;
mod reader;
mod translate;
mod vsi;
mod workers;

pub(crate) use self::reader::{clear_caches, configure_path, hand_out, open, translate};
