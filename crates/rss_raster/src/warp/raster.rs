//! Warps of rasters in memory.

use ndarray::{Array3, Axis};

use super::{MAX_ERROR_PIXELS, SourcePixels, Warp, Warped};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{GeoBox, Window},
    raster::{Pixels, Raster, Resampling, fill, with_type},
};

/// Options of [`Raster::warp`]. A [`Resampling`] converts into options with the defaults for all else.
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
    /// The resampling method; nearest by default.
    pub resampling: Resampling,
    /// The bound on the error of a pixel's position, in source pixels; 0.125 by default, as gdalwarp's `-et`. With 0
    /// each position is projected, and none is interpolated.
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
    /// Sets the resampling method.
    #[must_use]
    pub fn with_resampling(self, resampling: Resampling) -> Self {
        Self { resampling, ..self }
    }

    /// Sets the bound on the error of a pixel's position, in source pixels.
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
    /// Nodata pixels (the nodata value, or NaN) contribute to no result, and a target pixel whose centre lies in one
    /// is nodata; with average, mode, min and max it is valid if any source pixel of its area is. Pixels without a
    /// value are filled with nodata, or if the raster has none, with NaN for floats and 0 for integers. Results are
    /// [gdalwarp's](https://gdal.org/en/stable/programs/gdalwarp.html) up to the last digit. Where a target pixel is
    /// larger than a source pixel, the bilinear and cubic kernels are widened by the scale, measured in the middle
    /// of the overlap; gdalwarp measures it from the bounds of each chunk.
    ///
    /// [`sparse`](Self::sparse) of the result is empty. The work runs on the threads of rayon's pool.
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
    ///     nodata: Some((-999.0).into()),
    ///     sparse: Vec::new(),
    /// };
    /// let coarse = raster.warp(&raster.geobox.with_resolution(20.0)?, Resampling::Average)?;
    /// assert_eq!(coarse.pixels.to_f64(), [6.0, 8.0]);
    /// # Ok::<_, rss_raster::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if a grid has no CRS, no pixels, or no invertible geotransform, if the shape of
    /// the raster's pixels is not that of its grid, if `max_error_pixels` is negative or not finite, and if the size
    /// of the result in bytes exceeds the address space; [`ErrorKind::Unsupported`] naming a CRS that cannot be
    /// converted to degrees, unless both grids have that CRS, and for complex samples with methods other than
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
                "the raster has {width} x {height} pixels, but its grid is {}",
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
