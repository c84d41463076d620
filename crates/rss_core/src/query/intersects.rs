//! The area of a query: scenes, a bbox or a geometry, and the test whether an item intersects it.

use ::geo::{CoordsIter, Distance, Euclidean, Geometry, Intersects as _, MultiPolygon, Polygon};
use geojson::GeoJson;
use serde_json::{Map, Value, json};

use crate::{
    error::{Error, ErrorKind, Result},
    geo::{Bbox, antimeridian},
};

/// The tolerance of intersections in degrees, about 0.1 m: servers and clients round
/// differently.
const TOUCH_DEGREES: f64 = 1e-6;

/// The area of a search. It is checked by [`ImageQueryBuilder::build`].
///
/// It is also made of a [`Bbox`] and of the types of [`geo_types`](crate::geo_types), in degrees: a `Rect` is a bounding box,
/// all others are geometries.
///
/// ```
/// use rss_core::{Collection, DEA, ImageQueryBuilder, geo_types::Rect};
///
/// let brisbane = Rect::new((152.9, -27.6), (153.2, -27.3));
/// ImageQueryBuilder::new(DEA, Collection::Sentinel2, brisbane).build()?;
/// # Ok::<_, rss_core::Error>(())
/// ```
///
/// [`ImageQueryBuilder::build`]: crate::ImageQueryBuilder::build
#[derive(Clone, Debug, PartialEq)]
pub struct Intersects(pub(super) Shape);

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    Everywhere,
    Scenes(Vec<String>),
    Bbox([f64; 4]),
    GeoJson(String),
}

impl Intersects {
    /// One scene: a Sentinel-2 tile such as `56jns`, or a Landsat path and row such as
    /// `090084` or `90/84`. Case does not matter.
    pub fn scene(id: impl Into<String>) -> Self {
        Self::scenes([id])
    }

    /// Several scenes; items of any of them match.
    pub fn scenes(ids: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self(Shape::Scenes(ids.into_iter().map(Into::into).collect()))
    }

    /// A bounding box in degrees. If `west` is larger than `east` it crosses the antimeridian.
    pub fn bbox(west: f64, south: f64, east: f64, north: f64) -> Self {
        Self(Shape::Bbox([west, south, east, north]))
    }

    /// A GeoJSON geometry in degrees: a geometry, a Feature, or a FeatureCollection of
    /// one Feature, as text or as a type that is displayed as such, e.g. `geojson::Geometry`.
    ///
    /// A side longer than 180 degrees is taken to cross the antimeridian, and longitudes beyond
    /// 180 are accepted; the geometry that is sent is split there.
    ///
    /// ```
    /// use rss_core::Intersects;
    ///
    /// let point = Intersects::geometry(r#"{"type": "Point", "coordinates": [153.0, -27.5]}"#);
    /// ```
    pub fn geometry(geojson: impl ToString) -> Self {
        Self(Shape::GeoJson(geojson.to_string()))
    }

    /// The whole Earth. Combine it with dates or a limit: catalogues hold millions of
    /// items.
    pub fn everywhere() -> Self {
        Self(Shape::Everywhere)
    }
}

impl From<Bbox> for Intersects {
    fn from(bbox: Bbox) -> Self {
        Self(Shape::Bbox(bbox.edges()))
    }
}

impl From<::geo::Rect<f64>> for Intersects {
    fn from(rect: ::geo::Rect<f64>) -> Self {
        let (min, max) = (rect.min(), rect.max());
        Self(Shape::Bbox([min.x, min.y, max.x, max.y]))
    }
}

/// As [`Intersects::geometry`] of its GeoJSON.
macro_rules! of_geo_types {
    ($($shape:ty),+) => {$(
        impl From<$shape> for Intersects {
            fn from(shape: $shape) -> Self {
                Self::geometry(geojson::Geometry::from(&shape))
            }
        }
    )+};
}

of_geo_types!(
    Geometry<f64>,
    ::geo::Point<f64>,
    ::geo::MultiPoint<f64>,
    ::geo::LineString<f64>,
    ::geo::MultiLineString<f64>,
    Polygon<f64>,
    MultiPolygon<f64>
);

