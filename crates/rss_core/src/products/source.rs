//! A STAC API, and its quirks as data.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::OnceLock};

use serde::Deserialize;
use url::Url;

use super::{Access, SOURCES};
use crate::{
    error::{Error, ErrorKind, Result},
    location::redact,
};

/// [Digital Earth Australia](https://knowledge.dea.ga.gov.au), by Geoscience Australia.
pub const DEA: Source = Source::known("dea");
/// [Earth Search](https://element84.com/earth-search/) v1, by Element 84.
pub const ELEMENT84: Source = Source::known("element84");
/// [Planetary Computer](https://planetarycomputer.microsoft.com), by Microsoft.
pub const PLANETARY_COMPUTER: Source = Source::known("planetary-computer");

/// A STAC API to search.
///
/// ```
/// use rss_core::{DEA, Source};
///
/// assert_eq!("dea".parse::<Source>()?, DEA);
/// let mirror = Source::api("http://127.0.0.1:8080/stac")?.like(&DEA);
/// assert_eq!(mirror.url(), "http://127.0.0.1:8080/stac");
/// # Ok::<_, rss_core::Error>(())
/// ```
///
/// `Display` and `Debug` leave out the query string of the URL, which may hold a key.
#[derive(Clone, PartialEq, Eq)]
pub struct Source {
    /// The built-in source whose dialect and products this one has.
    known: Option<&'static str>,
    /// The API's root, if it differs from that of the known source.
    url: Option<String>,
}

impl Source {
    const fn known(name: &'static str) -> Self {
        Self {
            known: Some(name),
            url: None,
        }
    }

    /// Creates a source from the URL of the landing page of any STAC API.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if it is not an `http` or `https` URL.
    pub fn api(url: &str) -> Result<Self> {
        let parsed = Url::parse(url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"));
        if parsed.is_none() {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "source `{}` is not one of {} or the http(s) URL of a STAC API",
                    redact(url),
                    names().join(", ")
                ),
            ));
        }
        Ok(Self {
            known: None,
            url: Some(url.trim_end_matches('/').to_owned()),
        })
    }

    /// Uses the products, filters and paging of another source for this API: for a mirror of it, or a test server.
    #[must_use]
    pub fn like(mut self, other: &Self) -> Self {
        // Without a URL of its own, `url()` is that of the known source, which is replaced below.
        if self.url.is_none() {
            self.url = Some(self.url().to_owned());
        }
        self.known = other.known;
        self
    }

    /// Returns the name of a built-in source, else the URL.
    pub fn name(&self) -> &str {
        match (self.known, &self.url) {
            (Some(name), _) => name,
            (None, Some(url)) => url,
            (None, None) => "",
        }
    }

    /// Returns the root of the API, without a trailing slash.
    pub fn url(&self) -> &str {
        match &self.url {
            Some(url) => url,
            None => &self.dialect().url,
        }
    }

    /// Returns the dialect of this API.
    pub(crate) fn dialect(&self) -> &'static Dialect {
        static UNKNOWN: OnceLock<Dialect> = OnceLock::new();
        self.known
            .and_then(|name| dialects().iter().find(|dialect| dialect.name == name))
            // The default dialect reads the API's capabilities from its landing page.
            .unwrap_or_else(|| UNKNOWN.get_or_init(Dialect::default))
    }
}

impl FromStr for Source {
    type Err = Error;

    /// Parses the name of a built-in source or the URL of an API.
    fn from_str(text: &str) -> Result<Self> {
        match dialects().iter().find(|dialect| dialect.name == text) {
            Some(dialect) => Ok(Self::known(&dialect.name)),
            None => Self::api(text),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact(self.name()))
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("known", &self.known)
            .field("url", &self.url.as_deref().map(redact))
            .finish()
    }
}

/// The language in which a search can filter by properties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FilterLanguage {
    /// `filter`, as CQL2 JSON.
    Cql2,
    /// The `query` extension.
    Query,
    /// The language that the landing page declares in `conformsTo`.
    #[default]
    Discover,
}

