//! Downloads: byte for byte, each once, whole or not at all, and never outside the folder.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use object_store::ObjectStoreExt;
use rss_core::{
    Crop, ErrorKind, Fetched, GetOptions, Location, Mode, Origin, PLANETARY_COMPUTER, Policy,
    RemoteVariant, Session, Source, Trust,
};
use rss_testbed::{ACCESS_KEY, Fault, Rule, SECRET_KEY, Service, Testbed};
use serde_json::{Value, json};
use stac::ItemCollection;

use super::store::{hasty, noise};

pub(crate) const CANARY: &str = "CANARYSECRET";

pub(crate) fn item(id: &str, assets: Value) -> Value {
    json!({
        "type": "Feature", "stac_version": "1.0.0", "id": id, "geometry": null,
        "collection": "c", "properties": {"datetime": "2021-01-01T00:00:00Z"},
        "links": [], "assets": assets,
    })
}

pub(crate) fn items(items: Vec<Value>) -> ItemCollection {
    serde_json::from_value(json!({"type": "FeatureCollection", "features": items})).unwrap()
}

/// One item with one asset per href, keys a0, a1, ..
pub(crate) fn of_hrefs(hrefs: &[&str]) -> ItemCollection {
    let assets: serde_json::Map<_, _> = hrefs
        .iter()
        .enumerate()
        .map(|(i, href)| (format!("a{i}"), json!({"href": href, "roles": ["data"]})))
        .collect();
    items(vec![item("x", Value::Object(assets))])
}

pub(crate) fn copying() -> GetOptions {
    GetOptions::default().with_mode(Mode::Copy)
}

pub(crate) async fn download(
    session: &Session,
    items: &ItemCollection,
    dir: &Path,
) -> rss_core::Result<Fetched> {
    session
        .get_async(items, &[], &Origin::default(), dir, &copying())
        .await
}

/// All files below a folder, links not followed.
pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

/// Asserts that a call left no data: no entry, no unfinished file.
fn assert_nothing_left(cache: &Path) {
    let left: Vec<_> = files(cache)
        .into_iter()
        .filter(|path| {
            let name = path.file_name().unwrap();
            name != "lock" && name != "alive"
        })
        .collect();
    assert_eq!(left, [""; 0].map(PathBuf::from), "left behind");
}

