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

use std::ops::Range;

use bytes::Bytes;

use crate::{
    error::{Error, ErrorKind, Result},
    geo::{Crs, GeoTransform, Size},
    raster::DataType,
};

/// Directories that one file may have.
const MOST_DIRECTORIES: usize = 256;
/// Entries that one directory may have.
const MOST_ENTRIES: u64 = 4096;
/// Bytes that one value outside the tile tables may have.
const MOST_VALUE_BYTES: u64 = 1 << 20;
/// Bytes of a tile table that are read at once.
const MOST_TABLE_BYTES: u64 = 256 << 20;
/// Bands that one file may have.
const MOST_BANDS: usize = 65_536;

/// Parts of a file that have been fetched.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts(Vec<(u64, Bytes)>);

impl Parts {
    pub(super) fn add(&mut self, offset: u64, bytes: Bytes) {
        self.0.push((offset, bytes));
    }

    /// Returns the bytes of a range, or the range as missing.
    fn get(&self, range: Range<u64>) -> Result<Bytes, Stop> {
        for (start, bytes) in &self.0 {
            let end = start.saturating_add(bytes.len() as u64);
            if *start <= range.start && range.end <= end {
                let from = usize::try_from(range.start - start).unwrap_or(usize::MAX);
                let to = usize::try_from(range.end - start).unwrap_or(usize::MAX);
                return Ok(bytes.slice(from..to));
            }
        }
        Err(Stop::Missing(range))
    }
}

/// Why parsing stopped.
#[derive(Debug)]
pub(super) enum Stop {
    /// These bytes are needed first.
    Missing(Range<u64>),
    /// The file is wrong, or cannot be read by this backend.
    Failed(Error),
}

fn corrupt<T>(message: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Failed(Error::new(ErrorKind::Corrupt, message)))
}

fn unsupported<T>(message: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Failed(Error::new(ErrorKind::Unsupported, message)))
}

/// A file's header, understood.
#[derive(Clone, Debug)]
pub(super) struct Index {
    /// Full resolution, then the overviews, largest first.
    pub(super) levels: Vec<Level>,
    pub(super) little_endian: bool,
    pub(super) nodata: Option<f64>,
    pub(super) crs: Option<Crs>,
    pub(super) transform: Option<GeoTransform>,
    pub(super) scale: Option<f64>,
    pub(super) offset: Option<f64>,
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
    pub(super) jpeg_tables: Option<Bytes>,
    offsets: Table,
    counts: Table,
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
            2..=4 => "CCITT",
            6 => "old JPEG",
            34712 => "JPEG 2000",
            34887 => "LERC",
            50002 | 52546 => "JPEG XL",
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
    /// Only the entries from the first to the last of `numbers` are read.
    pub(super) fn ranges(
        &self,
        numbers: &[u64],
        little_endian: bool,
        parts: &Parts,
    ) -> Result<Vec<Range<u64>>, Stop> {
        let (Some(&first), Some(&last)) = (numbers.iter().min(), numbers.iter().max()) else {
            return Ok(Vec::new());
        };
        let offsets = self.offsets.read(first, last, little_endian, parts)?;
        let counts = self.counts.read(first, last, little_endian, parts)?;
        numbers
            .iter()
            .map(|number| {
                let at = usize::try_from(number - first).unwrap_or(usize::MAX);
                let entry = offsets.get(at).copied().zip(counts.get(at).copied());
                match entry {
                    Some((0, _) | (_, 0)) => Ok(0..0),
                    Some((offset, count)) => match offset.checked_add(count) {
                        Some(end) => Ok(offset..end),
                        None => corrupt(format!("tile {number} ends past any file")),
                    },
                    None => corrupt(format!("tile {number} has no entry in its table")),
                }
            })
            .collect()
    }
}

