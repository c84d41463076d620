//! Zonal statistics, computed in parts that are merged.

use std::{fmt, str::FromStr};

use super::cover::Coverage;
use crate::{
    apply::reduce::{Reducer, of_sorted},
    error::{Error, ErrorKind, Result},
};

/// The most bins of a histogram: each is a column.
const MOST_BINS: usize = 1000;

/// The statistics to compute of a zone's pixels that have data and are not masked.
///
/// `mean`, `sum`, `std` (of the population: divided by the count), `min`, `max`, `count`, `median`, and
/// percentiles such as `p90`, with linear interpolation: the same as the
/// [reducers](crate::apply::reduce::Reducer) of a cube, and numpy's. All are exact, in `f64`.
///
/// ```
/// use rss_core::apply::sample::Statistics;
///
/// let wanted = "count,mean,p90".parse::<Statistics>()?.with_histogram(vec![0.0, 0.2, 1.0])?;
/// assert_eq!(wanted.to_string(), "count,mean,p90");
/// assert!("mode".parse::<Statistics>().is_err());
/// # Ok::<_, rss_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    wanted: Vec<Reducer>,
    /// None, or at least two.
    edges: Vec<f64>,
}

impl Default for Statistics {
    /// `count`, `mean`, `min`, `max` and `std`.
    fn default() -> Self {
        use Reducer::{Count, Max, Mean, Min, Std};
        Self {
            wanted: vec![Count, Mean, Min, Max, Std],
            edges: Vec::new(),
        }
    }
}

impl Statistics {
    /// Requests these statistics.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for `first` and `last`, which need an order, and for one that is named twice.
    pub fn new(wanted: impl IntoIterator<Item = Reducer>) -> Result<Self> {
        let wanted: Vec<Reducer> = wanted.into_iter().collect();
        for (index, one) in wanted.iter().enumerate() {
            let why = match one {
                Reducer::First | Reducer::Last => "is of dates, not of a zone",
                _ if wanted.iter().take(index).any(|other| other == one) => "is named twice",
                _ => continue,
            };
            let message = format!("statistic `{one}` {why}");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        Ok(Self {
            wanted,
            edges: Vec::new(),
        })
    }

    /// Requests a histogram as well. A bin holds its lower edge and not its upper one, except the last, which holds
    /// both, as numpy's. Samples outside are in no bin.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if there are less than 2 or more than 1001 edges, or they do not increase.
    pub fn with_histogram(mut self, edges: Vec<f64>) -> Result<Self> {
        let grows = edges.iter().zip(edges.iter().skip(1)).all(|(a, b)| a < b);
        let is_right = grows && edges.iter().all(|edge| edge.is_finite());
        if !is_right || !(2..=MOST_BINS + 1).contains(&edges.len()) {
            let message = format!(
                "a histogram of {} edges: expected 2 to {} numbers, each greater than the one before",
                edges.len(),
                MOST_BINS + 1
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        self.edges = edges;
        Ok(self)
    }

    /// Returns the names of the columns after those of every table, and whether they are counts.
    pub(super) fn columns(&self) -> Vec<(String, bool)> {
        let wanted = self.wanted.iter();
        let named = wanted.map(|one| (one.to_string(), *one == Reducer::Count));
        let bins = self.edges.iter().zip(self.edges.iter().skip(1));
        named
            .chain(bins.map(|(low, high)| (format!("bin_{low}_{high}"), true)))
            .collect()
    }

    /// Returns true if a statistic needs all samples in memory.
    pub(super) fn keeps_samples(&self) -> bool {
        let is_rank = |one: &Reducer| matches!(one, Reducer::Median | Reducer::Percentile(_));
        self.wanted.iter().any(is_rank)
    }

    fn bins(&self) -> usize {
        self.edges.len().saturating_sub(1)
    }

    /// Returns the bytes of a tally, without its samples.
    pub(super) fn bytes(&self) -> u64 {
        (size_of::<Tally>() + self.bins() * size_of::<u64>()) as u64
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, one) in self.wanted.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{one}")?;
        }
        Ok(())
    }
}

impl FromStr for Statistics {
    type Err = Error;

    /// Parses names separated by commas, such as `count,mean,p90`.
    fn from_str(text: &str) -> Result<Self> {
        let parsed = text.split(',').map(|name| name.trim().parse());
        Self::new(parsed.collect::<Result<Vec<Reducer>>>()?)
    }
}

/// A pixel of a zone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weighted {
    /// NaN is nodata.
    pub(super) value: f64,
    /// True for a masked pixel.
    pub(super) is_out: bool,
    /// The fraction of the pixel that counts; 1 where all do.
    pub(super) weight: f64,
}

