//! The outline of a grid in degrees: made one piece, cut to the globe, led over a pole.
//!
//! Which points it has is the business of `footprint`; here it is only numbers.

use std::ops::Range;

use ::geo::{Area, Coord, LineString, MultiPolygon, Polygon};

use super::{Bbox, Size, Window, antimeridian, projection::Projection, utm::LonLat};
use crate::error::{Error, ErrorKind, Result};

/// What is added to a longitude to find it on a map that goes on past 180.
pub(super) const TURNS: [f64; 3] = [0.0, 360.0, -360.0];

/// What is left out on each side of the meridian where a map is torn, in degrees; a tenth of a
/// millimetre.
const TEAR: f64 = 1e-9;

/// A place this close to a pixel's first edge, in pixels, lies in that pixel: digits get lost on the
/// way.
const EDGE: f64 = 1e-6;
/// A closed outline in degrees, in one piece: longitudes may lie beyond 180.
pub(super) struct Outline {
    ring: Vec<LonLat>,
    /// What was added to the longitudes to bring their middle to -180 to 180.
    turn: f64,
}

impl Outline {
    /// Makes an outline of a closed ring. Unless its map is endless, the longitudes of a ring jump.
    pub(super) fn of(mut ring: Vec<LonLat>, endless: bool) -> Self {
        let mut before = None;
        for point in &mut ring {
            if let Some(before) = before
                && !endless
            {
                point.lon = near(point.lon, before);
            }
            before = Some(point.lon);
        }
        let mut outline = Self { ring, turn: 0.0 };
        let lon = outline.lon();
        let middle = (lon.least + lon.most) / 2.0;
        outline.turn = near(middle, 0.0) - middle;
        for point in &mut outline.ring {
            point.lon += outline.turn;
        }
        outline
    }

    /// Cuts what reaches past a pole or round the globe, by no more than a pixel on each side.
    pub(super) fn cut_to_globe(&mut self, width: f64, height: f64) -> Result<()> {
        let (lon, lat) = (self.lon(), self.lat());
        let middle = (lon.least + lon.most) / 2.0;
        let slack = 1.0 + 1e-6;
        if lat.least < -90.0 - height * slack
            || lat.most > 90.0 + height * slack
            || lon.most - lon.least > 360.0 + 2.0 * width * slack
        {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "the grid is said to be in degrees, and reaches from {},{} to {},{}",
                    lon.least, lat.least, lon.most, lat.most
                ),
            ));
        }
        for point in &mut self.ring {
            point.lon = point.lon.clamp(middle - 180.0, middle + 180.0);
            point.lat = point.lat.clamp(-90.0, 90.0);
        }
        Ok(())
    }

    /// Leads a ring that goes round a pole over that pole; none if it goes round nothing.
    pub(super) fn close(&mut self, pole: Option<f64>) -> Option<()> {
        let (first, last) = (*self.ring.first()?, *self.ring.last()?);
        if (first.lon - last.lon).abs() > 1.0 {
            let lat = pole?;
            self.ring.push(LonLat { lat, ..last });
            self.ring.push(LonLat { lat, ..first });
            self.ring.push(first);
        }
        Some(())
    }

    fn lon(&self) -> Extent {
        Extent::all(self.ring.iter().map(|point| point.lon))
    }

    fn lat(&self) -> Extent {
        Extent::all(self.ring.iter().map(|point| point.lat))
    }

    pub(super) fn polygons(&self) -> MultiPolygon<f64> {
        let coords = self.ring.iter().map(|point| Coord {
            x: point.lon,
            y: point.lat,
        });
        let mut ring = LineString::from_iter(coords);
        if Polygon::new(ring.clone(), Vec::new()).signed_area() < 0.0 {
            ring.0.reverse();
        }
        let whole = Polygon::new(ring, Vec::new());
        antimeridian::split(&MultiPolygon::new(vec![whole]))
    }

    pub(super) fn bbox(&self) -> Result<Bbox> {
        let (lon, lat) = (self.lon(), self.lat());
        if lon.most - lon.least >= 360.0 - TEAR {
            return Bbox::new(-180.0, lat.least, 180.0, lat.most);
        }
        let west = if lon.least < -180.0 {
            lon.least + 360.0
        } else {
            lon.least
        };
        let east = if lon.most > 180.0 {
            lon.most - 360.0
        } else {
            lon.most
        };
        Bbox::new(west, lat.least, east, lat.most)
    }

    /// Returns where boxes are followed: a little more than the outline.
    pub(super) fn reach(&self) -> Reach {
        let (lon, lat) = (self.lon(), self.lat());
        let wide = |extent: &Extent| (extent.most - extent.least) * 1e-3 + 1e-6;
        Reach {
            west: lon.least - wide(&lon),
            south: (lat.least - wide(&lat)).max(-90.0),
            east: lon.most + wide(&lon),
            north: (lat.most + wide(&lat)).min(90.0),
            turn: self.turn,
        }
    }
}

