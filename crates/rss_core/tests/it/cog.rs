//! The COG backend against pixels that others know.

use std::time::Duration;

use rss_core::{
    Backend, DataType, ErrorKind, Location, ReadRequest, Session, Size, Window, reader,
};
use rss_testbed::{BUCKET, Band, Fault, Rule, Scenes, Service, Testbed};

fn session(bed: &Testbed) -> Session {
    Session::builder()
        .s3_endpoint(&bed.s3_endpoint())
        .retry_for(Duration::from_secs(1))
        .backoff(Duration::from_millis(5))
        .build()
        .unwrap()
}

fn scene(bed: &Testbed, band: Band) -> Location {
    let key = bed.scenes()[0].key(band).to_owned();
    Location::parse(&format!("s3://{BUCKET}/{key}")).unwrap()
}

#[tokio::test]
async fn a_cold_tile_costs_two_requests() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let location = scene(&bed, Band::Red);
    let session = session(&bed);
    let cog = reader::open(&session, &location, Backend::Cog)
        .await
        .unwrap();
    let window: Window = "512,0,512,512".parse().unwrap();
    let raster = cog
        .read(&ReadRequest::new().with_window(window))
        .await
        .unwrap();
    let expected = bed.scenes()[0].window(Band::Red, 512, 0, 512, 512);
    assert_eq!(
        raster
            .pixels
            .view::<i16>()
            .unwrap()
            .iter()
            .copied()
            .collect::<Vec<_>>(),
        expected
    );
    assert_eq!(raster.nodata, Some((-999.0).into()));
    assert_eq!(
        raster.geobox.transform.unwrap().0,
        [505_100.0, 10.0, 0.0, 7_200_040.0, 0.0, -10.0]
    );

    let log = bed.log();
    let methods: Vec<_> = log.iter().map(|r| (r.method.as_str(), r.status)).collect();
    assert_eq!(methods, [("GET", 206), ("GET", 206)]);
    assert!(log[0].if_match.is_none() && log[1].if_match.is_some());
    assert_eq!(session.traffic().requests, 2);
    assert_eq!(
        session.traffic().bytes,
        log.iter().map(|r| r.bytes).sum::<u64>()
    );
}

#[tokio::test]
async fn any_window_has_the_right_pixels() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let location = scene(&bed, Band::Nir);
    let cog = reader::open(&session(&bed), &location, Backend::Cog)
        .await
        .unwrap();
    let windows = [
        "0,0,1200,1200",
        "1199,1199,1,1",
        "500,1000,100,200",
        "511,511,2,2",
        "1024,0,176,600",
    ];
    let requests: Vec<_> = windows
        .iter()
        .map(|text| ReadRequest::new().with_window(text.parse().unwrap()))
        .collect();
    let rasters = cog.read_many(&requests).await.unwrap();
    for (text, raster) in windows.iter().zip(rasters) {
        let w: Window = text.parse().unwrap();
        let expected = bed.scenes()[0].window(Band::Nir, w.col, w.row, w.width, w.height);
        let pixels = raster.pixels.view::<i16>().unwrap();
        assert!(pixels.iter().eq(&expected), "{text}");
    }
}

#[tokio::test]
async fn profile_and_levels_are_those_of_the_file() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let location = scene(&bed, Band::Fmask);
    let cog = reader::open(&session(&bed), &location, Backend::Cog)
        .await
        .unwrap();
    let profile = cog.profile();
    let side = |width| Size {
        width,
        height: width,
    };
    assert_eq!(
        (profile.size, profile.count, profile.dtype),
        (side(600), 1, DataType::U8)
    );
    assert_eq!(profile.overviews, [side(300)]);
    assert_eq!(
        (profile.compression.as_deref(), profile.predictor),
        (Some("DEFLATE"), Some(2))
    );
    assert_eq!(profile.crs.as_ref().unwrap().epsg(), Some(32756));
    let half = cog.read(&ReadRequest::new().with_level(1)).await.unwrap();
    assert_eq!(half.pixels.shape(), [1, 300, 300]);
    assert_eq!(half.geobox.transform.unwrap().0[1], 40.0);
}

