//! Every type, compression and predictor: GDAL and the COG reader read the pixels that were written, and
//! overviews that are what a plain program makes.

use std::path::Path;

use ndarray::Array3;
use rss_core::{
    Backend, DataType, Pixels, ReadRequest, Resampling, Session,
    writer::{Band, CogOptions, Compression, Overviews, Predictor},
};

use super::{NODATA, local, raster, session, structure};

/// The pixels of a level that one pixel of a smaller one covers, and how much of each, in parts of `to`.
fn covered(at: usize, from: usize, to: usize) -> Vec<(usize, usize)> {
    let part = |source: usize| {
        let end = ((source + 1) * to).min((at + 1) * from);
        (source, end.saturating_sub((source * to).max(at * from)))
    };
    let some = at * from / to..((at + 1) * from).div_ceil(to);
    some.map(part).filter(|part| part.1 > 0).collect()
}

/// Overviews by the book: all that a pixel covers, as numbers with their weights.
fn reference(
    level: &Array3<f64>,
    [width, height]: [usize; 2],
    dtype: DataType,
    resampling: Resampling,
) -> Array3<f64> {
    let (bands, from_height, from_width) = level.dim();
    Array3::from_shape_fn((bands, height, width), |(band, row, col)| {
        let mut all = Vec::new();
        for &(y, tall) in &covered(row, from_height, height) {
            for &(x, wide) in &covered(col, from_width, width) {
                all.push((level[(band, y, x)], tall * wide));
            }
        }
        all.retain(|&(one, _)| one != NODATA);
        if all.is_empty() {
            return NODATA;
        }
        let values = all.iter().map(|one| one.0);
        match resampling {
            Resampling::Mode => {
                let weight = |one: f64| -> usize {
                    let same = all.iter().filter(|other| other.0 == one);
                    same.map(|other| other.1).sum()
                };
                let most = values.clone().map(weight).max().unwrap();
                values.clone().find(|&one| weight(one) == most).unwrap()
            }
            Resampling::Min => values.fold(f64::INFINITY, f64::min),
            Resampling::Max => values.fold(f64::NEG_INFINITY, f64::max),
            _ => {
                let weight: usize = all.iter().map(|one| one.1).sum();
                let mean = match dtype {
                    _ if resampling == Resampling::Rms => {
                        let squares: f64 = all.iter().map(|one| one.0 * one.0 * one.1 as f64).sum();
                        let root = (squares / weight as f64).sqrt();
                        match dtype {
                            DataType::F64 => root,
                            DataType::F32 => f64::from(root as f32),
                            _ => (root + 0.5).floor(),
                        }
                    }
                    DataType::F32 | DataType::F64 => {
                        let sum: f64 = all.iter().map(|one| one.0 * one.1 as f64).sum();
                        let mean = sum / weight as f64;
                        if dtype == DataType::F32 {
                            f64::from(mean as f32)
                        } else {
                            mean
                        }
                    }
                    _ => {
                        let sums = all.iter().map(|one| one.0 as i128 * one.1 as i128);
                        let weight = weight as i128;
                        (2 * sums.sum::<i128>() + weight).div_euclid(2 * weight) as f64
                    }
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

/// The pixels of full resolution that contain the centres of an overview's; of two the first.
fn nearest(full: &Array3<f64>, [width, height]: [usize; 2]) -> Array3<f64> {
    let (bands, from_height, from_width) = full.dim();
    let centre = |at: usize, from: usize, to: usize| ((2 * at + 1) * from).div_ceil(2 * to) - 1;
    Array3::from_shape_fn((bands, height, width), |(band, row, col)| {
        full[(
            band,
            centre(row, from_height, height),
            centre(col, from_width, width),
        )]
    })
}

/// All levels of an image. A side of fewer than 16 pixels is of the last level that has more.
fn pyramid(
    full: &Array3<f64>,
    overviews: usize,
    dtype: DataType,
    resampling: Resampling,
) -> Vec<Array3<f64>> {
    let mut levels = vec![full.clone()];
    let mut source = full.clone();
    let (_, mut height, mut width) = full.dim();
    for _ in 0..overviews {
        (width, height) = (width.div_ceil(2), height.div_ceil(2));
        if resampling == Resampling::Nearest {
            levels.push(nearest(full, [width, height]));
            continue;
        }
        let (_, source_height, source_width) = source.dim();
        let side = |side: usize, before: usize| if side < 16 { before } else { side };
        let kept = [side(width, source_width), side(height, source_height)];
        source = reference(&source, kept, dtype, resampling);
        levels.push(reference(&source, [width, height], dtype, resampling));
    }
    levels
}

/// Compares levels. The last digits of a sum of floats depend on the order.
fn is_same(found: &Array3<f64>, expected: &Array3<f64>, dtype: DataType) -> bool {
    let slack = match dtype {
        DataType::F64 => 1e-15,
        DataType::F32 => f64::from(f32::EPSILON),
        _ => 0.0,
    };
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
    let resampling = options.resampling.unwrap_or(Resampling::Average);
    let count = report.overviews.len();
    let levels = pyramid(&numbers(&raster.pixels), count, dtype, resampling);
    for (overview, level) in levels.iter().enumerate() {
        let read = file
            .read(&ReadRequest::new().with_level(overview))
            .map_err(fail)
            .unwrap();
        let read = numbers(&read.pixels);
        assert!(is_same(&read, level, dtype), "{what}, level {overview}");
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
    for resampling in [
        Resampling::Nearest,
        Resampling::Bilinear,
        Resampling::Average,
        Resampling::Rms,
        Resampling::Mode,
        Resampling::Min,
        Resampling::Max,
    ] {
        for dtype in [DataType::U8, DataType::I16, DataType::F32, DataType::I64] {
            // The last digits of a sum of large squares depend on the order.
            if (resampling, dtype) == (Resampling::Rms, DataType::I64) {
                continue;
            }
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
    assert_eq!(cases.len(), (7 * 4 - 1) * 2);
}

/// A slope of column numbers, and one of row numbers: each pixel of an overview has the number of its centre. Exact is the
/// mean of what it covers of full resolution.
#[test]
fn overviews_cover_the_extent_of_any_size() {
    let mut cases = Vec::new();
    for (width, height, tile) in [
        (1, 1, 16),
        (2, 3, 16),
        (5, 3, 16),
        (17, 4, 16),
        (33, 100, 16),
        (100, 33, 16),
        (7, 513, 16),
        (549, 31, 16),
        (1098, 2, 64),
        (345, 344, 64),
        (129, 641, 32),
        (3001, 5, 512),
        (5490, 21, 512),
        (10, 1777, 64),
    ] {
        cases.push((width, height, tile));
    }
    // Each width of some hundred, and each height.
    cases.extend((1..150).map(|side| (side, 151 - side, 16)));
    each(&cases, |session, path, &(width, height, tile)| {
        let shape = (2, height as usize, width as usize);
        let slopes = Array3::from_shape_fn(shape, |(band, row, col)| [col, row][band] as f64);
        let raster = rss_core::Raster {
            pixels: Pixels::F64(slopes),
            geobox: super::grid(width, height),
            nodata: None,
            sparse: Vec::new(),
        };
        let most = u32::BITS - (width.max(height) - 1).leading_zeros();
        let options = CogOptions::new()
            .with_tile(tile)
            .with_overviews(Overviews::Count(most as usize), Resampling::Average);
        session.save_cog(&local(path), &raster, &options).unwrap();
        let file = session.open(&local(path), Backend::Cog).unwrap();
        for level in 1..=most as usize {
            let read = file.read(&ReadRequest::new().with_level(level)).unwrap();
            let read = numbers(&read.pixels);
            let (_, rows, cols) = read.dim();
            let sides = [(width as usize, cols), (height as usize, rows)];
            for ((band, row, col), &found) in read.indexed_iter() {
                let ((from, to), at) = (sides[band], [col, row][band]);
                let parts = covered(at, from, to);
                let sum: f64 = parts.iter().map(|&(one, part)| (one * part) as f64).sum();
                let exact = sum / from as f64;
                let off = (found - exact).abs() * to as f64 / from as f64;
                let what = format!("{width} x {height}, level {level}, {band} {row} {col}");
                assert!(off <= 0.02, "{what}: {found} for {exact}");
                let centre = (at as f64 + 0.5) * from as f64 / to as f64 - 0.5;
                let off = (found - centre).abs() * to as f64 / from as f64;
                assert!(off <= 0.02 || from < 16, "{what}: {found} for {centre}");
            }
        }
    });
}

/// Overviews of a width that is odd at several levels are those of gdaladdo, which weights as well.
#[test]
fn overviews_of_odd_sides_are_gdaladdos() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let (ours, theirs) = (dir.path().join("ours.tif"), dir.path().join("theirs.tif"));
    let slope = Array3::from_shape_fn((1, 301, 549), |(_, row, col)| (3 * col + row) as f32);
    let raster = rss_core::Raster {
        pixels: Pixels::F32(slope),
        geobox: super::grid(549, 301),
        nodata: None,
        sparse: Vec::new(),
    };
    let options = CogOptions::new()
        .with_tile(64)
        .with_overviews(Overviews::Count(3), Resampling::Average);
    session.save_cog(&local(&ours), &raster, &options).unwrap();
    raster.save(&theirs).unwrap();
    let levels = [
        "-q",
        "-r",
        "average",
        theirs.to_str().unwrap(),
        "2",
        "4",
        "8",
    ];
    if super::gdal("gdaladdo", &levels).is_none() {
        return;
    }
    for level in 1..=3 {
        let read = |path: &Path| {
            let file = session.open(&local(path), Backend::Cog).unwrap();
            let read = file.read(&ReadRequest::new().with_level(level)).unwrap();
            numbers(&read.pixels)
        };
        let (ours, theirs) = (read(&ours), read(&theirs));
        assert_eq!(ours.dim(), theirs.dim());
        let off = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs());
        let off = off.fold(0.0, f64::max) / 3.0 / f64::from(1 << level);
        assert!(off < 0.01, "level {level}: {off} overview pixels");
    }
}

/// Classes have no mean; bands beside them are averaged.
#[test]
fn overviews_of_classes_hold_classes() {
    let dir = tempfile::tempdir().unwrap();
    let (session, path) = (session(), dir.path().join("a.tif"));
    let classes = |row: usize, col: usize| [4_u8, 5, 8, 9, 3][(row * 3 + col * 7) % 5];
    let pixels = Array3::from_shape_fn((2, 203, 301), |(_, row, col)| classes(row, col));
    let raster = rss_core::Raster {
        pixels: Pixels::U8(pixels),
        geobox: super::grid(301, 203),
        nodata: Some(0.into()),
        sparse: Vec::new(),
    };
    let bands = [Band::named("scl").of_classes(), Band::named("red")];
    let usual = CogOptions::new().with_tile(64).with_bands(bands);
    let is_class = |one: f64| [3.0, 4.0, 5.0, 8.0, 9.0].contains(&one);
    for (how, are_classes) in [
        ("auto", [true, false]),
        ("nearest", [true, true]),
        ("mode", [true, true]),
        ("average", [false, false]),
    ] {
        let options = usual.clone().with_overview_resampling(how).unwrap();
        session.save_cog(&local(&path), &raster, &options).unwrap();
        let file = session.open(&local(&path), Backend::Cog).unwrap();
        let read = file.read(&ReadRequest::new().with_level(1)).unwrap();
        let read = numbers(&read.pixels);
        let found: Vec<bool> = read
            .outer_iter()
            .map(|band| band.iter().all(|&one| is_class(one)))
            .collect();
        assert_eq!(found, are_classes, "{how}");
    }
    let none = usual.clone().with_overview_resampling("none").unwrap();
    let report = session.save_cog(&local(&path), &raster, &none).unwrap();
    assert!(report.overviews.is_empty());
    let err = usual.with_overview_resampling("cubic").unwrap_err();
    assert!(err.message().contains("auto, nearest, average"), "{err}");
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
            nodata: Some(nodata.into()),
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
