//! Long texts inside of other files: compressed, in characters that XML and JSON hold without escapes.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use libdeflater::{CompressionLvl, Compressor, Decompressor};

use crate::error::{Error, ErrorKind, Result};

/// The largest text that is unpacked: a file of others states its length.
const MOST_BYTES: usize = 1 << 30;

/// Returns a text as `LENGTH:` and the base64 of its zlib stream.
pub fn packed(text: &str) -> String {
    let mut compressor = Compressor::new(CompressionLvl::best());
    let mut bytes = vec![0; compressor.zlib_compress_bound(text.len())];
    // A buffer of that size holds any result.
    let length = compressor.zlib_compress(text.as_bytes(), &mut bytes);
    bytes.truncate(length.unwrap_or(0));
    format!("{}:{}", text.len(), BASE64_STANDARD.encode(bytes))
}

/// Returns the text that [`packed`] packed.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`] for another text.
pub fn unpacked(packed: &str) -> Result<String> {
    let wrong = || Error::new(ErrorKind::Corrupt, "a packed text is damaged");
    let (length, letters) = packed.trim().split_once(':').ok_or_else(wrong)?;
    let length: usize = length.parse().map_err(|_| wrong())?;
    // zlib cannot compress by more than 1032.
    if length > MOST_BYTES || length / 1032 > letters.len() {
        return Err(wrong());
    }
    let bytes = BASE64_STANDARD.decode(letters).map_err(|_| wrong())?;
    let mut text = vec![0; length];
    let found = Decompressor::new().zlib_decompress(&bytes, &mut text);
    if found != Ok(length) {
        return Err(wrong());
    }
    String::from_utf8(text).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_unpacked_as_it_was_packed() {
        for length in [0, 1, 2, 3, 4, 5, 100, 5000] {
            let text: String = (0..length)
                .map(|at| ['a', 'ä', '<', '7'][at * at % 4])
                .collect();
            let packed = packed(&text);
            assert!(!packed.contains(['<', '>', '&', '"', '\'']));
            assert_eq!(unpacked(&packed).unwrap(), text);
        }
        for damaged in [
            "",
            "5",
            "5:",
            "99999999999:eJw=",
            "3:####",
            "9:eJwDAAAAAAE=",
        ] {
            assert_eq!(
                unpacked(damaged).unwrap_err().kind(),
                ErrorKind::Corrupt,
                "{damaged}"
            );
        }
    }
}
