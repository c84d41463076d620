//! The testbed speaks its protocols, and breaks them when told to.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use object_store::{
    Attribute, Attributes, ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder},
    multipart::{MultipartStore, PartId},
    path::Path,
    signer::Signer,
};
use rss_testbed::{
    ACCESS_KEY, Band, Fault, Layout, Paging, Profile, Rule, SECRET_KEY, Scenes, Service, Testbed,
    geotiff,
};
use serde_json::{Value, json};

/// Starts a client. Nothing of this workspace switches on a TLS of reqwest's own, which wants one for HTTP too.
fn client() -> reqwest::ClientBuilder {
    use_ring();
    reqwest::Client::builder()
}

/// Makes ring the process's TLS; whoever comes second finds it there.
fn use_ring() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn builder(bed: &Testbed) -> AmazonS3Builder {
    use_ring();
    AmazonS3Builder::new()
        .with_endpoint(bed.s3_endpoint())
        .with_allow_http(true)
        .with_region("ap-southeast-2")
        .with_bucket_name("bed")
        .with_retry(RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        })
}

fn anonymous(bed: &Testbed) -> AmazonS3 {
    builder(bed).with_skip_signature(true).build().unwrap()
}

fn signed(bed: &Testbed) -> AmazonS3 {
    builder(bed)
        .with_access_key_id(ACCESS_KEY)
        .with_secret_access_key(SECRET_KEY)
        .build()
        .unwrap()
}

#[tokio::test]
async fn signed_and_unsigned_requests_read_ranges() {
    let bed = Testbed::builder().start().unwrap();
    bed.put("bed", "a/x.bin", "0123456789");
    let path = Path::from("a/x.bin");
    for store in [anonymous(&bed), signed(&bed)] {
        assert_eq!(store.get_range(&path, 2..5).await.unwrap(), "234");
        assert_eq!(
            store.get(&path).await.unwrap().bytes().await.unwrap(),
            "0123456789"
        );
    }
    let log = bed.requests(Service::S3);
    let seen: Vec<_> = log.iter().map(|r| (r.status, r.bytes, r.signed)).collect();
    assert_eq!(
        seen,
        [
            (206, 3, false),
            (200, 10, false),
            (206, 3, true),
            (200, 10, true)
        ]
    );
    assert_eq!(log[0].range.as_deref(), Some("bytes=2-4"));
}

#[tokio::test]
async fn an_upload_in_parts_is_seen_when_it_is_complete() {
    const PART: usize = 5 << 20;
    let bed = Testbed::builder().start().unwrap();
    bed.add_bucket("bed");
    let (store, path) = (signed(&bed), Path::from("a/large.bin"));
    let id = store.create_multipart(&path).await.unwrap();
    // The last part first.
    let last = store.put_part(&path, &id, 1, "end".into()).await.unwrap();
    let first = vec![7; PART];
    let first = store.put_part(&path, &id, 0, first.into()).await.unwrap();
    assert_eq!(bed.uploads("bed"), [("a/large.bin".to_owned(), 2)]);
    assert!(bed.keys("bed", "").is_empty());
    store
        .complete_multipart(&path, &id, vec![first, last])
        .await
        .unwrap();
    assert!(bed.uploads("bed").is_empty());
    assert_eq!(store.get_range(&path, 0..2).await.unwrap(), [7, 7][..]);
    let end = PART as u64;
    assert_eq!(store.get_range(&path, end..end + 3).await.unwrap(), "end");
    let err = store.abort_multipart(&path, &id).await.unwrap_err();
    assert!(err.to_string().contains("NoSuchUpload"), "{err}");
}

#[tokio::test]
async fn parts_that_do_not_fit_are_refused() {
    let bed = Testbed::builder().start().unwrap();
    bed.add_bucket("bed");
    let (store, path) = (anonymous(&bed), Path::from("x"));
    let id = store.create_multipart(&path).await.unwrap();
    let small = store.put_part(&path, &id, 0, "a".into()).await.unwrap();
    let end = store.put_part(&path, &id, 1, "b".into()).await.unwrap();
    let complete = async |parts: Vec<PartId>| {
        let done = store.complete_multipart(&path, &id, parts).await;
        done.unwrap_err().to_string()
    };
    let err = complete(vec![small.clone(), end.clone()]).await;
    assert!(err.contains("EntityTooSmall"), "{err}");
    // What stands for the second part is the first one.
    let err = complete(vec![end, small]).await;
    assert!(err.contains("InvalidPart"), "{err}");
    let err = store
        .put_part(&path, &"other".to_owned(), 0, "a".into())
        .await;
    assert!(err.unwrap_err().to_string().contains("NoSuchUpload"));
    store.abort_multipart(&path, &id).await.unwrap();
    assert!(bed.uploads("bed").is_empty());
    assert!(bed.keys("bed", "").is_empty());
}

