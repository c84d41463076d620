//! The file cache on disk: each file is fetched once, however many tasks and processes request it.
//!
//! ```text
//! root/entries/ab/<sha256>.tif     a finished file, read-only
//! root/entries/ab/<sha256>.record  its length, checksum, age; written last
//! root/locks/<sha256>              held by the process that writes the file
//! root/tmp/<session>/              unfinished files, and the names of those in use
//! root/partial/<sha256>            a copy that was interrupted, and its record; the next one goes on
//! root/given/, root/links/         which files and links of users came from here
//! root/lock                        held for moments: shared to use, alone to evict
//! ```
//!
//! A file appears under its name by a rename, after it is complete and on the disk. A killed process
//! may leave its session's folder (the next session's first use removes it), a data file without a
//! record (counts as missing; fetched again, or removed by `cleanup` or `clear`), and an empty lock
//! file, whose lock ended with the process.
//!
//! The protocol (locks, order of writes, crashes) is in `docs/decisions/004-file-cache.md`.

mod entry;
mod given;
mod key;
mod scratch;

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions, TryLockError},
    future::Future,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::{Duration, SystemTime},
};

use self::given::Given;
pub(crate) use self::given::GivenAs;
pub use self::key::Mode;
#[cfg(feature = "index")]
pub(crate) use self::key::is_secret;
pub(crate) use self::key::{CacheKey, hex};
use self::{
    entry::{EntryPaths, Found, RECORD_ENDING, Record},
    scratch::{Desk, Pin, Scratch, sessions},
};
use super::{StoreOptions, bucket, fault::of_io};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::Crop,
    location::Location,
};

// Pauses between two attempts to take a lock that another process holds.
const FIRST_POLL: Duration = Duration::from_millis(10);
const SLOWEST_POLL: Duration = Duration::from_millis(200);

/// How long an unfinished copy waits to be gone on with.
const PARTIAL_AGE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Settings of a cache.
#[derive(Clone, Debug, Default)]
pub(crate) struct CacheSettings {
    pub(crate) root: Option<PathBuf>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) max_bytes: Option<u64>,
}

/// The file cache of a session. Shared with other sessions and processes that use its folder.
///
/// ```
/// use rss_core::Session;
///
/// let dir = tempfile::tempdir()?;
/// let session = Session::builder().cache_dir(dir.path()).build()?;
/// assert_eq!(session.cache().stats()?.entries, 0);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FileCache(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: CacheSettings,
    options: StoreOptions,
    scratch: Mutex<Option<Arc<Scratch>>>,
    flights: Mutex<HashMap<String, Weak<Flight>>>,
    /// The bytes counted at the last eviction, plus what this session wrote since; none before the
    /// first count and after a removal. What other processes add is not in it.
    used: Mutex<Option<u64>>,
}

/// One file that is being written, and the tasks of this process that wait for it.
#[derive(Debug, Default)]
struct Flight {
    turn: tokio::sync::Mutex<()>,
    failures: Mutex<Failures>,
}

#[derive(Debug, Default)]
struct Failures {
    count: u64,
    last: Option<(ErrorKind, String, Option<String>)>,
}

/// The counts that [`FileCache::stats`] returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Finished files.
    pub entries: u64,
    /// Bytes of finished files.
    pub bytes: u64,
    /// Finished files past their TTL.
    pub expired: u64,
    /// Files that dead processes left unfinished.
    pub leftovers: u64,
    /// Bytes of the leftovers.
    pub leftover_bytes: u64,
}

/// Counts of removed files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Removed {
    /// Finished files removed.
    pub entries: u64,
    /// Bytes freed, those of leftovers included.
    pub bytes: u64,
    /// Files that dead processes left: unfinished ones, and those without a record.
    pub leftovers: u64,
    /// Files that stay because a running call uses them.
    pub in_use: u64,
    /// Files that stay because symbolic links of users point to them.
    pub linked: u64,
    /// Bytes by which the cache is larger than its bound all the same; 0 where it has none.
    pub over_bytes: u64,
}

/// A request to write one file of the cache.
#[derive(Debug)]
pub(crate) struct FillRequest {
    /// Where the file is to be written.
    pub(crate) path: PathBuf,
    /// The ETag of an expired file, for a conditional request.
    pub(crate) etag: Option<String>,
    /// Where an unfinished copy is left, to go on from.
    pub(crate) partial: PathBuf,
}

