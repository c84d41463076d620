//! How a bench runs: whether it times or only checks, at which latencies, and what a failure is.

use std::{fmt::Display, time::Duration};

use anyhow::Result;

use crate::site::Site;

/// The latencies at which benches of remote files run, in milliseconds; stated in the name of each group.
const LATENCIES: [u64; 3] = [0, 30, 100];

/// Returns whether this run checks only, on small scenes, and times nothing.
pub fn is_test() -> bool {
    !std::env::args().any(|arg| arg == "--bench")
}

/// Runs `work` at each latency, with its name; live, at that of the network; in a test run, at none.
///
/// # Errors
///
/// The first of `work`.
pub fn at_each_latency(site: &Site, mut work: impl FnMut(&str) -> Result<()>) -> Result<()> {
    let Some(bed) = &site.bed else {
        return work("live");
    };
    let all: &[u64] = match is_test() {
        true => &[0],
        false => &LATENCIES,
    };
    for millis in all {
        bed.set_latency(Duration::from_millis(*millis));
        work(&format!("{millis} ms"))?;
    }
    Ok(())
}

/// Returns the value. A bench that fails has no time to report.
///
/// # Panics
///
/// On an error.
#[expect(clippy::panic, reason = "criterion's closures return no error")]
pub fn must<T, E: Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|err| panic!("{err:#}"))
}
