//! What a write publishes when its shards are there: coordinates, the manifest, metadata, and the root's `zarr.json` last.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;

use super::{
    Cube,
    coordinates::STEPS_PER_CHUNK,
    cut::level_path,
    describe::{self, Coordinates, LAYOUT, MADE, PROVENANCE, TimeStep},
    manifest::{self, MANIFEST, Part},
    write::{AT_ONCE, LevelWrite, Work},
};
use crate::{
    apply::mosaic::Fill,
    array::{Expected, below, parse},
    error::{Error, Result},
    geo::GeoBox,
    raster::Resampling,
};

impl Work {
    /// Returns the coordinates of a level, and the metadata of all its arrays by their paths.
    pub(super) fn described(
        &self,
        level: &LevelWrite,
    ) -> Result<(Coordinates, Vec<(String, Value)>)> {
        let coordinates = Coordinates::of(
            &level.grid,
            &self.steps,
            &self.bands,
            self.cut.layout.arrangement,
            self.steps_per_chunk,
        );
        let mut arrays = Vec::new();
        for (name, spec) in &level.specs {
            arrays.push((below(&level.path, name), spec.document()?));
        }
        for (name, document) in coordinates.documents() {
            arrays.push((below(&level.path, &name), document));
        }
        Ok((coordinates, arrays))
    }

    /// Returns the commit message of the write.
    pub(super) fn message(&self) -> String {
        let dates = |steps: &[TimeStep]| {
            let day = |step: &TimeStep| step.time.format("%Y-%m-%d").to_string();
            let first = steps.first().map(day).unwrap_or_default();
            match steps {
                [_, .., last] => format!("{} dates, {first} to {}", steps.len(), day(last)),
                _ => format!("1 date, {first}"),
            }
        };
        let added = self.steps.get(self.before..).unwrap_or_default();
        let bands: Vec<&str> = self.bands.iter().map(|band| band.name.as_str()).collect();
        match self.before {
            0 => format!("Write a cube of {}: {}", bands.join(", "), dates(added)),
            _ => format!("Append {}", dates(added)),
        }
    }

    /// Writes coordinates, then metadata, the root's last: it alone makes a new cube, or what an append adds, visible.
    pub(super) async fn describe(&self, root: Option<&Bytes>, resumes: bool) -> Result<()> {
        let claim = self.claim()?;
        let mut coordinates = Vec::new();
        for level in &self.levels {
            coordinates.extend(self.described(level)?.0.chunks(&level.path));
        }
        let mut documents = self.documents()?;
        let sealed = match self.storage.is_repository() {
            true => Vec::new(),
            false => self.sealed(&coordinates, &mut documents)?,
        };
        let mut documents = describe::objects(&documents);
        let last = documents.split_off(documents.len().saturating_sub(1));
        documents.extend(sealed);
        let may_be_there = (resumes || root.is_some()) && !self.storage.is_repository();
        let mut groups = Vec::with_capacity(3);
        for objects in [coordinates, documents, last] {
            let find = |(key, bytes): (String, Bytes)| async move {
                let there = match may_be_there {
                    true => self.storage.read_version(&key).await?,
                    false => None,
                };
                Ok::<_, Error>(match there {
                    Some((there, _)) if there == bytes => {
                        claim.keep(&key);
                        None
                    }
                    Some((_, version)) => Some((key, bytes, Expected::There(version))),
                    None => Some((key, bytes, Expected::Absent)),
                })
            };
            let found: Vec<_> = stream::iter(objects)
                .map(find)
                .buffered(AT_ONCE)
                .try_collect()
                .await?;
            groups.push(found.into_iter().flatten());
        }
        // After what is replaced was looked at: had another writer ended before, its objects would be replaced.
        if may_be_there {
            claim.check().await?;
        }
        let count = groups.len();
        for (number, objects) in groups.into_iter().enumerate() {
            if number + 1 == count {
                // All that the root states survives a power cut before the root is there.
                claim.settle().await?;
            }
            stream::iter(objects.map(Ok))
                .try_for_each_concurrent(AT_ONCE, |(key, bytes, expected)| async move {
                    claim.put(&key, vec![bytes], expected).await
                })
                .await?;
        }
        claim.settle().await
    }

