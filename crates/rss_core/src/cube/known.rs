//! What is recorded of a cube: the documents and coordinates of its last write, and the checksums of its shards.

use std::{collections::BTreeMap, ops::Range};

use bytes::Bytes;
use serde_json::Value;

use super::{
    cut::{Cut, level_path},
    describe::{LAYOUT, STACK},
    manifest::{Part, StatedPart},
};
use crate::{
    array::{Arrangement, Array, Storage, Sum, below},
    error::{Error, ErrorKind, Result},
};

/// What is known of a cube as it was written.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// All metadata and coordinates that can be rebuilt, by key.
    pub(super) objects: BTreeMap<String, Bytes>,
    /// The root's document.
    pub(super) root: Value,
    /// What the root says of the parts of the manifest; none of a cube without one.
    pub(super) stated: Vec<StatedPart>,
    /// The parts that could be read.
    pub(super) parts: Vec<Option<Part>>,
    /// Whether the copy of the metadata is whole.
    pub(super) has_copy: bool,
}

impl Known {
    /// Returns true if every shard of the cube is recorded.
    pub(super) fn is_complete(&self) -> bool {
        let from_the_start = self.stated.first().is_some_and(|part| part.from == 0);
        from_the_start && self.parts.iter().all(Option::is_some)
    }

    /// Returns the shards as the last write that stored each recorded them.
    pub(super) fn shards(&self) -> BTreeMap<String, Sum> {
        let mut all = BTreeMap::new();
        for part in self.parts.iter().flatten() {
            all.extend(part.shards.iter().map(|(key, sum)| (key.clone(), *sum)));
        }
        all
    }

    /// Returns the shards that are recorded as they should be now. Of a shard that a later write has replaced nothing is
    /// known where the list of that write is lost.
    pub(super) fn current(&self, arrays: &[(String, Array)]) -> BTreeMap<String, Sum> {
        let mut all: BTreeMap<String, Sum> = BTreeMap::new();
        for (stated, part) in self.stated.iter().zip(&self.parts) {
            let Some(part) = part else {
                let from = stated.from as u64;
                all.retain(|key, _| {
                    steps_of(arrays, key.as_str()).is_some_and(|steps| steps.end <= from)
                });
                continue;
            };
            all.extend(part.shards.iter().map(|(key, sum)| (key.clone(), *sum)));
        }
        all
    }

    pub(super) fn attribute(&self, name: &str) -> Option<&Value> {
        self.root.get("attributes")?.get(name)
    }

    pub(super) fn document(&self, path: &str) -> Option<&Value> {
        let metadata = self.root.get("consolidated_metadata")?.get("metadata")?;
        metadata.get(path)
    }

    /// Returns the arrays of samples by their paths.
    pub(super) fn arrays(&self, storage: &Storage) -> Result<Vec<(String, Array)>> {
        let layout = self.attribute(LAYOUT).unwrap_or(&Value::Null);
        let cut = Cut::parse(layout).ok_or_else(|| {
            let message = "a cube of another writer: its attribute rss:layout cannot be read";
            Error::new(ErrorKind::Unsupported, message)
        })?;
        let names = layout.get("bands").and_then(Value::as_array);
        let names: Vec<&str> = match cut.layout.arrangement {
            Arrangement::Stacked => vec![STACK],
            Arrangement::Bands => names
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect(),
        };
        let mut all = Vec::new();
        for level in 0..=cut.overviews.min(64) {
            for name in &names {
                let path = below(&level_path(level, cut.overviews), name);
                let document = self.document(&path).unwrap_or(&Value::Null);
                let array = Array::of_document(storage.clone(), &path, document)?;
                all.push((path, array));
            }
        }
        Ok(all)
    }
}

/// Returns the time steps of a shard.
pub(super) fn steps_of(arrays: &[(String, Array)], key: &str) -> Option<Range<u64>> {
    let (array, time) = arrays
        .iter()
        .find_map(|(path, array)| Some((array, *below_chunks(key, path)?.first()?)))?;
    let shard = array.shard().unwrap_or(array.chunk());
    let steps = *shard.first()?;
    Some(time.checked_mul(steps)?..time.checked_add(1)?.checked_mul(steps)?)
}

/// Returns the index of a shard of an array from its key.
pub(super) fn below_chunks(key: &str, path: &str) -> Option<Vec<u64>> {
    let index = key.strip_prefix(path)?.strip_prefix("/c/")?;
    index.split('/').map(|number| number.parse().ok()).collect()
}
