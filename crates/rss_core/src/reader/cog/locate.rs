//! The byte ranges of an image's tiles, from its tables. No IO.
//!
//! A tile is sparse where its offset **and** its byte count are 0, as GDAL's drivers leave it, and nowhere else. Real
//! files have a count of 0 beside an offset: scanners that do not know the length of their one strip, writers that fill
//! the table in later. libtiff estimates the length of one strip, and so does this, for any tile: it ends where the
//! next one begins, or with the file, and no codec reads on behind its data. An offset of 0 beside a count is damage:
//! the header stands there. Where the tables say nothing that can be relied on it is an error, for GDAL reads such tiles
//! as if they were sparse, or as what stands there.

use std::ops::Range;

use super::{
    directory::{Parts, Stop, contradiction, corrupt},
    level::{Compression, Level, Tables},
    table::NumberTable,
};
use crate::{error::ErrorKind, reader::Tiles};

// GDAL's COG driver writes the size of a tile before it, and its last four bytes again after it.
const LEADER_BYTES: u64 = 4;
const TRAILER_BYTES: u64 = 4;
/// Bytes beyond twice those of its samples that a tile may have, as computed from the next tile's offset.
const MOST_BETWEEN: u64 = 512 << 10;

/// A tile's entries in the tables; none where a table is too short, or missing.
#[derive(Clone, Copy, Debug)]
struct TileEntry {
    offset: Option<u64>,
    byte_count: Option<u64>,
}

/// Where and how a file's tables are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) little_endian: bool,
    /// The size of the file.
    pub(super) file_bytes: u64,
    pub(super) parts: &'a Parts,
}

impl Level {
    /// Returns the byte ranges of tiles; an empty range is a sparse tile.
    ///
    /// Only the entries of these tiles are read, and all offsets where a byte count must be estimated. All missing
    /// ranges, of both tables, are returned together, so that they are fetched in parallel.
    pub(super) fn ranges(
        &self,
        numbers: &[u64],
        source: Source<'_>,
    ) -> Result<Vec<Range<u64>>, Stop> {
        let entries = self.entries(numbers, source)?;
        let starts = self.starts(numbers, &entries, source)?;
        let all = numbers.iter().zip(entries);
        all.map(|(&number, entry)| self.locate(number, entry, starts.as_deref(), source.file_bytes))
            .collect()
    }

    /// Returns the entries of tiles for an index: estimated where that is possible, and as the file states them where
    /// they contradict each other, so that a read by the index fails as one by the file does.
    pub(super) fn tiles_of(&self, numbers: &[u64], source: Source<'_>) -> Result<Tiles, Stop> {
        let entries = self.entries(numbers, source)?;
        let starts = self.starts(numbers, &entries, source)?;
        let mut tiles = Tiles::default();
        for (&number, entry) in numbers.iter().zip(entries) {
            let located = self.locate(number, entry, starts.as_deref(), source.file_bytes);
            let (offset, bytes) = match (located, entry.offset) {
                (Ok(range), _) => (range.start, range.end - range.start),
                // No count is stated; any but 0 keeps the tile apart from a sparse one.
                (Err(_), Some(0)) => (0, entry.byte_count.unwrap_or(1)),
                (Err(_), Some(offset)) => (offset, 0),
                (Err(stop), None) => return Err(stop),
            };
            tiles.offsets.push(offset);
            tiles.byte_counts.push(bytes);
        }
        Ok(tiles)
    }

