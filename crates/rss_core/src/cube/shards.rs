//! The shards of a write: their keys, their grouping into batches, their memory, and how each is computed.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use ndarray::{Array3, ArrayD, ArrayView3, Axis, concatenate, s};

use super::{
    samples::{Hyperslab, SourceFile, Together},
    write::Work,
};
use crate::{
    apply::MissingInput,
    array::{Arrangement, Array, Block, Claim, Expected, Sum},
    error::{Error, ErrorKind, Result},
    geo::Window,
    raster::{DataType, Pixels, Sample, halved, with_type},
};

/// Shards of an interrupted write that are checked at once.
const CHECKS: usize = 32;

/// One shard to write.
#[derive(Clone, Debug)]
pub(super) struct ShardJob {
    pub(super) level: usize,
    pub(super) band: usize,
    /// The shard's index in its array.
    key: Vec<u64>,
    pub(super) times: Range<usize>,
    window: Window,
    pub(super) dtype: DataType,
}

/// What an interrupted write has left of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Missing,
    Damaged,
    /// Of a file that was replaced since.
    Stale,
    Whole,
}

/// The shards that are left to write.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) jobs: Vec<ShardJob>,
    /// Those of them that are there, of files that were replaced since.
    pub(super) stale: Vec<ShardJob>,
    pub(super) damaged: usize,
}

/// Shards that are computed together, and the memory that takes.
#[derive(Debug)]
pub(super) struct Batch {
    /// At least one, all of one dtype and window.
    pub(super) jobs: Vec<ShardJob>,
    pub(super) bytes: u64,
}

impl ShardJob {
    /// Returns the time steps of the shard.
    pub(super) fn times(&self) -> Range<usize> {
        self.times.clone()
    }
}

impl Work {
    /// Returns the key of a shard's object.
    pub(super) fn key_of(&self, job: &ShardJob) -> String {
        let array = &self.levels[job.level].arrays[self.array_of(job.band)];
        array.key_of(&job.key)
    }

    /// Notes the checksum of a shard that an interrupted write has left, which is read for it.
    async fn seal(&self, job: &ShardJob) -> Result<()> {
        if self.storage.is_repository() {
            return Ok(());
        }
        let key = self.key_of(job);
        let sum = self.storage.sum(&key, None).await?;
        self.tally.note(key, sum);
        Ok(())
    }

    /// Returns the checksum of a shard as it was when the cube had its first `end` time steps; none if it holds nothing but
    /// the fill value.
    pub(super) async fn sum_until(&self, job: &ShardJob, end: usize) -> Result<Option<Sum>> {
        if job.times.end <= end {
            return self.storage.sum(&self.key_of(job), None).await;
        }
        let times = job.times.start..end;
        let array = self.levels[job.level].arrays[self.array_of(job.band)].clone();
        let arrangement = self.cut.layout.arrangement;
        with_type!(job.dtype, T => {
            let samples = self.read_box::<T>(&array, job.band, &times, &job.window).await?;
            let encode = Encode { array, arrangement };
            let pieces = self.storage.session.cpu(move || encode.of(samples.view())).await??;
            Ok(pieces.map(|pieces| Sum::of(&pieces)))
        })
    }

