//! Replaces the COG backend in builds without the feature `cog`.

use std::sync::Arc;

use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    reader::{Entry, Profile, RasterReader},
    session::Session,
};

pub(crate) async fn open(
    _session: &Session,
    location: &Location,
    _header_bytes: Option<u64>,
    _once: bool,
) -> Result<Arc<dyn RasterReader>> {
    Err(without(location))
}

pub(crate) async fn open_entry(_session: &Session, entry: &Entry) -> Result<Arc<dyn RasterReader>> {
    Err(without(&entry.location))
}

fn without(location: &Location) -> Error {
    let message = "built without the `cog` feature";
    Error::new(ErrorKind::Unsupported, message).at(location)
}

/// Returns true if [`open`] failed on a file that another backend may read.
pub(crate) fn is_for_others(err: &Error) -> bool {
    err.kind() == ErrorKind::Unsupported
}

pub(crate) fn is_other_format(_: &Error) -> bool {
    false
}

pub(crate) fn unknown_crs(_: &Profile) -> Option<Error> {
    None
}
