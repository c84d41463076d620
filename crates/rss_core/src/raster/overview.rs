//! Overviews: each pixel of four of the level before.

use ndarray::{Array2, Array3, ArrayView2, ArrayView3, Axis};

use super::{Resampling, Sample};
use crate::error::{Error, ErrorKind, Result};

/// Halves the rows and columns of (band or time, y, x) samples, rounding up: at an odd edge a pixel is made
/// of fewer. What holds no data does not count; where nothing does, there is none.
///
/// Nearest is the top left one of four, bilinear the same as average.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] for what [`check_overview`] refuses.
pub(crate) fn halved<T: Sample>(
    samples: ArrayView3<'_, T>,
    resampling: Resampling,
    nodata: Option<f64>,
) -> Result<Array3<T>> {
    check_overview(resampling)?;
    let (layers, height, width) = samples.dim();
    let shape = (layers, height.div_ceil(2), width.div_ceil(2));
    let mut out = Array3::from_elem(shape, T::of_number(nodata.unwrap_or(0.0)));
    for (mut out, from) in out.axis_iter_mut(Axis(0)).zip(samples.axis_iter(Axis(0))) {
        out.assign(&layer(from, resampling, nodata));
    }
    Ok(out)
}

/// Checks that an overview can be made so.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] for cubic, which wants pixels from outside the four.
pub(crate) fn check_overview(resampling: Resampling) -> Result<()> {
    if resampling != Resampling::Cubic {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        "overviews by cubic: expected nearest, bilinear, average, mode, min or max",
    ))
}

fn layer<T: Sample>(
    from: ArrayView2<'_, T>,
    resampling: Resampling,
    nodata: Option<f64>,
) -> Array2<T> {
    let (height, width) = from.dim();
    let is_float = T::DTYPE.is_float();
    let fill = T::of_number(nodata.unwrap_or(0.0));
    Array2::from_shape_fn((height.div_ceil(2), width.div_ceil(2)), |(row, col)| {
        let (y, x) = (row * 2, col * 2);
        if resampling == Resampling::Nearest {
            return from[(y, x)];
        }
        let mut valid = [fill; 4];
        let mut count = 0;
        for place in [(y, x), (y, x + 1), (y + 1, x), (y + 1, x + 1)] {
            let Some(&sample) = from.get(place) else {
                continue;
            };
            let number = sample.number();
            if !number.is_nan() && nodata != Some(number) {
                valid[count] = sample;
                count += 1;
            }
        }
        let valid = &valid[..count];
        let best = |better: fn(f64, f64) -> bool| {
            let choose = |a: T, b: T| match better(b.number(), a.number()) {
                true => b,
                false => a,
            };
            valid.iter().copied().reduce(choose).unwrap_or(fill)
        };
        match resampling {
            Resampling::Min => best(|a, b| a < b),
            Resampling::Max => best(|a, b| a > b),
            Resampling::Mode => {
                let times = |one: &T| {
                    let same = valid.iter().filter(|other| other.number() == one.number());
                    same.count()
                };
                let most = valid.iter().map(times).max().unwrap_or(0);
                let first = valid.iter().find(|one| times(one) == most);
                first.copied().unwrap_or(fill)
            }
            _ if valid.is_empty() => fill,
            _ => {
                let sum: f64 = valid.iter().map(|sample| sample.number()).sum();
                let mean = sum / valid.len() as f64;
                // Halves go up, as GDAL rounds them.
                T::of_number(if is_float { mean } else { (mean + 0.5).floor() })
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn an_overview_is_of_what_holds_data() {
        let samples = array![[[1_i16, 2, -999], [3, 5, -999], [7, -999, 4]]];
        for (resampling, expected) in [
            (Resampling::Average, [[3, -999], [7, 4]]),
            (Resampling::Bilinear, [[3, -999], [7, 4]]),
            (Resampling::Nearest, [[1, -999], [7, 4]]),
            (Resampling::Min, [[1, -999], [7, 4]]),
            (Resampling::Max, [[5, -999], [7, 4]]),
        ] {
            let half = halved(samples.view(), resampling, Some(-999.0)).unwrap();
            assert_eq!(
                half,
                Array3::from_shape_fn((1, 2, 2), |(_, y, x)| expected[y][x]),
                "{resampling}"
            );
        }
        let classes = array![[[4_u8, 2, 0, 9], [0, 2, 9, 1]]];
        let mode = halved(classes.view(), Resampling::Mode, Some(0.0)).unwrap();
        assert_eq!(mode, array![[[2, 9]]]);
        let floats = array![[[1.0_f32, f32::NAN], [2.0, 4.5]]];
        let mean = halved(floats.view(), Resampling::Average, None).unwrap();
        assert_eq!(mean, array![[[2.5]]]);
        let err = halved(floats.view(), Resampling::Cubic, None).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Unsupported);
    }
}
