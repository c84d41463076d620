//! The selected assets of items, and the locations of their files.

use ::stac::{Asset, Item, ItemCollection};

use super::Origin;
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    session::Session,
    stac::Selection,
};

/// One asset of one item.
#[derive(Debug)]
pub(super) struct Chosen<'a> {
    /// The index of the item in its collection.
    pub(super) index: usize,
    pub(super) item: &'a Item,
    pub(super) key: String,
    /// None if the item has no such asset.
    pub(super) asset: Option<&'a Asset>,
}

/// Returns the selected assets of every item.
pub(super) fn choose<'a>(items: &'a ItemCollection, selection: &'a Selection) -> Vec<Chosen<'a>> {
    let mut chosen = Vec::new();
    for (index, item) in items.items.iter().enumerate() {
        let assets = selection.of(item).into_iter();
        chosen.extend(assets.map(|(key, asset)| Chosen {
            index,
            item,
            key: key.to_owned(),
            asset,
        }));
    }
    chosen
}

impl Chosen<'_> {
    /// Returns the location of the asset's file, and registers its access with the session's stores.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] for an asset that the item lacks; [`ErrorKind::Denied`] and
    /// [`ErrorKind::InvalidInput`] for an href that its catalogue may not name.
    pub(super) fn locate(&self, session: &Session, origin: &Origin) -> Result<Location> {
        let asset = self.asset.ok_or_else(|| {
            let known: Vec<_> = self.item.assets.keys().map(String::as_str).collect();
            Error::new(
                ErrorKind::NotFound,
                format!(
                    "item `{}` has no asset `{}`; it has {}",
                    printable(&self.item.id),
                    printable(&self.key),
                    printable(&known.join(", "))
                ),
            )
        })?;
        let named = Location::parse_from(&asset.href, origin.trust)?;
        let stores = session.stores();
        Ok(stores.reach(self.item, asset, named, origin.trust, origin.sas.as_ref()))
    }
}

/// Returns text of a catalogue, without control characters and shortened, for one line of a message.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .take(200)
        .collect()
}
