//! Copied samples: images whose pixels lie on one grid, read from the files and mosaicked without resampling.

use std::ops::Range;

use futures::{StreamExt, TryStreamExt, stream};
use ndarray::{Array3, ArrayView2, Axis, s};
use serde_json::{Value, json};

use super::{
    describe::{CubeBand, TimeStep},
    plan::{CubePlan, ImageBand, Open},
    samples::{Hyperslab, Samples, Together},
};
use crate::{
    apply::{MissingInput, SOFTWARE, sources_json, time_json},
    error::{Error, ErrorKind, Result},
    geo::{GeoBox, Window},
    raster::{Number, Pixels, Sample, nodata_sample, with_type},
    reader::ReadRequest,
};

/// Windows of images that one part reads concurrently.
const READS: usize = 8;

#[async_trait::async_trait]
impl Samples for CubePlan {
    fn bands(&self) -> &[CubeBand] {
        &self.bands
    }

    fn steps(&self) -> Vec<TimeStep> {
        self.steps.iter().map(|step| step.said.clone()).collect()
    }

    fn grid(&self) -> GeoBox {
        Self::grid(self)
    }

    fn made(&self) -> Value {
        Value::Null
    }

    fn provenance(&self) -> Value {
        let sources = self.sources();
        json!({
            "software": SOFTWARE,
            "computed": "copied",
            "time": time_json(&sources),
            "items": sources_json(&sources),
        })
    }

    fn together(&self) -> Together {
        match self.shares_files() {
            true => Together::Bands,
            false => Together::None,
        }
    }

    fn missing_inputs(&self) -> Option<Vec<MissingInput>> {
        None
    }

    async fn bytes(&self, part: &Hyperslab) -> Result<u64> {
        let size = part.bands.first().and_then(|&band| self.bands.get(band));
        let samples = part.len() * size.map_or(1, |band| band.dtype.size() as u64);
        let dates = part.times.len().max(1);
        // Where a file holds several bands, a read has the samples of all of them.
        // The output, and for each read under way its compressed and its decoded bytes.
        Ok(samples + samples / dates as u64 * 2 * READS.min(dates) as u64)
    }

    async fn make(&self, part: &Hyperslab) -> Result<(Vec<Pixels>, Vec<MissingInput>)> {
        let of = part.bands.iter().map(|&band| {
            self.bands.get(band).ok_or_else(|| {
                Error::new(ErrorKind::InvalidInput, format!("there is no band {band}"))
            })
        });
        let of = of.collect::<Result<Vec<&CubeBand>>>()?;
        let Some(first) = of.first() else {
            return Ok((Vec::new(), Vec::new()));
        };
        let made = with_type!(first.dtype, T => {
            let made = self.read::<T>(&of, part).await?;
            made.into_iter().map(T::wrap).collect()
        });
        Ok((made, Vec::new()))
    }
}

/// A window of one image, of the bands that one file holds.
struct Read {
    /// The index of the time step.
    time: usize,
    /// The indices of the bands among those that are asked for, and their sources.
    bands: Vec<(usize, ImageBand)>,
    /// The window in the image.
    part: Window,
    /// Its offset in the requested window (row, column).
    position: [usize; 2],
}

impl Read {
    /// Reads the window, (band, y, x): all bands of a file together, as a tile may hold all of them.
    async fn read(&self) -> Result<Pixels> {
        let numbers = self
            .bands
            .iter()
            .filter_map(|(_, source)| match &source.pixels {
                Open::File { band, .. } => Some(*band),
                Open::Memory(_) => None,
            });
        let numbers: Vec<usize> = numbers.collect();
        match self.bands.first().map(|(_, source)| &source.pixels) {
            Some(Open::File { reader, .. }) => {
                let request = ReadRequest::new()
                    .with_window(self.part)
                    .with_bands(numbers);
                Ok(reader.read(&request).await?.pixels)
            }
            Some(Open::Memory(raster)) => with_type!(raster.pixels.dtype(), T => {
                let view = raster.pixels.view::<T>();
                let view = view.ok_or_else(|| Error::new(ErrorKind::Corrupt, "pixels of another dtype"))?;
                let (row, col) = (self.part.row as usize, self.part.col as usize);
                let (height, width) = (self.part.height as usize, self.part.width as usize);
                let window = view.slice(s![0..1, row..row + height, col..col + width]);
                Ok(T::wrap(window.to_owned()))
            }),
            None => Err(Error::new(ErrorKind::InvalidInput, "a read of no bands")),
        }
    }
}

