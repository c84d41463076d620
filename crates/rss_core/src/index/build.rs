//! Building an index: each header is read once, many concurrently, and an interrupted build resumes.
//!
//! Headers go into the journal as they arrive; the index is written from the journal when all are read. The journal
//! is removed last, after the index is synced to disk, so a crash at any point loses no more than a few headers.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use stac::ItemCollection;
use tokio::{sync::mpsc, task::JoinSet};

use super::{
    assemble::assemble,
    disk::{on_disk, partial_of},
    file::temporary,
    inputs::{BuildPlan, HeaderJob, Input, IsOwn, Known},
    journal::{Journal, Name},
    merge::merge_indexes,
    open::Index,
    pack,
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::{Location, Trust},
    query::QueryResult,
    reader::{self, Backend, Entry, OpenOptions},
    session::Session,
};

/// The default number of files that are read concurrently.
const CONCURRENCY: usize = 64;
/// The most entries of a record of the journal. Many in one record compress well, and cost one write.
const RECORD_ENTRIES: usize = 64;

type ProgressCallback = Arc<dyn Fn(&BuildProgress) + Send + Sync>;

/// The progress of a build.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildProgress {
    /// Finished files: read by this build or by an interrupted one, or failed.
    pub files_done: usize,
    /// All files of the build.
    pub files_total: usize,
    /// Requests of the session so far.
    pub requests: u64,
    /// Bytes that the session has received so far.
    pub bytes: u64,
}

/// The report of a build.
#[derive(Debug)]
#[non_exhaustive]
pub struct BuildReport {
    /// Files of the build, each counted once.
    pub files: usize,
    /// Files with an entry in the index.
    pub ok: usize,
    /// Of these, files that an interrupted build had read.
    pub resumed: usize,
    /// Files without an entry, with the error, by location. The index holds their items without an entry.
    pub failed: Vec<Failed>,
    /// Items of the index.
    pub items: u64,
    /// Requests of this build.
    pub requests: u64,
    /// Bytes received by this build.
    pub bytes: u64,
    /// The index.
    pub output: PathBuf,
    /// Bytes of the index.
    pub output_bytes: u64,
    /// What a reader should know, one sentence each: what is left out of addresses though it may have selected the file,
    /// files without a version, geometries and properties that are other than in the items.
    pub notes: Vec<String>,
}

/// Says which parameters of addresses an index does not hold.
fn notes(left_out: &BTreeSet<String>) -> Vec<String> {
    match left_out
        .iter()
        .take(10)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ")
    {
        none if none.is_empty() => Vec::new(),
        names => vec![format!(
            "the index holds no parameter of an address that may be a secret, and not these: {names}; files that differ in \
             them alone are one to it"
        )],
    }
}

/// Files whose servers tell nothing but their size.
#[derive(Debug, Default)]
struct Versionless {
    count: usize,
    first: Option<String>,
}

impl Versionless {
    fn see(&mut self, entry: &Entry) {
        if !entry.version.is_told() {
            self.count += 1;
            self.first.get_or_insert_with(|| entry.location.to_string());
        }
    }

    fn note(&self) -> Option<String> {
        let first = self.first.as_ref()?;
        Some(format!(
            "{} files have no version, as {first}: their server sends neither ETag nor Last-Modified. A read notices a \
             replacement by another size only; `rss index check` compares their headers",
            self.count
        ))
    }
}

/// A file that could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failed {
    /// Its location, without query string or credentials.
    pub location: String,
    /// The error.
    pub error: Error,
}

/// Builds an index of files; see [`Builder::build`].
#[derive(Clone)]
#[must_use]
pub struct Builder {
    session: Session,
    assets: Option<Vec<String>>,
    concurrency: usize,
    progress: Option<ProgressCallback>,
    append_to: Option<PathBuf>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("assets", &self.assets)
            .field("concurrency", &self.concurrency)
            .field("append_to", &self.append_to)
            .finish_non_exhaustive()
    }
}

/// The input of a build.
#[derive(Clone, Debug)]
pub struct BuildSource(Input);

impl BuildSource {
    /// Takes STAC items. Their asset hrefs must be absolute, of a scheme that `trust` allows.
    pub fn items(items: ItemCollection, trust: Trust) -> Self {
        Self(Input::Items(items.items, trust))
    }

    /// Takes files without a catalogue. Each becomes an item with one asset, `data`: its id is
    /// the file's name, or its path if two files share a name; its geometry comes from the header, if
    /// its CRS can be transformed to degrees; its datetime from the name, if that holds exactly one date.
    pub fn locations(locations: impl IntoIterator<Item = Location>) -> Self {
        Self(Input::Locations(locations.into_iter().collect()))
    }

    /// Takes all files with the extension of a TIFF below a prefix of a bucket or a local folder. Costs a listing.
    pub fn prefix(prefix: Location) -> Self {
        Self(Input::Prefix(prefix))
    }