#[tokio::test]
async fn a_wrong_signature_is_refused() {
    let bed = Testbed::builder().start().unwrap();
    bed.put("bed", "x", "1");
    let store = builder(&bed)
        .with_access_key_id(ACCESS_KEY)
        .with_secret_access_key("wrong")
        .build()
        .unwrap();
    let err = store.get(&Path::from("x")).await.unwrap_err();
    assert!(
        matches!(err, object_store::Error::PermissionDenied { .. }),
        "{err}"
    );
}

#[tokio::test]
async fn a_presigned_url_reads() {
    let bed = Testbed::builder().start().unwrap();
    bed.put("bed", "x", "123");
    let life = Duration::from_secs(60);
    let url = signed(&bed)
        .signed_url(http::Method::GET, &Path::from("x"), life)
        .await
        .unwrap();
    let text = reqwest::get(url).await.unwrap().text().await.unwrap();
    assert_eq!(text, "123");
    assert!(bed.log()[0].signed);
}

#[tokio::test]
async fn what_is_not_there_is_404_and_past_the_end_416() {
    let bed = Testbed::builder().start().unwrap();
    bed.put("bed", "x", "123");
    let store = anonymous(&bed);
    let missing = store.get(&Path::from("y")).await.unwrap_err();
    assert!(matches!(missing, object_store::Error::NotFound { .. }));
    store.get_range(&Path::from("x"), 7..9).await.unwrap_err();
    let statuses: Vec<_> = bed.log().iter().map(|r| r.status).collect();
    assert_eq!(statuses, [404, 416]);
}

#[tokio::test]
async fn listings_have_prefixes() {
    let bed = Testbed::builder().start().unwrap();
    for key in ["a/1", "a/2", "a/c/3", "d"] {
        bed.put("bed", key, "x");
    }
    let store = anonymous(&bed);
    let list = store
        .list_with_delimiter(Some(&Path::from("a")))
        .await
        .unwrap();
    assert_eq!(list.objects.len(), 2);
    assert_eq!(list.common_prefixes, [Path::from("a/c")]);
}

#[tokio::test]
async fn a_changed_object_fails_its_condition() {
    let bed = Testbed::builder().start().unwrap();
    bed.put("bed", "x", "123");
    let store: Arc<dyn ObjectStore> = Arc::new(anonymous(&bed));
    let path = Path::from("x");
    let etag = store.head(&path).await.unwrap().e_tag;
    bed.fault(
        Rule::new(Fault::Replace("456".into()))
            .on(Service::S3)
            .times(1),
    );
    let options = object_store::GetOptions {
        if_match: etag,
        ..Default::default()
    };
    let err = store.get_opts(&path, options).await.unwrap_err();
    assert!(
        matches!(err, object_store::Error::Precondition { .. }),
        "{err}"
    );
}

#[tokio::test]
async fn objects_are_put_and_removed() {
    let bed = Testbed::builder().start().unwrap();
    bed.add_bucket("bed");
    for store in [anonymous(&bed), signed(&bed)] {
        bed.clear_log();
        let (one, two) = (Path::from("a/1"), Path::from("a/2"));
        let large = Bytes::from(vec![7; 3 << 20]);
        let put = store.put(&one, large.clone().into()).await.unwrap();
        assert_eq!(store.head(&one).await.unwrap().e_tag, put.e_tag);
        assert_eq!(store.get(&one).await.unwrap().bytes().await.unwrap(), large);
        store.put(&two, "2".into()).await.unwrap();
        assert_eq!(bed.keys("bed", ""), ["a/1", "a/2"]);
        store.delete(&one).await.unwrap();
        store.delete(&two).await.unwrap();
        assert_eq!(bed.keys("bed", ""), [""; 0]);
        let seen: Vec<_> = bed.log().into_iter().map(|r| (r.method, r.path)).collect();
        assert_eq!(seen[0], ("PUT".to_owned(), "/bed/a/1".to_owned()));
        assert_eq!(seen[3], ("PUT".to_owned(), "/bed/a/2".to_owned()));
    }
    let store = signed(&bed);
    let status = client()
        .build()
        .unwrap()
        .delete(format!("{}/bed/x", bed.s3_endpoint()));
    assert_eq!(status.send().await.unwrap().status(), 204);
    let elsewhere = builder(&bed).with_bucket_name("nowhere").build().unwrap();
    elsewhere
        .put(&Path::from("x"), "1".into())
        .await
        .unwrap_err();
    bed.fault(Rule::new(Fault::slow_down()).method("PUT").times(1));
    let large = Bytes::from(vec![7; 3 << 20]);
    store.put(&Path::from("x"), large.into()).await.unwrap_err();
    assert_eq!(bed.log().last().unwrap().status, 503);
    assert_eq!(bed.keys("bed", ""), [""; 0]);
}

