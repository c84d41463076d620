//! The session: the network, stores, file cache, byte budgets, CPU pool and GDAL settings, shared by all
//! calls.
//!
//! Environment variables are read in [`SessionBuilder::from_env`] and nowhere else.

mod budget;
mod builder;
mod duration;
mod header_sizes;

use std::{
    any::Any,
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
};

use tokio::{runtime::Runtime, sync::oneshot};

use self::{budget::Budget, header_sizes::HeaderSizes};
pub(crate) use self::{budget::Share, builder::Settings};
pub use self::{
    builder::{GdalReads, SessionBuilder},
    duration::parse_duration,
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    store::{FileCache, Meter, Network, Registry, Traffic, told},
};

/// Shared state of searches, downloads and reads. Cloning is cheap and shares everything.
///
/// ```
/// use rss_core::Session;
///
/// let session = Session::builder().s3_endpoint("http://127.0.0.1:9000").build()?;
/// assert_eq!(session.traffic().requests, 0);
/// # Ok::<_, rss_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Session(Arc<Inner>);

/// Files that GDAL read, which a session remembers.
const MOST_FALLBACKS: usize = 1000;

#[derive(Debug)]
struct Inner {
    settings: Settings,
    stores: Registry,
    cache: FileCache,
    meter: Meter,
    cpu: OnceLock<rayon::ThreadPool>,
    /// The threads of the GDAL backend. Their type exists only in builds with the feature `gdal`.
    gdal: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
    header_sizes: HeaderSizes,
    /// Files that GDAL read in place of the COG reader, and why.
    fallbacks: Mutex<BTreeMap<String, String>>,
    /// Notes on files: the first file of each, and the number of files.
    notes: Mutex<BTreeMap<String, (String, usize)>>,
    /// Bytes that are fetched and not yet decoded.
    budget: Budget,
    /// Bytes of blocks, shards and sampled images under way. A budget of its own: work waits for its
    /// reads, so it must not hold what they wait for (docs/decisions/003-byte-budget.md).
    work: Budget,
    runtime: OnceLock<BlockingRuntime>,
}

impl Session {
    /// Starts a builder with defaults, reading nothing from the environment.
    pub fn builder() -> SessionBuilder {
        SessionBuilder::default()
    }

    /// Builds a session from the environment; see [`SessionBuilder::from_env`].
    ///
    /// # Errors
    ///
    /// As [`SessionBuilder::from_env`] and [`SessionBuilder::build`].
    pub fn from_env() -> Result<Self> {
        SessionBuilder::from_env()?.build()
    }

    /// Returns the requests sent and the bytes received by this session, over all stores and backends.
    ///
    /// GDAL counts for the process: once this session has used it, reads of other sessions through GDAL
    /// count here too.
    pub fn traffic(&self) -> Traffic {
        self.0.meter.total()
    }

    /// Returns the stores.
    pub fn stores(&self) -> &Registry {
        &self.0.stores
    }

    /// Returns the file cache.
    pub fn cache(&self) -> &FileCache {
        &self.0.cache
    }

    #[cfg_attr(not(feature = "gdal"), expect(dead_code, reason = "only GDAL is told"))]
    pub(crate) fn downgrade(&self) -> WeakSession {
        WeakSession(Arc::downgrade(&self.0))
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.0.meter
    }

    pub(crate) fn network(&self) -> &Network {
        self.0.stores.network()
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Waits for a share of the budget of fetched bytes. See docs/decisions/003-byte-budget.md.
    pub(crate) async fn share(&self, bytes: u64) -> Option<Share> {
        self.0.budget.share(bytes).await
    }

    /// Waits for a share of the budget of work: blocks, shards and sampled images under way. It is taken
    /// before the shares of the reads that the work waits for, and once for each piece of work.
    pub(crate) async fn share_of_work(&self, bytes: u64) -> Option<Share> {
        self.0.work.share(bytes).await
    }

    /// Returns how many bytes of a file to fetch first.
    pub(crate) fn header_bytes(&self, location: &Location) -> u64 {
        self.0.header_sizes.guess(location)
    }

    /// Returns which files GDAL read because the COG reader refused them ([`Backend::Auto`](crate::Backend::Auto)), and
    /// why: a sentence for each of the first 1000, in the order of their locations.
    pub fn fallbacks(&self) -> Vec<String> {
        let fallbacks = self.0.fallbacks.lock();
        let fallbacks = fallbacks.unwrap_or_else(PoisonError::into_inner);
        let all = fallbacks.iter();
        all.map(|(location, reason)| format!("{location}: {reason}"))
            .collect()
    }

    /// Returns what is odd of the files that were opened ([`Profile::notes`](crate::Profile::notes)): a sentence for each
    /// kind, with the first file that has it and the number of others, of the first 1000 kinds.
    pub fn notes(&self) -> Vec<String> {
        let notes = self.0.notes.lock();
        let notes = notes.unwrap_or_else(PoisonError::into_inner);
        let all = notes.iter();
        all.map(|(note, (first, count))| match count {
            1 => format!("{first}: {note}"),
            _ => format!("{first} and {} more files: {note}", count - 1),
        })
        .collect()
    }

    /// Records what is odd of a file.
    pub(crate) fn note(&self, location: &Location, notes: &[String]) {
        if notes.is_empty() {
            return;
        }
        let mut all = self.0.notes.lock().unwrap_or_else(PoisonError::into_inner);
        for note in notes {
            if let Some((_, count)) = all.get_mut(note) {
                *count += 1;
            } else if all.len() < MOST_FALLBACKS {
                all.insert(note.clone(), (location.to_string(), 1));
            }
        }
    }

    /// Records that GDAL reads a file, and why.
    pub(crate) fn fell_back(&self, location: &Location, reason: &Error) {
        let mut fallbacks = self
            .0
            .fallbacks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        tracing::info!(%location, reason = reason.message(), "read with GDAL");
        if fallbacks.len() < MOST_FALLBACKS {
            fallbacks.insert(location.to_string(), reason.message().to_owned());
        }
    }

    /// Records how many bytes the header of a file took.
    pub(crate) fn learn_header(&self, location: &Location, bytes: u64) {
        self.0.header_sizes.learn(location, bytes);
    }

    /// Runs `work` on the CPU pool and waits for it without blocking the runtime.
    pub(crate) async fn cpu<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        self.start(work)?.await
    }

