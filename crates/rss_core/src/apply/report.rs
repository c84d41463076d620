//! How the work went.

use std::fmt;

use crate::{
    error::{Error, ErrorKind},
    geo::Window,
};

/// Pixels of an image that are missing, though the catalogue lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingInput {
    /// The item's id.
    pub item: String,
    /// The asset's key.
    pub asset: String,
    /// The block, in pixels of the cube's grid; none is all of the image.
    pub window: Option<Window>,
    /// What kind of error it is.
    pub kind: ErrorKind,
    /// What the reader said.
    pub message: String,
}

impl MissingInput {
    pub(super) fn new(item: &str, asset: &str, window: Option<Window>, err: &Error) -> Self {
        Self {
            item: item.to_owned(),
            asset: asset.to_owned(),
            window,
            kind: err.kind(),
            message: err.to_string(),
        }
    }
}

impl fmt::Display for MissingInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "item {}, asset {}", self.item, self.asset)?;
        if let Some(window) = &self.window {
            write!(f, ", block {window}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// How the work went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApplyReport {
    /// Blocks that were computed.
    pub blocks: u64,
    /// Pixels of images that are missing, in the order of the blocks.
    pub missing_inputs: Vec<MissingInput>,
}

/// Names what could not be read.
pub(super) fn named(err: &Error, item: &str, asset: &str, window: Option<&Window>) -> Error {
    let block = window.map(|window| format!(", block {window}"));
    let block = block.unwrap_or_default();
    let message = format!("item {item}, asset {asset}{block}: {}", err.message());
    said_again(err, message)
}

/// Returns an error of the same kind and place.
pub(super) fn said_again(err: &Error, message: impl Into<String>) -> Error {
    let again = Error::new(err.kind(), message);
    match err.location() {
        Some(location) => again.at(location),
        None => again,
    }
}
