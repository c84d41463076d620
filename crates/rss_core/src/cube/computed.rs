//! Computed samples: an image cube or a result of [`apply`](crate::apply), resampled onto a grid, masked, scaled or
//! computed.

use std::{ops::Range, sync::Arc};

use ndarray::{Array3, Array4, Axis, s};
use serde_json::Value;

use super::{
    Cube,
    describe::{CubeBand, TimeStep},
    options::CubeOptions,
    plan::check_names,
    samples::{Hyperslab, Images, Nodata, Samples, SamplesKind, SourceFile, Together},
    write::Written,
};
use crate::{
    apply::{
        self, Apply, BlockSample, MissingInput, Stored, TimeBounds, TypedApply, each_type,
        mosaic::Mosaic,
    },
    array::Root,
    error::{Error, ErrorKind, Result},
    geo::{GeoBox, Lattice},
    raster::{DataType, Number, Pixels, Sample, nodata_sample},
};

/// Runs `$body` with `$type` as the Rust type of a dtype that blocks can have: blocks are real numbers.
macro_rules! with_block_type {
    ($dtype:expr, $type:ident => $body:expr) => {
        with_block_type!(@ $dtype, $type, $body, U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, U64 u64,
            I64 i64, F32 f32, F64 f64)
    };
    (@ $dtype:expr, $type:ident, $body:expr, $($name:ident $rust:ty),*) => {
        match $dtype {
            $(DataType::$name => {
                type $type = $rust;
                $body
            })*
            other => Err(Error::new(
                ErrorKind::Unsupported,
                format!("samples of {other}: expected real numbers"),
            )),
        }
    };
}

impl From<apply::ImageCube> for Images {
    fn from(cube: apply::ImageCube) -> Self {
        Self(SamplesKind::Computed(Box::new(|nodata| {
            Box::pin(async move {
                let samples = OfCube::open(cube, &nodata).await?;
                Ok(Arc::new(samples) as Arc<dyn Samples>)
            })
        })))
    }
}

impl From<&apply::ImageCube> for Images {
    fn from(cube: &apply::ImageCube) -> Self {
        cube.clone().into()
    }
}

impl<O: Sample + Send + Sync + 'static> From<Apply<O>> for Images {
    fn from(work: Apply<O>) -> Self {
        Self(SamplesKind::Computed(Box::new(|nodata| {
            Box::pin(async move {
                let samples = OfResult::new(work, &nodata)?;
                Ok(Arc::new(samples) as Arc<dyn Samples>)
            })
        })))
    }
}

impl From<TypedApply> for Images {
    fn from(work: TypedApply) -> Self {
        each_type!(work, work => work.into())
    }
}

impl apply::ImageCube {
    /// Writes all time steps and bands as a new stored cube: [`Cube::create`] with this cube's session. Bands keep
    /// their names; raw samples keep the files' dtype and nodata value, physical values are float32 with NaN.
    ///
    /// ```
    /// # use rss_core::{Cmp, Collection, DEA, ImageQueryBuilder, Intersects, Location, Session, Source, date};
    /// use rss_core::{Resampling, apply, zarr};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> anyhow::Result<()> {
    /// # let bed = rss_testbed::Testbed::builder().scenes(rss_testbed::Scenes::small()).start()?;
    /// # let session = Session::builder().s3_endpoint(&bed.s3_endpoint()).build()?;
    /// # let dea = Source::api(&bed.stac_url())?.like(&DEA);
    /// # let found = ImageQueryBuilder::new(dea, Collection::Sentinel2, Intersects::scene("56jns"))
    /// #     .session(session.clone())
    /// #     .canonical_bands(["red", "nir"])
    /// #     .start_date(date(2021, 1, 1)).end_date(date(2021, 2, 1))
    /// #     .cloudcover((Cmp::Less, 30)).build()?.search_async().await?;
    /// # let dir = tempfile::tempdir()?;
    /// # let location = Location::parse(&dir.path().join("cube.zarr").to_string_lossy())?;
    ///
    /// let options = apply::ImageCubeOptions::new()
    ///     .with_grid(apply::Grid::Utm(40.0.into()))
    ///     .with_resampling(Resampling::Average)
    ///     .reflectance();
    /// let cube = apply::ImageCube::of(&found, &options).await?;
    /// let written = cube.zarr(&location, &zarr::CubeOptions::new()).await?;
    /// assert_eq!((written.steps, written.missing_inputs.len()), (4, 0));
    /// let stored = zarr::Cube::open(&session, &location).await?;
    /// let red = stored.read::<f32>("red", 0..4, None, 0).await?;
    /// assert_eq!(red.dim().2, cube.grid().size.width as usize);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Cube::create`].
    pub async fn zarr(&self, root: impl Into<Root>, options: &CubeOptions) -> Result<Written> {
        Cube::create(self.session(), root, self, options).await
    }
}

