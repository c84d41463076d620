//! The checksums that a catalogue states for files, as multihashes, and the digests of the bytes that arrive.

use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512, Sha512_224, Sha512_256, digest::DynDigest};

use crate::store::hex;

/// A hash function of the [table of multihashes](https://github.com/multiformats/multicodec/blob/master/table.csv).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Sha256,
    Md5,
    Sha1,
    Sha224,
    Sha384,
    Sha512,
    Sha512_224,
    Sha512_256,
}

impl Checksum {
    /// Returns it as the cache records it.
    pub(super) fn text(&self) -> String {
        format!("{}:{}", self.function.name(), self.digest)
    }
}

impl Function {
    fn of_code(code: u64) -> Option<Self> {
        Some(match code {
            0x11 => Self::Sha1,
            0x12 => Self::Sha256,
            0x13 => Self::Sha512,
            0x20 => Self::Sha384,
            0xd5 => Self::Md5,
            0x1013 => Self::Sha224,
            0x1014 => Self::Sha512_224,
            0x1015 => Self::Sha512_256,
            _ => return None,
        })
    }

    /// Returns its name, as messages print it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SHA-256",
            Self::Md5 => "MD5",
            Self::Sha1 => "SHA-1",
            Self::Sha224 => "SHA-224",
            Self::Sha384 => "SHA-384",
            Self::Sha512 => "SHA-512",
            Self::Sha512_224 => "SHA-512/224",
            Self::Sha512_256 => "SHA-512/256",
        }
    }

    fn hasher(self) -> Box<dyn DynDigest + Send> {
        match self {
            Self::Sha256 => Box::new(Sha256::new()),
            Self::Md5 => Box::new(Md5::new()),
            Self::Sha1 => Box::new(Sha1::new()),
            Self::Sha224 => Box::new(Sha224::new()),
            Self::Sha384 => Box::new(Sha384::new()),
            Self::Sha512 => Box::new(Sha512::new()),
            Self::Sha512_224 => Box::new(Sha512_224::new()),
            Self::Sha512_256 => Box::new(Sha512_256::new()),
        }
    }
}

/// The checksum of a file: a function, and its digest in hexadecimal digits, lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checksum {
    pub(super) function: Function,
    pub(super) digest: String,
}

/// What `file:checksum` of an asset says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Stated {
    #[default]
    Nothing,
    Checksum(Checksum),
    /// Text that is no [multihash](https://github.com/multiformats/multihash) of a function that is known here.
    Unknown(String),
}

impl Stated {
    pub(super) fn of(asset: &stac::Asset) -> Self {
        let Some(text) = asset.additional_fields.get("file:checksum") else {
            return Self::Nothing;
        };
        let Some(text) = text.as_str() else {
            return match text.is_null() {
                true => Self::Nothing,
                false => Self::Unknown(text.to_string()),
            };
        };
        Self::parse(text).unwrap_or_else(|| Self::Unknown(text.to_owned()))
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes = unhex(text.trim())?;
        let (code, rest) = varint(&bytes)?;
        let (length, digest) = varint(rest)?;
        let function = Function::of_code(code)?;
        let whole = function.hasher().output_size();
        (digest.len() == whole && u64::try_from(whole) == Ok(length)).then(|| {
            Self::Checksum(Checksum {
                function,
                digest: hex(digest),
            })
        })
    }

    pub(super) fn checksum(&self) -> Option<&Checksum> {
        match self {
            Self::Checksum(checksum) => Some(checksum),
            Self::Nothing | Self::Unknown(_) => None,
        }
    }
}

/// Reads an [unsigned varint](https://github.com/multiformats/unsigned-varint) of two bytes at most, which all known codes
/// have.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    match bytes {
        [one, rest @ ..] if *one < 0x80 => Some((u64::from(*one), rest)),
        [low, high, rest @ ..] if *high < 0x80 => {
            Some((u64::from(*low & 0x7f) | (u64::from(*high) << 7), rest))
        }
        _ => None,
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    if !odd.is_empty() {
        return None;
    }
    let byte = |[high, low]: &[u8; 2]| u8::try_from(digit(*high)? * 16 + digit(*low)?).ok();
    pairs.iter().map(byte).collect()
}

