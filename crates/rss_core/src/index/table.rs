//! A Parquet file with random access to rows. Damaged files are errors, never panics.
//!
//! Opening reads the footer. Rows are read by number: of each column only the pages that hold them,
//! which the file's offset index lists.

use std::{
    any::Any,
    cell::Cell,
    collections::HashMap,
    fs::File,
    ops::Range,
    panic::{self, AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Once, PoisonError},
};

use arrow_array::RecordBatch;
use arrow_schema::{Field, SchemaRef};
use parquet::{
    arrow::{
        ProjectionMask,
        arrow_reader::{
            ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
            ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
        },
        parquet_to_arrow_schema,
    },
    basic::{LogicalType, TimeUnit},
    bloom_filter::Sbbf,
    column::writer::ColumnCloseResult,
    errors::{ParquetError, Result as ParquetResult},
    file::{
        metadata::{
            ColumnChunkMetaData, PageIndexPolicy, ParquetMetaData, ParquetMetaDataBuilder,
            ParquetMetaDataReader, page_index::PageIndexProvider,
        },
        page_index::{
            column_index::ColumnIndexMetaData,
            index_reader::decode_offset_index,
            offset_index::{OffsetIndexMetaData, PageLocation},
        },
        reader::{ChunkReader, Length},
        statistics::Statistics,
    },
    schema::types::SchemaDescriptor,
};

use super::source::{ByteSource, Shared};
use crate::{
    error::{Error, ErrorKind, Result},
    store::{check_file, of_io},
};

/// The most rows of a row group: selected rows are listed in memory, and a damaged file may claim any number.
const MAX_ROWS: i64 = 1 << 24;
/// The most page locations in the cache, over all columns.
const MAX_PAGES: usize = 1 << 20;

/// An open Parquet file.
#[derive(Debug)]
pub(super) struct ParquetTable {
    path: PathBuf,
    source: Shared,
    meta: Arc<ParquetMetaData>,
    pages: Mutex<Pages>,
}

/// A cache of page locations, by row group and column.
#[derive(Debug, Default)]
struct Pages {
    known: HashMap<(usize, usize), Arc<Vec<PageLocation>>>,
    count: usize,
}

