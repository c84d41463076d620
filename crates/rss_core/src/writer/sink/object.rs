//! An object of a bucket, uploaded in parts while it grows.
//!
//! The header is in the first part, which is therefore uploaded last; the others are uploaded as they fill. All
//! but the last have one size, which some servers require. The object appears only when the upload is completed.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use object_store::{
    ObjectStore, PutOptions, PutPayload,
    multipart::{MultipartStore, PartId},
    path::Path,
};
use tokio::{runtime::Handle, task::JoinSet};

use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    session::Session,
    store,
    writer::tile_store::Gauge,
};

/// The size of a part, unless the object would have too many. S3 requires 5 MiB at least.
const PART_BYTES: u64 = 8 << 20;
/// Parts of an object: S3 allows 10,000.
const MOST_PARTS: u64 = 9_000;
/// Concurrent uploads of parts.
const UNDER_WAY: usize = 4;

#[derive(Debug)]
pub(in crate::writer) struct ObjectSink {
    target: ObjectTarget,
    part_bytes: usize,
    /// The bytes after the header in the parts that the header reaches into: they wait for it.
    held: Vec<Bytes>,
    /// The bytes that these parts still take.
    held_room: usize,
    /// The number of these parts.
    held_parts: usize,
    /// The part that is being filled.
    part: Vec<Bytes>,
    filled: usize,
    upload: Option<Upload>,
    gauge: Arc<Gauge>,
}

/// The store and path of the object.
#[derive(Clone)]
struct ObjectTarget {
    parts: Arc<dyn MultipartStore>,
    whole: Arc<dyn ObjectStore>,
    path: Path,
    location: Location,
    /// Runs the abort of an upload that is dropped outside a runtime.
    runtime: Option<Handle>,
}

impl std::fmt::Debug for ObjectTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.location)
    }
}

/// An upload that was begun. It is aborted when it is dropped, unless it was completed.
#[derive(Debug)]
struct Upload {
    id: Arc<String>,
    target: ObjectTarget,
    under_way: JoinSet<Result<(usize, PartId)>>,
    done: Vec<Option<PartId>>,
    is_complete: bool,
}

impl ObjectSink {
    pub(super) fn create(
        session: &Session,
        location: &Location,
        header_bytes: u64,
        most_bytes: u64,
        gauge: &Arc<Gauge>,
    ) -> Result<Self> {
        let (whole, path) = session.stores().store(location)?;
        let target = ObjectTarget {
            parts: session.stores().multipart(location)?,
            whole,
            path,
            location: location.clone(),
            runtime: Handle::try_current().ok(),
        };
        Self::to(target, header_bytes, most_bytes, gauge)
    }

    fn to(
        target: ObjectTarget,
        header_bytes: u64,
        most_bytes: u64,
        gauge: &Arc<Gauge>,
    ) -> Result<Self> {
        // The size of the object is not known yet, only its bound: parts are sized by the bound.
        let most = (header_bytes.saturating_add(most_bytes)).div_ceil(MOST_PARTS);
        let part_bytes = PART_BYTES.max(most.next_multiple_of(1 << 20));
        let held_parts = header_bytes.div_ceil(part_bytes).max(1);
        let size = |bytes: u64| {
            usize::try_from(bytes).map_err(|err| {
                let message = "a part that does not fit memory";
                Error::new(ErrorKind::Unsupported, message).with_source(err)
            })
        };
        Ok(Self {
            target,
            part_bytes: size(part_bytes)?,
            held: Vec::new(),
            held_room: size(held_parts * part_bytes - header_bytes)?,
            held_parts: size(held_parts)?,
            part: Vec::new(),
            filled: 0,
            upload: None,
            gauge: Arc::clone(gauge),
        })
    }

    pub(super) async fn append(&mut self, pieces: Vec<Bytes>) -> Result<()> {
        for mut piece in pieces {
            let held = piece.split_to(self.held_room.min(piece.len()));
            if !held.is_empty() {
                self.held_room -= held.len();
                self.held.push(held);
            }
            while !piece.is_empty() {
                // A full part is sent when more bytes follow: only the last part may be short, and an object
                // of one part needs no multipart upload.
                if self.filled == self.part_bytes {
                    self.send().await?;
                }
                let room = self.part_bytes - self.filled;
                let next = piece.split_to(room.min(piece.len()));
                self.filled += next.len();
                self.part.push(next);
            }
        }
        Ok(())
    }

