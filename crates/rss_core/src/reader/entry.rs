//! Entries: the header of one file, as an index stores it, to read any tile with one request.
//!
//! An entry is plain data, returned by [`RasterReader::entry`](super::RasterReader::entry) and read by
//! [`open`](super::open). It may come from a file of someone else, so the reader validates it.

use std::sync::Arc;

use bytes::Bytes;

use super::BandProfile;
use crate::{
    geo::{Crs, GeoTransform, Size},
    location::Location,
    raster::{DataType, Number},
    store::Version,
};

/// One file of an index: its location, its version, and the offsets of its tiles.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Entry {
    /// The location of the file.
    pub location: Location,
    /// The version whose header was read.
    pub version: Version,
    /// The header of the file.
    pub header: Arc<Header>,
}

impl Entry {
    /// Returns an entry of its parts.
    pub fn new(location: Location, version: Version, header: impl Into<Arc<Header>>) -> Self {
        Self {
            location,
            version,
            header: header.into(),
        }
    }
}

/// The header of a file: all that [`Profile`](super::Profile) holds, and the offsets of tiles.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Header {
    /// True for little-endian samples: the lowest byte first.
    pub little_endian: bool,
    /// Bytes from the start of the file that hold the header.
    pub header_bytes: u64,
    /// The type that samples are read as.
    pub dtype: DataType,
    /// The nodata value; may be NaN.
    pub nodata: Option<Number>,
    /// The CRS.
    pub crs: Option<Crs>,
    /// The transform of level 0.
    pub transform: Option<GeoTransform>,
    /// True if the file's coordinates are of pixel centres (`PixelIsPoint`).
    pub pixel_is_point: bool,
    /// Each band.
    pub bands: Vec<BandProfile>,
    /// Red, green and blue of each sample value.
    pub palette: Option<Vec<[u8; 3]>>,
    /// GDAL's metadata of the dataset.
    pub metadata: Vec<(String, String)>,
    /// Level 0, then the overviews, largest first.
    pub levels: Vec<Image>,
    /// The mask of each level, where the file has one; as many as `levels`.
    pub masks: Vec<Option<Image>>,
}

impl Header {
    /// Returns a header with nothing but its images.
    pub fn new(dtype: DataType, levels: Vec<Image>) -> Self {
        let count = levels.first().map_or(0, |level| usize::from(level.bands));
        Self {
            little_endian: true,
            header_bytes: 0,
            dtype,
            nodata: None,
            crs: None,
            transform: None,
            pixel_is_point: false,
            bands: vec![BandProfile::default(); count],
            palette: None,
            metadata: Vec::new(),
            masks: vec![None; levels.len()],
            levels,
        }
    }
}

/// One image of a file, a level or a mask: its layout in the tags of
/// [TIFF 6.0](https://www.itu.int/itudoc/itu-t/com16/tiff-fx/docs/tiff6.pdf), and its tiles.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Image {
    /// Width and height in pixels.
    pub size: Size,
    /// The size of a tile; of a strip: the image's width and the rows of a strip.
    pub tile: Size,
    /// Samples of a pixel (tag 277).
    pub bands: u16,
    /// Bits of a sample (tag 258).
    pub bits: u16,
    /// The sample format (tag 339): 1 unsigned, 2 signed, 3 float, 5 complex integer, 6 complex float.
    pub sample_format: u16,
    /// The compression (tag 259).
    pub compression: u16,
    /// A parameter of the compression: bit 0 of tag 292 for CCITT Group 3, the second value of tag 50674
    /// for LERC, else 0.
    pub compression_option: u16,
    /// The predictor (tag 317): 1 none, 2 horizontal differencing, 3 floating point.
    pub predictor: u16,
    /// True if each band has tiles of its own (tag 284 is 2).
    pub planar: bool,
    /// The photometric interpretation (tag 262).
    pub photometric: u16,
    /// True if the lowest bit of each stored byte comes first (FillOrder, tag 266, is 2).
    pub bits_reversed: bool,
    /// JPEG tables that all tiles share (tag 347).
    pub jpeg_tables: Option<Bytes>,
    /// The offsets and byte counts of the tiles.
    pub tiles: Arc<Tiles>,
}

impl Image {
    /// Returns an image of one band of uncompressed samples: `bits` of `sample_format`.
    pub fn new(size: Size, tile: Size, bits: u16, sample_format: u16, tiles: Tiles) -> Self {
        Self {
            size,
            tile,
            bands: 1,
            bits,
            sample_format,
            compression: 1,
            compression_option: 0,
            predictor: 1,
            planar: false,
            photometric: 1,
            bits_reversed: false,
            jpeg_tables: None,
            tiles: Arc::new(tiles),
        }
    }
}

/// Offsets and byte counts of the tiles of an image: row by row, and band after band in planar images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tiles {
    /// The offset of each tile in the file; a sparse tile, which is not stored and reads as nodata, has offset and
    /// byte count 0. Where one of them alone is 0, the file contradicts itself, and reading that tile is an error.
    pub offsets: Vec<u64>,
    /// Bytes of each tile.
    pub byte_counts: Vec<u64>,
}

impl Tiles {
    /// Returns the tables of an image; both lists have one value for each tile.
    pub fn new(offsets: Vec<u64>, byte_counts: Vec<u64>) -> Self {
        Self {
            offsets,
            byte_counts,
        }
    }

    /// Returns the number of tiles.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Returns true if there are no tiles.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Returns the byte range of a tile: an empty range for a sparse one. None past the last, and where the offset or
    /// the byte count alone is 0.
    pub fn range(&self, number: usize) -> Option<std::ops::Range<u64>> {
        let offset = *self.offsets.get(number)?;
        let bytes = *self.byte_counts.get(number)?;
        match (offset, bytes) {
            (0, 0) => Some(0..0),
            (0, _) | (_, 0) => None,
            _ => Some(offset..offset.checked_add(bytes)?),
        }
    }
}
