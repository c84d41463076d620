//! Samples of a tile's row: byte order, predictors, and the sample formats that are widened.

use crate::{
    error::{Error, ErrorKind, Result},
    raster::{Complex, DataType, Number, Sample, with_type},
};

/// A sample type, read from a row of a tile.
///
/// `out` gets the samples from `skip` on; if the row is too short, the rest of `out` is unchanged.
pub(in crate::reader) trait Value: Sample + Default + Send + 'static {
    /// Reads samples without a predictor.
    fn plain(row: &[u8], little_endian: bool, skip: usize, out: &mut [Self]);
    /// Undoes predictor 2, horizontal differencing: each sample is stored as its difference to the same
    /// band of the pixel before.
    fn differences(
        row: &[u8],
        little_endian: bool,
        per_pixel: usize,
        skip: usize,
        out: &mut [Self],
    );
    /// Returns a sample of up to 32 bits: an integer by its value, a float by its bit pattern.
    fn of_bits(bits: u32) -> Self;
    /// Returns a sample of a complex integer; its real part for types that are not complex.
    fn of_parts(real: i32, imaginary: i32) -> Self;
    /// Undoes predictor 3, floating point: the bytes of a row's floats are grouped into planes by
    /// significance, and each byte is stored as its difference to the one before.
    fn floating(row: &[u8], per_pixel: usize, skip: usize, out: &mut [Self]) -> Result<()>;
}

macro_rules! plain {
    ($type:ty) => {
        fn plain(row: &[u8], little_endian: bool, skip: usize, out: &mut [Self]) {
            let (values, _) = row.as_chunks::<{ size_of::<$type>() }>();
            let values = values.get(skip..).unwrap_or_default();
            if little_endian {
                for (out, bytes) in out.iter_mut().zip(values) {
                    *out = Self::from_le_bytes(*bytes);
                }
            } else {
                for (out, bytes) in out.iter_mut().zip(values) {
                    *out = Self::from_be_bytes(*bytes);
                }
            }
        }
    };
}

macro_rules! whole_values {
    ($($type:ty),*) => {$(
        impl Value for $type {
            plain!($type);

            fn of_bits(bits: u32) -> Self {
                bits as Self
            }

            fn of_parts(real: i32, _: i32) -> Self {
                real as Self
            }

            fn differences(
                row: &[u8],
                little_endian: bool,
                per_pixel: usize,
                skip: usize,
                out: &mut [Self],
            ) {
                let (values, _) = row.as_chunks::<{ size_of::<$type>() }>();
                let read = |bytes: &[u8; size_of::<$type>()]| {
                    if little_endian { Self::from_le_bytes(*bytes) } else { Self::from_be_bytes(*bytes) }
                };
                // A sum of differences needs all samples from the row's start, also those that are
                // skipped. Wrapping: differences are stored modulo the type's range.
                if per_pixel > 1 {
                    let mut sums: Vec<Self> = vec![0; per_pixel];
                    let mut index: usize = 0;
                    for pixel in values.chunks(per_pixel) {
                        for (sum, bytes) in sums.iter_mut().zip(pixel) {
                            *sum = sum.wrapping_add(read(bytes));
                            if let Some(out) = index.checked_sub(skip).and_then(|at| out.get_mut(at)) {
                                *out = *sum;
                            }
                            index += 1;
                        }
                    }
                    return;
                }
                let (skipped, values) = values.split_at_checked(skip).unwrap_or((values, &[]));
                let mut sum: Self = skipped.iter().fold(0, |sum: Self, bytes| sum.wrapping_add(read(bytes)));
                // One band has a loop of its own, whose sum stays in a register.
                for (out, bytes) in out.iter_mut().zip(values) {
                    sum = sum.wrapping_add(read(bytes));
                    *out = sum;
                }
            }

            fn floating(_: &[u8], _: usize, _: usize, _: &mut [Self]) -> Result<()> {
                Err(Error::new(
                    ErrorKind::Corrupt,
                    "predictor 3 (floating point) with integer samples",
                ))
            }
        }
    )*};
}
whole_values!(u8, i8, u16, i16, u32, i32, u64, i64);

