//! The query builder, and the checked query.

use std::{fmt, time::Duration};

use serde_json::{Map, Value, json};
use url::Url;

use super::{
    check::{Check, SceneCheck},
    date::{Span, When, interval},
    filter::{Cmp, Condition},
    intersects::{Area, Intersects, Shape},
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::MgrsTile,
    location::redact,
    products::{Collection, Manifest, Naming, Scene, Source},
    session::Session,
    stac::Selection,
};

/// The default limit on pages: a search with more is taken to be endless.
const MAX_PAGES: usize = 1000;
/// The default deadline of a complete search.
const DEADLINE: Duration = Duration::from_secs(30 * 60);
const CLOUD_COVER: &str = "eo:cloud_cover";

/// Builds an [`ImageQuery`]: area, dates, bands, cloud cover and other properties.
///
/// The input is checked by [`build`](Self::build); the first request is sent by the search.
///
/// ```
/// use rss_core::{Cmp, Collection, DEA, ErrorKind, ImageQueryBuilder, Intersects, date};
///
/// let query = || {
///     ImageQueryBuilder::new(DEA, Collection::Sentinel2, Intersects::scene("56jns"))
///         .canonical_bands(["red", "nir"])
///         .start_date(date(2021, 1, 1))
///         .end_date(date(2021, 2, 1))
///         .cloudcover((Cmp::Less, 30))
/// };
/// assert_eq!(query().build()?.bands(), ["nbart_red", "nbart_nir_1"]);
///
/// let err = query().end_date(date(2020, 1, 1)).build().unwrap_err();
/// assert_eq!(err.kind(), ErrorKind::InvalidInput);
/// assert_eq!(err.to_string(), "start date 2021-01-01 is after end date 2020-01-01");
/// # Ok::<_, rss_core::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ImageQueryBuilder {
    source: Source,
    collection: Collection,
    intersects: Intersects,
    session: Option<Session>,
    manifest: Option<Manifest>,
    bands: Vec<String>,
    canonical_bands: Vec<String>,
    start: Option<When>,
    end: Option<When>,
    cloud: Vec<(Cmp, f64)>,
    platforms: Vec<String>,
    ids: Vec<String>,
    properties: Vec<(String, Cmp, Value)>,
    limit: Option<usize>,
    page_size: Option<u32>,
    max_pages: usize,
    deadline: Duration,
    keep_partial: bool,
}

impl ImageQueryBuilder {
    /// Creates a query for all items of a collection in an area.
    pub fn new(source: Source, collection: Collection, intersects: impl Into<Intersects>) -> Self {
        Self {
            source,
            collection,
            intersects: intersects.into(),
            session: None,
            manifest: None,
            bands: Vec::new(),
            canonical_bands: Vec::new(),
            start: None,
            end: None,
            cloud: Vec::new(),
            platforms: Vec::new(),
            ids: Vec::new(),
            properties: Vec::new(),
            limit: None,
            page_size: None,
            max_pages: MAX_PAGES,
            deadline: DEADLINE,
            keep_partial: false,
        }
    }

    /// Uses an existing session. Default: a new one from the environment.
    pub fn session(mut self, session: Session) -> Self {
        self.session = Some(session);
        self
    }

    /// Uses a custom manifest instead of the built-in one: its bands, scene rule and masks.
    ///
    /// The collection of the query is searched in any case: all that the manifest lists where it is the name of the
    /// manifest's product, else the one that is named. If the manifest does not list that one, the
    /// [report](crate::SearchReport) has a note.
    pub fn manifest(mut self, manifest: Manifest) -> Self {
        self.manifest = Some(manifest);
        self
    }

    /// Selects bands by their asset keys in the items. Default: all but QA bands. Of an asset with several bands all
    /// are taken; `key:2` (counted from 1) or `key:red` is one of them.
    ///
    /// With a manifest, an unknown key is an error; without one, keys are not checked.
    pub fn bands(mut self, keys: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.bands.extend(keys.into_iter().map(Into::into));
        self
    }

