//! `rss info` and `rss read`: the same file under any name, through either backend.

use std::fs;

use rss_testbed::{BUCKET, Band};
use serde_json::{Value, json};

use super::stage::{Stage, files};

const BACKENDS: [&str; 2] = ["cog", "gdal"];

/// Returns every name of the first scene's red band.
fn names(stage: &Stage) -> [String; 6] {
    let scene = &stage.bed.scenes()[0];
    let file = scene.file(Band::Red).unwrap().to_str().unwrap();
    let key = scene.key(Band::Red);
    let http = stage.bed.http_url(BUCKET, key);
    [
        file.to_owned(),
        format!("file://{file}"),
        format!("s3://{BUCKET}/{key}"),
        http.clone(),
        format!("/vsis3/{BUCKET}/{key}"),
        format!("/vsicurl/{http}"),
    ]
}

fn red(stage: &Stage) -> String {
    let [path, ..] = names(stage);
    path
}

/// Returns the right little-endian samples of a window of the first scene's red band.
fn truth(stage: &Stage, [col, row, width, height]: [u32; 4]) -> Vec<u8> {
    let scene = &stage.bed.scenes()[0];
    scene
        .window(Band::Red, col, row, width, height)
        .into_iter()
        .flat_map(i16::to_le_bytes)
        .collect()
}

#[test]
fn info_is_the_same_by_any_name_and_backend() {
    let stage = Stage::new();
    for name in names(&stage) {
        for backend in BACKENDS {
            let ran = stage.run(&["info", &name, "--json", "--backend", backend]);
            assert_eq!(
                ran.json(),
                json!({
                    "width": 1200, "height": 1200, "count": 1, "dtype": "int16", "nodata": -999,
                    "epsg": 32756, "wkt": null,
                    "transform": [499980.0, 10.0, 0.0, 7200040.0, 0.0, -10.0],
                    "tile": [512, 512], "compression": "DEFLATE", "predictor": 2,
                    "overviews": [[600, 600], [300, 300]], "scale": null, "offset": null,
                    "colors": ["gray"], "masking": "nodata", "gcps": null,
                }),
                "{name} {backend}"
            );
        }
    }
}

#[test]
fn info_has_every_key_where_a_file_has_no_answer() {
    let stage = Stage::new();
    // A TIFF of one pixel, without compression, CRS, transform and nodata.
    let mut tiff = b"II\x2a\0\x08\0\0\0".to_vec();
    let tags: [(u16, u16, u32); 9] = [
        (256, 3, 1),
        (257, 3, 1),
        (258, 3, 8),
        (259, 3, 1),
        (262, 3, 1),
        (273, 4, 122),
        (277, 3, 1),
        (278, 3, 1),
        (279, 4, 1),
    ];
    tiff.extend(9_u16.to_le_bytes());
    for (tag, kind, value) in tags {
        tiff.extend(tag.to_le_bytes());
        tiff.extend(kind.to_le_bytes());
        tiff.extend(1_u32.to_le_bytes());
        tiff.extend(value.to_le_bytes());
    }
    tiff.extend([0; 4]);
    tiff.push(7);
    tiff[8 + 2 + 5 * 12 + 8] = u8::try_from(tiff.len() - 1).unwrap();
    let path = stage.write("pixel.tif", &tiff);
    for backend in BACKENDS {
        let info = stage.run(&["info", &path, "--json", "--backend", backend]);
        assert_eq!(
            info.json(),
            json!({
                "width": 1, "height": 1, "count": 1, "dtype": "uint8", "nodata": null,
                "epsg": null, "wkt": null, "transform": null, "tile": [1, 1],
                "compression": null, "predictor": null, "overviews": [],
                "scale": null, "offset": null, "colors": ["gray"], "masking": "none", "gcps": null,
            }),
            "{backend}"
        );
        let read = stage.run(&["read", &path, "-o", "-", "--backend", backend]);
        assert_eq!(read.stdout, [7], "{read:?}");
    }
}

