//! [Zarr v3](https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html) arrays: opening, reading and writing
//! regions.
//!
//! [`metadata`] parses `zarr.json`, [`codec`] runs the codec chain, [`shard`] reads a shard's index, [`region`] finds
//! the chunks that a region touches; [`storage`] is the folder, bucket or [`icechunk`] repository that holds the
//! objects. Dates and bands are left to `cube`.

mod claim;
mod codec;
mod extension;
mod folder;
mod half;
mod hierarchy;
mod icechunk;
mod layout;
mod metadata;
mod read;
mod region;
mod root;
mod sealed;
mod shard;
mod spec;
mod storage;
mod text;
pub(crate) mod vlen;
mod write;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use serde_json::Value;

pub(crate) use self::extension::{Members, check_group};
pub(crate) use self::hierarchy::{Document, Hierarchy, with_sign_of};
pub(crate) use self::metadata::{json_number, number_of};
pub(crate) use self::{
    claim::{Claim, Expected, Intent, Journal},
    sealed::{Sum, seal, unseal},
    storage::{JOURNAL, Listed, Storage, Turn},
};
use self::{
    codec::Scratch,
    metadata::Metadata,
    shard::{Index, Sharding},
};
pub use self::{
    codec::{Codec, Compressor, Shuffle},
    icechunk::{Commit, Icechunk},
    layout::{Arrangement, Block, Layout, Use},
    root::Root,
    spec::ArraySpec,
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    raster::{DataType, Number, Sample},
    session::Session,
    store::Object,
};

/// Bytes of shard indexes that an open array caches.
const MOST_INDEX_BYTES: usize = 64 << 20;
/// Shards that an open array keeps open.
const MOST_SHARDS: usize = 512;

/// An array of samples, of any rank, in chunks.
///
/// Cheap to clone; clones share the cache of shard indexes.
#[derive(Clone, Debug)]
pub struct Array(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    storage: Storage,
    /// The array's path in the hierarchy; empty if the array is its root.
    path: String,
    metadata: Metadata,
    kept: Mutex<ShardCache>,
}

/// Open shards with their indexes.
#[derive(Debug, Default)]
struct ShardCache {
    shards: HashMap<Vec<u64>, Arc<Shard>>,
    bytes: usize,
}

#[derive(Debug)]
struct Shard {
    object: Object,
    index: Index,
}

impl Array {
    /// Opens the array at a location: a folder or prefix that holds `zarr.json` (or `.zarray`). Costs one
    /// request; two where it is of Zarr v2.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if nothing is there, [`ErrorKind::InvalidInput`] if it is a group,
    /// [`ErrorKind::Corrupt`] or [`ErrorKind::Unsupported`] if its metadata cannot be read, and errors of the
    /// store.
    pub async fn open(session: &Session, root: impl Into<Root>) -> Result<Self> {
        Self::open_in(Storage::at(session, &root.into()).await?, "").await
    }

    /// Opens the array at a path of a hierarchy.
    pub(crate) async fn open_in(storage: Storage, path: &str) -> Result<Self> {
        let location = storage.locate(path);
        let metadata = match storage.read(&below(path, "zarr.json")).await? {
            Some(document) => parse(&document).and_then(|json| Metadata::parse(&json)),
            None => match storage.read(&below(path, ".zarray")).await? {
                Some(document) => {
                    let attributes = storage.read(&below(path, ".zattrs")).await?;
                    let attributes = attributes.map(|bytes| parse(&bytes)).transpose();
                    attributes
                        .and_then(|attributes| Metadata::parse_v2(&parse(&document)?, attributes))
                }
                None => Err(Error::new(
                    ErrorKind::NotFound,
                    "no Zarr array: neither zarr.json nor .zarray exists",
                )),
            },
        };
        let metadata = metadata.map_err(|err| err.at(&location))?;
        Ok(Self::of(storage, path, metadata))
    }

    /// Makes an array of Zarr v2 of metadata that was read elsewhere.
    pub(crate) fn of_document_v2(
        storage: Storage,
        path: &str,
        document: &Value,
        attributes: Option<&Value>,
    ) -> Result<Self> {
        let metadata = Metadata::parse_v2(document, attributes.cloned())
            .map_err(|err| err.at(storage.locate(path)))?;
        Ok(Self::of(storage, path, metadata))
    }

    /// Makes an array of metadata that was read elsewhere.
    pub(crate) fn of_document(storage: Storage, path: &str, document: &Value) -> Result<Self> {
        let metadata = Metadata::parse(document).map_err(|err| err.at(storage.locate(path)))?;
        Ok(Self::of(storage, path, metadata))
    }

    /// Makes an array whose metadata is not written yet.
    pub(crate) fn unwritten(storage: Storage, path: &str, spec: &ArraySpec) -> Result<Self> {
        spec.check()?;
        Ok(Self::of(storage, path, spec.metadata()))
    }

