//! What is refused, and what a write that ends early leaves behind: nothing.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use rss_core::{
    Crs, DataType, ErrorKind, Location, Pixels, Raster, Resampling, Session, Window,
    writer::{self, Cog, CogOptions, Compression, Overviews},
};
use rss_testbed::{Fault, Rule, Service, Testbed};

use super::{blocks, grid, local, raster, samples, session};

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

async fn begin(session: &Session, location: &Location, options: &CogOptions) -> Cog {
    let grid = grid(300, 200);
    Cog::create(session, location, grid, DataType::I16, 1, options)
        .await
        .unwrap()
}

fn options() -> CogOptions {
    CogOptions::new().with_tile(128)
}

#[tokio::test]
async fn a_block_that_does_not_fit_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tif");
    let session = session();
    let pixels = samples(1, 300, 200);
    let mut cog = begin(&session, &local(&path), &options()).await;
    let blocks = blocks(&pixels, 128, 1, 1);
    let (window, block) = blocks[0].clone();
    cog.write(window, block.clone()).await.unwrap();

    let of = |dtype, bands, width, height| super::pixels(dtype, bands, width, height);
    let at = |col, row, width, height| Window {
        col,
        row,
        width,
        height,
    };
    for (window, pixels, message) in [
        (window, block, "tile 0,0 was written before"),
        (
            at(0, 0, 256, 128),
            of(DataType::I16, 1, 256, 128),
            "tile 0,0 was written before",
        ),
        (
            at(128, 0, 100, 128),
            of(DataType::I16, 1, 100, 128),
            "window 128,0,100,128 is not aligned to tiles of 128 x 128 pixels",
        ),
        (
            at(256, 0, 128, 128),
            of(DataType::I16, 1, 128, 128),
            "window 256,0,128,128 is not inside the 300 x 200 pixels of this level",
        ),
        (
            at(128, 0, 128, 128),
            of(DataType::U16, 1, 128, 128),
            "a block of uint16 samples, expected int16",
        ),
        (
            at(128, 0, 128, 128),
            of(DataType::I16, 2, 128, 127),
            "a block of 2 bands of 128 x 127 pixels, expected 1 of 128 x 128",
        ),
    ] {
        let err = cog.write(window, pixels).await.unwrap_err();
        assert_eq!(
            (err.kind(), err.message()),
            (ErrorKind::InvalidInput, message)
        );
        assert_eq!(err.location(), path.to_str());
    }
    for (window, block) in &blocks[1..] {
        cog.write(*window, block.clone()).await.unwrap();
    }
    cog.finish().await.unwrap();
    let read = session_read(&session, &path).await;
    assert!(read == Pixels::I16(pixels));
}

async fn session_read(session: &Session, path: &Path) -> Pixels {
    use rss_core::{Backend, ReadRequest, reader};
    let file = reader::open(session, &local(path), Backend::Cog).await;
    let read = file.unwrap().read(&ReadRequest::new()).await;
    read.unwrap().pixels
}

#[tokio::test]
async fn missing_tiles_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tif");
    let mut cog = begin(&session(), &local(&path), &options()).await;
    let blocks = blocks(&samples(1, 300, 200), 128, 1, 1);
    for at in [0, 1, 3, 5] {
        let (window, block) = blocks[at].clone();
        cog.write(window, block).await.unwrap();
    }
    let err = cog.finish().await.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
    assert_eq!(
        err.message(),
        "tile 2,0 was not written; 2 of 6 are missing"
    );
    assert_eq!(files(dir.path()), [""; 0]);
}

#[tokio::test]
async fn a_file_that_was_not_finished_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tif");
    let session = session();
    std::fs::write(&path, "what was there before").unwrap();
    for ends in ["dropped", "aborted"] {
        let mut cog = begin(&session, &local(&path), &options()).await;
        for (window, block) in blocks(&samples(1, 300, 200), 128, 3, 1) {
            cog.write(window, block).await.unwrap();
        }
        assert_eq!(files(dir.path()).len(), 2);
        match ends {
            "dropped" => drop(cog),
            _ => cog.abort().await.unwrap(),
        }
        assert_eq!(files(dir.path()), ["a.tif"]);
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"what was there before");
}

