//! One way to read the window over one network, again and again.

use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use futures::future::try_join_all;
use ndarray::{Array2, Axis};
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt, path::Path as Key};
use rss_core::{
    Backend, Location, Pixels, RasterReader, ReadRequest, Session, Window,
    reader::{self, Entry},
};
use serde::Serialize;
use tokio::sync::mpsc;

use super::{
    Network, Way,
    files::{File, Image, PAIRS, TILE},
    layout::{self, Layout},
};
use crate::{Spread, ms, servers::BUCKET};

/// Reads before those that count: one with new connections, one with warm ones.
pub(super) const WARM_UP: usize = 2;
/// Requests under way at once.
const AT_ONCE: usize = 256;

/// What a lane is to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) network: Network,
    pub(super) file: File,
    pub(super) way: Way,
}

/// What a lane found.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub(crate) struct Lane {
    /// The network.
    pub(crate) network: Network,
    /// The file.
    pub(crate) file: File,
    /// How its bytes were asked for.
    pub(crate) way: Way,
    /// Requests of one read that the server saw.
    pub(crate) requests: f64,
    /// Bytes of one read that the server sent.
    pub(crate) bytes: u64,
    /// The first read: connections are made in it.
    pub(crate) cold_ms: f64,
    /// All later reads that count, from the first request to the decoded pixels.
    pub(crate) warm_ms: Spread,
    /// Each range of the serial way; none of the others.
    pub(crate) ranges: Vec<Row>,
    /// The digest of the window's pixels.
    pub(crate) sha256: String,
}

/// One range of the serial way.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub(crate) struct Row {
    /// The first byte.
    pub(crate) start: u64,
    /// How many.
    pub(crate) bytes: u64,
    /// Until the answer began, in the first read.
    pub(crate) cold_first_byte_ms: f64,
    /// From there to the last byte, in the first read.
    pub(crate) cold_body_ms: f64,
    /// Until the answer began, in the reads that count.
    pub(crate) first_byte_ms: Spread,
    /// From there to the last byte, in the reads that count.
    pub(crate) body_ms: Spread,
}

/// The times of one range.
#[derive(Clone, Copy, Debug)]
struct Times {
    first_byte: Duration,
    body: Duration,
}

/// One read.
struct Read {
    took: Duration,
    /// Of the serial way.
    times: Vec<Times>,
    pixels: Array2<i16>,
}

/// What reads, with connections of its own that are not made yet.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) plan: Plan,
    store: Arc<dyn ObjectStore>,
    key: Key,
    layout: Arc<Layout>,
    raster: Arc<dyn RasterReader>,
    window: Window,
}

/// What all ways know of a file before they read: they differ in how they read the window alone.
#[derive(Clone, Debug)]
pub(super) struct Known {
    file: File,
    image: Image,
    layout: Arc<Layout>,
    entry: Entry,
}

impl Known {
    /// Reads the header of a file.
    pub(super) async fn of(file: File, endpoint: &str, image: Image) -> Result<Self> {
        let location = Location::parse(&format!("s3://{BUCKET}/{}", file.key()))?;
        let session = session(endpoint)?;
        let raster = reader::open(&session, &location, Backend::Cog).await?;
        let entry = raster.entry().await?;
        let tiles = &entry.header.levels.first().context("no image")?.tiles;
        let stored = (0..tiles.len()).map(|number| tiles.range(number).context("no range"));
        let stored = stored.collect::<Result<Vec<_>>>()?;
        Ok(Self {
            file,
            image,
            layout: Arc::new(Layout::of(file, image, &stored)?),
            entry,
        })
    }

    pub(super) fn is_of(&self, file: File, image: Image) -> bool {
        self.file == file && self.image == image
    }
}

/// Runs a lane; `done` is told of each read that counts.
pub(super) async fn run(
    reader: Reader,
    iterations: usize,
    done: mpsc::UnboundedSender<Plan>,
) -> Result<Lane> {
    let Plan { network, file, way } = reader.plan;
    let ranges = reader.layout.ranges();
    let cold = reader.read().await?;
    for _ in 1..WARM_UP {
        reader.read().await?;
    }
    let mut reads = Vec::with_capacity(iterations);
    for _ in 0..iterations {
        let read = reader.read().await?;
        ensure!(
            read.pixels == cold.pixels,
            "{} of the {} file returns other pixels the second time",
            way.name(),
            file.name()
        );
        reads.push((read.took, read.times));
        // Nobody listens where the whole has failed.
        let _ = done.send(reader.plan);
    }
    let rows = ranges.iter().enumerate().filter_map(|(n, range)| {
        let cold = cold.times.get(n)?;
        let warm: Vec<Times> = reads
            .iter()
            .filter_map(|(_, times)| times.get(n).copied())
            .collect();
        Some(Row {
            start: range.start,
            bytes: range.end - range.start,
            cold_first_byte_ms: ms(cold.first_byte),
            cold_body_ms: ms(cold.body),
            first_byte_ms: Spread::of_ms(warm.iter().map(|times| times.first_byte)),
            body_ms: Spread::of_ms(warm.iter().map(|times| times.body)),
        })
    });
    Ok(Lane {
        network,
        file,
        way,
        requests: 0.0,
        bytes: 0,
        cold_ms: ms(cold.took),
        warm_ms: Spread::of_ms(reads.iter().map(|(took, _)| *took)),
        ranges: rows.collect(),
        sha256: layout::digest(cold.pixels.iter()),
    })
}

