//! One request to a STAC API, and the classification of its failures.
//!
//! Connections, redirects and waits are those of all requests (`store::network`). Here is what is a search's own: pages
//! are asked for compressed, and the server's message goes into the error.

use std::time::{Duration, SystemTime};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, Method, StatusCode, header};
use libdeflater::Decompressor;
use object_store::client::{HttpRequestBody, HttpResponse};
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use super::paging::Request;
use crate::{
    error::{Error, ErrorKind},
    location::{decode, redact, redact_text},
    session::Session,
    store::{self, Fault, Network, Patience, Remedy, of_status, retry_after},
};

/// The limit on the size of a response, in bytes.
const MAX_BODY_BYTES: usize = 128 << 20;
/// The limit on the values of a page: each of them takes far more memory than text.
const MAX_VALUES: usize = 4 << 20;
/// The number of characters of a server's message that are included in an error.
const MAX_MESSAGE: usize = 300;

/// A response with a success status.
#[derive(Debug)]
pub(super) struct Answer {
    /// The URL after redirects.
    pub(super) url: Url,
    pub(super) body: Vec<u8>,
}

/// A failed request.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) status: Option<StatusCode>,
    /// What went wrong, if the same request may succeed later.
    fault: Option<Fault>,
    /// A smaller page may succeed.
    pub(super) smaller: bool,
}

impl Failure {
    /// Creates a failure that is not retried.
    pub(super) fn last(error: Error) -> Self {
        Self {
            error,
            status: None,
            fault: None,
            smaller: false,
        }
    }

    fn of(fault: Fault, url: &Url) -> Self {
        let error = Error::new(fault.kind(), fault.to_string()).at(redact(url.as_str()));
        Self {
            fault: Some(fault),
            ..Self::last(error)
        }
    }

    pub(super) fn worth_another_try(mut self) -> Self {
        self.fault = Some(Fault::Answer("a response that is not whole"));
        self
    }

    /// Waits before the next try.
    ///
    /// # Errors
    ///
    /// The failure's error with the number of tries, if it is not retried or no retry is left.
    pub(super) async fn wait(
        self,
        session: &Session,
        request: &Request,
        patience: &mut Patience,
    ) -> crate::Result<()> {
        let Some(fault) = self.fault else {
            return Err(self.error);
        };
        let goes_on = match request.url().as_str().parse() {
            Ok(uri) => session.network().rest(&uri, patience, &fault).await,
            Err(_) => false,
        };
        match goes_on {
            true => Ok(()),
            false => Err(self.error.after(patience.failed())),
        }
    }

    pub(super) fn corrupt(url: &Url, message: impl Into<String>) -> Self {
        Self::last(Error::new(ErrorKind::Corrupt, message).at(redact(url.as_str())))
    }
}

/// Sends a request once and reads the response. `left` is the time until the deadline.
pub(super) async fn send(
    session: &Session,
    request: &Request,
    headers: &HeaderMap,
    left: Duration,
    attempt: u32,
) -> Result<Answer, Failure> {
    let url = request.url().clone();
    let network = session.network().clone();
    let built = built(request, headers)?;
    // A task of its own: it holds a permit of the host, which a search that is left alone would keep.
    let answer = store::spawned(async move {
        let sent = match network.send(built, attempt).await {
            Ok(sent) => sent,
            Err(err) => return Ok(Err(Failure::of(Fault::of_transport(&err), &url))),
        };
        let answered = sent.uri.to_string().parse().unwrap_or_else(|_| url.clone());
        Ok(read(&network, sent.response, answered, left).await)
    });
    answer.await.map_err(Failure::last)?
}

