//! STAC documents as servers really send them are read, and nothing that they say is lost.
//!
//! The documents in `tests/data` are read always; some hundred more where a checkout keeps them beside
//! the workspace, in `../shared/stac/recorded`, or where `RSS_SHARED_DIR` says.

#![expect(clippy::panic, reason = "a failed test panics")]

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use rss_core::{
    ErrorKind,
    stac::{self, Document, Skipped},
};
use serde_json::{Map, Value};

/// A document and the name of its file.
struct Recorded {
    name: String,
    bytes: Vec<u8>,
}

/// Documents that are errors: start of the file's name, part of the message, why. The first that fits
/// counts.
const ERRORS: [(&str, &str, &str); 15] = [
    (
        "stac/odd/not-json",
        "got text that starts",
        "a comma too many",
    ),
    (
        "search/earthsearch_not_found",
        "the server responded with `NotFound: Not Found`",
        "the server's own error",
    ),
    (
        "search/dea_query_refused",
        "the server responded with `Bad Request: The Query extension is no longer supported",
        "the server's own error",
    ),
    (
        "earthsearch__get_v1_collections_foo",
        "the server responded with `NotFound: Not Found`",
        "the server's own error",
    ),
    (
        "earthsearch__get_v1_collections",
        "got other JSON",
        "a list of collections: it has no items and no id, and no search asks for it",
    ),
    (
        "fedeo__get_collections",
        "got other JSON",
        "a list of collections",
    ),
    (
        "eoapi__doc_rustac__collections",
        "got other JSON",
        "a list of collections",
    ),
    (
        "pc__get_api_stac_v1_collections_3dep-seamless_queryables",
        "got other JSON",
        "a JSON schema",
    ),
    (
        "pc__get_api_stac_v1_collections_fia_queryables",
        "got other JSON",
        "a JSON schema",
    ),
    (
        "pc__get_api_stac_v1_collections_landsat-c2-l2_queryables",
        "got other JSON",
        "a JSON schema",
    ),
    (
        "dea__constructed_error_query_extension",
        "the server responded with `Bad Request: The Query extension is no longer supported",
        "the server's own error",
    ),
    (
        "dea__doc_odc-tools__ga_ls8c_ard_3-1-0_088080_2020-05-25_final.stac-item.sqs",
        "got other JSON",
        "a message of a queue, with the item as text inside",
    ),
    (
        "other__doc_rustac__not-a-collection",
        "the server responded with `NotFoundError: No collection with id 'not-a-collection' found!`",
        "the server's own error",
    ),
    (
        "other__doc_gdal__overlapping_sources",
        "got text that starts",
        "a comma too many",
    ),
    (
        "other__doc_gdal__test_multiple_assets",
        "got text that starts",
        "a comma too many",
    ),
];

/// Items whose geometry is no GeoJSON.
const NO_GEOMETRY: [&str; 1] = ["badGeometryItem"];

fn data(file: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    path.join(file)
}

/// Takes a document out of the envelope that says whence it is, if there is one.
///
/// Some files are arrays of items, which STAC knows no document for: their items are taken one by one.
fn documents_of(name: &str, bytes: Vec<u8>) -> Vec<Recorded> {
    let recorded = |name: String, bytes: Vec<u8>| Recorded { name, bytes };
    let document = |name: String, json: &Value| recorded(name, serde_json::to_vec(json).unwrap());
    let name = name.to_owned();
    let Ok(envelope) = serde_json::from_slice::<Value>(&bytes) else {
        return vec![recorded(name, bytes)];
    };
    let envelope = envelope.get("response").unwrap_or(&envelope);
    match (envelope.get("body"), envelope.get("body_text")) {
        (Some(Value::Null), Some(Value::String(text))) => {
            vec![recorded(name, text.clone().into_bytes())]
        }
        (Some(Value::Array(items)), _) => {
            let items = items.iter().enumerate();
            items
                .map(|(n, item)| document(format!("{name}[{n}]"), item))
                .collect()
        }
        (Some(body), _) => vec![document(name, body)],
        (None, _) => vec![recorded(name, bytes)],
    }
}

