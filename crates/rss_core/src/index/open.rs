//! An index that is open: what it holds, and entries by item, by place and time, or by location.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use arrow_array::{Array, RecordBatch, StringArray, StructArray, cast::AsArray};
use chrono::{DateTime, Utc};

use super::{
    entries::{Entries, ROWS_AT_ONCE},
    file::Said,
    journal::{Name, address},
    schema::{self, ASSETS, column_of},
    select::{Matches, Select},
    table::ParquetTable,
    unpack::{self, Column},
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::{Location, Trust},
    reader::{Entry, Version},
};

/// An open index. It can be shared by threads; dropping it closes the file.
///
/// What the file holds is read when it is asked for: opening reads the footer, and one entry costs the
/// pages that hold it.
#[derive(Debug)]
pub struct Index {
    table: ParquetTable,
    said: Said,
    trust: Trust,
    /// By row group, as they are asked for.
    ids: Mutex<HashMap<usize, Ids>>,
}

/// Hashes of the ids of a row group and their rows, sorted.
type Ids = Arc<Vec<(u64, usize)>>;

/// What an index holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// The version of the index's columns.
    pub version: u32,
    /// How many items.
    pub items: u64,
    /// How many files have an entry.
    pub files: u64,
    /// Each asset that has entries, by its key.
    pub assets: Vec<AssetInfo>,
    /// Bytes of the file.
    pub bytes: u64,
    /// Row groups of the file.
    pub row_groups: usize,
}

/// What an index holds of one asset.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AssetInfo {
    /// The asset's key.
    pub key: String,
    /// How many files have an entry.
    pub files: u64,
    /// Tiles of these files, over all levels and masks.
    pub tiles: u64,
}

/// A file of an index, as far as its catalogue columns and its version say it.
pub(super) struct Listed<'a> {
    pub(super) item: &'a str,
    pub(super) collection: Option<&'a str>,
    pub(super) asset: &'a str,
    pub(super) location: Location,
    pub(super) version: Version,
}

