//! The outline of a grid in degrees: unwrapped to one piece, clipped to the globe, closed over a pole.
//!
//! `footprint` computes its points; this module does not project.

use std::ops::Range;

use ::geo::{Area, Coord, LineString, MultiPolygon, Polygon};

use super::{Bbox, Size, Window, antimeridian, projection::Projection, utm::LonLat};
use crate::error::{Error, ErrorKind, Result};

/// The multiples of 360 degrees that are added to a longitude to find it on a map that continues past 180.
pub(super) const TURNS: [f64; 3] = [0.0, 360.0, -360.0];

/// The margin on each side of the meridian at which a map is split, in degrees: 1e-9 is a tenth of a millimetre.
/// On the meridian itself a point could be projected to either edge of the map.
const TEAR: f64 = 1e-9;

/// A position this close before a pixel's first edge, in pixels, is taken to be in that pixel: the tolerance for
/// rounding errors of the projection.
const EDGE: f64 = 1e-6;
/// A closed outline in degrees, in one piece: longitudes may lie beyond 180.
pub(super) struct Outline {
    ring: Vec<LonLat>,
    /// The multiple of 360 degrees that was added to bring the middle of the longitudes to -180 to 180.
    turn: f64,
}

impl Outline {
    /// Creates an outline from a closed ring. Unless the map is endless, its longitudes jump at the antimeridian and
    /// are unwrapped.
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
        let middle = (lon.min + lon.max) / 2.0;
        outline.turn = near(middle, 0.0) - middle;
        for point in &mut outline.ring {
            point.lon += outline.turn;
        }
        outline
    }

    /// Clips a grid in degrees that extends past a pole or around the globe, by at most a pixel on each side. Global
    /// grids whose pixel centres lie on the poles or on 180 do that by half a pixel; a larger excess is an error.
    pub(super) fn cut_to_globe(&mut self, width: f64, height: f64) -> Result<()> {
        let (lon, lat) = (self.lon(), self.lat());
        let middle = (lon.min + lon.max) / 2.0;
        let slack = 1.0 + 1e-6;
        if lat.min < -90.0 - height * slack
            || lat.max > 90.0 + height * slack
            || lon.max - lon.min > 360.0 + 2.0 * width * slack
        {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "the CRS of the grid is in degrees, but its extent is {},{} to {},{}",
                    lon.min, lat.min, lon.max, lat.max
                ),
            ));
        }
        for point in &mut self.ring {
            point.lon = point.lon.clamp(middle - 180.0, middle + 180.0);
            point.lat = point.lat.clamp(-90.0, 90.0);
        }
        Ok(())
    }

    /// Closes a ring that encloses a pole by adding the pole's latitude; none if it is open and encloses no pole.
    pub(super) fn close(&mut self, pole: Option<f64>) -> Option<()> {
        let (first, last) = (*self.ring.first()?, *self.ring.last()?);
        // After unwrapping, the ends of a ring around a pole are 360 degrees apart.
        if (first.lon - last.lon).abs() > 1.0 {
            let lat = pole?;
            // The ring returns to its start along the latitude of the pole.
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
        // RFC 7946: exterior rings are counter-clockwise.
        if Polygon::new(ring.clone(), Vec::new()).signed_area() < 0.0 {
            ring.0.reverse();
        }
        let whole = Polygon::new(ring, Vec::new());
        antimeridian::split(&MultiPolygon::new(vec![whole]))
    }

    pub(super) fn bbox(&self) -> Result<Bbox> {
        let (lon, lat) = (self.lon(), self.lat());
        // A west and an east edge at the same meridian would be an empty bbox.
        if lon.max - lon.min >= 360.0 - TEAR {
            return Bbox::new(-180.0, lat.min, 180.0, lat.max);
        }
        let west = if lon.min < -180.0 {
            lon.min + 360.0
        } else {
            lon.min
        };
        let east = if lon.max > 180.0 {
            lon.max - 360.0
        } else {
            lon.max
        };
        Bbox::new(west, lat.min, east, lat.max)
    }

    /// Returns the region in which bboxes are projected: slightly larger than the outline.
    pub(super) fn reach(&self) -> Reach {
        let (lon, lat) = (self.lon(), self.lat());
        let wide = |extent: &Extent| (extent.max - extent.min) * 1e-3 + 1e-6;
        Reach {
            west: lon.min - wide(&lon),
            south: (lat.min - wide(&lat)).max(-90.0),
            east: lon.max + wide(&lon),
            north: (lat.max + wide(&lat)).min(90.0),
            turn: self.turn,
        }
    }
}

