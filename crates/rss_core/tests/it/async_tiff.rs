//! The crate async-tiff as a backend: what it costs, and that nothing in a file reaches its panics, aborts and loops.

use std::path::{Path, PathBuf};

use rss_core::{Backend, ErrorKind, Location, ReadRequest, Session, reader};
use rss_testbed::{BUCKET, Band, Scenes, Testbed};

#[tokio::test]
async fn a_cold_block_costs_the_header_and_the_tile_and_is_the_truth() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let session = Session::builder()
        .s3_endpoint(&bed.s3_endpoint())
        .build()
        .unwrap();
    let scene = &bed.scenes()[0];
    let location = Location::parse(&format!("s3://{BUCKET}/{}", scene.key(Band::Red))).unwrap();
    let raster = reader::open(&session, &location, Backend::AsyncTiff).await;
    let raster = raster.unwrap();
    assert_eq!(raster.backend(), Backend::AsyncTiff);
    // Inside one tile.
    let block = ReadRequest::new().with_window("100,200,300,250".parse().unwrap());
    let read = raster.read(&block).await.unwrap();
    assert_eq!(
        Vec::from_iter(read.pixels.view::<i16>().unwrap().iter().copied()),
        scene.window(Band::Red, 100, 200, 300, 250)
    );
    assert_eq!(bed.log().len(), 2);
    let cog = reader::open(&session, &location, Backend::Cog)
        .await
        .unwrap();
    let (ours, theirs) = (cog.profile(), raster.profile());
    assert_eq!(theirs.size, ours.size);
    assert_eq!(theirs.nodata, ours.nodata);
    assert_eq!(theirs.crs, ours.crs);
    assert_eq!(theirs.transform, ours.transform);
    assert_eq!(theirs.overviews, ours.overviews);
    let coarse = ReadRequest::new().with_level(1);
    assert_eq!(
        raster.read(&coarse).await.unwrap(),
        cog.read(&coarse).await.unwrap()
    );
    let outside = ReadRequest::new().with_window("0,0,100000,1".parse().unwrap());
    let err = raster.read(&outside).await.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
}

#[test]
fn what_broke_other_readers_is_an_error() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let session = Session::builder().read_bytes(64 << 20).build().unwrap();
    let mut looked_at = 0;
    for path in files(&data.join("fuzz"))
        .into_iter()
        .chain(files(&data.join("tiff/files")))
    {
        looked_at += 1;
        let Ok(raster) = session.open(&Location::Local(path), Backend::AsyncTiff) else {
            continue;
        };
        let corner = ReadRequest::new().with_window("0,0,1,1".parse().unwrap());
        let _ = raster.read(&corner);
    }
    assert!(looked_at > 50, "{looked_at}");
    // Directories in a circle, and a tag of more values than there are bytes.
    let folder = tempfile::tempdir().unwrap();
    let circle = b"II*\0\x08\0\0\0\0\0\x08\0\0\0";
    let huge = b"II*\0\x08\0\0\0\x01\0\0\x01\x04\0\xff\xff\xff\xff\x08\0\0\0\0\0\0\0";
    for (name, bytes) in [("circle.tif", &circle[..]), ("huge.tif", &huge[..])] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let err = session
            .open(&Location::Local(path), Backend::AsyncTiff)
            .unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Corrupt, "{name}: {err}");
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found
}
