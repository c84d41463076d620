//! The GeoKeys of a file, and the coordinate reference system that they state. No IO.
//!
//! A CRS that the keys name by an EPSG code is that code, unless they state another unit of length: such a CRS, and one
//! that they define in parts, becomes WKT 1 as GDAL writes it, so that no reader needs a database, or the EPSG code that
//! names exactly this. Only the horizontal CRS is read. Where a part is
//! missing, not known here, or stated twice with different values, there is no CRS: a wrong position is
//! worse than none.
//!
//! See [GeoTIFF 1.1](https://docs.ogc.org/is/19-008r4/19-008r4.html), clause 7, whose requirement
//! classes the items below name.

use super::{
    datums::{Datum, Ellipsoid},
    directory::{Entry, Reader, Stop},
    keys::{Keys, MOST_NUMBER},
    projections,
};
use crate::geo::Crs;

/// The code of a definition in the file itself ("user-defined").
pub(super) const USER_DEFINED: u64 = 32_767;
/// Characters of a name in WKT.
const MOST_NAME: usize = 128;
/// Characters of WKT in a citation.
const MOST_WKT: usize = 8192;

impl Reader<'_> {
    /// Returns the keys. Doubles and texts are read only if no code names the CRS, or if they may state another unit than
    /// the code's: they may be far from the directory and cost a request.
    pub(super) fn keys(&self, entries: &[Entry]) -> Result<Keys, Stop> {
        let mut keys = Keys {
            directory: self.numbers(entries, 34735)?,
            ..Keys::default()
        };
        let is_named = keys.epsg().is_some();
        let has_unit_size = keys.is_projected() && keys.code(3076) == Some(USER_DEFINED);
        let has_unit_name = keys.is_projected() && keys.has(1026);
        // Damaged keys make the CRS unknown, and not the file unreadable.
        if !keys.directory.is_empty() && (!is_named || has_unit_size) {
            keys.doubles = unless_failed(self.doubles(entries, 34736))?;
        }
        if !keys.directory.is_empty() && (!is_named || has_unit_name) {
            let texts = unless_failed(self.value(entries, 34737))?;
            keys.texts = texts.map(|(_, bytes)| bytes).unwrap_or_default();
        }
        Ok(keys)
    }
}

/// EPSG codes of CRSs with heights, and those of their horizontal parts: the ones that images are likely to state.
const WITH_HEIGHTS: [(u32, u32); 21] = [
    (4480, 4490),
    (4937, 4258),
    (4939, 4283),
    (4947, 4612),
    (4955, 4617),
    (4957, 4152),
    (4959, 4167),
    (4965, 4171),
    (4979, 4326),
    (4989, 4674),
    (6319, 6318),
    (6667, 6668),
    (7665, 9057),
    (7843, 7844),
    (7912, 9000),
    (8244, 8246),
    (8251, 8252),
    (8254, 8255),
    (9518, 4326),
    (9754, 9755),
    (9989, 9990),
];

/// Returns the code of the horizontal part.
fn horizontal(code: u32) -> u32 {
    let pair = WITH_HEIGHTS.iter().find(|(with, _)| *with == code);
    pair.map_or(code, |(_, without)| *without)
}

/// Replaces a failure by the default, but not `Missing`, which is not fetched yet.
fn unless_failed<T: Default>(read: Result<T, Stop>) -> Result<T, Stop> {
    match read {
        Err(Stop::Failed(_)) => Ok(T::default()),
        other => other,
    }
}

impl Keys {
    fn is_projected(&self) -> bool {
        // Class GTModelTypeGeoKey.
        match self.code(1024) {
            Some(1) => true,
            Some(2) => false,
            _ => self.entries().any(|key| matches!(key, [3072..=3199, ..])),
        }
    }

    /// Returns the EPSG code of the CRS.
    fn epsg(&self) -> Option<u32> {
        // In a projected CRS the geographic code is that of its base.
        let code = self.code(if self.is_projected() { 3072 } else { 2048 })?;
        let is_code = code > 0 && code < USER_DEFINED;
        u32::try_from(code).ok().filter(|_| is_code)
    }

    /// Returns what states heights: a vertical key (classes `VerticalCRSGeoKey` and so on), or a code of a CRS with them.
    pub(super) fn heights(&self) -> Option<String> {
        if let Some(code) = self.epsg().filter(|&code| horizontal(code) != code) {
            return Some(format!("EPSG:{code}"));
        }
        match self.code(4096) {
            Some(0) => None,
            Some(USER_DEFINED) => Some("a vertical CRS of its own".to_owned()),
            Some(code) => Some(format!("vertical code {code}")),
            None => self.has(4097).then(|| "a vertical CRS".to_owned()),
        }
    }

