//! The compressed tiles of a TIFF's first image, and what a codec alone makes of them.
//!
//! Little-endian classic TIFF only, as the testbed and GDAL write: enough to time libdeflate without a
//! reader around it, and to read a tile by hand.

use std::{ops::Range, path::Path};

use anyhow::{Context, Result, bail, ensure};
use libdeflater::Decompressor;

const BITS: u16 = 258;
const SAMPLES: u16 = 277;
const TILE_WIDTH: u16 = 322;
const TILE_HEIGHT: u16 = 323;
const OFFSETS: u16 = 324;
const COUNTS: u16 = 325;

/// Where the tiles of the first image are.
#[derive(Clone, Debug)]
pub struct TileTable {
    /// The bytes of each in the file, row by row.
    pub ranges: Vec<Range<u64>>,
    /// How many bytes a tile is, decompressed.
    pub bytes: usize,
}

impl TileTable {
    /// Reads the table from the first bytes of a file.
    ///
    /// # Errors
    ///
    /// If it is another kind of TIFF, or a tag is not among the bytes.
    pub fn parse(head: &[u8]) -> Result<Self> {
        ensure!(
            head.starts_with(b"II*\0"),
            "not a little-endian classic TIFF"
        );
        let directory = Directory {
            head,
            at: long(head, 4)?,
        };
        let first = |tag| -> Result<usize> {
            let values = directory.values(tag)?;
            values
                .first()
                .copied()
                .with_context(|| format!("no tag {tag}"))
        };
        let (width, height) = (first(TILE_WIDTH)?, first(TILE_HEIGHT)?);
        let lengths = directory.values(COUNTS)?;
        let ranges = directory
            .values(OFFSETS)?
            .into_iter()
            .zip(lengths)
            .map(|(at, length)| at as u64..(at + length) as u64)
            .collect();
        Ok(Self {
            ranges,
            bytes: width * height * first(SAMPLES)? * first(BITS)? / 8,
        })
    }
}

/// Reads a number at a position.
type Read = fn(&[u8], usize) -> Result<usize>;

struct Directory<'a> {
    head: &'a [u8],
    at: usize,
}

impl Directory<'_> {
    fn values(&self, tag: u16) -> Result<Vec<usize>> {
        for entry in 0..short(self.head, self.at)? {
            let at = self.at + 2 + entry * 12;
            if short(self.head, at)? != usize::from(tag) {
                continue;
            }
            let count = long(self.head, at + 4)?;
            let (size, read): (_, Read) = match short(self.head, at + 2)? {
                3 => (2, short),
                4 => (4, long),
                other => bail!("tag {tag} is of type {other}"),
            };
            let values = match count * size {
                0..=4 => at + 8,
                _ => long(self.head, at + 8)?,
            };
            return (0..count)
                .map(|n| read(self.head, values + n * size))
                .collect();
        }
        bail!("no tag {tag}")
    }
}

fn short(bytes: &[u8], at: usize) -> Result<usize> {
    let bytes = bytes.get(at..at + 2).context("the header ends early")?;
    Ok(usize::from(u16::from_le_bytes(bytes.try_into()?)))
}

fn long(bytes: &[u8], at: usize) -> Result<usize> {
    let bytes = bytes.get(at..at + 4).context("the header ends early")?;
    Ok(u32::from_le_bytes(bytes.try_into()?) as usize)
}

/// The compressed tiles themselves, in memory.
#[derive(Clone, Debug)]
pub struct Tiles {
    /// Each as it is stored, row by row.
    pub stored: Vec<Vec<u8>>,
    /// How many bytes a tile is, decompressed.
    pub bytes: usize,
}

impl Tiles {
    /// Reads all tiles of a file.
    ///
    /// # Errors
    ///
    /// As [`TileTable::parse`]; if the file cannot be read, or ends early.
    pub fn of(path: &Path) -> Result<Self> {
        let file = std::fs::read(path)?;
        let table = TileTable::parse(&file)?;
        let stored = table
            .ranges
            .iter()
            .map(|range| {
                let range = usize::try_from(range.start)?..usize::try_from(range.end)?;
                Ok(file.get(range).context("the file ends early")?.to_vec())
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            stored,
            bytes: table.bytes,
        })
    }

    /// Returns the bytes of all tiles as they are stored.
    pub fn stored_bytes(&self) -> usize {
        self.stored.iter().map(Vec::len).sum()
    }

    /// Decompresses each tile into the same buffer.
    ///
    /// # Errors
    ///
    /// If a tile is not DEFLATE, or longer than the buffer.
    pub fn inflate(&self, inflater: &mut Decompressor, out: &mut [u8]) -> Result<()> {
        for tile in &self.stored {
            inflater.zlib_decompress(tile, out)?;
        }
        Ok(())
    }

    /// Copies a tile's bytes once for each tile, in the processor's cache.
    pub fn copy(&self, from: &[u8], to: &mut [u8]) {
        for _ in &self.stored {
            std::hint::black_box(&mut *to).copy_from_slice(std::hint::black_box(from));
        }
    }
}
