//! What items may name, whoever made them: by a search, a pipe, a file.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    path::Path,
    thread,
};

use serde_json::{Value, json};

use super::stage::{Stage, files, href, items};

fn item(assets: Value) -> Value {
    json!({
        "type": "Feature", "stac_version": "1.0.0", "id": "lie", "collection": "c", "bbox": [153.0, -26.0, 153.1, -25.9],
        "geometry": {"type": "Point", "coordinates": [153.05, -25.95]},
        "properties": {"datetime": "2021-01-01T00:00:00Z"}, "links": [], "assets": assets,
    })
}

fn page(assets: Value) -> String {
    json!({"type": "FeatureCollection", "features": [item(assets)]}).to_string()
}

/// Starts a STAC API of one page, and returns its URL. It ends with the process.
fn catalogue(page: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let root = format!("http://{}/", listener.local_addr().unwrap());
    let landing = json!({
        "type": "Catalog", "stac_version": "1.0.0", "id": "x", "description": "d",
        "conformsTo": ["https://api.stacspec.org/v1.0.0/core", "https://api.stacspec.org/v1.0.0/item-search"],
        "links": [{"rel": "search", "href": format!("{root}search"), "method": "GET"}],
    });
    let landing = landing.to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut asked = Vec::new();
            let mut some = [0; 4096];
            while !asked.windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut some) {
                    Ok(0) | Err(_) => break,
                    Ok(n) => asked.extend(&some[..n]),
                }
            }
            let body = match asked.starts_with(b"GET /search") {
                true => &page,
                false => &landing,
            };
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    root
}

fn secret(stage: &Stage) -> String {
    fs::create_dir(stage.path("private")).unwrap();
    stage.image(
        "private/secret.tif",
        64,
        32756,
        [500_000.0, 10.0, 0.0, 7_000_000.0, 0.0, -10.0],
    )
}

