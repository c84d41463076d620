//! Bounds on what GDAL allocates by a file's own word, checked before it does.
//!
//! GDAL has none of the COG reader's bounds: it makes an object for each band of each overview that a header states, and
//! room for a block of any size; OpenJPEG makes one for each code-block of a tile. A file of some kilobytes could take
//! all memory. So the header is looked at here before GDAL opens the file ([`check_file`]: bytes that GDAL reads next
//! anyway), and the size of a block before it is read ([`check_block`]).

use gdal::raster::RasterBand;

use super::raw::{self, VsiFile};
use crate::error::{Error, ErrorKind, Result};

/// Bands of a file and of all its overviews. GDAL takes some 500 bytes for each.
const MOST_BANDS: u64 = 400_000;
/// Directories of a TIFF that are looked at: a file with more is refused, as GDAL reads them all.
const MOST_DIRECTORIES: usize = 4096;
/// Boxes, markers and tile-parts of a JPEG 2000 file that are looked at.
const MOST_PARTS: usize = 4096;
/// Samples of a tile that is small: only some of the headers of such tiles are looked at, as each may cost a request.
const SMALL_TILE: u64 = 4 << 20;
const HEADERS_OF_SMALL_TILES: usize = 8;
/// Bytes that OpenJPEG takes for a code-block and for a precinct of a band.
const CODE_BLOCK_BYTES: u64 = 400;
const PRECINCT_BYTES: u64 = 200;

fn past(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, message)
}

/// The directories of a TIFF that GDAL is going to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Directories {
    /// The image alone: nobody asks for its overviews.
    First,
    All,
}

/// Checks a file that GDAL is about to open. What cannot be read here is left for GDAL to report.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] if it states more than GDAL could hold in `most_bytes`; those of the network.
pub(super) fn check_file(path: &str, most_bytes: u64, directories: Directories) -> Result<()> {
    let Some(mut file) = VsiFile::open(path)? else {
        return Ok(());
    };
    let Some(head) = file.read::<16>(0) else {
        return Ok(());
    };
    match head {
        [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..] => {
            check_tiff(&mut file, &head, directories)
        }
        [0, 0, 0, 12, b'j', b'P', b' ', b' ', ..] => check_jp2(&mut file, most_bytes),
        [0xff, 0x4f, 0xff, 0x51, ..] => check_codestream(&mut file, 0, most_bytes),
        _ => Ok(()),
    }
}

/// Checks the size of a band's blocks.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] if one takes more than `most_bytes`.
pub(super) fn check_block(band: &RasterBand<'_>, most_bytes: u64) -> Result<()> {
    let block = raw::block(band);
    match block.bytes() {
        bytes if bytes <= most_bytes => Ok(()),
        _ => Err(past(format!(
            "blocks of {} x {} x {} samples are past the limit of {} MiB (RSS_GDAL_BLOCK_BYTES, gdal_block_bytes)",
            block.width,
            block.height,
            block.bands,
            most_bytes >> 20
        ))),
    }
}

/// The numbers of a TIFF: their byte order, and whether offsets have 8 bytes.
struct Numbers {
    is_little: bool,
    is_big_tiff: bool,
}

impl Numbers {
    fn of<const N: usize>(&self, bytes: [u8; N]) -> u64 {
        let add = |sum: u64, byte: &u8| (sum << 8) | u64::from(*byte);
        match self.is_little {
            true => bytes.iter().rev().fold(0, add),
            false => bytes.iter().fold(0, add),
        }
    }

    /// Returns the number at an offset in bytes, 0 where they end before.
    fn at<const N: usize>(&self, bytes: &[u8], at: usize) -> u64 {
        let found = at
            .checked_add(N)
            .and_then(|end| bytes.get(at..end))
            .and_then(|part| <[u8; N]>::try_from(part).ok());
        found.map_or(0, |part| self.of(part))
    }

    /// Returns an offset or a count of 4 bytes, in a BigTIFF of 8.
    fn long(&self, bytes: &[u8], at: usize) -> u64 {
        match self.is_big_tiff {
            true => self.at::<8>(bytes, at),
            false => self.at::<4>(bytes, at),
        }
    }
}

