//! One object as it was when its first bytes were read: ranged requests, or a file of this machine.
//!
//! No listing, and no `HEAD`, but for the end of an Azure blob. Later requests carry the first one's
//! strong ETag, or compare size and time, so that bytes of two versions of an object are not mixed.

use std::{cell::RefCell, collections::VecDeque, fs::File, io, ops::Range, sync::Arc};

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use object_store::{GetOptions, GetRange, GetResult, ObjectStore, path::Path};
use tokio::sync::OnceCell;

use super::{Registry, Version, fault, spawned};
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
};

/// Bytes of its buffer that a thread retains after reading a tile from disk.
const MOST_KEPT_BYTES: usize = 4 << 20;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One object, as it was when its header was read.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    holder: Holder,
    location: Location,
    version: Version,
}

/// Where the bytes are.
#[derive(Clone, Debug)]
enum Holder {
    Store {
        store: Arc<dyn ObjectStore>,
        path: Path,
        /// The answer that the version was taken from; none if it was known before.
        first: Option<First>,
    },
    Disk(Disk),
}

/// The answer that an object was opened by. Its header may state a wrong size of the object, as nothing else tells it.
#[derive(Clone, Debug)]
struct First {
    range: GetRange,
    crc32: u32,
    /// The object's size, where it was asked for again.
    size: Arc<OnceCell<u64>>,
}

/// An open file of this machine. The handle stays with the file if another one is renamed over it.
#[derive(Clone, Debug)]
pub(crate) struct Disk(Arc<File>);

impl Disk {
    /// Opens a file off the runtime's threads.
    async fn open(path: &std::path::Path) -> Result<(Self, Version)> {
        let wrong = |err: io::Error| fault::of_io(&err);
        // Looked at before it is opened: that of a named pipe waits for a writer.
        let looked = tokio::fs::metadata(path).await.map_err(wrong)?;
        fault::check_file(&looked)?;
        let file = tokio::fs::File::open(path).await.map_err(wrong)?;
        let meta = file.metadata().await.map_err(wrong)?;
        let version = Version::of_file(&meta);
        Ok((Self(Arc::new(file.into_std().await)), version))
    }

