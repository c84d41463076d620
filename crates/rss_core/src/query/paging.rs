//! The order of pages of a search: state without IO.
//!
//! Each form of a `next` link is converted to a plain [`Request`]. The rules are those of the
//! [STAC API item search](https://github.com/radiantearth/stac-api-spec/blob/v1.0.0/item-search/README.md#paging),
//! hardened against the responses of real servers.

use std::collections::HashSet;

use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::{Map, Value};
use url::Url;

use crate::{
    error::{Error, ErrorKind, Result},
    location::redact,
    stac::Next,
};

/// The request for one page.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Request {
    Get(Url),
    Post(Url, Map<String, Value>),
}

impl Request {
    pub(super) fn url(&self) -> &Url {
        match self {
            Self::Get(url) | Self::Post(url, _) => url,
        }
    }

    /// Adds the query parameters of the API's root that this URL lacks, such as a key: servers do not
    /// repeat it in their links.
    pub(super) fn keep_query(&mut self, root: &Url) {
        let (Self::Get(url) | Self::Post(url, _)) = self;
        for (name, value) in root.query_pairs() {
            if !url.query_pairs().any(|(known, _)| known == name) {
                url.query_pairs_mut().append_pair(&name, &value);
            }
        }
    }

    /// Returns the requested page size, if any.
    pub(super) fn limit(&self) -> Option<u64> {
        match self {
            Self::Get(url) => url
                .query_pairs()
                .find(|(name, _)| name == "limit")
                .and_then(|(_, value)| value.parse().ok()),
            Self::Post(_, body) => body.get("limit").and_then(Value::as_u64),
        }
    }

    /// Sets the requested page size.
    pub(super) fn set_limit(&mut self, limit: u64) {
        match self {
            Self::Get(url) => {
                let others: Vec<(String, String)> = url
                    .query_pairs()
                    .filter(|(name, _)| name != "limit")
                    .map(|(name, value)| (name.into_owned(), value.into_owned()))
                    .collect();
                url.query_pairs_mut()
                    .clear()
                    .extend_pairs(others)
                    .append_pair("limit", &limit.to_string());
            }
            Self::Post(_, body) => {
                body.insert("limit".to_owned(), limit.into());
            }
        }
    }

    /// Converts the search to a GET request, for servers without POST: objects and lists of
    /// objects become JSON, other lists are joined with commas.
    pub(super) fn to_get(&self) -> Self {
        let Self::Post(url, body) = self else {
            return self.clone();
        };
        let mut url = url.clone();
        for (name, value) in body {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Array(list) if list.iter().all(|one| !one.is_object()) => list
                    .iter()
                    .map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned))
                    .collect::<Vec<_>>()
                    .join(","),
                other => other.to_string(),
            };
            url.query_pairs_mut().append_pair(name, &text);
        }
        Self::Get(url)
    }
}

/// Returns the request of a `next` link. It follows `before`, whose response came from
/// `answered`.
fn request(next: Next, before: &Request, answered: &Url) -> Result<Request> {
    let url = answered.join(&next.href).map_err(|err| {
        Error::new(ErrorKind::Corrupt, "the link to the next page is not a URL")
            .with_source(err)
            .at(answered_by(answered))
    })?;
    // A link with a body is a POST, even if its method is missing.
    if !next.post && next.body.is_none() {
        return Ok(Request::Get(url));
    }
    let body = next.body.unwrap_or_default();
    match before {
        Request::Post(_, sent) if next.merge => {
            let mut merged = sent.clone();
            merged.extend(body);
            Ok(Request::Post(url, merged))
        }
        // Without `merge` the body of the link is complete.
        _ => Ok(Request::Post(url, body)),
    }
}

/// Headers of a `next` link that are sent.
const MOST_HEADERS: usize = 32;

/// Returns the headers of a `next` link, without those that say how the request itself is sent.
fn headers(next: &Next) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in next.headers.iter().take(MOST_HEADERS) {
        let value = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => continue,
        };
        let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name.as_bytes()),
            HeaderValue::from_str(&value),
        ) else {
            continue;
        };
        let is_ours = matches!(
            name,
            header::ACCEPT
                | header::ACCEPT_ENCODING
                | header::CONNECTION
                | header::CONTENT_ENCODING
                | header::CONTENT_LENGTH
                | header::CONTENT_TYPE
                | header::EXPECT
                | header::HOST
                | header::RANGE
                | header::TE
                | header::TRAILER
                | header::TRANSFER_ENCODING
                | header::UPGRADE
                | header::USER_AGENT
        );
        if !is_ours {
            headers.insert(name, value);
        }
    }
    headers
}

fn answered_by(url: &Url) -> String {
    redact(url.as_str())
}

