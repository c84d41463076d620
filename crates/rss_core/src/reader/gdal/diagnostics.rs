//! GDAL's error messages, and the error kinds they stand for.
//!
//! GDAL reports errors through a handler that belongs to a thread. Ours collects the messages of the
//! current call. They may quote a signed URL, so they are redacted as they arrive.

#![expect(unsafe_code, reason = "GDAL's errors go through C functions")]

use std::{
    cell::RefCell,
    ffi::{CStr, CString, c_char, c_int},
    panic::catch_unwind,
};

use crate::error::{Error, ErrorKind};

/// Messages collected of one call; a damaged file can cause one per tile.
const MOST_MESSAGES: usize = 32;
/// `CPLE_FileIO` of `cpl_error.h`.
const FILE_IO: gdal_sys::CPLErrorNum = 3;
/// Characters of a message that are passed on.
const MOST_CHARS: usize = 300;

/// The prefix of an error of this library that travels through GDAL as text: kind, message and location
/// follow.
const OURS: &str = "rss_core: ";
/// The kinds that such a text may name.
const KINDS: [ErrorKind; 7] = [
    ErrorKind::NotFound,
    ErrorKind::Denied,
    ErrorKind::Unavailable,
    ErrorKind::Corrupt,
    ErrorKind::Changed,
    ErrorKind::Unsupported,
    ErrorKind::InvalidInput,
];

thread_local! {
    static MESSAGES: RefCell<Vec<Message>> = const { RefCell::new(Vec::new()) };
}

/// One message of GDAL.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Message {
    is_failure: bool,
    number: c_int,
    text: String,
}

/// Installs the handler on this thread: GDAL's messages are collected instead of printed.
pub(super) fn listen() {
    unsafe extern "C" fn handler(
        class: gdal_sys::CPLErr::Type,
        number: gdal_sys::CPLErrorNum,
        text: *const c_char,
    ) {
        if text.is_null() || class < gdal_sys::CPLErr::CE_Warning {
            return;
        }
        // SAFETY: GDAL passes a NUL-terminated text that is valid during this call.
        let text = unsafe { CStr::from_ptr(text) };
        // A panic must not unwind through C: the message is lost.
        let _ = catch_unwind(|| {
            let message = Message {
                is_failure: class >= gdal_sys::CPLErr::CE_Failure,
                number,
                text: redact_all(&text.to_string_lossy()),
            };
            MESSAGES.with_borrow_mut(|messages| {
                if messages.len() < MOST_MESSAGES {
                    messages.push(message);
                }
            });
        });
    }
    // SAFETY: the handler is a plain function and takes no data; it stays installed for the life of
    // this thread.
    unsafe { gdal_sys::CPLPushErrorHandlerEx(Some(handler), std::ptr::null_mut()) };
}

/// Raises an error of this library as one of GDAL's on this thread. A callback of `/vsirss/` has no other
/// channel to the call that waits for GDAL.
pub(super) fn tell(err: &Error) {
    let location = err.location().map(|location| format!(" [{location}]"));
    let text = format!(
        "{OURS}{:?}: {}{}",
        err.kind(),
        err.message(),
        location.unwrap_or_default()
    );
    let Ok(text) = CString::new(text.replace('\0', "?")) else {
        return;
    };
    // SAFETY: both texts end with NUL, and GDAL copies what it keeps; the first takes one text.
    unsafe {
        gdal_sys::CPLError(
            gdal_sys::CPLErr::CE_Failure,
            FILE_IO,
            c"%s".as_ptr(),
            text.as_ptr(),
        );
    }
}

/// Parses a message that [`tell`] raised.
fn ours(text: &str) -> Option<Error> {
    let (_, text) = text.split_once(OURS)?;
    let (kind, text) = text.split_once(": ")?;
    let kind = KINDS
        .into_iter()
        .find(|known| format!("{known:?}") == kind)?;
    let named = text
        .strip_suffix(']')
        .and_then(|text| text.rsplit_once(" ["));
    Some(match named {
        Some((message, location)) => Error::new(kind, message).at(location),
        None => Error::new(kind, text),
    })
}

/// Clears the messages of earlier calls.
pub(super) fn forget() {
    MESSAGES.with_borrow_mut(Vec::clear);
}

/// Returns the error that the messages since [`forget`] describe; none if nothing failed.
pub(super) fn failure(doing: Doing) -> Option<Error> {
    MESSAGES.with_borrow(|messages| {
        messages
            .iter()
            .any(|message| message.is_failure)
            .then(|| understand(messages, doing))
    })
}

/// Returns the error that the messages since [`forget`] describe.
pub(super) fn error(doing: Doing) -> Error {
    MESSAGES.with_borrow(|messages| understand(messages, doing))
}

/// The operation of a GDAL call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Open,
    Read,
    Write,
}

