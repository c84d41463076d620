//! What the systems came to.

use std::time::Duration;

use rss_testbed::Volume;
use serde::Serialize;

use super::{Case, OURS, OURS_LZ4, Settings, Source, Stored, System, WKW, job::Cost};
use crate::{Origin, Spread};

/// Files may be so much larger than another's and still count as its size.
const SAME_SIZE: f64 = 1.02;

/// A box of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cutout {
    /// What it is: `cutout`, `series` or `map`.
    pub(crate) name: &'static str,
    /// Its first sample.
    pub(crate) offset: Vec<u64>,
    /// Its samples of each axis.
    pub(crate) shape: Vec<u64>,
}

/// What a system took for a case, time by time.
#[derive(Clone, Debug, Default)]
pub(super) struct Laps {
    pub(super) write: Vec<Cost>,
    pub(super) read: Vec<Cost>,
    pub(super) cuts: Vec<CutLaps>,
    pub(super) stored: Stored,
    pub(super) error: Option<String>,
}

/// Seconds of each cutout.
#[derive(Clone, Debug, Default)]
pub(super) struct CutLaps {
    pub(super) fresh: Vec<f64>,
    pub(super) open: Vec<f64>,
}

impl Laps {
    pub(super) fn row(self, case: &Case, system: &str) -> Row {
        let micro = |seconds: &[f64]| Spread::of(seconds.iter().map(|s| s * 1e6));
        let cutouts = case.cutouts(0).into_iter().zip(&self.cuts);
        let measured = Measured {
            write: Spent::of(&self.write),
            read: Spent::of(&self.read),
            bytes: self.stored.bytes,
            files: self.stored.files,
            folders: self.stored.folders,
            cutouts: cutouts
                .map(|(cutout, laps)| CutSpent {
                    name: cutout.name,
                    shape: cutout.shape,
                    fresh_us: micro(&laps.fresh),
                    open_us: micro(&laps.open),
                })
                .collect(),
        };
        Row {
            data: case.data,
            chunk: case.chunk.clone(),
            shard: case.shard.clone(),
            system: system.to_owned(),
            measured: self.error.is_none().then_some(measured),
            error: self.error,
        }
    }
}

/// What a system came to with a data set in chunks of one size.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub(crate) struct Row {
    /// The data set.
    pub(crate) data: Volume,
    /// Samples of each axis of an inner chunk.
    pub(crate) chunk: Vec<u64>,
    /// Samples of each axis of a shard.
    pub(crate) shard: Vec<u64>,
    /// The system's name.
    pub(crate) system: String,
    /// Why there is nothing more.
    pub(crate) error: Option<String>,
    /// What was measured.
    #[serde(flatten)]
    pub(crate) measured: Option<Measured>,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub(crate) struct Measured {
    /// From samples in memory to an array on the disk's cache.
    pub(crate) write: Spent,
    /// From an array that is not open to samples in memory.
    pub(crate) read: Spent,
    /// Bytes of all files.
    pub(crate) bytes: u64,
    /// Files.
    pub(crate) files: u64,
    /// Folders.
    pub(crate) folders: u64,
    /// Boxes.
    pub(crate) cutouts: Vec<CutSpent>,
}

/// Time of one kind of work.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub(crate) struct Spent {
    /// By the clock, in seconds.
    pub(crate) wall_s: Spread,
    /// Of the processors, user and system, in seconds.
    pub(crate) cpu_s: Spread,
}

impl Spent {
    fn of(costs: &[Cost]) -> Self {
        Self {
            wall_s: Spread::of(costs.iter().map(|cost| cost.wall_s)),
            cpu_s: Spread::of(costs.iter().map(|cost| cost.cpu_s)),
        }
    }
}

/// Time of a box.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub(crate) struct CutSpent {
    /// `cutout`, `series` or `map`.
    pub(crate) name: &'static str,
    /// Its samples of each axis.
    pub(crate) shape: Vec<u64>,
    /// With opening the array, in microseconds.
    pub(crate) fresh_us: Spread,
    /// Of an open array, in microseconds.
    pub(crate) open_us: Spread,
}

/// What systems are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Measure {
    /// Writing, by the clock.
    Write,
    /// Writing, processor time.
    WriteCpu,
    /// Reading, by the clock.
    Read,
    /// Reading, processor time.
    ReadCpu,
    /// The first box, with opening the array: a cutout, or a time series.
    CutFresh,
    /// The first box of an open array.
    CutOpen,
    /// The second box, with opening the array: a map.
    MapFresh,
    /// The second box of an open array.
    MapOpen,
    /// Bytes of all files.
    Size,
}

impl Measure {
    /// All of them, in the order of the report.
    pub(crate) const ALL: &[Self] = &[
        Self::Write,
        Self::WriteCpu,
        Self::Read,
        Self::ReadCpu,
        Self::CutFresh,
        Self::CutOpen,
        Self::MapFresh,
        Self::MapOpen,
        Self::Size,
    ];

