//! Networks: how long an answer takes to begin, and how fast it comes.
//!
//! Three of them stand for the places of a published measurement of ranged reads from S3, a
//! GeoTrellis decision record: a window of a Landsat band in six pairs of ranges, 65,536 bytes and
//! 1.55 to 2.40 MB, 12.6 MB in all, read one range after another, then side by side in pieces of 10 kB.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Most bytes that leave at once where bandwidth is limited.
const PIECE_BYTES: u64 = 16 * 1024;
/// Pieces are small enough that one takes no longer than this.
const PIECE_TIME: Duration = Duration::from_millis(20);
/// How far a pace may catch up what a late timer lost.
const SLACK: Duration = Duration::from_millis(5);

/// What a network does to answers. The default does nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The time before the first answer of a new connection, beside its latency: what TCP and TLS
    /// ask before the request is sent.
    pub handshake: Duration,
    /// The time before the first byte of each answer.
    pub latency: Duration,
    /// A time between nothing and this is added to each latency, from a fixed seed.
    pub jitter: Duration,
    /// Bytes per second of one connection.
    pub connection: Option<u64>,
    /// Bytes per second of the line that all connections share.
    pub line: Option<u64>,
}

impl Profile {
    /// A home line far from the bucket.
    ///
    /// First bytes of warm connections came after 147 to 171 ms (one after 249 ms), the very first
    /// after 261 ms: 110 ms of handshake. Bodies of 1.5 to 2.4 MB came with 0.57 to 0.78 MB/s, in the
    /// middle 0.61. Side by side the 12.6 MB took 16.7 s, 0.75 MB/s: what the line carries.
    pub const HOME: Self = Self {
        handshake: Duration::from_millis(110),
        latency: Duration::from_millis(147),
        jitter: Duration::from_millis(24),
        connection: Some(610_000),
        line: Some(750_000),
    };

    /// A machine in another region of the same cloud.
    ///
    /// First bytes of warm connections came after 87 to 97 ms (one after 157 ms), the very first
    /// after 157 ms: 70 ms of handshake. Bodies of 1.5 to 2.4 MB came with 1.0 to 4.9 MB/s, in the
    /// middle 3.3, which makes 4.9 s of the 12.6 MB: the mean of its 21 serial reads. It says of
    /// the whole line only that it carries the fastest of these, 4.9 MB/s.
    pub const OTHER_REGION: Self = Self {
        handshake: Duration::from_millis(70),
        latency: Duration::from_millis(87),
        jitter: Duration::from_millis(10),
        connection: Some(3_300_000),
        line: Some(4_900_000),
    };

    /// A machine in the bucket's region.
    ///
    /// The document gives no log of it: "1 s average per tile", the tags of a file in "10-20 ms", and
    /// that requests side by side make no sense there. A report on GDAL in the cloud read 386 kB there
    /// in 14.8 ms at best, decoding included. So first bytes come after 5 to 15 ms, and the 12.6 MB in
    /// what a dozen of them leave of the second, 14.3 MB/s, by one connection as by many.
    pub const SAME_REGION: Self = Self {
        handshake: Duration::from_millis(5),
        latency: Duration::from_millis(5),
        jitter: Duration::from_millis(10),
        connection: Some(14_300_000),
        line: Some(14_300_000),
    };
}

/// The line that all connections of a server share.
#[derive(Debug)]
pub(crate) struct Line {
    rate: u64,
    /// When it is free again.
    free: Mutex<Option<Instant>>,
}

impl Line {
    pub(crate) fn new(rate: u64) -> Self {
        Self {
            rate: rate.max(1),
            free: Mutex::new(None),
        }
    }

    /// Takes the line for so many bytes, and returns when the last of them has gone through.
    fn reserve(&self, bytes: usize) -> Instant {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        advance(&mut free, bytes, self.rate)
    }
}

/// The pace of one body.
#[derive(Debug)]
pub(crate) struct Pace {
    rate: Option<u64>,
    free: Option<Instant>,
    line: Option<Arc<Line>>,
}

impl Pace {
    /// Returns none where nothing is limited.
    pub(crate) fn new(rate: Option<u64>, line: Option<Arc<Line>>) -> Option<Self> {
        (rate.is_some() || line.is_some()).then_some(Self {
            rate,
            free: None,
            line,
        })
    }

    /// Returns how many bytes are sent at once.
    pub(crate) fn piece_bytes(&self) -> usize {
        let rate = self
            .rate
            .into_iter()
            .chain(self.line.iter().map(|line| line.rate))
            .min();
        let bytes = rate.unwrap_or(u64::MAX) as f64 * PIECE_TIME.as_secs_f64();
        (bytes as u64).clamp(1, PIECE_BYTES) as usize
    }

    /// Returns when the last of so many bytes may leave.
    pub(crate) fn reserve(&mut self, bytes: usize) -> Instant {
        let now = Instant::now();
        let own = match self.rate {
            Some(rate) => advance(&mut self.free, bytes, rate),
            None => now,
        };
        let line = self.line.as_ref().map_or(now, |line| line.reserve(bytes));
        own.max(line)
    }
}

/// Moves the time when something is free by so many bytes at a rate, and returns it. The sum is kept,
/// not the single pauses: timers are late by up to a millisecond each.
fn advance(free: &mut Option<Instant>, bytes: usize, rate: u64) -> Instant {
    let now = Instant::now();
    let start = match *free {
        Some(free) => free.max(now.checked_sub(SLACK).unwrap_or(now)),
        None => now,
    };
    let end = start + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
    *free = Some(end);
    end
}
