//! Entry points of the fuzz targets: the private stages, with a fuzzer's bytes in place of a file.
//!
//! Built only under `cfg(fuzzing)`, which `cargo fuzz` sets; no part of the library. A function here may
//! return any error for damaged bytes, but must not panic, hang, or take unbounded memory.

use std::ops::Range;

use bytes::Bytes;

use super::{
    decode::{self, BandTarget, TileJob},
    directory::{Parts, Stop},
    index::{self, Index},
    level::Level,
    locate::Source,
    plan,
};
use crate::{
    geo::{Size, Window},
    raster::{Canvas, Wanted, with_type},
    store::{self, Merge},
};

/// Bytes of the header in the first part: few, so that the parser has to request the rest.
const FIRST_BYTES: usize = 16;
/// Rounds of requests for a header, as in `reader.rs`.
const MOST_PIECES: usize = 32;
/// The largest side of a decoded tile, so that the fuzzer's time goes to codecs.
const MOST_SIDE: u32 = 4096;

/// Parses a header piece by piece, then finds the tiles under the corners of each level.
pub fn header(file: &[u8]) {
    let mut parts = Parts::default();
    let first = file.len().min(FIRST_BYTES);
    parts.add(0, Bytes::copy_from_slice(file.get(..first).unwrap_or(file)));
    let Some(index) = complete(file, &mut parts, |parts| {
        index::parse(parts, file.len() as u64)
    }) else {
        return;
    };
    for level in &index.levels {
        let _ = decode::tile_bytes(level);
        for window in corners(level.size) {
            let (columns, rows) = plan::tiles(&window, level.tile);
            assert!(columns.len() <= 2 && rows.len() <= 2, "{window:?}");
            for plane in [0, level.bands - 1] {
                let plane = if level.planar { plane } else { 0 };
                let all = rows
                    .clone()
                    .flat_map(|row| columns.clone().map(move |col| (col, row)));
                let numbers: Vec<u64> = all
                    .map(|(col, row)| level.number(col, row, plane))
                    .collect();
                let step = |parts: &Parts| {
                    let source = Source {
                        little_endian: index.little_endian,
                        file_bytes: file.len() as u64,
                        parts,
                    };
                    level.ranges(&numbers, source)
                };
                if let Some(ranges) = complete(file, &mut parts, step) {
                    assert_eq!(ranges.len(), numbers.len());
                    assert!(ranges.iter().all(|range| range.start <= range.end));
                }
            }
        }
    }
}

/// Two pixels square at the first and at the last corner.
fn corners(size: Size) -> [Window; 2] {
    let (width, height) = (size.width.min(2), size.height.min(2));
    [(0, 0), (size.width - width, size.height - height)].map(|(col, row)| Window {
        col,
        row,
        width,
        height,
    })
}

/// Runs `step` on parts of `file`, as a reader that fetches exactly the missing ranges.
fn complete<T>(
    file: &[u8],
    parts: &mut Parts,
    step: impl Fn(&Parts) -> Result<T, Stop>,
) -> Option<T> {
    let mut asked: Vec<Range<u64>> = Vec::new();
    while asked.len() < MOST_PIECES {
        let missing = match step(parts) {
            Ok(done) => return Some(done),
            Err(Stop::Failed(_)) => return None,
            Err(Stop::Missing(ranges)) => ranges,
        };
        assert!(!missing.is_empty());
        for range in missing {
            assert!(range.start <= range.end);
            assert!(!asked.contains(&range), "{range:?} is there already");
            let from = usize::try_from(range.start).ok()?;
            let to = usize::try_from(range.end).ok()?;
            parts.add(range.start, Bytes::copy_from_slice(file.get(from..to)?));
            asked.push(range);
        }
    }
    None
}

/// Merges ranges; see `store::coalesce`. Each fetch is its range and the indices in `wanted`.
pub fn coalesce(
    wanted: &[Range<u64>],
    gap_bytes: u64,
    fetch_bytes: u64,
) -> Vec<(Range<u64>, Vec<usize>)> {
    let merge = Merge {
        gap_bytes,
        fetch_bytes,
    };
    store::coalesce(wanted, merge)
        .into_iter()
        .map(|fetch| (fetch.range, fetch.wanted))
        .collect()
}

/// Returns the tile columns and rows that a window touches.
pub fn tiles(window: &Window, tile: Size) -> (Range<u32>, Range<u32>) {
    plan::tiles(window, tile)
}

/// Decodes the first tile of a small image whose tags come from the first bytes: see `tile_of`.
pub fn codec(input: &[u8]) {
    let Some((index, bytes)) = tile_of(input) else {
        return;
    };
    let Some(level) = index.levels.first() else {
        return;
    };
    if level.tile.width.max(level.tile.height) > MOST_SIDE || decode::tile_bytes(level).is_err() {
        return;
    }
    with_type!(level.dtype, T => {
        let _ = decode_first::<T>(level, index.little_endian, bytes);
    });
}

