//! The tiles of Sentinel-2 products: the 100 km squares of the Military Grid Reference System, worldwide.
//!
//! A tile id such as `56JNS` names a UTM zone, a latitude band and a square; all that follows from
//! it (EPSG code, extent, footprint) is arithmetic, so no table of tiles is shipped. The letters
//! are those of [NGA.STND.0037](https://earth-info.nga.mil/php/download.php?file=coord-grids);
//! the polar squares (bands A, B, Y, Z) are left out, since Sentinel-2 has no tile there.

use std::{fmt, ops::RangeInclusive, str::FromStr};

use ::geo::{Coord, LineString, MultiPolygon, Polygon};

use super::{
    antimeridian,
    utm::{LonLat, UtmZone},
};
use crate::error::{Error, ErrorKind, Result};

/// Side of a square in metres.
const SQUARE: i32 = 100_000;
/// Side of a Sentinel-2 tile in metres: it overlaps its eastern and southern neighbours.
const TILE: i32 = 109_800;
/// Tile corners lie on integer multiples of the coarsest pixel from the equator, in metres.
const PIXEL: i32 = 60;
/// The row letters repeat after this many metres.
const ROW_CYCLE: i32 = 2_000_000;
/// Northing of the equator in southern zones, in metres.
const EQUATOR_SOUTH: i32 = 10_000_000;
/// Latitude bands from south to north, 8 degrees each but the last, which has 12.
const BANDS: &[u8] = b"CDEFGHJKLMNPQRSTUVWX";
/// Column letters of the eight squares from easting 100 km, by zone modulo 3.
const COLUMNS: [&[u8]; 3] = [b"STUVWXYZ", b"ABCDEFGH", b"JKLMNPQR"];
/// Row letters from the equator of an odd zone; even zones start at F.
const ROWS: &[u8] = b"ABCDEFGHJKLMNPQRSTUV";
/// Points on each side of a footprint. Between two of them the side deviates from a straight line by at most 50 m.
const POINTS_PER_SIDE: i32 = 8;

/// A tile of the Sentinel-2 grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MgrsTile {
    zone: UtmZone,
    band: u8,
    column: u8,
    row: u8,
    /// Lower left corner of the square in metres.
    easting: i32,
    northing: i32,
}

