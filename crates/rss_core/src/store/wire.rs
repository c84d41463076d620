//! The requests of stores: sent until they are answered, and each response checked against its request.
//!
//! `object_store` trusts the length of a body, ignores `Retry-After` and fails at once on a response that breaks the
//! protocol. Every request of every store passes here, and is retried here; `object_store` asks for the rest of a body
//! that broke off.

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::{
    HeaderMap, HeaderValue, Method, StatusCode, Uri,
    header::{
        ACCEPT_ENCODING, AsHeaderName, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
        CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH, RANGE,
    },
};
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
        HttpResponseBody, HttpService,
    },
};

use super::{
    body::{CheckedBody, Pace},
    fault::{Fault, Probe},
    keys::{Keys, Signing},
    network::{Network, Sent, was_not_sent},
    retry::{Patience, Remedy},
    sign::Signature,
};
use crate::error::Error;

/// A response up to this long may be buffered in memory, to be checked or sliced.
const HELD_BYTES: u64 = 16 << 20;
/// Bytes that are read of an error response, to find the service's error code.
const ERROR_BODY_BYTES: usize = 16 << 10;

/// The URL of a request.
#[derive(Clone, Debug)]
pub(super) enum RequestTarget {
    /// The URL that the store built, signed with these keys.
    AsAsked(Keys),
    /// One URL, whatever the store built; signed if its container is.
    Exactly(Address),
}

/// One URL. It may hold a signature, so it is never printed.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) uri: Uri,
    pub(super) signature: Option<Signature>,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Address({:?})", self.uri.host())
    }
}

/// Gives the stores of `object_store` this HTTP client.
#[derive(Clone, Debug)]
pub(super) struct Connector(Wire);

impl Connector {
    /// Returns the connector of a store.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) if there is no HTTP client.
    pub(super) fn new(network: &Network, target: RequestTarget) -> Result<Self, Error> {
        network.check()?;
        Ok(Self(Wire {
            network: network.clone(),
            target,
        }))
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

/// Sends the requests of stores.
#[derive(Clone, Debug)]
struct Wire {
    network: Network,
    target: RequestTarget,
}

#[async_trait]
impl HttpService for Wire {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let probe = request
            .extensions()
            .get::<Probe>()
            .cloned()
            .unwrap_or_default();
        let answer = self.persist(request, &probe).await;
        if let Err(err) = &answer {
            probe.fail(Fault::of_transport(err));
        }
        answer
    }
}

impl Wire {
    /// Sends a request until it is answered, or given up.
    async fn persist(
        &self,
        mut request: HttpRequest,
        probe: &Probe,
    ) -> Result<HttpResponse, HttpError> {
        let mut patience = Patience::new(self.network.limits());
        let place = match &self.target {
            RequestTarget::AsAsked(keys) => {
                request.extensions_mut().insert(Signing::now(keys));
                request.uri().clone()
            }
            RequestTarget::Exactly(address) => address.uri.clone(),
        };
        loop {
            let err = match self.signed(request.clone(), probe).await {
                Ok(answer) => return Ok(answer),
                Err(err) => err,
            };
            let fault = Fault::of_transport(&err);
            // A fault of ours says by its kind that nothing helps.
            if err.kind() == HttpErrorKind::Unknown && !matches!(fault, Fault::Transport(_)) {
                return Err(err);
            }
            // What is not repeatable for sure is left to `object_store`, which knows the operation.
            if !is_repeatable(&request) && !was_not_sent(&fault) {
                return Err(err);
            }
            probe.fail(fault.clone());
            if !self.network.rest(&place, &mut patience, &fault).await {
                probe.waited(patience.elapsed());
                return Err(fault.for_good());
            }
        }
    }

