//! STAC items as Arrow columns: type inference over all items, and encoding. No IO.
//!
//! Columns are those of [stac-geoparquet](https://github.com/radiantearth/stac-geoparquet-spec):
//! properties are top-level columns, an item's bbox is a struct, its geometry WKB. A field with two types in
//! different items becomes text that holds JSON, unless both are numbers.

use std::{collections::BTreeSet, sync::Arc};

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, ListArray, StringArray,
    StructArray, TimestampMicrosecondArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields};
use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};

use super::{schema, wkb};
use crate::{
    error::{Error, ErrorKind, Result},
    store::{is_secret_field, shareable_json, shareable_text},
};

/// Properties that hold times.
const TIMES: [&str; 8] = [
    "datetime",
    "start_datetime",
    "end_datetime",
    "created",
    "updated",
    "published",
    "expires",
    "unpublished",
];
/// The first columns, which are members of an item. A property of one of these names is dropped: it would be a second column
/// of that name.
pub(super) const FIRST: [&str; 9] = [
    "type",
    "stac_version",
    "stac_extensions",
    "id",
    "geometry",
    "bbox",
    "links",
    "assets",
    "collection",
];
/// The most fields of a struct column; an object with more becomes text. Each field is a Parquet column, which every
/// reader of the footer pays for.
const MOST_FIELDS: usize = 1000;
/// The deepest nesting of a property; what is below becomes text. Parquet's readers bound the depth of a schema (pyarrow at
/// 100), and a list is two levels of it.
const DEEPEST: usize = 12;
const EDGES: [&str; 4] = ["xmin", "ymin", "xmax", "ymax"];

/// The inferred type of a field.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FieldKind {
    /// Only nulls so far.
    Nothing,
    Bool,
    Whole,
    Float,
    Time,
    Text,
    List(Box<FieldKind>),
    Struct(Vec<(String, FieldKind)>),
}

impl FieldKind {
    fn of(value: &Value) -> Self {
        Self::within(value, DEEPEST)
    }

    /// Returns the type of a value of so many levels; deeper ones are text.
    fn within(value: &Value, levels: usize) -> Self {
        match value {
            Value::Array(_) | Value::Object(_) if levels == 0 => Self::Text,
            Value::Null => Self::Nothing,
            Value::Bool(_) => Self::Bool,
            // A u64 above 2^63 becomes a float: the column is Int64.
            Value::Number(number) if number.is_i64() => Self::Whole,
            Value::Number(_) => Self::Float,
            Value::String(_) => Self::Text,
            Value::Array(list) => {
                let mut element = Self::Nothing;
                list.iter()
                    .for_each(|value| element.join(Self::within(value, levels - 1)));
                Self::List(Box::new(element))
            }
            Value::Object(fields) if fields.len() > MOST_FIELDS => Self::Text,
            Value::Object(fields) => Self::Struct(
                fields
                    .iter()
                    .map(|(name, value)| (name.clone(), Self::within(value, levels - 1)))
                    .collect(),
            ),
        }
    }

    fn join(&mut self, other: Self) {
        match (&mut *self, other) {
            (_, Self::Nothing) => {}
            (mine @ Self::Nothing, other) => *mine = other,
            (Self::Float, Self::Whole) => {}
            (mine @ Self::Whole, Self::Float) => *mine = Self::Float,
            (Self::List(mine), Self::List(other)) => mine.join(*other),
            (Self::Struct(mine), Self::Struct(other)) => {
                for (index, (name, kind)) in other.into_iter().enumerate() {
                    add(mine, index, &name, kind);
                }
                if mine.len() > MOST_FIELDS {
                    *self = Self::Text;
                }
            }
            (mine, other) if *mine == other => {}
            (mine, _) => *mine = Self::Text,
        }
    }

