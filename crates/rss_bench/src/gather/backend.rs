//! The readers that are compared, each behind the same call: open a file, read its centre tile.

use std::{
    fmt,
    num::NonZeroUsize,
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt};
use rss_core::{
    Backend as Core, GdalReads, Location, Pixels, ReadRequest, Session, SessionBuilder, Window,
    gather::{Concurrency, Request},
    reader::{self, Entry},
};
use serde::Serialize;

use super::{
    MOST_AT_ONCE, Settings,
    files::{CENTRE, TILE},
    href,
};

const CENTRE_TILE: Window = Window {
    col: CENTRE * TILE,
    row: CENTRE * TILE,
    width: TILE,
    height: TILE,
};
/// Headers that are read at once for an index.
const HEADERS_AT_ONCE: usize = 32;

/// A way to read one tile of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Backend {
    /// GDAL with its own defaults: it lists the folder of a file that it opens.
    Gdal,
    /// GDAL as `rss_core` sets it up: no listing.
    GdalTuned,
    /// The crate `async-tiff`, as a backend of `rss_core`.
    AsyncTiff,
    /// The COG reader of `rss_core`: the header, then the tile.
    Cog,
    /// The same with an index that knows the headers: the tile.
    Index,
    /// The same, and how many are under way is found while gathering.
    IndexAdaptive,
}

impl Backend {
    /// All of them, in the order of reports.
    pub(crate) const ALL: &[Self] = &[
        Self::Gdal,
        Self::GdalTuned,
        Self::AsyncTiff,
        Self::Cog,
        Self::Index,
        Self::IndexAdaptive,
    ];

    /// Returns the name that the command line uses.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gdal => "gdal",
            Self::GdalTuned => "gdal-tuned",
            Self::AsyncTiff => "async-tiff",
            Self::Cog => "cog",
            Self::Index => "index",
            Self::IndexAdaptive => "index-adaptive",
        }
    }

    /// Returns what it is, for a reader of the report.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Gdal => "GDAL with its own defaults: it lists the folder of a file that it opens",
            Self::GdalTuned => {
                "GDAL as rss_core sets it up: GDAL_DISABLE_READDIR_ON_OPEN=EMPTY_DIR"
            }
            Self::AsyncTiff => {
                "the crate async-tiff 0.4 as a backend of rss_core: its read-ahead cache, its decoders"
            }
            Self::Cog => {
                "gather() of rss_core by its COG reader: one request for the header, one for the tile"
            }
            Self::Index => {
                "gather() of rss_core with an index, made before, that knows all headers: one request \
                 for the tile"
            }
            Self::IndexAdaptive => {
                "the same, and gather() finds by itself how many to have under way; run once in each \
                 round, with the number it ended at"
            }
        }
    }

    fn is_gdal(self) -> bool {
        matches!(self, Self::Gdal | Self::GdalTuned)
    }

    /// Returns the backends of this build.
    pub(crate) fn built() -> Vec<Self> {
        let built = |backend: &Self| cfg!(feature = "gdal") || !backend.is_gdal();
        Self::ALL.iter().copied().filter(built).collect()
    }

    pub(super) fn check_built(self) -> Result<()> {
        if !Self::built().contains(&self) {
            bail!("backend `{self}` needs the feature gdal, which this build lacks");
        }
        Ok(())
    }

    /// Returns a reader for each worker. They know nothing: new connections, new threads. A worker over
    /// GDAL has a thread of its own, where it opens and reads, as a program over GDAL does; the others
    /// share one session.
    pub(super) fn readers(
        self,
        endpoint: &str,
        settings: &Settings,
        at_once: usize,
        index: &Index,
    ) -> Result<Vec<Reader>> {
        let session = Session::builder()
            .s3_endpoint(endpoint)
            .cpu_threads(settings.threads)
            .gdal_threads(1)
            // GDAL as a program over GDAL has it.
            .gdal_reads(GdalReads::Vsi)
            .requests_per_host(at_once);
        let gathering = |session: SessionBuilder, requests, concurrency| {
            Ok(vec![Reader::Gather(Gathering {
                session: session.build()?,
                requests,
                concurrency,
            })])
        };
        match self {
            Self::Gdal | Self::GdalTuned => {
                let session = match self {
                    Self::Gdal => session.gdal_option("GDAL_DISABLE_READDIR_ON_OPEN", "FALSE"),
                    _ => session,
                };
                let own = |_| Ok(Reader::Session(session.clone().build()?, Core::Gdal));
                (0..at_once).map(own).collect()
            }
            Self::AsyncTiff => {
                let shared = Reader::Session(session.build()?, Core::AsyncTiff);
                Ok(vec![shared; at_once])
            }
            Self::Cog => {
                let locations = (0..settings.files).map(|file| Location::parse(&href(file)));
                let requests = locations.map(|location| Ok(Request::new(location?)));
                gathering(session, requests.collect::<Result<_>>()?, fixed(at_once))
            }
            Self::Index | Self::IndexAdaptive => {
                let requests = index.0.iter().cloned().map(Request::new).collect();
                match self.is_told() {
                    true => gathering(session, requests, fixed(at_once)),
                    false => {
                        let session = session.requests_per_host(MOST_AT_ONCE);
                        gathering(session, requests, Concurrency::Adaptive)
                    }
                }
            }
        }
    }

    /// Returns true if it is told how many are under way.
    pub(super) fn is_told(self) -> bool {
        self != Self::IndexAdaptive
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Backend {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let names: Vec<&str> = Self::ALL.iter().map(|backend| backend.name()).collect();
        Self::ALL
            .iter()
            .copied()
            .find(|backend| backend.name() == text)
            .with_context(|| format!("backend `{text}` is not one of {}", names.join(", ")))
    }
}

