//! Building an index: each header read once, many at once, and nothing lost when it is stopped.

use std::{
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
    inputs::{BuildPlan, HeaderJob, Input, Known},
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

/// Files that are read at once, unless another number is asked for.
const CONCURRENCY: usize = 64;
/// Entries that one record of the journal holds at most.
const RECORD_ENTRIES: usize = 64;

type Tell = Arc<dyn Fn(&BuildProgress) + Send + Sync>;

/// How far a build is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuildProgress {
    /// Files that are finished: read now or by the build before, or failed.
    pub files_done: usize,
    /// All files of the build.
    pub files_total: usize,
    /// Requests of the session so far.
    pub requests: u64,
    /// Bytes that the session received so far.
    pub bytes: u64,
}

/// What a build did.
#[derive(Debug)]
#[non_exhaustive]
pub struct BuildReport {
    /// Files that were to be read, each once.
    pub files: usize,
    /// Those that have an entry now.
    pub ok: usize,
    /// Those of them that an unfinished build had read.
    pub resumed: usize,
    /// Those that have none, and why, by location. The index holds their items without an entry.
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
}

/// A file that could not be read.
#[derive(Debug)]
#[non_exhaustive]
pub struct Failed {
    /// Where it is, without query string or credentials.
    pub location: String,
    /// What went wrong.
    pub error: Error,
}

/// Builds an index of files; see [`Builder::build`].
#[derive(Clone)]
#[must_use]
pub struct Builder {
    session: Session,
    assets: Option<Vec<String>>,
    concurrency: usize,
    progress: Option<Tell>,
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

/// What an index is built of.
#[derive(Clone, Debug)]
pub struct BuildSource(Input);

impl BuildSource {
    /// Takes items as they are, whose asset hrefs are absolute and name what `trust` allows.
    pub fn items(items: ItemCollection, trust: Trust) -> Self {
        Self(Input::Items(items.items, trust))
    }

    /// Takes files that no catalogue describes. Each becomes an item with one asset, `data`: its id is
    /// the file's name, or its path where two files share a name; its place is read from the header, if
    /// its CRS can be turned into degrees; its time from the name, if that holds just one.
    pub fn locations(locations: impl IntoIterator<Item = Location>) -> Self {
        Self(Input::Locations(locations.into_iter().collect()))
    }

    /// Takes all files below a prefix of a bucket, or a local folder, that end as TIFFs do. Costs a
    /// listing.
    pub fn prefix(prefix: Location) -> Self {
        Self(Input::Prefix(prefix))
    }

    /// Takes the items of a stac-geoparquet file; their columns stay as they are.
    pub fn parquet(path: impl Into<PathBuf>) -> Self {
        Self(Input::Parquet(path.into()))
    }
}

impl From<&QueryResult> for BuildSource {
    fn from(found: &QueryResult) -> Self {
        Self(Input::Items(found.items.items.clone(), found.trust))
    }
}

impl Builder {
    /// Starts a builder: all assets that are GeoTIFFs, 64 files at once.
    pub fn new(session: &Session) -> Self {
        Self {
            session: session.clone(),
            assets: None,
            concurrency: CONCURRENCY,
            progress: None,
            append_to: None,
        }
    }

    /// Indexes these assets only. By default those that are GeoTIFFs, by media type or else by their
    /// ending, and no thumbnails. Files without a catalogue have the one asset `data`.
    pub fn assets(mut self, keys: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.assets = Some(keys.into_iter().map(Into::into).collect());
        self
    }

    /// Sets how many files are read at once (at least 1).
    pub fn concurrency(mut self, files: usize) -> Self {
        self.concurrency = files.max(1);
        self
    }

    /// Calls `tell` whenever a file is finished.
    pub fn progress(mut self, tell: impl Fn(&BuildProgress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(tell));
        self
    }

    /// Adds to an index: what it holds is kept, and files that it knows are not asked for. An item that
    /// is there already is replaced, but for assets that only the old one has.
    pub fn append_to(mut self, existing: impl Into<PathBuf>) -> Self {
        self.append_to = Some(existing.into());
        self
    }

