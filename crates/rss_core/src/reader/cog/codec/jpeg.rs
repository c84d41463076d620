//! JPEG, by the `jpeg-decoder` crate. See TIFF Technical Note 2.

use std::io::{Cursor, Read};

use jpeg_decoder::{ColorTransform, Decoder, Error as JpegError};

use crate::{
    error::{Error, ErrorKind, Result},
    reader::cog::{last_word, level::Level},
};

// Photometric interpretations of three bands.
const RGB: u16 = 2;
const YCBCR: u16 = 6;

/// The Huffman tables of ITU T.81, annex K.3, as segments of a stream. A stream without Huffman tables uses
/// them.
const HUFFMAN_TABLES: &[u8] = include_bytes!("huffman_tables.bin");

/// The largest expansion of JPEG, in pixels of a byte: each block of 8 x 8 takes at least one bit.
const MOST_OF_JPEG: usize = 512;

/// The frame header of a JPEG stream.
struct Frame {
    width: u32,
    height: u32,
    bits: u8,
    components: usize,
    /// True if the stream has Huffman tables before its data.
    has_codes: bool,
}

/// Damaged data. GDAL's decoder fills in grey what it misses, with a warning: it is not asked.
fn broken(why: impl std::fmt::Display) -> Error {
    let message = format!("a tile's JPEG data is damaged ({why})");
    last_word(ErrorKind::Corrupt, message)
}

/// Decodes a tile to interleaved bytes, YCbCr to RGB.
pub(super) fn unpack(level: &Level, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let corrupt = |message: &str| Error::new(ErrorKind::Corrupt, message);
    let unsupported = |what: String| Error::new(ErrorKind::Unsupported, what);
    // The decoder allocates by the size in the stream, so it is checked against the tile's first.
    let frame = frame(bytes).ok_or_else(|| corrupt("a tile's JPEG data has no frame"))?;
    if frame.width != level.tile.width || frame.height > level.tile.height {
        return Err(corrupt(
            "a tile's JPEG frame has another size than the tile",
        ));
    }
    if frame.width as usize * frame.height as usize / MOST_OF_JPEG > bytes.len() {
        return Err(broken("a frame of more pixels than its data can hold"));
    }
    if frame.bits != 8 {
        return Err(unsupported(format!(
            "JPEG with {} bits is not supported",
            frame.bits
        )));
    }
    let samples = if level.planar { 1 } else { level.bands };
    if frame.components != samples {
        return Err(corrupt(&format!(
            "a tile's JPEG frame has {} components, expected {samples}",
            frame.components
        )));
    }
    let transform = match (frame.components, level.photometric) {
        (1, _) => ColorTransform::None,
        (3, YCBCR) => ColorTransform::YCbCr,
        (3, _) => ColorTransform::RGB,
        // The decoder inverts CMYK; that is undone below.
        (4, 0..=RGB) => ColorTransform::CMYK,
        (components, colours) => {
            return Err(unsupported(format!(
                "JPEG with {components} components (photometric {colours}) is not supported"
            )));
        }
    };
    // Tables and stream are joined: without the tables' end marker (EOI) and the stream's start marker
    // (SOI). A frame among the tables would be decoded instead of the tile's.
    let tables = level.jpeg_tables.as_deref().unwrap_or_default();
    if !tables.is_empty() && !are_tables(tables) {
        return Err(corrupt(
            "its JPEG tables have other segments than tables, or no end marker",
        ));
    }
    let tables = tables.strip_suffix(&[0xFF, 0xD9]).unwrap_or(tables);
    let start: &[u8] = &[0xFF, 0xD8];
    let tables = if tables.is_empty() { start } else { tables };
    let stream = bytes.strip_prefix(start).unwrap_or(bytes);
    let codes = match frame.has_codes || has_codes(tables) {
        true => &[],
        false => HUFFMAN_TABLES,
    };
    let mut decoder = Decoder::new(Cursor::new(tables).chain(codes).chain(stream));
    decoder.set_color_transform(transform);
    *out = decoder.decode().map_err(|err| match err {
        JpegError::Unsupported(what) => unsupported(format!("JPEG ({what:?}) is not supported")),
        err => broken(err),
    })?;
    if transform == ColorTransform::CMYK {
        out.iter_mut().for_each(|byte| *byte = !*byte);
    }
    Ok(())
}

