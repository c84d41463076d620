//! What a search found, and how it went.

use std::{borrow::Cow, collections::BTreeMap};

use stac::{Asset, Item, ItemCollection};

use crate::{
    error::Result,
    location::Trust,
    products::{Manifest, Source},
    session::Session,
    stac::Skipped,
};

/// Items, with the bands selected and a report of how they were found.
///
/// The items' asset hrefs are absolute.
#[derive(Clone, Debug)]
pub struct QueryResult {
    pub(crate) session: Session,
    /// The source that was searched; none if the items came from a file or a static catalogue.
    pub(crate) source: Option<Source>,
    /// What hrefs of the items may name.
    pub(crate) trust: Trust,
    pub(crate) items: ItemCollection,
    pub(super) selection: Selection,
    pub(super) report: SearchReport,
}

impl QueryResult {
    /// Returns the items, in the server's order.
    pub fn items(&self) -> &ItemCollection {
        &self.items
    }

    /// Returns the items alone.
    pub fn into_items(self) -> ItemCollection {
        self.items
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.items.items.len()
    }

    /// Returns true if nothing was found.
    pub fn is_empty(&self) -> bool {
        self.items.items.is_empty()
    }

    /// Returns how the search went: pages, what was left out and why.
    pub fn report(&self) -> &SearchReport {
        &self.report
    }

    /// Returns the keys of the selected assets, in the order asked; empty if none was named and
    /// there is no manifest, when each item's own assets decide.
    pub fn bands(&self) -> &[String] {
        self.selection.keys()
    }

    /// Returns the session.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the selected assets that an item has, with their keys.
    ///
    /// Without a manifest and without named bands these are the rasters among the item's assets,
    /// without quality bands, thumbnails and previews, as far as roles, media types and keys tell.
    pub fn assets<'a>(&'a self, item: &'a Item) -> Vec<(&'a str, &'a Asset)> {
        self.selection.of(item)
    }

    /// Selects other bands, by asset key.
    #[must_use]
    pub fn with_bands(mut self, keys: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.selection = Selection::Named(keys.into_iter().map(Into::into).collect());
        self
    }

    /// Selects other bands by their canonical names in a manifest; none: all but quality bands.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) that lists every name that is
    /// not known, and the known ones.
    pub fn with_canonical_bands(
        mut self,
        manifest: &Manifest,
        names: &[impl AsRef<str>],
    ) -> Result<Self> {
        let (bands, named) = match names {
            [] => (manifest.default_bands(), false),
            names => (manifest.resolve_canonical(names)?, true),
        };
        let keys = bands.iter().map(|band| band.asset.clone()).collect();
        self.selection = match named {
            true => Selection::Named(keys),
            false => Selection::Default(keys),
        };
        Ok(self)
    }
}

/// How a search went.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SearchReport {
    /// Requests sent, with those that failed.
    pub requests: u64,
    /// Bytes of the pages that arrived.
    pub bytes: u64,
    /// Pages that arrived.
    pub pages: usize,
    /// How many items match, as the server counts; it may change from page to page.
    pub matched: Option<u64>,
    /// Items the server returned.
    pub returned: usize,
    /// Items that came more than once, and are kept once.
    pub duplicates: usize,
    /// Items left out because they do not match the query: the reason, and how many.
    pub dropped: BTreeMap<String, usize>,
    /// Filters that the server was asked for and did not apply. They were applied here.
    pub filters_ignored: Vec<String>,
    /// Filters that the server does not offer. They were applied here.
    pub filters_here: Vec<String>,
    /// Items and assets that cannot be used: without an address, or not what a STAC item is; and
    /// named bands that an item does not have.
    pub skipped: Vec<Skipped>,
    /// True if all that the server has was looked at, or as many items as the limit asks were
    /// found.
    pub complete: bool,
    /// Why the search stopped before its end.
    pub stopped: Option<String>,
}

impl SearchReport {
    /// Returns how many items were left out because they do not match the query.
    pub fn dropped_total(&self) -> usize {
        self.dropped.values().sum()
    }

