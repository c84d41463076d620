//! Results in the type that keeps their values, which is known once the files are open: samples of 16 bits stay 16 bits,
//! integers of 32 and 64 bits are not rounded, and what is computed of wide samples is computed in `float64`.

use std::sync::Arc;

use futures::{StreamExt, stream};
use ndarray::{Array3, Axis};
use serde_json::Value;

use super::{
    axes::Step,
    block::{Block, BlockSample},
    cube::{ImageCube, Inner},
    mosaic::first_pixels,
    options::{ApplyOptions, Values},
    reduce::{Geomedian, Real, Reducer, reduce_same, reduced_as},
    report::ApplyReport,
    run::Apply,
    source::Opened,
    time::Grouping,
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{GeoBox, Lattice},
    location::Location,
    raster::{DataType, Number, Raster, Resampling},
};

/// Files that are opened concurrently. Each store limits the requests to its own host.
const OPENS: usize = 64;

/// A computation whose samples are of a type that was chosen when the files' types were known; see
/// [`ImageCube::reduce_typed`].
#[derive(Debug)]
#[must_use = "nothing is computed before a result is requested"]
pub enum TypedApply {
    /// Unsigned, 8 bits.
    U8(Apply<u8>),
    /// Signed, 8 bits.
    I8(Apply<i8>),
    /// Unsigned, 16 bits.
    U16(Apply<u16>),
    /// Signed, 16 bits.
    I16(Apply<i16>),
    /// Unsigned, 32 bits.
    U32(Apply<u32>),
    /// Signed, 32 bits.
    I32(Apply<i32>),
    /// Unsigned, 64 bits.
    U64(Apply<u64>),
    /// Signed, 64 bits.
    I64(Apply<i64>),
    /// Floating point, 32 bits.
    F32(Apply<f32>),
    /// Floating point, 64 bits.
    F64(Apply<f64>),
}

/// Runs `$body` with `$work` the computation, whatever its type.
macro_rules! each {
    ($typed:expr, $work:ident => $body:expr) => {
        match $typed {
            $crate::apply::TypedApply::U8($work) => $body,
            $crate::apply::TypedApply::I8($work) => $body,
            $crate::apply::TypedApply::U16($work) => $body,
            $crate::apply::TypedApply::I16($work) => $body,
            $crate::apply::TypedApply::U32($work) => $body,
            $crate::apply::TypedApply::I32($work) => $body,
            $crate::apply::TypedApply::U64($work) => $body,
            $crate::apply::TypedApply::I64($work) => $body,
            $crate::apply::TypedApply::F32($work) => $body,
            $crate::apply::TypedApply::F64($work) => $body,
        }
    };
}

#[cfg(feature = "zarr")]
pub(crate) use each;

macro_rules! of_each {
    ($($type:ty => $variant:ident),*) => {
        $(impl From<Apply<$type>> for TypedApply {
            fn from(work: Apply<$type>) -> Self {
                Self::$variant(work)
            }
        })*

        impl TypedApply {
            /// Returns the type of the samples.
            pub fn dtype(&self) -> DataType {
                match self {
                    $(Self::$variant(_) => DataType::$variant),*
                }
            }

            /// Runs the computation within each period by itself, as [`Apply::every`].
            ///
            /// # Errors
            ///
            /// As [`Apply::every`].
            pub fn every(self, by: Grouping) -> Result<Self> {
                Ok(match self {
                    $(Self::$variant(work) => Self::$variant(work.every(by)?)),*
                })
            }
        }
    };
}
of_each!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64, i64 => I64, f32 => F32,
    f64 => F64);

impl TypedApply {
    /// Returns what a reader of the result should know, as [`Apply::notes`].
    pub fn notes(&self) -> &[String] {
        each!(self, work => work.notes())
    }

    /// Returns the time steps or periods that the bands are, as [`Apply::steps`].
    pub fn steps(&self) -> Option<&[Step]> {
        each!(self, work => work.steps())
    }

    /// Returns the nodata value of the result, as [`Apply::nodata`].
    pub fn nodata(&self) -> Option<Number> {
        each!(self, work => work.nodata())
    }

    /// Returns the names of the result's bands, as [`Apply::band_names`].
    pub fn band_names(&self) -> &[String] {
        each!(self, work => work.band_names())
    }

