//! The manifest of a cube: length and checksum of each shard, and a copy of all metadata, in objects below `.rss/` that other
//! readers of Zarr leave alone. `docs/decisions/009-cube-manifest.md` has its form and the order in which it is written.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    array::{Sum, seal, unseal},
    error::{Error, ErrorKind, Result},
};

/// The root's attribute that names the parts of the manifest.
pub(super) const MANIFEST: &str = "rss:manifest";
/// The field of a journal that is that of a repair.
pub(super) const REPAIRS: &str = "repairs";
/// The folder of the manifest.
pub(super) const FOLDER: &str = ".rss/";

/// The shards of a write as they were stored: their keys, lengths and checksums.
#[derive(Debug, Default)]
pub(super) struct Tally(Mutex<BTreeMap<String, Sum>>);

impl Tally {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Sum>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a shard that was written; none if it holds nothing but the fill value and was removed.
    pub(super) fn note(&self, key: String, sum: Option<Sum>) {
        match sum {
            Some(sum) => self.all().insert(key, sum),
            None => self.all().remove(&key),
        };
    }

    /// Returns the shard of a key.
    pub(super) fn get(&self, key: &str) -> Option<Sum> {
        self.all().get(key).copied()
    }

    /// Returns all shards.
    pub(super) fn shards(&self) -> BTreeMap<String, Sum> {
        self.all().clone()
    }
}

/// One part of a manifest: the shards of one write. Those that an append replaces are in its part, too, which comes later.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Counted from 0.
    pub(super) number: usize,
    /// Time steps of the cube before the write.
    pub(super) from: usize,
    pub(super) shards: BTreeMap<String, Sum>,
}

impl Part {
    /// Returns its object, and the root's words of it.
    pub(super) fn object(&self) -> Result<(String, Bytes, Value)> {
        let mut list = String::new();
        for (key, sum) in &self.shards {
            let line = json!([key, sum.length, format!("{:08x}", sum.crc32)]);
            list.push_str(&line.to_string());
            list.push('\n');
        }
        let (key, sealed) = (shards_key(self.number), seal(list.as_bytes())?);
        let stated = json!({
            "key": key,
            "from": self.from,
            "shards": self.shards.len(),
            "bytes": sealed.len(),
            "crc32": format!("{:08x}", Sum::of([&sealed]).crc32),
        });
        Ok((key, sealed, stated))
    }

    /// Reads the object of a part.
    pub(super) fn parse(stated: &StatedPart, bytes: &Bytes) -> Result<Self> {
        if Sum::of([bytes]) != stated.sum {
            return Err(Error::new(
                ErrorKind::Corrupt,
                "its checksum (crc32) is not that which the root states",
            ));
        }
        let shards = lines(&unseal(bytes)?, |line: (String, u64, String)| {
            let (key, length, crc32) = line;
            let crc32 = u32::from_str_radix(&crc32, 16).ok()?;
            Some((key, Sum { length, crc32 }))
        })?;
        Ok(Self {
            number: stated.number,
            from: stated.from,
            shards,
        })
    }
}

/// What the root says of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StatedPart {
    pub(super) number: usize,
    pub(super) key: String,
    pub(super) from: usize,
    pub(super) sum: Sum,
}

/// Returns the parts that the attribute of a root names, as they are in it.
pub(super) fn stated(attribute: Option<&Value>) -> Vec<Value> {
    let parts = attribute.and_then(|attribute| attribute.get("parts"));
    parts.and_then(Value::as_array).cloned().unwrap_or_default()
}

/// Returns the root's attribute.
pub(super) fn attribute(parts: &[Value]) -> Value {
    json!({"version": 1, "parts": parts})
}

