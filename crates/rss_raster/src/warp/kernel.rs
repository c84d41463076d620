//! Resampling kernels: which source pixels a target pixel is computed from, and their weights, as in gdalwarp.
//!
//! The functions here are the reference: they work at every position, near edges and nodata too, one pixel at a
//! time. The fast code paths for windows without nodata must agree with them.

use std::{cmp::Ordering, collections::HashMap, f64::consts::PI, ops::Range};

use super::{
    plane::{EDGE, Plane, floor},
    sample::{BINS, Real, Sum},
};
use crate::raster::Resampling;

/// The largest scale, in source pixels per target pixel, at which a kernel of 2 x 2 or 4 x 4 pixels is used.
/// Beyond it the kernel is widened by the scale, so that no source pixel is left out. 0.95 is gdalwarp's threshold.
const NARROW: f64 = 1.0 / 0.95;
/// How near to an integer a scale must be to be rounded to it, as in gdalwarp.
const WHOLE: f64 = 0.05;
/// The largest number of taps along an axis for sums in `f32`: with these the error is less than a twentieth of
/// a unit of a 16-bit sample. With weights of halves, quarters or eighths the sum is exact, so ties round as in
/// `f64`.
const FEW: f64 = 4.0;
/// The minimum sum of weights of a valid pixel: division by a smaller one would amplify rounding errors.
const MIN_WEIGHT: f64 = 1e-6;

/// A resampling method at a scale.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    pub(super) resampling: Resampling,
    /// The factors by which the kernel is wider than 2 x 2 or 4 x 4, along columns and rows; at least 1.
    pub(super) steps: [f64; 2],
    /// True if the kernel is widened, or its weights are normalised at each position: its taps are found one by one.
    pub(super) is_wide: bool,
}

impl Kernel {
    /// Creates a kernel for a target pixel of `scales` source pixels, along the columns and rows of the source.
    pub(super) fn new(resampling: Resampling, scales: [f64; 2]) -> Self {
        let scales = scales.map(|scale| {
            let whole = scale.round();
            let near = scale > 1.0 && (scale - whole).abs() < WHOLE;
            if near { whole } else { scale }
        });
        // One axis beyond the limit selects the general kernel for both.
        let widens = scales.iter().any(|scale| *scale > NARROW);
        let steps = scales.map(|scale| if widens { scale.max(1.0) } else { 1.0 });
        let is_wide = widens || resampling.is_normalised();
        Self {
            resampling,
            steps,
            is_wide,
        }
    }

    /// Returns true if the method aggregates all source pixels that the target pixel covers.
    pub(super) fn is_area(&self) -> bool {
        self.resampling.is_area()
    }

