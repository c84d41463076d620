//! The source of a warp: a window of one band.

use std::ops::Range;

use super::sample::Cell;
use crate::geo::{Size, Window};

/// A fraction of a pixel that is added to positions before they are rounded down, as gdalwarp does: a position on
/// an edge may be computed a rounding error before it.
pub(super) const EDGE: f64 = 1e-10;

/// Samples of a window of a source, by row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plane<'a, T> {
    pub(super) rows: &'a [&'a [T]],
    /// True where pixels are valid; without a mask, everywhere.
    pub(super) mask: Option<&'a [&'a [bool]]>,
    pub(super) nodata: Option<T>,
    /// The window of the source that the rows are.
    pub(super) window: Window,
    /// The size of the complete source.
    pub(super) size: Size,
}

impl<T: Cell> Plane<'_, T> {
    /// Returns true if an unmasked sample is data.
    #[inline(always)]
    pub(super) fn is_data(&self, sample: T) -> bool {
        !sample.is_nan() && self.nodata != Some(sample)
    }

    /// Returns the sample at a column and a row of the source; none outside the window, masked or nodata.
    #[inline]
    pub(super) fn get(&self, col: i64, row: i64) -> Option<T> {
        let x = usize::try_from(col - i64::from(self.window.col)).ok()?;
        let y = usize::try_from(row - i64::from(self.window.row)).ok()?;
        let sample = *self.rows.get(y)?.get(x)?;
        let is_valid = match self.mask {
            Some(mask) => *mask.get(y)?.get(x)?,
            None => true,
        };
        (is_valid && self.is_data(sample)).then_some(sample)
    }

    /// Returns the samples of a row of the source, in the columns that lie in the window, and their mask if there
    /// is one.
    #[inline]
    pub(super) fn run(&self, cols: &Range<i64>, row: i64) -> (&[T], Option<&[bool]>) {
        let cols = within(cols, self.window.col, self.window.width);
        let row = usize::try_from(row - i64::from(self.window.row)).ok();
        let samples = row.and_then(|row| self.rows.get(row)?.get(cols.clone()));
        let mask = self
            .mask
            .map(|mask| row.and_then(|row| mask.get(row)?.get(cols)));
        (
            samples.unwrap_or_default(),
            mask.map(Option::unwrap_or_default),
        )
    }

    /// Returns the sample that contains a position, column then row; none outside the source, masked or nodata.
    #[inline]
    pub(super) fn at(&self, position: [f64; 2]) -> Option<T> {
        let col = pixel(position[0], self.size.width)?;
        let row = pixel(position[1], self.size.height)?;
        self.get(col, row)
    }

    /// Returns true if all samples of a range of columns and rows that lie in the window are valid.
    pub(super) fn is_whole(&self, cols: Range<i64>, rows: Range<i64>) -> bool {
        let cols = within(&cols, self.window.col, self.window.width);
        let rows = within(&rows, self.window.row, self.window.height);
        rows.into_iter().all(|row| {
            let is_valid = match self.mask {
                Some(mask) => mask
                    .get(row)
                    .and_then(|row| row.get(cols.clone()))
                    .is_some_and(|row| row.iter().all(|&is_valid| is_valid)),
                None => true,
            };
            let samples = self.rows.get(row).and_then(|row| row.get(cols.clone()));
            is_valid && samples.is_some_and(|samples| self.are_data(samples))
        })
    }

    /// Returns true if none of the samples is nodata, apart from the mask.
    fn are_data(&self, samples: &[T]) -> bool {
        // A fold has no early exit, unlike `any`, so that it can be vectorised.
        let has_nodata = match self.nodata {
            Some(nodata) => samples.iter().fold(false, |found, &sample| {
                found | sample.is_nan() | (sample == nodata)
            }),
            None => samples
                .iter()
                .fold(false, |found, &sample| found | sample.is_nan()),
        };
        !has_nodata
    }

    /// Adds 1 to the count of each column whose pixel in a row of the window is not valid. The caller checks counts
    /// against 0 only, so a pixel that is nodata and masked may count twice.
    pub(super) fn count_nodata(&self, row: usize, cols: &Range<usize>, nodata_counts: &mut [u32]) {
        if let Some(samples) = self.rows.get(row).and_then(|row| row.get(cols.clone())) {
            for (count, &sample) in nodata_counts.iter_mut().zip(samples) {
                *count += u32::from(!self.is_data(sample));
            }
        }
        let mask = self.mask.and_then(|mask| mask.get(row)?.get(cols.clone()));
        if let Some(mask) = mask {
            for (count, &is_valid) in nodata_counts.iter_mut().zip(mask) {
                *count += u32::from(!is_valid);
            }
        }
    }
}

/// Returns the pixel that contains a position, of `length`; none outside.
#[inline]
pub(super) fn pixel(position: f64, length: u32) -> Option<i64> {
    let pixel = floor(position + EDGE);
    (0..i64::from(length)).contains(&pixel).then_some(pixel)
}

/// Rounds a position down; NaN becomes a value outside every source. Without SSE4.1 `f64::floor` is a call, which
/// costs more.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a position that far away saturates, and lies outside every source"
)]
#[inline(always)]
pub(super) fn floor(position: f64) -> i64 {
    const FAR: i64 = 1 << 40;
    let toward_zero = position as i64;
    let floor = toward_zero.saturating_sub(i64::from(toward_zero as f64 > position));
    if position.is_nan() {
        -FAR
    } else {
        floor.clamp(-FAR, FAR)
    }
}

fn within(pixels: &Range<i64>, first: u32, count: u32) -> Range<usize> {
    let index = |pixel: i64| {
        let index = (pixel - i64::from(first)).clamp(0, i64::from(count));
        usize::try_from(index).unwrap_or(0)
    };
    index(pixels.start)..index(pixels.end)
}
