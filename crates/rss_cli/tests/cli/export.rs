//! `rss index export`: what it writes is read by zarr-python, xarray and GDAL, pixel by pixel.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use rss_testbed::{BUCKET, Band};
use serde_json::{Value, json};

use super::stage::{Ran, Stage};

const BANDS: [(&str, Band); 2] = [("red", Band::Red), ("nir", Band::Nir)];

/// Writes an ItemCollection of the scenes, with addresses of the plain HTTP server.
fn items(stage: &Stage) -> String {
    let features = stage.bed.scenes().iter().enumerate().map(|(day, scene)| {
        let assets: serde_json::Map<String, Value> = BANDS
            .iter()
            .map(|(key, band)| {
                let href = stage.bed.http_url(BUCKET, scene.key(*band));
                ((*key).to_owned(), json!({"href": href, "type": "image/tiff"}))
            })
            .collect();
        json!({
            "type": "Feature", "stac_version": "1.1.0", "id": scene.id, "geometry": null, "links": [],
            "properties": {"datetime": time(day)}, "assets": assets,
        })
    });
    let features: Vec<Value> = features.collect();
    let items = json!({"type": "FeatureCollection", "features": features});
    stage.write("items.json", items.to_string())
}

/// The later a scene is listed, the older it is.
fn time(day: usize) -> String {
    format!("2021-01-{:02}T00:10:20.5Z", 28 - day)
}

#[test]
fn an_index_is_exported_and_says_what_it_left_out() {
    let stage = Stage::new();
    let items = items(&stage);
    stage
        .run(&[
            "index",
            "build",
            "--items",
            &items,
            "-o",
            "a.parquet",
            "--json",
        ])
        .json();
    let files = 2 * stage.bed.scenes().len();
    for (format, assets, written) in [
        ("kerchunk", &[][..], files),
        ("kerchunk-cube", &["--asset", "red"], files / 2),
        ("vrt", &["--asset", "red", "--asset", "nir"], files),
        ("vrt-stack", &["--asset", "nir"], files / 2),
    ] {
        let args = [
            "index",
            "export",
            "a.parquet",
            "--format",
            format,
            "-o",
            "out",
            "--json",
        ];
        let before = stage.fetches();
        let done = stage.run(&[&args, assets].concat()).json();
        let left_out = done["left_out"].as_array().unwrap().len();
        assert_eq!(
            done["written"].as_u64().unwrap() as usize + left_out,
            written,
            "{done}"
        );
        assert_eq!(
            (&done["format"], &done["output"]),
            (&json!(format), &json!("out"))
        );
        assert_eq!(stage.fetches(), before, "no request");
        assert!(Path::new(&stage.path("out")).is_file());
    }
    let args = [
        "index",
        "export",
        "a.parquet",
        "--format",
        "vrt",
        "-o",
        "none",
        "--asset",
        "blue",
    ];
    let none = stage.run(&args);
    assert_eq!(
        (none.code, none.stderr.as_str()),
        (Some(1), "rss: no file to export\n")
    );
    assert!(!Path::new(&stage.path("none")).exists());
    let odd = stage.run(&[
        "index",
        "export",
        "a.parquet",
        "--format",
        "odd",
        "-o",
        "none",
    ]);
    assert_eq!(odd.code, Some(2));
    assert!(odd.stderr.contains("kerchunk-cube, vrt"), "{odd:?}");
}

#[test]
fn others_read_the_same_pixels() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = |args: &[&str]| {
        Command::new(root.join("scripts/python-env"))
            .args(args)
            .stdin(Stdio::null())
            .output()
    };
    match python(&[]) {
        Ok(done) if done.status.success() => {}
        other => {
            let why = other.map(|done| String::from_utf8_lossy(&done.stderr).into_owned());
            assert!(
                std::env::var_os("CI").is_none(),
                "CI needs the Python environment: {why:?}"
            );
            eprintln!("skipped: no Python environment to read exports with: {why:?}");
            return;
        }
    }
    let stage = Stage::new();
    let items = items(&stage);
    let scenes = stage.bed.scenes();
    let files: Vec<Value> = scenes
        .iter()
        .flat_map(|scene| {
            BANDS.map(
                |(asset, band)| json!({"item": scene.id, "asset": asset, "path": scene.file(band)}),
            )
        })
        .collect();
    let times: serde_json::Map<String, Value> = scenes
        .iter()
        .enumerate()
        .map(|(day, scene)| (scene.id.clone(), time(day).into()))
        .collect();
    let said = json!({"items": items, "files": files, "times": times});
    let said = stage.write("scenes.json", said.to_string());
    let script = root.join("scripts/check_exports.py");
    let manifest = root.join("crates/rss_core/tests/data/tiff/manifest.json");
    let done = python(&[
        script.to_str().unwrap(),
        "--rss",
        env!("CARGO_BIN_EXE_rss"),
        "--made",
        "--manifest",
        manifest.to_str().unwrap(),
        "--scenes",
        &said,
    ])
    .unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let ran = Ran::of(done);
    assert_eq!(ran.code, Some(0), "{text}\n{}", ran.stderr);
    println!("{text}");
}
