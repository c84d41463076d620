//! The sample types a raster can have.

use std::{fmt, str::FromStr};

use super::{Number, private::Sealed, with_type};
use crate::error::{Error, ErrorKind, Result};

/// The dtype of samples, with numpy's names.
///
/// The enum is exhaustive: a new type is meant to break matches that do not handle it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DataType {
    /// Unsigned, 8 bits.
    U8,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 16 bits.
    U16,
    /// Signed, 16 bits.
    I16,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 64 bits.
    I64,
    /// Floating point, 32 bits.
    F32,
    /// Floating point, 64 bits.
    F64,
    /// Complex: two floats of 32 bits. Complex integers are read as this type, as in GDAL.
    C64,
    /// Complex: two floats of 64 bits.
    C128,
}

impl DataType {
    /// Every type, smallest first.
    pub const ALL: [Self; 12] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::U64,
        Self::I64,
        Self::F64,
        Self::C64,
        Self::C128,
    ];

    /// Returns the size of one sample in bytes.
    pub fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::C64 => 8,
            Self::C128 => 16,
        }
    }

    /// Returns true for floats and complex types.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::C64 | Self::C128)
    }

    /// Returns true if the type can represent `value`: floats any value (rounded), integers the integers in their
    /// range.
    pub fn holds(self, value: impl Into<Number>) -> bool {
        with_type!(self, T => T::exact(value.into()).is_some())
    }

    /// Returns a number rounded to this type, if that is a float or two of them; of integers the number as it is.
    #[expect(clippy::cast_possible_truncation, reason = "rounding is intended")]
    pub fn rounded(self, value: impl Into<Number>) -> Number {
        let value = value.into();
        match self {
            Self::F32 | Self::C64 => Number::from(value.as_f64() as f32),
            Self::F64 | Self::C128 => Number::from(value.as_f64()),
            _ => value,
        }
    }

    /// Returns numpy's name, such as `uint16`.
    pub fn name(self) -> &'static str {
        match self {
            Self::U8 => "uint8",
            Self::I8 => "int8",
            Self::U16 => "uint16",
            Self::I16 => "int16",
            Self::U32 => "uint32",
            Self::I32 => "int32",
            Self::U64 => "uint64",
            Self::I64 => "int64",
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::C64 => "complex64",
            Self::C128 => "complex128",
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DataType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|dtype| dtype.name() == text)
            .ok_or_else(|| {
                let names: Vec<_> = Self::ALL.iter().map(|dtype| dtype.name()).collect();
                Error::new(
                    ErrorKind::InvalidInput,
                    format!("data type `{text}` is not one of {}", names.join(", ")),
                )
            })
    }
}
