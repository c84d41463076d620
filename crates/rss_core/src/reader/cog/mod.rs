//! The COG backend, feature `cog`: TIFF over `object_store`, with one request for the header and one for each run of
//! tiles.
//!
//! [`index`] parses the header: [`directory`] its tags, [`facts`] the properties of the file ([`geokeys`]
//! its CRS), [`level`] the layout of an image, and [`locate`] finds in its tables ([`table`]) the byte ranges of its
//! tiles. [`plan`] selects the tiles of a window, `store` fetches their bytes, [`decode`] decodes them to
//! samples ([`codec`] undoes the compression, [`samples`] byte order and predictor). [`reader`] runs the
//! three in order. Only fetching waits; only `decode` touches pixels.

#[cfg(feature = "async-tiff")]
pub(super) use self::geokeys::{unit_of_citation, unit_of_code};
pub(crate) use self::reader::{open, open_entry};

use crate::{
    error::{Error, ErrorKind},
    reader::Profile,
};

mod codec;
mod datums;
mod decode;
mod directory;
mod facts;
#[cfg(fuzzing)]
pub mod fuzzing;
mod geokeys;
mod index;
mod keys;
mod known;
mod level;
mod locate;
mod plan;
mod projections;
mod reader;
pub(super) mod samples;
mod table;

/// The source of the error that [`open`] returns for a file of another format.
#[derive(Debug)]
struct OtherFormat {
    /// True if the file says which.
    is_known: bool,
}

impl std::error::Error for OtherFormat {}

impl std::fmt::Display for OtherFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not a TIFF")
    }
}

/// The source of an error that no other backend may answer in place of this one.
#[derive(Debug)]
struct Final;

impl std::error::Error for Final {}

impl std::fmt::Display for Final {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not for another backend")
    }
}

fn not_a_tiff(why: impl std::fmt::Display, is_known: bool) -> Error {
    Error::new(ErrorKind::Corrupt, format!("not a TIFF: {why}"))
        .with_source(OtherFormat { is_known })
}

/// Returns true for an error that bytes which were damaged on the way could be the reason of: then the file is asked for
/// once more. One that says that it is of another format is whole.
fn may_be_damaged(err: &Error) -> bool {
    match source_of::<OtherFormat>(err) {
        Some(other) => !other.is_known,
        None => matches!(err.kind(), ErrorKind::Corrupt | ErrorKind::Changed),
    }
}

/// Returns true if this backend failed on a file that another one may read. See docs/decisions/006-auto-backend.md.
pub(crate) fn is_for_others(err: &Error) -> bool {
    matches!(err.kind(), ErrorKind::Unsupported | ErrorKind::Corrupt)
        && source_of::<Final>(err).is_none()
}

/// Returns why a file that was opened has no CRS, though it states one: then GDAL may know it.
pub(crate) fn unknown_crs(profile: &Profile) -> Option<Error> {
    let why = facts::unknown_crs(profile)?;
    Some(Error::new(ErrorKind::Unsupported, why))
}

/// Returns true if [`open`] failed on a file that is no TIFF.
pub(crate) fn is_other_format(err: &Error) -> bool {
    source_of::<OtherFormat>(err).is_some()
}

/// Makes an error that no other backend may answer: of a bound, which GDAL does not have, or of damage that others read
/// as pixels.
fn last_word(kind: ErrorKind, message: impl Into<String>) -> Error {
    Error::new(kind, message).with_source(Final)
}

/// Returns the error of this type among the causes of `err`.
fn source_of<T: std::error::Error + 'static>(err: &Error) -> Option<&T> {
    let first = std::error::Error::source(err);
    std::iter::successors(first, |err| err.source()).find_map(|err| err.downcast_ref())
}
