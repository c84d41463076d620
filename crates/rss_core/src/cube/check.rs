//! Whether a cube is as it was written: its shards and its metadata against its [manifest](super::manifest).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;

use super::{
    Cube,
    describe::{self, LAYOUT, PROVENANCE},
    known::{Known, below_chunks, steps_of},
    manifest::{self, FOLDER, MANIFEST, Part},
    report::{CheckReport, Damage, Holds},
};
use crate::{
    array::{Array, JOURNAL, Root, Storage, Sum, below, parse, to_bytes, vlen},
    error::{Error, ErrorKind, Result},
    location::Location,
    raster::with_type,
    session::Session,
    store::{Object, Version},
};

/// Objects that are read at once.
const AT_ONCE: usize = 16;
/// Shards without a checksum that are decoded at once.
const DECODED_AT_ONCE: usize = 2;

/// How much of a cube is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckDepth {
    /// All bytes of all objects.
    #[default]
    Content,
    /// That the shards are there, with the right lengths: costs a listing, and reads no shard.
    Lengths,
}

/// What is checked.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CheckOptions {
    /// How much of the cube is read.
    pub depth: CheckDepth,
    /// Whether servers are asked for the versions of the files that the cube was made of.
    pub asks_sources: bool,
    /// Ids of items of which the caller knows that their files have changed, as those on this machine.
    pub changed: Vec<String>,
}

impl CheckOptions {
    /// Makes options by which all bytes are read and no source is asked.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how much of the cube is read.
    #[must_use]
    pub fn with_depth(mut self, depth: CheckDepth) -> Self {
        self.depth = depth;
        self
    }

    /// Asks for the versions of the sources, one request for each file. `changed` are the ids of items of which the caller
    /// knows that their files are others now.
    #[must_use]
    pub fn with_sources(mut self, changed: impl IntoIterator<Item = String>) -> Self {
        self.asks_sources = true;
        self.changed.extend(changed);
        self
    }
}
impl Cube {
    /// Checks that a cube is as it was written: each shard by length and checksum, all metadata and coordinates, and with
    /// [`CheckOptions::with_sources`] whether the files that it was made of are the same. Reads the complete cube, in
    /// pieces of 8 MiB; [`CheckDepth::Lengths`] lists it only.
    ///
    /// A cube without a manifest, of an earlier version or in an Icechunk repository, is checked by the checksums that its
    /// shards hold: a shard that is missing or exchanged cannot be told then, as a note says.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is no cube, [`ErrorKind::Unsupported`] if it is one of another writer; errors of
    /// the store. Damage is no error: [`CheckReport::findings`] names it.
    pub async fn check(
        session: &Session,
        root: impl Into<Root>,
        options: &CheckOptions,
    ) -> Result<CheckReport> {
        let root = root.into();
        let storage = Storage::at(session, &root).await?;
        let checked = inspect(storage, options).await;
        checked.map_err(|err| match err.location() {
            Some(_) => err,
            None => err.at(root.location()),
        })
    }
}

async fn inspect(storage: Storage, options: &CheckOptions) -> Result<CheckReport> {
    let listed = storage.list("").await?.into_iter();
    let listing: BTreeMap<String, u64> = listed.map(|one| (one.key, one.size)).collect();
    if listing.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, "no cube: nothing is there"));
    }
    let mut report = CheckReport {
        shards: 0,
        bytes: 0,
        metadata: 0,
        findings: Vec::new(),
        notes: Vec::new(),
        known: Known::default(),
        lacks_sources: false,
        is_unfinished: false,
        stale_steps: BTreeSet::new(),
        storage,
    };
    if let Some(journal) = found(&report.storage, &listing, JOURNAL).await? {
        // A stopped repair is repeated, and stands in nobody's way.
        let is_repair = |journal: Value| journal.get(manifest::REPAIRS).is_some();
        report.is_unfinished = !parse(&journal).is_ok_and(is_repair);
    }
    report.check_metadata(&listing).await?;
    report.check_parts(&listing).await?;
    report.check_shards(&listing, options).await?;
    if options.asks_sources {
        report.check_sources(options).await?;
    }
    report
        .findings
        .sort_by(|a, b| (&a.key, a.damage).cmp(&(&b.key, b.damage)));
    Ok(report)
}

