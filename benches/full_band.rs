//! How fast is a whole band of 10980 x 10980 pixels read from the local disk, and what of it is the
//! codec?
//!
//! `cargo bench -p rss_core --features bench_testbed --bench full_band`. DEFLATE with predictor 2, int16.
//! On one thread beside libdeflate alone on the same tiles and a copy of the same size, and on all
//! cores; GDAL with its own defaults, which is one thread, and with its own threads; the crate
//! async-tiff. The file is in the page cache. What memory each takes is printed first, of a fresh process
//! each.

#![expect(clippy::print_stdout, reason = "a bench reports")]

use std::{
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use libdeflater::Decompressor;
use rss_bench::{
    harness::must,
    site::{self, agree, open_and_read},
    tiles::Tiles,
    ways::Way,
};
use rss_core::{Backend, Location, Session};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The argument of a process that reads a file in one way and says how much memory it took.
const PEAK: &str = "peak-of";

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    if let [_, what, way, path] = args.as_slice()
        && what == PEAK
    {
        return peak(way.parse()?, Path::new(path));
    }
    let Some(site) = rss_bench::site!("full_band")? else {
        return Ok(());
    };
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    let (cache, dir) = (TempDir::new()?, TempDir::new()?);
    let session = site.session(cache.path()).build()?;
    let found = site.search(&session)?.with_bands(["nbart_red"]);
    site::check_report(found.report())?;
    let truth = open_and_read(&session, found.items(), Backend::Cog)?;
    site.check_truth(&found.items().items[0].id, &truth)?;
    site.clear_log();
    let local = found.download(dir.path())?;
    println!(
        "{}: downloaded in {} requests",
        site.name(),
        site.log().len()
    );
    let file = site::first_asset(&local)?;
    let path = file.as_local().context("not local")?;

    let tiles = Tiles::of(path)?;
    println!(
        "{}: {} tiles of {} bytes, {:.0} MB compressed",
        site.name(),
        tiles.stored.len(),
        tiles.bytes,
        tiles.stored_bytes() as f64 / 1e6
    );
    let runtime = Runtime::new()?;
    let (one, all) = (ways(1)?, ways(cores())?);
    let pixels = runtime.block_on(one[0].read(&file, None))?;
    for (n, way) in all.iter().enumerate() {
        agree(
            &pixels,
            &runtime.block_on(way.read(&file, None))?,
            &way.name,
        )?;
        println!("all cores, {}: {}", way.name, measured_peak(n, path)?);
    }
    for way in &one {
        agree(
            &pixels,
            &runtime.block_on(way.read(&file, None))?,
            &way.name,
        )?;
    }

    let mut group = criterion.benchmark_group("full-band");
    group.sampling_mode(SamplingMode::Flat);
    group.throughput(Throughput::Bytes(pixels.len() as u64 * 2));
    group.bench_function("one thread/libdeflate alone", |bencher| {
        let mut inflater = Decompressor::new();
        let mut out = vec![0; tiles.bytes];
        bencher.iter(|| must(tiles.inflate(&mut inflater, &mut out)));
    });
    group.bench_function("one thread/copy alone", |bencher| {
        let (from, mut to) = (vec![1; tiles.bytes], vec![0; tiles.bytes]);
        bencher.iter(|| tiles.copy(&from, &mut to));
    });
    let clock = Instant::now();
    for (name, ways) in [("one thread", &one), ("all cores", &all)] {
        for way in ways {
            group.bench_function(BenchmarkId::new(name, &way.name), |bencher| {
                bencher.iter_custom(|times| {
                    let work = async |way: &Way| way.read(&file, None).await;
                    way.cold(&runtime, times, || clock.elapsed(), work)
                });
            });
        }
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}

/// Returns the ways to read a local file, decoding on so many threads.
fn ways(threads: usize) -> Result<[Way; 3]> {
    let ours = || Session::builder().cpu_threads(threads).build();
    let (name, gdal) = match threads {
        1 => ("gdal, its defaults", Session::builder()),
        _ => (
            "gdal, ALL_CPUS",
            Session::builder().gdal_option("GDAL_NUM_THREADS", "ALL_CPUS"),
        ),
    };
    Ok([
        Way::of("cog", ours()?, Backend::Cog),
        Way::of(name, gdal.build()?, Backend::Gdal),
        Way::of("async-tiff", ours()?, Backend::AsyncTiff),
    ])
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Reads a file in one of the ways, in a process of its own, and returns what that says of its memory.
fn measured_peak(way: usize, path: &Path) -> Result<String> {
    if !cfg!(target_os = "linux") {
        return Ok("its memory is measured on Linux only".to_owned());
    }
    let said = Command::new(std::env::current_exe()?)
        .args([PEAK, &way.to_string()])
        .arg(path)
        .output()?;
    ensure!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    Ok(String::from_utf8(said.stdout)?.trim().to_owned())
}

fn peak(way: usize, path: &Path) -> Result<()> {
    let file = Location::Local(path.to_owned());
    let ways = ways(cores())?;
    let Some(way) = ways.get(way) else {
        bail!("no way {way}");
    };
    let runtime = Runtime::new()?;
    let before = kilobytes("VmRSS:")?;
    let pixels = runtime.block_on(way.read(&file, None))?;
    let output = pixels.len() * pixels.dtype().size();
    println!(
        "an output of {:.0} MB took {:.0} MB at the most",
        output as f64 / 1e6,
        (kilobytes("VmHWM:")? - before) * 1.024e-3,
    );
    Ok(())
}

/// Returns a line of what Linux says of this process.
fn kilobytes(name: &str) -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|rest| rest.split_whitespace().next());
    Ok(value.with_context(|| format!("no {name}"))?.parse()?)
}
