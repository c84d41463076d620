//! Replaces the GDAL backend in builds without the feature `gdal`.

use std::{path::Path, sync::Arc};

use crate::{
    error::{Error, ErrorKind, Result},
    geo::Crop,
    location::Location,
    reader::RasterReader,
    session::Session,
};

fn missing() -> Error {
    Error::new(ErrorKind::Unsupported, "built without the `gdal` feature")
}

pub(crate) async fn open(_session: &Session, location: &Location) -> Result<Arc<dyn RasterReader>> {
    Err(missing().at(location))
}

pub(crate) async fn translate(
    _session: &Session,
    from: &Location,
    _to: &Path,
    _crop: Option<&Crop>,
    _progress: &(dyn Fn(f64) + Sync),
) -> Result<()> {
    Err(missing().at(from))
}

/// Does nothing: this build does not link GDAL.
pub(crate) fn configure_path(_session: &Session, _location: &Location) -> Result<()> {
    Ok(())
}

pub(crate) fn hand_out(_session: &Session, location: &Location) -> Result<String> {
    Err(missing().at(location))
}

pub(crate) async fn clear_caches(_session: &Session) -> Result<()> {
    Ok(())
}
