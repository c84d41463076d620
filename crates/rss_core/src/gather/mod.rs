//! One tile, or one window, from each of very many files.
//!
//! One small window from each of a thousand scenes is the worst case of cloud imagery: opening costs more
//! than reading. [`gather`] finds the concurrency that the network sustains, and with entries of an
//! index each tile costs one request. A file that fails is one row with its error; the others continue.
//!
//! [`explain`] plans the requests and bytes of a gather. [`stack`](fn@stack) copies the tiles into one array.

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
    raster::{Number, Raster},
    reader::{Backend, Entry, Target},
    session::Session,
};

/// A file to read from: a bare location, or its entry in an index.
#[derive(Clone, Debug)]
pub enum File {
    /// A file without an entry: its header is fetched first.
    Location(Location),
    /// The entry of a file: its header is known.
    Entry(Entry),
}

impl File {
    /// Returns the location of the file.
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

/// One tile or window to read from one file.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The file.
    pub file: File,
    /// The tile or window.
    pub region: Region,
    /// 0 is full resolution, 1.. are the overviews.
    pub level: usize,
    /// Bands counted from 1; none is all bands.
    pub bands: Option<Vec<usize>>,
    /// The sample of pixels of [`Region::Around`] that lie outside of the image; none is nodata, in floats without a
    /// nodata value NaN.
    pub padding: Option<Number>,
}

impl Request {
    /// Requests the centre tile of level 0, all bands.
    pub fn new(file: impl Into<File>) -> Self {
        Self {
            file: file.into(),
            region: Region::default(),
            level: 0,
            bands: None,
            padding: None,
        }
    }

    /// Sets the tile or window.
    #[must_use]
    pub fn with_region(mut self, region: Region) -> Self {
        self.region = region;
        self
    }

    #[doc(hidden)]
    #[deprecated(since = "0.1.0", note = "renamed to `with_region`")]
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

    /// Sets the sample of pixels of [`Region::Around`] that lie outside of the image.
    #[must_use]
    pub fn with_padding(mut self, sample: impl Into<Number>) -> Self {
        self.padding = Some(sample.into());
        self
    }

    /// Requests some bands only, counted from 1.
    #[must_use]
    pub fn with_bands(mut self, bands: impl Into<Vec<usize>>) -> Self {
        self.bands = Some(bands.into());
        self
    }
}

/// The order of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowOrder {
    /// In the order of the requests. Rows that finish early are buffered.
    #[default]
    Requests,
    /// In the order in which they finish.
    Arrival,
}

#[doc(hidden)]
#[deprecated(since = "0.1.0", note = "renamed to `Region`")]
pub type Place = Region;

#[doc(hidden)]
#[deprecated(since = "0.1.0", note = "renamed to `CostModel`")]
pub type Prices = CostModel;

#[doc(hidden)]
#[deprecated(since = "0.1.0", note = "renamed to `RowOrder`")]
pub type Order = RowOrder;

/// What happens when a file is not the version that its entry describes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnChange {
    /// Its row is an error, [`ErrorKind::Changed`].
    #[default]
    Report,
    /// Its header and tile are read again; [`Row::reindexed`] holds the new entry.
    Reindex,
}

