//! Pixels of one file: the trait both backends implement, and `open`.
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
};

/// Which code reads a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// The COG reader where it can read the file, else GDAL; [`RasterReader::backend`] says which
    /// it became, and [`RasterReader::fallback`] why.
    #[default]
    Auto,
    /// The COG reader of this crate: parallel ranged requests over `object_store`; feature `cog`.
    Cog,
    /// GDAL and its virtual file systems; feature `gdal`.
    Gdal,
    /// The crate [async-tiff](https://docs.rs/async-tiff), for comparison; feature `async-tiff`. It reads tiled
    /// files with DEFLATE, LZW, Zstandard, JPEG or no compression, CRSs by EPSG code, and no masks;
    /// [`ErrorKind::Unsupported`] says what else it is asked for.
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

/// What to read: a window of one level, some bands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadRequest {
    /// The window in pixels of `level`; none is the whole level.
    pub window: Option<Window>,
    /// 0 is full resolution, 1.. are the overviews, largest first.
    pub level: usize,
    /// Bands counted from 1, as GDAL counts; none is all bands.
    pub bands: Option<Vec<usize>>,
}

impl ReadRequest {
    /// Asks for the whole of level 0, all bands.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for a window only.
    #[must_use]
    pub fn with_window(mut self, window: Window) -> Self {
        self.window = Some(window);
        self
    }

    /// Asks for another level: 0 is full resolution, 1.. are the overviews.
    #[must_use]
    pub fn with_level(mut self, level: usize) -> Self {
        self.level = level;
        self
    }

    /// Asks for some bands only, counted from 1.
    #[must_use]
    pub fn with_bands(mut self, bands: impl Into<Vec<usize>>) -> Self {
        self.bands = Some(bands.into());
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
            return Err(Error::new(ErrorKind::InvalidInput, "no band asked for"));
        }
        let bytes = u64::from(window.width)
            .saturating_mul(u64::from(window.height))
            .saturating_mul(bands.len() as u64)
            .saturating_mul(profile.dtype.size() as u64);
        if bytes > most_bytes {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "a read of {bytes} bytes is past the session's limit of {most_bytes}; ask for a \
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

/// A request that is known to fit its file.
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

    /// Returns why GDAL reads a file that was opened with [`Backend::Auto`]: what the COG reader
    /// cannot read of it. None where the backend is the one asked for.
    fn fallback(&self) -> Option<&Error> {
        None
    }

    /// Returns the file's location.
    fn location(&self) -> &Location;

    /// Returns what the file says of itself.
    fn profile(&self) -> &Profile;

    /// Reads one window. Dropping the future cancels it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for a window, level or band that is not there;
    /// [`ErrorKind::Corrupt`], [`ErrorKind::Unsupported`] for the file;
    /// [`ErrorKind::Unavailable`], [`ErrorKind::Denied`], [`ErrorKind::NotFound`] for the network.
    async fn read(&self, request: &ReadRequest) -> Result<Raster>;

    /// Reads which pixels hold data: one band of bytes, 255 where the first band asked for is valid
    /// and 0 where it is not; what lies between is transparency. What hides pixels is
    /// [`Profile::masking`]. [GDAL's masks](https://gdal.org/en/stable/development/rfc/rfc15_nodatabitmask.html)
    /// are the same.
    ///
    /// # Errors
    ///
    /// As [`RasterReader::read`].
    async fn read_mask(&self, request: &ReadRequest) -> Result<Raster>;

    /// Reads many windows, at once where the backend can, and returns them in the order asked.
    ///
    /// # Errors
    ///
    /// As [`RasterReader::read`]; the first error ends the call.
    async fn read_many(&self, requests: &[ReadRequest]) -> Result<Vec<Raster>>;

    /// Returns what a read will ask for, if that is known without asking for anything: the COG reader
    /// knows it of entries, and of files whose tables of tiles it has read.
    ///
    /// # Errors
    ///
    /// As [`RasterReader::read`], but for the network.
    fn plan(&self, request: &ReadRequest) -> Result<Option<ReadPlan>> {
        let _ = request;
        Ok(None)
    }

    /// Returns what an index keeps of this file: all of its header, so that [`open`] takes the entry in
    /// place of the location and reads tiles without asking for the header again. Asks for parts of
    /// very large tables of tiles that were not read yet, else for nothing.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if GDAL reads this file, or an image has more than 4,194,304 tiles;
    /// as [`RasterReader::read`] for the network.
    async fn entry(&self) -> Result<Entry> {
        let message = "an index knows what the COG reader reads, and no other file";
        Err(Error::new(ErrorKind::Unsupported, message).at(self.location()))
    }
}

/// How a raster is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Which code reads the file.
    pub backend: Backend,
    /// How many bytes of the file's start hold its header, where that is known:
    /// [`stac::header_bytes`](crate::stac::header_bytes) of an asset. Without it the COG reader asks
    /// for as much as other files of the same folder needed.
    pub header_bytes: Option<u64>,
}

impl OpenOptions {
    /// Starts from [`Backend::Auto`] and a header of unknown size.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the backend.
    #[must_use]
    pub fn with_backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
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

/// What a read will ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadPlan {
    /// Tiles under the window that are stored.
    pub tiles: u64,
    /// Tiles under the window that are not stored: they are filled, and not asked for.
    pub sparse_tiles: u64,
    /// Requests; of a file of this machine, 0.
    pub requests: u64,
    /// Bytes of the answers, gaps between tiles included.
    pub bytes: u64,
}

/// What [`open`] opens.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// A file of which nothing is known.
    Location(&'a Location),
    /// A file that an index knows.
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

/// Opens a raster: a `&Location`, or a `&Entry` of an index.
///
/// Costs the COG reader one request; a second where the header lies elsewhere or is larger than
/// thought. An entry costs none: the first request is the one for a tile, and it checks that the object
/// is still the version of the entry. GDAL makes no use of what an entry knows.
///
/// # Errors
///
/// [`ErrorKind::NotFound`], [`ErrorKind::Denied`], [`ErrorKind::Unavailable`] for the location;
/// [`ErrorKind::Corrupt`] if it is no raster, or the entry contradicts itself;
/// [`ErrorKind::Unsupported`] if this build's backends cannot read it, naming the feature. What an
/// entry points to is asked for by the first read, which may fail with [`ErrorKind::Changed`].
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
            Target::Location(location) => cog::open(session, location, options.header_bytes).await,
            Target::Entry(entry) => cog::open_entry(session, entry).await,
        }
    };
    match options.backend {
        Backend::Cog => cog.await,
        Backend::Gdal => gdal::open(session, location).await,
        Backend::AsyncTiff => async_tiff::open(session, location).await,
        Backend::Auto => auto::open(session, location, cog).await,
    }
}

/// Files of one call of [`read_many`] that are read at once.
const FILES_AT_ONCE: usize = 32;

/// Reads windows of many files, many at once, and returns them in the order asked. A file that is
/// named more than once is opened once. Dropping the future cancels what is under way.
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

/// Forgets what GDAL keeps of remote files, for all of the process, and closes this session's
/// datasets: the next read is cold. Does nothing in a build without the `gdal` feature; the COG
/// backend keeps nothing between two calls of [`open`].
///
/// # Errors
///
/// [`ErrorKind::Unavailable`] if no thread can be started.
pub async fn clear_caches(session: &Session) -> Result<()> {
    gdal::clear_caches(session).await
}