#[tokio::test]
async fn a_put_may_ask_what_is_there() {
    let bed = Testbed::builder().start().unwrap();
    bed.add_bucket("bed");
    let (store, path) = (signed(&bed), Path::from("x"));
    let create = PutOptions::from(PutMode::Create);
    let put = |text: &'static str, options: &PutOptions| {
        let (store, path, options) = (&store, &path, options.clone());
        async move { store.put_opts(path, text.into(), options).await }
    };
    let first = put("1", &create).await.unwrap();
    let err = put("2", &create).await.unwrap_err();
    assert!(
        matches!(err, object_store::Error::AlreadyExists { .. }),
        "{err}"
    );
    assert_eq!(bed.log().last().unwrap().status, 412);
    let update = PutOptions::from(PutMode::Update(first.into()));
    put("3", &update).await.unwrap();
    let err = put("4", &update).await.unwrap_err();
    assert!(
        matches!(err, object_store::Error::Precondition { .. }),
        "{err}"
    );
    assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), "3");
}

#[tokio::test]
async fn what_a_writer_said_of_an_object_is_told() {
    let bed = Testbed::builder().start().unwrap();
    bed.add_bucket("bed");
    let (store, path) = (signed(&bed), Path::from("x"));
    let said = (Attribute::Metadata("who".into()), "me".into());
    let options = PutOptions::from(Attributes::from_iter([said.clone()]));
    store.put_opts(&path, "1".into(), options).await.unwrap();
    let found = store.get(&path).await.unwrap();
    assert_eq!(found.attributes.get(&said.0), Some(&said.1));
}

#[tokio::test]
async fn the_end_of_an_object_is_read() {
    let bed = Testbed::builder().start().unwrap();
    bed.put("bed", "x", "0123456789");
    let store = anonymous(&bed);
    for (length, expected) in [(3, "789"), (99, "0123456789")] {
        let options = object_store::GetOptions {
            range: Some(object_store::GetRange::Suffix(length)),
            ..Default::default()
        };
        let found = store.get_opts(&Path::from("x"), options).await.unwrap();
        assert_eq!(found.meta.size, 10);
        assert_eq!(found.bytes().await.unwrap(), expected);
    }
}

async fn body(bed: &Testbed, fault: Fault) -> Result<(u16, String), reqwest::Error> {
    bed.clear_faults();
    bed.fault(Rule::new(fault).on(Service::Http).times(1));
    let client = client().read_timeout(Duration::from_millis(300)).build()?;
    let request = client
        .get(bed.http_url("bed", "x"))
        .header("range", "bytes=0-9");
    let answer = request.send().await?;
    let status = answer.status().as_u16();
    Ok((status, answer.text().await?))
}

