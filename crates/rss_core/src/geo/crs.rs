//! The coordinate reference system of a raster.

use std::fmt;

/// A coordinate reference system: an EPSG code where one is known, else its WKT.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Crs {
    /// A code of the [EPSG dataset](https://epsg.org).
    Epsg(u32),
    /// Well-known text, as GDAL or the COG reader gives it.
    Wkt(String),
}

impl Crs {
    /// Returns the EPSG code, if this CRS is named by one.
    pub fn epsg(&self) -> Option<u32> {
        match self {
            Self::Epsg(code) => Some(*code),
            Self::Wkt(_) => None,
        }
    }
}

impl fmt::Display for Crs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Epsg(code) => write!(f, "EPSG:{code}"),
            Self::Wkt(wkt) => f.write_str(wkt),
        }
    }
}
