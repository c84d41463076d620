//! What a user can choose about a cube and about what is computed of it.

use std::{fmt, sync::Arc};

use super::{
    mosaic::Mosaic,
    time::{Duplicates, Grouping},
};
use crate::{
    geo::{Bbox, Crs, GeoBox, Resolution},
    mask::{Cleanup, MaskClasses},
    products::Manifest,
    raster::Resampling,
};

/// The grid on which all images of a cube are put.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Grid {
    /// The grid of the images, where they share CRS and pixels: nothing is resampled. Of bands of several
    /// resolutions it is the finest one's.
    #[default]
    Native,
    /// The CRS of the images, with pixels of another size, at whole multiples of it.
    Resolution(Resolution),
    /// Another CRS and the size of a pixel in its units, at whole multiples of it.
    Projected(Crs, Resolution),
    /// The UTM zone of the middle of all images, and the size of a pixel in metres.
    Utm(Resolution),
    /// This one.
    Of(GeoBox),
}

/// What samples become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Values {
    /// They stay as they are stored.
    #[default]
    Raw,
    /// Physical values, by scale and offset of item, manifest or file: reflectance from 0 to 1, kelvin.
    Physical,
}

/// What happens where an image cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnFailure {
    /// The whole work ends with the error.
    #[default]
    Fail,
    /// Its pixels are without data, and the report lists it as a [`MissingInput`](super::MissingInput).
    Skip,
}

impl OnFailure {
    #[doc(hidden)]
    #[deprecated(since = "0.2.0", note = "renamed to `OnFailure::Skip`")]
    #[expect(non_upper_case_globals, reason = "the name of a variant")]
    pub const Hole: Self = Self::Skip;
}

/// What a cube is made of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ImageCubeOptions {
    /// The grid.
    pub grid: Grid,
    /// What of the grid is wanted, in degrees; none is all that the images cover.
    pub bbox: Option<Bbox>,
    /// How measurements are resampled, where they have to be; classes and flags always by nearest.
    pub resampling: Resampling,
    /// How far a warped place may lie from the exact one, in pixels of the image.
    pub max_error_pixels: f64,
    /// What becomes one date.
    pub grouping: Grouping,
    /// What becomes of items that are one scene.
    pub duplicates: Duplicates,
    /// What becomes of images of one date that cover the same place.
    pub mosaic: Mosaic,
    /// The classes of pixels that are left out.
    pub mask: Option<MaskClasses>,
    /// What is done to the mask, in pixels of the grid.
    pub cleanup: Cleanup,
    /// What samples become.
    pub values: Values,
    /// What happens where an image cannot be read.
    pub on_failure: OnFailure,
    /// What the product calls its bands; none is the built-in manifest that fits each item.
    pub manifest: Option<Manifest>,
}

impl Default for ImageCubeOptions {
    fn default() -> Self {
        Self {
            grid: Grid::default(),
            bbox: None,
            resampling: Resampling::default(),
            max_error_pixels: 0.125,
            grouping: Grouping::default(),
            duplicates: Duplicates::default(),
            mosaic: Mosaic::default(),
            mask: None,
            cleanup: Cleanup::default(),
            values: Values::default(),
            on_failure: OnFailure::default(),
            manifest: None,
        }
    }
}

impl ImageCubeOptions {
    /// Makes the usual options: the images' own grid, raw samples, a date for each solar day, no mask.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the grid.
    #[must_use]
    pub fn with_grid(mut self, grid: Grid) -> Self {
        self.grid = grid;
        self
    }

    /// Sets what of the grid is wanted, in degrees.
    #[must_use]
    pub fn with_bbox(mut self, bbox: Bbox) -> Self {
        self.bbox = Some(bbox);
        self
    }

    /// Sets how measurements are resampled.
    #[must_use]
    pub fn with_resampling(mut self, resampling: Resampling) -> Self {
        self.resampling = resampling;
        self
    }

    /// Sets how far a warped place may lie from the exact one, in pixels of the image.
    #[must_use]
    pub fn with_max_error_pixels(mut self, max_error_pixels: f64) -> Self {
        self.max_error_pixels = max_error_pixels;
        self
    }

    /// Sets what becomes one date.
    #[must_use]
    pub fn with_grouping(mut self, grouping: Grouping) -> Self {
        self.grouping = grouping;
        self
    }

    /// Sets what becomes of items that are one scene.
    #[must_use]
    pub fn with_duplicates(mut self, duplicates: Duplicates) -> Self {
        self.duplicates = duplicates;
        self
    }

    /// Sets what becomes of images of one date that cover the same place.
    #[must_use]
    pub fn with_mosaic(mut self, mosaic: Mosaic) -> Self {
        self.mosaic = mosaic;
        self
    }

    /// Sets the classes of pixels that are left out, and what is done to the mask before.
    #[must_use]
    pub fn with_mask(mut self, classes: MaskClasses, cleanup: Cleanup) -> Self {
        self.mask = Some(classes);
        self.cleanup = cleanup;
        self
    }

    /// Asks for physical values: reflectance from 0 to 1, kelvin.
    #[must_use]
    pub fn reflectance(mut self) -> Self {
        self.values = Values::Physical;
        self
    }

    /// Sets what happens where an image cannot be read.
    #[must_use]
    pub fn with_on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Sets what the product calls its bands.
    #[must_use]
    pub fn with_manifest(mut self, manifest: Manifest) -> Self {
        self.manifest = Some(manifest);
        self
    }
}

/// How far the work is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApplyProgress {
    /// Blocks that are computed.
    pub blocks_done: u64,
    /// All blocks.
    pub blocks: u64,
}

type Watch = Arc<dyn Fn(ApplyProgress) + Send + Sync>;

/// How a cube is computed.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct ApplyOptions {
    /// Columns and rows of a block, a multiple of 16; none is 1024, or 512 where memory is short or many images
    /// have tiles of no more, or of a COG a multiple of its tiles.
    pub block: Option<u32>,
    /// Pixels around a block that it sees too.
    pub halo: u32,
    /// Names of the bands that are made; none is numbers, or what is computed names them.
    pub names: Vec<String>,
    /// The value of pixels without data that is made: of floats what NaN becomes, and none keeps it; of whole
    /// numbers what the closure uses.
    pub nodata: Option<f64>,
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
    /// Makes the usual options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the columns and rows of a block, a multiple of 16.
    #[must_use]
    pub fn with_block(mut self, side: u32) -> Self {
        self.block = Some(side);
        self
    }

    /// Sets how many pixels around a block it sees too.
    #[must_use]
    pub fn with_halo(mut self, pixels: u32) -> Self {
        self.halo = pixels;
        self
    }

    /// Sets the names of the bands that are made.
    #[must_use]
    pub fn with_names(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.names = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the value of pixels without data that is made.
    #[must_use]
    pub fn with_nodata(mut self, nodata: f64) -> Self {
        self.nodata = Some(nodata);
        self
    }

    /// Sets who is told of each block that is done.
    #[must_use]
    pub fn with_progress(mut self, watch: impl Fn(ApplyProgress) + Send + Sync + 'static) -> Self {
        self.watch = Some(Arc::new(watch));
        self
    }
}
