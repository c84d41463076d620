//! Which items form one time step, and which time steps one period.

use std::{fmt, num::NonZeroU16, str::FromStr};

use chrono::{DateTime, Datelike, Days, Months, NaiveDate, Utc};

use super::solar::{in_one_piece, solar_day};
use crate::error::{Error, ErrorKind, Result};

/// The clock by which an image has its day, and so its week, month, season and year.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Clock {
    /// Mean solar time at the centre of each footprint: daylight acquisitions of one pass stay together, even if
    /// midnight of UTC falls between them, as it does over the east of Australia.
    #[default]
    Solar,
    /// Coordinated universal time.
    Utc,
}

impl Clock {
    /// All clocks.
    pub const ALL: [Self; 2] = [Self::Solar, Self::Utc];

    /// Returns its name, `solar` or `utc`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Solar => "solar",
            Self::Utc => "utc",
        }
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Clock {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| {
            let message = format!("clock `{}` is not solar or utc", text.escape_debug());
            Error::new(ErrorKind::InvalidInput, message)
        })
    }
}

/// A period of a number of days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DayPeriod {
    days: NonZeroU16,
    origin: Option<NaiveDate>,
}

impl DayPeriod {
    /// Makes a period of a number of days. Periods are counted from the first day that has an image, as in pandas and
    /// xarray.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if there are no days.
    pub fn new(days: u16) -> Result<Self> {
        let days = NonZeroU16::new(days).ok_or_else(|| {
            let message = "a period of 0 days: expected at least one";
            Error::new(ErrorKind::InvalidInput, message)
        })?;
        Ok(Self { days, origin: None })
    }

    /// Counts periods from a day, so that those of different searches are the same.
    #[must_use]
    pub fn with_origin(mut self, origin: NaiveDate) -> Self {
        self.origin = Some(origin);
        self
    }

    /// Returns the number of days.
    pub fn days(self) -> u16 {
        self.days.get()
    }

    /// Returns the day from which periods are counted; none is the first day that has an image.
    pub fn origin(self) -> Option<NaiveDate> {
        self.origin
    }

    /// Returns the first day of the period of a day. `first` is the first day that has an image.
    fn start(self, day: NaiveDate, first: NaiveDate) -> Option<NaiveDate> {
        let origin = self.origin.unwrap_or(first);
        let into = (day - origin)
            .num_days()
            .rem_euclid(i64::from(self.days.get()));
        day.checked_sub_days(Days::new(u64::try_from(into).ok()?))
    }
}

impl fmt::Display for DayPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}d", self.days)?;
        match self.origin {
            Some(origin) => write!(f, "@{origin}"),
            None => Ok(()),
        }
    }
}

/// Which items form one time step, or which time steps one period.
///
/// Days, and what is made of days, are those of a [`Clock`]: by default solar days, so that no week, month, season or
/// year cuts a pass of a satellite in two.
///
/// ```
/// use rss_core::apply::time::{DayPeriod, Grouping};
///
/// assert_eq!("season".parse::<Grouping>()?, Grouping::Season);
/// assert_eq!("10d".parse::<Grouping>()?, Grouping::Days(DayPeriod::new(10)?));
/// assert_eq!("16d@2021-01-01".parse::<Grouping>()?.to_string(), "16d@2021-01-01");
/// # Ok::<_, rss_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Grouping {
    /// Each item; its id is the label.
    Item,
    /// The items of one day of UTC, such as `2021-01-03`, whatever the clock.
    Day,
    /// The items of one day by mean solar time at the centre of each footprint, such as `2021-01-03`, whatever the
    /// clock.
    #[default]
    SolarDay,
    /// The items of one month, such as `2021-01`.
    Month,
    /// All items; the label is `all`.
    All,
    /// The items of three months: from March, June, September and December. The label is the first month: January
    /// 2021 is in `2020-12`.
    Season,
    /// The items of one week, from Monday, such as `2020-W53`: weeks of ISO 8601.
    Week,
    /// The items of one year, such as `2021`.
    Year,
    /// The items of a number of days; the label is the first of them, such as `2021-01-03`.
    Days(DayPeriod),
}