struct Stage {
    bed: Testbed,
    cache: tempfile::TempDir,
    dir: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        Self {
            bed: Testbed::builder().start().unwrap(),
            cache: tempfile::tempdir().unwrap(),
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn session(&self) -> Session {
        hasty(&self.bed)
            .cache_dir(self.cache.path())
            .build()
            .unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_byte_for_byte_and_costs_one_request() {
    let stage = Stage::new();
    let bytes = [noise(300_000), noise(10), Vec::new()];
    for (i, bytes) in bytes.iter().enumerate() {
        stage
            .bed
            .put("bucket", &format!("d/{i}.tif"), bytes.clone());
    }
    let session = stage.session();
    let http = stage.bed.http_url("bucket", "d/1.tif");
    let wanted = of_hrefs(&["s3://bucket/d/0.tif", &http, "s3://bucket/d/2.tif"]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&seen);
    let options = copying().with_progress(move |progress| tell.lock().unwrap().push(progress));
    let origin = Origin::default();
    let fetched = session
        .get_async(&wanted, &[], &origin, stage.dir.path(), &options)
        .await
        .unwrap();
    for (i, row) in fetched.assets.iter().enumerate() {
        let path = stage.dir.path().join(format!("x/{i}.tif"));
        assert_eq!(row.path.as_deref(), Some(&*path));
        assert!(fs::read(&path).unwrap() == bytes[i]);
        assert_eq!(
            fetched.items.items[0].assets[&row.asset].href,
            path.to_str().unwrap()
        );
        assert_eq!((row.bytes, row.cached), (bytes[i].len() as u64, false));
    }
    // An empty object costs one more: it has no range.
    assert_eq!(stage.bed.log().len(), 4);
    let last = *seen.lock().unwrap().last().unwrap();
    assert_eq!(
        (last.files_done, last.files_total, last.bytes_done),
        (3, 3, 300_010)
    );
    assert!((last.part_done - 1.0).abs() < 1e-9);

    let again = download(&session, &wanted, stage.dir.path()).await.unwrap();
    assert!(again.assets.iter().all(|row| row.cached));
    assert_eq!(stage.bed.log().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_that_happens_once_does_not_stop_a_copy() {
    let stage = Stage::new();
    let bytes = noise(200_000);
    let session = stage.session();
    for (i, (name, fault)) in [
        ("503", Fault::slow_down()),
        ("429", Fault::status(429)),
        ("hang", Fault::Hang),
        ("hang in body", Fault::HangInBody),
        ("cut", Fault::Cut),
        ("short", Fault::Short),
    ]
    .into_iter()
    .enumerate()
    {
        for service in [Service::S3, Service::Http] {
            let key = format!("{i}.tif");
            stage.bed.put("bucket", &key, bytes.clone());
            let href = match service {
                Service::S3 => format!("s3://bucket/{key}"),
                _ => stage.bed.http_url("bucket", &key),
            };
            stage
                .bed
                .fault(Rule::new(fault.clone()).on(service).times(1));
            let dir = tempfile::tempdir().unwrap();
            let fetched = download(&session, &of_hrefs(&[&href]), dir.path()).await;
            stage.bed.clear_faults();
            let fetched = fetched.unwrap_or_else(|err| panic!("{name} {service:?}: {err}"));
            let got = fs::read(fetched.assets[0].path.as_ref().unwrap()).unwrap();
            assert!(got == bytes, "{name} {service:?}: {} bytes", got.len());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_goes_on_where_it_broke_off() {
    let stage = Stage::new();
    let bytes = noise(1_000_000);
    stage.bed.put("bucket", "a.tif", bytes.clone());
    let session = stage.session();
    // Each answer breaks off half way: more often than one call of the store tries again.
    stage.bed.fault(Rule::new(Fault::HangInBody).times(5));
    let fetched = download(
        &session,
        &of_hrefs(&["s3://bucket/a.tif"]),
        stage.dir.path(),
    )
    .await
    .unwrap();
    assert!(fs::read(fetched.assets[0].path.as_ref().unwrap()).unwrap() == bytes);
    let log = stage.bed.log();
    let ranges: Vec<_> = log
        .iter()
        .map(|request| request.range.clone().unwrap())
        .collect();
    assert_eq!(ranges[..2], ["bytes=0-", "bytes=10-999999"]);
    assert_eq!(ranges.len(), 6);
    assert!(
        log[1..].iter().all(|request| request.if_match.is_some()),
        "{log:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_goes_on_after_its_session_ended() {
    let stage = Stage::new();
    let session = || {
        let builder = Session::builder().s3_endpoint(&stage.bed.s3_endpoint());
        builder
            .cache_dir(stage.cache.path())
            .retries(0)
            .build()
            .unwrap()
    };
    let wanted = of_hrefs(&["s3://bucket/a.tif"]);
    let old = noise(3 << 20);
    let new: Vec<u8> = old.iter().map(|byte| !byte).collect();
    for replaced in [false, true] {
        stage.bed.put("bucket", "a.tif", old.clone());
        stage.bed.fault(Rule::new(Fault::Cut).times(2));
        let broken = download(&session(), &wanted, stage.dir.path()).await;
        assert_eq!(broken.unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(
            fs::read_dir(stage.cache.path().join("partial"))
                .unwrap()
                .count(),
            2
        );
        if replaced {
            stage.bed.put("bucket", "a.tif", new.clone());
        }
        stage.bed.clear_log();
        let fetched = download(&session(), &wanted, stage.dir.path())
            .await
            .unwrap();
        let got = fs::read(fetched.assets[0].path.as_ref().unwrap()).unwrap();
        assert!(got == if replaced { &new[..] } else { &old[..] });
        let log = stage.bed.log();
        let range = log[0].range.as_deref().unwrap();
        assert!(log[0].if_match.is_some() && range != "bytes=0-", "{range}");
        assert_eq!(log.len(), 1 + usize::from(replaced));
        assert_eq!(
            fs::read_dir(stage.cache.path().join("partial"))
                .unwrap()
                .count(),
            0
        );
        session().cache().clear().unwrap();
    }
    // What nobody goes on with is removed with the rest.
    stage.bed.fault(Rule::new(Fault::Cut).times(2));
    let broken = download(&session(), &wanted, stage.dir.path()).await;
    broken.unwrap_err();
    let session = session();
    assert_eq!(session.cache().stats().unwrap().leftovers, 1);
    assert_eq!(session.cache().clear().unwrap().leftovers, 1);
    assert_eq!(
        fs::read_dir(stage.cache.path().join("partial"))
            .unwrap()
            .count(),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lasting_fault_is_one_clear_error_and_leaves_nothing() {
    let stage = Stage::new();
    let key = format!("a.tif?sig={CANARY}");
    let href = stage.bed.http_url("bucket", "").to_owned() + &key;
    stage.bed.put("bucket", "a.tif", noise(200_000));
    for (fault, kind) in [
        (Fault::status(404), ErrorKind::NotFound),
        (Fault::status(403), ErrorKind::Denied),
        (Fault::status(401), ErrorKind::Denied),
        (Fault::status(429), ErrorKind::Unavailable),
        (Fault::slow_down(), ErrorKind::Unavailable),
        (Fault::HangInBody, ErrorKind::Unavailable),
        (Fault::retry_after(503, 9999), ErrorKind::Unavailable),
    ] {
        let session = stage.session();
        stage.bed.fault(Rule::new(fault.clone()));
        let outcome = download(&session, &of_hrefs(&[&href]), stage.dir.path()).await;
        stage.bed.clear_faults();
        let err = outcome.unwrap_err();
        assert_eq!(err.kind(), kind, "{fault:?}: {err}");
        assert!(!format!("{err} {err:?}").contains(CANARY), "{err:?}");
        assert!(!err.to_string().contains('\n'), "{err}");
        assert_nothing_left(stage.cache.path());
        assert_eq!(
            fs::read_dir(stage.dir.path()).unwrap().count(),
            0,
            "{fault:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_replaced_in_mid_copy_is_fetched_anew() {
    let stage = Stage::new();
    let old = noise(300_000);
    let new: Vec<u8> = old.iter().map(|byte| !byte).collect();
    stage.bed.put("bucket", "a.tif", old);
    let session = stage.session();
    stage.bed.fault(Rule::new(Fault::HangInBody).times(1));
    stage
        .bed
        .fault(Rule::new(Fault::Replace(new.clone().into())).times(1));
    let fetched = download(
        &session,
        &of_hrefs(&["s3://bucket/a.tif"]),
        stage.dir.path(),
    )
    .await
    .unwrap();
    assert!(fs::read(fetched.assets[0].path.as_ref().unwrap()).unwrap() == new);
    let statuses: Vec<_> = stage
        .bed
        .log()
        .iter()
        .map(|request| request.status)
        .collect();
    assert_eq!(statuses, [206, 412, 206]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_not_what_its_item_states_is_refused() {
    let stage = Stage::new();
    stage.bed.put("bucket", "a.tif", noise(1000));
    let digest = {
        use std::fmt::Write as _;
        let mut text = String::from("1220");
        for byte in <sha2::Sha256 as sha2::Digest>::digest(noise(1000)) {
            write!(text, "{byte:02x}").unwrap();
        }
        text
    };
    let wrong = format!("1220{}", "ab".repeat(32));
    let session = stage.session();
    for (asset, message) in [
        (
            json!({"file:size": 1001}),
            Some("1000 bytes, its item states 1001"),
        ),
        (
            json!({"file:checksum": wrong}),
            Some("its SHA-256 is not the one its item states"),
        ),
        (json!({"file:checksum": digest, "file:size": 1000}), None),
        // Cached by now: the statement still counts.
        (
            json!({"file:checksum": wrong}),
            Some("its SHA-256 is not the one its item states"),
        ),
    ] {
        let mut asset = asset;
        asset["href"] = json!("s3://bucket/a.tif");
        asset["roles"] = json!(["data"]);
        let items = items(vec![item("x", json!({"a": asset}))]);
        let outcome = download(&session, &items, stage.dir.path()).await;
        match message {
            None => assert_eq!(outcome.unwrap().assets[0].bytes, 1000),
            Some(message) => {
                let err = outcome.unwrap_err();
                assert_eq!((err.kind(), err.message()), (ErrorKind::Corrupt, message));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn checksums_of_other_functions_are_compared_too() {
    let stage = Stage::new();
    // Digests of the standards: FIPS 180-4 and RFC 1321, of "abc".
    stage.bed.put("bucket", "a.txt", "abc");
    let session = stage.session();
    let get = async |checksum: &str| {
        let asset =
            json!({"href": "s3://bucket/a.txt", "roles": ["data"], "file:checksum": checksum});
        let items = items(vec![item("x", json!({"a": asset}))]);
        download(&session, &items, stage.dir.path()).await
    };
    for (name, fine) in [
        ("MD5", "d50110900150983cd24fb0d6963f7d28e17f72".to_owned()),
        ("SHA-1", "1114a9993e364706816aba3e25717850c26c9cd0d89d".to_owned()),
        (
            "SHA-512",
            "1340ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"
                .to_owned(),
        ),
    ] {
        let mut wrong = fine.clone();
        let last = if wrong.pop() == Some('0') { '1' } else { '0' };
        wrong.push(last);
        let message = format!("its {name} is not the one its item states");
        let err = get(&wrong).await.unwrap_err();
        assert_eq!((err.kind(), err.message()), (ErrorKind::Corrupt, &*message));
        let fetched = get(&fine).await.unwrap();
        assert_eq!(fetched.notes, [""; 0]);
        // Cached by now: the statement still counts, and costs no request where it is kept.
        stage.bed.clear_log();
        assert!(get(&fine).await.unwrap().assets[0].cached);
        assert_eq!(stage.bed.log().len(), 0);
        let err = get(&wrong).await.unwrap_err();
        assert_eq!(err.message(), message);
    }
    let fetched = get("1e20abcd").await.unwrap();
    assert!(
        fetched.notes[0].contains("are not checked: `1e20abcd`"),
        "{:?}",
        fetched.notes
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_html_is_no_image() {
    let stage = Stage::new();
    stage.bed.put("bucket", "a.tif", noise(1000));
    let session = stage.session();
    stage.bed.fault(Rule::new(Fault::Html));
    let asset = json!({"href": stage.bed.http_url("bucket", "a.tif"), "type": "image/tiff",
                       "roles": ["data"]});
    let items = items(vec![item("x", json!({"a": asset}))]);
    let err = download(&session, &items, stage.dir.path())
        .await
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Corrupt);
    assert_eq!(
        err.message(),
        "an HTML page, expected a byte range, after 4 attempts"
    );
    assert_nothing_left(stage.cache.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn going_on_lists_one_row_per_asset() {
    let stage = Stage::new();
    stage.bed.put("bucket", "a.tif", noise(1000));
    stage.bed.put("bucket", "c.tif", noise(2000));
    let session = stage.session();
    let wanted = of_hrefs(&[
        "s3://bucket/a.tif",
        "s3://bucket/b.tif",
        "s3://bucket/c.tif",
        "file:///etc/passwd",
    ]);
    let options = copying().with_policy(Policy::KeepGoing).with_concurrency(2);
    let fetched = session
        .get_async(
            &wanted,
            &["a0", "a1", "a2", "a3", "a4"].map(str::to_owned),
            &Origin::new(Trust::PrivateNetwork),
            stage.dir.path(),
            &options,
        )
        .await
        .unwrap();
    let kinds: Vec<_> = fetched
        .assets
        .iter()
        .map(|row| row.error.as_ref().map(rss_core::Error::kind))
        .collect();
    assert_eq!(
        kinds,
        [
            None,
            Some(ErrorKind::NotFound),
            None,
            Some(ErrorKind::Denied),
            Some(ErrorKind::NotFound)
        ]
    );
    let keys: Vec<_> = fetched.items.items[0].assets.keys().collect();
    assert_eq!(keys, ["a0", "a2"]);
    assert_eq!(fetched.failed().count(), 3);

    let err = download(&session, &wanted, stage.dir.path())
        .await
        .unwrap_err();
    assert!(
        matches!(err.kind(), ErrorKind::NotFound | ErrorKind::Unavailable),
        "{err}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_ids_stay_inside_the_folder() {
    let stage = Stage::new();
    stage.bed.put("bucket", "a.tif", noise(10));
    stage.bed.put("bucket", "b.tif", noise(20));
    let session = stage.session();
    let long = "x".repeat(10_000);
    let ids = [
        "..",
        "../../out",
        "/abs",
        "a/../../b",
        "",
        ".",
        "a\u{0}b",
        "CON",
        "c:\\x",
        &long,
        "a\nb",
        "same",
        "same",
        "SAME",
    ];
    let hostile = ids
        .iter()
        .enumerate()
        .map(|(i, id)| {
            let href = if i % 2 == 0 {
                "s3://bucket/a.tif"
            } else {
                "s3://bucket/b.tif"
            };
            item(id, json!({"../../k": {"href": href, "roles": ["data"]}}))
        })
        .collect();
    let inner = stage.dir.path().join("in");
    let fetched = download(&session, &items(hostile), &inner).await.unwrap();
    let mut paths = Vec::new();
    for (i, row) in fetched.assets.iter().enumerate() {
        let path = row.path.clone().unwrap();
        let parts: Vec<_> = path.strip_prefix(&inner).unwrap().components().collect();
        assert_eq!(parts.len(), 2, "{path:?}");
        assert!(
            parts
                .iter()
                .all(|part| matches!(part, std::path::Component::Normal(_))),
            "{path:?}"
        );
        assert_eq!(
            fs::read(&path).unwrap().len(),
            if i % 2 == 0 { 10 } else { 20 }
        );
        paths.push(path.to_str().unwrap().to_lowercase());
    }
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), ids.len());
    assert_eq!(fs::read_dir(stage.dir.path()).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_hrefs_are_refused_before_any_request() {
    let stage = Stage::new();
    let session = stage.session();
    for href in [
        "/etc/passwd",
        "file:///etc/passwd",
        "../../x.tif",
        "/vsizip//etc/x.zip",
        "/vsicurl/https://h/x.tif",
        "http://127.0.0.1:9/x.tif",
        "https://169.254.169.254/latest/meta-data",
        "https://localhost/x.tif",
        "ftp://h/x.tif",
        "",
    ] {
        let wanted = of_hrefs(&[href]);
        let origin = Origin::new(Trust::Network);
        let err = session
            .get_async(&wanted, &[], &origin, stage.dir.path(), &copying())
            .await
            .unwrap_err();
        assert!(
            matches!(err.kind(), ErrorKind::Denied | ErrorKind::InvalidInput),
            "{href}: {err}"
        );
        let err = session
            .get_remote_async(&wanted, &[], &origin, RemoteVariant::Vsi)
            .await
            .unwrap_err();
        assert!(
            matches!(err.kind(), ErrorKind::Denied | ErrorKind::InvalidInput),
            "{href}: {err}"
        );
    }
    assert_eq!(session.traffic().requests, 0);
    assert_eq!(files(stage.dir.path()).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_the_user_is_kept() {
    let stage = Stage::new();
    stage.bed.put("bucket", "a.tif", noise(10));
    let session = stage.session();
    fs::create_dir(stage.dir.path().join("x")).unwrap();
    let mine = stage.dir.path().join("x/a.tif");
    fs::write(&mine, "mine").unwrap();
    let err = download(
        &session,
        &of_hrefs(&["s3://bucket/a.tif"]),
        stage.dir.path(),
    )
    .await
    .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
    assert_eq!(fs::read(&mine).unwrap(), b"mine");
    assert_eq!(stage.bed.log().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_cannot_be_written_says_so() {
    let stage = Stage::new();
    stage.bed.put("bucket", "a.tif", noise(10));
    let wanted = of_hrefs(&["s3://bucket/a.tif"]);
    let file = stage.dir.path().join("file");
    fs::write(&file, "mine").unwrap();

    let session = stage.session();
    let err = download(&session, &wanted, &file).await.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
    assert!(err.message().contains("expected a directory"), "{err}");

    let session = hasty(&stage.bed).cache_dir(&file).build().unwrap();
    let dir = stage.dir.path().join("d");
    let err = download(&session, &wanted, &dir).await.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
    assert!(
        err.to_string().contains("the cache folder is a file"),
        "{err}"
    );

    // Root may write anywhere but here.
    if Path::new("/proc/self").is_dir() {
        let err = download(&stage.session(), &wanted, Path::new("/proc/self/x"))
            .await
            .unwrap_err();
        assert!(!err.to_string().contains('\n'), "{err}");
        let session = hasty(&stage.bed).cache_dir("/proc/self/x").build().unwrap();
        assert!(download(&session, &wanted, &dir).await.is_err());
    }
    let session = hasty(&stage.bed).build().unwrap();
    let err = download(&session, &wanted, &dir).await.unwrap_err();
    assert!(err.message().contains("RSS_CACHE_DIR"), "{err}");
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    assert_eq!(stage.bed.log().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_call_leaves_nothing() {
    let stage = Stage::new();
    let bed = Testbed::builder().bandwidth(200_000).start().unwrap();
    bed.put("bucket", "a.tif", noise(2_000_000));
    let session = hasty(&bed).cache_dir(stage.cache.path()).build().unwrap();
    let (send, mut receive) = tokio::sync::mpsc::unbounded_channel();
    let options = copying().with_progress(move |progress| {
        let _ = send.send(progress.bytes_done);
    });
    let wanted = of_hrefs(&["s3://bucket/a.tif"]);
    let origin = Origin::default();
    {
        let call = session.get_async(&wanted, &[], &origin, stage.dir.path(), &options);
        tokio::pin!(call);
        tokio::select! {
            outcome = &mut call => panic!("done before it was dropped: {outcome:?}"),
            bytes = receive.recv() => assert!(bytes.unwrap() > 0),
        }
    }
    assert_nothing_left(stage.cache.path());
    assert_eq!(files(stage.dir.path()).len(), 0);
    assert_eq!(session.cache().stats().unwrap().entries, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_cannot_be_cropped() {
    let stage = Stage::new();
    let session = stage.session();
    let options = copying().with_crop(Crop::new([0.0, 0.0, 1.0, 1.0], None).unwrap());
    let wanted = of_hrefs(&["s3://bucket/a.tif"]);
    let err = session
        .get_async(&wanted, &[], &Origin::default(), stage.dir.path(), &options)
        .await
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
}

#[tokio::test(flavor = "multi_thread")]
async fn local_items_are_copied_too() {
    let stage = Stage::new();
    let session = stage.session();
    let source = stage.dir.path().join("source.tif");
    for bytes in [noise(1000), noise(2000)] {
        fs::write(&source, &bytes).unwrap();
        let wanted = of_hrefs(&[source.to_str().unwrap()]);
        let fetched = download(&session, &wanted, stage.dir.path()).await.unwrap();
        assert!(fs::read(fetched.assets[0].path.as_ref().unwrap()).unwrap() == bytes);
    }
}

fn href_of(items: &ItemCollection, key: &str) -> String {
    items.items[0].assets[key].href.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_hrefs_follow_from_what_the_href_says() {
    let session = Session::builder()
        .store_option("azure_storage_account_name", "acc")
        .build()
        .unwrap();
    let hrefs = [
        (
            "s3://b/k.tif",
            "/vsis3/b/k.tif",
            "https://b.s3.us-east-1.amazonaws.com/k.tif",
        ),
        (
            "https://own.s3.eu-west-1.amazonaws.com/k%20l.tif",
            "/vsis3/own/k l.tif",
            "https://own.s3.eu-west-1.amazonaws.com/k%20l.tif",
        ),
        (
            "gs://b/k.tif",
            "/vsigs/b/k.tif",
            "https://storage.googleapis.com/b/k.tif",
        ),
        (
            "az://c/k.tif",
            "/vsiaz/c/k.tif",
            "https://acc.blob.core.windows.net/c/k.tif",
        ),
        (
            "https://h.org/k.tif",
            "/vsicurl/https://h.org/k.tif",
            "https://h.org/k.tif",
        ),
    ];
    let wanted = of_hrefs(&hrefs.map(|(href, ..)| href));
    let remote = async |variant| {
        session
            .get_remote_async(&wanted, &[], &Origin::new(Trust::Network), variant)
            .await
            .unwrap()
    };
    let vsi = remote(RemoteVariant::Vsi).await;
    let https = remote(RemoteVariant::Https).await;
    for (i, (href, as_vsi, as_https)) in hrefs.into_iter().enumerate() {
        let key = format!("a{i}");
        assert_eq!(href_of(&vsi, &key), as_vsi, "{href}");
        assert_eq!(href_of(&https, &key), as_https, "{href}");
    }
    let own = Location::parse("s3://own/k").unwrap();
    assert_eq!(
        session.stores().access(&own).region.as_deref(),
        Some("eu-west-1")
    );
    assert_eq!(session.traffic().requests, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_pays_is_read_from_the_item() {
    let session = Session::builder().build().unwrap();
    let wanted = items(vec![item(
        "x",
        json!({"a": {"href": "s3://usgs/k.tif", "roles": ["data"],
                     "storage:requester_pays": true, "storage:region": "us-west-2"}}),
    )]);
    session
        .get_remote_async(
            &wanted,
            &[],
            &Origin::new(Trust::Network),
            RemoteVariant::Vsi,
        )
        .await
        .unwrap();
    let access = session
        .stores()
        .access(&Location::parse("s3://usgs/k").unwrap());
    assert!(access.requester_pays);
    assert_eq!(access.region.as_deref(), Some("us-west-2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_presigned_url_reads_without_credentials() {
    let stage = Stage::new();
    stage.bed.put("bucket", "a b.tif", noise(1000));
    let session = hasty(&stage.bed)
        .store_option("aws_access_key_id", ACCESS_KEY)
        .store_option("aws_secret_access_key", SECRET_KEY)
        .build()
        .unwrap();
    let variant = RemoteVariant::Presigned {
        expires: Duration::from_secs(600),
    };
    let remote = session
        .get_remote_async(
            &of_hrefs(&["s3://bucket/a b.tif"]),
            &[],
            &Origin::default(),
            variant,
        )
        .await
        .unwrap();
    assert_eq!(stage.bed.log().len(), 0);
    let href = href_of(&remote, "a0");
    assert!(
        href.contains("X-Amz-Signature=") && !href.contains(SECRET_KEY),
        "{href}"
    );

    let bare = Session::builder().build().unwrap();
    let location = Location::parse(&href).unwrap();
    let (store, path) = bare.stores().store(&location).unwrap();
    assert!(store.get_range(&path, 10..100).await.unwrap() == noise(1000)[10..100]);
    assert!(stage.bed.log()[0].signed);
}

/// A mirror of the Planetary Computer: its own tokens.
fn lender(bed: &Testbed) -> Origin {
    Origin::of(
        &Source::api(&bed.stac_url())
            .unwrap()
            .like(&PLANETARY_COMPUTER),
    )
}

fn tokens(bed: &Testbed) -> usize {
    bed.log()
        .iter()
        .filter(|request| request.path.contains("/sas/v1/token"))
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_costs_one_token_and_its_token_is_nowhere_on_disk() {
    let stage = Stage::new();
    let session = stage.session();
    let mut hrefs = Vec::new();
    for i in 0..6 {
        stage.bed.put("box", &format!("{i}.tif"), noise(1000 + i));
        hrefs.push(stage.bed.blob_url("box", &format!("{i}.tif")));
    }
    let hrefs: Vec<_> = hrefs.iter().map(String::as_str).collect();
    let wanted = of_hrefs(&hrefs);
    let origin = lender(&stage.bed);
    let fetched = session
        .get_async(&wanted, &[], &origin, stage.dir.path(), &copying())
        .await
        .unwrap();
    assert_eq!(tokens(&stage.bed), 1, "{:?}", stage.bed.log());

    let remote = session
        .get_remote_async(&wanted, &[], &origin, RemoteVariant::Vsi)
        .await
        .unwrap();
    assert_eq!(tokens(&stage.bed), 1);
    let href = href_of(&remote, "a0");
    assert!(
        href.starts_with("/vsicurl/http") && href.contains("sig="),
        "{href}"
    );
    let (_, token) = href.split_once("sig=").unwrap();

    // A signed href is one that we know: it is renewed, not signed twice.
    let location = Location::parse(&href).unwrap();
    let (store, path) = session.stores().store(&location).unwrap();
    store.get_range(&path, 0..10).await.unwrap();
    let query = stage.bed.log().pop().unwrap().query.unwrap();
    assert_eq!(query.matches("sig=").count(), 1, "{query}");

    assert!(!format!("{session:?} {fetched:?}").contains(token));
    for path in files(stage.cache.path()) {
        let bytes = fs::read(&path).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains(token), "{path:?}");
        assert!(!path.to_str().unwrap().contains(token));
    }
    assert_eq!(
        fs::read(fetched.assets[5].path.as_ref().unwrap()).unwrap(),
        noise(1005)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_refused_or_expired_is_asked_for_again() {
    let stage = Stage::new();
    stage.bed.put("box", "a.tif", noise(1000));
    let wanted = of_hrefs(&[&stage.bed.blob_url("box", "a.tif")]);
    let origin = lender(&stage.bed);
    let answers = |body: &str| Fault::Status {
        code: 200,
        retry_after: None,
        body: body.to_owned(),
    };
    let old =
        r#"{"token": "st=2020-01-01T00%3A00%3A00Z&se=2020-01-02T00%3A00%3A00Z&sig=CANARYSECRET"}"#;
    for (name, service, fault) in [
        ("the token is refused", Service::Http, Fault::status(403)),
        ("the token is expired", Service::Stac, answers(old)),
        ("the service is busy", Service::Stac, Fault::status(429)),
        ("the service fails", Service::Stac, Fault::status(503)),
        ("the service talks HTML", Service::Stac, Fault::Html),
    ] {
        let session = Session::builder()
            .retries(3)
            .read_timeout(Duration::from_millis(400))
            .cache_dir(stage.cache.path())
            .build()
            .unwrap();
        session.cache().clear().unwrap();
        stage.bed.clear_log();
        stage.bed.fault(Rule::new(fault).on(service).times(1));
        let fetched = session
            .get_async(&wanted, &[], &origin, stage.dir.path(), &copying())
            .await;
        stage.bed.clear_faults();
        fetched.unwrap_or_else(|err| panic!("{name}: {err}"));
        assert_eq!(tokens(&stage.bed), 2, "{name}");
    }

    let session = Session::builder()
        .retries(1)
        .cache_dir(stage.cache.path())
        .build()
        .unwrap();
    session.cache().clear().unwrap();
    stage.bed.fault(Rule::new(answers(old)).on(Service::Stac));
    let err = session
        .get_async(&wanted, &[], &origin, stage.dir.path(), &copying())
        .await
        .unwrap_err();
    assert!(err.to_string().contains("expired token"), "{err}");
    assert!(!format!("{err} {err:?}").contains(CANARY));
}

#[test]
fn the_blocking_form_gives_the_same() {
    let stage = Stage::new();
    stage.bed.put("bucket", "a.tif", noise(10));
    let session = stage.session();
    let wanted = of_hrefs(&["s3://bucket/a.tif"]);
    let fetched = session
        .get(
            &wanted,
            &[],
            &Origin::default(),
            stage.dir.path(),
            &copying(),
        )
        .unwrap();
    assert_eq!(fetched.assets[0].bytes, 10);
    let remote = session
        .get_remote(&wanted, &[], &Origin::default(), RemoteVariant::Vsi)
        .unwrap();
    assert_eq!(href_of(&remote, "a0"), "/vsis3/bucket/a.tif");
}

#[test]
fn the_futures_may_move_between_threads() {
    fn is_send<T: Send>(_: &T) {}

    let session = Session::builder().build().unwrap();
    let (items, origin, options) = (of_hrefs(&[]), Origin::default(), GetOptions::default());
    is_send(&session.get_async(&items, &[], &origin, Path::new("x"), &options));
    is_send(&session.get_remote_async(&items, &[], &origin, RemoteVariant::Vsi));
}
