//! Answers that real servers gave, and some like them, replayed: `tests/data/search` says where each is
//! from.

use std::{collections::BTreeSet, fs, path::PathBuf};

use rss_core::{
    Cmp, Collection, DEA, ELEMENT84, ErrorKind, ImageQueryBuilder, Intersects, Manifest,
    PLANETARY_COMPUTER, QueryResult, Source,
};
use serde_json::{Value, json};

use super::{Reply, Server, ids, page, session};

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/search"))
}

fn record(name: &str) -> Value {
    let text = fs::read_to_string(folder().join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The body of a recorded answer, with `from`, where it came from, replaced by `to`.
fn body(name: &str, from: &str, to: &str) -> Value {
    let record = record(name);
    let body = record.get("response").unwrap_or(&record)["body"].to_string();
    if from.is_empty() {
        return serde_json::from_str(&body).unwrap();
    }
    serde_json::from_str(&body.replace(from, to)).unwrap()
}

/// The body of the request whose answer was recorded.
fn request(name: &str) -> Value {
    record(name)["request"]["body"].clone()
}

const DEA_ROOT: &str = "https://explorer.dea.ga.gov.au";
const EARTH_SEARCH: &str = "https://earth-search.aws.element84.com";
const MICROSOFT: &str = "https://planetarycomputer.microsoft.com";

/// Both collections of the DEA pages.
const MANIFEST: &str = "
source: dea
collection: recorded
stac_collections: [ga_s2am_ard_3, ga_ls5t_nbart_gm_cyear_3]
cloud_cover: eo:cloud_cover
bands:
  - {asset: nbart_red, resolution: 10, dtype: int16, kind: reflectance}
";

fn dea(server: &Server, like: &Source) -> ImageQueryBuilder {
    ImageQueryBuilder::new(
        Source::api(&format!("{}/stac", server.root))
            .unwrap()
            .like(like),
        Collection::Id("recorded".to_owned()),
        Intersects::everywhere(),
    )
    .manifest(Manifest::from_yaml(MANIFEST).unwrap())
    .session(session().build().unwrap())
    .page_size(1)
}

const DEA_ITEMS: [&str; 2] = [
    "e2baf679-c20a-479f-86c5-ffd98c65ff87",
    "57814bc4-6fdf-4fa1-84e5-865b364c4284",
];

#[test]
fn every_recorded_file_has_its_origin_stated() {
    let text = fs::read_to_string(folder().join("README.md")).unwrap();
    let stated: BTreeSet<String> = text
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()))
        .collect();
    let there: BTreeSet<String> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "README.md")
        .collect();
    assert_eq!(stated, there);
}

