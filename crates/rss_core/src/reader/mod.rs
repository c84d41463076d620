//! Pixels of one file: the trait that all backends implement, and `open`.
//!
//! Reading never resamples: a request names a level and a window of that level's pixels.

#[cfg(feature = "async-tiff")]
mod async_tiff;
#[cfg(not(feature = "async-tiff"))]
#[path = "async_tiff/disabled.rs"]
mod async_tiff;
mod auto;
#[cfg(feature = "cog")]
pub(crate) mod cog;
#[cfg(not(feature = "cog"))]
#[path = "cog/disabled.rs"]
pub(crate) mod cog;
mod entry;
#[cfg(feature = "gdal")]
pub(crate) mod gdal;
#[cfg(not(feature = "gdal"))]
#[path = "gdal/disabled.rs"]
pub(crate) mod gdal;
mod mask;
mod profile;

#[cfg(all(fuzzing, feature = "cog"))]
#[doc(hidden)]
pub use self::cog::fuzzing;

use std::{collections::HashMap, fmt, str::FromStr, sync::Arc};

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::OnceCell;

pub use self::{
    entry::{Entry, Header, Image, Tiles},
    profile::{BandProfile, ColorInterp, Masking, Profile},
};
pub use crate::store::Version;
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{Size, Window},
    location::Location,
    raster::Raster,
    session::Session,
    store::check_file,
};

/// The implementation that reads a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// The COG reader if it supports the file, else GDAL; [`RasterReader::backend`] returns which of the
    /// two reads, and [`RasterReader::fallback`] why.
    #[default]
    Auto,
    /// The COG reader of this crate: parallel ranged requests over `object_store`; feature `cog`.
    Cog,
    /// GDAL and its virtual file systems; feature `gdal`.
    Gdal,
    /// The crate [async-tiff](https://docs.rs/async-tiff), for comparison; feature `async-tiff`. It reads tiled
    /// files with DEFLATE, LZW, Zstandard, JPEG or no compression, CRSs by EPSG code, and no masks;
    /// other files are [`ErrorKind::Unsupported`].
    AsyncTiff,
}

impl Backend {
    /// Returns the name the command line uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Cog => "cog",
            Self::Gdal => "gdal",
            Self::AsyncTiff => "async-tiff",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "auto" => Ok(Self::Auto),
            "cog" => Ok(Self::Cog),
            "gdal" => Ok(Self::Gdal),
            "async-tiff" => Ok(Self::AsyncTiff),
            _ => Err(Error::new(
                ErrorKind::InvalidInput,
                format!("backend `{text}` is not one of auto, cog, gdal, async-tiff"),
            )),
        }
    }
}

/// A read: a window of one level, some bands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadRequest {
    /// The window in pixels of `level`; none is the complete level.
    pub window: Option<Window>,
    /// 0 is full resolution, 1.. are the overviews, largest first.
    pub level: usize,
    /// Bands counted from 1, as GDAL counts; none is all bands.
    pub bands: Option<Vec<usize>>,
    /// True if tiles whose bytes are damaged are an error at once: the caller reads again by itself.
    pub(crate) once: bool,
}

impl ReadRequest {
    /// Requests the complete level 0, all bands.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the window.
    #[must_use]
    pub fn with_window(mut self, window: Window) -> Self {
        self.window = Some(window);
        self
    }

    /// Sets the level: 0 is full resolution, 1.. are the overviews.
    #[must_use]
    pub fn with_level(mut self, level: usize) -> Self {
        self.level = level;
        self
    }

    /// Sets the bands, counted from 1.
    #[must_use]
    pub fn with_bands(mut self, bands: impl Into<Vec<usize>>) -> Self {
        self.bands = Some(bands.into());
        self
    }

    /// Makes tiles whose bytes are damaged an error, without fetching them once more.
    #[must_use]
    pub(crate) fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// Checks this request against a file and returns its level's size, its window and its bands
    /// counted from 0.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the level, the window or a band does not exist, or the pixels
    /// take more than `most_bytes`.
    pub(crate) fn resolve(&self, profile: &Profile, most_bytes: u64) -> Result<Resolved> {
        let level_size = profile.level_size(self.level)?;
        let window = self.window.unwrap_or_else(|| Window::whole(level_size));
        window.check_inside(level_size)?;
        let bands = match &self.bands {
            None => (0..profile.count).collect(),
            Some(bands) => bands
                .iter()
                .map(|&band| {
                    band.checked_sub(1)
                        .filter(|&index| index < profile.count)
                        .ok_or_else(|| {
                            Error::new(
                                ErrorKind::InvalidInput,
                                format!("band {band} is not one of 1 to {}", profile.count),
                            )
                        })
                })
                .collect::<Result<Vec<_>>>()?,
        };
        if bands.is_empty() {
            return Err(Error::new(ErrorKind::InvalidInput, "no bands to read"));
        }
        let bytes = u64::from(window.width)
            .saturating_mul(u64::from(window.height))
            .saturating_mul(bands.len() as u64)
            .saturating_mul(profile.dtype.size() as u64);
        if bytes > most_bytes {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "a read of {bytes} bytes is past the session's limit of {most_bytes}; read a \
                     window"
                ),
            ));
        }
        Ok(Resolved {
            level_size,
            window,
            bands,
        })
    }
}

