//! The journal of a build: entries that were read so far, on disk, so that an interrupted build resumes.
//!
//! The file is append-only. It begins with a magic and the digest of its plan. Records follow, each with its length
//! and a CRC-32: the names of some files, and their entries as rows of an index column (an Arrow IPC stream,
//! compressed). A killed process can only tear the last record; opening truncates the file behind the last record
//! whose checksum is right.
//!
//! Records are not synced: after a power failure some are missing, and their files are read again. One process
//! writes a journal at a time, under a file lock.

use std::{
    collections::{HashMap, VecDeque},
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use arrow_array::{Array, ArrayRef, RecordBatch, StructArray, cast::AsArray, new_null_array};
use arrow_ipc::{reader::StreamReader, writer::StreamWriter};
use arrow_schema::{ArrowError, DataType, Schema};
use arrow_select::interleave::interleave;
use sha2::{Digest, Sha256};

use super::{pack, schema};
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    reader::Entry,
    store::{of_io, shareable},
};

/// The magic of the file, with the version of its format.
const MAGIC: &[u8; 8] = b"rssjrnl1";
/// Bytes of a plan's digest.
const PLAN_BYTES: usize = 32;
/// Bytes of a record's length and checksum.
const HEAD_BYTES: usize = 8;
/// A larger length is damage: it must not become an allocation.
const MAX_RECORD_BYTES: u32 = 1 << 30;
/// The zstd level of records: the fastest, since they are written once and read once.
const LEVEL: i32 = 1;
/// Bytes of decoded records that are cached: neighbouring rows of the index mostly lie in the same records.
const MAX_CACHED_BYTES: usize = 128 << 20;
/// How long to wait for the lock. A build that was just dropped holds it until its writer has ended.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The identity of a file in 16 bytes: a truncated SHA-256 of its address without secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Name([u8; 16]);

impl Name {
    pub(super) fn of(location: &Location) -> Self {
        Self::of_digest(Sha256::new_with_prefix(address(location)))
    }

    pub(super) fn of_digest(hash: Sha256) -> Self {
        let digest: [u8; 32] = hash.finalize().into();
        let mut name = [0; 16];
        for (to, from) in name.iter_mut().zip(digest) {
            *to = from;
        }
        Self(name)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The position of an entry: the byte offset of its record, and its row in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    at: u64,
    row: u32,
}

/// Returns one address for all spellings of a location, without its secrets. A signed URL changes with each search,
/// but names the same file.
pub(super) fn address(location: &Location) -> String {
    if let Some(s3) = location.as_s3() {
        return format!("s3://{}/{}", s3.bucket, s3.key);
    }
    match location {
        Location::Http(url) => {
            let plain = shareable(url);
            match Location::Http(plain.clone()).as_s3() {
                Some(s3) => format!("s3://{}/{}", s3.bucket, s3.key),
                None => plain.to_string(),
            }
        }
        Location::Local(path) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            path.to_string_lossy().into_owned()
        }
        other => other.to_href(),
    }
}

/// The journal of one build.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    end: u64,
    slots: HashMap<Name, Slot>,
    cached: VecDeque<(u64, Arc<StructArray>)>,
    cached_bytes: usize,
}