#[tokio::test(flavor = "multi_thread")]
async fn deas_pages_are_followed_by_post() {
    let server = Server::start(|asked, root| match asked.body["_o"].as_u64() {
        None => body("dea_post_page1.json", DEA_ROOT, root),
        Some(_) => body("dea_post_page2.json", DEA_ROOT, root),
    })
    .await;
    let found = dea(&server, &DEA)
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap();
    assert_eq!(ids(&found), DEA_ITEMS);
    let log = server.log();
    let search = json!({"collections": ["ga_s2am_ard_3", "ga_ls5t_nbart_gm_cyear_3"], "limit": 1});
    assert_eq!(log[0].body, search);
    let mut second = search;
    second["_o"] = json!(1);
    assert_eq!((log.len(), &log[1].body), (2, &second));
    assert_eq!(found.report().matched, Some(2));
    assert!(found.report().complete);

    let item = &found.items().items[0];
    assert_eq!(
        found.assets(item)[0].1.href,
        "s3://dea-public-data/baseline/ga_s2am_ard_3/49/JFM/2016/12/14/20161214T092514/\
         ga_s2am_nbart_3-2-1_49JFM_2016-12-14_final_band04.tif"
    );
    assert_eq!(
        item.properties.datetime.unwrap().to_rfc3339(),
        "2016-12-14T02:43:17.461+00:00"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn deas_pages_are_followed_by_get() {
    let server = Server::start(
        |asked, root| match (&*asked.method, asked.parameter("_o")) {
            ("POST", _) => Reply::status(405, ""),
            (_, None) => body("dea_get_page1.json", DEA_ROOT, root).into(),
            _ => body("dea_post_page2.json", DEA_ROOT, root).into(),
        },
    )
    .await;
    let found = dea(&server, &DEA)
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap();
    assert_eq!(ids(&found), DEA_ITEMS);
    let log = server.log();
    assert_eq!(log.len(), 3);
    assert_eq!(log[2].path, "/stac/search");
    assert_eq!(
        log[2].query,
        "collections=ga_s2am_ard_3&limit=1&_o=1&_full=True"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn deas_refusal_of_a_query_is_understood() {
    let server = Server::start(|asked, root| match &asked.body["query"] {
        Value::Null => body("dea_post_page2.json", DEA_ROOT, root).into(),
        _ => {
            let refused = body("dea_query_refused.json", DEA_ROOT, root);
            Reply::status(400, refused.to_string())
        }
    })
    .await;
    let query = dea(&server, &ELEMENT84)
        .cloudcover((Cmp::Less, 40))
        .build()
        .unwrap();
    let found = query.search_async().await.unwrap();
    // A composite of a year has no cloud cover.
    assert_eq!(found.report().dropped["eo:cloud_cover < 40"], 1);
    assert!(found.is_empty());
    assert_eq!(server.log().len(), 2);
    let ignored = &found.report().filters_ignored[0];
    assert!(
        ignored.ends_with(
            "Bad Request, The Query extension is no longer supported. Please use the Filter \
             extension instead."
        ),
        "{ignored}"
    );
}

fn earth_search(server: &Server, collection: &str, intersects: Intersects) -> ImageQueryBuilder {
    ImageQueryBuilder::new(
        Source::api(&format!("{}/v1", server.root))
            .unwrap()
            .like(&ELEMENT84),
        Collection::Id(collection.to_owned()),
        intersects,
    )
    .session(session().build().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn earth_searchs_token_is_sent_back_as_it_came() {
    let server = Server::start(|asked, root| match asked.body["next"].as_str() {
        None => body("earthsearch_page1.json", EARTH_SEARCH, root),
        Some(_) => page(&[], &Value::Null),
    })
    .await;
    let query = earth_search(&server, "cop-dem-glo-30", Intersects::everywhere())
        .build()
        .unwrap();
    let found = query.search_async().await.unwrap();
    assert_eq!(found.len(), 10);
    assert_eq!(ids(&found)[9], "Copernicus_DSM_COG_10_S90_00_W171_00_DEM");
    assert_eq!(found.report().matched, Some(26450));
    let first = &found.items().items[0];
    assert_eq!(
        found.assets(first)[0].1.href,
        "s3://copernicus-dem-30m/Copernicus_DSM_COG_10_S90_00_W180_00_DEM/\
         Copernicus_DSM_COG_10_S90_00_W180_00_DEM.tif"
    );
    let log = server.log();
    assert_eq!((&*log[1].method, &*log[1].path), ("POST", "/v1/search"));
    // It does not merge: the search is in the link, and nothing is added to it.
    assert_eq!(
        log[1].body,
        json!({
            "collections": ["cop-dem-glo-30"],
            "next": "2021-04-22T00:00:00Z,Copernicus_DSM_COG_10_S90_00_W171_00_DEM,cop-dem-glo-30",
        })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn items_without_a_geometry_are_judged_by_their_box() {
    let server = Server::start(|asked, root| match asked.body["next"].as_str() {
        None => body("earthsearch_without_geometry.json", EARTH_SEARCH, root),
        Some(_) => page(&[], &Value::Null),
    })
    .await;
    let point = Intersects::geometry(r#"{"type": "Point", "coordinates": [-105.1019, 40.1672]}"#);
    let query = earth_search(&server, "sentinel-2-c1-l2a", point)
        .build()
        .unwrap();
    let found = query.search_async().await.unwrap();
    assert_eq!((found.len(), found.report().dropped_total()), (10, 0));
    let recorded = request("earthsearch_without_geometry.json");
    assert_eq!(server.log()[0].body["intersects"], recorded["intersects"]);

    let elsewhere = Intersects::bbox(-106.0, 41.0, -105.0, 42.0);
    let query = earth_search(&server, "sentinel-2-c1-l2a", elsewhere)
        .build()
        .unwrap();
    let found = query.search_async().await.unwrap();
    assert_eq!((found.len(), found.report().dropped["intersects"]), (0, 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_that_says_nothing_of_conformance_is_searched_by_its_link() {
    let server = Server::start(|asked, root| match &*asked.path {
        "/v0" => body("earthsearch_v0_root.json", EARTH_SEARCH, root),
        _ => page(&[], &Value::Null),
    })
    .await;
    let query = ImageQueryBuilder::new(
        Source::api(&format!("{}/v0/", server.root)).unwrap(),
        Collection::Id("sentinel-s2-l2a-cogs".to_owned()),
        Intersects::everywhere(),
    )
    .session(session().build().unwrap())
    .cloudcover((Cmp::Less, 30))
    .build()
    .unwrap();
    let found = query.search_async().await.unwrap();
    let log = server.log();
    let asked: Vec<_> = log.iter().map(|r| (&*r.method, &*r.path)).collect();
    assert_eq!(asked, [("GET", "/v0"), ("POST", "/v0/search")]);
    assert_eq!(
        log[1].body,
        json!({"collections": ["sentinel-s2-l2a-cogs"]})
    );
    assert_eq!(found.report().filters_here, ["eo:cloud_cover < 30"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn earth_searchs_own_words_are_in_the_error() {
    let server = Server::start(|_, root| {
        let gone = body("earthsearch_not_found.json", EARTH_SEARCH, root);
        Reply::status(404, gone.to_string())
    })
    .await;
    let query = earth_search(&server, "foo", Intersects::everywhere())
        .build()
        .unwrap();
    let err = query.search_async().await.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::NotFound);
    assert!(err.message().ends_with(": NotFound, Not Found"), "{err}");
    assert_eq!(server.log().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_planetary_computer_is_asked_as_it_was_recorded() {
    let server = Server::start(|asked, root| match asked.body["token"].as_str() {
        None => body("pc_page1.json", MICROSOFT, root),
        Some("next:naip:vt_m_4307307_nw_18_060_20211029") => body("pc_page2.json", MICROSOFT, root),
        Some(_) => page(&[], &Value::Null),
    })
    .await;
    let query = ImageQueryBuilder::new(
        Source::api(&format!("{}/api/stac/v1", server.root))
            .unwrap()
            .like(&PLANETARY_COMPUTER),
        Collection::Id("naip".to_owned()),
        Intersects::bbox(-73.21, 43.99, -73.12, 44.05),
    )
    .session(session().build().unwrap())
    .page_size(10)
    .build()
    .unwrap();
    let found = query.search_async().await.unwrap();
    assert_eq!(found.len(), 20);
    assert_eq!(ids(&found)[10], "vt_m_4307307_ne_18_060_20211029");
    let log = server.log();
    assert_eq!(log.len(), 3);
    assert_eq!(log[0].body, request("pc_page1.json"));
    assert_eq!(log[1].body, request("pc_page2.json"));
    assert_eq!(
        log[2].body["token"],
        "next:naip:vt_m_4307307_ne_18_h_20160805"
    );
    let report = found.report();
    assert_eq!(
        (report.matched, report.duplicates, report.dropped_total()),
        (None, 0, 0)
    );
    // Of image, thumbnail, tiles and preview, one is a raster to read.
    let assets = found.assets(&found.items().items[0]);
    assert_eq!(assets.len(), 1);
    assert_eq!(assets[0].0, "image");
    assert!(
        assets[0]
            .1
            .href
            .starts_with("https://naipeuwest.blob.core.windows.net/naip/")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_static_catalogue_is_read_over_http_and_from_disk() {
    // The record holds the two ends; the collection between them is made here.
    let collection = json!({
        "type": "Collection", "id": "landsat-8-l1",
        "links": [{"rel": "item", "href": "./2018-06/LC80140332018166LGN00.json"}],
    });
    let documents = [
        ("catalog.json", body("static_catalog.json", "", "")),
        ("landsat-8-l1/collection.json", collection),
        (
            "landsat-8-l1/2018-06/LC80140332018166LGN00.json",
            body("static_item.json", "", ""),
        ),
    ];
    let dir = tempfile::tempdir().unwrap();
    for (name, document) in &documents {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, document.to_string()).unwrap();
    }
    let server = Server::start(move |asked, _| {
        let name = asked.path.trim_start_matches('/');
        match documents.iter().find(|(known, _)| *known == name) {
            Some((_, document)) => document.clone().into(),
            None => Reply::status(404, ""),
        }
    })
    .await;
    let session = session().build().unwrap();
    let url = format!("{}/catalog.json", server.root);
    let file = dir.path().join("catalog.json");
    for found in [
        QueryResult::from_url_async(&session, &url).await.unwrap(),
        QueryResult::from_file_async(&session, &file).await.unwrap(),
    ] {
        assert_eq!(ids(&found), ["LC80140332018166LGN00"]);
        assert!(found.report().complete, "{:?}", found.report());
        assert_eq!(
            found.items().items[0].assets["B1"].href,
            "https://s3-us-west-2.amazonaws.com/landsat-pds/c1/L8/014/033/\
             LC08_L1TP_014033_20180615_20180703_01_T1/LC08_L1TP_014033_20180615_20180703_01_T1_B1.TIF"
        );
    }
    assert_eq!(server.log().len(), 3);
}