    /// Takes the items of a stac-geoparquet file; its columns are copied unchanged, without secrets. They may name any
    /// file: see [`BuildSource::parquet_of_others`].
    pub fn parquet(path: impl Into<PathBuf>) -> Self {
        Self(Input::Parquet(path.into(), None))
    }

    /// Takes the items of a stac-geoparquet file that somebody else made: of this machine they may name the files of which
    /// `is_own` is true, and no link-local host. What they name besides is a file that was not indexed.
    pub fn parquet_of_others(
        path: impl Into<PathBuf>,
        is_own: impl Fn(&Path) -> bool + Send + Sync + 'static,
    ) -> Self {
        let is_own = IsOwn(Arc::new(is_own));
        Self(Input::Parquet(path.into(), Some(is_own)))
    }
}

impl From<&QueryResult> for BuildSource {
    fn from(found: &QueryResult) -> Self {
        Self(Input::Items(found.items.items.clone(), found.trust))
    }
}

impl Builder {
    /// Returns a builder with the defaults: all assets that are GeoTIFFs, 64 files concurrently.
    pub fn new(session: &Session) -> Self {
        Self {
            session: session.clone(),
            assets: None,
            concurrency: CONCURRENCY,
            progress: None,
            append_to: None,
        }
    }

    /// Indexes these assets only. The default is assets that are GeoTIFFs, by media type or else by file extension,
    /// except thumbnails. Files without a catalogue have one asset, `data`.
    pub fn assets(mut self, keys: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.assets = Some(keys.into_iter().map(Into::into).collect());
        self
    }

    /// Sets how many files are read concurrently (at least 1).
    pub fn concurrency(mut self, files: usize) -> Self {
        self.concurrency = files.max(1);
        self
    }

    /// Calls `callback` whenever a file is finished.
    pub fn progress(mut self, callback: impl Fn(&BuildProgress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(callback));
        self
    }

    /// Appends to an index: its entries stay, and files that have one are not read again. An item that the index
    /// already holds is replaced, except for assets that only the old one has.
    pub fn append_to(mut self, existing: impl Into<PathBuf>) -> Self {
        self.append_to = Some(existing.into());
        self
    }

    /// Reads the header of each file and writes the index to `output`.
    ///
    /// Headers are stored in a journal, `<output>.partial`, until the index is complete. An interrupted build (a
    /// dropped future, a killed process) resumes from it when it is started again with the same inputs; files
    /// that failed are tried again. The index appears complete or not at all.
    ///
    /// Costs one request for each file in the usual case. Memory is that of the inputs, some
    /// dozens of bytes for each file, and of one row group.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is nothing to index; [`ErrorKind::InvalidInput`] if no item has an asset that is
    /// named, and if the journal belongs to another build; [`ErrorKind::Corrupt`] if the input is not stac-geoparquet, or the index to append to is not an
    /// index; errors of the file system and, for a listing, of the store. Errors of single files are in the
    /// report.
    pub async fn build(
        &self,
        source: BuildSource,
        output: impl AsRef<Path>,
    ) -> Result<BuildReport> {
        let output = output.as_ref();
        let before = self.session.traffic();
        let known = match &self.append_to {
            Some(path) => {
                let path = path.clone();
                on_disk(move |_| Known::of(&Index::open(path)?)).await?
            }
            None => Known::default(),
        };
        let mut plan = BuildPlan::of(&self.session, source.0, self.assets.clone(), known).await?;
        let mut notes = notes(&plan.left_out);
        if plan.is_empty() && self.append_to.is_none() {
            return Err(Error::new(ErrorKind::NotFound, "nothing to index"));
        }
        // The digest covers all files of the plan: a journal of other inputs is refused, not silently mixed in.
        let partial = partial_of(output);
        let digest = plan.digest;
        let journal = on_disk(move |_| Journal::open(&partial, &digest)).await?;
        let mut jobs = std::mem::take(&mut plan.jobs);
        let files = jobs.len() + plan.refused.len();
        // Failed files are not in the journal, so a resumed build tries them again.
        jobs.retain(|job| !journal.holds(job.name));
        let resumed = files - plan.refused.len() - jobs.len();
        let refused = plan.refused.drain(..);
        let mut failed: Vec<Failed> = refused
            .map(|(location, error)| Failed { location, error })
            .collect();
        let progress = Progress {
            callback: self.progress.clone(),
            session: self.session.clone(),
            files_total: files,
            files_done: resumed + failed.len(),
        };
        let mut bare = Versionless::default();
        let mut journal = self
            .read(jobs, journal, &mut failed, &mut bare, progress)
            .await?;
        notes.extend(bare.note());
        failed.sort_by(|a, b| a.location.cmp(&b.location));

        let ok = files - failed.len();
        let (keys, append_to) = (self.assets.clone(), self.append_to.clone());
        let to = output.to_owned();
        let (items, output_bytes, more) = on_disk(move |stop| {
            let written = match append_to {
                None => {
                    let written = assemble(plan, keys.as_deref(), &mut journal, &to, stop)?;
                    (written.items, written.bytes, written.notes)
                }
                Some(existing) => {
                    // The new items become an index of their own first, so that `append` and `merge` share one rule.
                    let fresh = temporary(&to)?;
                    let keys = keys.as_deref();
                    let written = assemble(plan, keys, &mut journal, fresh.path(), stop)?;
                    let info = merge_indexes(&[existing.as_path(), fresh.path()], &to, stop)?;
                    (info.items, info.bytes, written.notes)
                }
            };
            // Last: the index is synced and in its final path, so a crash before this only leaves a stale journal.
            journal.remove()?;
            Ok(written)
        })
        .await?;
        notes.extend(more);
        let after = self.session.traffic();
        Ok(BuildReport {
            files,
            ok,
            resumed,
            failed,
            items,
            requests: after.requests.saturating_sub(before.requests),
            bytes: after.bytes.saturating_sub(before.bytes),
            output: output.to_owned(),
            output_bytes,
            notes,
        })
    }

