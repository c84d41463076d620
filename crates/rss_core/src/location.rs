//! Locations of files, and their notations: href, object key, VSI path.
//!
//! Parsing does no IO. It also enforces trust: a catalogue on the network must not make a reader open a local file or a
//! GDAL virtual path.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
    str::FromStr,
};

use url::{Host, Url};

use crate::error::{Error, ErrorKind, Result};

/// The location of one file, parsed once from an href, a path or a VSI path.
///
/// `Display` and `Debug` leave out the query string, the fragment and any user name or password: signed URLs contain
/// secrets.
#[derive(Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Location {
    /// A file on this machine.
    Local(PathBuf),
    /// An object in an S3 bucket.
    S3 {
        /// The bucket's name.
        bucket: String,
        /// The object's key, without a leading slash.
        key: String,
    },
    /// An object in a Google Cloud Storage bucket.
    Gcs {
        /// The bucket's name.
        bucket: String,
        /// The object's name, without a leading slash.
        key: String,
    },
    /// A blob in an Azure container of the account that the session is configured for.
    Azure {
        /// The container's name.
        container: String,
        /// The blob's name, without a leading slash.
        key: String,
    },
    /// An `http` or `https` URL.
    Http(Url),
}

/// The trust in the origin of a location, which decides what it may refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trust {
    /// The user: local paths, `file://`, VSI paths and every scheme.
    User,
    /// A catalogue on the public network: object stores and `https` on public hosts.
    Network,
    /// A catalogue on a public host that was reached by plain `http`: as `Network`, and also plain `http`.
    PlainNetwork,
    /// A catalogue on this machine or a private network: as `Network`, and also plain `http` and private hosts.
    PrivateNetwork,
}

impl Trust {
    /// Returns the trust in a catalogue that was read from `url`.
    pub fn of_catalogue(url: &Url) -> Self {
        match url.scheme() {
            "file" => Self::User,
            _ if is_private(url) => Self::PrivateNetwork,
            "http" => Self::PlainNetwork,
            _ => Self::Network,
        }
    }
}

