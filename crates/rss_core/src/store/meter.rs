//! Counts of requests sent and bytes received.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// Requests sent and bytes of bodies received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Requests sent, retries included.
    pub requests: u64,
    /// Bytes of response bodies received.
    pub bytes: u64,
}

impl std::ops::Sub for Traffic {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(earlier.requests),
            bytes: self.bytes.saturating_sub(earlier.bytes),
        }
    }
}

impl std::ops::Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

/// Counts [`Traffic`]; shared by the stores of a session.
#[derive(Clone, Default)]
pub(crate) struct Meter(Arc<Counters>);

#[derive(Default)]
struct Counters {
    requests: AtomicU64,
    bytes: AtomicU64,
    throttled: AtomicU64,
    elsewhere: OnceLock<Box<dyn Fn() -> Traffic + Send + Sync>>,
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Meter").field(&self.total()).finish()
    }
}

impl Meter {
    pub(crate) fn add(&self, requests: u64, bytes: u64) {
        self.0.requests.fetch_add(requests, Ordering::Relaxed);
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a response by which a server throttles: HTTP 429 or 503.
    pub(crate) fn add_throttled(&self) {
        self.0.throttled.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of throttling responses.
    pub(crate) fn throttled(&self) -> u64 {
        self.0.throttled.load(Ordering::Relaxed)
    }

    /// Adds the counts of another library. Only the first call has an effect.
    #[cfg_attr(not(feature = "gdal"), expect(dead_code, reason = "only GDAL is told"))]
    pub(crate) fn count_also(&self, traffic: impl Fn() -> Traffic + Send + Sync + 'static) {
        let _ = self.0.elsewhere.set(Box::new(traffic));
    }

    pub(crate) fn total(&self) -> Traffic {
        let ours = Traffic {
            requests: self.0.requests.load(Ordering::Relaxed),
            bytes: self.0.bytes.load(Ordering::Relaxed),
        };
        ours + self
            .0
            .elsewhere
            .get()
            .map_or_else(Traffic::default, |count| count())
    }
}
