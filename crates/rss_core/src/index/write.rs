//! Writing an index from headers in memory: no network, no journal.

use std::{fmt, path::Path, sync::Arc};

use arrow_array::RecordBatch;
use arrow_schema::{DataType, SchemaRef};
use stac::Item;

use super::{
    disk::Stop,
    file::{self, schema_of},
    inputs::ROWS_AT_ONCE,
    items::{Columns, Row},
    pack, schema,
};
use crate::{
    error::{Error, ErrorKind, Result},
    reader::Entry,
};

/// Writes an index, item by item, from entries in memory; [`Builder`](super::Builder) reads them
/// from files. The output appears with [`Writer::finish`].
///
/// ```
/// use rss_core::{DataType, Entry, Location, Size, index, reader::{Header, Image, Tiles, Version}};
///
/// let item: stac::Item = serde_json::from_value(serde_json::json!({
///     "type": "Feature", "stac_version": "1.1.0", "id": "a", "geometry": null, "links": [],
///     "properties": {"datetime": "2021-01-01T00:00:00Z"},
///     "assets": {"red": {"href": "s3://bucket/a/red.tif"}},
/// }))?;
/// let side = Size { width: 512, height: 512 };
/// let image = Image::new(side, side, 16, 1, Tiles::new(vec![1024], vec![9000]));
/// let location = Location::parse("s3://bucket/a/red.tif")?;
/// let header = Header::new(DataType::U16, vec![image]);
/// let entry = Entry::new(location, Version::of_size(10_024), header);
///
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("index.parquet");
/// let mut writer = index::Writer::create(&path, [&item], ["red"])?;
/// writer.push(&item, &[("red", &entry)])?;
/// writer.finish()?;
///
/// let index = index::Index::open(&path)?;
/// assert_eq!(index.entry("a", "red")?, Some(entry));
/// # Ok::<_, anyhow::Error>(())
/// ```
pub struct Writer {
    columns: Columns,
    assets: Vec<String>,
    schema: SchemaRef,
    file: file::Writer,
    rows: Vec<Row>,
    /// For each asset, an entry for each row.
    entries: Vec<Vec<Option<Entry>>>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("assets", &self.assets)
            .finish_non_exhaustive()
    }
}

impl Writer {
    /// Creates an index with the columns of the items given, and of entries of these assets.
    ///
    /// # Errors
    ///
    /// Errors of the file system.
    pub fn create<'a>(
        output: impl AsRef<Path>,
        like: impl IntoIterator<Item = &'a Item>,
        assets: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self> {
        let mut columns = Columns::default();
        for item in like {
            columns.learn(&Row::of_item(item)?);
        }
        let mut assets: Vec<String> = assets.into_iter().map(Into::into).collect();
        assets.sort();
        assets.dedup();
        let mut fields = columns.fields();
        for asset in &assets {
            let kind = DataType::Struct(schema::entry());
            fields.push(schema::field(&schema::column_of(asset), kind));
        }
        let schema = schema_of(fields);
        Ok(Self {
            file: file::Writer::create(output.as_ref(), Arc::clone(&schema), &Stop::default())?,
            columns,
            entries: vec![Vec::new(); assets.len()],
            assets,
            schema,
            rows: Vec::new(),
        })
    }

    /// Appends an item with the entries of its assets. An entry's own location is not stored: a reader takes the
    /// href of the item's asset.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for an item with fields that the columns cannot hold, or an
    /// asset that the item or the index lacks; [`ErrorKind::Unsupported`] for an entry
    /// with numbers of 2^63 or more.
    pub fn push(&mut self, item: &Item, entries: &[(&str, &Entry)]) -> Result<()> {
        let invalid = |what: String| {
            let message = format!("item `{}`: {what}", item.id.escape_debug());
            Error::new(ErrorKind::InvalidInput, message)
        };
        let row = Row::of_item(item)?;
        if !self.columns.holds(&row) {
            let what = "its fields do not fit the columns of the index";
            return Err(invalid(what.to_owned()));
        }
        for (key, entry) in entries {
            let known = self.assets.iter().any(|asset| asset == key);
            if !known || !item.assets.contains_key(*key) {
                return Err(invalid(format!("no asset `{}`", key.escape_debug())));
            }
            pack::check(entry)?;
        }
        for (asset, column) in self.assets.iter().zip(&mut self.entries) {
            let entry = entries.iter().find(|(key, _)| key == asset);
            column.push(entry.map(|(_, entry)| (*entry).clone()));
        }
        self.rows.push(row);
        if self.rows.len() >= ROWS_AT_ONCE {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let mut columns = self.columns.arrays(&self.rows);
        for column in &mut self.entries {
            let rows: Vec<Option<&Entry>> = column.iter().map(Option::as_ref).collect();
            columns.push(Arc::new(pack::column(&rows)?));
            column.clear();
        }
        self.rows.clear();
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(|err| {
            let message = "the items' columns differ in length or type";
            Error::new(ErrorKind::Corrupt, message).with_source(err)
        })?;
        self.file.write(&batch)
    }

    /// Finishes the index and renames it to the output; returns its size in bytes.
    ///
    /// # Errors
    ///
    /// Errors of the file system; no file is left then.
    pub fn finish(mut self) -> Result<u64> {
        self.flush()?;
        self.file.finish()
    }
}
