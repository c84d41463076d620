//! Geotransforms: pixels to CRS coordinates and back.

use super::{Crs, Size, Window};
use crate::error::{Error, ErrorKind, Result};

/// The affine transform from pixel corners to CRS coordinates, in
/// [GDAL's order](https://gdal.org/en/stable/tutorials/geotransforms_tut.html):
/// `x = g[0] + col * g[1] + row * g[2]`, `y = g[3] + col * g[4] + row * g[5]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GeoTransform(pub [f64; 6]);

impl GeoTransform {
    /// Returns the coordinates of a pixel corner; halves are pixel centres.
    pub fn apply(&self, col: f64, row: f64) -> [f64; 2] {
        let g = &self.0;
        [
            g[0] + col * g[1] + row * g[2],
            g[3] + col * g[4] + row * g[5],
        ]
    }

    /// Returns the pixel position of coordinates, the inverse of [`apply`](Self::apply); none if the geotransform is
    /// singular or not finite.
    pub fn pixel_of(&self, [x, y]: [f64; 2]) -> Option<[f64; 2]> {
        let [x0, a, b, y0, c, d] = self.0;
        let (dx, dy) = (x - x0, y - y0);
        let pixel = if b == 0.0 && c == 0.0 {
            // A case of its own: the general formula rounds more, and a coordinate on a pixel edge might miss it.
            [dx / a, dy / d]
        } else {
            let determinant = a * d - b * c;
            let largest = a.abs().max(b.abs()).max(c.abs()).max(d.abs());
            // Relative to the squared pixel size, so that the test works for metres and for degrees.
            if determinant.abs() <= 1e-10 * largest * largest {
                return None;
            }
            [
                (dx * d - dy * b) / determinant,
                (dy * a - dx * c) / determinant,
            ]
        };
        pixel
            .iter()
            .all(|position| position.is_finite())
            .then_some(pixel)
    }

    /// Returns true if the grid is axis-aligned: rows run along x, columns along y, and pixels have a size.
    pub fn is_axis_aligned(&self) -> bool {
        let [_, a, b, _, c, d] = self.0;
        let sides = [a, d];
        b == 0.0
            && c == 0.0
            && sides.iter().all(|side| *side != 0.0)
            && self.0.iter().all(|number| number.is_finite())
    }

    /// Returns the geotransform of a window of the raster this geotransform belongs to.
    pub fn of_window(&self, window: &Window) -> Self {
        let [x, y] = self.apply(f64::from(window.col), f64::from(window.row));
        let g = &self.0;
        Self([x, g[1], g[2], y, g[4], g[5]])
    }

    /// Returns the geotransform of the same extent with `to` pixels instead of `from`, as for an overview.
    pub fn of_level(&self, from: Size, to: Size) -> Self {
        let fx = f64::from(from.width) / f64::from(to.width.max(1));
        let fy = f64::from(from.height) / f64::from(to.height.max(1));
        let g = &self.0;
        Self([g[0], g[1] * fx, g[2] * fy, g[3], g[4] * fx, g[5] * fy])
    }
}

/// A georeferenced grid: size, CRS and geotransform.
#[derive(Clone, Debug, PartialEq)]
pub struct GeoBox {
    /// Width and height in pixels.
    pub size: Size,
    /// The CRS, if the file states one.
    pub crs: Option<Crs>,
    /// The geotransform, if the file has one.
    pub transform: Option<GeoTransform>,
}

impl GeoBox {
    /// Returns the grid of a window of this grid.
    pub fn of_window(&self, window: &Window) -> Self {
        Self {
            size: window.size(),
            crs: self.crs.clone(),
            transform: self.transform.map(|t| t.of_window(window)),
        }
    }

    /// Returns the grid enlarged by `pixels` on each side.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the result has more than 4294967295 columns or rows.
    pub fn with_margin(&self, pixels: u32) -> Result<Self> {
        let wider = |side: u32| pixels.checked_mul(2)?.checked_add(side);
        let (Some(width), Some(height)) = (wider(self.size.width), wider(self.size.height)) else {
            let message = format!(
                "a margin of {pixels} pixels around {self} exceeds {} columns or rows",
                u32::MAX
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        };
        let moved = |transform: GeoTransform| {
            let [_, a, b, _, c, d] = transform.0;
            let [x, y] = transform.apply(-f64::from(pixels), -f64::from(pixels));
            GeoTransform([x, a, b, y, c, d])
        };
        Ok(Self {
            size: Size { width, height },
            crs: self.crs.clone(),
            transform: self.transform.map(moved),
        })
    }

    /// Returns the grid of the same extent with `size` pixels, as for an overview level.
    pub fn of_level(&self, size: Size) -> Self {
        Self {
            size,
            crs: self.crs.clone(),
            transform: self.transform.map(|t| t.of_level(self.size, size)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_starts_where_its_first_pixel_is() {
        let transform = GeoTransform([499_980.0, 10.0, 0.0, 7_000_020.0, 0.0, -10.0]);
        let window = Window {
            col: 512,
            row: 1024,
            width: 512,
            height: 512,
        };
        assert_eq!(
            transform.of_window(&window),
            GeoTransform([505_100.0, 10.0, 0.0, 6_989_780.0, 0.0, -10.0])
        );
    }
}