impl<O: Sample + Send + Sync + 'static> Apply<O> {
    /// Computes everything into a new stored cube: [`Cube::create`] with the cube's session. Each band becomes an
    /// array of its name with one time step: the time of the first image, with the items of all. With
    /// [`Apply::each_date`] the bands are time steps, and each name becomes an array of all of them.
    ///
    /// # Errors
    ///
    /// As [`Cube::create`]; [`ErrorKind::InvalidInput`] if the bands have no names.
    pub async fn zarr(self, root: impl Into<Root>, options: &CubeOptions) -> Result<Written> {
        let session = self.cube().session().clone();
        Cube::create(&session, root, self, options).await
    }
}

impl TypedApply {
    /// Computes everything into a new stored cube, as [`Apply::zarr`].
    ///
    /// # Errors
    ///
    /// As [`Apply::zarr`].
    pub async fn zarr(self, root: impl Into<Root>, options: &CubeOptions) -> Result<Written> {
        each_type!(self, work => work.zarr(root, options).await)
    }
}

/// Checks that a cube can describe a grid: it needs a CRS and a geotransform without rotation.
fn check_grid(grid: &GeoBox) -> Result<()> {
    let lattice = Lattice::of(grid);
    lattice.map(|_| ()).map_err(|err| {
        let message = format!("the grid of the computed samples: {}", err.message());
        Error::new(err.kind(), message)
    })
}

/// Returns a chosen nodata value rounded to the dtype.
fn held(nodata: Number, dtype: DataType, band: &str) -> Result<Number> {
    let rounded = dtype.rounded(nodata);
    match dtype.holds(nodata) && rounded.is_finite() == nodata.is_finite() {
        true => Ok(rounded),
        false => Err(Error::new(
            ErrorKind::InvalidInput,
            format!("band {band}: nodata {nodata} is not a value of {dtype}"),
        )),
    }
}

/// The samples of an image cube.
struct OfCube {
    cube: apply::ImageCube,
    bands: Vec<CubeBand>,
}

