//! `rss zarr`: a selection becomes a cube, what is read of it is what the files hold, and a write that is
//! killed goes on.

use std::{fs, path::Path, process::Child};

use rss_testbed::Band;
use serde_json::{Value, json};

use super::stage::{Ran, SEED, Stage, files, python, root};

const BANDS: [(&str, Band); 2] = [("nbart_red", Band::Red), ("nbart_nir_1", Band::Nir)];
/// Many small shards, so that a write can be stopped between them.
const SMALL: &[&str] = &[
    "--chunk",
    "2,64,64",
    "--shard",
    "2,128,128",
    "--codec",
    "blosc-lz4",
];

fn write<'a>(url: &'a str, to: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let bands = ["--canonical", "red,nir", "--to", to];
    [&["zarr", "write", url][..], SEED, &bands, more].concat()
}

#[test]
fn a_selection_becomes_a_cube_that_is_read() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    let written = stage.run(&write(&url, "cube.zarr", &["--json"])).json();
    assert_eq!(
        (&written["steps"], &written["resumed"]),
        (&json!(4), &json!(0))
    );
    let info = stage.run(&["zarr", "info", "cube.zarr", "--json"]).json();
    let side = stage.bed.scenes()[0].side;
    assert_eq!(
        (&info["kind"], &info["width"]),
        (&json!("cube"), &json!(side))
    );
    assert_eq!(
        (&info["epsg"], &info["levels"]),
        (&json!(32756), &json!([[side, side]]))
    );
    let bands = info["bands"].as_array().unwrap();
    for (said, (name, _)) in bands.iter().zip(BANDS) {
        assert_eq!(
            (&said["name"], &said["dtype"]),
            (&json!(name), &json!("int16"))
        );
        assert_eq!(
            (&said["nodata"], &said["shape"]),
            (&json!(-999), &json!([4, side, side]))
        );
    }
    let times = info["times"].as_array().unwrap();
    let dates: Vec<&str> = times
        .iter()
        .map(|time| time["time"].as_str().unwrap())
        .collect();
    assert!(dates.is_sorted());
    for (number, time) in times.iter().enumerate() {
        let mut scenes = stage.bed.scenes().iter();
        let scene = scenes
            .find(|scene| time["items"] == json!([scene.id]))
            .unwrap();
        for (name, band) in BANDS {
            let number = number.to_string();
            let read = [
                "zarr",
                "read",
                "cube.zarr",
                "--band",
                name,
                "--time",
                &number,
            ];
            let block = ["--window", "100,200,64,32", "-o", "-"];
            let ran = stage.run(&[&read[..], &block].concat());
            assert_eq!(ran.code, Some(0), "{ran:?}");
            let truth = scene.window(band, 100, 200, 64, 32);
            let truth: Vec<u8> = truth
                .iter()
                .flat_map(|sample| sample.to_le_bytes())
                .collect();
            assert_eq!(ran.stdout, truth);
        }
    }
    let series = stage
        .run(&[
            "zarr",
            "read",
            "cube.zarr",
            "--band",
            "nbart_red",
            "--window",
            "7,9,1,1",
            "-o",
            "series.npy",
            "--json",
        ])
        .json();
    assert_eq!(
        (&series["shape"], &series["dtype"]),
        (&json!([4, 1, 1]), &json!("int16"))
    );
    let array = stage
        .run(&[
            "zarr",
            "read",
            "cube.zarr/nbart_red",
            "--ranges",
            "0:2,0:5,0:6",
            "-o",
            "box.bin",
            "--json",
        ])
        .json();
    assert_eq!(array["shape"], json!([2, 5, 6]));
    assert_eq!(
        fs::read(stage.path("box.bin")).unwrap().len(),
        2 * 5 * 6 * 2
    );
    let said = stage
        .run(&["zarr", "info", "cube.zarr/nbart_red", "--json"])
        .json();
    assert_eq!(
        (&said["kind"], &said["dimensions"]),
        (&json!("array"), &json!(["time", "y", "x"]))
    );
    // The geography goes with a window of one date.
    stage
        .run(&[
            "zarr",
            "read",
            "cube.zarr",
            "--band",
            "nbart_red",
            "--time",
            "0",
            "--window",
            "100,200,64,32",
            "-o",
            "block.tif",
        ])
        .text();
    let tif = stage.run(&["info", "block.tif", "--json"]).json();
    let transform = info["transform"].as_array().unwrap();
    let x = transform[0].as_f64().unwrap() + 100.0 * transform[1].as_f64().unwrap();
    assert_eq!(
        (&tif["epsg"], &tif["transform"][0]),
        (&json!(32756), &json!(x))
    );
}

