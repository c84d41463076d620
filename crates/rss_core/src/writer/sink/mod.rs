//! Sinks for the bytes of a file: a file of this machine, or an object of a bucket.
//!
//! Bytes are appended, except the header, which is first in the file and known last. The caller has added them to
//! the gauge; a sink removes them when they are written.

mod file;
mod object;

use std::sync::Arc;

use bytes::Bytes;

use self::{file::FileSink, object::ObjectSink};
use super::{plan::invalid, tile_store::Gauge};
use crate::{error::Result, location::Location, session::Session};

/// A file that is being written. Dropped before [`Sink::finish`] it leaves nothing behind.
#[derive(Debug)]
pub(super) enum Sink {
    File(FileSink),
    Object(Box<ObjectSink>),
}

impl Sink {
    /// Opens a sink for a file that starts with a header of `header_bytes`, and has at most `most_bytes` of
    /// tiles.
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
            Location::Http(_) => Err(invalid(
                "an http(s) URL is read-only, expected a bucket or a path",
            )
            .at(location)),
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

    /// Writes the header, and publishes the file.
    pub(super) async fn finish(self, header: Bytes) -> Result<()> {
        match self {
            Self::File(file) => file.finish(header).await,
            Self::Object(object) => object.finish(header).await,
        }
    }

    /// Removes the written bytes.
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
