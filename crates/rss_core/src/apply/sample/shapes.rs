//! What points and zones have in common: both say what they need of an image, and take it cell by cell.

use ndarray::Array2;

use super::cells::{Cell, Tiles};
use crate::{
    error::Result,
    geo::{Crs, Window, WorldToPixel},
};

/// What is taken of images: values at points, or statistics of zones.
pub(super) trait Shapes: Send + Sync + 'static {
    /// Where the shapes lie on a grid.
    type Layout: Send + Sync + 'static;
    /// What one cell gives.
    type Part: Send + 'static;
    /// What the cells so far give.
    type Whole: Default + Send + 'static;

    /// The CRS of the shapes.
    fn crs(&self) -> &Crs;

    /// Finds what is needed of an image.
    ///
    /// # Errors
    ///
    /// Naming a shape that has no place on the image's map.
    fn lay_out(
        &self,
        world_to_pixel: &WorldToPixel,
        tiles: Tiles,
    ) -> Result<(Self::Layout, Vec<Cell>)>;

    /// Returns the bytes that a layout takes, with what is kept while one band is looked at: samples of so many
    /// bytes.
    fn bytes(&self, layout: &Self::Layout, sample_bytes: usize) -> u64;

    /// Returns the bytes that a needed pixel takes while its cell is looked at.
    fn bytes_per_pixel(&self) -> u64;

    /// Takes what a cell gives.
    fn take(&self, layout: &Self::Layout, cell: &Cell, samples: &Samples) -> Self::Part;

    /// Adds what the next cell gives. Cells come in their order.
    fn add(&self, whole: &mut Self::Whole, part: Self::Part);

    /// Returns what one band of one image gives.
    fn rows(&self, whole: Self::Whole) -> ShapeRows;
}

/// Values of a cell's window.
#[derive(Debug)]
pub(super) struct Samples {
    pub(super) window: Window,
    /// (y, x); NaN where there is no data.
    pub(super) values: Array2<f64>,
    /// (y, x); true where a mask leaves a pixel out.
    pub(super) left_out: Option<Array2<bool>>,
}

impl Samples {
    /// Returns the value of a pixel, and whether a mask leaves it out; none outside of the window.
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

/// What shapes give in one band of one image: a row for each shape that has pixels there.
#[derive(Clone, Debug, Default)]
pub(super) struct ShapeRows {
    /// The shapes.
    pub(super) shapes: Vec<u32>,
    /// The same number of numbers for each.
    pub(super) numbers: Vec<f64>,
}
