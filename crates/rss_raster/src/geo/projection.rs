//! Projections: conversions between degrees and the coordinates of a CRS.
//!
//! The crate `proj4rs` evaluates the projections from the strings of [`Definition`]. It counts in radians; only this
//! module knows that. It is never given a definition that needs a file or the environment: datums with a grid shift
//! file are refused before.
//!
//! Degrees are those of WGS 84. Datums fixed to a continental plate (NAD83, ETRS89, GDA94, GDA2020, NZGD2000, SIRGAS
//! 2000, JGD2011, ..) are taken to be equal to it, as PROJ does without an epoch: up to 2 m off, 5 m in the far north
//! of Canada. Older datums are shifted by three or seven parameters; the results are within 10 m of PROJ's.

use std::sync::Arc;

use proj4rs::{Proj, transform::transform};

use super::{
    Crs,
    definition::Definition,
    engine::{self, ForeignProjection},
    outline::near,
    parts::Parts,
    utm::LonLat,
};
use crate::error::{Error, ErrorKind, Result};

/// The bound on the error of a round trip, in metres. Beyond it the point is outside the domain: the formula still
/// returns a value there, but a wrong one.
const SAME_METRES: f64 = 1.0;

/// The conversion between degrees and the coordinates of a CRS, in both directions.
#[derive(Clone, Debug)]
pub(super) enum Projection {
    /// The coordinates are longitude and latitude.
    Degrees,
    Map(Box<Map>),
}

#[derive(Clone, Debug)]
pub(super) struct Map {
    plane: Plane,
    /// True if the map continues past the meridian opposite its centre.
    endless: bool,
}

/// What evaluates a projection.
#[derive(Clone, Debug)]
enum Plane {
    Here {
        degrees: Box<Proj>,
        plane: Box<Proj>,
    },
    /// Another library.
    Foreign(Arc<dyn ForeignProjection>),
}

impl Projection {
    /// Returns the projection of a CRS. One with an EPSG code is evaluated here, where its definition can be used; one
    /// without by PROJ, where it is at hand (see [`engine`](super::set_projection_engine)).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] naming the CRS, whose definition cannot be used.
    pub(super) fn of(crs: &Crs) -> Result<Self> {
        match crs {
            Crs::Epsg(code) => match Definition::of_epsg(*code) {
                Ok(Definition { text, shifted }) => Self::here(text, shifted).map_err(|err| {
                    let message = format!("EPSG:{code} cannot be converted to degrees");
                    Error::new(ErrorKind::Unsupported, message).with_source(err)
                }),
                Err(err) => Self::foreign(crs, err),
            },
            Crs::Wkt(text) => {
                let parts = Parts::parse(text);
                if let Ok(parts) = &parts {
                    if let Some(code) = parts.epsg() {
                        return Self::of(&Crs::Epsg(code));
                    }
                    let is_shifted = || !matches!(parts.proj_string(), Ok((_, false)));
                    if parts.is_plain_degrees() && !is_shifted() {
                        return Ok(Self::Degrees);
                    }
                }
                let here = || {
                    let (text, shifted) = parts?.proj_string()?;
                    Self::here(&text, shifted)
                };
                if engine::engine().is_none() {
                    return here().map_err(|err| with_hint(refused(crs, err.message())));
                }
                Self::foreign(crs, refused(crs, "PROJ cannot evaluate it")).or_else(|err| {
                    // What PROJ does not know either is tried here, and the first error told.
                    here().map_err(|_| err)
                })
            }
        }
    }

    /// Returns the projection of a PROJ string.
    fn here(text: &str, shifted: bool) -> Result<Self> {
        let is = |name| text.split_ascii_whitespace().any(|part| part == name);
        if is("+proj=longlat") && !shifted {
            return Ok(Self::Degrees);
        }
        let endless = !shifted && CYLINDERS.into_iter().any(is);
        // PROJ wraps longitudes to -180 to 180 unless `+over` is set.
        let over = if endless { " +over" } else { "" };
        // Without a datum on either side proj4rs computes no datum shift.
        let degrees = if shifted {
            "+proj=longlat +datum=WGS84"
        } else {
            "+proj=longlat +ellps=WGS84"
        };
        let parse = |text: &str| {
            Proj::from_proj_string(text).map_err(|err| {
                Error::new(ErrorKind::Unsupported, "its projection cannot be evaluated")
                    .with_source(err)
            })
        };
        Ok(Self::Map(Box::new(Map {
            plane: Plane::Here {
                degrees: Box::new(parse(degrees)?),
                plane: Box::new(parse(&format!("{text}{over}"))?),
            },
            endless,
        })))
    }