impl Journal {
    /// Opens the journal of a plan and waits for its lock, or creates it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the journal belongs to another plan; [`ErrorKind::Unavailable`]
    /// if another build holds the lock; errors of the file system.
    pub(super) fn open(path: &Path, plan: &[u8; PLAN_BYTES]) -> Result<Self> {
        let io_error = |err: io::Error| of_io(&err).at(path.display());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path).map_err(io_error)?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) if path.exists() => break,
                // The build that held the lock has removed the file: the lock is on an unlinked inode. Open the new
                // file at this path.
                Ok(()) => file = options.open(path).map_err(io_error)?,
                // A file system without locks: two builds of one index at once are not kept apart there.
                Err(TryLockError::Error(err)) if err.kind() == io::ErrorKind::Unsupported => break,
                Err(TryLockError::Error(err)) => return Err(io_error(err)),
                Err(TryLockError::WouldBlock) if start.elapsed() > LOCK_TIMEOUT => {
                    let message = "another build is writing this index; wait for it, or stop it";
                    return Err(Error::new(ErrorKind::Unavailable, message).at(path.display()));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        let mut journal = Self {
            path: path.to_owned(),
            file,
            end: 0,
            slots: HashMap::new(),
            cached: VecDeque::new(),
            cached_bytes: 0,
        };
        let length = journal.file.metadata().map_err(io_error)?.len();
        let start = (MAGIC.len() + PLAN_BYTES) as u64;
        if length < start {
            // New, or torn within the magic and the digest.
            journal.file.set_len(0).map_err(io_error)?;
            journal.file.write_all(MAGIC).map_err(io_error)?;
            journal.file.write_all(plan).map_err(io_error)?;
            journal.end = start;
            return Ok(journal);
        }
        let mut head = vec![0; MAGIC.len() + PLAN_BYTES];
        journal.file.read_exact(&mut head).map_err(io_error)?;
        if head.get(..MAGIC.len()) != Some(MAGIC) || head.get(MAGIC.len()..) != Some(plan) {
            let message = "the journal of an interrupted build with other inputs or of another version; \
                           finish that build, or remove this file";
            return Err(Error::new(ErrorKind::InvalidInput, message).at(path.display()));
        }
        journal.end = start;
        // Checksums are verified here, for all records. Entries are decoded only when the index is written.
        while let Some(payload) = journal.record(journal.end, length).map_err(io_error)? {
            let Some((names, _)) = split(&payload) else {
                break;
            };
            // A file that was read twice has two entries: the later one wins.
            for (row, name) in (0..).zip(names) {
                let at = journal.end;
                journal.slots.insert(Name(*name), Slot { at, row });
            }
            journal.end += (HEAD_BYTES + payload.len()) as u64;
        }
        // Truncates a torn record, so that the next one starts where a reader expects it.
        journal.file.set_len(journal.end).map_err(io_error)?;
        Ok(journal)
    }

    pub(super) fn holds(&self, name: Name) -> bool {
        self.slots.contains_key(&name)
    }

    /// Appends entries as one record.
    ///
    /// # Errors
    ///
    /// Errors of the file system.
    pub(super) fn append(&mut self, entries: &[(Name, Entry)]) -> Result<()> {
        let io_error = |err: io::Error| of_io(&err).at(self.path.display());
        let rows: Vec<Option<&Entry>> = entries.iter().map(|(_, entry)| Some(entry)).collect();
        let column = pack::column(&rows)?;
        let mut payload = Vec::new();
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        payload.extend_from_slice(&count.to_le_bytes());
        for (name, _) in entries {
            payload.extend_from_slice(name.bytes());
        }
        let stream = stream(column).map_err(|err| lost(&self.path, err))?;
        payload.extend(zstd::bulk::compress(&stream, LEVEL).map_err(io_error)?);
        let length = u32::try_from(payload.len())
            .ok()
            .filter(|length| *length <= MAX_RECORD_BYTES)
            .ok_or_else(|| io_error(io::ErrorKind::FileTooLarge.into()))?;
        let mut record = Vec::with_capacity(HEAD_BYTES + payload.len());
        record.extend_from_slice(&length.to_le_bytes());
        record.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
        record.extend_from_slice(&payload);
        // One write of the complete record at the known end: a record that failed half-way is overwritten by the next.
        self.file
            .seek(SeekFrom::Start(self.end))
            .map_err(io_error)?;
        self.file.write_all(&record).map_err(io_error)?;
        for (row, (name, _)) in (0..).zip(entries) {
            self.slots.insert(*name, Slot { at: self.end, row });
        }
        self.end += record.len() as u64;
        Ok(())
    }

    /// Returns the entries of files as a column, in the order of `names`; null for a file without an entry.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the file was changed meanwhile; errors of the file system.
    pub(super) fn column(&mut self, names: &[Option<Name>]) -> Result<ArrayRef> {
        let kind = DataType::Struct(schema::entry());
        // Array 0 is a single null, which files without an entry select.
        let mut arrays: Vec<Arc<dyn Array>> = vec![new_null_array(&kind, 1)];
        let mut array_of_record: HashMap<u64, usize> = HashMap::new();
        let mut rows = Vec::with_capacity(names.len());
        for name in names {
            let slot = name.and_then(|name| self.slots.get(&name)).copied();
            let Some(Slot { at, row }) = slot else {
                rows.push((0, 0));
                continue;
            };
            let number = match array_of_record.get(&at) {
                Some(number) => *number,
                None => {
                    arrays.push(self.decoded(at)?);
                    array_of_record.insert(at, arrays.len() - 1);
                    arrays.len() - 1
                }
            };
            let row = row as usize;
            if arrays.get(number).is_none_or(|array| row >= array.len()) {
                return Err(damaged(&self.path));
            }
            rows.push((number, row));
        }
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        interleave(&arrays, &rows).map_err(|err| lost(&self.path, err))
    }

    /// Removes the file, after its entries are in the index.
    pub(super) fn remove(self) -> Result<()> {
        // While the lock is held: a build that waits for it sees that the path is gone, and creates a new journal.
        std::fs::remove_file(&self.path).map_err(|err| of_io(&err).at(self.path.display()))
    }

    fn decoded(&mut self, at: u64) -> Result<Arc<StructArray>> {
        if let Some((_, array)) = self.cached.iter().find(|(offset, _)| *offset == at) {
            return Ok(Arc::clone(array));
        }
        let io_error = |err: io::Error| of_io(&err).at(self.path.display());
        let payload = self.record(at, self.end).map_err(io_error)?;
        let payload = payload.ok_or_else(|| damaged(&self.path))?;
        let (names, stream) = split(&payload).ok_or_else(|| damaged(&self.path))?;
        let stream = zstd::stream::decode_all(stream).map_err(io_error)?;
        let array = unstream(&stream).map_err(|err| lost(&self.path, err))?;
        let array = array
            .filter(|array| array.len() == names.len())
            .ok_or_else(|| damaged(&self.path))?;
        let array = Arc::new(array);
        self.cached_bytes += array.get_array_memory_size();
        self.cached.push_back((at, Arc::clone(&array)));
        // First in, first out: rows are read in the order of the plan, which is mostly that of the records.
        while self.cached_bytes > MAX_CACHED_BYTES && self.cached.len() > 1 {
            if let Some((_, oldest)) = self.cached.pop_front() {
                let bytes = oldest.get_array_memory_size();
                self.cached_bytes = self.cached_bytes.saturating_sub(bytes);
            }
        }
        Ok(array)
    }

    /// Reads the payload of the record at a byte offset; none if it is torn or damaged.
    fn record(&self, at: u64, end: u64) -> io::Result<Option<Vec<u8>>> {
        let mut file = &self.file;
        let mut head = [0; HEAD_BYTES];
        if at.saturating_add(HEAD_BYTES as u64) > end {
            return Ok(None);
        }
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut head)?;
        let [a, b, c, d, e, f, g, h] = head;
        let length = u32::from_le_bytes([a, b, c, d]);
        let left = end.saturating_sub(at).saturating_sub(HEAD_BYTES as u64);
        // Checked before the allocation: the length of a torn record may be any number.
        if length > MAX_RECORD_BYTES || u64::from(length) > left {
            return Ok(None);
        }
        let mut payload = vec![0; length as usize];
        file.read_exact(&mut payload)?;
        let intact = crc32fast::hash(&payload) == u32::from_le_bytes([e, f, g, h]);
        Ok(intact.then_some(payload))
    }
}

