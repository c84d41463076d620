//! What an interrupted copy leaves in the cache, so that the next one goes on from there.
//!
//! `root/partial/<key>` holds the bytes, `root/partial/<key>.json` the version they are of and how many of them are on the
//! disk for sure. Who copies holds a lock on the bytes, which ends with the process; where that is not possible nothing is
//! left. See `docs/decisions/004-file-cache.md`.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::checksum::{Checksum, Digests};
use crate::store::is_same;

/// Bytes that are read of a record.
const LONGEST_RECORD: u64 = 64 << 10;

/// The place of an unfinished copy. The lock is held as long as this lives.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) data: PathBuf,
    record: PathBuf,
    file: File,
}

/// The version of an unfinished copy, and its bytes that are on the disk for sure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) etag: String,
    /// Of the whole object.
    pub(super) bytes: u64,
    pub(super) written: u64,
}

impl Partial {
    /// Takes the place; none if another copy has it, or where files cannot be locked.
    pub(super) fn take(data: &Path) -> Option<Self> {
        fs::create_dir_all(data.parent()?).ok()?;
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(data)
            .ok()?;
        file.try_lock().ok()?;
        // Removed between the two: the lock is on a file without a name. The next copy finds a new one.
        if !is_same(&file, data) {
            return None;
        }
        let mut record = data.as_os_str().to_owned();
        record.push(".json");
        Some(Self {
            data: data.to_owned(),
            record: record.into(),
            file,
        })
    }

    /// Returns what an earlier copy left, with the digests of its bytes, and cuts off what is not sure. A record that
    /// could not have been written here counts as none.
    pub(super) fn left(&mut self, wanted: Option<&Checksum>) -> Option<(Record, Digests)> {
        let mut text = Vec::new();
        let file = File::open(&self.record).ok()?;
        file.take(LONGEST_RECORD).read_to_end(&mut text).ok()?;
        let record: Record = serde_json::from_slice(&text).ok()?;
        // It becomes a header of a request.
        let is_tag = |etag: &str| etag.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        let is_usable = is_tag(&record.etag)
            && !record.etag.is_empty()
            && record.written > 0
            && record.written < record.bytes
            && record.written <= self.file.metadata().ok()?.len();
        if !is_usable {
            return None;
        }
        self.file.set_len(record.written).ok()?;
        let mut digests = Digests::for_checksum(wanted);
        let mut buffer = vec![0; 1 << 20];
        loop {
            let got = self.file.read(&mut buffer).ok()?;
            match buffer.get(..got) {
                None | Some([]) => break,
                Some(bytes) => digests.update(bytes),
            }
        }
        Some((record, digests))
    }

    /// Empties the place.
    pub(super) fn clear(&self) -> io::Result<()> {
        match fs::remove_file(&self.record) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            _ => {}
        }
        self.file.set_len(0)
    }

    /// Returns the file, at its end.
    pub(super) fn file(&self) -> io::Result<File> {
        use io::Seek;

        let mut file = self.file.try_clone()?;
        file.seek(io::SeekFrom::End(0))?;
        Ok(file)
    }

    /// Records that so many bytes are on the disk. The caller has synced them.
    pub(super) fn record(&self, record: &Record) -> io::Result<()> {
        let mut new = self.record.as_os_str().to_owned();
        new.push(".new");
        fs::write(&new, serde_json::to_vec(record)?)?;
        fs::rename(&new, &self.record)
    }

    /// Moves the bytes, which are all there, to their path.
    pub(super) fn publish(&self, path: &Path) -> io::Result<()> {
        let _ = fs::remove_file(&self.record);
        fs::rename(&self.data, path)
    }

    /// Removes the bytes.
    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.record);
        let _ = fs::remove_file(&self.data);
    }
}