/// The result of a [`FillRequest`].
#[derive(Debug)]
pub(crate) enum Made {
    /// The file is written.
    Written {
        /// The source's ETag.
        etag: Option<String>,
        /// The SHA-256 in hexadecimal digits, if it was computed while writing.
        sha256: Option<String>,
        /// Another checksum that was compared with the catalogue's.
        checked: Option<String>,
    },
    /// The source still has the version of the expired file (HTTP 304).
    Unchanged,
}

/// A file in the cache; it is not evicted while this is held.
#[derive(Debug)]
pub(crate) struct CachedFile {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// The checksum in hexadecimal digits.
    pub(crate) sha256: String,
    /// Another checksum that it had when it was fetched.
    pub(crate) checked: Option<String>,
    /// True for a cache hit: nothing was fetched.
    pub(crate) hit: bool,
    pin: Pin,
}

impl FileCache {
    pub(crate) fn new(mut settings: CacheSettings, options: StoreOptions) -> Self {
        // Links into the cache must not depend on the working directory.
        settings.root = settings
            .root
            .map(|root| std::path::absolute(&root).unwrap_or(root));
        Self(Arc::new(Inner {
            settings,
            options,
            scratch: Mutex::default(),
            flights: Mutex::default(),
            used: Mutex::default(),
        }))
    }

