//! What the comparisons count, and what they agree on. Times are never asserted.

use std::fs;

use serde_json::Value;

use super::stage::{GATHER, RANGES, Stage, ZARR, files};

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

#[test]
fn a_gather_counts_requests_and_agrees_on_pixels() {
    let stage = Stage::new();
    let report = stage.run(&[GATHER, &["--json"]].concat()).json();
    assert_eq!(report["bench"], "gather");
    for key in ["command", "date", "build", "version"] {
        assert!(
            report[key].as_str().is_some_and(|text| !text.is_empty()),
            "{key}"
        );
    }
    assert!(report["machine"]["cores"].as_u64().unwrap() > 0);
    assert_eq!(report["settings"]["files"], 12);
    assert_eq!(report["workload"]["tile"], serde_json::json!([512, 512]));
    assert!(number(&report["decode_limit"]["tiles_per_s"]) > 0.0);

    let runs = report["runs"].as_array().unwrap();
    // What finds its number by itself runs once in each round.
    assert_eq!(runs.len(), 5 * 2 * 2 + 2);
    for run in runs {
        assert_eq!(run["sha256"], report["sha256"]);
        assert_eq!(run["files"], 12);
        let requests = number(&run["requests_per_tile"]);
        match run["backend"].as_str().unwrap() {
            "index" | "index-adaptive" => assert_eq!(requests, 1.0),
            "gdal-tuned" | "async-tiff" | "cog" => assert_eq!(requests, 2.0),
            // Folders are listed.
            "gdal" => assert!(requests > 2.0, "{requests}"),
            other => panic!("{other}"),
        }
        for key in ["open_ms", "read_ms", "total_ms", "first_file_ms"] {
            let at = |part: &str| number(&run[key][part]);
            assert!(
                at("min") <= at("median") && at("median") <= at("max"),
                "{key}"
            );
        }
        for key in [
            "wall_s",
            "cpu_s",
            "cpu_ms_per_tile",
            "peak_tiles_per_s",
            "open_share",
        ] {
            assert!(number(&run[key]) > 0.0, "{key}");
        }
        let finished = run["finished"].as_array().unwrap();
        assert_eq!(finished.last().unwrap()["files"], 12);
        for part in ["open", "read", "total"] {
            let counts = run["histogram"][part].as_array().unwrap();
            assert_eq!(counts.iter().map(number).sum::<f64>(), 12.0);
        }
    }
    // One of each backend at each concurrency.
    assert_eq!(report["best"].as_array().unwrap().len(), 11);
    // The sizes of the published report: 241,315 to 467,655 bytes.
    let chunk = &report["workload"]["chunk_bytes"];
    assert!(
        number(&chunk["min"]) > 200_000.0 && number(&chunk["max"]) < 500_000.0,
        "{chunk}"
    );
}

#[test]
fn the_rows_of_ranges_add_up() {
    let stage = Stage::new();
    let report = stage.run(&[RANGES, &["--json"]].concat()).json();
    let lanes = report["lanes"].as_array().unwrap();
    // Serial, parallel, two sizes of pieces, coalesced; of two files.
    assert_eq!(lanes.len(), 10);
    let window = &report["windows"][0]["window"];
    assert_eq!(window, &serde_json::json!([512, 2560]));
    let sent = |lane: &Value| lane["bytes"].as_u64().unwrap();
    for lane in lanes {
        assert_eq!(lane["sha256"], report["windows"][0]["sha256"]);
        // Merged, what lies between is sent too; in pieces and side by side the same as one by one.
        let serial = lanes
            .iter()
            .find(|serial| serial["way"] == "serial" && serial["file"] == lane["file"])
            .unwrap();
        match lane["way"] == "coalesced" {
            true => assert!(sent(lane) >= sent(serial), "{lane}"),
            false => assert_eq!(sent(lane), sent(serial), "{lane}"),
        }
        assert!(number(&lane["cold_ms"]) > 0.0);
        let rows = lane["ranges"].as_array().unwrap();
        let bytes: Vec<u64> = rows
            .iter()
            .map(|row| row["bytes"].as_u64().unwrap())
            .collect();
        match lane["way"].as_str().unwrap() {
            "serial" => {
                assert_eq!(bytes.len(), 10);
                assert_eq!(bytes.iter().sum::<u64>(), sent(lane));
                assert!(
                    bytes.iter().step_by(2).all(|&first| first == 65_536),
                    "{bytes:?}"
                );
                assert_eq!(lane["requests"], 10.0);
            }
            "parallel" => assert_eq!(lane["requests"], 10.0),
            "split 10000 B" => assert!(number(&lane["requests"]) > 100.0),
            "split 256 KiB" => assert!(number(&lane["requests"]) >= 10.0),
            "coalesced" => assert!(number(&lane["requests"]) <= 5.0),
            other => panic!("{other}"),
        }
    }
    assert_eq!(report["findings"].as_array().unwrap().len(), 8);
}

