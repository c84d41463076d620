//! Overviews: each pixel is computed from 2 x 2 of the level before.

use std::borrow::Cow;

use ndarray::{Array3, ArrayView1, ArrayView2, ArrayView3, ArrayViewMut2, Axis, s};

use super::{Number, Resampling, Sample, fill, nodata_sample};
use crate::error::{Error, ErrorKind, Result};

/// Halves the rows and columns of (band or time, y, x) samples, rounding up: at an odd edge a pixel is computed from
/// one or two. Its grid has pixels of twice the size, and so ends half a pixel past an odd edge;
/// [`shrunk`](super::shrunk) keeps the extent instead. Nodata samples contribute nothing; a pixel is nodata only if all
/// its samples are. A mean that equals nodata is replaced by the next higher sample, as gdaladdo does.
///
/// Nearest takes the top left sample of four; bilinear is the same as average.
///
/// # Errors
///
/// Those of [`check_overview`].
pub fn halved<T: Sample>(
    samples: ArrayView3<'_, T>,
    resampling: Resampling,
    nodata: Option<Number>,
) -> Result<Array3<T>> {
    check_overview(resampling)?;
    let (layers, height, width) = samples.dim();
    let shape = (layers, height.div_ceil(2), width.div_ceil(2));
    let nodata_sample = nodata_sample(nodata);
    let fill = fill(nodata);
    let mut out = Array3::from_elem(shape, fill);
    for (out, from) in out.axis_iter_mut(Axis(0)).zip(samples.axis_iter(Axis(0))) {
        halve(from, resampling, nodata_sample, out);
    }
    Ok(out)
}

/// Halves the rows and columns of (y, x) samples into `out`, where a pixel without data stays as it is.
pub(super) fn halve<T: Sample>(
    from: ArrayView2<'_, T>,
    resampling: Resampling,
    nodata_sample: Option<T>,
    out: ArrayViewMut2<'_, T>,
) {
    match resampling {
        Resampling::Nearest => nearest(from, out),
        Resampling::Min => choose(from, nodata_sample, out, |four| first_by(four, T::is_below)),
        Resampling::Max => choose(from, nodata_sample, out, |four| {
            first_by(four, |one, best| best.is_below(one))
        }),
        Resampling::Mode => choose(from, nodata_sample, out, most_frequent),
        Resampling::Rms => choose(from, nodata_sample, out, |four| {
            rms(four.iter().map(|&sample| (sample, 1.0)), nodata_sample)
        }),
        _ => average(from, nodata_sample, out),
    }
}

/// Checks that overviews support a resampling method.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] for methods that need pixels outside the 2 x 2, for a sum, which an overview would double
/// with every level, and for quartiles, which those of quartiles are not.
pub fn check_overview(resampling: Resampling) -> Result<()> {
    use Resampling::{Average, Bilinear, Max, Min, Mode, Nearest, Rms};
    if matches!(
        resampling,
        Nearest | Bilinear | Average | Rms | Mode | Min | Max
    ) {
        return Ok(());
    }
    let message = format!(
        "overviews by {resampling}: expected nearest, bilinear, average, rms, mode, min or max"
    );
    Err(Error::new(ErrorKind::Unsupported, message))
}

fn nearest<T: Sample>(from: ArrayView2<'_, T>, mut out: ArrayViewMut2<'_, T>) {
    out.assign(&from.slice(s![..;2, ..;2]));
}

