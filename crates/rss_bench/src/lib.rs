//! The comparisons behind `rss bench`: ways to the same pixels, side by side, and a report.
//!
//! [`gather`] reads one tile from each of many files, by several readers and at several concurrencies.
//! [`ranges`] reads one window by ranged requests, in several manners and over several networks. Both
//! start servers on loopback in another process, check that all ways return the same pixels, and give
//! a report: text, JSON, or one HTML page that needs nothing else. What is measured elsewhere is not
//! here: `benches/` has the Criterion benches of the library.

pub mod gather;
mod machine;
mod page;
/// The same as in the library's benches.
#[path = "../../../benches/plain_async_tiff.rs"]
mod plain;
pub mod ranges;
mod servers;
mod spread;
mod table;

pub use self::{
    machine::{Machine, Origin},
    servers::{Program, serve},
    spread::{Spread, ms},
};

/// How far a comparison is.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Step<'a> {
    /// Parts that are done.
    pub done: usize,
    /// Parts in all.
    pub of: usize,
    /// What is under way.
    pub now: &'a str,
}

/// Is told of each step.
pub type Watch<'a> = &'a (dyn Fn(Step<'_>) + Send + Sync);
