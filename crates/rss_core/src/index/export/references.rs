//! Kerchunk references, written key by key; and the JSON of them.

use std::io::{self, Write};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;

/// References to chunks that are being written, array by array: the `.zarray` of each, then its chunks in the order of rows.
pub(super) trait References {
    /// Writes a key whose value is JSON.
    fn json(&mut self, key: &str, value: &Value) -> io::Result<()>;

    /// Writes a key whose value is bytes.
    fn bytes(&mut self, key: &str, bytes: &[u8]) -> io::Result<()>;

    /// Writes a key whose value is a byte range of a file.
    fn range(&mut self, key: &str, url: &str, offset: u64, length: u64) -> io::Result<()>;
}

/// Version 1 of the [reference specification](https://fsspec.github.io/kerchunk/spec.html), as one document.
pub(super) struct Document<W: Write> {
    out: W,
    is_first: bool,
}

impl<W: Write> Document<W> {
    pub(super) fn new(mut out: W) -> io::Result<Self> {
        out.write_all(br#"{"version":1,"refs":{"#)?;
        Ok(Self {
            out,
            is_first: true,
        })
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.out.write_all(b"\n}}\n")
    }

    fn text(&mut self, key: &str, text: &str) -> io::Result<()> {
        self.key(key)?;
        Ok(serde_json::to_writer(&mut self.out, text)?)
    }

    fn key(&mut self, key: &str) -> io::Result<()> {
        let before: &[u8] = if self.is_first { b"\n" } else { b",\n" };
        self.is_first = false;
        self.out.write_all(before)?;
        serde_json::to_writer(&mut self.out, key)?;
        self.out.write_all(b":")
    }
}

impl<W: Write> References for Document<W> {
    fn json(&mut self, key: &str, value: &Value) -> io::Result<()> {
        self.text(key, &value.to_string())
    }

    fn bytes(&mut self, key: &str, bytes: &[u8]) -> io::Result<()> {
        self.text(key, &format!("base64:{}", BASE64_STANDARD.encode(bytes)))
    }

    fn range(&mut self, key: &str, url: &str, offset: u64, length: u64) -> io::Result<()> {
        self.key(key)?;
        self.out.write_all(b"[")?;
        serde_json::to_writer(&mut self.out, url)?;
        write!(self.out, ",{offset},{length}]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_addresses_are_quoted() {
        let mut out = Vec::new();
        let mut refs = Document::new(&mut out).unwrap();
        refs.json(".zgroup", &serde_json::json!({"zarr_format": 2}))
            .unwrap();
        refs.range("a\"b/0.0", "s3://b/\"", 1, 2).unwrap();
        refs.bytes("t/0", &[0]).unwrap();
        refs.finish().unwrap();
        let value: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["version"], 1);
        assert_eq!(value["refs"][".zgroup"], r#"{"zarr_format":2}"#);
        assert_eq!(
            value["refs"]["a\"b/0.0"],
            serde_json::json!(["s3://b/\"", 1, 2])
        );
        assert_eq!(value["refs"]["t/0"], "base64:AA==");
    }
}
