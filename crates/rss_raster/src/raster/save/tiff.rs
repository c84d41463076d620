//! A small [GeoTIFF](https://docs.ogc.org/is/19-008r4/19-008r4.html) writer: one image, strips, DEFLATE with
//! predictor 2 for integers, little-endian, planar configuration 2 (bands one after another).

use std::io::Write;

use libdeflater::{CompressionLvl, Compressor};

use super::io_error;
use crate::{
    error::{Error, ErrorKind, Result},
    raster::{
        DataType, Raster,
        tiff::{Form, Tags, differences, nodata, sample_format},
    },
};

/// The target size of a strip in bytes, before compression.
const STRIP_BYTES: usize = 256 * 1024;

pub(super) fn write(raster: &Raster, out: &mut impl Write) -> Result<()> {
    let [bands, height, width] = raster.pixels.shape();
    let dtype = raster.pixels.dtype();
    let row_bytes = width * dtype.size();
    let rows_per_strip = (STRIP_BYTES / row_bytes.max(1)).clamp(1, height.max(1));
    let is_whole = !matches!(
        dtype,
        DataType::F32 | DataType::F64 | DataType::C64 | DataType::C128
    );
    let predictor: u16 = if is_whole { 2 } else { 1 };

    let mut samples = raster.pixels.to_le_bytes();
    if predictor == 2 {
        let mut row = vec![0; row_bytes];
        for out in samples.chunks_exact_mut(row_bytes.max(1)) {
            row.copy_from_slice(out);
            differences(&row, dtype.size(), out);
        }
    }
    let mut compressor = Compressor::new(CompressionLvl::default());
    let strips = samples
        .chunks((row_bytes * height).max(1))
        .flat_map(|band| band.chunks((row_bytes * rows_per_strip).max(1)))
        .map(|strip| {
            let mut bytes = vec![0; compressor.zlib_compress_bound(strip.len())];
            let length = compressor.zlib_compress(strip, &mut bytes).map_err(|err| {
                Error::new(ErrorKind::Unavailable, "a strip cannot be compressed").with_source(err)
            })?;
            bytes.truncate(length);
            Ok(bytes)
        })
        .collect::<Result<Vec<_>>>()?;

    let form = Form::Classic;
    let (format, bits) = sample_format(dtype);
    let mut tags = Tags::default();
    tags.long(256, [width])?;
    tags.long(257, [height])?;
    tags.short(258, vec![bits; bands])?;
    tags.short(259, [8])?;
    tags.short(262, [1])?;
    // A placeholder for StripOffsets: its length counts, its values are set below.
    tags.long(273, vec![0; strips.len()])?;
    tags.short(277, [bands])?;
    tags.long(278, [rows_per_strip])?;
    tags.long(279, strips.iter().map(Vec::len))?;
    tags.short(284, [if bands == 1 { 1 } else { 2 }])?;
    tags.short(317, [usize::from(predictor)])?;
    if bands > 1 {
        tags.short(338, vec![0; bands - 1])?;
    }
    tags.short(339, vec![format; bands])?;
    tags.georeference(&raster.geobox)?;
    if let Some(value) = raster.nodata {
        tags.ascii(42113, &nodata(dtype, value));
    }

    // The strips follow the IFD, so their offsets are known once the IFD's length is.
    let mut offset = form.start().len() + tags.length(form);
    let offsets = strips
        .iter()
        .map(|strip| {
            let this = offset;
            offset += strip.len();
            this
        })
        .collect::<Vec<_>>();
    tags.remove(273);
    tags.long(273, offsets)?;
    let mut header = form.start().to_vec();
    tags.write(form, &mut header, 0)?;

    out.write_all(&header)
        .and_then(|()| strips.iter().try_for_each(|strip| out.write_all(strip)))
        .map_err(io_error)
}
