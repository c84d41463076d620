//! The options of writing a cube.

use std::{fmt, sync::Arc};

use crate::array::Layout;
use crate::{
    apply::{
        mosaic::Fill,
        time::{Clock, Duplicates, Grouping},
    },
    geo::GeoBox,
    raster::{Number, Resampling},
};

/// The progress of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteProgress {
    /// Shards that are written, including those of an earlier, interrupted write.
    pub shards_done: u64,
    /// All shards of the write.
    pub shards: u64,
    /// Bytes of samples in the shards that this call has written.
    pub bytes: u64,
}

type Watch = Arc<dyn Fn(WriteProgress) + Send + Sync>;

/// How a cube is written. `grouping`, `clock`, `duplicates`, `fill` and `grid` apply to copied images only: computed samples
/// have their own grid and time steps.
#[derive(Clone)]
#[non_exhaustive]
pub struct CubeOptions {
    /// Chunks, shards, compression.
    pub layout: Layout,
    /// How images are grouped into time steps: where two images of one cover a pixel, the earlier one with data wins.
    pub grouping: Grouping,
    /// What fills the gaps of an image from later ones of its time step: whole pixels, or each band by itself.
    pub fill: Fill,
    /// The clock by which an image has its day, and so its week, month, season and year.
    pub clock: Clock,
    /// How duplicates of one scene are handled.
    pub duplicates: Duplicates,
    /// The grid; none is the union of all images' extents. Images must be aligned to its pixels, and may extend
    /// beyond it.
    pub grid: Option<GeoBox>,
    /// The nodata value; none is that of the files, and NaN for computed floats.
    pub nodata: Option<Number>,
    /// The number of overviews, each half as wide and high as the level before.
    pub overviews: usize,
    /// The resampling of overviews: nearest, bilinear, average, rms, mode, min or max. None is nearest for bands of
    /// classes ([`CubeBand::is_class`](super::CubeBand::is_class)), average for all others.
    pub resampling: Option<Resampling>,
    /// Whether the work of another writer is taken over that is not known to have ended, or that wrote other images.
    pub take_over: bool,
    /// Texts about the write, by attribute of the root.
    pub(super) notes: Vec<(String, String)>,
    pub(super) watch: Option<Watch>,
}

impl Default for CubeOptions {
    fn default() -> Self {
        Self {
            layout: Layout::default(),
            grouping: Grouping::Item,
            fill: Fill::default(),
            clock: Clock::default(),
            duplicates: Duplicates::default(),
            grid: None,
            nodata: None,
            overviews: 0,
            resampling: None,
            take_over: false,
            notes: Vec::new(),
            watch: None,
        }
    }
}

impl fmt::Debug for CubeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CubeOptions")
            .field("layout", &self.layout)
            .field("grouping", &self.grouping)
            .field("fill", &self.fill)
            .field("clock", &self.clock)
            .field("duplicates", &self.duplicates)
            .field("grid", &self.grid)
            .field("nodata", &self.nodata)
            .field("overviews", &self.overviews)
            .field("resampling", &self.resampling)
            .finish_non_exhaustive()
    }
}

impl CubeOptions {
    /// Makes the default options: each image is a time step.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets chunks, shards and compression.
    #[must_use]
    pub fn with_layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Sets how images are grouped into time steps.
    #[must_use]
    pub fn with_grouping(mut self, grouping: Grouping) -> Self {
        self.grouping = grouping;
        self
    }

    /// Sets what fills the gaps of an image from later ones of its time step.
    #[must_use]
    pub fn with_fill(mut self, fill: Fill) -> Self {
        self.fill = fill;
        self
    }

    /// Sets the clock by which an image has its day, and so its week, month, season and year.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets how duplicates of one scene are handled: by default only the best is written, and
    /// [`Written::left_out`](crate::zarr::Written::left_out) lists the others.
    #[must_use]
    pub fn with_duplicates(mut self, duplicates: Duplicates) -> Self {
        self.duplicates = duplicates;
        self
    }

    /// Sets the grid.
    #[must_use]
    pub fn with_grid(mut self, grid: GeoBox) -> Self {
        self.grid = Some(grid);
        self
    }

    /// Sets the nodata value.
    #[must_use]
    pub fn with_nodata(mut self, nodata: impl Into<Number>) -> Self {
        self.nodata = Some(nodata.into());
        self
    }

    /// Sets the number of overviews and their resampling; none is nearest for bands of classes, average for all others.
    #[must_use]
    pub fn with_overviews(
        mut self,
        levels: usize,
        resampling: impl Into<Option<Resampling>>,
    ) -> Self {
        self.overviews = levels;
        self.resampling = resampling.into();
        self
    }

    /// Adds a text about this write to an attribute of the root, which lists those of the write and of each append.
    #[must_use]
    pub fn with_note(mut self, attribute: impl Into<String>, text: impl Into<String>) -> Self {
        self.notes.push((attribute.into(), text.into()));
        self
    }

    /// Takes the work of another writer over that will never go on: its lock is ignored, and what it wrote of other images
    /// is discarded. If it goes on all the same it ends with an error.
    #[must_use]
    pub fn take_over(mut self) -> Self {
        self.take_over = true;
        self
    }

    /// Sets a callback that is called after each shard.
    #[must_use]
    pub fn with_progress(mut self, watch: impl Fn(WriteProgress) + Send + Sync + 'static) -> Self {
        self.watch = Some(Arc::new(watch));
        self
    }
}
