//! Bytes through the stores of a session: every fault of a server is recovered, or is an error.

use std::time::{Duration, Instant};

use object_store::{GetOptions, ObjectStore, ObjectStoreExt, path::Path};
use rss_core::{Access, ErrorKind, Location, Session, SessionBuilder};
use rss_testbed::{ACCESS_KEY, Fault, Rule, SECRET_KEY, Service, Testbed};

const CANARY: &str = "CANARYSECRET";

/// Bytes that repeat nowhere near: a shifted or swapped range is seen.
pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            u8::try_from(state >> 56).unwrap()
        })
        .collect()
}

/// A session that gives up soon, on a testbed.
pub(crate) fn hasty(bed: &Testbed) -> SessionBuilder {
    Session::builder()
        .s3_endpoint(&bed.s3_endpoint())
        .read_timeout(Duration::from_millis(400))
        .retries(3)
}

/// Both ways to one object.
fn addresses(bed: &Testbed) -> [Location; 2] {
    [
        Location::parse("s3://bucket/dir/a.tif").unwrap(),
        Location::parse(&bed.http_url("bucket", "dir/a.tif")).unwrap(),
    ]
}

fn faults() -> Vec<(&'static str, Fault)> {
    vec![
        ("500", Fault::status(500)),
        ("429", Fault::status(429)),
        ("slow down", Fault::slow_down()),
        ("hang", Fault::Hang),
        ("hang in body", Fault::HangInBody),
        ("cut", Fault::Cut),
        ("short", Fault::Short),
        ("shifted header", Fault::ShiftedHeader),
        ("shifted body", Fault::ShiftedBody),
        ("no content range", Fault::NoContentRange),
        ("whole object", Fault::WholeObject),
        ("error in ok", Fault::ErrorInOk),
        ("longer", Fault::Longer),
        ("html", Fault::Html),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_that_happens_once_is_recovered() {
    let bed = Testbed::builder().start().unwrap();
    let bytes = noise(100_000);
    bed.put("bucket", "dir/a.tif", bytes.clone());
    let session = hasty(&bed).build().unwrap();
    for location in addresses(&bed) {
        let (store, path) = session.stores().store(&location).unwrap();
        for (name, fault) in faults() {
            bed.fault(Rule::new(fault).times(1));
            let got = store.get_range(&path, 1000..70_000).await;
            bed.clear_faults();
            let got = got.unwrap_or_else(|err| panic!("{name} at {location}: {err}"));
            assert!(got == bytes[1000..70_000], "{name} at {location}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lasting_fault_is_an_error_and_never_wrong_bytes() {
    let bed = Testbed::builder().start().unwrap();
    let bytes = noise(100_000);
    bed.put("bucket", "dir/a.tif", bytes.clone());
    let session = hasty(&bed).retries(1).build().unwrap();
    let href = format!("{}?sig={CANARY}", bed.http_url("bucket", "dir/a.tif"));
    let signed = Location::parse(&href).unwrap();
    for location in addresses(&bed).into_iter().chain([signed]) {
        let (store, path) = session.stores().store(&location).unwrap();
        for (name, fault) in faults() {
            bed.fault(Rule::new(fault));
            let got = store.get_range(&path, 1000..70_000).await;
            bed.clear_faults();
            match got {
                // A small object may be cut to the range asked for.
                Ok(got) => assert!(
                    name == "whole object" && got == bytes[1000..70_000],
                    "{name}"
                ),
                Err(err) => assert!(
                    !format!("{err} {err:?}").contains(CANARY),
                    "{name}: {err:?}"
                ),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_range_costs_one_request() {
    let bed = Testbed::builder().start().unwrap();
    let bytes = noise(100_000);
    bed.put("bucket", "dir/a.tif", bytes.clone());
    let session = hasty(&bed).build().unwrap();
    for location in addresses(&bed) {
        bed.clear_log();
        let before = session.traffic();
        let (store, path) = session.stores().store(&location).unwrap();
        let got = store.get_range(&path, 10..20_010).await.unwrap();
        assert!(got == bytes[10..20_010]);
        let log = bed.log();
        assert_eq!(log.len(), 1, "{log:?}");
        assert_eq!(log[0].range.as_deref(), Some("bytes=10-20009"));
        assert!(!log[0].signed);
        let traffic = session.traffic() - before;
        assert_eq!((traffic.requests, traffic.bytes), (1, 20_000));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_attempt_is_counted() {
    let bed = Testbed::builder().start().unwrap();
    bed.put("bucket", "dir/a.tif", noise(1000));
    let session = hasty(&bed).build().unwrap();
    let location = Location::parse("s3://bucket/dir/a.tif").unwrap();
    let (store, path) = session.stores().store(&location).unwrap();
    bed.fault(Rule::new(Fault::status(503)).times(2));
    store.get_range(&path, 0..10).await.unwrap();
    assert_eq!(bed.log().len(), 3);
    assert_eq!(session.traffic().requests, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_the_server_asks_for_is_kept() {
    let bed = Testbed::builder().start().unwrap();
    bed.put("bucket", "dir/a.tif", noise(1000));
    let session = hasty(&bed).build().unwrap();
    let location = Location::parse("s3://bucket/dir/a.tif").unwrap();
    let (store, path) = session.stores().store(&location).unwrap();
    bed.fault(Rule::new(Fault::retry_after(503, 1)).times(1));
    let start = Instant::now();
    store.get_range(&path, 0..10).await.unwrap();
    assert!(start.elapsed() >= Duration::from_secs(1));

    // Longer than the deadline: no use to wait.
    bed.fault(Rule::new(Fault::retry_after(429, 3600)));
    let start = Instant::now();
    let err = store.get_range(&path, 0..10).await.unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(1));
    assert!(err.to_string().contains("3600 s"), "{err}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_replaced_in_mid_read_is_never_mixed() {
    let old = noise(400_000);
    let new: Vec<u8> = old.iter().map(|byte| !byte).collect();
    let bed = Testbed::builder().start().unwrap();
    for location in addresses(&bed) {
        bed.put("bucket", "dir/a.tif", old.clone());
        let session = hasty(&bed).build().unwrap();
        let (store, path) = session.stores().store(&location).unwrap();
        bed.clear_log();
        bed.fault(Rule::new(Fault::HangInBody).times(1));
        bed.fault(
            Rule::new(Fault::Replace(new.clone().into()))
                .skip(1)
                .times(1),
        );
        let got = match store.get_opts(&path, GetOptions::default()).await {
            Ok(answer) => answer.bytes().await,
            Err(err) => Err(err),
        };
        bed.clear_faults();
        match got {
            Ok(got) => assert!(got == old || got == new),
            Err(err) => assert!(err.to_string().contains("replaced"), "{err}"),
        }
        let log = bed.log();
        assert!(log[1].if_match.is_some(), "{log:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_string_reaches_the_server_and_no_message() {
    let bed = Testbed::builder().start().unwrap();
    bed.put("bucket", "a b/c+d.tif", noise(1000));
    let session = hasty(&bed).build().unwrap();
    let url = format!(
        "{}/bucket/a%20b/c+d.tif?x=1&sig={CANARY}#part",
        bed.http_url("", "").trim_end_matches('/')
    );
    let location = Location::parse(&url).unwrap();
    let (store, path) = session.stores().store(&location).unwrap();
    store.get_range(&path, 0..10).await.unwrap();
    store.head(&path).await.unwrap();
    for request in bed.log() {
        assert_eq!(
            request.query.as_deref(),
            Some(&*format!("x=1&sig={CANARY}"))
        );
        assert_eq!(request.path, "/bucket/a%20b/c+d.tif");
    }
    for status in [403, 404, 500] {
        bed.fault(Rule::new(Fault::status(status)));
        let err = store.get_range(&path, 0..10).await.unwrap_err();
        bed.clear_faults();
        assert!(!format!("{err} {err:?} {store:?} {store} {session:?}").contains(CANARY));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_signed_and_paid_for_where_that_is_said() {
    let bed = Testbed::builder().start().unwrap();
    bed.put("bucket", "dir/a.tif", noise(1000));
    let session = hasty(&bed)
        .store_option("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .store_option("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        .build()
        .unwrap();
    let location = Location::parse("s3://bucket/dir/a.tif").unwrap();
    let read = async || {
        let (store, path) = session.stores().store(&location).unwrap();
        store.get_range(&path, 0..10).await.unwrap();
        bed.log().pop().unwrap()
    };
    let request = read().await;
    assert!(request.signed && !request.requester_pays);

    let mut access = Access::default();
    access.requester_pays = true;
    session.stores().set_access(&location, access);
    assert!(read().await.requester_pays);

    let mut access = Access::default();
    access.anonymous = Some(true);
    session.stores().set_access(&location, access);
    assert!(!read().await.signed);
    assert!(!format!("{session:?}").contains(SECRET_KEY));
}

#[tokio::test(flavor = "multi_thread")]
async fn gdals_names_reach_the_same_server() {
    let bed = Testbed::builder().start().unwrap();
    bed.put("bucket", "dir/a.tif", noise(1000));
    let session = Session::builder()
        .store_option(
            "AWS_S3_ENDPOINT",
            bed.s3_endpoint().trim_start_matches("http://"),
        )
        .store_option("AWS_HTTPS", "NO")
        .store_option("AWS_VIRTUAL_HOSTING", "FALSE")
        .store_option("AWS_NO_SIGN_REQUEST", "YES")
        .store_option("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .store_option("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        .build()
        .unwrap();
    let location = Location::parse("/vsis3/bucket/dir/a.tif").unwrap();
    let (store, path) = session.stores().store(&location).unwrap();
    store.get_range(&path, 0..10).await.unwrap();
    assert!(!bed.requests(Service::S3)[0].signed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_file_is_a_store_too() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a b#c.tif");
    std::fs::write(&file, b"0123456789").unwrap();
    let session = Session::builder().build().unwrap();
    let location = Location::parse(file.to_str().unwrap()).unwrap();
    let (store, path) = session.stores().store(&location).unwrap();
    assert_eq!(&store.get_range(&path, 2..5).await.unwrap()[..], b"234");
}

#[test]
fn one_bucket_is_one_store() {
    let session = Session::builder().build().unwrap();
    let store = |href: &str| {
        let location = Location::parse(href).unwrap();
        session.stores().store(&location).unwrap().0
    };
    let (a, b) = (store("s3://bucket/1"), store("s3://bucket/2"));
    assert!(std::sync::Arc::ptr_eq(&a, &b));
    assert!(!std::sync::Arc::ptr_eq(&a, &store("s3://other/1")));
}

#[test]
fn a_key_or_option_that_cannot_be_named_is_an_error() {
    let session = Session::builder().build().unwrap();
    let location = Location::parse("s3://bucket/a//b").unwrap();
    let err = session.stores().store(&location).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
    assert!(err.to_string().starts_with("s3://bucket/a//b: "), "{err}");

    let session = Session::builder()
        .store_option("aws_endpoint", format!("ftp://{CANARY}"))
        .build()
        .unwrap();
    let location = Location::parse("s3://bucket/a").unwrap();
    let err = session.stores().store(&location).unwrap_err();
    assert!(!format!("{err} {err:?}").contains(CANARY));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_may_not_lead_in_circles() {
    let bed = Testbed::builder().start().unwrap();
    let target = bed.http_url("bucket", "b.tif");
    bed.put("bucket", "b.tif", noise(1000));
    let session = hasty(&bed).build().unwrap();
    let location = Location::parse(&bed.http_url("bucket", "a.tif")).unwrap();
    let (store, path) = session.stores().store(&location).unwrap();
    let redirect = |location: Option<String>| Fault::Redirect {
        code: 302,
        location,
        region: None,
    };
    bed.fault(Rule::new(redirect(Some(target))).path("a.tif"));
    assert!(store.get_range(&path, 0..10).await.unwrap() == noise(1000)[..10]);
    bed.clear_faults();

    bed.clear_log();
    bed.fault(Rule::new(redirect(Some(location.to_href()))));
    let err = store.get_range(&path, 0..10).await.unwrap_err();
    assert!(err.to_string().contains("redirects"), "{err}");
    assert!(bed.log().len() <= 8, "{}", bed.log().len());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_server_is_an_error_in_time() {
    let session = Session::builder().retries(1).build().unwrap();
    let location = Location::parse("http://127.0.0.1:9/a.tif").unwrap();
    let (store, _) = session.stores().store(&location).unwrap();
    let err = store
        .get_range(&Path::from("a.tif"), 0..10)
        .await
        .unwrap_err();
    assert!(err.to_string().contains("no connection"), "{err}");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_named_pipe_is_refused_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tif");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let session = Session::builder().build().unwrap();
    let location = Location::parse(path.to_str().unwrap()).unwrap();
    for backend in [rss_core::Backend::Auto, rss_core::Backend::Cog] {
        let opened = rss_core::reader::open(&session, &location, backend).await;
        let err = opened.map(|_| ()).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
        assert_eq!(err.message(), "a named pipe, expected a file");
    }
}

#[cfg(feature = "zarr")]
#[tokio::test(flavor = "multi_thread")]
async fn metadata_past_a_limit_is_refused_before_it_is_read() {
    use rss_core::zarr;

    let bed = Testbed::builder().start().unwrap();
    bed.put("bucket", "a.zarr/zarr.json", vec![b' '; 17 << 20]);
    let session = hasty(&bed).build().unwrap();
    for href in ["s3://bucket/a.zarr", &bed.http_url("bucket", "a.zarr")] {
        let location = Location::parse(href).unwrap();
        let before = session.traffic();
        let err = zarr::Array::open(&session, location)
            .await
            .map(|_| ())
            .unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Corrupt, "{err}");
        assert_eq!(err.message(), "larger than the limit of 16 MiB");
        let traffic = session.traffic() - before;
        assert!(
            traffic.requests == 1 && traffic.bytes < 17 << 20,
            "{traffic:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_is_not_told_to_another_server() {
    let (bed, other) = (
        Testbed::builder().start().unwrap(),
        Testbed::builder().start().unwrap(),
    );
    other.put("bucket", "b.tif", noise(1000));
    bed.fault(Rule::new(Fault::Redirect {
        code: 302,
        location: Some(other.http_url("bucket", "b.tif")),
        region: None,
    }));
    let session = hasty(&bed)
        .store_option("aws_access_key_id", ACCESS_KEY)
        .store_option("aws_secret_access_key", SECRET_KEY)
        .store_option("aws_session_token", CANARY)
        .build()
        .unwrap();
    let signed = format!(
        "{}?X-Amz-Signature={CANARY}",
        bed.http_url("bucket", "a.tif")
    );
    for href in ["s3://bucket/a.tif", &signed] {
        let (store, path) = session
            .stores()
            .store(&Location::parse(href).unwrap())
            .unwrap();
        assert!(store.get_range(&path, 0..10).await.unwrap() == noise(1000)[..10]);
    }
    let log = other.log();
    assert_eq!(log.len(), 2);
    for request in log {
        let names: Vec<&str> = request.headers.keys().map(|name| name.as_str()).collect();
        assert!(
            !format!("{:?}", request.headers).contains(CANARY),
            "{names:?}"
        );
        assert!(
            !names
                .iter()
                .any(|name| name.starts_with("x-amz") || *name == "authorization")
        );
        assert!(!names.contains(&"referer"), "{names:?}");
        assert_eq!(request.range.as_deref(), Some("bytes=0-9"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_attempt_of_a_signed_request_is_signed_anew() {
    let bed = Testbed::builder().start().unwrap();
    // At least half of it is waited.
    let session = hasty(&bed)
        .backoff(Duration::from_secs(2))
        .store_option("aws_access_key_id", ACCESS_KEY)
        .store_option("aws_secret_access_key", SECRET_KEY)
        .build()
        .unwrap();
    bed.put("bucket", "here", "a bucket");
    let location = Location::parse("s3://bucket/dir/a.tif").unwrap();
    let (store, path) = session.stores().store(&location).unwrap();
    // The server checks signatures, of reads and of writes; they say the second in which they were made.
    let wait = || bed.fault(Rule::new(Fault::status(503)).times(1));
    wait();
    store.put(&path, noise(1000).into()).await.unwrap();
    wait();
    let got = store.get_range(&path, 0..10).await.unwrap();
    assert!(got == noise(1000)[..10]);
    let log = bed.log();
    assert_eq!(log.len(), 4);
    for attempts in log.chunks(2) {
        for name in ["x-amz-date", "authorization"] {
            let [first, second] = [0, 1].map(|n: usize| attempts[n].headers[name].clone());
            assert_ne!(first, second, "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_overloaded_is_asked_for_a_time_and_not_so_many_times() {
    let bed = Testbed::builder().start().unwrap();
    bed.put("bucket", "dir/a.tif", noise(1000));
    let builder = || {
        Session::builder()
            .s3_endpoint(&bed.s3_endpoint())
            .backoff(Duration::from_millis(1))
    };
    for location in addresses(&bed) {
        let session = builder().build().unwrap();
        let (store, path) = session.stores().store(&location).unwrap();
        // More often than a wrong answer is asked for again.
        bed.clear_log();
        bed.fault(Rule::new(Fault::status(503)).times(9));
        assert!(store.get_range(&path, 0..10).await.unwrap() == noise(1000)[..10]);
        assert_eq!(bed.log().len(), 10);

        bed.clear_log();
        bed.fault(Rule::new(Fault::Html));
        store.get_range(&path, 0..10).await.unwrap_err();
        bed.clear_faults();
        assert_eq!(bed.log().len(), 7);

        let session = builder().retry_for(Duration::ZERO).build().unwrap();
        let (store, path) = session.stores().store(&location).unwrap();
        bed.clear_log();
        bed.fault(Rule::new(Fault::status(503)).times(1));
        store.get_range(&path, 0..10).await.unwrap_err();
        assert_eq!(bed.log().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_away_is_asked_by_one_for_all() {
    let gone = std::net::TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap();
    let session = Session::builder()
        .retry_for(Duration::from_millis(700))
        .backoff(Duration::from_millis(50))
        .build()
        .unwrap();
    let location = Location::parse(&format!("http://{gone}/a.tif")).unwrap();
    let read = || async {
        let (store, path) = session.stores().store(&location).unwrap();
        store.get_range(&path, 0..10).await.unwrap_err().to_string()
    };
    let errors = futures::future::join_all((0..200).map(|_| read())).await;
    assert!(
        errors.iter().all(|err| err.contains("no connection")),
        "{}",
        errors[0]
    );
    // Each of them once, before it was known, and a few times one for all: not 200 times 4.
    let requests = session.traffic().requests;
    assert!((4..220).contains(&requests), "{requests}");
    // What comes after the wait is over asks once.
    for more in 1..=3 {
        read().await;
        assert_eq!(session.traffic().requests, requests + more);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_drips_is_given_up_where_ranges_are_ignored() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .unwrap();
    let place = listener.local_addr().unwrap();
    let served = async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let _ = socket.read(&mut [0; 4096]).await;
                let head = "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n";
                let mut sent = socket.write_all(head.as_bytes()).await;
                let mut tick = tokio::time::interval(Duration::from_millis(10));
                while sent.is_ok() {
                    tick.tick().await;
                    sent = socket.write_all(b" ").await;
                }
            });
        }
    };
    tokio::spawn(served);
    let session = Session::builder()
        .read_timeout(Duration::from_millis(200))
        .backoff(Duration::from_millis(1))
        .build()
        .unwrap();
    let location = Location::parse(&format!("http://{place}/a.tif")).unwrap();
    let (store, path) = session.stores().store(&location).unwrap();
    let err = store.get_range(&path, 0..50_000).await.unwrap_err();
    assert!(
        err.to_string()
            .contains("less than 1 KiB a second, after 3 attempts"),
        "{err}"
    );
    assert_eq!(session.traffic().requests, 3);
}