#[tokio::test]
async fn what_does_not_exist_is_refused_before_any_request() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let location = scene(&bed, Band::Red);
    let cog = reader::open(&session(&bed), &location, Backend::Cog)
        .await
        .unwrap();
    bed.clear_log();
    for request in [
        ReadRequest::new().with_window("1000,0,201,1".parse().unwrap()),
        ReadRequest::new().with_level(9),
        ReadRequest::new().with_bands([2]),
        ReadRequest::new().with_bands([0]),
    ] {
        let err = cog.read(&request).await.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput, "{err}");
    }
    assert_eq!(bed.log().len(), 0);
}

#[tokio::test]
async fn an_object_that_changes_is_never_mixed() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let location = scene(&bed, Band::Red);
    let cog = reader::open(&session(&bed), &location, Backend::Cog)
        .await
        .unwrap();
    let other = std::fs::read(bed.scenes()[1].file(Band::Red).unwrap()).unwrap();
    bed.fault(
        Rule::new(Fault::Replace(other.into()))
            .on(Service::S3)
            .times(1),
    );
    let err = cog.read(&ReadRequest::new()).await.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Changed);
    assert!(
        err.to_string()
            .ends_with("it is not the version whose header was read"),
        "{err}"
    );
}

#[tokio::test]
async fn what_is_missing_denied_or_no_tiff_is_named() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    bed.put("pages", "login.tif", "<html>Please log in</html>");
    bed.put("pages", "empty.tif", "");
    let session = session(&bed);
    let open = async |href: &str| {
        let location = Location::parse(href).unwrap();
        reader::open(&session, &location, Backend::Cog)
            .await
            .unwrap_err()
    };
    let err = open("s3://pages/none.tif").await;
    assert_eq!(
        (err.kind(), err.to_string().as_str()),
        (
            ErrorKind::NotFound,
            "s3://pages/none.tif: no such file (HTTP 404, NoSuchKey)"
        )
    );
    assert_eq!(
        open("s3://pages/login.tif").await.kind(),
        ErrorKind::Corrupt
    );
    assert_eq!(
        open("s3://pages/empty.tif").await.kind(),
        ErrorKind::Corrupt
    );
    bed.fault(Rule::new(Fault::status(403)).on(Service::S3));
    assert_eq!(open("s3://pages/login.tif").await.kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn a_fault_that_happens_once_is_recovered() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let location = scene(&bed, Band::Red);
    let window: Window = "0,0,512,512".parse().unwrap();
    let expected = bed.scenes()[0].window(Band::Red, 0, 0, 512, 512);
    for fault in [
        Fault::status(503),
        Fault::slow_down(),
        Fault::status(500),
        Fault::retry_after(429, 0),
        Fault::Cut,
        Fault::Short,
    ] {
        for skip in [0, 1] {
            bed.clear_faults();
            let name = format!("{fault:?} after {skip}");
            bed.fault(Rule::new(fault.clone()).on(Service::S3).skip(skip).times(1));
            let request = ReadRequest::new().with_window(window);
            let session = session(&bed);
            let cog = reader::open(&session, &location, Backend::Cog).await;
            let raster = cog
                .unwrap_or_else(|err| panic!("{name}: {err:?}"))
                .read(&request)
                .await;
            let raster = raster.unwrap_or_else(|err| panic!("{name}: {err:?}"));
            assert!(
                raster.pixels.view::<i16>().unwrap().iter().eq(&expected),
                "{name}"
            );
        }
    }
}

#[tokio::test]
async fn a_tile_whose_bytes_are_wrong_is_asked_for_once_more() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let location = scene(&bed, Band::Red);
    let request = ReadRequest::new().with_window("0,0,512,512".parse().unwrap());
    let expected = bed.scenes()[0].window(Band::Red, 0, 0, 512, 512);
    let read = async |times: Option<u64>| {
        bed.clear_faults();
        let rule = Rule::new(Fault::Garbage).on(Service::S3).skip(1);
        bed.fault(match times {
            Some(times) => rule.times(times),
            None => rule,
        });
        let session = session(&bed);
        let cog = reader::open(&session, &location, Backend::Cog)
            .await
            .unwrap();
        let read = cog.read(&request).await;
        // Without the header.
        (read, session.traffic().requests - 1)
    };
    let (once, requests) = read(Some(1)).await;
    let once = once.unwrap();
    assert!(once.pixels.view::<i16>().unwrap().iter().eq(&expected));
    assert_eq!(requests, 2);
    let (always, requests) = read(None).await;
    assert_eq!(
        (always.unwrap_err().kind(), requests),
        (ErrorKind::Corrupt, 2)
    );
}

