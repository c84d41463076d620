//! One tile, or one window, from each of very many files.
//!
//! Reading one small block of a thousand scenes is the worst case of cloud imagery: opening costs more
//! than reading. [`gather`] keeps as many tiles under way as the path takes, and with entries of an
//! index each costs one request. A file that fails is one row with its error; the rest goes on.
//!
//! [`explain`] says before what a gather will ask for. [`stack`](fn@stack) puts the tiles into one array.

mod cost;
mod driver;
mod hedge;
mod limit;
mod plan;
mod region;
mod report;
mod stack;

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::Stream;
use tokio::{runtime::Handle, sync::mpsc, task::JoinHandle};

pub use self::{
    cost::{Cost, CostModel},
    limit::Concurrency,
    plan::{HostPlan, Plan, explain},
    region::Region,
    report::{Planned, Report, Spread},
    stack::{Stack, stack},
};
use self::{driver::Shared, report::Counts};
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    raster::Raster,
    reader::{Backend, Entry, Target},
    session::Session,
};

/// A file to read from: a location, or what an index knows of one.
#[derive(Clone, Debug)]
pub enum File {
    /// A file of which nothing is known: its header is asked for first.
    Location(Location),
    /// A file that an index knows.
    Entry(Entry),
}

impl File {
    /// Returns where the file is.
    pub fn location(&self) -> &Location {
        match self {
            Self::Location(location) => location,
            Self::Entry(entry) => &entry.location,
        }
    }

    fn target(&self) -> Target<'_> {
        match self {
            Self::Location(location) => Target::Location(location),
            Self::Entry(entry) => Target::Entry(entry),
        }
    }
}

impl From<Location> for File {
    fn from(location: Location) -> Self {
        Self::Location(location)
    }
}

impl From<Entry> for File {
    fn from(entry: Entry) -> Self {
        Self::Entry(entry)
    }
}

/// What to read of one file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The file.
    pub file: File,
    /// The tile or the window.
    pub region: Region,
    /// 0 is full resolution, 1.. are the overviews.
    pub level: usize,
    /// Bands counted from 1; none is all bands.
    pub bands: Option<Vec<usize>>,
}

impl Request {
    /// Asks for the tile in the centre of level 0, all bands.
    pub fn new(file: impl Into<File>) -> Self {
        Self {
            file: file.into(),
            region: Region::default(),
            level: 0,
            bands: None,
        }
    }

    /// Sets the tile or the window.
    #[must_use]
    pub fn with_region(mut self, region: Region) -> Self {
        self.region = region;
        self
    }

    #[doc(hidden)]
    #[deprecated(since = "0.2.0", note = "renamed to `with_region`")]
    #[must_use]
    pub fn with_place(self, region: Region) -> Self {
        self.with_region(region)
    }

    /// Sets the level.
    #[must_use]
    pub fn with_level(mut self, level: usize) -> Self {
        self.level = level;
        self
    }

    /// Asks for some bands only, counted from 1.
    #[must_use]
    pub fn with_bands(mut self, bands: impl Into<Vec<usize>>) -> Self {
        self.bands = Some(bands.into());
        self
    }
}

/// In which order rows come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowOrder {
    /// In the order of the requests. What is done early waits in memory.
    #[default]
    Requests,
    /// As they are done.
    Arrival,
}

#[doc(hidden)]
#[deprecated(since = "0.2.0", note = "renamed to `Region`")]
pub type Place = Region;

#[doc(hidden)]
#[deprecated(since = "0.2.0", note = "renamed to `CostModel`")]
pub type Prices = CostModel;

#[doc(hidden)]
#[deprecated(since = "0.2.0", note = "renamed to `RowOrder`")]
pub type Order = RowOrder;

/// What is done about a file that is not the version its entry knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnChange {
    /// Its row is the error, [`ErrorKind::Changed`].
    #[default]
    Report,
    /// Its header is read anew, and the tile by that; [`Row::reindexed`] holds the new entry.
    Reindex,
}

/// How tiles are gathered.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Options {
    /// Which code reads. Default: [`Backend::Auto`].
    pub backend: Backend,
    /// How many tiles are under way. GDAL takes as many as the session has GDAL threads, at most.
    pub concurrency: Concurrency,
    /// In which order rows come.
    pub order: RowOrder,
    /// What is done about a file that changed.
    pub on_change: OnChange,
    /// Asks a second time for a tile that takes longer than this part of those before it, such as 0.95,
    /// and takes what comes first. Default: never. GDAL does not stop a read, so it gains nothing.
    pub hedge: Option<f64>,
    /// How often a tile whose server was unreachable or overloaded is tried again, beyond the
    /// session's own retries of each request. Default: 1.
    pub retries: u32,
    /// Bytes of pixels that may be under way or wait to be taken; more tiles are started when rows are
    /// taken. Default: 512 MiB.
    pub buffer_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            backend: Backend::default(),
            concurrency: Concurrency::default(),
            order: RowOrder::default(),
            on_change: OnChange::default(),
            hedge: None,
            retries: 1,
            buffer_bytes: 512 << 20,
        }
    }
}

