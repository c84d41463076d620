//! Building: each header once, nothing lost when it is stopped, and one file that is whole.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rss_core::{
    Backend, Bbox, Error, ErrorKind, Location, ReadRequest, Session, Trust,
    index::{self, BuildReport, BuildSource, Builder, Index, Select},
    reader,
};
use rss_testbed::{BUCKET, Band, Fault, Rule, Scenes, Service, Testbed};
use stac::{Item, ItemCollection};

pub(super) fn bed() -> Testbed {
    Testbed::builder().scenes(Scenes::small()).start().unwrap()
}

pub(super) fn session(bed: &Testbed) -> Session {
    let builder = Session::builder().s3_endpoint(&bed.s3_endpoint());
    builder.retries(1).build().unwrap()
}

pub(super) fn items(bed: &Testbed) -> ItemCollection {
    let items = bed
        .scenes()
        .iter()
        .map(|scene| serde_json::from_value(scene.item.clone()).unwrap());
    items.collect::<Vec<Item>>().into()
}

pub(super) fn source(bed: &Testbed) -> BuildSource {
    BuildSource::items(items(bed), Trust::User)
}

const BANDS: [&str; 2] = ["nbart_nir_1", "nbart_red"];

fn builder(bed: &Testbed) -> Builder {
    Builder::new(&session(bed)).assets(BANDS)
}

async fn built(bed: &Testbed, path: &Path) -> BuildReport {
    builder(bed).build(source(bed), path).await.unwrap()
}

/// Returns the keys of all objects that were asked for.
fn asked(bed: &Testbed) -> Vec<String> {
    let mut paths: Vec<String> = bed
        .requests(Service::S3)
        .into_iter()
        .map(|request| request.path)
        .collect();
    paths.sort();
    paths
}

#[tokio::test]
async fn each_header_is_asked_for_once_and_each_tile_then_costs_one_request() {
    let bed = bed();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let report = built(&bed, &path).await;
    assert_eq!(
        (report.files, report.ok, report.resumed, report.failed.len()),
        (8, 8, 0, 0)
    );
    assert_eq!((report.items, report.requests), (4, 8));
    let paths = asked(&bed);
    assert_eq!(paths.len(), 8);
    assert!(paths.windows(2).all(|pair| pair[0] != pair[1]), "{paths:?}");
    assert_eq!(report.output_bytes, path.metadata().unwrap().len());
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        1,
        "no journal is left"
    );

    bed.clear_log();
    let index = Index::open(&path).unwrap();
    let session = session(&bed);
    for scene in bed.scenes() {
        let entry = index.entry(&scene.id, "nbart_red").unwrap().unwrap();
        let raster = reader::open(&session, &entry, Backend::Cog).await.unwrap();
        let window = ReadRequest::new().with_window("512,0,512,512".parse().unwrap());
        let read = raster.read(&window).await.unwrap();
        let samples: Vec<i16> = read.pixels.view::<i16>().unwrap().iter().copied().collect();
        assert_eq!(samples, scene.window(Band::Red, 512, 0, 512, 512));
        // What the index holds is what the file says.
        let raster = reader::open(&session, &entry.location, Backend::Cog)
            .await
            .unwrap();
        assert_eq!(raster.entry().await.unwrap(), entry);
    }
    assert_eq!(bed.log().len(), 8);
}

#[tokio::test]
async fn a_build_that_was_dropped_goes_on_where_it_was() {
    let bed = bed();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let done = Arc::new(AtomicUsize::new(0));
    let (tell, waiting) = (Arc::clone(&done), Arc::clone(&done));
    let builder = builder(&bed).concurrency(1).progress(move |progress| {
        assert_eq!(progress.files_total, 8);
        tell.store(progress.files_done, Ordering::SeqCst);
    });
    // The fourth request never ends, so that nothing is on its way that the log could hold later.
    bed.fault(Rule::new(Fault::Hang).on(Service::S3).skip(3).times(1));
    let enough = async {
        while waiting.load(Ordering::SeqCst) < 3 || asked(&bed).len() < 4 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = builder.build(source(&bed), &path) => panic!("it was not to end"),
        () = enough => {}
    }
    assert!(!path.exists());
    // A request is logged before a rule takes it: one that was dropped in between leaves its rule behind.
    bed.clear_faults();
    let before = asked(&bed).len();
    bed.clear_log();

    // Another plan is not mixed with it.
    let other = Builder::new(&session(&bed))
        .assets(["nbart_red"])
        .build(source(&bed), &path)
        .await;
    let err = other.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
    assert!(err.to_string().contains("a.parquet.partial"), "{err}");

    let report = built(&bed, &path).await;
    assert!(report.resumed >= 2, "{report:?}");
    assert_eq!(report.requests as usize, 8 - report.resumed);
    // The one that was under way when the build was dropped may reach the server after the log was cleared.
    let missing = 8 - report.resumed;
    let asked = asked(&bed).len();
    assert!(
        (missing..=missing + 1).contains(&asked),
        "{asked}, {report:?}"
    );
    assert!(before <= 5);
    let other = dir.path().join("b.parquet");
    built(&bed, &other).await;
    assert_eq!(all(&path), all(&other));
}

