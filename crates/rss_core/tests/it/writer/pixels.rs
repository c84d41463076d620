//! Every type, compression and predictor: GDAL and the COG reader read the pixels that were written, and
//! overviews that are what a plain program makes.

use std::path::Path;

use ndarray::Array3;
use rss_core::{
    Backend, DataType, Pixels, ReadRequest, Resampling, Session,
    writer::{CogOptions, Compression, Overviews, Predictor},
};

use super::{NODATA, local, raster, session, structure};

/// Overviews by the book: all that a pixel is made of, as numbers.
fn reference(level: &Array3<f64>, dtype: DataType, resampling: Resampling) -> Array3<f64> {
    let (bands, height, width) = level.dim();
    let shape = (bands, height.div_ceil(2), width.div_ceil(2));
    Array3::from_shape_fn(shape, |(band, row, col)| {
        let mut four = Vec::new();
        for (y, x) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            four.extend(level.get((band, row * 2 + y, col * 2 + x)).copied());
        }
        if resampling == Resampling::Nearest {
            return four[0];
        }
        four.retain(|&one| one != NODATA);
        if four.is_empty() {
            return NODATA;
        }
        match resampling {
            Resampling::Mode => {
                let times = |one: f64| four.iter().filter(|&&other| other == one).count();
                let most = four.iter().map(|&one| times(one)).max().unwrap();
                four.iter()
                    .copied()
                    .find(|&one| times(one) == most)
                    .unwrap()
            }
            Resampling::Min => four.iter().copied().fold(f64::INFINITY, f64::min),
            Resampling::Max => four.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            _ => {
                let mean = four.iter().sum::<f64>() / four.len() as f64;
                let mean = match dtype {
                    DataType::F32 => f64::from(mean as f32),
                    DataType::F64 => mean,
                    _ => (mean + 0.5).floor(),
                };
                // One that is nodata by chance goes up, as gdaladdo lets it.
                match dtype {
                    _ if mean != NODATA => mean,
                    DataType::F32 => f64::from((NODATA as f32).next_up()),
                    DataType::F64 => NODATA.next_up(),
                    _ => NODATA + 1.0,
                }
            }
        }
    })
}

/// Compares levels. The last digits of a sum of doubles depend on the order.
fn is_same(found: &Array3<f64>, expected: &Array3<f64>, dtype: DataType) -> bool {
    let slack = if dtype == DataType::F64 { 1e-15 } else { 0.0 };
    let is_close = |(a, b): (&f64, &f64)| (a - b).abs() <= 4.0 * slack * b.abs();
    found.dim() == expected.dim() && found.iter().zip(expected).all(is_close)
}

fn numbers(pixels: &Pixels) -> Array3<f64> {
    let [bands, height, width] = pixels.shape();
    Array3::from_shape_vec((bands, height, width), pixels.to_f64()).unwrap()
}

/// Reads all of a level by GDAL.
#[cfg(feature = "gdal")]
fn by_gdal(path: &Path, level: usize, dtype: DataType) -> Array3<f64> {
    let file = gdal::Dataset::open(path).unwrap();
    let bands = (1..=file.raster_count()).map(|band| {
        let mut band = file.rasterband(band).unwrap();
        if let Some(overview) = level.checked_sub(1) {
            band = band.overview(overview).unwrap();
        }
        let size = band.size();
        let read = band.read_as::<f64>((0, 0), size, size, None).unwrap();
        let read = Array3::from_shape_vec((1, size.1, size.0), read.data().to_vec()).unwrap();
        match dtype {
            // Older than 3.7 it knows bytes without a sign only.
            DataType::I8 => read.mapv(|one| if one > 127.0 { one - 256.0 } else { one }),
            _ => read,
        }
    });
    let bands: Vec<_> = bands.collect();
    let views: Vec<_> = bands.iter().map(|band| band.view()).collect();
    ndarray::concatenate(ndarray::Axis(0), &views).unwrap()
}

