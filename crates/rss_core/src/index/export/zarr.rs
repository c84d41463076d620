//! Files as Zarr v2 groups: `<item>/<asset>/<level>`, each with one array of pixels and a CF grid mapping
//! variable.
//!
//! Attributes are those of the [CF conventions](https://cfconventions.org) that xarray and rioxarray
//! read: `scale_factor`, `add_offset`, `units`, `grid_mapping`.

use std::{collections::HashSet, fmt::Write as _, io};

use serde_json::{Map, Value, json};

use super::{
    Exported, Failed, address,
    encoding::{Bands, Chunk, Encoding},
    references::References,
    unsupported,
};
use crate::{
    error::Result,
    geo::{Crs, GeoTransform, Size},
    index::Indexed,
    raster::DataType,
    reader::{BandProfile, Header, Image},
};

/// The name of the grid mapping variable, as rioxarray expects it.
const GRID: &str = "spatial_ref";

pub(super) fn write(
    files: impl Iterator<Item = Result<Indexed>>,
    refs: &mut dyn References,
) -> Result<Exported, Failed> {
    let mut exported = Exported::default();
    let mut groups = HashSet::new();
    refs.json(".zgroup", &zgroup())?;
    for file in files {
        let file = file?;
        let arrays = match FileArrays::of(&file) {
            Ok(arrays) => arrays,
            Err(err) => {
                exported.leave_out(&file, None, err);
                continue;
            }
        };
        let item = segment(&file.item);
        let group = format!("{item}/{}", segment(&file.asset));
        if !groups.insert(group.clone()) {
            let why = "another item of the same id is there already";
            exported.leave_out(&file, None, unsupported(why));
            continue;
        }
        if groups.insert(item.clone()) {
            refs.json(&format!("{item}/.zgroup"), &zgroup())?;
        }
        refs.json(&format!("{group}/.zgroup"), &zgroup())?;
        refs.json(&format!("{group}/.zattrs"), &attributes(&file))?;
        for level in &arrays.levels {
            match level {
                Ok(level) => write_level(refs, &group, &file.asset, &arrays.url, level)?,
                Err(_) => continue,
            }
        }
        exported.written += 1;
        let levels = arrays.levels.into_iter().enumerate();
        for (number, err) in levels.filter_map(|(number, level)| Some((number, level.err()?))) {
            exported.leave_out(&file, Some(number), err);
        }
    }
    Ok(exported)
}

fn write_level(
    refs: &mut dyn References,
    group: &str,
    asset: &str,
    url: &str,
    level: &LevelArray,
) -> io::Result<()> {
    let group = format!("{group}/{}", level.number);
    refs.json(&format!("{group}/.zgroup"), &zgroup())?;
    write_grid(refs, &group, level)?;
    let array = format!("{group}/{}", name_of(asset));
    refs.json(&format!("{array}/.zarray"), &level.zarray(None))?;
    refs.json(&format!("{array}/.zattrs"), &level.zattrs(None))?;
    write_chunks(refs, &format!("{array}/"), url, level)
}

/// Writes the grid mapping variable of a group.
pub(super) fn write_grid(
    refs: &mut dyn References,
    group: &str,
    level: &LevelArray,
) -> io::Result<()> {
    refs.json(
        &format!("{group}/{GRID}/.zarray"),
        &json!({
            "zarr_format": 2, "shape": [], "chunks": [], "dtype": "<i8", "order": "C",
            "compressor": null, "filters": null, "fill_value": null,
        }),
    )?;
    refs.json(&format!("{group}/{GRID}/.zattrs"), &level.grid)?;
    refs.bytes(&format!("{group}/{GRID}/0"), &[0; 8])
}

