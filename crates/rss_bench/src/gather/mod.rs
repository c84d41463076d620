//! One tile from each of many files: which reader, and how many at once?
//!
//! The report of "Understanding GDAL performance in the cloud" from one command: as many files of the
//! same kind, the centre tile of each, open and read timed apart, throughput at its peak.

mod backend;
pub(crate) mod files;
mod limit;
mod report;
mod run;
mod text;

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use bytes::Bytes;

use self::files::{CONTENTS, TILE, key};
pub(crate) use self::{
    backend::Backend,
    limit::DecodeLimit,
    report::{Counts, Report, Workload},
    run::Run,
};
use crate::{
    Origin, Program, Spread, Step, Watch,
    servers::{BUCKET, Servers, Stock, open_many_files},
};

/// All tiles of a run are kept, as the array that a user would want: half a megabyte each.
const MOST_FILES: usize = 8192;
/// More requests under way than this run out of file descriptors.
const MOST_AT_ONCE: usize = 512;

/// What is compared.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Settings {
    /// Files to read.
    pub(crate) files: usize,
    /// The time before the first byte of each answer, in milliseconds.
    pub(crate) latency_ms: u64,
    /// How many files are under way at once, one run for each.
    pub(crate) concurrency: Vec<usize>,
    /// The readers.
    pub(crate) backends: Vec<Backend>,
    /// Runs of each reader at each concurrency.
    pub(crate) repeats: usize,
    /// Threads that decode; GDAL decodes where it reads.
    pub(crate) threads: usize,
}

impl Settings {
    /// Says what cannot be run.
    ///
    /// # Errors
    ///
    /// The first number that is out of range, or a backend that this build lacks.
    pub(crate) fn check(&self) -> Result<()> {
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
pub(crate) async fn run(
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

/// Returns a file's location.
fn href(file: usize) -> String {
    format!("s3://{BUCKET}/{}", key(file))
}

/// Returns how long a time was, in seconds.
fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}