#[test]
fn what_cannot_be_is_one_clear_error() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    for (more, said) in [
        (
            &["--use", "all"][..],
            "use `all` is not one of balanced, time-series, maps",
        ),
        (
            &["--codec", "lz4"],
            "codec `lz4` is not one of auto, none, zstd",
        ),
        (&["--chunk", "1,2"], "`1,2` is not TIME,Y,X"),
        (
            &["--chunk", "1,10,10", "--shard", "1,15,10"],
            "shard 1,15,10 is not a whole number of chunks 1,10,10",
        ),
        (&["--budget", "0"], "--budget is 0"),
        (&["--budget", "1"], "more than the budget of 1 MB"),
        (
            &["--nodata", "70000"],
            "nodata 70000 is not a value of int16",
        ),
        (
            &["--overview-resampling", "cubic"],
            "overviews by cubic: expected nearest, bilinear, average",
        ),
        (
            &["--overview-resampling", "sinc"],
            "resampling `sinc` is not one of nearest, bilinear",
        ),
        (
            &["--resampling", "sinc"],
            "resampling `sinc` is not one of nearest, bilinear",
        ),
        (
            &["--by", "fortnight"],
            "grouping `fortnight` is not one of item, day",
        ),
        (&["--mosaic", "best"], "mosaic `best` is not one of first"),
        (&["--mask", "fog"], "mask class `fog` is unknown"),
        (&["--crs", "utm"], "--resolution"),
        (&["--grid", "none.tif"], "none.tif"),
        (&["--grid", "a.tif", "--resolution", "10"], "--grid"),
        (
            &["--on-failure", "guess"],
            "--on-failure `guess` is not one of fail, skip",
        ),
        (
            &["--reflectance", "--nodata", "1e300"],
            "is not a value of float32",
        ),
        (
            &["--append"],
            "no cube: neither zarr.json nor .zgroup exists",
        ),
    ] {
        let ran = stage.run(&write(&url, "cube.zarr", more));
        assert!(ran.error().contains(said), "{said}: {ran:?}");
        assert!(!Path::new(&stage.path("cube.zarr")).exists(), "{more:?}");
    }
    stage.run(&write(&url, "cube.zarr", &[])).text();
    // The same again has nothing to do; another cube does not take its place.
    let again = stage.run(&write(&url, "cube.zarr", &["--json"])).json();
    assert_eq!((&again["shards"], &again["known"]), (&json!(0), &json!(4)));
    let other = stage.run(&write(&url, "cube.zarr", &["--overviews", "1"]));
    assert!(
        other
            .error()
            .contains("append to it, or choose another location")
    );
    let append = stage
        .run(&write(&url, "cube.zarr", &["--append", "--json"]))
        .json();
    assert_eq!((&append["steps"], &append["known"]), (&json!(0), &json!(4)));
    for (args, said) in [
        (&["info", "none.zarr"][..], "no Zarr array"),
        (
            &["read", "cube.zarr", "-o", "a.npy"],
            "--band is missing: the cube has nbart_red, nbart_nir_1",
        ),
        (
            &["read", "cube.zarr", "--band", "blue", "-o", "a.npy"],
            "band `blue` is not one of nbart_red",
        ),
        (
            &[
                "read",
                "cube.zarr",
                "--band",
                "nbart_red",
                "--time",
                "4",
                "-o",
                "a.npy",
            ],
            "4..5 of axis 0 is empty or outside of its 4 samples",
        ),
        (
            &[
                "read",
                "cube.zarr",
                "--band",
                "nbart_red",
                "--time",
                "x",
                "-o",
                "a.npy",
            ],
            "--time `x` is not a number",
        ),
        (
            &[
                "read",
                "cube.zarr",
                "--band",
                "nbart_red",
                "--level",
                "1",
                "-o",
                "a.npy",
            ],
            "level 1 is not one of 0 to 0",
        ),
        (
            &["read", "cube.zarr", "--band", "nbart_red", "-o", "a.xyz"],
            "a.xyz",
        ),
        (
            &[
                "read",
                "cube.zarr/nbart_red",
                "--ranges",
                "0:1",
                "-o",
                "a.npy",
            ],
            "1 ranges for an array of 3 axes",
        ),
        (
            &[
                "read",
                "cube.zarr/nbart_red",
                "--ranges",
                "0-1,0:1,0:1",
                "-o",
                "a.npy",
            ],
            "`0-1` is not START:END",
        ),
        (
            &["read", "cube.zarr/nbart_red", "-o", "a.npy"],
            "not a cube: name an array of it, and --ranges",
        ),
    ] {
        let ran = stage.run(&[&["zarr"][..], args].concat());
        assert!(ran.error().contains(said), "{said}: {ran:?}");
        assert!(!Path::new(&stage.path("a.npy")).exists());
    }
    let none = stage.run(&[
        "zarr",
        "write",
        &url,
        "sentinel2",
        "--scene",
        "01abc",
        "--to",
        "other.zarr",
    ]);
    assert_ne!(none.code, Some(0));
    assert!(!Path::new(&stage.path("other.zarr")).exists());
}

