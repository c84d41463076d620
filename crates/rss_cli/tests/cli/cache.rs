//! `rss cache`: what the cache holds, and what can go.

use std::fs;

use serde_json::json;

use super::stage::{Ran, SEED, Stage, files};

const COPIES: [&str; 4] = ["--bands", "nbart_red", "--mode", "copy"];

#[test]
fn an_empty_cache_is_no_error() {
    let stage = Stage::new();
    let path = stage.cache().to_str().unwrap().to_owned();
    let info = stage.run(&["cache", "info", "--json"]).json();
    assert_eq!(
        info,
        json!({"path": path, "entries": 0, "bytes": 0, "expired": 0, "leftovers": 0,
               "leftover_bytes": 0})
    );
    for action in ["clean", "clear"] {
        let removed = stage.run(&["cache", action, "--json"]).json();
        assert_eq!(
            removed,
            json!({"removed": 0, "leftovers": 0, "bytes": 0, "in_use": 0, "linked": 0, "over_bytes": 0})
        );
    }
}

#[test]
fn a_cache_tells_what_it_holds_and_lets_it_go() {
    let stage = Stage::new();
    stage
        .seed("get", &[&COPIES[..], &["--to", "out"]].concat())
        .text();
    let bytes: u64 = files(&stage.dir.path().join("out"))
        .iter()
        .map(|path| fs::metadata(path).unwrap().len())
        .sum();
    let info = stage.run(&["cache", "info", "--json"]).json();
    assert_eq!(
        (&info["entries"], &info["bytes"]),
        (&4.into(), &bytes.into())
    );
    let ran = stage.run(&["cache", "info"]);
    let lines: Vec<&str> = ran.text().lines().collect();
    assert_eq!(
        lines,
        [
            format!("path       {}", stage.cache().display()),
            "entries    4 (0 expired)".to_owned(),
            format!("bytes      {bytes}"),
            "leftovers  0 (0 bytes)".to_owned(),
        ]
    );

    let removed = stage.run(&["cache", "clean", "--json"]).json();
    assert_eq!(
        (&removed["removed"], &removed["bytes"]),
        (&0.into(), &0.into())
    );
    assert_eq!(
        stage.run(&["cache", "clear"]).text(),
        format!("removed 4 files and 0 leftovers, {bytes} bytes; 0 in use stay\n")
    );
    let info = stage.run(&["cache", "info", "--json"]).json();
    assert_eq!((&info["entries"], &info["bytes"]), (&0.into(), &0.into()));
}

#[test]
fn what_has_expired_is_cleaned() {
    let stage = Stage::new();
    stage
        .seed("get", &[&COPIES[..], &["--to", "out"]].concat())
        .text();
    let removed = stage
        .run_with(("RSS_CACHE_TTL", "0"), &["cache", "clean", "--json"])
        .json();
    assert_eq!(removed["removed"], 4);
}

#[test]
fn a_cache_that_cannot_be_is_one_line() {
    let stage = Stage::new();
    let file = stage.write("file", "mine");
    for (name, value) in [
        ("RSS_CACHE_DIR", file.as_str()),
        ("RSS_CACHE_TTL", "soon"),
        ("RSS_CACHE_MAX_BYTES", "-1"),
    ] {
        for action in ["info", "clean", "clear"] {
            let ran = stage.run_with((name, value), &["cache", action, "--json"]);
            assert!(ran.error().len() > "rss: ".len(), "{ran:?}");
        }
    }
    assert_eq!(fs::read(file).unwrap(), b"mine");
}

/// Runs a command with a bound of the cache.
fn bounded(stage: &Stage, bytes: &str, args: &[&str]) -> Ran {
    stage.run_with(("RSS_CACHE_MAX_BYTES", bytes), args)
}

/// Returns the arguments of a `get` of the red bands of four scenes, but for the folder: files as they are at the source.
fn getting(stage: &Stage) -> Vec<String> {
    let found = stage.seed("search", &["--canonical", "red", "--json"]);
    let items = stage.write("items.json", found.text());
    ["get", "--items", &items]
        .iter()
        .chain(&COPIES)
        .map(|arg| (*arg).to_owned())
        .collect()
}

/// Returns arguments with more of them.
fn with<'a>(args: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    let args = args.iter().map(String::as_str);
    args.chain(more.iter().copied()).collect()
}

