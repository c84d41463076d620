//! An array that many threads write into: each owns a slot, a rectangle that no other slot overlaps.
//!
//! [`Canvas::split`] checks once that the slots are disjoint, so that writes need no lock. [`Rest::join`] returns
//! the array when the last slot is dropped.

#![expect(
    unsafe_code,
    reason = "threads write disjoint rectangles of one array, which no safe slice can express"
)]

use std::{marker::PhantomData, sync::Arc};

use ndarray::Array3;

use super::Sample;
use crate::{
    error::{Error, ErrorKind, Result},
    geo::Window,
};

/// Samples of (bands, height, width) under construction, all zero at first.
#[derive(Debug)]
pub struct Canvas<T> {
    samples: Vec<T>,
    bands: usize,
    window: Window,
}

/// The memory behind a canvas and its slots.
#[derive(Debug)]
struct Memory<T> {
    start: *mut T,
    length: usize,
    capacity: usize,
}

// SAFETY: the memory is plain samples; `Canvas::split` decides which part a thread may access.
unsafe impl<T: Send> Send for Memory<T> {}
// SAFETY: as above: no two slots share a sample, and the array is read only after the last slot is dropped.
unsafe impl<T: Send> Sync for Memory<T> {}

impl<T> Drop for Memory<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer, length and capacity come from the `Vec` that `Canvas::split` took apart, and nobody
        // else frees them: `Rest::join` takes the `Vec` back without running this drop.
        drop(unsafe { Vec::from_raw_parts(self.start, self.length, self.capacity) });
    }
}

/// The owner of a canvas while its slots are written.
#[derive(Debug)]
pub struct Rest<T> {
    memory: Arc<Memory<T>>,
    shape: (usize, usize, usize),
}

/// A rectangle of one band of a canvas, written by one thread.
#[derive(Debug)]
pub struct Slot<T> {
    memory: Arc<Memory<T>>,
    /// Index of the first sample.
    first: usize,
    /// The number of samples from one row to the next.
    stride: usize,
    width: usize,
    height: usize,
    _samples: PhantomData<T>,
}

/// A requested slot: a band, and a window in the pixels that the canvas itself is a window of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The band, counted from 0.
    pub band: usize,
    /// The window.
    pub window: Window,
}

impl<T: Sample> Canvas<T> {
    /// Creates a canvas for a window. The system commits its memory only when it is written.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the memory cannot be reserved.
    pub fn new(bands: usize, window: Window) -> Result<Self> {
        let length = (window.width as usize)
            .checked_mul(window.height as usize)
            .and_then(|pixels| pixels.checked_mul(bands))
            .filter(|&length| Vec::<T>::new().try_reserve_exact(length).is_ok())
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidInput,
                    format!("{bands} x {window} pixels do not fit memory"),
                )
            })?;
        Ok(Self {
            samples: vec![T::of_number(0.0); length],
            bands,
            window,
        })
    }

    /// Advises the system to use huge pages, if the canvas is large enough.
    pub fn in_large_pages(self) -> Self {
        super::in_large_pages(&self.samples);
        self
    }

    /// Splits the canvas into slots, in the order requested.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if a rectangle is empty, outside the canvas, or shares a sample
    /// with another.
    pub fn split(self, wanted: &[Wanted]) -> Result<(Rest<T>, Vec<Slot<T>>)> {
        check(self.bands, &self.window, wanted)?;
        let (width, height) = (self.window.width as usize, self.window.height as usize);
        let mut samples = std::mem::ManuallyDrop::new(self.samples);
        let memory = Arc::new(Memory {
            start: samples.as_mut_ptr(),
            length: samples.len(),
            capacity: samples.capacity(),
        });
        let slots = wanted
            .iter()
            .map(|one| {
                let row = (one.window.row - self.window.row) as usize;
                let col = (one.window.col - self.window.col) as usize;
                Slot {
                    memory: Arc::clone(&memory),
                    first: (one.band * height + row) * width + col,
                    stride: width,
                    width: one.window.width as usize,
                    height: one.window.height as usize,
                    _samples: PhantomData,
                }
            })
            .collect();
        let shape = (self.bands, height, width);
        Ok((Rest { memory, shape }, slots))
    }
}