/// A request that was checked against its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) level_size: Size,
    pub(crate) window: Window,
    /// Counted from 0.
    pub(crate) bands: Vec<usize>,
}

/// One open raster.
///
/// Cheap to share: clone the `Arc` that [`open`] returns and read from many tasks.
#[async_trait]
pub trait RasterReader: fmt::Debug + Send + Sync {
    /// Returns the backend that reads: never [`Backend::Auto`].
    fn backend(&self) -> Backend;

    /// Returns why GDAL reads a file that was opened with [`Backend::Auto`]: the error of the COG reader.
    /// None if the COG reader reads it, or the backend was chosen.
    fn fallback(&self) -> Option<&Error> {
        None
    }

    /// Returns the file's location.
    fn location(&self) -> &Location;

    /// Returns the version of the file that is read, if the backend knows it: the COG reader does, from the response that
    /// brought the header. Costs no request.
    fn version(&self) -> Option<&Version> {
        None
    }

    /// Returns the properties of the file.
    fn profile(&self) -> &Profile;

    /// Reads one window. Dropping the future cancels it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for a window, level or band that does not exist;
    /// [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`] for the file;
    /// [`ErrorKind::Unavailable`], [`ErrorKind::Denied`], [`ErrorKind::NotFound`] for the network.
    async fn read(&self, request: &ReadRequest) -> Result<Raster>;

    /// Reads the mask: one band of bytes, 255 where the first requested band is valid and 0 where it is
    /// masked; values between are alpha. Its source is [`Profile::masking`]. It equals
    /// [GDAL's mask](https://gdal.org/en/stable/development/rfc/rfc15_nodatabitmask.html).
    ///
    /// # Errors
    ///
    /// As [`RasterReader::read`].
    async fn read_mask(&self, request: &ReadRequest) -> Result<Raster>;

    /// Reads many windows, in parallel if the backend can, and returns them in the order of `requests`.
    ///
    /// # Errors
    ///
    /// As [`RasterReader::read`]; the first error ends the call.
    async fn read_many(&self, requests: &[ReadRequest]) -> Result<Vec<Raster>>;

    /// Returns the tiles, requests and bytes of a read, if they are known without a request: the COG
    /// reader knows them for entries, and for files whose tile tables it has read.
    ///
    /// # Errors
    ///
    /// As [`RasterReader::read`], except those of the network.
    fn plan(&self, request: &ReadRequest) -> Result<Option<ReadPlan>> {
        let _ = request;
        Ok(None)
    }

    /// Returns the entry of this file for an index: its complete header, so that [`open`] can take the
    /// entry instead of the location and read tiles without fetching the header again. Fetches those
    /// parts of very large tile tables that were not read yet; else costs no request.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if GDAL reads this file, or an image has more than 4,194,304 tiles;
    /// as [`RasterReader::read`] for the network.
    async fn entry(&self) -> Result<Entry> {
        let message = "only files that the COG reader reads have an index entry";
        Err(Error::new(ErrorKind::Unsupported, message).at(self.location()))
    }
}

/// Options of [`open`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenOptions {
    /// The backend.
    pub backend: Backend,
    /// Bytes of the header at the start of the file, if they are known:
    /// [`stac::header_bytes`](crate::stac::header_bytes) of an asset. Without it the COG reader fetches
    /// as much as other files of the same folder needed.
    pub header_bytes: Option<u64>,
    /// True if a damaged header is an error at once: the caller opens again by itself.
    pub(crate) once: bool,
}

impl OpenOptions {
    /// Returns [`Backend::Auto`] and a header of unknown size.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the backend.
    #[must_use]
    pub fn with_backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Makes a damaged header an error, without fetching it once more.
    #[must_use]
    pub(crate) fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// Sets the size of the header, in bytes.
    #[must_use]
    pub fn with_header_bytes(mut self, bytes: u64) -> Self {
        self.header_bytes = Some(bytes);
        self
    }
}

impl From<Backend> for OpenOptions {
    fn from(backend: Backend) -> Self {
        Self::new().with_backend(backend)
    }
}

/// The tiles, requests and bytes of a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadPlan {
    /// Stored tiles that the window touches.
    pub tiles: u64,
    /// Sparse tiles that the window touches: they are filled, and not fetched.
    pub sparse_tiles: u64,
    /// Requests; 0 for a file of this machine.
    pub requests: u64,
    /// Bytes of the responses, gaps between tiles included.
    pub bytes: u64,
}