/// Returns the documents of a plain clone.
fn own() -> Vec<Recorded> {
    let mut documents = Vec::new();
    for folder in ["stac", "stac/odd", "stac/collections", "search"] {
        for entry in fs::read_dir(data(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".json") {
                let file = format!("{folder}/{name}");
                documents.extend(documents_of(&file, fs::read(data(&file)).unwrap()));
            }
        }
    }
    documents
}

/// Returns the documents beside the workspace.
fn shared() -> Vec<Recorded> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = env::var_os("RSS_SHARED_DIR").map_or(beside, PathBuf::from);
    let folder = shared.join("stac/recorded");
    let Ok(entries) = fs::read_dir(&folder) else {
        eprintln!("skipped: no recorded answers in {}", folder.display());
        return Vec::new();
    };
    let mut documents = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name == "manifest.json" {
            continue;
        }
        documents.extend(documents_of(&name, fs::read(&path).unwrap()));
    }
    assert!(documents.len() > 100, "{} documents", documents.len());
    documents
}

fn all() -> Vec<Recorded> {
    let mut documents = own();
    documents.extend(shared());
    documents
}

impl Recorded {
    fn expected_error(&self) -> Option<&'static str> {
        let entry = ERRORS.iter().find(|error| self.name.starts_with(error.0));
        entry.map(|error| error.1)
    }

    fn document(&self) -> Document {
        stac::read(&self.bytes).unwrap_or_else(|err| panic!("{}: {err}", self.name))
    }

    /// Returns the document as JSON, without our reader.
    fn json(&self) -> Value {
        let text = String::from_utf8(self.bytes.clone()).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|_| {
            let text = text.replace(": NaN", r#": "NaN""#);
            serde_json::from_str(&text).unwrap_or_else(|err| panic!("{}: {err}", self.name))
        })
    }

    /// Returns each feature as JSON, the item made of it, and what was skipped in the document.
    fn items(&self) -> Vec<(Value, ::stac::Item)> {
        let raw = self.json();
        match self.document() {
            Document::Item(item, _) => vec![(raw, *item)],
            Document::Items(page) => {
                let features = raw["features"].as_array().unwrap().clone();
                assert_eq!(features.len(), page.items.len(), "{}", self.name);
                features.into_iter().zip(page.items).collect()
            }
            _ => Vec::new(),
        }
    }

    fn skipped(&self) -> Vec<Skipped> {
        match self.document() {
            Document::Item(_, skipped) => skipped,
            Document::Items(page) => page.skipped,
            _ => Vec::new(),
        }
    }
}

