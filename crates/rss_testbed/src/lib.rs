//! A STAC API and an S3 server on loopback, in this process: real protocols, slow and faulty at will.
//!
//! Tests, benches and the demo of `rss_core` run against it, so none of them needs a network. The
//! S3 protocol is spoken by `s3s`, the STAC API by `stac-server`; in front of both stands one HTTP
//! layer that keeps a log, adds latency and limits bandwidth, and breaks answers by rule.
//!
//! ```
//! use rss_testbed::{Service, Testbed};
//!
//! let bed = Testbed::builder().start()?;
//! bed.put("dea-public-data", "a.txt", "hello");
//! assert!(bed.s3_endpoint().starts_with("http://127.0.0.1:"));
//! assert_eq!(bed.log().iter().filter(|r| r.service == Service::S3).count(), 0);
//! # Ok::<_, anyhow::Error>(())
//! ```

mod catalogue;
mod cog;
mod fault;
mod front;
mod objects;
mod plain;
mod profile;
mod s3;
mod scene;
mod stac_api;
mod uploads;
mod volume;

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use bytes::Bytes;
use serde_json::Value;
use tokio::{net::TcpListener, runtime::Runtime};

use self::{catalogue::Catalogue, front::Front, objects::Objects, uploads::Uploads};
pub use self::{
    cog::{Layout, geotiff},
    fault::{Fault, Rule},
    front::{Request, Service},
    profile::Profile,
    scene::{BUCKET, Band, SCENE, Scene, Scenes},
    stac_api::Paging,
    volume::{NODATA, Volume},
};

/// The key that may sign requests; unsigned ones are answered too, as a public bucket does.
pub const ACCESS_KEY: &str = "testbed";
/// The secret of [`ACCESS_KEY`].
pub const SECRET_KEY: &str = "testbed-secret";

/// Builds a [`Testbed`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    profile: Profile,
    scenes: Scenes,
    paging: Paging,
    page_size: Option<usize>,
    bare_nan: bool,
}

impl Builder {
    /// Sets the time before the first byte of each answer. Default: none.
    pub fn latency(mut self, latency: Duration) -> Self {
        self.profile.latency = latency;
        self
    }

    /// Adds a time between nothing and `jitter` to each latency, from a fixed seed.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.profile.jitter = jitter;
        self
    }

    /// Limits each connection to so many bytes per second.
    pub fn bandwidth(mut self, bytes_per_second: u64) -> Self {
        self.profile.connection = Some(bytes_per_second.max(1));
        self
    }

    /// Sets all that a network does to answers: latency, jitter, bandwidth.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// Makes scenes and their items. Default: none.
    pub fn scenes(mut self, scenes: Scenes) -> Self {
        self.scenes = scenes;
        self
    }

    /// Pages and filters as a provider does. Default: DEA.
    pub fn paging(mut self, paging: Paging) -> Self {
        self.paging = paging;
        self
    }

    /// Sets the items of a page where the request names no limit.
    pub fn page_size(mut self, items: usize) -> Self {
        self.page_size = Some(items.max(1));
        self
    }

    /// Writes a bare `NaN` into the nodata of `oa_*` assets, as DEA's server does.
    pub fn bare_nan(mut self) -> Self {
        self.bare_nan = true;
        self
    }

    /// Makes the scenes and starts the servers on free ports.
    ///
    /// # Errors
    ///
    /// If a port cannot be bound or a scene cannot be written.
    pub fn start(self) -> Result<Testbed> {
        Testbed::start(self)
    }
}

/// The running servers. Dropping it stops them.
#[derive(Debug)]
pub struct Testbed {
    front: Arc<Front>,
    objects: Arc<Objects>,
    uploads: Arc<Uploads>,
    catalogue: Catalogue,
    scenes: Vec<Scene>,
    s3: SocketAddr,
    plain: SocketAddr,
    stac: SocketAddr,
    /// Kept last: the servers run until it is dropped.
    runtime: Option<Runtime>,
}

impl Testbed {
    /// Starts a builder.
    pub fn builder() -> Builder {
        Builder {
            profile: Profile::default(),
            scenes: Scenes::None,
            paging: Paging::Dea,
            page_size: None,
            bare_nan: false,
        }
    }

    fn start(builder: Builder) -> Result<Self> {
        let scenes = builder.scenes.make()?;
        let objects = Arc::new(Objects::default());
        let uploads = Arc::new(Uploads::default());
        for scene in &scenes {
            for (key, path) in &scene.files {
                objects.put_file(BUCKET, key, path)?;
            }
        }
        let front = Arc::new(Front::new(builder.profile, Arc::clone(&objects)));
        let catalogue = Catalogue::default();
        for item in scenes
            .iter()
            .map(|scene| scene.item.clone())
            .chain(builder.scenes.others())
        {
            catalogue.add(item)?;
        }

        // A thread of its own starts the runtime, so that a testbed starts inside a runtime too.
        let started = std::thread::scope(|scope| {
            let job = scope.spawn(|| -> Result<_> {
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(2)
                    .thread_name("testbed")
                    .enable_all()
                    .build()?;
                let addresses = runtime.block_on(async {
                    let bind = || TcpListener::bind(("127.0.0.1", 0));
                    let (s3, plain, stac) = (bind().await?, bind().await?, bind().await?);
                    let addresses = (s3.local_addr()?, plain.local_addr()?, stac.local_addr()?);
                    let api = stac_api::router(
                        catalogue.clone(),
                        builder.paging,
                        builder.page_size,
                        builder.bare_nan,
                        &format!("http://{}", addresses.2),
                    )?;
                    let service = s3::service(Arc::clone(&objects), Arc::clone(&uploads));
                    tokio::spawn(Arc::clone(&front).serve_s3(s3, service));
                    tokio::spawn(Arc::clone(&front).serve_plain(plain));
                    tokio::spawn(Arc::clone(&front).serve_stac(stac, api));
                    anyhow::Ok(addresses)
                })?;
                Ok((runtime, addresses))
            });
            job.join()
                .map_err(|_| anyhow::anyhow!("the testbed's starter panicked"))
        })??;
        let (runtime, (s3, plain, stac)) = started;
        Ok(Self {
            front,
            objects,
            uploads,
            catalogue,
            scenes,
            s3,
            plain,
            stac,
            runtime: Some(runtime),
        })
    }

