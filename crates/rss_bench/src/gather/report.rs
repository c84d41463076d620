//! What a gather found.

use serde::Serialize;

use super::{Backend, DecodeLimit, Run, Settings};
use crate::{Origin, Spread};

/// Bins of a latency histogram: four for each doubling, from 16 microseconds to 16 seconds.
const BINS: usize = 80;

/// Returns the edges of the bins of all histograms, in milliseconds: one more than there are bins.
pub(crate) fn bin_edges_ms() -> Vec<f64> {
    (0..=BINS).map(|n| (n as f64 / 4.0 - 6.0).exp2()).collect()
}

/// Returns the bin of a latency; what is past the ends is in the first or the last.
pub(super) fn bin_of(ms: f64) -> usize {
    let at = ((ms.max(1e-6).log2() + 6.0) * 4.0).max(0.0);
    (at as usize).min(BINS - 1)
}

/// Files by bin.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Counts(pub(crate) Vec<u64>);

impl Default for Counts {
    fn default() -> Self {
        Self(vec![0; BINS])
    }
}

impl Counts {
    pub(super) fn add(&mut self, bin: usize) {
        if let Some(count) = self.0.get_mut(bin) {
            *count += 1;
        }
    }
}

/// The latencies of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Histogram {
    /// From nothing to an open file.
    pub(crate) open: Counts,
    /// From an open file to the pixels.
    pub(crate) read: Counts,
    /// Both.
    pub(crate) total: Counts,
}

/// What was read.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub(crate) struct Workload {
    /// Keys that were read.
    pub(crate) files: usize,
    /// Distinct files among them.
    pub(crate) contents: usize,
    /// Width and height of a tile.
    pub(crate) tile: [u32; 2],
    /// The type of its samples.
    pub(crate) dtype: &'static str,
    /// How it is compressed.
    pub(crate) compression: &'static str,
    /// TIFF's predictor.
    pub(crate) predictor: u8,
    /// Bytes of a tile as it is stored.
    pub(crate) chunk_bytes: Spread,
    /// Bytes of all tiles, headers not counted.
    pub(crate) total_bytes: u64,
}

/// A comparison, as `--json` prints it.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub(crate) struct Report {
    /// `gather`.
    pub(crate) bench: &'static str,
    /// When, where and how.
    #[serde(flatten)]
    pub(crate) origin: Origin,
    /// What was compared.
    pub(crate) settings: Settings,
    /// What was read.
    pub(crate) workload: Workload,
    /// What decoding alone allows.
    pub(crate) decode_limit: DecodeLimit,
    /// The digest of all pixels, the same in all runs.
    pub(crate) sha256: String,
    /// The edges of the histograms' bins.
    pub(crate) latency_bins_ms: Vec<f64>,
    /// All runs, in the order they ran.
    pub(crate) runs: Vec<Run>,
    /// The best run of each backend at each concurrency, as indexes in `runs`.
    pub(crate) best: Vec<usize>,
}

impl Report {
    pub(super) fn new(
        origin: Origin,
        settings: Settings,
        workload: Workload,
        decode_limit: DecodeLimit,
        runs: Vec<Run>,
    ) -> Self {
        let mut best = Vec::new();
        for &backend in &settings.backends {
            let told = match backend.is_told() {
                true => settings.concurrency.iter().copied().map(Some).collect(),
                false => vec![None],
            };
            for at_once in told {
                let of = |run: &Run| {
                    run.backend == backend && at_once.is_none_or(|at| at == run.concurrency)
                };
                let found = runs.iter().enumerate().filter(|(_, run)| of(run));
                let found = found
                    .max_by(|(_, a), (_, b)| a.peak_tiles_per_s.total_cmp(&b.peak_tiles_per_s));
                best.extend(found.map(|(at, _)| at));
            }
        }
        Self {
            bench: "gather",
            origin,
            settings,
            workload,
            decode_limit,
            sha256: runs
                .first()
                .map(|run| run.sha256.clone())
                .unwrap_or_default(),
            latency_bins_ms: bin_edges_ms(),
            runs,
            best,
        }
    }

    /// Returns the best run at each concurrency, in the order of the settings.
    pub(crate) fn best_of(&self, backend: Backend) -> Vec<&Run> {
        let runs = self.best.iter().filter_map(|&at| self.runs.get(at));
        runs.filter(|run| run.backend == backend).collect()
    }

    /// Returns the best run of a backend.
    pub(crate) fn fastest(&self, backend: Backend) -> Option<&Run> {
        let runs = self.best_of(backend).into_iter();
        runs.max_by(|a, b| a.peak_tiles_per_s.total_cmp(&b.peak_tiles_per_s))
    }

    /// Returns the least and the most that the repeats of a run came to.
    pub(crate) fn repeats(&self, of: &Run) -> Spread {
        let same = |run: &&Run| {
            let is_told = of.backend.is_told();
            run.backend == of.backend && (!is_told || run.concurrency == of.concurrency)
        };
        Spread::of(
            self.runs
                .iter()
                .filter(same)
                .map(|run| run.peak_tiles_per_s),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_is_in_the_bin_between_its_edges() {
        let edges = bin_edges_ms();
        for ms in [0.3, 1.0, 7.7, 33.0, 386.0, 4000.0] {
            let bin = bin_of(ms);
            assert!((edges[bin]..edges[bin + 1]).contains(&ms), "{ms} in {bin}");
        }
        assert_eq!((bin_of(0.0), bin_of(1e9)), (0, BINS - 1));
    }
}
