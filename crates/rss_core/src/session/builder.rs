//! What a session is built from: settings, the environment, stores and headers of the user's own.

use std::{
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use super::{Inner, Session, budget::Budget, header_sizes::HeaderSizes, parse_duration};
use crate::{
    error::{Error, ErrorKind, Result},
    proj,
    store::{
        BucketOptions, CacheSettings, FileCache, HostHeaders, Limits, Meter, Network, Notices,
        OwnStores, Registry, StoreOptions, of_io,
    },
};

/// The settings of a [`SessionBuilder`].
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) cache_dir: Option<PathBuf>,
    pub(crate) cache_ttl: Option<Duration>,
    pub(crate) cache_max_bytes: Option<u64>,
    pub(crate) downloads: usize,
    pub(crate) cpu_threads: usize,
    pub(crate) read_bytes: u64,
    pub(crate) budget_bytes: u64,
    pub(crate) gap_bytes: u64,
    pub(crate) fetch_bytes: u64,
    pub(crate) requests_per_host: usize,
    pub(crate) gdal_threads: usize,
    pub(crate) gdal_options: Vec<(String, String)>,
    pub(crate) gdal_reads: GdalReads,
    pub(crate) gdal_block_bytes: u64,
    pub(crate) connect_timeout: Duration,
    pub(crate) read_timeout: Duration,
    pub(crate) retry_for: Duration,
    pub(crate) deadline: Duration,
    pub(crate) retries: Option<u32>,
    pub(crate) backoff: Duration,
    pub(crate) notices: Notices,
}

impl Settings {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            connect_timeout: self.connect_timeout,
            read_timeout: self.read_timeout,
            retry_for: self.retry_for,
            deadline: self.deadline,
            retries: self.retries,
            backoff: self.backoff,
            requests_per_host: self.requests_per_host,
        }
    }
}

/// How GDAL reaches the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GdalReads {
    /// By its own file systems: `/vsis3/`, `/vsigs/`, `/vsiaz/`, `/vsicurl/`. Their settings and
    /// caches belong to the process. They follow every redirect, also to a private host, repeat few of
    /// the requests that fail, and may mix the pixels of two versions of a file that is replaced while it
    /// is read.
    Vsi,
    /// Through the session's stores, as the COG backend does: their connections, limits, retries,
    /// redirects and signatures; no listing, and an error where a file is replaced while it is read.
    #[default]
    Stores,
}

impl FromStr for GdalReads {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "stores" => Ok(Self::Stores),
            "vsi" => Ok(Self::Vsi),
            _ => Err(Error::new(
                ErrorKind::InvalidInput,
                format!("`{text}` is not one of stores, vsi"),
            )),
        }
    }
}

/// Builds a [`Session`].
#[derive(Clone, Debug)]
#[must_use]
pub struct SessionBuilder {
    settings: Settings,
    store: StoreOptions,
    own_stores: OwnStores,
    headers: HostHeaders,
    of_buckets: BucketOptions,
    /// What was wrong with a header or an option, for `build`.
    wrong: Option<String>,
    http_client: Option<reqwest::Client>,
}

impl Default for SessionBuilder {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(4, usize::from);
        Self {
            settings: Settings {
                cache_dir: None,
                cache_ttl: None,
                cache_max_bytes: None,
                downloads: 8,
                cpu_threads: cores,
                read_bytes: 4 << 30,
                budget_bytes: 1 << 30,
                gap_bytes: 64 << 10,
                fetch_bytes: 2 << 20,
                requests_per_host: 256,
                gdal_threads: cores.max(4),
                gdal_options: Vec::new(),
                gdal_reads: GdalReads::default(),
                gdal_block_bytes: 512 << 20,
                connect_timeout: Duration::from_secs(5),
                read_timeout: Duration::from_secs(30),
                retry_for: Duration::from_secs(300),
                deadline: Duration::MAX,
                retries: None,
                backoff: Duration::from_millis(100),
                notices: Notices::default(),
            },
            store: StoreOptions::default(),
            own_stores: OwnStores::new(),
            headers: HostHeaders::default(),
            of_buckets: BucketOptions::default(),
            wrong: None,
            http_client: None,
        }
    }
}

