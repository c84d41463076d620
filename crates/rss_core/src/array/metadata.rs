//! The metadata of an array: `zarr.json` of Zarr v3, `.zarray` of v2.
//!
//! [Array metadata](https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html#array-metadata).

use serde_json::{Value, json};

use super::{
    codec::Chain,
    extension::{self, Extension, Members, lengths},
    half,
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
    /// Whether samples are stored as `float16`; then `dtype` is `float32`.
    pub(crate) is_half: bool,
    /// The chunk shape of the metadata, which is the shape of one object: a shard, where there are shards.
    pub(crate) grid: Vec<u64>,
    pub(crate) keys: Keys,
    /// The fill value's bytes as they are stored, little-endian.
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

    /// Reads the `chunk_key_encoding` of `zarr.json`.
    pub(super) fn parse(document: &Value) -> Result<Self> {
        let what = "chunk_key_encoding";
        let encoding = Extension::parse(
            document.get(what).unwrap_or(&Value::Null),
            "`chunk_key_encoding`",
        )?;
        let (has_prefix, usual) = match encoding.name {
            "default" => (true, "/"),
            "v2" => (false, "."),
            other => return Err(unsupported(format!("chunk key encoding `{other}`"))),
        };
        Ok(Self {
            has_prefix,
            separator: separator(encoding.configuration.get("separator"), usual)?,
        })
    }

    /// Reads the `dimension_separator` of `.zarray`.
    pub(super) fn parse_v2(document: &Value) -> Result<Self> {
        let separator = separator(document.get("dimension_separator"), ".")?;
        Ok(Self {
            has_prefix: false,
            separator,
        })
    }
}

/// Reads a separator of chunk keys, of which there are two.
fn separator(value: Option<&Value>, usual: &str) -> Result<String> {
    match value {
        None | Some(Value::Null) => Ok(usual.to_owned()),
        Some(Value::String(text)) if text == "/" || text == "." => Ok(text.clone()),
        Some(other) => Err(corrupt(format!(
            "chunk key separator {other}, expected \"/\" or \".\""
        ))),
    }
}

fn corrupt(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, what.into())
}

impl Metadata {
    /// Makes the metadata of a new array.
    pub(crate) fn new(
        shape: Vec<u64>,
        stored: Stored,
        grid: Vec<u64>,
        chain: Chain,
        fill: Number,
        dimensions: Vec<String>,
        attributes: Members,
    ) -> Self {
        let Stored { dtype, is_half, .. } = stored;
        let fill_bytes = sample_bytes(dtype, fill);
        Self {
            chain,
            shape,
            dtype,
            is_half,
            grid,
            keys: Keys {
                has_prefix: true,
                separator: "/".to_owned(),
            },
            fill: match is_half {
                true => half::narrow(&fill_bytes),
                false => fill_bytes,
            },
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
            "data_type": if self.is_half { "float16" } else { self.dtype.name() },
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
        extension::check_members(document, KNOWN)?;
        check_transformers(document.get("storage_transformers"))?;
        let shape = shape_of(document)?;
        let rank = shape.len();
        let stored = Stored::parse(document.get("data_type").unwrap_or(&Value::Null))?;
        let fill = document
            .get("fill_value")
            .ok_or_else(|| corrupt("no `fill_value`"))?;
        let (fill, fill_number) = stored.fill(fill, Form::V3)?;
        let codecs = document.get("codecs").unwrap_or(&Value::Null);
        Ok(Self {
            chain: Chain::parse(codecs, rank, stored.size())?,
            grid: grid_of(document, rank)?,
            keys: Keys::parse(document)?,
            fill,
            fill_number,
            dimensions: names_of(document, rank)?,
            attributes: attributes_of(document.get("attributes"))?,
            shape,
            dtype: stored.dtype,
            is_half: stored.is_half,
        })
    }

    /// Reads `.zarray`, and `.zattrs` where there is one.
    pub(crate) fn parse_v2(document: &Value, attributes: Option<Value>) -> Result<Self> {
        if document.get("zarr_format").and_then(Value::as_u64) != Some(2) {
            return Err(corrupt("`zarr_format` of .zarray is not 2"));
        }
        let shape = shape_of(document)?;
        let rank = shape.len();
        let (stored, big_endian) = Stored::parse_v2(document.get("dtype"))?;
        let filters = filters_of(document)?;
        let (fill, fill_number) = match document.get("fill_value") {
            // In v2 null means that samples never written are undefined; they are read as 0.
            None | Some(Value::Null) => (vec![0; stored.size()], Number::ZERO),
            Some(value) => stored.fill(value, Form::V2)?,
        };
        let compressor = document.get("compressor").unwrap_or(&Value::Null);
        let attributes = attributes_of(attributes.as_ref())?;
        Ok(Self {
            chain: Chain::of_v2(
                filters,
                compressor,
                big_endian,
                is_fortran(document)?,
                rank,
                stored.size(),
            )?,
            grid: grid_of_v2(document, rank)?,
            keys: Keys::parse_v2(document)?,
            fill,
            fill_number,
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
            dtype: stored.dtype,
            is_half: stored.is_half,
            attributes,
        })
    }

    /// Returns the fill value's bytes in the dtype that is read.
    pub(super) fn fill_read(&self) -> Vec<u8> {
        match self.is_half {
            true => half::widen(&self.fill),
            false => self.fill.clone(),
        }
    }

    /// Returns the bytes of a sample as it is stored.
    pub(super) fn stored_size(&self) -> usize {
        match self.is_half {
            true => 2,
            false => self.dtype.size(),
        }
    }
}

/// The members of an array's `zarr.json`.
const KNOWN: &[&str] = &[
    "zarr_format",
    "node_type",
    "shape",
    "data_type",
    "chunk_grid",
    "chunk_key_encoding",
    "fill_value",
    "codecs",
    "attributes",
    "storage_transformers",
    "dimension_names",
];

/// Refuses [storage transformers](https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html#storage-transformers),
/// of which none is known.
fn check_transformers(value: Option<&Value>) -> Result<()> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Ok(());
    };
    let transformers = extension::list(value, "storage_transformers")?;
    match transformers.iter().find(|one| !one.is_optional) {
        None => Ok(()),
        Some(one) => Err(unsupported(format!("storage transformer `{}`", one.name))),
    }
}

