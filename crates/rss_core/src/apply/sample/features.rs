//! Points and polygons of GeoJSON: their ids, names and coordinates.

use std::collections::HashSet;

use ::geo::{LineString, Polygon};
use geojson::{Feature, GeoJson, GeometryValue, JsonObject, Position, feature::Id};
use serde_json::Value;

use crate::{
    error::{Error, ErrorKind, Result},
    geo::{Crs, is_degrees},
};

/// The CRS of GeoJSON: longitude, then latitude, of WGS 84.
pub(super) const DEGREES: Crs = Crs::Epsg(4326);

/// Options of reading GeoJSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GeoJsonOptions {
    /// The CRS of the coordinates, x then y; none is that of the text's member `crs` (GeoJSON 2008), else longitude and
    /// latitude of WGS 84.
    pub crs: Option<Crs>,
    /// The property that holds the features' names, in addition to their ids; names need not be unique.
    pub name: Option<String>,
}

impl GeoJsonOptions {
    /// Returns the defaults: degrees, no names.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the CRS of the coordinates.
    #[must_use]
    pub fn with_crs(mut self, crs: Crs) -> Self {
        self.crs = Some(crs);
        self
    }

    /// Sets the property that holds the features' names.
    #[must_use]
    pub fn with_name(mut self, property: impl Into<String>) -> Self {
        self.name = Some(property.into());
        self
    }
}

/// A point or a zone, by name.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Named {
    /// The feature's id, or its number, counted from 0. The points of a MultiPoint share it.
    pub id: String,
    /// The value of the property that holds names.
    pub name: Option<String>,
    /// The coordinates of a point, x then y, as given; none for a zone.
    pub place: Option<[f64; 2]>,
}

/// One feature.
pub(super) struct Read {
    pub(super) id: String,
    pub(super) name: Option<String>,
    pub(super) geometry: GeometryValue,
}

