//! What an index keeps of one file: enough to read any tile of it with one request.
//!
//! An entry is plain data, made by [`RasterReader::entry`](super::RasterReader::entry) and read by
//! [`open`](super::open). It may come from a file of someone else: the reader checks it before it
//! believes it.

use std::sync::Arc;

use bytes::Bytes;

use super::BandProfile;
use crate::{
    geo::{Crs, GeoTransform, Size},
    location::Location,
    raster::DataType,
    store::Version,
};

/// One file of an index: where it is, which version of it was seen, and where its tiles lie.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Entry {
    /// Where the file is.
    pub location: Location,
    /// The version whose header was read.
    pub version: Version,
    /// What the header says.
    pub header: Arc<Header>,
}

impl Entry {
    /// Makes an entry of its parts.
    pub fn new(location: Location, version: Version, header: impl Into<Arc<Header>>) -> Self {
        Self {
            location,
            version,
            header: header.into(),
        }
    }
}

/// What the header of a file says: all that [`Profile`](super::Profile) holds, and where tiles lie.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Header {
    /// True if numbers of more than a byte are stored lowest byte first.
    pub little_endian: bool,
    /// Bytes from the start of the file that hold the header.
    pub header_bytes: u64,
    /// The type that samples are read as.
    pub dtype: DataType,
    /// The nodata value; may be NaN.
    pub nodata: Option<f64>,
    /// The CRS.
    pub crs: Option<Crs>,
    /// The transform of level 0.
    pub transform: Option<GeoTransform>,
    /// True if coordinates name the centres of pixels in the file.
    pub pixel_is_point: bool,
    /// Each band.
    pub bands: Vec<BandProfile>,
    /// Red, green and blue of each sample value.
    pub palette: Option<Vec<[u8; 3]>>,
    /// GDAL's metadata of the whole file.
    pub metadata: Vec<(String, String)>,
    /// Level 0, then the overviews, largest first.
    pub levels: Vec<Image>,
    /// The mask of each level, where the file has one; as many as `levels`.
    pub masks: Vec<Option<Image>>,
}

impl Header {
    /// Makes a header that says nothing but how its images lie.
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

/// One image of a file, a level or a mask: its layout in the terms of
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
    /// What a sample is (tag 339): 1 unsigned, 2 signed, 3 float, 5 complex whole numbers, 6 complex
    /// floats.
    pub sample_format: u16,
    /// The compression (tag 259).
    pub compression: u16,
    /// What the compression needs to know besides: bit 0 of tag 292 for CCITT Group 3, the second
    /// number of tag 50674 for LERC, else 0.
    pub compression_option: u16,
    /// The predictor (tag 317): 1 none, 2 differences, 3 of floats.
    pub predictor: u16,
    /// True if each band has tiles of its own (tag 284 is 2).
    pub planar: bool,
    /// The photometric interpretation (tag 262).
    pub photometric: u16,
    /// True if the lowest bit of each stored byte comes first (tag 266 is 2).
    pub bits_reversed: bool,
    /// Tables that all JPEG tiles share (tag 347).
    pub jpeg_tables: Option<Bytes>,
    /// Where the tiles lie.
    pub tiles: Arc<Tiles>,
}

impl Image {
    /// Makes an image of one band of whole, plain samples: `bits` of `sample_format`.
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

/// Where the tiles of an image lie: row by row, and band after band where bands have tiles of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tiles {
    /// Where each tile starts in the file; 0 for one that is not stored.
    pub offsets: Vec<u64>,
    /// Bytes of each tile; 0 for one that is not stored: it is sparse, and reads as nodata.
    pub byte_counts: Vec<u64>,
}

impl Tiles {
    /// Makes the tiles of an image; both lists are as long as the image has tiles.
    pub fn new(offsets: Vec<u64>, byte_counts: Vec<u64>) -> Self {
        Self {
            offsets,
            byte_counts,
        }
    }

    /// Returns how many tiles there are.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Returns the bytes of a tile: an empty range for a sparse one, none past the last.
    pub fn range(&self, number: usize) -> Option<std::ops::Range<u64>> {
        let offset = *self.offsets.get(number)?;
        let bytes = *self.byte_counts.get(number)?;
        if offset == 0 || bytes == 0 {
            return Some(0..0);
        }
        Some(offset..offset.checked_add(bytes)?)
    }
}