macro_rules! float_values {
    ($($type:ty => $bits:ty),*) => {$(
        impl Value for $type {
            plain!($type);

            fn of_bits(bits: u32) -> Self {
                Self::from(f32::from_bits(bits))
            }

            fn of_parts(real: i32, _: i32) -> Self {
                real as Self
            }

            /// Predictor 2 treats the bits of a float as an integer, as libtiff does.
            fn differences(
                row: &[u8],
                little_endian: bool,
                per_pixel: usize,
                skip: usize,
                out: &mut [Self],
            ) {
                let mut bits: Vec<$bits> = vec![0; out.len()];
                <$bits>::differences(row, little_endian, per_pixel, skip, &mut bits);
                for (out, bits) in out.iter_mut().zip(bits) {
                    *out = Self::from_bits(bits);
                }
            }

            /// See Adobe Photoshop TIFF Technical Note 3.
            fn floating(row: &[u8], per_pixel: usize, skip: usize, out: &mut [Self]) -> Result<()> {
                const BYTES: usize = size_of::<$type>();
                let bytes = byte_planes(row, per_pixel);
                let count = bytes.len() / BYTES;
                // The most significant bytes of all samples come first, whatever the file's byte order.
                let mut planes = bytes.chunks_exact(count.max(1));
                let planes: [&[u8]; BYTES] =
                    std::array::from_fn(|_| planes.next().and_then(|plane| plane.get(skip..)).unwrap_or_default());
                let length = planes.iter().map(|plane| plane.len()).min().unwrap_or(0);
                for (at, out) in out.iter_mut().take(length).enumerate() {
                    *out = Self::from_be_bytes(planes.map(|plane| plane.get(at).copied().unwrap_or(0)));
                }
                Ok(())
            }
        }
    )*};
}
float_values!(f32 => u32, f64 => u64);

macro_rules! complex_values {
    ($($part:ty),*) => {$(
        impl Value for Complex<$part> {
            fn plain(row: &[u8], little_endian: bool, skip: usize, out: &mut [Self]) {
                let mut parts: Vec<$part> = vec![0.0; 2 * out.len()];
                <$part>::plain(row, little_endian, 2 * skip, &mut parts);
                let (pairs, _) = parts.as_chunks::<2>();
                for (out, [re, im]) in out.iter_mut().zip(pairs) {
                    *out = Self { re: *re, im: *im };
                }
            }

            /// Does nothing: `Level::check` refuses this predictor for complex samples.
            fn differences(_: &[u8], _: bool, _: usize, _: usize, _: &mut [Self]) {}

            fn of_bits(bits: u32) -> Self {
                Self::from(<$part>::of_bits(bits))
            }

            fn of_parts(real: i32, imaginary: i32) -> Self {
                Self {
                    re: <$part>::of_parts(real, 0),
                    im: <$part>::of_parts(imaginary, 0),
                }
            }

            fn floating(_: &[u8], _: usize, _: usize, _: &mut [Self]) -> Result<()> {
                Err(Error::new(ErrorKind::Unsupported, "predictor 3 with complex samples"))
            }
        }
    )*};
}
complex_values!(f32, f64);

/// Reads complex integers whose parts have 16 or 32 bits.
pub(super) fn complex_parts<T: Value>(
    row: &[u8],
    bits: u8,
    little_endian: bool,
    skip: usize,
    out: &mut [T],
) {
    let mut parts = vec![0_i32; 2 * out.len()];
    if bits == 16 {
        let mut narrow = vec![0_i16; parts.len()];
        i16::plain(row, little_endian, 2 * skip, &mut narrow);
        for (part, narrow) in parts.iter_mut().zip(narrow) {
            *part = i32::from(narrow);
        }
    } else {
        i32::plain(row, little_endian, 2 * skip, &mut parts);
    }
    let (pairs, _) = parts.as_chunks::<2>();
    for (out, [real, imaginary]) in out.iter_mut().zip(pairs) {
        *out = T::of_parts(*real, *imaginary);
    }
}

/// Returns `count` bits from bit `start` on, counted from the highest bit of the first byte.
pub(super) fn bits(row: &[u8], start: usize, count: u8) -> u32 {
    // Eight bytes hold up to 32 bits at any of the eight positions in a byte; past the row they are 0.
    let first = start / 8;
    let mut window = [0; 8];
    if let Some(rest) = row.get(first..) {
        for (byte, stored) in window.iter_mut().zip(rest) {
            *byte = *stored;
        }
    }
    let shifted = u64::from_be_bytes(window) << (start % 8);
    u32::try_from(shifted >> (64 - u32::from(count.clamp(1, 32)))).unwrap_or(0)
}