    /// Returns where the result comes from, as [`Apply::provenance`].
    pub fn provenance(&self) -> Value {
        each!(self, work => work.provenance())
    }

    /// Returns the side of a block of a COG, as [`Apply::cog_block`].
    ///
    /// # Errors
    ///
    /// As [`Apply::cog_block`].
    #[cfg(feature = "cog")]
    pub async fn cog_block(&self, options: &crate::writer::CogOptions) -> Result<u32> {
        each!(self, work => work.cog_block(options).await)
    }

    /// Computes the complete result in memory, as [`Apply::raster`].
    ///
    /// # Errors
    ///
    /// As [`Apply::raster`].
    pub async fn raster(self) -> Result<(Raster, ApplyReport)> {
        each!(self, work => work.raster().await)
    }

    /// Computes the result into a Cloud Optimized GeoTIFF, as [`Apply::cog`].
    ///
    /// # Errors
    ///
    /// As [`Apply::cog`].
    #[cfg(feature = "cog")]
    pub async fn cog(
        self,
        location: &Location,
        options: &crate::writer::CogOptions,
    ) -> Result<(crate::writer::CogReport, ApplyReport)> {
        each!(self, work => work.cog(location, options).await)
    }
}

/// The type to load, and the nodata value of a result of that type, if it is an integer and has one.
struct Kept {
    dtype: DataType,
    nodata: Option<Number>,
    /// Why the type is not that of the files, or which samples the nodata value stands for.
    note: Option<String>,
}

/// What the files of one band hold.
#[derive(Clone, Debug)]
struct Held {
    dtypes: Vec<DataType>,
    /// The nodata values that their types hold.
    nodata: Vec<Number>,
    /// Whether every file covers the complete grid.
    covers: bool,
}

impl ImageCube {
    /// Reduces the time axis, band by band, as [`reduce`](Self::reduce), without rounding samples: raw samples of one
    /// type keep it where the reducer and the mosaic choose one of them (first, last, min, max); means and the like of
    /// samples of 32 or 64 bits are computed, and returned, in `float64`, all others in `float32`.
    ///
    /// Integers need a nodata value for pixels without data: that of the options, else of the bands. Without one, unless
    /// each file covers the grid and nothing is masked, and where bands differ in type or nodata value, the result is the
    /// smallest float that holds every sample; [`TypedApply::notes`] says so.
    ///
    /// Opens all files, for their types.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for integers of 64 bits that no common type holds, and if the options' nodata value is
    /// not one of the type; [`ErrorKind::Unsupported`] for complex samples.
    pub async fn reduce_typed(
        &self,
        reducer: Reducer,
        options: ApplyOptions,
    ) -> Result<TypedApply> {
        let keeps = matches!(
            reducer,
            Reducer::First | Reducer::Last | Reducer::Min | Reducer::Max
        );
        let kept = self.kept(&options, keeps).await?;
        let options = self.named(options);
        macro_rules! reduced {
            ($type:ty) => {{
                type Wide = <$type as Real>::Wide;
                let (cube, options) = self.with_kept::<$type>(&kept, options, keeps);
                match keeps {
                    true => cube.reduce_as::<$type, $type>(reducer, options).into(),
                    false => cube.reduce_as::<$type, Wide>(reducer, options).into(),
                }
            }};
        }
        let work: TypedApply = match kept.dtype {
            DataType::U8 => reduced!(u8),
            DataType::I8 => reduced!(i8),
            DataType::U16 => reduced!(u16),
            DataType::I16 => reduced!(i16),
            DataType::U32 => reduced!(u32),
            DataType::I32 => reduced!(i32),
            DataType::U64 => reduced!(u64),
            DataType::I64 => reduced!(i64),
            DataType::F64 => reduced!(f64),
            _ => reduced!(f32),
        };
        Ok(work.noted(kept.note.filter(|_| keeps)))
    }

