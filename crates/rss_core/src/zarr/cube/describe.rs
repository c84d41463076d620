//! What a cube says of itself, so that others understand it: arrays, coordinates, conventions.
//!
//! Names and units are those of the [CF conventions](https://cfconventions.org): coordinates of pixel
//! centres, `grid_mapping`, `scale_factor`, `add_offset`, `_FillValue`. The group says the same again as
//! GeoZarr does: `spatial:`, `proj:` and `multiscales` of the
//! [Zarr conventions](https://github.com/zarr-conventions).

use chrono::{DateTime, Utc};
use ndarray::{ArrayD, IxDyn};
use serde_json::{Map, Value, json};

use super::super::{
    array::{Array, ArraySpec, below, to_bytes},
    codec::Codec,
    layout::Arrangement,
    place::Place,
};
use crate::{
    error::Result,
    geo::{GeoBox, GeoTransform, Size},
    raster::{DataType, Sample},
};

/// The array that says what the CRS is.
pub(super) const GRID: &str = "spatial_ref";
/// The array of all bands.
pub(super) const STACK: &str = "data";
/// The attribute of `time` that names the items of each date.
pub(super) const ITEMS: &str = "stac:item_ids";
/// The attribute of the group that says how the cube is cut: what an append goes on with.
pub(super) const LAYOUT: &str = "rss:layout";

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
pub(super) fn band_attributes(band: &CubeBand) -> Map<String, Value> {
    let mut said = Map::new();
    said.insert("grid_mapping".to_owned(), GRID.into());
    said.insert("coordinates".to_owned(), GRID.into());
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
        let place = usize::try_from((bits >> (at * 6)) & 63).unwrap_or(0);
        char::from(LETTERS[place])
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
        let place = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u128::from(place);
    }
    let bytes = u64::try_from(bits >> 2).ok().filter(|_| text.len() == 11)?;
    Some(f64::from_le_bytes(bytes.to_be_bytes()))
}

/// The coordinates of one level, with their samples.
pub(super) struct Coordinates {
    arrays: Vec<(&'static str, ArraySpec, Samples)>,
}

enum Samples {
    Floats(Vec<f64>),
    Whole(Vec<i64>),
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
                .map(|at| start + (f64::from(at) + 0.5) * step)
                .collect::<Vec<_>>()
        };
        let degrees = is_geographic(grid);
        let axis = |name: &str, axis: &str| {
            let (standard, units) = match (degrees, axis) {
                (true, "X") => ("longitude", "degrees_east"),
                (true, _) => ("latitude", "degrees_north"),
                (false, "X") => ("projection_x_coordinate", "metre"),
                (false, _) => ("projection_y_coordinate", "metre"),
            };
            attributes(&[
                ("standard_name", json!(standard)),
                ("long_name", json!(format!("{name} of the pixel's centre"))),
                ("units", json!(units)),
                ("axis", json!(axis)),
            ])
        };
        let floats = |name: &'static str, values: Vec<f64>, said: Map<String, Value>| {
            let spec = plain(name, values.len(), DataType::F64).with_attributes(said);
            (name, spec, Samples::Floats(values))
        };
        let size = grid.size;
        let mut arrays = vec![
            floats("x", centres(g[0], g[1], size.width), axis("x", "X")),
            floats("y", centres(g[3], g[5], size.height), axis("y", "Y")),
        ];
        let times: Vec<i64> = steps
            .iter()
            .map(|step| step.time.timestamp_millis())
            .collect();
        let items: Vec<&[String]> = steps.iter().map(|step| step.items.as_slice()).collect();
        let said = attributes(&[
            ("standard_name", json!("time")),
            ("units", json!("milliseconds since 1970-01-01T00:00:00")),
            ("calendar", json!("proleptic_gregorian")),
            ("axis", json!("T")),
            (ITEMS, json!(items)),
        ]);
        let spec = plain("time", times.len(), DataType::I64).with_attributes(said);
        arrays.push(("time", spec, Samples::Whole(times)));
        if arrangement == Arrangement::Stacked {
            let count = i64::try_from(bands.len()).unwrap_or(0);
            let names: Vec<&str> = bands.iter().map(|band| band.name.as_str()).collect();
            let said = attributes(&[
                ("long_name", json!("number of the band")),
                ("names", json!(names)),
            ]);
            let spec = plain("band", bands.len(), DataType::I64).with_attributes(said);
            arrays.push(("band", spec, Samples::Whole((1..=count).collect())));
        }
        let spec = ArraySpec::new(Vec::new(), DataType::I32, Vec::new())
            .with_codec(Codec::None)
            .with_attributes(grid_attributes(grid));
        arrays.push((GRID, spec, Samples::Whole(vec![0])));
        Self { arrays }
    }

    /// Writes the samples.
    pub(super) async fn write(&self, place: &Place, level: &str) -> Result<()> {
        for (name, spec, samples) in &self.arrays {
            let array = Array::unwritten(place.clone(), &below(level, name), spec)?;
            let start = vec![0; spec.shape.len()];
            match (samples, spec.dtype) {
                (Samples::Floats(values), _) => {
                    array.write(&start, shaped(spec, values.clone())).await?;
                }
                (Samples::Whole(values), DataType::I32) => {
                    let values = values
                        .iter()
                        .map(|&n| i32::try_from(n).unwrap_or(0))
                        .collect();
                    array.write::<i32>(&start, shaped(spec, values)).await?;
                }
                (Samples::Whole(values), _) => {
                    array.write(&start, shaped(spec, values.clone())).await?;
                }
            }
        }
        Ok(())
    }

    /// Returns the name and metadata of each.
    pub(super) fn documents(&self) -> Result<Vec<(String, Value)>> {
        self.arrays
            .iter()
            .map(|(name, spec, _)| Ok(((*name).to_owned(), spec.document()?)))
            .collect()
    }
}

