//! Resampling methods.

use std::{fmt, str::FromStr};

use crate::error::{Error, ErrorKind, Result};

/// The method by which a pixel is computed from those of another grid. Nodata pixels contribute to no result.
///
/// # Areas
///
/// The area of a pixel is the rectangle of source rows and columns between the positions of its top left and its
/// bottom right corner, as in gdalwarp. If both grids are axis-aligned it is the pixel itself. If one is rotated
/// against the other it is not: at 45 degrees one corner lies below the other, and the rectangle is one column wide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resampling {
    /// The source pixel that contains the centre.
    #[default]
    Nearest,
    /// Bilinear interpolation of the 2 x 2 neighbours.
    Bilinear,
    /// Cubic convolution of the 4 x 4 neighbours, with a = -0.5.
    Cubic,
    /// The cubic B-spline over the 4 x 4 neighbours. It smooths, also where both grids have the same pixels.
    CubicSpline,
    /// The windowed sinc with three lobes, over the 6 x 6 neighbours. It overshoots at sharp edges. Half of the neighbours
    /// must be valid.
    Lanczos,
    /// The mean of the [area](Self#areas), weighted by the fraction of each pixel that is covered.
    Average,
    /// The root of the mean of squares of the [area](Self#areas), weighted as by average.
    Rms,
    /// The most frequent value of the [area](Self#areas).
    Mode,
    /// The minimum of the [area](Self#areas).
    Min,
    /// The maximum of the [area](Self#areas).
    Max,
    /// The median of the [area](Self#areas): of an even number of pixels the lower one of the middle.
    Median,
    /// The first quartile of the [area](Self#areas): the smallest value that a quarter of the pixels do not exceed.
    Q1,
    /// The third quartile of the [area](Self#areas): the smallest value that three quarters do not exceed.
    Q3,
    /// The sum over the pixel, each source pixel by the fraction of it that is covered: totals, such as people or
    /// tonnes a pixel, are kept. Of a rotated pixel its true area counts. Overviews, which hold means, are not read.
    Sum,
}

impl Resampling {
    /// All methods.
    pub const ALL: [Self; 14] = [
        Self::Nearest,
        Self::Bilinear,
        Self::Cubic,
        Self::CubicSpline,
        Self::Lanczos,
        Self::Average,
        Self::Rms,
        Self::Mode,
        Self::Min,
        Self::Max,
        Self::Median,
        Self::Q1,
        Self::Q3,
        Self::Sum,
    ];

    /// Returns the name that GDAL uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nearest => "nearest",
            Self::Bilinear => "bilinear",
            Self::Cubic => "cubic",
            Self::CubicSpline => "cubicspline",
            Self::Lanczos => "lanczos",
            Self::Average => "average",
            Self::Rms => "rms",
            Self::Mode => "mode",
            Self::Min => "min",
            Self::Max => "max",
            Self::Median => "med",
            Self::Q1 => "q1",
            Self::Q3 => "q3",
            Self::Sum => "sum",
        }
    }

    /// Returns true if the method is a statistic of all source pixels that a pixel covers, and not an interpolation.
    pub fn is_area(self) -> bool {
        use Resampling::{Average, Max, Median, Min, Mode, Q1, Q3, Rms, Sum};
        matches!(
            self,
            Average | Rms | Mode | Min | Max | Median | Q1 | Q3 | Sum
        )
    }

    /// Returns true if the weights of an interpolation are normalised at each position.
    pub(crate) fn is_normalised(self) -> bool {
        matches!(self, Self::CubicSpline | Self::Lanczos)
    }
}

impl fmt::Display for Resampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Resampling {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::new(
                ErrorKind::InvalidInput,
                format!("resampling `{text}` is not one of {names}"),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resampling_is_read_as_it_is_written() {
        for one in Resampling::ALL {
            assert_eq!(one.to_string().parse::<Resampling>().unwrap(), one);
        }
        let err = "gauss".parse::<Resampling>().unwrap_err();
        assert_eq!(
            err.message(),
            "resampling `gauss` is not one of nearest, bilinear, cubic, cubicspline, lanczos, average, rms, mode, min, \
             max, med, q1, q3, sum"
        );
    }
}