    pub(super) fn crs(&self) -> Option<Crs> {
        if let Some(code) = self.epsg() {
            let crs = Crs::Epsg(horizontal(code));
            let unit = match self.is_projected() {
                true => self
                    .unit_of_citation(&[1026])
                    .or_else(|| self.unit_of_code()),
                false => None,
            };
            // A unit of the file that differs from the code's replaces it, as in GDAL.
            return match (unit, crs.linear_unit()) {
                (Some((name, metres)), Some(own)) if !near(metres, own) => {
                    crs.with_linear_unit(&name, metres)
                }
                _ => Some(crs),
            };
        }
        if let Some(wkt) = self.quoted() {
            return Some(Crs::of_wkt(wkt));
        }
        match (self.code(1024), self.is_projected()) {
            // Geocentric.
            (Some(3), _) => None,
            (_, true) => self.projected(),
            (_, false) => {
                let axes = r#"AXIS["Latitude",NORTH],AXIS["Longitude",EAST]"#;
                self.geographic(axes).map(|base| Crs::of_wkt(base.wkt))
            }
        }
    }

    /// Returns what is not known here of the CRS that the keys state, where that is why there is none.
    pub(super) fn unknown(&self) -> Option<String> {
        // A geocentric CRS is none of an image.
        if self.code(1024) == Some(3) || self.crs().is_some() {
            return None;
        }
        let code = |key| {
            self.code(key)
                .filter(|&code| !matches!(code, 0 | USER_DEFINED))
        };
        if self.is_projected() {
            match (code(3074), self.code(3075)) {
                (Some(code), _) if projections::utm(code).is_none() => {
                    return Some(format!("the projection with the code {code}"));
                }
                (None, Some(method)) if !projections::is_known(method) => {
                    let name = match method {
                        2 => " (modified transverse Mercator)",
                        3 => " (Hotine oblique Mercator)",
                        4 => " (Laborde oblique Mercator)",
                        5 => " (Swiss oblique Mercator)",
                        6 => " (spherical oblique Mercator)",
                        _ => "",
                    };
                    return Some(format!("the projection method {method}{name}"));
                }
                (None, _) if code(3076).is_some() && self.linear_unit().is_none() => {
                    return Some("the unit of its coordinates".to_owned());
                }
                _ => {}
            }
        }
        if let Some(code) = code(2048).filter(|&code| Datum::of_crs(code).is_none()) {
            return Some(format!("the geographic CRS with the code {code}"));
        }
        if let Some(code) = code(2050).filter(|&code| Datum::of_code(code).is_none()) {
            return Some(format!("the datum with the code {code}"));
        }
        let code = code(2056).filter(|&code| Ellipsoid::of_code(code).is_none());
        code.map(|code| format!("the ellipsoid with the code {code}"))
    }

    /// Returns the WKT that ArcGIS and GDAL write into a citation if keys cannot express the CRS.
    fn quoted(&self) -> Option<String> {
        let of_key = |key| {
            let text = self.text(key)?;
            let (said, wkt) = text.split_once('=')?;
            (said.trim() == "ESRI PE String").then(|| wkt.trim().to_owned())
        };
        let wkt = of_key(3073).or_else(|| of_key(1026))?;
        let is_horizontal = wkt.starts_with("PROJCS[") || wkt.starts_with("GEOGCS[");
        (is_horizontal && wkt.len() <= MOST_WKT && is_whole(&wkt)).then_some(wkt)
    }

    fn projected(&self) -> Option<Crs> {
        // If the base has other units or another meridian, readers differ on the meaning of a
        // projection's angles.
        let base = self.geographic("").filter(|base| base.is_plain)?;
        // A citation of ERDAS IMAGINE states the unit of the coordinates; the parameters stay in that of their key.
        let stated = self.unit_of_citation(&[3073, 1026]);
        // Class ProjectionGeoKey: a code of method and parameters.
        let of_code = match self.code(3074) {
            None | Some(0 | USER_DEFINED) => None,
            Some(code) => Some(code),
        };
        let (projection, unit, stated) = match of_code {
            None => {
                let unit = match (&stated, self.has(3076)) {
                    (Some(_), false) => METRE.to_owned(),
                    _ => self.linear_unit()?,
                };
                (projections::of_keys(self)?, unit, stated)
            }
            Some(code) => {
                // The codes that are known here have metres, whatever the unit of the coordinates.
                let stated = match (stated, self.code(3076)) {
                    (None, None) => None,
                    (None, Some(_)) => Some(self.unit_of_code()?),
                    (stated, _) => stated,
                };
                let is_metre = stated.as_ref().is_none_or(|(_, metres)| near(*metres, 1.0));
                if let (Some(code), true) = (projections::epsg(code, base.epsg), is_metre) {
                    return Some(Crs::Epsg(code));
                }
                (projections::utm(code)?, METRE.to_owned(), stated)
            }
        };
        let name = [3073, 1026].into_iter().find_map(|key| {
            let text = self.text(key)?;
            let name = text.strip_prefix("PCS Name = ").unwrap_or(&text);
            let name = name.split('|').next().unwrap_or_default();
            (!name.is_empty()).then(|| named(name))
        });
        let name = name.unwrap_or_else(|| "unnamed".to_owned());
        let axes = projection.axes;
        let (base, projection) = (base.wkt, projection.wkt);
        let crs = Crs::of_wkt(format!(
            r#"PROJCS["{name}",{base},{projection},{unit},{axes}]"#
        ));
        match stated {
            Some((name, metres)) => crs.with_linear_unit(&name, metres),
            None => Some(crs),
        }
    }