/// A checked area.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Area {
    Everywhere,
    /// A bbox that does not cross the antimeridian.
    Box(Bbox),
    /// Any geometry, within longitudes -180 to 180.
    Shape(Geometry<f64>),
}

impl Area {
    /// Checks a bbox, and splits it if it crosses the antimeridian.
    pub(super) fn of_bbox([west, south, east, north]: [f64; 4]) -> Result<Self> {
        let bbox = Bbox::new(west, south, east, north)?;
        if !bbox.crosses_antimeridian() {
            return Ok(Self::Box(bbox));
        }
        Ok(Self::Shape(Geometry::MultiPolygon(polygons(&bbox))))
    }

    pub(super) fn of_geojson(text: &str) -> Result<Self> {
        let invalid = |message: String| Error::new(ErrorKind::InvalidInput, message);
        let expected = "expected a GeoJSON geometry, Feature or FeatureCollection of one Feature";
        let parsed: GeoJson = text.parse().map_err(|err: geojson::Error| {
            invalid(format!("geometry is not valid: {expected}")).with_source(err)
        })?;
        let geometry = match parsed {
            GeoJson::Geometry(geometry) => Some(geometry),
            GeoJson::Feature(feature) => feature.geometry,
            GeoJson::FeatureCollection(mut features) if features.features.len() == 1 => {
                features.features.pop().and_then(|one| one.geometry)
            }
            GeoJson::FeatureCollection(features) => {
                let count = features.features.len();
                return Err(invalid(format!(
                    "geometry has {count} features: {expected}"
                )));
            }
        }
        .ok_or_else(|| invalid(format!("geometry is null: {expected}")))?;
        let shape = of_geometry(&geometry)
            .ok_or_else(|| invalid(format!("geometry has too few points or rings: {expected}")))?;
        check_range(&shape).map_err(invalid)?;
        Ok(Self::Shape(shape))
    }

    pub(super) fn of_polygons(polygons: MultiPolygon<f64>) -> Self {
        let mut parts = polygons.0;
        match parts.pop() {
            Some(only) if parts.is_empty() => Self::Shape(Geometry::Polygon(only)),
            Some(last) => {
                parts.push(last);
                Self::Shape(Geometry::MultiPolygon(MultiPolygon::new(parts)))
            }
            // Landsat paths and rows have no footprint here: they are found by properties alone.
            None => Self::Everywhere,
        }
    }

    /// Adds `bbox` or `intersects` to a search body.
    pub(super) fn add_to(&self, body: &mut Map<String, Value>) {
        match self {
            Self::Everywhere => {}
            Self::Box(bbox) => {
                body.insert("bbox".to_owned(), json!(bbox.edges()));
            }
            Self::Shape(shape) => {
                let geometry = geojson::Geometry::from(shape);
                if let Ok(value) = serde_json::to_value(&geometry) {
                    body.insert("intersects".to_owned(), value);
                }
            }
        }
    }

    /// Returns true if an item intersects the area, or has no geometry and no bbox.
    pub(super) fn accepts(&self, item: &stac::Item) -> bool {
        let own = match self {
            Self::Everywhere => return true,
            Self::Box(bbox) => Geometry::MultiPolygon(polygons(bbox)),
            Self::Shape(shape) => shape.clone(),
        };
        // A side longer than 180 degrees is ambiguous: it belongs to a global product, or crosses the antimeridian.
        // The item matches under either reading.
        let literal = item
            .geometry
            .as_ref()
            .and_then(|geometry| Geometry::<f64>::try_from(geometry).ok())
            .filter(|shape| shape.coords_iter().next().is_some());
        let shapes = match (literal, item.geometry.as_ref().and_then(of_geometry)) {
            (Some(literal), Some(cut)) if literal != cut => vec![literal, cut],
            (_, Some(shape)) | (Some(shape), None) => vec![shape],
            (None, None) => match shape_of_bbox(item) {
                Some(shape) => vec![shape],
                None => return true,
            },
        };
        shapes
            .iter()
            .any(|shape| own.intersects(shape) || Euclidean.distance(&own, shape) < TOUCH_DEGREES)
    }
}

