//! A bounding box in degrees.

use std::{fmt, str::FromStr};

use crate::error::{Error, ErrorKind, Result};

/// A bounding box of longitudes and latitudes in degrees (WGS 84, CRS84 axis order).
///
/// `west` may be larger than `east`: the bbox then crosses the antimeridian, as in
/// [RFC 7946 section 5.2](https://www.rfc-editor.org/rfc/rfc7946#section-5.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bbox {
    west: f64,
    south: f64,
    east: f64,
    north: f64,
}

/// Less than a degree of latitude anywhere on the ellipsoid of WGS 84, in metres.
const SHORTEST_DEGREE: f64 = 110_500.0;

/// In degrees; it never crosses the antimeridian.
impl TryFrom<geo::Rect<f64>> for Bbox {
    type Error = Error;

    fn try_from(rect: geo::Rect<f64>) -> Result<Self> {
        let (min, max) = (rect.min(), rect.max());
        Self::new(min.x, min.y, max.x, max.y)
    }
}

impl Bbox {
    /// Creates a bbox from its edges in degrees.
    ///
    /// ```
    /// use rss_raster::Bbox;
    ///
    /// let fiji = Bbox::new(177.0, -19.0, -178.0, -16.0)?;
    /// assert!(fiji.crosses_antimeridian());
    /// # Ok::<_, rss_raster::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if a longitude is outside -180 to 180, a latitude outside
    /// -90 to 90, or `south` is above `north`.
    pub fn new(west: f64, south: f64, east: f64, north: f64) -> Result<Self> {
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidInput, message));
        for (name, value, limit) in [
            ("west", west, 180.0),
            ("south", south, 90.0),
            ("east", east, 180.0),
            ("north", north, 90.0),
        ] {
            if !(-limit..=limit).contains(&value) {
                return invalid(format!(
                    "bbox {name} is {value}, expected -{limit} to {limit} degrees"
                ));
            }
        }
        if south > north {
            return invalid(format!(
                "bbox south {south} is above north {north}; the order is west, south, east, north"
            ));
        }
        Ok(Self {
            west,
            south,
            east,
            north,
        })
    }

    /// Returns the western edge in degrees.
    pub fn west(&self) -> f64 {
        self.west
    }

    /// Returns the southern edge in degrees.
    pub fn south(&self) -> f64 {
        self.south
    }

    /// Returns the eastern edge in degrees.
    pub fn east(&self) -> f64 {
        self.east
    }

    /// Returns the northern edge in degrees.
    pub fn north(&self) -> f64 {
        self.north
    }

    /// Returns the edges as west, south, east, north.
    pub fn edges(&self) -> [f64; 4] {
        [self.west, self.south, self.east, self.north]
    }

    /// Returns true if the bbox crosses longitude 180.
    pub fn crosses_antimeridian(&self) -> bool {
        self.west > self.east
    }

    /// Returns one or two bboxes that cover this one, none of which crosses the antimeridian.
    pub fn split(&self) -> Vec<Self> {
        if self.crosses_antimeridian() {
            vec![
                Self {
                    east: 180.0,
                    ..*self
                },
                Self {
                    west: -180.0,
                    ..*self
                },
            ]
        } else {
            vec![*self]
        }
    }

    /// Returns the bbox of all places within a distance on the ground, and a little more.
    ///
    /// ```
    /// use rss_raster::Bbox;
    ///
    /// let fiji: Bbox = "179.999,-17,179.999,-17".parse()?;
    /// let around = fiji.within(1000.0);
    /// assert!(around.crosses_antimeridian() && around.south() < -17.009);
    /// # Ok::<_, rss_raster::Error>(())
    /// ```
    #[must_use]
    pub fn within(&self, metres: f64) -> Self {
        // A degree of latitude is the shortest at the equator.
        let along = metres.max(0.0) / SHORTEST_DEGREE;
        let (south, north) = (self.south - along, self.north + along);
        let highest = south.abs().max(north.abs());
        let across = along / highest.to_radians().cos();
        let width: f64 = self.split().iter().map(|part| part.east - part.west).sum();
        let is_round = highest >= 90.0 || width + 2.0 * across >= 360.0;
        let wrapped = |lon: f64| match (-180.0..=180.0).contains(&lon) {
            true => lon,
            false => (lon + 180.0).rem_euclid(360.0) - 180.0,
        };
        let (west, east) = match is_round {
            true => (-180.0, 180.0),
            false => (wrapped(self.west - across), wrapped(self.east + across)),
        };
        Self {
            west,
            south: south.max(-90.0),
            east,
            north: north.min(90.0),
        }
    }

    /// Returns true if the two bboxes share a point.
    pub fn intersects(&self, other: &Self) -> bool {
        self.split().iter().any(|a| {
            other.split().iter().any(|b| {
                a.west <= b.east && b.west <= a.east && a.south <= b.north && b.south <= a.north
            })
        })
    }
}

impl FromStr for Bbox {
    type Err = Error;

    /// Parses `west,south,east,north`.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::new(
                ErrorKind::InvalidInput,
                format!("bbox `{text}` is not four numbers west,south,east,north"),
            )
        };
        let numbers: Vec<f64> = text
            .split(',')
            .map(|part| part.trim().parse().map_err(|_| wrong()))
            .collect::<Result<_>>()?;
        match numbers[..] {
            [west, south, east, north] => Self::new(west, south, east, north),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Bbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{},{},{},{}",
            self.west, self.south, self.east, self.north
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_out_of_range_names_the_edge() {
        let err = Bbox::new(-181.0, 0.0, 1.0, 1.0).unwrap_err();
        assert_eq!(
            err.to_string(),
            "bbox west is -181, expected -180 to 180 degrees"
        );
        assert!(Bbox::new(f64::NAN, 0.0, 1.0, 1.0).is_err());
    }

    #[test]
    fn reversed_latitudes_are_refused() {
        let err = "150,-20,151,-30".parse::<Bbox>().unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn a_box_across_the_antimeridian_meets_both_sides() {
        let fiji = Bbox::new(177.0, -19.0, -178.0, -16.0).unwrap();
        assert_eq!(fiji.split().len(), 2);
        assert!(fiji.intersects(&Bbox::new(-179.0, -18.0, -178.5, -17.0).unwrap()));
        assert!(fiji.intersects(&Bbox::new(178.0, -18.0, 179.0, -17.0).unwrap()));
        assert!(!fiji.intersects(&Bbox::new(0.0, -18.0, 1.0, -17.0).unwrap()));
    }

    #[test]
    fn a_bbox_grows_by_metres_on_the_ground() {
        let of = |text: &str, metres: f64| text.parse::<Bbox>().unwrap().within(metres);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-3 * b.abs().max(1.0), "{a} {b}");
        let [west, south, east, north] = of("10,60,11,60", 11_050.0).edges();
        // Half as long as at the equator.
        near(10.0 - west, 0.2 / 0.9969);
        near(east - 11.0, 0.2 / 0.9969);
        near(60.0 - south, 0.1);
        near(north - 60.0, 0.1);
        assert_eq!(of("10,60,11,61", 0.0), "10,60,11,61".parse().unwrap());
        let [west, _, east, _] = of("179,0,-179,0", 110_500.0).edges();
        near(west, 178.0);
        near(east, -178.0);
        // Around a pole, and round the globe.
        assert_eq!(of("10,89.99,11,89.99", 2000.0).edges()[0], -180.0);
        let all = of("-179.9,-10,179.9,10", 20_000.0);
        assert_eq!([all.west(), all.east()], [-180.0, 180.0]);
    }
}
