//! The search: every way of paging, every fault of a server, and queries that cannot be.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    body::{Body, to_bytes},
    extract::Request,
    http::{Response, StatusCode},
};
use rss_core::{
    Cmp, Collection, DEA, ELEMENT84, ErrorKind, ImageQuery, ImageQueryBuilder, Intersects,
    PLANETARY_COMPUTER, QueryResult, Session, Source, Trust, date,
};
use rss_testbed::{Fault, Paging, Rule, Scenes, Service, Testbed};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// A request that a [`Server`] got.
#[derive(Clone, Debug)]
struct Asked {
    method: String,
    path: String,
    body: Value,
}

/// What a server answers: status, extra headers, body.
type Answer = (u16, Vec<(&'static str, String)>, String);

/// An HTTP server that answers as it is told, and keeps what it was asked.
struct Server {
    url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    _runtime: Runtime,
}

impl Server {
    /// Starts a server. `answer` gets the request, its number from 0, and the server's own address.
    fn start(answer: impl Fn(&Asked, usize, &str) -> Answer + Send + Sync + 'static) -> Self {
        let runtime = Runtime::new().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (log, root, answer) = (Arc::clone(&asked), url.clone(), Arc::new(answer));
        let handle = move |request: Request| {
            let (log, root, answer) = (Arc::clone(&log), root.clone(), Arc::clone(&answer));
            async move {
                let (parts, body) = request.into_parts();
                let bytes = to_bytes(body, usize::MAX).await.unwrap();
                let one = Asked {
                    method: parts.method.to_string(),
                    path: parts.uri.to_string(),
                    body: serde_json::from_slice(&bytes).unwrap_or_default(),
                };
                let number = {
                    let mut log = log.lock().unwrap();
                    log.push(one.clone());
                    log.len() - 1
                };
                let (status, headers, text) = answer(&one, number, &root);
                let mut response =
                    Response::builder().status(StatusCode::from_u16(status).unwrap());
                for (name, value) in headers {
                    response = response.header(name, value);
                }
                response.body(Body::from(text)).unwrap()
            }
        };
        let app = axum::Router::new().fallback(handle);
        runtime.spawn(async move { axum::serve(listener, app).await });
        Self {
            url,
            asked,
            _runtime: runtime,
        }
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// A query of everything in collection `c`, asked as Earth Search is asked.
    fn query(&self) -> ImageQueryBuilder {
        everything(Source::api(&self.url).unwrap().like(&ELEMENT84))
    }
}

fn session() -> Session {
    Session::builder()
        .retries(2)
        .backoff(Duration::from_millis(10))
        .read_timeout(Duration::from_millis(500))
        .build()
        .unwrap()
}

fn everything(source: Source) -> ImageQueryBuilder {
    let collection = Collection::Id("c".to_owned());
    ImageQueryBuilder::new(source, collection, Intersects::everywhere()).session(session())
}

fn item(id: &str) -> Value {
    json!({
        "type": "Feature", "stac_version": "1.0.0", "id": id, "collection": "c",
        "geometry": {"type": "Point", "coordinates": [150.0, -30.0]},
        "bbox": [150.0, -30.0, 150.0, -30.0],
        "properties": {"datetime": "2021-01-05T00:00:00Z", "eo:cloud_cover": 10.0},
        "links": [], "assets": {"red": {"href": "./red.tif", "type": "image/tiff"}},
    })
}

/// A page of items, with a `next` link if there is one.
fn page(ids: &[&str], next: Option<Value>) -> Answer {
    let links: Vec<Value> = next.into_iter().collect();
    let features: Vec<Value> = ids.iter().map(|id| item(id)).collect();
    json_answer(&json!({"type": "FeatureCollection", "features": features, "links": links}))
}

fn json_answer(value: &Value) -> Answer {
    let kind = ("content-type", "application/geo+json".to_owned());
    (200, vec![kind], value.to_string())
}

fn status(code: u16) -> Answer {
    (code, Vec::new(), String::new())
}

fn ids(found: &QueryResult) -> Vec<&str> {
    let items = found.items().items.iter();
    items.map(|item| item.id.as_str()).collect()
}

fn search(query: ImageQueryBuilder) -> rss_core::Result<QueryResult> {
    query.build().and_then(|query: ImageQuery| query.search())
}

// Paging.

#[test]
fn a_next_link_by_get_is_followed_as_it_stands() {
    let server = Server::start(|asked, number, root| match number {
        0 => page(
            &["a", "b"],
            Some(json!({"rel": "next", "href": format!("{root}/search?token=next:b&f=1")})),
        ),
        _ if asked.path == "/search?token=next:b&f=1" => page(&["c"], None),
        _ => status(404),
    });
    let found = search(server.query()).unwrap();
    assert_eq!(ids(&found), ["a", "b", "c"]);
    assert_eq!(server.asked()[1].method, "GET");
    assert!(found.report().complete);
    assert_eq!((found.report().pages, found.report().requests), (2, 2));
}

#[test]
fn a_next_body_by_post_is_sent_as_it_stands_or_merged() {
    for (merge, whole) in [(None, false), (Some(false), false), (Some(true), true)] {
        let server = Server::start(move |_, number, root| match number {
            0 => {
                let mut next = json!({"rel": "next", "method": "POST", "href": format!("{root}/search"),
                                      "body": {"token": "next:a"}});
                if let Some(merge) = merge {
                    next["merge"] = merge.into();
                }
                page(&["a"], Some(next))
            }
            _ => page(&["b"], None),
        });
        let found = search(server.query().start_date(date(2021, 1, 1))).unwrap();
        assert_eq!(ids(&found), ["a", "b"], "merge {merge:?}");
        let body = &server.asked()[1].body;
        assert_eq!(body["token"], "next:a");
        assert_eq!(
            body.get("collections").is_some(),
            whole,
            "merge {merge:?}: {body}"
        );
    }
}

#[test]
fn an_offset_is_followed_by_get_and_by_post() {
    let by_get = Server::start(|asked, number, root| match number {
        0 => page(
            &["a"],
            Some(json!({"rel": "next", "href": format!("{root}/search?_o=1&limit=1")})),
        ),
        _ if asked.path.contains("_o=1") => page(&["b"], None),
        _ => status(404),
    });
    assert_eq!(ids(&search(by_get.query()).unwrap()), ["a", "b"]);
    let by_post = Server::start(|asked, number, root| match number {
        0 => page(
            &["a"],
            Some(json!({"rel": "next", "method": "POST", "merge": true,
                        "href": format!("{root}/search"), "body": {"_o": 1}})),
        ),
        _ if asked.body["_o"] == 1 && asked.body["collections"] == json!(["c"]) => {
            page(&["b"], None)
        }
        _ => status(404),
    });
    assert_eq!(ids(&search(by_post.query()).unwrap()), ["a", "b"]);
}

#[test]
fn a_relative_next_link_starts_at_the_answers_own_address() {
    let server = Server::start(|asked, number, _| match number {
        0 => page(
            &["a"],
            Some(json!({"rel": "next", "href": "./search?page=2"})),
        ),
        _ if asked.path == "/search?page=2" => page(&["b"], None),
        _ => status(404),
    });
    assert_eq!(ids(&search(server.query()).unwrap()), ["a", "b"]);
}

#[test]
fn an_empty_page_in_the_middle_loses_nothing() {
    let server = Server::start(|_, number, root| {
        let next = |n: usize| Some(json!({"rel": "next", "href": format!("{root}/search?p={n}")}));
        match number {
            0 => page(&["a"], next(1)),
            1 => page(&[], next(2)),
            _ => page(&["b"], None),
        }
    });
    assert_eq!(ids(&search(server.query()).unwrap()), ["a", "b"]);
}

#[test]
fn an_item_that_comes_twice_is_kept_once() {
    let server = Server::start(|_, number, root| match number {
        0 => page(
            &["a", "b"],
            Some(json!({"rel": "next", "href": format!("{root}/search?p=1")})),
        ),
        _ => page(&["b", "c"], None),
    });
    let found = search(server.query()).unwrap();
    assert_eq!(ids(&found), ["a", "b", "c"]);
    assert_eq!(found.report().duplicates, 1);
}

#[test]
fn a_limit_ends_the_search_in_the_middle_of_a_page() {
    let server = Server::start(|_, _, root| {
        page(
            &["a", "b", "c"],
            Some(json!({"rel": "next", "href": format!("{root}/search?p=1")})),
        )
    });
    let found = search(server.query().limit(2)).unwrap();
    assert_eq!(ids(&found), ["a", "b"]);
    assert_eq!(server.asked().len(), 1);
    assert!(found.report().complete);
}

#[test]
fn pages_in_a_circle_and_pages_without_end_are_errors() {
    let circle = Server::start(|_, _, root| {
        page(
            &["a"],
            Some(json!({"rel": "next", "href": format!("{root}/search?p=1")})),
        )
    });
    let err = search(circle.query()).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Corrupt, "{err}");
    assert!(circle.asked().len() <= 3);

    let endless = Server::start(|_, number, root| {
        let id = format!("i{number}");
        page(
            &[&id],
            Some(json!({"rel": "next", "href": format!("{root}/search?p={number}")})),
        )
    });
    let err = search(endless.query().max_pages(7)).unwrap_err();
    assert!(err.to_string().contains("more than 7 pages"), "{err}");
    assert_eq!(endless.asked().len(), 7);
    // What came is kept where the user wants it.
    let found = search(endless.query().max_pages(7).keep_partial()).unwrap();
    assert_eq!(found.len(), 7);
    assert!(!found.report().complete);
    assert!(found.report().stopped.as_ref().unwrap().contains("7 pages"));
}

#[test]
fn a_next_link_leads_to_no_other_server_and_no_file() {
    for href in [
        "http://127.0.0.2:9/search?p=1",
        "http://169.254.169.254/latest",
        "file:///etc/passwd",
    ] {
        let server =
            Server::start(move |_, _, _| page(&["a"], Some(json!({"rel": "next", "href": href}))));
        let err = search(server.query()).unwrap_err();
        assert!(
            matches!(err.kind(), ErrorKind::Denied | ErrorKind::Corrupt),
            "{href}: {err:?}"
        );
        assert_eq!(server.asked().len(), 1, "{href}");
    }
}

#[test]
fn each_providers_pages_are_followed_to_the_end() {
    for (paging, like, recorded, collection) in [
        (Paging::Dea, DEA, "dea-sentinel2", "ga_s2am_ard_3"),
        (
            Paging::EarthSearch,
            ELEMENT84,
            "element84-sentinel2",
            "sentinel-2-l2a",
        ),
        (
            Paging::PlanetaryComputer,
            PLANETARY_COMPUTER,
            "planetary-computer-sentinel2",
            "sentinel-2-l2a",
        ),
    ] {
        let bed = Testbed::builder().paging(paging).start().unwrap();
        let mut template = json_file(&format!("stac/{recorded}.json"));
        for i in 0..7 {
            template["id"] = format!("00000000-0000-0000-0000-00000000000{i}").into();
            bed.add_item(template.clone()).unwrap();
        }
        let source = Source::api(&bed.stac_url()).unwrap().like(&like);
        let id = Collection::Id(collection.to_owned());
        let query = ImageQueryBuilder::new(source, id, Intersects::everywhere())
            .session(session())
            .page_size(3);
        let found = search(query).unwrap();
        let mut got = ids(&found);
        got.sort_unstable();
        let all: Vec<String> = (0..7)
            .map(|i| format!("00000000-0000-0000-0000-00000000000{i}"))
            .collect();
        assert_eq!(got, all, "{paging:?}");
        assert_eq!(bed.requests(Service::Stac).len(), 3, "{paging:?}");
        assert!(found.report().complete);
    }
}

fn json_file(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The body of a recorded answer.
fn recorded(name: &str) -> Value {
    let file = json_file(&format!("search/{name}.json"));
    match file.get("response") {
        Some(response) => response["body"].clone(),
        None => file["body"].clone(),
    }
}

/// Sends the links of a recorded page to a server of ours.
fn moved(mut body: Value, root: &str) -> Value {
    for link in body["links"].as_array_mut().into_iter().flatten() {
        if link["rel"] == "next" {
            link["href"] = format!("{root}/search").into();
        }
    }
    body
}

#[test]
fn recorded_pages_are_read_and_their_next_is_asked_as_the_server_wants() {
    for (pages, like, collection) in [
        (["dea_post_page1", "dea_post_page2"], DEA, "ga_s2am_ard_3"),
        (
            ["pc_page1", "pc_page2"],
            PLANETARY_COMPUTER,
            "sentinel-2-l2a",
        ),
    ] {
        let server = Server::start(move |_, number, root| {
            let name = pages.get(number).copied().unwrap_or(pages[1]);
            json_answer(&moved(recorded(name), root))
        });
        let wanted = recorded(pages[0])["links"]
            .as_array()
            .unwrap()
            .iter()
            .find(|link| link["rel"] == "next")
            .unwrap()
            .clone();
        let source = Source::api(&server.url).unwrap().like(&like);
        let id = Collection::Id(collection.to_owned());
        let query = ImageQueryBuilder::new(source, id, Intersects::everywhere())
            .session(session())
            .keep_partial();
        search(query).unwrap();
        let second = &server.asked()[1];
        assert_eq!(second.method, "POST");
        for (name, value) in wanted["body"].as_object().unwrap() {
            assert_eq!(&second.body[name], value, "{pages:?} {name}");
        }
        let first = &server.asked()[0];
        let is_merged = wanted["merge"] == true;
        if is_merged {
            assert_eq!(second.body["collections"], first.body["collections"]);
        }
    }
}

#[test]
fn recorded_items_without_a_geometry_are_read() {
    let server = Server::start(|_, _, root| {
        let mut body = moved(recorded("earthsearch_without_geometry"), root);
        body["links"] = json!([]);
        json_answer(&body)
    });
    let body = recorded("earthsearch_without_geometry");
    let collection = body["features"][0]["collection"]
        .as_str()
        .unwrap()
        .to_owned();
    let source = Source::api(&server.url).unwrap().like(&ELEMENT84);
    let query =
        ImageQueryBuilder::new(source, Collection::Id(collection), Intersects::everywhere());
    let found = search(query.session(session())).unwrap();
    assert!(!found.is_empty());
}

// Faults.

#[test]
fn a_refusal_is_one_clear_error_that_names_the_address() {
    for (code, kind) in [
        (404, ErrorKind::NotFound),
        (403, ErrorKind::Denied),
        (401, ErrorKind::Denied),
        (400, ErrorKind::InvalidInput),
    ] {
        let server = Server::start(move |_, _, _| status(code));
        let err = search(server.query()).unwrap_err();
        assert_eq!(err.kind(), kind, "{code}: {err}");
        assert_eq!(
            err.location(),
            Some(format!("{}/search", server.url).as_str())
        );
        assert!(!err.to_string().contains('\n'));
        assert_eq!(server.asked().len(), 1, "{code}");
    }
}

#[test]
fn an_overloaded_server_is_asked_again_and_then_given_up() {
    for code in [429, 503] {
        let once = Server::start(move |_, number, _| match number {
            0 => (code, vec![("retry-after", "0".to_owned())], String::new()),
            _ => page(&["a"], None),
        });
        let found = search(once.query()).unwrap();
        assert_eq!((ids(&found), once.asked().len()), (vec!["a"], 2), "{code}");
        assert_eq!(found.report().requests, 2);
        let always = Server::start(move |_, _, _| status(code));
        let err = search(always.query()).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Unavailable);
        assert_eq!(always.asked().len(), 3, "{code}");
    }
}

#[test]
fn a_pause_longer_than_the_deadline_is_not_waited_for() {
    let server =
        Server::start(|_, _, _| (429, vec![("retry-after", "3600".to_owned())], String::new()));
    let err = search(server.query().deadline(Duration::from_secs(5))).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Unavailable, "{err}");
    assert_eq!(server.asked().len(), 1);
}

#[test]
fn a_page_too_large_for_the_server_gets_smaller() {
    for code in [502, 504] {
        let server = Server::start(move |asked, _, _| {
            match asked.body["limit"].as_u64().unwrap_or(u64::MAX) {
                0..=20 => page(&["a"], None),
                _ => status(code),
            }
        });
        let found = search(server.query().page_size(64)).unwrap();
        assert_eq!(ids(&found), ["a"]);
        let sizes: Vec<u64> = server
            .asked()
            .iter()
            .map(|asked| asked.body["limit"].as_u64().unwrap())
            .collect();
        assert_eq!(sizes, [64, 32, 16], "{code}");
    }
}

#[test]
fn what_is_no_json_is_said_so() {
    for (text, says) in [
        (
            "<html><body>Please log in</body></html>",
            "expected STAC JSON",
        ),
        ("hello", "JSON"),
        ("{\"type\": \"Feature", "in the middle of the JSON"),
        (
            "{\"code\": \"NotFound\", \"description\": \"no such thing\"}",
            "no such thing",
        ),
    ] {
        let server = Server::start(move |_, _, _| (200, Vec::new(), text.to_owned()));
        let err = search(server.query()).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Corrupt, "{text}: {err}");
        assert!(err.to_string().contains(says), "{text}: {err}");
    }
}

