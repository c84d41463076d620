//! What a cube says of itself, so that others understand it: arrays, coordinates, conventions.
//!
//! Names and units are those of the [CF conventions](https://cfconventions.org): coordinates of pixel
//! centres, `grid_mapping`, `scale_factor`, `add_offset`, `_FillValue`. The group says the same again as
//! GeoZarr does: `spatial:`, `proj:` and `multiscales` of the
//! [Zarr conventions](https://github.com/zarr-conventions).

use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};

use crate::array::{Arrangement, Storage, below, to_bytes};
use crate::{
    error::Result,
    geo::{GeoBox, GeoTransform, Size},
    raster::DataType,
};

/// The array that says what the CRS is.
pub(super) const GRID: &str = "spatial_ref";
/// The array of all bands.
pub(super) const STACK: &str = "data";
/// The coordinate that names the items of each date: of several, with commas between.
pub(super) const ITEM: &str = "item";
/// The attribute of the group that says how the cube is cut: what an append goes on with.
pub(super) const LAYOUT: &str = "rss:layout";

/// The attribute of the group that says what the samples are made by, where they are not those of the files.
pub(super) const MADE: &str = "rss:made";

/// What a band is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CubeBand {
    /// Its name.
    pub name: String,
    /// The type of its samples.
    pub dtype: DataType,
    /// The value of samples without data, if there is one.
    pub nodata: Option<f64>,
    /// What a sample is multiplied with.
    pub scale: Option<f64>,
    /// What is then added.
    pub offset: Option<f64>,
    /// The unit of the values.
    pub unit: Option<String>,
}

/// One date of a cube.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TimeStep {
    /// When its first image was taken.
    pub time: DateTime<Utc>,
    /// The ids of its images' items.
    pub items: Vec<String>,
}

/// Returns the attributes of a band's array.
pub(super) fn band_attributes(band: &CubeBand, grid: &GeoBox) -> Map<String, Value> {
    let mut said = Map::new();
    said.insert("grid_mapping".to_owned(), GRID.into());
    // Makes xarray find the CRS without being asked to.
    let coordinates = format!("{ITEM} {GRID}");
    said.insert("coordinates".to_owned(), coordinates.into());
    // GDAL looks for the CRS here.
    if let Some(code) = grid.crs.as_ref().and_then(crate::geo::Crs::epsg) {
        let url = format!("http://www.opengis.net/def/crs/EPSG/0/{code}");
        said.insert("_CRS".to_owned(), json!({"url": url}));
    }
    if let Some(nodata) = band.nodata {
        said.insert("_FillValue".to_owned(), fill_attribute(band.dtype, nodata));
    }
    for (name, value) in [("scale_factor", band.scale), ("add_offset", band.offset)] {
        if let Some(value) = value {
            said.insert(name.to_owned(), json!(value));
        }
    }
    if let Some(unit) = &band.unit {
        said.insert("units".to_owned(), json!(unit));
    }
    said
}

/// Returns a fill value as xarray writes it in Zarr v3: a float as the base64 of its eight bytes.
fn fill_attribute(dtype: DataType, value: f64) -> Value {
    match dtype {
        DataType::F32 | DataType::F64 => json!(base64(value.to_le_bytes())),
        DataType::C64 | DataType::C128 => json!(value),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the value is one that the type holds"
        )]
        _ => json!(value as i64),
    }
}

