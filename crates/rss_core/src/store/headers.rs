//! Headers that the user sends to a host, such as a bearer token.

use std::{collections::BTreeMap, fmt, str::FromStr};

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use url::Url;

use super::lines;
use crate::error::{Error, ErrorKind, Result};

/// Headers by origin: scheme, host and port.
#[derive(Clone, Default)]
pub(crate) struct HostHeaders(BTreeMap<String, HeaderMap>);

impl fmt::Debug for HostHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl HostHeaders {
    /// Adds a header for an origin, such as `https://data.example.org`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`], without the value.
    pub(crate) fn add(&mut self, origin: &str, name: &str, value: &str) -> Result<()> {
        let wrong = |what: String| Error::new(ErrorKind::InvalidInput, what);
        let url = Url::parse(origin).ok().filter(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.path() == "/"
                && url.query().is_none()
                && url.username().is_empty()
        });
        let url = url.ok_or_else(|| {
            let origin = crate::location::redact(origin);
            wrong(format!(
                "a header for `{origin}`, expected a host such as https://example.org"
            ))
        })?;
        let name = HeaderName::from_str(name)
            .map_err(|_| wrong(format!("`{}` is no name of a header", name.escape_debug())))?;
        let mut value = HeaderValue::from_str(value).map_err(|_| {
            wrong(format!(
                "the value of the header {name} has characters that no header has"
            ))
        })?;
        value.set_sensitive(true);
        let of_origin = self
            .0
            .entry(url.origin().ascii_serialization())
            .or_default();
        of_origin.insert(name, value);
        Ok(())
    }

    /// Reads a file with a header on each line: `https://example.org Name: value`. Empty lines and those that begin with
    /// `#` are left out.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] naming the line, without the value.
    pub(crate) fn add_lines(&mut self, text: &str) -> Result<()> {
        let example = "https://example.org Authorization: Bearer TOKEN";
        lines::each(text, ':', example, |origin, name, value| {
            self.add(origin, name, value)
        })
    }

    /// Adds the headers of a request's origin.
    pub(super) fn apply(&self, uri: &Uri, headers: &mut HeaderMap) {
        if self.0.is_empty() {
            return;
        }
        let Ok(url) = Url::parse(&uri.to_string()) else {
            return;
        };
        let of_origin = self.0.get(&url.origin().ascii_serialization());
        for (name, value) in of_origin.into_iter().flatten() {
            headers.insert(name, value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_goes_to_its_origin_only() {
        let mut all = HostHeaders::default();
        all.add("https://data.example.org", "Authorization", "Bearer abc")
            .unwrap();
        let sent = |place: &str| {
            let mut headers = HeaderMap::new();
            all.apply(&place.parse().unwrap(), &mut headers);
            headers.len()
        };
        assert_eq!(sent("https://data.example.org/a?b=c"), 1);
        assert_eq!(sent("https://data.example.org:443/a"), 1);
        for other in [
            "http://data.example.org/a",
            "https://data.example.org:8443/a",
            "https://example.org/a",
            "https://data.example.org.evil.example/a",
        ] {
            assert_eq!(sent(other), 0, "{other}");
        }
        assert!(!format!("{all:?}").contains("abc"));
    }

    #[test]
    fn lines_are_headers_and_a_wrong_one_is_named_without_its_value() {
        let mut all = HostHeaders::default();
        all.add_lines(
            "\u{feff}# mine\n\nhttps://a.example X-Key: k1\nhttp://127.0.0.1:9 Authorization: Bearer t:u\n",
        )
        .unwrap();
        let mut headers = HeaderMap::new();
        all.apply(&"http://127.0.0.1:9/x".parse().unwrap(), &mut headers);
        assert_eq!(headers["authorization"], "Bearer t:u");
        for wrong in [
            "a.example X-Key: SECRET",
            "https://a.example SECRET",
            "https://a.example/folder X-Key: SECRET",
            "https://a.example X Key: SECRET",
            "https://u:SECRET@a.example X-Key: SECRET",
            "ftp://a.example X-Key: SECRET",
        ] {
            let err = all.add_lines(wrong).unwrap_err();
            assert!(err.message().starts_with("line 1: "), "{err}");
            assert!(!err.message().contains("SECRET"), "{err}");
        }
    }
}
