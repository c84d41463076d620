//! Limits of requests, and the backoff between retries.

use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::{Duration, Instant},
};

/// The time limits of a session's requests.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// The time to wait for a connection.
    pub(crate) connect_timeout: Duration,
    /// The time to wait for the first or the next bytes of a response.
    pub(crate) read_timeout: Duration,
    /// The time after which a request, with all its retries, is given up.
    pub(crate) deadline: Duration,
    /// How often a failed request is retried.
    pub(crate) retries: u32,
    /// Requests to one host that are under way at once.
    pub(crate) requests_per_host: usize,
}

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(15);

/// Exponential backoff inside the limits of one call. The jitter is the upper half of each pause, so
/// that requests which failed together do not return together, and none at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    left: u32,
    give_up: Instant,
    ceiling: Duration,
}

impl Backoff {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            left: limits.retries,
            give_up: later(limits.deadline),
            ceiling: FIRST,
        }
    }

    /// Returns the pause before the next retry; none if retries or deadline are used up.
    pub(crate) fn next(&mut self) -> Option<Duration> {
        self.left = self.left.checked_sub(1)?;
        let pause = self.ceiling.mul_f64(0.5 + 0.5 * random());
        self.ceiling = (self.ceiling * 2).min(LONGEST);
        (Instant::now() + pause < self.give_up).then_some(pause)
    }

    /// Waits before the next retry. Returns false if retries or deadline are used up.
    pub(crate) async fn wait(&mut self) -> bool {
        match self.next() {
            Some(pause) => {
                tokio::time::sleep(pause).await;
                true
            }
            None => false,
        }
    }
}

/// Returns the instant after `time`, at most a year from now: the sum of an instant and a huge duration panics.
pub(crate) fn later(time: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + time.min(YEAR)
}

/// Returns a random number from 0 to 1. The standard library seeds its hashers at random, which saves a
/// dependency.
fn random() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 32;
    bits as f64 / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(retries: u32, deadline: Duration) -> Limits {
        Limits {
            connect_timeout: Duration::from_secs(1),
            read_timeout: Duration::from_secs(1),
            deadline,
            retries,
            requests_per_host: 8,
        }
    }

    #[test]
    fn pauses_grow_and_end() {
        let mut backoff = Backoff::new(&limits(3, Duration::from_secs(60)));
        for ceiling in [100, 200, 400] {
            let pause = backoff.next().unwrap();
            let ceiling = Duration::from_millis(ceiling);
            assert!(pause <= ceiling && pause >= ceiling / 2, "{pause:?}");
        }
        assert_eq!(backoff.next(), None);
    }

    #[test]
    fn a_deadline_without_end_is_a_deadline() {
        let mut backoff = Backoff::new(&limits(1, Duration::MAX));
        assert!(backoff.next().is_some());
        assert!(later(Duration::MAX) > Instant::now());
    }

    #[test]
    fn a_pause_past_the_deadline_is_not_begun() {
        let mut backoff = Backoff::new(&limits(9, Duration::from_millis(10)));
        assert_eq!(backoff.next(), None);
    }
}
