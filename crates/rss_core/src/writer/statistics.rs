//! Statistics of a band's samples, summed tile by tile.

use std::borrow::Cow;

use ndarray::ArrayView2;

use crate::raster::{Number, Sample};

/// Independent sums: with one, each addition would wait for the one before it.
const LANES: usize = 8;

/// Statistics of the valid samples of a band.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BandStatistics {
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the population: the divisor is the number of valid samples.
    pub stddev: f64,
    /// The number of valid samples: finite, and not nodata.
    pub valid: u64,
    /// The number of all samples.
    pub samples: u64,
}

impl BandStatistics {
    /// Returns the percentage of valid samples.
    pub fn valid_percent(&self) -> f64 {
        100.0 * self.valid as f64 / self.samples.max(1) as f64
    }
}

/// Moments of samples, from which statistics are computed; those of parts can be merged.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moments {
    samples: u64,
    valid: u64,
    min: f64,
    max: f64,
    mean: f64,
    /// The sum of squared distances from the mean.
    squares: f64,
}

/// Sums by lane, of distances from one value. Sums of squares of the values themselves would lose the digits
/// of a small variance around a large mean.
struct Lanes {
    valid: [f64; LANES],
    sum: [f64; LANES],
    squares: [f64; LANES],
    min: [f64; LANES],
    max: [f64; LANES],
    nodata: f64,
    start: f64,
}

impl Lanes {
    fn new(nodata: f64, start: f64) -> Self {
        Self {
            valid: [0.0; LANES],
            sum: [0.0; LANES],
            squares: [0.0; LANES],
            min: [f64::INFINITY; LANES],
            max: [f64::NEG_INFINITY; LANES],
            nodata,
            start,
        }
    }

    /// Adds a value to each lane. Without branches, so that the compiler vectorises it.
    #[inline]
    fn add(&mut self, numbers: [f64; LANES]) {
        for (lane, number) in numbers.into_iter().enumerate() {
            let is_valid = number.is_finite() & (number != self.nodata);
            let distance = if is_valid { number - self.start } else { 0.0 };
            self.valid[lane] += if is_valid { 1.0 } else { 0.0 };
            self.sum[lane] += distance;
            self.squares[lane] += distance * distance;
            let low = if is_valid { number } else { f64::INFINITY };
            let high = if is_valid { number } else { f64::NEG_INFINITY };
            let (min, max) = (self.min[lane], self.max[lane]);
            self.min[lane] = if low < min { low } else { min };
            self.max[lane] = if high > max { high } else { max };
        }
    }

    /// Adds the last values, fewer than lanes; the other lanes get NaN, which is not valid.
    fn add_rest(&mut self, rest: impl Iterator<Item = f64>) {
        let mut numbers = [f64::NAN; LANES];
        numbers
            .iter_mut()
            .zip(rest)
            .for_each(|(to, from)| *to = from);
        self.add(numbers);
    }
}

impl Moments {
    /// Sums up samples.
    pub(super) fn of<T: Sample>(samples: ArrayView2<'_, T>, nodata: Option<Number>) -> Self {
        // Nothing equals NaN: without nodata every finite number is valid.
        let nodata = nodata.map_or(f64::NAN, Number::as_f64);
        let valid = |number: &f64| number.is_finite() && *number != nodata;
        let all = samples.len() as u64;
        let Some(start) = samples.iter().map(|one| one.number()).find(valid) else {
            return Self {
                samples: all,
                ..Self::default()
            };
        };
        // The first valid sample is near the others, so distances from it are small.
        let mut lanes = Lanes::new(nodata, start);
        for row in samples.rows() {
            let row = row
                .to_slice()
                .map_or_else(|| Cow::Owned(row.to_vec()), Cow::Borrowed);
            let (chunks, rest) = row.as_chunks::<LANES>();
            for chunk in chunks {
                lanes.add(chunk.map(|sample| sample.number()));
            }
            lanes.add_rest(rest.iter().map(|sample| sample.number()));
        }
        let valid: f64 = lanes.valid.iter().sum();
        let sum: f64 = lanes.sum.iter().sum();
        let squares: f64 = lanes.squares.iter().sum();
        let mean = sum / valid;
        Self {
            samples: all,
            // An exact integer: a tile has far fewer samples than 2^53.
            valid: valid as u64,
            min: lanes.min.into_iter().fold(f64::INFINITY, f64::min),
            max: lanes.max.into_iter().fold(f64::NEG_INFINITY, f64::max),
            mean: start + mean,
            squares: (squares - sum * mean).max(0.0),
        }
    }

