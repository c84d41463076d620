//! What a TIFF header says: levels, tiles, and where their bytes lie. No IO.
//!
//! The parser reads from the parts of a file that are there and names the bytes it misses, so the
//! same code serves a header of 6 KB and one whose directories lie at the end. Nothing in a file is
//! believed: counts and sizes are bounded before anything is allocated, and directories that lead in
//! a circle end the reading.
//!
//! See [TIFF 6.0](https://www.itu.int/itudoc/itu-t/com16/tiff-fx/docs/tiff6.pdf),
//! [BigTIFF](https://www.awaresystems.be/imaging/tiff/bigtiff.html) and
//! [GeoTIFF](https://docs.ogc.org/is/19-008r4/19-008r4.html).

use std::{cell::Cell, ops::Range};

use bytes::Bytes;

use super::{
    directory::{Entry, Parts, Reader, Stop, corrupt, uint, unsupported},
    facts::Facts,
};
use crate::{
    geo::Size,
    raster::DataType,
    store::{self, Merge},
};

/// Directories that one file may have.
const MOST_DIRECTORIES: usize = 256;
/// Bands that one file may have.
const MOST_BANDS: usize = 65_536;
/// A table of tiles up to this size counts as part of the header; a larger one is read in parts.
const MOST_TABLE_BYTES: u64 = 512 << 10;
/// Bytes in which GDAL's text before the directories has its first lines.
const GHOST_BYTES: u64 = 256;
/// Bytes around a tile that such a text promises.
const LEADER_BYTES: u64 = 4;
const TRAILER_BYTES: u64 = 4;
/// Bytes of a table that one read may take.
const MOST_ENTRY_BYTES: u64 = 24 << 20;
/// How entries of a tile table are merged into requests.
const TABLE_MERGE: Merge = Merge {
    gap_bytes: 32 << 10,
    fetch_bytes: 4 << 20,
};

/// A file's header, understood.
#[derive(Clone, Debug)]
pub(super) struct Index {
    /// Full resolution, then the overviews, largest first.
    pub(super) levels: Vec<Level>,
    /// The mask of each level, where the file has one.
    pub(super) masks: Vec<Option<Level>>,
    pub(super) little_endian: bool,
    pub(super) facts: Facts,
    /// Bytes from the start of the file that hold the directories and the tables of tiles, but for
    /// tables so large that they are read in parts.
    pub(super) header_bytes: u64,
}

/// One image of the file: its layout, and where its tile tables are.
#[derive(Clone, Debug)]
pub(super) struct Level {
    pub(super) size: Size,
    /// The size of a tile; of a strip: the image's width and the rows of a strip.
    pub(super) tile: Size,
    pub(super) bands: usize,
    pub(super) dtype: DataType,
    pub(super) stored: Stored,
    pub(super) compression: Compression,
    pub(super) predictor: u16,
    /// True if each band has tiles of its own.
    pub(super) planar: bool,
    pub(super) photometric: u16,
    /// True if the lowest bit of each stored byte comes first.
    pub(super) bits_reversed: bool,
    pub(super) jpeg_tables: Option<Bytes>,
    /// True if the writer says that tiles lie one behind the other, each with its size before it and
    /// its last bytes again behind it.
    back_to_back: bool,
    offsets: Table,
    /// Some writers leave out how long samples are that they did not compress.
    counts: Option<Table>,
}

/// How one sample lies in a decompressed tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// As the data type, in the byte order of the file.
    Whole,
    /// So many bits, the highest first; each row starts at a byte.
    Bits(u8),
    /// Two bytes of a float; IEEE 754 `binary16`.
    Half,
    /// Two whole numbers, of so many bits each.
    ComplexInt(u8),
    /// Three bytes of a float; see Adobe Photoshop TIFF Technical Note 3.
    ThreeByteFloat,
}

/// How tiles are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Lzw,
    Jpeg,
    Deflate,
    PackBits,
    Lzma,
    Zstd,
    WebP,
    Lerc(LercIn),
    JpegXl,
    Fax(Fax),
}

/// What LERC data is compressed with once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LercIn {
    Nothing,
    Deflate,
    Zstd,
}

