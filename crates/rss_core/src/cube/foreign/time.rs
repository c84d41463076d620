//! Times by the [CF conventions](https://cfconventions.org/Data/cf-conventions/cf-conventions-1.11/cf-conventions.html#time-coordinate):
//! numbers of a unit since an instant, in a calendar.

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};

use super::axes::text;
use crate::{
    array::Members,
    error::{Error, ErrorKind, Result},
    raster::Number,
};

const SECOND: i128 = 1_000_000_000;
const DAY: i128 = 86_400 * SECOND;
/// The Julian day of 1970-01-01, counted at noon.
const EPOCH: i64 = 2_440_588;
/// The Julian day of 1582-10-15, the first of the Gregorian calendar.
const GREGORIAN: i64 = 2_299_161;

/// The unit of times, and the instant from which they count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Units {
    /// Nanoseconds of a unit.
    unit: i128,
    /// Nanoseconds since 1970.
    origin: i128,
    /// Whether days before 1582-10-15 are Julian.
    is_mixed: bool,
}

fn unsupported(what: String) -> Error {
    Error::new(ErrorKind::Unsupported, what)
}

impl Units {
    /// Reads `units` and `calendar`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`], which names unit or calendar.
    pub(super) fn of(attributes: &Members) -> Result<Self> {
        let units = text(attributes, "units");
        let (unit, since) = units.split_once(" since ").ok_or_else(|| {
            unsupported(format!(
                "times of units `{units}`, expected such as `days since 1970-01-01`"
            ))
        })?;
        let calendar = text(attributes, "calendar").to_ascii_lowercase();
        let is_mixed = match calendar.as_str() {
            "" | "standard" | "gregorian" => true,
            "proleptic_gregorian" => false,
            other => {
                return Err(unsupported(format!(
                    "times of the calendar `{other}`, expected standard or proleptic_gregorian"
                )));
            }
        };
        let unit = match unit.trim().to_ascii_lowercase().as_str() {
            "weeks" | "week" => 7 * DAY,
            "days" | "day" | "d" => DAY,
            "hours" | "hour" | "hrs" | "hr" | "h" => 3600 * SECOND,
            "minutes" | "minute" | "mins" | "min" => 60 * SECOND,
            "seconds" | "second" | "secs" | "sec" | "s" => SECOND,
            "milliseconds" | "millisecond" | "millisecs" | "millisec" | "msecs" | "msec" | "ms" => {
                SECOND / 1000
            }
            "microseconds" | "microsecond" | "microsecs" | "microsec" | "us" => SECOND / 1_000_000,
            "nanoseconds" | "nanosecond" | "nanosecs" | "nanosec" | "ns" => 1,
            other => return Err(unsupported(format!("times of the unit `{other}`"))),
        };
        let origin = origin(since.trim(), is_mixed)
            .ok_or_else(|| unsupported(format!("times since `{since}`, which is no date")))?;
        Ok(Self {
            unit,
            origin,
            is_mixed,
        })
    }

    /// Returns the instant of a number; none where it is none, or outside of what a time step can be.
    pub(super) fn instant(&self, number: Number) -> Option<DateTime<Utc>> {
        let nanoseconds = match number.as_integer() {
            Some(integer) => integer.checked_mul(self.unit)?,
            None => {
                let number = number.as_f64();
                if !number.is_finite() || number.abs() > 1e18 {
                    return None;
                }
                // Apart, so that whole units stay exact.
                #[expect(clippy::cast_possible_truncation, reason = "checked above")]
                let whole = number.trunc() as i128;
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_precision_loss,
                    reason = "less than one unit"
                )]
                let part = (number.fract() * self.unit as f64).round() as i128;
                let sum = whole.checked_mul(self.unit)?.checked_add(part)?;
                // A float of days is not exact below: what was 00:10:00 stays so.
                match self.unit >= SECOND {
                    true => (sum + 500).div_euclid(1000) * 1000,
                    false => sum,
                }
            }
        };
        let all = self.origin.checked_add(nanoseconds)?;
        // Days of the Julian calendar have other names than those of the instants here.
        let first = i128::from(GREGORIAN - EPOCH) * DAY;
        if self.is_mixed && all < first {
            return None;
        }
        let seconds = i64::try_from(all.div_euclid(SECOND)).ok()?;
        DateTime::from_timestamp(seconds, u32::try_from(all.rem_euclid(SECOND)).ok()?)
    }
}