    /// Returns the unit that ERDAS IMAGINE states in a citation, and its length in metres: `Units = us_survey_feet`, or
    /// `LUnits = ..` as GDAL writes it. In any letter case, as in GDAL.
    fn unit_of_citation(&self, keys: &[u64]) -> Option<(String, f64)> {
        keys.iter()
            .find_map(|&key| unit_of_citation(&self.text_lines(key)?))
    }

    /// Returns the unit of a map and its length in metres by key 3076; none where the key states none that is known.
    fn unit_of_code(&self) -> Option<(String, f64)> {
        match self.code(3076)? {
            USER_DEFINED => {
                let size = self.number(3077).filter(|&size| size > 0.0)?;
                Some(("unnamed".to_owned(), size))
            }
            code => unit_of_code(code),
        }
    }

    /// Returns the unit of a map; classes `UnitsGeoKeys` and `UnitSizeGeoKeys`.
    fn linear_unit(&self) -> Option<String> {
        Some(match self.code(3076)? {
            9001 => METRE.to_owned(),
            9002 => r#"UNIT["foot",0.3048,AUTHORITY["EPSG","9002"]]"#.to_owned(),
            9003 => {
                r#"UNIT["US survey foot",0.304800609601219,AUTHORITY["EPSG","9003"]]"#.to_owned()
            }
            9036 => r#"UNIT["kilometre",1000,AUTHORITY["EPSG","9036"]]"#.to_owned(),
            USER_DEFINED => {
                let size = self.number(3077).filter(|&size| size > 0.0)?;
                format!(r#"UNIT["unnamed",{size}]"#)
            }
            _ => return None,
        })
    }

    /// Returns the geographic CRS, which may be the base of a projected one.
    fn geographic(&self, axes: &str) -> Option<Geographic> {
        // Class GeodeticCRSGeoKey.
        let of_crs = match self.code(2048)? {
            0 | USER_DEFINED => None,
            code => Some(Datum::of_crs(code)?),
        };
        let citation = Citation(self.text(2049).unwrap_or_default());
        // Class GeodeticDatumGeoKey.
        let datum = match (of_crs, self.code(2050)) {
            (Some(datum), Some(code)) if !matches!(code, 0 | USER_DEFINED) => {
                (datum.code == code).then_some(Some(datum))?
            }
            (Some(datum), _) => Some(datum),
            (None, None | Some(0 | USER_DEFINED)) => None,
            (None, Some(code)) => Some(Datum::of_code(code)?),
        };
        let known = datum.and_then(Datum::ellipsoid);
        let spheroid = self.spheroid(known, &citation)?;
        // A known datum with another ellipsoid is another datum.
        let is_whole = known.is_some() && spheroid.code == known.map(|known| known.code);
        let datum_name = match datum {
            Some(datum) if is_whole => datum.name.to_owned(),
            _ => citation
                .part("Datum")
                .unwrap_or_else(|| "unknown".to_owned()),
        };
        let shift = if datum.is_none() {
            self.shift()?
        } else {
            String::new()
        };
        let authority = |code: u64| format!(r#",AUTHORITY["EPSG","{code}"]"#);
        let of_datum = datum.filter(|_| is_whole);
        let datum_code = of_datum.map(|datum| authority(datum.code));
        let datum_code = datum_code.unwrap_or_default();
        let (meridian, is_greenwich) = self.prime_meridian(&citation)?;
        if of_crs.is_some() && !is_greenwich {
            return None;
        }
        let (unit, is_degree) = self.angular_unit(of_crs.is_some())?;
        let whole_crs = of_crs.filter(|_| is_whole && is_degree);
        let (name, code) = match whole_crs {
            Some(datum) => (datum.crs_name.to_owned(), authority(datum.crs)),
            None => (citation.name(), String::new()),
        };
        let comma = if axes.is_empty() { "" } else { "," };
        let spheroid = spheroid.wkt;
        let wkt = format!(
            r#"GEOGCS["{name}",DATUM["{datum_name}",{spheroid}{shift}{datum_code}],{meridian},{unit}{comma}{axes}{code}]"#
        );
        Some(Geographic {
            wkt,
            is_plain: is_degree && is_greenwich,
            epsg: whole_crs.map(|datum| datum.crs),
        })
    }

    /// Returns the ellipsoid: the axes that the file states, else that of a code; classes
    /// `EllipsoidGeoKey`, `EllipsoidSemiMajorAxisGeoKey` and those beside it.
    fn spheroid(
        &self,
        of_datum: Option<&'static Ellipsoid>,
        citation: &Citation,
    ) -> Option<Spheroid> {
        let of_code = match self.code(2056) {
            None | Some(0 | USER_DEFINED) => None,
            Some(code) => Some(Ellipsoid::of_code(code)?),
        };
        // Axes in other units than metres are not supported.
        if !matches!(self.code(2052), None | Some(0 | 9001)) {
            return None;
        }
        let known = of_code.or(of_datum);
        let has_axes = self.has(2057);
        let is_code = |(a, f): (f64, f64), known: &Ellipsoid| {
            near(a, known.semi_major) && near(f, known.inverse_flattening)
        };
        let spheroid = |name: &str, a: f64, f: f64, code: Option<u64>| {
            let authority = code.map(|code| format!(r#",AUTHORITY["EPSG","{code}"]"#));
            let authority = authority.unwrap_or_default();
            let wkt = format!(r#"SPHEROID["{name}",{a},{f}{authority}]"#);
            Some(Spheroid { wkt, code })
        };
        let of_known = |known: &Ellipsoid| {
            let (a, f) = (known.semi_major, known.inverse_flattening);
            spheroid(known.name, a, f, Some(known.code))
        };
        match known {
            Some(known) if !has_axes => of_known(known),
            Some(known) if is_code(self.axes()?, known) => of_known(known),
            _ => {
                let (a, f) = self.axes()?;
                let name = citation.part("Ellipsoid");
                spheroid(&name.unwrap_or_else(|| "unnamed".to_owned()), a, f, None)
            }
        }
    }

    /// Returns the semi-major axis, and the inverse flattening, zero for a sphere.
    fn axes(&self) -> Option<(f64, f64)> {
        let a = self.number(2057).filter(|&a| a > 0.0)?;
        let inverse = if self.has(2059) {
            self.number(2059)?
        } else {
            let b = self.number(2058).filter(|&b| b > 0.0 && b <= a)?;
            if a > b { a / (a - b) } else { 0.0 }
        };
        (inverse == 0.0 || inverse > 1.0).then_some((a, inverse))
    }

    /// Returns the shift to WGS 84 that GDAL writes for a user-defined datum.
    fn shift(&self) -> Option<String> {
        if !self.has(2062) {
            return Some(String::new());
        }
        let values = self.numbers(2062)?;
        let is_sound = |value: &f64| value.is_finite() && value.abs() < MOST_NUMBER;
        if !matches!(values.len(), 3 | 7) || !values.iter().all(is_sound) {
            return None;
        }
        let all = values.iter().chain(&[0.0; 4]).take(7);
        let all: Vec<String> = all.map(f64::to_string).collect();
        Some(format!(",TOWGS84[{}]", all.join(",")))
    }

    /// Returns the prime meridian, and whether it is Greenwich, the default of GeoTIFF; class
    /// `PrimeMeridianGeoKey`.
    fn prime_meridian(&self, citation: &Citation) -> Option<(String, bool)> {
        let longitude = match self.code(2051) {
            Some(8901) => 0.0,
            None | Some(USER_DEFINED) if self.has(2061) => self.number(2061)?,
            None => 0.0,
            _ => return None,
        };
        let is_greenwich = longitude == 0.0;
        let stated = citation.part("Primem").filter(|_| self.has(2061));
        let otherwise = if is_greenwich { "Greenwich" } else { "unnamed" };
        let name = stated.unwrap_or_else(|| otherwise.to_owned());
        let meridian = format!(r#"PRIMEM["{name}",{longitude}]"#);
        (longitude.abs() <= 360.0).then_some((meridian, is_greenwich))
    }

    /// Returns the unit of a geographic CRS, and whether it is the degree.
    fn angular_unit(&self, is_known: bool) -> Option<(String, bool)> {
        let degree = r#"UNIT["degree",0.0174532925199433,AUTHORITY["EPSG","9122"]]"#;
        Some(match self.code(2054) {
            Some(9102 | 9122) => (degree.to_owned(), true),
            // The codes of the table are all in degrees.
            None if is_known => (degree.to_owned(), true),
            Some(9101) => (
                r#"UNIT["radian",1,AUTHORITY["EPSG","9101"]]"#.to_owned(),
                false,
            ),
            Some(9105) => (
                r#"UNIT["grad",0.015707963267949,AUTHORITY["EPSG","9105"]]"#.to_owned(),
                false,
            ),
            Some(USER_DEFINED) => {
                let size = self.number(2055).filter(|&size| size > 0.0)?;
                (format!(r#"UNIT["unnamed",{size}]"#), false)
            }
            _ => return None,
        })
    }
}

/// Returns the unit of an EPSG code, and its length in metres.
pub(in crate::reader) fn unit_of_code(code: u64) -> Option<(String, f64)> {
    let (name, metres) = match code {
        9001 => ("metre", 1.0),
        9002 => ("foot", 0.3048),
        9003 => ("US survey foot", 12.0 / 39.37),
        9005 => ("Clarke's foot", 0.304_797_265_4),
        9014 => ("fathom", 1.8288),
        9030 => ("nautical mile", 1852.0),
        9031 => ("German legal metre", 1.000_013_596_5),
        9033 => ("US survey chain", 792.0 / 39.37),
        9034 => ("US survey link", 7.92 / 39.37),
        9035 => ("US survey mile", 63_360.0 / 39.37),
        9036 => ("kilometre", 1000.0),
        9037 => ("Clarke's yard", 0.914_391_796_2),
        9040 => ("British yard (Sears 1922)", 0.914_398_414_616_029),
        9041 => ("British foot (Sears 1922)", 0.304_799_471_538_676),
        9042 => ("British chain (Sears 1922)", 20.116_765_121_552_6),
        9080 => ("Indian foot", 0.304_799_510_248_147),
        9084 => ("Indian yard", 0.914_398_530_744_441),
        9093 => ("Statute mile", 1609.344),
        9094 => ("Gold Coast foot", 0.304_799_710_181_509),
        9095 => ("British foot (1936)", 0.304_800_749_1),
        9096 => ("yard", 0.9144),
        9097 => ("chain", 20.1168),
        9098 => ("link", 0.201_168),
        _ => return None,
    };
    Some((name.to_owned(), metres))
}

/// Returns the unit that the text of a citation states, and its length in metres.
pub(in crate::reader) fn unit_of_citation(text: &str) -> Option<(String, f64)> {
    let is_imagine = text
        .get(..15)
        .is_some_and(|start| start.eq_ignore_ascii_case("IMAGINE GeoTIFF"));
    let mut parts = text.split(['|', '\n']);
    let name = parts.find_map(|part| {
        let part = part.trim();
        part.strip_prefix("LUnits = ")
            .or_else(|| part.strip_prefix("Units = ").filter(|_| is_imagine))
    })?;
    let metres = imagine_unit(&name.trim().to_ascii_lowercase())?;
    Some((named(name), metres))
}

/// Returns the metres of a unit by its name in ERDAS IMAGINE, in lower case. Its feet are those of the US survey.
fn imagine_unit(name: &str) -> Option<f64> {
    Some(match name {
        "meters" | "meter" | "m" => 1.0,
        "centimeters" | "centimeter" | "cm" => 0.01,
        "millimeters" | "millimeter" | "mm" => 0.001,
        "kilometers" | "kilometer" | "km" => 1000.0,
        "us_survey_feet" | "us_survey_foot" | "feet" | "foot" | "ft" => 12.0 / 39.37,
        "international_feet" | "international_foot" => 0.3048,
        "inches" | "inch" | "in" => 0.025_400_050_800_1,
        "yards" | "yard" | "yd" => 0.9144,
        "clarke_feet" | "clarke_foot" => 0.304_797_265_1,
        "modified_american_feet" | "modified_american_foot" => 0.304_812_253_0,
        "indian_feet" | "indian_foot" => 0.304_799_514_2,
        _ => return None,
    })
}

const METRE: &str = r#"UNIT["metre",1,AUTHORITY["EPSG","9001"]]"#;

/// A geographic CRS in WKT.
#[derive(Debug)]
struct Geographic {
    wkt: String,
    /// True if its longitudes are degrees from Greenwich.
    is_plain: bool,
    /// Its EPSG code, if no part differs from that code's definition.
    epsg: Option<u64>,
}

/// An ellipsoid in WKT.
#[derive(Debug)]
struct Spheroid {
    wkt: String,
    code: Option<u64>,
}

/// The citation of a geographic CRS, in which GDAL and ERDAS write names as `Datum = ..|`.
#[derive(Debug)]
struct Citation(String);

impl Citation {
    fn part(&self, wanted: &str) -> Option<String> {
        let parts = self.0.split('|').filter_map(|part| part.split_once('='));
        let mut values = parts.filter(|(name, _)| name.trim() == wanted);
        let value = values.next()?.1.trim();
        (!value.is_empty()).then(|| named(value))
    }

    fn name(&self) -> String {
        let whole = || {
            let is_name = !self.0.is_empty() && !self.0.contains(['=', '|']);
            is_name.then(|| named(&self.0))
        };
        let name = self.part("GCS Name").or_else(whole);
        name.unwrap_or_else(|| "unknown".to_owned())
    }
}

/// Returns a text as a name inside quotes.
fn named(text: &str) -> String {
    let name = text.trim().chars().take(MOST_NAME);
    name.map(|c| if c == '"' { '\'' } else { c }).collect()
}

/// Returns true for values that differ only by rounding.
fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs()
}

/// Returns true if every bracket and quote of WKT is closed, and nothing follows the last.
fn is_whole(wkt: &str) -> bool {
    let mut depth = 0_usize;
    let mut is_quoted = false;
    let mut ended = false;
    for c in wkt.chars() {
        match c {
            _ if ended => return false,
            '"' => is_quoted = !is_quoted,
            '[' if !is_quoted => depth += 1,
            ']' if !is_quoted => match depth.checked_sub(1) {
                Some(outer) => {
                    depth = outer;
                    ended = outer == 0;
                }
                None => return false,
            },
            _ => {}
        }
    }
    ended
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn keys(codes: &[(u64, u64)], numbers: &[(u64, f64)], texts: &[(u64, &str)]) -> Keys {
        let mut keys = Keys {
            directory: vec![1, 1, 0, 0],
            ..Keys::default()
        };
        for &(id, code) in codes {
            keys.directory.extend([id, 0, 1, code]);
        }
        for (&(id, number), at) in numbers.iter().zip(0..) {
            keys.directory.extend([id, 34736, 1, at]);
            keys.doubles.push(number);
        }
        let mut all = String::new();
        for (id, text) in texts {
            let at = [text.len() as u64, all.len() as u64];
            keys.directory.extend([*id, 34737, at[0], at[1]]);
            all.push_str(text);
        }
        keys.texts = Bytes::from(all);
        keys
    }

    fn wkt(keys: &Keys) -> Option<String> {
        match keys.crs() {
            Some(Crs::Wkt(wkt)) => Some(wkt),
            _ => None,
        }
    }

    const WGS_84: &str = r#"GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563,AUTHORITY["EPSG","7030"]],AUTHORITY["EPSG","6326"]],PRIMEM["Greenwich",0],UNIT["degree",0.0174532925199433,AUTHORITY["EPSG","9122"]],AUTHORITY["EPSG","4326"]]"#;
    const ALBERS: &[(u64, f64)] = &[
        (3078, 29.5),
        (3079, 45.5),
        (3080, -96.0),
        (3081, 23.0),
        (3082, 0.0),
        (3083, 0.0),
    ];

    #[test]
    fn what_is_not_known_of_a_stated_crs_is_named() {
        let base = [(1024, 1), (2048, 4326), (3072, 32767), (3076, 9001)];
        let with = |more: &[(u64, u64)]| keys(&[&base[..], more].concat(), ALBERS, &[]).unknown();
        assert_eq!(with(&[(3075, 11)]), None);
        assert_eq!(
            with(&[(3075, 3)]).as_deref(),
            Some("the projection method 3 (Hotine oblique Mercator)")
        );
        assert_eq!(
            with(&[(3074, 19_905)]).as_deref(),
            Some("the projection with the code 19905")
        );
        let datum = [(1024, 2), (2048, 32767), (2050, 6999)];
        assert_eq!(
            keys(&datum, &[], &[]).unknown().as_deref(),
            Some("the datum with the code 6999")
        );
        // A file without keys states none, and parts that are missing are not unknown ones.
        assert_eq!(keys(&[], &[], &[]).unknown(), None);
        assert_eq!(keys(&[(1024, 1), (3072, 32767)], &[], &[]).unknown(), None);
    }

    #[test]
    fn a_projection_on_a_known_base_is_told_in_full() {
        let codes = [(1024, 1), (2048, 4326), (3072, 32767), (3075, 11)];
        let codes = [&codes[..], &[(3076, 9001)]].concat();
        let found = keys(&codes, ALBERS, &[(1026, "My \"map\"|")]);
        let expected = format!(
            r#"PROJCS["My 'map'",{WGS_84},PROJECTION["Albers_Conic_Equal_Area"],PARAMETER["latitude_of_center",23],PARAMETER["longitude_of_center",-96],PARAMETER["standard_parallel_1",29.5],PARAMETER["standard_parallel_2",45.5],PARAMETER["false_easting",0],PARAMETER["false_northing",0],UNIT["metre",1,AUTHORITY["EPSG","9001"]],AXIS["Easting",EAST],AXIS["Northing",NORTH]]"#
        );
        assert_eq!(wkt(&found), Some(expected));
    }

    #[test]
    fn what_is_missing_or_told_twice_is_not_guessed() {
        let whole = [
            (1024, 1),
            (2048, 4326),
            (3072, 32767),
            (3075, 11),
            (3076, 9001),
        ];
        for left_out in [2048, 3075, 3076] {
            let codes = whole.iter().filter(|(id, _)| *id != left_out).copied();
            assert_eq!(keys(&codes.collect::<Vec<_>>(), ALBERS, &[]).crs(), None);
        }
        for left_out in [3078, 3079, 3080, 3081] {
            let numbers = ALBERS.iter().filter(|(id, _)| *id != left_out).copied();
            let numbers: Vec<_> = numbers.collect();
            assert_eq!(keys(&whole, &numbers, &[]).crs(), None, "{left_out}");
        }
        let twice = [ALBERS, &[(3088, 7.0)]].concat();
        assert_eq!(keys(&whole, &twice, &[]).crs(), None);
        let odd = [&ALBERS[1..], &[(3078, f64::NAN)]].concat();
        assert_eq!(keys(&whole, &odd, &[]).crs(), None);
    }

    #[test]
    fn other_axes_take_the_code_from_a_datum() {
        let codes = [(1024, 1), (2048, 4326), (3072, 32767), (3074, 16033)];
        let axes = [(2057, 6_378_140.0), (2059, 298.257)];
        let found = wkt(&keys(&codes, &axes, &[])).unwrap();
        assert!(found.contains(r#"DATUM["unknown",SPHEROID["unnamed",6378140,298.257]]"#));
        assert!(!found.contains("4326"), "{found}");
        assert_eq!(keys(&codes, &[], &[]).crs(), Some(Crs::Epsg(32_633)));
    }

    #[test]
    fn names_come_from_the_parts_of_a_citation() {
        let codes = [(1024, 2), (2048, 32767), (2050, 32767), (2054, 9102)];
        let axes = [(2057, 1_737_400.0), (2058, 1_737_400.0), (2061, 0.0)];
        let said = "GCS Name = Moon|Datum = D|Ellipsoid = E|Primem = R||";
        let expected = r#"GEOGCS["Moon",DATUM["D",SPHEROID["E",1737400,0]],PRIMEM["R",0],UNIT["degree",0.0174532925199433,AUTHORITY["EPSG","9122"]],AXIS["Latitude",NORTH],AXIS["Longitude",EAST]]"#;
        let found = keys(&codes, &axes, &[(2049, said)]);
        assert_eq!(wkt(&found).as_deref(), Some(expected));
        let long = format!("GCS Name = {}", "x".repeat(9000));
        let found = wkt(&keys(&codes, &axes, &[(2049, &long)])).unwrap();
        assert!(found.len() < 500);
    }

    #[test]
    fn wkt_in_a_citation_is_taken_if_it_is_whole() {
        let of = |text: &str| {
            let text = format!("ESRI PE String = {text}|");
            wkt(&keys(&[(1024, 32767)], &[], &[(3073, &text)]))
        };
        let whole = r#"PROJCS["a]",GEOGCS["b"]]"#;
        assert_eq!(of(whole).as_deref(), Some(whole));
        for odd in [
            r#"PROJCS["a""#,
            r#"PROJCS["a"]]"#,
            r#"VERT_CS["a"]"#,
            "PROJCS[",
        ] {
            assert_eq!(of(odd), None);
        }
    }

    #[test]
    fn ranges_past_the_numbers_and_texts_are_nothing() {
        let mut found = keys(
            &[(1024, 2), (2048, 32767), (2054, 9102), (2056, 7030)],
            &[],
            &[],
        );
        found.directory.extend([2057, 34736, u64::MAX, u64::MAX]);
        found.directory.extend([2049, 34737, 9, 9]);
        assert_eq!(found.crs(), None);
        assert_eq!(found.text(2049), None);
    }

    /// What `gdalsrsinfo` of GDAL 3.6.2 says of the same keys: the unit of a file that differs from the code's wins, and
    /// the citation's over that of key 3076.
    #[test]
    fn a_unit_that_differs_from_the_codes_replaces_it() {
        let imagine = |unit: &str| format!("IMAGINE GeoTIFF Support|(c)|Units = {unit}|");
        let of = |code: u64, more: &[(u64, u64)], sizes: &[(u64, f64)], said: &str| {
            let codes = [&[(1024, 1), (3072, code)], more].concat();
            keys(&codes, sizes, &[(1026, said)]).crs().unwrap()
        };
        let feet = |crs: &Crs| {
            let text = crs.to_string();
            assert_eq!(crs.epsg(), None, "{text}");
            let start = text.find(r#""false_easting","#).unwrap() + 16;
            let number = text.get(start..).unwrap().split(']').next().unwrap();
            number.parse::<f64>().unwrap()
        };
        for (code, more, said, easting) in [
            (2853, &[(3076, 9003)][..], "", 11_482_916.666_666_7),
            (2853, &[(3076, 9002)], "", 11_482_939.632_545_9),
            (2853, &[], &*imagine("us_survey_feet"), 11_482_916.666_666_7),
            (2853, &[], &imagine("US_SURVEY_FEET"), 11_482_916.666_666_7),
            (2853, &[], &imagine("feet"), 11_482_916.666_666_7),
            (
                2853,
                &[],
                &imagine("international_feet"),
                11_482_939.632_545_9,
            ),
            (2853, &[], &imagine("kilometers"), 3500.0),
            (
                2853,
                &[(3076, 9001)],
                &imagine("feet"),
                11_482_916.666_666_7,
            ),
            (
                2853,
                &[],
                "PCS Name = foo|LUnits = feet|",
                11_482_916.666_666_7,
            ),
            (2263, &[(3076, 9001)], "", 300_000.0),
            (2263, &[(3076, 9002)], "", 984_251.968_503_937),
            (32756, &[(3076, 9036)], "", 500.0),
            (32756, &[(3076, 9005)], "", 1_640_434.665_133_32),
        ] {
            let found = feet(&of(code, more, &[], said));
            assert!((found - easting).abs() < 1e-6, "{code} {said}: {found}");
        }
        let sized = of(2853, &[(3076, 32767)], &[(3077, 0.304_800_609_6)], "");
        assert!((feet(&sized) - 11_482_916.666_712_6).abs() < 1e-6);
        for (code, more, said) in [
            (2853, &[(3076, 9001)][..], ""),
            (2263, &[(3076, 9003)], ""),
            (2853, &[(3076, 9999)], ""),
            (2853, &[(3076, 0)], ""),
            (2853, &[(3076, 32767)], ""),
            (2853, &[], &*imagine("meters")),
            (2853, &[(3076, 9003)], &imagine("meters")),
            // Not the words of ERDAS.
            (2853, &[], "Projection Name = UTM|Units = feet|"),
        ] {
            let expected = Crs::Epsg(u32::try_from(code).unwrap());
            assert_eq!(of(code, more, &[], said), expected, "{said}");
        }
    }

    /// As above: what a code of a projection or its parameters say in metres stays where it is.
    #[test]
    fn parts_in_another_unit_lie_where_gdal_puts_them() {
        let utm = [(1024, 1), (2048, 4326), (3072, 32767), (3074, 16033)];
        let easting = |codes: &[(u64, u64)], numbers: &[(u64, f64)], said: &str| {
            let text = wkt(&keys(codes, numbers, &[(3073, said)])).unwrap();
            let start = text.find(r#""false_easting","#).unwrap() + 16;
            let number = text.get(start..).unwrap().split(']').next().unwrap();
            number.parse::<f64>().unwrap()
        };
        let said = "IMAGINE GeoTIFF Support|Units = us_survey_feet|";
        let feet = 1_640_416.666_666_67;
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-6, "{a} {b}");
        near(
            easting(&[&utm[..], &[(3076, 9003)]].concat(), &[], ""),
            feet,
        );
        near(easting(&utm, &[], said), feet);
        near(
            easting(&[&utm[..], &[(3076, 9001)]].concat(), &[], said),
            feet,
        );
        let own = [(1024, 1), (2048, 4326), (3072, 32767), (3075, 1)];
        let numbers = [
            (3080, -96.0),
            (3081, 23.0),
            (3092, 0.9996),
            (3082, 500_000.0),
            (3083, 0.0),
        ];
        near(easting(&own, &numbers, said), feet);
        near(
            easting(&[&own[..], &[(3076, 9001)]].concat(), &numbers, said),
            feet,
        );
        near(
            easting(&[&own[..], &[(3076, 9003)]].concat(), &numbers, said),
            500_000.0,
        );
        near(
            easting(&[&own[..], &[(3076, 9003)]].concat(), &numbers, ""),
            500_000.0,
        );
    }

    #[test]
    fn parts_that_are_a_code_are_the_code() {
        let base = [(1024, 1), (2048, 4326), (3072, 32767), (3076, 9001)];
        let polar = [(3081, -71.0), (3095, 0.0), (3092, 1.0)];
        let codes = [&base[..], &[(3075, 15)]].concat();
        assert_eq!(keys(&codes, &polar, &[]).crs(), Some(Crs::Epsg(3031)));
        let utm = [
            (3080, 153.0),
            (3081, 0.0),
            (3092, 0.9996),
            (3082, 500_000.0),
            (3083, 1e7),
        ];
        let codes = [&base[..], &[(3075, 1)]].concat();
        assert_eq!(keys(&codes, &utm, &[]).crs(), Some(Crs::Epsg(32756)));
    }
}