/// Reads the chunk shape of `zarr.json`.
pub(super) fn grid_of(document: &Value, rank: usize) -> Result<Vec<u64>> {
    let grid = document.get("chunk_grid").unwrap_or(&Value::Null);
    let grid = Extension::parse(grid, "`chunk_grid`")?;
    match grid.name {
        "regular" => grid.lengths("chunk_shape", rank),
        other => Err(unsupported(format!("chunk grid `{other}`"))),
    }
}

/// Reads the chunk shape of `.zarray`.
pub(super) fn grid_of_v2(document: &Value, rank: usize) -> Result<Vec<u64>> {
    lengths(document.get("chunks"), rank)
        .filter(|grid| !grid.contains(&0))
        .ok_or_else(|| corrupt(format!("`chunks` is not {rank} lengths")))
}

/// Returns the filters of `.zarray`.
pub(super) fn filters_of(document: &Value) -> Result<&[Value]> {
    match document.get("filters") {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(filters)) => Ok(filters),
        Some(_) => Err(corrupt("`filters` is not a list")),
    }
}

fn is_fortran(document: &Value) -> Result<bool> {
    match document.get("order").and_then(Value::as_str) {
        None | Some("C") => Ok(false),
        Some("F") => Ok(true),
        Some(other) => Err(corrupt(format!("order `{other}`, expected C or F"))),
    }
}

fn attributes_of(value: Option<&Value>) -> Result<Members> {
    match value {
        None | Some(Value::Null) => Ok(Members::new()),
        Some(Value::Object(attributes)) => Ok(attributes.clone()),
        Some(_) => Err(corrupt("attributes that are no JSON object")),
    }
}

fn unsupported(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, what.into())
}

pub(super) fn shape_of(document: &Value) -> Result<Vec<u64>> {
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

fn names_of(document: &Value, rank: usize) -> Result<Vec<Option<String>>> {
    let names: Option<Vec<Option<String>>> = match document.get("dimension_names") {
        None | Some(Value::Null) => return Ok(vec![None; rank]),
        Some(Value::Array(names)) if names.len() == rank => {
            let names = names.iter().map(|name| match name {
                Value::Null => Some(None),
                Value::String(name) => Some(Some(name.clone())),
                _ => None,
            });
            names.collect()
        }
        Some(_) => None,
    };
    names.ok_or_else(|| corrupt(format!("`dimension_names` is not {rank} names")))
}

/// The type of stored samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The type that they are read as.
    dtype: DataType,
    /// Whether they are stored as `float16`.
    is_half: bool,
    is_bool: bool,
}

