//! The promises of the command line, held by the program itself against servers on loopback.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

use std::{
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use rss_testbed::{ACCESS_KEY, BUCKET, Band, Fault, Rule, SECRET_KEY, Scenes, Service, Testbed};
use serde_json::Value;

/// Servers, a cache and a folder.
struct Stage {
    bed: Testbed,
    home: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        Self {
            bed: Testbed::builder().scenes(Scenes::small()).start().unwrap(),
            home: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rss"));
        command
            .args(args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home.path())
            .env("AWS_ENDPOINT_URL", self.bed.s3_endpoint())
            .env("AWS_NO_SIGN_REQUEST", "YES")
            .env("RSS_CACHE_DIR", self.path("cache"))
            .current_dir(self.home.path())
            .stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).output().unwrap())
    }

    /// Runs with `text` on stdin.
    fn feed(&self, args: &[&str], text: &str) -> Ran {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
        drop(stdin);
        Ran::of(child.wait_with_output().unwrap())
    }

    /// The query of every example: four items.
    fn seed(&self, command: &str, more: &[&str]) -> Ran {
        let url = self.bed.stac_url();
        let mut args = vec![
            command,
            &url,
            "sentinel2",
            "--like",
            "dea",
            "--scene",
            "56jns",
            "--start",
            "2021-01-01",
            "--end",
            "2021-02-01",
            "--cloud-below",
            "30",
        ];
        args.extend(more);
        self.run(&args)
    }

    fn red(&self) -> String {
        format!("s3://{BUCKET}/{}", self.bed.scenes()[0].key(Band::Red))
    }
}

/// What a run printed.
struct Ran {
    code: i32,
    out: Vec<u8>,
    err: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: output.stdout,
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    fn out(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }

    #[track_caller]
    fn done(self) -> Self {
        assert_eq!(self.code, 0, "{}{}", self.out(), self.err);
        assert!(!self.err.contains('\u{1b}'), "{:?}", self.err);
        self
    }

    /// Exactly one JSON document.
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_slice(&self.out).unwrap()
    }

    /// Exit code 2, one line on stderr, nothing on stdout.
    #[track_caller]
    fn refused(&self, says: &str) {
        assert_eq!(self.code, 2, "{}{}", self.out(), self.err);
        assert_eq!(self.out(), "");
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(
            self.err.contains(says),
            "expected `{says}` in: {}",
            self.err
        );
        assert!(!self.err.contains("panicked"), "{}", self.err);
    }
}

fn ids(items: &Value) -> Vec<&str> {
    let features = items["features"].as_array().unwrap();
    features
        .iter()
        .map(|item| item["id"].as_str().unwrap())
        .collect()
}

#[test]
fn search_prints_the_items_found() {
    let stage = Stage::new();
    let wanted: Vec<&str> = stage
        .bed
        .scenes()
        .iter()
        .map(|scene| scene.id.as_str())
        .collect();
    let table = stage.seed("search", &[]).done();
    assert_eq!(table.out().lines().count(), 5);
    assert!(wanted.iter().all(|id| table.out().contains(id)));
    let items = stage.seed("search", &["--json"]).done().json();
    assert_eq!(items["type"], "FeatureCollection");
    assert_eq!(ids(&items), wanted);
    assert_eq!(items["features"][0]["stac_version"], "1.0.0");

    let cut = stage
        .seed("search", &["--json", "--canonical", "red,nir"])
        .done()
        .json();
    let assets = cut["features"][0]["assets"].as_object().unwrap();
    assert_eq!(
        assets.keys().collect::<Vec<_>>(),
        ["nbart_red", "nbart_nir_1"]
    );
    let cut = stage
        .seed("search", &["--json", "--bands", "oa_fmask"])
        .done()
        .json();
    assert_eq!(cut["features"][0]["assets"].as_object().unwrap().len(), 1);
    let one = stage
        .seed("search", &["--json", "--limit", "1"])
        .done()
        .json();
    assert_eq!(ids(&one).len(), 1);
    let none = stage.seed("search", &["--json", "--platform", "landsat-8"]);
    assert_eq!(none.code, 1);
    assert_eq!(ids(&none.json()).len(), 0);
}