#[test]
fn an_answer_that_is_cut_or_late_is_asked_for_again() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    for fault in [
        Fault::Cut,
        Fault::Hang,
        Fault::HangInBody,
        Fault::status(500),
    ] {
        bed.fault(Rule::new(fault.clone()).on(Service::Stac).times(1));
        let found = search(seed(&bed)).unwrap();
        assert_eq!(found.len(), 4, "{fault:?}");
        assert_eq!(found.report().requests, 2, "{fault:?}");
    }
    bed.fault(Rule::new(Fault::Cut).on(Service::Stac));
    let err = search(seed(&bed)).unwrap_err();
    assert!(
        matches!(err.kind(), ErrorKind::Unavailable | ErrorKind::Corrupt),
        "{err:?}"
    );
}

#[test]
fn a_failure_after_the_first_page_keeps_what_came_if_asked() {
    let start = || {
        Server::start(|_, number, root| match number {
            0 => page(
                &["a", "b"],
                Some(json!({"rel": "next", "href": format!("{root}/search?p=1")})),
            ),
            _ => status(403),
        })
    };
    let err = search(start().query()).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Denied);
    let found = search(start().query().keep_partial()).unwrap();
    assert_eq!(ids(&found), ["a", "b"]);
    assert!(!found.report().complete);
    assert!(found.report().stopped.as_ref().unwrap().contains("403"));
}

