//! Overviews: each pixel of four of the level before.

use ndarray::{Array3, Axis};

use super::options::Resampling;
use crate::raster::Sample;

/// Halves the rows and columns of (time, y, x) samples, rounding up: at an odd edge a pixel is made of
/// fewer. What holds no data does not count; where nothing does, there is none.
pub(super) fn halved<T: Sample>(
    samples: &Array3<T>,
    resampling: Resampling,
    nodata: Option<f64>,
) -> Array3<T> {
    let (times, height, width) = samples.dim();
    let (high, wide) = (height.div_ceil(2), width.div_ceil(2));
    let mut out = Array3::from_elem((times, high, wide), T::of_number(nodata.unwrap_or(0.0)));
    let is_float = T::DTYPE.is_float();
    for (mut out, from) in out.axis_iter_mut(Axis(0)).zip(samples.axis_iter(Axis(0))) {
        for ((row, col), out) in out.indexed_iter_mut() {
            let (y, x) = (row * 2, col * 2);
            if resampling == Resampling::Nearest {
                *out = from[(y, x)];
                continue;
            }
            let (mut sum, mut count) = (0.0, 0_u32);
            for (y, x) in [(y, x), (y, x + 1), (y + 1, x), (y + 1, x + 1)] {
                let Some(sample) = from.get((y, x)) else {
                    continue;
                };
                let number = sample.number();
                if number.is_nan() || nodata == Some(number) {
                    continue;
                }
                sum += number;
                count += 1;
            }
            if count > 0 {
                let mean = sum / f64::from(count);
                // Halves go up, as GDAL rounds them.
                let mean = if is_float { mean } else { (mean + 0.5).floor() };
                *out = T::of_number(mean);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn a_mean_is_of_what_holds_data() {
        let samples = array![[[1_i16, 2, -999], [3, 5, -999], [7, -999, 4]]];
        let mean = halved(&samples, Resampling::Average, Some(-999.0));
        assert_eq!(mean, array![[[3, -999], [7, 4]]]);
        let nearest = halved(&samples, Resampling::Nearest, Some(-999.0));
        assert_eq!(nearest, array![[[1, -999], [7, 4]]]);
        let floats = array![[[1.0_f32, f32::NAN], [2.0, 4.5]]];
        assert_eq!(halved(&floats, Resampling::Average, None), array![[[2.5]]]);
    }
}