impl ParquetTable {
    /// Opens a file: reads its footer.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::Denied`] for the path; [`ErrorKind::Corrupt`] if it is not a
    /// Parquet file.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let wrong = |err: std::io::Error| of_io(&err).at(path.display());
        check_file(&std::fs::metadata(path).map_err(wrong)?)
            .map_err(|err| err.at(path.display()))?;
        let source = ByteSource::new(File::open(path).map_err(wrong)?).map_err(wrong)?;
        let source = Shared(Arc::new(source));
        // Without the page indexes of all columns, which may be larger than the footer: `pages` reads those in use.
        let meta = guarded(path, || {
            ParquetMetaDataReader::new()
                .with_page_index_policy(PageIndexPolicy::Skip)
                .parse_and_finish(&source)
        })?;
        check_footer(&meta, source.len())
            .map_err(|message| Error::new(ErrorKind::Corrupt, message).at(path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            source,
            meta: Arc::new(meta),
            pages: Mutex::default(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn bytes(&self) -> u64 {
        self.source.len()
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.source.0.bytes_read()
    }

    /// Returns a value of the file's metadata.
    pub(super) fn said(&self, key: &str) -> Option<&str> {
        let pairs = self.meta.file_metadata().key_value_metadata()?;
        let pair = pairs.iter().find(|pair| pair.key == key)?;
        pair.value.as_deref()
    }

    pub(super) fn rows(&self) -> u64 {
        u64::try_from(self.meta.file_metadata().num_rows()).unwrap_or(0)
    }

    pub(super) fn groups(&self) -> usize {
        self.meta.num_row_groups()
    }

    /// Returns the rows of a row group.
    pub(super) fn group_rows(&self, group: usize) -> usize {
        let rows = self.meta.row_groups().get(group);
        rows.map_or(0, |group| usize::try_from(group.num_rows()).unwrap_or(0))
    }

    /// Returns the bytes of a row group in the file.
    pub(super) fn group_bytes(&self, group: usize) -> usize {
        let group = self.meta.row_groups().get(group);
        let bytes = group.map_or(0, |group| group.compressed_size());
        usize::try_from(bytes).unwrap_or(0)
    }

    /// Returns the columns of a row group as they are: what another file needs to take them over by their bytes.
    pub(super) fn encoded(&self, group: usize) -> Result<Vec<ColumnCloseResult>> {
        guarded(&self.path, || {
            let meta = self.meta.row_group(group);
            let rows = u64::try_from(meta.num_rows()).unwrap_or(0);
            let encoded = |column: &ColumnChunkMetaData| {
                let offset_index = match column.offset_index_range() {
                    Some(Range { start, end }) => {
                        let length =
                            usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
                        Some(decode_offset_index(&self.source.get_bytes(start, length)?)?)
                    }
                    None => None,
                };
                Ok(ColumnCloseResult {
                    bytes_written: u64::try_from(column.compressed_size()).unwrap_or(0),
                    rows_written: rows,
                    metadata: column.clone(),
                    bloom_filter: Sbbf::read_from_column_chunk(column, &self.source)?,
                    // An index has none.
                    column_index: None,
                    offset_index,
                })
            };
            meta.columns().iter().map(encoded).collect()
        })
    }

    /// Returns where the bytes of [`ParquetTable::encoded`] are.
    pub(super) fn source(&self) -> &Shared {
        &self.source
    }

    pub(super) fn columns(&self) -> &SchemaDescriptor {
        self.meta.file_metadata().schema_descr()
    }

    /// Returns the Arrow schema of all columns.
    pub(super) fn schema(&self) -> Result<SchemaRef> {
        let schema = guarded(&self.path, || parquet_to_arrow_schema(self.columns(), None))?;
        let fields = schema.fields().iter();
        let fields: Vec<Field> = fields.map(|field| field.as_ref().clone()).collect();
        Ok(super::file::schema_of(fields))
    }

    /// Returns the index of a leaf column by its path.
    pub(super) fn leaf(&self, path: &[&str]) -> Option<usize> {
        self.columns().columns().iter().position(|column| {
            column
                .path()
                .parts()
                .iter()
                .map(String::as_str)
                .eq(path.iter().copied())
        })
    }

    /// Selects columns by paths, each with all leaves below it.
    pub(super) fn mask(&self, paths: &[&[&str]]) -> ProjectionMask {
        let columns = self.columns();
        let leaves = (0..columns.num_columns()).filter(|&leaf| {
            let parts = columns.column(leaf).path().parts().to_vec();
            paths.iter().any(|path| {
                path.len() <= parts.len() && path.iter().zip(&parts).all(|(a, b)| a == b)
            })
        });
        ProjectionMask::leaves(columns, leaves.collect::<Vec<_>>())
    }

    /// Returns the minimum and maximum of a column of a row group, if the file has these statistics.
    pub(super) fn extremes(&self, group: usize, path: &[&str]) -> Option<(f64, f64)> {
        let column = self
            .meta
            .row_groups()
            .get(group)?
            .columns()
            .get(self.leaf(path)?)?;
        let micros = matches!(
            column.column_descr().logical_type_ref(),
            Some(LogicalType::Timestamp(time)) if time.unit == TimeUnit::MICROS
        );
        match column.statistics()? {
            Statistics::Double(numbers) => Some((*numbers.min_opt()?, *numbers.max_opt()?)),
            #[expect(
                clippy::cast_precision_loss,
                reason = "times are rounded by microseconds; the comparison has a second of slack"
            )]
            Statistics::Int64(numbers) if micros => {
                Some((*numbers.min_opt()? as f64, *numbers.max_opt()? as f64))
            }
            _ => None,
        }
    }

    /// Returns false if a row group holds none of these texts in a column, by its statistics and Bloom filter.
    pub(super) fn may_hold(&self, group: usize, leaf: usize, texts: &[&str]) -> Result<bool> {
        let Some(column) = self
            .meta
            .row_groups()
            .get(group)
            .and_then(|group| group.columns().get(leaf))
        else {
            return Ok(true);
        };
        if let Some(Statistics::ByteArray(bytes)) = column.statistics()
            && let (Some(min), Some(max)) = (bytes.min_opt(), bytes.max_opt())
        {
            // Long values are truncated in statistics, the maximum rounded up: the range still covers all values.
            let inside = |text: &&&str| (min.data()..=max.data()).contains(&text.as_bytes());
            if !texts.iter().any(|text| inside(&text)) {
                return Ok(false);
            }
        }
        let filter = guarded(&self.path, || {
            Sbbf::read_from_column_chunk(column, &self.source)
        })?;
        Ok(filter.is_none_or(|filter| texts.iter().any(|text| filter.check(*text))))
    }

    /// Returns batches of some rows of a row group, which must be sorted; none is all rows.
    pub(super) fn read(
        &self,
        group: usize,
        mask: &ProjectionMask,
        rows: Option<&[usize]>,
        batch_rows: usize,
    ) -> Result<Batches<'_>> {
        let Some(meta) = self.meta.row_groups().get(group) else {
            let message = format!("row group {group} of {}", self.groups());
            return Err(Error::new(ErrorKind::InvalidInput, message).at(self.path.display()));
        };
        let total = self.group_rows(group);
        let reader = guarded(&self.path, || {
            let leaves = (0..self.columns().num_columns()).filter(|&leaf| mask.leaf_included(leaf));
            let mut locations = HashMap::new();
            if let Some(rows) = rows {
                for leaf in leaves {
                    if let Some(pages) = self.pages(group, leaf)? {
                        locations.insert(leaf, narrowed(&pages, rows));
                    }
                }
            }
            let file = self.meta.file_metadata().clone();
            let one = ParquetMetaData::new(file, vec![meta.clone()]);
            let one = ParquetMetaDataBuilder::new_from_metadata(one)
                .set_page_index(Some(Arc::new(PageLocations(locations))))
                .build();
            let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
            let one = ArrowReaderMetadata::try_new(Arc::new(one), options)?;
            let source = self.source.clone();
            let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(source, one)
                .with_projection(mask.clone())
                .with_batch_size(batch_rows);
            match rows {
                Some(rows) => reader.with_row_selection(selection(rows, total)).build(),
                None => reader.build(),
            }
        })?;
        Ok(Batches {
            path: &self.path,
            reader: Some(reader),
        })
    }