/// Returns half floats as bit patterns, with the predictor undone.
pub(super) fn halves(
    row: &[u8],
    little_endian: bool,
    per_pixel: usize,
    predictor: u16,
    skip: usize,
    count: usize,
) -> Vec<u16> {
    let mut out = vec![0; count];
    match predictor {
        2 => u16::differences(row, little_endian, per_pixel, skip, &mut out),
        3 => {
            let planes = byte_planes(row, per_pixel);
            let half = planes.len() / 2;
            let (high, low) = planes.split_at(half);
            let pairs = high.iter().zip(low).skip(skip);
            for (out, (high, low)) in out.iter_mut().zip(pairs) {
                *out = u16::from_be_bytes([*high, *low]);
            }
        }
        _ => u16::plain(row, little_endian, skip, &mut out),
    }
    out
}

/// Returns values of three bytes, with predictor 3 undone.
pub(super) fn threes(
    row: &[u8],
    little_endian: bool,
    per_pixel: usize,
    predictor: u16,
) -> Vec<u32> {
    if predictor == 3 {
        let planes = byte_planes(row, per_pixel);
        let third = planes.len() / 3;
        let at = |index: usize| planes.get(index).copied().unwrap_or(0);
        return (0..third)
            .map(|n| u32::from_be_bytes([0, at(n), at(third + n), at(2 * third + n)]))
            .collect();
    }
    let (values, _) = row.as_chunks::<3>();
    values
        .iter()
        .map(|&[a, b, c]| match little_endian {
            true => u32::from_le_bytes([a, b, c, 0]),
            false => u32::from_be_bytes([0, a, b, c]),
        })
        .collect()
}

/// Undoes the byte differences of predictor 3.
fn byte_planes(row: &[u8], per_pixel: usize) -> Vec<u8> {
    let mut bytes = vec![0; row.len()];
    u8::differences(row, true, per_pixel, 0, &mut bytes);
    bytes
}

/// Returns a half float (1 bit of sign, 5 of exponent, 10 of fraction) as the bits of an `f32`.
pub(super) fn float_of_half(half: u16) -> u32 {
    widen(u32::from(half), 5, 10)
}

/// Returns a float of three bytes (1 bit of sign, 7 of exponent, 16 of fraction) as the bits of an `f32`.
pub(super) fn float_of_three(value: u32) -> u32 {
    widen(value, 7, 16)
}

/// Widens a float of `exponent` and `fraction` bits to an `f32`, which holds each of its values exactly.
fn widen(value: u32, exponent: u32, fraction: u32) -> u32 {
    let sign = (value >> (exponent + fraction) & 1) << 31;
    let most = (1 << exponent) - 1;
    let power = value >> fraction & most;
    let digits = value & ((1 << fraction) - 1);
    let bias = (1 << (exponent - 1)) - 1;
    let wide = digits << (23 - fraction);
    // All exponent bits set: infinity or NaN, in both types.
    if power == most {
        return sign | 0x7F80_0000 | wide;
    }
    if power > 0 {
        return sign | (power + 127 - bias) << 23 | wide;
    }
    if digits == 0 {
        return sign;
    }
    // A subnormal number is a normal one in the wider exponent: its leading 1 becomes the implicit bit.
    let shift = digits.leading_zeros() - (31 - fraction);
    let digits = digits << shift & ((1 << fraction) - 1);
    sign | (128 - bias - shift) << 23 | digits << (23 - fraction)
}

/// Returns the fill value of sparse tiles: nodata if the type can hold it, else zero, as GDAL does.
pub(in crate::reader) fn fill<T: Value>(nodata: Option<Number>) -> T {
    let bytes = nodata.map_or_else(
        || vec![0; size_of::<T>()],
        |nodata| le_bytes(T::DTYPE, nodata),
    );
    let mut out = [T::default()];
    T::plain(&bytes, true, 0, &mut out);
    let [value] = out;
    value
}

