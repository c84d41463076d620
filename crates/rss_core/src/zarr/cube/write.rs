//! Writing a cube: shard by shard, so that it can be stopped at any moment and gone on with.
//!
//! Before the first shard a journal says what is to be written. Shards are written whole, then
//! coordinates, then the arrays' metadata, the group's last: until then nothing can be opened, or an
//! append cannot be seen. At the end the journal is removed. A write that finds a journal of the same
//! plan goes on with the shards that are missing; the same images give the same bytes.

use std::{
    collections::HashSet,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::{StreamExt, TryStreamExt, stream};
use ndarray::{Array3, ArrayD, Axis, s};
use serde_json::{Value, json};

use super::{
    Cube,
    describe::{self, Coordinates, CubeBand, LAYOUT, STACK, TimeStep},
    images::Image,
    options::{CubeOptions, Resampling, WriteProgress},
    overview,
    plan::{Open, Plan, Source},
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{GeoBox, Window},
    raster::{DataType, Sample, with_type},
    reader::ReadRequest,
    session::Session,
    zarr::{
        array::{Array, ArraySpec, below, parse, to_bytes},
        layout::{Arrangement, Block, Layout},
        place::{JOURNAL, Place, Turn},
        root::Root,
    },
};

/// Windows of images that one shard reads at once.
const READS: usize = 8;

/// What a write did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// Dates that were added.
    pub steps: usize,
    /// Images that were in the cube already, and were left out.
    pub known: usize,
    /// Shards of the write.
    pub shards: u64,
    /// Those that an earlier, stopped write had left.
    pub resumed: u64,
    /// Bytes of samples in the others.
    pub bytes: u64,
}

/// How a cube is cut, as its group says it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cut {
    layout: Layout,
    overviews: usize,
    resampling: Resampling,
}

impl Cut {
    /// Returns what the group says: all but chunks and shards, which the arrays say.
    fn to_json(self, bands: &[CubeBand]) -> Value {
        let names: Vec<&str> = bands.iter().map(|band| band.name.as_str()).collect();
        json!({
            "bands": names,
            "codec": self.layout.codec.to_string(),
            "stacked": self.layout.arrangement == Arrangement::Stacked,
            "overviews": self.overviews,
            "resampling": self.resampling.name(),
        })
    }

    fn parse(said: &Value) -> Option<Self> {
        let arrangement = match said.get("stacked")?.as_bool()? {
            true => Arrangement::Stacked,
            false => Arrangement::Bands,
        };
        Some(Self {
            layout: Layout::default()
                .with_codec(said.get("codec")?.as_str()?.parse().ok()?)
                .with_arrangement(arrangement),
            overviews: usize::try_from(said.get("overviews")?.as_u64()?).ok()?,
            resampling: said.get("resampling")?.as_str()?.parse().ok()?,
        })
    }
}

/// Writes a new cube, or goes on with one whose write was stopped.
pub(super) async fn create(
    session: &Session,
    root: &Root,
    images: Vec<Image>,
    options: &CubeOptions,
) -> Result<Written> {
    let location = root.location();
    let plan = Plan::new(session, images, None, options).await?;
    let place = Place::make(session, root).await?;
    let turn = place.go_on().await?;
    let grid = plan.grid();
    let cut = Cut {
        layout: options.layout,
        overviews: options.overviews,
        resampling: options.resampling,
    };
    let work = Work::new(place, turn, plan, grid, cut, Vec::new(), None)?;
    let there = work.place.read("zarr.json").await?;
    let journal = work.journal().await?;
    let wrong = |what: &str| Err(Error::new(ErrorKind::InvalidInput, what).at(location));
    match (&there, &journal) {
        (Some(there), None) => {
            // The same write ended already.
            if work.is_done(there).await? {
                return Ok(Written {
                    known: work.steps.iter().map(|step| step.items.len()).sum(),
                    ..Written::default()
                });
            }
            return wrong(
                "a group or array is there already: append to it, or choose another place",
            );
        }
        (_, Some(other)) if *other != work.said()? => {
            return wrong(
                "a stopped write of other images or options is there: go on with those, or remove it",
            );
        }
        // All was written but the end of the journal.
        (Some(_), Some(_)) => return work.finish(0).await,
        (None, _) => {}
    }
    work.run(journal.is_some(), options).await
}

