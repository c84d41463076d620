//! `gdal_translate` in this process: a file or a crop of it becomes a tiled, compressed GeoTIFF.

use std::{
    fs,
    path::Path,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use gdal::{
    Dataset, Metadata,
    spatial_ref::{AxisMappingStrategy, CoordTransform, SpatialRef},
};
use tokio::sync::watch;

use super::{
    bounds::{self, Directories},
    raw,
    workers::{Pool, open},
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::Crop,
};

const TILE: usize = 512;
/// Threads that compress one file; several files are translated at once.
const THREADS_PER_FILE: usize = 2;

/// Cancels the work when the caller's future is dropped.
struct Cancel(Arc<AtomicBool>);

impl Drop for Cancel {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Translates the file at the VSI path `from` to the local file `to`. On failure and when the
/// future is dropped nothing is left at `to`.
pub(super) async fn translate(
    pool: &Pool,
    from: String,
    to: &Path,
    crop: Option<Crop>,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<()> {
    let target = to.to_path_buf();
    let stop = Arc::new(AtomicBool::new(false));
    let _cancel = Cancel(Arc::clone(&stop));
    let (sender, mut receiver) = watch::channel(0.0);
    let work = pool.call(pool.home(), move |worker| {
        let most = worker.most_block_bytes;
        let name = target
            .to_str()
            .ok_or_else(|| Error::new(ErrorKind::InvalidInput, "a path that is not UTF-8"))?;
        let done = (|| {
            let dataset = open(&from, most, Directories::First)?;
            let arguments = arguments(&dataset, crop.as_ref(), most)?;
            raw::translate(&dataset, name, &arguments, &mut |part| {
                // Fails if the caller's future was dropped; then `stop` is set, too.
                let _ = sender.send(part);
                !stop.load(Ordering::Relaxed)
            })
        })();
        if done.is_err() {
            // Fails if the file was not created yet.
            let _ = fs::remove_file(&target);
        }
        done
    });
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            Ok(()) = receiver.changed() => progress(*receiver.borrow_and_update()),
        }
    }
}

/// Returns the arguments of `gdal_translate`, which copies all they do not name: nodata, scale, offset,
/// metadata, colours.
fn arguments(dataset: &Dataset, crop: Option<&Crop>, most_bytes: u64) -> Result<Vec<String>> {
    let band = dataset
        .rasterband(1)
        .map_err(|_| Error::new(ErrorKind::Corrupt, "it has no image"))?;
    bounds::check_block(&band, most_bytes)?;
    let structure = |name: &str| dataset.metadata_item(name, "IMAGE_STRUCTURE");
    let (width, height) = dataset.raster_size();
    let (tile_width, tile_height) = band.block_size();
    let is_tiled = tile_width < width && tile_width % 16 == 0 && tile_height % 16 == 0;
    let (tile_width, tile_height) = if is_tiled {
        (tile_width, tile_height)
    } else {
        (TILE, TILE)
    };
    // A lossless compression of the source stays; a lossy one would lose once more.
    let compression = structure("COMPRESSION")
        .filter(|name| matches!(name.as_str(), "DEFLATE" | "LZW" | "ZSTD"))
        .unwrap_or_else(|| "DEFLATE".to_owned());
    let (_, dtype) = raw::type_of(&band);
    // Samples of an odd number of bits (NBITS): predictors need 8, 16, 32 or 64.
    let is_odd = band.metadata_item("NBITS", "IMAGE_STRUCTURE").is_some();
    let predictor = match dtype.as_str() {
        _ if is_odd => None,
        "Float32" | "Float64" => Some(3),
        "Byte" | "Int8" | "UInt16" | "Int16" | "UInt32" | "Int32" => Some(2),
        _ => None,
    };
    let mut arguments: Vec<String> = ["-of", "GTiff"].map(str::to_owned).to_vec();
    let mut create = |name: &str, value: &str| {
        arguments.push("-co".to_owned());
        arguments.push(format!("{name}={value}"));
    };
    create("TILED", "YES");
    create("BLOCKXSIZE", &tile_width.to_string());
    create("BLOCKYSIZE", &tile_height.to_string());
    create("COMPRESS", &compression);
    if let Some(predictor) = predictor {
        create("PREDICTOR", &predictor.to_string());
    }
    // Tiles of very many bands would be as large as what is refused to be read.
    let block = raw::block(&band);
    let bytes = [tile_width, tile_height, dataset.raster_count()]
        .iter()
        .fold(block.sample_bytes, |bytes, &n| {
            bytes.saturating_mul(n as u64)
        });
    if bytes > most_bytes {
        create("INTERLEAVE", "BAND");
    } else if let Some(interleave) = structure("INTERLEAVE") {
        create("INTERLEAVE", &interleave);
    }
    create("BIGTIFF", "IF_SAFER");
    create("NUM_THREADS", &THREADS_PER_FILE.to_string());
    if let Some(crop) = crop {
        let [col, row, width, height] = window(dataset, crop, [width, height])?;
        arguments.push("-srcwin".to_owned());
        arguments.extend([col, row, width, height].map(|n| n.to_string()));
    }
    Ok(arguments)
}

/// Returns the pixels that a crop covers, in part or whole: column, row, width, height.
fn window(dataset: &Dataset, crop: &Crop, [width, height]: [usize; 2]) -> Result<[u64; 4]> {
    let invalid = |message: String| Error::new(ErrorKind::InvalidInput, message);
    let [left, bottom, right, top] = in_crs_of(dataset, crop)?;
    let g = raw::transform(dataset)
        .ok_or_else(|| invalid("a file without a transform cannot be cropped".to_owned()))?;
    let determinant = g[1] * g[5] - g[2] * g[4];
    if determinant == 0.0 || !determinant.is_finite() {
        return Err(invalid(
            "a file whose transform has no inverse cannot be cropped".to_owned(),
        ));
    }
    let pixel = |x: f64, y: f64| {
        let (x, y) = (x - g[0], y - g[3]);
        [
            (x * g[5] - y * g[2]) / determinant,
            (y * g[1] - x * g[4]) / determinant,
        ]
    };
    let corners = [
        pixel(left, top),
        pixel(right, top),
        pixel(left, bottom),
        pixel(right, bottom),
    ];
    // In pixels: a crop along a pixel's edge must not include the neighbour for a rounding error.
    const EPSILON: f64 = 1e-6;
    let span = |axis: usize, length: usize| {
        let values = corners.map(|corner| corner[axis]);
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let start = (least + EPSILON).floor().max(0.0);
        let end = (most - EPSILON).ceil().min(length as f64);
        (end > start).then_some((start as u64, (end - start) as u64))
    };
    match (span(0, width), span(1, height)) {
        (Some((col, width)), Some((row, height))) => Ok([col, row, width, height]),
        _ => {
            let [a, b, c, d] = crop.bounds;
            Err(invalid(format!(
                "crop {a},{b},{c},{d} is outside the file's bounding box"
            )))
        }
    }
}

/// Returns the edges of a crop in the CRS of the file.
fn in_crs_of(dataset: &Dataset, crop: &Crop) -> Result<[f64; 4]> {
    let Some(epsg) = crop.epsg else {
        return Ok(crop.bounds);
    };
    let invalid = |message: String| Error::new(ErrorKind::InvalidInput, message);
    let reference = |found: gdal::errors::Result<SpatialRef>| {
        found.map(|mut reference| {
            // Bounds are x before y, whatever axis order the CRS has (EPSG:4326: latitude first).
            reference.set_axis_mapping_strategy(AxisMappingStrategy::TraditionalGisOrder);
            reference
        })
    };
    let from = reference(SpatialRef::from_epsg(epsg))
        .map_err(|_| invalid(format!("EPSG:{epsg} is not known")))?;
    let to = reference(dataset.spatial_ref())
        .map_err(|_| invalid("a file without a CRS cannot be cropped in one".to_owned()))?;
    CoordTransform::new(&from, &to)
        .ok()
        .and_then(|by| raw::transform_bounds(&by, crop.bounds))
        .ok_or_else(|| {
            invalid(format!(
                "cannot transform the crop from EPSG:{epsg} to the file's CRS"
            ))
        })
}