    /// Returns the offsets in a target pixel, right and down, of the points whose positions are needed: the centre, or
    /// two or all corners, from the top left to the bottom right one.
    pub(super) fn offsets(&self) -> &'static [[f64; 2]] {
        match self.resampling {
            Resampling::Sum => &CORNERS,
            _ if self.is_area() => &[[0.0; 2], [1.0; 2]],
            _ => &[[0.5; 2]],
        }
    }

    /// Returns true if a pixel has so few taps that [`Real::Sum`] is precise enough for their sum.
    pub(super) fn takes_few(&self) -> bool {
        !self.resampling.is_normalised()
            && (0..2).all(|axis| {
                let most = if self.is_area() {
                    self.steps[axis] + 1.0
                } else {
                    2.0 * self.radius(axis)
                };
                most <= FEW
            })
    }

    /// Returns the radius of the kernel along an axis, in source pixels.
    fn radius(&self, axis: usize) -> f64 {
        let radius = match self.resampling {
            Resampling::Cubic | Resampling::CubicSpline => 2.0,
            Resampling::Lanczos => 3.0,
            _ => 1.0,
        };
        radius * self.steps[axis]
    }

    /// Returns the range of source pixels along an axis that positions from `min` to `max` need, of the `length`
    /// there are; none if they lie outside.
    pub(super) fn span(&self, axis: usize, min: f64, max: f64, length: u32) -> Option<Range<i64>> {
        let end = f64::from(length);
        // Negated, so that NaN counts as outside.
        if !(max > -EDGE && min < end + EDGE) {
            return None;
        }
        let (low, high) = if self.is_area() {
            ((min + EDGE).floor(), (max - EDGE).ceil())
        } else {
            let (low, high) = (min.max(0.0), max.min(end));
            match self.resampling {
                Resampling::Nearest => ((low + EDGE).floor(), (high + EDGE).floor() + 1.0),
                _ if self.is_wide => {
                    let radius = self.radius(axis);
                    // The pixel that contains the position is read too: where it is nodata, so is the result.
                    let first = (low - 0.5 - radius).floor() + 1.0;
                    let last = (high - 0.5 + radius).ceil() - 1.0;
                    (
                        first.min((low + EDGE).floor()),
                        last.max((high + EDGE).floor()) + 1.0,
                    )
                }
                // Pixel centres are at halves, hence the 0.5.
                Resampling::Cubic => ((low - 0.5).floor() - 1.0, (high - 0.5).floor() + 3.0),
                _ => ((low - 0.5).floor(), (high - 0.5).floor() + 2.0),
            }
        };
        let (first, last) = (floor(low.max(0.0)), floor(high.min(end)));
        // A position on the last edge belongs to the last pixel.
        let first = first.min(i64::from(length) - 1);
        Some(first..last.max(first + 1))
    }

    /// Returns the taps of a widened kernel along an axis, of the `length` pixels there are.
    pub(super) fn taps(&self, axis: usize, position: f64, length: u32) -> Range<i64> {
        let radius = self.radius(axis);
        let first = floor(position - 0.5 - radius) + 1;
        let end = -floor(0.5 - radius - position);
        first.max(0)..end.min(i64::from(length))
    }

    /// Returns the weight of the pixel `index` for a position.
    pub(super) fn weight(&self, axis: usize, position: f64, index: i64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "within 33 bits")]
        let x = ((index as f64 - (position - 0.5)) / self.steps[axis]).abs();
        match self.resampling {
            // Cubic convolution with a = -0.5 (Catmull-Rom), as in GDAL.
            Resampling::Cubic if x < 1.0 => x * x * (1.5 * x - 2.5) + 1.0,
            Resampling::Cubic if x < 2.0 => x * (x * (2.5 - 0.5 * x) - 4.0) + 2.0,
            Resampling::Cubic => 0.0,
            // The cubic B-spline: positive everywhere, so that it smooths and never overshoots.
            Resampling::CubicSpline if x < 1.0 => (x * x * (3.0 * x - 6.0) + 4.0) / 6.0,
            Resampling::CubicSpline => (2.0 - x).max(0.0).powi(3) / 6.0,
            Resampling::Lanczos => lanczos(x),
            _ => (1.0 - x).max(0.0),
        }
    }

    /// Interpolates at a position.
    ///
    /// Returns none where the source pixel that contains the position is nodata. Near edges and nodata the weights
    /// of the valid pixels are normalised; 4 x 4 cubic falls back to 2 x 2.
    pub(super) fn point<T: Real>(&self, plane: &Plane<'_, T>, position: [f64; 2]) -> Option<f64> {
        plane.at(position)?;
        if self.is_wide {
            return self.wide(plane, position);
        }
        if self.resampling == Resampling::Cubic
            && let Some([sum, _]) = self.narrow::<T, 4>(plane, position)
        {
            return Some(sum);
        }
        let [sum, weight] = self.narrow::<T, 2>(plane, position)?;
        (weight > MIN_WEIGHT).then(|| sum / weight)
    }

    /// Returns the sum of weighted samples and the sum of weights of N x N pixels; none for 4 x 4 if one is
    /// nodata.
    fn narrow<T: Real, const N: usize>(
        &self,
        plane: &Plane<'_, T>,
        position: [f64; 2],
    ) -> Option<[f64; 2]> {
        let [x, y] = position.map(|position| (position - 0.5).floor());
        let cols = weights::<f64, N>(position[0] - 0.5 - x);
        let rows = weights::<f64, N>(position[1] - 0.5 - y);
        let before = i64::from(N > 2);
        let (left, top) = (floor(x) - before, floor(y) - before);
        let (mut sum, mut total) = (0.0, 0.0);
        for (row, down) in (top..).zip(rows) {
            for (col, along) in (left..).zip(cols) {
                let weight = along * down;
                match plane.get(col, row) {
                    Some(sample) => {
                        sum += sample.f64() * weight;
                        total += weight;
                    }
                    None if N > 2 => return None,
                    None => {}
                }
            }
        }
        Some([sum, total])
    }

    fn wide<T: Real>(&self, plane: &Plane<'_, T>, position: [f64; 2]) -> Option<f64> {
        let cols = self.taps(0, position[0], plane.size.width);
        let rows = self.taps(1, position[1], plane.size.height);
        let first = cols.start;
        let all = cols.clone().count() * rows.clone().count();
        let mut count = 0;
        // The column weights are the same in each row.
        let weights: Vec<f64> = cols.map(|col| self.weight(0, position[0], col)).collect();
        let (mut sum, mut total) = (0.0, 0.0);
        for row in rows {
            let down = self.weight(1, position[1], row);
            let (mut line, mut line_total) = (0.0, 0.0);
            for (col, weight) in (first..).zip(&weights) {
                if let Some(sample) = plane.get(col, row) {
                    line += sample.f64() * weight;
                    line_total += weight;
                    count += 1;
                }
            }
            sum += line * down;
            total += line_total * down;
        }
        // Negative lobes without what they balance extrapolate: as in gdalwarp half of the pixels must be valid.
        let is_enough = self.resampling != Resampling::Lanczos || count * 2 >= all;
        (is_enough && total > MIN_WEIGHT).then(|| sum / total)
    }

    /// Aggregates the samples of an area.
    pub(super) fn area<T: Real>(
        &self,
        plane: &Plane<'_, T>,
        area: &Area,
        counts: &mut Counts<T>,
    ) -> Option<T> {
        match self.resampling {
            Resampling::Min => area.best(plane, |a, b| a < b),
            Resampling::Max => area.best(plane, |a, b| a > b),
            Resampling::Mode => area.mode(plane, counts),
            Resampling::Q1 => area.quartile(plane, 1, counts),
            Resampling::Median => area.quartile(plane, 2, counts),
            Resampling::Q3 => area.quartile(plane, 3, counts),
            Resampling::Rms => area.rms(plane),
            Resampling::Sum => area.sum(plane),
            _ => area.average(plane),
        }
    }
}

