//! Items from files and static catalogues: relative links, broken children, and what a catalogue on
//! the network may not name.

use std::{fs, path::Path};

use rss_core::{ErrorKind, QueryResult, Trust};
use serde_json::{Value, json};

use super::{Reply, Server, ids, item, page, query, session};

fn catalogue(id: &str, links: &[(&str, &str)]) -> Value {
    let links: Vec<_> = links
        .iter()
        .map(|(rel, href)| json!({"rel": rel, "href": href}))
        .collect();
    json!({"type": "Catalog", "stac_version": "1.0.0", "id": id, "description": "", "links": links})
}

/// An item with a relative asset.
fn beside(id: &str) -> Value {
    let mut item = item(id);
    item["assets"]["red"]["href"] = json!("./red.tif");
    item
}

fn write(dir: &Path, name: &str, document: &Value) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, document.to_string()).unwrap();
}

/// The documents of a catalogue: two levels, one collection, three items, one of them linked twice.
fn documents() -> [(&'static str, Value); 6] {
    let mut collection = catalogue(
        "c",
        &[
            ("root", "../catalog.json"),
            ("item", "a/a.json"),
            ("item", "./b/b.json"),
        ],
    );
    collection["type"] = json!("Collection");
    [
        (
            "catalog.json",
            catalogue(
                "root",
                &[
                    ("self", "./catalog.json"),
                    ("root", "./catalog.json"),
                    ("child", "./c/collection.json"),
                    ("child", "more/catalog.json"),
                ],
            ),
        ),
        ("c/collection.json", collection),
        ("c/a/a.json", beside("a")),
        ("c/b/b.json", beside("b")),
        (
            "more/catalog.json",
            catalogue(
                "more",
                &[
                    ("item", "items.json"),
                    ("item", "../c/a/a.json"),
                    ("child", "../catalog.json"),
                ],
            ),
        ),
        (
            "more/items.json",
            page(&[beside("d"), beside("a")], &Value::Null),
        ),
    ]
}

/// A server of these documents, by their paths; of others it has none.
async fn serve(documents: Vec<(&'static str, Value)>) -> Server {
    Server::start(move |asked, _| {
        let name = asked.path.trim_start_matches('/');
        match documents.iter().find(|(known, _)| *known == name) {
            Some((_, document)) => document.clone().into(),
            None => Reply::status(404, ""),
        }
    })
    .await
}

fn hrefs(found: &QueryResult) -> Vec<&str> {
    let items = found.items().items.iter();
    items.map(|item| &*item.assets["red"].href).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_file_is_read_with_hrefs_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "x/item.json", &beside("a"));
    let session = session().build().unwrap();
    let red = dir.path().join("x/red.tif");
    let file = dir.path().join("x/item.json");
    let url = format!("file://{}", file.display());
    for found in [
        QueryResult::from_file_async(&session, &file).await.unwrap(),
        QueryResult::from_url_async(&session, &url).await.unwrap(),
    ] {
        assert_eq!(ids(&found), ["a"]);
        assert_eq!(hrefs(&found), [red.to_str().unwrap()]);
        assert!(found.report().complete);
        assert_eq!((found.report().pages, found.report().returned), (1, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_item_collection_file_is_read() {
    let dir = tempfile::tempdir().unwrap();
    write(
        dir.path(),
        "items.json",
        &page(&[beside("a"), item("b"), item("a")], &Value::Null),
    );
    let session = session().build().unwrap();
    let found = QueryResult::from_file_async(&session, dir.path().join("items.json"))
        .await
        .unwrap();
    assert_eq!(ids(&found), ["a", "b"]);
    assert_eq!(
        hrefs(&found),
        [
            dir.path().join("red.tif").to_str().unwrap(),
            "s3://bucket/b.tif"
        ]
    );
    assert_eq!(found.report().duplicates, 1);
    assert_eq!(found.report().conflicts, ["a"]);
    assert!(found.report().complete);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalogue_on_disk_is_read_to_its_leaves() {
    let dir = tempfile::tempdir().unwrap();
    for (name, document) in documents() {
        write(dir.path(), name, &document);
    }
    let session = session().build().unwrap();
    let root = dir.path().join("catalog.json");
    let found = QueryResult::from_file_async(&session, &root).await.unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let mut both: Vec<_> = ids(&found).into_iter().zip(hrefs(&found)).collect();
    both.sort_unstable();
    // Item a stands in two documents; the first one read says where its files are.
    assert_eq!(both[0].0, "a");
    assert_eq!(
        both[1..],
        [("b", &*path("c/b/red.tif")), ("d", &*path("more/red.tif"))]
    );
    assert_eq!(found.report().pages, 6, "each document once");
    assert_eq!(found.report().duplicates, 1);
    assert_eq!(found.report().skipped, []);
    assert!(found.report().complete);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalogue_over_http_costs_one_request_a_document() {
    let server = serve(documents().to_vec()).await;
    let session = session().build().unwrap();
    let url = format!("{}/catalog.json", server.root);
    let found = QueryResult::from_url_async(&session, &url).await.unwrap();
    let mut all = ids(&found);
    all.sort_unstable();
    assert_eq!(all, ["a", "b", "d"]);
    let b = found
        .items()
        .items
        .iter()
        .find(|item| item.id == "b")
        .unwrap();
    assert_eq!(b.assets["red"].href, format!("{}/c/b/red.tif", server.root));
    let mut paths: Vec<_> = server.log().into_iter().map(|asked| asked.path).collect();
    paths.sort();
    let mut wanted: Vec<_> = documents().map(|(name, _)| format!("/{name}")).into();
    wanted.sort();
    assert_eq!(paths, wanted);
    assert!(found.report().complete);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_child_does_not_lose_its_siblings() {
    let links = [
        ("item", "gone.json?sig=CANARYSECRET"),
        ("item", "a.json"),
        ("child", "page.html"),
    ];
    let session = session().build().unwrap();

    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "catalog.json", &catalogue("root", &links));
    write(dir.path(), "a.json", &item("a"));
    fs::write(dir.path().join("page.html"), "<html></html>").unwrap();
    let file = dir.path().join("catalog.json");
    let on_disk = QueryResult::from_file_async(&session, &file).await.unwrap();

    let server = Server::start(move |asked, _| match &*asked.path {
        "/catalog.json" => catalogue("root", &links).into(),
        "/a.json" => item("a").into(),
        "/page.html" => Reply::status(200, "<html></html>"),
        _ => Reply::status(404, ""),
    })
    .await;
    let url = format!("{}/catalog.json", server.root);
    let over_http = QueryResult::from_url_async(&session, &url).await.unwrap();

    for (found, gone) in [(on_disk, "no such file"), (over_http, "404")] {
        assert_eq!(ids(&found), ["a"]);
        let report = found.report();
        assert!(!report.complete);
        assert!(
            report.stopped.as_deref().unwrap().contains(gone),
            "{report:?}"
        );
        assert_eq!(report.skipped.len(), 2);
        assert!(report.skipped[0].reason.contains(gone), "{report:?}");
        assert!(report.skipped[1].item.ends_with("page.html"), "{report:?}");
        assert!(
            report.skipped[1].reason.contains("HTML")
                || report.skipped[1].reason.contains("<html>")
        );
    }
    assert_eq!(server.log().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_that_cannot_be_read_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let session = session().build().unwrap();
    let gone = dir.path().join("gone.json");
    let err = QueryResult::from_file_async(&session, &gone)
        .await
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::NotFound);
    assert_eq!(err.to_string(), format!("{}: no such file", gone.display()));

    fs::write(&gone, "<html>").unwrap();
    let err = QueryResult::from_file_async(&session, &gone)
        .await
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Corrupt);
    assert_eq!(err.location(), gone.to_str());

    let server = serve(Vec::new()).await;
    let url = format!("{}/catalog.json?sig=CANARYSECRET", server.root);
    let err = QueryResult::from_url_async(&session, &url)
        .await
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::NotFound);
    assert_eq!(
        err.location(),
        Some(&*format!("{}/catalog.json", server.root))
    );
    assert!(!format!("{err} {err:?}").contains("CANARY"), "{err:?}");

    let err = QueryResult::from_url_async(&session, "ftp://h/catalog.json")
        .await
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
}

#[test]
fn json_of_a_catalogue_is_refused() {
    let session = session().build().unwrap();
    for links in [
        &[("item", "./a.json")][..],
        &[("child", "https://example.com/c.json")],
        &[],
    ] {
        let json = catalogue("root", links).to_string();
        for trust in [Trust::User, Trust::Network] {
            let err = QueryResult::from_json(&session, json.as_bytes(), trust).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::InvalidInput, "{links:?} {trust:?}");
            assert!(
                err.message()
                    .starts_with("a catalogue; read it from its file or URL"),
                "{err}"
            );
        }
    }
    let found = QueryResult::from_json(&session, item("a").to_string().as_bytes(), Trust::User);
    let found = found.unwrap();
    assert_eq!((ids(&found), found.report().complete), (vec!["a"], true));
    let none = page(&[], &Value::Null).to_string();
    assert!(
        QueryResult::from_json(&session, none.as_bytes(), Trust::User)
            .unwrap()
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_catalogue_on_the_network_does_not_get_local_files() {
    // An item that could be read, were it asked for.
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "secret.json", &item("secret"));
    let file = dir.path().join("secret.json");
    let file = file.to_str().unwrap().to_owned();
    let links: Vec<String> = [
        format!("file://{file}"),
        format!("FILE://{file}"),
        format!("file:{file}"),
        format!("/vsicurl/file://{file}"),
        format!("/vsisubfile/0_100,{file}"),
        format!("/vsizip/{file}"),
        "file:///etc/passwd".to_owned(),
        "/vsistdin/".to_owned(),
    ]
    .into();
    let count = links.len();
    // An absolute path is one of the server's own, where there is no such document.
    let own = file.clone();
    let server = Server::start(move |asked, _| match &*asked.path {
        "/catalog.json" => {
            let mut all: Vec<_> = links.iter().map(|link| ("item", &**link)).collect();
            all.push(("item", &own));
            all.push(("item", "./moved.json"));
            all.push(("item", "./a.json"));
            catalogue("evil", &all).into()
        }
        "/moved.json" => Reply::redirect(302, format!("file://{own}")),
        "/a.json" => item("a").into(),
        _ => Reply::status(404, ""),
    })
    .await;
    let session = session().build().unwrap();
    let url = format!("{}/catalog.json", server.root);
    let found = QueryResult::from_url_async(&session, &url).await.unwrap();
    assert_eq!(ids(&found), ["a"]);
    let report = found.report();
    assert!(!report.complete);
    assert_eq!(report.skipped.len(), count + 2, "{:#?}", report.skipped);
    let refused = |why: &str| {
        report
            .skipped
            .iter()
            .filter(|one| one.reason.contains(why))
            .count()
    };
    assert_eq!(
        refused("may not name a local file"),
        4,
        "{:#?}",
        report.skipped
    );
    assert_eq!(
        refused("may not name a GDAL virtual path"),
        4,
        "{:#?}",
        report.skipped
    );
    assert_eq!(refused("it was not followed"), 1, "{:#?}", report.skipped);
    let mut paths: Vec<_> = server.log().into_iter().map(|asked| asked.path).collect();
    paths.sort();
    let mut wanted = ["/a.json", "/catalog.json", "/moved.json", &*file];
    wanted.sort_unstable();
    assert_eq!(paths, wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_catalogue_that_leads_to_the_network_does_not_lend_its_trust() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "secret.json", &item("secret"));
    let secret = format!("file://{}", dir.path().join("secret.json").display());
    let server = Server::start(move |asked, _| match &*asked.path {
        "/catalog.json" => catalogue("evil", &[("item", &secret), ("item", "./a.json")]),
        _ => {
            let mut item = item("a");
            item["assets"]["blue"] = json!({"href": "file:///etc/passwd"});
            item["assets"]["green"] = json!({"href": "/vsicurl/file:///etc/passwd"});
            item
        }
    })
    .await;
    let remote = format!("{}/catalog.json", server.root);
    write(
        dir.path(),
        "catalog.json",
        &catalogue("mine", &[("child", &remote)]),
    );
    let session = session().build().unwrap();
    let found = QueryResult::from_file_async(&session, dir.path().join("catalog.json"))
        .await
        .unwrap();
    assert_eq!(ids(&found), ["a"]);
    let keys: Vec<_> = found.items().items[0].assets.keys().collect();
    assert_eq!(keys, ["red"]);
    let skipped: Vec<_> = found
        .report()
        .skipped
        .iter()
        .map(|one| one.asset.as_deref())
        .collect();
    assert_eq!(skipped, [None, Some("blue"), Some("green")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_asset_of_a_search_does_not_become_a_local_file() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret.tif");
    fs::write(&secret, "secret").unwrap();
    let secret = secret.to_str().unwrap();
    for href in [
        format!("file://{secret}"),
        format!("file:{secret}"),
        format!("/vsicurl/file://{secret}"),
        format!("/vsisubfile/0_6,{secret}"),
        "/vsizip//etc/passwd".to_owned(),
    ] {
        let named = href.clone();
        let server = Server::start(move |_, _| {
            let mut item = item("a");
            item["assets"]["red"]["href"] = json!(named);
            page(&[item], &Value::Null)
        })
        .await;
        let session = session()
            .cache_dir(dir.path().join("cache"))
            .build()
            .unwrap();
        let searched = query(&server.root)
            .session(session.clone())
            .build()
            .unwrap();
        let read = QueryResult::from_url_async(&session, &server.root)
            .await
            .unwrap();
        for found in [searched.search_async().await.unwrap(), read] {
            assert_eq!(ids(&found), ["a"]);
            let out = dir.path().join("out");
            let err = found.download_async(&out).await.unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Denied, "{href}: {err}");
            let err = found.get_remote_async().await.unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Denied, "{href}: {err}");
            assert!(!out.join("a").exists(), "{href}");
        }
    }
}
