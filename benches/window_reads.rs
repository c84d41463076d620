//! How long does an unaligned window of 2048 x 2048 pixels take, 25 tiles?
//!
//! `cargo bench -p rss_core --features bench_testbed --bench window_reads`. Each read is cold: the file
//! is opened, and nothing is known of it. GDAL with its own defaults, as this library sets it up, with
//! threads of its own, and over this library's stores; the COG reader; the crate async-tiff; servers 0, 30 and 100 ms
//! away; and the COG reader with requests of several sizes. Then a column of small tiles, a few kB each, with
//! several gaps between tiles that share a request.

#![expect(clippy::print_stdout, reason = "a bench reports")]

use std::time::{Duration, Instant};

use anyhow::Result;
use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use rss_bench::{
    harness,
    site::{self, Site, agree, first_asset, open_and_read},
    ways::Way,
};
use rss_core::{Backend, GdalReads, Location, Pixels, Window};
use rss_testbed::{BUCKET, Band};
use tempfile::TempDir;
use tokio::runtime::Runtime;

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
    let Some(site) = rss_bench::site!("window_reads")? else {
        return Ok(());
    };
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let cache = TempDir::new()?;
    let session = || site.session(cache.path()).gdal_reads(GdalReads::Vsi);
    let found = site.search(&session().build()?)?;
    site::check_report(found.report())?;
    let file = first_asset(found.items())?;
    let truth = open_and_read(&session().build()?, found.items(), Backend::Cog)?;
    site.check_truth(&found.items().items[0].id, &truth)?;

    let defaults = session().gdal_option("GDAL_DISABLE_READDIR_ON_OPEN", "FALSE");
    let threads = session().gdal_option("GDAL_NUM_THREADS", "ALL_CPUS");
    // GDAL decodes on one thread here, whatever GDAL_NUM_THREADS says: it has no way to read a plugin's
    // file from several.
    let stores = session().gdal_reads(GdalReads::Stores);
    // The crate's documents decode each tile where it is waited for: on one thread.
    let one_thread = session().cpu_threads(1);
    let ways = [
        Way::of("gdal, its defaults", defaults.build()?, Backend::Gdal),
        Way::of("gdal, tuned", session().build()?, Backend::Gdal),
        Way::of("gdal, tuned, ALL_CPUS", threads.build()?, Backend::Gdal),
        Way::of("gdal over our stores", stores.build()?, Backend::Gdal),
        Way::of("cog", session().build()?, Backend::Cog),
        Way::of("async-tiff", session().build()?, Backend::AsyncTiff),
        Way::of(
            "async-tiff, one thread",
            one_thread.build()?,
            Backend::AsyncTiff,
        ),
    ];
    let mut sizes = Vec::new();
    for kib in [256_u64, 512, 1024, 2048, 8192] {
        let session = session().fetch_bytes(kib << 10).build()?;
        let name = format!("cog, requests of {kib} KiB");
        sizes.push(Way::of(name, session, Backend::Cog));
    }

    let runtime = Runtime::new()?;
    let mut first: Option<Pixels> = None;
    for way in ways.iter().chain(&sizes) {
        way.forget()?;
        site.clear_log();
        let read = runtime.block_on(way.read(&file, Some(window())))?;
        let requests = site.log().len();
        println!("{}: {}: {requests} requests", site.name(), way.name);
        match &first {
            Some(first) => agree(first, &read, &way.name)?,
            None => first = Some(read),
        }
    }
    let mut gaps = Vec::new();
    let classes = classes(&site)?;
    for kib in [0_u64, 16, 64, 256, 1024] {
        let Some(classes) = &classes else { break };
        let session = session().gap_bytes(kib << 10).build()?;
        let name = format!("cog, gaps of {kib} KiB");
        let way = Way::of(name, session, Backend::Cog);
        site.clear_log();
        runtime.block_on(way.read(classes, Some(column())))?;
        let log = site.log();
        let bytes: u64 = log.iter().map(|request| request.bytes).sum();
        let (name, requests) = (&way.name, log.len());
        println!(
            "{}: {name}: {requests} requests, {bytes} bytes",
            site.name()
        );
        gaps.push(way);
    }
    harness::at_each_latency(&site, |latency| {
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
fn classes(site: &Site) -> Result<Option<Location>> {
    let Some(scene) = site.bed.as_ref().and_then(|bed| bed.scenes().first()) else {
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
