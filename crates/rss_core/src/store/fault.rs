//! Errors of stores: the one module that turns `object_store`'s errors into ours.
//!
//! `object_store` writes complete URLs and response bodies into its messages. Here only a status, the
//! service's error code and our own text pass: a signature or a key never does.

use std::{
    borrow::Borrow,
    error::Error as StdError,
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use object_store::client::{HttpError, HttpErrorKind};

use super::retry::{Remedy, words};
use crate::{
    error::{Error, ErrorKind},
    location::{Location, redact},
};

/// The most redirects that a request follows.
pub(super) const MOST_REDIRECTS: usize = 5;

/// How one attempt of a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server sent an error status.
    Status { status: u16, code: Option<String> },
    /// The response breaks the protocol: another range, a truncated body.
    Answer(&'static str),
    /// The server responds to a range request with the complete, large file.
    NoRanges,
    /// A redirect that is not followed: to a private host, or from `https` to another scheme; none are too many.
    Redirect(Option<String>),
    /// A host that others named resolves to a private address.
    Private,
    /// The system knows no such host.
    NoHost,
    /// No connection that is trusted.
    Tls(String),
    /// A body slower than the least rate.
    Slow,
    /// The server's `Retry-After` is longer than requests are retried for.
    Pause(Duration),
    /// No token to sign the request with.
    Sign(ErrorKind, String),
    /// No response, or a connection that broke.
    Transport(HttpErrorKind),
}

impl Fault {
    /// Returns the fault of a request that got no response.
    pub(crate) fn of_transport(err: &HttpError) -> Self {
        let mut source: Option<&(dyn StdError + 'static)> = Some(err);
        while let Some(err) = source {
            if let Some(fault) = err.downcast_ref::<Self>() {
                return fault.clone();
            }
            if let Some(tls) = err.downcast_ref::<rustls::Error>() {
                return Self::Tls(tls.to_string());
            }
            // The source of an I/O error is that of what it wraps, which is passed over.
            if let Some(inner) = err.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
                let inner: &(dyn StdError + 'static) = inner;
                if let Some(tls) = inner.downcast_ref::<rustls::Error>() {
                    return Self::Tls(tls.to_string());
                }
                if let Some(fault) = inner.downcast_ref::<Self>() {
                    return fault.clone();
                }
            }
            source = err.source();
        }
        Self::Transport(err.kind())
    }

    /// Returns the fault of a body that broke off: the connection, whatever it was that saw it.
    pub(super) fn of_body(err: &HttpError) -> Self {
        match Self::of_transport(err) {
            Self::Transport(HttpErrorKind::Timeout) => Self::Transport(HttpErrorKind::Timeout),
            Self::Transport(_) => Self::Transport(HttpErrorKind::Interrupted),
            fault => fault,
        }
    }

    /// Wraps this fault so that `object_store` retries the request.
    // object_store retries by the kind of an HttpError: `Interrupted` yes, `Unknown` no.
    pub(super) fn again(self) -> HttpError {
        HttpError::new(HttpErrorKind::Interrupted, self)
    }

    /// Wraps this fault so that `object_store` gives up.
    pub(super) fn for_good(self) -> HttpError {
        HttpError::new(HttpErrorKind::Unknown, self)
    }

    /// Returns what may help.
    pub(crate) fn remedy(&self) -> Remedy {
        match self {
            Self::Status { status, code } => match (status, code.as_deref()) {
                (408 | 425 | 429 | 502..=504, _) => Remedy::Time,
                (501 | 505, _) => Remedy::Nothing,
                (500.., _) => Remedy::Again,
                (400, Some("RequestTimeout" | "SlowDown" | "InternalError")) => Remedy::Again,
                _ => Remedy::Nothing,
            },
            // A server without ranges says so twice (`gives_up` in `wire`).
            Self::Answer(_) | Self::NoRanges => Remedy::Again,
            Self::NoHost | Self::Slow => Remedy::Seldom,
            Self::Transport(HttpErrorKind::Decode | HttpErrorKind::Unknown) => Remedy::Again,
            Self::Transport(_) => Remedy::Time,
            Self::Redirect(_) | Self::Private | Self::Tls(_) | Self::Pause(_) | Self::Sign(..) => {
                Remedy::Nothing
            }
        }
    }

    /// Returns true if nobody answers, or somebody in place of the server.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 502..=504),
            Self::Transport(_) => self.remedy() == Remedy::Time,
            _ => false,
        }
    }

    /// Returns the error kind.
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Status { status, code } => match (status, code.as_deref()) {
                (404 | 410, _) => ErrorKind::NotFound,
                (401 | 403 | 407, _) => ErrorKind::Denied,
                // S3 sends some errors that a retry cures, and expired credentials, with status 400.
                (400, Some("RequestTimeout" | "SlowDown" | "InternalError")) => {
                    ErrorKind::Unavailable
                }
                (400, Some(code)) if code.contains("Token") || code.contains("Auth") => {
                    ErrorKind::Denied
                }
                // Azure: the account does not permit anonymous access.
                (409, Some(code)) if code.contains("PublicAccess") => ErrorKind::Denied,
                (408 | 425 | 429 | 500.., _) => ErrorKind::Unavailable,
                // `If-Match` failed: the object has another ETag than the one whose header was read.
                (412, _) => ErrorKind::Changed,
                // The file's own tables point past its end.
                (416, _) => ErrorKind::Corrupt,
                _ => ErrorKind::InvalidInput,
            },
            Self::Answer(_) => ErrorKind::Corrupt,
            Self::NoRanges => ErrorKind::Unsupported,
            Self::Redirect(None) => ErrorKind::Corrupt,
            Self::Redirect(Some(_)) | Self::Private => ErrorKind::Denied,
            Self::Pause(_) | Self::Transport(_) | Self::NoHost | Self::Tls(_) | Self::Slow => {
                ErrorKind::Unavailable
            }
            Self::Sign(kind, _) => *kind,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status { status, code } => {
                let what = match status {
                    301 | 302 | 307 | 308 => "the server redirects to another URL",
                    401 | 403 => "the server refused access",
                    404 | 410 => "no such file",
                    412 => "the file was replaced while it was read",
                    416 => "a range past the end of the file",
                    429 | 503 => "the server is overloaded",
                    500.. => "the server failed",
                    _ => "the server refused the request",
                };
                match code {
                    Some(code) => write!(f, "{what} (HTTP {status}, {code})"),
                    None => write!(f, "{what} (HTTP {status})"),
                }
            }
            Self::Answer(what) => f.write_str(what),
            Self::NoRanges => f.write_str("the server does not support range requests"),
            Self::Redirect(None) => write!(f, "more than {MOST_REDIRECTS} redirects"),
            Self::Redirect(Some(to)) => write!(
                f,
                "redirected to `{to}`, which is not https on a public host; it was not followed"
            ),
            Self::Private => f.write_str(
                "the host has a private address, and was named by a server on the public network",
            ),
            Self::NoHost => f.write_str("no host of this name"),
            Self::Tls(what) => write!(f, "no trusted connection: {what}"),
            Self::Slow => f.write_str("the server sends less than 1 KiB a second"),
            Self::Pause(pause) => write!(
                f,
                "the server's Retry-After is {} s, longer than requests are retried for",
                pause.as_secs()
            ),
            Self::Sign(_, message) => f.write_str(message),
            Self::Transport(kind) => f.write_str(match kind {
                HttpErrorKind::Connect => "no connection to the server",
                HttpErrorKind::Timeout => "the request timed out",
                HttpErrorKind::Decode | HttpErrorKind::Unknown => "the response is not valid HTTP",
                _ => "the connection broke",
            }),
        }
    }
}

