//! Decompression of a tile. No IO.
//!
//! A tile is decompressed to the size that its level states and no further, into a buffer that each thread
//! reuses from tile to tile.

mod fax;
mod jpeg;
#[cfg(feature = "jpeg-xl")]
mod jpeg_xl;
#[cfg(not(feature = "jpeg-xl"))]
#[path = "jpeg_xl_disabled.rs"]
mod jpeg_xl;
mod lerc;
mod lzw;

use std::{borrow::Cow, cell::RefCell, io::Read};

use libdeflater::Decompressor;

use super::{
    last_word,
    level::{Compression, LercIn, Level},
};
use crate::error::{Error, ErrorKind, Result};

/// Memory of the LZMA decoder: a stream states the size of its dictionary.
const MOST_LZMA_KIB: u32 = 128 * 1024;
/// The largest expansion of DEFLATE: a match of 258 bytes takes at least two bits.
const MOST_OF_DEFLATE: usize = 1032;
/// Bytes of a WebP image: its decoder allocates them before it reads the data.
const MOST_WEBP_BYTES: usize = 128 << 20;
/// Bytes of its buffer that a thread retains after a tile.
const MOST_KEPT_BYTES: usize = 4 << 20;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        inflater: Decompressor::new(),
        bytes: Vec::new(),
    });
}

/// The buffers that a thread reuses from tile to tile.
struct Scratch {
    inflater: Decompressor,
    bytes: Vec<u8>,
}

/// Decompresses a tile and passes the bytes to `then`: `length` of them, or fewer, but at least `least`,
/// in a last strip.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`] if the bytes do not match the level, and those of `then`.
pub(super) fn decompress<R>(
    level: &Level,
    little_endian: bool,
    bytes: &[u8],
    length: usize,
    least: usize,
    then: impl FnOnce(&[u8]) -> Result<R>,
) -> Result<R> {
    let checked = |raw: &[u8]| {
        if (least..=length).contains(&raw.len()) {
            then(raw)
        } else {
            Err(Error::new(
                ErrorKind::Corrupt,
                format!("a tile holds {} bytes, expected {length}", raw.len()),
            ))
        }
    };
    let bytes = match level.bits_reversed {
        true => Cow::from_iter(bytes.iter().map(|byte| byte.reverse_bits())),
        false => Cow::from(bytes),
    };
    let bytes = &*bytes;
    SCRATCH.with_borrow_mut(|scratch| {
        let Scratch {
            inflater,
            bytes: out,
        } = scratch;
        let done = match level.compression {
            Compression::None => {
                let end = bytes.len().min(length);
                return checked(bytes.get(..end).unwrap_or_default());
            }
            Compression::Jpeg => jpeg::unpack(level, bytes, out),
            Compression::JpegXl => jpeg_xl::unpack(level, little_endian, bytes, length, out),
            Compression::Fax(kind) => {
                // Only the rows inside the image: what follows them in a strip is no row.
                let rows = least / level.row_bytes().unwrap_or(1).max(1);
                fax::unpack(kind, bytes, level.tile.width, rows, out)
            }
            Compression::Lerc(inside) => {
                let packed = match inside {
                    LercIn::Nothing => Cow::from(bytes),
                    LercIn::Deflate => Cow::from(lerc_inflated(inflater, bytes, length)?),
                    LercIn::Zstd => {
                        let mut packed = Vec::new();
                        // LERC data states its own length, and a frame may be followed by other bytes.
                        unpack_zstd(bytes, most_lerc_bytes(length), 1, &mut packed)?;
                        Cow::from(packed)
                    }
                };
                lerc::unpack(level, little_endian, &packed, out)
            }
            Compression::Deflate => inflate(inflater, bytes, length, out),
            Compression::Lzw => lzw::unpack(bytes, length, out),
            Compression::PackBits => unpack_bits(bytes, length, out),
            Compression::Zstd => unpack_zstd(bytes, length, length, out),
            Compression::Lzma => unpack_lzma(bytes, length, out),
            Compression::WebP => unpack_webp(level, bytes, length, out),
        };
        let done = done.and_then(|()| checked(out));
        if out.capacity() > MOST_KEPT_BYTES {
            *out = Vec::new();
        }
        done
    })
}

fn damaged(codec: &str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("a tile's {codec} data is damaged"),
    )
}

/// Resizes `out` to a tile; its old contents are not cleared, because they are overwritten.
///
/// The size is bounded by what the data can expand to: a header that states huge tiles around a few bytes
/// must not take memory for them.
fn room(out: &mut Vec<u8>, length: usize, data: &[u8], most_per_byte: usize) {
    out.resize(length.min(data.len().saturating_mul(most_per_byte)), 0);
}

fn inflate(
    inflater: &mut Decompressor,
    bytes: &[u8],
    length: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    room(out, length, bytes, MOST_OF_DEFLATE);
    let got = inflater
        .zlib_decompress(bytes, out)
        .map_err(|err| damaged("DEFLATE").with_source(err))?;
    out.truncate(got);
    Ok(())
}

