//! The concurrency limit of a gather. No IO, and no clock of its own: tests simulate both.
//!
//! The limit doubles each round while throughput grows with it, as TCP's slow start does. It then settles at 1.5
//! times the bandwidth-delay product (throughput times the minimum latency), the idea of
//! [BBR](https://doi.org/10.1145/3009824). From there a quarter more is tried every few rounds, and stays if
//! throughput grows. A server that answers 429 or 503 halves it. The table of states is in `docs/decisions/007`.

use std::{
    num::NonZeroUsize,
    time::{Duration, Instant},
};

/// The first limit.
const FIRST: usize = 32;
/// The largest limit.
const MAX_LIMIT: usize = 1024;
/// The fewest tiles of a round: with fewer the measured throughput is noise.
const MIN_ROUND_TILES: usize = 12;
/// The gain of throughput that justifies a larger limit: while starting, and in a trial.
const WORTH_GROWING: f64 = 1.15;
const WORTH_KEEPING: f64 = 1.08;
/// The steady limit, in bandwidth-delay products.
const FILL: f64 = 1.5;
/// The largest limit while starting, in bandwidth-delay products. The throughput measured so far is too low there.
const START: f64 = 3.0;
/// A median latency of so many times the minimum means that tiles wait in a queue.
const QUEUED: f64 = 3.0;
/// Rounds between two trials.
const ROUNDS_BETWEEN: u32 = 4;

/// How many tiles are read concurrently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Concurrency {
    /// As many as raise the throughput of network and machine: found while gathering.
    #[default]
    Adaptive,
    /// A fixed number of tiles.
    Fixed(NonZeroUsize),
}

/// The concurrency limit in force, and the search for a better one.
#[derive(Debug)]
pub(super) struct Limit {
    limit: usize,
    /// None for a fixed limit.
    search: Option<Search>,
}

#[derive(Debug)]
struct Search {
    phase: Phase,
    round: Round,
    /// Tiles per second of the best round at the limit in force.
    rate: f64,
    /// The minimum latency of a tile so far, in seconds; infinite before the first tile.
    min_latency: f64,
    /// Rounds without growth, at the start; rounds since the last trial, later.
    count: u32,
    halved: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Starting,
    Steady,
    /// A trial of a larger or smaller limit than `before`.
    Trying {
        before: usize,
    },
}

#[derive(Debug, Default)]
struct Round {
    began: Option<Instant>,
    tiles: usize,
    latencies: Vec<f64>,
}

impl Limit {
    pub(super) fn new(concurrency: Concurrency) -> Self {
        match concurrency {
            Concurrency::Fixed(limit) => Self {
                limit: limit.get(),
                search: None,
            },
            Concurrency::Adaptive => Self {
                limit: FIRST,
                search: Some(Search {
                    phase: Phase::Starting,
                    round: Round::default(),
                    rate: 0.0,
                    min_latency: f64::INFINITY,
                    count: 0,
                    halved: None,
                }),
            },
        }
    }

    /// Returns how many tiles may be under way.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Records the start of the first tile.
    pub(super) fn begin(&mut self, now: Instant) {
        if let Some(search) = &mut self.search {
            search.round.began.get_or_insert(now);
        }
    }

    /// Records that a tile is done, and changes the limit at the end of a round.
    pub(super) fn done(&mut self, now: Instant, latency: Duration) {
        let Some(search) = &mut self.search else {
            return;
        };
        let latency = latency.as_secs_f64();
        search.min_latency = search.min_latency.min(latency);
        search.round.tiles += 1;
        search.round.latencies.push(latency);
        if search.round.tiles >= self.limit.max(MIN_ROUND_TILES) {
            self.limit = search.end_round(now, self.limit).clamp(1, MAX_LIMIT);
        }
    }

    /// Records a 429 or 503: halves the limit, at most once in two minimum latencies.
    pub(super) fn throttled(&mut self, now: Instant) {
        let Some(search) = &mut self.search else {
            return;
        };
        // Requests sent before the limit was halved may be throttled too, which is no news. Before the first tile the
        // latency is infinite, which is no valid pause: then each 429 or 503 halves the limit.
        let pause = Duration::try_from_secs_f64(2.0 * search.min_latency).unwrap_or_default();
        if search.halved.is_some_and(|halved| now < halved + pause) {
            return;
        }
        search.halved = Some(now);
        self.limit = (self.limit / 2).max(1);
        search.phase = Phase::Steady;
        search.count = 0;
        search.rate = 0.0;
        search.round = Round {
            began: Some(now),
            ..Round::default()
        };
    }
}