    /// Merges the moments of another part, by the algorithm of
    /// [Chan, Golub and LeVeque](https://en.wikipedia.org/wiki/Algorithms_for_calculating_variance#Parallel_algorithm).
    pub(super) fn merge(&mut self, other: &Self) {
        let samples = self.samples + other.samples;
        match (self.valid, other.valid) {
            (_, 0) => {}
            (0, _) => *self = *other,
            (here, there) => {
                let (here, there) = (here as f64, there as f64);
                let (all, distance) = (here + there, other.mean - self.mean);
                self.squares += other.squares + distance * distance * here * there / all;
                self.mean += distance * there / all;
                self.min = self.min.min(other.min);
                self.max = self.max.max(other.max);
                self.valid += other.valid;
            }
        }
        self.samples = samples;
    }

    /// Returns the statistics; none if no sample is valid.
    pub(super) fn statistics(&self) -> Option<BandStatistics> {
        (self.valid > 0).then(|| BandStatistics {
            min: self.min,
            max: self.max,
            mean: self.mean,
            stddev: (self.squares / self.valid as f64).sqrt(),
            valid: self.valid,
            samples: self.samples,
        })
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, s};

    use super::*;

    #[test]
    fn parts_put_together_are_the_whole() {
        let samples = Array2::from_shape_fn((37, 29), |(y, x)| {
            let number = i16::try_from((y * 131 + x * 17) % 1000).unwrap();
            if number % 7 == 0 {
                -999
            } else {
                number + 10_000
            }
        });
        let valid: Vec<f64> = samples
            .iter()
            .filter(|&&one| one != -999)
            .map(|&one| f64::from(one))
            .collect();
        let mean = valid.iter().sum::<f64>() / valid.len() as f64;
        let squares: f64 = valid.iter().map(|one| (one - mean).powi(2)).sum();
        let whole = Moments::of(samples.view(), Some((-999.0).into()));
        let mut parts = Moments::default();
        for part in [s![..10, ..], s![10.., ..13], s![10.., 13..]] {
            parts.merge(&Moments::of(samples.slice(part), Some((-999.0).into())));
        }
        // Transposed, and so not contiguous: another path through the samples.
        let transposed = Moments::of(samples.t(), Some((-999.0).into()));
        for found in [whole, parts, transposed] {
            let found = found.statistics().unwrap();
            assert_eq!(found.valid, valid.len() as u64);
            assert_eq!(found.samples, 37 * 29);
            assert_eq!([found.min, found.max], [10_001.0, 10_999.0]);
            assert!((found.mean - mean).abs() < 1e-9, "{found:?}");
            let stddev = (squares / valid.len() as f64).sqrt();
            assert!((found.stddev - stddev).abs() < 1e-9, "{found:?}");
        }
    }

    /// An infinite sample has no mean with others, and no distance from one.
    #[test]
    fn what_is_not_finite_is_not_valid() {
        for strange in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            for at in [0, 3, 19] {
                let mut samples = Array2::from_elem((2, 10), 1.5_f32);
                samples[(0, 1)] = 4.5;
                samples[(at / 10, at % 10)] = strange;
                let whole = Moments::of(samples.view(), None);
                let mut parts = Moments::default();
                for part in samples.rows() {
                    let part = part.insert_axis(ndarray::Axis(0));
                    parts.merge(&Moments::of(part, None));
                }
                for found in [whole, parts] {
                    let found = found.statistics().unwrap();
                    assert_eq!((found.valid, found.samples), (19, 20));
                    assert_eq!([found.min, found.max], [1.5, 4.5]);
                    let mean = 1.5 + 3.0 / 19.0;
                    assert!((found.mean - mean).abs() < 1e-12, "{found:?}");
                    let stddev = 3.0 * (18.0_f64 / (19.0 * 19.0)).sqrt();
                    assert!((found.stddev - stddev).abs() < 1e-12, "{found:?}");
                }
            }
        }
        let nothing = Array2::from_elem((3, 3), f64::INFINITY);
        assert_eq!(Moments::of(nothing.view(), None).statistics(), None);
    }

    #[test]
    fn nothing_valid_has_no_statistics() {
        let samples = Array2::from_elem((3, 3), f32::NAN);
        let moments = Moments::of(samples.view(), None);
        assert_eq!(moments.statistics(), None);
        let mut all = moments;
        all.merge(&Moments::of(Array2::from_elem((1, 2), 4.0).view(), None));
        let found = all.statistics().unwrap();
        assert_eq!((found.valid, found.samples), (2, 11));
        assert_eq!([found.min, found.mean, found.stddev], [4.0, 4.0, 0.0]);
    }
}
