//! How many requests went out and how many bytes came back.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
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

/// Counts [`Traffic`]; shared by the stores of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter(Arc<[AtomicU64; 2]>);

impl Meter {
    pub(crate) fn add(&self, requests: u64, bytes: u64) {
        self.0[0].fetch_add(requests, Ordering::Relaxed);
        self.0[1].fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn total(&self) -> Traffic {
        Traffic {
            requests: self.0[0].load(Ordering::Relaxed),
            bytes: self.0[1].load(Ordering::Relaxed),
        }
    }
}