    /// Returns what was measured; less is better.
    pub(crate) fn of(self, measured: &Measured) -> Option<Spread> {
        let cutout = |at: usize| measured.cutouts.get(at);
        match self {
            Self::Write => Some(measured.write.wall_s),
            Self::WriteCpu => Some(measured.write.cpu_s),
            Self::Read => Some(measured.read.wall_s),
            Self::ReadCpu => Some(measured.read.cpu_s),
            Self::CutFresh => cutout(0).map(|cut| cut.fresh_us),
            Self::CutOpen => cutout(0).map(|cut| cut.open_us),
            Self::MapFresh => cutout(1).map(|cut| cut.fresh_us),
            Self::MapOpen => cutout(1).map(|cut| cut.open_us),
            Self::Size => Some(Spread::of([measured.bytes as f64])),
        }
    }
}

/// Whom a system of ours is put beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Beside {
    /// WKW, which stores with LZ4.
    Wkw,
    /// The best of all others, measure by measure.
    BestOther,
}

/// What the spreads allow to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// Our slowest time was less than the other's fastest; of sizes, ours is smaller.
    Better,
    /// The spreads overlap; of sizes, ours is at most a fiftieth larger.
    Same,
    /// Our fastest time was more than the other's slowest; of sizes, ours is larger.
    Worse,
}

/// A system of ours beside another.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub(crate) struct Finding {
    /// The data set.
    pub(crate) data: Volume,
    /// Samples of each axis of an inner chunk.
    pub(crate) chunk: Vec<u64>,
    /// Ours.
    pub(crate) system: &'static str,
    /// Whom it is put beside.
    pub(crate) beside: Beside,
    /// By what.
    pub(crate) measure: Measure,
    /// The other system.
    pub(crate) other: String,
    /// Of times, the other's median over ours: 2 is twice as fast. Of sizes, ours over the other's.
    pub(crate) ratio: f64,
    /// What the spreads allow to say.
    pub(crate) verdict: Verdict,
}

/// A comparison, as `--json` prints it.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub(crate) struct Report {
    /// `zarr`.
    pub(crate) bench: &'static str,
    /// When, where and how.
    #[serde(flatten)]
    pub(crate) origin: Origin,
    /// What was compared.
    pub(crate) settings: Settings,
    /// The systems, in the order of their turns.
    pub(crate) systems: Vec<System>,
    /// What was stored.
    pub(crate) sources: Vec<Source>,
    /// How long all of it took.
    pub(crate) took_s: f64,
    /// Each system with each data set and chunk.
    pub(crate) rows: Vec<Row>,
    /// Ours beside the others.
    pub(crate) findings: Vec<Finding>,
}

impl Report {
    pub(super) fn new(
        origin: Origin,
        settings: Settings,
        systems: Vec<System>,
        sources: Vec<Source>,
        rows: Vec<Row>,
        took: Duration,
    ) -> Self {
        let mut findings = Vec::new();
        for (system, beside) in [(OURS, Beside::BestOther), (OURS_LZ4, Beside::Wkw)] {
            for ours in rows.iter().filter(|row| row.system == system) {
                let found = Measure::ALL.iter().filter_map(|&measure| {
                    let others = rows.iter().filter(|row| beside.takes(ours, row));
                    compared(ours, system, beside, measure, others)
                });
                findings.extend(found);
            }
        }
        Self {
            bench: "zarr",
            origin,
            settings,
            systems,
            sources,
            took_s: took.as_secs_f64(),
            rows,
            findings,
        }
    }

    /// Returns the rows case by case: a data set in chunks of one size.
    pub(crate) fn cases(&self) -> impl Iterator<Item = &[Row]> {
        self.rows
            .chunk_by(|a, b| a.data == b.data && a.chunk == b.chunk)
    }
}

impl Beside {
    fn takes(self, ours: &Row, other: &Row) -> bool {
        let name = other.system.as_str();
        let is_kind = match self {
            Self::Wkw => name == WKW,
            Self::BestOther => ![OURS, OURS_LZ4, WKW].contains(&name),
        };
        is_kind && other.data == ours.data && other.chunk == ours.chunk
    }
}

/// Puts a row beside the best of some others.
fn compared<'a>(
    ours: &Row,
    system: &'static str,
    beside: Beside,
    measure: Measure,
    others: impl Iterator<Item = &'a Row>,
) -> Option<Finding> {
    let own = measure.of(ours.measured.as_ref()?)?;
    let others = others.filter_map(|row| Some((row, measure.of(row.measured.as_ref()?)?)));
    let (row, best) = others.min_by(|(_, a), (_, b)| a.median.total_cmp(&b.median))?;
    let over = |a: f64, b: f64| a / b.max(1e-9);
    let (ratio, verdict) = match measure {
        Measure::Size => {
            let ratio = over(own.median, best.median);
            let verdict = match ratio {
                ..1.0 => Verdict::Better,
                ..=SAME_SIZE => Verdict::Same,
                _ => Verdict::Worse,
            };
            (ratio, verdict)
        }
        _ => {
            let verdict = if own.max < best.min {
                Verdict::Better
            } else if own.min > best.max {
                Verdict::Worse
            } else {
                Verdict::Same
            };
            (over(best.median, own.median), verdict)
        }
    };
    Some(Finding {
        data: ours.data,
        chunk: ours.chunk.clone(),
        system,
        beside,
        measure,
        other: row.system.clone(),
        ratio,
        verdict,
    })
}

