//! What a search found, and how it went.

use std::collections::BTreeMap;

use stac::{Asset, Item, ItemCollection};

use crate::{
    error::Result,
    location::Trust,
    products::{Manifest, Source},
    session::Session,
    stac::{Selection, Skipped},
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
    pub(crate) selection: Selection,
    /// The user's own; none if the built-in ones hold.
    pub(crate) manifest: Option<Manifest>,
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
        let found = self.selection.of(item).into_iter();
        found
            .filter_map(|(key, asset)| Some((key, asset?)))
            .collect()
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
