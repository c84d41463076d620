//! The pixels of an overview where a side is odd: they cover the extent of the image, not 2 x 2 pixels each.
//!
//! GDAL, QGIS and [`GeoBox`](crate::geo::GeoBox) place an overview of `to` columns over all `from` columns of the level
//! before. With 5 columns and 3, a pixel covers 1 2/3 columns: each source pixel is weighted by its covered part, as by
//! `gdaladdo -r average`. Pixels of 2 x 2 each would lie further off with every level.

use std::ops::{AddAssign, Mul, Range};

use ndarray::{Array2, ArrayView2};
use num_complex::Complex;

use super::{
    Resampling, Sample,
    overview::{halve, in_line, is_same, rms},
};

/// One axis of a level and of a smaller one: `to` pixels cover the extent of `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shrink {
    /// Pixels of the larger level.
    pub from: usize,
    /// Pixels of the smaller level: at least 1, at most `from`.
    pub to: usize,
}

impl Shrink {
    /// Returns true if both levels have the same pixels.
    pub fn is_same(self) -> bool {
        self.from == self.to
    }

    /// Returns true if each pixel covers two of the larger level exactly.
    pub fn is_even(self) -> bool {
        self.from.is_multiple_of(2) && self.from / 2 == self.to
    }

    /// Returns the pixels of the larger level that a pixel covers, at least in part.
    pub fn covered(self, at: usize) -> Range<usize> {
        at * self.from / self.to..((at + 1) * self.from).div_ceil(self.to)
    }

    /// Returns how much of the pixel `source` of the larger level the pixel `at` covers, in parts of `to`.
    fn weight(self, at: usize, source: usize) -> usize {
        let end = ((source + 1) * self.to).min((at + 1) * self.from);
        end.saturating_sub((source * self.to).max(at * self.from))
    }

    /// Returns the pixel of the larger level that contains the centre of a pixel; of two that meet there the first.
    pub fn nearest(self, at: usize) -> usize {
        ((2 * at + 1) * self.from).div_ceil(2 * self.to) - 1
    }

    /// Returns the pixels whose [`nearest`](Self::nearest) lies in a range of the larger level.
    pub fn nearest_in(self, range: &Range<usize>) -> Range<usize> {
        let first = |source: usize| (2 * self.to * source / self.from).div_ceil(2);
        first(range.start)..first(range.end)
    }
}

/// A part of a level.
#[derive(Clone, Debug)]
pub struct LevelPart<'a, T> {
    /// The samples, (y, x).
    pub samples: ArrayView2<'a, T>,
    /// The column of the first sample in the level.
    pub col: usize,
    /// The row of the first sample in the level.
    pub row: usize,
}

/// Returns the pixels in a range of `columns` and `rows` of a smaller level, computed from a part of the larger one.
/// Source pixels outside of the part contribute nothing, and neither do those without data; a pixel without any is
/// `fill`. A mean that equals nodata is replaced by the next higher sample, as gdaladdo does.
///
/// Mode is the value that covers most of the pixel; bilinear is the same as average, and so is what
/// [`check_overview`](super::check_overview) refuses.
pub fn shrunk<T: Sample>(
    part: &LevelPart<'_, T>,
    [across, down]: [Shrink; 2],
    [columns, rows]: [Range<usize>; 2],
    resampling: Resampling,
    nodata_sample: Option<T>,
    fill: T,
) -> Array2<T> {
    let mut out = Array2::from_elem((rows.len(), columns.len()), fill);
    let (height, width) = part.samples.dim();
    let from = part.samples;
    let pairs = |axis: Shrink, made: &Range<usize>, start: usize, length: usize| {
        axis.is_even() && made.start * 2 == start && made.len() * 2 == length
    };
    if pairs(across, &columns, part.col, width) && pairs(down, &rows, part.row, height) {
        halve(from, resampling, nodata_sample, out.view_mut());
        return out;
    }
    if resampling == Resampling::Nearest {
        for (row, mut out) in rows.zip(out.rows_mut()) {
            for (col, out) in columns.clone().zip(&mut out) {
                let row = down.nearest(row).checked_sub(part.row);
                let col = across.nearest(col).checked_sub(part.col);
                if let Some(&sample) = row.zip(col).and_then(|at| from.get(at)) {
                    *out = sample;
                }
            }
        }
        return out;
    }
    let across = Taps::new(across, columns, part.col, width);
    let down = Taps::new(down, rows, part.row, height);
    match resampling {
        Resampling::Min => choose(from, [&across, &down], nodata_sample, &mut out, |all| {
            first_by(all, T::is_below)
        }),
        Resampling::Max => choose(from, [&across, &down], nodata_sample, &mut out, |all| {
            first_by(all, |one, best| best.is_below(one))
        }),
        Resampling::Mode => choose(from, [&across, &down], nodata_sample, &mut out, most),
        Resampling::Rms => choose(from, [&across, &down], nodata_sample, &mut out, |all| {
            let weighed = all.iter().map(|&(sample, weight)| (sample, weight as f64));
            rms(weighed, nodata_sample)
        }),
        _ => average(from, [&across, &down], nodata_sample, &mut out),
    }
    out
}

