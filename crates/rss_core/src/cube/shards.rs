//! The shards of a write: which there are, which of them are made together, and their bytes.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use bytes::Bytes;
use ndarray::{Array3, ArrayD, ArrayView3, Axis, concatenate, s};

use super::{
    samples::{Hyperslab, Together},
    write::Work,
};
use crate::{
    apply::MissingInput,
    array::{Arrangement, Array, Block},
    error::{Error, ErrorKind, Result},
    geo::Window,
    raster::{DataType, Pixels, Sample, halved, with_type},
};

/// One shard to write.
#[derive(Clone, Debug)]
pub(super) struct ShardJob {
    pub(super) level: usize,
    pub(super) band: usize,
    /// Of the array.
    key: Vec<u64>,
    times: Range<usize>,
    window: Window,
    pub(super) dtype: DataType,
}

/// Shards that are made together, and the bytes that takes.
#[derive(Debug)]
pub(super) struct Batch {
    /// At least one, all of one type and window.
    pub(super) jobs: Vec<ShardJob>,
    pub(super) bytes: u64,
}

impl Work {
    /// Returns the shards to write, level by level: neighbours in space and all bands of a place come one
    /// after the other, since they read the same files.
    pub(super) fn jobs(&self) -> Result<Vec<Vec<ShardJob>>> {
        let mut levels = Vec::with_capacity(self.levels.len());
        for (number, level) in self.levels.iter().enumerate() {
            let size = level.grid.size;
            let mut jobs = Vec::new();
            for (band, said) in self.bands.iter().enumerate() {
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
                            jobs.push(ShardJob {
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
    pub(super) fn array_of(&self, band: usize) -> usize {
        match self.cut.layout.arrangement {
            Arrangement::Bands => band,
            Arrangement::Stacked => 0,
        }
    }

    /// Returns true if an earlier write left this shard. One that holds dates of before an append is
    /// written again: which of its versions is there cannot be seen.
    pub(super) fn is_there(&self, job: &ShardJob, there: &HashSet<String>) -> bool {
        let array = &self.levels[job.level].arrays[self.array_of(job.band)];
        job.times.start >= self.before && there.contains(&array.key_of(&job.key))
    }

    /// Returns shards of one level as they are made together.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if one does not fit the budget; what planning its samples gives.
    pub(super) async fn batches(&self, jobs: Vec<ShardJob>, budget: u64) -> Result<Vec<Batch>> {
        let together = match jobs.first() {
            Some(job) if job.level == 0 => self.source.together(),
            // Made of the level before.
            _ => Together::None,
        };
        let mut batches = Vec::new();
        for jobs in grouped(jobs, together) {
            let bytes = self.bytes(&jobs).await?;
            // Apart they take less at once, so that several are under way.
            if together == Together::Bands && bytes > budget / 4 {
                let mut of_bands: Vec<Vec<ShardJob>> = Vec::new();
                for job in jobs {
                    match of_bands.iter_mut().find(|one| one[0].band == job.band) {
                        Some(one) => one.push(job),
                        None => of_bands.push(vec![job]),
                    }
                }
                for jobs in of_bands {
                    let bytes = self.bytes(&jobs).await?;
                    batches.push(Batch { jobs, bytes });
                }
            } else {
                batches.push(Batch { jobs, bytes });
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

    /// Returns the bytes of memory that writing shards takes at most: their samples, what they are made of,
    /// and what one at a time is encoded to.
    async fn bytes(&self, jobs: &[ShardJob]) -> Result<u64> {
        let Some(job) = jobs.first() else {
            return Ok(0);
        };
        if job.level > 0 {
            return Ok(self.samples(job) * 6);
        }
        let encoded = jobs.iter().map(|job| {
            let samples = self.samples(job);
            // What was there is put before what is added.
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

    /// Returns the dates of a shard that are new, as its source counts them.
    fn fresh(&self, job: &ShardJob) -> Range<usize> {
        let first = job.times.start.max(self.before);
        let of_source = |time: usize| time - self.before + self.skipped;
        of_source(first)..of_source(job.times.end)
    }

    /// Returns what shards are made of.
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

    /// Makes the samples of shards and writes these, and returns what is missing in them.
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

    /// Writes a shard of samples that are there, behind those of before an append.
    async fn write_made<T>(
        &self,
        job: &ShardJob,
        part: &Hyperslab,
        made: &Arc<Vec<Pixels>>,
    ) -> Result<()>
    where
        T: Sample + Send + Sync + 'static,
    {
        let storage = part.bands.iter().position(|&band| band == job.band);
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
            let view = storage.and_then(|storage| T::view(made.get(storage)?));
            let view = view.filter(|view| view.dim() == expected).ok_or_else(|| {
                Error::new(
                    ErrorKind::Corrupt,
                    "samples of another type or size than asked for",
                )
            })?;
            let view = view.slice_move(s![times, .., ..]);
            let Some(old) = old else {
                return encode.of(view);
            };
            let all = concatenate(Axis(0), &[old.view(), view]);
            let all = all.map_err(|err| {
                Error::new(ErrorKind::Corrupt, "dates of another size than the cube's")
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
        let pieces = session.cpu(move || work(&encode)).await??;
        array.put(&job.key, pieces).await
    }

    /// Makes the samples of an overview's shard of the level before.
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
        let (resampling, nodata) = (self.cut.resampling, self.bands[job.band].nodata);
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
    /// Encodes (time, y, x) of a band; none if nothing but the fill value is in it.
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

/// Puts shards together that are made together, in the order of the first of each.
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
            Together::Storage => 0,
        };
        let storage = known.entry((job.window, job.dtype, time));
        let storage = *storage.or_insert(groups.len());
        match groups.get_mut(storage) {
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
    fn shards_that_share_what_they_are_made_of_are_made_together() {
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
        let told = |together: Together| {
            let groups = grouped(jobs.clone(), together).into_iter();
            groups
                .map(|group| group.iter().map(|job| job.band).collect())
                .collect()
        };
        let apart: Vec<Vec<usize>> = told(Together::None);
        assert_eq!(apart.len(), 12);
        let bands: Vec<Vec<usize>> = told(Together::Bands);
        assert_eq!(bands, [&[0, 1][..], &[2]].repeat(4));
        let places: Vec<Vec<usize>> = told(Together::Storage);
        assert_eq!(places, [&[0, 1, 0, 1][..], &[2, 2]].repeat(2));
    }
}
