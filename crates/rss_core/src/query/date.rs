//! A calendar day, and the span of time between two of them.

use std::{fmt, str::FromStr};

use chrono::{DateTime, NaiveDate, NaiveTime, TimeDelta, Utc};

use crate::error::{Error, ErrorKind, Result};

/// A day of the Gregorian calendar in UTC.
///
/// The fields are not checked; an invalid day is refused where the date is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date {
    /// The year, 1 to 9999 in a valid date.
    pub year: i32,
    /// The month, 1 to 12 in a valid date.
    pub month: u32,
    /// The day of the month, from 1.
    pub day: u32,
}

/// Creates a date from year, month and day.
///
/// ```
/// use rss_core::date;
///
/// assert_eq!(date(2021, 1, 31), "2021-01-31".parse()?);
/// # Ok::<_, rss_core::Error>(())
/// ```
pub fn date(year: i32, month: u32, day: u32) -> Date {
    Date { year, month, day }
}

impl Date {
    /// Checks that the day exists.
    fn check(self) -> Result<NaiveDate> {
        NaiveDate::from_ymd_opt(self.year, self.month, self.day)
            .filter(|_| (1..=9999).contains(&self.year))
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidInput,
                    format!("date {self} does not exist"),
                )
            })
    }
}

impl From<NaiveDate> for Date {
    fn from(day: NaiveDate) -> Self {
        use chrono::Datelike;

        date(day.year(), day.month(), day.day())
    }
}

impl FromStr for Date {
    type Err = Error;

    /// Parses `2021-01-31`.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "date `{}` is not year-month-day such as 2021-01-31",
                    text.escape_debug()
                ),
            )
        };
        let mut parts = text.trim().splitn(3, '-');
        let mut part = |digits: usize| {
            parts
                .next()
                .filter(|part| part.len() == digits && part.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|part| part.parse::<u32>().ok())
                .ok_or_else(wrong)
        };
        let (year, month, day) = (part(4)?, part(2)?, part(2)?);
        let found = date(i32::try_from(year).map_err(|_| wrong())?, month, day);
        found.check()?;
        Ok(found)
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

/// The time from the start of one day to the end of another; either end may be open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    start: Option<NaiveDate>,
    end: Option<NaiveDate>,
}

impl Span {
    /// Creates a span of complete days. Both days are included.
    pub(super) fn new(start: Option<Date>, end: Option<Date>) -> Result<Self> {
        let start = start.map(Date::check).transpose()?;
        let end = end.map(Date::check).transpose()?;
        if let (Some(start), Some(end)) = (start, end)
            && start > end
        {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("start date {start} is after end date {end}"),
            ));
        }
        Ok(Self { start, end })
    }

    /// Returns the STAC `datetime` interval; none if both ends are open.
    ///
    /// The end is written as the last millisecond of its day: servers differ on whether the end is inclusive, and some
    /// read a date without a time as midnight.
    pub(super) fn interval(&self) -> Option<String> {
        if self.start.is_none() && self.end.is_none() {
            return None;
        }
        let open = || "..".to_owned();
        let start = self.start.map_or_else(open, |d| format!("{d}T00:00:00Z"));
        let end = self.end.map_or_else(open, |d| format!("{d}T23:59:59.999Z"));
        Some(format!("{start}/{end}"))
    }

    /// Returns true if the span overlaps the time between two instants.
    pub(super) fn overlaps(&self, from: DateTime<Utc>, to: DateTime<Utc>) -> bool {
        let starts = |day: NaiveDate| day.and_time(NaiveTime::MIN).and_utc();
        let after_start = self.start.is_none_or(|day| to >= starts(day));
        let before_end = self.end.is_none_or(|day| {
            day.checked_add_signed(TimeDelta::days(1))
                .is_none_or(|next| from < starts(next))
        });
        after_start && before_end
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn the_end_day_is_included() {
        let span = Span::new(Some(date(2021, 1, 1)), Some(date(2021, 2, 1))).unwrap();
        assert_eq!(
            span.interval().as_deref(),
            Some("2021-01-01T00:00:00Z/2021-02-01T23:59:59.999Z")
        );
        for (text, inside) in [
            ("2020-12-31T23:59:59.9999Z", false),
            ("2021-01-01T00:00:00Z", true),
            ("2021-02-01T23:59:59.9999Z", true),
            ("2021-02-02T00:00:00Z", false),
        ] {
            assert_eq!(span.overlaps(at(text), at(text)), inside, "{text}");
        }
    }

    #[test]
    fn an_open_end_is_written_with_two_dots() {
        let since = Span::new(Some(date(2021, 1, 1)), None).unwrap();
        assert_eq!(since.interval().as_deref(), Some("2021-01-01T00:00:00Z/.."));
        assert_eq!(Span::default().interval(), None);
    }

    #[test]
    fn an_item_of_a_whole_year_overlaps_its_months() {
        let june = Span::new(Some(date(2020, 6, 1)), Some(date(2020, 6, 30))).unwrap();
        assert!(june.overlaps(at("2020-01-01T00:00:00Z"), at("2020-12-31T23:59:59Z")));
        assert!(!june.overlaps(at("2019-01-01T00:00:00Z"), at("2019-12-31T23:59:59Z")));
    }

    #[test]
    fn wrong_dates_say_what_is_wrong() {
        for (text, message) in [
            ("2021-02-30", "date 2021-02-30 does not exist"),
            ("0000-01-01", "date 0000-01-01 does not exist"),
            (
                "yesterday",
                "date `yesterday` is not year-month-day such as 2021-01-31",
            ),
            (
                "2021-1-1",
                "date `2021-1-1` is not year-month-day such as 2021-01-31",
            ),
        ] {
            assert_eq!(
                text.parse::<Date>().unwrap_err().to_string(),
                message,
                "{text}"
            );
        }
        let err = Span::new(Some(date(2021, 2, 1)), Some(date(2021, 1, 1))).unwrap_err();
        assert_eq!(
            err.to_string(),
            "start date 2021-02-01 is after end date 2021-01-01"
        );
    }

    proptest! {
        #[test]
        fn a_date_is_read_back_from_its_text(days in 1..3_652_058_i32) {
            let day: Date = NaiveDate::from_num_days_from_ce_opt(days).unwrap().into();
            prop_assert_eq!(day.to_string().parse::<Date>().unwrap(), day);
        }

        #[test]
        fn any_text_gives_a_date_or_an_error(text in "\\PC{0,12}") {
            let _ = text.parse::<Date>();
        }
    }
}
