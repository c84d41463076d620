//! From a compressed tile to samples. No IO.
//!
//! A tile is inflated to the size its level promises, no more; the predictor is undone while the
//! samples are copied out, so each is touched once after the codec.

use std::io::Read;

use async_tiff::{
    decoder::DecoderRegistry,
    tags::{Compression as TiffCompression, PhotometricInterpretation},
};
use bytes::Bytes;
use libdeflater::Decompressor;

use super::index::{Compression, Level};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::Window,
    raster::{DataType, Sample},
};

/// Decoded bytes that one tile may have.
const MOST_TILE_BYTES: usize = 512 << 20;

/// A part of the output: the samples of a window of one band, row by row.
#[derive(Debug)]
pub(super) struct Patch<T> {
    /// In pixels of the level.
    pub(super) window: Window,
    /// Which of the wanted bands.
    pub(super) band: usize,
    pub(super) samples: Vec<T>,
}

/// What is decoded: a tile, and what of it is wanted.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// The whole tile, edges included, in pixels of the level.
    pub(super) tile: Window,
    /// The part of it that is wanted.
    pub(super) wanted: Window,
    /// Wanted bands: which sample of a pixel in the tile, and which band of the output.
    pub(super) bands: Vec<BandOf>,
}

/// A band in a tile and in the output.
#[derive(Clone, Copy, Debug)]
pub(super) struct BandOf {
    pub(super) in_tile: usize,
    pub(super) in_output: usize,
}

/// Returns the decoded bytes of a tile of `level`.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] if a tile is past the limit.
pub(super) fn tile_bytes(level: &Level) -> Result<usize> {
    let samples = if level.planar { 1 } else { level.bands };
    let side = |pixels: u32| usize::try_from(pixels).ok();
    side(level.tile.width)
        .zip(side(level.tile.height))
        .and_then(|(width, height)| width.checked_mul(height))
        .and_then(|pixels| pixels.checked_mul(samples))
        .and_then(|samples| samples.checked_mul(level.dtype.size()))
        .filter(|&bytes| bytes <= MOST_TILE_BYTES)
        .ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                format!(
                    "tiles of {} x {} x {samples} samples are past the limit of {} MiB",
                    level.tile.width,
                    level.tile.height,
                    MOST_TILE_BYTES >> 20
                ),
            )
        })
}

/// Decodes one tile and copies the wanted parts out.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`] if the bytes are not what the level promises.
pub(super) fn decode<T: Value>(
    level: &Level,
    little_endian: bool,
    bytes: &Bytes,
    job: &Job,
) -> Result<Vec<Patch<T>>> {
    let length = tile_bytes(level)?;
    // The last strip stores the rows that are there and no more, and some writers do so with tiles.
    let rows_there = level.tile.height.min(level.size.height - job.tile.row);
    let whole_rows = usize::try_from(level.tile.height).unwrap_or(1).max(1);
    let least = length / whole_rows * usize::try_from(rows_there).unwrap_or(0);
    let raw = inflate(level, bytes, length, least)?;

    let per_pixel = if level.planar { 1 } else { level.bands };
    let row_bytes = length / whole_rows;
    let mut patches: Vec<Patch<T>> = job
        .bands
        .iter()
        .map(|band| Patch {
            window: job.wanted,
            band: band.in_output,
            samples: Vec::with_capacity(job.wanted.width as usize * job.wanted.height as usize),
        })
        .collect();
    let first_row = (job.wanted.row - job.tile.row) as usize;
    let first_col = (job.wanted.col - job.tile.col) as usize;
    let columns = first_col..first_col + job.wanted.width as usize;
    let mut row_samples: Vec<T> = Vec::with_capacity(row_bytes / size_of::<T>().max(1));
    for row in first_row..first_row + job.wanted.height as usize {
        let Some(stored) = raw.get(row * row_bytes..(row + 1) * row_bytes) else {
            return corrupt("a tile ends before its last row");
        };
        row_samples.clear();
        match level.predictor {
            2 => T::differences(stored, little_endian, per_pixel, &mut row_samples),
            3 => T::floating(stored, per_pixel, &mut row_samples)?,
            _ => T::plain(stored, little_endian, &mut row_samples),
        }
        for (patch, band) in patches.iter_mut().zip(&job.bands) {
            if per_pixel == 1 {
                let Some(wanted) = row_samples.get(columns.clone()) else {
                    return corrupt("a tile row ends early");
                };
                patch.samples.extend_from_slice(wanted);
            } else {
                let pixels = row_samples.chunks_exact(per_pixel);
                let wanted = pixels.skip(columns.start).take(columns.len());
                patch
                    .samples
                    .extend(wanted.filter_map(|pixel| pixel.get(band.in_tile)));
            }
        }
    }
    Ok(patches)
}

