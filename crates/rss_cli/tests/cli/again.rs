//! `rss again`, and what outputs say of where they come from.

use serde_json::Value;

use super::stage::{SEED, Stage, python, root};

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
fn a_table_is_made_once_more_with_the_same_bytes() {
    let stage = Stage::new();
    let plots = r#"{"type": "Feature", "id": "a", "properties": {},
        "geometry": {"type": "Point", "coordinates": [153.05, -25.35]}}"#;
    stage.write("plots.json", plots);
    let mut made = vec!["plots.csv", "plots.jsonl"];
    if cfg!(feature = "arrow") {
        made.extend(["plots.parquet", "plots.arrow"]);
    }
    let url = stage.bed.stac_url();
    let how = [
        "--canonical",
        "red",
        "--points",
        "plots.json",
        "--mask",
        "clouds",
        "--nearest",
        "50",
    ];
    for name in &made {
        let record: &[&str] = match name.ends_with("csv") || name.ends_with("jsonl") {
            true => &["--record"],
            false => &[],
        };
        let args = [&["sample", &url], SEED, &how, &["-o", *name], record].concat();
        stage.run(&args).text();
    }
    // The points are in the record, and so are the items.
    std::fs::remove_file(stage.path("plots.json")).unwrap();
    for name in made {
        let ran = stage.run(&["again", name]);
        assert!(
            ran.text().contains(&format!("{name}: the same bytes")),
            "{ran:?}"
        );
    }
    stage
        .run(&["again", "plots.csv.json", "-o", "more.csv"])
        .text();
    let read = |name: &str| std::fs::read(stage.path(name)).unwrap();
    assert!(read("more.csv") == read("plots.csv"));
    let beside: Value = serde_json::from_slice(&read("plots.csv.json")).unwrap();
    let provenance = &beside["rss:provenance"];
    assert_eq!(provenance["items"].as_array().unwrap().len(), 4);
    assert_eq!(provenance["mask"]["classes"], "clouds");
    assert_eq!(
        (&provenance["nearest_m"], &provenance["bands"][0]["name"]),
        (&50.0.into(), &"red".into())
    );
    // Without a record there is none to run.
    stage.run(&["again", "more.csv"]).error();
    let err = stage.run(
        &[
            &["sample", &url],
            SEED,
            &["--canonical", "red", "--point", "153.05,-25.35", "--record"],
        ]
        .concat(),
    );
    assert!(err.error().contains("--record is for a table"), "{err:?}");
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

/// The version of each file that was read is recorded, without a request of its own, and a file that is another now is named.
#[test]
fn a_source_that_has_changed_since_is_named() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    apply(&stage, &["-o", "ndvi.tif", "--stac"]);
    let write = ["zarr", "write", &url];
    let bands = ["--canonical", "red,nir"];
    for (to, how) in [
        ("copied.zarr", &["--by", "month"][..]),
        ("computed.zarr", &["--reflectance"]),
    ] {
        stage
            .run(&[&write[..], SEED, &bands, how, &["--to", to]].concat())
            .text();
    }
    let item: Value =
        serde_json::from_slice(&std::fs::read(stage.path("ndvi.json")).unwrap()).unwrap();
    let versions = &item["properties"]["rss:provenance"]["items"][0]["versions"];
    assert_eq!(versions.as_object().unwrap().len(), 3, "{versions}");
    let red = &versions["nbart_red"];
    assert!(red["etag"].as_str().unwrap().starts_with('"'), "{red}");
    assert!(red["bytes"].as_u64().unwrap() > 1000, "{red}");
    let made = ["ndvi.tif", "copied.zarr", "computed.zarr"];
    for made in made {
        let ran = stage.run(&["again", made]);
        assert!(ran.text().contains("the same bytes"), "{ran:?}");
        assert!(!ran.stderr.contains("changed"), "{ran:?}");
    }
    // One file is written anew: other bytes, the same pixels.
    let href = item["properties"]["rss:provenance"]["items"][0]["assets"]["nbart_red"].as_str();
    let (bucket, key) = href
        .and_then(|href| href.strip_prefix("s3://")?.split_once('/'))
        .unwrap();
    let mut bytes = stage.bed.object(bucket, key).unwrap().to_vec();
    bytes.push(0);
    stage.bed.put(bucket, key, bytes);
    for made in made {
        let ran = stage.run(&["again", made, "-o", &format!("again-{made}")]);
        let said = "has changed since it was recorded";
        assert_eq!(ran.stderr.matches(said).count(), 1, "{made}: {ran:?}");
    }
}

