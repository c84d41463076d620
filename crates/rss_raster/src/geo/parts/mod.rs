//! A CRS in parts: ellipsoid, datum, projection, unit. What a CRS without an EPSG code is known by.
//!
//! WKT 1 (of GDAL and of ESRI), WKT 2, PROJJSON and PROJ strings are read into [`Parts`], and these are written as
//! WKT 1, as a PROJ string for `proj4rs`, or as GeoKeys. What is not known here is refused by name: a wrong position is
//! worse than none. Heights are left out: of a compound CRS the horizontal one counts.

pub(crate) mod geokeys;
mod methods;
mod proj_string;
mod projjson;
#[cfg(test)]
mod tests;
mod wkt;

use self::methods::{Method, Parameter};
use crate::error::{Error, ErrorKind, Result};

/// The longest text that is read.
const MOST_TEXT: usize = 1 << 16;

/// A CRS in parts.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    name: String,
    base: Base,
    /// The map projection; none for a geographic CRS.
    map: Option<Map>,
    /// The EPSG code that the text states for the complete CRS.
    pub(super) code: Option<u32>,
}

/// A geographic CRS.
#[derive(Clone, Debug)]
struct Base {
    name: String,
    datum: String,
    ellipsoid: String,
    /// The semi-major axis in metres.
    semi_major: f64,
    /// The inverse flattening, zero for a sphere.
    inverse_flattening: f64,
    /// The shift to WGS 84 that the text states.
    shift: Option<[f64; 7]>,
    /// The longitude of the prime meridian in degrees from Greenwich.
    meridian: f64,
    /// Radians in a unit of longitude.
    unit: f64,
    /// The EPSG code, if the text states it, or its datum's name is a well-known one.
    code: Option<u32>,
}

/// A map projection, with angles in degrees and lengths in metres.
#[derive(Clone, Debug)]
struct Map {
    method: &'static Method,
    /// The values of the method's parameters, in its order; then false easting and false northing.
    values: Vec<f64>,
    east: f64,
    north: f64,
    unit: Unit,
}

/// A unit of length.
#[derive(Clone, Debug, PartialEq)]
struct Unit {
    name: String,
    metres: f64,
}

impl Unit {
    fn metre() -> Self {
        Self {
            name: "metre".to_owned(),
            metres: 1.0,
        }
    }

    fn code(&self) -> Option<u32> {
        let known = [
            (9001, 1.0),
            (9002, 0.3048),
            (9003, 12.0 / 39.37),
            (9036, 1000.0),
        ];
        known
            .into_iter()
            .find(|(_, metres)| near(*metres, self.metres))
            .map(|(code, _)| code)
    }
}

