//! One request to a STAC API, and the classification of its failures.
//!
//! Redirects are followed here and not by the HTTP client, which would change the POST of a search to
//! a GET without a body: a search for everything.

use std::{
    hash::{BuildHasher, RandomState},
    time::{Duration, SystemTime},
};

use http::{HeaderMap, StatusCode, header};
use reqwest::Response;
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use super::paging::{Request, same_server};
use crate::{
    error::{Error, ErrorKind},
    location::{Trust, redact, redact_text},
    session::Session,
    store::{self, of_status, retry_after},
};

/// The limit on the size of a response, in bytes.
const MAX_BODY_BYTES: usize = 128 << 20;
/// The limit on the values of a page: each of them takes far more memory than text.
const MAX_VALUES: usize = 4 << 20;
const MAX_REDIRECTS: usize = 5;
/// The longest backoff between two tries, unless the server requests a longer one.
const MAX_BACKOFF: Duration = Duration::from_secs(20);
/// The number of characters of a server's message that are included in an error.
const MAX_MESSAGE: usize = 300;

/// A response with a success status.
#[derive(Debug)]
pub(super) struct Answer {
    /// The URL after redirects.
    pub(super) url: Url,
    pub(super) body: Vec<u8>,
}

/// The number of retries when no connection was made: a user with a wrong URL should not
/// wait for all retries.
const RETRIES_UNREACHED: u32 = 2;

/// A failed request.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) status: Option<StatusCode>,
    /// The same request may succeed later.
    pub(super) again: bool,
    /// No connection was made: usually a wrong host name, not a transient failure.
    unreached: bool,
    /// A smaller page may succeed.
    pub(super) smaller: bool,
    /// The server's `Retry-After`.
    pub(super) pause: Option<Duration>,
}

impl Failure {
    fn new(error: Error) -> Self {
        Self {
            again: error.is_retryable(),
            error,
            status: None,
            unreached: false,
            smaller: false,
            pause: None,
        }
    }

    /// Creates a failure that is not retried.
    pub(super) fn last(error: Error) -> Self {
        Self {
            again: false,
            ..Self::new(error)
        }
    }

    pub(super) fn worth_another_try(mut self) -> Self {
        self.again = true;
        self
    }

    /// Adds the server's `Retry-After` to the message, where it is longer than the deadline.
    fn told_to_wait(mut self) -> Self {
        if let Some(pause) = self.pause {
            let (kind, message) = (self.error.kind(), self.error.message());
            let message = format!(
                "{message}; its Retry-After is {} s, longer than the deadline",
                pause.as_secs()
            );
            let place = self.error.location().unwrap_or_default().to_owned();
            self.error = Error::new(kind, message).at(place);
        }
        self
    }

    pub(super) fn corrupt(url: &Url, message: impl Into<String>) -> Self {
        Self::new(Error::new(ErrorKind::Corrupt, message).at(redact(url.as_str())))
    }
}

/// Sends a request once and reads the response.
pub(super) async fn send(session: &Session, request: &Request) -> Result<Answer, Failure> {
    let mut url = request.url().clone();
    for _ in 0..=MAX_REDIRECTS {
        let builder = match request {
            Request::Get(_) => session.http().get(url.clone()),
            Request::Post(_, body) => session.http().post(url.clone()).json(body),
        };
        let response = builder
            .header(header::ACCEPT, "application/geo+json, application/json")
            .send()
            .await
            .map_err(|err| transport(err, &url))?;
        if !response.status().is_redirection() {
            return read(response, url).await;
        }
        url = redirected(&response, &url)?;
    }
    Err(Failure::corrupt(
        request.url(),
        format!("more than {MAX_REDIRECTS} redirects"),
    ))
}