fn corrupt<T>(message: &str) -> Result<T> {
    Err(Error::new(ErrorKind::Corrupt, message))
}

/// Undoes the compression: exactly `length` bytes, or at least `least` of them in a last strip.
fn inflate(level: &Level, bytes: &Bytes, length: usize, least: usize) -> Result<Vec<u8>> {
    let fits = |got: usize| got >= least && got <= length;
    let wrong = |got: usize| {
        Error::new(
            ErrorKind::Corrupt,
            format!("a tile holds {got} bytes, expected {length}"),
        )
    };
    let raw = match level.compression {
        Compression::None => {
            let end = bytes.len().min(length);
            bytes.get(..end).unwrap_or_default().to_vec()
        }
        Compression::Deflate => {
            let mut out = vec![0; length];
            let got = Decompressor::new()
                .zlib_decompress(bytes, &mut out)
                .map_err(|err| {
                    Error::new(ErrorKind::Corrupt, "a tile's DEFLATE data is damaged")
                        .with_source(err)
                })?;
            out.truncate(got);
            out
        }
        Compression::Lzw => {
            // The last code may leave a byte or two past the tile.
            let mut out = Vec::with_capacity(length);
            let mut decoder =
                weezl::decode::Decoder::with_tiff_size_switch(weezl::BitOrder::Msb, 8);
            out.resize(length, 0);
            let mut written = 0;
            let mut rest: &[u8] = bytes;
            while let Some(space) = out.get_mut(written..).filter(|space| !space.is_empty()) {
                let result = decoder.decode_bytes(rest, space);
                written += result.consumed_out;
                rest = rest.get(result.consumed_in..).unwrap_or_default();
                match result.status {
                    Ok(weezl::LzwStatus::Ok) if result.consumed_in + result.consumed_out > 0 => {}
                    Ok(_) => break,
                    Err(err) => {
                        return Err(
                            Error::new(ErrorKind::Corrupt, "a tile's LZW data is damaged")
                                .with_source(err),
                        );
                    }
                }
            }
            out.truncate(written);
            out
        }
        Compression::PackBits => unpack_bits(bytes, length)?,
        Compression::Zstd => {
            let mut out = Vec::with_capacity(length);
            let damaged = |err| {
                Error::new(ErrorKind::Corrupt, "a tile's ZSTD data is damaged").with_source(err)
            };
            let decoder = zstd::Decoder::with_buffer(bytes.as_ref()).map_err(damaged)?;
            // One byte more than fits tells a tile that is too large.
            decoder
                .take(length as u64 + 1)
                .read_to_end(&mut out)
                .map_err(damaged)?;
            out
        }
        Compression::Jpeg => jpeg(level, bytes)?,
    };
    if fits(raw.len()) {
        Ok(raw)
    } else {
        Err(wrong(raw.len()))
    }
}

/// See TIFF 6.0, section 9.
fn unpack_bits(bytes: &[u8], length: usize) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(length);
    let mut rest = bytes;
    while out.len() < length {
        let Some((&head, tail)) = rest.split_first() else {
            break;
        };
        rest = match i8::from_ne_bytes([head]) {
            -128 => tail,
            count @ 0.. => {
                let count = usize::from(count.unsigned_abs()) + 1;
                let Some((literal, tail)) = tail.split_at_checked(count) else {
                    return corrupt("a tile's PackBits data is damaged");
                };
                out.extend_from_slice(literal);
                tail
            }
            count => {
                let Some((&byte, tail)) = tail.split_first() else {
                    return corrupt("a tile's PackBits data is damaged");
                };
                out.extend(std::iter::repeat_n(
                    byte,
                    usize::from(count.unsigned_abs()) + 1,
                ));
                tail
            }
        };
    }
    out.truncate(length);
    Ok(out)
}

fn jpeg(level: &Level, bytes: &Bytes) -> Result<Vec<u8>> {
    // The decoder believes the stream's own size: it must be the tile's.
    let (width, height) = jpeg_size(bytes)
        .ok_or_else(|| Error::new(ErrorKind::Corrupt, "a tile's JPEG data has no frame"))?;
    if u32::from(width) != level.tile.width || u32::from(height) > level.tile.height {
        return corrupt("a tile's JPEG frame has another size than the tile");
    }
    let registry = DecoderRegistry::default();
    let decoder = registry.as_ref().get(&TiffCompression::ModernJPEG);
    let photometric = match level.photometric {
        2 => PhotometricInterpretation::RGB,
        6 => PhotometricInterpretation::YCbCr,
        _ => PhotometricInterpretation::BlackIsZero,
    };
    let samples = if level.planar {
        1
    } else {
        u16::try_from(level.bands).unwrap_or(1)
    };
    let decoded = decoder.map(|decoder| {
        let tables = level.jpeg_tables.as_deref();
        decoder.decode_tile(bytes.clone(), photometric, tables, samples, 8, None)
    });
    match decoded {
        Some(Ok(bytes)) => Ok(bytes),
        Some(Err(err)) => {
            Err(Error::new(ErrorKind::Corrupt, "a tile's JPEG data is damaged").with_source(err))
        }
        None => Err(Error::new(
            ErrorKind::Unsupported,
            "built without a JPEG decoder",
        )),
    }
}

