//! WKT 1, as GDAL and ESRI write it, and WKT 2: read into parts, and WKT 1 written.
//!
//! See [OGC 01-009](https://portal.ogc.org/files/?artifact_id=999) and
//! [OGC 18-010r11](https://docs.ogc.org/is/18-010r11/18-010r11.html).

use std::collections::BTreeMap;

use super::{
    Base, Map, Parts, Unit, code_of_datum, invalid, methods::Method, methods::Parameter, near,
    plain, proj_string, unsupported,
};
use crate::error::Result;

/// The deepest nesting that is read.
const MOST_DEPTH: usize = 32;

/// A keyword and what stands in its brackets.
#[derive(Debug, Default)]
struct Node {
    keyword: String,
    texts: Vec<String>,
    numbers: Vec<f64>,
    /// Words without quotes, such as `NORTH`.
    words: Vec<String>,
    nodes: Vec<Node>,
}

pub(super) fn parse(text: &str) -> Result<Parts> {
    let mut rest = text.trim();
    let node = node(&mut rest, 0)
        .filter(|_| rest.trim().is_empty())
        .ok_or_else(|| {
            let start: String = text.chars().take(60).collect();
            invalid(format!(
                "`{start}` is not well-known text, PROJJSON or a PROJ string of a CRS"
            ))
        })?;
    parts(&node)
}

/// Reads a node, and leaves what follows it.
fn node(rest: &mut &str, depth: usize) -> Option<Node> {
    if depth > MOST_DEPTH {
        return None;
    }
    let end = rest.find(['[', '('])?;
    let (keyword, behind) = rest.split_at(end);
    let keyword = keyword.trim();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if keyword.is_empty() || !keyword.chars().all(is_word) {
        return None;
    }
    let mut made = Node {
        keyword: keyword.to_ascii_uppercase(),
        ..Node::default()
    };
    *rest = behind.get(1..)?;
    loop {
        *rest = rest.trim_start();
        if let Some(text) = rest.strip_prefix('"') {
            let (value, behind) = quoted(text)?;
            made.texts.push(value);
            *rest = behind;
        } else {
            let end = rest.find([',', '[', '(', ']', ')'])?;
            match rest.as_bytes().get(end)? {
                b'[' | b'(' => made.nodes.push(node(rest, depth + 1)?),
                _ => {
                    let (word, behind) = rest.split_at(end);
                    match (word.trim(), word.trim().parse()) {
                        ("", _) => return None,
                        (_, Ok(number)) => made.numbers.push(number),
                        (word, Err(_)) => made.words.push(word.to_ascii_uppercase()),
                    }
                    *rest = behind;
                }
            }
        }
        *rest = rest.trim_start();
        let first = rest.chars().next()?;
        *rest = rest.get(1..)?;
        match first {
            ',' => {}
            ']' | ')' => return Some(made),
            _ => return None,
        }
    }
}

/// Splits a text behind its opening quote: a doubled quote stands for one.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('"')?;
        value.push_str(rest.get(..end)?);
        rest = rest.get(end + 1..)?;
        match rest.strip_prefix('"') {
            Some(more) => {
                value.push('"');
                rest = more;
            }
            None => return Some((value, rest)),
        }
    }
}

impl Node {
    fn name(&self) -> &str {
        self.texts.first().map_or("", String::as_str)
    }

    fn child(&self, keywords: &[&str]) -> Option<&Self> {
        self.nodes
            .iter()
            .find(|node| keywords.contains(&node.keyword.as_str()))
    }

    /// Returns the EPSG code of `AUTHORITY` or `ID`.
    fn code(&self) -> Option<u32> {
        let id = self.child(&["AUTHORITY", "ID"])?;
        if !id.name().eq_ignore_ascii_case("EPSG") {
            return None;
        }
        let number = id.numbers.first().map(f64::to_string);
        number
            .as_deref()
            .or(id.texts.get(1).map(String::as_str))?
            .parse()
            .ok()
    }

    /// Returns the factor of a unit: of the node itself, or of its first axis.
    fn unit(&self, keyword: &str) -> Option<(&str, f64)> {
        let keywords = [keyword, "UNIT"];
        let own = self.child(&keywords);
        let of_axis = || self.child(&["AXIS"])?.child(&keywords);
        let unit = own.or_else(of_axis)?;
        Some((unit.name(), *unit.numbers.first()?))
    }
}