impl Parts {
    /// Reads WKT 1, WKT 2, PROJJSON, or a PROJ string.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] naming what is not known here; [`ErrorKind::InvalidInput`] if the text is none of
    /// these.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        if text.len() > MOST_TEXT {
            return Err(invalid(format!(
                "a CRS of {} characters; expected at most {MOST_TEXT}",
                text.len()
            )));
        }
        if text.starts_with('{') {
            return projjson::parse(text);
        }
        if text.starts_with('+') || text.starts_with("proj=") {
            return proj_string::parse(text);
        }
        wkt::parse(text)
    }

    /// Returns true for longitude and latitude.
    pub(crate) fn is_geographic(&self) -> bool {
        self.map.is_none()
    }

    /// Returns true if the coordinates are degrees of longitude and latitude from Greenwich, on any ellipsoid whose
    /// datum is not shifted.
    pub(super) fn is_plain_degrees(&self) -> bool {
        self.map.is_none()
            && self.base.meridian == 0.0
            && near(self.base.unit, 1.0_f64.to_radians())
    }

    /// Returns the length of a unit in metres; none for a geographic CRS.
    pub(super) fn metres(&self) -> Option<f64> {
        Some(self.map.as_ref()?.unit.metres)
    }

    /// Returns the CRS with another unit of length: false easting and northing keep their length.
    pub(crate) fn with_unit(mut self, name: &str, metres: f64) -> Option<Self> {
        let map = self.map.as_mut()?;
        let is_same = near(map.unit.metres, metres);
        if !is_same {
            map.unit = Unit {
                name: name.to_owned(),
                metres,
            };
            self.code = None;
        }
        Some(self)
    }

    /// Returns the EPSG code that names exactly this, if there is a well-known one.
    pub(crate) fn epsg(&self) -> Option<u32> {
        if let Some(code) = self.code {
            return Some(code);
        }
        let base = self.base.code?;
        let is_plain = self.base.meridian == 0.0 && near(self.base.unit, 1.0_f64.to_radians());
        if !is_plain || self.base.shift.is_some_and(|shift| shift != [0.0; 7]) {
            return None;
        }
        match &self.map {
            None => Some(base),
            Some(map) if map.unit.metres == 1.0 => map.epsg(base),
            Some(_) => None,
        }
    }

    /// Returns the PROJ string for `proj4rs`, and whether the datum is shifted.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] naming a projection or a datum that cannot be evaluated here.
    pub(super) fn proj_string(&self) -> Result<(String, bool)> {
        let Base {
            semi_major,
            inverse_flattening,
            ..
        } = self.base;
        let mut text = match &self.map {
            None => "+proj=longlat".to_owned(),
            Some(map) => map.proj_string()?,
        };
        if text.contains("@null") {
            return Ok((format!("{text} +no_defs"), false));
        }
        text += &format!(" +a={semi_major}");
        text += &match inverse_flattening {
            0.0 => format!(" +b={semi_major}"),
            inverse => format!(" +rf={inverse}"),
        };
        if self.base.meridian != 0.0 || (self.map.is_none() && !self.is_plain_degrees()) {
            return Err(unsupported(
                "its prime meridian is not Greenwich, or its angles are not degrees",
            ));
        }
        let shift = self.base.shift()?;
        let shifted = shift.is_some();
        if let Some(shift) = shift {
            text += &format!(" +towgs84={shift}");
        }
        Ok((text + " +no_defs", shifted))
    }

    /// Returns true if coordinates of the two are the same.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let datum = |base: &Base| match base.code {
            Some(code) => code.to_string(),
            None => plain(&base.datum),
        };
        let (a, b) = (&self.base, &other.base);
        let is_base = near(a.semi_major, b.semi_major)
            && near_zero(a.inverse_flattening, b.inverse_flattening)
            && a.meridian == b.meridian
            && near(a.unit, b.unit)
            && a.shift == b.shift
            && datum(a) == datum(b);
        is_base
            && match (&self.map, &other.map) {
                (None, None) => true,
                (Some(a), Some(b)) => a.is_same(b),
                _ => false,
            }
    }
}

impl Base {
    /// Returns the shift to WGS 84 as PROJ writes it; none where degrees are taken to be those of WGS 84, as PROJ
    /// does for a datum that nobody has named.
    fn shift(&self) -> Result<Option<String>> {
        if let Some(shift) = self.shift {
            let is_zero = shift.iter().all(|part| *part == 0.0);
            let words: Vec<String> = shift.iter().map(f64::to_string).collect();
            return Ok((!is_zero).then(|| words.join(",")));
        }
        if let Some(code) = self.code {
            let known = super::definition::Definition::of_epsg(code)?;
            if !known.shifted {
                return Ok(None);
            }
            let stated = known
                .text
                .split_ascii_whitespace()
                .find_map(|word| word.strip_prefix("+towgs84="));
            return match stated {
                Some(shift) => Ok(Some(shift.to_owned())),
                None => Err(unsupported(&format!(
                    "the shift of its datum, EPSG:{code}, has no parameters here"
                ))),
            };
        }
        let name = plain(&self.datum);
        let is_unnamed = name.is_empty()
            || [
                "unknown",
                "unnamed",
                "notspecified",
                "userdefined",
                "undefined",
                "custom",
            ]
            .into_iter()
            .any(|word| {
                name.strip_prefix('d').unwrap_or(&name).starts_with(word) || name.starts_with(word)
            });
        let is_modern = near(self.semi_major, 6_378_137.0)
            && (298.25..298.26).contains(&self.inverse_flattening);
        match is_unnamed || is_modern || self.inverse_flattening == 0.0 {
            true => Ok(None),
            false => Err(unsupported(&format!(
                "the shift of its datum `{}` to WGS 84 is not known here",
                self.datum
            ))),
        }
    }
}