/// The core by the JSON schemas of STAC, the fields of extensions by their specifications.
#[test]
fn stac_items_are_valid() {
    let Some(python) = python() else { return };
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    apply(&stage, &["-o", "ndvi.tif", "--stac"]);
    apply(&stage, &["--every", "10d", "-o", "periods.zarr", "--stac"]);
    let sinusoidal = "+proj=sinu +lon_0=153 +R=6371007.181 +units=m";
    for (command, name, how) in [
        ("mosaic", "mosaic.tif", &["--raw"][..]),
        ("apply", "layers.tif", &["--raw"]),
        (
            "mosaic",
            "degrees.tif",
            &["--crs", "4326", "--resolution", "0.001"],
        ),
        (
            "mosaic",
            "sinusoidal.tif",
            &["--crs", sinusoidal, "--resolution", "100"],
        ),
    ] {
        let what = ["--canonical", "red,nir", "--stac", "-o", name];
        stage
            .run(&[&[command, &url], SEED, &what, how].concat())
            .text();
    }
    let names = [
        "ndvi",
        "periods",
        "mosaic",
        "layers",
        "degrees",
        "sinusoidal",
    ];
    let items: Vec<String> = names.map(|name| stage.path(&format!("{name}.json"))).into();
    let script = root().join("scripts/check_stac.py");
    let mut args = vec![script.to_str().unwrap()];
    args.extend(items.iter().map(String::as_str));
    let done = python(&args);
    let said = String::from_utf8_lossy(&done.stdout);
    let wrong = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}\n{wrong}");
}

#[test]
fn a_stac_item_takes_the_place_of_no_other_document() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    let found = stage.run(&[&["search", &url], SEED, &["--json"]].concat());
    let items = found.text();
    stage.write("out.json", items);
    let args = ["apply", "--items", "out.json", "--stac", "-o", "out.tif"];
    let ran = stage.run(&args);
    assert!(ran.error().contains("is no STAC Item of rss"), "{ran:?}");
    assert_eq!(
        std::fs::read_to_string(stage.path("out.json")).unwrap(),
        items
    );
}

/// The document stands for the result beside it, in whatever folder.
#[test]
fn a_document_beside_a_result_is_enough_to_make_it_again() {
    let stage = Stage::new();
    let folder = stage.path("made");
    std::fs::create_dir(&folder).unwrap();
    apply(&stage, &["-o", "made/ndvi.tif", "--stac"]);
    let ran = stage.run(&["again", "made/ndvi.json"]);
    assert_eq!(ran.text(), "made/ndvi.tif: the same bytes\n");
    let point = ["--canonical", "red", "--point", "153.05,-25.35"];
    stage
        .seed(
            "sample",
            &[&point[..], &["-o", "made/a.csv", "--record"]].concat(),
        )
        .text();
    for name in ["made/a.csv", "made/a.csv.json"] {
        let said = stage.run(&["again", name, "--json"]).json();
        assert_eq!(said["same"], true);
        assert_eq!(said["location"], "made/a.csv");
    }
    let said = stage
        .run(&["again", "made/a.csv", "--json", "-o", "b.csv"])
        .json();
    assert_eq!(said["made"], "b.csv");
}