#[test]
fn search_takes_a_box_or_a_geometry() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    let days = [
        "--start",
        "2021-01-01",
        "--end",
        "2021-02-01",
        "--cloud-below",
        "30",
        "--json",
    ];
    let with = |place: [&str; 2]| {
        let mut args = vec!["search", &url, "sentinel2", "--like", "dea"];
        args.extend(place);
        args.extend(days);
        stage.run(&args)
    };
    let here = with(["--bbox", "153.0,-25.4,153.05,-25.35"]).done().json();
    let scenes: Vec<&str> = stage
        .bed
        .scenes()
        .iter()
        .map(|scene| scene.id.as_str())
        .collect();
    // A scene beside them reaches into the box.
    assert!(scenes.iter().all(|id| ids(&here).contains(id)));
    let elsewhere = with(["--bbox", "-10,-10,-9,-9"]);
    assert_eq!((elsewhere.code, ids(&elsewhere.json()).len()), (1, 0));
    let file = stage.path("place.geojson");
    std::fs::write(
        &file,
        r#"{"type": "Point", "coordinates": [153.02, -25.36]}"#,
    )
    .unwrap();
    let point = with(["--geometry", file.to_str().unwrap()]).done().json();
    assert!(scenes.iter().all(|id| ids(&point).contains(id)));
}

#[test]
fn what_cannot_be_asked_is_one_line_and_exit_code_2() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    let search = |more: &[&str]| {
        let mut args = vec!["search", &url, "sentinel2", "--like", "dea"];
        args.extend(more);
        stage.run(&args)
    };
    search(&["--canonical", "red,ultra"]).refused("ultra");
    search(&["--bands", "B99"]).refused("B99");
    search(&["--scene", "zz"]).refused("zz");
    search(&["--bbox", "1,2,3"]).refused("--bbox W,S,E,N");
    search(&["--bbox", "1,2,3,100"]).refused("100");
    search(&["--geometry", "none.json"]).refused("none.json");
    search(&["--start", "2021-02-01", "--end", "2021-01-01"]).refused("2021-02-01");
    search(&["--start", "yesterday"]).refused("yesterday");
    search(&["--limit", "0"]).refused("limit");
    search(&["--cloud-below", "200"]).refused("200");
    stage
        .run(&["search", "nowhere", "sentinel2"])
        .refused("nowhere");
    stage.run(&["search", "dea"]).refused("COLLECTION");
    stage
        .run(&["get", "--items", "none.json", "--to", "x"])
        .refused("none.json");
    stage.run(&["info", "none.tif"]).refused("none.tif");
    stage.run(&["info", "ftp://host/x"]).refused("ftp");
    stage.run(&["info", "/vsizip/x.zip"]).refused("/vsizip/");
}

#[test]
fn a_server_that_fails_is_one_line_and_exit_code_2() {
    let stage = Stage::new();
    for (fault, says) in [
        (Fault::status(403), "403"),
        (Fault::status(404), "404"),
        (Fault::Html, "HTML"),
    ] {
        stage.bed.fault(Rule::new(fault).on(Service::Stac));
        let ran = stage.seed("search", &["--json"]);
        stage.bed.clear_faults();
        assert_eq!((ran.code, ran.out()), (2, ""), "{says}");
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
        assert!(
            ran.err.to_lowercase().contains(&says.to_lowercase()),
            "{}",
            ran.err
        );
    }
}