/// Sums pairs of rows first, then pairs of columns: the first pass runs over contiguous samples and is vectorised.
fn average<T: Sample>(
    from: ArrayView2<'_, T>,
    nodata_sample: Option<T>,
    mut out: ArrayViewMut2<'_, T>,
) {
    let width = from.ncols();
    let (mut sums, mut counts) = (vec![T::Total::default(); width], vec![0_u8; width]);
    let rows = from.axis_chunks_iter(Axis(0), 2);
    for (rows, mut out) in rows.zip(out.rows_mut()) {
        sums.fill(T::Total::default());
        counts.fill(0);
        for row in rows.rows() {
            let row = in_line(row);
            for ((sum, count), &sample) in sums.iter_mut().zip(&mut counts).zip(row.iter()) {
                let is_data = sample.is_data(nodata_sample);
                *sum += match is_data {
                    true => sample.widened(),
                    false => T::Total::default(),
                };
                *count += u8::from(is_data);
            }
        }
        for ((sums, counts), out) in sums.chunks(2).zip(counts.chunks(2)).zip(&mut out) {
            let mut sum = T::Total::default();
            sums.iter().for_each(|&one| sum += one);
            let count = counts.iter().sum();
            if count > 0 {
                let mean = T::mean(sum, count);
                *out = if mean.is_data(nodata_sample) {
                    mean
                } else {
                    mean.higher()
                };
            }
        }
    }
}

/// Selects among the valid samples of each 2 x 2, in row order.
fn choose<T: Sample>(
    from: ArrayView2<'_, T>,
    nodata_sample: Option<T>,
    mut out: ArrayViewMut2<'_, T>,
    best: impl Fn(&[T]) -> Option<T>,
) {
    let rows = from.axis_chunks_iter(Axis(0), 2);
    for (rows, mut out) in rows.zip(out.rows_mut()) {
        let rows: Vec<_> = rows.rows().into_iter().map(in_line).collect();
        for (col, out) in out.iter_mut().enumerate() {
            let pair = |row: &'_ Cow<'_, [T]>| {
                let end = (2 * col + 2).min(row.len());
                let pair = row.get(2 * col..end).unwrap_or_default();
                [pair.first().copied(), pair.get(1).copied()]
            };
            let mut four = [T::of_number(0.0); 4];
            let mut count = 0;
            for sample in rows.iter().flat_map(pair).flatten() {
                if sample.is_data(nodata_sample) {
                    four[count] = sample;
                    count += 1;
                }
            }
            if let Some(best) = best(&four[..count]) {
                *out = best;
            }
        }
    }
}

/// Returns the best sample; of equal ones the first.
fn first_by<T: Sample>(samples: &[T], better: impl Fn(T, T) -> bool) -> Option<T> {
    let pick = |best, one| if better(one, best) { one } else { best };
    samples.iter().copied().reduce(pick)
}

/// Returns the most frequent sample; of several the first. All samples are valid.
fn most_frequent<T: Sample>(samples: &[T]) -> Option<T> {
    let (first, rest) = samples.split_first()?;
    if rest.iter().all(|one| is_same(*one, *first)) {
        return Some(*first);
    }
    let times = |one: &T| {
        samples
            .iter()
            .filter(|other| is_same(**other, *one))
            .count()
    };
    let most = samples.iter().map(times).max()?;
    samples.iter().find(|one| times(one) == most).copied()
}

/// Returns the root of the weighted mean of squares, or the next higher sample where that is nodata.
pub(super) fn rms<T: Sample>(
    samples: impl Iterator<Item = (T, f64)>,
    nodata_sample: Option<T>,
) -> Option<T> {
    let add = |[sum, total]: [f64; 2], (sample, weight): (T, f64)| {
        [sum + sample.number().powi(2) * weight, total + weight]
    };
    let [sum, total] = samples.fold([0.0; 2], add);
    let root = (sum / total).sqrt();
    let root = T::of_number(match T::DTYPE.is_float() {
        true => root,
        false => root.round(),
    });
    let kept = match root.is_data(nodata_sample) {
        true => root,
        false => root.higher(),
    };
    (total > 0.0).then_some(kept)
}

/// Returns true if two valid samples are equal.
pub(super) fn is_same<T: Sample>(one: T, other: T) -> bool {
    !one.is_data(Some(other))
}