impl MgrsTile {
    /// Parses a tile id: zone 1 to 60, latitude band, two letters, such as `56JNS`. Case does not matter; the zone
    /// may have one digit; a leading `T` or `MGRS-` is ignored.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] stating which part is wrong and what is expected.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: String| {
            Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "scene `{}` is not a Sentinel-2 tile such as 56JNS: {why}",
                    text.escape_debug()
                ),
            ))
        };
        let id = text.trim().to_ascii_uppercase();
        let id = id.strip_prefix("MGRS-").unwrap_or(&id);
        let id = id.strip_prefix('T').unwrap_or(id);
        let (number, band, column, row) = match *id.as_bytes() {
            [a, b, band, column, row] if a.is_ascii_digit() && b.is_ascii_digit() => {
                ((a - b'0') * 10 + (b - b'0'), band, column, row)
            }
            [a, band, column, row] if a.is_ascii_digit() => (a - b'0', band, column, row),
            _ => return wrong("expected a zone from 1 to 60 and three letters".to_owned()),
        };
        if !(1..=60).contains(&number) {
            return wrong(format!("zone {number} is not from 1 to 60"));
        }
        let Some(band_index) = BANDS.iter().position(|&letter| letter == band) else {
            return wrong(format!(
                "latitude band `{}` is not one of C to X without I and O",
                char::from(band).escape_debug()
            ));
        };
        let Some(longitudes) = zone_longitudes(number, band) else {
            return wrong(format!(
                "zone {number} does not exist in band X; Svalbard has 31, 33, 35 and 37"
            ));
        };
        let zone = UtmZone {
            number,
            south: band < b'N',
        };
        let set = COLUMNS
            .get(usize::from(number % 3))
            .copied()
            .unwrap_or_default();
        // The first column of a zone starts at an easting of 100 km.
        let Some(easting) = position(set, column).map(|at| (at + 1) * SQUARE) else {
            return wrong(format!(
                "column `{}` is not one of {} in zone {number}",
                char::from(column).escape_debug(),
                String::from_utf8_lossy(set)
            ));
        };
        let Some(row_index) = position(ROWS, row) else {
            return wrong(format!(
                "row `{}` is not one of A to V without I and O",
                char::from(row).escape_debug()
            ));
        };
        // Even zones start five letters later, at F.
        let shift = if number.is_multiple_of(2) { 5 } else { 0 };
        let in_cycle = (row_index - shift).rem_euclid(20) * SQUARE;
        let latitudes = band_latitudes(band_index);
        // Row letters repeat every 2,000 km, so an id fits several northings; the latitude band selects one.
        let found = (0..5)
            .map(|cycle| Self {
                zone,
                band,
                column,
                row,
                easting,
                northing: in_cycle + cycle * ROW_CYCLE,
            })
            .find(|tile| tile.meets(&longitudes, &latitudes));
        match found {
            Some(tile) => Ok(tile),
            None => wrong(format!(
                "square {}{} does not exist in zone {number}, band {}",
                char::from(column),
                char::from(row),
                char::from(band)
            )),
        }
    }

    /// Returns the EPSG code of the tile's UTM zone.
    #[cfg(test)]
    pub fn epsg(&self) -> u32 {
        self.zone.epsg()
    }

    /// Returns the tile's edges in metres of its zone: west, south, east, north.
    pub fn extent(&self) -> [i32; 4] {
        let west = self.easting.div_euclid(PIXEL) * PIXEL;
        // Counted from the equator, where southern zones have the northing 10,000 km.
        let equator = if self.zone.south { EQUATOR_SOUTH } else { 0 };
        let above = self.northing + SQUARE - equator;
        let north = equator - (-above).div_euclid(PIXEL) * PIXEL;
        [west, north - TILE, west + TILE, north]
    }

    /// Returns the footprint of the tile in degrees: one polygon, or two where it is split at the antimeridian. The
    /// sides have points between the corners, since a straight side in UTM is a curve in degrees.
    pub fn footprint(&self) -> MultiPolygon<f64> {
        let ring = self
            .outline()
            .into_iter()
            .map(|point| Coord {
                x: point.lon,
                y: point.lat,
            })
            .collect();
        let whole = Polygon::new(LineString::new(ring), Vec::new());
        antimeridian::split(&MultiPolygon::new(vec![whole]))
    }

    /// Returns the closed outline, counter-clockwise from the south-west corner. Longitudes are
    /// not wrapped.
    fn outline(&self) -> Vec<LonLat> {
        let [west, south, east, north] = self.extent();
        let corners = [
            (west, south),
            (east, south),
            (east, north),
            (west, north),
            (west, south),
        ];
        let mut points = Vec::new();
        for (&(x0, y0), &(x1, y1)) in corners.iter().zip(corners.iter().skip(1)) {
            for i in 0..POINTS_PER_SIDE {
                let along = f64::from(i) / f64::from(POINTS_PER_SIDE);
                points.push(self.zone.to_lon_lat(
                    f64::from(x0) + f64::from(x1 - x0) * along,
                    f64::from(y0) + f64::from(y1 - y0) * along,
                ));
            }
        }
        points.extend(points.first().copied());
        points
    }

    fn meets(&self, longitudes: &RangeInclusive<f64>, latitudes: &RangeInclusive<f64>) -> bool {
        let (mut west, mut south) = (f64::INFINITY, f64::INFINITY);
        let (mut east, mut north) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
        for point in self.outline() {
            west = west.min(point.lon);
            east = east.max(point.lon);
            south = south.min(point.lat);
            north = north.max(point.lat);
        }
        // A square that only touches the zone or the band is not in it.
        west < *longitudes.end()
            && *longitudes.start() < east
            && south < *latitudes.end()
            && *latitudes.start() < north
    }
}

