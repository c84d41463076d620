//! The sample types of a warp: how they are compared with nodata, weighted and rounded.

use std::ops::{Add, AddAssign, Mul, Sub};

use num_complex::Complex;

use crate::raster::Sample;

/// A sample that can be copied and compared with nodata.
pub(super) trait Cell: Sample + PartialEq + Send + Sync + 'static {
    /// Returns true if the sample is NaN, or a complex number with a part that is.
    fn is_nan(self) -> bool;
}

/// A real sample.
pub(super) trait Real: Cell + PartialOrd {
    /// The accumulator for sums of few samples; see `Kernel::takes_few`.
    type Sum: Sum;
    /// Returns the sample as `f32`, rounded if it has more digits.
    fn f32(self) -> f32;
    /// Returns the sample, rounded where it has more digits.
    fn f64(self) -> f64;
    /// Returns the sample nearest to a number; halves go up, as GDAL rounds them.
    fn of_f32(number: f32) -> Self;
    /// Returns the sample nearest to a number; halves are rounded up, as in GDAL.
    fn of_f64(number: f64) -> Self;
    /// Returns an adjacent sample: the next lower, or the next higher if there is none.
    fn beside(self) -> Self;
    /// Returns the index of the sample among all values of its type, for types of up to 16 bits.
    fn bin(self) -> Option<usize>;
    /// Returns a hash key: equal for equal samples, and different for different ones.
    fn bits(self) -> u64;
}

/// The number of bins of [`Real::bin`] at most.
pub(super) const BINS: usize = 1 << 16;

/// A float type that accumulates weighted samples.
pub(super) trait Sum:
    Copy + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + AddAssign + Send + Sync
{
    const ZERO: Self;
    fn of(number: f64) -> Self;
    fn of_sample<T: Real>(sample: T) -> Self;
    fn sample<T: Real>(self) -> T;
    /// Returns the fraction of a pixel of a fixed-point position with [`FRACTION`] bits.
    fn fraction(fixed: i64) -> Self;
}

/// The number of fractional bits of a fixed-point position in pixels.
pub(super) const FRACTION: u32 = 40;

impl Sum for f32 {
    const ZERO: Self = 0.0;

    #[expect(clippy::cast_possible_truncation, reason = "rounding is intended")]
    fn of(number: f64) -> Self {
        number as f32
    }

    fn of_sample<T: Real>(sample: T) -> Self {
        sample.f32()
    }

    fn sample<T: Real>(self) -> T {
        T::of_f32(self)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "24 bits remain, which a float holds"
    )]
    #[inline(always)]
    fn fraction(fixed: i64) -> Self {
        const BITS: u32 = 24;
        // SSE2 and AVX2 convert vectors of `i32` to floats, but not of `i64`.
        let part = (fixed >> (FRACTION - BITS)) as i32 & ((1 << BITS) - 1);
        part as f32 * (1.0 / (1 << BITS) as f32)
    }
}

impl Sum for f64 {
    const ZERO: Self = 0.0;

    fn of(number: f64) -> Self {
        number
    }

    fn of_sample<T: Real>(sample: T) -> Self {
        sample.f64()
    }

    fn sample<T: Real>(self) -> T {
        T::of_f64(self)
    }

    #[expect(clippy::cast_precision_loss, reason = "40 bits are exact")]
    #[inline(always)]
    fn fraction(fixed: i64) -> Self {
        const ONE: i64 = 1 << FRACTION;
        (fixed & (ONE - 1)) as f64 * (1.0 / ONE as f64)
    }
}

macro_rules! cells {
    ($($type:ty: |$sample:ident| $is_nan:expr;)*) => {$(
        impl Cell for $type {
            #[inline(always)]
            fn is_nan(self) -> bool {
                let $sample = self;
                $is_nan
            }
        }
    )*};
}
cells! {
    u8: |_s| false;
    i8: |_s| false;
    u16: |_s| false;
    i16: |_s| false;
    u32: |_s| false;
    i32: |_s| false;
    u64: |_s| false;
    i64: |_s| false;
    f32: |s| s.is_nan();
    f64: |s| s.is_nan();
    Complex<f32>: |s| s.re.is_nan() || s.im.is_nan();
    Complex<f64>: |s| s.re.is_nan() || s.im.is_nan();
}

/// Integers that `f32` represents exactly, as well as their halves.
macro_rules! small {
    ($($type:ty),*) => {$(
        #[expect(clippy::allow_attributes, reason = "one macro for all types")]
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_possible_wrap,
            clippy::cast_sign_loss,
            clippy::cast_lossless,
            reason = "the number is whole and clamped to the range"
        )]
        impl Real for $type {
            type Sum = f32;

            #[inline(always)]
            fn f32(self) -> f32 {
                f32::from(self)
            }

            #[inline(always)]
            fn f64(self) -> f64 {
                f64::from(self)
            }

            /// Rounds without a call, so that loops can be vectorised. A sum with `3 << 22` has a last bit of 1,
            /// so the addition rounds to an integer, and the difference of the bit patterns is that integer.
            #[inline(always)]
            fn of_f32(number: f32) -> Self {
                const ROUND: f32 = (3 << 22) as f32;
                const LOW: f32 = <$type>::MIN as f32;
                const HIGH: f32 = <$type>::MAX as f32;
                let up = number + 0.5;
                let up = if up < LOW { LOW } else if up > HIGH { HIGH } else { up };
                let near = (up + ROUND) - ROUND;
                let floor = if near > up { near - 1.0 } else { near };
                let whole = (floor + ROUND).to_bits().wrapping_sub(ROUND.to_bits()) as i32;
                whole as $type
            }

            #[inline(always)]
            fn of_f64(number: f64) -> Self {
                of_number(number, f64::from(<$type>::MIN), f64::from(<$type>::MAX)) as $type
            }

            #[inline(always)]
            fn beside(self) -> Self {
                if self == <$type>::MIN { self + 1 } else { self - 1 }
            }

            #[inline(always)]
            fn bin(self) -> Option<usize> {
                usize::try_from(i32::from(self) - i32::from(<$type>::MIN)).ok()
            }

            fn bits(self) -> u64 {
                self as u64
            }
        }
    )*};
}
small!(u8, i8, u16, i16);

