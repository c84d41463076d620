//! A server that fails, or does not do what it was asked: an answer that is right, or one clear
//! error.

use std::time::{Duration, Instant};

use rss_core::{
    Cmp, Collection, DEA, ELEMENT84, Error, ErrorKind, ImageQueryBuilder, Intersects, Session,
    Source, date,
};
use rss_testbed::{Fault, Paging, Rule, Service, Testbed};
use serde_json::{Value, json};

use super::{Reply, Server, cloudy, ids, item, page, query, query_of, session};

/// Two retries: what fails for good is asked three times.
const TRIES: usize = 3;

fn bed(paging: Paging) -> Testbed {
    let bed = Testbed::builder().paging(paging).start().unwrap();
    for id in ["a", "b", "c"] {
        bed.add_item(item(id)).unwrap();
    }
    bed
}

/// A session that does not wait long for a server that hangs.
fn hasty(fault: &Fault) -> Session {
    match fault {
        Fault::Hang | Fault::HangInBody => session().read_timeout(Duration::from_millis(300)),
        _ => session(),
    }
    .build()
    .unwrap()
}

/// A root with a secret in its query string.
fn signed(bed: &Testbed) -> String {
    format!("{}?token=CANARYSECRET", bed.stac_url())
}

/// Asserts that an error names the address without its secret.
fn assert_names(err: &Error, bed: &Testbed) {
    let search = format!("{}/search", bed.stac_url());
    assert_eq!(err.location(), Some(&*search), "{err:?}");
    assert!(err.to_string().starts_with(&format!("{search}: ")), "{err}");
    assert!(
        !format!("{err} {err:?} {err:#?}").contains("CANARY"),
        "{err:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lasting_fault_is_one_clear_error() {
    let text = |code, body: &str| Fault::Status {
        code,
        retry_after: None,
        body: body.to_owned(),
    };
    let bed = bed(Paging::Dea);
    for (fault, kind, message, requests) in [
        (Fault::status(404), ErrorKind::NotFound, "404", 1),
        (Fault::status(401), ErrorKind::Denied, "401", 1),
        (Fault::status(403), ErrorKind::Denied, "403", 1),
        (
            text(403, r#"{"message": "Missing Authentication Token"}"#),
            ErrorKind::Denied,
            "Missing Authentication Token",
            1,
        ),
        (
            text(
                400,
                r#"{"code": "BadRequest", "description": "no such thing"}"#,
            ),
            ErrorKind::InvalidInput,
            "BadRequest, no such thing",
            1,
        ),
        (Fault::status(429), ErrorKind::Unavailable, "429", TRIES),
        // Smaller pages are tried too, down to one item: some servers say 500 to a large one.
        (Fault::status(500), ErrorKind::Unavailable, "500", 9),
        (Fault::status(503), ErrorKind::Unavailable, "503", TRIES),
        (
            Fault::Html,
            ErrorKind::Corrupt,
            "text/html: <!doctype html>",
            1,
        ),
        (Fault::ErrorInOk, ErrorKind::Corrupt, "application/xml", 1),
        (
            Fault::Short,
            ErrorKind::Corrupt,
            "ends in the middle of the JSON",
            TRIES,
        ),
        (
            Fault::Cut,
            ErrorKind::Unavailable,
            "the connection broke",
            TRIES,
        ),
        (
            Fault::Hang,
            ErrorKind::Unavailable,
            "the request timed out",
            TRIES,
        ),
        (
            Fault::HangInBody,
            ErrorKind::Unavailable,
            "the request timed out",
            TRIES,
        ),
    ] {
        bed.clear_log();
        bed.clear_faults();
        bed.fault(Rule::new(fault.clone()).on(Service::Stac));
        let query = query(&signed(&bed)).session(hasty(&fault)).build().unwrap();
        let err = query.search_async().await.unwrap_err();
        assert_eq!(err.kind(), kind, "{fault:?}: {err}");
        assert!(err.message().contains(message), "{fault:?}: {err}");
        assert_eq!(bed.log().len(), requests, "{fault:?}: {err}");
        assert_names(&err, &bed);
        if requests > 1 {
            assert!(err.message().ends_with(", after 3 tries"), "{err}");
        }
        assert!(
            bed.log()
                .iter()
                .all(|r| r.query.as_deref() == Some("token=CANARYSECRET")),
            "the query string of the source goes with each request"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_that_happens_twice_is_recovered() {
    let bed = bed(Paging::Dea);
    for fault in [
        Fault::status(429),
        Fault::status(500),
        Fault::status(502),
        Fault::status(503),
        Fault::status(504),
        Fault::Short,
        Fault::Cut,
        Fault::Hang,
        Fault::HangInBody,
    ] {
        bed.clear_log();
        bed.clear_faults();
        bed.fault(Rule::new(fault.clone()).on(Service::Stac).times(2));
        let query = query(&bed.stac_url())
            .session(hasty(&fault))
            .build()
            .unwrap();
        let found = query.search_async().await;
        let found = found.unwrap_or_else(|err| panic!("{fault:?}: {err}"));
        assert_eq!(ids(&found), ["a", "b", "c"], "{fault:?}");
        assert_eq!(bed.log().len(), 3, "{fault:?}");
        let report = found.report();
        assert_eq!((report.requests, report.pages), (3, 1), "{fault:?}");
        assert!(report.complete);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_the_server_asks_for_is_kept_if_there_is_time() {
    let bed = bed(Paging::Dea);
    bed.fault(Rule::new(Fault::retry_after(429, 1)).times(1));
    let query = query(&bed.stac_url());
    let start = Instant::now();
    let found = query.clone().build().unwrap().search_async().await.unwrap();
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!((found.len(), bed.log().len()), (3, 2));

    // No use to wait for longer than requests are retried for.
    bed.clear_log();
    bed.fault(Rule::new(Fault::retry_after(429, 3600)));
    let start = Instant::now();
    let hurried = query.deadline(Duration::from_secs(60)).build().unwrap();
    let err = hurried.search_async().await.unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(err.kind(), ErrorKind::Unavailable);
    assert_eq!(bed.log().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_past_all_clocks_is_an_error_that_names_it() {
    let bed = bed(Paging::Dea);
    for seconds in [u64::MAX, i64::MAX.unsigned_abs(), 400] {
        bed.clear_log();
        bed.clear_faults();
        bed.fault(Rule::new(Fault::retry_after(429, seconds)));
        let found = query(&bed.stac_url()).build().unwrap().search_async().await;
        let err = found.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Unavailable);
        let wait = format!("Retry-After is {seconds} s, longer than requests are retried for");
        assert!(err.message().contains(&wait), "{err}");
        assert_eq!(bed.log().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_without_end_is_none() {
    let bed = bed(Paging::Dea);
    bed.fault(Rule::new(Fault::status(503)).times(1));
    let session = session().deadline(Duration::MAX).build().unwrap();
    let query = query(&bed.stac_url()).session(session).build().unwrap();
    assert_eq!(query.search_async().await.unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_is_given_up_at_the_deadline() {
    let bed = bed(Paging::Dea);
    bed.fault(Rule::new(Fault::Hang));
    let patient = session()
        .read_timeout(Duration::from_secs(600))
        .build()
        .unwrap();
    let query = query(&signed(&bed))
        .session(patient)
        .deadline(Duration::from_millis(200))
        .build()
        .unwrap();
    let start = Instant::now();
    let err = query.search_async().await.unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!(err.kind(), ErrorKind::Unavailable);
    assert_eq!(err.message(), "no response before the deadline");
    assert_names(&err, &bed);
    assert_eq!(bed.log().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_server_is_an_error() {
    // Nothing listens on the port of a server that is gone.
    let gone = {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.local_addr().unwrap()
    };
    let root = format!("http://{gone}?token=CANARYSECRET");
    let err = query(&root)
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Unavailable);
    assert_eq!(
        err.to_string(),
        format!("http://{gone}/search: no connection to the server, after 3 tries")
    );
    assert!(!format!("{err:?}").contains("CANARY"), "{err:?}");
}

/// Sends pages of at most ten items of 25, and a status for larger ones.
async fn small_pages_only(status: u16, body: &'static str) -> Server {
    Server::start(move |asked, root| {
        let limit = asked.body["limit"].as_u64().unwrap_or(1000);
        if limit > 10 {
            return Reply::status(status, body);
        }
        let first = asked.body["_o"].as_u64().unwrap_or(0);
        let end = (first + limit).min(25);
        let items: Vec<_> = (first..end).map(|n| item(&n.to_string())).collect();
        let next = match end {
            25 => Value::Null,
            end => json!({"rel": "next", "method": "POST", "merge": true,
                "href": format!("{root}/search"), "body": {"_o": end}}),
        };
        page(&items, &next).into()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_too_large_for_its_server_is_halved() {
    for (status, body) in [
        (502, "<html>Bad Gateway</html>"),
        (504, ""),
        (413, ""),
        (
            500,
            r#"{"message": "Response payload size exceeded maximum allowed payload size"}"#,
        ),
    ] {
        let server = small_pages_only(status, body).await;
        let found = query(&server.root)
            .build()
            .unwrap()
            .search_async()
            .await
            .unwrap();
        let all: Vec<String> = (0..25).map(|n| n.to_string()).collect();
        assert_eq!(ids(&found), all, "{status}");
        // Halved until it fits, and small from then on.
        let limits: Vec<_> = server
            .log()
            .iter()
            .map(|r| r.body["limit"].clone())
            .collect();
        assert_eq!(limits, [100, 50, 25, 12, 6, 6, 6, 6, 6], "{status}");
        assert_eq!(found.report().pages, 5);
    }

    // A server that chose its own size, and says nothing of sizes.
    let server = small_pages_only(500, "").await;
    let source = Source::api(&server.root).unwrap().like(&DEA);
    let c = Collection::Id("c".to_owned());
    let query = ImageQueryBuilder::new(source, c, Intersects::everywhere())
        .session(session().build().unwrap())
        .build()
        .unwrap();
    let found = query.search_async().await.unwrap();
    assert_eq!(found.len(), 25);
    let limits: Vec<_> = server
        .log()
        .iter()
        .map(|r| r.body["limit"].clone())
        .collect();
    assert_eq!(limits[..3], [100, 100, 50], "{limits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_fails_at_every_page_size_is_an_error() {
    for status in [502, 504] {
        let server = Server::start(move |_, _| Reply::status(status, "")).await;
        let err = query(&server.root)
            .build()
            .unwrap()
            .search_async()
            .await
            .unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Unavailable);
        assert!(err.message().contains(&status.to_string()), "{err}");
        let limits: Vec<_> = server
            .log()
            .iter()
            .map(|r| r.body["limit"].clone())
            .collect();
        assert_eq!(limits, [100, 50, 25, 12, 6, 3, 1, 1, 1]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_before_a_fault_is_kept_if_that_is_asked() {
    use futures::StreamExt;

    let bed = bed(Paging::Dea);
    for (fault, words) in [
        (Fault::status(404), "404"),
        (Fault::status(500), "500"),
        (Fault::Cut, "the connection broke"),
        (Fault::Html, "text/html"),
    ] {
        let break_second_page = || {
            bed.clear_log();
            bed.clear_faults();
            bed.fault(Rule::new(fault.clone()).skip(1));
        };
        let query = query(&signed(&bed)).page_size(2);

        break_second_page();
        let strict = query.clone().build().unwrap();
        assert_names(&strict.search_async().await.unwrap_err(), &bed);

        break_second_page();
        let items: Vec<_> = strict.stream().collect().await;
        let came: Vec<_> = items
            .iter()
            .map(|item| item.as_ref().ok().map(|item| &*item.id))
            .collect();
        assert_eq!(came, [Some("a"), Some("b"), None], "{fault:?}");

        break_second_page();
        let found = query
            .keep_partial()
            .build()
            .unwrap()
            .search_async()
            .await
            .unwrap();
        assert_eq!(ids(&found), ["a", "b"], "{fault:?}");
        let report = found.report();
        assert_eq!((report.pages, report.complete), (1, false));
        assert_eq!(report.requests, bed.log().len() as u64);
        let stopped = report.stopped.as_deref().unwrap();
        assert!(stopped.contains(words), "{stopped}");
        assert!(stopped.starts_with(&bed.stac_url()), "{stopped}");
        assert!(!stopped.contains("CANARY"), "{stopped}");
    }

    // Of the first page there is nothing to keep.
    bed.clear_faults();
    bed.fault(Rule::new(Fault::status(404)));
    let query = query(&bed.stac_url()).keep_partial().build().unwrap();
    let err = query.search_async().await.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_another_kind_is_an_error() {
    let landing = json!({"type": "Catalog", "id": "x", "links": []});
    for (answer, message) in [
        (
            item("a"),
            "expected a page of items, got another STAC document",
        ),
        (
            landing,
            "expected a page of items, got another STAC document",
        ),
        (
            json!({"message": "Forbidden"}),
            "the server responded with `Forbidden`",
        ),
        (json!({}), "expected a STAC document, got other JSON"),
        (
            json!([]),
            "expected STAC JSON, the server responded 200 with application/geo+json: []",
        ),
    ] {
        let server = Server::start(move |_, _| answer.clone()).await;
        let err = query(&server.root)
            .build()
            .unwrap()
            .search_async()
            .await
            .unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Corrupt, "{err}");
        assert_eq!(err.message(), message);
        assert_eq!(server.log().len(), 1, "{err}");
    }
    let server = Server::start(|_, _| Reply::status(200, "")).await;
    let err = query(&server.root)
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Corrupt, "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_item_does_not_lose_its_page() {
    let server = Server::start(|_, _| {
        let mut odd = item("b");
        odd["assets"]["blue"] = json!({"title": "no href"});
        let nameless = json!({"type": "Feature", "properties": {}});
        page(&[item("a"), nameless, odd, json!(7)], &Value::Null)
    })
    .await;
    let found = query(&server.root)
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap();
    assert_eq!(ids(&found), ["a", "b"]);
    let skipped: Vec<_> = found
        .report()
        .skipped
        .iter()
        .map(|one| (&*one.item, one.asset.as_deref(), &*one.reason))
        .collect();
    assert_eq!(skipped.len(), 3, "{skipped:?}");
    assert!(
        skipped.contains(&("", None, "an item without an id")),
        "{skipped:?}"
    );
    assert!(skipped.contains(&("", None, "a feature that is not an object")));
    assert!(
        skipped
            .iter()
            .any(|one| (one.0, one.1) == ("b", Some("blue")))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_does_not_filter_is_left_out_here() {
    // All that a server can ignore, each by one item.
    let server = Server::start(|asked, root| {
        let mut other = item("other collection");
        other["collection"] = json!("d");
        let mut late = item("late");
        late["properties"]["datetime"] = json!("2022-01-01T00:00:00Z");
        let mut far = item("far");
        far["geometry"]["coordinates"] = json!([0.0, 0.0]);
        far["bbox"] = json!([0.0, 0.0, 0.0, 0.0]);
        let mut unknown = item("cloud unknown");
        unknown["properties"] = json!({"datetime": "2021-01-15T00:00:00Z"});
        let next = json!({"rel": "next", "method": "POST", "merge": true,
            "href": format!("{root}/search"), "body": {"page": 2}});
        match asked.body["page"].as_u64() {
            None => page(&[other, cloudy("cloudy", 80), item("a"), late], &next),
            Some(_) => page(&[far, unknown, item("b"), cloudy("edge", 30)], &Value::Null),
        }
    })
    .await;
    let narrow = ImageQueryBuilder::new(
        Source::api(&server.root).unwrap().like(&DEA),
        Collection::Id("c".to_owned()),
        Intersects::bbox(150.0, -30.0, 151.0, -29.0),
    )
    .session(session().build().unwrap())
    .start_date(date(2021, 1, 1))
    .end_date(date(2021, 2, 1))
    .cloudcover((Cmp::Less, 30));
    let found = narrow
        .clone()
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap();
    assert_eq!(ids(&found), ["a", "b"]);
    let sent = &server.log()[0].body;
    assert_eq!(sent["bbox"], json!([150.0, -30.0, 151.0, -29.0]));
    assert_eq!(
        sent["datetime"],
        "2021-01-01T00:00:00Z/2021-02-01T23:59:59.999Z"
    );
    assert_eq!(
        sent["filter"],
        json!({"op": "<", "args": [{"property": "eo:cloud_cover"}, 30]})
    );
    let report = found.report();
    let dropped: Vec<_> = report.dropped.iter().map(|(why, n)| (&**why, *n)).collect();
    assert_eq!(
        dropped,
        [
            ("collections", 1),
            ("datetime", 1),
            ("eo:cloud_cover < 30", 3),
            ("intersects", 1)
        ]
    );
    assert_eq!((report.returned, report.dropped_total()), (8, 6));
    let mut ignored = report.filters_ignored.clone();
    ignored.sort();
    assert_eq!(
        ignored,
        [
            "collections",
            "datetime",
            "eo:cloud_cover < 30",
            "intersects"
        ]
    );

    // What is left out does not count as found.
    let found = narrow
        .limit(2)
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap();
    assert_eq!(ids(&found), ["a", "b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_a_server_ignores_is_reported() {
    let bed = bed(Paging::EarthSearch);
    bed.add_item(cloudy("d", 80)).unwrap();
    // Earth Search knows `query`, and takes a `filter` without a word.
    let query = query(&bed.stac_url())
        .page_size(2)
        .cloudcover((Cmp::Less, 30))
        .build()
        .unwrap();
    let found = query.search_async().await.unwrap();
    assert_eq!(ids(&found), ["a", "b", "c"]);
    let report = found.report();
    assert_eq!(report.dropped["eo:cloud_cover < 30"], 1);
    assert_eq!(
        report.filters_ignored,
        [
            "`filter`, which is missing from the request for the next page",
            "eo:cloud_cover < 30",
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_that_a_server_refuses_is_applied_here() {
    let bed = bed(Paging::Dea);
    bed.add_item(cloudy("d", 80)).unwrap();
    // DEA answers 400 to `query`.
    let query = ImageQueryBuilder::new(
        Source::api(&bed.stac_url()).unwrap().like(&ELEMENT84),
        Collection::Id("c".to_owned()),
        Intersects::everywhere(),
    )
    .session(session().build().unwrap())
    .cloudcover((Cmp::Less, 30))
    .build()
    .unwrap();
    let found = query.search_async().await.unwrap();
    assert_eq!(ids(&found), ["a", "b", "c"]);
    let report = found.report();
    assert_eq!((report.requests, bed.log().len()), (2, 2));
    assert_eq!(report.dropped["eo:cloud_cover < 30"], 1);
    assert_eq!(report.filters_ignored.len(), 1);
    let ignored = &report.filters_ignored[0];
    assert!(
        ignored.starts_with("eo:cloud_cover < 30; the server refused it: "),
        "{ignored}"
    );
    assert!(
        ignored.ends_with("BadRequest, unknown argument: query"),
        "{ignored}"
    );
    assert!(report.complete);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_a_server_refuses_without_its_filter_too_is_an_error() {
    let bed = bed(Paging::Dea);
    let text = r#"{"code": 400, "name": "Bad Request", "description": "no collection `x`"}"#;
    bed.fault(Rule::new(Fault::Status {
        code: 400,
        retry_after: None,
        body: text.to_owned(),
    }));
    let query = query_of(&bed.stac_url(), "x")
        .cloudcover((Cmp::Less, 30))
        .build()
        .unwrap();
    let err = query.search_async().await.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
    assert!(
        err.message().ends_with("Bad Request, no collection `x`"),
        "{err}"
    );
    assert_eq!(bed.log().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_without_a_filter_language_is_filtered_here() {
    let server = Server::start(|asked, root| match &*asked.path {
        "/search" => page(&[item("a"), cloudy("b", 80)], &Value::Null),
        _ => json!({
            "type": "Catalog", "id": "plain",
            "conformsTo": ["https://api.stacspec.org/v1.0.0/item-search"],
            "links": [{"rel": "search", "method": "GET", "href": format!("{root}/search")}],
        }),
    })
    .await;
    let query = ImageQueryBuilder::new(
        Source::api(&server.root).unwrap(),
        Collection::Id("c".to_owned()),
        Intersects::everywhere(),
    )
    .session(session().build().unwrap())
    .cloudcover((Cmp::Less, 30))
    // What is left out here must not make the pages tiny.
    .limit(1)
    .page_size(50)
    .build()
    .unwrap();
    let found = query.search_async().await.unwrap();
    assert_eq!(ids(&found), ["a"]);
    let log = server.log();
    assert_eq!((&*log[0].method, &*log[0].path), ("GET", "/"));
    assert_eq!(
        (&*log[1].method, &*log[1].query),
        ("GET", "collections=c&limit=50")
    );
    assert_eq!(found.report().filters_here, ["eo:cloud_cover < 30"]);
    assert_eq!(found.report().filters_ignored, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalogue_without_search_says_how_it_is_read() {
    let server =
        Server::start(|_, _| json!({"type": "Catalog", "id": "static", "links": []})).await;
    let query = ImageQueryBuilder::new(
        Source::api(&server.root).unwrap(),
        Collection::Id("c".to_owned()),
        Intersects::everywhere(),
    )
    .session(session().build().unwrap())
    .build()
    .unwrap();
    let err = query.search_async().await.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
    assert!(err.message().contains("QueryResult::from_url"), "{err}");
    assert_eq!(server.log().len(), 1);
}