/// The version whose forms of fill values hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    V2,
    V3,
}

impl Stored {
    pub(super) fn new(dtype: DataType, is_half: bool) -> Self {
        Self {
            dtype,
            is_half,
            is_bool: false,
        }
    }

    /// Reads the `data_type` of `zarr.json`.
    fn parse(value: &Value) -> Result<Self> {
        let unknown = || unsupported(format!("dtype {value}"));
        let name = Extension::parse(value, "`data_type`")
            .map_err(|_| unknown())?
            .name;
        Ok(match name {
            "bool" => Self {
                is_bool: true,
                ..Self::new(DataType::U8, false)
            },
            "float16" => Self::new(DataType::F32, true),
            name => Self::new(name.parse().map_err(|_| unknown())?, false),
        })
    }

    /// Reads the `dtype` of `.zarray`: the type, and whether samples are big-endian.
    fn parse_v2(value: Option<&Value>) -> Result<(Self, bool)> {
        let unknown = || unsupported(format!("dtype {}", value.unwrap_or(&Value::Null)));
        let text = value.and_then(Value::as_str).ok_or_else(unknown)?;
        let (order, name) = text.split_at_checked(1).ok_or_else(unknown)?;
        let dtype = match name {
            "b1" | "u1" => DataType::U8,
            "i1" => DataType::I8,
            "u2" => DataType::U16,
            "i2" => DataType::I16,
            "u4" => DataType::U32,
            "i4" => DataType::I32,
            "u8" => DataType::U64,
            "i8" => DataType::I64,
            "f2" | "f4" => DataType::F32,
            "f8" => DataType::F64,
            "c8" => DataType::C64,
            "c16" => DataType::C128,
            _ => return Err(unknown()),
        };
        if !matches!(order, "<" | ">" | "|") {
            return Err(unknown());
        }
        let stored = Self {
            is_bool: name == "b1",
            ..Self::new(dtype, name == "f2")
        };
        Ok((stored, order == ">"))
    }

    /// Returns the bytes of a sample.
    pub(super) fn size(self) -> usize {
        match self.is_half {
            true => 2,
            false => self.dtype.size(),
        }
    }

    fn name(self) -> &'static str {
        match (self.is_bool, self.is_half) {
            (true, _) => "bool",
            (_, true) => "float16",
            _ => self.dtype.name(),
        }
    }

    /// Reads a [fill value](https://zarr-specs.readthedocs.io/en/latest/v3/data-types/index.html): its bytes, and as a
    /// number; of a complex one its real part.
    fn fill(self, value: &Value, form: Form) -> Result<(Vec<u8>, Number)> {
        let parsed = match self.dtype {
            _ if self.is_bool => fill_of_bool(value, form),
            DataType::F32 | DataType::F64 => fill_of_float(value, self.size(), form),
            DataType::C64 | DataType::C128 => {
                let half = self.size() / 2;
                match (value, form) {
                    (Value::Array(parts), _) => match parts.as_slice() {
                        [re, im] => fill_of_float(re, half, form)
                            .zip(fill_of_float(im, half, form))
                            .map(|((re, number), (im, _))| ([re, im].concat(), number)),
                        _ => None,
                    },
                    (Value::Number(_), Form::V2) => fill_of_float(value, half, form)
                        .map(|(re, number)| ([re, vec![0; half]].concat(), number)),
                    _ => None,
                }
            }
            dtype => fill_of_integer(value, dtype),
        };
        parsed.ok_or_else(|| {
            corrupt(format!(
                "fill value {value} is not a value of {}",
                self.name()
            ))
        })
    }
}

fn fill_of_bool(value: &Value, form: Form) -> Option<(Vec<u8>, Number)> {
    let truth = match (value, form) {
        (Value::Bool(truth), _) => *truth,
        (Value::Number(number), Form::V2) => match number.as_f64() {
            Some(0.0) => false,
            Some(1.0) => true,
            _ => return None,
        },
        _ => return None,
    };
    Some((vec![u8::from(truth)], Number::from(u8::from(truth))))
}