impl Map {
    fn value(&self, wanted: Parameter) -> Option<f64> {
        let mut all = self.method.parameters.iter().zip(&self.values);
        all.find(|(slot, _)| slot.kind == wanted)
            .map(|(_, value)| *value)
    }

    fn is_same(&self, other: &Self) -> bool {
        let near_values = |(a, b): (&f64, &f64)| near_zero(*a, *b);
        self.method.wkt == other.method.wkt
            && self.method.words == other.method.words
            && self.values.iter().zip(&other.values).all(near_values)
            && near_zero(self.east, other.east)
            && near_zero(self.north, other.north)
            && near(self.unit.metres, other.unit.metres)
    }

    /// Returns the code of a map in metres on a base. Those that GDAL finds too.
    fn epsg(&self, base: u32) -> Option<u32> {
        let is = |parameter, wanted: f64| {
            self.value(parameter)
                .is_some_and(|value| near_zero(value, wanted))
        };
        let at = |east: f64, north: f64| near_zero(self.east, east) && near_zero(self.north, north);
        match self.method.wkt {
            "Popular_Visualisation_Pseudo_Mercator" => {
                (base == 4326 && is(Parameter::Lon0, 0.0) && at(0.0, 0.0)).then_some(3857)
            }
            "Transverse_Mercator" if is(Parameter::Lat0, 0.0) && is(Parameter::Scale, 0.9996) => {
                let zone = (self.value(Parameter::Lon0)? + 183.0) / 6.0;
                let is_zone = (zone - zone.round()).abs() < 1e-9 && (1.0..=60.0).contains(&zone);
                let south = match (at(500_000.0, 0.0), at(500_000.0, 1e7)) {
                    (true, _) => false,
                    (_, true) => true,
                    _ => return None,
                };
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "from 1 to 60"
                )]
                let zone = is_zone.then_some(zone.round() as u32)?;
                Some(match (base, south, zone) {
                    (4326, false, zone) => 32_600 + zone,
                    (4326, true, zone) => 32_700 + zone,
                    (4322, false, zone) => 32_200 + zone,
                    (4322, true, zone) => 32_300 + zone,
                    (4269, false, 1..=23) => 26_900 + zone,
                    (4267, false, 1..=22) => 26_700 + zone,
                    (4258, false, 28..=38) => 25_800 + zone,
                    (4283, true, 48..=58) => 28_300 + zone,
                    (7844, true, 46..=59) => 7_800 + zone,
                    _ => return None,
                })
            }
            "Polar_Stereographic" if base == 4326 && is(Parameter::Scale, 1.0) && at(0.0, 0.0) => {
                let known = [
                    (-71.0, 0.0, 3031),
                    (71.0, 0.0, 3995),
                    (70.0, -45.0, 3413),
                    (-70.0, 0.0, 3976),
                ];
                let of = |&(lat, lon, _): &(f64, f64, u32)| {
                    is(Parameter::Lat0, lat) && is(Parameter::Lon0, lon)
                };
                known.iter().find(|known| of(known)).map(|known| known.2)
            }
            _ => None,
        }
    }

    /// Returns the PROJ string of the projection, without ellipsoid.
    fn proj_string(&self) -> Result<String> {
        let method = self.method;
        if !method.is_evaluated {
            return Err(unsupported(&format!(
                "the projection {} is not known here",
                method.wkt
            )));
        }
        let mut text = format!("+proj={}{}", method.proj, method.words);
        if method.wkt == "Polar_Stereographic" {
            let lat = self.value(Parameter::Lat0).unwrap_or_default();
            let pole = 90.0_f64.copysign(lat);
            text += &format!(" +lat_0={pole}");
            if lat.abs() < 90.0 {
                text += &format!(" +lat_ts={lat}");
            }
        }
        for (slot, value) in method.parameters.iter().zip(&self.values) {
            let is_polar = method.wkt == "Polar_Stereographic";
            match slot.kind {
                Parameter::Lat0 if is_polar => {}
                kind => text += &format!(" +{}={value}", method.word(kind)),
            }
        }
        if method.wkt == "Lambert_Conformal_Conic_1SP" {
            let lat = self.value(Parameter::Lat0).unwrap_or_default();
            text += &format!(" +lat_1={lat}");
        }
        text += &format!(" +x_0={} +y_0={}", self.east, self.north);
        if self.unit.metres != 1.0 {
            text += &format!(" +to_meter={}", self.unit.metres);
        }
        Ok(text)
    }
}