/// A part of the globe in which a map shows all.
pub(super) struct Reach {
    west: f64,
    south: f64,
    east: f64,
    north: f64,
    /// What its longitudes are ahead of those of the map.
    turn: f64,
}

impl Reach {
    pub(super) const GLOBE: Self = Self {
        west: -180.0,
        south: -90.0,
        east: 180.0,
        north: 90.0,
        turn: 0.0,
    };

    /// Returns the parts of a box that lie here, west, south, east, north, in the map's longitudes;
    /// none of them is torn by the map.
    pub(super) fn parts(&self, bbox: &Bbox, projection: &Projection) -> Vec<[f64; 4]> {
        let [west, south, east, north] = bbox.edges();
        let (south, north) = (south.max(self.south), north.min(self.north));
        if south > north {
            return Vec::new();
        }
        let tear = (!projection.is_endless()).then(|| projection.middle() + 180.0);
        let mut parts = Vec::new();
        for turn in TURNS {
            let (west, east) = ((west + turn).max(self.west), (east + turn).min(self.east));
            if west > east {
                continue;
            }
            let mut west = west - self.turn;
            let east = east - self.turn;
            if let Some(tear) = tear {
                // The first tear that is not west of the box.
                let tear = tear + 360.0 * ((west - TEAR - tear) / 360.0).ceil();
                if tear - TEAR < east + 2.0 * TEAR {
                    if west < tear - TEAR {
                        parts.push([west, south, tear - TEAR, north]);
                    }
                    west = tear + TEAR;
                }
            }
            if west <= east {
                parts.push([west, south, east, north]);
            }
        }
        parts
    }
}

/// From the least to the most of some numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    least: f64,
    most: f64,
}

impl Extent {
    fn of(number: f64) -> Self {
        Self {
            least: number,
            most: number,
        }
    }

    fn all(numbers: impl Iterator<Item = f64>) -> Self {
        let none = Self {
            least: f64::INFINITY,
            most: f64::NEG_INFINITY,
        };
        numbers.fold(none, |all, number| all.with(&Self::of(number)))
    }

    fn with(&self, other: &Self) -> Self {
        Self {
            least: self.least.min(other.least),
            most: self.most.max(other.most),
        }
    }

    /// Returns the pixels it touches, of the `length` there are; none if it touches none.
    fn pixels(&self, length: u32) -> Option<Range<u32>> {
        let first = (self.least + EDGE).floor();
        let end = (self.most - EDGE).ceil().max(first + 1.0);
        let (first, end) = (first.max(0.0), end.min(f64::from(length)));
        // Whole numbers from 0 to a length that is one: the conversion is exact.
        let pixels = first as u32..end as u32;
        (first < end).then_some(pixels)
    }
}

/// The columns and rows that a shape covers, in parts of pixels, on the grid or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cover {
    pub(super) cols: Extent,
    pub(super) rows: Extent,
}

impl Cover {
    pub(super) fn of([col, row]: [f64; 2]) -> Self {
        Self {
            cols: Extent::of(col),
            rows: Extent::of(row),
        }
    }

    pub(super) fn with(&self, other: &Self) -> Self {
        Self {
            cols: self.cols.with(&other.cols),
            rows: self.rows.with(&other.rows),
        }
    }

    /// Returns the least column, the least row, the greatest column and the greatest row.
    pub(super) fn edges(&self) -> [f64; 4] {
        let (cols, rows) = (&self.cols, &self.rows);
        [cols.least, rows.least, cols.most, rows.most]
    }

    /// Returns the same, larger by so many pixels on each side.
    pub(super) fn grown(&self, pixels: f64) -> Self {
        let grown = |extent: &Extent| Extent {
            least: extent.least - pixels,
            most: extent.most + pixels,
        };
        Self {
            cols: grown(&self.cols),
            rows: grown(&self.rows),
        }
    }

    /// Returns the pixels it touches, of a grid of `size`; none if it touches none.
    pub(super) fn window(&self, size: Size) -> Option<Window> {
        let cols = self.cols.pixels(size.width)?;
        let rows = self.rows.pixels(size.height)?;
        Some(Window {
            col: cols.start,
            row: rows.start,
            width: cols.end - cols.start,
            height: rows.end - rows.start,
        })
    }
}

/// Returns the longitude that is the same one and lies within 180 degrees of another.
pub(super) fn near(lon: f64, other: f64) -> f64 {
    lon - 360.0 * ((lon - other) / 360.0).round()
}
