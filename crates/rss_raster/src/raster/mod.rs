//! Rasters in memory: samples (band, y, x) with their grid.

mod average;
mod canvas;
mod dtype;
mod number;
mod overview;
mod pages;
mod resampling;
mod save;
mod shrink;
pub mod tiff;

use std::io;

use ndarray::{Array3, ArrayView3, ArrayViewMut3};
pub use num_complex::Complex;

pub use self::overview::{check_overview, halved};
pub use self::pages::in_large_pages;
pub use self::save::{ordinary_file, publish, sync_folder};
pub use self::shrink::{LevelPart, Shrink, shrunk};
pub use self::{
    canvas::{Canvas, Rest, Slot, Wanted},
    save::{io_error, temporary},
};
pub use self::{
    dtype::DataType,
    number::Number,
    resampling::Resampling,
    save::{Format, NpyStack, Stretch},
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{GeoBox, Size, Window},
};

/// Samples in (band, y, x) order, in the dtype of the file.
///
/// The enum is exhaustive: a new type is meant to break matches that do not handle it.
#[derive(Clone, Debug, PartialEq)]
pub enum Pixels {
    /// Unsigned, 8 bits.
    U8(Array3<u8>),
    /// Signed, 8 bits.
    I8(Array3<i8>),
    /// Unsigned, 16 bits.
    U16(Array3<u16>),
    /// Signed, 16 bits.
    I16(Array3<i16>),
    /// Unsigned, 32 bits.
    U32(Array3<u32>),
    /// Signed, 32 bits.
    I32(Array3<i32>),
    /// Unsigned, 64 bits.
    U64(Array3<u64>),
    /// Signed, 64 bits.
    I64(Array3<i64>),
    /// Floating point, 32 bits.
    F32(Array3<f32>),
    /// Floating point, 64 bits.
    F64(Array3<f64>),
    /// Complex, two floats of 32 bits.
    C64(Array3<Complex<f32>>),
    /// Complex, two floats of 64 bits.
    C128(Array3<Complex<f64>>),
}

/// Runs `$body` with `$array` bound to the array inside `$pixels`, whatever its type.
macro_rules! each_type {
    ($pixels:expr, $array:ident => $body:expr) => {
        match $pixels {
            Pixels::U8($array) => $body,
            Pixels::I8($array) => $body,
            Pixels::U16($array) => $body,
            Pixels::I16($array) => $body,
            Pixels::U32($array) => $body,
            Pixels::I32($array) => $body,
            Pixels::U64($array) => $body,
            Pixels::I64($array) => $body,
            Pixels::F32($array) => $body,
            Pixels::F64($array) => $body,
            Pixels::C64($array) => $body,
            Pixels::C128($array) => $body,
        }
    };
}

/// Runs `$body` with `$type` the Rust type of the data type `$dtype`.
#[macro_export]
macro_rules! with_type {
    ($dtype:expr, $type:ident => $body:expr) => {
        match $dtype {
            $crate::raster::DataType::U8 => {
                type $type = u8;
                $body
            }
            $crate::raster::DataType::I8 => {
                type $type = i8;
                $body
            }
            $crate::raster::DataType::U16 => {
                type $type = u16;
                $body
            }
            $crate::raster::DataType::I16 => {
                type $type = i16;
                $body
            }
            $crate::raster::DataType::U32 => {
                type $type = u32;
                $body
            }
            $crate::raster::DataType::I32 => {
                type $type = i32;
                $body
            }
            $crate::raster::DataType::U64 => {
                type $type = u64;
                $body
            }
            $crate::raster::DataType::I64 => {
                type $type = i64;
                $body
            }
            $crate::raster::DataType::F32 => {
                type $type = f32;
                $body
            }
            $crate::raster::DataType::F64 => {
                type $type = f64;
                $body
            }
            $crate::raster::DataType::C64 => {
                type $type = num_complex::Complex<f32>;
                $body
            }
            $crate::raster::DataType::C128 => {
                type $type = num_complex::Complex<f64>;
                $body
            }
        }
    };
}
pub use crate::with_type;

/// Samples that are written at once.
const SAMPLES_AT_ONCE: usize = 64 << 10;

impl Pixels {
    /// Creates zeroed pixels of `bands` x `size`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the size in bytes exceeds the address space.
    pub fn zeros(dtype: DataType, bands: usize, size: Size) -> Result<Self> {
        let shape = Self::check_size(dtype, bands, size)?;
        Ok(with_type!(dtype, T => T::wrap(Array3::zeros(shape))))
    }