fn built(
    request: &Request,
    headers: &HeaderMap,
) -> Result<http::Request<HttpRequestBody>, Failure> {
    let mut url = request.url().clone();
    let invalid = || {
        let error = Error::new(ErrorKind::InvalidInput, "not a valid URL");
        Failure::last(error.at(redact(request.url().as_str())))
    };
    let (method, body) = match request {
        Request::Get(_) => (Method::GET, Vec::new()),
        Request::Post(_, body) => {
            let body = serde_json::to_vec(body).map_err(|_| invalid())?;
            (Method::POST, body)
        }
    };
    let login = login(&url);
    // They are sent as a header, and in no address.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    let mut built = http::Request::builder().method(&method).uri(url.as_str());
    if let Some(all) = built.headers_mut() {
        *all = headers.clone();
    }
    built = built
        .header(header::ACCEPT, "application/geo+json, application/json")
        .header(header::ACCEPT_ENCODING, "gzip");
    if method == Method::POST {
        built = built.header(header::CONTENT_TYPE, "application/json");
    }
    if let Some(login) = login {
        built = built.header(header::AUTHORIZATION, login);
    }
    built.body(body.into()).map_err(|_| invalid())
}

/// Returns the header of a user name and a password in a URL.
/// See <https://www.rfc-editor.org/rfc/rfc7617#section-2>.
fn login(url: &Url) -> Option<String> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let (user, password) = (decode(url.username()), url.password().unwrap_or_default());
    let text = format!("{user}:{}", decode(password));
    Some(format!("Basic {}", BASE64_STANDARD.encode(text)))
}

async fn read(
    network: &Network,
    response: HttpResponse,
    url: Url,
    left: Duration,
) -> Result<Answer, Failure> {
    let (parts, body) = response.into_parts();
    let (status, headers) = (parts.status, parts.headers);
    let limit = if status.is_success() {
        MAX_BODY_BYTES
    } else {
        // Only the start of an error page goes into the message.
        1 << 16
    };
    let body = match network.read(body, limit).await {
        Ok((body, is_whole)) if is_whole || !status.is_success() => body,
        Ok(_) => return Err(too_large(&url)),
        Err(_) if !status.is_success() => Vec::new(),
        Err(err) => return Err(Failure::of(Fault::of_transport(&err), &url)),
    };
    let encoding = headers.get(header::CONTENT_ENCODING);
    let encoding = encoding
        .and_then(|value| value.to_str().ok())
        .map(str::trim);
    let body = match encoding {
        None | Some("" | "identity") => body,
        Some("gzip" | "x-gzip") => match inflated(&body) {
            Inflated::Whole(body) => body,
            Inflated::TooLarge => return Err(too_large(&url)),
            Inflated::Damaged if !status.is_success() => Vec::new(),
            Inflated::Damaged => {
                let failure = Failure::corrupt(&url, "a body compressed by gzip, which is damaged");
                return Err(failure.worth_another_try());
            }
        },
        Some(other) => {
            let other: String = other
                .chars()
                .filter(char::is_ascii_alphanumeric)
                .take(20)
                .collect();
            let message = format!("a body compressed by {other}, which was not asked for");
            return Err(Failure::corrupt(&url, message));
        }
    };
    if !status.is_success() {
        // Secrets are removed before the text is shortened: a truncated value would not be found.
        let body = without_values(&body, &url);
        let failure = refused(status, body.as_bytes(), &url);
        // A wait past the deadline cannot succeed: the caller learns it at once.
        return Err(match retry_after(&headers, SystemTime::now()) {
            Some(pause) if pause >= left && failure.fault.is_some() => {
                let fault = Fault::Pause(pause);
                let message = format!("{}; {fault}", failure.error.message());
                Failure::last(Error::new(fault.kind(), message).at(redact(url.as_str())))
            }
            _ => failure,
        });
    }
    // A byte order mark is no JSON, but some servers send one.
    let text = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&body);
    let text = text.trim_ascii_start();
    // Each STAC document is a JSON object; login pages and proxies respond 200 with HTML.
    if text.first() != Some(&b'{') {
        let text = without_values(text, &url);
        let kind = content_type(&headers);
        return Err(Failure::corrupt(
            &url,
            format!(
                "expected STAC JSON, the server responded {} with {kind}: {}",
                status.as_u16(),
                first_words(text.as_bytes())
            ),
        ));
    }
    let values = body
        .iter()
        .filter(|byte| matches!(byte, b',' | b'[' | b'{'));
    if values.count() > MAX_VALUES {
        let mut failure = Failure::corrupt(
            &url,
            format!(
                "the response has more than {} million JSON values",
                MAX_VALUES >> 20
            ),
        );
        failure.smaller = true;
        return Err(failure);
    }
    Ok(Answer { url, body })
}

