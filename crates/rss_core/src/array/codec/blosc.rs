//! Blosc frames, as [c-blosc 1.x](https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst)
//! writes and reads them.
//!
//! A frame is a header of 16 bytes, the offsets of its blocks, and the blocks: each is shuffled and compressed
//! independently, as one stream or split into one stream for each byte of a sample. A block can be
//! decoded without the others, so a part of a chunk costs a part of its decoding.

use std::ops::Range;

use super::{
    Shuffle,
    lz::{self, Cname},
    shuffle,
};
use crate::error::{Error, ErrorKind, Result};

const HEADER: usize = 16;
/// Bytes of a block. Small blocks can be skipped when a part of a chunk is read; large ones compress repetitions
/// over a longer distance.
pub(super) const SMALL_BLOCK: usize = 64 << 10;
pub(super) const LARGE_BLOCK: usize = 256 << 10;
/// The limits of c-blosc: a block is split only into at most `MAX_STREAMS` streams of at least `MIN_STREAM` bytes. The
/// frame does not state the number of streams, so a reader must apply the same rule as the writer.
const MAX_STREAMS: usize = 16;
const MIN_STREAM: usize = 128;

const BYTE_SHUFFLED: u8 = 1;
const STORED: u8 = 2;
const BIT_SHUFFLED: u8 = 4;
const NOT_SPLIT: u8 = 16;

impl Cname {
    fn of_flags(flags: u8) -> Result<Self> {
        match flags >> 5 {
            0 => Ok(Self::BloscLz),
            1 => Ok(Self::Lz4),
            2 => Ok(Self::Snappy),
            3 => Ok(Self::Zlib),
            4 => Ok(Self::Zstd),
            other => Err(corrupt(format!("unknown Blosc compressor format {other}"))),
        }
    }
}

fn corrupt(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, what.into())
}

/// The header of a frame.
struct Frame<'a> {
    bytes: &'a [u8],
    cname: Cname,
    flags: u8,
    sample: usize,
    length: usize,
    block: usize,
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    let number = u32::from_le_bytes(four.try_into().ok()?);
    usize::try_from(number).ok()
}

impl<'a> Frame<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self> {
        let short = || {
            corrupt(format!(
                "a Blosc frame of {} bytes is truncated",
                bytes.len()
            ))
        };
        let (Some(&[version, _, flags, sample]), Some(length), Some(block), Some(compressed)) = (
            bytes.first_chunk::<4>(),
            number(bytes, 4),
            number(bytes, 8),
            number(bytes, 12),
        ) else {
            return Err(short());
        };
        if !(1..=2).contains(&version) {
            return Err(corrupt(format!("Blosc version {version} is not 1 or 2")));
        }
        if compressed != bytes.len() {
            return Err(corrupt(format!(
                "a Blosc frame of {} bytes states a length of {compressed}",
                bytes.len()
            )));
        }
        Ok(Self {
            bytes,
            cname: Cname::of_flags(flags)?,
            flags,
            sample: usize::from(sample).max(1),
            length,
            block,
        })
    }
}

/// Returns how many bytes a frame decodes to.
pub(super) fn decoded_length(bytes: &[u8]) -> Result<usize> {
    Ok(Frame::parse(bytes)?.length)
}

/// Decodes the blocks that hold a range of a frame's bytes to their offsets in `out`, which is as long as
/// the decoded frame. `spare` is scratch memory.
pub(super) fn decode(
    bytes: &[u8],
    range: &Range<usize>,
    out: &mut [u8],
    spare: &mut Vec<u8>,
) -> Result<()> {
    let frame = Frame::parse(bytes)?;
    if frame.length != out.len() {
        return Err(corrupt(format!(
            "a Blosc frame holds {} bytes, expected {}",
            frame.length,
            out.len()
        )));
    }
    if out.is_empty() {
        return Ok(());
    }
    if frame.flags & STORED != 0 {
        let stored = bytes.get(HEADER..).unwrap_or_default();
        if stored.len() != out.len() {
            return Err(corrupt("a stored Blosc frame of the wrong length"));
        }
        out.copy_from_slice(stored);
        return Ok(());
    }
    if frame.block == 0 || frame.block > frame.length.next_multiple_of(frame.sample) {
        return Err(corrupt(format!(
            "a Blosc frame of {} bytes has blocks of {}",
            frame.length, frame.block
        )));
    }
    let first = range.start / frame.block;
    let last = range.end.min(frame.length).div_ceil(frame.block);
    for (number, out) in out.chunks_mut(frame.block).enumerate() {
        if (first..last).contains(&number) {
            decode_block(&frame, number, out, spare)?;
        }
    }
    Ok(())
}

fn outside(block: usize) -> Error {
    corrupt(format!("block {block} of a Blosc frame is outside of it"))
}

