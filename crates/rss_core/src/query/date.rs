//! A calendar day, the bounds of a search in time, and the span between two of them.

use std::{fmt, str::FromStr};

use chrono::{DateTime, Days, Months, NaiveDate, NaiveTime, SecondsFormat, TimeDelta, Utc};

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

/// A bound of a search in time, in UTC: an instant, or a stretch that is meant whole (a day, a month, a year).
///
/// It is made of a [`Date`], of `chrono`'s `NaiveDate` and `DateTime<Utc>`, and of texts: `2021-01-31`, `2021-01`, `2021`,
/// `2021-01-31T10:30:00Z`. A wrong one is refused where the query is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct When(Stretch);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stretch {
    Day(Date),
    Month {
        year: i32,
        month: u32,
    },
    Year(i32),
    Instant(DateTime<Utc>),
    /// A text that is none of these.
    Wrong(String),
}

impl From<Date> for When {
    fn from(day: Date) -> Self {
        Self(Stretch::Day(day))
    }
}

impl From<NaiveDate> for When {
    fn from(day: NaiveDate) -> Self {
        Date::from(day).into()
    }
}

impl From<DateTime<Utc>> for When {
    fn from(instant: DateTime<Utc>) -> Self {
        Self(Stretch::Instant(instant))
    }
}

impl From<&str> for When {
    fn from(text: &str) -> Self {
        let text = text.trim();
        let number = |part: &str, digits: usize| {
            let is_number = part.len() == digits && part.bytes().all(|b| b.is_ascii_digit());
            part.parse::<u32>().ok().filter(|_| is_number)
        };
        let parts: Vec<&str> = text.split('-').collect();
        let stretch = match parts.as_slice() {
            [year] => number(year, 4).map(|year| Stretch::Year(year.cast_signed())),
            [year, month] => number(year, 4).zip(number(month, 2)).map(|(year, month)| {
                let year = year.cast_signed();
                Stretch::Month { year, month }
            }),
            [year, month, day] => {
                let day = number(day, 2);
                let month = number(year, 4).zip(number(month, 2));
                month
                    .zip(day)
                    .map(|((year, month), day)| Stretch::Day(date(year.cast_signed(), month, day)))
            }
            _ => None,
        };
        let instant = || {
            let instant = DateTime::parse_from_rfc3339(text).ok()?;
            Some(Stretch::Instant(instant.with_timezone(&Utc)))
        };
        let wrong = || Stretch::Wrong(text.to_owned());
        Self(stretch.or_else(instant).unwrap_or_else(wrong))
    }
}

impl From<String> for When {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&String> for When {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Stretch::Day(day) => day.fmt(f),
            Stretch::Month { year, month } => write!(f, "{year:04}-{month:02}"),
            Stretch::Year(year) => write!(f, "{year:04}"),
            Stretch::Instant(instant) => f.write_str(&written(*instant)),
            Stretch::Wrong(text) => text.escape_debug().fmt(f),
        }
    }
}

impl When {
    /// Returns its first and its last moment.
    fn bounds(&self) -> Result<(DateTime<Utc>, Last)> {
        let starts = |day: NaiveDate| day.and_time(NaiveTime::MIN).and_utc();
        let (first, next) = match &self.0 {
            Stretch::Day(day) => {
                let day = day.check()?;
                (day, day.checked_add_days(Days::new(1)))
            }
            Stretch::Month { year, month } => {
                let first = NaiveDate::from_ymd_opt(*year, *month, 1).filter(|_| *year > 0);
                let first = first.ok_or_else(|| wrong(format!("month {self} does not exist")))?;
                (first, first.checked_add_months(Months::new(1)))
            }
            Stretch::Year(year) => {
                let first = NaiveDate::from_ymd_opt(*year, 1, 1).filter(|_| *year > 0);
                let first = first.ok_or_else(|| wrong(format!("year {self} does not exist")))?;
                (first, first.checked_add_months(Months::new(12)))
            }
            Stretch::Instant(instant) => return Ok((*instant, Last::At(*instant))),
            Stretch::Wrong(text) => {
                return Err(wrong(format!(
                    "date `{}` is no day, month, year or instant, such as 2021-01-31, 2021-01, 2021 or \
                     2021-01-31T10:30:00Z",
                    text.escape_debug()
                )));
            }
        };
        let next = next.unwrap_or(NaiveDate::MAX);
        Ok((starts(first), Last::Before(starts(next))))
    }
}

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

/// Returns the bounds of an interval such as `2021-01-01/2021-03`, `2021-01/..` or `2021`: an end that is open is none.
pub(super) fn interval(text: &str) -> (Option<When>, Option<When>) {
    let bound = |text: &str| match text.trim() {
        "" | ".." => None,
        text => Some(When::from(text)),
    };
    match text.split_once('/') {
        Some((start, end)) => (bound(start), bound(end)),
        // Wrong where it is empty, as no interval was meant to be all of time.
        None => (Some(text.into()), Some(text.into())),
    }
}

/// Returns an instant as STAC APIs read it.
fn written(instant: DateTime<Utc>) -> String {
    instant.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// The last moment of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// The last one before this.
    Before(DateTime<Utc>),
    At(DateTime<Utc>),
}

