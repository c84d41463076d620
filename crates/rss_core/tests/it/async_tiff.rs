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
}

/// A tiled file of 64 x 64 pixels: little-endian, classic, one directory.
fn tiled() -> Vec<u8> {
    let file = rss_testbed::geotiff(64, 64, rss_testbed::Layout::Tiles, |col, _| {
        i16::try_from(col).unwrap()
    });
    file.unwrap().to_vec()
}

fn number(bytes: &[u8], at: usize, length: usize) -> usize {
    let bytes = bytes[at..at + length].iter().rev();
    bytes.fold(0, |number, &byte| number << 8 | usize::from(byte))
}

/// Where the first directory is, and how many entries it has.
fn directory(file: &[u8]) -> (usize, usize) {
    let at = number(file, 4, 4);
    (at, number(file, at, 2))
}

#[test]
fn directories_that_loop_or_lie_are_refused_before_they_are_parsed() {
    let folder = tempfile::tempdir().unwrap();
    let session = Session::builder().build().unwrap();
    let open = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        session.open(&Location::Local(path), Backend::AsyncTiff)
    };
    let whole = tiled();
    let (at, entries) = directory(&whole);
    let raster = open("whole.tif", &whole).unwrap();
    assert_eq!(
        raster.read(&ReadRequest::new()).unwrap().pixels.len(),
        64 * 64
    );

    let mut loops = whole.clone();
    let next = at + 2 + 12 * entries;
    loops[next..next + 4].copy_from_slice(&u32::try_from(at).unwrap().to_le_bytes());
    let err = open("loops.tif", &loops).unwrap_err();
    assert_eq!(err.message(), "directory 1 loops");

    let mut lies = whole.clone();
    lies[at + 2 + 4..at + 2 + 8].fill(0xff);
    let err = open("lies.tif", &lies).unwrap_err();
    assert_eq!(err.message(), "a tag of 4294967295 values");

    let mut unknown = whole;
    unknown[at + 2 + 2] = 99;
    let err = open("unknown.tif", &unknown).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Unsupported);
    assert!(err.message().ends_with("tags of type 99"), "{err}");
}

#[test]
fn compressed_bytes_past_the_limit_of_a_read_are_not_fetched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.tif");
    let mut file = tiled();
    // The tile's byte count, tag 325: as many as fit a file that is not there.
    let (at, entries) = directory(&file);
    let entry = (0..entries).map(|n| at + 2 + 12 * n);
    let count = entry.into_iter().find(|&e| number(&file, e, 2) == 325);
    let value = count.unwrap() + 8;
    file[value..value + 4].copy_from_slice(&20_000_u32.to_le_bytes());
    std::fs::write(&path, &file).unwrap();
    let session = Session::builder().read_bytes(16_384).build().unwrap();
    let raster = session
        .open(&Location::Local(path), Backend::AsyncTiff)
        .unwrap();
    let err = raster.read(&ReadRequest::new()).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Unsupported);
    assert!(
        err.message().contains("more than 16384 compressed bytes"),
        "{err}"
    );
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
