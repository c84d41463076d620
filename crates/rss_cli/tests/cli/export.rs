//! `rss index export`: what it writes is read by zarr-python, xarray and GDAL, pixel by pixel.

use std::{fs, path::Path, process::Command};

use rss_core::{
    DataType, Entry, Location, Size, index,
    reader::{Header, Image, Tiles, Version},
};
use rss_testbed::{BUCKET, Band, Testbed};
use serde_json::{Value, json};

use super::stage::{Ran, Stage, files, interrupt, python, root, wait_until};

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
        ("kerchunk-parquet", &[], files),
        ("kerchunk-cube-parquet", &["--asset", "red"], files / 2),
        ("vrt", &["--asset", "red", "--asset", "nir"], files),
        ("vrt-stack", &["--asset", "nir"], files / 2),
        ("gti", &["--asset", "nir"], files / 2),
    ] {
        let out = format!("out.{format}");
        let args = [
            "index",
            "export",
            "a.parquet",
            "--format",
            format,
            "-o",
            &out,
            "--json",
        ];
        let before = stage.fetches();
        let done = stage.run(&[&args, assets].concat()).json();
        let left_out = done["left_out"].as_array().unwrap().len();
        // References take every file; the others one grid each.
        let takes_all = format == "kerchunk" || format == "kerchunk-parquet";
        assert!(left_out == 0 || !takes_all, "{done}");
        assert_eq!(
            done["written"].as_u64().unwrap() as usize + left_out,
            written,
            "{done}"
        );
        assert_eq!(
            (&done["format"], &done["output"]),
            (&json!(format), &json!(out))
        );
        assert_eq!(stage.fetches(), before, "no request");
        let made = fs::metadata(stage.path(&out)).unwrap();
        assert_eq!(made.is_dir(), format.ends_with("parquet"), "{format}");
    }
    // A file is replaced, a folder never is.
    let again = |format: &str| {
        let out = format!("out.{format}");
        let args = ["index", "export", "a.parquet", "--format", format, "-o"];
        stage.run(&[&args[..], &[&out]].concat())
    };
    assert_eq!(again("kerchunk").code, Some(0));
    let folder = again("kerchunk-parquet");
    assert_eq!(folder.code, Some(2), "{folder:?}");
    assert!(folder.error().contains("is there already"), "{folder:?}");
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
        none.error(),
        "rss: a.parquet: the index has no asset `blue`"
    );
    assert!(!Path::new(&stage.path("none")).exists());
    // What is written is for whom the user's umask lets it be.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mut shell = Command::new("sh");
        shell.current_dir(stage.dir.path());
        shell.args([
            "-c",
            "umask 027; exec \"$0\" index export a.parquet --format vrt --asset red -o kept --json",
        ]);
        let done = shell.arg(env!("CARGO_BIN_EXE_rss")).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        let kept = fs::metadata(stage.path("kept")).unwrap();
        assert_eq!(kept.permissions().mode() & 0o777, 0o640);
    }
    many_tiles(&stage.path("none.parquet"), 0, 16);
    let args = ["index", "export", "none.parquet", "--format", "vrt"];
    let none = stage.run(&[&args[..], &["-o", "none"]].concat());
    assert_eq!(
        (none.code, none.stderr.as_str()),
        (Some(1), "rss: no file to export\n")
    );
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
    assert!(odd.stderr.contains("vrt-stack, gti"), "{odd:?}");
}

/// Writes an index of so many files of so many tiles.
fn many_tiles(path: &str, files: usize, side: u32) {
    let item = |number: usize| {
        let href = format!("s3://bucket/{number}.tif");
        serde_json::from_value(json!({
            "type": "Feature", "stac_version": "1.1.0", "id": number.to_string(), "geometry": null,
            "links": [], "properties": {"datetime": time(1)}, "assets": {"red": {"href": href}},
        }))
        .unwrap()
    };
    let tiles = u64::from(side / 16).pow(2);
    let [side, tile] = [side, 16].map(|side| Size {
        width: side,
        height: side,
    });
    let offsets = (0..tiles).map(|tile| 1000 + tile * 512).collect();
    let tiles = Tiles::new(offsets, vec![512; usize::try_from(tiles).unwrap()]);
    let image = Image::new(side, tile, 16, 1, tiles);
    let entry = Entry::new(
        Location::parse("s3://bucket/0.tif").unwrap(),
        Version::of_size(1 << 40),
        Header::new(DataType::U16, vec![image]),
    );
    let mut writer = index::Writer::create(path, [&item(0)], ["red"]).unwrap();
    for number in 0..files {
        writer.push(&item(number), &[("red", &entry)]).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn ctrl_c_in_an_export_leaves_nothing() {
    let stage = Stage::of(Testbed::builder());
    // Takes seconds to export, and is stopped when it begins.
    many_tiles(&stage.path("a.parquet"), 4096, 512);
    for format in ["kerchunk", "kerchunk-cube", "kerchunk-cube-parquet"] {
        let mut rss = stage.rss();
        rss.args([
            "index",
            "export",
            "a.parquet",
            "--format",
            format,
            "-o",
            "out",
        ]);
        let child = rss.spawn().unwrap();
        wait_until(|| files(stage.dir.path()).len() >= 2);
        assert_eq!(interrupt(child).error(), "rss: interrupted");
        assert_eq!(
            fs::read_dir(stage.dir.path()).unwrap().count(),
            1,
            "{format}"
        );
    }
}

#[test]
fn others_read_the_same_pixels() {
    let Some(python) = python() else { return };
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
    let script = root().join("scripts/check_exports.py");
    let manifest = root().join("crates/rss_core/tests/data/tiff/manifest.json");
    let done = python(&[
        script.to_str().unwrap(),
        "--rss",
        env!("CARGO_BIN_EXE_rss"),
        "--made",
        "--manifest",
        manifest.to_str().unwrap(),
        "--scenes",
        &said,
    ]);
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let ran = Ran::of(done);
    assert_eq!(ran.code, Some(0), "{text}\n{}", ran.stderr);
    println!("{text}");
}
