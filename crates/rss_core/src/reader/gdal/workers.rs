//! The threads that call GDAL. Each caches its most recently used datasets, since opening one costs
//! more than reading from it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use gdal::{Dataset, DatasetOptions, GdalOpenFlags, Metadata};
use tokio::sync::oneshot;

use super::{
    bounds::{self, Directories},
    diagnostics::{self, Doing},
    options, raw, vsi,
};
use crate::{
    error::{Error, ErrorKind, Result},
    session::Session,
};

/// Datasets that one thread caches.
const MOST_OPEN: usize = 32;

/// Drivers of formats that contain their pixels. Others, such as VRT, name files to read, and a file from
/// a catalogue must not choose those.
const DRIVERS: &[&str] = &["GTiff", "JP2OpenJPEG", "JPEG", "PNG", "WEBP", "HFA", "ENVI"];

/// Drivers for files of this machine only: an HDF5 file may keep its samples in any other file, which the HDF5 library
/// opens by itself.
const LOCAL_DRIVERS: &[&str] = &["netCDF", "HDF5"];

type Call = Box<dyn FnOnce(&mut Worker) + Send>;

/// The GDAL threads of a session; they end when the session does.
#[derive(Debug)]
pub(super) struct Pool {
    threads: Vec<Thread>,
    next: AtomicUsize,
}

#[derive(Debug)]
struct Thread {
    jobs: mpsc::Sender<Call>,
    waiting: Arc<AtomicUsize>,
}

impl Pool {
    /// Returns the session's threads, starting them once.
    pub(super) fn of(session: &Session) -> Result<Arc<Self>> {
        session.gdal_pool(|| Self::start(session))
    }

    fn start(session: &Session) -> Result<Self> {
        vsi::install();
        let options = Arc::new(options::thread_options(session));
        let most_block_bytes = session.settings().gdal_block_bytes;
        let threads = (0..session.settings().gdal_threads.max(1))
            .map(|n| Thread::start(n, Arc::clone(&options), most_block_bytes))
            .collect::<Result<Vec<_>>>()?;
        let before = raw::traffic();
        session.meter().count_also(move || raw::traffic() - before);
        Ok(Self {
            threads,
            next: AtomicUsize::new(0),
        })
    }

    /// Returns the number of threads.
    pub(super) fn len(&self) -> usize {
        self.threads.len()
    }

    /// Returns the thread that a new reader prefers: its dataset is open there.
    pub(super) fn home(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed) % self.threads.len().max(1)
    }

    /// Runs `work` on the first idle thread from `home` on, else on the one with the shortest queue.
    /// Dropping the future before the work starts cancels it.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        home: usize,
        work: impl FnOnce(&mut Worker) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let count = self.threads.len();
        let at = (0..count)
            .map(|step| (home + step) % count)
            .min_by_key(|&at| {
                self.threads
                    .get(at)
                    .map_or(usize::MAX, |thread| thread.waiting.load(Ordering::Relaxed))
            });
        let thread = at.and_then(|at| self.threads.get(at)).ok_or_else(lost)?;
        thread.call(work).await
    }

    /// Runs `work` on every thread.
    pub(super) async fn call_each(&self, work: fn(&mut Worker)) -> Result<()> {
        for thread in &self.threads {
            thread
                .call(move |worker| {
                    work(worker);
                    Ok(())
                })
                .await?;
        }
        Ok(())
    }

    /// Closes the datasets of a reader, without waiting for it.
    pub(super) fn close(&self, reader: u64) {
        for thread in &self.threads {
            thread.send(move |worker, _| worker.close(reader));
        }
    }
}

impl Thread {
    fn start(
        number: usize,
        options: Arc<Vec<(String, String)>>,
        most_block_bytes: u64,
    ) -> Result<Self> {
        let (jobs, queue) = mpsc::channel::<Call>();
        thread::Builder::new()
            .name(format!("rss-gdal-{number}"))
            .spawn(move || {
                diagnostics::listen();
                for (name, value) in options.iter() {
                    // Fails only for a text with a NUL, which is no valid option.
                    let _ = gdal::config::set_thread_local_config_option(name, value);
                }
                raw::reset_traffic_once();
                let mut worker = Worker {
                    open: Vec::new(),
                    most_block_bytes,
                };
                while let Ok(job) = queue.recv() {
                    diagnostics::forget();
                    // A panic must not end the thread: its caller gets an error.
                    let _ = catch_unwind(AssertUnwindSafe(|| job(&mut worker)));
                }
            })
            .map_err(|err| {
                Error::new(ErrorKind::Unavailable, "no thread for GDAL").with_source(err)
            })?;
        Ok(Self {
            jobs,
            waiting: Arc::default(),
        })
    }