#[test]
fn a_filter_that_the_server_ignores_is_applied_here_and_said() {
    let server = Server::start(|_, _, _| {
        let mut cloudy = item("cloudy");
        cloudy["properties"]["eo:cloud_cover"] = 80.into();
        let mut late = item("late");
        late["properties"]["datetime"] = "2022-01-05T00:00:00Z".into();
        let mut other = item("other");
        other["collection"] = "d".into();
        json_answer(&json!({"type": "FeatureCollection", "links": [],
                            "features": [item("a"), cloudy, late, other]}))
    });
    let query = server
        .query()
        .cloudcover((Cmp::Less, 30))
        .start_date(date(2021, 1, 1))
        .end_date(date(2021, 2, 1));
    let found = search(query).unwrap();
    assert_eq!(ids(&found), ["a"]);
    let report = found.report();
    assert_eq!((report.returned, report.dropped_total()), (4, 3));
    assert_eq!(report.filters_ignored.len(), 3, "{report:?}");
    let body = &server.asked()[0].body;
    assert_eq!(body["query"]["eo:cloud_cover"]["lt"], 30);
    assert_eq!(
        body["datetime"],
        "2021-01-01T00:00:00Z/2021-02-01T23:59:59.999Z"
    );
}

#[test]
fn a_filter_that_the_server_refuses_is_left_out_and_applied_here() {
    let server = Server::start(|asked, _, _| {
        if asked.body.get("filter").is_some() || asked.body.get("query").is_some() {
            return (
                400,
                Vec::new(),
                r#"{"description": "no filters here"}"#.to_owned(),
            );
        }
        let mut cloudy = item("cloudy");
        cloudy["properties"]["eo:cloud_cover"] = 80.into();
        json_answer(&json!({"type": "FeatureCollection", "links": [],
                            "features": [item("a"), cloudy]}))
    });
    let found = search(server.query().cloudcover((Cmp::Less, 30))).unwrap();
    assert_eq!(ids(&found), ["a"]);
    assert!(found.report().filters_ignored[0].contains("no filters here"));
}