/// Reads a date with an optional time and zone, as nanoseconds since 1970.
fn origin(text: &str, is_mixed: bool) -> Option<i128> {
    let text = text
        .trim_end_matches("UTC")
        .trim_end_matches(['Z', 'z'])
        .trim();
    let (date, rest) = match text.split_once(['T', ' ']) {
        Some((date, rest)) => (date, rest.trim()),
        None => (text, ""),
    };
    let mut parts = date.split('-');
    let year: i64 = parts.next()?.parse().ok()?;
    let month: i64 = parts.next()?.parse().ok()?;
    let day: i64 = parts.next()?.parse().ok()?;
    if parts.next().is_some() || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Behind the time may be its difference from UTC, `+02:00` or ` -3:30`.
    let (time, zone) = match rest.find(['+', '-']) {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let time = clock(time.trim())?;
    let zone = match zone.split_at_checked(1) {
        None => 0,
        Some((sign, zone)) => {
            let zone = match zone.len() {
                4 if !zone.contains(':') => format!("{}:{}", zone.get(..2)?, zone.get(2..)?),
                _ => zone.to_owned(),
            };
            clock(zone.trim())? * if sign == "-" { -1 } else { 1 }
        }
    };
    let gregorian = julian_day(year, month, day, true);
    let julian = julian_day(year, month, day, false);
    let is_julian = is_mixed && gregorian < GREGORIAN;
    if !is_julian
        && NaiveDate::from_ymd_opt(
            i32::try_from(year).ok()?,
            u32::try_from(month).ok()?,
            u32::try_from(day).ok()?,
        )
        .is_none()
    {
        return None;
    }
    let day = if is_julian { julian } else { gregorian };
    Some(i128::from(day - EPOCH) * DAY + time - zone)
}

/// Reads `12`, `12:30`, `12:30:15.25` as nanoseconds of a day.
fn clock(text: &str) -> Option<i128> {
    let mut sum = 0_i128;
    let mut unit = 3600 * SECOND;
    if text.is_empty() {
        return Some(0);
    }
    for part in text.split(':') {
        if unit == SECOND {
            let seconds: f64 = part.parse().ok().filter(|s| (0.0..61.0).contains(s))?;
            #[expect(clippy::cast_possible_truncation, reason = "less than 61 seconds")]
            let nanoseconds = (seconds * 1e9).round() as i128;
            sum += nanoseconds;
        } else {
            sum += i128::from(part.parse::<u8>().ok()?) * unit;
        }
        unit = match unit {
            SECOND => return (text.split(':').count() <= 3).then_some(sum),
            unit => unit / 60,
        };
    }
    Some(sum)
}

/// Returns the Julian day of a date of the Gregorian or the Julian calendar.
fn julian_day(year: i64, month: i64, day: i64, is_gregorian: bool) -> i64 {
    // Years begin with March, so that the leap day is their last.
    let early = i64::from(month < 3);
    let (years, months) = (
        year.clamp(-100_000, 100_000) + 4800 - early,
        month + 12 * early - 3,
    );
    let days = day + (153 * months + 2).div_euclid(5) + 365 * years + years.div_euclid(4);
    match is_gregorian {
        true => days - years.div_euclid(100) + years.div_euclid(400) - 32_045,
        false => days - 32_083,
    }
}

/// Reads an instant as text, such as `2021-01-03`, `2021-01-03T00:00:00.5Z`; without a zone it is UTC.
pub(super) fn instant_of(text: &str) -> Option<DateTime<Utc>> {
    let text = text.trim();
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Some(time.to_utc());
    }
    let forms = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f"];
    let time = forms
        .iter()
        .find_map(|form| NaiveDateTime::parse_from_str(text, form).ok());
    let day = || NaiveDate::parse_from_str(text, "%Y-%m-%d").ok();
    let time = time.or_else(|| Some(day()?.and_time(NaiveTime::MIN)))?;
    Some(time.and_utc())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn instant(units: &str, calendar: &str, number: Number) -> Option<String> {
        let attributes = json!({"units": units, "calendar": calendar});
        let units = Units::of(attributes.as_object().unwrap()).unwrap();
        units.instant(number).map(|time| time.to_rfc3339())
    }

    #[test]
    fn numbers_are_the_instants_that_cftime_says() {
        // cftime.num2date(number, units, calendar).isoformat()
        for (units, calendar, number, expected) in [
            (
                "days since 1970-01-01",
                "standard",
                18_628.into(),
                "2021-01-01T00:00:00+00:00",
            ),
            (
                "days since 1970-01-01",
                "",
                Number::from(18_628.5),
                "2021-01-01T12:00:00+00:00",
            ),
            (
                "hours since 1900-01-01 00:00:00.0",
                "gregorian",
                1_060_692.into(),
                "2021-01-01T12:00:00+00:00",
            ),
            (
                "seconds since 2000-01-01T12:00:00Z",
                "proleptic_gregorian",
                (-1).into(),
                "2000-01-01T11:59:59+00:00",
            ),
            (
                "minutes since 2021-03-01 01:30:00 +02:00",
                "standard",
                60.into(),
                "2021-03-01T00:30:00+00:00",
            ),
            (
                "minutes since 2021-03-01 01:30 -3:30",
                "standard",
                0.into(),
                "2021-03-01T05:00:00+00:00",
            ),
            (
                "milliseconds since 1970-1-1 0:0:0 UTC",
                "standard",
                1_609_459_200_250_i64.into(),
                "2021-01-01T00:00:00.250+00:00",
            ),
            (
                "nanoseconds since 1970-01-01",
                "proleptic_gregorian",
                1_609_459_200_000_000_001_i64.into(),
                "2021-01-01T00:00:00.000000001+00:00",
            ),
            // Two days apart: the standard calendar is Julian at its origin.
            (
                "days since 0001-01-01",
                "standard",
                737_792.into(),
                "2021-01-01T00:00:00+00:00",
            ),
            (
                "days since 0001-01-01",
                "proleptic_gregorian",
                737_790.into(),
                "2021-01-01T00:00:00+00:00",
            ),
        ] {
            assert_eq!(
                instant(units, calendar, number).as_deref(),
                Some(expected),
                "{units}"
            );
        }
        assert_eq!(instant("days since 1500-01-01", "standard", 0.into()), None);
        assert_eq!(
            instant("days since 1970-01-01", "standard", Number::NAN),
            None
        );
        assert_eq!(
            instant("days since 1970-01-01", "standard", i64::MAX.into()),
            None
        );
    }

    #[test]
    fn units_that_are_not_known_are_refused_by_name() {
        for (units, calendar, said) in [
            ("months since 1970-01-01", "standard", "`months`"),
            ("days since 1970-01-01", "noleap", "`noleap`"),
            ("days since 1970-01-01", "360_day", "`360_day`"),
            ("days since yesterday", "standard", "`yesterday`"),
            ("days since 1970-02-30", "standard", "`1970-02-30`"),
            ("metres", "standard", "`metres`"),
            ("", "standard", "expected such as"),
        ] {
            let attributes = json!({"units": units, "calendar": calendar});
            let err = Units::of(attributes.as_object().unwrap()).unwrap_err();
            assert!(err.message().contains(said), "{err}");
        }
    }
}
