//! Finding duplicates of one scene, and ranking them.

use std::{cmp::Ordering, collections::BTreeMap};

use chrono::{DateTime, TimeDelta, Utc};
use stac::Item;

use super::LeftOut;
use crate::stac as facts;

/// The longest time between duplicates: longer than the acquisition of a tile, shorter than an orbit (about 100
/// minutes), since near the poles successive orbits cover the same tile.
const ONE_PASS: TimeDelta = TimeDelta::minutes(10);

/// The share of a footprint that the better item must cover. Two processings differ a little at the edges; halves of
/// a tile overlap far less.
const COVERED: f64 = 0.9;

/// Returns the items that are duplicates of a better one.
pub(crate) fn duplicates(items: &[Item], times: &[DateTime<Utc>]) -> Vec<LeftOut> {
    let mut scenes: BTreeMap<[String; 3], Vec<usize>> = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        if let Some(tile) = tile(item) {
            let platform = facts::text(item, "platform").unwrap_or_default();
            let collection = facts::collection(item).unwrap_or_default();
            let scene = [collection, platform.to_lowercase(), tile];
            scenes.entry(scene).or_default().push(index);
        }
    }
    let mut left_out = Vec::new();
    for mut indices in scenes.into_values() {
        indices.sort_by_key(|&index| times[index]);
        let one_pass = |first: &usize, next: &usize| times[*next] - times[*first] <= ONE_PASS;
        // A chunk may span more than ten minutes, link by link: the pairs are compared again below.
        for pass in indices.chunk_by(one_pass) {
            if pass.len() < 2 {
                continue;
            }
            let mut ranked: Vec<(Rank, usize)> = pass
                .iter()
                .map(|&index| (Rank::of(&items[index]), index))
                .collect();
            ranked.sort_by(|a, b| b.cmp(a));
            // Best first: an item is left out only in favour of one that is used itself.
            let mut used: Vec<(&Rank, usize)> = Vec::new();
            for (rank, index) in &ranked {
                let better = used.iter().find(|(_, better)| {
                    let apart = (times[*better] - times[*index]).abs();
                    apart <= ONE_PASS && covers(&items[*better], &items[*index])
                });
                match better {
                    Some((better_rank, better)) => left_out.push(LeftOut {
                        item: *index,
                        kept: *better,
                        reason: format!(
                            "the same scene as {}, whose {}",
                            items[*better].id,
                            better_rank.above(rank)
                        ),
                    }),
                    None => used.push((rank, *index)),
                }
            }
        }
    }
    left_out.sort_by_key(|one| one.item);
    left_out
}

/// Returns the tile or path and row of an item, in whichever property states it.
fn tile(item: &Item) -> Option<String> {
    let properties = [
        "odc:region_code",
        "cubedash:region_code",
        "grid:code",
        "s2:mgrs_tile",
    ];
    let stated = properties.iter().find_map(|name| facts::text(item, name));
    stated.or_else(|| {
        let all = |names: [&str; 3]| {
            let parts: Option<Vec<String>> =
                names.iter().map(|name| facts::text(item, name)).collect();
            parts.map(|parts| parts.join("/"))
        };
        all(["mgrs:utm_zone", "mgrs:latitude_band", "mgrs:grid_square"])
            .or_else(|| {
                all([
                    "sentinel:utm_zone",
                    "sentinel:latitude_band",
                    "sentinel:grid_square",
                ])
            })
            .or_else(|| {
                let path = facts::number(item, "landsat:wrs_path")?;
                let row = facts::number(item, "landsat:wrs_row")?;
                Some(format!("{path}/{row}"))
            })
    })
}

/// Returns true if the bbox of `better` covers that of `other`, or one of them has no bbox.
fn covers(better: &Item, other: &Item) -> bool {
    let (Some(better), Some(other)) = (&better.bbox, &other.bbox) else {
        return true;
    };
    let sides = |bbox: &stac::Bbox| {
        let (west, east) = (bbox.xmin(), bbox.xmax());
        // Across the antimeridian: unwrapped, so that east is greater than west.
        let east = if east < west { east + 360.0 } else { east };
        [west, bbox.ymin(), east, bbox.ymax()]
    };
    let area =
        |[west, south, east, north]: [f64; 4]| (east - west).max(0.0) * (north - south).max(0.0);
    let (a, b) = (sides(better), sides(other));
    let both = [
        a[0].max(b[0]),
        a[1].max(b[1]),
        a[2].min(b[2]),
        a[3].min(b[3]),
    ];
    let touch = both[0] <= both[2] && both[1] <= both[3];
    touch && area(both) >= COVERED * area(b)
}