#[test]
fn an_api_is_asked_in_the_language_it_states() {
    for (class, key) in [
        (
            "https://api.stacspec.org/v1.0.0/item-search#query",
            Some("query"),
        ),
        (
            "https://api.stacspec.org/v1.0.0-rc.2/item-search#filter",
            Some("filter"),
        ),
        ("https://api.stacspec.org/v1.0.0/item-search#sort", None),
    ] {
        let server = Server::start(move |asked, _, root| match asked.path.as_str() {
            "/" => json_answer(&json!({
                "type": "Catalog", "id": "x", "stac_version": "1.0.0", "description": "x",
                "conformsTo": ["https://api.stacspec.org/v1.0.0/item-search", class,
                    "http://www.opengis.net/spec/cql2/1.0/conf/cql2-json"],
                "links": [{"rel": "search", "href": format!("{root}/find"), "method": "POST"}],
            })),
            _ => page(&["a"], None),
        });
        let query = everything(Source::api(&server.url).unwrap()).cloudcover((Cmp::Less, 30));
        let found = search(query).unwrap();
        assert_eq!(ids(&found), ["a"]);
        let asked = &server.asked()[1];
        assert_eq!(
            (asked.method.as_str(), asked.path.as_str()),
            ("POST", "/find")
        );
        for one in ["query", "filter"] {
            assert_eq!(asked.body.get(one).is_some(), key == Some(one), "{class}");
        }
        assert_eq!(
            found.report().filters_here.is_empty(),
            key.is_some(),
            "{class}"
        );
    }
}