/// Reads an object that may be damaged: none if it cannot be read as what it is.
async fn found(
    storage: &Storage,
    listing: &BTreeMap<String, u64>,
    key: &str,
) -> Result<Option<Bytes>> {
    if !listing.contains_key(key) {
        return Ok(None);
    }
    match storage.read(key).await {
        Err(err) if err.kind() == ErrorKind::Corrupt => Ok(None),
        read => read,
    }
}

impl CheckReport {
    /// Finds the metadata as it was written, and compares what there is.
    async fn check_metadata(&mut self, listing: &BTreeMap<String, u64>) -> Result<()> {
        let storage = self.storage.clone();
        let root = found(&storage, listing, "zarr.json").await?;
        let mut copies: BTreeMap<usize, BTreeMap<String, Bytes>> = BTreeMap::new();
        for (key, number) in listing
            .keys()
            .filter_map(|key| Some((key, manifest::metadata_number(key)?)))
        {
            let bytes = found(&storage, listing, key).await?.unwrap_or_default();
            if let Ok(objects) = manifest::copied(&bytes)
                && objects.contains_key("zarr.json")
            {
                copies.insert(number, objects);
            }
        }
        if root.is_none() && copies.is_empty() && !listing.contains_key("zarr.json") {
            let message = match listing.contains_key(JOURNAL) {
                true => "no cube yet: its write has not ended, start it again",
                false => "no cube: zarr.json does not exist, nor a copy of it",
            };
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        let document = root.as_ref().and_then(|root| parse(root).ok());
        let same = copies
            .iter()
            .find(|(_, objects)| objects.get("zarr.json") == root.as_ref());
        let stated = document
            .as_ref()
            .and_then(|root| root.get("attributes")?.get(MANIFEST));
        let parts = manifest::parts_of(stated);
        let copy_of_root = parts.as_ref().and_then(|parts| parts.len().checked_sub(1));
        // A root that differs from its copy is damaged. Where the copy is damaged or gone, the root is what there is.
        let stands_alone = document.is_some()
            && match copy_of_root {
                Some(number) => !copies.contains_key(&number),
                None => copies.is_empty(),
            };
        match (same, document) {
            (Some((_, objects)), Some(document)) => {
                self.known.root = document;
                self.known.objects.clone_from(objects);
                self.known.has_copy = true;
            }
            (None, Some(document)) if stands_alone => {
                if document
                    .get("attributes")
                    .and_then(|all| all.get(LAYOUT))
                    .is_none()
                {
                    let message = "a group that is not a cube of this library: it has no attribute rss:layout";
                    return Err(Error::new(ErrorKind::Unsupported, message));
                }
                if let (Some(number), Some(bytes)) = (copy_of_root, root) {
                    let key = manifest::metadata_key(number);
                    let damage = damage_of(listing, &key);
                    self.find(&key, Holds::Manifest, damage, "the copy of the metadata");
                    self.known.objects.insert("zarr.json".to_owned(), bytes);
                }
                self.known.root = document;
                self.describe_by_root(listing).await?;
            }
            _ => {
                let Some((_, objects)) = copies.pop_last() else {
                    let message = "zarr.json is damaged, and there is no copy of it";
                    return Err(Error::new(ErrorKind::Corrupt, message));
                };
                self.known.root = parse(objects.get("zarr.json").map_or(&[][..], |root| root))?;
                self.known.objects = objects;
                self.known.has_copy = true;
            }
        }
        self.known.stated = manifest::parts_of(self.known.attribute(MANIFEST)).unwrap_or_default();
        let expected = self.known.objects.clone();
        self.metadata = expected.len() as u64;
        let compared: Vec<(String, Option<Damage>)> = stream::iter(expected)
            .map(|(key, expected)| {
                let storage = &storage;
                async move {
                    let there = found(storage, listing, &key).await?;
                    let damage =
                        (there.as_ref() != Some(&expected)).then(|| damage_of(listing, &key));
                    Ok::<_, Error>((key, damage))
                }
            })
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        for (key, damage) in compared {
            if let Some(damage) = damage {
                let known = self.findings.iter().any(|finding| finding.key == key);
                if !known {
                    self.find(&key, Holds::Metadata, damage, "it is not as it was written");
                }
            }
        }
        Ok(())
    }

    /// Rebuilds metadata from the root's document alone: the arrays' documents, which the root repeats, and coordinates
    /// that an append of an earlier version has left longer than their metadata says.
    async fn describe_by_root(&mut self, listing: &BTreeMap<String, u64>) -> Result<()> {
        let storage = self.storage.clone();
        let consolidated = self.known.root.pointer("/consolidated_metadata/metadata");
        let documents = consolidated
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        for (path, document) in &documents {
            let expected = match document.get("node_type").and_then(Value::as_str) {
                Some("array") => document.clone(),
                // A group of a level holds the metadata of its own arrays.
                _ => {
                    let inside = documents.iter().filter_map(|(key, one)| {
                        let name = key.strip_prefix(path.as_str())?.strip_prefix('/')?;
                        Some((name.to_owned(), one.clone()))
                    });
                    let inside: Vec<(String, Value)> = inside.collect();
                    let attributes = document.get("attributes").and_then(Value::as_object);
                    describe::group(attributes.cloned().unwrap_or_default(), &inside)
                }
            };
            let key = below(path, "zarr.json");
            let there = found(&storage, listing, &key).await?;
            // The same document may be spelt in another order.
            let same = there.filter(|there| parse(there).is_ok_and(|there| there == expected));
            let bytes = same.unwrap_or_else(|| to_bytes(&expected));
            self.known.objects.insert(key, bytes);
        }
        let names = [
            "x",
            "y",
            "time",
            "band",
            describe::ITEM,
            describe::TIME_BOUNDS,
        ];
        for (path, document) in &documents {
            let name = path.rsplit('/').next().unwrap_or(path);
            if !names.contains(&name) {
                continue;
            }
            let prefix = format!("{path}/c/");
            let chunks: Vec<&String> = listing
                .keys()
                .filter(|key| key.starts_with(&prefix))
                .collect();
            for key in chunks {
                let Some(bytes) = found(&storage, listing, key).await? else {
                    continue;
                };
                let expected = cut_to(&bytes, document).unwrap_or(bytes);
                self.known.objects.insert(key.clone(), expected);
            }
            if !listing.keys().any(|key| key.starts_with(&prefix)) {
                self.find(
                    &format!("{prefix}0"),
                    Holds::Metadata,
                    Damage::Missing,
                    "a coordinate without a copy",
                );
            }
        }
        Ok(())
    }

    /// Reads the parts of the manifest.
    async fn check_parts(&mut self, listing: &BTreeMap<String, u64>) -> Result<()> {
        let stated = self.known.stated.clone();
        for part in &stated {
            let bytes = found(&self.storage, listing, &part.key).await?;
            let read = bytes.and_then(|bytes| Part::parse(part, &bytes).ok());
            if read.is_none() {
                let damage = damage_of(listing, &part.key);
                self.find(&part.key, Holds::Manifest, damage, "a list of shards");
            }
            self.known.parts.push(read);
        }
        let last = stated.len().saturating_sub(1);
        let of_manifest = listing.keys().filter(|key| key.starts_with(FOLDER));
        let surplus: Vec<String> = of_manifest
            .filter(|key| {
                let is_copy = !stated.is_empty() && manifest::metadata_number(key) == Some(last);
                !is_copy && stated.iter().all(|part| part.key != **key)
            })
            .cloned()
            .collect();
        // A write that has not ended may have left them, and needs none of them.
        if !self.is_unfinished {
            for key in surplus {
                self.find(
                    &key,
                    Holds::Manifest,
                    Damage::Surplus,
                    "of a write that was stopped",
                );
            }
        }
        if stated.is_empty() {
            let note = "the cube has no manifest: a shard that is missing or exchanged cannot be told, shards are checked by \
                        the checksums in them";
            self.notes.push(note.to_owned());
        } else if stated.first().is_some_and(|part| part.from > 0) {
            let note = "the manifest begins with an append: earlier shards are checked by the checksums in them";
            self.notes.push(note.to_owned());
        }
        Ok(())
    }

    async fn check_shards(
        &mut self,
        listing: &BTreeMap<String, u64>,
        options: &CheckOptions,
    ) -> Result<()> {
        let storage = self.storage.clone();
        let arrays = self.known.arrays(&storage)?;
        let known = self.known.current(&arrays);
        let is_content = options.depth == CheckDepth::Content;
        let compared: Vec<(String, Option<Sum>, Sum, Option<String>)> = stream::iter(known.clone())
            .map(|(key, expected)| {
                let storage = &storage;
                async move {
                    let length = listing.get(&key).copied();
                    let there = match length {
                        Some(_) if is_content => match storage.sum(&key, length).await {
                            Err(err) if err.kind() == ErrorKind::NotFound => None,
                            // No ordinary file, for instance.
                            Err(err) if !err.is_retryable() => {
                                return Ok((key, None, expected, Some(err.message().to_owned())));
                            }
                            read => read?,
                        },
                        Some(length) => Some(Sum { length, ..expected }),
                        None => None,
                    };
                    Ok::<_, Error>((key, there, expected, None))
                }
            })
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        let by_sum: HashMap<(u64, u32), &String> = known
            .iter()
            .map(|(key, sum)| ((sum.length, sum.crc32), key))
            .collect();
        self.shards = known.len() as u64;
        let is_unfinished = self.is_unfinished;
        let mut of_unfinished = 0_usize;
        for (key, there, expected, failed) in compared {
            self.bytes += there.map_or(0, |sum| sum.length);
            let Some(there) = there else {
                match failed {
                    Some(reason) => self.find(&key, Holds::Shard, Damage::Damaged, &reason),
                    None => self.find(&key, Holds::Shard, Damage::Missing, "no such object"),
                }
                continue;
            };
            if there == expected {
                continue;
            }
            // A stopped append has replaced shards that hold old time steps, too.
            if is_unfinished && self.decodes(&arrays, &key).await?.is_none() {
                of_unfinished += 1;
                continue;
            }
            let other = by_sum.get(&(there.length, there.crc32));
            match other {
                Some(other) => {
                    let reason = format!("it holds what {other} should");
                    self.find(&key, Holds::Shard, Damage::Swapped, &reason);
                }
                None if there.length != expected.length => {
                    let reason = format!("{} bytes, expected {}", there.length, expected.length);
                    self.find(&key, Holds::Shard, Damage::Damaged, &reason);
                }
                None => {
                    let reason = format!(
                        "its checksum (crc32) is {:08x}, expected {:08x}",
                        there.crc32, expected.crc32
                    );
                    self.find(&key, Holds::Shard, Damage::Damaged, &reason);
                }
            }
        }
        let is_complete = self.known.is_complete();
        let others: Vec<String> = listing
            .keys()
            .filter(|key| !known.contains_key(*key) && !self.known.objects.contains_key(*key))
            .filter(|key| !key.starts_with(FOLDER) && key.as_str() != JOURNAL)
            .cloned()
            .collect();
        let mut foreign = Vec::new();
        let mut unrecorded = Vec::new();
        for key in others {
            let array = arrays
                .iter()
                .find(|(path, _)| below_chunks(&key, path).is_some());
            match array {
                None if self.is_of_coordinate(&key) && !is_unfinished => {
                    self.find(
                        &key,
                        Holds::Metadata,
                        Damage::Surplus,
                        "no chunk of the coordinate",
                    );
                }
                None => foreign.push(key),
                Some(_) if is_complete && is_unfinished => of_unfinished += 1,
                Some(_) if is_complete => {
                    self.find(
                        &key,
                        Holds::Shard,
                        Damage::Surplus,
                        "no write has recorded it",
                    );
                }
                Some((path, array)) => match region(&key, path, array) {
                    Some(_) => unrecorded.push(key),
                    None if is_unfinished => of_unfinished += 1,
                    None => {
                        self.find(&key, Holds::Shard, Damage::Surplus, "outside of its array");
                    }
                },
            }
        }
        self.shards += unrecorded.len() as u64;
        if !is_content {
            unrecorded.clear();
        }
        let report = &*self;
        let decoded: Vec<(String, Option<String>)> = stream::iter(unrecorded)
            .map(|key| {
                let arrays = &arrays;
                async move {
                    let failed = report.decodes(arrays, &key).await?;
                    Ok::<_, Error>((key, failed))
                }
            })
            .buffered(DECODED_AT_ONCE)
            .try_collect()
            .await?;
        for (key, failed) in decoded {
            self.bytes += listing.get(&key).copied().unwrap_or(0);
            if let Some(reason) = failed {
                self.find(&key, Holds::Shard, Damage::Damaged, &reason);
            }
        }
        if of_unfinished > 0 {
            self.notes.push(format!(
                "a write has not ended: {of_unfinished} shards are of it, start it again"
            ));
        } else if is_unfinished {
            self.notes
                .push("a write has not ended: start it again".to_owned());
        }
        if !foreign.is_empty() {
            let some: Vec<&str> = foreign.iter().take(3).map(String::as_str).collect();
            let more = if foreign.len() > 3 { ", .." } else { "" };
            self.notes.push(format!(
                "{} objects are not of the cube: {}{more}",
                foreign.len(),
                some.join(", ")
            ));
        }
        Ok(())
    }

    fn is_of_coordinate(&self, key: &str) -> bool {
        key.split_once("/c/")
            .is_some_and(|(path, _)| self.known.document(path).is_some())
    }

    /// Decodes a shard, and returns why it cannot be.
    async fn decodes(&self, arrays: &[(String, Array)], key: &str) -> Result<Option<String>> {
        let found = arrays
            .iter()
            .find_map(|(path, array)| Some((array, region(key, path, array)?)));
        let Some((array, ranges)) = found else {
            return Ok(Some("no shard of an array".to_owned()));
        };
        let read = with_type!(array.dtype(), T => array.read::<T>(&ranges).await.map(|_| ()));
        match read {
            Ok(()) => Ok(None),
            Err(err) if err.is_retryable() => Err(err),
            Err(err) => Ok(Some(err.message().to_owned())),
        }
    }

    /// Finds the shards whose sources have changed.
    async fn check_sources(&mut self, options: &CheckOptions) -> Result<()> {
        let made = self.known.attribute(PROVENANCE).and_then(Value::as_array);
        let items = made.into_iter().flatten();
        let items: Vec<Value> = items.flat_map(|made| items_of(&made["items"])).collect();
        let mut changed: BTreeSet<String> = options.changed.iter().cloned().collect();
        let mut asked: Vec<(String, String, Version)> = Vec::new();
        for item in &items {
            let id = item["id"].as_str().unwrap_or_default();
            for (key, version) in item["versions"].as_object().into_iter().flatten() {
                let href = item["assets"][key].as_str();
                if let (Some(href), Some(then)) = (href, Version::of_json(version)) {
                    asked.push((id.to_owned(), href.to_owned(), then));
                }
            }
        }
        asked.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        asked.dedup_by(|a, b| (&a.0, &a.1) == (&b.0, &b.1));
        let session = self.storage.session.clone();
        let answers: Vec<(String, String, Result<bool>)> = stream::iter(asked)
            .map(|(id, href, then)| {
                let session = session.clone();
                async move {
                    let differs = async {
                        let location = Location::parse(&href)?;
                        let (now, _) = Object::open(session.stores(), &location, 1).await?;
                        Ok(then.differs(now.version()))
                    };
                    let differs = differs.await;
                    (id, href, differs)
                }
            })
            .buffered(AT_ONCE)
            .collect()
            .await;
        for (id, href, differs) in answers {
            match differs {
                Ok(true) => _ = changed.insert(id),
                Ok(false) => {}
                Err(err) => self.notes.push(format!(
                    "item {id}: {href} could not be asked: {}",
                    err.message()
                )),
            }
        }
        let cube = match Cube::open_in(&self.storage).await {
            Ok(cube) => cube,
            Err(err) => {
                self.lacks_sources = true;
                self.notes.push(format!(
                    "which shards are stale is known when the metadata is repaired: {}",
                    err.message()
                ));
                return Ok(());
            }
        };
        for (number, step) in cube.steps().iter().enumerate() {
            if step.items.iter().any(|item| changed.contains(item)) {
                self.stale_steps.insert(number);
            }
        }
        let arrays = self.known.arrays(&self.storage)?;
        for (key, _) in self.known.shards() {
            if self.findings.iter().any(|finding| finding.key == key) {
                continue;
            }
            let Some(of_shard) = steps_of(&arrays, &key) else {
                continue;
            };
            let mut stale = self.stale_steps.iter();
            let stale = stale
                .find(|step| of_shard.contains(&(**step as u64)))
                .copied();
            if let Some(step) = stale {
                let items = cube.steps()[step].items.iter();
                let items: Vec<&str> = items
                    .filter(|item| changed.contains(*item))
                    .map(String::as_str)
                    .collect();
                let reason = format!("files have changed since: item {}", items.join(", "));
                self.find(&key, Holds::Shard, Damage::Stale, &reason);
            }
        }
        Ok(())
    }
}

/// Returns the items of provenance, where a long list is packed.
fn items_of(items: &Value) -> Vec<Value> {
    let list = match items.get("packed").and_then(Value::as_str) {
        Some(packed) => {
            let text = crate::query::unpacked(packed).unwrap_or_default();
            serde_json::from_str(&text).unwrap_or_default()
        }
        None => items.clone(),
    };
    match list {
        Value::Array(list) => list,
        _ => Vec::new(),
    }
}

/// Returns a chunk of a coordinate without what lies behind the end of its array; none if it is not longer.
fn cut_to(bytes: &Bytes, document: &Value) -> Option<Bytes> {
    let lengths = document
        .pointer("/chunk_grid/configuration/chunk_shape")?
        .as_array()?;
    let lengths: Option<Vec<usize>> = lengths
        .iter()
        .map(|length| usize::try_from(length.as_u64()?).ok())
        .collect();
    let values = lengths?.into_iter().try_fold(1_usize, usize::checked_mul)?;
    if document.get("data_type")?.as_str()? != "string" {
        let length = values.checked_mul(8)?;
        return (bytes.len() > length).then(|| bytes.slice(..length));
    }
    vlen::cut(bytes, values).map(Bytes::from)
}

fn damage_of(listing: &BTreeMap<String, u64>, key: &str) -> Damage {
    match listing.contains_key(key) {
        true => Damage::Damaged,
        false => Damage::Missing,
    }
}

/// Returns the samples that a shard of an array holds; none if it lies outside.
fn region(key: &str, path: &str, array: &Array) -> Option<Vec<Range<u64>>> {
    let (shape, shard) = (array.shape(), array.shard().unwrap_or(array.chunk()));
    let index = below_chunks(key, path)?;
    if index.len() != shape.len() {
        return None;
    }
    let ranges = index.iter().zip(shape).zip(shard);
    let ranges = ranges.map(|((at, length), shard)| {
        let start = at.checked_mul(*shard).filter(|start| start < length)?;
        Some(start..start.saturating_add(*shard).min(*length))
    });
    ranges.collect()
}
