//! The files that hold the window: one in strips, one in tiles, of the same pixels.

use anyhow::Result;
use bytes::Bytes;
use rss_testbed::{Layout, geotiff};
use serde::{Deserialize, Serialize};

use crate::noise::noisy;

/// Rows of a strip.
pub(super) const STRIP: u32 = 64;
/// Pixels a side of a tile.
pub(super) const TILE: u32 = 512;
/// Tiles of the window from top to bottom: each row of them is one pair of ranges.
pub(super) const PAIRS: u32 = 5;
/// Tiles of the window from left to right at scale 1: 12 MB, as the document's window.
const FULL_COLS: f64 = 6.0;

/// A file with the window's pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum File {
    /// Strips as wide as the image.
    Striped,
    /// Tiles of 512 x 512.
    Tiled,
}

impl File {
    /// Both.
    pub(crate) const ALL: &[Self] = &[Self::Striped, Self::Tiled];

    /// Returns its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Striped => "striped",
            Self::Tiled => "tiled",
        }
    }

    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Striped => "striped.tif",
            Self::Tiled => "tiled.tif",
        }
    }
}

/// The images that hold the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Image {
    /// Of the window in pixels; the tiled image has one more column of tiles.
    pub(crate) width: u32,
    /// The window begins at the second row of tiles.
    pub(crate) height: u32,
}

impl Image {
    pub(crate) fn of(scale: f64) -> Self {
        let cols = (FULL_COLS * scale).round().max(1.0) as u32;
        Self {
            width: cols * TILE,
            height: (PAIRS + 1) * TILE,
        }
    }
}

/// Returns the bytes of a file.
pub(crate) fn content(file: File, image: Image) -> Result<Bytes> {
    match file {
        File::Striped => geotiff(image.width, image.height, Layout::Strips(STRIP), pixel),
        // One column of tiles more, so that the window's rows do not touch.
        File::Tiled => geotiff(image.width + TILE, image.height, Layout::Tiles, pixel),
    }
}

/// Returns a pixel. Each row of tiles compresses to another size, as real ones do.
fn pixel(col: u32, row: u32) -> i16 {
    let amplitude = [2048, 2048, 1450, 1024, 700, 512];
    let amplitude = amplitude.get((row / TILE) as usize).copied().unwrap_or(512);
    noisy(77, amplitude, col, row)
}
