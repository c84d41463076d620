//! Files kept on disk, each fetched once however many tasks and processes ask for it.
//!
//! ```text
//! root/entries/ab/<sha256>.tif     a finished file, read-only
//! root/entries/ab/<sha256>.record  its length, checksum, age; written last
//! root/locks/<sha256>              held by the process that makes the file
//! root/tmp/<session>/              unfinished files, and the names of those in use
//! root/lock                        held for moments: shared to use, alone to evict
//! ```
//!
//! A file appears under its name by a rename, after it is whole and on the disk. A process may be
//! killed at any moment: what it leaves lies in its session's folder, and is swept by the next.

mod entry;
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

pub use self::key::Mode;
pub(crate) use self::key::{CacheKey, hex};
#[cfg(feature = "index")]
pub(crate) use self::key::{has_secrets, without_secrets};
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

const FIRST_POLL: Duration = Duration::from_millis(10);
const SLOWEST_POLL: Duration = Duration::from_millis(200);

/// How a cache is set up.
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
    /// The bytes in the cache at the last count and since; none before the first count.
    used: Mutex<Option<u64>>,
}

/// One file in the making, and those who wait for it.
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

/// What [`FileCache::stats`] counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Finished files.
    pub entries: u64,
    /// Bytes of finished files.
    pub bytes: u64,
    /// Finished files past their time.
    pub expired: u64,
    /// Files that dead processes left unfinished.
    pub leftovers: u64,
    /// Bytes of the leftovers.
    pub leftover_bytes: u64,
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Removed {
    /// Finished files removed.
    pub entries: u64,
    /// Bytes freed, leftovers counted.
    pub bytes: u64,
    /// Files that dead processes left unfinished.
    pub leftovers: u64,
    /// Files that stay because a running call uses them.
    pub in_use: u64,
}

/// What a maker is asked for.
#[derive(Debug)]
pub(crate) struct FillRequest {
    /// Where the file is to be written.
    pub(crate) path: PathBuf,
    /// The entity tag of a file past its time: the source may say that it is still good.
    pub(crate) etag: Option<String>,
}

/// What a maker did.
#[derive(Debug)]
pub(crate) enum Made {
    /// The file is written.
    Written {
        /// The source's entity tag.
        etag: Option<String>,
        /// The checksum in hexadecimal digits, if it was taken on the way.
        sha256: Option<String>,
    },
    /// The file past its time is still what the source has.
    Unchanged,
}

/// A file in the cache; it is not evicted while this is held.
#[derive(Debug)]
pub(crate) struct CachedFile {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// The checksum in hexadecimal digits.
    pub(crate) sha256: String,
    /// True if the file was there and nothing was fetched.
    pub(crate) hit: bool,
    _pin: Pin,
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

    /// Returns the file of `key`: the one that is there, or the one that `make` writes. However
    /// many tasks and processes ask at once, one of them makes it.
    ///
    /// # Errors
    ///
    /// Those of `make`, which all who waited for it get; [`ErrorKind::Denied`],
    /// [`ErrorKind::InvalidInput`] and [`ErrorKind::Unavailable`] for a folder that cannot be
    /// written, is a file, or is full.
    pub(crate) async fn get_or_make<F, M>(&self, key: &CacheKey, make: F) -> Result<CachedFile>
    where
        F: FnOnce(FillRequest) -> M,
        M: Future<Output = Result<Made>>,
    {
        if let Some(file) = self.blocking(key, Self::hit).await? {
            return Ok(file);
        }
        let flight = self.flight(key);
        let failures = flight.failures();
        let _turn = flight.turn.lock().await;
        if let Some(err) = flight.failed_since(failures) {
            return Err(err);
        }
        let lock = MakeLock::take(&self.root()?.join("locks"), key.digest()).await?;
        // Another task or process may have made it in the meantime.
        if let Some(file) = self.blocking(key, Self::hit).await? {
            return Ok(file);
        }
        let made = self.make(key, lock, make).await;
        if let Err(err) = &made {
            flight.fail(err);
        }
        made
    }

