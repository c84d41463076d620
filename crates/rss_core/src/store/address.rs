//! Addresses as they are written where others read them: in an index, its exports and its journal.
//!
//! What a query parameter means is known to its server alone: `key`, `sas` or `hdnts` may be a secret. So only those
//! are kept whose names are known to select content, with a value that looks like no address and no signature.

use serde_json::Value;
use url::{Url, form_urlencoded};

#[cfg(feature = "index")]
use super::cache::is_secret;

/// Parameters that select content, in lower case.
const HARMLESS: &[&str] = &[
    "alt",
    "asset",
    "assets",
    "attachment",
    "band",
    "bands",
    "bbox",
    "bidx",
    "branch",
    "col",
    "collection",
    "collection_id",
    "collections",
    "crs",
    "dataset",
    "date",
    "datetime",
    "day",
    "dl",
    "download",
    "end",
    "epsg",
    "f",
    "file",
    "filename",
    "filepath",
    "format",
    "generation",
    "group",
    "height",
    "id",
    "identifier",
    "inline",
    "item",
    "item_id",
    "items",
    "lang",
    "language",
    "layer",
    "layers",
    "level",
    "limit",
    "month",
    "name",
    "offset",
    "overview",
    "page",
    "path",
    "product",
    "raw",
    "ref",
    "resolution",
    "rev",
    "revision",
    "row",
    "scale",
    "scene",
    "size",
    "srs",
    "start",
    "tile",
    "tilematrix",
    "time",
    "type",
    "v",
    "ver",
    "version",
    "version_id",
    "versionid",
    "width",
    "x",
    "y",
    "year",
    "z",
];
/// Characters of the longest value that is kept: signatures and tokens are longer than most names.
const LONGEST: usize = 200;

/// Returns true if a parameter is known to hold no secret.
fn is_harmless(name: &str, value: &str) -> bool {
    let is_plain = |c: char| c.is_alphanumeric() || "-_.,:/+ ~".contains(c);
    HARMLESS.contains(&name.to_ascii_lowercase().as_str())
        && value.chars().count() <= LONGEST
        && value.chars().all(is_plain)
        && !value.contains("://")
        // A JSON web token, whatever it is called.
        && !value.starts_with("eyJ")
}

/// Returns a URL without user name, password, fragment, and parameters that are not known to be harmless.
pub(crate) fn shareable(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_fragment(None);
    // Both fail only for URLs without a host, which have neither.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    let all = url.query_pairs().count();
    let kept: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(name, value)| is_harmless(name, value))
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    if kept.is_empty() {
        url.set_query(None);
    } else if kept.len() < all {
        let query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(kept)
            .finish();
        url.set_query(Some(&query));
    }
    url
}

/// Returns the names of parameters that [`shareable`] leaves out though nothing says that they are secret: without them the
/// address may be that of another file.
#[cfg(feature = "index")]
pub(crate) fn left_out(url: &Url) -> Vec<String> {
    let signed = super::is_signed(url);
    url.query_pairs()
        .filter(|(name, value)| !is_harmless(name, value) && !is_secret(name, signed))
        .map(|(name, _)| name.into_owned())
        .collect()
}

/// Removes what may be a secret from JSON: from all addresses, and fields that hold keys or headers. A text that holds JSON
/// is treated as such.
pub(crate) fn shareable_json(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(plain) = shareable_text(text) {
                *text = plain;
            }
        }
        Value::Array(list) => list.iter_mut().for_each(shareable_json),
        Value::Object(fields) => {
            fields.retain(|name, _| !is_secret_field(name));
            fields.values_mut().for_each(shareable_json);
        }
        _ => {}
    }
}

/// Returns true if a field's name says that it holds a key of a store, or a header of its requests.
pub(crate) fn is_secret_field(name: &str) -> bool {
    const SECRET: [&str; 14] = [
        "token",
        "secret",
        "password",
        "passwd",
        "signature",
        "authorization",
        "credential",
        "apikey",
        "api_key",
        "api-key",
        "access_key",
        "accesskey",
        "cookie",
        "subscription-key",
    ];
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|word| name.contains(word))
}

