//! What leaves the cache, and the counts of what it holds: expired files, those past the bound, and what dead processes left.
//!
//! Everything here holds the cache's lock alone from the read of the pins to the last removal: see "To evict" in
//! `docs/decisions/004-file-cache.md`.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use super::{
    CacheKey, FileCache, bucket,
    entry::{self, EntryPaths, RECORD_ENDING, Record},
    given, key, lock,
    scratch::sessions,
};
use crate::{error::Result, location::Location};

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

impl FileCache {
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
    /// [`Denied`](crate::ErrorKind::Denied), [`InvalidInput`](crate::ErrorKind::InvalidInput) or
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if the
    /// folder cannot be read or changed.
    pub fn clear(&self) -> Result<Removed> {
        let mut removed = self.remove_if(|_| true, false)?;
        let swept = self.sweep()?;
        removed.bytes += swept.bytes;
        removed.leftovers += swept.leftovers;
        Ok(removed)
    }

    /// Evicts the least recently used files until the rest fits. Pinned files, those that links point to, and files that
    /// cannot be removed, stay.
    pub(super) fn evict_to_fit(&self) {
        let Some(most) = self.0.settings.max_bytes else {
            return;
        };
        if lock(&self.0.used).is_some_and(|used| used <= most) {
            return;
        }
        // A failed eviction must not fail the call: its file is complete.
        let _ = self.evict(most);
    }

    /// Removes unfinished copies that nobody works on and that are older than `age`. Returns files and bytes.
    pub(super) fn drop_partial(&self, age: Duration) -> Result<(u64, u64)> {
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
        given::sweep(self.root()?, &self.0.entries_dir(), &found.pinned);
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
}

/// One entry of the folder.
struct FolderEntry {
    paths: EntryPaths,
    record: Record,
    used: SystemTime,
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
