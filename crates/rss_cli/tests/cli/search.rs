//! `rss search`: the items of a query, and one line for a query that cannot be.

use rss_testbed::{Fault, Rule, Scenes, Service, Testbed};
use serde_json::json;

use super::stage::{Ran, Stage, assets, ids, items, sorted};

/// A box in the middle of tile 56JNS that touches no other tile.
const BBOX: &str = "153.4,-25.9,153.5,-25.8";
const JANUARY: &[&str] = &[
    "--start",
    "2021-01-01",
    "--end",
    "2021-02-01",
    "--cloud-below",
    "30",
];

#[test]
fn the_seed_query_finds_its_four_items() {
    let stage = Stage::new();
    let found = stage.seed("search", &["--json"]).json();
    assert_eq!(ids(&found), stage.ids());
    for item in items(&found) {
        assert_eq!(item["type"], "Feature");
        assert_eq!(item["properties"]["odc:region_code"], "56JNS");
        assert_eq!(
            assets(&item),
            ["checksum:sha1", "nbart_nir_1", "nbart_red", "oa_fmask"]
        );
    }
    assert_eq!(stage.fetches(), 0);
}

#[test]
fn a_table_has_one_row_per_item() {
    let stage = Stage::new();
    let ran = stage.seed("search", &["--canonical", "red,nir"]);
    let lines: Vec<&str> = ran.text().lines().collect();
    assert_eq!(lines.len(), 5, "{lines:?}");
    let heads: Vec<&str> = lines[0]
        .split("  ")
        .filter(|head| !head.is_empty())
        .collect();
    assert_eq!(
        heads.iter().map(|head| head.trim()).collect::<Vec<_>>(),
        ["id", "datetime", "cloud %", "platform", "bands"]
    );
    let first = &stage.bed.scenes()[0];
    let row = lines.iter().find(|line| line.starts_with(&first.id));
    let row: Vec<&str> = row.unwrap().split_whitespace().collect();
    assert_eq!(
        row,
        [
            first.id.as_str(),
            "2021-01-03T23:56:39Z",
            "12.5",
            "sentinel-2a",
            "nbart_red,nbart_nir_1"
        ]
    );
}

#[test]
fn named_bands_are_the_only_assets_of_the_json() {
    let stage = Stage::new();
    for (named, kept) in [
        (["--bands", "nbart_red"], vec!["nbart_red"]),
        (
            ["--bands", "oa_fmask,nbart_red"],
            vec!["nbart_red", "oa_fmask"],
        ),
        (["--canonical", "nir"], vec!["nbart_nir_1"]),
        (["--canonical", "red,nir"], vec!["nbart_nir_1", "nbart_red"]),
    ] {
        let more = [&named[..], &["--json"]].concat();
        let found = stage.seed("search", &more).json();
        assert_eq!(ids(&found), stage.ids());
        for item in items(&found) {
            assert_eq!(assets(&item), kept, "{named:?}");
        }
    }
}

#[test]
fn a_box_a_geometry_and_a_feature_find_the_same() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    let ring = json!([[
        [153.4, -25.9],
        [153.5, -25.9],
        [153.5, -25.8],
        [153.4, -25.8],
        [153.4, -25.9]
    ]]);
    let polygon = json!({"type": "Polygon", "coordinates": ring});
    let feature = json!({"type": "Feature", "geometry": polygon, "properties": {}});
    let polygon = stage.write("polygon.geojson", polygon.to_string());
    let feature = stage.write("feature.geojson", feature.to_string());
    for place in [
        ["--bbox", BBOX],
        ["--geometry", &polygon],
        ["--geometry", &feature],
    ] {
        let search = ["search", &url, "sentinel2", "--like", "dea", "--json"];
        let ran = stage.run(&[&search, &place[..], JANUARY].concat());
        assert_eq!(ids(&ran.json()), stage.ids(), "{place:?}");
    }
    let ran = stage.run(&["search", &url, "atlantis", "--like", "dea"]);
    ran.nothing();
    let elsewhere = ["--bbox", "-70.5,-33.5,-70,-33", "--json"];
    let search = ["search", &url, "sentinel2", "--like", "dea"];
    let ran = stage.run(&[&search, &elsewhere[..]].concat());
    ran.nothing();
}