impl OfCube {
    async fn open(cube: apply::ImageCube, chosen: &Nodata) -> Result<Self> {
        // The name of a band of an asset with several is that of an array: `key.red`.
        let names: Vec<String> = cube
            .bands()
            .iter()
            .map(|band| band.name.replace(':', "."))
            .collect();
        check_names(&names)?;
        check_grid(cube.grid())?;
        let stored = match cube.is_physical() {
            true => None,
            false => Some(cube.stored().await?),
        };
        let mut bands = Vec::with_capacity(names.len());
        for (number, (band, name)) in cube.bands().iter().zip(&names).enumerate() {
            let of_files = stored.as_ref().and_then(|stored| stored.get(number));
            let Stored {
                dtype,
                mut scale,
                mut offset,
                mut unit,
                is_stated,
            } = of_files.cloned().unwrap_or(Stored {
                dtype: DataType::F32,
                scale: None,
                offset: None,
                unit: None,
                is_stated: false,
            });
            // A median or mean of integers is no integer, and has no nodata value among them.
            let mosaic = cube.mosaic();
            let keeps_type = mosaic.keeps_type();
            let dtype = match mosaic {
                _ if keeps_type => dtype,
                Mosaic::Count => DataType::F32,
                _ => mosaic.reducer().output(dtype)?,
            };
            if mosaic == Mosaic::Count {
                (scale, offset, unit) = (None, None, None);
            }
            // Cubes of before have no scaling that only a catalogue states, and stay so.
            if is_stated && chosen.is_without_scaling(name) {
                (scale, offset) = (None, None);
            }
            let is_class = cube.classes().get(number) == Some(&true);
            let nodata = match chosen.of(name) {
                Some(nodata) => Some(held(nodata, dtype, name)?),
                None => {
                    let own = band.nodata.filter(|&nodata| dtype.holds(nodata));
                    let own = own.filter(|_| of_files.is_some() && keeps_type);
                    // Physical values drop the files' nodata value; floats without one mark missing pixels by NaN.
                    own.or(dtype.is_float().then_some(Number::NAN))
                }
            };
            bands.push(CubeBand {
                name: name.clone(),
                dtype,
                nodata,
                scale,
                offset,
                unit,
                is_class,
            });
        }
        let whole = |band: &CubeBand| !band.dtype.is_float();
        let nodata: Vec<Option<Number>> = bands
            .iter()
            .zip(cube.bands())
            .map(|(band, of_files)| match whole(band) {
                true => band.nodata,
                false => of_files.nodata,
            })
            .collect();
        let cube = cube.with_nodata(&nodata);
        Ok(Self {
            cube: match chosen.is_chosen() {
                true => cube,
                false => cube.keeping_samples(),
            },
            bands,
        })
    }

    /// Returns the dtype of a part's bands.
    fn dtype(&self, part: &Hyperslab) -> DataType {
        let band = part.bands.first().and_then(|&band| self.bands.get(band));
        band.map_or(DataType::F32, |band| band.dtype)
    }

    async fn read<T: BlockSample>(
        &self,
        part: &Hyperslab,
    ) -> Result<(Vec<Pixels>, Vec<MissingInput>)> {
        let cube = self.cube.part(part.times.clone(), &part.bands)?;
        let (samples, missing_inputs) = cube.samples::<T>(part.window).await?;
        let bands = part.bands.iter();
        let bands: Vec<CubeBand> = bands
            .filter_map(|&band| self.bands.get(band).cloned())
            .collect();
        let split = move || of_bands(samples, &bands);
        Ok((cube.session().cpu(split).await??, missing_inputs))
    }
}

/// Returns (time, y, x) of each band of (time, band, y, x), where NaN is the band's nodata value.
fn of_bands<T: Sample>(samples: Array4<T>, bands: &[CubeBand]) -> Result<Vec<Pixels>> {
    let split = |band: usize, of_band: Array3<T>| {
        let filled = match bands.get(band) {
            Some(band) => with_gaps(of_band, band)?,
            None => of_band,
        };
        Ok(T::wrap(filled))
    };
    if samples.dim().1 == 1 {
        return Ok(vec![split(0, samples.index_axis_move(Axis(1), 0))?]);
    }
    let views = samples.axis_iter(Axis(1)).enumerate();
    views
        .map(|(band, view)| split(band, view.to_owned()))
        .collect()
}

/// Puts a band's nodata value in place of NaN.
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] if a sample has that value: it would be missing.
fn with_gaps<T: Sample>(mut samples: Array3<T>, band: &CubeBand) -> Result<Array3<T>> {
    let gap = nodata_sample::<T>(band.nodata.filter(|_| T::DTYPE.is_float()));
    let Some(gap) = gap else {
        return Ok(samples);
    };
    let is_lost = |sample: &T| !sample.number().is_nan() && !sample.is_data(Some(gap));
    if samples.iter().any(is_lost) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "band {} has samples of {}, which would be missing with that nodata value: choose another one",
                band.name,
                gap.number()
            ),
        ));
    }
    samples.mapv_inplace(|sample| match sample.number().is_nan() {
        true => gap,
        false => sample,
    });
    Ok(samples)
}

