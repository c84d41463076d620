//! One tile from each of many files: which reader, and how many at once?
//!
//! The report of "Understanding GDAL performance in the cloud" from one command: as many files of the
//! same kind, the centre tile of each, open and read timed apart, throughput at its peak.

mod backend;
mod limit;
mod report;
mod run;
mod text;

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use rss_testbed::{Layout, geotiff};

pub use self::{
    backend::Backend,
    limit::DecodeLimit,
    report::{Counts, Histogram, Report, Workload, bin_edges_ms},
    run::{Finished, Run},
};
pub(crate) use self::{limit::decode, run::hex};
use crate::{
    Origin, Program, Spread, Step, Watch,
    servers::{BUCKET, Servers, Stock, open_many_files},
};

/// Pixels a side of a tile.
pub(crate) const TILE: u32 = 512;
/// Pixels a side of a file: three by three tiles.
const SIDE: u32 = 3 * TILE;
/// Column and row of the centre tile.
const CENTRE: u32 = 1;
/// Distinct files; the others hold the same bytes under other keys.
pub(crate) const CONTENTS: usize = 24;
/// Files of one folder: the bands of a scene.
const BANDS: usize = 9;
/// All tiles of a run are kept, as the array that a user would want: half a megabyte each.
const MOST_FILES: usize = 8192;
/// More requests under way than this run out of file descriptors.
const MOST_AT_ONCE: usize = 512;

/// What is compared.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Settings {
    /// Files to read.
    pub files: usize,
    /// The time before the first byte of each answer, in milliseconds.
    pub latency_ms: u64,
    /// How many files are under way at once, one run for each.
    pub concurrency: Vec<usize>,
    /// The readers.
    pub backends: Vec<Backend>,
    /// Runs of each reader at each concurrency.
    pub repeats: usize,
    /// Threads that decode; GDAL decodes where it reads.
    pub threads: usize,
}

impl Settings {
    /// Says what cannot be run.
    ///
    /// # Errors
    ///
    /// The first number that is out of range, or a backend that this build lacks.
    pub fn check(&self) -> Result<()> {
        let inside = |name: &str, value: usize, most: usize| {
            ensure!(
                (1..=most).contains(&value),
                "{name} is {value}, expected 1 to {most}"
            );
            Ok(())
        };
        inside("--files", self.files, MOST_FILES)?;
        inside("--repeats", self.repeats, 100)?;
        inside("--threads", self.threads, 1024)?;
        ensure!(
            !self.concurrency.is_empty(),
            "--concurrency names no number"
        );
        ensure!(!self.backends.is_empty(), "--backends names none");
        for &at_once in &self.concurrency {
            inside("--concurrency", at_once, MOST_AT_ONCE)?;
        }
        for backend in &self.backends {
            backend.check_built()?;
        }
        Ok(())
    }
}

