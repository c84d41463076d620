//! A repository's own objects, in a store of the session.
//!
//! Icechunk would build stores of its own, with credentials passed to it. The session's stores have theirs
//! already, from every source that [`StoreOptions`](crate::StoreOptions) names; they count requests, retry, and keep
//! secrets out of errors. The trait `Storage` is sealed in name only: its seal is public. A minor version may change
//! it, so `Cargo.toml` pins the minor version.

use std::{fmt, num::NonZeroU16, ops::Range, pin::Pin, sync::Arc};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::{Stream, StreamExt, TryStreamExt, stream::BoxStream};
use icechunk_storage::{
    DeleteObjectsResult, ETag, Generation, GetModifiedResult, ListInfo, RepositoryCreation,
    RetriesSettings, Settings, Storage, StorageContext, StorageError, StorageErrorKind,
    StorageInfo, StorageResult, VersionInfo, VersionedUpdateResult, obj_not_found_res,
    obj_store_error,
    readback::{
        ReadbackOutcome, WRITE_ID_METADATA_KEY, resolve_lost_response, resolve_precondition,
        write_id_for,
    },
    sealed,
};
use object_store::{
    Attribute, AttributeValue, Attributes, GetOptions, GetRange, ObjectStore, ObjectStoreExt,
    PutMode, PutOptions, UpdateVersion, path::Path,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    session::Session,
    store::{self, hex},
};

/// The limit on the bytes of an object that is read as a whole: a snapshot, a manifest, a list of references.
const MOST_BYTES: u64 = 1 << 30;

/// The objects below a location.
#[derive(Debug)]
pub(super) struct Objects {
    store: Arc<dyn ObjectStore>,
    base: Path,
    location: Location,
}

impl Objects {
    pub(super) fn new(session: &Session, location: &Location) -> Result<Self> {
        if let Location::Http(_) = location {
            let message = "an Icechunk repository is read from a folder or a bucket, not by HTTP";
            return Err(Error::new(ErrorKind::Unsupported, message).at(location));
        }
        let (store, base) = session.stores().store(location)?;
        Ok(Self {
            store,
            base,
            location: location.clone(),
        })
    }

    fn path(&self, key: &str) -> Path {
        key.split('/')
            .filter(|part| !part.is_empty())
            .fold(self.base.clone(), Path::join)
    }

    fn is_local(&self) -> bool {
        self.location.as_local().is_some()
    }

    async fn get(
        &self,
        path: &str,
        range: Option<&Range<u64>>,
        unless: Option<String>,
    ) -> StorageResult<Option<(BoxStream<'static, StorageResult<Bytes>>, VersionInfo)>> {
        let options = GetOptions {
            range: range.cloned().map(GetRange::Bounded),
            if_none_match: unless,
            ..GetOptions::default()
        };
        match self.store.get_opts(&self.path(path), options).await {
            Ok(found) => {
                // The stream has the length that is stated here, or ends with an error.
                if range.is_none() && found.meta.size > MOST_BYTES {
                    return Err(too_large(path));
                }
                let version = version(&found.meta.e_tag, &found.meta.version);
                let bytes = found.into_stream().map_err(obj_store_error).boxed();
                Ok(Some((bytes, version)))
            }
            Err(object_store::Error::NotModified { .. }) => Ok(None),
            Err(object_store::Error::NotFound { .. }) => obj_not_found_res(),
            Err(err) => Err(obj_store_error(err)),
        }
    }

    /// Finds out whose object is stored, after a conditional put that failed or whose response was lost: a retried put
    /// fails its own condition if the first attempt succeeded.
    async fn read_back(&self, path: &Path, id: Option<&str>) -> StorageResult<ReadbackOutcome> {
        let Some(id) = id else {
            return Ok(ReadbackOutcome::NotOurs);
        };
        let options = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        match self.store.get_opts(path, options).await {
            Ok(found) => {
                let stored = found.attributes.get(&write_id());
                let stored = stored.map(|value| value.as_ref().to_owned());
                let version = version(&found.meta.e_tag, &found.meta.version);
                Ok(ReadbackOutcome::classify(id, stored.as_deref(), &version))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(ReadbackOutcome::NotOurs),
            Err(err) => Err(obj_store_error(err)),
        }
    }
}

fn version(etag: &Option<String>, generation: &Option<String>) -> VersionInfo {
    VersionInfo {
        etag: etag.clone().map(ETag),
        generation: generation.clone().map(Generation),
    }
}

fn too_large(path: &str) -> StorageError {
    let message = format!(
        "{path} is larger than the limit of {} MiB",
        MOST_BYTES >> 20
    );
    obj_store_error(object_store::Error::Generic {
        store: "rss_core",
        source: message.into(),
    })
}

fn write_id() -> Attribute {
    Attribute::Metadata(WRITE_ID_METADATA_KEY.into())
}

impl fmt::Display for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.location.fmt(f)
    }
}

