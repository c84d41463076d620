//! Checksums of complete objects, and lists that are stored compressed with their own checksum.

use std::io::{self, Read};

use bytes::Bytes;

use super::Storage;
use crate::error::{Error, ErrorKind, Result};

/// Bytes of an object that are read at once for its checksum.
const PIECE_BYTES: u64 = 8 << 20;
/// The level of compression: of checksums nothing can be saved, and keys compress well at any level.
const LEVEL: i32 = 3;
/// The limit on the bytes of a list.
const MOST_BYTES: u64 = 1 << 30;
/// Magic number and length of a
/// [skippable frame](https://www.rfc-editor.org/rfc/rfc8878#section-3.1.2) of four bytes, which programs for Zstandard pass over.
const TRAILER: [u8; 8] = [0x50, 0x2A, 0x4D, 0x18, 4, 0, 0, 0];

/// Length and CRC-32 of a complete object: that of zlib and gzip, not the CRC-32C that follows each chunk in a shard and its
/// index. The CRC of bytes that are followed by their own CRC is a constant, so that the CRC-32C of a shard depends on the
/// lengths of its chunks alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sum {
    /// In bytes.
    pub(crate) length: u64,
    pub(crate) crc32: u32,
}

impl Sum {
    /// Returns that of consecutive pieces.
    pub(crate) fn of<'a>(pieces: impl IntoIterator<Item = &'a Bytes>) -> Self {
        let mut sum = Self {
            length: 0,
            crc32: 0,
        };
        for piece in pieces {
            sum.add(piece);
        }
        sum
    }

    fn add(&mut self, piece: &[u8]) {
        self.length += piece.len() as u64;
        let mut hasher = crc32fast::Hasher::new_with_initial(self.crc32);
        hasher.update(piece);
        self.crc32 = hasher.finalize();
    }
}

impl Storage {
    /// Reads an object and returns its checksum; none if it does not exist. `length` is what a listing says of it, if that
    /// is known.
    pub(crate) async fn sum(&self, key: &str, length: Option<u64>) -> Result<Option<Sum>> {
        let mut sum = Sum::of([]);
        // A range of an empty object is an error.
        if length == Some(0) {
            return Ok(Some(sum));
        }
        let Some((object, first)) = self.open(key, PIECE_BYTES, true).await? else {
            return Ok(None);
        };
        sum.add(&first);
        while sum.length < object.size() {
            let end = object.size().min(sum.length + PIECE_BYTES);
            sum.add(&object.fetch(sum.length..end).await?);
        }
        Ok(Some(sum))
    }
}

/// Compresses a list, and puts its checksum behind it.
pub(crate) fn seal(list: &[u8]) -> Result<Bytes> {
    let mut bytes = zstd::bulk::compress(list, LEVEL).map_err(|err| failed(&err))?;
    let sum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&TRAILER);
    bytes.extend_from_slice(&sum.to_le_bytes());
    Ok(bytes.into())
}

/// Reads what [`seal`] returns.
///
/// # Errors
///
/// [`ErrorKind::Corrupt`] if a bit of it differs.
pub(crate) fn unseal(bytes: &[u8]) -> Result<Vec<u8>> {
    let damaged = || Error::new(ErrorKind::Corrupt, "the checksum of a list does not match");
    let (rest, sum) = bytes.split_last_chunk::<4>().ok_or_else(damaged)?;
    let (frame, trailer) = rest.split_last_chunk::<8>().ok_or_else(damaged)?;
    if *trailer != TRAILER || crc32fast::hash(frame) != u32::from_le_bytes(*sum) {
        return Err(damaged());
    }
    let mut list = Vec::new();
    let decoder = zstd::Decoder::with_buffer(frame).map_err(|err| failed(&err))?;
    let read = decoder.take(MOST_BYTES).read_to_end(&mut list);
    read.map_err(|err| failed(&err))?;
    Ok(list)
}

fn failed(err: &io::Error) -> Error {
    Error::new(ErrorKind::Corrupt, format!("a compressed list: {err}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks of equal lengths, each followed by its CRC-32C, must not have equal checksums.
    #[test]
    fn objects_that_hold_their_own_checksums_differ() {
        let object = |value: u8| {
            let mut chunk = vec![value; 64];
            let sum = crc32c::crc32c(&chunk);
            chunk.extend_from_slice(&sum.to_le_bytes());
            Bytes::from(chunk)
        };
        let (one, two) = (object(1), object(2));
        assert_eq!(crc32c::crc32c(&one), crc32c::crc32c(&two));
        assert_ne!(Sum::of([&one]), Sum::of([&two]));
        let pieces = [one.slice(..7), one.slice(7..)];
        assert_eq!(Sum::of(&pieces), Sum::of([&one]));
        assert_eq!(Sum::of([&Bytes::from("123456789")]).crc32, 0xCBF4_3926);
    }

    #[test]
    fn no_bit_of_a_sealed_list_can_change_unseen() {
        let list = b"[\"red/c/0/0/0\",17,\"0a1b2c3d\"]\n".repeat(9);
        let sealed = seal(&list).unwrap();
        assert_eq!(unseal(&sealed).unwrap(), list);
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unseal(&flipped).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        for length in 0..sealed.len() {
            assert!(unseal(&sealed[..length]).is_err());
        }
    }
}
