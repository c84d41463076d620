//! What the axes of a cube name: its bands and its dates.

use chrono::{DateTime, Utc};

/// A band of a cube.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ImageCubeBand {
    /// What it is called at every provider, such as `red`; without a manifest the asset's key.
    pub name: String,
    /// The key of its assets.
    pub asset: String,
    /// The sample that means "no data": what the catalogue says, else the first file that can be opened.
    pub nodata: Option<f64>,
}

/// A date of a cube.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// What it is called, such as `2021-01-03`.
    pub label: String,
    /// The time of its earliest image.
    pub time: DateTime<Utc>,
    /// The ids of its items, in the order in which they are laid over each other.
    pub items: Vec<String>,
}
