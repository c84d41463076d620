//! Writing the Parquet file: the encoding of each column, the metadata, and an atomic rename, so that the file is
//! complete or absent.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, BufWriter},
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_array::{RecordBatch, cast::AsArray};
use arrow_schema::SchemaRef;
use parquet::{
    arrow::{ArrowSchemaConverter, ArrowWriter, arrow_writer::ArrowWriterOptions},
    basic::{Compression, Encoding, Type as PhysicalType, ZstdLevel},
    file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder},
    schema::types::ColumnPath,
};
use tempfile::NamedTempFile;

use super::{
    disk::{Stop, folder_of},
    schema,
    summary::{Summary, tiles_before},
};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::{ordinary_file, publish},
    store::of_io,
};

/// Items of a row group. A look-up by id reads the ids of one group; smaller groups mean a larger footer, which every
/// open reads.
pub(super) const GROUP_ROWS: usize = 8192;
/// Bytes of a row group: a group is buffered in memory until it is complete.
pub(super) const GROUP_BYTES: usize = 64 << 20;
/// Rows of a page of most columns: an entry costs one page of each column.
const PAGE_ROWS: usize = 1024;
const PAGE_BYTES: usize = 64 << 10;
/// Values between checks whether a page is full: a page ends at the end of a row after so many.
const STEP_VALUES: usize = 256;
/// Bytes of a dictionary page; a column with more distinct values in a row group is stored plain.
const DISTINCT_BYTES: usize = 32 << 10;
/// A row with more tiles than this has pages of its own.
const LARGE_TILES: usize = 4096;

/// Writes a temporary file beside the output, and renames it when it is complete.
pub(super) struct Writer {
    writer: ArrowWriter<BufWriter<File>>,
    columns: SchemaRef,
    temp: NamedTempFile,
    output: PathBuf,
    summary: Summary,
    stop: Stop,
}

impl Writer {
    /// Creates the temporary file of `output`.
    ///
    /// # Errors
    ///
    /// As [`temporary`]; [`ErrorKind::Unsupported`] if Parquet cannot store a column.
    pub(super) fn create(output: &Path, columns: SchemaRef, stop: &Stop) -> Result<Self> {
        let wrong = |err: io::Error| of_io(&err).at(output.display());
        let temp = temporary(output)?;
        let file = temp.as_file().try_clone().map_err(wrong)?;
        let options = ArrowWriterOptions::new()
            .with_properties(properties(&columns)?)
            // Parquet's logical types suffice. An embedded Arrow schema would make the footer larger.
            .with_skip_arrow_metadata(true);
        let file = BufWriter::with_capacity(1 << 20, file);
        let summary = Summary::of(&columns);
        let all = Arc::clone(&columns);
        let writer = ArrowWriter::try_new_with_options(file, all, options).map_err(fault)?;
        Ok(Self {
            writer,
            columns,
            temp,
            output: output.to_owned(),
            summary,
            stop: stop.clone(),
        })
    }

    /// Returns the columns that rows must have.
    pub(super) fn columns(&self) -> SchemaRef {
        Arc::clone(&self.columns)
    }

    /// Appends rows.
    ///
    /// # Errors
    ///
    /// Errors of the file system; [`ErrorKind::Unavailable`] if the write was cancelled.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.stop.check()?;
        self.summary.count(batch);
        let mut from = 0;
        // The Parquet writer may end a page only between calls, so a row with very many tiles is written in a call of
        // its own: a reader of its neighbours need not decode its tiles.
        for large in large_rows(batch) {
            for (start, end) in [(from, large), (large, large + 1)] {
                if start < end {
                    let rows = batch.slice(start, end - start);
                    self.writer.write(&rows).map_err(fault)?;
                }
            }
            from = large + 1;
        }
        if from < batch.num_rows() {
            let rows = batch.slice(from, batch.num_rows() - from);
            self.writer.write(&rows).map_err(fault)?;
        }
        Ok(())
    }

    /// Finishes the file and renames it to the output; returns its size in bytes.
    ///
    /// # Errors
    ///
    /// Errors of the file system; [`ErrorKind::Unavailable`] if the write was cancelled. The temporary file is
    /// removed then.
    pub(super) fn finish(mut self) -> Result<u64> {
        for pair in self.summary.pairs()? {
            self.writer.append_key_value_metadata(pair);
        }
        self.writer.finish().map_err(fault)?;
        drop(self.writer);
        self.stop.check()?;
        keep(self.temp, &self.output)
    }
}

/// Creates a temporary file in the folder of `output`, since a rename is atomic only within a file system. Its mode is
/// that of ordinary files, not the private one of temporary files.
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] if `output` exists and is not a regular file: a folder, a device or a pipe
/// cannot be replaced by a file; errors of the file system.
pub(super) fn temporary(output: &Path) -> Result<NamedTempFile> {
    if output.metadata().is_ok_and(|there| !there.is_file()) {
        let message = "the output exists and is not a regular file";
        return Err(Error::new(ErrorKind::InvalidInput, message).at(output.display()));
    }
    let name = output.file_name().and_then(|name| name.to_str());
    let prefix = format!(".{}.", name.unwrap_or("index"));
    let mut builder = ordinary_file();
    let made = builder
        .prefix(&prefix)
        .suffix(".tmp")
        .tempfile_in(folder_of(output));
    made.map_err(|err| of_io(&err).at(output.display()))
}

