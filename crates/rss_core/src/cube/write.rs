//! Writing a cube shard by shard, so that an interrupted write can be resumed.
//!
//! Before the first shard a journal states what is to be written. Then come complete shards, the coordinates, the
//! arrays' metadata, and the root's `zarr.json` last; then the journal is removed. A write that finds a journal equal
//! to its own resumes: it writes the shards whose keys are missing. It trusts that the source files have not changed
//! since, and that a shard whose key exists is complete.
//!
//! A new cube cannot be opened before its root is written. In an append the old root stays in force until the end, but
//! the coordinates are replaced before it: from then until the root is written the cube cannot be opened, and an
//! append interrupted there cannot be resumed. `docs/decisions/005-cube-journal.md` has the protocol, a crash at each
//! point, and what it does not protect against.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::{TryStreamExt, stream};
use serde_json::{Map, Value, json};

use super::{
    Cube,
    cut::{Cut, level_path, specs},
    describe::{self, Coordinates, CubeBand, LAYOUT, MADE, PROVENANCE, TimeStep},
    fresh::Fresh,
    options::{CubeOptions, WriteProgress},
    samples::{Images, Samples},
};
use crate::{
    apply::{MissingInput, mosaic::Fill},
    array::{Array, ArraySpec, JOURNAL, Root, Storage, Turn, below, parse, to_bytes},
    error::{Error, ErrorKind, Result},
    geo::GeoBox,
    raster::{DataType, Resampling, check_overview},
    session::Session,
};

/// The report of a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// Time steps that were added.
    pub steps: usize,
    /// Images that were in the cube already, and were left out.
    pub known: usize,
    /// Copied images that were left out as duplicates of others, and why.
    pub left_out: Vec<String>,
    /// What a user should know of the samples, such as pixels without data that no nodata value marks.
    pub notes: Vec<String>,
    /// Shards of the write.
    pub shards: u64,
    /// Shards that an earlier, interrupted write had written.
    pub resumed: u64,
    /// Bytes of samples in the others.
    pub bytes: u64,
    /// Missing inputs, where they are allowed: those known before reading, then in the order of the shards. Empty for a
    /// write that found nothing to do.
    pub missing_inputs: Vec<MissingInput>,
}

/// Writes a new cube, or resumes an interrupted write.
pub(super) async fn create(
    session: &Session,
    root: &Root,
    images: Images,
    options: &CubeOptions,
) -> Result<Written> {
    let location = root.location();
    let (fresh, _, left_out) = Fresh::of(session, images, None, options).await?;
    let fresh = fresh.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "no images to write"))?;
    let storage = Storage::make(session, root).await?;
    let turn = storage.go_on().await?;
    let cut = Cut {
        layout: options.layout,
        overviews: options.overviews,
        resampling: options.resampling,
    };
    let work = Work::new(storage, turn, fresh, cut, None)?.with_notes(None, options);
    let there = work.storage.read("zarr.json").await?;
    let journal = work.journal().await?;
    let invalid = |what: &str| Err(Error::new(ErrorKind::InvalidInput, what).at(location));
    match (&there, &journal) {
        (Some(there), None) => {
            // The same write is complete already.
            if work.is_done(there).await? {
                return Ok(Written {
                    known: work.steps.iter().map(|step| step.items.len()).sum(),
                    left_out,
                    ..Written::default()
                });
            }
            return invalid(
                "a group or array exists already: append to it, or choose another location",
            );
        }
        (_, Some(other)) if *other != work.journal_document()? => {
            return invalid(
                "an interrupted write of other images or options exists: resume it with those, or remove it",
            );
        }
        // Everything is written, and only the journal remains to be removed. Where inputs may be missing the write
        // runs again instead: the interrupted call could not report which are.
        (Some(_), Some(_)) if work.source.missing_inputs().is_none() => {
            let written = work.finish(0).await?;
            return Ok(Written {
                left_out,
                ..written
            });
        }
        _ => {}
    }
    let written = work.run(journal.is_some(), options).await?;
    Ok(Written {
        left_out,
        ..written
    })
}

