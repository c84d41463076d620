//! The groups and arrays of a hierarchy that others wrote, of Zarr v3 or v2: from consolidated metadata where there is
//! some, else by listing.

use std::{borrow::Cow, collections::BTreeMap, sync::LazyLock};

use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;

use super::{
    Array, Storage, below,
    extension::{Members, check_group},
    json_number,
    metadata::shape_of,
    number_of, parse, text,
};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::{DataType, Number},
};

/// Groups below groups that are listed.
const MOST_DEPTH: usize = 8;
/// Groups and arrays of a hierarchy.
const MOST_NODES: usize = 10_000;
/// Documents that are read at once.
const AT_ONCE: usize = 16;

/// Integers with and without a sign: their names, those of v2, and their types.
const INTEGERS: [([&str; 2], [&str; 2], [DataType; 2]); 4] = [
    (
        ["int8", "uint8"],
        ["i1", "u1"],
        [DataType::I8, DataType::U8],
    ),
    (
        ["int16", "uint16"],
        ["i2", "u2"],
        [DataType::I16, DataType::U16],
    ),
    (
        ["int32", "uint32"],
        ["i4", "u4"],
        [DataType::I32, DataType::U32],
    ),
    (
        ["int64", "uint64"],
        ["i8", "u8"],
        [DataType::I64, DataType::U64],
    ),
];

/// Returns the integer of the same bits in a type of the other sign, if the type does not hold the number as it is.
pub(crate) fn with_sign_of(number: Number, dtype: DataType) -> Number {
    let is_integer = INTEGERS.iter().any(|(.., types)| types.contains(&dtype));
    let Some(integer) = number
        .as_integer()
        .filter(|_| is_integer && !dtype.holds(number))
    else {
        return number;
    };
    let count = 1_i128 << (8 * dtype.size());
    if !(-count / 2..count).contains(&integer) {
        return number;
    }
    // Of a type without a sign the number is negative, of one with a sign past its half.
    let other = if integer < 0 {
        integer + count
    } else {
        integer - count
    };
    let unsigned = u64::try_from(other).map(Number::from);
    unsigned.unwrap_or_else(|_| i64::try_from(other).map_or(number, Number::from))
}

/// The metadata of an array, as its version has it.
#[derive(Clone, Debug)]
pub(crate) enum Document {
    V3(Value),
    /// `.zarray` and `.zattrs`.
    V2(Value, Members),
}

impl Document {
    /// Returns the attributes.
    pub(crate) fn attributes(&self) -> &Members {
        static NONE: LazyLock<Members> = LazyLock::new(Members::new);
        match self {
            Self::V3(document) => document
                .get("attributes")
                .and_then(Value::as_object)
                .unwrap_or(&NONE),
            Self::V2(_, attributes) => attributes,
        }
    }

    /// Returns the length of each axis.
    pub(crate) fn shape(&self) -> Result<Vec<u64>> {
        match self {
            Self::V3(document) | Self::V2(document, _) => shape_of(document),
        }
    }

    /// Returns the name of each axis, if all have one.
    pub(crate) fn dimensions(&self) -> Option<Vec<String>> {
        let names = match self {
            Self::V3(document) => document.get("dimension_names").filter(|v| !v.is_null()),
            Self::V2(..) => None,
        };
        let names = names.or_else(|| self.attributes().get("_ARRAY_DIMENSIONS"))?;
        let names = names.as_array()?.iter();
        let names: Vec<String> = names
            .map(|name| name.as_str().map(str::to_owned))
            .collect::<Option<_>>()?;
        let rank = self.shape().ok()?.len();
        Some(names).filter(|names| names.len() == rank)
    }

    /// Returns the fill value of an array of Zarr v2, which is what marks missing samples there.
    pub(crate) fn fill_v2(&self) -> Option<&Value> {
        match self {
            Self::V2(document, _) => document.get("fill_value").filter(|v| !v.is_null()),
            Self::V3(_) => None,
        }
    }

