//! Means of up to four samples, with accumulators that hold the sum exactly.

use std::ops::AddAssign;

use num_complex::Complex;

/// Samples that have a mean.
pub trait Average: super::shrink::Weigh {
    /// The sum of up to four samples.
    type Total: Copy + Default + AddAssign;
    /// Returns the sample as an accumulator.
    fn widened(self) -> Self::Total;
    /// Returns the mean of `count` samples, 1 to 4; means of integers are rounded half up, as in GDAL.
    fn mean(sum: Self::Total, count: u8) -> Self;
    /// Returns true if the sample is neither NaN nor `nodata_sample`.
    fn is_data(self, nodata_sample: Option<Self>) -> bool;
    /// Returns an adjacent sample that differs from this one: the next higher, or the next lower if there is none.
    fn higher(self) -> Self;
    /// Returns true if the sample is the smaller one, of all digits; of complex samples by magnitude.
    fn is_below(self, other: Self) -> bool;
}

macro_rules! whole_numbers {
    ($($type:ty, $sum:ty);*) => {$(
        impl Average for $type {
            type Total = $sum;

            #[inline]
            fn widened(self) -> $sum {
                <$sum>::from(self)
            }

            #[inline]
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a mean lies between the samples"
            )]
            fn mean(sum: $sum, count: u8) -> Self {
                let mean = match count {
                    4 => (sum + 2) >> 2,
                    3 => (2 * sum + 3).div_euclid(6),
                    2 => (sum + 1) >> 1,
                    _ => sum,
                };
                mean as Self
            }

            #[inline]
            fn is_data(self, nodata_sample: Option<Self>) -> bool {
                Some(self) != nodata_sample
            }

            fn higher(self) -> Self {
                self.checked_add(1).unwrap_or(Self::MAX - 1)
            }

            #[inline]
            fn is_below(self, other: Self) -> bool {
                self < other
            }
        }
    )*};
}
whole_numbers!(u8, i32; i8, i32; u16, i32; i16, i32; u32, i64; i32, i64; u64, i128; i64, i128);

impl Average for f32 {
    type Total = f64;

    #[inline]
    fn widened(self) -> f64 {
        f64::from(self)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "rounding is intended")]
    fn mean(sum: f64, count: u8) -> Self {
        (sum / f64::from(count)) as Self
    }

    #[inline]
    fn is_data(self, nodata_sample: Option<Self>) -> bool {
        !self.is_nan() && Some(self) != nodata_sample
    }

    fn higher(self) -> Self {
        // As in GDAL: subnormal numbers are flushed to 0 by some readers.
        if self == 0.0 {
            return Self::MIN_POSITIVE;
        }
        let up = self.next_up();
        if up.is_finite() { up } else { self.next_down() }
    }

    #[inline]
    fn is_below(self, other: Self) -> bool {
        self < other
    }
}

impl Average for f64 {
    type Total = Self;

    #[inline]
    fn widened(self) -> Self {
        self
    }

    #[inline]
    fn mean(sum: Self, count: u8) -> Self {
        sum / Self::from(count)
    }

    #[inline]
    fn is_data(self, nodata_sample: Option<Self>) -> bool {
        !self.is_nan() && Some(self) != nodata_sample
    }

    fn higher(self) -> Self {
        // As in GDAL: subnormal numbers are flushed to 0 by some readers.
        if self == 0.0 {
            return Self::MIN_POSITIVE;
        }
        let up = self.next_up();
        if up.is_finite() { up } else { self.next_down() }
    }

    #[inline]
    fn is_below(self, other: Self) -> bool {
        self < other
    }
}

macro_rules! complex_numbers {
    ($($part:ty),*) => {$(
        impl Average for Complex<$part> {
            type Total = Complex<f64>;

            fn widened(self) -> Complex<f64> {
                Complex::new(self.re.into(), self.im.into())
            }

            fn mean(sum: Complex<f64>, count: u8) -> Self {
                let part = |sum: f64| <$part as Average>::mean(sum, count);
                Self::new(part(sum.re), part(sum.im))
            }

            fn is_data(self, nodata_sample: Option<Self>) -> bool {
                !self.re.is_nan() && !self.im.is_nan() && nodata_sample != Some(self)
            }

            fn higher(self) -> Self {
                Self::new(self.re.higher(), self.im)
            }

            fn is_below(self, other: Self) -> bool {
                self.re.hypot(self.im) < other.re.hypot(other.im)
            }
        }
    )*};
}
complex_numbers!(f32, f64);
