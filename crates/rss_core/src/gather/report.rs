//! How a gather went.

use std::time::Duration;

use super::Row;
use crate::{reader::ReadPlan, store::Traffic};

/// How a gather went, so far or in all.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// Rows that are done.
    pub files: usize,
    /// Of these, rows with pixels.
    pub ok: usize,
    /// Of these, rows with an error.
    pub failed: usize,
    /// From the start to the last row that is done.
    pub wall: Duration,
    /// Requests that the session sent since the start, retries included, and those of other work of
    /// the session.
    pub requests: u64,
    /// Bytes of the answers.
    pub bytes: u64,
    /// What [`ReadPlan`]s said before: what was to be sent had each tile been read at once. Of what GDAL
    /// reads nothing is known.
    pub planned: Planned,
    /// Answers by which servers asked for fewer requests (429, 503).
    pub throttled: u64,
    /// Tiles that were tried more than once.
    pub retried: usize,
    /// Tiles that were asked for a second time because they took long.
    pub hedged: usize,
    /// Files whose header was read anew because they had changed.
    pub reindexed: usize,
    /// Tiles under way, at most, when the last row was done: what adaptive concurrency found.
    pub concurrency: usize,
    /// Tiles per second at the best moment: the largest number of tiles with pixels, divided by the
    /// time since the start, as of any tile.
    pub peak_tiles_per_s: f64,
    /// How long opening took.
    pub open: Spread,
    /// How long reading took.
    pub read: Spread,
    /// How long tiles took in all.
    pub total: Spread,
}

/// What was planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Planned {
    /// Requests: those for tiles, and one for each header that is not known.
    pub requests: u64,
    /// Bytes of tiles, gaps between them included; not those of headers.
    pub tile_bytes: u64,
}

/// The least, the median and the most of some times; zero of none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Spread {
    /// The least.
    pub min: Duration,
    /// The middle one; of an even number the mean of the two in the middle.
    pub median: Duration,
    /// The most.
    pub max: Duration,
}

impl Spread {
    /// Returns the spread of some times.
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let at = |place: usize| times.get(place).copied().unwrap_or_default();
        let half = times.len() / 2;
        Self {
            min: at(0),
            median: match times.len() % 2 {
                0 => (at(half.saturating_sub(1)) + at(half)) / 2,
                _ => at(half),
            },
            max: at(times.len().saturating_sub(1)),
        }
    }
}

/// What is counted while a gather runs.
#[derive(Debug, Default)]
pub(super) struct Counts {
    report: Report,
    open: Vec<Duration>,
    read: Vec<Duration>,
    total: Vec<Duration>,
}

impl Counts {
    /// Counts what one tile was planned to ask for.
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