#[test]
fn all_systems_store_the_same_arrays() {
    let stage = Stage::new();
    let report = stage.run(&[ZARR, &["--json"]].concat()).json();
    assert_eq!(report["bench"], "zarr");
    let sources = report["sources"].as_array().unwrap();
    // The digests that the tests of the data fix.
    let crcs: Vec<u64> = sources
        .iter()
        .map(|s| s["crc32"].as_u64().unwrap())
        .collect();
    assert_eq!(crcs, CRCS);
    assert_eq!(sources[2]["shape"], serde_json::json!([16, 2, 256, 256]));
    let rows = report["rows"].as_array().unwrap();
    // Three systems; two sizes of chunks of the volumes, one of the images.
    assert_eq!(rows.len(), 3 * (2 * 2 + 1));
    for row in rows {
        assert_eq!(row["error"], Value::Null, "{row}");
        for work in ["write", "read"] {
            for clock in ["wall_s", "cpu_s"] {
                let at = |part: &str| number(&row[work][clock][part]);
                assert!(at("min") > 0.0, "{row}");
                assert!(at("min") <= at("median") && at("median") <= at("max"));
            }
        }
        assert!(number(&row["bytes"]) > 1000.0);
        let (cuts, names): (_, &[&str]) = match row["data"].as_str().unwrap() {
            "eo" => (16, &["series", "map"]),
            _ => (8, &["cutout"]),
        };
        // The shards, and the array's metadata.
        let shards = match row["data"] == "eo" {
            true => 2 * cuts,
            false => cuts,
        };
        assert_eq!(row["files"], shards + 1, "{row}");
        for (cutout, name) in row["cutouts"].as_array().unwrap().iter().zip(names) {
            assert_eq!(cutout["name"], *name);
            assert!(number(&cutout["fresh_us"]["median"]) > 0.0);
            assert!(number(&cutout["open_us"]["median"]) > 0.0);
        }
    }
    // Measures of each case; images have a second box.
    let findings = report["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 4 * 7 + 9);
    for finding in findings {
        assert_eq!(finding["other"], "zarrs");
        assert!(number(&finding["ratio"]) > 0.0);
    }
    assert_eq!(files(stage.dir.path()).len(), 0);
}

/// Of the data at a side of 64.
const CRCS: [u64; 3] = [0x3F6E_65F8, 0x478B_5568, 0x5BD2_FB10];

#[cfg(unix)]
#[test]
fn a_peer_that_fails_is_a_row_and_a_note() {
    let stage = Stage::new();
    let refuses = stage.write(
        "refuses.sh",
        r#"read hello; echo '{"system": "x", "version": "7.5", "codec": "none"}'
while read job; do echo '{"error": "not enough axes"}'; done"#,
    );
    let json = stage.path("r.json");
    let refuses = format!("refuses=sh '{refuses}'");
    let args = [
        "--data",
        "color",
        "--json",
        &json,
        "--peer",
        "ends=sh -c 'echo no such module >&2; exit 3'",
        "--peer",
        "absent=/absent/program",
        "--peer",
        "nonsense=echo hello",
        "--peer",
        &refuses,
    ];
    let ran = stage.run(&[ZARR, &args].concat());
    let text = ran.text();
    for said in [
        "ends failed at color, inner 16; color, inner 32: it ended (exit status: 3): no such module",
        "absent failed at color, inner 16; color, inner 32: it ended (exit status: 127)",
        "nonsense failed at color, inner 16; color, inner 32: it answered `hello`",
        "refuses failed at color, inner 16; color, inner 32: not enough axes",
        "refuses 7.5 (none)",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 7);
    for row in rows {
        let is_ours =
            ["rss_core", "rss_core lz4", "zarrs"].contains(&row["system"].as_str().unwrap());
        assert_eq!(row["error"].is_null(), is_ours, "{row}");
        assert_eq!(row["write"].is_object(), is_ours, "{row}");
    }
}

#[cfg(unix)]
#[test]
fn a_peer_that_reads_other_samples_ends_the_run() {
    let stage = Stage::new();
    let lies = stage.write(
        "lies.py",
        r#"import json, os, sys
for line in sys.stdin:
    job = json.loads(line)
    if job["do"] == "write":
        os.makedirs(job["to"])
    print(json.dumps({"system": "x", "version": "1", "codec": "x", "wall_s": 1, "cpu_s": 1,
                      "crc32": 7, "seconds": [1]}), flush=True)
"#,
    );
    let peer = format!("liar=python3 '{lies}'");
    let args = ["--data", "color", "--peer", &peer];
    let ran = stage.run(&[ZARR, &args].concat());
    let said = "liar reads other samples of color, inner 16 than were stored: crc32 00000007";
    assert!(ran.error().contains(said), "{ran:?}");
}

#[test]
fn what_is_measured_stays_where_it_is_told_to() {
    let stage = Stage::new();
    let dir = stage.path("kept");
    let args = ["--data", "segmentation", "--dir", &dir];
    stage.run(&[ZARR, &args].concat()).text();
    let kept = |path: &str| fs::metadata(format!("{dir}/{path}")).unwrap().len();
    assert_eq!(kept("segmentation-64.raw"), 64 * 64 * 64 * 4);
    for system in ["rss_core", "rss_core_lz4", "zarrs"] {
        assert!(kept(&format!("segmentation-32-32-32/{system}/zarr.json")) > 100);
        assert!(kept(&format!("segmentation-32-32-32/{system}/c/1/0/1")) > 100);
    }
}