impl CubePlan {
    /// Returns the reads of a hyperslab, in the order of time steps and images.
    fn reads(&self, part: &Hyperslab) -> Vec<Read> {
        let steps = self.steps.get(part.times.clone()).unwrap_or_default();
        let mut reads: Vec<Read> = Vec::new();
        for (time, step) in steps.iter().enumerate() {
            // Of each image first: bands of one file follow each other.
            let first = reads.len();
            for (index, &band) in part.bands.iter().enumerate() {
                for (source, window, position) in self.parts(step, band, &part.window) {
                    let shared = reads.iter_mut().skip(first).find(|read| {
                        read.part == window
                            && read.position == position
                            && read.bands.iter().all(|(other, _)| *other != index)
                            && read
                                .bands
                                .first()
                                .is_some_and(|(_, one)| one.shares_file(&source))
                    });
                    match shared {
                        Some(read) => read.bands.push((index, source)),
                        None => reads.push(Read {
                            time,
                            bands: vec![(index, source)],
                            part: window,
                            position,
                        }),
                    }
                }
            }
        }
        reads
    }

    /// Reads (time, y, x) of each of some bands of one dtype from images.
    async fn read<T>(&self, bands: &[&CubeBand], part: &Hyperslab) -> Result<Vec<Array3<T>>>
    where
        T: Sample + Send + Sync + 'static,
    {
        let window = &part.window;
        let shape = (
            part.times.len(),
            window.height as usize,
            window.width as usize,
        );
        let mut out: Vec<Layer<T>> = bands
            .iter()
            .map(|band| Layer::new(shape, band.nodata))
            .collect();
        // `buffered` keeps the order of the images: where two cover a pixel, the first valid sample wins.
        let mut arriving = stream::iter(self.reads(part))
            .map(|read| async move {
                let pixels = read.read().await?;
                Ok::<_, Error>((read, pixels))
            })
            .buffered(READS);
        while let Some((read, pixels)) = arriving.try_next().await? {
            let view = pixels.view::<T>();
            let view = view.filter(|view| view.dim().0 == read.bands.len());
            let view = view.ok_or_else(|| {
                Error::new(
                    ErrorKind::Corrupt,
                    "the window's samples differ in dtype from the file's profile",
                )
            })?;
            for (of_read, (index, source)) in read.bands.iter().enumerate() {
                if let Some(layer) = out.get_mut(*index) {
                    let samples = view.index_axis(Axis(0), of_read);
                    layer.put(read.time, read.position, samples, source.nodata);
                }
            }
        }
        Ok(out.into_iter().map(|layer| layer.samples).collect())
    }
}

/// The samples of a band, and what of them is covered.
struct Layer<T> {
    /// (time, y, x)
    samples: Array3<T>,
    nodata: Option<Number>,
    /// The windows that earlier images of each time step cover.
    covered: Vec<Vec<[Range<usize>; 2]>>,
}

impl<T: Sample> Layer<T> {
    fn new(shape: (usize, usize, usize), nodata: Option<Number>) -> Self {
        let fill = nodata.and_then(T::exact).unwrap_or(T::of_number(0.0));
        Self {
            samples: Array3::from_elem(shape, fill),
            nodata,
            covered: vec![Vec::new(); shape.0],
        }
    }

    /// Puts a window of an image under those of earlier ones.
    fn put(
        &mut self,
        time: usize,
        [row, col]: [usize; 2],
        samples: ArrayView2<'_, T>,
        nodata: Option<Number>,
    ) {
        let (height, width) = samples.dim();
        let slice = s![time, row..row + height, col..col + width];
        let (mut position, nodata_here) = (self.samples.slice_mut(slice), self.nodata);
        let fill = nodata_here.unwrap_or(Number::ZERO);
        let same = nodata.is_none_or(|nodata| nodata == fill);
        let covered = &mut self.covered[time];
        if covered.is_empty() && same {
            position.assign(&samples);
        } else {
            let (here, there) = (nodata_sample::<T>(nodata_here), nodata_sample::<T>(nodata));
            // Without a nodata value every pixel of an earlier image holds data.
            let is_free = |y: usize, x: usize| {
                nodata_here.is_none()
                    && !covered
                        .iter()
                        .any(|[rows, cols]| rows.contains(&(row + y)) && cols.contains(&(col + x)))
            };
            ndarray::Zip::indexed(&mut position)
                .and(&samples)
                .for_each(|(y, x), out, sample| {
                    let is_free = !out.is_data(here) || is_free(y, x);
                    if is_free && sample.is_data(there) {
                        *out = *sample;
                    }
                });
        }
        covered.push([row..row + height, col..col + width]);
    }
}
