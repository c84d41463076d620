//! Grouping items into time steps, without duplicates of a scene.
//!
//! A catalogue lists products, not acquisitions: one pass of a satellite over one tile may be listed as
//! near real time and as final, in two versions, with two processing baselines. [`group`] selects the best of each,
//! reports the others with the reason, and groups the selected items by date.

mod grouping;
mod scene;
mod solar;

use std::{collections::BTreeMap, fmt, str::FromStr};

use chrono::{DateTime, NaiveDate, Utc};
use stac::Item;

pub use self::grouping::{Clock, DayPeriod, Grouping};
pub(crate) use self::scene::duplicates;
use crate::{
    error::{Error, ErrorKind, Result},
    stac as facts,
};

/// The order of the items in a group: of two valid pixels the first item's wins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MosaicOrder {
    /// By time, then by id.
    #[default]
    Time,
    /// By cloud cover, ascending, items that state none last; then by time and id.
    LeastCloud,
}

#[doc(hidden)]
#[deprecated(since = "0.1.0", note = "renamed to `MosaicOrder`")]
pub type Order = MosaicOrder;

/// How duplicates of one scene are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Duplicates {
    /// Only the best is used; see [`group`] for the ranking.
    #[default]
    LeaveOut,
    /// All are used.
    Keep,
}

impl Duplicates {
    /// All ways.
    pub const ALL: [Self; 2] = [Self::LeaveOut, Self::Keep];

    /// Returns its name, `best` or `keep`.
    pub fn name(self) -> &'static str {
        match self {
            Self::LeaveOut => "best",
            Self::Keep => "keep",
        }
    }
}

impl fmt::Display for Duplicates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Duplicates {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| {
            let message = format!(
                "duplicates `{}`: expected best or keep",
                text.escape_debug()
            );
            Error::new(ErrorKind::InvalidInput, message)
        })
    }
}

/// Options of [`group`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupOptions {
    /// Which items form one time step.
    pub by: Grouping,
    /// The clock by which an item has its day.
    pub clock: Clock,
    /// The order within a group.
    pub order: MosaicOrder,
    /// How duplicates of one scene are handled.
    pub duplicates: Duplicates,
    /// The property that states cloud cover; a manifest names the product's.
    pub cloud_cover: String,
}

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            by: Grouping::default(),
            clock: Clock::default(),
            order: MosaicOrder::default(),
            duplicates: Duplicates::default(),
            cloud_cover: "eo:cloud_cover".to_owned(),
        }
    }
}

impl GroupOptions {
    /// Returns the defaults: solar days, by time, no duplicates.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets which items form one time step.
    #[must_use]
    pub fn with_grouping(mut self, by: Grouping) -> Self {
        self.by = by;
        self
    }

    /// Sets the clock by which an item has its day.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the order within a group.
    #[must_use]
    pub fn with_order(mut self, order: MosaicOrder) -> Self {
        self.order = order;
        self
    }

    /// Sets how duplicates of one scene are handled.
    #[must_use]
    pub fn with_duplicates(mut self, duplicates: Duplicates) -> Self {
        self.duplicates = duplicates;
        self
    }

    /// Sets the property that states cloud cover.
    #[must_use]
    pub fn with_cloud_cover(mut self, property: impl Into<String>) -> Self {
        self.cloud_cover = property.into();
        self
    }
}

/// The items of one time step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Group {
    /// The label of the time step.
    pub label: String,
    /// The time of the earliest item.
    pub time: DateTime<Utc>,
    /// The items, by their indices in the input, in the requested order. Never empty.
    pub members: Vec<usize>,
}

/// A duplicate that is in no group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftOut {
    /// Its index in the input.
    pub item: usize,
    /// The index of the item that is used instead.
    pub kept: usize,
    /// The reason, a short sentence for reports.
    pub reason: String,
}

/// Groups in order of time, and the items that were left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grouped {
    /// The groups.
    pub groups: Vec<Group>,
    /// The items that were left out, in the order of the input.
    pub left_out: Vec<LeftOut>,
}

/// The time, id and index of an item that is a group of its own.
type Own<'a> = (DateTime<Utc>, &'a str, usize);

