//! The repair of what a [check](super::check) has found: metadata from its copy, shards from the recorded sources.
//!
//! Metadata comes first, so that the cube can be opened; then the shards, level by level, as a write makes them; at the end
//! the manifest, where shards are others than before. Each object is replaced whole: a repair that is stopped is repeated.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use ndarray::{Array3, Axis, concatenate};
use serde_json::{Value, json};

use super::{
    Cube,
    cut::Cut,
    describe::{CubeBand, LAYOUT, PROVENANCE, TimeStep},
    fresh::Fresh,
    manifest::{self, MANIFEST, Part},
    options::CubeOptions,
    report::{CheckReport, Damage, Holds},
    samples::{Hyperslab, Images, Samples, Together},
    shards::ShardJob,
    write::Work,
};
use crate::{
    apply::MissingInput,
    array::{Claim, Storage, Sum, to_bytes},
    error::{Error, ErrorKind, Result},
    geo::GeoBox,
    raster::{Pixels, Sample, with_type},
};

/// Objects that are written at once.
const AT_ONCE: usize = 16;

/// Texts of a write by the attribute of the root that lists them.
type Notes = Vec<(String, String)>;

/// The images and options of one write of a cube, by which its shards are made again.
#[derive(Debug)]
pub struct Remake {
    pub(super) images: Images,
    pub(super) options: CubeOptions,
}

impl Remake {
    /// Describes a write by its images and options. Layout and overviews of the options are the cube's; of their notes those
    /// of the write are replaced where sources have changed.
    pub fn new(images: impl Into<Images>, options: CubeOptions) -> Self {
        Self {
            images: images.into(),
            options,
        }
    }
}

impl CheckReport {
    /// Puts metadata and coordinates right that are missing or damaged, and removes what no write has put there. Then the
    /// cube can be opened.
    ///
    /// # Errors
    ///
    /// Those of the store; [`ErrorKind::Unsupported`] in an Icechunk repository, which keeps earlier versions.
    pub async fn repair_metadata(&mut self) -> Result<()> {
        self.check_repairable().await?;
        let objects = &self.known.objects;
        let (mut wrong, mut surplus) = (Vec::new(), Vec::new());
        for (number, finding) in self.findings.iter().enumerate() {
            match (finding.damage, finding.holds) {
                (Damage::Surplus, _) => surplus.push((number, finding.key.clone())),
                (_, Holds::Metadata) => {
                    if let Some(bytes) = objects.get(&finding.key) {
                        wrong.push((number, finding.key.clone(), bytes.clone()));
                    }
                }
                _ => {}
            }
        }
        // The root last: what it names is there by then.
        wrong.sort_by_key(|(_, key, _)| key == "zarr.json");
        for (number, key, bytes) in wrong {
            self.storage.write(&key, vec![bytes]).await?;
            self.findings[number].is_repaired = true;
        }
        for (number, key) in surplus {
            self.storage.remove(&key).await?;
            self.findings[number].is_repaired = true;
        }
        if !self.has_shards_to_remake() {
            self.repair_manifest(None).await?;
        }
        Ok(())
    }

    /// Makes shards again that are missing, damaged, exchanged or stale: `writes` are those of the cube in their order, its
    /// creation first. Of each only the shards are computed that are needed. What cannot be made stays as it is, and a note
    /// says why.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the writes do not give the cube's time steps; errors of opening the sources.
    pub async fn remake(&mut self, writes: Vec<Remake>) -> Result<()> {
        self.check_repairable().await?;
        let cube = Cube::open_in(&self.storage).await?;
        let (source, notes) = self.joined(&cube, writes).await?;
        let source = Arc::new(source);
        let work = self
            .work(&cube, Arc::clone(&source) as Arc<dyn Samples>)
            .await?;
        let wanted: BTreeSet<String> = self
            .findings
            .iter()
            .filter(|finding| finding.holds == Holds::Shard && !finding.is_repaired)
            .map(|finding| finding.key.clone())
            .collect();
        let root = self.storage.read("zarr.json").await?.unwrap_or_default();
        let work = work.claimed(&root, &wanted).await?;
        let done = self.remake_by(&work, &source, notes, &wanted).await;
        work.claim()?.release().await?;
        done
    }

