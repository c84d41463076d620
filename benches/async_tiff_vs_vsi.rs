//! Which reader has a block sooner: GDAL over `/vsis3/`, or the COG reader over `object_store`?
//!
//! `cargo bench -p rss_core --features bench_live --bench async_tiff_vs_vsi` asks live DEA; with
//! `--features bench_testbed` servers on loopback, 0, 30 and 100 ms away. For GDAL with its own defaults
//! and as this library sets it up, the crate async-tiff and the COG reader, side by side: the first read of
//! a file with nothing known of it and five files at once, at each latency; the same block again and
//! further blocks of the open file one after the other, 30 ms away.

#![expect(clippy::print_stdout, reason = "a bench reports")]

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use futures::future::try_join_all;
use rss_bench::{
    harness::{self, must},
    site::{self, BLOCK, Site, agree, open_and_read},
    ways::{self, Way},
};
use rss_core::{Backend, GdalReads, Location, Pixels, Window};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Reads at once.
const AT_ONCE: usize = 5;
const BLOCK_BYTES: u64 = 512 * 512 * 2;

fn main() -> Result<()> {
    let Some(site) = rss_bench::site!("async_tiff_vs_vsi")? else {
        return Ok(());
    };
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let run = Run::check(&site)?;
    run.cached(&mut criterion);
    run.sequential(&mut criterion);
    harness::at_each_latency(&site, |latency| {
        run.cold(&mut criterion, latency);
        run.concurrent(&mut criterion, latency);
        Ok(())
    })?;
    criterion.final_summary();
    Ok(())
}

struct Run {
    runtime: Runtime,
    ways: Vec<Way>,
    files: Vec<Location>,
    /// Blocks of one file that do not overlap.
    blocks: Vec<Window>,
    clock: Instant,
    _cache: TempDir,
}

impl Run {
    /// Finds the files, and checks that all ways read the same pixels.
    fn check(site: &Site) -> Result<Self> {
        let cache = TempDir::new()?;
        let session = || {
            site.session(cache.path())
                .gdal_reads(GdalReads::Vsi)
                .gdal_threads(AT_ONCE)
        };
        let found = site.search(&session().build()?)?;
        site::check_report(found.report())?;
        let items = &found.items().items;
        let files = items
            .iter()
            .flat_map(|item| ["nbart_red", "nbart_nir_1"].map(|key| item.assets.get(key)))
            .take(AT_ONCE)
            .map(|asset| Ok(Location::parse(&asset.context("a band is missing")?.href)?))
            .collect::<Result<Vec<_>>>()?;
        let first = site::first_asset(found.items())?;
        let truth = open_and_read(&session().build()?, found.items(), Backend::Cog)?;
        site.check_truth(&items[0].id, &truth)?;

        let defaults = session().gdal_option("GDAL_DISABLE_READDIR_ON_OPEN", "FALSE");
        let ways = vec![
            Way::of("gdal, its defaults", defaults.build()?, Backend::Gdal),
            Way::of("gdal, tuned", session().build()?, Backend::Gdal),
            Way::of("async-tiff", session().build()?, Backend::AsyncTiff),
            Way::of("cog", session().build()?, Backend::Cog),
        ];
        let runtime = Runtime::new()?;
        for way in &ways {
            way.forget()?;
            site.clear_log();
            let block = runtime.block_on(way.read(&first, Some(BLOCK)))?;
            println!(
                "{}: {} requests for one cold block by {}",
                site.name(),
                site.log().len(),
                way.name
            );
            agree(&truth, &block, &way.name)?;
        }
        let size = site::open(&session().build()?, &first, Backend::Cog)?
            .profile()
            .size;
        let blocks: Vec<Window> = (0..(size.height / BLOCK.height).min(4))
            .flat_map(|row| (0..(size.width / BLOCK.width).min(4)).map(move |col| (col, row)))
            .map(|(col, row)| Window {
                col: col * BLOCK.width,
                row: row * BLOCK.height,
                ..BLOCK
            })
            .collect();
        let mut all: Option<Vec<Pixels>> = None;
        for way in &ways {
            let read = runtime.block_on(async {
                let raster = way.open(&first).await?;
                try_join_all(
                    blocks
                        .iter()
                        .map(|block| ways::read(&*raster, Some(*block))),
                )
                .await
            })?;
            for (a, b) in all.get_or_insert_with(|| read.clone()).iter().zip(&read) {
                agree(a, b, &way.name)?;
            }
        }
        Ok(Self {
            runtime,
            ways,
            files,
            blocks,
            clock: Instant::now(),
            _cache: cache,
        })
    }

    /// Nothing is known of the file: open it and read one block.
    fn cold(&self, criterion: &mut Criterion, latency: &str) {
        let mut group = criterion.benchmark_group("cold-first-read");
        group.sampling_mode(SamplingMode::Flat);
        group.throughput(Throughput::Bytes(BLOCK_BYTES));
        for way in &self.ways {
            group.bench_function(BenchmarkId::new(latency, &way.name), |bencher| {
                bencher.iter_custom(|times| {
                    let work = async |way: &Way| way.read(&self.files[0], Some(BLOCK)).await;
                    way.cold(&self.runtime, times, || self.clock.elapsed(), work)
                });
            });
        }
        group.finish();
    }

    /// The same block of the same open file, again.
    fn cached(&self, criterion: &mut Criterion) {
        let mut group = criterion.benchmark_group("cached-second-read");
        group.throughput(Throughput::Bytes(BLOCK_BYTES));
        for way in &self.ways {
            let raster = must(self.runtime.block_on(way.open(&self.files[0])));
            let read = || must(self.runtime.block_on(ways::read(&*raster, Some(BLOCK))));
            read();
            group.bench_function(&way.name, |bencher| bencher.iter(read));
        }
        group.finish();
    }

    /// Other blocks of one open file, one after the other: time per block.
    fn sequential(&self, criterion: &mut Criterion) {
        let mut group = criterion.benchmark_group("sequential-reuse");
        group.sampling_mode(SamplingMode::Flat);
        group.throughput(Throughput::Bytes(BLOCK_BYTES));
        for way in &self.ways {
            group.bench_function(&way.name, |bencher| {
                bencher.iter_custom(|times| {
                    let mut total = Duration::ZERO;
                    for _ in 0..times {
                        must(way.forget());
                        let raster = must(self.runtime.block_on(way.open(&self.files[0])));
                        let start = Instant::now();
                        for block in &self.blocks {
                            must(self.runtime.block_on(ways::read(&*raster, Some(*block))));
                        }
                        total += start.elapsed() / u32::try_from(self.blocks.len()).unwrap_or(1);
                    }
                    total
                });
            });
        }
        group.finish();
    }

    /// Five cold files at once: time of all.
    fn concurrent(&self, criterion: &mut Criterion, latency: &str) {
        let mut group = criterion.benchmark_group(format!("concurrent-{AT_ONCE}"));
        group.sampling_mode(SamplingMode::Flat);
        group.throughput(Throughput::Bytes(BLOCK_BYTES * self.files.len() as u64));
        for way in &self.ways {
            group.bench_function(BenchmarkId::new(latency, &way.name), |bencher| {
                bencher.iter_custom(|times| {
                    let work = async |way: &Way| {
                        try_join_all(self.files.iter().map(|file| way.read(file, Some(BLOCK))))
                            .await
                    };
                    way.cold(&self.runtime, times, || self.clock.elapsed(), work)
                });
            });
        }
        group.finish();
    }
}