fn parts(node: &Node) -> Result<Parts> {
    match node.keyword.as_str() {
        "COMPD_CS" | "COMPOUNDCRS" => {
            let first = node.nodes.first().ok_or_else(|| lacks(node, "part"))?;
            parts(first)
        }
        "BOUNDCRS" => bound(node),
        "GEOGCS" | "GEOGCRS" | "GEOGRAPHICCRS" | "GEODCRS" | "GEODETICCRS" => {
            if node
                .child(&["CS"])
                .is_some_and(|cs| cs.words.iter().any(|word| word == "CARTESIAN"))
            {
                return Err(unsupported("a geocentric CRS"));
            }
            let base = base(node)?;
            Ok(Parts {
                name: node.name().to_owned(),
                code: node.code(),
                base,
                map: None,
            })
        }
        "PROJCS" | "PROJCRS" | "PROJECTEDCRS" => projected(node),
        other => Err(unsupported(&format!(
            "a CRS of the kind {other}; expected a geographic or a projected one"
        ))),
    }
}

fn lacks(node: &Node, what: &str) -> crate::error::Error {
    invalid(format!("a CRS in WKT whose {} has no {what}", node.keyword))
}

/// A CRS with its shift to WGS 84.
fn bound(node: &Node) -> Result<Parts> {
    let source = node
        .child(&["SOURCECRS"])
        .and_then(|source| source.nodes.first())
        .ok_or_else(|| lacks(node, "source"))?;
    let mut parts = parts(source)?;
    let steps = node
        .child(&["ABRIDGEDTRANSFORMATION"])
        .ok_or_else(|| lacks(node, "transformation"))?;
    let method = steps.child(&["METHOD"]).map(Node::name).unwrap_or_default();
    let values: Vec<f64> = steps
        .nodes
        .iter()
        .filter(|node| node.keyword == "PARAMETER")
        .filter_map(|node| node.numbers.first().copied())
        .collect();
    let method = plain(method);
    let mut shift = [0.0; 7];
    match (
        method.starts_with("geocentrictranslations"),
        method.starts_with("positionvector"),
        values.len(),
    ) {
        (true, _, 3) | (_, true, 7) => {
            for (at, value) in shift.iter_mut().zip(values) {
                *at = value;
            }
        }
        _ => {
            return Err(unsupported(&format!("a datum shift by `{method}`")));
        }
    }
    // The scale of an abridged transformation is a factor.
    if method.starts_with("positionvector") {
        shift[6] = (shift[6] - 1.0) * 1e6;
    }
    parts.base.shift = Some(shift);
    Ok(parts)
}

fn base(node: &Node) -> Result<Base> {
    let datum = node
        .child(&["DATUM", "GEODETICDATUM", "TRF", "ENSEMBLE"])
        .ok_or_else(|| lacks(node, "datum"))?;
    let ellipsoid = datum
        .child(&["SPHEROID", "ELLIPSOID"])
        .ok_or_else(|| lacks(datum, "ellipsoid"))?;
    let [semi_major, inverse_flattening] = <[f64; 2]>::try_from(ellipsoid.numbers.clone())
        .map_err(|_| lacks(ellipsoid, "two axes"))?;
    let semi_major = semi_major * ellipsoid.unit("LENGTHUNIT").map_or(1.0, |unit| unit.1);
    if !(semi_major > 0.0 && semi_major.is_finite())
        || !(inverse_flattening == 0.0 || inverse_flattening > 1.0)
    {
        return Err(invalid("a CRS whose ellipsoid has no valid axes"));
    }
    let unit = node
        .unit("ANGLEUNIT")
        .map_or(1.0_f64.to_radians(), |unit| unit.1);
    let meridian = node
        .child(&["PRIMEM", "PRIMEMERIDIAN"])
        .map_or(0.0, |meridian| {
            let own = meridian.unit("ANGLEUNIT").map_or(unit, |unit| unit.1);
            let radians = meridian.numbers.first().copied().unwrap_or_default() * own;
            radians.to_degrees()
        });
    let shift = datum.child(&["TOWGS84"]).map(|shift| {
        let mut all = [0.0; 7];
        for (at, value) in all.iter_mut().zip(&shift.numbers) {
            *at = *value;
        }
        all
    });
    Ok(Base {
        name: node.name().to_owned(),
        datum: datum.name().to_owned(),
        ellipsoid: ellipsoid.name().to_owned(),
        semi_major,
        inverse_flattening,
        shift,
        meridian,
        unit: if near(unit, 1.0_f64.to_radians()) {
            1.0_f64.to_radians()
        } else {
            unit
        },
        code: node
            .code()
            .or_else(|| code_of_datum(datum.name(), semi_major, inverse_flattening)),
    })
}