/// Adds dates to a cube, or goes on with an append that was stopped.
pub(super) async fn append(
    session: &Session,
    root: &Root,
    images: Vec<Image>,
    options: &CubeOptions,
) -> Result<Written> {
    let location = root.location();
    let place = Place::at(session, root).await?;
    let turn = place.go_on().await?;
    let cube = Cube::open_in(&place).await?;
    let at = |err: Error| match err.location() {
        Some(_) => err,
        None => err.at(location),
    };
    let cut = cube
        .attributes()
        .get(LAYOUT)
        .and_then(Cut::parse)
        .ok_or_else(|| {
            let message = "this cube was not written here: it does not say how it is cut";
            at(Error::new(ErrorKind::Unsupported, message))
        })?;
    let known: HashSet<&str> = cube
        .steps()
        .iter()
        .flat_map(|step| step.items.iter().map(String::as_str))
        .collect();
    let all = images.len();
    let fresh: Vec<Image> = images
        .into_iter()
        .filter(|image| !known.contains(image.id.as_str()))
        .collect();
    let left_out = all - fresh.len();
    if fresh.is_empty() {
        // Perhaps all but the end of the journal was written.
        place.remove(JOURNAL).await?;
        return Ok(Written {
            known: left_out,
            ..Written::default()
        });
    }
    let existing = Some((cube.grid(), cube.bands()));
    let plan = Plan::new(session, fresh, existing, options)
        .await
        .map_err(at)?;
    if let (Some(last), Some(first)) = (cube.steps().last(), plan.steps.first())
        && first.said.time <= last.time
    {
        return Err(at(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "image {} of {} is not after the cube's last date, {}",
                first.said.items.join(", "),
                first.said.time,
                last.time
            ),
        )));
    }
    let grid = cube.grid().clone();
    let before = cube.steps().to_vec();
    let work = Work::new(place, turn, plan, grid, cut, before, Some(&cube))?;
    let journal = work.journal().await?;
    if journal
        .as_ref()
        .is_some_and(|other| Some(other) != work.said().ok().as_ref())
    {
        let message = format!(
            "a stopped append of other images is there: go on with those, or remove {}",
            work.place.journal_name()
        );
        return Err(at(Error::new(ErrorKind::InvalidInput, message)));
    }
    let mut written = work.run(journal.is_some(), options).await?;
    written.known = left_out;
    Ok(written)
}

/// A write under way.
struct Work {
    place: Place,
    turn: Turn,
    plan: Plan,
    cut: Cut,
    /// All dates, those before an append first.
    steps: Vec<TimeStep>,
    /// How many dates were there before.
    before: usize,
    levels: Vec<Level>,
}

/// One level of a cube: full resolution, or an overview.
struct Level {
    path: String,
    grid: GeoBox,
    /// For each band its array, or one of all bands.
    arrays: Vec<Array>,
    specs: Vec<(String, ArraySpec)>,
    /// The arrays as they were before an append.
    old: Vec<Array>,
}

/// One shard to write.
#[derive(Clone, Debug)]
struct Job {
    level: usize,
    band: usize,
    /// Of the array.
    key: Vec<u64>,
    times: Range<usize>,
    window: Window,
    dtype: DataType,
}