    /// Sends to the target. A SAS token that the server refuses is renewed once: it may have been
    /// revoked before its end.
    async fn signed(
        &self,
        mut request: HttpRequest,
        probe: &Probe,
    ) -> Result<HttpResponse, HttpError> {
        let RequestTarget::Exactly(address) = &self.target else {
            return self.send(request, probe).await;
        };
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(Fault::Answer("a read-only URL, expected GET or HEAD").for_good());
        }
        // A signature is added to the URL here, after object_store built the request, so that it is in no
        // error message of the store.
        let Some(signature) = &address.signature else {
            *request.uri_mut() = address.uri.clone();
            return self.send(request, probe).await;
        };
        let refused = |err: Error| Fault::Sign(err.kind(), err.message().to_owned()).for_good();
        let token = signature.token(&self.network).await.map_err(refused)?;
        *request.uri_mut() = token.sign(&address.uri).map_err(refused)?;
        let answer = self.send(request.clone(), probe).await?;
        if !matches!(
            answer.status(),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
        ) {
            return Ok(answer);
        }
        signature.renounce(&token).await;
        let token = signature.token(&self.network).await.map_err(refused)?;
        *request.uri_mut() = token.sign(&address.uri).map_err(refused)?;
        self.send(request, probe).await
    }

    async fn send(
        &self,
        mut request: HttpRequest,
        probe: &Probe,
    ) -> Result<HttpResponse, HttpError> {
        let asked = Asked::of(&request);
        let headers = request.headers_mut();
        // Byte ranges count bytes of the encoded body: a compressed response would have other offsets.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        // A retry is a conditional request: its bytes must be of the version of the first response.
        if let Some(etag) = probe.etag()
            && !headers.contains_key(IF_MATCH)
            && let Ok(etag) = HeaderValue::from_str(&etag)
        {
            headers.insert(IF_MATCH, etag);
        }
        let sent = self.network.send(request, probe.attempt()).await?;
        if sent.response.status().is_success() {
            self.accept(&asked, sent, probe).await
        } else {
            self.refuse(sent.response, probe).await
        }
    }

    /// Reads the error code of an error response, and returns the response without its body, which may
    /// quote a signature.
    async fn refuse(
        &self,
        response: HttpResponse,
        probe: &Probe,
    ) -> Result<HttpResponse, HttpError> {
        let (parts, body) = response.into_parts();
        let status = parts.status;
        if let Some(region) = header(&parts.headers, "x-amz-bucket-region") {
            probe.set_region(region);
        }
        let text = self.read_some(body, ERROR_BODY_BYTES).await;
        let fault = Fault::Status {
            status: status.as_u16(),
            code: error_code(&text),
        };
        if fault.remedy() != Remedy::Nothing {
            return Err(fault.again());
        }
        probe.fail(fault);
        Ok(HttpResponse::from_parts(parts, Bytes::new().into()))
    }

