//! The key of a cached file: which requests share one file.

use std::{fmt::Write as _, time::UNIX_EPOCH};

use sha2::{Digest, Sha256};
use url::{Url, form_urlencoded};

use crate::{geo::Crop, location::Location, store::is_signed};

/// The longest file extension that the cached file gets, too.
const LONGEST_ENDING: usize = 8;

/// How a cached file is written from its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Through `gdal_translate`: a tiled, compressed GeoTIFF; can be cropped.
    #[default]
    Translate,
    /// Byte for byte.
    Copy,
}

impl Mode {
    /// Returns the name the command line uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Translate => "translate",
            Self::Copy => "copy",
        }
    }
}

/// The name of one cached file: the SHA-256 of its canonical URL, crop and mode.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CacheKey {
    /// 64 hexadecimal digits.
    digest: String,
    /// 64 hexadecimal digits; the same for all crops and modes of one source.
    source: String,
    ending: String,
    /// The location for messages and records: without query string.
    shown: String,
}

impl CacheKey {
    /// Returns the key of `location`; `authority` is the server of its bucket, where that is not
    /// the provider's own.
    pub(crate) fn new(
        location: &Location,
        authority: Option<&str>,
        crop: Option<&Crop>,
        mode: Mode,
    ) -> Self {
        let source = canonical(location, authority);
        let mut text = format!("rss cache 1\n{source}\nmode={}\n", mode.name());
        if let Some(crop) = crop {
            text.push_str("crop=");
            for edge in crop.bounds {
                // The bit pattern is exact, where decimal text may round; adding zero turns -0 into 0.
                let _ = write!(text, "{:016x},", (edge + 0.0).to_bits());
            }
            match crop.epsg {
                Some(epsg) => {
                    let _ = writeln!(text, "\nepsg={epsg}");
                }
                None => text.push('\n'),
            }
        }
        let ending = match mode {
            Mode::Translate => "tif".to_owned(),
            Mode::Copy => ending_of(location.file_name()),
        };
        Self {
            digest: hex(&Sha256::digest(text.as_bytes())),
            source: source_digest(location, authority),
            ending,
            shown: location.to_string(),
        }
    }

    pub(super) fn digest(&self) -> &str {
        &self.digest
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }

    pub(super) fn file_name(&self) -> String {
        format!("{}.{}", self.digest, self.ending)
    }

    pub(super) fn shown(&self) -> &str {
        &self.shown
    }
}