impl Location {
    /// Parses a user's input: a path, a `file://`, `s3://`, `gs://`, `az://`, `http(s)://` URL,
    /// or a `/vsis3/`, `/vsigs/`, `/vsiaz/`, `/vsicurl/` path. A `/vsirss/` path is parsed too, unless its URL had a
    /// query string or a user name, which such paths do not contain.
    ///
    /// ```
    /// use rss_core::Location;
    ///
    /// let a = Location::parse("s3://sentinel-cogs/55/H/FA/B04.tif")?;
    /// let b = Location::parse("/vsis3/sentinel-cogs/55/H/FA/B04.tif")?;
    /// assert_eq!(a, b);
    /// # Ok::<_, rss_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for an unknown scheme or VSI prefix, or an empty bucket or key.
    pub fn parse(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Err(invalid("an empty location"));
        }
        if let Some(rest) = text.strip_prefix("/vsi") {
            return Self::parse_vsi(text, rest);
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return match text.strip_prefix("file:") {
                Some(path) => Ok(Self::Local(PathBuf::from(path))),
                None => Ok(Self::Local(PathBuf::from(text))),
            };
        };
        match scheme.to_ascii_lowercase().as_str() {
            "s3" | "s3a" => {
                let (bucket, key) = bucket_and_key(text, rest)?;
                Ok(Self::S3 { bucket, key })
            }
            "gs" | "gcs" => {
                let (bucket, key) = bucket_and_key(text, rest)?;
                Ok(Self::Gcs { bucket, key })
            }
            "az" | "azure" => {
                let (container, key) = bucket_and_key(text, rest)?;
                Ok(Self::Azure { container, key })
            }
            "http" | "https" => {
                let url = Url::parse(text)
                    .map_err(|err| invalid("not a valid URL").with_source(err).at(redact(text)))?;
                Ok(Self::Http(url))
            }
            "file" => {
                let url = Url::parse(text)
                    .map_err(|err| invalid("not a valid URL").with_source(err).at(redact(text)))?;
                url.to_file_path()
                    .map(Self::Local)
                    .map_err(|()| invalid("a file URL without a local path").at(redact(text)))
            }
            other => Err(invalid(format!(
                "scheme `{other}` is not one of s3, gs, az, http, https, file"
            ))
            .at(redact(text))),
        }
    }

    /// Parses a prefix of a bucket, or a folder: as [`Location::parse`], and a bucket as a whole (`s3://bucket`,
    /// `s3://bucket/`), whose key is empty.
    ///
    /// # Errors
    ///
    /// Those of [`Location::parse`].
    pub fn parse_prefix(text: &str) -> Result<Self> {
        let path = text.trim_end_matches('/');
        let names = [
            "s3://", "s3a://", "gs://", "gcs://", "az://", "azure://", "/vsis3/", "/vsigs/",
            "/vsiaz/",
        ];
        let lower = path.to_ascii_lowercase();
        let bucket = names.iter().find_map(|scheme| {
            let rest = path
                .get(scheme.len()..)
                .filter(|_| lower.starts_with(scheme))?;
            (!rest.is_empty() && !rest.contains(['/', '?', '#'])).then(|| rest.to_owned())
        });
        let Some(bucket) = bucket else {
            return Self::parse(text);
        };
        // Any key makes it parse; it is left out again.
        Ok(match Self::parse(&format!("{path}/-"))? {
            Self::S3 { .. } => Self::S3 {
                bucket,
                key: String::new(),
            },
            Self::Gcs { .. } => Self::Gcs {
                bucket,
                key: String::new(),
            },
            Self::Azure { .. } => Self::Azure {
                container: bucket,
                key: String::new(),
            },
            other => other,
        })
    }

    /// Parses an href within the limits of `trust`: a catalogue on the network may not refer to a local file, a VSI
    /// path, a VRT (which names other files), plain `http` or a private host.
    ///
    /// # Errors
    ///
    /// Those of [`Location::parse`], and [`ErrorKind::Denied`] for locations that `trust` does not allow.
    pub fn parse_from(href: &str, trust: Trust) -> Result<Self> {
        if trust == Trust::User {
            return Self::parse(href);
        }
        let denied = |what: &str| {
            Err(Error::new(
                ErrorKind::Denied,
                format!("a catalogue on the network may not name {what}"),
            )
            .at(redact(href)))
        };
        // GDAL prefixes can be chained, as in `GTIFF_DIR:1:/vsis3/..`, so the start alone is not enough.
        if href.contains("/vsi") && !href.contains("://") || href.starts_with("/vsi") {
            return denied("a GDAL virtual path");
        }
        match Self::parse(href)? {
            Self::Local(_) => denied("a local file"),
            Self::Http(url) if trust == Trust::Network && url.scheme() == "http" => {
                denied("a plain http address")
            }
            Self::Http(url) if trust != Trust::PrivateNetwork && is_private(&url) => {
                denied("a private host")
            }
            Self::Http(url) if is_link_local(&url) => denied("a link-local host"),
            // As a copy on this machine it would name any other file.
            location if location.file_name().to_ascii_lowercase().ends_with(".vrt") => {
                denied("a VRT, which names other files")
            }
            location => Ok(location),
        }
    }

    /// Parses an href of items that were handed over in a file or by a pipe: whoever made them, they name no file of this
    /// machine but those of which `is_own` is true, no link-local host and no VRT elsewhere.
    ///
    /// # Errors
    ///
    /// As [`Location::parse_from`].
    pub(crate) fn parse_handed_over(href: &str, is_own: impl Fn(&Path) -> bool) -> Result<Self> {
        let location = Self::parse(href)?;
        let denied = |what: &str| {
            let message = format!("items of a file or a pipe may not name {what}");
            Err(Error::new(ErrorKind::Denied, message).at(redact(href)))
        };
        match &location {
            Self::Local(path) if is_own(path) => Ok(location),
            Self::Local(_) => denied("a local file elsewhere"),
            Self::Http(url) if is_link_local(url) => denied("a link-local host"),
            other if other.file_name().to_ascii_lowercase().ends_with(".vrt") => {
                denied("a VRT, which names other files")
            }
            _ => Ok(location),
        }
    }

    fn parse_vsi(text: &str, rest: &str) -> Result<Self> {
        let Some((kind, path)) = rest.split_once('/') else {
            return Err(invalid("a VSI path without a file").at(redact(text)));
        };
        match kind {
            "s3" => {
                let (bucket, key) = bucket_and_key(text, path)?;
                Ok(Self::S3 { bucket, key })
            }
            "gs" => {
                let (bucket, key) = bucket_and_key(text, path)?;
                Ok(Self::Gcs { bucket, key })
            }
            "az" => {
                let (container, key) = bucket_and_key(text, path)?;
                Ok(Self::Azure { container, key })
            }
            "curl" => Self::parse(path),
            "rss" => Self::parse_rss(text, path),
            other => Err(invalid(format!(
                "VSI prefix `/vsi{other}/` is not one of /vsis3/, /vsigs/, /vsiaz/, /vsicurl/, /vsirss/"
            ))
            .at(redact(text))),
        }
    }

    /// Parses `<session>/<scheme>/<path>`: the file, without the session that created the path.
    fn parse_rss(text: &str, path: &str) -> Result<Self> {
        let href = path
            .split_once('/')
            .and_then(|(_, rest)| rest.split_once('/'))
            .filter(|(scheme, _)| matches!(*scheme, "s3" | "gs" | "az" | "http" | "https"));
        match href {
            Some((scheme, path)) => Self::parse(&format!("{scheme}://{path}")),
            None => Err(invalid(
                "a /vsirss/ path that is valid only inside the process that created it",
            )
            .at(redact(text))),
        }
    }

    /// Returns the path with which GDAL opens this file.
    ///
    /// The query string is retained: it may be a signature that GDAL needs. Never log the result.
    /// See <https://gdal.org/en/stable/user/virtual_file_systems.html>.
    pub fn to_vsi(&self) -> String {
        match self {
            Self::Local(path) => path.to_string_lossy().into_owned(),
            Self::S3 { bucket, key } => format!("/vsis3/{bucket}/{key}"),
            Self::Gcs { bucket, key } => format!("/vsigs/{bucket}/{key}"),
            Self::Azure { container, key } => format!("/vsiaz/{container}/{key}"),
            Self::Http(url) => format!("/vsicurl/{url}"),
        }
    }

    /// Returns the href, which [`Location::parse`] parses back. It may contain a signature.
    pub fn to_href(&self) -> String {
        match self {
            Self::Local(path) => path.to_string_lossy().into_owned(),
            Self::S3 { bucket, key } => format!("s3://{bucket}/{key}"),
            Self::Gcs { bucket, key } => format!("gs://{bucket}/{key}"),
            Self::Azure { container, key } => format!("az://{container}/{key}"),
            Self::Http(url) => url.to_string(),
        }
    }

    /// Returns the last segment of the path; that of a URL is not percent-decoded.
    pub fn file_name(&self) -> &str {
        let path = match self {
            Self::Local(path) => path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or(""),
            Self::S3 { key, .. } | Self::Gcs { key, .. } | Self::Azure { key, .. } => key,
            Self::Http(url) => url.path(),
        };
        path.rsplit('/').next().unwrap_or(path)
    }

    /// Returns the location of `key` below this one.
    #[cfg(feature = "zarr")]
    pub(crate) fn join(&self, key: &str) -> Self {
        let below = |base: &str| match base.trim_end_matches('/') {
            "" => key.to_owned(),
            base => format!("{base}/{key}"),
        };
        match self {
            Self::Local(path) => Self::Local(path.join(key)),
            Self::S3 { bucket, key } => Self::S3 {
                bucket: bucket.clone(),
                key: below(key),
            },
            Self::Gcs { bucket, key } => Self::Gcs {
                bucket: bucket.clone(),
                key: below(key),
            },
            Self::Azure { container, key } => Self::Azure {
                container: container.clone(),
                key: below(key),
            },
            Self::Http(url) => {
                let mut url = url.clone();
                url.set_path(&below(url.path()));
                Self::Http(url)
            }
        }
    }

    /// Returns the location of the file whose name has an ending more than this one's.
    #[cfg(feature = "gdal")]
    pub(crate) fn with_ending(&self, ending: &str) -> Self {
        let mut other = self.clone();
        match &mut other {
            Self::Local(path) => path.as_mut_os_string().push(ending),
            Self::S3 { key, .. } | Self::Gcs { key, .. } | Self::Azure { key, .. } => {
                key.push_str(ending);
            }
            Self::Http(url) => {
                let path = format!("{}{ending}", url.path());
                url.set_path(&path);
            }
        }
        other
    }

    /// Returns the local path, if the file is on this machine.
    pub fn as_local(&self) -> Option<&Path> {
        match self {
            Self::Local(path) => Some(path),
            _ => None,
        }
    }

    /// Returns the bucket, key and region of an `https` URL of Amazon S3, or the bucket
    /// and key of an S3 location.
    ///
    /// Virtual-hosted (`bucket.s3.region.amazonaws.com`) and path style
    /// (`s3.region.amazonaws.com/bucket`) are supported; a URL with a query string is not converted, since
    /// it may be presigned.
    pub fn as_s3(&self) -> Option<S3Address> {
        match self {
            Self::S3 { bucket, key } => Some(S3Address {
                bucket: bucket.clone(),
                key: key.clone(),
                region: None,
            }),
            Self::Http(url) => s3_of_url(url),
            _ => None,
        }
    }
}