/// Runs the comparison.
///
/// # Errors
///
/// As [`Settings::check`]; if a read fails, or two ways do not return the same pixels.
pub async fn run(
    settings: &Settings,
    origin: Origin,
    program: &Program,
    watch: Watch<'_>,
) -> Result<Report> {
    settings.check()?;
    open_many_files();
    let of_round = |backend: &Backend| match backend.is_told() {
        true => settings.concurrency.len(),
        false => 1,
    };
    let rounds: usize = settings.backends.iter().map(of_round).sum();
    let rounds = rounds * settings.repeats;
    let step = |done: usize, now: &str| {
        watch(Step {
            done,
            of: rounds,
            now,
        });
    };
    step(0, "making files");
    let stock = Stock::Gather {
        files: settings.files,
        latency_ms: settings.latency_ms,
    };
    let mut servers = Servers::start(program, &stock).await?;
    let endpoint = servers.endpoints.first().cloned().unwrap_or_default();
    step(0, "decoding alone");
    let tiles = limit::stored_tiles(&endpoint, settings.files).await?;
    let limit = limit::measure(tiles.clone(), origin.machine.cores).await?;
    let sizes = |file: usize| tiles.get(file % CONTENTS).map_or(0, Bytes::len);
    let chunk_bytes = Spread::of((0..settings.files).map(|file| sizes(file) as f64));
    let total_bytes = (0..settings.files).map(|file| sizes(file) as u64).sum();
    let index = backend::Index::of(settings, &endpoint).await?;

    let mut runs: Vec<Run> = Vec::with_capacity(rounds);
    for repeat in 0..settings.repeats {
        for &at_once in &settings.concurrency {
            // Side by side in time, so that a busy minute of the machine falls on all.
            for &backend in &settings.backends {
                // What finds the number by itself runs once in each round, last.
                if !backend.is_told() && Some(&at_once) != settings.concurrency.last() {
                    continue;
                }
                step(runs.len(), &format!("{backend}, {at_once} at once"));
                let readers = backend.readers(&endpoint, settings, at_once, &index)?;
                servers.asked(0).await?;
                let measured = run::measure(&readers, settings.files).await?;
                for reader in &readers {
                    reader.forget().await?;
                }
                let asked = servers.asked(0).await?;
                let run = measured.run(backend, at_once, repeat, asked, limit.tiles_per_s);
                if let Some(first) = runs.first()
                    && first.sha256 != run.sha256
                {
                    bail!(
                        "{backend} at {at_once} returns other pixels than {} at {}",
                        first.backend,
                        first.concurrency
                    );
                }
                runs.push(run);
            }
        }
    }
    step(rounds, "done");
    Ok(Report::new(
        origin,
        settings.clone(),
        Workload {
            files: settings.files,
            contents: CONTENTS.min(settings.files),
            tile: [TILE, TILE],
            dtype: "int16",
            compression: "DEFLATE",
            predictor: 2,
            chunk_bytes,
            total_bytes,
        },
        limit,
        runs,
    ))
}

/// Returns the key of a file: the bands of a scene share a folder, as on S3.
pub(crate) fn key(file: usize) -> String {
    let (scene, band) = (file / BANDS, file % BANDS + 1);
    let name = format!("LC08_L1TP_106{scene:03}_T1");
    format!("c1/L8/106/{scene:03}/{name}/{name}_B{band}.TIF")
}

/// Returns a file's location.
fn href(file: usize) -> String {
    format!("s3://{BUCKET}/{}", key(file))
}

/// Returns the bytes of a distinct file. The noise in it makes its centre tile as large as those of the
/// published report: 241 to 467 kB, in the middle 386 kB.
pub(crate) fn content(number: usize) -> Result<Bytes> {
    let share = number as f64 / (CONTENTS - 1) as f64;
    let amplitude = amplitude(share);
    geotiff(SIDE, SIDE, Layout::Tiles, |col, row| {
        noisy(number as u64, amplitude, col, row)
    })
}

/// Returns the noise of the file at a share of all, sorted by size.
fn amplitude(share: f64) -> u64 {
    // Most files lie above the middle of the sizes, as in the published report.
    let bits = 11.7 - 6.5 * (1.0 - share).powf(1.7);
    bits.exp2() as u64
}

/// Returns a pixel: a smooth field and noise of a given amplitude.
pub(crate) fn noisy(seed: u64, amplitude: u64, col: u32, row: u32) -> i16 {
    let wave = |value: u32, period: u32| {
        let phase = value % period;
        u64::from(phase.min(period - phase))
    };
    // The finaliser of splitmix64: every bit of the key stirs every bit of the result.
    let mut z =
        (seed << 48 ^ u64::from(row) << 24 ^ u64::from(col)).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    let value = 5000 + wave(col, 1400) + wave(row, 1100) + z % amplitude.max(1);
    i16::try_from(value).unwrap_or(i16::MAX)
}

/// Returns how long a time was, in seconds.
fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}