#[tokio::test]
async fn each_fault_breaks_one_answer_as_told() {
    let bed = Testbed::builder().start().unwrap();
    bed.put("bed", "x", "0123456789abcdef");
    for (fault, expected) in [
        (Fault::Short, (206, "01234")),
        (Fault::ShiftedHeader, (206, "0123456789")),
        (Fault::ShiftedBody, (206, "123456789a")),
        (Fault::Total(7), (206, "0123456789")),
        (Fault::NoContentRange, (206, "0123456789")),
        (Fault::WholeObject, (200, "0123456789abcdef")),
        (Fault::status(503), (503, "")),
    ] {
        let name = format!("{fault:?}");
        let (status, text) = body(&bed, fault).await.unwrap();
        assert_eq!((status, text.as_str()), expected, "{name}");
    }
    assert_eq!(body(&bed, Fault::Longer).await.unwrap().1.len(), 110);
    assert_ne!(body(&bed, Fault::Garbage).await.unwrap().1, "0123456789");
    assert!(
        body(&bed, Fault::ErrorInOk)
            .await
            .unwrap()
            .1
            .contains("InternalError")
    );
    for fault in [Fault::Cut, Fault::HangInBody, Fault::Hang] {
        let name = format!("{fault:?}");
        assert!(body(&bed, fault).await.is_err(), "{name}");
    }
    assert_eq!(
        body(&bed, Fault::Drip(1_000_000)).await.unwrap().1,
        "0123456789"
    );
    bed.clear_faults();
    bed.fault(Rule::new(Fault::status(500)).path("x").skip(1).times(1));
    let mut statuses = Vec::new();
    for _ in 0..3 {
        statuses.push(
            reqwest::get(bed.http_url("bed", "x"))
                .await
                .unwrap()
                .status()
                .as_u16(),
        );
    }
    assert_eq!(statuses, [200, 500, 200]);
}

async fn walk(bed: &Testbed, mut body: Value) -> (usize, usize) {
    let client = client().build().unwrap();
    let (mut items, mut pages) = (0, 0);
    loop {
        let url = format!("{}/search", bed.stac_url());
        let text = client
            .post(url)
            .json(&body)
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap();
        let page: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
        items += page["features"]
            .as_array()
            .unwrap_or_else(|| panic!("{text}"))
            .len();
        pages += 1;
        let links = page["links"].as_array().unwrap();
        let Some(next) = links.iter().find(|link| link["rel"] == "next") else {
            return (items, pages);
        };
        let more = next["body"].clone();
        if next["merge"] == true {
            body.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
        } else {
            body = more;
        }
    }
}

#[tokio::test]
async fn every_provider_pages_to_the_end() {
    for paging in [Paging::Dea, Paging::EarthSearch, Paging::PlanetaryComputer] {
        let bed = Testbed::builder()
            .scenes(Scenes::Sized(64))
            .paging(paging)
            .start()
            .unwrap();
        let all = walk(&bed, json!({"limit": 5})).await;
        assert_eq!(all, (12, 3), "{paging:?}");
    }
}

#[tokio::test]
async fn the_seeds_query_finds_four_scenes() {
    let bed = Testbed::builder()
        .scenes(Scenes::Sized(64))
        .start()
        .unwrap();
    let body = json!({
        "collections": ["ga_s2am_ard_3", "ga_s2bm_ard_3", "ga_s2cm_ard_3"],
        "bbox": [153.5, -25.9, 153.6, -25.8],
        "datetime": "2021-01-01T00:00:00Z/2021-02-01T23:59:59.999Z",
        "filter-lang": "cql2-json",
        "filter": {"op": "<", "args": [{"property": "eo:cloud_cover"}, 30]},
        "limit": 100,
    });
    assert_eq!(walk(&bed, body).await, (4, 1));
}

#[tokio::test]
async fn a_series_has_a_scene_every_five_days() {
    let series = Scenes::Series { side: 64, dates: 8 };
    let bed = Testbed::builder().scenes(series).start().unwrap();
    let days = bed.scenes().iter().map(|scene| {
        assert_eq!(scene.side, 64);
        assert_eq!(scene.files.len(), 3);
        let time = scene.item["properties"]["datetime"].as_str().unwrap();
        time[..10].to_owned()
    });
    let days: Vec<String> = days.collect();
    assert_eq!(days[0], "2021-01-03");
    assert_eq!(days[6], "2021-02-02");
    assert_eq!(days[7], "2021-02-07");
    assert_eq!(walk(&bed, json!({"limit": 20})).await, (8, 1));
    // What a day shows does not depend on how many there are.
    let four = Testbed::builder()
        .scenes(Scenes::Sized(64))
        .start()
        .unwrap();
    assert_eq!(bed.scenes()[1].id, four.scenes()[1].id);
    let shown = |bed: &Testbed| bed.scenes()[1].window(Band::Red, 0, 0, 64, 64);
    assert_eq!(shown(&bed), shown(&four));
    assert_ne!(shown(&bed), bed.scenes()[2].window(Band::Red, 0, 0, 64, 64));
}

