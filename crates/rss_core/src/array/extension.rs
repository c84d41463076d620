//! Extension points of Zarr metadata: a name and its configuration, and what need not be understood.
//!
//! [Extensions](https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html#extensions): what is not known is an
//! error, unless it says `"must_understand": false`.

use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind, Result};

/// A data type, a codec, a chunk grid, a chunk key encoding or a storage transformer of the metadata.
#[derive(Debug)]
pub(crate) struct Extension<'a> {
    pub(crate) name: &'a str,
    pub(crate) configuration: &'a Value,
    /// Whether a reader that does not know it may go on without it.
    pub(crate) is_optional: bool,
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
        let corrupt = |what: String| Error::new(ErrorKind::Corrupt, what);
        let name = name.ok_or_else(|| corrupt(format!("{what} without a name")))?;
        let is_optional = match value.get(MUST_UNDERSTAND) {
            None => false,
            Some(Value::Bool(must)) => !must,
            Some(other) => {
                return Err(corrupt(format!(
                    "`{MUST_UNDERSTAND}` of `{name}` is {other}, expected true or false"
                )));
            }
        };
        Ok(Self {
            name,
            configuration,
            is_optional,
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

/// Checks that each member of a document is known, or says that it need not be understood.
///
/// # Errors
///
/// [`ErrorKind::Unsupported`], which names the first that is not.
pub(crate) fn check_members(document: &Value, known: &[&str]) -> Result<()> {
    let unknown = document
        .as_object()
        .into_iter()
        .flatten()
        .find(|(name, value)| {
            let may_be_ignored = value.get(MUST_UNDERSTAND).and_then(Value::as_bool) == Some(false);
            !known.contains(&name.as_str()) && !may_be_ignored
        });
    match unknown {
        None => Ok(()),
        Some((name, _)) => Err(Error::new(
            ErrorKind::Unsupported,
            format!("`{name}` of its metadata must be understood, and is not known"),
        )),
    }
}

/// Checks the `zarr.json` of a group.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`] if it is no group of Zarr v3, [`ErrorKind::Unsupported`] naming a member that must be
/// understood and is not.
pub(crate) fn check_group(document: &Value) -> Result<()> {
    let corrupt = |what: &str| Err(Error::new(ErrorKind::Corrupt, what));
    if document.get("zarr_format").and_then(Value::as_u64) != Some(3) {
        return corrupt("`zarr_format` is not 3");
    }
    if document.get("node_type").and_then(Value::as_str) != Some("group") {
        return corrupt("`node_type` is not group");
    }
    check_members(
        document,
        &[
            "zarr_format",
            "node_type",
            "attributes",
            "consolidated_metadata",
        ],
    )
}

/// The key by which an extension says whether it must be understood; it must where the key is not there.
const MUST_UNDERSTAND: &str = "must_understand";

/// The members of a JSON object.
pub(crate) type Members = Map<String, Value>;