    /// Returns the metadata with the integer type of the other sign where the attribute
    /// [`_Unsigned`](https://docs.unidata.ucar.edu/nug/current/best_practices.html) says so: the bytes are the same.
    pub(crate) fn with_stated_sign(&self) -> Cow<'_, Self> {
        let unsigned = match self.attributes().get("_Unsigned") {
            Some(Value::String(text)) => text.eq_ignore_ascii_case("true"),
            Some(Value::Bool(unsigned)) => *unsigned,
            _ => return Cow::Borrowed(self),
        };
        let mut other = self.clone();
        let (document, key) = match &mut other {
            Self::V3(document) => (document, "data_type"),
            Self::V2(document, _) => (document, "dtype"),
        };
        let name = document
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default();
        let (order, kind) = match name.split_at_checked(1) {
            Some((order @ ("<" | ">" | "|"), kind)) => (order, kind),
            _ => ("", name),
        };
        let (from, to) = (usize::from(!unsigned), usize::from(unsigned));
        let found = INTEGERS.iter().find_map(|(names, short, types)| {
            let names = if order.is_empty() { names } else { short };
            (names[from] == kind).then(|| (format!("{order}{}", names[to]), types[to]))
        });
        let Some((name, dtype)) = found else {
            return Cow::Borrowed(self);
        };
        document[key] = name.into();
        let fill = document.get("fill_value").and_then(number_of);
        if let Some(fill) = fill {
            document["fill_value"] = json_number(with_sign_of(fill, dtype));
        }
        Cow::Owned(other)
    }

    /// Opens the array.
    pub(crate) fn open(&self, storage: &Storage, path: &str) -> Result<Array> {
        match self {
            Self::V3(document) => Array::of_document(storage.clone(), path, document),
            Self::V2(document, attributes) => {
                let attributes = Value::Object(attributes.clone());
                Array::of_document_v2(storage.clone(), path, document, Some(&attributes))
            }
        }
    }

    /// Reads the texts of an array of one axis, or of none; none if its elements are no texts.
    ///
    /// # Errors
    ///
    /// As [`Array::open`] and [`Array::read`].
    pub(crate) async fn texts(&self, storage: &Storage, path: &str) -> Result<Option<Vec<String>>> {
        text::read(self, storage, path)
            .await
            .map_err(|err| match err.location() {
                Some(_) => err,
                None => err.at(storage.locate(path)),
            })
    }
}

/// The groups and arrays of a hierarchy by their paths; the root's is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hierarchy {
    /// The attributes of each group.
    pub(crate) groups: BTreeMap<String, Members>,
    pub(crate) arrays: BTreeMap<String, Document>,
}

fn attributes_of(document: &Value) -> Members {
    match document.get("attributes") {
        Some(Value::Object(attributes)) => attributes.clone(),
        _ => Members::new(),
    }
}

impl Hierarchy {
    /// Reads a hierarchy of Zarr v3 from its root's `zarr.json`.
    pub(crate) async fn of(storage: &Storage, root: &Value) -> Result<Self> {
        check_group(root)?;
        let mut tree = Self::default();
        tree.groups.insert(String::new(), attributes_of(root));
        let consolidated = root.pointer("/consolidated_metadata/metadata");
        match consolidated.and_then(Value::as_object) {
            Some(nodes) if !nodes.is_empty() => {
                for (path, document) in nodes {
                    tree.add(storage, path.trim_matches('/'), document.clone())?;
                }
            }
            _ => tree.walk(storage, Version::V3).await?,
        }
        Ok(tree)
    }

