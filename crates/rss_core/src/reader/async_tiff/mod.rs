//! The crate [async-tiff](https://docs.rs/async-tiff) as a backend, feature `async-tiff`: for comparison with the COG
//! reader.
//!
//! A thin layer: headers are read through the crate's read-ahead cache, a window's tiles through one `fetch_tiles`,
//! and its decoders run on the session's CPU pool. Headers on which the crate would abort, loop or return wrong
//! pixels are refused before it parses them ([`header`]); its panics are caught. Strips, planar files, masks, packed
//! bits and half floats are not supported, and scale, offset, metadata and CRSs without an EPSG code are not read.

mod header;

use std::{
    any::Any,
    collections::BTreeMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use ::async_tiff::{
    Array, ImageFileDirectory, TypedArray,
    decoder::DecoderRegistry,
    error::AsyncTiffError,
    reader::ObjectReader,
    tags::{
        Compression, ExtraSamples, PhotometricInterpretation as Photometric, PlanarConfiguration,
        Predictor, SampleFormat,
    },
};
use async_trait::async_trait;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use ndarray::Array3;
use rayon::prelude::*;

use super::{
    Backend, BandProfile, ColorInterp, Masking, Profile, RasterReader, ReadRequest, Resolved,
    cog::{
        self,
        samples::{Value, fill},
    },
    mask,
    profile::nodata_of,
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{Crs, GeoTransform, Size, TileIndex, Window},
    location::Location,
    raster::{Canvas, DataType, Number, Raster, Sample, Slot, Sparse, Wanted, with_type},
    session::Session,
    store::error as store_error,
};

/// The limit of the decoded bytes of a tile, and of its compressed bytes.
const MOST_TILE_BYTES: u64 = 512 << 20;
/// Concurrent reads of one `read_many`.
const READS_AT_ONCE: usize = 16;
/// GeoTIFF's code for "user-defined".
const USER_DEFINED: u16 = 32_767;
/// `GTRasterTypeGeoKey` of coordinates of pixel centres.
const PIXEL_IS_POINT: u16 = 2;

pub(super) async fn open(session: &Session, location: &Location) -> Result<Arc<dyn RasterReader>> {
    let (store, path) = session.stores().store(location)?;
    let reader = ObjectReader::new(store, path);
    let images = guarded(location, header::read(&reader)).await?;
    let opened = File::new(session, location, reader, images);
    Ok(Arc::new(opened.map_err(|err| err.at(location))?))
}

/// One open file.
struct File {
    session: Session,
    location: Location,
    reader: ObjectReader,
    decoders: Arc<DecoderRegistry>,
    /// Full resolution, then its overviews.
    levels: Vec<Arc<ImageFileDirectory>>,
    profile: Profile,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("location", &self.location)
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}

impl File {
    fn new(
        session: &Session,
        location: &Location,
        reader: ObjectReader,
        images: Vec<ImageFileDirectory>,
    ) -> Result<Self> {
        let decoders = Arc::<DecoderRegistry>::default();
        let mut images = images.into_iter();
        let full = images
            .next()
            .ok_or_else(|| Error::new(ErrorKind::Corrupt, "it has no image"))?;
        check(&full, &decoders)?;
        let mut levels = vec![Arc::new(full)];
        for image in images {
            // Reduced resolution, and no mask.
            if image.new_subfile_type() != Some(1) {
                continue;
            }
            check(&image, &decoders)?;
            levels.push(Arc::new(image));
        }
        levels[1..].sort_by_key(|image| std::cmp::Reverse(image.image_width()));
        let profile = profile(&levels)?;
        Ok(Self {
            session: session.clone(),
            location: location.clone(),
            reader,
            decoders,
            levels,
            profile,
        })
    }

    async fn samples<T: Value>(
        &self,
        level: usize,
        resolved: &Resolved,
    ) -> Result<(Array3<T>, Vec<Sparse>)> {
        let image = &self.levels[level];
        let grid = TileGrid::new(image, resolved.window)?;
        let bands = resolved.bands.len();
        let slots = grid.tiles().flat_map(|tile| {
            (0..bands).map(move |band| Wanted {
                band,
                window: grid.part(tile),
            })
        });
        let canvas = Canvas::<T>::new(bands, resolved.window)?.in_large_pages();
        let (rest, slots) = canvas.split(&Vec::from_iter(slots))?;
        let mut slots = slots.into_iter();
        let (mut stored, mut targets, mut sparse) = (Vec::new(), Vec::new(), Vec::new());
        // The crate fetches all tiles of a window before it decodes one, and tiles may share their bytes.
        let mut left = self.session.settings().read_bytes;
        for tile in grid.tiles() {
            let mut target = Vec::from_iter(slots.by_ref().take(bands));
            let bytes = grid.byte_count(image, tile)?;
            if bytes > 0 {
                left = left.checked_sub(bytes).ok_or_else(|| {
                    let most = self.session.settings().read_bytes;
                    unsupported(&format!("windows of more than {most} compressed bytes"))
                        .at(&self.location)
                })?;
                stored.push((tile.col as usize, tile.row as usize));
                targets.push((tile, target));
                continue;
            }
            let part = grid.part(tile);
            let window = Window {
                col: part.col - resolved.window.col,
                row: part.row - resolved.window.row,
                ..part
            };
            for (band, slot) in target.iter_mut().enumerate() {
                slot.fill(fill(self.profile.nodata));
                sparse.push(Sparse { band, window });
            }
        }
        // Only stored tiles are requested; the sparse ones are filled above.
        let fetch = async { Ok(image.fetch_tiles(&stored, &self.reader).await?) };
        let tiles = guarded(&self.location, fetch).await?;
        let (decoders, bands) = (Arc::clone(&self.decoders), resolved.bands.clone());
        let decode = move || {
            let tiles = tiles.into_par_iter().zip(targets);
            tiles.try_for_each(|(tile, (index, target))| {
                let array = tile.decode(&decoders).map_err(|err| crate_error(&err))?;
                grid.copy(&array, index, &bands, target)
            })
        };
        let decoded = self.session.cpu(move || {
            catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|panic| Err(panicked(&*panic)))
        });
        decoded.await?.map_err(|err| err.at(&self.location))?;
        Ok((rest.join()?, sparse))
    }
}

