//! Extension points of Zarr metadata: a name and its configuration.

use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind, Result};

/// A codec, a chunk grid or a chunk key encoding of the metadata.
#[derive(Debug)]
pub(crate) struct Extension<'a> {
    pub(crate) name: &'a str,
    pub(crate) configuration: &'a Value,
}

impl<'a> Extension<'a> {
    /// Reads an extension: an object with a name, or the name alone.
    pub(crate) fn parse(value: &'a Value, what: &str) -> Result<Self> {
        static NONE: Value = Value::Null;
        let (name, configuration) = match value {
            Value::String(name) => (Some(name.as_str()), &NONE),
            Value::Object(object) => (
                object.get("name").and_then(Value::as_str),
                object.get("configuration").unwrap_or(&NONE),
            ),
            _ => (None, &NONE),
        };
        let name =
            name.ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("{what} without a name")))?;
        Ok(Self {
            name,
            configuration,
        })
    }

    /// Returns a string of the configuration.
    pub(crate) fn text(&self, key: &str) -> Option<&'a str> {
        self.configuration.get(key).and_then(Value::as_str)
    }

    /// Returns a compression level of the configuration, or the default one.
    pub(crate) fn level(&self, key: &str, usual: i32) -> i32 {
        let level = self.configuration.get(key).and_then(Value::as_i64);
        level
            .and_then(|level| level.try_into().ok())
            .unwrap_or(usual)
    }

    /// Returns lengths of the configuration, one for each axis, none of them 0.
    pub(crate) fn lengths(&self, key: &str, rank: usize) -> Result<Vec<u64>> {
        lengths(self.configuration.get(key), rank)
            .filter(|lengths| !lengths.contains(&0))
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Corrupt,
                    format!("`{key}` of `{}` is not {rank} lengths", self.name),
                )
            })
    }
}

/// Reads a list of extensions.
pub(crate) fn list<'a>(value: &'a Value, what: &str) -> Result<Vec<Extension<'a>>> {
    let Value::Array(values) = value else {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!("`{what}` is not a list"),
        ));
    };
    values
        .iter()
        .map(|value| Extension::parse(value, what))
        .collect()
}

/// Reads a list of one non-negative integer for each axis.
pub(crate) fn lengths(value: Option<&Value>, rank: usize) -> Option<Vec<u64>> {
    let lengths: Option<Vec<u64>> = value?.as_array()?.iter().map(Value::as_u64).collect();
    lengths.filter(|lengths| lengths.len() == rank)
}

/// The members of a JSON object.
pub(crate) type Members = Map<String, Value>;