/// The time from the start of one bound to the end of another; either end may be open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    start: Option<DateTime<Utc>>,
    last: Option<Last>,
}

impl Span {
    /// Creates a span of all of both bounds: of whole days, months, years.
    pub(super) fn new(start: Option<&When>, end: Option<&When>) -> Result<Self> {
        let first = start.map(When::bounds).transpose()?;
        let last = end.map(When::bounds).transpose()?.map(|(_, last)| last);
        let first = first.map(|(first, _)| first);
        let is_empty = match (first, last) {
            (Some(first), Some(Last::Before(next))) => first >= next,
            (Some(first), Some(Last::At(last))) => first > last,
            _ => false,
        };
        if let (Some(start), Some(end), true) = (start, end, is_empty) {
            return Err(wrong(format!("start date {start} is after end date {end}")));
        }
        Ok(Self { start: first, last })
    }

    /// Returns the STAC `datetime` interval; none if both ends are open.
    ///
    /// The end of a day is written as its last millisecond: servers differ on whether the end is inclusive, and some
    /// read a date without a time as midnight.
    pub(super) fn interval(&self) -> Option<String> {
        if self.start.is_none() && self.last.is_none() {
            return None;
        }
        let open = || "..".to_owned();
        let start = self.start.map_or_else(open, written);
        let end = self.last.map_or_else(open, |last| match last {
            Last::At(instant) => written(instant),
            Last::Before(next) => written(next - TimeDelta::milliseconds(1)),
        });
        Some(format!("{start}/{end}"))
    }

    /// Returns true if the span overlaps the time between two instants.
    pub(super) fn overlaps(&self, from: DateTime<Utc>, to: DateTime<Utc>) -> bool {
        let after_start = self.start.is_none_or(|start| to >= start);
        let before_end = self.last.is_none_or(|last| match last {
            Last::Before(next) => from < next,
            Last::At(instant) => from <= instant,
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

    fn span(start: &str, end: &str) -> Result<Span> {
        Span::new(Some(&start.into()), Some(&end.into()))
    }

    #[test]
    fn a_bound_is_a_day_a_month_a_year_or_an_instant() {
        for (start, end, sent) in [
            (
                "2021",
                "2021",
                "2021-01-01T00:00:00Z/2021-12-31T23:59:59.999Z",
            ),
            (
                "2021-02",
                "2024-02",
                "2021-02-01T00:00:00Z/2024-02-29T23:59:59.999Z",
            ),
            (
                "2021-12-31",
                "9999",
                "2021-12-31T00:00:00Z/9999-12-31T23:59:59.999Z",
            ),
            (
                "2021-01-01T10:00:00+10:00",
                " 2021-01-01T12:30:00.5Z ",
                "2021-01-01T00:00:00Z/2021-01-01T12:30:00.500Z",
            ),
        ] {
            let span = span(start, end).unwrap();
            assert_eq!(span.interval().as_deref(), Some(sent), "{start} {end}");
        }
        let instant = at("2021-01-01T00:00:00Z");
        let span = Span::new(None, Some(&instant.into())).unwrap();
        assert!(span.overlaps(instant, instant));
        assert!(!span.overlaps(at("2021-01-01T00:00:00.001Z"), at("2021-01-02T00:00:00Z")));
    }

    #[test]
    fn an_interval_may_be_open() {
        let sent = |text: &str| {
            let (start, end) = interval(text);
            Span::new(start.as_ref(), end.as_ref()).map(|span| span.interval())
        };
        let all = |start: &str, end: &str| Some(format!("{start}/{end}"));
        let (new_year, end) = ("2021-01-01T00:00:00Z", "2021-01-31T23:59:59.999Z");
        for text in ["2021-01", "2021-01/2021-01", " 2021-01-01 / 2021-01-31 "] {
            assert_eq!(sent(text).unwrap(), all(new_year, end), "{text}");
        }
        assert_eq!(sent("2021-01/..").unwrap(), all(new_year, ".."));
        assert_eq!(sent("/2021-01").unwrap(), all("..", end));
        assert_eq!(sent("../..").unwrap(), None);
        for text in [
            "",
            "2021-13",
            "2021-01/2021-02/2021-03",
            "2021-1",
            "0000",
            "2021-01-31T10",
        ] {
            assert_eq!(
                sent(text).unwrap_err().kind(),
                ErrorKind::InvalidInput,
                "{text}"
            );
        }
    }

    #[test]
    fn the_end_day_is_included() {
        let span = span("2021-01-01", "2021-02-01").unwrap();
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
        let since = Span::new(Some(&date(2021, 1, 1).into()), None).unwrap();
        assert_eq!(since.interval().as_deref(), Some("2021-01-01T00:00:00Z/.."));
        assert_eq!(Span::default().interval(), None);
    }

    #[test]
    fn an_item_of_a_whole_year_overlaps_its_months() {
        let june = span("2020-06", "2020-06-30").unwrap();
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
        let err = span("2021-02-01", "2021-01-01").unwrap_err();
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
            let _ = When::from(&text).bounds();
            let _ = interval(&text);
        }
    }
}