fn href(items: &Value, item: usize, key: &str) -> String {
    items["features"][item]["assets"][key]["href"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn get_copies_into_the_cache_and_links() {
    let stage = Stage::new();
    let to = stage.text("images");
    let more = [
        "--canonical",
        "red",
        "--to",
        &to,
        "--mode",
        "copy",
        "--json",
    ];
    let items = stage.seed("get", &more).done().json();
    for (n, scene) in stage.bed.scenes().iter().enumerate() {
        let link = PathBuf::from(href(&items, n, "nbart_red"));
        let name = scene.key(Band::Red).rsplit('/').next().unwrap();
        assert_eq!(link, stage.path("images").join(&scene.id).join(name));
        assert!(link.is_symlink());
        let right = std::fs::read(scene.file(Band::Red).unwrap()).unwrap();
        assert!(std::fs::read(&link).unwrap() == right);
    }
    // The second time nothing is asked of the store.
    stage.bed.clear_log();
    let again = stage
        .seed(
            "get",
            &["--canonical", "red", "--to", &to, "--mode", "copy"],
        )
        .done();
    assert_eq!(
        again.out().matches(" cached ").count(),
        4,
        "{}",
        again.out()
    );
    assert_eq!(stage.bed.requests(Service::S3).len(), 0);
}

#[test]
fn get_takes_items_from_a_file_and_from_stdin() {
    let stage = Stage::new();
    let found = stage
        .seed(
            "search",
            &["--json", "--bands", "nbart_red", "--limit", "2"],
        )
        .done();
    std::fs::write(stage.path("items.json"), &found.out).unwrap();
    let to = stage.text("images");
    let rest = ["--to", &to, "--mode", "copy", "--json"];
    let with = |head: &[&'static str]| [&["get"][..], head, &rest].concat();
    let from_file = stage.run(&with(&["--items", "items.json"])).done().json();
    assert_eq!(ids(&from_file).len(), 2);
    for args in [with(&["--items", "-"]), with(&[])] {
        let piped = stage.feed(&args, found.out()).done().json();
        assert_eq!(piped, from_file);
    }
    let named = with(&["--items", "items.json", "--canonical", "red"]);
    assert_eq!(stage.run(&named).done().json(), from_file);
    stage.feed(&with(&[]), "").refused("stdin is empty");
    stage
        .feed(&with(&["--items", "-"]), "<html>")
        .refused("stdin");
}

#[test]
fn get_goes_on_past_a_missing_file_if_told_to() {
    let stage = Stage::new();
    let missing = stage.bed.scenes()[1].key(Band::Red).to_owned();
    stage
        .bed
        .fault(Rule::new(Fault::status(404)).path(&missing));
    let to = stage.text("images");
    let more = ["--canonical", "red", "--to", &to, "--mode", "copy"];
    stage.seed("get", &more).refused(&missing);
    let ran = stage.seed("get", &[&more[..], &["--keep-going"]].concat());
    assert_eq!(ran.code, 2);
    assert_eq!(ran.out().lines().count(), 1 + 3, "{}", ran.out());
    let lines: Vec<&str> = ran.err.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ran.err);
    assert!(
        lines[0].contains(&missing) && lines[1].contains("1 of 4"),
        "{}",
        ran.err
    );
}

#[cfg(feature = "gdal")]
#[test]
fn get_translates_and_crops() {
    let stage = Stage::new();
    let to = stage.text("images");
    let more = ["--canonical", "red", "--limit", "1", "--to", &to, "--json"];
    let whole = stage.seed("get", &more).done().json();
    let file = href(&whole, 0, "nbart_red");
    let info = stage.run(&["info", &file, "--json"]).done().json();
    assert_eq!(
        (&info["width"], &info["tile"]),
        (&1200.into(), &serde_json::json!([512, 512]))
    );
    let to = stage.text("parts");
    let more = ["--canonical", "red", "--limit", "1", "--to", &to, "--json"];
    let part = stage
        .seed(
            "get",
            &[&more[..], &["--crop", "500980,7199590,501480,7199840"]].concat(),
        )
        .done()
        .json();
    let info = stage
        .run(&["info", &href(&part, 0, "nbart_red"), "--json"])
        .done()
        .json();
    assert_eq!((&info["width"], &info["height"]), (&50.into(), &25.into()));
    assert_eq!(
        info["transform"],
        serde_json::json!([500980.0, 10.0, 0.0, 7199840.0, 0.0, -10.0])
    );
    let degrees = [
        "--crop",
        "153.00994,-25.32107,153.0149,-25.31836",
        "--crop-epsg",
        "4326",
    ];
    let to = stage.text("degrees");
    let more = ["--canonical", "red", "--limit", "1", "--to", &to, "--json"];
    let part = stage
        .seed("get", &[&more[..], &degrees].concat())
        .done()
        .json();
    let info = stage
        .run(&["info", &href(&part, 0, "nbart_red"), "--json"])
        .done()
        .json();
    assert!(info["width"].as_u64().unwrap() < 60, "{info}");
    stage
        .seed("get", &[&more[..], &["--crop", "0,0,1,1"]].concat())
        .refused("outside the file");
    stage
        .seed("get", &[&more[..], &["--crop", "1,1,0,0"]].concat())
        .refused("crop");
}

#[test]
fn get_into_a_folder_that_cannot_be_is_refused() {
    let stage = Stage::new();
    std::fs::write(stage.path("file"), "x").unwrap();
    let to = stage.text("file");
    stage
        .seed(
            "get",
            &["--canonical", "red", "--mode", "copy", "--to", &to],
        )
        .refused("a file");
}

#[test]
fn remote_prints_hrefs_that_are_read_in_place() {
    let stage = Stage::new();
    let more = ["--bands", "nbart_red", "--json"];
    let vsi = stage.seed("remote", &more).done().json();
    let key = stage.bed.scenes()[0].key(Band::Red);
    assert_eq!(href(&vsi, 0, "nbart_red"), format!("/vsis3/{BUCKET}/{key}"));
    let https = stage
        .seed("remote", &[&more[..], &["--variant", "https"]].concat())
        .done()
        .json();
    let plain = href(&https, 0, "nbart_red");
    assert_eq!(plain, format!("{}/{BUCKET}/{key}", stage.bed.s3_endpoint()));
    let out = stage.text("block.bin");
    stage
        .run(&["read", &plain, "--window", "0,0,8,8", "-o", &out])
        .done();
    assert_eq!(
        stage
            .seed("remote", &["--bands", "nbart_red", "--platform", "x"])
            .code,
        1
    );
}

#[test]
fn a_presigned_url_needs_no_key() {
    let stage = Stage::new();
    stage.bed.put(
        "private",
        "a.tif",
        std::fs::read(stage.bed.scenes()[0].file(Band::Red).unwrap()).unwrap(),
    );
    let item = serde_json::json!({
        "type": "Feature", "stac_version": "1.0.0", "id": "x", "geometry": null, "links": [],
        "properties": {"datetime": "2021-01-01T00:00:00Z"},
        "assets": {"red": {"href": "s3://private/a.tif", "roles": ["data"]}},
    });
    std::fs::write(stage.path("item.json"), item.to_string()).unwrap();
    let signed = stage
        .command(&[
            "remote",
            "--items",
            "item.json",
            "--variant",
            "presigned",
            "--json",
        ])
        .env_remove("AWS_NO_SIGN_REQUEST")
        .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        .output()
        .unwrap();
    let signed = Ran::of(signed).done();
    assert!(!signed.out().contains(SECRET_KEY));
    let url = href(&signed.json(), 0, "red");
    assert!(url.contains("X-Amz-Signature="), "{url}");
    for backend in backends() {
        let read = stage.run(&[
            "read",
            &url,
            "--window",
            "0,0,4,4",
            "--backend",
            backend,
            "-o",
            "-",
        ]);
        assert_eq!(read.done().out.len(), 32);
    }
}

fn backends() -> Vec<&'static str> {
    match cfg!(feature = "gdal") {
        true => vec!["async-tiff", "gdal"],
        false => vec!["async-tiff"],
    }
}

/// Every spelling of one file's location.
fn locations(stage: &Stage) -> Vec<String> {
    let scene = &stage.bed.scenes()[0];
    let (file, key) = (
        scene.file(Band::Red).unwrap().display(),
        scene.key(Band::Red),
    );
    let http = stage.bed.http_url(BUCKET, key);
    vec![
        file.to_string(),
        format!("file://{file}"),
        format!("s3://{BUCKET}/{key}"),
        format!("/vsis3/{BUCKET}/{key}"),
        format!("/vsicurl/{http}"),
        http,
    ]
}

#[test]
fn info_says_the_same_of_every_location_by_both_backends() {
    let stage = Stage::new();
    for location in locations(&stage) {
        for backend in backends() {
            let info = stage
                .run(&["info", &location, "--backend", backend, "--json"])
                .done()
                .json();
            let right = serde_json::json!({
                "width": 1200, "height": 1200, "count": 1, "dtype": "int16", "nodata": -999,
                "epsg": 32756, "transform": [499980.0, 10.0, 0.0, 7200040.0, 0.0, -10.0],
                "tile": [512, 512], "compression": "DEFLATE",
                "overviews": [[600, 600], [300, 300]],
            });
            for (key, value) in right.as_object().unwrap() {
                assert_eq!(&info[key], value, "{location} {backend} {key}");
            }
            assert!(info.as_object().unwrap().contains_key("predictor"));
        }
    }
    let text = stage.run(&["info", &stage.red()]).done();
    assert!(text.out().contains("dtype        int16"), "{}", text.out());
}

#[test]
fn read_gives_the_right_pixels_of_every_location_by_both_backends() {
    let stage = Stage::new();
    let window = stage.bed.scenes()[0].window(Band::Red, 500, 400, 40, 30);
    let right: Vec<u8> = window
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let out = stage.text("block.bin");
    let mut digests = std::collections::BTreeSet::new();
    for location in locations(&stage) {
        for backend in backends() {
            let args = [
                "read",
                &location,
                "--window",
                "500,400,40,30",
                "--backend",
                backend,
            ];
            let piped = stage.run(&[&args[..], &["-o", "-"]].concat()).done();
            assert!(piped.out == right, "{location} {backend}");
            let facts = stage
                .run(&[&args[..], &["--json", "-o", &out]].concat())
                .done()
                .json();
            assert!(
                std::fs::read(&out).unwrap() == right,
                "{location} {backend}"
            );
            assert_eq!(
                (
                    &facts["width"],
                    &facts["height"],
                    &facts["count"],
                    &facts["dtype"]
                ),
                (&40.into(), &30.into(), &1.into(), &"int16".into())
            );
            let is_remote = !location.starts_with('/') && !location.starts_with("file:")
                || location.starts_with("/vsi");
            assert_eq!(
                facts["requests"].as_u64().unwrap() > 0,
                is_remote,
                "{location} {backend}"
            );
            assert!(facts["wall_s"].as_f64().unwrap() > 0.0);
            digests.insert(facts["sha256"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(digests.len(), 1);
}

#[test]
fn read_writes_each_format_and_level() {
    let stage = Stage::new();
    let red = stage.red();
    for (name, start) in [
        ("a.tif", &b"II*\0"[..]),
        ("a.npy", b"\x93NUMPY"),
        ("a.png", b"\x89PNG"),
    ] {
        let out = stage.text(name);
        stage
            .run(&["read", &red, "--level", "1", "-o", &out])
            .done();
        assert!(std::fs::read(&out).unwrap().starts_with(start), "{name}");
    }
    let info = stage
        .run(&["info", &stage.text("a.tif"), "--json"])
        .done()
        .json();
    assert_eq!(
        (&info["width"], &info["epsg"]),
        (&600.into(), &32756.into())
    );
    assert_eq!(info["transform"][1], 20.0);
    let small = stage
        .run(&["read", &red, "--level", "2", "--band", "1", "-o", "-"])
        .done();
    assert_eq!(small.out.len(), 300 * 300 * 2);
}

#[test]
fn a_read_that_cannot_be_leaves_no_file() {
    let stage = Stage::new();
    let red = stage.red();
    let out = stage.text("out.tif");
    let whole = std::fs::read(stage.bed.scenes()[0].file(Band::Red).unwrap()).unwrap();
    std::fs::write(stage.path("cut.tif"), &whole[..whole.len() / 3]).unwrap();
    std::fs::write(stage.path("page.tif"), "<html>log in</html>").unwrap();
    for backend in backends() {
        let read = |location: &str, more: &[&str], says: &str| {
            let args = [
                &["read", location, "--backend", backend, "-o", &out][..],
                more,
            ]
            .concat();
            stage.run(&args).refused(says);
            assert!(!Path::new(&out).exists(), "{location} {more:?}");
        };
        read(&red, &["--window", "1000,0,512,512"], "window");
        read(&red, &["--window", "1,2,3"], "window");
        read(&red, &["--level", "9"], "level 9");
        read(&red, &["--band", "0"], "band 0");
        read(&red, &["--band", "2"], "band 2");
        read("none.tif", &[], "none.tif");
        read("cut.tif", &[], "cut.tif");
        read("page.tif", &[], "page.tif");
        read(&format!("s3://{BUCKET}/none.tif"), &[], "none.tif");
    }
    stage
        .run(&["read", &red, "-o", "a.jpg"])
        .refused(".tif, .npy, .bin, .png");
    stage
        .run(&["read", &red, "-o", "no/such/a.tif"])
        .refused("no/such/a.tif");
    stage
        .run(&["read", &red, "--json", "-o", "-"])
        .refused("stdout");
    stage
        .run(&["read", &red, "--backend", "magic", "-o", "a.tif"])
        .refused("magic");
    let left: Vec<_> = std::fs::read_dir(stage.home.path())
        .unwrap()
        .map(|one| one.unwrap().file_name())
        .collect();
    assert!(
        left.iter()
            .all(|name| !name.to_str().unwrap().starts_with(".rss")),
        "{left:?}"
    );
}

#[test]
fn cache_tells_cleans_and_clears() {
    let stage = Stage::new();
    let to = stage.text("images");
    stage
        .seed(
            "get",
            &["--canonical", "red", "--mode", "copy", "--to", &to],
        )
        .done();
    let info = stage.run(&["cache", "info", "--json"]).done().json();
    assert_eq!(info["entries"], 4);
    let bytes: u64 = stage
        .bed
        .scenes()
        .iter()
        .map(|scene| scene.file(Band::Red).unwrap().metadata().unwrap().len())
        .sum();
    assert_eq!(info["bytes"], bytes);
    assert!(
        stage
            .run(&["cache", "info"])
            .done()
            .out()
            .contains("entries    4")
    );
    assert_eq!(
        stage.run(&["cache", "clean", "--json"]).done().json()["removed"],
        0
    );
    let cleared = stage.run(&["cache", "clear", "--json"]).done().json();
    assert_eq!(
        (&cleared["removed"], &cleared["bytes"]),
        (&4.into(), &bytes.into())
    );
    assert_eq!(
        stage.run(&["cache", "info", "--json"]).done().json()["entries"],
        0
    );
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let stage = Stage::new();
    let mut child = stage
        .command(&["read", &stage.red(), "-o", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 1];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!((child.wait().unwrap().code(), said.as_str()), (Some(0), ""));
}

#[cfg(unix)]
#[test]
fn an_interrupt_stops_cleanly() {
    let stage = Stage::new();
    stage
        .bed
        .fault(Rule::new(Fault::HangInBody).on(Service::S3));
    let url = stage.bed.stac_url();
    let to = stage.text("images");
    let child = stage
        .command(&[
            "get",
            &url,
            "sentinel2",
            "--like",
            "dea",
            "--scene",
            "56jns",
            "--canonical",
            "red",
            "--mode",
            "copy",
            "--to",
            &to,
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while stage.bed.requests(Service::S3).is_empty() && Instant::now() < until {
        std::thread::yield_now();
    }
    let killed = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    let ran = Ran::of(child.wait_with_output().unwrap());
    ran.refused("interrupted");
    let mut left = vec![stage.path("images"), stage.path("cache/entries")];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(
                std::fs::read_dir(path)
                    .unwrap()
                    .map(|one| one.unwrap().path()),
            );
        } else {
            assert!(
                !path.exists() || path.metadata().unwrap().len() == 0,
                "{path:?}"
            );
        }
    }
}

#[test]
fn no_secret_is_printed() {
    let stage = Stage::new();
    let run = |args: &[&str]| {
        let output = stage
            .command(args)
            .env_remove("AWS_NO_SIGN_REQUEST")
            .env("AWS_ACCESS_KEY_ID", "someone")
            .env("AWS_SECRET_ACCESS_KEY", "CANARYSECRET")
            .output()
            .unwrap();
        let ran = Ran::of(output);
        assert!(!ran.out().contains("CANARYSECRET"), "{}", ran.out());
        assert!(!ran.err.contains("CANARYSECRET"), "{}", ran.err);
        assert_eq!(ran.code, 2);
    };
    let signed = format!(
        "{}?X-Amz-Signature=CANARYSECRET",
        stage.bed.http_url(BUCKET, "none.tif")
    );
    for backend in backends() {
        run(&["info", &signed, "--backend", backend]);
        run(&["info", "s3://private/a.tif", "--backend", backend]);
        run(&[
            "info",
            &format!("s3://{BUCKET}/none.tif"),
            "--backend",
            backend,
        ]);
    }
    run(&["search", "http://127.0.0.1:1/stac?key=CANARYSECRET", "c"]);
}

#[test]
fn every_help_shows_an_example() {
    let stage = Stage::new();
    for command in ["search", "get", "remote", "info", "read", "cache"] {
        let help = stage.run(&[command, "--help"]).done();
        assert!(help.out().contains("Example:\n  rss "), "{command}");
    }
}
