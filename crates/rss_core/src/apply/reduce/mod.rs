//! Reducing a stack over time: one image, pixel by pixel, from the valid samples.
//!
//! A sample is valid if it is not NaN and not equal to nodata. A pixel without valid samples is nodata in the
//! result. Rows are processed in parallel by rayon, in the pool of the calling thread: that of the
//! [`Session`](crate::Session) if it is called there.

mod geomedian;
mod rank;
mod run;
mod sweep;

use std::{fmt, str::FromStr};

use ndarray::{Array2, Array3, ArrayView3, Axis};

pub use self::geomedian::Geomedian;
pub(super) use self::run::Real;
use self::{
    rank::Rank,
    run::{Valid, number_as, over_rows},
};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::{DataType, Number, Pixels, Sample},
};

/// A percentile, 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Percentile(f64);

impl Percentile {
    /// Checks and wraps a percentile.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if it is not within 0 to 100.
    pub fn new(percent: f64) -> Result<Self> {
        if (0.0..=100.0).contains(&percent) {
            return Ok(Self(percent));
        }
        Err(Error::new(
            ErrorKind::InvalidInput,
            format!("percentile {percent} is not within 0 to 100"),
        ))
    }

    /// Returns it in percent.
    pub fn percent(self) -> f64 {
        self.0
    }
}

/// The reduction of a pixel's valid samples over time.
///
/// | reducer | returns | of |
/// |---|---|---|
/// | `min`, `max`, `first`, `last` | samples of the same type and nodata | any real type |
/// | `median`, `mean`, `sum`, `std`, `p90` | `float32`, NaN without data | `uint8`, `int8`, `uint16`, `int16`, `float32` |
/// | | `float64`, NaN without data | wider types |
/// | `count` | `uint16`, 0 without data | any real type |
///
/// Sums are computed in `float64`. 64-bit integers above 2^53 are rounded if the result is a float.
///
/// ```
/// use rss_core::apply::reduce::Reducer;
///
/// assert_eq!("p90".parse::<Reducer>()?.to_string(), "p90");
/// assert_eq!("median".parse::<Reducer>()?, Reducer::Median);
/// # Ok::<_, rss_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reducer {
    /// The median; of an even number of samples the mean of the two in the middle.
    Median,
    /// The mean.
    Mean,
    /// The minimum.
    Min,
    /// The maximum.
    Max,
    /// The sum; NaN, not 0, without valid samples.
    Sum,
    /// The standard deviation of the population: divided by the count, as numpy's `nanstd`.
    Std,
    /// The number of valid samples.
    Count,
    /// The first valid sample in the order of the stack.
    First,
    /// The last valid sample in the order of the stack.
    Last,
    /// A percentile with linear interpolation, as numpy's `nanpercentile`.
    Percentile(Percentile),
}

impl Reducer {
    /// All reducers without a parameter.
    pub const NAMED: [Self; 9] = [
        Self::Median,
        Self::Mean,
        Self::Min,
        Self::Max,
        Self::Sum,
        Self::Std,
        Self::Count,
        Self::First,
        Self::Last,
    ];

    /// Returns the reducer of a percentile.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if it is not within 0 to 100.
    pub fn percentile(percent: f64) -> Result<Self> {
        Percentile::new(percent).map(Self::Percentile)
    }

    /// Returns the dtype of the result for samples of a dtype.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] for complex samples, which have no order.
    pub fn output(self, samples: DataType) -> Result<DataType> {
        let computed = match samples {
            DataType::U8 | DataType::I8 | DataType::U16 | DataType::I16 | DataType::F32 => {
                DataType::F32
            }
            DataType::U32 | DataType::I32 | DataType::U64 | DataType::I64 | DataType::F64 => {
                DataType::F64
            }
            DataType::C64 | DataType::C128 => return Err(self.refuse(samples)),
        };
        Ok(match self {
            Self::Min | Self::Max | Self::First | Self::Last => samples,
            Self::Count => DataType::U16,
            _ => computed,
        })
    }

    /// Returns the nodata value of the result for samples of a dtype with a nodata value; none if every
    /// pixel has a result.
    pub fn output_nodata(self, samples: DataType, nodata: Option<Number>) -> Option<Number> {
        let is_float = matches!(samples, DataType::F32 | DataType::F64);
        match self {
            Self::Count => None,
            Self::Min | Self::Max | Self::First | Self::Last => nodata
                .filter(|&nodata| samples.holds(nodata))
                .or(is_float.then_some(Number::NAN)),
            _ => Some(Number::NAN),
        }
    }

