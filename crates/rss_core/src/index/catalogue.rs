//! Items of a [stac-geoparquet](https://github.com/radiantearth/stac-geoparquet-spec) file: an index, or one that others
//! wrote without headers. Rows become JSON, which is read as leniently as any catalogue's.

use std::path::Path;

use arrow_array::{
    Array, BinaryArray, BinaryViewArray, LargeBinaryArray, RecordBatch, cast::AsArray, types,
};
use arrow_schema::{DataType, TimeUnit};
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Map, Value, json};

use super::{
    disk::on_disk,
    items::FIRST,
    schema::{ASSETS, PREFIX},
    select::{Matches, Select},
    table::ParquetTable,
    wkb,
};
use crate::{
    error::{Error, ErrorKind, Result},
    query::{ParsedItems, QueryResult},
    session::Session,
};

/// Rows that are read and parsed together.
const ROWS_AT_ONCE: usize = 512;
const EDGES: [&str; 6] = ["xmin", "ymin", "zmin", "xmax", "ymax", "zmax"];

impl QueryResult {
    /// Reads the selected items of a stac-geoparquet file of this machine: an index, or a file of rustac or the Python package
    /// stac-geoparquet. [`Select::assets`] leaves out all other assets of an item. Relative hrefs are
    /// resolved against the file.
    ///
    /// ```no_run
    /// use rss_core::{QueryResult, Session, index::Select};
    ///
    /// # async fn example() -> rss_core::Result<()> {
    /// let session = Session::builder().build()?;
    /// let select = Select::all().with_bbox("152.9,-27.6,153.2,-27.3".parse()?);
    /// let found = QueryResult::from_parquet_async(&session, "scenes.parquet", &select).await?;
    /// println!("{} items", found.len());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`], [`ErrorKind::Denied`] for the path; [`ErrorKind::Corrupt`] if it is not stac-geoparquet.
    pub async fn from_parquet_async(
        session: &Session,
        path: impl AsRef<Path>,
        select: &Select,
    ) -> Result<Self> {
        let (path, select) = (path.as_ref().to_owned(), select.clone());
        let parsed = on_disk(move |stop| {
            let table = ParquetTable::open(&path)?;
            let at = |err: Error| err.at(path.display());
            let mut parsed = ParsedItems::of_file(&path);
            for group in 0..table.groups() {
                for batch in selected(&table, group, &select)? {
                    stop.check()?;
                    let rows = features(&batch, &select).map_err(at)?;
                    let text = json!({"type": "FeatureCollection", "features": rows}).to_string();
                    parsed.add(text.as_bytes()).map_err(at)?;
                }
            }
            Ok(parsed)
        })
        .await?;
        Ok(parsed.into_result(session))
    }
}

/// Returns the selected rows of a row group, without their headers.
fn selected(table: &ParquetTable, group: usize, select: &Select) -> Result<Vec<RecordBatch>> {
    let schema = table.schema()?;
    for name in ["id", ASSETS] {
        if schema.field_with_name(name).is_err() {
            let message = format!("not stac-geoparquet: expected a column `{name}`");
            return Err(Error::new(ErrorKind::Corrupt, message).at(table.path().display()));
        }
    }
    let rows = match select.bbox.is_some() || select.start.is_some() || select.end.is_some() {
        false => None,
        true => {
            let mask = table.mask(&[
                &["bbox"],
                &["datetime"],
                &["start_datetime"],
                &["end_datetime"],
            ]);
            let (mut rows, mut start) = (Vec::new(), 0);
            for batch in table.read(group, &mask, None, ROWS_AT_ONCE)? {
                let batch = batch?;
                let matches = Matches::new(&batch, select);
                let here = (0..batch.num_rows()).filter(|row| matches.row(*row));
                rows.extend(here.map(|row| start + row));
                start += batch.num_rows();
            }
            Some(rows)
        }
    };
    if rows.as_ref().is_some_and(Vec::is_empty) {
        return Ok(Vec::new());
    }
    let names: Vec<&str> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .filter(|name| !name.starts_with(PREFIX))
        .collect();
    let paths: Vec<[&str; 1]> = names.into_iter().map(|name| [name]).collect();
    let paths: Vec<&[&str]> = paths.iter().map(<[&str; 1]>::as_slice).collect();
    let mask = table.mask(&paths);
    table
        .read(group, &mask, rows.as_deref(), ROWS_AT_ONCE)?
        .collect()
}

