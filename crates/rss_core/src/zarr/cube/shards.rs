//! The shards of a write: which there are, and what samples each holds.

use std::{collections::HashSet, ops::Range, sync::Arc};

use futures::{StreamExt, TryStreamExt, stream};
use ndarray::{Array3, ArrayD, Axis, s};

use super::{
    plan::{Open, Source},
    write::Work,
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::Window,
    raster::{DataType, Sample, halved, with_type},
    reader::ReadRequest,
    zarr::{
        array::Array,
        layout::{Arrangement, Block},
    },
};

/// Windows of images that one shard reads at once.
const READS: usize = 8;

/// One shard to write.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) level: usize,
    pub(super) band: usize,
    /// Of the array.
    key: Vec<u64>,
    times: Range<usize>,
    window: Window,
    pub(super) dtype: DataType,
}

impl Work {
    /// Returns the shards to write, level by level: neighbours in space and all bands of a place come one
    /// after the other, since they read the same files.
    pub(super) fn jobs(&self) -> Result<Vec<Vec<Job>>> {
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
    pub(super) fn array_of(&self, band: usize) -> usize {
        match self.cut.layout.arrangement {
            Arrangement::Bands => band,
            Arrangement::Stacked => 0,
        }
    }

    /// Returns true if an earlier write left this shard. One that holds dates of before an append is
    /// written again: which of its versions is there cannot be seen.
    pub(super) fn is_there(&self, job: &Job, there: &HashSet<String>) -> bool {
        let array = &self.levels[job.level].arrays[self.array_of(job.band)];
        job.times.start >= self.before && there.contains(&array.key_of(&job.key))
    }

    /// Returns the bytes of a shard's samples.
    pub(super) fn samples(&self, job: &Job) -> u64 {
        let pixels = u64::from(job.window.width) * u64::from(job.window.height);
        pixels * job.times.len() as u64 * job.dtype.size() as u64
    }

    /// Returns the bytes of memory that writing a shard takes at most: its samples, what they are made of,
    /// and what they are encoded to.
    pub(super) fn bytes(&self, job: &Job) -> u64 {
        let samples = self.samples(job);
        let made_of = match job.level {
            // Windows as they are read, compressed and not.
            0 => samples / job.times.len().max(1) as u64 * 2 * READS.min(job.times.len()) as u64,
            _ => samples * 4,
        };
        samples * 2 + made_of
    }

    pub(super) async fn write_shard<T>(self: &Arc<Self>, job: &Job) -> Result<()>
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
