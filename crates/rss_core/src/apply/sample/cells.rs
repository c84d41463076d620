//! Cells, the units of reading: runs of adjacent tiles that hold pixels of a shape.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    geo::{Size, TileIndex, Window},
    reader::Profile,
};

/// The most pixels of a cell, unless a single tile has more.
const MOST_PIXELS: u64 = 1 << 20;

/// A run of adjacent tiles in one row of tiles, each with pixels of a member. Cells share no tile, so that no tile is
/// read twice.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    /// The window to read: the bounding window of the needed pixels.
    pub(super) window: Window,
    /// The shapes with pixels in it, in order.
    pub(super) members: Vec<u32>,
    /// The number of pixels of all its members.
    pub(super) needed: u64,
}

/// The tiles of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiles {
    pub(super) size: Size,
    pub(super) tile: Size,
}

impl Tiles {
    /// Returns the tiles of a level, which have the size of those of level 0.
    pub(super) fn of(profile: &Profile, size: Size) -> Self {
        Self {
            size,
            tile: Size {
                width: profile.tile.width.max(1),
                height: profile.tile.height.max(1),
            },
        }
    }

    /// Joins tiles vertically until they have at least so many rows: a strip may have a single row.
    pub(super) fn with_rows(self, least: u32) -> Self {
        let Size { width, height } = self.tile;
        let height = height.saturating_mul(least.div_ceil(height).max(1));
        Self {
            tile: Size { width, height },
            ..self
        }
    }

    /// Returns the tile that holds a pixel.
    pub(super) fn at(self, col: u32, row: u32) -> TileIndex {
        TileIndex {
            col: col / self.tile.width,
            row: row / self.tile.height,
        }
    }

    /// Returns the tiles that a window touches, row by row.
    pub(super) fn under(self, window: Window) -> impl Iterator<Item = TileIndex> {
        let last = |start: u32, length: u32| start.saturating_add(length.saturating_sub(1));
        let first = self.at(window.col, window.row);
        let end = self.at(
            last(window.col, window.width),
            last(window.row, window.height),
        );
        (first.row..=end.row)
            .flat_map(move |row| (first.col..=end.col).map(move |col| TileIndex { col, row }))
    }

    /// Returns windows of runs of whole tiles.
    pub(super) fn runs(self, tiles: &BTreeSet<RowMajor>) -> Vec<Window> {
        let mut needs = Needs::of(self);
        for RowMajor { row, col } in tiles.iter().copied() {
            let (x, y) = (col * self.tile.width, row * self.tile.height);
            let window = Window {
                col: x,
                row: y,
                width: self.tile.width.min(self.size.width.saturating_sub(x)),
                height: self.tile.height.min(self.size.height.saturating_sub(y)),
            };
            needs.add(TileIndex { col, row }, window, 0, 0);
        }
        needs.cells().into_iter().map(|cell| cell.window).collect()
    }
}

/// A tile, in the order row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowMajor {
    row: u32,
    col: u32,
}

impl From<TileIndex> for RowMajor {
    fn from(TileIndex { col, row }: TileIndex) -> Self {
        Self { row, col }
    }
}

/// The needed pixels and the members of each tile.
#[derive(Debug)]
pub(super) struct Needs {
    tiles: Tiles,
    by_tile: BTreeMap<RowMajor, Cell>,
}

impl Needs {
    pub(super) fn of(tiles: Tiles) -> Self {
        Self {
            tiles,
            by_tile: BTreeMap::new(),
        }
    }

    /// Adds the pixels that a member needs in one or more rows of a tile. Members must come in order; all calls for one
    /// member must be consecutive.
    pub(super) fn add(&mut self, tile: TileIndex, window: Window, member: u32, needed: u64) {
        let entry = self.by_tile.entry(tile.into());
        let cell = entry.or_insert_with(|| Cell {
            window,
            members: Vec::new(),
            needed: 0,
        });
        cell.window = around(&cell.window, &window);
        cell.needed += needed;
        if cell.members.last() != Some(&member) {
            cell.members.push(member);
        }
    }

    /// Adds the pixels that a member needs in a row.
    pub(super) fn add_row(&mut self, row: u32, start: u32, end: u32, member: u32) {
        let width = self.tiles.tile.width;
        let mut from = start;
        while from < end {
            let tile = self.tiles.at(from, row);
            let to = end.min(tile.col.saturating_add(1).saturating_mul(width));
            let window = Window {
                col: from,
                row,
                width: to - from,
                height: 1,
            };
            self.add(tile, window, member, u64::from(to - from));
            from = to;
        }
    }

