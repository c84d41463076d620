//! The report of a gather.

use std::time::Duration;

use super::Row;
use crate::{reader::ReadPlan, store::Traffic};

/// The report of a gather, so far or complete.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Finished rows.
    pub files: usize,
    /// Of these, rows with pixels.
    pub ok: usize,
    /// Of these, rows with an error.
    pub failed: usize,
    /// From the start to the last finished row.
    pub wall: Duration,
    /// Requests of the session since the start, including retries and those of its other work.
    pub requests: u64,
    /// Bytes of the responses.
    pub bytes: u64,
    /// The sum of the [`ReadPlan`]s: the traffic without retries and hedges. Without files that GDAL reads, which
    /// have no plan.
    pub planned: Planned,
    /// Responses that throttle (429, 503).
    pub throttled: u64,
    /// Tiles that were tried more than once.
    pub retried: usize,
    /// Tiles for which a second request was sent because the first was slow.
    pub hedged: usize,
    /// Files whose header was read again because they had changed.
    pub reindexed: usize,
    /// The concurrency limit when the last row was done: what adaptive concurrency found.
    pub concurrency: usize,
    /// Peak tiles per second: the maximum, over all tiles, of the tiles with pixels so far divided by the time since
    /// the start.
    pub peak_tiles_per_s: f64,
    /// Latency of opening.
    pub open: Spread,
    /// Latency of reading.
    pub read: Spread,
    /// Latency of a tile, all attempts included.
    pub total: Spread,
}

/// The planned traffic of a gather.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Planned {
    /// Requests for tiles, and one for each header that is not known.
    pub requests: u64,
    /// Bytes of tiles, including the gaps between coalesced ranges; not those of headers.
    pub tile_bytes: u64,
}

/// Minimum, median, percentiles and maximum of durations; zero if there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Spread {
    /// The minimum.
    pub min: Duration,
    /// The median; of an even number of durations the mean of the two in the middle.
    pub median: Duration,
    /// The 90th percentile: the least of them that 90 % are not above (nearest rank).
    pub p90: Duration,
    /// The 99th percentile, likewise.
    pub p99: Duration,
    /// The maximum.
    pub max: Duration,
}

impl Spread {
    /// Returns the spread of durations.
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |index: usize| times.get(index).copied().unwrap_or_default();
        let half = times.len() / 2;
        let rank = |percent: usize| at((times.len() * percent).div_ceil(100).saturating_sub(1));
        Self {
            min: at(0),
            median: match times.len() % 2 {
                0 => (at(half.saturating_sub(1)) + at(half)) / 2,
                _ => at(half),
            },
            p90: rank(90),
            p99: rank(99),
            max: at(times.len().saturating_sub(1)),
        }
    }
}

/// The counters of a running gather.
#[derive(Debug, Default)]
pub(super) struct Counts {
    report: Report,
    open: Vec<Duration>,
    read: Vec<Duration>,
    total: Vec<Duration>,
}

impl Counts {
    /// Adds the planned traffic of one tile.
    pub(super) fn plan(&mut self, header_requests: u64, plan: &ReadPlan) {
        self.report.planned.requests += plan.requests + header_requests;
        self.report.planned.tile_bytes += plan.bytes;
    }

    pub(super) fn add(&mut self, row: &Row, concurrency: usize) {
        let report = &mut self.report;
        report.files += 1;
        report.concurrency = concurrency;
        report.retried += usize::from(row.tries > 1 && row.reindexed.is_none());
        report.hedged += usize::from(row.hedged);
        report.reindexed += usize::from(row.reindexed.is_some());
        report.wall = report.wall.max(row.finished);
        match row.tile {
            Ok(_) => {
                report.ok += 1;
                self.open.push(row.open);
                self.read.push(row.read);
                self.total.push(row.total);
                let rate = report.ok as f64 / row.finished.as_secs_f64().max(1e-9);
                report.peak_tiles_per_s = report.peak_tiles_per_s.max(rate);
            }
            Err(_) => report.failed += 1,
        }
    }

    pub(super) fn report(&self, traffic: Traffic, throttled: u64) -> Report {
        Report {
            requests: traffic.requests,
            bytes: traffic.bytes,
            throttled,
            open: Spread::of(self.open.clone()),
            read: Spread::of(self.read.clone()),
            total: Spread::of(self.total.clone()),
            ..self.report.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        error::{Error, ErrorKind, Result},
        location::Location,
        raster::Raster,
    };

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        let of = |ms: &[u64]| Spread::of(ms.iter().copied().map(Duration::from_millis).collect());
        assert_eq!(of(&[4, 1, 3, 2]).median, Duration::from_micros(2500));
        assert_eq!(of(&[7]).median, Duration::from_millis(7));
        assert_eq!(of(&[]), Spread::default());
    }

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let of = |most: u64| Spread::of((1..=most).rev().map(Duration::from_millis).collect());
        let ms = |n| Duration::from_millis(n);
        assert_eq!((of(100).p90, of(100).p99), (ms(90), ms(99)));
        assert_eq!((of(10).p90, of(10).p99), (ms(9), ms(10)));
        assert_eq!((of(1).p90, of(1).p99), (ms(1), ms(1)));
        assert_eq!(of(0).p99, Duration::ZERO);
    }

    #[test]
    fn a_failure_is_no_tile_of_the_peak() {
        let row = |finished: u64, tile: Result<Raster>| Row {
            number: 0,
            location: Location::parse("s3://bucket/a.tif").unwrap(),
            tile,
            open: Duration::ZERO,
            read: Duration::ZERO,
            total: Duration::ZERO,
            finished: Duration::from_millis(finished),
            tries: 1,
            hedged: false,
            reindexed: None,
        };
        let mut counts = Counts::default();
        for at in 1..=10 {
            let failed = Error::new(ErrorKind::NotFound, "no such object");
            counts.add(&row(at, Err(failed)), 1);
        }
        let report = counts.report(Traffic::default(), 0);
        assert_eq!((report.failed, report.peak_tiles_per_s), (10, 0.0));
    }
}