/// The bilevel compressions of CCITT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fax {
    /// Runs only, each row from a byte on.
    Huffman,
    Group3 {
        two_dimensions: bool,
    },
    Group4,
}

impl Compression {
    fn of_code(code: u16) -> Result<Self, Stop> {
        let name = match code {
            1 => return Ok(Self::None),
            5 => return Ok(Self::Lzw),
            7 => return Ok(Self::Jpeg),
            8 | 32946 => return Ok(Self::Deflate),
            32773 => return Ok(Self::PackBits),
            34925 => return Ok(Self::Lzma),
            50000 => return Ok(Self::Zstd),
            50001 => return Ok(Self::WebP),
            2 => return Ok(Self::Fax(Fax::Huffman)),
            // The options of these two stand in tags of their own.
            3 => {
                return Ok(Self::Fax(Fax::Group3 {
                    two_dimensions: false,
                }));
            }
            34887 => return Ok(Self::Lerc(LercIn::Nothing)),
            4 => return Ok(Self::Fax(Fax::Group4)),
            50002 | 52546 => return Ok(Self::JpegXl),
            6 => "old JPEG",
            32766 => "NeXT",
            32809 => "ThunderScan",
            34676 | 34677 => "SGI LogLuv",
            34712 => "JPEG 2000",
            _ => return unsupported(format!("compression {code} is not supported")),
        };
        unsupported(format!("compression {name} ({code}) is not supported"))
    }

    /// Returns GDAL's name.
    pub(super) fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Lzw => Some("LZW"),
            Self::Jpeg => Some("JPEG"),
            Self::Deflate => Some("DEFLATE"),
            Self::PackBits => Some("PACKBITS"),
            Self::Lzma => Some("LZMA"),
            Self::Zstd => Some("ZSTD"),
            Self::WebP => Some("WEBP"),
            Self::Lerc(LercIn::Nothing) => Some("LERC"),
            Self::Lerc(LercIn::Deflate) => Some("LERC_DEFLATE"),
            Self::Lerc(LercIn::Zstd) => Some("LERC_ZSTD"),
            Self::JpegXl => Some("JXL"),
            Self::Fax(Fax::Huffman) => Some("CCITTRLE"),
            Self::Fax(Fax::Group3 { .. }) => Some("CCITTFAX3"),
            Self::Fax(Fax::Group4) => Some("CCITTFAX4"),
        }
    }
}

/// A table of numbers in the file, not read yet.
#[derive(Clone, Copy, Debug)]
struct Table {
    at: u64,
    count: u64,
    /// Bytes of one number.
    width: u64,
}

impl Level {
    /// Returns how many tiles lie side by side.
    pub(super) fn tiles_across(&self) -> u64 {
        u64::from(self.size.width.div_ceil(self.tile.width))
    }

    /// Returns how many tiles lie one below the other.
    pub(super) fn tiles_down(&self) -> u64 {
        u64::from(self.size.height.div_ceil(self.tile.height))
    }

    /// Returns how many tiles one band (or all, where they share tiles) has.
    fn tiles_per_plane(&self) -> u64 {
        self.tiles_across() * self.tiles_down()
    }

    /// Returns the number of a tile in the tables; past 64 bits the last, which no table has.
    pub(super) fn number(&self, col: u32, row: u32, plane: usize) -> u64 {
        let in_plane = u64::from(row) * self.tiles_across() + u64::from(col);
        (plane as u64)
            .saturating_mul(self.tiles_per_plane())
            .saturating_add(in_plane)
    }

    /// Returns the byte ranges of tiles; an empty range is a tile that is not stored.
    ///
    /// Only the entries of these tiles are read, and all that are missing are named at once.
    pub(super) fn ranges(
        &self,
        numbers: &[u64],
        little_endian: bool,
        parts: &Parts,
    ) -> Result<Vec<Range<u64>>, Stop> {
        let counts_of = |numbers: &[u64]| match self.counts {
            Some(counts) => counts.read(numbers, little_endian, parts),
            None => Ok(vec![None; numbers.len()]),
        };
        let tables = [Some(self.offsets), self.counts];
        if self.back_to_back && !tables.iter().flatten().all(Table::is_small) {
            return self.ranges_between(numbers, little_endian, parts, counts_of);
        }
        let offsets = self.offsets.read(numbers, little_endian, parts);
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
        let ranges = numbers.iter().zip(offsets).zip(counts);
        ranges
            .map(|((&number, offset), count)| self.range(number, offset, count))
            .collect()
    }

