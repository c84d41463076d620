//! Copied samples: images whose pixels lie on one grid, read from the files and mosaicked without resampling.

use std::ops::Range;

use futures::{StreamExt, TryStreamExt, stream};
use ndarray::{Array3, Axis, s};
use serde_json::Value;

use super::{
    describe::{CubeBand, TimeStep},
    plan::{CubePlan, ImageBand, Open},
    samples::{Hyperslab, Samples, Together},
};
use crate::{
    apply::MissingInput,
    error::{Error, ErrorKind, Result},
    geo::{GeoBox, Window},
    raster::{Pixels, Sample, with_type},
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

    fn together(&self) -> Together {
        Together::None
    }

    fn missing_inputs(&self) -> Option<Vec<MissingInput>> {
        None
    }

    async fn bytes(&self, part: &Hyperslab) -> Result<u64> {
        let size = part.bands.first().and_then(|&band| self.bands.get(band));
        let samples = part.len() * size.map_or(1, |band| band.dtype.size() as u64);
        let dates = part.times.len().max(1);
        // The output, and for each read under way its compressed and its decoded bytes.
        Ok(samples + samples / dates as u64 * 2 * READS.min(dates) as u64)
    }

    async fn make(&self, part: &Hyperslab) -> Result<(Vec<Pixels>, Vec<MissingInput>)> {
        let mut made = Vec::with_capacity(part.bands.len());
        for &band in &part.bands {
            let of = self.bands.get(band).ok_or_else(|| {
                Error::new(ErrorKind::InvalidInput, format!("there is no band {band}"))
            })?;
            made.push(with_type!(of.dtype, T => T::wrap(self.read::<T>(band, part).await?)));
        }
        Ok((made, Vec::new()))
    }
}

impl CubePlan {
    /// Reads (time, y, x) of a band from images.
    async fn read<T>(&self, band: usize, part: &Hyperslab) -> Result<Array3<T>>
    where
        T: Sample + Send + Sync + 'static,
    {
        let window = &part.window;
        let shape = (
            part.times.len(),
            window.height as usize,
            window.width as usize,
        );
        let nodata_here = self.bands[band].nodata;
        let fill = nodata_here.unwrap_or(0.0);
        let mut out = Array3::from_elem(shape, T::of_number(fill));
        let mut reads = Vec::new();
        let steps = self.steps.get(part.times.clone()).unwrap_or_default();
        for (time, step) in steps.iter().enumerate() {
            for (source, part, position) in self.parts(step, band, window) {
                reads.push((time, source, part, position));
            }
        }
        // `buffered` keeps the order of the images: where two cover a pixel, the first valid sample wins.
        let mut arriving = stream::iter(reads)
            .map(|(time, source, part, position)| async move {
                let raster = read_part(&source, &part).await?;
                Ok::<_, Error>((time, source.nodata, part, position, raster))
            })
            .buffered(READS);
        // The windows that earlier images of each time step cover.
        let mut covered: Vec<Vec<[Range<usize>; 2]>> = vec![Vec::new(); shape.0];
        while let Some((time, nodata, part, [row, col], raster)) = arriving.try_next().await? {
            let Some(view) = raster.view::<T>() else {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    "the window's samples differ in dtype from the file's profile",
                ));
            };
            let view = view.index_axis(Axis(0), 0);
            let (height, width) = (part.height as usize, part.width as usize);
            let mut position = out.slice_mut(s![time, row..row + height, col..col + width]);
            let same = nodata.is_none_or(|nodata| nodata.to_bits() == fill.to_bits());
            let covered = &mut covered[time];
            if covered.is_empty() && same {
                position.assign(&view);
            } else {
                let is_nodata = |sample: &T, nodata: Option<f64>| {
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
                ndarray::Zip::indexed(&mut position)
                    .and(&view)
                    .for_each(|(y, x), out, sample| {
                        let is_free = is_nodata(out, nodata_here) || is_free(y, x);
                        if is_free && !is_nodata(sample, nodata) {
                            *out = *sample;
                        }
                    });
            }
            covered.push([row..row + height, col..col + width]);
        }
        Ok(out)
    }
}

/// Reads a part of an image's band.
async fn read_part(source: &ImageBand, part: &Window) -> Result<Pixels> {
    match &source.pixels {
        Open::File { reader, band } => {
            let request = ReadRequest::new().with_window(*part).with_bands([*band]);
            Ok(reader.read(&request).await?.pixels)
        }
        Open::Memory(raster) => with_type!(raster.pixels.dtype(), T => {
            let view = raster.pixels.view::<T>();
            let view = view.ok_or_else(|| Error::new(ErrorKind::Corrupt, "pixels of another dtype"))?;
            let (row, col) = (part.row as usize, part.col as usize);
            let (height, width) = (part.height as usize, part.width as usize);
            let window = view.slice(s![0..1, row..row + height, col..col + width]);
            Ok(T::wrap(window.to_owned()))
        }),
    }
}