    /// Returns each time step of each band as a band, in the type that [`reduce_typed`](Self::reduce_typed) keeps.
    ///
    /// # Errors
    ///
    /// As [`reduce_typed`](Self::reduce_typed).
    pub async fn layers(&self, options: ApplyOptions) -> Result<TypedApply> {
        let kept = self.kept(&options, true).await?;
        macro_rules! layers {
            ($type:ty) => {{
                let (cube, options) = self.with_kept::<$type>(&kept, options, true);
                cube.as_they_are::<$type>(options).into()
            }};
        }
        let work: TypedApply = match kept.dtype {
            DataType::U8 => layers!(u8),
            DataType::I8 => layers!(i8),
            DataType::U16 => layers!(u16),
            DataType::I16 => layers!(i16),
            DataType::U32 => layers!(u32),
            DataType::I32 => layers!(i32),
            DataType::U64 => layers!(u64),
            DataType::I64 => layers!(i64),
            DataType::F64 => layers!(f64),
            _ => layers!(f32),
        };
        Ok(work.noted(kept.note))
    }

    /// Evaluates formulas as [`express`](Self::express), in `float64` where a file has samples of 32 or 64 bits other
    /// than `float32`, else in `float32`.
    ///
    /// # Errors
    ///
    /// As [`express`](Self::express).
    #[cfg(feature = "expression")]
    pub async fn express_typed(
        &self,
        formulas: &[super::Expression],
        reducer: Option<Reducer>,
        options: ApplyOptions,
    ) -> Result<TypedApply> {
        let held = self.held().await;
        Ok(match float_of(held.iter().flat_map(|held| &held.dtypes)) {
            DataType::F64 => self.express_as::<f64>(formulas, reducer, options)?.into(),
            _ => self.express(formulas, reducer, options)?.into(),
        })
    }

    /// Computes the geometric median over time as [`geomedian`](Self::geomedian), in `float64` where a file has samples of
    /// 32 or 64 bits other than `float32`, else in `float32`.
    pub async fn geomedian_typed(&self, geomedian: Geomedian, options: ApplyOptions) -> TypedApply {
        let held = self.held().await;
        if float_of(held.iter().flat_map(|held| &held.dtypes)) != DataType::F64 {
            return self.geomedian(geomedian, options).into();
        }
        let options = self.named(options);
        let work = self.apply(options, move |block: &Block<f64>| {
            geomedian.of_wide(block.data())
        });
        let work = work.told("geomedian".to_owned());
        work.noted(self.reduced("geomedian")).into()
    }

    /// Returns this cube with other nodata values of its bands.
    pub(crate) fn with_nodata(&self, nodata: &[Option<Number>]) -> Self {
        let all = &self.0;
        let bands = all.bands.iter().zip(nodata).map(|(band, &nodata)| {
            let mut band = band.clone();
            band.nodata = nodata;
            band
        });
        Self(Arc::new(Inner {
            bands: bands.collect(),
            ..Inner::clone(all)
        }))
    }

    /// Returns this cube as one that fails where a file states no nodata value and holds that of its band as a sample: the
    /// sample would be missing.
    #[cfg(feature = "zarr")]
    pub(crate) fn keeping_samples(&self) -> Self {
        Self(Arc::new(Inner {
            keeps_samples: true,
            ..(*self.0).clone()
        }))
    }

    /// Returns a cube whose bands have the kept nodata value, and the options with it.
    fn with_kept<T: Real>(
        &self,
        kept: &Kept,
        mut options: ApplyOptions,
        keeps: bool,
    ) -> (Self, ApplyOptions) {
        if T::DTYPE.is_float() {
            return (self.clone(), options);
        }
        let bands = vec![kept.nodata; self.bands().len()];
        // What is computed of integers is a float, whose missing pixels are NaN unless the options say otherwise.
        if keeps {
            options.nodata = kept.nodata;
        }
        (self.with_nodata(&bands), options)
    }

