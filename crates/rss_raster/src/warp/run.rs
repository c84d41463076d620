//! Runs a warp on a thread pool: arrays of any memory layout are split into tiles.

use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis};
use rayon::prelude::*;

use super::{
    SourcePixels, Warp,
    case::Case,
    general,
    plane::Plane,
    sample::{Cell, Real},
    separable,
    tile::{Tile, tiles},
};
use crate::{
    geo::{Extent, Window},
    raster::Resampling,
};

impl Warp {
    /// Resamples real samples.
    pub(super) fn real<T: Real>(
        &self,
        source: &SourcePixels<'_, T>,
        nodata: Option<T>,
        target: &Window,
        out: ArrayViewMut2<'_, T>,
    ) -> usize {
        let kernel = &self.kernel;
        self.each_tile(source, nodata, target, out, |plane, tile| {
            match &self.case {
                Case::Same { target, .. } => copy(target, plane, tile),
                Case::Separable(rulers) => match kernel.resampling {
                    Resampling::Nearest => separable::nearest(rulers, plane, tile),
                    Resampling::Average => separable::sums(kernel, rulers, plane, tile),
                    _ if kernel.is_area() => separable::area(kernel, rulers, plane, tile),
                    _ => separable::sums(kernel, rulers, plane, tile),
                },
                Case::General(mesh) => match kernel.resampling {
                    Resampling::Nearest => general::nearest(mesh, plane, tile),
                    _ if kernel.is_area() => general::area(kernel, mesh, plane, tile),
                    _ => general::linear(kernel, mesh, plane, tile),
                },
            }
        })
    }

    /// Resamples samples of any type by nearest.
    pub(super) fn nearest<T: Cell>(
        &self,
        source: &SourcePixels<'_, T>,
        target: &Window,
        out: ArrayViewMut2<'_, T>,
    ) -> usize {
        self.each_tile(source, None, target, out, |plane, tile| match &self.case {
            Case::Same { target, .. } => copy(target, plane, tile),
            Case::Separable(rulers) => separable::nearest(rulers, plane, tile),
            Case::General(mesh) => general::nearest(mesh, plane, tile),
        })
    }

    /// Calls `each` for all tiles of a target on the pool, and returns the sum of its results.
    fn each_tile<T: Cell>(
        &self,
        source: &SourcePixels<'_, T>,
        nodata: Option<T>,
        target: &Window,
        mut out: ArrayViewMut2<'_, T>,
        each: impl Fn(&Plane<'_, T>, Tile<'_, T>) -> usize + Sync,
    ) -> usize {
        if !has_rows(out.strides(), out.dim()) {
            // Tiles borrow their rows as slices, so rows must be contiguous. The buffer starts as a copy of `out`:
            // pixels that are not valid keep their values.
            let mut contiguous = Array2::from_shape_fn(out.dim(), |index| out[index]);
            let count = self.each_tile(source, nodata, target, contiguous.view_mut(), each);
            out.assign(&contiguous);
            return count;
        }
        let copied;
        let pixels = match has_rows(source.pixels.strides(), source.pixels.dim()) {
            true => source.pixels.view(),
            false => {
                copied = source.pixels.as_standard_layout();
                copied.view()
            }
        };
        let masked;
        let mask = match &source.mask {
            Some(mask) if has_rows(mask.strides(), mask.dim()) => Some(mask.view()),
            Some(mask) => {
                masked = mask.as_standard_layout();
                Some(masked.view())
            }
            None => None,
        };
        let samples = rows(&pixels);
        let mask = mask.as_ref().map(rows);
        let plane = Plane {
            rows: &samples,
            mask: mask.as_deref(),
            nodata,
            window: source.window,
            size: self.from.size,
        };
        let rows = out
            .axis_iter_mut(Axis(0))
            .filter_map(|row| row.into_slice())
            .collect();
        let tiles = tiles(target, rows);
        tiles.into_par_iter().map(|tile| each(&plane, tile)).sum()
    }
}

fn rows<'a, T>(pixels: &'a ArrayView2<'_, T>) -> Vec<&'a [T]> {
    pixels
        .axis_iter(Axis(0))
        .filter_map(|row| row.to_slice())
        .collect()
}

/// Returns true if the samples of each row are contiguous.
fn has_rows(strides: &[isize], (_, width): (usize, usize)) -> bool {
    width <= 1 || strides.last() == Some(&1)
}