    /// Returns the entries of tiles.
    fn entries(&self, numbers: &[u64], source: Source<'_>) -> Result<Vec<TileEntry>, Stop> {
        let (offsets, byte_counts) = match &self.tables {
            Tables::Known(tiles) => {
                let entry = |&number: &u64| {
                    let at = usize::try_from(number).unwrap_or(usize::MAX);
                    TileEntry {
                        offset: tiles.offsets.get(at).copied(),
                        byte_count: tiles.byte_counts.get(at).copied(),
                    }
                };
                return Ok(numbers.iter().map(entry).collect());
            }
            Tables::InFile {
                offsets,
                byte_counts,
            } => (offsets, byte_counts),
        };
        let read = |table: &NumberTable, numbers: &[u64]| {
            table.read(numbers, source.little_endian, source.parts)
        };
        let counts_of = |numbers: &[u64]| match byte_counts {
            Some(counts) => read(counts, numbers),
            None => Ok(vec![None; numbers.len()]),
        };
        // Small tables are in memory with the header: only large ones are worth the inference.
        let mut tables = [Some(offsets), byte_counts.as_ref()].into_iter().flatten();
        if self.back_to_back && !tables.all(NumberTable::is_small) {
            return self.entries_between(numbers, |numbers| read(offsets, numbers), counts_of);
        }
        let offsets = read(offsets, numbers);
        let counts = counts_of(numbers);
        let (offsets, counts) = match (offsets, counts) {
            (Ok(offsets), Ok(counts)) => (offsets, counts),
            (Err(Stop::Missing(mut missing)), Err(Stop::Missing(more))) => {
                missing.extend(more);
                return Err(Stop::Missing(missing));
            }
            (Err(Stop::Missing(_)), Err(stop)) | (Err(stop), _) | (_, Err(stop)) => {
                return Err(stop);
            }
        };
        let both = offsets.into_iter().zip(counts);
        Ok(both
            .map(|(offset, byte_count)| TileEntry { offset, byte_count })
            .collect())
    }

    /// As [`Level::entries`], of tiles that are stored one after the other: the next tile's offset gives the
    /// length of a tile, so half of the table bytes need not be fetched. The table of byte counts is read
    /// only for tiles without an offset, and those whose successor is sparse or far away.
    fn entries_between(
        &self,
        numbers: &[u64],
        offsets_of: impl Fn(&[u64]) -> Result<Vec<Option<u64>>, Stop>,
        counts_of: impl Fn(&[u64]) -> Result<Vec<Option<u64>>, Stop>,
    ) -> Result<Vec<TileEntry>, Stop> {
        let pairs: Vec<u64> = numbers
            .iter()
            .flat_map(|&number| [number, number.saturating_add(1)])
            .collect();
        let offsets = offsets_of(&pairs)?;
        let (pairs, _) = offsets.as_chunks::<2>();
        // A tile that was rewritten is at the end of the file, far from the one before it.
        let plain = self.row_bytes().unwrap_or(0) as u64 * u64::from(self.tile.height);
        let most = plain.saturating_mul(2).saturating_add(MOST_BETWEEN);
        let length = |pair: &[Option<u64>; 2]| match *pair {
            [Some(offset), Some(next)] if offset > 0 => next
                .checked_sub(offset)?
                .checked_sub(LEADER_BYTES + TRAILER_BYTES)
                .filter(|&length| length > 0 && length <= most),
            _ => None,
        };
        let all = numbers.iter().zip(pairs);
        let asked: Vec<u64> = all
            .clone()
            .filter_map(|(&number, pair)| length(pair).is_none().then_some(number))
            .collect();
        let mut counts = counts_of(&asked)?.into_iter();
        Ok(all
            .map(|(_, pair)| TileEntry {
                offset: pair[0],
                byte_count: length(pair).or_else(|| counts.next().flatten()),
            })
            .collect())
    }

