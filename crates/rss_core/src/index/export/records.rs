//! Kerchunk references as Parquet: a folder that a reader opens without reading all of it.
//!
//! ```text
//! .zmetadata                 JSON: `metadata` (each .zgroup, .zarray and .zattrs by its key) and `record_size`
//! <array>/refs.<n>.parq      the references of chunks n * record_size and on, in the order of rows: path, offset, size, raw
//! ```
//!
//! This is what `fsspec.implementations.reference.LazyReferenceMapper` reads. All chunks of an array have a row; a chunk that
//! is not stored has neither path nor raw bytes.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::{
    arrow::{ArrowWriter, arrow_writer::ArrowWriterOptions},
    basic::{Compression, ZstdLevel},
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        properties::{EnabledStatistics, WriterProperties},
    },
};
use serde_json::{Value, json};

use super::references::References;

/// Rows of a file: a reader holds some of them in memory, and a tile costs one.
const RECORD_SIZE: usize = 100_000;

/// References that are being written to a folder.
pub(super) struct Records<'a> {
    folder: PathBuf,
    metadata: BufWriter<File>,
    is_first: bool,
    array: Option<Array>,
    schema: SchemaRef,
    /// Called before each file is written.
    check: &'a dyn Fn() -> io::Result<()>,
    record_size: usize,
}

/// The array of which references come now.
struct Array {
    key: String,
    /// Chunks along each dimension.
    grid: Vec<u64>,
    /// The record that is filled now.
    record: u64,
    rows: Vec<Row>,
}

#[derive(Clone, Default)]
enum Row {
    #[default]
    Missing,
    Range(Arc<str>, i64, i64),
    Bytes(Vec<u8>),
}

impl<'a> Records<'a> {
    /// Begins references in an empty folder.
    pub(super) fn new(folder: &Path, check: &'a dyn Fn() -> io::Result<()>) -> io::Result<Self> {
        Self::with_record_size(folder, check, RECORD_SIZE)
    }

    fn with_record_size(
        folder: &Path,
        check: &'a dyn Fn() -> io::Result<()>,
        record_size: usize,
    ) -> io::Result<Self> {
        let file = File::create(folder.join(".zmetadata"))?;
        let mut metadata = BufWriter::with_capacity(1 << 20, file);
        write!(metadata, r#"{{"record_size":{record_size},"metadata":{{"#)?;
        let fields = [
            Field::new("path", DataType::Utf8, true),
            Field::new("offset", DataType::Int64, false),
            Field::new("size", DataType::Int64, false),
            Field::new("raw", DataType::Binary, true),
        ];
        Ok(Self {
            folder: folder.to_owned(),
            metadata,
            is_first: true,
            array: None,
            schema: Arc::new(Schema::new(Vec::from(fields))),
            check,
            record_size,
        })
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.end_array()?;
        self.metadata.write_all(b"\n}}\n")?;
        self.metadata.flush()
    }

    /// Writes the last record of an array, and those of which no chunk is stored.
    fn end_array(&mut self) -> io::Result<()> {
        let Some(mut array) = self.array.take() else {
            return Ok(());
        };
        let chunks = array.chunks();
        self.end_records(&mut array, chunks.div_ceil(self.record_size as u64))?;
        Ok(())
    }

    /// Writes the records of an array before this one.
    fn end_records(&self, array: &mut Array, before: u64) -> io::Result<()> {
        while array.record < before {
            let first = array.record * self.record_size as u64;
            let left = array.chunks().saturating_sub(first);
            let length =
                usize::try_from(left).map_or(self.record_size, |n| n.min(self.record_size));
            array.rows.resize(length, Row::Missing);
            let name = format!("refs.{}.parq", array.record);
            let folder = self.folder.join(&array.key);
            if array.record == 0 {
                fs::create_dir_all(&folder)?;
            }
            (self.check)()?;
            self.write(&folder.join(name), &array.rows)?;
            array.rows.clear();
            array.record += 1;
        }
        Ok(())
    }

    fn write(&self, path: &Path, rows: &[Row]) -> io::Result<()> {
        let paths = rows.iter().map(|row| match row {
            Row::Range(path, ..) => Some(&**path),
            Row::Missing | Row::Bytes(_) => None,
        });
        let numbers = |number: fn(&Row) -> i64| -> ArrayRef {
            Arc::new(rows.iter().map(number).collect::<Int64Array>())
        };
        let raw = rows.iter().map(|row| match row {
            Row::Bytes(bytes) => Some(bytes.as_slice()),
            Row::Missing | Row::Range(..) => None,
        });
        let columns: Vec<ArrayRef> = vec![
            Arc::new(paths.collect::<StringArray>()),
            numbers(|row| match row {
                Row::Range(_, offset, _) => *offset,
                Row::Missing | Row::Bytes(_) => 0,
            }),
            numbers(|row| match row {
                Row::Range(_, _, size) => *size,
                Row::Missing | Row::Bytes(_) => 0,
            }),
            Arc::new(raw.collect::<BinaryArray>()),
        ];
        let batch =
            RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(io::Error::other)?;
        let zstd = ZstdLevel::try_new(3).map_err(io::Error::other)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(zstd))
            .set_statistics_enabled(EnabledStatistics::None)
            .set_key_value_metadata(Some(vec![KeyValue::new("pandas".to_owned(), pandas())]));
        let options = ArrowWriterOptions::new()
            .with_properties(properties.build())
            .with_skip_arrow_metadata(true);
        let file = File::create_new(path)?;
        let schema = Arc::clone(&self.schema);
        let mut writer = ArrowWriter::try_new_with_options(file, schema, options).map_err(fault)?;
        writer.write(&batch).map_err(fault)?;
        writer.close().map_err(fault)?;
        Ok(())
    }