    /// Returns the folder of the cache.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the session was built without one.
    pub fn root(&self) -> Result<&Path> {
        self.0.settings.root.as_deref().ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidInput,
                "no cache folder: set RSS_CACHE_DIR, or `cache_dir` of the session's builder",
            )
        })
    }

    /// Returns the key of a file of this cache.
    pub(crate) fn key(&self, location: &Location, crop: Option<&Crop>, mode: Mode) -> CacheKey {
        let authority = bucket::authority(location, &self.0.options);
        CacheKey::new(location, authority.as_deref(), crop, mode)
    }

    /// Returns the file of `key`: the cached one, or the one that `make` writes. However many tasks
    /// and processes request it at once, one of them writes it.
    ///
    /// # Errors
    ///
    /// Those of `make`, which all waiting tasks of this process get; [`ErrorKind::Denied`],
    /// [`ErrorKind::InvalidInput`] and [`ErrorKind::Unavailable`] for a folder that cannot be
    /// written, is a file, or is full.
    pub(crate) async fn get_or_make<F, M>(&self, key: &CacheKey, make: F) -> Result<CachedFile>
    where
        F: FnOnce(FillRequest) -> M,
        M: Future<Output = Result<Made>>,
    {
        if let Some(file) = self.blocking(key, Self::hit).await? {
            tracing::debug!(
                file = key.file_name(),
                bytes = file.bytes,
                "found in the file cache"
            );
            return Ok(file);
        }
        // Locks are taken in one order: tasks of this process, `locks/<key>`, `root/lock`. See "Who may
        // do what, in which order" in docs/decisions/004-file-cache.md.
        let flight = self.flight(key);
        // Counted before the wait: a failure in the meantime is the result for all who waited, so that
        // a file that cannot be fetched is not requested once for each of them.
        let failures = flight.failures();
        let _turn = flight.turn.lock().await;
        if let Some(err) = flight.failed_since(failures) {
            return Err(err);
        }
        let lock = MakeLock::take(&self.root()?.join("locks"), key.digest()).await?;
        // Another task or process may have written it in the meantime.
        if let Some(file) = self.blocking(key, Self::hit).await? {
            return Ok(file);
        }
        let made = self.make(key, lock, make).await;
        match &made {
            Ok(file) => {
                tracing::debug!(
                    file = key.file_name(),
                    bytes = file.bytes,
                    "added to the file cache"
                );
            }
            Err(err) => flight.fail(err),
        }
        made
    }

    async fn make<F, M>(&self, key: &CacheKey, lock: MakeLock, make: F) -> Result<CachedFile>
    where
        F: FnOnce(FillRequest) -> M,
        M: Future<Output = Result<Made>>,
    {
        let (paths, stale, desk, pin) = self
            .blocking(key, |cache, key| {
                let scratch = cache.scratch()?;
                let desk = scratch.desk().map_err(|err| cache.io_error(&err))?;
                // An eviction holds the lock alone while it reads the pins: it sees this pin, or ends
                // before this entry is looked at.
                let _using = cache.lock_shared()?;
                let pin = scratch
                    .pin(key.digest())
                    .map_err(|err| cache.io_error(&err))?;
                let paths = EntryPaths::of(&cache.root()?.join("entries"), key);
                let stale = match paths.look(key, cache.0.settings.ttl) {
                    Found::Stale(record) => Some(record),
                    Found::Fresh { .. } | Found::Missing => None,
                };
                Ok((paths, stale, desk, pin))
            })
            .await?;
        let order = FillRequest {
            path: desk.path().join(key.file_name()),
            etag: stale.as_ref().and_then(|record| record.etag.clone()),
            partial: self.partial()?.join(key.digest()),
        };
        let path = order.path.clone();
        let made = match make(order).await {
            Ok(made) => made,
            Err(err) => {
                // The error need not name a full disk as its cause: the disk is probed while the unfinished
                // file still takes its space.
                let full = self
                    .blocking(key, move |_, _| Ok(desk.disk_is_full()))
                    .await?;
                return Err(match full {
                    true => self.io_error(&io::Error::from(io::ErrorKind::StorageFull)),
                    false => err,
                });
            }
        };
        let file = self
            .blocking(key, move |cache, key| {
                // Both are held until this thread ends, even if the caller's future was dropped: an
                // entry is published completely or not at all, by the holder of its lock.
                let _lock = lock;
                let desk: Desk = desk;
                let record = match (made, stale) {
                    (
                        Made::Written {
                            etag,
                            sha256,
                            checked,
                        },
                        _,
                    ) => {
                        let record = Record::of_made(key, &path, sha256, etag, checked)
                            .map_err(|err| cache.io_error(&err))?;
                        paths
                            .publish(&path, desk.path(), &record)
                            .map_err(|err| cache.io_error(&err))?;
                        cache.count(record.bytes);
                        record
                    }
                    (Made::Unchanged, Some(stale)) => {
                        let record = stale.renewed();
                        paths
                            .write_record(desk.path(), &record)
                            .map_err(|err| cache.io_error(&err))?;
                        record
                    }
                    (Made::Unchanged, None) => {
                        return Err(Error::new(
                            ErrorKind::Corrupt,
                            "the server reports `not modified` for a request without an ETag",
                        ));
                    }
                };
                cache.evict_to_fit();
                Ok(CachedFile {
                    path: paths.data,
                    bytes: record.bytes,
                    sha256: record.sha256,
                    checked: record.checked,
                    hit: false,
                    pin,
                })
            })
            .await?;
        Ok(file)
    }

    /// Returns the file of `key` if it is there, complete and within its TTL.
    fn hit(&self, key: &CacheKey) -> Result<Option<CachedFile>> {
        let scratch = self.scratch()?;
        let paths = EntryPaths::of(&self.root()?.join("entries"), key);
        // The pin comes before the look: an entry that was found first could be evicted in between.
        let pin = {
            let _using = self.lock_shared()?;
            scratch
                .pin(key.digest())
                .map_err(|err| self.io_error(&err))?
        };
        Ok(match paths.look(key, self.0.settings.ttl) {
            Found::Fresh { record, verified } => {
                if verified {
                    self.stamp(key.digest(), &paths, &record);
                }
                paths.touch();
                Some(CachedFile {
                    path: paths.data,
                    bytes: record.bytes,
                    sha256: record.sha256,
                    checked: record.checked,
                    hit: true,
                    pin,
                })
            }
            Found::Stale(_) | Found::Missing => None,
        })
    }

    /// Replaces the record of data whose checksum was computed, so that the next look need not. Not where another process
    /// makes the file: its record must stay the last one.
    fn stamp(&self, digest: &str, paths: &EntryPaths, record: &Record) {
        let stamp = || -> Result<()> {
            let lock = MakeLock::try_take(&self.root()?.join("locks"), digest);
            let desk = self.scratch()?.desk().map_err(|err| self.io_error(&err))?;
            if lock.is_some() {
                let _ = paths.write_record(desk.path(), record);
            }
            Ok(())
        };
        // If this fails, the checksum is computed again.
        let _ = stamp();
    }

    /// Gives a file of the cache a second name; false if it has one, or can have none there.
    ///
    /// # Errors
    ///
    /// Of the file system, if a file of this name is there.
    pub(crate) fn hard_link(&self, file: &CachedFile, path: &Path) -> io::Result<bool> {
        let digest = file.pin.digest();
        let paths = EntryPaths {
            record: file
                .path
                .with_file_name(format!("{digest}.{RECORD_ENDING}")),
            data: file.path.clone(),
        };
        let lock = self
            .root()
            .ok()
            .and_then(|root| MakeLock::try_take(&root.join("locks"), digest));
        let desk = self.scratch().ok().and_then(|scratch| scratch.desk().ok());
        let scratch = desk.as_ref().filter(|_| lock.is_some()).map(Desk::path);
        match paths.hard_link(path, scratch) {
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => Err(err),
            // Another file system, one without such links, or too many of them.
            Err(_) => Ok(false),
            linked => linked,
        }
    }

    /// Records that a user has a file at `path`.
    pub(crate) fn give(&self, file: &CachedFile, given: GivenAs, path: &Path) -> Result<()> {
        let meta = fs::metadata(&file.path).map_err(|err| self.io_error(&err))?;
        let record = Given {
            digest: file.pin.digest().to_owned(),
            sha256: file.sha256.clone(),
            stamp: given::stamp(&meta),
            path: path.to_owned(),
        };
        record
            .record(self.root()?, given)
            .map_err(|err| self.io_error(&err))
    }

    /// Returns the SHA-256 of what was given as the file at `path`; none if nothing was.
    pub(crate) fn given_sha256(&self, path: &Path) -> Option<String> {
        Some(Given::of_path(self.root().ok()?, GivenAs::File, path)?.sha256)
    }

    /// Returns true if `get` put a file at this path from this cache, as a file that was not changed since, or as a link.
    pub fn has_given(&self, path: &Path) -> bool {
        let Ok(path) = std::path::absolute(path) else {
            return false;
        };
        let entries = self.0.entries_dir();
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_symlink() => {
                fs::read_link(&path).is_ok_and(|target| is_inside(&target, &entries))
            }
            Ok(_) => {
                let root = self.root().ok();
                let given = root.and_then(|root| Given::of_path(root, GivenAs::File, &path));
                given.is_some_and(|given| given.is_there())
            }
            Err(_) => false,
        }
    }

    /// Counts the files of the cache. Reads the folder; sends no request.
    ///
    /// # Errors
    ///
    /// As [`FileCache::clear`].
    pub fn stats(&self) -> Result<CacheStats> {
        let mut stats = CacheStats::default();
        if !self.exists()? {
            return Ok(stats);
        }
        let _using = self.lock_shared()?;
        for entry in self.entries()? {
            stats.entries += 1;
            stats.bytes += entry.record.bytes;
            stats.expired += u64::from(self.is_expired(&entry.record));
        }
        let found = sessions(&self.tmp()?).map_err(|err| self.io_error(&err))?;
        for dead in found.dead {
            let (files, bytes) = weigh(&dead);
            stats.leftovers += files;
            stats.leftover_bytes += bytes;
        }
        for path in abandoned(&self.partial()?) {
            stats.leftovers += 1;
            stats.leftover_bytes += path.metadata().map_or(0, |meta| meta.len());
        }
        Ok(stats)
    }

    /// Removes every file of `location`, whatever its crop and mode.
    ///
    /// # Errors
    ///
    /// As [`FileCache::clear`].
    pub fn invalidate(&self, location: &Location) -> Result<Removed> {
        let authority = bucket::authority(location, &self.0.options);
        let source = key::source_digest(location, authority.as_deref());
        self.remove_if(|entry| entry.record.source == source, false)
    }

    /// Removes the file of one key.
    pub(crate) fn forget(&self, key: &CacheKey) -> Result<()> {
        self.remove_if(|entry| entry.record.key == key.digest(), true)
            .map(|_| ())
    }

    /// Removes expired and damaged files, what dead processes left, and the least recently used files past the bound. Files
    /// that a running call uses stay, and files that symbolic links point to.
    ///
    /// # Errors
    ///
    /// As [`FileCache::clear`].
    pub fn cleanup(&self) -> Result<Removed> {
        let mut removed = self.remove_if(|entry| self.is_expired(&entry.record), false)?;
        let swept = self.sweep()?;
        removed.bytes += swept.bytes;
        removed.leftovers += swept.leftovers;
        let fitted = self.fit()?;
        removed.entries += fitted.entries;
        removed.bytes += fitted.bytes;
        removed.in_use = removed.in_use.max(fitted.in_use);
        removed.linked = removed.linked.max(fitted.linked);
        removed.over_bytes = fitted.over_bytes;
        Ok(removed)
    }

    /// Counts the cache, and evicts the least recently used files past its bound; nothing where it has none. Every call that
    /// fetches files ends with it, when nothing of its own is in use any more.
    ///
    /// # Errors
    ///
    /// As [`FileCache::clear`].
    pub fn fit(&self) -> Result<Removed> {
        match self.0.settings.max_bytes {
            Some(most) if self.exists()? => self.evict(most),
            _ => Ok(Removed::default()),
        }
    }

    /// Removes all files except those that a running call uses, and those that symbolic links point to.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Denied`], [`ErrorKind::InvalidInput`], [`ErrorKind::Unavailable`] if the
    /// folder cannot be read or changed.
    pub fn clear(&self) -> Result<Removed> {
        let mut removed = self.remove_if(|_| true, false)?;
        let swept = self.sweep()?;
        removed.bytes += swept.bytes;
        removed.leftovers += swept.leftovers;
        Ok(removed)
    }

    fn exists(&self) -> Result<bool> {
        match fs::metadata(self.root()?.join("entries")) {
            Ok(found) => Ok(found.is_dir()),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(err) => Err(self.io_error(&err)),
        }
    }

    fn partial(&self) -> Result<PathBuf> {
        Ok(self.root()?.join("partial"))
    }

    /// Removes unfinished copies that nobody works on and that are older than `age`. Returns files and bytes.
    fn drop_partial(&self, age: Duration) -> Result<(u64, u64)> {
        let (mut files, mut bytes) = (0, 0);
        for path in abandoned(&self.partial()?) {
            let meta = path.metadata().ok();
            let is_old = meta.as_ref().is_some_and(|meta| {
                let changed = meta.modified().ok();
                changed
                    .and_then(|time| time.elapsed().ok())
                    .is_none_or(|past| past >= age)
            });
            // The lock is taken again: a copy may have begun since.
            let file = File::open(&path)
                .ok()
                .filter(|file| is_old && file.try_lock().is_ok());
            if file.is_some() && fs::remove_file(&path).is_ok() {
                let mut record = path.into_os_string();
                record.push(".json");
                let _ = fs::remove_file(record);
                files += 1;
                bytes += meta.map_or(0, |meta| meta.len());
            }
        }
        Ok((files, bytes))
    }

    fn tmp(&self) -> Result<PathBuf> {
        Ok(self.root()?.join("tmp"))
    }

    fn is_expired(&self, record: &Record) -> bool {
        self.0
            .settings
            .ttl
            .is_some_and(|ttl| record.is_expired(ttl, SystemTime::now()))
    }

    /// Removes the entries that `unwanted` picks and no session pins (with `pinned`: pinned ones too).
    /// Files without a record are not entries: [`FileCache::sweep`] removes them.
    fn remove_if(&self, unwanted: impl Fn(&FolderEntry) -> bool, pinned: bool) -> Result<Removed> {
        let mut removed = Removed::default();
        if !self.exists()? {
            return Ok(removed);
        }
        let _alone = self.lock_alone()?;
        let in_use = sessions(&self.tmp()?)
            .map_err(|err| self.io_error(&err))?
            .pinned;
        let linked = given::linked(self.root()?, &self.0.entries_dir());
        for entry in self.entries()? {
            if !unwanted(&entry) {
                continue;
            }
            if !pinned && linked.contains(&entry.record.key) {
                removed.linked += 1;
                continue;
            }
            if !pinned && in_use.contains(&entry.record.key) {
                removed.in_use += 1;
                continue;
            }
            entry.paths.remove().map_err(|err| self.io_error(&err))?;
            removed.entries += 1;
            removed.bytes += entry.record.bytes;
        }
        // The next eviction counts again.
        *lock(&self.0.used) = None;
        Ok(removed)
    }

    /// Removes what dead processes left: their folders, and data without a record.
    fn sweep(&self) -> Result<Removed> {
        let mut removed = Removed::default();
        if !self.exists()? {
            return Ok(removed);
        }
        let _alone = self.lock_alone()?;
        let found = sessions(&self.tmp()?).map_err(|err| self.io_error(&err))?;
        for dead in found.dead {
            let (files, bytes) = weigh(&dead);
            fs::remove_dir_all(&dead).map_err(|err| self.io_error(&err))?;
            removed.leftovers += files;
            removed.bytes += bytes;
        }
        let (files, bytes) = self.drop_partial(Duration::ZERO)?;
        removed.leftovers += files;
        removed.bytes += bytes;
        given::sweep(self.root()?, &self.0.entries_dir());
        for path in self.files()? {
            let digest = path.file_stem().and_then(|stem| stem.to_str());
            // A live session that pins the key may be between the two renames of `publish`.
            let Some(digest) = digest.filter(|digest| !found.pinned.contains(*digest)) else {
                continue;
            };
            // Data and record belong together by key, name and length; neither counts alone.
            let is_whole =
                Record::read(&path.with_extension(RECORD_ENDING)).is_some_and(|record| {
                    let paths = EntryPaths::new(&self.0.entries_dir(), digest, &record.file);
                    fs::metadata(&paths.data).is_ok_and(|meta| meta.len() == record.bytes)
                        && (path == paths.data || path == paths.record)
                });
            if !is_whole {
                removed.bytes += path.metadata().map_or(0, |meta| meta.len());
                removed.leftovers += 1;
                entry::remove(&path).map_err(|err| self.io_error(&err))?;
            }
        }
        Ok(removed)
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        let list = |dir: &Path| -> io::Result<Vec<PathBuf>> {
            match fs::read_dir(dir) {
                Ok(found) => found.map(|entry| Ok(entry?.path())).collect(),
                Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
                Err(err) => Err(err),
            }
        };
        let mut files = Vec::new();
        for dir in list(&self.0.entries_dir()).map_err(|err| self.io_error(&err))? {
            files.extend(list(&dir).map_err(|err| self.io_error(&err))?);
        }
        Ok(files)
    }

    fn entries(&self) -> Result<Vec<FolderEntry>> {
        let entries = self.0.entries_dir();
        Ok(self
            .files()?
            .into_iter()
            .filter(|path| {
                path.extension()
                    .is_some_and(|ending| ending == RECORD_ENDING)
            })
            .filter_map(|path| {
                let record = Record::read(&path)?;
                let used = path.metadata().and_then(|meta| meta.modified()).ok()?;
                let paths = EntryPaths::new(&entries, &record.key, &record.file);
                let data = fs::symlink_metadata(&paths.data).ok()?;
                // Another length means that the record describes something else: it is no entry, and its number counts for
                // nothing.
                let is_whole = paths.record == path && data.is_file() && data.len() == record.bytes;
                is_whole.then_some(FolderEntry {
                    paths,
                    record,
                    used,
                })
            })
            .collect())
    }

    fn count(&self, bytes: u64) {
        if let Some(used) = lock(&self.0.used).as_mut() {
            *used = used.saturating_add(bytes);
        }
    }

    /// Evicts the least recently used files until the rest fits. Pinned files, those that links point to, and files that
    /// cannot be removed, stay.
    fn evict_to_fit(&self) {
        let Some(most) = self.0.settings.max_bytes else {
            return;
        };
        if lock(&self.0.used).is_some_and(|used| used <= most) {
            return;
        }
        // A failed eviction must not fail the call: its file is complete.
        let _ = self.evict(most);
    }

    fn evict(&self, most: u64) -> Result<Removed> {
        let mut removed = Removed::default();
        // Alone from the read of the pins to the last removal: nobody can pin an entry in between.
        let _alone = self.lock_alone()?;
        let mut entries = self.entries()?;
        let total = |entries: &[FolderEntry]| -> u64 {
            let bytes = entries.iter().map(|entry| entry.record.bytes);
            bytes.fold(0, u64::saturating_add)
        };
        let mut used = total(&entries);
        if used > most {
            let in_use = sessions(&self.tmp()?)
                .map_err(|err| self.io_error(&err))?
                .pinned;
            let linked = given::linked(self.root()?, &self.0.entries_dir());
            entries.sort_by_key(|entry| entry.used);
            for entry in entries {
                if used <= most {
                    break;
                }
                if linked.contains(&entry.record.key) {
                    removed.linked += 1;
                } else if in_use.contains(&entry.record.key) {
                    removed.in_use += 1;
                } else if entry.paths.remove().is_ok() {
                    removed.entries += 1;
                    removed.bytes += entry.record.bytes;
                    used = used.saturating_sub(entry.record.bytes);
                }
            }
        }
        removed.over_bytes = used.saturating_sub(most);
        *lock(&self.0.used) = Some(used);
        Ok(removed)
    }

    /// Returns this session's folder for unfinished files. The first use creates it, and removes the
    /// folders of dead sessions.
    fn scratch(&self) -> Result<Arc<Scratch>> {
        let mut scratch = lock(&self.0.scratch);
        if let Some(scratch) = scratch.as_ref() {
            return Ok(Arc::clone(scratch));
        }
        let root = self.root()?;
        for dir in ["entries", "locks", "tmp"] {
            fs::create_dir_all(root.join(dir)).map_err(|err| self.io_error(&err))?;
        }
        let _alone = self.lock_alone()?;
        let tmp = root.join("tmp");
        for dead in sessions(&tmp).map_err(|err| self.io_error(&err))?.dead {
            // The folder may belong to another user, who alone may remove it.
            let _ = fs::remove_dir_all(dead);
        }
        self.drop_partial(PARTIAL_AGE)?;
        let made = Arc::new(Scratch::create(&tmp).map_err(|err| self.io_error(&err))?);
        *scratch = Some(Arc::clone(&made));
        Ok(made)
    }

    fn lock_alone(&self) -> Result<File> {
        let file = self.lock_file()?;
        supported(file.lock()).map_err(|err| self.io_error(&err))?;
        Ok(file)
    }

    fn lock_shared(&self) -> Result<File> {
        let file = self.lock_file()?;
        supported(file.lock_shared()).map_err(|err| self.io_error(&err))?;
        Ok(file)
    }

    fn lock_file(&self) -> Result<File> {
        OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.root()?.join("lock"))
            .map_err(|err| self.io_error(&err))
    }

    fn flight(&self, key: &CacheKey) -> Arc<Flight> {
        let mut flights = lock(&self.0.flights);
        if let Some(flight) = flights.get(key.digest()).and_then(Weak::upgrade) {
            return flight;
        }
        // The map holds weak references: entries of finished files are removed here.
        flights.retain(|_, flight| flight.strong_count() > 0);
        let flight = Arc::new(Flight::default());
        flights.insert(key.digest().to_owned(), Arc::downgrade(&flight));
        flight
    }

    /// Runs disk work off the runtime's threads.
    async fn blocking<T: Send + 'static>(
        &self,
        key: &CacheKey,
        work: impl FnOnce(&Self, &CacheKey) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (cache, key) = (self.clone(), key.clone());
        tokio::task::spawn_blocking(move || work(&cache, &key))
            .await
            .map_err(|_| Error::new(ErrorKind::Unavailable, "a task of the cache ended early"))?
    }

    /// Turns an I/O error into ours, with the cache's folder as its location.
    fn io_error(&self, err: &io::Error) -> Error {
        let message = match err.kind() {
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
                "the cache folder is a file, expected a directory".to_owned()
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "the cache folder cannot be written".to_owned()
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "no space left for the file cache".to_owned()
            }
            _ => format!("cannot access the file cache: {err}"),
        };
        let kind = match err.kind() {
            io::ErrorKind::AlreadyExists => ErrorKind::InvalidInput,
            _ => of_io(err).kind(),
        };
        let root = self.0.settings.root.as_deref().unwrap_or(Path::new(""));
        Error::new(kind, message).at(root.display())
    }
}