/// For each pixel of an axis, the source pixels that it covers, counted from the start of a part, and their weights.
struct Taps {
    pixels: Vec<Vec<(usize, usize)>>,
    /// The weight of a source pixel that is covered in full.
    full: usize,
}

impl Taps {
    fn new(axis: Shrink, pixels: Range<usize>, start: usize, length: usize) -> Self {
        // Whole pixels have the weight 1, so that their sums round as those of 2 x 2 do.
        let unit = match axis.from.is_multiple_of(axis.to) {
            true => axis.to,
            false => 1,
        };
        let taps = |at: usize| {
            let covered = axis.covered(at);
            let inside = covered.start.max(start)..covered.end.min(start + length);
            inside
                .map(|source| (source - start, axis.weight(at, source) / unit))
                .collect()
        };
        Self {
            pixels: pixels.map(taps).collect(),
            full: axis.to / unit,
        }
    }
}

/// Sums weighted rows first, then columns: the first pass runs over contiguous samples and is vectorised.
fn average<T: Sample>(
    from: ArrayView2<'_, T>,
    [across, down]: [&Taps; 2],
    nodata_sample: Option<T>,
    out: &mut Array2<T>,
) {
    let width = from.ncols();
    let (no_sum, no_weight) = (T::Weighted::default(), T::Weight::default());
    let (mut sums, mut weights) = (vec![no_sum; width], vec![no_weight; width]);
    for (taps, mut out) in down.pixels.iter().zip(out.rows_mut()) {
        sums.fill(no_sum);
        weights.fill(no_weight);
        for &(row, weight) in taps {
            let row = in_line(from.row(row));
            let weight = T::weight(weight, down.full);
            for ((sum, weights), &sample) in sums.iter_mut().zip(&mut weights).zip(row.iter()) {
                let is_data = sample.is_data(nodata_sample);
                *sum += match is_data {
                    true => sample.summand() * weight,
                    false => no_sum,
                };
                *weights += if is_data { weight } else { no_weight };
            }
        }
        for (taps, out) in across.pixels.iter().zip(&mut out) {
            let (mut sum, mut total) = (no_sum, no_weight);
            for &(col, weight) in taps {
                let weight = T::weight(weight, across.full);
                sum += sums[col] * weight;
                total += weights[col] * weight;
            }
            if total > no_weight {
                let mean = T::weighted_mean(sum, total);
                *out = match mean.is_data(nodata_sample) {
                    true => mean,
                    false => mean.higher(),
                };
            }
        }
    }
}

