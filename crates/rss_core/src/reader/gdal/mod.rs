//! Stub.

use std::{path::Path, sync::Arc};

use super::RasterReader;
use crate::{
    error::{Error, ErrorKind, Result},
    geo::Crop,
    location::Location,
    session::Session,
};

pub(crate) async fn open(_session: &Session, location: &Location) -> Result<Arc<dyn RasterReader>> {
    Err(Error::new(ErrorKind::Unsupported, "built without the `gdal` feature").at(location))
}

/// Stub.
pub(crate) async fn translate(
    _session: &Session,
    from: &Location,
    _to: &Path,
    _crop: Option<&Crop>,
    _progress: &(dyn Fn(f64) + Sync),
) -> Result<()> {
    Err(Error::new(ErrorKind::Unsupported, "built without the `gdal` feature").at(from))
}

/// Stub.
pub(crate) fn configure_path(_session: &Session, _location: &Location) -> Result<()> {
    Ok(())
}
