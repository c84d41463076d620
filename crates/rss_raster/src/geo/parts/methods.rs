//! Map projections by their names in WKT 1, WKT 2, PROJ and GeoTIFF, and their parameters.

use std::collections::BTreeMap;

use super::{Map, Unit, invalid, plain, unsupported};
use crate::error::Result;

/// The kind of a projection's parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Parameter {
    /// The latitude of the origin, the false origin or the centre.
    Lat0,
    /// The longitude of the same.
    Lon0,
    /// The first standard parallel, or the parallel of true scale.
    Lat1,
    Lat2,
    Scale,
    East,
    North,
    /// The height of a satellite in metres.
    Height,
}

impl Parameter {
    /// Returns the parameter of a name, in any spelling.
    pub(super) fn of_name(name: &str) -> Option<Self> {
        Some(match plain(name).as_str() {
            "latitudeoforigin"
            | "latitudeofcenter"
            | "latitudeofcentre"
            | "latitudeofnaturalorigin"
            | "latitudeoffalseorigin"
            | "latitudeofprojectioncentre"
            | "latitudeofprojectioncenter" => Self::Lat0,
            "centralmeridian"
            | "longitudeofcenter"
            | "longitudeofcentre"
            | "longitudeoforigin"
            | "longitudeofnaturalorigin"
            | "longitudeoffalseorigin"
            | "longitudeofprojectioncentre"
            | "longitudeofprojectioncenter" => Self::Lon0,
            "standardparallel1"
            | "latitudeof1ststandardparallel"
            | "latitudeofstandardparallel" => Self::Lat1,
            "standardparallel2" | "latitudeof2ndstandardparallel" => Self::Lat2,
            "scalefactor" | "scalefactoratnaturalorigin" => Self::Scale,
            "falseeasting" | "eastingatfalseorigin" | "eastingatprojectioncentre" => Self::East,
            "falsenorthing" | "northingatfalseorigin" | "northingatprojectioncentre" => Self::North,
            "satelliteheight" => Self::Height,
            _ => return None,
        })
    }

    pub(super) fn is_angle(self) -> bool {
        matches!(self, Self::Lat0 | Self::Lon0 | Self::Lat1 | Self::Lat2)
    }

    pub(super) fn is_length(self) -> bool {
        matches!(self, Self::East | Self::North | Self::Height)
    }

    /// Returns the value that a parameter may be left out for.
    fn usual(self) -> Option<f64> {
        match self {
            Self::Scale => Some(1.0),
            Self::Height => None,
            _ => Some(0.0),
        }
    }

    fn can_be(self, value: f64) -> bool {
        value.is_finite()
            && match self {
                Self::Lat0 | Self::Lat1 | Self::Lat2 => value.abs() <= 90.0,
                Self::Lon0 => value.abs() <= 360.0,
                Self::Scale | Self::Height => value > 0.0,
                Self::East | Self::North => value.abs() < 1e12,
            }
    }
}

/// A parameter of a method: its name in WKT 1, and its GeoKey.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) kind: Parameter,
    pub(super) wkt: &'static str,
    pub(super) key: u16,
}

/// A method of projection.
#[derive(Debug)]
pub(super) struct Method {
    /// The name in PROJ.
    pub(super) proj: &'static str,
    /// What else PROJ wants said.
    pub(super) words: &'static str,
    /// The name in WKT 1.
    pub(super) wkt: &'static str,
    /// Other names, as [`plain`] returns them.
    names: &'static [&'static str],
    /// The value of `ProjMethodGeoKey`.
    pub(super) key: Option<u16>,
    pub(super) parameters: &'static [Slot],
    /// True if `proj4rs` evaluates it as PROJ does.
    pub(super) is_evaluated: bool,
}

