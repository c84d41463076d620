//! Entries as they are read: some rows of a row group at a time.

use std::collections::{BTreeMap, VecDeque};

use arrow_array::{Array, StringArray, TimestampMicrosecondArray, cast::AsArray};
use chrono::{DateTime, Utc};

use super::{
    open::{Index, href_column},
    schema::{ASSETS, column_of},
    select::Select,
};
use crate::{
    error::{Error, ErrorKind, Result},
    reader::Entry,
};

/// Entries that are read at once.
pub(super) const ROWS_AT_ONCE: usize = 64;

/// One file of an index, with the item and the asset it belongs to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Indexed {
    /// The item's id.
    pub item: String,
    /// The item's collection, if it has one.
    pub collection: Option<String>,
    /// The asset's key.
    pub asset: String,
    /// When the item is: its time, or where it has none, the start of its time; none if it has neither.
    pub datetime: Option<DateTime<Utc>>,
    /// Where the file is, and what is known of it.
    pub entry: Entry,
}

/// Entries of an index as they are read; made by [`Index::entries`].
#[derive(Debug)]
pub struct Entries<'a> {
    index: &'a Index,
    select: Select,
    assets: Vec<String>,
    /// The row group to look at next.
    group: usize,
    /// Rows of the row group before it that are still to be read.
    rows: VecDeque<usize>,
    ready: VecDeque<Indexed>,
    failed: bool,
}

impl Iterator for Entries<'_> {
    type Item = Result<Indexed>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.failed {
                return None;
            }
            if let Some(ready) = self.ready.pop_front() {
                return Some(Ok(ready));
            }
            if self.rows.is_empty() {
                if self.group >= self.index.table().groups() || self.assets.is_empty() {
                    return None;
                }
                match self.index.rows(self.group, &self.select) {
                    Ok(rows) => self.rows = rows.into(),
                    Err(err) => {
                        self.failed = true;
                        return Some(Err(err));
                    }
                }
                self.group += 1;
                continue;
            }
            let some = self.rows.len().min(ROWS_AT_ONCE);
            let rows: Vec<usize> = self.rows.drain(..some).collect();
            if let Err(err) = self.read(&rows) {
                self.failed = true;
                return Some(Err(err));
            }
        }
    }
}

impl<'a> Entries<'a> {
    pub(super) fn new(index: &'a Index, select: Select, assets: Vec<String>) -> Self {
        Self {
            index,
            select,
            assets,
            group: 0,
            rows: VecDeque::new(),
            ready: VecDeque::new(),
            failed: false,
        }
    }

    fn read(&mut self, rows: &[usize]) -> Result<()> {
        let group = self.group.saturating_sub(1);
        let index = self.index;
        let columns: BTreeMap<&str, String> = self
            .assets
            .iter()
            .map(|asset| (asset.as_str(), column_of(asset)))
            .collect();
        let hrefs: Vec<[&str; 3]> = columns.keys().map(|key| [ASSETS, key, "href"]).collect();
        let mut paths: Vec<&[&str]> =
            vec![&["id"], &["collection"], &["datetime"], &["start_datetime"]];
        let tops: Vec<[&str; 1]> = columns.values().map(|column| [column.as_str()]).collect();
        paths.extend(tops.iter().map(|path| path.as_slice()));
        paths.extend(hrefs.iter().map(|path| path.as_slice()));
        let mask = index.table().mask(&paths);
        let batch = index.table().rows_of(group, &mask, rows)?;
        let ids = index.ids_of(&batch)?;
        let collections: Option<&StringArray> = batch
            .column_by_name("collection")
            .and_then(|column| column.as_string_opt());
        let times = ["datetime", "start_datetime"].map(|name| {
            let column: &TimestampMicrosecondArray =
                batch.column_by_name(name)?.as_any().downcast_ref()?;
            Some(column)
        });
        let mut parts = Vec::new();
        for (key, column) in &columns {
            parts.push((
                *key,
                index.column(&batch, column)?,
                href_column(&batch, key),
            ));
        }
        let here = |err: Error| err.at(index.table().path().display());
        for row in 0..batch.num_rows() {
            let wrong = |expected: &str| {
                let message = format!("expected {expected}");
                here(Error::new(ErrorKind::Corrupt, message))
            };
            if ids.is_null(row) {
                return Err(wrong("an id for each item"));
            }
            let id = ids.value(row);
            if let Some(wanted) = &self.select.ids
                && !wanted.iter().any(|one| one == id)
            {
                continue;
            }
            let collection = collections
                .filter(|column| column.is_valid(row))
                .map(|column| column.value(row).to_owned());
            let datetime = times
                .iter()
                .flatten()
                .find(|times| times.is_valid(row))
                .and_then(|times| DateTime::from_timestamp_micros(times.value(row)));
            for (key, column, hrefs) in &parts {
                if !column.is_there(row) {
                    continue;
                }
                let href = hrefs
                    .filter(|hrefs| hrefs.is_valid(row))
                    .map(|hrefs| hrefs.value(row))
                    .ok_or_else(|| wrong("an href for each file that is indexed"))?;
                let location = index.location(href).map_err(here)?;
                if let Some(entry) = column.entry(row, location)? {
                    self.ready.push_back(Indexed {
                        item: id.to_owned(),
                        collection: collection.clone(),
                        asset: (*key).to_owned(),
                        datetime,
                        entry,
                    });
                }
            }
        }
        Ok(())
    }
}