    fn put(&mut self, key: &str, row: Row) -> io::Result<()> {
        let odd = || io::Error::other(format!("reference `{key}` is of no chunk of its array"));
        let mut array = self.array.take().ok_or_else(odd)?;
        let number = array.number(key).ok_or_else(odd)?;
        let size = self.record_size as u64;
        if number / size < array.record {
            return Err(odd());
        }
        self.end_records(&mut array, number / size)?;
        let at = usize::try_from(number % size).map_err(io::Error::other)?;
        if array.rows.len() <= at {
            array.rows.resize(at + 1, Row::Missing);
        }
        if let Some(place) = array.rows.get_mut(at) {
            *place = row;
        }
        self.array = Some(array);
        Ok(())
    }

    /// Returns the address as it is kept: that of the row before, where it is the same.
    fn address(&self, url: &str) -> Arc<str> {
        let last = self.array.as_ref().and_then(|array| array.rows.last());
        match last {
            Some(Row::Range(known, ..)) if &**known == url => Arc::clone(known),
            _ => Arc::from(url),
        }
    }
}

impl References for Records<'_> {
    fn json(&mut self, key: &str, value: &Value) -> io::Result<()> {
        if let Some(array) = key.strip_suffix("/.zarray") {
            self.end_array()?;
            self.array = Some(Array::of(array, value));
        }
        let before: &[u8] = if self.is_first { b"\n" } else { b",\n" };
        self.is_first = false;
        self.metadata.write_all(before)?;
        serde_json::to_writer(&mut self.metadata, key)?;
        self.metadata.write_all(b":")?;
        Ok(serde_json::to_writer(&mut self.metadata, value)?)
    }

    fn bytes(&mut self, key: &str, bytes: &[u8]) -> io::Result<()> {
        self.put(key, Row::Bytes(bytes.to_vec()))
    }

    fn range(&mut self, key: &str, url: &str, offset: u64, length: u64) -> io::Result<()> {
        let signed = |number: u64| i64::try_from(number).map_err(io::Error::other);
        let row = Row::Range(self.address(url), signed(offset)?, signed(length)?);
        self.put(key, row)
    }
}

impl Array {
    fn of(key: &str, zarray: &Value) -> Self {
        let sides = |name: &str| -> Vec<u64> {
            let list = zarray.get(name).and_then(Value::as_array);
            list.into_iter()
                .flatten()
                .filter_map(Value::as_u64)
                .collect()
        };
        let sides = sides("shape").into_iter().zip(sides("chunks"));
        Self {
            key: key.to_owned(),
            grid: sides
                .map(|(side, chunk)| side.div_ceil(chunk.max(1)))
                .collect(),
            record: 0,
            rows: Vec::new(),
        }
    }

    fn chunks(&self) -> u64 {
        self.grid
            .iter()
            .fold(1, |all, side| all.saturating_mul(*side))
    }

    /// Returns the number of the chunk of a key, in the order of rows.
    fn number(&self, key: &str) -> Option<u64> {
        let chunk = key.strip_prefix(&self.key)?.strip_prefix('/')?;
        if self.grid.is_empty() {
            return (chunk == "0").then_some(0);
        }
        let mut places = chunk.split('.');
        let mut number = 0_u64;
        for side in &self.grid {
            let place: u64 = places.next()?.parse().ok()?;
            number = number.checked_mul(*side)?.checked_add(place)?;
            (place < *side).then_some(())?;
        }
        places.next().is_none().then_some(number)
    }
}

