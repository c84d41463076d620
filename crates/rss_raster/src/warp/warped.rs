//! The sample types that can be warped, and complex samples as two real ones.

use ndarray::{Array2, ArrayViewMut2, Zip};
use num_complex::Complex;

use super::{SourcePixels, Warp, sample::Real as _};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::Window,
    raster::{Resampling, Sample, nodata_sample},
};

/// A sample type that can be warped: each [`Sample`].
pub trait Warped: Sample + Send + Sync + 'static {
    /// Does what [`Warp::resample`] does, after its input is checked.
    ///
    /// # Errors
    ///
    /// As [`Warp::resample`].
    fn resample(
        warp: &Warp,
        source: &SourcePixels<'_, Self>,
        target: &Window,
        out: ArrayViewMut2<'_, Self>,
    ) -> Result<usize>;
}

macro_rules! warped {
    ($($type:ty),*) => {$(
        impl Warped for $type {
            fn resample(
                warp: &Warp,
                source: &SourcePixels<'_, Self>,
                target: &Window,
                out: ArrayViewMut2<'_, Self>,
            ) -> Result<usize> {
                Ok(warp.real(source, nodata_sample(source.nodata), target, out))
            }
        }
    )*};
}
warped!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

/// Complex samples are warped as two real ones with a common mask: both parts are valid, or neither.
macro_rules! warped_complex {
    ($($part:ty),*) => {$(
        impl Warped for Complex<$part> {
            fn resample(
                warp: &Warp,
                source: &SourcePixels<'_, Self>,
                target: &Window,
                mut out: ArrayViewMut2<'_, Self>,
            ) -> Result<usize> {
                let resampling = warp.kernel.resampling;
                if !matches!(
                    resampling,
                    Resampling::Nearest | Resampling::Bilinear | Resampling::Average
                ) {
                    return Err(Error::new(
                        ErrorKind::Unsupported,
                        format!("resampling of complex samples by {resampling}; expected nearest, bilinear or average"),
                    ));
                }
                let nodata_sample = nodata_sample::<Self>(source.nodata);
                let is_data = |sample: &Self| !sample.is_nan() && nodata_sample != Some(*sample);
                let mut mask = source.pixels.map(is_data);
                if let Some(given) = &source.mask {
                    mask.zip_mut_with(given, |valid, given| *valid &= *given);
                }
                if resampling == Resampling::Nearest {
                    let source = SourcePixels {
                        mask: Some(mask.view()),
                        ..source.clone()
                    };
                    return Ok(warp.nearest(&source, target, out));
                }
                let part = |of: fn(&Self) -> $part| {
                    let pixels = source.pixels.map(of);
                    let source = SourcePixels {
                        pixels: pixels.view(),
                        window: source.window,
                        nodata: None,
                        mask: Some(mask.view()),
                    };
                    let mut part = Array2::from_elem(out.dim(), <$part>::NAN);
                    let count = warp.real(&source, None, target, part.view_mut());
                    (part, count)
                };
                let (re, count) = part(|sample| sample.re);
                let (im, _) = part(|sample| sample.im);
                Zip::from(&mut out).and(&re).and(&im).for_each(|out, &re, &im| {
                    if !re.is_nan() {
                        let value = Complex::new(re, im);
                        *out = match nodata_sample == Some(value) {
                            true => Complex::new(re.beside(), im),
                            false => value,
                        };
                    }
                });
                Ok(count)
            }
        }
    )*};
}
warped_complex!(f32, f64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        error::ErrorKind,
        geo::{Crs, GeoBox},
    };

    #[test]
    fn complex_samples_are_two_numbers() {
        let from = GeoBox::of_bounds(Crs::Epsg(32755), [0.0, 0.0, 10.0, 10.0], 1.0).unwrap();
        let mut to = from.clone();
        if let Some(transform) = &mut to.transform {
            transform.0[0] += 0.5;
            transform.0[3] -= 0.5;
        }
        let mut pixels =
            Array2::from_shape_fn((10, 10), |(y, x)| Complex::new(x as f32, -(y as f32)));
        pixels[(0, 0)] = Complex::new(f32::NAN, 1.0);
        let whole = Window::whole(from.size);
        let source = SourcePixels {
            pixels: pixels.view(),
            window: whole,
            nodata: None,
            mask: None,
        };
        let fill = Complex::new(-1.0, -1.0);
        let run = |resampling| {
            let warp = Warp::new(&from, &to, resampling, 0.125).unwrap();
            let mut out = Array2::from_elem((10, 10), fill);
            let count = warp.resample(&source, &whole, out.view_mut())?;
            assert_eq!(count, out.iter().filter(|&&pixel| pixel != fill).count());
            Ok::<_, Error>(out)
        };
        for resampling in [Resampling::Bilinear, Resampling::Average] {
            let out = run(resampling).unwrap();
            assert_eq!(out[(3, 4)], Complex::new(4.5, -3.5));
            // The NaN among the four neighbours does not count.
            assert_eq!(out[(0, 0)], Complex::new(2.0 / 3.0, -2.0 / 3.0));
        }
        let nearest = run(Resampling::Nearest).unwrap();
        assert_eq!(nearest[(3, 4)], Complex::new(5.0, -4.0));
        let err = run(Resampling::Cubic).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Unsupported);
        assert_eq!(
            err.message(),
            "resampling of complex samples by cubic; expected nearest, bilinear or average"
        );
    }

    /// gdalwarp compares both parts too, the imaginary one with 0.
    #[test]
    fn complex_nodata_is_a_number_and_not_a_magnitude() {
        let from = GeoBox::of_bounds(Crs::Epsg(32755), [0.0, 0.0, 2.0, 1.0], 1.0).unwrap();
        let to = from.with_resolution(2.0).unwrap();
        let number = |re, im| Complex::<f64>::new(re, im);
        for (pair, nodata, expected) in [
            (
                [number(-9999.0, 0.0), number(1.0, 2.0)],
                -9999.0,
                number(1.0, 2.0),
            ),
            ([number(5.0, 0.0), number(3.0, 4.0)], 5.0, number(3.0, 4.0)),
            (
                [number(-5.0, 0.0), number(0.0, 5.0)],
                5.0,
                number(-2.5, 2.5),
            ),
            // A computed value that equals nodata becomes an adjacent one.
            (
                [number(4.0, 1.0), number(6.0, -1.0)],
                5.0,
                number(5.0_f64.next_down(), 0.0),
            ),
        ] {
            let pixels = Array2::from_shape_fn((1, 2), |(_, x)| pair[x]);
            let source = SourcePixels {
                pixels: pixels.view(),
                window: Window::whole(from.size),
                nodata: Some(nodata.into()),
                mask: None,
            };
            let warp = Warp::new(&from, &to, Resampling::Average, 0.125).unwrap();
            let mut out = Array2::from_elem((1, 1), number(0.0, 0.0));
            let whole = Window::whole(to.size);
            let count = warp.resample(&source, &whole, out.view_mut()).unwrap();
            assert_eq!((count, out[(0, 0)]), (1, expected), "{pair:?}");
        }
    }
}
