//! The objects that are served: bytes in memory, or mapped files.

use std::{
    collections::BTreeMap,
    fs::File,
    path::Path,
    sync::{PoisonError, RwLock},
    time::SystemTime,
};

use anyhow::Result;
use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::uploads::Whole;

#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) bytes: Bytes,
    /// Without quotes.
    pub(crate) etag: String,
    pub(crate) modified: SystemTime,
    /// What a writer said of it: `x-amz-meta-*`.
    pub(crate) metadata: Vec<(String, String)>,
}

/// Buckets and their objects.
#[derive(Debug, Default)]
pub(crate) struct Objects(RwLock<BTreeMap<String, BTreeMap<String, Object>>>);

impl Objects {
    pub(crate) fn put(&self, bucket: &str, key: &str, bytes: Bytes) {
        let etag = hex(&Sha256::digest(&bytes));
        self.insert(bucket, key, bytes, etag);
    }

    /// Adds or replaces an object where what is there lets it be; returns its ETag if so.
    pub(crate) fn put_if(
        &self,
        bucket: &str,
        key: &str,
        bytes: Bytes,
        metadata: Vec<(String, String)>,
        may: impl FnOnce(Option<&Object>) -> bool,
    ) -> Option<String> {
        let mut etag = hex(&Sha256::digest(&bytes));
        etag.truncate(32);
        let mut buckets = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.entry(bucket.to_owned()).or_default();
        if !may(bucket.get(key)) {
            return None;
        }
        let object = Object {
            bytes,
            etag: etag.clone(),
            modified: SystemTime::now(),
            metadata,
        };
        bucket.insert(key.to_owned(), object);
        Some(etag)
    }

    /// Adds or replaces an object by one that was uploaded in parts.
    pub(crate) fn put_whole(&self, bucket: &str, key: &str, whole: Whole) {
        let object = Object {
            bytes: whole.bytes,
            etag: whole.etag,
            modified: SystemTime::now(),
            metadata: whole.metadata,
        };
        let mut buckets = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.entry(bucket.to_owned()).or_default();
        bucket.insert(key.to_owned(), object);
    }

    /// Removes an object, if it is there.
    pub(crate) fn remove(&self, bucket: &str, key: &str) {
        let mut buckets = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = buckets.get_mut(bucket) {
            bucket.remove(key);
        }
    }

    /// Adds an empty bucket, if it is not there.
    pub(crate) fn add_bucket(&self, bucket: &str) {
        let mut buckets = self.0.write().unwrap_or_else(PoisonError::into_inner);
        buckets.entry(bucket.to_owned()).or_default();
    }

    #[expect(
        unsafe_code,
        reason = "a scene is mapped: it is larger than memory should hold"
    )]
    pub(crate) fn put_file(&self, bucket: &str, key: &str, path: &Path) -> Result<()> {
        let file = File::open(path)?;
        // SAFETY: scenes are written to a temporary file, renamed, and never changed after.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        // The whole file is not hashed: its name and size tell a scene from another.
        let name = format!("{bucket}/{key}/{}", map.len());
        let etag = hex(&Sha256::digest(name));
        self.insert(bucket, key, Bytes::from_owner(map), etag);
        Ok(())
    }

    fn insert(&self, bucket: &str, key: &str, bytes: Bytes, mut etag: String) {
        etag.truncate(32);
        let object = Object {
            bytes,
            etag,
            modified: SystemTime::now(),
            metadata: Vec::new(),
        };
        let mut buckets = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let bucket = buckets.entry(bucket.to_owned()).or_default();
        bucket.insert(key.to_owned(), object);
    }

    /// Puts an object under another key too; returns false if there is none.
    pub(crate) fn link(&self, bucket: &str, from: &str, to: &str) -> bool {
        let Some(object) = self.get(bucket, from) else {
            return false;
        };
        self.insert(bucket, to, object.bytes, object.etag);
        true
    }

    pub(crate) fn get(&self, bucket: &str, key: &str) -> Option<Object> {
        let buckets = self.0.read().unwrap_or_else(PoisonError::into_inner);
        buckets.get(bucket)?.get(key).cloned()
    }

    pub(crate) fn has_bucket(&self, bucket: &str) -> bool {
        let buckets = self.0.read().unwrap_or_else(PoisonError::into_inner);
        buckets.contains_key(bucket)
    }

    /// Returns keys and objects of a bucket that start with `prefix`, in the order of the keys.
    pub(crate) fn list(&self, bucket: &str, prefix: &str) -> Vec<(String, Object)> {
        let buckets = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let objects = buckets.get(bucket).into_iter().flatten();
        objects
            .filter(|(key, _)| key.starts_with(prefix))
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect()
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