/// Shards, and what else lies in a cube's folder, by name and contents.
fn contents(folder: &str) -> Vec<(String, Vec<u8>)> {
    let base = Path::new(folder);
    files(base)
        .into_iter()
        .map(|path| {
            let name = path
                .strip_prefix(base)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            (name, fs::read(path).unwrap())
        })
        .collect()
}

/// Kills a process when a folder has so many files; returns false if it ended before.
fn killed(mut child: Child, folder: &str, enough: usize) -> bool {
    loop {
        if child.try_wait().unwrap().is_some() {
            let ran = Ran::of(child.wait_with_output().unwrap());
            assert_eq!(ran.code, Some(0), "{ran:?}");
            return false;
        }
        if files(Path::new(folder)).len() >= enough {
            child.kill().unwrap();
            child.wait().unwrap();
            return true;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_write_that_is_killed_at_any_moment_goes_on_and_loses_nothing() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    let more = [SMALL, &["--overviews", "1"]].concat();
    stage.run(&write(&url, "whole.zarr", &more)).text();
    let all = files(Path::new(&stage.path("whole.zarr"))).len();
    let torn = stage.path("torn.zarr");
    // Moments from the first file to the last ones, where metadata is written.
    let mut kills = 0;
    let mut moment = 1;
    loop {
        let child = stage
            .rss()
            .args(write(&url, "torn.zarr", &more))
            .spawn()
            .unwrap();
        if !killed(child, &torn, moment) {
            break;
        }
        kills += 1;
        let info = stage.run(&["zarr", "info", "torn.zarr", "--json"]);
        if info.code == Some(0) {
            // Only the journal's end was missing.
            assert_eq!(info.json()["times"].as_array().unwrap().len(), 4);
        } else {
            assert!(info.error().contains("no Zarr array"), "{info:?}");
        }
        let here = files(Path::new(&torn)).len();
        moment = (here + 1 + (kills * 7919) % 23).min(all);
        if kills > 60 {
            moment = usize::MAX;
        }
    }
    assert!(kills > 3, "{kills}");
    assert!(
        contents(&torn) == contents(&stage.path("whole.zarr")),
        "after {kills} kills"
    );
}

/// Two images of a day on both sides of the boundary of UTM zones 55 and 56, as items in a file.
fn two_zones(stage: &Stage, side: u32) -> String {
    let mut features = Vec::new();
    for (zone, (code, x, west)) in [(32755, 779_000.0, 149.98), (32756, 219_500.0, 150.0)]
        .into_iter()
        .enumerate()
    {
        let transform = [x, 30.0, 0.0, 6_345_000.0, 0.0, -30.0];
        let path = stage.image(&format!("zone-{zone}.tif"), side, code, transform);
        features.push(json!({
            "type": "Feature", "stac_version": "1.1.0", "id": format!("zone-{zone}"), "geometry": null,
            "links": [], "bbox": [west, -33.05, west + 0.02, -33.0],
            "properties": {"datetime": format!("2021-01-03T00:0{zone}:00Z")},
            "assets": {"red": {"href": path, "raster:bands": [{"nodata": -999, "scale": 0.5, "offset": 1}]}},
        }));
    }
    let items = json!({"type": "FeatureCollection", "features": features}).to_string();
    stage.write("items.json", items)
}

#[test]
fn images_on_several_grids_want_one_and_are_put_on_it() {
    let stage = Stage::new();
    let items = two_zones(&stage, 60);
    let write = |to: &str, more: &[&str]| {
        stage.run(&[&["zarr", "write", "--items", &items, "--to", to], more].concat())
    };
    let ran = write("cube.zarr", &[]);
    let way_out = "--resolution (with --crs) or --grid put images on one grid";
    assert!(
        ran.error().contains("reproject it first") && ran.error().ends_with(way_out),
        "{ran:?}"
    );
    assert!(!Path::new(&stage.path("cube.zarr")).exists());

    let utm = [
        "--crs",
        "32756",
        "--resolution",
        "30",
        "--resampling",
        "bilinear",
    ];
    let how = [&utm[..], &["--by", "solar_day", "--reflectance"]].concat();
    let said = write("cube.zarr", &[&how[..], &["--json"]].concat()).json();
    assert_eq!((&said["steps"], &said["holes"]), (&json!(1), &json!([])));
    let info = stage.run(&["zarr", "info", "cube.zarr", "--json"]).json();
    assert_eq!(
        (&info["epsg"], &info["transform"][1]),
        (&json!(32756), &json!(30.0))
    );
    let band = &info["bands"][0];
    assert_eq!(
        (&band["name"], &band["dtype"], &band["nodata"]),
        (&json!("red"), &json!("float32"), &json!("NaN"))
    );
    assert_eq!(info["times"][0]["items"], json!(["zone-0", "zone-1"]));
    assert_eq!(
        (&info["made"]["resampling"], &info["made"]["values"]),
        (&json!("bilinear"), &json!("physical"))
    );
    // rss apply puts the same images on the same grid.
    let apply = ["apply", "--items", &items, "-o", "red.bin"];
    stage.run(&[&apply[..], &utm].concat()).text();
    let read = ["zarr", "read", "cube.zarr", "--band", "red", "-o", "-"];
    let stored = stage.run(&read).stdout;
    assert_eq!(stored, fs::read(stage.path("red.bin")).unwrap());
    let numbers = |bytes: &[u8]| {
        let (numbers, _) = bytes.as_chunks::<4>();
        numbers
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect::<Vec<_>>()
    };
    // Samples from 100 to 115, halved, and one.
    let valid: Vec<f32> = numbers(&stored)
        .into_iter()
        .filter(|value| !value.is_nan())
        .collect();
    assert!(valid.len() > 60 * 60 && valid.len() < numbers(&stored).len());
    assert!(valid.iter().all(|value| (51.0..=58.5).contains(value)));

    // On the grid of a raster, and on that of the cube when dates are added.
    let said = write("other.zarr", &["--grid", "zone-1.tif", "--json"]).json();
    assert_eq!(said["steps"], json!(2));
    let info = stage.run(&["zarr", "info", "other.zarr", "--json"]).json();
    assert_eq!(
        (&info["width"], &info["transform"][0]),
        (&json!(60), &json!(219_500.0))
    );
    assert_eq!(info["bands"][0]["dtype"], json!("int16"));
    let again = write("cube.zarr", &[&how[..], &["--append", "--json"]].concat()).json();
    assert_eq!((&again["steps"], &again["known"]), (&json!(0), &json!(2)));
    let other = [
        "--crs",
        "32756",
        "--resolution",
        "60",
        "--reflectance",
        "--append",
    ];
    let ran = write("cube.zarr", &other);
    assert!(ran.error().contains("another grid is requested"), "{ran:?}");
    // What is there already need not lie anywhere.
    let again = write("cube.zarr", &["--append", "--json"]).json();
    assert_eq!((&again["steps"], &again["known"]), (&json!(0), &json!(2)));
}

#[test]
fn a_result_becomes_a_cube() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    let formula = ["apply", &url];
    let how = [
        "--expr",
        "ndvi=(nir-red)/(nir+red)",
        "--resolution",
        "20",
        "-o",
    ];
    let args = |out: &'static str, more: &[&'static str]| {
        let args = [&formula[..], SEED, &how, &[out], more].concat();
        stage.run(&args)
    };
    let said = args("ndvi.zarr", &["--json"]).json();
    assert_eq!((&said["count"], &said["holes"]), (&json!(1), &json!([])));
    let info = stage.run(&["zarr", "info", "ndvi.zarr", "--json"]).json();
    assert_eq!(info["bands"][0]["shape"], json!([4, 600, 600]));
    assert_eq!(info["made"]["computed"], json!("(nir-red)/(nir+red)"));
    args("ndvi.bin", &[]).text();
    let read = stage.run(&["zarr", "read", "ndvi.zarr", "-o", "-"]);
    assert_eq!(read.stdout, fs::read(stage.path("ndvi.bin")).unwrap());
    args("median.zarr", &["--reduce", "median"]).text();
    let info = stage.run(&["zarr", "info", "median.zarr", "--json"]).json();
    assert_eq!(info["bands"][0]["shape"], json!([1, 600, 600]));
    let ids: Vec<Value> = info["times"][0]["items"].as_array().unwrap().clone();
    assert_eq!(ids.len(), 4);
}