/// Returns the width and height of a JPEG stream's frame header.
fn jpeg_size(bytes: &[u8]) -> Option<(u16, u16)> {
    let mut at = 2;
    loop {
        let marker = bytes.get(at..at + 2)?;
        let [0xFF, code] = *marker else { return None };
        let big = |from: usize| -> Option<u16> {
            Some(u16::from_be_bytes(
                bytes.get(from..from + 2)?.try_into().ok()?,
            ))
        };
        if matches!(code, 0xC0..=0xC3) {
            return Some((big(at + 7)?, big(at + 5)?));
        }
        at += 2 + usize::from(big(at + 2)?);
    }
}

/// A sample type, read from a row of a tile.
pub(super) trait Value: Sample + Send + 'static {
    /// Reads samples stored one after another.
    fn plain(row: &[u8], little_endian: bool, out: &mut Vec<Self>);
    /// Undoes predictor 2: each sample is stored as its difference to the pixel before.
    fn differences(row: &[u8], little_endian: bool, per_pixel: usize, out: &mut Vec<Self>);
    /// Undoes predictor 3: bytes of floats by significance, each a difference to the byte before.
    fn floating(row: &[u8], per_pixel: usize, out: &mut Vec<Self>) -> Result<()>;
}

/// Undoes the byte differences of predictor 3 and returns the bytes.
fn undo_byte_differences(row: &[u8], per_pixel: usize) -> Vec<u8> {
    let mut bytes = row.to_vec();
    for at in per_pixel..bytes.len() {
        if let Some(&before) = row_before(&bytes, at, per_pixel)
            && let Some(byte) = bytes.get_mut(at)
        {
            *byte = byte.wrapping_add(before);
        }
    }
    bytes
}

fn row_before(bytes: &[u8], at: usize, step: usize) -> Option<&u8> {
    bytes.get(at.checked_sub(step)?)
}

macro_rules! whole_values {
    ($($type:ty),*) => {$(
        impl Value for $type {
            fn plain(row: &[u8], little_endian: bool, out: &mut Vec<Self>) {
                let (values, _) = row.as_chunks::<{ size_of::<$type>() }>();
                if little_endian {
                    out.extend(values.iter().map(|bytes| Self::from_le_bytes(*bytes)));
                } else {
                    out.extend(values.iter().map(|bytes| Self::from_be_bytes(*bytes)));
                }
            }

            fn differences(row: &[u8], little_endian: bool, per_pixel: usize, out: &mut Vec<Self>) {
                let (values, _) = row.as_chunks::<{ size_of::<$type>() }>();
                let read = |bytes: &[u8; size_of::<$type>()]| {
                    if little_endian { Self::from_le_bytes(*bytes) } else { Self::from_be_bytes(*bytes) }
                };
                if per_pixel == 1 {
                    // The sum stays in a register.
                    let mut sum: Self = 0;
                    out.extend(values.iter().map(|bytes| {
                        sum = sum.wrapping_add(read(bytes));
                        sum
                    }));
                    return;
                }
                let mut sums: Vec<Self> = vec![0; per_pixel];
                for pixel in values.chunks(per_pixel) {
                    for (sum, bytes) in sums.iter_mut().zip(pixel) {
                        *sum = sum.wrapping_add(read(bytes));
                        out.push(*sum);
                    }
                }
            }

            fn floating(_: &[u8], _: usize, _: &mut Vec<Self>) -> Result<()> {
                corrupt("predictor 3 with samples that are no floats")
            }
        }
    )*};
}
whole_values!(u8, i8, u16, i16, u32, i32, u64, i64);

