//! `rss index`: built once, gone on with after a kill, checked, merged.

use std::{fs, path::Path};

use rss_testbed::{BUCKET, Band, Fault, Rule, Service};

use super::stage::{CANARY, Stage, files, interrupt, wait_until};

/// Writes a list of the red and infrared bands of all scenes.
fn list(stage: &Stage) -> String {
    let scenes = stage.bed.scenes().iter();
    let keys = scenes.flat_map(|scene| [scene.key(Band::Red), scene.key(Band::Nir)]);
    let lines: String = keys.map(|key| format!("s3://{BUCKET}/{key}\n")).collect();
    stage.write("list.txt", lines)
}

/// Returns a stage whose files are in the index `a.parquet`.
fn indexed() -> Stage {
    let stage = Stage::new();
    let list = list(&stage);
    stage
        .run(&["index", "build", &list, "-o", "a.parquet"])
        .text();
    stage
}

#[test]
fn a_list_is_indexed_with_one_request_for_each_file() {
    let stage = Stage::new();
    let list = list(&stage);
    let built = stage
        .run(&["index", "build", &list, "-o", "a.parquet", "--json"])
        .json();
    for (key, expected) in [("files", 8), ("ok", 8), ("requests", 8), ("resumed", 0)] {
        assert_eq!(built[key], expected, "{built}");
    }
    assert_eq!(
        (&built["output"], built["failed"].as_array().unwrap().len()),
        (&"a.parquet".into(), 0)
    );
    assert_eq!(stage.fetches(), 8);
    let info = stage.run(&["index", "info", "a.parquet", "--json"]).json();
    assert_eq!(
        (&info["version"], &info["items"], &info["files"]),
        (&1.into(), &8.into(), &8.into())
    );
    assert_eq!(info["assets"]["data"]["files"], 8);
    assert_eq!(info["bytes"], built["output_bytes"]);
    assert!(
        stage
            .run(&["index", "info", "a.parquet"])
            .text()
            .contains("8 files")
    );

    let again = stage
        .run(&[
            "index",
            "build",
            &list,
            "-o",
            "a.parquet",
            "--append",
            "--json",
        ])
        .json();
    assert_eq!(
        (&again["files"], &again["requests"]),
        (&0.into(), &0.into())
    );
    assert_eq!(stage.fetches(), 8);
    let checked = stage
        .run(&["index", "check", "a.parquet", "--sample", "3", "--json"])
        .json();
    assert_eq!(
        (&checked["checked"], &checked["ok"]),
        (&3.into(), &3.into())
    );
    let merge = [
        "index",
        "merge",
        "a.parquet",
        "a.parquet",
        "-o",
        "b.parquet",
        "--json",
    ];
    assert_eq!(stage.run(&merge).json()["files"], 8);
}

#[test]
fn items_are_piped_from_a_search() {
    let stage = Stage::new();
    let found = stage.seed("search", &["--json"]);
    let args = [
        "index",
        "build",
        "--items",
        "-",
        "--assets",
        "nbart_red",
        "-o",
        "a.parquet",
    ];
    let ran = stage.piped(&args, found.text().as_bytes());
    assert!(
        ran.text()
            .starts_with("a.parquet: 4 items, 4 of 4 files, 4 requests"),
        "{ran:?}"
    );
    let again = [
        "index",
        "build",
        "--parquet",
        "a.parquet",
        "-o",
        "b.parquet",
        "--json",
    ];
    assert_eq!(stage.run(&again).json()["items"], 4);
}