    fn refuse(self, samples: DataType) -> Error {
        Error::new(
            ErrorKind::Unsupported,
            format!("{self} of {samples} samples, which have no order"),
        )
    }
}

impl fmt::Display for Reducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Median => "median",
            Self::Mean => "mean",
            Self::Min => "min",
            Self::Max => "max",
            Self::Sum => "sum",
            Self::Std => "std",
            Self::Count => "count",
            Self::First => "first",
            Self::Last => "last",
            Self::Percentile(percentile) => return write!(f, "p{}", percentile.0),
        })
    }
}

impl FromStr for Reducer {
    type Err = Error;

    /// Parses a name, or `p` and a percentile such as `p90` or `p2.5`.
    fn from_str(text: &str) -> Result<Self> {
        if let Some(one) = Self::NAMED.into_iter().find(|one| one.to_string() == text) {
            return Ok(one);
        }
        let number = text.strip_prefix('p').filter(|number| {
            // Rust parses `inf` and `nan` as floats, too.
            number.starts_with(|c: char| c.is_ascii_digit())
        });
        if let Some(percent) = number.and_then(|number| number.parse().ok()) {
            return Self::percentile(percent);
        }
        let names = Self::NAMED.map(|one| one.to_string()).join(", ");
        Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "reducer `{}` is not one of {names}, or a percentile such as p90",
                text.escape_debug()
            ),
        ))
    }
}

/// Reduces a stack (time, y, x) to one image (1, y, x), of [`Reducer::output`]'s type.
///
/// Memory: the result, and for each thread 64 columns of all time steps. Time: a
/// sorting network over 64 pixels at once for medians and percentiles of up to 128 time steps, one or two passes
/// over the stack for the other reducers.
///
/// ```
/// use ndarray::array;
/// use rss_core::{Pixels, apply::reduce::{Reducer, reduce}};
///
/// let dates = Pixels::I16(array![[[10, -999]], [[30, -999]], [[-999, 7]]]);
/// let median = reduce(&dates, Some((-999).into()), Reducer::Median)?;
/// assert_eq!(median, Pixels::F32(array![[[20.0, 7.0]]]));
/// # Ok::<_, rss_core::Error>(())
/// ```
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] if the stack has no dates; [`ErrorKind::Unsupported`] for complex samples.
pub fn reduce(stack: &Pixels, nodata: Option<Number>, reducer: Reducer) -> Result<Pixels> {
    match stack {
        Pixels::U8(stack) => reduced(stack.view(), nodata, reducer),
        Pixels::I8(stack) => reduced(stack.view(), nodata, reducer),
        Pixels::U16(stack) => reduced(stack.view(), nodata, reducer),
        Pixels::I16(stack) => reduced(stack.view(), nodata, reducer),
        Pixels::U32(stack) => reduced(stack.view(), nodata, reducer),
        Pixels::I32(stack) => reduced(stack.view(), nodata, reducer),
        Pixels::U64(stack) => reduced(stack.view(), nodata, reducer),
        Pixels::I64(stack) => reduced(stack.view(), nodata, reducer),
        Pixels::F32(stack) => reduced(stack.view(), nodata, reducer),
        Pixels::F64(stack) => reduced(stack.view(), nodata, reducer),
        Pixels::C64(_) | Pixels::C128(_) => Err(reducer.refuse(stack.dtype())),
    }
}

/// Reduces a stack (time, y, x) of `f32` with NaN as nodata to one image (y, x): as [`reduce`],
/// for any view of the stack. Counts are returned as floats.
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] if the stack has no dates.
pub fn reduce_f32(stack: ArrayView3<'_, f32>, reducer: Reducer) -> Result<Array2<f32>> {
    reduced_as(stack, None, reducer)
}