    pub(super) fn drop_for(&mut self, reason: impl Into<String>) {
        *self.dropped.entry(reason.into()).or_default() += 1;
    }

    pub(super) fn ignore(&mut self, filter: impl Into<String>) {
        let filter = filter.into();
        if !self.filters_ignored.contains(&filter) {
            self.filters_ignored.push(filter);
        }
    }
}

/// Which assets of an item are meant.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Selection {
    /// Those the user named: one that an item lacks is worth a word.
    Named(Vec<String>),
    /// Those the manifest offers; not every item has all.
    Default(Vec<String>),
    /// Whatever looks like a raster.
    Guess,
}

impl Selection {
    pub(super) fn keys(&self) -> &[String] {
        match self {
            Self::Named(keys) | Self::Default(keys) => keys,
            Self::Guess => &[],
        }
    }

    fn of<'a>(&'a self, item: &'a Item) -> Vec<(&'a str, &'a Asset)> {
        match self {
            Self::Named(keys) | Self::Default(keys) => keys
                .iter()
                .filter_map(|key| Some((key.as_str(), item.assets.get(key)?)))
                .collect(),
            Self::Guess => item
                .assets
                .iter()
                .filter(|(key, asset)| is_data(key, asset))
                .map(|(key, asset)| (key.as_str(), asset))
                .collect(),
        }
    }

    /// Returns the bands that the user named and an item lacks.
    pub(super) fn missing(&self, item: &Item) -> Vec<Skipped> {
        let Self::Named(keys) = self else {
            return Vec::new();
        };
        keys.iter()
            .filter(|key| !item.assets.contains_key(*key))
            .map(|key| Skipped {
                item: item.id.clone(),
                asset: Some(key.clone()),
                reason: "the item has no such asset".to_owned(),
            })
            .collect()
    }
}

/// Returns true if an asset looks like a raster of measurements.
fn is_data(key: &str, asset: &Asset) -> bool {
    const NOT_DATA: [&str; 14] = [
        "thumbnail",
        "overview",
        "visual",
        "metadata",
        "tiles",
        "cloud",
        "cloud-shadow",
        "snow-ice",
        "water-mask",
        "land-water",
        "data-mask",
        "saturation",
        "quality-mask",
        "mask",
    ];
    let has = |role: &str| asset.roles.iter().any(|one| one == role);
    if NOT_DATA.iter().any(|role| has(role)) {
        return false;
    }
    let kind = match &asset.r#type {
        Some(kind) => Cow::Owned(kind.to_lowercase()),
        None => Cow::Borrowed(""),
    };
    let path = asset.href.split(['?', '#']).next().unwrap_or_default();
    let ending = path.rsplit('.').next().unwrap_or_default().to_lowercase();
    let raster = kind.contains("tiff")
        || kind.contains("jp2")
        || kind.is_empty() && matches!(ending.as_str(), "tif" | "tiff" | "jp2");
    let key = key.to_lowercase();
    let quality = [
        "qa",
        "fmask",
        "mask",
        "scl",
        "thumbnail",
        "preview",
        "visual",
    ]
    .iter()
    .any(|word| key.split(['_', '-', '.', ':']).any(|part| part == *word));
    raster && !quality
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn without_a_manifest_rasters_of_measurements_are_meant() {
        let item: Item = serde_json::from_value(json!({
            "type": "Feature", "stac_version": "1.0.0", "id": "x", "geometry": null,
            "properties": { "datetime": null }, "links": [],
            "assets": {
                "red": { "href": "a/red.tif", "type": "image/tiff; application=geotiff" },
                "nir": { "href": "a/nir.TIF?sig=1" },
                "oa_fmask": { "href": "a/fmask.tif" },
                "qa_pixel": { "href": "a/qa.tif", "type": "image/tiff" },
                "shadow": { "href": "a/s.tif", "roles": ["data", "cloud-shadow"] },
                "thumbnail": { "href": "a/t.jpg", "type": "image/jpeg" },
                "doc": { "href": "a/doc.json" },
            },
        }))
        .unwrap();
        let keys: Vec<_> = Selection::Guess
            .of(&item)
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        assert_eq!(keys, ["red", "nir"]);
    }
}