    /// Returns the offsets of tiles in the order of the file, where an entry needs them to be estimated: all, or in a
    /// table that is read in parts those of the tiles before and after. None where nothing can be estimated: in a COG
    /// whose ghost area vouches for its tables, in a table of several byte counts that are all 0, and from an index, as
    /// what could be was when it was made.
    fn starts(
        &self,
        numbers: &[u64],
        entries: &[TileEntry],
        source: Source<'_>,
    ) -> Result<Option<Vec<u64>>, Stop> {
        let Tables::InFile {
            offsets,
            byte_counts,
        } = &self.tables
        else {
            return Ok(None);
        };
        let all = numbers.iter().zip(entries);
        let open: Vec<u64> = all
            .filter(|&(&number, entry)| self.is_open_ended(number, *entry))
            .map(|(&number, _)| number)
            .collect();
        let numbers: Vec<u64> = match offsets.is_small() {
            _ if open.is_empty() => return Ok(None),
            // GDAL's COG driver leaves no such tile: another program cleared the counts, and GDAL reads them as sparse.
            _ if self.back_to_back => return Ok(None),
            true => (0..offsets.count.min(self.tiles())).collect(),
            false => {
                let near = |number: u64| number.saturating_sub(1)..=number.saturating_add(1);
                let mut near: Vec<u64> = open.into_iter().flat_map(near).collect();
                near.sort_unstable();
                near.dedup();
                near
            }
        };
        if let Some(counts) = byte_counts.filter(|_| self.tiles() > 1) {
            let counts = counts.read(&numbers, source.little_endian, source.parts)?;
            if counts.into_iter().flatten().all(|bytes| bytes == 0) {
                return Ok(None);
            }
        }
        let starts = offsets.read(&numbers, source.little_endian, source.parts)?;
        let mut starts: Vec<u64> = starts.into_iter().flatten().filter(|&at| at > 0).collect();
        starts.sort_unstable();
        Ok(Some(starts))
    }

    /// Returns true for a tile with an offset whose length must be estimated.
    fn is_open_ended(&self, number: u64, entry: TileEntry) -> bool {
        entry.offset.is_some_and(|offset| offset > 0)
            && match entry.byte_count {
                None => self.plain_bytes(number).is_none(),
                Some(bytes) => bytes == 0,
            }
    }

    /// Returns the range of a tile with these entries.
    fn locate(
        &self,
        number: u64,
        entry: TileEntry,
        starts: Option<&[u64]>,
        file_bytes: u64,
    ) -> Result<Range<u64>, Stop> {
        match (entry.offset, entry.byte_count) {
            (None, _) => corrupt(format!("tile {number} has no entry in its table")),
            (Some(0), Some(0)) => Ok(0..0),
            // The tables of uncompressed images lie so in files that GDAL reads, as samples of the header.
            (Some(0), bytes) => {
                let kind = match self.compression {
                    Compression::None => ErrorKind::Unsupported,
                    _ => ErrorKind::Corrupt,
                };
                let bytes =
                    bytes.map_or("no byte count".to_owned(), |bytes| format!("{bytes} bytes"));
                let expected = "expected both to be 0, or neither";
                contradiction(
                    kind,
                    format!("tile {number} has offset 0 and {bytes}, {expected}"),
                )
            }
            (Some(offset), Some(0)) => self.estimate(number, offset, starts, file_bytes),
            (Some(offset), count) => match count.or_else(|| self.plain_bytes(number)) {
                Some(bytes) => match offset.checked_add(bytes) {
                    Some(end) => Ok(offset..end),
                    None => corrupt(format!("the end of tile {number} is past 64 bits")),
                },
                None => self.estimate(number, offset, starts, file_bytes),
            },
        }
    }

    /// Returns the range of a tile without a byte count: to the next tile, or the end of the file.
    fn estimate(
        &self,
        number: u64,
        offset: u64,
        starts: Option<&[u64]>,
        file_bytes: u64,
    ) -> Result<Range<u64>, Stop> {
        let what = format!("tile {number} has offset {offset} and no byte count");
        if offset > file_bytes {
            let what = format!("{what}, in a file of {file_bytes} bytes");
            return contradiction(ErrorKind::Corrupt, what);
        }
        let unclear = || {
            let what = format!("{what}: GDAL reads it as if it was not stored (`--backend gdal`)");
            contradiction(ErrorKind::Unsupported, what)
        };
        let Some(starts) = starts else {
            return unclear();
        };
        let behind = starts.partition_point(|&start| start <= offset);
        let before = starts.partition_point(|&start| start < offset);
        // Some writers leave the position of the file where a tile is empty: it may be so, or damaged.
        if behind - before > 1 || offset == file_bytes {
            return unclear();
        }
        let next = starts.get(behind).copied().unwrap_or(file_bytes);
        let most = match self.compression {
            Compression::None => self.plain_bytes(number).unwrap_or(0),
            _ => self.most_stored_bytes(),
        };
        Ok(offset..next.min(file_bytes).min(offset.saturating_add(most)))
    }
}
