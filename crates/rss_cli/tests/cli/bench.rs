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
            "gdal-tuned" | "plain-async-tiff" | "async-tiff" => assert_eq!(requests, 2.0),
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
fn a_report_is_text_json_and_a_page_at_once() {
    let stage = bare();
    let (json, html) = (stage.path("r.json"), stage.path("r.html"));
    for (args, plots) in [(GATHER, 9), (RANGES, 2)] {
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
    let args = ["--backends", "async-tiff,index", "--html", &html];
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
    for command in ["gather", "ranges"] {
        let mut rss = stage.rss();
        rss.args(["bench", command, "--html", "r.html", "--json", "r.json"]);
        let child = rss.spawn().unwrap();
        wait_until(|| files(stage.dir.path()).len() == 2);
        assert_eq!(interrupt(child).error(), "rss: interrupted");
        assert_eq!(files(stage.dir.path()).len(), 0);
    }
}
