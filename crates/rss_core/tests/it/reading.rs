//! How files are read: what is asked for, what is held, and what a result says of itself.

pub(crate) mod tiff;
mod windows;

use std::path::Path;

use rss_core::{
    Backend, ErrorKind, Location, Masking, OpenOptions, ReadRequest, Session, Size, Sparse, Window,
    reader,
};
use rss_testbed::{BUCKET, Band, Scenes, Testbed};

use self::tiff::Tiff;

fn window(text: &str) -> Window {
    text.parse().unwrap()
}

fn session(bed: &Testbed) -> Session {
    Session::builder()
        .s3_endpoint(&bed.s3_endpoint())
        .build()
        .unwrap()
}

fn at(key: &str) -> Location {
    Location::parse(&format!("s3://{BUCKET}/{key}")).unwrap()
}

fn fixture(name: &str) -> Location {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiff/files");
    Location::Local(files.join(name))
}

/// The backends of this build.
fn backends() -> Vec<Backend> {
    let mut backends = vec![Backend::Cog];
    if cfg!(feature = "gdal") {
        backends.push(Backend::Gdal);
    }
    backends
}

#[tokio::test]
async fn the_size_of_headers_is_learnt_by_folder() {
    let bed = Testbed::builder().start().unwrap();
    // 128 x 128 tiles of 16 x 16: tables of 128 KiB.
    let large = Tiff::new(2048, 16).build();
    for key in ["p/q/a/1.tif", "p/q/b/2.tif", "p/other/3.tif"] {
        bed.put(BUCKET, key, large.clone());
    }
    let session = session(&bed);
    let corner = ReadRequest::new().with_window(window("2047,2047,1,1"));
    let requests = async |key: &str| {
        bed.clear_log();
        let raster = reader::open(&session, &at(key), Backend::Cog)
            .await
            .unwrap();
        let read = raster.read(&corner).await.unwrap();
        assert_eq!(read.pixels.to_le_bytes(), [Tiff::value(127, 127)]);
        bed.log().len()
    };
    // Unknown: the directory, both tables at once, the tile.
    assert_eq!(requests("p/q/a/1.tif").await, 4);
    // Learnt: the whole header, the tile.
    assert_eq!(requests("p/q/b/2.tif").await, 2);
    assert_eq!(requests("p/other/3.tif").await, 4);

    // What the catalogue says comes before what was learnt.
    bed.clear_log();
    let options = OpenOptions::new()
        .with_backend(Backend::Cog)
        .with_header_bytes(200_000);
    reader::open(&session, &at("p/other/3.tif"), options)
        .await
        .unwrap();
    let log = bed.log();
    assert_eq!(log.len(), 1);
    assert_eq!(log[0].range.as_deref(), Some("bytes=0-199999"));
}

#[tokio::test]
async fn a_tile_of_a_huge_file_costs_no_whole_table() {
    let bed = Testbed::builder().start().unwrap();
    // 384,000 x 416,000 pixels: tables of 7 MB, and only one tile that is stored.
    let huge = Tiff::new(384_000, 512)
        .with_height(416_000)
        .with_only(749 + 750 * 812);
    bed.put(BUCKET, "huge.tif", huge.build());
    let session = session(&bed);
    let raster = reader::open(&session, &at("huge.tif"), Backend::Cog)
        .await
        .unwrap();
    assert_eq!(
        raster.profile().size,
        Size {
            width: 384_000,
            height: 416_000
        }
    );
    let request = ReadRequest::new().with_window(window("383999,415750,1,2"));
    let read = raster.read(&request).await.unwrap();
    assert_eq!(read.pixels.to_le_bytes(), [Tiff::value(749, 812); 2]);
    // Header, a part of each table side by side, the tile.
    assert_eq!(bed.log().len(), 4);
    assert!(
        session.traffic().bytes < 400 << 10,
        "{:?}",
        session.traffic()
    );
    // A column of the whole height: the parts of the tables are asked for together.
    bed.clear_log();
    let column = ReadRequest::new().with_window(window("0,0,1,416000"));
    let read = raster.read(&column).await.unwrap();
    assert_eq!(read.sparse.len(), 813);
    assert!(bed.log().len() <= 16, "{}", bed.log().len());
}

