//! What a closure sees: a block of samples with the names of its axes.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use ndarray::{Array2, Array4, ArrayView2, ArrayView3, ArrayView4, ArrayViewMut2};

use super::axes::{ImageCubeBand, Step};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{GeoBox, Window},
    products::Scaling,
    raster::{Pixels, Sample},
    warp,
};

/// A type that blocks can have: `f32` and `f64` take samples of any real type, with NaN where there is no data,
/// rounded if they do not fit (whole numbers above 2^24 in `f32`, above 2^53 in `f64`); whole numbers take raw
/// samples of their own type alone, with the band's nodata value.
pub trait BlockSample: Sample + private::Loads + Send + Sync + 'static {}

impl<T: Sample + private::Loads + Send + Sync + 'static> BlockSample for T {}

pub(super) mod private {
    use super::*;

    #[expect(private_bounds, reason = "sealed: nobody else implements it")]
    pub trait Loads: warp::Warped {
        /// The sample that means "no data" in a block.
        fn fill(nodata: Option<f64>) -> Self;

        /// Returns true if a band of this type, scaled like this, can be loaded.
        fn takes(dtype: crate::DataType, scaling: Scaling) -> bool;

        /// Makes samples of one band of this type, or none where they are of it already.
        fn of(pixels: &Pixels, scaling: Scaling, nodata: Option<f64>) -> Option<Array2<Self>>;

        /// Writes what [`of`](Self::of) makes into an image of the same shape, and returns how many samples are
        /// valid; none where they are of this type already.
        fn put(
            pixels: &Pixels,
            scaling: Scaling,
            nodata: Option<f64>,
            out: ArrayViewMut2<'_, Self>,
        ) -> Option<usize>;
    }

    fn sample_of<T: Sample>(number: f64) -> T {
        T::of_number(number)
    }

    macro_rules! floats {
        ($type:ty, $values:ident, $make:expr) => {
            impl Loads for $type {
                fn fill(_: Option<f64>) -> Self {
                    Self::NAN
                }

                fn takes(dtype: crate::DataType, _: Scaling) -> bool {
                    use crate::DataType::{C64, C128};
                    !matches!(dtype, C64 | C128)
                }

                fn of(pixels: &Pixels, scaling: Scaling, nodata: Option<f64>) -> Option<Array2<Self>> {
                    crate::raster::with_type!(pixels.dtype(), S => {
                        let view: ArrayView3<'_, S> = pixels.view()?;
                        Some(scaling.$values(view.index_axis_move(ndarray::Axis(0), 0), nodata))
                    })
                }

                fn put(
                    pixels: &Pixels,
                    scaling: Scaling,
                    nodata: Option<f64>,
                    out: ArrayViewMut2<'_, Self>,
                ) -> Option<usize> {
                    crate::raster::with_type!(pixels.dtype(), S => {
                        let view: ArrayView3<'_, S> = pixels.view()?;
                        let samples = view.index_axis_move(ndarray::Axis(0), 0);
                        Some(scaling.put(samples, nodata, $make, out))
                    })
                }
            }
        };
    }
    floats!(f32, values, rounded);
    floats!(f64, exact_values, |value| value);

    #[expect(
        clippy::cast_possible_truncation,
        reason = "rounding is what is asked for"
    )]
    fn rounded(value: f64) -> f32 {
        value as f32
    }

    macro_rules! raw {
        ($($type:ty),*) => {$(
            impl Loads for $type {
                fn fill(nodata: Option<f64>) -> Self {
                    sample_of(nodata.unwrap_or(0.0))
                }

                fn takes(dtype: crate::DataType, scaling: Scaling) -> bool {
                    dtype == Self::DTYPE && scaling.is_identity()
                }

                fn of(_: &Pixels, _: Scaling, _: Option<f64>) -> Option<Array2<Self>> {
                    None
                }

                fn put(
                    _: &Pixels,
                    _: Scaling,
                    _: Option<f64>,
                    _: ArrayViewMut2<'_, Self>,
                ) -> Option<usize> {
                    None
                }
            }
        )*};
    }
    raw!(u8, i8, u16, i16, u32, i32, u64, i64);
}

/// Pixels of a part of a cube, (time, band, y, x).
#[derive(Clone, Debug)]
pub struct Block<T> {
    pub(super) data: Array4<T>,
    pub(super) bands: Arc<[ImageCubeBand]>,
    pub(super) steps: Arc<[Step]>,
    /// Without the halo.
    pub(super) window: Window,
    /// With it.
    pub(super) seen: Window,
    /// Of all of the cube.
    pub(super) grid: Arc<GeoBox>,
}

impl<T> Block<T> {
    /// Returns all samples, (time, band, y, x), the halo included.
    pub fn data(&self) -> ArrayView4<'_, T> {
        self.data.view()
    }

    /// Returns the samples of a band, (time, y, x), by its name in all products or the asset's key.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] naming the band, and those that there are.
    pub fn band(&self, name: &str) -> Result<ArrayView3<'_, T>> {
        let place = place_of(&self.bands, name)?;
        Ok(self.data.index_axis(ndarray::Axis(1), place))
    }

    /// Returns the bands, in their order.
    pub fn bands(&self) -> &[ImageCubeBand] {
        &self.bands
    }

    /// Returns the dates, in their order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the time of the first image of each date.
    pub fn times(&self) -> Vec<DateTime<Utc>> {
        self.steps.iter().map(|step| step.time).collect()
    }

    /// Returns where the block lies in the cube's grid, without the halo.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Returns the grid of the samples, the halo included.
    pub fn grid(&self) -> GeoBox {
        self.grid.of_window(&self.seen)
    }

    /// Cuts the halo off an image (y, x) of the samples' size.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if it has another size.
    pub fn without_halo<'a, U>(&self, image: ArrayView2<'a, U>) -> Result<ArrayView2<'a, U>> {
        let (high, wide) = (self.seen.height as usize, self.seen.width as usize);
        if image.dim() != (high, wide) {
            let (rows, cols) = image.dim();
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("an image of {rows} rows and {cols} columns, expected {high} and {wide}"),
            ));
        }
        let [rows, cols] = self.inner();
        Ok(image.slice_move(ndarray::s![rows.0..rows.1, cols.0..cols.1]))
    }

    /// Returns the rows and columns of the window within what is seen: first, and one past the last.
    pub(super) fn inner(&self) -> [(usize, usize); 2] {
        let row = (self.window.row - self.seen.row) as usize;
        let col = (self.window.col - self.seen.col) as usize;
        [
            (row, row + self.window.height as usize),
            (col, col + self.window.width as usize),
        ]
    }
}

/// Finds a band by its name or its asset's key.
pub(super) fn place_of(bands: &[ImageCubeBand], name: &str) -> Result<usize> {
    let by_name = bands.iter().position(|band| band.name == name);
    let found = by_name.or_else(|| bands.iter().position(|band| band.asset == name));
    found.ok_or_else(|| {
        let known: Vec<&str> = bands.iter().map(|band| band.name.as_str()).collect();
        Error::new(
            ErrorKind::InvalidInput,
            format!("band `{name}` is not one of {}", known.join(", ")),
        )
    })
}