    /// Returns the objects of the manifest, which the root's document then names: they are written before it.
    pub(super) fn sealed(
        &self,
        coordinates: &[(String, Bytes)],
        documents: &mut [(String, Value)],
    ) -> Result<Vec<(String, Bytes)>> {
        let part = Part {
            number: self.parts.len(),
            from: self.before,
            shards: self.tally.shards(),
        };
        let (key, list, stated) = part.object()?;
        let parts: Vec<Value> = self.parts.iter().cloned().chain([stated]).collect();
        if let Some((_, root)) = documents.last_mut() {
            root["attributes"][MANIFEST] = manifest::attribute(&parts);
        }
        let objects = describe::objects(documents);
        let copy = manifest::copy(coordinates.iter().chain(&objects))?;
        Ok(vec![
            (key, list),
            (manifest::metadata_key(part.number), copy),
        ])
    }

    /// Returns the metadata of all arrays, of the groups of levels, and of the root, which is last.
    pub(super) fn documents(&self) -> Result<Vec<(String, Value)>> {
        let mut documents: Vec<(String, Value)> = Vec::new();
        let mut groups: Vec<(String, Value)> = Vec::new();
        for level in &self.levels {
            let (_, arrays) = self.described(level)?;
            let here: Vec<(String, Value)> = arrays
                .iter()
                .map(|(path, document)| (name_of(path).to_owned(), document.clone()))
                .collect();
            documents.extend(arrays);
            if !level.path.is_empty() {
                let attributes = describe::level_attributes(&level.grid);
                let attributes = describe::with_bounds(attributes, &self.steps);
                groups.push((level.path.clone(), describe::group(attributes, &here)));
            }
        }
        let levels: Vec<(&str, &GeoBox)> = self
            .levels
            .iter()
            .map(|level| (level.path.as_str(), &level.grid))
            .collect();
        let mut root = match levels.as_slice() {
            [(_, only)] => describe::with_bounds(describe::level_attributes(only), &self.steps),
            levels => {
                let common = self.cut.common_resampling(&self.bands);
                describe::levels_attributes(levels, common.map(Resampling::name))
            }
        };
        root.insert(LAYOUT.to_owned(), self.cut.to_json(&self.bands));
        match self.source.made() {
            Value::Null => {}
            made => _ = root.insert(MADE.to_owned(), made),
        }
        let mut notes = self.notes.clone();
        // By now the files are open that the write needed: their versions are known.
        if let Some(last) = notes
            .get_mut(PROVENANCE)
            .and_then(|all| all.as_array_mut()?.last_mut())
        {
            *last = self.source.provenance();
        }
        root.extend(notes);
        let mut all = documents.clone();
        for (path, group) in &groups {
            let mut group = group.clone();
            if let Some(group) = group.as_object_mut() {
                group.remove("consolidated_metadata");
            }
            all.push((path.clone(), group));
        }
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        documents.extend(groups);
        documents.push((String::new(), describe::group(root, &all)));
        Ok(documents)
    }

    /// Returns true if the existing cube is the one that this write would produce.
    pub(super) async fn is_done(&mut self, root: &[u8]) -> Result<bool> {
        let mut there: Value = parse(root)?;
        let time = below(&level_path(0, self.cut.overviews), "time").replace('/', "~1");
        let length = format!(
            "/consolidated_metadata/metadata/{time}/chunk_grid/configuration/chunk_shape/0"
        );
        // Cubes of before have coordinates of one chunk.
        if let Some(length) = there.pointer(&length).and_then(Value::as_u64) {
            self.steps_per_chunk = usize::try_from(length).unwrap_or(STEPS_PER_CHUNK);
        }
        let mut documents = self.documents()?;
        let mut here = documents.pop().map(|(_, root)| root).unwrap_or_default();
        if let Some(fill) = self.source.fill() {
            // Before `fill` was stated, each band was filled by itself.
            let was = |one: &Value| one["fill"].as_str().unwrap_or("band") == fill.name();
            let is_same = match there["attributes"][PROVENANCE].as_array() {
                Some(made) => made.iter().all(was),
                None => fill == Fill::Band,
            };
            if !is_same {
                return Ok(false);
            }
        }
        for root in [&mut there, &mut here] {
            if let Some(attributes) = root["attributes"].as_object_mut() {
                attributes.remove(PROVENANCE);
                attributes.remove(MANIFEST);
                self.notes
                    .keys()
                    .for_each(|name| _ = attributes.remove(name));
            }
        }
        if here != there {
            return Ok(false);
        }
        Ok(Cube::open_in(&self.storage).await?.steps() == self.steps)
    }
}

/// Returns the last segment of a path.
fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