    /// Reads the header of each file and writes the index to `output`.
    ///
    /// What was read is kept in `<output>.partial` until the index is there. A build that was stopped,
    /// by dropping the future or by the end of the process, goes on from there when it is started with
    /// the same inputs again; files that failed are tried again. The index appears whole or not at all.
    ///
    /// Costs one request for each file in the usual case. Memory is bounded by what the inputs take, some
    /// dozens of bytes for each file, and a row group.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is nothing to index; [`ErrorKind::InvalidInput`] if another
    /// build's remains are in the way; [`ErrorKind::Corrupt`] for a file of stac-geoparquet, or an index to add to, that is none;
    /// as the file system's and, for a listing, the store's. What happens to single files is in the
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
        if plan.is_empty() && self.append_to.is_none() {
            return Err(Error::new(ErrorKind::NotFound, "nothing to index"));
        }
        let partial = partial_of(output);
        let digest = plan.digest;
        let journal = on_disk(move |_| Journal::open(&partial, &digest)).await?;
        let mut jobs = std::mem::take(&mut plan.jobs);
        let files = jobs.len() + plan.refused.len();
        jobs.retain(|job| !journal.holds(job.name));
        let resumed = files - plan.refused.len() - jobs.len();
        let refused = plan.refused.drain(..);
        let mut failed: Vec<Failed> = refused
            .map(|(location, error)| Failed { location, error })
            .collect();
        let progress = Progress {
            tell: self.progress.clone(),
            session: self.session.clone(),
            files_total: files,
            files_done: resumed + failed.len(),
        };
        let mut journal = self.read(jobs, journal, &mut failed, progress).await?;
        failed.sort_by(|a, b| a.location.cmp(&b.location));

        let ok = files - failed.len();
        let (keys, append_to) = (self.assets.clone(), self.append_to.clone());
        let to = output.to_owned();
        let (items, output_bytes) = on_disk(move |stop| {
            let written = match append_to {
                None => {
                    let written = assemble(plan, keys.as_deref(), &mut journal, &to, stop)?;
                    (written.items, written.bytes)
                }
                Some(existing) => {
                    let fresh = temporary(&to)?;
                    assemble(plan, keys.as_deref(), &mut journal, fresh.path(), stop)?;
                    let info = merge_indexes(&[existing.as_path(), fresh.path()], &to, stop)?;
                    (info.items, info.bytes)
                }
            };
            journal.remove()?;
            Ok(written)
        })
        .await?;
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
        })
    }

    /// Reads headers into the journal.
    async fn read(
        &self,
        jobs: Vec<HeaderJob>,
        journal: Journal,
        failed: &mut Vec<Failed>,
        mut progress: Progress,
    ) -> Result<Journal> {
        let (send, receive) = mpsc::channel(2 * RECORD_ENTRIES);
        // It ends with the channel: where this future is dropped, with what had arrived by then.
        let writer = tokio::task::spawn_blocking(move || keep(journal, receive));
        let mut jobs = jobs.into_iter();
        // Dropped with this future: that cancels what is under way.
        let mut running = JoinSet::new();
        for job in jobs.by_ref().take(self.concurrency) {
            running.spawn(entry(self.session.clone(), job));
        }
        progress.tell();
        while let Some(done) = running.join_next().await {
            if let Some(job) = jobs.next() {
                running.spawn(entry(self.session.clone(), job));
            }
            let (name, location, read) = done
                .map_err(|_| Error::new(ErrorKind::Unavailable, "a task of the build was lost"))?;
            match read {
                // The writer is gone only if it failed; its error follows.
                Ok(entry) => {
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
            progress.tell();
        }
        drop(send);
        writer
            .await
            .map_err(|_| Error::new(ErrorKind::Unavailable, "the journal of the build was lost"))?
    }
}

/// Reads what an index keeps of one file.
pub(super) async fn entry(session: Session, job: HeaderJob) -> (Name, Location, Result<Entry>) {
    let mut options = OpenOptions::new().with_backend(Backend::Cog);
    if let Some(bytes) = job.header_bytes {
        options = options.with_header_bytes(bytes);
    }
    let read = async {
        let raster = reader::open(&session, &job.location, options).await?;
        let mut entry = raster.entry().await?;
        entry.version = entry.version.with_checksum(job.checksum);
        pack::check(&entry)?;
        Ok(entry)
    };
    let read = read.await;
    (job.name, job.location, read)
}

/// Appends what arrives, as many at once as are there.
fn keep(mut journal: Journal, mut arriving: mpsc::Receiver<(Name, Entry)>) -> Result<Journal> {
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
    tell: Option<Tell>,
    session: Session,
    files_total: usize,
    files_done: usize,
}

impl Progress {
    fn tell(&self) {
        if let Some(tell) = &self.tell {
            let traffic = self.session.traffic();
            tell(&BuildProgress {
                files_done: self.files_done,
                files_total: self.files_total,
                requests: traffic.requests,
                bytes: traffic.bytes,
            });
        }
    }
}
