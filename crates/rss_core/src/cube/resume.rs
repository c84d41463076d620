//! What a write states of itself in its journal, and what it takes over from one that was interrupted.

use std::collections::HashMap;

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Map, Value, json};

use super::{
    describe,
    options::CubeOptions,
    samples::SourceFile,
    shards::ShardJob,
    write::{AT_ONCE, Found, Work},
};
use crate::{
    array::{Claim, Intent, JOURNAL, Journal, Listed, below},
    error::{Error, ErrorKind, Result},
    store::Version,
};

impl Work {
    /// Returns what the journal says is to be written: two writes with equal plans may complete each other. It does not
    /// hold what a closure computes.
    pub(super) fn plan(&self) -> Result<Value> {
        let grid = self.levels.first().map(|level| &level.grid);
        let steps: Vec<Value> = self
            .steps
            .iter()
            .map(|step| json!([step.time.timestamp_millis(), step.items]))
            .collect();
        let bands: Vec<Value> = self
            .bands
            .iter()
            .map(|band| {
                json!([
                    band.name,
                    band.dtype.name(),
                    band.nodata.map(|n| n.to_string())
                ])
            })
            .collect();
        let mut journal = json!({
            "before": self.before,
            "steps": steps,
            "bands": bands,
            "grid": grid.map(|grid| Value::Object(describe::level_attributes(grid))),
            "layout": self.cut.to_json(&self.bands),
            "arrays": self.levels.iter().flat_map(|level| &level.specs).map(|(_, spec)| {
                json!([spec.chunk, spec.shard])
            }).collect::<Vec<_>>(),
        });
        match self.source.made() {
            Value::Null => {}
            made => journal["made"] = made,
        }
        if let Some(fill) = self.source.fill() {
            journal["fill"] = json!(fill.name());
        }
        Ok(self.storage.journal_of(journal))
    }

    /// Returns the journal without its writer: the plan, and the versions of the sources.
    pub(super) fn journal(&self) -> Result<Value> {
        let mut journal = self.plan()?;
        let files = self.source.files().into_iter();
        let versions: Map<String, Value> = files
            .map(|file| (file.location, file.version.to_json()))
            .collect();
        if !versions.is_empty() && !self.storage.is_repository() {
            journal["sources"] = Value::Object(versions);
        }
        Ok(journal)
    }

    /// Returns the error of a write that finds the journal of another.
    pub(super) fn refused(&self, other: &Journal, write: &str, what: &str) -> Error {
        let writer = other.writer();
        let by = writer
            .as_ref()
            .map(|by| format!(" ({by})"))
            .unwrap_or_default();
        // In a folder its lock would have been held.
        let is_dead = self.storage.is_local() || writer.is_none_or(|writer| writer.is_dead());
        let name = self.storage.journal_name();
        let (kind, message) = match is_dead {
            true => (
                ErrorKind::InvalidInput,
                format!(
                    "an interrupted {write} of other {what} exists{by}: resume it with those, or discard it \
                     (--take-over, or remove {name})"
                ),
            ),
            false => (
                ErrorKind::Unavailable,
                format!(
                    "another {write} of other {what} is under way or was interrupted{by}: wait for it, or, if it will \
                     never go on, discard it (--take-over)"
                ),
            ),
        };
        Error::new(kind, message).at(&self.storage.base)
    }

    /// Lists the shards that an interrupted write may have left; of an append that begins those that it rewrites, whose
    /// versions a bucket compares.
    pub(super) async fn listed(&self, found: &Found) -> Result<HashMap<String, Listed>> {
        let mut prefixes = Vec::new();
        for level in &self.levels {
            for ((name, spec), array) in level.specs.iter().zip(&level.arrays) {
                let path = below(&level.path, name);
                let dates = spec.shard.as_ref().and_then(|shard| shard.first());
                let dates = dates.map_or(1, |&dates| usize::try_from(dates).unwrap_or(1).max(1));
                if found.journal.is_some() {
                    prefixes.push(path);
                } else if !self.before.is_multiple_of(dates) && !self.storage.is_local() {
                    let axes = array.shape().len();
                    let mut first = vec![0; axes];
                    if let Some(time) = first.first_mut() {
                        *time = (self.before / dates) as u64;
                    }
                    let key = array.key_of(&first);
                    let rest = axes.saturating_sub(1);
                    prefixes.push(key.rsplitn(rest + 1, '/').last().unwrap_or(&key).to_owned());
                }
            }
        }
        let listed: Vec<Vec<Listed>> = stream::iter(prefixes)
            .map(|prefix| async move { self.storage.list(&prefix).await })
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        let all = listed.into_iter().flatten();
        Ok(all.map(|one| (one.key.clone(), one)).collect())
    }

    /// Returns the files that are not those of the journal. One that it does not know has taken the place of another.
    pub(super) fn replaced(&self, journal: &Journal) -> Vec<SourceFile> {
        // Those of earlier versions have none of computed samples.
        let Some(then) = journal.sources().as_object() else {
            return Vec::new();
        };
        let is_replaced = |file: &SourceFile| {
            let then = then.get(&file.location).and_then(Version::of_json);
            then.is_none_or(|then| then.differs(&file.version))
        };
        let mut files = self.source.files();
        files.retain(is_replaced);
        files
    }

    /// Takes the claim. Shards that must not be taken for whole later are removed before the journal says that all that
    /// is there is of this plan and these sources.
    pub(super) async fn take_claim(
        &self,
        found: &Found,
        stale: &[ShardJob],
        options: &CubeOptions,
    ) -> Result<Claim> {
        let journal = self.journal()?;
        let mut first = journal.clone();
        if found.discards {
            first = json!({"discards": true});
        } else if !stale.is_empty()
            && let Some(then) = &found.journal
        {
            first["sources"] = then.sources().clone();
        }
        let is_final = first == journal;
        let intent = Intent {
            document: first,
            journal: found.journal.as_ref(),
            root: found.root.as_ref(),
            take_over: options.take_over,
        };
        let claim = Claim::take(&self.storage, intent).await?;
        for job in stale {
            self.clear(&claim, job).await?;
        }
        if found.discards {
            self.discard(&claim).await?;
        }
        if !is_final {
            // Else a power cut could bring back what was removed, beside a journal that calls it one of its own.
            claim.settle().await?;
            claim.restate(journal).await?;
        }
        for key in self.there.keys() {
            claim.keep(key);
        }
        Ok(claim)
    }

    /// Removes what a write of other images has left: all of it where there was no cube, else the shards of time steps
    /// that the cube does not have.
    pub(super) async fn discard(&self, claim: &Claim) -> Result<()> {
        claim.check().await?;
        let is_old = |key: &str| {
            let mut arrays = self.levels.iter().flat_map(|level| &level.arrays);
            arrays.any(|array| {
                let time = array.time_of(key);
                let dates = array.shard().and_then(|shard| shard.first().copied());
                time.zip(dates)
                    .is_some_and(|(time, dates)| time * dates < self.before as u64)
            })
        };
        let prefix = |key: &str| key == JOURNAL || (self.before > 0 && is_old(key));
        let keys: Vec<String> = match self.before {
            0 => {
                let all = self.storage.list("").await?;
                all.into_iter().map(|one| one.key).collect()
            }
            _ => self.there.keys().cloned().collect(),
        };
        let keys = keys.into_iter().filter(|key| !prefix(key));
        stream::iter(keys.map(Ok))
            .try_for_each_concurrent(AT_ONCE, |key| async move { claim.remove(&key).await })
            .await
    }
}