fn position(letters: &[u8], letter: u8) -> Option<i32> {
    letters
        .iter()
        .position(|&other| other == letter)
        .and_then(|at| i32::try_from(at).ok())
}

/// Returns the longitudes of a zone in a band, with the exceptions of Norway and Svalbard; none
/// if the zone does not exist there.
fn zone_longitudes(number: u8, band: u8) -> Option<RangeInclusive<f64>> {
    let west = f64::from(number) * 6.0 - 186.0;
    let (west, east) = match (band, number) {
        // Norway: 32V is widened at the cost of 31V. Svalbard: 31X, 33X, 35X and 37X are widened, the others omitted.
        (b'V', 31) => (0.0, 3.0),
        (b'V', 32) => (3.0, 12.0),
        (b'X', 31) => (0.0, 9.0),
        (b'X', 33) => (9.0, 21.0),
        (b'X', 35) => (21.0, 33.0),
        (b'X', 37) => (33.0, 42.0),
        (b'X', 32 | 34 | 36) => return None,
        _ => (west, west + 6.0),
    };
    Some(west..=east)
}

fn band_latitudes(index: usize) -> RangeInclusive<f64> {
    let south = (0..index).fold(-80.0, |south, _| south + 8.0);
    let height = if index + 1 == BANDS.len() { 12.0 } else { 8.0 };
    south..=south + height
}

impl FromStr for MgrsTile {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl fmt::Display for MgrsTile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:02}{}{}{}",
            self.zone.number,
            char::from(self.band),
            char::from(self.column),
            char::from(self.row)
        )
    }
}

#[cfg(test)]
mod tests {
    use ::geo::{BoundingRect, Contains, Point};
    use proptest::prelude::*;

    use super::*;

    /// Computed with the Python packages mgrs 1.5 (GeoTrans) and pyproj 3.7.2: the MGRS square of a point, and the
    /// point in UTM, rounded down to a square. The first 25 points lie where the grid is irregular, the others at
    /// random.
    #[test]
    fn every_square_lies_where_geotrans_puts_it() {
        for (id, epsg, easting, northing) in SQUARES {
            let tile = MgrsTile::parse(id).unwrap();
            assert_eq!(
                (tile.epsg(), tile.easting, tile.northing),
                (epsg, easting, northing),
                "{id}"
            );
            assert_eq!(tile.to_string(), id);
        }
    }

    /// `proj:transform` of real items: Earth Search, Planetary Computer, Digital Earth Australia
    /// and the test data of stactools-sentinel2.
    #[test]
    fn extents_are_those_of_sentinel_2_products() {
        for (id, epsg, west, north) in [
            ("01KAB", 32701, 99_960, 8_200_000),
            ("01LAC", 32701, 99_960, 8_300_020),
            ("01WCP", 32601, 300_000, 7_400_040),
            ("10SDG", 32610, 399_960, 4_200_000),
            ("13TDE", 32613, 399_960, 4_500_000),
            ("17SPR", 32617, 600_000, 3_600_000),
            ("20EPT", 32720, 600_000, 3_300_040),
            ("21UYT", 32621, 699_960, 5_800_020),
            ("27VWK", 32627, 499_980, 7_000_020),
            ("28QCH", 32628, 300_000, 2_300_040),
            ("37MGP", 32737, 699_960, 9_400_000),
            ("46RER", 32646, 499_980, 3_100_020),
            ("49JFM", 32749, 600_000, 7_200_040),
            ("52CDV", 32752, 399_960, 1_500_040),
            ("58VFJ", 32658, 600_000, 6_400_020),
            ("59UMU", 32659, 399_960, 5_900_040),
            ("60VUK", 32660, 300_000, 6_500_040),
        ] {
            let tile = MgrsTile::parse(id).unwrap();
            assert_eq!(tile.epsg(), epsg, "{id}");
            assert_eq!(
                tile.extent(),
                [west, north - 109_800, west + 109_800, north],
                "{id}"
            );
        }
    }

