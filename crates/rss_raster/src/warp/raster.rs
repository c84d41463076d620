//! Rasters in memory, warped.

use ndarray::{Array3, Axis};

use super::{MAX_ERROR_PIXELS, SourcePixels, Warp, Warped};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{GeoBox, Window},
    raster::{Pixels, Raster, Resampling, Sample, with_type},
};

/// How a raster is warped. A [`Resampling`] stands for itself with all else as it is by default.
///
/// ```
/// use rss_raster::{Resampling, WarpOptions};
///
/// let exact = WarpOptions::from(Resampling::Cubic).with_max_error_pixels(0.0);
/// assert_eq!(exact.resampling, Resampling::Cubic);
/// assert_eq!(WarpOptions::default().max_error_pixels, 0.125);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WarpOptions {
    /// How pixels are made of pixels; nearest by default.
    pub resampling: Resampling,
    /// How far a pixel's place may be from the exact one, in pixels of the source; 0.125 by default, as
    /// gdalwarp's `-et`. With 0 all are exact: each is projected, and none is taken from others.
    pub max_error_pixels: f64,
}

impl Default for WarpOptions {
    fn default() -> Self {
        Self {
            resampling: Resampling::default(),
            max_error_pixels: MAX_ERROR_PIXELS,
        }
    }
}

impl From<Resampling> for WarpOptions {
    fn from(resampling: Resampling) -> Self {
        Self::default().with_resampling(resampling)
    }
}

impl WarpOptions {
    /// Sets how pixels are made of pixels.
    #[must_use]
    pub fn with_resampling(self, resampling: Resampling) -> Self {
        Self { resampling, ..self }
    }

    /// Sets how far a pixel's place may be from the exact one, in pixels of the source.
    #[must_use]
    pub fn with_max_error_pixels(self, max_error_pixels: f64) -> Self {
        Self {
            max_error_pixels,
            ..self
        }
    }
}

impl Raster {
    /// Returns the raster on another grid: reprojected, resampled, or copied where the pixels are the same.
    ///
    /// Pixels without data (nodata, or NaN) count in none, and a pixel whose centre lies in one has none; by
    /// average, mode, min and max it has one if any pixel of its area has. What has no value is nodata where
    /// the raster has such a value, else NaN for floats and 0 for whole numbers. Results are
    /// [gdalwarp's](https://gdal.org/en/stable/programs/gdalwarp.html), but for the last digit: where a pixel
    /// of the target is more than one of the source, bilinear and cubic are as much wider. How much is taken
    /// from the middle of the overlap, where gdalwarp takes it from each chunk's bounds.
    ///
    /// [`sparse`](Self::sparse) of the result is empty. Work is spread over the threads of rayon's pool.
    ///
    /// ```
    /// use ndarray::Array3;
    /// use rss_raster::{Crs, GeoBox, Pixels, Raster, Resampling};
    ///
    /// let geobox = GeoBox::of_bounds(Crs::Epsg(32755), [0.0, 0.0, 40.0, 20.0], 10.0)?;
    /// let pixels = Array3::from_shape_fn((1, 2, 4), |(_, y, x)| (10 * y + x) as i16);
    /// let raster = Raster {
    ///     pixels: Pixels::I16(pixels),
    ///     geobox,
    ///     nodata: Some(-999.0),
    ///     sparse: Vec::new(),
    /// };
    /// let coarse = raster.warp(&raster.geobox.with_resolution(20.0)?, Resampling::Average)?;
    /// assert_eq!(coarse.pixels.to_f64(), [6.0, 8.0]);
    /// # Ok::<_, rss_raster::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if a grid has no CRS, no pixels, or no transform that can be undone, if the
    /// raster's pixels are not as many as its grid has, if `max_error_pixels` is no number from 0 up, and if
    /// the bytes of the result do not fit the address space; [`ErrorKind::Unsupported`] naming a CRS that
    /// cannot be turned into degrees, where it is not that of both, and for complex samples by other ways than
    /// nearest, bilinear and average.
    pub fn warp(&self, to: &GeoBox, options: impl Into<WarpOptions>) -> Result<Self> {
        let WarpOptions {
            resampling,
            max_error_pixels,
        } = options.into();
        let warp = Warp::new(&self.geobox, to, resampling, max_error_pixels)?;
        let dtype = self.pixels.dtype();
        let pixels = with_type!(dtype, T => warped::<T>(self, &warp, to))?;
        Ok(Self {
            pixels,
            geobox: to.clone(),
            nodata: self.nodata,
            sparse: Vec::new(),
        })
    }
}

fn warped<T: Warped>(raster: &Raster, warp: &Warp, to: &GeoBox) -> Result<Pixels> {
    let Some(pixels) = T::view(&raster.pixels) else {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!("the pixels are not {}", T::DTYPE),
        ));
    };
    let [bands, height, width] = raster.pixels.shape();
    let size = raster.geobox.size;
    if height != size.height as usize || width != size.width as usize {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "the raster has {width} x {height} pixels, and its grid is {}",
                raster.geobox
            ),
        ));
    }
    let shape = Pixels::check_size(T::DTYPE, bands, to.size)?;
    let mut out = Array3::from_elem(shape, fill::<T>(raster.nodata));
    let target = Window::whole(to.size);
    if let Some(window) = warp.source_window(&target) {
        let rows = window.row as usize..(window.row + window.height) as usize;
        let cols = window.col as usize..(window.col + window.width) as usize;
        for (band, out) in pixels.axis_iter(Axis(0)).zip(out.axis_iter_mut(Axis(0))) {
            let source = SourcePixels {
                pixels: band.slice_move(ndarray::s![rows.clone(), cols.clone()]),
                window,
                nodata: raster.nodata,
                mask: None,
            };
            warp.resample(&source, &target, out)?;
        }
    }
    Ok(T::wrap(out))
}

/// Returns what a pixel without a value is.
fn fill<T: Sample>(nodata: Option<f64>) -> T {
    let none = if T::DTYPE.is_float() { f64::NAN } else { 0.0 };
    T::of_number(
        nodata
            .filter(|&nodata| T::DTYPE.holds(nodata))
            .unwrap_or(none),
    )
}