/// Frames of Zstandard, up to `length` bytes of them. What follows the first `least` bytes may be no frame: the length of
/// a tile may have been estimated.
fn unpack_zstd(bytes: &[u8], length: usize, least: usize, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    let wrong = |err| damaged("ZSTD").with_source(err);
    let decoder = zstd::Decoder::with_buffer(bytes).map_err(wrong)?;
    // One byte more than a tile, so that one that is too large is noticed.
    let most = u64::try_from(length).unwrap_or(u64::MAX).saturating_add(1);
    match decoder.take(most).read_to_end(out) {
        Err(err) if out.len() < least => Err(wrong(err)),
        _ => Ok(()),
    }
}

/// An `xz` stream.
fn unpack_lzma(bytes: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    let reader = lzma_rust2::XzReader::new_mem_limit(bytes, false, MOST_LZMA_KIB);
    let most = u64::try_from(length).unwrap_or(u64::MAX).saturating_add(1);
    reader
        .take(most)
        .read_to_end(out)
        .map_err(|err| damaged("LZMA").with_source(err))?;
    Ok(())
}

/// Decodes a WebP image of the tile's size. If the stream has no alpha and the tile has, it is opaque.
fn unpack_webp(level: &Level, bytes: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    let wrong = |err| damaged("WebP").with_source(err);
    let mut decoder = image_webp::WebPDecoder::new(std::io::Cursor::new(bytes)).map_err(wrong)?;
    let (width, height) = decoder.dimensions();
    if width != level.tile.width || height > level.tile.height || decoder.is_animated() {
        return Err(Error::new(
            ErrorKind::Corrupt,
            "a tile's WebP image has another size than the tile",
        ));
    }
    if length > MOST_WEBP_BYTES {
        return Err(last_word(
            ErrorKind::Unsupported,
            format!(
                "WebP tiles past {} MiB are not supported",
                MOST_WEBP_BYTES >> 20
            ),
        ));
    }
    decoder.set_memory_limit(length.saturating_mul(4));
    let stored: usize = if decoder.has_alpha() { 4 } else { 3 };
    let size = decoder
        .output_buffer_size()
        .filter(|&size| size <= length.saturating_mul(2))
        .ok_or_else(|| damaged("WebP"))?;
    let mut picture = vec![0; size];
    decoder.read_image(&mut picture).map_err(wrong)?;
    out.clear();
    for pixel in picture.chunks_exact(stored) {
        let bands = pixel.iter().copied().chain(std::iter::repeat(u8::MAX));
        out.extend(bands.take(level.bands));
    }
    Ok(())
}

/// Decodes PackBits. See TIFF 6.0, section 9.
fn unpack_bits(bytes: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    let mut rest = bytes;
    while out.len() < length {
        let Some((&head, tail)) = rest.split_first() else {
            break;
        };
        rest = match i8::from_ne_bytes([head]) {
            // Reserved: no operation.
            -128 => tail,
            count @ 0.. => {
                let count = usize::from(count.unsigned_abs()) + 1;
                let Some((literal, tail)) = tail.split_at_checked(count) else {
                    return Err(damaged("PackBits"));
                };
                out.extend_from_slice(literal);
                tail
            }
            count => {
                let Some((&byte, tail)) = tail.split_first() else {
                    return Err(damaged("PackBits"));
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
    Ok(())
}

/// Returns a bound of the LERC data of a tile: its samples, and header, mask and value ranges.
fn most_lerc_bytes(length: usize) -> usize {
    length.saturating_mul(2).saturating_add(64 << 10)
}

/// Inflates LERC data. Its length is not stated anywhere, only bounded.
fn lerc_inflated(inflater: &mut Decompressor, bytes: &[u8], length: usize) -> Result<Vec<u8>> {
    let mut packed = Vec::new();
    inflate(inflater, bytes, most_lerc_bytes(length), &mut packed)?;
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packbits_runs_and_literals() {
        let mut out = Vec::new();
        unpack_bits(&[2, 1, 2, 3, 0xFE, 9, 0x80], 6, &mut out).unwrap();
        assert_eq!(out, [1, 2, 3, 9, 9, 9]);
        assert!(unpack_bits(&[5, 1], 6, &mut out).is_err());
    }

    #[test]
    fn a_few_bytes_take_no_memory_for_a_large_tile() {
        let length = 512 << 20;
        let mut out = Vec::new();
        assert!(
            inflate(
                &mut Decompressor::new(),
                &[0x78, 0x9C, 3, 0],
                length,
                &mut out
            )
            .is_err()
        );
        assert!(out.capacity() < 1 << 20, "{}", out.capacity());
        lzw::unpack(&[0x80, 0x40, 0x40], length, &mut out).unwrap();
        assert!(out.capacity() < 1 << 20, "{}", out.capacity());
    }

    #[test]
    fn what_compresses_best_fits_its_room() {
        let zeros = vec![0; 10 << 20];
        let mut out = Vec::new();
        let mut compressor = libdeflater::Compressor::new(libdeflater::CompressionLvl::best());
        let mut data = vec![0; compressor.zlib_compress_bound(zeros.len())];
        let length = compressor.zlib_compress(&zeros, &mut data).unwrap();
        inflate(
            &mut Decompressor::new(),
            &data[..length],
            zeros.len(),
            &mut out,
        )
        .unwrap();
        assert_eq!(out, zeros);
        let mut coder = weezl::encode::Encoder::with_tiff_size_switch(weezl::BitOrder::Msb, 8);
        let data = coder.encode(&zeros).unwrap();
        lzw::unpack(&data, zeros.len(), &mut out).unwrap();
        assert_eq!(out, zeros);
    }
}
