//! When a failed request is sent again: the one backoff under searches, tokens, objects, cubes and downloads.
//!
//! A failure passes by itself ([`Remedy::Time`]: nobody answers, or the server says that it is overloaded), or may be gone
//! at the next try ([`Remedy::Again`]: an answer that breaks the protocol), or comes again. The first is retried for a
//! time, the second so many times. See `docs/decisions/008-network.md`.

use std::{
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

/// The time limits of a session's requests.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// The time to wait for a connection.
    pub(crate) connect_timeout: Duration,
    /// The time to wait for the first or the next bytes of a response.
    pub(crate) read_timeout: Duration,
    /// How long a server that is away is asked again.
    pub(crate) retry_for: Duration,
    /// The time after which a request, with all its retries, is given up.
    pub(crate) deadline: Duration,
    /// How often a failed request is retried; none: as often as `retry_for` allows, and [`WRONG_ANSWERS`].
    pub(crate) retries: Option<u32>,
    /// The pause before the first retry; it doubles.
    pub(crate) backoff: Duration,
    /// Requests to one host that are under way at once.
    pub(crate) requests_per_host: usize,
}

/// Retries of a request whose answers are wrong, where the session sets no number.
pub(crate) const WRONG_ANSWERS: u32 = 6;
/// Retries after a failure that seldom passes: a host name that is not known, a body that drips.
const SELDOM: u32 = 2;
/// The longest pause before a server that is away is asked again.
const LONGEST: Duration = Duration::from_secs(10);
/// The least pause before a server that is away is asked again.
const SHORTEST: Duration = Duration::from_millis(1);

/// What may help after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Nothing: the same request fails again.
    Nothing,
    /// The same request, so many times.
    Again,
    /// The same request, a few times.
    Seldom,
    /// Time: the server is away or overloaded.
    Time,
}

/// The retries of one call: what is left of them, and the pause before the next.
///
/// The pauses of an outage are planned from its beginning, each twice as long as the one before, to 10 s; a random part of
/// half of one is left out, so that requests that failed together do not return together. How often a server is asked
/// within a given time does not depend on chance.
#[derive(Debug)]
pub(crate) struct Patience {
    start: Instant,
    until: Instant,
    retry_for: Duration,
    retries: Option<u32>,
    first: Duration,
    failed: u32,
    wrong: u32,
    seldom: u32,
    outage: Option<Outage>,
}

#[derive(Debug)]
struct Outage {
    since: Instant,
    tries: u32,
    /// The sum of the pauses so far.
    planned: Duration,
}

impl Patience {
    pub(crate) fn new(limits: &Limits) -> Self {
        let start = Instant::now();
        Self {
            start,
            until: later(limits.deadline),
            retry_for: limits.retry_for,
            retries: limits.retries,
            first: limits.backoff,
            failed: 0,
            wrong: 0,
            seldom: 0,
            outage: None,
        }
    }

    /// Sets an earlier deadline.
    pub(crate) fn until(mut self, until: Instant) -> Self {
        self.until = self.until.min(until);
        self
    }

    /// Returns when the call is given up.
    pub(crate) fn deadline(&self) -> Instant {
        self.until
    }

    /// Returns the number of failed tries.
    pub(crate) fn failed(&self) -> u32 {
        self.failed
    }

    /// Returns the time since the call began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns the pause before the next try; none if the call is given up.
    pub(crate) fn next(&mut self, remedy: Remedy) -> Option<Duration> {
        self.failed = self.failed.saturating_add(1);
        if remedy == Remedy::Nothing || self.retries.is_some_and(|most| self.failed > most) {
            return None;
        }
        let pause = match remedy {
            Remedy::Nothing => return None,
            Remedy::Again | Remedy::Seldom => {
                let most = match remedy {
                    Remedy::Seldom => SELDOM,
                    _ => self.retries.unwrap_or(WRONG_ANSWERS),
                };
                let count = match remedy {
                    Remedy::Seldom => &mut self.seldom,
                    _ => &mut self.wrong,
                };
                *count += 1;
                if *count > most {
                    return None;
                }
                let pause = pause(self.first, *count);
                pause.mul_f64(1.0 - 0.5 * random())
            }
            Remedy::Time => self.outage()?,
        };
        // A pause past the deadline would only delay the error.
        (pause < self.until.saturating_duration_since(Instant::now())).then_some(pause)
    }

