//! The report of a computation, and the inputs that it lacks.

use std::fmt;

use crate::{
    error::{Error, ErrorKind},
    geo::Window,
};

/// An input that could not be read, though the catalogue lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingInput {
    /// The item's id.
    pub item: String,
    /// The asset's key.
    pub asset: String,
    /// The block, in pixels of the cube's grid; none if the complete image is missing.
    pub window: Option<Window>,
    /// The kind of the error.
    pub kind: ErrorKind,
    /// The message of the error.
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

/// The report of a computation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ApplyReport {
    /// Blocks that were computed.
    pub blocks: u64,
    /// Inputs that could not be read, in the order of the blocks.
    pub missing_inputs: Vec<MissingInput>,
}

/// Returns an error whose message names item, asset and block.
pub(super) fn named(err: &Error, item: &str, asset: &str, window: Option<&Window>) -> Error {
    let block = window.map(|window| format!(", block {window}"));
    let block = block.unwrap_or_default();
    let message = format!("item {item}, asset {asset}{block}: {}", err.message());
    said_again(err, message)
}

/// Returns an error with another message, of the same kind and location.
pub(super) fn said_again(err: &Error, message: impl Into<String>) -> Error {
    let again = Error::new(err.kind(), message);
    match err.location() {
        Some(location) => again.at(location),
        None => again,
    }
}
