//! Times with units, as users write them.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// Parses a time: `90s`, `5m`, `1h`, `1d`, `500ms`; a bare number counts seconds.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(rss_core::parse_duration("5m")?, Duration::from_secs(300));
/// # Ok::<_, rss_core::Error>(())
/// ```
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] for another text.
pub fn parse_duration(text: &str) -> Result<Duration> {
    let text = text.trim();
    let end = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let milliseconds = match unit {
        "ms" => Some(1_u64),
        "" | "s" => Some(1000),
        "m" | "min" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(86_400_000),
        _ => None,
    };
    let parsed = number.trim().parse::<u64>().ok();
    let time = parsed
        .zip(milliseconds)
        .and_then(|(n, unit)| n.checked_mul(unit));
    time.map(Duration::from_millis).ok_or_else(|| {
        let message =
            format!("`{text}` is no time, expected a number and a unit, as 90s, 5m, 1h or 1d");
        Error::new(ErrorKind::InvalidInput, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_or_counts_seconds() {
        let parsed = |text: &str| parse_duration(text).map(|time| time.as_millis()).ok();
        for (text, milliseconds) in [
            ("90", 90_000),
            ("90s", 90_000),
            ("500ms", 500),
            (" 5 m ", 300_000),
            ("1h", 3_600_000),
            ("2d", 172_800_000),
        ] {
            assert_eq!(parsed(text), Some(milliseconds), "{text}");
        }
        for wrong in [
            "",
            "s",
            "-5s",
            "5 weeks",
            "1e9s",
            "18446744073709551615d",
            "5M",
        ] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
