//! Stub.

use std::sync::Arc;

use super::RasterReader;
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    session::Session,
};

pub(crate) async fn open(_session: &Session, location: &Location) -> Result<Arc<dyn RasterReader>> {
    Err(Error::new(
        ErrorKind::Unsupported,
        "built without the `async-tiff` feature",
    )
    .at(location))
}