/// The offsets of the corners of a pixel, right and down.
pub(super) const CORNERS: [[f64; 2]; 4] = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]];

/// Returns the weight at a distance of the windowed sinc with three lobes, as in GDAL.
fn lanczos(x: f64) -> f64 {
    let angle = PI * x;
    match x {
        _ if x < 1e-9 => 1.0,
        _ if x < 3.0 => 3.0 * angle.sin() * (angle / 3.0).sin() / (angle * angle),
        _ => 0.0,
    }
}

/// Returns the weights of 2 or 4 pixels for a position that lies `part` beyond the centre of the first of 2, or
/// the second of 4.
#[inline(always)]
pub(super) fn weights<S: Sum, const N: usize>(part: S) -> [S; N] {
    let number = |number: f64| S::of(number);
    let mut weights = [S::ZERO; N];
    match &mut weights[..] {
        [a, b] => {
            *a = number(1.0) - part;
            *b = part;
        }
        [a, b, c, d] => {
            let half = part * number(0.5);
            *a = half * (part * (number(2.0) - part) - number(1.0));
            *b = half * part * (part * number(3.0) - number(5.0)) + number(1.0);
            *c = half * (part * (number(4.0) - part * number(3.0)) + number(1.0));
            *d = half * part * (part - number(1.0));
        }
        _ => {}
    }
    weights
}

/// The source pixels between two corners of a target pixel.
///
/// The corners are the top left and the bottom right one, and the area is the axis-aligned rectangle between them.
/// gdalwarp does the same, also for a rotated pixel, whose true area is another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    cols: Side,
    rows: Side,
}

/// An area along one axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    first: i64,
    end: i64,
    low: f64,
    high: f64,
}

impl Side {
    /// Returns the pixels between two positions, of the `length` there are; none if they lie outside.
    pub(super) fn of(a: f64, b: f64, length: u32) -> Option<Self> {
        let (low, high) = (a.min(b), a.max(b));
        // Negated, so that NaN counts as outside.
        if !(high > -EDGE && low < f64::from(length) + EDGE) {
            return None;
        }
        let first = floor(low + EDGE).max(0);
        let end = (-floor(EDGE - high)).min(i64::from(length));
        // A target pixel of no extent still lies in one source pixel.
        let end = if first == end && end < i64::from(length) {
            end + 1
        } else {
            end
        };
        (first < end).then_some(Self {
            first,
            end,
            low,
            high,
        })
    }

    pub(super) fn pixels(&self) -> Range<i64> {
        self.first..self.end
    }

    /// Returns the fraction of a pixel that is covered; 1 if there is a single pixel.
    pub(super) fn weight(&self, pixel: i64) -> f64 {
        // A target pixel of no extent covers a fraction of 0, but still takes the value.
        if self.end - self.first == 1 {
            return 1.0;
        }
        self.covered(pixel)
    }