impl SessionBuilder {
    /// Starts from the environment: `RSS_CACHE_DIR`, `RSS_CACHE_TTL` (a time as of [`parse_duration`]),
    /// `RSS_CACHE_MAX_BYTES`, `RSS_DOWNLOADS`, `RSS_RETRY_FOR` (a time), `RSS_GDAL_READS` (`stores` or `vsi`),
    /// `RSS_GDAL_BLOCK_BYTES`, and every `AWS_*`, `AZURE_*` and `GOOGLE_*`
    /// variable that `object_store` knows, with GDAL's `AWS_NO_SIGN_REQUEST`, `AWS_S3_ENDPOINT`,
    /// `AWS_HTTPS` and `AWS_VIRTUAL_HOSTING` understood too. `XDG_CACHE_HOME` and `HOME` say where the
    /// file cache is; `PC_SDK_SUBSCRIPTION_KEY` goes with requests for Planetary Computer tokens. `RSS_HEADERS`
    /// is a file with a header of a host on each line, `https://example.org Authorization: Bearer TOKEN`; see
    /// [`SessionBuilder::header`]. `RSS_BUCKETS` is a file with an option of a bucket on each line,
    /// `s3://bucket aws_endpoint=https://s3.example.org`; see [`SessionBuilder::bucket_option`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] naming a variable whose value is wrong.
    pub fn from_env() -> Result<Self> {
        let mut builder = Self::default();
        // The user's cache folder, in order of preference.
        let mut homes: [Option<PathBuf>; 3] = Default::default();
        for (name, value) in std::env::vars_os() {
            let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else {
                continue;
            };
            // An empty variable counts as unset.
            if value.is_empty() {
                continue;
            }
            builder = match name {
                // The XDG specification requires that a relative path is ignored.
                "XDG_CACHE_HOME" if Path::new(value).is_absolute() => {
                    homes[0] = Some(PathBuf::from(value));
                    builder
                }
                "LOCALAPPDATA" => {
                    homes[1] = Some(PathBuf::from(value));
                    builder
                }
                "HOME" => {
                    homes[2] = Some(Path::new(value).join(".cache"));
                    builder
                }
                "PC_SDK_SUBSCRIPTION_KEY" => builder.store_option(name, value),
                "RSS_CACHE_DIR" => builder.cache_dir(value),
                "RSS_HEADERS" => {
                    let text = std::fs::read_to_string(value).map_err(|err| of_io(&err));
                    let added = text.and_then(|text| builder.headers.add_lines(&text));
                    added.map_err(|err| {
                        let message = format!("RSS_HEADERS: {}", err.message());
                        err.with_message(message).at(value)
                    })?;
                    builder
                }
                "RSS_BUCKETS" => {
                    let text = std::fs::read_to_string(value).map_err(|err| of_io(&err));
                    let set = text.and_then(|text| builder.of_buckets.set_lines(&text));
                    set.map_err(|err| {
                        let message = format!("RSS_BUCKETS: {}", err.message());
                        err.with_message(message).at(value)
                    })?;
                    builder
                }
                "RSS_CACHE_TTL" => builder.cache_ttl(time(name, value)?),
                "RSS_RETRY_FOR" => builder.retry_for(time(name, value)?),
                "RSS_CACHE_MAX_BYTES" => builder.cache_max_bytes(number(name, value)?),
                "RSS_DOWNLOADS" => {
                    let n = number(name, value)?;
                    builder.downloads(usize::try_from(n).unwrap_or(usize::MAX))
                }
                "RSS_GDAL_READS" => {
                    let reads = value.parse();
                    builder.gdal_reads(reads.map_err(|err: Error| err.at(name))?)
                }
                "RSS_GDAL_BLOCK_BYTES" => builder.gdal_block_bytes(number(name, value)?),
                _ if ["AWS_", "AZURE_", "GOOGLE_"]
                    .iter()
                    .any(|prefix| name.starts_with(prefix)) =>
                {
                    builder.store_option(name, value)
                }
                _ => builder,
            };
        }
        if builder.settings.cache_dir.is_none() {
            let home = homes.into_iter().flatten().next();
            builder.settings.cache_dir = home.map(|home| home.join("rss"));
        }
        Ok(builder)
    }

