//! The metadata of an array: `zarr.json` of Zarr v3, `.zarray` of v2.
//!
//! [Array metadata](https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html#array-metadata).

use serde_json::{Value, json};

use super::{
    codec::Chain,
    extension::{Extension, Members, lengths},
};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::{DataType, Number},
};

/// The most axes of an array.
const MAX_RANK: usize = 32;

/// The metadata of an array.
#[derive(Clone, Debug)]
pub(crate) struct Metadata {
    pub(crate) shape: Vec<u64>,
    pub(crate) dtype: DataType,
    /// The chunk shape of the metadata, which is the shape of one object: a shard, where there are shards.
    pub(crate) grid: Vec<u64>,
    pub(crate) keys: Keys,
    /// The fill value's bytes, little-endian.
    pub(crate) fill: Vec<u8>,
    /// The fill value as a number; of a complex one its real part.
    pub(crate) fill_number: Number,
    pub(crate) chain: Chain,
    pub(crate) dimensions: Vec<Option<String>>,
    pub(crate) attributes: Members,
}

/// The chunk key encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    has_prefix: bool,
    separator: String,
}

impl Keys {
    /// Returns the key of a chunk, below the array's.
    pub(crate) fn key(&self, chunk: &[u64]) -> String {
        let numbers: Vec<String> = chunk.iter().map(u64::to_string).collect();
        let name = numbers.join(&self.separator);
        match (self.has_prefix, name.is_empty()) {
            (true, true) => "c".to_owned(),
            (true, false) => format!("c{}{name}", self.separator),
            (false, true) => "0".to_owned(),
            (false, false) => name,
        }
    }
}

fn corrupt(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, what.into())
}

impl Metadata {
    /// Makes the metadata of a new array.
    pub(crate) fn new(
        shape: Vec<u64>,
        dtype: DataType,
        grid: Vec<u64>,
        chain: Chain,
        fill: Number,
        dimensions: Vec<String>,
        attributes: Members,
    ) -> Self {
        Self {
            chain,
            shape,
            dtype,
            grid,
            keys: Keys {
                has_prefix: true,
                separator: "/".to_owned(),
            },
            fill: sample_bytes(dtype, [fill, Number::ZERO]),
            fill_number: fill,
            dimensions: dimensions.into_iter().map(Some).collect(),
            attributes,
        }
    }