    /// Returns the shape of `bands` x `size` samples.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the size in bytes exceeds the address space.
    pub fn check_size(dtype: DataType, bands: usize, size: Size) -> Result<(usize, usize, usize)> {
        let shape = (bands, size.height as usize, size.width as usize);
        let too_large = || {
            Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "{bands} x {} x {} pixels do not fit the address space",
                    size.height, size.width
                ),
            )
        };
        shape
            .0
            .checked_mul(shape.1)
            .and_then(|n| n.checked_mul(shape.2))
            .and_then(|n| n.checked_mul(dtype.size()))
            // A Rust allocation has at most `isize::MAX` bytes.
            .filter(|&n| isize::try_from(n).is_ok())
            .ok_or_else(too_large)?;
        Ok(shape)
    }

    /// Returns the dtype of the samples.
    pub fn dtype(&self) -> DataType {
        match self {
            Self::U8(_) => DataType::U8,
            Self::I8(_) => DataType::I8,
            Self::U16(_) => DataType::U16,
            Self::I16(_) => DataType::I16,
            Self::U32(_) => DataType::U32,
            Self::I32(_) => DataType::I32,
            Self::U64(_) => DataType::U64,
            Self::I64(_) => DataType::I64,
            Self::F32(_) => DataType::F32,
            Self::F64(_) => DataType::F64,
            Self::C64(_) => DataType::C64,
            Self::C128(_) => DataType::C128,
        }
    }

    /// Returns (bands, height, width).
    pub fn shape(&self) -> [usize; 3] {
        let (bands, height, width) = each_type!(self, array => array.dim());
        [bands, height, width]
    }

    /// Returns the samples as little-endian bytes: band, then row, then column.
    pub fn to_le_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len() * self.dtype().size()];
        each_type!(self, array => match array.as_slice() {
            Some(samples) => Sealed::put_le(samples.iter(), &mut bytes),
            None => Sealed::put_le(array.iter(), &mut bytes),
        });
        bytes
    }

    /// Writes the samples as [`to_le_bytes`](Self::to_le_bytes) returns them, piece by piece: no second copy is held.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write_le(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let mut bytes = vec![0; SAMPLES_AT_ONCE.min(self.len()) * self.dtype().size()];
        let mut put = |wanted: usize, fill: &mut dyn FnMut(&mut [u8])| match bytes.get_mut(..wanted)
        {
            Some(part) => {
                fill(part);
                out.write_all(part)
            }
            None => Ok(()),
        };
        each_type!(self, array => match array.as_slice() {
            Some(samples) => samples.chunks(SAMPLES_AT_ONCE).try_for_each(|part| {
                put(size_of_val(part), &mut |bytes| Sealed::put_le(part.iter(), bytes))
            }),
            None => {
                let mut left = array.len();
                let mut samples = array.iter();
                while left > 0 {
                    let count = left.min(SAMPLES_AT_ONCE);
                    left -= count;
                    put(count * self.dtype().size(), &mut |bytes| {
                        Sealed::put_le(samples.by_ref().take(count), bytes);
                    })?;
                }
                Ok(())
            }
        })
    }

    /// Returns the samples as `f64`, band then row then column. 64-bit integers above 2^53 are rounded; a complex
    /// sample becomes its magnitude.
    pub fn to_f64(&self) -> Vec<f64> {
        each_type!(self, array => array.iter().map(|sample| sample.number()).collect())
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        each_type!(self, array => array.len())
    }

    /// Returns true if there is no sample.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a view if the samples are of type `T`.
    pub fn view<T: Sample>(&self) -> Option<ArrayView3<'_, T>> {
        T::view(self)
    }

    /// Returns a mutable view if the samples are of type `T`.
    pub fn view_mut<T: Sample>(&mut self) -> Option<ArrayViewMut3<'_, T>> {
        T::view_mut(self)
    }
}

/// A Rust type that samples can have.
pub trait Sample: Copy + private::Sealed {
    /// The data type this is.
    const DTYPE: DataType;
    /// Returns a view if `pixels` are of this type.
    fn view(pixels: &Pixels) -> Option<ArrayView3<'_, Self>>;
    /// Returns a mutable view if `pixels` are of this type.
    fn view_mut(pixels: &mut Pixels) -> Option<ArrayViewMut3<'_, Self>>;
    /// Wraps an array of this type.
    fn wrap(array: Array3<Self>) -> Pixels;
}

/// Returns the nodata value as a sample; none if the type cannot represent it, and for NaN, which is always nodata. A
/// complex nodata sample has the imaginary part 0, as in GDAL.
pub fn nodata_sample<T: Sample>(nodata: Option<Number>) -> Option<T> {
    nodata.filter(|nodata| !nodata.is_nan()).and_then(T::exact)
}

/// Returns the sample of a pixel without data: the nodata value if the type has it, else NaN, or 0 of integers.
pub fn fill<T: Sample>(nodata: Option<Number>) -> T {
    let without = if T::DTYPE.is_float() { f64::NAN } else { 0.0 };
    let stated = nodata.and_then(T::exact);
    stated.unwrap_or_else(|| T::of_number(without))
}

mod private {
    /// Seals [`super::Sample`].
    pub trait Sealed: super::average::Average {
        /// Writes samples as little-endian bytes.
        fn put_le<'a>(samples: impl Iterator<Item = &'a Self>, bytes: &mut [u8])
        where
            Self: 'a;
        /// Reads samples from little-endian bytes.
        fn get_le<'a>(samples: impl IntoIterator<Item = &'a mut Self>, bytes: &[u8])
        where
            Self: 'a;
        /// Returns the sample as a number; of a complex sample the magnitude.
        fn number(&self) -> f64;
        /// Returns a number as a sample: of an integer type without its fraction, within the type's range.
        fn of_number(number: f64) -> Self;
        /// Returns the number as a sample: rounded for floats, of integers itself, none if the type has no such value.
        fn exact(number: super::Number) -> Option<Self>;
        /// Returns the sample as an exact number; of a complex sample the real part.
        fn to_exact(self) -> super::Number;
    }
}
use private::Sealed;

