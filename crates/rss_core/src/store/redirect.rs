//! Where a redirect may lead, and what goes along.

use http::{
    HeaderMap, Method, StatusCode, Uri,
    header::{
        ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderName, IF_MATCH, IF_MODIFIED_SINCE,
        IF_NONE_MATCH, IF_UNMODIFIED_SINCE, LOCATION, RANGE, USER_AGENT,
    },
};
use url::Url;

use super::fault::Fault;
use crate::location::{is_private, redact};

/// Headers that go to another origin: what is asked for, and nothing that says who asks. A list of what may go, since a
/// list of secrets would never be complete.
const HARMLESS: [HeaderName; 9] = [
    ACCEPT,
    ACCEPT_ENCODING,
    CONTENT_TYPE,
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE,
    RANGE,
    USER_AGENT,
];

/// A redirect that is followed.
#[derive(Debug)]
pub(super) struct Redirect {
    pub(super) to: Uri,
    /// True if scheme, host and port stay.
    pub(super) same_origin: bool,
}

/// Returns where a response leads; none if it is no redirect, or one without a target (as S3's to another region).
///
/// Never from `https` to another scheme, never from a public to a private host by its address; what a name resolves to is
/// checked where it is connected to. What has a body (a search) stays on its server, or goes on by `https`.
///
/// # Errors
///
/// [`Fault::Redirect`] for another target.
pub(super) fn redirect(
    method: &Method,
    from: &Uri,
    from_private: bool,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Option<Redirect>, Fault> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = headers.get(LOCATION) else {
        return Ok(None);
    };
    let wrong = |to: &str| Fault::Redirect(Some(redact(to)));
    let from: Url = from.to_string().parse().map_err(|_| wrong(""))?;
    let text = location.to_str().map_err(|_| wrong(""))?;
    let mut to = from.join(text).map_err(|_| wrong(text))?;
    to.set_fragment(None);
    let same_origin = to.origin() == from.origin();
    let has_body = !matches!(*method, Method::GET | Method::HEAD);
    let is_allowed = match (from.scheme(), to.scheme()) {
        (_, "https") => true,
        ("http", "http") => same_origin || !has_body,
        _ => false,
    } && (same_origin || from_private || !is_private(&to));
    if !is_allowed {
        return Err(wrong(to.as_str()));
    }
    let to = to.as_str().parse().map_err(|_| wrong(text))?;
    Ok(Some(Redirect { to, same_origin }))
}

/// Removes what another origin must not see.
pub(super) fn keep_harmless(headers: &mut HeaderMap) {
    let kept: HeaderMap = headers
        .iter()
        .filter(|(name, _)| HARMLESS.contains(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    *headers = kept;
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn to(method: &Method, from: &str, from_private: bool, to: &str) -> Option<Redirect> {
        let mut headers = HeaderMap::new();
        headers.insert(LOCATION, HeaderValue::from_str(to).unwrap());
        let from = from.parse().unwrap();
        let status = StatusCode::TEMPORARY_REDIRECT;
        redirect(method, &from, from_private, status, &headers)
            .ok()
            .flatten()
    }

    #[test]
    fn a_public_server_leads_to_public_servers_by_https() {
        let get = |place| to(&Method::GET, "https://h.example/a?sig=1", false, place);
        assert_eq!(get("/b").unwrap().to, "https://h.example/b");
        assert!(get("/b").unwrap().same_origin);
        assert!(!get("https://cdn.example/b").unwrap().same_origin);
        assert!(!get("https://h.example:8443/b").unwrap().same_origin);
        for place in [
            "http://h.example/b",
            "https://127.0.0.1/b",
            "https://169.254.169.254/latest",
            "https://[::ffff:10.0.0.1]/b",
            "https://localhost/b",
            "file:///etc/passwd",
        ] {
            assert!(get(place).is_none(), "{place}");
        }
        let inside = |place| to(&Method::GET, "https://intern.example/a", true, place);
        assert!(inside("https://10.0.0.1/b").is_some());
    }

    #[test]
    fn a_body_stays_on_its_server_or_goes_by_https() {
        let post = |place| to(&Method::POST, "http://127.0.0.1:1/s", true, place);
        assert!(post("/v2/s").is_some());
        assert!(post("http://127.0.0.1:2/s").is_none());
        assert!(post("https://127.0.0.1:2/s").is_some());
        let get = to(
            &Method::GET,
            "http://127.0.0.1:1/s",
            true,
            "http://127.0.0.1:2/s",
        );
        assert!(get.is_some());
    }

    #[test]
    fn who_asks_is_not_told_to_another_origin() {
        let mut headers = HeaderMap::new();
        for name in [
            "authorization",
            "x-amz-security-token",
            "x-amz-content-sha256",
            "ocp-apim-subscription-key",
            "cookie",
            "x-api-key",
            "referer",
            "range",
            "if-match",
        ] {
            headers.insert(
                HeaderName::from_static(name),
                HeaderValue::from_static("bytes=0-1"),
            );
        }
        keep_harmless(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["if-match", "range"]);
    }
}
