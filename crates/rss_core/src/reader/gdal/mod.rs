//! The GDAL backend, feature `gdal`: every raster GDAL reads, on worker threads that keep datasets open.
//!
//! GDAL's calls block and its datasets belong to one thread, so all of them run on [`workers`]. GDAL's
//! error messages become errors in [`diagnostics`], and the session's store options become GDAL's in
//! [`options`]. Unless the session has `GdalReads::Vsi`, GDAL reads through the session's stores: [`vsi`]. What a
//! header states is bounded in [`bounds`].

mod bounds;
mod diagnostics;
mod options;
mod raw;
mod reader;
mod translate;
mod vsi;
mod workers;

pub(crate) use self::reader::{clear_caches, configure_path, hand_out, open, translate};
