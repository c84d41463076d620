//! One run: so many workers take files from one list until it is empty.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use futures::StreamExt;
use rss_core::{
    Backend, Pixels,
    gather::{self, Concurrency, Options, RowOrder},
};
use serde::Serialize;
use tokio::task::JoinSet;

use super::{
    backend::{Gathering, Reader},
    report::{Histogram, bin_of},
    seconds,
};
use crate::{Spread, digest::sha256, machine::cpu_time, ms, servers::Asked};

/// Points that the curve of a run keeps.
const POINTS: usize = 200;

/// Files that an adaptive gather has under way at first.
const ADAPTIVE_STARTS_WITH: usize = 32;

/// What one run of a backend took.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub(crate) struct Run {
    /// The reader.
    pub(crate) backend: super::Backend,
    /// Files under way at once.
    pub(crate) concurrency: usize,
    /// Which of the repeats, from 0.
    pub(crate) repeat: usize,
    /// Files read.
    pub(crate) files: usize,
    /// From the start to the last file.
    pub(crate) wall_s: f64,
    /// Processor time of this process, all its threads, user and system.
    pub(crate) cpu_s: f64,
    /// The same for one tile, in milliseconds.
    pub(crate) cpu_ms_per_tile: f64,
    /// Files over the wall time.
    pub(crate) tiles_per_s: f64,
    /// The most that files done over time since the start came to, at any file.
    pub(crate) peak_tiles_per_s: f64,
    /// The peak as a share of what decoding alone allows.
    pub(crate) decode_limit_share: f64,
    /// Requests that the server saw.
    pub(crate) requests: u64,
    /// The same for one tile.
    pub(crate) requests_per_tile: f64,
    /// Bytes of bodies that the server sent.
    pub(crate) bytes: u64,
    /// From nothing to an open file.
    pub(crate) open_ms: Spread,
    /// From an open file to the pixels.
    pub(crate) read_ms: Spread,
    /// Both.
    pub(crate) total_ms: Spread,
    /// The share of open in the sum of both, over all files.
    pub(crate) open_share: f64,
    /// The whole of each worker's first file: threads, connections, what a library sets up.
    pub(crate) first_file_ms: Spread,
    /// Files done over time.
    pub(crate) finished: Vec<Finished>,
    /// Latencies of all files.
    pub(crate) histogram: Histogram,
    /// SHA-256 over the samples of all tiles in the order of the files.
    pub(crate) sha256: String,
}

/// So many files were done after so many seconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Finished {
    /// Files.
    pub(crate) files: usize,
    /// Seconds since the start.
    pub(crate) seconds: f64,
}

/// A file that is done.
struct Done {
    file: usize,
    is_first: bool,
    open: Duration,
    read: Duration,
    /// Since the start.
    at: Duration,
    pixels: Pixels,
}

/// What a run gave, in the order that files were done.
pub(super) struct Measured {
    done: Vec<Done>,
    wall: Duration,
    cpu: Duration,
    /// Files under way at last, where the reader found that by itself.
    found: Option<usize>,
}

/// Reads a tile of each file by one call of `gather`.
async fn gathered(gathering: &Gathering) -> Result<Measured> {
    let Gathering {
        session,
        requests,
        concurrency,
    } = gathering.clone();
    let at_once = match concurrency {
        Concurrency::Fixed(at_once) => Some(at_once.get()),
        _ => None,
    };
    // Rows are kept as they are done; nothing waits for its turn.
    let options = Options::new()
        .with_backend(Backend::Cog)
        .with_concurrency(concurrency)
        .with_order(RowOrder::Arrival);
    let mut done: Vec<Done> = Vec::with_capacity(requests.len());
    let cpu = cpu_time()?;
    let mut rows = gather::gather(&session, requests, options)?;
    while let Some(row) = rows.next().await {
        done.push(Done {
            file: row.number,
            // What starts with the gather meets new connections.
            is_first: row.number < at_once.unwrap_or(ADAPTIVE_STARTS_WITH),
            open: row.open,
            read: row.read,
            at: row.finished,
            pixels: row.tile?.pixels,
        });
    }
    let cpu = cpu_time()?.saturating_sub(cpu);
    let found = match at_once {
        Some(_) => None,
        None => Some(rows.report().concurrency),
    };
    Ok(Measured::new(done, cpu, found))
}