/// The statistics of some pixels of a zone. Counts are sums of weights, exact where these are all 1.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pixels: f64,
    nodata: f64,
    masked: f64,
    count: f64,
    sum: f64,
    /// The weighted sum of the squared deviations from the mean.
    squares: f64,
    min: f64,
    max: f64,
    bins: Vec<f64>,
    /// Samples and their frequencies; empty if no statistic needs them.
    kept: SampleCounts,
}

impl Tally {
    /// Computes the statistics of pixels.
    pub(super) fn of(statistics: &Statistics, pixels: impl Iterator<Item = Weighted>) -> Self {
        let mut tally = Self {
            pixels: 0.0,
            nodata: 0.0,
            masked: 0.0,
            count: 0.0,
            sum: 0.0,
            squares: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            bins: vec![0.0; statistics.bins()],
            kept: SampleCounts::default(),
        };
        let mut values = Vec::new();
        for pixel in pixels {
            tally.pixels += pixel.weight;
            match (pixel.value.is_nan(), pixel.is_out) {
                (true, _) => tally.nodata += pixel.weight,
                (false, true) => tally.masked += pixel.weight,
                (false, false) => values.push((pixel.value, pixel.weight)),
            }
        }
        if values.is_empty() {
            return tally;
        }
        for &(value, weight) in &values {
            tally.count += weight;
            tally.sum += value * weight;
            tally.min = tally.min.min(value);
            tally.max = tally.max.max(value);
        }
        let mean = tally.sum / tally.count;
        let squares = values.iter();
        tally.squares = squares
            .map(|(value, weight)| weight * (value - mean).powi(2))
            .sum();
        for &(value, weight) in values.iter().filter(|_| !statistics.edges.is_empty()) {
            let after = statistics.edges.partition_point(|edge| *edge <= value);
            let is_last = statistics.edges.last() == Some(&value);
            let bin = after.checked_sub(if is_last { 2 } else { 1 });
            if let Some(count) = bin.and_then(|bin| tally.bins.get_mut(bin)) {
                *count += weight;
            }
        }
        if statistics.keeps_samples() {
            tally.kept = SampleCounts::of(values);
        }
        tally
    }

    /// Merges the statistics of other pixels. The last digits of the result depend on the order of merging.
    pub(super) fn add(&mut self, other: Self) {
        self.pixels += other.pixels;
        self.nodata += other.nodata;
        self.masked += other.masked;
        if other.count == 0.0 {
            return;
        }
        if self.count > 0.0 {
            // Chan, Golub and LeVeque (1983), https://doi.org/10.1080/00031305.1983.10483115.
            let (a, b) = (self.count, other.count);
            let apart = other.sum / b - self.sum / a;
            self.squares += other.squares + apart * apart * (a * b / (a + b));
        } else {
            self.squares = other.squares;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        for (bin, more) in self.bins.iter_mut().zip(other.bins) {
            *bin += more;
        }
        self.kept.add(other.kept);
    }

    /// Returns the numbers of a row: pixels, nodata, masked, then the statistics, then the bins. NaN is none.
    pub(super) fn numbers(
        self,
        statistics: &Statistics,
        coverage: Coverage,
        numbers: &mut Vec<f64>,
    ) {
        let count = self.count;
        numbers.extend([self.pixels, self.nodata, self.masked]);
        let kept = self.kept.sorted();
        let is_weighted = coverage == Coverage::Fraction;
        let ends: Vec<u64> = kept
            .iter()
            .scan(0, |all, one| {
                *all += u64::from(one.times);
                Some(*all)
            })
            .collect();
        let samples = usize::try_from(ends.last().copied().unwrap_or(0)).unwrap_or(usize::MAX);
        let at = |index: usize| {
            let run = ends.partition_point(|&end| end <= index as u64);
            kept.get(run).map_or(f64::NAN, |one| one.value)
        };
        let known = |number: f64| if count == 0.0 { f64::NAN } else { number };
        numbers.extend(statistics.wanted.iter().map(|one| match one {
            Reducer::Count => count,
            Reducer::Sum => known(self.sum),
            Reducer::Mean => known(self.sum / count),
            Reducer::Std => known((self.squares / count).sqrt()),
            Reducer::Min => known(self.min),
            Reducer::Max => known(self.max),
            Reducer::Median if is_weighted => weighted_quantile(&kept, 0.5),
            Reducer::Percentile(percentile) if is_weighted => {
                weighted_quantile(&kept, percentile.percent() / 100.0)
            }
            ranked => of_sorted(*ranked, samples, at).unwrap_or(f64::NAN),
        }));
        numbers.extend(self.bins.iter());
    }
}

/// Returns the quantile of weighted samples as exactextract does: of `n` distinct values in order, whose weights are
/// added up, value `k`, counted from 0, stands at `k` times its weight plus `n - 1` times the weights before it; between
/// two it is interpolated. See <https://stats.stackexchange.com/a/13223>.
#[expect(clippy::cast_precision_loss, reason = "values of one zone")]
fn weighted_quantile(kept: &[Kept], share: f64) -> f64 {
    let mut distinct: Vec<(f64, f64)> = Vec::new();
    for one in kept {
        let weight = f64::from(one.weight) * f64::from(one.times);
        match distinct.last_mut() {
            Some((value, sum)) if *value == one.value => *sum += weight,
            _ => distinct.push((one.value, weight)),
        }
    }
    let gaps = distinct.len().saturating_sub(1) as f64;
    let mut before = 0.0;
    let places = distinct.iter().enumerate().map(|(k, (value, weight))| {
        let place = k as f64 * weight + gaps * before;
        before += weight;
        (place, *value)
    });
    let places: Vec<(f64, f64)> = places.collect();
    let Some((end, _)) = places.last() else {
        return f64::NAN;
    };
    let sought = share * end;
    let next = places.partition_point(|(place, _)| *place <= sought);
    match (
        next.checked_sub(1).and_then(|at| places.get(at)),
        places.get(next),
    ) {
        (Some((a, low)), Some((b, high))) => low + (sought - a) * (high - low) / (b - a),
        (Some((_, only)), None) | (None, Some((_, only))) => *only,
        (None, None) => f64::NAN,
    }
}

/// Equal samples of equal weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Kept {
    value: f64,
    /// As exactextract keeps it; both numbers together make 16 bytes of a sample.
    weight: f32,
    times: u32,
}