/// Rounds to the nearest integer, halves up, clamped to a range.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "the number is within the range of 32 bits"
)]
#[inline(always)]
fn of_number(number: f64, low: f64, high: f64) -> i64 {
    // NaN becomes `low`: `f64::max` returns the operand that is a number.
    let up = (number + 0.5).max(low).min(high);
    // Without SSE4.1 `floor` is a call into the maths library, which costs more than this.
    let toward_zero = up as i64;
    toward_zero - i64::from(toward_zero as f64 > up)
}

macro_rules! large {
    ($($type:ty => |$number:ident| $round:expr;)*) => {$(
        #[expect(clippy::allow_attributes, reason = "one macro for all types")]
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "what does not fit becomes the end of the range"
        )]
        impl Real for $type {
            // `f32` has 24 significant bits, too few for 32-bit integers.
            type Sum = f64;

            #[inline(always)]
            fn f32(self) -> f32 {
                self as f32
            }

            #[inline(always)]
            fn f64(self) -> f64 {
                self as f64
            }

            #[inline(always)]
            fn of_f32(number: f32) -> Self {
                Self::of_f64(f64::from(number))
            }

            #[inline(always)]
            fn of_f64($number: f64) -> Self {
                $round as $type
            }

            fn beside(self) -> Self {
                if self == <$type>::MIN { self + 1 } else { self - 1 }
            }

            fn bin(self) -> Option<usize> {
                None
            }

            fn bits(self) -> u64 {
                self as u64
            }
        }
    )*};
}
large! {
    u32 => |number| of_number(number, 0.0, f64::from(u32::MAX));
    i32 => |number| of_number(number, f64::from(i32::MIN), f64::from(i32::MAX));
    // The cast to 64 bits saturates, so no clamp is needed.
    u64 => |number| (number + 0.5).floor();
    i64 => |number| (number + 0.5).floor();
}

macro_rules! floats {
    ($($type:ty),*) => {$(
        #[expect(clippy::allow_attributes, reason = "one macro for all types")]
        #[allow(
            clippy::cast_possible_truncation,
            clippy::unnecessary_cast,
            clippy::cast_lossless,
            reason = "one of the types is the same already; rounding is intended"
        )]
        impl Real for $type {
            type Sum = $type;

            #[inline(always)]
            fn f32(self) -> f32 {
                self as f32
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
            fn of_f64(number: f64) -> Self {
                number as $type
            }

            fn beside(self) -> Self {
                if self == <$type>::MIN { self.next_up() } else { self.next_down() }
            }

            fn bin(self) -> Option<usize> {
                None
            }

            fn bits(self) -> u64 {
                // -0.0 equals 0.0 but has other bits.
                if self == 0.0 { 0 } else { self.to_bits() as u64 }
            }
        }
    )*};
}
floats!(f32, f64);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn halves_go_up_and_ends_hold() {
        assert_eq!(i16::of_f32(-0.5), 0);
        assert_eq!(i16::of_f32(-1.5), -1);
        assert_eq!(i16::of_f32(2.5), 3);
        assert_eq!(i16::of_f32(1e9), i16::MAX);
        assert_eq!(i16::of_f32(-1e9), i16::MIN);
        assert_eq!(u8::of_f32(-3.0), 0);
        assert_eq!(u8::of_f32(255.4), 255);
        assert_eq!(u16::of_f32(65_535.7), u16::MAX);
        assert_eq!(i8::of_f64(-128.6), -128);
        assert_eq!(u32::of_f64(4e10), u32::MAX);
        assert_eq!(i32::of_f64(-2.5), -2);
        assert_eq!(i64::of_f64(-2.5), -2);
        assert_eq!(u64::of_f64(-2.5), 0);
        assert_eq!((0_u8.beside(), 7_i16.beside()), (1, 6));
        assert!(5.0_f32.beside() < 5.0);
    }

    proptest! {
        #[test]
        fn both_ways_round_the_same(number in -40_000.0..70_000.0_f32) {
            let wide = f64::from(number);
            prop_assert_eq!(i16::of_f32(number), i16::of_f64(f64::from(number + 0.5) - 0.5));
            prop_assert_eq!(u16::of_f32(number), (f64::from(number + 0.5)).floor() as u16);
            prop_assert_eq!(i32::of_f64(wide), (wide + 0.5).floor() as i32);
        }

        #[test]
        fn a_fraction_is_what_is_left_of_a_place(place in -1e6..1e6_f64) {
            let fixed = (place * (1_i64 << FRACTION) as f64) as i64;
            let expected = place - place.floor();
            prop_assert!((f64::fraction(fixed) - expected).abs() < 1e-9);
            prop_assert!((f64::from(f32::fraction(fixed)) - expected).abs() < 1e-6);
        }
    }
}