pub(super) fn in_line<'row, T: Sample>(row: ArrayView1<'row, T>) -> Cow<'row, [T]> {
    match row.to_slice() {
        Some(row) => Cow::Borrowed(row),
        None => Cow::Owned(row.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;
    use num_complex::Complex;

    use super::*;
    use crate::raster::DataType;

    #[test]
    fn an_overview_is_of_what_holds_data() {
        let samples = array![[[1_i16, 2, -999], [3, 5, -999], [7, -999, 4]]];
        for (resampling, expected) in [
            (Resampling::Average, [[3, -999], [7, 4]]),
            (Resampling::Bilinear, [[3, -999], [7, 4]]),
            (Resampling::Nearest, [[1, -999], [7, 4]]),
            (Resampling::Min, [[1, -999], [7, 4]]),
            (Resampling::Max, [[5, -999], [7, 4]]),
            (Resampling::Rms, [[3, -999], [7, 4]]),
        ] {
            let half = halved(samples.view(), resampling, Some((-999.0).into())).unwrap();
            assert_eq!(
                half,
                Array3::from_shape_fn((1, 2, 2), |(_, y, x)| expected[y][x]),
                "{resampling}"
            );
        }
        let classes = array![[[4_u8, 2, 0, 9], [0, 2, 9, 1]]];
        let mode = halved(classes.view(), Resampling::Mode, Some(0.into())).unwrap();
        assert_eq!(mode, array![[[2, 9]]]);
        let floats = array![[[1.0_f32, f32::NAN], [2.0, 4.5]]];
        let mean = halved(floats.view(), Resampling::Average, None).unwrap();
        assert_eq!(mean, array![[[2.5]]]);
        let err = halved(floats.view(), Resampling::Cubic, None).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Unsupported);
    }

    #[test]
    fn floats_without_data_stay_without() {
        let floats = array![[[f32::NAN, f32::NAN], [f32::NAN, f32::NAN]]];
        for resampling in [Resampling::Average, Resampling::Mode, Resampling::Max] {
            let half = halved(floats.view(), resampling, None).unwrap();
            assert!(half[(0, 0, 0)].is_nan(), "{resampling}");
        }
    }

    /// Means in integers are the same as in floats, whose halves are rounded up.
    #[test]
    fn means_are_rounded_as_gdal_rounds() {
        fn check<T: Sample + PartialEq + std::fmt::Debug>(numbers: &[f64], nodata_sample: f64) {
            let samples = Array3::from_shape_fn((1, 2, 2 * numbers.len()), |(_, y, x)| {
                T::of_number(numbers[(x / 2 + y * 7 + x % 2 * 3) % numbers.len()])
            });
            let half = halved(
                samples.view(),
                Resampling::Average,
                Some(nodata_sample.into()),
            )
            .unwrap();
            for (col, &found) in half.iter().enumerate() {
                let four = samples.slice(s![0, .., 2 * col..2 * col + 2]);
                let valid: Vec<f64> = four.iter().map(|one| one.number()).collect();
                let valid: Vec<f64> = valid
                    .into_iter()
                    .filter(|&one| one != nodata_sample)
                    .collect();
                let mean = valid.iter().sum::<f64>() / valid.len() as f64;
                let mean = match T::DTYPE.is_float() {
                    true => mean,
                    false => (mean + 0.5).floor(),
                };
                let expected = match (valid.len(), T::DTYPE) {
                    (0, _) => nodata_sample,
                    (_, DataType::F32) if mean == nodata_sample => {
                        f64::from((nodata_sample as f32).next_up())
                    }
                    (_, DataType::F64) if mean == nodata_sample => nodata_sample.next_up(),
                    _ if mean == nodata_sample => nodata_sample + 1.0,
                    _ => mean,
                };
                assert_eq!(found, T::of_number(expected), "{four:?}");
            }
        }
        let small = [0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 100.0, 127.0, 7.0, 7.0];
        check::<u8>(&small, 7.0);
        check::<i64>(&small, 7.0);
        check::<u64>(&small, 7.0);
        check::<f64>(&small, 7.0);
        let signed = [
            -128.0, -1.0, 0.0, 1.0, 2.0, -7.0, -6.0, 127.0, -3.0, 4.0, -2.0,
        ];
        check::<i8>(&signed, 127.0);
        check::<i16>(&signed, -128.0);
        check::<i32>(&signed, -1.0);
        check::<f32>(&signed, -1.0);
        let large = [65535.0, 65534.0, 0.0, 1.0, 40000.0, 65535.0, 3.0];
        check::<u16>(&large, 0.0);
        check::<u32>(&large, 65535.0);
    }

    /// The result of `gdaladdo -r average` of GDAL 3.6.2; it treats 64-bit integers like 32-bit ones.
    #[test]
    fn a_mean_that_is_nodata_by_chance_is_not_lost() {
        fn check<T: Sample + PartialEq + std::fmt::Debug>(
            [a, b]: [f64; 2],
            nodata_sample: f64,
            expected: T,
        ) {
            let [a, b] = [a, b].map(T::of_number);
            let samples = array![[[a, b], [b, a]]];
            for resampling in [Resampling::Average, Resampling::Bilinear] {
                let half = halved(samples.view(), resampling, Some(nodata_sample.into())).unwrap();
                assert_eq!(half[(0, 0, 0)], expected, "{a:?} {b:?}");
            }
        }
        check::<i16>([-1.0, 1.0], 0.0, 1);
        check::<i16>([-3.0, 1.0], -1.0, 0);
        check::<u8>([1.0, 3.0], 2.0, 3);
        check::<u8>([253.0, 255.0], 254.0, 255);
        check::<u16>([1.0, 3.0], 2.0, 3);
        check::<f32>([-1.0, 1.0], 0.0, 1.175_494_4e-38);
        check::<f32>([1.0, 3.0], 2.0, 2.000_000_2);
        check::<f64>([1.0, 3.0], 2.0, 2.0_f64.next_up());
        check::<i64>([1.0, 3.0], 2.0, 3);
        // Nodata of 64-bit integers is an integer: the next one is no nodata.
        let large = f64::from(1 << 30) * f64::from(1 << 30);
        check::<i64>([large - 1024.0, large + 1024.0], large, (1 << 60) + 1);
    }

    #[test]
    fn complex_samples_are_averaged_by_parts() {
        let part = |re, im| Complex::<f32>::new(re, im);
        let samples = array![[[part(1.0, 2.0), part(3.0, -2.0)]]];
        let mean = halved(samples.view(), Resampling::Average, None).unwrap();
        assert_eq!(mean, array![[[part(2.0, 0.0)]]]);
        let by_chance = halved(samples.view(), Resampling::Average, Some(2.0.into())).unwrap();
        assert_eq!(by_chance, array![[[part(2.0_f32.next_up(), 0.0)]]]);
    }

    /// A float other than NaN may be nodata, also a negative one.
    #[test]
    fn complex_nodata_is_a_number_and_not_a_magnitude() {
        let part = |re, im| Complex::<f64>::new(re, im);
        let samples = array![[[part(3.0, 4.0), part(5.0, 0.0)]]];
        let mean = halved(samples.view(), Resampling::Average, Some(5.0.into())).unwrap();
        assert_eq!(mean, array![[[part(3.0, 4.0)]]]);
        let samples = array![[[part(-9999.0, 0.0), part(1.0, 1.0)]]];
        let mean = halved(samples.view(), Resampling::Average, Some((-9999.0).into())).unwrap();
        assert_eq!(mean, array![[[part(1.0, 1.0)]]]);
        let samples = array![[
            [part(3.0, 4.0), part(5.0, 0.0)],
            [part(5.0, 0.0), part(4.0, 3.0)]
        ]];
        let mode = halved(samples.view(), Resampling::Mode, None).unwrap();
        assert_eq!(mode, array![[[part(5.0, 0.0)]]]);
    }
}
