//! Least, middle and most of a sample: no number stands alone.

use std::{fmt, time::Duration};

use serde::Serialize;

/// The spread of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// The least value.
    pub(crate) min: f64,
    /// The middle value: half are no larger.
    pub(crate) median: f64,
    /// The largest value.
    pub(crate) max: f64,
}

impl Spread {
    /// Returns the spread of some values; zeros of none.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or_default();
        let half = values.len() / 2;
        Self {
            min: at(0),
            median: match values.len() % 2 {
                0 => f64::midpoint(at(half.saturating_sub(1)), at(half)),
                _ => at(half),
            },
            max: at(values.len().saturating_sub(1)),
        }
    }

    /// Returns the spread of some times, in milliseconds.
    pub(crate) fn of_ms(times: impl IntoIterator<Item = Duration>) -> Self {
        Self::of(times.into_iter().map(ms))
    }
}

impl fmt::Display for Spread {
    /// As the report does: the middle, then least and most.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(1);
        let (min, median, max) = (self.min, self.median, self.max);
        write!(f, "{median:.digits$} [{min:.digits$} .. {max:.digits$}]")
    }
}

/// Returns a time in milliseconds.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]);
        assert_eq!(spread.to_string(), "2.5 [1.0 .. 4.0]");
        assert_eq!(Spread::of([7.0]).median, 7.0);
        assert_eq!(Spread::of([]), Spread::default());
    }
}