/// Returns an address, or text with addresses in it, as [`shareable`]; none if nothing is left out.
pub(crate) fn shareable_text(text: &str) -> Option<String> {
    if text.starts_with(['{', '['])
        && let Ok(json) = serde_json::from_str::<Value>(text)
    {
        let mut plain = json.clone();
        shareable_json(&mut plain);
        return (plain != json).then(|| plain.to_string());
    }
    // A secret is in a query (`?`), in user information (`@`) or in a fragment (`#`): most texts need no parsing.
    if !text.contains(['?', '@', '#']) {
        return None;
    }
    let plain = match is_address(text) {
        true => shareable_word(text),
        false => {
            let ends = |c: char| c.is_whitespace() || "\"'`<>".contains(c);
            let words = text.split_inclusive(ends).map(|piece| {
                let (word, end) = piece.split_at(piece.find(ends).unwrap_or(piece.len()));
                format!("{}{end}", shareable_word(word))
            });
            words.collect()
        }
    };
    (plain != text).then_some(plain)
}

fn is_scheme(c: char) -> bool {
    c.is_ascii_alphanumeric() || "+-.".contains(c)
}

fn is_address(text: &str) -> bool {
    let scheme = text.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| scheme.chars().all(is_scheme)) || text.starts_with("/vsi")
}

/// As [`shareable`], of a word of a text: what stands before an address, as `/vsicurl/` or a bracket, and the punctuation
/// behind it stay.
fn shareable_word(word: &str) -> String {
    let body = word.trim_end_matches([',', ';', '.', ')', ']', '}', '|']);
    let tail = word.get(body.len()..).unwrap_or_default();
    let before = body.find("://").and_then(|at| body.get(..at));
    let start = before.map_or(0, |before| before.trim_end_matches(is_scheme).len());
    let (prefix, address) = body.split_at(start);
    let cut = |text: &str| {
        let kept = text.split(['?', '#']).next();
        format!("{}{tail}", kept.unwrap_or_default())
    };
    match Url::parse(address) {
        Ok(url) if address.contains("://") => match shareable(&url) {
            // As it was spelt.
            plain if plain == url => word.to_owned(),
            plain => format!("{prefix}{plain}{tail}"),
        },
        // A path of GDAL's, or a path with a query: `/s?token=..`.
        _ if address.contains("://") || word.starts_with("/vsi") => cut(body),
        _ if body.contains('/')
            && body
                .split_once('?')
                .is_some_and(|(_, query)| query.contains('=')) =>
        {
            cut(body)
        }
        _ => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> String {
        shareable_text(text).unwrap_or_else(|| text.to_owned())
    }

    #[test]
    fn only_parameters_that_are_known_to_be_harmless_are_kept() {
        for name in [
            "key",
            "sas",
            "hdnts",
            "bearer",
            "x-oss-signature",
            "token",
            "sig",
            "X-Amz-Signature",
            "access_token",
            "apikey",
            "Policy",
            "Key-Pair-Id",
            "st",
            "X-Goog-Credential",
            "code",
            "session",
            "anything",
        ] {
            let text = format!("https://h/a.tif?v=2&{name}=SECRET#SECRET");
            assert_eq!(plain(&text), "https://h/a.tif?v=2", "{name}");
            let inside =
                format!("see https://me:SECRET@h/a.tif?{name}=SECRET, (and /s?{name}=SECRET)");
            assert_eq!(plain(&inside), "see https://h/a.tif, (and /s)", "{name}");
        }
        for text in [
            "https://h/a.tif?file=https://h/?sig=SECRET",
            "https://h/a.tif?id=eyJhbGciOiJIUzI1NiJ9.SECRET",
            "/vsicurl/https://SECRET@h/a.tif?code=SECRET",
            "s3://bucket/a.tif?sig=SECRET",
            "/vsis3/bucket/a.tif?sig=SECRET",
            "https://h/a b.tif?sig=SECRET",
        ] {
            assert!(!plain(text).contains("SECRET"), "{text}: {}", plain(text));
        }
        for text in [
            "https://h/a.tif?download",
            "https://h/get?file=a.tif&band=2",
            "why? because",
            "a@b.org",
            "#1 of 2",
            "/d/odd#name?.tif",
        ] {
            assert_eq!(plain(text), text);
        }
    }

    #[cfg(feature = "index")]
    #[test]
    fn parameters_that_may_have_selected_the_file_are_named() {
        let url = Url::parse("https://h/a.tif?v=1&key=a&sig=b&thing=c").unwrap();
        assert_eq!(left_out(&url), ["key", "thing"]);
    }
}
