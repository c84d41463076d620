//! The schema of an index: names and types of its columns, and keys of the file's metadata.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, TimeUnit};

/// The version of the schema that this code writes; it reads files of this version only.
pub(super) const VERSION: u32 = 1;
/// The key of the file's metadata that marks an index.
pub(super) const INDEX_KEY: &str = "rss:index";
/// The prefix of the columns of headers; the asset's key follows.
pub(super) const PREFIX: &str = "index:";
/// The struct column of the catalogue's assets.
pub(super) const ASSETS: &str = "assets";

/// Returns the name of the column that holds the headers of an asset's files.
pub(super) fn column_of(asset: &str) -> String {
    format!("{PREFIX}{asset}")
}

/// Returns a nullable field.
pub(super) fn field(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, true)
}

/// Returns a list whose elements are never null, named `element` as the Parquet format requires.
pub(super) fn list_of(kind: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("element", kind, false)))
}

/// Returns the type of a catalogue's times, as stac-geoparquet prescribes it.
pub(super) fn time() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// Returns the columns of one asset's headers. Bytes are stored as hexadecimal text: JSON has no type for bytes, and
/// some readers convert rows to JSON.
pub(super) fn entry() -> Fields {
    use DataType::{Boolean, Float64, Int32, Int64, Utf8};
    let changed = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    Fields::from(vec![
        field("size", Int64),
        field("etag", Utf8),
        field("last_modified", changed),
        field("checksum", Utf8),
        field("little_endian", Boolean),
        field("header_bytes", Int64),
        field("width", Int64),
        field("height", Int64),
        field("count", Int32),
        field("dtype", Utf8),
        field("nodata", Float64),
        // The digits of an integer that no float is; indexes of earlier versions have no such column.
        field("nodata_integer", Utf8),
        field("epsg", Int64),
        field("wkt", Utf8),
        field("transform", list_of(Float64)),
        field("pixel_is_point", Boolean),
        field("compression", Utf8),
        field("bands", list_of(DataType::Struct(bands()))),
        field("palette", Utf8),
        field("metadata", list_of(DataType::Struct(metadata()))),
        field("levels", list_of(DataType::Struct(levels()))),
    ])
}

/// Returns the columns of one band.
pub(super) fn bands() -> Fields {
    use DataType::{Float64, Utf8};
    Fields::from(vec![
        field("color", Utf8),
        field("description", Utf8),
        field("scale", Float64),
        field("offset", Float64),
        field("unit", Utf8),
    ])
}

/// Returns the columns of one metadata item.
pub(super) fn metadata() -> Fields {
    Fields::from(vec![
        field("key", DataType::Utf8),
        field("value", DataType::Utf8),
    ])
}

/// Returns the columns of one image: a level, or the mask of the level before it.
pub(super) fn levels() -> Fields {
    use DataType::{Boolean, Int32, Int64, Utf8};
    Fields::from(vec![
        field("mask", Boolean),
        field("width", Int64),
        field("height", Int64),
        field("tile_width", Int64),
        field("tile_height", Int64),
        field("bands", Int32),
        field("bits", Int32),
        field("sample_format", Int32),
        field("compression", Int32),
        field("compression_option", Int32),
        field("predictor", Int32),
        field("planar", Boolean),
        field("photometric", Int32),
        field("bits_reversed", Boolean),
        field("jpeg_tables", Utf8),
        field("byte_counts", list_of(Int64)),
        field("gaps", list_of(Int64)),
    ])
}

/// Returns GDAL's name of a compression, for queries by people: decoding uses the code in `levels`.
pub(super) fn compression_name(code: u16) -> Option<&'static str> {
    Some(match code {
        2 => "CCITTRLE",
        3 => "CCITTFAX3",
        4 => "CCITTFAX4",
        5 => "LZW",
        6 | 7 => "JPEG",
        8 | 32_946 => "DEFLATE",
        32_773 => "PACKBITS",
        34_887 => "LERC",
        34_925 => "LZMA",
        50_000 => "ZSTD",
        50_001 => "WEBP",
        50_002 | 52_546 => "JXL",
        _ => return None,
    })
}