impl Index {
    /// Opens an index: reads its footer. Hrefs in it may name whatever a user may name; see
    /// [`Index::with_trust`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::Denied`] for the path; [`ErrorKind::Corrupt`] if it is no
    /// index; [`ErrorKind::Unsupported`] if it is of another version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let table = ParquetTable::open(path)?;
        let wrong = |kind, message: String| Error::new(kind, message).at(path.display());
        let Some(said) = table.said(schema::INDEX_KEY) else {
            let message = format!(
                "not an index: expected `{}` in the file's metadata, as `rss index build` writes it",
                schema::INDEX_KEY
            );
            return Err(wrong(ErrorKind::Corrupt, message));
        };
        let corrupt = |err: serde_json::Error| {
            let message = format!("`{}` in the file's metadata is damaged", schema::INDEX_KEY);
            wrong(ErrorKind::Corrupt, message).with_source(err)
        };
        /// What a later version still says.
        #[derive(serde::Deserialize)]
        struct Versioned {
            version: u32,
        }
        let Versioned { version } = serde_json::from_str(said).map_err(corrupt)?;
        if version != schema::VERSION {
            let message = format!(
                "an index of version {version}, expected {}; read it with the rss that wrote it",
                schema::VERSION
            );
            return Err(wrong(ErrorKind::Unsupported, message));
        }
        let said: Said = serde_json::from_str(said).map_err(corrupt)?;
        for column in [&["id"][..], &["geometry"]] {
            if table.leaf(column).is_none() {
                let message = format!("not an index: expected a column `{}`", column.join("."));
                return Err(wrong(ErrorKind::Corrupt, message));
            }
        }
        Ok(Self {
            table,
            said,
            trust: Trust::User,
            ids: Mutex::default(),
        })
    }

    /// Says what the hrefs of this index may name, where it comes from someone else.
    #[must_use]
    pub fn with_trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// Returns what the index holds, as its metadata says it.
    pub fn info(&self) -> Info {
        let assets: Vec<AssetInfo> = self
            .said
            .assets
            .iter()
            .map(|(key, count)| AssetInfo {
                key: key.clone(),
                files: count.files,
                tiles: count.tiles,
            })
            .collect();
        Info {
            version: self.said.version,
            items: self.table.rows(),
            files: assets
                .iter()
                .map(|asset| asset.files)
                .fold(0, u64::saturating_add),
            assets,
            bytes: self.table.bytes(),
            row_groups: self.table.groups(),
        }
    }

    /// Returns how many bytes of the file were read so far.
    pub fn bytes_read(&self) -> u64 {
        self.table.bytes_read()
    }

    pub(super) fn table(&self) -> &ParquetTable {
        &self.table
    }

    /// Tells of each file that has an entry. Reads no headers.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the file is damaged.
    pub(super) fn each_file(&self, mut tell: impl FnMut(Listed<'_>) -> Result<()>) -> Result<()> {
        let keys: Vec<(&str, String)> = self.keys().map(|key| (key, column_of(key))).collect();
        let mut paths: Vec<Vec<&str>> = vec![vec!["id"], vec!["collection"]];
        for (key, column) in &keys {
            paths.push(vec![ASSETS, key, "href"]);
            for part in ["size", "etag", "last_modified", "checksum"] {
                paths.push(vec![column, part]);
            }
        }
        let paths: Vec<&[&str]> = paths.iter().map(Vec::as_slice).collect();
        let mask = self.table.mask(&paths);
        for group in 0..self.table.groups() {
            for batch in self.table.read(group, &mask, None, 1024)? {
                let batch = batch?;
                let ids = self.ids_of(&batch)?;
                let collections: Option<&StringArray> = batch
                    .column_by_name("collection")
                    .and_then(|column| column.as_string_opt());
                for (key, column) in &keys {
                    let there = batch.column_by_name(column);
                    let (Some(there), Some(hrefs)) = (
                        there.and_then(|column| column.as_struct_opt()),
                        href_column(&batch, key),
                    ) else {
                        continue;
                    };
                    for row in 0..batch.num_rows() {
                        if there.is_null(row) || hrefs.is_null(row) || ids.is_null(row) {
                            continue;
                        }
                        let Ok(location) = self.location(hrefs.value(row)) else {
                            continue;
                        };
                        let collection = collections
                            .filter(|column| column.is_valid(row))
                            .map(|column| column.value(row));
                        let version = unpack::version(there, row)
                            .map_err(|err| err.at(self.table.path().display()))?;
                        tell(Listed {
                            item: ids.value(row),
                            collection,
                            asset: key,
                            location,
                            version,
                        })?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the short names of an asset's files in a batch.
    pub(super) fn names(&self, batch: &RecordBatch, asset: &str) -> Vec<Option<Name>> {
        let Some(hrefs) = href_column(batch, asset) else {
            return vec![None; batch.num_rows()];
        };
        let name = |href: Option<&str>| Some(Name::of(&self.location(href?).ok()?));
        hrefs.iter().map(name).collect()
    }

    /// Returns the keys of the assets that are indexed.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.said.assets.keys().map(String::as_str)
    }

    /// Returns the entry of one asset of an item; none if the index does not have it. Of items of the
    /// same id in several collections it is the first one's.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the file is damaged.
    pub fn entry(&self, item: &str, asset: &str) -> Result<Option<Entry>> {
        let select = Select::all().with_ids([item]).with_assets([asset]);
        let first = self.entries(&select)?.next().transpose()?;
        Ok(first.map(|found| found.entry))
    }

    /// Returns entries, in the order of the file: items, then assets by key. They are read while the
    /// iterator runs, some rows at a time.
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

    /// Finds entries by the locations of their files, one for each location asked for. Signatures and
    /// tokens do not count; the entry's location is the one asked for. Costs the column of addresses,
    /// then what is found.
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

    /// Returns the hrefs of an asset in a row group, with their rows.
    fn hrefs(&self, group: usize, asset: &str) -> Result<Vec<(usize, String)>> {
        let mask = self.table.mask(&[&[ASSETS, asset, "href"]]);
        let mut hrefs = Vec::new();
        let mut start = 0;
        for batch in self.table.read(group, &mask, None, 1024)? {
            let batch = batch?;
            if let Some(column) = href_column(&batch, asset) {
                let rows = column.iter().enumerate();
                hrefs.extend(rows.filter_map(|(row, href)| Some((start + row, href?.to_owned()))));
            }
            start += batch.num_rows();
        }
        Ok(hrefs)
    }

    pub(super) fn location(&self, href: &str) -> Result<Location> {
        Location::parse_from(href, self.trust)
    }

    pub(super) fn column<'a>(&self, batch: &'a RecordBatch, name: &str) -> Result<Column<'a>> {
        let column = batch
            .column_by_name(name)
            .and_then(|column| column.as_struct_opt());
        let column = column.ok_or_else(|| {
            let message = format!("expected a column `{name}` of structs");
            Error::new(ErrorKind::Corrupt, message)
        });
        column
            .and_then(Column::new)
            .map_err(|err| err.at(self.table.path().display()))
    }

    /// Returns the rows of a row group that may be meant, by id alone.
    fn rows_by_id(&self, group: usize, ids: &[String]) -> Result<Vec<usize>> {
        let lock = || self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(&group).cloned();
        let known = match known {
            Some(known) => known,
            None => {
                let texts: Vec<&str> = ids.iter().map(String::as_str).collect();
                if let Some(leaf) = self.table.leaf(&["id"])
                    && !self.table.may_hold(group, leaf, &texts)?
                {
                    return Ok(Vec::new());
                }
                let known = Arc::new(self.hashes(group)?);
                lock().insert(group, Arc::clone(&known));
                known
            }
        };
        let mut rows = Vec::new();
        for id in ids {
            let wanted = hash(id);
            let from = known.partition_point(|(hash, _)| *hash < wanted);
            let same = known
                .iter()
                .skip(from)
                .take_while(|(hash, _)| *hash == wanted);
            rows.extend(same.map(|(_, row)| *row));
        }
        rows.sort_unstable();
        rows.dedup();
        Ok(rows)
    }

    fn hashes(&self, group: usize) -> Result<Vec<(u64, usize)>> {
        let mask = self.table.mask(&[&["id"]]);
        let mut hashes = Vec::new();
        let mut start = 0;
        for batch in self.table.read(group, &mask, None, 1024)? {
            let batch = batch?;
            let ids = self.ids_of(&batch)?;
            for row in 0..ids.len() {
                if ids.is_valid(row) {
                    hashes.push((hash(ids.value(row)), start + row));
                }
            }
            start += batch.num_rows();
        }
        hashes.sort_unstable();
        Ok(hashes)
    }

    pub(super) fn ids_of<'a>(&self, batch: &'a RecordBatch) -> Result<&'a StringArray> {
        let ids = batch
            .column_by_name("id")
            .and_then(|ids| ids.as_string_opt());
        ids.ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, "expected a column `id` of text")
                .at(self.table.path().display())
        })
    }

    /// Returns the rows of a row group that may be meant: exact for place and time, by hash for ids.
    pub(super) fn rows(&self, group: usize, select: &Select) -> Result<Vec<usize>> {
        if !self.may_match(group, select) {
            return Ok(Vec::new());
        }
        let rows = match &select.ids {
            Some(ids) => self.rows_by_id(group, ids)?,
            None => (0..self.table.group_rows(group)).collect(),
        };
        if rows.is_empty()
            || (select.bbox.is_none() && select.start.is_none() && select.end.is_none())
        {
            return Ok(rows);
        }
        let mask = self.table.mask(&[
            &["bbox"],
            &["datetime"],
            &["start_datetime"],
            &["end_datetime"],
        ]);
        let mut kept = Vec::new();
        let mut left = rows.as_slice();
        for batch in self.table.read(group, &mask, Some(&rows), 1024)? {
            let batch = batch?;
            let (now, later) = left.split_at(batch.num_rows().min(left.len()));
            left = later;
            let matches = Matches::new(&batch, select);
            let numbered = now.iter().enumerate();
            kept.extend(
                numbered
                    .filter(|(row, _)| matches.row(*row))
                    .map(|(_, row)| *row),
            );
        }
        Ok(kept)
    }

    /// Returns false where the file says that no row of a group is in the place or time asked for.
    fn may_match(&self, group: usize, select: &Select) -> bool {
        let table = &self.table;
        // Looking for columns by name takes longer than the rest of asking a group for an id.
        if select.bbox.is_none() && select.start.is_none() && select.end.is_none() {
            return true;
        }
        if let Some(bbox) = select.bbox {
            let edge = |name| table.extremes(group, &["bbox", name]);
            if edge("ymin").is_some_and(|(min, _)| min > bbox.north())
                || edge("ymax").is_some_and(|(_, max)| max < bbox.south())
            {
                return false;
            }
            // A box across the antimeridian starts in the east: its edges say nothing.
            let plain = !self.said.crosses_antimeridian && !bbox.crosses_antimeridian();
            if plain
                && (edge("xmin").is_some_and(|(min, _)| min > bbox.east())
                    || edge("xmax").is_some_and(|(_, max)| max < bbox.west()))
            {
                return false;
            }
        }
        if table.leaf(&["start_datetime"]).is_some() || table.leaf(&["end_datetime"]).is_some() {
            return true;
        }
        #[expect(
            clippy::cast_precision_loss,
            reason = "both sides are rounded, and a second of slack is left"
        )]
        let micros = |time: DateTime<Utc>| time.timestamp_micros() as f64;
        match table.extremes(group, &["datetime"]) {
            None => true,
            Some((min, max)) => {
                select.start.is_none_or(|start| micros(start) <= max + 1e6)
                    && select.end.is_none_or(|end| micros(end) >= min - 1e6)
            }
        }
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Returns the hrefs of an asset.
pub(super) fn href_column<'a>(batch: &'a RecordBatch, asset: &str) -> Option<&'a StringArray> {
    let assets = batch.column_by_name(ASSETS)?.as_struct_opt()?;
    let asset: &StructArray = assets.column_by_name(asset)?.as_struct_opt()?;
    asset.column_by_name("href")?.as_string_opt()
}