#[test]
fn others_read_a_computed_cube_at_its_place() {
    let Some(python) = python() else { return };
    let stage = Stage::new();
    let items = two_zones(&stage, 60);
    let to = ["zarr", "write", "--items", &items, "--to", "cube.zarr"];
    let how = [
        "--crs",
        "32756",
        "--resolution",
        "30",
        "--by",
        "solar_day",
        "--reflectance",
    ];
    stage.run(&[&to[..], &how].concat()).text();
    let info = stage.run(&["zarr", "info", "cube.zarr", "--json"]).json();
    // The oracle is the same picture as a GeoTIFF.
    let apply = [
        "apply",
        "--items",
        &items,
        "--crs",
        "32756",
        "--resolution",
        "30",
    ];
    stage.run(&[&apply[..], &["-o", "red.bin"]].concat()).text();
    stage.run(&[&apply[..], &["-o", "red.tif"]].concat()).text();
    let tif = stage.run(&["info", "red.tif", "--json"]).json();
    let g: Vec<f64> = tif["transform"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_f64().unwrap())
        .collect();
    let samples = fs::read(stage.path("red.bin")).unwrap();
    let array = json!({
        "dims": ["time", "y", "x"], "shape": [1, tif["height"], tif["width"]], "dtype": "float32",
        "crc32": crc32fast::hash(&samples), "nodata": "NaN",
    });
    let group = json!({
        "crs": "EPSG:32756",
        "transform": [g[1], 0, g[0], 0, g[5], g[3]],
        "coordinates": {
            "time": [info["times"][0]["time"]],
            "time_bnds": [[info["times"][0]["start"], info["times"][0]["end"]]],
            "item": ["zone-0,zone-1"],
        },
        "arrays": {"red": array},
    });
    let expect = stage.write("expect.json", json!({"groups": {"": group}}).to_string());
    let script = root().join("scripts/check_cubes.py");
    let done = python(&[script.to_str().unwrap(), &stage.path("cube.zarr"), &expect]);
    let said = String::from_utf8_lossy(&done.stdout);
    let wrong = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}\n{wrong}");
}

