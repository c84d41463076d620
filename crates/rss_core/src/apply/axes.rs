//! The labels of a cube's axes: bands and time steps.

use chrono::{DateTime, Utc};

use crate::raster::Number;

/// A band of a cube.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ImageCubeBand {
    /// Its canonical name, the same at every provider, such as `red`; without a manifest the asset's key. Of an asset
    /// with several bands `key:red`, by the names that the catalogue or the file gives to the bands, or else `key:1`;
    /// of a band that was selected by itself the name of the selection.
    pub name: String,
    /// The key of its assets.
    pub asset: String,
    /// The nodata value: that of the first file that can be opened, else that of the catalogue.
    pub nodata: Option<Number>,
    /// Whether its samples are classes or flags, which have no mean: integers of a QA band of the manifest, or of an
    /// asset that states its classes or is named like a usual band of them.
    pub is_class: bool,
    /// Other names that it is found by: with its number, and with each name of the catalogue.
    pub(super) aliases: Vec<String>,
}

/// A time step of a cube.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// Its label, such as `2021-01-03`.
    pub label: String,
    /// The time of its earliest image.
    pub time: DateTime<Utc>,
    /// The ids of its items, in the order of the mosaic: of two valid pixels the first item's wins.
    pub items: Vec<String>,
}
