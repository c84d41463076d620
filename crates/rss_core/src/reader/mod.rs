//! Pixels of one file: the trait both backends implement, and `open`.
//!
//! Reading never resamples: a request names a level and a window of that level's pixels.

pub(crate) mod cog;
#[cfg(all(fuzzing, feature = "async-tiff"))]
#[doc(hidden)]
pub use self::cog::fuzzing;
pub(crate) mod gdal;

use std::{fmt, str::FromStr, sync::Arc};

use async_trait::async_trait;

use crate::{
    error::{Error, ErrorKind, Result},
    geo::{Crs, GeoBox, GeoTransform, Size, Window},
    location::Location,
    raster::{DataType, Raster},
    session::Session,
};

/// Which code reads a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// The COG reader where it can read the file, else GDAL; [`RasterReader::backend`] says which
    /// it became.
    #[default]
    Auto,
    /// Parallel ranged requests over `object_store`; feature `async-tiff`.
    AsyncTiff,
    /// GDAL and its virtual file systems; feature `gdal`.
    Gdal,
}

impl Backend {
    /// Returns the name the command line uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::AsyncTiff => "async-tiff",
            Self::Gdal => "gdal",
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
            "async-tiff" => Ok(Self::AsyncTiff),
            "gdal" => Ok(Self::Gdal),
            _ => Err(Error::new(
                ErrorKind::InvalidInput,
                format!("backend `{text}` is not one of auto, async-tiff, gdal"),
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

/// What a file says of itself.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Profile {
    /// Width and height of level 0 in pixels.
    pub size: Size,
    /// How many bands.
    pub count: usize,
    /// The type of the samples (all bands share it).
    pub dtype: DataType,
    /// The nodata value, if any; may be NaN.
    pub nodata: Option<f64>,
    /// The CRS, if the file names one.
    pub crs: Option<Crs>,
    /// The transform of level 0, if the file has one.
    pub transform: Option<GeoTransform>,
    /// The size of a tile (of a strip: the width of the image and the rows of a strip).
    pub tile: Size,
    /// GDAL's name of the compression (`DEFLATE`), none if the samples are stored plain.
    pub compression: Option<String>,
    /// The TIFF predictor, 2 or 3; none where there is none.
    pub predictor: Option<u16>,
    /// Sizes of the overviews, largest first: levels 1, 2, ...
    pub overviews: Vec<Size>,
    /// Scale of the first band's values, if the file states one.
    pub scale: Option<f64>,
    /// Offset of the first band's values, if the file states one.
    pub offset: Option<f64>,
}

impl Profile {
    /// Returns the size of a level in pixels; level 0 is full resolution.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if there is no such level.
    pub fn level_size(&self, level: usize) -> Result<Size> {
        match level.checked_sub(1) {
            None => Ok(self.size),
            Some(overview) => self.overviews.get(overview).copied().ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidInput,
                    format!("level {level} is not one of 0 to {}", self.overviews.len()),
                )
            }),
        }
    }

    /// Returns the grid of a window of a level.
    pub(crate) fn geobox(&self, level_size: Size, window: &Window) -> GeoBox {
        GeoBox {
            size: level_size,
            crs: self.crs.clone(),
            transform: self
                .transform
                .map(|transform| transform.of_level(self.size, level_size)),
        }
        .of_window(window)
    }
}

/// One open raster.
///
/// Cheap to share: clone the `Arc` that [`open`] returns and read from many tasks.
#[async_trait]
pub trait RasterReader: fmt::Debug + Send + Sync {
    /// Returns the backend that reads: never [`Backend::Auto`].
    fn backend(&self) -> Backend;

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

    /// Reads many windows, at once where the backend can, and returns them in the order asked.
    ///
    /// # Errors
    ///
    /// As [`RasterReader::read`]; the first error ends the call.
    async fn read_many(&self, requests: &[ReadRequest]) -> Result<Vec<Raster>>;
}

/// Opens a raster.
///
/// # Errors
///
/// [`ErrorKind::NotFound`], [`ErrorKind::Denied`], [`ErrorKind::Unavailable`] for the location;
/// [`ErrorKind::Corrupt`] if it is no raster; [`ErrorKind::Unsupported`] if this build's backends
/// cannot read it, naming the feature.
pub async fn open(
    session: &Session,
    location: &Location,
    backend: Backend,
) -> Result<Arc<dyn RasterReader>> {
    match backend {
        Backend::AsyncTiff => cog::open(session, location).await,
        Backend::Gdal => gdal::open(session, location).await,
        Backend::Auto => match cog::open(session, location).await {
            Err(err) if err.kind() == ErrorKind::Unsupported || cog::is_other_format(&err) => {
                match gdal::open(session, location).await {
                    Err(other) if other.kind() == ErrorKind::Unsupported => Err(err),
                    opened => opened,
                }
            }
            opened => opened,
        },
    }
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
