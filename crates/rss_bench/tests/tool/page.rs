//! The page that a comparison writes, as text and in a browser.

use std::{
    fs,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::stage::{GATHER, RANGES, Stage, ZARR, files};

/// How long a browser may take for a page.
const BROWSER_TIME: Duration = Duration::from_secs(60);

#[test]
fn a_report_is_text_json_and_a_page_at_once() {
    let stage = Stage::new();
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
    let stage = Stage::new();
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
