//! PROJ strings, read into parts.

use std::collections::BTreeMap;

use super::{
    Base, Parts, Unit, invalid,
    methods::{self, Parameter},
    near, unsupported,
};
use crate::error::Result;

/// Ellipsoids by their names in PROJ: semi-major axis and inverse flattening.
const ELLIPSOIDS: &[(&str, f64, f64)] = &[
    ("WGS84", 6_378_137.0, 298.257_223_563),
    ("GRS80", 6_378_137.0, 298.257_222_101),
    ("WGS72", 6_378_135.0, 298.26),
    ("GRS67", 6_378_160.0, 298.247_167_427),
    ("intl", 6_378_388.0, 297.0),
    ("bessel", 6_377_397.155, 299.152_812_8),
    ("bess_nam", 6_377_483.865, 299.152_812_8),
    ("clrk66", 6_378_206.4, 294.978_698_213_898_2),
    ("clrk80", 6_378_249.145, 293.466_3),
    ("clrk80ign", 6_378_249.2, 293.466_021_293_626_5),
    ("krass", 6_378_245.0, 298.3),
    ("airy", 6_377_563.396, 299.324_964_6),
    ("mod_airy", 6_377_340.189, 299.324_964_6),
    ("aust_SA", 6_378_160.0, 298.25),
    ("evrst30", 6_377_276.345, 300.801_7),
    ("hough", 6_378_270.0, 297.0),
    ("helmert", 6_378_200.0, 298.3),
    ("sphere", 6_370_997.0, 0.0),
];

/// Datums by their names in PROJ: name, ellipsoid and EPSG code of the geographic CRS.
const DATUMS: &[(&str, &str, &str, u32)] = &[
    ("WGS84", "WGS_1984", "WGS84", 4326),
    ("NAD83", "North_American_Datum_1983", "GRS80", 4269),
    ("NAD27", "North_American_Datum_1927", "clrk66", 4267),
    (
        "OSGB36",
        "Ordnance_Survey_of_Great_Britain_1936",
        "airy",
        4277,
    ),
    (
        "GGRS87",
        "Greek_Geodetic_Reference_System_1987",
        "GRS80",
        4121,
    ),
    ("nzgd49", "New_Zealand_Geodetic_Datum_1949", "intl", 4272),
    ("potsdam", "Deutsches_Hauptdreiecksnetz", "bessel", 4314),
];

/// Words that do not move a point.
const QUIET: &[&str] = &[
    "no_defs",
    "wktext",
    "type",
    "over",
    "vunits",
    "geoidgrids",
    "sweep",
    "R_A",
];