/// A bucket and key, with the region if the URL contains one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Address {
    /// The bucket's name.
    pub bucket: String,
    /// The object's key, without a leading slash.
    pub key: String,
    /// The region in the host name.
    pub region: Option<String>,
}

fn s3_of_url(url: &Url) -> Option<S3Address> {
    if url.query().is_some() {
        return None;
    }
    let host = url.host_str()?.strip_suffix(".amazonaws.com")?;
    // URLs are percent-encoded, object keys are not.
    let key = decode(url.path().strip_prefix('/')?);
    let region_of = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    // `s3.region`, `s3-region` and `s3` are path style; `bucket.s3.region` is virtual-hosted.
    if let Some(region) = host
        .strip_prefix("s3.")
        .or_else(|| host.strip_prefix("s3-"))
        .or_else(|| (host == "s3").then_some(""))
        && !region.contains('.')
    {
        let (bucket, key) = key.split_once('/')?;
        return Some(S3Address {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            region: region_of(region),
        });
    }
    let (bucket, region) = host
        .rsplit_once(".s3.")
        .or_else(|| host.rsplit_once(".s3-"))
        .or_else(|| host.strip_suffix(".s3").map(|bucket| (bucket, "")))?;
    (!key.is_empty() && !region.contains('.')).then(|| S3Address {
        bucket: bucket.to_owned(),
        key,
        region: region_of(region),
    })
}

