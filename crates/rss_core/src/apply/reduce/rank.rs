//! Medians and percentiles: the valid samples of a given rank.
//!
//! The samples of 64 pixels are sorted at once by a sorting network. Its comparisons do not depend on the
//! samples: each is the minimum and maximum of two rows of 64, which the compiler vectorizes. The
//! network is Batcher's merge exchange for any number of time steps (Knuth, The Art of Computer Programming 3,
//! 5.2.2, algorithm M). Invalid samples become the maximum of their type and sort to the end; the number of valid
//! ones determines, for each pixel, the indices of the result. For very many time steps a network has more
//! comparisons than a selection pixel by pixel.

use super::{
    Percentile,
    run::{LANES, Real, Valid, number_as},
};

/// The most time steps that a network sorts; above, each pixel is selected by itself.
const NETWORK_DATES: usize = 128;

/// A quantile for stacks with a given number of time steps.
#[derive(Debug)]
pub(super) struct Rank {
    /// The position of the quantile by the number of valid samples, from 0.
    positions: Vec<QuantilePosition>,
    dates: usize,
    /// Pairs of indices: the smaller sample goes to the first, the larger to the second.
    network: Vec<(usize, usize)>,
}

#[derive(Clone, Copy, Debug)]
enum Which {
    Median,
    /// From 0 to 1.
    Share(f64),
}

/// Two indices of sorted samples, and the weight of the second in the interpolation.
#[derive(Clone, Copy, Debug, PartialEq)]
struct QuantilePosition {
    low: usize,
    high: usize,
    between: f64,
}

impl Which {
    /// Returns the position among `count` sorted samples; index 0 if there are none.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index of a time step is small and not negative"
    )]
    fn position(self, count: usize) -> QuantilePosition {
        let last = count.saturating_sub(1);
        match self {
            Self::Median => QuantilePosition {
                low: last / 2,
                high: (count / 2).min(last),
                between: 0.5,
            },
            Self::Share(share) => {
                let exact = share * last as f64;
                let low = (exact.floor() as usize).min(last);
                let between = exact - low as f64;
                // Exactly on a sample, the next has no weight and must not be read: infinity times 0 is NaN.
                let high = if between > 0.0 { low + 1 } else { low };
                QuantilePosition {
                    low,
                    high: high.min(last),
                    between,
                }
            }
        }
    }
}

impl QuantilePosition {
    /// Interpolates between two samples as numpy does: from the nearer one.
    fn value<T: Real>(self, low: T, high: T) -> T::Wide {
        let (low, high) = (low.number(), high.number());
        let value = match self.between {
            // Halved first: the sum of two large samples may overflow.
            0.5 => low * 0.5 + high * 0.5,
            // The difference of equal infinities is NaN.
            _ if low == high => low,
            between if between < 0.5 => low + (high - low) * between,
            between => high - (high - low) * (1.0 - between),
        };
        number_as::<T::Wide>(value)
    }
}

/// Returns the median, or a percentile, of `count` sorted numbers, which `at` returns by index: the
/// same result as for a stack of them. NaN for none.
pub(super) fn of_sorted(
    percentile: Option<Percentile>,
    count: usize,
    at: impl Fn(usize) -> f64,
) -> f64 {
    if count == 0 {
        return f64::NAN;
    }
    let which = match percentile {
        Some(percentile) => Which::Share(percentile.percent() / 100.0),
        None => Which::Median,
    };
    let position = which.position(count);
    position.value::<f64>(at(position.low), at(position.high))
}

/// Scratch buffers for 64 columns.
pub(super) struct Room<T> {
    /// The samples of each time step.
    lanes: Vec<[T; LANES]>,
    /// The samples of one pixel.
    pixel: Vec<T>,
}

impl Rank {
    pub(super) fn median(dates: usize) -> Self {
        Self::new(dates, Which::Median)
    }

    pub(super) fn percentile(dates: usize, percentile: Percentile) -> Self {
        Self::new(dates, Which::Share(percentile.percent() / 100.0))
    }

    fn new(dates: usize, which: Which) -> Self {
        Self {
            positions: (0..=dates).map(|count| which.position(count)).collect(),
            dates,
            network: match dates <= NETWORK_DATES {
                true => network(dates),
                false => Vec::new(),
            },
        }
    }

    /// Allocates the buffers of [`Self::of_rows`].
    pub(super) fn room<T: Real>(&self) -> Room<T> {
        Room {
            lanes: vec![[T::GREATEST; LANES]; self.dates],
            pixel: Vec::with_capacity(self.dates),
        }
    }

    /// Writes the quantile of each pixel of a row, from the rows of all time steps.
    pub(super) fn of_rows<T: Real>(
        &self,
        rows: &[&[T]],
        valid: Valid<T>,
        out: &mut [T::Wide],
        room: &mut Room<T>,
    ) {
        for (run, out) in out.chunks_mut(LANES).enumerate() {
            let start = run * LANES;
            let counts = load(rows, start, out.len(), valid, &mut room.lanes);
            match self.dates <= NETWORK_DATES {
                true => self.by_network(&mut room.lanes, &counts, out),
                false => self.by_selection(room, &counts, out),
            }
        }
    }

