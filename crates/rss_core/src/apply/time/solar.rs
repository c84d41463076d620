//! The solar day at a longitude.

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};

/// Returns the day at a longitude in degrees by mean solar time, which is four minutes (240 s) ahead of UTC for each
/// degree east. Daylight images of one pass have the same solar day, even if their UTC days differ.
pub(super) fn solar_day(time: DateTime<Utc>, longitude: f64) -> NaiveDate {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a longitude is a few hundred degrees"
    )]
    let seconds = (longitude * 240.0).round() as i64;
    let local = TimeDelta::try_seconds(seconds).and_then(|offset| time.checked_add_signed(offset));
    local.unwrap_or(time).date_naive()
}

/// Returns longitudes in degrees that go past 180 where that leaves them closer together: of images on both sides of the
/// antimeridian, whose days would differ within one pass.
pub(super) fn in_one_piece(longitudes: Vec<f64>) -> Vec<f64> {
    let spread = |longitudes: &[f64]| {
        let ends = longitudes
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &one| {
                (low.min(one), high.max(one))
            });
        ends.1 - ends.0
    };
    let past = |&longitude: &f64| match longitude < 0.0 {
        true => longitude + 360.0,
        false => longitude,
    };
    let east: Vec<f64> = longitudes.iter().map(past).collect();
    match spread(&east) < spread(&longitudes) {
        true => east,
        false => longitudes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longitudes_either_side_of_the_antimeridian_are_neighbours() {
        assert_eq!(in_one_piece(vec![179.0, -179.0]), [179.0, 181.0]);
        assert_eq!(in_one_piece(vec![-70.0, 10.0]), [-70.0, 10.0]);
        assert_eq!(in_one_piece(vec![-179.0, -178.0]), [-179.0, -178.0]);
        assert_eq!(in_one_piece(Vec::new()), [0.0; 0]);
    }

    #[test]
    fn the_sun_says_which_day_it_is() {
        let at = |time: &str, longitude: f64| {
            let day = solar_day(time.parse().unwrap(), longitude);
            day.to_string()
        };
        // Brisbane in the morning is the day before in Greenwich.
        assert_eq!(at("2021-01-02T23:55:00Z", 153.0), "2021-01-03");
        assert_eq!(at("2021-01-03T00:05:00Z", 153.0), "2021-01-03");
        assert_eq!(at("2021-01-03T00:05:00Z", -70.0), "2021-01-02");
        assert_eq!(at("2021-01-03T00:05:00Z", f64::NAN), "2021-01-03");
    }
}
