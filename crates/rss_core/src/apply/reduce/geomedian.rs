//! The geometric median of all bands at once.

mod exact;

use std::ops::{Add, Div, Mul, Sub};

use ndarray::{Array3, ArrayView4, Axis, CowArray, Ix4};
use rayon::prelude::*;

use self::exact::Exact;
use crate::error::{Error, ErrorKind, Result};

/// The point with the minimum sum of distances to all observations of a pixel: a median that treats the bands of
/// a pixel as one vector, as DEA's geomedians
/// ([Roberts, Mueller and McIntyre 2017](https://doi.org/10.1109/TGRS.2017.2723896)).
///
/// Computed by Weiszfeld's iteration from the mean, with the step of
/// [Vardi and Zhang (2000)](https://doi.org/10.1073/pnas.97.4.1423) where it reaches an observation, and from there in
/// `f64` by Newton's method, to a millionth of the spread of the observations. Where an observation is the optimum, the
/// result is that observation, bit for bit. An observation, the bands of one time step, counts only if all of its bands
/// are finite. The median of one observation is itself, that of two is their mean.
///
/// ```
/// use ndarray::arr2;
/// use rss_core::apply::reduce::Geomedian;
///
/// // Three dates of two bands of one pixel; one of them is far off.
/// let dates = arr2(&[[0.1_f32, 0.4], [0.1, 0.4], [0.9, 0.9]]);
/// let stack = dates.into_shape_with_order((3, 2, 1, 1)).unwrap();
/// let median = Geomedian::default().of(stack.view())?;
/// assert!((median[(0, 0, 0)] - 0.1).abs() < 1e-3);
/// # Ok::<_, rss_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Geomedian {
    /// Weiszfeld's iteration of a pixel ends, and Newton's begins, with a step shorter than this share of the root mean
    /// square distance of its observations from their mean, over all bands. It decides over time, not over the result.
    pub tolerance: f32,
    /// The most of Weiszfeld's iterations of a pixel.
    pub max_iterations: usize,
}

impl Default for Geomedian {
    fn default() -> Self {
        Self {
            tolerance: 1e-2,
            max_iterations: 200,
        }
    }
}

impl Geomedian {
    /// Sets the tolerance, as a share of the spread; 0 or more.
    #[must_use]
    pub fn with_tolerance(mut self, tolerance: f32) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Sets the most of Weiszfeld's iterations.
    #[must_use]
    pub fn with_max_iterations(mut self, steps: usize) -> Self {
        self.max_iterations = steps;
        self
    }

    /// Returns the geometric median (band, y, x) of a stack (time, band, y, x) with NaN as nodata; NaN in all bands
    /// if no time step has all of them.
    ///
    /// Rows are processed in parallel by rayon. A pixel's result does not depend on its neighbours.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the stack has no time steps or no bands.
    pub fn of(&self, stack: ArrayView4<'_, f32>) -> Result<Array3<f32>> {
        self.medians(stack)
    }

    /// Does what [`of`](Self::of) does, in `float64`: of samples of 32 bits or more, which `float32` would round.
    ///
    /// # Errors
    ///
    /// As [`of`](Self::of).
    pub fn of_wide(&self, stack: ArrayView4<'_, f64>) -> Result<Array3<f64>> {
        self.medians(stack)
    }