impl Grouping {
    /// All groupings but those by a number of days.
    pub const ALL: [Self; 8] = [
        Self::Item,
        Self::Day,
        Self::SolarDay,
        Self::Week,
        Self::Month,
        Self::Season,
        Self::Year,
        Self::All,
    ];

    /// Returns its name, such as `solar_day`; `days` if it is by a number of days.
    pub fn name(self) -> &'static str {
        match self {
            Self::Item => "item",
            Self::Day => "day",
            Self::SolarDay => "solar_day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Season => "season",
            Self::Year => "year",
            Self::All => "all",
            Self::Days(_) => "days",
        }
    }

    /// Returns the clock of its days: that of `chosen`, unless the grouping itself states it.
    pub(crate) fn clock(self, chosen: Clock) -> Clock {
        match self {
            Self::Day => Clock::Utc,
            Self::SolarDay => Clock::Solar,
            _ => chosen,
        }
    }

    /// Returns the first day of the group of each image; none for [`Grouping::Item`]. `longitude`, in degrees, is
    /// called for images whose solar day is needed.
    ///
    /// # Errors
    ///
    /// Those of `longitude`.
    pub(crate) fn starts(
        self,
        clock: Clock,
        times: &[DateTime<Utc>],
        longitude: impl Fn(usize) -> Result<f64>,
    ) -> Result<Vec<Option<NaiveDate>>> {
        match self {
            Self::Item => return Ok(vec![None; times.len()]),
            Self::All => return Ok(vec![Some(NaiveDate::MIN); times.len()]),
            _ => {}
        }
        let days: Vec<NaiveDate> = match self.clock(clock) {
            Clock::Utc => times.iter().map(DateTime::date_naive).collect(),
            Clock::Solar => {
                let longitudes = (0..times.len()).map(longitude);
                let longitudes = in_one_piece(longitudes.collect::<Result<_>>()?);
                let days = times.iter().zip(longitudes);
                days.map(|(&time, longitude)| solar_day(time, longitude))
                    .collect()
            }
        };
        let Some(&first) = days.iter().min() else {
            return Ok(Vec::new());
        };
        let starts = days.into_iter().map(|day| Some(self.start(day, first)));
        Ok(starts.collect())
    }

    /// Returns the first day of the group of a day. `first` is the first day that has an image.
    fn start(self, day: NaiveDate, first: NaiveDate) -> NaiveDate {
        let month = day.with_day(1);
        let start = match self {
            Self::Item | Self::Day | Self::SolarDay => None,
            Self::All => Some(NaiveDate::MIN),
            Self::Week => {
                let since_monday = day.weekday().num_days_from_monday();
                day.checked_sub_days(Days::new(u64::from(since_monday)))
            }
            Self::Month => month,
            Self::Season => {
                month.and_then(|month| month.checked_sub_months(Months::new(month.month() % 3)))
            }
            Self::Year => day.with_ordinal(1),
            Self::Days(period) => period.start(day, first),
        };
        start.unwrap_or(day)
    }

    /// Returns the first day after the period that starts with a day; none of [`Grouping::Item`] and
    /// [`Grouping::All`], which are no periods.
    pub(crate) fn end(self, start: NaiveDate) -> Option<NaiveDate> {
        match self {
            Self::Item | Self::All => None,
            Self::Day | Self::SolarDay => start.checked_add_days(Days::new(1)),
            Self::Week => start.checked_add_days(Days::new(7)),
            Self::Month => start.checked_add_months(Months::new(1)),
            Self::Season => start.checked_add_months(Months::new(3)),
            Self::Year => start.checked_add_months(Months::new(12)),
            Self::Days(period) => start.checked_add_days(Days::new(period.days().into())),
        }
    }

    /// Returns the label of the group that starts with a day.
    pub(crate) fn label(self, start: NaiveDate) -> String {
        match self {
            Self::All => self.name().to_owned(),
            Self::Week => start.format("%G-W%V").to_string(),
            Self::Month | Self::Season => start.format("%Y-%m").to_string(),
            Self::Year => start.format("%Y").to_string(),
            _ => start.to_string(),
        }
    }
}

impl fmt::Display for Grouping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Days(period) => period.fmt(f),
            named => f.write_str(named.name()),
        }
    }
}

impl FromStr for Grouping {
    type Err = Error;