#[async_trait::async_trait]
impl Samples for OfCube {
    fn bands(&self) -> &[CubeBand] {
        &self.bands
    }

    fn steps(&self) -> Vec<TimeStep> {
        let steps = self.cube.steps().iter();
        let is_group = self.cube.has_groups();
        steps.map(|step| step_of(step, is_group)).collect()
    }

    fn grid(&self) -> GeoBox {
        self.cube.grid().clone()
    }

    fn made(&self) -> Value {
        self.cube.made()
    }

    fn provenance(&self) -> Value {
        self.cube.provenance()
    }

    async fn open(&self, first: usize) -> Result<()> {
        let bands: Vec<usize> = (0..self.bands.len()).collect();
        let steps = self.cube.steps().len();
        self.cube.part(first..steps, &bands)?.open_files().await;
        Ok(())
    }

    fn files(&self) -> Vec<SourceFile> {
        let steps = self.cube.readers().into_iter().enumerate();
        let of_step = |(number, readers): (usize, Vec<_>)| {
            SourceFile::all(number..number + 1, readers.into_iter())
        };
        steps.flat_map(of_step).collect()
    }

    fn together(&self) -> Together {
        Together::Bands
    }

    fn missing_inputs(&self) -> Option<Vec<MissingInput>> {
        self.cube.allows_holes().then(|| self.cube.known_holes())
    }

    async fn bytes(&self, part: &Hyperslab) -> Result<u64> {
        let cube = self.cube.part(part.times.clone(), &part.bands)?;
        let dtype = self.dtype(part);
        let read = with_block_type!(dtype, T => cube.bytes::<T>(part.window).await)?;
        // The bands are split into copies while the samples that were read are still in memory.
        let apart = match part.bands.len() {
            1 => 0,
            _ => part.len() * dtype.size() as u64,
        };
        Ok(read + apart)
    }

    async fn make(&self, part: &Hyperslab) -> Result<(Vec<Pixels>, Vec<MissingInput>)> {
        with_block_type!(self.dtype(part), T => self.read::<T>(part).await)
    }
}

/// Returns a time step as a cube stores it. The span of a single image is left out where it is an instant.
fn step_of(step: &apply::Step, is_group: bool) -> TimeStep {
    TimeStep {
        time: step.time,
        bounds: Some(step.bounds).filter(|bounds| is_group || !bounds.is_instant()),
        items: step.items.clone(),
    }
}

/// The samples of a result of `apply`.
struct OfResult<O> {
    work: Apply<O>,
    bands: Vec<CubeBand>,
    steps: Vec<TimeStep>,
}

