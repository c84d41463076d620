//! The metadata and coordinates of a cube, by which other readers understand it.
//!
//! Names and units are those of the [CF conventions](https://cfconventions.org): coordinates of pixel
//! centres, `grid_mapping`, `scale_factor`, `add_offset`, `_FillValue`. The groups repeat the grid as
//! GeoZarr does: `spatial:`, `proj:` and `multiscales` of the
//! [Zarr conventions](https://github.com/zarr-conventions).

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};

use crate::{
    apply::TimeBounds,
    array::{Arrangement, below, json_number, number_of, to_bytes, vlen},
    geo::{GeoBox, GeoTransform, Size},
    raster::{DataType, Number},
};

/// The array whose attributes hold the CRS: CF's `grid_mapping`, under the name that rioxarray looks for.
pub(super) const GRID: &str = "spatial_ref";
/// The array of all bands.
pub(super) const STACK: &str = "data";
/// The coordinate that holds the item ids of each time step.
pub(super) const ITEM: &str = "item";
/// The first and last instant of each time step, (time, 2): CF's `bounds` of `time`.
pub(super) const TIME_BOUNDS: &str = "time_bnds";
/// The group's attribute with the layout, which an append continues.
pub(super) const LAYOUT: &str = "rss:layout";

/// The group's attribute with the provenance of computed samples; copied samples have none.
pub(super) const MADE: &str = "rss:made";

/// The group's attribute that says where samples come from: of the write and of each append. It is for readers: two writes
/// that differ in it only are the same.
pub(super) const PROVENANCE: &str = "rss:provenance";

/// The metadata of a band.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CubeBand {
    /// Its name.
    pub name: String,
    /// The dtype of its samples.
    pub dtype: DataType,
    /// The nodata value, if there is one.
    pub nodata: Option<Number>,
    /// The scale: a value is sample x scale + offset.
    pub scale: Option<f64>,
    /// The offset.
    pub offset: Option<f64>,
    /// The unit of the values.
    pub unit: Option<String>,
    /// Whether its samples are classes or flags, which have no mean; of a stored cube, where its overviews depend on it.
    pub is_class: bool,
}

/// One time step of a cube.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TimeStep {
    /// The acquisition time of its first image; the start of a period.
    pub time: DateTime<Utc>,
    /// The first and the last instant of the images of a group, or of a period such as a month; none where time steps
    /// are single images.
    pub bounds: Option<TimeBounds>,
    /// The ids of its images' items.
    pub items: Vec<String>,
}

impl TimeStep {
    /// Returns the span of the step.
    pub(super) fn span(&self) -> TimeBounds {
        self.bounds.unwrap_or(TimeBounds::at(self.time))
    }
}

/// Returns true if time steps have bounds.
pub(super) fn are_bounded(steps: &[TimeStep]) -> bool {
    steps.iter().any(|step| step.bounds.is_some())
}

/// Returns the attributes of a band's array.
pub(super) fn band_attributes(band: &CubeBand, grid: &GeoBox) -> Map<String, Value> {
    let mut attributes = Map::new();
    attributes.insert("grid_mapping".to_owned(), GRID.into());
    // xarray decodes `grid_mapping` only on request; listed here, `spatial_ref` becomes a coordinate by default.
    let coordinates = format!("{ITEM} {GRID}");
    attributes.insert("coordinates".to_owned(), coordinates.into());
    // GDAL reads the CRS from `_CRS`.
    if let Some(code) = grid.crs.as_ref().and_then(crate::geo::Crs::epsg) {
        let url = format!("http://www.opengis.net/def/crs/EPSG/0/{code}");
        attributes.insert("_CRS".to_owned(), json!({"url": url}));
    }
    if let Some(nodata) = band.nodata {
        attributes.insert("_FillValue".to_owned(), fill_attribute(band.dtype, nodata));
    }
    for (name, value) in [("scale_factor", band.scale), ("add_offset", band.offset)] {
        if let Some(value) = value {
            attributes.insert(name.to_owned(), json!(value));
        }
    }
    if let Some(unit) = &band.unit {
        attributes.insert("units".to_owned(), json!(unit));
    }
    attributes
}

/// Returns a fill value as xarray writes `_FillValue` in Zarr v3: a float as the base64 of its bytes as a
/// little-endian float64, since JSON has no NaN.
fn fill_attribute(dtype: DataType, value: Number) -> Value {
    match dtype {
        DataType::F32 | DataType::F64 => {
            json!(BASE64_STANDARD.encode(value.as_f64().to_le_bytes()))
        }
        DataType::C64 | DataType::C128 => json!(value.as_f64()),
        _ => json_number(value),
    }
}