    /// Returns the range of a tile with these entries.
    fn range(
        &self,
        number: u64,
        offset: Option<u64>,
        count: Option<u64>,
    ) -> Result<Range<u64>, Stop> {
        match (offset, count.or_else(|| self.plain_bytes(number))) {
            (Some(0), Some(_)) | (Some(_), Some(0)) => Ok(0..0),
            (Some(offset), Some(count)) => match offset.checked_add(count) {
                Some(end) => Ok(offset..end),
                None => corrupt(format!("tile {number} ends past any file")),
            },
            _ => corrupt(format!("tile {number} has no entry in its table")),
        }
    }

    /// As [`Level::ranges`], of tiles that lie one behind the other: where the next one starts says how
    /// long a tile is, and the table of byte counts is needed only beside those that are not stored.
    fn ranges_between(
        &self,
        numbers: &[u64],
        little_endian: bool,
        parts: &Parts,
        counts_of: impl Fn(&[u64]) -> Result<Vec<Option<u64>>, Stop>,
    ) -> Result<Vec<Range<u64>>, Stop> {
        let pairs: Vec<u64> = numbers
            .iter()
            .flat_map(|&number| [number, number.saturating_add(1)])
            .collect();
        let offsets = self.offsets.read(&pairs, little_endian, parts)?;
        let (pairs, _) = offsets.as_chunks::<2>();
        // A tile that was written again lies at the end of the file, far from the one before it.
        let plain = self.row_bytes().unwrap_or(0) as u64 * u64::from(self.tile.height);
        let most = plain.saturating_mul(2).saturating_add(MOST_TABLE_BYTES);
        let length = |pair: &[Option<u64>; 2]| match *pair {
            [Some(offset), Some(next)] if offset > 0 => next
                .checked_sub(offset)?
                .checked_sub(LEADER_BYTES + TRAILER_BYTES)
                .filter(|&length| length > 0 && length <= most),
            _ => None,
        };
        let unclear = |pair: &[Option<u64>; 2]| pair[0] != Some(0) && length(pair).is_none();
        let all = numbers.iter().zip(pairs);
        let asked: Vec<u64> = all
            .clone()
            .filter_map(|(&number, pair)| unclear(pair).then_some(number))
            .collect();
        let mut counts = counts_of(&asked)?.into_iter();
        all.map(|(&number, pair)| {
            let count = match unclear(pair) {
                true => counts.next().flatten(),
                // Not stored, or known.
                false => length(pair).or(Some(0)),
            };
            self.range(number, pair[0], count)
        })
        .collect()
    }

    /// Returns the decoded bytes of a row of a tile.
    pub(super) fn row_bytes(&self) -> Option<usize> {
        let samples = if self.planar { 1 } else { self.bands };
        let samples = usize::try_from(self.tile.width)
            .ok()?
            .checked_mul(samples)?;
        match self.stored {
            Stored::Whole => samples.checked_mul(self.dtype.size()),
            Stored::Bits(bits) => samples
                .checked_mul(usize::from(bits))
                .map(|bits| bits.div_ceil(8)),
            Stored::Half => samples.checked_mul(2),
            Stored::ComplexInt(bits) => samples.checked_mul(usize::from(bits) / 4),
            Stored::ThreeByteFloat => samples.checked_mul(3),
        }
    }

    /// Returns the stored bytes of a tile that is not compressed.
    fn plain_bytes(&self, number: u64) -> Option<u64> {
        if self.compression != Compression::None {
            return None;
        }
        let row = number % self.tiles_per_plane() / self.tiles_across();
        let first = row.checked_mul(u64::from(self.tile.height))?;
        let rows = match self.tile.width == self.size.width {
            // The last strip ends with the image.
            true => u64::from(self.size.height).saturating_sub(first),
            false => u64::MAX,
        };
        u64::try_from(self.row_bytes()?)
            .ok()?
            .checked_mul(rows.min(u64::from(self.tile.height)))
    }