impl StdError for Fault {}

/// The diagnostics of one call over all its attempts; travels in a request's extensions.
#[derive(Clone, Debug, Default)]
pub(super) struct Probe(Arc<Mutex<Trace>>);

#[derive(Debug, Default)]
struct Trace {
    attempts: u32,
    etag: Option<String>,
    region: Option<String>,
    fault: Option<Fault>,
    waited: Duration,
}

impl Probe {
    fn with<T>(&self, look: impl FnOnce(&mut Trace) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts an attempt, and returns its number.
    pub(super) fn attempt(&self) -> u32 {
        self.with(|trace| {
            trace.attempts += 1;
            trace.attempts
        })
    }

    pub(super) fn fail(&self, fault: Fault) {
        self.with(|trace| trace.fault = Some(fault));
    }

    /// Records how long a request was retried until it was given up.
    pub(super) fn waited(&self, time: Duration) {
        self.with(|trace| trace.waited = time);
    }

    pub(super) fn fault(&self) -> Option<Fault> {
        self.with(|trace| trace.fault.clone())
    }

    /// Returns the ETag of the first successful response: later attempts must match it.
    pub(super) fn etag(&self) -> Option<String> {
        self.with(|trace| trace.etag.clone())
    }

    pub(super) fn set_etag(&self, etag: &str) {
        // `If-Match` compares strongly, so a weak ETag never matches (RFC 9110, section 13.1.1).
        if !etag.starts_with("W/") {
            self.with(|trace| {
                trace.etag.get_or_insert_with(|| etag.to_owned());
            });
        }
    }

    /// Returns the region of the bucket, if a response stated it.
    pub(super) fn region(&self) -> Option<String> {
        self.with(|trace| trace.region.clone())
    }

    pub(super) fn set_region(&self, region: &str) {
        self.with(|trace| trace.region = Some(region.to_owned()));
    }

    /// Replaces the source of `err`, which may hold a URL or a body, by the recorded fault.
    pub(super) fn explain(&self, err: object_store::Error) -> object_store::Error {
        use object_store::Error as E;

        let (fault, attempts, waited) =
            self.with(|trace| (trace.fault.clone(), trace.attempts, trace.waited));
        let source: Box<dyn StdError + Send + Sync> = match fault {
            Some(fault) => Box::new(Tried {
                fault,
                attempts,
                waited,
            }),
            None => Box::new(Scrubbed(scrub(&err.to_string()))),
        };
        match err {
            E::NotFound { path, .. } => E::NotFound { path, source },
            E::PermissionDenied { path, .. } => E::PermissionDenied { path, source },
            E::Unauthenticated { path, .. } => E::Unauthenticated { path, source },
            E::Precondition { path, .. } => E::Precondition { path, source },
            E::NotModified { path, .. } => E::NotModified { path, source },
            E::NotSupported { .. } => E::NotSupported { source },
            E::Generic { store, .. } => E::Generic { store, source },
            other => other,
        }
    }
}

/// A fault, and the number of attempts.
#[derive(Debug)]
struct Tried {
    fault: Fault,
    attempts: u32,
    /// How long it was retried.
    waited: Duration,
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.fault)?;
        match self.attempts {
            0 | 1 => {}
            n => write!(f, ", after {n} attempts")?,
        }
        match self.waited.as_secs() {
            0..10 => Ok(()),
            _ => write!(f, " in {}", words(self.waited)),
        }
    }
}

