//! Zonal statistics, computed in parts that are merged.

use std::{fmt, str::FromStr};

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

/// The statistics of some pixels of a zone.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pixels: u64,
    nodata: u64,
    masked: u64,
    count: u64,
    sum: f64,
    /// The sum of the squared deviations from the mean.
    squares: f64,
    min: f64,
    max: f64,
    bins: Vec<u64>,
    /// Samples and their frequencies; empty if no statistic needs them.
    kept: SampleCounts,
}

impl Tally {
    /// Computes the statistics of pixels: values, with NaN as nodata, and whether they are masked.
    #[expect(clippy::cast_precision_loss, reason = "pixels of one zone")]
    pub(super) fn of(statistics: &Statistics, pixels: impl Iterator<Item = (f64, bool)>) -> Self {
        let mut tally = Self {
            pixels: 0,
            nodata: 0,
            masked: 0,
            count: 0,
            sum: 0.0,
            squares: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            bins: vec![0; statistics.bins()],
            kept: SampleCounts::default(),
        };
        let mut values = Vec::new();
        for (value, is_out) in pixels {
            tally.pixels += 1;
            match (value.is_nan(), is_out) {
                (true, _) => tally.nodata += 1,
                (false, true) => tally.masked += 1,
                (false, false) => values.push(value),
            }
        }
        tally.count = values.len() as u64;
        if values.is_empty() {
            return tally;
        }
        for &value in &values {
            tally.sum += value;
            tally.min = tally.min.min(value);
            tally.max = tally.max.max(value);
        }
        let mean = tally.sum / tally.count as f64;
        tally.squares = values.iter().map(|value| (value - mean).powi(2)).sum();
        for &value in values.iter().filter(|_| !statistics.edges.is_empty()) {
            let after = statistics.edges.partition_point(|edge| *edge <= value);
            let is_last = statistics.edges.last() == Some(&value);
            let bin = after.checked_sub(if is_last { 2 } else { 1 });
            if let Some(count) = bin.and_then(|bin| tally.bins.get_mut(bin)) {
                *count += 1;
            }
        }
        if statistics.keeps_samples() {
            tally.kept = SampleCounts::of(values);
        }
        tally
    }

    /// Merges the statistics of other pixels. The last digits of the result depend on the order of merging.
    #[expect(clippy::cast_precision_loss, reason = "pixels of one zone")]
    pub(super) fn add(&mut self, other: Self) {
        self.pixels += other.pixels;
        self.nodata += other.nodata;
        self.masked += other.masked;
        if other.count == 0 {
            return;
        }
        if self.count > 0 {
            // Chan, Golub and LeVeque (1983), https://doi.org/10.1080/00031305.1983.10483115.
            let (a, b) = (self.count as f64, other.count as f64);
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
    #[expect(clippy::cast_precision_loss, reason = "pixels of one zone")]
    pub(super) fn numbers(self, statistics: &Statistics, numbers: &mut Vec<f64>) {
        let count = self.count as f64;
        numbers.extend([self.pixels, self.nodata, self.masked].map(|count| count as f64));
        let kept = self.kept.sorted();
        let ends: Vec<u64> = kept
            .iter()
            .scan(0, |all, (_, times)| {
                *all += times;
                Some(*all)
            })
            .collect();
        let at = |index: usize| {
            let run = ends.partition_point(|&end| end <= index as u64);
            kept.get(run).map_or(f64::NAN, |(value, _)| *value)
        };
        let known = |number: f64| match self.count {
            0 => f64::NAN,
            _ => number,
        };
        numbers.extend(statistics.wanted.iter().map(|one| match one {
            Reducer::Count => count,
            Reducer::Sum => known(self.sum),
            Reducer::Mean => known(self.sum / count),
            Reducer::Std => known((self.squares / count).sqrt()),
            Reducer::Min => known(self.min),
            Reducer::Max => known(self.max),
            ranked => {
                let count = usize::try_from(self.count).unwrap_or(usize::MAX);
                of_sorted(*ranked, count, at).unwrap_or(f64::NAN)
            }
        }));
        numbers.extend(self.bins.iter().map(|&bin| bin as f64));
    }
}

/// Distinct samples and their frequencies, in sorted lists, each more than twice as long as the next: merging
/// many parts then takes no longer than one sort.
#[derive(Clone, Debug, Default)]
struct SampleCounts(Vec<Vec<(f64, u64)>>);

impl SampleCounts {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let mut list: Vec<(f64, u64)> = Vec::new();
        for value in values {
            match list.last_mut() {
                Some((last, times)) if *last == value => *times += 1,
                _ => list.push((value, 1)),
            }
        }
        Self(vec![list])
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

    fn sorted(self) -> Vec<(f64, u64)> {
        let lists = self.0.into_iter().rev();
        lists
            .reduce(|all, list| merged(list, all))
            .unwrap_or_default()
    }
}

/// Merges two sorted lists of samples and frequencies.
fn merged(a: Vec<(f64, u64)>, b: Vec<(f64, u64)>) -> Vec<(f64, u64)> {
    if a.is_empty() {
        return b;
    }
    let mut all = Vec::with_capacity(a.len().max(b.len()));
    let (mut a, mut b) = (a.into_iter().peekable(), b.into_iter().peekable());
    loop {
        let next = match (a.peek(), b.peek()) {
            (Some((x, _)), Some((y, _))) if x.total_cmp(y).is_le() => a.next(),
            (_, Some(_)) => b.next(),
            (Some(_), None) => a.next(),
            (None, None) => return all,
        };
        let Some((value, times)) = next else {
            return all;
        };
        match all.last_mut() {
            Some((last, known)) if *last == value => *known += times,
            _ => all.push((value, times)),
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
            all.add(Tally::of(statistics, part.iter().copied()));
        }
        let mut numbers = Vec::new();
        all.numbers(statistics, &mut numbers);
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
