//! The pixels that a warp reads: a window of one band of the source.

use std::ops::Range;

use super::sample::Cell;
use crate::geo::{Size, Window};

/// A part of a pixel by which a place is taken to lie further right and down, as gdalwarp does: what
/// arithmetic leaves of a place on an edge.
pub(super) const EDGE: f64 = 1e-10;

/// Samples of a window of a source, by row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plane<'a, T> {
    pub(super) rows: &'a [&'a [T]],
    /// True where there is data; without it, everywhere.
    pub(super) mask: Option<&'a [&'a [bool]]>,
    pub(super) nodata: Option<T>,
    /// The pixels of the source that the rows are.
    pub(super) window: Window,
    /// The whole source.
    pub(super) size: Size,
}

impl<T: Cell> Plane<'_, T> {
    /// Returns true if a sample that no mask hides is data.
    #[inline(always)]
    pub(super) fn is_data(&self, sample: T) -> bool {
        !sample.is_nan() && self.nodata != Some(sample)
    }

    /// Returns the sample at a column and a row of the source; none outside the window, or without data.
    #[inline]
    pub(super) fn get(&self, col: i64, row: i64) -> Option<T> {
        let x = usize::try_from(col - i64::from(self.window.col)).ok()?;
        let y = usize::try_from(row - i64::from(self.window.row)).ok()?;
        let sample = *self.rows.get(y)?.get(x)?;
        let shows = match self.mask {
            Some(mask) => *mask.get(y)?.get(x)?,
            None => true,
        };
        (shows && self.is_data(sample)).then_some(sample)
    }

    /// Returns the samples of a row of the source in some columns that lie in the window, and the mask where
    /// there is one.
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

    /// Returns the sample in which a place lies, column then row; none outside the source, or without
    /// data.
    #[inline]
    pub(super) fn at(&self, place: [f64; 2]) -> Option<T> {
        let col = pixel(place[0], self.size.width)?;
        let row = pixel(place[1], self.size.height)?;
        self.get(col, row)
    }

    /// Returns true if all samples of some columns and rows of the source that lie in the window are data.
    pub(super) fn is_whole(&self, cols: Range<i64>, rows: Range<i64>) -> bool {
        let cols = within(&cols, self.window.col, self.window.width);
        let rows = within(&rows, self.window.row, self.window.height);
        rows.into_iter().all(|row| {
            let shows = match self.mask {
                Some(mask) => mask
                    .get(row)
                    .and_then(|row| row.get(cols.clone()))
                    .is_some_and(|row| row.iter().all(|&shows| shows)),
                None => true,
            };
            let samples = self.rows.get(row).and_then(|row| row.get(cols.clone()));
            shows && samples.is_some_and(|samples| self.are_data(samples))
        })
    }

    /// Returns true if all samples that no mask hides are data.
    fn are_data(&self, samples: &[T]) -> bool {
        // Without an early end, so that it can be vectorised.
        let nodata_counts = match self.nodata {
            Some(nodata) => samples.iter().fold(false, |found, &sample| {
                found | sample.is_nan() | (sample == nodata)
            }),
            None => samples
                .iter()
                .fold(false, |found, &sample| found | sample.is_nan()),
        };
        !nodata_counts
    }

    /// Adds 1 to the count of each column, of some rows of the window, that is not data.
    pub(super) fn count_nodata(&self, row: usize, cols: &Range<usize>, nodata_counts: &mut [u32]) {
        if let Some(samples) = self.rows.get(row).and_then(|row| row.get(cols.clone())) {
            for (count, &sample) in nodata_counts.iter_mut().zip(samples) {
                *count += u32::from(!self.is_data(sample));
            }
        }
        let mask = self.mask.and_then(|mask| mask.get(row)?.get(cols.clone()));
        if let Some(mask) = mask {
            for (count, &shows) in nodata_counts.iter_mut().zip(mask) {
                *count += u32::from(!shows);
            }
        }
    }
}

/// Returns the pixel in which a place lies, of so many; none outside.
#[inline]
pub(super) fn pixel(place: f64, length: u32) -> Option<i64> {
    let pixel = floor(place + EDGE);
    (0..i64::from(length)).contains(&pixel).then_some(pixel)
}

/// Returns the whole number at or below a place; of what is no number, one that is on no source. A call of
/// `floor` costs more where it is no instruction.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a place that far away becomes the end of the range, and lies on no source"
)]
#[inline(always)]
pub(super) fn floor(place: f64) -> i64 {
    const FAR: i64 = 1 << 40;
    let toward_zero = place as i64;
    let floor = toward_zero.saturating_sub(i64::from(toward_zero as f64 > place));
    if place.is_nan() {
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