macro_rules! numbers {
    ($($type:ty => $exact:expr),*) => {$(
        impl Sealed for $type {
            fn put_le<'a>(samples: impl Iterator<Item = &'a Self>, bytes: &mut [u8]) {
                let (slots, _) = bytes.as_chunks_mut::<{ size_of::<$type>() }>();
                for (slot, sample) in slots.iter_mut().zip(samples) {
                    *slot = sample.to_le_bytes();
                }
            }

            fn get_le<'a>(samples: impl IntoIterator<Item = &'a mut Self>, bytes: &[u8]) {
                let (chunks, _) = bytes.as_chunks::<{ size_of::<$type>() }>();
                for (sample, chunk) in samples.into_iter().zip(chunks) {
                    *sample = <$type>::from_le_bytes(*chunk);
                }
            }

            #[expect(clippy::allow_attributes, reason = "one macro for all types")]
            fn number(&self) -> f64 {
                #[allow(clippy::unnecessary_cast, reason = "one of the types is f64 already")]
                let number = *self as f64;
                number
            }

            #[expect(clippy::allow_attributes, reason = "one macro for all types")]
            fn of_number(number: f64) -> Self {
                #[allow(
                    clippy::unnecessary_cast,
                    clippy::cast_possible_truncation,
                    reason = "one of the types is f64 already; out-of-range values saturate"
                )]
                let sample = number as $type;
                sample
            }

            fn exact(number: Number) -> Option<Self> {
                let exact: fn(Number) -> Option<Self> = $exact;
                exact(number)
            }

            fn to_exact(self) -> Number {
                Number::from(self)
            }
        }
    )*};
}
macro_rules! integers {
    ($($type:ty),*) => {
        numbers!($($type => |number| <$type>::try_from(number.as_integer()?).ok()),*);
    };
}
integers!(u8, i8, u16, i16, u32, i32, u64, i64);
numbers!(f32 => |number| Some(f32::of_number(number.as_f64())), f64 => |number| Some(number.as_f64()));

macro_rules! complex_numbers {
    ($($part:ty),*) => {$(
        impl Sealed for Complex<$part> {
            fn put_le<'a>(samples: impl Iterator<Item = &'a Self>, bytes: &mut [u8]) {
                let parts = samples.flat_map(|sample| [&sample.re, &sample.im]);
                <$part as Sealed>::put_le(parts, bytes);
            }

            fn get_le<'a>(samples: impl IntoIterator<Item = &'a mut Self>, bytes: &[u8]) {
                let parts = samples.into_iter().flat_map(|sample| [&mut sample.re, &mut sample.im]);
                <$part as Sealed>::get_le(parts, bytes);
            }

            fn number(&self) -> f64 {
                f64::from(self.re).hypot(f64::from(self.im))
            }

            fn of_number(number: f64) -> Self {
                Self::new(<$part as Sealed>::of_number(number), 0.0)
            }

            fn exact(number: Number) -> Option<Self> {
                Some(Self::of_number(number.as_f64()))
            }

            fn to_exact(self) -> Number {
                Number::from(self.re)
            }
        }
    )*};
}
complex_numbers!(f32, f64);

macro_rules! samples {
    ($($type:ty => $variant:ident),*) => {$(
        impl Sample for $type {
            const DTYPE: DataType = DataType::$variant;
            fn view(pixels: &Pixels) -> Option<ArrayView3<'_, Self>> {
                match pixels {
                    Pixels::$variant(array) => Some(array.view()),
                    _ => None,
                }
            }
            fn view_mut(pixels: &mut Pixels) -> Option<ArrayViewMut3<'_, Self>> {
                match pixels {
                    Pixels::$variant(array) => Some(array.view_mut()),
                    _ => None,
                }
            }
            fn wrap(array: Array3<Self>) -> Pixels {
                Pixels::$variant(array)
            }
        }
    )*};
}
samples!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64,
    i64 => I64, f32 => F32, f64 => F64, Complex<f32> => C64, Complex<f64> => C128);

/// Pixels with their grid and nodata value.
#[derive(Clone, Debug, PartialEq)]
pub struct Raster {
    /// Samples, (band, y, x).
    pub pixels: Pixels,
    /// The grid; its size equals the pixels' height and width.
    pub geobox: GeoBox,
    /// The nodata value as the file states it (first band's), if any. May be NaN.
    pub nodata: Option<Number>,
    /// The tiles that the file does not store, filled with nodata or zero. A stored tile whose pixels are nodata is
    /// not among them.
    pub sparse: Vec<Sparse>,
}

/// A part of a raster that is sparse in its file: the tile has no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sparse {
    /// The band of the raster, counted from 0.
    pub band: usize,
    /// The window, counted from the raster's top left.
    pub window: Window,
}
