//! How pixels are made of other pixels.

use std::{fmt, str::FromStr};

use crate::error::{Error, ErrorKind, Result};

/// How a pixel is made of those of another grid. Pixels without data do not count in any of them.
///
/// # Areas
///
/// The area of a pixel is the box of the source's rows and columns between the places of its top left and its
/// bottom right corner, as gdalwarp takes it. Where the two grids lie alike it is the pixel. Where one is turned
/// on the other it is not: at 45 degrees the two corners lie above each other, and the box is one column wide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resampling {
    /// The pixel in which the centre lies.
    #[default]
    Nearest,
    /// Weighted by nearness, of the 2 x 2 around.
    Bilinear,
    /// Cubic convolution of the 4 x 4 around, with a = -0.5.
    Cubic,
    /// The mean of the [area](Self#areas), in which a pixel counts as much as is covered of it.
    Average,
    /// The most frequent value of the [area](Self#areas).
    Mode,
    /// The least value of the [area](Self#areas).
    Min,
    /// The greatest value of the [area](Self#areas).
    Max,
}

impl Resampling {
    /// Every one of them.
    pub const ALL: [Self; 7] = [
        Self::Nearest,
        Self::Bilinear,
        Self::Cubic,
        Self::Average,
        Self::Mode,
        Self::Min,
        Self::Max,
    ];

    /// Returns its name, which is GDAL's.
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