/// Appends time steps to a cube, or resumes an interrupted append.
pub(super) async fn append(
    session: &Session,
    root: &Root,
    images: Images,
    options: &CubeOptions,
) -> Result<Written> {
    let location = root.location();
    let storage = Storage::at(session, root).await?;
    let turn = storage.go_on().await?;
    let cube = Cube::open_in(&storage).await?;
    let at = |err: Error| match err.location() {
        Some(_) => err,
        None => err.at(location),
    };
    let cut = cube
        .attributes()
        .get(LAYOUT)
        .and_then(Cut::parse)
        .ok_or_else(|| {
            let message = "a cube of another writer: its attribute rss:layout cannot be read";
            at(Error::new(ErrorKind::Unsupported, message))
        })?;
    let (fresh, known, left_out) = Fresh::of(session, images, Some(&cube), options)
        .await
        .map_err(at)?;
    let Some(fresh) = fresh else {
        // An append may have been interrupted after the root was written, with only its journal left.
        storage.remove(JOURNAL).await?;
        return Ok(Written {
            known,
            left_out,
            ..Written::default()
        });
    };
    let steps = fresh.steps();
    if let (Some(last), Some(first)) = (cube.steps().last(), steps.first())
        && first.time <= last.time
    {
        return Err(at(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "image {} of {} is not after the cube's last time step, {}",
                first.items.join(", "),
                first.time,
                last.time
            ),
        )));
    }
    let work = Work::new(storage, turn, fresh, cut, Some(&cube))?.with_notes(Some(&cube), options);
    let journal = work.journal().await?;
    if journal
        .as_ref()
        .is_some_and(|other| Some(other) != work.journal_document().ok().as_ref())
    {
        let message = format!(
            "an interrupted append of other images exists: resume it with those, or remove {}",
            work.storage.journal_name()
        );
        return Err(at(Error::new(ErrorKind::InvalidInput, message)));
    }
    let mut written = work.run(journal.is_some(), options).await?;
    (written.known, written.left_out) = (known, left_out);
    Ok(written)
}

/// A write under way.
pub(super) struct Work {
    pub(super) storage: Storage,
    turn: Turn,
    pub(super) source: Arc<dyn Samples>,
    /// Time steps of the source that the cube has already.
    pub(super) skipped: usize,
    pub(super) bands: Vec<CubeBand>,
    pub(super) cut: Cut,
    /// All time steps, those of before an append first.
    pub(super) steps: Vec<TimeStep>,
    /// The number of time steps before an append; 0 for a new cube.
    pub(super) before: usize,
    pub(super) levels: Vec<LevelWrite>,
    /// Attributes of the root that list texts of the write and of each append.
    notes: Map<String, Value>,
}

/// One level of a cube: full resolution, or an overview.
pub(super) struct LevelWrite {
    path: String,
    pub(super) grid: GeoBox,
    /// For each band its array, or one of all bands.
    pub(super) arrays: Vec<Array>,
    pub(super) specs: Vec<(String, ArraySpec)>,
    /// The arrays with the metadata of before an append.
    pub(super) old: Vec<Array>,
}