impl StdError for Tried {}

#[derive(Debug)]
struct Scrubbed(String);

impl fmt::Display for Scrubbed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Scrubbed {}

/// Turns an error of a store into ours, naming `location` and no secret.
pub(crate) fn error(err: impl Borrow<object_store::Error>, location: &Location) -> Error {
    use object_store::Error as E;

    let err = err.borrow();
    if let Some(ours) = source_of::<Error>(err) {
        return Error::new(ours.kind(), ours.message()).at(location);
    }
    if let Some(tried) = source_of::<Tried>(err) {
        return Error::new(tried.fault.kind(), tried.to_string()).at(location);
    }
    if let Some(fault) = source_of::<Fault>(err) {
        return Error::new(fault.kind(), fault.to_string()).at(location);
    }
    if let Some(err) = source_of::<io::Error>(err) {
        return of_io(err).at(location);
    }
    let (kind, message) = match err {
        E::NotFound { .. } => (ErrorKind::NotFound, "no such file".to_owned()),
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => {
            (ErrorKind::Denied, "the store refused access".to_owned())
        }
        E::Precondition { .. } => (
            ErrorKind::Changed,
            "the file was replaced while it was read".to_owned(),
        ),
        E::NotSupported { .. } | E::NotImplemented { .. } => {
            (ErrorKind::Unsupported, scrub(&err.to_string()))
        }
        E::InvalidPath { .. } | E::UnknownConfigurationKey { .. } => {
            (ErrorKind::InvalidInput, scrub(&err.to_string()))
        }
        _ => {
            let text = scrub(&err.to_string());
            let kind = if is_range_error(&text) {
                ErrorKind::Corrupt
            } else {
                ErrorKind::Unavailable
            };
            (kind, text)
        }
    };
    Error::new(kind, message).at(location)
}

/// Returns the HTTP status that made a store fail, if it was one.
pub(crate) fn status_of(err: &object_store::Error) -> Option<u16> {
    match &source_of::<Tried>(err)?.fault {
        Fault::Status { status, .. } => Some(*status),
        _ => None,
    }
}

/// Returns the error kind and message of an HTTP status, for requests outside any store.
pub(crate) fn of_status(status: http::StatusCode) -> (ErrorKind, String) {
    let fault = Fault::Status {
        status: status.as_u16(),
        code: None,
    };
    (fault.kind(), fault.to_string())
}

