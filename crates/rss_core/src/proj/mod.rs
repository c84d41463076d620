//! PROJ, which GDAL brings: it evaluates CRSs that `rss_raster` does not, those without an EPSG code and those whose
//! definition needs more than `proj4rs` has.

#[cfg(feature = "gdal")]
mod engine;
#[cfg(not(feature = "gdal"))]
#[path = "disabled.rs"]
mod engine;

pub(crate) use self::engine::lend;
