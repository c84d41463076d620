//! From a compressed tile to its bytes. No IO.
//!
//! A tile is inflated to the size its level promises and no further, into memory that each thread
//! keeps from tile to tile.

use std::{cell::RefCell, io::Read};

use async_tiff::{
    decoder::DecoderRegistry,
    tags::{Compression as TiffCompression, PhotometricInterpretation},
};
use bytes::Bytes;
use libdeflater::Decompressor;

use super::index::{Compression, Level};
use crate::error::{Error, ErrorKind, Result};

/// What a tile's dictionary may take.
const MOST_LZMA_KIB: u32 = 128 * 1024;
/// Bytes that a byte of DEFLATE can become: 258 from two bits.
const MOST_OF_DEFLATE: usize = 1032;
/// Bytes that a byte of LZW can become: a code of nine bits names 4096 at most.
const MOST_OF_LZW: usize = 3641;
/// Pixels that a byte of JPEG can become: each 8 x 8 block has a bit at least.
const MOST_OF_JPEG: usize = 512;
/// Bytes of a WebP picture: its decoder takes them before it has seen the data.
const MOST_WEBP_BYTES: usize = 128 << 20;
/// What a thread keeps of its memory after a tile.
const MOST_KEPT_BYTES: usize = 4 << 20;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        inflater: Decompressor::new(),
        bytes: Vec::new(),
    });
}

/// What a thread keeps from tile to tile.
struct Scratch {
    inflater: Decompressor,
    bytes: Vec<u8>,
}