impl Kept {
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        let by_value = self.value.total_cmp(&other.value);
        by_value.then(self.weight.total_cmp(&other.weight))
    }

    fn is_like(&self, other: &Self) -> bool {
        self.value == other.value && self.weight == other.weight
    }
}

/// Distinct samples and their frequencies, in sorted lists, each more than twice as long as the next: merging
/// many parts then takes no longer than one sort.
#[derive(Clone, Debug, Default)]
struct SampleCounts(Vec<Vec<Kept>>);

impl SampleCounts {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "digits of a fraction of a pixel"
    )]
    fn of(values: Vec<(f64, f64)>) -> Self {
        let mut all: Vec<Kept> = values
            .into_iter()
            .map(|(value, weight)| Kept {
                value,
                weight: weight as f32,
                times: 1,
            })
            .collect();
        all.sort_unstable_by(Kept::order);
        all.dedup_by(|next, kept| {
            let is_like = next.is_like(kept);
            kept.times += if is_like { next.times } else { 0 };
            is_like
        });
        Self(vec![all])
    }

    fn add(&mut self, other: Self) {
        for list in other.0 {
            let mut list = list;
            while let Some(before) = self.0.pop_if(|before| before.len() <= 2 * list.len()) {
                list = merged(before, list);
            }
            self.0.push(list);
        }
    }

    fn sorted(self) -> Vec<Kept> {
        let lists = self.0.into_iter().rev();
        lists
            .reduce(|all, list| merged(list, all))
            .unwrap_or_default()
    }
}