/// Returns the SHA-256 of the canonical URL alone.
pub(super) fn source_digest(location: &Location, authority: Option<&str>) -> String {
    hex(&Sha256::digest(canonical(location, authority).as_bytes()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn ending_of(name: &str) -> String {
    name.rsplit_once('.')
        .map(|(_, ending)| ending.to_ascii_lowercase())
        .filter(|ending| {
            (1..=LONGEST_ENDING).contains(&ending.len())
                && ending.chars().all(|c| c.is_ascii_alphanumeric())
                // A file of this ending would have the name of its own record.
                && ending != "record"
        })
        .unwrap_or_else(|| "bin".to_owned())
}

/// Returns the canonical URL, equal for all hrefs of one file: no signature, token, user name,
/// fragment or default port; host in lower case; an `https` URL of S3 as its bucket and key.
fn canonical(location: &Location, authority: Option<&str>) -> String {
    if let Some(s3) = location.as_s3() {
        let authority = authority.unwrap_or_default();
        return format!("s3://{authority}/{}/{}", s3.bucket, s3.key);
    }
    match location {
        Location::Http(url) => without_secrets(url).to_string(),
        Location::Local(path) => {
            let absolute = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            // A local file has no ETag: its size and mtime identify the version.
            let version = absolute
                .metadata()
                .ok()
                .and_then(|meta| {
                    let age = meta.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
                    Some(format!("{}-{}", meta.len(), age.as_nanos()))
                })
                .unwrap_or_default();
            format!("file://{}\n{version}", absolute.display())
        }
        other => format!("{}\n{}", other.to_href(), authority.unwrap_or_default()),
    }
}

/// Returns a URL without what is known to sign it, user name and fragment. Other parameters select content: the key is a
/// hash, which holds no secret that this does not know.
fn without_secrets(url: &Url) -> Url {
    let mut url = url.clone();
    url.set_fragment(None);
    // Both fail only for URLs without a host; `http` URLs have one.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    let signed = is_signed(&url);
    let kept: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(name, _)| !is_secret(name, signed))
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    if kept.is_empty() {
        url.set_query(None);
    } else {
        let query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(kept)
            .finish();
        url.set_query(Some(&query));
    }
    url
}

/// Returns true for a query parameter that signs or authorises a request. The short names of Azure's
/// SAS count only beside a signature: elsewhere `se` or `expires` may select the content.
pub(crate) fn is_secret(name: &str, signed: bool) -> bool {
    let name = name.to_ascii_lowercase();
    let always = [
        "sig",
        "signature",
        "token",
        "access_token",
        "auth",
        "authorization",
        "api_key",
        "apikey",
        "api-key",
        "subscription-key",
        "jwt",
        "password",
        "secret",
        "awsaccesskeyid",
        "googleaccessid",
        "key-pair-id",
        "x-id",
    ];
    let beside_a_signature = [
        "se", "st", "sp", "sr", "sv", "si", "ss", "srt", "spr", "sip", "sdd", "skoid", "sktid",
        "skt", "ske", "sks", "skv", "saoid", "suoid", "scid", "rscc", "rscd", "rsce", "rscl",
        "rsct", "expires", "policy",
    ];
    always.contains(&name.as_str())
        || name.starts_with("x-amz-")
        || name.starts_with("x-goog-")
        || (signed && beside_a_signature.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(href: &str) -> String {
        let location = Location::parse(href).unwrap();
        CacheKey::new(&location, None, None, Mode::Copy).digest
    }

    fn crop(bounds: [f64; 4], epsg: Option<u32>) -> Crop {
        Crop { bounds, epsg }
    }

    #[test]
    fn a_signature_does_not_change_the_key() {
        let plain = key("https://h.example/a.tif?v=2");
        for href in [
            "https://h.example/a.tif?v=2&st=1&se=2&sp=r&sv=3&sr=c&sig=CANARY",
            "https://H.EXAMPLE:443/a.tif?v=2#page",
            "https://me:pw@h.example/a.tif?v=2",
            "https://h.example/a.tif?X-Amz-Signature=1&X-Amz-Expires=2&v=2",
            "https://h.example/a.tif?v=2&token=x",
        ] {
            assert_eq!(key(href), plain, "{href}");
        }
        for href in [
            "https://h.example/a.tif",
            "https://h.example/a.tif?v=3",
            "https://h.example/a.tif?v=2&st=1",
            "https://h.example/A.tif?v=2",
            "http://h.example/a.tif?v=2",
            "https://h.example:8443/a.tif?v=2",
        ] {
            assert_ne!(key(href), plain, "{href}");
        }
    }

    #[test]
    fn an_https_url_of_s3_is_its_bucket_and_key() {
        let plain = key("s3://bucket/a/b.tif");
        assert_eq!(key("/vsis3/bucket/a/b.tif"), plain);
        assert_eq!(
            key("https://bucket.s3.us-west-2.amazonaws.com/a/b.tif"),
            plain
        );
    }

    #[test]
    fn the_same_key_at_two_servers_is_two_files() {
        let location = Location::parse("s3://b/k").unwrap();
        let at = |authority| CacheKey::new(&location, authority, None, Mode::Copy).digest;
        assert_ne!(
            at(Some("http://127.0.0.1:1")),
            at(Some("http://127.0.0.1:2"))
        );
        assert_ne!(at(Some("http://127.0.0.1:1")), at(None));
    }

    #[test]
    fn a_crop_never_has_the_key_of_the_full_file() {
        let location = Location::parse("s3://b/k.tif").unwrap();
        let mut seen = std::collections::HashSet::new();
        let crops = [
            None,
            Some(crop([0.0, 0.0, 1.0, 1.0], None)),
            Some(crop([0.0, 0.0, 1.0, 1.0], Some(4326))),
            Some(crop([0.0, 0.0, 1.0, 1.0], Some(32756))),
            Some(crop([0.0, 0.0, 1.0, 1.0 + f64::EPSILON], None)),
        ];
        for crop in &crops {
            for mode in [Mode::Translate, Mode::Copy] {
                let key = CacheKey::new(&location, None, crop.as_ref(), mode);
                assert!(seen.insert(key.digest), "{crop:?} {mode:?}");
            }
        }
        let zero = |edge: f64| {
            let crop = crop([edge, 0.0, 1.0, 1.0], None);
            CacheKey::new(&location, None, Some(&crop), Mode::Copy).digest
        };
        assert_eq!(zero(0.0), zero(-0.0));
    }

    #[test]
    fn a_key_names_no_secret() {
        let location = Location::parse("https://me:CANARY@h/a.CANARY?sig=CANARY").unwrap();
        let key = CacheKey::new(&location, None, None, Mode::Copy);
        assert!(!key.shown.contains("?") && !key.shown.contains("me:"));
        assert_eq!(key.ending, "canary");
        let location = Location::parse("s3://b/a.tif/../../etc/x.t_f").unwrap();
        let key = CacheKey::new(&location, None, None, Mode::Copy);
        assert!(key.file_name().ends_with(".bin"));
    }
}