/// Reads a tile of each file, by a worker for each reader.
pub(super) async fn measure(readers: &[Reader], files: usize) -> Result<Measured> {
    if let [Reader::Gather(gathering)] = readers {
        return gathered(gathering).await;
    }
    let next = Arc::new(AtomicUsize::new(0));
    let mut workers = JoinSet::new();
    let cpu = cpu_time()?;
    let start = Instant::now();
    for reader in readers {
        let (reader, next) = (reader.clone(), Arc::clone(&next));
        workers.spawn(async move {
            let mut done = Vec::new();
            loop {
                let file = next.fetch_add(1, Ordering::Relaxed);
                if file >= files {
                    return Ok(done);
                }
                let tile = reader.read(file).await?;
                done.push(Done {
                    file,
                    is_first: done.is_empty(),
                    open: tile.open,
                    read: tile.read,
                    at: start.elapsed(),
                    pixels: tile.pixels,
                });
            }
        });
    }
    let mut done: Vec<Done> = Vec::with_capacity(files);
    while let Some(worker) = workers.join_next().await {
        let worker: Result<Vec<Done>> = worker?;
        done.extend(worker?);
    }
    let cpu = cpu_time()?.saturating_sub(cpu);
    Ok(Measured::new(done, cpu, None))
}

impl Measured {
    fn new(mut done: Vec<Done>, cpu: Duration, found: Option<usize>) -> Self {
        done.sort_by_key(|done| done.at);
        let wall = done.last().map_or(Duration::ZERO, |done| done.at);
        Self {
            done,
            wall,
            cpu,
            found,
        }
    }

    pub(super) fn run(
        self,
        backend: super::Backend,
        concurrency: usize,
        repeat: usize,
        asked: Asked,
        limit: f64,
    ) -> Run {
        let done = &self.done;
        let files = done.len();
        let per_tile = |value: f64| value / files.max(1) as f64;
        let finished: Vec<Finished> = done
            .iter()
            .zip(1..)
            .map(|(done, files)| Finished {
                files,
                seconds: seconds(done.at),
            })
            .collect();
        let peak = finished
            .iter()
            .map(|point| point.files as f64 / point.seconds.max(1e-9))
            .fold(0.0, f64::max);
        let (opens, reads): (f64, f64) = done.iter().fold((0.0, 0.0), |(open, read), done| {
            (open + seconds(done.open), read + seconds(done.read))
        });
        let mut histogram = Histogram::default();
        for done in done {
            histogram.open.add(bin_of(ms(done.open)));
            histogram.read.add(bin_of(ms(done.read)));
            histogram.total.add(bin_of(ms(done.open + done.read)));
        }
        Run {
            backend,
            concurrency: self.found.unwrap_or(concurrency),
            repeat,
            files,
            wall_s: seconds(self.wall),
            cpu_s: seconds(self.cpu),
            cpu_ms_per_tile: per_tile(ms(self.cpu)),
            tiles_per_s: files as f64 / seconds(self.wall).max(1e-9),
            peak_tiles_per_s: peak,
            decode_limit_share: peak / limit,
            requests: asked.requests,
            requests_per_tile: per_tile(asked.requests as f64),
            bytes: asked.bytes,
            open_ms: Spread::of_ms(done.iter().map(|done| done.open)),
            read_ms: Spread::of_ms(done.iter().map(|done| done.read)),
            total_ms: Spread::of_ms(done.iter().map(|done| done.open + done.read)),
            open_share: opens / (opens + reads).max(1e-9),
            first_file_ms: Spread::of_ms(
                done.iter()
                    .filter(|done| done.is_first)
                    .map(|done| done.open + done.read),
            ),
            finished: thinned(&finished),
            histogram,
            sha256: self.digest(),
        }
    }

    fn digest(mut self) -> String {
        self.done.sort_unstable_by_key(|done| done.file);
        sha256(self.done.iter().map(|done| done.pixels.to_le_bytes()))
    }
}

/// Keeps so many points, the first and the last among them.
fn thinned(points: &[Finished]) -> Vec<Finished> {
    let last = points.len().saturating_sub(1);
    let keep = POINTS.min(points.len());
    (0..keep)
        .filter_map(|n| {
            points
                .get(n * last / keep.saturating_sub(1).max(1))
                .copied()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thinned_curve_keeps_its_ends() {
        let points: Vec<Finished> = (1..=1278)
            .map(|files| Finished {
                files,
                seconds: files as f64,
            })
            .collect();
        let thin = thinned(&points);
        assert_eq!(thin.len(), POINTS);
        assert_eq!((thin[0].files, thin[POINTS - 1].files), (1, 1278));
        assert_eq!(thinned(&points[..3]).len(), 3);
        assert_eq!(thinned(&points[..1]).len(), 1);
        assert!(thinned(&[]).is_empty());
    }
}
