//! `rss bench`: what it counts, what it prints, and the page it writes. Times are never asserted.

use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rss_testbed::Testbed;
use serde_json::Value;

use super::stage::{Stage, files, interrupt, wait_until};

/// A stage without scenes: the command starts servers of its own.
fn bare() -> Stage {
    Stage::of(Testbed::builder())
}

const GATHER: &[&str] = &[
    "bench",
    "gather",
    "--files",
    "12",
    "--latency",
    "2",
    "--concurrency",
    "1,4",
    "--repeats",
    "2",
];
const RANGES: &[&str] = &[
    "bench",
    "ranges",
    "--iterations",
    "2",
    "--profile",
    "same-region",
    "--scale",
    "0.1",
];

/// How long a browser may take for a page.
const BROWSER_TIME: Duration = Duration::from_secs(60);
const ZARR: &[&str] = &[
    "bench", "zarr", "--side", "64", "--inner", "16,32", "--rounds", "2",
];

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

#[test]
fn a_gather_counts_requests_and_agrees_on_pixels() {
    let stage = bare();
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
    let stage = bare();
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
    let stage = bare();
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
    let stage = bare();
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
    let stage = bare();
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
    let stage = bare();
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

#[test]
fn a_report_is_text_json_and_a_page_at_once() {
    let stage = bare();
    let (json, html) = (stage.path("r.json"), stage.path("r.html"));
    for (args, plots) in [(GATHER, 9), (ZARR, 4 * 5 + 7), (RANGES, 2)] {
        let ran = stage.run(&[args, &["--json", &json, "--html", &html]].concat());
        assert!(ran.text().contains("All "), "{ran:?}");
        let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
        assert!(report["bench"].is_string());
        let page = fs::read_to_string(&html).unwrap();
        assert_eq!(page.matches("<svg ").count(), plots);
        // Nothing is fetched, and nothing runs. What is left is SVG's own name.
        for word in ["<script", "src=", "href=", "url(", "@import", "<link"] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("width=device-width"));
        looks_right(&stage, &page, plots);
        assert_eq!(
            files(stage.dir.path()).len(),
            2,
            "no temporary file is left"
        );
    }
    let page = fs::read_to_string(&html).unwrap();
    for id in ["ways-same-region-striped", "ways-same-region-tiled"] {
        assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
    }
}

#[test]
fn a_gather_page_has_every_plot() {
    let stage = bare();
    let html = stage.path("r.html");
    let args = ["--backends", "cog,index", "--html", &html];
    stage.run(&[GATHER, &args].concat()).text();
    let page = fs::read_to_string(&html).unwrap();
    for id in [
        "best-throughput",
        "best-cpu",
        "best-requests",
        "throughput",
        "progress",
        "latency-open",
        "latency-read",
        "latency-total",
        "warm-up",
    ] {
        assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
    }
}