    fn outage(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let outage = self.outage.get_or_insert(Outage {
            since: now,
            tries: 0,
            planned: Duration::ZERO,
        });
        outage.tries = outage.tries.saturating_add(1);
        let pause = pause(self.first.max(SHORTEST), outage.tries);
        outage.planned = outage.planned.saturating_add(pause);
        let past = now.saturating_duration_since(outage.since);
        if outage.planned > self.retry_for || past > self.retry_for {
            return None;
        }
        // Tries that take long are behind the plan: even then some of the pause is kept.
        let ahead = outage.planned.saturating_sub(past);
        Some(
            ahead
                .saturating_sub(pause.mul_f64(0.5 * random()))
                .max(pause / 4),
        )
    }

    /// Returns the pause before a request that is no repetition of one that failed.
    pub(crate) fn breath(&self) -> Duration {
        let left = self.until.saturating_duration_since(Instant::now());
        self.first.mul_f64(random()).min(left)
    }
}

/// Returns the pause before a retry, the first being 1.
pub(super) fn pause(first: Duration, retry: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(retry.saturating_sub(1));
    first.saturating_mul(doubled).min(LONGEST)
}

/// Returns the instant after `time`, at most a year from now: the sum of an instant and a huge duration panics.
pub(crate) fn later(time: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + time.min(YEAR)
}

/// Returns a random number from 0 to 1. The standard library seeds its hashers at random, which saves a
/// dependency.
fn random() -> f64 {
    let bits = RandomState::new().hash_one(0_u8) >> 32;
    bits as f64 / f64::from(u32::MAX)
}

/// Returns a time in words: `90 s`, `5 min`.
pub(super) fn words(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(retries: Option<u32>, retry_for: Duration) -> Limits {
        Limits {
            connect_timeout: Duration::from_secs(1),
            read_timeout: Duration::from_secs(1),
            retry_for,
            deadline: Duration::MAX,
            retries,
            backoff: Duration::from_millis(100),
            requests_per_host: 8,
        }
    }

    #[test]
    fn pauses_grow_and_end() {
        for remedy in [Remedy::Again, Remedy::Time] {
            let mut patience = Patience::new(&limits(Some(3), Duration::from_secs(60)));
            for (planned, least) in [(100, 50), (200, 50), (400, 100)] {
                let pause = patience.next(remedy).unwrap();
                let most = Duration::from_millis(planned * 2);
                assert!(pause <= most, "{remedy:?} {pause:?}");
                assert!(
                    pause >= Duration::from_millis(least) / 2,
                    "{remedy:?} {pause:?}"
                );
            }
            assert_eq!(patience.next(remedy), None);
        }
    }

    #[test]
    fn a_server_that_is_away_is_asked_as_often_as_the_time_allows() {
        let tries = |time| {
            let mut patience = Patience::new(&limits(None, time));
            (0..)
                .take_while(|_| patience.next(Remedy::Time).is_some())
                .count()
        };
        // 0.1 + 0.2 + .. + 6.4 s, then 10 s each.
        assert_eq!(tries(Duration::from_secs(300)), 7 + 28);
        assert_eq!(tries(Duration::ZERO), 0);
    }

    #[test]
    fn a_wrong_answer_is_counted_and_not_timed() {
        let mut patience = Patience::new(&limits(None, Duration::ZERO));
        let tries = (0..).take_while(|_| patience.next(Remedy::Again).is_some());
        assert_eq!(tries.count(), WRONG_ANSWERS as usize);
        let mut patience = Patience::new(&limits(None, Duration::MAX));
        let tries = (0..).take_while(|_| patience.next(Remedy::Seldom).is_some());
        assert_eq!(tries.count(), SELDOM as usize);
        assert_eq!(patience.next(Remedy::Nothing), None);
    }

    #[test]
    fn a_pause_past_the_deadline_is_not_begun() {
        let mut patience = Patience::new(&limits(None, Duration::MAX)).until(Instant::now());
        assert_eq!(patience.next(Remedy::Time), None);
        assert!(later(Duration::MAX) > Instant::now());
    }
}