/// Returns eight bytes in [base64](https://www.rfc-editor.org/rfc/rfc4648#section-4).
fn base64(bytes: [u8; 8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    // Eight bytes are eleven letters: 64 bits and two of nothing.
    let bits = u128::from(u64::from_be_bytes(bytes)) << 2;
    let letters = (0..11).rev().map(|at| {
        let position = usize::try_from((bits >> (at * 6)) & 63).unwrap_or(0);
        char::from(LETTERS[position])
    });
    letters.chain(['=']).collect()
}

/// Undoes [`fill_attribute`].
pub(super) fn fill_of_attribute(said: &Value) -> Option<f64> {
    if let Some(number) = said.as_f64() {
        return Some(number);
    }
    let text = said.as_str()?.strip_suffix('=')?;
    let mut bits = 0_u128;
    for letter in text.bytes() {
        let position = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u128::from(position);
    }
    let bytes = u64::try_from(bits >> 2).ok().filter(|_| text.len() == 11)?;
    Some(f64::from_le_bytes(bytes.to_be_bytes()))
}

/// The coordinates of one level.
pub(super) struct Coordinates {
    arrays: Vec<Coordinate>,
}

/// A coordinate: its metadata, and the bytes of its one chunk.
struct Coordinate {
    name: &'static str,
    document: Value,
    chunk: Option<Vec<u8>>,
}

impl Coordinates {
    /// Makes the coordinates of a grid and its dates; of bands too, where they share an array.
    pub(super) fn of(
        grid: &GeoBox,
        steps: &[TimeStep],
        bands: &[CubeBand],
        arrangement: Arrangement,
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
        let numbers = |name, dtype, chunk: Vec<u8>, said| Coordinate {
            name,
            document: coordinate(name, dtype, chunk.len() / 8, said),
            chunk: Some(chunk),
        };
        let texts = |name, along, texts: Vec<String>, said| Coordinate {
            name,
            document: coordinate(along, "string", texts.len(), said),
            chunk: Some(vlen_utf8(&texts)),
        };
        let times = steps.iter();
        let times = times.flat_map(|step| step.time.timestamp_millis().to_le_bytes());
        let said = json!({
            "standard_name": "time",
            "units": "milliseconds since 1970-01-01",
            "calendar": "proleptic_gregorian",
            "axis": "T",
        });
        let items = steps.iter().map(|step| step.items.join(",")).collect();
        let mut arrays = vec![
            numbers("x", "float64", centres(g[0], g[1], size.width), axis("X")),
            numbers("y", "float64", centres(g[3], g[5], size.height), axis("Y")),
            numbers("time", "int64", times.collect(), said),
            texts(
                ITEM,
                "time",
                items,
                json!({"long_name": "ids of STAC items"}),
            ),
        ];
        if arrangement == Arrangement::Stacked {
            let names = bands.iter().map(|band| band.name.clone()).collect();
            let said = json!({"long_name": "name of the band"});
            arrays.push(texts("band", "band", names, said));
        }
        arrays.push(Coordinate {
            name: GRID,
            document: scalar(grid_attributes(grid)),
            chunk: None,
        });
        Self { arrays }
    }

    /// Writes the samples.
    pub(super) async fn write(&self, storage: &Storage, level: &str) -> Result<()> {
        for array in &self.arrays {
            if let Some(chunk) = &array.chunk {
                let key = below(level, &format!("{}/c/0", array.name));
                storage.write(&key, vec![chunk.clone().into()]).await?;
            }
        }
        Ok(())
    }

    /// Returns the name and metadata of each.
    pub(super) fn documents(&self) -> Vec<(String, Value)> {
        self.arrays
            .iter()
            .map(|array| (array.name.to_owned(), array.document.clone()))
            .collect()
    }
}

/// Returns the metadata of a coordinate along one axis: one chunk, plain enough for every reader.
fn coordinate(along: &str, dtype: &str, length: usize, attributes: Value) -> Value {
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
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [length.max(1)]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill,
        "codecs": [codec],
        "attributes": attributes,
        "dimension_names": [along],
    })
}

/// Returns the metadata of an array without axes, of which only the attributes matter.
fn scalar(attributes: Map<String, Value>) -> Value {
    let mut document = coordinate("", "int64", 0, Value::Object(attributes));
    document["shape"] = json!([]);
    document["chunk_grid"]["configuration"]["chunk_shape"] = json!([]);
    document["dimension_names"] = json!([]);
    document
}