impl Work {
    fn new(
        place: Place,
        turn: Turn,
        plan: Plan,
        grid: GeoBox,
        cut: Cut,
        before: Vec<TimeStep>,
        existing: Option<&Cube>,
    ) -> Result<Self> {
        let there = before.len();
        let mut steps = before;
        steps.extend(plan.steps.iter().map(|step| step.said.clone()));
        if cut.resampling == Resampling::Average && cut.overviews > 0 {
            let complex = |band: &&CubeBand| matches!(band.dtype, DataType::C64 | DataType::C128);
            if let Some(band) = plan.bands.iter().find(complex) {
                let message = format!(
                    "band {} is complex, which has no average: make overviews by `nearest`",
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
            let mut specs = specs(&plan.bands, &cut, &level_grid, steps.len())?;
            let mut arrays = Vec::with_capacity(specs.len());
            let mut old = Vec::new();
            for (name, spec) in &mut specs {
                if let Some(cube) = existing {
                    let array = cube.array(number, name)?;
                    // What was usual when the cube was made stays.
                    array.chunk().clone_into(&mut spec.chunk);
                    spec.shard = array.shard().map(<[u64]>::to_vec);
                    old.push(array.clone());
                }
                let at = below(&path, name);
                arrays.push(Array::unwritten(place.clone(), &at, spec)?);
            }
            levels.push(Level {
                path,
                grid: level_grid.clone(),
                arrays,
                specs,
                old,
            });
        }
        Ok(Self {
            place,
            turn,
            plan,
            cut,
            steps,
            before: there,
            levels,
        })
    }

    /// Returns what the journal says of this write.
    fn said(&self) -> Result<Value> {
        let grid = self.levels.first().map(|level| &level.grid);
        let steps: Vec<Value> = self
            .steps
            .iter()
            .map(|step| json!([step.time.timestamp_millis(), step.items]))
            .collect();
        let bands: Vec<Value> = self
            .plan
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
        Ok(self.place.journal_of(json!({
            "before": self.before,
            "steps": steps,
            "bands": bands,
            "grid": grid.map(|grid| Value::Object(describe::level_attributes(grid))),
            "layout": self.cut.to_json(&self.plan.bands),
            "arrays": self.levels.iter().flat_map(|level| &level.specs).map(|(_, spec)| {
                json!([spec.chunk, spec.shard])
            }).collect::<Vec<_>>(),
        })))
    }

    async fn journal(&self) -> Result<Option<Value>> {
        let found = self.place.read(JOURNAL).await?;
        found
            .map(|bytes| parse(&bytes).map_err(|err| err.at(self.place.locate(JOURNAL))))
            .transpose()
    }

    async fn run(self, resumes: bool, options: &CubeOptions) -> Result<Written> {
        let session = self.place.session.clone();
        let jobs = self.jobs()?;
        let budget = session.settings().budget_bytes;
        for level in &jobs {
            if let Some(job) = level.iter().find(|job| self.bytes(job) > budget) {
                let message = format!(
                    "a shard of {} takes {} MB while it is written, more than the budget of {} MB: choose a \
                     smaller shard or a larger budget",
                    self.levels[job.level].specs[self.array_of(job.band)].0,
                    self.bytes(job) / 1_000_000,
                    budget / 1_000_000
                );
                return Err(Error::new(ErrorKind::InvalidInput, message));
            }
        }
        let mut there: HashSet<String> = HashSet::new();
        if resumes {
            for level in &self.levels {
                for (name, _) in &level.specs {
                    let found = self.place.list(&below(&level.path, name)).await?;
                    there.extend(found.into_iter().map(|(key, _)| key));
                }
            }
            self.place.clean().await?;
        } else {
            let journal = to_bytes(&self.said()?);
            self.place.write(JOURNAL, vec![journal]).await?;
        }
        if self.place.wants_metadata_first() {
            for level in &self.levels {
                let (_, arrays) = self.described(level)?;
                describe::write_documents(&self.place, &arrays).await?;
            }
        }
        let shards = jobs.iter().map(|level| level.len() as u64).sum();
        let (done, resumed, bytes) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let tell = || {
            if let Some(watch) = &options.watch {
                watch(WriteProgress {
                    shards_done: done.load(Ordering::Relaxed),
                    shards,
                    bytes: bytes.load(Ordering::Relaxed),
                });
            }
        };
        tell();
        let work = Arc::new(self);
        let at_once = session.settings().cpu_threads.max(1) * 2;
        // An overview is made of the level before.
        for jobs in jobs {
            stream::iter(jobs.into_iter().map(Ok))
                .try_for_each_concurrent(at_once, |job| {
                    let (work, session) = (Arc::clone(&work), session.clone());
                    let is_there = work.is_there(&job, &there);
                    let (done, resumed, bytes, tell) = (&done, &resumed, &bytes, &tell);
                    async move {
                        if is_there {
                            resumed.fetch_add(1, Ordering::Relaxed);
                        } else {
                            let share = session.share_of_work(work.bytes(&job)).await;
                            let size = work.samples(&job);
                            with_type!(job.dtype, T => work.write_shard::<T>(&job).await)?;
                            bytes.fetch_add(size, Ordering::Relaxed);
                            drop(share);
                        }
                        done.fetch_add(1, Ordering::Relaxed);
                        tell();
                        Ok::<_, Error>(())
                    }
                })
                .await?;
        }
        work.describe().await?;
        let mut written = work.finish(shards).await?;
        written.resumed = resumed.into_inner();
        written.bytes = bytes.into_inner();
        Ok(written)
    }

    /// Removes the journal: what is written can be seen.
    async fn finish(&self, shards: u64) -> Result<Written> {
        self.turn.publish(&self.message()).await?;
        self.place.remove(JOURNAL).await?;
        self.place.clean().await?;
        Ok(Written {
            steps: self.steps.len() - self.before,
            shards,
            ..Written::default()
        })
    }

    /// Returns the shards to write, level by level: neighbours in space and all bands of a place come one
    /// after the other, since they read the same files.
    fn jobs(&self) -> Result<Vec<Vec<Job>>> {
        let mut levels = Vec::with_capacity(self.levels.len());
        for (number, level) in self.levels.iter().enumerate() {
            let size = level.grid.size;
            let mut jobs = Vec::new();
            for (band, said) in self.plan.bands.iter().enumerate() {
                let array = &level.arrays[self.array_of(band)];
                let Some(&[time, .., y, x]) = array.shard() else {
                    let message = "an array that is not in shards";
                    return Err(Error::new(ErrorKind::Unsupported, message));
                };
                let shard = Block { time, y, x };
                let pixels = |length: u64| {
                    u32::try_from(length).map_err(|_| {
                        Error::new(
                            ErrorKind::InvalidInput,
                            "a shard of more pixels than 32 bits hold",
                        )
                    })
                };
                let (high, wide) = (pixels(shard.y)?, pixels(shard.x)?);
                let dates = usize::try_from(shard.time).unwrap_or(usize::MAX);
                let first = self.before / dates;
                let last = self.steps.len().div_ceil(dates);
                for time in first..last {
                    let times =
                        time * dates..((time + 1).saturating_mul(dates)).min(self.steps.len());
                    for row in 0..size.height.div_ceil(high) {
                        for col in 0..size.width.div_ceil(wide) {
                            let window = Window {
                                col: col * wide,
                                row: row * high,
                                width: wide.min(size.width - col * wide),
                                height: high.min(size.height - row * high),
                            };
                            let mut key = vec![time as u64, u64::from(row), u64::from(col)];
                            if self.cut.layout.arrangement == Arrangement::Stacked {
                                key.insert(1, band as u64);
                            }
                            jobs.push(Job {
                                level: number,
                                band,
                                key,
                                times: times.clone(),
                                window,
                                dtype: said.dtype,
                            });
                        }
                    }
                }
            }
            jobs.sort_by_key(|job| (job.times.start, job.window.row, job.window.col, job.band));
            levels.push(jobs);
        }
        Ok(levels)
    }

    /// Returns the array that holds a band.
    fn array_of(&self, band: usize) -> usize {
        match self.cut.layout.arrangement {
            Arrangement::Bands => band,
            Arrangement::Stacked => 0,
        }
    }

    /// Returns true if an earlier write left this shard. One that holds dates of before an append is
    /// written again: which of its versions is there cannot be seen.
    fn is_there(&self, job: &Job, there: &HashSet<String>) -> bool {
        let array = &self.levels[job.level].arrays[self.array_of(job.band)];
        job.times.start >= self.before && there.contains(&array.key_of(&job.key))
    }

    /// Returns the bytes of a shard's samples.
    fn samples(&self, job: &Job) -> u64 {
        let pixels = u64::from(job.window.width) * u64::from(job.window.height);
        pixels * job.times.len() as u64 * job.dtype.size() as u64
    }

    /// Returns the bytes of memory that writing a shard takes at most: its samples, what they are made of,
    /// and what they are encoded to.
    fn bytes(&self, job: &Job) -> u64 {
        let samples = self.samples(job);
        let made_of = match job.level {
            // Windows as they are read, compressed and not.
            0 => samples / job.times.len().max(1) as u64 * 2 * READS.min(job.times.len()) as u64,
            _ => samples * 4,
        };
        samples * 2 + made_of
    }

    async fn write_shard<T>(self: &Arc<Self>, job: &Job) -> Result<()>
    where
        T: Sample + Send + Sync + 'static,
    {
        let samples: Array3<T> = match job.level {
            0 => self.read_images(job).await?,
            _ => self.read_finer(job).await?,
        };
        let mut samples = samples.into_dyn();
        if self.cut.layout.arrangement == Arrangement::Stacked {
            samples = samples.insert_axis(Axis(1));
        }
        let array = self.levels[job.level].arrays[self.array_of(job.band)].clone();
        let encoder = array.clone();
        let session = &self.place.session;
        let pieces = session
            .cpu(move || encoder.encode(&samples.view()))
            .await??;
        array.put(&job.key, pieces).await
    }

    fn fill(&self, band: usize) -> f64 {
        self.plan.bands[band].nodata.unwrap_or(0.0)
    }

    /// Reads the samples of a shard from images, and from the cube what was there before an append.
    async fn read_images<T>(&self, job: &Job) -> Result<Array3<T>>
    where
        T: Sample + Send + Sync + 'static,
    {
        let window = &job.window;
        let shape = (
            job.times.len(),
            window.height as usize,
            window.width as usize,
        );
        let fill = self.fill(job.band);
        let mut out = Array3::from_elem(shape, T::of_number(fill));
        if job.times.start < self.before {
            let old = job.times.start..job.times.end.min(self.before);
            let array = &self.levels[0].old[self.array_of(job.band)];
            let samples = self.read_box::<T>(array, job.band, &old, window).await?;
            out.slice_mut(s![..old.len(), .., ..]).assign(&samples);
        }
        let first = job.times.start.max(self.before);
        let mut reads = Vec::new();
        for time in first..job.times.end {
            let step = &self.plan.steps[time - self.before];
            for (source, part, place) in self.plan.parts(step, job.band, window) {
                reads.push((time - job.times.start, source, part, place));
            }
        }
        // In the order of the images: of two that cover a pixel the first shows.
        let mut arriving = stream::iter(reads)
            .map(|(time, source, part, place)| async move {
                let raster = read_part(&source, &part).await?;
                Ok::<_, Error>((time, source.nodata, part, place, raster))
            })
            .buffered(READS);
        let nodata_here = self.plan.bands[job.band].nodata;
        // What earlier images of each date cover.
        let mut covered: Vec<Vec<[Range<usize>; 2]>> = vec![Vec::new(); shape.0];
        while let Some((time, nodata, part, [row, col], raster)) = arriving.try_next().await? {
            let Some(view) = raster.view::<T>() else {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    "samples of another type than the file's",
                ));
            };
            let view = view.index_axis(Axis(0), 0);
            let (height, width) = (part.height as usize, part.width as usize);
            let mut place = out.slice_mut(s![time, row..row + height, col..col + width]);
            let same = nodata.is_none_or(|nodata| nodata.to_bits() == fill.to_bits());
            let covered = &mut covered[time];
            if covered.is_empty() && same {
                place.assign(&view);
            } else {
                let hidden = |sample: &T, nodata: Option<f64>| {
                    let number = sample.number();
                    number.is_nan() || nodata == Some(number)
                };
                // Without a nodata value every pixel of an earlier image holds data.
                let is_free = |y: usize, x: usize| {
                    nodata_here.is_none()
                        && !covered.iter().any(|[rows, cols]| {
                            rows.contains(&(row + y)) && cols.contains(&(col + x))
                        })
                };
                ndarray::Zip::indexed(&mut place)
                    .and(&view)
                    .for_each(|(y, x), out, sample| {
                        let is_free = hidden(out, nodata_here) || is_free(y, x);
                        if is_free && !hidden(sample, nodata) {
                            *out = *sample;
                        }
                    });
            }
            covered.push([row..row + height, col..col + width]);
        }
        Ok(out)
    }