    async fn make<F, M>(&self, key: &CacheKey, lock: MakeLock, make: F) -> Result<CachedFile>
    where
        F: FnOnce(FillRequest) -> M,
        M: Future<Output = Result<Made>>,
    {
        let (place, stale, desk, pin) = self
            .blocking(key, |cache, key| {
                let scratch = cache.scratch()?;
                let desk = scratch.desk().map_err(|err| cache.wrong(&err))?;
                let _using = cache.lock_shared()?;
                let pin = scratch.pin(key.digest()).map_err(|err| cache.wrong(&err))?;
                let place = EntryPaths::of(&cache.root()?.join("entries"), key);
                let stale = match place.look(key, cache.0.settings.ttl) {
                    Found::Stale(record) => Some(record),
                    Found::Fresh(_) | Found::Missing => None,
                };
                Ok((place, stale, desk, pin))
            })
            .await?;
        let order = FillRequest {
            path: desk.path().join(key.file_name()),
            etag: stale.as_ref().and_then(|record| record.etag.clone()),
        };
        let path = order.path.clone();
        let made = match make(order).await {
            Ok(made) => made,
            Err(err) => {
                let full = self
                    .blocking(key, move |_, _| Ok(desk.disk_is_full()))
                    .await?;
                return Err(match full {
                    true => self.wrong(&io::Error::from(io::ErrorKind::StorageFull)),
                    false => err,
                });
            }
        };
        let file = self
            .blocking(key, move |cache, key| {
                // Both are held to the end of this, even if nobody waits for it any more.
                let _lock = lock;
                let desk: Desk = desk;
                let record = match (made, stale) {
                    (Made::Written { etag, sha256 }, _) => {
                        let record = Record::of_made(key, &path, sha256, etag)
                            .map_err(|err| cache.wrong(&err))?;
                        place
                            .publish(&path, desk.path(), &record)
                            .map_err(|err| cache.wrong(&err))?;
                        cache.count(record.bytes);
                        record
                    }
                    (Made::Unchanged, Some(stale)) => {
                        let record = stale.renewed();
                        place
                            .write_record(desk.path(), &record)
                            .map_err(|err| cache.wrong(&err))?;
                        record
                    }
                    (Made::Unchanged, None) => {
                        return Err(Error::new(
                            ErrorKind::Corrupt,
                            "the server calls a file unchanged that was never sent",
                        ));
                    }
                };
                cache.evict_to_fit();
                Ok(CachedFile {
                    path: place.data,
                    bytes: record.bytes,
                    sha256: record.sha256,
                    hit: false,
                    _pin: pin,
                })
            })
            .await?;
        Ok(file)
    }

    /// Returns the file of `key` if it is there, whole and young enough.
    fn hit(&self, key: &CacheKey) -> Result<Option<CachedFile>> {
        let scratch = self.scratch()?;
        let place = EntryPaths::of(&self.root()?.join("entries"), key);
        let pin = {
            let _using = self.lock_shared()?;
            scratch.pin(key.digest()).map_err(|err| self.wrong(&err))?
        };
        Ok(match place.look(key, self.0.settings.ttl) {
            Found::Fresh(record) => {
                place.touch();
                Some(CachedFile {
                    path: place.data,
                    bytes: record.bytes,
                    sha256: record.sha256,
                    hit: true,
                    _pin: pin,
                })
            }
            Found::Stale(_) | Found::Missing => None,
        })
    }