pub(super) fn write_chunks(
    refs: &mut dyn References,
    prefix: &str,
    url: &str,
    level: &LevelArray,
) -> io::Result<()> {
    let mut key = String::new();
    for chunk in &level.chunks {
        let Chunk { col, row, band, .. } = chunk;
        key.clear();
        key.push_str(prefix);
        // Writing to a string does not fail.
        let _ = match level.encoding.bands {
            Bands::One => write!(key, "{row}.{col}"),
            Bands::Together(_) => write!(key, "{row}.{col}.0"),
            Bands::Apart(_) => write!(key, "{band}.{row}.{col}"),
        };
        refs.range(&key, url, chunk.offset, chunk.length)?;
    }
    Ok(())
}

pub(super) fn zgroup() -> Value {
    json!({"zarr_format": 2})
}

/// Returns the attributes that identify the file of a group.
fn attributes(file: &Indexed) -> Value {
    let mut said = Map::new();
    let mut say = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            said.insert(name.to_owned(), value.into());
        }
    };
    say("item", Some(file.item.clone()));
    say("collection", file.collection.clone());
    say("asset", Some(file.asset.clone()));
    say("datetime", file.datetime.map(|time| time.to_rfc3339()));
    say("location", Some(file.entry.location.to_string()));
    say("etag", file.entry.version.strong_etag().map(str::to_owned));
    said.into()
}

/// Returns text as one segment of a path, with all characters that have a meaning in a path percent-encoded.
pub(super) fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (place, c) in text.char_indices() {
        let is_odd = match c {
            '.' => place == 0,
            '/' | '\\' | '%' | '?' | '#' => true,
            c => c.is_control(),
        };
        if is_odd {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                let _ = write!(out, "%{byte:02X}");
            }
        } else {
            out.push(c);
        }
    }
    if out.is_empty() { "%".to_owned() } else { out }
}

/// Returns the name of the array of an asset: its key, unless a group has an array of that name.
pub(super) fn name_of(asset: &str) -> String {
    match segment(asset) {
        name if [GRID, "x", "y", "band", "time", "item"].contains(&name.as_str()) => {
            format!("{name}_")
        }
        name => name,
    }
}

/// A file as arrays.
pub(super) struct FileArrays {
    pub(super) url: String,
    /// Level 0, which must be readable, then the overviews that are.
    pub(super) levels: Vec<Result<LevelArray>>,
}

impl FileArrays {
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if Zarr cannot represent level 0.
    pub(super) fn of(file: &Indexed) -> Result<Self> {
        let header = &*file.entry.header;
        let url = address::of_fsspec(&file.entry.location)?;
        let levels = header.levels.iter().enumerate();
        let mut levels = levels.map(|(number, image)| LevelArray::of(header, number, image));
        let first = match levels.next() {
            Some(first) => first?,
            None => return Err(unsupported("no image")),
        };
        Ok(Self {
            url,
            levels: [Ok(first)].into_iter().chain(levels).collect(),
        })
    }
}

/// A level as an array.
pub(super) struct LevelArray {
    pub(super) number: usize,
    pub(super) size: Size,
    pub(super) encoding: Encoding,
    pub(super) chunks: Vec<Chunk>,
    /// The attributes of the grid mapping variable.
    pub(super) grid: Value,
    pub(super) transform: Option<GeoTransform>,
    zarray: Map<String, Value>,
    zattrs: Map<String, Value>,
}