macro_rules! float_values {
    ($($type:ty => $bits:ty),*) => {$(
        impl Value for $type {
            fn plain(row: &[u8], little_endian: bool, out: &mut Vec<Self>) {
                let (values, _) = row.as_chunks::<{ size_of::<$type>() }>();
                if little_endian {
                    out.extend(values.iter().map(|bytes| Self::from_le_bytes(*bytes)));
                } else {
                    out.extend(values.iter().map(|bytes| Self::from_be_bytes(*bytes)));
                }
            }

            /// Predictor 2 takes the bits of a float as a whole number.
            fn differences(row: &[u8], little_endian: bool, per_pixel: usize, out: &mut Vec<Self>) {
                let mut bits: Vec<$bits> = Vec::with_capacity(row.len() / size_of::<$type>());
                <$bits>::differences(row, little_endian, per_pixel, &mut bits);
                out.extend(bits.into_iter().map(Self::from_bits));
            }

            /// See Adobe Photoshop TIFF Technical Note 3.
            fn floating(row: &[u8], per_pixel: usize, out: &mut Vec<Self>) -> Result<()> {
                let bytes = undo_byte_differences(row, per_pixel);
                let count = bytes.len() / size_of::<$type>();
                // The most significant bytes of all samples come first, whatever the byte order.
                out.extend((0..count).map(|n| {
                    let mut value = [0; size_of::<$type>()];
                    for (place, byte) in value.iter_mut().enumerate() {
                        *byte = bytes.get(place * count + n).copied().unwrap_or(0);
                    }
                    Self::from_be_bytes(value)
                }));
                Ok(())
            }
        }
    )*};
}
float_values!(f32 => u32, f64 => u64);

/// Returns the value that fills what is not stored: nodata where the type can hold it, else zero.
pub(super) fn fill<T: Value>(nodata: Option<f64>) -> T {
    let bytes = nodata
        .filter(|&nodata| holds(T::DTYPE, nodata))
        .map_or_else(
            || vec![0; size_of::<T>()],
            |nodata| le_bytes(T::DTYPE, nodata),
        );
    let mut out = Vec::with_capacity(1);
    T::plain(&bytes, true, &mut out);
    #[expect(clippy::expect_used, reason = "one sample's bytes make one sample")]
    out.pop().expect("one sample")
}

fn holds(dtype: DataType, value: f64) -> bool {
    let between = |low: f64, high: f64| value.fract() == 0.0 && (low..=high).contains(&value);
    match dtype {
        DataType::F32 | DataType::F64 => true,
        DataType::U8 => between(0.0, f64::from(u8::MAX)),
        DataType::I8 => between(f64::from(i8::MIN), f64::from(i8::MAX)),
        DataType::U16 => between(0.0, f64::from(u16::MAX)),
        DataType::I16 => between(f64::from(i16::MIN), f64::from(i16::MAX)),
        DataType::U32 => between(0.0, f64::from(u32::MAX)),
        DataType::I32 => between(f64::from(i32::MIN), f64::from(i32::MAX)),
        DataType::U64 => between(0.0, u64::MAX as f64),
        DataType::I64 => between(i64::MIN as f64, i64::MAX as f64),
    }
}

fn le_bytes(dtype: DataType, value: f64) -> Vec<u8> {
    match dtype {
        DataType::U8 => (value as u8).to_le_bytes().to_vec(),
        DataType::I8 => (value as i8).to_le_bytes().to_vec(),
        DataType::U16 => (value as u16).to_le_bytes().to_vec(),
        DataType::I16 => (value as i16).to_le_bytes().to_vec(),
        DataType::U32 => (value as u32).to_le_bytes().to_vec(),
        DataType::I32 => (value as i32).to_le_bytes().to_vec(),
        DataType::U64 => (value as u64).to_le_bytes().to_vec(),
        DataType::I64 => (value as i64).to_le_bytes().to_vec(),
        DataType::F32 => (value as f32).to_le_bytes().to_vec(),
        DataType::F64 => value.to_le_bytes().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_summed_per_band() {
        let row: Vec<u8> = [10_i16, 1, -3, 5, 2, -4]
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let sums = |per_pixel| {
            let mut out = Vec::new();
            i16::differences(&row, true, per_pixel, &mut out);
            out
        };
        assert_eq!(sums(1), [10, 11, 8, 13, 15, 11]);
        assert_eq!(sums(3), [10, 1, -3, 15, 3, -7]);
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
        let mut out = Vec::new();
        f32::floating(&coded, 1, &mut out).unwrap();
        assert_eq!(out, values);
    }

    #[test]
    fn packbits_runs_and_literals() {
        assert_eq!(
            unpack_bits(&[2, 1, 2, 3, 0xFE, 9, 0x80], 6).unwrap(),
            [1, 2, 3, 9, 9, 9]
        );
        assert!(unpack_bits(&[5, 1], 6).is_err());
    }

    #[test]
    fn nodata_fills_only_what_can_hold_it() {
        assert_eq!(fill::<i16>(Some(-999.0)), -999);
        assert_eq!(fill::<u8>(Some(-999.0)), 0);
        assert!(fill::<f32>(Some(f64::NAN)).is_nan());
        assert_eq!(fill::<u16>(None), 0);
    }
}