    /// Checks a successful response against the request.
    async fn accept(
        &self,
        asked: &Asked,
        sent: Sent,
        probe: &Probe,
    ) -> Result<HttpResponse, HttpError> {
        let (mut parts, body) = sent.response.into_parts();
        let place = sent.permit;
        // A HEAD response has the Content-Length of a body that is not sent.
        if asked.head {
            return Ok(HttpResponse::from_parts(parts, body));
        }
        if let Some(encoding) = header(&parts.headers, CONTENT_ENCODING)
            // `aws-chunked` is how an object was uploaded: some servers store it as its encoding.
            && !matches!(encoding, "" | "identity" | "aws-chunked")
        {
            let message = match encoding {
                "gzip" | "x-gzip" => "a body compressed by gzip, which was not asked for",
                "br" => "a body compressed by br, which was not asked for",
                "zstd" => "a body compressed by zstd, which was not asked for",
                "deflate" => "a body compressed by deflate, which was not asked for",
                _ => "a body in an encoding that was not asked for",
            };
            return Err(Fault::Answer(message).again());
        }
        // Each arm ends with a body whose length is known: object_store would take a truncated one for
        // the complete object.
        let announced = header(&parts.headers, CONTENT_LENGTH).and_then(|text| text.parse().ok());
        let (length, body) = match (&asked.range, parts.status) {
            (Some(range), StatusCode::PARTIAL_CONTENT) => {
                let length = header(&parts.headers, CONTENT_RANGE)
                    .and_then(|text| range.length_answered(text))
                    .ok_or_else(|| Fault::Answer("another Content-Range than requested").again())?;
                if announced.is_some_and(|announced: u64| announced != length) {
                    return Err(Fault::Answer("Content-Length is not that of the range").again());
                }
                // object_store requires Content-Length, which a chunked response does not have.
                parts.headers.insert(CONTENT_LENGTH, length.into());
                (length, body)
            }
            (Some(_), _) if is_page(&parts.headers) => {
                return Err(Fault::Answer("an HTML page, expected a byte range").again());
            }
            // `bytes=0-` is the complete file, so a 200 is as good as a 206.
            (Some(AskedRange::From { start: 0 }), _) if announced.is_some_and(is_no_error) => {
                let length = announced.unwrap_or_default();
                parts.status = StatusCode::PARTIAL_CONTENT;
                set_range(&mut parts.headers, 0, length, length);
                (length, body)
            }
            (Some(range), _) => {
                let cut = self.cut(range, announced, body, probe).await?;
                parts.status = StatusCode::PARTIAL_CONTENT;
                let length = length_of(&cut.bytes);
                set_range(&mut parts.headers, cut.start, length, cut.total);
                return Ok(HttpResponse::from_parts(parts, cut.bytes.into()));
            }
            (None, StatusCode::PARTIAL_CONTENT) => {
                return Err(Fault::Answer("a byte range, expected the complete file").again());
            }
            (None, _) => match announced {
                Some(length) => (length, body),
                None => {
                    let bytes = self.hold(body, probe).await?;
                    let length = length_of(&bytes);
                    parts.headers.insert(CONTENT_LENGTH, length.into());
                    return Ok(HttpResponse::from_parts(parts, bytes.into()));
                }
            },
        };
        let checked = CheckedBody {
            body,
            left: length,
            meter: self.network.meter().clone(),
            probe: probe.clone(),
            place,
            pace: Pace::new(self.network.limits().read_timeout),
        };
        match header(&parts.headers, ETAG) {
            Some(etag) => probe.set_etag(etag),
            // Without an ETag object_store cannot resume a broken body. A body that is buffered here
            // fails as a complete attempt, which is retried.
            None if length <= HELD_BYTES => {
                let bytes = HttpResponseBody::new(checked).bytes().await?;
                return Ok(HttpResponse::from_parts(parts, bytes.into()));
            }
            None => {}
        }
        Ok(HttpResponse::from_parts(
            parts,
            HttpResponseBody::new(checked),
        ))
    }

