//! Samples of 16-bit floats, `float16`: stored as such, and `float32` to who reads and writes them.
//!
//! Widening is exact, NaNs with their bits; narrowing rounds to the nearest, ties to even, and past 65,504 to infinity.

/// Returns the `f32` of a 16-bit float: 1 bit of sign, 5 of exponent, 10 of fraction.
pub(super) fn widened(bits: u16) -> f32 {
    let sign = u32::from(bits >> 15) << 31;
    let exponent = u32::from((bits >> 10) & 31);
    let fraction = u32::from(bits & 1023);
    match exponent {
        // Subnormal, or zero: the fraction counts units of 2^-24.
        0 => {
            let magnitude = f32::from(bits & 1023) / 16_777_216.0;
            f32::from_bits(magnitude.to_bits() | sign)
        }
        31 => f32::from_bits(sign | 0x7f80_0000 | (fraction << 13)),
        _ => f32::from_bits(sign | ((exponent + 112) << 23) | (fraction << 13)),
    }
}

/// Returns the 16-bit float nearest to a value.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the values are masked, or small by construction"
)]
pub(super) fn narrowed(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        // A NaN keeps its upper bits, and stays a NaN where only lower ones were set.
        let fraction = ((magnitude >> 13) & 1023) as u16;
        return sign | 0x7c00 | if fraction == 0 { 0x200 } else { fraction };
    }
    // From half a unit past 65,504 on.
    if magnitude >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    let (kept, dropped) = match magnitude >> 23 {
        // Normal: rounding may carry into the exponent, which is right.
        exponent if exponent >= 113 => (magnitude - (112 << 23), 13),
        // Below half of the least subnormal, 2^-25.
        exponent if exponent < 102 => return sign,
        // Subnormal, in units of 2^-24.
        exponent => ((magnitude & 0x007f_ffff) | 0x0080_0000, 126 - exponent),
    };
    let half = 1_u32 << (dropped - 1);
    let rest = kept & ((1 << dropped) - 1);
    let floor = kept >> dropped;
    let up = rest > half || (rest == half && floor & 1 == 1);
    sign | (floor + u32::from(up)) as u16
}

/// Returns little-endian samples of 16 bits as those of 32.
pub(super) fn widen(bytes: &[u8]) -> Vec<u8> {
    let (halves, _) = bytes.as_chunks::<2>();
    halves
        .iter()
        .flat_map(|half| widened(u16::from_le_bytes(*half)).to_le_bytes())
        .collect()
}

/// Returns little-endian samples of 32 bits as those of 16.
pub(super) fn narrow(bytes: &[u8]) -> Vec<u8> {
    let (words, _) = bytes.as_chunks::<4>();
    words
        .iter()
        .flat_map(|word| narrowed(f32::from_le_bytes(*word)).to_le_bytes())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_half_float_survives_both_ways() {
        for bits in 0..=u16::MAX {
            assert_eq!(narrowed(widened(bits)), bits, "{bits:04x}");
        }
        // numpy.frombuffer(bytes, "<f2")
        for (bits, value) in [
            (0x3c00, 1.0),
            (0x3555, 0.333_251_95),
            (0x7bff, 65_504.0),
            (0xc000, -2.0),
            (0x0001, 5.960_464_5e-8),
            (0x0400, 6.103_515_6e-5),
            (0xfc00, f32::NEG_INFINITY),
        ] {
            assert_eq!(widened(bits).to_bits(), f32::to_bits(value), "{bits:04x}");
        }
    }

    #[test]
    fn a_value_between_two_half_floats_goes_to_the_nearer() {
        // numpy.float32(value).astype("float16")
        for (value, bits) in [
            (1.000_488_3, 0x3c00),
            (1.000_488_4, 0x3c01),
            (1.001_464_8, 0x3c02),
            (65_519.996, 0x7bff),
            (65_520.0, 0x7c00),
            (2.980_232_2e-8, 0x0000),
            (2.980_232_5e-8, 0x0001),
            (8.940_697e-8, 0x0002),
            (6.102_e-5, 0x0400),
            (-1e30, 0xfc00),
        ] {
            assert_eq!(narrowed(value), bits, "{value}");
        }
        assert!(widened(narrowed(f32::NAN)).is_nan());
    }
}
