//! Stands in for the COG backend in builds without it.

use std::sync::Arc;

use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    reader::RasterReader,
    session::Session,
};

pub(crate) async fn open(
    _session: &Session,
    location: &Location,
    _header_bytes: Option<u64>,
) -> Result<Arc<dyn RasterReader>> {
    Err(Error::new(
        ErrorKind::Unsupported,
        "built without the `async-tiff` feature",
    )
    .at(location))
}