#[tokio::test]
async fn dea_refuses_what_dea_refuses() {
    let bed = Testbed::builder().start().unwrap();
    let url = format!("{}/search", bed.stac_url());
    for body in [
        json!({"limit": 1001}),
        json!({"query": {"eo:cloud_cover": {"lt": 30}}}),
        json!({"bbox": [0, 0, 0, 1, 1, 1]}),
        json!({"ids": ["x"]}),
    ] {
        let answer = client()
            .build()
            .unwrap()
            .post(&url)
            .json(&body)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 400, "{body}");
    }
}

#[tokio::test]
async fn a_blob_wants_a_token() {
    use_ring();
    let bed = Testbed::builder()
        .paging(Paging::PlanetaryComputer)
        .start()
        .unwrap();
    bed.put("c", "x", "123");
    let url = bed.blob_url("c", "x");
    assert_eq!(reqwest::get(&url).await.unwrap().status(), 403);
    let sas = bed
        .sas_url()
        .replace("{account}", "a")
        .replace("{container}", "c");
    let token: Value = reqwest::get(sas).await.unwrap().json().await.unwrap();
    let token = token["token"].as_str().unwrap();
    assert_eq!(
        reqwest::get(format!("{url}?{token}"))
            .await
            .unwrap()
            .text()
            .await
            .unwrap(),
        "123"
    );
}

#[test]
fn a_scene_is_a_tiled_tiff_with_overviews() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let scene = &bed.scenes()[0];
    let bytes = std::fs::read(scene.file(Band::Red).unwrap()).unwrap();
    assert_eq!(&bytes[..4], b"II*\0");
    let values = scene.window(Band::Red, 0, 0, 512, 512);
    let valid = values.iter().filter(|&&value| value != -999).count();
    assert!(valid > 200_000 && valid < values.len());
    // Sizes of the first tile, from the first IFD's TileByteCounts (325).
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let entries = u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    let counts = (0..entries)
        .map(|n| 10 + 12 * n)
        .find(|&at| u16::from_le_bytes([bytes[at], bytes[at + 1]]) == 325)
        .unwrap();
    let first = word(word(counts + 8));
    assert!((250_000..470_000).contains(&first), "{first}");
}

/// Returns how long some reads of 30 kB at once take, the second time: the connections are open.
async fn warm(profile: Profile, reads: usize) -> [Duration; 2] {
    let bed = Testbed::builder().profile(profile).start().unwrap();
    bed.put("bed", "x", vec![7; 30_000]);
    let store = anonymous(&bed);
    let path = Path::from("x");
    let mut took = [Duration::ZERO; 2];
    for took in &mut took {
        let start = std::time::Instant::now();
        let all = futures::future::join_all((0..reads).map(|_| store.get_range(&path, 0..30_000)));
        for bytes in all.await {
            assert_eq!(bytes.unwrap().len(), 30_000);
        }
        *took = start.elapsed();
    }
    took
}

// Lower bounds only: a busy machine is slower, never faster.
#[tokio::test]
async fn a_profile_delays_and_paces() {
    let latency = Duration::from_millis(20);
    let slow = Profile {
        latency,
        connection: Some(300_000),
        ..Profile::default()
    };
    for took in warm(slow, 3).await {
        assert!(took >= latency + Duration::from_millis(95), "{took:?}");
    }
    let handshake = Profile {
        handshake: Duration::from_millis(30),
        ..Profile::default()
    };
    assert!(warm(handshake, 1).await[0] >= Duration::from_millis(30));
}

#[tokio::test]
async fn a_line_is_shared_by_all_connections() {
    let shared = Profile {
        line: Some(600_000),
        ..Profile::default()
    };
    // Three times 30 kB through one line.
    for took in warm(shared, 3).await {
        assert!(took >= Duration::from_millis(140), "{took:?}");
    }
}

#[test]
fn a_file_of_strips_names_each_once() {
    let file = geotiff(40, 25, Layout::Strips(10), |col, row| (col * row) as i16).unwrap();
    let tags = 8..8 + 2 + 12 * 17;
    let entries = file[tags][2..].chunks(12).map(|entry| {
        let short = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        (short(0), short(4))
    });
    let entries: Vec<_> = entries.collect();
    assert!(entries.contains(&(273, 3)), "{entries:?}");
    assert!(entries.contains(&(279, 3)), "{entries:?}");
    assert!(entries.is_sorted());
}
