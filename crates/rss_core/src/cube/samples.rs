//! What the writer knows of samples: dates and bands on one grid, of which it asks for one part at a time.
//!
//! Whether they are copied from files that share their pixels (`copied`) or come from a cube on any grid
//! (`computed`) is not the writer's business.

use std::{fmt, ops::Range, sync::Arc};

use futures::future::BoxFuture;
use serde_json::Value;

use super::{
    describe::{CubeBand, TimeStep},
    images::CubeImage,
};
use crate::{
    apply::MissingInput,
    error::Result,
    geo::{GeoBox, Window},
    raster::Pixels,
};

/// Dates and bands on one grid, and their samples.
#[async_trait::async_trait]
pub(super) trait Samples: Send + Sync {
    fn bands(&self) -> &[CubeBand];

    /// Returns the dates, in their order.
    fn steps(&self) -> Vec<TimeStep>;

    fn grid(&self) -> GeoBox;

    /// Returns what the samples were made by: two that say the same of the same items are the same. Null where
    /// they are those of the files.
    fn made(&self) -> Value;

    /// Returns which shards are best made of one part.
    fn together(&self) -> Together;

    /// Returns what is missing before anything is read; none where nothing may be missing.
    fn missing_inputs(&self) -> Option<Vec<MissingInput>>;

    /// Returns the bytes of memory that a part takes while it is made, its samples included. The bands of a part
    /// have one type.
    async fn bytes(&self, part: &Hyperslab) -> Result<u64>;

    /// Makes a part: of each of its bands (time, y, x) in the band's type, and what is missing in it.
    async fn make(&self, part: &Hyperslab) -> Result<(Vec<Pixels>, Vec<MissingInput>)>;
}

/// Which shards are made of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Together {
    /// Each by itself.
    None,
    /// Those of all bands at the same dates and storage: they share a mask.
    Bands,
    /// All of a storage: none of them can be made without the others.
    Storage,
}

/// Some dates and bands of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hyperslab {
    /// In their order.
    pub(super) bands: Vec<usize>,
    pub(super) times: Range<usize>,
    pub(super) window: Window,
}

impl Hyperslab {
    /// Returns how many samples it has.
    pub(super) fn len(&self) -> u64 {
        let pixels = u64::from(self.window.width) * u64::from(self.window.height);
        pixels * self.times.len() as u64 * self.bands.len() as u64
    }
}

/// What is written as a cube: images that share their pixels, or a cube or a result of
/// [`apply`](crate::apply) on any grid.
///
/// What takes it takes a `Vec` of [`CubeImage`], an [`apply::ImageCube`](crate::apply::ImageCube) or an
/// [`apply::Apply`](crate::apply::Apply) as it stands.
pub struct Images(pub(super) SamplesKind);

pub(super) enum SamplesKind {
    Copied(Vec<CubeImage>),
    Computed(Open),
}

/// Opens what is computed, with the nodata values that the cube has.
pub(super) type Open =
    Box<dyn FnOnce(Nodata) -> BoxFuture<'static, Result<Arc<dyn Samples>>> + Send>;

/// The nodata values of a cube's bands, as far as they are known before its samples are.
#[derive(Clone, Debug)]
pub(super) enum Nodata {
    /// What the user chose for all of them, if anything.
    Chosen(Option<f64>),
    /// Those of the cube that is there.
    Of(Vec<CubeBand>),
}

impl Nodata {
    pub(super) fn of(&self, band: &str) -> Option<f64> {
        match self {
            Self::Chosen(nodata) => *nodata,
            Self::Of(bands) => bands.iter().find(|one| one.name == band)?.nodata,
        }
    }
}

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            SamplesKind::Copied(images) => f.debug_tuple("Images").field(images).finish(),
            SamplesKind::Computed(_) => f.debug_tuple("Images").finish_non_exhaustive(),
        }
    }
}

impl From<Vec<CubeImage>> for Images {
    fn from(images: Vec<CubeImage>) -> Self {
        Self(SamplesKind::Copied(images))
    }
}
