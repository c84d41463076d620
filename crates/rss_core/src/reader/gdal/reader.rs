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
    bounds,
    diagnostics::{self, Doing},
    options, raw, vsi,
    workers::Pool,
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{Crop, Crs, GeoTransform, Size, Window},
    location::Location,
    raster::{DataType, Number, Pixels, Raster, Sample, Sparse, with_type},
    reader::{
        Backend, BandProfile, ColorInterp, Masking, Profile, RasterReader, ReadRequest, Resolved,
        mask,
        profile::{nodata_of, note_of_gcps, note_of_heights},
    },
    session::{GdalReads, Session},
    store::error as store_error,
};

/// Numbers readers, so that a file that is opened again never gets an old cached dataset.
static READERS: AtomicU64 = AtomicU64::new(0);

pub(crate) async fn open(session: &Session, location: &Location) -> Result<Arc<dyn RasterReader>> {
    let pool = Pool::of(session)?;
    let id = READERS.fetch_add(1, Ordering::Relaxed);
    let way = Way::of(session, location, id);
    let path = way.path(session, location).await?;
    let home = pool.home();
    let failures = way.failures();
    let described = pool
        .call(home, move |worker| {
            let most = worker.most_block_bytes;
            checked(failures.as_deref(), || {
                describe(worker.dataset(id, &path)?, most)
            })
        })
        .await;
    let (profile, layout) = match described {
        Ok(described) => described,
        Err(err) => return Err(way.explain(session, location, err).await),
    };
    Ok(Arc::new(Reader(Arc::new(Inner {
        session: session.clone(),
        location: location.clone(),
        way,
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
    let way = Way::of(session, from, READERS.fetch_add(1, Ordering::Relaxed));
    let path = way.path(session, from).await?;
    let failures = way.failures();
    let before = failures.as_ref().map_or(0, |failures| failures.count());
    let done = super::translate::translate(&pool, path, to, crop.copied(), progress).await;
    let failed = failures.and_then(|failures| failures.since(before));
    match done {
        Ok(()) if failed.is_some() => {
            // It may hold pixels that GDAL filled in.
            let _ = std::fs::remove_file(to);
            failed.map_or(Ok(()), Err)
        }
        Ok(()) => Ok(()),
        Err(err) => Err(way.explain(session, from, err).await),
    }
}

pub(crate) fn configure_path(session: &Session, location: &Location) -> Result<()> {
    options::configure(session, location)
}

/// Returns a path that GDAL reads through the session's stores.
pub(crate) fn hand_out(session: &Session, location: &Location) -> Result<String> {
    Ok(vsi::hand_out(session, location))
}

pub(crate) async fn clear_caches(session: &Session) -> Result<()> {
    let pool = Pool::of(session)?;
    pool.call_each(super::workers::Worker::close_all).await?;
    raw::forget_all_remote();
    vsi::forget(session);
    Ok(())
}

/// The path by which GDAL reads a file.
#[derive(Debug)]
enum Way {
    /// Through GDAL's own file systems.
    Vsi,
    /// Through the session's stores, by a path of `/vsirss/`.
    Stores(vsi::Loan),
}

impl Way {
    fn of(session: &Session, location: &Location, id: u64) -> Self {
        match session.settings().gdal_reads {
            GdalReads::Stores if location.as_local().is_none() => {
                Self::Stores(vsi::lend(session, location, id))
            }
            _ => Self::Vsi,
        }
    }

    /// Returns the failed reads of the file, where they are known.
    fn failures(&self) -> Option<Arc<vsi::Failures>> {
        match self {
            Self::Vsi => None,
            Self::Stores(loan) => Some(loan.failures()),
        }
    }

    /// Returns the path for GDAL. For GDAL's own file systems the URL is signed if it must be, and the
    /// bucket's options are set.
    async fn path(&self, session: &Session, location: &Location) -> Result<String> {
        match self {
            Self::Vsi => {
                let signed = session.stores().signed(location).await?;
                options::configure(session, &signed)?;
                Ok(signed.to_vsi())
            }
            Self::Stores(loan) => Ok(loan.path()),
        }
    }

    /// Adds the location to an error, and finds the cause where GDAL only reports missing bytes: a request
    /// of one byte shows whether the server refuses it. Costs one request, and only for a failed read. Of
    /// reads through the session's stores the error is already exact.
    async fn explain(&self, session: &Session, location: &Location, err: Error) -> Error {
        let is_unclear = matches!(self, Self::Vsi)
            && err.kind() == ErrorKind::Corrupt
            && location.as_local().is_none();
        if is_unclear && let Ok((store, path)) = session.stores().store(location) {
            match store.get_range(&path, 0..1).await {
                Ok(_) => {}
                Err(cause) => return store_error(cause, location),
            }
        }
        err.at(location)
    }
}

/// Runs calls of GDAL; their answer is none where a read of the file failed meanwhile, whatever GDAL made of it.
fn checked<T>(failures: Option<&vsi::Failures>, calls: impl FnOnce() -> Result<T>) -> Result<T> {
    let before = failures.map_or(0, vsi::Failures::count);
    let done = calls();
    match failures.and_then(|failures| failures.since(before)) {
        // Ours is the cause of what GDAL says, if it says anything.
        Some(err) => Err(err),
        None => done,
    }
}

/// Properties of a dataset that a read needs and a profile does not have.
#[derive(Clone, Debug)]
struct BlockLayout {
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
    way: Way,
    pool: Arc<Pool>,
    id: u64,
    home: usize,
    profile: Profile,
    layout: BlockLayout,
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
        let geobox = inner.profile.geobox(resolved.level_size, &resolved.window);
        let dtype = inner.profile.dtype;
        let read = move |part: LevelWindow<'_>| Ok((part.read(dtype)?, part.sparse()?));
        let (pixels, sparse) = self.part(request.level, resolved, read).await?;
        Ok(Raster {
            pixels,
            geobox,
            nodata: inner.profile.nodata,
            sparse,
        })
    }

    async fn read_mask(&self, request: &ReadRequest) -> Result<Raster> {
        let (profile, most) = (&self.0.profile, self.0.session.settings().read_bytes);
        let stored = async {
            let resolved = request.resolve(profile, most)?;
            let geobox = profile.geobox(resolved.level_size, &resolved.window);
            let read = |part: LevelWindow<'_>| part.mask();
            Ok(Raster {
                pixels: self.part(request.level, resolved, read).await?,
                geobox,
                nodata: None,
                sparse: Vec::new(),
            })
        };
        let read = mask::read(self, request, most, stored).await;
        read.map_err(|err| err.at(&self.0.location))
    }

    async fn read_many(&self, requests: &[ReadRequest]) -> Result<Vec<Raster>> {
        stream::iter(requests.to_vec())
            .map(|request| async move { self.read(&request).await })
            .buffered(self.0.pool.len().max(1))
            .try_collect()
            .await
    }
}

impl Reader {
    /// Runs `read` on the thread where the dataset is open.
    async fn part<R: Send + 'static>(
        &self,
        level: usize,
        resolved: Resolved,
        read: impl FnOnce(LevelWindow<'_>) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let inner = &self.0;
        let path = inner.way.path(&inner.session, &inner.location).await?;
        let (id, layout) = (inner.id, inner.layout.clone());
        let failures = inner.way.failures();
        let done = inner
            .pool
            .call(inner.home, move |worker| {
                let done = checked(failures.as_deref(), || {
                    let most_block_bytes = worker.most_block_bytes;
                    let dataset = worker.dataset(id, &path)?;
                    let overview = level.checked_sub(1);
                    read(LevelWindow {
                        dataset,
                        overview: overview.and_then(|level| layout.overviews.get(level).copied()),
                        window: resolved.window,
                        bands: &resolved.bands,
                        code: layout.code,
                        most_block_bytes,
                    })
                });
                if done.is_err() {
                    // The dataset may hold what it could not read as if it were not there.
                    worker.close(id);
                }
                done
            })
            .await;
        match done {
            Ok(done) => Ok(done),
            Err(err) => {
                let (session, location) = (&inner.session, &inner.location);
                Err(inner.way.explain(session, location, err).await)
            }
        }
    }
}

/// A window of some bands of one level.
struct LevelWindow<'a> {
    dataset: &'a Dataset,
    overview: Option<usize>,
    window: Window,
    /// Counted from 0.
    bands: &'a [usize],
    code: u32,
    most_block_bytes: u64,
}

impl LevelWindow<'_> {
    fn read(&self, dtype: DataType) -> Result<Pixels> {
        with_type!(dtype, T => self.samples::<T>())
    }

    /// Returns a band, counted from 0, of this level.
    fn band(&self, band: usize) -> Result<RasterBand<'_>> {
        let wrong = |_| diagnostics::error(Doing::Read);
        let band = self.dataset.rasterband(band + 1).map_err(wrong)?;
        let band = match self.overview {
            Some(overview) => band.overview(overview).map_err(wrong)?,
            None => band,
        };
        bounds::check_block(&band, self.most_block_bytes)?;
        Ok(band)
    }

    /// Reads the mask that the file stores.
    fn mask(&self) -> Result<Pixels> {
        let (width, height) = (self.window.width as usize, self.window.height as usize);
        let mut samples = vec![0_u8; width.saturating_mul(height)];
        let band = self.band(self.bands.first().copied().unwrap_or(0))?;
        let mask = band
            .open_mask_band()
            .map_err(|_| diagnostics::error(Doing::Read))?;
        bounds::check_block(&mask, self.most_block_bytes)?;
        let code = gdal_sys::GDALDataType::GDT_Byte;
        raw::read(&mask, &self.window, code, &mut samples)?;
        // GDAL scales a mask of 1 bit to 0 and 255 if all bands share it, and not if each has its own.
        if mask.metadata_item("NBITS", "IMAGE_STRUCTURE").as_deref() == Some("1") {
            let visible = |sample: &mut u8| *sample = if *sample == 0 { 0 } else { u8::MAX };
            samples.iter_mut().for_each(visible);
        }
        Array3::from_shape_vec((1, height, width), samples)
            .map(u8::wrap)
            .map_err(|err| {
                Error::new(ErrorKind::InvalidInput, "the window does not fit memory")
                    .with_source(err)
            })
    }

    /// Lists the blocks of the window that the file does not store.
    fn sparse(&self) -> Result<Vec<Sparse>> {
        let mut found = Vec::new();
        for (n, &band) in self.bands.iter().enumerate() {
            let band = self.band(band)?;
            // One call for the window; its blocks are queried only if some may be sparse.
            if raw::is_stored(&band, &self.window) {
                continue;
            }
            let (width, height) = band.block_size();
            let (width, height) = (width.max(1), height.max(1));
            let starts = |start: u32, length: u32, side: usize| {
                let side = u32::try_from(side).unwrap_or(u32::MAX);
                let end = start.saturating_add(length);
                let first = start / side * side;
                (first..end).step_by(side as usize).map(move |at| {
                    let from = at.max(start);
                    (from, at.saturating_add(side).min(end) - from)
                })
            };
            for (row, height) in starts(self.window.row, self.window.height, height) {
                for (col, width) in starts(self.window.col, self.window.width, width) {
                    let block = Window {
                        col,
                        row,
                        width,
                        height,
                    };
                    if raw::is_empty(&band, &block) {
                        let window = Window {
                            col: col - self.window.col,
                            row: row - self.window.row,
                            ..block
                        };
                        found.push(Sparse { band: n, window });
                    }
                }
            }
        }
        Ok(found)
    }

    fn samples<T: Sample + Default>(&self) -> Result<Pixels> {
        let (width, height) = (self.window.width as usize, self.window.height as usize);
        let each = width.saturating_mul(height);
        let mut samples = vec![T::default(); each.saturating_mul(self.bands.len())];
        for (&band, samples) in self.bands.iter().zip(samples.chunks_exact_mut(each.max(1))) {
            raw::read(&self.band(band)?, &self.window, self.code, samples)?;
        }
        Array3::from_shape_vec((self.bands.len(), height, width), samples)
            .map(T::wrap)
            .map_err(|err| {
                Error::new(ErrorKind::InvalidInput, "the window does not fit memory")
                    .with_source(err)
            })
    }
}

/// Returns the properties of a dataset.
fn describe(dataset: &Dataset, most_block_bytes: u64) -> Result<(Profile, BlockLayout)> {
    let unsupported = |message: String| Error::new(ErrorKind::Unsupported, message);
    let count = dataset.raster_count();
    if count == 0 {
        return Err(unsupported(
            "a container of subdatasets, expected a raster".to_owned(),
        ));
    }
    let band = dataset
        .rasterband(1)
        .map_err(|_| diagnostics::error(Doing::Open))?;
    bounds::check_block(&band, most_block_bytes)?;
    let (dtype, code) = type_of(&band)?;
    for number in 2..=count {
        let other = dataset
            .rasterband(number)
            .map_err(|_| diagnostics::error(Doing::Open))?;
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
    // GDAL lists overviews in the order of the file; levels are sorted, largest first.
    overviews.sort_by_key(|(size, _)| std::cmp::Reverse((size.width, size.height)));
    let (tile_width, tile_height) = band.block_size();
    let structure = |name: &str| dataset.metadata_item(name, "IMAGE_STRUCTURE");
    let mut notes = Vec::new();
    let nodata = nodata_of(dtype, stated_nodata(&band, dtype), &mut notes);
    let crs = crs(dataset, &mut notes);
    let gcps = dataset.gcps().len();
    notes.extend(note_of_gcps(gcps));
    let profile = Profile {
        size,
        count,
        dtype,
        nodata,
        crs,
        transform: raw::transform(dataset).map(GeoTransform),
        tile: Size {
            width: u32::try_from(tile_width).unwrap_or(size.width),
            height: u32::try_from(tile_height).unwrap_or(size.height),
        },
        compression: structure("COMPRESSION"),
        predictor: structure("PREDICTOR")
            .and_then(|text| text.parse().ok())
            .filter(|&predictor| predictor > 1),
        overviews: overviews.iter().map(|(size, _)| *size).collect(),
        masking: masking(&band, nodata),
        bands: bands(dataset, count)?,
        palette: palette(&band),
        pixel_is_point: dataset
            .metadata_item("AREA_OR_POINT", "")
            .is_some_and(|kind| kind.eq_ignore_ascii_case("point")),
        metadata: dataset
            .metadata_domain("")
            .unwrap_or_default()
            .iter()
            .filter_map(|pair| pair.split_once('='))
            // AREA_OR_POINT is `pixel_is_point`, and the COG reader does not return baseline tags.
            .filter(|(name, _)| *name != "AREA_OR_POINT" && !name.starts_with("TIFFTAG_"))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        gcps,
        notes,
    };
    let layout = BlockLayout {
        code,
        overviews: overviews.into_iter().map(|(_, at)| at).collect(),
    };
    Ok((profile, layout))
}

/// Returns the properties of each band.
fn bands(dataset: &Dataset, count: usize) -> Result<Vec<BandProfile>> {
    (1..=count)
        .map(|number| {
            let band = dataset
                .rasterband(number)
                .map_err(|_| diagnostics::error(Doing::Open))?;
            let stated = |text: String| (!text.is_empty()).then_some(text);
            Ok(BandProfile {
                color: ColorInterp::of_name(&raw::color_name(&band)).unwrap_or_default(),
                description: band.description().ok().and_then(stated),
                scale: band.scale(),
                offset: band.offset(),
                unit: stated(band.unit()),
            })
        })
        .collect()
}

/// Returns the source of a file's mask; all bands of a file share it.
fn masking(band: &RasterBand<'_>, nodata: Option<Number>) -> Masking {
    let Ok(flags) = band.mask_flags() else {
        return Masking::None;
    };
    match () {
        () if flags.is_alpha() => Masking::Alpha,
        // GDAL before 3.7 has no Int8 and reads signed bytes as `Byte`, which cannot hold a negative nodata
        // value: its flag does not count.
        () if (flags.is_nodata() || flags.is_all_valid()) && nodata.is_some() => Masking::Nodata,
        () if flags.is_nodata() || flags.is_all_valid() => Masking::None,
        () => Masking::Internal,
    }
}

fn palette(band: &RasterBand<'_>) -> Option<Vec<[u8; 3]>> {
    let table = band.color_table()?;
    let byte = |value: i16| u8::try_from(value).unwrap_or(0);
    let colors = (0..table.entry_count()).map(|at| {
        let entry = table.entry_as_rgb(at);
        entry.map_or([0; 3], |rgb| [byte(rgb.r), byte(rgb.g), byte(rgb.b)])
    });
    Some(colors.collect())
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
    // GDAL before 3.7 has no Int8: signed bytes are `Byte` with the metadata item PIXELTYPE.
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
        "CFloat32" | "CInt16" | "CInt32" => {
            return Ok((DataType::C64, gdal_sys::GDALDataType::GDT_CFloat32));
        }
        "CFloat64" => DataType::C128,
        other => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("samples of type {other} are not supported"),
            ));
        }
    };
    Ok((dtype, code))
}

fn stated_nodata(band: &RasterBand<'_>, dtype: DataType) -> Option<Number> {
    match dtype {
        DataType::U64 => band.no_data_value_u64().map(Number::from),
        DataType::I64 => band.no_data_value_i64().map(Number::from),
        _ => band.no_data_value().map(Number::from),
    }
}

fn crs(dataset: &Dataset, notes: &mut Vec<String>) -> Option<Crs> {
    let mut reference = dataset.spatial_ref().ok()?;
    if reference.is_compound() || reference.axes_count() > 2 {
        let name = reference.name();
        raw::without_heights(&mut reference);
        notes.push(note_of_heights(name.as_deref()));
    }
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
        .map(Crs::of_wkt)
}
