//! Recent latencies of tiles, and the latency above which a second request is sent (hedging).

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// The most latencies in memory: old ones must not hide that a path has become slower.
const REMEMBERED: usize = 256;
/// The fewest latencies for a percentile: with fewer, normal tiles would be hedged.
const LEAST: usize = 20;

/// The latest latencies.
#[derive(Debug, Default)]
pub(super) struct Latencies(Mutex<VecDeque<Duration>>);

impl Latencies {
    pub(super) fn add(&self, latency: Duration) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() == REMEMBERED {
            known.pop_front();
        }
        known.push_back(latency);
    }

    /// Returns the latency at the percentile `part`, from 0 to 1; none while few latencies are known.
    pub(super) fn late_after(&self, part: f64) -> Option<Duration> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() < LEAST {
            return None;
        }
        let mut sorted: Vec<Duration> = known.iter().copied().collect();
        drop(known);
        let last = sorted.len() - 1;
        // `Options::check` ensures that `part` is between 0 and 1.
        let at = ((part * sorted.len() as f64) as usize).min(last);
        Some(*sorted.select_nth_unstable(at).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_is_known_after_a_while() {
        let latencies = Latencies::default();
        for ms in 0..100 {
            assert_eq!(latencies.late_after(0.9).is_some(), ms >= 20);
            latencies.add(Duration::from_millis(ms));
        }
        assert_eq!(latencies.late_after(0.9), Some(Duration::from_millis(90)));
        for _ in 0..256 {
            latencies.add(Duration::from_millis(7));
        }
        assert_eq!(latencies.late_after(0.99), Some(Duration::from_millis(7)));
    }
}