/// Reads what [`fill_attribute`] writes.
pub(super) fn fill_of_attribute(value: &Value) -> Option<Number> {
    if let Some(number) = number_of(value) {
        return Some(number);
    }
    let bytes = BASE64_STANDARD.decode(value.as_str()?).ok()?;
    Some(f64::from_le_bytes(bytes.try_into().ok()?).into())
}

/// The coordinates of one level.
pub(super) struct Coordinates {
    arrays: Vec<Coordinate>,
}

/// A coordinate: its metadata, and the bytes of its chunks along its first axis.
struct Coordinate {
    name: &'static str,
    document: Value,
    chunks: Vec<Vec<u8>>,
}

impl Coordinates {
    /// Makes the coordinates of a grid and its time steps; of bands too, where they share an array. Those along time
    /// have chunks of `steps_per_chunk`, the last one filled up: an append replaces it by one that begins with the same
    /// values, so that whoever reads it by the shape of before finds what was there.
    pub(super) fn of(
        grid: &GeoBox,
        steps: &[TimeStep],
        bands: &[CubeBand],
        arrangement: Arrangement,
        steps_per_chunk: usize,
    ) -> Self {
        let g = grid.transform.unwrap_or(GeoTransform([0.0; 6])).0;
        let centres = |start: f64, step: f64, count: u32| {
            (0..count)
                .flat_map(|at| (start + (f64::from(at) + 0.5) * step).to_le_bytes())
                .collect::<Vec<u8>>()
        };
        let degrees = is_geographic(grid);
        let axis = |axis: &str| {
            let (standard, units) = match (degrees, axis) {
                (true, "X") => ("longitude", "degrees_east"),
                (true, _) => ("latitude", "degrees_north"),
                (false, "X") => ("projection_x_coordinate", "metre"),
                (false, _) => ("projection_y_coordinate", "metre"),
            };
            json!({
                "standard_name": standard,
                "long_name": "of the pixel's centre",
                "units": units,
                "axis": axis,
            })
        };
        let size = grid.size;
        let per_chunk = steps_per_chunk.max(1);
        let numbers = |name, values: Vec<u8>, attributes| Coordinate {
            name,
            document: coordinate(name, "float64", [values.len() / 8; 2], attributes),
            chunks: vec![values],
        };
        // Texts of one chunk, filled up with empty ones.
        let packed = |texts: &[String], length: usize| {
            let rest = std::iter::repeat_n("", length.saturating_sub(texts.len()));
            vlen::encode(texts.iter().map(String::as_str).chain(rest))
        };
        let along_time = |values: &dyn Fn(&TimeStep) -> Vec<i64>, width: usize| -> Vec<Vec<u8>> {
            let chunks = steps.chunks(per_chunk);
            let chunk = |steps: &[TimeStep]| {
                let values = steps.iter().flat_map(values).flat_map(i64::to_le_bytes);
                let mut chunk: Vec<u8> = values.collect();
                chunk.resize(per_chunk * width * 8, 0);
                chunk
            };
            chunks.map(chunk).collect()
        };
        let mut time = json!({
            "standard_name": "time",
            "units": "milliseconds since 1970-01-01",
            "calendar": "proleptic_gregorian",
            "axis": "T",
        });
        if are_bounded(steps) {
            time["bounds"] = json!(TIME_BOUNDS);
        }
        let of_steps =
            |dtype, attributes| coordinate("time", dtype, [steps.len(), per_chunk], attributes);
        let items: Vec<String> = steps.iter().map(|step| text_of_ids(&step.items)).collect();
        let items = items.chunks(per_chunk);
        let mut arrays = vec![
            numbers("x", centres(g[0], g[1], size.width), axis("X")),
            numbers("y", centres(g[3], g[5], size.height), axis("Y")),
            Coordinate {
                name: "time",
                document: of_steps("int64", time),
                chunks: along_time(&|step| vec![step.time.timestamp_millis()], 1),
            },
            Coordinate {
                name: ITEM,
                document: of_steps("string", json!({"long_name": "ids of STAC items"})),
                chunks: items.map(|texts| packed(texts, per_chunk)).collect(),
            },
        ];
        if are_bounded(steps) {
            let bounds = |step: &TimeStep| {
                let span = step.span();
                vec![span.start.timestamp_millis(), span.end.timestamp_millis()]
            };
            // CF: bounds have the units of their coordinate, and need not repeat them.
            let mut document = of_steps("int64", json!({}));
            document["shape"] = json!([steps.len(), 2]);
            document["chunk_grid"]["configuration"]["chunk_shape"] = json!([per_chunk, 2]);
            document["dimension_names"] = json!(["time", "bnds"]);
            arrays.push(Coordinate {
                name: TIME_BOUNDS,
                document,
                chunks: along_time(&bounds, 2),
            });
        }
        if arrangement == Arrangement::Stacked {
            let names: Vec<String> = bands.iter().map(|band| band.name.clone()).collect();
            let band = json!({"long_name": "name of the band"});
            arrays.push(Coordinate {
                name: "band",
                document: coordinate("band", "string", [names.len(); 2], band),
                chunks: vec![packed(&names, names.len())],
            });
        }
        arrays.push(Coordinate {
            name: GRID,
            document: scalar(grid_attributes(grid)),
            chunks: Vec::new(),
        });
        Self { arrays }
    }