    /// Selects bands by their canonical names, such as `red` or `swir_1`; they come
    /// after those of [`bands`](Self::bands). Requires a manifest.
    pub fn canonical_bands(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.canonical_bands
            .extend(names.into_iter().map(Into::into));
        self
    }

    /// Sets the first day, month, year or instant, in UTC: a [`Date`](crate::Date), a type of `chrono`, or a text; see
    /// [`When`]. Default: no bound.
    pub fn start_date(mut self, start: impl Into<When>) -> Self {
        self.start = Some(start.into());
        self
    }

    /// Sets the last day, month, year or instant, in UTC, inclusive: `"2021-02"` ends with February. Default: no bound.
    pub fn end_date(mut self, end: impl Into<When>) -> Self {
        self.end = Some(end.into());
        self
    }

    /// Sets both bounds by an interval as of STAC APIs: `2021-01-01/2021-03-31`, `2021-01/..`, or one day, month, year or
    /// instant.
    ///
    /// ```
    /// use rss_core::{Collection, DEA, ImageQueryBuilder, Intersects};
    ///
    /// let query = || ImageQueryBuilder::new(DEA, Collection::Sentinel2, Intersects::scene("56jns"));
    /// query().datetime("2021-01/2021-03").build()?;
    /// query().start_date("2021").end_date("2021-02-01T10:00:00Z").build()?;
    /// assert!(query().datetime("last year").build().is_err());
    /// # Ok::<_, rss_core::Error>(())
    /// ```
    pub fn datetime(mut self, text: impl AsRef<str>) -> Self {
        (self.start, self.end) = interval(text.as_ref());
        self
    }

    /// Filters by cloud cover, in percent of the item. Several calls are combined with and. Default: no filter;
    /// with one, items that do not state their cloud cover are left out.
    pub fn cloudcover(mut self, (cmp, percent): (Cmp, impl Into<f64>)) -> Self {
        self.cloud.push((cmp, percent.into()));
        self
    }

    /// Filters by satellite, such as `landsat-8`; case does not matter. Several calls are combined with or.
    pub fn platform(mut self, platform: impl Into<String>) -> Self {
        self.platforms.push(platform.into());
        self
    }

    /// Filters by item ids.
    pub fn ids(mut self, ids: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.ids.extend(ids.into_iter().map(Into::into));
        self
    }

    /// Filters by any property of the items: a number or a text, or with [`Cmp::Eq`] true or false.
    ///
    /// ```
    /// use rss_core::{Cmp, Collection, ELEMENT84, ImageQueryBuilder, Intersects};
    ///
    /// let query = ImageQueryBuilder::new(
    ///     ELEMENT84,
    ///     Collection::Landsat,
    ///     Intersects::bbox(150.0, -30.0, 151.0, -29.0),
    /// )
    /// .property("landsat:collection_category", Cmp::Eq, "T1")
    /// .property("view:off_nadir", Cmp::Less, 5)
    /// .build()?;
    /// # Ok::<_, rss_core::Error>(())
    /// ```
    pub fn property(mut self, name: impl Into<String>, cmp: Cmp, value: impl Into<Value>) -> Self {
        self.properties.push((name.into(), cmp, value.into()));
        self
    }

    /// Sets the maximum number of items (at least 1). Default: all.
    pub fn limit(mut self, items: usize) -> Self {
        self.limit = Some(items);
        self
    }

    /// Sets the number of items per page, capped at the API's maximum. Default: a size that suits the API;
    /// the search reduces it if the server cannot return pages of that size.
    pub fn page_size(mut self, items: u32) -> Self {
        self.page_size = Some(items);
        self
    }

    /// Sets the maximum number of pages: some servers return pages without end. Default: 1000.
    pub fn max_pages(mut self, pages: usize) -> Self {
        self.max_pages = pages;
        self
    }

    /// Sets the deadline, counted from the first request. Default: 30 minutes.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Makes a search that fails after its first page return the items so far, with the reason in the
    /// [report](crate::SearchReport). Default: it is an error.
    pub fn keep_partial(mut self) -> Self {
        self.keep_partial = true;
        self
    }