/// Selects among the valid samples of each pixel, in row order, by their weights.
fn choose<T: Sample>(
    from: ArrayView2<'_, T>,
    [across, down]: [&Taps; 2],
    nodata_sample: Option<T>,
    out: &mut Array2<T>,
    best: impl Fn(&[(T, u128)]) -> Option<T>,
) {
    let mut valid = Vec::new();
    for (rows, mut out) in down.pixels.iter().zip(out.rows_mut()) {
        for (cols, out) in across.pixels.iter().zip(&mut out) {
            valid.clear();
            for &(row, tall) in rows {
                for &(col, wide) in cols {
                    let sample = from[(row, col)];
                    if sample.is_data(nodata_sample) {
                        valid.push((sample, tall as u128 * wide as u128));
                    }
                }
            }
            if let Some(best) = best(&valid) {
                *out = best;
            }
        }
    }
}

/// Returns the best sample; of equal ones the first.
fn first_by<T: Sample>(samples: &[(T, u128)], better: impl Fn(T, T) -> bool) -> Option<T> {
    let samples = samples.iter().map(|&(sample, _)| sample);
    samples.reduce(|best, one| if better(one, best) { one } else { best })
}

/// Returns the sample of the largest weight; of several the first. All samples are valid.
fn most<T: Sample>(samples: &[(T, u128)]) -> Option<T> {
    let weight = |one: T| -> u128 {
        let same = samples.iter().filter(|(other, _)| is_same(*other, one));
        same.map(|(_, weight)| weight).sum()
    };
    let weighed = samples.iter().map(|&(one, _)| (one, weight(one)));
    let best = weighed.reduce(|best, one| if one.1 > best.1 { one } else { best });
    best.map(|(sample, _)| sample)
}

/// Samples that have a weighted mean.
pub trait Weigh: Copy {
    /// A weight, or a sum of them.
    type Weight: Copy + Default + PartialOrd + AddAssign + Mul<Output = Self::Weight>;
    /// The sum of weighted samples.
    type Weighted: Copy + Default + AddAssign + Mul<Self::Weight, Output = Self::Weighted>;
    /// Returns the weight of `parts` of `full`, up to one factor for all.
    fn weight(parts: usize, full: usize) -> Self::Weight;
    /// Returns the sample with the weight 1.
    fn summand(self) -> Self::Weighted;
    /// Returns the mean; that of integers is rounded half up, as in GDAL.
    fn weighted_mean(sum: Self::Weighted, weight: Self::Weight) -> Self;
}

/// Returns a weight of up to 2, the parts divided by a power of two: no digit is lost, and sums of integers are exact
/// while they have no more than 53 bits.
fn in_float(parts: usize, full: usize) -> f64 {
    parts as f64 / full.max(1).next_power_of_two() as f64
}

macro_rules! in_floats {
    ($($type:ty => $round:expr);*) => {$(
        impl Weigh for $type {
            type Weight = f64;
            type Weighted = f64;

            #[inline]
            fn weight(parts: usize, full: usize) -> f64 {
                in_float(parts, full)
            }

            #[inline]
            fn summand(self) -> f64 {
                f64::from(self)
            }

            #[inline]
            #[expect(clippy::allow_attributes, reason = "one macro for all types")]
            fn weighted_mean(sum: f64, weight: f64) -> Self {
                let round: fn(f64) -> f64 = $round;
                #[allow(
                    clippy::unnecessary_cast,
                    clippy::cast_possible_truncation,
                    reason = "a mean lies between the samples; one of the types is f64 already"
                )]
                let mean = round(sum / weight) as Self;
                mean
            }
        }
    )*};
}
in_floats!(u8 => half_up; i8 => half_up; u16 => half_up; i16 => half_up; f32 => |mean| mean; f64 => |mean| mean);

fn half_up(mean: f64) -> f64 {
    (mean + 0.5).floor()
}