    /// Returns the type of the column; none if there is nothing to store.
    fn data_type(&self) -> Option<DataType> {
        Some(match self {
            Self::Bool => DataType::Boolean,
            Self::Whole => DataType::Int64,
            Self::Float => DataType::Float64,
            Self::Time => schema::time(),
            Self::Nothing | Self::Text => DataType::Utf8,
            Self::List(element) => {
                let element = element.data_type().unwrap_or(DataType::Utf8);
                DataType::List(Arc::new(schema::field("element", element)))
            }
            Self::Struct(fields) => {
                let fields = struct_fields(fields);
                if fields.is_empty() {
                    return None;
                }
                DataType::Struct(fields)
            }
        })
    }
}

fn struct_fields(fields: &[(String, FieldKind)]) -> Fields {
    let known = fields
        .iter()
        .filter_map(|(name, kind)| Some(schema::field(name, kind.data_type()?)));
    known.collect()
}

/// Joins a type into the field of a name. Items mostly have their fields in the same order, so `index` is tried first.
fn add(fields: &mut Vec<(String, FieldKind)>, index: usize, name: &str, kind: FieldKind) {
    let index = match fields.get(index) {
        Some((known, _)) if known == name => Some(index),
        _ => fields.iter().position(|(known, _)| known == name),
    };
    match index.and_then(|index| fields.get_mut(index)) {
        Some((_, known)) => known.join(kind),
        None => fields.push((name.to_owned(), kind)),
    }
}

/// One item as a row: its properties beside its top-level fields, without secrets.
#[derive(Clone, Debug)]
pub(super) struct Row {
    fields: Map<String, Value>,
    /// True if its geometry is none that readers accept: its bbox stands for it, or nothing.
    has_broken_geometry: bool,
}

impl Row {
    /// Returns the row of an item.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if it cannot be written as JSON.
    pub(super) fn of_item(item: &stac::Item) -> Result<Self> {
        match serde_json::to_value(item) {
            Ok(Value::Object(item)) => Ok(Self::new(item)),
            _ => Err(Error::new(
                ErrorKind::Corrupt,
                "an item is not a JSON object",
            )),
        }
    }

    /// Returns the row of an item as JSON.
    pub(super) fn new(mut item: Map<String, Value>) -> Self {
        let properties = match item.remove("properties") {
            Some(Value::Object(properties)) => properties,
            _ => Map::new(),
        };
        for (name, value) in properties {
            if !FIRST.contains(&name.as_str()) {
                item.insert(name, value);
            }
        }
        // A property of a catalogue must not pass for a column of headers.
        item.retain(|name, _| !name.starts_with(schema::PREFIX) && !is_secret_field(name));
        item.values_mut().for_each(shareable_json);
        let is_broken = |geometry: &Value| !geometry.is_null() && wkb::encode(geometry).is_none();
        let has_broken_geometry = item.get("geometry").is_some_and(is_broken);
        if has_broken_geometry {
            let outline = item.get("bbox").and_then(edges_of).map(outline);
            item.insert("geometry".to_owned(), outline.unwrap_or(Value::Null));
        }
        Self {
            fields: item,
            has_broken_geometry,
        }
    }
}

/// Returns an address, or text that holds JSON with addresses, without its secrets, if it has any.
pub(super) fn stripped(text: &str) -> Option<String> {
    shareable_text(text)
}

/// The columns of some items.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    known: Vec<(String, FieldKind)>,
    /// Items whose geometry is broken, and one of them.
    broken: (usize, String),
    /// Properties that are deeper than a column may be, or have more fields.
    as_text: BTreeSet<String>,
}

impl Default for Columns {
    fn default() -> Self {
        let text = || FieldKind::Text;
        let texts = |names: &[&str]| {
            let fields = names.iter().map(|name| ((*name).to_owned(), text()));
            FieldKind::Struct(fields.collect())
        };
        let first = FIRST.map(|name| {
            let kind = match name {
                "stac_extensions" => FieldKind::List(Box::new(text())),
                "links" => FieldKind::List(Box::new(texts(&["href", "rel", "type", "title"]))),
                "assets" => FieldKind::Struct(Vec::new()),
                _ => text(),
            };
            (name.to_owned(), kind)
        });
        let mut columns = Vec::from(first);
        columns.push(("datetime".to_owned(), FieldKind::Time));
        Self {
            known: columns,
            broken: (0, String::new()),
            as_text: BTreeSet::new(),
        }
    }
}