    /// Checks the query. Makes no request.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for an invalid scene, bbox, geometry, date, band, cloud cover, property,
    /// id or limit; the message states what was expected. Those of [`Session::from_env`] if
    /// no session was given.
    pub fn build(self) -> Result<ImageQuery> {
        let (custom, note) = match &self.manifest {
            Some(own) => {
                let (own, note) = own.of_search(&self.source, &self.collection)?;
                (Some(own), note)
            }
            None => (None, None),
        };
        let builtin = || Manifest::builtin(&self.source, &self.collection);
        let manifest = custom.clone().or_else(builtin);
        let collections = match (&manifest, &self.collection) {
            (Some(manifest), _) => manifest.stac_collections.clone(),
            // A collection without a manifest is searched by its id.
            (None, Collection::Id(id)) if !id.is_empty() => vec![id.clone()],
            (None, collection) => {
                return Err(invalid(format!(
                    "{} has no collection `{collection}`; name it by its id in the API, or add a manifest",
                    redact(self.source.name())
                )));
            }
        };
        let selection = select(manifest.as_ref(), &self.bands, &self.canonical_bands)?;
        let span = Span::new(self.start.as_ref(), self.end.as_ref())?;
        let mut conditions = cloud_conditions(manifest.as_ref(), &self.cloud)?;
        // One collection may hold several satellites, of which the product is one.
        if let Some(platform) = manifest.as_ref().and_then(|one| one.platform.clone()) {
            conditions.push(platform_condition(&[platform]));
        }
        if !self.platforms.is_empty() {
            conditions.push(platform_condition(&self.platforms));
        }
        for (name, cmp, value) in self.properties {
            conditions.push(Condition::new(name, cmp, value));
        }
        let dialect = self.source.dialect();
        // An API whose ids are UUIDs does not accept the product names that other providers use as ids.
        let uuid =
            |id: &str| id.len() == 36 && id.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit());
        for id in &self.ids {
            if id.is_empty() || dialect.ids_are_uuids && !uuid(id) {
                return Err(invalid(format!(
                    "id `{}` is not a UUID, as ids of {} are",
                    id.escape_debug(),
                    redact(self.source.name())
                )));
            }
        }
        let (area, scenes) = match &self.intersects.0 {
            Shape::Everywhere => (Area::Everywhere, None),
            Shape::Bbox(edges) => (Area::of_bbox(*edges)?, None),
            Shape::GeoJson(text) => (Area::of_geojson(text)?, None),
            // The area narrows the search; `SceneCheck` then compares the scene of each item.
            Shape::Scenes(ids) => {
                let scenes = scenes(manifest.as_ref(), ids)?;
                conditions.extend(scenes.conditions);
                (scenes.area, Some(scenes.check))
            }
        };
        for condition in &conditions {
            condition.check()?;
        }
        for (name, value) in [
            ("limit", self.limit),
            ("page size", self.page_size.map(|n| n as usize)),
            ("page limit", Some(self.max_pages)),
        ] {
            if value == Some(0) {
                return Err(invalid(format!("{name} is 0, expected at least 1")));
            }
        }
        let url = Url::parse(self.source.url()).map_err(|err| {
            invalid(format!(
                "source `{}` is not a URL",
                redact(self.source.url())
            ))
            .with_source(err)
        })?;
        let page_size = self.page_size.or(dialect.page_size).map(|size| {
            let max = dialect.max_page_size.unwrap_or(u32::MAX);
            u64::from(size.min(max))
        });
        Ok(ImageQuery {
            // Created last, so that an invalid query is reported without reading the environment.
            session: match self.session {
                Some(session) => session,
                None => Session::from_env()?,
            },
            source: self.source,
            url,
            check: Check {
                collections,
                ids: self.ids,
                span,
                area,
                scenes,
                conditions,
            },
            selection,
            manifest: custom,
            notes: note.into_iter().collect(),
            limit: self.limit,
            page_size,
            max_pages: self.max_pages,
            deadline: self.deadline,
            keep_partial: self.keep_partial,
        })
    }
}