    /// Returns the `zarr.json` of a new array.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "zarr_format": 3,
            "node_type": "array",
            "shape": self.shape,
            "data_type": self.dtype.name(),
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": self.grid}},
            "chunk_key_encoding": {
                "name": "default", "configuration": {"separator": self.keys.separator}
            },
            "fill_value": fill_json(self.dtype, self.fill_number),
            "codecs": self.chain.to_json(),
            "attributes": self.attributes,
            "dimension_names": self.dimensions,
        })
    }

    /// Reads `zarr.json`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if it is a group; [`ErrorKind::Corrupt`] or
    /// [`ErrorKind::Unsupported`] if it is an array that cannot be read.
    pub(crate) fn parse(document: &Value) -> Result<Self> {
        if document.get("zarr_format").and_then(Value::as_u64) != Some(3) {
            return Err(corrupt("`zarr_format` is not 3"));
        }
        match document.get("node_type").and_then(Value::as_str) {
            Some("array") => {}
            Some("group") => {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "a group, expected an array: name one of its arrays",
                ));
            }
            _ => return Err(corrupt("`node_type` is neither array nor group")),
        }
        let shape = shape_of(document)?;
        let rank = shape.len();
        let dtype = dtype_of(document.get("data_type").unwrap_or(&Value::Null))?;
        let grid = Extension::parse(
            document.get("chunk_grid").unwrap_or(&Value::Null),
            "`chunk_grid`",
        )?;
        if grid.name != "regular" {
            return Err(unsupported(format!("chunk grid `{}`", grid.name)));
        }
        let keys = Extension::parse(
            document.get("chunk_key_encoding").unwrap_or(&Value::Null),
            "`chunk_key_encoding`",
        )?;
        let (has_prefix, usual) = match keys.name {
            "default" => (true, "/"),
            "v2" => (false, "."),
            other => return Err(unsupported(format!("chunk key encoding `{other}`"))),
        };
        let fill = document.get("fill_value").unwrap_or(&Value::Null);
        let fill = fill_value(fill, dtype)?;
        Ok(Self {
            chain: Chain::parse(
                document.get("codecs").unwrap_or(&Value::Null),
                rank,
                dtype.size(),
            )?,
            grid: grid.lengths("chunk_shape", rank)?,
            keys: Keys {
                has_prefix,
                separator: keys.text("separator").unwrap_or(usual).to_owned(),
            },
            fill: sample_bytes(dtype, fill),
            fill_number: fill[0],
            dimensions: names_of(document, rank),
            attributes: match document.get("attributes") {
                Some(Value::Object(attributes)) => attributes.clone(),
                _ => Members::new(),
            },
            shape,
            dtype,
        })
    }

    /// Reads `.zarray`, and `.zattrs` where there is one.
    pub(crate) fn parse_v2(document: &Value, attributes: Option<Value>) -> Result<Self> {
        let shape = shape_of(document)?;
        let rank = shape.len();
        let dtype = document.get("dtype").and_then(Value::as_str);
        let (dtype, big_endian) = dtype
            .and_then(|dtype| {
                let (order, name) = dtype.split_at_checked(1)?;
                let dtype = match name {
                    "b1" | "u1" => DataType::U8,
                    "i1" => DataType::I8,
                    "u2" => DataType::U16,
                    "i2" => DataType::I16,
                    "u4" => DataType::U32,
                    "i4" => DataType::I32,
                    "u8" => DataType::U64,
                    "i8" => DataType::I64,
                    "f4" => DataType::F32,
                    "f8" => DataType::F64,
                    "c8" => DataType::C64,
                    "c16" => DataType::C128,
                    _ => return None,
                };
                Some((dtype, order == ">"))
            })
            .ok_or_else(|| {
                let dtype = document.get("dtype").unwrap_or(&Value::Null);
                unsupported(format!("dtype {dtype}"))
            })?;
        if let Some(Value::Array(filters)) = document.get("filters")
            && !filters.is_empty()
        {
            return Err(unsupported("filters of Zarr v2"));
        }
        let grid = lengths(document.get("chunks"), rank)
            .filter(|grid| !grid.contains(&0))
            .ok_or_else(|| corrupt(format!("`chunks` is not {rank} lengths")))?;
        let fill = match document.get("fill_value") {
            // In v2 null means that samples never written are undefined; they are read as 0.
            None | Some(Value::Null) => [Number::ZERO; 2],
            Some(value) => fill_value(value, dtype)?,
        };
        let separator = document.get("dimension_separator").and_then(Value::as_str);
        let fortran = document.get("order").and_then(Value::as_str) == Some("F");
        let none = Value::Null;
        let compressor = document.get("compressor").unwrap_or(&none);
        let attributes = match attributes {
            Some(Value::Object(attributes)) => attributes,
            _ => Members::new(),
        };
        Ok(Self {
            chain: Chain::of_v2(compressor, big_endian, fortran, rank)?,
            grid,
            keys: Keys {
                has_prefix: false,
                separator: separator.unwrap_or(".").to_owned(),
            },
            fill: sample_bytes(dtype, fill),
            fill_number: fill[0],
            // v2 has no dimension names; xarray stores them in this attribute.
            dimensions: match attributes
                .get("_ARRAY_DIMENSIONS")
                .and_then(Value::as_array)
            {
                Some(names) if names.len() == rank => names
                    .iter()
                    .map(|name| name.as_str().map(str::to_owned))
                    .collect(),
                _ => vec![None; rank],
            },
            shape,
            dtype,
            attributes,
        })
    }
}

fn unsupported(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, what.into())
}

fn shape_of(document: &Value) -> Result<Vec<u64>> {
    let rank = match document.get("shape") {
        Some(Value::Array(shape)) if shape.len() <= MAX_RANK => shape.len(),
        _ => {
            return Err(corrupt(format!(
                "`shape` is not a list of at most {MAX_RANK} lengths"
            )));
        }
    };
    lengths(document.get("shape"), rank).ok_or_else(|| corrupt("`shape` is not a list of lengths"))
}