    /// Reads a range on this thread and hands it to `then`.
    pub(crate) fn with<R>(
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
                    .map_err(|err| fault::of_io(&err))
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

    /// Reads a range off the runtime's threads.
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
    pub(crate) async fn open(
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
        Self::open_in(store, path, location, GetRange::Bounded(0..length)).await
    }

    /// Fetches the last bytes of an object: at most `length`, fewer if it is shorter. One request; two on
    /// Azure, which has no suffix ranges.
    #[cfg(feature = "zarr")]
    pub(crate) async fn open_end(
        stores: &Registry,
        location: &Location,
        length: u64,
    ) -> Result<(Self, Bytes)> {
        if let Some(path) = location.as_local() {
            // Done on this thread: the read is shorter than a switch to another one.
            let open = || {
                let wrong = |err: io::Error| fault::of_io(&err);
                fault::check_file(&std::fs::metadata(path).map_err(wrong)?)?;
                let file = File::open(path).map_err(wrong)?;
                let meta = file.metadata().map_err(wrong)?;
                let (disk, version) = (Disk(Arc::new(file)), Version::of_file(&meta));
                let range = version.size.saturating_sub(length)..version.size;
                let bytes = disk.with(&range, |bytes| Ok(Bytes::copy_from_slice(bytes)))?;
                let object = Self {
                    holder: Holder::Disk(disk),
                    location: location.clone(),
                    version,
                };
                Ok((object, bytes))
            };
            return open().map_err(|err: Error| err.at(location));
        }
        let (store, path) = stores.store(location)?;
        let range = match location {
            Location::Azure { .. } => {
                let fail = |err: object_store::Error| fault::error(&err, location);
                let size = object_store::ObjectStoreExt::head(&store, &path).await;
                let size = size.map_err(fail)?.size;
                GetRange::Bounded(size.saturating_sub(length)..size)
            }
            _ => GetRange::Suffix(length),
        };
        Self::open_in(store, path, location, range).await
    }

    /// Fetches a range of an object of a store that is already open.
    pub(crate) async fn open_in(
        store: Arc<dyn ObjectStore>,
        path: Path,
        location: &Location,
        range: GetRange,
    ) -> Result<(Self, Bytes)> {
        let options = GetOptions {
            range: Some(range.clone()),
            ..GetOptions::default()
        };
        let location = location.clone();
        spawned(async move {
            let fail = |err: object_store::Error| fault::error(&err, &location);
            let answer = store.get_opts(&path, options).await.map_err(fail)?;
            // The first response of a file sets the version that all later ones must match.
            let version = Version::of_meta(&answer.meta);
            let promised = answer.range.end - answer.range.start;
            let bytes = answer.bytes().await.map_err(fail)?;
            check_length(bytes.len() as u64, promised).map_err(|err| err.at(&location))?;
            let first = Some(First {
                range,
                crc32: libdeflater::crc32(&bytes),
                size: Arc::default(),
            });
            let object = Self {
                holder: Holder::Store { store, path, first },
                location,
                version,
            };
            Ok((object, bytes))
        })
        .await
    }

    /// Returns an object whose version is known, as from an index. Sends no request; a file of this
    /// machine is opened.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Changed`] if a file of this machine has another version.
    pub(crate) async fn known(
        stores: &Registry,
        location: &Location,
        version: &Version,
    ) -> Result<Self> {
        let holder = match location.as_local() {
            Some(path) => {
                let (disk, now) = Disk::open(path).await.map_err(|err| err.at(location))?;
                if version.differs(&now) {
                    return Err(changed(location));
                }
                Holder::Disk(disk)
            }
            None => {
                let (store, path) = stores.store(location)?;
                let first = None;
                Holder::Store { store, path, first }
            }
        };
        Ok(Self {
            holder,
            location: location.clone(),
            version: version.clone(),
        })
    }

    async fn open_file(
        path: &std::path::Path,
        location: &Location,
        length: u64,
    ) -> Result<(Self, Bytes)> {
        let (disk, version) = Disk::open(path).await?;
        let bytes = disk.fetch(0..length.min(version.size)).await?;
        let object = Self {
            holder: Holder::Disk(disk),
            location: location.clone(),
            version,
        };
        Ok((object, bytes))
    }

    /// Returns where the object is.
    #[cfg(feature = "zarr")]
    pub(crate) fn location(&self) -> &Location {
        &self.location
    }

    /// Returns the object's size in bytes.
    pub(crate) fn size(&self) -> u64 {
        let again = self.first().and_then(|first| first.size.get());
        again.copied().unwrap_or(self.version.size)
    }

    fn first(&self) -> Option<&First> {
        match &self.holder {
            Holder::Store { first, .. } => first.as_ref(),
            Holder::Disk(_) => None,
        }
    }

    /// Returns the version whose bytes are read.
    pub(crate) fn version(&self) -> &Version {
        &self.version
    }

    /// Returns the file, if it is on this machine: it is read on the thread that decodes it.
    #[cfg_attr(
        not(feature = "cog"),
        expect(dead_code, reason = "GDAL opens local files by itself")
    )]
    pub(crate) fn disk(&self) -> Option<&Disk> {
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
    pub(crate) fn check(&self, range: &Range<u64>) -> Result<()> {
        if range.end <= self.size() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "a range up to byte {} of a file of {} bytes",
                range.end,
                self.size()
            ),
        )
        .at(&self.location))
    }

    /// Fetches a range of the same version of the object.
    pub(crate) async fn fetch(&self, range: Range<u64>) -> Result<Bytes> {
        let promised = range.end.saturating_sub(range.start);
        let bytes = match &self.holder {
            Holder::Disk(disk) => {
                self.check(&range)?;
                disk.fetch(range).await
            }
            Holder::Store { .. } => {
                let object = self.clone();
                spawned(async move {
                    object.check_again(&range).await?;
                    let answer = object.ask(range).await?;
                    let bytes = answer.bytes().await;
                    bytes.map_err(|err| fault::error(&err, &object.location))
                })
                .await
            }
        };
        let at = |err: Error| err.at(&self.location);
        let bytes = bytes.map_err(at)?;
        check_length(bytes.len() as u64, promised).map_err(at)?;
        Ok(bytes)
    }

    /// Fetches a range of the same version of the object and returns parts of it as soon as they
    /// arrive, in the order of `parts`, which are sorted by their start and lie inside the range.
    pub(crate) fn fetch_parts<K: Send>(
        &self,
        range: Range<u64>,
        parts: Vec<(K, Range<usize>)>,
    ) -> impl Stream<Item = Result<(K, Bytes)>> + Send {
        let promised = range.end - range.start;
        let start = async move {
            self.check_again(&range).await?;
            let chunks = match &self.holder {
                Holder::Disk(disk) => {
                    let bytes = disk
                        .fetch(range)
                        .await
                        .map_err(|err| err.at(&self.location))?;
                    stream::iter([Ok(bytes)]).boxed()
                }
                Holder::Store { .. } => {
                    let answer = self.ask(range).await?;
                    let chunks = answer.into_stream();
                    chunks
                        .map_err(|err| fault::error(&err, &self.location))
                        .boxed()
                }
            };
            let arriving = Arriving {
                chunks,
                held: VecDeque::new(),
                gone: 0,
                here: 0,
            };
            let next = move |(mut arriving, mut parts): (Arriving<_>, std::vec::IntoIter<_>)| async move {
                let Some((key, part)): Option<(K, Range<usize>)> = parts.next() else {
                    return Ok(None);
                };
                let bytes = arriving
                    .part(&part)
                    .await?
                    .ok_or_else(|| short(arriving.here as u64, promised).at(&self.location))?;
                Ok(Some(((key, bytes), (arriving, parts))))
            };
            Ok::<_, Error>(stream::try_unfold((arriving, parts.into_iter()), next))
        };
        stream::once(start).try_flatten()
    }

    /// Asks for a range of this version.
    async fn ask(&self, range: Range<u64>) -> Result<GetResult> {
        let range = GetRange::Bounded(range);
        let mut answer = self.send(range.clone()).await?;
        // Of two answers about one version one states a wrong size: the first one, or this one.
        if self.differs_in_size_alone(&answer) {
            self.ask_for_size().await?;
        }
        if self.differs_in_size_alone(&answer) {
            answer = self.send(range).await?;
        }
        // Also where `If-Match` was sent: some servers ignore it.
        if self.now().differs(&Version::of_meta(&answer.meta)) {
            return Err(changed(&self.location));
        }
        Ok(answer)
    }

    fn differs_in_size_alone(&self, answer: &GetResult) -> bool {
        let now = Version::of_meta(&answer.meta);
        self.now().differs_in_size_alone(&now)
    }

    /// Returns the version, with the size that is known by now.
    fn now(&self) -> Version {
        let mut now = self.version.clone();
        now.size = self.size();
        now
    }

    /// Asks for the first bytes again, once, to learn the object's size: if they are the same as they were, the answer that
    /// brought them may have stated a wrong one.
    async fn ask_for_size(&self) -> Result<()> {
        let Some(first) = self.first() else {
            return Ok(());
        };
        let asking = || async {
            tracing::debug!(
                target: "rss_core::retry",
                location = %self.location,
                "answers of different lengths of the object: its first bytes are asked for once more"
            );
            let answer = self.send(first.range.clone()).await?;
            let now = Version::of_meta(&answer.meta);
            let is_other = self.version.differs(&now) && !self.version.differs_in_size_alone(&now);
            let bytes = answer.bytes().await;
            let bytes = bytes.map_err(|err| fault::error(&err, &self.location))?;
            match is_other || libdeflater::crc32(&bytes) != first.crc32 {
                true => Ok(self.version.size),
                false => Ok(now.size),
            }
        };
        first.size.get_or_try_init(asking).await.map(|_| ())
    }

    /// Checks that a range lies inside the object, whose size is asked for again if it does not.
    async fn check_again(&self, range: &Range<u64>) -> Result<()> {
        if range.end > self.size() {
            self.ask_for_size().await?;
        }
        self.check(range)
    }

    /// Sends one request for a range, under the condition that the object has this version.
    async fn send(&self, range: GetRange) -> Result<GetResult> {
        let Holder::Store { store, path, .. } = &self.holder else {
            let message = "a file of this machine is not asked for";
            return Err(Error::new(ErrorKind::InvalidInput, message));
        };
        let options = GetOptions {
            range: Some(range),
            // A weak ETag never matches `If-Match` (RFC 9110, section 13.1.1).
            if_match: self.version.strong_etag().map(str::to_owned),
            ..GetOptions::default()
        };
        let answer = store.get_opts(path, options).await;
        answer.map_err(|err| match err {
            object_store::Error::Precondition { .. } => changed(&self.location),
            // The range lies inside the known version: the object is shorter, so another one.
            err if fault::status_of(&err) == Some(416) => changed(&self.location),
            err => fault::error(&err, &self.location),
        })
    }
}

