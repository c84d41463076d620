//! Pixels outside the polygons that a cube is clipped to: nodata in what a computation sees, and in what it makes.

use std::ops::Range;

use ndarray::{Array3, Array4, Axis};

use super::{block::BlockSample, cube::Inner, sample::Cover};
use crate::{error::Result, geo::Window, raster::Sample};

impl Inner {
    /// Makes the pixels of a window nodata that lie outside the polygons.
    pub(super) fn clip<T: BlockSample>(
        &self,
        seen: &Window,
        fills: &[T],
        data: &mut Array4<T>,
    ) -> Result<()> {
        let Some(cover) = &self.clip else {
            return Ok(());
        };
        let mut is_checked = false;
        for (row, mut lines) in (seen.row..).zip(data.axis_iter_mut(Axis(2))) {
            for cols in outside(cover, row, seen) {
                if !is_checked {
                    (0..self.bands.len()).try_for_each(|band| self.check_gaps::<T>(band))?;
                    is_checked = true;
                }
                let mut part = lines.slice_mut(ndarray::s![.., .., cols]);
                for (mut band, fill) in part.axis_iter_mut(Axis(1)).zip(fills) {
                    band.fill(*fill);
                }
            }
        }
        Ok(())
    }

    /// Makes the pixels of a result NaN that lie outside the polygons: a count is 0 there, and a formula may have a
    /// value without data. Integers have no NaN; what a closure makes of nodata stays.
    pub(super) fn clip_result<O: Sample>(&self, window: &Window, samples: &mut Array3<O>) {
        let Some(cover) = self.clip.as_ref().filter(|_| O::DTYPE.is_float()) else {
            return;
        };
        for (row, mut line) in (window.row..).zip(samples.axis_iter_mut(Axis(1))) {
            for cols in outside(cover, row, window) {
                line.slice_mut(ndarray::s![.., cols])
                    .fill(O::of_number(f64::NAN));
            }
        }
    }
}

/// Returns the columns of a row, counted from the window's first, that lie outside.
fn outside(cover: &Cover, row: u32, window: &Window) -> Vec<Range<usize>> {
    let mut start = window.col;
    let mut found = Vec::new();
    for (span, _) in cover.row_in(row, window) {
        found.push(start..span.start);
        start = span.end;
    }
    found.push(start..window.col.saturating_add(window.width));
    let counted =
        |part: Range<u32>| (part.start - window.col) as usize..(part.end - window.col) as usize;
    let some = found.into_iter().filter(|part| !part.is_empty());
    some.map(counted).collect()
}