impl Inner {
    fn entries_dir(&self) -> PathBuf {
        self.settings
            .root
            .as_deref()
            .unwrap_or(Path::new(""))
            .join("entries")
    }
}

impl Flight {
    fn failures(&self) -> u64 {
        lock(&self.failures).count
    }

    fn fail(&self, err: &Error) {
        let mut failures = lock(&self.failures);
        failures.count += 1;
        failures.last = Some((
            err.kind(),
            err.message().to_owned(),
            err.location().map(str::to_owned),
        ));
    }

    /// Returns the last failure, if there was one after the first `count`.
    fn failed_since(&self, count: u64) -> Option<Error> {
        let failures = lock(&self.failures);
        let (kind, message, location) = failures.last.clone().filter(|_| failures.count > count)?;
        let err = Error::new(kind, message);
        Some(match location {
            Some(location) => err.at(location),
            None => err,
        })
    }
}

/// One entry of the folder.
struct FolderEntry {
    paths: EntryPaths,
    record: Record,
    used: SystemTime,
}

/// The lock of one key, among all processes: its holder writes the file.
#[derive(Debug)]
struct MakeLock {
    path: PathBuf,
    _file: File,
}

impl MakeLock {
    /// Takes the lock if nobody has it.
    fn try_take(dir: &Path, digest: &str) -> Option<Self> {
        let path = dir.join(digest);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        let file = options.open(&path).ok()?;
        let is_taken = file.try_lock().is_ok() && is_same(&file, &path);
        is_taken.then_some(Self { path, _file: file })
    }