impl Method {
    /// Returns the method of a name in WKT 1 or 2.
    pub(super) fn of_name(name: &str) -> Option<&'static Self> {
        let name = plain(name);
        METHODS
            .iter()
            .find(|method| plain(method.wkt) == name || method.names.contains(&name.as_str()))
    }

    /// Returns the word of PROJ for a parameter.
    pub(super) fn word(&self, kind: Parameter) -> &'static str {
        match kind {
            Parameter::Lat0 => "lat_0",
            Parameter::Lon0 => "lon_0",
            Parameter::Lat1 if matches!(self.proj, "merc" | "eqc" | "cea") => "lat_ts",
            Parameter::Lat1 => "lat_1",
            Parameter::Lat2 => "lat_2",
            Parameter::Scale => "k_0",
            Parameter::East => "x_0",
            Parameter::North => "y_0",
            Parameter::Height => "h",
        }
    }

    /// Returns the projection with these values: angles in degrees, lengths in metres.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind) naming a value that the method has no parameter for;
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind) for one that is out of range.
    pub(super) fn map(
        &'static self,
        mut given: BTreeMap<Parameter, f64>,
        unit: Unit,
    ) -> Result<Map> {
        for (kind, value) in &given {
            if !kind.can_be(*value) {
                return Err(invalid(format!(
                    "a CRS whose projection has {kind:?} {value}, which is out of range"
                )));
            }
        }
        if !(unit.metres > 0.0 && unit.metres.is_finite()) {
            return Err(invalid(format!(
                "a CRS whose unit is {} metres",
                unit.metres
            )));
        }
        if self.wkt == "Polar_Stereographic" {
            // A standard parallel is the latitude of origin to WKT 1.
            if let Some(lat) = given.remove(&Parameter::Lat1) {
                given.insert(Parameter::Lat0, lat);
            }
            let lat = given.get(&Parameter::Lat0).copied().unwrap_or(0.0);
            let scale = given.get(&Parameter::Scale).copied().unwrap_or(1.0);
            if lat == 0.0 || (lat.abs() < 90.0 && scale != 1.0) {
                return Err(unsupported(
                    "a polar stereographic projection with a scale at another latitude than a pole's",
                ));
            }
        }
        let mut values = Vec::with_capacity(self.parameters.len());
        for slot in self.parameters {
            let usual = match slot.kind {
                // ESRI's conic of one parallel.
                Parameter::Lat2 => values.last().copied(),
                kind => kind.usual(),
            };
            let value = given.remove(&slot.kind).or(usual);
            values.push(value.ok_or_else(|| {
                unsupported(&format!("the projection {} without {}", self.wkt, slot.wkt))
            })?);
        }
        let east = given.remove(&Parameter::East).unwrap_or(0.0);
        let north = given.remove(&Parameter::North).unwrap_or(0.0);
        if let Some((kind, value)) = given
            .iter()
            .find(|(kind, value)| Some(**value) != kind.usual())
        {
            return Err(unsupported(&format!(
                "the projection {} with {kind:?} {value}",
                self.wkt
            )));
        }
        Ok(Map {
            method: self,
            values,
            east,
            north,
            unit,
        })
    }
}

const fn slot(kind: Parameter, wkt: &'static str, key: u16) -> Slot {
    Slot { kind, wkt, key }
}

const LAT0: Slot = slot(Parameter::Lat0, "latitude_of_origin", 3081);
const LON0: Slot = slot(Parameter::Lon0, "central_meridian", 3080);
const SCALE: Slot = slot(Parameter::Scale, "scale_factor", 3092);
const LAT1: Slot = slot(Parameter::Lat1, "standard_parallel_1", 3078);
const LAT2: Slot = slot(Parameter::Lat2, "standard_parallel_2", 3079);
const LAT_CENTER: Slot = slot(Parameter::Lat0, "latitude_of_center", 3089);
const LON_CENTER: Slot = slot(Parameter::Lon0, "longitude_of_center", 3088);

const fn method(
    proj: (&'static str, &'static str),
    wkt: &'static str,
    names: &'static [&'static str],
    key: Option<u16>,
    parameters: &'static [Slot],
) -> Method {
    Method {
        proj: proj.0,
        words: proj.1,
        wkt,
        names,
        key,
        parameters,
        is_evaluated: true,
    }
}