    /// Returns some rows of a row group in one batch.
    pub(super) fn rows_of(
        &self,
        group: usize,
        mask: &ProjectionMask,
        rows: &[usize],
    ) -> Result<RecordBatch> {
        let mut batches = self.read(group, mask, Some(rows), rows.len().max(1))?;
        match batches.next() {
            Some(batch) => {
                let batch = batch?;
                if batch.num_rows() == rows.len() {
                    return Ok(batch);
                }
            }
            None if rows.is_empty() => {}
            None => {}
        }
        let message = format!("row group {group} ends before the rows that it should hold");
        Err(Error::new(ErrorKind::Corrupt, message).at(self.path.display()))
    }

    /// Returns the locations of the pages of a column, if the file has an offset index.
    fn pages(&self, group: usize, leaf: usize) -> ParquetResult<Option<Arc<Vec<PageLocation>>>> {
        let lock = || self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().known.get(&(group, leaf)) {
            return Ok(Some(Arc::clone(known)));
        }
        let column = self.meta.row_group(group).column(leaf);
        let Some(Range { start, end }) = column.offset_index_range() else {
            return Ok(None);
        };
        let length = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
        let bytes = self.source.get_bytes(start, length)?;
        let locations = decode_offset_index(&bytes)?.page_locations().clone();
        let ascend = locations
            .windows(2)
            .all(|pair| matches!(pair, [a, b] if a.first_row_index < b.first_row_index));
        let starts = locations
            .first()
            .is_some_and(|page| page.first_row_index == 0);
        // The pages of a column lie behind its start: what is before the first one is a dictionary. The crate subtracts.
        let (start, length) = column.byte_range();
        let inside = locations.iter().all(|page| {
            let (at, bytes) = (
                u64::try_from(page.offset),
                u64::try_from(page.compressed_page_size),
            );
            matches!((at, bytes), (Ok(at), Ok(bytes))
                if at >= start && at.saturating_add(bytes) <= start.saturating_add(length))
        });
        // `narrowed` relies on this order, and a damaged file may have any.
        if !ascend || !starts || !inside {
            return Err(ParquetError::General("pages out of order".to_owned()));
        }
        let locations = Arc::new(locations);
        // Cleared as a whole when full: simpler than an eviction order, and rare.
        let mut pages = lock();
        if pages.count > MAX_PAGES {
            *pages = Pages::default();
        }
        pages.count += locations.len();
        pages.known.insert((group, leaf), Arc::clone(&locations));
        Ok(Some(locations))
    }
}