fn names_of(document: &Value, rank: usize) -> Vec<Option<String>> {
    match document.get("dimension_names").and_then(Value::as_array) {
        Some(names) if names.len() == rank => names
            .iter()
            .map(|name| name.as_str().map(str::to_owned))
            .collect(),
        _ => vec![None; rank],
    }
}

fn dtype_of(value: &Value) -> Result<DataType> {
    let known = match value.as_str() {
        Some("bool") => Some(DataType::U8),
        Some(name) => name.parse().ok(),
        None => None,
    };
    known.ok_or_else(|| unsupported(format!("dtype {value}")))
}

/// Reads a fill value: the parts of a complex number, or a number and 0.
fn fill_value(value: &Value, dtype: DataType) -> Result<[Number; 2]> {
    let part = |value: &Value| match value {
        Value::Number(_) => number_of(value),
        Value::Bool(truth) => Some(Number::from(u8::from(*truth))),
        Value::String(text) => match text.as_str() {
            "NaN" => Some(Number::NAN),
            "Infinity" => Some(f64::INFINITY.into()),
            "-Infinity" => Some(f64::NEG_INFINITY.into()),
            other => {
                // Zarr v3 allows the bits of a float in hexadecimal, for NaNs other than the default one.
                let bits = u64::from_str_radix(other.strip_prefix("0x")?, 16).ok()?;
                match dtype {
                    DataType::F32 | DataType::C64 => {
                        Some(f32::from_bits(u32::try_from(bits).ok()?).into())
                    }
                    DataType::F64 | DataType::C128 => Some(f64::from_bits(bits).into()),
                    _ => None,
                }
            }
        },
        _ => None,
    };
    let parts = match (value, dtype) {
        (Value::Array(parts), DataType::C64 | DataType::C128) => match parts.as_slice() {
            [re, im] => part(re).zip(part(im)).map(|(re, im)| [re, im]),
            _ => None,
        },
        _ => part(value).map(|re| [re, Number::ZERO]),
    };
    parts
        .filter(|parts| dtype.holds(parts[0]))
        .ok_or_else(|| corrupt(format!("fill value {value} is not a value of {dtype}")))
}

/// Returns a fill value as JSON, which has no NaN or infinity: Zarr spells them as text.
fn fill_json(dtype: DataType, value: Number) -> Value {
    let float = |value: Number| match value.as_f64() {
        value if value.is_nan() => json!("NaN"),
        f64::INFINITY => json!("Infinity"),
        f64::NEG_INFINITY => json!("-Infinity"),
        value => json!(value),
    };
    match dtype {
        DataType::F32 | DataType::F64 => float(value),
        DataType::C64 | DataType::C128 => json!([float(value), 0.0]),
        _ => json_number(value),
    }
}

/// Returns a number as JSON: an integer with all its digits, NaN and the infinities as null.
pub(crate) fn json_number(value: Number) -> Value {
    let integer = value.as_integer().and_then(|integer| {
        let unsigned = u64::try_from(integer).ok().map(Into::into);
        unsigned.or_else(|| Some(i64::try_from(integer).ok()?.into()))
    });
    integer.map_or_else(|| json!(value.as_f64()), Value::Number)
}

/// Returns the number of a JSON number, an integer with all its digits.
pub(crate) fn number_of(value: &Value) -> Option<Number> {
    let number = value.as_number()?;
    let unsigned = number.as_u64().map(Number::from);
    let integer = unsigned.or_else(|| number.as_i64().map(Number::from));
    integer.or_else(|| number.as_f64().map(Number::from))
}

/// Returns the bytes of a sample.
fn sample_bytes(dtype: DataType, [re, im]: [Number; 2]) -> Vec<u8> {
    use crate::raster::Sample;
    fn bytes<T: Sample>(number: Number) -> Vec<u8> {
        let mut bytes = vec![0; T::DTYPE.size()];
        let sample = T::exact(number).unwrap_or(T::of_number(0.0));
        T::put_le([sample].iter(), &mut bytes);
        bytes
    }
    match dtype {
        DataType::C64 => [bytes::<f32>(re), bytes::<f32>(im)].concat(),
        DataType::C128 => [bytes::<f64>(re), bytes::<f64>(im)].concat(),
        _ => crate::raster::with_type!(dtype, T => bytes::<T>(re)),
    }
}
