//! GeoKeys of a CRS in parts, as GDAL writes and reads them.
//!
//! See [GeoTIFF 1.1](https://docs.ogc.org/is/19-008r4/19-008r4.html), annex B.

use super::{Parts, plain};

/// The values of the tags GeoKeyDirectory, GeoDoubleParams and GeoAsciiParams.
#[derive(Debug, Default)]
pub(crate) struct GeoKeys {
    pub(crate) directory: Vec<[u16; 4]>,
    pub(crate) doubles: Vec<f64>,
    pub(crate) texts: String,
}

const USER_DEFINED: u16 = 32_767;

impl GeoKeys {
    fn code(&mut self, key: u16, value: u16) {
        self.directory.push([key, 0, 1, value]);
    }

    fn number(&mut self, key: u16, value: f64) {
        // A CRS has a score of numbers: they fit a short.
        let at = u16::try_from(self.doubles.len()).unwrap_or(u16::MAX);
        self.directory.push([key, 34736, 1, at]);
        self.doubles.push(value);
    }

    fn text(&mut self, key: u16, value: &str) {
        let value: String = value
            .chars()
            .map(|c| {
                if (' '..='~').contains(&c) && c != '|' {
                    c
                } else {
                    '?'
                }
            })
            .collect();
        let at = u16::try_from(self.texts.len()).unwrap_or(u16::MAX);
        let length = u16::try_from(value.len() + 1).unwrap_or(u16::MAX);
        self.directory.push([key, 34737, length, at]);
        self.texts += &value;
        self.texts.push('|');
    }
}

/// What precedes WKT in a citation.
const QUOTE: &str = "ESRI PE String = ";
/// The most characters of a citation in which GDAL finds WKT.
const MOST_QUOTED: usize = 2399;

/// Returns the keys of a map projection that is not known here in parts: its WKT in a citation, as it is. None for text
/// that GDAL would not read there.
pub(crate) fn quoted(wkt: &str) -> Option<GeoKeys> {
    let wkt = wkt.trim();
    let is_plain = wkt.chars().all(|c| (' '..='~').contains(&c) && c != '|');
    if !wkt.starts_with("PROJCS[") || !is_plain || QUOTE.len() + wkt.len() > MOST_QUOTED {
        return None;
    }
    let mut keys = GeoKeys::default();
    keys.code(1024, USER_DEFINED);
    keys.code(1025, 1);
    let name = wkt.split('"').nth(1).unwrap_or("unnamed");
    keys.text(1026, name);
    keys.text(3073, &format!("{QUOTE}{wkt}"));
    Some(keys)
}

impl Parts {
    /// Returns the keys of the CRS. A projection that GeoTIFF has no code for is written as WKT in a citation, where
    /// GDAL and ArcGIS look for it.
    pub(crate) fn geo_keys(&self) -> GeoKeys {
        let mut keys = GeoKeys::default();
        // GDAL looks for WKT in the citation where neither the model nor the code of the map is a known one.
        let is_quoted = self
            .map
            .as_ref()
            .is_some_and(|map| map.method.key.is_none());
        let model = match (&self.map, is_quoted) {
            (_, true) => USER_DEFINED,
            (Some(_), false) => 1,
            (None, false) => 2,
        };
        keys.code(1024, model);
        keys.code(1025, 1);
        if let Some(map) = &self.map {
            keys.text(1026, &self.name);
            self.base_keys(&mut keys);
            if !is_quoted {
                keys.code(3072, USER_DEFINED);
            }
            match map.method.key {
                Some(method) => {
                    keys.text(3073, &self.name);
                    keys.code(3074, USER_DEFINED);
                    keys.code(3075, method);
                }
                None => keys.text(3073, &format!("{QUOTE}{}", self.to_wkt())),
            }
            let unit = &map.unit;
            let code = unit.code().and_then(|code| u16::try_from(code).ok());
            keys.code(3076, code.unwrap_or(USER_DEFINED));
            if code.is_none() {
                keys.number(3077, unit.metres);
            }
            if map.method.key.is_some() {
                for (slot, value) in map.method.parameters.iter().zip(&map.values) {
                    keys.number(slot.key, *value);
                }
                let [east, north] = match map.method.wkt {
                    "Lambert_Conformal_Conic_2SP" => [3086, 3087],
                    _ => [3082, 3083],
                };
                keys.number(east, map.east / unit.metres);
                keys.number(north, map.north / unit.metres);
            }
        } else {
            self.base_keys(&mut keys);
        }
        keys.directory.sort_unstable_by_key(|key| key[0]);
        keys
    }

    fn base_keys(&self, keys: &mut GeoKeys) {
        let base = &self.base;
        let is_plain = base.meridian == 0.0 && (base.unit - 1.0_f64.to_radians()).abs() < 1e-12;
        let code = base
            .code
            .filter(|code| is_plain && (1024..32_767).contains(code));
        let code = code
            .and_then(|code| u16::try_from(code).ok())
            .filter(|_| base.shift.is_none_or(|shift| shift == [0.0; 7]));
        if let Some(code) = code {
            keys.code(2048, code);
            keys.code(2054, 9102);
            return;
        }
        let name = |text: &str| match plain(text).is_empty() {
            true => "unknown".to_owned(),
            false => text.replace(['|', '='], "?"),
        };
        keys.code(2048, USER_DEFINED);
        let (gcs, datum, ellipsoid) = (name(&base.name), name(&base.datum), name(&base.ellipsoid));
        // As GDAL writes them: the bars stay.
        let at = u16::try_from(keys.texts.len()).unwrap_or(u16::MAX);
        let primem = if base.meridian == 0.0 {
            "Greenwich"
        } else {
            "unnamed"
        };
        let citation =
            format!("GCS Name = {gcs}|Datum = {datum}|Ellipsoid = {ellipsoid}|Primem = {primem}||");
        let citation: String = citation
            .chars()
            .map(|c| if (' '..='~').contains(&c) { c } else { '?' })
            .collect();
        let length = u16::try_from(citation.len()).unwrap_or(u16::MAX);
        keys.directory.push([2049, 34737, length, at]);
        keys.texts += &citation;
        keys.code(2050, USER_DEFINED);
        if is_plain || (base.unit - 1.0_f64.to_radians()).abs() < 1e-12 {
            keys.code(2054, 9102);
        } else {
            keys.code(2054, USER_DEFINED);
            keys.number(2055, base.unit);
        }
        keys.code(2056, USER_DEFINED);
        keys.number(2057, base.semi_major);
        match base.inverse_flattening {
            0.0 => keys.number(2058, base.semi_major),
            inverse => keys.number(2059, inverse),
        }
        keys.number(2061, base.meridian);
        if let Some(shift) = base.shift {
            let at = u16::try_from(keys.doubles.len()).unwrap_or(u16::MAX);
            keys.directory.push([2062, 34736, 7, at]);
            keys.doubles.extend(shift);
        }
    }
}