    /// Returns the fraction of a pixel that is covered.
    fn covered(&self, pixel: i64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "within 33 bits")]
        let at = pixel as f64;
        (self.high.min(at + 1.0) - self.low.max(at)).clamp(0.0, 1.0)
    }
}

impl Area {
    pub(super) fn new(cols: Side, rows: Side) -> Self {
        Self { cols, rows }
    }

    /// Returns the area between two positions, column then row.
    pub(super) fn between<T: Real>(plane: &Plane<'_, T>, a: [f64; 2], b: [f64; 2]) -> Option<Self> {
        Some(Self {
            cols: Side::of(a[0], b[0], plane.size.width)?,
            rows: Side::of(a[1], b[1], plane.size.height)?,
        })
    }

    fn samples<T: Real>(&self, plane: &Plane<'_, T>, mut each: impl FnMut(T)) {
        let cols = self.cols.pixels();
        for row in self.rows.pixels() {
            match plane.run(&cols, row) {
                (samples, None) => {
                    for &sample in samples.iter().filter(|sample| plane.is_data(**sample)) {
                        each(sample);
                    }
                }
                (samples, Some(mask)) => {
                    for (&sample, _) in samples.iter().zip(mask).filter(|(_, is_valid)| **is_valid)
                    {
                        if plane.is_data(sample) {
                            each(sample);
                        }
                    }
                }
            }
        }
    }

    fn best<T: Real>(&self, plane: &Plane<'_, T>, better: impl Fn(T, T) -> bool) -> Option<T> {
        let mut best = None;
        self.samples(plane, |sample| match best {
            Some(known) if !better(sample, known) => {}
            _ => best = Some(sample),
        });
        best
    }

    /// Returns the mean of the valid pixels, weighted by the fraction of each that is covered.
    fn average<T: Real>(&self, plane: &Plane<'_, T>) -> Option<T> {
        let [sum, total] = self.weighted(plane, Side::weight, T::f64);
        (total > 0.0).then(|| T::of_f64(sum / total))
    }

    /// Returns the root of the mean of the squares of the valid pixels, weighted as by [`average`](Self::average).
    fn rms<T: Real>(&self, plane: &Plane<'_, T>) -> Option<T> {
        let square = |sample: T| sample.f64() * sample.f64();
        let [sum, total] = self.weighted(plane, Side::weight, square);
        (total > 0.0).then(|| T::of_f64((sum / total).sqrt()))
    }

    /// Returns the sum of the valid pixels, each by the fraction of it that is covered.
    fn sum<T: Real>(&self, plane: &Plane<'_, T>) -> Option<T> {
        let [sum, total] = self.weighted(plane, Side::covered, T::f64);
        (total > 0.0).then(|| T::of_f64(sum))
    }

    /// Returns the sums of the weighted values of the valid pixels, and of their weights.
    #[inline(always)]
    fn weighted<T: Real>(
        &self,
        plane: &Plane<'_, T>,
        weight: impl Fn(&Side, i64) -> f64,
        value: impl Fn(T) -> f64,
    ) -> [f64; 2] {
        let cols = self.cols.pixels();
        // Only the first and the last column may be covered partly.
        let first = weight(&self.cols, cols.start);
        let last = weight(&self.cols, cols.end - 1);
        let end = self.cols.end - self.cols.first - 1;
        let (mut sum, mut total) = (0.0, 0.0);
        for row in self.rows.pixels() {
            let down = weight(&self.rows, row);
            let (mut line, mut line_total) = (0.0, 0.0);
            let (samples, mask) = plane.run(&cols, row);
            for (col, &sample) in (0..).zip(samples) {
                let is_valid = mask.is_none_or(|mask| {
                    let col = usize::try_from(col).ok();
                    col.and_then(|col| mask.get(col))
                        .is_some_and(|&is_valid| is_valid)
                });
                if is_valid && plane.is_data(sample) {
                    let weight = match col {
                        0 => first,
                        _ if col == end => last,
                        _ => 1.0,
                    };
                    line += value(sample) * weight;
                    line_total += weight;
                }
            }
            sum += line * down;
            total += line_total * down;
        }
        [sum, total]
    }

