//! Writing the Parquet file: the encoding of each column, the metadata, and an atomic rename, so that the file is
//! complete or absent.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, BufWriter},
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_array::{
    Array, BinaryArray, Float64Array, ListArray, RecordBatch, StructArray, cast::AsArray,
};
use arrow_schema::SchemaRef;
use parquet::{
    arrow::{ArrowSchemaConverter, ArrowWriter, arrow_writer::ArrowWriterOptions},
    basic::{Compression, Encoding, Type as PhysicalType, ZstdLevel},
    file::{
        metadata::KeyValue,
        properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder},
    },
    schema::types::ColumnPath,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tempfile::NamedTempFile;

use super::{
    disk::{Stop, folder_of},
    schema,
};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::{ordinary_file, publish},
    store::of_io,
};

/// Items of a row group. A look-up by id reads the ids of one group; smaller groups mean a larger footer, which every
/// open reads.
const GROUP_ROWS: usize = 8192;
/// Bytes of a row group: a group is buffered in memory until it is complete.
const GROUP_BYTES: usize = 64 << 20;
/// Rows of a page of most columns: an entry costs one page of each column.
const PAGE_ROWS: usize = 1024;
const PAGE_BYTES: usize = 64 << 10;
/// Values between checks whether a page is full: a page ends at the end of a row after so many.
const STEP_VALUES: usize = 256;
/// Bytes of a dictionary page; a column with more distinct values in a row group is stored plain.
const DISTINCT_BYTES: usize = 32 << 10;
/// A row with more tiles than this has pages of its own.
const LARGE_TILES: usize = 4096;

/// The value of `rss:index` in the file's metadata, as JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Said {
    pub(super) version: u32,
    #[serde(default)]
    pub(super) assets: BTreeMap<String, Count>,
    /// True if the bbox of an item crosses the antimeridian: its west is larger than its east.
    #[serde(default)]
    pub(super) crosses_antimeridian: bool,
}

/// The number of files and tiles of one asset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Count {
    #[serde(default)]
    pub(super) files: u64,
    #[serde(default)]
    pub(super) tiles: u64,
}

