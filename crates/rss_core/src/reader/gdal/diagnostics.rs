//! What GDAL says of a failure, and what it means to a caller.
//!
//! GDAL reports errors through a handler that belongs to a thread. Ours keeps the messages of the
//! call that runs; they may quote a signed URL, so they are redacted before anyone sees them.

#![expect(unsafe_code, reason = "GDAL's errors go through C functions")]

use std::{
    cell::RefCell,
    ffi::{CStr, CString, c_char, c_int},
};

use crate::error::{Error, ErrorKind};

/// Messages kept of one call; a broken file can bring one per tile.
const MOST_MESSAGES: usize = 32;
/// GDAL's number for errors of reading files; see `cpl_error.h`.
const FILE_IO: gdal_sys::CPLErrorNum = 3;
/// What one message may be long.
const MOST_CHARS: usize = 300;

/// Begins a message of ours, which GDAL carries back: the kind, the message and the location follow.
const OURS: &str = "rss_core: ";
/// The kinds that a message of ours names.
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
    static SAID: RefCell<Vec<Message>> = const { RefCell::new(Vec::new()) };
}

/// One message of GDAL.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Message {
    is_failure: bool,
    number: c_int,
    text: String,
}

/// Keeps GDAL's messages on this thread from now on, instead of printing them.
pub(super) fn listen() {
    unsafe extern "C" fn handler(
        class: gdal_sys::CPLErr::Type,
        number: gdal_sys::CPLErrorNum,
        text: *const c_char,
    ) {
        if text.is_null() || class < gdal_sys::CPLErr::CE_Warning {
            return;
        }
        // SAFETY: GDAL passes a text that ends with NUL and lives as long as this call.
        let text = unsafe { CStr::from_ptr(text) };
        let message = Message {
            is_failure: class >= gdal_sys::CPLErr::CE_Failure,
            number,
            text: redact_all(&text.to_string_lossy()),
        };
        SAID.with_borrow_mut(|said| {
            if said.len() < MOST_MESSAGES {
                said.push(message);
            }
        });
    }
    // SAFETY: the handler is a plain function and takes no data; it stays installed for the life of
    // this thread.
    unsafe { gdal_sys::CPLPushErrorHandlerEx(Some(handler), std::ptr::null_mut()) };
}

/// Makes an error of ours one of GDAL's, on this thread: whoever listens there gets it.
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

/// Reads back a message of [`tell`]'s.
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

/// Forgets what was said before this call.
pub(super) fn forget() {
    SAID.with_borrow_mut(Vec::clear);
}

/// Returns the error that the messages since [`forget`] describe; none if nothing failed.
pub(super) fn failure(doing: Doing) -> Option<Error> {
    SAID.with_borrow(|said| {
        said.iter()
            .any(|message| message.is_failure)
            .then(|| understand(said, doing))
    })
}

/// Returns the error that the messages since [`forget`] describe.
pub(super) fn error(doing: Doing) -> Error {
    SAID.with_borrow(|said| understand(said, doing))
}

/// What GDAL was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Open,
    Read,
    Write,
}

fn understand(said: &[Message], doing: Doing) -> Error {
    if let Some(err) = said.iter().find_map(|message| ours(&message.text)) {
        return err;
    }
    let status = said.iter().find_map(|message| http_status(&message.text));
    let failures = said.iter().filter(|message| message.is_failure);
    // The first failure is the cause; later ones say what it led to.
    let cause = failures
        .clone()
        .next()
        .or(said.last())
        .map(|message| message.text.as_str())
        .unwrap_or("no reason given");
    let number = failures
        .map(|message| message.number)
        .find(|number| (11..=17).contains(number));
    let has = |part: &str| said.iter().any(|message| message.text.contains(part));
    let full_disk = doing == Doing::Write
        && (has("No space left") || has("disk space") || has("File too large"));
    // GDAL numbers its errors of object stores 11 to 17; see `cpl_error.h`.
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
            "no answer from the server".to_owned(),
        ),
        _ if doing == Doing::Open && has("No such file or directory") => {
            (ErrorKind::NotFound, "no such file".to_owned())
        }
        _ if doing == Doing::Open && has("Permission denied") => {
            (ErrorKind::Denied, "the file may not be read".to_owned())
        }
        _ if doing == Doing::Open && has("not recognized as") => (
            ErrorKind::Corrupt,
            "not a raster that GDAL knows".to_owned(),
        ),
        _ if doing == Doing::Write && has("Permission denied") => {
            (ErrorKind::Denied, "the file may not be written".to_owned())
        }
        _ if has("not supported")
            || has("Unsupported JPEG data")
            || has("not allowed for JPEG")
            || has("Cannot open TIFF file due to missing codec") =>
        {
            (ErrorKind::Unsupported, "GDAL cannot read it".to_owned())
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

/// Finds the HTTP status that a message quotes, in the forms that GDAL's versions use.
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

/// Cuts query strings and user names out of every URL and VSI path in a message, and makes it one
/// line of a sane length.
fn redact_all(text: &str) -> String {
    let mut out = String::new();
    let mut is_secret = false;
    let mut word = String::new();
    let flush = |word: &mut String, out: &mut String| {
        // A user and a password stand between `://` and `@`.
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
            let said = [Message {
                is_failure: true,
                number: 1,
                text: text.to_owned(),
            }];
            assert_eq!(understand(&said, Doing::Read).kind(), kind, "{text}");
        }
    }
}