/// Returns the bytes of a number as a sample of a type; zeros if the type has no such value.
fn le_bytes(dtype: DataType, value: Number) -> Vec<u8> {
    fn bytes<T: Sample>(value: Number) -> Vec<u8> {
        let mut bytes = vec![0; T::DTYPE.size()];
        if let Some(sample) = T::exact(value) {
            T::put_le([sample].iter(), &mut bytes);
        }
        bytes
    }
    with_type!(dtype, T => bytes::<T>(value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn differences_are_summed_per_band() {
        let row: Vec<u8> = [10_i16, 1, -3, 5, 2, -4]
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let sums = |per_pixel, skip: usize| {
            let mut out = vec![0; 6 - skip];
            i16::differences(&row, true, per_pixel, skip, &mut out);
            out
        };
        assert_eq!(sums(1, 0), [10, 11, 8, 13, 15, 11]);
        assert_eq!(sums(1, 2), [8, 13, 15, 11]);
        assert_eq!(sums(3, 0), [10, 1, -3, 15, 3, -7]);
        assert_eq!(sums(3, 3), [15, 3, -7]);
    }

    #[test]
    fn floats_are_put_together_from_their_bytes() {
        // Two values, 1.0 and -2.5: bytes by significance, then differences.
        let values = [1.0_f32, -2.5];
        let planes: Vec<u8> = (0..4)
            .flat_map(|place| values.map(|value| value.to_be_bytes()[place]))
            .collect();
        let coded: Vec<u8> = (0..planes.len())
            .map(|at| planes[at].wrapping_sub(if at == 0 { 0 } else { planes[at - 1] }))
            .collect();
        let mut out = [0.0; 2];
        f32::floating(&coded, 1, 0, &mut out).unwrap();
        assert_eq!(out, values);
        let mut out = [0.0; 1];
        f32::floating(&coded, 1, 1, &mut out).unwrap();
        assert_eq!(out, values[1..]);
    }

    #[test]
    fn nodata_fills_only_what_can_hold_it() {
        assert_eq!(fill::<i16>(Some((-999.0).into())), -999);
        assert_eq!(fill::<u8>(Some((-999.0).into())), 0);
        assert!(fill::<f32>(Some(f64::NAN.into())).is_nan());
        assert_eq!(fill::<u16>(None), 0);
    }

    #[test]
    fn bits_are_taken_highest_first() {
        let row = [0b1010_0101, 0b1100_0011, 0b1111_0000];
        let all = |count: u8, n: usize| -> Vec<u32> {
            (0..n)
                .map(|at| bits(&row, at * usize::from(count), count))
                .collect()
        };
        assert_eq!(all(1, 8), [1, 0, 1, 0, 0, 1, 0, 1]);
        assert_eq!(all(4, 6), [10, 5, 12, 3, 15, 0]);
        assert_eq!(all(12, 2), [0xA5C, 0x3F0]);
    }

    #[test]
    fn narrow_floats_are_widened_without_loss() {
        for (half, value) in [
            (0x0000_u16, 0.0_f32),
            (0x8000, -0.0),
            (0x3C00, 1.0),
            (0xC500, -5.0),
            (0x7BFF, 65504.0),
            (0x0001, 5.960_464_5e-8),
            (0x03FF, 6.097_555e-5),
            (0x7C00, f32::INFINITY),
        ] {
            assert_eq!(float_of_half(half), value.to_bits(), "{half:x}");
        }
        assert!(f32::from_bits(float_of_half(0x7E00)).is_nan());
        // 1.0 and -2.5 with 7 bits of exponent.
        assert_eq!(float_of_three(0x3F_0000), 1.0_f32.to_bits());
        assert_eq!(float_of_three(0xC0_4000), (-2.5_f32).to_bits());
    }

    /// Undoes predictor 2 as the specification words it: one sample after another.
    fn one_by_one<T: Copy>(stored: &[T], per_pixel: usize, add: impl Fn(T, T) -> T) -> Vec<T> {
        let mut out = stored.to_vec();
        for at in per_pixel..out.len() {
            out[at] = add(out[at], out[at - per_pixel]);
        }
        out
    }

    macro_rules! agrees {
        ($name:ident, $type:ty) => {
            proptest! {
                #[test]
                fn $name(
                    stored in prop::collection::vec(any::<$type>(), 0..200),
                    skip in 0usize..40,
                    per_pixel in 1usize..4,
                    little_endian: bool,
                ) {
                    let row: Vec<u8> = stored
                        .iter()
                        .flat_map(|v| if little_endian { v.to_le_bytes() } else { v.to_be_bytes() })
                        .collect();
                    let right = one_by_one(&stored, per_pixel, <$type>::wrapping_add);
                    let right = right.get(skip..).unwrap_or_default();
                    let mut out = vec![0; right.len()];
                    <$type>::differences(&row, little_endian, per_pixel, skip, &mut out);
                    prop_assert_eq!(&out[..], right);
                }
            }
        };
    }
    agrees!(sums_agree_for_u8, u8);
    agrees!(sums_agree_for_i16, i16);
    agrees!(sums_agree_for_u32, u32);
    agrees!(sums_agree_for_i64, i64);
}
