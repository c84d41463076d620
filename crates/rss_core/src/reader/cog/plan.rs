//! The tiles that a window needs. No IO.

use std::ops::Range;

use super::{decode::TileJob, level::Level};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{Size, TileIndex, Window},
    reader::Resolved,
};

/// Slots of one read: a tile has one for each requested band. A header that states tiles of one pixel must
/// not make the list of slots larger than the pixels.
const MOST_SLOTS: usize = 1 << 21;

/// A tile of a read: its position, the wanted window of it, and the bands it holds.
#[derive(Clone, Debug)]
pub(super) struct Needed {
    /// The index in the tables of the level.
    pub(super) number: u64,
    pub(super) at: TileIndex,
    pub(super) job: TileJob,
    pub(super) bands: Vec<BandOf>,
}

/// A band in a tile and in the output.
#[derive(Clone, Copy, Debug)]
pub(super) struct BandOf {
    pub(super) in_tile: usize,
    pub(super) in_output: usize,
}

/// Returns the tile columns and rows that a window touches.
pub(super) fn tiles(window: &Window, tile: Size) -> (Range<u32>, Range<u32>) {
    let span = |start: u32, length: u32, side: u32| {
        let last = u64::from(start) + u64::from(length.max(1)) - 1;
        let end = last / u64::from(side) + 1;
        start / side..u32::try_from(end).unwrap_or(u32::MAX)
    };
    (
        span(window.col, window.width, tile.width),
        span(window.row, window.height, tile.height),
    )
}

/// Lists the tiles that a window touches; in a planar image, band after band.
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] for more tiles and bands than one read may have.
pub(super) fn needed(level: &Level, resolved: &Resolved) -> Result<Vec<Needed>> {
    let (columns, rows) = tiles(&resolved.window, level.tile);
    let slots = columns
        .len()
        .checked_mul(rows.len())
        .and_then(|tiles| tiles.checked_mul(resolved.bands.len()))
        .filter(|&slots| slots <= MOST_SLOTS);
    if slots.is_none() {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "a read of {} x {} tiles and {} bands is past the limit of {MOST_SLOTS}; read a \
                 window",
                columns.len(),
                rows.len(),
                resolved.bands.len()
            ),
        ));
    }
    let planes: Vec<(usize, Vec<BandOf>)> = if level.planar {
        let each = resolved.bands.iter().enumerate();
        each.map(|(in_output, &plane)| {
            (
                plane,
                vec![BandOf {
                    in_tile: 0,
                    in_output,
                }],
            )
        })
        .collect()
    } else {
        let bands = resolved.bands.iter().enumerate();
        let all = bands
            .map(|(in_output, &in_tile)| BandOf { in_tile, in_output })
            .collect();
        vec![(0, all)]
    };
    let mut needed = Vec::new();
    for (plane, bands) in planes {
        for row in rows.clone() {
            for col in columns.clone() {
                let tile = Window {
                    col: col * level.tile.width,
                    row: row * level.tile.height,
                    width: level.tile.width,
                    height: level.tile.height,
                };
                needed.push(Needed {
                    number: level.number(col, row, plane),
                    at: TileIndex { col, row },
                    job: TileJob {
                        tile,
                        wanted: overlap(&tile, &resolved.window),
                    },
                    bands: bands.clone(),
                });
            }
        }
    }
    Ok(needed)
}

/// Returns the intersection of two windows that overlap.
fn overlap(a: &Window, b: &Window) -> Window {
    let span = |a: u32, a_length: u32, b: u32, b_length: u32| {
        let start = a.max(b);
        let end = (u64::from(a) + u64::from(a_length)).min(u64::from(b) + u64::from(b_length));
        let length = end.saturating_sub(u64::from(start));
        (start, u32::try_from(length).unwrap_or(0))
    };
    let (col, width) = span(a.col, a.width, b.col, b.width);
    let (row, height) = span(a.row, a.height, b.row, b.height);
    Window {
        col,
        row,
        width,
        height,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_touches_the_tiles_under_it() {
        let tile = Size {
            width: 512,
            height: 256,
        };
        let window = |text: &str| tiles(&text.parse().unwrap(), tile);
        assert_eq!(window("0,0,512,256"), (0..1, 0..1));
        assert_eq!(window("511,255,2,2"), (0..2, 0..2));
        assert_eq!(window("1024,0,1,1000"), (2..3, 0..4));
    }
}
