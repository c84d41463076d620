//! What a user can choose about a cube that is written.

use std::{fmt, sync::Arc};

use crate::array::Layout;
use crate::{apply::time::Grouping, geo::GeoBox, raster::Resampling};

/// How far a write is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteProgress {
    /// Shards that are written, those of an earlier, stopped write too.
    pub shards_done: u64,
    /// All shards of the write.
    pub shards: u64,
    /// Bytes of samples in the shards that this call has written.
    pub bytes: u64,
}

type Watch = Arc<dyn Fn(WriteProgress) + Send + Sync>;

/// How a cube is written. What is computed brings its grid and its dates: `grouping` and `grid` are for images
/// that are copied.
#[derive(Clone)]
#[non_exhaustive]
pub struct CubeOptions {
    /// Chunks, shards, compression.
    pub layout: Layout,
    /// What becomes a date: of two images of one that cover a pixel the earlier one shows.
    pub grouping: Grouping,
    /// The grid; none is that of all images together. Images must lie on its pixels, not inside of it.
    pub grid: Option<GeoBox>,
    /// The value of samples without data; none is what the files say, and NaN where floats are computed.
    pub nodata: Option<f64>,
    /// How many overviews are made, each half as wide and high as the one before.
    pub overviews: usize,
    /// How they are made: any but cubic.
    pub resampling: Resampling,
    pub(super) watch: Option<Watch>,
}

impl Default for CubeOptions {
    fn default() -> Self {
        Self {
            layout: Layout::default(),
            grouping: Grouping::Item,
            grid: None,
            nodata: None,
            overviews: 0,
            resampling: Resampling::Average,
            watch: None,
        }
    }
}

impl fmt::Debug for CubeOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CubeOptions")
            .field("layout", &self.layout)
            .field("grouping", &self.grouping)
            .field("grid", &self.grid)
            .field("nodata", &self.nodata)
            .field("overviews", &self.overviews)
            .field("resampling", &self.resampling)
            .finish_non_exhaustive()
    }
}

impl CubeOptions {
    /// Makes the usual options: each image is a date.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets chunks, shards and compression.
    #[must_use]
    pub fn with_layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// Sets what becomes a date.
    #[must_use]
    pub fn with_grouping(mut self, grouping: Grouping) -> Self {
        self.grouping = grouping;
        self
    }

    /// Sets the grid.
    #[must_use]
    pub fn with_grid(mut self, grid: GeoBox) -> Self {
        self.grid = Some(grid);
        self
    }

    /// Sets the value of samples without data.
    #[must_use]
    pub fn with_nodata(mut self, nodata: f64) -> Self {
        self.nodata = Some(nodata);
        self
    }

    /// Sets how many overviews are made, and how.
    #[must_use]
    pub fn with_overviews(mut self, levels: usize, resampling: Resampling) -> Self {
        self.overviews = levels;
        self.resampling = resampling;
        self
    }

    /// Sets who is told of each shard that is written.
    #[must_use]
    pub fn with_progress(mut self, watch: impl Fn(WriteProgress) + Send + Sync + 'static) -> Self {
        self.watch = Some(Arc::new(watch));
        self
    }
}
