//! The COG backend: TIFF over `object_store`, with one request for the header and one for each run of
//! tiles.
//!
//! [`index`] understands the header: [`directory`] its tags, [`facts`] what it says of the whole file
//! ([`geokeys`] of the CRS), [`level`] how an image is laid out and, by its tables ([`table`]), where its
//! tiles lie. [`plan`] chooses the tiles of a window, `store` fetches their bytes, [`decode`] turns them
//! into samples ([`codec`] undoes the compression, [`samples`] byte order and predictor, [`canvas`] is
//! where they go). Only fetching waits; only `decode` touches pixels.

pub(crate) use self::inner::{open, open_entry};

use crate::error::{Error, ErrorKind};

#[cfg(not(feature = "async-tiff"))]
#[path = "disabled.rs"]
mod inner;
#[cfg(feature = "async-tiff")]
#[path = "enabled.rs"]
mod inner;

#[cfg(feature = "async-tiff")]
mod codec;
#[cfg(feature = "async-tiff")]
mod datums;
#[cfg(feature = "async-tiff")]
mod decode;
#[cfg(feature = "async-tiff")]
mod directory;
#[cfg(feature = "async-tiff")]
mod facts;
#[cfg(all(fuzzing, feature = "async-tiff"))]
pub mod fuzzing;
#[cfg(feature = "async-tiff")]
mod geokeys;
#[cfg(feature = "async-tiff")]
mod index;
#[cfg(feature = "async-tiff")]
mod known;
#[cfg(feature = "async-tiff")]
mod level;
#[cfg(feature = "async-tiff")]
mod plan;
#[cfg(feature = "async-tiff")]
mod projections;
#[cfg(feature = "async-tiff")]
mod samples;
#[cfg(feature = "async-tiff")]
mod table;

/// The source of the error that [`open`] returns for a file of another format.
#[derive(Debug)]
struct OtherFormat;

impl std::error::Error for OtherFormat {}

impl std::fmt::Display for OtherFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not a TIFF")
    }
}

#[cfg_attr(
    not(feature = "async-tiff"),
    expect(dead_code, reason = "only the reader says so")
)]
fn not_a_tiff(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("not a TIFF: {why}")).with_source(OtherFormat)
}

/// Returns true if [`open`] failed on what another backend may read.
pub(crate) fn is_for_others(err: &Error) -> bool {
    let is_other = |source: &(dyn std::error::Error + 'static)| source.is::<OtherFormat>();
    err.kind() == ErrorKind::Unsupported || std::error::Error::source(err).is_some_and(is_other)
}
