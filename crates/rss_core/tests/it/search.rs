//! From a query to items: every way a server pages, lies and fails, and catalogues without a server.

mod catalogue;
mod faults;
mod input;
mod paging;
mod recorded;
mod secrets;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{body::Body, extract::Request, http::Response};
use rss_core::{
    Cmp, Collection, DEA, ImageQueryBuilder, Intersects, QueryResult, Session, SessionBuilder,
    Source, date,
};
use rss_testbed::{Paging, Scenes, Service, Testbed};
use serde_json::{Value, json};

/// A session of two retries, with hardly a wait before them.
fn session() -> SessionBuilder {
    Session::builder()
        .retries(2)
        .backoff(Duration::from_millis(1))
}

/// A search for all of collection `c`, at an API that takes CQL2.
fn query(root: &str) -> ImageQueryBuilder {
    query_of(root, "c")
}

fn query_of(root: &str, collection: &str) -> ImageQueryBuilder {
    ImageQueryBuilder::new(
        Source::api(root).unwrap().like(&DEA),
        Collection::Id(collection.to_owned()),
        Intersects::everywhere(),
    )
    .session(session().build().unwrap())
}

/// An item of collection `c`.
fn item(id: &str) -> Value {
    json!({
        "type": "Feature", "stac_version": "1.0.0", "id": id, "collection": "c",
        "geometry": {"type": "Point", "coordinates": [150.5, -29.5]},
        "bbox": [150.5, -29.5, 150.5, -29.5],
        "properties": {"datetime": "2021-01-15T00:00:00Z", "eo:cloud_cover": 10},
        "links": [],
        "assets": {"red": {"href": format!("s3://bucket/{id}.tif"), "roles": ["data"]}},
    })
}

fn cloudy(id: &str, percent: u32) -> Value {
    let mut item = item(id);
    item["properties"]["eo:cloud_cover"] = json!(percent);
    item
}

/// A page of these items; `next` is the link to the next one, or null.
fn page(items: &[Value], next: &Value) -> Value {
    let links: Vec<_> = Some(next)
        .filter(|link| !link.is_null())
        .into_iter()
        .collect();
    json!({"type": "FeatureCollection", "features": items, "links": links})
}

fn ids(found: &QueryResult) -> Vec<&str> {
    found.items().items.iter().map(|item| &*item.id).collect()
}

/// A request that came to a [`Server`].
#[derive(Clone, Debug)]
struct Asked {
    method: String,
    path: String,
    /// The query string; empty if there is none.
    query: String,
    headers: http::HeaderMap,
    /// The body; null if it is no JSON.
    body: Value,
}

impl Asked {
    /// The value of a member of the query string.
    fn parameter(&self, name: &str) -> Option<&str> {
        let pairs = self
            .query
            .split('&')
            .filter_map(|pair| pair.split_once('='));
        pairs
            .filter(|pair| pair.0 == name)
            .map(|pair| pair.1)
            .next()
    }
}

/// What a [`Server`] answers.
struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Reply {
    fn status(status: u16, body: impl Into<String>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.into().into_bytes(),
        }
    }

    fn redirect(status: u16, to: impl Into<String>) -> Self {
        Self {
            headers: vec![("location", to.into())],
            ..Self::status(status, "")
        }
    }
}

impl From<Value> for Reply {
    fn from(body: Value) -> Self {
        Self {
            headers: vec![("content-type", "application/geo+json".to_owned())],
            ..Self::status(200, body.to_string())
        }
    }
}

