//! Copies one object to a file, byte for byte, and checks length and checksum.

use std::{
    io,
    path::Path,
    time::{Duration, Instant},
};

use futures::StreamExt;
use object_store::{GetOptions, GetRange};
use tokio::{
    fs::File,
    io::{AsyncSeekExt, AsyncWriteExt, BufWriter},
};

use super::{
    checksum::{Checksum, Digested, Digests, Stated},
    partial::{Partial, Record},
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    session::Session,
    stac::file_size,
    store::{FillRequest, Made, error, of_io, status_of},
};

/// Requests of one attempt that may bring few bytes: the first, and those that resume a broken body.
const MOST_ROUNDS: u32 = 16;
/// More than few.
const ROUND_BYTES: u64 = 1 << 20;
/// Attempts of a copy: it restarts if the object changed or arrived damaged.
const MOST_STARTS: usize = 2;
const BUFFER_BYTES: usize = 1 << 20;
/// A copy of fewer bytes starts anew if its process ends.
const KEPT_BYTES: u64 = 1 << 20;
/// Bytes after which those so far are synced and recorded; fewer are, once as much time has passed.
const SYNCED_BYTES: u64 = 16 << 20;
const SYNCED_AFTER: Duration = Duration::from_secs(1);
const SYNCED_LEAST_BYTES: u64 = 256 << 10;

/// The size and checksum that a catalogue states for a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) bytes: Option<u64>,
    pub(super) checksum: Stated,
    /// True if the file is an image: then an HTML page is not it.
    pub(super) is_image: bool,
}

impl Expected {
    /// Reads `file:size` and `file:checksum` of the file extension, and the media type.
    /// See <https://github.com/stac-extensions/file> and <https://multiformats.io/multihash/>.
    pub(super) fn of(asset: &stac::Asset) -> Self {
        Self {
            bytes: file_size(asset),
            checksum: Stated::of(asset),
            is_image: asset
                .r#type
                .as_deref()
                .is_some_and(|text| text.starts_with("image/")),
        }
    }
}

/// Copies `from` to the order's path. Costs one request, and one for each time it is interrupted.
/// `arrived` is called with the number of bytes of each chunk.
///
/// # Errors
///
/// Those of the store; [`ErrorKind::Corrupt`] if the object is not as its catalogue states, or
/// keeps changing.
pub(super) async fn copy(
    session: &Session,
    from: &Location,
    order: &FillRequest,
    expected: &Expected,
    arrived: &(dyn Fn(u64) + Sync),
) -> Result<Made> {
    let mut starts = 0;
    loop {
        starts += 1;
        let outcome = attempt(session, from, order, expected, arrived).await;
        match outcome {
            Err(Interrupted::StartAnew(err)) if starts >= MOST_STARTS => return Err(err),
            Err(Interrupted::StartAnew(_)) => {}
            Err(Interrupted::GiveUp(err)) => return Err(err),
            Ok(made) => return Ok(made),
        }
    }
}

enum Interrupted {
    /// The bytes so far are not usable; a restart may succeed.
    StartAnew(Error),
    GiveUp(Error),
}

impl From<Error> for Interrupted {
    fn from(err: Error) -> Self {
        Self::GiveUp(err)
    }
}

async fn attempt(
    session: &Session,
    from: &Location,
    order: &FillRequest,
    expected: &Expected,
    arrived: &(dyn Fn(u64) + Sync),
) -> std::result::Result<Made, Interrupted> {
    let wanted = expected.checksum.checksum();
    let (mut sink, left) = Sink::open(order, wanted).await?;
    if sink.written > 0 {
        arrived(sink.written);
    }
    match fill(session, from, order, expected, arrived, &mut sink, left).await {
        Ok(None) => Ok(Made::Unchanged),
        Ok(Some(first)) => {
            let digested = sink.finish(&order.path).await?;
            if let Some(wanted) = wanted
                && !digested.agrees(wanted)
            {
                let name = wanted.function.name();
                let err = corrupt(from, format!("its {name} is not the one its item states"));
                return Err(Interrupted::StartAnew(err));
            }
            Ok(Made::Written {
                etag: first.etag,
                sha256: Some(digested.sha256),
                checked: wanted.map(Checksum::text),
            })
        }
        Err(Interrupted::GiveUp(err)) if err.is_retryable() => {
            sink.leave().await;
            Err(Interrupted::GiveUp(err))
        }
        Err(err) => {
            sink.discard();
            Err(err)
        }
    }
}

