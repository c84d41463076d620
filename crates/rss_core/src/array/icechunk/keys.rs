//! The keys of a version of a repository, as an `ObjectStore`.

use std::fmt;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::{StreamExt, TryStreamExt, stream, stream::BoxStream};
use icechunk::{format::ByteRange, store::StoreErrorKind};
use object_store::{
    CopyOptions, Error as E, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result, path::Path,
};

use super::{
    backend::Repository,
    fault::{absent, carried, of_store},
};
use crate::array::storage::JOURNAL;

/// The keys as a store. It reports neither ETags nor times, and needs none: all reads are of one snapshot, whatever
/// others commit.
#[derive(Clone, Debug)]
pub(super) struct Keys(pub(super) Repository);

impl Keys {
    /// Returns the size of the object of a key.
    async fn size(&self, key: &str) -> Result<u64> {
        let size = self.0.store().getsize(key).await;
        match size.map_err(|err| of_store(&err, key, self.0.location()))? {
            // An encoded chunk is never empty: size 0 means that none is stored.
            0 => Err(absent(key)),
            size => Ok(size),
        }
    }

    async fn read(&self, key: &str, range: ByteRange) -> Result<Bytes> {
        let read = self.0.store().get(key, &range).await;
        read.map_err(|err| of_store(&err, key, self.0.location()))
    }

    async fn keys(self, prefix: String) -> Result<Vec<ObjectMeta>> {
        let listed = self.0.store().list_prefix(&prefix).await;
        let keys: std::result::Result<Vec<String>, _> = match listed {
            Ok(keys) => keys.try_collect().await,
            Err(err) => Err(err),
        };
        let keys = match keys {
            Ok(keys) => keys,
            // The prefix is neither a group nor an array, so no key is below it.
            Err(err) if matches!(err.kind, StoreErrorKind::BadKeyPrefix { .. }) => Vec::new(),
            Err(err) => return Err(of_store(&err, &prefix, self.0.location())),
        };
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            let size = self.size(&key).await?;
            found.push(meta(Path::parse(key)?, size));
        }
        Ok(found)
    }
}

fn meta(location: Path, size: u64) -> ObjectMeta {
    ObjectMeta {
        location,
        last_modified: DateTime::<Utc>::UNIX_EPOCH,
        size,
        e_tag: None,
        version: None,
    }
}

fn is_journal(key: &str) -> bool {
    key.ends_with(JOURNAL)
}

fn unknown(what: &'static str) -> E {
    E::NotSupported {
        source: what.into(),
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Icechunk({})", self.0.location())
    }
}

#[async_trait::async_trait]
impl ObjectStore for Keys {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        if options.mode != PutMode::Overwrite {
            return Err(unknown("conditional puts"));
        }
        let (key, bytes) = (location.as_ref(), Bytes::from(payload));
        // The journal is no key of the version, but a property of its checkpoints.
        if is_journal(key) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            self.0.keep_journal(Some(text)).await.map_err(carried)?;
        } else {
            let put = self.0.store().set(key, bytes).await;
            put.map_err(|err| of_store(&err, key, self.0.location()))?;
            if !key.ends_with("zarr.json") {
                self.0.count_chunk().await.map_err(carried)?;
            }
        }
        Ok(PutResult {
            e_tag: None,
            version: None,
            extensions: http::Extensions::default(),
        })
    }

    async fn put_multipart_opts(
        &self,
        _location: &Path,
        _options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(unknown("multipart uploads"))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let key = location.as_ref();
        let journal = match is_journal(key) {
            true => Some(self.0.journal().ok_or_else(|| absent(key))?),
            false => None,
        };
        let whole = options.range.is_none() && !options.head;
        let (bytes, range, size) = match journal {
            Some(text) => {
                let size = text.len() as u64;
                (Bytes::from(text), 0..size, size)
            }
            None if whole => {
                let bytes = self.read(key, ByteRange::From(0)).await?;
                let size = bytes.len() as u64;
                (bytes, 0..size, size)
            }
            None => {
                let size = self.size(key).await?;
                let wanted = options.range.unwrap_or(GetRange::Bounded(0..size));
                let range = wanted.as_range(size).map_err(|err| E::Generic {
                    store: "Icechunk",
                    source: Box::new(err),
                })?;
                let bytes = match options.head {
                    true => Bytes::new(),
                    false => self.read(key, ByteRange::Bounded(range.clone())).await?,
                };
                (bytes, range, size)
            }
        };
        Ok(GetResult {
            payload: GetResultPayload::Stream(stream::iter([Ok(bytes)]).boxed()),
            meta: meta(location.clone(), size),
            range,
            attributes: object_store::Attributes::default(),
            extensions: http::Extensions::default(),
        })
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let keys = self.clone();
        locations
            .and_then(move |location| {
                let keys = keys.clone();
                async move {
                    let key = location.as_ref();
                    if is_journal(key) {
                        keys.0.keep_journal(None).await.map_err(carried)?;
                    } else {
                        let removed = keys.0.store().delete(key).await;
                        removed.map_err(|err| of_store(&err, key, keys.0.location()))?;
                    }
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (keys, prefix) = (self.clone(), prefix.map(Path::to_string));
        let found = async move { keys.keys(prefix.unwrap_or_default()).await };
        let each = |found: Vec<ObjectMeta>| stream::iter(found.into_iter().map(Ok));
        stream::once(found).map_ok(each).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, _prefix: Option<&Path>) -> Result<ListResult> {
        Err(unknown("listing with a delimiter"))
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(unknown("copies"))
    }
}
