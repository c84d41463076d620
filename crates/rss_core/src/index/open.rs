//! An open index: its metadata, and its entries by item, by bbox and time, or by location.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use arrow_array::{Array, RecordBatch, StringArray, StructArray, cast::AsArray};
use chrono::{DateTime, Utc};

use super::{
    journal::Name,
    schema::{self, ASSETS, column_of},
    select::{Matches, Select},
    summary::Said,
    table::ParquetTable,
    unpack::{self, Column},
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::{Location, Trust},
    reader::Version,
};

/// An open index. It can be shared by threads; dropping it closes the file.
///
/// The file is read lazily: opening reads the footer, and one entry costs the pages that hold it.
#[derive(Debug)]
pub struct Index {
    pub(super) table: ParquetTable,
    said: Said,
    trust: Trust,
    /// By row group, cached when first used.
    ids: Mutex<HashMap<usize, Ids>>,
}

/// Hashes of the ids of a row group and their rows, sorted.
type Ids = Arc<Vec<(u64, usize)>>;

/// The metadata of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// The version of the index's columns.
    pub version: u32,
    /// Items.
    pub items: u64,
    /// Files with an entry.
    pub files: u64,
    /// Each asset that has entries, by its key.
    pub assets: Vec<AssetInfo>,
    /// Bytes of the file.
    pub bytes: u64,
    /// Row groups of the file.
    pub row_groups: usize,
}

/// The number of files and tiles of one asset.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AssetInfo {
    /// The asset's key.
    pub key: String,
    /// Files with an entry.
    pub files: u64,
    /// Tiles of these files, over all levels and masks.
    pub tiles: u64,
}

/// A file of an index, without its header.
pub(super) struct Listed<'a> {
    pub(super) item: &'a str,
    pub(super) collection: Option<&'a str>,
    pub(super) asset: &'a str,
    pub(super) location: Location,
    pub(super) version: Version,
}

impl Index {
    /// Opens an index: reads its footer. Its hrefs are trusted like a user's own input, local paths included; see
    /// [`Index::with_trust`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::Denied`] for the path; [`ErrorKind::Corrupt`] if it is not an
    /// index; [`ErrorKind::Unsupported`] if it has another version.
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
        /// The only field that every version has: the others are parsed when the version is known.
        #[derive(serde::Deserialize)]
        struct Versioned {
            version: u32,
        }
        // The version first: another version's fields may not parse, and would be reported as damage.
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

    /// Sets what the hrefs of this index may name, for an index from someone else.
    #[must_use]
    pub fn with_trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// Returns the metadata of the index.
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

    /// Returns the bytes of the file that were read so far.
    pub fn bytes_read(&self) -> u64 {
        self.table.bytes_read()
    }

    pub(super) fn table(&self) -> &ParquetTable {
        &self.table
    }

    /// Calls `visit` for each file that has an entry. Reads the columns of addresses and versions, no headers.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if the file is damaged.
    pub(super) fn each_file(&self, mut visit: impl FnMut(Listed<'_>) -> Result<()>) -> Result<()> {
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
                        // An href that the trust does not allow is skipped: no request may be sent to it.
                        let Ok(location) = self.location(hrefs.value(row)) else {
                            continue;
                        };
                        let collection = collections
                            .filter(|column| column.is_valid(row))
                            .map(|column| column.value(row));
                        let version = unpack::version(there, row)
                            .map_err(|err| err.at(self.table.path().display()))?;
                        visit(Listed {
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

    /// Returns the names (digests) of an asset's files in a batch.
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

    /// Returns the hrefs of an asset in a row group, with their rows.
    pub(super) fn hrefs(&self, group: usize, asset: &str) -> Result<Vec<(usize, String)>> {
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

    /// Returns the rows of a row group that may have one of these ids. A hash may collide: the caller compares the ids.
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
                // Read without the lock. Two threads may do so at the same time, with the same result.
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

    /// Returns the rows of a row group that may match: exact for bbox and time, by hash for ids.
    pub(super) fn rows(&self, group: usize, select: &Select) -> Result<Vec<usize>> {
        if !self.may_match(group, select) {
            return Ok(Vec::new());
        }
        let rows = match &select.ids {
            Some(ids) => self.rows_by_id(group, ids)?,
            None => (0..self.table.group_rows(group)).collect(),
        };
        // Only the rows that the ids left over are read for their bbox and time.
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
        let mut matching = Vec::new();
        let mut left = rows.as_slice();
        for batch in self.table.read(group, &mask, Some(&rows), 1024)? {
            let batch = batch?;
            let (now, later) = left.split_at(batch.num_rows().min(left.len()));
            left = later;
            let matches = Matches::new(&batch, select);
            let numbered = now.iter().enumerate();
            matching.extend(
                numbered
                    .filter(|(row, _)| matches.row(*row))
                    .map(|(_, row)| *row),
            );
        }
        Ok(matching)
    }

    /// Returns false if the statistics of a row group exclude the bbox or the time of a selection.
    fn may_match(&self, group: usize, select: &Select) -> bool {
        let table = &self.table;
        // Finding columns by name takes longer than the rest of a look-up by id.
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
            // A bbox across the antimeridian has xmin > xmax, so the statistics of xmin and xmax exclude nothing.
            let plain = !self.said.crosses_antimeridian && !bbox.crosses_antimeridian();
            if plain
                && (edge("xmin").is_some_and(|(min, _)| min > bbox.east())
                    || edge("xmax").is_some_and(|(_, max)| max < bbox.west()))
            {
                return false;
            }
        }
        // An item may span an interval that its `datetime` does not show: only rows decide then.
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

/// Returns true for a Parquet file that is an index: other stac-geoparquet has no headers.
///
/// # Errors
///
/// As of [`Index::open`] for the path, and for a file that is no Parquet.
pub fn is_index(path: impl AsRef<Path>) -> Result<bool> {
    let table = ParquetTable::open(path.as_ref())?;
    Ok(table.said(schema::INDEX_KEY).is_some())
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
