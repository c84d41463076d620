//! The parallel loop over rows of a stack that all reducers use.

use ndarray::{Array2, ArrayView3, Axis, CowArray, Ix3};
use rayon::prelude::*;

use crate::raster::{Number, Sample};

/// Columns that are processed together: enough for vectors, few enough that 128 time steps of them (32 KiB of `f32`)
/// stay in the L1 cache.
pub(super) const LANES: usize = 64;

/// The fewest samples of a rayon task, if there are so many: smaller ones would cost more than they gain.
const SAMPLES_PER_TASK: usize = 1 << 16;

/// A real sample: one with an order.
pub(in crate::apply) trait Real:
    Sample + PartialOrd + Send + Sync + 'static
{
    /// The float type of means and medians: the smallest that holds all samples, except 64-bit integers.
    type Wide: Real;
    /// The maximum of the type, which sorts after all valid samples.
    const GREATEST: Self;
    fn is_nan(self) -> bool;
}

macro_rules! whole {
    ($($type:ty => $wide:ty),*) => {$(
        impl Real for $type {
            type Wide = $wide;
            const GREATEST: Self = Self::MAX;
            fn is_nan(self) -> bool {
                false
            }
        }
    )*};
}
whole!(u8 => f32, i8 => f32, u16 => f32, i16 => f32, u32 => f64, i32 => f64, u64 => f64, i64 => f64);

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl Real for $type {
            type Wide = Self;
            const GREATEST: Self = Self::INFINITY;
            fn is_nan(self) -> bool {
                self.is_nan()
            }
        }
    )*};
}
floats!(f32, f64);

/// Converts a number to the nearest sample of a type.
pub(super) fn number_as<T: Real>(number: f64) -> T {
    T::of_number(number)
}

/// Tests whether samples are valid, without branches, so that loops over samples vectorize.
#[derive(Clone, Copy, Debug)]
pub(super) struct Valid<T> {
    nodata: T,
    has_nodata: bool,
}

impl<T: Real> Valid<T> {
    pub(super) fn new(nodata: Option<Number>) -> Self {
        let nodata = nodata.and_then(T::exact);
        Self {
            nodata: nodata.unwrap_or(T::of_number(0.0)),
            has_nodata: nodata.is_some(),
        }
    }

    pub(super) fn is(self, sample: T) -> bool {
        !sample.is_nan() & !(self.has_nodata & (sample == self.nodata))
    }
}

/// Computes an image (y, x) from a stack (time, y, x). `kernel` gets the rows of all time steps, the row of the image,
/// and the scratch buffer that `room` allocates once per task.
pub(super) fn over_rows<T: Real, O: Real, R>(
    stack: ArrayView3<'_, T>,
    fill: O,
    room: impl Fn() -> R + Sync,
    kernel: impl Fn(&[&[T]], &mut [O], &mut R) + Sync,
) -> Array2<O> {
    let (dates, height, width) = stack.dim();
    let mut image = Array2::from_elem((height, width), fill);
    let stack = with_whole_rows(stack);
    let rows_per_task = (SAMPLES_PER_TASK / (width * dates).max(1)).max(1);
    let Some(pixels) = image.as_slice_mut().filter(|pixels| !pixels.is_empty()) else {
        return image;
    };
    let tasks = pixels.par_chunks_mut(rows_per_task * width).enumerate();
    tasks.for_each(|(task, pixels)| {
        let mut room = room();
        let mut rows: Vec<&[T]> = Vec::with_capacity(dates);
        for (row, out) in pixels.chunks_mut(width).enumerate() {
            let y = task * rows_per_task + row;
            rows.clear();
            rows.extend((0..dates).filter_map(|date| {
                let row = stack.view().index_axis_move(Axis(0), date);
                row.index_axis_move(Axis(0), y).to_slice()
            }));
            kernel(&rows, out, &mut room);
        }
    });
    image
}

/// Returns the stack with rows that are contiguous in memory; copies it only if they are not.
pub(super) fn with_whole_rows<T: Real>(stack: ArrayView3<'_, T>) -> CowArray<'_, T, Ix3> {
    let [.., step] = stack.strides() else {
        return stack.as_standard_layout().into_owned().into();
    };
    match *step == 1 || stack.dim().2 <= 1 {
        true => stack.into(),
        false => stack.as_standard_layout().into_owned().into(),
    }
}