fn check(bands: usize, canvas: &Window, wanted: &[Wanted]) -> Result<()> {
    let wrong = |what: &str| Err(Error::new(ErrorKind::InvalidInput, what));
    let end = |start: u32, length: u32| u64::from(start) + u64::from(length);
    for one in wanted {
        let window = &one.window;
        let inside = one.band < bands
            && window.width > 0
            && window.height > 0
            && window.col >= canvas.col
            && window.row >= canvas.row
            && end(window.col, window.width) <= end(canvas.col, canvas.width)
            && end(window.row, window.height) <= end(canvas.row, canvas.height);
        if !inside {
            return wrong("a slot is outside the array");
        }
    }
    // The slots come from one regular grid, so neighbours in this order decide: their rows are equal or disjoint, and
    // with equal rows in one band their columns must be disjoint.
    let mut order: Vec<&Wanted> = wanted.iter().collect();
    order.sort_unstable_by_key(|one| (one.band, one.window.row, one.window.col));
    for pair in order.windows(2) {
        let [a, b] = pair else { continue };
        let same_band = a.band == b.band;
        let same_rows = a.window.row == b.window.row && a.window.height == b.window.height;
        let apart = !same_band
            || same_rows && end(a.window.col, a.window.width) <= u64::from(b.window.col)
            || end(a.window.row, a.window.height) <= u64::from(b.window.row);
        if !apart {
            return wrong("two slots share a sample");
        }
    }
    Ok(())
}

impl<T> Rest<T> {
    /// Returns the finished array, after every slot is dropped.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if a slot still exists.
    pub fn join(self) -> Result<Array3<T>> {
        let shape = self.shape;
        let lost = || Error::new(ErrorKind::Unavailable, "an array is still being written");
        let memory = Arc::try_unwrap(self.memory).map_err(|_| lost())?;
        let memory = std::mem::ManuallyDrop::new(memory);
        // SAFETY: the pointer, length and capacity come from a `Vec` of this type, nobody else holds them, and
        // `ManuallyDrop` prevents freeing them twice.
        let samples = unsafe { Vec::from_raw_parts(memory.start, memory.length, memory.capacity) };
        Array3::from_shape_vec(shape, samples).map_err(|err| {
            Error::new(
                ErrorKind::InvalidInput,
                "the samples do not match the shape of the window",
            )
            .with_source(err)
        })
    }
}

impl<T> Slot<T> {
    /// Returns one row of the rectangle; none past the last.
    pub fn row(&mut self, row: usize) -> Option<&mut [T]> {
        if row >= self.height {
            return None;
        }
        let at = self.first + row * self.stride;
        debug_assert!(at + self.width <= self.memory.length);
        // SAFETY: `split` checked that the rectangle lies inside the memory and shares no sample with another slot; a
        // slot is neither copied nor cloned, and `&mut self` prevents two of its rows from being borrowed at once. The
        // samples are initialised.
        Some(unsafe { std::slice::from_raw_parts_mut(self.memory.start.add(at), self.width) })
    }
}

impl<T: Copy> Slot<T> {
    /// Fills the slot with one value.
    pub fn fill(&mut self, value: T) {
        for row in 0..self.height {
            if let Some(row) = self.row(row) {
                row.fill(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(band: usize, window: &str) -> Wanted {
        Wanted {
            band,
            window: window.parse().unwrap(),
        }
    }

    fn canvas(window: &str) -> Canvas<u8> {
        Canvas::new(2, window.parse().unwrap()).unwrap()
    }

    #[test]
    fn each_place_is_written_where_it_lies() {
        let all = [
            wanted(0, "10,20,2,1"),
            wanted(0, "12,20,1,1"),
            wanted(1, "10,21,3,1"),
        ];
        let (rest, mut slots) = canvas("10,20,3,2").split(&all).unwrap();
        for (value, slot) in (1..).zip(&mut slots) {
            slot.fill(value);
        }
        assert!(slots[0].row(1).is_none());
        drop(slots);
        let (samples, _) = rest.join().unwrap().into_raw_vec_and_offset();
        assert_eq!(samples, [1, 1, 2, 0, 0, 0, 0, 0, 0, 3, 3, 3]);
    }

    #[test]
    fn places_that_share_a_sample_or_leave_the_canvas_are_refused() {
        for all in [
            vec![wanted(0, "0,0,2,2"), wanted(0, "1,1,2,2")],
            vec![wanted(0, "0,0,2,2"), wanted(0, "0,0,2,2")],
            vec![
                wanted(0, "0,0,2,2"),
                wanted(0, "2,0,1,3"),
                wanted(0, "0,2,1,1"),
            ],
            vec![wanted(2, "0,0,1,1")],
            vec![wanted(0, "3,3,2,1")],
            vec![wanted(0, "0,0,0,1")],
        ] {
            assert!(canvas("0,0,4,4").split(&all).is_err(), "{all:?}");
        }
    }

    #[test]
    fn an_array_is_not_handed_out_while_a_place_is_held() {
        let (rest, slots) = canvas("0,0,4,4").split(&[wanted(0, "0,0,1,1")]).unwrap();
        assert!(rest.join().is_err());
        drop(slots);
    }
}