/// Loads a page in a browser, also as narrow as a phone, and measures it there.
fn looks_right(stage: &Stage, page: &str, plots: usize) {
    let Some(browser) = browser() else {
        eprintln!("no Chromium here: the page's text alone was checked");
        return;
    };
    let inner = page.replace('&', "&amp;").replace('"', "&quot;");
    let widths = [360, 390, 1280];
    // A browser's window has a least width; a frame has none.
    let frame = |width: u32| {
        format!(
            "<iframe onload=\"measure(this, {width})\" style=\"width:{width}px;height:900px;border:0\" \
             srcdoc=\"{inner}\"></iframe>"
        )
    };
    let measure = "<script>function measure(f, width) {\
        const d = f.contentDocument, svgs = [...d.querySelectorAll('figure svg')];\
        const r = svgs.map(s => s.getBoundingClientRect());\
        const cut = svgs.flatMap(s => { const b = s.getBoundingClientRect();\
          return [...s.querySelectorAll('text')].filter(t => { const c = t.getBoundingClientRect();\
            return c.left < b.left - 1 || c.right > b.right + 1 || c.bottom > b.bottom + 1 }) });\
        document.body.setAttribute('data-at-' + width, [\
          d.documentElement.scrollWidth <= d.documentElement.clientWidth,\
          r.filter(b => b.width > 250 && b.height > 80 && b.right <= width).length,\
          cut.length].join(' ')) }</script>";
    let outer = format!("<body>{measure}{}</body>", widths.map(frame).concat());
    let path = stage.write("outer.html", outer);
    let folder = tempfile::tempdir().unwrap();
    let [dom, said] = ["dom.html", "said.txt"].map(|name| folder.path().join(name));
    let mut child = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ])
        .arg(format!("--user-data-dir={}", folder.path().display()))
        .args(["--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("file://{path}"))
        .stdout(fs::File::create(&dom).unwrap())
        .stderr(fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let until = Instant::now() + BROWSER_TIME;
    while child.try_wait().unwrap().is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    // It has ended, but for one that hangs.
    let _ = child.kill();
    child.wait().unwrap();
    fs::remove_file(&path).unwrap();
    let dom = fs::read_to_string(&dom).unwrap();
    let said = String::from_utf8_lossy(&fs::read(&said).unwrap()).into_owned();
    for width in widths {
        let measured = dom.split_once(&format!("data-at-{width}=\""));
        let measured = measured.and_then(|(_, rest)| rest.split_once('"'));
        let (measured, _) = measured.unwrap_or(("the browser measured nothing", ""));
        assert_eq!(
            measured,
            format!("true {plots} 0"),
            "no overflow at {width}, plots, texts cut off; the browser said: {said}"
        );
    }
}

fn browser() -> Option<&'static str> {
    let runs = |name: &&str| {
        let mut command = Command::new(name);
        command
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    ["google-chrome", "chromium", "chromium-browser"]
        .into_iter()
        .find(runs)
}

#[test]
fn what_cannot_be_run_is_one_line_before_anything_starts() {
    let stage = bare();
    let absent = stage.path("absent/report.html");
    let folder = stage.dir.path().to_str().unwrap();
    for (args, said) in [
        (
            &["gather", "--backends", "rasterio"][..],
            "backend `rasterio` is not one of gdal",
        ),
        (&["gather", "--concurrency", "0"], "--concurrency is 0"),
        (&["gather", "--concurrency", "1,x"], "--concurrency"),
        (&["gather", "--files", "0"], "--files is 0"),
        (&["gather", "--repeats", "0"], "--repeats is 0"),
        (&["gather", "--threads", "0"], "--threads is 0"),
        (&["gather", "--html", &absent], "absent/report.html"),
        (&["gather", "--html", folder], "it is a folder"),
        (&["gather", "--html", "/dev/null"], "it is no regular file"),
        (&["gather", "--json", &absent], "absent/report.html"),
        (
            &["ranges", "--profile", "moon"],
            "profile `moon` is not one of home",
        ),
        (&["ranges", "--iterations", "0"], "--iterations is 0"),
        (&["ranges", "--scale", "0"], "--scale is 0"),
        (&["ranges", "--pieces", "10"], "--pieces is 10"),
        (
            &["ranges", "--pieces", "18446744073709551615"],
            "expected 1000 to 1073741824 bytes",
        ),
        (&["ranges", "--html", &absent], "absent/report.html"),
        (&["zarr", "--side", "100"], "--side is 100"),
        (&["zarr", "--inner", "48"], "--inner is 48"),
        (&["zarr", "--side", "64"], "--inner is 64"),
        (&["zarr", "--rounds", "0"], "--rounds is 0"),
        (
            &["zarr", "--data", "sound"],
            "data `sound` is not one of color",
        ),
        (&["zarr", "--peer", "wkw"], "expected NAME=COMMAND"),
        (&["zarr", "--peer", "zarrs=x"], "--peer names `zarrs`"),
        (&["zarr", "--dir", "/dev/null"], "no folder"),
        (&["zarr", "--html", &absent], "absent/report.html"),
        (
            &["zarr-worker", "h5py"],
            "system `h5py` is not one of ours, zarrs",
        ),
        (&["serve", "nonsense"], "not a stock of files"),
    ] {
        let ran = stage.run(&[&["bench"], args].concat());
        assert!(ran.error().contains(said), "{args:?}: {ran:?}");
        assert_eq!(files(stage.dir.path()).len(), 0);
    }
}

#[test]
fn ctrl_c_ends_a_comparison_and_leaves_no_file() {
    let stage = bare();
    let temporary = tempfile::tempdir().unwrap();
    for command in ["gather", "ranges", "zarr"] {
        let mut rss = stage.rss();
        rss.env("TMPDIR", temporary.path());
        rss.args(["bench", command, "--html", "r.html", "--json", "r.json"]);
        let child = rss.spawn().unwrap();
        wait_until(|| files(stage.dir.path()).len() == 2);
        assert_eq!(interrupt(child).error(), "rss: interrupted");
        assert_eq!(files(stage.dir.path()).len(), 0);
        assert_eq!(files(temporary.path()).len(), 0);
    }
}
