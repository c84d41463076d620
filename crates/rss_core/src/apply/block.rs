//! The argument of a closure: a block of samples with the names of its axes.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use ndarray::{Array2, Array4, ArrayView2, ArrayView3, ArrayView4, ArrayViewMut2};

use super::axes::{ImageCubeBand, Step};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{GeoBox, Window},
    products::Scaling,
    raster::{Number, Pixels, Sample},
    warp,
};

/// A sample type of blocks.
///
/// `f32` and `f64` take samples of any real type, with NaN as nodata, rounded where they are not exact (integers
/// above 2^24 in `f32`, above 2^53 in `f64`). Integers take raw samples of their own dtype only, with the band's
/// nodata value.
pub trait BlockSample: Sample + private::Loads + Send + Sync + 'static {}

impl<T: Sample + private::Loads + Send + Sync + 'static> BlockSample for T {}

pub(super) mod private {
    use super::*;

    pub trait Loads: warp::Warped {
        /// Returns the nodata sample of a block.
        fn fill(nodata: Option<Number>) -> Self;

        /// Returns true if a band of this dtype, with this scale and offset, can be loaded.
        fn takes(dtype: crate::DataType, scaling: Scaling) -> bool;

        /// Converts the samples of one band, counted from 0; none where they have this type already.
        fn of(
            pixels: &Pixels,
            band: usize,
            scaling: Scaling,
            nodata: Option<Number>,
        ) -> Option<Array2<Self>>;

        /// Converts as [`of`](Self::of) does, into an array of the same shape, and returns the number of valid
        /// samples; none where they have this type already.
        fn put(
            pixels: &Pixels,
            band: usize,
            scaling: Scaling,
            nodata: Option<Number>,
            out: ArrayViewMut2<'_, Self>,
        ) -> Option<usize>;
    }

    macro_rules! floats {
        ($type:ty, $values:ident, $make:expr) => {
            impl Loads for $type {
                fn fill(_: Option<Number>) -> Self {
                    Self::NAN
                }

                fn takes(dtype: crate::DataType, _: Scaling) -> bool {
                    use crate::DataType::{C64, C128};
                    !matches!(dtype, C64 | C128)
                }

                fn of(
                    pixels: &Pixels,
                    band: usize,
                    scaling: Scaling,
                    nodata: Option<Number>,
                ) -> Option<Array2<Self>> {
                    crate::raster::with_type!(pixels.dtype(), S => {
                        let view: ArrayView3<'_, S> = pixels.view()?;
                        let samples = view.index_axis_move(ndarray::Axis(0), band);
                        Some(scaling.$values(samples, nodata))
                    })
                }

                fn put(
                    pixels: &Pixels,
                    band: usize,
                    scaling: Scaling,
                    nodata: Option<Number>,
                    out: ArrayViewMut2<'_, Self>,
                ) -> Option<usize> {
                    crate::raster::with_type!(pixels.dtype(), S => {
                        let view: ArrayView3<'_, S> = pixels.view()?;
                        let samples = view.index_axis_move(ndarray::Axis(0), band);
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
        reason = "f32 is the requested precision"
    )]
    fn rounded(value: f64) -> f32 {
        value as f32
    }

    macro_rules! raw {
        ($($type:ty),*) => {$(
            impl Loads for $type {
                fn fill(nodata: Option<Number>) -> Self {
                    // Without a nodata value 0 is only initial memory: `check_gaps` refuses to leave it as a pixel.
                    crate::raster::fill(nodata)
                }

                fn takes(dtype: crate::DataType, scaling: Scaling) -> bool {
                    // Scaled values and other dtypes would need rounding, which is the user's choice: float32.
                    dtype == Self::DTYPE && scaling.is_identity()
                }

                fn of(_: &Pixels, _: usize, _: Scaling, _: Option<Number>) -> Option<Array2<Self>> {
                    None
                }

                fn put(
                    _: &Pixels,
                    _: usize,
                    _: Scaling,
                    _: Option<Number>,
                    _: ArrayViewMut2<'_, Self>,
                ) -> Option<usize> {
                    None
                }
            }
        )*};
    }
    raw!(u8, i8, u16, i16, u32, i32, u64, i64);
}

/// The samples of one block of a cube, (time, band, y, x).
#[derive(Clone, Debug)]
pub struct Block<T> {
    pub(super) data: Array4<T>,
    pub(super) bands: Arc<[ImageCubeBand]>,
    pub(super) steps: Arc<[Step]>,
    /// The block without its halo.
    pub(super) window: Window,
    /// The block with its halo, clipped to the grid.
    pub(super) seen: Window,
    /// The grid of the complete cube.
    pub(super) grid: Arc<GeoBox>,
}

impl<T> Block<T> {
    /// Returns all samples, (time, band, y, x), including the halo.
    pub fn data(&self) -> ArrayView4<'_, T> {
        self.data.view()
    }

    /// Returns the samples of a band, (time, y, x), by its canonical name, the asset's key if that has one band, or
    /// `key:2` or `key:red` for a band of an asset with several.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] naming the band, and the bands of the cube.
    pub fn band(&self, name: &str) -> Result<ArrayView3<'_, T>> {
        let index = place_of(&self.bands, name)?;
        Ok(self.data.index_axis(ndarray::Axis(1), index))
    }

    /// Returns the bands, in their order.
    pub fn bands(&self) -> &[ImageCubeBand] {
        &self.bands
    }

    /// Returns the time steps, in their order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the time of the first image of each time step.
    pub fn times(&self) -> Vec<DateTime<Utc>> {
        self.steps.iter().map(|step| step.time).collect()
    }

    /// Returns the window of the block in the cube's grid, without the halo.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Returns the grid of the samples, including the halo.
    pub fn grid(&self) -> GeoBox {
        self.grid.of_window(&self.seen)
    }

    /// Crops the halo of an image (y, x) of the samples' size.
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

    /// Returns the ranges of rows and columns of the window within the samples: first, and one past the last.
    pub(super) fn inner(&self) -> [(usize, usize); 2] {
        let row = (self.window.row - self.seen.row) as usize;
        let col = (self.window.col - self.seen.col) as usize;
        [
            (row, row + self.window.height as usize),
            (col, col + self.window.width as usize),
        ]
    }
}

/// Returns the index of a band, by its name or else its asset's key.
pub(super) fn place_of(bands: &[ImageCubeBand], name: &str) -> Result<usize> {
    // Names first: the key of one asset may be the canonical name of another's band.
    let by_name = bands.iter().position(|band| band.name == name);
    let by_alias = || {
        let is_it = |band: &ImageCubeBand| band.aliases.iter().any(|alias| alias == name);
        bands.iter().position(is_it)
    };
    if let Some(found) = by_name.or_else(by_alias) {
        return Ok(found);
    }
    let mut of_asset = (0..bands.len()).filter(|&at| bands[at].asset == name);
    let why = match (of_asset.next(), of_asset.next()) {
        (Some(found), None) => return Ok(found),
        (Some(_), Some(_)) => format!("`{name}` has several bands, expected one"),
        (None, _) => format!("band `{name}` is not one"),
    };
    let known: Vec<&str> = bands.iter().map(|band| band.name.as_str()).collect();
    let message = format!("{why} of {}", known.join(", "));
    Err(Error::new(ErrorKind::InvalidInput, message))
}