#[test]
fn info_as_text_has_a_line_per_fact() {
    let stage = Stage::new();
    let ran = stage.run(&["info", &red(&stage)]);
    let lines: Vec<&str> = ran.text().lines().collect();
    assert_eq!(lines.len(), 17, "{lines:?}");
    assert!(lines.contains(&"width        1200"), "{lines:?}");
    assert!(lines.contains(&"dtype        int16"), "{lines:?}");
    assert!(lines.contains(&"wkt          -"), "{lines:?}");
}

#[test]
fn pixels_are_the_same_by_any_name_and_backend() {
    let stage = Stage::new();
    let window = truth(&stage, [500, 500, 40, 30]);
    let mut digests = Vec::new();
    for name in names(&stage) {
        for backend in BACKENDS {
            let read = [
                "read",
                &name,
                "--window",
                "500,500,40,30",
                "--backend",
                backend,
                "--json",
                "-o",
                "a.bin",
            ];
            let report = stage.run(&read).json();
            assert!(
                fs::read(stage.path("a.bin")).unwrap() == window,
                "{name} {backend}"
            );
            assert_eq!(
                [&report["width"], &report["height"], &report["count"]],
                [40, 30, 1],
                "{report}"
            );
            assert_eq!(report["dtype"], "int16");
            assert_eq!(report["backend"], backend);
            assert!(report["wall_s"].as_f64().unwrap() > 0.0);
            let is_local = !name.contains(BUCKET) || name.starts_with("file:");
            let requests = report["requests"].as_u64().unwrap();
            let bytes = report["bytes"].as_u64().unwrap();
            if is_local {
                assert_eq!(requests, 0, "{name} {backend}");
            } else {
                assert!(requests > 0, "{name} {backend}: {report}");
                // Four tiles, at the least.
                assert!(bytes > 10_000, "{name} {backend}: {report}");
            }
            digests.push(report["sha256"].as_str().unwrap().to_owned());
        }
    }
    digests.dedup();
    assert_eq!(digests, [sha256(&window)]);
}

/// Returns the digest as the system's own tool computes it.
fn sha256(bytes: &[u8]) -> String {
    use std::{
        io::Write,
        process::{Command, Stdio},
    };
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let out = child.wait_with_output().unwrap().stdout;
    String::from_utf8(out).unwrap()[..64].to_owned()
}

#[test]
fn the_requests_that_read_counts_are_those_that_were_made() {
    let stage = Stage::new();
    let [_, _, s3, http, ..] = names(&stage);
    for name in [s3, http] {
        for backend in BACKENDS {
            stage.bed.clear_log();
            let read = ["read", &name, "--json", "-o", "a.bin", "--backend", backend];
            let report = stage.run(&read).json();
            assert_eq!(
                report["requests"],
                stage.bed.log().len(),
                "{name} {backend}: {:#?}",
                stage.bed.log()
            );
        }
    }
}