/// Turns an error of the file system into ours.
pub(crate) fn of_io(err: &io::Error) -> Error {
    let (kind, message) = match err.kind() {
        io::ErrorKind::NotFound => (ErrorKind::NotFound, "no such file".to_owned()),
        io::ErrorKind::PermissionDenied => (ErrorKind::Denied, "permission denied".to_owned()),
        io::ErrorKind::ReadOnlyFilesystem => {
            (ErrorKind::Denied, "the file system is read-only".to_owned())
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => (
            ErrorKind::Unavailable,
            "no space left on the disk".to_owned(),
        ),
        io::ErrorKind::InvalidData => (ErrorKind::Corrupt, err.to_string()),
        io::ErrorKind::UnexpectedEof => (ErrorKind::Corrupt, "the file ends early".to_owned()),
        io::ErrorKind::NotADirectory => (
            ErrorKind::InvalidInput,
            "a part of the path is not a directory".to_owned(),
        ),
        io::ErrorKind::IsADirectory => (
            ErrorKind::InvalidInput,
            "a directory, expected a file".to_owned(),
        ),
        _ => (ErrorKind::Unavailable, err.to_string()),
    };
    Error::new(kind, message)
}

/// Checks that a path is a file whose bytes can be read at any offset.
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] for a directory, a named pipe, a socket or a device of characters: to open a pipe would
/// wait for its other end.
pub(crate) fn check_file(meta: &std::fs::Metadata) -> Result<(), Error> {
    if meta.is_dir() {
        return Err(of_io(&io::ErrorKind::IsADirectory.into()));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let kind = meta.file_type();
        let what = if kind.is_fifo() {
            "a named pipe"
        } else if kind.is_socket() {
            "a socket"
        } else if kind.is_char_device() {
            "a device"
        } else {
            return Ok(());
        };
        let message = format!("{what}, expected a file");
        Err(Error::new(ErrorKind::InvalidInput, message))
    }
    #[cfg(not(unix))]
    Ok(())
}

fn source_of<T: StdError + 'static>(err: &object_store::Error) -> Option<&T> {
    let mut source: Option<&(dyn StdError + 'static)> = Some(err);
    while let Some(err) = source {
        if let Some(found) = err.downcast_ref::<T>() {
            return Some(found);
        }
        source = err.source();
    }
    None
}

/// Returns true for object_store's errors of a range past the end of a file. They come as `Generic`
/// errors, so the text decides.
fn is_range_error(text: &str) -> bool {
    text.contains("Requested") || text.contains("range") || text.contains("Range")
}

/// Removes query strings and user names from the URLs in `text`.
fn scrub(text: &str) -> String {
    text.split(' ')
        .map(|word| match word.contains("://") || word.contains('?') {
            true => redact(word),
            false => word.to_owned(),
        })
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANARY: &str = "CANARYSECRET";

    fn location() -> Location {
        Location::parse(&format!("https://h/x.tif?sig={CANARY}")).unwrap()
    }

    #[test]
    fn a_status_becomes_the_kind_a_caller_acts_on() {
        for (status, code, kind) in [
            (404, None, ErrorKind::NotFound),
            (403, Some("AccessDenied"), ErrorKind::Denied),
            (400, Some("ExpiredToken"), ErrorKind::Denied),
            (409, Some("PublicAccessNotPermitted"), ErrorKind::Denied),
            (429, None, ErrorKind::Unavailable),
            (503, Some("SlowDown"), ErrorKind::Unavailable),
            (412, None, ErrorKind::Changed),
            (416, None, ErrorKind::Corrupt),
        ] {
            let code = code.map(str::to_owned);
            assert_eq!(Fault::Status { status, code }.kind(), kind, "{status}");
        }
    }

    #[test]
    fn a_message_of_a_store_loses_its_query_strings() {
        let err = object_store::Error::Generic {
            store: "HTTP",
            source: format!("GET https://u:{CANARY}@h/x?sig={CANARY} failed").into(),
        };
        let ours = error(err, &location());
        assert!(!format!("{ours} {ours:?}").contains(CANARY));
        assert!(ours.to_string().starts_with("https://h/x.tif: "));
    }

    #[test]
    fn a_probe_tells_how_often_it_was_tried() {
        let probe = Probe::default();
        probe.attempt();
        probe.attempt();
        probe.fail(Fault::Status {
            status: 503,
            code: Some("SlowDown".to_owned()),
        });
        let err = probe.explain(object_store::Error::Generic {
            store: "S3",
            source: format!("https://h/?X-Amz-Signature={CANARY}").into(),
        });
        assert!(!format!("{err} {err:?}").contains(CANARY));
        let ours = error(err, &location());
        assert_eq!(ours.kind(), ErrorKind::Unavailable);
        assert_eq!(
            ours.message(),
            "the server is overloaded (HTTP 503, SlowDown), after 2 attempts"
        );
    }

    #[test]
    fn a_full_disk_says_so() {
        let err = of_io(&io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(err.message(), "no space left on the disk");
    }
}
