//! PROJ, which GDAL brings: it evaluates CRSs that `rss_raster` does not, those without an EPSG code and those whose
//! definition needs more than `proj4rs` has.

#[cfg(feature = "gdal")]
mod engine;
#[cfg(not(feature = "gdal"))]
#[path = "disabled.rs"]
mod engine;

/// Lets [`Crs`](crate::Crs) know what PROJ knows, such as `ESRI:54030`, `OGC:CRS84` or an oblique Mercator projection, in a
/// build with the feature `gdal`; without it does nothing. Building a [`Session`](crate::Session) does so too: call it to
/// read a CRS before there is one. Costs nothing until PROJ is needed.
///
/// ```
/// rss_core::use_proj();
/// let robinson = "ESRI:54030".parse::<rss_core::Crs>();
/// assert_eq!(robinson.is_ok(), cfg!(feature = "gdal"));
/// ```
pub fn use_proj() {
    engine::lend();
}