#[rustfmt::skip]
static METHODS: &[Method] = &[
    method(("tmerc", ""), "Transverse_Mercator", &["gausskruger"], Some(1), &[LAT0, LON0, SCALE]),
    method(("tmerc", " +axis=wsu"), "Transverse_Mercator_South_Orientated", &["transversemercatorsouthorientated"], Some(27), &[LAT0, LON0, SCALE]),
    method(("merc", ""), "Mercator_1SP", &["mercatorvarianta"], Some(7), &[LON0, SCALE]),
    method(("merc", ""), "Mercator_2SP", &["mercatorvariantb", "mercator"], Some(7), &[LAT1, LON0]),
    method(("merc", " +a=6378137 +b=6378137 +nadgrids=@null"), "Popular_Visualisation_Pseudo_Mercator", &["popularvisualisationpseudomercator", "mercatorauxiliarysphere"], None, &[LON0]),
    method(("lcc", ""), "Lambert_Conformal_Conic_1SP", &["lambertconicconformal1sp"], Some(9), &[LAT0, LON0, SCALE]),
    method(("lcc", ""), "Lambert_Conformal_Conic_2SP", &["lambertconicconformal2sp", "lambertconformalconic"], Some(8), &[
        slot(Parameter::Lat0, "latitude_of_origin", 3085), slot(Parameter::Lon0, "central_meridian", 3084), LAT1, LAT2]),
    method(("laea", ""), "Lambert_Azimuthal_Equal_Area", &[], Some(10), &[LAT_CENTER, LON_CENTER]),
    method(("aea", ""), "Albers_Conic_Equal_Area", &["albersequalarea", "albers"], Some(11), &[
        slot(Parameter::Lat0, "latitude_of_center", 3081), slot(Parameter::Lon0, "longitude_of_center", 3080), LAT1, LAT2]),
    method(("aeqd", ""), "Azimuthal_Equidistant", &[], Some(12), &[LAT_CENTER, LON_CENTER]),
    method(("eqdc", ""), "Equidistant_Conic", &[], Some(13), &[
        slot(Parameter::Lat0, "latitude_of_center", 3081), slot(Parameter::Lon0, "longitude_of_center", 3080), LAT1, LAT2]),
    method(("stere", ""), "Stereographic", &[], Some(14), &[
        slot(Parameter::Lat0, "latitude_of_origin", 3089), slot(Parameter::Lon0, "central_meridian", 3088), SCALE]),
    method(("stere", ""), "Polar_Stereographic", &["polarstereographicvarianta", "polarstereographicvariantb", "stereographicnorthpole", "stereographicsouthpole"], Some(15), &[
        LAT0, slot(Parameter::Lon0, "central_meridian", 3095), SCALE]),
    method(("sterea", ""), "Oblique_Stereographic", &["doublestereographic"], Some(16), &[LAT0, LON0, SCALE]),
    method(("eqc", ""), "Equirectangular", &["equidistantcylindrical", "equidistantcylindricalspherical", "platecarree"], Some(17), &[
        slot(Parameter::Lat0, "latitude_of_origin", 3089), slot(Parameter::Lon0, "central_meridian", 3088), LAT1]),
    method(("cass", ""), "Cassini_Soldner", &["cassini"], Some(18), &[LAT0, LON0]),
    method(("poly", ""), "Polyconic", &["americanpolyconic"], Some(22), &[LAT0, LON0]),
    method(("robin", ""), "Robinson", &[], Some(23), &[LON_CENTER]),
    method(("sinu", ""), "Sinusoidal", &[], Some(24), &[LON_CENTER]),
    method(("moll", ""), "Mollweide", &[], None, &[LON0]),
    method(("cea", ""), "Cylindrical_Equal_Area", &["lambertcylindricalequalarea"], Some(28), &[LAT1, LON0]),
    method(("geos", ""), "Geostationary_Satellite", &["geostationarysatellitesweepy"], None, &[LON0, slot(Parameter::Height, "satellite_height", 0)]),
    method(("geos", " +sweep=x"), "Geostationary_Satellite_Sweep_X", &["geostationarysatellitesweepx"], None, &[LON0, slot(Parameter::Height, "satellite_height", 0)]),
    method(("eqearth", ""), "Equal_Earth", &[], None, &[LON0]),
    // Known by name, and left to PROJ.
    Method { is_evaluated: false, ..method(("gnom", ""), "Gnomonic", &[], Some(19), &[LAT0, LON0]) },
    Method { is_evaluated: false, ..method(("mill", ""), "Miller_Cylindrical", &[], Some(20), &[LAT_CENTER, LON_CENTER]) },
    Method { is_evaluated: false, ..method(("ortho", ""), "Orthographic", &[], Some(21), &[LAT0, LON0]) },
    Method { is_evaluated: false, ..method(("nzmg", ""), "New_Zealand_Map_Grid", &[], Some(26), &[LAT0, LON0]) },
    Method { is_evaluated: false, ..method(("vandg", ""), "VanDerGrinten", &["vandergrinteni"], Some(25), &[LON0]) },
];

/// Returns the method of a PROJ string: its name, and which parameters it states.
pub(super) fn of_proj(
    name: &str,
    has: impl Fn(&str) -> bool,
    lat_0: f64,
) -> Option<&'static Method> {
    let wkt = match name {
        "tmerc" if has("axis") => "Transverse_Mercator_South_Orientated",
        "tmerc" | "etmerc" | "utm" => "Transverse_Mercator",
        "merc" if has("lat_ts") => "Mercator_2SP",
        "merc" => "Mercator_1SP",
        "lcc" if has("lat_2") => "Lambert_Conformal_Conic_2SP",
        "lcc" => "Lambert_Conformal_Conic_1SP",
        "stere" if lat_0.abs() == 90.0 => "Polar_Stereographic",
        "stere" => "Stereographic",
        "geos" if has("sweep=x") => "Geostationary_Satellite_Sweep_X",
        other => {
            return METHODS
                .iter()
                .find(|method| method.proj == other && method.words.is_empty());
        }
    };
    METHODS.iter().find(|method| method.wkt == wkt)
}