fn understand(messages: &[Message], doing: Doing) -> Error {
    // An error of our own stores is exact; GDAL's messages about it are only its consequences.
    if let Some(err) = messages.iter().find_map(|message| ours(&message.text)) {
        return err;
    }
    let status = messages
        .iter()
        .find_map(|message| http_status(&message.text));
    let failures = messages.iter().filter(|message| message.is_failure);
    // The first failure is the cause; later ones are its consequences.
    let cause = failures
        .clone()
        .next()
        .or(messages.last())
        .map(|message| message.text.as_str())
        .unwrap_or("no reason given");
    let number = failures
        .map(|message| message.number)
        .find(|number| (11..=17).contains(number));
    let has = |part: &str| messages.iter().any(|message| message.text.contains(part));
    let full_disk = doing == Doing::Write
        && (has("No space left") || has("disk space") || has("File too large"));
    // GDAL numbers its errors of object stores 11 (CPLE_HttpResponse) to 17; see `cpl_error.h`. An HTTP
    // status in the text is more exact, so it decides first. The texts are those of GDAL's drivers and of
    // the system: GDAL has one number, CPLE_AppDefined, for most of them.
    let (kind, what) = match (status, number) {
        _ if full_disk => (
            ErrorKind::Unavailable,
            "no space left on the device".to_owned(),
        ),
        (Some(404 | 410), _) => (ErrorKind::NotFound, named("no such file", status)),
        (Some(401 | 403), _) => (
            ErrorKind::Denied,
            named("the server refused access", status),
        ),
        (Some(408 | 429 | 500..), _) => {
            (ErrorKind::Unavailable, named("the server failed", status))
        }
        (None, Some(12 | 13)) => (ErrorKind::NotFound, "no such file".to_owned()),
        (None, Some(14..=16)) => (ErrorKind::Denied, "the server refused access".to_owned()),
        _ if has("CURL error") || has("Could not resolve host") || has("timed out") => (
            ErrorKind::Unavailable,
            "no response from the server".to_owned(),
        ),
        _ if doing == Doing::Open && has("No such file or directory") => {
            (ErrorKind::NotFound, "no such file".to_owned())
        }
        _ if doing == Doing::Open && has("Permission denied") => (
            ErrorKind::Denied,
            "no permission to read the file".to_owned(),
        ),
        _ if doing == Doing::Open && has("not recognized as") => (
            ErrorKind::Corrupt,
            "not a raster format that GDAL reads".to_owned(),
        ),
        _ if doing == Doing::Write && has("Permission denied") => (
            ErrorKind::Denied,
            "no permission to write the file".to_owned(),
        ),
        _ if has("not supported")
            || has("Unsupported JPEG data")
            || has("not allowed for JPEG")
            || has("Cannot open TIFF file due to missing codec") =>
        {
            (
                ErrorKind::Unsupported,
                "GDAL does not support it".to_owned(),
            )
        }
        _ => (ErrorKind::Corrupt, "GDAL could not read it".to_owned()),
    };
    let what = match doing {
        Doing::Write if kind == ErrorKind::Corrupt => "GDAL could not translate it".to_owned(),
        _ => what,
    };
    Error::new(kind, format!("{what} ({cause})"))
}

fn named(what: &str, status: Option<u16>) -> String {
    match status {
        Some(status) => format!("{what}, HTTP {status}"),
        None => what.to_owned(),
    }
}

/// Returns the HTTP status that a message quotes, in the forms of GDAL's versions.
fn http_status(text: &str) -> Option<u16> {
    let lower = text.to_ascii_lowercase();
    [
        "response_code=",
        "response code: ",
        "http error code : ",
        "http error code: ",
    ]
    .iter()
    .find_map(|mark| {
        let (_, rest) = lower.split_once(mark)?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok().filter(|status| *status >= 300)
    })
}

/// Removes query strings and user names from every URL and VSI path in a message, and makes it one line
/// of at most [`MOST_CHARS`] characters.
fn redact_all(text: &str) -> String {
    let mut out = String::new();
    let mut is_secret = false;
    let mut word = String::new();
    let flush = |word: &mut String, out: &mut String| {
        // User name and password are between `://` and `@`.
        if let Some((head, rest)) = word.split_once("://")
            && let Some((user, tail)) = rest.split_once('@')
            && !user.contains('/')
        {
            *word = format!("{head}://{tail}");
        }
        out.push_str(word);
        word.clear();
    };
    for c in text.chars() {
        let ends = c.is_whitespace() || matches!(c, '\'' | '"' | '`' | '<' | '>' | '(' | ')' | ',');
        if ends {
            flush(&mut word, &mut out);
            is_secret = false;
            out.push(if c.is_control() { ' ' } else { c });
        } else if !is_secret {
            // A `?` after a slash begins a query string: the rest of the word may be a signature.
            if c == '?' && word.contains('/') {
                is_secret = true;
            } else {
                word.push(if c.is_control() { '?' } else { c });
            }
        }
    }
    flush(&mut word, &mut out);
    out.chars().take(MOST_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_cut_out_of_a_message() {
        assert_eq!(
            redact_all("`/vsicurl/https://u:p@h/x.tif?sig=SECRET&y' does not exist\nin it"),
            "`/vsicurl/https://h/x.tif' does not exist in it"
        );
        assert_eq!(redact_all("is it? yes"), "is it? yes");
    }

    #[test]
    fn an_error_of_ours_comes_back_whole() {
        for kind in KINDS {
            listen();
            forget();
            tell(&Error::new(kind, "100 % of [it]: gone").at("s3://b/k x.tif"));
            let err = error(Doing::Open);
            assert_eq!(err.kind(), kind);
            assert_eq!(err.message(), "100 % of [it]: gone");
            assert_eq!(err.location(), Some("s3://b/k x.tif"));
        }
    }

    #[test]
    fn a_status_tells_the_kind() {
        for (text, kind) in [
            ("HTTP response code: 404", ErrorKind::NotFound),
            ("HTTP response code: 403", ErrorKind::Denied),
            ("HTTP error code : 401", ErrorKind::Denied),
            (
                "Request for 1-2 failed with response_code=503",
                ErrorKind::Unavailable,
            ),
            ("TIFFReadDirectory: bad", ErrorKind::Corrupt),
        ] {
            let messages = [Message {
                is_failure: true,
                number: 1,
                text: text.to_owned(),
            }];
            assert_eq!(understand(&messages, Doing::Read).kind(), kind, "{text}");
        }
    }
}
