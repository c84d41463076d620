//! The driver of a gather: starts tiles, waits for them, and sends rows to the caller.
//!
//! Why its waits end, and what bounds its memory, is in `docs/decisions/007`.

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::{
    FutureExt,
    future::{Either, select},
};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
};

use super::{
    File, OnChange, Options, Report, Request, Row, RowOrder,
    hedge::Latencies,
    limit::{Concurrency, Limit},
    report::Counts,
};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::Raster,
    reader::{self, Backend, Entry, OpenOptions, ReadPlan},
    session::Session,
    store::{Meter, Traffic},
};

/// The size that a row without pixels counts as: a million failures that nobody takes must be bounded as well.
const FAILED_BYTES: u64 = 1 << 10;
/// The assumed size of a tile without an index entry, before the first one is done.
const UNKNOWN_BYTES: u64 = 1 << 20;

/// State shared by the driver, its tiles and the receiver of rows.
#[derive(Debug)]
pub(super) struct Shared {
    counts: Mutex<Counts>,
    meter: Meter,
    before: Traffic,
    throttled_before: u64,
    start: Instant,
    /// Bytes of pixels under way or waiting to be taken.
    held: AtomicU64,
    /// Wakes a driver that waits for `held` to fall.
    freed: Notify,
    latencies: Latencies,
}

