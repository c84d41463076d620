//! The files of a gather: as many keys as wanted, over a few distinct contents.

use anyhow::Result;
use bytes::Bytes;
use rss_testbed::{Layout, geotiff};

use crate::noise::noisy;

/// Pixels a side of a tile.
pub(crate) const TILE: u32 = 512;
/// Tiles a side of a file.
pub(crate) const TILES: u32 = 3;
/// Column and row of the centre tile.
pub(crate) const CENTRE: u32 = 1;
/// Distinct files; the others hold the same bytes under other keys.
pub(crate) const CONTENTS: usize = 24;
/// Files of one folder: the bands of a scene.
const BANDS: usize = 9;

/// Returns the key of a file: the bands of a scene share a folder, as on S3.
pub(crate) fn key(file: usize) -> String {
    let (scene, band) = (file / BANDS, file % BANDS + 1);
    let name = format!("LC08_L1TP_106{scene:03}_T1");
    format!("c1/L8/106/{scene:03}/{name}/{name}_B{band}.TIF")
}

/// Returns the bytes of a distinct file. The noise in it makes its centre tile as large as those of the
/// published report: 241 to 467 kB, in the middle 386 kB.
pub(crate) fn content(number: usize) -> Result<Bytes> {
    let share = number as f64 / (CONTENTS - 1) as f64;
    let amplitude = amplitude(share);
    let side = TILES * TILE;
    geotiff(side, side, Layout::Tiles, |col, row| {
        noisy(number as u64, amplitude, col, row)
    })
}

/// Returns the noise of the file at a share of all, sorted by size.
fn amplitude(share: f64) -> u64 {
    // Most files lie above the middle of the sizes, as in the published report.
    let bits = 11.7 - 6.5 * (1.0 - share).powf(1.7);
    bits.exp2() as u64
}
