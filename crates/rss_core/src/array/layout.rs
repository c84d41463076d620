//! How a cube is split into chunks and shards.

use std::{fmt, str::FromStr};

use super::codec::Codec;
use crate::{
    error::{Error, ErrorKind, Result},
    raster::DataType,
};

/// The access pattern of a cube.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Use {
    /// Both: some time steps of a part of the area.
    #[default]
    Balanced,
    /// All dates at a point.
    TimeSeries,
    /// An area at one date.
    Maps,
}

impl Use {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Balanced, Self::TimeSeries, Self::Maps];

    /// Returns the name that the command line uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Balanced => "balanced",
            Self::TimeSeries => "time-series",
            Self::Maps => "maps",
        }
    }

    /// Returns the chunk shape for samples of two bytes, and how many chunks a shard has along each axis.
    ///
    /// A chunk is long along the axes that one read covers and short along the others: 64 to 512 KiB of samples.
    /// `docs/CUBES.md` has the measurements.
    fn shapes(self) -> (Block, Block) {
        let block = |time, y, x| Block { time, y, x };
        match self {
            Self::Balanced => (block(8, 128, 128), block(2, 8, 8)),
            Self::TimeSeries => (block(32, 32, 32), block(2, 16, 16)),
            Self::Maps => (block(1, 512, 512), block(1, 4, 4)),
        }
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Use {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.iter().find(|one| one.name() == text);
        found.copied().ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|one| one.name()).collect();
            Error::new(
                ErrorKind::InvalidInput,
                format!("use `{text}` is not one of {}", names.join(", ")),
            )
        })
    }
}

/// The shape of a chunk or a shard of a cube; along the band axis it is always one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Dates.
    pub time: u64,
    /// Rows.
    pub y: u64,
    /// Columns.
    pub x: u64,
}

impl Block {
    pub(crate) fn axes(self) -> [u64; 3] {
        [self.time, self.y, self.x]
    }

    fn bytes(self, dtype: DataType) -> Option<u64> {
        self.axes()
            .into_iter()
            .try_fold(dtype.size() as u64, u64::checked_mul)
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.time, self.y, self.x)
    }
}

impl FromStr for Block {
    type Err = Error;

    /// Reads `TIME,Y,X`.
    fn from_str(text: &str) -> Result<Self> {
        let numbers: Option<Vec<u64>> = text
            .split(',')
            .map(|part| part.trim().parse().ok())
            .collect();
        match numbers.as_deref() {
            Some(&[time, y, x]) if time > 0 && y > 0 && x > 0 => Ok(Self { time, y, x }),
            _ => Err(Error::new(
                ErrorKind::InvalidInput,
                format!("`{text}` is not TIME,Y,X: three whole numbers above 0"),
            )),
        }
    }
}

/// Whether bands share an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Arrangement {
    /// Each band is an array (time, y, x) of its own name and type.
    #[default]
    Bands,
    /// One array `data` (time, band, y, x): all bands have one type and one nodata value.
    Stacked,
}

/// How a cube is chunked, sharded and compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layout {
    /// The access pattern of the cube, which decides the default chunks and shards.
    pub for_use: Use,
    /// Whether bands share an array.
    pub arrangement: Arrangement,
    /// The chunk shape, instead of the default one.
    pub chunk: Option<Block>,
    /// The shard shape, instead of the default one: a whole number of chunks.
    pub shard: Option<Block>,
    /// How chunks are compressed.
    pub codec: Codec,
}

impl Layout {
    /// Makes the default layout of a use.
    pub fn new(for_use: Use) -> Self {
        Self {
            for_use,
            ..Self::default()
        }
    }

    /// Sets whether bands share an array.
    #[must_use]
    pub fn with_arrangement(mut self, arrangement: Arrangement) -> Self {
        self.arrangement = arrangement;
        self
    }

    /// Sets the chunk.
    #[must_use]
    pub fn with_chunk(mut self, chunk: Block) -> Self {
        self.chunk = Some(chunk);
        self
    }