/// Returns the letters and digits of a name, in lower case: spellings differ in the rest.
fn plain(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.map(|c| c.to_ascii_lowercase()).collect()
}

/// Returns the geographic CRS of a datum by its name, if its ellipsoid is that of the datum: of those that name
/// themselves without a code.
fn code_of_datum(datum: &str, semi_major: f64, inverse_flattening: f64) -> Option<u32> {
    let name = plain(datum);
    let name = match name.strip_prefix('d') {
        Some(rest) if datum.starts_with("D_") => rest,
        _ => &name,
    };
    const WGS_84: [f64; 2] = [6_378_137.0, 298.257_223_563];
    const GRS_80: [f64; 2] = [6_378_137.0, 298.257_222_101];
    let (code, [a, inverse]) = match name {
        "wgs1984" | "worldgeodeticsystem1984" | "worldgeodeticsystem1984ensemble" | "wgs84" => {
            (4326, WGS_84)
        }
        "northamericandatum1983" | "northamerican1983" | "nad83" => (4269, GRS_80),
        "northamericandatum1927" | "northamerican1927" | "nad27" => {
            (4267, [6_378_206.4, 294.978_698_2])
        }
        "europeanterrestrialreferencesystem1989"
        | "etrs1989"
        | "europeanterrestrialreferencesystem1989ensemble" => (4258, GRS_80),
        "geocentricdatumofaustralia1994" | "gda1994" => (4283, GRS_80),
        "geocentricdatumofaustralia2020" | "gda2020" => (7844, GRS_80),
        "newzealandgeodeticdatum2000" | "nzgd2000" => (4167, GRS_80),
        "sirgas2000" | "sistemadereferenciageocentricoparalasamericas2000" => (4674, GRS_80),
        "wgs1972" | "worldgeodeticsystem1972" => (4322, [6_378_135.0, 298.26]),
        "europeandatum1950" | "european1950" => (4230, [6_378_388.0, 297.0]),
        "ordnancesurveyofgreatbritain1936" | "osgb1936" => (4277, [6_377_563.396, 299.324_964_6]),
        "amersfoort" => (4289, [6_377_397.155, 299.152_812_8]),
        "riketskoordinatsystem1990" | "rt1990" => (4124, [6_377_397.155, 299.152_812_8]),
        _ => return None,
    };
    // Writers round the flattening: GRS 80 is found as 298.257222101004 and as 298.2572221.
    let is_own = near(semi_major, a) && (inverse_flattening - inverse).abs() < 5e-7;
    is_own.then_some(code)
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs()
}

fn near_zero(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs().max(1.0)
}

fn unsupported(why: &str) -> Error {
    Error::new(ErrorKind::Unsupported, why)
}

fn invalid(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, why.into())
}
