//! `rss remote`: hrefs that are read in place.

use rss_testbed::{ACCESS_KEY, BUCKET, Band, SECRET_KEY};

use super::stage::{CANARY, Ran, SEED, Stage, assets, href, ids, items};

const RED: &[&str] = &["--bands", "nbart_red", "--json"];

#[test]
fn hrefs_are_vsi_paths() {
    let stage = Stage::new();
    let found = stage.seed("remote", RED).json();
    assert_eq!(ids(&found), stage.ids());
    for item in items(&found) {
        assert_eq!(assets(&item), ["nbart_red"]);
        let scenes = stage.bed.scenes();
        let scene = scenes.iter().find(|scene| item["id"] == *scene.id).unwrap();
        let wanted = format!("/vsis3/{BUCKET}/{}", scene.key(Band::Red));
        assert_eq!(href(&item, "nbart_red"), wanted);
    }
    assert_eq!(stage.fetches(), 0);
    let ran = stage.seed("remote", &["--bands", "nbart_red"]);
    let lines: Vec<&str> = ran.text().lines().collect();
    assert_eq!(lines.len(), 5);
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>(),
        ["item", "asset", "href"]
    );
    assert!(lines[1..].iter().all(|line| line.contains("/vsis3/")));
}

#[test]
fn an_https_variant_is_a_plain_url() {
    let stage = Stage::new();
    let more = [RED, &["--variant", "https", "--limit", "1"]].concat();
    let found = stage.seed("remote", &more).json();
    let item = &items(&found)[0];
    let scenes = stage.bed.scenes();
    let scene = scenes.iter().find(|scene| item["id"] == *scene.id).unwrap();
    let url = href(item, "nbart_red");
    let wanted = format!(
        "{}/{BUCKET}/{}",
        stage.bed.s3_endpoint(),
        scene.key(Band::Red)
    );
    assert_eq!(url, wanted);
    let info = stage.run(&["info", url, "--json"]).json();
    assert_eq!(info["width"], 1200);
}

#[test]
fn a_presigned_url_reads_without_credentials() {
    let stage = Stage::new();
    let scene = &stage.bed.scenes()[0];
    let path = scene.file(Band::Red).unwrap();
    stage.bed.put_file("private", "a b.tif", path).unwrap();
    let item = serde_json::json!({
        "type": "Feature", "stac_version": "1.0.0", "id": "x", "geometry": null,
        "properties": {"datetime": "2021-01-01T00:00:00Z"}, "links": [],
        "assets": {"red": {"href": "s3://private/a b.tif", "roles": ["data"]}},
    });
    let file = stage.write("item.json", item.to_string());
    let mut command = stage.rss();
    command
        .env_remove("AWS_NO_SIGN_REQUEST")
        .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        .args(["remote", "--items", &file, "--json"])
        .args(["--variant", "presigned"]);
    let found = Ran::of(command.output().unwrap()).json();
    let item = &items(&found)[0];
    let url = href(item, "red");
    assert!(url.starts_with(&stage.bed.s3_endpoint()), "{url}");
    assert!(url.contains("X-Amz-Signature="), "{url}");
    assert!(!url.contains(SECRET_KEY));
    assert_eq!(stage.bed.log().len(), 0);
    let wanted: Vec<u8> = scene
        .window(Band::Red, 500, 500, 40, 30)
        .into_iter()
        .flat_map(i16::to_le_bytes)
        .collect();
    for backend in ["cog", "gdal"] {
        stage.bed.clear_log();
        let read = ["read", url, "--window", "500,500,40,30", "-o", "-"];
        let ran = stage.run(&[&read[..], &["--backend", backend]].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{backend}");
        assert!(ran.stdout == wanted, "{backend}");
        assert!(stage.bed.log().iter().all(|request| request.signed));
    }
}

#[test]
fn a_public_bucket_needs_no_signature() {
    let stage = Stage::new();
    let plain = stage.seed("remote", &[RED, &["--variant", "https"]].concat());
    let mut command = stage.rss();
    command
        .env_remove("AWS_NO_SIGN_REQUEST")
        .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", CANARY)
        .args(["remote", &stage.bed.stac_url()])
        .args(SEED)
        .args(RED)
        .args(["--variant", "presigned"]);
    let presigned = Ran::of(command.output().unwrap());
    assert_eq!(presigned.json(), plain.json());
}
