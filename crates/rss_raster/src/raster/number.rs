//! One number of any sample type, exact.

use std::{cmp::Ordering, fmt, str::FromStr};

use crate::error::{Error, ErrorKind, Result};

/// A number that a sample can be: any integer of 64 bits, or a float. Nodata and fill values are numbers, because `f64`
/// rounds integers past 2^53.
///
/// Numbers are equal where their values are, whatever they were made from: `5` is `5.0`, `-0.0` is `0`, and NaN is NaN,
/// because a nodata value that is NaN is one nodata value.
///
/// ```
/// use rss_raster::Number;
///
/// let nodata = Number::from((1_i64 << 53) + 1);
/// assert_ne!(nodata, Number::from(1_i64 << 53));
/// assert_eq!(nodata.to_string(), "9007199254740993");
/// assert_eq!(Number::from(-999.0), Number::from(-999));
/// assert_eq!("-999".parse::<Number>()?, Number::from(-999.0));
/// # Ok::<_, rss_raster::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Number(Value);

/// Each number has one form, so that equality is equality of forms.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Value {
    /// Every integer up to [`LARGEST`], given as whatever type.
    Integer(i128),
    /// The bits of every other float. NaN is one.
    Float(u64),
}

/// What an integer's magnitude may be; a float past it stays one. No sample type has larger integers.
const LARGEST: i128 = 1 << 64;

impl Number {
    /// Not a number.
    pub const NAN: Self = Self(Value::Float(f64::NAN.to_bits()));
    /// Zero.
    pub const ZERO: Self = Self(Value::Integer(0));

    /// Returns the float nearest to the number.
    #[expect(clippy::cast_precision_loss, reason = "rounding is the purpose")]
    pub fn as_f64(self) -> f64 {
        match self.0 {
            Value::Integer(integer) => integer as f64,
            Value::Float(bits) => f64::from_bits(bits),
        }
    }

    /// Returns the integer, if the number is one and none of the floats past 2^64.
    pub fn as_integer(self) -> Option<i128> {
        match self.0 {
            Value::Integer(integer) => Some(integer),
            Value::Float(_) => None,
        }
    }

    /// Returns true if the number is NaN.
    pub fn is_nan(self) -> bool {
        self == Self::NAN
    }

    /// Returns true unless the number is NaN or infinite.
    pub fn is_finite(self) -> bool {
        self.as_f64().is_finite()
    }
}

impl From<f64> for Number {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "an integer up to 2^64 is exact as i128, and 2^64 as f64"
    )]
    fn from(float: f64) -> Self {
        let is_integer = float.fract() == 0.0 && float.abs() <= LARGEST as f64;
        match (is_integer, float.is_nan()) {
            (true, _) => Self(Value::Integer(float as i128)),
            (_, true) => Self::NAN,
            _ => Self(Value::Float(float.to_bits())),
        }
    }
}

impl From<f32> for Number {
    fn from(float: f32) -> Self {
        Self::from(f64::from(float))
    }
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl From<$type> for Number {
            fn from(integer: $type) -> Self {
                Self(Value::Integer(i128::from(integer)))
            }
        }
    )*};
}
integers!(u8, i8, u16, i16, u32, i32, u64, i64);

impl PartialEq<f64> for Number {
    fn eq(&self, other: &f64) -> bool {
        *self == Self::from(*other)
    }
}

impl PartialOrd for Number {
    /// Compares by value; NaN is comparable with itself only.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self.0, other.0) {
            (Value::Integer(one), Value::Integer(other)) => Some(one.cmp(&other)),
            _ if self == other => Some(Ordering::Equal),
            // One of them is no integer up to 2^64: rounding the other cannot change which is larger.
            _ => self.as_f64().partial_cmp(&other.as_f64()),
        }
    }
}

/// Writes all digits of an integer, and the fewest digits of a float that are read back as it.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Integer(integer) => integer.fmt(f),
            Value::Float(bits) => f64::from_bits(bits).fmt(f),
        }
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Number {
    type Err = Error;

    /// Reads an integer with all its digits, else a float: `-999`, `18446744073709551615`, `1e20`, `nan`, `-inf`.
    fn from_str(text: &str) -> Result<Self> {
        let integer = text.parse::<i128>().ok();
        if let Some(integer) = integer.filter(|integer| (-LARGEST..=LARGEST).contains(integer)) {
            return Ok(Self(Value::Integer(integer)));
        }
        text.parse::<f64>().map(Self::from).map_err(|_| {
            Error::new(
                ErrorKind::InvalidInput,
                format!("`{text}` is not a number such as -999, 1e20 or nan"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_are_equal_where_their_values_are() {
        for (one, other) in [
            (Number::from(5.0), Number::from(5_u8)),
            (Number::from(-0.0), Number::from(0)),
            (Number::from(f64::NAN), Number::from(-f64::NAN)),
            (Number::from(1_u64 << 63), Number::from(2_f64.powi(63))),
            (Number::from(0.5_f32), Number::from(0.5)),
            ("1e3".parse().unwrap(), Number::from(1000)),
        ] {
            assert_eq!(one, other);
            assert_eq!(HashSet::from([one, other]).len(), 1);
        }
        let different = [
            Number::from((1_i64 << 53) + 1),
            Number::from(1_i64 << 53),
            Number::from(u64::MAX),
            Number::from(2_f64.powi(64)),
            Number::from(2_f64.powi(65)),
            Number::from(f64::INFINITY),
            Number::from(0.1),
            Number::from(0.1_f32),
            Number::NAN,
        ];
        assert_eq!(HashSet::from(different).len(), different.len());
    }

    #[test]
    fn every_digit_of_an_integer_is_kept_as_text() {
        for integer in [i128::from(i64::MIN), i128::from(u64::MAX), (1 << 53) + 1, 0] {
            let number: Number = integer.to_string().parse().unwrap();
            assert_eq!(number.as_integer(), Some(integer));
            assert_eq!(number.to_string(), integer.to_string());
        }
        for float in [
            0.1,
            -3.402_823_466_385_288_6e38,
            1e300,
            f64::INFINITY,
            5e-324,
        ] {
            let number = Number::from(float);
            assert_eq!(number.to_string().parse::<Number>().unwrap(), number);
            assert_eq!(number, float);
        }
        // More digits than any sample has are a float, as in GDAL.
        assert_eq!("99999999999999999999999".parse::<Number>().unwrap(), 1e23);
        assert!("nan".parse::<Number>().unwrap().is_nan());
        let err = "x".parse::<Number>().unwrap_err().to_string();
        assert_eq!(err, "`x` is not a number such as -999, 1e20 or nan");
    }

    #[test]
    fn numbers_are_ordered_by_value() {
        let ordered = [
            Number::from(f64::NEG_INFINITY),
            Number::from(i64::MIN),
            Number::from(-0.5),
            Number::ZERO,
            Number::from(1_i64 << 53),
            Number::from((1_i64 << 53) + 1),
            Number::from(u64::MAX),
            Number::from(1e30),
        ];
        assert!(ordered.is_sorted());
        assert_eq!(Number::NAN.partial_cmp(&Number::ZERO), None);
        assert_eq!(Number::NAN.partial_cmp(&Number::NAN), Some(Ordering::Equal));
    }
}