    /// Corners by pyproj 3.7.2 from EPSG:32631.
    #[test]
    fn a_footprint_has_the_corners_that_proj_gives() {
        let footprint = MgrsTile::parse("31TCJ").unwrap().footprint();
        let ring: Vec<_> = footprint.0[0].exterior().coords().collect();
        for (at, lon, lat) in [
            (0, 0.536_772_323_146_985, 43.238_262_552_870_08),
            (8, 1.888_683_014_196_913_5, 43.259_391_910_079_85),
            (16, 1.870_237_286_766_416_5, 44.247_830_683_507_6),
            (24, 0.495_928_592_914_637_6, 44.225_964_154_302_52),
        ] {
            assert!((ring[at].x - lon).abs() < 1e-8, "{:?}", ring[at]);
            assert!((ring[at].y - lat).abs() < 1e-8, "{:?}", ring[at]);
        }
    }

    #[test]
    fn a_tile_on_the_antimeridian_has_two_polygons() {
        for id in ["01KAB", "60KZG", "01WCP"] {
            let footprint = MgrsTile::parse(id).unwrap().footprint();
            let bounds = footprint.bounding_rect().unwrap();
            assert!(bounds.min().x >= -180.0 && bounds.max().x <= 180.0, "{id}");
            if footprint.0.len() == 2 {
                assert_eq!((bounds.min().x, bounds.max().x), (-180.0, 180.0), "{id}");
            }
        }
        let fiji = MgrsTile::parse("01KAB").unwrap().footprint();
        assert_eq!(fiji.0.len(), 2);
        assert!(fiji.contains(&Point::new(-179.9, -16.7)));
    }

    #[test]
    fn spellings_of_one_tile_are_one_tile() {
        let tile = MgrsTile::parse("01KAB").unwrap();
        for text in ["1kab", "T01KAB", "MGRS-1KAB", " 01Kab "] {
            assert_eq!(MgrsTile::parse(text).unwrap(), tile, "{text}");
        }
    }