/// Returns the items of a batch as GeoJSON features.
fn features(batch: &RecordBatch, select: &Select) -> Result<Vec<Value>> {
    let schema = batch.schema();
    let mut all = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let mut item = Map::new();
        let mut properties = Map::new();
        for (field, column) in schema.fields().iter().zip(batch.columns()) {
            let name = field.name().as_str();
            if name.starts_with(PREFIX) || column.is_null(row) {
                continue;
            }
            let found = match name {
                "geometry" => geometry(column.as_ref(), row),
                "bbox" => bbox(column.as_ref(), row)?,
                _ => value(column.as_ref(), row)?,
            };
            match (found, FIRST.contains(&name)) {
                (Value::Null, _) => {}
                (found, true) => _ = item.insert(name.to_owned(), found),
                (found, false) => _ = properties.insert(name.to_owned(), found),
            }
        }
        let wanted = |id: &Value| {
            let id = id.as_str().unwrap_or_default();
            select
                .ids
                .as_ref()
                .is_none_or(|ids| ids.iter().any(|one| one == id))
        };
        if !item.get("id").is_some_and(wanted) {
            continue;
        }
        if let (Some(keys), Some(Value::Object(assets))) = (&select.assets, item.get_mut(ASSETS)) {
            assets.retain(|key, _| keys.contains(key));
        }
        item.insert("type".to_owned(), "Feature".into());
        item.entry("stac_version").or_insert("1.0.0".into());
        item.entry("links").or_insert_with(|| json!([]));
        item.entry(ASSETS).or_insert_with(|| json!({}));
        item.entry("geometry").or_insert(Value::Null);
        item.insert("properties".to_owned(), Value::Object(properties));
        all.push(Value::Object(item));
    }
    Ok(all)
}

/// Returns a geometry that is WKB, or GeoJSON as text; null if it is neither.
fn geometry(column: &dyn Array, row: usize) -> Value {
    let any = column.as_any();
    let bytes = if let Some(all) = any.downcast_ref::<BinaryArray>() {
        Some(all.value(row))
    } else if let Some(all) = any.downcast_ref::<LargeBinaryArray>() {
        Some(all.value(row))
    } else {
        any.downcast_ref::<BinaryViewArray>()
            .map(|all| all.value(row))
    };
    match bytes {
        Some(bytes) => wkb::decode(bytes).unwrap_or_default(),
        None => value(column, row).unwrap_or_default(),
    }
}

/// Returns a bbox as STAC's list of four or six numbers.
fn bbox(column: &dyn Array, row: usize) -> Result<Value> {
    Ok(match value(column, row)? {
        Value::Object(edges) => EDGES
            .iter()
            .filter_map(|name| edges.get(*name))
            .cloned()
            .collect(),
        list => list,
    })
}

