//! Which assets are meant, and where their files live.

use ::stac::{Asset, Item, ItemCollection};

use super::Origin;
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    products::Access,
    session::Session,
    stac::{self, Selection},
};

/// One asset of one item.
#[derive(Debug)]
pub(super) struct Chosen<'a> {
    /// The place of the item in its collection.
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
    /// Returns where the asset's file lives, and tells the session's stores how it is reached.
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
                    "item `{}` has no asset `{}`, only {}",
                    printable(&self.item.id),
                    printable(&self.key),
                    printable(&known.join(", "))
                ),
            )
        })?;
        let named = Location::parse_from(&asset.href, origin.trust)?;
        let stores = session.stores();
        let address = named.as_s3();
        let location = match &address {
            Some(s3) => Location::S3 {
                bucket: s3.bucket.clone(),
                key: s3.key.clone(),
            },
            None => named,
        };
        let said = said_of(self.item, asset);
        let mut access = stores.access(&location);
        if access.region.is_none() {
            access.region = address.and_then(|s3| s3.region).or(said.region);
        }
        access.requester_pays |= said.requester_pays;
        if matches!(location, Location::S3 { .. }) && access != stores.access(&location) {
            stores.set_access(&location, access);
        }
        if let Some(sas) = origin.sas_for(self.item) {
            stores.sign_with(&location, &sas);
        }
        Ok(location)
    }
}

/// Returns what an item says of an asset's bucket.
fn said_of(item: &Item, asset: &Asset) -> Access {
    Access {
        region: stac::storage_region(item, asset).filter(|region| is_region(region)),
        requester_pays: stac::requester_pays(item, asset),
        ..Access::default()
    }
}

/// A region becomes a part of a host name.
fn is_region(text: &str) -> bool {
    (1..=40).contains(&text.len())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// Returns text from outside as it may stand in one line of a message.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .take(200)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn item(properties: Value, assets: Value) -> Item {
        serde_json::from_value(json!({
            "type": "Feature", "stac_version": "1.0.0", "id": "x", "geometry": null,
            "properties": properties, "links": [], "assets": assets,
        }))
        .unwrap()
    }

    #[test]
    fn the_storage_extension_is_read_in_both_versions() {
        let date = "2020-01-01T00:00:00Z";
        for (properties, asset) in [
            (
                json!({"datetime": date}),
                json!({"href": "s3://b/k", "storage:requester_pays": true, "storage:region": "us-west-2"}),
            ),
            (
                json!({"datetime": date, "storage:requester_pays": true, "storage:region": "us-west-2"}),
                json!({"href": "s3://b/k"}),
            ),
            (
                json!({"datetime": date, "storage:schemes": {
                    "aws": {"type": "aws-s3", "region": "us-west-2", "requester_pays": true}}}),
                json!({"href": "s3://b/k", "storage:refs": ["aws"]}),
            ),
        ] {
            let item = item(properties, json!({"a": asset}));
            let said = said_of(&item, &item.assets["a"]);
            assert_eq!(said.region.as_deref(), Some("us-west-2"), "{item:?}");
            assert!(said.requester_pays, "{item:?}");
        }
        let odd = item(
            json!({"datetime": date, "storage:requester_pays": true}),
            json!({"a": {"href": "s3://b/k", "storage:requester_pays": false,
                         "storage:region": "x.evil.example/"}}),
        );
        assert_eq!(said_of(&odd, &odd.assets["a"]), Access::default());
    }
}
