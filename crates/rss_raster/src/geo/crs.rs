//! The coordinate reference system of a raster.

use std::fmt;

use super::{Bbox, utm::UtmZone};
use crate::error::{Error, ErrorKind, Result};

/// A coordinate reference system: an EPSG code where one is known, else its WKT.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Crs {
    /// A code of the [EPSG dataset](https://epsg.org).
    Epsg(u32),
    /// Well-known text (WKT), as GDAL or the COG reader returns it.
    Wkt(String),
}

impl Crs {
    /// Returns the WGS 84 UTM zone of the centre of a bbox: EPSG:326zz north of the equator, EPSG:327zz south of it.
    /// All zones are taken to be six degrees wide: the exceptions of Norway and Svalbard are not applied.
    ///
    /// ```
    /// use rss_raster::Crs;
    ///
    /// assert_eq!(Crs::utm_of(&"152,-28,153,-27".parse()?)?, Crs::Epsg(32756));
    /// // The centre of a bbox across the antimeridian is near 180, not near 0.
    /// assert_eq!(Crs::utm_of(&"177,16,-179,19".parse()?)?, Crs::Epsg(32660));
    /// # Ok::<_, rss_raster::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the centre lies north of 84 or south of -80 degrees, where UTM ends.
    pub fn utm_of(bbox: &Bbox) -> Result<Self> {
        let [west, south, east, north] = bbox.edges();
        let lat = (south + north) / 2.0;
        if !(-80.0..=84.0).contains(&lat) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("bbox {bbox} has its centre at latitude {lat}; UTM covers -80 to 84"),
            ));
        }
        let wrap = if bbox.crosses_antimeridian() {
            360.0
        } else {
            0.0
        };
        let lon = (west + east + wrap) / 2.0;
        let zone = ((lon + 180.0) / 6.0).floor().rem_euclid(60.0);
        #[expect(clippy::cast_possible_truncation, reason = "from 0 to 59")]
        let zone = UtmZone {
            number: zone as u8 + 1,
            south: lat < 0.0,
        };
        Ok(Self::Epsg(zone.epsg()))
    }

    /// Returns the EPSG code, if this CRS is identified by one.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_six_degrees_wide() {
        for (bbox, code) in [
            ("-180,1,-175,2", 32601),
            ("174.1,-2,180,-1", 32760),
            ("144,-36,149.9,-35", 32755),
            ("144,-36,156.2,-35", 32756),
            ("-1,-1,1,1", 32631),
            ("179,-18,-177,-17", 32701),
            ("180,-18,180,-17", 32701),
        ] {
            let found = Crs::utm_of(&bbox.parse().unwrap()).unwrap();
            assert_eq!(found, Crs::Epsg(code), "{bbox}");
        }
        let err = Crs::utm_of(&"0,80,1,89".parse().unwrap()).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
    }
}
