//! Reads through GDAL.

use std::{
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use gdal::{Dataset, Metadata, raster::RasterBand};
use ndarray::Array3;
use object_store::ObjectStoreExt;

use super::{
    options, raw,
    said::{self, Doing},
    workers::Pool,
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{Crop, Crs, GeoTransform, Size, Window},
    location::Location,
    raster::{DataType, Pixels, Raster, Sample, with_type},
    reader::{Backend, Profile, RasterReader, ReadRequest},
    session::Session,
    store::error as store_error,
};

/// Numbers readers, so that a file opened anew is never answered by an old dataset.
static READERS: AtomicU64 = AtomicU64::new(0);

pub(crate) async fn open(session: &Session, location: &Location) -> Result<Arc<dyn RasterReader>> {
    let pool = Pool::of(session)?;
    let path = path(session, location).await?;
    let id = READERS.fetch_add(1, Ordering::Relaxed);
    let home = pool.home();
    let described = pool
        .call(home, move |worker| describe(worker.dataset(id, &path)?))
        .await;
    let (profile, layout) = match described {
        Ok(described) => described,
        Err(err) => return Err(explained(session, location, err).await),
    };
    Ok(Arc::new(Reader(Arc::new(Inner {
        session: session.clone(),
        location: location.clone(),
        pool,
        id,
        home,
        profile,
        layout,
    }))))
}

pub(crate) async fn translate(
    session: &Session,
    from: &Location,
    to: &Path,
    crop: Option<&Crop>,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<()> {
    let pool = Pool::of(session)?;
    let path = path(session, from).await?;
    match super::translate::translate(&pool, path, to, crop.copied(), progress).await {
        Ok(()) => Ok(()),
        Err(err) => Err(explained(session, from, err).await),
    }
}

pub(crate) fn configure_path(session: &Session, location: &Location) -> Result<()> {
    options::configure(session, location)
}

pub(crate) async fn clear_caches(session: &Session) -> Result<()> {
    let pool = Pool::of(session)?;
    pool.call_each(super::workers::Worker::close_all).await?;
    raw::forget_all_remote();
    Ok(())
}

/// Returns the path GDAL opens now: signed where it must be, its bucket's options set.
async fn path(session: &Session, location: &Location) -> Result<String> {
    let signed = session.stores().signed(location).await?;
    options::configure(session, &signed)?;
    Ok(signed.to_vsi())
}

/// Names the file of an error, and finds the cause where GDAL only says that bytes are missing: a
/// server that refuses one byte explains it. Costs a request, of a read that failed.
async fn explained(session: &Session, location: &Location, err: Error) -> Error {
    let is_unclear = err.kind() == ErrorKind::Corrupt && location.as_local().is_none();
    if is_unclear && let Ok((store, path)) = session.stores().store(location) {
        match store.get_range(&path, 0..1).await {
            Ok(_) => {}
            Err(cause) => return store_error(cause, location),
        }
    }
    err.at(location)
}

/// What a read needs to know that a profile does not say.
#[derive(Clone, Debug)]
struct Layout {
    /// GDAL's type of the samples in memory.
    code: u32,
    /// GDAL's overview for each level from 1 on.
    overviews: Vec<usize>,
}

#[derive(Clone)]
struct Reader(Arc<Inner>);

struct Inner {
    session: Session,
    location: Location,
    pool: Arc<Pool>,
    id: u64,
    home: usize,
    profile: Profile,
    layout: Layout,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gdal")
            .field("location", &self.0.location)
            .field("profile", &self.0.profile)
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.pool.close(self.id);
    }
}

#[async_trait]
impl RasterReader for Reader {
    fn backend(&self) -> Backend {
        Backend::Gdal
    }

    fn location(&self) -> &Location {
        &self.0.location
    }

    fn profile(&self) -> &Profile {
        &self.0.profile
    }

    async fn read(&self, request: &ReadRequest) -> Result<Raster> {
        let inner = &self.0;
        let resolved = request
            .resolve(&inner.profile, inner.session.settings().read_bytes)
            .map_err(|err| err.at(&inner.location))?;
        let path = path(&inner.session, &inner.location).await?;
        let geobox = inner.profile.geobox(resolved.level_size, &resolved.window);
        let (id, level) = (inner.id, request.level);
        let (dtype, layout) = (inner.profile.dtype, inner.layout.clone());
        let pixels = inner
            .pool
            .call(inner.home, move |worker| {
                let dataset = worker.dataset(id, &path)?;
                let part = Part {
                    dataset,
                    overview: level
                        .checked_sub(1)
                        .and_then(|level| layout.overviews.get(level).copied()),
                    window: resolved.window,
                    bands: &resolved.bands,
                    code: layout.code,
                };
                part.read(dtype)
            })
            .await;
        let pixels = match pixels {
            Ok(pixels) => pixels,
            Err(err) => return Err(explained(&inner.session, &inner.location, err).await),
        };
        Ok(Raster {
            pixels,
            geobox,
            nodata: inner.profile.nodata,
        })
    }

    async fn read_many(&self, requests: &[ReadRequest]) -> Result<Vec<Raster>> {
        stream::iter(requests.to_vec())
            .map(|request| async move { self.read(&request).await })
            .buffered(self.0.pool.len().max(1))
            .try_collect()
            .await
    }
}

/// A window of some bands of one level.
struct Part<'a> {
    dataset: &'a Dataset,
    overview: Option<usize>,
    window: Window,
    /// Counted from 0.
    bands: &'a [usize],
    code: u32,
}

