//! The output of a warp: tiles of the target, each the work of one thread.

use super::{
    mesh::CELL,
    mesh::cells,
    sample::{Cell, Real},
};
use crate::geo::Window;

/// A tile of target pixels to be written.
#[derive(Debug)]
pub(super) struct Tile<'a, T> {
    /// The window of the target.
    pub(super) window: Window,
    pub(super) rows: Vec<&'a mut [T]>,
}

impl<T> Tile<'_, T> {
    /// Returns `count` pixels of a row from a column on, both counted on the target.
    pub(super) fn run(&mut self, col: u32, row: u32, count: u32) -> &mut [T] {
        let first = (col - self.window.col) as usize;
        let row = self.rows.get_mut((row - self.window.row) as usize);
        row.and_then(|row| row.get_mut(first..first + count as usize))
            .unwrap_or_default()
    }
}

/// Splits the rows of a target window where the cells of its mesh end, so that no cell is computed twice.
pub(super) fn tiles<'a, T>(window: &Window, rows: Vec<&'a mut [T]>) -> Vec<Tile<'a, T>> {
    let mut rows = rows.into_iter();
    let mut tiles = Vec::new();
    for (row, height) in runs(window.row, window.height) {
        let first = tiles.len();
        tiles.extend(runs(window.col, window.width).map(|(col, width)| Tile {
            window: Window {
                col,
                row,
                width,
                height,
            },
            rows: Vec::with_capacity(height as usize),
        }));
        for mut rest in rows.by_ref().take(height as usize) {
            for tile in tiles.iter_mut().skip(first) {
                let (part, after) = rest.split_at_mut(tile.window.width as usize);
                tile.rows.push(part);
                rest = after;
            }
        }
    }
    tiles
}

/// Returns the first pixel and the length of the parts that cells split a range of pixels into.
fn runs(first: u32, count: u32) -> impl Iterator<Item = (u32, u32)> {
    let end = first + count;
    cells(first, count).map(move |cell| {
        let start = cell.max(first);
        (start, cell.saturating_add(CELL).min(end) - start)
    })
}

/// Returns a computed value, or an adjacent one if it equals nodata: as in gdalwarp, so that no valid pixel
/// becomes nodata.
#[inline(always)]
pub(super) fn keep<T: Real>(sample: T, nodata: Option<T>) -> T {
    if nodata == Some(sample) {
        sample.beside()
    } else {
        sample
    }
}

/// Applies [`keep`] to all samples.
pub(super) fn beside<T: Real>(samples: &mut [T], nodata: Option<T>) {
    if let Some(nodata) = nodata {
        for sample in samples {
            *sample = keep(*sample, Some(nodata));
        }
    }
}

/// Writes the samples that are valid, and returns their number.
pub(super) fn put<T: Cell>(out: &mut [T], samples: impl Iterator<Item = Option<T>>) -> usize {
    let mut count = 0;
    for (slot, sample) in out.iter_mut().zip(samples) {
        if let Some(sample) = sample {
            *slot = sample;
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_hold_each_pixel_once() {
        let window: Window = "250,510,300,10".parse().unwrap();
        let mut pixels = vec![0_u8; 3000];
        let tiles = tiles(&window, pixels.chunks_mut(300).collect());
        let windows: Vec<String> = tiles.iter().map(|tile| tile.window.to_string()).collect();
        assert_eq!(
            windows,
            [
                "250,510,6,2",
                "256,510,256,2",
                "512,510,38,2",
                "250,512,6,8",
                "256,512,256,8",
                "512,512,38,8"
            ]
        );
        for mut tile in tiles {
            let Window {
                col,
                row,
                width,
                height,
            } = tile.window;
            for y in row..row + height {
                let run = tile.run(col, y, width);
                assert_eq!(run.len(), width as usize);
                run.iter_mut().for_each(|pixel| *pixel += 1);
            }
        }
        assert!(pixels.iter().all(|&times| times == 1));
    }
}