    /// Returns the projection of a CRS by PROJ, or else the error.
    fn foreign(crs: &Crs, otherwise: Error) -> Result<Self> {
        let Some(engine) = engine::engine() else {
            return Err(with_hint(otherwise));
        };
        match engine.projection(crs) {
            Ok(foreign) => Ok(Self::Map(Box::new(Map {
                plane: Plane::Foreign(foreign),
                endless: false,
            }))),
            Err(err) => Err(otherwise.with_source(err)),
        }
    }

    /// Returns the unit of the coordinates: `degrees`, `m`, or `units` for another length.
    pub(super) fn unit(&self) -> &'static str {
        match self {
            Self::Degrees => "degrees",
            Self::Map(map) if map.is_degrees() => "degrees",
            Self::Map(map) if map.to_meter() == 1.0 => "m",
            Self::Map(_) => "units",
        }
    }

    /// Returns true if a longitude and the one 360 degrees further have different coordinates.
    pub(super) fn is_endless(&self) -> bool {
        match self {
            Self::Degrees => true,
            Self::Map(map) => map.endless || map.is_degrees(),
        }
    }

    /// Returns the central longitude of the projection.
    pub(super) fn middle(&self) -> f64 {
        match self {
            Self::Degrees => 0.0,
            Self::Map(map) => match &map.plane {
                Plane::Here { plane, .. } => {
                    (plane.longitude_of_origin() + plane.from_greenwich()).to_degrees()
                }
                Plane::Foreign(foreign) => foreign.middle(),
            },
        }
    }

    /// Returns the distance in x between a place and the same one 360 degrees further; none if the map ends before.
    pub(super) fn turn(&self) -> Option<f64> {
        match self {
            Self::Degrees => Some(360.0),
            Self::Map(map) if map.is_degrees() => Some(360.0),
            Self::Map(map) if map.endless => {
                let at = |lon: f64| self.to_crs(LonLat { lon, lat: 0.0 });
                let middle = self.middle();
                let [west, east] = [at(middle - 90.0)?[0], at(middle + 90.0)?[0]];
                Some((east - west) * 2.0)
            }
            Self::Map(_) => None,
        }
    }

    /// Projects a point to coordinates, x then y; none outside the domain of the projection, for NaN, and beyond a
    /// pole.
    pub(super) fn to_crs(&self, point: LonLat) -> Option<[f64; 2]> {
        let Self::Map(map) = self else {
            return on_globe(point).then_some([point.lon, point.lat]);
        };
        let coords = map.forward(point)?;
        let back = map.inverse(coords)?;
        // Near a pole a longitude is imprecise, so its error is compared as a distance.
        let wraps = (back.lon - point.lon) / 360.0;
        let degrees = (wraps - wraps.round()).abs() * 360.0 * point.lat.to_radians().cos();
        let same = SAME_METRES / METRES_PER_DEGREE;
        (degrees < same && (back.lat - point.lat).abs() < same).then_some(coords)
    }

    /// Unprojects coordinates, x then y; none outside the domain of the projection. The longitude may lie beyond 180
    /// on an endless map, and is returned unchanged if the CRS is in degrees.
    pub(super) fn to_lon_lat(&self, coords: [f64; 2]) -> Option<LonLat> {
        let Self::Map(map) = self else {
            let [lon, lat] = coords;
            return (lon.is_finite() && lat.is_finite()).then_some(LonLat { lon, lat });
        };
        let point = map.inverse(coords)?;
        let [x, y] = map.forward(point)?;
        let metres = (x - coords[0]).hypot(y - coords[1]) * map.to_meter();
        (metres < SAME_METRES || map.is_degrees()).then_some(point)
    }
}

/// Returns the turn of a CRS, as [`Projection::turn`] does; none for one that only another library can evaluate, whose
/// map is taken to end.
pub(super) fn turn_of(crs: &Crs) -> Option<f64> {
    match crs {
        Crs::Epsg(_) => Projection::of(crs).ok()?.turn(),
        Crs::Wkt(text) => {
            let parts = Parts::parse(text).ok()?;
            if let Some(code) = parts.epsg() {
                return turn_of(&Crs::Epsg(code));
            }
            if parts.is_plain_degrees() {
                return Some(360.0);
            }
            let (text, shifted) = parts.proj_string().ok()?;
            Projection::here(&text, shifted).ok()?.turn()
        }
    }
}

