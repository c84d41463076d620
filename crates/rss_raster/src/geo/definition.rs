//! PROJ strings of EPSG codes, as far as they can be evaluated without grid shift files.
//!
//! The crate `crs-definitions` holds one PROJ string for each code of an older EPSG dataset. Some of them are wrong,
//! and some need grid shift files; those are refused here: an error is better than misplaced pixels.

use super::parts::Parts;
use crate::error::{Error, ErrorKind, Result};

/// The conversion between degrees of WGS 84 and a CRS.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Definition {
    /// The PROJ string.
    pub(super) text: &'static str,
    /// True if the datum differs from WGS 84, by a shift that the string states.
    pub(super) shifted: bool,
}

impl super::Crs {
    /// Returns true if the coordinates are degrees, false if they are not; none if the CRS has an EPSG code or a text
    /// that is unknown here.
    pub fn is_geographic(&self) -> Option<bool> {
        let code = match self {
            Self::Epsg(code) => *code,
            Self::Wkt(wkt) => return Some(Parts::parse(wkt).ok()?.is_geographic()),
        };
        let text = proj_string(code)?;
        Some(
            text.split_ascii_whitespace()
                .any(|part| part == "+proj=longlat"),
        )
    }

    /// Returns the CRS as well-known text that includes its EPSG code; none if the code is unknown here.
    #[cfg(feature = "wkt")]
    pub fn to_wkt(&self) -> Option<&str> {
        match self {
            Self::Wkt(wkt) => Some(wkt),
            Self::Epsg(code) => {
                let known = crs_definitions::from_code(u16::try_from(*code).ok()?)?;
                Some(known.wkt)
            }
        }
    }
}

impl Definition {
    /// Returns the definition of an EPSG code.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] naming the code and what is missing.
    pub(super) fn of_epsg(code: u32) -> Result<Self> {
        let refuse = |why: &str| {
            Err(Error::new(
                ErrorKind::Unsupported,
                format!("EPSG:{code} cannot be converted to degrees: {why}"),
            ))
        };
        let Some(text) = proj_string(code) else {
            return refuse("the code is unknown");
        };
        if REFUSED
            .iter()
            .any(|&(first, last)| (first..=last).contains(&code))
        {
            return refuse("its definition may be off by more than 10 m");
        }
        let value = |name: &str| {
            text.split_ascii_whitespace()
                .filter_map(|part| part.strip_prefix('+')?.split_once('='))
                .find_map(|(key, value)| (key == name).then_some(value))
        };
        match value("proj") {
            None | Some("geocent") => {
                return refuse("it is neither geographic nor a map projection");
            }
            Some("longlat") if value("pm").is_some() => {
                return refuse("its prime meridian is not Greenwich");
            }
            _ => {}
        }
        let shifted = match (
            value("nadgrids"),
            value("towgs84"),
            value("datum"),
            value("ellps"),
        ) {
            (Some("@null"), ..) => false,
            (Some(_), ..) | (None, None, Some("NAD27"), _) => {
                return refuse("its datum needs a grid shift file, which is not supported");
            }
            (None, Some(shift), ..) => !shift.split(',').all(|part| part == "0"),
            (None, None, Some("WGS84" | "NAD83"), _) => false,
            (None, None, Some(datum), _) if SHIFTED.contains(&datum) => true,
            // A string without a datum on these ellipsoids is a modern datum, within metres of WGS 84.
            (None, None, None, Some("GRS80" | "WGS84")) => false,
            _ => return refuse("its datum shift to WGS 84 is unknown"),
        };
        Ok(Self { text, shifted })
    }
}

/// Returns the metres of a unit of the map of an EPSG code; none if the code is unknown here, or in degrees.
pub(super) fn unit_of(code: u32) -> Option<f64> {
    let text = proj_string(code)?;
    let value = |name: &str| {
        let mut words = text.split_ascii_whitespace();
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    if value("+proj") == Some("longlat") {
        return None;
    }
    match (value("+to_meter"), value("+units")) {
        (Some(metres), _) => metres.parse().ok(),
        (None, None | Some("m")) => Some(1.0),
        (None, Some("km")) => Some(1000.0),
        (None, Some("ft")) => Some(0.3048),
        (None, Some("us-ft")) => Some(12.0 / 39.37),
        (None, Some(_)) => None,
    }
}

fn proj_string(code: u32) -> Option<&'static str> {
    let added = ADDED.iter().find(|(added, _)| *added == code);
    added
        .map(|(_, text)| *text)
        .or_else(|| Some(crs_definitions::from_code(u16::try_from(code).ok()?)?.proj4))
}