impl Part<'_> {
    fn read(&self, dtype: DataType) -> Result<Pixels> {
        with_type!(dtype, T => self.samples::<T>())
    }

    fn samples<T: Sample + Default>(&self) -> Result<Pixels> {
        let (width, height) = (self.window.width as usize, self.window.height as usize);
        let each = width.saturating_mul(height);
        let mut samples = vec![T::default(); each.saturating_mul(self.bands.len())];
        for (&band, samples) in self.bands.iter().zip(samples.chunks_exact_mut(each.max(1))) {
            let band = self
                .dataset
                .rasterband(band + 1)
                .map_err(|_| said::error(Doing::Read))?;
            let band = match self.overview {
                Some(overview) => band
                    .overview(overview)
                    .map_err(|_| said::error(Doing::Read))?,
                None => band,
            };
            raw::read(&band, &self.window, self.code, samples)?;
        }
        Array3::from_shape_vec((self.bands.len(), height, width), samples)
            .map(T::wrap)
            .map_err(|err| {
                Error::new(ErrorKind::InvalidInput, "samples that fill no window").with_source(err)
            })
    }
}

/// Returns what a dataset says of itself.
fn describe(dataset: &Dataset) -> Result<(Profile, Layout)> {
    let unsupported = |message: String| Error::new(ErrorKind::Unsupported, message);
    let count = dataset.raster_count();
    if count == 0 {
        return Err(unsupported(
            "it has no image of its own, only subdatasets".to_owned(),
        ));
    }
    let band = dataset
        .rasterband(1)
        .map_err(|_| said::error(Doing::Open))?;
    let (dtype, code) = type_of(&band)?;
    for number in 2..=count {
        let other = dataset
            .rasterband(number)
            .map_err(|_| said::error(Doing::Open))?;
        if type_of(&other)? != (dtype, code) {
            return Err(unsupported(format!(
                "band {number} has another data type than band 1"
            )));
        }
    }
    let size = size_of_band(&band)?;
    let mut overviews = (0..usize::try_from(band.overview_count().unwrap_or(0)).unwrap_or(0))
        .filter_map(|at| {
            let overview = band.overview(at).ok()?;
            Some((size_of_band(&overview).ok()?, at))
        })
        .collect::<Vec<_>>();
    overviews.sort_by_key(|(size, _)| std::cmp::Reverse((size.width, size.height)));
    let (tile_width, tile_height) = band.block_size();
    let structure = |name: &str| dataset.metadata_item(name, "IMAGE_STRUCTURE");
    let profile = Profile {
        size,
        count,
        dtype,
        nodata: nodata(&band, dtype),
        crs: crs(dataset),
        transform: raw::transform(dataset).map(GeoTransform),
        tile: Size {
            width: u32::try_from(tile_width).unwrap_or(size.width),
            height: u32::try_from(tile_height).unwrap_or(size.height),
        },
        compression: structure("COMPRESSION").map(|name| match name.as_str() {
            "YCbCr JPEG" => "JPEG".to_owned(),
            _ => name,
        }),
        predictor: structure("PREDICTOR")
            .and_then(|text| text.parse().ok())
            .filter(|&predictor| predictor > 1),
        overviews: overviews.iter().map(|(size, _)| *size).collect(),
        scale: band.scale(),
        offset: band.offset(),
    };
    let layout = Layout {
        code,
        overviews: overviews.into_iter().map(|(_, at)| at).collect(),
    };
    Ok((profile, layout))
}

fn size_of_band(band: &RasterBand<'_>) -> Result<Size> {
    let (width, height) = band.size();
    match (u32::try_from(width), u32::try_from(height)) {
        (Ok(width), Ok(height)) => Ok(Size { width, height }),
        _ => Err(Error::new(
            ErrorKind::Unsupported,
            "an image of more than 2^32 pixels a side",
        )),
    }
}

/// Returns our type of a band's samples, and GDAL's code for it in memory.
fn type_of(band: &RasterBand<'_>) -> Result<(DataType, u32)> {
    let (code, name) = raw::type_of(band);
    // Before GDAL 3.7 signed bytes are bytes with a note.
    let is_signed = || {
        band.metadata_item("PIXELTYPE", "IMAGE_STRUCTURE")
            .is_some_and(|kind| kind == "SIGNEDBYTE")
    };
    let dtype = match name.as_str() {
        "Byte" | "UInt8" if is_signed() => DataType::I8,
        "Byte" | "UInt8" => DataType::U8,
        "Int8" => DataType::I8,
        "UInt16" => DataType::U16,
        "Int16" => DataType::I16,
        "UInt32" => DataType::U32,
        "Int32" => DataType::I32,
        "UInt64" => DataType::U64,
        "Int64" => DataType::I64,
        "Float32" => DataType::F32,
        "Float64" => DataType::F64,
        // Half floats widen without loss.
        "Float16" => return Ok((DataType::F32, gdal_sys::GDALDataType::GDT_Float32)),
        other => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("samples of type {other} are not read; complex numbers are left out"),
            ));
        }
    };
    Ok((dtype, code))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a nodata value past 2^53 has no exact f64; profiles state f64"
)]
fn nodata(band: &RasterBand<'_>, dtype: DataType) -> Option<f64> {
    match dtype {
        DataType::U64 => band.no_data_value_u64().map(|value| value as f64),
        DataType::I64 => band.no_data_value_i64().map(|value| value as f64),
        _ => band.no_data_value(),
    }
}

fn crs(dataset: &Dataset) -> Option<Crs> {
    let reference = dataset.spatial_ref().ok()?;
    let is_epsg = reference
        .auth_name()
        .is_some_and(|name| name.eq_ignore_ascii_case("EPSG"));
    if is_epsg && let Ok(code) = reference.auth_code().map(u32::try_from) {
        return code.ok().map(Crs::Epsg);
    }
    reference
        .to_wkt()
        .ok()
        .filter(|wkt| !wkt.is_empty())
        .map(Crs::Wkt)
}