impl Work {
    fn new(
        storage: Storage,
        turn: Turn,
        fresh: Fresh,
        cut: Cut,
        existing: Option<&Cube>,
    ) -> Result<Self> {
        let mut steps = existing
            .map(|cube| cube.steps().to_vec())
            .unwrap_or_default();
        let before = steps.len();
        steps.extend(fresh.steps());
        // An append goes on with what the cube has: one without bounds stays without.
        let is_bounded = match existing {
            Some(cube) => describe::are_bounded(cube.steps()),
            None => describe::are_bounded(&steps),
        };
        for step in &mut steps {
            step.bounds = is_bounded.then(|| step.span());
        }
        let (grid, bands) = match existing {
            Some(cube) => (cube.grid().clone(), cube.bands().to_vec()),
            None => (fresh.source.grid(), fresh.source.bands().to_vec()),
        };
        cut.resampling.map_or(Ok(()), check_overview)?;
        for band in bands.iter().filter(|_| cut.overviews > 0) {
            let resampling = cut.resampling_of(band);
            if resampling != Resampling::Nearest
                && matches!(band.dtype, DataType::C64 | DataType::C128)
            {
                let message = format!(
                    "band {} is complex, which cannot be resampled by {resampling}: expected nearest",
                    band.name
                );
                return Err(Error::new(ErrorKind::Unsupported, message));
            }
        }
        let mut levels = Vec::with_capacity(cut.overviews + 1);
        let mut level_grid = grid;
        for number in 0..=cut.overviews {
            if number > 0 {
                let size = level_grid.size;
                if size.width == 1 && size.height == 1 {
                    let message = format!("overview {number} of a single pixel: choose fewer");
                    return Err(Error::new(ErrorKind::InvalidInput, message));
                }
                level_grid = describe::halved(&level_grid);
            }
            let path = level_path(number, cut.overviews);
            let mut specs = specs(&bands, &cut, &level_grid, steps.len())?;
            let mut arrays = Vec::with_capacity(specs.len());
            let mut old = Vec::new();
            for (name, spec) in &mut specs {
                if let Some(cube) = existing {
                    let array = cube.array(number, name)?;
                    // An append keeps the cube's chunks and shards, whatever the defaults are.
                    array.chunk().clone_into(&mut spec.chunk);
                    spec.shard = array.shard().map(<[u64]>::to_vec);
                    old.push(array.clone());
                }
                let at = below(&path, name);
                arrays.push(Array::unwritten(storage.clone(), &at, spec)?);
            }
            levels.push(LevelWrite {
                path,
                grid: level_grid.clone(),
                arrays,
                specs,
                old,
            });
        }
        Ok(Self {
            storage,
            turn,
            source: fresh.source,
            skipped: fresh.skipped,
            bands,
            cut,
            steps,
            before,
            levels,
            notes: Map::new(),
        })
    }

    /// Adds where the samples come from, and the notes of the options, to those of the cube.
    fn with_notes(mut self, existing: Option<&Cube>, options: &CubeOptions) -> Self {
        let provenance = (PROVENANCE.to_owned(), self.source.provenance());
        let texts = options.notes.iter();
        let texts = texts.map(|(name, text)| (name.clone(), json!(text)));
        for (name, value) in std::iter::once(provenance).chain(texts) {
            let there = existing.and_then(|cube| cube.attributes().get(&name));
            let mut all = there.and_then(Value::as_array).cloned().unwrap_or_default();
            all.push(value);
            self.notes.insert(name, Value::Array(all));
        }
        self
    }

