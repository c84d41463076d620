//! One request to a STAC API, and what a failure of it means.
//!
//! Redirects are followed here and not by the HTTP client, which would turn a search by POST into
//! a GET that searches for everything.

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
    store::{of_status, retry_after},
};

/// The largest answer that is read, in bytes.
const MAX_BODY_BYTES: usize = 128 << 20;
const MAX_REDIRECTS: usize = 5;
/// The longest wait between two tries, if the server does not ask for a longer one.
const MAX_BACKOFF: Duration = Duration::from_secs(20);
/// Characters of a server's message that are repeated.
const MAX_MESSAGE: usize = 300;

/// An answer with a status of success.
#[derive(Debug)]
pub(super) struct Answer {
    /// Where it came from, after redirects.
    pub(super) url: Url,
    pub(super) body: Vec<u8>,
}

/// How often a server that is not reached at all is tried again: a user with a wrong address must not
/// wait for all tries.
const RETRIES_UNREACHED: u32 = 2;

/// A try that failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    pub(super) status: Option<StatusCode>,
    /// The same request may succeed later.
    pub(super) again: bool,
    /// No server was reached: a wrong name more often than a passing fault.
    unreached: bool,
    /// A smaller page may succeed.
    pub(super) smaller: bool,
    /// The pause the server asked for.
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

    /// Makes a failure that no other try can mend.
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

    pub(super) fn corrupt(url: &Url, message: impl Into<String>) -> Self {
        Self::new(Error::new(ErrorKind::Corrupt, message).at(redact(url.as_str())))
    }
}

/// Sends a request once and reads the answer.
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
        .ok_or_else(|| Failure::corrupt(from, "redirected without an address"))?;
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
        // Of an error, the first words are of use.
        1 << 16
    };
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len().saturating_add(chunk.len()) <= limit => {
                body.extend_from_slice(&chunk);
            }
            Ok(Some(_)) if status.is_success() => {
                let mut failure = Failure::corrupt(
                    &url,
                    format!("the answer is larger than {} MiB", MAX_BODY_BYTES >> 20),
                );
                failure.smaller = true;
                return Err(failure);
            }
            Ok(Some(_)) | Ok(None) => break,
            Err(_) if !status.is_success() => break,
            Err(err) => return Err(transport(err, &url)),
        }
    }
    if !status.is_success() {
        let body = without_values(&body, &url);
        return Err(refused(status, &headers, body.as_bytes(), &url));
    }
    let text = body.trim_ascii_start();
    if text.first() != Some(&b'{') {
        let text = without_values(text, &url);
        let kind = content_type(&headers);
        return Err(Failure::corrupt(
            &url,
            format!(
                "expected STAC JSON, the server answered {} with {kind}: {}",
                status.as_u16(),
                first_words(text.as_bytes())
            ),
        ));
    }
    Ok(Answer { url, body })
}

/// Makes an error of a transport failure, without the URL that the client's own error names.
fn transport(err: reqwest::Error, url: &Url) -> Failure {
    let message = if err.is_connect() {
        "no connection"
    } else if err.is_timeout() {
        "no answer in time"
    } else if err.is_body() || err.is_decode() {
        "the answer broke off"
    } else if err.is_request() {
        "the connection broke off"
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

/// Makes an error of a status, with the server's own words.
fn refused(status: StatusCode, headers: &HeaderMap, body: &[u8], url: &Url) -> Failure {
    let (kind, mut message) = of_status(status);
    let said = said(body);
    if !said.is_empty() {
        message = format!("{message}: {said}");
    }
    let code = status.as_u16();
    let mut failure = Failure::new(Error::new(kind, message).at(redact(url.as_str())));
    failure.status = Some(status);
    failure.again = matches!(code, 408 | 425 | 429 | 500 | 502 | 503 | 504);
    failure.smaller = matches!(code, 413 | 502 | 504) || code == 500 && speaks_of_size(&said);
    failure.pause = retry_after(headers, SystemTime::now());
    failure
}

/// Returns true for what servers say when an answer outgrew a limit of their host.
fn speaks_of_size(said: &str) -> bool {
    let said = said.to_lowercase();
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
    .any(|words| said.contains(words))
}

/// Returns the message in an error's body: a member that servers put it in, or the first words.
fn said(body: &[u8]) -> String {
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

/// Members of a query string that are a search's own, and may be repeated in an error.
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
/// The shortest value that is taken for a key, in bytes.
const MIN_KEY: usize = 6;

/// Returns a server's text without the values of the address that was asked: servers like to repeat
/// a key that they do not know.
fn without_values(body: &[u8], url: &Url) -> String {
    let mut text = String::from_utf8_lossy(body).into_owned();
    for (name, value) in url.query_pairs() {
        if value.len() >= MIN_KEY && !SEARCH_MEMBERS.contains(&&*name) {
            text = text.replace(&*value, "..");
        }
    }
    text
}

/// Puts a server's text on one line, short and without the queries of URLs in it.
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

/// Counts the tries of one request and says how long to wait before the next.
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
            until: until.min(later(settings.deadline)),
        }
    }

    /// Returns the instant after which nothing is tried.
    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Returns how long to wait before the next try.
    ///
    /// # Errors
    ///
    /// The failure's own error, saying how often it was tried, if no try is left.
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
        let wait = backoff(self.base, self.failed, random()).max(failure.pause.unwrap_or_default());
        if Instant::now() + wait >= self.until {
            return Err(failure.error.after(self.failed));
        }
        Ok(wait)
    }

    /// Returns how long to wait before a smaller page is asked for; this is not counted as a try.
    pub(super) fn wait_for_smaller(&self, failure: &Failure) -> Duration {
        let wait = backoff(self.base, 1, random()).max(failure.pause.unwrap_or_default());
        wait.min(self.until.saturating_duration_since(Instant::now()))
    }
}

/// Returns a random share of a wait that doubles with each failure ("full jitter"), so that many
/// clients do not come back at the same moment. `random` is from 0 to 1.
fn backoff(base: Duration, failed: u32, random: f64) -> Duration {
    let doubled = 2_u32.saturating_pow(failed.saturating_sub(1));
    base.saturating_mul(doubled)
        .min(MAX_BACKOFF)
        .mul_f64(random.clamp(0.0, 1.0))
}

/// Returns a number from 0 to 1. Each [`RandomState`] has keys of its own.
fn random() -> f64 {
    let bits = RandomState::new().hash_one(0_u8) >> 32;
    u32::try_from(bits).map_or(0.5, |bits| f64::from(bits) / f64::from(u32::MAX))
}

/// Returns the instant after a time; far in the future if that cannot be counted.
pub(super) fn later(time: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + time.min(YEAR)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_servers_message_is_one_short_line_without_secrets() {
        assert_eq!(
            said(br#"{"code": "BadRequest", "description": "unknown \n field"}"#),
            "BadRequest, unknown field"
        );
        assert_eq!(
            said(b"<html>\n<h1>Bad gateway at https://h/x?sig=abc </h1>"),
            "<html> <h1>Bad gateway at https://h/x </h1>"
        );
        assert_eq!(said(br#"{"detail": [{"msg": "no"}]}"#), r#"[{"msg":"no"}]"#);
        assert!(said("x".repeat(1000).as_bytes()).len() < MAX_MESSAGE + 10);
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
            let text = said(&body);
            prop_assert!(text.chars().count() <= MAX_MESSAGE + 2);
            prop_assert!(!text.contains('\n'));
        }
    }
}
