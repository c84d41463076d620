//! `rss get`: files through the cache into a folder, items with local hrefs.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Stdio,
};

use rss_testbed::{BUCKET, Band, Fault, Rule, Service};
use serde_json::Value;

use super::stage::{
    Ran, SEED, Stage, assets, end_by, files, href, ids, interrupt, items, sorted, wait_until,
};

const RED: &[&str] = &["--bands", "nbart_red", "--to", "out"];

/// Returns where the red band of each scene belongs.
fn wanted(stage: &Stage) -> Vec<(String, &Path)> {
    let scenes = stage.bed.scenes().iter();
    let paths = scenes.map(|scene| {
        let name = scene.key(Band::Red).rsplit('/').next().unwrap();
        let path = stage.path(&format!("out/{}/{name}", scene.id));
        (path, scene.file(Band::Red).unwrap())
    });
    sorted(paths)
}

fn hrefs(items: &[Value]) -> Vec<String> {
    sorted(items.iter().map(|item| href(item, "nbart_red").to_owned()))
}

fn piped(stage: &Stage, args: &[&str], stdin: &[u8]) -> Ran {
    let mut command = stage.rss();
    let mut child = command.args(args).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(stdin).unwrap();
    Ran::of(child.wait_with_output().unwrap())
}

#[test]
fn a_file_is_named_by_item_and_name_and_fetched_once() {
    let stage = Stage::new();
    let more = [RED, &["--mode", "copy", "--json"]].concat();
    let found = stage.seed("get", &more).json();
    assert_eq!(ids(&found), stage.ids());
    let wanted = wanted(&stage);
    let paths: Vec<_> = wanted.iter().map(|(path, _)| path.clone()).collect();
    assert_eq!(hrefs(&items(&found)), paths);
    for item in items(&found) {
        assert_eq!(assets(&item), ["nbart_red"]);
    }
    for (path, source) in &wanted {
        assert!(fs::read(path).unwrap() == fs::read(source).unwrap());
        assert!(fs::symlink_metadata(path).unwrap().is_file());
    }
    let delivered: Vec<_> = paths.iter().map(PathBuf::from).collect();
    assert_eq!(files(&stage.dir.path().join("out")), delivered);

    stage.bed.clear_log();
    let more = [RED, &["--mode", "copy"]].concat();
    let again = stage.seed("get", &more);
    let rows: Vec<Vec<&str>> = again
        .text()
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0], ["item", "asset", "bytes", "from", "path"]);
    assert_eq!(rows.len(), 5);
    for row in &rows[1..] {
        assert_eq!((row[1], row[3]), ("nbart_red", "cached"), "{row:?}");
        let bytes = fs::metadata(row[4]).unwrap().len();
        assert_eq!(row[2], bytes.to_string());
    }
    assert_eq!(stage.fetches(), 0);
}

#[test]
fn what_is_fetched_is_said_to_be() {
    let stage = Stage::new();
    let more = [RED, &["--mode", "copy", "--limit", "1"]].concat();
    let ran = stage.seed("get", &more);
    let row: Vec<&str> = ran
        .text()
        .lines()
        .nth(1)
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(row[3], "fetched", "{row:?}");
}

#[test]
fn default_bands_are_those_that_measure() {
    let stage = Stage::new();
    let more = ["--mode", "copy", "--to", "out", "--limit", "1", "--json"];
    let found = stage.seed("get", &more).json();
    assert_eq!(assets(&items(&found)[0]), ["nbart_nir_1", "nbart_red"]);
}

