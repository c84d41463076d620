//! Copied samples: images whose pixels lie on one grid, read from the files and mosaicked without resampling.

use std::ops::Range;

use futures::{StreamExt, TryStreamExt, stream};
use ndarray::{Array2, Array3, ArrayView2, Axis, s};
use serde_json::{Value, json};

use super::{
    describe::{CubeBand, TimeStep},
    plan::{Bands, CubePlan, ImageBand, Open},
    samples::{Hyperslab, Samples, SourceFile, Together},
};
use crate::{
    apply::{CHANGED, MissingInput, SOFTWARE, mosaic::Fill, sources_json, time_json},
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

    fn files(&self) -> Vec<SourceFile> {
        Self::files(self)
    }

    fn provenance(&self) -> Value {
        let sources = self.sources();
        json!({
            "software": SOFTWARE,
            "computed": "copied",
            "fill": self.fill.name(),
            "time": time_json(&sources),
            "items": sources_json(&sources),
        })
    }

    fn fill(&self) -> Option<Fill> {
        self.has_choice().then_some(self.fill)
    }

    fn notes(&self) -> Vec<String> {
        let all = self.bands.iter().enumerate();
        let of_bands = all.filter_map(|(index, band)| self.note_of(index, band));
        let of_files = self.of_files.iter().cloned();
        of_bands.chain(of_files).chain(self.changes()).collect()
    }

    fn together(&self) -> Together {
        match self.shares_files() || self.fills_pixels() {
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
        let read = samples + samples / dates as u64 * 2 * READS.min(dates) as u64;
        if !self.fills_pixels() {
            return Ok(read);
        }
        // All bands of one image wait for each other; and of each pixel in how many of them it has data.
        let pixels = u64::from(part.window.width) * u64::from(part.window.height);
        let sizes = || self.bands.iter().map(|band| band.dtype.size() as u64);
        let of_image = pixels * sizes().sum::<u64>();
        let of_read = match self.shares_files() {
            true => of_image,
            false => pixels * sizes().max().unwrap_or(0),
        };
        Ok(samples + of_image + 2 * READS as u64 * of_read + 8 * pixels)
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
    /// The indices of the time step, and of the image in it.
    of: (usize, usize),
    /// Whether the image's pixels are taken as a whole: then all bands are read.
    is_whole: bool,
    /// The indices of the bands in the cube, and their sources.
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
    /// Returns what a user should know of the samples of a band that its nodata value does not tell.
    fn note_of(&self, index: usize, band: &CubeBand) -> Option<String> {
        let of_band = |image: &'_ Bands| image.get(index)?.clone();
        let name = &band.name;
        let Some(nodata) = band.nodata else {
            let size = self.grid().size;
            let whole = Window {
                col: 0,
                row: 0,
                width: size.width,
                height: size.height,
            };
            let covers = |image: &Bands| {
                let mut parts = self.parts(image, index, &whole);
                parts.any(|(_, part, _)| (part.width, part.height) == (size.width, size.height))
            };
            let is_whole = self.steps.iter().all(|step| step.images.iter().any(covers));
            return (!is_whole).then(|| {
                format!("band {name} has no nodata value: where no image lies its samples are 0, as others may be")
            });
        };
        let images = self.steps.iter().flat_map(|step| &step.images);
        let mut others = images
            .filter_map(of_band)
            .filter_map(|source| source.nodata);
        let other = others.find(|other| *other != nodata && band.dtype.holds(*other))?;
        (!band.dtype.is_float() || !nodata.is_nan()).then(|| {
            format!("nodata of images of band {name} is {other}: in the cube it is {nodata}")
        })
    }

    /// Returns which files have changed since they were recorded.
    fn changes(&self) -> Vec<String> {
        let mut all = Vec::new();
        for step in &self.steps {
            for (id, image) in step.said.items.iter().zip(&step.images) {
                let named = self.bands.iter().zip(image);
                let changed =
                    named.filter(|(_, source)| source.as_ref().is_some_and(ImageBand::has_changed));
                all.extend(
                    changed.map(|(band, _)| format!("item {id}, band {}: {CHANGED}", band.name)),
                );
            }
        }
        all
    }

    /// Returns the reads of a hyperslab, in the order of time steps and images.
    fn reads(&self, part: &Hyperslab) -> Vec<Read> {
        let steps = self.steps.get(part.times.clone()).unwrap_or_default();
        let all: Vec<usize> = (0..self.bands.len()).collect();
        let mut reads: Vec<Read> = Vec::new();
        for (time, step) in steps.iter().enumerate() {
            let touches = |image: &&Bands| {
                let mut bands = all.iter();
                bands.any(|&band| self.parts(image, band, &part.window).next().is_some())
            };
            // A single image gives each pixel, whole or not.
            let is_whole = self.fills_pixels() && step.images.iter().filter(touches).count() > 1;
            let bands = match is_whole {
                true => &all,
                false => &part.bands,
            };
            for (number, image) in step.images.iter().enumerate() {
                let first = reads.len();
                let parts = bands.iter().flat_map(|&band| {
                    let parts = self.parts(image, band, &part.window);
                    parts.map(move |part| (band, part))
                });
                for (band, (source, window, position)) in parts {
                    let shared = reads.iter_mut().skip(first).find(|read| {
                        read.part == window
                            && read.position == position
                            && read
                                .bands
                                .first()
                                .is_some_and(|(_, one)| one.shares_file(source))
                    });
                    match shared {
                        Some(read) => read.bands.push((band, source.clone())),
                        None => reads.push(Read {
                            of: (time, number),
                            is_whole,
                            bands: vec![(band, source.clone())],
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
        let shape = (window.height as usize, window.width as usize);
        let mut out: Vec<Layer<T>> = bands
            .iter()
            .map(|band| Layer::new((part.times.len(), shape.0, shape.1), band.nodata))
            .collect();
        let mut covered = Covered::new(shape);
        let mut image: Option<WholeImage<T>> = None;
        // `buffered` keeps the order of the images: where two cover a pixel, the first with data wins.
        let mut arriving = stream::iter(self.reads(part))
            .map(|read| async move {
                let pixels = read.read().await?;
                Ok::<_, Error>((read, pixels))
            })
            .buffered(READS);
        while let Some((read, pixels)) = arriving.try_next().await? {
            if image.as_ref().is_some_and(|image| image.of != read.of)
                && let Some(done) = image.take()
            {
                covered.put(done, self.bands.len(), &mut out)?;
            }
            if pixels.shape()[0] != read.bands.len() {
                return Err(other_dtype());
            }
            if read.is_whole {
                let image = image.get_or_insert_with(|| WholeImage::new(read.of, shape));
                with_type!(pixels.dtype(), U => image.count::<U>(&read, &pixels)?);
            }
            for (of_read, (band, source)) in read.bands.iter().enumerate() {
                let Some(index) = part.bands.iter().position(|asked| asked == band) else {
                    continue;
                };
                let view = pixels.view::<T>().ok_or_else(other_dtype)?;
                let samples = view.index_axis_move(Axis(0), of_read);
                match (&mut image, out.get_mut(index)) {
                    (Some(image), _) if read.is_whole => image.parts.push(Part {
                        source: self.named(part, read.of, *band),
                        layer: index,
                        position: read.position,
                        samples: samples.to_owned(),
                        nodata: source.nodata,
                    }),
                    (_, Some(layer)) => {
                        layer
                            .put(read.of.0, read.position, samples, source.nodata)
                            .map_err(|lost| lost.named(&self.named(part, read.of, *band)))?;
                    }
                    (_, None) => {}
                }
            }
        }
        if let Some(done) = image {
            covered.put(done, self.bands.len(), &mut out)?;
        }
        Ok(out.into_iter().map(|layer| layer.samples).collect())
    }

    /// Names the band of an image of a part's time step, for errors.
    fn named(&self, part: &Hyperslab, (time, number): (usize, usize), band: usize) -> String {
        let step = self.steps.get(part.times.start + time);
        let id = step.and_then(|step| step.said.items.get(number));
        let band = self.bands.get(band).map_or("", |band| band.name.as_str());
        format!("image {}, band {band}", id.map_or("", String::as_str))
    }
}

/// A valid sample that has the nodata value of the cube.
struct Lost {
    sample: Number,
    /// The nodata value of the image.
    nodata: Option<Number>,
}

impl Lost {
    fn named(&self, image: &str) -> Error {
        let Self { sample, nodata } = self;
        let own = match nodata {
            Some(nodata) => format!("its nodata value is {nodata}"),
            None => "it states no nodata value".to_owned(),
        };
        Error::new(
            ErrorKind::InvalidInput,
            format!(
                "{image}: {own}, and it has valid samples of {sample}, the nodata value of the cube: choose one that no \
                 image has, or write two cubes"
            ),
        )
    }
}

fn other_dtype() -> Error {
    Error::new(
        ErrorKind::Corrupt,
        "the window's samples differ in dtype or bands from the file's profile",
    )
}

/// The pixels of one image whose bands are taken together.
struct WholeImage<T> {
    of: (usize, usize),
    /// In how many bands of the cube each pixel has data.
    count: Array2<u32>,
    parts: Vec<Part<T>>,
}

/// What an image has of a band that is asked for.
struct Part<T> {
    /// Of which image and band, for errors.
    source: String,
    layer: usize,
    position: [usize; 2],
    samples: Array2<T>,
    nodata: Option<Number>,
}

impl<T> WholeImage<T> {
    fn new(of: (usize, usize), shape: (usize, usize)) -> Self {
        Self {
            of,
            count: Array2::zeros(shape),
            parts: Vec::new(),
        }
    }

    /// Counts the pixels with data in the bands of a read.
    fn count<U: Sample>(&mut self, read: &Read, pixels: &Pixels) -> Result<()> {
        let view = pixels.view::<U>().ok_or_else(other_dtype)?;
        let [row, col] = read.position;
        for ((_, source), samples) in read.bands.iter().zip(view.outer_iter()) {
            let (height, width) = samples.dim();
            let slice = s![row..row + height, col..col + width];
            let nodata = nodata_sample::<U>(source.nodata);
            ndarray::Zip::from(self.count.slice_mut(slice))
                .and(&samples)
                .for_each(|count, sample| *count += u32::from(sample.is_data(nodata)));
        }
        Ok(())
    }
}

/// The pixels of a time step that earlier images have given.
struct Covered {
    time: usize,
    /// With data in all bands.
    all: Array2<bool>,
    /// With data in any band.
    any: Array2<bool>,
}

impl Covered {
    fn new(shape: (usize, usize)) -> Self {
        Self {
            time: 0,
            all: Array2::from_elem(shape, false),
            any: Array2::from_elem(shape, false),
        }
    }

    /// Puts the pixels of an image under those of earlier ones, by the rule of
    /// [`Fill::Pixel`](crate::apply::mosaic::Fill::Pixel).
    fn put<T: Sample>(
        &mut self,
        image: WholeImage<T>,
        bands: usize,
        out: &mut [Layer<T>],
    ) -> Result<()> {
        let (time, _) = image.of;
        if time != self.time {
            *self = Self {
                time,
                ..Self::new(self.all.dim())
            };
        }
        let is_all = |count: u32| count as usize == bands;
        // Only a whole pixel may take the place of one with data in any band, which then has all of them.
        let mut taken = Array2::from_elem(self.all.dim(), false);
        ndarray::Zip::from(&mut taken)
            .and(&mut self.all)
            .and(&mut self.any)
            .and(&image.count)
            .for_each(|taken, all, any, &count| {
                *taken = !*all && (is_all(count) || (count > 0 && !*any));
                *all |= is_all(count);
                *any |= count > 0;
            });
        for part in image.parts {
            if let Some(layer) = out.get_mut(part.layer) {
                layer
                    .put_taken(time, &part, &taken)
                    .map_err(|lost| lost.named(&part.source))?;
            }
        }
        Ok(())
    }
}

/// Returns a nodata value if a sample can have it; NaN is missing anyway.
fn marks<T: Sample>(nodata: Option<Number>) -> Option<Number> {
    nodata.filter(|&nodata| !nodata.is_nan() && T::DTYPE.holds(nodata))
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
    ) -> Result<(), Lost> {
        let (height, width) = samples.dim();
        let slice = s![time, row..row + height, col..col + width];
        let (mut position, nodata_here) = (self.samples.slice_mut(slice), self.nodata);
        let (here, there) = (nodata_sample::<T>(nodata_here), nodata_sample::<T>(nodata));
        let same = marks::<T>(nodata_here) == marks::<T>(nodata);
        let mut lost = false;
        let covered = &mut self.covered[time];
        if covered.is_empty() && same {
            position.assign(&samples);
        } else {
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
                        lost |= !sample.is_data(here);
                        *out = *sample;
                    }
                });
        }
        covered.push([row..row + height, col..col + width]);
        self.kept(lost, nodata)
    }

    /// Returns an error if a valid sample was lost.
    fn kept(&self, is_lost: bool, nodata: Option<Number>) -> Result<(), Lost> {
        match self.nodata.filter(|_| is_lost) {
            Some(sample) => Err(Lost { sample, nodata }),
            None => Ok(()),
        }
    }

    /// Puts the pixels of an image that are taken as a whole.
    fn put_taken(&mut self, time: usize, part: &Part<T>, taken: &Array2<bool>) -> Result<(), Lost> {
        let [row, col] = part.position;
        let (height, width) = part.samples.dim();
        let fill = self.nodata.and_then(T::exact).unwrap_or(T::of_number(0.0));
        let (here, there) = (nodata_sample::<T>(self.nodata), nodata_sample(part.nodata));
        let is_same = marks::<T>(self.nodata) == marks::<T>(part.nodata);
        let mut lost = false;
        let rows = row..row + height;
        let cols = col..col + width;
        ndarray::Zip::from(self.samples.slice_mut(s![time, rows.clone(), cols.clone()]))
            .and(&part.samples)
            .and(taken.slice(s![rows, cols]))
            .for_each(|out, &sample, &taken| {
                if taken {
                    *out = if is_same {
                        sample
                    } else if sample.is_data(there) {
                        lost |= !sample.is_data(here);
                        sample
                    } else {
                        fill
                    };
                }
            });
        self.kept(lost, part.nodata)
    }
}
