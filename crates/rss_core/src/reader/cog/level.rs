//! One image of a TIFF file: its layout, and the byte ranges of its tiles. No IO.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    directory::{Entry, Reader, Stop, corrupt, unsupported},
    table::NumberTable,
};
use crate::{geo::Size, raster::DataType, reader::Tiles};

/// Bands of one file.
const MOST_BANDS: usize = 65_536;
/// Bytes that a compressed tile may have besides four times those of its samples: tables and metadata of its codec.
const MOST_CODEC_BYTES: u64 = 1 << 20;

/// One image of the file: its layout, and its tile tables.
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
    /// True if each band has tiles of its own (PlanarConfiguration 2).
    pub(super) planar: bool,
    pub(super) photometric: u16,
    /// True if the lowest bit of each stored byte comes first (FillOrder 2).
    pub(super) bits_reversed: bool,
    pub(super) jpeg_tables: Option<Bytes>,
    /// True if the ghost area states that tiles are stored one after the other, with leader and trailer.
    pub(super) back_to_back: bool,
    pub(super) tables: Tables,
}

/// The offsets and byte counts of an image's tiles.
#[derive(Clone, Debug)]
pub(super) enum Tables {
    /// Tables of the file, read when their values are needed.
    InFile {
        offsets: NumberTable,
        /// Some writers leave out the byte counts; they are estimated then.
        byte_counts: Option<NumberTable>,
    },
    /// From an entry of an index.
    Known(Arc<Tiles>),
}

/// The form of a sample in a decompressed tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// As the data type, in the byte order of the file.
    Whole,
    /// This number of bits, the highest first; each row starts at a byte.
    Bits(u8),
    /// A float of two bytes; IEEE 754 `binary16`.
    Half,
    /// Two integers, of this number of bits each.
    ComplexInt(u8),
    /// A float of three bytes; see Adobe Photoshop TIFF Technical Note 3.
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

/// The compression around LERC data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LercIn {
    Nothing,
    Deflate,
    Zstd,
}

/// The bilevel compressions of CCITT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fax {
    /// Modified Huffman: runs only, each row starts at a byte.
    Huffman,
    Group3 {
        two_dimensions: bool,
    },
    Group4,
}

