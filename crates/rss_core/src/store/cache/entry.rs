//! One cached file on disk: the data, and a record that states whether the data is complete.
//!
//! Order of writes and crashes: `docs/decisions/004-file-cache.md`.

use std::{
    fs::{self, File, Metadata, OpenOptions, Permissions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::key::{CacheKey, hex};

const VERSION: u32 = 1;
/// Bytes that are read of a record: a longer one is cut off, so it is not valid JSON and counts as
/// none.
const LONGEST_RECORD: u64 = 64 << 10;
/// A creation time this far in the future means that the clock was set back; less is the drift between
/// machines that share a folder.
const CLOCK_SLACK: Duration = Duration::from_secs(60);
pub(super) const RECORD_ENDING: &str = "record";

/// The metadata that is written beside a cached file. Holds no query string.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    version: u32,
    pub(super) key: String,
    /// The SHA-256 of the canonical URL.
    pub(super) source: String,
    pub(super) file: String,
    location: String,
    pub(super) bytes: u64,
    pub(super) sha256: String,
    /// The mtime of the data, in nanoseconds since 1970.
    modified_ns: u64,
    /// When the data, its permissions or its names were last changed (ctime), in nanoseconds since 1970; none where the
    /// system does not tell, and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    changed_ns: Option<u64>,
    /// When the data was last fetched, or confirmed by the server, in seconds since 1970.
    created_s: u64,
    pub(super) etag: Option<String>,
    /// The checksum of another function than SHA-256 that the data had when it was fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) checked: Option<String>,
}

/// The state of an entry.
#[derive(Debug)]
pub(super) enum Found {
    /// A complete file within its TTL; `verified` if its checksum was computed to know, which its record does not say.
    Fresh { record: Record, verified: bool },
    /// A complete file past its TTL.
    Stale(Record),
    /// Nothing, or a damaged file.
    Missing,
}

/// The paths of one key's files.
#[derive(Clone, Debug)]
pub(super) struct EntryPaths {
    pub(super) data: PathBuf,
    pub(super) record: PathBuf,
}

impl EntryPaths {
    pub(super) fn new(entries: &Path, digest: &str, file: &str) -> Self {
        let dir = entries.join(digest.get(..2).unwrap_or("00"));
        Self {
            data: dir.join(file),
            record: dir.join(format!("{digest}.{RECORD_ENDING}")),
        }
    }

    pub(super) fn of(entries: &Path, key: &CacheKey) -> Self {
        Self::new(entries, key.digest(), &key.file_name())
    }

    /// Looks up the entry. Reads no data, unless mtime or ctime are not those of the record: then the checksum decides. A
    /// file of a user may be a second name of this one, and be changed through it; mtimes can be set, ctimes cannot.
    pub(super) fn look(&self, key: &CacheKey, ttl: Option<Duration>) -> Found {
        let Some(mut record) = Record::read(&self.record) else {
            return Found::Missing;
        };
        if record.key != key.digest() || record.file != key.file_name() {
            return Found::Missing;
        }
        let Ok(meta) = fs::symlink_metadata(&self.data) else {
            return Found::Missing;
        };
        if !meta.is_file() || meta.len() != record.bytes {
            return Found::Missing;
        }
        let verified = !record.is_unchanged(&meta);
        if verified {
            if sha256_of(&self.data).ok().as_deref() != Some(record.sha256.as_str()) {
                return Found::Missing;
            }
            record.stamp(&meta);
        }
        if ttl.is_some_and(|ttl| record.is_expired(ttl, SystemTime::now())) {
            Found::Stale(record)
        } else {
            Found::Fresh { record, verified }
        }
    }

    /// Gives the data a second name at `path`, and returns true; false if it has one already, so that files of two folders
    /// are never one. The record is replaced if the data is what it says: the second name changes the ctime.
    ///
    /// The record must be what the data is before: without a ctime that it knows, nobody would notice what is written through
    /// the second name.
    pub(super) fn hard_link(&self, path: &Path, scratch: &Path) -> io::Result<bool> {
        let before = fs::symlink_metadata(&self.data)?;
        let record = Record::read(&self.record).filter(|record| {
            record.bytes == before.len()
                && record.changed_ns.is_some()
                && record.is_unchanged(&before)
        });
        let Some(mut record) = record.filter(|_| names(&before) == 1) else {
            return Ok(false);
        };
        fs::hard_link(&self.data, path)?;
        let after = fs::symlink_metadata(&self.data)?;
        if names(&after) > 2 {
            // Another call did the same at the same time.
            fs::remove_file(path)?;
            return Ok(false);
        }
        record.stamp(&after);
        // If this fails, the next look computes the checksum.
        let _ = self.write_record(scratch, &record);
        Ok(true)
    }

    /// Notes that the entry is used now, as the record's mtime: the least recently used are evicted
    /// first.
    pub(super) fn touch(&self) {
        // If this fails, the entry is evicted earlier: not worth an error.
        if let Ok(file) = OpenOptions::new().write(true).open(&self.record) {
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// Publishes a finished file: data first, its record last, each by a rename. A process that
    /// dies in between leaves data without a record, which counts as missing.
    pub(super) fn publish(
        &self,
        made: &Path,
        scratch: &Path,
        record: &mut Record,
    ) -> io::Result<()> {
        let dir = self.data.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(dir)?;
        // The old record goes first: it must never stand beside the new data.
        remove(&self.record)?;
        fs::rename(made, &self.data)?;
        // Some systems count the rename as a change.
        record.changed_ns = changed_ns(&fs::symlink_metadata(&self.data)?);
        self.write_record(scratch, record)?;
        sync_dir(dir)
    }

    /// Replaces the record.
    pub(super) fn write_record(&self, scratch: &Path, record: &Record) -> io::Result<()> {
        let temporary = scratch.join("record");
        let mut file = File::create(&temporary)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        // Synced before the rename: after a power cut the name must not stand for an empty record.
        file.sync_all()?;
        drop(file);
        fs::rename(&temporary, &self.record)
    }

    /// Removes the entry: the record first, so that a crash in between leaves data that counts as
    /// missing.
    pub(super) fn remove(&self) -> io::Result<()> {
        remove(&self.record)?;
        remove(&self.data)
    }
}

impl Record {
    /// Describes a finished file, after making it durable and read-only: a program that opens a link to
    /// it for writing must not change what others read.
    pub(super) fn of_made(
        key: &CacheKey,
        made: &Path,
        sha256: Option<String>,
        etag: Option<String>,
        checked: Option<String>,
    ) -> io::Result<Self> {
        let sha256 = match sha256 {
            Some(sha256) => sha256,
            None => sha256_of(made)?,
        };
        let file = OpenOptions::new().read(true).write(true).open(made)?;
        file.sync_all()?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        drop(file);
        let mut permissions: Permissions = meta.permissions();
        permissions.set_readonly(true);
        fs::set_permissions(made, permissions)?;
        Ok(Self {
            version: VERSION,
            key: key.digest().to_owned(),
            source: key.source().to_owned(),
            file: key.file_name(),
            location: key.shown().to_owned(),
            bytes: meta.len(),
            sha256,
            modified_ns: nanoseconds(meta.modified().ok()),
            // Known when it has its name.
            changed_ns: None,
            created_s: seconds(SystemTime::now()),
            etag,
            checked,
        })
    }

    /// Returns true if the data was not changed since the record was written, as far as its times tell.
    fn is_unchanged(&self, meta: &Metadata) -> bool {
        nanoseconds(meta.modified().ok()) == self.modified_ns
            && (self.changed_ns.is_none() || self.changed_ns == changed_ns(meta))
    }

    fn stamp(&mut self, meta: &Metadata) {
        self.modified_ns = nanoseconds(meta.modified().ok());
        self.changed_ns = changed_ns(meta);
    }

    /// Returns the record with its age set to zero.
    pub(super) fn renewed(mut self) -> Self {
        self.created_s = seconds(SystemTime::now());
        self
    }

    /// Reads a record. One that cannot be parsed, is of another version or names a path counts as none.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let mut bytes = Vec::new();
        let file = File::open(path).ok()?;
        file.take(LONGEST_RECORD).read_to_end(&mut bytes).ok()?;
        let record: Self = serde_json::from_slice(&bytes).ok()?;
        let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let is_own = |file: &str| {
            let ending = file.strip_prefix(record.key.as_str());
            ending.is_some_and(|ending| ending.strip_prefix('.').is_some_and(is_plain))
        };
        (record.version == VERSION
            && is_plain(&record.key)
            && is_own(&record.file)
            && time_of(record.created_s).is_some())
        .then_some(record)
    }

    pub(super) fn is_expired(&self, ttl: Duration, now: SystemTime) -> bool {
        // A time that no clock can say counts as long ago.
        let Some(created) = time_of(self.created_s) else {
            return true;
        };
        match now.duration_since(created) {
            Ok(age) => age >= ttl,
            Err(future) => future.duration() > CLOCK_SLACK,
        }
    }
}

/// Removes a file; one that is not there is fine.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
        _ => Ok(()),
    }
}