    /// Queues `work`, which drops its `Waiting` when it is done.
    fn send(&self, work: impl FnOnce(&mut Worker, Waiting) + Send + 'static) {
        let waiting = Waiting::new(&self.waiting);
        // A thread that has ended drops its work: the caller's receiver reports it.
        let _ = self
            .jobs
            .send(Box::new(move |worker| work(worker, waiting)));
    }

    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Worker) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (send, receive) = oneshot::channel();
        self.send(move |worker, waiting| {
            if !send.is_closed() {
                let done = work(worker);
                // The thread counts as idle before the caller wakes: so the caller's next call runs here,
                // where its dataset is open.
                drop(waiting);
                // The receiver is dropped with the caller's future.
                let _ = send.send(done);
            }
        });
        receive.await.map_err(|_| lost())?
    }
}

/// Counts a job of a thread while it is queued or runs.
struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Unavailable, "a task of GDAL ended early")
}

/// The datasets of one thread.
pub(super) struct Worker {
    /// The most recently used is last.
    open: Vec<Open>,
    /// The limit on the bytes of a block.
    pub(super) most_block_bytes: u64,
}

struct Open {
    reader: u64,
    path: String,
    dataset: Dataset,
}

impl Worker {
    /// Returns a reader's dataset, opening it if it is not open here. The path is compared too: a signed
    /// one changes when its token is renewed.
    pub(super) fn dataset(&mut self, reader: u64, path: &str) -> Result<&Dataset> {
        let found = self
            .open
            .iter()
            .position(|open| open.reader == reader && open.path == path);
        let open = match found {
            Some(at) => self.open.remove(at),
            None => Open {
                reader,
                path: path.to_owned(),
                dataset: open(path, self.most_block_bytes, Directories::All)?,
            },
        };
        if self.open.len() >= MOST_OPEN {
            self.open.remove(0);
        }
        self.open.push(open);
        self.open.last().map(|open| &open.dataset).ok_or_else(lost)
    }

    /// Closes a reader's datasets.
    pub(super) fn close(&mut self, reader: u64) {
        self.open.retain(|open| open.reader != reader);
    }

    /// Closes all datasets.
    pub(super) fn close_all(&mut self) {
        self.open.clear();
    }
}

/// Opens a raster on this thread, with its samples as the file stores them: where GDAL makes RGBA of CMYK or CIELAB, as
/// its TIFF driver does for bytes, it is opened again without.
pub(super) fn open(path: &str, most_bytes: u64, directories: Directories) -> Result<Dataset> {
    let dataset = open_checked(path, most_bytes, directories)?;
    let space = dataset.metadata_item("SOURCE_COLOR_SPACE", "IMAGE_STRUCTURE");
    match space.as_deref() {
        Some("CMYK" | "CIELAB") => open_as(&format!("GTIFF_RAW:{path}"), &["GTiff"]),
        _ => Ok(dataset),
    }
}

/// Opens a raster whose header states no more than fits `most_bytes`.
fn open_checked(path: &str, most_bytes: u64, directories: Directories) -> Result<Dataset> {
    bounds::check_file(path, most_bytes, directories)?;
    // A VRT names other files: only a local one, whose extension the user names, is trusted to do so.
    let is_local = !path.starts_with("/vsi");
    let is_vrt = is_local && path.to_ascii_lowercase().ends_with(".vrt");
    let local = [DRIVERS, LOCAL_DRIVERS].concat();
    let drivers: &[&str] = match (is_vrt, is_local) {
        (true, _) => &["VRT"],
        (false, true) => &local,
        (false, false) => DRIVERS,
    };
    let dataset = open_as(path, drivers)?;
    // GDAL opens the file that this item names as the overviews, whatever it is and wherever: a file must not choose it.
    let other = dataset.metadata_item("OVERVIEW_FILE", "OVERVIEWS");
    if !is_vrt && other.is_some() {
        return Err(Error::new(
            ErrorKind::Denied,
            "its metadata names another file for its overviews, which it may not",
        ));
    }
    Ok(dataset)
}

/// Opens a raster by one of these drivers.
fn open_as(path: &str, drivers: &[&str]) -> Result<Dataset> {
    let options = DatasetOptions {
        open_flags: GdalOpenFlags::GDAL_OF_READONLY
            | GdalOpenFlags::GDAL_OF_RASTER
            | GdalOpenFlags::GDAL_OF_VERBOSE_ERROR,
        allowed_drivers: Some(drivers),
        ..DatasetOptions::default()
    };
    Dataset::open_ex(path, options).map_err(|_| diagnostics::error(Doing::Open))
}
