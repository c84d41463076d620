//! Single values of STAC documents, in the spellings of real servers.

use chrono::{DateTime, NaiveDate, NaiveDateTime, Utc};
use serde_json::Value;

use crate::raster::Number;

/// Returns a number that may be written as a string; NaN and the infinities have no JSON number.
pub(super) fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// Like [`as_number`], with all the digits of an integer.
pub(super) fn as_exact(value: &Value) -> Option<Number> {
    match value {
        Value::Number(number) => number.to_string().parse().ok(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// Parses a time with or without zone, fraction and time of day; without a zone it is UTC.
pub(super) fn parse_time(text: &str) -> Option<DateTime<Utc>> {
    let text = text.trim();
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Some(time.to_utc());
    }
    for format in [
        "%Y-%m-%dT%H:%M:%S%.f",
        "%Y-%m-%d %H:%M:%S%.f",
        "%Y-%m-%dT%H:%M",
    ] {
        if let Ok(time) = NaiveDateTime::parse_from_str(text.trim_end_matches('Z'), format) {
            return Some(time.and_utc());
        }
    }
    let day = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?;
    Some(day.and_hms_opt(0, 0, 0)?.and_utc())
}

#[cfg(test)]
mod tests {
    use chrono::SecondsFormat;

    use super::*;

    #[test]
    fn times_without_zone_or_time_are_utc() {
        for (text, expected) in [
            ("1998-03-08", "1998-03-08T00:00:00Z"),
            (
                "2020-01-01T10:00:00.1234567",
                "2020-01-01T10:00:00.123456700Z",
            ),
            ("2020-01-01T10:00:00+10:00", "2020-01-01T00:00:00Z"),
        ] {
            let time = parse_time(text).unwrap();
            assert_eq!(time.to_rfc3339_opts(SecondsFormat::AutoSi, true), expected);
        }
        assert_eq!(parse_time("yesterday"), None);
    }
}