    /// Parses a name, or a number of days such as `10d`, or `10d@2021-01-01` for periods counted from that day.
    fn from_str(text: &str) -> Result<Self> {
        let name = text.replace('-', "_");
        if let Some(named) = Self::ALL.into_iter().find(|one| one.name() == name) {
            return Ok(named);
        }
        let (length, origin) = match text.split_once('@') {
            Some((length, origin)) => (length, Some(origin)),
            None => (text, None),
        };
        let days = length.strip_suffix('d').and_then(|days| days.parse().ok());
        let origin = origin.map(str::parse::<NaiveDate>).transpose();
        if let (Some(days), Ok(origin)) = (days, origin) {
            let period = DayPeriod::new(days)?;
            return Ok(Self::Days(match origin {
                Some(origin) => period.with_origin(origin),
                None => period,
            }));
        }
        let names = Self::ALL.map(Self::name).join(", ");
        let message = format!(
            "grouping `{}` is not one of {names}, or a number of days such as 10d or 10d@2021-01-01",
            text.escape_debug()
        );
        Err(Error::new(ErrorKind::InvalidInput, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    /// The labels of days, of which the first is the earliest.
    fn labels(by: &str, days: &[&str]) -> Vec<String> {
        let by: Grouping = by.parse().unwrap();
        let times: Vec<DateTime<Utc>> = days
            .iter()
            .map(|day| format!("{day}T12:00:00Z").parse().unwrap())
            .collect();
        let starts = by.starts(Clock::Utc, &times, |_| Ok(f64::NAN)).unwrap();
        starts
            .into_iter()
            .map(|start| by.label(start.unwrap()))
            .collect()
    }

    #[test]
    fn weeks_are_those_of_iso_8601_and_start_on_mondays() {
        let days = ["2021-01-03", "2021-01-04", "2021-01-10", "2021-12-31"];
        assert_eq!(
            labels("week", &days),
            ["2020-W53", "2021-W01", "2021-W01", "2021-W52"]
        );
        assert_eq!(
            Grouping::Week.start(day("2021-01-03"), day("2021-01-03")),
            day("2020-12-28")
        );
        assert_eq!(labels("year", &days), ["2021"; 4]);
    }

    #[test]
    fn periods_of_days_are_counted_from_the_first_image_or_an_origin() {
        let days = ["2021-01-05", "2021-01-14", "2021-01-15", "2021-03-01"];
        // pandas: Series(days).resample("10D") has these bins.
        assert_eq!(
            labels("10d", &days),
            ["2021-01-05", "2021-01-05", "2021-01-15", "2021-02-24"]
        );
        assert_eq!(
            labels("10d@2021-01-01", &days),
            ["2021-01-01", "2021-01-11", "2021-01-11", "2021-02-20"]
        );
        // An origin may lie behind the images.
        assert_eq!(labels("10d@2021-02-01", &days[..1]), ["2021-01-02"]);
    }

    #[test]
    fn a_grouping_is_read_as_it_is_written() {
        for by in Grouping::ALL {
            assert_eq!(by.to_string().parse::<Grouping>().unwrap(), by);
        }
        assert_eq!("solar-day".parse::<Grouping>().unwrap(), Grouping::SolarDay);
        for text in ["1d", "10d", "16d@2021-01-01"] {
            assert_eq!(text.parse::<Grouping>().unwrap().to_string(), text);
        }
        for text in [
            "fortnight",
            "d",
            "-3d",
            "1.5d",
            "10d@",
            "10d@2021",
            "99999d",
        ] {
            let err = text.parse::<Grouping>().unwrap_err();
            assert_eq!(
                err.message(),
                format!(
                    "grouping `{text}` is not one of item, day, solar_day, week, month, season, year, all, or a \
                     number of days such as 10d or 10d@2021-01-01"
                )
            );
        }
        let err = "0d".parse::<Grouping>().unwrap_err();
        assert_eq!(err.message(), "a period of 0 days: expected at least one");
        assert_eq!("utc".parse::<Clock>().unwrap(), Clock::Utc);
        assert_eq!(
            "local".parse::<Clock>().unwrap_err().message(),
            "clock `local` is not solar or utc"
        );
    }
}