macro_rules! in_integers {
    ($($type:ty),*) => {$(
        impl Weigh for $type {
            // A float has too few digits for these, so weights are counted in parts.
            type Weight = i128;
            type Weighted = i128;

            #[inline]
            fn weight(parts: usize, _full: usize) -> i128 {
                parts as i128
            }

            #[inline]
            fn summand(self) -> i128 {
                i128::from(self)
            }

            #[inline]
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a mean lies between the samples"
            )]
            fn weighted_mean(sum: i128, weight: i128) -> Self {
                (2 * sum + weight).div_euclid(2 * weight) as Self
            }
        }
    )*};
}
in_integers!(u32, i32, u64, i64);

macro_rules! complex_numbers {
    ($($part:ty),*) => {$(
        impl Weigh for Complex<$part> {
            type Weight = f64;
            type Weighted = Complex<f64>;

            fn weight(parts: usize, full: usize) -> f64 {
                in_float(parts, full)
            }

            fn summand(self) -> Complex<f64> {
                Complex::new(self.re.into(), self.im.into())
            }

            fn weighted_mean(sum: Complex<f64>, weight: f64) -> Self {
                let part = |sum: f64| <$part as Weigh>::weighted_mean(sum, weight);
                Self::new(part(sum.re), part(sum.im))
            }
        }
    )*};
}
complex_numbers!(f32, f64);

#[cfg(test)]
mod tests {
    use ndarray::{Array2, Axis, array, s};

    use super::*;
    use crate::raster::halved;

    fn whole<T: Sample>(
        samples: &Array2<T>,
        to: [usize; 2],
        resampling: Resampling,
        nodata: Option<T>,
    ) -> Array2<T> {
        let (height, width) = samples.dim();
        let axes = [(width, to[0]), (height, to[1])].map(|(from, to)| Shrink { from, to });
        let part = LevelPart {
            samples: samples.view(),
            col: 0,
            row: 0,
        };
        let fill = nodata.unwrap_or(T::of_number(0.0));
        let out = [0..to[0], 0..to[1]];
        shrunk(&part, axes, out, resampling, nodata, fill)
    }

    /// `f64` rounds these to one number, and the first of equal ones would be taken.
    #[test]
    fn extremes_of_large_integers_are_exact() {
        let large = 1_i64 << 53;
        let signed = array![[large, large + 1, large + 3], [large + 2, large, large + 1]];
        let unsigned = array![[u64::MAX - 1, u64::MAX, u64::MAX - 2]];
        for (to, highest) in [
            ([2, 1], [large + 2, large + 3]),
            ([3, 1], [large + 2, large + 1]),
        ] {
            let most = whole(&signed, to, Resampling::Max, None);
            assert_eq!((most[(0, 0)], most[(0, 1)]), (highest[0], highest[1]));
        }
        let least = whole(
            &signed.slice(s![.., 1..]).to_owned(),
            [1, 1],
            Resampling::Min,
            None,
        );
        assert_eq!(least, array![[large]]);
        let halves = halved(
            signed.slice(s![.., ..2]).insert_axis(Axis(0)),
            Resampling::Max,
            None,
        );
        assert_eq!(halves.unwrap(), array![[[large + 2]]]);
        assert_eq!(
            whole(&unsigned, [1, 1], Resampling::Max, None),
            array![[u64::MAX]]
        );
        assert_eq!(
            whole(&unsigned, [1, 1], Resampling::Min, None),
            array![[u64::MAX - 2]]
        );
    }

