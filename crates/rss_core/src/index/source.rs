//! A local file as a [`ChunkReader`] of the Parquet crate, which counts the bytes read.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use parquet::{
    errors::{ParquetError, Result},
    file::reader::{ChunkReader, Length},
};

/// Bytes of one read when the Parquet crate does not say how many it needs.
const PIECE_BYTES: usize = 64 << 10;

/// A file with random access. The lock keeps seek and read together.
#[derive(Debug)]
pub(super) struct ByteSource {
    file: Mutex<File>,
    length: u64,
    read: AtomicU64,
}

impl ByteSource {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(Self {
            length: meta.len(),
            file: Mutex::new(file),
            read: AtomicU64::new(0),
        })
    }

    /// Returns how many bytes were read so far.
    pub(super) fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Reads up to `length` bytes; fewer at the end of the file. A length from a damaged file cannot allocate more
    /// than the file has.
    fn at_most(&self, start: u64, length: usize) -> io::Result<Vec<u8>> {
        let left = self.length.saturating_sub(start);
        let length = length.min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut bytes = vec![0; length];
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(&mut bytes)?;
        self.read.fetch_add(length as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

impl Length for ByteSource {
    fn len(&self) -> u64 {
        self.length
    }
}

/// A sequential reader from an offset.
pub(super) struct Cursor {
    source: Arc<ByteSource>,
    at: u64,
    piece: io::Cursor<Vec<u8>>,
}

impl Read for Cursor {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let got = self.piece.read(out)?;
        if got > 0 || out.is_empty() {
            return Ok(got);
        }
        let piece = self.source.at_most(self.at, PIECE_BYTES)?;
        self.at += piece.len() as u64;
        self.piece = io::Cursor::new(piece);
        self.piece.read(out)
    }
}

/// A shared [`ByteSource`]: readers returned by [`ChunkReader`] must own their source.
#[derive(Clone, Debug)]
pub(super) struct Shared(pub(super) Arc<ByteSource>);

impl Length for Shared {
    fn len(&self) -> u64 {
        self.0.length
    }
}

impl ChunkReader for Shared {
    type T = Cursor;

    fn get_read(&self, start: u64) -> Result<Cursor> {
        Ok(Cursor {
            source: Arc::clone(&self.0),
            at: start,
            piece: io::Cursor::default(),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let bytes = self.0.at_most(start, length)?;
        if bytes.len() < length {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at {start} of {}",
                self.0.length
            )));
        }
        Ok(bytes.into())
    }
}