/// Walks from page to page, and refuses cycles and other servers.
#[derive(Debug)]
pub(super) struct Walker {
    current: Request,
    headers: HeaderMap,
    sent: HashSet<String>,
    filter_lost: Option<&'static str>,
}

impl Walker {
    pub(super) fn new(first: Request) -> Self {
        Self {
            sent: HashSet::from([fingerprint(&first)]),
            current: first,
            headers: HeaderMap::new(),
            filter_lost: None,
        }
    }

    /// Returns the request of the current page.
    pub(super) fn current(&self) -> &Request {
        &self.current
    }

    /// Returns the headers that the server wants with the request of the current page.
    pub(super) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Replaces the request of the current page by an equivalent one.
    pub(super) fn replace(&mut self, request: Request) {
        self.sent.insert(fingerprint(&request));
        self.current = request;
    }

    /// Returns the filter member that is missing from the server's request for the next page: the server
    /// does not apply it.
    pub(super) fn filter_lost(&self) -> Option<&'static str> {
        self.filter_lost
    }

    /// Steps to the next page; false if this was the last.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Denied`] if the next page is on another host or scheme: credentials in the
    /// request are for this server only. [`ErrorKind::Corrupt`] if the link is broken or
    /// leads to a page that was fetched before.
    pub(super) fn step(&mut self, next: Option<Next>, answered: &Url) -> Result<bool> {
        let Some(next) = next else {
            return Ok(false);
        };
        let stated = headers(&next);
        let request = request(next, &self.current, answered)?;
        let url = request.url();
        // After a redirect the response's host differs from the request's; links to either are accepted.
        if !same_server(url, answered) && !same_server(url, self.current.url()) {
            return Err(Error::new(
                ErrorKind::Denied,
                format!(
                    "the next page is at `{}`, on another server; it was not followed",
                    redact(url.as_str())
                ),
            )
            .at(answered_by(answered)));
        }
        // Each request is compared with all before, so cycles of any length are detected.
        if !self.sent.insert(fingerprint(&request)) {
            return Err(Error::new(
                ErrorKind::Corrupt,
                "the link to the next page leads to a page that was fetched before",
            )
            .at(answered_by(answered)));
        }
        // A body with `collections` is a complete search and not only a token, so a filter that is missing is lost.
        if let (Request::Post(_, before), Request::Post(_, after)) = (&self.current, &request)
            && after.contains_key("collections")
        {
            self.filter_lost = self.filter_lost.or(["filter", "query"]
                .into_iter()
                .find(|name| before.contains_key(*name) && !after.contains_key(*name)));
        }
        // Nobody else learns what the server wants to be told.
        self.headers = match same_server(request.url(), answered) {
            true => stated,
            false => HeaderMap::new(),
        };
        self.current = request;
        Ok(true)
    }
}

/// Returns true if both have the same scheme, host and port; `https` after `http` on the same host
/// is allowed too.
pub(super) fn same_server(to: &Url, from: &Url) -> bool {
    let upgrade = from.scheme() == "http"
        && to.scheme() == "https"
        && from.host() == to.host()
        && from.port().is_none()
        && to.port().is_none();
    let http = matches!(to.scheme(), "http" | "https");
    http && (to.origin() == from.origin() || upgrade)
}

