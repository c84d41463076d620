//! The CRS of a grid mapping that states its parameters and no WKT:
//! [CF, appendix F](https://cfconventions.org/cf-conventions/cf-conventions.html#appendix-grid-mappings).

use std::fmt::Write;

use serde_json::Value;

use super::axes::text;
use crate::{array::Members, geo::Crs};

/// How a grid mapping is called in PROJ, and its parameters there with their attributes; those behind the bar need not be
/// stated.
const KINDS: &[(&str, &str, &str)] = &[
    (
        "transverse_mercator",
        "tmerc",
        "lon_0=longitude_of_central_meridian lat_0=latitude_of_projection_origin k=scale_factor_at_central_meridian|",
    ),
    (
        "lambert_conformal_conic",
        "lcc",
        "lon_0=longitude_of_central_meridian lat_0=latitude_of_projection_origin lat_1,lat_2=standard_parallel|",
    ),
    (
        "albers_conical_equal_area",
        "aea",
        "lon_0=longitude_of_central_meridian lat_0=latitude_of_projection_origin lat_1,lat_2=standard_parallel|",
    ),
    (
        "lambert_azimuthal_equal_area",
        "laea",
        "lon_0=longitude_of_projection_origin lat_0=latitude_of_projection_origin|",
    ),
    (
        "azimuthal_equidistant",
        "aeqd",
        "lon_0=longitude_of_projection_origin lat_0=latitude_of_projection_origin|",
    ),
    (
        "lambert_cylindrical_equal_area",
        "cea",
        "lon_0=longitude_of_central_meridian lat_ts=standard_parallel|",
    ),
    (
        "sinusoidal",
        "sinu",
        "lon_0=longitude_of_projection_origin|",
    ),
    (
        "mercator",
        "merc",
        "lon_0=longitude_of_projection_origin|lat_ts=standard_parallel k=scale_factor_at_projection_origin",
    ),
    (
        "polar_stereographic",
        "stere",
        "lon_0=straight_vertical_longitude_from_pole lat_0=latitude_of_projection_origin|lat_ts=standard_parallel \
         k=scale_factor_at_projection_origin",
    ),
];

fn numbers(attributes: &Members, key: &str) -> Option<Vec<f64>> {
    match attributes.get(key)? {
        Value::Array(all) => all.iter().map(Value::as_f64).collect(),
        one => Some(vec![one.as_f64()?]),
    }
}

fn number(attributes: &Members, key: &str) -> Option<f64> {
    match numbers(attributes, key)?.as_slice() {
        [one] => Some(*one),
        _ => None,
    }
}

/// Returns the ellipsoid in words of PROJ; none if none is stated.
fn ellipsoid(attributes: &Members) -> Option<String> {
    let of = |key: &str| number(attributes, key);
    if let Some(radius) = of("earth_radius") {
        return Some(format!("+R={radius}"));
    }
    let major = of("semi_major_axis")?;
    let flattening = of("inverse_flattening").or_else(|| {
        let minor = of("semi_minor_axis")?;
        Some(if minor == major {
            0.0
        } else {
            major / (major - minor)
        })
    });
    let is_near = |a: f64, b: f64| (a - b).abs() < 1e-6;
    Some(match flattening {
        Some(by) if major == 6_378_137.0 && is_near(by, 298.257_223_563) => {
            "+datum=WGS84".to_owned()
        }
        Some(by) if major == 6_378_137.0 && is_near(by, 298.257_222_101) => {
            "+ellps=GRS80".to_owned()
        }
        Some(by) if by > 0.0 => format!("+a={major} +rf={by}"),
        _ => format!("+R={major}"),
    })
}

/// Returns the CRS of a grid mapping in words of PROJ, and a note on what of it is not stated. `units` are those of the
/// coordinate along x. None if its kind is not known, a parameter is missing, or coordinates are no lengths.
fn words(attributes: &Members, units: &str) -> Option<(String, Option<String>)> {
    let kind = text(attributes, "grid_mapping_name");
    let (_, name, parameters) = KINDS.iter().find(|(one, ..)| *one == kind)?;
    let mut words = format!("+proj={name}");
    let (needed, others) = parameters.split_once('|')?;
    let mut put = |parameter: &str| {
        let (names, attribute) = parameter.split_once('=')?;
        // Two names of one parameter.
        let found = numbers(attributes, attribute).or_else(|| match attribute {
            "longitude_of_projection_origin" => {
                numbers(attributes, "longitude_of_central_meridian")
            }
            _ => None,
        })?;
        for (name, number) in names.split(',').zip(found) {
            let _ = write!(words, " +{name}={number}");
        }
        Some(())
    };
    for parameter in needed.split_ascii_whitespace() {
        put(parameter)?;
    }
    let stated = others
        .split_ascii_whitespace()
        .map(put)
        .filter(Option::is_some)
        .count();
    // Without either the scale at the pole or at the equator is not known.
    if !others.is_empty() && stated == 0 {
        return None;
    }
    for (name, attribute) in [("x_0", "false_easting"), ("y_0", "false_northing")] {
        if let Some(number) = number(attributes, attribute).filter(|&number| number != 0.0) {
            // PROJ has them in metres.
            let metres = if is_kilometres(units) { 1000.0 } else { 1.0 };
            let _ = write!(words, " +{name}={}", number * metres);
        }
    }
    let meridian = number(attributes, "longitude_of_prime_meridian");
    if let Some(meridian) = meridian.filter(|&meridian| meridian != 0.0) {
        let _ = write!(words, " +pm={meridian}");
    }
    let ellipsoid = ellipsoid(attributes);
    let note = match ellipsoid.as_deref() {
        None => Some(format!(
            "grid mapping `{kind}` states no ellipsoid: WGS 84 is taken"
        )),
        Some("+datum=WGS84") => None,
        Some(_) => Some(format!(
            "its CRS is that of the parameters of grid mapping `{kind}`, which name no datum"
        )),
    };
    let _ = write!(words, " {}", ellipsoid.as_deref().unwrap_or("+datum=WGS84"));
    words.push_str(match units {
        "" | "m" | "metre" | "metres" | "meter" | "meters" => " +units=m",
        _ if is_kilometres(units) => " +units=km",
        _ => return None,
    });
    words.push_str(" +no_defs");
    Some((words, note))
}

