//! What a store's error means to a caller.

use std::{error::Error as StdError, io};

use http::StatusCode;
use object_store::client::{HttpError, HttpErrorKind};

use crate::{
    error::{Error, ErrorKind},
    location::Location,
};

/// Maps a store's error. The text of the original is not kept: it may hold a signed URL.
pub(crate) fn error(err: &object_store::Error, location: &Location) -> Error {
    let (kind, message) = match err {
        object_store::Error::NotFound { .. } => (ErrorKind::NotFound, "not found".to_owned()),
        object_store::Error::PermissionDenied { .. } => {
            (ErrorKind::Denied, "access denied (403)".to_owned())
        }
        object_store::Error::Unauthenticated { .. } => (
            ErrorKind::Denied,
            "access needs credentials (401)".to_owned(),
        ),
        object_store::Error::Precondition { .. } => (
            ErrorKind::Corrupt,
            "the object changed while it was read".to_owned(),
        ),
        object_store::Error::InvalidPath { .. } => {
            (ErrorKind::InvalidInput, "not a valid object key".to_owned())
        }
        object_store::Error::NotSupported { .. } | object_store::Error::NotImplemented { .. } => (
            ErrorKind::Unsupported,
            "the store cannot do this".to_owned(),
        ),
        other => generic(other),
    };
    Error::new(kind, message).at(location)
}

/// Tells the kinds apart that `object_store` calls generic, by what lies beneath.
fn generic(err: &object_store::Error) -> (ErrorKind, String) {
    let mut cause: Option<&(dyn StdError + 'static)> = err.source();
    while let Some(err) = cause {
        if let Some(err) = err.downcast_ref::<HttpError>() {
            return of_http(err);
        }
        if let Some(err) = err.downcast_ref::<io::Error>() {
            return match err.kind() {
                io::ErrorKind::NotFound => (ErrorKind::NotFound, "not found".to_owned()),
                io::ErrorKind::PermissionDenied => {
                    (ErrorKind::Denied, "no permission to read".to_owned())
                }
                kind => (ErrorKind::Unavailable, format!("cannot be read: {kind}")),
            };
        }
        cause = err.source();
    }
    // `object_store` keeps its error of a status private: the number stands in its text alone.
    let text = err.to_string();
    let status = text
        .split_once("status code: ")
        .and_then(|(_, rest)| rest.get(..3));
    if let Some(status) = status.and_then(|code| StatusCode::from_bytes(code.as_bytes()).ok()) {
        return of_status(status);
    }
    if text.contains("redirect without LOCATION") {
        let message = "redirected without an address: the bucket is in another region";
        return (ErrorKind::Unavailable, message.to_owned());
    }
    if text.contains("Server returned error response") {
        let message = "the server answered with an error in place of data";
        return (ErrorKind::Unavailable, message.to_owned());
    }
    // What remains is an answer that does not fit the request.
    let message = if text.contains("non-partial") {
        "the server ignored the range and sent the whole object"
    } else if text.contains("Requested") || text.contains("Content-Range") {
        "the server answered with another range than the one asked for"
    } else {
        "the request failed"
    };
    (ErrorKind::Corrupt, message.to_owned())
}

/// Maps a status that is an error.
pub(crate) fn of_status(status: StatusCode) -> (ErrorKind, String) {
    let kind = match status.as_u16() {
        404 | 410 => ErrorKind::NotFound,
        401 | 403 | 407 | 451 => ErrorKind::Denied,
        408 | 425 | 429 | 500.. => ErrorKind::Unavailable,
        412 | 416 => ErrorKind::Corrupt,
        _ => ErrorKind::InvalidInput,
    };
    let reason = match status.as_u16() {
        412 => "the object changed while it was read",
        416 => "the range lies past the end of the object",
        429 => "too many requests",
        _ => status.canonical_reason().unwrap_or("the request failed"),
    };
    (
        kind,
        format!("{} ({})", reason.to_lowercase(), status.as_u16()),
    )
}

fn of_http(err: &HttpError) -> (ErrorKind, String) {
    let ours = err
        .source()
        .and_then(|source| source.downcast_ref::<Error>());
    if let Some(ours) = ours {
        return (ours.kind(), ours.to_string());
    }
    let (kind, message) = match err.kind() {
        HttpErrorKind::Connect => (ErrorKind::Unavailable, "no connection"),
        HttpErrorKind::Timeout => (ErrorKind::Unavailable, "no answer in time"),
        HttpErrorKind::Interrupted => (ErrorKind::Unavailable, "the answer broke off"),
        HttpErrorKind::Decode => (ErrorKind::Corrupt, "the answer is not valid HTTP"),
        _ => (ErrorKind::Unavailable, "the request failed"),
    };
    (kind, message.to_owned())
}
