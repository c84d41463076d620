//! Events of requests, for `tracing`: one for each that was sent, when its body has ended or was dropped.
//!
//! They hold no path and no query: addresses may be signed.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::Bytes;
use http::header::RANGE;
use http_body::{Body, Frame, SizeHint};
use object_store::client::{HttpError, HttpRequest, HttpResponse, HttpResponseBody};
use tracing::Level;

/// A request that is under way.
#[derive(Debug)]
pub(super) struct RequestTrace {
    begun: Instant,
    method: String,
    host: String,
    range: Option<String>,
    /// 1 for the first one.
    attempt: u32,
    status: Option<u16>,
    bytes: u64,
}

impl RequestTrace {
    /// Starts the trace of a request; none if nobody listens.
    pub(super) fn begin(request: &HttpRequest, host: &str, attempt: u32) -> Option<Self> {
        if !tracing::enabled!(target: "rss_core::request", Level::DEBUG) {
            return None;
        }
        let range = request
            .headers()
            .get(RANGE)
            .and_then(|range| range.to_str().ok());
        Some(Self {
            begun: Instant::now(),
            method: request.method().to_string(),
            host: host.to_owned(),
            range: range.map(str::to_owned),
            attempt,
            status: None,
            bytes: 0,
        })
    }

    /// Returns the response, whose body ends the trace.
    pub(super) fn response(mut self, response: HttpResponse) -> HttpResponse {
        self.status = Some(response.status().as_u16());
        let (parts, body) = response.into_parts();
        let body = TracedBody { body, trace: self };
        HttpResponse::from_parts(parts, HttpResponseBody::new(body))
    }
}

impl Drop for RequestTrace {
    fn drop(&mut self) {
        tracing::debug!(
            target: "rss_core::request",
            method = self.method,
            host = self.host,
            range = self.range.as_deref(),
            status = self.status,
            bytes = self.bytes,
            ms = self.begun.elapsed().as_secs_f64() * 1000.0,
            attempt = self.attempt,
            "request"
        );
    }
}

struct TracedBody {
    body: HttpResponseBody,
    trace: RequestTrace,
}

impl Body for TracedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            self.trace.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
