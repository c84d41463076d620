//! The objects over plain HTTP: `GET` and `HEAD`, one range, conditions; and blobs that want a token.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt, Full};

use crate::{
    front::{BoxBody, bare},
    objects::Objects,
};

/// Path prefix of the blobs that need a token.
const SAS_PREFIX: &str = "sas/";

pub(crate) fn answer<B>(objects: &Objects, request: &http::Request<B>) -> http::Response<BoxBody> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return bare(StatusCode::METHOD_NOT_ALLOWED);
    }
    let path = decode(request.uri().path().trim_start_matches('/'));
    let path = match path.strip_prefix(SAS_PREFIX) {
        Some(_) if !is_signed(request.uri().query().unwrap_or_default()) => return denied(),
        Some(path) => path.to_owned(),
        None => path,
    };
    let object = path
        .split_once('/')
        .and_then(|(bucket, key)| objects.get(bucket, key));
    let Some(object) = object else {
        return bare(StatusCode::NOT_FOUND);
    };
    let header = |name| {
        request
            .headers()
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let etag = format!("\"{}\"", object.etag);
    if header(header::IF_MATCH).is_some_and(|wanted| wanted != "*" && wanted != etag) {
        return bare(StatusCode::PRECONDITION_FAILED);
    }
    if header(header::IF_NONE_MATCH).is_some_and(|known| known == "*" || known == etag) {
        return bare(StatusCode::NOT_MODIFIED);
    }
    let total = object.bytes.len();
    let range = header(header::RANGE).and_then(|range| parse_range(range, total));
    let (status, bytes, content_range) = match range {
        None => (StatusCode::OK, object.bytes, None),
        Some(Err(())) => {
            let mut answer = bare(StatusCode::RANGE_NOT_SATISFIABLE);
            set(
                &mut answer,
                header::CONTENT_RANGE,
                &format!("bytes */{total}"),
            );
            return answer;
        }
        Some(Ok((start, end))) => {
            let text = format!("bytes {start}-{}/{total}", end - 1);
            (
                StatusCode::PARTIAL_CONTENT,
                object.bytes.slice(start..end),
                Some(text),
            )
        }
    };
    let length = bytes.len();
    let body = if request.method() == Method::HEAD {
        Bytes::new()
    } else {
        bytes
    };
    let mut answer = http::Response::new(
        Full::new(body)
            .map_err(|never| match never {})
            .boxed_unsync(),
    );
    *answer.status_mut() = status;
    set(&mut answer, header::ACCEPT_RANGES, "bytes");
    set(&mut answer, header::CONTENT_TYPE, "image/tiff");
    set(&mut answer, header::CONTENT_LENGTH, &length.to_string());
    set(&mut answer, header::ETAG, &etag);
    set(
        &mut answer,
        header::LAST_MODIFIED,
        &httpdate::fmt_http_date(object.modified),
    );
    if let Some(text) = content_range {
        set(&mut answer, header::CONTENT_RANGE, &text);
    }
    answer
}

/// Returns start and end (exclusive) of a range; `Err` where nothing of it exists, none where it is
/// no single byte range and so is ignored.
fn parse_range(text: &str, total: usize) -> Option<Result<(usize, usize), ()>> {
    let (first, last) = text.strip_prefix("bytes=")?.split_once('-')?;
    let (start, end) = match (first.parse::<usize>(), last.parse::<usize>()) {
        (Ok(first), Ok(last)) if last >= first => (first, total.min(last.saturating_add(1))),
        (Ok(first), Err(_)) if last.is_empty() => (first, total),
        (Err(_), Ok(suffix)) if first.is_empty() => (total.saturating_sub(suffix), total),
        _ => return None,
    };
    Some(if start < end {
        Ok((start, end))
    } else {
        Err(())
    })
}

/// Returns the token that blobs accept until `expiry`.
pub(crate) fn token(expiry: SystemTime) -> String {
    let seconds = expiry
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .as_secs();
    let date = chrono::DateTime::from_timestamp(i64::try_from(seconds).unwrap_or(0), 0)
        .map(|date| date.format("%Y-%m-%dT%H%%3A%M%%3A%SZ").to_string())
        .unwrap_or_default();
    format!("st=2020-01-01T00%3A00%3A00Z&se={date}&sp=rl&sv=2024-05-04&sr=c&sig=testbed{seconds}")
}

fn is_signed(query: &str) -> bool {
    let expiry = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("sig=testbed")?.parse().ok());
    expiry.is_some_and(|seconds| UNIX_EPOCH + Duration::from_secs(seconds) > SystemTime::now())
}

fn denied() -> http::Response<BoxBody> {
    let body = "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>AuthenticationFailed</Code>\
                <Message>Server failed to authenticate the request.</Message></Error>";
    let body = Full::new(Bytes::from_static(body.as_bytes()));
    let mut answer = http::Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = StatusCode::FORBIDDEN;
    set(&mut answer, header::CONTENT_TYPE, "application/xml");
    answer
}

fn set<B>(answer: &mut http::Response<B>, name: header::HeaderName, value: &str) {
    if let Ok(value) = value.parse() {
        answer.headers_mut().insert(name, value);
    }
}

fn decode(path: &str) -> String {
    let url = url::Url::parse("http://h/").ok();
    let decoded = url.map(|_| {
        url::form_urlencoded::parse(
            format!("p={}", path.replace('+', "%2B").replace('&', "%26")).as_bytes(),
        )
        .next()
        .map(|(_, value)| value.into_owned())
        .unwrap_or_default()
    });
    decoded.unwrap_or_default()
}