/// Returns all entries of an index, sorted, as text.
fn all(path: &Path) -> Vec<String> {
    let index = Index::open(path).unwrap();
    let entries = index.entries(&Select::all()).unwrap();
    let mut all: Vec<String> = entries
        .map(|entry| format!("{:?}", entry.unwrap()))
        .collect();
    all.sort();
    all
}

#[tokio::test]
async fn a_torn_record_is_read_again() {
    let bed = bed();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let partial = dir.path().join("a.parquet.partial");
    // A folder in the way of the output leaves the whole journal.
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("x"), "").unwrap();
    builder(&bed)
        .concurrency(1)
        .build(source(&bed), &path)
        .await
        .unwrap_err();
    std::fs::remove_dir_all(&path).unwrap();
    let whole = std::fs::read(&partial).unwrap();
    let expected = dir.path().join("b.parquet");
    built(&bed, &expected).await;
    for cut in [0, 5, 39, 40, 43, 60, whole.len() / 2, whole.len() - 1] {
        let mut bytes = whole[..cut].to_vec();
        if cut == 60 {
            // Wrong bytes of the right length.
            bytes = whole.clone();
            let last = bytes.len() - 10;
            bytes[last] ^= 1;
        }
        std::fs::write(&partial, bytes).unwrap();
        bed.clear_log();
        let report = built(&bed, &path).await;
        assert_eq!(asked(&bed).len(), 8 - report.resumed, "cut to {cut}");
        assert!(report.resumed < 8);
        assert_eq!(all(&path), all(&expected), "cut to {cut}");
        assert!(!partial.exists());
        std::fs::remove_file(&path).unwrap();
    }
    std::fs::write(&partial, &whole).unwrap();
    bed.clear_log();
    assert_eq!(built(&bed, &path).await.resumed, 8);
    assert_eq!(asked(&bed).len(), 0);
}