/// Counts the bands of all directories.
fn check_tiff(file: &mut VsiFile, head: &[u8; 16], directories: Directories) -> Result<()> {
    let is_little = head.first() == Some(&b'I');
    let numbers = Numbers {
        is_little,
        is_big_tiff: head.contains(&43),
    };
    let (count_bytes, entry_bytes, long_bytes) = match numbers.is_big_tiff {
        true => (8, 20, 8),
        false => (2, 12, 4),
    };
    let mut next = numbers.long(head, long_bytes);
    let mut seen = std::collections::HashSet::new();
    let mut bands = 0_u64;
    // libtiff stops at a directory that it has seen, too.
    while next != 0 && seen.insert(next) {
        if seen.len() > MOST_DIRECTORIES {
            return Err(past(format!(
                "it has more than {MOST_DIRECTORIES} directories"
            )));
        }
        let Some(first) = file.read::<8>(next) else {
            break;
        };
        let entries = match numbers.is_big_tiff {
            true => numbers.at::<8>(&first, 0),
            false => numbers.at::<2>(&first, 0),
        };
        // libtiff, too, reads no directory of more entries.
        let Some(entries) = usize::try_from(entries).ok().filter(|n| *n <= 4096) else {
            break;
        };
        let length = entries * entry_bytes + long_bytes;
        let Some(body) = file.read_vec(next.saturating_add(count_bytes), length) else {
            break;
        };
        let samples = body
            .chunks_exact(entry_bytes)
            .take(entries)
            .filter(|entry| numbers.at::<2>(entry, 0) == 277)
            .map(|entry| {
                let value = if numbers.is_big_tiff { 12 } else { 8 };
                match numbers.at::<2>(entry, 2) {
                    1 => numbers.at::<1>(entry, value),
                    3 => numbers.at::<2>(entry, value),
                    _ => numbers.at::<4>(entry, value),
                }
            })
            .max();
        bands = bands.saturating_add(samples.unwrap_or(1).max(1));
        if bands > MOST_BANDS {
            return Err(past(format!(
                "it and its overviews state more than {MOST_BANDS} bands"
            )));
        }
        if directories == Directories::First {
            break;
        }
        next = numbers.long(&body, entries * entry_bytes);
    }
    Ok(())
}

fn be<const N: usize>(bytes: [u8; N]) -> u64 {
    bytes
        .iter()
        .fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
}

/// Finds the codestream of a JP2 file, and checks it.
fn check_jp2(file: &mut VsiFile, most_bytes: u64) -> Result<()> {
    let mut at = 0_u64;
    for _ in 0..MOST_PARTS {
        let Some([a, b, c, d, kind @ ..]) = file.read::<8>(at) else {
            return Ok(());
        };
        let (length, head) = match be([a, b, c, d]) {
            1 => (file.read::<8>(at.saturating_add(8)).map_or(0, be), 16),
            length => (length, 8),
        };
        if &kind == b"jp2c" {
            return check_codestream(file, at.saturating_add(head), most_bytes);
        }
        if length < head {
            return Ok(());
        }
        at = at.saturating_add(length);
    }
    Err(past(format!("it has more than {MOST_PARTS} boxes")))
}

/// What the coding styles of a codestream state, the most costly of each: a tile and a component may have one of their own.
struct Coding {
    levels: u32,
    /// The exponents of a code-block's width and height.
    block: [u32; 2],
    /// The exponents of a precinct's width and height at each resolution.
    precincts: Vec<[u32; 2]>,
}

impl Coding {
    /// Takes the parameters that COD and COC share: levels, code-block, style, transform, precincts.
    fn take(&mut self, text: &[u8], has_precincts: bool) {
        let [levels, width, height, _, _, precincts @ ..] = text else {
            return;
        };
        self.levels = self.levels.max(u32::from(*levels).min(32));
        let exponent = |byte: &u8| u32::from(byte & 0xf) + 2;
        self.block = [
            self.block[0].min(exponent(width)),
            self.block[1].min(exponent(height)),
        ];
        for (at, byte) in precincts.iter().take(33).enumerate() {
            let sides = [u32::from(byte & 0xf), u32::from(byte >> 4)];
            match self.precincts.get_mut(at) {
                _ if !has_precincts => break,
                Some(old) => *old = [old[0].min(sides[0]), old[1].min(sides[1])],
                None => self.precincts.push(sides),
            }
        }
    }

