//! No secret in what a command writes or says, wherever it stood.
//!
//! Not looked at: `search --json` and `remote`, whose output is the addresses as they are read, signatures included.

use std::{fs, path::Path};

use rss_testbed::{BUCKET, Band};
use serde_json::{Value, json};

use super::stage::{CANARY, Stage, files};

/// Names of parameters that hold secrets: of SAS, presigned URLs, CDNs, tile servers, and one that nobody knows.
const NAMES: &[&str] = &[
    "sig",
    "X-Amz-Signature",
    "X-Amz-Security-Token",
    "X-Goog-Signature",
    "x-oss-signature",
    "token",
    "access_token",
    "key",
    "sas",
    "hdnts",
    "bearer",
    "api_key",
    "Key-Pair-Id",
    "code",
    "thing",
];

fn secrets() -> String {
    let all = NAMES.iter().map(|name| format!("{name}={CANARY}"));
    format!("{}#{CANARY}", all.collect::<Vec<_>>().join("&"))
}

/// Items of one scene, with a secret wherever an item may have one.
fn items_of(stage: &Stage) -> Value {
    let features: Vec<Value> = stage
        .bed
        .scenes()
        .iter()
        .take(2)
        .map(|scene| {
            let url = |band| {
                let url = stage.bed.http_url(BUCKET, scene.key(band));
                format!("{}?{}", url.replace("http://", &format!("http://me:{CANARY}@")), secrets())
            };
            let file: Value = json!({"roles": ["data"], "type": "image/tiff; application=geotiff",
                "alternate": {"https": {"href": format!("https://h.org/a.tif?{}", secrets())}},
                "storage:options": {"sas_token": CANARY, "headers": {"Authorization": CANARY}},
                "description": format!("see https://h.org/a.tif?key={CANARY}.")});
            let with = |href: String| {
                let mut file = file.clone();
                file["href"] = href.into();
                file
            };
            let mut properties = json!({"datetime": "2021-01-03T00:00:00Z", "proj:epsg": 32756});
            properties["apikey"] = CANARY.into();
            properties["source"] = format!("https://u:{CANARY}@h.org/s?{}", secrets()).into();
            json!({
                "type": "Feature", "stac_version": "1.0.0", "id": scene.id, "collection": "mine",
                "bbox": [152.99, -25.43, 153.13, -25.31],
                "geometry": {"type": "Polygon", "coordinates": [[[152.99, -25.43], [153.13, -25.43], [153.13, -25.31],
                    [152.99, -25.31], [152.99, -25.43]]]},
                "properties": properties,
                "links": [{"rel": "self", "href": format!("https://h.org/items/1?token={CANARY}")}],
                "assets": {"red": with(url(Band::Red)), "nir": with(url(Band::Nir))},
            })
        })
        .collect();
    json!({"type": "FeatureCollection", "features": features})
}

#[test]
fn no_secret_is_in_what_a_command_writes_or_says() {
    let stage = Stage::new();
    let inputs = tempfile::tempdir().unwrap();
    let input = |name: &str, text: String| {
        let path = inputs.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let items = input("items.json", items_of(&stage).to_string());
    let scene = &stage.bed.scenes()[0];
    let plain = stage.bed.http_url(BUCKET, scene.key(Band::Red));
    let signed = format!(
        "{}?{}",
        plain.replace("http://", &format!("http://me:{CANARY}@")),
        secrets()
    );
    let absent = signed.replace(".tif", "-none.tif");
    let list = input("list.txt", format!("{signed}\n{absent}\n"));
    let points = input(
        "points.geojson",
        json!({"type": "FeatureCollection", "features": [{"type": "Feature", "properties": {"id": 1},
            "geometry": {"type": "Point", "coordinates": [153.05, -25.36]}}]})
        .to_string(),
    );
    let source = format!("{}?token={CANARY}&key={CANARY}", stage.bed.stac_url());
    let with = |args: &str| -> Vec<String> {
        args.split_whitespace()
            .map(|word| match word {
                "ITEMS" => items.clone(),
                "SIGNED" => signed.clone(),
                "ABSENT" => absent.clone(),
                "LIST" => list.clone(),
                "POINTS" => points.clone(),
                "SOURCE" => source.clone(),
                word => word.to_owned(),
            })
            .collect()
    };
    let mut commands = vec![
        "info SIGNED --json",
        "info ABSENT",
        "info SIGNED --backend gdal",
        "read SIGNED --window 0,0,9,9 -o a.tif --json",
        "read SIGNED --window 0,0,9,9 --backend gdal --gdal-reads vsi -o a.npy --json",
        "read ABSENT --backend gdal --gdal-reads vsi -o b.npy",
        "get --items ITEMS --to copied --mode copy --json",
        "get --items ITEMS --to translated --bands red --json",
        "get --items ITEMS --to lacking --bands none --mode copy --keep-going",
        "gather LIST --json -o tiles.npy",
        "gather LIST --backend gdal",
        "apply --items ITEMS --bands red --raw --reduce median --resolution 100 -o d.tif --stac --json",
        "mosaic --items ITEMS --bands red --raw --resolution 100 -o m.tif --stac",
        "sample --items ITEMS --bands red --points POINTS --json",
        "sample --items ITEMS --bands red --points POINTS -o s.csv",
        "search SOURCE sentinel2 --like dea --scene 56jns --limit 1",
        "search SOURCE nothing --scene 56jns",
        "cache info --json",
    ];
    if cfg!(feature = "index") {
        commands.extend([
            "index build --items ITEMS -o i.parquet --json",
            "index build LIST -o l.parquet",
            "index info i.parquet --json",
            "index check i.parquet --json",
            "index merge i.parquet l.parquet -o both.parquet",
            "index export i.parquet --format kerchunk -o k.json",
            "index export i.parquet --format vrt -o v",
            "gather --index i.parquet --json",
        ]);
    }
    if cfg!(feature = "zarr") {
        commands.extend([
            "zarr write --items ITEMS --bands red --to cube.zarr --json",
            "zarr info cube.zarr --json",
            "again d.tif --json",
        ]);
    }
    let mut worked = 0;
    for text in commands {
        let mut command = stage.rss();
        for key in [
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "AZURE_STORAGE_ACCOUNT_KEY",
            "AZURE_STORAGE_SAS_TOKEN",
            "GOOGLE_SERVICE_ACCOUNT_KEY",
            "PC_SDK_SUBSCRIPTION_KEY",
        ] {
            command.env(key, CANARY);
        }
        // All that is told of the work, too.
        command
            .args(with(text))
            .args(["-vv", "--trace", "trace.jsonl"]);
        let done = command.output().unwrap();
        worked += usize::from(done.status.success());
        for (what, bytes) in [("stdout", &done.stdout), ("stderr", &done.stderr)] {
            assert!(
                !holds(bytes),
                "{what} of `{text}`:\n{}",
                String::from_utf8_lossy(bytes)
            );
        }
    }
    // Those of what is absent fail; that most work shows that the others say what is tested.
    assert!(worked >= 15, "{worked}");
    let home = stage.cache();
    for file in [files(stage.dir.path()), files(home.parent().unwrap())].concat() {
        let bytes = fs::read(&file).unwrap_or_default();
        assert!(!holds(&bytes), "{}", file.display());
        assert!(
            !file.to_string_lossy().contains(CANARY),
            "{}",
            file.display()
        );
    }
    assert!(Path::new(&stage.path("d.tif")).exists());
}

fn holds(bytes: &[u8]) -> bool {
    bytes
        .windows(CANARY.len())
        .any(|part| part == CANARY.as_bytes())
}
