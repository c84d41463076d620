//! What was found, kept to be used once more: items and selection without secrets, with the versions of files.

use std::{path::Path, time::UNIX_EPOCH};

use serde_json::{Map, Value, json};
use stac::{Asset, Item};

use super::QueryResult;
use crate::{
    error::{Error, ErrorKind, Result},
    location::{Location, Trust, redact},
    products::{Kind, Manifest},
    session::Session,
    stac::Selection,
    store::{Version, is_secret_field},
};

/// The field of an asset with the version of its file: size and time where it is on this machine, else what the server says.
const VERSION: &str = "rss:version";

/// In a version, the time of a file on this machine.
const MODIFIED: &str = "modified_ns";

impl QueryResult {
    /// Returns items and selection as JSON, from which [`from_record`](Self::from_record) makes the result again without a
    /// search. Of each item are kept the selected assets and its QA bands; addresses lose query strings, fragments and user
    /// names, which may hold signatures. Files on this machine are recorded with size and time.
    pub fn to_record(&self) -> Value {
        let items: Vec<Value> = self
            .items
            .items
            .iter()
            .map(|item| self.kept(item))
            .collect();
        let (kind, keys) = match &self.selection {
            Selection::Named(keys) => ("named", keys.clone()),
            Selection::Default(keys) => ("default", keys.clone()),
            Selection::Guess => ("guess", Vec::new()),
        };
        json!({
            "trust": match self.trust {
                Trust::User => "user",
                Trust::PrivateNetwork => "private_network",
                Trust::PlainNetwork => "plain_network",
                Trust::Network => "network",
            },
            "selection": {"kind": kind, "keys": keys},
            "items": {"type": "FeatureCollection", "features": items},
        })
    }

    fn kept(&self, item: &Item) -> Value {
        let manifest = self.manifest.as_ref().or_else(|| Manifest::of_item(item));
        let selected = self.assets(item);
        let is_kept = |key: &str| {
            let is_qa =
                |manifest: &Manifest| manifest.band(key).is_some_and(|band| band.kind == Kind::Qa);
            // Without a manifest any asset may be the mask of one that the user has.
            selected.iter().any(|(other, _)| *other == key) || manifest.is_none_or(is_qa)
        };
        let mut item = item.clone();
        item.links.clear();
        item.assets.retain(|key, _| is_kept(key));
        for asset in item.assets.values_mut() {
            if let Some(version) = version(asset) {
                asset.additional_fields.insert(VERSION.to_owned(), version);
            }
            asset.href = without_secrets(&asset.href);
        }
        let mut item = serde_json::to_value(&item).unwrap_or_default();
        clean(&mut item);
        item
    }

    /// Makes a result of a [record](Self::to_record), and names the files on this machine that have changed since. `trust`
    /// is that in the record: what it says of its own is taken if it is less.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if it is no record.
    pub fn from_record(
        session: &Session,
        record: &Value,
        trust: Trust,
    ) -> Result<(Self, Vec<String>)> {
        let wrong = || {
            Error::new(
                ErrorKind::Corrupt,
                "not a record of items and their selection",
            )
        };
        let stated = match record.get("trust").and_then(Value::as_str) {
            Some("user") => Trust::User,
            Some("private_network") => Trust::PrivateNetwork,
            Some("plain_network") => Trust::PlainNetwork,
            _ => Trust::Network,
        };
        let rank = |trust: Trust| match trust {
            Trust::User => 3,
            Trust::PrivateNetwork => 2,
            Trust::PlainNetwork => 1,
            Trust::Network => 0,
        };
        let trust = if rank(stated) < rank(trust) {
            stated
        } else {
            trust
        };
        let items = record.get("items").ok_or_else(wrong)?;
        let mut found = Self::from_json(session, items.to_string().as_bytes(), trust)?;
        let selection = record.get("selection").ok_or_else(wrong)?;
        let keys = selection
            .get("keys")
            .and_then(Value::as_array)
            .ok_or_else(wrong)?;
        let keys = keys
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        found.selection = match selection.get("kind").and_then(Value::as_str) {
            Some("named") => Selection::Named(keys),
            Some("default") => Selection::Default(keys),
            Some("guess") => Selection::Guess,
            _ => return Err(wrong()),
        };
        let mut changed = Vec::new();
        for item in &found.items.items {
            for (key, asset) in &item.assets {
                let then = asset.additional_fields.get(VERSION);
                // Of other files an open one tells.
                if let Some(then) = then.filter(|then| then.get(MODIFIED).is_some())
                    && version(asset).as_ref() != Some(then)
                {
                    changed.push(format!("item {}, asset {key}: {}", item.id, asset.href));
                }
            }
        }
        Ok((found, changed))
    }
}

/// Returns the version of an asset's file that a record states, if the file is not on this machine.
pub(crate) fn recorded_version(asset: &Asset) -> Option<Version> {
    let then = asset.additional_fields.get(VERSION)?;
    match then.get(MODIFIED) {
        Some(_) => None,
        None => Version::of_json(then),
    }
}

/// Returns size and time of an asset's file, where it is on this machine.
fn version(asset: &Asset) -> Option<Value> {
    let location = Location::parse(&asset.href).ok()?;
    let path: &Path = location.as_local()?;
    let facts = path.metadata().ok()?;
    let modified = facts.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(json!({"bytes": facts.len(), MODIFIED: u64::try_from(modified.as_nanos()).ok()?}))
}

/// Returns an address without query string, fragment and user name; a path may hold `?` and `#`.
pub(crate) fn without_secrets(href: &str) -> String {
    match href.contains("://") || href.starts_with("/vsi") {
        true => redact(href),
        false => href.to_owned(),
    }
}

/// Removes query strings and user names from all addresses in JSON, and fields with keys.
fn clean(value: &mut Value) {
    match value {
        Value::String(text) => *text = without_secrets(text),
        Value::Array(all) => all.iter_mut().for_each(clean),
        Value::Object(all) => {
            remove_secrets(all);
            all.values_mut().for_each(clean);
        }
        _ => {}
    }
}

/// Removes fields that hold keys of a store or headers of its requests.
fn remove_secrets(fields: &mut Map<String, Value>) {
    fields.retain(|name, _| !is_secret_field(name));
}