/// A body that is still arriving.
struct Arriving<S> {
    chunks: S,
    held: VecDeque<Bytes>,
    /// Offset of the first buffered chunk; those before it were dropped.
    gone: usize,
    /// Offset of the end of the last buffered chunk.
    here: usize,
}

impl<S: Stream<Item = Result<Bytes>> + Unpin> Arriving<S> {
    /// Waits for a part of the body; none if the body ends first. Later parts never start before this
    /// one, so earlier chunks are dropped.
    async fn part(&mut self, part: &Range<usize>) -> Result<Option<Bytes>> {
        while self.here < part.end {
            let Some(chunk) = self.chunks.try_next().await? else {
                return Ok(None);
            };
            self.here += chunk.len();
            self.held.push_back(chunk);
        }
        while let Some(first) = self.held.front()
            && self.gone + first.len() <= part.start
        {
            self.gone += first.len();
            self.held.pop_front();
        }
        let (Some(first), from) = (self.held.front(), part.start - self.gone) else {
            return Ok(Some(Bytes::new()));
        };
        if part.end - self.gone <= first.len() {
            return Ok(Some(first.slice(from..part.end - self.gone)));
        }
        // The part spans several chunks: only here bytes are copied.
        let mut whole = Vec::with_capacity(part.len());
        let mut skip = from;
        for chunk in &self.held {
            let rest = chunk.get(skip..).unwrap_or_default();
            skip = 0;
            let take = rest.len().min(part.len() - whole.len());
            whole.extend_from_slice(rest.get(..take).unwrap_or_default());
        }
        Ok(Some(whole.into()))
    }
}

