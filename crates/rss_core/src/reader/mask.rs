//! Masks computed from samples: 255 where a pixel is valid, 0 where it is masked.

use ndarray::{Array3, Axis};

use super::{Masking, Profile, RasterReader, ReadRequest};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::Window,
    raster::{Number, Pixels, Raster, Sample, fill, nodata_sample},
};

/// Reads a mask: computed from the samples of `reader` if nodata or alpha masks pixels, else from
/// `stored`, which reads the mask that the file stores.
///
/// # Errors
///
/// Those of the request and of reading, and those of `stored`.
pub(super) async fn read(
    reader: &dyn RasterReader,
    request: &ReadRequest,
    most_bytes: u64,
    stored: impl Future<Output = Result<Raster>> + Send,
) -> Result<Raster> {
    let profile = reader.profile();
    let resolved = request.resolve(profile, most_bytes)?;
    let first = resolved.bands.first().map_or(1, |band| band + 1);
    let band = match profile.masking {
        Masking::Internal => return stored.await,
        Masking::Nodata => first,
        // The alpha band itself is valid everywhere.
        Masking::Alpha if first < profile.count => profile.count,
        Masking::Alpha | Masking::None => {
            return all_valid(profile, request.level, &resolved.window);
        }
    };
    let one = ReadRequest::new()
        .with_level(request.level)
        .with_window(resolved.window)
        .with_bands([band]);
    of_samples(profile, reader.read(&one).await?)
}

/// Returns a mask in which every pixel is valid.
fn all_valid(profile: &Profile, level: usize, window: &Window) -> Result<Raster> {
    let size = profile.level_size(level)?;
    let mut pixels = Pixels::zeros(crate::raster::DataType::U8, 1, window.size())?;
    if let Pixels::U8(bytes) = &mut pixels {
        bytes.fill(u8::MAX);
    }
    Ok(Raster {
        pixels,
        geobox: profile.geobox(size, window),
        nodata: None,
        sparse: Vec::new(),
    })
}

/// Returns the mask of nodata or alpha samples.
fn of_samples(profile: &Profile, read: Raster) -> Result<Raster> {
    let bytes = match (&read.pixels, profile.masking, read.nodata) {
        (Pixels::U8(alpha), Masking::Alpha, _) => alpha.clone(),
        (Pixels::U16(alpha), Masking::Alpha, _) => alpha.mapv(narrowed),
        (pixels, Masking::Nodata, Some(nodata)) => is_not(pixels, nodata),
        _ => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "a mask of samples of this type is not supported",
            ));
        }
    };
    let bytes = bytes.slice_axis(Axis(0), (0..1).into()).to_owned();
    Ok(Raster {
        pixels: u8::wrap(bytes),
        nodata: None,
        ..read
    })
}

/// Scales alpha of 16 bits to 8. Alpha above 0 stays above 0: the pixel is not masked.
fn narrowed(alpha: u16) -> u8 {
    let byte = u32::from(alpha) * 255 / 65_535;
    u8::try_from(byte)
        .unwrap_or(u8::MAX)
        .max(u8::from(alpha > 0))
}

/// Returns 255 for samples that are not the nodata value.
fn is_not(pixels: &Pixels, nodata: Number) -> Array3<u8> {
    let byte = |valid: bool| if valid { u8::MAX } else { 0 };
    macro_rules! whole {
        ($samples:expr, $type:ty) => {{
            let nodata = nodata_sample::<$type>(Some(nodata));
            $samples.mapv(|sample| byte(Some(sample) != nodata))
        }};
    }
    // GDAL's tolerance (ARE_REAL_EQUAL), with f32's epsilon for f64 too: a nodata value is stored as text,
    // which may not read back to the same bits.
    macro_rules! float {
        ($samples:expr, $type:ty) => {{
            let nodata = fill::<$type>(Some(nodata));
            let slack = 2.0 * <$type>::from(f32::EPSILON);
            $samples.mapv(|sample| {
                let is_same = sample == nodata || (sample.is_nan() && nodata.is_nan());
                let is_near = (sample - nodata).abs() < slack * (sample + nodata).abs();
                byte(!is_same && !is_near)
            })
        }};
    }
    match pixels {
        Pixels::U8(samples) => whole!(samples, u8),
        Pixels::I8(samples) => whole!(samples, i8),
        Pixels::U16(samples) => whole!(samples, u16),
        Pixels::I16(samples) => whole!(samples, i16),
        Pixels::U32(samples) => whole!(samples, u32),
        Pixels::I32(samples) => whole!(samples, i32),
        Pixels::U64(samples) => whole!(samples, u64),
        Pixels::I64(samples) => whole!(samples, i64),
        Pixels::F32(samples) => float!(samples, f32),
        Pixels::F64(samples) => float!(samples, f64),
        // As GDAL: the real part decides.
        Pixels::C64(samples) => float!(samples.map(|sample| sample.re), f32),
        Pixels::C128(samples) => float!(samples.map(|sample| sample.re), f64),
    }
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;

    #[test]
    fn nodata_is_told_from_its_neighbours() {
        let shorts = Pixels::I16(array![[[-999, -998, 0]]]);
        assert_eq!(is_not(&shorts, (-999.0).into()), array![[[0, 255, 255]]]);
        let floats = Pixels::F32(array![[[f32::NAN, 1.0]]]);
        assert_eq!(is_not(&floats, Number::NAN), array![[[0, 255]]]);
        assert_eq!(is_not(&floats, 1.0.into()), array![[[255, 0]]]);
        let wide = Pixels::I64(array![[[1 << 53, (1 << 53) + 1]]]);
        assert_eq!(
            is_not(&wide, ((1_i64 << 53) + 1).into()),
            array![[[255, 0]]]
        );
        let printed = Pixels::F64(array![[[-1.267_650_600_228_229_4e30, -1.2e30]]]);
        assert_eq!(
            is_not(&printed, (-1.267_650_6e30).into()),
            array![[[0, 255]]]
        );
    }

    #[test]
    fn transparency_keeps_its_ends() {
        assert_eq!([0, 1, 257, 65_535].map(narrowed), [0, 1, 1, 255]);
    }
}
