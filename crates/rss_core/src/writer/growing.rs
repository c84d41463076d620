//! Overviews as they grow: what is there of an unfinished tile, and what tiles of the level before give to it.

use std::ops::Range;

use ndarray::{Array2, Axis};

use super::plan::{LevelPlan, Tile};
use crate::raster::{Sample, Shrink};

/// An unfinished tile of an overview.
pub(super) enum Growing<T> {
    /// By nearest: pixels are taken from full resolution, so that levels do not add up their distances from the centre.
    Picked { pixels: Array2<T>, missing: usize },
    /// From tiles of the level before: its four, and the edges of those to the left and above.
    Parts {
        parts: Box<Parts<T>>,
        missing: usize,
    },
}

/// By row, then column: the edges of the tile above to the left first.
pub(super) type Parts<T> = [[Option<TilePart<T>>; 3]; 3];

/// What a tile gives to one of the next level. Where a side of its level is odd, pixels of the next level lie across the
/// borders of tiles: the first of a tile are computed once the tiles to the left and above are there.
pub(super) struct TilePart<T> {
    /// The pixels of the next level; empty for a tile that gives only an edge.
    pub(super) pixels: Array2<T>,
    pub(super) first_rows: Array2<T>,
    pub(super) first_cols: Array2<T>,
    pub(super) last_row: Array2<T>,
    pub(super) last_col: Array2<T>,
}

impl<T: Sample> TilePart<T> {
    pub(super) fn empty() -> Self {
        let none = || Array2::from_elem((0, 0), T::of_number(0.0));
        Self {
            pixels: none(),
            first_rows: none(),
            first_cols: none(),
            last_row: none(),
            last_col: none(),
        }
    }

    /// Returns the last sample of the last row.
    pub(super) fn corner(&self) -> Option<T> {
        self.last_row.last().or(self.last_col.last()).copied()
    }

    pub(super) fn bytes(&self) -> usize {
        let edges = [
            &self.first_rows,
            &self.first_cols,
            &self.last_row,
            &self.last_col,
        ];
        let samples = edges.iter().map(|edge| edge.len()).sum::<usize>() + self.pixels.len();
        samples * size_of::<T>()
    }
}

/// A step from one level to the next.
#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) below: &'a LevelPlan,
    pub(super) level: &'a LevelPlan,
    /// Columns, then rows.
    pub(super) axes: [Shrink; 2],
    /// True where pixels lie across the borders of tiles.
    pub(super) is_odd: [bool; 2],
}

impl<'a> Step<'a> {
    pub(super) fn new(below: &'a LevelPlan, level: &'a LevelPlan) -> Self {
        let axis = |from: u32, to: u32| Shrink {
            from: from as usize,
            to: to as usize,
        };
        let axes = [
            axis(below.source.width, level.source.width),
            axis(below.source.height, level.source.height),
        ];
        Self {
            below,
            level,
            axes,
            is_odd: axes.map(|axis| !axis.is_same() && !axis.is_even()),
        }
    }

    /// Returns the pixels of the next level that a range of the level below makes; it begins at a tile.
    pub(super) fn made_of(&self, [cols, rows]: &[Range<usize>; 2]) -> [Range<usize>; 2] {
        let made = |axis: Shrink, range: &Range<usize>| match axis.is_same() {
            true => range.clone(),
            false => range.start / 2..range.end.div_ceil(2),
        };
        [made(self.axes[0], cols), made(self.axes[1], rows)]
    }

    /// Returns the number of tiles of the level below that a tile waits for.
    pub(super) fn parts_of(&self, tile: Tile) -> usize {
        let parts = |at: usize, all: usize| if 2 * at + 1 < all { 2 } else { 1 };
        let cols = parts(tile.col, self.below.cols);
        let rows = parts(tile.row, self.below.rows);
        let left = usize::from(self.is_odd[0] && tile.col > 0);
        let above = usize::from(self.is_odd[1] && tile.row > 0);
        (cols + left) * (rows + above)
    }
}

/// Joins two arrays that have the same length in the other direction.
pub(super) fn concatenated<T: Sample>(axis: Axis, one: &Array2<T>, other: &Array2<T>) -> Array2<T> {
    let joined = ndarray::concatenate(axis, &[one.view(), other.view()]);
    // Both are edges of neighbours, so they have the same length; a difference would be an error of this file.
    joined.unwrap_or_else(|_| other.clone())
}

pub(super) fn overlap(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    one.start.max(other.start)..one.end.min(other.end)
}
