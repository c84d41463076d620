//! Separable warps, between axis-aligned grids of one CRS: columns depend on columns, rows on rows.
//!
//! Weights factor into those of the columns and those of the rows, so a target row is computed in two passes:
//! source rows are summed into one, and that one along its columns. Pixels near nodata take a slower path, one by
//! one.

use std::ops::Range;

use super::{
    kernel::{Area, Counts, Kernel, Side, weights},
    plane::{Plane, floor, pixel},
    sample::{Cell, Real, Sum},
    tile::{Tile, beside, keep, put},
};
use crate::{
    geo::{Size, Window},
    raster::Resampling,
};

/// How far the extent of a target may differ from that of as many source pixels, in pixels, for the scale to be 1.
const SAME: f64 = 1e-7;

/// The positions of a target's columns, or rows, on those of the source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ruler {
    start: f64,
    scale: f64,
    /// True if the scale is 1: all target pixels lie at the same fraction of a source pixel.
    is_same: bool,
}

impl Ruler {
    /// Creates a ruler of `length` pixels from the positions of the first and the last edge.
    pub(super) fn new(start: f64, end: f64, length: u32) -> Self {
        let length = f64::from(length);
        let is_same = (end - start - length).abs() < SAME;
        Self {
            start,
            scale: if is_same { 1.0 } else { (end - start) / length },
            is_same,
        }
    }

    /// Returns the size of a target pixel in source pixels.
    pub(super) fn scale(&self) -> f64 {
        self.scale.abs()
    }

    /// Returns the source pixel, and the fraction of it, of a point that lies `offset` from the first edge of a
    /// target pixel, after a shift by `moved` source pixels.
    fn split(&self, index: u32, offset: f64, moved: f64) -> (i64, f64) {
        if self.is_same {
            // The index is added as an integer, after rounding: all pixels get the same fraction to the last bit,
            // and so the same weights.
            let position = self.start + (offset + moved);
            let first = position.floor();
            return (floor(first) + i64::from(index), position - first);
        }
        let position = self.start + (f64::from(index) + offset) * self.scale + moved;
        let first = position.floor();
        (floor(first), position - first)
    }

    /// Returns the position of a point that lies `offset` from the first edge of a target pixel.
    pub(super) fn at(&self, index: u32, offset: f64) -> f64 {
        let (first, part) = self.split(index, offset, 0.0);
        #[expect(clippy::cast_precision_loss, reason = "within 41 bits")]
        let first = first as f64;
        first + part
    }
}

/// Both axes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rulers {
    pub(super) cols: Ruler,
    pub(super) rows: Ruler,
}

/// Resamples a tile by nearest, and returns the number of valid pixels.
pub(super) fn nearest<T: Cell>(
    rulers: &Rulers,
    plane: &Plane<'_, T>,
    mut tile: Tile<'_, T>,
) -> usize {
    let window = tile.window;
    let Size { width, height } = plane.size;
    let cols: Vec<Option<i64>> = (window.col..window.col + window.width)
        .map(|col| pixel(rulers.cols.at(col, 0.5), width))
        .collect();
    let mut count = 0;
    for (row, out) in (window.row..).zip(&mut tile.rows) {
        let Some(row) = pixel(rulers.rows.at(row, 0.5), height) else {
            continue;
        };
        count += put(out, cols.iter().map(|col| plane.get((*col)?, row)));
    }
    count
}

/// Resamples a tile by a statistic of areas other than average, and returns the number of valid pixels.
pub(super) fn area<T: Real>(
    kernel: &Kernel,
    rulers: &Rulers,
    plane: &Plane<'_, T>,
    mut tile: Tile<'_, T>,
) -> usize {
    let window = tile.window;
    let Size { width, height } = plane.size;
    let cols: Vec<Option<Side>> = (window.col..window.col + window.width)
        .map(|col| rulers.cols.side(col, width))
        .collect();
    let mut counts = Counts::new();
    let mut count = 0;
    for (row, out) in (window.row..).zip(&mut tile.rows) {
        let Some(row) = rulers.rows.side(row, height) else {
            continue;
        };
        let samples = cols.iter().map(|col| {
            let area = Area::new((*col)?, row);
            let sample = kernel.area(plane, &area, &mut counts)?;
            Some(keep(sample, plane.nodata))
        });
        count += put(out, samples);
    }
    count
}