#[async_trait]
impl RasterReader for File {
    fn backend(&self) -> Backend {
        Backend::AsyncTiff
    }

    fn location(&self) -> &Location {
        &self.location
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn read(&self, request: &ReadRequest) -> Result<Raster> {
        let resolved = request
            .resolve(&self.profile, self.session.settings().read_bytes)
            .map_err(|err| err.at(&self.location))?;
        let (pixels, sparse) = with_type!(self.profile.dtype, T => {
            let (samples, sparse) = self.samples::<T>(request.level, &resolved).await?;
            (Sample::wrap(samples), sparse)
        });
        Ok(Raster {
            pixels,
            geobox: self.profile.geobox(resolved.level_size, &resolved.window),
            nodata: self.profile.nodata,
            sparse,
        })
    }

    async fn read_mask(&self, request: &ReadRequest) -> Result<Raster> {
        let stored = async { Err(unsupported("masks that a file stores")) };
        let most = self.session.settings().read_bytes;
        let read = mask::read(self, request, most, stored).await;
        read.map_err(|err| err.at(&self.location))
    }

    async fn read_many(&self, requests: &[ReadRequest]) -> Result<Vec<Raster>> {
        stream::iter(requests.to_vec())
            .map(|request| async move { self.read(&request).await })
            .buffered(READS_AT_ONCE)
            .try_collect()
            .await
    }
}

/// The tiles of a window of an image.
#[derive(Clone, Copy)]
struct TileGrid {
    window: Window,
    tile: Size,
    across: u32,
}

impl TileGrid {
    fn new(image: &ImageFileDirectory, window: Window) -> Result<Self> {
        let tile = tile_size(image)?;
        Ok(Self {
            window,
            tile,
            across: image.image_width().div_ceil(tile.width),
        })
    }

    /// Returns the tiles row by row, the order in which the crate returns them.
    fn tiles(self) -> impl Iterator<Item = TileIndex> {
        let Window {
            col,
            row,
            width,
            height,
        } = self.window;
        let cols = col / self.tile.width..(col + width).div_ceil(self.tile.width);
        let rows = row / self.tile.height..(row + height).div_ceil(self.tile.height);
        rows.flat_map(move |row| cols.clone().map(move |col| TileIndex { col, row }))
    }