    async fn remake_by(
        &mut self,
        work: &Work,
        source: &Joined,
        notes: Vec<Notes>,
        wanted: &BTreeSet<String>,
    ) -> Result<()> {
        let session = self.storage.session.clone();
        let budget = session.settings().budget_bytes;
        let at_once = session.settings().cpu_threads.max(1) * 2;
        let failed: Mutex<Vec<(Vec<String>, Error)>> = Mutex::default();
        for jobs in work.jobs()? {
            let is_stale = |job: &ShardJob| {
                let mut times = job.times();
                times.any(|time| self.stale_steps.contains(&time))
            };
            let jobs = jobs.into_iter();
            let jobs = jobs.filter(|job| wanted.contains(&work.key_of(job)) || is_stale(job));
            // An overview is made of the level before, which must be whole.
            if !failed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .is_empty()
            {
                break;
            }
            let batches = work.batches(jobs.collect(), budget).await?;
            stream::iter(batches)
                .for_each_concurrent(at_once, |batch| {
                    let (session, failed) = (&session, &failed);
                    async move {
                        let share = session.share_of_work(batch.bytes).await;
                        let written = work.write(&batch.jobs).await;
                        drop(share);
                        if let Err(err) = written {
                            let keys = batch.jobs.iter().map(|job| work.key_of(job));
                            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                            failed.push((keys.collect(), err));
                        }
                    }
                })
                .await;
        }
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        let unmade: BTreeSet<&String> = failed.iter().flat_map(|(keys, _)| keys).collect();
        let mut remade = BTreeSet::new();
        for job in work.jobs()?.into_iter().flatten() {
            let key = work.key_of(&job);
            if wanted.contains(&key) && (failed.is_empty() || work.tally.get(&key).is_some()) {
                remade.insert(key);
            }
        }
        for finding in &mut self.findings {
            let is_made = remade.contains(&finding.key) && !unmade.contains(&finding.key);
            finding.is_repaired |= finding.holds == Holds::Shard && is_made;
        }
        for (keys, err) in &failed {
            let first = keys.first().map_or("", String::as_str);
            self.notes
                .push(format!("{first} could not be made again: {err}"));
        }
        if failed.is_empty() {
            self.repair_manifest(Some((work, source, notes))).await?;
        }
        Ok(())
    }