/// Returns the error of the file system, if it was one.
fn fault(err: ParquetError) -> io::Error {
    match err {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(inner) => *inner,
            Err(other) => io::Error::other(other),
        },
        err => io::Error::other(err),
    }
}

/// Returns what pandas is told of the columns: text and bytes are objects, of which a missing one is None.
fn pandas() -> String {
    let column = |name: &str, kind: &str, numpy: &str| {
        json!({
            "name": name, "field_name": name, "pandas_type": kind, "numpy_type": numpy, "metadata": null,
        })
    };
    json!({
        "index_columns": [], "column_indexes": [], "partition_columns": [],
        "creator": {"library": "rss_core", "version": env!("CARGO_PKG_VERSION")},
        "pandas_version": "2.0.0",
        "columns": [
            column("path", "unicode", "object"),
            column("offset", "int64", "int64"),
            column("size", "int64", "int64"),
            column("raw", "bytes", "object"),
        ],
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use arrow_array::{Array as _, cast::AsArray, types::Int64Type};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;

    /// Path, offset, size, raw.
    type Stored = (Option<String>, i64, i64, Option<Vec<u8>>);

    fn rows(path: &Path) -> Vec<Stored> {
        let file = File::open(path).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        let mut rows = Vec::new();
        for batch in reader.build().unwrap() {
            let batch = batch.unwrap();
            let (paths, raw) = (batch.column(0).as_string::<i32>(), batch.column(3));
            let raw = raw.as_binary::<i32>();
            let number =
                |column: usize, row| batch.column(column).as_primitive::<Int64Type>().value(row);
            for row in 0..batch.num_rows() {
                rows.push((
                    paths.is_valid(row).then(|| paths.value(row).to_owned()),
                    number(1, row),
                    number(2, row),
                    raw.is_valid(row).then(|| raw.value(row).to_vec()),
                ));
            }
        }
        rows
    }

    #[test]
    fn a_row_is_a_chunk_whether_it_is_stored_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let check = || Ok(());
        let mut refs = Records::with_record_size(folder.path(), &check, 2).unwrap();
        refs.json(".zgroup", &json!({"zarr_format": 2})).unwrap();
        refs.json("a/.zarray", &json!({"shape": [5, 10], "chunks": [2, 4]}))
            .unwrap();
        refs.json("a/.zattrs", &json!({})).unwrap();
        refs.range("a/0.1", "s3://b/k", 1, 2).unwrap();
        // Two records are missing between these.
        refs.range("a/2.0", "s3://b/k", 3, 4).unwrap();
        refs.json("g/.zarray", &json!({"shape": [], "chunks": []}))
            .unwrap();
        refs.bytes("g/0", &[7]).unwrap();
        assert!(refs.range("g/1", "x", 0, 0).is_err());
        let mut refs = Records::with_record_size(folder.path(), &check, 2).unwrap();
        refs.json("e/.zarray", &json!({"shape": [0], "chunks": [0]}))
            .unwrap();
        refs.finish().unwrap();

        let of = |number: usize| rows(&folder.path().join(format!("a/refs.{number}.parq")));
        let none = || (None, 0, 0, None);
        let some = |at, size| (Some("s3://b/k".to_owned()), at, size, None);
        assert_eq!(of(0), [none(), some(1, 2)]);
        assert_eq!((of(1), of(2)), (vec![none(), none()], vec![none(), none()]));
        assert_eq!(of(3), [some(3, 4), none()]);
        // Nine chunks.
        assert_eq!(of(4), [none()]);
        assert!(!folder.path().join("a/refs.5.parq").exists());
    }

    #[test]
    fn the_metadata_is_json_with_the_size_of_records() {
        let folder = tempfile::tempdir().unwrap();
        let check = || Ok(());
        let mut refs = Records::new(folder.path(), &check).unwrap();
        refs.json(".zgroup", &json!({"zarr_format": 2})).unwrap();
        refs.json("a\"/.zarray", &json!({"shape": [], "chunks": []}))
            .unwrap();
        refs.bytes("a\"/0", &[0]).unwrap();
        refs.finish().unwrap();
        let text = fs::read(folder.path().join(".zmetadata")).unwrap();
        let value: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(value["record_size"], RECORD_SIZE);
        assert_eq!(value["metadata"][".zgroup"]["zarr_format"], 2);
        assert_eq!(
            rows(&folder.path().join("a\"/refs.0.parq")),
            [(None, 0, 0, Some(vec![0]))]
        );
    }
}
