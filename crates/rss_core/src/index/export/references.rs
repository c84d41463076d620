//! The JSON of kerchunk references, written key by key.

use std::io::{self, Write};

use serde_json::Value;

/// References that are being written: version 1 of the
/// [reference specification](https://fsspec.github.io/kerchunk/spec.html).
pub(super) struct References<W: Write> {
    out: W,
    is_first: bool,
}

impl<W: Write> References<W> {
    pub(super) fn new(mut out: W) -> io::Result<Self> {
        out.write_all(br#"{"version":1,"refs":{"#)?;
        Ok(Self {
            out,
            is_first: true,
        })
    }

    /// Writes a key whose value is JSON.
    pub(super) fn json(&mut self, key: &str, value: &Value) -> io::Result<()> {
        self.text(key, &value.to_string())
    }

    /// Writes a key whose value is bytes.
    pub(super) fn bytes(&mut self, key: &str, bytes: &[u8]) -> io::Result<()> {
        self.text(key, &format!("base64:{}", base64(bytes)))
    }

    /// Writes a key whose value is a byte range of a file.
    pub(super) fn range(
        &mut self,
        key: &str,
        url: &str,
        offset: u64,
        length: u64,
    ) -> io::Result<()> {
        self.key(key)?;
        self.out.write_all(b"[")?;
        serde_json::to_writer(&mut self.out, url)?;
        write!(self.out, ",{offset},{length}]")
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

/// See [RFC 4648](https://www.rfc-editor.org/rfc/rfc4648#section-4).
pub(super) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for index in 0..4 {
            let letter = usize::try_from(bits >> (18 - 6 * index) & 63).unwrap_or(0);
            match LETTERS.get(letter) {
                Some(&letter) if index <= group.len() => out.push(char::from(letter)),
                _ => out.push('='),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (text, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(base64(text.as_bytes()), coded);
        }
    }

    #[test]
    fn keys_and_addresses_are_quoted() {
        let mut out = Vec::new();
        let mut refs = References::new(&mut out).unwrap();
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
