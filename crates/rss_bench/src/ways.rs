//! The ways to a file's pixels that benches put side by side: backends of this library, set up in several manners.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use rss_core::{Backend, Location, Pixels, RasterReader, ReadRequest, Session, Window, reader};
use tokio::runtime::Runtime;

use crate::harness::must;

/// One way, by the name that reports give it.
#[derive(Clone, Debug)]
pub struct Way {
    /// Its name.
    pub name: String,
    session: Session,
    backend: Backend,
}

impl Way {
    /// Reads by a backend of a session.
    pub fn of(name: impl Into<String>, session: Session, backend: Backend) -> Self {
        Self {
            name: name.into(),
            session,
            backend,
        }
    }

    /// Forgets what is known of files. Connections stay.
    ///
    /// # Errors
    ///
    /// As [`Session::clear_caches`].
    pub fn forget(&self) -> Result<()> {
        Ok(self.session.clear_caches()?)
    }

    /// Opens a file.
    ///
    /// # Errors
    ///
    /// As [`reader::open`].
    pub async fn open(&self, location: &Location) -> Result<Arc<dyn RasterReader>> {
        Ok(reader::open(&self.session, location, self.backend).await?)
    }

    /// Opens a file and reads a window of it, or all.
    ///
    /// # Errors
    ///
    /// As [`Way::open`] and [`read`].
    pub async fn read(&self, location: &Location, window: Option<Window>) -> Result<Pixels> {
        read(&*self.open(location).await?, window).await
    }

    /// Adds up what `clock` counts while `work` goes on, `times` times, each with nothing known.
    ///
    /// # Panics
    ///
    /// If `work` fails.
    pub fn cold<T>(
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

/// Reads a window of an open file, or all.
///
/// # Errors
///
/// As [`RasterReader::read`].
pub async fn read(raster: &dyn RasterReader, window: Option<Window>) -> Result<Pixels> {
    let request = match window {
        Some(window) => ReadRequest::new().with_window(window),
        None => ReadRequest::new(),
    };
    Ok(raster.read(&request).await?.pixels)
}