/// Returns a value of a column as JSON. Members of structs that are null are left out: the union of all items' fields is
/// the type of a column.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`] for a type that no JSON stands for, such as binary ones.
fn value(column: &dyn Array, row: usize) -> Result<Value> {
    use types::{
        Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
        UInt8Type, UInt16Type, UInt32Type, UInt64Type,
    };
    if column.is_null(row) {
        return Ok(Value::Null);
    }
    macro_rules! number {
        ($kind:ty) => {
            column.as_primitive::<$kind>().value(row).into()
        };
    }
    let list = |values: &dyn Array| -> Result<Value> {
        let each = (0..values.len()).map(|row| value(values, row));
        Ok(Value::Array(each.collect::<Result<_>>()?))
    };
    Ok(match column.data_type() {
        DataType::Null => Value::Null,
        DataType::Boolean => column.as_boolean().value(row).into(),
        DataType::Int8 => number!(Int8Type),
        DataType::Int16 => number!(Int16Type),
        DataType::Int32 => number!(Int32Type),
        DataType::Int64 => number!(Int64Type),
        DataType::UInt8 => number!(UInt8Type),
        DataType::UInt16 => number!(UInt16Type),
        DataType::UInt32 => number!(UInt32Type),
        DataType::UInt64 => number!(UInt64Type),
        DataType::Float16 => column
            .as_primitive::<Float16Type>()
            .value(row)
            .to_f64()
            .into(),
        DataType::Float32 => number!(Float32Type),
        DataType::Float64 => number!(Float64Type),
        DataType::Utf8 => text(column.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => text(column.as_string::<i64>().value(row)),
        DataType::Utf8View => text(column.as_string_view().value(row)),
        DataType::Timestamp(unit, _) => time(column, *unit, row)?,
        DataType::Date32 => {
            let days = column.as_primitive::<types::Date32Type>().value(row);
            let day = types::Date32Type::to_naive_date_opt(days);
            day.map_or(Value::Null, |day| day.to_string().into())
        }
        DataType::List(_) => list(&column.as_list::<i32>().value(row))?,
        DataType::LargeList(_) => list(&column.as_list::<i64>().value(row))?,
        DataType::FixedSizeList(..) => list(&column.as_fixed_size_list().value(row))?,
        DataType::Struct(fields) => {
            let mut all = Map::new();
            for (field, member) in fields.iter().zip(column.as_struct().columns()) {
                let found = value(member, row)?;
                if !found.is_null() {
                    all.insert(field.name().clone(), found);
                }
            }
            Value::Object(all)
        }
        DataType::Map(..) => {
            let entries = column.as_map().value(row);
            let (keys, values) = (entries.column(0), entries.column(1));
            let mut all = Map::new();
            for entry in 0..entries.len() {
                if let Value::String(key) = value(keys, entry)? {
                    all.insert(key, value(values, entry)?);
                }
            }
            Value::Object(all)
        }
        DataType::Dictionary(..) => {
            let all = column.as_any_dictionary();
            let key = all.normalized_keys().get(row).copied();
            key.map_or(Ok(Value::Null), |key| value(all.values(), key))?
        }
        other => {
            let message = format!("a column of type {other}: expected what JSON can hold");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    })
}

/// Returns a text; or what it holds where it is an object or a list: fields whose types differ between items are written so.
fn text(text: &str) -> Value {
    match text.starts_with(['{', '[']) {
        true => serde_json::from_str(text).unwrap_or_else(|_| text.into()),
        false => text.into(),
    }
}

fn time(column: &dyn Array, unit: TimeUnit, row: usize) -> Result<Value> {
    let at: Option<DateTime<Utc>> = match unit {
        TimeUnit::Second => DateTime::from_timestamp(
            column
                .as_primitive::<types::TimestampSecondType>()
                .value(row),
            0,
        ),
        TimeUnit::Millisecond => DateTime::from_timestamp_millis(
            column
                .as_primitive::<types::TimestampMillisecondType>()
                .value(row),
        ),
        TimeUnit::Microsecond => DateTime::from_timestamp_micros(
            column
                .as_primitive::<types::TimestampMicrosecondType>()
                .value(row),
        ),
        TimeUnit::Nanosecond => Some(DateTime::from_timestamp_nanos(
            column
                .as_primitive::<types::TimestampNanosecondType>()
                .value(row),
        )),
    };
    let at = at.ok_or_else(|| Error::new(ErrorKind::Corrupt, "a time past all calendars"))?;
    Ok(at.to_rfc3339_opts(SecondsFormat::AutoSi, true).into())
}