/// Returns the parts that a root names; none if one cannot be read.
pub(super) fn parts_of(attribute: Option<&Value>) -> Option<Vec<StatedPart>> {
    let part = |(number, part): (usize, &Value)| {
        let crc32 = u32::from_str_radix(part.get("crc32")?.as_str()?, 16).ok()?;
        let key = part.get("key")?.as_str()?;
        (key == shards_key(number)).then_some(())?;
        Some(StatedPart {
            number,
            key: key.to_owned(),
            from: usize::try_from(part.get("from")?.as_u64()?).ok()?,
            sum: Sum {
                length: part.get("bytes")?.as_u64()?,
                crc32,
            },
        })
    };
    stated(attribute).iter().enumerate().map(part).collect()
}

fn shards_key(number: usize) -> String {
    format!("{FOLDER}shards-{number}.jsonl.zst")
}

/// Returns the key of the copy of all metadata after a write, counted from 0.
pub(super) fn metadata_key(number: usize) -> String {
    format!("{FOLDER}metadata-{number}.jsonl.zst")
}

/// Returns the number of a copy of metadata.
pub(super) fn metadata_number(key: &str) -> Option<usize> {
    let name = key.strip_prefix(FOLDER)?.strip_prefix("metadata-")?;
    name.strip_suffix(".jsonl.zst")?.parse().ok()
}

/// Returns the copy of metadata: each object with its key, by key.
pub(super) fn copy<'a>(objects: impl IntoIterator<Item = &'a (String, Bytes)>) -> Result<Bytes> {
    let mut list = String::new();
    let sorted: BTreeMap<&String, &Bytes> = objects
        .into_iter()
        .map(|(key, bytes)| (key, bytes))
        .collect();
    for (key, bytes) in sorted {
        let line = match str::from_utf8(bytes) {
            Ok(text) => json!([key, "text", text]),
            Err(_) => json!([key, "hex", crate::store::hex(bytes)]),
        };
        list.push_str(&line.to_string());
        list.push('\n');
    }
    seal(list.as_bytes())
}

/// Reads a [`copy`].
pub(super) fn copied(bytes: &[u8]) -> Result<BTreeMap<String, Bytes>> {
    lines(&unseal(bytes)?, |line: (String, String, String)| {
        let (key, kind, text) = line;
        let bytes = match kind.as_str() {
            "text" => Bytes::from(text),
            "hex" => unhex(&text)?.into(),
            _ => return None,
        };
        Some((key, bytes))
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}

/// Reads a list of one JSON value a line.
fn lines<L: serde::de::DeserializeOwned, T>(
    list: &[u8],
    of: impl Fn(L) -> Option<(String, T)>,
) -> Result<BTreeMap<String, T>> {
    let lines = list.split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty());
    let entry = |line: &[u8]| of(serde_json::from_slice(line).ok()?);
    let all: Option<BTreeMap<String, T>> = lines.map(entry).collect();
    all.ok_or_else(|| Error::new(ErrorKind::Corrupt, "a list of another form"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let sum = |length| Sum {
            length,
            crc32: 0x00ab_cdef,
        };
        let part = Part {
            number: 3,
            from: 16,
            shards: [("red/c/0/0/0", 9), ("red/c/0/0/1", 8)]
                .map(|(key, length)| (key.to_owned(), sum(length)))
                .into(),
        };
        let (_, bytes, stated) = part.object().unwrap();
        let mut all = vec![Value::Null; 3];
        all.push(stated);
        assert_eq!(
            parts_of(Some(&attribute(&all))),
            None,
            "others are no parts"
        );
        for (number, place) in all.iter_mut().enumerate().take(3) {
            let other = Part {
                number,
                ..part.clone()
            };
            *place = other.object().unwrap().2;
        }
        let parts = parts_of(Some(&attribute(&all))).unwrap();
        let again = Part::parse(&parts[3], &bytes).unwrap();
        assert_eq!((again.from, again.shards), (16, part.shards));
        let objects = [
            ("zarr.json".to_owned(), Bytes::from("{}\n")),
            ("x/c/0".to_owned(), Bytes::from(vec![0, 255, 128, 7])),
        ];
        let read = copied(&copy(&objects).unwrap()).unwrap();
        assert_eq!(read, BTreeMap::from(objects));
        assert_eq!(metadata_number(&metadata_key(12)), Some(12));
    }
}