    /// Slices a range out of a response that holds the complete file, reading no further than needed.
    async fn cut(
        &self,
        range: &AskedRange,
        announced: Option<u64>,
        body: HttpResponseBody,
        probe: &Probe,
    ) -> Result<Cut, HttpError> {
        let gives_up = || {
            // Once may be a proxy that ignored the range; twice means that the server has no ranges.
            let again = probe.fault() != Some(Fault::NoRanges);
            probe.fail(Fault::NoRanges);
            match again {
                true => Fault::NoRanges.again(),
                false => Fault::NoRanges.for_good(),
            }
        };
        let wanted_end = match (*range, announced) {
            (AskedRange::Bounded { end, .. }, Some(total)) => end.min(total),
            (AskedRange::Bounded { end, .. }, None) => end,
            (_, Some(total)) => total,
            (_, None) => HELD_BYTES,
        };
        // All bytes up to the range's end are read and held in memory: no further than the bound.
        if wanted_end > HELD_BYTES {
            return Err(gives_up());
        }
        let mut bytes = BytesMut::new();
        let mut stream = self.network.chunks(body);
        let mut ended = false;
        // Content-Range needs the length of the complete file: without Content-Length the body is read
        // to its end.
        while announced.is_none() || !reaches(&bytes, wanted_end) {
            match stream.next().await {
                Some(chunk) => {
                    let chunk = chunk?;
                    bytes.extend_from_slice(&chunk);
                }
                None => {
                    ended = true;
                    break;
                }
            }
            if length_of(&bytes) > HELD_BYTES {
                return Err(gives_up());
            }
        }
        // Some servers send an S3 error document with status 200.
        let head = bytes.get(..bytes.len().min(ERROR_BODY_BYTES));
        let text = String::from_utf8_lossy(head.unwrap_or_default());
        if text.contains("<Error>") {
            let code = error_code(&text);
            // That of the document: overload passes by itself.
            let status = match code.as_deref() {
                Some("SlowDown" | "ServiceUnavailable" | "ServerBusy") => 503,
                _ => 500,
            };
            let fault = Fault::Status { status, code };
            return Err(fault.again());
        }
        let total = match announced {
            Some(total) if ended => {
                if !reaches(&bytes, wanted_end) {
                    return Err(Fault::Answer("the body ended early").again());
                }
                total
            }
            Some(total) => total,
            None => length_of(&bytes),
        };
        // Fewer bytes than requested are right where the file ends inside the range.
        let (start, end) = range
            .within(total)
            .ok_or_else(|| Fault::Answer("a range past the end of the file").again())?;
        let slice = usize::try_from(start)
            .ok()
            .zip(usize::try_from(end).ok())
            .and_then(|(start, end)| bytes.get(start..end))
            .ok_or_else(|| Fault::Answer("the body ended early").again())?;
        Ok(Cut {
            bytes: Bytes::copy_from_slice(slice),
            start,
            total,
        })
    }

    /// Reads a body of unknown length into memory.
    async fn hold(&self, body: HttpResponseBody, probe: &Probe) -> Result<Bytes, HttpError> {
        let mut bytes = BytesMut::new();
        let mut stream = self.network.chunks(body);
        while let Some(chunk) = stream.next().await {
            let chunk = chunk?;
            bytes.extend_from_slice(&chunk);
            if length_of(&bytes) > HELD_BYTES {
                probe.fail(Fault::NoRanges);
                return Err(Fault::Answer("a large response without Content-Length").for_good());
            }
        }
        Ok(bytes.freeze())
    }