    /// Returns the byte count of a tile in the file; 0 for a sparse one.
    fn byte_count(self, image: &ImageFileDirectory, tile: TileIndex) -> Result<u64> {
        let number = tile.row as usize * self.across as usize + tile.col as usize;
        let counts = image.tile_byte_counts().unwrap_or_default();
        let offsets = image.tile_offsets().unwrap_or_default();
        let (Some(&bytes), Some(&offset)) = (counts.get(number), offsets.get(number)) else {
            let message = format!("tile {},{} has no entry in its table", tile.col, tile.row);
            return Err(Error::new(ErrorKind::Corrupt, message));
        };
        // A sparse tile has both 0. With one of them the crate would fetch a range that is no tile.
        if (offset == 0) != (bytes == 0) || offset.checked_add(bytes).is_none() {
            return Err(unsupported(&format!(
                "tiles of {bytes} bytes at offset {offset}"
            )));
        }
        if bytes > MOST_TILE_BYTES {
            return Err(unsupported("compressed tiles past 512 MiB"));
        }
        Ok(bytes)
    }

    /// Returns the intersection of the window and a tile, in pixels of the image.
    fn part(self, tile: TileIndex) -> Window {
        let clip = |tile: u32, side: u32, start: u32, length: u32| {
            let from = (tile * side).max(start);
            (
                from,
                (tile * side).saturating_add(side).min(start + length) - from,
            )
        };
        let window = self.window;
        let (col, width) = clip(tile.col, self.tile.width, window.col, window.width);
        let (row, height) = clip(tile.row, self.tile.height, window.row, window.height);
        Window {
            col,
            row,
            width,
            height,
        }
    }

