//! A stac-geoparquet file as a catalogue: the items that went in come out, of ours and of others.

use std::{fs, path::Path, sync::Arc};

use chrono::{TimeZone, Utc};
use rss_core::{
    Crs, ErrorKind, QueryResult, Session,
    apply::{
        ApplyOptions, ImageCubeOptions,
        reduce::Reducer,
        sample::{Points, SampleOptions},
    },
    index::{Builder, Index, Select},
    mask::Cleanup,
    reader::KnownHeaders,
};
use rss_testbed::{Service, Testbed};
use serde_json::{Value, json};

use super::build::{bed, items, session, source};

fn local() -> Session {
    Session::builder().build().unwrap()
}

fn read(path: &Path, select: &Select) -> rss_core::Result<QueryResult> {
    QueryResult::from_parquet(&local(), path, select)
}

/// An item as JSON: numbers as floats, without nulls, and times to the millisecond, which is what rustac keeps.
fn plain(value: Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64().unwrap()),
        Value::Array(all) => all.into_iter().map(plain).collect(),
        Value::Object(all) => {
            let all = all.into_iter().filter(|(_, value)| !value.is_null());
            all.map(|(key, value)| (key, plain(value))).collect()
        }
        Value::String(text) => match chrono::DateTime::parse_from_rfc3339(&text) {
            Ok(time) => json!(time.timestamp_millis()),
            Err(_) => Value::String(text),
        },
        other => other,
    }
}

#[test]
fn items_of_an_index_are_those_that_were_indexed() {
    let bed = bed();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let builder = Builder::new(&session(&bed)).assets(["nbart_red"]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime
        .block_on(builder.build(source(&bed), &path))
        .unwrap();
    bed.clear_log();
    let found = read(&path, &Select::all()).unwrap();
    let mut ours: Vec<Value> = found
        .items()
        .items
        .iter()
        .map(|item| plain(serde_json::to_value(item).unwrap()))
        .collect();
    let mut theirs: Vec<Value> = items(&bed)
        .items
        .iter()
        .map(|item| plain(serde_json::to_value(item).unwrap()))
        .collect();
    let id = |item: &Value| item["id"].to_string();
    ours.sort_by_key(id);
    theirs.sort_by_key(id);
    for (one, other) in ours.iter().zip(&theirs) {
        for member in [
            "id",
            "collection",
            "geometry",
            "bbox",
            "properties",
            "assets",
        ] {
            assert_eq!(one[member], other[member], "{member}");
        }
    }
    assert_eq!(ours.len(), theirs.len());
    assert!(bed.log().is_empty());

    let first = found.items().items[0].clone();
    let some = read(&path, &Select::all().with_ids([&first.id])).unwrap();
    assert_eq!(some.items().items[0].id, first.id);
    assert_eq!(some.len(), 1);
    let (from, to) = (
        Utc.with_ymd_and_hms(2021, 1, 1, 0, 0, 0).unwrap(),
        Utc.with_ymd_and_hms(2021, 1, 8, 0, 0, 0).unwrap(),
    );
    let times = Select::all().with_times(Some(from), Some(to));
    let early = items(&bed).items;
    let early = early.iter().filter(|item| {
        let at = item.properties.datetime.unwrap();
        (from..=to).contains(&at)
    });
    let expected = early.count();
    assert!(expected > 0 && expected < theirs.len());
    assert_eq!(read(&path, &times).unwrap().len(), expected);
    let far = Select::all().with_bbox("10,10,11,11".parse().unwrap());
    assert!(read(&path, &far).unwrap().is_empty());
    let red = Select::all().with_assets(["nbart_red"]);
    let red = read(&path, &red).unwrap();
    let keys: Vec<&String> = red.items().items[0].assets.keys().collect();
    assert_eq!(keys, ["nbart_red"]);
}

#[test]
fn items_that_others_wrote_are_read() {
    let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/stac"));
    for name in [
        "dea-sentinel2",
        "element84-sentinel2",
        "planetary-computer-landsat",
    ] {
        let text = fs::read_to_string(data.join(format!("{name}.json"))).unwrap();
        let item =
            QueryResult::from_json(&local(), text.as_bytes(), rss_core::Trust::User).unwrap();
        let expected = plain(serde_json::to_value(&item.items().items[0]).unwrap());
        for writer in ["rustac", "python"] {
            let file = data.join(format!("parquet/{name}.{writer}.parquet"));
            let found = read(&file, &Select::all()).unwrap();
            assert_eq!(found.len(), 1, "{}", file.display());
            let read = plain(serde_json::to_value(&found.items().items[0]).unwrap());
            for member in ["id", "collection", "geometry", "bbox", "properties"] {
                assert_eq!(read[member], expected[member], "{name}, {writer}, {member}");
            }
            let assets = read["assets"].as_object().unwrap();
            assert!(!assets.is_empty());
            for (key, asset) in assets {
                assert_eq!(asset, &expected["assets"][key], "{name}, {writer}, {key}");
            }
        }
    }
}

#[test]
fn what_is_no_catalogue_is_one_clear_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    assert_eq!(
        read(&path, &Select::all()).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    fs::write(&path, "PAR1 and nothing more").unwrap();
    let err = read(&path, &Select::all()).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Corrupt);
    assert!(err.to_string().contains("a.parquet"), "{err}");
}