/// Writes a temporary file beside the output, and renames it when it is complete.
pub(super) struct Writer {
    writer: ArrowWriter<BufWriter<File>>,
    temp: NamedTempFile,
    output: PathBuf,
    said: Said,
    geometries: BTreeSet<String>,
    bbox: Option<[f64; 4]>,
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
        let said = Said {
            version: schema::VERSION,
            assets: columns
                .fields()
                .iter()
                .filter_map(|field| field.name().strip_prefix(schema::PREFIX))
                .map(|asset| (asset.to_owned(), Count::default()))
                .collect(),
            ..Said::default()
        };
        let options = ArrowWriterOptions::new()
            .with_properties(properties(&columns)?)
            // Parquet's logical types suffice. An embedded Arrow schema would make the footer larger.
            .with_skip_arrow_metadata(true);
        let file = BufWriter::with_capacity(1 << 20, file);
        let writer = ArrowWriter::try_new_with_options(file, columns, options).map_err(fault)?;
        Ok(Self {
            writer,
            temp,
            output: output.to_owned(),
            said,
            geometries: BTreeSet::new(),
            bbox: None,
            stop: stop.clone(),
        })
    }

    /// Appends rows.
    ///
    /// # Errors
    ///
    /// Errors of the file system; [`ErrorKind::Unavailable`] if the write was cancelled.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.stop.check()?;
        self.count(batch);
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

    /// Counts files and tiles, and collects geometry types and bbox for the file's metadata.
    fn count(&mut self, batch: &RecordBatch) {
        for (asset, count) in &mut self.said.assets {
            let column = batch.column_by_name(&schema::column_of(asset));
            let Some(column) = column.and_then(|column| column.as_struct_opt()) else {
                continue;
            };
            count.files += (column.len() - column.null_count()) as u64;
            count.tiles += tiles_before(column)
                .and_then(|ends| Some(ends.last()? - ends.first()?))
                .unwrap_or(0) as u64;
        }
        if let Some(column) = batch.column_by_name("geometry")
            && let Some(column) = column.as_any().downcast_ref::<BinaryArray>()
        {
            let names = column.iter().flatten().filter_map(super::wkb::name);
            self.geometries.extend(names);
        }
        let edges = batch.column_by_name("bbox").and_then(|column| {
            let column = column.as_struct_opt()?;
            let edge = |name| column.column_by_name(name)?.as_any().downcast_ref();
            let edges: [&Float64Array; 4] =
                [edge("xmin")?, edge("ymin")?, edge("xmax")?, edge("ymax")?];
            Some(edges)
        });
        let Some(edges) = edges else { return };
        for row in 0..batch.num_rows() {
            if edges.iter().any(|edge| edge.is_null(row)) {
                continue;
            }
            let [west, south, east, north] = edges.map(|edge| edge.value(row));
            // GeoJSON: a bbox across the antimeridian has its west larger than its east. The union of such boxes with
            // others is taken as all longitudes.
            let crosses = west > east;
            self.said.crosses_antimeridian |= crosses;
            let (west, east) = if crosses {
                (-180.0, 180.0)
            } else {
                (west, east)
            };
            let all = self.bbox.get_or_insert([west, south, east, north]);
            *all = [
                all[0].min(west),
                all[1].min(south),
                all[2].max(east),
                all[3].max(north),
            ];
        }
    }

    /// Finishes the file and renames it to the output; returns its size in bytes.
    ///
    /// # Errors
    ///
    /// Errors of the file system; [`ErrorKind::Unavailable`] if the write was cancelled. The temporary file is
    /// removed then.
    pub(super) fn finish(mut self) -> Result<u64> {
        let geo = json!({
            "version": "1.1.0",
            "primary_column": "geometry",
            "columns": { "geometry": {
                "encoding": "WKB",
                "geometry_types": self.geometries,
                "bbox": self.bbox,
                "covering": { "bbox": {
                    "xmin": ["bbox", "xmin"],
                    "ymin": ["bbox", "ymin"],
                    "xmax": ["bbox", "xmax"],
                    "ymax": ["bbox", "ymax"],
                }},
            }},
        });
        let mut geo = geo;
        if self.bbox.is_none()
            && let Some(column) = geo.pointer_mut("/columns/geometry")
            && let Some(column) = column.as_object_mut()
        {
            column.remove("bbox");
        }
        let said = serde_json::to_string(&self.said).map_err(|err| {
            Error::new(
                ErrorKind::InvalidInput,
                "the index's metadata cannot be written as JSON",
            )
            .with_source(err)
        })?;
        let stac = json!({ "version": "1.0.0" });
        for (key, value) in [
            (schema::INDEX_KEY, said),
            ("geo", geo.to_string()),
            ("stac-geoparquet", stac.to_string()),
        ] {
            let pair = KeyValue::new(key.to_owned(), value);
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

fn fault(err: parquet::errors::ParquetError) -> Error {
    Error::new(ErrorKind::Unavailable, "the index cannot be written").with_source(err)
}

/// Returns the offsets of the rows' tiles in the list of all tiles of a column: one more than there are rows.
fn tiles_before(column: &StructArray) -> Option<Vec<usize>> {
    let levels: &ListArray = column.column_by_name("levels")?.as_list_opt()?;
    let images = levels.values().as_struct_opt()?;
    let tiles: &ListArray = images.column_by_name("byte_counts")?.as_list_opt()?;
    let ends = tiles.value_offsets();
    levels
        .value_offsets()
        .iter()
        .map(|&image| {
            let image = usize::try_from(image).ok()?;
            usize::try_from(*ends.get(image)?).ok()
        })
        .collect()
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
fn properties(columns: &SchemaRef) -> Result<WriterProperties> {
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
