//! The [NPY format, version 1.0](https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).

use std::io::Write;

use super::io_error;
use crate::{
    error::Result,
    raster::{DataType, Raster},
};

const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";
/// The alignment of the samples in bytes, so that the file can be memory-mapped; required by the format.
const ALIGNMENT: usize = 64;

pub(super) fn write(raster: &Raster, out: &mut impl Write) -> Result<()> {
    let header = header(raster.pixels.dtype(), &raster.pixels.shape());
    out.write_all(&header)
        .and_then(|()| raster.pixels.write_le(out))
        .map_err(io_error)
}

/// Returns the header for samples of a dtype and shape.
pub(super) fn header(dtype: DataType, shape: &[usize]) -> Vec<u8> {
    let descr = match dtype {
        DataType::U8 => "|u1",
        DataType::I8 => "|i1",
        DataType::U16 => "<u2",
        DataType::I16 => "<i2",
        DataType::U32 => "<u4",
        DataType::I32 => "<i4",
        DataType::U64 => "<u8",
        DataType::I64 => "<i8",
        DataType::F32 => "<f4",
        DataType::F64 => "<f8",
        DataType::C64 => "<c8",
        DataType::C128 => "<c16",
    };
    let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
    let mut text = format!(
        "{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}), }}",
        shape.join(", ")
    );
    let before = MAGIC.len() + 2;
    let padded = (before + text.len() + 1).next_multiple_of(ALIGNMENT);
    text.extend(std::iter::repeat_n(' ', padded - before - text.len() - 1));
    text.push('\n');
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    [MAGIC, &length.to_le_bytes(), text.as_bytes()].concat()
}