#[test]
fn a_secret_in_the_address_is_in_no_error() {
    for answer in [403, 404, 500] {
        let server = Server::start(move |_, _, _| status(answer));
        let url = format!("{}/stac?token=CANARYSECRET", server.url);
        let query = everything(Source::api(&url).unwrap().like(&ELEMENT84));
        let err = search(query).unwrap_err();
        let text = format!("{err} {err:?}");
        assert!(!text.contains("CANARYSECRET"), "{text}");
        assert!(server.asked()[0].path.contains("token=CANARYSECRET"));
    }
    let nobody = "http://127.0.0.1:1/stac?token=CANARYSECRET";
    let err = search(everything(Source::api(nobody).unwrap().like(&ELEMENT84))).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Unavailable);
    assert!(
        !format!("{err} {err:?}").contains("CANARYSECRET"),
        "{err:?}"
    );
}

// The query of every example, on the testbed.

fn seed(bed: &Testbed) -> ImageQueryBuilder {
    let dea = Source::api(&bed.stac_url()).unwrap().like(&DEA);
    ImageQueryBuilder::new(dea, Collection::Sentinel2, Intersects::scene("56jns"))
        .session(session())
        .bands(["nbart_red", "nbart_nir_1"])
        .start_date(date(2021, 1, 1))
        .end_date(date(2021, 2, 1))
        .cloudcover((Cmp::Less, 30))
}