    /// Makes the samples of an overview's shard of the level before.
    async fn read_finer<T>(&self, job: &Job) -> Result<Array3<T>>
    where
        T: Sample + Send + Sync + 'static,
    {
        let finer = &self.levels[job.level - 1];
        let size = finer.grid.size;
        let (col, row) = (job.window.col * 2, job.window.row * 2);
        let window = Window {
            col,
            row,
            width: (job.window.width * 2).min(size.width - col),
            height: (job.window.height * 2).min(size.height - row),
        };
        let array = &finer.arrays[self.array_of(job.band)];
        let samples = self
            .read_box::<T>(array, job.band, &job.times, &window)
            .await?;
        let (resampling, nodata) = (self.cut.resampling, self.plan.bands[job.band].nodata);
        let session = &self.place.session;
        session
            .cpu(move || overview::halved(&samples, resampling, nodata))
            .await
    }

    async fn read_box<T>(
        &self,
        array: &Array,
        band: usize,
        times: &Range<usize>,
        window: &Window,
    ) -> Result<Array3<T>>
    where
        T: Sample + Send + Sync + 'static,
    {
        let ranges = super::ranges(self.cut.layout.arrangement, band, times, window);
        let samples: ArrayD<T> = array.read(&ranges).await?;
        super::without_band(samples, self.cut.layout.arrangement)
    }

