//! Reducers in one or two passes: sums, extremes, the first valid sample.
//!
//! All process 64 columns at a time with one accumulator each, time step by time step, without branches on samples,
//! so that the compiler can vectorize them.

use super::run::{LANES, Real, Valid, number_as};

/// Sums and counts of the valid samples of some columns.
struct Sums {
    sums: [f64; LANES],
    counts: [u32; LANES],
}

impl Sums {
    /// Sums `of` over the valid samples of the columns from `start` on.
    fn new<T: Real>(
        rows: &[&[T]],
        start: usize,
        len: usize,
        valid: Valid<T>,
        of: impl Fn(usize, f64) -> f64,
    ) -> Self {
        let mut sums = [0.0; LANES];
        let mut counts = [0; LANES];
        for row in rows {
            let row = &row[start..start + len];
            for (lane, ((sum, count), &sample)) in
                sums.iter_mut().zip(&mut counts).zip(row).enumerate()
            {
                let is_valid = valid.is(sample);
                let number = of(lane, sample.number());
                *sum += if is_valid { number } else { 0.0 };
                *count += u32::from(is_valid);
            }
        }
        Self { sums, counts }
    }

    /// Returns sums divided by counts; NaN (0 / 0) without valid samples.
    fn means(&self) -> [f64; LANES] {
        let mut means = self.sums;
        for (mean, &count) in means.iter_mut().zip(&self.counts) {
            *mean /= f64::from(count);
        }
        means
    }
}

/// Calls `work` with the start of each run of columns and its part of the output.
fn by_lanes<O>(out: &mut [O], mut work: impl FnMut(usize, &mut [O])) {
    for (run, out) in out.chunks_mut(LANES).enumerate() {
        work(run * LANES, out);
    }
}

pub(super) fn mean<T: Real>(rows: &[&[T]], valid: Valid<T>, out: &mut [T::Wide]) {
    by_lanes(out, |start, out| {
        let means = Sums::new(rows, start, out.len(), valid, |_, number| number).means();
        for (out, mean) in out.iter_mut().zip(means) {
            *out = number_as::<T::Wide>(mean);
        }
    });
}

pub(super) fn sum<T: Real>(rows: &[&[T]], valid: Valid<T>, out: &mut [T::Wide]) {
    by_lanes(out, |start, out| {
        let sums = Sums::new(rows, start, out.len(), valid, |_, number| number);
        for (out, (sum, count)) in out.iter_mut().zip(sums.sums.into_iter().zip(sums.counts)) {
            *out = number_as::<T::Wide>(if count == 0 { f64::NAN } else { sum });
        }
    });
}

/// Two passes, the mean first: `mean(x^2) - mean(x)^2` would lose digits by cancellation.
pub(super) fn std<T: Real>(rows: &[&[T]], valid: Valid<T>, out: &mut [T::Wide]) {
    by_lanes(out, |start, out| {
        let means = Sums::new(rows, start, out.len(), valid, |_, number| number).means();
        let squares = Sums::new(rows, start, out.len(), valid, |lane, number| {
            let off = number - means[lane];
            off * off
        });
        for (out, variance) in out.iter_mut().zip(squares.means()) {
            *out = number_as::<T::Wide>(variance.sqrt());
        }
    });
}

/// The count saturates at 65535.
pub(super) fn count<T: Real>(rows: &[&[T]], valid: Valid<T>, out: &mut [u16]) {
    for row in rows {
        for (out, &sample) in out.iter_mut().zip(*row) {
            *out = out.saturating_add(u16::from(valid.is(sample)));
        }
    }
}

pub(super) fn best<T: Real>(
    rows: &[&[T]],
    valid: Valid<T>,
    fill: T,
    out: &mut [T],
    better: impl Fn(T, T) -> T,
) {
    by_lanes(out, |start, out| {
        let mut found = [false; LANES];
        out.fill(fill);
        for row in rows {
            let row = &row[start..start + out.len()];
            for ((out, found), &sample) in out.iter_mut().zip(&mut found).zip(row) {
                let is_valid = valid.is(sample);
                let best = if *found { better(*out, sample) } else { sample };
                *out = if is_valid { best } else { *out };
                *found |= is_valid;
            }
        }
    });
}

pub(super) fn first<'a, T: Real>(
    rows: impl Iterator<Item = &'a [T]> + Clone,
    valid: Valid<T>,
    fill: T,
    out: &mut [T],
) {
    by_lanes(out, |start, out| {
        let mut found = [false; LANES];
        out.fill(fill);
        for row in rows.clone() {
            let row = &row[start..start + out.len()];
            for ((out, found), &sample) in out.iter_mut().zip(&mut found).zip(row) {
                let takes = valid.is(sample) & !*found;
                *out = if takes { sample } else { *out };
                *found |= takes;
            }
            // All pixels of the run are found: later time steps need not be read.
            if found[..out.len()].iter().all(|&found| found) {
                break;
            }
        }
    });
}