/// Like [`reduce`], with the result as a type that the caller knows: that of the samples where the reducer keeps it, else
/// their float. Counts are rounded to it.
pub(super) fn reduced_as<T: Real, O: Real>(
    stack: ArrayView3<'_, T>,
    nodata: Option<Number>,
    reducer: Reducer,
) -> Result<Array2<O>> {
    let pixels = reduced(stack, nodata, reducer)?;
    if let Pixels::U16(counts) = &pixels
        && O::DTYPE != DataType::U16
    {
        let counts = counts.index_axis(Axis(0), 0);
        return Ok(counts.mapv(|count| O::of_number(f64::from(count))));
    }
    match pixels.view::<O>() {
        Some(found) => Ok(found.index_axis(Axis(0), 0).to_owned()),
        None => Err(reducer.refuse(pixels.dtype())),
    }
}

/// Returns samples as the same type by another name.
pub(super) fn reduce_same<T: Real, O: Real>(samples: Array3<T>) -> Result<Array3<O>> {
    let pixels = T::wrap(samples);
    match pixels.view::<O>() {
        Some(found) => Ok(found.to_owned()),
        None => Err(Reducer::First.refuse(pixels.dtype())),
    }
}

/// Returns a median or percentile of sorted numbers, which `at` returns by index; none for other
/// reducers, NaN for no numbers.
pub(super) fn of_sorted(reducer: Reducer, count: usize, at: impl Fn(usize) -> f64) -> Option<f64> {
    match reducer {
        Reducer::Median => Some(rank::of_sorted(None, count, at)),
        Reducer::Percentile(percentile) => Some(rank::of_sorted(Some(percentile), count, at)),
        _ => None,
    }
}

fn reduced<T: Real>(
    stack: ArrayView3<'_, T>,
    nodata: Option<Number>,
    reducer: Reducer,
) -> Result<Pixels> {
    if stack.dim().0 == 0 {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("{reducer} of no time steps; expected at least one"),
        ));
    }
    let valid = Valid::new(nodata);
    let fill = reducer.output_nodata(T::DTYPE, nodata);
    let fill = fill.and_then(T::exact).unwrap_or(T::of_number(0.0));
    let wide = number_as::<T::Wide>(f64::NAN);
    let dates = stack.dim().0;
    let one = |image: Array2<T>| T::wrap(image.insert_axis(Axis(0)));
    let wide_one = |image: Array2<T::Wide>| T::Wide::wrap(image.insert_axis(Axis(0)));
    Ok(match reducer {
        Reducer::Median => {
            let rank = Rank::median(dates);
            wide_one(over_rows(
                stack,
                wide,
                || rank.room(),
                |rows, out, room| {
                    rank.of_rows(rows, valid, out, room);
                },
            ))
        }
        Reducer::Percentile(percentile) => {
            let rank = Rank::percentile(dates, percentile);
            wide_one(over_rows(
                stack,
                wide,
                || rank.room(),
                |rows, out, room| {
                    rank.of_rows(rows, valid, out, room);
                },
            ))
        }
        Reducer::Mean => wide_one(over_rows(
            stack,
            wide,
            || (),
            |rows, out, ()| {
                sweep::mean(rows, valid, out);
            },
        )),
        Reducer::Sum => wide_one(over_rows(
            stack,
            wide,
            || (),
            |rows, out, ()| {
                sweep::sum(rows, valid, out);
            },
        )),
        Reducer::Std => wide_one(over_rows(
            stack,
            wide,
            || (),
            |rows, out, ()| {
                sweep::std(rows, valid, out);
            },
        )),
        Reducer::Count => {
            let counts = over_rows(
                stack,
                0_u16,
                || (),
                |rows, out, ()| {
                    sweep::count(rows, valid, out);
                },
            );
            u16::wrap(counts.insert_axis(Axis(0)))
        }
        Reducer::Min => one(over_rows(
            stack,
            fill,
            || (),
            |rows, out, ()| {
                sweep::best(rows, valid, fill, out, |a, b| if b < a { b } else { a });
            },
        )),
        Reducer::Max => one(over_rows(
            stack,
            fill,
            || (),
            |rows, out, ()| {
                sweep::best(rows, valid, fill, out, |a, b| if b > a { b } else { a });
            },
        )),
        Reducer::First => one(over_rows(
            stack,
            fill,
            || (),
            |rows, out, ()| {
                sweep::first(rows.iter().copied(), valid, fill, out);
            },
        )),
        Reducer::Last => one(over_rows(
            stack,
            fill,
            || (),
            |rows, out, ()| {
                sweep::first(rows.iter().rev().copied(), valid, fill, out);
            },
        )),
    })
}

#[cfg(test)]
mod tests;