    fn of(storage: Storage, path: &str, metadata: Metadata) -> Self {
        Self(Arc::new(Inner {
            storage,
            path: path.to_owned(),
            metadata,
            kept: Mutex::default(),
        }))
    }

    /// Creates a new, empty array at a location.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the spec is invalid, or an array or group exists there; errors of the
    /// store.
    pub async fn create(
        session: &Session,
        root: impl Into<Root>,
        spec: &ArraySpec,
    ) -> Result<Self> {
        let root = root.into();
        let location = root.location();
        let document = spec.document().map_err(|err| err.at(location))?;
        let storage = Storage::make(session, &root).await?;
        let turn = storage.begin().await?;
        if storage.read("zarr.json").await?.is_some() {
            let message =
                "an array or group exists already: a new array needs a location of its own";
            return Err(Error::new(ErrorKind::InvalidInput, message).at(location));
        }
        storage
            .write("zarr.json", vec![to_bytes(&document)])
            .await?;
        turn.publish(&format!("Create an array of {}", spec.dtype))
            .await?;
        Self::unwritten(storage, "", spec)
    }

    /// Returns the shape: the length of each axis in samples.
    pub fn shape(&self) -> &[u64] {
        &self.0.metadata.shape
    }

    /// Returns the dtype of the samples: `float32` where they are stored as `float16`.
    pub fn dtype(&self) -> DataType {
        self.0.metadata.dtype
    }

    /// Returns true if samples are stored as `float16`: they are read as `float32` without loss, and rounded to the
    /// nearest when they are written.
    pub fn is_float16(&self) -> bool {
        self.0.metadata.is_half
    }

    /// Returns the shape of a chunk, the smallest part that can be decoded.
    pub fn chunk(&self) -> &[u64] {
        match self.0.metadata.chain.as_shards() {
            Some(sharding) => &sharding.chunk,
            None => &self.0.metadata.grid,
        }
    }

    /// Returns the shape of a shard; none where each chunk is an object of its own.
    pub fn shard(&self) -> Option<&[u64]> {
        let sharded = self.0.metadata.chain.as_shards();
        sharded.map(|_| self.0.metadata.grid.as_slice())
    }

    /// Returns the fill value, which samples have that were never written; of a complex array its real part.
    pub fn fill(&self) -> Number {
        self.0.metadata.fill_number
    }

    /// Returns the name of each axis that has one.
    pub fn dimensions(&self) -> &[Option<String>] {
        &self.0.metadata.dimensions
    }

    /// Returns the attributes of the array's metadata.
    pub fn attributes(&self) -> &serde_json::Map<String, Value> {
        &self.0.metadata.attributes
    }
    /// Returns an error that names the array.
    fn named(&self, err: Error) -> Error {
        match err.location() {
            Some(_) => err,
            None => err.at(self.location()),
        }
    }

    fn location(&self) -> Location {
        self.0.storage.locate(&self.0.path)
    }