fn sha256_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer)?;
        match buffer.get(..n) {
            Some(chunk) if n > 0 => hash.update(chunk),
            _ => return Ok(hex(&hash.finalize())),
        }
    }
}

/// Makes renames in `dir` durable. Windows cannot open directories as files.
fn sync_dir(dir: &Path) -> io::Result<()> {
    if cfg!(unix) {
        File::open(dir)?.sync_all()?;
    }
    Ok(())
}

pub(super) fn nanoseconds(time: Option<SystemTime>) -> u64 {
    time.and_then(|time| time.duration_since(UNIX_EPOCH).ok())
        .and_then(|age| u64::try_from(age.as_nanos()).ok())
        .unwrap_or_default()
}

fn time_of(seconds: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(unix)]
fn changed_ns(meta: &Metadata) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;

    let seconds = u64::try_from(meta.ctime()).ok()?;
    let nanoseconds = u64::try_from(meta.ctime_nsec()).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

#[cfg(not(unix))]
fn changed_ns(_: &Metadata) -> Option<u64> {
    None
}

/// Returns how many names a file has.
#[cfg(unix)]
fn names(meta: &Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;

    meta.nlink()
}

/// Without a count of names and a ctime nothing tells that a second name was used to change the data: it gets none.
#[cfg(not(unix))]
fn names(_: &Metadata) -> u64 {
    0
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map(|age| age.as_secs())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(created_s: u64) -> Record {
        Record {
            version: VERSION,
            key: String::new(),
            source: String::new(),
            file: String::new(),
            location: String::new(),
            bytes: 0,
            sha256: String::new(),
            modified_ns: 0,
            changed_ns: None,
            created_s,
            etag: None,
            checked: None,
        }
    }

    #[test]
    fn an_entry_expires_by_age_or_when_the_clock_went_back() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let ttl = Duration::from_secs(100);
        let expired = |created_s| record(created_s).is_expired(ttl, now);
        assert!(!expired(999_901));
        assert!(expired(999_900));
        assert!(!expired(1_000_030));
        assert!(expired(1_000_100));
        assert!(expired(u64::MAX) && expired(i64::MAX as u64));
    }
}
