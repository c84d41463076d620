//! Compositing the images of one time step: which pixel wins where several overlap.

use std::{fmt, str::FromStr};

use ndarray::{ArrayView3, ArrayViewMut3, Zip};

use super::{reduce::Reducer, time::MosaicOrder};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::Sample,
};

/// How the images of one time step are composited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mosaic {
    /// The first valid sample, in the order of time.
    #[default]
    FirstValid,
    /// The first valid sample, in the order of cloud cover.
    LeastCloud,
    /// The median of the valid samples.
    Median,
    /// The mean of the valid samples.
    Mean,
    /// The minimum of the valid samples.
    Min,
    /// The maximum of the valid samples.
    Max,
    /// The number of valid samples.
    Count,
}

impl Mosaic {
    /// All mosaics.
    pub const ALL: [Self; 7] = [
        Self::FirstValid,
        Self::LeastCloud,
        Self::Median,
        Self::Mean,
        Self::Min,
        Self::Max,
        Self::Count,
    ];

    /// Returns its name, such as `least_cloud`.
    pub fn name(self) -> &'static str {
        match self {
            Self::FirstValid => "first",
            Self::LeastCloud => "least_cloud",
            Self::Median => "median",
            Self::Mean => "mean",
            Self::Min => "min",
            Self::Max => "max",
            Self::Count => "count",
        }
    }

    /// Returns the order in which the images of a time step must come.
    pub fn order(self) -> MosaicOrder {
        match self {
            Self::LeastCloud => MosaicOrder::LeastCloud,
            _ => MosaicOrder::Time,
        }
    }

    /// Returns the reducer that composites a stack of images in that order.
    pub fn reducer(self) -> Reducer {
        match self {
            Self::FirstValid | Self::LeastCloud => Reducer::First,
            Self::Median => Reducer::Median,
            Self::Mean => Reducer::Mean,
            Self::Min => Reducer::Min,
            Self::Max => Reducer::Max,
            Self::Count => Reducer::Count,
        }
    }

    /// Returns true if images can be composited one by one with [`fill_gaps`]: no stack is needed, and the remaining
    /// images can be skipped once no gap is left.
    pub fn takes_first(self) -> bool {
        self.reducer() == Reducer::First
    }

    /// Returns true if each value is one of the samples, so that their dtype holds it.
    pub fn keeps_type(self) -> bool {
        matches!(self.reducer(), Reducer::First | Reducer::Min | Reducer::Max)
    }
}

impl fmt::Display for Mosaic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mosaic {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let name = text.replace('-', "_");
        let found = Self::ALL.into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            let message = format!("mosaic `{}` is not one of {names}", text.escape_debug());
            Error::new(ErrorKind::InvalidInput, message)
        })
    }
}

/// Fills the gaps of an image (band, y, x) from the next image of the mosaic, each band by itself, and returns how
/// many gaps are left. A gap is a sample that is NaN or equal to `nodata`.
///
/// # Panics
///
/// If the shapes differ.
pub fn fill_gaps<T: Sample>(
    mut image: ArrayViewMut3<'_, T>,
    below: ArrayView3<'_, T>,
    nodata: Option<f64>,
) -> usize {
    // Rounded as samples are: a nodata of -3.4e38 in f64 differs from the f32 that stands in the file.
    let nodata = nodata
        .filter(|&nodata| T::DTYPE.holds(nodata))
        .map(|nodata| T::DTYPE.rounded(nodata));
    let is_gap = |sample: T| {
        let number = sample.number();
        number.is_nan() || nodata == Some(number)
    };
    let mut gaps = 0;
    Zip::from(&mut image)
        .and(&below)
        .for_each(|sample, &under| {
            if is_gap(*sample) {
                *sample = under;
                gaps += usize::from(is_gap(under));
            }
        });
    gaps
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn gaps_are_filled_from_below_and_counted() {
        let mut image = array![[[1_i16, -999, -999]], [[-999, 2, 3]]];
        let below = array![[[7, 8, -999]], [[9, 9, 9]]];
        assert_eq!(fill_gaps(image.view_mut(), below.view(), Some(-999.0)), 1);
        assert_eq!(image, array![[[1, 8, -999]], [[9, 2, 3]]]);
        assert_eq!(
            fill_gaps(
                image.view_mut(),
                array![[[0, 0, 5]], [[0, 0, 0]]].view(),
                Some(-999.0)
            ),
            0
        );
        assert_eq!(image, array![[[1, 8, 5]], [[9, 2, 3]]]);
        // Without nodata integers have no gaps; floats have NaN.
        let mut bytes = array![[[0_u8]]];
        assert_eq!(
            fill_gaps(bytes.view_mut(), array![[[7_u8]]].view(), None),
            0
        );
        assert_eq!(bytes, array![[[0]]]);
        let mut floats = array![[[f32::NAN, -1.0, 2.0]]];
        fill_gaps(
            floats.view_mut(),
            array![[[4.0, f32::NAN, 6.0]]].view(),
            Some(-1.0),
        );
        assert_eq!(floats[(0, 0, 0)], 4.0);
        assert!(floats[(0, 0, 1)].is_nan());
        assert_eq!(floats[(0, 0, 2)], 2.0);
    }

    #[test]
    fn a_mosaic_is_read_as_it_is_written() {
        for one in Mosaic::ALL {
            assert_eq!(one.to_string().parse::<Mosaic>().unwrap(), one);
            assert_eq!(
                one.takes_first(),
                matches!(one.name(), "first" | "least_cloud")
            );
        }
        assert_eq!("least-cloud".parse::<Mosaic>().unwrap(), Mosaic::LeastCloud);
        assert_eq!(Mosaic::LeastCloud.order(), MosaicOrder::LeastCloud);
        let err = "best".parse::<Mosaic>().unwrap_err();
        assert_eq!(
            err.message(),
            "mosaic `best` is not one of first, least_cloud, median, mean, min, max, count"
        );
    }
}
