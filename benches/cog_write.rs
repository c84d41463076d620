//! How fast is a COG written, beside GDAL's COG driver?
//!
//! `cargo bench -p rss_core --bench cog_write`. 4096 x 4096 pixels of the testbed's red band are in memory, as
//! int16 and as float32 reflectance, and become a file of tiles of 512 x 512 with overviews by average: the
//! same compression at the same level, the same predictor, every core. GDAL has them in a MEM dataset and
//! writes with `NUM_THREADS=ALL_CPUS`. Ours writes statistics too, but where it is said that it does not. Both
//! files hold the same pixels, and overviews that differ by rounding alone. Bytes per second are of pixels of
//! full resolution. In test mode the image is small.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench reports, and panics"
)]

use std::{path::Path, time::Duration};

use criterion::{Criterion, SamplingMode, Throughput};
use gdal::{
    Dataset, DriverManager,
    raster::{Buffer, GdalType, RasterCreationOptions},
};
use ndarray::Array3;
use rss_bench::harness;
use rss_core::{
    Crs, GeoBox, GeoTransform, Location, Raster, Sample, Session, Size,
    writer::{CogOptions, Compression, Predictor},
};
use rss_testbed::{Band, Scenes, Testbed};

const NODATA: f64 = -999.0;
const TRANSFORM: [f64; 6] = [499_980.0, 10.0, 0.0, 7_200_040.0, 0.0, -10.0];

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .measurement_time(Duration::from_secs(5))
        .configure_from_args();
    let side: u32 = if harness::is_test() { 600 } else { 4096 };
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let samples = bed.scenes()[0].window(Band::Red, 0, 0, side, side);
    let shape = (1, side as usize, side as usize);
    let counts = Array3::from_shape_vec(shape, samples).unwrap();
    let reflectance = counts.mapv(|count| match count {
        -999 => -999.0,
        count => f32::from(count) * 1e-4,
    });
    for (name, compression, options) in [
        (
            "deflate 6",
            Compression::Deflate(6),
            ["COMPRESS=DEFLATE", "LEVEL=6"],
        ),
        ("zstd 9", Compression::Zstd(9), ["COMPRESS=ZSTD", "LEVEL=9"]),
        ("zstd 1", Compression::Zstd(1), ["COMPRESS=ZSTD", "LEVEL=1"]),
    ] {
        let int16 = format!("int16, {name}, predictor 2");
        time(
            &mut criterion,
            &int16,
            &counts,
            Predictor::Horizontal,
            compression,
            &options,
        );
        let float32 = format!("float32, {name}, predictor 3");
        time(
            &mut criterion,
            &float32,
            &reflectance,
            Predictor::Float,
            compression,
            &options,
        );
    }
    criterion.final_summary();
}

fn time<T: Sample + GdalType>(
    criterion: &mut Criterion,
    name: &str,
    samples: &Array3<T>,
    predictor: Predictor,
    compression: Compression,
    gdal_options: &[&str],
) {
    let dir = tempfile::tempdir().unwrap();
    let [ours, theirs] = ["ours.tif", "gdal.tif"].map(|name| dir.path().join(name));
    let session = Session::builder().build().unwrap();
    let raster = raster(samples);
    let location = Location::Local(ours.clone());
    let options = CogOptions::new()
        .with_compression(compression)
        .with_predictor(predictor);
    let silent = options.clone().without_statistics();
    let source = dataset(samples);

    session.save_cog(&location, &raster, &options).unwrap();
    by_gdal(&source, &theirs, gdal_options);
    check::<T>(&ours, &theirs, name);

    let mut group = criterion.benchmark_group(format!("cog_write/{name}"));
    group.sampling_mode(SamplingMode::Flat);
    let bytes = raster.pixels.len() * raster.pixels.dtype().size();
    group.throughput(Throughput::Bytes(bytes as u64));
    group.bench_function("ours", |bencher| {
        bencher.iter(|| session.save_cog(&location, &raster, &options).unwrap());
    });
    group.bench_function("ours, no statistics", |bencher| {
        bencher.iter(|| session.save_cog(&location, &raster, &silent).unwrap());
    });
    group.bench_function("GDAL's COG driver", |bencher| {
        bencher.iter(|| by_gdal(&source, &theirs, gdal_options));
    });
    group.finish();
}