fn too_large(url: &Url) -> Failure {
    let mut failure = Failure::corrupt(
        url,
        format!("the response is larger than {} MiB", MAX_BODY_BYTES >> 20),
    );
    // The limit is the client's own, so a smaller page can succeed.
    failure.smaller = true;
    failure
}

enum Inflated {
    Whole(Vec<u8>),
    TooLarge,
    Damaged,
}

/// Decompresses a body, which states its length at its end (<https://www.rfc-editor.org/rfc/rfc1952#section-2.3.1>). Past
/// the limit of a body no memory is taken.
fn inflated(body: &[u8]) -> Inflated {
    let Some(length) = body.last_chunk().map(|bytes| u32::from_le_bytes(*bytes)) else {
        return Inflated::Damaged;
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > MAX_BODY_BYTES {
        return Inflated::TooLarge;
    }
    // Deflate compresses by 1032 at most: another length is a lie.
    if length / 1032 > body.len() {
        return Inflated::Damaged;
    }
    let mut out = vec![0; length];
    match Decompressor::new().gzip_decompress(body, &mut out) {
        Ok(found) if found == length => Inflated::Whole(out),
        _ => Inflated::Damaged,
    }
}

/// Converts an error status, with the server's message.
fn refused(status: StatusCode, body: &[u8], url: &Url) -> Failure {
    let (kind, mut message) = of_status(status);
    let server_message = server_message(body);
    if !server_message.is_empty() {
        message = format!("{message}: {server_message}");
    }
    let code = status.as_u16();
    let fault = Fault::Status {
        status: code,
        code: None,
    };
    Failure {
        status: Some(status),
        fault: (fault.remedy() != Remedy::Nothing).then_some(fault),
        // 413 is an explicit limit; 502 and 504 come from gateways that give up on a large page.
        smaller: matches!(code, 413 | 502 | 504) || code == 500 && mentions_size(&server_message),
        ..Failure::last(Error::new(kind, message).at(redact(url.as_str())))
    }
}

/// Returns true if the message states that the response exceeds a size or time limit of the server's host.
fn mentions_size(server_message: &str) -> bool {
    let server_message = server_message.to_lowercase();
    [
        "too large",
        "too long",
        "too big",
        "payload size",
        "exceeded maximum",
        "timeout",
        "timed out",
    ]
    .iter()
    .any(|words| server_message.contains(words))
}

/// Returns the message in the body of an error: from the usual JSON members, else the start of the text.
fn server_message(body: &[u8]) -> String {
    let Ok(Value::Object(json)) = serde_json::from_slice::<Value>(body) else {
        return first_words(body.trim_ascii_start());
    };
    let mut words: Vec<String> = Vec::new();
    for name in [
        "code",
        "name",
        "title",
        "description",
        "detail",
        "message",
        "error",
    ] {
        let text = match json.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(other @ (Value::Array(_) | Value::Object(_))) => other.to_string(),
            _ => continue,
        };
        if !words.contains(&text) {
            words.push(text);
        }
    }
    clean(&words.join(", "))
}

fn first_words(body: &[u8]) -> String {
    let end = body.len().min(MAX_MESSAGE);
    let text = String::from_utf8_lossy(body.get(..end).unwrap_or_default());
    clean(&text)
}

/// Query parameters of a search, which may be included in an error.
const SEARCH_MEMBERS: [&str; 9] = [
    "collections",
    "ids",
    "bbox",
    "intersects",
    "datetime",
    "limit",
    "filter",
    "filter-lang",
    "query",
];
/// The shortest parameter value that is taken for a key, in bytes.
const MIN_KEY: usize = 6;

