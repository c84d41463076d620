//! The interface between the writer and its source: time steps and bands on one grid, read one hyperslab at a time.
//!
//! It hides from the writer whether samples are copied from aligned files (`copied`) or computed from a cube on any
//! grid (`computed`).

use std::{collections::BTreeMap, fmt, ops::Range, sync::Arc};

use futures::future::BoxFuture;
use serde_json::Value;

use super::{
    describe::{CubeBand, TimeStep},
    images::CubeImage,
};
use crate::{
    apply::{MissingInput, mosaic::Fill},
    error::Result,
    geo::{GeoBox, Window},
    raster::{Number, Pixels},
    reader::RasterReader,
    store::Version,
};

/// Time steps and bands on one grid, and their samples.
#[async_trait::async_trait]
pub(super) trait Samples: Send + Sync {
    fn bands(&self) -> &[CubeBand];

    /// Returns the time steps in their order.
    fn steps(&self) -> Vec<TimeStep>;

    fn grid(&self) -> GeoBox;

    /// Returns the provenance: two sources with the same provenance and the same items give the same samples. Null
    /// where samples are copied from the files.
    fn made(&self) -> Value;

    /// Returns where the samples come from, for readers: images with their times, grid, computation and software.
    fn provenance(&self) -> Value;

    /// Returns what fills the gaps of copied images, where it makes a difference; none where `made` tells.
    fn fill(&self) -> Option<Fill> {
        None
    }

    /// Opens the files of the time steps from `first` on, if they are not open, so that [`files`](Self::files) states
    /// their versions. Costs nothing that reading all samples would not.
    async fn open(&self, _first: usize) -> Result<()> {
        Ok(())
    }

    /// Returns the files that are open and whose versions are known: a write that resumes compares them.
    fn files(&self) -> Vec<SourceFile> {
        Vec::new()
    }

    /// Returns what a user should know of the samples.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns which shards are best computed from one hyperslab.
    fn together(&self) -> Together;

    /// Returns the missing inputs that are known before anything is read; none where no input may be missing.
    fn missing_inputs(&self) -> Option<Vec<MissingInput>>;

    /// Returns the bytes of memory that computing a hyperslab takes, including its samples. Its bands have one dtype.
    async fn bytes(&self, part: &Hyperslab) -> Result<u64>;

    /// Computes a hyperslab: (time, y, x) of each of its bands in the band's dtype, and its missing inputs.
    async fn make(&self, part: &Hyperslab) -> Result<(Vec<Pixels>, Vec<MissingInput>)>;
}

/// A file that samples are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceFile {
    /// The time steps of the source that it is in.
    pub(super) steps: Range<usize>,
    pub(super) location: String,
    pub(super) version: Version,
}

impl SourceFile {
    /// Returns the files of these time steps whose versions are known, each once.
    pub(super) fn all<'a>(
        steps: Range<usize>,
        readers: impl Iterator<Item = &'a Arc<dyn RasterReader>>,
    ) -> Vec<Self> {
        let mut files: BTreeMap<String, Version> = BTreeMap::new();
        for reader in readers {
            // GDAL states none, but a file of this machine has size and time.
            let of_file = || {
                let meta = std::fs::metadata(reader.location().as_local()?).ok()?;
                Some(Version::of_file(&meta))
            };
            if let Some(version) = reader.version().cloned().or_else(of_file) {
                files.insert(reader.location().to_string(), version);
            }
        }
        let of_steps = |(location, version)| Self {
            steps: steps.clone(),
            location,
            version,
        };
        files.into_iter().map(of_steps).collect()
    }

    /// Returns true if some of these time steps are made of it.
    pub(super) fn is_in(&self, steps: &Range<usize>) -> bool {
        self.steps.start < steps.end && steps.start < self.steps.end
    }
}

/// Which shards are computed from one hyperslab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Together {
    /// Each by itself.
    None,
    /// Those of all bands at the same window and time steps: they share a mask.
    Bands,
    /// All of a window: a result is computed for all of its bands and time steps at once.
    Window,
}

/// A window of some time steps and bands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hyperslab {
    /// In ascending order.
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

/// The source of a cube that is written: images aligned to one grid, or a cube or a result of
/// [`apply`](crate::apply) on any grid.
///
/// Functions that take it also take a `Vec` of [`CubeImage`], an [`apply::ImageCube`](crate::apply::ImageCube) or an
/// [`apply::Apply`](crate::apply::Apply).
pub struct Images(pub(super) SamplesKind);

pub(super) enum SamplesKind {
    Copied(Vec<CubeImage>),
    Computed(Open),
}

/// Opens a computed source, with the nodata values that the cube has.
pub(super) type Open =
    Box<dyn FnOnce(Nodata) -> BoxFuture<'static, Result<Arc<dyn Samples>>> + Send>;

/// The nodata values of a cube's bands that are known before its source is opened.
#[derive(Clone, Debug)]
pub(super) enum Nodata {
    /// The user's choice for all bands, if any.
    Chosen(Option<Number>),
    /// Those of the existing cube, and the user's choice, if any.
    Of(Vec<CubeBand>, Option<Number>),
}

impl Nodata {
    pub(super) fn of(&self, band: &str) -> Option<Number> {
        match self {
            Self::Chosen(nodata) => *nodata,
            Self::Of(bands, _) => bands.iter().find(|one| one.name == band)?.nodata,
        }
    }
}

impl Nodata {
    /// Returns true if the user chose the value, also for files that state none.
    pub(super) fn is_chosen(&self) -> bool {
        let (Self::Chosen(nodata) | Self::Of(_, nodata)) = self;
        nodata.is_some()
    }

    /// Returns true if there is a cube whose band states no scaling.
    pub(super) fn is_without_scaling(&self, band: &str) -> bool {
        let Self::Of(bands, _) = self else {
            return false;
        };
        let band = bands.iter().find(|one| one.name == band);
        band.is_some_and(|band| band.scale.is_none() && band.offset.is_none())
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