#[test]
fn what_a_catalogue_may_not_name_stays_refused_through_a_pipe() {
    let stage = Stage::new();
    let secret = secret(&stage);
    let fine = stage.bed.http_url("b", "x.tif");
    for href in [
        format!("file://{secret}"),
        format!("FILE://{secret}"),
        format!("/vsicurl/file://{secret}"),
        format!("/vsigzip/{secret}"),
        "http://169.254.169.254/latest.tif".to_owned(),
    ] {
        let page = page(json!({"red": {"href": href, "roles": ["data"]}, "nir": {"href": fine}}));
        let url = catalogue(page.clone());
        let get = ["--bands", "red", "--mode", "copy", "--to", "out"];
        let ran = stage.run(&[&["get", &url, "c"], &get[..]].concat());
        assert!(ran.error().contains("may not name"), "{href}: {ran:?}");

        let ran = stage.run(&["search", &url, "c", "--json"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stderr.contains("left out lie red: "), "{href}: {ran:?}");
        let passed = String::from_utf8(ran.stdout).unwrap();
        assert!(
            !passed.contains(&href) && passed.contains(&fine),
            "{passed}"
        );

        // As another program would hand it over.
        for args in [&["get", "--items", "-"][..], &["get"]] {
            let ran = stage.piped(&[args, &get[..]].concat(), page.as_bytes());
            assert_eq!(ran.code, Some(2), "{href}: {ran:?}");
        }
        fs::create_dir_all(stage.path("down")).unwrap();
        let file = stage.write("down/items.json", &page);
        let ran = stage.run(&[&["get", "--items", &file], &get[..]].concat());
        assert_eq!(ran.code, Some(2), "{href}: {ran:?}");
        assert_eq!(files(Path::new(&stage.path("out"))).len(), 0, "{href}");
    }
}

#[test]
#[cfg(feature = "index")]
fn an_index_names_nothing_that_its_catalogue_may_not() {
    let stage = Stage::new();
    let secret = secret(&stage);
    let url = catalogue(page(
        json!({"red": {"href": format!("file://{secret}"), "roles": ["data"]}}),
    ));
    let items = format!("{url}search");
    let ran = stage.run(&["index", "build", "--items", &items, "-o", "a.parquet"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("may not name a local file"), "{ran:?}");
    if Path::new(&stage.path("a.parquet")).exists() {
        let bytes = fs::read(stage.path("a.parquet")).unwrap();
        assert!(
            !bytes
                .windows(secret.len())
                .any(|part| part == secret.as_bytes())
        );
        let ran = stage.run(&["gather", "--index", "a.parquet", "--json"]);
        assert!(
            !String::from_utf8_lossy(&ran.stdout).contains("\"ok\": 1"),
            "{ran:?}"
        );
    }
}

#[test]
fn the_flag_that_trusts_items_is_named_and_works() {
    let stage = Stage::new();
    let secret = secret(&stage);
    let page = page(json!({"red": {"href": secret, "roles": ["data"]}}));
    let get = ["get", "--items", "-", "--mode", "copy", "--to", "out"];
    let ran = stage.piped(&get, page.as_bytes());
    let error = ran.error();
    assert!(
        error.contains("a local file elsewhere; --trust-items allows it"),
        "{error}"
    );
    let ran = stage.piped(&[&get[..], &["--trust-items"]].concat(), page.as_bytes());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // Files beside or below the items are the user's.
    let beside = stage.write("items.json", &page);
    let ran = stage.run(&["get", "--items", &beside, "--mode", "copy", "--to", "more"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    #[cfg(feature = "index")]
    {
        let build = ["index", "build", "--items", "-", "-o", "a.parquet"];
        let ran = stage.piped(&build, page.as_bytes());
        assert!(ran.error().contains("--trust-items"), "{ran:?}");
        let ran = stage.piped(&[&build[..], &["--trust-items"]].concat(), page.as_bytes());
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
}

#[test]
#[cfg(feature = "index")]
fn stac_geoparquet_names_what_items_of_a_file_may() {
    let stage = Stage::new();
    let secret = secret(&stage);
    fs::create_dir_all(stage.path("down")).unwrap();
    let page = page(json!({"red": {"href": secret, "roles": ["data"]}}));
    let build = ["index", "build", "--items", "-", "--trust-items"];
    let made = stage.piped(
        &[&build[..], &["-o", "down/items.parquet"]].concat(),
        page.as_bytes(),
    );
    assert_eq!(made.code, Some(0), "{made:?}");
    let build = ["index", "build", "--parquet"];
    let elsewhere = [&build[..], &["down/items.parquet", "-o", "a.parquet"]].concat();
    let ran = stage.run(&elsewhere);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    for said in [
        "may not name a local file elsewhere",
        "--trust-items allows it",
    ] {
        assert!(ran.stderr.contains(said), "{ran:?}");
    }
    let ran = stage.run(&[&elsewhere[..], &["--trust-items"]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // Files beside or below it are the user's.
    fs::copy(
        stage.path("down/items.parquet"),
        stage.path("items.parquet"),
    )
    .unwrap();
    let ran = stage.run(&[&build[..], &["items.parquet", "-o", "b.parquet"]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn what_get_wrote_is_read_from_a_pipe() {
    let stage = Stage::new();
    let more = [
        "--bands",
        "nbart_red",
        "--to",
        "out",
        "--mode",
        "copy",
        "--json",
        "--limit",
        "1",
    ];
    let ran = stage.seed("get", &more);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let got: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let again = stage.piped(&["remote", "--items", "-", "--json"], &ran.stdout);
    let hrefs = |found: &Value| href(&items(found)[0], "nbart_red").to_owned();
    assert_eq!(hrefs(&again.json()), hrefs(&got));
    // A file of its own in that place is not what get wrote.
    let path = hrefs(&got);
    fs::remove_file(&path).unwrap();
    fs::write(&path, "other").unwrap();
    let ran2 = stage.piped(&["remote", "--items", "-", "--json"], &ran.stdout);
    assert!(ran2.error().contains("--trust-items"), "{ran2:?}");
}

#[test]
fn one_asset_of_an_unknown_scheme_ends_nothing() {
    let stage = Stage::new();
    let red = stage.image(
        "red.tif",
        64,
        32756,
        [500_000.0, 10.0, 0.0, 7_000_000.0, 0.0, -10.0],
    );
    let page = page(json!({
        "red": {"href": red, "roles": ["data"]},
        "blue": {"href": "abfs://c@account/x.tif", "roles": ["data"]},
        "odd": {"href": "odd.tif"},
    }));
    let file = stage.write("items.json", &page);
    let ran = stage.run(&["remote", "--items", &file, "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.stderr.contains("left out lie blue: scheme `abfs`"),
        "{ran:?}"
    );
    assert!(
        ran.stderr.contains("asset odd of 1 items has no role"),
        "{ran:?}"
    );
    let found: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(href(&items(&found)[0], "red"), red);
    let ran = stage.run(&["get", "--items", &file, "--mode", "copy", "--to", "out"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(
        ran.stderr.contains("lie blue: ") && ran.stderr.contains("1 of 2 files were not fetched"),
        "{ran:?}"
    );
    assert_eq!(files(Path::new(&stage.path("out"))).len(), 1);
}