/// Removes the parameter values of the requested URL from a server's text: servers often repeat
/// an unknown key.
fn without_values(body: &[u8], url: &Url) -> String {
    let mut text = String::from_utf8_lossy(body).into_owned();
    for (name, value) in url.query_pairs() {
        // Short values, such as a page number, would remove unrelated text.
        if value.len() >= MIN_KEY && !SEARCH_MEMBERS.contains(&&*name) {
            text = text.replace(&*value, "..");
        }
    }
    text
}

/// Reduces a server's text to one short line, without the query strings of URLs.
fn clean(text: &str) -> String {
    let words: Vec<String> = redact_text(text)
        .split_whitespace()
        .map(|word| word.chars().filter(|c| !c.is_control()).collect())
        .collect();
    let text = words.join(" ");
    match text.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}..", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

fn content_type(headers: &HeaderMap) -> String {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .map_or_else(|| "no content type".to_owned(), clean)
}

/// Returns the instant after `time`.
pub(super) fn later(time: Duration) -> Instant {
    Instant::from_std(store::later(time))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_servers_message_is_one_short_line_without_secrets() {
        assert_eq!(
            server_message(br#"{"code": "BadRequest", "description": "unknown \n field"}"#),
            "BadRequest, unknown field"
        );
        assert_eq!(
            server_message(b"<html>\n<h1>Bad gateway at https://h/x?sig=abc </h1>"),
            "<html> <h1>Bad gateway at https://h/x </h1>"
        );
        assert_eq!(
            server_message(br#"{"detail": [{"msg": "no"}]}"#),
            r#"[{"msg":"no"}]"#
        );
        assert!(server_message("x".repeat(1000).as_bytes()).len() < MAX_MESSAGE + 10);
    }

    #[test]
    fn a_user_in_a_url_is_sent_as_a_header() {
        let of = |text: &str| login(&text.parse().unwrap());
        assert_eq!(of("https://h/a"), None);
        // The example of RFC 7617.
        assert_eq!(
            of("https://Aladdin:open%20sesame@h/a").as_deref(),
            Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==")
        );
        assert_eq!(of("https://me@h/").as_deref(), Some("Basic bWU6"));
    }

    #[test]
    fn a_compressed_body_is_as_long_as_it_says() {
        use libdeflater::{CompressionLvl, Compressor};

        let text = br#"{"type": "FeatureCollection"}"#.repeat(40);
        let mut compressor = Compressor::new(CompressionLvl::default());
        let mut body = vec![0; compressor.gzip_compress_bound(text.len())];
        let length = compressor.gzip_compress(&text, &mut body).unwrap();
        body.truncate(length);
        let Inflated::Whole(back) = inflated(&body) else {
            panic!("a whole body");
        };
        assert_eq!(back, text);
        let lying = |length: u32| {
            let mut body = body.clone();
            let end = body.len() - 4;
            body[end..].copy_from_slice(&length.to_le_bytes());
            inflated(&body)
        };
        assert!(matches!(lying(u32::MAX), Inflated::TooLarge));
        for length in [0, 10, 1 << 26] {
            assert!(matches!(lying(length), Inflated::Damaged), "{length}");
        }
        assert!(matches!(inflated(b""), Inflated::Damaged));
        assert!(matches!(
            inflated(b"{\"type\": 1}"),
            Inflated::Damaged | Inflated::TooLarge
        ));
    }

    #[test]
    fn an_answer_too_large_for_its_server_asks_for_smaller_pages() {
        let url: Url = "https://h/search?sig=1".parse().unwrap();
        let smaller = |code: u16, body: &str| {
            let status = StatusCode::from_u16(code).unwrap();
            refused(status, body.as_bytes(), &url).smaller
        };
        assert!(smaller(502, ""));
        assert!(smaller(504, ""));
        assert!(smaller(413, ""));
        assert!(smaller(500, r#"{"message": "body size is too long"}"#));
        assert!(!smaller(500, r#"{"message": "Internal server error"}"#));
        assert!(!smaller(503, ""));
    }

    proptest! {
        #[test]
        fn any_body_of_an_error_gives_a_message(body: Vec<u8>) {
            let text = server_message(&body);
            prop_assert!(text.chars().count() <= MAX_MESSAGE + 2);
            prop_assert!(!text.contains('\n'));
        }
    }
}
