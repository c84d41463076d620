//! The client-side check of items against the query: servers ignore filters, and round dates in different ways.

use serde_json::{Map, Value};

use super::{date::Span, filter::Condition, intersects::Area};
use crate::{
    products::{Scene, SceneRule},
    stac::interval,
};

/// Properties in which items of any provider state their Sentinel-2 tile.
const TILE_PROPERTIES: [&str; 3] = ["grid:code", "s2:mgrs_tile", "odc:region_code"];

/// The conditions that an item must meet.
#[derive(Clone, Debug)]
pub(super) struct Check {
    pub(super) collections: Vec<String>,
    /// The ids; if empty, any.
    pub(super) ids: Vec<String>,
    pub(super) span: Span,
    pub(super) area: Area,
    pub(super) scenes: Option<SceneCheck>,
    pub(super) conditions: Vec<Condition>,
}

/// The scenes of which an item may be.
#[derive(Clone, Debug)]
pub(super) struct SceneCheck {
    pub(super) rule: Option<SceneRule>,
    pub(super) scenes: Vec<Scene>,
}

/// The reason why an item was left out.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Mismatch {
    /// Its collection, id, time or location does not match; the text is the member of the search body.
    Member(&'static str),
    /// Its scene does not match.
    Scene,
    /// A condition is not met, given by its index.
    Condition(usize),
}

impl Check {
    /// Returns the reason why an item does not match; none if it does.
    pub(super) fn mismatch(&self, item: &stac::Item) -> Option<Mismatch> {
        let member = |name| Some(Mismatch::Member(name));
        if let Some(collection) = &item.collection
            && !self.collections.contains(collection)
        {
            return member("collections");
        }
        if !self.ids.is_empty() && !self.ids.contains(&item.id) {
            return member("ids");
        }
        if !self.in_time(item) {
            return member("datetime");
        }
        if !self.area.accepts(item) {
            return member("intersects");
        }
        let failed = self.conditions.iter().position(|condition| {
            !property(item, condition.property()).is_some_and(|found| condition.accepts(&found))
        });
        if let Some(at) = failed {
            return Some(Mismatch::Condition(at));
        }
        let scenes = self.scenes.as_ref()?;
        (!scenes.accepts(&item.properties.additional_fields)).then_some(Mismatch::Scene)
    }

    /// Returns true if the item's time, or a part of its interval, is in the requested span. An item without
    /// any time passes: nothing excludes it.
    fn in_time(&self, item: &stac::Item) -> bool {
        let at = item.properties.datetime;
        let whole = interval(item);
        if at.is_none() && whole.is_none() {
            return true;
        }
        at.is_some_and(|at| self.span.overlaps(at, at))
            || whole.is_some_and(|(from, to)| self.span.overlaps(from, to))
    }
}

impl SceneCheck {
    fn accepts(&self, properties: &Map<String, Value>) -> bool {
        self.scenes.iter().any(|scene| match &self.rule {
            Some(rule) => rule.matches(scene, properties) == Some(true),
            None => {
                let stated = TILE_PROPERTIES
                    .iter()
                    .filter_map(|name| properties.get(*name)?.as_str())
                    .find_map(|text| text.parse::<Scene>().ok());
                stated.is_none_or(|stated| stated == *scene)
            }
        })
    }
}

/// Returns a property. Members that the `stac` crate has as fields are not among the additional ones, so they are
/// looked up in the serialised properties.
fn property(item: &stac::Item, name: &str) -> Option<Value> {
    let properties = &item.properties;
    if let Some(found) = properties.additional_fields.get(name) {
        return Some(found.clone());
    }
    match name {
        "id" => return Some(item.id.clone().into()),
        "collection" => return item.collection.clone().map(Value::from),
        _ => {}
    }
    match serde_json::to_value(properties).ok()?.get_mut(name)? {
        Value::Null => None,
        found => Some(found.take()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::{Cmp, date},
        *,
    };

    fn check() -> Check {
        Check {
            collections: vec!["c".to_owned()],
            ids: Vec::new(),
            span: {
                let (start, end) = (date(2021, 1, 1).into(), date(2021, 2, 1).into());
                Span::new(Some(&start), Some(&end)).unwrap()
            },
            area: Area::of_bbox([150.0, -30.0, 151.0, -29.0]).unwrap(),
            scenes: None,
            conditions: vec![Condition::new("eo:cloud_cover", Cmp::Less, json!(30))],
        }
    }

    fn item(change: Value) -> stac::Item {
        let mut json = json!({
            "type": "Feature", "stac_version": "1.0.0", "id": "x", "collection": "c",
            "geometry": { "type": "Point", "coordinates": [150.5, -29.5] },
            "properties": { "datetime": "2021-01-15T00:00:00Z", "eo:cloud_cover": 10 },
            "links": [], "assets": {},
        });
        for (name, value) in change.as_object().unwrap() {
            json[name] = value.clone();
        }
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn each_part_of_a_query_is_checked() {
        let check = check();
        assert_eq!(check.mismatch(&item(json!({}))), None);
        for (change, mismatch) in [
            (
                json!({ "collection": "d" }),
                Mismatch::Member("collections"),
            ),
            (
                json!({ "geometry": { "type": "Point", "coordinates": [1.0, 2.0] } }),
                Mismatch::Member("intersects"),
            ),
            (
                json!({ "properties": { "datetime": "2021-02-02T00:00:00Z", "eo:cloud_cover": 1 } }),
                Mismatch::Member("datetime"),
            ),
            (
                json!({ "properties": { "datetime": "2021-02-01T23:59:59Z", "eo:cloud_cover": 30 } }),
                Mismatch::Condition(0),
            ),
            (
                json!({ "properties": { "datetime": "2021-01-02T00:00:00Z" } }),
                Mismatch::Condition(0),
            ),
        ] {
            assert_eq!(check.mismatch(&item(change)), Some(mismatch));
        }
    }

    #[test]
    fn an_interval_matches_by_any_of_its_days() {
        let change = json!({ "properties": {
            "datetime": null, "eo:cloud_cover": 1,
            "start_datetime": "2020-01-01T00:00:00Z", "end_datetime": "2021-01-01T10:00:00Z",
        }});
        assert_eq!(check().mismatch(&item(change)), None);
    }

    #[test]
    fn an_old_item_without_a_collection_is_kept() {
        let mut item = item(json!({}));
        item.collection = None;
        assert_eq!(check().mismatch(&item), None);
    }

    #[test]
    fn well_known_members_are_properties_too() {
        let item = item(json!({ "properties": {
            "datetime": "2021-01-15T00:00:00Z", "title": "t", "platform": "landsat-8",
        }}));
        assert_eq!(property(&item, "title"), Some(json!("t")));
        assert_eq!(property(&item, "platform"), Some(json!("landsat-8")));
        assert_eq!(property(&item, "collection"), Some(json!("c")));
        assert_eq!(property(&item, "absent"), None);
    }
}
