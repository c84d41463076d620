//! `Backend::Auto`: the COG reader, with a fallback to GDAL for files that it does not support.
//!
//! Which errors fall back, when, and why not by file type is in `docs/decisions/006-auto-backend.md`.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use tokio::sync::OnceCell;

use super::{Backend, Entry, Profile, RasterReader, ReadPlan, ReadRequest, cog, gdal};
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    raster::Raster,
    session::Session,
};

/// Opens a file with `cog`, the COG reader's attempt, and with GDAL if the COG reader does not support
/// it. Other errors (network, damaged bytes) are final: a more lenient reader must not hide them.
pub(super) async fn open(
    session: &Session,
    location: &Location,
    cog: impl Future<Output = Result<Arc<dyn RasterReader>>> + Send,
) -> Result<Arc<dyn RasterReader>> {
    let reason = match cog.await {
        Ok(cog) => {
            return Ok(Arc::new(Auto {
                session: session.clone(),
                cog,
                gdal: OnceCell::new(),
                reason: OnceLock::new(),
            }));
        }
        Err(err) if cog::is_for_others(&err) => err,
        Err(err) => return Err(err),
    };
    match gdal::open(session, location).await {
        Ok(reader) => Ok(Arc::new(Fallback { reader, reason })),
        // Neither reads it. GDAL's `Unsupported` may only mean a build without it, so the reason of the
        // COG reader is the one to report.
        Err(err) if err.kind() == ErrorKind::Unsupported => Err(reason),
        Err(err) => Err(err),
    }
}

/// A file that GDAL reads because the COG reader could not open it.
#[derive(Debug)]
struct Fallback {
    reader: Arc<dyn RasterReader>,
    reason: Error,
}

#[async_trait]
impl RasterReader for Fallback {
    fn backend(&self) -> Backend {
        self.reader.backend()
    }

    fn fallback(&self) -> Option<&Error> {
        Some(&self.reason)
    }

    fn location(&self) -> &Location {
        self.reader.location()
    }

    fn profile(&self) -> &Profile {
        self.reader.profile()
    }

    async fn read(&self, request: &ReadRequest) -> Result<Raster> {
        self.reader.read(request).await
    }

    async fn read_mask(&self, request: &ReadRequest) -> Result<Raster> {
        self.reader.read_mask(request).await
    }

    async fn read_many(&self, requests: &[ReadRequest]) -> Result<Vec<Raster>> {
        self.reader.read_many(requests).await
    }
}

/// A file that the COG reader opened. Some codecs show only in a tile which features they need: the first
/// `Unsupported` read is repeated by GDAL, and GDAL does all later reads.
#[derive(Debug)]
struct Auto {
    session: Session,
    cog: Arc<dyn RasterReader>,
    gdal: OnceCell<Arc<dyn RasterReader>>,
    reason: OnceLock<Error>,
}

impl Auto {
    /// Returns the reader in force. Reads that are under way when GDAL takes over end with the COG reader.
    fn reader(&self) -> &Arc<dyn RasterReader> {
        self.gdal.get().unwrap_or(&self.cog)
    }

    /// Returns GDAL's reader after an error that it may have an answer to; other errors are returned as they are.
    async fn instead(&self, err: Error) -> Result<&Arc<dyn RasterReader>> {
        if !cog::is_for_others(&err) {
            return Err(err);
        }
        // However many reads fail at once, GDAL opens the file once.
        let opened = self
            .gdal
            .get_or_try_init(|| gdal::open(&self.session, self.cog.location()))
            .await;
        match opened {
            Ok(gdal) => {
                // The first reason stays.
                let _ = self.reason.set(err);
                Ok(gdal)
            }
            Err(other) if other.kind() == ErrorKind::Unsupported => Err(err),
            Err(other) => Err(other),
        }
    }
}

#[async_trait]
impl RasterReader for Auto {
    fn backend(&self) -> Backend {
        self.reader().backend()
    }

    fn fallback(&self) -> Option<&Error> {
        self.reason.get()
    }

    fn location(&self) -> &Location {
        self.cog.location()
    }

    fn profile(&self) -> &Profile {
        self.cog.profile()
    }

    async fn read(&self, request: &ReadRequest) -> Result<Raster> {
        match self.reader().read(request).await {
            Ok(raster) => Ok(raster),
            Err(err) => self.instead(err).await?.read(request).await,
        }
    }

    async fn read_mask(&self, request: &ReadRequest) -> Result<Raster> {
        match self.reader().read_mask(request).await {
            Ok(raster) => Ok(raster),
            Err(err) => self.instead(err).await?.read_mask(request).await,
        }
    }

    async fn read_many(&self, requests: &[ReadRequest]) -> Result<Vec<Raster>> {
        match self.reader().read_many(requests).await {
            Ok(rasters) => Ok(rasters),
            Err(err) => self.instead(err).await?.read_many(requests).await,
        }
    }

    fn plan(&self, request: &ReadRequest) -> Result<Option<ReadPlan>> {
        self.reader().plan(request)
    }

    async fn entry(&self) -> Result<Entry> {
        self.cog.entry().await
    }
}