#[tokio::test]
async fn a_header_whose_bytes_are_wrong_is_asked_for_once_more() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let location = scene(&bed, Band::Red);
    let open = async |location: &Location, times: u64| {
        bed.clear_faults();
        bed.fault(Rule::new(Fault::Garbage).times(times));
        let session = session(&bed);
        let opened = reader::open(&session, location, Backend::Cog).await;
        (opened.map_err(|err| err.kind()), session.traffic().requests)
    };
    let (once, requests) = open(&location, 1).await;
    assert_eq!(requests, 2);
    assert_eq!(once.unwrap().profile().overviews.len(), 2);
    let (always, requests) = open(&location, u64::MAX).await;
    assert_eq!((always.unwrap_err(), requests), (ErrorKind::Corrupt, 2));
    // What says that it is something else is taken at its word.
    bed.put(BUCKET, "a.png", &b"\x89PNG\r\n\x1a\n0123456789"[..]);
    let png = Location::parse(&format!("s3://{BUCKET}/a.png")).unwrap();
    let (other, requests) = open(&png, 0).await;
    assert_eq!((other.unwrap_err(), requests), (ErrorKind::Corrupt, 1));
}

#[tokio::test]
async fn a_wrong_length_of_the_object_is_no_other_version() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let location = scene(&bed, Band::Red);
    let request = ReadRequest::new().with_window("0,0,512,512".parse().unwrap());
    let expected = bed.scenes()[0].window(Band::Red, 0, 0, 512, 512);
    let size = bed
        .object(BUCKET, bed.scenes()[0].key(Band::Red))
        .unwrap()
        .len();
    let size = i64::try_from(size).unwrap();
    for (skip, times) in [(0, 1), (1, 1), (1, 2)] {
        // The last leaves nothing behind the header.
        for by in [1000, -1, 40_000 - size] {
            bed.clear_faults();
            let session = session(&bed);
            let rule = Rule::new(Fault::Total(by)).on(Service::S3);
            bed.fault(rule.skip(skip).times(times));
            let read = async {
                let cog = reader::open(&session, &location, Backend::Cog).await?;
                cog.read(&request).await
            };
            let what = format!("{by} after {skip}, {times} times");
            let read = read.await.unwrap_or_else(|err| panic!("{what}: {err}"));
            let pixels = read.pixels.view::<i16>().unwrap();
            assert!(pixels.iter().eq(&expected), "{what}");
            assert!(session.traffic().requests <= 5, "{what}");
        }
    }
}

#[tokio::test]
async fn a_lying_server_gives_no_wrong_pixel() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let location = scene(&bed, Band::Red);
    let request = ReadRequest::new().with_window("0,0,512,512".parse().unwrap());
    let expected = bed.scenes()[0].window(Band::Red, 0, 0, 512, 512);
    for fault in [
        Fault::ShiftedHeader,
        Fault::ShiftedBody,
        Fault::NoContentRange,
        Fault::WholeObject,
        Fault::ErrorInOk,
        Fault::Longer,
        Fault::Garbage,
    ] {
        let name = format!("{fault:?}");
        bed.clear_faults();
        bed.fault(Rule::new(fault).on(Service::S3).skip(1));
        let cog = reader::open(&session(&bed), &location, Backend::Cog)
            .await
            .unwrap();
        match cog.read(&request).await {
            Ok(raster) => {
                assert!(
                    raster.pixels.view::<i16>().unwrap().iter().eq(&expected),
                    "{name}"
                );
            }
            Err(err) => assert_ne!(err.kind(), ErrorKind::InvalidInput, "{name}: {err}"),
        }
    }
}

#[tokio::test]
async fn a_jpeg_of_bands_that_are_no_colours_keeps_them_apart() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let location = Location::Local(here.join("tests/data/jpeg/three_bands.tif"));
    let session = Session::builder().build().unwrap();
    let cog = reader::open(&session, &location, Backend::Cog)
        .await
        .unwrap();
    let raster = cog.read(&ReadRequest::new()).await.unwrap();
    for ((band, row, col), &value) in raster.pixels.view::<u8>().unwrap().indexed_iter() {
        let slope = [40 + col * 4, 200 - row * 6, 60 + (col + row) * 3][band];
        let off = usize::from(value).abs_diff(slope);
        assert!(
            off <= 6,
            "band {band} at {col},{row}: {value}, expected {slope}"
        );
    }
}
