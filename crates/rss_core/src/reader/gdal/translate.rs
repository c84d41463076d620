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
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] if there are none, or they lie at both ends of a map of the globe.
fn window(dataset: &Dataset, crop: &Crop, [width, height]: [usize; 2]) -> Result<[u64; 4]> {
    let invalid = |message: String| Error::new(ErrorKind::InvalidInput, message);
    let parts = in_crs_of(dataset, crop)?;
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
    // In pixels: a crop along a pixel's edge must not include the neighbour for a rounding error.
    const EPSILON: f64 = 1e-6;
    let of_part = |[left, bottom, right, top]: [f64; 4]| {
        let corners = [
            pixel(left, top),
            pixel(right, top),
            pixel(left, bottom),
            pixel(right, bottom),
        ];
        let span = |axis: usize, length: usize| {
            let values = corners.map(|corner| corner[axis]);
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let start = (least + EPSILON).floor().max(0.0);
            let end = (most - EPSILON).ceil().min(length as f64);
            (end > start).then_some([start as u64, end as u64])
        };
        span(0, width).zip(span(1, height))
    };
    let mut found: Vec<_> = parts.into_iter().filter_map(of_part).collect();
    found.sort_unstable();
    let [a, b, c, d] = crop.bounds;
    let all = found.iter().copied().try_fold(None, |all, (cols, rows)| {
        let Some((known, over)): Option<([u64; 2], [u64; 2])> = all else {
            return Ok(Some((cols, rows)));
        };
        // Parts that touch are one: those of a file across longitude 180.
        match cols[0] <= known[1] && rows[0] <= over[1] && over[0] <= rows[1] {
            true => Ok(Some((
                [known[0], known[1].max(cols[1])],
                [over[0].min(rows[0]), over[1].max(rows[1])],
            ))),
            false => Err(invalid(format!(
                "the parts of crop {a},{b},{c},{d} lie at both ends of the file: crop to each by itself"
            ))),
        }
    })?;
    match all {
        Some(([col, right], [row, bottom])) => Ok([col, row, right - col, bottom - row]),
        None => Err(invalid(format!(
            "crop {a},{b},{c},{d} is outside the file's bounding box"
        ))),
    }
}

/// Returns the edges of the parts of a crop in the CRS of the file, on each side of longitude 180. Of a file in degrees each
/// part is also tried a turn to the west and to the east.
fn in_crs_of(dataset: &Dataset, crop: &Crop) -> Result<Vec<[f64; 4]>> {
    let invalid = |message: String| Error::new(ErrorKind::InvalidInput, message);
    let reference = |found: gdal::errors::Result<SpatialRef>| {
        found.map(|mut reference| {
            // Bounds are x before y, whatever axis order the CRS has (EPSG:4326: latitude first).
            reference.set_axis_mapping_strategy(AxisMappingStrategy::TraditionalGisOrder);
            reference
        })
    };
    let to = reference(dataset.spatial_ref());
    let of_file = to.as_ref().is_ok_and(SpatialRef::is_geographic);
    let [left, bottom, right, top] = crop.bounds;
    let turns = |parts: Vec<[f64; 4]>| match of_file {
        true => {
            let turned = parts.into_iter().flat_map(|[left, bottom, right, top]| {
                // Bounds of a transformation cross longitude 180 where the left one is the larger.
                let right = if right < left { right + 360.0 } else { right };
                [0.0, -360.0, 360.0].map(|turn| [left + turn, bottom, right + turn, top])
            });
            turned.collect()
        }
        false => parts,
    };
    let Some(epsg) = crop.epsg else {
        if right < left && !of_file {
            return Err(invalid(format!(
                "crop {left},{bottom},{right},{top} is empty; the order is xmin, ymin, xmax, ymax"
            )));
        }
        return Ok(turns(vec![crop.bounds]));
    };
    let from = reference(SpatialRef::from_epsg(epsg))
        .map_err(|_| invalid(format!("EPSG:{epsg} is not known")))?;
    let to = to.map_err(|_| invalid("a file without a CRS cannot be cropped in one".to_owned()))?;
    let crosses = from.is_geographic() && (right < left || left < -180.0 || right > 180.0);
    let parts = match crosses {
        true => {
            let right = if right < left { right + 360.0 } else { right };
            let edge = if left < -180.0 { -180.0 } else { 180.0 };
            // One that lies beyond as a whole has one part.
            match left < edge && edge < right {
                true => vec![[left, bottom, edge, top], [edge, bottom, right, top]],
                false => vec![[left, bottom, right, top]],
            }
        }
        false => vec![crop.bounds],
    };
    let on_globe = |[left, bottom, right, top]: [f64; 4]| {
        let middle = f64::midpoint(left, right);
        let turn = if from.is_geographic() {
            (middle / 360.0).round() * -360.0
        } else {
            0.0
        };
        [left + turn, bottom, right + turn, top]
    };
    let by = CoordTransform::new(&from, &to).ok();
    let moved = parts
        .into_iter()
        .map(|part| raw::transform_bounds(by.as_ref()?, on_globe(part)));
    let moved: Option<Vec<[f64; 4]>> = moved.collect();
    let moved = moved.ok_or_else(|| {
        invalid(format!(
            "cannot transform the crop from EPSG:{epsg} to the file's CRS"
        ))
    })?;
    Ok(turns(moved))
}