impl LevelArray {
    fn of(header: &Header, number: usize, image: &Image) -> Result<Self> {
        let encoding = Encoding::of(header, image)?;
        let chunks = encoding.chunks(image)?;
        let transform = header.levels.first().and_then(|full| {
            let transform = header.transform?;
            Some(transform.of_level(full.size, image.size))
        });
        let (height, width) = (image.size.height, image.size.width);
        let chunk = encoding.chunk;
        let (shape, chunked, dims) = match encoding.bands {
            Bands::One => (
                json!([height, width]),
                json!([chunk.height, chunk.width]),
                json!(["y", "x"]),
            ),
            Bands::Together(n) => (
                json!([height, width, n]),
                json!([chunk.height, chunk.width, n]),
                json!(["y", "x", "band"]),
            ),
            Bands::Apart(n) => (
                json!([n, height, width]),
                json!([1, chunk.height, chunk.width]),
                json!(["band", "y", "x"]),
            ),
        };
        let (compressor, filters) = encoding.codecs();
        let zarray = [
            ("zarr_format", json!(2)),
            ("shape", shape),
            ("chunks", chunked),
            ("dtype", json!(encoding.dtype)),
            ("order", json!("C")),
            ("compressor", compressor),
            ("filters", filters),
            ("fill_value", fill_value(header)),
        ];
        let mut zattrs = described(&header.bands);
        zattrs.insert("_ARRAY_DIMENSIONS".to_owned(), dims);
        zattrs.insert("grid_mapping".to_owned(), GRID.into());
        zattrs.insert("coordinates".to_owned(), GRID.into());
        Ok(Self {
            number,
            size: image.size,
            chunks,
            grid: grid(header, transform),
            transform,
            zarray: zarray
                .map(|(key, value)| (key.to_owned(), value))
                .into_iter()
                .collect(),
            zattrs,
            encoding,
        })
    }

    /// Returns the array's metadata, with a first dimension of so many time steps if it has a time axis.
    pub(super) fn zarray(&self, times: Option<usize>) -> Value {
        let mut zarray = self.zarray.clone();
        if let Some(times) = times {
            push_front(&mut zarray, "shape", times.into());
            push_front(&mut zarray, "chunks", 1.into());
        }
        zarray.into()
    }

    /// Returns the array's attributes, with the coordinates of the time axis if it has one.
    pub(super) fn zattrs(&self, coordinates: Option<&str>) -> Value {
        let mut zattrs = self.zattrs.clone();
        if let Some(coordinates) = coordinates {
            push_front(&mut zattrs, "_ARRAY_DIMENSIONS", "time".into());
            let text = format!("{GRID} {coordinates}");
            zattrs.insert("coordinates".to_owned(), text.into());
        }
        zattrs.into()
    }
}

fn push_front(fields: &mut Map<String, Value>, name: &str, value: Value) {
    if let Some(Value::Array(list)) = fields.get_mut(name) {
        list.insert(0, value);
    }
}

/// Returns the fill value of sparse tiles: nodata, or null for zero. xarray masks any fill value, so a zero that is
/// not nodata must be null.
fn fill_value(header: &Header) -> Value {
    let Some(nodata) = header.nodata.filter(|&nodata| header.dtype.holds(nodata)) else {
        return Value::Null;
    };
    let rounded = header.dtype.rounded(nodata).as_f64();
    match header.dtype {
        DataType::F32 | DataType::F64 => float(rounded),
        DataType::C64 | DataType::C128 => json!([float(rounded), 0.0]),
        // The type holds it, so it is an integer of 64 bits.
        _ => nodata
            .as_integer()
            .map_or(Value::Null, |integer| match i64::try_from(integer) {
                Ok(signed) => json!(signed),
                Err(_) => json!(u64::try_from(integer).ok()),
            }),
    }
}

/// See the [fill value encoding](https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html#fill-value-encoding).
fn float(value: f64) -> Value {
    if value.is_nan() {
        json!("NaN")
    } else if value.is_infinite() {
        json!(if value > 0.0 { "Infinity" } else { "-Infinity" })
    } else {
        json!(value)
    }
}

