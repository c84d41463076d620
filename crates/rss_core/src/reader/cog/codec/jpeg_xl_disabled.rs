//! Replaces the JPEG XL decoder in builds without the feature `jpeg-xl`.

use crate::{
    error::{Error, ErrorKind, Result},
    reader::cog::level::Level,
};

pub(super) fn unpack(_: &Level, _: bool, _: &[u8], _: usize, _: &mut Vec<u8>) -> Result<()> {
    Err(Error::new(
        ErrorKind::Unsupported,
        "JPEG XL: built without the `jpeg-xl` feature",
    ))
}
