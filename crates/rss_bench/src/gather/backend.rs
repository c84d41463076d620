//! The readers that are compared, each behind the same call: open a file, read its centre tile.

use std::{
    fmt,
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt};
use rss_core::{
    Backend as Core, Location, Pixels, RasterReader, ReadRequest, Session, Window,
    reader::{self, Entry},
};
use serde::Serialize;

use super::{CENTRE, Settings, TILE, href, key};
use crate::{plain::Plain, servers::BUCKET};

/// Headers that are read at once for an index.
const HEADERS_AT_ONCE: usize = 32;

/// A way to read one tile of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Backend {
    /// GDAL with its own defaults: it lists the folder of a file that it opens.
    Gdal,
    /// GDAL as `rss_core` sets it up: no listing.
    GdalTuned,
    /// A program over the crate `async-tiff`.
    PlainAsyncTiff,
    /// The COG reader of `rss_core`: the header, then the tile.
    AsyncTiff,
    /// The same with an index that knows the headers: the tile.
    Index,
}

impl Backend {
    /// All of them, in the order of reports.
    pub const ALL: &[Self] = &[
        Self::Gdal,
        Self::GdalTuned,
        Self::PlainAsyncTiff,
        Self::AsyncTiff,
        Self::Index,
    ];

    /// Returns the name that the command line uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gdal => "gdal",
            Self::GdalTuned => "gdal-tuned",
            Self::PlainAsyncTiff => "plain-async-tiff",
            Self::AsyncTiff => "async-tiff",
            Self::Index => "index",
        }
    }

    /// Returns what it is, for a reader of the report.
    pub fn about(self) -> &'static str {
        match self {
            Self::Gdal => "GDAL with its own defaults: it lists the folder of a file that it opens",
            Self::GdalTuned => {
                "GDAL as rss_core sets it up: GDAL_DISABLE_READDIR_ON_OPEN=EMPTY_DIR"
            }
            Self::PlainAsyncTiff => {
                "a program over the crate async-tiff 0.4: its read-ahead cache, its decoders"
            }
            Self::AsyncTiff => {
                "the COG reader of rss_core: one request for the header, one for the tile"
            }
            Self::Index => {
                "the COG reader of rss_core with an index, made before, that knows all headers: one \
                 request for the tile"
            }
        }
    }

    fn is_gdal(self) -> bool {
        matches!(self, Self::Gdal | Self::GdalTuned)
    }

    /// Returns the backends of this build.
    pub fn built() -> Vec<Self> {
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
            .requests_per_host(at_once);
        let shared = match self {
            Self::Gdal | Self::GdalTuned => {
                let session = match self {
                    Self::Gdal => session.gdal_option("GDAL_DISABLE_READDIR_ON_OPEN", "FALSE"),
                    _ => session,
                };
                let own = |_| Ok(Reader::Session(session.clone().build()?, Core::Gdal));
                return (0..at_once).map(own).collect();
            }
            Self::AsyncTiff => Reader::Session(session.build()?, Core::AsyncTiff),
            Self::Index => Reader::Index(session.build()?, index.clone()),
            Self::PlainAsyncTiff => Reader::Plain(Plain::new(endpoint, BUCKET, settings.threads)?),
        };
        Ok(vec![shared; at_once])
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
        if !settings.backends.contains(&Backend::Index) {
            return Ok(Self::default());
        }
        let session = Session::builder().s3_endpoint(endpoint).build()?;
        let entry = async |file| -> Result<Entry> {
            let location = Location::parse(&href(file))?;
            let raster = reader::open(&session, &location, Core::AsyncTiff).await?;
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
    Index(Session, Index),
    Plain(Plain),
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
                tile(start, raster).await
            }
            Self::Index(session, index) => {
                let entry = index.0.get(file).context("a file that the index lacks")?;
                let raster = reader::open(session, entry, Core::AsyncTiff).await?;
                tile(start, raster).await
            }
            Self::Plain(plain) => {
                let open = plain.open(&key(file)).await.context("plain async-tiff")?;
                let opened = Instant::now();
                let at = CENTRE as usize;
                let pixels = open.tile(at, at).await.context("plain async-tiff")?;
                Ok(Tile {
                    open: opened - start,
                    read: opened.elapsed(),
                    pixels,
                })
            }
        }
    }

    /// Forgets what GDAL keeps of the files.
    pub(super) async fn forget(&self) -> Result<()> {
        match self {
            Self::Session(session, Core::Gdal) => Ok(reader::clear_caches(session).await?),
            // They keep nothing but connections, which go with them.
            Self::Session(..) | Self::Index(..) | Self::Plain(_) => Ok(()),
        }
    }
}

/// Reads the centre tile of an open file.
async fn tile(start: Instant, raster: Arc<dyn RasterReader>) -> Result<Tile> {
    let opened = Instant::now();
    let window = Window {
        col: CENTRE * TILE,
        row: CENTRE * TILE,
        width: TILE,
        height: TILE,
    };
    let request = ReadRequest::new().with_window(window);
    let pixels = raster.read(&request).await?.pixels;
    Ok(Tile {
        open: opened - start,
        read: opened.elapsed(),
        pixels,
    })
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