fn session(endpoint: &str) -> Result<Session> {
    let session = Session::builder().s3_endpoint(endpoint);
    Ok(session.requests_per_host(AT_ONCE).build()?)
}

impl Reader {
    pub(super) async fn new(plan: Plan, endpoint: &str, known: &Known) -> Result<Self> {
        let session = session(endpoint)?;
        let (store, key) = session.stores().store(&known.entry.location)?;
        // Costs no request: the entry knows the header.
        let raster = reader::open(&session, &known.entry, Backend::Cog).await?;
        Ok(Self {
            plan,
            store,
            key,
            layout: Arc::clone(&known.layout),
            raster,
            window: Window {
                col: 0,
                row: TILE,
                width: known.image.width,
                height: PAIRS * TILE,
            },
        })
    }

    /// Reads the window once.
    async fn read(&self) -> Result<Read> {
        let start = Instant::now();
        let ranges = self.layout.ranges();
        let mut times = Vec::new();
        let fetched = match self.plan.way {
            Way::Coalesced => {
                let request = ReadRequest::new().with_window(self.window);
                let raster = self.raster.read(&request).await?;
                let took = start.elapsed();
                let Pixels::I16(pixels) = raster.pixels else {
                    bail!("not int16");
                };
                return Ok(Read {
                    took,
                    times,
                    pixels: pixels.index_axis_move(Axis(0), 0),
                });
            }
            Way::Serial => {
                let mut fetched = Vec::new();
                for range in ranges {
                    let (bytes, took) = self.timed(range).await?;
                    fetched.push(bytes);
                    times.push(took);
                }
                fetched
            }
            Way::Parallel => try_join_all(ranges.into_iter().map(|range| self.get(range))).await?,
            Way::Split(most) => {
                let whole = ranges.into_iter().map(|range| self.in_pieces(range, most));
                try_join_all(whole).await?
            }
        };
        let layout = Arc::clone(&self.layout);
        let pixels = tokio::task::spawn_blocking(move || layout.pixels(&fetched)).await??;
        Ok(Read {
            took: start.elapsed(),
            times,
            pixels,
        })
    }

    async fn get(&self, range: Range<u64>) -> Result<Bytes> {
        Ok(self.store.get_range(&self.key, range).await?)
    }

    async fn in_pieces(&self, range: Range<u64>, most: u64) -> Result<Bytes> {
        let pieces = pieces(range, most).into_iter();
        let pieces = try_join_all(pieces.map(|piece| self.get(piece))).await?;
        Ok(pieces.concat().into())
    }

    /// Reads a range, and says when its first byte came.
    async fn timed(&self, range: Range<u64>) -> Result<(Bytes, Times)> {
        let start = Instant::now();
        let options = GetOptions {
            range: Some(GetRange::Bounded(range)),
            ..GetOptions::default()
        };
        let answer = self.store.get_opts(&self.key, options).await?;
        let first_byte = start.elapsed();
        let bytes = answer.bytes().await?;
        let body = start.elapsed() - first_byte;
        Ok((bytes, Times { first_byte, body }))
    }
}

/// Cuts a range into pieces of at most so many bytes.
fn pieces(range: Range<u64>, most: u64) -> Vec<Range<u64>> {
    let most = most.max(1);
    (0..(range.end - range.start).div_ceil(most))
        .map(|n| {
            let start = range.start + n * most;
            start..start.saturating_add(most).min(range.end)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_range_once() {
        assert_eq!(pieces(5..30, 10), [5..15, 15..25, 25..30]);
        assert_eq!(pieces(5..25, 10), [5..15, 15..25]);
        assert_eq!(pieces(5..6, 10).len(), 1);
        assert_eq!(pieces(5..30, u64::MAX), vec![5..30]);
    }
}