/// A server on loopback that answers as its test says. It stops with the test's runtime.
struct Server {
    root: String,
    log: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    /// Starts it; `answer` is given each request, and the server's own root.
    async fn start<R: Into<Reply>>(
        answer: impl Fn(&Asked, &str) -> R + Clone + Send + Sync + 'static,
    ) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
            .await
            .unwrap();
        let root = format!("http://{}", listener.local_addr().unwrap());
        let log = Arc::new(Mutex::new(Vec::new()));
        let (own, noted) = (root.clone(), Arc::clone(&log));
        let handler = async move |request: Request| {
            let (parts, body) = request.into_parts();
            let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            let asked = Asked {
                method: parts.method.to_string(),
                path: parts.uri.path().to_owned(),
                query: parts.uri.query().unwrap_or_default().to_owned(),
                headers: parts.headers,
                body: serde_json::from_slice(&body).unwrap_or_default(),
            };
            noted.lock().unwrap().push(asked.clone());
            let reply: Reply = answer(&asked, &own).into();
            let mut response = Response::builder().status(reply.status);
            for (name, value) in reply.headers {
                response = response.header(name, value);
            }
            response.body(Body::from(reply.body)).unwrap()
        };
        let router = axum::Router::new().fallback(handler);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { root, log }
    }

    fn log(&self) -> Vec<Asked> {
        self.log.lock().unwrap().clone()
    }
}

/// The query that the project began with.
fn seed(bed: &Testbed, like: &Source) -> ImageQueryBuilder {
    let source = Source::api(&bed.stac_url()).unwrap().like(like);
    ImageQueryBuilder::new(source, Collection::Sentinel2, Intersects::scene("56jns"))
        .session(session().build().unwrap())
        .canonical_bands(["red", "nir"])
        .start_date(date(2021, 1, 1))
        .end_date(date(2021, 2, 1))
        .cloudcover((Cmp::Less, 30))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_seed_query_finds_its_four_scenes() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let found = seed(&bed, &DEA)
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap();
    let scenes: Vec<&str> = bed.scenes().iter().map(|scene| &*scene.id).collect();
    assert_eq!(ids(&found), scenes);
    assert_eq!(scenes.len(), 4);
    assert_eq!(found.bands(), ["nbart_red", "nbart_nir_1"]);
    for (item, scene) in found.items().items.iter().zip(bed.scenes()) {
        let assets = found.assets(item);
        let keys: Vec<&str> = assets.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, ["nbart_red", "nbart_nir_1"]);
        assert_eq!(assets[0].1.href, scene.item["assets"]["nbart_red"]["href"]);
    }
    let report = found.report();
    assert_eq!((report.requests, report.pages), (1, 1));
    assert_eq!((report.matched, report.returned), (Some(4), 4));
    assert_eq!(report.dropped_total(), 0);
    assert_eq!(report.filters_ignored, [""; 0]);
    assert!(report.complete);
    assert_eq!(bed.requests(Service::Stac).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_day_is_part_of_the_search() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    // Of 2021-02-01 there is one scene, late in the day, 64 % cloudy.
    let until = async |year, month, day| {
        let query = seed(&bed, &DEA)
            .end_date(date(year, month, day))
            .cloudcover((Cmp::Less, 30))
            .build()
            .unwrap();
        query.search_async().await.unwrap().len()
    };
    assert_eq!(until(2021, 1, 27).await, 3);
    assert_eq!(until(2021, 1, 28).await, 4);

    let source = Source::api(&bed.stac_url()).unwrap().like(&DEA);
    let day = ImageQueryBuilder::new(source, Collection::Sentinel2, Intersects::scene("56jns"))
        .session(session().build().unwrap())
        .start_date(date(2021, 2, 1))
        .end_date(date(2021, 2, 1))
        .build()
        .unwrap();
    let found = day.search_async().await.unwrap();
    assert_eq!(found.len(), 1);
    let at = found.items().items[0].properties.datetime.unwrap();
    assert_eq!(at.to_rfc3339(), "2021-02-01T23:56:39.027+00:00");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_seed_query_is_right_where_the_server_ignores_its_filter() {
    let bed = Testbed::builder()
        .scenes(Scenes::small())
        .paging(Paging::EarthSearch)
        .start()
        .unwrap();
    let found = seed(&bed, &DEA)
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap();
    let scenes: Vec<&str> = bed.scenes().iter().map(|scene| &*scene.id).collect();
    assert_eq!(ids(&found), scenes);
    // 2021-01-13, 01-23 and 02-01 are too cloudy; the tile beside touches the same area.
    let report = found.report();
    assert_eq!(report.dropped["eo:cloud_cover < 30"], 3);
    assert!(
        report
            .filters_ignored
            .contains(&"eo:cloud_cover < 30".to_owned()),
        "{report:?}"
    );
}