/// Decodes percent-encoding; returns the text unchanged if the result is not valid UTF-8.
pub(crate) fn decode(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|pair| str::from_utf8(pair).ok());
        match hex.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(byte) if first == b'%' => {
                out.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            _ => {
                out.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| path.to_owned())
}

/// Returns `text` without query string, fragment and user info, so that it can be logged.
pub(crate) fn redact(text: &str) -> String {
    let end = text.find(['?', '#']).unwrap_or(text.len());
    let text = text.get(..end).unwrap_or(text);
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let host_end = rest.find('/').unwrap_or(rest.len());
    let (host, path) = rest.split_at(host_end);
    // The host follows the last `@`: user info may contain one.
    let host = host.rsplit('@').next().unwrap_or(host);
    format!("{scheme}://{host}{path}")
}

/// Redacts each URL in a server's text, and the query string of each path: error pages often repeat the requested
/// URL.
pub(crate) fn redact_text(text: &str) -> String {
    let ends = |c: char| c.is_whitespace() || "\"'`<>".contains(c);
    let mut out = String::with_capacity(text.len());
    for piece in text.split_inclusive(ends) {
        let (word, end) = piece.split_at(piece.find(ends).unwrap_or(piece.len()));
        match word.split_once('?') {
            _ if word.contains("://") => out.push_str(&redact(word)),
            Some((path, query)) if query.contains('=') => out.push_str(path),
            _ => out.push_str(word),
        }
        out.push_str(end);
    }
    out
}