    /// Returns the chunks with their keys, below the path of a level.
    pub(super) fn chunks(&self, level: &str) -> Vec<(String, Bytes)> {
        let mut all = Vec::new();
        for array in &self.arrays {
            let axes = array.document["shape"].as_array().map_or(1, Vec::len);
            let rest = "/0".repeat(axes.saturating_sub(1));
            for (number, chunk) in array.chunks.iter().enumerate() {
                let key = below(level, &format!("{}/c/{number}{rest}", array.name));
                all.push((key, chunk.clone().into()));
            }
        }
        all
    }

    /// Returns the name and metadata of each.
    pub(super) fn documents(&self) -> Vec<(String, Value)> {
        self.arrays
            .iter()
            .map(|array| (array.name.to_owned(), array.document.clone()))
            .collect()
    }
}

/// Returns the metadata of a coordinate along one axis, of the lengths of the array and of a chunk: without
/// compression, which every reader decodes.
fn coordinate(along: &str, dtype: &str, [length, chunk]: [usize; 2], attributes: Value) -> Value {
    let (fill, codec) = match dtype {
        "string" => (json!(""), json!({"name": "vlen-utf8"})),
        _ => (
            json!(0),
            json!({"name": "bytes", "configuration": {"endian": "little"}}),
        ),
    };
    json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": [length],
        "data_type": dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk.max(1)]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill,
        "codecs": [codec],
        "attributes": attributes,
        "dimension_names": [along],
    })
}

/// Returns the metadata of an array without axes: it carries attributes only, as CF's grid mapping variable.
fn scalar(attributes: Map<String, Value>) -> Value {
    let mut document = coordinate("", "int64", [0, 1], Value::Object(attributes));
    document["shape"] = json!([]);
    document["chunk_grid"]["configuration"]["chunk_shape"] = json!([]);
    document["dimension_names"] = json!([]);
    document
}

/// Returns the ids of a time step as one text: separated by commas, as most readers show them, or as a list in JSON
/// where an id has a comma or could be taken for such a list.
fn text_of_ids(ids: &[String]) -> String {
    let is_plain = |id: &String| !id.is_empty() && !id.contains(',') && !id.starts_with('[');
    match ids.iter().all(is_plain) {
        true => ids.join(","),
        false => json!(ids).to_string(),
    }
}

/// Reads what [`text_of_ids`] returns.
pub(super) fn ids_of_text(text: &str) -> Vec<String> {
    let listed = text.starts_with('[').then(|| serde_json::from_str(text));
    match listed {
        Some(Ok(ids)) => ids,
        _ if text.is_empty() => Vec::new(),
        _ => text.split(',').map(str::to_owned).collect(),
    }
}

fn attributes(entries: &[(&str, Value)]) -> Map<String, Value> {
    entries
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect()
}

fn is_geographic(grid: &GeoBox) -> bool {
    let wkt = grid.crs.as_ref().and_then(|crs| crs.to_wkt());
    wkt.is_some_and(|wkt| {
        ["GEOGCS", "GEOGCRS", "GEODCRS"]
            .iter()
            .any(|keyword| wkt.trim_start().starts_with(keyword))
    })
}