#[tokio::test]
async fn tiles_back_to_back_need_no_table_of_their_sizes() {
    let bed = Testbed::builder().start().unwrap();
    // 300 x 300 tiles: tables too large for the header.
    let plain = Tiff::new(4800, 16);
    bed.put(BUCKET, "plain/a/1.tif", plain.clone().build());
    bed.put(BUCKET, "ghost/a/1.tif", plain.with_ghost().build());
    let session = session(&bed);
    let read = async |key: &str, text: &str| {
        bed.clear_log();
        let raster = reader::open(&session, &at(key), Backend::Cog)
            .await
            .unwrap();
        let request = ReadRequest::new().with_window(window(text));
        let read = raster.read(&request).await.unwrap();
        (read.pixels.to_le_bytes(), bed.log().len())
    };
    let middle = vec![Tiff::value(150, 150)];
    assert_eq!(
        read("plain/a/1.tif", "2400,2400,1,1").await,
        (middle.clone(), 4)
    );
    assert_eq!(read("ghost/a/1.tif", "2400,2400,1,1").await, (middle, 3));
    // Behind the last tile is nothing that says where it ends.
    let last = vec![Tiff::value(299, 299)];
    assert_eq!(read("ghost/a/1.tif", "4799,4799,1,1").await, (last, 4));
    let (whole, _) = read("ghost/a/1.tif", "0,0,4800,4800").await;
    assert_eq!(whole, read("plain/a/1.tif", "0,0,4800,4800").await.0);
}

#[test]
fn what_is_not_stored_is_told_from_what_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse.tif");
    std::fs::write(&path, Tiff::new(48, 16).with_only(4).build()).unwrap();
    let session = Session::builder().build().unwrap();
    for backend in backends() {
        let raster = session
            .open(&Location::Local(path.clone()), backend)
            .unwrap();
        let read = raster
            .read(&ReadRequest::new().with_window(window("8,16,32,32")))
            .unwrap();
        let mut sparse = read.sparse.clone();
        sparse.sort_by_key(|sparse| (sparse.window.row, sparse.window.col));
        let lost = |text: &str| Sparse {
            band: 0,
            window: window(text),
        };
        // The tile in the middle is stored.
        let around = [
            "0,0,8,16",
            "24,0,8,16",
            "0,16,8,16",
            "8,16,16,16",
            "24,16,8,16",
        ];
        assert_eq!(sparse, around.map(lost), "{backend}");
        let bytes = read.pixels.to_le_bytes();
        assert_eq!((bytes[0], bytes[8]), (0, Tiff::value(1, 1)), "{backend}");
        // Bands of their own tiles are sparse by themselves.
        let planar = session
            .open(
                &fixture("gdal--sparse_tiled_separate-45acefa4.tif"),
                backend,
            )
            .unwrap();
        let read = planar.read(&ReadRequest::new()).unwrap();
        let mut bands: Vec<_> = read.sparse.iter().map(|sparse| sparse.band).collect();
        bands.dedup();
        assert!(!bands.is_empty(), "{backend}");
    }
}

#[test]
fn masks_are_read_of_each_kind() {
    let session = Session::builder().build().unwrap();
    for backend in backends() {
        let open = |name: &str| session.open(&fixture(name), backend).unwrap();
        let stored = open("gdal--test_with_mask_1bit-cf593ef0.tif");
        assert_eq!(stored.profile().masking, Masking::Internal, "{backend}");
        let mask = stored
            .read_mask(&ReadRequest::new())
            .unwrap()
            .pixels
            .to_le_bytes();
        let (hidden, shown) = (
            mask.iter().filter(|&&m| m == 0),
            mask.iter().filter(|&&m| m == 255),
        );
        assert_eq!(
            hidden.count() + shown.clone().count(),
            mask.len(),
            "{backend}"
        );
        assert!(shown.count() > 0, "{backend}");
        let nodata = open("gdal--stats_nodata_neginf_msvc-504d1111.tif");
        assert_eq!(nodata.profile().masking, Masking::Nodata, "{backend}");
        let samples = nodata.read(&ReadRequest::new()).unwrap().pixels.to_f64();
        let mask = nodata
            .read_mask(&ReadRequest::new())
            .unwrap()
            .pixels
            .to_le_bytes();
        for (sample, mask) in samples.iter().zip(mask) {
            assert_eq!(*sample == f64::NEG_INFINITY, mask == 0, "{backend}");
        }
    }
}

