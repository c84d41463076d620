//! How much processor time does a cold tile cost: a file opened of which nothing is known, one tile
//! fetched and decoded?
//!
//! `cargo bench -p rss_core --features bench_testbed --bench cpu_per_tile`. The times are not of the clock
//! but of this process, all its threads, user and system; the servers are another process. One file
//! after the other, no latency; one iteration is one tile, each at another offset in the file. Beside the
//! readers: object_store with libdeflate by hand, libdeflate alone on the same tiles, and a copy.

#![expect(clippy::print_stdout, reason = "a bench reports")]

use std::{cell::Cell, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use criterion::{Criterion, SamplingMode, Throughput};
use libdeflater::Decompressor;
use ndarray::Array3;
use object_store::{ObjectStore, ObjectStoreExt, aws::AmazonS3Builder, path::Path as Key};
use rss_bench::{
    apart::{self, Apart},
    harness::must,
    site::{self, BLOCK, Site, agree, open_and_read},
    tiles::{TileTable, Tiles},
    ways::Way,
};
use rss_core::{Backend, GdalReads, Location, Pixels, Size, Window};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use tokio::runtime::Runtime;

fn main() -> Result<()> {
    if apart::serve_if_asked()? {
        return Ok(());
    }
    let Some(mut site) = rss_bench::site!("cpu_per_tile")? else {
        return Ok(());
    };
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    let (cache, dir) = (TempDir::new()?, TempDir::new()?);
    let servers = match &site.bed {
        Some(bed) => Some(Apart::start(
            bed.scenes().first().context("no scene")?.side,
        )?),
        None => None,
    };
    let found = {
        let session = site.session(cache.path()).build()?;
        site.search(&session)?.with_bands(["nbart_red"])
    };
    site::check_report(found.report())?;
    let local = found.download(dir.path())?;
    site.clear_log();
    site.s3_endpoint = servers.as_ref().map(|servers| servers.s3_endpoint.clone());

    let session = || site.session(cache.path()).gdal_reads(GdalReads::Vsi);
    let file = site::first_asset(found.items())?;
    let truth = open_and_read(&session().build()?, found.items(), Backend::Cog)?;
    site.check_truth(&found.items().items[0].id, &truth)?;
    let defaults = session().gdal_option("GDAL_DISABLE_READDIR_ON_OPEN", "FALSE");
    let ways = [
        Way::of("cog", session().build()?, Backend::Cog),
        Way::of("gdal, tuned", session().build()?, Backend::Gdal),
        Way::of("gdal, its defaults", defaults.build()?, Backend::Gdal),
        Way::of(
            "async-tiff",
            session().cpu_threads(1).build()?,
            Backend::AsyncTiff,
        ),
    ];
    let size = site::open(&session().build()?, &file, Backend::Cog)?
        .profile()
        .size;
    let hand = ByHand::new(&site, &file, size)?;
    let runtime = Runtime::new()?;
    let windows = whole_tiles(size);
    for window in windows.iter().take(2) {
        let read = runtime.block_on(hand.read(*window))?;
        for way in &ways {
            way.forget()?;
            let pixels = runtime.block_on(way.read(&file, Some(*window)))?;
            agree(&read, &pixels, &way.name)?;
        }
    }
    println!(
        "{}: {} requests to the servers of this process since",
        site.name(),
        site.log().len()
    );

    let next = Cell::new(0);
    let window = || {
        next.set((next.get() + 1) % windows.len());
        Some(windows[next.get()])
    };
    let mut group = criterion.benchmark_group("cpu-per-tile");
    group.sampling_mode(SamplingMode::Flat);
    group.throughput(Throughput::Elements(1));
    for way in &ways {
        group.bench_function(&way.name, |bencher| {
            bencher.iter_custom(|times| {
                let work = async |way: &Way| way.read(&file, window()).await;
                way.cold(&runtime, times, processor_time, work)
            });
        });
    }
    group.bench_function("object_store and libdeflate by hand", |bencher| {
        bencher.iter_custom(|times| {
            let start = processor_time();
            for _ in 0..times {
                must(runtime.block_on(hand.read(window().unwrap_or(BLOCK))));
            }
            processor_time() - start
        });
    });
    let tiles = Tiles::of(site::first_asset(&local)?.as_local().context("not local")?)?;
    let count = u32::try_from(tiles.stored.len())?;
    println!(
        "{}: {count} tiles of {} bytes on average",
        site.name(),
        tiles.stored_bytes() / tiles.stored.len()
    );
    group.bench_function("libdeflate alone", |bencher| {
        bencher.iter_custom(|times| {
            let (mut inflater, mut out) = (Decompressor::new(), vec![0; tiles.bytes]);
            let start = processor_time();
            for _ in 0..times.div_ceil(count.into()) {
                must(tiles.inflate(&mut inflater, &mut out));
            }
            per_tile(processor_time() - start, times, count)
        });
    });
    group.bench_function("a copy alone", |bencher| {
        bencher.iter_custom(|times| {
            let (from, mut to) = (vec![1; tiles.bytes], vec![0; tiles.bytes]);
            let start = processor_time();
            for _ in 0..times.div_ceil(count.into()) {
                tiles.copy(&from, &mut to);
            }
            per_tile(processor_time() - start, times, count)
        });
    });
    group.finish();
    criterion.final_summary();
    Ok(())
}

/// Returns what `times` tiles take, of a time that whole files of `count` tiles took.
fn per_tile(time: Duration, times: u64, count: u32) -> Duration {
    let done = times.div_ceil(count.into()) * u64::from(count);
    time.mul_f64(times as f64 / done as f64)
}

/// Returns the time that processors have spent on this process, all its threads.
fn processor_time() -> Duration {
    must(Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)))
}

