//! The network of the COG backend: header and tiles, as ranged requests, and nothing else.
//!
//! Never a `HEAD`, never a listing. Tile requests carry the header's ETag, so pixels of two versions
//! of an object are never mixed.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use object_store::{GetOptions, GetRange, ObjectStore, path::Path};

use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    store,
};

/// One object, as it was when its header was read.
#[derive(Debug)]
pub(super) struct Object {
    store: Arc<dyn ObjectStore>,
    path: Path,
    location: Location,
    /// A strong ETag, if the store gave one.
    etag: Option<String>,
    size: u64,
}

impl Object {
    /// Fetches the first bytes of an object: at most `length`, fewer if it is shorter.
    pub(super) async fn open(
        store: Arc<dyn ObjectStore>,
        path: Path,
        location: Location,
        length: u64,
    ) -> Result<(Self, Bytes)> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(0..length)),
            ..GetOptions::default()
        };
        let fail = |err: object_store::Error| store::error(&err, &location);
        let answer = store.get_opts(&path, options).await.map_err(fail)?;
        let meta = answer.meta.clone();
        let promised = answer.range.end - answer.range.start;
        let bytes = answer.bytes().await.map_err(fail)?;
        check_length(&bytes, promised).map_err(|err| err.at(&location))?;
        let object = Self {
            store,
            path,
            location,
            etag: meta.e_tag.filter(|etag| !etag.starts_with("W/")),
            size: meta.size,
        };
        Ok((object, bytes))
    }

    /// Returns the object's size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Fetches a range of the same version of the object.
    pub(super) async fn fetch(&self, range: Range<u64>) -> Result<Bytes> {
        if range.end > self.size {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!(
                    "it points to bytes up to {}, but has {} bytes",
                    range.end, self.size
                ),
            )
            .at(&self.location));
        }
        let promised = range.end - range.start;
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            if_match: self.etag.clone(),
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
        let answer = self
            .store
            .get_opts(&self.path, options)
            .await
            .map_err(fail)?;
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