fn projected(node: &Node) -> Result<Parts> {
    let of_base = node
        .child(&["GEOGCS", "BASEGEOGCRS", "BASEGEODCRS", "GEOGCRS"])
        .ok_or_else(|| lacks(node, "geographic CRS"))?;
    let base = base(of_base)?;
    let (unit_name, metres) = node.unit("LENGTHUNIT").unwrap_or(("metre", 1.0));
    let unit = Unit {
        name: unit_name.to_owned(),
        metres,
    };
    let name = node.name().to_owned();
    let code = node.code();
    if let Some(words) = extension(node) {
        // What WKT 1 cannot say, as the sphere of Web Mercator, is in the extension only.
        let said = proj_string::parse(words)?;
        let is_map = said.map.is_some();
        let map = said
            .map
            .filter(|_| is_map)
            .ok_or_else(|| lacks(node, "projection"))?;
        return Ok(Parts {
            name,
            base: Base {
                shift: base.shift.or(said.base.shift),
                ..base
            },
            map: Some(map),
            code,
        });
    }
    let conversion = node.child(&["CONVERSION"]);
    let holder = conversion.unwrap_or(node);
    let method = holder
        .child(&["PROJECTION", "METHOD"])
        .ok_or_else(|| lacks(node, "projection"))?;
    let known = Method::of_name(method.name()).ok_or_else(|| {
        unsupported(&format!(
            "the projection {} is not known here",
            method.name()
        ))
    })?;
    check_axes(node, known)?;
    let mut given = BTreeMap::new();
    for parameter in holder
        .nodes
        .iter()
        .filter(|node| node.keyword == "PARAMETER")
    {
        let value = *parameter
            .numbers
            .first()
            .ok_or_else(|| lacks(parameter, "value"))?;
        if plain(parameter.name()) == "auxiliaryspheretype" && value == 0.0 {
            continue;
        }
        let kind = Parameter::of_name(parameter.name()).ok_or_else(|| {
            unsupported(&format!(
                "the parameter {} of a projection is not known here",
                parameter.name()
            ))
        })?;
        let angle = || {
            let unit = parameter.unit("ANGLEUNIT").map_or(base.unit, |unit| unit.1);
            // Degrees stay as they are written.
            match near(unit, 1.0_f64.to_radians()) {
                true => value,
                false => (value * unit).to_degrees(),
            }
        };
        let length = || {
            let own = parameter.unit("LENGTHUNIT").map(|unit| unit.1);
            // In WKT 1 the height of a satellite is in metres too.
            value * own.unwrap_or(unit.metres)
        };
        let value = match (kind.is_angle(), kind.is_length()) {
            (true, _) => angle(),
            (_, true) => length(),
            _ => value,
        };
        given.insert(kind, value);
    }
    let map = known.map(given, unit)?;
    Ok(Parts {
        name,
        base,
        map: Some(map),
        code,
    })
}

fn extension(node: &Node) -> Option<&str> {
    let extension = node.child(&["EXTENSION"])?;
    (extension.name() == "PROJ4").then(|| extension.texts.get(1).map(String::as_str))?
}

/// Refuses axes that point west or south, but for the methods that mean so.
fn check_axes(node: &Node, method: &Method) -> Result<()> {
    let points = |direction: &str| {
        let axes = node.nodes.iter().filter(|node| node.keyword == "AXIS");
        axes.flat_map(|axis| &axis.words)
            .any(|word| word == direction)
    };
    let is_other = method.wkt == "Polar_Stereographic"
        || method.words.contains("axis")
        || method.proj == "laea"
        || method.proj == "aeqd";
    match !is_other && (points("WEST") || points("SOUTH")) {
        true => Err(unsupported("axes that point west or south")),
        false => Ok(()),
    }
}