/// A region of the globe that lies in the domain of a projection.
pub(super) struct Reach {
    west: f64,
    south: f64,
    east: f64,
    north: f64,
    /// The difference of its longitudes from those of the map.
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

    /// Returns the parts of a bbox that lie in the region, west, south, east, north, in the map's longitudes. No part
    /// crosses the meridian at which the map is split.
    pub(super) fn parts(&self, bbox: &Bbox, projection: &Projection) -> Vec<[f64; 4]> {
        let [west, south, east, north] = bbox.edges();
        let (south, north) = (south.max(self.south), north.min(self.north));
        if south > north {
            return Vec::new();
        }
        let cut = (!projection.is_endless()).then(|| projection.middle() + 180.0);
        let mut parts = Vec::new();
        // The region may lie beyond 180, so the bbox is tried at each multiple of 360 degrees.
        for turn in TURNS {
            let (west, east) = ((west + turn).max(self.west), (east + turn).min(self.east));
            if west > east {
                continue;
            }
            let mut west = west - self.turn;
            let east = east - self.turn;
            if let Some(cut) = cut {
                // The first such meridian that is not west of the bbox.
                let cut = cut + 360.0 * ((west - TEAR - cut) / 360.0).ceil();
                if cut - TEAR < east + 2.0 * TEAR {
                    if west < cut - TEAR {
                        parts.push([west, south, cut - TEAR, north]);
                    }
                    west = cut + TEAR;
                }
            }
            if west <= east {
                parts.push([west, south, east, north]);
            }
        }
        parts
    }
}

/// A range of values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    min: f64,
    max: f64,
}

impl Extent {
    fn of(number: f64) -> Self {
        Self {
            min: number,
            max: number,
        }
    }

    fn all(numbers: impl Iterator<Item = f64>) -> Self {
        let none = Self {
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
        };
        numbers.fold(none, |all, number| all.with(&Self::of(number)))
    }

    fn with(&self, other: &Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }

    /// Returns the pixels that the range intersects, of the `length` there are; none if it intersects none.
    fn pixels(&self, length: u32) -> Option<Range<u32>> {
        let first = (self.min + EDGE).floor();
        let end = (self.max - EDGE).ceil().max(first + 1.0);
        let (first, end) = (first.max(0.0), end.min(f64::from(length)));
        // Integers from 0 to a `u32`: the conversion is exact.
        let pixels = first as u32..end as u32;
        (first < end).then_some(pixels)
    }
}

/// The range of columns and rows that a shape covers, in fractional pixels, on the grid or not.
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

    /// Returns the minimum column and row, and the maximum column and row.
    pub(super) fn edges(&self) -> [f64; 4] {
        let (cols, rows) = (&self.cols, &self.rows);
        [cols.min, rows.min, cols.max, rows.max]
    }

    /// Returns the same, enlarged by `pixels` on each side.
    pub(super) fn grown(&self, pixels: f64) -> Self {
        let grown = |extent: &Extent| Extent {
            min: extent.min - pixels,
            max: extent.max + pixels,
        };
        Self {
            cols: grown(&self.cols),
            rows: grown(&self.rows),
        }
    }

    /// Returns the window that it intersects, of a grid of `size`; none if it intersects none.
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

/// Returns the equivalent of a longitude that lies within 180 degrees of another.
pub(super) fn near(lon: f64, other: f64) -> f64 {
    lon - 360.0 * ((lon - other) / 360.0).round()
}
