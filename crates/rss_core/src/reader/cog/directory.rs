//! The tags of a TIFF file, read from the parts of it that were fetched. No IO.
//!
//! Nothing in a file is trusted: counts and sizes are bounded before anything is allocated.

use std::{cell::Cell, ops::Range};

use bytes::Bytes;

use super::last_word;
use crate::error::{Error, ErrorKind, Result};

/// Entries that one directory may have.
const MOST_ENTRIES: u64 = 4096;
/// Bytes that one value outside the tile tables may have.
const MOST_VALUE_BYTES: u64 = 1 << 20;
/// Bytes of the parts of one file that stay in memory.
const MOST_PART_BYTES: usize = 64 << 20;

/// Parts of a file that have been fetched.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts(Vec<(u64, Bytes)>);

impl Parts {
    /// Adds a part. Past the limit the oldest are dropped, except the first, which is the header.
    pub(super) fn add(&mut self, offset: u64, bytes: Bytes) {
        self.0.push((offset, bytes));
        while self.0.len() > 2
            && self.0.iter().map(|(_, part)| part.len()).sum::<usize>() > MOST_PART_BYTES
        {
            self.0.remove(1);
        }
    }

    /// Returns the bytes of a range, or the range as missing.
    pub(super) fn get(&self, range: Range<u64>) -> Result<Bytes, Stop> {
        let Some((start, bytes)) = self.around(&range) else {
            return Err(Stop::Missing(vec![range]));
        };
        let from = usize::try_from(range.start - start).unwrap_or(usize::MAX);
        let to = usize::try_from(range.end - start).unwrap_or(usize::MAX);
        Ok(bytes.slice(from..to))
    }

    /// Returns the part that holds a range, and its offset in the file.
    pub(super) fn around(&self, range: &Range<u64>) -> Option<(u64, Bytes)> {
        let holds = |(start, bytes): &&(u64, Bytes)| {
            *start <= range.start && range.end <= start.saturating_add(bytes.len() as u64)
        };
        self.0.iter().rev().find(holds).cloned()
    }
}

/// Why parsing stopped.
#[derive(Debug)]
pub(super) enum Stop {
    /// These ranges must be fetched first.
    Missing(Vec<Range<u64>>),
    /// The file is damaged, or not supported by this backend.
    Failed(Error),
}

pub(super) fn corrupt<T>(message: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Failed(Error::new(ErrorKind::Corrupt, message)))
}

pub(super) fn unsupported<T>(message: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Failed(Error::new(ErrorKind::Unsupported, message)))
}

/// What another reader takes for pixels, or for none, though the file does not say so: no backend is asked in place of
/// this one.
pub(super) fn contradiction<T>(kind: ErrorKind, message: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Failed(
        Error::new(kind, message).with_source(super::Final),
    ))
}

/// Reads an unsigned number of up to eight bytes.
pub(super) fn uint(bytes: &[u8], little_endian: bool) -> u64 {
    let fold = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    if little_endian {
        bytes.iter().rev().fold(0, fold)
    } else {
        bytes.iter().fold(0, fold)
    }
}

/// An entry of a directory, with the offset of its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) tag: u16,
    pub(super) kind: u16,
    pub(super) count: u64,
    pub(super) at: u64,
}

impl Entry {
    /// Returns the bytes of one element; none for an unknown type.
    pub(super) fn width(&self) -> Option<u64> {
        match self.kind {
            1 | 2 | 6 | 7 => Some(1),
            3 | 8 => Some(2),
            4 | 9 | 11 | 13 => Some(4),
            5 | 10 | 12 | 16 | 17 | 18 => Some(8),
            _ => None,
        }
    }
}

pub(super) struct Reader<'a> {
    pub(super) parts: &'a Parts,
    pub(super) little_endian: bool,
    pub(super) big: bool,
    /// The size of the file.
    pub(super) file_bytes: u64,
    /// The end of the furthest byte that was read: the size of the header.
    pub(super) end: Cell<u64>,
}

/// The offset of the next directory where the file ends before it: past the end of any file.
const CUT_OFF: u64 = u64::MAX;