/// Codes that are newer than the crate's EPSG dataset.
const ADDED: [(u32, &str); 2] = [
    // GDA2020 / Australian Albers.
    (
        9473,
        "+proj=aea +lat_0=0 +lon_0=132 +lat_1=-18 +lat_2=-36 +x_0=0 +y_0=0 +ellps=GRS80 +units=m +no_defs",
    ),
    // WGS 84 with heights above EGM2008.
    (9518, "+proj=longlat +datum=WGS84 +no_defs"),
];

/// Datums whose shift to WGS 84 `proj4rs` has as parameters, without a grid.
const SHIFTED: [&str; 7] = [
    "GGRS87",
    "OSGB36",
    "carthage",
    "hermannskogel",
    "ire65",
    "nzgd49",
    "potsdam",
];

/// Ranges (first and last) of codes that are refused, though they have a definition: at one or more of three points
/// in the code's area of use it differs by more than 10 m from the result of PROJ 9.1.1
/// (`gdaltransform -s_srs EPSG:4326`), because EPSG has changed it, because it is wrong (the lat_0 of
/// 4855 to 4880, the feet of 26814 to 26846), or because a Helmert shift is too coarse. Codes for which no point could
/// be compared are here too. A range holds no code that could be accepted.
#[rustfmt::skip]
const REFUSED: &[(u32, u32)] = &[
    (2003, 2003), (2006, 2006), (2040, 2040), (2042, 2042), (2044, 2045), (2059, 2065),
    (2082, 2082), (2137, 2137), (2155, 2156), (2164, 2164), (2170, 2171), (2192, 2192),
    (2194, 2194), (2244, 2245), (2317, 2317), (2401, 2442), (2492, 2493), (2577, 2577),
    (2694, 2694), (2736, 2737), (2889, 2890), (2934, 2934), (2978, 2978), (2983, 2984),
    (2990, 2990), (3073, 3073), (3076, 3076), (3146, 3149), (3176, 3176), (3200, 3200),
    (3302, 3303), (3314, 3315), (3329, 3330), (3333, 3333), (3335, 3335), (3349, 3349),
    (3356, 3357), (3394, 3394), (3454, 3454), (3787, 3787), (3833, 3833), (3837, 3839),
    (3842, 3844), (3893, 3893), (3906, 3906), (3909, 3910), (3985, 3989), (4055, 4055),
    (4127, 4127), (4131, 4132), (4141, 4142), (4144, 4144), (4147, 4147), (4154, 4154),
    (4156, 4156), (4161, 4161), (4178, 4178), (4208, 4209), (4214, 4214), (4220, 4220),
    (4222, 4222), (4224, 4224), (4230, 4230), (4233, 4233), (4239, 4240), (4248, 4248),
    (4261, 4261), (4264, 4264), (4281, 4281), (4287, 4287), (4292, 4292), (4297, 4297),
    (4309, 4309), (4415, 4415), (4434, 4434), (4603, 4603), (4606, 4606), (4618, 4618),
    (4620, 4620), (4630, 4630), (4635, 4635), (4645, 4645), (4675, 4675), (4680, 4680),
    (4688, 4689), (4695, 4695), (4713, 4713), (4718, 4718), (4744, 4744), (4855, 4880),
    (5221, 5221), (5337, 5337), (5388, 5388), (5457, 5457), (5463, 5463), (5513, 5514),
    (5520, 5520), (5561, 5561), (5570, 5583), (5631, 5631), (5663, 5663), (5670, 5672),
    (5680, 5680), (6141, 6141), (6204, 6204), (6316, 6316), (6956, 6959), (6989, 6991),
    (7007, 7007), (7142, 7142), (7408, 7408), (7804, 7804), (8441, 8441), (8679, 8679),
    (20248, 20248), (20348, 20348), (20357, 20358), (20822, 20936), (21100, 21100),
    (21413, 21483), (21817, 21817), (21891, 21891), (21896, 21896), (22032, 22033),
    (22092, 22092), (22234, 22275), (22700, 22700), (23030, 23030), (23036, 23037),
    (23853, 23853), (23886, 23886), (23946, 23947), (24047, 24048), (24305, 24306),
    (24375, 24375), (24377, 24377), (24817, 24882), (24892, 24892), (25395, 25700),
    (26193, 26195), (26331, 26332), (26432, 26432), (26814, 26846), (26979, 26979),
    (27037, 27038), (28191, 28192), (28402, 28403), (28462, 28463), (29118, 29121),
    (29168, 29171), (29177, 29180), (29187, 29187), (29220, 29220), (29700, 29739),
    (31265, 31283), (31288, 31293), (31461, 31461), (31900, 31900),
];
