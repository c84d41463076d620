//! No columns: this build lacks the feature `arrow`.

use std::io::Write;

use super::Table;
use crate::error::{Error, ErrorKind, Result};

pub(super) fn check() -> Result<()> {
    let message = "this build writes no Parquet and Arrow: it lacks the feature `arrow`";
    Err(Error::new(ErrorKind::Unsupported, message))
}

pub(super) fn parquet(_: &Table, _: &mut impl Write) -> Result<()> {
    check()
}

pub(super) fn arrow(_: &Table, _: &mut impl Write) -> Result<()> {
    check()
}