impl Ruler {
    fn side(&self, index: u32, length: u32) -> Option<Side> {
        Side::of(self.at(index, 0.0), self.at(index, 1.0), length)
    }
}

/// Resamples a tile by interpolation or average, and returns the number of valid pixels.
pub(super) fn sums<T: Real>(
    kernel: &Kernel,
    rulers: &Rulers,
    plane: &Plane<'_, T>,
    tile: Tile<'_, T>,
) -> usize {
    // The narrower accumulator is faster, where it is precise enough.
    if kernel.takes_few() {
        summed::<T, T::Sum>(kernel, rulers, plane, tile)
    } else {
        summed::<T, f64>(kernel, rulers, plane, tile)
    }
}

/// Does what [`sums`] does, with accumulators of type `S`.
fn summed<T: Real, S: Sum>(
    kernel: &Kernel,
    rulers: &Rulers,
    plane: &Plane<'_, T>,
    mut tile: Tile<'_, T>,
) -> usize {
    let Window {
        col,
        row,
        width,
        height,
    } = tile.window;
    let cols = Axis::<S>::new(kernel, 0, &rulers.cols, col..col + width, plane);
    let rows = Axis::<S>::new(kernel, 1, &rulers.rows, row..row + height, plane);
    let reach = cols.reach();
    // Most tiles have no nodata: one check of the window saves counting nodata in each row.
    let is_whole = plane.is_whole(
        in_source(&reach, plane.window.col),
        in_source(&rows.reach(), plane.window.row),
    );
    let mut worker = Worker {
        kernel,
        rulers,
        plane,
        cols,
        sums: vec![S::ZERO; reach.len()],
        values: vec![S::ZERO; width as usize],
        nodata_counts: vec![0; reach.len()],
        reach,
        counts: Counts::new(),
    };
    let mut count = 0;
    for ((row, out), &taps) in (row..).zip(&mut tile.rows).zip(&rows.taps) {
        let weights = rows.weights.get(taps.weights()).unwrap_or_default();
        if taps.count > 0 {
            worker.sum_rows(taps, weights);
        }
        let is_whole = taps.count > 0 && (is_whole || worker.accumulate_nodata(taps) == 0);
        count += if is_whole && worker.cols.is_full {
            worker.whole_row(out)
        } else {
            worker.row([col, row], taps.count > 0, out)
        };
    }
    count
}

fn in_source(pixels: &Range<usize>, first: u32) -> Range<i64> {
    let pixel =
        |index: usize| i64::try_from(index).unwrap_or(i64::MAX - (1 << 32)) + i64::from(first);
    pixel(pixels.start)..pixel(pixels.end)
}

/// The taps of a target pixel along an axis: a range of pixels of the source window.
#[derive(Clone, Copy, Debug, Default)]
struct Taps {
    /// The first tap, counted from the window's first pixel.
    start: usize,
    /// The number of taps; 0 where one lies outside the window.
    count: usize,
    /// The index of the first weight.
    weights: usize,
}

impl Taps {
    fn end(&self) -> usize {
        self.start + self.count
    }

    fn weights(&self) -> Range<usize> {
        self.weights..self.weights + self.count
    }
}

/// The taps and weights of a range of target pixels along an axis.
struct Axis<S> {
    taps: Vec<Taps>,
    weights: Vec<S>,
    /// True if each pixel has its taps.
    is_full: bool,
    /// True if the taps of each pixel start one after those of the pixel before, with the same weights.
    is_sliding: bool,
}