    /// Opens the files, as far as they can be: reads report the others.
    async fn held(&self) -> Vec<Held> {
        let all = &self.0;
        let mut sources = Vec::new();
        for image in all.images.iter().flatten() {
            for (band, source) in image.bands.iter().enumerate() {
                sources.extend(source.as_deref().map(|source| (band, source)));
            }
        }
        let opening: Vec<_> = sources
            .iter()
            .map(|(_, source)| source.opened(&all.session, &all.grid))
            .collect();
        let opened: Vec<_> = stream::iter(opening).buffered(OPENS).collect().await;
        let none = Held {
            dtypes: Vec::new(),
            nodata: Vec::new(),
            covers: true,
        };
        let mut held = vec![none; all.bands.len()];
        for ((band, _), opened) in sources.into_iter().zip(opened) {
            let Some(held) = held.get_mut(band) else {
                continue;
            };
            match opened {
                Ok(opened) => {
                    let dtype = opened.reader.profile().dtype;
                    if !held.dtypes.contains(&dtype) {
                        held.dtypes.push(dtype);
                    }
                    if let Some(nodata) = opened.nodata.filter(|&nodata| dtype.holds(nodata))
                        && !held.nodata.contains(&nodata)
                    {
                        held.nodata.push(nodata);
                    }
                    held.covers &= covers(opened, &all.grid);
                }
                Err(_) => held.covers = false,
            }
        }
        let whole = |step: &Vec<_>| !step.is_empty();
        let is_whole = all.images.iter().all(whole) && all.missing_inputs.is_empty();
        let is_masked = all.options.mask.is_some() || all.options.clip.is_some();
        for held in &mut held {
            held.covers &= is_whole && !is_masked;
        }
        held
    }

    async fn kept(&self, options: &ApplyOptions, keeps: bool) -> Result<Kept> {
        let held = self.held().await;
        let all = || held.iter().flat_map(|held| &held.dtypes);
        let float = float_of(all());
        let as_float = |note: Option<String>| Kept {
            dtype: float,
            nodata: None,
            note,
        };
        let settings = &self.0.options;
        let Some(&first) = all().next() else {
            return Ok(as_float(None));
        };
        if settings.values == Values::Physical || !settings.mosaic.keeps_type() {
            return Ok(as_float(None));
        }
        if all().any(|&dtype| matches!(dtype, DataType::C64 | DataType::C128)) {
            let message = "complex samples: expected real numbers";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if first.is_float() && all().all(|&dtype| dtype == first) {
            return Ok(as_float(None));
        }
        let is_wide = |dtype: &DataType| matches!(dtype, DataType::U64 | DataType::I64);
        let refused = |why: &str| match keeps && all().any(is_wide) {
            true => Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "{why}, and no float holds integers of 64 bits: expected bands of one type and nodata value"
                ),
            )),
            false => Ok(as_float(Some(format!("{why}: written as {float}")))),
        };
        let sums = |one: &Resampling| *one == Resampling::Sum;
        let of_bands = settings.band_resampling.iter().map(|(_, how)| how);
        if std::iter::once(&settings.resampling)
            .chain(of_bands)
            .any(sums)
        {
            return refused(&format!("sums may not fit {first}"));
        }
        if let Some(other) = all().find(|&&dtype| dtype != first) {
            return refused(&format!("samples are {first} and {other}"));
        }
        let chosen = options.nodata.filter(|_| keeps);
        let of_files = held.iter().find_map(|held| held.nodata.first().copied());
        let nodata = chosen.or(of_files);
        if let Some(chosen) = chosen
            && !first.holds(chosen)
        {
            let message = format!("nodata {chosen} is not a value of {first}");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        for (band, held) in self.bands().iter().zip(&held) {
            let name = &band.name;
            if let Some(own) = held.nodata.iter().find(|own| Some(**own) != nodata) {
                return refused(&match (chosen, nodata) {
                    (Some(chosen), _) => format!(
                        "nodata of files of band {name} is {own}, of the result {chosen}, which may be a sample of theirs"
                    ),
                    (None, Some(other)) => {
                        format!("nodata of files of band {name} is {own}, of others {other}")
                    }
                    (None, None) => format!("files of band {name} have nodata {own}, others none"),
                });
            }
            if held.nodata.is_empty() && chosen.is_none() && !held.covers {
                return refused(&format!(
                    "band {name} is {first} without a nodata value for pixels without data"
                ));
            }
        }
        let of_none = self.bands().iter().zip(&held);
        let of_none = of_none.filter(|(_, held)| held.nodata.is_empty() && !held.dtypes.is_empty());
        let without: Vec<&str> = of_none.map(|(band, _)| band.name.as_str()).collect();
        let note = chosen.filter(|_| !without.is_empty()).map(|chosen| {
            let without = without.join(", ");
            format!("files of {without} state no nodata value: samples that are {chosen} are without data in the result")
        });
        Ok(Kept {
            dtype: first,
            nodata,
            note,
        })
    }

    /// Reduces the time axis in the type of the samples.
    pub(super) fn reduce_as<T, O>(&self, reducer: Reducer, options: ApplyOptions) -> Apply<O>
    where
        T: BlockSample + Real,
        O: Real,
    {
        let nodata = self.0.nodata::<T>();
        let fill = self.0.options.fill;
        let work = self.apply(options, move |block: &Block<T>| {
            let data = block.data();
            let (times, bands, height, width) = data.dim();
            if fill == super::mosaic::Fill::Pixel {
                let first = match reducer {
                    Reducer::First => Some(first_pixels(&data, 0..times, &nodata)),
                    Reducer::Last => Some(first_pixels(&data, (0..times).rev(), &nodata)),
                    _ => None,
                };
                if let Some(first) = first {
                    return reduce_same(first);
                }
            }
            let mut out = Array3::from_elem((bands, height, width), O::of_number(0.0));
            for (band, mut out) in out.axis_iter_mut(Axis(0)).enumerate() {
                let nodata = nodata.get(band).copied().flatten();
                out.assign(&reduced_as::<T, O>(
                    data.index_axis(Axis(1), band),
                    nodata,
                    reducer,
                )?);
            }
            Ok(out)
        });
        let keeps = matches!(
            reducer,
            Reducer::First | Reducer::Last | Reducer::Min | Reducer::Max
        );
        work.told(reducer.to_string())
            .noted(self.reduced_by(reducer))
            .with_classes(self.classes().into_iter().map(|is_class| is_class && keeps))
    }

    /// Copies each time step of each band into a band of the result.
    fn as_they_are<T: BlockSample>(&self, options: ApplyOptions) -> Apply<T> {
        let bands: Vec<String> = self.bands().iter().map(|band| band.name.clone()).collect();
        let work = self.apply(options, |block: &Block<T>| {
            let data = block.data();
            let (times, bands, height, width) = data.dim();
            let mut flat = Array3::from_elem((times * bands, height, width), T::of_number(0.0));
            for (layer, mut out) in flat.outer_iter_mut().enumerate() {
                out.assign(&data.slice(ndarray::s![layer % times, layer / times, .., ..]));
            }
            Ok(flat)
        });
        let steps = self.steps().len();
        let classes = self.classes().into_iter();
        work.with_classes(classes.flat_map(|is_class| std::iter::repeat_n(is_class, steps)))
            .each_date(bands)
            .told("each time step".to_owned())
    }
}

