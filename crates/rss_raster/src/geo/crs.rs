//! The coordinate reference system of a raster.

use std::{fmt, str::FromStr};

use super::{
    Bbox,
    definition::unit_of,
    engine::engine,
    parts::{Parts, geokeys},
    utm::UtmZone,
};
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

    /// Returns the CRS of well-known text: the EPSG code that names exactly this, if there is a well-known one, else the
    /// text.
    ///
    /// ```
    /// use rss_raster::Crs;
    ///
    /// let text = Crs::parse("+proj=stere +lat_0=-90 +lat_ts=-71 +datum=WGS84")?;
    /// assert_eq!(text, Crs::Epsg(3031));
    /// # Ok::<_, rss_raster::Error>(())
    /// ```
    pub fn of_wkt(wkt: impl Into<String>) -> Self {
        let wkt = wkt.into();
        match Parts::parse(&wkt).ok().and_then(|parts| parts.epsg()) {
            Some(code) => Self::Epsg(code),
            None => Self::Wkt(wkt),
        }
    }

    /// Reads a CRS in any notation: `EPSG:32755` or `32755`, WKT 1 or 2, PROJJSON, a PROJ string; with PROJ at hand
    /// (see [`set_projection_engine`](super::set_projection_engine)) all that PROJ knows, such as `ESRI:54009`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if it is none of these; [`ErrorKind::Unsupported`] naming a part that is not known.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        let upper = text.to_ascii_uppercase();
        let digits = [
            "EPSG:",
            "URN:OGC:DEF:CRS:EPSG::",
            "HTTP://WWW.OPENGIS.NET/DEF/CRS/EPSG/0/",
        ]
        .into_iter()
        .find_map(|start| upper.strip_prefix(start))
        .unwrap_or(&upper);
        if let Ok(code) = digits.parse() {
            return Ok(Self::Epsg(code));
        }
        let is_code = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_named = text.split_once(':').is_some_and(|(name, code)| {
            !name.is_empty()
                && name.chars().all(is_code)
                && !code.is_empty()
                && code.chars().all(is_code)
        });
        let has_form =
            text.starts_with(['{', '+']) || text.starts_with("proj=") || text.contains(['[', '(']);
        if !is_named && !has_form {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "`{text}` is not a CRS; expected an EPSG code, WKT, PROJJSON, a PROJ string or AUTHORITY:CODE"
                ),
            ));
        }
        // Text that is known here in full needs no library.
        let parts = match is_named {
            true => Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "{text}: only EPSG codes are known without PROJ, which rss_core brings with the feature gdal, from the first session on"
                ),
            )),
            false => Parts::parse(text),
        };
        if let Some(code) = parts.as_ref().ok().and_then(Parts::epsg) {
            return Ok(Self::Epsg(code));
        }
        match engine() {
            Some(engine) => engine.crs(text),
            None => Ok(Self::Wkt(parts?.to_wkt())),
        }
    }

    /// Returns true if coordinates of the two are the same: one CRS may be written in many ways.
    pub fn is_same(&self, other: &Self) -> bool {
        if self == other {
            return true;
        }
        let parts = |crs: &Self| match crs {
            Self::Epsg(_) => None,
            Self::Wkt(wkt) => Parts::parse(wkt).ok(),
        };
        match (parts(self), parts(other)) {
            (Some(a), Some(b)) => match (a.epsg(), b.epsg()) {
                (Some(a), Some(b)) => a == b,
                _ => a.is_same(&b),
            },
            (Some(parts), None) => parts.epsg().is_some_and(|code| *other == Self::Epsg(code)),
            (None, Some(parts)) => parts.epsg().is_some_and(|code| *self == Self::Epsg(code)),
            (None, None) => false,
        }
    }

    /// Returns the length of a unit of the coordinates in metres; none for a geographic CRS, and where the definition is
    /// not known here.
    pub fn linear_unit(&self) -> Option<f64> {
        match self {
            Self::Wkt(wkt) => Parts::parse(wkt).ok()?.metres(),
            Self::Epsg(code) => unit_of(*code),
        }
    }

    /// Returns this CRS with another unit of length, by its name and its length in metres: false easting and northing
    /// keep their length. It is unchanged, code and all, if that is its unit. None if the CRS has no unit of length, or
    /// its definition is not known in full, as that of an EPSG code without the feature `wkt`.
    pub fn with_linear_unit(&self, name: &str, metres: f64) -> Option<Self> {
        let parts = match self {
            Self::Wkt(wkt) => Parts::parse(wkt).ok()?,
            Self::Epsg(code) => Parts::parse(text_of(*code)?).ok()?,
        };
        let own = parts.metres()?;
        if (own - metres).abs() <= 1e-9 * own {
            return Some(self.clone());
        }
        Some(Self::Wkt(parts.with_unit(name, metres)?.to_wkt()))
    }

    /// Returns true if a GeoTIFF can state it: by a code, in parts, or, where its definition is not known here, as WKT 1 of
    /// a map projection in a citation, where GDAL and ArcGIS look for it.
    pub fn has_geo_keys(&self) -> bool {
        match self {
            Self::Epsg(_) => true,
            Self::Wkt(wkt) => self.is_known() || geokeys::quoted(wkt).is_some(),
        }
    }

    /// Returns true if its definition is known here in full.
    pub fn is_known(&self) -> bool {
        match self {
            Self::Epsg(_) => true,
            Self::Wkt(wkt) => Parts::parse(wkt).is_ok(),
        }
    }

    /// Returns the EPSG code, if this CRS is identified by one.
    pub fn epsg(&self) -> Option<u32> {
        match self {
            Self::Epsg(code) => Some(*code),
            Self::Wkt(_) => None,
        }
    }
}

/// Returns the well-known text of an EPSG code.
#[cfg(feature = "wkt")]
fn text_of(code: u32) -> Option<&'static str> {
    Some(crs_definitions::from_code(u16::try_from(code).ok()?)?.wkt)
}

#[cfg(not(feature = "wkt"))]
fn text_of(_: u32) -> Option<&'static str> {
    None
}

/// As [`Crs::parse`].
impl FromStr for Crs {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
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
