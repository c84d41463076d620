//! Distances on the ground between positions of a grid.
//!
//! A metre of a map is not one of the ground: in EPSG:3857 at 60 degrees it is half of one, and a degree is none.
//! Positions are taken to points of the WGS 84 ellipsoid, and their distance along it follows from the chord between
//! them.

use super::{Crs, GeoBox, Size, Transformer, Window, world_to_pixel::plane_of};
use crate::error::Result;

/// The semi-major axis of WGS 84, in metres.
const SEMI_MAJOR: f64 = 6_378_137.0;
/// Its squared eccentricity.
const ECCENTRICITY_SQUARED: f64 = 0.006_694_379_990_141_317;
/// Half the side of the first window that is tried around a point, in pixels.
const FIRST: f64 = 1.0;
/// By how much distances on a plane may differ from true ones.
const FLAT: f64 = 0.05;
/// How much further than the distance the sides of a window lie, where they are looked at in a few points.
const MARGIN: f64 = 1.05;

/// The pixels of a grid as points of the ground.
#[derive(Clone, Debug)]
pub struct Ground {
    to_degrees: Transformer,
    size: Size,
}

/// A point of the ground.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroundPoint {
    /// Metres from the centre of the Earth.
    metres: [f64; 3],
    /// The radius of the ellipsoid about the point, in metres: the geometric mean of those along both axes.
    radius: f64,
}

impl GroundPoint {
    /// Creates a point from a longitude and a latitude in degrees.
    pub fn new([lon, lat]: [f64; 2]) -> Self {
        let (sin, cos) = lat.to_radians().sin_cos();
        let (east, north) = lon.to_radians().sin_cos();
        let flat = 1.0 - ECCENTRICITY_SQUARED * sin * sin;
        let normal = SEMI_MAJOR / flat.sqrt();
        let metres = [
            normal * cos * north,
            normal * cos * east,
            normal * (1.0 - ECCENTRICITY_SQUARED) * sin,
        ];
        let radius = normal * ((1.0 - ECCENTRICITY_SQUARED) / flat).sqrt();
        Self { metres, radius }
    }

    /// Returns the distance to another point along the ellipsoid, in metres: to a centimetre up to 100 km.
    pub fn distance(&self, other: &Self) -> f64 {
        let [a, b] = [self.metres, other.metres];
        let chord = (0..3)
            .map(|axis| (a[axis] - b[axis]).powi(2))
            .sum::<f64>()
            .sqrt();
        let around = self.radius + other.radius;
        around * (chord / around).min(1.0).asin()
    }
}

/// The ground about a position, as a plane: distances of many pixels cost little there.
#[derive(Clone, Copy, Debug)]
pub struct GroundPlane {
    position: [f64; 2],
    /// Of the steps to the next column and the next row, in square metres.
    products: [f64; 3],
}

impl GroundPlane {
    /// Returns less than the distance of a pixel's centre, by up to a tenth.
    pub fn at_least(&self, col: u32, row: u32) -> f64 {
        (1.0 - FLAT) * self.distance([f64::from(col) + 0.5, f64::from(row) + 0.5])
    }

    fn distance(&self, [col, row]: [f64; 2]) -> f64 {
        let (x, y) = (col - self.position[0], row - self.position[1]);
        let [a, b, c] = self.products;
        (a * x * x + 2.0 * b * x * y + c * y * y).max(0.0).sqrt()
    }
}

impl Ground {
    /// Creates the ground of a grid.
    ///
    /// # Errors
    ///
    /// Those of [`Transformer::new`], to degrees.
    pub fn new(grid: &GeoBox) -> Result<Self> {
        Ok(Self {
            to_degrees: Transformer::new(grid, &plane_of(&Crs::Epsg(4326)))?,
            size: grid.size,
        })
    }

    /// Returns the point at a position, column then row; none outside of the domain of the grid's projection.
    pub fn at(&self, position: [f64; 2]) -> Option<GroundPoint> {
        let place = self.to_degrees.place(position)?;
        place
            .iter()
            .all(|part| part.is_finite())
            .then(|| GroundPoint::new(place))
    }

    /// Returns the distance of a pixel's centre from a point, in metres.
    pub fn to_centre(&self, point: &GroundPoint, col: u32, row: u32) -> Option<f64> {
        let centre = self.at([f64::from(col) + 0.5, f64::from(row) + 0.5])?;
        Some(centre.distance(point))
    }

    /// Returns the plane about a position that its ground is in a window, if distances on it are within a twentieth of true.
    pub fn plane(&self, position: [f64; 2], window: &Window) -> Option<GroundPlane> {
        let [x, y] = position;
        let point = self.at(position)?;
        let step = |from: [f64; 2], to: [f64; 2]| {
            let (from, to) = (self.at(from)?.metres, self.at(to)?.metres);
            Some([0, 1, 2].map(|axis| to[axis] - from[axis]))
        };
        let right = step([x - 0.5, y], [x + 0.5, y])?;
        let down = step([x, y - 0.5], [x, y + 0.5])?;
        let product = |a: [f64; 3], b: [f64; 3]| a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
        let plane = GroundPlane {
            position,
            products: [
                product(right, right),
                product(right, down),
                product(down, down),
            ],
        };
        let along = |first: u32, length: u32| {
            [0.0, 0.5, 1.0].map(|part| f64::from(first) + f64::from(length) * part)
        };
        for col in along(window.col, window.width) {
            for row in along(window.row, window.height) {
                let (flat, exact) = (
                    plane.distance([col, row]),
                    self.at([col, row])?.distance(&point),
                );
                if (flat - exact).abs() > exact * FLAT {
                    return None;
                }
            }
        }
        Some(plane)
    }

