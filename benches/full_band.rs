//! How fast is a whole band of 10980 x 10980 pixels read from the local disk, and what of it is the
//! codec?
//!
//! `cargo bench -p rss_core --features bench_testbed --bench full_band`. DEFLATE with predictor 2, int16.
//! On one thread beside libdeflate alone on the same tiles and a copy of the same size, and on all
//! cores; GDAL as it comes and with its own threads. The file is in the page cache.

#![expect(clippy::print_stdout, reason = "a bench reports")]

mod harness;
mod place;

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use harness::must;
use libdeflater::Decompressor;
use place::{agree, open, open_and_read};
use rss_core::{Backend, Location, ReadRequest, Session};
use tempfile::TempDir;

fn main() -> Result<()> {
    let Some(place) = harness::place("full_band")? else {
        return Ok(());
    };
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .configure_from_args();
    let (cache, dir) = (TempDir::new()?, TempDir::new()?);
    let session = place.session(cache.path()).build()?;
    let found = place.search(&session)?.with_bands(["nbart_red"]);
    place::check_report(found.report())?;
    let truth = open_and_read(&session, found.items(), Backend::AsyncTiff)?;
    place.check_truth(&found.items().items[0].id, &truth)?;
    place.clear_log();
    let local = found.download(dir.path())?;
    println!(
        "{}: downloaded in {} requests",
        place.name(),
        place.log().len()
    );
    let file = place::first_asset(&local)?;
    let path = file.as_local().context("not local")?;

    let tiles = Tiles::of(path)?;
    println!(
        "{}: {} tiles of {} bytes, {:.0} MB compressed",
        place.name(),
        tiles.stored.len(),
        tiles.bytes,
        tiles.stored.iter().map(Vec::len).sum::<usize>() as f64 / 1e6
    );
    let session = |threads: usize, gdal_threads: &str| {
        Session::builder()
            .cpu_threads(threads)
            .gdal_option("GDAL_NUM_THREADS", gdal_threads)
            .build()
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (one, all) = (session(1, "1")?, session(cores, "ALL_CPUS")?);
    let pixels = read(&one, &file, Backend::AsyncTiff)?;
    agree(&pixels, &read(&one, &file, Backend::Gdal)?, "gdal")?;
    agree(
        &pixels,
        &read(&all, &file, Backend::AsyncTiff)?,
        "all cores",
    )?;

    let mut group = criterion.benchmark_group("full-band");
    group.sampling_mode(SamplingMode::Flat);
    group.throughput(Throughput::Bytes(pixels.pixels.len() as u64 * 2));
    group.bench_function("one thread/libdeflate alone", |bencher| {
        let mut inflater = Decompressor::new();
        let mut out = vec![0; tiles.bytes];
        bencher.iter(|| must(tiles.inflate(&mut inflater, &mut out)));
    });
    group.bench_function("one thread/copy alone", |bencher| {
        let from = vec![1_u8; tiles.bytes];
        let mut to = vec![0_u8; tiles.bytes];
        bencher.iter(|| {
            for _ in &tiles.stored {
                std::hint::black_box(&mut to).copy_from_slice(std::hint::black_box(&from));
            }
        });
    });
    for (name, session) in [("one thread", &one), ("all cores", &all)] {
        for backend in [Backend::AsyncTiff, Backend::Gdal] {
            group.bench_function(BenchmarkId::new(name, backend), |bencher| {
                bencher.iter(|| must(read(session, &file, backend)));
            });
        }
    }
    group.finish();
    criterion.final_summary();
    Ok(())
}

fn read(session: &Session, file: &Location, backend: Backend) -> Result<rss_core::Raster> {
    Ok(open(session, file, backend)?.read(&ReadRequest::new())?)
}

/// The compressed tiles of a file's first image: little-endian classic TIFF, as the testbed writes.
struct Tiles {
    stored: Vec<Vec<u8>>,
    /// Of one tile, decompressed.
    bytes: usize,
}

impl Tiles {
    fn of(path: &Path) -> Result<Self> {
        let file = std::fs::read(path)?;
        let short = |at: usize| -> Result<usize> {
            let bytes = file.get(at..at + 2).context("the file ends early")?;
            Ok(usize::from(u16::from_le_bytes(bytes.try_into()?)))
        };
        let long = |at: usize| -> Result<usize> {
            let bytes = file.get(at..at + 4).context("the file ends early")?;
            Ok(u32::from_le_bytes(bytes.try_into()?) as usize)
        };
        ensure!(
            file.starts_with(b"II*\0"),
            "not a little-endian classic TIFF"
        );
        let directory = long(4)?;
        let mut tables = [None; 2];
        for entry in 0..short(directory)? {
            let at = directory + 2 + entry * 12;
            if let Some(slot) = short(at)?.checked_sub(324).and_then(|n| tables.get_mut(n)) {
                *slot = Some((long(at + 8)?, long(at + 4)?));
            }
        }
        let [Some((offsets, count)), Some((counts, _))] = tables else {
            anyhow::bail!("no tables of tiles");
        };
        let stored = (0..count)
            .map(|n| {
                let (at, length) = (long(offsets + 4 * n)?, long(counts + 4 * n)?);
                Ok(file
                    .get(at..at + length)
                    .context("the file ends early")?
                    .to_vec())
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            stored,
            bytes: 512 * 512 * 2,
        })
    }

    fn inflate(&self, inflater: &mut Decompressor, out: &mut [u8]) -> Result<()> {
        for tile in &self.stored {
            inflater.zlib_decompress(tile, out)?;
        }
        Ok(())
    }
}
