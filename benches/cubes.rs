//! Which layout for which read? One series of samples, one map, and all of a cube, by each use.
//!
//! `cargo bench -p rss_core --no-default-features --features zarr --bench cubes`. In test mode the cube is
//! small. Files lie in the system's cache; each read opens the cube anew.

#![expect(clippy::unwrap_used, reason = "a failed bench panics")]

use std::{hint::black_box, path::Path, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ndarray::Array3;
use rss_core::{
    Crs, GeoBox, GeoTransform, Location, Pixels, Raster, Session, Size, Window,
    zarr::{CubeImage, CubeOptions, Layout, PixelIndex, Use},
};

struct Scale {
    dates: usize,
    side: u32,
    map: u32,
    pixels: usize,
}

impl Scale {
    fn new() -> Self {
        match std::env::args().any(|arg| arg == "--test") {
            true => Self {
                dates: 4,
                side: 128,
                map: 64,
                pixels: 4,
            },
            false => Self {
                dates: 64,
                side: 1024,
                map: 512,
                pixels: 16,
            },
        }
    }
}

/// A number between 0 and 1 that belongs to a pixel.
fn noise(x: u64, y: u64, seed: u64) -> f64 {
    let mut bits = x.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ y.wrapping_mul(0xc2b2_ae3d_27d4_eb4f)
        ^ seed.wrapping_mul(0x1656_67b1_9e37_79f9);
    bits ^= bits >> 29;
    bits = bits.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits ^= bits >> 32;
    (bits >> 40) as f64 / (1_u64 << 24) as f64
}

/// Reflectances over hills that change little from date to date, with clouds that hide what is below.
fn raster(date: u64, side: u32) -> Raster {
    let samples = Array3::from_shape_fn((1, side as usize, side as usize), |(_, row, col)| {
        let (x, y) = (col as u64, row as u64);
        if noise(x / 48, y / 48, date + 1000) < 0.2 {
            return -999;
        }
        let hills = (x as f64 / 90.0).sin() * (y as f64 / 70.0).cos() * 400.0;
        let field = noise(x / 23, y / 17, 1) * 600.0 + noise(x / 23, y / 17, date) * 60.0;
        let grain = noise(x, y, date + 7) * 40.0;
        #[expect(clippy::cast_possible_truncation, reason = "the sum is below 2000")]
        let sample = (900.0 + hills + field + grain) as i16;
        sample
    });
    Raster {
        pixels: Pixels::I16(samples),
        geobox: GeoBox {
            size: Size {
                width: side,
                height: side,
            },
            crs: Some(Crs::Epsg(32755)),
            transform: Some(GeoTransform([
                600_000.0,
                10.0,
                0.0,
                6_000_000.0,
                0.0,
                -10.0,
            ])),
        },
        nodata: Some((-999.0).into()),
        sparse: Vec::new(),
    }
}

fn bytes_of(folder: &Path) -> (u64, usize) {
    std::fs::read_dir(folder)
        .unwrap()
        .fold((0, 0), |(bytes, files), entry| {
            let entry = entry.unwrap();
            let (more, others) = match entry.file_type().unwrap().is_dir() {
                true => bytes_of(&entry.path()),
                false => (entry.metadata().unwrap().len(), 1),
            };
            (bytes + more, files + others)
        })
}

fn layouts(criterion: &mut Criterion) {
    let scale = Scale::new();
    let dir = tempfile::tempdir().unwrap();
    let session = Session::builder().build().unwrap();
    let first: DateTime<Utc> = "2021-01-01T00:00:00Z".parse().unwrap();
    let images: Vec<CubeImage> = (0..scale.dates)
        .map(|date| {
            let days = TimeDelta::days(i64::try_from(date).unwrap());
            let raster = raster(date as u64, scale.side);
            CubeImage::new(format!("day-{date}"), first + days).with_band("red", raster)
        })
        .collect();
    let all = u64::from(scale.side) * u64::from(scale.side) * 2 * scale.dates as u64;
    let pixels: Vec<PixelIndex> = (0..scale.pixels as u64)
        .map(|number| {
            let along = |seed| (noise(number, 0, seed) * f64::from(scale.side)) as u32;
            PixelIndex {
                col: along(3),
                row: along(4),
            }
        })
        .collect();
    let window = Window {
        col: 30,
        row: 40,
        width: scale.map,
        height: scale.map,
    };
    let mut group = criterion.benchmark_group("cubes");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(2));
    for &for_use in Use::ALL {
        let path = dir.path().join(for_use.name());
        let location = Location::parse(path.to_str().unwrap()).unwrap();
        let options = CubeOptions::new().with_layout(Layout::new(for_use));
        session
            .create_cube(&location, images.clone(), &options)
            .unwrap();
        let (bytes, files) = bytes_of(&path);
        eprintln!(
            "{for_use}: {:.1} MB in {files} files, {:.3} of the samples' bytes",
            bytes as f64 / 1e6,
            bytes as f64 / all as f64
        );
        let open = || session.open_cube(&location).unwrap();
        // Right first, then timed.
        let whole = open().read::<i16>("red", 0..scale.dates, None, 0).unwrap();
        for (date, image) in whole.outer_iter().enumerate() {
            let truth = raster(date as u64, scale.side);
            assert!(
                image
                    == truth
                        .pixels
                        .view::<i16>()
                        .unwrap()
                        .index_axis(ndarray::Axis(0), 0)
            );
        }
        group.throughput(Throughput::Elements(scale.pixels as u64));
        group.bench_function(format!("{for_use}/series"), |bencher| {
            bencher.iter(|| black_box(open().read_series::<i16>("red", &pixels).unwrap()));
        });
        group.throughput(Throughput::Bytes(u64::from(scale.map).pow(2) * 2));
        group.bench_function(format!("{for_use}/map"), |bencher| {
            let date = scale.dates / 2;
            let times = date..date + 1;
            bencher.iter(|| {
                open()
                    .read::<i16>("red", times.clone(), Some(window), 0)
                    .unwrap()
            });
        });
        group.throughput(Throughput::Bytes(all));
        group.bench_function(format!("{for_use}/all"), |bencher| {
            bencher.iter(|| open().read::<i16>("red", 0..scale.dates, None, 0).unwrap());
        });
    }
    group.finish();
}

criterion_group!(benches, layouts);
criterion_main!(benches);