impl<O: Sample + Send + Sync + 'static> OfResult<O> {
    fn new(work: Apply<O>, chosen: &Nodata) -> Result<Self> {
        let cube = work.cube();
        check_grid(cube.grid())?;
        let names = work
            .dated()
            .map_or_else(|| work.names(), |(names, _)| names);
        let names: Vec<String> = names.iter().map(|name| name.replace(':', ".")).collect();
        if names.is_empty() {
            let message =
                "bands without names cannot be written as arrays: set ApplyOptions::with_names";
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        check_names(&names)?;
        let all = cube.steps();
        let steps: Vec<TimeStep> = match (work.dated(), all.first()) {
            (Some((_, steps)), _) => {
                // Periods, where they are not the time steps of the cube.
                let is_group = cube.has_groups() || steps != all;
                steps.iter().map(|step| step_of(step, is_group)).collect()
            }
            (None, Some(first)) => vec![TimeStep {
                time: first.time,
                bounds: all.iter().map(|step| step.bounds).reduce(TimeBounds::and),
                items: all.iter().flat_map(|step| step.items.clone()).collect(),
            }],
            (None, None) => Vec::new(),
        };
        // A result has one nodata value for all bands; in floats it replaces NaN.
        let name = names.first().map_or("", String::as_str);
        let nodata = match chosen.of(name) {
            Some(nodata) => Some(held(nodata, O::DTYPE, name)?),
            None => None,
        };
        let work = work.with_nodata(nodata);
        let nodata = match work.nodata() {
            Some(nodata) => Some(held(nodata, O::DTYPE, name)?),
            None => None,
        };
        let classes = work.class_bands().to_vec();
        let each = steps.len().max(1);
        let bands = names
            .into_iter()
            .enumerate()
            .map(|(number, name)| CubeBand {
                name,
                dtype: O::DTYPE,
                nodata,
                scale: None,
                offset: None,
                unit: None,
                // Codes are codes as floats, too.
                is_class: classes.get(number * each) == Some(&true),
            });
        Ok(Self {
            bands: bands.collect(),
            work,
            steps,
        })
    }

    /// Returns the layers of the result that hold some time steps of a band.
    fn layers(&self, band: usize, times: &Range<usize>) -> Range<usize> {
        let first = band * self.steps.len();
        first + times.start..first + times.end
    }
}

#[async_trait::async_trait]
impl<O: Sample + Send + Sync + 'static> Samples for OfResult<O> {
    fn bands(&self) -> &[CubeBand] {
        &self.bands
    }

    fn steps(&self) -> Vec<TimeStep> {
        self.steps.clone()
    }

    fn grid(&self) -> GeoBox {
        self.work.cube().grid().clone()
    }

    fn made(&self) -> Value {
        self.work.made()
    }

    fn provenance(&self) -> Value {
        self.work.provenance()
    }

    async fn open(&self, _first: usize) -> Result<()> {
        self.work.cube().open_files().await;
        Ok(())
    }

    fn files(&self) -> Vec<SourceFile> {
        // Whatever a time step of the result is called, its samples may be made of all images.
        let readers = self.work.cube().readers().into_iter().flatten();
        SourceFile::all(0..self.steps.len(), readers)
    }

    fn together(&self) -> Together {
        Together::Window
    }

    fn missing_inputs(&self) -> Option<Vec<MissingInput>> {
        let cube = self.work.cube();
        cube.allows_holes().then(|| cube.known_holes())
    }

    async fn bytes(&self, part: &Hyperslab) -> Result<u64> {
        // A result is computed for all bands and time steps of the window, whichever part of it is written.
        let all = Hyperslab {
            bands: (0..self.bands.len()).collect(),
            times: 0..self.steps.len(),
            window: part.window,
        };
        let size = O::DTYPE.size() as u64;
        Ok(self.work.bytes(part.window).await? + (all.len() + part.len()) * size)
    }

    async fn make(&self, part: &Hyperslab) -> Result<(Vec<Pixels>, Vec<MissingInput>)> {
        let made = self.work.block(part.window).await?;
        let layers = made.samples.dim().0;
        let expected = self.bands.len() * self.steps.len();
        if layers != expected {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "block {} has {layers} bands, expected {expected}: {} names of {} dates",
                    part.window,
                    self.bands.len(),
                    self.steps.len()
                ),
            ));
        }
        let bands = part.bands.iter().map(|&band| {
            let layers = self.layers(band, &part.times);
            let samples = made.samples.slice(s![layers, .., ..]).to_owned();
            let described = self.bands.get(band);
            let filled = match described {
                Some(band) => with_gaps(samples, band)?,
                None => samples,
            };
            Ok(O::wrap(filled))
        });
        Ok((bands.collect::<Result<_>>()?, made.missing_inputs))
    }
}