    /// Counts what the cache holds. Reads the folder; makes no request.
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
        let found = sessions(&self.tmp()?).map_err(|err| self.wrong(&err))?;
        for dead in found.dead {
            let (files, bytes) = weigh(&dead);
            stats.leftovers += files;
            stats.leftover_bytes += bytes;
        }
        Ok(stats)
    }

    /// Removes every file made from `location`, whatever its crop and mode.
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

    /// Removes what is past its time, what is damaged, and what dead processes left.
    ///
    /// # Errors
    ///
    /// As [`FileCache::clear`].
    pub fn cleanup(&self) -> Result<Removed> {
        let mut removed = self.remove_if(|entry| self.is_expired(&entry.record), false)?;
        let swept = self.sweep()?;
        removed.bytes += swept.bytes;
        removed.leftovers += swept.leftovers;
        Ok(removed)
    }

    /// Removes everything but what a running call uses.
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
            Err(err) => Err(self.wrong(&err)),
        }
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

    /// Removes the entries that `unwanted` picks and nobody uses (`pinned`: even if used), and
    /// files without a record.
    fn remove_if(&self, unwanted: impl Fn(&FolderEntry) -> bool, pinned: bool) -> Result<Removed> {
        let mut removed = Removed::default();
        if !self.exists()? {
            return Ok(removed);
        }
        let _alone = self.lock_alone()?;
        let in_use = sessions(&self.tmp()?)
            .map_err(|err| self.wrong(&err))?
            .pinned;
        for entry in self.entries()? {
            if !unwanted(&entry) {
                continue;
            }
            if !pinned && in_use.contains(&entry.record.key) {
                removed.in_use += 1;
                continue;
            }
            entry.place.remove().map_err(|err| self.wrong(&err))?;
            removed.entries += 1;
            removed.bytes += entry.record.bytes;
        }
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
        let found = sessions(&self.tmp()?).map_err(|err| self.wrong(&err))?;
        for dead in found.dead {
            let (files, bytes) = weigh(&dead);
            fs::remove_dir_all(&dead).map_err(|err| self.wrong(&err))?;
            removed.leftovers += files;
            removed.bytes += bytes;
        }
        for path in self.files()? {
            let digest = path.file_stem().and_then(|stem| stem.to_str());
            let Some(digest) = digest.filter(|digest| !found.pinned.contains(*digest)) else {
                continue;
            };
            let is_whole =
                Record::read(&path.with_extension(RECORD_ENDING)).is_some_and(|record| {
                    let place = EntryPaths::new(&self.0.entries_dir(), digest, &record.file);
                    fs::metadata(&place.data).is_ok_and(|meta| meta.len() == record.bytes)
                        && (path == place.data || path == place.record)
                });
            if !is_whole {
                removed.bytes += path.metadata().map_or(0, |meta| meta.len());
                removed.leftovers += 1;
                entry::remove(&path).map_err(|err| self.wrong(&err))?;
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
        for dir in list(&self.0.entries_dir()).map_err(|err| self.wrong(&err))? {
            files.extend(list(&dir).map_err(|err| self.wrong(&err))?);
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
                let place = EntryPaths::new(&entries, &record.key, &record.file);
                (place.record == path && place.data.is_file()).then_some(FolderEntry {
                    place,
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

    /// Evicts the files used longest ago until the rest fits. A file that cannot be removed stays.
    fn evict_to_fit(&self) {
        let Some(most) = self.0.settings.max_bytes else {
            return;
        };
        if lock(&self.0.used).is_some_and(|used| used <= most) {
            return;
        }
        // A cache over its bound is no reason to fail the call that filled it.
        let _ = self.evict(most);
    }

    fn evict(&self, most: u64) -> Result<()> {
        let _alone = self.lock_alone()?;
        let in_use = sessions(&self.tmp()?)
            .map_err(|err| self.wrong(&err))?
            .pinned;
        let mut entries = self.entries()?;
        entries.sort_by_key(|entry| entry.used);
        let mut used: u64 = entries.iter().map(|entry| entry.record.bytes).sum();
        for entry in entries {
            if used <= most {
                break;
            }
            if !in_use.contains(&entry.record.key) && entry.place.remove().is_ok() {
                used = used.saturating_sub(entry.record.bytes);
            }
        }
        *lock(&self.0.used) = Some(used);
        Ok(())
    }

    /// Returns this session's folder for unfinished files, making it and sweeping those of dead
    /// sessions at first use.
    fn scratch(&self) -> Result<Arc<Scratch>> {
        let mut scratch = lock(&self.0.scratch);
        if let Some(scratch) = scratch.as_ref() {
            return Ok(Arc::clone(scratch));
        }
        let root = self.root()?;
        for dir in ["entries", "locks", "tmp"] {
            fs::create_dir_all(root.join(dir)).map_err(|err| self.wrong(&err))?;
        }
        let _alone = self.lock_alone()?;
        let tmp = root.join("tmp");
        for dead in sessions(&tmp).map_err(|err| self.wrong(&err))?.dead {
            // Another user's leftovers may not be ours to remove.
            let _ = fs::remove_dir_all(dead);
        }
        let made = Arc::new(Scratch::create(&tmp).map_err(|err| self.wrong(&err))?);
        *scratch = Some(Arc::clone(&made));
        Ok(made)
    }

    fn lock_alone(&self) -> Result<File> {
        let file = self.lock_file()?;
        supported(file.lock()).map_err(|err| self.wrong(&err))?;
        Ok(file)
    }

    fn lock_shared(&self) -> Result<File> {
        let file = self.lock_file()?;
        supported(file.lock_shared()).map_err(|err| self.wrong(&err))?;
        Ok(file)
    }

    fn lock_file(&self) -> Result<File> {
        OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.root()?.join("lock"))
            .map_err(|err| self.wrong(&err))
    }

    fn flight(&self, key: &CacheKey) -> Arc<Flight> {
        let mut flights = lock(&self.0.flights);
        if let Some(flight) = flights.get(key.digest()).and_then(Weak::upgrade) {
            return flight;
        }
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
            .map_err(|_| Error::new(ErrorKind::Unavailable, "the cache lost a task"))?
    }

    /// Names the cache's folder in an error of the file system.
    fn wrong(&self, err: &io::Error) -> Error {
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
            _ => format!("the file cache: {err}"),
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
    place: EntryPaths,
    record: Record,
    used: SystemTime,
}

/// The right to make one file, among all processes.
#[derive(Debug)]
struct MakeLock {
    path: PathBuf,
    _file: File,
}

impl MakeLock {
    /// Waits for the right. Polls, so that dropping the future ends the wait at once.
    async fn take(dir: &Path, digest: &str) -> Result<Self> {
        let path = dir.join(digest);
        let mut pause = FIRST_POLL;
        loop {
            let wrong = |err: &io::Error| of_io(err).at(path.display());
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)
                .map_err(|err| wrong(&err))?;
            match file.try_lock() {
                // The holder before may have removed the file: then the lock is on nothing.
                Ok(()) if is_same(&file, &path) => return Ok(Self { path, _file: file }),
                Ok(()) => continue,
                Err(TryLockError::Error(err)) if err.kind() == io::ErrorKind::Unsupported => {
                    return Ok(Self { path, _file: file });
                }
                Err(TryLockError::Error(err)) => return Err(wrong(&err)),
                Err(TryLockError::WouldBlock) => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(SLOWEST_POLL);
        }
    }
}

impl Drop for MakeLock {
    fn drop(&mut self) {
        if cfg!(unix) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(unix)]
fn is_same(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    match (file.metadata(), fs::metadata(path)) {
        (Ok(a), Ok(b)) => a.ino() == b.ino() && a.dev() == b.dev(),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_same(_: &File, _: &Path) -> bool {
    true
}

/// Lets a file system without locks pass: it serves one process at a time.
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
