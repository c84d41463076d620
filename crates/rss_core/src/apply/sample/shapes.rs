//! The common interface of points and zones: both plan the pixels they need of an image, and consume it cell by cell.

use ndarray::Array2;

use super::cells::{Cell, Tiles};
use crate::{
    apply::footprint::Area,
    error::Result,
    geo::{Crs, Window, WorldToPixel},
};

/// Shapes to sample: points (values) or zones (statistics).
pub(super) trait Shapes: Send + Sync + 'static {
    /// The pixels of the shapes on a grid.
    type Layout: Send + Sync + 'static;
    /// The result of one cell.
    type Part: Send + 'static;
    /// The merged results of the cells so far.
    type Whole: Default + Send + 'static;

    /// The CRS of the shapes.
    fn crs(&self) -> &Crs;

    /// Where pixels may lie that they need; everywhere if that cannot be told.
    fn area(&self) -> Area;

    /// Computes the layout of the shapes on an image.
    ///
    /// # Errors
    ///
    /// An error that names a shape which cannot be projected to the CRS of the image.
    fn lay_out(
        &self,
        world_to_pixel: &WorldToPixel,
        tiles: Tiles,
    ) -> Result<(Self::Layout, Vec<Cell>)>;

    /// Returns the bytes of a layout and of the results of one band, whose samples have so many bytes.
    fn bytes(&self, layout: &Self::Layout, sample_bytes: usize) -> u64;

    /// Returns the bytes of a needed pixel while its cell is sampled.
    fn bytes_per_pixel(&self) -> u64;

    /// Samples a cell.
    fn take(&self, layout: &Self::Layout, cell: &Cell, samples: &Samples) -> Self::Part;

    /// Merges the result of the next cell. Cells come in order, so that results do not depend on timing.
    fn add(&self, whole: &mut Self::Whole, part: Self::Part);

    /// Returns the rows of one band of one image.
    fn rows(&self, layout: &Self::Layout, whole: Self::Whole) -> ShapeRows;
}

/// Values of a cell's window.
#[derive(Debug)]
pub(super) struct Samples {
    pub(super) window: Window,
    /// (y, x); NaN is nodata.
    pub(super) values: Array2<f64>,
    /// (y, x); true for a masked pixel.
    pub(super) left_out: Option<Array2<bool>>,
}

impl Samples {
    /// Returns the value of a pixel, and whether it is masked; none outside of the window.
    pub(super) fn at(&self, col: u32, row: u32) -> Option<(f64, bool)> {
        let place = (
            row.checked_sub(self.window.row)? as usize,
            col.checked_sub(self.window.col)? as usize,
        );
        let value = *self.values.get(place)?;
        let is_out = self.left_out.as_ref().and_then(|out| out.get(place));
        Some((value, is_out.copied().unwrap_or(false)))
    }
}

/// The results of one band of one image: a row for each shape that lies there.
#[derive(Clone, Debug, Default)]
pub(super) struct ShapeRows {
    /// The shapes.
    pub(super) shapes: Vec<u32>,
    /// The numbers of all rows, the same count for each.
    pub(super) numbers: Vec<f64>,
}
