//! The blocking forms of the calls that wait.

use std::{future::Future, path::Path, sync::Arc};

use stac::ItemCollection;

use crate::{
    error::{Error, ErrorKind, Result},
    fetch::{Fetched, GetOptions, Origin, RemoteVariant},
    location::Location,
    raster::Raster,
    reader::{self, Backend, Profile, RasterReader, ReadRequest},
    session::Session,
};

impl Session {
    /// Runs a future to its end on this session's own runtime.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if called inside an async runtime, where blocking would stop
    /// other tasks: await the async form there.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        if tokio::runtime::Handle::try_current().is_ok() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a blocking call inside an async runtime; await the `_async` form",
            ));
        }
        self.runtime()?.block_on(future)
    }

    /// Opens a raster and waits; see [`reader::open`].
    ///
    /// # Errors
    ///
    /// As [`reader::open`].
    pub fn open(&self, location: &Location, backend: Backend) -> Result<OpenRaster> {
        Ok(OpenRaster {
            reader: self.wait(reader::open(self, location, backend))?,
            session: self.clone(),
        })
    }
}

impl Session {
    /// Fetches items into the cache and waits; see [`Session::get_async`].
    ///
    /// # Errors
    ///
    /// As [`Session::get_async`].
    pub fn get(
        &self,
        items: &ItemCollection,
        assets: &[String],
        origin: &Origin,
        dir: &Path,
        options: &GetOptions,
    ) -> Result<Fetched> {
        self.wait(self.get_async(items, assets, origin, dir, options))
    }

    /// Makes hrefs remote and waits; see [`Session::get_remote_async`].
    ///
    /// # Errors
    ///
    /// As [`Session::get_remote_async`].
    pub fn get_remote(
        &self,
        items: &ItemCollection,
        assets: &[String],
        origin: &Origin,
        variant: RemoteVariant,
    ) -> Result<ItemCollection> {
        self.wait(self.get_remote_async(items, assets, origin, variant))
    }
}

/// An open raster whose reads wait.
#[derive(Clone, Debug)]
pub struct OpenRaster {
    reader: Arc<dyn RasterReader>,
    session: Session,
}

impl OpenRaster {
    /// Returns what the file says of itself.
    pub fn profile(&self) -> &Profile {
        self.reader.profile()
    }

    /// Returns the backend that reads.
    pub fn backend(&self) -> Backend {
        self.reader.backend()
    }

    /// Returns the reader, for use in async code.
    pub fn reader(&self) -> &Arc<dyn RasterReader> {
        &self.reader
    }

    /// Reads one window; see [`RasterReader::read`].
    ///
    /// # Errors
    ///
    /// As [`RasterReader::read`].
    pub fn read(&self, request: &ReadRequest) -> Result<Raster> {
        self.session.wait(self.reader.read(request))
    }

    /// Reads many windows; see [`RasterReader::read_many`].
    ///
    /// # Errors
    ///
    /// As [`RasterReader::read_many`].
    pub fn read_many(&self, requests: &[ReadRequest]) -> Result<Vec<Raster>> {
        self.session.wait(self.reader.read_many(requests))
    }
}