#[test]
fn the_seed_query_finds_its_four_items_in_one_request() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let found = search(seed(&bed)).unwrap();
    let wanted: Vec<&str> = bed.scenes().iter().map(|scene| scene.id.as_str()).collect();
    assert_eq!(ids(&found), wanted);
    assert_eq!(bed.requests(Service::Stac).len(), 1);
    assert_eq!(found.report().dropped_total(), 0, "{:?}", found.report());
    let keys: Vec<&str> = found
        .assets(&found.items().items[0])
        .iter()
        .map(|(key, _)| *key)
        .collect();
    assert_eq!(keys, ["nbart_red", "nbart_nir_1"]);
}

#[test]
fn the_end_day_is_included_and_the_day_after_is_not() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let on = |day: u32| {
        let query = seed(&bed)
            .start_date(date(2021, 1, day))
            .end_date(date(2021, 1, day));
        search(query).unwrap().len()
    };
    // The first scene was taken on January 3 at 23:56.
    assert_eq!((on(2), on(3), on(4)), (0, 1, 0));
}

// Queries that cannot be.

#[test]
fn a_query_that_cannot_be_is_refused_when_it_is_built() {
    let seed = || {
        ImageQueryBuilder::new(DEA, Collection::Sentinel2, Intersects::scene("56jns"))
            .session(session())
    };
    let place = |intersects| {
        ImageQueryBuilder::new(DEA, Collection::Sentinel2, intersects).session(session())
    };
    let (west, north) = (
        Intersects::bbox(-181.0, 0.0, 1.0, 1.0),
        Intersects::bbox(0.0, 0.0, 1.0, 91.0),
    );
    for (query, says) in [
        (seed().bands(["nbart_red", "B04", "x"]), "B04, x"),
        (
            seed().canonical_bands(["red", "ultraviolet"]),
            "ultraviolet",
        ),
        (place(Intersects::scene("99zzz")), "99zzz"),
        (place(Intersects::scene("")), "scene"),
        (place(Intersects::scene("090084")), "090084"),
        (place(west), "-181"),
        (place(north), "91"),
        (
            place(Intersects::bbox(0.0, 2.0, 1.0, 1.0)),
            "south 2 is above north 1",
        ),
        (place(Intersects::bbox(f64::NAN, 0.0, 1.0, 1.0)), "NaN"),
        (
            place(Intersects::geometry("{\"type\": \"Pont\"}")),
            "geometry",
        ),
        (
            seed()
                .start_date(date(2021, 2, 1))
                .end_date(date(2021, 1, 1)),
            "is after end date",
        ),
        (
            seed().start_date(date(2021, 2, 30)),
            "2021-02-30 does not exist",
        ),
        (seed().cloudcover((Cmp::Less, 130)), "cloud cover is 130"),
        (
            seed().cloudcover((Cmp::Less, f64::NAN)),
            "cloud cover is NaN",
        ),
        (seed().limit(0), "limit is 0"),
        (seed().ids(["not-a-uuid"]), "not-a-uuid"),
        (
            ImageQueryBuilder::new(DEA, Collection::Sentinel2C1, Intersects::everywhere())
                .session(session()),
            "dea has no collection `sentinel2-c1`",
        ),
    ] {
        let err = query.build().unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput, "{err}");
        assert!(
            err.to_string().contains(says),
            "expected `{says}` in: {err}"
        );
        assert!(!err.to_string().contains('\n'), "{err}");
    }
    let err = seed().canonical_bands(["ultraviolet"]).build().unwrap_err();
    assert!(err.to_string().contains("nir_2"), "the known names: {err}");
    assert!(Source::api("not a url").is_err());
    assert!(Source::api("ftp://host/stac").is_err());
    // Across the antimeridian is a place.
    assert!(
        place(Intersects::bbox(170.0, -20.0, -170.0, -10.0))
            .build()
            .is_ok()
    );
}

