//! Checking an index: one small request for each file tells whether it still has the indexed version.

use std::{collections::HashMap, fmt, path::Path, sync::Arc};

use futures::{StreamExt, stream};

use super::{
    build::{Failed, entry},
    disk::on_disk,
    inputs::HeaderJob,
    journal::Name,
    merge::replace,
    open::Index,
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    reader::{Entry, Version},
    session::Session,
    store::Object,
};

/// The default number of concurrent requests.
const CONCURRENCY: usize = 64;

/// Options of a check.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct CheckOptions {
    /// Checks only so many files, spread evenly over the index; none is all.
    pub sample: Option<usize>,
    /// Reads the headers of changed files again, and writes them into the index.
    pub update: bool,
    /// Concurrent requests; none is 64.
    pub concurrency: Option<usize>,
    progress: Option<Arc<dyn Fn(usize, usize) + Send + Sync>>,
}

impl fmt::Debug for CheckOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckOptions")
            .field("sample", &self.sample)
            .field("update", &self.update)
            .field("concurrency", &self.concurrency)
            .finish_non_exhaustive()
    }
}

impl CheckOptions {
    /// Checks all files and changes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks only so many files, spread evenly over the index.
    #[must_use]
    pub fn with_sample(mut self, files: usize) -> Self {
        self.sample = Some(files);
        self
    }

    /// Updates the entries of changed files.
    #[must_use]
    pub fn with_update(mut self) -> Self {
        self.update = true;
        self
    }

    /// Sets the number of concurrent requests (at least 1).
    #[must_use]
    pub fn with_concurrency(mut self, files: usize) -> Self {
        self.concurrency = Some(files.max(1));
        self
    }

    /// Calls `callback` after each file with the number of files done and of all files.
    #[must_use]
    pub fn with_progress(
        mut self,
        callback: impl Fn(usize, usize) + Send + Sync + 'static,
    ) -> Self {
        self.progress = Some(Arc::new(callback));
        self
    }
}

/// The report of a check.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// Files that were checked.
    pub checked: usize,
    /// Files that still have the indexed version.
    pub ok: usize,
    /// Files that have another version.
    pub changed: Vec<Location>,
    /// Files that do not exist any more.
    pub missing: Vec<Location>,
    /// Files that could not be checked, or whose new header could not be read; the kind of the error
    /// distinguishes denied from unreachable.
    pub failed: Vec<Failed>,
    /// Entries that were updated.
    pub updated: usize,
}

/// Checks whether the files of an index still have the indexed version. Costs one request of one byte for each file;
/// with [`CheckOptions::with_update`] one more for each that changed.
///
/// Versions are compared by ETag, size and modification time. Where a server tells the size alone, and for files of this
/// machine, whose mtime can be set, the header is read and compared with the indexed one: one or two more requests. Not
/// detected is a replacement of the same size and the same header, which the index describes as well as the file before; and
/// without an ETag one within the same second, where the server's times are whole seconds.
///
/// # Errors
///
/// As [`Index::open`]. Errors of single files are in the report. An update is written completely or not
/// at all.
pub async fn check(
    session: &Session,
    path: impl AsRef<Path>,
    options: &CheckOptions,
) -> Result<CheckReport> {
    let path = path.as_ref().to_owned();
    let (from, sample) = (path.clone(), options.sample);
    let files = on_disk(move |_| listed(&from, sample)).await?;
    let total = files.len();
    let mut report = CheckReport::default();
    let mut changed: Vec<(Location, Option<String>)> = Vec::new();
    let mut doubtful: Vec<(Location, Option<String>)> = Vec::new();
    let concurrency = options.concurrency.unwrap_or(CONCURRENCY).max(1);
    let mut asked = stream::iter(files)
        .map(|(location, then)| async move {
            let now = Object::open(session.stores(), &location, 1).await;
            (location, then, now)
        })
        .buffer_unordered(concurrency);
    while let Some((location, then, now)) = asked.next().await {
        report.checked += 1;
        match now {
            // Size and mtime of a file of this machine can be those of another one, too.
            Ok((object, _))
                if !then.differs(object.version())
                    && (!then.is_told() || location.as_local().is_some()) =>
            {
                doubtful.push((location, then.checksum));
            }
            Ok((object, _)) if !then.differs(object.version()) => report.ok += 1,
            Ok(_) => changed.push((location, then.checksum)),
            Err(err) if err.kind() == ErrorKind::NotFound => report.missing.push(location),
            Err(error) => report.failed.push(Failed {
                location: location.to_string(),
                error,
            }),
        }
        if let Some(callback) = &options.progress {
            callback(report.checked, total);
        }
    }
    drop(asked);
    compare(
        session,
        &path,
        doubtful,
        concurrency,
        &mut changed,
        &mut report,
    )
    .await?;
    if options.update && !changed.is_empty() {
        let reads: Vec<_> = changed
            .iter()
            .map(|(location, checksum)| HeaderJob {
                name: Name::of(location),
                location: location.clone(),
                header_bytes: None,
                checksum: checksum.clone(),
            })
            .map(|job| entry(session.clone(), job))
            .collect();
        let mut read = stream::iter(reads).buffer_unordered(concurrency);
        let mut fresh: HashMap<Name, Entry> = HashMap::new();
        while let Some((name, location, entry)) = read.next().await {
            match entry {
                Ok(entry) => {
                    fresh.insert(name, entry);
                }
                Err(error) => report.failed.push(Failed {
                    location: location.to_string(),
                    error,
                }),
            }
        }
        report.updated = fresh.len();
        if !fresh.is_empty() {
            on_disk(move |stop| replace(&path, &fresh, stop)).await?;
        }
    }
    report.changed = changed.into_iter().map(|(location, _)| location).collect();
    report.changed.sort_by_key(ToString::to_string);
    report.missing.sort_by_key(ToString::to_string);
    report.failed.sort_by(|a, b| a.location.cmp(&b.location));
    Ok(report)
}