/// Says of a CRS that cannot be evaluated here what may know it.
fn with_hint(err: Error) -> Error {
    let message = format!(
        "{}; PROJ may know it, which rss_core brings with the feature gdal",
        err.message()
    );
    Error::new(err.kind(), message)
}

fn refused(crs: &Crs, why: &str) -> Error {
    let wkt: String = crs.to_string().chars().take(60).collect();
    Error::new(
        ErrorKind::Unsupported,
        format!("a CRS without an EPSG code cannot be converted to degrees: {why}: {wkt}"),
    )
}

/// Cylindrical projections, whose meridians are parallel lines: the map may continue to either side.
const CYLINDERS: [&str; 3] = ["+proj=merc", "+proj=eqc", "+proj=cea"];

/// The length of one degree of a great circle.
const METRES_PER_DEGREE: f64 = 111_195.0;

fn on_globe(point: LonLat) -> bool {
    (-540.0..=540.0).contains(&point.lon) && (-90.0..=90.0).contains(&point.lat)
}

impl Map {
    /// Returns true if the coordinates are longitude and latitude of another datum.
    fn is_degrees(&self) -> bool {
        match &self.plane {
            Plane::Here { plane, .. } => plane.is_latlong(),
            Plane::Foreign(foreign) => foreign.metres().is_none(),
        }
    }

    fn to_meter(&self) -> f64 {
        match &self.plane {
            Plane::Here { plane, .. } => plane.to_meter(),
            Plane::Foreign(foreign) => foreign.metres().unwrap_or(1.0),
        }
    }

    fn forward(&self, point: LonLat) -> Option<[f64; 2]> {
        if !on_globe(point) {
            return None;
        }
        let coords = match &self.plane {
            Plane::Here { degrees, plane } => {
                let mut coords = (point.lon.to_radians(), point.lat.to_radians(), 0.0);
                transform(degrees, plane, &mut coords).ok()?;
                match plane.is_latlong() {
                    true => [coords.0.to_degrees(), coords.1.to_degrees()],
                    false => [coords.0, coords.1],
                }
            }
            Plane::Foreign(foreign) => foreign.to_crs([point.lon, point.lat])?,
        };
        // A datum shift wraps longitudes to -180 to 180: they stay at the turn at which they were.
        let coords = match self.is_degrees() {
            true => [near(coords[0], point.lon), coords[1]],
            false => coords,
        };
        coords.iter().all(|part| part.is_finite()).then_some(coords)
    }

