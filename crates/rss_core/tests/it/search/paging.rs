//! From page to page: every form of `next`, and servers that page wrongly.

use rss_core::{
    Cmp, Collection, DEA, ELEMENT84, ErrorKind, ImageQueryBuilder, Intersects, PLANETARY_COMPUTER,
    QueryResult, Source,
};
use rss_testbed::{Paging, Service, Testbed};
use serde_json::{Value, json};

use super::{Asked, Reply, Server, ids, item, page, query, session};

const SEVEN: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

/// A testbed with seven items.
fn bed(paging: Paging) -> Testbed {
    let bed = Testbed::builder().paging(paging).start().unwrap();
    for id in SEVEN {
        bed.add_item(item(id)).unwrap();
    }
    bed
}

fn everything(source: Source) -> ImageQueryBuilder {
    ImageQueryBuilder::new(
        source,
        Collection::Id("c".to_owned()),
        Intersects::everywhere(),
    )
    .session(session().build().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_provider_pages_to_its_end_once() {
    for (paging, like, matched) in [
        (Paging::Dea, DEA, Some(7)),
        (Paging::EarthSearch, ELEMENT84, Some(7)),
        (Paging::PlanetaryComputer, PLANETARY_COMPUTER, None),
    ] {
        let bed = bed(paging);
        let source = Source::api(&bed.stac_url()).unwrap().like(&like);
        let query = everything(source)
            .page_size(2)
            .cloudcover((Cmp::Less, 30))
            .build()
            .unwrap();
        let found = query.search_async().await.unwrap();
        assert_eq!(ids(&found), SEVEN, "{paging:?}");
        let log = bed.requests(Service::Stac);
        let asked: Vec<_> = log.iter().map(|r| (&*r.method, &*r.path)).collect();
        assert_eq!(asked, [("POST", "/stac/search"); 4], "{paging:?}");
        let report = found.report();
        assert_eq!((report.requests, report.pages), (4, 4), "{paging:?}");
        assert_eq!((report.matched, report.returned), (matched, 7));
        assert_eq!((report.duplicates, report.dropped_total()), (0, 0));
        assert_eq!(report.filters_ignored, [""; 0], "{paging:?}");
        assert!(report.complete && report.bytes > 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_that_is_not_known_is_asked_how_once() {
    for paging in [Paging::Dea, Paging::EarthSearch, Paging::PlanetaryComputer] {
        let bed = bed(paging);
        let query = everything(Source::api(&bed.stac_url()).unwrap())
            .page_size(3)
            .cloudcover((Cmp::Less, 30))
            .build()
            .unwrap();
        let found = query.search_async().await.unwrap();
        assert_eq!(ids(&found), SEVEN, "{paging:?}");
        let log = bed.requests(Service::Stac);
        let methods: Vec<_> = log.iter().map(|request| &*request.method).collect();
        assert_eq!(methods, ["GET", "POST", "POST", "POST"], "{paging:?}");
        assert_eq!(found.report().filters_ignored, [""; 0], "{paging:?}");
        assert_eq!(found.report().filters_here, [""; 0], "{paging:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_landing_page_says_where_the_search_is_on_its_own_server() {
    for (href, search) in [
        ("./find", "/v1/find"),
        ("/find", "/find"),
        // What a server behind a proxy takes for its own address.
        ("http://stac.internal:8080/find", "/v1/search"),
        ("file:///etc/passwd", "/v1/search"),
    ] {
        let server = Server::start(move |asked, _| match &*asked.path {
            "/" => Reply::redirect(302, "/v1/"),
            "/v1/" => json!({
                "type": "Catalog", "id": "x",
                "conformsTo": ["https://api.stacspec.org/v1.0.0/item-search"],
                "links": [
                    {"rel": "search", "method": "GET", "href": href},
                    {"rel": "search", "method": "POST", "href": href},
                ],
            })
            .into(),
            _ => page(&[item("a")], &Value::Null).into(),
        })
        .await;
        let query = everything(Source::api(&server.root).unwrap())
            .build()
            .unwrap();
        assert_eq!(ids(&query.search_async().await.unwrap()), ["a"]);
        let log = server.log();
        let asked: Vec<_> = log.iter().map(|r| (&*r.method, &*r.path)).collect();
        assert_eq!(
            asked,
            [("GET", "/"), ("GET", "/v1/"), ("POST", search)],
            "{href}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_gives_the_same_items_and_asks_for_no_page_it_does_not_need() {
    use futures::{StreamExt, TryStreamExt};

    let bed = bed(Paging::Dea);
    let source = Source::api(&bed.stac_url()).unwrap().like(&DEA);
    let query = everything(source).page_size(2).build().unwrap();
    let all: Vec<_> = query.stream().try_collect().await.unwrap();
    let all: Vec<&str> = all.iter().map(|item| &*item.id).collect();
    assert_eq!(all, SEVEN);
    assert_eq!(bed.log().len(), 4);

    bed.clear_log();
    let mut stream = query.stream();
    assert_eq!(stream.matched(), None);
    let some: Vec<_> = (&mut stream).take(4).try_collect().await.unwrap();
    assert_eq!(some.len(), 4);
    assert_eq!(bed.log().len(), 2);
    // What the server said, and what came so far.
    assert_eq!(stream.matched(), Some(7));
    assert_eq!((stream.report().pages, stream.report().returned), (2, 4));
}

/// Serves three pages of two items; `at` reads the page's number from a request, `next` makes the
/// link to a page.
async fn three_pages(
    at: fn(&Asked) -> Option<u64>,
    next: fn(&str, u64) -> Value,
) -> (QueryResult, Vec<Asked>) {
    let server = Server::start(move |asked, root| {
        let at = at(asked).unwrap_or(0);
        let items = [item(&format!("{at}-0")), item(&format!("{at}-1"))];
        match at {
            0..=1 => page(&items, &next(root, at + 1)),
            _ => page(&items, &Value::Null),
        }
    })
    .await;
    let query = query(&server.root).page_size(2).build().unwrap();
    let found = query.search_async().await.unwrap();
    assert_eq!(ids(&found), ["0-0", "0-1", "1-0", "1-1", "2-0", "2-1"]);
    let log = server.log();
    assert_eq!(log.len(), 3);
    assert_eq!(found.report().requests, 3);
    assert_eq!(log[0].body, json!({"collections": ["c"], "limit": 2}));
    (found, log)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_next_link_by_get_is_followed_as_it_stands() {
    let (_, log) = three_pages(
        |asked| asked.parameter("page")?.parse().ok(),
        |root, n| json!({"rel": "next", "href": format!("{root}/search?collections=c&q=a%2Cb&page={n}")}),
    )
    .await;
    let asked: Vec<_> = log[1..].iter().map(|r| (&*r.method, &*r.query)).collect();
    assert_eq!(
        asked,
        [
            ("GET", "collections=c&q=a%2Cb&page=1"),
            ("GET", "collections=c&q=a%2Cb&page=2"),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_next_link_by_offset_is_followed_as_it_stands() {
    let (_, log) = three_pages(
        |asked| Some(asked.parameter("_o")?.parse::<u64>().ok()? / 2),
        |root, n| {
            let href = format!(
                "{root}/search?collections=c&limit=2&_o={}&_full=True",
                2 * n
            );
            json!({"rel": "next", "method": "GET", "href": href})
        },
    )
    .await;
    assert_eq!(log[2].query, "collections=c&limit=2&_o=4&_full=True");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relative_next_link_is_resolved_against_its_page() {
    let (_, log) = three_pages(
        |asked| asked.parameter("page")?.parse().ok(),
        |_, n| json!({"rel": "next", "href": format!("./search?page={n}")}),
    )
    .await;
    assert_eq!((&*log[2].path, &*log[2].query), ("/search", "page=2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_next_link_with_a_body_replaces_the_search() {
    let (_, log) = three_pages(
        |asked| asked.body["page"].as_u64(),
        |root, n| {
            json!({
                "rel": "next", "method": "POST", "href": format!("{root}/search"),
                "body": {"collections": ["c"], "fields": {}, "page": n},
            })
        },
    )
    .await;
    assert_eq!(
        log[2].body,
        json!({"collections": ["c"], "fields": {}, "page": 2})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_next_link_that_merges_keeps_the_search() {
    let (_, log) = three_pages(
        |asked| asked.body["_o"].as_u64(),
        |root, n| {
            json!({
                "rel": "next", "method": "POST", "merge": true, "href": format!("{root}/search"),
                "body": {"_o": n},
            })
        },
    )
    .await;
    assert_eq!(
        log[2].body,
        json!({"collections": ["c"], "limit": 2, "_o": 2})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_the_body_leads_on() {
    let (_, log) = three_pages(
        |asked| {
            asked.body["token"]
                .as_str()?
                .strip_prefix("next:c:")?
                .parse()
                .ok()
        },
        |root, n| {
            json!({
                "rel": "next", "method": "post", "merge": false, "href": format!("{root}/search"),
                "body": {"collections": ["c"], "limit": 2, "token": format!("next:c:{n}")},
            })
        },
    )
    .await;
    assert_eq!(log[2].method, "POST");
    assert_eq!(log[2].body["token"], "next:c:2");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_post_is_asked_by_get() {
    let server = Server::start(|asked, root| {
        if asked.method == "POST" {
            return Reply::status(405, "");
        }
        match asked.parameter("page") {
            None => {
                let href = format!("{root}/search?{}&page=2", asked.query);
                page(&[item("a")], &json!({"rel": "next", "href": href})).into()
            }
            Some(_) => page(&[item("b")], &Value::Null).into(),
        }
    })
    .await;
    let query = query(&server.root).page_size(1).build().unwrap();
    let found = query.search_async().await.unwrap();
    assert_eq!(ids(&found), ["a", "b"]);
    let log = server.log();
    let asked: Vec<_> = log.iter().map(|r| (&*r.method, &*r.query)).collect();
    assert_eq!(
        asked,
        [
            ("POST", ""),
            ("GET", "collections=c&limit=1"),
            ("GET", "collections=c&limit=1&page=2"),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_that_is_redirected_stays_a_post() {
    for status in [301, 302, 303, 307, 308] {
        let server = Server::start(move |asked, _| match &*asked.path {
            "/search" => Reply::redirect(status, "/v2/search"),
            _ => page(&[item("a")], &Value::Null).into(),
        })
        .await;
        let found = query(&server.root)
            .build()
            .unwrap()
            .search_async()
            .await
            .unwrap();
        assert_eq!(ids(&found), ["a"], "{status}");
        let log = server.log();
        assert_eq!((&*log[1].method, &*log[1].path), ("POST", "/v2/search"));
        assert_eq!(log[1].body, log[0].body, "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_is_redirected_to_no_other_server_and_not_for_ever() {
    let other = Server::start(|_, _| page(&[item("stolen")], &Value::Null)).await;
    let to = format!("{}/search?sig=CANARYSECRET", other.root);
    let server = Server::start(move |_, _| Reply::redirect(307, to.clone())).await;
    let err = query(&server.root)
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Denied);
    assert!(err.message().contains(&other.root), "{err}");
    assert!(!format!("{err} {err:?}").contains("CANARY"), "{err:?}");
    assert!(other.log().is_empty());

    let server = Server::start(|_, _| Reply::redirect(302, "/search")).await;
    let err = query(&server.root)
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Corrupt);
    assert_eq!(err.message(), "more than 5 redirects");
    assert_eq!(server.log().len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_next_link_that_repeats_is_an_error_and_ends() {
    let server = Server::start(|_, root| {
        let next = json!({"rel": "next", "method": "POST", "merge": true,
            "href": format!("{root}/search"), "body": {"token": "same"}});
        page(&[item("a")], &next)
    })
    .await;
    let err = query(&server.root)
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Corrupt);
    assert_eq!(
        err.message(),
        "the link to the next page leads to a page that was fetched before"
    );
    assert_eq!(server.log().len(), 2);

    let query = query(&server.root).keep_partial().build().unwrap();
    let found = query.search_async().await.unwrap();
    assert_eq!(ids(&found), ["a"]);
    assert!(!found.report().complete);
    let stopped = found.report().stopped.as_deref().unwrap();
    assert!(
        stopped.ends_with("a page that was fetched before"),
        "{stopped}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_never_end_stop_at_the_page_limit() {
    let server = Server::start(|asked, root| {
        let n = asked.body["token"].as_u64().unwrap_or(0) + 1;
        let next = json!({"rel": "next", "method": "POST", "merge": true,
            "href": format!("{root}/search"), "body": {"token": n}});
        page(&[item(&n.to_string())], &next)
    })
    .await;
    let build = |pages| query(&server.root).max_pages(pages);
    let err = build(4).build().unwrap().search_async().await.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
    assert!(
        err.message()
            .starts_with("the search has more than 4 pages"),
        "{err}"
    );
    assert_eq!(server.log().len(), 4);

    let found = build(4)
        .keep_partial()
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap();
    assert_eq!(ids(&found), ["1", "2", "3", "4"]);
    assert!(!found.report().complete);
    // As many as the limit asks for are in the pages that are allowed.
    let found = build(4)
        .limit(4)
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap();
    assert_eq!(found.len(), 4);
    assert!(found.report().complete);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_next_page_on_another_host_is_not_asked_for() {
    let other = Server::start(|_, _| page(&[item("stolen")], &Value::Null)).await;
    let elsewhere = format!("{}/search?sig=CANARYSECRET", other.root);
    for href in [
        elsewhere.as_str(),
        "//example.com/search?sig=CANARYSECRET",
        "file:///etc/passwd?sig=CANARYSECRET",
        "ftp://127.0.0.1/search?sig=CANARYSECRET",
    ] {
        let next = json!({"rel": "next", "href": href});
        let server = Server::start(move |_, _| page(&[item("a")], &next)).await;
        let err = query(&server.root)
            .build()
            .unwrap()
            .search_async()
            .await
            .unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Denied, "{href}: {err}");
        assert!(err.message().contains("on another server"), "{err}");
        assert!(!format!("{err} {err:?}").contains("CANARY"), "{err:?}");
        assert_eq!(server.log().len(), 1);

        let partial = query(&server.root).keep_partial().build().unwrap();
        let found = partial.search_async().await.unwrap();
        assert_eq!(ids(&found), ["a"]);
        assert!(!format!("{:?}", found.report()).contains("CANARY"));
    }
    assert!(other.log().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_page_in_the_middle_is_not_the_end() {
    let server = Server::start(|asked, root| {
        let at = asked.body["token"].as_u64().unwrap_or(0);
        let next = json!({"rel": "next", "method": "POST", "merge": true,
            "href": format!("{root}/search"), "body": {"token": at + 1}});
        match at {
            0 => page(&[item("a")], &next),
            1 | 2 => page(&[], &next),
            _ => page(&[item("b")], &Value::Null),
        }
    })
    .await;
    let found = query(&server.root)
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap();
    assert_eq!(ids(&found), ["a", "b"]);
    assert_eq!(found.report().pages, 4);
    assert!(found.report().complete);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_that_comes_twice_is_kept_once() {
    let server = Server::start(|asked, root| {
        let next = json!({"rel": "next", "method": "POST", "merge": true,
            "href": format!("{root}/search"), "body": {"token": 1}});
        match asked.body["token"].as_u64() {
            None => page(&[item("a"), item("b"), item("a")], &next),
            Some(_) => page(&[item("b"), item("c")], &Value::Null),
        }
    })
    .await;
    let found = query(&server.root)
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap();
    assert_eq!(ids(&found), ["a", "b", "c"]);
    assert_eq!((found.report().returned, found.report().duplicates), (5, 2));

    // Duplicates do not count as found.
    let found = query(&server.root).limit(3).build().unwrap();
    assert_eq!(ids(&found.search_async().await.unwrap()), ["a", "b", "c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_kept_in_the_middle_of_a_page() {
    let bed = bed(Paging::Dea);
    let source = Source::api(&bed.stac_url()).unwrap().like(&DEA);
    for (limit, requests) in [(1, 1), (2, 1), (3, 2), (6, 3), (7, 4), (100, 4)] {
        bed.clear_log();
        let query = everything(source.clone()).page_size(2).limit(limit);
        let found = query.build().unwrap().search_async().await.unwrap();
        assert_eq!(ids(&found), SEVEN[..limit.min(7)]);
        assert_eq!(bed.log().len(), requests, "limit {limit}");
        assert!(found.report().complete);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_never_asked_for_with_more_than_the_limit_or_the_servers_most() {
    let server = Server::start(|_, _| page(&[item("a")], &Value::Null)).await;
    query(&server.root)
        .limit(5)
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap();
    query(&server.root)
        .page_size(5000)
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap();
    query(&server.root)
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap();
    let limits: Vec<_> = server
        .log()
        .iter()
        .map(|r| r.body["limit"].clone())
        .collect();
    assert_eq!(limits, [5, 1000, 100]);
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_of_a_next_link_are_sent_to_its_server() {
    let server = Server::start(|asked, root| {
        let next = json!({"rel": "next", "href": format!("{root}/search?page=2"),
            "headers": {"X-Cursor": "abc", "X-Number": 7, "Host": "evil", "Bad Name": "x", "X-List": []}});
        match asked.query.contains("page=2") {
            false => page(&[item("a")], &next),
            true => page(&[item("b")], &Value::Null),
        }
    })
    .await;
    let found = query(&server.root)
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap();
    assert_eq!(ids(&found), ["a", "b"]);
    let log = server.log();
    let sent = |at: usize, name: &str| {
        log[at]
            .headers
            .get(name)
            .map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(sent(0, "x-cursor"), None);
    assert_eq!(sent(1, "x-cursor").as_deref(), Some("abc"));
    assert_eq!(sent(1, "x-number").as_deref(), Some("7"));
    assert_ne!(sent(1, "host").as_deref(), Some("evil"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_asked_for_compressed() {
    use libdeflater::{CompressionLvl, Compressor};

    let server = Server::start(|asked, _| {
        let text = page(&[item("a")], &Value::Null).to_string();
        let mut compressor = Compressor::new(CompressionLvl::default());
        let mut body = vec![0; compressor.gzip_compress_bound(text.len())];
        let length = compressor
            .gzip_compress(text.as_bytes(), &mut body)
            .unwrap();
        body.truncate(length);
        let encoding = match asked.query.contains("br") {
            true => "br",
            false => "gzip",
        };
        Reply {
            status: 200,
            headers: vec![("content-encoding", encoding.to_owned())],
            body,
        }
    })
    .await;
    let found = query(&server.root)
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap();
    assert_eq!(ids(&found), ["a"]);
    assert_eq!(server.log()[0].headers["accept-encoding"], "gzip");

    let other = format!("{}/?x=br", server.root);
    let err = query(&other)
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap_err();
    assert_eq!(
        err.message(),
        "a body compressed by br, which was not asked for"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_byte_order_mark_is_no_part_of_a_page() {
    let server = Server::start(|_, _| {
        Reply::status(200, format!("\u{feff}{}", page(&[item("a")], &Value::Null)))
    })
    .await;
    let found = query(&server.root)
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap();
    assert_eq!(ids(&found), ["a"]);
}
