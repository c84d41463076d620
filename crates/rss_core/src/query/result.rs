//! The result of a search, and its report.

use std::collections::BTreeMap;

use stac::{Asset, Item, ItemCollection};

use crate::{
    error::{Error, ErrorKind, Result},
    location::Trust,
    products::{Manifest, Naming, Source},
    session::Session,
    stac::{Selection, Skipped, nothing_guessed, without_role},
};

/// Items, with the selected bands and a report of the search.
///
/// The items' asset hrefs are absolute.
#[derive(Clone, Debug)]
pub struct QueryResult {
    pub(crate) session: Session,
    /// The source that was searched; none if the items came from a file or a static catalogue.
    pub(crate) source: Option<Source>,
    /// The trust in the items, which limits their hrefs.
    pub(crate) trust: Trust,
    pub(crate) items: ItemCollection,
    pub(crate) selection: Selection,
    /// The user's manifest; none if the built-in ones apply.
    pub(crate) manifest: Option<Manifest>,
    pub(super) report: SearchReport,
}

impl QueryResult {
    /// Returns the items, in the server's order.
    pub fn items(&self) -> &ItemCollection {
        &self.items
    }

    /// Returns the items, and drops the rest.
    pub fn into_items(self) -> ItemCollection {
        self.items
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.items.items.len()
    }

    /// Returns true if there are no items.
    pub fn is_empty(&self) -> bool {
        self.items.items.is_empty()
    }

    /// Returns the report of the search: pages, items left out and the reasons.
    pub fn report(&self) -> &SearchReport {
        &self.report
    }

    /// Returns the keys of the selected assets, in the order requested; empty if none was named and
    /// there is no manifest: the assets are then selected per item.
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
    /// without QA bands, thumbnails and previews, judged by roles, media types and keys.
    pub fn assets<'a>(&'a self, item: &'a Item) -> Vec<(&'a str, &'a Asset)> {
        let found = self.selection.of(item).into_iter();
        found
            .filter_map(|(key, asset)| Some((key, asset?)))
            .collect()
    }

    /// Says which assets are not selected though they look like measurements: they have no role, and others of their item
    /// have the role `data`. Naming the bands selects them. Empty where bands are named, or a manifest names them.
    pub fn unselected(&self) -> Vec<String> {
        if self.selection != Selection::Guess {
            return Vec::new();
        }
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for key in self.items.items.iter().flat_map(without_role) {
            *counts.entry(key).or_default() += 1;
        }
        let all = counts.into_iter();
        all.map(|(key, items)| {
            format!(
                "asset {} of {items} items has no role and is left out, as others have the role data",
                key.escape_debug()
            )
        })
        .collect()
    }

    /// Checks that items have any of the bands, where none are named.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] naming the rasters that are left out, none of which looks like measurements.
    pub(crate) fn check_guess(&self) -> Result<()> {
        if self.selection != Selection::Guess || self.items.items.is_empty() {
            return Ok(());
        }
        let why = nothing_guessed(&self.items.items);
        why.map_or(Ok(()), |why| Err(Error::new(ErrorKind::InvalidInput, why)))
    }

    /// Sets the manifest of the user, in place of the built-in ones.
    #[must_use]
    pub fn with_manifest(mut self, manifest: Manifest) -> Self {
        self.manifest = Some(manifest);
        self
    }

    /// Selects other bands, by asset key. Of an asset with several bands all are taken; `key:2` (counted from 1) or
    /// `key:red` is one of them.
    #[must_use]
    pub fn with_bands(mut self, keys: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.selection = Selection::Named(keys.into_iter().map(Into::into).collect());
        self
    }

    /// Selects other bands by their canonical names in a manifest, which stays the manifest of the result; without names
    /// all but QA bands. `name:2` is one band of an asset with several.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) listing every unknown name, and
    /// the known ones.
    pub fn with_canonical_bands(
        mut self,
        manifest: &Manifest,
        names: &[impl AsRef<str>],
    ) -> Result<Self> {
        self.selection = match names {
            [] => {
                let bands = manifest.default_bands().into_iter();
                Selection::Default(bands.map(|band| band.asset.clone()).collect())
            }
            names => Selection::Named(manifest.selected(names, Naming::Canonical)?),
        };
        // A built-in one is found again by each item, and trusted more: no file is opened to check it.
        let mut items = self.items.items.iter();
        if items.any(|item| Manifest::of_item(item) != Some(manifest)) {
            self.manifest = Some(manifest.clone());
        }
        Ok(self)
    }
}

/// The report of a search.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SearchReport {
    /// Requests sent, including failed ones.
    pub requests: u64,
    /// Bytes of the pages received.
    pub bytes: u64,
    /// Pages received.
    pub pages: usize,
    /// The number of matching items that the server reports; it may change from page to page.
    pub matched: Option<u64>,
    /// Items the server returned.
    pub returned: usize,
    /// Repeated items, each of which is returned once.
    pub duplicates: usize,
    /// Ids of those whose files are others than those of the item that is returned, in files and static catalogues.
    pub conflicts: Vec<String>,
    /// Items left out because they do not match the query: the reason, and the number.
    pub dropped: BTreeMap<String, usize>,
    /// Filters that were sent to the server, and that it did not apply. They were applied by the client.
    pub filters_ignored: Vec<String>,
    /// Filters that the server does not support. They were applied by the client.
    pub filters_here: Vec<String>,
    /// Items and assets that cannot be used: without an href, or not valid STAC; and
    /// named bands that an item does not have.
    pub skipped: Vec<Skipped>,
    /// What a user should know of how the query was understood.
    pub notes: Vec<String>,
    /// True if all matching items were fetched, or as many as the limit.
    pub complete: bool,
    /// The reason why the search stopped early.
    pub stopped: Option<String>,
}

impl SearchReport {
    /// Returns the number of items left out because they do not match the query.
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