impl<S: Sum> Axis<S> {
    fn new<T: Real>(
        kernel: &Kernel,
        axis: usize,
        ruler: &Ruler,
        pixels: Range<u32>,
        plane: &Plane<'_, T>,
    ) -> Self {
        let (first, count, length) = match axis {
            0 => (plane.window.col, plane.window.width, plane.size.width),
            _ => (plane.window.row, plane.window.height, plane.size.height),
        };
        let mut axis_taps = Self {
            taps: Vec::with_capacity(pixels.len()),
            weights: Vec::new(),
            is_full: true,
            is_sliding: false,
        };
        let narrow = !kernel.is_wide && !kernel.is_area();
        for index in pixels {
            let mut weighted: Vec<f64> = Vec::new();
            let start = if kernel.is_area() {
                ruler.side(index, length).map(|side| {
                    weighted.extend(side.pixels().map(|pixel| side.weight(pixel)));
                    side.pixels().start
                })
            } else if pixel(ruler.at(index, 0.5), length).is_none() {
                None
            } else if narrow {
                // Weights depend on the distance from the centre of a source pixel, half a pixel from its edge.
                let (start, part) = ruler.split(index, 0.5, -0.5);
                if kernel.resampling == Resampling::Cubic {
                    weighted.extend(weights::<f64, 4>(part));
                    Some(start - 1)
                } else {
                    weighted.extend(weights::<f64, 2>(part));
                    Some(start)
                }
            } else {
                let position = ruler.at(index, 0.5);
                let taps = kernel.taps(axis, position, length);
                weighted.extend(
                    taps.clone()
                        .map(|pixel| kernel.weight(axis, position, pixel)),
                );
                Some(taps.start)
            };
            axis_taps.push(start, &weighted, narrow, first, count);
        }
        axis_taps.is_sliding = narrow && ruler.is_same && axis_taps.is_full;
        axis_taps
    }

    /// Adds the taps of one target pixel.
    fn push(&mut self, start: Option<i64>, weighted: &[f64], narrow: bool, first: u32, count: u32) {
        let total: f64 = if narrow { 1.0 } else { weighted.iter().sum() };
        let start = start
            .and_then(|start| usize::try_from(start - i64::from(first)).ok())
            .filter(|start| start + weighted.len() <= count as usize)
            // The minimum weight is that of the kernel.
            .filter(|_| total > 1e-6 && !weighted.is_empty());
        let Some(start) = start else {
            self.is_full = false;
            self.taps.push(Taps::default());
            return;
        };
        self.taps.push(Taps {
            start,
            count: weighted.len(),
            weights: self.weights.len(),
        });
        // Weights are normalised once per column or row, not per pixel.
        let weighted = weighted.iter().map(|weight| S::of(weight / total));
        self.weights.extend(weighted);
    }

    /// Returns the range of the window's pixels that the taps cover.
    fn reach(&self) -> Range<usize> {
        let taken = || self.taps.iter().filter(|taps| taps.count > 0);
        let start = taken().map(|taps| taps.start).min().unwrap_or(0);
        let end = taken().map(Taps::end).max().unwrap_or(0);
        start..end
    }
}

/// Computes the rows of a tile, with buffers that are reused from row to row.
struct Worker<'a, T: Real, S> {
    kernel: &'a Kernel,
    rulers: &'a Rulers,
    plane: &'a Plane<'a, T>,
    cols: Axis<S>,
    /// The columns of the window that the taps cover.
    reach: Range<usize>,
    /// The weighted sum of the source rows of one target row.
    sums: Vec<S>,
    /// Prefix sums over the columns of the number of nodata pixels in these rows; zeros where the rows have none.
    nodata_counts: Vec<u32>,
    values: Vec<S>,
    counts: Counts<T>,
}