    /// Sets the root of the file cache. Default: none; [`SessionBuilder::from_env`] finds `rss` in the
    /// user's cache folder.
    pub fn cache_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.settings.cache_dir = Some(dir.into());
        self
    }

    /// Sets the TTL of cached files: an older one is requested again, by its ETag if it has one.
    /// Default: none, a cached file does not expire.
    pub fn cache_ttl(mut self, ttl: Duration) -> Self {
        self.settings.cache_ttl = Some(ttl);
        self
    }

    /// Bounds the file cache in bytes: whenever a file is added, the least recently used ones are
    /// evicted. Files in use by a running call stay, so a call larger than the bound keeps all it
    /// fetched, and nothing evicts at its end: the next file that is added does. Default: no bound.
    pub fn cache_max_bytes(mut self, bytes: u64) -> Self {
        self.settings.cache_max_bytes = Some(bytes);
        self
    }

    /// Sets how many files are downloaded at once (at least 1). Default: 8.
    pub fn downloads(mut self, n: usize) -> Self {
        self.settings.downloads = n.max(1);
        self
    }

    /// Sets the threads of the CPU pool (at least 1). Default: one per core.
    pub fn cpu_threads(mut self, n: usize) -> Self {
        self.settings.cpu_threads = n.max(1);
        self
    }

    /// Bounds the bytes of pixels that one read may return: a header that states a huge image must not
    /// take all memory. Default: 4 GiB.
    pub fn read_bytes(mut self, bytes: u64) -> Self {
        self.settings.read_bytes = bytes;
        self
    }

    /// Sets the size of each of the session's two byte budgets, so memory is bounded by twice as much.
    /// Default: 1 GiB.
    ///
    /// One counts compressed bytes that the COG reader and Zarr arrays have fetched and not yet decoded;
    /// a request that is larger than the budget waits until it can run alone. The other one counts work
    /// under way: blocks of `apply`, shards of a cube that is written, and images of `sample`; work that
    /// is larger than the budget is [`ErrorKind::InvalidInput`]. In both, a share that is not free is
    /// waited for.
    ///
    /// Not counted are headers, files of this machine, all that GDAL fetches, and the pixels that a read
    /// returns; [`SessionBuilder::read_bytes`] bounds those of one read.
    pub fn budget_bytes(mut self, bytes: u64) -> Self {
        self.settings.budget_bytes = bytes;
        self
    }

    /// Sets the concurrency limit of requests to one host (at least 1); more wait. GDAL's own requests
    /// are not counted. Default: 256.
    pub fn requests_per_host(mut self, n: usize) -> Self {
        self.settings.requests_per_host = n.max(1);
        self
    }

    /// Sets the largest gap in bytes between two tiles of one range request: the bytes of the gap are
    /// fetched and discarded. Default: 64 KiB.
    pub fn gap_bytes(mut self, bytes: u64) -> Self {
        self.settings.gap_bytes = bytes;
        self
    }

    /// Bounds the bytes of one range request for tiles; a larger tile is fetched by itself. Smaller
    /// requests run in parallel, larger ones are fewer. Default: 2 MiB.
    pub fn fetch_bytes(mut self, bytes: u64) -> Self {
        self.settings.fetch_bytes = bytes.max(1);
        self
    }

    /// Sets the threads that call GDAL (at least 1). Default: one per core, at least 4.
    pub fn gdal_threads(mut self, n: usize) -> Self {
        self.settings.gdal_threads = n.max(1);
        self
    }

    /// Sets a GDAL configuration option for this session's GDAL threads, such as
    /// `GDAL_DISABLE_READDIR_ON_OPEN` or `VSI_CACHE`. Overrides the session's own choice.
    pub fn gdal_option(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.gdal_options.push((name.into(), value.into()));
        self
    }

    /// Sets how [`Backend::Gdal`](crate::Backend::Gdal) and `get()` reach the network. Default:
    /// through the session's stores.
    pub fn gdal_reads(mut self, reads: GdalReads) -> Self {
        self.settings.gdal_reads = reads;
        self
    }

    /// Bounds the decoded bytes of one block (a tile or a strip, with all bands that lie in it side by side) that GDAL
    /// reads: it holds one whole, whatever window is asked for. A larger one is [`ErrorKind::Unsupported`]. The COG
    /// reader has the same bound, which cannot be changed. Default: 512 MiB.
    pub fn gdal_block_bytes(mut self, bytes: u64) -> Self {
        self.settings.gdal_block_bytes = bytes;
        self
    }

    /// Sets a store option by `object_store`'s name; see [`StoreOptions`].
    pub fn store_option(mut self, name: &str, value: impl Into<String>) -> Self {
        self.store.set(name, value);
        self
    }

    /// Sets a store option of one bucket or container (`s3://bucket`, `gs://bucket`, `az://container`): a server of its own,
    /// other keys, another region. A bucket with an option has none of the session's others, nor those of the environment,
    /// so that the keys of one server are not sent to another one.
    ///
    /// ```
    /// use rss_core::Session;
    ///
    /// // Copernicus Data Space Ecosystem, beside Amazon's buckets.
    /// let session = Session::builder()
    ///     .bucket_option("s3://eodata", "aws_endpoint", "https://eodata.dataspace.copernicus.eu")
    ///     .bucket_option("s3://eodata", "aws_access_key_id", "key")
    ///     .bucket_option("s3://eodata", "aws_secret_access_key", "secret")
    ///     .build()?;
    /// # Ok::<_, rss_core::Error>(())
    /// ```
    pub fn bucket_option(mut self, bucket: &str, name: &str, value: &str) -> Self {
        if let Err(err) = self.of_buckets.set(bucket, name, value) {
            self.wrong.get_or_insert_with(|| err.message().to_owned());
        }
        self
    }

    /// Reads all objects of a bucket (`s3://bucket`, `gs://bucket`), a container (`az://container`) or a host
    /// (`https://host`) through a store of one's own: in memory, of another protocol, with credentials that change, or
    /// wrapped for tests. Paths in the store are the keys; of a host, the paths of its URLs, without their queries.
    ///
    /// Cubes can be written there too, COGs cannot. The session's retries, limits per host and [`Traffic`](crate::Traffic) do not hold
    /// there: they are the store's own business.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use object_store::{ObjectStoreExt, memory::InMemory};
    /// use rss_core::{Backend, Location, ReadRequest, Session};
    ///
    /// # async fn read() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = Arc::new(InMemory::new());
    /// let bytes = std::fs::read("scene.tif")?;
    /// store.put(&"scenes/a.tif".into(), bytes.into()).await?;
    ///
    /// let session = Session::builder().store("s3://mine", store).build()?;
    /// let place = Location::parse("s3://mine/scenes/a.tif")?;
    /// let raster = rss_core::reader::open(&session, &place, Backend::Auto).await?;
    /// let pixels = raster.read(&ReadRequest::new()).await?;
    /// # let _ = pixels; Ok(()) }
    /// ```
    pub fn store(
        mut self,
        place: impl Into<String>,
        store: Arc<dyn object_store::ObjectStore>,
    ) -> Self {
        self.own_stores.push((place.into(), store));
        self
    }

    /// Sends a header with every request to a host (`https://example.org`, with its port if it has one): of a search, a
    /// file, a cube. It goes to no other scheme, host or port, by no redirect, and is in no log. Not with requests that
    /// GDAL sends by itself ([`GdalReads::Vsi`]).
    pub fn header(mut self, host: &str, name: &str, value: &str) -> Self {
        if let Err(err) = self.headers.add(host, name, value) {
            self.wrong.get_or_insert_with(|| err.message().to_owned());
        }
        self
    }

    /// Sends `Authorization: Bearer TOKEN` with every request to a host; see [`SessionBuilder::header`].
    pub fn bearer_token(self, host: &str, token: &str) -> Self {
        self.header(host, "authorization", &format!("Bearer {token}"))
    }

    /// Sends requests through a client of one's own: with a proxy, certificates, or a resolver. It must not follow
    /// redirects (`reqwest::redirect::Policy::none()`): the session does, by its own rules. Hosts that a catalogue on the
    /// network names, and those of redirects from public servers, are reached by the session's client, which connects to
    /// no private address.
    pub fn http_client(mut self, client: reqwest::Client) -> Self {
        self.http_client = Some(client);
        self
    }

    /// Sends S3 requests to another endpoint, path style, such as `http://127.0.0.1:9000`.
    pub fn s3_endpoint(self, url: &str) -> Self {
        self.store_option("aws_endpoint", url)
    }

    /// Sets the time to wait for a connection. Default: 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// Sets the time to wait for the first or the next bytes of a response. Default: 30 s.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.settings.read_timeout = timeout;
        self
    }

    /// Sets how long a server is asked again that does not answer, or says that it is overloaded: 408, 425, 429, 502, 503,
    /// 504, no connection, or one that breaks. Counted from the first failure of a request. Default: 5 minutes; zero
    /// does not retry.
    ///
    /// All requests to a host that is away share one wait: when it is over they fail together, and later ones ask once.
    pub fn retry_for(mut self, time: Duration) -> Self {
        self.settings.retry_for = time;
        self
    }

    /// Sets the time after which a request is not retried any more, whatever the reason; a search has a deadline of its
    /// own besides. Default: none.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = deadline;
        self
    }

    /// Bounds how often a failed request is retried, whatever the reason. Default: as often as
    /// [`SessionBuilder::retry_for`] allows where the server is away, 6 times where it fails (500) or its answer breaks the
    /// protocol, twice where the host's name is unknown or its body drips.
    pub fn retries(mut self, retries: u32) -> Self {
        self.settings.retries = Some(retries);
        self
    }

    /// Sets the pause before the first retry; it doubles with each one, to 10 s, and up to half of each is left out at
    /// random. Default: 0.1 s.
    pub fn backoff(mut self, first: Duration) -> Self {
        self.settings.backoff = first;
        self
    }

    /// Has long waits for the network told: which host, what is wrong, since when. Each call is one line, from any
    /// thread; nothing secret is in it. Default: nobody is told.
    pub fn notify(mut self, tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.settings.notices = Notices::new(tell);
        self
    }

    /// Builds the session. Makes no request and starts no thread.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if a store of one's own stands for no bucket, container or host, or a header
    /// cannot be sent.
    pub fn build(self) -> Result<Session> {
        proj::use_proj();
        let meter = Meter::default();
        let notices = self.settings.notices.clone();
        if let Some(wrong) = self.wrong {
            return Err(Error::new(ErrorKind::InvalidInput, wrong));
        }
        let network = Network::new(
            self.settings.limits(),
            meter.clone(),
            notices,
            self.headers,
            self.http_client,
        );
        Ok(Session(Arc::new(Inner {
            cache: FileCache::new(
                CacheSettings {
                    root: self.settings.cache_dir.clone(),
                    ttl: self.settings.cache_ttl,
                    max_bytes: self.settings.cache_max_bytes,
                },
                self.store.clone(),
            ),
            stores: Registry::new(self.store, self.of_buckets, network, self.own_stores)?,
            meter,
            // Two budgets of one size: see docs/decisions/003-byte-budget.md.
            budget: Budget::new(self.settings.budget_bytes),
            work: Budget::new(self.settings.budget_bytes),
            settings: self.settings,
            cpu: OnceLock::new(),
            gdal: Mutex::new(None),
            header_sizes: HeaderSizes::default(),
            fallbacks: Mutex::default(),
            notes: Mutex::default(),
            runtime: OnceLock::new(),
        })))
    }
}

fn time(name: &str, value: &str) -> Result<Duration> {
    parse_duration(value)
        .map_err(|err| Error::new(err.kind(), format!("{name}: {}", err.message())))
}

fn number(name: &str, value: &str) -> Result<u64> {
    value.parse().map_err(|_| {
        Error::new(
            ErrorKind::InvalidInput,
            format!("{name} is `{value}`, expected a whole number"),
        )
    })
}