impl Columns {
    /// Extends the columns by the fields and types of a row.
    pub(super) fn learn(&mut self, row: &Row) {
        if row.has_broken_geometry {
            let id = row.fields.get("id").and_then(Value::as_str);
            self.broken.0 += 1;
            self.broken.1 = id.unwrap_or_default().to_owned();
        }
        for (index, (name, value)) in row.fields.iter().enumerate() {
            let kind = match (name.as_str(), value) {
                ("geometry" | "bbox", _) => continue,
                (name, Value::String(text)) if TIMES.contains(&name) => match time(text) {
                    Some(_) => FieldKind::Time,
                    None => FieldKind::Text,
                },
                _ => FieldKind::of(value),
            };
            if !matches!(name.as_str(), "geometry" | "bbox") && is_too_large(value, DEEPEST) {
                self.as_text.insert(name.clone());
            }
            add(&mut self.known, index, name, kind);
        }
    }

    /// Returns what a reader of the index should know of the items, one sentence each.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let (count @ 1.., id) = &self.broken {
            notes.push(format!(
                "the geometries of {count} items are none that readers accept, such as that of {}: their bbox stands for \
                 them, where they have one",
                id.escape_debug()
            ));
        }
        if !self.as_text.is_empty() {
            let names: Vec<&str> = self.as_text.iter().map(String::as_str).take(10).collect();
            notes.push(format!(
                "what is nested deeper than {DEEPEST} levels, or has more than {MOST_FIELDS} fields, is text that holds JSON: {}",
                names.join(", ").escape_debug()
            ));
        }
        notes
    }

    /// Returns true if these columns can hold a row.
    pub(super) fn holds(&self, row: &Row) -> bool {
        let mut more = self.clone();
        more.learn(row);
        more.known == self.known
    }

    /// Returns the columns' names and types.
    pub(super) fn fields(&self) -> Vec<Field> {
        let typed = |(name, kind): &(String, FieldKind)| {
            let kind = match name.as_str() {
                "geometry" => DataType::Binary,
                "bbox" => DataType::Struct(edges()),
                _ => kind.data_type()?,
            };
            Some(schema::field(name, kind))
        };
        self.known.iter().filter_map(typed).collect()
    }

    /// Returns the arrays of some rows, one for each of [`Columns::fields`].
    pub(super) fn arrays(&self, rows: &[Row]) -> Vec<ArrayRef> {
        let array = |(name, kind): &(String, FieldKind)| {
            let values: Vec<Option<&Value>> = rows.iter().map(|row| row.fields.get(name)).collect();
            match name.as_str() {
                "geometry" => {
                    let list = values.iter().map(|value| wkb::encode((*value)?));
                    Some(Arc::new(BinaryArray::from_iter(list)) as ArrayRef)
                }
                "bbox" => Some(boxes(&values)),
                _ => encode(kind, &values),
            }
        };
        self.known.iter().filter_map(array).collect()
    }
}

fn edges() -> Fields {
    EDGES
        .iter()
        .map(|name| schema::field(name, DataType::Float64))
        .collect()
}

/// Returns bboxes of four numbers, or of six without their heights.
fn boxes(values: &[Option<&Value>]) -> ArrayRef {
    let boxes: Vec<Option<[f64; 4]>> = values.iter().map(|value| edges_of((*value)?)).collect();
    let columns = (0..4)
        .map(|edge| {
            let edge = boxes.iter().map(|one| one.as_ref()?.get(edge).copied());
            Arc::new(Float64Array::from_iter(edge)) as ArrayRef
        })
        .collect();
    let nulls = NullBuffer::from_iter(boxes.iter().map(Option::is_some));
    Arc::new(StructArray::new(edges(), columns, Some(nulls)))
}