    fn check_type<T: Sample>(&self) -> Result<()> {
        if T::DTYPE == self.dtype() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "its samples are {}, requested as {}",
                self.dtype(),
                T::DTYPE
            ),
        ))
    }

    fn chunk_in_memory(&self) -> Result<Vec<usize>> {
        let chunk: Option<Vec<usize>> = self
            .chunk()
            .iter()
            .map(|&length| usize::try_from(length).ok())
            .collect();
        chunk.ok_or_else(|| Error::new(ErrorKind::Corrupt, "a chunk that does not fit memory"))
    }

    fn grid_in_memory(&self) -> Result<Vec<usize>> {
        let grid: Option<Vec<usize>> = self
            .0
            .metadata
            .grid
            .iter()
            .map(|&length| usize::try_from(length).ok())
            .collect();
        grid.ok_or_else(|| Error::new(ErrorKind::Corrupt, "a shard that does not fit memory"))
    }

    /// Returns the key of a shard.
    pub(crate) fn key_of(&self, shard: &[u64]) -> String {
        below(&self.0.path, &self.0.metadata.keys.key(shard))
    }

    /// Returns true if a shard is whole: the checksum of its index matches, and its chunks are all that it holds beside.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) async fn is_whole(&self, key: &[u64]) -> Result<bool> {
        let Some(sharding) = self.0.metadata.chain.as_shards() else {
            return Ok(true);
        };
        let counts = sharding.counts(&self.0.metadata.grid)?;
        let (length, at_start) = sharding.index_bytes(&counts)?;
        let opened = self
            .0
            .storage
            .open(&self.key_of(key), length, at_start)
            .await;
        let (object, bytes) = match opened {
            Ok(Some(opened)) => opened,
            Ok(None) => return Ok(false),
            Err(err) => match err.kind() {
                // A range of an empty object.
                ErrorKind::Corrupt | ErrorKind::InvalidInput => return Ok(false),
                _ => return Err(err),
            },
        };
        let index = sharding.read_index(&bytes, counts, object.size());
        Ok(index.is_ok_and(|index| index.stored() > 0 && index.stored() + length == object.size()))
    }

    /// Forgets a shard that is replaced.
    pub(crate) fn forget_shard(&self, key: &[u64]) {
        self.kept().shards.remove(key);
    }

    /// Returns a shard without chunks, which reads as the fill value.
    pub(crate) fn empty_shard(&self) -> Result<Vec<Bytes>> {
        let Some(sharding) = self.0.metadata.chain.as_shards() else {
            return Ok(Vec::new());
        };
        let counts = sharding.counts(&self.0.metadata.grid)?;
        let chunks = counts.iter().product::<u64>();
        let chunks = usize::try_from(chunks).unwrap_or(usize::MAX);
        Ok(vec![shard::write_index(&vec![None; chunks]).into()])
    }

    /// Returns the index along the first axis of the shard of a key; none if the key is not of this array.
    pub(crate) fn time_of(&self, key: &str) -> Option<u64> {
        let rest = key.strip_prefix(&below(&self.0.path, "c/"))?;
        rest.split('/').next()?.parse().ok()
    }

    /// Returns a shard from the cache, or opens it. In an array without shards each chunk is treated as a shard of
    /// one chunk without an index.
    async fn shard_at(
        &self,
        key: &[u64],
        sharding: Option<&Sharding>,
        counts: &[u64],
    ) -> Result<Option<Arc<Shard>>> {
        if let Some(known) = self.kept().shards.get(key) {
            return Ok(Some(Arc::clone(known)));
        }
        let name = self.key_of(key);
        let (length, at_start) = match sharding {
            Some(sharding) => sharding.index_bytes(counts)?,
            None => (1, true),
        };
        let opened = self.0.storage.open(&name, length, at_start).await?;
        let shard = match opened {
            None => None,
            Some((object, bytes)) => {
                let size = object.size();
                let index = match sharding {
                    Some(sharding) => sharding.read_index(&bytes, counts.to_vec(), size),
                    None => Ok(Index::of_one(size)),
                };
                let index = index.map_err(|err| {
                    Error::new(
                        err.kind(),
                        format!("shard {}: {}", chunk_name(key), err.message()),
                    )
                    .at(self.0.storage.locate(&name))
                })?;
                Some(Arc::new(Shard { object, index }))
            }
        };
        // An absent shard is not cached: it may be written later, so the next read requests it again.
        if let Some(shard) = &shard {
            let mut kept = self.kept();
            kept.bytes += shard.index.bytes();
            // Past a limit the complete cache is dropped; shards that are read again are opened again.
            if kept.bytes > MOST_INDEX_BYTES || kept.shards.len() >= MOST_SHARDS {
                kept.shards.clear();
                kept.bytes = shard.index.bytes();
            }
            kept.shards.insert(key.to_vec(), Arc::clone(shard));
        }
        Ok(shard)
    }

    fn kept(&self) -> MutexGuard<'_, ShardCache> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self) {
        *self.kept() = ShardCache::default();
    }
}

fn with_scratch<R>(work: impl FnOnce(&mut Scratch) -> Result<R>) -> Result<R> {
    thread_local! {
        static SCRATCH: std::cell::RefCell<Scratch> = std::cell::RefCell::default();
    }
    SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
        Ok(mut scratch) => work(&mut scratch),
        // Already borrowed further up this thread's stack.
        Err(_) => work(&mut Scratch::default()),
    })
}

fn chunk_name(index: &[u64]) -> String {
    let numbers: Vec<String> = index.iter().map(u64::to_string).collect();
    numbers.join(",")
}

/// Joins a path of a hierarchy and a key below it.
pub(crate) fn below(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}/{key}"),
    }
}

/// Reads a JSON document. NaN and the infinities, which JSON lacks and Python writes, become texts.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value> {
    serde_json::from_slice(bytes)
        .or_else(|err| serde_json::from_slice(&quoted(bytes)).map_err(|_| err))
        .map_err(|err| Error::new(ErrorKind::Corrupt, "metadata is not JSON").with_source(err))
}

/// Puts quotes around NaN and the infinities of a document.
fn quoted(bytes: &[u8]) -> Vec<u8> {
    const WORDS: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
    let mut out = Vec::with_capacity(bytes.len() + 16);
    let (mut at, mut in_text) = (0, false);
    while let Some(&byte) = bytes.get(at) {
        let rest = &bytes[at..];
        if !in_text && let Some(word) = WORDS.iter().find(|word| rest.starts_with(word)) {
            out.push(b'"');
            out.extend_from_slice(word);
            out.push(b'"');
            at += word.len();
            continue;
        }
        out.push(byte);
        at += 1;
        match byte {
            b'"' => in_text = !in_text,
            b'\\' if in_text => {
                out.extend(bytes.get(at));
                at += 1;
            }
            _ => {}
        }
    }
    out
}

pub(crate) fn to_bytes(document: &Value) -> Bytes {
    format!("{document:#}\n").into()
}
