//! Columnar formats: Parquet, and the Arrow IPC file.

use std::{collections::BTreeMap, fs::File, io::Write, sync::Arc};

use arrow_array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow_ipc::{reader::FileReader, writer::FileWriter};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        properties::WriterProperties,
        reader::{FileReader as _, SerializedFileReader},
    },
};

use super::{SampleRow, Table, count_of};
use crate::error::{Error, ErrorKind, Result};

/// Rows of one record batch.
const ROWS: usize = 1 << 16;

impl Table {
    /// Returns the rows as one record batch of Arrow, with the columns of a file ([`TableFormat`](super::TableFormat)):
    /// texts `id`, `name`, `item` and `band`, `x` and `y` as `Float64`, `datetime` in microseconds of UTC, counts as
    /// `Int64`, and the other numbers as `Float64`, null where a row has none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if Arrow refuses the columns: a text column of more than 2 GiB.
    pub fn to_record_batch(&self) -> Result<RecordBatch> {
        let rows: Vec<SampleRow<'_>> = self.rows().collect();
        batch(self, &schema_of(self), &rows)
    }
}

/// Writes Parquet.
pub(super) fn parquet(table: &Table, out: &mut (impl Write + Send)) -> Result<()> {
    let wrong = |err: ParquetError| {
        Error::new(ErrorKind::Unavailable, "the table cannot be written").with_source(err)
    };
    let schema = schema_of(table);
    let pairs = table.metadata().iter();
    let pairs = pairs.map(|(name, text)| KeyValue::new(name.clone(), text.clone()));
    let properties = WriterProperties::builder()
        .set_key_value_metadata(Some(pairs.collect()))
        .set_created_by(concat!("rss_core ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let mut writer =
        ArrowWriter::try_new(out, Arc::clone(&schema), Some(properties)).map_err(wrong)?;
    for batch in batches(table, &schema) {
        writer.write(&batch?).map_err(wrong)?;
    }
    writer.close().map_err(wrong)?;
    Ok(())
}

/// Writes an [IPC file](https://arrow.apache.org/docs/format/Columnar.html#ipc-file-format).
pub(super) fn arrow(table: &Table, out: &mut impl Write) -> Result<()> {
    let wrong = |err: ArrowError| {
        Error::new(ErrorKind::Unavailable, "the table cannot be written").with_source(err)
    };
    let schema = (*schema_of(table)).clone();
    let schema = Arc::new(schema.with_metadata(table.metadata().clone()));
    let mut writer = FileWriter::try_new(out, &schema).map_err(wrong)?;
    for batch in batches(table, &schema) {
        writer.write(&batch?).map_err(wrong)?;
    }
    writer.finish().map_err(wrong)
}

/// Returns the pairs of keys and values of a Parquet file.
pub(super) fn parquet_metadata(file: File) -> Result<BTreeMap<String, String>> {
    let wrong = |err: ParquetError| Error::new(ErrorKind::Corrupt, "not Parquet").with_source(err);
    let reader = SerializedFileReader::new(file).map_err(wrong)?;
    let pairs = reader.metadata().file_metadata().key_value_metadata();
    let pairs = pairs.into_iter().flatten();
    let known = pairs.filter_map(|pair| Some((pair.key.clone(), pair.value.clone()?)));
    Ok(known.collect())
}

/// Returns the metadata of the schema of an Arrow file.
pub(super) fn arrow_metadata(file: File) -> Result<BTreeMap<String, String>> {
    let wrong = |err: ArrowError| Error::new(ErrorKind::Corrupt, "not Arrow").with_source(err);
    let reader = FileReader::try_new(file, None).map_err(wrong)?;
    let schema = reader.schema();
    let pairs = schema.metadata().iter();
    Ok(pairs
        .map(|(name, text)| (name.clone(), text.clone()))
        .collect())
}

fn schema_of(table: &Table) -> SchemaRef {
    let text = |name: &str, is_nullable| Field::new(name, DataType::Utf8, is_nullable);
    let number = |name: &str, is_nullable| Field::new(name, DataType::Float64, is_nullable);
    let mut fields = vec![text("id", false)];
    if table.is_named() {
        fields.push(text("name", true));
    }
    if table.is_of_points() {
        fields.extend([number("x", false), number("y", false)]);
    }
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    fields.extend([
        text("item", false),
        Field::new("datetime", time, false),
        text("band", false),
    ]);
    fields.extend(table.columns().iter().map(|column| match column.is_count {
        true => Field::new(&column.name, DataType::Int64, false),
        false => number(&column.name, true),
    }));
    Arc::new(Schema::new(fields))
}

fn batches(table: &Table, schema: &SchemaRef) -> impl Iterator<Item = Result<RecordBatch>> {
    let starts = (0..table.len()).step_by(ROWS);
    starts.map(move |start| {
        let rows: Vec<SampleRow<'_>> = table.rows_in(start..start + ROWS).collect();
        batch(table, schema, &rows)
    })
}

fn batch(table: &Table, schema: &SchemaRef, rows: &[SampleRow<'_>]) -> Result<RecordBatch> {
    let mut columns: Vec<ArrayRef> = Vec::new();
    let ids = rows.iter().map(|row| row.geometry.id.as_str());
    columns.push(Arc::new(StringArray::from_iter_values(ids)));
    if table.is_named() {
        let names = rows.iter().map(|row| row.geometry.name.as_deref());
        columns.push(Arc::new(names.collect::<StringArray>()));
    }
    if table.is_of_points() {
        for axis in 0..2 {
            let part = |row: &SampleRow<'_>| {
                row.geometry
                    .place
                    .and_then(|place| place.get(axis).copied())
            };
            let parts = rows.iter().map(|row| part(row).unwrap_or(f64::NAN));
            columns.push(Arc::new(Float64Array::from_iter_values(parts)));
        }
    }
    let items = rows.iter().map(|row| row.item);
    columns.push(Arc::new(StringArray::from_iter_values(items)));
    let times = rows.iter().map(|row| row.time.timestamp_micros());
    let times = TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC");
    columns.push(Arc::new(times));
    let bands = rows.iter().map(|row| row.band);
    columns.push(Arc::new(StringArray::from_iter_values(bands)));
    for (place, column) in table.columns().iter().enumerate() {
        let numbers = rows.iter().map(|row| row.numbers().nth(place).flatten());
        columns.push(match column.is_count {
            true => {
                let counts = numbers.map(|number| count_of(number.unwrap_or(0.0)));
                Arc::new(Int64Array::from_iter_values(counts))
            }
            false => Arc::new(numbers.collect::<Float64Array>()),
        });
    }
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(|err| {
        let message = "the table's columns differ in length or type";
        Error::new(ErrorKind::InvalidInput, message).with_source(err)
    })
}

#[cfg(test)]
mod tests {
    use arrow_array::{Array, cast::AsArray, types::Float64Type};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;
    use crate::apply::sample::{Outside, Table, TableFormat, save::tests::table};

    #[test]
    fn parquet_and_arrow_hold_metadata() {
        let folder = tempfile::tempdir().unwrap();
        let table = table(Outside::NoRow)
            .with_metadata("b", "second")
            .with_metadata("a", "first");
        for name in ["table.parquet", "table.arrow"] {
            let path = folder.path().join(name);
            table.save(&path).unwrap();
            let found = Table::metadata_of(&path).unwrap();
            assert_eq!(
                (found["a"].as_str(), found["b"].as_str()),
                ("first", "second")
            );
            std::fs::write(&path, "not a table").unwrap();
            assert_eq!(
                Table::metadata_of(&path).unwrap_err().kind(),
                ErrorKind::Corrupt
            );
        }
        let csv = folder.path().join("table.csv");
        table.save(&csv).unwrap();
        assert_eq!(
            Table::metadata_of(&csv).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
    }

    #[test]
    fn parquet_and_arrow_hold_the_rows() {
        let table = table(Outside::NoRow);
        let mut parquet = Vec::new();
        table.write_as(&mut parquet, TableFormat::Parquet).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(parquet)).unwrap();
        let from_parquet = reader.build().unwrap().next().unwrap().unwrap();
        let mut arrow = Vec::new();
        table.write_as(&mut arrow, TableFormat::Arrow).unwrap();
        let cursor = std::io::Cursor::new(arrow);
        let mut reader = arrow_ipc::reader::FileReader::try_new(cursor, None).unwrap();
        let from_arrow = reader.next().unwrap().unwrap();
        for batch in [from_parquet, from_arrow, table.to_record_batch().unwrap()] {
            assert_eq!(batch.num_rows(), 3);
            assert_eq!(batch.schema().fields(), schema_of(&table).fields());
            let means = batch
                .column_by_name("mean")
                .unwrap()
                .as_primitive::<Float64Type>();
            assert_eq!((means.value(0), means.is_null(2)), (0.5, true));
            let ids = batch.column_by_name("id").unwrap().as_string::<i32>();
            assert_eq!(ids.value(0), "a, \"b\"");
        }
    }
}
