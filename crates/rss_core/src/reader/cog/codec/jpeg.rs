//! JPEG, by the `jpeg-decoder` crate. See TIFF Technical Note 2.

use std::io::{Cursor, Read};

use jpeg_decoder::{ColorTransform, Decoder, Error as JpegError};

use super::damaged;
use crate::{
    error::{Error, ErrorKind, Result},
    reader::cog::level::Level,
};

/// The photometric interpretations that say how three bands are meant.
const RGB: u16 = 2;
const YCBCR: u16 = 6;

/// The tables of ITU T.81, annex K.3, as they stand in a stream: what a stream without Huffman tables
/// means.
const HUFFMAN_TABLES: &[u8] = include_bytes!("huffman_tables.bin");

/// Pixels that a byte of JPEG can become: each 8 x 8 block has a bit at least.
const MOST_OF_JPEG: usize = 512;

/// What a JPEG stream says before its data.
struct Frame {
    width: u32,
    height: u32,
    bits: u8,
    components: usize,
    /// True if tables of Huffman codes come before the data.
    has_codes: bool,
}

/// Decodes a tile: bytes of a pixel side by side, YCbCr as RGB.
pub(super) fn unpack(level: &Level, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let corrupt = |message: &str| Error::new(ErrorKind::Corrupt, message);
    let unsupported = |what: String| Error::new(ErrorKind::Unsupported, what);
    // The decoder believes the stream's own size: it must be the tile's.
    let frame = frame(bytes).ok_or_else(|| corrupt("a tile's JPEG data has no frame"))?;
    if frame.width != level.tile.width || frame.height > level.tile.height {
        return Err(corrupt(
            "a tile's JPEG frame has another size than the tile",
        ));
    }
    if frame.width as usize * frame.height as usize / MOST_OF_JPEG > bytes.len() {
        return Err(damaged("JPEG"));
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
        // The decoder turns this one around, and is turned back below.
        (4, 0..=RGB) => ColorTransform::CMYK,
        (components, colours) => {
            return Err(unsupported(format!(
                "JPEG with {components} components (photometric {colours}) is not supported"
            )));
        }
    };
    // The tables end where the stream's own markers go on. The decoder would take a frame among them
    // for the tile's.
    let tables = level.jpeg_tables.as_deref().unwrap_or_default();
    if !tables.is_empty() && !are_tables(tables) {
        return Err(corrupt(
            "its JPEG tables hold more than tables, or do not end",
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
        err => damaged("JPEG").with_source(err),
    })?;
    if transform == ColorTransform::CMYK {
        out.iter_mut().for_each(|byte| *byte = !*byte);
    }
    Ok(())
}

/// Returns the next segment of a stream: its code, where its contents start and where the next one
/// does.
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

/// Returns true if a stream holds tables and metadata only, and ends.
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

/// Returns true if a stream has tables of Huffman codes before its data.
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
        // Every code of a frame, but for those between them that are tables.
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