/// Returns the edges of a bbox: west, south, east, north.
fn edges_of(bbox: &Value) -> Option<[f64; 4]> {
    let numbers: Vec<f64> = bbox.as_array()?.iter().filter_map(Value::as_f64).collect();
    match numbers.as_slice() {
        [w, s, e, n] | [w, s, _, e, n, _] => Some([*w, *s, *e, *n]),
        _ => None,
    }
}

/// Returns the outline of a bbox: two parts where it crosses the antimeridian.
fn outline([west, south, east, north]: [f64; 4]) -> Value {
    let ring = |west: f64, east: f64| {
        let [low, high] = [south, north];
        json!([[
            [west, low],
            [east, low],
            [east, high],
            [west, high],
            [west, low]
        ]])
    };
    match west > east {
        true => json!({
            "type": "MultiPolygon", "coordinates": [ring(west, 180.0), ring(-180.0, east)],
        }),
        false => json!({"type": "Polygon", "coordinates": ring(west, east)}),
    }
}

/// Returns true if a value has more levels than a column may, or an object with more fields.
fn is_too_large(value: &Value, levels: usize) -> bool {
    let below = |value: &Value| match levels.checked_sub(1) {
        Some(levels) => is_too_large(value, levels),
        None => true,
    };
    match value {
        Value::Array(list) => levels == 0 || list.iter().any(below),
        Value::Object(fields) => {
            levels == 0 || fields.len() > MOST_FIELDS || fields.values().any(below)
        }
        _ => false,
    }
}

fn time(text: &str) -> Option<DateTime<Utc>> {
    Some(DateTime::parse_from_rfc3339(text).ok()?.to_utc())
}

/// Encodes values as an array of a type; none if the type stores nothing.
fn encode(kind: &FieldKind, values: &[Option<&Value>]) -> Option<ArrayRef> {
    let iter = values.iter().copied();
    Some(match kind {
        FieldKind::Bool => Arc::new(BooleanArray::from_iter(iter.map(|value| value?.as_bool()))),
        FieldKind::Whole => Arc::new(Int64Array::from_iter(iter.map(|value| value?.as_i64()))),
        FieldKind::Float => Arc::new(Float64Array::from_iter(iter.map(|value| value?.as_f64()))),
        FieldKind::Time => {
            let times = iter.map(|value| Some(time(value?.as_str()?)?.timestamp_micros()));
            Arc::new(TimestampMicrosecondArray::from_iter(times).with_timezone("UTC"))
        }
        FieldKind::Nothing | FieldKind::Text => {
            let texts = iter.map(|value| match value? {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                other => Some(other.to_string()),
            });
            Arc::new(StringArray::from_iter(texts))
        }
        FieldKind::List(element) => {
            let lists = || iter.clone().map(|value| value.and_then(Value::as_array));
            let inner: Vec<_> = lists().flatten().flatten().map(Some).collect();
            // Elements without a type (empty objects) become nulls of a text column: a list needs an element type.
            let inner = encode(element, &inner).or_else(|| encode(&FieldKind::Text, &inner))?;
            let ends = OffsetBuffer::from_lengths(lists().map(|list| list.map_or(0, Vec::len)));
            let nulls = NullBuffer::from_iter(lists().map(|list| list.is_some()));
            let field = schema::field("element", inner.data_type().clone());
            Arc::new(ListArray::new(Arc::new(field), ends, inner, Some(nulls)))
        }
        FieldKind::Struct(fields) => {
            let objects: Vec<_> = iter.map(|value| value.and_then(Value::as_object)).collect();
            let columns: Vec<ArrayRef> = fields
                .iter()
                .filter_map(|(name, kind)| {
                    let inner: Vec<_> = objects
                        .iter()
                        .map(|object| object.and_then(|object| object.get(name)))
                        .collect();
                    encode(kind, &inner)
                })
                .collect();
            if columns.is_empty() {
                return None;
            }
            let nulls = NullBuffer::from_iter(objects.iter().map(Option::is_some));
            Arc::new(StructArray::new(
                struct_fields(fields),
                columns,
                Some(nulls),
            ))
        }
    })
}