/// The file that [`open`] opens.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// A file whose header is not known.
    Location(&'a Location),
    /// A file with its header, from an index.
    Entry(&'a Entry),
}

impl<'a> From<&'a Location> for Target<'a> {
    fn from(location: &'a Location) -> Self {
        Self::Location(location)
    }
}

impl<'a> From<&'a Entry> for Target<'a> {
    fn from(entry: &'a Entry) -> Self {
        Self::Entry(entry)
    }
}

/// Headers of files that are known without a request, such as those of an [`Index`](crate::index::Index).
pub trait KnownHeaders: fmt::Debug + Send + Sync {
    /// Finds headers by the locations of their files, one for each location. Called on a thread that may block.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if what holds the headers is damaged.
    fn find(&self, locations: &[Location]) -> Result<Vec<Option<Entry>>>;
}

/// Opens a raster: a `&Location`, or a `&Entry` of an index.
///
/// Costs the COG reader one request; more if the header is larger than guessed, not at the start of the
/// file, or damaged: then it is fetched once more. An entry costs none: the first request is the one for a tile, and it checks that the object is
/// still the version of the entry. GDAL does not use the header of an entry.
///
/// # Errors
///
/// [`ErrorKind::NotFound`], [`ErrorKind::Denied`], [`ErrorKind::Unavailable`] for the location;
/// [`ErrorKind::Corrupt`] if it is not a raster, or the entry contradicts itself;
/// [`ErrorKind::Unsupported`] if this build's backends cannot read it, naming the feature. The object of
/// an entry is requested by the first read, which may fail with [`ErrorKind::Changed`].
pub async fn open<'a>(
    session: &Session,
    target: impl Into<Target<'a>>,
    options: impl Into<OpenOptions>,
) -> Result<Arc<dyn RasterReader>> {
    let (target, options) = (target.into(), options.into());
    let location = match target {
        Target::Location(location) => location,
        Target::Entry(entry) => &entry.location,
    };
    let cog = async {
        match target {
            Target::Location(location) => {
                cog::open(session, location, options.header_bytes, options.once).await
            }
            Target::Entry(entry) => cog::open_entry(session, entry).await,
        }
    };
    if let Some(path) = location.as_local()
        && let Ok(meta) = std::fs::metadata(path)
        && !meta.is_dir()
    {
        check_file(&meta).map_err(|err| err.at(location))?;
    }
    let reader = match options.backend {
        Backend::Cog => cog.await,
        Backend::Gdal => gdal::open(session, location).await,
        Backend::AsyncTiff => async_tiff::open(session, location).await,
        Backend::Auto => auto::open(session, location, cog).await,
    }?;
    session.note(location, &reader.profile().notes);
    Ok(reader)
}

/// Files of one call of [`read_many`] that are read at once.
const FILES_AT_ONCE: usize = 32;

/// Reads windows of many files in parallel, and returns them in the order of `reads`. A file that occurs
/// more than once is opened once. Dropping the future cancels all reads.
///
/// ```
/// use rss_core::{Backend, Location, ReadRequest, Session, reader};
///
/// # fn main() -> rss_core::Result<()> {
/// let session = Session::builder().build()?;
/// let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiff/files/");
/// let file = |name: &str| Location::parse(&format!("{folder}{name}"));
/// let reads = [
///     (file("gdal--byte_LZMA-edd011ed.tif")?, ReadRequest::new()),
///     (file("gdal--byte_zstd-70892132.tif")?, ReadRequest::new().with_window("0,0,2,2".parse()?)),
/// ];
/// let rasters = session.read_many(&reads, Backend::Cog)?; // `reader::read_many` in async code
/// assert_eq!(rasters[0].pixels.shape(), [1, 20, 20]);
/// assert_eq!(rasters[1].pixels.shape(), [1, 2, 2]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// As [`open`] and [`RasterReader::read`]; the first error ends the call.
pub async fn read_many(
    session: &Session,
    reads: &[(Location, ReadRequest)],
    options: impl Into<OpenOptions>,
) -> Result<Vec<Raster>> {
    let options = options.into();
    let mut files: HashMap<&Location, Arc<OnceCell<Arc<dyn RasterReader>>>> = HashMap::new();
    let reads: Vec<_> = reads
        .iter()
        .map(|(location, request)| {
            let file = files.entry(location).or_default();
            (location, request, Arc::clone(file))
        })
        .collect();
    stream::iter(reads.iter().map(|(location, request, file)| async move {
        let opening = || open(session, *location, options);
        file.get_or_try_init(opening).await?.read(request).await
    }))
    .buffered(FILES_AT_ONCE)
    .try_collect()
    .await
}

/// Clears GDAL's caches of remote files, for the whole process, and closes this session's datasets: the
/// next read is cold. Does nothing in a build without the `gdal` feature; the COG backend caches nothing
/// between two calls of [`open`].
///
/// # Errors
///
/// [`ErrorKind::Unavailable`] if no thread can be started.
pub async fn clear_caches(session: &Session) -> Result<()> {
    gdal::clear_caches(session).await
}