/// Calls a check with every item there is.
fn for_each_item(mut check: impl FnMut(&str, &Value, &::stac::Item)) {
    for recorded in all() {
        if recorded.expected_error().is_some() {
            continue;
        }
        for (raw, item) in recorded.items() {
            check(&format!("{} {}", recorded.name, item.id), &raw, &item);
        }
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) if text.eq_ignore_ascii_case("nan") => Some(f64::NAN),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// Returns true if two values are the same JSON; 1 and 1.0 are, an empty list and none are.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Null, Value::Array(list)) => list.is_empty(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// Returns the only item of a file.
fn item(file: &str) -> ::stac::Item {
    let mut documents = documents_of(file, fs::read(data(file)).unwrap());
    let mut items = documents.remove(0).items();
    assert_eq!((documents.len(), items.len()), (0, 1), "{file}");
    items.remove(0).1
}

#[test]
fn bare_nan_is_read_as_the_nodata_of_an_angle() {
    let item = item("stac/odd/bare-nan.json");
    let facts = |key: &str| stac::band_facts(&item.assets[key]);
    let angle = facts("oa_azimuthal_exiting");
    assert!(
        angle.nodata.is_some_and(rss_core::Number::is_nan),
        "{angle:?}"
    );
    assert_eq!(angle.dtype, Some(rss_core::DataType::F32));
    assert_eq!(facts("nbart_red"), stac::BandFacts::default());
    assert_eq!(item.id, "e2baf679-c20a-479f-86c5-ffd98c65ff87");
    assert_eq!(item.assets.len(), 30);
}

#[test]
fn nodata_is_nan_in_every_spelling_and_every_place() {
    for spelling in [
        "NaN",
        "nan",
        r#""NaN""#,
        r#""nan""#,
        r#""NAN""#,
        r#"" NaN ""#,
    ] {
        for asset in [
            format!(r#""nodata": {spelling}"#),
            format!(r#""bands": [{{"name": "a", "nodata": {spelling}}}]"#),
            format!(r#""raster:bands": [{{"nodata": {spelling}}}]"#),
        ] {
            let text = format!(
                r#"{{"type": "Feature", "id": "NaN", "assets": {{"a": {{"href": "NaN", {asset}}}}}}}"#
            );
            let Document::Item(item, skipped) = stac::read(text.as_bytes()).unwrap() else {
                panic!("{text}");
            };
            assert!(skipped.is_empty(), "{text}");
            // In strings the word is text.
            assert_eq!((item.id.as_str(), &*item.assets["a"].href), ("NaN", "NaN"));
            let nodata = stac::band_facts(&item.assets["a"]).nodata;
            assert!(
                nodata.is_some_and(rss_core::Number::is_nan),
                "{text}: {nodata:?}"
            );
        }
    }
}

#[test]
fn a_number_that_is_nan_in_words_is_no_number() {
    let item = item("stac/dea-landsat8.json");
    assert_eq!(item.properties.additional_fields["gqa:cep90"], "NaN");
    assert_eq!(stac::number(&item, "gqa:cep90"), None);
    assert_eq!(stac::number(&item, "landsat:wrs_path"), Some(88.0));
}

#[test]
fn stac_1_0_0_beta_2_is_read_with_its_short_names_of_extensions() {
    let item = item("stac/dea-landsat8-beta2.json");
    assert_eq!(item.extensions, ["eo", "projection", "view"]);
    assert_eq!(item.collection, None);
    let projection = stac::projection(&item, &item.assets["nbart_panchromatic"]);
    assert_eq!(projection.epsg, Some(32656));
    let width = projection.transform.map(|transform| transform[1]);
    assert_eq!(width, Some(15.0));
}

#[test]
fn a_transform_of_six_and_one_of_nine_numbers_are_the_same_to_gdal() {
    let nine = item("stac/dea-sentinel2.json");
    let nine = stac::projection(&nine, &nine.assets["nbart_red"]);
    assert_eq!(
        nine.transform,
        Some([600_000.0, 10.0, 0.0, 7_200_040.0, 0.0, -10.0])
    );
    assert_eq!(nine.shape, Some([10_980, 10_980]));
    let six = item("stac/element84-landsat.json");
    let six = stac::projection(&six, &six.assets["red"]);
    assert_eq!(
        six.transform,
        Some([449_085.0, 30.0, 0.0, 4_581_915.0, 0.0, -30.0])
    );
}

#[test]
fn stac_1_1_says_code_and_bands_where_1_0_said_epsg_and_eo_bands() {
    let new = item("stac/odd/stac-1.1-bands-and-code.json");
    let band = &new.assets["B01"].bands[0];
    assert_eq!(band.name.as_deref(), Some("B01"));
    assert_eq!(band.additional_fields["eo:common_name"], "coastal");
    let projection = stac::projection(&new, &new.assets["B01"]);
    assert_eq!(projection.epsg, Some(26711));
    assert_eq!(
        projection.transform,
        Some([440_720.0, 60.0, 0.0, 3_751_320.0, 0.0, -60.0])
    );
    assert_eq!(new.geometry, None);
    assert!(new.links.is_empty());
    let old = item("stac/element84-sentinel2.json");
    let coastal = &old.assets["coastal"];
    assert_eq!(
        coastal.additional_fields["eo:bands"][0]["common_name"],
        "coastal"
    );
    assert_eq!(stac::projection(&old, coastal).epsg, Some(32720));
}

#[test]
fn a_day_is_a_time_and_stac_0_7_is_read() {
    let item = item("stac/odd/stac-0.7-bare-date.json");
    let time = stac::datetime(&item).unwrap();
    assert_eq!(time.to_rfc3339(), "1998-03-08T00:00:00+00:00");
    assert_eq!(item.assets.len(), 17);
    let blue = &item.assets["SR_B1.TIF"];
    assert!(blue.href.ends_with("_SR_B1.TIF"), "{}", blue.href);
    // Fields that no version of STAC knows stay.
    assert_eq!(item.properties.additional_fields["landsat:wrs_path"], "090");
}

#[test]
fn an_asset_without_href_is_skipped_and_named_and_the_others_stay() {
    let file = "stac/odd/assets-without-href.json";
    let documents = documents_of(file, fs::read(data(file)).unwrap());
    let skipped = documents[0].skipped();
    let keys: Vec<&str> = skipped
        .iter()
        .filter_map(|one| one.asset.as_deref())
        .collect();
    assert_eq!(
        keys,
        [
            "ST_QA", "ST_B10", "ST_DRAD", "ST_EMIS", "ST_EMSD", "ST_TRAD", "ST_URAD", "ST_ATRAN",
            "ST_CDIST"
        ]
    );
    let item = item(file);
    assert!(item.assets["SR_B4"].href.ends_with("_SR_B4.TIF"));
    assert!(item.assets.get("ST_B10").is_none());
}

#[test]
fn items_without_geometry_links_and_assets_are_items() {
    let file = "search/earthsearch_without_geometry.json";
    let documents = documents_of(file, fs::read(data(file)).unwrap());
    let Document::Items(page) = documents[0].document() else {
        panic!("{file}");
    };
    assert!(page.items.len() > 1 && page.skipped.is_empty());
    for item in page.items {
        assert_eq!(item.geometry, None, "{}", item.id);
        assert!(
            item.links.is_empty() && item.assets.is_empty(),
            "{}",
            item.id
        );
        assert!(
            stac::datetime(&item).is_some() && item.bbox.is_some(),
            "{}",
            item.id
        );
    }
}

#[test]
fn every_document_is_read_but_those_that_are_no_stac() {
    let mut wrong = Vec::new();
    let documents = all();
    for (start, ..) in ERRORS {
        let used = documents.iter().any(|one| one.name.starts_with(start));
        let here = documents.iter().any(|one| !one.name.contains('/'));
        // Those beside the workspace are known by names without a folder.
        assert!(used || !here && !start.contains('/'), "no document {start}");
    }
    for recorded in documents {
        let name = &recorded.name;
        match (stac::read(&recorded.bytes), recorded.expected_error()) {
            (Ok(_), None) => {}
            (Ok(_), Some(_)) => wrong.push(format!("{name}: is read")),
            (Err(err), expected) => {
                let message = err.to_string();
                if err.kind() != ErrorKind::Corrupt
                    || !expected.is_some_and(|part| message.contains(part))
                {
                    wrong.push(format!("{name}: {message}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_field_of_an_item_is_lost_and_none_is_changed() {
    let mut wrong = BTreeSet::new();
    for_each_item(|name, raw, item| {
        let read = serde_json::to_value(item).unwrap();
        for (key, value) in object(raw) {
            // These have their own tests.
            let apart = ["type", "assets", "links", "properties", "geometry", "bbox"];
            if !apart.contains(&key.as_str()) && !same(&read[&key], &value) {
                wrong.insert(format!("{name}: {key}: {value} is {}", read[&key]));
            }
        }
        for (key, value) in object(&raw["properties"]) {
            let time = key == "datetime" || key.ends_with("_datetime");
            if !time && !same(&read["properties"][&key], &value) {
                let now = &read["properties"][&key];
                wrong.insert(format!("{name}: {key}: {value} is {now}"));
            }
        }
    });
    let wrong: Vec<String> = wrong.into_iter().take(20).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_asset_with_an_href_is_kept_whole_and_every_other_is_named() {
    let mut wrong = BTreeSet::new();
    let mut without = 0;
    for recorded in all() {
        if recorded.expected_error().is_some() {
            continue;
        }
        let name = &recorded.name;
        let mut missing = BTreeSet::new();
        for (raw, item) in recorded.items() {
            let raw = object(&raw["assets"]);
            for (key, asset) in &raw {
                if asset["href"].as_str().unwrap_or_default().is_empty() {
                    missing.insert((item.id.clone(), Some(key.clone())));
                    continue;
                }
                let Some(read) = item.assets.get(key) else {
                    wrong.insert(format!("{name}: {key} is lost"));
                    continue;
                };
                let read = serde_json::to_value(read).unwrap();
                let mut compare = |stated: &Value, read: &Value| {
                    for (field, value) in object(stated) {
                        // NaN has no JSON number; nodata has its own test.
                        if field != "nodata" && field != "bands" && !same(&read[&field], &value) {
                            let now = &read[&field];
                            wrong.insert(format!("{name}: {key}: {field}: {value} is {now}"));
                        }
                    }
                };
                compare(asset, &read);
                for (n, band) in asset["bands"].as_array().into_iter().flatten().enumerate() {
                    compare(band, &read["bands"][n]);
                }
            }
            assert!(item.assets.len() <= raw.len(), "{name}");
        }
        let skipped = recorded.skipped();
        without += skipped.len();
        for skipped in &skipped {
            assert_eq!(skipped.reason, "no href", "{name}: {skipped:?}");
        }
        let skipped: BTreeSet<_> = skipped
            .into_iter()
            .map(|one| (one.item, one.asset))
            .collect();
        assert_eq!(skipped, missing, "{name}");
    }
    let wrong: Vec<String> = wrong.into_iter().take(20).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(without >= 9, "{without}");
}

#[test]
fn geometry_is_none_where_the_document_has_none() {
    for_each_item(|name, raw, item| {
        let stated = raw["geometry"].get("coordinates").is_some();
        let valid = !NO_GEOMETRY.contains(&item.id.as_str());
        assert_eq!(item.geometry.is_some(), stated && valid, "{name}");
        if let Some(geometry) = &item.geometry {
            let read = serde_json::to_value(geometry).unwrap();
            assert!(
                same(&read["coordinates"], &raw["geometry"]["coordinates"]),
                "{name}"
            );
        }
    });
}

#[test]
fn a_box_has_four_or_six_numbers_or_is_none() {
    let mut lengths = BTreeSet::new();
    for_each_item(|name, raw, item| {
        let read = serde_json::to_value(item).unwrap();
        assert!(same(&read["bbox"], &raw["bbox"]), "{name}");
        lengths.insert(raw["bbox"].as_array().map(Vec::len));
    });
    assert!(
        lengths.contains(&Some(4)) && lengths.contains(&None),
        "{lengths:?}"
    );
}

#[test]
fn a_time_is_the_one_stated_whatever_its_spelling() {
    let mut bare = 0;
    for_each_item(|name, raw, item| {
        let properties = &item.properties;
        for (key, read) in [
            ("datetime", properties.datetime),
            ("start_datetime", properties.start_datetime),
            ("end_datetime", properties.end_datetime),
        ] {
            let read = read.map(|time| time.format("%Y-%m-%dT%H:%M:%S").to_string());
            let stated = raw["properties"][key]
                .as_str()
                .map(|text| match text.len() {
                    10 => {
                        bare += 1;
                        format!("{text}T00:00:00")
                    }
                    // Every time recorded is in UTC.
                    _ => text[..19].replace(' ', "T"),
                });
            assert_eq!(read, stated, "{name}: {key}");
        }
        let first = properties.datetime.or(properties.start_datetime);
        assert_eq!(stac::datetime(item), first, "{name}");
    });
    assert!(bare > 0);
}

#[test]
fn epsg_and_transform_are_read_in_every_spelling() {
    let mut lengths = BTreeSet::new();
    let mut codes = BTreeSet::new();
    for_each_item(|name, raw, item| {
        for (key, asset) in &item.assets {
            let read = stac::projection(item, asset);
            let own = &raw["assets"][key];
            let field = |field: &str| match (&own[field], &own["bands"][0][field]) {
                (Value::Null, Value::Null) => raw["properties"][field].clone(),
                (Value::Null, of_band) => of_band.clone(),
                (of_asset, _) => of_asset.clone(),
            };
            let (new, old) = (field("proj:code"), field("proj:epsg"));
            let epsg = match new.as_str() {
                Some(code) => code.strip_prefix("EPSG:").unwrap().parse().ok(),
                None => old.as_u64(),
            };
            assert_eq!(read.epsg.map(u64::from), epsg, "{name}: {key}");
            codes.insert((new.is_string(), old.is_u64()));
            let numbers: Vec<f64> = field("proj:transform")
                .as_array()
                .into_iter()
                .flatten()
                .map(|number| number.as_f64().unwrap())
                .collect();
            lengths.insert(numbers.len());
            let gdal = (!numbers.is_empty()).then(|| [2, 0, 1, 5, 3, 4].map(|at| numbers[at]));
            assert_eq!(read.transform, gdal, "{name}: {key}");
            let shape = field("proj:shape");
            let shape: Option<Vec<u64>> = shape
                .as_array()
                .map(|shape| shape.iter().map(|n| n.as_u64().unwrap()).collect());
            assert_eq!(read.shape.map(Vec::from), shape, "{name}: {key}");
        }
    });
    assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [0, 6, 9]);
    assert!(codes.contains(&(true, false)), "{codes:?}");
    assert!(codes.contains(&(false, true)), "{codes:?}");
}

#[test]
fn nodata_type_scale_and_offset_are_read_in_both_spellings() {
    let mut nan = 0;
    let mut old = 0;
    for_each_item(|name, raw, item| {
        for (key, asset) in &item.assets {
            let read = stac::band_facts(asset);
            let own = &raw["assets"][key];
            let field = |field: &str| {
                let places = [own, &own["bands"][0], &own["raster:bands"][0]];
                let named = format!("raster:{field}");
                let plain = places.iter().map(|place| &place[field]);
                let prefixed = places.iter().map(|place| &place[&named]);
                let mut stated = plain.chain(prefixed).filter(|value| !value.is_null());
                stated.next().cloned().unwrap_or_default()
            };
            let nodata = number(&field("nodata"));
            assert_eq!(read.nodata.is_some(), nodata.is_some(), "{name}: {key}");
            match (read.nodata.map(rss_core::Number::as_f64), nodata) {
                (Some(read), Some(stated)) if stated.is_nan() => {
                    assert!(read.is_nan(), "{name}: {key}");
                    nan += 1;
                }
                (read, stated) => assert_eq!(read, stated, "{name}: {key}"),
            }
            let dtype = read.dtype.map(rss_core::DataType::name);
            let stated = field("data_type");
            assert_eq!(dtype, stated.as_str(), "{name}: {key}");
            assert_eq!(read.scale, number(&field("scale")), "{name}: {key}");
            assert_eq!(read.offset, number(&field("offset")), "{name}: {key}");
            old += usize::from(own["raster:bands"][0]["data_type"].is_string());
        }
    });
    assert!(nan > 0 && old > 100, "{nan} NaN, {old} of raster:bands");
}

#[test]
fn a_page_says_how_to_go_on_as_its_server_stated_it() {
    let mut pages = 0;
    for recorded in all() {
        if recorded.expected_error().is_some() {
            continue;
        }
        let (raw, Document::Items(page)) = (recorded.json(), recorded.document()) else {
            continue;
        };
        let name = &recorded.name;
        let links = raw["links"].as_array().cloned().unwrap_or_default();
        let link = links.into_iter().find(|link| link["rel"] == "next");
        assert_eq!(page.next.is_some(), link.is_some(), "{name}");
        let matched = [&raw["numberMatched"], &raw["context"]["matched"]];
        let matched = matched.into_iter().find_map(Value::as_u64);
        assert_eq!(page.matched, matched, "{name}");
        let (Some(next), Some(link)) = (page.next, link) else {
            continue;
        };
        assert_eq!(Some(next.href.as_str()), link["href"].as_str(), "{name}");
        assert_eq!(next.post, link["method"] == "POST", "{name}");
        assert_eq!(next.merge, link["merge"] == true, "{name}");
        assert_eq!(next.body.as_ref(), link["body"].as_object(), "{name}");
        pages += 1;
    }
    assert!(pages >= 4, "{pages}");
}

#[test]
fn a_catalogue_gives_its_id_its_links_and_what_it_conforms_to() {
    let mut seen = 0;
    for recorded in all() {
        if recorded.expected_error().is_some() {
            continue;
        }
        let raw = recorded.json();
        let Document::Catalogue {
            id,
            links,
            conforms_to,
        } = recorded.document()
        else {
            continue;
        };
        let name = &recorded.name;
        assert_eq!(raw["id"].as_str(), Some(id.as_str()), "{name}");
        let hrefs = |links: &Value| -> Vec<String> {
            let links = links.as_array().cloned().unwrap_or_default();
            links.iter().map(|link| link["href"].to_string()).collect()
        };
        let read = serde_json::to_value(&links).unwrap();
        assert_eq!(hrefs(&read), hrefs(&raw["links"]), "{name}");
        let classes = raw["conformsTo"].as_array().map_or(0, Vec::len);
        assert_eq!(conforms_to.len(), classes, "{name}");
        seen += 1;
    }
    assert!(seen >= 5, "{seen}");
}