    /// Returns the shards to write, level by level. Within a level neighbours in space and the bands of a window
    /// follow each other, since they read the same files.
    pub(super) fn jobs(&self) -> Result<Vec<Vec<ShardJob>>> {
        let mut levels = Vec::with_capacity(self.levels.len());
        for (number, level) in self.levels.iter().enumerate() {
            let size = level.grid.size;
            let mut jobs = Vec::new();
            for (band, described) in self.bands.iter().enumerate() {
                let array = &level.arrays[self.array_of(band)];
                let Some(&[time, .., y, x]) = array.shard() else {
                    let message = "an array without shards, expected a sharded one";
                    return Err(Error::new(ErrorKind::Unsupported, message));
                };
                let shard = Block { time, y, x };
                let pixels = |length: u64| {
                    u32::try_from(length).map_err(|_| {
                        Error::new(
                            ErrorKind::InvalidInput,
                            "a shard with a side of more than 2^32 pixels",
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
                            jobs.push(ShardJob {
                                level: number,
                                band,
                                key,
                                times: times.clone(),
                                window,
                                dtype: described.dtype,
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
    pub(super) fn array_of(&self, band: usize) -> usize {
        match self.cut.layout.arrangement {
            Arrangement::Bands => band,
            Arrangement::Stacked => 0,
        }
    }

    /// Leaves out the shards that an interrupted write has left whole, of the same sources. A shard that an append shares
    /// with older time steps is always written again: its key is the same before and after the append.
    ///
    /// # Errors
    ///
    /// Errors of reading the shards' indexes.
    pub(super) async fn unwritten(
        &self,
        jobs: Vec<ShardJob>,
        replaced: &[SourceFile],
    ) -> Result<Checked> {
        let of_job = |job: ShardJob| async move {
            let array = &self.levels[job.level].arrays[self.array_of(job.band)];
            let there = self.there.get(&array.key_of(&job.key));
            let Some(there) = there.filter(|_| job.times.start >= self.before) else {
                return Ok((job, State::Missing));
            };
            let times = self.fresh(&job);
            if replaced.iter().any(|file| file.is_in(&times)) {
                return Ok((job, State::Stale));
            }
            let is_whole = there.size > 0 && array.is_whole(&job.key).await?;
            if is_whole {
                self.seal(&job).await?;
            }
            let state = if is_whole {
                State::Whole
            } else {
                State::Damaged
            };
            Ok::<_, Error>((job, state))
        };
        let states: Vec<(ShardJob, State)> = stream::iter(jobs)
            .map(of_job)
            .buffered(CHECKS)
            .try_collect()
            .await?;
        let mut checked = Checked::default();
        for (job, state) in states {
            match state {
                State::Whole => continue,
                State::Stale => checked.stale.push(job.clone()),
                State::Damaged => checked.damaged += 1,
                State::Missing => {}
            }
            checked.jobs.push(job);
        }
        Ok(checked)
    }

    /// Removes a shard, or what is in it: in a bucket a removal has no condition, and could remove what another writer
    /// has put.
    pub(super) async fn clear(&self, claim: &Claim, job: &ShardJob) -> Result<()> {
        let array = &self.levels[job.level].arrays[self.array_of(job.band)];
        let key = array.key_of(&job.key);
        let mut sum = None;
        match (claim.is_alone(), self.expected(&key)) {
            (true, _) => claim.remove(&key).await?,
            (false, Expected::Absent) => {}
            (false, there) => {
                let pieces = array.empty_shard()?;
                sum = Some(Sum::of(&pieces));
                claim.put(&key, pieces, there).await?;
            }
        }
        self.tally.note(key, sum);
        Ok(())
    }

    /// Returns what is expected at the key of a shard.
    fn expected(&self, key: &str) -> Expected {
        match self.there.get(key) {
            Some(there) => Expected::There(there.version.clone()),
            None => Expected::Absent,
        }
    }

    /// Groups the shards of one level into batches.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if a batch does not fit the budget; errors of planning its samples.
    pub(super) async fn batches(&self, jobs: Vec<ShardJob>, budget: u64) -> Result<Vec<Batch>> {
        let together = match jobs.first() {
            Some(job) if job.level == 0 => self.source.together(),
            // An overview is computed from the level before, not from the source.
            _ => Together::None,
        };
        let mut batches = Vec::new();
        for jobs in grouped(jobs, together) {
            let bytes = self.bytes(&jobs).await?;
            // Split into fewer bands, so that several batches fit the budget and run concurrently. The mask is then
            // computed, and a file that holds several bands read, once for each part: as few parts as will do.
            let mut rest = vec![(jobs, bytes)];
            while let Some((jobs, bytes)) = rest.pop() {
                let bands: HashSet<usize> = jobs.iter().map(|job| job.band).collect();
                if together != Together::Bands || bytes <= budget / 4 || bands.len() < 2 {
                    batches.push(Batch { jobs, bytes });
                    continue;
                }
                let mut bands: Vec<usize> = bands.into_iter().collect();
                bands.sort_unstable();
                let middle = bands.get(bands.len() / 2).copied().unwrap_or(0);
                let (first, last): (Vec<_>, Vec<_>) =
                    jobs.into_iter().partition(|job| job.band < middle);
                for half in [last, first] {
                    let bytes = self.bytes(&half).await?;
                    rest.push((half, bytes));
                }
            }
        }
        match batches.iter().find(|batch| batch.bytes > budget) {
            Some(batch) => Err(self.too_large(batch, budget)),
            None => Ok(batches),
        }
    }

    fn too_large(&self, batch: &Batch, budget: u64) -> Error {
        let level = batch.jobs.first().map_or(0, |job| job.level);
        let mut names: Vec<&str> = batch
            .jobs
            .iter()
            .filter_map(|job| self.levels[level].specs.get(self.array_of(job.band)))
            .map(|(name, _)| name.as_str())
            .collect();
        names.dedup();
        Error::new(
            ErrorKind::InvalidInput,
            format!(
                "a shard of {} takes {} MB while it is written, more than the budget of {} MB: choose a \
                 smaller shard or a larger budget",
                names.join(", "),
                batch.bytes / 1_000_000,
                budget / 1_000_000
            ),
        )
    }

    /// Returns the bytes of a shard's samples.
    pub(super) fn samples(&self, job: &ShardJob) -> u64 {
        let pixels = u64::from(job.window.width) * u64::from(job.window.height);
        pixels * job.times.len() as u64 * job.dtype.size() as u64
    }

    /// Returns an upper bound of the memory that writing a batch takes: the samples, the inputs they are computed
    /// from, and the encoded bytes of one shard, since shards of a batch are encoded one at a time.
    async fn bytes(&self, jobs: &[ShardJob]) -> Result<u64> {
        let Some(job) = jobs.first() else {
            return Ok(0);
        };
        // An overview reads four samples for each of its own, and holds its own and their encoded bytes.
        if job.level > 0 {
            return Ok(self.samples(job) * 6);
        }
        let encoded = jobs.iter().map(|job| {
            let samples = self.samples(job);
            // The shard's older time steps are read and concatenated with the new ones.
            let joined = if job.times.start < self.before {
                samples
            } else {
                0
            };
            samples + joined
        });
        let encoded = encoded.max().unwrap_or(0);
        Ok(self.source.bytes(&self.part(jobs)).await? + encoded)
    }

    /// Returns the new time steps of a shard, as indices of its source.
    fn fresh(&self, job: &ShardJob) -> Range<usize> {
        let first = job.times.start.max(self.before);
        let of_source = |time: usize| time - self.before + self.skipped;
        of_source(first)..of_source(job.times.end)
    }

    /// Returns the hyperslab of the source that a batch is computed from.
    fn part(&self, jobs: &[ShardJob]) -> Hyperslab {
        let mut bands: Vec<usize> = jobs.iter().map(|job| job.band).collect();
        bands.sort_unstable();
        bands.dedup();
        let times = jobs.iter().map(|job| self.fresh(job));
        let times = times.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        let zero = Window {
            col: 0,
            row: 0,
            width: 0,
            height: 0,
        };
        Hyperslab {
            bands,
            times: times.unwrap_or(0..0),
            window: jobs.first().map_or(zero, |job| job.window),
        }
    }

    /// Computes and writes the shards of a batch, and returns their missing inputs.
    pub(super) async fn write(&self, jobs: &[ShardJob]) -> Result<Vec<MissingInput>> {
        if let Some(job) = jobs.first().filter(|job| job.level > 0) {
            with_type!(job.dtype, T => self.write_overview::<T>(job).await)?;
            return Ok(Vec::new());
        }
        let part = self.part(jobs);
        let (made, missing_inputs) = self.source.make(&part).await?;
        let made = Arc::new(made);
        for job in jobs {
            with_type!(job.dtype, T => self.write_made::<T>(job, &part, &made).await)?;
        }
        Ok(missing_inputs)
    }

    /// Writes a shard of computed samples. In an append they are concatenated after the older time steps of the
    /// shard, which are read with the metadata of before the append.
    async fn write_made<T>(
        &self,
        job: &ShardJob,
        part: &Hyperslab,
        made: &Arc<Vec<Pixels>>,
    ) -> Result<()>
    where
        T: Sample + Send + Sync + 'static,
    {
        let position = part.bands.iter().position(|&band| band == job.band);
        let fresh = self.fresh(job);
        let times = fresh.start - part.times.start..fresh.end - part.times.start;
        let expected = (
            part.times.len(),
            part.window.height as usize,
            part.window.width as usize,
        );
        let mut old: Option<Array3<T>> = None;
        if job.times.start < self.before {
            let times = job.times.start..job.times.end.min(self.before);
            let array = &self.levels[0].old[self.array_of(job.band)];
            old = Some(self.read_box(array, job.band, &times, &job.window).await?);
        }
        let made = Arc::clone(made);
        self.put(job, move |encode| {
            let view = position.and_then(|position| T::view(made.get(position)?));
            let view = view.filter(|view| view.dim() == expected).ok_or_else(|| {
                Error::new(
                    ErrorKind::Corrupt,
                    "the source returned samples of another dtype or shape than requested",
                )
            })?;
            let view = view.slice_move(s![times, .., ..]);
            let Some(old) = old else {
                return encode.of(view);
            };
            let all = concatenate(Axis(0), &[old.view(), view]);
            let all = all.map_err(|err| {
                Error::new(
                    ErrorKind::Corrupt,
                    "time steps of another shape than the cube's",
                )
                .with_source(err)
            })?;
            encode.of(all.view())
        })
        .await
    }

    /// Writes a shard of an overview.
    async fn write_overview<T>(&self, job: &ShardJob) -> Result<()>
    where
        T: Sample + Send + Sync + 'static,
    {
        let samples: Array3<T> = self.read_finer(job).await?;
        self.put(job, move |encode| encode.of(samples.view())).await
    }

    /// Encodes a shard on the CPU pool and writes it.
    async fn put(
        &self,
        job: &ShardJob,
        work: impl FnOnce(&Encode) -> Result<Option<Vec<Bytes>>> + Send + 'static,
    ) -> Result<()> {
        let array = self.levels[job.level].arrays[self.array_of(job.band)].clone();
        let encode = Encode {
            array: array.clone(),
            arrangement: self.cut.layout.arrangement,
        };
        let session = &self.storage.session;
        let encoded = session.cpu(move || {
            let pieces = work(&encode)?;
            let sum = pieces.as_ref().map(Sum::of);
            Ok::<_, Error>((pieces, sum))
        });
        let (pieces, sum) = encoded.await??;
        let claim = self.claim()?;
        array.forget_shard(&job.key);
        let key = array.key_of(&job.key);
        match pieces {
            Some(pieces) => {
                let expected = self.expected(&key);
                claim.put(&key, pieces, expected).await?;
                self.tally.note(key, sum);
                Ok(())
            }
            None => self.clear(claim, job).await,
        }
    }

    /// Downsamples a shard of an overview from the level before.
    async fn read_finer<T>(&self, job: &ShardJob) -> Result<Array3<T>>
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
        let band = &self.bands[job.band];
        let (resampling, nodata) = (self.cut.resampling_of(band), band.nodata);
        let session = &self.storage.session;
        session
            .cpu(move || halved(samples.view(), resampling, nodata))
            .await?
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
}

/// Encodes shards of one array.
struct Encode {
    array: Array,
    arrangement: Arrangement,
}

impl Encode {
    /// Encodes (time, y, x) of a band; none if all samples are the fill value.
    fn of<T>(&self, samples: ArrayView3<'_, T>) -> Result<Option<Vec<Bytes>>>
    where
        T: Sample + Send + Sync,
    {
        let samples = samples.into_dyn();
        self.array.encode(&match self.arrangement {
            Arrangement::Stacked => samples.insert_axis(Axis(1)),
            Arrangement::Bands => samples,
        })
    }
}

/// Groups shards that are computed together, in the order of the first of each group.
fn grouped(jobs: Vec<ShardJob>, together: Together) -> Vec<Vec<ShardJob>> {
    let mut groups: Vec<Vec<ShardJob>> = Vec::new();
    let mut known: HashMap<(Window, DataType, usize), usize> = HashMap::new();
    for job in jobs {
        let time = match together {
            Together::None => {
                groups.push(vec![job]);
                continue;
            }
            Together::Bands => job.times.start,
            Together::Window => 0,
        };
        let group = known.entry((job.window, job.dtype, time));
        let group = *group.or_insert(groups.len());
        match groups.get_mut(group) {
            Some(group) => group.push(job),
            None => groups.push(vec![job]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_that_share_their_inputs_are_computed_together() {
        let job = |band: usize, time: usize, col: u32, dtype: DataType| ShardJob {
            level: 0,
            band,
            key: Vec::new(),
            times: time..time + 4,
            window: Window {
                col,
                row: 0,
                width: 16,
                height: 16,
            },
            dtype,
        };
        let mut jobs = Vec::new();
        for time in [0, 4] {
            for col in [0, 16] {
                jobs.push(job(0, time, col, DataType::I16));
                jobs.push(job(1, time, col, DataType::I16));
                jobs.push(job(2, time, col, DataType::U8));
            }
        }
        let bands_of = |together: Together| {
            let groups = grouped(jobs.clone(), together).into_iter();
            groups
                .map(|group| group.iter().map(|job| job.band).collect())
                .collect()
        };
        let apart: Vec<Vec<usize>> = bands_of(Together::None);
        assert_eq!(apart.len(), 12);
        let bands: Vec<Vec<usize>> = bands_of(Together::Bands);
        assert_eq!(bands, [&[0, 1][..], &[2]].repeat(4));
        let windows: Vec<Vec<usize>> = bands_of(Together::Window);
        assert_eq!(windows, [&[0, 1, 0, 1][..], &[2, 2]].repeat(2));
    }
}