/// Reads an integer: digits, or a float that is whole and exact, as some writers have it.
fn fill_of_integer(value: &Value, dtype: DataType) -> Option<(Vec<u8>, Number)> {
    /// From here on a float is not exact: it may stand for digits that were rounded.
    const INEXACT: f64 = 9_007_199_254_740_992.0;
    let number = number_of(value)?;
    let is_digits = value.is_u64() || value.is_i64();
    let holds = dtype.holds(number) && (is_digits || number.as_f64().abs() < INEXACT);
    // A negative zero is a float's.
    let number = if number.as_f64() == 0.0 {
        Number::ZERO
    } else {
        number
    };
    holds.then(|| (sample_bytes(dtype, number), number))
}

/// Reads a float of `size` bytes: a number, `NaN`, `Infinity`, `-Infinity`, or in v3 its bits in hexadecimal.
fn fill_of_float(value: &Value, size: usize, form: Form) -> Option<(Vec<u8>, Number)> {
    let number = match value {
        Value::Number(number) => number.as_f64()?,
        Value::String(text) => match text.as_str() {
            "NaN" => f64::NAN,
            "Infinity" => f64::INFINITY,
            "-Infinity" => f64::NEG_INFINITY,
            text => {
                let digits = text.strip_prefix("0x").filter(|_| form == Form::V3)?;
                let is_whole =
                    digits.len() == 2 * size && digits.bytes().all(|b| b.is_ascii_hexdigit());
                let bits = u64::from_str_radix(digits, 16).ok().filter(|_| is_whole)?;
                let bytes = bits.to_le_bytes()[..size].to_vec();
                return Some((bytes.clone(), float_of(&bytes)?));
            }
        },
        _ => return None,
    };
    #[expect(clippy::cast_possible_truncation, reason = "rounding is intended")]
    let bytes = match size {
        2 => half::narrowed(number as f32).to_le_bytes().to_vec(),
        4 => (number as f32).to_le_bytes().to_vec(),
        _ => number.to_le_bytes().to_vec(),
    };
    let number = float_of(&bytes)?;
    Some((bytes, number))
}

