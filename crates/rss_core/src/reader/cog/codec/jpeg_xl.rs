//! JPEG XL, by the `jxl-oxide` crate; feature `jpeg-xl`.

use jxl_oxide::{AllocTracker, JxlImage, JxlThreadPool};

use super::damaged;
use crate::{
    error::{Error, ErrorKind, Result},
    raster::DataType,
    reader::cog::level::Level,
};

/// Memory of the decoder for each byte of the tile.
const WORK_PER_BYTE: usize = 64;
/// Memory of the decoder besides.
const WORK_BYTES: usize = 16 << 20;

/// Writes the interleaved samples of a tile in the byte order of the file.
pub(super) fn unpack(
    level: &Level,
    little_endian: bool,
    bytes: &[u8],
    length: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    let wrong = |err: Box<dyn std::error::Error + Send + Sync>| damaged("JPEG XL").with_source(err);
    let most = length
        .saturating_mul(WORK_PER_BYTE)
        .saturating_add(WORK_BYTES);
    let image = JxlImage::builder()
        // No threads of its own: tiles are decoded in parallel already.
        .pool(JxlThreadPool::none())
        .alloc_tracker(AllocTracker::with_limit(most))
        .read(bytes)
        .map_err(wrong)?;
    let (width, height) = (image.width(), image.height());
    if width != level.tile.width || height > level.tile.height {
        return Err(Error::new(
            ErrorKind::Corrupt,
            "a tile's JPEG XL image has another size than the tile",
        ));
    }
    let picture = image.render_frame(0).map_err(wrong)?;
    let mut stream = picture.stream();
    let samples = if level.planar { 1 } else { level.bands };
    if stream.channels() as usize != samples {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "JPEG XL with {} channels of colour and alpha for {samples} bands is not supported",
                stream.channels()
            ),
        ));
    }
    let count = (width as usize)
        .saturating_mul(height as usize)
        .saturating_mul(samples);
    out.clear();
    macro_rules! write {
        ($type:ty) => {{
            let mut values = vec![<$type>::default(); count];
            stream.write_to_buffer(&mut values);
            for value in values {
                match little_endian {
                    true => out.extend(value.to_le_bytes()),
                    false => out.extend(value.to_be_bytes()),
                }
            }
        }};
    }
    match level.dtype {
        DataType::U8 => write!(u8),
        DataType::U16 => write!(u16),
        DataType::F32 => write!(f32),
        other => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "JPEG XL with samples of type {} is not supported",
                    other.name()
                ),
            ));
        }
    }
    Ok(())
}