/// Writes an image, and compares all that is read of it.
fn check(
    session: &Session,
    path: &Path,
    (dtype, bands, width, height): (DataType, usize, u32, u32),
    options: &CogOptions,
) {
    let fail = |err: rss_core::Error| {
        format!("{err} of {dtype} x {bands}, {width} x {height}, {options:?}")
    };
    let what = format!("{dtype} x {bands}, {width} x {height}, {options:?}");
    let raster = raster(dtype, bands, width, height);
    let report = session
        .save_cog(&local(path), &raster, options)
        .map_err(fail)
        .unwrap();
    structure::check(&std::fs::read(path).unwrap(), &report);
    let file = session
        .open(&local(path), Backend::Cog)
        .map_err(fail)
        .unwrap();
    let whole = file.read(&ReadRequest::new()).map_err(fail).unwrap();
    assert!(whole.pixels == raster.pixels, "{what}");
    assert_eq!(whole.nodata, raster.nodata);
    assert_eq!(whole.geobox, raster.geobox);
    let mut level = numbers(&raster.pixels);
    for overview in 0..=report.overviews.len() {
        if overview > 0 {
            level = reference(&level, dtype, options.resampling);
        }
        let read = file
            .read(&ReadRequest::new().with_level(overview))
            .map_err(fail)
            .unwrap();
        let read = numbers(&read.pixels);
        assert!(is_same(&read, &level, dtype), "{what}, level {overview}");
        #[cfg(feature = "gdal")]
        assert!(
            by_gdal(path, overview, dtype) == read,
            "GDAL, {what}, level {overview}"
        );
    }
}

/// Runs cases on a few threads.
fn each<T: Sync>(cases: &[T], check: impl Fn(&Session, &Path, &T) + Sync) {
    let threads = 4;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let check = &check;
            scope.spawn(move || {
                let dir = tempfile::tempdir().unwrap();
                let session = session();
                for (number, case) in cases.iter().enumerate().skip(thread).step_by(threads) {
                    // GDAL may keep a file that it has read under a name.
                    let path = dir.path().join(format!("{number}.tif"));
                    check(&session, &path, case);
                    std::fs::remove_file(&path).unwrap();
                }
            });
        }
    });
}

const REAL: [DataType; 10] = [
    DataType::U8,
    DataType::I8,
    DataType::U16,
    DataType::I16,
    DataType::U32,
    DataType::I32,
    DataType::U64,
    DataType::I64,
    DataType::F32,
    DataType::F64,
];

const COMPRESSIONS: [Compression; 4] = [
    Compression::None,
    Compression::Deflate(6),
    Compression::Zstd(9),
    Compression::Lzw,
];

fn predictors(dtype: DataType, compression: Compression) -> Vec<Predictor> {
    match (compression, dtype) {
        (Compression::None, _) => vec![Predictor::Auto],
        (_, DataType::F32 | DataType::F64) => vec![Predictor::None, Predictor::Float],
        _ => vec![Predictor::None, Predictor::Horizontal],
    }
}

#[test]
fn every_type_and_compression_is_read_as_it_was_written() {
    let mut cases = Vec::new();
    for dtype in REAL {
        for compression in COMPRESSIONS {
            for predictor in predictors(dtype, compression) {
                let options = CogOptions::new()
                    .with_compression(compression)
                    .with_predictor(predictor)
                    .with_tile(48);
                for (width, height) in [(1, 1), (47, 48), (49, 50), (200, 131)] {
                    for bands in [1, 3] {
                        cases.push(((dtype, bands, width, height), options.clone()));
                    }
                }
            }
        }
    }
    each(&cases, |session, path, (shape, options)| {
        check(session, path, *shape, options);
    });
    assert_eq!(cases.len(), 10 * 7 * 4 * 2);
}

#[test]
fn usual_tiles_of_odd_images_are_read_as_they_were_written() {
    let mut cases = Vec::new();
    for dtype in [DataType::U8, DataType::I16, DataType::F32] {
        for (width, height) in [(1, 1), (511, 513), (513, 511), (1000, 700)] {
            for bands in [1, 3] {
                for compression in [Compression::Deflate(6), Compression::Zstd(9)] {
                    let options = CogOptions::new().with_compression(compression);
                    cases.push(((dtype, bands, width, height), options));
                }
            }
        }
    }
    each(&cases, |session, path, (shape, options)| {
        check(session, path, *shape, options);
    });
}

#[test]
fn overviews_are_made_as_asked() {
    let mut cases = Vec::new();
    for resampling in Resampling::ALL {
        if resampling == Resampling::Cubic {
            continue;
        }
        for dtype in [DataType::U8, DataType::I16, DataType::F32, DataType::I64] {
            for count in [Overviews::Auto, Overviews::Count(8)] {
                let options = CogOptions::new()
                    .with_tile(64)
                    .with_overviews(count, resampling);
                cases.push(((dtype, 2, 301, 203), options));
            }
        }
    }
    each(&cases, |session, path, (shape, options)| {
        check(session, path, *shape, options);
    });
    assert_eq!(cases.len(), 6 * 4 * 2);
}

