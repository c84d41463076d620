//! Replaces PROJ in builds without the feature `gdal`: CRSs without an EPSG code are those that `proj4rs` evaluates.

/// Does nothing: this build does not link GDAL.
pub(crate) fn lend() {}
