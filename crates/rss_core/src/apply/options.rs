//! The options of a cube, and of a computation over it.

use std::{fmt, str::FromStr, sync::Arc};

use super::{
    grid::Anchor,
    mosaic::{Fill, Mosaic},
    sample::Zones,
    time::{Clock, Duplicates, Grouping},
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{Bbox, Crs, GeoBox, Resolution},
    mask::{Cleanup, MaskClasses},
    products::Manifest,
    raster::{Number, Resampling},
    reader::KnownHeaders,
};

/// The grid to which all images of a cube are warped.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Grid {
    /// The grid of the images, where they share a CRS and their pixels are aligned: nothing is resampled. With bands
    /// of several resolutions, the finest.
    #[default]
    Native,
    /// The CRS of the images with another pixel size; where its edges lie, [`Anchor`] says.
    Resolution(Resolution),
    /// Another CRS, and the pixel size in its units; where its edges lie, [`Anchor`] says.
    Projected(Crs, Resolution),
    /// The UTM zone of the centre of all images, and the pixel size in metres.
    Utm(Resolution),
    /// The given grid.
    Of(GeoBox),
}

/// Whether overviews of the images are read where the grid is coarser than they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Overviews {
    /// The overview that is the coarsest that is at least as fine as the grid.
    #[default]
    Auto,
    /// Never: all pixels at full resolution are read, as by gdalwarp's `-ovr NONE`. With averages exact, and slow.
    Never,
}

/// Whether samples are scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Values {
    /// Digital numbers (DN), as they are stored.
    #[default]
    Raw,
    /// Physical values, by scale and offset of item, manifest or file: reflectance from 0 to 1, kelvin.
    Physical,
}

/// What happens when an image cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnFailure {
    /// The computation ends with the error.
    #[default]
    Fail,
    /// Its pixels are nodata, and the report lists it as a [`MissingInput`](super::MissingInput).
    Skip,
}

impl OnFailure {
    #[doc(hidden)]
    #[deprecated(since = "0.1.0", note = "renamed to `OnFailure::Skip`")]
    #[expect(non_upper_case_globals, reason = "the name of a variant")]
    pub const Hole: Self = Self::Skip;
}

/// Where masks are applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MaskStage {
    /// On the cube's grid, after resampling: a pixel is masked if the pixel of the mask at its centre is. An average of a
    /// pixel that is kept may be of some masked pixels of the image.
    #[default]
    Grid,
    /// On the image's own pixels, before resampling: masked pixels are nodata, and contribute to no result. Overviews
    /// mix masked and other pixels, so full resolution is read. Opening and dilation are in pixels of the image.
    Source,
}

impl MaskStage {
    /// All stages.
    pub const ALL: [Self; 2] = [Self::Grid, Self::Source];

    /// Returns its name, `grid` or `source`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Grid => "grid",
            Self::Source => "source",
        }
    }
}

impl fmt::Display for MaskStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for MaskStage {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| {
            let message = format!("mask stage `{}` is not grid or source", text.escape_debug());
            Error::new(ErrorKind::InvalidInput, message)
        })
    }
}

/// Options of a cube: its grid, and how images are grouped, composited, masked and scaled.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ImageCubeOptions {
    /// The grid.
    pub grid: Grid,
    /// Where the edges of pixels lie, if the resolution is chosen.
    pub anchor: Anchor,
    /// The part of the grid to load, in degrees; none is the extent of all images.
    pub bbox: Option<Bbox>,
    /// The part of the grid to load in its own CRS, in place of a bbox: xmin, ymin, xmax, ymax.
    pub extent: Option<[f64; 4]>,
    /// Polygons outside of which all pixels are nodata. Without a bbox and an extent their bounding box is loaded.
    pub clip: Option<Arc<Zones>>,
    /// Whether overviews of the images are read.
    pub overviews: Overviews,
    /// The resampling of measurements; classes and flags are resampled by nearest.
    pub resampling: Resampling,
    /// The resampling of single bands, by name or asset key, classes and flags too.
    pub band_resampling: Vec<(String, Resampling)>,
    /// The largest error of a warped coordinate, in pixels of the image.
    pub max_error_pixels: f64,
    /// Which images form one time step.
    pub grouping: Grouping,
    /// The clock by which an image has its day, and so its week, month, season and year.
    pub clock: Clock,
    /// How duplicates of one scene are handled.
    pub duplicates: Duplicates,
    /// How images of one time step that overlap are composited.
    pub mosaic: Mosaic,
    /// What fills the gaps of an image, where the mosaic or the reducer takes the first or last valid sample.
    pub fill: Fill,
    /// The classes of pixels that are masked.
    pub mask: Option<MaskClasses>,
    /// The morphology applied to the mask, in pixels of the grid, or with [`MaskStage::Source`] of the image.
    pub cleanup: Cleanup,
    /// Where masks are applied.
    pub mask_stage: MaskStage,
    /// The least share, from 0 to 1, of the weight of its source pixels that must be valid in a valid pixel; none is any.
    pub min_valid: Option<f64>,
    /// Whether samples are scaled to physical values.
    pub values: Values,
    /// What happens when an image cannot be read.
    pub on_failure: OnFailure,
    /// The names and scales of the product's bands; none is the built-in manifest that fits each item.
    pub manifest: Option<Manifest>,
    /// Headers of the files that are known, such as an index: those files cost requests for pixels only.
    pub headers: Option<Arc<dyn KnownHeaders>>,
}