impl Options {
    /// Starts from the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets which code reads.
    #[must_use]
    pub fn with_backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Sets how many tiles are under way.
    #[must_use]
    pub fn with_concurrency(mut self, concurrency: Concurrency) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Sets the order of rows.
    #[must_use]
    pub fn with_order(mut self, order: RowOrder) -> Self {
        self.order = order;
        self
    }

    /// Sets what is done about a file that changed.
    #[must_use]
    pub fn with_on_change(mut self, on_change: OnChange) -> Self {
        self.on_change = on_change;
        self
    }

    /// Asks a second time for tiles that take longer than this part of those before, between 0 and 1.
    #[must_use]
    pub fn with_hedge(mut self, percentile: f64) -> Self {
        self.hedge = Some(percentile);
        self
    }

    /// Sets how often a tile is tried again.
    #[must_use]
    pub fn with_retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Bounds the bytes of pixels under way and waiting.
    #[must_use]
    pub fn with_buffer_bytes(mut self, bytes: u64) -> Self {
        self.buffer_bytes = bytes;
        self
    }

    fn check(&self) -> Result<()> {
        match self.hedge {
            Some(part) if !(part > 0.0 && part < 1.0) => Err(Error::new(
                ErrorKind::InvalidInput,
                format!("a hedge at {part}, expected a part between 0 and 1, such as 0.95"),
            )),
            _ => Ok(()),
        }
    }
}

/// What came of one request.
#[derive(Debug)]
#[non_exhaustive]
pub struct Row {
    /// The number of the request, from 0.
    pub number: usize,
    /// The file.
    pub location: Location,
    /// The pixels, or why there are none.
    pub tile: Result<Raster>,
    /// How long opening took, in the attempt that counts; next to nothing for an entry.
    pub open: Duration,
    /// How long reading took after that.
    pub read: Duration,
    /// How long all attempts took.
    pub total: Duration,
    /// From the start of the gather to the end of this tile.
    pub finished: Duration,
    /// How often it was tried; 1 where all went well.
    pub tries: u32,
    /// True if it was asked for a second time because it took long.
    pub hedged: bool,
    /// The entry of the version that was read, where the one of the request was out of date.
    pub reindexed: Option<Entry>,
}

/// A gather under way: a stream of [`Row`]s, one for each request. Dropping it cancels what is under way.
///
/// Tiles go on arriving while rows are worked on, up to [`Options::buffer_bytes`].
pub struct Gather {
    rows: mpsc::UnboundedReceiver<Row>,
    shared: Arc<Shared>,
    driver: JoinHandle<()>,
}

impl fmt::Debug for Gather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gather").finish_non_exhaustive()
    }
}

impl Drop for Gather {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Gather {
    /// Returns how it went so far; all of it, once the stream has ended.
    pub fn report(&self) -> Report {
        self.shared.report()
    }
}

impl Stream for Gather {
    type Item = Row;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Row>> {
        let row = std::task::ready!(self.rows.poll_recv(cx));
        if let Some(row) = &row {
            self.shared.taken(row);
        }
        Poll::Ready(row)
    }
}

/// Starts to gather: one tile or window for each request.
///
/// The requests are taken one after another as tiles are started, so that an iterator over an index of a
/// million files is read as it is needed; it should not wait for long. Work starts at once, on the
/// runtime of the caller, or of the session where there is none.
///
/// ```
/// use futures::StreamExt;
/// use rss_core::{Location, Session, gather};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> rss_core::Result<()> {
/// let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tiff/files/");
/// let names = ["gdal--byte_LZMA-edd011ed.tif", "missing.tif", "gdal--byte_zstd-70892132.tif"];
/// let mut requests = Vec::new();
/// for name in names {
///     requests.push(gather::Request::new(Location::parse(&format!("{folder}{name}"))?));
/// }
/// let session = Session::builder().build()?;
/// let mut rows = gather::gather(&session, requests, gather::Options::new())?;
/// let mut found = Vec::new();
/// while let Some(row) = rows.next().await {
///     found.push(row.tile.is_ok());
/// }
/// assert_eq!(found, [true, false, true]);
/// assert_eq!(rows.report().failed, 1);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] for an option that makes no sense; [`ErrorKind::Unavailable`] if no
/// runtime can be started. What happens to a file is in its row.
pub fn gather<I>(session: &Session, requests: I, options: Options) -> Result<Gather>
where
    I: IntoIterator<Item = Request>,
    I::IntoIter: Send + 'static,
{
    options.check()?;
    let handle = match Handle::try_current() {
        Ok(handle) => handle,
        Err(_) => session.runtime()?.handle().clone(),
    };
    let (send, rows) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared::new(session, Counts::default()));
    let requests = Box::new(requests.into_iter());
    let driver = driver::drive(
        session.clone(),
        requests,
        options,
        Arc::clone(&shared),
        send,
    );
    Ok(Gather {
        rows,
        shared,
        driver: handle.spawn(driver),
    })
}