#[cfg(feature = "gdal")]
#[test]
fn a_fallback_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::builder().build().unwrap();
    let open = |path: &Path| session.open(&Location::Local(path.to_owned()), Backend::Auto);
    // Another format: known when it is opened.
    let tiff = session
        .open(&fixture("gdal--byte_LZMA-edd011ed.tif"), Backend::Auto)
        .unwrap();
    assert_eq!(
        (tiff.backend(), tiff.fallback().is_none()),
        (Backend::Cog, true)
    );
    let picture = dir.path().join("a.png");
    tiff.read(&ReadRequest::new())
        .unwrap()
        .save(&picture)
        .unwrap();
    let png = open(&picture).unwrap();
    assert_eq!(png.backend(), Backend::Gdal);
    let why = png.fallback().unwrap();
    assert_eq!(
        why.message(),
        "not a TIFF: it starts with neither II nor MM"
    );
    assert_eq!(
        png.read(&ReadRequest::new()).unwrap().pixels.shape()[1..],
        [20, 20]
    );
}

#[test]
fn what_no_reader_knows_is_told_by_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::builder().build().unwrap();
    let unknown = dir.path().join("b.tif");
    std::fs::write(&unknown, Tiff::new(16, 16).with_compression(44_510).build()).unwrap();
    let err = session
        .open(&Location::Local(unknown), Backend::Auto)
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Unsupported);
    assert!(err.message().contains("compression 44510"), "{err}");
}

#[tokio::test]
async fn bytes_on_their_way_stay_in_the_budget() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let location = at(bed.scenes()[0].key(Band::Red));
    let expected = bed.scenes()[0].window(Band::Red, 0, 0, 1200, 1200);
    // Less than one tile: they come one by one.
    let session = Session::builder()
        .s3_endpoint(&bed.s3_endpoint())
        .budget_bytes(1)
        .fetch_bytes(1)
        .build()
        .unwrap();
    let raster = reader::open(&session, &location, Backend::Cog)
        .await
        .unwrap();
    bed.clear_log();
    let read = raster.read(&ReadRequest::new()).await.unwrap();
    assert!(read.pixels.view::<i16>().unwrap().iter().eq(&expected));
    assert_eq!((bed.log().len(), bed.peak()), (9, 1));
}

#[tokio::test]
async fn many_files_are_read_at_once_and_opened_once() {
    let bed = Testbed::builder()
        .scenes(Scenes::small())
        .latency(std::time::Duration::from_millis(10))
        .start()
        .unwrap();
    let session = session(&bed);
    let windows = [
        "0,0,512,512",
        "600,600,100,100",
        "0,0,512,512",
        "512,0,512,512",
    ];
    let mut reads = Vec::new();
    for scene in bed.scenes() {
        for text in windows {
            let request = ReadRequest::new().with_window(window(text));
            reads.push((at(scene.key(Band::Red)), request));
        }
    }
    let rasters = reader::read_many(&session, &reads, Backend::Cog)
        .await
        .unwrap();
    for (raster, (n, (_, request))) in rasters.iter().zip(reads.iter().enumerate()) {
        let w = request.window.unwrap();
        let scene = &bed.scenes()[n / windows.len()];
        let expected = scene.window(Band::Red, w.col, w.row, w.width, w.height);
        assert!(raster.pixels.view::<i16>().unwrap().iter().eq(&expected));
    }
    // One header a file, one tile a window.
    let files = bed.scenes().len();
    assert_eq!(bed.log().len(), files * (1 + windows.len()));
    assert!(bed.peak() >= files, "{}", bed.peak());

    let missing = (at("none.tif"), ReadRequest::new());
    let err = reader::read_many(&session, &[missing], Backend::Cog)
        .await
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn requests_to_one_host_are_bounded() {
    let bed = Testbed::builder()
        .scenes(Scenes::small())
        .latency(std::time::Duration::from_millis(10))
        .start()
        .unwrap();
    let location = at(bed.scenes()[0].key(Band::Red));
    for (most, peak) in [(1, 1..=1), (3, 1..=3), (256, 4..=9)] {
        let session = Session::builder()
            .s3_endpoint(&bed.s3_endpoint())
            .requests_per_host(most)
            .fetch_bytes(1)
            .build()
            .unwrap();
        let raster = reader::open(&session, &location, Backend::Cog)
            .await
            .unwrap();
        bed.clear_log();
        raster.read(&ReadRequest::new()).await.unwrap();
        assert_eq!(bed.log().len(), 9);
        assert!(peak.contains(&bed.peak()), "{most}: {}", bed.peak());
    }
}
