//! The samples that all systems store, in a file that all can read.

use std::{
    fs::File,
    io::{self, BufWriter, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use crc32fast::Hasher;
use rss_testbed::Volume;
use serde::Serialize;

/// What is stored.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub(crate) struct Source {
    /// The data set.
    pub(crate) data: Volume,
    /// numpy's name of the type of its samples.
    pub(crate) dtype: &'static str,
    /// Samples of each axis.
    pub(crate) shape: Vec<u64>,
    /// All its bytes.
    pub(crate) bytes: u64,
    /// The digest of its bytes, little-endian in C order: what every system must read.
    pub(crate) crc32: u32,
    /// Where it lies while it is measured.
    #[serde(skip)]
    pub(super) path: PathBuf,
}

impl Source {
    /// Makes the file.
    pub(super) fn make(data: Volume, side: u32, folder: &Path) -> Result<Self> {
        let path = folder.join(format!("{}-{side}.raw", data.name()));
        let named = || path.display().to_string();
        let file = BufWriter::new(File::create(&path).with_context(named)?);
        let mut out = Hashed {
            out: file,
            hasher: Hasher::new(),
            bytes: 0,
        };
        data.write(side, &mut out).with_context(named)?;
        out.flush().with_context(named)?;
        Ok(Self {
            data,
            dtype: data.dtype(),
            shape: data.shape(side),
            bytes: out.bytes,
            crc32: out.hasher.finalize(),
            path,
        })
    }

    /// Returns the digest of a box.
    pub(super) fn crc32_of(&self, offset: &[u64], shape: &[u64]) -> Result<u32> {
        let size = self.data.sample_bytes();
        let mut file = File::open(&self.path)?;
        let mut hasher = Hasher::new();
        let last = shape.last().copied().unwrap_or(1);
        let mut line = vec![0; usize::try_from(last * size)?];
        let lines: u64 = shape.iter().rev().skip(1).product();
        for line_at in 0..lines {
            // The offset of the line's first sample, axis by axis from the last but one.
            let (mut left, mut stride) = (line_at, 1);
            let mut at = 0;
            for axis in (0..shape.len()).rev() {
                let (start, length, of) = (offset[axis], shape[axis], self.shape[axis]);
                match axis + 1 == shape.len() {
                    true => at += start,
                    false => {
                        at += (start + left % length) * stride;
                        left /= length;
                    }
                }
                stride *= of;
            }
            file.seek(SeekFrom::Start(at * size))?;
            file.read_exact(&mut line)?;
            hasher.update(&line);
        }
        Ok(hasher.finalize())
    }
}

/// Counts and digests what is written.
struct Hashed<W> {
    out: W,
    hasher: Hasher,
    bytes: u64,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hasher.update(bytes.get(..written).unwrap_or_default());
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_of_all_has_the_digest_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::make(Volume::Segmentation, 32, dir.path()).unwrap();
        assert_eq!(source.bytes, 4 * 32 * 32 * 32);
        let all = source.crc32_of(&[0, 0, 0], &[32, 32, 32]).unwrap();
        assert_eq!(all, source.crc32);
        let bytes = std::fs::read(&source.path).unwrap();
        let at = |z: usize, y: usize, x: usize| ((z * 32 + y) * 32 + x) * 4;
        let expected = [(3, 5), (3, 6), (4, 5), (4, 6)]
            .map(|(z, y)| &bytes[at(z, y, 7)..at(z, y, 9)])
            .concat();
        let cut = source.crc32_of(&[3, 5, 7], &[2, 2, 2]).unwrap();
        assert_eq!(cut, crc32fast::hash(&expected));
    }
}