/// Returns the number of a float's bytes.
fn float_of(bytes: &[u8]) -> Option<Number> {
    Some(match bytes.len() {
        2 => half::widened(u16::from_le_bytes(bytes.try_into().ok()?)).into(),
        4 => f32::from_le_bytes(bytes.try_into().ok()?).into(),
        _ => f64::from_le_bytes(bytes.try_into().ok()?).into(),
    })
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

/// Returns the bytes of a number as a sample; of a complex one the imaginary part is 0.
fn sample_bytes(dtype: DataType, number: Number) -> Vec<u8> {
    use crate::raster::Sample;
    fn bytes<T: Sample>(number: Number) -> Vec<u8> {
        let mut bytes = vec![0; T::DTYPE.size()];
        let sample = T::exact(number).unwrap_or(T::of_number(0.0));
        T::put_le([sample].iter(), &mut bytes);
        bytes
    }
    crate::raster::with_type!(dtype, T => bytes::<T>(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(dtype: &Value, fill: &Value) -> Value {
        json!({
            "zarr_format": 3, "node_type": "array", "shape": [2, 2], "data_type": dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 2]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": fill,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        })
    }

    #[test]
    fn fill_values_have_the_bits_that_the_specification_says() {
        // numpy.array(value, dtype).tobytes(), or the hexadecimal bits themselves.
        for (dtype, fill, bytes) in [
            ("bool", json!(true), vec![1]),
            ("uint8", json!(255), vec![255]),
            (
                "int64",
                json!((1_i64 << 53) + 1),
                ((1_i64 << 53) + 1).to_le_bytes().to_vec(),
            ),
            ("int64", json!(i64::MIN), i64::MIN.to_le_bytes().to_vec()),
            ("uint64", json!(u64::MAX), u64::MAX.to_le_bytes().to_vec()),
            ("int16", json!(-999.0), (-999_i16).to_le_bytes().to_vec()),
            ("float16", json!("0x7e01"), vec![0x01, 0x7e]),
            ("float16", json!(0.5), vec![0x00, 0x38]),
            ("float16", json!("-Infinity"), vec![0x00, 0xfc]),
            ("float32", json!("NaN"), vec![0, 0, 0xc0, 0x7f]),
            ("float32", json!("0x7f800001"), vec![1, 0, 0x80, 0x7f]),
            ("float32", json!(0.1), 0.1_f32.to_le_bytes().to_vec()),
            (
                "float64",
                json!("0xfff8000000000001"),
                vec![1, 0, 0, 0, 0, 0, 0xf8, 0xff],
            ),
            (
                "float64",
                json!("Infinity"),
                f64::INFINITY.to_le_bytes().to_vec(),
            ),
            (
                "complex64",
                json!(["NaN", "0x3f800000"]),
                vec![0, 0, 0xc0, 0x7f, 0, 0, 0x80, 0x3f],
            ),
            (
                "complex128",
                json!([1, -1.0]),
                [1.0_f64.to_le_bytes(), (-1.0_f64).to_le_bytes()].concat(),
            ),
        ] {
            let parsed = Metadata::parse(&document(&json!(dtype), &fill)).unwrap();
            assert_eq!(parsed.fill, bytes, "{dtype} {fill}");
            let named = json!({"name": dtype});
            assert_eq!(
                Metadata::parse(&document(&named, &fill)).unwrap().fill,
                bytes
            );
        }
    }

    #[test]
    fn a_fill_value_of_another_form_is_an_error() {
        let rounded: Value = serde_json::from_str("-9223372036854775809").unwrap();
        for (dtype, fill) in [
            ("bool", json!(1)),
            ("bool", json!("true")),
            ("uint8", json!(256)),
            ("uint8", json!(-1)),
            ("int16", json!(true)),
            ("int16", json!(1.5)),
            ("int16", json!("NaN")),
            ("int64", json!(u64::MAX)),
            ("int64", rounded),
            ("int64", json!(9_007_199_254_740_993.0)),
            ("float32", json!("nan")),
            ("float32", json!("0x7fc0")),
            ("float32", json!("0x+fc00000")),
            ("float32", json!("7fc00000")),
            ("float64", json!("0x7fc00000")),
            ("float64", json!(null)),
            ("float64", json!(false)),
            ("float64", json!([1.0, 0.0])),
            ("complex64", json!(0)),
            ("complex64", json!([1.0])),
        ] {
            let err = Metadata::parse(&document(&json!(dtype), &fill)).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Corrupt, "{dtype} {fill}");
            assert!(err.message().contains(dtype), "{err}");
        }
    }

    #[test]
    fn what_must_be_understood_and_is_not_is_refused_by_name() {
        let with = |member: &str, value: Value| {
            let mut document = document(&json!("int16"), &json!(-1));
            document[member] = value;
            Metadata::parse(&document)
        };
        let unknown = |rest: Value| {
            let mut extension = json!({"name": "odd", "configuration": {}});
            if let (Value::Object(extension), Value::Object(rest)) = (&mut extension, rest) {
                extension.extend(rest);
            }
            extension
        };
        let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
        for must in [json!({}), json!({"must_understand": true})] {
            for (member, value) in [
                ("odd", unknown(must.clone())),
                ("data_type", unknown(must.clone())),
                ("chunk_grid", unknown(must.clone())),
                ("chunk_key_encoding", unknown(must.clone())),
                ("codecs", json!([bytes, unknown(must.clone())])),
                ("codecs", json!([unknown(must.clone()), bytes])),
                ("storage_transformers", json!([unknown(must.clone())])),
                ("storage_transformers", json!(["odd"])),
            ] {
                let err = with(member, value).unwrap_err();
                assert_eq!(err.kind(), ErrorKind::Unsupported, "{member}: {err}");
                assert!(err.message().contains("odd"), "{member}: {err}");
            }
        }
        let optional = unknown(json!({"must_understand": false}));
        for (member, value) in [
            ("odd", optional.clone()),
            ("codecs", json!([bytes, optional])),
            ("codecs", json!([optional, bytes])),
            ("storage_transformers", json!([optional])),
            ("storage_transformers", json!([])),
        ] {
            with(member, value).unwrap();
        }
        // No samples can be found without knowing these.
        for member in ["data_type", "chunk_grid", "chunk_key_encoding"] {
            assert!(with(member, optional.clone()).is_err(), "{member}");
        }
        for value in [json!("odd"), json!(7), json!(null)] {
            assert!(with("odd", value).is_err());
        }
        for separator in [json!("-"), json!(""), json!(1), json!("//")] {
            for name in ["default", "v2"] {
                let keys = json!({"name": name, "configuration": {"separator": separator}});
                let err = with("chunk_key_encoding", keys).unwrap_err();
                assert!(err.message().contains("expected \"/\" or \".\""), "{err}");
            }
        }
    }
}
