//! The COG backend: TIFF over `object_store`, with one request for the header and one for each run of
//! tiles.
//!
//! [`index`] understands the header, [`plan`] chooses the bytes, [`gather`] fetches them, [`decode`]
//! turns them into samples ([`codec`] undoes the compression, [`samples`] byte order and predictor,
//! [`canvas`] is where they go). Only `gather` waits; only `decode` touches pixels.

pub(crate) use self::inner::open;

use crate::error::Error;

const NOT_A_TIFF: &str = "not a TIFF: it starts with neither II nor MM";

#[cfg(not(feature = "async-tiff"))]
#[path = "disabled.rs"]
mod inner;
#[cfg(feature = "async-tiff")]
#[path = "enabled.rs"]
mod inner;

#[cfg(feature = "async-tiff")]
mod canvas;
#[cfg(feature = "async-tiff")]
mod codec;
#[cfg(feature = "async-tiff")]
mod decode;
#[cfg(all(fuzzing, feature = "async-tiff"))]
pub mod fuzzing;
#[cfg(feature = "async-tiff")]
mod gather;
#[cfg(feature = "async-tiff")]
mod index;
#[cfg(feature = "async-tiff")]
mod plan;
#[cfg(feature = "async-tiff")]
mod samples;

/// Returns true if [`open`] failed on what another format may be.
pub(crate) fn is_other_format(err: &Error) -> bool {
    err.message() == NOT_A_TIFF
}