/// Undoes the compression and hands the bytes to `then`: exactly `length` of them, or at least
/// `least` in a last strip.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`] if the bytes are not what the level promises, and those of `then`.
pub(super) fn decompress<R>(
    level: &Level,
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
    let is_jpeg = level.compression == Compression::Jpeg;
    if level.compression == Compression::None {
        let end = bytes.len().min(length);
        return checked(bytes.get(..end).unwrap_or_default());
    }
    if is_jpeg {
        return checked(&jpeg(level, bytes)?);
    }
    SCRATCH.with_borrow_mut(|scratch| {
        let Scratch {
            inflater,
            bytes: out,
        } = scratch;
        let done = match level.compression {
            Compression::Deflate => inflate(inflater, bytes, length, out),
            Compression::Lzw => unpack_lzw(bytes, length, out),
            Compression::PackBits => unpack_bits(bytes, length, out),
            Compression::Zstd => unpack_zstd(bytes, length, out),
            Compression::Lzma => unpack_lzma(bytes, length, out),
            Compression::WebP => unpack_webp(level, bytes, length, out),
            Compression::None | Compression::Jpeg => Ok(()),
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

/// Makes `out` as long as a tile; what it held before stays, for it is overwritten.
///
/// A tile of which the data can fill the smaller part only gets no more than that.
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

/// See TIFF 6.0, section 13.
fn unpack_lzw(bytes: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    room(out, length, bytes, MOST_OF_LZW);
    let mut decoder = weezl::decode::Decoder::with_tiff_size_switch(weezl::BitOrder::Msb, 8);
    let mut written = 0;
    let mut rest = bytes;
    // The last code may leave a byte or two past the tile.
    while let Some(space) = out.get_mut(written..).filter(|space| !space.is_empty()) {
        let result = decoder.decode_bytes(rest, space);
        written += result.consumed_out;
        rest = rest.get(result.consumed_in..).unwrap_or_default();
        match result.status {
            Ok(weezl::LzwStatus::Ok) if result.consumed_in + result.consumed_out > 0 => {}
            Ok(_) => break,
            Err(err) => return Err(damaged("LZW").with_source(err)),
        }
    }
    out.truncate(written);
    Ok(())
}

fn unpack_zstd(bytes: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
    let wrong = |err| damaged("ZSTD").with_source(err);
    let decoder = zstd::Decoder::with_buffer(bytes).map_err(wrong)?;
    // One byte more than fits tells a tile that is too large.
    let most = u64::try_from(length).unwrap_or(u64::MAX).saturating_add(1);
    decoder.take(most).read_to_end(out).map_err(wrong)?;
    Ok(())
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

/// A picture of the tile's size; an alpha band that the stream leaves out is opaque.
fn unpack_webp(level: &Level, bytes: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    let wrong = |err| damaged("WebP").with_source(err);
    let mut decoder = image_webp::WebPDecoder::new(std::io::Cursor::new(bytes)).map_err(wrong)?;
    let (width, height) = decoder.dimensions();
    if width != level.tile.width || height > level.tile.height || decoder.is_animated() {
        return Err(Error::new(
            ErrorKind::Corrupt,
            "a tile's WebP picture has another size than the tile",
        ));
    }
    if length > MOST_WEBP_BYTES {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "WebP pictures past {} MiB are not supported",
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

/// See TIFF 6.0, section 9.
fn unpack_bits(bytes: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    out.clear();
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

fn jpeg(level: &Level, bytes: &[u8]) -> Result<Vec<u8>> {
    // The decoder believes the stream's own size: it must be the tile's.
    let Lead::Frame {
        width,
        height,
        components,
    } = jpeg_lead(bytes)
    else {
        return Err(Error::new(
            ErrorKind::Corrupt,
            "a tile's JPEG data has no frame",
        ));
    };
    // It would take a frame of the tables for the tile's, and cuts their last marker off.
    let tables = level.jpeg_tables.as_deref();
    if tables.is_some_and(|tables| jpeg_lead(tables) != Lead::End) {
        return Err(Error::new(
            ErrorKind::Corrupt,
            "its JPEG tables hold more than tables, or do not end",
        ));
    }
    if u32::from(width) != level.tile.width || u32::from(height) > level.tile.height {
        return Err(Error::new(
            ErrorKind::Corrupt,
            "a tile's JPEG frame has another size than the tile",
        ));
    }
    let samples = if level.planar { 1 } else { level.bands };
    if usize::from(components) != samples {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!("a tile's JPEG frame has {components} components, expected {samples}"),
        ));
    }
    if usize::from(width) * usize::from(height) / MOST_OF_JPEG > bytes.len() {
        return Err(damaged("JPEG"));
    }
    let registry = DecoderRegistry::default();
    let decoder = registry.as_ref().get(&TiffCompression::ModernJPEG);
    // As RGB, three components are interleaved and not changed; as no colours, the decoder would put
    // the bands of each row one after another.
    let photometric = match level.photometric {
        6 => PhotometricInterpretation::YCbCr,
        _ if samples == 3 => PhotometricInterpretation::RGB,
        _ => PhotometricInterpretation::BlackIsZero,
    };
    let samples = u16::from(components);
    let decoded = decoder.map(|decoder| {
        decoder.decode_tile(
            Bytes::copy_from_slice(bytes),
            photometric,
            tables,
            samples,
            8,
            None,
        )
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

/// What the first segments of a JPEG stream lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lead {
    /// The header of a frame.
    Frame {
        width: u16,
        height: u16,
        components: u8,
    },
    /// The end of the stream: all were tables.
    End,
    /// A kind of frame that is not read, or a stream that breaks off.
    Other,
}

/// Walks over tables and metadata; stricter than decoders, which look for the next marker.
fn jpeg_lead(bytes: &[u8]) -> Lead {
    let big = |from: usize| {
        let field = bytes.get(from..from + 2)?;
        Some(u16::from_be_bytes(field.try_into().ok()?))
    };
    let mut at = 2;
    loop {
        let Some([0xFF, code]) = bytes.get(at..at + 2) else {
            return Lead::Other;
        };
        match code {
            // Bytes that fill the space before a marker.
            0xFF => at += 1,
            0xC0..=0xC3 => {
                return match (big(at + 7), big(at + 5), bytes.get(at + 9)) {
                    (Some(width), Some(height), Some(&components)) => Lead::Frame {
                        width,
                        height,
                        components,
                    },
                    _ => Lead::Other,
                };
            }
            0xD9 => return Lead::End,
            // Tables, and what applications write.
            0xC4 | 0xDB | 0xDD | 0xE0..=0xEF | 0xFE => match big(at + 2) {
                Some(length) => at += 2 + usize::from(length),
                None => return Lead::Other,
            },
            _ => return Lead::Other,
        }
    }
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
        unpack_lzw(&[0x80, 0x40, 0x40], length, &mut out).unwrap();
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
        unpack_lzw(&data, zeros.len(), &mut out).unwrap();
        assert_eq!(out, zeros);
    }

    #[test]
    fn jpeg_tables_are_told_from_a_frame() {
        let tables = [0xFF, 0xD8, 0xFF, 0xDB, 0, 3, 0, 0xFF, 0xD9];
        let frame = [0xFF, 0xC0, 0, 11, 8, 0, 16, 0, 32, 1, 1, 0x11, 0];
        assert_eq!(jpeg_lead(&tables), Lead::End);
        let lead = Lead::Frame {
            width: 32,
            height: 16,
            components: 1,
        };
        assert_eq!(jpeg_lead(&[&tables[..7], &frame].concat()), lead);
        assert_eq!(jpeg_lead(&[&tables[..7], &[0xFF], &frame].concat()), lead);
        for wrong in [&[][..], &[0xFF, 0xD9], &tables[..7], &frame] {
            assert_eq!(jpeg_lead(wrong), Lead::Other, "{wrong:?}");
        }
    }
}