/// What an index keeps of all files; made before the runs, as an index is.
#[derive(Clone, Debug, Default)]
pub(super) struct Index(Arc<Vec<Entry>>);

impl Index {
    /// Reads the header of each file, where a backend wants them.
    pub(super) async fn of(settings: &Settings, endpoint: &str) -> Result<Self> {
        let wants = |backend: &Backend| matches!(backend, Backend::Index | Backend::IndexAdaptive);
        if !settings.backends.iter().any(wants) {
            return Ok(Self::default());
        }
        let session = Session::builder().s3_endpoint(endpoint).build()?;
        let entry = async |file| -> Result<Entry> {
            let location = Location::parse(&href(file))?;
            let raster = reader::open(&session, &location, Core::Cog).await?;
            Ok(raster.entry().await?)
        };
        let entries =
            futures::stream::iter((0..settings.files).map(entry)).buffered(HEADERS_AT_ONCE);
        Ok(Self(Arc::new(entries.try_collect().await?)))
    }
}

/// A backend at work.
#[derive(Clone, Debug)]
pub(super) enum Reader {
    Session(Session, Core),
    /// Not a worker: one call reads all files.
    Gather(Gathering),
}

/// A call of `gather`.
#[derive(Clone, Debug)]
pub(super) struct Gathering {
    pub(super) session: Session,
    pub(super) requests: Vec<Request>,
    pub(super) concurrency: Concurrency,
}

fn fixed(at_once: usize) -> Concurrency {
    Concurrency::Fixed(NonZeroUsize::new(at_once).unwrap_or(NonZeroUsize::MIN))
}

/// What one file gave.
#[derive(Debug)]
pub(super) struct Tile {
    pub(super) open: Duration,
    pub(super) read: Duration,
    pub(super) pixels: Pixels,
}

impl Reader {
    /// Opens a file and reads its centre tile.
    pub(super) async fn read(&self, file: usize) -> Result<Tile> {
        let start = Instant::now();
        match self {
            Self::Session(session, backend) => {
                let location = Location::parse(&href(file))?;
                let raster = reader::open(session, &location, *backend).await?;
                let opened = Instant::now();
                let request = ReadRequest::new().with_window(CENTRE_TILE);
                let pixels = raster.read(&request).await?.pixels;
                Ok(Tile {
                    open: opened - start,
                    read: opened.elapsed(),
                    pixels,
                })
            }
            Self::Gather(_) => bail!("a gather reads all files in one call"),
        }
    }

    /// Forgets what GDAL keeps of the files.
    pub(super) async fn forget(&self) -> Result<()> {
        match self {
            Self::Session(session, Core::Gdal) => Ok(reader::clear_caches(session).await?),
            // They keep nothing but connections, which go with them.
            Self::Session(..) | Self::Gather(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_backend_is_found_by_its_name() {
        for &backend in Backend::ALL {
            assert_eq!(backend.name().parse::<Backend>().unwrap(), backend);
        }
        let err = "rasterio".parse::<Backend>().unwrap_err().to_string();
        assert!(err.contains("gdal-tuned"), "{err}");
    }

    #[cfg(not(feature = "gdal"))]
    #[test]
    fn a_backend_that_this_build_lacks_is_refused() {
        let err = Backend::Gdal.check_built().unwrap_err().to_string();
        assert!(err.contains("feature gdal"), "{err}");
        assert!(!Backend::built().contains(&Backend::GdalTuned));
    }
}