/// Options of a gather.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Options {
    /// The reader. Default: [`Backend::Auto`].
    pub backend: Backend,
    /// How many tiles are read concurrently. With GDAL, adaptive concurrency is its number of threads in the session.
    pub concurrency: Concurrency,
    /// The order of rows.
    pub order: RowOrder,
    /// What happens when a file has changed.
    pub on_change: OnChange,
    /// Sends a second request for a tile slower than this percentile of recent tiles, such as 0.95, and
    /// takes the first success. Default: never. GDAL cannot cancel a read, so hedging does not help there.
    pub hedge: Option<f64>,
    /// How often a tile whose bytes are damaged is fetched anew: they may be damaged on the way only. A server that is
    /// away or overloaded is waited for by the session, once for all tiles. Default: 1.
    pub retries: u32,
    /// The limit of bytes of pixels under way or waiting to be taken; more tiles are started when rows are
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
    /// Returns the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the reader.
    #[must_use]
    pub fn with_backend(mut self, backend: Backend) -> Self {
        self.backend = backend;
        self
    }

    /// Sets how many tiles are read concurrently.
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

    /// Sets what happens when a file has changed.
    #[must_use]
    pub fn with_on_change(mut self, on_change: OnChange) -> Self {
        self.on_change = on_change;
        self
    }

    /// Sends a second request for tiles slower than this percentile of recent tiles, between 0 and 1.
    #[must_use]
    pub fn with_hedge(mut self, percentile: f64) -> Self {
        self.hedge = Some(percentile);
        self
    }

    /// Sets how often a tile whose bytes are damaged is fetched anew.
    #[must_use]
    pub fn with_retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Limits the bytes of pixels under way or waiting to be taken.
    #[must_use]
    pub fn with_buffer_bytes(mut self, bytes: u64) -> Self {
        self.buffer_bytes = bytes;
        self
    }

    fn check(&self) -> Result<()> {
        match self.hedge {
            Some(part) if !(part > 0.0 && part < 1.0) => Err(Error::new(
                ErrorKind::InvalidInput,
                format!("hedge percentile {part}, expected one between 0 and 1, such as 0.95"),
            )),
            _ => Ok(()),
        }
    }
}

/// The result of one request.
#[derive(Debug)]
#[non_exhaustive]
pub struct Row {
    /// The number of the request, from 0.
    pub number: usize,
    /// The file.
    pub location: Location,
    /// The pixels, or the error.
    pub tile: Result<Raster>,
    /// How long opening took, in the successful attempt; next to nothing for an entry.
    pub open: Duration,
    /// How long reading took after that.
    pub read: Duration,
    /// How long all attempts took.
    pub total: Duration,
    /// From the start of the gather to the end of this tile.
    pub finished: Duration,
    /// Attempts; 1 if the first succeeded.
    pub tries: u32,
    /// True if a second request was sent because the first was slow.
    pub hedged: bool,
    /// The entry of the version that was read, if that of the request was out of date.
    pub reindexed: Option<Entry>,
}

/// A running gather: a stream of [`Row`]s, one for each request. Dropping it cancels all requests.
///
/// Tiles are read ahead while the caller processes rows, up to [`Options::buffer_bytes`].
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
    /// Returns the report so far; it is complete once the stream has ended.
    pub fn report(&self) -> Report {
        self.shared.report()
    }
}

impl Stream for Gather {
    type Item = Row;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Row>> {
        let row = std::task::ready!(self.rows.poll_recv(cx));
        // The caller owns the pixels from here: their bytes do not count against `buffer_bytes` any more.
        if let Some(row) = &row {
            self.shared.taken(row);
        }
        Poll::Ready(row)
    }
}

/// Starts a gather: one tile or window for each request.
///
/// The iterator is advanced lazily, as tiles are started, so it may run over an index of a million files. It is
/// polled on the async runtime and should not block. Reading starts at once, on the runtime of the caller, or on
/// that of the session if the caller has none.
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
/// [`ErrorKind::InvalidInput`] for an invalid option; [`ErrorKind::Unavailable`] if no
/// runtime can be started. Errors of a file are in its row.
pub fn gather<I>(session: &Session, requests: I, options: Options) -> Result<Gather>
where
    I: IntoIterator<Item = Request>,
    I::IntoIter: Send + 'static,
{
    options.check()?;
    // `spawn` needs a runtime, and callers of the blocking API have none.
    let handle = match Handle::try_current() {
        Ok(handle) => handle,
        Err(_) => session.runtime()?.handle().clone(),
    };
    // Unbounded, because `buffer_bytes` bounds the rows: with a bound of its own the driver could wait to send.
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