/// Decodes the tile at 0, 0: its first band, clipped to the image.
fn decode_first<T: super::samples::Value>(
    level: &Level,
    little_endian: bool,
    bytes: &[u8],
) -> crate::Result<()> {
    let tile = Window {
        col: 0,
        row: 0,
        width: level.tile.width,
        height: level.tile.height,
    };
    let wanted = Window {
        width: level.tile.width.min(level.size.width),
        height: level.tile.height.min(level.size.height),
        ..tile
    };
    let one = Wanted {
        band: 0,
        window: wanted,
    };
    let (rest, slots) = Canvas::<T>::new(1, wanted)?.split(&[one])?;
    let mut targets: Vec<BandTarget<T>> = slots
        .into_iter()
        .map(|slot| BandTarget { in_tile: 0, slot })
        .collect();
    let job = TileJob { tile, wanted };
    decode::decode(level, little_endian, bytes, &job, &mut targets)?;
    drop(targets);
    rest.join()?;
    Ok(())
}

/// Reads the tags of an image of one tile from 24 bytes, and returns the rest as that tile.
///
/// The layout, little-endian: compression u16, photometric u16, bands u16, bits u8, format u8,
/// predictor u8, flags u8 (1: planar, 2: big-endian, 4: a strip), width u16, height u16, fill order
/// u8, options of CCITT u8, version of LERC u16, its inner compression u16, JPEG tables' length u16,
/// width and height of the image beyond (or below) the tile, i8 each.
fn tile_of(input: &[u8]) -> Option<(Index, &[u8])> {
    let (head, rest) = input.split_at_checked(24)?;
    let byte = |at: usize| u32::from(head.get(at).copied().unwrap_or_default());
    let short = |at: usize| byte(at) | byte(at + 1) << 8;
    let flags = byte(9);
    let (planar, big_endian, strip) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
    let tables = usize::try_from(short(20)).ok()?.min(rest.len());
    let (tables, bytes) = rest.split_at_checked(tables)?;
    let (width, height) = (short(10), short(12));
    let beyond = |side: u32, at: usize| {
        let more = i32::from(i8::from_le_bytes([head
            .get(at)
            .copied()
            .unwrap_or_default()]));
        side.saturating_add_signed(more).max(1)
    };
    let mut entries = vec![
        (256, vec![if strip { width } else { beyond(width, 22) }]),
        (257, vec![beyond(height, 23)]),
        (258, vec![byte(6)]),
        (259, vec![short(0)]),
        (262, vec![short(2)]),
        (266, vec![byte(14)]),
        (273, vec![8]),
        (277, vec![short(4)]),
        (279, vec![u32::try_from(bytes.len()).ok()?]),
        (284, vec![if planar { 2 } else { 1 }]),
        (292, vec![byte(15)]),
        (293, vec![byte(15)]),
        (317, vec![byte(8)]),
        (339, vec![byte(7)]),
        (50674, vec![short(16), short(18)]),
    ];
    if strip {
        entries.push((278, vec![height.max(1)]));
    } else {
        entries.push((322, vec![width]));
        entries.push((323, vec![height]));
    }
    let file = tiff_of(&entries, tables, big_endian);
    let mut parts = Parts::default();
    let length = file.len() as u64;
    parts.add(0, Bytes::from(file));
    Some((index::parse(&parts, length).ok()?, bytes))
}

/// Writes a TIFF of one directory: numbers, and JPEG tables if there are any.
fn tiff_of(entries: &[(u16, Vec<u32>)], tables: &[u8], big_endian: bool) -> Vec<u8> {
    let short = |value: u16| {
        if big_endian {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    };
    let long = |value: usize| {
        let value = u32::try_from(value).unwrap_or(u32::MAX);
        if big_endian {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    };
    let count = entries.len() + usize::from(!tables.is_empty());
    let mut after = 8 + 2 + count * 12 + 4;
    let mut tail = Vec::new();
    let mut file = Vec::from(if big_endian { *b"MM" } else { *b"II" });
    file.extend(short(42));
    file.extend(long(8));
    file.extend(short(u16::try_from(count).unwrap_or(u16::MAX)));
    for (tag, values) in entries {
        file.extend(short(*tag));
        file.extend(short(4));
        file.extend(long(values.len()));
        let values: Vec<u8> = values.iter().flat_map(|&v| long(v as usize)).collect();
        if values.len() == 4 {
            file.extend(values);
        } else {
            file.extend(long(after));
            after += values.len();
            tail.extend(values);
        }
    }
    if !tables.is_empty() {
        file.extend(short(347));
        file.extend(short(7));
        file.extend(long(tables.len()));
        if tables.len() <= 4 {
            file.extend(tables);
            file.extend(std::iter::repeat_n(0, 4 - tables.len()));
        } else {
            file.extend(long(after));
            tail.extend(tables);
        }
    }
    file.extend(long(0));
    file.extend(tail);
    file
}