    /// Waits for the lock. Polls: a blocking `lock` would go on in its thread after the future is
    /// dropped.
    async fn take(dir: &Path, digest: &str) -> Result<Self> {
        let path = dir.join(digest);
        let mut pause = FIRST_POLL;
        loop {
            let io_error = |err: &io::Error| of_io(err).at(path.display());
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)
                .map_err(|err| io_error(&err))?;
            match file.try_lock() {
                // The previous holder may have removed the file after this `open`: then the lock is on
                // a file without a name, and another process can lock a new one.
                Ok(()) if is_same(&file, &path) => return Ok(Self { path, _file: file }),
                Ok(()) => continue,
                Err(TryLockError::Error(err)) if err.kind() == io::ErrorKind::Unsupported => {
                    return Ok(Self { path, _file: file });
                }
                Err(TryLockError::Error(err)) => return Err(io_error(&err)),
                Err(TryLockError::WouldBlock) => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(SLOWEST_POLL);
        }
    }
}

impl Drop for MakeLock {
    fn drop(&mut self) {
        // Removed before it is unlocked (fields drop after this). Windows refuses to remove an open file.
        if cfg!(unix) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns true if a path leads into a folder by name, without `..`.
fn is_inside(path: &Path, folder: &Path) -> bool {
    let mut parts = path.components();
    parts.all(|part| part != std::path::Component::ParentDir) && path.starts_with(folder)
}

/// Returns the unfinished copies that nobody works on.
fn abandoned(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_none())
        .filter(|path| File::open(path).is_ok_and(|file| file.try_lock().is_ok()))
        .collect()
}

#[cfg(unix)]
pub(crate) fn is_same(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    match (file.metadata(), fs::metadata(path)) {
        (Ok(a), Ok(b)) => a.ino() == b.ino() && a.dev() == b.dev(),
        _ => false,
    }
}

#[cfg(not(unix))]
pub(crate) fn is_same(_: &File, _: &Path) -> bool {
    true
}

/// Accepts a file system without locks: processes that share a cache there are not protected from
/// each other (docs/decisions/004-file-cache.md, "File systems without locks").
fn supported(locked: io::Result<()>) -> io::Result<()> {
    match locked {
        Err(err) if err.kind() == io::ErrorKind::Unsupported => Ok(()),
        locked => locked,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts the unfinished files in a session's folder, and their bytes.
fn weigh(dir: &Path) -> (u64, u64) {
    let (mut files, mut bytes) = (0, 0);
    for desk in fs::read_dir(dir).into_iter().flatten().flatten() {
        if desk.file_name().to_string_lossy().starts_with('d') {
            for file in fs::read_dir(desk.path()).into_iter().flatten().flatten() {
                files += 1;
                bytes += file.metadata().map_or(0, |meta| meta.len());
            }
        }
    }
    (files, bytes)
}
