//! LERC, alone or inside DEFLATE or ZSTD, by the `lerc-reader` crate.
//!
//! As in libtiff: masked pixels are NaN in samples of floats, and transparent where the last of 2 or 4
//! bands of bytes is alpha.

use lerc_core::PixelData;
use lerc_reader::Decoded;

use super::damaged;
use crate::{
    error::{Error, ErrorKind, Result},
    raster::DataType,
    reader::cog::level::Level,
};

/// Writes the interleaved samples of a tile in the byte order of the file.
pub(super) fn unpack(
    level: &Level,
    little_endian: bool,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Result<()> {
    let wrong = |err| damaged("LERC").with_source(err);
    // The size is checked first: the decoder allocates by the header.
    let options = lerc_reader::InspectOptions::new().with_compute_value_range(false);
    let info = lerc_reader::inspect_first_with_options(bytes, options).map_err(wrong)?;
    let samples = if level.planar { 1 } else { level.bands };
    let stored = info.depth as usize;
    let alpha_in_mask =
        level.dtype == DataType::U8 && matches!(samples, 2 | 4) && stored + 1 == samples;
    if info.width != level.tile.width
        || info.height > level.tile.height
        || !(stored == samples || alpha_in_mask)
    {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "a tile's LERC data holds {} x {} x {stored} samples, expected {} x {} x {samples}",
                info.width, info.height, level.tile.width, level.tile.height
            ),
        ));
    }
    let Decoded { pixels, mask, .. } = lerc_reader::decode_first(bytes).map_err(wrong)?;
    let valid = |pixel: usize| {
        mask.as_ref()
            .is_none_or(|mask| mask.get(pixel).is_none_or(|&valid| valid != 0))
    };
    out.clear();
    macro_rules! write {
        ($type:ty, $values:expr, $hidden:expr) => {{
            let hidden: Option<$type> = $hidden;
            for (n, pixel) in $values.chunks_exact(stored.max(1)).enumerate() {
                let is_valid = valid(n);
                for &value in pixel {
                    let value = hidden.filter(|_| !is_valid).unwrap_or(value);
                    match little_endian {
                        true => out.extend(value.to_le_bytes()),
                        false => out.extend(value.to_be_bytes()),
                    }
                }
                if alpha_in_mask {
                    out.push(if is_valid { u8::MAX } else { 0 });
                }
            }
        }};
    }
    match (pixels, level.dtype) {
        (PixelData::I8(values), DataType::I8) => write!(i8, values, None),
        (PixelData::U8(values), DataType::U8) => write!(u8, values, None),
        (PixelData::I16(values), DataType::I16) => write!(i16, values, None),
        (PixelData::U16(values), DataType::U16) => write!(u16, values, None),
        (PixelData::I32(values), DataType::I32) => write!(i32, values, None),
        (PixelData::U32(values), DataType::U32) => write!(u32, values, None),
        (PixelData::F32(values), DataType::F32) => write!(f32, values, Some(f32::NAN)),
        (PixelData::F64(values), DataType::F64) => write!(f64, values, Some(f64::NAN)),
        _ => {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("a tile's LERC samples are not {}", level.dtype.name()),
            ));
        }
    }
    Ok(())
}
