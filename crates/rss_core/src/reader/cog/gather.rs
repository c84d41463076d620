//! Where the bytes of the COG backend come from: ranged requests, or a file of this machine.
//!
//! Never a `HEAD`, never a listing. Tile requests carry the header's ETag, so pixels of two versions
//! of an object are never mixed.

use std::{cell::RefCell, fs::File, io, ops::Range, sync::Arc};

use bytes::Bytes;
use object_store::{GetOptions, GetRange, ObjectStore, path::Path};

use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    store::{self, Registry},
};

/// What a thread keeps of its memory after reading a tile from disk.
const MOST_KEPT_BYTES: usize = 4 << 20;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One object, as it was when its header was read.
#[derive(Debug)]
pub(super) struct Object {
    holder: Holder,
    location: Location,
    size: u64,
}

/// Who holds the bytes.
#[derive(Debug)]
enum Holder {
    Store {
        store: Arc<dyn ObjectStore>,
        path: Path,
        /// A strong ETag, if the store gave one.
        etag: Option<String>,
    },
    Disk(Disk),
}

/// An open file of this machine. It stays the same file if its name is given to another.
#[derive(Clone, Debug)]
pub(super) struct Disk(Arc<File>);

impl Disk {
    /// Reads a range on this thread and hands it to `then`.
    pub(super) fn with<R>(
        &self,
        range: &Range<u64>,
        then: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<R> {
        let length = usize::try_from(range.end - range.start)
            .map_err(|_| Error::new(ErrorKind::Corrupt, "a tile that does not fit memory"))?;
        BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(length.max(buffer.len()), 0);
            let done = match buffer.get_mut(..length) {
                Some(bytes) => self
                    .read(range.start, bytes)
                    .map_err(|err| store::of_io(&err))
                    .and_then(|()| then(bytes)),
                None => then(&[]),
            };
            if buffer.capacity() > MOST_KEPT_BYTES {
                *buffer = Vec::new();
            }
            done
        })
    }

    #[cfg(unix)]
    fn read(&self, start: u64, bytes: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&*self.0, bytes, start)
    }

    #[cfg(windows)]
    fn read(&self, mut start: u64, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let got = std::os::windows::fs::FileExt::seek_read(&*self.0, bytes, start)?;
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            start += got as u64;
            bytes = bytes.get_mut(got..).unwrap_or_default();
        }
        Ok(())
    }

    /// Reads a range where waiting is allowed.
    async fn fetch(&self, range: Range<u64>) -> Result<Bytes> {
        let disk = self.clone();
        let read = move || disk.with(&range, |bytes| Ok(Bytes::copy_from_slice(bytes)));
        tokio::task::spawn_blocking(read)
            .await
            .map_err(|_| Error::new(ErrorKind::Unavailable, "a task of the file system was lost"))?
    }
}

impl Object {
    /// Fetches the first bytes of an object: at most `length`, fewer if it is shorter.
    pub(super) async fn open(
        stores: &Registry,
        location: &Location,
        length: u64,
    ) -> Result<(Self, Bytes)> {
        if let Some(path) = location.as_local() {
            return Self::open_file(path, location, length)
                .await
                .map_err(|err| err.at(location));
        }
        let (store, path) = stores.store(location)?;
        let options = GetOptions {
            range: Some(GetRange::Bounded(0..length)),
            ..GetOptions::default()
        };
        let fail = |err: object_store::Error| store::error(&err, location);
        let answer = store.get_opts(&path, options).await.map_err(fail)?;
        let meta = answer.meta.clone();
        let promised = answer.range.end - answer.range.start;
        let bytes = answer.bytes().await.map_err(fail)?;
        check_length(&bytes, promised).map_err(|err| err.at(location))?;
        let etag = meta.e_tag.filter(|etag| !etag.starts_with("W/"));
        let object = Self {
            holder: Holder::Store { store, path, etag },
            location: location.clone(),
            size: meta.size,
        };
        Ok((object, bytes))
    }

    async fn open_file(
        path: &std::path::Path,
        location: &Location,
        length: u64,
    ) -> Result<(Self, Bytes)> {
        let wrong = |err: io::Error| store::of_io(&err);
        let file = tokio::fs::File::open(path).await.map_err(wrong)?;
        let meta = file.metadata().await.map_err(wrong)?;
        if meta.is_dir() {
            return Err(wrong(io::ErrorKind::IsADirectory.into()));
        }
        let disk = Disk(Arc::new(file.into_std().await));
        let bytes = disk.fetch(0..length.min(meta.len())).await?;
        let object = Self {
            holder: Holder::Disk(disk),
            location: location.clone(),
            size: meta.len(),
        };
        Ok((object, bytes))
    }

    /// Returns the object's size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the file, if it is on this machine: it is best read where it is decoded.
    pub(super) fn disk(&self) -> Option<&Disk> {
        match &self.holder {
            Holder::Disk(disk) => Some(disk),
            Holder::Store { .. } => None,
        }
    }

    /// Checks that a range lies inside the object.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if it does not.
    pub(super) fn check(&self, range: &Range<u64>) -> Result<()> {
        if range.end <= self.size {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "it points to bytes up to {}, but has {} bytes",
                range.end, self.size
            ),
        )
        .at(&self.location))
    }

    /// Fetches a range of the same version of the object.
    pub(super) async fn fetch(&self, range: Range<u64>) -> Result<Bytes> {
        self.check(&range)?;
        let (store, path, etag) = match &self.holder {
            Holder::Disk(disk) => {
                return disk
                    .fetch(range)
                    .await
                    .map_err(|err| err.at(&self.location));
            }
            Holder::Store { store, path, etag } => (store, path, etag),
        };
        let promised = range.end - range.start;
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            if_match: etag.clone(),
            ..GetOptions::default()
        };
        let fail = |err: object_store::Error| match err {
            object_store::Error::Precondition { .. } => Error::new(
                ErrorKind::Corrupt,
                "the object changed between its header and its tiles",
            )
            .at(&self.location),
            err => store::error(&err, &self.location),
        };
        let answer = store.get_opts(path, options).await.map_err(fail)?;
        if answer.meta.size != self.size {
            return Err(Error::new(
                ErrorKind::Corrupt,
                "the object changed between its header and its tiles",
            )
            .at(&self.location));
        }
        let bytes = answer.bytes().await.map_err(fail)?;
        check_length(&bytes, promised).map_err(|err| err.at(&self.location))?;
        Ok(bytes)
    }
}

fn check_length(bytes: &Bytes, promised: u64) -> Result<()> {
    if bytes.len() as u64 == promised {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Unavailable,
        format!("the server sent {} bytes, promised {promised}", bytes.len()),
    ))
}