/// The rank of an item among duplicates. The derived order compares the fields from first to last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    maturity: Maturity,
    version: Vec<u64>,
    /// In hundredths.
    baseline: Option<u64>,
    sequence: Option<u64>,
    made: Option<DateTime<Utc>>,
    id: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Maturity {
    Unknown,
    NearRealTime,
    Interim,
    Final,
}

impl Rank {
    fn of(item: &Item) -> Self {
        let maturity = facts::text(item, "dea:dataset_maturity");
        let category = facts::text(item, "landsat:collection_category");
        let either = maturity.or(category).unwrap_or_default();
        let first = |names: &[&str]| names.iter().find_map(|name| facts::number(item, name));
        Self {
            maturity: match either.to_lowercase().as_str() {
                "final" | "t1" | "t2" => Maturity::Final,
                "interim" => Maturity::Interim,
                "nrt" | "rt" => Maturity::NearRealTime,
                _ => Maturity::Unknown,
            },
            version: facts::text(item, "odc:dataset_version")
                .map(|text| numbers(&text))
                .unwrap_or_default(),
            baseline: facts::processing_baseline(item).map(|baseline| whole(baseline * 100.0)),
            sequence: first(&["s2:sequence", "sentinel:sequence"]).map(whole),
            made: [
                "created",
                "updated",
                "odc:processing_datetime",
                "s2:generation_time",
            ]
            .iter()
            .filter_map(|name| facts::time(item, name))
            .max(),
            id: item.id.clone(),
        }
    }

    /// Returns the first property in which this item ranks above another, in words for the report.
    fn above(&self, other: &Self) -> String {
        let shown = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
        let dotted = |version: &[u64]| {
            let parts: Vec<String> = version.iter().map(u64::to_string).collect();
            shown((!parts.is_empty()).then(|| parts.join(".")))
        };
        let number = |number: Option<u64>| shown(number.map(|number| number.to_string()));
        let baseline = |hundredths: Option<u64>| {
            shown(hundredths.map(|n| format!("{:02}.{:02}", n / 100, n % 100)))
        };
        let time = |time: Option<DateTime<Utc>>| shown(time.map(|time| time.to_rfc3339()));
        let pair = |what: &str, ours: String, theirs: String| {
            format!("{what} {ours} is preferred over {theirs}")
        };
        if self.maturity != other.maturity {
            let name = |maturity| match maturity {
                Maturity::Unknown => "none",
                Maturity::NearRealTime => "near real time",
                Maturity::Interim => "interim",
                Maturity::Final => "final",
            };
            let (ours, theirs) = (name(self.maturity), name(other.maturity));
            return pair("maturity", ours.to_owned(), theirs.to_owned());
        }
        if self.version != other.version {
            return pair("version", dotted(&self.version), dotted(&other.version));
        }
        if self.baseline != other.baseline {
            let (ours, theirs) = (baseline(self.baseline), baseline(other.baseline));
            return pair("processing baseline", ours, theirs);
        }
        if self.sequence != other.sequence {
            return pair("sequence", number(self.sequence), number(other.sequence));
        }
        match self.made.cmp(&other.made) {
            Ordering::Equal => pair("id", self.id.clone(), other.id.clone()),
            _ => pair("made", time(self.made), time(other.made)),
        }
    }
}

/// Returns the numbers of a version such as `3.2.1`, up to a part without leading digits. Compared as numbers, 3.10 is
/// newer than 3.2.
fn numbers(version: &str) -> Vec<u64> {
    let digits = |part: &str| {
        let end = part
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(part.len());
        part.get(..end)?.parse().ok()
    };
    version.trim().split('.').map_while(digits).collect()
}

/// Rounds a number; negative ones become 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates"
)]
fn whole(number: f64) -> u64 {
    number.round() as u64
}