    /// Returns the coordinates of a level, and the metadata of all its arrays by their paths.
    fn described(&self, level: &Level) -> Result<(Coordinates, Vec<(String, Value)>)> {
        let coordinates = Coordinates::of(
            &level.grid,
            &self.steps,
            &self.plan.bands,
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

    /// Says what was written.
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
        let bands: Vec<&str> = self
            .plan
            .bands
            .iter()
            .map(|band| band.name.as_str())
            .collect();
        match self.before {
            0 => format!("Write a cube of {}: {}", bands.join(", "), dates(added)),
            _ => format!("Append {}", dates(added)),
        }
    }

    /// Writes coordinates, then metadata, the group's last.
    async fn describe(&self) -> Result<()> {
        for level in &self.levels {
            let (coordinates, _) = self.described(level)?;
            coordinates.write(&self.place, &level.path).await?;
        }
        describe::write_documents(&self.place, &self.documents()?).await
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
                let said = describe::level_attributes(&level.grid);
                groups.push((level.path.clone(), describe::group(said, &here)));
            }
        }
        let levels: Vec<(&str, &GeoBox)> = self
            .levels
            .iter()
            .map(|level| (level.path.as_str(), &level.grid))
            .collect();
        let mut said = match levels.as_slice() {
            [(_, only)] => describe::level_attributes(only),
            levels => describe::levels_attributes(levels, self.cut.resampling.name()),
        };
        said.insert(LAYOUT.to_owned(), self.cut.to_json(&self.plan.bands));
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
        documents.push((String::new(), describe::group(said, &all)));
        Ok(documents)
    }

    /// Returns true if the cube that is there is the one that this would write.
    async fn is_done(&self, root: &[u8]) -> Result<bool> {
        let documents = self.documents()?;
        if documents.last().map(|(_, root)| root) != parse(root).ok().as_ref() {
            return Ok(false);
        }
        Ok(Cube::open_in(&self.place).await?.steps() == self.steps)
    }
}