/// Returns the name of a data set in chunks of some shape.
pub(crate) fn case_name(data: Volume, chunk: &[u64]) -> String {
    let lengths: Vec<String> = chunk.iter().map(u64::to_string).collect();
    match data {
        Volume::Color | Volume::Segmentation => format!(
            "{}, inner {}",
            data.name(),
            lengths.first().map_or("", String::as_str)
        ),
        Volume::Eo => format!("{}, chunks ({})", data.name(), lengths.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(system: &str, walls: [f64; 3], bytes: u64) -> Row {
        let costs = walls.map(|wall_s| Cost {
            wall_s,
            cpu_s: 2.0 * wall_s,
        });
        let case = Case::new(Volume::Color, 64, 32);
        let laps = Laps {
            write: costs.to_vec(),
            read: costs.to_vec(),
            cuts: vec![CutLaps {
                fresh: walls.to_vec(),
                open: walls.to_vec(),
            }],
            stored: Stored {
                bytes,
                files: 9,
                folders: 4,
            },
            error: None,
        };
        laps.row(&case, system)
    }

    fn findings(rows: Vec<Row>) -> Vec<Finding> {
        let settings = Settings {
            side: 64,
            inner: vec![32],
            rounds: 3,
            data: vec![Volume::Color],
            peers: Vec::new(),
            dir: None,
        };
        let none = (Vec::new(), Vec::new());
        let origin = Origin::now("rss");
        Report::new(origin, settings, none.0, none.1, rows, Duration::ZERO).findings
    }

    #[test]
    fn each_measure_is_put_beside_the_best_of_its_kind() {
        let found = findings(vec![
            row(OURS, [1.0, 2.0, 3.0], 101),
            row(OURS_LZ4, [1.0, 1.0, 1.0], 130),
            row("zarrs", [4.0, 5.0, 9.0], 110),
            row("tensorstore", [6.0, 7.0, 8.0], 100),
            row(WKW, [0.5, 0.6, 0.7], 120),
        ]);
        let of = |system: &str, measure: Measure| {
            let same = |one: &&Finding| one.system == system && one.measure == measure;
            found.iter().find(same).unwrap()
        };
        let write = of(OURS, Measure::Write);
        assert_eq!((write.other.as_str(), write.ratio), ("zarrs", 2.5));
        assert_eq!(write.verdict, Verdict::Better);
        let size = of(OURS, Measure::Size);
        assert_eq!((size.other.as_str(), size.ratio), ("tensorstore", 1.01));
        assert_eq!(size.verdict, Verdict::Same);
        let lz4 = of(OURS_LZ4, Measure::ReadCpu);
        assert_eq!((lz4.other.as_str(), lz4.ratio), (WKW, 0.6));
        assert_eq!(lz4.verdict, Verdict::Worse);
        assert_eq!(of(OURS_LZ4, Measure::Size).verdict, Verdict::Worse);
        // No second box of a volume.
        assert_eq!(found.len(), 2 * 7);
    }

    #[test]
    fn spreads_that_overlap_say_nothing() {
        let found = findings(vec![
            row(OURS, [1.0, 2.0, 3.0], 100),
            row("zarrs", [2.0, 3.0, 4.0], 99),
        ]);
        assert!(found.iter().all(|one| one.verdict == Verdict::Same));
        assert!(found.iter().all(|one| one.beside == Beside::BestOther));
    }

    #[test]
    fn a_system_that_failed_is_beside_nobody() {
        let mut failed = row("zarrs", [0.1; 3], 1);
        let case = Case::new(Volume::Color, 64, 32);
        let laps = Laps {
            error: Some("it ended".to_owned()),
            ..Laps::default()
        };
        failed = Row {
            system: failed.system,
            ..laps.row(&case, "")
        };
        assert!(failed.measured.is_none());
        assert!(findings(vec![row(OURS, [1.0; 3], 100), failed]).is_empty());
    }

    #[test]
    fn a_row_holds_medians_with_least_and_most() {
        let row = row("x", [3.0, 1.0, 2.0], 7);
        let measured = row.measured.unwrap();
        let wall = measured.write.wall_s;
        assert_eq!((wall.min, wall.median, wall.max), (1.0, 2.0, 3.0));
        assert_eq!(measured.read.cpu_s.median, 4.0);
        assert_eq!(measured.cutouts[0].fresh_us.median, 2e6);
    }
}