    /// Returns the journal of this write: two writes with equal journals may complete each other. It does not hold
    /// the sizes and ETags of the source files, nor what a closure computes.
    fn journal_document(&self) -> Result<Value> {
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

    /// Reads the journal of an interrupted write, if there is one.
    async fn journal(&self) -> Result<Option<Value>> {
        let found = self.storage.read(JOURNAL).await?;
        found
            .map(|bytes| parse(&bytes).map_err(|err| err.at(self.storage.locate(JOURNAL))))
            .transpose()
    }

    /// Writes the shards that are missing, then the metadata. The order is the protocol of
    /// `docs/decisions/005-cube-journal.md`: journal, shards level by level, coordinates, metadata, root.
    async fn run(self, resumes: bool, options: &CubeOptions) -> Result<Written> {
        let session = self.storage.session.clone();
        let jobs = self.jobs()?;
        let shards: u64 = jobs.iter().map(|level| level.len() as u64).sum();
        let missing_inputs = self.source.missing_inputs();
        let mut there: HashSet<String> = HashSet::new();
        // Where inputs may be missing all shards are computed again: a shard does not record which it lacks.
        if resumes && missing_inputs.is_none() {
            for level in &self.levels {
                for (name, _) in &level.specs {
                    let found = self.storage.list(&below(&level.path, name)).await?;
                    there.extend(found.into_iter().map(|(key, _)| key));
                }
            }
        }
        let mut levels = Vec::with_capacity(jobs.len());
        for jobs in jobs {
            let jobs = jobs.into_iter().filter(|job| !self.is_there(job, &there));
            let budget = session.settings().budget_bytes;
            levels.push(self.batches(jobs.collect(), budget).await?);
        }
        let left = levels.iter().flatten().map(|batch| batch.jobs.len() as u64);
        let resumed = shards - left.sum::<u64>();
        if resumes {
            self.storage.clean().await?;
        } else {
            let journal = to_bytes(&self.journal_document()?);
            self.storage.write(JOURNAL, vec![journal]).await?;
        }
        if self.storage.wants_metadata_first() {
            for level in &self.levels {
                let (_, arrays) = self.described(level)?;
                describe::write_documents(&self.storage, &arrays).await?;
            }
        }
        let (done, bytes) = (AtomicU64::new(resumed), AtomicU64::new(0));
        let missing: Mutex<Vec<(usize, Vec<MissingInput>)>> = Mutex::default();
        let report = || {
            if let Some(watch) = &options.watch {
                watch(WriteProgress {
                    shards_done: done.load(Ordering::Relaxed),
                    shards,
                    bytes: bytes.load(Ordering::Relaxed),
                });
            }
        };
        report();
        let work = Arc::new(self);
        // More batches than threads, since some of them wait for the network. The byte budget limits them further.
        let at_once = session.settings().cpu_threads.max(1) * 2;
        // Level by level: an overview reads the shards of the level before.
        for batches in levels {
            stream::iter(batches.into_iter().enumerate().map(Ok))
                .try_for_each_concurrent(at_once, |(number, batch)| {
                    let (work, session) = (Arc::clone(&work), session.clone());
                    let (done, bytes, missing, report) = (&done, &bytes, &missing, &report);
                    async move {
                        let share = session.share_of_work(batch.bytes).await;
                        let missing_inputs = work.write(&batch.jobs).await?;
                        drop(share);
                        if !missing_inputs.is_empty() {
                            let mut missing =
                                missing.lock().unwrap_or_else(PoisonError::into_inner);
                            missing.push((number, missing_inputs));
                        }
                        for job in &batch.jobs {
                            bytes.fetch_add(work.samples(job), Ordering::Relaxed);
                            done.fetch_add(1, Ordering::Relaxed);
                            report();
                        }
                        Ok::<_, Error>(())
                    }
                })
                .await?;
        }
        work.describe().await?;
        let mut written = work.finish(shards).await?;
        written.notes = work.source.notes();
        written.resumed = resumed;
        written.bytes = bytes.into_inner();
        written.missing_inputs = missing_inputs.unwrap_or_default();
        let mut missing = missing.into_inner().unwrap_or_else(PoisonError::into_inner);
        missing.sort_by_key(|(number, _)| *number);
        let missing = missing
            .into_iter()
            .flat_map(|(_, missing_inputs)| missing_inputs);
        written.missing_inputs.extend(missing);
        Ok(written)
    }

    /// Publishes the write, then removes the journal: a crash in between leaves a complete cube whose journal the next
    /// call removes.
    async fn finish(&self, shards: u64) -> Result<Written> {
        self.turn.publish(&self.message()).await?;
        self.storage.remove(JOURNAL).await?;
        self.storage.clean().await?;
        Ok(Written {
            steps: self.steps.len() - self.before,
            shards,
            ..Written::default()
        })
    }

    /// Returns the coordinates of a level, and the metadata of all its arrays by their paths.
    fn described(&self, level: &LevelWrite) -> Result<(Coordinates, Vec<(String, Value)>)> {
        let coordinates = Coordinates::of(
            &level.grid,
            &self.steps,
            &self.bands,
            self.cut.layout.arrangement,
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
    fn message(&self) -> String {
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

    /// Writes coordinates, then metadata, the root's last: it alone makes a new cube visible.
    async fn describe(&self) -> Result<()> {
        for level in &self.levels {
            let (coordinates, _) = self.described(level)?;
            coordinates.write(&self.storage, &level.path).await?;
        }
        describe::write_documents(&self.storage, &self.documents()?).await
    }

    /// Returns the metadata of all arrays, of the groups of levels, and of the root, which is last.
    fn documents(&self) -> Result<Vec<(String, Value)>> {
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
    async fn is_done(&self, root: &[u8]) -> Result<bool> {
        let mut documents = self.documents()?;
        let mut there: Value = parse(root)?;
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