    async fn check_repairable(&self) -> Result<()> {
        if self.storage.is_repository() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "a repository keeps earlier versions: name one by its snapshot, no shard of it is made again",
            ));
        }
        Claim::peek(&self.storage, false).await
    }

    /// Opens the sources of all writes as one, and returns the notes of each.
    async fn joined(&self, cube: &Cube, writes: Vec<Remake>) -> Result<(Joined, Vec<Notes>)> {
        let (mut sources, mut notes) = (Vec::new(), Vec::new());
        let mut end = 0;
        let count = writes.len();
        for (number, Remake { images, options }) in writes.into_iter().enumerate() {
            let before = cube.with_first(end);
            let session = &self.storage.session;
            let (fresh, ..) = Fresh::of(session, images, Some(&before), &options).await?;
            let other = || {
                let message = format!(
                    "write {} of {count} of the cube gives other time steps than the cube has",
                    number + 1
                );
                Error::new(ErrorKind::InvalidInput, message)
            };
            let Fresh { source, skipped } = fresh.ok_or_else(other)?;
            let steps = Fresh {
                source: Arc::clone(&source),
                skipped,
            }
            .steps();
            let there = cube.steps().get(end..end + steps.len()).ok_or_else(other)?;
            let is_same = |(a, b): (&TimeStep, &TimeStep)| (a.time, &a.items) == (b.time, &b.items);
            if !steps.iter().zip(there).all(is_same) {
                return Err(other());
            }
            let times = end..end + steps.len();
            end = times.end;
            sources.push(OneSource {
                source,
                skipped,
                times,
            });
            notes.push(options.notes.clone());
        }
        if end != cube.steps().len() {
            let message = format!(
                "the writes give {end} time steps, the cube has {}",
                cube.steps().len()
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let joined = Joined {
            sources,
            bands: cube.bands().to_vec(),
            steps: cube.steps().to_vec(),
            grid: cube.grid().clone(),
        };
        Ok((joined, notes))
    }

    /// Returns a write of all shards of a cube from a source.
    async fn work(&self, cube: &Cube, source: Arc<dyn Samples>) -> Result<Work> {
        let cut = self
            .known
            .attribute(LAYOUT)
            .and_then(Cut::parse)
            .ok_or_else(|| {
                let message = "a cube of another writer: its attribute rss:layout cannot be read";
                Error::new(ErrorKind::Unsupported, message)
            })?;
        let turn = self.storage.begin().await?;
        Work::again(
            self.storage.clone(),
            turn,
            Fresh { source, skipped: 0 },
            cut,
            cube,
        )
    }

    /// Writes the manifest anew where a part of it is missing or damaged, or shards are others than it says. `made` is the
    /// repair of shards, if there was one.
    async fn repair_manifest(&mut self, made: Option<(&Work, &Joined, Vec<Notes>)>) -> Result<()> {
        let is_manifest =
            |holds: Holds, damage: Damage| holds == Holds::Manifest && damage != Damage::Surplus;
        let mut is_wrong = self
            .findings
            .iter()
            .any(|one| is_manifest(one.holds, one.damage));
        let shards = self.known.shards();
        let mut changed: BTreeMap<String, Sum> = BTreeMap::new();
        if let Some((work, ..)) = &made {
            for (key, sum) in work.tally.shards() {
                if shards.get(&key) != Some(&sum) {
                    changed.insert(key, sum);
                }
            }
        }
        is_wrong |= !changed.is_empty() || !self.stale_steps.is_empty();
        if self.known.stated.is_empty() || !is_wrong {
            return Ok(());
        }
        let cube = Cube::open_in(&self.storage).await?;
        let own;
        let work = match &made {
            Some((work, ..)) => *work,
            None => {
                let source = Joined {
                    sources: Vec::new(),
                    bands: cube.bands().to_vec(),
                    steps: cube.steps().to_vec(),
                    grid: cube.grid().clone(),
                };
                own = self.work(&cube, Arc::new(source)).await?;
                &own
            }
        };
        let after = |number: usize| match self.known.stated.get(number + 1) {
            Some(next) => next.from,
            None => cube.steps().len(),
        };
        let mut parts = Vec::new();
        for (number, stated) in self.known.stated.iter().enumerate() {
            let times = stated.from..after(number);
            let old = self.known.parts.get(number).cloned().flatten();
            let is_lost = old.is_none();
            let mut part = old.unwrap_or(Part {
                number,
                from: stated.from,
                shards: BTreeMap::new(),
            });
            let jobs = work.jobs()?.into_iter().flatten();
            // The shards that this write has stored: those with its time steps.
            let jobs = jobs.filter(|job| {
                let of_shard = job.times();
                of_shard.start < times.end && of_shard.end > times.start
            });
            let jobs = jobs.filter(|job| is_lost || changed.contains_key(&work.key_of(job)));
            let sums: Vec<(String, Option<Sum>)> =
                stream::iter(jobs)
                    .map(|job| {
                        let end = times.end;
                        async move {
                            Ok::<_, Error>((work.key_of(&job), work.sum_until(&job, end).await?))
                        }
                    })
                    .buffer_unordered(AT_ONCE)
                    .try_collect()
                    .await?;
            for (key, sum) in sums {
                match sum {
                    Some(sum) => part.shards.insert(key, sum),
                    None => part.shards.remove(&key),
                };
            }
            parts.push(part);
        }
        let mut root = self.known.root.clone();
        if let (Some((_, source, notes)), false) = (&made, self.stale_steps.is_empty()) {
            source.restate(&mut root, &self.stale_steps, notes);
        }
        let mut objects = Vec::new();
        let mut stated = Vec::new();
        for part in &parts {
            let (key, bytes, said) = part.object()?;
            objects.push((key, bytes));
            stated.push(said);
        }
        root["attributes"][MANIFEST] = manifest::attribute(&stated);
        let root = to_bytes(&root);
        self.known
            .objects
            .insert("zarr.json".to_owned(), root.clone());
        let all: Vec<(String, Bytes)> = self.known.objects.clone().into_iter().collect();
        let copy = manifest::copy(&all)?;
        objects.push((manifest::metadata_key(parts.len() - 1), copy));
        objects.push(("zarr.json".to_owned(), root));
        for (key, bytes) in objects {
            replace(&self.storage, &key, bytes).await?;
        }
        for finding in &mut self.findings {
            finding.is_repaired |= is_manifest(finding.holds, finding.damage);
        }
        Ok(())
    }
}

/// Writes an object unless it is there as it should be.
async fn replace(storage: &Storage, key: &str, bytes: Bytes) -> Result<()> {
    let there = match storage.read(key).await {
        Err(err) if err.kind() == ErrorKind::Corrupt => None,
        read => read?,
    };
    match there.as_ref() == Some(&bytes) {
        true => Ok(()),
        false => storage.write(key, vec![bytes]).await,
    }
}

/// The sources of all writes of a cube, one behind the other in time.
struct Joined {
    sources: Vec<OneSource>,
    bands: Vec<CubeBand>,
    steps: Vec<TimeStep>,
    grid: GeoBox,
}

/// The source of one write.
struct OneSource {
    source: Arc<dyn Samples>,
    /// Time steps of the source that the cube had before.
    skipped: usize,
    /// Its time steps in the cube.
    times: Range<usize>,
}

impl Joined {
    /// Returns the part of a hyperslab that each source gives.
    fn parts<'a>(
        &'a self,
        part: &'a Hyperslab,
    ) -> impl Iterator<Item = (&'a Arc<dyn Samples>, Hyperslab)> + 'a {
        self.sources.iter().filter_map(|one| {
            let start = part.times.start.max(one.times.start);
            let end = part.times.end.min(one.times.end);
            let of_source = |time: usize| time - one.times.start + one.skipped;
            let own = (start < end).then(|| Hyperslab {
                times: of_source(start)..of_source(end),
                ..part.clone()
            })?;
            Some((&one.source, own))
        })
    }

    /// States in a root's attributes what the writes with stale time steps are made of now.
    fn restate(&self, root: &mut Value, stale: &BTreeSet<usize>, notes: &[Notes]) {
        let attributes = &mut root["attributes"];
        for (number, one) in self.sources.iter().enumerate() {
            if !one.times.clone().any(|time| stale.contains(&time)) {
                continue;
            }
            let of_write = attributes
                .get_mut(PROVENANCE)
                .and_then(|all| all.get_mut(number));
            if let Some(said) = of_write {
                *said = with_versions(one.source.provenance(), said);
            }
            for (name, text) in notes.get(number).into_iter().flatten() {
                let of_write = attributes.get_mut(name).and_then(|all| all.get_mut(number));
                if let Some(said) = of_write {
                    *said = json!(text);
                }
            }
        }
    }
}

/// Adds the versions of files to provenance that a repair has not opened.
fn with_versions(mut now: Value, then: &Value) -> Value {
    let (Some(items), Some(before)) = (now["items"].as_array_mut(), then["items"].as_array())
    else {
        return now;
    };
    for item in items {
        let of_item = before.iter().find(|one| one["id"] == item["id"]);
        let versions = of_item.and_then(|one| one["versions"].as_object());
        for (key, version) in versions.into_iter().flatten() {
            if item["versions"].get(key).is_none() {
                item["versions"][key] = version.clone();
            }
        }
    }
    now
}

#[async_trait::async_trait]
impl Samples for Joined {
    fn bands(&self) -> &[CubeBand] {
        &self.bands
    }

    fn steps(&self) -> Vec<TimeStep> {
        self.steps.clone()
    }

    fn grid(&self) -> GeoBox {
        self.grid.clone()
    }

    fn made(&self) -> Value {
        Value::Null
    }

    fn provenance(&self) -> Value {
        Value::Null
    }

    fn together(&self) -> Together {
        let mut all = self.sources.iter().map(|one| one.source.together());
        match all.clone().any(|one| one == Together::Window) {
            true => Together::Window,
            false if all.any(|one| one == Together::Bands) => Together::Bands,
            false => Together::None,
        }
    }

    fn missing_inputs(&self) -> Option<Vec<MissingInput>> {
        None
    }

    async fn bytes(&self, part: &Hyperslab) -> Result<u64> {
        let size = part.bands.first().and_then(|&band| self.bands.get(band));
        let mut bytes = part.len() * size.map_or(1, |band| band.dtype.size() as u64);
        for (source, own) in self.parts(part) {
            bytes += source.bytes(&own).await?;
        }
        Ok(bytes)
    }

    async fn make(&self, part: &Hyperslab) -> Result<(Vec<Pixels>, Vec<MissingInput>)> {
        let (mut all, mut missing_inputs) = (Vec::new(), Vec::new());
        for (source, own) in self.parts(part) {
            let (made, missing) = source.make(&own).await?;
            all.push(made);
            missing_inputs.extend(missing);
        }
        if all.len() == 1 {
            return Ok((all.pop().unwrap_or_default(), missing_inputs));
        }
        let bands = (0..part.bands.len()).map(|band| {
            let of_band: Vec<&Pixels> = all.iter().filter_map(|made| made.get(band)).collect();
            let dtype = of_band.first().map(|pixels| pixels.dtype());
            let dtype =
                dtype.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "no time steps"))?;
            with_type!(dtype, T => behind::<T>(&of_band))
        });
        Ok((bands.collect::<Result<_>>()?, missing_inputs))
    }
}

/// Puts samples (time, y, x) behind each other in time.
fn behind<T: Sample>(parts: &[&Pixels]) -> Result<Pixels> {
    let views: Vec<_> = parts.iter().filter_map(|pixels| T::view(pixels)).collect();
    let joined: Result<Array3<T>> = concatenate(Axis(0), &views).map_err(|err| {
        Error::new(ErrorKind::Corrupt, "time steps of different shapes").with_source(err)
    });
    Ok(T::wrap(joined?))
}