impl Table {
    /// Reads the entries from `first` to `last`; what a short table lacks is missing from the result.
    fn read(
        &self,
        first: u64,
        last: u64,
        little_endian: bool,
        parts: &Parts,
    ) -> Result<Vec<u64>, Stop> {
        let end = self.count.min(last.saturating_add(1));
        if first >= end {
            return Ok(Vec::new());
        }
        let place = |n: u64| {
            n.checked_mul(self.width)
                .and_then(|at| at.checked_add(self.at))
        };
        let (Some(from), Some(to)) = (place(first), place(end)) else {
            return corrupt("a tile table ends past any file");
        };
        if to - from > MOST_TABLE_BYTES {
            return unsupported(format!(
                "{} tiles lie between the first and the last wanted; ask for a window",
                end - first
            ));
        }
        let bytes = parts.get(from..to)?;
        let width = usize::try_from(self.width).unwrap_or(1);
        Ok(bytes
            .chunks_exact(width)
            .map(|entry| uint(entry, little_endian))
            .collect())
    }
}

/// Reads an unsigned number of up to eight bytes.
fn uint(bytes: &[u8], little_endian: bool) -> u64 {
    let fold = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    if little_endian {
        bytes.iter().rev().fold(0, fold)
    } else {
        bytes.iter().fold(0, fold)
    }
}

/// A value of a directory, where it stands in the file.
#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: u16,
    kind: u16,
    count: u64,
    at: u64,
}

impl Entry {
    /// Returns the bytes of one element; none for a type that TIFF does not have.
    fn width(&self) -> Option<u64> {
        match self.kind {
            1 | 2 | 6 | 7 => Some(1),
            3 | 8 => Some(2),
            4 | 9 | 11 | 13 => Some(4),
            5 | 10 | 12 | 16 | 17 | 18 => Some(8),
            _ => None,
        }
    }
}

struct Reader<'a> {
    parts: &'a Parts,
    little_endian: bool,
    big: bool,
}