/// A checked query. It can be searched more than once.
#[derive(Clone)]
pub struct ImageQuery {
    pub(super) session: Session,
    pub(super) source: Source,
    pub(super) url: Url,
    pub(super) check: Check,
    pub(super) selection: Selection,
    /// The user's manifest, with the collections that are searched.
    pub(super) manifest: Option<Manifest>,
    /// Notes on the query, for the report.
    pub(super) notes: Vec<String>,
    pub(super) limit: Option<usize>,
    pub(super) page_size: Option<u64>,
    pub(super) max_pages: usize,
    pub(super) deadline: Duration,
    pub(super) keep_partial: bool,
}

impl fmt::Debug for ImageQuery {
    /// Leaves out the URL, whose query string may contain a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageQuery")
            .field("source", &self.source)
            .field("check", &self.check)
            .field("selection", &self.selection)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl ImageQuery {
    /// Returns the session that the search runs in.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the source.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Returns the ids of the collections that are searched.
    pub fn collections(&self) -> &[String] {
        &self.check.collections
    }

    /// Returns the keys of the selected assets; empty if there is no manifest and none was named:
    /// the assets are then selected per item.
    pub fn bands(&self) -> &[String] {
        self.selection.keys()
    }

    /// Returns the body of the first request, without the filters on properties.
    pub(super) fn body(&self) -> Map<String, Value> {
        let mut body = Map::new();
        body.insert("collections".to_owned(), json!(self.check.collections));
        if !self.check.ids.is_empty() {
            body.insert("ids".to_owned(), json!(self.check.ids));
        }
        if let Some(interval) = self.check.span.interval() {
            body.insert("datetime".to_owned(), interval.into());
        }
        self.check.area.add_to(&mut body);
        body
    }
}

fn select(manifest: Option<&Manifest>, keys: &[String], canonical: &[String]) -> Result<Selection> {
    let Some(manifest) = manifest else {
        if let Some(name) = canonical.first() {
            return Err(invalid(format!(
                "canonical name `{}` needs a manifest, and this collection has none; name bands by their asset keys",
                name.escape_debug()
            )));
        }
        return Ok(match keys {
            [] => Selection::Guess,
            keys => Selection::Named(unique(keys.iter().map(String::as_str))),
        });
    };
    if keys.is_empty() && canonical.is_empty() {
        let bands = manifest.default_bands();
        return Ok(Selection::Default(unique(
            bands.iter().map(|band| band.asset.as_str()),
        )));
    }
    let mut names = manifest.selected(keys, Naming::Asset)?;
    names.extend(manifest.selected(canonical, Naming::Canonical)?);
    Ok(Selection::Named(unique(names.iter().map(String::as_str))))
}

fn unique<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for name in names {
        if !found.iter().any(|one| one == name) {
            found.push(name.to_owned());
        }
    }
    found
}

fn cloud_conditions(manifest: Option<&Manifest>, cloud: &[(Cmp, f64)]) -> Result<Vec<Condition>> {
    cloud
        .iter()
        .map(|&(cmp, percent)| {
            if !(0.0..=100.0).contains(&percent) {
                return Err(invalid(format!(
                    "cloud cover is {percent}, expected 0 to 100 percent"
                )));
            }
            // Providers state cloud cover in different properties.
            let property = match manifest {
                None => CLOUD_COVER,
                Some(manifest) => manifest.cloud_cover.as_deref().ok_or_else(|| {
                    invalid(format!(
                        "items of {} {} do not state their cloud cover",
                        manifest.source, manifest.collection
                    ))
                })?,
            };
            // Integers are sent without a fraction, as most clients do.
            let value = match format!("{percent}").parse::<u8>() {
                Ok(whole) => json!(whole),
                Err(_) => json!(percent),
            };
            Ok(Condition::new(property, cmp, value))
        })
        .collect()
}