impl Shared {
    pub(super) fn new(session: &Session, counts: Counts) -> Self {
        let meter = session.meter().clone();
        Self {
            counts: Mutex::new(counts),
            before: meter.total(),
            throttled_before: meter.throttled(),
            meter,
            start: Instant::now(),
            held: AtomicU64::new(0),
            freed: Notify::new(),
            latencies: Latencies::default(),
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn report(&self) -> Report {
        let traffic = self.meter.total() - self.before;
        let throttled = self.meter.throttled() - self.throttled_before;
        self.counts().report(traffic, throttled)
    }

    /// Releases the bytes of a row that the caller has taken.
    pub(super) fn taken(&self, row: &Row) {
        self.held.fetch_sub(bytes_of(row), Ordering::Relaxed);
        // Stores a permit if the driver is not waiting yet, so no wake-up is lost between its check and its wait.
        self.freed.notify_one();
    }
}

fn bytes_of(row: &Row) -> u64 {
    row.tile.as_ref().map_or(FAILED_BYTES, |tile| {
        (tile.pixels.len() * tile.pixels.dtype().size()) as u64
    })
}

pub(super) async fn drive(
    session: Session,
    requests: Box<dyn Iterator<Item = Request> + Send>,
    options: Options,
    shared: Arc<Shared>,
    rows: mpsc::UnboundedSender<Row>,
) {
    let options = Arc::new(options);
    let threads = session.settings().gdal_threads;
    let mut limit = Limit::new(match (options.backend, options.concurrency) {
        // A GDAL thread reads one tile at a time: more tasks would only wait for a thread.
        (Backend::Gdal, Concurrency::Adaptive) => {
            Concurrency::Fixed(threads.try_into().unwrap_or(std::num::NonZeroUsize::MIN))
        }
        (_, concurrency) => concurrency,
    });
    let mut next = requests.enumerate().peekable();
    let mut under_way: JoinSet<((Row, bool), u64)> = JoinSet::new();
    // Rows that finished before an earlier one. Their bytes still count as held.
    let mut early: BTreeMap<usize, Row> = BTreeMap::new();
    let (mut due, mut likely, mut throttled) = (0, UNKNOWN_BYTES, shared.throttled_before);
    limit.begin(Instant::now());
    loop {
        let mut is_full = false;
        while under_way.len() < limit.limit()
            && let Some((_, request)) = next.peek()
        {
            let bytes = expected(request).unwrap_or(likely);
            let held = shared.held.load(Ordering::Relaxed);
            // With nothing held a tile of any size is started; otherwise one above the limit would never be.
            if held > 0 && held.saturating_add(bytes) > options.buffer_bytes {
                is_full = true;
                break;
            }
            let Some((number, request)) = next.next() else {
                break;
            };
            shared.held.fetch_add(bytes, Ordering::Relaxed);
            let (session, options) = (session.clone(), Arc::clone(&options));
            let work = tile(session, options, Arc::clone(&shared), number, request);
            under_way.spawn(async move { (work.await, bytes) });
        }
        if under_way.is_empty() && !is_full {
            return;
        }
        let done = tokio::select! {
            Some(done) = under_way.join_next() => done,
            // If nothing is under way either, the caller holds rows: only taking them can free bytes.
            () = shared.freed.notified(), if is_full => continue,
        };
        // Panics of a tile are caught inside it and the set is not aborted while this runs, so a join does not fail.
        let Ok(((row, asked), expected)) = done else {
            continue;
        };
        let actual = bytes_of(&row);
        if row.tile.is_ok() {
            // The best estimate for the next tile without an entry: files of a gather mostly share a layout.
            likely = actual.max(1);
        }
        // Failures and sparse tiles cost no transfer: their latency would mislead the limit and the hedge.
        let is_measured = row.tile.is_ok() && asked;
        if is_measured {
            shared.latencies.add(row.open + row.read);
        }
        shared.held.fetch_add(actual, Ordering::Relaxed);
        shared.held.fetch_sub(expected, Ordering::Relaxed);
        let now = Instant::now();
        match shared.meter.throttled() {
            same if same == throttled => {
                if is_measured {
                    limit.done(now, row.open + row.read);
                }
            }
            more => {
                throttled = more;
                limit.throttled(now);
            }
        }
        shared.counts().add(&row, limit.limit());
        match options.order {
            RowOrder::Arrival => {
                // Fails only if the `Gather` was dropped, which aborts this task.
                let _ = rows.send(row);
            }
            RowOrder::Requests => {
                early.insert(row.number, row);
                while let Some(row) = early.remove(&due) {
                    due += 1;
                    let _ = rows.send(row);
                }
            }
        }
    }
}

/// Returns an upper bound of the decoded bytes of a request, if its file has an entry and the region a fixed size.
fn expected(request: &Request) -> Option<u64> {
    let File::Entry(entry) = &request.file else {
        return None;
    };
    let level = entry.header.levels.get(request.level)?;
    let size = match request.region {
        super::Region::Window(window) => window.size(),
        super::Region::Around { size, .. } => size,
        super::Region::Bbox(_) => return None,
        _ => level.tile,
    };
    let bands = request
        .bands
        .as_ref()
        .map_or(usize::from(level.bands), Vec::len);
    let bytes = bands.saturating_mul(entry.header.dtype.size()) as u64;
    Some(bytes.saturating_mul(u64::from(size.width) * u64::from(size.height)))
}

/// Reads one tile, with retries, hedging and reindexing, and returns its row. The flag is true if pixels were requested
/// from a server, as far as that is known.
async fn tile(
    session: Session,
    options: Arc<Options>,
    shared: Arc<Shared>,
    number: usize,
    mut request: Request,
) -> (Row, bool) {
    let start = Instant::now();
    let location = request.file.location().clone();
    let mut row = Row {
        number,
        location,
        tile: Err(Error::new(ErrorKind::Unavailable, "a task was lost")),
        open: Duration::ZERO,
        read: Duration::ZERO,
        total: Duration::ZERO,
        finished: Duration::ZERO,
        tries: 0,
        hedged: false,
        reindexed: None,
    };
    let mut is_old = false;
    // Planned once, however often the tile is tried: the report compares it with what was sent.
    let planned = OnceLock::new();
    loop {
        row.tries += 1;
        // A panic (a decoder's, on bytes from the network) becomes the error of this row, not the end of the gather.
        let attempt = || async {
            let attempt = attempt(&session, &options, &request, &planned, is_old);
            let lost = |_| Err(Error::new(ErrorKind::Unavailable, "a task was lost"));
            AssertUnwindSafe(attempt)
                .catch_unwind()
                .await
                .unwrap_or_else(lost)
        };
        let late = options
            .hedge
            .and_then(|part| shared.latencies.late_after(part));
        let (done, hedged) = match late {
            Some(late) => first_of_two(attempt, late).await,
            None => (attempt().await, false),
        };
        row.hedged |= hedged;
        match done {
            Ok(done) => {
                (row.open, row.read) = (done.open, done.read);
                row.reindexed = done.reindexed;
                row.tile = Ok(done.tile);
                break;
            }
            Err(err)
                if err.kind() == ErrorKind::Changed
                    && options.on_change == OnChange::Reindex
                    && !is_old =>
            {
                // Once only: a file that changes again is an error. Without the entry the header is read anew.
                request.file = File::Location(row.location.clone());
                is_old = true;
            }
            Err(err) => {
                // A server that is away was waited for below. Bytes may be damaged on the way: they are fetched anew.
                let is_over = err.kind() != ErrorKind::Corrupt || row.tries > options.retries;
                row.tile = Err(err.at(&row.location));
                if is_over {
                    break;
                }
            }
        }
    }
    if let Some((header_requests, plan)) = planned.get() {
        shared.counts().plan(*header_requests, plan);
    }
    row.total = start.elapsed();
    row.finished = shared.start.elapsed();
    // Reads through GDAL have no plan; they are taken to send requests.
    let asked = planned.get().is_none_or(|(_, plan)| plan.requests > 0);
    (row, asked)
}

/// Returns the planned requests for the header of a file.
fn header_requests(file: &File) -> u64 {
    match file {
        File::Location(location) => u64::from(location.as_local().is_none()),
        File::Entry(_) => 0,
    }
}

/// The result of a successful attempt.
struct Attempt {
    tile: Raster,
    open: Duration,
    read: Duration,
    reindexed: Option<Entry>,
}

async fn attempt(
    session: &Session,
    options: &Options,
    request: &Request,
    planned: &OnceLock<(u64, ReadPlan)>,
    reindex: bool,
) -> Result<Attempt> {
    let start = Instant::now();
    // A damaged header or tile is tried again here, and counted.
    let opening = OpenOptions::from(options.backend).once();
    let raster = reader::open(session, request.file.target(), opening).await?;
    let open = start.elapsed();
    let (read, padding) = request.resolve(raster.profile())?;
    if let Some(plan) = raster.plan(&read)? {
        planned.get_or_init(|| (header_requests(&request.file), plan));
    }
    let mut tile = raster.read(&read.once()).await?;
    if let Some(padding) = padding {
        tile = session.cpu(move || padding.around(tile)).await??;
    }
    let read = start.elapsed() - open;
    let reindexed = match reindex {
        // None for files that GDAL reads: they have no entry.
        true => raster.entry().await.ok(),
        false => None,
    };
    Ok(Attempt {
        tile,
        open,
        read,
        reindexed,
    })
}

/// Starts a second attempt if the first takes longer than `late`, and returns the first success. The flag is true if
/// there was a second attempt. The slower one is dropped, which cancels its requests.
async fn first_of_two<F: Future<Output = Result<Attempt>>>(
    attempt: impl Fn() -> F,
    late: Duration,
) -> (Result<Attempt>, bool) {
    let first = Box::pin(attempt());
    let first = match select(first, Box::pin(tokio::time::sleep(late))).await {
        Either::Left((done, _)) => return (done, false),
        Either::Right(((), first)) => first,
    };
    let done = match select(first, Box::pin(attempt())).await {
        Either::Left((Err(_), second)) => second.await,
        Either::Right((Err(_), first)) => first.await,
        Either::Left((done, _)) | Either::Right((done, _)) => done,
    };
    (done, true)
}