    fn medians<T: Float>(&self, stack: ArrayView4<'_, T>) -> Result<Array3<T>> {
        let (dates, bands, height, width) = stack.dim();
        if dates == 0 || bands == 0 {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "geomedian of {dates} time steps and {bands} bands; expected at least one of each"
                ),
            ));
        }
        // Computed as (y, band, x), so that each task writes a contiguous slice; transposed at the end.
        let mut rows = Array3::from_elem((height, bands, width), T::NAN);
        let stack: CowArray<'_, T, Ix4> = match width <= 1 || stack.strides()[3] == 1 {
            true => stack.into(),
            false => stack.as_standard_layout().into_owned().into(),
        };
        if let Some(samples) = rows.as_slice_mut().filter(|samples| !samples.is_empty()) {
            let tasks = samples.par_chunks_mut(bands * width).enumerate();
            tasks.for_each_init(
                || Room::<T>::new(dates, bands),
                |room, (y, out)| {
                    let row = stack.view().index_axis_move(Axis(2), y);
                    for start in (0..width).step_by(LANES) {
                        let len = LANES.min(width - start);
                        for date in 0..dates {
                            for band in 0..bands {
                                let row = row.index_axis_move(Axis(0), date);
                                let row = row.index_axis_move(Axis(0), band).to_slice();
                                let lane = &mut room.samples[date * bands + band];
                                lane.fill(T::NAN);
                                if let Some(row) = row {
                                    lane[..len].copy_from_slice(&row[start..start + len]);
                                }
                            }
                        }
                        room.settle(self);
                        for (band, out) in out.chunks_mut(width).enumerate() {
                            out[start..start + len].copy_from_slice(&room.found[band][..len]);
                        }
                    }
                },
            );
        }
        Ok(rows
            .permuted_axes([1, 0, 2])
            .as_standard_layout()
            .into_owned())
    }
}

/// Pixels that are processed together, in vector registers.
const LANES: usize = 16;

/// One value of each of these pixels.
type Lane<T> = [T; LANES];

fn lane<T>(of: impl FnMut(usize) -> T) -> Lane<T> {
    std::array::from_fn(of)
}

/// The type that observations are in, and Weiszfeld's iteration is computed in.
trait Float:
    Copy
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
    const NAN: Self;
    const ZERO: Self;
    const ONE: Self;
    const INFINITY: Self;
    fn of(number: f64) -> Self;
    fn f64(self) -> f64;
    fn of_f32(number: f32) -> Self;
    fn is_finite(self) -> bool;
    fn sqrt(self) -> Self;
    /// Returns the lesser of two; of one and NaN that one.
    fn min(self, other: Self) -> Self;
    fn squared(self) -> Self {
        self * self
    }
}

macro_rules! floats {
    ($($type:ty),*) => {$(
        #[expect(clippy::allow_attributes, reason = "one macro for both types")]
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_lossless,
            clippy::unnecessary_cast,
            reason = "one of the types is the same already; medians of f32 are f32"
        )]
        impl Float for $type {
            const NAN: Self = Self::NAN;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const INFINITY: Self = Self::INFINITY;

            #[inline(always)]
            fn of(number: f64) -> Self {
                number as $type
            }

            #[inline(always)]
            fn f64(self) -> f64 {
                self as f64
            }

            #[inline(always)]
            fn of_f32(number: f32) -> Self {
                number as $type
            }

            #[inline(always)]
            fn is_finite(self) -> bool {
                self.is_finite()
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                self.sqrt()
            }

            #[inline(always)]
            fn min(self, other: Self) -> Self {
                self.min(other)
            }
        }
    )*};
}
floats!(f32, f64);

/// The share of the spread within which (or within the tolerance) a point coincides with an observation. Weiszfeld's
/// weights, 1 / distance, are infinite there.
const AT: f32 = 1e-6;

/// The iteration continues if the squared step exceeds this share of the squared distance to the nearest observation:
/// a step of a hundredth of the distance.
const LEAVES: f32 = 1e-4;

/// The observations of some pixels.
struct Room<T> {
    bands: usize,
    /// The bands of each time step.
    samples: Vec<Lane<T>>,
    /// The same as they came.
    raw: Vec<Lane<T>>,
    /// One of the pixels, for the last part.
    exact: Exact,
    /// 1 for each time step with all bands finite, else 0.
    counts: Vec<Lane<T>>,
    /// The mean of each band, the origin of the computation: differences from it are small, so `f32` is enough.
    centre: Vec<Lane<T>>,
    /// The current estimate of the median.
    found: Vec<Lane<T>>,
    /// Weighted sums of each band.
    sums: Vec<Lane<T>>,
}

impl<T: Float> Room<T> {
    fn new(dates: usize, bands: usize) -> Self {
        let of_bands = vec![[T::ZERO; LANES]; bands];
        Self {
            bands,
            samples: vec![[T::ZERO; LANES]; dates * bands],
            raw: vec![[T::ZERO; LANES]; dates * bands],
            exact: Exact::new(bands),
            counts: vec![[T::ZERO; LANES]; dates],
            centre: of_bands.clone(),
            found: of_bands.clone(),
            sums: of_bands,
        }
    }