/// Syncs a finished temporary file and renames it to `output`, so that it is complete or absent after a crash; returns
/// its size.
///
/// # Errors
///
/// Errors of the file system; the temporary file is removed then.
pub(super) fn keep(temp: NamedTempFile, output: &Path) -> Result<u64> {
    let wrong = |err: io::Error| of_io(&err).at(output.display());
    let bytes = temp.as_file().metadata().map_err(wrong)?.len();
    publish(temp, output).map_err(wrong)?;
    Ok(bytes)
}

pub(super) fn fault(err: parquet::errors::ParquetError) -> Error {
    Error::new(ErrorKind::Unavailable, "the index cannot be written").with_source(err)
}

/// Returns the rows with very many tiles in one of their files.
fn large_rows(batch: &RecordBatch) -> BTreeSet<usize> {
    let mut large = BTreeSet::new();
    let all = batch.schema();
    for (field, column) in all.fields().iter().zip(batch.columns()) {
        if field.name().starts_with(schema::PREFIX)
            && let Some(column) = column.as_struct_opt()
            && let Some(ends) = tiles_before(column)
        {
            let rows = ends.iter().zip(ends.iter().skip(1)).enumerate();
            let rows = rows.filter(|(_, (start, end))| end.saturating_sub(**start) > LARGE_TILES);
            large.extend(rows.map(|(row, _)| row));
        }
    }
    large
}

/// Returns the encoding and compression of each column.
pub(super) fn properties(columns: &SchemaRef) -> Result<WriterProperties> {
    let parquet = ArrowSchemaConverter::new()
        .convert(columns)
        .map_err(|err| {
            let message = "a column that Parquet cannot store";
            Error::new(ErrorKind::Unsupported, message).with_source(err)
        })?;
    let zstd = Compression::ZSTD(ZstdLevel::default());
    let mut all = WriterProperties::builder()
        .set_created_by(concat!("rss_core ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(zstd)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_max_row_group_bytes(Some(GROUP_BYTES))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_write_batch_size(STEP_VALUES)
        .set_dictionary_page_size_limit(DISTINCT_BYTES)
        // Statistics of column chunks only: those of pages would be read before any page.
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_statistics_truncate_length(Some(64));
    for column in parquet.columns() {
        let path = column.path();
        let parts: Vec<&str> = path.parts().iter().map(String::as_str).collect();
        all = store(all, path, &parts, column.physical_type());
    }
    Ok(all.build())
}

/// Sets encoding, compression and statistics of one column.
fn store(
    all: WriterPropertiesBuilder,
    path: &ColumnPath,
    parts: &[&str],
    kind: PhysicalType,
) -> WriterPropertiesBuilder {
    let (path, quiet) = (path.clone(), EnabledStatistics::None);
    let plain =
        |all: WriterPropertiesBuilder| all.set_column_dictionary_enabled(path.clone(), false);
    match parts {
        [column, rest @ ..] if column.starts_with(schema::PREFIX) => {
            let all = all.set_column_statistics_enabled(path.clone(), quiet);
            match rest {
                [.., "byte_counts" | "gaps", _, _] => plain(all)
                    .set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED)
                    // A page holds as few rows as `STEP_VALUES` allows: one, or several with few tiles.
                    .set_column_data_page_row_count_limit(path.clone(), 1),
                ["size" | "header_bytes" | "last_modified"] => {
                    plain(all).set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED)
                }
                ["etag" | "checksum"] | ["transform", ..] => plain(all),
                _ if kind == PhysicalType::BYTE_ARRAY => all,
                // Few distinct numbers, which a dictionary already makes small. Each zstd column costs the reader
                // of one entry a decoder, and there are more than twenty of these columns.
                _ => all.set_column_compression(path.clone(), Compression::UNCOMPRESSED),
            }
        }
        // Ids are distinct, so a dictionary would not help; the Bloom filter skips groups in a look-up by id.
        ["id"] => plain(all)
            .set_column_bloom_filter_enabled(path.clone(), true)
            .set_column_bloom_filter_max_ndv(path.clone(), GROUP_ROWS as u64),
        ["geometry"] | [.., "href"] => {
            plain(all).set_column_statistics_enabled(path.clone(), quiet)
        }
        ["bbox", _] => plain(all),
        _ => all,
    }
}

/// Returns a schema of columns.
pub(super) fn schema_of(fields: Vec<arrow_schema::Field>) -> SchemaRef {
    Arc::new(arrow_schema::Schema::new(fields))
}

#[cfg(test)]
mod tests {
    use arrow_array::StringArray;
    use arrow_schema::{DataType, Field};

    use super::*;

    #[test]
    fn an_index_that_is_stopped_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("index.parquet");
        let columns = schema_of(vec![Field::new("id", DataType::Utf8, false)]);
        let ids = Arc::new(StringArray::from(vec!["a"]));
        let rows = RecordBatch::try_new(Arc::clone(&columns), vec![ids]).unwrap();
        for rows_before in 0..2 {
            let stop = Stop::default();
            let mut writer = Writer::create(&output, Arc::clone(&columns), &stop).unwrap();
            for _ in 0..rows_before {
                writer.write(&rows).unwrap();
            }
            stop.set();
            assert!(writer.write(&rows).is_err());
            let err = writer.finish().unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Unavailable);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }
}