/// Groups items into time steps.
///
/// Two items are duplicates of one scene if collection, platform and tile are the same, their times are within ten
/// minutes, and the better one's bbox covers nine tenths of the other's: halves of a tile from two datastrips
/// are both used. The better one is decided by the first of these that differs: maturity (final, interim, near
/// real time, by `dea:dataset_maturity`; Landsat's category `RT` is near real time), the greater
/// `odc:dataset_version`, the newer processing baseline, the greater `s2:sequence`, the latest of `created`,
/// `updated` and similar properties, the greater id. A missing or invalid property ranks lowest.
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] naming an item without a date, or, with [`Clock::Solar`], one without bbox and geometry.
pub fn group(items: &[Item], options: &GroupOptions) -> Result<Grouped> {
    let mut times = Vec::with_capacity(items.len());
    for item in items {
        times.push(facts::datetime(item).ok_or_else(|| {
            let message = format!("item {} has no date", item.id);
            Error::new(ErrorKind::InvalidInput, message)
        })?);
    }
    let left_out = match options.duplicates {
        Duplicates::LeaveOut => duplicates(items, &times),
        Duplicates::Keep => Vec::new(),
    };
    let mut is_used = vec![true; items.len()];
    for one in &left_out {
        is_used[one.item] = false;
    }
    let used: Vec<usize> = (0..items.len()).filter(|&index| is_used[index]).collect();
    let of_used: Vec<DateTime<Utc>> = used.iter().map(|&index| times[index]).collect();
    let starts = options.by.starts(options.clock, &of_used, |number| {
        let item = &items[used[number]];
        facts::longitude(item).ok_or_else(|| no_position(&item.id))
    })?;
    let mut groups: BTreeMap<(Option<NaiveDate>, Option<Own<'_>>), Group> = BTreeMap::new();
    for (index, start) in used.into_iter().zip(starts) {
        let (item, time) = (&items[index], times[index]);
        // The index tells apart items of the same time and id, in two collections.
        let own = start.is_none().then_some((time, item.id.as_str(), index));
        let group = groups.entry((start, own)).or_insert_with(|| Group {
            label: start.map_or_else(|| item.id.clone(), |start| options.by.label(start)),
            time,
            members: Vec::new(),
        });
        group.time = group.time.min(time);
        group.members.push(index);
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    for group in &mut groups {
        group.members.sort_by(|&a, &b| {
            let by_time = (times[a], &items[a].id).cmp(&(times[b], &items[b].id));
            match options.order {
                MosaicOrder::Time => by_time,
                MosaicOrder::LeastCloud => {
                    let cover = |index: usize| {
                        let stated = facts::cloud_cover(&items[index], &options.cloud_cover);
                        stated.unwrap_or(f64::INFINITY)
                    };
                    cover(a).total_cmp(&cover(b)).then(by_time)
                }
            }
        });
    }
    Ok(Grouped { groups, left_out })
}

/// Returns the error of an item whose solar day is not known.
pub(super) fn no_position(id: &str) -> Error {
    let message = format!(
        "item {id} has neither bbox nor geometry for its solar day: group by day, or choose the clock utc"
    );
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn item(id: &str, time: &str, mut properties: Value) -> Item {
        properties["datetime"] = json!(time);
        let json = json!({"type": "Feature", "id": id, "collection": "c", "geometry": null,
            "bbox": [150.0, -31.0, 151.0, -30.0], "properties": properties, "assets": {}});
        match facts::read(json.to_string().as_bytes()).unwrap() {
            facts::Document::Item(item, _) => *item,
            other => panic!("{other:?}"),
        }
    }

    fn labels(items: &[Item], by: Grouping) -> Vec<(String, Vec<usize>)> {
        let grouped = group(items, &GroupOptions::new().with_grouping(by)).unwrap();
        let groups = grouped.groups.into_iter();
        groups.map(|group| (group.label, group.members)).collect()
    }

    fn expected(groups: &[(&str, &[usize])]) -> Vec<(String, Vec<usize>)> {
        let own = |(label, members): &(&str, &[usize])| ((*label).to_owned(), members.to_vec());
        groups.iter().map(own).collect()
    }

    #[test]
    fn a_pass_across_the_antimeridian_is_of_one_day() {
        let at = |id: &str, time: &str, west: f64| {
            let mut one = item(id, time, json!({}));
            one.bbox = Some(::stac::Bbox::TwoDimensional([
                west,
                -18.0,
                west + 1.0,
                -17.0,
            ]));
            one
        };
        // Ten in the morning in Fiji; a day later, a minute before midnight of UTC.
        let items = [
            at("a", "2020-12-31T22:10:00Z", 178.9),
            at("b", "2020-12-31T22:10:20Z", -179.9),
            at("c", "2021-01-31T23:59:00Z", -179.9),
        ];
        let days = expected(&[("2021-01-01", &[0, 1]), ("2021-02-01", &[2])]);
        assert_eq!(labels(&items, Grouping::SolarDay), days);
        let months = expected(&[("2021-01", &[0, 1]), ("2021-02", &[2])]);
        assert_eq!(labels(&items, Grouping::Month), months);
        let years = expected(&[("2021", &[0, 1, 2])]);
        assert_eq!(labels(&items, Grouping::Year), years);
    }

    #[test]
    fn items_are_grouped_by_each_kind_of_date() {
        let items = [
            item("d", "2021-03-01T00:01:00Z", json!({})),
            item("c", "2021-01-02T23:55:00Z", json!({})),
            item("b", "2021-01-03T00:05:00Z", json!({})),
            item("a", "2020-12-31T23:00:00Z", json!({})),
        ];
        for (by, groups) in [
            (
                Grouping::Item,
                &[("a", &[3][..]), ("c", &[1]), ("b", &[2]), ("d", &[0])][..],
            ),
            (
                Grouping::Day,
                &[
                    ("2020-12-31", &[3]),
                    ("2021-01-02", &[1]),
                    ("2021-01-03", &[2]),
                    ("2021-03-01", &[0]),
                ],
            ),
            // One morning in the east of Australia.
            (
                Grouping::SolarDay,
                &[
                    ("2021-01-01", &[3]),
                    ("2021-01-03", &[1, 2]),
                    ("2021-03-01", &[0]),
                ],
            ),
            (
                Grouping::Month,
                &[("2021-01", &[3, 1, 2]), ("2021-03", &[0])],
            ),
            (
                Grouping::Season,
                &[("2020-12", &[3, 1, 2]), ("2021-03", &[0])],
            ),
        ] {
            assert_eq!(labels(&items, by), expected(groups), "{by}");
        }
        let utc = GroupOptions::new()
            .with_grouping(Grouping::Month)
            .with_clock(Clock::Utc);
        let months = group(&items, &utc).unwrap().groups.into_iter();
        let months: Vec<_> = months.map(|month| (month.label, month.members)).collect();
        assert_eq!(
            months,
            expected(&[("2020-12", &[3]), ("2021-01", &[1, 2]), ("2021-03", &[0])])
        );
    }

    #[test]
    fn a_pass_across_midnight_of_utc_is_in_one_month_season_and_year() {
        let items = [
            item("a", "2020-11-30T23:55:00Z", json!({})),
            item("b", "2020-12-01T00:05:00Z", json!({})),
            item("c", "2020-12-31T23:55:00Z", json!({})),
            item("d", "2021-01-01T00:05:00Z", json!({})),
        ];
        for (by, groups) in [
            (
                "month",
                &[("2020-12", &[0, 1][..]), ("2021-01", &[2, 3])][..],
            ),
            ("season", &[("2020-12", &[0, 1, 2, 3])]),
            ("year", &[("2020", &[0, 1]), ("2021", &[2, 3])]),
            ("week", &[("2020-W49", &[0, 1]), ("2020-W53", &[2, 3])]),
            ("31d", &[("2020-12-01", &[0, 1]), ("2021-01-01", &[2, 3])]),
        ] {
            assert_eq!(
                labels(&items, by.parse().unwrap()),
                expected(groups),
                "{by}"
            );
        }
    }

    #[test]
    fn seasons_start_in_march_june_september_and_december() {
        let label = |month: u32| {
            let time = format!("2021-{month:02}-15T00:00:00Z");
            labels(&[item("a", &time, json!({}))], Grouping::Season)
                .remove(0)
                .0
        };
        let all: Vec<String> = (1..=12).map(label).collect();
        assert_eq!(
            all,
            [
                "2020-12", "2020-12", "2021-03", "2021-03", "2021-03", "2021-06", "2021-06",
                "2021-06", "2021-09", "2021-09", "2021-09", "2021-12"
            ]
        );
    }

    #[test]
    fn the_clearest_comes_first_where_that_is_asked_for() {
        let time = |minute: u32| format!("2021-01-03T00:{minute:02}:00Z");
        let items = [
            item("none", &time(0), json!({})),
            item("odd", &time(1), json!({"eo:cloud_cover": "NaN"})),
            item("text", &time(2), json!({"eo:cloud_cover": "12.5"})),
            item("later", &time(4), json!({"eo:cloud_cover": 3})),
            item("early", &time(3), json!({"eo:cloud_cover": 3.0})),
        ];
        let options = GroupOptions::new().with_order(MosaicOrder::LeastCloud);
        let grouped = group(&items, &options).unwrap();
        assert_eq!(grouped.groups[0].members, [4, 3, 2, 0, 1]);
        assert_eq!(
            grouped.groups[0].time.to_rfc3339(),
            "2021-01-03T00:00:00+00:00"
        );
        let by_time = group(&items, &GroupOptions::new()).unwrap();
        assert_eq!(by_time.groups[0].members, [0, 1, 2, 4, 3]);
    }

    /// Returns the reason that the second of two items of one scene is left out.
    fn left_out(kept: Value, other: Value) -> String {
        let with = |properties: Value| {
            let mut all = json!({"odc:region_code": "55HFA", "platform": "Sentinel-2A"});
            for (name, value) in properties.as_object().unwrap() {
                all[name] = value.clone();
            }
            all
        };
        let items = [
            item("a", "2021-01-03T00:00:00Z", with(kept)),
            item("b", "2021-01-03T00:00:09Z", with(other)),
        ];
        for (items, index) in [
            ([items[0].clone(), items[1].clone()], 1),
            ([items[1].clone(), items[0].clone()], 0),
        ] {
            let grouped = group(&items, &GroupOptions::new()).unwrap();
            assert_eq!(grouped.left_out.len(), 1, "{grouped:?}");
            assert_eq!(grouped.left_out[0].item, index, "{grouped:?}");
            assert_eq!(grouped.groups[0].members, [1 - index]);
        }
        let grouped = group(&items, &GroupOptions::new()).unwrap();
        grouped.left_out[0].reason.clone()
    }

    #[test]
    fn the_best_of_a_scene_stays_by_the_first_thing_that_differs() {
        for (kept, other, reason) in [
            (
                json!({"dea:dataset_maturity": "final", "odc:dataset_version": "3.1.0"}),
                json!({"dea:dataset_maturity": "interim", "odc:dataset_version": "3.2.0"}),
                "maturity final is preferred over interim",
            ),
            (
                json!({"dea:dataset_maturity": "interim"}),
                json!({"dea:dataset_maturity": "NRT"}),
                "maturity interim is preferred over near real time",
            ),
            (
                json!({"landsat:collection_category": "T1"}),
                json!({"landsat:collection_category": "RT"}),
                "maturity final is preferred over near real time",
            ),
            (
                json!({"odc:dataset_version": "3.10.0", "s2:processing_baseline": "02.12"}),
                json!({"odc:dataset_version": "3.2.1", "s2:processing_baseline": "05.00"}),
                "version 3.10.0 is preferred over 3.2.1",
            ),
            (
                json!({"odc:dataset_version": "3.2.1"}),
                json!({"odc:dataset_version": "NaN"}),
                "version 3.2.1 is preferred over none",
            ),
            (
                json!({"s2:processing_baseline": "05.00", "s2:sequence": "0"}),
                json!({"s2:processing_baseline": 2.14, "s2:sequence": "1"}),
                "processing baseline 05.00 is preferred over 02.14",
            ),
            (
                json!({"s2:sequence": "1"}),
                json!({"s2:sequence": 0}),
                "sequence 1 is preferred over 0",
            ),
            (
                json!({"created": "2021-02-01T00:00:00Z"}),
                json!({"created": "2021-01-04", "updated": "odd"}),
                "made 2021-02-01T00:00:00+00:00 is preferred over 2021-01-04T00:00:00+00:00",
            ),
        ] {
            assert_eq!(
                left_out(kept, other),
                format!("the same scene as a, whose {reason}")
            );
        }
        // The id decides last.
        let two = |id| {
            item(
                id,
                "2021-01-03T00:00:00Z",
                json!({"grid:code": "MGRS-55HFA"}),
            )
        };
        let grouped = group(&[two("y"), two("x")], &GroupOptions::new()).unwrap();
        assert_eq!(
            grouped.left_out[0].reason,
            "the same scene as y, whose id y is preferred over x"
        );
    }

    #[test]
    fn what_only_looks_alike_stays() {
        let grid = json!({"grid:code": "MGRS-01XEJ", "platform": "sentinel-2a"});
        let first = item("a", "2021-01-03T00:00:00Z", grid.clone());
        // The next orbit, which covers a tile near the pole again.
        let orbit = item("b", "2021-01-03T01:40:00Z", grid.clone());
        let other = json!({"grid:code": "MGRS-01XEJ", "platform": "sentinel-2b"});
        let other = item("c", "2021-01-03T00:00:00Z", other);
        let mut half = item("d", "2021-01-03T00:00:20Z", grid.clone());
        half.bbox = Some(vec![150.0, -31.8, 151.0, -30.8].try_into().unwrap());
        let mut foreign = item("e", "2021-01-03T00:00:00Z", grid);
        foreign.collection = Some("other".to_owned());
        let nowhere = item("f", "2021-01-03T00:00:00Z", json!({}));
        let twin = item("g", "2021-01-03T00:00:00Z", json!({}));
        let items = [first, orbit, other, half, foreign, nowhere, twin];
        let grouped = group(&items, &GroupOptions::new()).unwrap();
        assert_eq!(grouped.left_out, []);
        assert_eq!(grouped.groups[0].members.len(), 7);
    }

    #[test]
    fn duplicates_stay_where_they_are_wanted() {
        let two = |id| item(id, "2021-01-03T00:00:00Z", json!({"grid:code": "x"}));
        let options = GroupOptions::new().with_duplicates(Duplicates::Keep);
        let grouped = group(&[two("y"), two("x")], &options).unwrap();
        assert_eq!(grouped.groups[0].members, [1, 0]);
    }

    #[test]
    fn an_item_that_cannot_be_placed_is_named() {
        let mut nowhere = item("a", "2021-01-03T00:00:00Z", json!({}));
        nowhere.bbox = None;
        let err = group(&[nowhere.clone()], &GroupOptions::new()).unwrap_err();
        assert_eq!(
            err.message(),
            "item a has neither bbox nor geometry for its solar day: group by day, or choose the clock utc"
        );
        nowhere.properties.datetime = None;
        let days = GroupOptions::new().with_grouping(Grouping::Day);
        let err = group(&[nowhere], &days).unwrap_err();
        assert_eq!(err.message(), "item a has no date");
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
    }

    proptest! {
        #[test]
        fn every_item_is_in_one_group_or_left_out(
            minutes in prop::collection::vec((0_i64..200_000, 0_u8..3), 0..20),
            by in prop::sample::select(Grouping::ALL.to_vec()),
        ) {
            let start: DateTime<Utc> = "2020-11-20T00:00:00Z".parse().unwrap();
            let items: Vec<Item> = minutes.iter().enumerate().map(|(n, (minute, tile))| {
                let time = start + TimeDelta::minutes(*minute);
                let tile = json!({"grid:code": tile.to_string()});
                item(&n.to_string(), &time.to_rfc3339(), tile)
            }).collect();
            let grouped = group(&items, &GroupOptions::new().with_grouping(by)).unwrap();
            let members = grouped.groups.iter().flat_map(|group| group.members.iter().copied());
            let mut indices: Vec<usize> =
                members.chain(grouped.left_out.iter().map(|one| one.item)).collect();
            indices.sort_unstable();
            prop_assert_eq!(indices, (0..items.len()).collect::<Vec<_>>());
            let times: Vec<_> = grouped.groups.iter().map(|group| group.time).collect();
            prop_assert!(times.is_sorted());
            for one in &grouped.left_out {
                prop_assert!(grouped.groups.iter().any(|group| group.members.contains(&one.kept)));
            }
        }
    }
}