    fn inverse(&self, [x, y]: [f64; 2]) -> Option<LonLat> {
        if !(x.is_finite() && y.is_finite()) {
            return None;
        }
        let (lon, lat) = match &self.plane {
            Plane::Here { degrees, plane } => {
                let mut point = match plane.is_latlong() {
                    true => (x.to_radians(), y.to_radians(), 0.0),
                    false => (x, y, 0.0),
                };
                transform(plane, degrees, &mut point).ok()?;
                (point.0.to_degrees(), point.1.to_degrees())
            }
            Plane::Foreign(foreign) => {
                let [lon, lat] = foreign.to_lon_lat([x, y])?;
                (lon, lat)
            }
        };
        // Rounding may put a pole slightly beyond 90 degrees.
        let lat = if lat.abs() < 90.0 + 1e-9 {
            lat.clamp(-90.0, 90.0)
        } else {
            lat
        };
        let lon = match self.is_degrees() {
            true => near(lon, x),
            false => lon,
        };
        let point = LonLat { lon, lat };
        on_globe(point).then_some(point)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn metres(code: u32, a: [f64; 2], b: [f64; 2]) -> f64 {
        let apart = (a[0] - b[0]).hypot(a[1] - b[1]);
        match Projection::of(&Crs::Epsg(code)).unwrap() {
            Projection::Degrees => apart * METRES_PER_DEGREE,
            Projection::Map(map) => apart * map.to_meter(),
        }
    }

    fn forward(code: u32, [lon, lat]: [f64; 2]) -> [f64; 2] {
        let projection = Projection::of(&Crs::Epsg(code)).unwrap();
        // An endless map has different coordinates for each multiple of 360 degrees.
        let lon = lon - 360.0 * ((lon - projection.middle()) / 360.0).round();
        projection.to_crs(LonLat { lon, lat }).unwrap()
    }

    #[test]
    fn coordinates_agree_with_proj() {
        for &(code, point, expected) in ORACLE {
            let apart = metres(code, forward(code, point), expected);
            assert!(apart < 1e-5, "{code} {point:?}: {apart} m");
        }
    }

    #[test]
    fn old_datums_agree_with_proj_to_metres() {
        for (code, point, expected, limit) in APART {
            let apart = metres(code, forward(code, point), expected);
            assert!(apart < limit, "{code} {point:?}: {apart} m");
        }
    }

    /// To 5 mm: the height that a datum shift adds is dropped between the two steps.
    #[test]
    fn every_point_of_the_tables_comes_back() {
        let apart = APART.map(|(code, point, ..)| (code, point));
        let same = ORACLE.iter().map(|(code, point, _)| (*code, *point));
        for (code, point) in same.chain(apart) {
            let projection = Projection::of(&Crs::Epsg(code)).unwrap();
            let back = projection.to_lon_lat(forward(code, point)).unwrap();
            let wraps = (back.lon - point[0]) / 360.0;
            let lon = (wraps - wraps.round()).abs() * 360.0 * point[1].to_radians().cos();
            assert!(
                lon < 5e-8 && (back.lat - point[1]).abs() < 5e-8,
                "{code} {point:?} {back:?}"
            );
        }
    }

    #[test]
    fn a_crs_that_cannot_be_followed_is_named() {
        for (code, why) in [
            (
                26711,
                "its datum needs a grid shift file, which is not supported",
            ),
            (
                27205,
                "its datum needs a grid shift file, which is not supported",
            ),
            (4978, "it is neither geographic nor a map projection"),
            (4807, "its prime meridian is not Greenwich"),
            (4855, "its definition may be off by more than 10 m"),
            (2000, "its datum shift to WGS 84 is unknown"),
            (32767, "the code is unknown"),
            (102_001, "the code is unknown"),
        ] {
            let err = Projection::of(&Crs::Epsg(code)).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Unsupported);
            assert_eq!(
                err.to_string(),
                format!(
                    "EPSG:{code} cannot be converted to degrees: {why}; PROJ may know it, which rss_core brings with the \
                     feature gdal"
                )
            );
        }
        let err = Projection::of(&Crs::Wkt("PROJCS[\"Albers\"]".into())).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Unsupported);
        assert!(
            err.to_string()
                .contains("PROJCS[\"Albers\"]; PROJ may know it"),
            "{err}"
        );
    }

    #[test]
    fn degrees_of_an_old_datum_stay_at_their_turn() {
        let amersfoort = Projection::of(&Crs::Epsg(4289)).unwrap();
        assert!(amersfoort.is_endless());
        for lon in [-181.0, -179.9, -3.0, 4.9, 179.9, 180.1, 357.0] {
            let there = amersfoort.to_crs(LonLat { lon, lat: 52.0 }).unwrap();
            assert!((there[0] - lon).abs() < 0.01, "{lon}: {there:?}");
            let back = amersfoort.to_lon_lat(there).unwrap();
            assert!((back.lon - lon).abs() < 1e-6, "{lon}: {back:?}");
        }
    }

    #[test]
    fn a_point_of_no_map_has_no_place() {
        let of = |code| Projection::of(&Crs::Epsg(code)).unwrap();
        for (lon, lat) in [
            (f64::NAN, 0.0),
            (0.0, f64::INFINITY),
            (0.0, 90.1),
            (1e300, 0.0),
        ] {
            for code in [4326, 3857, 32756, 3031, 27700] {
                assert_eq!(of(code).to_crs(LonLat { lon, lat }), None);
                assert!(of(code).to_lon_lat([lon * 1e9, f64::NAN]).is_none());
            }
        }
        // The far side of the globe, a pole in Mercator, and beyond the rim of an equal-area projection.
        assert_eq!(
            of(32756).to_crs(LonLat {
                lon: 60.0,
                lat: 0.0
            }),
            None
        );
        assert_eq!(
            of(3857).to_crs(LonLat {
                lon: 0.0,
                lat: 90.0
            }),
            None
        );
        assert_eq!(of(8857).to_lon_lat([17_000_000.0, 8_300_000.0]), None);
        assert_eq!(of(3035).to_lon_lat([1e9, 1e9]), None);
    }

    #[test]
    fn every_code_is_followed_or_refused() {
        let known = (0..=66_000_u32).filter(|code| Projection::of(&Crs::Epsg(*code)).is_ok());
        assert_eq!(known.count(), KNOWN);
    }

    proptest! {
        #[test]
        fn degrees_come_back(
            code in prop::sample::select(vec![32755_u32, 3857, 3577, 3031, 2193, 4326, 3308, 28355]),
            lon in 142.0..154.0_f64,
            lat in -44.0..-10.0_f64,
        ) {
            let projection = Projection::of(&Crs::Epsg(code)).unwrap();
            let there = projection.to_crs(LonLat { lon, lat }).unwrap();
            let back = projection.to_lon_lat(there).unwrap();
            prop_assert!((back.lon - lon).abs() < 1e-9, "{} {}", back.lon, lon);
            prop_assert!((back.lat - lat).abs() < 1e-9, "{} {}", back.lat, lat);
        }
    }

    /// The number of codes that passed the comparison with PROJ, and the two that were added.
    const KNOWN: usize = 4924;

    /// Code, longitude and latitude, x and y. Computed with GDAL 3.6.2 (PROJ 9.1.1):
    /// `gdaltransform -s_srs EPSG:4326 -t_srs EPSG:<code> -output_xy`, which takes longitude first.
    #[rustfmt::skip]
    const ORACLE: &[(u32, [f64; 2], [f64; 2])] = &[
        (4326, [153.025, -27.47], [153.025, -27.47]),
        (4326, [-179.5, -16.25], [-179.5, -16.25]),
        (4283, [133.2, -25.1], [133.2, -25.1]),
        (7844, [147.3, -42.9], [147.3, -42.9]),
        (4258, [10.5, 51.5], [10.5, 51.5]),
        (4979, [2.35, 48.85], [2.35, 48.85]),
        (9518, [2.35, 48.85], [2.35, 48.85]),
        (32756, [153.025, -27.47], [502469.98453677, 6961505.9415476]),
        (32756, [150.1, -44.8], [270641.070265149, 5035174.89684215]),
        (32631, [0.5, 44.25], [300406.509933045, 4902679.87988819]),
        (32631, [5.9, 79.5], [558974.642625269, 8827246.86276191]),
        (32601, [-179.8, 62.1], [353857.209900538, 6888477.1092742]),
        (32601, [179.2, 65.0], [320889.156212331, 7213840.31560614]),
        (32760, [-179.9, -16.3], [831311.574615011, 8195362.4897651]),
        (32760, [178.4, -18.1], [648135.882630194, 7998188.44072226]),
        (3857, [153.025, -27.47], [17034665.0786407, -3182315.75868025]),
        (3857, [-179.99, 84.9], [-20036395.1478813, 19845401.3354964]),
        (3857, [0.0, 0.0], [0.0, 0.0]),
        (3577, [133.88, -23.7], [189753.002439074, -2558387.8290385]),
        (3577, [153.025, -27.47], [2043387.77274785, -3148068.28971593]),
        (3577, [113.3, -26.1], [-1841554.69797874, -2960896.88694911]),
        (9473, [147.3, -42.9], [1285927.1684047, -4765986.34916529]),
        (9473, [113.3, -26.1], [-1841554.69797874, -2960896.88694911]),
        (3031, [166.7, -77.85], [304792.096543695, -1289361.30321776]),
        (3031, [-60.5, -65.2], [-2381078.79735957, 1347149.56626612]),
        (3031, [0.0, -89.9], [0.0, 10865.2468707583]),
        (3413, [-50.3, 69.2], [-210354.110476479, -2267548.45840135]),
        (3413, [135.0, 74.5], [2.06839806239893e-10, 1688975.19173613]),
        (3413, [20.0, 89.99], [981.778947065775, -457.811041632122]),
        (3976, [40.0, -70.0], [1406372.78384715, 1676049.81767656]),
        (3995, [100.0, 72.0], [1941390.43902356, 342319.514489305]),
        (2193, [174.78, -41.29], [1749045.80294436, 5427521.38339542]),
        (2193, [168.66, -45.03], [1258120.23896562, 5004547.58006737]),
        (28356, [153.025, -27.47], [502469.984536778, 6961505.94163687]),
        (28355, [147.3, -42.9], [524492.130973669, 5250246.28837291]),
        (7856, [153.025, -27.47], [502469.984536778, 6961505.94163687]),
        (3308, [151.2, -33.9], [9688021.59523041, 4420171.01258012]),
        (3111, [144.96, -37.8], [2496477.37465619, 2411221.74187997]),
        (3035, [10.0, 52.0], [4321000.0, 3210000.0]),
        (3035, [-9.1, 38.7], [2668283.44055943, 1943501.02364348]),
        (3035, [25.5, 65.0], [5049950.34760934, 4736183.87543675]),
        (2154, [2.35, 48.85], [652301.564830528, 6861302.72589958]),
        (25832, [11.6, 48.1], [693566.08829156, 5330684.8965532]),
        (3006, [18.06, 59.33], [674079.256576911, 6580798.38724441]),
        (3067, [24.94, 60.17], [385700.421384906, 6672126.74301073]),
        (2180, [21.0, 52.2], [636640.467013033, 483432.200828122]),
        (5070, [-96.0, 37.5], [0.0, 1606786.26057734]),
        (5070, [-122.4, 37.8], [-2273032.78751028, 1958176.39129275]),
        (32618, [-74.0, 40.7], [584482.352282295, 4505935.86944708]),
        (26913, [-105.0, 39.7], [499999.999999999, 4394461.01687443]),
        (26917, [-80.1, 26.7], [589531.612820313, 2953524.15769459]),
        (32145, [-72.6, 44.3], [492020.190028896, 199978.692324923]),
        (3978, [-106.0, 60.0], [-593651.013854164, 1255752.01222776]),
        (3005, [-123.1, 49.3], [1211046.64823585, 480285.140426828]),
        (2263, [-74.0, 40.7], [984250.0, 194305.338941152]),
        (6933, [36.8, -1.3], [3550695.11323299, -165831.426902785]),
        (6933, [-179.5, 75.0], [-17319287.3050359, 7089914.14521111]),
        (6931, [30.0, 75.0], [835125.006820921, -1446478.94248514]),
        (6932, [-120.0, -80.0], [-965972.573741598, -557704.525479507]),
        (8857, [151.2, -33.9], [13302181.8102493, -4224486.83232266]),
        (4087, [77.2, 28.6], [8593864.68924072, 3183737.43668762]),
        (3832, [-170.0, -14.0], [4452779.63173094, -1563885.69690383]),
        (32761, [100.0, -85.0], [2547018.7455016, 1903545.83621477]),
        (31983, [-43.2, -22.9], [684623.673265058, 7466421.40074758]),
        (5880, [-47.9, -15.8], [5653463.73422716, 8243016.22202974]),
        (4674, [-47.9, -15.8], [-47.9, -15.8]),
        (2046, [15.3, -30.0], [-28945.950707228, 3320151.28831997]),
        (2048, [18.6, -33.9], [36997.275580427, 3752641.32445479]),
        (6668, [139.7, 35.7], [139.7, 35.7]),
        (2444, [131.0, 33.0], [0.0, 7.08115455161362e-10]),
        (5179, [127.0, 37.5], [955804.816341383, 1944643.71578853]),
        (2056, [7.44, 46.95], [2600104.10949961, 1199879.62823766]),
        (21781, [8.55, 47.37], [683941.53034503, 247167.393043294]),
        (31370, [4.35, 50.85], [148679.447377894, 171066.810329966]),
        (2100, [23.7, 38.0], [473511.081099383, 4205569.56046202]),
    ];

    /// Codes that PROJ shifts by other parameters, and the tolerance in metres. Computed as above.
    #[rustfmt::skip]
    const APART: [(u32, [f64; 2], [f64; 2], f64); 7] = [
        // The same shift, whose parameters the crate rounds.
        (27700, [-0.13, 51.5], [529897.101909158, 179553.286119683], 0.01),
        (27700, [-4.2, 57.5], [268261.002765597, 847667.882065972], 0.01),
        (28992, [4.9, 52.37], [121819.365162746, 487013.761522216], 0.01),
        // PROJ uses another seven-parameter shift, EPSG:1777 for Western Germany.
        (31467, [9.2, 48.8], [3514768.21248945, 5406965.75484968], 1.0),
        // PROJ uses EPSG:2039's newer seven-parameter shift, the crate the older three-parameter one.
        (2039, [35.2, 31.8], [219035.790001022, 634141.139635478], 10.0),
        (29903, [-6.26, 53.35], [315919.995303605, 234694.102325996], 0.01),
        // PROJ uses a ten-parameter shift (Molodensky-Badekas).
        (21897, [-74.1, 4.6], [997504.281273691, 1000420.23315276], 1.0),
    ];
}
