//! Where the bytes of a file go: a file of this machine, or an object of a bucket.
//!
//! Bytes come one after another, but for the header, which comes first in the file and is known last. Who gives
//! them has counted them; a sink takes them off the count when they are gone.

mod file;
mod object;

use std::sync::Arc;

use bytes::Bytes;

use self::{file::FileSink, object::ObjectSink};
use super::{plan::invalid, tile_store::Gauge};
use crate::{error::Result, location::Location, session::Session};

/// A file that is being written. Dropped before its end it leaves nothing behind.
#[derive(Debug)]
pub(super) enum Sink {
    File(FileSink),
    Object(Box<ObjectSink>),
}

impl Sink {
    /// Opens a sink for a file of `most_bytes` at most, which starts with so many bytes of header.
    pub(super) fn create(
        session: &Session,
        location: &Location,
        header_bytes: u64,
        most_bytes: u64,
        gauge: &Arc<Gauge>,
    ) -> Result<Self> {
        match location {
            Location::Local(path) => {
                let sink = FileSink::create(path, header_bytes, gauge)?;
                Ok(Self::File(sink))
            }
            Location::Http(_) => {
                Err(invalid("an address that can only be read; name the bucket").at(location))
            }
            Location::S3 { .. } | Location::Gcs { .. } | Location::Azure { .. } => {
                let sink = ObjectSink::create(session, location, header_bytes, most_bytes, gauge)?;
                Ok(Self::Object(Box::new(sink)))
            }
        }
    }

    /// Adds bytes at the end.
    pub(super) async fn append(&mut self, pieces: Vec<Bytes>) -> Result<()> {
        match self {
            Self::File(file) => file.append(pieces).await,
            Self::Object(object) => object.append(pieces).await,
        }
    }

    /// Writes the header, and gives the file its name.
    pub(super) async fn finish(self, header: Bytes) -> Result<()> {
        match self {
            Self::File(file) => file.finish(header).await,
            Self::Object(object) => object.finish(header).await,
        }
    }

    /// Removes what was written.
    pub(super) async fn abort(self) -> Result<()> {
        match self {
            Self::File(file) => {
                drop(file);
                Ok(())
            }
            Self::Object(object) => object.abort().await,
        }
    }
}
