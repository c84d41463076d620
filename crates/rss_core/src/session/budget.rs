//! Byte budgets: a semaphore that bounds memory, over all reads of a session.
//!
//! A session has two, of fetched bytes and of work. Who takes which, in which order, and why reads do
//! not wait for each other for ever is in `docs/decisions/003-byte-budget.md`.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of one permit. tokio's `acquire_many` takes a `u32`: permits of one byte would bound a budget
/// to 4 GiB.
const UNIT: u64 = 1024;

/// A budget of bytes, counted in permits of [`UNIT`] bytes.
#[derive(Debug)]
pub(super) struct Budget {
    units: Arc<Semaphore>,
    all: u32,
}

/// A share of the budget, released when it is dropped.
#[derive(Debug)]
pub(crate) struct Share(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

impl Budget {
    pub(super) fn new(bytes: u64) -> Self {
        let most = u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX);
        let all = u32::try_from(bytes / UNIT).unwrap_or(most).clamp(1, most);
        Self {
            units: Arc::new(Semaphore::new(all as usize)),
            all,
        }
    }

    /// Waits for a share of the budget.
    ///
    /// A request larger than the budget takes all of it: it waits until no other share is held, and then
    /// runs alone. Otherwise such a request would wait for ever. The semaphore is fair, so small requests
    /// that come later do not starve it.
    pub(super) async fn share(&self, bytes: u64) -> Option<Share> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(self.all);
        let units = units.min(self.all);
        // The semaphore is never closed.
        let permit = Arc::clone(&self.units).acquire_many_owned(units).await;
        permit.ok().map(Share)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn what_is_taken_is_waited_for() {
        let budget = Budget::new(10 * UNIT);
        let most = budget.share(6 * UNIT).now_or_never().unwrap();
        assert!(budget.share(5 * UNIT).now_or_never().is_none());
        let rest = budget.share(4 * UNIT).now_or_never().unwrap();
        drop((most, rest));
        // Larger than the budget: granted when no other share is held.
        assert!(budget.share(u64::MAX).now_or_never().is_some());
    }
}
