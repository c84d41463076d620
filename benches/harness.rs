//! What the Criterion benches share: which place they measure, by the features of their build.

use std::{fmt::Display, time::Duration};

use anyhow::Result;
use rss_testbed::Scenes;

use crate::place::Place;

/// Returns the place of this build; where no feature names one, says that it skips. A test run is
/// small.
pub(crate) fn place(bench: &str) -> Result<Option<Place>> {
    if cfg!(feature = "bench_testbed") {
        let (scenes, latency) = match is_test() {
            false => (Scenes::full(), Duration::from_millis(30)),
            true => (Scenes::small(), Duration::ZERO),
        };
        return Place::testbed(scenes, latency).map(Some);
    }
    if cfg!(feature = "bench_live") {
        return Ok(Some(Place {
            bed: None,
            s3: None,
        }));
    }
    println!(
        "{bench}: skipped; --features bench_live measures live DEA, --features bench_testbed \
         servers on loopback"
    );
    Ok(None)
}

/// Returns whether this run checks only, on small scenes, and times nothing.
pub(crate) fn is_test() -> bool {
    !std::env::args().any(|arg| arg == "--bench")
}

/// Returns the value. A bench that fails has no time to report.
#[expect(clippy::panic, reason = "criterion's closures return no error")]
pub(crate) fn must<T, E: Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|err| panic!("{err:#}"))
}
