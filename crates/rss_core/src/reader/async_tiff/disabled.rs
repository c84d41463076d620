//! Replaces the async-tiff backend in builds without the feature `async-tiff`.

use std::sync::Arc;

use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    reader::RasterReader,
    session::Session,
};

pub(super) async fn open(_session: &Session, location: &Location) -> Result<Arc<dyn RasterReader>> {
    let message = "built without the `async-tiff` feature";
    Err(Error::new(ErrorKind::Unsupported, message).at(location))
}
