//! A target pixel on the source where the axes of both differ: which part of each source pixel it covers.

use super::{kernel::Side, plane::Plane, sample::Real};

/// Less than this of a source pixel is a rounding error of a position.
const LEAST: f64 = 1e-9;
/// The corners of a quadrilateral that is cut along four lines: each adds one at most.
const MOST: usize = 8;

/// A quadrilateral, or what is left of one: the corners in order around it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quad {
    corners: [[f64; 2]; MOST],
    count: usize,
}

impl Quad {
    /// Creates a quadrilateral from its corners, column and row, in order around it.
    pub(super) fn of([a, b, c, d]: [[f64; 2]; 4]) -> Self {
        let none = [0.0; 2];
        Self {
            corners: [a, b, c, d, none, none, none, none],
            count: 4,
        }
    }

    /// Returns the sum of the valid source pixels, each by the fraction of it that is covered; none without any.
    pub(super) fn sum<T: Real>(&self, plane: &Plane<'_, T>) -> Option<f64> {
        let [cols, rows] = [(0, plane.size.width), (1, plane.size.height)].map(|(axis, length)| {
            let [low, high] = self.ends(axis);
            Side::of(low, high, length)
        });
        let (cols, rows) = (cols?.pixels(), rows?.pixels());
        let (mut sum, mut total) = (0.0, 0.0);
        for row in rows {
            let strip = self.between(1, row);
            for col in cols.clone() {
                let covered = strip.between(0, col).area();
                if covered > LEAST
                    && let Some(sample) = plane.get(col, row)
                {
                    sum += sample.f64() * covered;
                    total += covered;
                }
            }
        }
        (total > 0.0).then_some(sum)
    }

    fn corners(&self) -> &[[f64; 2]] {
        self.corners.get(..self.count).unwrap_or_default()
    }

