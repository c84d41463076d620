//! How many bytes may be on their way at once, over all reads of a session.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of one permit: tokio counts permits in 32 bits when they are taken.
const UNIT: u64 = 1024;

/// Bytes that are fetched and not yet decoded.
#[derive(Debug)]
pub(super) struct Budget {
    units: Arc<Semaphore>,
    all: u32,
}

/// A part of the budget, given back when it is dropped.
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

    /// Waits for a part of the budget; more than all of it is all of it.
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
        // Larger than the budget: it comes when nobody else has a share.
        assert!(budget.share(u64::MAX).now_or_never().is_some());
    }
}