    /// Adds a window of which a member needs one pixel, wherever that is.
    pub(super) fn add_window(&mut self, window: Window, member: u32) {
        let Size { width, height } = self.tiles.tile;
        for tile in self.tiles.under(window) {
            let whole = Window {
                col: tile.col * width,
                row: tile.row * height,
                width,
                height,
            };
            if let Some(part) = shared(&window, &whole) {
                self.add(tile, part, member, 1);
            }
        }
    }

    /// Returns the cells, row by row.
    pub(super) fn cells(self) -> Vec<Cell> {
        let mut cells: Vec<Cell> = Vec::new();
        let mut last: Option<RowMajor> = None;
        for (tile, mut next) in self.by_tile {
            let is_beside = last.is_some_and(|last| {
                last.row == tile.row && last.col.checked_add(1) == Some(tile.col)
            });
            last = Some(tile);
            if let (true, Some(cell)) = (is_beside, cells.last_mut()) {
                let both = around(&cell.window, &next.window);
                if pixels(&both) <= MOST_PIXELS {
                    cell.window = both;
                    cell.needed += next.needed;
                    cell.members.append(&mut next.members);
                    continue;
                }
            }
            cells.push(next);
        }
        for cell in &mut cells {
            cell.members.sort_unstable();
            cell.members.dedup();
        }
        cells
    }
}

/// Returns the number of pixels of a window.
pub(super) fn pixels(window: &Window) -> u64 {
    u64::from(window.width) * u64::from(window.height)
}

/// Returns the intersection of two windows.
pub(super) fn shared(a: &Window, b: &Window) -> Option<Window> {
    let (col, row) = (a.col.max(b.col), a.row.max(b.row));
    let end = |a: u32, a_length: u32, b: u32, b_length: u32| {
        a.saturating_add(a_length).min(b.saturating_add(b_length))
    };
    let right = end(a.col, a.width, b.col, b.width);
    let bottom = end(a.row, a.height, b.row, b.height);
    (col < right && row < bottom).then(|| Window {
        col,
        row,
        width: right - col,
        height: bottom - row,
    })
}

/// Returns the bounding window of two windows.
fn around(a: &Window, b: &Window) -> Window {
    let (col, row) = (a.col.min(b.col), a.row.min(b.row));
    let end = |a: u32, width: u32| a.saturating_add(width);
    Window {
        col,
        row,
        width: end(a.col, a.width).max(end(b.col, b.width)) - col,
        height: end(a.row, a.height).max(end(b.row, b.height)) - row,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TILES: Tiles = Tiles {
        size: Size {
            width: 1200,
            height: 1200,
        },
        tile: Size {
            width: 512,
            height: 512,
        },
    };

    #[test]
    fn cells_are_runs_of_tiles_that_are_needed() {
        let mut needs = Needs::of(TILES);
        needs.add_row(500, 510, 1030, 0);
        needs.add_row(513, 1025, 1026, 1);
        needs.add_row(514, 10, 20, 2);
        needs.add_row(520, 30, 40, 2);
        let cells = needs.cells();
        let shown: Vec<_> = cells
            .iter()
            .map(|cell| (cell.window.to_string(), cell.members.clone(), cell.needed))
            .collect();
        assert_eq!(
            shown,
            [
                ("510,500,520,1".to_owned(), vec![0], 520),
                ("10,514,30,7".to_owned(), vec![2], 20),
                ("1025,513,1,1".to_owned(), vec![1], 1),
            ]
        );
    }

    #[test]
    fn a_run_is_no_longer_than_its_pixels_allow() {
        let wide = Tiles {
            size: Size {
                width: 10_980,
                height: 512,
            },
            ..TILES
        };
        let tiles = wide.under(Window::whole(wide.size)).map(RowMajor::from);
        let windows = wide.runs(&tiles.collect());
        assert_eq!(windows[0].to_string(), "0,0,2048,512");
        assert_eq!(windows[5].to_string(), "10240,0,740,512");
        assert_eq!(windows.len(), 6);
    }

    #[test]
    fn strips_are_taken_together() {
        let strips = Tiles {
            size: TILES.size,
            tile: Size {
                width: 1200,
                height: 7,
            },
        };
        assert_eq!(strips.with_rows(64).tile.height, 70);
        assert_eq!(strips.with_rows(1), strips);
        assert_eq!(TILES.with_rows(64), TILES);
    }
}