    /// Uploads the part that is filled.
    async fn send(&mut self) -> Result<()> {
        let upload = match &mut self.upload {
            Some(upload) => upload,
            none => none.insert(Upload::begin(&self.target, self.held_parts).await?),
        };
        let part = std::mem::take(&mut self.part);
        self.filled = 0;
        let number = upload.done.len();
        upload.put(number, part, &self.gauge).await
    }

    pub(super) async fn finish(mut self, header: Bytes) -> Result<()> {
        let start = std::iter::once(header).chain(std::mem::take(&mut self.held));
        if self.upload.is_none() {
            let part = std::mem::take(&mut self.part);
            let payload: PutPayload = start.chain(part).collect();
            let bytes = payload.content_length();
            let ObjectTarget { whole, path, .. } = &self.target;
            let put = whole.put_opts(path, payload, PutOptions::default()).await;
            self.gauge.remove(bytes);
            return match put {
                Ok(_) => Ok(()),
                Err(err) => Err(self.target.failed(&err)),
            };
        }
        if !self.part.is_empty() {
            self.send().await?;
        }
        let Some(mut upload) = self.upload.take() else {
            return Ok(());
        };
        // A failed upload is aborted here, and waited for; one whose future is dropped is aborted by `Drop`.
        match complete(&mut upload, start, self.part_bytes, &self.gauge).await {
            Ok(()) => Ok(()),
            Err(err) => {
                // The first error is the cause: an error of the abort is dropped.
                let _ = upload.abort().await;
                Err(err)
            }
        }
    }

    pub(super) async fn abort(mut self) -> Result<()> {
        match self.upload.take() {
            Some(upload) => upload.abort().await,
            None => Ok(()),
        }
    }
}

/// Uploads the first parts, waits for all, and completes the upload, which makes the object appear.
async fn complete(
    upload: &mut Upload,
    start: impl Iterator<Item = Bytes>,
    part_bytes: usize,
    gauge: &Arc<Gauge>,
) -> Result<()> {
    let mut pieces: VecDeque<Bytes> = start.collect();
    let mut number = 0;
    while !pieces.is_empty() {
        let (mut part, mut room) = (Vec::new(), part_bytes);
        while room > 0
            && let Some(piece) = pieces.front_mut()
        {
            let next = piece.split_to(room.min(piece.len()));
            room -= next.len();
            if piece.is_empty() {
                pieces.pop_front();
            }
            part.push(next);
        }
        upload.put(number, part, gauge).await?;
        number += 1;
    }
    upload.complete().await
}

impl ObjectTarget {
    fn failed(&self, err: &object_store::Error) -> Error {
        store::error(err, &self.location)
    }
}

impl Upload {
    /// Begins an upload whose first parts are uploaded last.
    async fn begin(target: &ObjectTarget, first_parts: usize) -> Result<Self> {
        let id = target.parts.create_multipart(&target.path).await;
        Ok(Self {
            id: Arc::new(id.map_err(|err| target.failed(&err))?),
            target: target.clone(),
            under_way: JoinSet::new(),
            done: vec![None; first_parts],
            is_complete: false,
        })
    }

    /// Starts the upload of a part, once fewer than [`UNDER_WAY`] are running.
    async fn put(&mut self, number: usize, part: Vec<Bytes>, gauge: &Arc<Gauge>) -> Result<()> {
        while self.under_way.len() >= UNDER_WAY {
            self.wait().await?;
        }
        if number >= self.done.len() {
            self.done.resize(number + 1, None);
        }
        let (target, id, gauge) = (self.target.clone(), Arc::clone(&self.id), Arc::clone(gauge));
        self.under_way.spawn(async move {
            let payload: PutPayload = part.into_iter().collect();
            let bytes = payload.content_length();
            let put = target.parts.put_part(&target.path, &id, number, payload);
            let put = put.await.map_err(|err| target.failed(&err));
            gauge.remove(bytes);
            Ok((number, put?))
        });
        Ok(())
    }

