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
    store::Version,
};

/// Opens a file with `cog`, the COG reader's attempt, and with GDAL if the COG reader refuses it. Errors of the network,
/// of a bound and of tables that contradict themselves are final: a more lenient reader must not hide them.
pub(super) async fn open(
    session: &Session,
    location: &Location,
    cog: impl Future<Output = Result<Arc<dyn RasterReader>>> + Send,
) -> Result<Arc<dyn RasterReader>> {
    let reason = match cog.await {
        Ok(cog) => {
            if let Some(reason) = cog::unknown_crs(cog.profile()) {
                return Ok(placed(session, location, cog, reason).await);
            }
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
        Ok(reader) => {
            session.fell_back(location, &reason);
            let cog = None;
            Ok(Arc::new(Fallback {
                reader,
                reason,
                cog,
            }))
        }
        // Neither reads it. GDAL's `Unsupported` may only mean a build without it, and its word on damage is no better
        // than ours, so the reason of the COG reader is the one to report, unless the file is of another format.
        Err(err)
            if err.kind() == ErrorKind::Unsupported
                && !(cfg!(feature = "gdal") && cog::is_other_format(&reason)) =>
        {
            Err(reason)
        }
        Err(err) if err.kind() == ErrorKind::Corrupt && !cog::is_other_format(&reason) => {
            Err(reason)
        }
        Err(err) => Err(err),
    }
}

/// Returns GDAL's reader of a file whose CRS the COG reader does not know, if GDAL knows it, else the COG reader's: its
/// pixels have no position then.
async fn placed(
    session: &Session,
    location: &Location,
    cog: Arc<dyn RasterReader>,
    reason: Error,
) -> Arc<dyn RasterReader> {
    match gdal::open(session, location).await {
        Ok(reader) if reader.profile().crs.is_some() => {
            session.fell_back(location, &reason);
            let cog = Some(cog);
            Arc::new(Fallback {
                reader,
                reason,
                cog,
            })
        }
        _ => cog,
    }
}

/// A file that GDAL reads because the COG reader could not open it, or does not know its CRS.
#[derive(Debug)]
struct Fallback {
    reader: Arc<dyn RasterReader>,
    reason: Error,
    /// The COG reader's, where that knows all but the CRS.
    cog: Option<Arc<dyn RasterReader>>,
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

    fn version(&self) -> Option<&Version> {
        self.reader.version()
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

    async fn entry(&self) -> Result<Entry> {
        match &self.cog {
            Some(cog) => cog.entry().await,
            None => self.reader.entry().await,
        }
    }
}

/// A file that the COG reader opened. Some codecs show only in a tile which features they need, and libtiff decodes what
/// our decoders find damaged: the first read that the COG reader refuses is repeated by GDAL, and GDAL does all later
/// reads.
#[derive(Debug)]
struct Auto {
    session: Session,
    cog: Arc<dyn RasterReader>,
    /// GDAL's reader, once it was needed.
    gdal: OnceCell<Arc<dyn RasterReader>>,
    /// Why GDAL took over: set once it has answered a read.
    reason: OnceLock<Error>,
}

impl Auto {
    /// Returns the reader in force. Reads that are under way when GDAL takes over end with the COG reader.
    fn reader(&self) -> &Arc<dyn RasterReader> {
        match self.reason.get() {
            Some(_) => self.gdal.get().unwrap_or(&self.cog),
            None => &self.cog,
        }
    }

    /// Returns GDAL's reader, and the error that it may have an answer to; other errors are returned as they are.
    async fn instead(&self, err: Error) -> Result<(&Arc<dyn RasterReader>, Error)> {
        if self.reason.get().is_some() || !cog::is_for_others(&err) {
            return Err(err);
        }
        // However many reads fail at once, GDAL opens the file once.
        let opened = self
            .gdal
            .get_or_try_init(|| gdal::open(&self.session, self.cog.location()))
            .await;
        match opened {
            Ok(gdal) => Ok((gdal, err)),
            Err(other) => Err(first_of(err, other)),
        }
    }

    /// Returns GDAL's answer to a read that the COG reader refused for `reason`, and lets GDAL take over. Where that
    /// is damage, an answer that leaves pixels out is none: `is_whole` tells.
    fn settle<R>(
        &self,
        reason: Error,
        answer: Result<R>,
        is_whole: impl Fn(&R) -> bool,
    ) -> Result<R> {
        match answer {
            Ok(answer) if reason.kind() != ErrorKind::Corrupt || is_whole(&answer) => {
                self.session.fell_back(self.cog.location(), &reason);
                // The first reason stays.
                let _ = self.reason.set(reason);
                Ok(answer)
            }
            Ok(_) => Err(reason),
            Err(other) => Err(first_of(reason, other)),
        }
    }
}

/// Returns the error to report where neither reads a file: the COG reader's, unless GDAL met another obstacle.
fn first_of(ours: Error, other: Error) -> Error {
    match (ours.kind(), other.kind()) {
        (_, ErrorKind::Unsupported) | (ErrorKind::Corrupt, ErrorKind::Corrupt) => ours,
        _ => other,
    }
}

fn is_whole(raster: &Raster) -> bool {
    raster.sparse.is_empty()
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

    fn version(&self) -> Option<&Version> {
        self.cog.version()
    }

    fn profile(&self) -> &Profile {
        self.cog.profile()
    }

    async fn read(&self, request: &ReadRequest) -> Result<Raster> {
        match self.reader().read(request).await {
            Ok(raster) => Ok(raster),
            Err(err) => {
                let (gdal, err) = self.instead(err).await?;
                self.settle(err, gdal.read(request).await, is_whole)
            }
        }
    }

    async fn read_mask(&self, request: &ReadRequest) -> Result<Raster> {
        match self.reader().read_mask(request).await {
            Ok(raster) => Ok(raster),
            Err(err) => {
                let (gdal, err) = self.instead(err).await?;
                self.settle(err, gdal.read_mask(request).await, is_whole)
            }
        }
    }

    async fn read_many(&self, requests: &[ReadRequest]) -> Result<Vec<Raster>> {
        match self.reader().read_many(requests).await {
            Ok(rasters) => Ok(rasters),
            Err(err) => {
                let (gdal, err) = self.instead(err).await?;
                let read = gdal.read_many(requests).await;
                self.settle(err, read, |rasters| rasters.iter().all(is_whole))
            }
        }
    }

    fn plan(&self, request: &ReadRequest) -> Result<Option<ReadPlan>> {
        self.reader().plan(request)
    }

    async fn entry(&self) -> Result<Entry> {
        self.cog.entry().await
    }
}