/// Returns the bytes of texts: their number, then of each its length and its UTF-8. This is the codec
/// [`vlen-utf8`](https://numcodecs.readthedocs.io/en/stable/other/vlen.html).
fn vlen_utf8(texts: &[String]) -> Vec<u8> {
    let number = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    let mut bytes = number(texts.len()).to_vec();
    for text in texts {
        bytes.extend_from_slice(&number(text.len()));
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

/// Undoes [`vlen_utf8`]; none if the bytes are no texts.
pub(super) fn texts_of(bytes: &[u8]) -> Option<Vec<String>> {
    let number = |at: usize| {
        let four = bytes.get(at..at.checked_add(4)?)?;
        usize::try_from(u32::from_le_bytes(four.try_into().ok()?)).ok()
    };
    let mut texts = Vec::new();
    let mut at = 4;
    for _ in 0..number(0)? {
        let length = number(at)?;
        at += 4;
        let text = bytes.get(at..at.checked_add(length)?)?;
        texts.push(str::from_utf8(text).ok()?.to_owned());
        at += length;
    }
    Some(texts)
}

fn attributes(said: &[(&str, Value)]) -> Map<String, Value> {
    said.iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect()
}

fn is_geographic(grid: &GeoBox) -> bool {
    let wkt = grid.crs.as_ref().and_then(|crs| crs.to_wkt());
    wkt.is_some_and(|wkt| {
        ["GEOGCS", "GEOGCRS", "GEODCRS"]
            .iter()
            .any(|kind| wkt.trim_start().starts_with(kind))
    })
}

fn grid_attributes(grid: &GeoBox) -> Map<String, Value> {
    let mut said = Map::new();
    if let Some(crs) = &grid.crs {
        let wkt = crs.to_wkt().map_or_else(|| crs.to_string(), str::to_owned);
        said.insert("crs_wkt".to_owned(), json!(wkt));
        said.insert(GRID.to_owned(), json!(wkt));
    }
    if let Some(GeoTransform(numbers)) = grid.transform {
        let numbers = numbers.map(|number| number.to_string());
        said.insert("GeoTransform".to_owned(), json!(numbers.join(" ")));
    }
    said
}

/// Returns what a group of arrays says of their grid.
pub(super) fn level_attributes(grid: &GeoBox) -> Map<String, Value> {
    let mut said = crs_attributes(grid);
    said.extend(place_attributes(grid));
    said.insert("spatial:registration".to_owned(), json!("pixel"));
    said.insert("zarr_conventions".to_owned(), conventions(false));
    said
}

/// Returns what the group of several levels says.
pub(super) fn levels_attributes(
    levels: &[(&str, &GeoBox)],
    resampling: &str,
) -> Map<String, Value> {
    let Some((_, finest)) = levels.first() else {
        return Map::new();
    };
    let mut said = crs_attributes(finest);
    let mut layout = Vec::with_capacity(levels.len());
    let mut finer: Option<&str> = None;
    for (path, grid) in levels {
        let mut item = attributes(&[("asset", json!(path))]);
        // Of (time, y, x): time is as it was.
        let scale = if finer.is_some() { 2.0 } else { 1.0 };
        let transform = json!({"scale": [1.0, scale, scale], "translation": [0.0, 0.0, 0.0]});
        item.insert("transform".to_owned(), transform);
        if let Some(finer) = finer {
            item.insert("derived_from".to_owned(), json!(finer));
            item.insert("resampling_method".to_owned(), json!(resampling));
        }
        let position = place_attributes(grid).into_iter();
        item.extend(position.filter(|(name, _)| name != "spatial:bbox"));
        layout.push(Value::Object(item));
        finer = Some(path);
    }
    said.insert("multiscales".to_owned(), json!({"layout": layout}));
    said.insert("zarr_conventions".to_owned(), conventions(true));
    said
}

fn crs_attributes(grid: &GeoBox) -> Map<String, Value> {
    let mut said = attributes(&[
        ("Conventions", json!("CF-1.11")),
        ("spatial:dimensions", json!(["y", "x"])),
    ]);
    if let Some(crs) = &grid.crs {
        match crs.epsg() {
            Some(code) => said.insert("proj:code".to_owned(), json!(format!("EPSG:{code}"))),
            None => said.insert("proj:wkt2".to_owned(), json!(crs.to_string())),
        };
    }
    if let Some(bbox) = bbox(grid) {
        said.insert("spatial:bbox".to_owned(), json!(bbox));
    }
    said
}

fn bbox(grid: &GeoBox) -> Option<[f64; 4]> {
    let transform = grid.transform?;
    let [x, y] = transform.apply(0.0, 0.0);
    let [far_x, far_y] = transform.apply(f64::from(grid.size.width), f64::from(grid.size.height));
    Some([x.min(far_x), y.min(far_y), x.max(far_x), y.max(far_y)])
}

fn place_attributes(grid: &GeoBox) -> Map<String, Value> {
    let size = grid.size;
    let mut said = attributes(&[("spatial:shape", json!([size.height, size.width]))]);
    if let Some(GeoTransform(g)) = grid.transform {
        // The order of an affine matrix, row by row; GDAL's begins with the origin.
        let affine = json!([g[1], g[2], g[0], g[4], g[5], g[3]]);
        said.insert("spatial:transform".to_owned(), affine);
    }
    said
}

/// Returns which conventions the attributes follow.
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

/// A group's document, with the metadata of all below it.
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

/// Writes documents, each at its path.
pub(super) async fn write_documents(
    storage: &Storage,
    documents: &[(String, Value)],
) -> Result<()> {
    for (path, document) in documents {
        let key = below(path, "zarr.json");
        storage.write(&key, vec![to_bytes(document)]).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_value_is_said_as_xarray_says_it() {
        // base64.standard_b64encode(struct.pack("<d", value))
        assert_eq!(
            fill_attribute(DataType::F32, f64::NAN),
            json!("AAAAAAAA+H8=")
        );
        assert_eq!(
            fill_attribute(DataType::F64, -9999.0),
            json!("AAAAAICHw8A=")
        );
        assert_eq!(fill_attribute(DataType::I16, -999.0), json!(-999));
        for value in [0.0, -9999.0, 1e300, f64::INFINITY] {
            let said = fill_attribute(DataType::F64, value);
            assert_eq!(fill_of_attribute(&said), Some(value));
        }
    }
}