    /// Waits for one of the running uploads of parts.
    async fn wait(&mut self) -> Result<()> {
        let Some(done) = self.under_way.join_next().await else {
            return Ok(());
        };
        let lost = |_| Error::new(ErrorKind::Unavailable, "the upload of a part ended early");
        let (number, part) = done.map_err(lost)??;
        if let Some(slot) = self.done.get_mut(number) {
            *slot = Some(part);
        }
        Ok(())
    }

    async fn complete(&mut self) -> Result<()> {
        while !self.under_way.is_empty() {
            self.wait().await?;
        }
        let parts: Option<Vec<PartId>> = self.done.iter().cloned().collect();
        let parts =
            parts.ok_or_else(|| Error::new(ErrorKind::Unavailable, "a part was not uploaded"))?;
        let target = &self.target;
        let done = target
            .parts
            .complete_multipart(&target.path, &self.id, parts);
        done.await.map_err(|err| self.target.failed(&err))?;
        self.is_complete = true;
        Ok(())
    }

    async fn abort(mut self) -> Result<()> {
        // `Drop` must not abort a second time.
        self.is_complete = true;
        let under_way = std::mem::take(&mut self.under_way);
        // A task of its own: the abort runs to its end, also if this future is dropped.
        let task = tokio::spawn(forget(under_way, self.target.clone(), Arc::clone(&self.id)));
        let lost = |_| Error::new(ErrorKind::Unavailable, "the abort of an upload ended early");
        task.await.map_err(lost)?
    }
}

/// Aborts an upload, which removes its parts. Running uploads of parts are ended first: a part that arrives
/// after the abort may stay in the bucket, and is paid for.
async fn forget(
    mut under_way: JoinSet<Result<(usize, PartId)>>,
    target: ObjectTarget,
    id: Arc<String>,
) -> Result<()> {
    under_way.shutdown().await;
    let aborted = target.parts.abort_multipart(&target.path, &id).await;
    aborted.map_err(|err| target.failed(&err))
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.is_complete {
            return;
        }
        let under_way = std::mem::take(&mut self.under_way);
        let (target, id) = (self.target.clone(), Arc::clone(&self.id));
        // `drop` cannot wait for a request: the abort runs as a task.
        let runtime = Handle::try_current()
            .ok()
            .or_else(|| target.runtime.clone());
        if let Some(runtime) = runtime {
            // No caller is left to get an error.
            runtime.spawn(forget(under_way, target, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use object_store::{ObjectStoreExt, memory::InMemory};

    use super::*;

    #[tokio::test]
    async fn bytes_are_counted_once_until_they_are_gone() {
        // In one request, and in parts: the first one is uploaded last, and the last one is short.
        for megabytes in [3, 43] {
            let store = Arc::new(InMemory::new());
            let gauge = Arc::new(Gauge::default());
            let target = ObjectTarget {
                parts: Arc::clone(&store) as Arc<dyn MultipartStore>,
                whole: Arc::clone(&store) as Arc<dyn ObjectStore>,
                path: Path::from("a.tif"),
                location: Location::parse("s3://maps/a.tif").unwrap(),
                runtime: None,
            };
            let (header, all) = (1000, megabytes << 20);
            let mut sink = ObjectSink::to(target, header, all, &gauge).unwrap();
            // As much as there is, at once: it is counted while it is sent.
            let pieces: Vec<Bytes> = (0..megabytes).map(|_| vec![7_u8; 1 << 20].into()).collect();
            gauge.add(pieces.iter().map(Bytes::len).sum());
            sink.append(pieces).await.unwrap();
            assert_eq!(gauge.peak(), all);
            let header: Bytes = vec![1; 1000].into();
            gauge.add(header.len());
            sink.finish(header).await.unwrap();
            assert!(gauge.peak() <= all + 1000, "{}", gauge.peak());
            assert_eq!(gauge.now(), 0);
            let object = store.get(&Path::from("a.tif")).await.unwrap();
            assert_eq!(object.meta.size, all + 1000);
        }
    }
}