    /// Iterates until the medians of all pixels have converged.
    fn settle(&mut self, how: &Geomedian) {
        self.raw.copy_from_slice(&self.samples);
        let (total, spread) = self.centre();
        self.found.fill([T::ZERO; LANES]);
        // For one or two observations the mean is a median. Without spread it is, too.
        let two = T::of(2.0);
        let mut active = lane(|l| match total[l] > two && spread[l] > T::ZERO {
            true => T::ONE,
            false => T::ZERO,
        });
        let tolerance = T::of_f32(how.tolerance);
        let nearest = T::of_f32(how.tolerance.max(AT));
        let near = spread.map(|spread| (nearest * spread).squared());
        let short = spread.map(|spread| (tolerance * spread).squared());
        for _ in 0..how.max_iterations {
            if active.iter().all(|&active| active == T::ZERO) {
                break;
            }
            let (moved, closest) = self.step(&near, &active);
            // A short step alone is no convergence: near an observation that is not the median, steps are short at
            // first and grow.
            active = lane(|l| {
                let continues = moved[l] > short[l] || moved[l] > T::of_f32(LEAVES) * closest[l];
                if continues { active[l] } else { T::ZERO }
            });
        }
        for (found, centre) in self.found.iter_mut().zip(&self.centre) {
            *found = lane(|l| found[l] + centre[l]);
        }
        for (l, &total) in total.iter().enumerate() {
            if total > two {
                self.finish(l);
            }
        }
    }

    /// Moves the estimate of one pixel to its median.
    fn finish(&mut self, l: usize) {
        let exact = &mut self.exact;
        exact.points.clear();
        let dates = self.raw.chunks(self.bands).zip(&self.counts);
        for (samples, _) in dates.filter(|(_, counts)| counts[l] > T::ZERO) {
            let point = samples.iter().map(|sample| sample[l].f64());
            exact.points.extend(point);
        }
        let count = (exact.points.len() / self.bands) as f64;
        let mut spread = 0.0;
        for (band, (at, found)) in exact.at.iter_mut().zip(&self.found).enumerate() {
            let of_band = || exact.points.iter().skip(band).step_by(self.bands);
            let mean = of_band().sum::<f64>() / count;
            let squares = of_band().map(|value| (value - mean).powi(2));
            spread += squares.sum::<f64>() / count;
            // Samples near the end of `f32` have no finite squares there.
            *at = Some(found[l].f64())
                .filter(|found| found.is_finite())
                .unwrap_or(mean);
        }
        let observation = exact.settle(spread.sqrt());
        for (band, found) in self.found.iter_mut().enumerate() {
            found[l] = match observation {
                Some(number) => T::of(exact.points[number * self.bands + band]),
                None => T::of(exact.at[band]),
            };
        }
    }

    /// Subtracts the mean from all observations; returns their number and the root mean square of
    /// their distances from the mean.
    fn centre(&mut self) -> (Lane<T>, Lane<T>) {
        let mut total = [T::ZERO; LANES];
        self.centre.fill([T::ZERO; LANES]);
        let dates = self.samples.chunks_mut(self.bands).zip(&mut self.counts);
        for (samples, counts) in dates {
            *counts = [T::ONE; LANES];
            for sample in &*samples {
                *counts = lane(|l| {
                    if sample[l].is_finite() {
                        counts[l]
                    } else {
                        T::ZERO
                    }
                });
            }
            total = lane(|l| total[l] + counts[l]);
            for (sample, centre) in samples.iter_mut().zip(&mut self.centre) {
                *sample = lane(|l| {
                    if counts[l] > T::ZERO {
                        sample[l]
                    } else {
                        T::ZERO
                    }
                });
                *centre = lane(|l| centre[l] + sample[l]);
            }
        }
        for centre in &mut self.centre {
            *centre = lane(|l| centre[l] / total[l]);
        }
        let mut squares = [T::ZERO; LANES];
        for (samples, counts) in self.samples.chunks_mut(self.bands).zip(&self.counts) {
            for (sample, centre) in samples.iter_mut().zip(&self.centre) {
                *sample = lane(|l| match counts[l] > T::ZERO {
                    true => sample[l] - centre[l],
                    false => T::ZERO,
                });
                squares = lane(|l| squares[l] + sample[l] * sample[l]);
            }
        }
        (total, lane(|l| (squares[l] / total[l]).sqrt()))
    }