/// A mean may be nodata by chance, where all samples hold data.
#[test]
fn a_mean_that_is_nodata_by_chance_is_gdaladdos() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let board = |low: i8, high: i8| {
        Array3::from_shape_fn(
            (1, 64, 64),
            move |(_, row, col)| {
                if (row + col) % 2 == 0 { low } else { high }
            },
        )
    };
    let (about_zero, about_two) = (board(-1, 1), board(1, 3));
    let as_u8 = |one: i8| u8::try_from(one).unwrap();
    for (pixels, nodata) in [
        (Pixels::I16(about_zero.mapv(i16::from)), 0.0),
        (Pixels::F32(about_zero.mapv(f32::from)), 0.0),
        (Pixels::U8(about_two.mapv(as_u8)), 2.0),
        (Pixels::U16(about_two.mapv(|one| as_u8(one).into())), 2.0),
        (Pixels::F32(about_two.mapv(f32::from)), 2.0),
    ] {
        let dtype = pixels.dtype();
        let raster = rss_core::Raster {
            pixels,
            geobox: super::grid(64, 64),
            nodata: Some(nodata),
            sparse: Vec::new(),
        };
        let (ours, theirs) = (dir.path().join("ours.tif"), dir.path().join("theirs.tif"));
        let options = CogOptions::new().with_overviews(Overviews::Count(1), Resampling::Average);
        session.save_cog(&local(&ours), &raster, &options).unwrap();
        raster.save(&theirs).unwrap();
        let [ours, theirs] = [&ours, &theirs].map(|path| path.to_str().unwrap());
        let Some(_) = super::gdal("gdaladdo", &["-q", "-r", "average", theirs, "2"]) else {
            return;
        };
        let first = |path: &str| {
            let place = ["-valonly", "-overview", "1", path, "0", "0"];
            let done = super::gdal("gdallocationinfo", &place).unwrap();
            String::from_utf8(done.stdout).unwrap()
        };
        assert_eq!(first(ours), first(theirs), "{dtype} {nodata}");
        assert_ne!(first(ours).trim(), nodata.to_string(), "{dtype}");
    }
}

/// GDAL's plain copy of a file that holds complex samples.
#[test]
fn complex_samples_are_read_as_they_were_written() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    for dtype in [DataType::C64, DataType::C128] {
        for compression in COMPRESSIONS {
            let raster = rss_core::Raster {
                nodata: None,
                ..raster(dtype, 2, 150, 90)
            };
            let path = dir.path().join("complex.tif");
            let options = CogOptions::new()
                .with_compression(compression)
                .with_tile(64);
            let report = session.save_cog(&local(&path), &raster, &options).unwrap();
            assert_eq!(report.predictor, Predictor::None);
            assert!(report.statistics.is_empty());
            structure::check(&std::fs::read(&path).unwrap(), &report);
            let file = session.open(&local(&path), Backend::Cog).unwrap();
            let read = file.read(&ReadRequest::new()).unwrap();
            assert!(read.pixels == raster.pixels, "{dtype} {compression:?}");
            let plain = dir.path().join("plain");
            let [from, to] = [&path, &plain].map(|path| path.to_str().unwrap());
            let Some(_) = super::gdal("gdal_translate", &["-q", "-of", "ENVI", from, to]) else {
                continue;
            };
            let bytes = std::fs::read(&plain).unwrap();
            assert!(
                bytes == raster.pixels.to_le_bytes(),
                "{dtype} {compression:?}"
            );
        }
    }
}

/// The predictor is chosen by what the first pixels compress to.
#[test]
fn the_predictor_that_makes_the_smaller_file_is_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let (session, path) = (session(), dir.path().join("a.tif"));
    let classes = Array3::from_shape_fn((1, 600, 600), |(_, row, col)| {
        [3_u8, 200, 17, 90][usize::try_from(super::noise(0, row / 3, col / 3) % 4).unwrap()]
    });
    let slope = Array3::from_shape_fn((1, 600, 600), |(_, row, col)| {
        u8::try_from(
            (row + 2 * col + usize::try_from(super::noise(0, row, col) % 3).unwrap()) % 251,
        )
        .unwrap()
    });
    for (samples, expected) in [(classes, Predictor::None), (slope, Predictor::Horizontal)] {
        let raster = rss_core::Raster {
            pixels: Pixels::U8(samples),
            geobox: super::grid(600, 600),
            nodata: None,
            sparse: Vec::new(),
        };
        let write = |predictor| {
            let options = CogOptions::new().with_predictor(predictor);
            session.save_cog(&local(&path), &raster, &options).unwrap()
        };
        let all = [Predictor::None, Predictor::Horizontal].map(|one| (write(one).bytes, one));
        let chosen = write(Predictor::Auto);
        assert_eq!(chosen.predictor, expected, "{all:?}");
        assert_eq!(
            (chosen.bytes, expected),
            *all.iter().min_by_key(|one| one.0).unwrap()
        );
    }
}
