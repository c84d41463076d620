//! The ways to a file's pixels that benches put side by side: this library's two backends, set up in
//! several manners, and plain async-tiff.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use object_store::{ObjectStore, aws::AmazonS3Builder, local::LocalFileSystem, path::Path as Key};
use rss_core::{Backend, Location, Pixels, RasterReader, ReadRequest, Session, Window, reader};
use tokio::runtime::Runtime;

use crate::{
    harness::must,
    place::Place,
    plain_async_tiff::{Plain, PlainFile},
};

/// One way, by the name that reports give it.
pub(crate) struct Way {
    pub(crate) name: String,
    reader: Reader,
}

enum Reader {
    Session(Session, Backend),
    Plain(Plain),
}

impl Way {
    /// Reads by a backend of this library.
    pub(crate) fn of(name: impl Into<String>, session: Session, backend: Backend) -> Self {
        Self {
            name: name.into(),
            reader: Reader::Session(session, backend),
        }
    }

    /// Reads files beside `location` by the crate async-tiff, decoding on so many threads.
    pub(crate) fn plain(place: &Place, location: &Location, threads: usize) -> Result<Self> {
        let store: Arc<dyn ObjectStore> = match location {
            Location::S3 { bucket, .. } => {
                let builder = AmazonS3Builder::new()
                    .with_bucket_name(bucket)
                    .with_region("ap-southeast-2")
                    .with_skip_signature(true);
                Arc::new(match &place.s3 {
                    Some(url) => builder.with_endpoint(url).with_allow_http(true).build()?,
                    None => builder.build()?,
                })
            }
            _ => Arc::new(LocalFileSystem::new()),
        };
        Ok(Self {
            name: "plain async-tiff 0.4".to_owned(),
            reader: Reader::Plain(Plain::new(store, threads)?),
        })
    }

    /// Forgets what is known of files.
    pub(crate) fn forget(&self) -> Result<()> {
        match &self.reader {
            Reader::Session(session, _) => Ok(session.clear_caches()?),
            // Keeps nothing but connections, as the COG reader.
            Reader::Plain(_) => Ok(()),
        }
    }

    /// Opens a file.
    pub(crate) async fn open(&self, location: &Location) -> Result<Opened> {
        match &self.reader {
            Reader::Session(session, backend) => Ok(Opened::Session(
                reader::open(session, location, *backend).await?,
            )),
            Reader::Plain(plain) => {
                let key = match location {
                    Location::S3 { key, .. } => Key::parse(key)?,
                    Location::Local(path) => Key::from_absolute_path(path)?,
                    other => bail!("{other} is in no store here"),
                };
                let file = plain.open(&key).await;
                Ok(Opened::Plain(Box::new(file.context("plain async-tiff")?)))
            }
        }
    }

    /// Opens a file and reads a window of it, or all.
    pub(crate) async fn read(&self, location: &Location, window: Option<Window>) -> Result<Pixels> {
        self.open(location).await?.read(window).await
    }

    /// Adds up what `clock` counts while `work` goes on, `times` times, each with nothing known.
    pub(crate) fn cold<T>(
        &self,
        runtime: &Runtime,
        times: u64,
        clock: impl Fn() -> Duration,
        work: impl AsyncFn(&Self) -> Result<T>,
    ) -> Duration {
        let mut total = Duration::ZERO;
        for _ in 0..times {
            must(self.forget());
            let start = clock();
            let done = must(runtime.block_on(work(self)));
            total += clock() - start;
            drop(done);
        }
        total
    }
}

/// An open file.
pub(crate) enum Opened {
    Session(Arc<dyn RasterReader>),
    Plain(Box<PlainFile>),
}

impl Opened {
    /// Reads a window, or all.
    pub(crate) async fn read(&self, window: Option<Window>) -> Result<Pixels> {
        match self {
            Self::Session(raster) => {
                let request = match window {
                    Some(window) => ReadRequest::new().with_window(window),
                    None => ReadRequest::new(),
                };
                Ok(raster.read(&request).await?.pixels)
            }
            Self::Plain(file) => file.read(window).await,
        }
    }
}