    /// Reads a hierarchy of Zarr v2; none if its root is no group.
    pub(crate) async fn of_v2(storage: &Storage) -> Result<Option<Self>> {
        let mut tree = Self::default();
        if let Some(document) = storage.read(".zmetadata").await? {
            let document = parse(&document)?;
            let nodes = document.get("metadata").and_then(Value::as_object);
            let nodes = nodes.ok_or_else(|| {
                Error::new(ErrorKind::Corrupt, ".zmetadata has no object `metadata`")
            })?;
            for (key, document) in nodes {
                let (path, name) = key.rsplit_once('/').unwrap_or(("", key));
                let attributes = || match nodes.get(&below(path, ".zattrs")) {
                    Some(Value::Object(attributes)) => attributes.clone(),
                    _ => Members::new(),
                };
                match name {
                    ".zgroup" => {
                        tree.groups.insert(path.to_owned(), attributes());
                    }
                    ".zarray" => {
                        let document = Document::V2(document.clone(), attributes());
                        tree.arrays.insert(path.to_owned(), document);
                    }
                    _ => {}
                }
            }
            if tree.groups.contains_key("") {
                return Ok(Some(tree));
            }
        }
        let Some(group) = storage.read(".zgroup").await? else {
            return Ok(None);
        };
        if parse(&group)?.get("zarr_format").and_then(Value::as_u64) != Some(2) {
            let message = "`zarr_format` of .zgroup is not 2";
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        let attributes = attributes_v2(storage, "").await?;
        tree.groups.insert(String::new(), attributes);
        tree.walk(storage, Version::V2).await?;
        Ok(Some(tree))
    }

    fn add(&mut self, storage: &Storage, path: &str, document: Value) -> Result<()> {
        if self.groups.len() + self.arrays.len() >= MOST_NODES {
            let message = format!("more than {MOST_NODES} groups and arrays: name a group below");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        match document.get("node_type").and_then(Value::as_str) {
            Some("array") => {
                self.arrays.insert(path.to_owned(), Document::V3(document));
            }
            _ => {
                check_group(&document).map_err(|err| err.at(storage.locate(path)))?;
                self.groups
                    .insert(path.to_owned(), attributes_of(&document));
            }
        }
        Ok(())
    }

    /// Lists what is below the groups that are known.
    async fn walk(&mut self, storage: &Storage, version: Version) -> Result<()> {
        let mut groups = vec![String::new()];
        for _ in 0..MOST_DEPTH {
            let mut found = Vec::new();
            for group in &groups {
                let names = storage.children(group).await?;
                let names = names.into_iter().filter(|name| !name.starts_with('.'));
                found.extend(names.map(|name| below(group, &name)));
            }
            let nodes: Vec<Option<(String, Node)>> = stream::iter(found)
                .map(|path| async move {
                    let node = match version {
                        Version::V3 => node(storage, &path).await?,
                        Version::V2 => node_v2(storage, &path).await?,
                    };
                    Ok::<_, Error>(node.map(|node| (path, node)))
                })
                .buffered(AT_ONCE)
                .try_collect()
                .await?;
            groups.clear();
            for (path, node) in nodes.into_iter().flatten() {
                match node {
                    Node::Document(document) => {
                        self.add(storage, &path, document)?;
                        if self.groups.contains_key(&path) {
                            groups.push(path);
                        }
                    }
                    Node::Array(document) => {
                        self.arrays.insert(path, document);
                    }
                    Node::Group(attributes) => {
                        self.groups.insert(path.clone(), attributes);
                        groups.push(path);
                    }
                }
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Version {
    V2,
    V3,
}

enum Node {
    /// `zarr.json` of either.
    Document(Value),
    Array(Document),
    Group(Members),
}

async fn node(storage: &Storage, path: &str) -> Result<Option<Node>> {
    let document = storage.read(&below(path, "zarr.json")).await?;
    let document = document.map(|bytes| parse(&bytes)).transpose();
    let document = document.map_err(|err| err.at(storage.locate(path)))?;
    Ok(document.map(Node::Document))
}

async fn node_v2(storage: &Storage, path: &str) -> Result<Option<Node>> {
    if let Some(document) = storage.read(&below(path, ".zarray")).await? {
        let document = parse(&document).map_err(|err| err.at(storage.locate(path)))?;
        let attributes = attributes_v2(storage, path).await?;
        return Ok(Some(Node::Array(Document::V2(document, attributes))));
    }
    if storage.read(&below(path, ".zgroup")).await?.is_none() {
        return Ok(None);
    }
    Ok(Some(Node::Group(attributes_v2(storage, path).await?)))
}

async fn attributes_v2(storage: &Storage, path: &str) -> Result<Members> {
    let attributes = storage.read(&below(path, ".zattrs")).await?;
    let attributes = attributes.map(|bytes| parse(&bytes)).transpose();
    match attributes.map_err(|err| err.at(storage.locate(path)))? {
        Some(Value::Object(attributes)) => Ok(attributes),
        _ => Ok(Members::new()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn integers_of_the_other_sign_keep_their_bits() {
        let document = |name: &str, fill: Value, unsigned: Value| {
            let attributes = json!({"_Unsigned": unsigned});
            Document::V3(json!({"data_type": name, "fill_value": fill, "attributes": attributes}))
        };
        let said = |document: &Document| match document.with_stated_sign().into_owned() {
            Document::V3(said) => (said["data_type"].clone(), said["fill_value"].clone()),
            Document::V2(said, _) => (said["dtype"].clone(), said["fill_value"].clone()),
        };
        for (name, fill, unsigned, expected) in [
            (
                "int8",
                json!(-1),
                json!("true"),
                (json!("uint8"), json!(255)),
            ),
            (
                "int16",
                json!(-32768),
                json!("true"),
                (json!("uint16"), json!(32768)),
            ),
            (
                "int64",
                json!(-1),
                json!(true),
                (json!("uint64"), json!(u64::MAX)),
            ),
            (
                "int16",
                json!(7),
                json!("True"),
                (json!("uint16"), json!(7)),
            ),
            (
                "uint8",
                json!(255),
                json!("false"),
                (json!("int8"), json!(-1)),
            ),
            (
                "uint8",
                json!(255),
                json!("true"),
                (json!("uint8"), json!(255)),
            ),
            (
                "float32",
                json!(-1.0),
                json!("true"),
                (json!("float32"), json!(-1.0)),
            ),
        ] {
            assert_eq!(said(&document(name, fill, unsigned)), expected, "{name}");
        }
        let attributes = Members::from_iter([("_Unsigned".to_owned(), json!("true"))]);
        let document = Document::V2(json!({"dtype": "<i2", "fill_value": -1}), attributes);
        assert_eq!(said(&document), (json!("<u2"), json!(65535)));
    }
}