#[test]
fn a_limit_is_the_most_items() {
    let stage = Stage::new();
    let found = stage.seed("search", &["--limit", "2", "--json"]).json();
    assert_eq!(ids(&found).len(), 2);
    assert!(ids(&found).iter().all(|id| stage.ids().contains(id)));
}

#[test]
fn a_platform_is_kept_to() {
    let stage = Stage::new();
    let ran = stage.seed("search", &["--platform", "sentinel-2a", "--json"]);
    assert_eq!(ids(&ran.json()), [stage.bed.scenes()[0].id.clone()]);
}

#[test]
fn nothing_found_is_exit_1_and_an_empty_collection() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    let nothing = [
        "search",
        &url,
        "sentinel2",
        "--like",
        "dea",
        "--scene",
        "56jns",
        "--start",
        "1999-01-01",
        "--end",
        "1999-02-01",
    ];
    let ran = stage.run(&nothing);
    ran.nothing();
    assert_eq!(ran.stdout, b"");
    for command in ["search", "remote", "get"] {
        let mut args = nothing.to_vec();
        args[0] = command;
        args.push("--json");
        if command == "get" {
            args.extend(["--to", "out"]);
        }
        let ran = stage.run(&args);
        ran.nothing();
        let found: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(found["type"], "FeatureCollection", "{command}");
        assert_eq!(found["features"], json!([]), "{command}");
    }
}

#[test]
fn a_bad_argument_is_one_line_and_exit_2() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    stage.write("page.html", "<html></html>");
    let of = |more: &[&'static str]| {
        let search = ["search", &url, "sentinel2", "--like", "dea"];
        let args = [&search, more].concat();
        stage.run(&args).error().to_owned()
    };
    for (more, part) in [
        (&["--scene", "56jns", "--canonical", "purple"][..], "purple"),
        (&["--scene", "56jns", "--bands", "red,"], "band"),
        (&["--scene", "99zzz"], "99zzz"),
        (&["--scene", ""], "scene"),
        (&["--bbox", "1,2,3"], "1,2,3"),
        (&["--bbox", "1,2,3,x"], "1,2,3,x"),
        (&["--bbox", "0,10,1,-10"], "10"),
        (&["--bbox", "0,-91,1,0"], "-91"),
        (&["--bbox", "0,nan,1,0"], "NaN"),
        (&["--start", "2021-02-01", "--end", "2021-01-01"], "2021-0"),
        (&["--start", "2021-13-01"], "2021-13-01"),
        (&["--start", "yesterday"], "yesterday"),
        (&["--cloud-below", "cloudy"], "cloudy"),
        (&["--cloud-below", "nan"], "NaN"),
        (&["--limit", "-1"], "-1"),
        (&["--limit", "0"], "limit"),
        (&["--geometry", "absent.geojson"], "absent.geojson"),
        (&["--geometry", "page.html"], "geometry"),
        (&["--manifest", "absent.yaml"], "absent.yaml"),
        (&["--scene", "56jns", "--bbox", "1,2,3,4"], "--bbox"),
        (&["--bands", "a", "--canonical", "red"], "--canonical"),
        (&["--no-such-flag"], "--no-such-flag"),
    ] {
        let error = of(more);
        assert!(error.contains(part), "{more:?}: {error}");
    }
    for (args, part) in [
        (&["search"][..], "SOURCE"),
        (&["search", "dea"], "COLLECTION"),
        (&["search", "atlantis", "sentinel2"], "atlantis"),
        (&["search", "ftp://h/stac", "sentinel2"], "ftp://h/stac"),
        (
            &["search", "dea", "sentinel2", "--like", "atlantis"],
            "atlantis",
        ),
        (&["search", "dea", "a", "b"], "b"),
        (&["find"], "find"),
        (&["get", "dea", "sentinel2"], "--to"),
        (&["get", "--to", "out"], "stdin is empty"),
        (&["remote"], "stdin is empty"),
        (
            &["get", "--to", "out", "--items", "absent.json"],
            "absent.json",
        ),
        (&["get", "--to", "out", "--items", "page.html"], "page.html"),
        (
            &["get", "--to", "out", "--mode", "teleport", "dea", "x"],
            "teleport",
        ),
        (
            &["get", "--to", "out", "--crop-epsg", "4326", "dea", "x"],
            "--crop",
        ),
        (&["get", "--to", "out", "--crop", "1,2", "dea", "x"], "1,2"),
        (
            &["get", "--to", "out", "--crop", "3,2,1,4", "dea", "x"],
            "3",
        ),
        (
            &["get", "--to", "out", "--concurrency", "0", "dea", "x"],
            "--concurrency",
        ),
        (
            &["remote", "--items", "a.json", "--start", "2021-01-01"],
            "--start",
        ),
        (
            &["remote", "--variant", "carrier-pigeon", "dea", "x"],
            "carrier-pigeon",
        ),
    ] {
        let ran = stage.run(args);
        let error = ran.error();
        assert!(error.contains(part), "{args:?}: {error}");
    }
    assert_eq!(stage.bed.log().len(), 0, "{:?}", stage.bed.log());
}