#[test]
fn a_box_across_the_antimeridian_finds_both_sides_and_not_the_rest() {
    let server = Server::start(|_, _, _| {
        let at = |id: &str, lon: f64| {
            let mut one = item(id);
            one["geometry"]["coordinates"] = json!([lon, -15.0]);
            one["bbox"] = json!([lon, -15.0, lon, -15.0]);
            one
        };
        json_answer(&json!({"type": "FeatureCollection", "links": [],
            "features": [at("west", 175.0), at("east", -175.0), at("far", 0.0)]}))
    });
    let source = Source::api(&server.url).unwrap().like(&ELEMENT84);
    let bbox = Intersects::bbox(170.0, -20.0, -170.0, -10.0);
    let query = ImageQueryBuilder::new(source, Collection::Id("c".to_owned()), bbox);
    let found = search(query.session(session())).unwrap();
    assert_eq!(ids(&found), ["west", "east"]);
}

// Items without an API.

fn write(dir: &Path, name: &str, value: &Value) -> PathBuf {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, value.to_string()).unwrap();
    path
}

#[test]
fn a_static_catalogue_on_disk_is_walked_with_relative_links() {
    let dir = tempfile::tempdir().unwrap();
    let link = |rel: &str, href: &str| json!({"rel": rel, "href": href});
    let catalogue = |id: &str, links: Vec<Value>| json!({"type": "Catalog", "id": id, "stac_version": "1.0.0", "description": id, "links": links});
    let root = write(
        dir.path(),
        "catalog.json",
        &catalogue(
            "root",
            vec![
                link("child", "./2021/catalog.json"),
                link("child", "./broken/catalog.json"),
                link("self", "./catalog.json"),
            ],
        ),
    );
    write(
        dir.path(),
        "2021/catalog.json",
        &catalogue(
            "2021",
            vec![
                link("item", "a.json"),
                link("item", "./b/b.json"),
                // Back to the root: a circle.
                link("child", "../catalog.json"),
            ],
        ),
    );
    write(dir.path(), "2021/a.json", &item("a"));
    write(dir.path(), "2021/b/b.json", &item("b"));
    let found = QueryResult::from_file(&session(), &root).unwrap();
    assert_eq!(ids(&found), ["a", "b"]);
    let href = |n: usize| PathBuf::from(&found.items().items[n].assets["red"].href);
    assert_eq!(href(0), dir.path().join("2021/red.tif"));
    assert_eq!(href(1), dir.path().join("2021/b/red.tif"));
    assert!(!found.report().complete);
    assert_eq!(found.report().skipped.len(), 1);
}

