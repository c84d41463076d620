//! The blocking forms of the async calls, for programs without a runtime of their own.

mod apply;
#[cfg(feature = "cog")]
mod cog;
#[cfg(feature = "zarr")]
mod zarr;

use std::{future::Future, path::Path, sync::Arc};

use futures::StreamExt;
use stac::ItemCollection;

#[cfg(feature = "cog")]
pub use self::cog::OpenCog;
#[cfg(feature = "zarr")]
pub use self::zarr::{OpenArray, OpenCube};
use crate::{
    error::{Error, ErrorKind, Result},
    fetch::{Fetched, GetOptions, Origin, RemoteVariant},
    gather,
    location::Location,
    query::{ImageQuery, QueryResult},
    raster::{Raster, Sample},
    reader::{self, Backend, Entry, OpenOptions, Profile, RasterReader, ReadRequest, Target},
    session::Session,
};

impl Session {
    /// Runs a future to completion on this session's own runtime.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if called inside an async runtime, where blocking would stall other tasks: await the
    /// async form there; and in a closure on this session's CPU pool, whose thread the call's own work may wait for.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        if tokio::runtime::Handle::try_current().is_ok() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a blocking call inside an async runtime; await the `_async` form",
            ));
        }
        if self.is_on_cpu_pool() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a blocking call in a closure that runs on the CPU pool of the same session, which would wait for itself; \
                 read before the computation, or with another session",
            ));
        }
        self.runtime()?.block_on(future)
    }

    /// Clears caches, so that the next reads are cold; see [`reader::clear_caches`].
    ///
    /// # Errors
    ///
    /// As [`reader::clear_caches`].
    pub fn clear_caches(&self) -> Result<()> {
        self.wait(reader::clear_caches(self))
    }

    /// Reads windows of many files and waits; see [`reader::read_many`].
    ///
    /// # Errors
    ///
    /// As [`reader::read_many`].
    pub fn read_many(
        &self,
        reads: &[(Location, ReadRequest)],
        options: impl Into<OpenOptions>,
    ) -> Result<Vec<Raster>> {
        self.wait(reader::read_many(self, reads, options))
    }

    /// Gathers tiles of many files as an iterator that blocks until the next row; see
    /// [`gather::gather`]. Requests continue between two calls of `next`.
    ///
    /// ```
    /// use rss_core::{Location, Session, gather};
    ///
    /// # fn main() -> rss_core::Result<()> {
    /// let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiff/files/gdal--byte_zstd-70892132.tif");
    /// let requests = vec![gather::Request::new(Location::parse(file)?); 3];
    /// let session = Session::builder().build()?;
    /// let rows = session.gather(requests, gather::Options::new())?;
    /// assert_eq!(rows.filter(|row| row.tile.is_ok()).count(), 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`gather::gather`], and [`ErrorKind::InvalidInput`] inside an async runtime.
    pub fn gather<I>(&self, requests: I, options: gather::Options) -> Result<GatherRows>
    where
        I: IntoIterator<Item = gather::Request>,
        I::IntoIter: Send + 'static,
    {
        let rows = self.wait(async { gather::gather(self, requests, options) })?;
        Ok(GatherRows {
            rows,
            session: self.clone(),
        })
    }

    /// Gathers tiles of many files into one array and waits; see [`gather::stack`].
    ///
    /// # Errors
    ///
    /// As [`gather::stack`], and [`ErrorKind::InvalidInput`] inside an async runtime.
    pub fn gather_stack<T: Sample>(
        &self,
        requests: Vec<gather::Request>,
        options: gather::Options,
    ) -> Result<gather::Stack<T>> {
        self.wait(gather::stack(self, requests, options))
    }

    /// Opens a raster and waits; see [`reader::open`].
    ///
    /// # Errors
    ///
    /// As [`reader::open`].
    pub fn open<'a>(
        &self,
        target: impl Into<Target<'a>>,
        options: impl Into<OpenOptions>,
    ) -> Result<OpenRaster> {
        Ok(OpenRaster {
            reader: self.wait(reader::open(self, target, options))?,
            session: self.clone(),
        })
    }
}

/// The rows of a gather, as a blocking iterator. Dropping it cancels the requests under way.
#[derive(Debug)]
pub struct GatherRows {
    rows: gather::Gather,
    session: Session,
}

impl GatherRows {
    /// Returns the report so far; see [`gather::Gather::report`].
    pub fn report(&self) -> gather::Report {
        self.rows.report()
    }
}

impl Iterator for GatherRows {
    type Item = gather::Row;

