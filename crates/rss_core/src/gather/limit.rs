//! How many tiles are under way at once. No IO, and no clock of its own.
//!
//! The number doubles each round trip while throughput grows with it, as TCP's slow start does; then it
//! is set to what fills the path: throughput times the least latency seen, and half as many again, the
//! idea of [BBR](https://doi.org/10.1145/3009824). From there it tries a little more every few rounds and
//! keeps what pays. A server that says "too much" halves it.

use std::{
    num::NonZeroUsize,
    time::{Duration, Instant},
};

/// Tiles under way at first.
const FIRST: usize = 32;
/// Tiles under way at most.
const MOST: usize = 1024;
/// Tiles that a round has at least: fewer say little of throughput.
const LEAST_ROUND: usize = 12;
/// More throughput than before, for which a larger number is worth having: at the start, and later.
const WORTH_GROWING: f64 = 1.15;
const WORTH_KEEPING: f64 = 1.08;
/// What is under way, in terms of what fills the path.
const FILL: f64 = 1.5;
/// The same at most while the number doubles.
const START: f64 = 3.0;
/// A queue: latencies so many times the least.
const QUEUED: f64 = 3.0;
/// Rounds between two trials.
const ROUNDS_BETWEEN: u32 = 4;

/// How many tiles are under way at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Concurrency {
    /// As many as the path and this machine take: found while gathering.
    #[default]
    Adaptive,
    /// So many.
    Fixed(NonZeroUsize),
}

/// Chooses how many tiles are under way.
#[derive(Debug)]
pub(super) struct Limit {
    limit: usize,
    /// None for a fixed number.
    search: Option<Search>,
}

#[derive(Debug)]
struct Search {
    phase: Phase,
    round: Round,
    /// Tiles per second of the best round at the number in force.
    rate: f64,
    /// Seconds; infinite before the first tile.
    least_latency: f64,
    /// Rounds without growth, at the start; rounds since the last trial, later.
    count: u32,
    halved: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Starting,
    Steady,
    /// Trying more or less than this.
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
                    least_latency: f64::INFINITY,
                    count: 0,
                    halved: None,
                }),
            },
        }
    }

    /// Returns how many tiles may be under way now.
    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Says that the first tile starts.
    pub(super) fn begin(&mut self, now: Instant) {
        if let Some(search) = &mut self.search {
            search.round.began.get_or_insert(now);
        }
    }

    /// Says that a tile is done.
    pub(super) fn done(&mut self, now: Instant, latency: Duration) {
        let Some(search) = &mut self.search else {
            return;
        };
        let latency = latency.as_secs_f64();
        search.least_latency = search.least_latency.min(latency);
        search.round.tiles += 1;
        search.round.latencies.push(latency);
        if search.round.tiles >= self.limit.max(LEAST_ROUND) {
            self.limit = search.end_round(now, self.limit).clamp(1, MOST);
        }
    }

    /// Says that the server asked for less.
    pub(super) fn throttled(&mut self, now: Instant) {
        let Some(search) = &mut self.search else {
            return;
        };
        // What was under way before is refused for the same reason.
        let pause = Duration::try_from_secs_f64(2.0 * search.least_latency).unwrap_or_default();
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
    /// Returns the number for the next round.
    fn end_round(&mut self, now: Instant, limit: usize) -> usize {
        let round = std::mem::take(&mut self.round);
        self.round.began = Some(now);
        let seconds = round.began.map_or(0.0, |began| (now - began).as_secs_f64());
        let rate = round.tiles as f64 / seconds.max(1e-6);
        let holds = |times: f64| {
            let tiles = (rate.max(self.rate) * self.least_latency * times).ceil();
            // A float that is no number becomes 0.
            (tiles.min(MOST as f64) as usize).max(2)
        };
        let fills = holds(FILL);
        match self.phase {
            Phase::Starting if rate > self.rate * WORTH_GROWING => {
                let next = holds(START).min(limit * 2).max(limit);
                self.rate = rate;
                self.count = 0;
                next
            }
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
                let keep = match limit > before {
                    true => rate > self.rate * WORTH_KEEPING,
                    false => rate * WORTH_KEEPING > self.rate,
                };
                if keep {
                    return limit;
                }
                if limit < before {
                    // It was no queue: the path is longer than it was.
                    self.least_latency = least(&round.latencies);
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
                if median(round.latencies) > self.least_latency * QUEUED && fills < limit {
                    return fills;
                }
                limit + limit.div_ceil(4)
            }
        }
    }
}

fn least(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::INFINITY, f64::min)
}

fn median(mut numbers: Vec<f64>) -> f64 {
    let middle = numbers.len() / 2;
    if numbers.is_empty() {
        return 0.0;
    }
    *numbers.select_nth_unstable_by(middle, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use std::collections::BinaryHeap;

    use proptest::prelude::*;

    use super::*;

    /// A path of a fixed latency to a machine that finishes so many tiles a second, one after another.
    struct Path {
        latency: f64,
        tiles_per_s: f64,
        /// More than so many under way are refused.
        refuses: usize,
    }

    impl Path {
        /// Gathers tiles and returns when each was done, and the number in force then.
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
            // Longer paths want more tiles to be learnt.
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