    fn ends(&self, axis: usize) -> [f64; 2] {
        let along = self.corners().iter().map(|corner| corner[axis]);
        along.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], at| {
            [low.min(at), high.max(at)]
        })
    }

    /// Returns what lies in a column (axis 0) or row (axis 1) of pixels.
    fn between(&self, axis: usize, pixel: i64) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "within 33 bits")]
        let at = pixel as f64;
        self.cut(axis, at, 1.0).cut(axis, at + 1.0, -1.0)
    }

    /// Returns what lies beyond a line in the direction `sign` of an axis: by Sutherland and Hodgman.
    fn cut(&self, axis: usize, line: f64, sign: f64) -> Self {
        let mut left = Self {
            corners: [[0.0; 2]; MOST],
            count: 0,
        };
        let mut push = |corner| {
            if let Some(slot) = left.corners.get_mut(left.count) {
                *slot = corner;
                left.count += 1;
            }
        };
        let corners = self.corners();
        for (i, &to) in corners.iter().enumerate() {
            let from = corners[(i + corners.len() - 1) % corners.len()];
            let [before, after] = [from, to].map(|corner| (corner[axis] - line) * sign);
            if (before < 0.0) != (after < 0.0) {
                let part = before / (before - after);
                let mut crossing = [0, 1].map(|axis| from[axis] + (to[axis] - from[axis]) * part);
                crossing[axis] = line;
                push(crossing);
            }
            if after >= 0.0 {
                push(to);
            }
        }
        left
    }

    /// Returns the area, by the shoelace formula from the first corner, where numbers are small.
    fn area(&self) -> f64 {
        let Some((&[x, y], rest)) = self.corners().split_first() else {
            return 0.0;
        };
        let pairs = rest.windows(2);
        let twice: f64 = pairs
            .map(|pair| {
                let [a, b] = [pair[0], pair[1]].map(|[col, row]| [col - x, row - y]);
                a[0] * b[1] - a[1] * b[0]
            })
            .sum();
        twice.abs() / 2.0
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;
    use crate::{
        geo::{Crs, GeoBox, GeoTransform, Size, Window},
        raster::Resampling,
        warp::{SourcePixels, Warp},
    };

    #[test]
    fn what_is_cut_is_what_is_covered() {
        let diamond = Quad::of([[1.0, 0.0], [2.0, 1.0], [1.0, 2.0], [0.0, 1.0]]);
        assert_eq!(diamond.area(), 2.0);
        for pixel in [[0, 0], [1, 0], [0, 1], [1, 1]] {
            let part = diamond.between(0, pixel[0]).between(1, pixel[1]);
            assert_eq!(part.area(), 0.5, "{pixel:?}");
        }
        assert_eq!(diamond.between(0, 5).area(), 0.0);
        let inside = Quad::of([[3.2, 3.2], [3.4, 3.2], [3.4, 3.6], [3.2, 3.6]]);
        assert!((inside.between(0, 3).between(1, 3).area() - 0.08).abs() < 1e-15);
    }

    /// A total is kept, whatever the grid: of more pixels, fewer, rotated ones, and those of another CRS.
    #[test]
    fn a_sum_over_all_pixels_is_that_of_the_source() {
        let grid = |epsg: u32, transform: [f64; 6], side: u32| GeoBox {
            size: Size {
                width: side,
                height: side,
            },
            crs: Some(Crs::Epsg(epsg)),
            transform: Some(GeoTransform(transform)),
        };
        let (x, y) = (600_000.0, 6_100_000.0);
        let from = grid(32755, [x, 10.0, 0.0, y, 0.0, -10.0], 60);
        let pixels = Array2::from_shape_fn((60, 60), |(row, col)| {
            f64::from(u8::try_from((row * 31 + col * 17) % 97).unwrap())
        });
        let mut mask = Array2::from_elem((60, 60), true);
        mask[(20, 20)] = false;
        let total: f64 = pixels.sum() - pixels[(20, 20)];
        let (sin, cos) = 0.4_f64.sin_cos();
        let albers = {
            let bbox = from.bbox().unwrap();
            let mut near = GeoBox::of_bbox(&bbox, Crs::Epsg(3577), 10.0).unwrap();
            let transform = near.transform.as_mut().unwrap();
            transform.0[0] -= 103.0;
            transform.0[3] += 107.0;
            let Size { width, height } = near.size;
            near.size = Size {
                width: width + 30,
                height: height + 30,
            };
            near
        };
        for to in [
            grid(32755, [x - 7.0, 10.0, 0.0, y + 3.0, 0.0, -10.0], 70),
            grid(32755, [x - 7.0, 37.0, 0.0, y + 3.0, 0.0, -37.0], 20),
            grid(32755, [x - 7.0, 3.7, 0.0, y + 3.0, 0.0, -3.7], 200),
            grid(
                32755,
                [
                    x - 600.0,
                    13.0 * cos,
                    13.0 * sin,
                    y + 300.0,
                    13.0 * sin,
                    -13.0 * cos,
                ],
                120,
            ),
            albers,
        ] {
            let source = SourcePixels {
                pixels: pixels.view(),
                window: Window::whole(from.size),
                nodata: None,
                mask: Some(mask.view()),
            };
            let shape = (to.size.height as usize, to.size.width as usize);
            let mut out = Array2::from_elem(shape, 0.0);
            let warp = Warp::new(&from, &to, Resampling::Sum, 0.0).unwrap();
            warp.resample(&source, &Window::whole(to.size), out.view_mut())
                .unwrap();
            assert!(
                (out.sum() - total).abs() < total * 1e-9,
                "{to}: {}",
                out.sum()
            );
            assert_eq!(
                warp.level(&[
                    from.size,
                    Size {
                        width: 30,
                        height: 30
                    }
                ]),
                0
            );
        }
    }

    #[test]
    fn pixels_that_are_the_same_are_smoothed_by_a_spline_and_lose_their_sign_by_rms() {
        let grid = GeoBox::of_bounds(Crs::Epsg(32755), [0.0, 0.0, 5.0, 5.0], 1.0).unwrap();
        let mut pixels = Array2::from_elem((5, 5), 0.0_f64);
        pixels[(2, 2)] = -36.0;
        let source = SourcePixels {
            pixels: pixels.view(),
            window: Window::whole(grid.size),
            nodata: None,
            mask: None,
        };
        for (resampling, expected) in [
            (Resampling::CubicSpline, [-16.0_f64, -4.0]),
            (Resampling::Rms, [36.0, 0.0]),
            (Resampling::Lanczos, [-36.0, 0.0]),
            (Resampling::Sum, [-36.0, 0.0]),
        ] {
            let warp = Warp::new(&grid, &grid, resampling, 0.125).unwrap();
            let mut out = Array2::from_elem((5, 5), 7.0);
            let whole = Window::whole(grid.size);
            assert_eq!(warp.resample(&source, &whole, out.view_mut()).unwrap(), 25);
            let found = [out[(2, 2)], out[(2, 3)]];
            let near = (found[0] - expected[0]).abs() + (found[1] - expected[1]).abs();
            assert!(near < 1e-12, "{resampling}: {found:?}");
        }
    }
}