    /// Returns the smallest of the valid samples that at least so many quarters of them do not exceed, as gdalwarp
    /// does: of an even number the median is the lower one of the middle.
    fn quartile<T: Real>(
        &self,
        plane: &Plane<'_, T>,
        quarters: usize,
        counts: &mut Counts<T>,
    ) -> Option<T> {
        let all = &mut counts.all;
        all.clear();
        self.samples(plane, |sample| all.push(sample));
        let index = (all.len() * quarters).div_ceil(4).checked_sub(1)?;
        let order = |a: &T, b: &T| a.partial_cmp(b).unwrap_or(Ordering::Equal);
        Some(*all.select_nth_unstable_by(index, order).1)
    }

    /// Returns the most frequent sample; of several, the one that reaches the count first in row order.
    fn mode<T: Real>(&self, plane: &Plane<'_, T>, counts: &mut Counts<T>) -> Option<T> {
        let mut most = 0;
        let mut mode = None;
        self.samples(plane, |sample| {
            let count = counts.add(sample);
            if count > most {
                most = count;
                mode = Some(sample);
            }
        });
        counts.clear();
        mode
    }
}

/// A histogram and a list of samples, reused from pixel to pixel.
#[derive(Debug)]
pub(super) struct Counts<T> {
    /// Counts of samples of 8 and 16 bits, by [`Real::bin`].
    bins: Vec<u32>,
    /// The bins that are not zero: only these are cleared.
    used: Vec<usize>,
    /// Counts of other samples, by [`Real::bits`].
    others: HashMap<u64, u32>,
    /// The samples of one pixel, for quartiles.
    all: Vec<T>,
}

impl<T: Real> Counts<T> {
    pub(super) fn new() -> Self {
        Self {
            bins: Vec::new(),
            used: Vec::new(),
            others: HashMap::new(),
            all: Vec::new(),
        }
    }

    /// Counts a sample, and returns its count.
    fn add(&mut self, sample: T) -> u32 {
        let Some(bin) = sample.bin() else {
            let count = self.others.entry(sample.bits()).or_insert(0);
            *count += 1;
            return *count;
        };
        // Allocated on first use: only mode counts.
        if self.bins.is_empty() {
            self.bins = vec![0; BINS];
        }
        let Some(count) = self.bins.get_mut(bin) else {
            return 0;
        };
        *count += 1;
        if *count == 1 {
            self.used.push(bin);
        }
        *count
    }

