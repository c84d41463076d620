//! The map projections that GeoKeys describe, as WKT 1. No IO.
//!
//! See the requirement classes `ProjMethodGeoKey`, `ProjAngularParameters`, `ProjLinearParameters` and
//! `ProjScalarParameters` of [GeoTIFF 1.1](https://docs.ogc.org/is/19-008r4/19-008r4.html). Oblique
//! Mercator, and methods with several variants in PROJ, are left out.

use super::keys::Keys;

/// A projection: its method and parameters, and the axes of the map.
#[derive(Debug)]
pub(super) struct Projection {
    pub(super) wkt: String,
    pub(super) axes: &'static str,
}

const EAST_NORTH: &str = r#"AXIS["Easting",EAST],AXIS["Northing",NORTH]"#;
const WEST_SOUTH: &str = r#"AXIS["Westing",WEST],AXIS["Southing",SOUTH]"#;

/// The type of a projection's parameter, and the keys in which writers store it.
#[derive(Clone, Copy, Debug)]
enum ParameterKind {
    /// Of the natural origin, the false origin or the centre.
    Latitude,
    Longitude,
    /// The straight vertical longitude from a pole.
    PoleLongitude,
    Parallel1,
    Parallel2,
    Scale,
}

impl ParameterKind {
    fn keys(self) -> &'static [u64] {
        match self {
            Self::Latitude => &[3081, 3085, 3089],
            Self::Longitude => &[3080, 3084, 3088],
            Self::PoleLongitude => &[3095, 3080, 3084, 3088],
            Self::Parallel1 => &[3078],
            Self::Parallel2 => &[3079],
            Self::Scale => &[3092, 3093],
        }
    }

    fn can_be(self, value: f64) -> bool {
        match self {
            Self::Latitude | Self::Parallel1 | Self::Parallel2 => value.abs() <= 90.0,
            Self::Longitude | Self::PoleLongitude => value.abs() <= 360.0,
            Self::Scale => value > 0.0,
        }
    }
}