impl<T: Real, S: Sum> Worker<'_, T, S> {
    /// Writes a row whose taps are all valid.
    fn whole_row(&mut self, out: &mut [T]) -> usize {
        let first = self.reach.start;
        let (sums, cols, values) = (&self.sums, &self.cols, &mut self.values);
        match (cols.taps.first(), cols.is_sliding) {
            (Some(taps), true) => {
                let weights = cols.weights.get(taps.weights()).unwrap_or_default();
                let sums = sums.get(taps.start - first..).unwrap_or_default();
                // Arrays of constant length let the compiler unroll the sums.
                match *weights {
                    [a, b] => slide(sums, [a, b], values),
                    [a, b, c, d] => slide(sums, [a, b, c, d], values),
                    _ => {}
                }
            }
            _ if !self.kernel.is_wide && !self.kernel.is_area() => match self.kernel.resampling {
                Resampling::Cubic => sum_cols::<_, 4>(sums, cols, first, values),
                _ => sum_cols::<_, 2>(sums, cols, first, values),
            },
            _ => {
                for (value, taps) in values.iter_mut().zip(&cols.taps) {
                    *value = self::sum(sums, cols, first, taps);
                }
            }
        }
        for (slot, value) in out.iter_mut().zip(values.iter()) {
            *slot = value.sample();
        }
        beside(out, self.plane.nodata);
        out.len()
    }

    /// Writes a row, given the first column and the row on the target; pixels with a nodata tap are computed one
    /// by one.
    fn row(&mut self, [col, row]: [u32; 2], is_summed: bool, out: &mut [T]) -> usize {
        let first = self.reach.start;
        let mut count = 0;
        for ((col, slot), along) in (col..).zip(out).zip(&self.cols.taps) {
            let is_whole = is_summed && along.count > 0 && {
                // Equal prefix sums at both ends: no nodata pixel lies between them.
                let nodata_counts = |end: usize| match end.checked_sub(first + 1) {
                    Some(index) => self.nodata_counts.get(index).copied(),
                    None => Some(0),
                };
                nodata_counts(along.end()) == nodata_counts(along.start)
            };
            let sample = if is_whole {
                Some(self::sum(&self.sums, &self.cols, first, along).sample())
            } else {
                let at = [col, row];
                one(self.kernel, self.rulers, self.plane, &mut self.counts, at)
            };
            if let Some(sample) = sample {
                *slot = keep(sample, self.plane.nodata);
                count += 1;
            }
        }
        count
    }

    /// Computes the weighted sum of the source rows of one target row.
    fn sum_rows(&mut self, taps: Taps, weights: &[S]) {
        let rows = self.plane.rows.get(taps.start..taps.end());
        let rows: Vec<&[T]> = rows
            .unwrap_or_default()
            .iter()
            .filter_map(|row| row.get(self.reach.clone()))
            .collect();
        match (&rows[..], weights) {
            // Bilinear and cubic have two and four rows; widened kernels and areas take the loop.
            (&[a, b], &[p, q]) => add([a, b], [p, q], &mut self.sums),
            (&[a, b, c, d], &[p, q, r, s]) => add([a, b, c, d], [p, q, r, s], &mut self.sums),
            _ => {
                self.sums.fill(S::ZERO);
                for (row, &weight) in rows.iter().zip(weights) {
                    for (sum, &sample) in self.sums.iter_mut().zip(*row) {
                        *sum += S::of_sample(sample) * weight;
                    }
                }
            }
        }
    }

    /// Fills the prefix sums of nodata pixels over the columns of the tapped rows, and returns the total.
    fn accumulate_nodata(&mut self, taps: Taps) -> u32 {
        self.nodata_counts.fill(0);
        for row in taps.start..taps.end() {
            self.plane
                .count_nodata(row, &self.reach, &mut self.nodata_counts);
        }
        let mut total = 0;
        for count in &mut self.nodata_counts {
            total += *count;
            *count = total;
        }
        total
    }
}

/// Computes one pixel, given its column and row on the target.
fn one<T: Real>(
    kernel: &Kernel,
    rulers: &Rulers,
    plane: &Plane<'_, T>,
    counts: &mut Counts<T>,
    [col, row]: [u32; 2],
) -> Option<T> {
    if kernel.is_area() {
        let cols = rulers.cols.side(col, plane.size.width)?;
        let rows = rulers.rows.side(row, plane.size.height)?;
        return kernel.area(plane, &Area::new(cols, rows), counts);
    }
    let position = [rulers.cols.at(col, 0.5), rulers.rows.at(row, 0.5)];
    Some(T::of_f64(kernel.point(plane, position)?))
}

/// Computes the weighted sum of N rows.
fn add<T: Real, S: Sum, const N: usize>(rows: [&[T]; N], weights: [S; N], sums: &mut [S]) {
    let length = sums.len();
    // Slices of equal length let the compiler omit bounds checks in the loop.
    let rows = rows.map(|row| row.get(..length).unwrap_or_default());
    if rows.iter().any(|row| row.len() != length) {
        return;
    }
    for (i, sum) in sums.iter_mut().enumerate() {
        let mut total = S::ZERO;
        for (row, weight) in rows.iter().zip(weights) {
            total += S::of_sample(row[i]) * weight;
        }
        *sum = total;
    }
}