/// Requests to the store by `work`, after a session of its own was made.
fn asked(bed: &Testbed, work: impl FnOnce(&Session)) -> usize {
    bed.clear_log();
    work(&session(bed));
    bed.requests(Service::S3).len()
}

#[test]
fn headers_of_an_index_are_not_asked_for_again() {
    let bed = bed();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let builder = Builder::new(&session(&bed)).assets(["nbart_red", "oa_fmask"]);
    let built = runtime
        .block_on(builder.build(source(&bed), &path))
        .unwrap();
    let files = built.files;
    assert_eq!(files, 8);
    let index: Arc<dyn KnownHeaders> = Arc::new(Index::open(&path).unwrap());
    let found = |session: &Session| {
        let all = QueryResult::from_parquet(session, &path, &Select::all()).unwrap();
        all.with_bands(["nbart_red"])
    };
    let options = ImageCubeOptions::new().with_mask("clouds".parse().unwrap(), Cleanup::default());
    let median = |session: &Session, options: &ImageCubeOptions| {
        let cube = session.cube(&found(session), options).unwrap();
        let made = cube.reduce(Reducer::Median, ApplyOptions::new());
        let raster = session.compute(made).unwrap().0;
        let view: ndarray::ArrayView3<'_, f32> = raster.pixels.view().unwrap();
        view.iter()
            .map(|sample| sample.to_bits())
            .collect::<Vec<u32>>()
    };
    let (mut plain, mut known) = (None, None);
    let without = asked(&bed, |session| plain = Some(median(session, &options)));
    let options = options.clone().with_headers(Arc::clone(&index));
    let with = asked(&bed, |session| known = Some(median(session, &options)));
    assert!(plain.is_some() && plain == known);
    assert_eq!(with + files, without);

    // A point lies in one tile of each file.
    let grid = session(&bed)
        .cube(&found(&session(&bed)), &options)
        .unwrap()
        .grid()
        .clone();
    let [west, south, east, north] = grid.bbox().unwrap().edges();
    let point = [(west + east) / 2.0 + 1e-4, (south + north) / 2.0 + 1e-4];
    let options = SampleOptions::new().with_headers(index);
    let sampled = asked(&bed, |session| {
        let points = Points::new([point], Crs::Epsg(4326)).unwrap();
        let made = session.sample_points(&found(session), points, &options);
        assert_eq!(made.unwrap().0.len(), 4);
    });
    assert_eq!(sampled, 4);
}