fn redirected(response: &Response, from: &Url) -> Result<Url, Failure> {
    let to = response
        .headers()
        .get(header::LOCATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| from.join(value).ok())
        .ok_or_else(|| Failure::corrupt(from, "redirected without a Location header"))?;
    // A public server must not redirect the search to the local network, nor to plain http.
    let public = Trust::of_catalogue(from) == Trust::Network;
    let allowed = same_server(&to, from)
        || to.scheme() == "https" && !(public && Trust::of_catalogue(&to) != Trust::Network);
    if !allowed {
        let error = Error::new(
            ErrorKind::Denied,
            format!(
                "redirected to `{}`, which is not https on a public host; it was not followed",
                redact(to.as_str())
            ),
        );
        return Err(Failure::new(error.at(redact(from.as_str()))));
    }
    Ok(to)
}

async fn read(mut response: Response, url: Url) -> Result<Answer, Failure> {
    let status = response.status();
    let headers = response.headers().clone();
    let limit = if status.is_success() {
        MAX_BODY_BYTES
    } else {
        // Only the start of an error page goes into the message.
        1 << 16
    };
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            // The limit is checked per chunk: Content-Length may be missing or wrong.
            Ok(Some(chunk)) if body.len().saturating_add(chunk.len()) <= limit => {
                body.extend_from_slice(&chunk);
            }
            Ok(Some(_)) if status.is_success() => {
                let mut failure = Failure::corrupt(
                    &url,
                    format!("the response is larger than {} MiB", MAX_BODY_BYTES >> 20),
                );
                // The limit is the client's own, so a smaller page can succeed.
                failure.smaller = true;
                return Err(failure);
            }
            Ok(Some(_)) | Ok(None) => break,
            Err(_) if !status.is_success() => break,
            Err(err) => return Err(transport(err, &url)),
        }
    }
    if !status.is_success() {
        // Secrets are removed before the text is shortened: a truncated value would not be found.
        let body = without_values(&body, &url);
        return Err(refused(status, &headers, body.as_bytes(), &url));
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
    let values = body.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{'));
    if values.count() > MAX_VALUES {
        let mut failure = Failure::corrupt(
            &url,
            format!("the response has more than {} million JSON values", MAX_VALUES >> 20),
        );
        failure.smaller = true;
        return Err(failure);
    }
    Ok(Answer { url, body })
}

/// Converts a transport error, without the URL that the client's error contains.
fn transport(err: reqwest::Error, url: &Url) -> Failure {
    let message = if err.is_connect() {
        "no connection"
    } else if err.is_timeout() {
        "no response in time"
    } else if err.is_body() || err.is_decode() {
        "the response was interrupted"
    } else if err.is_request() {
        "the connection was interrupted"
    } else {
        "the request failed"
    };
    let unreached = err.is_connect();
    let error = Error::new(ErrorKind::Unavailable, message)
        .at(redact(url.as_str()))
        .with_source(err.without_url());
    Failure {
        unreached,
        ..Failure::new(error)
    }
}

/// Converts an error status, with the server's message.
fn refused(status: StatusCode, headers: &HeaderMap, body: &[u8], url: &Url) -> Failure {
    let (kind, mut message) = of_status(status);
    let server_message = server_message(body);
    if !server_message.is_empty() {
        message = format!("{message}: {server_message}");
    }
    let code = status.as_u16();
    let mut failure = Failure::new(Error::new(kind, message).at(redact(url.as_str())));
    failure.status = Some(status);
    // Timeouts, rate limits, overload, and the 500 of transient failures.
    failure.again = matches!(code, 408 | 425 | 429 | 500 | 502 | 503 | 504);
    // 413 is an explicit limit; 502 and 504 come from gateways that give up on a large page.
    failure.smaller =
        matches!(code, 413 | 502 | 504) || code == 500 && mentions_size(&server_message);
    failure.pause = retry_after(headers, SystemTime::now());
    failure
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

/// The retry policy of one request: counts tries and computes the backoff.
#[derive(Debug)]
pub(super) struct Patience {
    retries: u32,
    failed: u32,
    base: Duration,
    until: Instant,
}

impl Patience {
    pub(super) fn new(session: &Session, until: Instant) -> Self {
        let settings = session.settings();
        Self {
            retries: settings.retries,
            failed: 0,
            base: settings.backoff,
            // The deadline of one request never exceeds that of the complete search.
            until: until.min(later(settings.deadline)),
        }
    }

    /// Returns the deadline of the request.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Returns the wait before the next try.
    ///
    /// # Errors
    ///
    /// The failure's error with the number of tries, if it is not retried or no retry is left.
    pub(super) fn wait(&mut self, failure: Failure) -> crate::Result<Duration> {
        self.failed += 1;
        if !failure.again {
            return Err(failure.error);
        }
        let retries = match failure.unreached {
            true => self.retries.min(RETRIES_UNREACHED),
            false => self.retries,
        };
        if self.failed > retries {
            return Err(failure.error.after(self.failed));
        }
        // Never earlier than the server's Retry-After.
        let wait = backoff(self.base, self.failed, random()).max(failure.pause.unwrap_or_default());
        // A wait past the deadline would only delay the error.
        if wait >= self.until.saturating_duration_since(Instant::now()) {
            return Err(failure.told_to_wait().error.after(self.failed));
        }
        Ok(wait)
    }

    /// Returns the wait before a smaller page is requested, which does not count as a retry.
    pub(super) fn wait_for_smaller(&self, failure: &Failure) -> Duration {
        let wait = backoff(self.base, 1, random()).max(failure.pause.unwrap_or_default());
        wait.min(self.until.saturating_duration_since(Instant::now()))
    }
}

/// Returns a random fraction of a wait that doubles with each failure (exponential backoff with full jitter),
/// so that clients do not retry in step. `random` is from 0 to 1.
fn backoff(base: Duration, failed: u32, random: f64) -> Duration {
    let doubled = 2_u32.saturating_pow(failed.saturating_sub(1));
    base.saturating_mul(doubled)
        .min(MAX_BACKOFF)
        .mul_f64(random.clamp(0.0, 1.0))
}

/// Returns a random number from 0 to 1: each [`RandomState`] has different keys.
fn random() -> f64 {
    let bits = RandomState::new().hash_one(0_u8) >> 32;
    u32::try_from(bits).map_or(0.5, |bits| f64::from(bits) / f64::from(u32::MAX))
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
    fn a_server_that_is_not_there_is_given_up_sooner() {
        let tries = |unreached: bool| {
            let session = Session::builder().backoff(Duration::ZERO).build().unwrap();
            let mut patience = Patience::new(&session, later(Duration::from_secs(60)));
            let failure = || Failure {
                unreached,
                ..Failure::new(Error::new(ErrorKind::Unavailable, "gone"))
            };
            let again = (0..20).take_while(|_| patience.wait(failure()).is_ok());
            1 + again.count()
        };
        assert_eq!((tries(false), tries(true)), (7, 3));
    }

    #[test]
    fn an_answer_too_large_for_its_server_asks_for_smaller_pages() {
        let url: Url = "https://h/search?sig=1".parse().unwrap();
        let smaller = |code: u16, body: &str| {
            let status = StatusCode::from_u16(code).unwrap();
            refused(status, &HeaderMap::new(), body.as_bytes(), &url).smaller
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
        fn a_wait_never_passes_its_bound(base in 0..100_000_u64, failed: u32, random: f64) {
            prop_assume!(!random.is_nan());
            let wait = backoff(Duration::from_millis(base), failed, random);
            prop_assert!(wait <= MAX_BACKOFF);
        }

        #[test]
        fn any_body_of_an_error_gives_a_message(body: Vec<u8>) {
            let text = server_message(&body);
            prop_assert!(text.chars().count() <= MAX_MESSAGE + 2);
            prop_assert!(!text.contains('\n'));
        }
    }
}
