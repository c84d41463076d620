//! The items that the STAC API serves: `stac-server`'s memory backend, and the items as JSON beside
//! it for what that backend cannot filter.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, RwLock},
};

use anyhow::{Context, Result};
use futures::executor::block_on;
use serde_json::Value;
use stac::{Collection, Item, api::TransactionClient};
use stac_server::MemoryBackend;

#[derive(Clone, Debug, Default)]
pub(crate) struct Catalogue {
    pub(crate) backend: MemoryBackend,
    items: Arc<RwLock<Vec<Arc<Entry>>>>,
    collections: Arc<RwLock<BTreeSet<String>>>,
}

/// An item, parsed once and as it is sent.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) item: Item,
    pub(crate) json: Value,
}

impl Catalogue {
    /// Adds an item, and its collection if it is new.
    pub(crate) fn add(&self, json: Value) -> Result<()> {
        let item: Item = serde_json::from_value(json.clone()).context("not a STAC item")?;
        let collection = item
            .collection
            .clone()
            .context("the item names no collection")?;
        // The memory backend never waits; its clones share one store.
        let mut backend = self.backend.clone();
        let mut collections = self
            .collections
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if collections.insert(collection.clone()) {
            let description = format!("Synthetic items of {collection}");
            block_on(backend.add_collection(Collection::new(&collection, description)))?;
        }
        block_on(backend.add_item(item.clone()))?;
        let mut items = self.items.write().unwrap_or_else(PoisonError::into_inner);
        items.push(Arc::new(Entry { item, json }));
        Ok(())
    }

    /// Returns all items, in the order they were added.
    pub(crate) fn items(&self) -> Vec<Arc<Entry>> {
        self.items
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