/// Fills the file. Returns the object's version; none if it is still that of the order's ETag.
async fn fill(
    session: &Session,
    from: &Location,
    order: &FillRequest,
    expected: &Expected,
    arrived: &(dyn Fn(u64) + Sync),
    sink: &mut Sink,
    mut first: Option<First>,
) -> std::result::Result<Option<First>, Interrupted> {
    let (store, path) = session.stores().store(from)?;
    let retries = session.network().limits().retries;
    let (mut small_rounds, mut is_empty) = (0, false);
    let mut last = None;
    while small_rounds <= retries.unwrap_or(MOST_ROUNDS) {
        let before = sink.written;
        let options = match &first {
            None => GetOptions {
                // As a range request: Content-Range states the length of the complete object, also in a
                // chunked response.
                range: (!is_empty).then_some(GetRange::Offset(0)),
                if_none_match: order.etag.clone(),
                ..GetOptions::default()
            },
            Some(first) => GetOptions {
                range: Some(GetRange::Offset(sink.written)),
                if_match: first.etag.clone(),
                ..GetOptions::default()
            },
        };
        let failure = match store.get_opts(&path, options).await {
            Err(object_store::Error::NotModified { .. }) => return Ok(None),
            // No range of an empty object is satisfiable: it is requested again without one.
            Err(err) if status_of(&err) == Some(416) && first.is_none() && !is_empty => {
                is_empty = true;
                continue;
            }
            Err(err) => {
                let is_replaced = matches!(status_of(&err), Some(412 | 416));
                let err = error(err, from);
                if is_replaced {
                    return Err(Interrupted::StartAnew(err));
                }
                err
            }
            Ok(answer) => {
                let this = First {
                    bytes: answer.meta.size,
                    // A weak ETag does not promise the same bytes.
                    etag: answer
                        .meta
                        .e_tag
                        .clone()
                        .filter(|etag| !etag.starts_with("W/")),
                };
                let known = first.get_or_insert(this.clone());
                if *known != this {
                    return Err(Interrupted::StartAnew(changed(from)));
                }
                if let Some(bytes) = expected.bytes
                    && bytes != this.bytes
                {
                    return Err(corrupt(
                        from,
                        format!("{} bytes, its item states {bytes}", this.bytes),
                    )
                    .into());
                }
                let kind = answer
                    .attributes
                    .get(&object_store::Attribute::ContentType)
                    .map(|value| value.as_ref().to_ascii_lowercase());
                if expected.is_image && kind.is_some_and(|kind| kind.starts_with("text/html")) {
                    return Err(corrupt(from, "an HTML page, expected an image").into());
                }
                if sink.written == 0 {
                    sink.keep(order, this.clone()).await;
                }
                match sink.fill(answer, arrived).await? {
                    // Every byte is here, whatever the end of the body was like.
                    Some(_) if sink.written == this.bytes => break,
                    Some(err) if status_of(&err) == Some(412) => {
                        return Err(Interrupted::StartAnew(error(err, from)));
                    }
                    Some(err) => error(err, from),
                    None if sink.written < this.bytes => corrupt(from, "the body ended early"),
                    None if sink.written > this.bytes => {
                        let err = corrupt(from, "a body longer than announced");
                        return Err(Interrupted::StartAnew(err));
                    }
                    None => break,
                }
            }
        };
        // The store has waited and tried again; what broke off after that goes on as long as bytes arrive.
        let got = sink.written - before;
        small_rounds += u32::from(got < ROUND_BYTES);
        // `Corrupt` here is a response that broke the protocol, such as a truncated body: worth a retry.
        let is_passing = failure.is_retryable() || failure.kind() == ErrorKind::Corrupt;
        if !is_passing || got == 0 {
            return Err(failure.into());
        }
        // Without an ETag the rest may be of another version than the bytes that are written: restart.
        if first.as_ref().is_some_and(|first| first.etag.is_none()) && sink.written > 0 {
            return Err(Interrupted::StartAnew(failure));
        }
        last = Some(failure);
    }
    let first = first.unwrap_or_default();
    if sink.written < first.bytes {
        let often = || corrupt(from, "the body was interrupted too often");
        return Err(last.unwrap_or_else(often).into());
    }
    Ok(Some(first))
}

