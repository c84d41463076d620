//! `rss gather`: one tile from each file of a list.

use std::fs;

use rss_testbed::{BUCKET, Band, Fault, Rule, Service};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::stage::Stage;

/// Writes a list of the scenes' bands of 10 m and returns its path and the files in its order.
fn list(stage: &Stage) -> (String, Vec<(usize, Band)>) {
    let mut lines = "# bands of 10 m\n\n".to_owned();
    let mut files = Vec::new();
    for (number, scene) in stage.bed.scenes().iter().enumerate() {
        for band in [Band::Red, Band::Nir] {
            lines += &format!("s3://{BUCKET}/{}\n", scene.key(band));
            files.push((number, band));
        }
    }
    (stage.write("list.txt", lines), files)
}

/// The samples of a tile of a file, little-endian.
fn truth(stage: &Stage, (scene, band): (usize, Band), col: u32, row: u32) -> Vec<u8> {
    let scene = &stage.bed.scenes()[scene];
    let (first_col, first_row) = (col * 512, row * 512);
    let side = |first: u32| (scene.side - first).min(512);
    let samples = scene.window(band, first_col, first_row, side(first_col), side(first_row));
    samples.into_iter().flat_map(i16::to_le_bytes).collect()
}

fn hex(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn json(stage: &Stage, args: &[&str]) -> Value {
    let ran = stage.run(args);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_slice(&ran.stdout).unwrap()
}

#[test]
fn the_digest_is_that_of_the_tiles_in_order() {
    let stage = Stage::new();
    let (list, files) = list(&stage);
    let middle = stage.bed.scenes()[0].side.div_ceil(512) / 2;
    let all = |col: u32, row: u32| -> Vec<u8> {
        let tiles = files.iter().map(|&file| truth(&stage, file, col, row));
        tiles.collect::<Vec<_>>().concat()
    };
    for (args, col, row) in [(&[][..], middle, middle), (&["--tile", "1,0"], 1, 0)] {
        let said = json(&stage, &[&["gather", &list, "--json"][..], args].concat());
        assert_eq!(said["sha256"], hex(&all(col, row)), "{args:?}");
        assert_eq!((&said["files"], &said["ok"]), (&8.into(), &8.into()));
        assert_eq!(said["failed"], Value::Array(Vec::new()));
        assert_eq!(said["requests"], stage.fetches());
        assert_eq!(said["planned"]["requests"], 16);
        for key in [
            "wall_s",
            "cpu_s",
            "tiles_per_s",
            "peak_tiles_per_s",
            "bytes",
        ] {
            assert!(said[key].as_f64().unwrap() > 0.0, "{key}");
        }
        for key in ["open_ms", "read_ms", "total_ms"] {
            let [min, median, max] =
                ["min", "median", "max"].map(|of| said[key][of].as_f64().unwrap());
            assert!(0.0 < min && min <= median && median <= max, "{key}");
        }
        stage.bed.clear_log();
    }
}

#[test]
fn backends_and_numbers_of_tiles_under_way_agree() {
    let stage = Stage::new();
    let (list, _) = list(&stage);
    // No tile is late before twenty are known.
    let lines = fs::read_to_string(list).unwrap();
    let list = stage.write("many.txt", lines.repeat(5));
    let mut runs: Vec<Vec<&str>> = vec![
        vec!["--backend", "cog", "--concurrency", "1"],
        vec!["--backend", "auto", "--hedge", "0.9"],
    ];
    if cfg!(feature = "gdal") {
        runs.push(vec!["--backend", "gdal", "--concurrency", "3"]);
    }
    let digests: Vec<Value> = runs
        .iter()
        .map(|args| {
            let args = [&["gather", &list, "--json", "--tile", "0,0"][..], args].concat();
            json(&stage, &args)["sha256"].clone()
        })
        .collect();
    assert!(
        digests.iter().all(|digest| *digest == digests[0]),
        "{digests:?}"
    );
}

#[test]
fn a_file_that_fails_is_one_row() {
    let stage = Stage::new();
    let (list, _) = list(&stage);
    let key = stage.bed.scenes()[1].key(Band::Red).to_owned();
    let denied = Rule::new(Fault::status(403)).on(Service::S3).path(&key);
    stage.bed.fault(denied);
    let npy = stage.path("tiles.npy");
    let ran = stage.run(&["gather", &list, "--json", "-o", &npy]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let said: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!((&said["files"], &said["ok"]), (&8.into(), &7.into()));
    let failed = said["failed"].as_array().unwrap();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0]["location"], format!("s3://{BUCKET}/{key}"));
    assert!(
        failed[0]["error"]
            .as_str()
            .unwrap()
            .contains("refused access")
    );
    assert!(
        ran.stderr.contains("1 of 8 tiles were not read"),
        "{}",
        ran.stderr
    );
    // Its place in the array holds nodata.
    let bytes = fs::read(npy).unwrap();
    let header = String::from_utf8_lossy(&bytes[..128]).into_owned();
    let tile = (bytes.len() - 128) / 8;
    assert!(
        header.contains("'<i2'") && header.contains("'shape': (8, 1, "),
        "{header}"
    );
    let third = &bytes[128 + 2 * tile..128 + 3 * tile];
    assert!(
        third
            .chunks(2)
            .all(|sample| sample == (-999_i16).to_le_bytes())
    );
    let middle = stage.bed.scenes()[0].side.div_ceil(512) / 2;
    assert_eq!(
        bytes[128..128 + tile],
        truth(&stage, (0, Band::Red), middle, middle)
    );
}