/// Returns true if the host of the URL is this machine or in a private network. Host names are not resolved.
pub(crate) fn is_private(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => is_private_ip(ip.into()),
        Some(Host::Ipv6(ip)) => is_private_ip(ip.into()),
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            // The metadata servers of some clouds have names in `.internal`. A name without a dot is of the local
            // network; the other endings are reserved for local names.
            !name.contains('.')
                || [
                    ".localhost",
                    ".internal",
                    ".local",
                    ".lan",
                    ".home.arpa",
                    ".intranet",
                    ".corp",
                    ".private",
                ]
                .iter()
                .any(|ending| name.ends_with(ending))
        }
        None => true,
    }
}

/// Returns true if the host is a link-local address, as that of the metadata server of the large clouds, which hands out
/// keys: no file is there.
pub(crate) fn is_link_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_link_local(),
        Some(Host::Ipv6(ip)) => match embedded(ip) {
            Some(ip) => ip.is_link_local(),
            // Also the address of Amazon's metadata server.
            None => {
                ip.is_unicast_link_local() || ip.segments() == [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254]
            }
        },
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            matches!(
                &*name,
                "metadata"
                    | "metadata.google.internal"
                    | "instance-data"
                    | "instance-data.ec2.internal"
            )
        }
        None => false,
    }
}

/// Returns the IPv4 address inside an IPv6 address that stands for one: mapped, compatible, translated (NAT64), 6to4.
fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = ip.segments();
    let of = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0xffff] | [0, 0, 0, 0, 0xffff, 0] | [0x64, 0xff9b, 0, 0, 0, 0] => {
            Some(of(g, h))
        }
        [0, 0, 0, 0, 0, 0] if g != 0 => Some(of(g, h)),
        [0x2002, high, low, ..] => Some(of(high, low)),
        _ => None,
    }
}

pub(crate) fn is_private_ip(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_private_v4(ip),
        IpAddr::V6(ip) => match embedded(ip) {
            Some(ip) => is_private_v4(ip),
            None => {
                ip.is_loopback()
                    || ip.is_unspecified()
                    || ip.is_unique_local()
                    || ip.is_unicast_link_local()
                    || ip.is_multicast()
            }
        },
    }
}

fn is_private_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    ip.is_private()
        || ip.is_loopback()
        // Includes 169.254.169.254, the metadata server of the large clouds.
        || ip.is_link_local()
        || ip.is_broadcast()
        || ip.is_multicast()
        // This host, the address space of carriers, of protocols, of benchmarks, reserved.
        || a == 0
        || a == 100 && (64..128).contains(&b)
        || a == 192 && b == 0 && c == 0
        || a == 198 && (b == 18 || b == 19)
        || a >= 240
}