/// The trait `Storage` demands serde; a session with its credentials must not be serialized.
impl Serialize for Objects {
    fn serialize<S: Serializer>(&self, _serializer: S) -> Result<S::Ok, S::Error> {
        Err(ser::Error::custom("a store of a session"))
    }
}

impl<'de> Deserialize<'de> for Objects {
    fn deserialize<D: Deserializer<'de>>(_deserializer: D) -> Result<Self, D::Error> {
        Err(de::Error::custom("a store of a session"))
    }
}

impl sealed::Sealed for Objects {}

#[async_trait::async_trait]
#[typetag::serde(name = "rss_core")]
impl Storage for Objects {
    fn storage_info(&self) -> StorageInfo {
        StorageInfo {
            backend_type: "rss_core",
            fields: vec![("location", self.location.to_string())],
        }
    }

    async fn default_settings(&self) -> StorageResult<Settings> {
        // The session's stores retry by themselves.
        let retries = RetriesSettings {
            max_tries: Some(NonZeroU16::MIN),
            ..RetriesSettings::default()
        };
        let mut settings = Settings {
            retries: Some(retries),
            ..Settings::default()
        };
        if self.is_local() {
            // object_store's local file system supports neither.
            settings.unsafe_use_conditional_update = Some(false);
            settings.unsafe_use_metadata = Some(false);
        }
        Ok(settings)
    }

    async fn can_write(&self) -> StorageResult<bool> {
        Ok(true)
    }

    async fn can_create_repository(&self) -> StorageResult<RepositoryCreation> {
        match self.base.as_ref().is_empty() {
            true => Ok(RepositoryCreation::RefusedEmptyPrefix),
            false => Ok(RepositoryCreation::Allowed),
        }
    }

    async fn get_object_range(
        &self,
        _context: &StorageContext<'_>,
        path: &str,
        range: Option<&Range<u64>>,
    ) -> StorageResult<(
        Pin<Box<dyn Stream<Item = Result<Bytes, StorageError>> + Send>>,
        VersionInfo,
    )> {
        match self.get(path, range, None).await? {
            Some((bytes, version)) => Ok((bytes, version)),
            None => obj_not_found_res(),
        }
    }

    async fn get_object_conditional(
        &self,
        _context: &StorageContext<'_>,
        path: &str,
        previous_version: Option<&VersionInfo>,
    ) -> StorageResult<GetModifiedResult> {
        let unless = previous_version.and_then(VersionInfo::etag).cloned();
        match self.get(path, None, unless).await? {
            Some((bytes, new_version)) => {
                let bytes: Vec<Bytes> = bytes.try_collect().await?;
                let data = Box::pin(std::io::Cursor::new(bytes.concat()));
                Ok(GetModifiedResult::Modified { data, new_version })
            }
            None => Ok(GetModifiedResult::OnLatestVersion),
        }
    }

    async fn put_object(
        &self,
        context: &StorageContext<'_>,
        path: &str,
        bytes: Bytes,
        content_type: Option<&str>,
        metadata: Vec<(String, String)>,
        previous_version: Option<&VersionInfo>,
    ) -> StorageResult<VersionedUpdateResult> {
        let (path, settings) = (self.path(path), context.settings);
        let mode = match previous_version {
            Some(before) if before.is_create() && settings.unsafe_use_conditional_create() => {
                PutMode::Create
            }
            Some(before) if !before.is_create() && settings.unsafe_use_conditional_update() => {
                PutMode::Update(UpdateVersion {
                    e_tag: before.etag().cloned(),
                    version: before.generation().cloned(),
                })
            }
            _ => PutMode::Overwrite,
        };
        let is_conditional = mode != PutMode::Overwrite;
        let id = write_id_for(settings, is_conditional, new_write_id);
        let mut attributes = Attributes::new();
        if settings.unsafe_use_metadata() {
            if let Some(kind) = content_type {
                attributes.insert(Attribute::ContentType, kind.to_owned().into());
            }
            for (name, value) in metadata {
                attributes.insert(Attribute::Metadata(name.into()), value.into());
            }
        }
        if let Some(class) = settings.storage_class().filter(|_| !self.is_local()) {
            attributes.insert(Attribute::StorageClass, AttributeValue::from(class.clone()));
        }
        if let Some(id) = &id {
            attributes.insert(write_id(), AttributeValue::from(id.clone()));
        }
        let options = PutOptions {
            mode,
            attributes,
            ..PutOptions::default()
        };
        match self.store.put_opts(&path, bytes.into(), options).await {
            Ok(put) => Ok(VersionedUpdateResult::Updated {
                new_version: version(&put.e_tag, &put.version),
            }),
            Err(
                object_store::Error::Precondition { .. }
                | object_store::Error::AlreadyExists { .. },
            ) => {
                let found = self.read_back(&path, id.as_deref()).await;
                resolve_precondition(found, path.as_ref())
            }
            Err(err @ object_store::Error::Generic { .. }) if id.is_some() => {
                let found = self.read_back(&path, id.as_deref()).await;
                resolve_lost_response(found, path.as_ref(), obj_store_error(err))
            }
            Err(err) => Err(obj_store_error(err)),
        }
    }

