//! What catalogues really sent, read without loss.

use std::path::{Path, PathBuf};

use rss_core::{
    ErrorKind,
    stac::{self, Document},
};
use serde_json::Value;

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

/// Recorded answers, where they lie beside the repository: file name and text of the body.
fn recorded() -> Vec<(String, String)> {
    let folder = here().join("../../../shared/stac/recorded");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: there is no ../shared/stac beside the repository");
        return Vec::new();
    };
    let mut found: Vec<(String, String)> = entries
        .filter_map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if name == "manifest.json" {
                return None;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let record: Value = serde_json::from_str(&text).unwrap();
            let holder = match record.get("response") {
                Some(response) => response.clone(),
                None => record,
            };
            let body = match &holder["body_text"] {
                Value::String(text) => text.clone(),
                _ => holder["body"].to_string(),
            };
            Some((name, body))
        })
        .collect();
    found.sort();
    found
}

/// Returns the items of a document as plain JSON, if it is one that holds items.
fn features(body: &Value) -> Option<Vec<&Value>> {
    if let Some(list) = body.as_array() {
        return list
            .iter()
            .all(|one| one["type"] == "Feature")
            .then(|| list.iter().collect());
    }
    match body["type"].as_str()? {
        "Feature" => Some(vec![body]),
        "FeatureCollection" => Some(body["features"].as_array()?.iter().collect()),
        _ => None,
    }
}

#[test]
fn every_recorded_answer_is_read_or_refused_in_one_line() {
    let recorded = recorded();
    let (mut items, mut refused) = (0, Vec::new());
    for (name, body) in &recorded {
        let plain: Option<Value> = serde_json::from_str(body).ok();
        let expected = plain.as_ref().and_then(features);
        match stac::read(body.as_bytes()) {
            Ok(document) => {
                let (read, skipped) = match &document {
                    Document::Item(item, skipped) => (std::slice::from_ref(&**item), &skipped[..]),
                    Document::Items(page) => (&page.items[..], &page.skipped[..]),
                    _ => continue,
                };
                items += read.len();
                let Some(expected) = expected else { continue };
                let lost = skipped.iter().filter(|one| one.asset.is_none()).count();
                assert_eq!(read.len() + lost, expected.len(), "{name}");
                for item in read {
                    let before = expected.iter().find(|one| one["id"] == item.id.as_str());
                    check(name, item, before.unwrap(), skipped);
                }
            }
            Err(err) => {
                assert!(
                    matches!(err.kind(), ErrorKind::Corrupt | ErrorKind::InvalidInput),
                    "{name}: {err:?}"
                );
                assert!(!err.to_string().contains('\n'), "{name}: {err}");
                assert!(
                    expected.is_none(),
                    "{name} holds items and is refused: {err}"
                );
                refused.push(name);
            }
        }
    }
    eprintln!("{items} items read; refused: {refused:?}");
    assert!(recorded.is_empty() || items > 300, "{items} items");
}

/// Nothing is lost: every asset with an address, every property, under the same name.
fn check(name: &str, item: &::stac::Item, before: &Value, skipped: &[stac::Skipped]) {
    let what = format!("{name} {}", item.id);
    for (key, asset) in before["assets"].as_object().into_iter().flatten() {
        let href = asset["href"].as_str().filter(|href| !href.is_empty());
        match (href, item.assets.get(key)) {
            (Some(href), Some(read)) => assert_eq!(read.href, href, "{what} {key}"),
            (None, None) => assert!(
                skipped
                    .iter()
                    .any(|one| one.item == item.id && one.asset.as_deref() == Some(key)),
                "{what} {key}: dropped without a word"
            ),
            (href, read) => panic!("{what} {key}: {href:?} became {read:?}"),
        }
    }
    let after = serde_json::to_value(item).unwrap();
    for (key, value) in before["properties"].as_object().into_iter().flatten() {
        let kept = after["properties"].get(key);
        let is_time = [
            "datetime",
            "start_datetime",
            "end_datetime",
            "created",
            "updated",
        ]
        .contains(&key.as_str());
        // Times are written in one way, numbers as text become numbers, null is absence.
        let is_same = match kept {
            None => value.is_null(),
            Some(_) if is_time => true,
            Some(kept) => kept == value || value.is_string() && !kept.is_string(),
        };
        assert!(is_same, "{what} {key}: {value} became {kept:?}");
    }
}

#[test]
fn odd_documents_of_a_plain_clone_are_read() {
    let read = |name: &str| {
        let bytes = std::fs::read(here().join("tests/data/stac").join(name)).unwrap();
        match stac::read(&bytes).unwrap() {
            Document::Item(item, skipped) => (*item, skipped),
            other => panic!("{name}: {other:?}"),
        }
    };
    // STAC 1.0.0-beta.2: short extension names, no collection, `proj:epsg`, transforms of nine.
    let (beta, skipped) = read("dea_ga_ls8c_ard_3.json");
    assert_eq!(skipped, []);
    let red = &beta.assets["nbart_red"];
    let projection = stac::projection(&beta, red);
    assert_eq!(projection.epsg, Some(32656));
    assert_eq!(
        projection.transform,
        Some([526_785.0, 30.0, 0.0, -3_077_085.0, 0.0, -30.0])
    );
    // A number as the text "NaN".
    let (new, _) = read("dea_ga_ls8c_ard_3_stac1.json");
    assert_eq!(new.id, beta.id);
    assert!(new.assets.len() > 20);
    // `raster:bands` of 1.0, requester pays from the storage extension.
    let (landsat, _) = read("earth-search_landsat-c2-l2.json");
    let facts = stac::band_facts(&landsat.assets["red"]);
    assert_eq!((facts.scale, facts.offset), (Some(2.75e-5), Some(-0.2)));
    assert!(stac::requester_pays(&landsat, &landsat.assets["red"]));
    // A size and a checksum of each file.
    let (c1, _) = read("earth-search_sentinel-2-c1-l2a.json");
    assert!(stac::file_size(&c1.assets["red"]).unwrap() > 1_000_000);
    assert_eq!(stac::file_sha256(&c1.assets["red"]).unwrap().len(), 64);
}

#[test]
fn bare_nan_is_read_wherever_it_stands() {
    let text = r#"{"type": "FeatureCollection", "features": [{"type": "Feature", "id": "a",
        "stac_version": "1.0.0", "geometry": null, "links": [],
        "properties": {"datetime": "2021-01-01", "x": NaN, "y": -Infinity, "said": "NaN, he said"},
        "assets": {"oa": {"href": "a.tif", "raster:bands": [{"nodata": NaN}]},
                   "ob": {"href": "b.tif", "raster:bands": [{"nodata": "nan"}]},
                   "oc": {"href": "c.tif", "nodata": "NaN"}}}]}"#;
    let Document::Items(page) = stac::read(text.as_bytes()).unwrap() else {
        panic!("no items");
    };
    let item = &page.items[0];
    for key in ["oa", "ob", "oc"] {
        assert!(
            stac::band_facts(&item.assets[key]).nodata.unwrap().is_nan(),
            "{key}"
        );
    }
    assert_eq!(item.properties.additional_fields["said"], "NaN, he said");
}
