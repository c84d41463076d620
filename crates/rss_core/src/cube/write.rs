//! Writing a cube shard by shard, so that an interrupted write can be resumed, by one writer at a time.
//!
//! A journal states what is to be written, and who writes: it is the writer's claim, see [`Claim`]. Then come complete
//! shards, the coordinates, the arrays' metadata, and the root's `zarr.json` last; then the journal is removed. A write
//! that finds a journal of its own plan resumes: it writes the shards that are missing, damaged, or of files that were
//! replaced since.
//!
//! What a root states stays true until it is replaced: coordinates have chunks of a fixed length, so that those of an
//! append begin with the same values, and a shard that holds more time steps than before holds those of before too.
//! `docs/decisions/005-cube-journal.md` has the protocol, and a crash at each point.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use futures::{TryStreamExt, stream};
use serde_json::{Map, Value, json};

use super::{
    Cube,
    coordinates::STEPS_PER_CHUNK,
    cut::{Cut, level_path, specs},
    describe::{self, CubeBand, LAYOUT, PROVENANCE, TimeStep},
    fresh::Fresh,
    manifest::{self, MANIFEST, Tally},
    options::{CubeOptions, WriteProgress},
    samples::{Images, Samples},
};
use crate::{
    apply::MissingInput,
    array::{Array, ArraySpec, Claim, Intent, Journal, Listed, Root, Storage, Turn, below},
    error::{Error, ErrorKind, Result},
    geo::GeoBox,
    raster::{DataType, Resampling, check_overview},
    session::Session,
};

/// Objects of coordinates and metadata that are written at once.
pub(super) const AT_ONCE: usize = 16;

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

/// What a writer found before it began.
pub(super) struct Found {
    pub(super) journal: Option<Journal>,
    /// The root's metadata.
    pub(super) root: Option<Bytes>,
    /// Whether the journal is that of other images, whose shards are discarded.
    pub(super) discards: bool,
}

/// Writes a new cube, or resumes an interrupted write.
pub(super) async fn create(
    session: &Session,
    root: &Root,
    images: Images,
    options: &CubeOptions,
) -> Result<Written> {
    let location = root.location();
    if let Root::Objects(_) = root {
        // Before any image is opened.
        let storage = Storage::at(session, root).await?;
        storage.check_free().await?;
        Claim::peek(&storage, options.take_over).await?;
    }
    let (fresh, _, left_out) = Fresh::of(session, images, None, options).await?;
    let fresh = fresh.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "no images to write"))?;
    let storage = Storage::make(session, root).await?;
    let turn = storage.go_on().await?;
    let cut = Cut {
        layout: options.layout,
        overviews: options.overviews,
        resampling: options.resampling,
    };
    let mut work = Work::new(storage, turn, fresh, cut, None)?.with_notes(None, options);
    let journal = Journal::read(&work.storage).await?;
    let there = work.storage.read("zarr.json").await?;
    let plan = work.plan()?;
    let mut discards = false;
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
            let message =
                "a group or array exists already: append to it, or choose another location";
            return Err(Error::new(ErrorKind::InvalidInput, message).at(location));
        }
        (root, Some(other)) if other.plan() != plan => {
            discards = options.take_over && root.is_none();
            if !discards {
                return Err(work.refused(other, "write", "images or options"));
            }
        }
        // Everything is written, and only the journal remains to be removed. Where inputs may be missing the write
        // runs again instead: the interrupted call could not report which are.
        (Some(_), Some(found)) if work.source.missing_inputs().is_none() => {
            let intent = Intent {
                document: plan,
                journal: Some(found),
                root: there.as_ref(),
                take_over: options.take_over,
            };
            let claim = Claim::take(&work.storage, intent).await?;
            let written = work.finish(&claim, 0).await?;
            return Ok(Written {
                left_out,
                ..written
            });
        }
        _ => {}
    }
    let found = Found {
        journal,
        root: there,
        discards,
    };
    let written = work.run(found, options).await?;
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
    Claim::peek(&storage, options.take_over).await?;
    let turn = storage.go_on().await?;
    // Before the root: what it states is then checked once more when the claim is taken.
    let journal = Journal::read(&storage).await?;
    let there = storage.read("zarr.json").await?;
    let cube = Cube::open_document(&storage, there.as_deref()).await?;
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
        // An append may have been interrupted after the root was written, with only its journal left. Another journal
        // is that of an append which is not done.
        let planned = journal.as_ref().and_then(|journal| {
            let plan = journal.plan();
            let steps = plan.get("steps")?.as_array()?.len();
            (steps == cube.steps().len()).then_some(plan)
        });
        if let Some(plan) = planned {
            let intent = Intent {
                document: plan,
                journal: journal.as_ref(),
                root: there.as_ref(),
                take_over: options.take_over,
            };
            let claim = Claim::take(&storage, intent).await?;
            // The copy of the metadata of before that append may be left.
            let parts = manifest::stated(cube.attributes().get(MANIFEST));
            if let Some(last) = parts.len().checked_sub(2) {
                claim.remove(&manifest::metadata_key(last)).await?;
                claim.settle().await?;
            }
            claim.release().await?;
        }
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
    let plan = work.plan()?;
    let other = journal.as_ref().filter(|journal| journal.plan() != plan);
    if let Some(other) = other.filter(|_| !options.take_over) {
        return Err(at(work.refused(other, "append", "images")));
    }
    let found = Found {
        discards: other.is_some(),
        journal,
        root: there,
    };
    let mut written = work.run(found, options).await?;
    (written.known, written.left_out) = (known, left_out);
    Ok(written)
}