    /// Returns where the tables of a level end, if they are read with the header.
    fn tables_end(&self) -> u64 {
        let tables = [Some(self.offsets), self.counts].into_iter().flatten();
        if !tables.clone().all(|table| table.is_small()) {
            return 0;
        }
        tables
            .map(|table| {
                let bytes = table.count.saturating_mul(table.width);
                table.at.saturating_add(bytes)
            })
            .max()
            .unwrap_or(0)
    }
}

impl Table {
    /// Returns true if the table is read with the header.
    fn is_small(&self) -> bool {
        let bytes = self.count.checked_mul(self.width);
        bytes.is_some_and(|bytes| bytes <= MOST_TABLE_BYTES)
    }

    /// Reads the entries of tiles; none where the table is too short.
    fn read(
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
                return corrupt("a tile table ends past any file");
            };
            // Neighbours lie in one part.
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
            return unsupported(format!(
                "the entries of its tiles take {bytes} bytes of its tables; ask for a window"
            ));
        }
        Err(Stop::Missing(ranges))
    }
}

/// Returns true if GDAL's COG driver says so in the text that it puts before the directories, and no
/// other program has written to the file since.
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
        && has("KNOWN_INCOMPATIBLE_EDITION=NO")
        && !has("MASK_INTERLEAVED_WITH_IMAGERY=YES")
}

/// Understands a header, or says which bytes are missing.
pub(super) fn parse(parts: &Parts) -> Result<Index, Stop> {
    let head = parts.get(0..8)?;
    let little_endian = match head.get(..2) {
        Some(b"II") => true,
        Some(b"MM") => false,
        _ => {
            let err = super::not_a_tiff("it starts with neither II nor MM");
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
        end: Cell::new(0),
    };
    let mut seen = Vec::new();
    let mut main: Option<(Level, Facts)> = None;
    let mut overviews = Vec::new();
    let mut masks = Vec::new();
    // Directories that lead in a circle end like any other chain.
    while at != 0 && seen.len() < MOST_DIRECTORIES && !seen.contains(&at) {
        seen.push(at);
        let (entries, next) = match reader.directory(at) {
            // What is past a good image is not needed to read it.
            Err(Stop::Failed(_)) if main.is_some() => break,
            read => read?,
        };
        let kind = reader.number(&entries, 254)?.unwrap_or(0);
        let (reduced, mask) = (kind & 1 != 0, kind & 4 != 0);
        match &main {
            None => {
                let level = reader.level(&entries)?;
                let facts = reader.facts(&entries, &level)?;
                main = Some((level, facts));
            }
            Some((full, _)) if reduced || mask => match reader.level(&entries) {
                Ok(level) if mask => masks.push(level),
                Ok(level) if level.bands == full.bands && level.dtype == full.dtype => {
                    overviews.push(level);
                }
                Err(stop @ Stop::Missing(_)) => return Err(stop),
                // A thumbnail of another kind is no level of this image.
                _ => {}
            },
            Some(_) => {}
        }
        at = next;
    }
    let Some((full, facts)) = main else {
        return corrupt("it has no directory");
    };
    overviews.sort_by_key(|level| {
        std::cmp::Reverse(u64::from(level.size.width) * u64::from(level.size.height))
    });
    let mut levels = vec![full];
    levels.extend(overviews);
    let masks = levels
        .iter()
        .map(|level| masks.iter().find(|mask| mask.is_mask_of(level)).cloned())
        .collect();
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
    })
}

impl Level {
    /// Returns true if this image can hide pixels of a level: bits or bytes, for all bands or each.
    fn is_mask_of(&self, level: &Level) -> bool {
        self.size == level.size
            && self.dtype == DataType::U8
            && (self.bands == 1 || self.bands == level.bands)
    }
}