fn grid_attributes(grid: &GeoBox) -> Map<String, Value> {
    let mut attributes = Map::new();
    if let Some(crs) = &grid.crs {
        let wkt = crs.to_wkt().map_or_else(|| crs.to_string(), str::to_owned);
        // CF's name of the WKT, and the one that GDAL and rioxarray write.
        attributes.insert("crs_wkt".to_owned(), json!(wkt));
        attributes.insert(GRID.to_owned(), json!(wkt));
    }
    if let Some(GeoTransform(numbers)) = grid.transform {
        let numbers = numbers.map(|number| number.to_string());
        attributes.insert("GeoTransform".to_owned(), json!(numbers.join(" ")));
    }
    attributes
}

/// Returns the attributes of the group of one level: its grid.
pub(super) fn level_attributes(grid: &GeoBox) -> Map<String, Value> {
    let mut attributes = crs_attributes(grid);
    attributes.extend(spatial_attributes(grid));
    attributes.insert("spatial:registration".to_owned(), json!("pixel"));
    attributes.insert("zarr_conventions".to_owned(), conventions(false));
    attributes
}

/// Adds to the attributes of a group with arrays that the bounds of its time steps are a coordinate: xarray reads the
/// names of coordinates that no variable lists from the group.
pub(super) fn with_bounds(
    mut attributes: Map<String, Value>,
    steps: &[TimeStep],
) -> Map<String, Value> {
    if are_bounded(steps) {
        attributes.insert("coordinates".to_owned(), TIME_BOUNDS.into());
    }
    attributes
}

/// Returns the attributes of the root of a cube with overviews; the resampling is none where bands differ in it.
pub(super) fn levels_attributes(
    levels: &[(&str, &GeoBox)],
    resampling: Option<&str>,
) -> Map<String, Value> {
    let Some((_, finest)) = levels.first() else {
        return Map::new();
    };
    let mut root = crs_attributes(finest);
    let mut layout = Vec::with_capacity(levels.len());
    let mut finer: Option<&str> = None;
    for (path, grid) in levels {
        let mut item = attributes(&[("asset", json!(path))]);
        // The axes are (time, y, x); overviews do not downsample time.
        let scale = if finer.is_some() { 2.0 } else { 1.0 };
        let transform = json!({"scale": [1.0, scale, scale], "translation": [0.0, 0.0, 0.0]});
        item.insert("transform".to_owned(), transform);
        if let Some(finer) = finer {
            item.insert("derived_from".to_owned(), json!(finer));
            if let Some(resampling) = resampling {
                item.insert("resampling_method".to_owned(), json!(resampling));
            }
        }
        let spatial = spatial_attributes(grid).into_iter();
        item.extend(spatial.filter(|(name, _)| name != "spatial:bbox"));
        layout.push(Value::Object(item));
        finer = Some(path);
    }
    root.insert("multiscales".to_owned(), json!({"layout": layout}));
    root.insert("zarr_conventions".to_owned(), conventions(true));
    root
}

fn crs_attributes(grid: &GeoBox) -> Map<String, Value> {
    let mut crs_attributes = attributes(&[
        ("Conventions", json!("CF-1.11")),
        ("spatial:dimensions", json!(["y", "x"])),
    ]);
    if let Some(crs) = &grid.crs {
        match crs.epsg() {
            Some(code) => {
                crs_attributes.insert("proj:code".to_owned(), json!(format!("EPSG:{code}")))
            }
            None => crs_attributes.insert("proj:wkt2".to_owned(), json!(crs.to_string())),
        };
    }
    if let Some(bbox) = bbox(grid) {
        crs_attributes.insert("spatial:bbox".to_owned(), json!(bbox));
    }
    crs_attributes
}

fn bbox(grid: &GeoBox) -> Option<[f64; 4]> {
    let transform = grid.transform?;
    let [x, y] = transform.apply(0.0, 0.0);
    let [far_x, far_y] = transform.apply(f64::from(grid.size.width), f64::from(grid.size.height));
    Some([x.min(far_x), y.min(far_y), x.max(far_x), y.max(far_y)])
}

fn spatial_attributes(grid: &GeoBox) -> Map<String, Value> {
    let size = grid.size;
    let mut spatial = attributes(&[("spatial:shape", json!([size.height, size.width]))]);
    if let Some(GeoTransform(g)) = grid.transform {
        // An affine matrix in row-major order, as rasterio's; GDAL's geotransform begins with the origin.
        let affine = json!([g[1], g[2], g[0], g[4], g[5], g[3]]);
        spatial.insert("spatial:transform".to_owned(), affine);
    }
    spatial
}