    /// Returns a window of the grid that holds each pixel whose centre lies within a distance of a position, in metres;
    /// none if it lies outside of the grid. It grows until its sides are further away.
    pub fn window(&self, position: [f64; 2], metres: f64) -> Option<Window> {
        let point = self.at(position)?;
        let [x, y] = position;
        let (width, height) = (f64::from(self.size.width), f64::from(self.size.height));
        // Beyond this the window holds the grid, wherever the position is.
        let most = width.max(height) + x.abs().max(y.abs());
        let mut half = [FIRST; 2];
        loop {
            let mut grows = [false; 2];
            for (axis, grows) in grows.iter_mut().enumerate() {
                // Points along the two sides that bound the axis.
                let mut ends = [-1.0, 1.0].into_iter().flat_map(|end| {
                    [-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0].map(|along| {
                        let mut offset = [along, along];
                        offset[axis] = end;
                        [x + offset[0] * half[0], y + offset[1] * half[1]]
                    })
                });
                let is_near = |at: [f64; 2]| {
                    self.at(at)
                        .is_some_and(|other| other.distance(&point) <= metres * MARGIN)
                };
                *grows = half[axis] < most && ends.any(is_near);
            }
            if grows == [false; 2] {
                break;
            }
            for (half, grows) in half.iter_mut().zip(grows) {
                *half *= if grows { 1.5 } else { 1.0 };
            }
        }
        let [cols, rows] = [(x, half[0], width), (y, half[1], height)].map(|(at, half, length)| {
            let (low, high) = ((at - half).floor().max(0.0), (at + half).ceil().min(length));
            (low < high).then_some((low, high))
        });
        let ((left, right), (top, bottom)) = (cols?, rows?);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole numbers from 0 to the size of the grid"
        )]
        let pixels = |number: f64| number as u32;
        Some(Window {
            col: pixels(left),
            row: pixels(top),
            width: pixels(right - left),
            height: pixels(bottom - top),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::GeoTransform;

    #[test]
    fn a_distance_is_that_of_the_geodesic() {
        for (a, b, expected) in GEODESICS {
            let found = GroundPoint::new(*a).distance(&GroundPoint::new(*b));
            assert!(
                (found - expected).abs() < 1e-3 + expected * 2e-6,
                "{found} {expected}"
            );
        }
    }

    /// Two points and their distance, by pyproj 3.7's Geod.inv.
    const GEODESICS: &[([f64; 2], [f64; 2], f64)] = &[
        ([150.0, -35.0], [150.0, -35.0001], 11.0941),
        ([150.0, -35.0], [150.01, -35.004], 1015.0062),
        ([179.999, 60.0], [-179.998, 60.003], 373.8109),
        ([10.0, 80.0], [14.0, 80.5], 93992.6449),
        ([0.0, 0.0], [0.5, 0.0], 55659.7454),
        ([12.0, 89.99], [-160.0, 89.985], 2785.8199),
    ];

    #[test]
    fn a_window_holds_all_centres_within_a_distance() {
        let grid = |epsg: u32, transform: [f64; 6]| GeoBox {
            size: Size {
                width: 90,
                height: 80,
            },
            crs: Some(Crs::Epsg(epsg)),
            transform: Some(GeoTransform(transform)),
        };
        let (sin, cos) = 0.5_f64.sin_cos();
        for (grid, metres) in [
            (grid(32633, [5e5, 10.0, 0.0, 6e6, 0.0, -10.0]), 77.0),
            (grid(32633, [5e5, 10.0, 0.0, 6e6, 0.0, -10.0]), 1.0),
            (
                grid(
                    32633,
                    [5e5, 10.0 * cos, 30.0 * sin, 6e6, 10.0 * sin, -30.0 * cos],
                ),
                300.0,
            ),
            (grid(4326, [10.0, 0.001, 0.0, 80.0, 0.0, -0.001]), 500.0),
            (grid(4326, [10.0, 0.25, 0.0, 89.9, 0.0, -0.25]), 100_000.0),
            (grid(3857, [1e6, 30.0, 0.0, 1.2e7, 0.0, -30.0]), 400.0),
        ] {
            let ground = Ground::new(&grid).unwrap();
            for position in [
                [45.3, 40.7],
                [0.2, 79.9],
                [-2.5, 20.0],
                [45.0, 85.5],
                [-900.0, 3.0],
            ] {
                let point = ground.at(position).unwrap();
                let window = ground.window(position, metres);
                let mut count = 0;
                for row in 0..80 {
                    for col in 0..90 {
                        if ground.to_centre(&point, col, row).unwrap() <= metres {
                            count += 1;
                            let window = window.unwrap();
                            let (cols, rows) = (
                                window.col..window.col + window.width,
                                window.row..window.row + window.height,
                            );
                            assert!(
                                cols.contains(&col) && rows.contains(&row),
                                "{grid} {position:?} {col} {row}"
                            );
                        }
                    }
                }
                // Not much more than that is read.
                if let (Some(window), 1..) = (window, count) {
                    let pixels = u64::from(window.width) * u64::from(window.height);
                    assert!(
                        pixels <= 20 * count + 36,
                        "{grid} {position:?} {window} {count}"
                    );
                }
            }
        }
    }
}
