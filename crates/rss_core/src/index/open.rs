//! An index that is open: what it holds, and entries by item, by place and time, or by location.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use arrow_array::{
    Array, Float64Array, RecordBatch, StringArray, StructArray, TimestampMicrosecondArray,
    cast::AsArray,
};
use chrono::{DateTime, Utc};

use super::{
    file::Said,
    items::stripped,
    journal::Name,
    schema::{self, ASSETS, column_of},
    table::Table,
    unpack::{self, Column},
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::Bbox,
    location::{Location, Trust},
    reader::{Entry, Version},
};

/// Entries that are read at once.
const ROWS_AT_ONCE: usize = 64;

/// An open index. It can be shared by threads; dropping it closes the file.
///
/// What the file holds is read when it is asked for: opening reads the footer, and one entry costs the
/// pages that hold it.
#[derive(Debug)]
pub struct Index {
    table: Table,
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

/// Which entries are meant: all by default.
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

    /// Selects items by place; one without a bbox is nowhere.
    #[must_use]
    pub fn with_bbox(mut self, bbox: Bbox) -> Self {
        self.bbox = Some(bbox);
        self
    }

    /// Selects items by time, both ends included; one without a time is at none.
    #[must_use]
    pub fn with_times(mut self, start: Option<DateTime<Utc>>, end: Option<DateTime<Utc>>) -> Self {
        (self.start, self.end) = (start, end);
        self
    }
}

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
    /// Where the file is, and what is known of it.
    pub entry: Entry,
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
        let table = Table::open(path)?;
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

    pub(super) fn table(&self) -> &Table {
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
        Ok(Entries {
            index: self,
            select: select.clone(),
            assets,
            group: 0,
            rows: VecDeque::new(),
            ready: VecDeque::new(),
            failed: false,
        })
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
            wanted.entry(name(location)).or_default().push(number);
        }
        for group in 0..self.table.groups() {
            for asset in self.keys() {
                let column = column_of(asset);
                let Some(leaf) = self.table.leaf(&[ASSETS, asset, "href"]) else {
                    continue;
                };
                let mut hits: Vec<(usize, &[usize])> = Vec::new();
                for (row, href) in self.hrefs(group, asset, leaf)? {
                    let numbers = self
                        .location(&href)
                        .ok()
                        .and_then(|at| wanted.get(&name(&at)));
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
    fn hrefs(&self, group: usize, asset: &str, leaf: usize) -> Result<Vec<(usize, String)>> {
        debug_assert!(leaf < usize::MAX);
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

    fn location(&self, href: &str) -> Result<Location> {
        Location::parse_from(href, self.trust)
    }

    fn column<'a>(&self, batch: &'a RecordBatch, name: &str) -> Result<Column<'a>> {
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

    fn ids_of<'a>(&self, batch: &'a RecordBatch) -> Result<&'a StringArray> {
        let ids = batch
            .column_by_name("id")
            .and_then(|ids| ids.as_string_opt());
        ids.ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, "expected a column `id` of text")
                .at(self.table.path().display())
        })
    }

    /// Returns the rows of a row group that may be meant: exact for place and time, by hash for ids.
    fn rows(&self, group: usize, select: &Select) -> Result<Vec<usize>> {
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

/// Returns one name for all spellings of a location, without its secrets.
pub(super) fn name(location: &Location) -> String {
    if let Some(s3) = location.as_s3() {
        return format!("s3://{}/{}", s3.bucket, s3.key);
    }
    match location {
        Location::Http(url) => {
            let plain = stripped(url.as_str());
            let plain =
                plain.map_or_else(|| url.clone(), |text| text.parse().unwrap_or(url.clone()));
            match Location::Http(plain).as_s3() {
                Some(s3) => format!("s3://{}/{}", s3.bucket, s3.key),
                None => crate::store::without_secrets(url).to_string(),
            }
        }
        Location::Local(path) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
            path.to_string_lossy().into_owned()
        }
        other => other.to_href(),
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

/// Which rows of a batch are in the place and time asked for.
struct Matches<'a> {
    select: &'a Select,
    edges: Option<[&'a Float64Array; 4]>,
    times: [Option<&'a TimestampMicrosecondArray>; 3],
}

impl<'a> Matches<'a> {
    fn new(batch: &'a RecordBatch, select: &'a Select) -> Self {
        let edges = batch.column_by_name("bbox").and_then(|column| {
            let column = column.as_struct_opt()?;
            let edge = |name| column.column_by_name(name)?.as_any().downcast_ref();
            Some([edge("xmin")?, edge("ymin")?, edge("xmax")?, edge("ymax")?])
        });
        let time = |name| batch.column_by_name(name)?.as_any().downcast_ref();
        Self {
            select,
            edges,
            times: ["datetime", "start_datetime", "end_datetime"].map(time),
        }
    }

    fn row(&self, row: usize) -> bool {
        self.in_place(row) && self.in_time(row)
    }

    fn in_place(&self, row: usize) -> bool {
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
        let [at, start, end] = self.times.map(|times| {
            let times = times.filter(|times| times.is_valid(row))?;
            Some(times.value(row))
        });
        let (Some(first), Some(last)) = (start.or(at), end.or(at)) else {
            return false;
        };
        let micros = |time: DateTime<Utc>| time.timestamp_micros();
        self.select.start.is_none_or(|start| last >= micros(start))
            && self.select.end.is_none_or(|end| first <= micros(end))
    }
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
                if self.group >= self.index.table.groups() || self.assets.is_empty() {
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

impl Entries<'_> {
    fn read(&mut self, rows: &[usize]) -> Result<()> {
        let group = self.group.saturating_sub(1);
        let index = self.index;
        let columns: BTreeMap<&str, String> = self
            .assets
            .iter()
            .map(|asset| (asset.as_str(), column_of(asset)))
            .collect();
        let hrefs: Vec<[&str; 3]> = columns.keys().map(|key| [ASSETS, key, "href"]).collect();
        let mut paths: Vec<&[&str]> = vec![&["id"], &["collection"]];
        let tops: Vec<[&str; 1]> = columns.values().map(|column| [column.as_str()]).collect();
        paths.extend(tops.iter().map(|path| path.as_slice()));
        paths.extend(hrefs.iter().map(|path| path.as_slice()));
        let mask = index.table.mask(&paths);
        let batch = index.table.rows_of(group, &mask, rows)?;
        let ids = index.ids_of(&batch)?;
        let collections: Option<&StringArray> = batch
            .column_by_name("collection")
            .and_then(|column| column.as_string_opt());
        let mut parts = Vec::new();
        for (key, column) in &columns {
            parts.push((
                *key,
                index.column(&batch, column)?,
                href_column(&batch, key),
            ));
        }
        let here = |err: Error| err.at(index.table.path().display());
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
                        entry,
                    });
                }
            }
        }
        Ok(())
    }
}