#[test]
fn what_fails_is_said_and_the_rest_is_written() {
    let stage = Stage::new();
    let list = list(&stage);
    let name = stage.bed.scenes()[1].key(Band::Red).to_owned();
    stage.bed.fault(Rule::new(Fault::status(404)).path(&name));
    let ran = stage.run(&["index", "build", &list, "-o", "a.parquet", "--json"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert!(lines[0].contains(&name), "{lines:?}");
    assert_eq!(lines[1], "rss: 1 of 8 files were not indexed");
    let built: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(
        (&built["ok"], built["failed"].as_array().unwrap().len()),
        (&7.into(), 1)
    );
    assert_eq!(
        stage.run(&["index", "info", "a.parquet", "--json"]).json()["files"],
        7
    );
    let ran = stage.run(&["index", "check", "a.parquet"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn drift_is_named_and_mended() {
    let stage = indexed();
    let key = stage.bed.scenes()[0].key(Band::Red).to_owned();
    let other = fs::read(stage.bed.scenes()[1].file(Band::Red).unwrap()).unwrap();
    stage.bed.put(BUCKET, &key, other);
    let ran = stage.run(&["index", "check", "a.parquet", "--json"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert_eq!(ran.stderr, "rss: 1 of 8 files differ from the index\n");
    let checked: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(checked["changed"][0], format!("s3://{BUCKET}/{key}"));
    // Its new header is refused: it is changed, and it failed, and it is one file.
    let denied = Rule::new(Fault::status(403)).on(Service::S3).path(&key);
    stage.bed.fault(denied.skip(1));
    let ran = stage.run(&["index", "check", "a.parquet", "--update"]);
    assert!(
        ran.stderr
            .ends_with("rss: 1 of 8 files differ from the index\n"),
        "{ran:?}"
    );
    stage.bed.clear_faults();
    let mended = stage
        .run(&["index", "check", "a.parquet", "--update", "--json"])
        .json();
    assert_eq!(mended["updated"], 1);
    assert_eq!(
        stage.run(&["index", "check", "a.parquet", "--json"]).json()["ok"],
        8
    );
}

#[test]
fn a_server_that_is_away_is_no_drift() {
    let stage = indexed();
    let key = stage.bed.scenes()[0].key(Band::Red).to_owned();
    let s3 = |fault: Fault| Rule::new(fault).on(Service::S3);
    stage.bed.fault(s3(Fault::status(403)).path(&key));
    let check = ["index", "check", "a.parquet"];
    let part = stage.run(&check);
    stage.bed.clear_faults();
    stage.bed.fault(s3(Fault::status(503)));
    let all = stage.run(&check);
    for (ran, code, files) in [(part, 3, 1), (all, 75, 8)] {
        assert_eq!(ran.code, Some(code), "{ran:?}");
        let end = format!("rss: {files} of 8 files could not be checked\n");
        assert!(ran.stderr.ends_with(&end), "{ran:?}");
    }
}

/// Starts a build that hangs at the fifth file, and waits until some of the first four are in its journal.
fn hanging(stage: &Stage, list: &str) -> std::process::Child {
    stage
        .bed
        .fault(Rule::new(Fault::Hang).on(Service::S3).skip(4));
    let mut command = stage.rss();
    command.args([
        "index",
        "build",
        list,
        "-o",
        "a.parquet",
        "--concurrency",
        "1",
        "--json",
    ]);
    let child = command.spawn().unwrap();
    wait_until(|| stage.fetches() >= 5);
    // The journal is written behind the requests.
    let partial = stage.path("a.parquet.partial");
    wait_until(|| fs::metadata(&partial).is_ok_and(|meta| meta.len() > 1000));
    child
}

fn goes_on(stage: &Stage, list: &str) {
    stage.bed.clear_faults();
    stage.bed.clear_log();
    let built = stage
        .run(&["index", "build", list, "-o", "a.parquet", "--json"])
        .json();
    let resumed = built["resumed"].as_u64().unwrap();
    assert!((1..=4).contains(&resumed), "{built}");
    assert_eq!(built["requests"], 8 - resumed, "{built}");
    assert_eq!(stage.fetches() as u64, 8 - resumed);
    let left: Vec<_> = files(stage.dir.path());
    let names: Vec<_> = left
        .iter()
        .filter_map(|path| Path::new(path).file_name())
        .collect();
    assert_eq!(names, ["a.parquet", "list.txt"]);
}

#[test]
fn a_build_that_was_killed_asks_only_for_the_rest() {
    let stage = Stage::new();
    let list = list(&stage);
    let mut child = hanging(&stage, &list);
    // SIGKILL: nothing of it runs any more.
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!Path::new(&stage.path("a.parquet")).exists());
    goes_on(&stage, &list);
}

#[test]
fn ctrl_c_says_how_to_go_on() {
    let stage = Stage::new();
    let list = list(&stage);
    let ran = interrupt(hanging(&stage, &list));
    assert_eq!(
        ran.error(),
        "rss: interrupted; what is done is in a.parquet.partial: the same command goes on from there"
    );
    goes_on(&stage, &list);
}

#[test]
fn ctrl_c_before_anything_is_read_names_no_file() {
    let stage = Stage::new();
    stage.bed.fault(Rule::new(Fault::Hang).on(Service::S3));
    let mut command = stage.rss();
    let prefix = format!("s3://{BUCKET}/many");
    command.args(["index", "build", "--prefix", &prefix, "-o", "a.parquet"]);
    let child = command.spawn().unwrap();
    wait_until(|| stage.fetches() > 0);
    assert_eq!(interrupt(child).error(), "rss: interrupted");
    assert_eq!(files(stage.dir.path()).len(), 0);
}

#[test]
fn no_secret_is_written_or_said() {
    let stage = Stage::new();
    let key = stage.bed.scenes()[0].key(Band::Red);
    let url = stage.bed.http_url(BUCKET, key);
    let lines = format!("{url}?sig={CANARY}\n{url}.none?sig={CANARY}\n");
    let ran = stage.piped(
        &["index", "build", "-", "-o", "a.parquet"],
        lines.as_bytes(),
    );
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(!ran.stderr.contains(CANARY), "{ran:?}");
    let bytes = fs::read(stage.path("a.parquet")).unwrap();
    assert!(
        !bytes
            .windows(CANARY.len())
            .any(|window| window == CANARY.as_bytes())
    );
}

#[test]
fn what_is_no_index_or_names_nothing_is_one_line() {
    let stage = Stage::new();
    let list = stage.write("list.txt", "");
    let ran = stage.run(&["index", "build", &list, "-o", "a.parquet"]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (Some(1), "rss: nothing to index\n")
    );
    for args in [
        &["index", "info", "none.parquet"][..],
        &["index", "info", &list],
        &["index", "check", &list],
        &["index", "merge", &list, "-o", "b.parquet"],
        &["index", "build", "-o", "a.parquet"],
        &["index", "build", "none.txt", "-o", "a.parquet"],
        &[
            "index",
            "build",
            &list,
            "--prefix",
            "s3://b/c",
            "-o",
            "a.parquet",
        ],
        &[
            "index",
            "build",
            &list,
            "-o",
            "a.parquet",
            "--concurrency",
            "0",
        ],
    ] {
        stage.run(args).error();
    }
    assert_eq!(files(stage.dir.path()).len(), 1);
}

#[test]
fn a_bucket_as_a_whole_is_a_prefix() {
    let stage = Stage::new();
    for prefix in [format!("s3://{BUCKET}"), format!("s3://{BUCKET}/")] {
        let args = [
            "index",
            "build",
            "--prefix",
            &prefix,
            "-o",
            "a.parquet",
            "--json",
        ];
        let built = stage.run(&args).json();
        assert!(built["ok"].as_u64().unwrap() >= 8, "{built}");
        assert_eq!(built["ok"], built["files"], "{built}");
    }
}

#[test]
fn an_asset_that_no_item_has_is_an_error_that_lists_those_there_are() {
    let stage = Stage::new();
    let found = stage.seed("search", &["--json"]);
    let items = stage.write("items.json", found.text());
    let build = [
        "index",
        "build",
        "--items",
        &items,
        "-o",
        "a.parquet",
        "--assets",
    ];
    for names in ["nbart_rde", "nbart_red,nbart_rde"] {
        let ran = stage.run(&[&build[..], &[names]].concat());
        let error = ran.error();
        assert!(
            error.contains("no item has the asset `nbart_rde`"),
            "{error}"
        );
        assert!(
            error.contains("nbart_nir_1, ") && error.contains("nbart_red"),
            "{error}"
        );
    }
    stage.run(&[&build[..], &["nbart_red"]].concat()).text();
}

/// Writes items that name files of the stage, whatever their ids.
fn items_of(stage: &Stage, files: &[(&str, &str)]) -> String {
    let features: Vec<serde_json::Value> = files
        .iter()
        .map(|(id, path)| {
            serde_json::json!({
                "type": "Feature", "stac_version": "1.0.0", "id": id, "collection": "c",
                "bbox": [153.0, -26.0, 153.1, -25.9], "geometry": null, "links": [],
                "properties": {"datetime": "2021-01-01T00:00:00Z"},
                "assets": {"red": {"href": path, "roles": ["data"]}},
            })
        })
        .collect();
    let page = serde_json::json!({"type": "FeatureCollection", "features": features});
    stage.write("items.json", page.to_string())
}

const GRID: [f64; 6] = [500_000.0, 10.0, 0.0, 7_000_000.0, 0.0, -10.0];

#[test]
fn two_items_of_one_id_with_other_files_are_named() {
    let stage = Stage::new();
    let one = stage.image("one.tif", 64, 32756, GRID);
    let two = stage.image("two.tif", 32, 32756, GRID);
    let items = items_of(&stage, &[("a", &one), ("a", &two), ("a", &one)]);
    let build = [
        "index",
        "build",
        "--items",
        &items,
        "-o",
        "a.parquet",
        "--json",
    ];
    let ran = stage.run(&build);
    assert!(ran.error().contains("have other files: a;"), "{ran:?}");
    // The same item twice is one.
    let items = items_of(&stage, &[("a", &one), ("a", &one)]);
    let build = [
        "index",
        "build",
        "--items",
        &items,
        "-o",
        "a.parquet",
        "--json",
    ];
    assert_eq!(stage.run(&build).json()["items"], 1);
}

#[test]
fn ids_of_any_characters_are_found_again() {
    let stage = Stage::new();
    let ids = [
        "a,b",
        "'; drop",
        "\"",
        "a/b\\c",
        "\u{1f30d}\u{e9}",
        " ",
        "a\nb",
        "a\u{0}b",
        "%2e%2e",
    ];
    let paths: Vec<String> = (0..ids.len())
        .map(|i| stage.image(&format!("{i}.tif"), 32, 32756, GRID))
        .collect();
    let pairs: Vec<(&str, &str)> = ids
        .iter()
        .copied()
        .zip(paths.iter().map(String::as_str))
        .collect();
    let items = items_of(&stage, &pairs);
    let built = stage.run(&[
        "index",
        "build",
        "--items",
        &items,
        "-o",
        "a.parquet",
        "--json",
    ]);
    assert_eq!(built.json()["ok"], ids.len());
    let index = rss_core::index::Index::open(stage.path("a.parquet")).unwrap();
    for (id, path) in pairs {
        let entry = index.entry(id, "red").unwrap().unwrap();
        assert_eq!(entry.location.to_string(), path, "{id:?}");
    }
}

#[test]
fn a_local_file_of_the_same_size_and_mtime_is_compared_by_its_header() {
    let stage = Stage::new();
    let path = stage.image("a.tif", 64, 32756, GRID);
    let list = stage.write("list.txt", format!("{path}\n"));
    stage
        .run(&["index", "build", &list, "-o", "a.parquet"])
        .text();
    let check = ["index", "check", "a.parquet", "--json"];
    assert_eq!(stage.run(&check).json()["ok"], 1);
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let length = fs::metadata(&path).unwrap().len();
    // As `cp -p` of another file does.
    let other = [600_000.0, 10.0, 0.0, 7_000_000.0, 0.0, -10.0];
    stage.image("a.tif", 64, 32756, other);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_modified(modified).unwrap();
    assert_eq!(file.metadata().unwrap().len(), length);
    let ran = stage.run(&check);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    let said: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(said["changed"][0], path.as_str(), "{said}");
    let update = ["index", "check", "a.parquet", "--update", "--json"];
    assert_eq!(stage.run(&update).json()["updated"], 1);
    assert_eq!(stage.run(&check).json()["ok"], 1);
}

#[test]
fn an_index_is_a_list_of_items_for_every_command() {
    let stage = Stage::new();
    let found = stage.seed("search", &["--json"]);
    let items = stage.write("items.json", found.text());
    stage
        .run(&[
            "index",
            "build",
            "--items",
            &items,
            "--assets",
            "nbart_red",
            "-o",
            "i.parquet",
            "--json",
        ])
        .json();
    for (from, to) in [(items.as_str(), "a.tif"), ("i.parquet", "b.tif")] {
        let made = [
            "apply",
            "--items",
            from,
            "--bands",
            "nbart_red",
            "--raw",
            "--reduce",
            "median",
            "-o",
            to,
        ];
        stage.run(&made).text();
    }
    let bytes = |name: &str| fs::read(stage.path(name)).unwrap();
    assert!(bytes("a.tif") == bytes("b.tif"));
    // Items of a file, headers of an index: as many requests as by the index alone.
    let counted = |more: &[&str]| {
        let before = stage.fetches();
        let made = [
            "apply",
            "--bands",
            "nbart_red",
            "--raw",
            "--reduce",
            "median",
            "-o",
            "c.tif",
        ];
        stage.run(&[&made, more].concat()).text();
        stage.fetches() - before
    };
    let plain = counted(&["--items", &items]);
    assert_eq!(
        counted(&["--items", &items, "--index", "i.parquet"]),
        plain - 4
    );
    assert_eq!(counted(&["--items", "i.parquet"]), plain - 4);
    let listed = |from: &str| {
        let ran = stage.run(&["remote", "--items", from, "--bands", "nbart_red"]);
        ran.text().to_owned()
    };
    assert_eq!(listed("i.parquet"), listed(&items));
}