    fn by_network<T: Real>(
        &self,
        lanes: &mut [[T; LANES]],
        counts: &[u32; LANES],
        out: &mut [T::Wide],
    ) {
        for &(low, high) in &self.network {
            let (head, tail) = lanes.split_at_mut(high);
            exchange(&mut head[low], &mut tail[0]);
        }
        let count = |lane: usize| usize::try_from(counts[lane]).unwrap_or(usize::MAX);
        let nothing = number_as::<T::Wide>(f64::NAN);
        let same = counts[..out.len()].iter().all(|count| *count == counts[0]);
        // Mostly all pixels of a run have the same count: one position for all vectorizes.
        if same && counts[0] > 0 {
            let position = self.positions[count(0)];
            let pairs = lanes[position.low].iter().zip(&lanes[position.high]);
            for (out, (&low, &high)) in out.iter_mut().zip(pairs) {
                *out = position.value(low, high);
            }
            return;
        }
        for (lane, out) in out.iter_mut().enumerate() {
            *out = match count(lane) {
                0 => nothing,
                count => {
                    let position = self.positions[count];
                    position.value(lanes[position.low][lane], lanes[position.high][lane])
                }
            };
        }
    }

    fn by_selection<T: Real>(
        &self,
        room: &mut Room<T>,
        counts: &[u32; LANES],
        out: &mut [T::Wide],
    ) {
        let order = |a: &T, b: &T| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal);
        for (lane, (out, &count)) in out.iter_mut().zip(counts).enumerate() {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            if count == 0 {
                *out = number_as::<T::Wide>(f64::NAN);
                continue;
            }
            let position = self.positions[count];
            room.pixel.clear();
            room.pixel
                .extend(room.lanes.iter().map(|lanes| lanes[lane]));
            let (below, &mut high, _) = room.pixel.select_nth_unstable_by(position.high, order);
            let low = match position.low == position.high {
                true => high,
                // `low` is `high - 1`: the maximum of the samples below.
                false => below
                    .iter()
                    .copied()
                    .fold(below[0], |a, b| if b > a { b } else { a }),
            };
            *out = position.value(low, high);
        }
    }
}

/// Copies the columns of each time step, with the type's maximum for invalid samples and beyond the row's end,
/// and returns the number of valid samples of each column.
fn load<T: Real>(
    rows: &[&[T]],
    start: usize,
    len: usize,
    valid: Valid<T>,
    lanes: &mut [[T; LANES]],
) -> [u32; LANES] {
    let mut counts = [0; LANES];
    for (row, lanes) in rows.iter().zip(lanes) {
        let row = &row[start..start + len];
        for ((lane, count), &sample) in lanes.iter_mut().zip(&mut counts).zip(row) {
            let is_valid = valid.is(sample);
            *lane = if is_valid { sample } else { T::GREATEST };
            *count += u32::from(is_valid);
        }
        lanes[len..].fill(T::GREATEST);
    }
    counts
}

/// Moves the smaller of each pair to `low`, the larger to `high`.
fn exchange<T: Real>(low: &mut [T; LANES], high: &mut [T; LANES]) {
    for (low, high) in low.iter_mut().zip(high) {
        let (a, b) = (*low, *high);
        *low = if b < a { b } else { a };
        *high = if b < a { a } else { b };
    }
}

/// Returns the pairs of a network that sorts `count` samples, in order. Names of variables are Knuth's.
fn network(count: usize) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    if count < 2 {
        return pairs;
    }
    let top = count.next_power_of_two() / 2;
    let mut p = top;
    while p > 0 {
        let (mut q, mut r, mut d) = (top, 0, p);
        loop {
            for low in 0..count.saturating_sub(d) {
                if low & p == r {
                    pairs.push((low, low + d));
                }
            }
            if q == p {
                break;
            }
            (d, q, r) = (q - p, q / 2, p);
        }
        p /= 2;
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_sorts_every_sequence_of_zeros_and_ones() {
        // The zero-one principle: a network that sorts these sorts everything.
        for count in 0_usize..=16 {
            let pairs = network(count);
            for bits in 0..1_u32 << count {
                let mut samples: Vec<u32> = (0..count).map(|bit| bits >> bit & 1).collect();
                for &(low, high) in &pairs {
                    if samples[high] < samples[low] {
                        samples.swap(low, high);
                    }
                }
                assert!(samples.is_sorted(), "{count} {bits:b}");
            }
        }
    }

    #[test]
    fn networks_have_the_comparisons_that_batcher_counts() {
        let counts = [4, 8, 16, 32, 64].map(|count| network(count).len());
        assert_eq!(counts, [5, 19, 63, 191, 543]);
    }

    #[test]
    fn a_value_between_equal_infinities_is_infinite() {
        let position = Which::Share(0.3).position(2);
        assert_eq!(position.value(f32::INFINITY, f32::INFINITY), f32::INFINITY);
        // A percentile that falls on a sample is that sample, whatever the next is.
        for (share, count) in [(0.0, 2), (0.5, 3)] {
            let position = Which::Share(share).position(count);
            let at = usize::from(share > 0.0);
            assert_eq!((position.low, position.high), (at, at));
            assert_eq!(position.value(2.0_f32, 2.0), 2.0);
        }
        let median = Which::Median.position(4);
        assert_eq!((median.low, median.high), (1, 2));
        assert_eq!(median.value(f64::MAX, f64::MAX), f64::MAX);
    }
}