impl Search {
    /// Returns the limit of the next round.
    fn end_round(&mut self, now: Instant, limit: usize) -> usize {
        let round = std::mem::take(&mut self.round);
        self.round.began = Some(now);
        let seconds = round.began.map_or(0.0, |began| (now - began).as_secs_f64());
        let rate = round.tiles as f64 / seconds.max(1e-6);
        let fill = |times: f64| {
            let tiles = (rate.max(self.rate) * self.min_latency * times).ceil();
            // Never NaN: a round that ends has tiles, so the latency is finite.
            (tiles.min(MAX_LIMIT as f64) as usize).max(2)
        };
        let fills = fill(FILL);
        match self.phase {
            Phase::Starting if rate > self.rate * WORTH_GROWING => {
                // The best rate belongs to this limit; a trial compares with it.
                let next = fill(START).min(limit * 2).max(limit);
                self.rate = rate;
                self.count = 0;
                next
            }
            // One round without growth may be noise: the start ends with the second in a row.
            Phase::Starting if self.count == 0 => {
                self.count = 1;
                self.rate = self.rate.max(rate);
                limit
            }
            Phase::Starting => {
                self.phase = Phase::Steady;
                self.count = 0;
                fills.min(limit)
            }
            Phase::Trying { before } => {
                self.phase = Phase::Steady;
                self.count = 0;
                // More must pay; less is preferred unless it costs throughput, since it spares the server.
                let keep = match limit > before {
                    true => rate > self.rate * WORTH_KEEPING,
                    false => rate * WORTH_KEEPING > self.rate,
                };
                if keep {
                    return limit;
                }
                if limit < before {
                    // Less concurrency lowered throughput, so no queue had raised the latency: the path is longer
                    // than the minimum says, which is measured anew.
                    self.min_latency = minimum(&round.latencies);
                }
                before
            }
            Phase::Steady => {
                self.count += 1;
                self.rate = match self.count {
                    1 => rate,
                    _ => self.rate.max(rate),
                };
                if self.count < ROUNDS_BETWEEN {
                    return limit;
                }
                self.phase = Phase::Trying { before: limit };
                // A high latency only chooses the trial. It does not lower the limit by itself: it rises with the
                // size of tiles and with decoding, too.
                if median(round.latencies) > self.min_latency * QUEUED && fills < limit {
                    return fills;
                }
                limit + limit.div_ceil(4)
            }
        }
    }
}

fn minimum(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn median(mut values: Vec<f64>) -> f64 {
    let middle = values.len() / 2;
    if values.is_empty() {
        return 0.0;
    }
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use std::collections::BinaryHeap;

    use proptest::prelude::*;

    use super::*;

    /// A simulated path of fixed latency to a server that sends tiles at a fixed rate, one after another.
    struct Path {
        latency: f64,
        tiles_per_s: f64,
        /// The server throttles when more tiles than this are under way.
        refuses: usize,
    }

    impl Path {
        /// Gathers tiles and returns when each was done, and the limit in force then.
        fn run(&self, limit: &mut Limit, tiles: usize) -> Vec<(f64, usize)> {
            let start = Instant::now();
            let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
            // Ends and starts of what is under way, in nanoseconds, soonest first.
            let mut under_way: BinaryHeap<std::cmp::Reverse<(u64, u64)>> = BinaryHeap::new();
            let (mut now, mut free, mut begun) = (0.0_f64, 0.0_f64, 0);
            let mut done = Vec::new();
            limit.begin(start);
            while done.len() < tiles {
                while begun < tiles && under_way.len() < limit.limit() {
                    begun += 1;
                    free = free.max(now + self.latency) + 1.0 / self.tiles_per_s;
                    let nanos = |seconds: f64| (seconds * 1e9) as u64;
                    under_way.push(std::cmp::Reverse((nanos(free), nanos(now))));
                    if under_way.len() > self.refuses {
                        limit.throttled(at(now));
                    }
                }
                let std::cmp::Reverse((end, began)) = under_way.pop().unwrap();
                now = end as f64 / 1e9;
                limit.done(at(now), Duration::from_nanos(end - began));
                done.push((now, limit.limit()));
            }
            done
        }
    }

    fn fixed(limit: usize) -> Limit {
        Limit::new(Concurrency::Fixed(NonZeroUsize::new(limit).unwrap()))
    }

    /// Tiles per second from one tile to another.
    fn rate(done: &[(f64, usize)], from: usize, to: usize) -> f64 {
        (to - from) as f64 / (done[to - 1].0 - done[from - 1].0)
    }

    proptest! {
        #[test]
        fn two_hundred_tiles_find_what_fills_the_path(
            latency_ms in 0.5_f64..150.0,
            tiles_per_s in 100.0_f64..4000.0,
        ) {
            // A path of more than 100 tiles takes more tiles than these to measure.
            prop_assume!(latency_ms / 1e3 * tiles_per_s < 100.0);
            let path = Path { latency: latency_ms / 1e3, tiles_per_s, refuses: usize::MAX };
            let done = path.run(&mut Limit::new(Concurrency::Adaptive), 1200);
            let best = path.run(&mut fixed(512), 1200);
            prop_assert!(rate(&done, 200, 1150) > 0.9 * rate(&best, 200, 1150), "{:?}", done.last());
            let most = done.iter().map(|(_, limit)| *limit).max().unwrap();
            let fills = latency_ms / 1e3 * tiles_per_s;
            prop_assert!((most as f64) < 64.0 + 6.0 * fills, "{most} for a path of {fills}");
        }
    }

    #[test]
    fn a_server_that_refuses_is_asked_less() {
        let path = Path {
            latency: 0.1,
            tiles_per_s: 1e5,
            refuses: 40,
        };
        let done = path.run(&mut Limit::new(Concurrency::Adaptive), 2000);
        let later: Vec<usize> = done[500..].iter().map(|(_, limit)| *limit).collect();
        assert!(later.iter().all(|&limit| limit <= 50));
        assert!(later.iter().sum::<usize>() / later.len() >= 25);
    }

    #[test]
    fn a_fixed_number_stays() {
        let mut limit = fixed(7);
        let path = Path {
            latency: 0.01,
            tiles_per_s: 50.0,
            refuses: 3,
        };
        assert!(
            path.run(&mut limit, 100)
                .iter()
                .all(|(_, limit)| *limit == 7)
        );
    }
}
