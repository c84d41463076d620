//! The codec of the files that are compared, without a reader around it: DEFLATE and predictor 2, int16.

use anyhow::{Result, ensure};
use libdeflater::Decompressor;

/// Inflates a tile of rows so wide, and undoes predictor 2 row by row.
pub(crate) fn decode(
    inflater: &mut Decompressor,
    stored: &[u8],
    width: usize,
    raw: &mut [u8],
    samples: &mut [i16],
) -> Result<()> {
    let length = inflater.zlib_decompress(stored, raw)?;
    ensure!(length == raw.len(), "a tile of {length} bytes");
    let rows = raw
        .chunks_exact(width * 2)
        .zip(samples.chunks_exact_mut(width));
    for (row, samples) in rows {
        let mut sum = 0_i16;
        let (pairs, _) = row.as_chunks::<2>();
        for (pair, sample) in pairs.iter().zip(samples) {
            sum = sum.wrapping_add(i16::from_le_bytes(*pair));
            *sample = sum;
        }
    }
    Ok(())
}