/// Returns the last part of a path.
fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns the path of a level: a cube without overviews is one group.
pub(super) fn level_path(level: usize, overviews: usize) -> String {
    match overviews {
        0 => String::new(),
        _ => level.to_string(),
    }
}

/// Returns the arrays of a level.
fn specs(
    bands: &[CubeBand],
    cut: &Cut,
    grid: &GeoBox,
    steps: usize,
) -> Result<Vec<(String, ArraySpec)>> {
    let (steps, size) = (steps as u64, grid.size);
    let (height, width) = (u64::from(size.height), u64::from(size.width));
    let spec = |band: &CubeBand| {
        let [chunk, shard] = cut.layout.blocks(band.dtype, size.height, size.width)?;
        let spec = ArraySpec::new([steps, height, width], band.dtype, chunk.axes())
            .with_shard(shard.axes())
            .with_codec(cut.layout.codec)
            .with_fill(band.nodata.unwrap_or(0.0))
            .with_dimensions(["time", "y", "x"])
            .with_attributes(describe::band_attributes(band, grid));
        spec.check()?;
        Ok::<_, Error>(spec)
    };
    match (cut.layout.arrangement, bands) {
        (Arrangement::Stacked, [first, rest @ ..]) => {
            for band in rest {
                let same = band.dtype == first.dtype
                    && band.nodata.map(f64::to_bits) == first.nodata.map(f64::to_bits)
                    && (band.scale, band.offset) == (first.scale, first.offset);
                if !same {
                    return Err(Error::new(
                        ErrorKind::InvalidInput,
                        format!(
                            "bands {} and {} differ in type, nodata or scale: they cannot share an array",
                            first.name, band.name
                        ),
                    ));
                }
            }
            let mut spec = spec(first)?;
            spec.shape.insert(1, bands.len() as u64);
            spec.chunk.insert(1, 1);
            if let Some(shard) = &mut spec.shard {
                shard.insert(1, 1);
            }
            spec.dimensions.insert(1, "band".to_owned());
            Ok(vec![(STACK.to_owned(), spec)])
        }
        _ => bands
            .iter()
            .map(|band| Ok((band.name.clone(), spec(band)?)))
            .collect(),
    }
}

/// Reads a part of an image's band.
async fn read_part(source: &Source, part: &Window) -> Result<crate::raster::Pixels> {
    match &source.pixels {
        Open::File { reader, band } => {
            let request = ReadRequest::new().with_window(*part).with_bands([*band]);
            Ok(reader.read(&request).await?.pixels)
        }
        Open::Memory(raster) => with_type!(raster.pixels.dtype(), T => {
            let view = raster.pixels.view::<T>();
            let view = view.ok_or_else(|| Error::new(ErrorKind::Corrupt, "pixels of another type"))?;
            let (row, col) = (part.row as usize, part.col as usize);
            let (height, width) = (part.height as usize, part.width as usize);
            let cut = view.slice(s![0..1, row..row + height, col..col + width]);
            Ok(T::wrap(cut.to_owned()))
        }),
    }
}
