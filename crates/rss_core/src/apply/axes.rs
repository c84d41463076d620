//! The labels of a cube's axes: bands and time steps.

use ::stac::Item;
use chrono::{DateTime, Utc};

use crate::{raster::Number, stac};

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

/// A span of time: the images of a time step, or a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TimeBounds {
    /// The first instant.
    pub start: DateTime<Utc>,
    /// The last instant; of a period such as a month the first one of the next.
    pub end: DateTime<Utc>,
}

impl TimeBounds {
    /// Makes the span of an instant.
    pub fn at(time: DateTime<Utc>) -> Self {
        Self {
            start: time,
            end: time,
        }
    }

    /// Returns the span that an item states, or else that of its time.
    pub(crate) fn of_item(item: &Item, time: DateTime<Utc>) -> Self {
        match stac::interval(item) {
            Some((start, end)) => Self::of(start, end),
            None => Self::at(time),
        }
    }

    /// Makes a span of two instants, in whichever order.
    pub fn of(one: DateTime<Utc>, other: DateTime<Utc>) -> Self {
        Self {
            start: one.min(other),
            end: one.max(other),
        }
    }

    /// Returns the span of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            start: self.start.min(other.start),
            end: self.end.max(other.end),
        }
    }

    /// Returns true if it is a single instant.
    pub fn is_instant(self) -> bool {
        self.start == self.end
    }
}

/// A time step of a cube.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// Its label, such as `2021-01-03`.
    pub label: String,
    /// The time of its earliest image.
    pub time: DateTime<Utc>,
    /// The first and the last instant of its images; the period where it is one.
    pub bounds: TimeBounds,
    /// The ids of its items, in the order of the mosaic: of two valid pixels the first item's wins.
    pub items: Vec<String>,
}
