//! Multipart uploads that are under way, by S3's rules.
//!
//! See <https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html>.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::objects::hex;

/// What every part but the last has at least.
const LEAST_BYTES: usize = 5 << 20;
const MOST_PARTS: i32 = 10_000;

/// Uploads by their id.
#[derive(Debug, Default)]
pub(crate) struct Uploads(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    begun: u64,
    uploads: BTreeMap<String, Upload>,
}

#[derive(Debug)]
struct Upload {
    bucket: String,
    key: String,
    metadata: Vec<(String, String)>,
    parts: BTreeMap<i32, Part>,
}

#[derive(Debug)]
struct Part {
    bytes: Bytes,
    etag: String,
}

/// An object made of parts.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    pub(crate) etag: String,
    pub(crate) metadata: Vec<(String, String)>,
}

/// What is wrong with a request, by S3's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    NoSuchUpload,
    InvalidArgument,
    MalformedXml,
    InvalidPart,
    InvalidPartOrder,
    EntityTooSmall,
}

impl Uploads {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an upload, and returns its id.
    pub(crate) fn begin(&self, bucket: &str, key: &str, metadata: Vec<(String, String)>) -> String {
        let mut state = self.state();
        state.begun += 1;
        let id = format!("upload-{}", state.begun);
        let upload = Upload {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            metadata,
            parts: BTreeMap::new(),
        };
        state.uploads.insert(id.clone(), upload);
        id
    }

    /// Adds or replaces a part, and returns its ETag.
    pub(crate) fn put(
        &self,
        (bucket, key): (&str, &str),
        id: &str,
        number: i32,
        bytes: Bytes,
    ) -> Result<String, Refusal> {
        if !(1..=MOST_PARTS).contains(&number) {
            return Err(Refusal::InvalidArgument);
        }
        let mut etag = hex(&Sha256::digest(&bytes));
        etag.truncate(32);
        let mut state = self.state();
        let upload = find(&mut state, (bucket, key), id)?;
        let part = Part {
            bytes,
            etag: etag.clone(),
        };
        upload.parts.insert(number, part);
        Ok(etag)
    }

    /// Ends an upload: returns the object of the parts that are named, by number and ETag.
    pub(crate) fn complete(
        &self,
        (bucket, key): (&str, &str),
        id: &str,
        named: &[(i32, String)],
    ) -> Result<Whole, Refusal> {
        let mut state = self.state();
        let upload = find(&mut state, (bucket, key), id)?;
        if named.is_empty() {
            return Err(Refusal::MalformedXml);
        }
        if !named.is_sorted_by(|(a, _), (b, _)| a < b) {
            return Err(Refusal::InvalidPartOrder);
        }
        let mut parts = Vec::with_capacity(named.len());
        for (number, etag) in named {
            let part = upload.parts.get(number);
            let part = part.filter(|part| part.etag == *etag);
            parts.push(part.ok_or(Refusal::InvalidPart)?);
        }
        if let Some((_, all_but_last)) = parts.split_last()
            && all_but_last
                .iter()
                .any(|part| part.bytes.len() < LEAST_BYTES)
        {
            return Err(Refusal::EntityTooSmall);
        }
        let bytes: Vec<&[u8]> = parts.iter().map(|part| &part.bytes[..]).collect();
        let etags: String = parts.iter().map(|part| part.etag.as_str()).collect();
        let mut etag = hex(&Sha256::digest(etags));
        etag.truncate(32);
        let whole = Whole {
            bytes: bytes.concat().into(),
            etag: format!("{etag}-{}", parts.len()),
            metadata: upload.metadata.clone(),
        };
        state.uploads.remove(id);
        Ok(whole)
    }

    /// Ends an upload, and forgets its parts.
    pub(crate) fn abort(&self, place: (&str, &str), id: &str) -> Result<(), Refusal> {
        let mut state = self.state();
        find(&mut state, place, id)?;
        state.uploads.remove(id);
        Ok(())
    }

    /// Returns the keys of uploads to a bucket, and how many parts each has.
    pub(crate) fn list(&self, bucket: &str) -> Vec<(String, usize)> {
        let state = self.state();
        let uploads = state.uploads.values();
        uploads
            .filter(|upload| upload.bucket == bucket)
            .map(|upload| (upload.key.clone(), upload.parts.len()))
            .collect()
    }
}

fn find<'a>(
    state: &'a mut State,
    (bucket, key): (&str, &str),
    id: &str,
) -> Result<&'a mut Upload, Refusal> {
    let upload = state.uploads.get_mut(id);
    upload
        .filter(|upload| upload.bucket == bucket && upload.key == key)
        .ok_or(Refusal::NoSuchUpload)
}
