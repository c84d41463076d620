//! Whether the files of an index are still what it says: one small request for each.

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

/// Files that are asked for at once.
const CONCURRENCY: usize = 64;

/// How an index is checked.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct CheckOptions {
    /// Asks for so many files only, spread evenly over the index; none is all.
    pub sample: Option<usize>,
    /// Reads the headers of changed files again, and puts them into the index.
    pub update: bool,
    /// Files at once; none is 64.
    pub concurrency: Option<usize>,
    tell: Option<Arc<dyn Fn(usize, usize) + Send + Sync>>,
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
    /// Asks for all files and changes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for so many files only.
    #[must_use]
    pub fn with_sample(mut self, files: usize) -> Self {
        self.sample = Some(files);
        self
    }

    /// Brings the entries of changed files up to date.
    #[must_use]
    pub fn with_update(mut self) -> Self {
        self.update = true;
        self
    }

    /// Sets how many files are asked for at once (at least 1).
    #[must_use]
    pub fn with_concurrency(mut self, files: usize) -> Self {
        self.concurrency = Some(files.max(1));
        self
    }

    /// Calls `tell` after each file with the files done, and all of them.
    #[must_use]
    pub fn with_progress(mut self, tell: impl Fn(usize, usize) + Send + Sync + 'static) -> Self {
        self.tell = Some(Arc::new(tell));
        self
    }
}

/// What a check found.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct CheckReport {
    /// Files that were asked for.
    pub checked: usize,
    /// Files that are what the index says.
    pub ok: usize,
    /// Files that are others now.
    pub changed: Vec<Location>,
    /// Files that are gone.
    pub missing: Vec<Location>,
    /// Files that could not be asked for, or whose new header could not be read; the kind of the error
    /// tells denied from unreachable.
    pub failed: Vec<Failed>,
    /// Entries that were brought up to date.
    pub updated: usize,
}

/// Asks whether the files of an index are still what it says. Costs one request of one byte for each;
/// with [`CheckOptions::with_update`] one more for each that changed.
///
/// What a request cannot tell is not told: a file without ETag that was replaced by one of the same
/// size within the same second.
///
/// # Errors
///
/// As [`Index::open`]. What happens to single files is in the report. An update is written whole or not
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
            Ok((object, _)) if !then.differs(object.version()) => report.ok += 1,
            Ok(_) => changed.push((location, then.checksum)),
            Err(err) if err.kind() == ErrorKind::NotFound => report.missing.push(location),
            Err(error) => report.failed.push(Failed {
                location: location.to_string(),
                error,
            }),
        }
        if let Some(tell) = &options.tell {
            tell(report.checked, total);
        }
    }
    drop(asked);
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

/// Lists the files of an index, each once.
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
        let message = "a sample of 0 files, expected 1 at least";
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    let (count, sample) = (files.len(), sample.min(files.len()));
    let mut place = 0;
    files.retain(|_| {
        // The number of samples up to a place grows at evenly spread places.
        let before = place * sample / count.max(1);
        place += 1;
        place * sample / count.max(1) > before
    });
    Ok(files)
}