/// Reads the features of a text, and the CRS of their coordinates.
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] if the text is not GeoJSON, has no features, a feature without a geometry, two with the
/// same id, none with the property that holds names, or a CRS without an EPSG code.
pub(super) fn read(text: &str, options: &GeoJsonOptions) -> Result<(Vec<Read>, Crs)> {
    // Some programs write a byte order mark first.
    let text = text.trim_start_matches('\u{feff}');
    let parsed: GeoJson = text.parse().map_err(|err: geojson::Error| {
        wrong("not GeoJSON: expected a FeatureCollection, a Feature or a geometry").with_source(err)
    })?;
    let (features, members) = match parsed {
        GeoJson::FeatureCollection(all) => (all.features, all.foreign_members),
        GeoJson::Feature(mut one) => {
            let members = one.foreign_members.take();
            (vec![one], members)
        }
        GeoJson::Geometry(mut geometry) => {
            let members = geometry.foreign_members.take();
            (vec![Feature::from(geometry)], members)
        }
    };
    let crs = match &options.crs {
        Some(crs) => crs.clone(),
        None => named_crs(members.as_ref())?.unwrap_or(DEGREES),
    };
    if features.is_empty() {
        return Err(wrong("GeoJSON without features"));
    }
    let mut ids = HashSet::new();
    let mut found = Vec::with_capacity(features.len());
    for (number, feature) in features.into_iter().enumerate() {
        let id = match feature.id {
            Some(Id::String(id)) => id,
            Some(Id::Number(id)) => id.to_string(),
            None => number.to_string(),
        };
        if !ids.insert(id.clone()) {
            let message = format!("two features have the id `{}`", id.escape_debug());
            return Err(wrong(message));
        }
        let geometry = feature
            .geometry
            .ok_or_else(|| named(&id, "has no geometry"))?;
        let said = options.name.as_ref().zip(feature.properties.as_ref());
        let name = said.and_then(|(name, properties)| text_of(properties.get(name)?));
        found.push(Read {
            id,
            name,
            geometry: geometry.value,
        });
    }
    match &options.name {
        Some(name) if found.iter().all(|one| one.name.is_none()) => {
            let message = format!("no feature has the property `{}`", name.escape_debug());
            Err(wrong(message))
        }
        _ => Ok((found, crs)),
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// Returns the [named CRS](https://geojson.org/geojson-spec.html#named-crs) of GeoJSON 2008. RFC 7946 removed it, but
/// GDAL and others still write it.
fn named_crs(members: Option<&JsonObject>) -> Result<Option<Crs>> {
    let said = match members.and_then(|members| members.get("crs")) {
        None | Some(Value::Null) => return Ok(None),
        Some(said) => said,
    };
    let name = said.pointer("/properties/name").and_then(Value::as_str);
    let upper = name.unwrap_or_default().to_ascii_uppercase();
    let code = upper.rsplit(':').next().filter(|_| upper.contains("EPSG"));
    match code.and_then(|code| code.parse().ok()) {
        Some(code) => Ok(Some(Crs::Epsg(code))),
        None if upper.ends_with("CRS84") => Ok(Some(DEGREES)),
        None => {
            let shown: String = said.to_string().chars().take(80).collect();
            let message = format!(
                "crs {}: expected the name of an EPSG code",
                shown.escape_debug()
            );
            Err(wrong(message))
        }
    }
}

/// Returns the coordinates of a position, x then y.
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] naming the feature, if it has fewer than two numbers, or is not valid in degrees.
pub(super) fn place(id: &str, crs: &Crs, position: &Position) -> Result<[f64; 2]> {
    match *position.as_slice() {
        [x, y, ..] => checked(id, crs, [x, y]),
        _ => Err(named(id, "has a point without two coordinates")),
    }
}

/// Checks that coordinates are finite, and within the range of degrees if they are degrees.
pub(super) fn checked(id: &str, crs: &Crs, [x, y]: [f64; 2]) -> Result<[f64; 2]> {
    if !(x.is_finite() && y.is_finite()) {
        return Err(named(
            id,
            &format!("has a point at {x},{y}, expected finite coordinates"),
        ));
    }
    // Longitudes from -360 to 360 are accepted: those of data across the antimeridian may be unwrapped.
    if is_degrees(crs) && !((-360.0..=360.0).contains(&x) && (-90.0..=90.0).contains(&y)) {
        let what = format!(
            "has a point at {x},{y}, which is not on the globe; expected degrees, longitude first, or the CRS \
             of the coordinates"
        );
        return Err(named(id, &what));
    }
    Ok([x, y])
}

/// Returns a polygon from its rings.
///
/// # Errors
///
/// As of [`place`]; for a ring of less than three points.
pub(super) fn polygon(id: &str, crs: &Crs, rings: &[Vec<Position>]) -> Result<Polygon<f64>> {
    let mut made = rings.iter().map(|ring| {
        let points = ring.iter().map(|position| place(id, crs, position));
        let line: LineString<f64> = points.collect::<Result<Vec<_>>>()?.into_iter().collect();
        // RFC 7946 requires closed rings; open ones are common, and mean the same.
        let points = line.0.len() - usize::from(line.is_closed() && line.0.len() > 1);
        match points < 3 {
            true => Err(named(id, "has a ring of less than three points")),
            false => Ok(line),
        }
    });
    let outer = made
        .next()
        .ok_or_else(|| named(id, "has a polygon without rings"))??;
    Ok(Polygon::new(outer, made.collect::<Result<_>>()?))
}

pub(super) fn named(id: &str, what: &str) -> Error {
    wrong(format!("feature {} {what}", id.escape_debug()))
}

fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::apply::sample::{Points, Zones};

    fn points(json: &Value) -> Result<Points> {
        Points::from_geojson(&json.to_string(), &GeoJsonOptions::new())
    }

    fn zones(json: &Value) -> Result<Zones> {
        Zones::from_geojson(&json.to_string(), &GeoJsonOptions::new())
    }

    fn point(id: &Value, coordinates: &Value) -> Value {
        json!({"type": "Feature", "id": id, "properties": {"crop": "wheat", "year": 2021, "gone": null},
            "geometry": {"type": "Point", "coordinates": coordinates}})
    }

    #[test]
    fn a_feature_is_called_by_its_id_or_its_number() {
        let all = json!({"type": "FeatureCollection", "features": [
            point(&json!("plot"), &json!([153.0, -25.0, 12.5])),
            point(&json!(17), &json!([153.1, -25.0])),
            {"type": "Feature", "properties": null,
                "geometry": {"type": "MultiPoint", "coordinates": [[1.0, 2.0], [3.0, 4.0]]}},
        ]});
        let found = points(&all).unwrap();
        let ids: Vec<&str> = found.named().iter().map(|one| one.id.as_str()).collect();
        assert_eq!(ids, ["plot", "17", "2", "2"]);
        assert_eq!(found.named()[3].place, Some([3.0, 4.0]));
        assert_eq!(*found.crs(), DEGREES);
        for (property, expected) in [("crop", "wheat"), ("year", "2021")] {
            let options = GeoJsonOptions::new().with_name(property);
            let found = Points::from_geojson(&all.to_string(), &options).unwrap();
            assert_eq!(found.named()[0].name.as_deref(), Some(expected));
            assert_eq!(found.named()[2].name, None);
        }
        for property in ["gone", "nothing"] {
            let options = GeoJsonOptions::new().with_name(property);
            let err = Points::from_geojson(&all.to_string(), &options).unwrap_err();
            assert_eq!(
                err.message(),
                format!("no feature has the property `{property}`")
            );
        }
        // A bare geometry.
        let alone = points(&json!({"type": "Point", "coordinates": [1.0, 2.0]})).unwrap();
        assert_eq!(alone.named()[0].id, "0");
    }

    #[test]
    fn the_crs_is_the_named_one() {
        let named = |name: &str| {
            json!({"type": "FeatureCollection", "features": [point(&json!(1), &json!([10.0, 20.0]))],
                "crs": {"type": "name", "properties": {"name": name}}})
        };
        for (name, code) in [
            ("urn:ogc:def:crs:EPSG::32756", 32756),
            ("EPSG:3577", 3577),
            ("urn:ogc:def:crs:OGC:1.3:CRS84", 4326),
        ] {
            assert_eq!(*points(&named(name)).unwrap().crs(), Crs::Epsg(code));
        }
        let chosen = GeoJsonOptions::new().with_crs(Crs::Epsg(3857));
        let text = named("EPSG:3577").to_string();
        assert_eq!(
            *Points::from_geojson(&text, &chosen).unwrap().crs(),
            Crs::Epsg(3857)
        );
        for name in ["EPSG:x", "Albers", ""] {
            let err = points(&named(name)).unwrap_err();
            assert!(
                err.message().ends_with("expected the name of an EPSG code"),
                "{err}"
            );
        }
        let mut null = named("");
        null["crs"] = Value::Null;
        assert_eq!(*points(&null).unwrap().crs(), DEGREES);
    }

    #[test]
    fn what_is_no_point_is_refused_by_name() {
        let one = |coordinates| point(&json!("a"), &coordinates);
        for (json, said) in [
            (json!(7), "not GeoJSON"),
            (json!({"type": "Polygon"}), "not GeoJSON"),
            (
                json!({"type": "FeatureCollection", "features": []}),
                "GeoJSON without features",
            ),
            (
                one(json!([-25.0, 153.0])),
                "feature a has a point at -25,153, which is not on the globe",
            ),
            (
                one(json!([1e9, 2.0])),
                "feature a has a point at 1000000000,2, which is not on",
            ),
            (
                json!({"type": "MultiPoint", "coordinates": []}),
                "GeoJSON without points",
            ),
            (
                json!({"type": "Feature", "id": "b", "properties": {}, "geometry": null}),
                "feature b has no geometry",
            ),
            (
                json!({"type": "LineString", "coordinates": [[0.0, 0.0], [1.0, 1.0]]}),
                "feature 0 is a LineString, expected a Point or MultiPoint",
            ),
            (
                json!({"type": "FeatureCollection", "features": [
                    point(&json!(1), &json!([0.0, 0.0])), point(&json!("1"), &json!([1.0, 0.0]))]}),
                "two features have the id `1`",
            ),
        ] {
            let err = points(&json).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::InvalidInput);
            assert!(err.message().starts_with(said), "{err}");
        }
        let nowhere = Points::new([[f64::NAN, 0.0]], Crs::Epsg(32756)).unwrap_err();
        assert!(
            nowhere.message().ends_with("expected finite coordinates"),
            "{nowhere}"
        );
        assert!(Points::new([[0.0; 2]; 0], DEGREES).is_err());
    }

    #[test]
    fn what_is_no_zone_is_refused_by_name() {
        for (kind, coordinates, said) in [
            (
                "Point",
                json!([0.0, 0.0]),
                "feature 0 is a Point, expected a Polygon or MultiPolygon",
            ),
            (
                "Polygon",
                json!([]),
                "feature 0 has a polygon without rings",
            ),
            (
                "Polygon",
                json!([[[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]]),
                "feature 0 has a ring of less",
            ),
            (
                "Polygon",
                json!([[[0.0, 0.0], [1.0, 99.0], [0.0, 1.0]]]),
                "feature 0 has a point at 1,99",
            ),
            ("MultiPolygon", json!([]), "feature 0 has no polygon"),
        ] {
            let err = zones(&json!({"type": kind, "coordinates": coordinates})).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::InvalidInput);
            assert!(err.message().starts_with(said), "{err}");
        }
        // A ring that is not closed is closed.
        let open =
            json!({"type": "Polygon", "coordinates": [[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]]});
        assert_eq!(zones(&open).unwrap().named().len(), 1);
    }

    #[test]
    fn a_zone_across_the_antimeridian_has_a_small_box() {
        let fiji = json!({"type": "Polygon", "coordinates":
            [[[177.0, -19.0], [-178.0, -19.0], [-178.0, -16.0], [177.0, -16.0], [177.0, -19.0]]]});
        let [west, _, east, _] = zones(&fiji).unwrap().bbox().unwrap().edges();
        assert!(
            (176.9..177.0).contains(&west) && (-178.0..-177.9).contains(&east),
            "{west} {east}"
        );
    }
}