/// The version in the first response; later ones must have the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct First {
    bytes: u64,
    etag: Option<String>,
}

fn corrupt(from: &Location, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, message).at(from)
}

fn changed(from: &Location) -> Error {
    corrupt(from, "the file was replaced while it was read")
}

/// The file that is written.
struct Sink {
    file: BufWriter<File>,
    digests: Digests,
    written: u64,
    /// Where the bytes stay if the copy is interrupted.
    kept: Option<Kept>,
}

struct Kept {
    partial: Partial,
    etag: String,
    bytes: u64,
    /// Bytes that are on the disk for sure.
    synced: u64,
    synced_at: Instant,
}

impl Kept {
    /// Returns true if the bytes so far are to be synced: often enough that a slow copy which is killed loses seconds.
    fn is_due(&self, written: u64) -> bool {
        let more = written.saturating_sub(self.synced);
        more >= SYNCED_BYTES
            || (more >= SYNCED_LEAST_BYTES && self.synced_at.elapsed() >= SYNCED_AFTER)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // A call that was dropped before anything was recorded: nobody can go on from here.
        if self.synced == 0 {
            self.partial.remove();
        }
    }
}

impl Sink {
    /// Opens what an earlier copy left, with its version, or an empty file.
    async fn open(order: &FillRequest, wanted: Option<&Checksum>) -> Result<(Self, Option<First>)> {
        let place = order.partial.clone();
        let stated = wanted.cloned();
        let left = tokio::task::spawn_blocking(move || {
            // Nothing is made where nothing was left: small copies leave nothing.
            let mut partial = place.exists().then(|| Partial::take(&place)).flatten()?;
            match partial.left(stated.as_ref()) {
                Some((record, digests)) => Some((partial.file().ok()?, partial, record, digests)),
                None => {
                    partial.remove();
                    None
                }
            }
        });
        if let Ok(Some((file, partial, record, digests))) = left.await {
            let first = First {
                bytes: record.bytes,
                etag: Some(record.etag.clone()),
            };
            let sink = Self {
                file: BufWriter::with_capacity(BUFFER_BYTES, File::from_std(file)),
                digests,
                written: record.written,
                kept: Some(Kept {
                    partial,
                    etag: record.etag,
                    bytes: record.bytes,
                    synced: record.written,
                    synced_at: Instant::now(),
                }),
            };
            return Ok((sink, Some(first)));
        }
        let file = File::create(&order.path)
            .await
            .map_err(|err| cache_error(&err))?;
        let sink = Self {
            file: BufWriter::with_capacity(BUFFER_BYTES, file),
            digests: Digests::for_checksum(wanted),
            written: 0,
            kept: None,
        };
        Ok((sink, None))
    }