/// The digests of bytes that arrive: SHA-256, which the cache records, and that of another function.
pub(super) struct Digests {
    sha256: Sha256,
    other: Option<Box<dyn DynDigest + Send>>,
}

/// The digests of a whole file, in hexadecimal digits, lower case.
#[derive(Clone, Debug)]
pub(super) struct Digested {
    pub(super) sha256: String,
    other: Option<String>,
}

impl Digests {
    /// Returns the digests of no bytes; with that of a stated checksum.
    pub(super) fn for_checksum(wanted: Option<&Checksum>) -> Self {
        let other = wanted.map(|wanted| wanted.function);
        let other = other.filter(|function| *function != Function::Sha256);
        Self {
            sha256: Sha256::new(),
            other: other.map(Function::hasher),
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        Digest::update(&mut self.sha256, bytes);
        if let Some(other) = &mut self.other {
            other.update(bytes);
        }
    }

    pub(super) fn finish(self) -> Digested {
        Digested {
            sha256: hex(&Digest::finalize(self.sha256)),
            other: self.other.map(|other| hex(&other.finalize())),
        }
    }
}

impl Digested {
    /// Returns true if the bytes have this checksum.
    pub(super) fn agrees(&self, wanted: &Checksum) -> bool {
        let digest = match wanted.function {
            Function::Sha256 => Some(&self.sha256),
            _ => self.other.as_ref(),
        };
        digest == Some(&wanted.digest)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stated(checksum: serde_json::Value) -> Stated {
        let asset = json!({"href": "x", "file:checksum": checksum});
        Stated::of(&serde_json::from_value(asset).unwrap())
    }

    #[test]
    fn the_digests_of_three_letters_are_those_of_the_standards() {
        // FIPS 180-4 and RFC 1321, of "abc"; the last is cut short.
        for (code, digest) in [
            ("d50110", "900150983cd24fb0d6963f7d28e17f72"),
            ("1114", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                "1220",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            (
                "93201c",
                "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7",
            ),
            (
                "2030",
                "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
            ),
            (
                "1340",
                "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
            ),
            (
                "95201c",
                "53048e2681941ef99b2e29b76b4c7dabe4c2d0c634fc6d46e0e2f13107e7af23",
            ),
        ] {
            let known = stated(format!("{code}{digest}").to_uppercase().into());
            let Some(wanted) = known.checksum() else {
                assert_eq!(code, "95201c", "{known:?}");
                continue;
            };
            assert_eq!(wanted.digest, digest);
            let digested = |bytes: &[u8]| {
                let mut digests = Digests::for_checksum(Some(wanted));
                bytes.iter().for_each(|byte| digests.update(&[*byte]));
                digests.finish()
            };
            assert!(digested(b"abc").agrees(wanted), "{wanted:?}");
            assert!(!digested(b"abd").agrees(wanted), "{wanted:?}");
        }
    }

    #[test]
    fn what_is_no_known_checksum_is_told_and_not_checked() {
        assert_eq!(stated(json!(null)), Stated::Nothing);
        for odd in [
            json!("1220zz"),
            json!("122"),
            json!(""),
            json!("md5:900150983cd24fb0d6963f7d28e17f72"),
            // BLAKE3, and a length that is not that of the digest.
            json!(format!("1e20{}", "ab".repeat(32))),
            json!(format!("1120{}", "ab".repeat(20))),
            json!("ffffffffffffffffffff01"),
            json!(7),
        ] {
            assert!(matches!(stated(odd.clone()), Stated::Unknown(_)), "{odd}");
        }
    }
}
