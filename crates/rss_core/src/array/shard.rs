//! Shards: many chunks in one object, with an index of their offsets and lengths.
//!
//! [The `sharding_indexed` codec](https://zarr-specs.readthedocs.io/en/latest/v3/codecs/sharding-indexed/index.html):
//! an index of offset and length, 64 bits each, one pair for each chunk in C order, all ones where a chunk is
//! not stored; then a checksum of the index. It is at the end of the object, or at its start.

use std::ops::Range;

use serde_json::{Value, json};

use super::{
    codec::{Chain, Scratch, Shape, crc32c},
    extension::{self, Extension},
    region,
};
use crate::error::{Error, ErrorKind, Result};

/// Offset and length of a chunk that is not stored: all bits set, as the codec's specification defines.
const ABSENT: u64 = u64::MAX;

/// The configuration of the sharding codec.
#[derive(Clone, Debug)]
pub(crate) struct Sharding {
    /// The shape of a chunk.
    pub(crate) chunk: Vec<u64>,
    pub(crate) inner: Chain,
    at_start: bool,
    has_checksum: bool,
    big_endian: bool,
}

/// The byte ranges of the chunks of one shard.
#[derive(Debug)]
pub(crate) struct Index {
    /// In C order; none where the chunk is not stored.
    chunks: Vec<Option<Range<u64>>>,
    /// Chunks along each axis.
    counts: Vec<u64>,
}

fn corrupt(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, what.into())
}

impl Sharding {
    pub(crate) fn new(chunk: Vec<u64>, inner: Chain) -> Self {
        Self {
            chunk,
            inner,
            at_start: false,
            has_checksum: true,
            big_endian: false,
        }
    }

    pub(crate) fn parse(codec: &Extension<'_>, rank: usize, sample: usize) -> Result<Self> {
        let configuration = codec.configuration;
        let inner = configuration
            .get("codecs")
            .ok_or_else(|| corrupt("`sharding_indexed` without `codecs`"))?;
        let mut sharding = Self {
            chunk: codec.lengths("chunk_shape", rank)?,
            inner: Chain::parse(inner, rank, sample)?,
            at_start: match codec.text("index_location") {
                Some("start") => true,
                Some("end") | None => false,
                Some(other) => return Err(corrupt(format!("index_location `{other}`"))),
            },
            has_checksum: false,
            big_endian: false,
        };
        let index = configuration.get("index_codecs").unwrap_or(&Value::Null);
        for (number, codec) in extension::list(index, "index_codecs")?.iter().enumerate() {
            match (number, codec.name) {
                (0, "bytes" | "endian") => {
                    sharding.big_endian = codec.text("endian") == Some("big");
                }
                (1, "crc32c") => sharding.has_checksum = true,
                _ if codec.is_optional => {}
                (_, name) => {
                    return Err(Error::new(
                        ErrorKind::Unsupported,
                        format!("index codec `{name}` of a shard, expected bytes, crc32c"),
                    ));
                }
            }
        }
        Ok(sharding)
    }

    /// Returns true if [`write_index`] writes an index of this configuration.
    pub(crate) fn is_plain(&self) -> bool {
        !self.at_start && self.has_checksum && !self.big_endian
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({"name": "sharding_indexed", "configuration": {
            "chunk_shape": self.chunk,
            "codecs": self.inner.to_json(),
            "index_codecs": [
                {"name": "bytes", "configuration": {"endian": "little"}},
                {"name": "crc32c"},
            ],
            "index_location": "end",
        }})
    }

    /// Returns how many chunks a shard of a shape holds on each axis.
    pub(crate) fn counts(&self, shard: &[u64]) -> Result<Vec<u64>> {
        let whole = shard
            .iter()
            .zip(&self.chunk)
            .all(|(shard, chunk)| shard.is_multiple_of(*chunk));
        if !whole {
            return Err(corrupt(
                "a shard shape that is not a whole number of chunks",
            ));
        }
        Ok(shard
            .iter()
            .zip(&self.chunk)
            .map(|(shard, chunk)| shard / chunk)
            .collect())
    }

    /// Returns the length of the index in bytes, and whether it is at the start of the object.
    pub(crate) fn index_bytes(&self, counts: &[u64]) -> Result<(u64, bool)> {
        let checksum = if self.has_checksum { 4 } else { 0 };
        counts
            .iter()
            .try_fold(16_u64, |bytes, count| bytes.checked_mul(*count))
            // 64 million chunks in one object: damaged metadata must not allocate more than this.
            .filter(|&bytes| bytes <= 1 << 30)
            .map(|bytes| (bytes + checksum, self.at_start))
            .ok_or_else(|| corrupt("more than 2^26 chunks in a shard"))
    }