/// Computes the weighted sum of N neighbours for each pixel, with the same weights for all: a convolution.
fn slide<S: Sum, const N: usize>(sums: &[S], weights: [S; N], values: &mut [S]) {
    let length = values.len();
    let shifted: [&[S]; N] =
        std::array::from_fn(|shift| sums.get(shift..shift + length).unwrap_or_default());
    if shifted.iter().any(|sums| sums.len() != length) {
        return;
    }
    for (i, value) in values.iter_mut().enumerate() {
        let mut total = S::ZERO;
        for (sums, weight) in shifted.iter().zip(weights) {
            total += sums[i] * weight;
        }
        *value = total;
    }
}

/// Computes the weighted sum of N neighbours for each pixel, with weights of its own.
fn sum_cols<S: Sum, const N: usize>(sums: &[S], axis: &Axis<S>, first: usize, values: &mut [S]) {
    let (weights, _) = axis.weights.as_chunks::<N>();
    for ((value, taps), weights) in values.iter_mut().zip(&axis.taps).zip(weights) {
        let chunk = sums
            .get(taps.start - first..)
            .and_then(|sums| sums.first_chunk::<N>());
        if let Some(sums) = chunk {
            let mut total = S::ZERO;
            for (&sum, &weight) in sums.iter().zip(weights) {
                total += sum * weight;
            }
            *value = total;
        }
    }
}

fn sum<S: Sum>(sums: &[S], axis: &Axis<S>, first: usize, taps: &Taps) -> S {
    let weights = axis.weights.get(taps.weights()).unwrap_or_default();
    let sums = sums.get(taps.start - first..).unwrap_or_default();
    let mut total = S::ZERO;
    for (&sum, &weight) in sums.iter().zip(weights) {
        total += sum * weight;
    }
    total
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use crate::{
        geo::{Crs, GeoBox, Window},
        raster::Resampling,
        warp::{SourcePixels, Warp},
    };

    /// A sum of hundreds of large samples needs more than the 24 bits of an `f32`.
    #[test]
    fn what_is_the_same_everywhere_stays_it_over_large_areas() {
        const CONSTANT: u16 = 65_528;
        for (factor, resampling) in [
            (300.0, Resampling::Average),
            (500.0, Resampling::Average),
            (1000.0, Resampling::Average),
            (300.0, Resampling::Bilinear),
            (300.0, Resampling::Cubic),
        ] {
            let bounds = [0.0, 0.0, 2.0 * factor, 2.0 * factor];
            let from = GeoBox::of_bounds(Crs::Epsg(32755), bounds, 1.0).unwrap();
            let whole = Window::whole(from.size);
            let shape = (whole.height as usize, whole.width as usize);
            let pixels = Array2::from_elem(shape, CONSTANT);
            // Edge pixels covered by different fractions, and scales that are not integers.
            for (shift, stretch) in [(0.0, 1.0), (0.3, 1.0), (0.3, 0.997)] {
                let mut to = from.with_resolution(factor).unwrap();
                if let Some(transform) = &mut to.transform {
                    transform.0[0] += shift;
                    transform.0[1] *= stretch;
                }
                let mut mask = Array2::from_elem(shape, true);
                for has_hole in [false, true] {
                    mask[(3, 5)] = !has_hole;
                    let source = SourcePixels {
                        pixels: pixels.view(),
                        window: whole,
                        nodata: None,
                        mask: Some(mask.view()),
                    };
                    let warp = Warp::new(&from, &to, resampling, 0.125).unwrap();
                    let mut out = Array2::from_elem((2, 2), 0_u16);
                    let count = warp
                        .resample(&source, &Window::whole(to.size), out.view_mut())
                        .unwrap();
                    assert_eq!(count, 4);
                    assert_eq!(out, Array2::from_elem((2, 2), CONSTANT), "{factor} {shift}");
                }
            }
        }
    }
}
