//! The pixels of the files that are compared: a smooth field, and noise that sets how well they compress.

/// Returns a pixel: the field, and noise of a given amplitude.
pub(crate) fn noisy(seed: u64, amplitude: u64, col: u32, row: u32) -> i16 {
    let wave = |value: u32, period: u32| {
        let phase = value % period;
        u64::from(phase.min(period - phase))
    };
    // The finaliser of splitmix64: every bit of the key stirs every bit of the result.
    let mut z =
        (seed << 48 ^ u64::from(row) << 24 ^ u64::from(col)).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    let value = 5000 + wave(col, 1400) + wave(row, 1100) + z % amplitude.max(1);
    i16::try_from(value).unwrap_or(i16::MAX)
}