#[tokio::test]
async fn what_cannot_be_written_is_refused_before_anything_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tif");
    let session = session();
    let refuse = async |location: Location, options: CogOptions, crs: Option<Crs>| {
        let mut grid = grid(300, 200);
        grid.crs = crs;
        let cog = Cog::create(&session, &location, grid, DataType::I16, 1, &options).await;
        let err = cog.unwrap_err();
        (err.kind(), err.message().to_owned())
    };
    let utm = Some(Crs::Epsg(32_756));
    let cases = [
        (
            local(&dir.path().join("none/a.tif")),
            options(),
            utm.clone(),
            (ErrorKind::InvalidInput, "the folder does not exist"),
        ),
        (
            local(dir.path()),
            options(),
            utm.clone(),
            (ErrorKind::InvalidInput, "a folder has this name"),
        ),
        (
            Location::parse("https://example.com/a.tif").unwrap(),
            options(),
            utm.clone(),
            (
                ErrorKind::InvalidInput,
                "an http(s) URL is read-only, expected a bucket or a path",
            ),
        ),
        (
            local(&path),
            options().with_tile(100),
            utm.clone(),
            (
                ErrorKind::InvalidInput,
                "tiles of 100 x 100 pixels: expected a multiple of 16, up to 4096",
            ),
        ),
        (
            local(&path),
            options().with_overviews(Overviews::Auto, Resampling::Cubic),
            utm,
            (
                ErrorKind::Unsupported,
                "overviews by cubic: expected nearest, bilinear, average, rms, mode, min or max",
            ),
        ),
        (
            local(&path),
            options(),
            Some(Crs::Wkt("LOCAL_CS[\"here\"]".to_owned())),
            (
                ErrorKind::Unsupported,
                "the CRS LOCAL_CS[\"here\"] cannot be written to a GeoTIFF, which has no keys for it: choose another",
            ),
        ),
        (
            local(&path),
            options(),
            Some(Crs::Epsg(102_033)),
            (
                ErrorKind::Unsupported,
                "EPSG:102033 cannot be written to a GeoTIFF; expected a code from 1024 to 32766",
            ),
        ),
    ];
    for (location, options, crs, (kind, message)) in cases {
        let found = refuse(location, options, crs).await;
        assert_eq!(found, (kind, message.to_owned()));
    }
    assert_eq!(files(dir.path()), [""; 0]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_folder_that_cannot_be_written_is_denied() {
    // Not even root makes files there.
    let location = local(Path::new("/sys/a.tif"));
    let raster = raster(DataType::U8, 1, 10, 10);
    let err = writer::save(&session(), &location, &raster, &CogOptions::new())
        .await
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Denied, "{err:?}");
    assert_eq!(err.location(), Some("/sys/a.tif"));
}

/// An image of which 17 MB go to the bucket before the end, as they are.
async fn begin_upload(bed: &Testbed) -> Cog {
    bed.add_bucket("maps");
    let session = Session::builder()
        .s3_endpoint(&bed.s3_endpoint())
        .retries(0)
        // Few tiles are under way, and the others on theirs to the bucket.
        .cpu_threads(1)
        .build()
        .unwrap();
    let location = Location::parse("s3://maps/a.tif").unwrap();
    let options = CogOptions::new().with_compression(Compression::None);
    let grid = grid(4096, 3072);
    Cog::create(&session, &location, grid, DataType::I16, 1, &options)
        .await
        .unwrap()
}

fn large() -> Vec<(Window, Pixels)> {
    blocks(&samples(1, 4096, 3072), 512, 8, 1)
}