/// Reads the headers of files whose version says too little, and compares them with those of the index.
async fn compare(
    session: &Session,
    path: &Path,
    doubtful: Vec<(Location, Option<String>)>,
    concurrency: usize,
    changed: &mut Vec<(Location, Option<String>)>,
    report: &mut CheckReport,
) -> Result<()> {
    if doubtful.is_empty() {
        return Ok(());
    }
    let locations: Vec<Location> = doubtful
        .iter()
        .map(|(location, _)| location.clone())
        .collect();
    let path = path.to_owned();
    let indexed = on_disk(move |_| Index::open(&path)?.find(&locations)).await?;
    let reads = doubtful
        .into_iter()
        .zip(indexed)
        .map(|((location, checksum), then)| async move {
            let job = HeaderJob {
                name: Name::of(&location),
                location,
                header_bytes: None,
                checksum: checksum.clone(),
            };
            let (_, location, now) = entry(session.clone(), job).await;
            (location, checksum, then, now)
        });
    let reads: Vec<_> = reads.collect();
    let mut reads = stream::iter(reads).buffer_unordered(concurrency);
    while let Some((location, checksum, then, now)) = reads.next().await {
        match (then, now) {
            (Some(then), Ok(now)) if then.header == now.header => report.ok += 1,
            (_, Ok(_)) => changed.push((location, checksum)),
            // It is there, and no header that can be read: another file.
            (_, Err(err))
                if err.kind() == ErrorKind::Corrupt || err.kind() == ErrorKind::Unsupported =>
            {
                changed.push((location, checksum));
            }
            (_, Err(error)) => report.failed.push(Failed {
                location: location.to_string(),
                error,
            }),
        }
    }
    Ok(())
}

/// Lists the files of an index, each once, or an even sample of them.
fn listed(path: &Path, sample: Option<usize>) -> Result<Vec<(Location, Version)>> {
    let index = Index::open(path)?;
    let mut seen = std::collections::HashSet::new();
    let mut files = Vec::new();
    index.each_file(|listed| {
        if seen.insert(Name::of(&listed.location)) {
            files.push((listed.location, listed.version));
        }
        Ok(())
    })?;
    let Some(sample) = sample else {
        return Ok(files);
    };
    if sample == 0 {
        let message = "a sample of 0 files, expected at least 1";
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    let (count, sample) = (files.len(), sample.min(files.len()));
    let mut number = 0;
    files.retain(|_| {
        // floor(number * sample / count) grows by one at evenly spaced files, `sample` times in all.
        let before = number * sample / count.max(1);
        number += 1;
        number * sample / count.max(1) > before
    });
    Ok(files)
}
