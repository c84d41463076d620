//! Decoding of a compressed tile to samples, straight into the output. No IO.

use super::{
    codec::decompress,
    last_word,
    level::{Level, Stored},
    samples::{self, Value},
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::Window,
    raster::Slot,
};

/// Decoded bytes of one tile: a header that states a huge tile must not take all memory.
const MOST_TILE_BYTES: usize = 512 << 20;

/// Bytes of one row of a tile in its data type. Rows are unpacked one by one into a buffer of this size.
const MOST_ROW_BYTES: usize = 256 << 20;

/// A tile, and the wanted window of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TileJob {
    /// The complete tile, padding at the image's edge included, in pixels of the level.
    pub(super) tile: Window,
    /// The part of it that is wanted.
    pub(super) wanted: Window,
}

/// A band in a tile, and its slot in the output.
pub(super) struct BandTarget<T> {
    /// The index of the band's sample in a pixel.
    pub(super) in_tile: usize,
    pub(super) slot: Slot<T>,
}

/// Returns the decoded bytes of a tile of `level`.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] if a tile is past the limit.
pub(super) fn tile_bytes(level: &Level) -> Result<usize> {
    let samples = if level.planar { 1 } else { level.bands };
    // Packed samples (of 1 bit, say) take the size of their data type once they are unpacked.
    let unpacked = usize::try_from(level.tile.width)
        .ok()
        .and_then(|width| width.checked_mul(samples)?.checked_mul(level.dtype.size()));
    unpacked
        .filter(|&row| row <= MOST_ROW_BYTES)
        .and_then(|_| level.row_bytes())
        .zip(usize::try_from(level.tile.height).ok())
        .and_then(|(row, height)| row.checked_mul(height))
        .filter(|&bytes| bytes <= MOST_TILE_BYTES)
        .ok_or_else(|| {
            last_word(
                ErrorKind::Unsupported,
                format!(
                    "tiles of {} x {} x {samples} samples are past the limit of {} MiB; `--backend gdal` reads \
                     larger ones where RSS_GDAL_BLOCK_BYTES allows them",
                    level.tile.width,
                    level.tile.height,
                    MOST_TILE_BYTES >> 20
                ),
            )
        })
}

/// Decodes one tile into its slots.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`] if the bytes do not match the level.
pub(super) fn decode<T: Value>(
    level: &Level,
    little_endian: bool,
    bytes: &[u8],
    job: &TileJob,
    targets: &mut [BandTarget<T>],
) -> Result<()> {
    let length = tile_bytes(level)?;
    // The last strip stores only the rows inside the image; some writers do so with tiles, too.
    let rows_there = level.tile.height.min(level.size.height - job.tile.row);
    let whole_rows = usize::try_from(level.tile.height).unwrap_or(1).max(1);
    let least = length / whole_rows * usize::try_from(rows_there).unwrap_or(0);
    decompress(level, little_endian, bytes, length, least, |raw| {
        let rows = TileRows {
            raw,
            row_bytes: length / whole_rows,
            stored: level.stored,
            per_pixel: if level.planar { 1 } else { level.bands },
            predictor: level.predictor,
            little_endian,
        };
        rows.write(job, targets)
    })
}

/// The rows of a decompressed tile.
struct TileRows<'a> {
    raw: &'a [u8],
    row_bytes: usize,
    stored: Stored,
    per_pixel: usize,
    predictor: u16,
    little_endian: bool,
}

impl TileRows<'_> {
    fn write<T: Value>(&self, job: &TileJob, targets: &mut [BandTarget<T>]) -> Result<()> {
        let first_row = (job.wanted.row - job.tile.row) as usize;
        let first_col = (job.wanted.col - job.tile.col) as usize;
        let height = job.wanted.height as usize;
        if let (1, [target]) = (self.per_pixel, &mut *targets) {
            for row in 0..height {
                let out = target.slot.row(row).ok_or_else(ends_early)?;
                self.read(first_row + row, first_col, out)?;
            }
            return Ok(());
        }
        // Pixel-interleaved bands: a row is read with all bands, and then split into their slots.
        let mut pixels = vec![T::default(); job.wanted.width as usize * self.per_pixel];
        for row in 0..height {
            self.read(first_row + row, first_col * self.per_pixel, &mut pixels)?;
            for BandTarget { in_tile, slot } in &mut *targets {
                let out = slot.row(row).ok_or_else(ends_early)?;
                for (out, pixel) in out.iter_mut().zip(pixels.chunks_exact(self.per_pixel)) {
                    *out = pixel.get(*in_tile).copied().unwrap_or_default();
                }
            }
        }
        Ok(())
    }

    /// Reads the samples of a row from `skip` on.
    fn read<T: Value>(&self, row: usize, skip: usize, out: &mut [T]) -> Result<()> {
        let stored = self
            .raw
            .get(row * self.row_bytes..(row + 1) * self.row_bytes)
            .ok_or_else(ends_early)?;
        let little_endian = self.little_endian;
        // `Value`'s methods leave samples past the row unchanged: a short row must be an error here.
        let there = |bytes_each: usize| {
            let wanted = skip.saturating_add(out.len()).saturating_mul(bytes_each);
            (wanted <= stored.len())
                .then_some(())
                .ok_or_else(ends_early)
        };
        match (self.stored, self.predictor) {
            (Stored::Whole, 2) => {
                there(size_of::<T>())?;
                T::differences(stored, little_endian, self.per_pixel, skip, out);
            }
            (Stored::Whole, 3) => {
                there(size_of::<T>())?;
                T::floating(stored, self.per_pixel, skip, out)?;
            }
            (Stored::Whole, _) => {
                there(size_of::<T>())?;
                T::plain(stored, little_endian, skip, out);
            }
            (Stored::Bits(bits), _) => {
                let wanted = skip.saturating_add(out.len());
                if wanted.saturating_mul(usize::from(bits)) > stored.len() * 8 {
                    return Err(ends_early());
                }
                for (at, out) in out.iter_mut().enumerate() {
                    *out = T::of_bits(samples::bits(stored, (skip + at) * usize::from(bits), bits));
                }
            }
            (Stored::ComplexInt(bits), _) => {
                there(usize::from(bits) / 4)?;
                samples::complex_parts(stored, bits, little_endian, skip, out);
            }
            (Stored::Half, predictor) => {
                there(2)?;
                let halves = samples::halves(
                    stored,
                    little_endian,
                    self.per_pixel,
                    predictor,
                    skip,
                    out.len(),
                );
                for (out, half) in out.iter_mut().zip(halves) {
                    *out = T::of_bits(samples::float_of_half(half));
                }
            }
            (Stored::ThreeByteFloat, predictor) => {
                there(3)?;
                let values = samples::threes(stored, little_endian, self.per_pixel, predictor);
                for (out, value) in out.iter_mut().zip(values.into_iter().skip(skip)) {
                    *out = T::of_bits(samples::float_of_three(value));
                }
            }
        }
        Ok(())
    }
}

fn ends_early() -> Error {
    Error::new(ErrorKind::Corrupt, "a tile ends before its last row")
}