impl Reader<'_> {
    /// Returns a directory's entries and the offset of the next directory: 0 for none, and past the end of the file
    /// where the file is cut off behind the entries.
    pub(super) fn directory(&self, at: u64) -> Result<(Vec<Entry>, u64), Stop> {
        let (count_bytes, entry_bytes, value_bytes) =
            if self.big { (8, 20, 8) } else { (2, 12, 4) };
        let end = |from: u64, length: u64| match from.checked_add(length) {
            Some(end) => Ok(from..end),
            None => corrupt("the offset of a directory is past 64 bits"),
        };
        let count = self.uint(&self.get(end(at, count_bytes)?)?);
        if count == 0 || count > MOST_ENTRIES {
            let message = format!("a directory with {count} entries, expected 1 to {MOST_ENTRIES}");
            return Err(Stop::Failed(last_word(ErrorKind::Corrupt, message)));
        }
        let first = at + count_bytes;
        let mut range = end(first, count * entry_bytes + value_bytes)?;
        let entries_end = range.end - value_bytes;
        let is_cut_off = range.end > self.file_bytes && entries_end <= self.file_bytes;
        if is_cut_off {
            range.end = entries_end;
        }
        let bytes = self.get(range)?;
        let mut entries = Vec::new();
        let mut offset = first;
        let width = usize::try_from(entry_bytes).unwrap_or(12);
        let table = usize::try_from(count * entry_bytes).unwrap_or(0);
        let (table, next) = bytes.split_at_checked(table).unwrap_or((&bytes, &[]));
        for entry in table.chunks_exact(width) {
            let field = |from: usize, to: usize| self.uint(entry.get(from..to).unwrap_or_default());
            let (counted, value) = if self.big {
                (field(4, 12), 12)
            } else {
                (field(4, 8), 8)
            };
            let mut entry = Entry {
                tag: u16::try_from(field(0, 2)).unwrap_or(0),
                kind: u16::try_from(field(2, 4)).unwrap_or(0),
                count: counted,
                at: offset + value as u64,
            };
            // An entry of an unknown type is skipped, as TIFF 6.0 demands of readers (section 2). A value
            // that fits the entry is stored in it; of others the entry has the offset.
            if let Some(width) = entry.width() {
                let inside = counted
                    .checked_mul(width)
                    .is_some_and(|length| length <= value_bytes);
                if !inside {
                    let from = usize::try_from(entry.at - first).unwrap_or(0);
                    let to = from + usize::try_from(value_bytes).unwrap_or(4);
                    entry.at = self.uint(table.get(from..to).unwrap_or_default());
                }
                entries.push(entry);
            }
            offset += entry_bytes;
        }
        let next = if is_cut_off { CUT_OFF } else { self.uint(next) };
        Ok((entries, next))
    }

    /// Returns the bytes of a range and records its end.
    fn get(&self, range: Range<u64>) -> Result<Bytes, Stop> {
        if range.end > self.file_bytes {
            return corrupt(format!(
                "its header has offsets up to byte {} of a file of {} bytes",
                range.end, self.file_bytes
            ));
        }
        self.end.set(self.end.get().max(range.end));
        self.parts.get(range)
    }

    pub(super) fn uint(&self, bytes: &[u8]) -> u64 {
        uint(bytes, self.little_endian)
    }

    /// Returns the bytes of a tag's value.
    pub(super) fn value(
        &self,
        entries: &[Entry],
        tag: u16,
    ) -> Result<Option<(Entry, Bytes)>, Stop> {
        let Some(entry) = entries.iter().find(|entry| entry.tag == tag) else {
            return Ok(None);
        };
        let length = entry
            .width()
            .and_then(|width| entry.count.checked_mul(width));
        let end = length.and_then(|length| entry.at.checked_add(length));
        match (length, end) {
            (Some(length), Some(end)) if length <= MOST_VALUE_BYTES => {
                Ok(Some((*entry, self.get(entry.at..end)?)))
            }
            _ => {
                let message = format!("tag {tag} has {} values, past the limit", entry.count);
                Err(Stop::Failed(last_word(ErrorKind::Corrupt, message)))
            }
        }
    }

    /// Returns a tag's unsigned integers.
    pub(super) fn numbers(&self, entries: &[Entry], tag: u16) -> Result<Vec<u64>, Stop> {
        let Some((entry, bytes)) = self.value(entries, tag)? else {
            return Ok(Vec::new());
        };
        if !matches!(entry.kind, 1 | 3 | 4 | 13 | 16 | 18) {
            return corrupt(format!(
                "tag {tag} has type {}, expected an unsigned integer",
                entry.kind
            ));
        }
        let width = entry
            .width()
            .and_then(|width| usize::try_from(width).ok())
            .unwrap_or(1);
        Ok(bytes
            .chunks_exact(width)
            .map(|value| self.uint(value))
            .collect())
    }

    pub(super) fn number(&self, entries: &[Entry], tag: u16) -> Result<Option<u64>, Stop> {
        Ok(self.numbers(entries, tag)?.first().copied())
    }

    pub(super) fn doubles(&self, entries: &[Entry], tag: u16) -> Result<Vec<f64>, Stop> {
        let Some((entry, bytes)) = self.value(entries, tag)? else {
            return Ok(Vec::new());
        };
        if entry.kind != 12 {
            return Ok(Vec::new());
        }
        Ok(bytes
            .chunks_exact(8)
            .map(|value| f64::from_bits(self.uint(value)))
            .collect())
    }

    pub(super) fn text(&self, entries: &[Entry], tag: u16) -> Result<Option<String>, Stop> {
        Ok(self.value(entries, tag)?.map(|(_, bytes)| {
            let end = bytes
                .iter()
                .position(|&byte| byte == 0)
                .unwrap_or(bytes.len());
            String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
        }))
    }
}
