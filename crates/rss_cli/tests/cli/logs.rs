//! What a command tells of its work: `-v`, `-q`, `--log-json`, `--trace`, `RUST_LOG`.

use rss_testbed::{BUCKET, Band, Fault, Rule, Service};
use serde_json::Value;

use super::stage::{Ran, Stage};

fn red(stage: &Stage) -> String {
    format!("s3://{BUCKET}/{}", stage.bed.scenes()[0].key(Band::Red))
}

fn ran(command: &mut std::process::Command) -> Ran {
    Ran::of(command.output().unwrap())
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn a_trace_has_a_line_for_each_request() {
    let stage = Stage::new();
    // One of the answers is a 503, which is asked for again.
    stage.bed.fault(Rule::new(Fault::status(503)).times(1));
    let trace = stage.path("trace.jsonl");
    let ran = stage.run(&["read", &red(&stage), "-o", "red.npy", "--trace", &trace]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let lines = json_lines(&std::fs::read_to_string(&trace).unwrap());
    let asked = stage.bed.requests(Service::S3);
    assert_eq!(lines.len(), asked.len());
    let keys = [
        "time", "method", "host", "range", "status", "bytes", "ms", "attempt",
    ];
    for line in &lines {
        let line = line.as_object().unwrap();
        assert!(
            keys.iter().all(|key| line.contains_key(*key)) && line.len() == keys.len(),
            "{line:?}"
        );
        assert_eq!(line["method"], "GET");
        assert!(line["range"].as_str().unwrap().starts_with("bytes="));
    }
    let with = |key: &str, value: Value| lines.iter().filter(|line| line[key] == value).count();
    assert_eq!(
        (with("status", 503.into()), with("attempt", 2.into())),
        (1, 1)
    );
    // The whole file but for its overviews.
    let bytes: u64 = lines.iter().filter_map(|line| line["bytes"].as_u64()).sum();
    assert!(bytes > 1_000_000, "{bytes}");
}

#[test]
fn logs_go_to_stderr_and_say_more_when_asked_for() {
    let stage = Stage::new();
    let file = red(&stage);
    let plain = stage.run(&["info", &file, "--json"]);
    assert_eq!(plain.stderr, "");
    let some = stage.run(&["-v", "info", &file, "--json"]);
    let more = stage.run(&["info", &file, "--json", "-vv"]);
    assert_eq!((&some.stdout, &more.stdout), (&plain.stdout, &plain.stdout));
    assert!(
        some.stderr.contains("done") && some.stderr.contains("requests=1"),
        "{}",
        some.stderr
    );
    assert!(
        !some.stderr.contains("rss_core::request"),
        "{}",
        some.stderr
    );
    assert!(more.stderr.contains("rss_core::request"), "{}", more.stderr);
    let refined = ran(stage
        .rss()
        .env("RUST_LOG", "rss_core::request=debug")
        .args(["info", &file]));
    assert!(
        refined.stderr.contains("rss_core::request"),
        "{}",
        refined.stderr
    );
    let wrong = ran(stage
        .rss()
        .env("RUST_LOG", "rss_core=loud")
        .args(["info", &file]));
    assert_eq!(wrong.code, Some(2));
    assert!(
        wrong.stderr.contains("RUST_LOG is `rss_core=loud`"),
        "{}",
        wrong.stderr
    );
}

#[test]
fn every_line_of_json_logs_is_json() {
    let stage = Stage::new();
    let ran = stage.run(&["--log-json", "-vv", "read", "none.tif", "-o", "x.npy"]);
    assert_eq!(ran.code, Some(2));
    let lines = json_lines(&ran.stderr);
    let errors = lines.iter().filter(|line| line["level"] == "ERROR").count();
    assert_eq!(errors, 1, "{}", ran.stderr);
    let messages: Vec<_> = lines
        .iter()
        .filter_map(|line| line["message"].as_str())
        .collect();
    assert!(
        messages.iter().any(|text| text.contains("none.tif")),
        "{messages:?}"
    );
}

#[test]
fn quiet_leaves_errors_only() {
    let stage = Stage::new();
    // A header that only GDAL reads gives a note.
    let vrt = stage.write(
        "a.vrt",
        "<VRTDataset rasterXSize=\"4\" rasterYSize=\"4\"><VRTRasterBand dataType=\"Byte\" band=\"1\"/></VRTDataset>",
    );
    let said = stage.run(&["info", &vrt]);
    let quiet = stage.run(&["-q", "info", &vrt]);
    assert!(said.stderr.contains("gdal"), "{}", said.stderr);
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""));
    let err = stage.run(&["info", "none.tif", "-q"]);
    assert_eq!(err.code, Some(2));
    assert!(err.stderr.contains("none.tif"), "{}", err.stderr);
    assert_eq!(stage.run(&["-q", "-v", "info", &vrt]).code, Some(2));
}
