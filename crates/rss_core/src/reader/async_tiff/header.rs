//! Headers, parsed by the crate after a check of each directory.
//!
//! The crate's parser allocates by the counts in the file, follows loops of directories, and panics on unknown types.
//! The check reads the same bytes first, through the same cache, so it costs no request.

use std::{fmt, ops::Range};

use async_tiff::{
    ImageFileDirectory,
    error::{AsyncTiffError, AsyncTiffResult},
    metadata::{MetadataFetch, TiffMetadataReader, cache::ReadaheadMetadataCache},
    reader::{AsyncFileReader, Endianness, ObjectReader},
};
use async_trait::async_trait;
use bytes::Bytes;

use super::{Failure, unsupported};
use crate::error::{Error, ErrorKind};

/// The largest offset of the end of a directory.
const MOST_HEADER_BYTES: u64 = 64 << 20;
/// The limit of the entries of a directory.
const MOST_ENTRIES: u64 = 4096;
/// The limit of the directories of a file.
const MOST_IMAGES: usize = 256;

type Cache = ReadaheadMetadataCache<Bounded>;

/// Reads all directories of a file.
pub(super) async fn read(reader: &ObjectReader) -> Result<Vec<ImageFileDirectory>, Failure> {
    let cache = Cache::new(Bounded(reader.clone()));
    let mut metadata = TiffMetadataReader::try_open(&cache).await?;
    let mut images = Vec::new();
    let mut seen = Vec::new();
    while let Some(at) = metadata.next_ifd_offset() {
        if seen.contains(&at) || seen.len() == MOST_IMAGES {
            return Err(corrupt(format!("directory {} loops", seen.len())).into());
        }
        seen.push(at);
        look(&cache, at, metadata.bigtiff(), metadata.endianness()).await?;
        if let Some(image) = metadata.read_next_ifd(&cache).await? {
            images.push(image);
        }
    }
    Ok(images)
}

/// Checks the entries of a directory.
async fn look(cache: &Cache, at: u64, is_big: bool, endianness: Endianness) -> Result<(), Failure> {
    let number = |bytes: &[u8]| {
        let fold = |value: u64, &byte: &u8| (value << 8) | u64::from(byte);
        match endianness {
            Endianness::LittleEndian => bytes.iter().rev().fold(0, fold),
            Endianness::BigEndian => bytes.iter().fold(0, fold),
        }
    };
    let (head, entry, wide) = if is_big { (8, 20, 8) } else { (2, 12, 4) };
    let end = |bytes: u64| {
        at.checked_add(bytes)
            .filter(|&end| end <= MOST_HEADER_BYTES)
            .ok_or_else(|| unsupported("directories past 64 MiB"))
    };
    let entries = number(&cache.fetch(at..end(head)?).await?);
    if entries > MOST_ENTRIES {
        return Err(corrupt(format!("a directory of {entries} entries")).into());
    }
    let start = at + head;
    let bytes = cache.fetch(start..end(head + entries * entry)?).await?;
    for entry in bytes.chunks_exact(usize::try_from(entry).unwrap_or(usize::MAX)) {
        let (kind, count) = (number(&entry[2..4]), number(&entry[4..4 + wide]));
        let size = match kind {
            1 | 2 | 6 | 7 => 1,
            3 | 8 => 2,
            4 | 9 | 11 | 13 => 4,
            5 | 10 | 12 | 16..=18 => 8,
            _ => return Err(unsupported(&format!("tags of type {kind}")).into()),
        };
        if count > MOST_HEADER_BYTES / size {
            return Err(corrupt(format!("a tag of {count} values")).into());
        }
    }
    Ok(())
}

fn corrupt(message: String) -> Error {
    Error::new(ErrorKind::Corrupt, message)
}

/// The start of the file. The crate's cache fetches all bytes up to the requested ones and some beyond, so the bound
/// here is twice that of a directory.
#[derive(Clone)]
struct Bounded(ObjectReader);

impl fmt::Debug for Bounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bounded")
    }
}

#[async_trait]
impl MetadataFetch for Bounded {
    async fn fetch(&self, range: Range<u64>) -> AsyncTiffResult<Bytes> {
        if range.end > 2 * MOST_HEADER_BYTES {
            let message = "a header past 128 MiB".to_owned();
            return Err(AsyncTiffError::General(message));
        }
        self.0.get_bytes(range).await
    }
}
