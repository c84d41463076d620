//! Selecting entries by item, asset, bbox and time. No IO.

use arrow_array::{
    Array, ArrayRef, Float64Array, RecordBatch, TimestampMicrosecondArray,
    TimestampMillisecondArray, TimestampNanosecondArray, cast::AsArray,
};
use chrono::{DateTime, Utc};

use crate::geo::Bbox;

/// A selection of entries: all by default.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Select {
    /// Only items of these ids.
    pub ids: Option<Vec<String>>,
    /// Only these assets.
    pub assets: Option<Vec<String>>,
    /// Only items whose bbox shares a point with this one.
    pub bbox: Option<Bbox>,
    /// Only items that end at this time or later.
    pub start: Option<DateTime<Utc>>,
    /// Only items that start at this time or earlier.
    pub end: Option<DateTime<Utc>>,
}

impl Select {
    /// Selects everything.
    pub fn all() -> Self {
        Self::default()
    }

    /// Selects items by their ids.
    #[must_use]
    pub fn with_ids(mut self, ids: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.ids = Some(ids.into_iter().map(Into::into).collect());
        self
    }

    /// Selects assets by their keys.
    #[must_use]
    pub fn with_assets(mut self, keys: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.assets = Some(keys.into_iter().map(Into::into).collect());
        self
    }

    /// Selects items by bbox; an item without a bbox is not selected.
    #[must_use]
    pub fn with_bbox(mut self, bbox: Bbox) -> Self {
        self.bbox = Some(bbox);
        self
    }

    /// Selects items by time, both ends included; an item without a time is not selected.
    #[must_use]
    pub fn with_times(mut self, start: Option<DateTime<Utc>>, end: Option<DateTime<Utc>>) -> Self {
        (self.start, self.end) = (start, end);
        self
    }
}

/// Tests the rows of a batch for the bbox and the time of a selection.
pub(super) struct Matches<'a> {
    select: &'a Select,
    edges: Option<[&'a Float64Array; 4]>,
    times: [Option<&'a ArrayRef>; 3],
}

impl<'a> Matches<'a> {
    pub(super) fn new(batch: &'a RecordBatch, select: &'a Select) -> Self {
        let edges = batch.column_by_name("bbox").and_then(|column| {
            let column = column.as_struct_opt()?;
            let edge = |name| column.column_by_name(name)?.as_any().downcast_ref();
            Some([edge("xmin")?, edge("ymin")?, edge("xmax")?, edge("ymax")?])
        });
        let time = |name| batch.column_by_name(name);
        Self {
            select,
            edges,
            times: ["datetime", "start_datetime", "end_datetime"].map(time),
        }
    }

    pub(super) fn row(&self, row: usize) -> bool {
        self.in_bbox(row) && self.in_time(row)
    }

    fn in_bbox(&self, row: usize) -> bool {
        let Some(wanted) = self.select.bbox else {
            return true;
        };
        let Some(edges) = self.edges else {
            return false;
        };
        if edges.iter().any(|edge| edge.is_null(row)) {
            return false;
        }
        let [west, south, east, north] = edges.map(|edge| edge.value(row));
        Bbox::new(west, south, east, north).is_ok_and(|bbox| bbox.intersects(&wanted))
    }

    fn in_time(&self, row: usize) -> bool {
        if self.select.start.is_none() && self.select.end.is_none() {
            return true;
        }
        let [at, start, end] = self.times.map(|times| micros_at(times?, row));
        let (Some(first), Some(last)) = (start.or(at), end.or(at)) else {
            return false;
        };
        let micros = |time: DateTime<Utc>| time.timestamp_micros();
        self.select.start.is_none_or(|start| last >= micros(start))
            && self.select.end.is_none_or(|end| first <= micros(end))
    }
}

/// Returns a time of a column in microseconds, whatever its unit in the file.
pub(super) fn micros_at(times: &ArrayRef, row: usize) -> Option<i64> {
    if times.is_null(row) {
        return None;
    }
    let any = times.as_any();
    if let Some(times) = any.downcast_ref::<TimestampMicrosecondArray>() {
        return Some(times.value(row));
    }
    if let Some(times) = any.downcast_ref::<TimestampMillisecondArray>() {
        return times.value(row).checked_mul(1000);
    }
    let times = any.downcast_ref::<TimestampNanosecondArray>()?;
    Some(times.value(row).div_euclid(1000))
}
