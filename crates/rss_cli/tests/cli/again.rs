//! `rss again`, and what outputs say of where they come from.

use serde_json::Value;

use super::stage::{SEED, Stage};

const FORMULA: &str = "ndvi=(nir-red)/(nir+red)";

fn apply(stage: &Stage, more: &[&str]) -> Value {
    let url = stage.bed.stac_url();
    let how = [
        "--expr", FORMULA, "--mask", "clouds", "--dilate", "2", "--reduce", "median", "--json",
    ];
    let args = [&["apply", &url], SEED, &how, more].concat();
    stage.run(&args).json()
}

#[test]
fn an_output_says_where_it_comes_from() {
    let stage = Stage::new();
    let said = apply(&stage, &["-o", "ndvi.tif", "--stac"]);
    assert_eq!(said["mask"]["classes"], "clouds");
    assert_eq!(said["mask"]["dilation"], 2);
    assert!(said["computed"].as_str().unwrap().starts_with("median of"));
    let item: Value =
        serde_json::from_slice(&std::fs::read(stage.path("ndvi.json")).unwrap()).unwrap();
    assert_eq!(
        (&item["type"], &item["id"]),
        (&"Feature".into(), &"ndvi".into())
    );
    assert_eq!(item["properties"]["proj:code"], "EPSG:32756");
    assert_eq!(
        item["properties"]["proj:shape"],
        serde_json::json!([1200, 1200])
    );
    assert_eq!(item["properties"]["datetime"], Value::Null);
    let provenance = &item["properties"]["rss:provenance"];
    assert_eq!(provenance["items"].as_array().unwrap().len(), 4);
    assert_eq!(
        provenance["time"]["start"],
        item["properties"]["start_datetime"]
    );
    let data = &item["assets"]["data"];
    assert_eq!(
        (&data["href"], &data["bands"][0]["name"]),
        (&"./ndvi.tif".into(), &"ndvi".into())
    );
    assert_eq!(data["bands"][0]["nodata"], "nan");
    let bytes = std::fs::metadata(stage.path("ndvi.tif")).unwrap().len();
    assert_eq!(data["file:size"], bytes);
    assert!(data["file:checksum"].as_str().unwrap().starts_with("1220"));
    let file = std::fs::read(stage.path("ndvi.tif")).unwrap();
    let header = String::from_utf8_lossy(&file[..20_000.min(file.len())]).into_owned();
    for said in [
        "RSS_COMPUTED",
        "RSS_MASK",
        "RSS_ITEMS",
        "RSS_TIME_START",
        "rss_core ",
    ] {
        assert!(header.contains(said), "{said}");
    }
}

#[test]
fn a_result_is_made_once_more_with_the_same_bytes() {
    let stage = Stage::new();
    apply(&stage, &["-o", "ndvi.tif", "--stac"]);
    let url = stage.bed.stac_url();
    let write = ["zarr", "write", &url];
    let how = ["--canonical", "red", "--to", "cube.zarr", "--json"];
    stage.run(&[&write[..], SEED, &how].concat()).json();
    // Without the catalogue: the items are in the record.
    for made in ["ndvi.tif", "cube.zarr"] {
        let ran = stage.run(&["again", made]);
        let said = format!("{made}: the same bytes");
        assert!(ran.text().contains(&said), "{ran:?}");
    }
    stage.run(&["again", "ndvi.json", "-o", "more.tif"]).text();
    let read = |name: &str| std::fs::read(stage.path(name)).unwrap();
    assert!(read("more.tif") == read("ndvi.tif"));
    let none = stage.image("plain.tif", 64, 32756, [0.0, 10.0, 0.0, 0.0, 0.0, -10.0]);
    let err = stage.run(&["again", &none]);
    assert!(err.error().contains("holds no record of how it was made"));
}
