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

/// Longitudes so near to the antimeridian, in degrees, may be of a pass across it.
const NEAR: f64 = 30.0;

/// Returns longitudes in degrees that go past 180 where images lie near the antimeridian on both of its sides: their days
/// would differ within one pass.
pub(super) fn in_one_piece(mut longitudes: Vec<f64>) -> Vec<f64> {
    let is_east = longitudes.iter().any(|&one| one > 180.0 - NEAR);
    for longitude in longitudes
        .iter_mut()
        .filter(|one| is_east && **one < NEAR - 180.0)
    {
        *longitude += 360.0;
    }
    longitudes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longitudes_either_side_of_the_antimeridian_are_neighbours() {
        assert_eq!(in_one_piece(vec![179.0, -179.0]), [179.0, 181.0]);
        assert_eq!(in_one_piece(vec![-70.0, 10.0]), [-70.0, 10.0]);
        assert_eq!(in_one_piece(vec![-59.0, 153.0]), [-59.0, 153.0]);
        assert_eq!(
            in_one_piece(vec![10.0, 170.0, -170.0]),
            [10.0, 170.0, 190.0]
        );
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