/// A lazy iterator over batches of rows.
pub(super) struct Batches<'a> {
    path: &'a Path,
    reader: Option<ParquetRecordBatchReader>,
}

impl Iterator for Batches<'_> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let reader = self.reader.as_mut()?;
        let next = guarded(self.path, || {
            reader.next().transpose().map_err(ParquetError::from)
        });
        match next {
            Ok(Some(batch)) => Some(Ok(batch)),
            Ok(None) => None,
            Err(err) => {
                // After an error or a panic the reader's state is unknown: the iterator ends.
                self.reader = None;
                Some(Err(err))
            }
        }
    }
}

/// Checks the numbers of a footer that the Parquet crate uses unchecked: it subtracts, adds and allocates by them.
fn check_footer(meta: &ParquetMetaData, length: u64) -> std::result::Result<(), String> {
    let columns = meta.file_metadata().schema_descr().num_columns();
    for (number, group) in meta.row_groups().iter().enumerate() {
        let rows = group.num_rows();
        if rows > MAX_ROWS {
            return Err(format!(
                "a row group of {rows} rows, expected at most {MAX_ROWS}"
            ));
        }
        let damaged = |what: &str| format!("the footer is damaged: {what} of row group {number}");
        if rows < 0 || group.columns().len() != columns {
            return Err(damaged("the rows and columns"));
        }
        for column in group.columns() {
            let sizes = [
                column.compressed_size(),
                column.uncompressed_size(),
                column.num_values(),
            ];
            let start = column
                .dictionary_page_offset()
                .unwrap_or(column.data_page_offset());
            // Places in the file, each with its bytes.
            let places = [
                (Some(start), Some(column.compressed_size())),
                (Some(column.data_page_offset()), None),
                (
                    column.offset_index_offset(),
                    column.offset_index_length().map(i64::from),
                ),
                (
                    column.column_index_offset(),
                    column.column_index_length().map(i64::from),
                ),
                (
                    column.bloom_filter_offset(),
                    column.bloom_filter_length().map(i64::from),
                ),
            ];
            let is_inside = |(at, bytes): (Option<i64>, Option<i64>)| {
                let (at, bytes) = (at.unwrap_or(0), bytes.unwrap_or(0));
                let end = u64::try_from(at).ok().zip(u64::try_from(bytes).ok());
                end.is_some_and(|(at, bytes)| at.saturating_add(bytes) <= length)
            };
            if sizes.iter().any(|size| *size < 0) || !places.into_iter().all(is_inside) {
                return Err(damaged("the place of a column"));
            }
        }
    }
    Ok(())
}