/// Merges two sorted lists of samples and frequencies.
fn merged(a: Vec<Kept>, b: Vec<Kept>) -> Vec<Kept> {
    if a.is_empty() {
        return b;
    }
    let mut all: Vec<Kept> = Vec::with_capacity(a.len().max(b.len()));
    let (mut a, mut b) = (a.into_iter().peekable(), b.into_iter().peekable());
    loop {
        let next = match (a.peek(), b.peek()) {
            (Some(x), Some(y)) if x.order(y).is_le() => a.next(),
            (_, Some(_)) => b.next(),
            (Some(_), None) => a.next(),
            (None, None) => return all,
        };
        let Some(next) = next else {
            return all;
        };
        match all.last_mut() {
            Some(last) if last.is_like(&next) => match last.times.checked_add(next.times) {
                Some(times) => last.times = times,
                None => all.push(next),
            },
            _ => all.push(next),
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array3;
    use proptest::prelude::*;

    use super::*;
    use crate::apply::reduce::reduce_f32;

    fn row(statistics: &Statistics, parts: &[Vec<(f64, bool)>]) -> Vec<f64> {
        let mut all = Tally::of(statistics, std::iter::empty());
        for part in parts {
            let pixels = part.iter().map(|&(value, is_out)| Weighted {
                value,
                is_out,
                weight: 1.0,
            });
            all.add(Tally::of(statistics, pixels));
        }
        let mut numbers = Vec::new();
        all.numbers(statistics, Coverage::Centre, &mut numbers);
        numbers
    }

    #[test]
    fn pixels_without_data_and_masked_ones_are_counted_apart() {
        let statistics: Statistics = "count,sum,min,max,std,median".parse().unwrap();
        let parts = [
            vec![(1.0, false), (f64::NAN, true), (2.0, true)],
            vec![],
            vec![(f64::NAN, false), (3.0, false)],
        ];
        let expected = [5.0, 2.0, 1.0, 2.0, 4.0, 1.0, 3.0, 1.0, 2.0];
        assert_eq!(row(&statistics, &parts), expected);
    }

    #[test]
    fn of_no_samples_there_is_a_count_and_nothing_else() {
        let statistics = Statistics::default()
            .with_histogram(vec![0.0, 1.0])
            .unwrap();
        let numbers = row(&statistics, &[vec![(f64::NAN, false)]]);
        assert_eq!(numbers[..4], [1.0, 1.0, 0.0, 0.0]);
        assert!(numbers[4..8].iter().all(|number| number.is_nan()));
        assert_eq!(numbers[8..], [0.0]);
    }

    /// Quantiles as exactextract 0.3.0 tells them of these values and fractions.
    #[test]
    fn weights_make_the_statistics_of_exactextract() {
        let statistics: Statistics = "count,sum,mean,std,min,max,p25,median,p90".parse().unwrap();
        let samples = [
            (3.0, 0.25),
            (1.0, 1.0),
            (8.0, 0.5),
            (5.0, 1.0),
            (4.0, 0.75),
            (9.0, 0.125),
        ];
        let mut all = Tally::of(&statistics, std::iter::empty());
        for part in samples.chunks(2) {
            let pixels = part.iter().map(|&(value, weight)| Weighted {
                value,
                is_out: false,
                weight,
            });
            all.add(Tally::of(&statistics, pixels));
        }
        let mut numbers = Vec::new();
        all.numbers(&statistics, Coverage::Fraction, &mut numbers);
        for (got, expected) in numbers[3..].iter().zip(EXACT) {
            assert!((got - expected).abs() < 1e-6, "{numbers:?}");
        }
    }

    /// `numpy.histogram([-1, 0, 0.5, 1, 1.5, 2, 2.1, inf], [0, 1, 2])` is `[2, 3]`.
    #[test]
    fn bins_are_those_of_numpy() {
        let statistics = Statistics::new([])
            .unwrap()
            .with_histogram(vec![0.0, 1.0, 2.0]);
        let statistics = statistics.unwrap();
        let samples = [-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 2.1, f64::INFINITY];
        let numbers = row(
            &statistics,
            &[samples.map(|sample| (sample, false)).to_vec()],
        );
        assert_eq!(numbers[3..], [2.0, 3.0]);
        let names: Vec<String> = statistics.columns().into_iter().map(|one| one.0).collect();
        assert_eq!(names, ["bin_0_1", "bin_1_2"]);
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        for (text, said) in [
            ("mean,last", "statistic `last` is of dates"),
            ("mean,p50,mean", "statistic `mean` is named twice"),
            ("avg", "reducer `avg` is not one of"),
            ("", "reducer `` is not one of"),
        ] {
            let err = text.parse::<Statistics>().unwrap_err();
            assert!(err.message().starts_with(said), "{err}");
        }
        for edges in [
            vec![],
            vec![1.0],
            vec![0.0, 0.0],
            vec![0.0, f64::NAN],
            vec![0.0; 2000],
        ] {
            let err = Statistics::default().with_histogram(edges).unwrap_err();
            assert!(err.message().starts_with("a histogram of "), "{err}");
        }
    }

    /// count, sum, mean, std, min, max, p25, median, p90.
    const EXACT: [f64; 9] = [
        3.625,
        14.875,
        4.103_448_275_862_069,
        2.426_077_117_150_049_5,
        1.0,
        9.0,
        2.726_190_476_190_476_3,
        4.25,
        7.484_375,
    ];

    proptest! {
        /// Any number of parts merge to the statistics of all pixels, which are those of a stack of time steps.
        #[test]
        fn parts_make_the_whole(
            samples in prop::collection::vec(-50_i16..50, 1..200),
            cut in 1_usize..20,
        ) {
            let wanted = ["mean", "std", "min", "max", "sum", "median", "p10", "p97.5"];
            let statistics: Statistics = wanted.join(",").parse().unwrap();
            let pixels: Vec<(f64, bool)> =
                samples.iter().map(|&sample| (f64::from(sample) / 8.0, false)).collect();
            let parts: Vec<Vec<(f64, bool)>> = pixels.chunks(cut).map(<[_]>::to_vec).collect();
            let numbers = row(&statistics, &parts);
            let stack = Array3::from_shape_fn((pixels.len(), 1, 1), |(t, ..)| pixels[t].0 as f32);
            for (name, number) in wanted.iter().zip(&numbers[3..]) {
                let reduced = reduce_f32(stack.view(), name.parse().unwrap()).unwrap()[(0, 0)];
                prop_assert!((number - f64::from(reduced)).abs() < 1e-3, "{}: {} {}", name, number, reduced);
            }
        }
    }
}