    /// Writes where the next copy finds it, if the object is large and its version can be asked for. Where that fails,
    /// the copy goes on as it is: it starts anew if it is interrupted.
    async fn keep(&mut self, order: &FillRequest, first: First) {
        let (Some(etag), None) = (first.etag, &self.kept) else {
            return;
        };
        if first.bytes < KEPT_BYTES {
            return;
        }
        let place = order.partial.clone();
        let taken = tokio::task::spawn_blocking(move || {
            let partial = Partial::take(&place)?;
            partial.clear().ok()?;
            Some((partial.file().ok()?, partial))
        });
        if let Ok(Some((file, partial))) = taken.await {
            self.file = BufWriter::with_capacity(BUFFER_BYTES, File::from_std(file));
            self.kept = Some(Kept {
                partial,
                etag,
                bytes: first.bytes,
                synced: 0,
                synced_at: Instant::now(),
            });
        }
    }

    /// Has the bytes so far on the disk, and records that.
    async fn settle(&mut self) -> io::Result<()> {
        let Some(kept) = &mut self.kept else {
            return Ok(());
        };
        self.file.flush().await?;
        self.file.get_ref().sync_data().await?;
        kept.partial.record(&Record {
            etag: kept.etag.clone(),
            bytes: kept.bytes,
            written: self.written,
        })?;
        kept.synced = self.written;
        kept.synced_at = Instant::now();
        Ok(())
    }

    /// Leaves the bytes so far to the next copy, if they are worth it.
    async fn leave(mut self) {
        let is_worth_it = self.written > 0 && self.settle().await.is_ok();
        if !is_worth_it {
            self.discard();
        }
    }

    fn discard(self) {
        if let Some(kept) = &self.kept {
            kept.partial.remove();
        }
    }

    /// Writes a response's body. Returns the error that interrupted it, if one did.
    async fn fill(
        &mut self,
        answer: object_store::GetResult,
        arrived: &(dyn Fn(u64) + Sync),
    ) -> Result<Option<object_store::Error>> {
        let mut stream = answer.into_stream();
        while let Some(chunk) = stream.next().await {
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(err) => return Ok(Some(err)),
            };
            self.file
                .write_all(&chunk)
                .await
                .map_err(|err| cache_error(&err))?;
            self.digests.update(&chunk);
            let bytes = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
            self.written += bytes;
            arrived(bytes);
            if let Some(kept) = &self.kept
                && kept.is_due(self.written)
            {
                self.settle().await.map_err(|err| cache_error(&err))?;
            }
        }
        Ok(None)
    }

    async fn finish(mut self, path: &Path) -> Result<Digested> {
        self.file.flush().await.map_err(|err| cache_error(&err))?;
        if let Some(kept) = &self.kept {
            kept.partial
                .publish(path)
                .map_err(|err| cache_error(&err))?;
        }
        // The record describes the file as complete, so its length must be that of the bytes received.
        let end = self
            .file
            .get_mut()
            .stream_position()
            .await
            .map_err(|err| cache_error(&err))?;
        let length = tokio::fs::metadata(path)
            .await
            .map_err(|err| cache_error(&err))?
            .len();
        if end != self.written || length != self.written {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "the file in the cache does not have the length that was written",
            ));
        }
        Ok(self.digests.finish())
    }
}

/// Turns an I/O error of the cache's disk into ours; it is not the object's.
fn cache_error(err: &io::Error) -> Error {
    let err = of_io(err);
    Error::new(
        err.kind(),
        format!("cannot write to the cache: {}", err.message()),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn expected(asset: serde_json::Value) -> Expected {
        Expected::of(&serde_json::from_value(asset).unwrap())
    }

    #[test]
    fn size_checksum_and_kind_are_those_of_the_asset() {
        let digest = "AB".repeat(32);
        let found = expected(json!({
            "href": "x", "file:size": 7, "file:checksum": format!("1220{digest}"),
            "type": "image/tiff",
        }));
        assert_eq!((found.bytes, found.is_image), (Some(7), true));
        let checksum = found.checksum.checksum().unwrap();
        assert_eq!(checksum.digest, digest.to_lowercase());
        assert_eq!(expected(json!({"href": "x"})), Expected::default());
    }
}
