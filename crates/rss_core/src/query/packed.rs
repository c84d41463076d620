//! Long texts inside of other files: compressed, in characters that XML and JSON hold without escapes.

use libdeflater::{CompressionLvl, Compressor, Decompressor};

use crate::error::{Error, ErrorKind, Result};

/// The largest text that is unpacked: a file of others states its length.
const MOST_BYTES: usize = 1 << 30;
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Returns a text as `LENGTH:` and the base64 of its zlib stream.
pub fn packed(text: &str) -> String {
    let mut compressor = Compressor::new(CompressionLvl::best());
    let mut bytes = vec![0; compressor.zlib_compress_bound(text.len())];
    // A buffer of that size holds any result.
    let length = compressor.zlib_compress(text.as_bytes(), &mut bytes);
    bytes.truncate(length.unwrap_or(0));
    let mut out = format!("{}:", text.len());
    for three in bytes.chunks(3) {
        let bits = three
            .iter()
            .fold(0_u32, |bits, &byte| (bits << 8) | u32::from(byte))
            << (8 * (3 - three.len()));
        for at in 0..4 {
            let letter = LETTERS[usize::try_from((bits >> (18 - 6 * at)) & 63).unwrap_or(0)];
            out.push(if at > three.len() {
                '='
            } else {
                char::from(letter)
            });
        }
    }
    out
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
    let mut bytes = Vec::with_capacity(letters.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for letter in letters.trim_end_matches('=').bytes() {
        let place = LETTERS.iter().position(|&one| one == letter);
        let place = place
            .and_then(|place| u32::try_from(place).ok())
            .ok_or_else(wrong)?;
        (bits, count) = ((bits << 6) | place, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 255).unwrap_or(0));
            bits &= (1 << count) - 1;
        }
    }
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
            assert!(
                packed
                    .bytes()
                    .all(|byte| byte == b':' || byte == b'=' || LETTERS.contains(&byte))
            );
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