impl Default for ImageCubeOptions {
    fn default() -> Self {
        Self {
            grid: Grid::default(),
            anchor: Anchor::default(),
            bbox: None,
            extent: None,
            clip: None,
            overviews: Overviews::default(),
            resampling: Resampling::default(),
            band_resampling: Vec::new(),
            // The error threshold that gdalwarp uses by default.
            max_error_pixels: 0.125,
            grouping: Grouping::default(),
            clock: Clock::default(),
            duplicates: Duplicates::default(),
            mosaic: Mosaic::default(),
            fill: Fill::default(),
            mask: None,
            cleanup: Cleanup::default(),
            mask_stage: MaskStage::default(),
            min_valid: None,
            values: Values::default(),
            on_failure: OnFailure::default(),
            manifest: None,
            headers: None,
        }
    }
}

impl ImageCubeOptions {
    /// Returns the defaults: the images' own grid, raw samples, a time step for each solar day, no mask.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the grid.
    #[must_use]
    pub fn with_grid(mut self, grid: Grid) -> Self {
        self.grid = grid;
        self
    }

    /// Sets the part of the grid to load, in degrees.
    #[must_use]
    pub fn with_bbox(mut self, bbox: Bbox) -> Self {
        self.bbox = Some(bbox);
        self
    }

    /// Sets where the edges of pixels lie, if the resolution is chosen.
    #[must_use]
    pub fn with_anchor(mut self, anchor: Anchor) -> Self {
        self.anchor = anchor;
        self
    }

    /// Sets the part of the grid to load in its own CRS: xmin, ymin, xmax, ymax.
    #[must_use]
    pub fn with_extent(mut self, extent: [f64; 4]) -> Self {
        self.extent = Some(extent);
        self
    }

    /// Sets polygons outside of which all pixels are nodata, by the rule of their
    /// [`Coverage`](super::sample::Coverage). Without a bbox and an extent their bounding box is loaded.
    #[must_use]
    pub fn with_clip(mut self, zones: Zones) -> Self {
        self.clip = Some(Arc::new(zones));
        self
    }

    /// Sets whether overviews of the images are read.
    #[must_use]
    pub fn with_overviews(mut self, overviews: Overviews) -> Self {
        self.overviews = overviews;
        self
    }

    /// Sets the resampling of measurements.
    #[must_use]
    pub fn with_resampling(mut self, resampling: Resampling) -> Self {
        self.resampling = resampling;
        self
    }

    /// Sets the resampling of one band, by name or asset key; classes and flags too.
    #[must_use]
    pub fn with_band_resampling(mut self, band: impl Into<String>, resampling: Resampling) -> Self {
        self.band_resampling.push((band.into(), resampling));
        self
    }

    /// Sets the largest error of a warped coordinate, in pixels of the image.
    #[must_use]
    pub fn with_max_error_pixels(mut self, max_error_pixels: f64) -> Self {
        self.max_error_pixels = max_error_pixels;
        self
    }

    /// Sets which images form one time step.
    #[must_use]
    pub fn with_grouping(mut self, grouping: Grouping) -> Self {
        self.grouping = grouping;
        self
    }

    /// Sets the clock by which an image has its day, and so its week, month, season and year.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets how duplicates of one scene are handled.
    #[must_use]
    pub fn with_duplicates(mut self, duplicates: Duplicates) -> Self {
        self.duplicates = duplicates;
        self
    }