fn shaped<T: Sample>(spec: &ArraySpec, values: Vec<T>) -> ArrayD<T> {
    let shape: Vec<usize> = spec
        .shape
        .iter()
        .map(|&length| usize::try_from(length).unwrap_or(0))
        .collect();
    ArrayD::from_shape_vec(IxDyn(&shape), values)
        .unwrap_or_else(|_| ArrayD::from_elem(IxDyn(&shape), T::of_number(0.0)))
}

/// A coordinate: one chunk, plain enough for every reader.
fn plain(name: &str, length: usize, dtype: DataType) -> ArraySpec {
    let length = length as u64;
    let fill = match dtype {
        DataType::F64 => f64::NAN,
        _ => 0.0,
    };
    ArraySpec::new([length], dtype, [length.max(1)])
        .with_codec(Codec::Zstd { level: 3 })
        .with_fill(fill)
        .with_dimensions([name])
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

/// Returns what the group of a level says.
pub(super) fn level_attributes(grid: &GeoBox) -> Map<String, Value> {
    let mut said = attributes(&[("Conventions", json!("CF-1.11"))]);
    let size = grid.size;
    if let Some(GeoTransform(g)) = grid.transform {
        let far = GeoTransform(g).apply(f64::from(size.width), f64::from(size.height));
        let (low, high) = (
            [g[0].min(far[0]), g[3].min(far[1])],
            [g[0].max(far[0]), g[3].max(far[1])],
        );
        said.insert("spatial:dimensions".to_owned(), json!(["y", "x"]));
        said.insert("spatial:shape".to_owned(), json!([size.height, size.width]));
        // The order of an affine matrix, row by row; GDAL's begins with the origin.
        said.insert(
            "spatial:transform".to_owned(),
            json!([g[1], g[2], g[0], g[4], g[5], g[3]]),
        );
        said.insert(
            "spatial:bbox".to_owned(),
            json!([low[0], low[1], high[0], high[1]]),
        );
        said.insert("spatial:registration".to_owned(), json!("pixel"));
    }
    if let Some(crs) = &grid.crs {
        match crs.epsg() {
            Some(code) => said.insert("proj:code".to_owned(), json!(format!("EPSG:{code}"))),
            None => said.insert("proj:wkt2".to_owned(), json!(crs.to_string())),
        };
    }
    said
}

/// Returns what the conventions of these attributes are.
pub(super) fn conventions(has_levels: bool) -> Value {
    let entry = |uuid: &str, name: &str, path: &str, description: &str| {
        json!({
            "uuid": uuid,
            "name": name,
            "schema_url": format!("https://raw.githubusercontent.com/zarr-conventions/{path}/refs/tags/v1/schema.json"),
            "spec_url": format!("https://github.com/zarr-conventions/{path}/blob/v1/README.md"),
            "description": description,
        })
    };
    let mut entries = vec![
        entry(
            "f17cb550-5864-4468-aeb7-f3180cfb622f",
            "proj:",
            "proj",
            "Coordinate reference system of the data",
        ),
        entry(
            "689b58e2-cf7b-45e0-9fff-9cfc0883d6b4",
            "spatial:",
            "spatial",
            "Where pixels lie",
        ),
    ];
    if has_levels {
        entries.push(entry(
            "d35379db-88df-4056-af3a-620245f8e347",
            "multiscales",
            "multiscales",
            "Overviews",
        ));
    }
    Value::Array(entries)
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
pub(super) async fn write_documents(place: &Place, documents: &[(String, Value)]) -> Result<()> {
    for (path, document) in documents {
        let key = below(path, "zarr.json");
        place.write(&key, vec![to_bytes(document)]).await?;
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