fn changed(location: &Location) -> Error {
    let message = "the object changed: it is not the version whose header was read";
    Error::new(ErrorKind::Changed, message).at(location)
}

fn check_length(length: u64, promised: u64) -> Result<()> {
    if length == promised {
        return Ok(());
    }
    Err(short(length, promised))
}

fn short(length: u64, promised: u64) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("the response has {length} bytes, expected {promised}"),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_are_cut_from_chunks_of_any_size(
            body in prop::collection::vec(any::<u8>(), 1..200),
            sizes in prop::collection::vec(1usize..40, 1..20),
            mut parts in prop::collection::vec((0usize..200, 0usize..60), 0..12),
        ) {
            let mut chunks = Vec::new();
            let mut rest = Bytes::from(body.clone());
            for size in sizes.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                chunks.push(Ok(rest.split_to((*size).min(rest.len()))));
            }
            parts.sort_unstable();
            let mut arriving = Arriving {
                chunks: stream::iter(chunks),
                held: VecDeque::new(),
                gone: 0,
                here: 0,
            };
            for (start, length) in parts {
                let (start, end) = (start.min(body.len()), (start + length).min(body.len()));
                let part = futures::executor::block_on(arriving.part(&(start..end))).unwrap();
                prop_assert_eq!(&part.unwrap()[..], &body[start..end]);
            }
            let past = body.len()..body.len() + 1;
            prop_assert!(futures::executor::block_on(arriving.part(&past)).unwrap().is_none());
        }
    }
}