/// Returns the windows of all tiles that the image does not cut.
fn whole_tiles(size: Size) -> Vec<Window> {
    let (rows, cols) = (size.height / 512, size.width / 512);
    let at = |n: u32| Window {
        col: n % cols * 512,
        row: n / cols * 512,
        ..BLOCK
    };
    (0..rows * cols).map(at).collect()
}

/// A file that is read with nothing but a store and a codec: a lower bound for readers over
/// `object_store`.
struct ByHand {
    store: Arc<dyn ObjectStore>,
    key: Key,
    /// Tiles side by side.
    across: u32,
}

impl ByHand {
    fn new(site: &Site, file: &Location, size: Size) -> Result<Self> {
        let Location::S3 { bucket, key } = file else {
            anyhow::bail!("{file} is not on S3");
        };
        // TLS for the store's own client, which takes the provider of the process; a session brings its own.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_region("ap-southeast-2")
            .with_skip_signature(true);
        let store = match &site.s3_endpoint {
            Some(url) => builder.with_endpoint(url).with_allow_http(true).build()?,
            None => builder.build()?,
        };
        Ok(Self {
            store: Arc::new(store),
            key: Key::parse(key)?,
            across: size.width.div_ceil(512),
        })
    }

    /// Reads the table of tiles, then the tile at a window.
    async fn read(&self, window: Window) -> Result<Pixels> {
        let head = self.store.get_range(&self.key, 0..16 << 10).await?;
        let table = TileTable::parse(&head)?;
        let n = window.row / 512 * self.across + window.col / 512;
        let range = table.ranges.get(n as usize).context("no such tile")?;
        let stored = self.store.get_range(&self.key, range.clone()).await?;
        let mut bytes = vec![0; table.bytes];
        let length = Decompressor::new().zlib_decompress(&stored, &mut bytes)?;
        ensure!(length == table.bytes, "a tile of {length} bytes");
        let mut samples = Vec::with_capacity(bytes.len() / 2);
        for row in bytes.chunks_exact(1024) {
            let mut sum = 0_i16;
            samples.extend(row.chunks_exact(2).map(|pair| {
                sum = sum.wrapping_add(i16::from_le_bytes([pair[0], pair[1]]));
                sum
            }));
        }
        Ok(Pixels::I16(Array3::from_shape_vec((1, 512, 512), samples)?))
    }
}