/// Returns the condition on `platform`, in the spellings that providers use: `sentinel-2a` and
/// `Sentinel-2A`. Servers compare text case-sensitively.
fn platform_condition(platforms: &[String]) -> Condition {
    let mut spellings = Vec::new();
    for platform in platforms {
        let lower = platform.to_lowercase();
        let upper = platform.to_uppercase();
        let mut title = String::new();
        for (n, part) in lower.split('-').enumerate() {
            if n > 0 {
                title.push('-');
            }
            // Letters after a digit are upper case in the title spelling: `Sentinel-2A`.
            let capital = part.starts_with(|c: char| c.is_ascii_digit());
            for (at, c) in part.chars().enumerate() {
                match capital || at == 0 {
                    true => title.extend(c.to_uppercase()),
                    false => title.push(c),
                }
            }
        }
        for spelling in [platform.clone(), lower, title, upper] {
            let spelling = Value::String(spelling);
            if !spellings.contains(&spelling) {
                spellings.push(spelling);
            }
        }
    }
    Condition::any_of("platform", spellings)
}

struct Scenes {
    area: Area,
    conditions: Vec<Condition>,
    check: SceneCheck,
}

/// Converts scene ids to an area and conditions: an MGRS tile to its footprint and its property, a WRS path
/// and row to properties alone.
fn scenes(manifest: Option<&Manifest>, ids: &[String]) -> Result<Scenes> {
    if ids.is_empty() {
        return Err(invalid("no scene was given".to_owned()));
    }
    let mut footprints = Vec::new();
    let mut scenes = Vec::new();
    // Each property, and its values in any of the scenes.
    let mut stated: Vec<(String, Vec<Value>)> = Vec::new();
    let rule = manifest.and_then(|manifest| manifest.scene.as_ref());
    for id in ids {
        let scene: Scene = id.parse()?;
        if let Scene::Mgrs(tile) = &scene {
            // This also checks the id: a well-formed tile id may not exist.
            footprints.extend(MgrsTile::parse(tile)?.footprint());
        }
        match rule {
            Some(rule) => {
                for (name, value) in rule.properties(&scene)? {
                    match stated.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, values)) if values.contains(&value) => {}
                        Some((_, values)) => values.push(value),
                        None => stated.push((name, vec![value])),
                    }
                }
            }
            // Without a rule the footprint selects the tile; `SceneCheck` compares the usual properties afterwards.
            None if matches!(scene, Scene::Mgrs(_)) => {}
            None => {
                return Err(invalid(format!(
                    "scene `{scene}` needs a manifest with the properties in which items state their path and row"
                )));
            }
        }
        scenes.push(scene);
    }
    Ok(Scenes {
        area: Area::of_polygons(::geo::MultiPolygon::new(footprints)),
        conditions: stated
            .into_iter()
            .map(|(name, values)| Condition::any_of(name, values))
            .collect(),
        check: SceneCheck {
            rule: rule.cloned(),
            scenes,
        },
    })
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::products::{DEA, ELEMENT84, PLANETARY_COMPUTER};

    fn seed() -> ImageQueryBuilder {
        ImageQueryBuilder::new(DEA, Collection::Sentinel2, Intersects::scene("56jns"))
    }

    fn error(builder: ImageQueryBuilder) -> String {
        let err = builder.build().unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
        err.to_string()
    }

    #[test]
    fn a_sentinel_2_scene_is_asked_by_its_footprint() {
        let body = seed()
            .start_date(super::super::date(2021, 1, 1))
            .end_date(super::super::date(2021, 2, 1))
            .build()
            .unwrap()
            .body();
        assert_eq!(
            body["collections"],
            json!(["ga_s2am_ard_3", "ga_s2bm_ard_3", "ga_s2cm_ard_3"])
        );
        assert_eq!(
            body["datetime"],
            "2021-01-01T00:00:00Z/2021-02-01T23:59:59.999Z"
        );
        assert_eq!(body["intersects"]["type"], "Polygon");
        assert!(!body.contains_key("bbox"));
    }

    #[test]
    fn a_landsat_scene_is_asked_by_its_properties() {
        let query = ImageQueryBuilder::new(
            ELEMENT84,
            Collection::Landsat,
            Intersects::scenes(["090084", "91/84"]),
        )
        .build()
        .unwrap();
        assert!(!query.body().contains_key("intersects"));
        let conditions: Vec<String> = query
            .check
            .conditions
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            conditions,
            [
                r#"landsat:wrs_path in ["090","091"]"#,
                r#"landsat:wrs_row = "084""#
            ]
        );
    }

    #[test]
    fn several_tiles_are_one_shape() {
        let query = ImageQueryBuilder::new(
            DEA,
            Collection::Sentinel2,
            Intersects::scenes(["56JNS", "01KAB"]),
        )
        .build()
        .unwrap();
        let shape = &query.body()["intersects"];
        assert_eq!(shape["type"], "MultiPolygon");
        assert_eq!(shape["coordinates"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn wrong_input_gives_one_clear_error() {
        assert!(error(seed().bands(["nbart_red", "nbart_rde"])).contains("nbart_rde"));
        let message = error(seed().canonical_bands(["grene", "nri"]));
        assert!(
            message.starts_with("bands grene, nri are not known"),
            "{message}"
        );
        assert_eq!(
            error(seed().cloudcover((Cmp::Less, 130))),
            "cloud cover is 130, expected 0 to 100 percent"
        );
        assert_eq!(
            error(seed().cloudcover((Cmp::Less, f64::NAN))),
            "cloud cover is NaN, expected 0 to 100 percent"
        );
        assert_eq!(error(seed().limit(0)), "limit is 0, expected at least 1");
        assert_eq!(
            error(seed().start_date(super::super::date(2021, 2, 30))),
            "date 2021-02-30 does not exist"
        );
        assert_eq!(
            error(seed().ids(["S2A_56JNS"])),
            "id `S2A_56JNS` is not a UUID, as ids of dea are"
        );
        assert!(error(seed().property("a", Cmp::Less, true)).contains("cannot be compared"));
        let at = |place| ImageQueryBuilder::new(DEA, Collection::Sentinel2, place);
        assert!(error(at(Intersects::bbox(10.0, 5.0, 11.0, 4.0))).contains("south"));
        assert!(error(at(Intersects::bbox(f64::NAN, 5.0, 11.0, 4.0))).contains("west"));
        assert!(error(at(Intersects::scene("56JNA"))).contains("does not exist in zone 56"));
        assert!(error(at(Intersects::scene("090084"))).contains("Sentinel-2 tile"));
        assert!(error(at(Intersects::scenes([""; 0]))).contains("no scene"));
        assert!(error(at(Intersects::geometry("{"))).contains("geometry is not valid"));
        let none = ImageQueryBuilder::new(DEA, Collection::Sentinel2C1, Intersects::everywhere());
        assert!(error(none).starts_with("dea has no collection `sentinel2-c1`"));
    }

    #[test]
    fn a_collection_without_a_manifest_takes_keys_as_given() {
        let query = |builder: fn(ImageQueryBuilder) -> ImageQueryBuilder| {
            let source = Source::api("https://example.org/stac").unwrap();
            let id = Collection::Id("cop-dem-glo-30".to_owned());
            builder(ImageQueryBuilder::new(source, id, Intersects::everywhere())).build()
        };
        assert_eq!(
            query(|b| b.bands(["data", "data"])).unwrap().bands(),
            ["data"]
        );
        assert_eq!(query(|b| b).unwrap().bands(), [""; 0]);
        let err = query(|b| b.canonical_bands(["red"])).unwrap_err();
        assert!(err.to_string().contains("needs a manifest"), "{err}");
        let err = query(|b| b.cloudcover((Cmp::Less, 10)).platform("x")).unwrap();
        assert_eq!(err.check.conditions.len(), 2);
    }

    #[test]
    fn a_platform_is_asked_in_each_providers_spelling() {
        let query = ImageQueryBuilder::new(
            PLANETARY_COMPUTER,
            Collection::Sentinel2,
            Intersects::scene("56JNS"),
        )
        .platform("sentinel-2a")
        .build()
        .unwrap();
        assert_eq!(
            query.check.conditions[0].to_string(),
            r#"platform in ["sentinel-2a","Sentinel-2A","SENTINEL-2A"]"#
        );
    }

    #[test]
    fn default_bands_leave_quality_out() {
        let query = seed().build().unwrap();
        assert!(query.bands().contains(&"nbart_red".to_owned()));
        assert!(!query.bands().contains(&"oa_fmask".to_owned()));
    }
}
