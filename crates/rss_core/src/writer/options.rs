//! Options of a COG that is written.

use std::str::FromStr;

use crate::{
    error::{Error, ErrorKind, Result},
    raster::{Number, Resampling, check_overview},
};

/// The compression of tiles; all are lossless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// No compression.
    None,
    /// DEFLATE, which every reader supports, at a level from 1 (fast) to 12 (small).
    Deflate(u8),
    /// ZSTD, at a level from 1 (fast) to 22 (small). Readers built without it refuse the file.
    Zstd(u8),
    /// LZW, for readers that support nothing else.
    Lzw,
}

impl Default for Compression {
    /// DEFLATE at level 6, GDAL's default.
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

/// The predictor, which is applied to samples before compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Predictor {
    /// [`Predictor::Horizontal`] for integers and [`Predictor::Float`] for floats, unless a sample of the first
    /// pixels is smaller without. None for complex samples, and without compression.
    #[default]
    Auto,
    /// No predictor (TIFF's predictor 1).
    None,
    /// Horizontal differencing (TIFF's predictor 2). Integers only.
    Horizontal,
    /// Floating point: byte planes by significance, then differences (TIFF's predictor 3). Floats only.
    Float,
}

/// The number of overviews, each half as wide and high as the level before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Overviews {
    /// Until the smallest fits one tile.
    #[default]
    Auto,
    /// No overviews.
    None,
    /// This number.
    Count(usize),
}

/// The metadata of one band.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Band {
    /// A name or a sentence: GDAL's description.
    pub name: Option<String>,
    /// The scale: value = sample * scale + offset.
    pub scale: Option<f64>,
    /// The offset.
    pub offset: Option<f64>,
    /// The unit of the values.
    pub unit: Option<String>,
    /// Whether samples are classes or flags, which have no mean: their overviews are by nearest if no resampling is
    /// chosen.
    pub is_class: bool,
}

impl Band {
    /// Returns a band without metadata.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a band with a name.
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: Some(name.into()),
            ..Self::default()
        }
    }

    /// Sets scale and offset: a value is `sample * scale + offset`.
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

    /// Declares that samples are classes or flags.
    #[must_use]
    pub fn of_classes(mut self) -> Self {
        self.is_class = true;
        self
    }
}

/// Options of a COG.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CogOptions {
    /// The compression of tiles.
    pub compression: Compression,
    /// The predictor.
    pub predictor: Predictor,
    /// The side of a tile in pixels: a multiple of 16, up to 4096.
    pub tile: u32,
    /// The number of overviews.
    pub overviews: Overviews,
    /// The resampling of overviews of all bands: nearest, average (bilinear is the same), rms, mode, min or max. If
    /// none is chosen: nearest for bands of classes ([`Band::is_class`]), average for all others.
    pub resampling: Option<Resampling>,
    /// The nodata value, if there is one. May be NaN.
    pub nodata: Option<Number>,
    /// The metadata of the bands, in order; bands past the end of the list have none.
    pub bands: Vec<Band>,
    /// The metadata of the file, in GDAL's default domain: names and values.
    pub metadata: Vec<(String, String)>,
    /// The software that made the file (TIFF's tag 305).
    pub software: Option<String>,
    /// Whether minimum, maximum, mean, standard deviation and percentage of valid samples of each band are
    /// written. Complex samples have none.
    pub statistics: bool,
    /// Whether tiles without data are sparse: not stored in the file. Readers fill them with nodata, or 0
    /// without a nodata value; some readers do not support them.
    pub sparse: bool,
}

impl Default for CogOptions {
    fn default() -> Self {
        Self {
            compression: Compression::default(),
            predictor: Predictor::default(),
            tile: 512,
            overviews: Overviews::default(),
            resampling: None,
            nodata: None,
            bands: Vec::new(),
            metadata: Vec::new(),
            software: None,
            statistics: true,
            sparse: false,
        }
    }
}

impl CogOptions {
    /// Returns the defaults: DEFLATE, tiles of 512 x 512, overviews by average (of classes by nearest), statistics.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the compression of tiles.
    #[must_use]
    pub fn with_compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Sets the predictor.
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

    /// Sets the number of overviews, and their resampling for all bands.
    #[must_use]
    pub fn with_overviews(mut self, overviews: Overviews, resampling: Resampling) -> Self {
        self.overviews = overviews;
        self.resampling = Some(resampling);
        self
    }

    /// Sets the overviews by a text: `auto` (nearest for bands of classes, average for all others), `none` for no
    /// overviews, or the resampling of all bands: `nearest`, `average`, `rms`, `mode`, `min` or `max`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for another text.
    pub fn with_overview_resampling(mut self, text: &str) -> Result<Self> {
        let (overviews, resampling) = match (text, text.parse()) {
            ("none", _) => (Overviews::None, None),
            ("auto", _) => (Overviews::Auto, None),
            (_, Ok(resampling)) if check_overview(resampling).is_ok() => {
                (Overviews::Auto, Some(resampling))
            }
            _ => {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    format!(
                        "overview resampling `{}` is not one of auto, nearest, average, bilinear, rms, mode, min, max, none",
                        text.escape_debug()
                    ),
                ));
            }
        };
        self.overviews = overviews;
        self.resampling = resampling;
        Ok(self)
    }

    /// Returns the resampling of a band's overviews.
    pub(super) fn overview_resampling_of(&self, band: usize) -> Resampling {
        let is_class = self.bands.get(band).is_some_and(|band| band.is_class);
        let usual = match is_class {
            true => Resampling::Nearest,
            false => Resampling::Average,
        };
        self.resampling.unwrap_or(usual)
    }

    /// Sets the nodata value.
    #[must_use]
    pub fn with_nodata(mut self, nodata: impl Into<Number>) -> Self {
        self.nodata = Some(nodata.into());
        self
    }

    /// Sets the metadata of the bands.
    #[must_use]
    pub fn with_bands(mut self, bands: impl IntoIterator<Item = Band>) -> Self {
        self.bands = bands.into_iter().collect();
        self
    }

    /// Adds a text to the metadata of the file, in GDAL's default domain.
    #[must_use]
    pub fn with_metadata(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.push((name.into(), value.into()));
        self
    }

    /// Sets the software that made the file.
    #[must_use]
    pub fn with_software(mut self, software: impl Into<String>) -> Self {
        self.software = Some(software.into());
        self
    }

    /// Writes no statistics.
    #[must_use]
    pub fn without_statistics(mut self) -> Self {
        self.statistics = false;
        self
    }

    /// Makes tiles without data sparse.
    #[must_use]
    pub fn with_sparse(mut self) -> Self {
        self.sparse = true;
        self
    }
}