/// Understands a header, or says which bytes are missing.
pub(super) fn parse(parts: &Parts) -> Result<Index, Stop> {
    let head = parts.get(0..8)?;
    let little_endian = match head.get(..2) {
        Some(b"II") => true,
        Some(b"MM") => false,
        _ => return corrupt(super::NOT_A_TIFF),
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
    };
    let mut seen = Vec::new();
    let mut main: Option<(Level, Facts)> = None;
    let mut overviews = Vec::new();
    while at != 0 && seen.len() < MOST_DIRECTORIES {
        if seen.contains(&at) {
            return corrupt("its directories lead in a circle");
        }
        seen.push(at);
        let (entries, next) = reader.directory(at)?;
        let kind = reader.number(&entries, 254)?.unwrap_or(0);
        let (reduced, mask) = (kind & 1 != 0, kind & 4 != 0);
        match &main {
            None => {
                let level = reader.level(&entries)?;
                main = Some((level, reader.facts(&entries)?));
            }
            Some((full, _)) if reduced && !mask => match reader.level(&entries) {
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
    Ok(Index {
        levels,
        little_endian,
        nodata: facts.nodata,
        crs: facts.crs,
        transform: facts.transform,
        scale: facts.scale,
        offset: facts.offset,
    })
}

/// What the first directory says of the whole file.
#[derive(Debug, Default)]
struct Facts {
    nodata: Option<f64>,
    crs: Option<Crs>,
    transform: Option<GeoTransform>,
    scale: Option<f64>,
    offset: Option<f64>,
}

impl Reader<'_> {
    /// Returns a directory's entries and the place of the next directory.
    fn directory(&self, at: u64) -> Result<(Vec<Entry>, u64), Stop> {
        let (count_bytes, entry_bytes, value_bytes) =
            if self.big { (8, 20, 8) } else { (2, 12, 4) };
        let end = |from: u64, length: u64| match from.checked_add(length) {
            Some(end) => Ok(from..end),
            None => corrupt("a directory lies past any file"),
        };
        let count = self.uint(&self.parts.get(end(at, count_bytes)?)?);
        if count == 0 || count > MOST_ENTRIES {
            return corrupt(format!(
                "a directory with {count} entries, expected 1 to {MOST_ENTRIES}"
            ));
        }
        let first = at + count_bytes;
        let bytes = self
            .parts
            .get(end(first, count * entry_bytes + value_bytes)?)?;
        let mut entries = Vec::new();
        let mut place = first;
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
                at: place + value as u64,
            };
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
            place += entry_bytes;
        }
        Ok((entries, self.uint(next)))
    }

    fn uint(&self, bytes: &[u8]) -> u64 {
        uint(bytes, self.little_endian)
    }

    /// Returns the bytes of a tag's value.
    fn value(&self, entries: &[Entry], tag: u16) -> Result<Option<(Entry, Bytes)>, Stop> {
        let Some(entry) = entries.iter().find(|entry| entry.tag == tag) else {
            return Ok(None);
        };
        let length = entry
            .width()
            .and_then(|width| entry.count.checked_mul(width));
        let end = length.and_then(|length| entry.at.checked_add(length));
        match (length, end) {
            (Some(length), Some(end)) if length <= MOST_VALUE_BYTES => {
                Ok(Some((*entry, self.parts.get(entry.at..end)?)))
            }
            _ => corrupt(format!("tag {tag} has {} values, too many", entry.count)),
        }
    }

    /// Returns a tag's whole numbers.
    fn numbers(&self, entries: &[Entry], tag: u16) -> Result<Vec<u64>, Stop> {
        let Some((entry, bytes)) = self.value(entries, tag)? else {
            return Ok(Vec::new());
        };
        if !matches!(entry.kind, 1 | 3 | 4 | 13 | 16 | 18) {
            return corrupt(format!(
                "tag {tag} is no whole number (type {})",
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

    fn number(&self, entries: &[Entry], tag: u16) -> Result<Option<u64>, Stop> {
        Ok(self.numbers(entries, tag)?.first().copied())
    }

    fn doubles(&self, entries: &[Entry], tag: u16) -> Result<Vec<f64>, Stop> {
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

    fn text(&self, entries: &[Entry], tag: u16) -> Result<Option<String>, Stop> {
        Ok(self.value(entries, tag)?.map(|(_, bytes)| {
            let end = bytes
                .iter()
                .position(|&byte| byte == 0)
                .unwrap_or(bytes.len());
            String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
        }))
    }

    /// Returns a table's place; its numbers are read when they are needed.
    fn table(&self, entries: &[Entry], tag: u16) -> Option<Table> {
        let entry = entries.iter().find(|entry| entry.tag == tag)?;
        matches!(entry.kind, 3 | 4 | 13 | 16).then_some(())?;
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
        let compression = Compression::of_code(small(259, 1)?)?;
        let photometric = small(262, 1)?;
        let (dtype, stored) = self.dtype(entries)?;
        let predictor = small(317, 1)?;
        if !matches!(predictor, 1..=3) {
            return unsupported(format!("predictor {predictor} is not supported"));
        }
        if predictor == 3 && !matches!(dtype, DataType::F32 | DataType::F64)
            || predictor == 2 && !matches!(stored, Stored::Whole | Stored::Half)
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
            Some((self.table(entries, offsets)?, self.table(entries, counts)?))
        };
        let tables = if is_tiled {
            pair(324, 325).or_else(|| pair(273, 279))
        } else {
            pair(273, 279)
        };
        let Some((offsets, counts)) = tables else {
            return unsupported("it has no table of tile offsets and byte counts");
        };
        if small(266, 1)? != 1 {
            return unsupported("fill order 2 is not supported");
        }
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
            jpeg_tables: self.value(entries, 347)?.map(|(_, bytes)| bytes),
            offsets,
            counts,
        };
        if compression == Compression::Jpeg
            && !(dtype == DataType::U8 && matches!(photometric, 1 | 2 | 6))
        {
            return unsupported("JPEG of this colour space is not supported");
        }
        if compression == Compression::Jpeg && !level.planar && !matches!(bands, 1 | 3) {
            return unsupported(format!("JPEG of {bands} bands in one is not supported"));
        }
        if compression == Compression::WebP
            && !(dtype == DataType::U8 && !level.planar && matches!(bands, 3 | 4))
        {
            return unsupported("WebP of other than 3 or 4 bands of bytes is not supported");
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
            (5 | 6, _) => return unsupported("complex samples are not supported"),
            (_, bits) => {
                return unsupported(format!(
                    "samples of {bits} bits (format {format}) are not supported"
                ));
            }
        })
    }

    fn facts(&self, entries: &[Entry]) -> Result<Facts, Stop> {
        let keys = self.numbers(entries, 34735)?;
        // Directories of keys: (id, place, count, value) after a header of four numbers.
        let key = |wanted: u64| {
            keys.chunks_exact(4).skip(1).find_map(|key| match key {
                [id, 0, _, value] if *id == wanted => Some(*value),
                _ => None,
            })
        };
        let code = match key(1024) {
            Some(1) => key(3072),
            Some(2) => key(2048),
            _ => key(3072).or_else(|| key(2048)),
        };
        let epsg = code
            .filter(|&code| code > 0 && code < 32_767)
            .and_then(|code| u32::try_from(code).ok());
        let metadata = self.text(entries, 42112)?.unwrap_or_default();
        Ok(Facts {
            nodata: self
                .text(entries, 42113)?
                .and_then(|text| parse_number(&text)),
            crs: epsg.map(Crs::Epsg),
            transform: self.transform(entries, key(1025) == Some(2))?,
            scale: role(&metadata, "scale"),
            offset: role(&metadata, "offset"),
        })
    }

    fn transform(&self, entries: &[Entry], is_point: bool) -> Result<Option<GeoTransform>, Stop> {
        let scale = self.doubles(entries, 33550)?;
        let tie = self.doubles(entries, 33922)?;
        let matrix = self.doubles(entries, 34264)?;
        let mut g = match (scale[..].as_ref(), tie[..].as_ref(), matrix[..].as_ref()) {
            ([sx, sy, ..], [col, row, _, x, y, _], _) if *sx != 0.0 && *sy != 0.0 => {
                let sy = -sy.abs();
                [x - col * sx, *sx, 0.0, y - row * sy, 0.0, sy]
            }
            (_, _, [a, b, _, c, d, e, _, f, ..]) => [*c, *a, *b, *f, *d, *e],
            _ => return Ok(None),
        };
        if is_point {
            // The tie point names a pixel's centre; a transform starts at its corner.
            g[0] -= 0.5 * (g[1] + g[2]);
            g[3] -= 0.5 * (g[4] + g[5]);
        }
        Ok(g.iter()
            .all(|value| value.is_finite())
            .then_some(GeoTransform(g)))
    }
}

/// Reads the number at the start of a text, as C's `strtod` does; NaN and infinity by name.
fn parse_number(text: &str) -> Option<f64> {
    let text = text.trim();
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E')))
        .unwrap_or(text.len());
    (1..=end)
        .rev()
        .find_map(|end| text.get(..end)?.parse().ok())
}

/// Returns the value of the first band's item with a role in GDAL's metadata.
fn role(metadata: &str, role: &str) -> Option<f64> {
    let needle = format!("role=\"{role}\"");
    metadata.split("<Item ").skip(1).find_map(|item| {
        let (attributes, rest) = item.split_once('>')?;
        let first_band = !attributes.contains("sample=") || attributes.contains("sample=\"0\"");
        if !first_band || !attributes.contains(&needle) {
            return None;
        }
        rest.split('<').next()?.trim().parse().ok()
    })
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
        assert!(matches!(parse(&parts), Err(Stop::Missing(range)) if range == (10_000..10_002)));
    }

    #[test]
    fn nodata_is_read_in_every_spelling() {
        assert_eq!(parse_number("-999 "), Some(-999.0));
        assert_eq!(parse_number("-3.4e+38abc"), Some(-3.4e38));
        assert!(parse_number("nan").unwrap().is_nan());
        assert_eq!(parse_number("-inf"), Some(f64::NEG_INFINITY));
        assert_eq!(parse_number("none"), None);
    }

    #[test]
    fn scale_is_read_from_the_first_band() {
        let xml = "<GDALMetadata><Item name=\"SCALE\" sample=\"1\" role=\"scale\">2</Item>\
                   <Item name=\"SCALE\" sample=\"0\" role=\"scale\">0.0001</Item></GDALMetadata>";
        assert_eq!(role(xml, "scale"), Some(0.0001));
        assert_eq!(role(xml, "offset"), None);
    }
}