#[cfg(test)]
mod tests {
    use gdal::DriverManager;

    use super::*;

    /// A file of 1 degree or 20 km a pixel.
    fn file(epsg: u32, [left, top]: [f64; 2], size: [usize; 2]) -> Dataset {
        let driver = DriverManager::get_driver_by_name("MEM").unwrap();
        let mut file = driver
            .create_with_band_type::<u8, _>("", size[0], size[1], 1)
            .unwrap();
        let reference = SpatialRef::from_epsg(epsg).unwrap();
        let side = if reference.is_geographic() {
            1.0
        } else {
            20_000.0
        };
        file.set_spatial_ref(&reference).unwrap();
        file.set_geo_transform(&[left, side, 0.0, top, 0.0, -side])
            .unwrap();
        file
    }

    #[test]
    fn a_crop_across_longitude_180_finds_its_part_of_a_file() {
        let fiji = [177.0, -19.0, -178.0, -16.0];
        let of = |file: &Dataset, bounds: [f64; 4], epsg: Option<u32>| {
            let crop = Crop::new(bounds, epsg).unwrap();
            let (width, height) = file.raster_size();
            window(file, &crop, [width, height]).map_err(|err| err.message().to_owned())
        };
        let east = file(4326, [170.0, 0.0], [10, 30]);
        let west = file(4326, [-180.0, 0.0], [10, 30]);
        let pacific = file(4326, [0.0, 0.0], [360, 30]);
        let globe = file(4326, [-180.0, 0.0], [360, 30]);
        for epsg in [None, Some(4326)] {
            for bounds in [
                fiji,
                [177.0, -19.0, 182.0, -16.0],
                [-183.0, -19.0, -178.0, -16.0],
            ] {
                assert_eq!(of(&east, bounds, epsg), Ok([7, 16, 3, 3]));
                assert_eq!(of(&west, bounds, epsg), Ok([0, 16, 2, 3]));
                assert_eq!(of(&pacific, bounds, epsg), Ok([177, 16, 5, 3]));
                let err = of(&globe, bounds, epsg).unwrap_err();
                assert!(
                    err.ends_with("lie at both ends of the file: crop to each by itself"),
                    "{err}"
                );
            }
            // West of Greenwich, and across it.
            let of_pacific = of(&pacific, [-20.0, -19.0, -10.0, -16.0], epsg);
            assert_eq!(of_pacific, Ok([340, 16, 10, 3]));
            assert!(of(&pacific, [-2.0, -19.0, 2.0, -16.0], epsg).is_err());
            let whole = [-180.0, -30.0, 180.0, 0.0];
            assert_eq!(of(&pacific, whole, epsg), Ok([0, 0, 360, 30]));
            assert_eq!(of(&globe, whole, epsg), Ok([0, 0, 360, 30]));
        }
        // Zone 1 ends at 180 and goes on: 177 to 182 east are both sides of its edge. Then a map that does not.
        let zone = file(32701, [-200_000.0, 8_300_000.0], [60, 30]);
        let [col, row, width, height] = of(&zone, fiji, Some(4326)).unwrap();
        assert!(
            width >= 24 && height >= 16 && width < 40,
            "{col} {row} {width} {height}"
        );
        let half = 20_037_508.342_789_244;
        let mercator = file(3857, [-half, 0.0], [2004, 120]);
        assert!(
            of(&mercator, fiji, Some(4326))
                .unwrap_err()
                .contains("both ends")
        );
        assert!(
            of(&zone, [100.0, 0.0, 50.0, 10.0], None)
                .unwrap_err()
                .contains("is empty")
        );
    }
}
