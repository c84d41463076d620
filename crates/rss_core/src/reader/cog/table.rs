//! The tables of tile offsets and byte counts of a TIFF file, read in parts. No IO.

use std::ops::Range;

use bytes::Bytes;

use super::{
    directory::{Parts, Stop, corrupt, uint},
    last_word,
};
use crate::{
    error::ErrorKind,
    store::{self, Merge},
};

/// A table of tiles up to this size counts as part of the header; a larger one is read in parts.
const MOST_TABLE_BYTES: u64 = 512 << 10;
/// Bytes of a table that one read may fetch.
const MOST_ENTRY_BYTES: u64 = 24 << 20;
/// How entries of a tile table are merged into requests. The entries of two rows of tiles are as far apart
/// as one row of tiles has entries.
const TABLE_MERGE: Merge = Merge {
    gap_bytes: 32 << 10,
    fetch_bytes: 4 << 20,
};

/// A table of integers in the file, not read yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberTable {
    pub(super) at: u64,
    pub(super) count: u64,
    /// Bytes of one number.
    pub(super) width: u64,
}

impl NumberTable {
    /// Returns true if the table is read with the header.
    pub(super) fn is_small(&self) -> bool {
        let bytes = self.count.checked_mul(self.width);
        bytes.is_some_and(|bytes| bytes <= MOST_TABLE_BYTES)
    }

    /// Reads the entries of tiles; none where the table is too short.
    pub(super) fn read(
        &self,
        numbers: &[u64],
        little_endian: bool,
        parts: &Parts,
    ) -> Result<Vec<Option<u64>>, Stop> {
        let mut missing = Vec::new();
        let mut entries = Vec::with_capacity(numbers.len());
        let mut held: Option<(u64, Bytes)> = None;
        for &number in numbers {
            if number >= self.count {
                entries.push(None);
                continue;
            }
            let from = number
                .checked_mul(self.width)
                .and_then(|at| at.checked_add(self.at));
            let range = from.and_then(|from| Some(from..from.checked_add(self.width)?));
            let Some(range) = range else {
                return corrupt("the offset of a tile table is past 64 bits");
            };
            // Adjacent entries are mostly in the same part as the one before: no search.
            let inside = held.as_ref().and_then(|(start, bytes)| {
                let from = usize::try_from(range.start.checked_sub(*start)?).ok()?;
                let to = from.checked_add(usize::try_from(self.width).ok()?)?;
                bytes.get(from..to).map(|entry| uint(entry, little_endian))
            });
            if inside.is_some() {
                entries.push(inside);
                continue;
            }
            match parts.around(&range) {
                Some(part) => {
                    let (start, bytes) = &part;
                    let from = usize::try_from(range.start - start).unwrap_or(usize::MAX);
                    let width = usize::try_from(self.width).unwrap_or(0);
                    let entry = bytes.get(from..from.saturating_add(width));
                    entries.push(entry.map(|entry| uint(entry, little_endian)));
                    held = Some(part);
                }
                None => missing.push(range),
            }
        }
        if missing.is_empty() {
            return Ok(entries);
        }
        let fetches = store::coalesce(&missing, TABLE_MERGE);
        let ranges: Vec<Range<u64>> = fetches.into_iter().map(|fetch| fetch.range).collect();
        let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        if bytes > MOST_ENTRY_BYTES {
            let message = format!(
                "the tile tables for this read have {bytes} bytes, past the limit of {MOST_ENTRY_BYTES}; \
                 read a window"
            );
            return Err(Stop::Failed(last_word(ErrorKind::Unsupported, message)));
        }
        Err(Stop::Missing(ranges))
    }
}