impl TypedApply {
    fn noted(self, note: Option<String>) -> Self {
        each!(self, work => work.noted(note).into())
    }
}

/// Returns the smallest float that holds every sample of some types, but for integers of 64 bits.
fn float_of<'a>(mut dtypes: impl Iterator<Item = &'a DataType>) -> DataType {
    let is_wide = |dtype: &DataType| {
        matches!(
            dtype,
            DataType::U32 | DataType::I32 | DataType::U64 | DataType::I64 | DataType::F64
        )
    };
    match dtypes.any(is_wide) {
        true => DataType::F64,
        false => DataType::F32,
    }
}

/// Returns true if a file surely covers a grid: both axis-aligned in one CRS, the grid within the file.
fn covers(opened: &Opened, grid: &GeoBox) -> bool {
    let Ok(file) = opened.reader.profile().level_geobox(0) else {
        return false;
    };
    let edges = |grid: &GeoBox| {
        let transform = grid.transform.filter(|one| one.is_axis_aligned())?;
        let [x, across, _, y, _, down] = transform.0;
        let (width, height) = (f64::from(grid.size.width), f64::from(grid.size.height));
        let (right, bottom) = (x + across * width, y + down * height);
        Some([x.min(right), y.min(bottom), x.max(right), y.max(bottom)])
    };
    let (Some(inner), Some(outer)) = (edges(grid), edges(&file)) else {
        return false;
    };
    let same_crs = match (&file.crs, &grid.crs) {
        (Some(own), Some(crs)) => own.is_same(crs),
        (own, crs) => own == crs,
    };
    // A map that goes round the globe has each longitude.
    let turn = Lattice::of(&file).ok().and_then(|lattice| lattice.turn());
    let is_round = turn.is_some_and(|turn| i64::from(file.size.width) >= turn);
    same_crs
        && (is_round || inner[0] >= outer[0] && inner[2] <= outer[2])
        && inner[1] >= outer[1]
        && inner[3] <= outer[3]
}