/// Returns the attributes of scale, offset, unit and names of bands. If all bands agree, scale and offset are the CF
/// attributes that readers apply; otherwise they are lists under other names, which readers ignore.
fn described(bands: &[BandProfile]) -> Map<String, Value> {
    let mut said = Map::new();
    let Some(first) = bands.first() else {
        return said;
    };
    let alike = |get: fn(&BandProfile) -> f64| {
        bands
            .iter()
            .all(|band| get(band).to_bits() == get(first).to_bits())
    };
    let scale = |band: &BandProfile| band.scale.unwrap_or(1.0);
    let offset = |band: &BandProfile| band.offset.unwrap_or(0.0);
    let states = bands
        .iter()
        .any(|band| scale(band) != 1.0 || offset(band) != 0.0);
    if states && alike(scale) && alike(offset) {
        said.insert("scale_factor".to_owned(), scale(first).into());
        said.insert("add_offset".to_owned(), offset(first).into());
    } else if states {
        said.insert("scales".to_owned(), bands.iter().map(scale).collect());
        said.insert("offsets".to_owned(), bands.iter().map(offset).collect());
    }
    if let Some(unit) = &first.unit
        && bands.iter().all(|band| band.unit.as_ref() == Some(unit))
    {
        said.insert("units".to_owned(), unit.as_str().into());
    }
    let names: Vec<&str> = bands
        .iter()
        .map(|band| band.description.as_deref().unwrap_or(""))
        .collect();
    match names.as_slice() {
        [name] if !name.is_empty() => {
            said.insert("long_name".to_owned(), (*name).into());
        }
        names if names.iter().any(|name| !name.is_empty()) => {
            said.insert("long_name".to_owned(), json!(names));
        }
        _ => {}
    }
    said
}

/// Returns the attributes from which rioxarray reads the grid.
fn grid(header: &Header, transform: Option<GeoTransform>) -> Value {
    let mut said = Map::new();
    said.insert("_ARRAY_DIMENSIONS".to_owned(), json!([]));
    if let Some(crs) = &header.crs {
        // rioxarray accepts an EPSG code in place of WKT.
        said.insert(GRID.to_owned(), crs.to_string().into());
        match crs {
            Crs::Epsg(code) => said.insert("epsg".to_owned(), (*code).into()),
            Crs::Wkt(text) => said.insert("crs_wkt".to_owned(), text.as_str().into()),
        };
    }
    if let Some(GeoTransform(numbers)) = transform {
        let numbers = numbers.map(|number| number.to_string());
        said.insert("GeoTransform".to_owned(), numbers.join(" ").into());
    }
    said.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_id_is_one_segment_that_is_no_metadata() {
        for (id, expected) in [
            ("S2A_56JNS", "S2A_56JNS"),
            ("a/b", "a%2Fb"),
            ("..", "%2E."),
            (".zarray", "%2Ezarray"),
            ("100%", "100%25"),
            ("", "%"),
        ] {
            assert_eq!(segment(id), expected);
        }
        assert_eq!(
            (name_of("x"), name_of("red")),
            ("x_".to_owned(), "red".to_owned())
        );
    }

    #[test]
    fn a_fill_value_is_spelled_as_zarr_wants_it() {
        let fill = |dtype, nodata| {
            let mut header = Header::new(dtype, Vec::new());
            header.nodata = nodata;
            fill_value(&header)
        };
        assert_eq!(fill(DataType::F32, Some(f64::NAN.into())), json!("NaN"));
        assert_eq!(
            fill(DataType::F64, Some(f64::NEG_INFINITY.into())),
            json!("-Infinity")
        );
        assert_eq!(fill(DataType::I16, Some((-999.0).into())), json!(-999));
        assert_eq!(fill(DataType::U8, Some((-999.0).into())), Value::Null);
        for integer in [
            i64::MAX.into(),
            crate::raster::Number::from((1_i64 << 53) + 1),
        ] {
            assert_eq!(
                fill(DataType::I64, Some(integer)).to_string(),
                integer.to_string()
            );
        }
        assert_eq!(fill(DataType::U64, Some(u64::MAX.into())), json!(u64::MAX));
        assert_eq!(fill(DataType::U8, None), Value::Null);
        assert_eq!(fill(DataType::C64, Some(0.5.into())), json!([0.5, 0.0]));
    }
}