#[test]
fn the_whole_file_is_read_where_no_window_is_named() {
    let stage = Stage::new();
    for backend in BACKENDS {
        let ran = stage.run(&["read", &red(&stage), "-o", "-", "--backend", backend]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        assert!(ran.stdout == truth(&stage, [0, 0, 1200, 1200]), "{backend}");
    }
}

#[test]
fn an_overview_is_read_by_its_level() {
    let stage = Stage::new();
    let path = red(&stage);
    let mut digests = Vec::new();
    for (level, side) in [("1", 600), ("2", 300)] {
        for backend in BACKENDS {
            let read = ["read", &path, "--level", level, "--json", "-o", "a.bin"];
            let report = stage
                .run(&[&read[..], &["--backend", backend]].concat())
                .json();
            assert_eq!([&report["width"], &report["height"]], [side, side]);
            digests.push(report["sha256"].clone());
        }
    }
    assert_eq!(digests[0], digests[1]);
    assert_eq!(digests[2], digests[3]);
    assert_ne!(digests[0], digests[2]);
}

#[test]
fn every_ending_holds_the_same_pixels() {
    let stage = Stage::new();
    let path = red(&stage);
    let window = truth(&stage, [1150, 1160, 50, 40]);
    for backend in BACKENDS {
        let read = |out: &str| {
            let read = ["read", &path, "--window", "1150,1160,50,40", "--band", "1"];
            stage.run(&[&read[..], &["--backend", backend, "-o", out]].concat())
        };
        for out in ["a.bin", "a.npy", "a.tif", "a.png"] {
            assert_eq!(read(out).text(), "", "{out}");
        }
        assert!(fs::read(stage.path("a.bin")).unwrap() == window);
        let ran = read("-");
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        assert!(ran.stdout == window);

        // https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
        let npy = fs::read(stage.path("a.npy")).unwrap();
        let length = usize::from(u16::from_le_bytes([npy[8], npy[9]]));
        let (head, data) = npy.split_at(10 + length);
        let head = std::str::from_utf8(&head[10..]).unwrap();
        assert_eq!(&npy[..8], b"\x93NUMPY\x01\0");
        assert!(head.contains("'descr': '<i2'"), "{head}");
        assert!(head.contains("'shape': (1, 40, 50)"), "{head}");
        assert!(head.contains("'fortran_order': False"), "{head}");
        assert!(data == window);

        for other in BACKENDS {
            let tif = stage.path("a.tif");
            let ran = stage.run(&["read", &tif, "-o", "-", "--backend", other]);
            assert!(ran.stdout == window, "{backend} {other}");
            let info = stage
                .run(&["info", &tif, "--json", "--backend", other])
                .json();
            assert_eq!(
                (&info["epsg"], &info["nodata"]),
                (&32756.into(), &(-999).into())
            );
            assert_eq!(
                info["transform"],
                json!([511480.0, 10.0, 0.0, 7188440.0, 0.0, -10.0])
            );
        }

        let png = fs::read(stage.path("a.png")).unwrap();
        assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n");
        assert_eq!(&png[16..24], [0, 0, 0, 50, 0, 0, 0, 40]);
        let info = stage
            .run(&["info", "a.png", "--json", "--backend", "gdal"])
            .json();
        assert_eq!([&info["width"], &info["height"]], [50, 40]);
        assert_eq!(info["dtype"], "uint8");
    }
}

#[test]
fn classes_are_bytes() {
    let stage = Stage::new();
    let scene = &stage.bed.scenes()[0];
    let fmask = scene.file(Band::Fmask).unwrap().to_str().unwrap();
    let window = scene.window(Band::Fmask, 60, 60, 9, 7).into_iter();
    let window: Vec<u8> = window.map(|class| u8::try_from(class).unwrap()).collect();
    for backend in BACKENDS {
        let read = ["read", fmask, "--window", "60,60,9,7", "--backend", backend];
        let report = stage
            .run(&[&read[..], &["-o", "a.bin", "--json"]].concat())
            .json();
        assert_eq!(report["dtype"], "uint8");
        assert!(
            fs::read(stage.path("a.bin")).unwrap() == window,
            "{backend}"
        );
    }
}

#[test]
fn an_existing_output_is_replaced_whole() {
    let stage = Stage::new();
    stage.write("a.bin", vec![1; 100_000]);
    let read = ["read", &red(&stage), "--window", "0,0,4,4", "-o", "a.bin"];
    assert_eq!(stage.run(&read).text(), "");
    assert!(fs::read(stage.path("a.bin")).unwrap() == truth(&stage, [0, 0, 4, 4]));
}

#[test]
fn a_read_that_cannot_be_is_one_line_and_leaves_no_file() {
    let stage = Stage::new();
    let path = red(&stage);
    let [.., vsicurl] = names(&stage);
    let whole = fs::read(&path).unwrap();
    stage.write("cut.tif", &whole[..whole.len() / 3]);
    stage.write("stub.tif", &whole[..100]);
    stage.write("empty.tif", "");
    stage.write(
        "page.tif",
        "<!DOCTYPE html><html><body>Sign in</body></html>",
    );
    fs::create_dir(stage.path("folder")).unwrap();
    fs::create_dir(stage.path("folder.tif")).unwrap();
    let before = files(stage.dir.path());
    let absent_s3 = format!("s3://{BUCKET}/absent.tif");
    let absent_http = stage.bed.http_url(BUCKET, "absent.tif");
    let cases: &[(&[&str], &str)] = &[
        (&[&path, "--window", "1190,0,20,20"], "1190"),
        (&[&path, "--window", "0,0,0,0"], "0,0,0,0"),
        (&[&path, "--window", "1,2,3"], "1,2,3"),
        (&[&path, "--window", "-1,0,5,5"], "-1"),
        (
            &[
                &path,
                "--window",
                "4294967295,4294967295,4294967295,4294967295",
            ],
            "4294967295",
        ),
        (&[&path, "--level", "9"], "level 9 is not one of 0 to 2"),
        (&[&path, "--level", "-1"], "-1"),
        (&[&path, "--band", "0"], "band 0 is not one of 1 to 1"),
        (&[&path, "--band", "2"], "band 2 is not one of 1 to 1"),
        (&[&vsicurl, "--level", "1", "--window", "0,0,601,1"], "601"),
        (&["absent.tif"], "absent.tif"),
        (&["folder"], "folder"),
        (&["stub.tif"], "stub.tif"),
        (&["empty.tif"], "empty.tif"),
        (&["page.tif"], "page.tif"),
        (&["cut.tif"], "cut.tif"),
        (&[&absent_s3], &absent_s3),
        (&[&absent_http], &absent_http),
        (&["ftp://h/x.tif"], "ftp"),
        (&["http://"], "http"),
        (&[""], "rss: "),
    ];
    for (args, part) in cases {
        for backend in BACKENDS {
            let more = ["--backend", backend, "-o", "out.bin", "--json"];
            let ran = stage.run(&[&["read"], *args, &more].concat());
            let error = ran.error();
            assert!(error.contains(part), "{args:?} {backend}: {error}");
            assert_eq!(files(stage.dir.path()), before, "{args:?} {backend}");
        }
    }
    for (args, part) in [
        (&["-o", "a.jpg"][..], ".tif, .npy, .bin, .png"),
        (&["-o", "noending"], ".tif, .npy, .bin, .png"),
        (&["-o", "folder"], "folder"),
        (&["-o", "folder.tif"], "folder.tif"),
        (&["-o", "absent/a.tif"], "absent/a.tif"),
        (&["-o", "-", "--json"], "stdout"),
        (&["-o", "a.bin", "--backend", "magic"], "magic"),
        (&[], "--output"),
    ] {
        let ran = stage.run(&[&["read", &path], args].concat());
        let error = ran.error();
        assert!(error.contains(part), "{args:?}: {error}");
        assert_eq!(files(stage.dir.path()), before, "{args:?}");
    }
    assert!(fs::metadata(stage.path("folder.tif")).unwrap().is_dir());
}

#[test]
fn info_of_what_is_no_raster_is_one_line() {
    let stage = Stage::new();
    stage.write(
        "page.tif",
        "<!DOCTYPE html><html><body>Sign in</body></html>",
    );
    stage.write("empty.tif", "");
    let absent = format!("/vsis3/{BUCKET}/absent.tif");
    for name in [
        "page.tif",
        "empty.tif",
        "absent.tif",
        &absent,
        "/vsizip/x.zip/a.tif",
    ] {
        for backend in ["auto", "cog", "gdal"] {
            let ran = stage.run(&["info", name, "--json", "--backend", backend]);
            assert!(ran.error().len() > "rss: ".len(), "{ran:?}");
        }
    }
}

#[test]
fn auto_says_which_backend_it_became() {
    let stage = Stage::new();
    let tif = stage
        .run(&["read", &red(&stage), "--json", "-o", "a.png"])
        .json();
    assert_eq!(tif["backend"], "cog");
    assert_eq!(tif["fallback"], Value::Null);
    let ran = stage.run(&["read", "a.png", "--json", "-o", "b.bin"]);
    let png: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(png["backend"], "gdal");
    let why = "not a TIFF: it starts with neither II nor MM";
    assert_eq!(png["fallback"], why);
    // Nobody is left to find out.
    assert_eq!(ran.stderr, format!("rss: reading with gdal: {why}\n"));
    let ran = stage.run(&["info", "a.png", "--json"]);
    assert_eq!(ran.stderr, format!("rss: reading with gdal: {why}\n"));
}