#[test]
fn a_plan_asks_for_nothing() {
    let stage = Stage::new();
    let (list, _) = list(&stage);
    let plan = json(&stage, &["gather", &list, "--explain", "--json"]);
    assert_eq!(
        (&plan["files"], &plan["requests"], &plan["guessed"]),
        (&8.into(), &16.into(), &8.into())
    );
    assert_eq!(plan["hosts"]["127.0.0.1"]["requests"], 16);
    let note = plan["notes"][0].as_str().unwrap();
    assert!(note.contains("of 8 files only headers are known"), "{note}");
    assert_eq!(plan["cost_usd"], Value::Null);
    let prices = stage.write(
        "prices.yaml",
        "providers: [{name: Here, hosts: [127.0.0.1], requests: 1000, gib_out: 0, gib_inside: 0}]",
    );
    let plan = json(
        &stage,
        &["gather", &list, "--explain", "--json", "--prices", &prices],
    );
    assert_eq!(plan["cost_usd"]["internet"], 16.0);
    assert_eq!(stage.fetches(), 0);
    let ran = stage.run(&["gather", &list, "--explain"]);
    assert!(
        String::from_utf8_lossy(&ran.stdout).contains("requests     16"),
        "{ran:?}"
    );
}

#[test]
fn places_on_the_earth_are_found() {
    let stage = Stage::new();
    let (list, files) = list(&stage);
    // The middle of pixel 300,200, by `gdaltransform -s_srs EPSG:32756 -t_srs EPSG:4326`.
    let (lon, lat) = (153.029661658346, -25.3342957033954);
    let point = format!("{lon},{lat}");
    let tiles = |col: u32, row: u32, width: u32, height: u32| -> Vec<u8> {
        let samples = files.iter().flat_map(|&(scene, band)| {
            stage.bed.scenes()[scene].window(band, col, row, width, height)
        });
        samples.flat_map(i16::to_le_bytes).collect()
    };
    let one = json(&stage, &["gather", &list, "--json", "--point", &point]);
    assert_eq!(one["sha256"], hex(&tiles(0, 0, 512, 512)));
    let args = [
        "gather", &list, "--json", "--point", &point, "--size", "32,17",
    ];
    let chips = json(&stage, &args);
    assert_eq!(chips["sha256"], hex(&tiles(284, 192, 32, 17)));
    // Ten metres are a pixel: a box of decimetres around its middle touches no other.
    let near = [lon - 1e-6, lat - 1e-6, lon + 1e-6, lat + 1e-6].map(|edge| edge.to_string());
    let said = json(
        &stage,
        &["gather", &list, "--json", "--bbox", &near.join(",")],
    );
    assert_eq!(said["sha256"], hex(&tiles(300, 200, 1, 1)));
    let ran = stage.run(&["gather", &list, "--point=-30,60"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr.contains("point -30,60 is outside the image"),
        "{}",
        ran.stderr
    );
}

#[test]
fn bad_input_is_one_clear_line() {
    let stage = Stage::new();
    let (list, _) = list(&stage);
    let odd = stage.write("odd.txt", "s3://bucket/a.tif\nftp://x/y.tif\n");
    let cases: &[(&[&str], &str)] = &[
        (&["none.txt"], "none.txt"),
        (&[&odd], "line 2 of"),
        (&[&list, "--tile", "1"], "expected --tile COL,ROW"),
        (
            &[&list, "--tile", "0,0", "--window", "0,0,1,1"],
            "cannot be used with",
        ),
        (&[&list, "--concurrency", "0"], "--concurrency is 0"),
        (&[&list, "--hedge", "2"], "expected one between 0 and 1"),
        (&[&list, "--backend", "magic"], "magic"),
        (
            &[&list, "-o", "tiles.tif"],
            "the extension of a file of many rasters must be .npy",
        ),
        (&[&list, "--point", "1,2", "--size", "0,4"], "--size is 0,4"),
    ];
    for (args, expected) in cases {
        let ran = stage.run(&[&["gather"], *args].concat());
        assert_eq!(ran.code, Some(2), "{args:?} {ran:?}");
        assert!(ran.stderr.contains(expected), "{args:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        assert!(ran.stdout.is_empty());
    }
    assert_eq!(stage.fetches(), 0);
    let none = stage.write("empty.txt", "# nothing\n");
    assert_eq!(stage.run(&["gather", &none]).code, Some(1));
}

#[cfg(feature = "index")]
#[test]
fn with_an_index_each_tile_is_one_request() {
    let stage = Stage::new();
    let (list, files) = list(&stage);
    let index = stage.path("files.parquet");
    let built = json(&stage, &["index", "build", &list, "-o", &index, "--json"]);
    assert_eq!(
        (&built["files"], &built["requests"]),
        (&8.into(), &8.into())
    );
    let without = json(&stage, &["gather", &list, "--json"]);
    stage.bed.clear_log();

    let args = ["gather", &list, "--index", &index, "--json"];
    let plan = json(&stage, &[&args[..], &["--explain"]].concat());
    assert_eq!(stage.fetches(), 0);
    let said = json(&stage, &args);
    assert_eq!(stage.fetches(), files.len());
    assert_eq!(said["sha256"], without["sha256"]);
    for key in ["requests", "bytes"] {
        assert_eq!(said[key], plan[key], "{key}");
    }
    assert_eq!(plan["guessed"], 0);
    // All files of the index, without a list: in the order of the index, which is that of the list.
    let said = json(&stage, &["gather", "--index", &index, "--json"]);
    assert_eq!(said["sha256"], without["sha256"]);

    // What the index lacks is read without it.
    let more = fs::read_to_string(&list).unwrap();
    stage.bed.put(
        BUCKET,
        "more.tif",
        fs::read(stage.bed.scenes()[0].file(Band::Red).unwrap()).unwrap(),
    );
    let more = stage.write("more.txt", more + &format!("s3://{BUCKET}/more.tif\n"));
    stage.bed.clear_log();
    let ran = stage.run(&["gather", &more, "--index", &index, "--json"]);
    assert_eq!((ran.code, stage.fetches()), (Some(0), 10));
    assert!(
        ran.stderr.contains("1 of 9 files are not in the index"),
        "{}",
        ran.stderr
    );

    // A file that was replaced is reported, or read anew.
    let key = stage.bed.scenes()[0].key(Band::Red).to_owned();
    let other = fs::read(stage.bed.scenes()[1].file(Band::Red).unwrap()).unwrap();
    stage.bed.put(BUCKET, &key, other);
    let ran = stage.run(&args);
    assert_eq!(ran.code, Some(3));
    let said: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert!(
        said["failed"][0]["error"]
            .as_str()
            .unwrap()
            .contains("changed"),
        "{said}"
    );
    let anew = json(&stage, &[&args[..], &["--on-change", "reindex"]].concat());
    assert_eq!((&anew["ok"], &anew["reindexed"]), (&8.into(), &1.into()));

    let ran = stage.run(&["gather", "--index", &index, "--assets", "blue"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr.contains("the index has no asset `blue`"),
        "{}",
        ran.stderr
    );
    assert_eq!(stage.run(&["gather"]).code, Some(2));
}

#[test]
fn a_file_past_a_bound_loses_its_row_and_no_other() {
    let stage = Stage::new();
    // A codestream of some hundred bytes that states one tile of 30,000 x 30,000 pixels in code-blocks of 4 x 4.
    let mut huge = b"\xff\x4f\xff\x51\0\x29\0\0".to_vec();
    for number in [30_000_u32, 30_000, 0, 0, 30_000, 30_000, 0, 0] {
        huge.extend(number.to_be_bytes());
    }
    huge.extend(b"\0\x01\x07\x01\x01\xff\x52\0\x0c\0\0\0\x01\0\x05\0\0\0\x01\xff\x5c\0\x13\x40");
    huge.extend([0x40; 16]);
    huge.extend(b"\xff\x90\0\x0a\0\0\0\0\0\0\0\x01\xff\x93");
    huge.extend([0; 200]);
    let huge = stage.write("huge.j2k", huge);
    let fine = stage.image("fine.tif", 64, 32756, [0.0, 10.0, 0.0, 0.0, 0.0, -10.0]);
    let list = stage.write("list.txt", format!("{huge}\n{fine}\n{huge}\n"));
    let ran = stage.run(&["gather", &list, "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(report["ok"], 1, "{ran:?}");
    let failed = report["failed"].as_array().unwrap();
    assert!(!failed.is_empty());
    for one in failed {
        assert!(one["error"].as_str().unwrap().contains("limit"), "{one}");
    }
}
