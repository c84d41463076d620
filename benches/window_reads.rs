//! How long does an unaligned window of 2048 x 2048 pixels take, 25 tiles?
//!
//! `cargo bench -p rss_core --features bench_testbed --bench window_reads`. Each read is cold: the file
//! is opened, and nothing is known of it. The COG reader with requests of several sizes; GDAL with its
//! own defaults, as this library sets it up, and over this library's stores.

#![expect(clippy::print_stdout, reason = "a bench reports")]

mod harness;
mod place;

use std::time::{Duration, Instant};

use anyhow::Result;
use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use harness::must;
use place::{agree, first_asset, open, open_and_read};
use rss_core::{Backend, GdalReads, Location, Raster, ReadRequest, Session, Window};
use tempfile::TempDir;

const WINDOW: Window = Window {
    col: 300,
    row: 300,
    width: 2048,
    height: 2048,
};
/// Of a test run, whose scenes are small.
const SMALL: Window = Window {
    width: 800,
    height: 800,
    ..WINDOW
};

fn main() -> Result<()> {
    let Some(place) = harness::place("window_reads")? else {
        return Ok(());
    };
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(100))
        .configure_from_args();
    let cache = TempDir::new()?;
    let plain = || place.session(cache.path());
    let found = place.search(&plain().build()?)?;
    place::check_report(found.report())?;
    let file = first_asset(found.items())?;
    let truth = open_and_read(&plain().build()?, found.items(), Backend::AsyncTiff)?;
    place.check_truth(&found.items().items[0].id, &truth)?;

    let defaults = plain()
        .gdal_option("GDAL_DISABLE_READDIR_ON_OPEN", "FALSE")
        .build()?;
    let tuned = plain()
        .gdal_option("GDAL_NUM_THREADS", "ALL_CPUS")
        .build()?;
    // GDAL decodes on one thread here, whatever GDAL_NUM_THREADS says: it has no way to read a plugin's
    // file from several.
    let stores = plain().gdal_reads(GdalReads::Stores).build()?;
    let mut ways = vec![
        ("gdal, its defaults".to_owned(), defaults, Backend::Gdal),
        ("gdal, tuned".to_owned(), tuned, Backend::Gdal),
        ("gdal over our stores".to_owned(), stores, Backend::Gdal),
    ];
    for kib in [256_u64, 512, 1024, 2048, 8192] {
        let session = plain().fetch_bytes(kib << 10).build()?;
        ways.push((
            format!("async-tiff, {kib} KiB"),
            session,
            Backend::AsyncTiff,
        ));
    }

    let mut first: Option<Raster> = None;
    for (name, session, backend) in &ways {
        session.clear_caches()?;
        place.clear_log();
        let read = read(session, &file, *backend)?;
        println!("{}: {name}: {} requests", place.name(), place.log().len());
        match &first {
            Some(first) => agree(first, &read, name)?,
            None => first = Some(read),
        }
    }
    let mut group = criterion.benchmark_group("window-2048");
    group.sampling_mode(SamplingMode::Flat);
    group.throughput(Throughput::Bytes(
        window().width as u64 * window().height as u64 * 2,
    ));
    for (name, session, backend) in &ways {
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_custom(|times| {
                let mut total = Duration::ZERO;
                for _ in 0..times {
                    must(session.clear_caches());
                    let start = Instant::now();
                    must(read(session, &file, *backend));
                    total += start.elapsed();
                }
                total
            });
        });
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}

fn window() -> Window {
    match std::env::args().any(|arg| arg == "--bench") {
        true => WINDOW,
        false => SMALL,
    }
}

fn read(session: &Session, file: &Location, backend: Backend) -> Result<Raster> {
    let raster = open(session, file, backend)?;
    Ok(raster.read(&ReadRequest::new().with_window(window()))?)
}
