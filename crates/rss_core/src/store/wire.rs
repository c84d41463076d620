//! One HTTP request of a store, watched: counted, held to what the server promised, paused when the
//! server asks for it.
//!
//! `object_store` retries and signs; it doesn't count attempts, doesn't read `Retry-After` and
//! believes a `206` whose body is shorter than its `Content-Range`. This service stands under it,
//! and lets all stores of a session share one pool of connections.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use http_body::{Body, Frame};
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
        HttpResponseBody, HttpService,
    },
};

use super::Meter;

/// Gives the query string that a request needs, such as a SAS token that is renewed in time.
#[async_trait]
pub(crate) trait Query: fmt::Debug + Send + Sync + 'static {
    /// Returns the query string without `?`, and no secret in its error.
    async fn query(&self) -> crate::Result<String>;
}

/// Makes the clients of all stores from one connection pool.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    pub(super) client: reqwest::Client,
    pub(super) meter: Meter,
    /// The longest pause a server may ask for.
    pub(super) longest_pause: Duration,
    pub(super) query: Option<Arc<dyn Query>>,
}

impl HttpConnector for Connector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Connector {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if let Some(query) = &self.query {
            let query = query
                .query()
                .await
                .map_err(|err| HttpError::new(HttpErrorKind::Unknown, err))?;
            *request.uri_mut() = with_query(request.uri(), &query)?;
        }
        self.meter.add(1, 0);
        let response = self.client.call(request).await?;
        if let Some(pause) = asked_pause(&response, SystemTime::now()) {
            // The caller tries again after its own short wait; the server's wish comes first.
            tokio::time::sleep(pause.min(self.longest_pause)).await;
        }
        let promised = promised_length(&response)?;
        let (parts, body) = response.into_parts();
        let body = HttpResponseBody::new(Watched {
            body,
            meter: self.meter.clone(),
            missing: promised,
        });
        Ok(HttpResponse::from_parts(parts, body))
    }
}

fn with_query(uri: &http::Uri, query: &str) -> Result<http::Uri, HttpError> {
    let invalid = |err: http::Error| HttpError::new(HttpErrorKind::Request, err);
    let path = match uri.query() {
        Some(present) => format!("{}?{present}&{query}", uri.path()),
        None => format!("{}?{query}", uri.path()),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path.parse().map_err(|_| {
        // The parser's own error would print the token.
        HttpError::new(
            HttpErrorKind::Request,
            Broken("a query string is not valid"),
        )
    })?);
    http::Uri::from_parts(parts).map_err(|err| invalid(err.into()))
}

/// Returns how long the server asks to wait before the next try.
fn asked_pause(response: &HttpResponse, now: SystemTime) -> Option<Duration> {
    let busy = matches!(
        response.status(),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    );
    if busy {
        retry_after(response.headers(), now)
    } else {
        None
    }
}

/// Reads a `Retry-After` header: seconds or a date.
///
/// See <https://www.rfc-editor.org/rfc/rfc9110#field.retry-after>.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// Returns the bytes that a `206` says its body has, refusing one that contradicts itself.
fn promised_length(response: &HttpResponse) -> Result<Option<u64>, HttpError> {
    if response.status() != StatusCode::PARTIAL_CONTENT {
        return Ok(None);
    }
    let text = |name| {
        response
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let promised = text(header::CONTENT_RANGE).and_then(|range| {
        let (span, _) = range.strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = span.split_once('-')?;
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    });
    let sent: Option<u64> = text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
    match (promised, sent) {
        (Some(promised), Some(sent)) if promised != sent => Err(HttpError::new(
            HttpErrorKind::Interrupted,
            Broken("the server sent a body shorter or longer than its Content-Range"),
        )),
        _ => Ok(promised),
    }
}

/// What a server did wrong.
#[derive(Debug)]
struct Broken(&'static str);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Broken {}

/// A body that is counted, and must be as long as promised.
struct Watched {
    body: HttpResponseBody,
    meter: Meter,
    missing: Option<u64>,
}

impl Body for Watched {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, Bytes::len) as u64;
                self.meter.add(0, length);
                if let Some(missing) = &mut self.missing {
                    *missing = missing.saturating_sub(length);
                }
            }
            Poll::Ready(None) if self.missing.is_some_and(|missing| missing > 0) => {
                self.missing = None;
                return Poll::Ready(Some(Err(HttpError::new(
                    HttpErrorKind::Interrupted,
                    Broken("the body ended before its promised length"),
                ))));
            }
            _ => {}
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, value.parse().unwrap());
        headers
    }

    #[test]
    fn a_pause_is_asked_in_seconds_or_as_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        let pause = |value| retry_after(&headers(value), now);
        assert_eq!(pause("7"), Some(Duration::from_secs(7)));
        assert_eq!(
            pause("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(Duration::from_secs(7))
        );
        assert_eq!(pause("Sun, 06 Nov 1994 08:49:00 GMT"), Some(Duration::ZERO));
        assert_eq!(pause("soon"), None);
    }

    #[test]
    fn a_token_is_added_to_what_is_there() {
        let uri = |text: &str| text.parse::<http::Uri>().unwrap();
        let with = |text, query| with_query(&uri(text), query).unwrap().to_string();
        assert_eq!(with("https://h/a.tif", "sig=1"), "https://h/a.tif?sig=1");
        assert_eq!(
            with("https://h/a.tif?x=2", "sig=1"),
            "https://h/a.tif?x=2&sig=1"
        );
    }
}