    /// Returns the bytes that OpenJPEG takes for the parts of one component of a tile.
    fn bytes(&self, tile: [u64; 2]) -> u64 {
        let mut sum = 0_u64;
        for resolution in 0..=self.levels {
            let precinct = usize::try_from(resolution)
                .ok()
                .and_then(|at| self.precincts.get(at))
                .copied()
                .unwrap_or([15, 15]);
            let (bands, halved) = if resolution == 0 { (1, 0) } else { (3, 1) };
            let down = self.levels - resolution;
            let mut blocks = 1_u64;
            let mut precincts = 1_u64;
            for ((side, block), precinct) in tile.iter().zip(self.block).zip(precinct) {
                let parts = |exponent: u32| side.div_ceil(1_u64 << exponent.min(63)).max(1);
                let block = block.min(precinct.saturating_sub(halved));
                blocks = blocks.saturating_mul(parts(down + halved + block));
                precincts = precincts.saturating_mul(parts(down + precinct));
            }
            let blocks = blocks.saturating_mul(CODE_BLOCK_BYTES);
            let precincts = precincts.saturating_mul(PRECINCT_BYTES);
            sum = sum.saturating_add(blocks.saturating_add(precincts).saturating_mul(bands));
        }
        sum
    }
}

/// Checks the tiles of a codestream: [ITU-T T.800](https://www.itu.int/rec/T-REC-T.800), annex A.
fn check_codestream(file: &mut VsiFile, start: u64, most_bytes: u64) -> Result<()> {
    let Some(siz) = file.read::<42>(start.saturating_add(2)) else {
        return Ok(());
    };
    let number = |at: usize| {
        let part = siz
            .get(at..at + 4)
            .and_then(|part| <[u8; 4]>::try_from(part).ok());
        part.map_or(0, be)
    };
    let image = [
        number(6).saturating_sub(number(14)),
        number(10).saturating_sub(number(18)),
    ];
    let tile = [number(22).min(image[0]), number(26).min(image[1])];
    let is_single = tile == image;
    let components = siz
        .get(38..40)
        .and_then(|part| <[u8; 2]>::try_from(part).ok());
    let components = components.map_or(1, be).max(1);
    let mut coding = Coding {
        levels: 0,
        block: [10, 10],
        precincts: Vec::new(),
    };
    let samples = tile[0].saturating_mul(tile[1]).saturating_mul(components);
    // Of one tile GDAL decodes the part that is asked for; of several, whole ones, with 4 bytes a sample.
    let decoded = if is_single {
        0
    } else {
        samples.saturating_mul(4)
    };
    let refuse = |bytes: u64| match bytes > most_bytes {
        true => Err(past(format!(
            "JPEG 2000 tiles of {} x {} x {components} samples take {} MiB, past the limit of {} MiB \
             (RSS_GDAL_BLOCK_BYTES, gdal_block_bytes)",
            tile[0],
            tile[1],
            bytes >> 20,
            most_bytes >> 20
        ))),
        false => Ok(()),
    };
    refuse(decoded)?;
    let mut tiles = 0;
    let mut at = start.saturating_add(2);
    // Where the tile-part under way ends.
    let mut end = None;
    for number in 0.. {
        if number == MOST_PARTS {
            return Err(past(format!(
                "its headers have more than {MOST_PARTS} parts"
            )));
        }
        let Some([a, b, c, d]) = file.read::<4>(at) else {
            break;
        };
        let (marker, length) = (be([a, b]), be([c, d]));
        let text = |file: &mut VsiFile| {
            let length = usize::try_from(length.saturating_sub(2)).unwrap_or(0);
            file.read_vec(at.saturating_add(4), length)
                .unwrap_or_default()
        };
        match marker {
            // COD: its style says whether there are precincts; four bytes are of the tile, not of a component.
            0xff52 => {
                let text = text(file);
                let has = text.first().is_some_and(|style| style & 1 != 0);
                coding.take(text.get(5..).unwrap_or_default(), has);
            }
            // COC: the component has 1 or 2 bytes.
            0xff53 => {
                let text = text(file);
                let at = if components < 257 { 1 } else { 2 };
                let has = text.get(at).is_some_and(|style| style & 1 != 0);
                coding.take(text.get(at + 1..).unwrap_or_default(), has);
            }
            // SOT: the length of the tile-part, 0 for all that is left.
            0xff90 => {
                tiles += 1;
                if samples <= SMALL_TILE && tiles > HEADERS_OF_SMALL_TILES {
                    break;
                }
                let part = file.read::<4>(at.saturating_add(6)).map_or(0, be);
                end = (part != 0).then(|| at.saturating_add(part));
            }
            // SOD: data until the next tile-part.
            0xff93 => match end.take() {
                Some(end) if end > at => {
                    at = end;
                    continue;
                }
                _ => break,
            },
            0xffd9 => break,
            _ => {}
        }
        at = at.saturating_add(2).saturating_add(length.max(2));
    }
    let parts = coding.bytes(tile).saturating_mul(components);
    refuse(parts.saturating_add(decoded))
}
