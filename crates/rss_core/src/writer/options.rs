//! What a user can choose about a COG that is written.

use std::str::FromStr;

use crate::{
    error::{Error, ErrorKind, Result},
    raster::Resampling,
};

/// How tiles are compressed; all of them lose nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// Not at all.
    None,
    /// DEFLATE, which every reader knows, at a level from 1 (fast) to 12 (small).
    Deflate(u8),
    /// ZSTD, at a level from 1 (fast) to 22 (small). Readers built without it refuse the file.
    Zstd(u8),
    /// LZW, for readers that know nothing else.
    Lzw,
}

impl Default for Compression {
    /// DEFLATE at level 6, GDAL's own.
    fn default() -> Self {
        Self::Deflate(6)
    }
}

impl FromStr for Compression {
    type Err = Error;

    /// Parses `none`, `lzw`, `deflate`, `deflate:LEVEL`, `zstd` or `zstd:LEVEL`.
    fn from_str(text: &str) -> Result<Self> {
        let (name, level) = match text.split_once(':') {
            Some((name, level)) => (name, Some(level)),
            None => (text, None),
        };
        let level = |usual: u8, most: u8| match level {
            None => Some(usual),
            Some(level) => level
                .parse()
                .ok()
                .filter(|level| (1..=most).contains(level)),
        };
        let found = match name {
            "none" | "lzw" if text.contains(':') => None,
            "none" => Some(Self::None),
            "lzw" => Some(Self::Lzw),
            "deflate" => level(6, 12).map(Self::Deflate),
            "zstd" => level(9, 22).map(Self::Zstd),
            _ => None,
        };
        found.ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "compression `{}` is not one of none, lzw, deflate[:1 to 12], zstd[:1 to 22]",
                    text.escape_debug()
                ),
            )
        })
    }
}

/// What is done to samples before they are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Predictor {
    /// [`Predictor::Horizontal`] for whole numbers and [`Predictor::Float`] for floats, unless a sample of
    /// the first pixels is smaller without. None for complex samples, and where nothing is compressed.
    #[default]
    Auto,
    /// Nothing.
    None,
    /// Each sample less the one to its left (TIFF's predictor 2). Whole numbers only.
    Horizontal,
    /// The bytes of floats apart by their weight, each less the one before (TIFF's predictor 3). Floats
    /// only.
    Float,
}

/// How many overviews a file has, each half as wide and high as the level before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overviews {
    /// As many as it takes until the smallest fits one tile.
    #[default]
    Auto,
    /// None.
    None,
    /// So many.
    Count(usize),
}

/// What is said of one band.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Band {
    /// A name or a sentence: GDAL's description.
    pub name: Option<String>,
    /// What a sample is multiplied with to get a value.
    pub scale: Option<f64>,
    /// What is then added.
    pub offset: Option<f64>,
    /// The unit of the values.
    pub unit: Option<String>,
}

impl Band {
    /// Makes a band of which nothing is said.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a band with a name.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: Some(name.into()),
            ..Self::default()
        }
    }

    /// Sets how a value is made of a sample: `sample * scale + offset`.
    #[must_use]
    pub fn with_scale(mut self, scale: f64, offset: f64) -> Self {
        self.scale = Some(scale);
        self.offset = Some(offset);
        self
    }

    /// Sets the unit of the values.
    #[must_use]
    pub fn with_unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = Some(unit.into());
        self
    }
}

/// How a COG is written.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CogOptions {
    /// How tiles are compressed.
    pub compression: Compression,
    /// What is done to samples before.
    pub predictor: Predictor,
    /// The side of a tile in pixels: a multiple of 16, up to 4096.
    pub tile: u32,
    /// How many overviews there are.
    pub overviews: Overviews,
    /// How they are made: any but cubic. Bilinear is the same as average.
    pub resampling: Resampling,
    /// The value of samples without data, if there is one. May be NaN.
    pub nodata: Option<f64>,
    /// What is said of the bands, the first one first. Nothing is said of those that are not here.
    pub bands: Vec<Band>,
    /// Whether least, greatest and mean value, standard deviation and share of valid samples of each band
    /// are written. Those of complex samples never are.
    pub statistics: bool,
    /// Whether tiles without data are left out of the file. Readers then see nodata, or 0 where there is no
    /// nodata; some readers do not know such tiles.
    pub sparse: bool,
}

impl Default for CogOptions {
    fn default() -> Self {
        Self {
            compression: Compression::default(),
            predictor: Predictor::default(),
            tile: 512,
            overviews: Overviews::default(),
            resampling: Resampling::Average,
            nodata: None,
            bands: Vec::new(),
            statistics: true,
            sparse: false,
        }
    }
}

impl CogOptions {
    /// Makes the usual options: DEFLATE, tiles of 512 x 512, overviews by average, statistics.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how tiles are compressed.
    #[must_use]
    pub fn with_compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Sets what is done to samples before they are compressed.
    #[must_use]
    pub fn with_predictor(mut self, predictor: Predictor) -> Self {
        self.predictor = predictor;
        self
    }

    /// Sets the side of a tile in pixels.
    #[must_use]
    pub fn with_tile(mut self, side: u32) -> Self {
        self.tile = side;
        self
    }

    /// Sets how many overviews there are, and how they are made.
    #[must_use]
    pub fn with_overviews(mut self, overviews: Overviews, resampling: Resampling) -> Self {
        self.overviews = overviews;
        self.resampling = resampling;
        self
    }

    /// Sets the value of samples without data.
    #[must_use]
    pub fn with_nodata(mut self, nodata: f64) -> Self {
        self.nodata = Some(nodata);
        self
    }

    /// Sets what is said of the bands.
    #[must_use]
    pub fn with_bands(mut self, bands: impl IntoIterator<Item = Band>) -> Self {
        self.bands = bands.into_iter().collect();
        self
    }

    /// Writes no statistics.
    #[must_use]
    pub fn without_statistics(mut self) -> Self {
        self.statistics = false;
        self
    }

    /// Leaves tiles without data out of the file.
    #[must_use]
    pub fn with_sparse(mut self) -> Self {
        self.sparse = true;
        self
    }
}