impl Parts {
    /// Returns the CRS as WKT 1, in the words of GDAL.
    pub(crate) fn to_wkt(&self) -> String {
        let base = self.base.to_wkt(self.map.is_none());
        let Some(map) = &self.map else {
            return base;
        };
        let name = named(&self.name);
        format!(r#"PROJCS["{name}",{base},{}"#, map.to_wkt(&self.base)) + &self.authority() + "]"
    }

    fn authority(&self) -> String {
        let code = self
            .code
            .map(|code| format!(r#",AUTHORITY["EPSG","{code}"]"#));
        code.unwrap_or_default()
    }
}

impl Base {
    fn to_wkt(&self, with_axes: bool) -> String {
        let Self {
            semi_major,
            inverse_flattening,
            meridian,
            ..
        } = self;
        let shift = self.shift.map(|shift| {
            let words: Vec<String> = shift.iter().map(f64::to_string).collect();
            format!(",TOWGS84[{}]", words.join(","))
        });
        let shift = shift.unwrap_or_default();
        let unit = match near(self.unit, 1.0_f64.to_radians()) {
            true => r#"UNIT["degree",0.0174532925199433,AUTHORITY["EPSG","9122"]]"#.to_owned(),
            false => format!(r#"UNIT["unnamed",{}]"#, self.unit),
        };
        let axes = match with_axes {
            true => r#",AXIS["Latitude",NORTH],AXIS["Longitude",EAST]"#,
            false => "",
        };
        let code = self
            .code
            .map(|code| format!(r#",AUTHORITY["EPSG","{code}"]"#));
        let (name, datum, ellipsoid) = (
            named(&self.name),
            named(&self.datum),
            named(&self.ellipsoid),
        );
        let pm = if *meridian == 0.0 {
            "Greenwich"
        } else {
            "unnamed"
        };
        // In the unit of the CRS.
        let meridian = meridian.to_radians() / self.unit;
        format!(
            r#"GEOGCS["{name}",DATUM["{datum}",SPHEROID["{ellipsoid}",{semi_major},{inverse_flattening}]{shift}],PRIMEM["{pm}",{meridian}],{unit}{axes}{}]"#,
            code.unwrap_or_default()
        )
    }
}

impl Map {
    /// Returns projection, parameters, unit and axes. The base is stated where GDAL reads nothing but the extension.
    fn to_wkt(&self, base: &Base) -> String {
        let method = self.method;
        let unit = &self.unit;
        let size = unit.metres;
        // Names that WKT 1 does not have; the extension says what they mean.
        let (wkt, parameters, extension) = match method.wkt {
            "Popular_Visualisation_Pseudo_Mercator" => {
                let lon = self.values.first().copied().unwrap_or_default();
                let text = format!(
                    r#",EXTENSION["PROJ4","+proj=merc +a=6378137 +b=6378137 +lat_ts=0 +lon_0={lon} +x_0={} +y_0={} +k=1 +to_meter={size} +nadgrids=@null +wktext +no_defs"]"#,
                    self.east, self.north
                );
                let parameters =
                    format!(r#",PARAMETER["central_meridian",{lon}],PARAMETER["scale_factor",1]"#);
                ("Mercator_1SP", parameters, text)
            }
            "Geostationary_Satellite_Sweep_X" => {
                let text = self.proj_string().unwrap_or_default();
                let axes = match base.inverse_flattening {
                    0.0 => format!("+a={0} +b={0}", base.semi_major),
                    inverse => format!("+a={} +rf={inverse}", base.semi_major),
                };
                let text = format!(r#",EXTENSION["PROJ4","{text} {axes} +no_defs"]"#);
                ("Geostationary_Satellite", self.parameters(), text)
            }
            wkt => (wkt, self.parameters(), String::new()),
        };
        let axes = match method.words.contains("axis") {
            true => r#"AXIS["Westing",WEST],AXIS["Southing",SOUTH]"#,
            false => r#"AXIS["Easting",EAST],AXIS["Northing",NORTH]"#,
        };
        let code = unit
            .code()
            .map(|code| format!(r#",AUTHORITY["EPSG","{code}"]"#));
        format!(
            r#"PROJECTION["{wkt}"]{parameters},PARAMETER["false_easting",{}],PARAMETER["false_northing",{}],UNIT["{}",{size}{}],{axes}{extension}"#,
            self.east / size,
            self.north / size,
            named(&unit.name),
            code.unwrap_or_default()
        )
    }

    fn parameters(&self) -> String {
        let all = self.method.parameters.iter().zip(&self.values);
        all.map(|(slot, value)| {
            let value = match slot.kind {
                Parameter::Height => value / self.unit.metres,
                _ => *value,
            };
            format!(r#",PARAMETER["{}",{value}]"#, slot.wkt)
        })
        .collect()
    }
}

/// Returns a text as a name inside quotes.
fn named(text: &str) -> String {
    let name = text.trim().chars().filter(|c| !c.is_control()).take(128);
    let name: String = name.map(|c| if c == '"' { '\'' } else { c }).collect();
    if name.is_empty() {
        "unknown".to_owned()
    } else {
        name
    }
}