/// A write under way.
pub(super) struct Work {
    pub(super) storage: Storage,
    /// From when it begins to write.
    pub(super) claim: Option<Claim>,
    /// Shards that are there, by key: those of an interrupted write, or that an append rewrites.
    pub(super) there: HashMap<String, Listed>,
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
    /// Time steps in a chunk of the coordinates along time.
    pub(super) steps_per_chunk: usize,
    /// Attributes of the root that list texts of the write and of each append.
    pub(super) notes: Map<String, Value>,
    /// The shards of this write.
    pub(super) tally: Tally,
    /// The parts of the manifest of before an append, as the root states them.
    pub(super) parts: Vec<Value>,
}

/// One level of a cube: full resolution, or an overview.
pub(super) struct LevelWrite {
    pub(super) path: String,
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
            claim: None,
            there: HashMap::new(),
            turn,
            source: fresh.source,
            skipped: fresh.skipped,
            bands,
            cut,
            steps,
            before,
            levels,
            steps_per_chunk: existing.map_or(STEPS_PER_CHUNK, |cube| cube.steps_per_chunk),
            notes: Map::new(),
            tally: Tally::default(),
            parts: manifest::stated(existing.and_then(|cube| cube.attributes().get(MANIFEST))),
        })
    }

    /// Returns a write of all shards of an existing cube from a source, by which some of them are repaired.
    pub(super) fn again(
        storage: Storage,
        turn: Turn,
        fresh: Fresh,
        cut: Cut,
        cube: &Cube,
    ) -> Result<Self> {
        Self::new(storage, turn, fresh, cut, Some(&cube.with_first(0)))
    }

    /// Takes the claim for a repair of a cube with this root, where no write is under way. `keys` are the objects that it
    /// may replace.
    ///
    /// # Errors
    ///
    /// As [`Claim::take`].
    pub(super) async fn claimed(mut self, root: &Bytes, keys: &BTreeSet<String>) -> Result<Self> {
        let journal = Journal::read(&self.storage).await?;
        let is_repair = |journal: &Journal| journal.plan().get(manifest::REPAIRS).is_some();
        if journal.as_ref().is_some_and(|journal| !is_repair(journal)) {
            let message = "a write has not ended: start it again before shards are repaired";
            return Err(Error::new(ErrorKind::InvalidInput, message).at(&self.storage.base));
        }
        let intent = Intent {
            document: json!({manifest::REPAIRS: keys.len()}),
            journal: journal.as_ref(),
            root: Some(root),
            take_over: false,
        };
        let listed = self.storage.list("").await?.into_iter();
        self.there = listed.map(|one| (one.key.clone(), one)).collect();
        self.claim = Some(Claim::take(&self.storage, intent).await?);
        Ok(self)
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

    pub(super) fn claim(&self) -> Result<&Claim> {
        let claim = self.claim.as_ref();
        claim.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "a write without a claim"))
    }

    /// Writes the shards that are missing, then the metadata. The order is the protocol of
    /// `docs/decisions/005-cube-journal.md`: journal, shards level by level, coordinates, metadata, root.
    async fn run(mut self, found: Found, options: &CubeOptions) -> Result<Written> {
        let session = self.storage.session.clone();
        let jobs = self.jobs()?;
        let shards: u64 = jobs.iter().map(|level| level.len() as u64).sum();
        let missing_inputs = self.source.missing_inputs();
        let resumes = found.journal.is_some() && !found.discards;
        self.there = self.listed(&found).await?;
        self.source.open(self.skipped).await?;
        let mut notes = Vec::new();
        let mut stale = Vec::new();
        let mut levels = Vec::with_capacity(jobs.len());
        // Where inputs may be missing all shards are computed again: a shard does not record which it lacks.
        let replaced = match &found.journal {
            Some(journal) if resumes => self.replaced(journal),
            _ => Vec::new(),
        };
        for jobs in jobs {
            let mut rest = jobs;
            if resumes && missing_inputs.is_none() {
                let checked = self.unwritten(rest, &replaced).await?;
                rest = checked.jobs;
                stale.extend(checked.stale);
                if checked.damaged > 0 {
                    notes.push(format!(
                        "{} shards of the interrupted write are damaged: they are made anew",
                        checked.damaged
                    ));
                }
            }
            let budget = session.settings().budget_bytes;
            levels.push(self.batches(rest, budget).await?);
        }
        if !stale.is_empty() {
            let names: BTreeSet<&str> =
                replaced.iter().map(|file| file.location.as_str()).collect();
            notes.push(format!(
                "{} files were replaced since the write was interrupted, the first is {}: {} shards are made anew",
                names.len(),
                replaced.first().map_or("", |file| file.location.as_str()),
                stale.len()
            ));
        }
        let left = levels.iter().flatten().map(|batch| batch.jobs.len() as u64);
        let resumed = shards - left.sum::<u64>();
        self.claim = Some(self.take_claim(&found, &stale, options).await?);
        if let Some(writer) = found.journal.as_ref().and_then(Journal::writer)
            && !self.storage.is_local()
            && !writer.is_dead()
        {
            notes.push(format!(
                "the write of {writer} is taken over: if that process still runs, it will end with an error"
            ));
        }
        notes.extend(self.claim()?.take_notes());
        for note in &notes {
            tracing::warn!(location = %self.storage.base, "{note}");
        }
        if self.storage.wants_metadata_first() {
            for level in &self.levels {
                let (_, arrays) = self.described(level)?;
                for (key, document) in describe::objects(&arrays) {
                    self.storage.write(&key, vec![document]).await?;
                }
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
        work.describe(found.root.as_ref(), resumes).await?;
        let mut written = work.finish(work.claim()?, shards).await?;
        notes.extend(work.source.notes());
        written.notes = notes;
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
    async fn finish(&self, claim: &Claim, shards: u64) -> Result<Written> {
        self.turn.publish(&self.message()).await?;
        // The copy of the metadata of before an append is that of no root now.
        if let Some(last) = self.parts.len().checked_sub(1) {
            claim.remove(&manifest::metadata_key(last)).await?;
            claim.settle().await?;
        }
        claim.release().await?;
        Ok(Written {
            steps: self.steps.len() - self.before,
            shards,
            ..Written::default()
        })
    }
}