thread_local! {
    /// True while this thread reads bytes of unknown origin.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Keeps what the process does at a panic from being done for those that become an error of a file. Global, since panic hooks
/// are; a hook that is set later has the last word.
static HOOK: Once = Once::new();

/// Runs code of the Parquet crate on bytes of unknown origin. The crate should return errors for damaged files; a
/// panic of it becomes an error, too, and prints nothing.
fn guarded<T>(path: &Path, read: impl FnOnce() -> ParquetResult<T>) -> Result<T> {
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    let outer = QUIET.replace(true);
    let done = catch_unwind(AssertUnwindSafe(read));
    QUIET.set(outer);
    let corrupt = || {
        let message = "not a readable Parquet file: expected an index as `rss index build` \
                       writes it, or stac-geoparquet";
        Error::new(ErrorKind::Corrupt, message).at(path.display())
    };
    match done {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(err)) => Err(corrupt().with_source(err)),
        Err(_) => Err(corrupt()),
    }
}

fn selection(rows: &[usize], total: usize) -> RowSelection {
    let mut selectors: Vec<RowSelector> = Vec::new();
    let mut at = 0;
    for &row in rows.iter().filter(|&&row| row < total) {
        if row > at {
            selectors.push(RowSelector::skip(row - at));
        }
        selectors.push(RowSelector::select(1));
        at = row + 1;
    }
    if at < total {
        selectors.push(RowSelector::skip(total - at));
    }
    RowSelection::from(selectors)
}

/// Returns the pages that hold some rows, and one page for each run of pages between, which the reader skips. Fewer
/// locations make the reader's set-up cheaper.
fn narrowed(pages: &[PageLocation], rows: &[usize]) -> Vec<PageLocation> {
    let mut narrow: Vec<PageLocation> = Vec::new();
    let mut rows = rows.iter().copied().peekable();
    let mut skips = false;
    for (number, page) in pages.iter().enumerate() {
        let end = pages
            .get(number + 1)
            .and_then(|next| usize::try_from(next.first_row_index).ok())
            .unwrap_or(usize::MAX);
        let mut wanted = false;
        while rows.next_if(|&row| row < end).is_some() {
            wanted = true;
        }
        if wanted || !skips || narrow.is_empty() {
            narrow.push(page.clone());
        }
        skips = !wanted;
    }
    narrow
}

/// The page locations of one row group, by column.
#[derive(Debug)]
struct PageLocations(HashMap<usize, Vec<PageLocation>>);

impl PageIndexProvider for PageLocations {
    fn has_offset_indexes(&self) -> bool {
        true
    }

    fn has_column_indexes(&self) -> bool {
        false
    }

    fn column_index(&self, _: usize, _: usize) -> Option<&ColumnIndexMetaData> {
        None
    }

    fn offset_index(&self, _: usize, _: usize) -> Option<&OffsetIndexMetaData> {
        None
    }

    fn page_locations(&self, _: usize, leaf: usize) -> Option<&Vec<PageLocation>> {
        self.0.get(&leaf)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use parquet::file::metadata::ParquetMetaDataWriter;

    use super::*;
    use crate::index::{
        file::{Writer, schema_of},
        schema::field,
    };

    #[test]
    fn a_row_group_that_claims_very_many_rows_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        let columns = schema_of(vec![field("id", arrow_schema::DataType::Utf8)]);
        let mut writer = Writer::create(
            &path,
            Arc::clone(&columns),
            &crate::index::disk::Stop::default(),
        )
        .unwrap();
        let ids = arrow_array::StringArray::from(vec!["a"]);
        let batch = RecordBatch::try_new(columns, vec![Arc::new(ids)]).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();

        let meta = ParquetTable::open(&path).unwrap().meta;
        let group = meta.row_group(0).clone().into_builder();
        let group = group.set_num_rows(1 << 50).build().unwrap();
        let lying = ParquetMetaDataBuilder::new(meta.file_metadata().clone())
            .add_row_group(group)
            .build();
        let mut bytes = fs::read(&path).unwrap();
        // The last eight bytes are the footer's length and the magic.
        bytes.truncate(bytes.len() - 8);
        let mut out = fs::File::create(&path).unwrap();
        out.write_all(&bytes).unwrap();
        ParquetMetaDataWriter::new(&out, &lying).finish().unwrap();
        let err = ParquetTable::open(&path).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Corrupt);
        assert!(err.message().contains("1125899906842624 rows"), "{err}");
    }
}
