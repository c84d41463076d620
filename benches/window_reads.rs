//! How long does an unaligned window of 2048 x 2048 pixels take, 25 tiles?
//!
//! `cargo bench -p rss_core --features bench_testbed --bench window_reads`. Each read is cold: the file
//! is opened, and nothing is known of it. GDAL with its own defaults, as this library sets it up, with
//! threads of its own, and over this library's stores; the COG reader; a program over plain async-tiff; servers 0, 30 and 100 ms
//! away; and the COG reader with requests of several sizes. Then a column of small tiles, a few kB each, with
//! several gaps between tiles that share a request.

#![expect(clippy::print_stdout, reason = "a bench reports")]

mod harness;
mod latency;
mod place;
mod plain_async_tiff;
mod ways;

use std::time::{Duration, Instant};

use anyhow::Result;
use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use place::{Place, agree, first_asset, open_and_read};
use rss_core::{Backend, GdalReads, Location, Pixels, Window};
use rss_testbed::{BUCKET, Band};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use ways::Way;

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
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let cache = TempDir::new()?;
    let session = || place.session(cache.path());
    let found = place.search(&session().build()?)?;
    place::check_report(found.report())?;
    let file = first_asset(found.items())?;
    let truth = open_and_read(&session().build()?, found.items(), Backend::Cog)?;
    place.check_truth(&found.items().items[0].id, &truth)?;

    let defaults = session().gdal_option("GDAL_DISABLE_READDIR_ON_OPEN", "FALSE");
    let threads = session().gdal_option("GDAL_NUM_THREADS", "ALL_CPUS");
    let cores = std::thread::available_parallelism()?.get();
    // GDAL decodes on one thread here, whatever GDAL_NUM_THREADS says: it has no way to read a plugin's
    // file from several.
    let stores = session().gdal_reads(GdalReads::Stores);
    // As the documents of the crate do it: each tile is decoded where it is waited for.
    let mut one_thread = Way::plain(&place, &file, 1)?;
    one_thread.name.push_str(", one thread");
    let ways = [
        Way::of("gdal, its defaults", defaults.build()?, Backend::Gdal),
        Way::of("gdal, tuned", session().build()?, Backend::Gdal),
        Way::of("gdal, tuned, ALL_CPUS", threads.build()?, Backend::Gdal),
        Way::of("gdal over our stores", stores.build()?, Backend::Gdal),
        Way::of("cog reader", session().build()?, Backend::Cog),
        Way::plain(&place, &file, cores)?,
        one_thread,
    ];
    let mut sizes = Vec::new();
    for kib in [256_u64, 512, 1024, 2048, 8192] {
        let session = session().fetch_bytes(kib << 10).build()?;
        let name = format!("cog reader, requests of {kib} KiB");
        sizes.push(Way::of(name, session, Backend::Cog));
    }

    let runtime = Runtime::new()?;
    let mut first: Option<Pixels> = None;
    for way in ways.iter().chain(&sizes) {
        way.forget()?;
        place.clear_log();
        let read = runtime.block_on(way.read(&file, Some(window())))?;
        let requests = place.log().len();
        println!("{}: {}: {requests} requests", place.name(), way.name);
        match &first {
            Some(first) => agree(first, &read, &way.name)?,
            None => first = Some(read),
        }
    }
    let mut gaps = Vec::new();
    let classes = classes(&place)?;
    for kib in [0_u64, 16, 64, 256, 1024] {
        let Some(classes) = &classes else { break };
        let session = session().gap_bytes(kib << 10).build()?;
        let name = format!("cog reader, gaps of {kib} KiB");
        let way = Way::of(name, session, Backend::Cog);
        place.clear_log();
        runtime.block_on(way.read(classes, Some(column())))?;
        let log = place.log();
        let bytes: u64 = log.iter().map(|request| request.bytes).sum();
        let (name, requests) = (&way.name, log.len());
        println!(
            "{}: {name}: {requests} requests, {bytes} bytes",
            place.name()
        );
        gaps.push(way);
    }
    latency::at_each(&place, |latency| {
        let group = |name| (name, latency);
        time(
            &mut criterion,
            &runtime,
            group("window-2048"),
            &ways,
            &file,
            window(),
        );
        time(
            &mut criterion,
            &runtime,
            group("window-2048"),
            &sizes,
            &file,
            window(),
        );
        if let Some(classes) = &classes {
            time(
                &mut criterion,
                &runtime,
                group("column"),
                &gaps,
                classes,
                column(),
            );
        }
        Ok(())
    })?;
    criterion.final_summary();
    Ok(())
}

/// Returns the location of the first scene's cloud classes, in small tiles; none live.
fn classes(place: &Place) -> Result<Option<Location>> {
    let Some(scene) = place.bed.as_ref().and_then(|bed| bed.scenes().first()) else {
        return Ok(None);
    };
    let href = format!("s3://{BUCKET}/{}", scene.key(Band::Fmask));
    Ok(Some(Location::parse(&href)?))
}

/// A column of tiles of the classes, from top to bottom: a row of others lies between two of them.
fn column() -> Window {
    Window {
        col: 0,
        row: 0,
        width: 512,
        height: if harness::is_test() { 600 } else { 5490 },
    }
}

fn time(
    criterion: &mut Criterion,
    runtime: &Runtime,
    (name, latency): (&str, &str),
    ways: &[Way],
    file: &Location,
    window: Window,
) {
    let mut group = criterion.benchmark_group(name);
    group.sampling_mode(SamplingMode::Flat);
    let pixels = u64::from(window.width) * u64::from(window.height);
    group.throughput(Throughput::Elements(pixels));
    let clock = Instant::now();
    for way in ways {
        group.bench_function(BenchmarkId::new(latency, &way.name), |bencher| {
            bencher.iter_custom(|times| {
                let work = async |way: &Way| way.read(file, Some(window)).await;
                way.cold(runtime, times, || clock.elapsed(), work)
            });
        });
    }
    group.finish();
}

fn window() -> Window {
    match harness::is_test() {
        false => WINDOW,
        true => SMALL,
    }
}
