//! An index of row groups of others, copied by their bytes: neither decoded nor encoded.
//!
//! An append to a large index, and a merge of several, leave most row groups as they are. Small ones are encoded anew, together,
//! so that many appends do not leave many of them.

use std::{
    fs::File,
    io::{self, BufWriter},
    path::Path,
    sync::Arc,
};

use arrow_schema::{Schema, SchemaRef};
use parquet::{arrow::ArrowSchemaConverter, file::writer::SerializedFileWriter};

use super::{
    disk::Stop,
    file::{GROUP_BYTES, GROUP_ROWS, fault, properties, temporary},
    summary::Summary,
    table::ParquetTable,
};
use crate::{error::Result, store::of_io};

/// Returns true if the row groups of a file can be row groups of one with these columns.
pub(super) fn is_alike(table: &ParquetTable, columns: &Schema) -> bool {
    ArrowSchemaConverter::new()
        .convert(columns)
        .is_ok_and(|parquet| parquet.columns() == table.columns().columns())
}

/// Returns true if a row group is large enough to stay as it is.
pub(super) fn is_large(table: &ParquetTable, group: usize) -> bool {
    table.group_rows(group) >= GROUP_ROWS / 2 || table.group_bytes(group) >= GROUP_BYTES / 2
}

/// A file that is made of row groups of others.
pub(super) struct Splice {
    writer: SerializedFileWriter<BufWriter<File>>,
    temp: tempfile::NamedTempFile,
    stop: Stop,
}

impl Splice {
    /// Creates the temporary file of `output`.
    ///
    /// # Errors
    ///
    /// As [`temporary`].
    pub(super) fn create(output: &Path, columns: &SchemaRef, stop: &Stop) -> Result<Self> {
        let temp = temporary(output)?;
        let file = temp.as_file().try_clone();
        let file = file.map_err(|err: io::Error| of_io(&err).at(output.display()))?;
        let file = BufWriter::with_capacity(1 << 20, file);
        let parquet = ArrowSchemaConverter::new()
            .convert(columns)
            .map_err(fault)?;
        let properties = Arc::new(properties(columns)?);
        let writer = SerializedFileWriter::new(file, parquet.root_schema_ptr(), properties);
        Ok(Self {
            writer: writer.map_err(fault)?,
            temp,
            stop: stop.clone(),
        })
    }

    /// Copies a row group.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`](crate::ErrorKind::Corrupt) for a damaged input; errors of the file system.
    pub(super) fn copy(&mut self, table: &ParquetTable, group: usize) -> Result<()> {
        self.stop.check()?;
        let columns = table.encoded(group)?;
        let mut row_group = self.writer.next_row_group().map_err(fault)?;
        for column in columns {
            row_group
                .append_column(table.source(), column)
                .map_err(fault)?;
        }
        row_group.close().map_err(fault)?;
        Ok(())
    }

    /// Finishes the file, and returns it without its name: what it replaces may be open.
    ///
    /// # Errors
    ///
    /// Errors of the file system.
    pub(super) fn finish(mut self, summary: &Summary) -> Result<tempfile::NamedTempFile> {
        for pair in summary.pairs()? {
            self.writer.append_key_value_metadata(pair);
        }
        self.writer.finish().map_err(fault)?;
        drop(self.writer);
        self.stop.check()?;
        Ok(self.temp)
    }
}