fn raster<T: Sample>(samples: &Array3<T>) -> Raster {
    let (_, height, width) = samples.dim();
    let side = |pixels: usize| u32::try_from(pixels).unwrap();
    Raster {
        pixels: T::wrap(samples.clone()),
        geobox: GeoBox {
            size: Size {
                width: side(width),
                height: side(height),
            },
            crs: Some(Crs::Epsg(32_756)),
            transform: Some(GeoTransform(TRANSFORM)),
        },
        nodata: Some(NODATA.into()),
        sparse: Vec::new(),
    }
}

/// The same samples, where GDAL takes them from memory.
fn dataset<T: Sample + GdalType>(samples: &Array3<T>) -> Dataset {
    let (_, height, width) = samples.dim();
    let driver = DriverManager::get_driver_by_name("MEM").unwrap();
    let mut made = driver
        .create_with_band_type::<T, _>("", width, height, 1)
        .unwrap();
    made.set_geo_transform(&TRANSFORM).unwrap();
    let crs = gdal::spatial_ref::SpatialRef::from_epsg(32_756).unwrap();
    made.set_spatial_ref(&crs).unwrap();
    let mut band = made.rasterband(1).unwrap();
    band.set_no_data_value(Some(NODATA)).unwrap();
    let mut buffer = Buffer::new((width, height), samples.iter().copied().collect());
    band.write((0, 0), (width, height), &mut buffer).unwrap();
    made
}

fn by_gdal(source: &Dataset, path: &Path, options: &[&str]) {
    let driver = DriverManager::get_driver_by_name("COG").unwrap();
    let mut all = RasterCreationOptions::new();
    let usual = [
        "PREDICTOR=YES",
        "BLOCKSIZE=512",
        "OVERVIEW_RESAMPLING=AVERAGE",
        "NUM_THREADS=ALL_CPUS",
    ];
    for option in usual.iter().chain(options) {
        all.add_string(option).unwrap();
    }
    // Closed here, which writes what is left.
    source.create_copy(&driver, path, &all).unwrap();
}

/// Checks that both files hold the same pixels, and says how large they are.
fn check<T: Sample + GdalType>(ours: &Path, theirs: &Path, name: &str) {
    let files = [ours, theirs].map(|path| Dataset::open(path).unwrap());
    let [a, b] = [&files[0], &files[1]].map(|file| file.rasterband(1).unwrap());
    assert_eq!(a.overview_count().unwrap(), b.overview_count().unwrap());
    let all = |band: &gdal::raster::RasterBand<'_>| {
        let size = band.size();
        let read = band.read_as::<f64>((0, 0), size, size, None).unwrap();
        (size, read.data().to_vec())
    };
    assert!(all(&a) == all(&b), "{name}: other pixels");
    let mut far: f64 = 0.0;
    for level in 0..usize::try_from(a.overview_count().unwrap()).unwrap() {
        let (a, b) = (
            all(&a.overview(level).unwrap()),
            all(&b.overview(level).unwrap()),
        );
        assert_eq!(a.0, b.0);
        far =
            a.1.iter()
                .zip(&b.1)
                .map(|(a, b)| (a - b).abs())
                .fold(far, f64::max);
    }
    let rounding = match T::DTYPE {
        rss_core::DataType::F32 => 1e-6,
        _ => 1.0,
    };
    assert!(far <= rounding, "{name}: overviews differ by {far}");
    let sizes = [ours, theirs].map(|path| path.metadata().unwrap().len() as f64 / 1e6);
    println!(
        "{name}: ours {:.2} MB, GDAL's {:.2} MB, overviews differ by {far:e} at most",
        sizes[0], sizes[1]
    );
}