#[cfg(test)]
mod tests {
    use arrow_array::{Array, RecordBatch, cast::AsArray};
    use arrow_schema::Schema;
    use serde_json::json;

    use super::*;

    fn batch(items: Value) -> RecordBatch {
        let rows: Vec<Row> = items
            .as_array()
            .unwrap()
            .iter()
            .map(|item| Row::new(item.as_object().unwrap().clone()))
            .collect();
        let mut columns = Columns::default();
        rows.iter().for_each(|row| columns.learn(row));
        let schema = Schema::new(columns.fields());
        RecordBatch::try_new(Arc::new(schema), columns.arrays(&rows)).unwrap()
    }

    #[test]
    fn fields_of_two_types_are_numbers_or_text() {
        let batch = batch(json!([
            {"id": "a", "properties": {"n": 1, "odd": {"a": 1}, "none": null, "e": {}, "l": []}},
            {"id": "b", "properties": {"n": 1.5, "odd": [1], "id": "no", "index:x": 1}},
            {"id": "c", "properties": {"odd": "text", "l": [{"deep": null}]}},
        ]));
        let n = batch
            .column_by_name("n")
            .unwrap()
            .as_primitive::<arrow_array::types::Float64Type>();
        assert_eq!((n.value(0), n.value(1), n.is_null(2)), (1.0, 1.5, true));
        let odd = batch.column_by_name("odd").unwrap().as_string::<i32>();
        let odd: Vec<_> = odd.iter().flatten().collect();
        assert_eq!(odd, [r#"{"a":1}"#, "[1]", "text"]);
        assert_eq!(batch.column_by_name("none").unwrap().null_count(), 3);
        assert!(batch.column_by_name("e").is_none() && batch.column_by_name("index:x").is_none());
        let id = batch.column_by_name("id").unwrap().as_string::<i32>();
        assert_eq!(id.value(1), "b");
    }

    #[test]
    fn a_missing_geometry_and_odd_boxes_are_null() {
        let batch = batch(json!([
            {"geometry": null, "bbox": [1, 2, 3]},
            {"geometry": {"type": "Point", "coordinates": [1, 2]}, "bbox": [1, 2, 0, 3, 4, 9]},
            {},
        ]));
        let geometry = batch.column_by_name("geometry").unwrap();
        assert_eq!((geometry.null_count(), geometry.is_valid(1)), (2, true));
        let bbox = batch.column_by_name("bbox").unwrap().as_struct();
        assert_eq!((bbox.null_count(), bbox.is_valid(1)), (2, true));
        let xmax = bbox
            .column(2)
            .as_primitive::<arrow_array::types::Float64Type>();
        assert_eq!(xmax.value(1), 3.0);
    }

    #[test]
    fn a_broken_geometry_is_that_of_its_bbox_or_null() {
        let ring = json!([[[0, 0], [1, 1]]]);
        let broken = json!({"type": "Polygon", "coordinates": ring});
        let mut columns = Columns::default();
        let rows: Vec<Row> = [
            json!({"id": "a", "geometry": broken, "bbox": [1, 2, 3, 4]}),
            json!({"id": "b", "geometry": broken}),
            json!({"id": "c", "geometry": null, "bbox": [1, 2, 3, 4]}),
        ]
        .iter()
        .map(|item| Row::new(item.as_object().unwrap().clone()))
        .collect();
        rows.iter().for_each(|row| columns.learn(row));
        let schema = Schema::new(columns.fields());
        let batch = RecordBatch::try_new(Arc::new(schema), columns.arrays(&rows)).unwrap();
        let geometry = batch.column_by_name("geometry").unwrap().as_binary::<i32>();
        let outline = json!({"type": "Polygon", "coordinates": [[[1.0, 2.0], [3.0, 2.0], [3.0, 4.0], [1.0, 4.0], [1.0, 2.0]]]});
        assert_eq!(geometry.value(0), wkb::encode(&outline).unwrap());
        assert!(geometry.is_null(1) && geometry.is_null(2));
        let notes = columns.notes();
        assert!(
            notes[0].contains("of 2 items") && notes.len() == 1,
            "{notes:?}"
        );
    }

    #[test]
    fn what_is_nested_too_deep_is_text_that_holds_json() {
        let mut deep = json!(1);
        for _ in 0..50 {
            deep = json!({ "a": [deep] });
        }
        let item = json!({"id": "a", "properties": {"deep": deep, "flat": {"a": [[1]]}}});
        let row = Row::new(item.as_object().unwrap().clone());
        let mut columns = Columns::default();
        columns.learn(&row);
        fn depth(kind: &DataType) -> usize {
            1 + match kind {
                DataType::Struct(fields) => fields
                    .iter()
                    .map(|field| depth(field.data_type()))
                    .max()
                    .unwrap_or(0),
                DataType::List(field) => 1 + depth(field.data_type()),
                _ => 0,
            }
        }
        let fields = columns.fields();
        assert!(fields.iter().all(|field| depth(field.data_type()) < 60));
        let schema = Schema::new(fields);
        let rows = [row];
        let batch = RecordBatch::try_new(Arc::new(schema), columns.arrays(&rows)).unwrap();
        // Down to the text, and the rest of the JSON in it.
        let mut column = Arc::clone(batch.column_by_name("deep").unwrap());
        let mut value = &deep;
        while let Some(parts) = column.as_struct_opt() {
            let list: &ListArray = parts.column(0).as_list();
            value = &value["a"];
            if list.values().as_string_opt::<i32>().is_none() {
                value = &value[0];
            }
            let inner = Arc::clone(list.values());
            if let Some(texts) = inner.as_string_opt::<i32>() {
                assert_eq!(texts.value(0), value[0].to_string());
                break;
            }
            column = inner;
        }
        assert_eq!(columns.notes().len(), 1, "{:?}", columns.notes());
        assert!(
            columns.notes()[0].ends_with(": deep"),
            "{:?}",
            columns.notes()
        );
    }

    #[test]
    fn times_are_times_and_other_text_stays() {
        let batch = batch(json!([
            {"properties": {"datetime": "2021-01-01T00:00:00.5Z", "created": "2021-01-01T00:00:00Z"}},
            {"properties": {"datetime": null, "created": "yesterday"}},
        ]));
        let column = |name| batch.column_by_name(name).unwrap();
        let times =
            column("datetime").as_primitive::<arrow_array::types::TimestampMicrosecondType>();
        assert_eq!(times.value(0), 1_609_459_200_500_000);
        assert!(times.is_null(1));
        assert_eq!(column("created").as_string::<i32>().value(1), "yesterday");
    }

    #[test]
    fn no_address_keeps_its_secret() {
        for (text, plain) in [
            ("https://h/a.tif?sig=CANARY&st=1&v=2", "https://h/a.tif?v=2"),
            ("https://me:CANARY@h/a.tif", "https://h/a.tif"),
            ("s3://b/a?CANARY", "s3://b/a"),
            (
                "/vsicurl/https://h/a.tif?X-Amz-Signature=CANARY",
                "/vsicurl/https://h/a.tif",
            ),
            (
                r#"{"red":{"href":"https://h/a.tif?sig=CANARY"}}"#,
                r#"{"red":{"href":"https://h/a.tif"}}"#,
            ),
            (
                r#"["https://h/a.tif?token=CANARY",1]"#,
                r#"["https://h/a.tif",1]"#,
            ),
        ] {
            assert_eq!(stripped(text).as_deref(), Some(plain));
        }
        for text in [
            "https://h/a.tif?v=2",
            "what? no",
            "me@example.org",
            r#"{"a":"https://h/a.tif?v=2"}"#,
            "{what? no",
        ] {
            assert_eq!(stripped(text), None, "{text}");
        }
    }
}