    /// Reads an index. `size` is that of the object.
    pub(crate) fn read_index(&self, bytes: &[u8], counts: Vec<u64>, size: u64) -> Result<Index> {
        let (expected, _) = self.index_bytes(&counts)?;
        if bytes.len() as u64 != expected {
            return Err(corrupt(format!(
                "the shard has {size} bytes, fewer than the {expected} of its index"
            )));
        }
        let pairs = if self.has_checksum {
            let Some((pairs, sum)) = bytes.split_last_chunk::<4>() else {
                return Err(corrupt("the shard's index is truncated"));
            };
            if crc32c(pairs) != u32::from_le_bytes(*sum) {
                return Err(corrupt(
                    "the checksum (crc32c) of the shard's index does not match",
                ));
            }
            pairs
        } else {
            bytes
        };
        let number = |bytes: &[u8; 8]| match self.big_endian {
            true => u64::from_be_bytes(*bytes),
            false => u64::from_le_bytes(*bytes),
        };
        let (numbers, _) = pairs.as_chunks::<8>();
        let mut chunks = Vec::with_capacity(numbers.len() / 2);
        for (position, pair) in numbers.chunks_exact(2).enumerate() {
            let &[offset, length] = pair else { continue };
            let (offset, length) = (number(&offset), number(&length));
            if offset == ABSENT && length == ABSENT {
                chunks.push(None);
                continue;
            }
            // A range outside of the object would fail as a request; here it is reported as corrupt.
            let end = offset.checked_add(length).filter(|&end| end <= size);
            let end = end.ok_or_else(|| {
                corrupt(format!(
                    "chunk {position} of the shard is at {offset} + {length}, outside of its {size} bytes"
                ))
            })?;
            chunks.push(Some(offset..end));
        }
        Ok(Index { chunks, counts })
    }

    /// Decodes a complete shard that is nested in a chunk of another shard, or lies behind other codecs.
    pub(crate) fn decode_all(&self, bytes: &[u8], shape: &Shape<'_>) -> Result<Vec<u8>> {
        let axes: Vec<u64> = shape.axes.iter().map(|&axis| axis as u64).collect();
        let counts = self.counts(&axes)?;
        let (length, at_start) = self.index_bytes(&counts)?;
        let size = bytes.len() as u64;
        let at = match at_start {
            true => 0,
            false => size.saturating_sub(length),
        };
        let index = slice(bytes, &(at..at.saturating_add(length).min(size)));
        let index = self.read_index(index.unwrap_or_default(), counts.clone(), size)?;
        let total = shape.bytes()?;
        let mut out: Vec<u8> = shape.fill.iter().copied().cycle().take(total).collect();
        let chunk: Vec<usize> = self
            .chunk
            .iter()
            .map(|&length| usize::try_from(length).unwrap_or(usize::MAX))
            .collect();
        let inside = Shape {
            axes: &chunk,
            ..*shape
        };
        let all = 0..inside.bytes()?;
        let mut scratch = Scratch::default();
        for position in region::indices(counts) {
            let Some(range) = index.find(&position) else {
                continue;
            };
            let packed = slice(bytes, &range).unwrap_or_default();
            let samples = self.inner.decode(packed, &all, &inside, &mut scratch)?;
            copy(samples, &position, &inside, shape.axes, &mut out);
        }
        Ok(out)
    }
}

fn slice<'a>(bytes: &'a [u8], range: &Range<u64>) -> Option<&'a [u8]> {
    bytes.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
}

/// Copies a chunk into the samples of its shard.
fn copy(samples: &[u8], position: &[u64], chunk: &Shape<'_>, shard: &[usize], out: &mut [u8]) {
    let row = chunk.axes.last().copied().unwrap_or(1) * chunk.sample;
    let outer = chunk.axes.split_last().map_or(&[][..], |(_, outer)| outer);
    let rows = region::indices(outer.iter().map(|&axis| axis as u64).collect());
    for (index, bytes) in rows.zip(samples.chunks_exact(row.max(1))) {
        let mut at = 0;
        for axis in 0..shard.len() {
            let inside = index.get(axis).copied().unwrap_or(0);
            let sample = position[axis] * chunk.axes[axis] as u64 + inside;
            at = at * shard[axis] + usize::try_from(sample).unwrap_or(usize::MAX);
        }
        let at = at * chunk.sample;
        out[at..at + row].copy_from_slice(bytes);
    }
}

impl Index {
    /// Returns the index of an object that is one chunk.
    pub(crate) fn of_one(size: u64) -> Self {
        Self {
            chunks: vec![Some(0..size)],
            counts: Vec::new(),
        }
    }

    /// Returns the byte range of a chunk; none where it is not stored.
    pub(crate) fn find(&self, chunk: &[u64]) -> Option<Range<u64>> {
        let mut position = 0;
        for (at, count) in chunk.iter().zip(&self.counts) {
            position = position * count + at;
        }
        self.chunks.get(usize::try_from(position).ok()?)?.clone()
    }

    /// Returns the bytes of all chunks.
    pub(crate) fn stored(&self) -> u64 {
        let chunks = self.chunks.iter().flatten();
        chunks.map(|range| range.end - range.start).sum()
    }

    /// Returns the bytes of memory this takes.
    pub(crate) fn bytes(&self) -> usize {
        self.chunks.len() * size_of::<Option<Range<u64>>>()
    }
}

/// Writes the index of chunks that are stored one after the other, in C order. None is a chunk that is not stored.
pub(crate) fn write_index(lengths: &[Option<u64>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(lengths.len() * 16 + 4);
    let mut at = 0_u64;
    for length in lengths {
        let (offset, length) = match length {
            Some(length) => (at, *length),
            None => (ABSENT, ABSENT),
        };
        bytes.extend_from_slice(&offset.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        if offset != ABSENT {
            at += length;
        }
    }
    let sum = crc32c(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}