pub(super) fn parse(text: &str) -> Result<Parts> {
    let mut words: BTreeMap<&str, &str> = BTreeMap::new();
    for word in text.split_ascii_whitespace() {
        let word = word.strip_prefix('+').unwrap_or(word);
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        words.insert(name, value);
    }
    if words.contains_key("R_A") {
        return Err(unsupported("the word R_A of a PROJ string"));
    }
    let mut left = words.clone();
    let mut take = |name: &str| left.remove(name);
    let proj = take("proj").ok_or_else(|| invalid("a PROJ string without +proj"))?;
    let number = |text: &str| -> Result<f64> {
        let number = text.parse().ok().filter(|number: &f64| number.is_finite());
        number.ok_or_else(|| invalid(format!("`{text}` in a PROJ string is not a number")))
    };
    let nadgrids = take("nadgrids");
    let is_web = nadgrids == Some("@null") && proj == "merc";
    if nadgrids.is_some() && !is_web {
        return Err(unsupported("grid shift files of a PROJ string"));
    }
    let datum = take("datum");
    let known = match datum {
        None => None,
        Some(name) => {
            let known = DATUMS.iter().find(|(known, ..)| *known == name);
            Some(known.ok_or_else(|| unsupported(&format!("the datum {name} of a PROJ string")))?)
        }
    };
    let ellps = take("ellps").or(known.map(|known| known.2));
    let of_name = |name: &str| {
        let known = ELLIPSOIDS.iter().find(|(known, ..)| *known == name);
        known
            .map(|(_, a, inverse)| (*a, *inverse))
            .ok_or_else(|| unsupported(&format!("the ellipsoid {name} of a PROJ string")))
    };
    let (radius, a, b, rf, f) = (take("R"), take("a"), take("b"), take("rf"), take("f"));
    let (semi_major, inverse_flattening) = match (radius, a, ellps) {
        (Some(radius), ..) => (number(radius)?, 0.0),
        (None, Some(a), _) => {
            let a = number(a)?;
            let inverse = match (b, rf, f) {
                (Some(b), ..) => {
                    let b = number(b)?;
                    if a == b { 0.0 } else { a / (a - b) }
                }
                (None, Some(rf), _) => number(rf)?,
                (None, None, Some(f)) => match number(f)? {
                    0.0 => 0.0,
                    f => 1.0 / f,
                },
                (None, None, None) => 0.0,
            };
            (a, inverse)
        }
        (None, None, Some(name)) => of_name(name)?,
        (None, None, None) => of_name("GRS80")?,
    };
    let is_flat = inverse_flattening == 0.0 || inverse_flattening > 1.0;
    if semi_major <= 0.0 || !is_flat {
        return Err(invalid("a PROJ string whose ellipsoid has no valid axes"));
    }
    let shift = take("towgs84").map(|text| -> Result<[f64; 7]> {
        let mut all = [0.0; 7];
        for (at, word) in all.iter_mut().zip(text.split(',')) {
            *at = number(word)?;
        }
        Ok(all)
    });
    let shift = shift.transpose()?;
    let meridian = match take("pm") {
        None | Some("greenwich") => 0.0,
        Some(pm) => number(pm)?,
    };
    let unit = match (take("to_meter"), take("units")) {
        (Some(size), _) => Unit {
            name: "unnamed".to_owned(),
            metres: number(size)?,
        },
        (None, None | Some("m")) => Unit::metre(),
        (None, Some(name)) => named_unit(name)?,
    };
    let has_known = known.is_some()
        && near(
            semi_major,
            of_name(known.map_or("", |known| known.2)).map_or(0.0, |known| known.0),
        );
    let known = known.filter(|_| has_known);
    let is_web_sphere = is_web && near(semi_major, 6_378_137.0) && inverse_flattening == 0.0;
    let of_wgs_84 = is_web_sphere.then_some(&DATUMS[0]);
    let (ellipsoid, axes) = match of_wgs_84 {
        Some(_) => ("WGS 84", of_name("WGS84")?),
        None => (ellps.unwrap_or("unknown"), (semi_major, inverse_flattening)),
    };
    let known = known.or(of_wgs_84);
    let base = Base {
        name: known.map_or("unknown", |known| known.0).to_owned(),
        datum: known.map_or("unknown", |known| known.1).to_owned(),
        ellipsoid: ellipsoid.to_owned(),
        semi_major: axes.0,
        inverse_flattening: axes.1,
        shift,
        meridian,
        unit: 1.0_f64.to_radians(),
        code: known.map(|known| known.3),
    };
    let crs = |map| Parts {
        name: "unknown".to_owned(),
        base,
        map,
        code: None,
    };
    if matches!(proj, "longlat" | "latlong" | "lonlat" | "latlon") {
        let is_usual = |name: &str, value: &str| match name {
            "lon_0" | "lat_0" | "x_0" | "y_0" | "lon_wrap" => value.parse::<f64>() == Ok(0.0),
            "k" | "k_0" => value.parse::<f64>() == Ok(1.0),
            "axis" => value == "enu",
            name => QUIET.contains(&name),
        };
        // Another central meridian or unit would move each point.
        if let Some((name, value)) = left.iter().find(|(name, value)| !is_usual(name, value)) {
            return Err(unsupported(&format!(
                "the word {name}={value} of a PROJ string of longitude and latitude"
            )));
        }
        let is_degree = near(unit.metres, 1.0_f64.to_radians());
        if unit.metres != 1.0 && !is_degree {
            return Err(unsupported(
                "a unit of length in a PROJ string of longitude and latitude",
            ));
        }
        return Ok(crs(None));
    }
    let lat_0 = words.get("lat_0").map_or(Ok(0.0), |text| number(text))?;
    let has = |name: &str| match name.split_once('=') {
        Some((name, value)) => words.get(name) == Some(&value),
        None => words.contains_key(name),
    };
    let not_known = || unsupported(&format!("the projection {proj} of a PROJ string"));
    let method = match is_web {
        true => methods::Method::of_name("popularvisualisationpseudomercator"),
        false => methods::of_proj(proj, has, lat_0),
    };
    let mut method = method.ok_or_else(not_known)?;
    let mut given = BTreeMap::new();
    if proj == "utm" {
        let zone: u8 = take("zone")
            .and_then(|zone| zone.parse().ok())
            .filter(|zone| (1..=60).contains(zone))
            .ok_or_else(|| invalid("a PROJ string of UTM without a zone of 1 to 60"))?;
        let north = if take("south").is_some() { 1e7 } else { 0.0 };
        given.extend([
            (Parameter::Lon0, f64::from(zone) * 6.0 - 183.0),
            (Parameter::Scale, 0.9996),
            (Parameter::East, 500_000.0),
            (Parameter::North, north),
        ]);
    }
    for (name, kind) in [
        ("lat_0", Parameter::Lat0),
        ("lon_0", Parameter::Lon0),
        ("lat_1", Parameter::Lat1),
        ("lat_ts", Parameter::Lat1),
        ("lat_2", Parameter::Lat2),
        ("k", Parameter::Scale),
        ("k_0", Parameter::Scale),
        ("x_0", Parameter::East),
        ("y_0", Parameter::North),
        ("h", Parameter::Height),
    ] {
        if let Some(text) = take(name) {
            given.insert(kind, number(text)?);
        }
    }
    if is_web && given.get(&Parameter::Lat1) == Some(&0.0) {
        given.remove(&Parameter::Lat1);
    }
    if method.wkt == "Lambert_Conformal_Conic_1SP" {
        // PROJ's only parallel is lat_1; with another latitude of origin it is a conic of two equal parallels.
        let lat_1 = given.remove(&Parameter::Lat1).unwrap_or(lat_0);
        if near(lat_1, lat_0) || !has("lat_0") {
            given.insert(Parameter::Lat0, lat_1);
        } else if given
            .get(&Parameter::Scale)
            .is_none_or(|scale| *scale == 1.0)
        {
            method = methods::Method::of_name("lambertconicconformal2sp").ok_or_else(not_known)?;
            given.extend([(Parameter::Lat1, lat_1), (Parameter::Lat2, lat_1)]);
        }
    }
    if method.wkt == "Polar_Stereographic"
        && given
            .get(&Parameter::Lat1)
            .is_some_and(|lat_ts| lat_ts.signum() != lat_0.signum())
    {
        return Err(unsupported(
            "a polar stereographic PROJ string with lat_ts on the other side",
        ));
    }
    if let Some(axis) = take("axis")
        && axis != "enu"
        && !(axis == "wsu" && method.words.contains("axis"))
    {
        return Err(unsupported(&format!("the axes {axis} of a PROJ string")));
    }
    if let Some(name) = left.keys().find(|name| !QUIET.contains(name)) {
        return Err(unsupported(&format!("the word {name} of a PROJ string")));
    }
    Ok(crs(Some(method.map(given, unit)?)))
}

/// Returns a unit of length by its name in PROJ.
fn named_unit(name: &str) -> Result<Unit> {
    let (said, metres) = match name {
        "km" => ("kilometre", 1000.0),
        "ft" => ("foot", 0.3048),
        "us-ft" => ("US survey foot", 12.0 / 39.37),
        "cm" => ("centimetre", 0.01),
        "mm" => ("millimetre", 0.001),
        _ => return Err(unsupported(&format!("the unit {name} of a PROJ string"))),
    };
    Ok(Unit {
        name: said.to_owned(),
        metres,
    })
}