    #[test]
    fn a_wrong_id_says_what_is_expected() {
        for (text, expected) in [
            ("", "expected a zone from 1 to 60 and three letters"),
            ("56", "expected a zone from 1 to 60 and three letters"),
            ("090084", "expected a zone from 1 to 60 and three letters"),
            ("56JNS1", "expected a zone from 1 to 60 and three letters"),
            ("00JNS", "zone 0 is not from 1 to 60"),
            ("61JNS", "zone 61 is not from 1 to 60"),
            (
                "56INS",
                "latitude band `I` is not one of C to X without I and O",
            ),
            (
                "56ONS",
                "latitude band `O` is not one of C to X without I and O",
            ),
            (
                "56ANS",
                "latitude band `A` is not one of C to X without I and O",
            ),
            (
                "56YNS",
                "latitude band `Y` is not one of C to X without I and O",
            ),
            ("56JIS", "column `I` is not one of JKLMNPQR in zone 56"),
            ("56JAS", "column `A` is not one of JKLMNPQR in zone 56"),
            ("56JNO", "row `O` is not one of A to V without I and O"),
            ("56JNW", "row `W` is not one of A to V without I and O"),
            (
                "32XNG",
                "zone 32 does not exist in band X; Svalbard has 31, 33, 35 and 37",
            ),
            ("56JNA", "square NA does not exist in zone 56, band J"),
            ("31VFH", "square FH does not exist in zone 31, band V"),
        ] {
            let err = MgrsTile::parse(text).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::InvalidInput);
            assert_eq!(
                err.to_string(),
                format!("scene `{text}` is not a Sentinel-2 tile such as 56JNS: {expected}")
            );
        }
    }

    proptest! {
        #[test]
        fn parsing_any_text_gives_a_tile_or_an_error(text in "\\PC{0,8}") {
            let _ = MgrsTile::parse(&text);
        }

        #[test]
        fn a_tile_is_read_back_from_its_name(
            zone in 1_u8..=60,
            letters in "[C-HJ-NP-X][A-HJ-NP-Z][A-HJ-NP-V]",
        ) {
            if let Ok(tile) = MgrsTile::parse(&format!("{zone}{letters}")) {
                prop_assert_eq!(MgrsTile::parse(&tile.to_string()).unwrap(), tile);
                let bounds = tile.footprint().bounding_rect().unwrap();
                prop_assert!(bounds.min().x >= -180.0 && bounds.max().x <= 180.0);
                prop_assert!(bounds.height() < 1.6, "{}", bounds.height());
            }
        }
    }

    const SQUARES: [(&str, u32, i32, i32); 60] = [
        ("56JNS", 32756, 500000, 7100000),
        ("32VKN", 32632, 200000, 6700000),
        ("31VDG", 32631, 400000, 6600000),
        ("32VMR", 32632, 400000, 7000000),
        ("33XWG", 32633, 500000, 8600000),
        ("31XFH", 32631, 600000, 8700000),
        ("33XXH", 32633, 600000, 8700000),
        ("35XLH", 32635, 300000, 8700000),
        ("37XDJ", 32637, 400000, 8800000),
        ("26XMU", 32626, 400000, 9300000),
        ("47CNM", 32747, 500000, 1100000),
        ("01NAA", 32601, 100000, 0),
        ("60MZE", 32760, 800000, 9900000),
        ("60KXE", 32760, 600000, 7900000),
        ("01KAB", 32701, 100000, 8100000),
        ("01WCP", 32601, 300000, 7300000),
        ("60WXU", 32660, 600000, 7300000),
        ("33XUA", 32633, 300000, 8000000),
        ("32WNE", 32632, 500000, 7900000),
        ("58CEU", 32758, 500000, 1300000),
        ("32NNF", 32632, 500000, 0),
        ("32MNE", 32732, 500000, 9900000),
        ("31UEB", 32631, 500000, 6100000),
        ("32VJH", 32632, 100000, 6200000),
        ("31VDL", 32631, 400000, 7000000),
        ("10KBC", 32710, 200000, 7700000),
        ("05QMV", 32605, 400000, 1900000),
        ("22NGK", 32622, 700000, 400000),
        ("31EDP", 32731, 400000, 3300000),
        ("27DUH", 32727, 300000, 2700000),
        ("06EVB", 32706, 400000, 3600000),
        ("50LNR", 32750, 500000, 9000000),
        ("14GMN", 32714, 400000, 4700000),
        ("57PYS", 32657, 700000, 1600000),
        ("24PXQ", 32624, 600000, 900000),
        ("03WWU", 32603, 500000, 7800000),
        ("18TVR", 32618, 400000, 5000000),
        ("08GKS", 32708, 200000, 5100000),
        ("49KGR", 32749, 700000, 7500000),
        ("35HQT", 32735, 700000, 5700000),
        ("23QLT", 32623, 300000, 1700000),
        ("04NFM", 32604, 600000, 600000),
        ("13EDP", 32713, 400000, 3300000),
        ("26QNJ", 32626, 500000, 2300000),
        ("36KTB", 32736, 200000, 7600000),
        ("18MZV", 32718, 800000, 9400000),
        ("42SYE", 32642, 700000, 3900000),
        ("35JMG", 32735, 400000, 6600000),
        ("53NND", 32653, 500000, 300000),
        ("18RUR", 32618, 300000, 3000000),
        ("08WME", 32608, 400000, 7900000),
        ("46LDR", 32746, 400000, 9000000),
        ("30GVT", 32730, 400000, 5200000),
        ("41DLJ", 32741, 300000, 2800000),
        ("35RMR", 32635, 400000, 3500000),
        ("19UFP", 32619, 600000, 5300000),
        ("36QWL", 32636, 500000, 2500000),
        ("28PDR", 32628, 400000, 1000000),
        ("57TWG", 32657, 500000, 4600000),
        ("40MGC", 32740, 700000, 9700000),
    ];
}
