//! What the ways of reading ranges came to.

use std::time::Duration;

use serde::Serialize;

use super::{
    File, Lane, Network, Settings, Way,
    files::{PAIRS, TILE},
};
use crate::{Origin, Spread};

/// Reads of each way below which spreads say nothing.
pub(super) const LEAST_READS: usize = 5;
/// A speedup this close to 1 is none, whatever the spreads say: it is printed as 1.00.
const SAME: std::ops::RangeInclusive<f64> = 0.995..=1.005;

/// Whether a way pays, beside the serial one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// Its slowest read took less time than the fastest serial one, and it is a fifth faster or more.
    Faster,
    /// Its slowest read took less time than the fastest serial one, and it is less than a fifth faster.
    Little,
    /// Its fastest read took more time than the slowest serial one.
    Slower,
    /// The spreads overlap, or the medians are the same, or too few reads were made to say.
    NoDifference,
}

impl Verdict {
    fn of(serial: Spread, own: Spread, reads: usize) -> Self {
        if reads < LEAST_READS || SAME.contains(&speedup(serial, own)) {
            Self::NoDifference
        } else if own.max < serial.min && own.median * 1.2 <= serial.median {
            Self::Faster
        } else if own.max < serial.min {
            Self::Little
        } else if own.min > serial.max {
            Self::Slower
        } else {
            Self::NoDifference
        }
    }
}

fn speedup(serial: Spread, own: Spread) -> f64 {
    serial.median / own.median.max(1e-9)
}

/// A way beside the serial one of the same file and network.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub(crate) struct Finding {
    /// The network.
    pub(crate) network: Network,
    /// The file.
    pub(crate) file: File,
    /// The way.
    pub(crate) way: Way,
    /// The serial way's median time over this way's: 2 is twice as fast.
    pub(crate) speedup: f64,
    /// What the spreads allow to say.
    pub(crate) verdict: Verdict,
}

/// What was read over a network.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub(crate) struct Read {
    /// The network.
    pub(crate) network: Network,
    /// What it does to answers.
    pub(crate) about: String,
    /// Width and height of the window in pixels.
    pub(crate) window: [u32; 2],
    /// The digest of its pixels, the same in all ways.
    pub(crate) sha256: String,
}

/// A comparison, as `--json` prints it.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub(crate) struct Report {
    /// `ranges`.
    pub(crate) bench: &'static str,
    /// When, where and how.
    #[serde(flatten)]
    pub(crate) origin: Origin,
    /// What was compared.
    pub(crate) settings: Settings,
    /// What was read over each network.
    pub(crate) windows: Vec<Read>,
    /// How long all of it took.
    pub(crate) took_s: f64,
    /// Each way over each network.
    pub(crate) lanes: Vec<Lane>,
    /// What is so.
    pub(crate) findings: Vec<Finding>,
}

impl Report {
    pub(super) fn new(
        origin: Origin,
        settings: Settings,
        lanes: Vec<Lane>,
        took: Duration,
    ) -> Self {
        let serial = |of: &Lane| {
            let same = |lane: &&Lane| {
                lane.network == of.network && lane.file == of.file && lane.way == Way::Serial
            };
            lanes.iter().find(same)
        };
        let findings = lanes
            .iter()
            .filter(|lane| lane.way != Way::Serial)
            .filter_map(|lane| {
                let (serial, own) = (serial(lane)?.warm_ms, lane.warm_ms);
                Some(Finding {
                    network: lane.network,
                    file: lane.file,
                    way: lane.way,
                    speedup: speedup(serial, own),
                    verdict: Verdict::of(serial, own, settings.iterations),
                })
            })
            .collect();
        let windows = settings.profiles.iter().map(|&network| {
            let lane = lanes.iter().find(|lane| lane.network == network);
            Read {
                network,
                about: network.about(),
                window: [settings.image(network).width, PAIRS * TILE],
                sha256: lane.map(|lane| lane.sha256.clone()).unwrap_or_default(),
            }
        });
        let windows = windows.collect();
        Self {
            bench: "ranges",
            origin,
            settings,
            windows,
            took_s: took.as_secs_f64(),
            lanes,
            findings,
        }
    }

    /// Returns the lanes of a network and a file, in the order of the ways.
    pub(crate) fn lanes_of(&self, network: Network, file: File) -> Vec<&Lane> {
        let of = |lane: &&Lane| lane.network == network && lane.file == file;
        self.lanes.iter().filter(of).collect()
    }

    /// Returns what was found of a lane.
    pub(crate) fn finding(&self, lane: &Lane) -> Option<&Finding> {
        self.findings.iter().find(|finding| {
            finding.network == lane.network && finding.file == lane.file && finding.way == lane.way
        })
    }
}

impl Finding {
    /// Says it in words.
    pub(crate) fn words(&self) -> String {
        match self.verdict {
            Verdict::Faster => format!("pays: {:.2} times as fast as serial", self.speedup),
            Verdict::Little => {
                format!("gains little: {:.2} times as fast as serial", self.speedup)
            }
            Verdict::Slower => format!("is slower: {:.2} times as fast as serial", self.speedup),
            Verdict::NoDifference => {
                format!(
                    "no difference beyond the spread ({:.2} times as fast)",
                    self.speedup
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_reads_and_a_difference() {
        let spread = |min: f64, median: f64, max: f64| Spread { min, median, max };
        let serial = spread(100.0, 110.0, 120.0);
        for (own, verdict) in [
            (spread(40.0, 50.0, 60.0), Verdict::Faster),
            (spread(92.0, 95.0, 99.0), Verdict::Little),
            (spread(130.0, 140.0, 150.0), Verdict::Slower),
            (spread(90.0, 100.0, 110.0), Verdict::NoDifference),
        ] {
            assert_eq!(Verdict::of(serial, own, 5), verdict);
            assert_eq!(Verdict::of(serial, own, 4), Verdict::NoDifference);
        }
        let [least, more] = [1000.0, 1003.0].map(|ms| spread(ms, ms, ms));
        assert_eq!(Verdict::of(least, more, 21), Verdict::NoDifference);
    }
}