    fn clear(&mut self) {
        // Clearing all bins for each target pixel would cost more than counting.
        for bin in self.used.drain(..) {
            if let Some(count) = self.bins.get_mut(bin) {
                *count = 0;
            }
        }
        self.others.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::geo::{Size, Window};

    #[test]
    fn a_kernel_widens_as_gdalwarp_does() {
        let kernel = |scale: f64| Kernel::new(Resampling::Bilinear, [scale, 1.0]);
        for (scale, is_wide, step) in [
            (0.5, false, 1.0),
            (1.049, false, 1.0),
            (1.052, false, 1.0),
            (1.06, true, 1.06),
            (1.96, true, 2.0),
            (2.04, true, 2.0),
            (3.7, true, 3.7),
        ] {
            let made = kernel(scale);
            assert_eq!((made.is_wide, made.steps[0]), (is_wide, step), "{scale}");
            assert_eq!(made.steps[1], 1.0);
        }
    }

    #[test]
    fn an_area_counts_a_pixel_by_what_it_covers() {
        let side = Side::of(1.25, 3.5, 10).unwrap();
        let weights: Vec<f64> = side.pixels().map(|pixel| side.weight(pixel)).collect();
        assert_eq!(weights, [0.75, 1.0, 0.5]);
        assert_eq!(Side::of(2.0, 2.0, 10).unwrap().pixels(), 2..3);
        assert_eq!(Side::of(-2.0, 0.5, 10).unwrap().pixels(), 0..1);
        assert_eq!(Side::of(12.0, 9.5, 10).unwrap().pixels(), 9..10);
        assert!(Side::of(-2.0, -1.0, 10).is_none());
        assert!(Side::of(11.0, 12.0, 10).is_none());
        assert!(Side::of(f64::NAN, 12.0, 10).is_none());
    }

    fn mode<T: Real>(samples: &[T], width: u32) -> Option<T> {
        aggregated(samples, width, Resampling::Mode)
    }

    /// Returns the statistic of all samples.
    fn aggregated<T: Real>(samples: &[T], width: u32, method: Resampling) -> Option<T> {
        let rows: Vec<&[T]> = samples.chunks(width as usize).collect();
        let size = Size {
            width,
            height: u32::try_from(rows.len()).unwrap(),
        };
        let plane = Plane {
            rows: &rows,
            mask: None,
            nodata: None,
            window: Window::whole(size),
            size,
        };
        let ends = [size.width, size.height].map(f64::from);
        let area = Area::between(&plane, [0.0, 0.0], ends).unwrap();
        let kernel = Kernel::new(method, ends);
        kernel.area(&plane, &area, &mut Counts::new())
    }

    #[test]
    fn of_several_modes_the_one_that_comes_to_be_it_first_is_taken() {
        assert_eq!(mode(&[7_u32, 5, 5, 7], 2), Some(5));
        assert_eq!(mode(&[7_u8, 5, 5, 7], 2), Some(5));
        assert_eq!(mode(&[-9_i64, 5, 5, -9, -9, 4], 3), Some(-9));
        assert_eq!(mode(&[1.5_f32, f32::NAN, f32::NAN, 2.5], 2), Some(1.5));
        // -0.0 equals 0.0.
        assert_eq!(mode(&[3.0_f64, 3.0, 0.0, -0.0, -0.0, 4.0], 3), Some(0.0));
    }

    /// A million distinct samples: a linear search among those before would take minutes.
    #[test]
    fn a_mode_of_many_samples_takes_no_longer_for_each() {
        let mut samples: Vec<u32> = (0..1 << 20).collect();
        samples[1 << 19] = 77;
        assert_eq!(mode(&samples, 1 << 10), Some(77));
    }

    #[test]
    fn a_spline_and_a_windowed_sinc_weigh_by_their_formulas() {
        let spline = Kernel::new(Resampling::CubicSpline, [1.0; 2]);
        let sinc = Kernel::new(Resampling::Lanczos, [1.0, 2.0]);
        // Of a pixel so far from the position; the second axis shrinks by two.
        for (distance, by_spline, by_sinc) in [
            (0.0, 2.0 / 3.0, 1.0),
            (0.5, 23.0 / 48.0, 6.0 / PI.powi(2)),
            (1.0, 1.0 / 6.0, 0.0),
            (1.5, 1.0 / 48.0, -4.0 / 3.0 / PI.powi(2)),
            (2.0, 0.0, 0.0),
            (2.5, 0.0, 6.0 / (5.0 * PI).powi(2)),
            (3.0, 0.0, 0.0),
            (7.0, 0.0, 0.0),
        ] {
            let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-15, "{distance}: {a} {b}");
            near(spline.weight(0, 10.5 + distance, 10), by_spline);
            near(sinc.weight(0, 10.5 - distance, 10), by_sinc);
            near(sinc.weight(1, 10.5 - 2.0 * distance, 10), by_sinc);
        }
    }

    /// By the index that gdalwarp takes: ceil(share * count - 1) of the samples in order.
    #[test]
    fn a_quartile_is_a_sample() {
        for (count, expected) in [
            (1, [0, 0, 0]),
            (2, [0, 0, 1]),
            (3, [0, 1, 2]),
            (4, [0, 1, 2]),
            (5, [1, 2, 3]),
            (8, [1, 3, 5]),
            (9, [2, 4, 6]),
        ] {
            let samples: Vec<i32> = (0..count).rev().collect();
            let methods = [Resampling::Q1, Resampling::Median, Resampling::Q3];
            let found = methods.map(|method| aggregated(&samples, count as u32, method).unwrap());
            assert_eq!(found, expected, "{count}");
        }
        assert_eq!(aggregated(&[f32::NAN], 1, Resampling::Q1), None);
        let root = aggregated(&[-3.0_f64, f64::NAN, 4.0], 3, Resampling::Rms);
        assert_eq!(root, Some(12.5_f64.sqrt()));
        assert_eq!(aggregated(&[7_u8, 249], 2, Resampling::Sum), Some(255));
    }

    proptest! {
        #[test]
        fn weights_sum_to_one_and_agree_with_their_formula(part in 0.0..1.0_f64) {
            let four = weights::<f64, 4>(part);
            let two = weights::<f64, 2>(part);
            prop_assert!((four.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            let cubic = Kernel::new(Resampling::Cubic, [1.0; 2]);
            let linear = Kernel::new(Resampling::Bilinear, [1.0; 2]);
            for (index, weight) in (-1..).zip(four) {
                prop_assert!((cubic.weight(0, part + 0.5, index) - weight).abs() < 1e-12);
            }
            for (index, weight) in (0..).zip(two) {
                prop_assert!((linear.weight(0, part + 0.5, index) - weight).abs() < 1e-12);
            }
        }
    }
}