#[test]
fn a_band_that_no_item_has_is_named() {
    let stage = Stage::new();
    let ran = stage.seed("remote", &["--bands", "nbart_purple"]);
    assert!(ran.error().contains("nbart_purple"), "{ran:?}");
    let ran = stage.seed("get", &["--bands", "nbart_purple", "--to", "out"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("nbart_purple"), "{ran:?}");
}

/// A query that a server of small pages answers in two or three: no page size is sent.
fn of_pages(stage: &Stage, command: &str) -> Ran {
    let url = stage.bed.stac_url();
    let collection = [command, &url, "ga_s2bm_ard_3", "--scene", "56jns", "--json"];
    stage.run(&[&collection, JANUARY].concat())
}

#[test]
fn small_pages_bring_no_fewer_items() {
    let stage = Stage::of(Testbed::builder().scenes(Scenes::small()).page_size(1));
    let found = of_pages(&stage, "search").json();
    let wanted = stage.bed.scenes().iter().skip(1);
    assert_eq!(ids(&found), sorted(wanted.map(|scene| scene.id.clone())));
    assert!(stage.bed.requests(Service::Stac).len() > 3);
}

#[test]
fn a_search_that_breaks_off_prints_what_came_and_fails() {
    let stage = Stage::of(Testbed::builder().scenes(Scenes::small()).page_size(2));
    for command in ["search", "remote"] {
        stage.bed.clear_faults();
        // After the landing page and the first page.
        let rule = Rule::new(Fault::status(400)).on(Service::Stac);
        stage.bed.fault(rule.skip(2));
        let ran = of_pages(&stage, command);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
        assert!(ran.stderr.contains("stopped early"), "{ran:?}");
        let found: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
        let ids = ids(&found);
        assert!(!ids.is_empty() && ids.len() < 3, "{command}: {ids:?}");
    }
}

#[test]
fn a_manifest_describes_bands_and_does_not_choose_the_collection() {
    let stage = Stage::new();
    stage.write(
        "mine.yaml",
        "source: mine\ncollection: chips\nstac_collections: [other_collection]\ncloud_cover: eo:cloud_cover\nbands:\n  - {asset: nbart_red, \
         canonical: red, resolution: 10, dtype: int16, kind: reflectance}\n",
    );
    let url = stage.bed.stac_url();
    let how = [
        "--bbox",
        BBOX,
        "--manifest",
        "mine.yaml",
        "--canonical",
        "red",
        "--json",
    ];
    let search = |collection: &str| {
        stage.run(
            &[
                &["search", &url, collection, "--like", "dea"],
                JANUARY,
                &how,
            ]
            .concat(),
        )
    };
    let ran = search("ga_s2am_ard_3");
    let note =
        "note: ga_s2am_ard_3 is searched, which the manifest does not list (other_collection)";
    assert!(ran.stderr.contains(note), "{}", ran.stderr);
    let found: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert!(!items(&found).is_empty());
    for item in items(&found) {
        assert_eq!(item["collection"], "ga_s2am_ard_3");
        assert_eq!(assets(&item), ["nbart_red"]);
    }
    // The name of its product stands for what it lists, which this catalogue does not have.
    assert_eq!(search("chips").code, Some(1));
    // Items by hand: a note as well.
    stage.write("found.json", found.to_string());
    let ran = stage.run(&[
        "remote",
        "--items",
        "found.json",
        "--manifest",
        "mine.yaml",
        "--canonical",
        "red",
        "--json",
    ]);
    assert!(
        ran.stderr.contains("note: items are of ga_s2am_ard_3"),
        "{}",
        ran.stderr
    );
    let there: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(items(&there).len(), items(&found).len());
}