    /// Reads headers into the journal, and returns it when all are written.
    async fn read(
        &self,
        jobs: Vec<HeaderJob>,
        journal: Journal,
        failed: &mut Vec<Failed>,
        bare: &mut Versionless,
        mut progress: Progress,
    ) -> Result<Journal> {
        // Bounded: a slow disk slows the requests down instead of filling memory.
        let (send, receive) = mpsc::channel(2 * RECORD_ENTRIES);
        // The writer ends when the channel closes. If this future is dropped it still writes the entries that had
        // arrived, so the next build does not request them again.
        let writer = tokio::task::spawn_blocking(move || write_journal(journal, receive));
        let mut jobs = jobs.into_iter();
        // Dropped with this future, which aborts the running reads.
        let mut running = JoinSet::new();
        for job in jobs.by_ref().take(self.concurrency) {
            running.spawn(entry(self.session.clone(), job));
        }
        progress.report();
        // One task ends, one starts: the number of concurrent reads stays constant until the jobs run out.
        while let Some(done) = running.join_next().await {
            if let Some(job) = jobs.next() {
                running.spawn(entry(self.session.clone(), job));
            }
            let (name, location, read) = done.map_err(|_| {
                Error::new(
                    ErrorKind::Unavailable,
                    "a task of the build panicked or was cancelled",
                )
            })?;
            match read {
                // The receiver is closed only if the writer failed; its error is returned below.
                Ok(entry) => {
                    bare.see(&entry);
                    if send.send((name, entry)).await.is_err() {
                        break;
                    }
                }
                Err(error) => failed.push(Failed {
                    location: location.to_string(),
                    error,
                }),
            }
            progress.files_done += 1;
            progress.report();
        }
        drop(send);
        writer.await.map_err(|_| {
            Error::new(
                ErrorKind::Unavailable,
                "the journal's task panicked or was cancelled",
            )
        })?
    }
}

/// Reads the index entry of one file: its version and header.
pub(super) async fn entry(session: Session, job: HeaderJob) -> (Name, Location, Result<Entry>) {
    // Only the COG reader has entries. A file that it cannot read fails here, instead of falling back to GDAL.
    let mut options = OpenOptions::new().with_backend(Backend::Cog);
    if let Some(bytes) = job.header_bytes {
        options = options.with_header_bytes(bytes);
    }
    let made = async {
        let open = || reader::open(&session, &job.location, options);
        let mut entry = open().await?.entry().await;
        // Its tables of tiles may be damaged on the way only; a header is fetched once more by `open`.
        let is_damaged = |err: &Error| err.kind() == ErrorKind::Corrupt;
        if job.location.as_local().is_none() && entry.as_ref().is_err_and(is_damaged) {
            entry = open().await?.entry().await;
        }
        let mut entry = entry?;
        entry.version = entry.version.with_checksum(job.checksum);
        pack::check(&entry)?;
        Ok(entry)
    };
    let entry = made.await;
    (job.name, job.location, entry)
}

/// Appends entries as they arrive. Whatever is in the channel becomes one record: larger ones when the disk is slow.
fn write_journal(
    mut journal: Journal,
    mut arriving: mpsc::Receiver<(Name, Entry)>,
) -> Result<Journal> {
    while let Some(first) = arriving.blocking_recv() {
        let mut entries = vec![first];
        while entries.len() < RECORD_ENTRIES
            && let Ok(next) = arriving.try_recv()
        {
            entries.push(next);
        }
        journal.append(&entries)?;
    }
    Ok(journal)
}

struct Progress {
    callback: Option<ProgressCallback>,
    session: Session,
    files_total: usize,
    files_done: usize,
}

impl Progress {
    fn report(&self) {
        if let Some(callback) = &self.callback {
            let traffic = self.session.traffic();
            callback(&BuildProgress {
                files_done: self.files_done,
                files_total: self.files_total,
                requests: traffic.requests,
                bytes: traffic.bytes,
            });
        }
    }
}
