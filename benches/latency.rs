//! The latencies at which benches of remote files run, stated in the name of each group.

use std::time::Duration;

use anyhow::Result;

use crate::{harness, place::Place};

/// Runs `work` at each latency; live, at that of the network; in a test run, at none.
pub(crate) fn at_each(place: &Place, mut work: impl FnMut(&str) -> Result<()>) -> Result<()> {
    let Some(bed) = &place.bed else {
        return work("live");
    };
    let all: &[u64] = match harness::is_test() {
        true => &[0],
        false => &[0, 30, 100],
    };
    for millis in all {
        bed.set_latency(Duration::from_millis(*millis));
        work(&format!("{millis} ms"))?;
    }
    Ok(())
}
