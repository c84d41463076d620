//! How fast is each kernel, where the axes of both grids are the same (separable) and where they are not (general)?
//!
//! `cargo bench -p rss_raster --bench kernels`. A scene of 2048 x 2048 int16 in UTM onto a grid of its own CRS half a
//! pixel beside it, and onto EPSG:3577, in memory, on all threads. `cargo bench -p rss_core --bench warp` puts the same
//! beside gdalwarp, and compares the pixels. In test mode the scene is small.

#![expect(clippy::unwrap_used, reason = "a failed bench panics")]

use std::time::Duration;

use criterion::{Criterion, SamplingMode, Throughput};
use ndarray::Array3;
use rss_raster::{Crs, GeoBox, GeoTransform, Pixels, Raster, Resampling, Size};

fn main() {
    let is_test = !std::env::args().any(|arg| arg == "--bench");
    let side = if is_test { 128 } else { 2048 };
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let from = grid(600_000.0, 6_100_000.0, side);
    let pixels = Array3::from_shape_fn((1, side as usize, side as usize), |(_, y, x)| {
        i16::try_from((x * 31 + y * 17) % 4096).unwrap()
    });
    let scene = Raster {
        pixels: Pixels::I16(pixels),
        geobox: from.clone(),
        nodata: Some((-999.0).into()),
        sparse: Vec::new(),
    };
    let albers = GeoBox::of_bbox(&from.bbox().unwrap(), Crs::Epsg(3577), 10.0).unwrap();
    let targets = [
        ("separable", grid(600_005.0, 6_099_995.0, side)),
        ("general", albers),
    ];
    for (case, target) in &targets {
        let mut group = criterion.benchmark_group(format!("kernels/{case}"));
        group.sampling_mode(SamplingMode::Flat);
        let pixels = u64::from(target.size.width) * u64::from(target.size.height);
        group.throughput(Throughput::Elements(pixels));
        for resampling in Resampling::ALL {
            let warped = scene.warp(target, resampling).unwrap();
            let valid = |sample: &&f64| **sample != -999.0;
            let valid = warped.pixels.to_f64().iter().filter(valid).count();
            assert!(
                valid > warped.pixels.len() / 2,
                "{case}, {resampling}: {valid} valid"
            );
            group.bench_function(resampling.name(), |bencher| {
                bencher.iter(|| scene.warp(target, resampling).unwrap());
            });
        }
        group.finish();
    }
    criterion.final_summary();
}

fn grid(left: f64, top: f64, side: u32) -> GeoBox {
    GeoBox {
        size: Size {
            width: side,
            height: side,
        },
        crs: Some(Crs::Epsg(32755)),
        transform: Some(GeoTransform([left, 10.0, 0.0, top, 0.0, -10.0])),
    }
}