#[test]
fn a_bound_holds_when_a_run_has_ended_and_takes_nothing_of_the_user() {
    let stage = Stage::new();
    let get = getting(&stage);
    let bytes = || stage.run(&["cache", "info", "--json"]).json()["bytes"].clone();
    let ran = bounded(&stage, "1", &with(&get, &["--to", "out"]));
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert_eq!(bytes(), 0);
    let delivered = files(&stage.dir.path().join("out"));
    assert_eq!(delivered.len(), 4);
    for path in &delivered {
        assert!(fs::symlink_metadata(path).unwrap().is_file(), "{path:?}");
    }

    // A bound that is set later holds at the end of the next run, and in `clean`.
    stage.run(&with(&get, &["--to", "two"])).text();
    assert_ne!(bytes(), 0);
    let removed = bounded(&stage, "1", &["cache", "clean", "--json"]).json();
    assert_eq!(
        (&removed["removed"], &removed["over_bytes"]),
        (&4.into(), &0.into())
    );
    assert_eq!(bytes(), 0);
    for path in delivered
        .iter()
        .chain(&files(&stage.dir.path().join("two")))
    {
        assert!(fs::metadata(path).unwrap().len() > 0, "{path:?}");
    }
}

#[test]
#[cfg(unix)]
fn what_a_link_points_to_is_not_evicted_without_a_word() {
    let stage = Stage::new();
    let get = getting(&stage);
    let ran = bounded(&stage, "1", &with(&get, &["--link", "--to", "out"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stderr
            .contains("larger than its bound: links point to 4"),
        "{ran:?}"
    );
    let links = files(&stage.dir.path().join("out"));
    let is_whole = || {
        links
            .iter()
            .all(|link| fs::metadata(link).is_ok_and(|meta| meta.len() > 0))
    };
    for path in &links {
        assert!(fs::read_link(path).unwrap().starts_with(stage.cache()));
    }
    for args in [["cache", "clean"], ["cache", "clear"]] {
        let ran = bounded(&stage, "1", &args);
        assert!(ran.stderr.contains("4 files stay because links"), "{ran:?}");
        assert!(is_whole());
    }
    // Without its link a file is as any other.
    fs::remove_file(&links[0]).unwrap();
    let removed = bounded(&stage, "1", &["cache", "clean", "--json"]).json();
    assert_eq!(
        (&removed["removed"], &removed["linked"]),
        (&1.into(), &3.into())
    );

    // Files in place of the links.
    stage.run(&with(&get, &["--to", "out"])).text();
    let removed = stage.run(&["cache", "clear", "--json"]).json();
    assert_eq!(
        (&removed["removed"], &removed["linked"]),
        (&4.into(), &0.into())
    );
    assert!(
        links
            .iter()
            .all(|path| fs::symlink_metadata(path).unwrap().is_file())
    );
}

#[test]
fn a_record_of_any_content_is_no_panic() {
    let stage = Stage::new();
    let get = [&COPIES[..], &["--limit", "1", "--to"]].concat();
    stage.seed("get", &[&get[..], &["out"]].concat()).text();
    let records = files(&stage.cache().join("entries"));
    let record = records
        .iter()
        .find(|path| path.extension().is_some_and(|ending| ending == "record"));
    let record = record.unwrap();
    let text = fs::read_to_string(record).unwrap();
    let fine: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut odd = vec![String::new(), "[]".into(), "{".repeat(60_000), "\0".into()];
    for (field, value) in [
        ("created_s", json!(u64::MAX)),
        ("created_s", json!(i64::MAX)),
        ("bytes", json!(u64::MAX)),
        ("modified_ns", json!(u64::MAX)),
        ("changed_ns", json!(u64::MAX)),
        ("key", json!("")),
        ("key", json!("..")),
        ("key", json!("\u{e9}\u{e9}")),
        ("file", json!("..")),
        ("file", json!("../../lock")),
        ("sha256", json!("")),
    ] {
        let mut one = fine.clone();
        one[field] = value;
        odd.push(one.to_string());
    }
    for (round, text) in odd.into_iter().enumerate() {
        let path = stage.path(&format!("out{round}"));
        fs::write(record, &text).unwrap();
        for args in [
            &["cache", "info", "--json"][..],
            &["cache", "clean", "--json"],
        ] {
            let mut command = stage.rss();
            command
                .env("RSS_CACHE_TTL", "1d")
                .env("RSS_CACHE_MAX_BYTES", "1000000000")
                .args(args);
            Ran::of(command.output().unwrap()).json();
        }
        fs::write(record, &text).unwrap();
        let url = stage.bed.stac_url();
        let mut command = stage.rss();
        command.env("RSS_CACHE_TTL", "1d").args(["get", &url]);
        command.args(SEED).args(&get).arg(&path);
        let ran = Ran::of(command.output().unwrap());
        assert!(
            ran.code == Some(0) && !ran.stderr.contains("panic"),
            "{text}: {ran:?}"
        );
        assert_eq!(files(path.as_ref()).len(), 1);
        let again: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(record).unwrap()).unwrap();
        assert_eq!(again["sha256"], fine["sha256"], "{text}");
    }
}
