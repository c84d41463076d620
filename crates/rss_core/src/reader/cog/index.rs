//! The parsed header of a TIFF file: levels, masks, and the tables of their tiles. No IO.
//!
//! The parser reads from the parts of a file that were fetched and returns the ranges it misses, so the
//! same code serves a header of 6 KB and one whose directories are at the end. Nothing in a file is
//! trusted: counts and sizes are bounded before anything is allocated, and a loop of directories ends
//! the chain.
//!
//! See [TIFF 6.0](https://www.itu.int/itudoc/itu-t/com16/tiff-fx/docs/tiff6.pdf),
//! [BigTIFF](https://www.awaresystems.be/imaging/tiff/bigtiff.html) and
//! [GeoTIFF](https://docs.ogc.org/is/19-008r4/19-008r4.html).

use std::cell::Cell;

use super::{
    directory::{Entry, Parts, Reader, Stop, corrupt, uint},
    facts::Facts,
    level::Level,
};

/// Directories of one file that are read.
const MOST_DIRECTORIES: usize = 256;
/// Directories below the first one (SubIFDs) that are read.
const MOST_SUB_DIRECTORIES: usize = 32;
/// Bytes that hold the lines of GDAL's ghost area, the text before the first directory.
const GHOST_BYTES: u64 = 256;

/// A parsed header.
#[derive(Clone, Debug)]
pub(super) struct Index {
    /// Full resolution, then the overviews, largest first.
    pub(super) levels: Vec<Level>,
    /// The mask of each level, where the file has one.
    pub(super) masks: Vec<Option<Level>>,
    pub(super) little_endian: bool,
    pub(super) facts: Facts,
    /// Bytes from the start of the file that hold the directories and the tile tables, without tables so
    /// large that they are read in parts.
    pub(super) header_bytes: u64,
    /// What is odd of the file, and does not keep it from being read.
    pub(super) notes: Vec<String>,
    /// True if a directory after the first is damaged.
    pub(super) is_cut: bool,
}

/// Returns true if GDAL's COG driver states in the ghost area that tiles are stored in row-major order,
/// with leader and trailer, and no other program has edited the file since.
///
/// See [GDAL's COG driver](https://gdal.org/en/stable/drivers/raster/cog.html#header-ghost-area).
fn is_back_to_back(parts: &Parts, at: u64) -> bool {
    const START: &[u8] = b"GDAL_STRUCTURAL_METADATA_SIZE=";
    let Ok(area) = parts.get(at..at + GHOST_BYTES) else {
        return false;
    };
    let text = String::from_utf8_lossy(&area);
    let has = |line: &str| text.lines().any(|other| other == line);
    area.starts_with(START)
        && has("BLOCK_ORDER=ROW_MAJOR")
        && has("BLOCK_LEADER=SIZE_AS_UINT4")
        && has("BLOCK_TRAILER=LAST_4_BYTES_REPEATED")
        // Readers of an interleaved mask would find its tile between two tiles of the image.
        && has("KNOWN_INCOMPATIBLE_EDITION=NO")
        && !has("MASK_INTERLEAVED_WITH_IMAGERY=YES")
}

/// Returns true if a file begins as one of another format that pixels come in.
fn is_other_format(head: &[u8]) -> bool {
    const STARTS: [&[u8]; 10] = [
        b"\0\0\0\x0cjP  ",
        b"\xff\x4f\xff\x51",
        b"\x89PNG",
        b"\xff\xd8\xff",
        b"GIF8",
        b"\x89HDF",
        b"CDF",
        b"GRIB",
        b"RIFF",
        b"<",
    ];
    STARTS.iter().any(|start| head.starts_with(start))
}

