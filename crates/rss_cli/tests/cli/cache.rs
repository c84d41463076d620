//! `rss cache`: what the cache holds, and what can go.

use std::fs;

use serde_json::json;

use super::stage::{Stage, files};

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
            json!({"removed": 0, "leftovers": 0, "bytes": 0, "in_use": 0})
        );
    }
}

#[test]
fn a_cache_tells_what_it_holds_and_lets_it_go() {
    let stage = Stage::new();
    let get = ["--bands", "nbart_red", "--to", "out", "--mode", "copy"];
    stage.seed("get", &get).text();
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
    let get = ["--bands", "nbart_red", "--to", "out", "--mode", "copy"];
    stage.seed("get", &get).text();
    let mut command = stage.rss();
    command
        .env("RSS_CACHE_TTL", "0")
        .args(["cache", "clean", "--json"]);
    let removed = super::stage::Ran::of(command.output().unwrap()).json();
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
            let mut command = stage.rss();
            command.env(name, value).args(["cache", action, "--json"]);
            let ran = super::stage::Ran::of(command.output().unwrap());
            assert!(ran.error().len() > "rss: ".len(), "{ran:?}");
        }
    }
    assert_eq!(fs::read(file).unwrap(), b"mine");
}