    fn next(&mut self) -> Option<gather::Row> {
        // Inside an async runtime `wait` refuses to block, and the iterator ends: `next` has no error to return.
        self.session
            .wait(async { Ok(self.rows.next().await) })
            .ok()
            .flatten()
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

impl ImageQuery {
    /// Searches and waits; see [`ImageQuery::search_async`].
    ///
    /// # Errors
    ///
    /// As [`ImageQuery::search_async`], and [`ErrorKind::InvalidInput`] inside an async runtime.
    pub fn search(&self) -> Result<QueryResult> {
        self.session().wait(self.search_async())
    }
}

impl QueryResult {
    /// Reads items from a file and waits; see [`QueryResult::from_file_async`].
    ///
    /// ```
    /// use rss_core::{QueryResult, Session};
    ///
    /// # let dir = tempfile::tempdir()?;
    /// let path = dir.path().join("item.json");
    /// std::fs::write(&path, r#"{"type": "Feature", "id": "one", "geometry": null,
    ///     "properties": {}, "assets": {"red": {"href": "./red.tif"}}}"#)?;
    /// let found = QueryResult::from_file(&Session::builder().build()?, &path)?;
    /// let red = &found.items().items[0].assets["red"];
    /// assert_eq!(red.href, dir.path().join("red.tif").to_string_lossy());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`QueryResult::from_file_async`], and [`ErrorKind::InvalidInput`] inside an async runtime.
    pub fn from_file(session: &Session, path: impl AsRef<Path>) -> Result<Self> {
        session.wait(Self::from_file_async(session, path))
    }

    /// Reads items from a URL and waits; see [`QueryResult::from_url_async`].
    ///
    /// # Errors
    ///
    /// As [`QueryResult::from_url_async`], and [`ErrorKind::InvalidInput`] inside an async runtime.
    pub fn from_url(session: &Session, url: &str) -> Result<Self> {
        session.wait(Self::from_url_async(session, url))
    }

    /// Reads the selected items of a stac-geoparquet file and waits; see [`QueryResult::from_parquet_async`].
    ///
    /// # Errors
    ///
    /// As of [`QueryResult::from_parquet_async`], and [`ErrorKind::InvalidInput`] inside an async runtime.
    #[cfg(feature = "index")]
    pub fn from_parquet(
        session: &Session,
        path: impl AsRef<Path>,
        select: &crate::index::Select,
    ) -> Result<Self> {
        session.wait(Self::from_parquet_async(session, path, select))
    }
}

impl QueryResult {
    /// Translates files into the cache and waits; see [`QueryResult::get_async`].
    ///
    /// # Errors
    ///
    /// As [`QueryResult::get_async`].
    pub fn get(
        &self,
        dir: impl AsRef<Path>,
        crop: Option<[f64; 4]>,
        crop_epsg: Option<u32>,
    ) -> Result<ItemCollection> {
        let dir = dir.as_ref();
        self.session().wait(self.get_async(dir, crop, crop_epsg))
    }

    /// Copies files into the cache and waits; see [`QueryResult::download_async`].
    ///
    /// # Errors
    ///
    /// As [`QueryResult::download_async`].
    pub fn download(&self, dir: impl AsRef<Path>) -> Result<ItemCollection> {
        self.session().wait(self.download_async(dir.as_ref()))
    }

    /// Fetches files as the options state and waits; see [`QueryResult::get_with_async`].
    ///
    /// # Errors
    ///
    /// As [`QueryResult::get_with_async`].
    pub fn get_with(&self, dir: impl AsRef<Path>, options: &GetOptions) -> Result<Fetched> {
        self.session()
            .wait(self.get_with_async(dir.as_ref(), options))
    }

    /// Makes hrefs remote and waits; see [`QueryResult::get_remote_async`].
    ///
    /// # Errors
    ///
    /// As [`QueryResult::get_remote_async`].
    pub fn get_remote(&self) -> Result<ItemCollection> {
        self.session().wait(self.get_remote_async())
    }

    /// Makes hrefs remote and waits; see [`QueryResult::get_remote_as_async`].
    ///
    /// # Errors
    ///
    /// As [`QueryResult::get_remote_as_async`].
    pub fn get_remote_as(&self, variant: RemoteVariant) -> Result<ItemCollection> {
        self.session().wait(self.get_remote_as_async(variant))
    }
}

/// An open raster whose reads block.
#[derive(Clone, Debug)]
pub struct OpenRaster {
    reader: Arc<dyn RasterReader>,
    session: Session,
}

impl OpenRaster {
    /// Returns the file's profile: size, CRS, dtype, overviews, bands.
    pub fn profile(&self) -> &Profile {
        self.reader.profile()
    }

    /// Returns the backend that reads.
    pub fn backend(&self) -> Backend {
        self.reader.backend()
    }

    /// Returns the reason why GDAL reads a file that was opened with [`Backend::Auto`]; see
    /// [`RasterReader::fallback`].
    pub fn fallback(&self) -> Option<&Error> {
        self.reader.fallback()
    }

    /// Returns the index entry of this file and waits; see [`RasterReader::entry`].
    ///
    /// # Errors
    ///
    /// As [`RasterReader::entry`], and [`ErrorKind::InvalidInput`] inside an async runtime.
    pub fn entry(&self) -> Result<Entry> {
        self.session.wait(self.reader.entry())
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

    /// Reads the mask of valid pixels; see [`RasterReader::read_mask`].
    ///
    /// # Errors
    ///
    /// As [`RasterReader::read_mask`].
    pub fn read_mask(&self, request: &ReadRequest) -> Result<Raster> {
        self.session.wait(self.reader.read_mask(request))
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
