//! A response body that is checked while it arrives: for its length, and for a minimum rate.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http_body::{Body, Frame, SizeHint};
use object_store::{
    GetResult,
    client::{HttpError, HttpResponseBody},
};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    Meter,
    fault::{self, Fault, Probe},
};
use crate::{
    error::{Error, ErrorKind},
    location::Location,
};

/// Reads a response into memory, unless it is longer than `most` bytes. Its length is a number of the server's: memory is
/// taken for the bytes that are here, never for those that are announced.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`] past the bound; those of the store.
#[cfg_attr(
    not(feature = "zarr"),
    expect(dead_code, reason = "only arrays have such objects")
)]
pub(crate) async fn read_at_most(
    found: GetResult,
    most: u64,
    location: &Location,
) -> Result<Bytes, Error> {
    let past = || {
        let message = format!("larger than the limit of {} MiB", most >> 20);
        Error::new(ErrorKind::Corrupt, message).at(location)
    };
    if found.range.end.saturating_sub(found.range.start) > most {
        return Err(past());
    }
    let mut bytes = BytesMut::new();
    let mut chunks = found.into_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|err| fault::error(&err, location))?;
        if (bytes.len() as u64).saturating_add(chunk.len() as u64) > most {
            return Err(past());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

/// A body slower than this over a complete read timeout is given up: a server that sends a byte now and
/// then never meets the read timeout itself.
const SLOWEST_BYTES_PER_S: f64 = 1024.0;

/// A body that must have the length that the headers state, and a minimum rate.
pub(super) struct CheckedBody {
    pub(super) body: HttpResponseBody,
    pub(super) left: u64,
    pub(super) meter: Meter,
    pub(super) probe: Probe,
    /// The permit of the host, released when the last byte is here and not when the body is dropped: a
    /// caller may wait for another request while it still holds this body.
    pub(super) place: Option<OwnedSemaphorePermit>,
    pub(super) pace: Pace,
}

impl CheckedBody {
    fn fail(&mut self, fault: Fault) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        self.place = None;
        self.probe.fail(fault.clone());
        Poll::Ready(Some(Err(fault.again())))
    }
}

impl Body for CheckedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        self.pace.waits();
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let is_whole = self.left == 0;
        let frame = match polled {
            // Every byte is here: an end that is late or broken is nothing to wait for, or to ask again for.
            Poll::Pending | Poll::Ready(Some(Err(_))) if is_whole => return Poll::Ready(None),
            polled => ready!(polled),
        };
        let frame = match frame {
            Some(Ok(frame)) => frame,
            Some(Err(err)) => return self.fail(Fault::of_body(&err)),
            None if self.left > 0 => return self.fail(Fault::Answer("the body ended early")),
            None => return Poll::Ready(None),
        };
        if let Some(data) = frame.data_ref() {
            let bytes = data.len() as u64;
            self.meter.add(0, bytes);
            let Some(left) = self.left.checked_sub(bytes) else {
                return self.fail(Fault::Answer("a body longer than announced"));
            };
            self.left = left;
            if left == 0 {
                self.place = None;
            }
            if left > 0 && self.pace.is_stalled(bytes) {
                return self.fail(Fault::Slow);
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0 && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// The rate of a body. Time in which the caller did not poll is not counted: it is not the server's.
pub(super) struct Pace {
    window: Duration,
    bytes: u64,
    waited: Duration,
    waiting: Option<Instant>,
}

impl Pace {
    pub(super) fn new(window: Duration) -> Self {
        Self {
            window,
            bytes: 0,
            waited: Duration::ZERO,
            waiting: None,
        }
    }

    pub(super) fn waits(&mut self) {
        self.waiting.get_or_insert_with(Instant::now);
    }

    pub(super) fn is_stalled(&mut self, bytes: u64) -> bool {
        self.bytes += bytes;
        if let Some(since) = self.waiting.take() {
            self.waited += since.elapsed();
        }
        if self.waited < self.window {
            return false;
        }
        let rate = self.bytes as f64 / self.waited.as_secs_f64();
        self.bytes = 0;
        self.waited = Duration::ZERO;
        rate < SLOWEST_BYTES_PER_S
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_reader_is_not_a_slow_server() {
        let mut pace = Pace::new(Duration::ZERO);
        pace.waits();
        assert!(!pace.is_stalled(1 << 40));
        let mut pace = Pace::new(Duration::from_secs(3600));
        assert!(!pace.is_stalled(1));
    }
}
