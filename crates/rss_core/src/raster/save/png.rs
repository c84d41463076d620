//! A picture to look at, not data: 8 bits, stretched, nodata transparent.

use std::io::Write;

use crate::{
    error::{Error, ErrorKind, Result},
    raster::Raster,
};

/// The shares of the samples that become black and white.
const STRETCH: [f64; 2] = [0.02, 0.98];

pub(super) fn write(raster: &Raster, out: &mut impl Write) -> Result<()> {
    let [count, height, width] = raster.pixels.shape();
    let bands = if count >= 3 { 3 } else { 1 };
    let area = height * width;
    let samples = raster.pixels.to_f64();
    let valid =
        |value: f64| value.is_finite() && raster.nodata.is_none_or(|nodata| value != nodata);
    let planes: Vec<Plane<'_>> = samples
        .chunks(area.max(1))
        .take(bands)
        .map(|samples| Plane::new(samples, valid))
        .collect();
    let mut bytes = Vec::with_capacity(area * (bands + 1));
    for pixel in 0..area {
        let mut opaque = false;
        for plane in &planes {
            let value = plane.samples.get(pixel).copied().unwrap_or(f64::NAN);
            opaque |= valid(value);
            bytes.push(if valid(value) { plane.shade(value) } else { 0 });
        }
        bytes.push(if opaque { u8::MAX } else { 0 });
    }

    let failed = |err: png::EncodingError| match err {
        png::EncodingError::IoError(err) => super::io_error(err),
        err => Error::new(ErrorKind::InvalidInput, "cannot be drawn").with_source(err),
    };
    let side = |pixels: usize| {
        u32::try_from(pixels).map_err(|err| {
            Error::new(ErrorKind::InvalidInput, "too large to draw").with_source(err)
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
    writer.finish().map_err(failed)
}

/// One band and the values that become black and white.
struct Plane<'a> {
    samples: &'a [f64],
    low: f64,
    high: f64,
}

impl<'a> Plane<'a> {
    fn new(samples: &'a [f64], valid: impl Fn(f64) -> bool) -> Self {
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
            low: at(STRETCH[0]),
            high: at(STRETCH[1]),
        }
    }

    fn shade(&self, value: f64) -> u8 {
        let span = self.high - self.low;
        let share = if span > 0.0 {
            (value - self.low) / span
        } else {
            0.5
        };
        // A float to integer cast saturates, so values outside the stretch become black or white.
        (share * 255.0).round() as u8
    }
}