/// Returns the next segment of a stream: its code, and the offsets of its contents and of the next one.
fn segment(bytes: &[u8], mut at: usize) -> Option<(u8, usize, usize)> {
    loop {
        match (bytes.get(at)?, bytes.get(at + 1)?) {
            // Padding.
            (0xFF, 0xFF) => at += 1,
            (0xFF, code) => {
                let length = u16::from_be_bytes([*bytes.get(at + 2)?, *bytes.get(at + 3)?]);
                return Some((*code, at + 4, at + 2 + usize::from(length)));
            }
            _ => return None,
        }
    }
}

const HUFFMAN: u8 = 0xC4;
const SCAN: u8 = 0xDA;
const END: u8 = 0xD9;

/// Returns true if a stream has only tables and metadata, and an end marker.
fn are_tables(bytes: &[u8]) -> bool {
    let mut at = 2;
    loop {
        if bytes.get(at..at + 2) == Some(&[0xFF, END]) {
            return true;
        }
        match segment(bytes, at) {
            Some((HUFFMAN | 0xDB | 0xDD | 0xE0..=0xEF | 0xFE, _, next)) => at = next,
            _ => return false,
        }
    }
}

/// Returns true if a stream has Huffman tables before its data.
fn has_codes(bytes: &[u8]) -> bool {
    let mut at = 2;
    while let Some((code, _, next)) = segment(bytes, at) {
        match code {
            HUFFMAN => return true,
            SCAN => return false,
            _ => at = next,
        }
    }
    false
}

/// Reads the first frame header.
fn frame(bytes: &[u8]) -> Option<Frame> {
    let mut at = 2;
    loop {
        let (code, start, next) = segment(bytes, at)?;
        let byte = |from: usize| bytes.get(start + from).copied();
        let big = |from: usize| Some(u16::from_be_bytes([byte(from)?, byte(from + 1)?]));
        // The start-of-frame markers; C4, C8 and CC between them are tables or reserved.
        if matches!(code, 0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF) {
            return Some(Frame {
                bits: byte(0)?,
                height: u32::from(big(1)?),
                width: u32::from(big(3)?),
                components: usize::from(byte(5)?),
                has_codes: has_codes(bytes),
            });
        }
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_told_from_a_frame() {
        let tables = [0xFF, 0xD8, 0xFF, 0xDB, 0, 3, 0, 0xFF, 0xD9];
        let header = [0xFF, 0xC0, 0, 11, 8, 0, 16, 0, 32, 1, 1, 0x11, 0];
        assert!(are_tables(&tables));
        for padding in [&[][..], &[0xFF]] {
            let stream = [&tables[..7], padding, &header].concat();
            assert!(!are_tables(&stream));
            let frame = frame(&stream).unwrap();
            assert_eq!((frame.width, frame.height, frame.components), (32, 16, 1));
        }
        for wrong in [&[][..], &[0xFF, 0xD9], &tables[..7], &header] {
            assert!(!are_tables(wrong) && frame(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn the_tables_of_the_standard_are_four() {
        assert!(has_codes(&[&[0xFF, 0xD8], HUFFMAN_TABLES].concat()));
        assert!(are_tables(
            &[&[0xFF, 0xD8], HUFFMAN_TABLES, &[0xFF, END]].concat()
        ));
        assert_eq!(HUFFMAN_TABLES.len(), 2 * (4 + 17 + 12) + 2 * (4 + 17 + 162));
    }
}