    /// Sets how images of one time step that overlap are composited.
    #[must_use]
    pub fn with_mosaic(mut self, mosaic: Mosaic) -> Self {
        self.mosaic = mosaic;
        self
    }

    /// Sets what fills the gaps of an image, where the mosaic or the reducer takes the first or last valid sample.
    #[must_use]
    pub fn with_fill(mut self, fill: Fill) -> Self {
        self.fill = fill;
        self
    }

    /// Sets the classes of pixels that are masked, and the morphology applied to the mask before.
    #[must_use]
    pub fn with_mask(mut self, classes: MaskClasses, cleanup: Cleanup) -> Self {
        self.mask = Some(classes);
        self.cleanup = cleanup;
        self
    }

    /// Sets where masks are applied: on the grid, or on the images' own pixels before resampling.
    #[must_use]
    pub fn with_mask_stage(mut self, stage: MaskStage) -> Self {
        self.mask_stage = stage;
        self
    }

    /// Sets the least share, from 0 to 1, of the weight of its source pixels that must be valid in a valid pixel.
    /// Weights are those of bilinear and average; of the other statistics of areas the covered area, of the other
    /// interpolations those of bilinear. Nearest has one source pixel, whose share is 0 or 1. Pixels beyond the edge of
    /// the image have no weight.
    #[must_use]
    pub fn with_min_valid(mut self, share: f64) -> Self {
        self.min_valid = Some(share);
        self
    }

    /// Requests physical values: reflectance from 0 to 1, kelvin.
    #[must_use]
    pub fn reflectance(mut self) -> Self {
        self.values = Values::Physical;
        self
    }

    /// Sets what happens when an image cannot be read.
    #[must_use]
    pub fn with_on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Sets the names and scales of the product's bands.
    #[must_use]
    pub fn with_manifest(mut self, manifest: Manifest) -> Self {
        self.manifest = Some(manifest);
        self
    }

    /// Takes headers that are known, such as those of an [`Index`](crate::index::Index). A file that is no longer the one
    /// whose header is known is [`ErrorKind::Changed`] when it is read.
    #[must_use]
    pub fn with_headers(mut self, headers: Arc<dyn KnownHeaders>) -> Self {
        self.headers = Some(headers);
        self
    }
}

/// The progress of a computation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApplyProgress {
    /// Blocks that are computed.
    pub blocks_done: u64,
    /// All blocks.
    pub blocks: u64,
}

type Watch = Arc<dyn Fn(ApplyProgress) + Send + Sync>;

/// Options of a computation over a cube.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct ApplyOptions {
    /// Columns and rows of a block, a multiple of 16. By default 1024; 512 where memory is short, or where blocks are
    /// large and the files' tiles are at most 512; rounded up to whole tiles for a COG.
    pub block: Option<u32>,
    /// Overlap: pixels on each side of a block that the closure gets in addition.
    pub halo: u32,
    /// Names of the result's bands; if empty, the computation names them, or they are numbered.
    pub names: Vec<String>,
    /// The nodata value of the result. Of floats: the value that replaces NaN, which stays if this is none. Of
    /// integers: the value that the closure writes.
    pub nodata: Option<Number>,
    pub(super) watch: Option<Watch>,
}

impl fmt::Debug for ApplyOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApplyOptions")
            .field("block", &self.block)
            .field("halo", &self.halo)
            .field("names", &self.names)
            .field("nodata", &self.nodata)
            .finish_non_exhaustive()
    }
}

impl ApplyOptions {
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the columns and rows of a block, a multiple of 16.
    #[must_use]
    pub fn with_block(mut self, side: u32) -> Self {
        self.block = Some(side);
        self
    }

    /// Sets the overlap: pixels on each side of a block that the closure gets in addition.
    #[must_use]
    pub fn with_halo(mut self, pixels: u32) -> Self {
        self.halo = pixels;
        self
    }

    /// Sets the names of the result's bands.
    #[must_use]
    pub fn with_names(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.names = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the nodata value of the result.
    #[must_use]
    pub fn with_nodata(mut self, nodata: impl Into<Number>) -> Self {
        self.nodata = Some(nodata.into());
        self
    }

    /// Sets a callback for each block that is done.
    #[must_use]
    pub fn with_progress(mut self, watch: impl Fn(ApplyProgress) + Send + Sync + 'static) -> Self {
        self.watch = Some(Arc::new(watch));
        self
    }
}