    /// Copies the window's pixels of a decoded tile into a slot for each band. The crate clips tiles to the image.
    fn copy<T: Value>(
        self,
        array: &Array,
        tile: TileIndex,
        bands: &[usize],
        mut slots: Vec<Slot<T>>,
    ) -> Result<()> {
        let corrupt = |what: &str| Error::new(ErrorKind::Corrupt, what);
        let [height, width, count] = array.shape();
        let samples = samples_of::<T>(array.data())
            .filter(|samples| samples.len() == height * width * count)
            .ok_or_else(|| corrupt("a tile of another type"))?;
        let part = self.part(tile);
        let col = (part.col - tile.col * self.tile.width) as usize;
        let top = (part.row - tile.row * self.tile.height) as usize;
        if top + part.height as usize > height || col + part.width as usize > width {
            return Err(corrupt("a tile is too small"));
        }
        for (&band, slot) in bands.iter().zip(&mut slots) {
            if band >= count {
                return Err(corrupt("a tile has too few bands"));
            }
            for row in 0..part.height as usize {
                let Some(out) = slot.row(row) else { break };
                let start = ((top + row) * width + col) * count;
                match count {
                    1 => out.copy_from_slice(&samples[start..start + out.len()]),
                    _ => {
                        let from = samples[start + band..].iter().step_by(count);
                        for (out, sample) in out.iter_mut().zip(from) {
                            *out = *sample;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the samples of a decoded tile, if they are of this type.
fn samples_of<T: Value>(data: &TypedArray) -> Option<&[T]> {
    let samples: &dyn Any = match data {
        TypedArray::Bool(samples) => samples,
        TypedArray::UInt8(samples) => samples,
        TypedArray::UInt16(samples) => samples,
        TypedArray::UInt32(samples) => samples,
        TypedArray::UInt64(samples) => samples,
        TypedArray::Int8(samples) => samples,
        TypedArray::Int16(samples) => samples,
        TypedArray::Int32(samples) => samples,
        TypedArray::Int64(samples) => samples,
        TypedArray::Float32(samples) => samples,
        TypedArray::Float64(samples) => samples,
    };
    samples.downcast_ref::<Vec<T>>().map(Vec::as_slice)
}

/// Checks that the crate reads an image, and returns the right pixels for it.
fn check(image: &ImageFileDirectory, decoders: &DecoderRegistry) -> Result<()> {
    let tile = tile_size(image)?;
    let dtype = dtype(image)?;
    if image.planar_configuration() != PlanarConfiguration::Chunky {
        return Err(unsupported("planar files"));
    }
    if !decoders.as_ref().contains_key(&image.compression()) {
        let message = format!("the compression {:?}", image.compression());
        return Err(unsupported(&message));
    }
    let is_plain = match image.photometric_interpretation() {
        Photometric::BlackIsZero | Photometric::RGB | Photometric::RGBPalette => true,
        Photometric::YCbCr => image.compression() == Compression::ModernJPEG,
        _ => false,
    };
    if !is_plain {
        let message = format!("samples that are {:?}", image.photometric_interpretation());
        return Err(unsupported(&message));
    }
    let bytes = u64::from(tile.width)
        .saturating_mul(u64::from(tile.height))
        .saturating_mul(u64::from(image.samples_per_pixel()))
        .saturating_mul(dtype.size() as u64);
    if bytes > MOST_TILE_BYTES {
        return Err(unsupported("tiles past 512 MiB"));
    }
    Ok(())
}

fn tile_size(image: &ImageFileDirectory) -> Result<Size> {
    match (image.tile_width(), image.tile_height()) {
        (Some(width), Some(height)) if width > 0 && height > 0 => Ok(Size { width, height }),
        _ => Err(unsupported("files without tiles")),
    }
}

fn dtype(image: &ImageFileDirectory) -> Result<DataType> {
    let (bits, formats) = (image.bits_per_sample(), image.sample_format());
    // One type for all bands: the crate decodes a tile to an array of one type.
    let one_of = || Some((*formats.first()?, *bits.first()?));
    let is_one = formats.windows(2).all(|pair| pair[0] == pair[1])
        && bits.windows(2).all(|pair| pair[0] == pair[1]);
    Ok(match one_of().filter(|_| is_one) {
        Some((SampleFormat::Uint, 8)) => DataType::U8,
        Some((SampleFormat::Uint, 16)) => DataType::U16,
        Some((SampleFormat::Uint, 32)) => DataType::U32,
        Some((SampleFormat::Uint, 64)) => DataType::U64,
        Some((SampleFormat::Int, 8)) => DataType::I8,
        Some((SampleFormat::Int, 16)) => DataType::I16,
        Some((SampleFormat::Int, 32)) => DataType::I32,
        Some((SampleFormat::Int, 64)) => DataType::I64,
        Some((SampleFormat::Float, 32)) => DataType::F32,
        Some((SampleFormat::Float, 64)) => DataType::F64,
        _ => {
            return Err(unsupported(&format!(
                "samples of {bits:?} bits, {formats:?}"
            )));
        }
    })
}

fn profile(levels: &[Arc<ImageFileDirectory>]) -> Result<Profile> {
    let full = &levels[0];
    let dtype = dtype(full)?;
    let size = |image: &ImageFileDirectory| Size {
        width: image.image_width(),
        height: image.image_height(),
    };
    let bands = bands(full);
    let nodata = full
        .gdal_nodata()
        .and_then(|text| text.trim_matches(['\0', ' ']).parse::<Number>().ok());
    let mut notes = Vec::new();
    let nodata = nodata_of(dtype, nodata, &mut notes);
    let keys = full.geo_key_directory();
    let is_point = keys.is_some_and(|keys| keys.raster_type == Some(PIXEL_IS_POINT));
    Ok(Profile {
        size: size(full),
        count: bands.len(),
        dtype,
        nodata,
        crs: keys
            .and_then(|keys| keys.epsg_code())
            .filter(|&code| code != USER_DEFINED && code != 0)
            .map(|code| Crs::Epsg(u32::from(code)))
            .and_then(|crs| with_unit_of(crs, keys?)),
        transform: transform(full, is_point),
        tile: tile_size(full)?,
        compression: compression(full.compression()),
        predictor: match full.predictor() {
            Some(Predictor::Horizontal) => Some(2),
            Some(Predictor::FloatingPoint) => Some(3),
            _ => None,
        },
        overviews: levels[1..].iter().map(|image| size(image)).collect(),
        masking: Masking::of(false, nodata, dtype, &bands),
        bands,
        palette: None,
        pixel_is_point: is_point,
        metadata: BTreeMap::new(),
        gcps: 0,
        notes,
    })
}

fn bands(image: &ImageFileDirectory) -> Vec<BandProfile> {
    let extra = image.extra_samples().unwrap_or_default();
    let count = usize::from(image.samples_per_pixel());
    let colors = count.saturating_sub(extra.len());
    let rgb = [ColorInterp::Red, ColorInterp::Green, ColorInterp::Blue];
    let color = |band: usize| match image.photometric_interpretation() {
        Photometric::RGB | Photometric::YCbCr if band < colors => {
            rgb.get(band).copied().unwrap_or_default()
        }
        Photometric::RGBPalette if band == 0 => ColorInterp::Palette,
        Photometric::BlackIsZero if band == 0 => ColorInterp::Gray,
        _ => match band.checked_sub(colors).and_then(|index| extra.get(index)) {
            Some(ExtraSamples::AssociatedAlpha | ExtraSamples::UnassociatedAlpha) => {
                ColorInterp::Alpha
            }
            _ => ColorInterp::Undefined,
        },
    };
    (0..count)
        .map(|band| BandProfile {
            color: color(band),
            ..BandProfile::default()
        })
        .collect()
}

/// Returns the CRS of a code in the unit of length that the keys state, which may differ from the code's; see
/// [`super::cog`]. None where the definition of the code is not known.
fn with_unit_of(crs: Crs, keys: &async_tiff::geo::GeoKeyDirectory) -> Option<Crs> {
    let stated = keys.citation.as_deref().and_then(cog::unit_of_citation);
    let of_code = || match keys.proj_linear_units? {
        USER_DEFINED => Some(("unnamed".to_owned(), keys.proj_linear_unit_size?)),
        code => cog::unit_of_code(u64::from(code)),
    };
    match (stated.or_else(of_code), crs.linear_unit()) {
        (Some((name, metres)), Some(_)) => crs.with_linear_unit(&name, metres),
        _ => Some(crs),
    }
}

fn transform(image: &ImageFileDirectory, is_point: bool) -> Option<GeoTransform> {
    let [x, a, b, y, c, d] = match (
        image.model_pixel_scale(),
        image.model_tiepoint(),
        image.model_transformation(),
    ) {
        (Some(&[across, down, ..]), Some(&[col, row, _, x, y, ..]), _) => {
            [x - col * across, across, 0.0, y + row * down, 0.0, -down]
        }
        (_, _, Some(&[a, b, _, x, c, d, _, y, ..])) => [x, a, b, y, c, d],
        _ => return None,
    };
    // The tie point of `PixelIsPoint` is of a pixel's centre; a geotransform is of its corner.
    let half = if is_point { 0.5 } else { 0.0 };
    Some(GeoTransform([
        x - half * (a + b),
        a,
        b,
        y - half * (c + d),
        c,
        d,
    ]))
}

/// Returns GDAL's name.
fn compression(compression: Compression) -> Option<String> {
    let name = match compression {
        Compression::None => return None,
        Compression::Deflate | Compression::OldDeflate => "DEFLATE",
        Compression::LZW => "LZW",
        Compression::ModernJPEG => "JPEG",
        Compression::ZSTD => "ZSTD",
        other => return Some(format!("{other:?}").to_ascii_uppercase()),
    };
    Some(name.to_owned())
}

/// Runs a call of the crate, and turns its errors and panics into ours.
async fn guarded<T>(
    location: &Location,
    work: impl Future<Output = Result<T, Failure>> + Send,
) -> Result<T> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(Failure::Refused(err))) => Err(err.at(location)),
        Ok(Err(Failure::Crate(AsyncTiffError::ObjectStore(err)))) => {
            Err(store_error(err, location))
        }
        Ok(Err(Failure::Crate(err))) => Err(crate_error(&err).at(location)),
        Err(panic) => Err(panicked(&*panic).at(location)),
    }
}

/// Why a header or tiles could not be read.
enum Failure {
    /// It was refused here.
    Refused(Error),
    /// The crate failed.
    Crate(AsyncTiffError),
}

impl From<AsyncTiffError> for Failure {
    fn from(err: AsyncTiffError) -> Self {
        Self::Crate(err)
    }
}

impl From<Error> for Failure {
    fn from(err: Error) -> Self {
        Self::Refused(err)
    }
}

fn crate_error(err: &AsyncTiffError) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("async-tiff cannot read it: {err}"),
    )
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    Error::new(ErrorKind::Corrupt, format!("async-tiff panicked: {text}"))
}

fn unsupported(what: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("the backend async-tiff does not read {what}"),
    )
}
