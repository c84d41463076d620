//! Input that cannot be: refused by `build`, before anything is asked of the network.

use rss_core::{
    Cmp, Collection, DEA, Date, ErrorKind, ImageQueryBuilder, Intersects, Source, date,
};
use serde_json::json;

use super::{Server, ids, item, page, session};

fn at(intersects: Intersects) -> ImageQueryBuilder {
    ImageQueryBuilder::new(DEA, Collection::Sentinel2, intersects)
        .session(session().build().unwrap())
}

fn scene() -> ImageQueryBuilder {
    at(Intersects::scene("56jns"))
}

/// Returns the message of a query that must not be built.
fn refused(query: ImageQueryBuilder) -> String {
    let err = query.build().unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput, "{err}");
    err.to_string()
}

#[test]
fn unknown_bands_are_listed_with_the_known_ones() {
    let err = refused(scene().canonical_bands(["rde", "nir", "swir_9"]));
    assert!(
        err.starts_with("bands rde, swir_9 are not known in dea sentinel2; known are "),
        "{err}"
    );
    for known in ["red", "nir", "swir_2"] {
        let list = err.rsplit("known are ").next().unwrap();
        assert!(list.split(", ").any(|name| name == known), "{err}");
    }
    let err = refused(scene().bands(["nbart_red", "B04", "red"]));
    assert!(
        err.starts_with("bands B04, red are not known in dea sentinel2; known are "),
        "{err}"
    );
    assert!(err.contains("nbart_nir_1"), "{err}");

    // Without a manifest nothing knows what is red.
    let c = Collection::Id("c".to_owned());
    let query = ImageQueryBuilder::new(DEA, c, Intersects::everywhere())
        .session(session().build().unwrap())
        .canonical_bands(["red"]);
    assert_eq!(
        refused(query),
        "canonical name `red` needs a manifest, and this collection has none; name bands by their \
         asset keys"
    );
}

#[test]
fn a_scene_that_cannot_be_is_refused() {
    for id in [
        "", "56", "61jns", "00jns", "56ins", "56jn", "56jnss", "300001", "090300", "../etc",
    ] {
        let err = refused(at(Intersects::scene(id)));
        assert!(err.contains("scene"), "`{id}`: {err}");
    }
    assert_eq!(
        refused(at(Intersects::scenes([""; 0]))),
        "no scene was given"
    );
}