fn is_kilometres(units: &str) -> bool {
    matches!(
        units,
        "km" | "kilometre" | "kilometres" | "kilometer" | "kilometers"
    )
}

/// Returns the CRS of a grid mapping by its parameters, if they are known here. `units` are those of the coordinate along x.
pub(super) fn crs_of(attributes: &Members, units: &str, notes: &mut Vec<String>) -> Option<Crs> {
    let (words, note) = words(attributes, units)?;
    let crs = Crs::parse(&words).ok()?;
    notes.extend(note);
    Some(crs)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn members(value: Value) -> Members {
        match value {
            Value::Object(members) => members,
            _ => Members::new(),
        }
    }

    #[test]
    fn grid_mappings_without_wkt_are_read_by_their_parameters() {
        let wgs84 = json!({"semi_major_axis": 6378137.0, "inverse_flattening": 298.257223563});
        for (name, more, units, expected) in [
            (
                "transverse_mercator",
                json!({"longitude_of_central_meridian": 147, "latitude_of_projection_origin": 0.0,
                    "scale_factor_at_central_meridian": 0.9996, "false_easting": 500000.0, "false_northing": 1e7}),
                "m",
                "+proj=tmerc +lon_0=147 +lat_0=0 +k=0.9996 +x_0=500000 +y_0=10000000",
            ),
            (
                "albers_conical_equal_area",
                json!({"longitude_of_central_meridian": 132.0, "latitude_of_projection_origin": 0,
                    "standard_parallel": [-18.0, -36.0]}),
                "metre",
                "+proj=aea +lon_0=132 +lat_0=0 +lat_1=-18 +lat_2=-36",
            ),
            (
                "lambert_conformal_conic",
                json!({"longitude_of_central_meridian": 10.5, "latitude_of_projection_origin": 52,
                    "standard_parallel": 52}),
                "",
                "+proj=lcc +lon_0=10.5 +lat_0=52 +lat_1=52",
            ),
            (
                "lambert_azimuthal_equal_area",
                json!({"longitude_of_projection_origin": 10, "latitude_of_projection_origin": 52,
                    "false_easting": 4321000, "false_northing": 3210000}),
                "m",
                "+proj=laea +lon_0=10 +lat_0=52 +x_0=4321000 +y_0=3210000",
            ),
            (
                "sinusoidal",
                json!({"longitude_of_central_meridian": 0}),
                "m",
                "+proj=sinu +lon_0=0",
            ),
            (
                "polar_stereographic",
                json!({"straight_vertical_longitude_from_pole": -45, "latitude_of_projection_origin": 90,
                    "standard_parallel": 70}),
                "m",
                "+proj=stere +lon_0=-45 +lat_0=90 +lat_ts=70",
            ),
        ] {
            let mut attributes = members(wgs84.clone());
            attributes.extend(members(more));
            attributes.insert("grid_mapping_name".to_owned(), json!(name));
            let expected = format!("{expected} +datum=WGS84 +units=m +no_defs");
            assert_eq!(words(&attributes, units), Some((expected.clone(), None)));
            let mut notes = Vec::new();
            let crs = crs_of(&attributes, units, &mut notes);
            assert_eq!(
                (crs, notes),
                (Crs::parse(&expected).ok(), Vec::new()),
                "{name}"
            );
            assert!(Crs::parse(&expected).is_ok(), "{name}");
        }
    }

    #[test]
    fn what_a_grid_mapping_does_not_state_is_noted_or_refused() {
        let mut attributes = members(json!({
            "grid_mapping_name": "polar_stereographic", "straight_vertical_longitude_from_pole": 0,
            "latitude_of_projection_origin": -90,
        }));
        // Neither a parallel nor a scale.
        assert_eq!(words(&attributes, "m"), None);
        attributes.insert("standard_parallel".to_owned(), json!(-71));
        let (found, note) = words(&attributes, "km").unwrap();
        assert!(
            found.ends_with("+lat_ts=-71 +datum=WGS84 +units=km +no_defs"),
            "{found}"
        );
        assert!(note.unwrap().contains("no ellipsoid: WGS 84 is taken"));
        attributes.insert("false_easting".to_owned(), json!(5));
        assert!(words(&attributes, "km").unwrap().0.contains("+x_0=5000 "));
        attributes.insert("earth_radius".to_owned(), json!(6371229));
        let (found, note) = words(&attributes, "m").unwrap();
        assert!(found.contains("+R=6371229"), "{found}");
        assert!(note.unwrap().contains("name no datum"));
        // Angles of a satellite.
        assert_eq!(words(&attributes, "rad"), None);
        attributes.insert(
            "grid_mapping_name".to_owned(),
            json!("rotated_latitude_longitude"),
        );
        assert_eq!(words(&attributes, "m"), None);
        attributes.insert("grid_mapping_name".to_owned(), json!("sinusoidal"));
        assert_eq!(words(&attributes, "m"), None);
    }
}
