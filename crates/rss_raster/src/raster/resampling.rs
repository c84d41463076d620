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
    /// The mean of the [area](Self#areas), weighted by the fraction of each pixel that is covered.
    Average,
    /// The most frequent value of the [area](Self#areas).
    Mode,
    /// The minimum of the [area](Self#areas).
    Min,
    /// The maximum of the [area](Self#areas).
    Max,
}

impl Resampling {
    /// All methods.
    pub const ALL: [Self; 7] = [
        Self::Nearest,
        Self::Bilinear,
        Self::Cubic,
        Self::Average,
        Self::Mode,
        Self::Min,
        Self::Max,
    ];

    /// Returns the name that GDAL uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nearest => "nearest",
            Self::Bilinear => "bilinear",
            Self::Cubic => "cubic",
            Self::Average => "average",
            Self::Mode => "mode",
            Self::Min => "min",
            Self::Max => "max",
        }
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
        let err = "lanczos".parse::<Resampling>().unwrap_err();
        assert_eq!(
            err.message(),
            "resampling `lanczos` is not one of nearest, bilinear, cubic, average, mode, min, max"
        );
    }
}