    /// Starts `work` on the CPU pool; the future waits for it without blocking the runtime. A panic of `work` is an
    /// error with its words.
    pub(crate) fn start<T: Send + 'static, W: FnOnce() -> T + Send + 'static>(
        &self,
        work: W,
    ) -> Result<impl Future<Output = Result<T>> + Send + use<T, W>> {
        let (send, receive) = oneshot::channel();
        self.pool()?.spawn(move || {
            // The receiver is dropped with the caller's future: the call was cancelled.
            let _ = send.send(told(|| Ok(work())));
        });
        Ok(async {
            receive.await.map_err(|err| {
                Error::new(ErrorKind::Unavailable, "the CPU pool lost a task").with_source(err)
            })?
        })
    }

    /// Returns the GDAL backend's threads, which `start` starts once.
    #[cfg_attr(not(feature = "gdal"), expect(dead_code, reason = "only GDAL is told"))]
    pub(crate) fn gdal_pool<T: Send + Sync + 'static>(
        &self,
        start: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        // The lock is held while the threads start: two calls must not start two pools.
        let mut slot = self.0.gdal.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = slot
            .as_ref()
            .and_then(|any| Arc::clone(any).downcast().ok())
        {
            return Ok(pool);
        }
        let pool = Arc::new(start()?);
        *slot = Some(pool.clone());
        Ok(pool)
    }

    fn pool(&self) -> Result<&rayon::ThreadPool> {
        if let Some(pool) = self.0.cpu.get() {
            return Ok(pool);
        }
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(self.0.settings.cpu_threads)
            .thread_name(|n| format!("rss-cpu-{n}"))
            // Panics are caught in `start`; a value that panics when it is dropped must not abort the process.
            .panic_handler(|_| {})
            .build()
            .map_err(|err| Error::new(ErrorKind::Unavailable, "no CPU pool").with_source(err))?;
        // Of two threads that build a pool at once, one pool is dropped before it has work.
        Ok(self.0.cpu.get_or_init(|| pool))
    }

    /// Returns true on a thread of this session's CPU pool.
    pub(crate) fn is_on_cpu_pool(&self) -> bool {
        let pool = self.0.cpu.get();
        pool.is_some_and(|pool| pool.current_thread_index().is_some())
    }

    /// Returns the runtime that the blocking calls of this session run on, starting it once:
    /// pooled connections live on the runtime that opened them.
    pub(crate) fn runtime(&self) -> Result<&Runtime> {
        if let Some(runtime) = self.0.runtime.get() {
            return Ok(runtime.get());
        }
        // Two threads: they wait for the network only, and CPU work has a pool of its own.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("rss-io")
            .enable_all()
            .build()
            .map_err(|err| Error::new(ErrorKind::Unavailable, "no runtime").with_source(err))?;
        Ok(self
            .0
            .runtime
            .get_or_init(|| BlockingRuntime(Some(runtime)))
            .get())
    }
}

/// A reference to a session that does not keep it alive.
#[derive(Clone, Debug)]
pub(crate) struct WeakSession(Weak<Inner>);

#[cfg_attr(not(feature = "gdal"), expect(dead_code, reason = "only GDAL is told"))]
impl WeakSession {
    pub(crate) fn upgrade(&self) -> Option<Session> {
        self.0.upgrade().map(Session)
    }

    pub(crate) fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }

    pub(crate) fn is(&self, session: &Session) -> bool {
        self.0.as_ptr() == Arc::as_ptr(&session.0)
    }
}

/// A runtime that may be dropped inside another runtime's task, where tokio panics if a runtime is
/// dropped and waits for its threads.
#[derive(Debug)]
struct BlockingRuntime(Option<Runtime>);

impl BlockingRuntime {
    #[expect(clippy::expect_used, reason = "taken in drop only")]
    fn get(&self) -> &Runtime {
        self.0.as_ref().expect("present until drop")
    }
}

impl Drop for BlockingRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
