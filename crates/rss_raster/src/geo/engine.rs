//! Conversions of CRSs that are not evaluated here, by another library.
//!
//! `rss_core` lends PROJ where GDAL is built in. A CRS is a value that belongs to no session, and a grid is projected
//! without one, so the library is chosen once for the process.

use std::{
    fmt::Debug,
    sync::{Arc, OnceLock},
};

use super::Crs;
use crate::error::Result;

/// A library that knows more CRSs.
pub trait ProjectionEngine: Debug + Send + Sync {
    /// Returns the conversion between degrees of WGS 84 and a CRS.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the library does not know it.
    fn projection(&self, crs: &Crs) -> Result<Arc<dyn ForeignProjection>>;

    /// Returns the CRS of a text in any notation: WKT, PROJJSON, a PROJ string, `ESRI:54009`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if it is none.
    fn crs(&self, text: &str) -> Result<Crs>;
}

/// The conversion between degrees of WGS 84 and a CRS, by another library.
pub trait ForeignProjection: Debug + Send + Sync {
    /// Projects longitude and latitude to x and y; none outside the domain.
    fn to_crs(&self, lon_lat: [f64; 2]) -> Option<[f64; 2]>;

    /// Unprojects x and y to longitude and latitude; none outside the domain.
    fn to_lon_lat(&self, coords: [f64; 2]) -> Option<[f64; 2]>;

    /// Returns the length of a unit in metres; none if the coordinates are degrees.
    fn metres(&self) -> Option<f64>;

    /// Returns the central longitude in degrees.
    fn middle(&self) -> f64;
}

// The one global of this crate, for the reason above.
static ENGINE: OnceLock<Arc<dyn ProjectionEngine>> = OnceLock::new();

/// Sets the library that evaluates CRSs which this crate does not: those without an EPSG code, and those whose
/// definition is not usable here. The first one stays; a later one is ignored.
pub fn set_projection_engine(engine: Arc<dyn ProjectionEngine>) {
    // A second engine would change grids that are in use.
    drop(ENGINE.set(engine));
}

pub(super) fn engine() -> Option<&'static Arc<dyn ProjectionEngine>> {
    ENGINE.get()
}