/// Returns the declaration of the conventions that the attributes follow.
fn conventions(has_levels: bool) -> Value {
    let entry = |name: &str, uuid: &str, description: &str| {
        json!({
            "uuid": uuid,
            "name": name,
            "schema_url": format!(
                "https://raw.githubusercontent.com/zarr-conventions/{name}/refs/tags/v0.1/schema.json"
            ),
            "spec_url": format!("https://github.com/zarr-conventions/{name}/blob/v0.1/README.md"),
            "description": description,
        })
    };
    let multiscales = entry(
        "multiscales",
        "d35379db-88df-4056-af3a-620245f8e347",
        "Multiscale layout of zarr datasets",
    );
    let proj = entry(
        "proj",
        "f17cb550-5864-4468-aeb7-f3180cfb622f",
        "Coordinate reference system information for geospatial data",
    );
    let spatial = entry(
        "spatial",
        "689b58e2-cf7b-45e0-9fff-9cfc0883d6b4",
        "Spatial coordinate information",
    );
    match has_levels {
        true => json!([multiscales, proj, spatial]),
        false => json!([proj, spatial]),
    }
}

/// Returns the grid of an overview: half as many pixels as the level before, rounded up.
pub(super) fn halved(grid: &GeoBox) -> GeoBox {
    let size = Size {
        width: grid.size.width.div_ceil(2),
        height: grid.size.height.div_ceil(2),
    };
    let transform = grid
        .transform
        .map(|GeoTransform(g)| GeoTransform([g[0], g[1] * 2.0, g[2], g[3], g[4], g[5] * 2.0]));
    GeoBox {
        size,
        crs: grid.crs.clone(),
        transform,
    }
}

/// Returns a group's `zarr.json`, with the consolidated metadata of everything below it.
pub(super) fn group(attributes: Map<String, Value>, below: &[(String, Value)]) -> Value {
    let mut document = json!({
        "zarr_format": 3,
        "node_type": "group",
        "attributes": attributes,
    });
    if !below.is_empty() {
        let metadata: Map<String, Value> = below.iter().cloned().collect();
        document["consolidated_metadata"] =
            json!({"kind": "inline", "must_understand": false, "metadata": metadata});
    }
    document
}

/// Returns documents as objects, each with its key.
pub(super) fn objects(documents: &[(String, Value)]) -> Vec<(String, Bytes)> {
    let object =
        |(path, document): &(String, Value)| (below(path, "zarr.json"), to_bytes(document));
    documents.iter().map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_any_characters_are_read_as_they_were() {
        let cases: [(&[&str], &str); 6] = [
            (&["a"], "a"),
            (&["a", "b"], "a,b"),
            (&["a,b"], "[\"a,b\"]"),
            (&["a,b", "c"], "[\"a,b\",\"c\"]"),
            (&["[\"a\"]"], "[\"[\\\"a\\\"]\"]"),
            (&[""], "[\"\"]"),
        ];
        for (ids, expected) in cases {
            let ids: Vec<String> = ids.iter().map(|&id| id.to_owned()).collect();
            assert_eq!(text_of_ids(&ids), expected);
            assert_eq!(ids_of_text(expected), ids);
        }
        assert_eq!(ids_of_text("[odd"), ["[odd"], "of a cube of before");
    }

    #[test]
    fn a_fill_value_is_written_as_xarray_writes_it() {
        // base64.standard_b64encode(struct.pack("<d", value))
        assert_eq!(
            fill_attribute(DataType::F32, f64::NAN.into()),
            json!("AAAAAAAA+H8=")
        );
        assert_eq!(
            fill_attribute(DataType::F64, (-9999.0).into()),
            json!("AAAAAICHw8A=")
        );
        assert_eq!(fill_attribute(DataType::I16, (-999.0).into()), json!(-999));
        for integer in [
            Number::from((1_i64 << 53) + 1),
            i64::MIN.into(),
            u64::MAX.into(),
        ] {
            let attribute = fill_attribute(DataType::I64, integer);
            assert_eq!(attribute.to_string(), integer.to_string());
            assert_eq!(fill_of_attribute(&attribute), Some(integer));
        }
        for value in [0.0, -9999.0, 1e300, f64::INFINITY] {
            let attribute = fill_attribute(DataType::F64, value.into());
            assert_eq!(fill_of_attribute(&attribute), Some(value.into()));
        }
    }
}
