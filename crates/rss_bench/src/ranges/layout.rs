//! Where a window's tiles or strips lie in a file, and how their bytes become its pixels.

use std::ops::Range;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use libdeflater::Decompressor;
use ndarray::{Array2, s};
use rayon::prelude::*;

use super::{
    FIRST_BYTES,
    files::{File, Image, PAIRS, STRIP, TILE},
};
use crate::{codec::decode, digest::sha256};

/// The window in one file: its groups of tiles or strips, each contiguous, from top to bottom.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    file: File,
    width: usize,
    /// The ranges of each group's tiles, left to right, or strips, top to bottom.
    groups: Vec<Vec<Range<u64>>>,
}

impl Layout {
    /// Finds the window in the table of a file's tiles or strips.
    pub(super) fn of(file: File, image: Image, stored: &[Range<u64>]) -> Result<Self> {
        let width = (image.width / TILE) as usize;
        let groups = (1..=PAIRS as usize).map(|row| {
            let at = match file {
                // The tiled image has one column more than the window.
                File::Tiled => row * (width + 1)..row * (width + 1) + width,
                File::Striped => {
                    let strips = (TILE / STRIP) as usize;
                    row * strips..(row + 1) * strips
                }
            };
            stored.get(at).map(<[_]>::to_vec).context("too few tiles")
        });
        Ok(Self {
            file,
            width: image.width as usize,
            groups: groups.collect::<Result<_>>()?,
        })
    }

    /// Returns the ranges to ask for: of each group the first bytes, then the rest.
    pub(super) fn ranges(&self) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        for group in &self.groups {
            let (Some(first), Some(last)) = (group.first(), group.last()) else {
                continue;
            };
            let middle = (first.start + FIRST_BYTES).min(last.end);
            ranges.extend([first.start..middle, middle..last.end]);
        }
        ranges
    }

    /// Decodes what [`Layout::ranges`] brought into the window's pixels, on all cores.
    pub(super) fn pixels(&self, fetched: &[Bytes]) -> Result<Array2<i16>> {
        ensure!(fetched.len() == self.groups.len() * 2, "ranges are missing");
        let rows = self
            .groups
            .par_iter()
            .zip(fetched.par_chunks(2))
            .map(|(group, pair)| self.group(group, &pair.concat()))
            .collect::<Result<Vec<_>>>()?;
        let views: Vec<_> = rows.iter().map(|rows| rows.view()).collect();
        Ok(ndarray::concatenate(ndarray::Axis(0), &views)?)
    }

    /// Decodes one group.
    fn group(&self, tiles: &[Range<u64>], bytes: &[u8]) -> Result<Array2<i16>> {
        let start = tiles.first().map_or(0, |tile| tile.start);
        let (width, height) = match self.file {
            File::Tiled => (TILE as usize, TILE as usize),
            File::Striped => (self.width, STRIP as usize),
        };
        let decoded = tiles
            .par_iter()
            .map_init(Decompressor::new, |inflater, tile| {
                let at = usize::try_from(tile.start - start)?..usize::try_from(tile.end - start)?;
                let stored = bytes.get(at).context("a range is short")?;
                let mut raw = vec![0; width * height * 2];
                let mut samples = vec![0; width * height];
                decode(inflater, stored, width, &mut raw, &mut samples)?;
                Ok(Array2::from_shape_vec((height, width), samples)?)
            });
        let decoded = decoded.collect::<Result<Vec<_>>>()?;
        let mut out = Array2::zeros((TILE as usize, self.width));
        for (n, tile) in decoded.iter().enumerate() {
            let mut target = match self.file {
                File::Tiled => out.slice_mut(s![.., n * width..(n + 1) * width]),
                File::Striped => out.slice_mut(s![n * height..(n + 1) * height, ..]),
            };
            target.assign(tile);
        }
        Ok(out)
    }
}

/// Returns the digest of samples, little-endian, row by row.
pub(super) fn digest<'a>(samples: impl Iterator<Item = &'a i16>) -> String {
    let bytes: Vec<u8> = samples.flat_map(|sample| sample.to_le_bytes()).collect();
    sha256([bytes])
}