/// Copies the source pixels of a tile of a target with the same pixels.
fn copy<T: Cell>(target: &Extent, plane: &Plane<'_, T>, mut tile: Tile<'_, T>) -> usize {
    let window = tile.window;
    let first = i64::from(window.col) + target.col;
    let cols = first..first + i64::from(window.width);
    // The index in the tile of the window's first column, if the window starts inside the tile.
    let start = usize::try_from(i64::from(plane.window.col) - first).unwrap_or(0);
    let mut count = 0;
    for (y, out) in (i64::from(window.row) + target.row..).zip(&mut tile.rows) {
        let (samples, mask) = plane.run(&cols, y);
        let Some(out) = out.get_mut(start..) else {
            continue;
        };
        // A select for each sample and no branch, so that the loop is vectorised.
        let mut count_of_row: u32 = 0;
        let pairs = out.iter_mut().zip(samples);
        match mask {
            None => pairs.for_each(|(out, &sample)| {
                let is_data = plane.is_data(sample);
                *out = if is_data { sample } else { *out };
                count_of_row += u32::from(is_data);
            }),
            Some(mask) => pairs.zip(mask).for_each(|((out, &sample), &is_valid)| {
                let is_data = is_valid & plane.is_data(sample);
                *out = if is_data { sample } else { *out };
                count_of_row += u32::from(is_data);
            }),
        }
        count += count_of_row as usize;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::{Crs, GeoBox};

    const NODATA: f64 = -999.0;

    fn grid(bounds: [f64; 4]) -> GeoBox {
        GeoBox::of_bounds(Crs::Epsg(32755), bounds, 1.0).unwrap()
    }

    /// Warps a complete source onto a grid that is shifted by half a pixel.
    fn made(pixels: ArrayView2<'_, i16>, mask: Option<ArrayView2<'_, bool>>) -> Array2<i16> {
        let (height, width) = pixels.dim();
        let from = grid([0.0, 0.0, width as f64, height as f64]);
        let mut to = from.clone();
        if let Some(transform) = &mut to.transform {
            transform.0[0] += 0.5;
        }
        let warp = Warp::new(&from, &to, Resampling::Bilinear, 0.125).unwrap();
        let whole = Window::whole(from.size);
        let source = SourcePixels {
            pixels,
            window: whole,
            nodata: Some(NODATA.into()),
            mask,
        };
        // Column-major memory layout.
        let mut out = Array2::from_elem((width, height), 0_i16);
        let count = warp
            .resample(&source, &whole, out.view_mut().reversed_axes())
            .unwrap();
        assert_eq!(count, out.iter().filter(|&&pixel| pixel != 0).count());
        out.reversed_axes()
    }

    #[test]
    fn arrays_of_any_layout_are_read_and_written() {
        let pixels = Array2::from_shape_fn((20, 30), |(y, x)| 1 + ((x * 31 + y * 17) % 97) as i16);
        let expected = made(pixels.view(), None);
        assert_eq!(expected[(3, 4)], (pixels[(3, 4)] + pixels[(3, 5)] + 1) / 2);
        let transposed = pixels.t().as_standard_layout().into_owned();
        assert_eq!(made(transposed.t(), None), expected);
        let wide = ndarray::concatenate![Axis(1), pixels, pixels];
        assert_eq!(made(wide.slice(ndarray::s![.., ..30]), None), expected);
        let shown = Array2::from_elem((30, 20), true);
        assert_eq!(made(transposed.t(), Some(shown.t())), expected);
    }

    #[test]
    fn pixels_that_are_the_same_are_copied_to_where_they_lie() {
        let from = grid([0.0, 0.0, 10.0, 8.0]);
        let samples = Array2::from_shape_fn((8, 10), |(y, x)| match (x + 3 * y) % 5 {
            0 => -999,
            _ => (10 * y + x) as i16,
        });
        let shown = Array2::from_shape_fn((8, 10), |(y, x)| (x * y) % 7 != 2);
        // Outside the source on all sides, inside it, and across one edge.
        for [left, top, right, bottom] in [
            [-3, -2, 15, 12],
            [2, 3, 7, 6],
            [6, -4, 13, 3],
            [12, 0, 14, 2],
        ] {
            let to = grid([left, 8 - bottom, right, 8 - top].map(f64::from));
            let warp = Warp::new(&from, &to, Resampling::Bilinear, 0.125).unwrap();
            let whole = Window::whole(to.size);
            for window in ["0,0,10,8", "1,2,6,4"] {
                let window: Window = window.parse().unwrap();
                let [row, col] = [window.row as usize, window.col as usize];
                let part = ndarray::s![
                    row..row + window.height as usize,
                    col..col + window.width as usize
                ];
                for mask in [None, Some(shown.slice(part))] {
                    let source = SourcePixels {
                        pixels: samples.slice(part),
                        window,
                        nodata: Some(NODATA.into()),
                        mask,
                    };
                    let mut out = Array2::from_elem(whole_size(&to), 7_i16);
                    let count = warp.resample(&source, &whole, out.view_mut()).unwrap();
                    let mut expected = Array2::from_elem(out.dim(), 7_i16);
                    let mut count_of_row = 0;
                    for ((y, x), pixel) in expected.indexed_iter_mut() {
                        let (x, y) = (x as i64 + i64::from(left), y as i64 + i64::from(top));
                        let is_in = (i64::from(window.col)..i64::from(window.col + window.width))
                            .contains(&x)
                            && (i64::from(window.row)..i64::from(window.row + window.height))
                                .contains(&y);
                        if !is_in {
                            continue;
                        }
                        let place = (y as usize, x as usize);
                        if samples[place] != -999 && mask.is_none_or(|_| shown[place]) {
                            *pixel = samples[place];
                            count_of_row += 1;
                        }
                    }
                    assert_eq!(out, expected, "{left} {top} {right} {bottom}, {window}");
                    assert_eq!(count, count_of_row);
                }
            }
        }
    }

    fn whole_size(grid: &GeoBox) -> (usize, usize) {
        (grid.size.height as usize, grid.size.width as usize)
    }

    #[test]
    fn a_value_that_is_nodata_by_chance_is_kept_beside_it() {
        let pixels = Array2::from_shape_fn((8, 10), |(_, x)| if x % 2 == 0 { -998 } else { -1000 });
        let out = made(pixels.view(), None);
        // The last column is shifted past the source by half a pixel: its centre is on the edge.
        assert!(
            out.slice(ndarray::s![.., ..9])
                .iter()
                .all(|&pixel| pixel == -1000),
            "{out}"
        );
    }
}