    /// Takes one step for the active pixels. Returns the squared length of the step, and the squared distance to the
    /// nearest observation that does not coincide with the estimate.
    fn step(&mut self, near: &Lane<T>, active: &Lane<T>) -> (Lane<T>, Lane<T>) {
        let mut closest = [T::INFINITY; LANES];
        let mut weights = [T::ZERO; LANES];
        // The number of observations that coincide with the estimate.
        let mut here = [T::ZERO; LANES];
        self.sums.fill([T::ZERO; LANES]);
        for (samples, counts) in self.samples.chunks(self.bands).zip(&self.counts) {
            let mut squares = [T::ZERO; LANES];
            for (sample, found) in samples.iter().zip(&self.found) {
                squares = lane(|l| squares[l] + (sample[l] - found[l]) * (sample[l] - found[l]));
            }
            let weight = lane(|l| match squares[l] > near[l] {
                true => counts[l] / squares[l].sqrt(),
                false => T::ZERO,
            });
            closest = lane(|l| match weight[l] > T::ZERO {
                true => closest[l].min(squares[l]),
                false => closest[l],
            });
            here = lane(|l| {
                here[l]
                    + if squares[l] > near[l] {
                        T::ZERO
                    } else {
                        counts[l]
                    }
            });
            weights = lane(|l| weights[l] + weight[l]);
            for (sum, sample) in self.sums.iter_mut().zip(samples) {
                *sum = lane(|l| sum[l] + weight[l] * sample[l]);
            }
        }
        // Vardi and Zhang: the estimate stays at an observation unless the resultant of the unit vectors to the other
        // observations is larger than the number of observations there.
        let mut pull = [T::ZERO; LANES];
        for (sum, found) in self.sums.iter().zip(&self.found) {
            pull = lane(|l| pull[l] + (sum[l] - weights[l] * found[l]).squared());
        }
        let goes = lane(|l| {
            let pull = pull[l].sqrt();
            match pull > here[l] {
                true => active[l] * (T::ONE - here[l] / pull),
                false => T::ZERO,
            }
        });
        let mut moved = [T::ZERO; LANES];
        for (found, sum) in self.found.iter_mut().zip(&self.sums) {
            let step = lane(|l| match goes[l] > T::ZERO {
                true => goes[l] * (sum[l] / weights[l] - found[l]),
                false => T::ZERO,
            });
            *found = lane(|l| found[l] + step[l]);
            moved = lane(|l| moved[l] + step[l] * step[l]);
        }
        (moved, closest)
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, Array4, Axis, s};
    use proptest::prelude::*;

    use super::*;