impl Compression {
    /// Returns the compression of a code (tag 259); `option` returns its parameter, if it has one.
    pub(super) fn of_code(
        code: u16,
        option: impl FnOnce() -> Result<u16, Stop>,
    ) -> Result<Self, Stop> {
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
            3 => {
                return Ok(Self::Fax(Fax::Group3 {
                    two_dimensions: option()? & 1 != 0,
                }));
            }
            34887 => {
                return Ok(Self::Lerc(match option()? {
                    0 => LercIn::Nothing,
                    1 => LercIn::Deflate,
                    2 => LercIn::Zstd,
                    other => {
                        return unsupported(format!("LERC inside codec {other} is not supported"));
                    }
                }));
            }
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

    /// Returns the code of this compression and its parameter.
    pub(super) fn code(self) -> (u16, u16) {
        match self {
            Self::None => (1, 0),
            Self::Lzw => (5, 0),
            Self::Jpeg => (7, 0),
            Self::Deflate => (8, 0),
            Self::PackBits => (32773, 0),
            Self::Lzma => (34925, 0),
            Self::Zstd => (50000, 0),
            Self::WebP => (50001, 0),
            Self::Lerc(LercIn::Nothing) => (34887, 0),
            Self::Lerc(LercIn::Deflate) => (34887, 1),
            Self::Lerc(LercIn::Zstd) => (34887, 2),
            Self::JpegXl => (50002, 0),
            Self::Fax(Fax::Huffman) => (2, 0),
            Self::Fax(Fax::Group3 { two_dimensions }) => (3, u16::from(two_dimensions)),
            Self::Fax(Fax::Group4) => (4, 0),
        }
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

impl Level {
    /// Returns the number of tile columns.
    pub(super) fn tiles_across(&self) -> u64 {
        u64::from(self.size.width.div_ceil(self.tile.width))
    }

    /// Returns the number of tile rows.
    pub(super) fn tiles_down(&self) -> u64 {
        u64::from(self.size.height.div_ceil(self.tile.height))
    }

    /// Returns the number of tiles of all bands.
    pub(super) fn tiles(&self) -> u64 {
        let planes = if self.planar { self.bands as u64 } else { 1 };
        self.tiles_per_plane().saturating_mul(planes)
    }

    /// Returns the number of tiles of one plane: one band, or all if they share tiles.
    fn tiles_per_plane(&self) -> u64 {
        self.tiles_across() * self.tiles_down()
    }

    /// Returns the index of a tile in the tables. It saturates: no table has the last 64-bit index.
    pub(super) fn number(&self, col: u32, row: u32, plane: usize) -> u64 {
        let in_plane = u64::from(row) * self.tiles_across() + u64::from(col);
        (plane as u64)
            .saturating_mul(self.tiles_per_plane())
            .saturating_add(in_plane)
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

    /// Returns the most bytes that a compressed tile may have: a byte count in a file must not decide how much
    /// memory a read takes.
    pub(super) fn most_stored_bytes(&self) -> u64 {
        let plain = self.row_bytes().unwrap_or(0) as u64;
        plain
            .saturating_mul(u64::from(self.tile.height))
            .saturating_mul(4)
            .saturating_add(MOST_CODEC_BYTES)
    }

    /// Returns the stored bytes of a tile that is not compressed.
    pub(super) fn plain_bytes(&self, number: u64) -> Option<u64> {
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

    /// Returns the end of a level's tables in the file, if they are read with the header; else 0.
    pub(super) fn tables_end(&self) -> u64 {
        let Tables::InFile {
            offsets,
            byte_counts,
        } = self.tables
        else {
            return 0;
        };
        let tables = [Some(offsets), byte_counts].into_iter().flatten();
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

impl Level {
    /// Checks that this layout is supported.
    ///
    /// # Errors
    ///
    /// `Unsupported`, naming the feature.
    pub(super) fn check(&self) -> Result<(), Stop> {
        let predictor = self.predictor;
        if !matches!(predictor, 1..=3) {
            return unsupported(format!("predictor {predictor} is not supported"));
        }
        if predictor == 3 && !matches!(self.dtype, DataType::F32 | DataType::F64)
            || predictor == 2
                && (!matches!(self.stored, Stored::Whole | Stored::Half)
                    || matches!(self.dtype, DataType::C64 | DataType::C128))
        {
            return unsupported(format!(
                "predictor {predictor} with samples of this type is not supported"
            ));
        }
        if self.compression == Compression::Jpeg
            && !(self.dtype == DataType::U8 && matches!(self.photometric, 0..=3 | 6))
        {
            return unsupported("JPEG of this colour space is not supported");
        }
        if self.compression == Compression::Jpeg && !self.planar && !matches!(self.bands, 1 | 3 | 4)
        {
            return unsupported(format!(
                "JPEG with {} interleaved bands is not supported",
                self.bands
            ));
        }
        if self.compression == Compression::WebP
            && !(self.dtype == DataType::U8 && !self.planar && matches!(self.bands, 3 | 4))
        {
            return unsupported("WebP without 3 or 4 interleaved bands of bytes is not supported");
        }
        if matches!(self.compression, Compression::Fax(_))
            && !(self.stored == Stored::Bits(1) && (self.bands == 1 || self.planar))
        {
            return unsupported("CCITT without one band of 1 bit is not supported");
        }
        if self.photometric == 6 && self.compression != Compression::Jpeg {
            return unsupported("YCbCr without JPEG is not supported");
        }
        Ok(())
    }
}

impl Level {
    /// Returns true if this image can be the mask of a level: bits or bytes, of one band for all or one
    /// for each.
    pub(super) fn is_mask_of(&self, level: &Level) -> bool {
        self.size == level.size
            && self.dtype == DataType::U8
            && (self.bands == 1 || self.bands == level.bands)
    }
}

impl Reader<'_> {
    /// Returns a tile table; its values are read when they are needed.
    fn table(&self, entries: &[Entry], tag: u16) -> Option<NumberTable> {
        let entry = entries.iter().find(|entry| entry.tag == tag)?;
        // Some writers use signed types; a negative offset is then past the end of any file.
        matches!(entry.kind, 1 | 3 | 4 | 8 | 9 | 13 | 16 | 17).then_some(())?;
        Some(NumberTable {
            at: entry.at,
            count: entry.count,
            width: entry.width()?,
        })
    }

    pub(super) fn level(&self, entries: &[Entry]) -> Result<Level, Stop> {
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
        let code = small(259, 1)?;
        // T4Options (292) of CCITT Group 3, and LercParameters (50674): version, compression around it.
        let compression = Compression::of_code(code, || {
            let option = match code {
                3 => self.number(entries, 292)?,
                _ => self.numbers(entries, 50674)?.get(1).copied(),
            };
            Ok(u16::try_from(option.unwrap_or(0)).unwrap_or(u16::MAX))
        })?;
        let photometric = small(262, 1)?;
        let (dtype, stored) = self.dtype(entries, bands)?;
        let predictor = small(317, 1)?;
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
        // Some writers store the tables of tiles in the tags of strips.
        let pair = |offsets: u16, counts: u16| {
            Some((self.table(entries, offsets)?, self.table(entries, counts)))
        };
        let tables = if is_tiled {
            pair(324, 325).or_else(|| pair(273, 279))
        } else {
            pair(273, 279)
        };
        let Some((offsets, byte_counts)) = tables else {
            return unsupported("it has no table of tile offsets");
        };
        // A table of byte counts that is shorter than the one of offsets is ignored: one of its entries may stand
        // for any tile. The counts are then estimated.
        let byte_counts = byte_counts.filter(|counts: &NumberTable| counts.count >= offsets.count);
        // JPEG streams are bytes: libtiff does not apply the fill order to them.
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
            tables: Tables::InFile {
                offsets,
                byte_counts,
            },
        };
        level.check()?;
        Ok(level)
    }

    fn dtype(&self, entries: &[Entry], bands: usize) -> Result<(DataType, Stored), Stop> {
        // Values past the samples of a pixel are of no sample.
        let of_samples = |mut list: Vec<u64>| {
            list.truncate(bands);
            list
        };
        let bits = of_samples(self.numbers(entries, 258)?);
        let formats = of_samples(self.numbers(entries, 339)?);
        let same = |list: &[u64]| list.windows(2).all(|pair| pair.first() == pair.last());
        if !same(&bits) || !same(&formats) {
            return unsupported("bands of different types are not supported");
        }
        let bits = bits.first().copied().unwrap_or(1);
        let format = formats.first().copied().unwrap_or(1);
        samples(format, bits)
    }
}

/// Returns the data type of samples of this format (tag 339) and number of bits, and how they are stored.
pub(super) fn samples(format: u64, bits: u64) -> Result<(DataType, Stored), Stop> {
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
        // As in GDAL: the smallest type that holds them.
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
