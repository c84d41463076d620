//! How long does it take to open a COG of 10980 x 10980 pixels of which nothing is known, and 32 at
//! once?
//!
//! `cargo bench -p rss_core --features bench_testbed --bench header_reads`. Opening reads the headers and
//! no tile. GDAL with its own defaults and as this library sets it up, the COG reader and the
//! crate async-tiff; servers 0, 30 and 100 ms away. Requests are counted before. `for an index` takes the
//! entry too: all that building an index asks of a file.

#![expect(clippy::print_stdout, reason = "a bench reports")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use futures::future::try_join_all;
use rss_bench::{
    harness,
    site::{self, BLOCK, Site, agree, first_asset, open_and_read},
    ways::Way,
};
use rss_core::{Backend, Entry, GdalReads, Location, RasterReader};
use rss_testbed::{BUCKET, Band};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Files at once.
const MANY: usize = 32;
const COG: &str = "cog";

fn main() -> Result<()> {
    let Some(site) = rss_bench::site!("header_reads")? else {
        return Ok(());
    };
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let cache = TempDir::new()?;
    // GDAL opens a file per thread.
    let session = || {
        site.session(cache.path())
            .gdal_reads(GdalReads::Vsi)
            .gdal_threads(MANY)
    };
    let found = site.search(&session().build()?)?;
    site::check_report(found.report())?;
    let file = first_asset(found.items())?;
    let truth = open_and_read(&session().build()?, found.items(), Backend::Cog)?;
    site.check_truth(&found.items().items[0].id, &truth)?;
    let one = vec![file];
    let many = copies(&site)?;

    let defaults = session().gdal_option("GDAL_DISABLE_READDIR_ON_OPEN", "FALSE");
    let ways = [
        Way::of("gdal, its defaults", defaults.build()?, Backend::Gdal),
        Way::of("gdal, tuned", session().build()?, Backend::Gdal),
        Way::of(COG, session().build()?, Backend::Cog),
        Way::of("async-tiff", session().build()?, Backend::AsyncTiff),
    ];
    let runtime = Runtime::new()?;
    for way in &ways {
        for files in [&one, &many] {
            way.forget()?;
            site.clear_log();
            runtime.block_on(open(way, files))?;
            println!(
                "{}: {}: {} requests to open {}",
                site.name(),
                way.name,
                site.log().len(),
                files.len()
            );
            for file in files.iter().take(2) {
                let block = runtime.block_on(way.read(file, Some(BLOCK)))?;
                agree(&truth, &block, &way.name)?;
            }
        }
    }
    let clock = Instant::now();
    harness::at_each_latency(&site, |latency| {
        for files in [&one, &many] {
            let mut group = criterion.benchmark_group(format!("open-{}", files.len()));
            group.sampling_mode(SamplingMode::Flat);
            group.throughput(Throughput::Elements(files.len() as u64));
            for way in &ways {
                group.bench_function(BenchmarkId::new(latency, &way.name), |bencher| {
                    bencher.iter_custom(|times| {
                        let work = async |way: &Way| open(way, files).await;
                        way.cold(&runtime, times, || clock.elapsed(), work)
                    });
                });
                if way.name == COG {
                    let id = BenchmarkId::new(latency, format!("{COG}, for an index"));
                    group.bench_function(id, |bencher| {
                        bencher.iter_custom(|times| {
                            let work = async |way: &Way| index(way, files).await;
                            way.cold(&runtime, times, || clock.elapsed(), work)
                        });
                    });
                }
            }
            group.finish();
        }
        Ok(())
    })?;
    criterion.final_summary();
    Ok(())
}

async fn open(way: &Way, files: &[Location]) -> Result<Vec<Arc<dyn RasterReader>>> {
    try_join_all(files.iter().map(|file| way.open(file))).await
}

async fn index(way: &Way, files: &[Location]) -> Result<Vec<Entry>> {
    try_join_all(
        files
            .iter()
            .map(async |file| Ok(way.open(file).await?.entry().await?)),
    )
    .await
}

/// Returns files in many folders, with the bytes of the first scene's red band; live, none.
fn copies(site: &Site) -> Result<Vec<Location>> {
    let Some(bed) = &site.bed else {
        return Ok(Vec::new());
    };
    let scene = bed.scenes().first().context("no scene")?;
    let path = scene.file(Band::Red).context("no red band")?;
    (0..MANY)
        .map(|n| {
            let key = format!("copies/{n}/red.tif");
            bed.put_file(BUCKET, &key, path)?;
            Ok(Location::parse(&format!("s3://{BUCKET}/{key}"))?)
        })
        .collect()
}
