//! What every subcommand keeps to: help, pipes, terminals, secrets.

use std::{
    io::Read,
    process::{Command, Stdio},
};

use rss_testbed::{BUCKET, Band, Fault, Rule, Scenes, Service, Testbed};

use super::{
    absent::nowhere,
    stage::{CANARY, Ran, SEED, Stage, files, interrupt, wait_until},
};

/// A testbed without scenes: nothing is read.
fn bare() -> Stage {
    Stage::of(Testbed::builder())
}

#[test]
fn every_help_shows_an_example() {
    let stage = bare();
    for command in ["search", "get", "remote", "info", "read", "sample", "cache"] {
        let ran = stage.run(&[command, "--help"]);
        let (_, example) = ran.text().split_once("Example:\n").unwrap();
        assert!(example.contains(&format!("rss {command} ")), "{example}");
    }
    for action in ["info", "clean", "clear"] {
        let ran = stage.run(&["cache", action, "--help"]);
        let (_, example) = ran.text().split_once("Example:\n").unwrap();
        assert!(
            example.contains(&format!("rss cache {action}")),
            "{example}"
        );
    }
    let ran = stage.run(&["--help"]);
    let (_, example) = ran.text().split_once("Example:\n").unwrap();
    assert!(example.contains("rss search "), "{example}");
    let version = stage.run(&["--version"]);
    assert_eq!(
        version.text(),
        concat!("rss ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[test]
fn no_command_prints_the_help_and_is_exit_2() {
    let ran = bare().run(&[]);
    assert_eq!((ran.code, ran.stdout.len()), (Some(2), 0), "{ran:?}");
    assert!(ran.stderr.contains("Usage: rss"), "{ran:?}");
}

/// Runs with a stdout that nobody reads: as `rss .. | head -c 1`, when `head` has gone.
fn unread(stage: &Stage, args: &[&str]) -> Ran {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = stage.rss();
    Ran::of(command.args(args).stdout(writer).output().unwrap())
}

#[test]
fn a_broken_pipe_is_no_error() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    let scene = &stage.bed.scenes()[0];
    let path = scene.file(Band::Red).unwrap().to_str().unwrap();
    let search = |more: &[&'static str]| [&["search", &url], SEED, more].concat();
    let get = [&["get", &url], SEED, &["--mode", "copy", "--to", "out"]].concat();
    let commands: &[&[&str]] = &[
        &search(&["--json"]),
        &search(&[]),
        &get,
        &["info", path],
        &["info", path, "--json"],
        &["read", path, "-o", "-"],
        &["cache", "info"],
        &["cache", "info", "--json"],
        &["--help"],
        &["search", "--help"],
    ];
    for args in commands {
        let ran = unread(&stage, args);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn a_shell_pipe_is_no_error() {
    let stage = Stage::new();
    let mut command = Command::new("sh");
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", stage.dir.path())
        .args(["-c", "\"$@\" --json | head -c 1", "sh"])
        .arg(env!("CARGO_BIN_EXE_rss"))
        .args(["search", &stage.bed.stac_url()])
        .args(SEED);
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.text(), "{");
}

#[test]
fn a_stderr_that_nobody_reads_is_no_panic() {
    let stage = bare();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = stage.rss();
    command.args(["info", "absent.tif"]).stderr(writer);
    assert_eq!(command.status().unwrap().code(), Some(2));
}

#[test]
fn control_characters_reach_no_terminal() {
    let stage = Stage::of(Testbed::builder().scenes(Scenes::small()));
    let mut item = stage.bed.scenes()[0].item.clone();
    item["id"] = "a\u{1b}[2Jb\rc\u{9b}31m".into();
    stage.bed.add_item(item).unwrap();
    let ran = stage.seed("search", &[]);
    assert_eq!(ran.text().lines().count(), 6);
    assert!(!ran.text().contains(|c: char| c.is_control() && c != '\n'));
    // `Ran` looks through stderr.
    stage.run(&["info", "no\u{1b}[2J\rsuch\nfile.tif"]).error();
    stage
        .run(&["search", "a\u{1b}[31m\nb", "sentinel2"])
        .error();
    stage.run(&["read", "x.tif", "--\u{1b}[31m\nb"]).error();
    stage.run(&["\u{1b}[31m\nb"]).error();
    let said = Fault::Status {
        code: 400,
        retry_after: None,
        body: "{\"description\": \"no\\u001b[2J\\nway\"}".to_owned(),
    };
    stage.bed.fault(Rule::new(said).on(Service::Stac));
    assert!(stage.seed("search", &[]).error().contains("way"));
}

#[test]
fn no_progress_is_drawn_where_stderr_is_no_terminal() {
    let stage = Stage::new();
    for mode in ["copy", "translate"] {
        let more = ["--to", "out", "--mode", mode, "--bands", "nbart_red"];
        let ran = stage.seed("get", &more);
        assert_eq!(ran.text().lines().count(), 5);
    }
}

#[test]
fn no_secret_is_printed_on_failure() {
    let stage = bare();
    let closed = nowhere();
    let query = format!("X-Amz-Signature={CANARY}&sig={CANARY}&token={CANARY}");
    stage.bed.put("bucket", "page.tif", "<html>Sign in</html>");
    let page = stage.bed.http_url("bucket", "page.tif");
    let absent = stage.bed.http_url("bucket", "absent.tif");
    let with_user = absent.replace("http://", &format!("http://me:{CANARY}@"));
    let stac = stage.bed.stac_url();
    let stac_user = stac.replace("http://", &format!("http://me:{CANARY}@"));
    let item = serde_json::json!({
        "type": "Feature", "stac_version": "1.0.0", "id": "x", "geometry": null,
        "properties": {"datetime": "2021-01-01T00:00:00Z"}, "links": [],
        "assets": {
            "a": {"href": format!("{absent}?{query}"), "roles": ["data"]},
            "b": {"href": "s3://bucket/absent.tif", "roles": ["data"]},
            "c": {"href": format!("ftp://me:{CANARY}@h/x.tif?{query}"), "roles": ["data"]},
        },
    });
    let items = stage.write("items.json", item.to_string());
    let page = format!("{page}?{query}");
    let signed = format!("{absent}?{query}");
    let vsi = format!("/vsicurl/{signed}");
    let quoted = format!(
        "/vsicurl?url={}&{query}",
        "http%3A%2F%2F127.0.0.1%3A1%2Fx.tif"
    );
    let refused = format!("{closed}/x.tif?{query}");
    let s3 = "s3://bucket/absent.tif".to_owned();
    let search = format!("{closed}/stac?{query}");
    let stac_query = format!("{stac}/nowhere?{query}");
    let mut cases: Vec<Vec<&str>> = Vec::new();
    for location in [&page, &signed, &vsi, &quoted, &refused, &with_user, &s3] {
        for backend in ["cog", "gdal"] {
            cases.push(vec!["read", location, "--backend", backend, "-o", "a.bin"]);
            cases.push(vec!["info", location, "--backend", backend, "--json"]);
        }
    }
    for source in [&search, &stac_query, &stac_user] {
        cases.push(vec!["search", source, "nothing", "--scene", "56jns"]);
    }
    for mode in ["copy", "translate"] {
        for band in ["a", "b", "c"] {
            let get = [
                "get", "--items", &items, "--to", "out", "--mode", mode, "--bands", band,
            ];
            cases.push(get.to_vec());
            cases.push([&get[..], &["--keep-going", "--json"]].concat());
        }
    }
    cases.push(vec!["remote", "--items", &items, "--bands", "c"]);
    // All at once: some try again for a while.
    std::thread::scope(|scope| {
        for args in &cases {
            let stage = &stage;
            scope.spawn(move || {
                let mut command = stage.rss();
                command
                    .env_remove("AWS_NO_SIGN_REQUEST")
                    .env("AWS_ACCESS_KEY_ID", "nobody")
                    .env("AWS_SECRET_ACCESS_KEY", CANARY)
                    .env("AWS_SESSION_TOKEN", CANARY)
                    .args(args);
                let ran = Ran::of(command.output().unwrap());
                let shown = args.join(" ").replace(CANARY, "..");
                assert!(matches!(ran.code, Some(1 | 2 | 75)), "{shown}: {ran:?}");
                assert!(!ran.stderr.is_empty(), "{shown}");
                let stdout = String::from_utf8(ran.stdout).unwrap();
                assert!(!stdout.contains(CANARY), "{shown}: {stdout}");
                assert!(!ran.stderr.contains(CANARY), "{shown}: {}", ran.stderr);
            });
        }
    });
    for file in files(&stage.cache()) {
        let bytes = std::fs::read(&file).unwrap();
        assert!(
            !String::from_utf8_lossy(&bytes).contains(CANARY),
            "{file:?}"
        );
    }
}

#[test]
fn ctrl_c_is_heard_while_nobody_reads_stdout() {
    let stage = Stage::new();
    let scene = &stage.bed.scenes()[0];
    let mut command = stage.rss();
    let path = scene.file(Band::Red).unwrap();
    // More than a pipe holds.
    command
        .arg("read")
        .arg(path)
        .args(["-o", "-"])
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0; 1];
    stdout.read_exact(&mut first).unwrap();
    let ran = interrupt(child);
    assert_eq!(ran.error(), "rss: interrupted");
    drop(stdout);
}

#[test]
fn ctrl_c_ends_a_search_and_a_read() {
    let stage = Stage::new();
    stage.bed.fault(Rule::new(Fault::Hang));
    let url = stage.bed.stac_url();
    let s3 = format!("s3://{BUCKET}/{}", stage.bed.scenes()[0].key(Band::Red));
    let commands: &[&[&str]] = &[
        &["search", &url, "collection"],
        &["read", &s3, "-o", "a.tif", "--backend", "cog"],
        &["read", &s3, "-o", "a.tif", "--backend", "gdal"],
        &["info", &s3, "--backend", "gdal"],
    ];
    for args in commands {
        stage.bed.clear_log();
        let child = stage.rss().args(*args).spawn().unwrap();
        wait_until(|| !stage.bed.log().is_empty());
        assert_eq!(interrupt(child).error(), "rss: interrupted", "{args:?}");
        assert_eq!(files(stage.dir.path()).len(), 0);
    }
}

#[test]
fn an_exit_code_says_whether_to_try_again() {
    let stage = bare();
    let image = stage.image(
        "a.tif",
        16,
        32656,
        [300_000.0, 10.0, 0.0, 7_000_000.0, 0.0, -10.0],
    );
    let away = "http://127.0.0.1:9/x.tif";
    let code = |args: &[&str]| stage.run(&[args, &["--retry-for", "0s"]].concat()).code;
    assert_eq!(code(&["info", away]), Some(75));
    assert_eq!(code(&["info", "none.tif"]), Some(2));
    assert_eq!(code(&["info", "--nonsense"]), Some(2));
    for (list, expected) in [
        (vec![&*image], 0),
        (vec![&*image, "none.tif"], 3),
        (vec![&*image, away], 3),
        (vec!["none.tif", away], 2),
        (vec![away], 75),
    ] {
        let list = stage.write("list.txt", list.join("\n"));
        assert_eq!(code(&["gather", &list]), Some(expected), "{list}");
    }
}