    /// Returns the root of the STAC API; its search is at `/search` below.
    pub fn stac_url(&self) -> String {
        format!("http://{}/stac", self.stac)
    }

    /// Returns the S3 endpoint, for path-style requests.
    pub fn s3_endpoint(&self) -> String {
        format!("http://{}", self.s3)
    }

    /// Returns the plain HTTP address of an object: ranges and `HEAD`, no listing.
    pub fn http_url(&self, bucket: &str, key: &str) -> String {
        format!("http://{}/{bucket}/{key}", self.plain)
    }

    /// Returns the plain HTTP address of an object that needs a SAS token of the STAC server.
    pub fn blob_url(&self, container: &str, key: &str) -> String {
        format!("http://{}/sas/{container}/{key}", self.plain)
    }

    /// Returns the template of the addresses that give SAS tokens.
    pub fn sas_url(&self) -> String {
        format!(
            "http://{}/api/sas/v1/token/{{account}}/{{container}}",
            self.stac
        )
    }

    /// Adds an empty bucket, which can be written to.
    pub fn add_bucket(&self, bucket: &str) {
        self.objects.add_bucket(bucket);
    }

    /// Returns the keys of a bucket that start with a prefix, sorted.
    pub fn keys(&self, bucket: &str, prefix: &str) -> Vec<String> {
        let found = self.objects.list(bucket, prefix);
        found.into_iter().map(|(key, _)| key).collect()
    }

    /// Returns the uploads in parts to a bucket that are neither complete nor aborted: the key of each, and
    /// how many parts it has.
    pub fn uploads(&self, bucket: &str) -> Vec<(String, usize)> {
        self.uploads.list(bucket)
    }

    /// Returns the bytes of an object, if it is there.
    pub fn object(&self, bucket: &str, key: &str) -> Option<Bytes> {
        Some(self.objects.get(bucket, key)?.bytes)
    }

    /// Adds or replaces an object.
    pub fn put(&self, bucket: &str, key: &str, bytes: impl Into<Bytes>) {
        self.objects.put(bucket, key, bytes.into());
    }

    /// Removes an object, if it is there.
    pub fn remove(&self, bucket: &str, key: &str) {
        self.objects.remove(bucket, key);
    }

    /// Adds or replaces an object by another of its bucket: both share their bytes.
    ///
    /// # Errors
    ///
    /// If there is no object at `from`.
    pub fn link(&self, bucket: &str, from: &str, to: &str) -> Result<()> {
        let is_there = self.objects.link(bucket, from, to);
        anyhow::ensure!(is_there, "no object {bucket}/{from}");
        Ok(())
    }

    /// Adds or replaces an object by a file, mapped and not read.
    ///
    /// # Errors
    ///
    /// If the file cannot be mapped.
    pub fn put_file(&self, bucket: &str, key: &str, path: &Path) -> Result<()> {
        self.objects
            .put_file(bucket, key, path)
            .with_context(|| path.display().to_string())
    }

    /// Adds a STAC item; its collection is made if it is new.
    ///
    /// # Errors
    ///
    /// If it is no STAC item, or names no collection.
    pub fn add_item(&self, item: Value) -> Result<()> {
        self.catalogue.add(item)
    }

    /// Returns the scenes that were made.
    pub fn scenes(&self) -> &[Scene] {
        &self.scenes
    }

    /// Returns the requests so far, in the order they came.
    pub fn log(&self) -> Vec<Request> {
        self.front.log()
    }

    /// Returns the requests to one service so far.
    pub fn requests(&self, service: Service) -> Vec<Request> {
        let mut log = self.log();
        log.retain(|request| request.service == service);
        log
    }

    /// Returns how many requests were under way at once, at most, since the log was cleared.
    pub fn peak(&self) -> usize {
        self.front.peak()
    }

    /// Forgets the requests so far.
    pub fn clear_log(&self) {
        self.front.clear_log();
    }

    /// Breaks answers by a rule, from now on.
    pub fn fault(&self, rule: Rule) {
        self.front.add_rule(rule);
    }

    /// Forgets all rules.
    pub fn clear_faults(&self) {
        self.front.clear_rules();
    }

    /// Changes the latency.
    pub fn set_latency(&self, latency: Duration) {
        self.front.set_latency(latency);
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
