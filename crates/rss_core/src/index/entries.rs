//! A lazy iterator over entries, which reads some rows of a row group at a time.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use arrow_array::{Array, StringArray, cast::AsArray};
use chrono::{DateTime, Utc};

use super::{
    journal::address,
    open::{Index, href_column},
    schema::{ASSETS, column_of},
    select::{Select, micros_at},
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    reader::{Entry, KnownHeaders},
};

/// Rows of a batch: an entry with many tiles is large in memory.
const ROWS_AT_ONCE: usize = 64;

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
    /// The item's `datetime`, else its `start_datetime`; none if it has neither.
    pub datetime: Option<DateTime<Utc>>,
    /// The location, version and header of the file.
    pub entry: Entry,
}

/// A lazy iterator over entries of an index, returned by [`Index::entries`].
#[derive(Debug)]
pub struct Entries<'a> {
    index: &'a Index,
    select: Select,
    /// The ids of the selection, as a set: rows are preselected by hash, so each id is compared again.
    ids: Option<HashSet<String>>,
    assets: Vec<String>,
    /// The next row group.
    group: usize,
    /// Rows of the row group before it that are not read yet.
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

impl Index {
    /// Returns the entry of one asset of an item; none if the index does not have it. If several collections have
    /// an item of this id, the first one in the file is taken.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the file is damaged.
    pub fn entry(&self, item: &str, asset: &str) -> Result<Option<Entry>> {
        let select = Select::all().with_ids([item]).with_assets([asset]);
        let first = self.entries(&select)?.next().transpose()?;
        Ok(first.map(|found| found.entry))
    }

    /// Returns entries, in the order of the file: items, then assets by key. They are read lazily, in small
    /// batches.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the file is damaged.
    pub fn entries(&self, select: &Select) -> Result<Entries<'_>> {
        let wanted = |key: &&str| {
            let keys = select.assets.as_ref();
            keys.is_none_or(|keys| keys.iter().any(|one| one == key))
        };
        let assets: Vec<String> = self.keys().filter(wanted).map(str::to_owned).collect();
        Ok(Entries::new(self, select.clone(), assets))
    }

    /// Finds entries by the locations of their files, one for each location requested. Signatures and
    /// tokens are ignored in the comparison; an entry's location is the requested one. Costs the column of addresses,
    /// and the pages of the entries found.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the file is damaged.
    pub fn find(&self, locations: &[Location]) -> Result<Vec<Option<Entry>>> {
        let mut found: Vec<Option<Entry>> = vec![None; locations.len()];
        let mut wanted: HashMap<String, Vec<usize>> = HashMap::new();
        for (number, location) in locations.iter().enumerate() {
            wanted.entry(address(location)).or_default().push(number);
        }
        for group in 0..self.table.groups() {
            for asset in self.keys() {
                let column = column_of(asset);
                let mut hits: Vec<(usize, &[usize])> = Vec::new();
                for (row, href) in self.hrefs(group, asset)? {
                    let numbers = self
                        .location(&href)
                        .ok()
                        .and_then(|at| wanted.get(&address(&at)));
                    if let Some(numbers) = numbers {
                        hits.push((row, numbers));
                    }
                }
                for hits in hits.chunks(ROWS_AT_ONCE) {
                    let rows: Vec<usize> = hits.iter().map(|(row, _)| *row).collect();
                    let mask = self.table.mask(&[&[column.as_str()]]);
                    let batch = self.table.rows_of(group, &mask, &rows)?;
                    let entries = self.column(&batch, &column)?;
                    for (row, (_, numbers)) in hits.iter().enumerate() {
                        for &number in *numbers {
                            let (Some(slot), Some(location)) =
                                (found.get_mut(number), locations.get(number))
                            else {
                                continue;
                            };
                            if slot.is_none() {
                                *slot = entries
                                    .entry(row, location.clone())
                                    .map_err(|err| err.at(self.table.path().display()))?;
                            }
                        }
                    }
                }
            }
        }
        Ok(found)
    }
}

impl KnownHeaders for Index {
    fn find(&self, locations: &[Location]) -> Result<Vec<Option<Entry>>> {
        Self::find(self, locations)
    }
}

impl<'a> Entries<'a> {
    fn new(index: &'a Index, select: Select, assets: Vec<String>) -> Self {
        Self {
            index,
            ids: select.ids.as_ref().map(|ids| ids.iter().cloned().collect()),
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
        let times = ["datetime", "start_datetime"].map(|name| batch.column_by_name(name));
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
            if self.ids.as_ref().is_some_and(|wanted| !wanted.contains(id)) {
                continue;
            }
            let collection = collections
                .filter(|column| column.is_valid(row))
                .map(|column| column.value(row).to_owned());
            let datetime = times
                .iter()
                .flatten()
                .find_map(|times| micros_at(times, row))
                .and_then(DateTime::from_timestamp_micros);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, BinaryArray, RecordBatch, StructArray, TimestampMillisecondArray};

    use super::*;
    use crate::{
        geo::Size,
        index::{
            file::{Writer, schema_of},
            pack,
            schema::field,
        },
        location::Location,
        raster::DataType,
        reader::{Header, Image, Tiles, Version},
    };

    /// rustac writes times in milliseconds, and a build copies the columns of its input.
    #[test]
    fn a_time_in_milliseconds_is_a_time() {
        let side = Size {
            width: 16,
            height: 16,
        };
        let image = Image::new(side, side, 8, 1, Tiles::new(vec![8], vec![256]));
        let location = Location::parse("s3://b/a.tif").unwrap();
        let header = Header::new(DataType::U8, vec![image]);
        let entry = Entry::new(location, Version::of_size(264), header);
        let text = |text: &str| -> ArrayRef { Arc::new(StringArray::from(vec![text])) };
        let one = |name: &str, column: ArrayRef| -> ArrayRef {
            let fields = vec![field(name, column.data_type().clone())];
            Arc::new(StructArray::new(fields.into(), vec![column], None))
        };
        let times = TimestampMillisecondArray::from(vec![1_609_459_200_500]);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("id", text("a")),
            ("geometry", Arc::new(BinaryArray::from(vec![None::<&[u8]>]))),
            ("datetime", Arc::new(times.with_timezone("UTC"))),
            ("assets", one("red", one("href", text("s3://b/a.tif")))),
            (
                "index:red",
                Arc::new(pack::column(&[Some(&entry)]).unwrap()),
            ),
        ];
        let fields = columns
            .iter()
            .map(|(name, column)| field(name, column.data_type().clone()));
        let schema = schema_of(fields.collect());
        let arrays = columns.into_iter().map(|(_, column)| column).collect();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        let mut writer = Writer::create(
            &path,
            Arc::clone(&schema),
            &crate::index::disk::Stop::default(),
        )
        .unwrap();
        writer
            .write(&RecordBatch::try_new(schema, arrays).unwrap())
            .unwrap();
        writer.finish().unwrap();
        let index = Index::open(&path).unwrap();
        let found = index.entries(&Select::all()).unwrap().next().unwrap();
        let time = found.unwrap().datetime.unwrap();
        assert_eq!(time.to_rfc3339(), "2021-01-01T00:00:00.500+00:00");
    }
}