#[test]
fn a_static_catalogue_over_http_is_walked_and_leads_to_no_local_file() {
    let server = Server::start(|asked, _, _| match asked.path.as_str() {
        "/cat/catalog.json" => json_answer(&json!({
            "type": "Catalog", "id": "x", "stac_version": "1.0.0", "description": "x",
            "links": [{"rel": "item", "href": "items/a.json"},
                      {"rel": "item", "href": "file:///etc/passwd"},
                      {"rel": "item", "href": "/vsicurl/http://x/y"}],
        })),
        "/cat/items/a.json" => json_answer(&item("a")),
        _ => status(404),
    });
    let url = format!("{}/cat/catalog.json", server.url);
    let found = QueryResult::from_url(&session(), &url).unwrap();
    assert_eq!(ids(&found), ["a"]);
    assert_eq!(
        found.items().items[0].assets["red"].href,
        format!("{}/cat/items/red.tif", server.url)
    );
    let skipped = format!("{:?}", found.report().skipped);
    assert!(skipped.contains("/etc/passwd"), "{skipped}");
    assert!(!found.report().complete);
}

#[test]
fn items_and_collections_of_items_are_read_from_files_and_text() {
    let dir = tempfile::tempdir().unwrap();
    let one = write(dir.path(), "one.json", &item("a"));
    let many = write(
        dir.path(),
        "many.json",
        &json!({"type": "FeatureCollection", "features": [item("a"), item("b")]}),
    );
    assert_eq!(
        ids(&QueryResult::from_file(&session(), one).unwrap()),
        ["a"]
    );
    assert_eq!(
        ids(&QueryResult::from_file(&session(), many).unwrap()),
        ["a", "b"]
    );
    let text = json!([item("a"), item("b")]).to_string();
    let found = QueryResult::from_json(&session(), text.as_bytes(), Trust::User).unwrap();
    assert_eq!(ids(&found), ["a", "b"]);
    let catalogue = recorded("static_catalog").to_string();
    let err = QueryResult::from_json(&session(), catalogue.as_bytes(), Trust::User).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput, "{err}");
    let missing = QueryResult::from_file(&session(), dir.path().join("none.json")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}