/// Returns the geometry of an item's bbox.
fn shape_of_bbox(item: &stac::Item) -> Option<Geometry<f64>> {
    let [west, south, east, north] = match item.bbox? {
        stac::Bbox::TwoDimensional(edges) => edges,
        stac::Bbox::ThreeDimensional([west, south, _, east, north, _]) => {
            [west, south, east, north]
        }
    };
    let bbox = Bbox::new(west, south, east, north).ok()?;
    Some(Geometry::MultiPolygon(polygons(&bbox)))
}

/// Returns a GeoJSON geometry within longitudes -180 to 180; none if it has no point or
/// a polygon has fewer points than a triangle.
fn of_geometry(geometry: &geojson::Geometry) -> Option<Geometry<f64>> {
    let shape = Geometry::<f64>::try_from(geometry).ok()?;
    Some(match shape {
        Geometry::Polygon(polygon) => {
            let polygons = MultiPolygon::new(vec![polygon]);
            match Area::of_polygons(cut(&polygons)?) {
                Area::Shape(shape) => shape,
                _ => return None,
            }
        }
        Geometry::MultiPolygon(polygons) => Geometry::MultiPolygon(cut(&polygons)?),
        other => {
            other.coords_iter().next()?;
            other
        }
    })
}

fn cut(polygons: &MultiPolygon<f64>) -> Option<MultiPolygon<f64>> {
    // The closed ring of a triangle has four points.
    let whole = |polygon: &Polygon<f64>| polygon.exterior().0.len() >= 4;
    if polygons.0.is_empty() || !polygons.iter().all(whole) {
        return None;
    }
    Some(antimeridian::split(&antimeridian::unwrap(polygons)))
}

fn polygons(bbox: &Bbox) -> MultiPolygon<f64> {
    bbox.split()
        .iter()
        .map(|part| {
            let [west, south, east, north] = part.edges();
            ::geo::Rect::new((west, south), (east, north)).to_polygon()
        })
        .collect()
}

