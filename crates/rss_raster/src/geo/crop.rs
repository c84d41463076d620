//! A bounding box in CRS units that a file is cropped to.

use super::{Crs, is_degrees};
use crate::error::{Error, ErrorKind, Result};

/// A bounding box to crop a file to, in the units of a CRS.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crop {
    /// The edges: xmin, ymin, xmax, ymax. In degrees xmin is the larger one where the box crosses longitude 180.
    pub bounds: [f64; 4],
    /// The CRS of the edges as an EPSG code; none is the CRS of the file.
    pub epsg: Option<u32>,
}

impl Crop {
    /// Creates a crop from its edges: xmin, ymin, xmax, ymax.
    ///
    /// ```
    /// use rss_raster::Crop;
    ///
    /// let crop = Crop::new([152.0, -28.0, 152.5, -27.5], Some(4326))?;
    /// let fiji = Crop::new([177.0, -19.0, -178.0, -16.0], Some(4326))?;
    /// assert!(Crop::new([500_000.0, 0.0, 400_000.0, 9000.0], Some(32760)).is_err());
    /// # Ok::<_, rss_raster::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if an edge is not finite or the bounding box is empty.
    pub fn new(bounds: [f64; 4], epsg: Option<u32>) -> Result<Self> {
        let [left, bottom, right, top] = bounds;
        let is_finite = bounds.iter().all(|edge| edge.is_finite());
        // Whether the CRS of the file is in degrees shows when it is open.
        let is_degrees = epsg.is_none_or(|code| is_degrees(&Crs::Epsg(code)));
        let crosses = is_degrees && left > right && left <= 180.0 && right >= -180.0;
        if !is_finite || left >= right && !crosses || bottom >= top {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "crop {left},{bottom},{right},{top} is empty; the order is xmin, ymin, \
                     xmax, ymax"
                ),
            ));
        }
        Ok(Self { bounds, epsg })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_or_endless_crop_is_refused() {
        for bounds in [
            [1000.0, 0.0, 0.0, 1.0],
            [0.0, 1.0, 1.0, 0.0],
            [0.0, 0.0, 0.0, 1.0],
            [f64::NAN, 0.0, 1.0, 1.0],
            [0.0, 0.0, f64::INFINITY, 1.0],
        ] {
            let err = Crop::new(bounds, None).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::InvalidInput, "{bounds:?}");
        }
    }
}
