//! [PROJJSON](https://proj.org/en/stable/specifications/projjson.html), read into parts.

use std::collections::BTreeMap;

use geojson::JsonValue as Value;

use super::{
    Base, Parts, Unit, code_of_datum, invalid,
    methods::{Method, Parameter},
    unsupported,
};
use crate::error::Result;

pub(super) fn parse(text: &str) -> Result<Parts> {
    let value: Value = text
        .parse()
        .map_err(|_| invalid("a CRS in JSON that is not JSON"))?;
    parts(&value)
}

fn parts(value: &Value) -> Result<Parts> {
    match text(value, "type") {
        "CompoundCRS" => parts(&value["components"][0]),
        "GeographicCRS" | "GeodeticCRS" => {
            if value["coordinate_system"]["subtype"] == "Cartesian" {
                return Err(unsupported("a geocentric CRS"));
            }
            Ok(Parts {
                name: text(value, "name").to_owned(),
                base: base(value)?,
                map: None,
                code: code(value),
            })
        }
        "ProjectedCRS" => projected(value),
        other => Err(unsupported(&format!(
            "a CRS in PROJJSON of the type `{other}`; expected GeographicCRS or ProjectedCRS"
        ))),
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn code(value: &Value) -> Option<u32> {
    let id = &value["id"];
    let is_epsg = text(id, "authority").eq_ignore_ascii_case("EPSG");
    let code = id["code"].as_u64().or(id["code"].as_str()?.parse().ok());
    let code = id["code"].as_u64().or(code);
    is_epsg.then_some(code?)?.try_into().ok()
}

/// Returns the size of a unit: `usual` if none is stated, and the name.
fn unit(value: &Value, usual: f64) -> Result<(String, f64)> {
    let name = match value {
        Value::Null => return Ok(("metre".to_owned(), usual)),
        Value::String(name) => name.as_str(),
        other => text(other, "name"),
    };
    let factor = value["conversion_factor"].as_f64();
    let size = match (name, factor) {
        (_, Some(factor)) => factor,
        ("metre", None) | ("unity", None) => 1.0,
        ("degree", None) => 1.0_f64.to_radians(),
        _ => return Err(unsupported(&format!("the unit `{name}` of PROJJSON"))),
    };
    Ok((name.to_owned(), size))
}

/// Returns a length or an angle: a number, or an object with a unit.
fn measure(value: &Value, usual: f64) -> Option<f64> {
    match value {
        Value::Number(number) => Some(number.as_f64()? * usual),
        other => Some(other["value"].as_f64()? * unit(&other["unit"], usual).ok()?.1),
    }
}

fn base(value: &Value) -> Result<Base> {
    let datum = match &value["datum"] {
        Value::Null => &value["datum_ensemble"],
        datum => datum,
    };
    let ellipsoid = &datum["ellipsoid"];
    let lacks = || invalid("a CRS in PROJJSON without an ellipsoid");
    let radius = measure(&ellipsoid["radius"], 1.0);
    let semi_major = radius
        .or_else(|| measure(&ellipsoid["semi_major_axis"], 1.0))
        .ok_or_else(lacks)?;
    let inverse_flattening = match (radius, measure(&ellipsoid["semi_minor_axis"], 1.0)) {
        (Some(_), _) => 0.0,
        (None, Some(b)) if b == semi_major => 0.0,
        (None, Some(b)) => semi_major / (semi_major - b),
        (None, None) => ellipsoid["inverse_flattening"].as_f64().ok_or_else(lacks)?,
    };
    let is_flat = inverse_flattening == 0.0 || inverse_flattening > 1.0;
    if semi_major <= 0.0 || !is_flat {
        return Err(invalid(
            "a CRS in PROJJSON whose ellipsoid has no valid axes",
        ));
    }
    let degree = 1.0_f64.to_radians();
    let meridian = measure(&datum["prime_meridian"]["longitude"], degree).unwrap_or(0.0);
    let axis = &value["coordinate_system"]["axis"][0]["unit"];
    Ok(Base {
        name: text(value, "name").to_owned(),
        datum: text(datum, "name").to_owned(),
        ellipsoid: text(ellipsoid, "name").to_owned(),
        semi_major,
        inverse_flattening,
        shift: None,
        meridian: meridian.to_degrees(),
        unit: unit(axis, degree)?.1,
        code: code(value)
            .or_else(|| code_of_datum(text(datum, "name"), semi_major, inverse_flattening)),
    })
}

fn projected(value: &Value) -> Result<Parts> {
    let base = base(&value["base_crs"])?;
    let conversion = &value["conversion"];
    let name = text(&conversion["method"], "name");
    let method = Method::of_name(name)
        .ok_or_else(|| unsupported(&format!("the projection {name} is not known here")))?;
    let axes = value["coordinate_system"]["axis"].as_array();
    let axes = axes.map(Vec::as_slice).unwrap_or_default();
    let is_polar = method.wkt == "Polar_Stereographic" || matches!(method.proj, "laea" | "aeqd");
    let points_away = |axis: &Value| matches!(text(axis, "direction"), "west" | "south");
    if !is_polar && !method.words.contains("axis") && axes.iter().any(points_away) {
        return Err(unsupported("axes that point west or south"));
    }
    let (unit_name, metres) = unit(axes.first().map_or(&Value::Null, |axis| &axis["unit"]), 1.0)?;
    let mut given = BTreeMap::new();
    let parameters = conversion["parameters"].as_array();
    for parameter in parameters.map(Vec::as_slice).unwrap_or_default() {
        let name = text(parameter, "name");
        let kind = Parameter::of_name(name).ok_or_else(|| {
            unsupported(&format!(
                "the parameter {name} of a projection is not known here"
            ))
        })?;
        let value = parameter["value"]
            .as_f64()
            .ok_or_else(|| invalid(format!("a CRS in PROJJSON whose {name} has no value")))?;
        let degree = 1.0_f64.to_radians();
        let value = match (kind.is_angle(), kind.is_length()) {
            (true, _) => match unit(&parameter["unit"], degree)?.1 {
                size if size == degree => value,
                size => (value * size).to_degrees(),
            },
            (_, true) => value * unit(&parameter["unit"], 1.0)?.1,
            _ => value,
        };
        given.insert(kind, value);
    }
    let unit = Unit {
        name: unit_name,
        metres,
    };
    Ok(Parts {
        name: text(value, "name").to_owned(),
        map: Some(method.map(given, unit)?),
        base,
        code: code(value),
    })
}
