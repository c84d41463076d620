//! Which backend reads a block sooner: GDAL over `/vsis3/`, or async-tiff over `object_store`?
//!
//! `cargo bench -p rss_core --features bench_live --bench async_tiff_vs_vsi` asks live DEA; with
//! `--features bench_testbed` servers on loopback, 30 ms away. For both backends: the first read of a
//! file with nothing known of it, the same block again, further blocks of the open file one after the
//! other, and five files at once.

#![expect(clippy::print_stdout, reason = "a bench reports")]

mod harness;
mod place;

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use criterion::{Criterion, SamplingMode, Throughput};
use harness::must;
use place::{BLOCK, Place, agree, first_asset, open, open_and_read, read};
use rss_core::{Backend, Location, OpenRaster, Raster, ReadRequest, Session, Window, reader};
use stac::ItemCollection;
use tempfile::TempDir;

/// Reads at once.
const AT_ONCE: usize = 5;
const BACKENDS: [Backend; 2] = [Backend::Gdal, Backend::AsyncTiff];
const BLOCK_BYTES: u64 = 512 * 512 * 2;

fn main() -> Result<()> {
    let Some(place) = harness::place("async_tiff_vs_vsi")? else {
        return Ok(());
    };
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(100))
        .configure_from_args();
    let run = Run::check(&place)?;
    run.cold(&mut criterion);
    run.cached(&mut criterion);
    run.sequential(&mut criterion);
    run.concurrent(&mut criterion);
    criterion.final_summary();
    Ok(())
}

struct Run {
    session: Session,
    items: ItemCollection,
    files: Vec<Location>,
    /// Blocks of one file that do not overlap.
    blocks: Vec<Window>,
    _cache: TempDir,
}

impl Run {
    /// Finds the files, and checks that both backends read the same pixels.
    fn check(place: &Place) -> Result<Self> {
        let cache = TempDir::new()?;
        let session = place.session(cache.path()).build()?;
        let found = place.search(&session)?;
        place::check_report(found.report())?;
        let items = &found.items().items;
        let files = items
            .iter()
            .flat_map(|item| ["nbart_red", "nbart_nir_1"].map(|key| item.assets.get(key)))
            .take(AT_ONCE)
            .map(|asset| Ok(Location::parse(&asset.context("a band is missing")?.href)?))
            .collect::<Result<Vec<_>>>()?;
        let [gdal, tiff] = BACKENDS.map(|backend| -> Result<(OpenRaster, Raster)> {
            session.clear_caches()?;
            place.clear_log();
            let raster = open(&session, &first_asset(found.items())?, backend)?;
            let block = read(&raster)?;
            let requests = place.log().len();
            println!(
                "{}: {requests} requests for one cold block by {backend}",
                place.name()
            );
            Ok((raster, block))
        });
        let ((gdal, gdal_block), (tiff, tiff_block)) = (gdal?, tiff?);
        agree(&gdal_block, &tiff_block, "the two backends")?;
        place.check_truth(&items[0].id, &tiff_block)?;
        let size = gdal.profile().size;
        let blocks: Vec<Window> = (0..(size.height / BLOCK.height).min(4))
            .flat_map(|row| (0..(size.width / BLOCK.width).min(4)).map(move |col| (col, row)))
            .map(|(col, row)| Window {
                col: col * BLOCK.width,
                row: row * BLOCK.height,
                ..BLOCK
            })
            .collect();
        for block in &blocks {
            let request = ReadRequest::new().with_window(*block);
            agree(&gdal.read(&request)?, &tiff.read(&request)?, "a block")?;
        }
        Ok(Self {
            items: found.items().clone(),
            session,
            files,
            blocks,
            _cache: cache,
        })
    }

    /// Nothing is known of the file: open it and read one block.
    fn cold(&self, criterion: &mut Criterion) {
        let mut group = criterion.benchmark_group("cold-first-read");
        group.sampling_mode(SamplingMode::Flat);
        group.throughput(Throughput::Bytes(BLOCK_BYTES));
        for backend in BACKENDS {
            group.bench_function(backend.name(), |bencher| {
                bencher.iter_custom(|times| {
                    self.timed_cold(times, || {
                        open_and_read(&self.session, &self.items, backend)?;
                        Ok(())
                    })
                });
            });
        }
        group.finish();
    }

    /// The same block of the same open file, again.
    fn cached(&self, criterion: &mut Criterion) {
        let mut group = criterion.benchmark_group("cached-second-read");
        group.throughput(Throughput::Bytes(BLOCK_BYTES));
        for backend in BACKENDS {
            let raster = must(open(&self.session, &self.files[0], backend));
            must(read(&raster));
            group.bench_function(backend.name(), |bencher| {
                bencher.iter(|| must(read(&raster)));
            });
        }
        group.finish();
    }

    /// Other blocks of one open file, one after the other: time per block.
    fn sequential(&self, criterion: &mut Criterion) {
        let mut group = criterion.benchmark_group("sequential-reuse");
        group.sampling_mode(SamplingMode::Flat);
        group.throughput(Throughput::Bytes(BLOCK_BYTES));
        for backend in BACKENDS {
            group.bench_function(backend.name(), |bencher| {
                bencher.iter_custom(|times| {
                    let mut total = Duration::ZERO;
                    for _ in 0..times {
                        must(self.session.clear_caches());
                        let raster = must(open(&self.session, &self.files[0], backend));
                        let start = Instant::now();
                        for block in &self.blocks {
                            let request = ReadRequest::new().with_window(*block);
                            must(raster.read(&request));
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
    fn concurrent(&self, criterion: &mut Criterion) {
        let runtime = must(tokio::runtime::Runtime::new());
        let mut group = criterion.benchmark_group(format!("concurrent-{AT_ONCE}"));
        group.sampling_mode(SamplingMode::Flat);
        group.throughput(Throughput::Bytes(BLOCK_BYTES * self.files.len() as u64));
        for backend in BACKENDS {
            group.bench_function(backend.name(), |bencher| {
                bencher.iter_custom(|times| {
                    self.timed_cold(times, || {
                        runtime.block_on(async {
                            let reads = self.files.iter().map(|file| async move {
                                let raster = reader::open(&self.session, file, backend).await?;
                                let request = ReadRequest::new().with_window(BLOCK);
                                raster.read(&request).await
                            });
                            futures::future::try_join_all(reads).await?;
                            Ok(())
                        })
                    })
                });
            });
        }
        group.finish();
    }

    fn timed_cold(&self, times: u64, work: impl Fn() -> Result<()>) -> Duration {
        let mut total = Duration::ZERO;
        for _ in 0..times {
            must(self.session.clear_caches());
            let start = Instant::now();
            must(work());
            total += start.elapsed();
        }
        total
    }
}