    /// Returns the sum of the distances of a point to the observations (time, band) with all bands finite.
    fn cost(observations: &Array2<f64>, point: &[f64]) -> f64 {
        let distance = |row: ndarray::ArrayView1<'_, f64>| {
            let squares = row.iter().zip(point).map(|(a, b)| (a - b).powi(2));
            squares.sum::<f64>().sqrt()
        };
        let rows = observations.rows().into_iter();
        rows.filter(|row| row.iter().all(|value| value.is_finite()))
            .map(distance)
            .sum()
    }

    /// Searches the minimum cost around a point in ever smaller steps along the bands.
    fn searched(observations: &Array2<f64>, start: &[f64], span: f64) -> f64 {
        let mut best = start.to_vec();
        let mut least = cost(observations, &best);
        let mut step = span;
        while step > span * 1e-7 {
            let mut better = false;
            for band in 0..best.len() {
                for way in [-step, step] {
                    let mut other = best.clone();
                    other[band] += way;
                    let found = cost(observations, &other);
                    if found < least {
                        (least, best, better) = (found, other, true);
                    }
                }
            }
            if !better {
                step /= 2.0;
            }
        }
        least
    }

    fn one_pixel(observations: &[[f32; 2]]) -> [f32; 2] {
        let stack = Array4::from_shape_fn((observations.len(), 2, 1, 1), |(date, band, ..)| {
            observations[date][band]
        });
        let median = Geomedian::default().of(stack.view()).unwrap();
        [median[(0, 0, 0)], median[(1, 0, 0)]]
    }

    fn near(found: [f32; 2], expected: [f32; 2]) {
        for (a, b) in found.into_iter().zip(expected) {
            assert!((a - b).abs() < 1e-3, "{found:?} {expected:?}");
        }
    }

    /// Integers past 2^24, of which `float32` would make others.
    #[test]
    fn wide_samples_are_not_rounded() {
        let dates = [
            [16_777_217.0, -2_000_000_001.0],
            [16_777_217.0, -2_000_000_001.0],
            [16_777_219.0, -2_000_000_003.0],
            [3_000_000_007.0, 5.0],
            [f64::NAN, 7.0],
        ];
        let stack = Array4::from_shape_fn((5, 2, 1, 1), |(date, band, ..)| dates[date][band]);
        let median = Geomedian::default().of_wide(stack.view()).unwrap();
        assert_eq!([median[(0, 0, 0)], median[(1, 0, 0)]], dates[0]);
        // Of two the mean; of the corners of a square the middle, far from the origin.
        let two = stack.slice(s![1..3, .., .., ..]);
        let mean = Geomedian::default().of_wide(two).unwrap();
        assert_eq!(
            [mean[(0, 0, 0)], mean[(1, 0, 0)]],
            [16_777_218.0, -2_000_000_002.0]
        );
        let corners = [[0.0, 0.0], [2.0, 2.0], [2.0, 0.0], [0.0, 2.0]];
        let square = Array4::from_shape_fn((4, 2, 1, 1), |(date, band, ..)| {
            2e9 + 1.0 + corners[date][band]
        });
        let middle = Geomedian::default().of_wide(square.view()).unwrap();
        for band in 0..2 {
            assert!(
                (middle[(band, 0, 0)] - 2_000_000_002.0).abs() < 1e-5,
                "{middle}"
            );
        }
    }

    #[test]
    fn points_whose_median_is_known() {
        // The corners of a square, in any order of time steps.
        near(
            one_pixel(&[[0.0, 0.0], [2.0, 2.0], [2.0, 0.0], [0.0, 2.0]]),
            [1.0, 1.0],
        );
        // Fermat's point of an equilateral triangle.
        let height = 0.75_f32.sqrt();
        near(
            one_pixel(&[[0.0, 0.0], [1.0, 0.0], [0.5, height]]),
            [0.5, height / 3.0],
        );
        // A corner of more than 120 degrees is the median itself.
        near(
            one_pixel(&[[0.0, 0.0], [1.0, 0.05], [-1.0, 0.05]]),
            [0.0, 0.0],
        );
        // On a line it is the median.
        near(one_pixel(&[[1.0, 1.0], [2.0, 2.0], [9.0, 9.0]]), [2.0, 2.0]);
        // A majority of equal observations is the median, however far the other is.
        near(
            one_pixel(&[[0.1, 0.2], [0.1, 0.2], [0.1, 0.2], [9.0, 7.0]]),
            [0.1, 0.2],
        );
        // The mean, where the iteration starts, almost coincides with an observation; the median is elsewhere.
        let dates = [
            0.125_240_76,
            0.161_373_76,
            -0.066_820_73,
            0.985_994,
            0.25,
            0.080_012_396,
            0.214_301_99,
            0.25,
        ];
        let dates = dates.map(|sample| [sample, 0.0]);
        let [found, zero] = one_pixel(&dates);
        assert!(
            (0.161..=0.214).contains(&found) && zero == 0.0,
            "{found} {zero}"
        );
        assert_eq!(one_pixel(&[[3.0, 4.0]]), [3.0, 4.0]);
        assert_eq!(one_pixel(&[[3.0, 4.0], [5.0, 8.0]]), [4.0, 6.0]);
        assert_eq!(one_pixel(&[[0.3, 0.7]; 5]), [0.3, 0.7]);
    }

    #[test]
    fn a_date_without_one_band_does_not_count() {
        let nan = f32::NAN;
        assert_eq!(one_pixel(&[[3.0, 4.0], [nan, 9.0], [9.0, nan]]), [3.0, 4.0]);
        assert!(
            one_pixel(&[[nan, 4.0], [1.0, nan]])
                .iter()
                .all(|value| value.is_nan())
        );
        let none = Array4::<f32>::zeros((0, 2, 1, 1));
        let err = Geomedian::default().of(none.view()).unwrap_err();
        assert_eq!(
            err.message(),
            "geomedian of 0 time steps and 2 bands; expected at least one of each"
        );
        let empty = Array4::<f32>::zeros((2, 3, 0, 4));
        assert_eq!(
            Geomedian::default().of(empty.view()).unwrap().dim(),
            (3, 0, 4)
        );
    }

    /// The optimum to 1e-13 of the spread: an observation where its pull on itself is the strongest, else by
    /// Weiszfeld's iteration in `f64`. Returns it, the spread, and whether the iteration has converged.
    fn optimum(observations: &Array2<f64>) -> (Vec<f64>, f64, bool) {
        let rows: Vec<Vec<f64>> = observations
            .rows()
            .into_iter()
            .filter(|row| row.iter().all(|value| value.is_finite()))
            .map(|row| row.to_vec())
            .collect();
        let bands = observations.len_of(Axis(1));
        let distance = |a: &[f64], b: &[f64]| {
            let squares = a.iter().zip(b).map(|(a, b)| (a - b).powi(2));
            squares.sum::<f64>().sqrt()
        };
        let mean: Vec<f64> = (0..bands)
            .map(|band| rows.iter().map(|row| row[band]).sum::<f64>() / rows.len() as f64)
            .collect();
        let squares = rows.iter().map(|row| distance(row, &mean).powi(2));
        let spread = (squares.sum::<f64>() / rows.len() as f64).sqrt();
        if rows.len() <= 2 {
            return (mean, spread, true);
        }
        for row in &rows {
            let others: Vec<&Vec<f64>> = rows.iter().filter(|other| *other != row).collect();
            let pull = (0..bands).map(|band| {
                let units = others
                    .iter()
                    .map(|other| (other[band] - row[band]) / distance(other, row));
                units.sum::<f64>().powi(2)
            });
            if pull.sum::<f64>().sqrt() <= (rows.len() - others.len()) as f64 {
                return (row.clone(), spread, true);
            }
        }
        let mut at = mean;
        for _ in 0..30_000 {
            let weights: Vec<f64> = rows
                .iter()
                .map(|row| 1.0 / distance(row, &at).max(1e-300))
                .collect();
            let next: Vec<f64> = (0..bands)
                .map(|band| {
                    let sum = rows
                        .iter()
                        .zip(&weights)
                        .map(|(row, weight)| row[band] * weight);
                    sum.sum::<f64>() / weights.iter().sum::<f64>()
                })
                .collect();
            let moved = distance(&next, &at);
            at = next;
            if moved < 1e-13 * spread {
                return (at, spread, true);
            }
        }
        (at, spread, false)
    }

    /// Observations of reflectance as a few clear dates give them: a level for each band, noise, clouds far off, and
    /// gaps. By a linear congruence, so that they are the same everywhere.
    fn few_dates(dates: usize, bands: usize, pixels: usize) -> Array4<f32> {
        let mut state = 14_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1_u32 << 24) as f32
        };
        let mut stack = Array4::zeros((dates, bands, 1, pixels));
        for x in 0..pixels {
            for date in 0..dates {
                let (gap, cloud) = (random() < 0.2, random() < 0.1);
                for band in 0..bands {
                    let noise = random() + random() + random() - 1.5;
                    let clear = 0.05 + 0.1 * band as f32 + 0.03 * noise;
                    let value = if cloud { clear + 0.4 } else { clear };
                    stack[(date, band, 0, x)] = if gap { f32::NAN } else { value };
                }
            }
        }
        stack
    }

    #[test]
    fn few_clear_dates_have_their_exact_median() {
        for (dates, bands) in [(5, 3), (7, 2), (12, 4), (3, 6), (4, 1)] {
            let stack = few_dates(dates, bands, 160);
            let medians = Geomedian::default().of(stack.view()).unwrap();
            let mut observed = 0;
            for x in 0..160 {
                let pixel = stack.slice(s![.., .., 0, x]).mapv(f64::from);
                let (expected, spread, has_converged) = optimum(&pixel);
                let found = medians.slice(s![.., 0, x]).mapv(f64::from);
                if expected.iter().any(|value| value.is_nan()) {
                    assert!(found.iter().all(|value| value.is_nan()));
                    continue;
                }
                let is_one =
                    |point: &[f64]| pixel.rows().into_iter().any(|row| row.iter().eq(point));
                // On a line there may be more than one.
                if bands > 1 && is_one(&expected) {
                    observed += 1;
                    assert_eq!(found.to_vec(), expected, "{dates} x {bands}, pixel {x}");
                }
                let apart = found.iter().zip(&expected).map(|(a, b)| (a - b).powi(2));
                let apart = apart.sum::<f64>().sqrt();
                let (ours, least) = (cost(&pixel, &found.to_vec()), cost(&pixel, &expected));
                assert!(
                    apart <= 1e-5 * spread
                        || (bands == 1 || !has_converged) && ours <= least * (1.0 + 1e-6),
                    "{dates} x {bands}, pixel {x}: {found} {expected:?}, {apart}"
                );
            }
            assert!(
                observed > 0 || bands == 1 || dates == 12,
                "{dates} x {bands}: {observed}"
            );
        }
    }

    #[test]
    fn samples_near_the_ends_of_the_type_have_a_median() {
        for scale in [1e30_f32, 1e-30] {
            let dates = [[0.0, 0.0], [2.0, 2.0], [2.0, 0.0], [0.0, 2.0], [1.0, 1.1]];
            let found = one_pixel(&dates.map(|date| date.map(|value| value * scale)));
            let [x, y] = found.map(|value| value / scale);
            assert!(
                (x - 1.0).abs() < 1e-3 && (1.0..1.1001).contains(&y),
                "{x} {y}"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_point_is_much_nearer_to_all(
            (dates, bands, height, width, samples) in
                (1_usize..9, 1_usize..5, 1_usize..3, 1_usize..20).prop_flat_map(|(t, b, h, w)| {
                    let sample = prop_oneof![
                        9 => -0.1_f32..1.0,
                        1 => Just(f32::NAN),
                        // The same value at all time steps.
                        2 => Just(0.25_f32),
                    ];
                    let samples = prop::collection::vec(sample, t * b * h * w);
                    (Just(t), Just(b), Just(h), Just(w), samples)
                }),
            scale in prop::sample::select(vec![1.0_f32, 1e4]),
        ) {
            let stack = Array4::from_shape_vec((dates, bands, height, width), samples).unwrap();
            let stack = stack * scale;
            let medians = Geomedian::default().of(stack.view()).unwrap();
            for y in 0..height {
                for x in 0..width {
                    let pixel = stack.slice(s![.., .., y, x]).mapv(f64::from);
                    let found: Vec<f64> =
                        medians.slice(s![.., y, x]).iter().copied().map(f64::from).collect();
                    let whole = pixel.rows().into_iter()
                        .filter(|row| row.iter().all(|value| value.is_finite())).count();
                    if whole == 0 {
                        prop_assert!(found.iter().all(|value| value.is_nan()));
                        continue;
                    }
                    let ours = cost(&pixel, &found);
                    let least = searched(&pixel, &found, f64::from(scale));
                    // A rounding of each band.
                    let slack = 1e-7 * f64::from(scale) * whole as f64;
                    prop_assert!(ours <= least * (1.0 + 1e-7) + slack, "{} {}", ours, least);
                    // By itself, and in other strides, the result is the same.
                    let alone = stack.slice(s![.., .., y..=y, x..=x]);
                    let alone = Geomedian::default().of(alone).unwrap();
                    for (band, value) in alone.iter().enumerate() {
                        prop_assert_eq!(value.to_bits(), medians[(band, y, x)].to_bits());
                    }
                }
            }
            let turned = stack.view().permuted_axes([0, 1, 3, 2]);
            let turned = Geomedian::default().of(turned).unwrap();
            let back = turned.permuted_axes([0, 2, 1]);
            prop_assert!(back.iter().zip(&medians).all(|(a, b)| a.to_bits() == b.to_bits()));
            prop_assert_eq!(medians.len_of(Axis(0)), bands);
        }
    }
}