/// Parses a header, or returns the missing ranges.
pub(super) fn parse(parts: &Parts, file_bytes: u64) -> Result<Index, Stop> {
    let head = parts.get(0..8)?;
    let little_endian = match head.get(..2) {
        Some(b"II") => true,
        Some(b"MM") => false,
        _ => {
            let is_known = parts.get(0..12).is_ok_and(|head| is_other_format(&head));
            let err = super::not_a_tiff("it starts with neither II nor MM", is_known);
            return Err(Stop::Failed(err));
        }
    };
    let word = |from: usize, to: usize| uint(head.get(from..to).unwrap_or_default(), little_endian);
    let (big, mut at) = match word(2, 4) {
        42 => (false, word(4, 8)),
        43 if word(4, 6) == 8 => {
            let offset = parts.get(8..16)?;
            (true, uint(&offset, little_endian))
        }
        version => return corrupt(format!("not a TIFF: version {version}, expected 42 or 43")),
    };
    let reader = Reader {
        parts,
        little_endian,
        big,
        file_bytes,
        end: Cell::new(0),
    };
    let mut notes = Vec::new();
    let mut is_cut = false;
    let mut below = Vec::new();
    let mut seen = Vec::new();
    let mut main: Option<(Level, Facts)> = None;
    let mut overviews = Vec::new();
    let mut masks = Vec::new();
    // A directory that was read before ends the chain: the offsets form a loop.
    while at != 0 && seen.len() < MOST_DIRECTORIES && !seen.contains(&at) {
        seen.push(at);
        let (entries, next) = match reader.directory(at) {
            // A damaged directory after the first does not make the image unreadable.
            Err(Stop::Failed(err)) if main.is_some() => {
                is_cut = true;
                notes.push(format!(
                    "directories from number {} on are not there ({}): overviews and masks may be missing",
                    seen.len(),
                    err.message()
                ));
                break;
            }
            read => read?,
        };
        let (reduced, mask) = match kind(&reader, &entries) {
            Err(Stop::Failed(_)) if main.is_some() => (false, false),
            kind => kind?,
        };
        match &main {
            None => {
                let level = reader.level(&entries)?;
                let facts = reader.facts(&entries, &level)?;
                main = Some((level, facts));
                below = match reader.numbers(&entries, 330) {
                    Err(Stop::Failed(_)) => Vec::new(),
                    offsets => offsets?,
                };
            }
            Some((full, _)) if reduced || mask => match reader.level(&entries) {
                Ok(level) if mask => masks.push(level),
                Ok(level) if level.bands == full.bands && level.dtype == full.dtype => {
                    overviews.push(level);
                }
                Err(stop @ Stop::Missing(_)) => return Err(stop),
                // An image of other bands or another type, such as a thumbnail, is no overview.
                _ => {}
            },
            Some(_) => {}
        }
        at = next;
    }
    let Some((full, facts)) = main else {
        return corrupt("it has no directory");
    };
    // Overviews in directories below the first (SubIFDs), as GDAL takes them.
    for at in below.into_iter().take(MOST_SUB_DIRECTORIES) {
        if at == 0 || seen.contains(&at) {
            continue;
        }
        seen.push(at);
        let level = reader.directory(at).and_then(|(entries, _)| {
            let (reduced, mask) = kind(&reader, &entries)?;
            (reduced && !mask)
                .then(|| reader.level(&entries))
                .transpose()
        });
        match level {
            Ok(Some(level))
                if level.bands == full.bands
                    && level.dtype == full.dtype
                    && level.size.width <= full.size.width
                    && level.size.height <= full.size.height =>
            {
                overviews.push(level);
            }
            Err(stop @ Stop::Missing(_)) => return Err(stop),
            _ => {}
        }
    }
    overviews.sort_by_key(|level| {
        std::cmp::Reverse(u64::from(level.size.width) * u64::from(level.size.height))
    });
    let mut levels = vec![full];
    levels.extend(overviews);
    let masks = levels
        .iter()
        .map(|level| masks.iter().find(|mask| mask.is_mask_of(level)).cloned())
        .collect();
    notes.extend(facts.notes.iter().cloned());
    let back_to_back = is_back_to_back(parts, if big { 16 } else { 8 });
    for level in &mut levels {
        level.back_to_back = back_to_back;
    }
    let tables = levels.iter().map(Level::tables_end);
    let header_bytes = tables.fold(reader.end.get(), u64::max);
    Ok(Index {
        levels,
        masks,
        little_endian,
        facts,
        header_bytes,
        notes,
        is_cut,
    })
}

/// Returns whether a directory is of an image of reduced resolution, and of a mask (NewSubfileType).
fn kind(reader: &Reader<'_>, entries: &[Entry]) -> Result<(bool, bool), Stop> {
    let kind = reader.number(entries, 254)?.unwrap_or(0);
    Ok((kind & 1 != 0, kind & 4 != 0))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn failed(bytes: &'static [u8]) -> String {
        let mut parts = Parts::default();
        parts.add(0, Bytes::from_static(bytes));
        match parse(&parts, bytes.len() as u64) {
            Err(Stop::Failed(err)) => err.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_no_tiff_is_named() {
        assert_eq!(
            failed(b"<html><b>"),
            "not a TIFF: it starts with neither II nor MM"
        );
        assert_eq!(
            failed(b"II\x2b\0\x04\0\0\0"),
            "not a TIFF: version 43, expected 42 or 43"
        );
        assert_eq!(failed(b"II*\0\0\0\0\0"), "it has no directory");
    }

    #[test]
    fn a_directory_that_points_to_itself_ends_the_reading() {
        // One entry (width 1), next directory at 8 again.
        let bytes = b"II*\0\x08\0\0\0\x02\0\0\x01\x03\0\x01\0\0\0\x01\0\0\0\x01\x01\x03\0\x01\0\0\0\x01\0\0\0\x08\0\0\0";
        let mut parts = Parts::default();
        parts.add(0, Bytes::from_static(bytes));
        let read = parse(&parts, bytes.len() as u64);
        assert!(matches!(read, Err(Stop::Failed(_))));
    }

    #[test]
    fn missing_bytes_are_named() {
        let mut parts = Parts::default();
        parts.add(0, Bytes::from_static(b"II*\0\x10\x27\0\0"));
        let read = parse(&parts, 1 << 20);
        assert!(matches!(read, Err(Stop::Missing(ranges)) if ranges[0] == (10_000..10_002)));
    }
}