    /// Weights by hand: 5 columns on 3 are 1, 2/3 | 1/3, 1, 1/3 | 2/3, 1.
    #[test]
    fn a_pixel_is_the_mean_of_what_it_covers() {
        let columns = array![[1.0_f64, 2.0, 4.0, 8.0, 16.0]];
        let means = whole(&columns, [3, 1], Resampling::Average, None);
        let expected = [7.0 / 5.0, (2.0 + 12.0 + 8.0) / 5.0, (16.0 + 48.0) / 5.0];
        for (found, expected) in means.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{means}");
        }
        let with_gap = array![[1_i16, -1, 4, 8, 16]];
        let means = whole(&with_gap, [3, 1], Resampling::Average, Some(-1));
        // Of the second pixel 4 counts in full and 8 by a third: 5.
        assert_eq!(means, array![[1, 5, 13]]);
        let gap = whole(
            &array![[-1_i16, -1, -1]],
            [2, 1],
            Resampling::Average,
            Some(-1),
        );
        assert_eq!(gap, array![[-1, -1]]);
        // The value that covers most, and not the most frequent one.
        let classes = array![[3_u8, 7, 7, 3, 3]];
        assert_eq!(
            whole(&classes, [3, 1], Resampling::Mode, None),
            array![[3, 7, 3]]
        );
        assert_eq!(
            whole(&classes, [3, 1], Resampling::Min, None),
            array![[3, 3, 3]]
        );
        assert_eq!(
            whole(&classes, [3, 1], Resampling::Max, None),
            array![[7, 7, 3]]
        );
    }

    #[test]
    fn wide_integers_are_exact() {
        let large = i64::MAX - 6;
        let samples = array![[large, large + 2, large + 4]];
        // 1 and 1/2, 1/2 and 1: large + 2/3, and large + 3 1/3.
        assert_eq!(
            whole(&samples, [2, 1], Resampling::Average, None),
            array![[large + 1, large + 3]]
        );
        let halves = array![[u32::MAX, u32::MAX - 3, u32::MAX]];
        assert_eq!(
            whole(&halves, [2, 1], Resampling::Average, None),
            array![[u32::MAX - 1, u32::MAX - 1]]
        );
        let negative = array![[-1_i16, -2, -1, -2]];
        assert_eq!(
            whole(&negative, [2, 1], Resampling::Average, None),
            array![[-1, -1]]
        );
    }

    #[test]
    fn infinite_samples_spoil_only_what_covers_them() {
        let samples = array![[f32::INFINITY, 1.0, 1.0, 1.0, f32::NAN]];
        let means = whole(&samples, [3, 1], Resampling::Average, None);
        assert_eq!(means, array![[f32::INFINITY, 1.0, 1.0]]);
    }

    #[test]
    fn where_sides_are_even_it_is_two_by_two() {
        let samples = Array2::from_shape_fn((6, 8), |(y, x)| {
            u16::try_from((y * 37 + x * 91) % 17).unwrap()
        });
        let nodata = 5;
        for resampling in Resampling::ALL {
            if crate::raster::check_overview(resampling).is_err() {
                continue;
            }
            let stacked = samples.view().insert_axis(ndarray::Axis(0));
            let expected = halved(stacked, resampling, Some(nodata.into())).unwrap();
            let found = whole(&samples, [4, 3], resampling, Some(nodata));
            assert_eq!(found, expected.slice(s![0, .., ..]), "{resampling}");
        }
    }

    /// All sizes: pixels lie where they should, and each source pixel counts once in all.
    #[test]
    fn weights_cover_each_source_pixel_once() {
        for from in 1..130_usize {
            let mut sizes = vec![from, from.div_ceil(2), from.div_ceil(3), 1];
            sizes.dedup();
            for to in sizes {
                let axis = Shrink { from, to };
                let mut covered = vec![0; from];
                for at in 0..to {
                    for source in axis.covered(at) {
                        assert!(axis.weight(at, source) > 0, "{axis:?} {at} {source}");
                        covered[source] += axis.weight(at, source);
                    }
                    let centre = (at as f64 + 0.5) * from as f64 / to as f64;
                    let nearest = axis.nearest(at);
                    let distance = (nearest as f64 + 0.5 - centre).abs();
                    assert!(distance <= 0.5 + 1e-9, "{axis:?} {at}");
                    for range in [0..nearest + 1, nearest..from, nearest..nearest + 1] {
                        assert!(axis.nearest_in(&range).contains(&at), "{axis:?} {at}");
                    }
                    assert!(!axis.nearest_in(&(0..nearest)).contains(&at), "{axis:?}");
                }
                assert!(covered.iter().all(|&one| one == to), "{axis:?} {covered:?}");
            }
        }
    }
}