/// Returns the method of a code and its parameters. Those of Mercator and polar stereographic depend on
/// which keys exist, and are not here.
fn method(code: u64) -> Option<(&'static str, &'static [(&'static str, ParameterKind)])> {
    use ParameterKind::{Latitude, Longitude, Parallel1, Parallel2, Scale};
    const ORIGIN: &[(&str, ParameterKind)] = &[
        ("latitude_of_origin", Latitude),
        ("central_meridian", Longitude),
    ];
    const SCALED: &[(&str, ParameterKind)] = &[
        ("latitude_of_origin", Latitude),
        ("central_meridian", Longitude),
        ("scale_factor", Scale),
    ];
    const CENTER: &[(&str, ParameterKind)] = &[
        ("latitude_of_center", Latitude),
        ("longitude_of_center", Longitude),
    ];
    const CONIC: &[(&str, ParameterKind)] = &[
        ("latitude_of_center", Latitude),
        ("longitude_of_center", Longitude),
        ("standard_parallel_1", Parallel1),
        ("standard_parallel_2", Parallel2),
    ];
    Some(match code {
        1 => ("Transverse_Mercator", SCALED),
        8 => (
            "Lambert_Conformal_Conic_2SP",
            &[
                ("latitude_of_origin", Latitude),
                ("central_meridian", Longitude),
                ("standard_parallel_1", Parallel1),
                ("standard_parallel_2", Parallel2),
            ],
        ),
        9 => ("Lambert_Conformal_Conic_1SP", SCALED),
        10 => ("Lambert_Azimuthal_Equal_Area", CENTER),
        11 => ("Albers_Conic_Equal_Area", CONIC),
        12 => ("Azimuthal_Equidistant", CENTER),
        13 => ("Equidistant_Conic", CONIC),
        14 => ("Stereographic", SCALED),
        16 => ("Oblique_Stereographic", SCALED),
        17 => (
            "Equirectangular",
            &[
                ("latitude_of_origin", Latitude),
                ("central_meridian", Longitude),
                ("standard_parallel_1", Parallel1),
            ],
        ),
        18 => ("Cassini_Soldner", ORIGIN),
        19 => ("Gnomonic", ORIGIN),
        20 => ("Miller_Cylindrical", CENTER),
        21 => ("Orthographic", ORIGIN),
        22 => ("Polyconic", ORIGIN),
        23 => ("Robinson", &[("longitude_of_center", Longitude)]),
        24 => ("Sinusoidal", &[("longitude_of_center", Longitude)]),
        25 => ("VanDerGrinten", &[("central_meridian", Longitude)]),
        26 => ("New_Zealand_Map_Grid", ORIGIN),
        27 => ("Transverse_Mercator_South_Orientated", SCALED),
        // An extension of GDAL, not in GeoTIFF.
        28 => (
            "Cylindrical_Equal_Area",
            &[
                ("standard_parallel_1", Parallel1),
                ("central_meridian", Longitude),
            ],
        ),
        _ => return None,
    })
}

/// Returns true if the method of a code is known here, whatever its parameters are.
pub(super) fn is_known(code: u64) -> bool {
    matches!(code, 7 | 15) || method(code).is_some()
}

/// Returns the projection that keys define, with its angles in degrees.
pub(super) fn of_keys(keys: &Keys) -> Option<Projection> {
    let code = keys.code(3075)?;
    let (name, mut parameters) = match code {
        7 => mercator(keys)?,
        15 => polar_stereographic(keys)?,
        code => {
            let (name, wanted) = method(code)?;
            let found = wanted
                .iter()
                .map(|&(name, kind)| Some((name, angle_or_scale(keys, kind)?)));
            (name, found.collect::<Option<Vec<_>>>()?)
        }
    };
    // Writers leave out a false easting or northing of zero.
    let metres = |of: &[u64]| stated(keys, of).map(|value| value.unwrap_or(0.0));
    parameters.push(("false_easting", metres(&[3082, 3086, 3090])?));
    parameters.push(("false_northing", metres(&[3083, 3087, 3091])?));
    let axes = if code == 27 { WEST_SOUTH } else { EAST_NORTH };
    Some(projection(name, &parameters, axes))
}

fn projection(name: &str, parameters: &[(&str, f64)], axes: &'static str) -> Projection {
    let parameters = parameters
        .iter()
        .map(|(name, value)| format!(r#",PARAMETER["{name}",{value}]"#));
    Projection {
        wkt: format!(r#"PROJECTION["{name}"]{}"#, parameters.collect::<String>()),
        axes,
    }
}

/// Returns the value of one parameter, `Some(None)` if no key states it; none if its keys differ or are
/// not valid.
fn stated(keys: &Keys, of: &[u64]) -> Option<Option<f64>> {
    let mut found = None;
    for &key in of.iter().filter(|&&key| keys.has(key)) {
        let value = keys.number(key)?;
        if found.is_some_and(|other| other != value) {
            return None;
        }
        found = Some(value);
    }
    Some(found)
}

fn angle_or_scale(keys: &Keys, kind: ParameterKind) -> Option<f64> {
    stated(keys, kind.keys())?.filter(|&value| kind.can_be(value))
}

type Named = (&'static str, Vec<(&'static str, f64)>);

/// Mercator is defined by a parallel of true scale, or by the scale at the equator.
fn mercator(keys: &Keys) -> Option<Named> {
    let longitude = angle_or_scale(keys, ParameterKind::Longitude)?;
    // Readers differ on the false northing of another latitude of origin than the equator.
    if stated(keys, ParameterKind::Latitude.keys())?.is_some_and(|latitude| latitude != 0.0) {
        return None;
    }
    let scale = stated(keys, ParameterKind::Scale.keys())?;
    if keys.has(3078) {
        if scale.is_some_and(|scale| scale != 1.0) {
            return None;
        }
        let parallel = angle_or_scale(keys, ParameterKind::Parallel1)?;
        return Some((
            "Mercator_2SP",
            vec![
                ("standard_parallel_1", parallel),
                ("central_meridian", longitude),
            ],
        ));
    }
    let scale = scale.filter(|&scale| ParameterKind::Scale.can_be(scale))?;
    Some((
        "Mercator_1SP",
        vec![("central_meridian", longitude), ("scale_factor", scale)],
    ))
}

/// Polar stereographic is defined by a parallel of true scale, or by the scale at the pole.
fn polar_stereographic(keys: &Keys) -> Option<Named> {
    let latitude = angle_or_scale(keys, ParameterKind::Latitude)?;
    let longitude = angle_or_scale(keys, ParameterKind::PoleLongitude)?;
    let scale = stated(keys, ParameterKind::Scale.keys())?;
    let scale = match scale {
        Some(scale) if latitude.abs() == 90.0 => scale,
        None | Some(1.0) if latitude != 0.0 && latitude.abs() < 90.0 => 1.0,
        _ => return None,
    };
    ParameterKind::Scale.can_be(scale).then(|| {
        (
            "Polar_Stereographic",
            vec![
                ("latitude_of_origin", latitude),
                ("central_meridian", longitude),
                ("scale_factor", scale),
            ],
        )
    })
}

/// Returns the zone of a UTM code, and whether it is a southern one.
fn zone(code: u64) -> Option<(u32, bool)> {
    let (zone, is_south) = match code {
        16_001..=16_060 => (code - 16_000, false),
        16_101..=16_160 => (code - 16_100, true),
        _ => return None,
    };
    Some((u32::try_from(zone).ok()?, is_south))
}

/// Returns UTM by the EPSG code of its projection.
pub(super) fn utm(code: u64) -> Option<Projection> {
    let (zone, is_south) = zone(code)?;
    let parameters = [
        ("latitude_of_origin", 0.0),
        ("central_meridian", f64::from(zone) * 6.0 - 183.0),
        ("scale_factor", 0.9996),
        ("false_easting", 500_000.0),
        ("false_northing", if is_south { 10_000_000.0 } else { 0.0 }),
    ];
    Some(projection("Transverse_Mercator", &parameters, EAST_NORTH))
}

/// Returns the EPSG code of the CRS with this projection and base, if there is one.
pub(super) fn epsg(projection: u64, base: Option<u64>) -> Option<u32> {
    // Web Mercator.
    if (projection, base) == (3856, Some(4326)) {
        return Some(3857);
    }
    let (zone, is_south) = zone(projection)?;
    Some(match (base?, is_south, zone) {
        (4326, false, zone) => 32_600 + zone,
        (4326, true, zone) => 32_700 + zone,
        (4322, false, zone) => 32_200 + zone,
        (4322, true, zone) => 32_300 + zone,
        (4269, false, 1..=23) => 26_900 + zone,
        (4267, false, 1..=22) => 26_700 + zone,
        (4258, false, 28..=38) => 25_800 + zone,
        _ => return None,
    })
}
