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
mod make_lock;
mod removal;
mod scratch;

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    future::Future,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use self::given::Given;
pub(crate) use self::given::GivenAs;
pub use self::key::Mode;
#[cfg(feature = "index")]
pub(crate) use self::key::is_secret;
pub(crate) use self::key::{CacheKey, hex};
pub(crate) use self::make_lock::is_same;
pub use self::removal::{CacheStats, Removed};
use self::{
    entry::{EntryPaths, Found, RECORD_ENDING, Record},
    make_lock::{MakeLock, supported},
    scratch::{Desk, Pin, Scratch, sessions},
};
use super::{StoreOptions, bucket, fault::of_io};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::Crop,
    location::Location,
};

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
                        let mut record = Record::of_made(key, &path, sha256, etag, checked)
                            .map_err(|err| cache.io_error(&err))?;
                        paths
                            .publish(&path, desk.path(), &mut record)
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
        // Both are for the record. Without them the user gets a copy.
        let locks = self.root().map(|root| root.join("locks"));
        let lock = locks
            .ok()
            .and_then(|locks| MakeLock::try_take(&locks, digest));
        let desk = self.scratch().ok().and_then(|scratch| scratch.desk().ok());
        let (Some(_lock), Some(desk)) = (lock, desk) else {
            return Ok(false);
        };
        match paths.hard_link(path, desk.path()) {
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
        // A sweep, which holds the lock alone, takes what is half written for damaged.
        let _using = self.lock_shared()?;
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

    fn tmp(&self) -> Result<PathBuf> {
        Ok(self.root()?.join("tmp"))
    }

    fn count(&self, bytes: u64) {
        if let Some(used) = lock(&self.0.used).as_mut() {
            *used = used.saturating_add(bytes);
        }
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

/// Returns true if a path leads into a folder by name, without `..`.
fn is_inside(path: &Path, folder: &Path) -> bool {
    let mut parts = path.components();
    parts.all(|part| part != std::path::Component::ParentDir) && path.starts_with(folder)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