/// The source of SAS tokens.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sas {
    /// The URL of a token, with `{account}` and `{container}` as placeholders.
    pub(crate) token_url: String,
    /// The suffix of host names that need a token; the account precedes it.
    pub(crate) host_suffix: String,
    /// Accounts that are public and must not be signed.
    #[serde(default)]
    pub(crate) public_accounts: Vec<String>,
}

/// The dialect of one provider's API.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Dialect {
    pub(crate) name: String,
    pub(crate) url: String,
    /// The number of items per page; with none the server chooses.
    #[serde(default)]
    pub(crate) page_size: Option<u32>,
    /// The largest page size that the server accepts.
    #[serde(default)]
    pub(crate) max_page_size: Option<u32>,
    #[serde(default)]
    pub(crate) filter: FilterLanguage,
    /// Whether `ids` must be UUIDs.
    #[serde(default)]
    pub(crate) ids_are_uuids: bool,
    #[serde(default)]
    pub(crate) sas: Option<Sas>,
    #[serde(default)]
    pub(crate) buckets: BTreeMap<String, Access>,
}

/// Returns the built-in dialects.
#[expect(
    clippy::expect_used,
    reason = "the files are embedded, and a test reads each"
)]
pub(super) fn dialects() -> &'static [Dialect] {
    static DIALECTS: OnceLock<Vec<Dialect>> = OnceLock::new();
    DIALECTS.get_or_init(|| {
        SOURCES
            .iter()
            .map(|text| serde_saphyr::from_str(text).expect("an embedded source"))
            .collect()
    })
}

fn names() -> Vec<&'static str> {
    dialects()
        .iter()
        .map(|dialect| dialect.name.as_str())
        .collect()
}

/// A product, by a name that is the same for every provider.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Collection {
    /// Sentinel-2 surface reflectance.
    Sentinel2,
    /// Sentinel-2 surface reflectance, Collection 1 (Earth Search).
    Sentinel2C1,
    /// Landsat 5, 7, 8 and 9 surface reflectance.
    Landsat,
    /// Landsat 5 alone.
    Landsat5,
    /// Landsat 7 alone.
    Landsat7,
    /// Landsat 8 alone.
    Landsat8,
    /// Landsat 9 alone.
    Landsat9,
    /// A collection by the id it has in the API.
    Id(String),
}

impl Collection {
    const NAMED: [(&'static str, Self); 7] = [
        ("sentinel2", Self::Sentinel2),
        ("sentinel2-c1", Self::Sentinel2C1),
        ("landsat", Self::Landsat),
        ("landsat5", Self::Landsat5),
        ("landsat7", Self::Landsat7),
        ("landsat8", Self::Landsat8),
        ("landsat9", Self::Landsat9),
    ];

    /// Returns the name that the command line and manifests use.
    pub fn name(&self) -> &str {
        match self {
            Self::Id(id) => id,
            named => Self::NAMED
                .iter()
                .find(|(_, collection)| collection == named)
                .map_or("", |(name, _)| name),
        }
    }
}

impl FromStr for Collection {
    type Err = Error;

    /// Parses a product's name; anything else is a collection's id.
    fn from_str(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Err(Error::new(ErrorKind::InvalidInput, "an empty collection"));
        }
        let named = Self::NAMED.iter().find(|(name, _)| *name == text);
        Ok(match named {
            Some((_, collection)) => collection.clone(),
            None => Self::Id(text.to_owned()),
        })
    }
}

impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_source_has_a_constant() {
        let constants = [DEA, ELEMENT84, PLANETARY_COMPUTER];
        assert_eq!(constants.each_ref().map(Source::name).to_vec(), names());
        for source in constants {
            assert!(source.url().starts_with("https://"), "{source}");
            assert_eq!(source.name().parse::<Source>().unwrap(), source);
        }
    }

    #[test]
    fn an_unknown_source_names_the_known_ones() {
        let err = "dae".parse::<Source>().unwrap_err();
        assert_eq!(
            err.to_string(),
            "source `dae` is not one of dea, element84, planetary-computer or the http(s) URL of a \
             STAC API"
        );
    }
}