    /// Sets the shard.
    #[must_use]
    pub fn with_shard(mut self, shard: Block) -> Self {
        self.shard = Some(shard);
        self
    }

    /// Sets how chunks are compressed.
    #[must_use]
    pub fn with_codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self
    }

    /// Returns the chunk and shard shapes of an array of a dtype over `height` x `width` pixels.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if a shard is not a whole number of chunks, or has more than 1 GiB.
    pub(crate) fn blocks(&self, dtype: DataType, height: u32, width: u32) -> Result<[Block; 2]> {
        /// The most bytes of a shard, which is encoded in memory and written as one object.
        const MOST: u64 = 1 << 30;
        let (usual, times) = self.for_use.shapes();
        let chunk = self.chunk.unwrap_or_else(|| {
            // Smaller samples get larger chunks and vice versa, so that a chunk keeps about the same bytes.
            let (grow, shrink) = match dtype.size() {
                1 => (2, 1),
                2 => (1, 1),
                4 | 8 => (1, 2),
                _ => (1, 4),
            };
            let side = |usual: u64, all: u32| {
                let side = usual * grow / shrink;
                // A chunk of a small area would be mostly fill values.
                side.min(u64::from(all).next_multiple_of(16).max(16))
            };
            Block {
                time: usual.time,
                y: side(usual.y, height),
                x: side(usual.x, width),
            }
        });
        let shard = self.shard.unwrap_or_else(|| {
            let along = |chunk: u64, times: u64, all: u32| {
                (chunk * times).min(u64::from(all).next_multiple_of(chunk))
            };
            Block {
                time: chunk.time * times.time,
                y: along(chunk.y, times.y, height),
                x: along(chunk.x, times.x, width),
            }
        });
        let invalid = |what: String| Err(Error::new(ErrorKind::InvalidInput, what));
        let whole = shard
            .axes()
            .into_iter()
            .zip(chunk.axes())
            .all(|(shard, chunk)| shard.is_multiple_of(chunk));
        if !whole {
            return invalid(format!(
                "shard {shard} is not a whole number of chunks {chunk} (TIME,Y,X)"
            ));
        }
        if shard.bytes(dtype).is_none_or(|bytes| bytes > MOST) {
            return invalid(format!(
                "shard {shard} of {dtype} has more than 1 GiB: choose a smaller one"
            ));
        }
        Ok([chunk, shard])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_shards_are_whole_chunks_of_like_sizes() {
        for &for_use in Use::ALL {
            for dtype in DataType::ALL {
                for side in [1, 100, 3660, 10_980] {
                    let [chunk, shard] = Layout::new(for_use).blocks(dtype, side, side).unwrap();
                    assert!(shard.bytes(dtype).unwrap() <= 64 << 20, "{for_use} {dtype}");
                    assert!(chunk.bytes(dtype).unwrap() <= 1 << 20, "{for_use} {dtype}");
                }
            }
        }
    }

    #[test]
    fn a_choice_that_cannot_be_is_refused() {
        let block = |text: &str| text.parse::<Block>().unwrap();
        let layout = Layout::default();
        let err = layout
            .with_chunk(block("4,100,100"))
            .with_shard(block("4,100,150"))
            .blocks(DataType::I16, 1000, 1000)
            .unwrap_err();
        assert!(
            err.message()
                .contains("shard 4,100,150 is not a whole number of chunks 4,100,100")
        );
        let err = layout
            .with_chunk(block("1,16384,16384"))
            .with_shard(block("64,16384,16384"))
            .blocks(DataType::I16, 1000, 1000)
            .unwrap_err();
        assert!(err.message().contains("more than 1 GiB"), "{err}");
        for text in ["", "1,2", "1,2,3,4", "0,1,1", "a,b,c", "-1,1,1"] {
            assert!(text.parse::<Block>().is_err(), "{text}");
        }
    }
}