impl Reader<'_> {
    /// Returns a table's place; its numbers are read when they are needed.
    fn table(&self, entries: &[Entry], tag: u16) -> Option<Table> {
        let entry = entries.iter().find(|entry| entry.tag == tag)?;
        // Writers take signed types too; a negative number then lies past any file.
        matches!(entry.kind, 3 | 4 | 8 | 9 | 13 | 16 | 17).then_some(())?;
        Some(Table {
            at: entry.at,
            count: entry.count,
            width: entry.width()?,
        })
    }

    fn level(&self, entries: &[Entry]) -> Result<Level, Stop> {
        let side = |tag: u16, name: &str| -> Result<u32, Stop> {
            match self
                .number(entries, tag)?
                .and_then(|side| u32::try_from(side).ok())
            {
                Some(side) if side > 0 => Ok(side),
                _ => corrupt(format!("its {name} is missing, zero or past 32 bits")),
            }
        };
        let size = Size {
            width: side(256, "width")?,
            height: side(257, "height")?,
        };
        let small = |tag: u16, default: u16| -> Result<u16, Stop> {
            let value = self.number(entries, tag)?.unwrap_or(u64::from(default));
            u16::try_from(value).or_else(|_| corrupt(format!("tag {tag} is {value}, past 16 bits")))
        };
        let bands = usize::from(small(277, 1)?);
        if bands == 0 || bands > MOST_BANDS {
            return corrupt(format!("{bands} samples per pixel"));
        }
        let mut compression = Compression::of_code(small(259, 1)?)?;
        match &mut compression {
            Compression::Fax(Fax::Group3 { two_dimensions }) => {
                *two_dimensions = self.number(entries, 292)?.unwrap_or(0) & 1 != 0;
            }
            Compression::Lerc(inside) => {
                *inside = match self.numbers(entries, 50674)?.get(1) {
                    None | Some(0) => LercIn::Nothing,
                    Some(1) => LercIn::Deflate,
                    Some(2) => LercIn::Zstd,
                    Some(other) => {
                        return unsupported(format!("LERC inside codec {other} is not supported"));
                    }
                };
            }
            _ => {}
        }
        let photometric = small(262, 1)?;
        let (dtype, stored) = self.dtype(entries)?;
        let predictor = small(317, 1)?;
        if !matches!(predictor, 1..=3) {
            return unsupported(format!("predictor {predictor} is not supported"));
        }
        if predictor == 3 && !matches!(dtype, DataType::F32 | DataType::F64)
            || predictor == 2
                && (!matches!(stored, Stored::Whole | Stored::Half)
                    || matches!(dtype, DataType::C64 | DataType::C128))
        {
            return unsupported(format!(
                "predictor {predictor} with samples of this kind is not supported"
            ));
        }
        let is_tiled = entries.iter().any(|entry| entry.tag == 322);
        let tile = if is_tiled {
            Size {
                width: side(322, "tile width")?,
                height: side(323, "tile height")?,
            }
        } else {
            let rows = self.number(entries, 278)?.unwrap_or(u64::from(u32::MAX));
            let rows = u32::try_from(rows).unwrap_or(u32::MAX);
            Size {
                width: size.width,
                height: rows.clamp(1, size.height),
            }
        };
        // Tiles described by the tags of strips are written too.
        let pair = |offsets: u16, counts: u16| {
            Some((self.table(entries, offsets)?, self.table(entries, counts)))
        };
        let tables = if is_tiled {
            pair(324, 325).or_else(|| pair(273, 279))
        } else {
            pair(273, 279)
        };
        let plain = compression == Compression::None;
        // A table that is too short says nothing.
        let tables = tables.map(|(offsets, counts): (Table, Option<Table>)| {
            (
                offsets,
                counts.filter(|counts| counts.count >= offsets.count),
            )
        });
        let tables = tables.filter(|(_, counts)| counts.is_some() || plain);
        let Some((offsets, counts)) = tables else {
            return unsupported("it has no table of tile offsets and byte counts");
        };
        // JPEG has an order of its own.
        let bits_reversed = small(266, 1)? == 2 && compression != Compression::Jpeg;
        let level = Level {
            size,
            tile,
            bands,
            dtype,
            stored,
            compression,
            predictor,
            planar: small(284, 1)? == 2 && bands > 1,
            photometric,
            bits_reversed,
            jpeg_tables: self.value(entries, 347)?.map(|(_, bytes)| bytes),
            back_to_back: false,
            offsets,
            counts,
        };
        if compression == Compression::Jpeg
            && !(dtype == DataType::U8 && matches!(photometric, 0..=3 | 6))
        {
            return unsupported("JPEG of this colour space is not supported");
        }
        if compression == Compression::Jpeg && !level.planar && !matches!(bands, 1 | 3 | 4) {
            return unsupported(format!("JPEG of {bands} bands in one is not supported"));
        }
        if compression == Compression::WebP
            && !(dtype == DataType::U8 && !level.planar && matches!(bands, 3 | 4))
        {
            return unsupported("WebP of other than 3 or 4 bands of bytes is not supported");
        }
        if matches!(compression, Compression::Fax(_))
            && !(stored == Stored::Bits(1) && (bands == 1 || level.planar))
        {
            return unsupported("CCITT of other than one band of bits is not supported");
        }
        if photometric == 6 && compression != Compression::Jpeg {
            return unsupported("YCbCr without JPEG is not supported");
        }
        Ok(level)
    }

    fn dtype(&self, entries: &[Entry]) -> Result<(DataType, Stored), Stop> {
        let bits = self.numbers(entries, 258)?;
        let formats = self.numbers(entries, 339)?;
        let same = |list: &[u64]| list.windows(2).all(|pair| pair.first() == pair.last());
        if !same(&bits) || !same(&formats) {
            return unsupported("bands of different types are not supported");
        }
        let bits = bits.first().copied().unwrap_or(1);
        let format = formats.first().copied().unwrap_or(1);
        let of_bits = || {
            u8::try_from(bits)
                .map(Stored::Bits)
                .unwrap_or(Stored::Whole)
        };
        Ok(match (format, bits) {
            (1 | 4, 8) => (DataType::U8, Stored::Whole),
            (1 | 4, 16) => (DataType::U16, Stored::Whole),
            (1 | 4, 32) => (DataType::U32, Stored::Whole),
            (1 | 4, 64) => (DataType::U64, Stored::Whole),
            (2, 8) => (DataType::I8, Stored::Whole),
            (2, 16) => (DataType::I16, Stored::Whole),
            (2, 32) => (DataType::I32, Stored::Whole),
            (2, 64) => (DataType::I64, Stored::Whole),
            (3, 16) => (DataType::F32, Stored::Half),
            (3, 24) => (DataType::F32, Stored::ThreeByteFloat),
            (3, 32) => (DataType::F32, Stored::Whole),
            (3, 64) => (DataType::F64, Stored::Whole),
            // As GDAL: the smallest type that holds them.
            (1 | 4, 1..8) => (DataType::U8, of_bits()),
            (1 | 4, 9..16) => (DataType::U16, of_bits()),
            (1 | 4, 17..32) => (DataType::U32, of_bits()),
            (5, 32) => (DataType::C64, Stored::ComplexInt(16)),
            (5, 64) => (DataType::C64, Stored::ComplexInt(32)),
            (6, 64) => (DataType::C64, Stored::Whole),
            (6, 128) => (DataType::C128, Stored::Whole),
            (_, bits) => {
                return unsupported(format!(
                    "samples of {bits} bits (format {format}) are not supported"
                ));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(bytes: &'static [u8]) -> String {
        let mut parts = Parts::default();
        parts.add(0, Bytes::from_static(bytes));
        match parse(&parts) {
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
        assert!(matches!(parse(&parts), Err(Stop::Failed(_))));
    }

    #[test]
    fn missing_bytes_are_named() {
        let mut parts = Parts::default();
        parts.add(0, Bytes::from_static(b"II*\0\x10\x27\0\0"));
        assert!(
            matches!(parse(&parts), Err(Stop::Missing(ranges)) if ranges[0] == (10_000..10_002))
        );
    }
}
