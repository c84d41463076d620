//! The report of a check: what is wrong with a cube, and what of it was put right.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::known::Known;
use crate::array::Storage;

/// What is wrong with an object of a cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Damage {
    /// It is not there.
    Missing,
    /// Its bytes are not those that were written.
    Damaged,
    /// It holds what another shard should.
    Swapped,
    /// The files that it was made of are others now.
    Stale,
    /// No write has put it there.
    Surplus,
}

impl Damage {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Damaged => "damaged",
            Self::Swapped => "swapped",
            Self::Stale => "stale",
            Self::Surplus => "surplus",
        }
    }
}

/// What an object of a cube holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Holds {
    /// Samples.
    Shard,
    /// Metadata, or a coordinate.
    Metadata,
    /// A part of the manifest.
    Manifest,
}

impl Holds {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shard => "shard",
            Self::Metadata => "metadata",
            Self::Manifest => "manifest",
        }
    }
}

/// An object that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// Its key below the cube's location.
    pub key: String,
    /// What it holds.
    pub holds: Holds,
    /// What is wrong.
    pub damage: Damage,
    /// The same in words.
    pub reason: String,
    /// Whether a repair has put it right.
    pub is_repaired: bool,
}

/// The result of a check, with which a [repair](CheckReport::repair_metadata) goes on.
#[derive(Debug)]
#[non_exhaustive]
pub struct CheckReport {
    /// Shards that the cube should have, or that it has where that is not known.
    pub shards: u64,
    /// Bytes of shards that were read.
    pub bytes: u64,
    /// Objects of metadata and coordinates that the cube should have.
    pub metadata: u64,
    /// What is wrong, by key.
    pub findings: Vec<Finding>,
    /// What a user should know, such as what could not be checked.
    pub notes: Vec<String>,
    pub(super) storage: Storage,
    pub(super) known: Known,
    /// Whether sources could not be compared, as the cube could not be opened.
    pub(super) lacks_sources: bool,
    /// Whether a write has not ended.
    pub(super) is_unfinished: bool,
    /// Time steps whose sources have changed.
    pub(super) stale_steps: BTreeSet<usize>,
}

impl CheckReport {
    /// Returns true if nothing is wrong, or all has been repaired.
    pub fn is_whole(&self) -> bool {
        self.findings.iter().all(|finding| finding.is_repaired)
    }

    /// Returns true if there are shards to remake from the sources.
    pub fn has_shards_to_remake(&self) -> bool {
        let left = self.findings.iter().filter(|finding| !finding.is_repaired);
        let mut shards = left.filter(|finding| finding.holds == Holds::Shard);
        shards.any(|finding| finding.damage != Damage::Surplus)
    }

    /// Returns true if sources were to be asked, and the cube could not be opened to tell which shards are of them.
    pub fn has_unchecked_sources(&self) -> bool {
        self.lacks_sources
    }

    /// Returns how many findings there are of each damage, by its name.
    pub fn counts(&self) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for finding in &self.findings {
            *counts.entry(finding.damage.name()).or_default() += 1;
        }
        counts
    }

    /// Returns the attributes of the cube's root, as they were written.
    pub fn attributes(&self) -> serde_json::Map<String, Value> {
        let attributes = self.known.root.get("attributes");
        attributes
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    }

    pub(super) fn find(&mut self, key: &str, holds: Holds, damage: Damage, reason: &str) {
        self.findings.push(Finding {
            key: key.to_owned(),
            holds,
            damage,
            reason: reason.to_owned(),
            is_repaired: false,
        });
    }

    /// Returns the report as JSON: `whole`, `shards`, `bytes`, `metadata`, `counts`, `findings`, `repaired`, `notes`.
    pub fn to_json(&self) -> Value {
        let findings: Vec<Value> = self
            .findings
            .iter()
            .map(|finding| {
                json!({
                    "key": finding.key,
                    "holds": finding.holds.name(),
                    "damage": finding.damage.name(),
                    "reason": finding.reason,
                    "repaired": finding.is_repaired,
                })
            })
            .collect();
        let repaired = self.findings.iter().filter(|finding| finding.is_repaired);
        json!({
            "location": self.storage.base.to_string(),
            "whole": self.is_whole(),
            "shards": self.shards,
            "bytes": self.bytes,
            "metadata": self.metadata,
            "counts": self.counts(),
            "repaired": repaired.count(),
            "findings": findings,
            "notes": self.notes,
        })
    }
}
