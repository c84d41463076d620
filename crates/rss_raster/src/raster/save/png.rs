//! PNG images for viewing: 8 bits, stretched, nodata transparent.

use std::io::Write;

use crate::{
    error::{Error, ErrorKind, Result},
    raster::{Number, Raster},
};

/// The contrast stretch of a PNG: which values become black and white.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Stretch {
    /// For each band the quantiles of its valid samples, as fractions from 0 to 1. Usually 0.02 and 0.98.
    Shares {
        /// The fraction of samples below black.
        black: f64,
        /// The fraction of samples below white.
        white: f64,
    },
    /// The same values for every band. Black may be larger than white.
    Range {
        /// The value that becomes black.
        black: f64,
        /// The value that becomes white.
        white: f64,
    },
}

impl Default for Stretch {
    fn default() -> Self {
        Self::Shares {
            black: 0.02,
            white: 0.98,
        }
    }
}

impl Stretch {
    fn check(self) -> Result<()> {
        let (black, white, is_right) = match self {
            Self::Shares { black, white } => {
                let share = 0.0..=1.0;
                (
                    black,
                    white,
                    share.contains(&black) && share.contains(&white),
                )
            }
            Self::Range { black, white } => {
                let is_right = black.is_finite() && white.is_finite() && black != white;
                (black, white, is_right)
            }
        };
        match is_right {
            true => Ok(()),
            false => Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "a stretch from {black} to {white}: expected two fractions from 0 to 1, or two different finite values"
                ),
            )),
        }
    }
}

/// Encodes a raster, and returns the values of black and white for each band of the image.
pub(super) fn write(
    raster: &Raster,
    stretch: Stretch,
    out: &mut impl Write,
) -> Result<Vec<[f64; 2]>> {
    stretch.check()?;
    let [count, height, width] = raster.pixels.shape();
    let bands = if count >= 3 { 3 } else { 1 };
    let area = height * width;
    let samples = raster.pixels.to_f64();
    let nodata = raster.nodata.map(Number::as_f64);
    let valid = |value: f64| value.is_finite() && nodata != Some(value);
    let planes: Vec<Plane<'_>> = samples
        .chunks(area.max(1))
        .take(bands)
        .map(|samples| Plane::new(samples, stretch, valid))
        .collect();
    let mut bytes = Vec::with_capacity(area * (bands + 1));
    for pixel in 0..area {
        let mut opaque = false;
        for plane in &planes {
            let value = plane.samples.get(pixel).copied().unwrap_or(f64::NAN);
            // A pixel is transparent only if all bands are nodata.
            opaque |= valid(value);
            bytes.push(if valid(value) { plane.shade(value) } else { 0 });
        }
        bytes.push(if opaque { u8::MAX } else { 0 });
    }

    let failed = |err: png::EncodingError| match err {
        png::EncodingError::IoError(err) => super::io_error(err),
        err => Error::new(ErrorKind::InvalidInput, "the PNG cannot be encoded").with_source(err),
    };
    let side = |pixels: usize| {
        u32::try_from(pixels).map_err(|err| {
            Error::new(ErrorKind::InvalidInput, "the raster is too large for a PNG")
                .with_source(err)
        })
    };
    let mut encoder = png::Encoder::new(out, side(width)?, side(height)?);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_color(if bands == 3 {
        png::ColorType::Rgba
    } else {
        png::ColorType::GrayscaleAlpha
    });
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(&bytes).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(planes.iter().map(|plane| [plane.low, plane.high]).collect())
}

/// One band, and its values of black and white.
struct Plane<'a> {
    samples: &'a [f64],
    low: f64,
    high: f64,
}

impl<'a> Plane<'a> {
    fn new(samples: &'a [f64], stretch: Stretch, valid: impl Fn(f64) -> bool) -> Self {
        let shares = match stretch {
            Stretch::Shares { black, white } => [black, white],
            Stretch::Range { black, white } => {
                return Self {
                    samples,
                    low: black,
                    high: white,
                };
            }
        };
        let mut sorted: Vec<f64> = samples.iter().copied().filter(|&v| valid(v)).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |share: f64| {
            let last = sorted.len().saturating_sub(1);
            sorted
                .get((last as f64 * share).round() as usize)
                .copied()
                .unwrap_or(0.0)
        };
        Self {
            samples,
            low: at(shares[0]),
            high: at(shares[1]),
        }
    }

    fn shade(&self, value: f64) -> u8 {
        let span = self.high - self.low;
        // A band of a single value becomes mid-grey.
        let share = if span != 0.0 {
            (value - self.low) / span
        } else {
            0.5
        };
        // A float to integer cast saturates, so values outside the stretch become black or white.
        (share * 255.0).round() as u8
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;
    use crate::{
        geo::{GeoBox, Size},
        raster::Pixels,
    };

    /// Encodes four pixels, of which the last is nodata, and returns the grey and alpha of each.
    fn drawn(stretch: Stretch) -> Result<(Vec<[f64; 2]>, Vec<u8>)> {
        let raster = Raster {
            pixels: Pixels::I16(array![[[0, 50, 100, -999]]]),
            geobox: GeoBox {
                size: Size {
                    width: 4,
                    height: 1,
                },
                crs: None,
                transform: None,
            },
            nodata: Some((-999.0).into()),
            sparse: Vec::new(),
        };
        let mut file = Vec::new();
        let told = write(&raster, stretch, &mut file)?;
        let mut reader = png::Decoder::new(std::io::Cursor::new(file))
            .read_info()
            .unwrap();
        let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut bytes).unwrap();
        Ok((told, bytes))
    }

    #[test]
    fn a_stretch_says_what_is_black_and_white() {
        let range = |black, white| drawn(Stretch::Range { black, white });
        let (told, greys) = range(0.0, 200.0).unwrap();
        assert_eq!(told, [[0.0, 200.0]]);
        assert_eq!(greys, [0, 255, 64, 255, 128, 255, 0, 0]);
        // Inverted, and with black and white at the extremes of the samples.
        let (_, greys) = range(100.0, 50.0).unwrap();
        assert_eq!(greys, [255, 255, 255, 255, 0, 255, 0, 0]);
        let (told, greys) = drawn(Stretch::default()).unwrap();
        assert_eq!(told, [[0.0, 100.0]]);
        assert_eq!(greys, [0, 255, 128, 255, 255, 255, 0, 0]);
        for (black, white) in [(3.0, 3.0), (f64::NAN, 1.0), (0.0, f64::INFINITY)] {
            assert!(range(black, white).is_err(), "{black} {white}");
        }
        assert!(
            drawn(Stretch::Shares {
                black: 0.0,
                white: 2.0
            })
            .is_err()
        );
    }
}