    async fn copy_object(
        &self,
        context: &StorageContext<'_>,
        from: &str,
        to: &str,
        _content_type: Option<&str>,
        version: &VersionInfo,
    ) -> StorageResult<VersionedUpdateResult> {
        // Read and written rather than copied: `object_store` has no copy with a condition on the source. The
        // objects are small.
        let etag = version.etag().cloned();
        let options = GetOptions {
            if_match: etag.filter(|_| context.settings.unsafe_use_conditional_update()),
            ..GetOptions::default()
        };
        let found = match self.store.get_opts(&self.path(from), options).await {
            Ok(found) => store::read_at_most(found, MOST_BYTES, &self.location)
                .await
                .map_err(|err| {
                    let source: Box<dyn std::error::Error + Send + Sync> = Box::new(err);
                    obj_store_error(object_store::Error::Generic {
                        store: "rss_core",
                        source,
                    })
                })?,
            Err(object_store::Error::Precondition { .. }) => {
                return Ok(VersionedUpdateResult::NotOnLatestVersion);
            }
            Err(object_store::Error::NotFound { .. }) => return obj_not_found_res(),
            Err(err) => return Err(obj_store_error(err)),
        };
        let put = self.store.put(&self.path(to), found.into()).await;
        put.map_err(obj_store_error)?;
        Ok(VersionedUpdateResult::Updated {
            new_version: version.clone(),
        })
    }

    async fn list_objects<'a>(
        &'a self,
        _context: &StorageContext<'_>,
        prefix: &str,
    ) -> StorageResult<BoxStream<'a, StorageResult<ListInfo<String>>>> {
        let root = self.path(prefix);
        let found = self.store.list(Some(&root));
        let named = move |object: object_store::Result<object_store::ObjectMeta>| {
            let object = object.map_err(obj_store_error)?;
            let parts = object.location.prefix_match(&root).ok_or_else(|| {
                let path = object.location.to_string().into();
                StorageError::capture(StorageErrorKind::BadPrefix(path))
            })?;
            Ok(ListInfo {
                id: Path::from_iter(parts).to_string(),
                created_at: object.last_modified,
                size_bytes: object.size,
            })
        };
        Ok(found.map(named).boxed())
    }

    async fn delete_batch(
        &self,
        _context: &StorageContext<'_>,
        prefix: &str,
        batch: Vec<(String, u64)>,
    ) -> StorageResult<DeleteObjectsResult> {
        let mut done = DeleteObjectsResult::default();
        for (id, size) in batch {
            let path = self.path(prefix).join(id);
            self.store.delete(&path).await.map_err(obj_store_error)?;
            done.deleted_objects += 1;
            done.deleted_bytes += size;
        }
        Ok(done)
    }

    async fn get_object_last_modified(
        &self,
        _context: &StorageContext<'_>,
        path: &str,
    ) -> StorageResult<DateTime<Utc>> {
        let found = self.store.head(&self.path(path)).await;
        Ok(found.map_err(obj_store_error)?.last_modified)
    }
}

/// Returns a random id for a put: 128 bits of std's randomly seeded hasher.
fn new_write_id() -> String {
    use std::{
        hash::{BuildHasher, RandomState},
        time::SystemTime,
    };
    let now = SystemTime::now();
    let parts = [(); 2].map(|()| RandomState::new().hash_one(now));
    hex(parts.map(u64::to_le_bytes).as_flattened())
}