#[tokio::test]
async fn an_upload_that_was_not_finished_is_aborted() {
    let bed = Testbed::builder().start().unwrap();
    for ends in ["aborted", "dropped", "finished too early"] {
        let mut cog = begin_upload(&bed).await;
        for (window, block) in large().into_iter().skip(1) {
            cog.write(window, block).await.unwrap();
        }
        assert_eq!(bed.uploads("maps").len(), 1);
        match ends {
            "aborted" => cog.abort().await.unwrap(),
            "dropped" => drop(cog),
            _ => {
                let err = cog.finish().await.unwrap_err();
                assert_eq!(
                    err.message(),
                    "tile 0,0 was not written; 8 of 48 are missing"
                );
            }
        }
        // A writer that is dropped cannot wait for the server.
        let until = Instant::now() + Duration::from_secs(20);
        while ends == "dropped" && !bed.uploads("maps").is_empty() {
            assert!(Instant::now() < until, "the upload stays");
            tokio::task::yield_now().await;
        }
        assert_eq!(bed.uploads("maps"), [], "{ends}");
        assert!(bed.keys("maps", "").is_empty());
    }
}

#[tokio::test]
async fn a_bucket_that_refuses_ends_the_write() {
    for method in ["POST", "PUT"] {
        let bed = Testbed::builder().start().unwrap();
        let mut cog = begin_upload(&bed).await;
        bed.fault(Rule::new(Fault::status(403)).on(Service::S3).method(method));
        let mut failed = None;
        for (window, block) in large() {
            if let Err(err) = cog.write(window, block).await {
                failed = Some(err);
                break;
            }
        }
        let err = match failed {
            Some(err) => {
                let again = large().pop().unwrap();
                let later = cog.write(again.0, again.1).await.unwrap_err();
                assert_eq!(
                    later.message(),
                    "an earlier write of this file failed or was interrupted"
                );
                cog.finish().await.unwrap_err();
                err
            }
            None => cog.finish().await.unwrap_err(),
        };
        assert_eq!(err.kind(), ErrorKind::Denied, "{method}: {err:?}");
        assert_eq!(err.location(), Some("s3://maps/a.tif"));
        assert_eq!(bed.uploads("maps"), []);
        assert!(bed.keys("maps", "").is_empty());
    }
}

/// Nobody is left to wait for an abort once the error is returned: it has happened.
#[tokio::test]
async fn a_raster_that_a_bucket_refuses_leaves_no_upload() {
    let bed = Testbed::builder().start().unwrap();
    bed.add_bucket("maps");
    let session = Session::builder()
        .s3_endpoint(&bed.s3_endpoint())
        .retries(0)
        .cpu_threads(1)
        .build()
        .unwrap();
    bed.fault(Rule::new(Fault::status(403)).on(Service::S3).method("PUT"));
    // 67 MB: the writer learns of the first part when it waits for the fifth.
    let geobox = grid(4096, 8192);
    let raster = Raster {
        pixels: Pixels::zeros(DataType::I16, 1, geobox.size).unwrap(),
        geobox,
        nodata: None,
        sparse: Vec::new(),
    };
    let options = CogOptions::new().with_compression(Compression::None);
    let location = Location::parse("s3://maps/a.tif").unwrap();
    let saved = writer::save(&session, &location, &raster, &options).await;
    assert_eq!(bed.uploads("maps"), []);
    let err = saved.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Denied, "{err:?}");
    assert_eq!(err.location(), Some("s3://maps/a.tif"));
    let methods: Vec<String> = bed
        .requests(Service::S3)
        .into_iter()
        .map(|request| request.method)
        .collect();
    // One was begun, and it was the server that was asked to forget it.
    assert_eq!(methods.first().map(String::as_str), Some("POST"));
    assert_eq!(methods.last().map(String::as_str), Some("DELETE"));
}

#[tokio::test]
async fn a_server_that_stumbles_is_asked_again() {
    let bed = Testbed::builder().start().unwrap();
    bed.add_bucket("maps");
    let session = Session::builder()
        .s3_endpoint(&bed.s3_endpoint())
        .retries(3);
    let session = session.build().unwrap();
    let location = Location::parse("s3://maps/a.tif").unwrap();
    bed.fault(
        Rule::new(Fault::slow_down())
            .on(Service::S3)
            .method("PUT")
            .skip(1)
            .times(2),
    );
    let raster = raster(DataType::I16, 1, 4096, 3072);
    let options = CogOptions::new().with_compression(Compression::None);
    let report = writer::save(&session, &location, &raster, &options)
        .await
        .unwrap();
    let object = bed.object("maps", "a.tif").unwrap();
    super::structure::check(&object, &report);
}