fn decode_block(
    frame: &Frame<'_>,
    block: usize,
    out: &mut [u8],
    spare: &mut Vec<u8>,
) -> Result<()> {
    let at = number(frame.bytes, HEADER + block * 4).ok_or_else(|| outside(block))?;
    let whole = out.len() == frame.block;
    let splits = frame.flags & NOT_SPLIT == 0
        && whole
        && frame.sample <= MAX_STREAMS
        && frame.block / frame.sample >= MIN_STREAM;
    let streams = if splits { frame.sample } else { 1 };
    if !out.len().is_multiple_of(streams) {
        return Err(corrupt(
            "a Blosc block that is not a whole number of samples",
        ));
    }
    // c-blosc leaves the filter out, with its flag set, where it would change nothing.
    let byte = frame.flags & BYTE_SHUFFLED != 0 && frame.sample > 1;
    let bit = frame.flags & BIT_SHUFFLED != 0 && out.len() >= frame.sample;
    let shuffled = byte || bit;
    if shuffled && spare.len() < out.len() {
        spare.resize(out.len(), 0);
    }
    let length = out.len();
    if !shuffled {
        return decode_streams(frame, block, at, out, length / streams);
    }
    let spare = spare.get_mut(..length).unwrap_or_default();
    decode_streams(frame, block, at, spare, length / streams)?;
    match byte {
        true => shuffle::unshuffle(spare, out, frame.sample),
        false => shuffle::unbitshuffle(spare, out, frame.sample),
    }
    Ok(())
}

fn decode_streams(
    frame: &Frame<'_>,
    block: usize,
    mut at: usize,
    target: &mut [u8],
    length: usize,
) -> Result<()> {
    for stream in target.chunks_mut(length) {
        let size = number(frame.bytes, at).ok_or_else(|| outside(block))?;
        let start = at + 4;
        let end = start.checked_add(size).ok_or_else(|| outside(block))?;
        let packed = frame.bytes.get(start..end).ok_or_else(|| outside(block))?;
        at = end;
        // A stream as long as its samples is stored: it did not compress.
        if size == stream.len() {
            stream.copy_from_slice(packed);
        } else {
            lz::decode(frame.cname, packed, stream)?;
        }
    }
    Ok(())
}

/// The settings a frame is written with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) cname: Cname,
    /// None chooses the level by the samples.
    pub(super) level: Option<i32>,
    pub(super) shuffle: Shuffle,
    /// Bytes of one sample.
    pub(super) sample: usize,
    /// Bytes of a block, at most.
    pub(super) block: usize,
}

/// Appends a frame to `out`. Blocks, or all of the frame, are stored where they do not compress.
pub(super) fn encode(
    bytes: &[u8],
    spec: &Spec,
    out: &mut Vec<u8>,
    spare: &mut Vec<u8>,
) -> Result<()> {
    let sample = u8::try_from(spec.sample).unwrap_or(1).max(1);
    // Bit shuffle needs a multiple of 8 samples in a block.
    let unit = usize::from(sample) * 8;
    let block = (spec.block / unit * unit).max(unit).min(bytes.len());
    let chosen = spec.level.unwrap_or(1);
    let level = match (spec.cname, chosen) {
        // c-blosc's mapping of its levels to those of Zstandard.
        (Cname::Zstd, 9..) => 22,
        (Cname::Zstd, _) => chosen * 2 - 1,
        _ => chosen,
    };
    let start = out.len();
    let (filter, shuffled) = match spec.shuffle {
        Shuffle::Byte if sample > 1 => (BYTE_SHUFFLED, true),
        Shuffle::Bit => (BIT_SHUFFLED, true),
        _ => (0, false),
    };
    let format = match spec.cname {
        Cname::BloscLz => 0,
        Cname::Lz4 => 1,
        Cname::Snappy => 2,
        Cname::Zlib => 3,
        Cname::Zstd => 4,
    };
    let mut flags = (format << 5) | filter | NOT_SPLIT;
    let four = |number: usize| {
        u32::try_from(number)
            .ok()
            .filter(|&number| number < i32::MAX.unsigned_abs())
            .map(u32::to_le_bytes)
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidInput,
                    format!(
                        "a chunk of {} bytes, but Blosc holds less than 2 GiB",
                        bytes.len()
                    ),
                )
            })
    };
    out.extend_from_slice(&[2, 1, 0, sample]);
    out.extend_from_slice(&four(bytes.len())?);
    out.extend_from_slice(&four(block)?);
    out.extend_from_slice(&[0; 4]);
    let blocks = bytes.len().div_ceil(block.max(1));
    out.resize(start + HEADER + blocks * 4, 0);
    if shuffled && spare.len() < block {
        spare.resize(block, 0);
    }
    // Level 0 stores.
    let mut fits = chosen > 0;
    for (number, part) in bytes.chunks(block.max(1)).enumerate() {
        if !fits {
            break;
        }
        let at = four(out.len() - start)?;
        out[start + HEADER + number * 4..][..4].copy_from_slice(&at);
        let source = match shuffled {
            true => {
                let target = &mut spare[..part.len()];
                match spec.shuffle {
                    Shuffle::Bit => shuffle::bitshuffle(part, target, spec.sample),
                    _ => shuffle::shuffle(part, target, spec.sample),
                }
                &*target
            }
            false => part,
        };
        let prefix = out.len();
        out.extend_from_slice(&[0; 4]);
        let packed = lz::encode(spec.cname, level, source, out)?;
        let packed = match packed {
            Some(length) if length < source.len() => length,
            _ => {
                out.truncate(prefix + 4);
                out.extend_from_slice(source);
                source.len()
            }
        };
        out[prefix..prefix + 4].copy_from_slice(&four(packed)?);
        if out.len() - start >= bytes.len() + HEADER {
            fits = false;
        }
    }
    if !fits || bytes.is_empty() {
        // A stored frame of Blosc: the bytes after the header, neither shuffled nor split into blocks.
        out.truncate(start + HEADER);
        out.extend_from_slice(bytes);
        flags |= STORED;
    }
    out[start + 2] = flags;
    let all = four(out.len() - start)?;
    out[start + 12..start + 16].copy_from_slice(&all);
    Ok(())
}