#[test]
fn a_box_that_cannot_be_is_refused() {
    for (edges, message) in [
        (
            [-181.0, -30.0, 151.0, -29.0],
            "bbox west is -181, expected -180 to 180 degrees",
        ),
        (
            [150.0, -90.5, 151.0, -29.0],
            "bbox south is -90.5, expected -90 to 90 degrees",
        ),
        (
            [150.0, -30.0, 200.0, -29.0],
            "bbox east is 200, expected -180 to 180 degrees",
        ),
        // Latitude first, as people write it.
        (
            [-30.0, 150.0, -29.0, 151.0],
            "bbox south is 150, expected -90 to 90 degrees",
        ),
        (
            [f64::NAN, -30.0, 151.0, -29.0],
            "bbox west is NaN, expected -180 to 180 degrees",
        ),
        (
            [150.0, -29.0, 151.0, -30.0],
            "bbox south -29 is above north -30; the order is west, south, east, north",
        ),
    ] {
        let [west, south, east, north] = edges;
        assert_eq!(
            refused(at(Intersects::bbox(west, south, east, north))),
            message
        );
    }
    let err = refused(at(Intersects::geometry(
        r#"{"type": "Point", "coordinates": [-27.5, 153.0]}"#,
    )));
    assert!(
        err.starts_with("geometry has a point at -27.5, 153"),
        "{err}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_box_across_the_antimeridian_finds_both_its_sides() {
    let server = Server::start(|_, _| {
        let at = |id: &str, lon: f64| {
            let mut item = item(id);
            item["geometry"]["coordinates"] = json!([lon, -17.0]);
            item["bbox"] = json!([lon, -17.0, lon, -17.0]);
            item
        };
        let items = [at("west", 178.0), at("east", -179.0), at("greenwich", 0.0)];
        page(&items, &json!(null))
    })
    .await;
    let query = ImageQueryBuilder::new(
        Source::api(&server.root).unwrap().like(&DEA),
        Collection::Id("c".to_owned()),
        Intersects::bbox(177.0, -19.0, -178.0, -16.0),
    )
    .session(session().build().unwrap())
    .build()
    .unwrap();
    let found = query.search_async().await.unwrap();
    assert_eq!(ids(&found), ["west", "east"]);
    assert_eq!(found.report().dropped["intersects"], 1);
    assert_eq!(server.log()[0].body["intersects"]["type"], "MultiPolygon");
}

#[test]
fn a_date_that_cannot_be_is_refused() {
    let ends = |start: Date, end: Date| refused(scene().start_date(start).end_date(end));
    assert_eq!(
        ends(date(2021, 2, 1), date(2021, 1, 1)),
        "start date 2021-02-01 is after end date 2021-01-01"
    );
    assert_eq!(
        ends(date(2021, 2, 29), date(2021, 3, 1)),
        "date 2021-02-29 does not exist"
    );
    for (day, shown) in [
        (date(2021, 13, 1), "2021-13-01"),
        (date(2021, 4, 31), "2021-04-31"),
        (date(2021, 0, 0), "2021-00-00"),
        (date(0, 1, 1), "0000-01-01"),
        (date(10_000, 1, 1), "10000-01-01"),
    ] {
        assert_eq!(
            refused(scene().end_date(day)),
            format!("date {shown} does not exist")
        );
    }
    // One day is a span.
    scene()
        .start_date(date(2020, 2, 29))
        .end_date(date(2020, 2, 29))
        .build()
        .unwrap();
}

#[test]
fn a_number_that_cannot_be_is_refused() {
    for percent in [130.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(
            refused(scene().cloudcover((Cmp::Less, percent))),
            format!("cloud cover is {percent}, expected 0 to 100 percent")
        );
    }
    for percent in [0, 100] {
        scene().cloudcover((Cmp::LessEq, percent)).build().unwrap();
    }
    assert_eq!(refused(scene().limit(0)), "limit is 0, expected at least 1");
    assert_eq!(
        refused(scene().page_size(0)),
        "page size is 0, expected at least 1"
    );
    assert_eq!(
        refused(scene().max_pages(0)),
        "page limit is 0, expected at least 1"
    );
    assert_eq!(
        refused(scene().ids(["S2A_20210103"])),
        "id `S2A_20210103` is not a UUID, as ids of dea are"
    );
    let err = refused(scene().property("view:sun_elevation", Cmp::Less, json!([1])));
    assert!(
        err.starts_with("property view:sun_elevation cannot be compared by < with [1]"),
        "{err}"
    );
}

#[test]
fn a_collection_that_the_source_does_not_have_is_refused() {
    let query = |source, collection| {
        ImageQueryBuilder::new(source, collection, Intersects::everywhere())
            .session(session().build().unwrap())
    };
    assert_eq!(
        refused(query(DEA, Collection::Sentinel2C1)),
        "dea has no collection `sentinel2-c1`; name it by its id in the API, or add a manifest"
    );
    let api = Source::api("https://example.com/stac?token=CANARYSECRET").unwrap();
    assert_eq!(
        refused(query(api, Collection::Sentinel2)),
        "https://example.com/stac has no collection `sentinel2`; name it by its id in the API, or \
         add a manifest"
    );
    refused(query(DEA, Collection::Id(String::new())));
}

#[test]
fn a_source_that_is_no_url_is_refused() {
    for text in [
        "dae",
        "example.com/stac",
        "/stac",
        "file:///stac",
        "s3://bucket/stac",
        "http://",
    ] {
        let err = Source::api(text).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
        assert_eq!(
            err.to_string(),
            format!(
                "source `{text}` is not one of dea, element84, planetary-computer or the http(s) \
                 URL of a STAC API"
            )
        );
    }
    let err = "dae?token=CANARYSECRET".parse::<Source>().unwrap_err();
    assert!(!format!("{err} {err:?}").contains("CANARY"), "{err:?}");
}