fn check_range(shape: &Geometry<f64>) -> Result<(), String> {
    for coord in shape.coords_iter() {
        if !(-180.0..=180.0).contains(&coord.x) || !(-90.0..=90.0).contains(&coord.y) {
            return Err(format!(
                "geometry has a point at {}, {}; expected longitude -180 to 180, then latitude -90 to 90",
                coord.x, coord.y
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(json: Value) -> stac::Item {
        let mut item = stac::Item::new("x");
        item.geometry = serde_json::from_value(json).ok();
        item
    }

    #[test]
    fn a_box_across_the_antimeridian_is_sent_as_two_polygons() {
        let area = Area::of_bbox([177.0, -19.0, -178.0, -16.0]).unwrap();
        let mut body = Map::new();
        area.add_to(&mut body);
        assert_eq!(body["intersects"]["type"], "MultiPolygon");
        assert_eq!(
            body["intersects"]["coordinates"].as_array().unwrap().len(),
            2
        );
        let at = |lon: f64| item(json!({ "type": "Point", "coordinates": [lon, -17.0] }));
        for (lon, inside) in [(178.0, true), (-179.0, true), (0.0, false), (176.0, false)] {
            assert_eq!(area.accepts(&at(lon)), inside, "{lon}");
        }
    }

    #[test]
    fn a_box_is_sent_as_exactly_four_numbers() {
        let mut body = Map::new();
        Area::of_bbox([150.0, -30.0, 151.0, -29.0])
            .unwrap()
            .add_to(&mut body);
        assert_eq!(
            Value::Object(body),
            json!({ "bbox": [150.0, -30.0, 151.0, -29.0] })
        );
    }

    #[test]
    fn an_item_drawn_across_the_antimeridian_lies_on_both_sides() {
        let across = json!({ "type": "Polygon", "coordinates": [[
            [179.0, -18.0], [-179.0, -18.0], [-179.0, -17.0], [179.0, -17.0], [179.0, -18.0],
        ]]});
        let fiji = Area::of_bbox([178.5, -17.5, 179.5, -17.0]).unwrap();
        assert!(fiji.accepts(&item(across.clone())));
        let area = Area::of_geojson(&across.to_string()).unwrap();
        assert!(area.accepts(&item(
            json!({ "type": "Point", "coordinates": [-179.5, -17.5] })
        )));
        assert!(!area.accepts(&item(
            json!({ "type": "Point", "coordinates": [0.0, -17.5] })
        )));
    }

    #[test]
    fn shapes_of_geo_types_are_areas() {
        let rect = ::geo::Rect::new((150.0, -30.0), (151.0, -29.0));
        let sent = |area: Intersects| {
            let area = match &area.0 {
                Shape::Bbox(edges) => Area::of_bbox(*edges),
                Shape::GeoJson(text) => Area::of_geojson(text),
                _ => panic!("{area:?}"),
            };
            let mut body = Map::new();
            area.unwrap().add_to(&mut body);
            Value::Object(body)
        };
        assert_eq!(
            sent(rect.into()),
            json!({ "bbox": [150.0, -30.0, 151.0, -29.0] })
        );
        for area in [
            Intersects::from(rect.to_polygon()),
            Geometry::from(rect.to_polygon()).into(),
            Geometry::from(rect).into(),
        ] {
            let sent = sent(area);
            assert_eq!(sent["intersects"]["type"], "Polygon");
            assert_eq!(
                sent["intersects"]["coordinates"][0]
                    .as_array()
                    .unwrap()
                    .len(),
                5
            );
        }
        let several = MultiPolygon::new(vec![rect.to_polygon()]);
        assert_eq!(sent(several.into())["intersects"]["type"], "MultiPolygon");
        let point = sent(::geo::Point::new(150.0, -30.0).into());
        assert_eq!(
            point["intersects"],
            json!({"type": "Point", "coordinates": [150.0, -30.0]})
        );
    }

    #[test]
    fn an_item_without_a_geometry_is_judged_by_its_box() {
        let area = Area::of_bbox([150.0, -30.0, 151.0, -29.0]).unwrap();
        let mut item = stac::Item::new("x");
        assert!(area.accepts(&item));
        item.bbox = Some(stac::Bbox::new(0.0, 0.0, 1.0, 1.0));
        assert!(!area.accepts(&item));
        item.bbox = Some(stac::Bbox::ThreeDimensional([
            150.5, -30.0, 0.0, 152.0, -29.0, 9.0,
        ]));
        assert!(area.accepts(&item));
    }

    #[test]
    fn features_are_taken_for_their_geometry() {
        let point = json!({ "type": "Point", "coordinates": [153.0, -27.5] });
        let feature = json!({ "type": "Feature", "properties": {}, "geometry": point });
        let collection = json!({ "type": "FeatureCollection", "features": [feature] });
        let expected = Area::of_geojson(&point.to_string()).unwrap();
        for text in [feature.to_string(), collection.to_string()] {
            assert_eq!(Area::of_geojson(&text).unwrap(), expected);
        }
    }

    #[test]
    fn a_wrong_geometry_says_what_is_expected() {
        for (text, message) in [
            ("", "geometry is not valid: expected a GeoJSON"),
            ("POINT (1 2)", "geometry is not valid: expected a GeoJSON"),
            (
                r#"{"type": "Polygon", "coordinates": []}"#,
                "geometry has too few points or rings",
            ),
            (
                r#"{"type": "Polygon", "coordinates": [[[0,0],[1,1]]]}"#,
                "geometry has too few points or rings",
            ),
            (
                r#"{"type": "Point", "coordinates": [-27.5, 153.0]}"#,
                "geometry has a point at -27.5, 153; expected longitude",
            ),
            (
                r#"{"type": "Feature", "properties": {}, "geometry": null}"#,
                "geometry is null",
            ),
            (
                r#"{"type": "FeatureCollection", "features": []}"#,
                "geometry has 0 features",
            ),
        ] {
            let err = Area::of_geojson(text).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::InvalidInput);
            assert!(err.to_string().starts_with(message), "{text}: {err}");
        }
    }
}