    async fn read_some(&self, body: HttpResponseBody, most: usize) -> String {
        let mut text = Vec::new();
        let mut stream = self.network.chunks(body);
        while let Some(Ok(chunk)) = stream.next().await {
            text.extend_from_slice(&chunk);
            if text.len() >= most {
                break;
            }
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}

struct Cut {
    bytes: Bytes,
    start: u64,
    total: u64,
}

/// Sets the range and the length of a response, as object_store checks them.
fn set_range(headers: &mut HeaderMap, start: u64, length: u64, total: u64) {
    let last = start.saturating_add(length).saturating_sub(1);
    if let Ok(value) = HeaderValue::from_str(&format!("bytes {start}-{last}/{total}")) {
        headers.insert(CONTENT_RANGE, value);
    }
    headers.insert(CONTENT_LENGTH, length.into());
}

/// Returns true for a body that is longer than an error document: such a one is read and checked for
/// `<Error>` before it is passed on.
fn is_no_error(bytes: u64) -> bool {
    bytes > 4096
}

fn length_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn reaches(bytes: &BytesMut, end: u64) -> bool {
    length_of(bytes) >= end
}

/// Returns true if a request has the same effect twice as once.
fn is_repeatable(request: &HttpRequest) -> bool {
    match *request.method() {
        Method::GET | Method::HEAD | Method::DELETE => true,
        // A condition that the first of two has changed refuses the second.
        Method::PUT => {
            let headers = request.headers();
            !headers.contains_key(IF_MATCH) && !headers.contains_key(IF_NONE_MATCH)
        }
        _ => false,
    }
}

fn header(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// Returns true for a web page, which a proxy or a login form sends in place of data.
fn is_page(headers: &HeaderMap) -> bool {
    header(headers, CONTENT_TYPE).is_some_and(|kind| {
        kind.trim_start()
            .to_ascii_lowercase()
            .starts_with("text/html")
    })
}

/// Returns the code of an S3 or Azure error document; only letters and digits pass, so that no part of
/// a signature reaches a message.
fn error_code(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    (code.len() <= 64 && code.chars().all(|c| c.is_ascii_alphanumeric())).then(|| code.to_owned())
}

/// The method and range of a request.
struct Asked {
    head: bool,
    range: Option<AskedRange>,
}

/// The byte range of a request; `end` is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AskedRange {
    Bounded { start: u64, end: u64 },
    From { start: u64 },
    Last { bytes: u64 },
}

impl Asked {
    fn of(request: &HttpRequest) -> Self {
        Self {
            head: request.method() == Method::HEAD,
            range: header(request.headers(), RANGE).and_then(AskedRange::parse),
        }
    }
}

impl AskedRange {
    fn parse(text: &str) -> Option<Self> {
        let (start, last) = text.strip_prefix("bytes=")?.split_once('-')?;
        match (start.parse().ok(), last.parse::<u64>().ok()) {
            (Some(start), Some(last)) => Some(Self::Bounded {
                start,
                end: last.checked_add(1)?,
            }),
            (Some(start), None) => Some(Self::From { start }),
            (None, Some(bytes)) => Some(Self::Last { bytes }),
            (None, None) => None,
        }
    }

    /// Returns start and end in a file of `total` bytes.
    fn within(self, total: u64) -> Option<(u64, u64)> {
        let (start, end) = match self {
            Self::Bounded { start, end } => (start, end.min(total)),
            Self::From { start } => (start, total),
            Self::Last { bytes } => (total.saturating_sub(bytes), total),
        };
        (start < end).then_some((start, end))
    }

    /// Returns the length of a `Content-Range`, if it is the range of the request.
    /// See <https://www.rfc-editor.org/rfc/rfc9110#section-14.4>.
    fn length_answered(self, content_range: &str) -> Option<u64> {
        let (range, total) = content_range.strip_prefix("bytes ")?.split_once('/')?;
        let (start, last) = range.trim().split_once('-')?;
        let start: u64 = start.parse().ok()?;
        let end = last.parse::<u64>().ok()?.checked_add(1)?;
        let total: u64 = total.trim().parse().ok()?;
        (self.within(total)? == (start, end)).then(|| end - start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_range_asked_for_is_accepted() {
        let asked = AskedRange::parse("bytes=10-19").unwrap();
        assert_eq!(asked.length_answered("bytes 10-19/100"), Some(10));
        assert_eq!(asked.length_answered("bytes 10-14/15"), Some(5));
        for wrong in [
            "bytes 11-20/100",
            "bytes 10-18/100",
            "bytes 10-20/100",
            "bytes 10-19/*",
            "items 10-19/100",
            "bytes 10-18446744073709551615/100",
            "",
        ] {
            assert_eq!(asked.length_answered(wrong), None, "{wrong}");
        }
        let last = AskedRange::parse("bytes=-10").unwrap();
        assert_eq!(last.length_answered("bytes 90-99/100"), Some(10));
        assert_eq!(last.length_answered("bytes 0-4/5"), Some(5));
        let from = AskedRange::parse("bytes=95-").unwrap();
        assert_eq!(from.length_answered("bytes 95-99/100"), Some(5));
    }

    #[test]
    fn an_error_code_is_letters_only() {
        let text = "<Error><Code>SlowDown</Code><Message>key=S</Message></Error>";
        assert_eq!(error_code(text).as_deref(), Some("SlowDown"));
        assert_eq!(error_code("<Code>sig=abc</Code>"), None);
    }
}