/// Returns a key that is the same for two requests of the same page.
fn fingerprint(request: &Request) -> String {
    match request {
        Request::Get(url) => url.to_string(),
        Request::Post(url, body) => {
            let mut members: Vec<_> = body.iter().collect();
            // The order of members has no meaning in JSON.
            members.sort_by_key(|(name, _)| name.as_str());
            let body: Vec<_> = members
                .into_iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            format!("{url} {}", body.join("&"))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::stac::{Document, read};

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    /// Parses the link of a page.
    fn next(link: Value) -> Option<Next> {
        let page = json!({
            "type": "FeatureCollection", "features": [],
            "links": [{ "rel": "self", "href": "x" }, link],
        });
        match read(page.to_string().as_bytes()).unwrap() {
            Document::Items(page) => page.next,
            other => panic!("{other:?}"),
        }
    }

    fn search() -> Request {
        Request::Post(
            url("https://h/stac/search"),
            object(json!({ "collections": ["c"], "limit": 2 })),
        )
    }

    fn step(link: Value) -> Result<Request> {
        let mut walker = Walker::new(search());
        assert!(walker.step(next(link), &url("https://h/stac/search"))?);
        Ok(walker.current().clone())
    }

    #[test]
    fn a_get_link_is_followed_as_it_stands() {
        let next = step(json!({ "rel": "next", "href": "https://h/stac/search?limit=2&_o=2" }));
        assert_eq!(
            next.unwrap(),
            Request::Get(url("https://h/stac/search?limit=2&_o=2"))
        );
    }

    #[test]
    fn a_merged_body_keeps_the_search() {
        let next = step(json!({
            "rel": "next", "method": "POST", "merge": true,
            "href": "https://h/stac/search", "body": { "_o": 2 },
        }));
        assert_eq!(
            next.unwrap(),
            Request::Post(
                url("https://h/stac/search"),
                object(json!({ "collections": ["c"], "limit": 2, "_o": 2 }))
            )
        );
    }

    #[test]
    fn a_body_without_merge_replaces_the_search() {
        for merge in [json!(false), json!(null), json!("true")] {
            let next = step(json!({
                "rel": "next", "method": "POST", "merge": merge,
                "href": "https://h/stac/search",
                "body": { "collections": ["c"], "token": "next:c:7" },
            }));
            assert_eq!(
                next.unwrap(),
                Request::Post(
                    url("https://h/stac/search"),
                    object(json!({ "collections": ["c"], "token": "next:c:7" }))
                )
            );
        }
    }

    #[test]
    fn a_relative_next_is_resolved_against_the_answer() {
        for (href, full) in [
            ("?token=2", "https://h/stac/search?token=2"),
            ("search?token=2", "https://h/stac/search?token=2"),
            ("/api/search?token=2", "https://h/api/search?token=2"),
        ] {
            assert_eq!(
                step(json!({ "rel": "next", "href": href })).unwrap(),
                Request::Get(url(full)),
                "{href}"
            );
        }
    }

    #[test]
    fn a_next_on_another_server_is_refused() {
        for href in [
            "https://evil/stac/search?secret=1",
            "http://h/stac/search",
            "https://h:8443/stac/search",
            "//evil/stac/search",
            "file:///etc/passwd",
            "s3://h/stac/search",
        ] {
            let err = step(json!({ "rel": "next", "href": href })).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Denied, "{href}");
            assert!(!err.to_string().contains("secret"), "{err}");
        }
        assert!(same_server(&url("https://h/a"), &url("http://h/b")));
    }

    #[test]
    fn a_next_that_was_there_before_is_refused() {
        let mut walker = Walker::new(search());
        let answered = url("https://h/stac/search");
        let to = |token: u8| {
            next(json!({
                "rel": "next", "method": "POST", "href": "/stac/search", "merge": true,
                "body": { "token": token },
            }))
        };
        assert!(walker.step(to(1), &answered).unwrap());
        assert!(walker.step(to(2), &answered).unwrap());
        let err = walker.step(to(1), &answered).unwrap_err();
        assert_eq!(
            err.to_string(),
            "https://h/stac/search: the link to the next page leads to a page that was fetched before"
        );
    }

    #[test]
    fn a_filter_that_the_next_body_lost_is_noticed() {
        let mut walker = Walker::new(Request::Post(
            url("https://h/search"),
            object(json!({ "collections": ["c"], "filter": {} })),
        ));
        let link = next(json!({
            "rel": "next", "method": "POST", "href": "https://h/search", "merge": false,
            "body": { "collections": ["c"], "next": "x" },
        }));
        assert!(walker.step(link, &url("https://h/search")).unwrap());
        assert_eq!(walker.filter_lost(), Some("filter"));
    }

    #[test]
    fn a_page_size_can_be_changed_in_either_form() {
        let mut get = Request::Get(url("https://h/search?limit=100&token=a%26b"));
        assert_eq!(get.limit(), Some(100));
        get.set_limit(50);
        assert_eq!(get.url().as_str(), "https://h/search?token=a%26b&limit=50");
        let mut post = search();
        post.set_limit(1);
        assert_eq!(post.limit(), Some(1));
    }

    #[test]
    fn a_search_can_be_written_as_get() {
        let search = Request::Post(
            url("https://h/search?key=1"),
            object(json!({
                "collections": ["a", "b"], "bbox": [1.0, 2.5, 3.0, 4.0], "limit": 2,
                "filter-lang": "cql2-json", "filter": { "op": "=" },
            })),
        );
        let pairs: Vec<(String, String)> =
            search.to_get().url().query_pairs().into_owned().collect();
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(a, b)| (a.as_str(), b.as_str()))
            .collect();
        assert_eq!(
            pairs,
            [
                ("key", "1"),
                ("collections", "a,b"),
                ("bbox", "1.0,2.5,3.0,4.0"),
                ("limit", "2"),
                ("filter-lang", "cql2-json"),
                ("filter", r#"{"op":"="}"#),
            ]
        );
    }

    proptest! {
        #[test]
        fn no_link_makes_the_walker_panic_or_leave_its_server(
            href in "\\PC{0,30}",
            method in proptest::option::of("\\PC{0,6}"),
            merge: bool,
        ) {
            let link = json!({ "rel": "next", "href": href, "method": method, "merge": merge });
            if let Ok(request) = step(link) {
                prop_assert!(same_server(request.url(), &url("https://h/stac/search")));
            }
        }
    }
}