/// Splits the payload of a record into the names and the compressed column.
fn split(payload: &[u8]) -> Option<(&[[u8; 16]], &[u8])> {
    let (count, rest) = payload.split_first_chunk::<4>()?;
    let count = u32::from_le_bytes(*count) as usize;
    let (names, stream) = rest.split_at_checked(count.checked_mul(16)?)?;
    Some((names.as_chunks::<16>().0, stream))
}

fn stream(column: StructArray) -> Result<Vec<u8>, ArrowError> {
    let columns = Schema::new(vec![schema::field("entry", column.data_type().clone())]);
    let batch = RecordBatch::try_new(Arc::new(columns), vec![Arc::new(column)])?;
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema())?;
    writer.write(&batch)?;
    writer.into_inner()
}

fn unstream(bytes: &[u8]) -> Result<Option<StructArray>, ArrowError> {
    let mut reader = StreamReader::try_new(bytes, None)?;
    let Some(batch) = reader.next().transpose()? else {
        return Ok(None);
    };
    let column = batch.columns().first();
    Ok(column.and_then(|column| column.as_struct_opt()).cloned())
}

fn damaged(path: &Path) -> Error {
    let message = "the journal of an interrupted build is damaged; remove this file";
    Error::new(ErrorKind::Corrupt, message).at(path.display())
}

fn lost(path: &Path, err: ArrowError) -> Error {
    damaged(path).with_source(err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_that_waited_for_another_has_a_journal_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet.partial");
        let plan = [7; PLAN_BYTES];
        let first = Journal::open(&path, &plan).unwrap();
        let second = std::thread::scope(|scope| {
            let second = scope.spawn(|| Journal::open(&path, &plan));
            // Long enough for it to wait; the assertions hold as well if it does not.
            std::thread::sleep(Duration::from_millis(100));
            first.remove().unwrap();
            second.join().unwrap().unwrap()
        });
        assert!(path.exists());
        second.remove().unwrap();
        assert!(!path.exists());
    }
}