fn bucket_and_key(text: &str, path: &str) -> Result<(String, String)> {
    // A query string or a fragment is not part of an object key.
    let path = path.split(['?', '#']).next().unwrap_or(path);
    match path.split_once('/') {
        Some((bucket, key)) if !bucket.is_empty() && !key.is_empty() => {
            Ok((bucket.to_owned(), key.to_owned()))
        }
        _ => Err(invalid("expected a bucket and a key").at(redact(text))),
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

impl FromStr for Location {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact(&self.to_href()))
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Location({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_has_a_vsi_path_and_reads_it_back() {
        for (href, vsi) in [
            ("s3://b/k/x.tif", "/vsis3/b/k/x.tif"),
            ("gs://b/k/x.tif", "/vsigs/b/k/x.tif"),
            ("az://c/k/x.tif", "/vsiaz/c/k/x.tif"),
            ("https://h/x.tif?sig=1", "/vsicurl/https://h/x.tif?sig=1"),
            ("file:///d/x.tif", "/d/x.tif"),
        ] {
            let location = Location::parse(href).unwrap();
            assert_eq!(location.to_vsi(), vsi, "{href}");
            assert_eq!(Location::parse(vsi).unwrap(), location, "{vsi}");
        }
    }

    #[test]
    fn a_signature_is_never_printed() {
        let location = Location::parse("https://me:pw@h/x.tif?sig=SECRET#SECRET").unwrap();
        assert_eq!(location.to_string(), "https://h/x.tif");
        assert_eq!(format!("{location:?}"), "Location(https://h/x.tif)");
        for text in [
            "ftp://h/x.tif?sig=SECRET",
            "file://h/x.tif?sig=SECRET",
            "/vsicurl?url=https%3A%2F%2Fh&sig=SECRET",
        ] {
            let err = Location::parse(text).unwrap_err();
            assert!(!format!("{err} {err:?}").contains("SECRET"), "{text}");
        }
    }

    #[test]
    fn an_https_url_of_s3_names_bucket_key_and_region() {
        for (href, bucket, region) in [
            (
                "https://sentinel-cogs.s3.us-west-2.amazonaws.com/a/b.tif",
                "sentinel-cogs",
                "us-west-2",
            ),
            (
                "https://my.b.s3-eu-west-1.amazonaws.com/a/b.tif",
                "my.b",
                "eu-west-1",
            ),
            ("https://bucket.s3.amazonaws.com/a/b.tif", "bucket", ""),
            (
                "https://s3.us-west-2.amazonaws.com/bucket/a/b.tif",
                "bucket",
                "us-west-2",
            ),
        ] {
            let s3 = Location::parse(href).unwrap().as_s3().unwrap();
            assert_eq!(
                (
                    s3.bucket.as_str(),
                    s3.key.as_str(),
                    s3.region.as_deref().unwrap_or("")
                ),
                (bucket, "a/b.tif", region),
                "{href}"
            );
        }
        for href in [
            "https://h/a.tif",
            "https://b.s3.amazonaws.com/a.tif?X-Amz-Signature=1",
        ] {
            assert_eq!(Location::parse(href).unwrap().as_s3(), None, "{href}");
        }
    }

    #[test]
    fn items_that_were_handed_over_name_no_file_but_the_users_own() {
        let own = |path: &Path| path.starts_with("/own");
        for href in [
            "/own/x.tif",
            "file:///own/x.tif",
            "s3://b/x.tif",
            "/vsis3/b/x.tif",
            "http://127.0.0.1/x.tif",
            "https://h/x.tif?sig=1",
            "/vsicurl/http://10.0.0.1/x.tif",
        ] {
            assert!(Location::parse_handed_over(href, own).is_ok(), "{href}");
        }
        for href in [
            "/etc/passwd",
            "file:///etc/passwd",
            "FILE:///etc/passwd",
            "/vsicurl/file:///etc/passwd",
            "x.tif",
            "/vsicurl//etc/passwd",
            "/vsizip//own/x.zip",
            "/vsigzip//etc/x",
            "http://169.254.169.254/x.tif",
            "https://h/x.vrt",
            "GTIFF_DIR:1:/own/x.tif",
            "//host/x",
            "/vsirss/1/s3/b",
        ] {
            assert!(Location::parse_handed_over(href, own).is_err(), "{href}");
        }
    }

    #[test]
    fn a_catalogue_on_the_network_names_no_local_thing() {
        for href in [
            "/etc/passwd",
            "file:///etc/passwd",
            "file:/etc/passwd",
            "../../x.tif",
            "/vsizip//etc/x.zip",
            "/vsicurl/https://h/x.tif",
            "http://h/x.tif",
            "https://127.0.0.1/x.tif",
            "https://[::1]/x.tif",
            "https://[::ffff:10.0.0.1]/x.tif",
            "https://169.254.169.254/latest/meta-data",
            "https://localhost/x.tif",
            "https://localhost./x.tif",
            "https://LOCALHOST:8443/x.tif",
            "https://a.localhost/x.tif",
            "https://2130706433/x.tif",
            "https://0x7f.1/x.tif",
            "https://017700000001/x.tif",
            "https://127.1/x.tif",
            "https://0.0.0.0/x.tif",
            "https://100.64.0.1/x.tif",
            "https://198.18.0.1/x.tif",
            "https://[::127.0.0.1]/x.tif",
            "https://[64:ff9b::7f00:1]/x.tif",
            "https://[2002:7f00:1::]/x.tif",
            "https://[fe80::1]/x.tif",
            "https://[fd00:ec2::254]/latest",
            "https://minio/x.tif",
            "https://nas.local/x.tif",
            "https://metadata.google.internal/x.tif",
            "FILE:///etc/passwd",
            "File:/etc/passwd",
            "file:etc/passwd",
            "//host/x.tif",
            "\\\\host\\share\\x.tif",
            "C:\\x.tif",
            "/vsizip//vsicurl/https://h/x.zip/x.tif",
            "/vsisubfile/0_10,/etc/passwd",
            "%2Fvsizip%2Fetc",
            "https:\\\\127.0.0.1\\x.tif",
            "https://h/evil.vrt",
            "s3://b/evil.VRT",
            "https://h/evil.vrt?x=1",
            "GTIFF_DIR:1:/etc/x.tif",
            "ftp://h/x.tif",
        ] {
            assert!(
                Location::parse_from(href, Trust::Network).is_err(),
                "{href}"
            );
        }
        assert!(Location::parse_from("https://h.org/x.tif", Trust::Network).is_ok());
        assert!(Location::parse_from("http://127.0.0.1/x.tif", Trust::PrivateNetwork).is_ok());
        // A catalogue of the local network may name its own, but nothing where only keys are.
        for href in [
            "http://169.254.169.254/x.tif",
            "http://[::ffff:169.254.169.254]/x.tif",
            "/d/x.tif",
        ] {
            assert!(
                Location::parse_from(href, Trust::PrivateNetwork).is_err(),
                "{href}"
            );
        }
        let of = |url: &str| Trust::of_catalogue(&Url::parse(url).unwrap());
        assert_eq!(of("http://stac.example.org/"), Trust::PlainNetwork);
        assert_eq!(of("http://127.0.0.1:9/"), Trust::PrivateNetwork);
        assert_eq!(of("https://catalogue/"), Trust::PrivateNetwork);
        assert!(Location::parse_from("http://h.org/x.tif", Trust::PlainNetwork).is_ok());
        assert!(Location::parse_from("http://10.0.0.1/x.tif", Trust::PlainNetwork).is_err());
        assert!(Location::parse_from("/d/x.tif", Trust::PrivateNetwork).is_err());
        assert!(Location::parse_from("/d/x.tif", Trust::User).is_ok());
    }
}