#[tokio::test]
async fn a_file_that_fails_leaves_a_null_and_a_word() {
    let bed = bed();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let key = |scene: usize| bed.scenes()[scene].key(Band::Red).to_owned();
    bed.fault(Rule::new(Fault::status(404)).path(&key(0)));
    bed.fault(Rule::new(Fault::status(403)).path(&key(1)));
    bed.put(BUCKET, &key(2), "no TIFF at all");
    let report = built(&bed, &path).await;
    assert_eq!((report.files, report.ok, report.items), (8, 5, 4));
    let mut kinds: Vec<String> = report
        .failed
        .iter()
        .map(|one| format!("{:?}", one.error.kind()))
        .collect();
    kinds.sort();
    assert_eq!(kinds, ["Corrupt", "Denied", "NotFound"]);
    assert!(
        report
            .failed
            .iter()
            .all(|one| one.location.starts_with("s3://"))
    );
    let index = Index::open(&path).unwrap();
    assert_eq!(index.entry(&bed.scenes()[0].id, "nbart_red").unwrap(), None);
    assert!(
        index
            .entry(&bed.scenes()[0].id, "nbart_nir_1")
            .unwrap()
            .is_some()
    );
    assert!(
        index
            .entry(&bed.scenes()[3].id, "nbart_red")
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn files_without_a_catalogue_become_items() {
    let bed = bed();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let prefix = Location::parse(&format!("s3://{BUCKET}/")).unwrap_or_else(|_| {
        let key = bed.scenes()[0].key(Band::Red);
        let first = key.split('/').next().unwrap();
        Location::parse(&format!("s3://{BUCKET}/{first}")).unwrap()
    });
    let report = Builder::new(&session(&bed))
        .build(BuildSource::prefix(prefix), &path)
        .await
        .unwrap();
    let listings = bed.log().iter().filter(|one| one.query.is_some()).count();
    assert_eq!(listings, 1);
    assert_eq!(bed.log().len(), report.files + listings);
    assert!(report.files >= 8 && report.failed.is_empty(), "{report:?}");
    let index = Index::open(&path).unwrap();
    let scene = &bed.scenes()[0];
    let location = Location::parse(&format!("s3://{BUCKET}/{}", scene.key(Band::Red))).unwrap();
    let found = index.find(std::slice::from_ref(&location)).unwrap();
    assert_eq!(found[0].as_ref().unwrap().location, location);
    let [west, south, east, north] = match &scene.item["bbox"] {
        serde_json::Value::Array(edges) => [0, 1, 2, 3].map(|n| edges[n].as_f64().unwrap()),
        other => panic!("{other}"),
    };
    let item = Bbox::new(west, south, east, north).unwrap();
    let here = index
        .entries(&Select::all().with_bbox(item))
        .unwrap()
        .count();
    assert_eq!(here, report.files);
    let far = Bbox::new(0.0, 0.0, 1.0, 1.0).unwrap();
    assert_eq!(
        index
            .entries(&Select::all().with_bbox(far))
            .unwrap()
            .count(),
        0
    );

    let folder = Location::parse(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/data/tiff/files"
    ))
    .unwrap();
    let report = Builder::new(&session(&bed))
        .build(BuildSource::prefix(folder), &path)
        .await
        .unwrap();
    assert!(report.ok > 50);
    assert_eq!(
        Index::open(&path).unwrap().info().items,
        report.files as u64
    );

    let nothing = Builder::new(&session(&bed))
        .build(BuildSource::locations([]), &path)
        .await;
    assert_eq!(nothing.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn an_index_grows_and_asks_only_for_what_is_new() {
    let bed = bed();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let mut some = items(&bed);
    some.items.truncate(2);
    let red = Builder::new(&session(&bed)).assets(["nbart_red"]);
    red.build(BuildSource::items(some, Trust::User), &path)
        .await
        .unwrap();
    bed.clear_log();
    let both = builder(&bed).append_to(&path);
    let report = both.build(source(&bed), &path).await.unwrap();
    assert_eq!((report.files, report.requests, report.items), (6, 6, 4));
    assert_eq!(asked(&bed).len(), 6);
    let expected = dir.path().join("b.parquet");
    built(&bed, &expected).await;
    assert_eq!(all(&path), all(&expected));

    bed.clear_log();
    let report = both.build(source(&bed), &path).await.unwrap();
    assert_eq!((report.files, report.requests, report.items), (0, 0, 4));
    assert_eq!(all(&path), all(&expected));

    // The last of two indexes counts, asset by asset.
    let one = dir.path().join("red.parquet");
    let two = dir.path().join("nir.parquet");
    let only = |key| Builder::new(&session(&bed)).assets([key]);
    only("nbart_red").build(source(&bed), &one).await.unwrap();
    only("nbart_nir_1").build(source(&bed), &two).await.unwrap();
    let info = index::merge([&one, &two], dir.path().join("c.parquet"))
        .await
        .unwrap();
    assert_eq!((info.items, info.files), (4, 8));
    assert_eq!(all(&dir.path().join("c.parquet")), all(&expected));
    let none: [&Path; 0] = [];
    assert_eq!(
        index::merge(none, &one).await.unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}

#[tokio::test]
async fn a_file_of_stac_geoparquet_keeps_its_columns() {
    let bed = bed();
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("a.parquet"), dir.path().join("b.parquet"));
    built(&bed, &first).await;
    bed.clear_log();
    let report = builder(&bed)
        .build(BuildSource::parquet(&first), &second)
        .await
        .unwrap();
    assert_eq!((report.files, report.requests, report.items), (8, 8, 4));
    assert_eq!(all(&first), all(&second));

    std::fs::write(&first, "no parquet").unwrap();
    let err = builder(&bed)
        .build(BuildSource::parquet(&first), &second)
        .await
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn the_default_is_every_geotiff_and_no_thumbnail() {
    let bed = bed();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let report = Builder::new(&session(&bed))
        .build(source(&bed), &path)
        .await
        .unwrap();
    let info = Index::open(&path).unwrap().info();
    let keys: Vec<&str> = info.assets.iter().map(|asset| asset.key.as_str()).collect();
    assert!(
        keys.contains(&"nbart_red") && keys.contains(&"oa_fmask"),
        "{keys:?}"
    );
    assert!(!keys.contains(&"thumbnail"), "{keys:?}");
    assert_eq!(info.files as usize, report.ok);
}

#[test]
fn errors_can_be_sent() {
    fn is_send<T: Send + Sync>() {}
    is_send::<Error>();
    is_send::<Index>();
    is_send::<Builder>();
    is_send::<BuildReport>();
}

#[tokio::test]
async fn failures_are_listed_in_the_order_of_their_locations() {
    let bed = bed();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let mut items = items(&bed).items;
    items.reverse();
    let source = BuildSource::items(items.into(), Trust::User);
    let builder = builder(&bed).concurrency(1);
    builder.build(source.clone(), &path).await.unwrap();
    bed.fault(Rule::new(Fault::status(403)));
    let sorted = |failed: &[index::Failed]| {
        let names: Vec<_> = failed.iter().map(|one| one.location.clone()).collect();
        (names.is_sorted(), names.len())
    };
    let options = index::CheckOptions::new().with_concurrency(1);
    let report = index::check(&session(&bed), &path, &options).await.unwrap();
    assert_eq!(sorted(&report.failed), (true, 8));
    let report = builder
        .build(source, dir.path().join("b.parquet"))
        .await
        .unwrap();
    assert_eq!(sorted(&report.failed), (true, 8));
}
