//! Servers that are not there, or not what they should be.

use std::net::TcpListener;

use rss_testbed::Testbed;

use super::stage::{Ran, SEED, Stage};

/// Returns an address where nobody listens: it was free a moment ago.
pub(crate) fn nowhere() -> String {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    format!("http://{}", address.unwrap())
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let stage = Stage::of(Testbed::builder());
    let url = format!("{}/stac", nowhere());
    let ran = stage.run(&[&["search", &url], SEED].concat());
    assert!(ran.error().contains(&url), "{ran:?}");
    assert!(ran.error().contains("no connection"), "{ran:?}");
}

#[test]
fn a_server_that_is_no_api_is_named() {
    let stage = Stage::of(Testbed::builder());
    stage.bed.put("bucket", "page", "<html></html>");
    for key in ["absent", "page"] {
        let url = stage.bed.http_url("bucket", key);
        let ran = stage.run(&["search", &url, "c", "--limit", "1"]);
        assert!(ran.error().contains(&url), "{ran:?}");
    }
}

#[test]
fn a_store_that_is_not_there_is_one_line() {
    let stage = Stage::of(Testbed::builder());
    for backend in ["cog", "gdal"] {
        let mut command = stage.rss();
        command
            .env("AWS_ENDPOINT_URL", nowhere())
            .args(["read", "s3://bucket/a.tif", "-o", "a.bin"])
            .args(["--backend", backend]);
        let ran = Ran::of(command.output().unwrap());
        assert!(ran.error().contains("s3://bucket/a.tif"), "{ran:?}");
    }
}