/// Returns the samples of a local int16 file.
fn samples(stage: &Stage, path: &str) -> Vec<i16> {
    let ran = stage.run(&["read", path, "-o", "-"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let pairs = ran.stdout.chunks_exact(2);
    pairs
        .map(|two| i16::from_le_bytes([two[0], two[1]]))
        .collect()
}

#[test]
fn a_translation_has_the_pixels_of_its_source() {
    let stage = Stage::new();
    let more = [RED, &["--json"]].concat();
    let found = stage.seed("get", &more).json();
    let wanted = wanted(&stage);
    let paths: Vec<_> = wanted.iter().map(|(path, _)| path.clone()).collect();
    assert_eq!(hrefs(&items(&found)), paths);
    let scene = &stage.bed.scenes()[0];
    let item = items(&found)
        .into_iter()
        .find(|item| item["id"] == *scene.id);
    let path = href(item.as_ref().unwrap(), "nbart_red").to_owned();
    assert!(samples(&stage, &path) == scene.window(Band::Red, 0, 0, 1200, 1200));
    let info = stage.run(&["info", &path, "--json"]).json();
    assert_eq!(
        (&info["epsg"], &info["nodata"], &info["compression"]),
        (&32756.into(), &(-999).into(), &"DEFLATE".into())
    );

    stage.bed.clear_log();
    let again = stage.seed("get", RED);
    assert_eq!(again.text().matches("cached").count(), 4, "{again:?}");
    assert_eq!(stage.fetches(), 0);
}

#[test]
fn a_crop_in_the_crs_of_the_file_keeps_these_pixels() {
    let stage = Stage::new();
    // From column 100 and row 200, 50 columns and 40 rows; the origin is 499980, 7200040.
    let crop = ["--crop", "500980,7197640,501480,7198040", "--limit", "1"];
    let more = [RED, &crop, &["--json"]].concat();
    let found = stage.seed("get", &more).json();
    let item = &items(&found)[0];
    let info = stage
        .run(&["info", href(item, "nbart_red"), "--json"])
        .json();
    assert_eq!((&info["width"], &info["height"]), (&50.into(), &40.into()));
    assert_eq!(
        info["transform"],
        serde_json::json!([500980.0, 10.0, 0.0, 7198040.0, 0.0, -10.0])
    );
    let scenes = stage.bed.scenes();
    let scene = scenes.iter().find(|scene| item["id"] == *scene.id).unwrap();
    let got = samples(&stage, href(item, "nbart_red"));
    assert!(got == scene.window(Band::Red, 100, 200, 50, 40));
}

#[test]
fn a_crop_in_degrees_is_moved_to_the_file() {
    let stage = Stage::new();
    let crop = [
        "--crop",
        "153.01,-25.34,153.02,-25.33",
        "--crop-epsg",
        "4326",
    ];
    let more = [RED, &crop, &["--limit", "1", "--json"]].concat();
    let found = stage.seed("get", &more).json();
    let path = href(&items(&found)[0], "nbart_red").to_owned();
    let info = stage.run(&["info", &path, "--json"]).json();
    // 0.01 degrees at 25 degrees south: 1006 m by 1108 m, and the pixels at the edges.
    let [width, height] = ["width", "height"].map(|key| info[key].as_u64().unwrap());
    assert!((100..=103).contains(&width), "{width}");
    assert!((110..=114).contains(&height), "{height}");
    let x = info["transform"][0].as_f64().unwrap();
    assert!((x - 501_000.0).abs() < 30.0, "{x}");
}

#[test]
fn a_crop_that_cannot_be_is_one_line() {
    let stage = Stage::new();
    for (crop, part) in [
        (&["--crop", "0,0,10,10"][..], "outside"),
        (&["--crop", "1,2,3,4", "--mode", "copy"], "crop"),
        (&["--crop", "1,2,3,4", "--crop-epsg", "999999"], "999999"),
    ] {
        let more = [RED, &["--limit", "1"], crop].concat();
        let ran = stage.seed("get", &more);
        assert!(ran.error().contains(part), "{ran:?}");
        assert_eq!(files(&stage.dir.path().join("out")).len(), 0);
    }
}

#[test]
fn items_come_from_a_file_from_a_dash_or_from_a_pipe() {
    let stage = Stage::new();
    let found = stage.seed("search", &["--canonical", "red", "--json"]);
    let json = found.text().as_bytes();
    let file = stage.write("items.json", json);
    stage.bed.clear_log();
    let get = [&["get", "--mode", "copy", "--json"], RED].concat();
    let from_file = stage.run(&[&get, &["--items", &file][..]].concat()).json();
    let from_dash = piped(&stage, &[&get, &["--items", "-"][..]].concat(), json).json();
    let from_pipe = piped(&stage, &get, json).json();
    assert_eq!(ids(&from_file), stage.ids());
    assert_eq!(from_dash, from_file);
    assert_eq!(from_pipe, from_file);
    let paths: Vec<_> = wanted(&stage).into_iter().map(|(path, _)| path).collect();
    assert_eq!(hrefs(&items(&from_file)), paths);
    assert_eq!(stage.bed.requests(Service::Stac).len(), 0);
    // One request for each file, in the first of the three runs.
    assert_eq!(stage.fetches(), 4);
}

#[test]
fn items_come_from_a_url() {
    let stage = Stage::new();
    let found = stage.seed("search", &["--limit", "1", "--json"]);
    stage
        .bed
        .put("lists", "items.json", found.text().to_owned());
    let url = stage.bed.http_url("lists", "items.json");
    let get = ["get", "--items", &url, "--mode", "copy", "--json"];
    let fetched = stage.run(&[&get, RED].concat()).json();
    let path = href(&items(&fetched)[0], "nbart_red").to_owned();
    assert!(wanted(&stage).iter().any(|(wanted, _)| *wanted == path));
}

#[test]
fn canonical_names_of_piped_items_are_those_of_their_collection() {
    let stage = Stage::new();
    let found = stage.seed("search", &["--limit", "1", "--json"]);
    let args = ["remote", "--canonical", "nir", "--json"];
    let remote = piped(&stage, &args, found.text().as_bytes()).json();
    assert_eq!(assets(&items(&remote)[0]), ["nbart_nir_1"]);
}

#[test]
fn what_is_no_item_on_stdin_is_one_line() {
    let stage = Stage::new();
    for stdin in [
        &b""[..],
        b"{",
        b"<html>",
        b"[1]",
        b"\xff\xfe",
        b"{\"type\": 1}",
    ] {
        let ran = piped(&stage, &["get", "--to", "out"], stdin);
        assert!(ran.error().contains("stdin"), "{ran:?}");
    }
}

#[test]
fn one_missing_object_stops_the_rest_unless_told_to_go_on() {
    let stage = Stage::new();
    let missing = &stage.bed.scenes()[1];
    let name = missing.key(Band::Red).rsplit('/').next().unwrap();
    stage.bed.fault(Rule::new(Fault::status(404)).path(name));
    for mode in ["copy", "translate"] {
        let more = [RED, &["--mode", mode, "--json"]].concat();
        let ran = stage.seed("get", &more);
        assert!(ran.error().contains(name), "{ran:?}");

        let ran = stage.seed("get", &[&more, &["--keep-going"][..]].concat());
        assert_eq!(ran.code, Some(3), "{ran:?}");
        let lines: Vec<&str> = ran.stderr.lines().collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains(&missing.id) && lines[0].contains(name));
        assert_eq!(lines[1], "rss: 1 of 4 files were not fetched");
        let found: Value = serde_json::from_slice(&ran.stdout).unwrap();
        let fetched: Vec<_> = items(&found)
            .iter()
            .flat_map(|item| item["assets"].as_object().unwrap().values())
            .map(|asset| asset["href"].as_str().unwrap().to_owned())
            .collect();
        let wanted = wanted(&stage).into_iter().map(|(path, _)| path);
        let wanted: Vec<_> = wanted.filter(|path| !path.ends_with(name)).collect();
        assert_eq!(sorted(fetched), wanted);
        assert!(wanted.iter().all(|path| Path::new(path).is_file()));
        fs::remove_dir_all(stage.path("out")).unwrap();
    }
}

#[test]
fn a_folder_that_cannot_be_is_one_line() {
    let stage = Stage::new();
    stage.write("out", "mine");
    let ran = stage.seed("get", &[RED, &["--mode", "copy"]].concat());
    assert!(ran.error().contains("expected a directory"), "{ran:?}");
    assert_eq!(fs::read(stage.path("out")).unwrap(), b"mine");
    assert_eq!(stage.fetches(), 0);
}

#[test]
fn hrefs_of_a_server_name_no_local_file() {
    let stage = Stage::new();
    let mut item = stage.bed.scenes()[0].item.clone();
    item["id"] = "evil".into();
    item["assets"]["nbart_red"]["href"] = "/etc/passwd".into();
    stage.bed.add_item(item).unwrap();
    let ran = stage.seed("get", &[RED, &["--mode", "copy"]].concat());
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert_eq!(files(&stage.dir.path().join("out")).len(), 0);
}

#[test]
fn ctrl_c_leaves_no_file() {
    for mode in ["copy", "translate"] {
        for fault in [Fault::Hang, Fault::HangInBody, Fault::Drip(5_000)] {
            let stage = Stage::new();
            stage.bed.fault(Rule::new(fault.clone()).on(Service::S3));
            let url = stage.bed.stac_url();
            let mut command = stage.rss();
            command.args(["get", &url]).args(SEED).args(RED);
            command.args(["--mode", mode, "--json"]);
            let child = command.spawn().unwrap();
            wait_until(|| !stage.bed.requests(Service::S3).is_empty());
            let ran = interrupt(child);
            assert_eq!(ran.error(), "rss: interrupted", "{mode} {fault:?}");
            assert_eq!(files(stage.dir.path()), [""; 0].map(Path::new));

            // What is left in the cache is no entry, and a later run clears it up.
            stage.bed.clear_faults();
            let info = stage.run(&["cache", "info", "--json"]).json();
            assert_eq!(info["entries"], 0, "{info}");
            stage.run(&["cache", "clean"]).text();
            let info = stage.run(&["cache", "info", "--json"]).json();
            assert_eq!((&info["leftovers"], &info["bytes"]), (&0.into(), &0.into()));
        }
    }
}

#[test]
fn sigterm_leaves_no_file() {
    let stage = Stage::new();
    stage
        .bed
        .fault(Rule::new(Fault::HangInBody).on(Service::S3));
    let url = stage.bed.stac_url();
    let mut command = stage.rss();
    command.args(["get", &url]).args(SEED).args(RED);
    command.args(["--mode", "copy", "--json"]);
    let child = command.spawn().unwrap();
    wait_until(|| !stage.bed.requests(Service::S3).is_empty());
    let ran = end_by(child, "-TERM");
    assert_eq!((ran.code, ran.error()), (Some(143), "rss: terminated"));
    assert_eq!(files(stage.dir.path()), [""; 0].map(Path::new));
}

#[test]
fn ctrl_c_is_heard_while_stdin_is_silent() {
    let stage = Stage::new();
    let mut command = stage.rss();
    command.args(["get", "--to", "out"]).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Held open: it never ends.
    let stdin = child.stdin.take();
    let reads = format!("/proc/{}/task", child.id());
    // Nothing outside tells that it waits, but that all its threads sleep.
    if Path::new(&reads).is_dir() {
        wait_until(|| {
            let tasks = fs::read_dir(&reads).into_iter().flatten().flatten();
            let states: Vec<String> = tasks
                .filter_map(|task| fs::read_to_string(task.path().join("syscall")).ok())
                .collect();
            // Call 0 is `read` on x86_64, 63 on aarch64; descriptor 0 is stdin.
            states
                .iter()
                .any(|call| call.starts_with("0 0x0 ") || call.starts_with("63 0x0 "))
        });
    }
    let ran = interrupt(child);
    drop(stdin);
    assert_eq!(ran.error(), "rss: interrupted");
}

#[test]
fn a_put_object_is_the_one_fetched() {
    let stage = Stage::new();
    stage.bed.put(BUCKET, "notes.txt", "hello");
    let item = serde_json::json!({
        "type": "Feature", "stac_version": "1.0.0", "id": "x", "geometry": null,
        "properties": {"datetime": "2021-01-01T00:00:00Z"}, "links": [],
        "assets": {"notes": {"href": format!("s3://{BUCKET}/notes.txt")}},
    });
    let file = stage.write("item.json", item.to_string());
    let args = ["get", "--items", &file, "--bands", "notes", "--to", "out"];
    let ran = stage.run(&[&args[..], &["--mode", "copy"]].concat());
    assert_eq!(ran.text().lines().count(), 2);
    assert_eq!(fs::read(stage.path("out/x/notes.txt")).unwrap(), b"hello");
    let ran = stage.run(&[&args[..], &["--mode", "translate"]].concat());
    assert!(ran.error().contains("notes.txt"), "{ran:?}");
}

#[test]
fn what_get_made_may_be_named_through_a_pipe() {
    let stage = Stage::new();
    let more = [RED, &["--mode", "copy", "--limit", "1", "--json"]].concat();
    for link in [&[][..], &["--link"]] {
        let found = stage.seed("get", &[&more[..], link].concat());
        let copy = ["get", "--mode", "copy", "--to", "two", "--json"];
        let ran = piped(&stage, &copy, found.text().as_bytes());
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
        assert_eq!(files(&stage.dir.path().join("two")).len(), 1);
        fs::remove_dir_all(stage.path("two")).unwrap();
        // The same bytes beside it are not what `get` made.
        let item = &items(&found.json())[0];
        let path = href(item, "nbart_red").to_owned();
        fs::copy(&path, stage.path("other.tif")).unwrap();
        let other = found.text().replace(&path, &stage.path("other.tif"));
        let ran = piped(&stage, &copy, other.as_bytes());
        assert!(ran.error().contains("may not name"), "{ran:?}");
        fs::remove_dir_all(stage.path("out")).unwrap();
    }
}

#[test]
fn a_file_that_the_user_changed_is_kept_unless_overwriting_is_asked_for() {
    let stage = Stage::new();
    let more = [RED, &["--mode", "copy", "--limit", "1"]].concat();
    stage.seed("get", &more).text();
    let path = files(&stage.dir.path().join("out")).remove(0);
    let fine = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "mine").unwrap();
    let ran = stage.seed("get", &more);
    assert!(ran.error().contains("changed since"), "{ran:?}");
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    stage
        .seed("get", &[&more[..], &["--overwrite"]].concat())
        .text();
    assert!(fs::read(&path).unwrap() == fine);
}