#[test]
fn others_read_a_cube_as_it_is() {
    let Some(python) = python() else { return };
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    for (name, more, levels) in [
        ("bands.zarr", &[][..], 0),
        ("stacked.zarr", &["--stack", "--use", "maps"], 0),
        (
            "levels.zarr",
            &[
                "--overviews",
                "2",
                "--use",
                "time-series",
                "--codec",
                "blosc-lz4",
            ],
            2,
        ),
        ("plain.zarr", &["--codec", "none"], 0),
        ("gzip.zarr", &["--codec", "gzip"], 0),
        ("zstd.zarr", &["--codec", "zstd:7"], 0),
        ("bits.zarr", &["--codec", "blosc-zstd:3:bit"], 0),
    ] {
        stage.run(&write(&url, name, more)).text();
        let expect = expectation(&stage, name, levels);
        let expect = stage.write("expect.json", expect.to_string());
        let script = root().join("scripts/check_cubes.py");
        let done = python(&[script.to_str().unwrap(), &stage.path(name), &expect]);
        let said = String::from_utf8_lossy(&done.stdout);
        let wrong = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{name}:\n{said}\n{wrong}");
    }
}

/// Returns what others must find in a cube of the seed query's scenes.
fn expectation(stage: &Stage, name: &str, levels: usize) -> Value {
    let info = stage.run(&["zarr", "info", name, "--json"]).json();
    let times = info["times"].as_array().unwrap();
    let stacked = name.starts_with("stacked");
    let mut groups = serde_json::Map::new();
    let g: Vec<f64> = info["transform"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_f64().unwrap())
        .collect();
    for level in 0..=levels {
        let side = info["levels"][level][0].as_u64().unwrap();
        let scale = f64::from(1_u32 << level);
        let samples = |band: &str| {
            let level = level.to_string();
            let ran = stage.run(&[
                "zarr", "read", name, "--band", band, "--level", &level, "-o", "-",
            ]);
            assert_eq!(ran.code, Some(0), "{ran:?}");
            ran.stdout
        };
        // The oracle of full resolution is the files.
        let truth = |band: Band| {
            let mut bytes = Vec::new();
            for time in times {
                let mut scenes = stage.bed.scenes().iter();
                let scene = scenes
                    .find(|scene| time["items"] == json!([scene.id]))
                    .unwrap();
                let window = scene.window(band, 0, 0, scene.side, scene.side);
                bytes.extend(window.iter().flat_map(|sample| sample.to_le_bytes()));
            }
            bytes
        };
        let planes: Vec<(&str, Vec<u8>)> = BANDS
            .iter()
            .map(|(name, band)| {
                (
                    *name,
                    if level == 0 {
                        truth(*band)
                    } else {
                        samples(name)
                    },
                )
            })
            .collect();
        let array = |dims: Value, shape: Value, bytes: &[u8]| {
            json!({"dims": dims, "shape": shape, "dtype": "int16", "crc32": crc32fast::hash(bytes), "nodata": -999,
            // By DEA's manifest: the files state no scale.
            "scale": 0.0001, "offset": 0.0})
        };
        let count = times.len();
        let arrays: Value = if stacked {
            let plane = usize::try_from(side * side * 2).unwrap();
            let mut bytes = Vec::new();
            for time in 0..count {
                for (_, samples) in &planes {
                    bytes.extend_from_slice(&samples[time * plane..(time + 1) * plane]);
                }
            }
            json!({"data": array(json!(["time", "band", "y", "x"]), json!([count, 2, side, side]), &bytes)})
        } else {
            planes
                .iter()
                .map(|(name, bytes)| {
                    let shape = json!([count, side, side]);
                    (
                        (*name).to_owned(),
                        array(json!(["time", "y", "x"]), shape, bytes),
                    )
                })
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        let mut coordinates = json!({
            "time": times.iter().map(|time| time["time"].clone()).collect::<Vec<_>>(),
            "item": times.iter().map(|time| time["items"][0].clone()).collect::<Vec<_>>(),
        });
        if stacked {
            coordinates["band"] = json!(BANDS.map(|(name, _)| name));
        }
        let group = json!({
            "crs": "EPSG:32756",
            "transform": [g[1] * scale, 0, g[0], 0, g[5] * scale, g[3]],
            "coordinates": coordinates,
            "arrays": arrays,
        });
        let path = if levels == 0 {
            String::new()
        } else {
            level.to_string()
        };
        groups.insert(path, group);
    }
    let mut expect = json!({"groups": groups});
    if levels > 0 {
        let paths: Vec<String> = (0..=levels).map(|level| level.to_string()).collect();
        expect["levels"] = json!(paths);
        expect["datatree"] = json!(true);
    }
    expect
}

/// Writes items of one scene in two processings, two minutes apart.
fn two_processings(stage: &Stage) -> String {
    let mut features = Vec::new();
    for (number, baseline) in ["05.00", "02.14"].into_iter().enumerate() {
        let transform = [779_000.0, 30.0, 0.0, 6_345_000.0, 0.0, -30.0];
        let path = stage.image(&format!("{baseline}.tif"), 20, 32755, transform);
        features.push(json!({
            "type": "Feature", "stac_version": "1.1.0", "id": format!("at-{baseline}"), "geometry": null,
            "links": [], "bbox": [149.98, -33.05, 150.0, -33.0],
            "properties": {"datetime": format!("2021-01-03T00:0{number}:00Z"), "grid:code": "MGRS-55HFA",
                "s2:processing_baseline": baseline},
            "assets": {"red": {"href": path, "raster:bands": [{"nodata": -999, "scale": 0.5, "offset": 1}]}},
        }));
    }
    let items = json!({"type": "FeatureCollection", "features": features}).to_string();
    stage.write("items.json", items)
}

#[test]
fn one_rule_says_which_duplicates_are_copied_computed_and_sampled() {
    let stage = Stage::new();
    let items = two_processings(&stage);
    let reason = "item at-02.14: the same scene as at-05.00, whose processing baseline 05.00 is preferred over 02.14";
    for (number, more) in [&[][..], &["--reflectance"], &["--resampling", "bilinear"]]
        .into_iter()
        .enumerate()
    {
        for (duplicates, steps, left_out) in [("best", 1, json!([reason])), ("keep", 2, json!([]))]
        {
            let to = format!("{number}-{duplicates}.zarr");
            let how = ["zarr", "write", "--items", &items, "--to", &to];
            let choice = ["--duplicates", duplicates, "--json"];
            let said = stage.run(&[&how[..], &choice, more].concat()).json();
            assert_eq!(
                (&said["steps"], &said["left_out"]),
                (&json!(steps), &left_out),
                "{more:?}"
            );
        }
    }
    // By default the best, and the others are said; again on a rerun, which has nothing to do.
    for _ in 0..2 {
        let ran = stage.run(&["zarr", "write", "--items", &items, "--to", "cube.zarr"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(
            ran.stderr.contains(&format!("left out: {reason}")),
            "{ran:?}"
        );
    }
    let apply = ["apply", "--items", &items, "--by", "item", "--json"];
    let sample = [
        "sample",
        "--items",
        &items,
        "--crs",
        "32755",
        "--point",
        "779300,6344700",
        "--json",
    ];
    for (duplicates, count) in [("best", 1), ("keep", 2)] {
        let choice = ["--duplicates", duplicates];
        let to = format!("{duplicates}.npy");
        let said = stage
            .run(&[&apply[..], &choice, &["-o", &to]].concat())
            .json();
        assert_eq!(said["steps"].as_array().unwrap().len(), count);
        let said = stage.run(&[&sample[..], &choice].concat()).json();
        assert_eq!(said["rows"].as_array().unwrap().len(), count);
    }
    let ran = stage.run(&[&apply[..], &["--duplicates", "all", "-o", "x.npy"]].concat());
    assert!(
        ran.stderr
            .contains("duplicates `all`: expected best or keep"),
        "{ran:?}"
    );
}

/// Returns whether two lists of numbers are the same to the last digits of their coordinates.
fn are_near(found: &Value, expected: &Value) -> bool {
    let numbers = |value: &Value| -> Vec<f64> {
        let numbers = value.as_array().into_iter().flatten();
        numbers.filter_map(Value::as_f64).collect()
    };
    let (found, expected) = (numbers(found), numbers(expected));
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
    found.len() == expected.len() && found.iter().zip(&expected).all(near)
}

#[test]
fn an_append_takes_the_bands_of_the_cube_from_items_that_have_more() {
    let stage = Stage::of(rss_testbed::Testbed::builder());
    let image = stage.image("image.tif", 64, 32755, [6e5, 10.0, 0.0, 6e6, 0.0, -10.0]);
    let items = |day: u32| {
        let asset =
            json!({"href": image, "roles": ["data"], "type": "image/tiff; application=geotiff"});
        let item = json!({
            "type": "Feature", "stac_version": "1.1.0", "id": format!("item-{day}"), "geometry": null, "links": [],
            "properties": {"datetime": format!("2021-01-0{day}T00:00:00Z")},
            "assets": {"red": asset, "nir": asset},
        });
        let items = json!({"type": "FeatureCollection", "features": [item]});
        stage.write(&format!("{day}.json"), items.to_string())
    };
    let write = |day: u32, more: &[&str]| {
        let args = [
            "zarr",
            "write",
            "--items",
            &items(day),
            "--to",
            "cube.zarr",
            "--json",
        ];
        stage.run(&[&args[..], more].concat())
    };
    assert_eq!(write(1, &["--bands", "red"]).json()["steps"], json!(1));
    let ran = write(2, &["--append"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let note = "note: of the items the bands of the cube are taken: red";
    assert!(ran.stderr.contains(note), "{ran:?}");
    let info = stage.run(&["zarr", "info", "cube.zarr", "--json"]).json();
    assert_eq!(info["times"].as_array().map(Vec::len), Some(2));
    assert_eq!(info["bands"].as_array().map(Vec::len), Some(1));
}

/// Checks what is told and read of a cube of others.
fn is_read_right(stage: &Stage, truth: &Value) {
    let path = truth["path"].as_str().unwrap();
    // Notes are on stderr.
    let ran = stage.run(&["zarr", "info", path, "--json"]);
    assert_eq!(ran.code, Some(0), "{path}: {ran:?}");
    let info: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(
        (&info["kind"], &info["own"], &info["epsg"]),
        (&json!("cube"), &json!(false), &truth["epsg"]),
        "{path}: {info}"
    );
    assert!(
        are_near(&info["transform"], &truth["transform"]),
        "{path}: {info}, expected {truth}"
    );
    let times = info["times"].as_array().unwrap();
    for (step, expected) in times
        .iter()
        .zip(truth["times"].as_array().into_iter().flatten())
    {
        let time = |text: &Value| {
            let text = text.as_str().unwrap().trim_end_matches('Z').to_owned();
            chrono::NaiveDateTime::parse_from_str(&text, "%Y-%m-%dT%H:%M:%S%.f").unwrap()
        };
        // xarray computes times of floats in floats.
        let apart = time(&step["time"]) - time(expected);
        assert!(
            apart.abs() < chrono::TimeDelta::microseconds(50),
            "{path}: {step}, {expected}"
        );
    }
    if let Some(items) = truth["items"].as_array() {
        let found: Vec<&Value> = times.iter().map(|step| &step["items"][0]).collect();
        assert_eq!(found, items.iter().collect::<Vec<_>>(), "{path}");
    }
    for band in truth["bands"].as_array().unwrap() {
        let name = band["name"].as_str().unwrap();
        let level = band["level"].to_string();
        let mut all = info["bands"].as_array().unwrap().iter();
        let said = all.find(|said| said["name"] == name);
        assert!(said.is_some(), "{path}: {name} is not in {info}");
        let said = said.unwrap();
        for key in ["dtype", "stored", "nodata", "scale", "offset"] {
            assert_eq!(said[key], band[key], "{path}, {name}, {key}");
        }
        let read = |more: &[&str]| {
            let read = [
                "zarr", "read", path, "--band", name, "--level", &level, "-o", "-",
            ];
            let ran = stage.run(&[&read[..], more].concat());
            assert_eq!(ran.code, Some(0), "{path}, {name}: {ran:?}");
            crc32fast::hash(&ran.stdout)
        };
        assert_eq!(read(&[]), band["crc32"], "{path}, {name}: all samples");
        if level == "0" {
            let last = (band["shape"][0].as_u64().unwrap() - 1).to_string();
            let part = read(&["--time", &last, "--window", "3,2,5,4"]);
            assert_eq!(part, band["window"], "{path}, {name}: a window");
        }
    }
}

#[test]
fn cubes_of_others_are_read_as_xarray_reads_them() {
    let Some(python) = python() else { return };
    let stage = Stage::new();
    let script = root().join("scripts/make_cubes.py");
    fs::create_dir(stage.path("others")).unwrap();
    let made = python(&[script.to_str().unwrap(), &stage.path("others")]);
    let wrong = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{wrong}");
    let truths: Vec<Value> = serde_json::from_slice(&made.stdout).unwrap();
    assert!(truths.len() > 20);
    // Most of the time processes start and end.
    std::thread::scope(|scope| {
        for truths in truths.chunks(truths.len().div_ceil(4)) {
            let stage = &stage;
            scope.spawn(move || truths.iter().for_each(|truth| is_read_right(stage, truth)));
        }
    });
    // They are read only.
    let url = stage.bed.stac_url();
    for name in ["rioxarray_v3_True.zarr", "rioxarray_v2_True.zarr"] {
        let path = stage.path(&format!("others/{name}"));
        let ran = stage.run(&write(&url, &path, &["--append"]));
        assert_eq!(ran.code, Some(2), "{ran:?}");
        let said = "it is read, but not written or appended to";
        assert!(ran.stderr.contains(said), "{ran:?}");
    }
    let ran = stage.run(&[
        "zarr",
        "info",
        &stage.path("others/eopf_v3.zarr/conditions"),
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = stage.run(&[
        "zarr",
        "read",
        &stage.path("others/geozarr.zarr"),
        "--band",
        "blue",
        "-o",
        "-",
    ]);
    assert!(
        ran.stderr.contains("band `blue` is not one of red"),
        "{ran:?}"
    );
}

/// What a check finds, the records of the cube repair: without the catalogue, and nothing but what is wrong.
#[test]
fn a_damaged_cube_is_found_and_repaired() {
    let bytes = |path: &std::path::PathBuf| fs::read(path).unwrap();
    for how in [&[][..], &["--reflectance"]] {
        let stage = Stage::new();
        let url = stage.bed.stac_url();
        let few = [
            "--chunk",
            "2,256,256",
            "--shard",
            "2,1024,1024",
            "--overviews",
            "1",
        ];
        let more = [&few[..], how].concat();
        stage.run(&write(&url, "cube.zarr", &more)).text();
        let check = |more: &[&str]| stage.run(&[&["zarr", "check", "cube.zarr"], more].concat());
        let ran = check(&[]);
        assert!(ran.text().contains("all as they were written"), "{ran:?}");
        let folder = stage.dir.path().join("cube.zarr");
        let whole = files(&folder);
        let before: Vec<Vec<u8>> = whole.iter().map(bytes).collect();
        let is_shard = |path: &&std::path::PathBuf| {
            let path = path.to_str().unwrap();
            path.contains("red") && path.contains("/c/")
        };
        let shards: Vec<_> = whole.iter().filter(is_shard).collect();
        fs::remove_file(shards[0]).unwrap();
        let mut flipped = bytes(shards[1]);
        flipped[7] ^= 4;
        fs::write(shards[1], flipped).unwrap();
        fs::remove_file(folder.join("zarr.json")).unwrap();
        let ran = check(&["--json"]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        let report: Value = serde_json::from_slice(&ran.stdout).unwrap();
        assert_eq!(report["whole"], json!(false));
        assert_eq!(
            report["counts"],
            json!({"missing": 2, "damaged": 1}),
            "{report}"
        );
        stage.bed.clear_log();
        let report = check(&["--repair", "--sources", "--json"]).json();
        assert_eq!(
            (&report["whole"], &report["repaired"]),
            (&json!(true), &json!(3))
        );
        let asked = stage.bed.requests(rss_testbed::Service::Stac);
        assert_eq!(asked.len(), 0, "the catalogue is not asked");
        assert_eq!(files(&folder), whole);
        assert!(whole.iter().map(bytes).collect::<Vec<_>>() == before);
        // A source that is another now: other bytes, the same pixels.
        let root: Value = serde_json::from_slice(&bytes(&folder.join("zarr.json"))).unwrap();
        let assets = &root["attributes"]["rss:provenance"][0]["items"][0]["assets"];
        let href = assets["nbart_red"].as_str().unwrap();
        let (bucket, key) = href.strip_prefix("s3://").unwrap().split_once('/').unwrap();
        let mut source = stage.bed.object(bucket, key).unwrap().to_vec();
        source.push(0);
        stage.bed.put(bucket, key, source);
        assert_eq!(check(&[]).code, Some(0), "no source is asked");
        let ran = check(&["--sources"]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(
            String::from_utf8_lossy(&ran.stdout).contains("stale shard"),
            "{ran:?}"
        );
        check(&["--sources", "--repair"]).text();
        check(&["--sources"]).text();
        // Without the sources metadata alone is repaired.
        fs::write(shards[0], b"").unwrap();
        fs::write(folder.join("zarr.json"), b"{").unwrap();
        for key in stage.bed.keys(bucket, "") {
            stage.bed.remove(bucket, &key);
        }
        let ran = check(&["--repair"]);
        assert_eq!(ran.code, Some(3), "{ran:?}");
        assert!(ran.stderr.contains("no shard was made again"), "{ran:?}");
    }
}
