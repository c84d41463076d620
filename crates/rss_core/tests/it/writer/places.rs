//! Files and objects get the same bytes, whatever the order of blocks, threads and memory.

use rss_core::{
    Backend, DataType, Location, Pixels, Raster, ReadRequest, Session, Size, Window, reader,
    writer::{self, Cog, CogOptions, CogReport, Compression, Predictor},
};
use rss_testbed::{Request, Service, Testbed};

use super::{blocks, grid, local, raster, samples, session, structure};

const MIB: usize = 1 << 20;

fn bucket(key: &str) -> Location {
    Location::parse(&format!("s3://maps/{key}")).unwrap()
}

fn stage() -> (Testbed, Session) {
    let bed = Testbed::builder().start().unwrap();
    bed.add_bucket("maps");
    let session = Session::builder().s3_endpoint(&bed.s3_endpoint());
    (bed, session.build().unwrap())
}

/// The methods of requests, with the number of the part that a request uploads.
fn said(log: &[Request]) -> Vec<String> {
    let part = |request: &Request| {
        let query = request.query.as_deref().unwrap_or_default();
        let parameters = query.split('&').filter_map(|pair| pair.split_once('='));
        let number = parameters
            .into_iter()
            .find(|(name, _)| *name == "partNumber");
        match number {
            Some((_, number)) => format!("{} {number}", request.method),
            None => request.method.clone(),
        }
    };
    log.iter().map(part).collect()
}

async fn write(
    session: &Session,
    location: &Location,
    blocks: &[(Window, Pixels)],
    options: &CogOptions,
) -> CogReport {
    let last = blocks
        .iter()
        .map(|(window, _)| (window.col + window.width, window.row + window.height));
    let (width, height) = last.max().unwrap();
    let [bands, ..] = blocks[0].1.shape();
    let grid = grid(width, height);
    let mut cog = Cog::create(session, location, grid, DataType::I16, bands, options)
        .await
        .unwrap();
    for (window, pixels) in blocks {
        cog.write(*window, pixels.clone()).await.unwrap();
    }
    cog.finish().await.unwrap()
}

#[tokio::test]
async fn a_small_object_is_one_request_and_its_header_another() {
    let (bed, session) = stage();
    let raster = raster(DataType::I16, 1, 1000, 700);
    let report = writer::save(&session, &bucket("a/b.tif"), &raster, &CogOptions::new())
        .await
        .unwrap();
    assert_eq!(said(&bed.requests(Service::S3)), ["PUT"]);
    let bytes = bed.object("maps", "a/b.tif").unwrap();
    structure::check(&bytes, &report);
    bed.clear_log();
    let location = bucket("a/b.tif");
    let file = reader::open(&session, &location, Backend::Cog)
        .await
        .unwrap();
    assert_eq!(file.profile().size, raster.geobox.size);
    assert_eq!(said(&bed.requests(Service::S3)), ["GET"]);
}

#[tokio::test]
async fn an_object_gets_the_bytes_of_a_file_in_parts() {
    let dir = tempfile::tempdir().unwrap();
    let (bed, session) = stage();
    let path = dir.path().join("a.tif");
    // 26 MB and 8 MB of overviews, as they are.
    let options = CogOptions::new().with_compression(Compression::None);
    let raster = raster(DataType::I16, 1, 4096, 3072);
    let report = writer::save(&session, &local(&path), &raster, &options)
        .await
        .unwrap();
    let file = std::fs::read(&path).unwrap();
    let parts = file.len().div_ceil(8 * MIB);
    assert_eq!(parts, 5);

    let again = writer::save(&session, &bucket("a.tif"), &raster, &options)
        .await
        .unwrap();
    assert_eq!(again.bytes, report.bytes);
    assert!(bed.object("maps", "a.tif").unwrap() == file, "other bytes");
    assert!(bed.uploads("maps").is_empty());
    let mut said = said(&bed.requests(Service::S3));
    assert_eq!(
        (said.remove(0), said.pop().unwrap()),
        ("POST".into(), "POST".into())
    );
    // The first part holds the header, and is known last: four others are under way before it, and of these
    // one has ended.
    assert_ne!(said[0], "PUT 1");
    said.sort();
    assert_eq!(said, ["PUT 1", "PUT 2", "PUT 3", "PUT 4", "PUT 5"]);
}

#[tokio::test]
async fn the_same_blocks_make_the_same_bytes_on_any_threads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tif");
    let pixels = samples(2, 700, 520);
    let options = CogOptions::new().with_tile(64).with_nodata(77.0);
    let mut files = Vec::new();
    for threads in [1, 4, 4, 7] {
        let session = Session::builder().cpu_threads(threads).build().unwrap();
        let blocks = blocks(&pixels, 64, 4, 2);
        let report = write(&session, &local(&path), &blocks, &options).await;
        files.push((std::fs::read(&path).unwrap(), report.statistics));
    }
    assert!(files.windows(2).all(|two| two[0] == two[1]));
}

/// Only where the tiles lie depends on the order in which they came.
#[tokio::test]
async fn blocks_in_any_order_make_the_same_pixels() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tif");
    let session = session();
    let pixels = samples(2, 700, 520);
    // The predictor is chosen by the first block.
    let options = CogOptions::new()
        .with_tile(64)
        .with_nodata(77.0)
        .with_predictor(Predictor::Horizontal);
    let mut found = Vec::new();
    for (across, down) in [(1, 1), (3, 2), (99, 1), (99, 99)] {
        for seed in 0..3_usize {
            let mut blocks = blocks(&pixels, 64, across, down);
            // Seed 0 leaves them as they are.
            blocks.sort_by_key(|(window, _)| {
                super::noise(seed, window.row as usize, window.col as usize) * (seed as u64).min(1)
            });
            let report = write(&session, &local(&path), &blocks, &options).await;
            structure::check(&std::fs::read(&path).unwrap(), &report);
            let file = reader::open(&session, &local(&path), Backend::Cog)
                .await
                .unwrap();
            let mut levels = Vec::new();
            for level in 0..=report.overviews.len() {
                let read = file
                    .read(&ReadRequest::new().with_level(level))
                    .await
                    .unwrap();
                levels.push(read.pixels);
            }
            assert!(levels[0] == Pixels::I16(pixels.clone()));
            found.push((levels, report.statistics, report.bytes));
        }
    }
    assert!(found.windows(2).all(|two| two[0] == two[1]));
}

/// Memory is a row of unfinished tiles of each overview and some compressed ones, not the image.
#[tokio::test]
async fn memory_does_not_grow_with_the_image() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tif");
    let options = CogOptions::new()
        .with_compression(Compression::None)
        .with_tile(256);
    let mut peaks = Vec::new();
    for height in [2048, 6144] {
        let session = Session::builder()
            .cpu_threads(2)
            .budget_bytes(MIB as u64)
            .build()
            .unwrap();
        let pixels = samples(1, 1024, height);
        let blocks = blocks(&pixels, 256, 4, 1);
        let report = write(&session, &local(&path), &blocks, &options).await;
        structure::check(&std::fs::read(&path).unwrap(), &report);
        // A third of the image is in overviews, and a quarter of the budget of that in memory.
        let overviews = u64::from(1024 * height * 2 / 3);
        assert!(
            report.spilled_bytes > overviews - (MIB / 2) as u64,
            "{report:?}"
        );
        peaks.push(report.peak_bytes);
    }
    // 256 KiB of overviews; 6 + 2 tiles of 128 KiB; two rows of parts.
    let bound = (256 + 8 * 128 + 2 * 512) * 1024;
    assert!(peaks.iter().all(|&peak| peak < bound), "{peaks:?}");
}

/// What the server has not got is held here. An object takes six parts: the first one, which waits for the
/// header, one that is filled, and four on their way.
#[tokio::test]
async fn memory_does_not_grow_with_an_object() {
    const PART: u64 = 8 * MIB as u64;
    const WIDTH: u32 = 2048;
    const TILE: u64 = 512 * 512 * 2;
    let bed = Testbed::builder().start().unwrap();
    bed.add_bucket("maps");
    let options = CogOptions::new().with_compression(Compression::None);
    for height in [16_384, 32_768] {
        let session = Session::builder()
            .s3_endpoint(&bed.s3_endpoint())
            .cpu_threads(2)
            .budget_bytes(MIB as u64)
            .build()
            .unwrap();
        let grid = grid(WIDTH, height);
        let location = bucket("a.tif");
        let mut cog = Cog::create(&session, &location, grid, DataType::I16, 1, &options)
            .await
            .unwrap();
        // Tiles that are compressed while a write returns, and not counted as long as they are not.
        let under_way = (2 * 2 + 2) * TILE;
        let (mut given, mut most) = (0, 0);
        for row in (0..height).step_by(512) {
            let size = Size {
                width: WIDTH,
                height: 512,
            };
            let window = Window {
                col: 0,
                row,
                width: WIDTH,
                height: 512,
            };
            let pixels = Pixels::zeros(DataType::I16, 1, size).unwrap();
            cog.write(window, pixels).await.unwrap();
            given += u64::from(WIDTH) * 512 * 2;
            let uploads = bed.uploads("maps");
            let arrived = uploads.first().map_or(0, |(_, parts)| *parts as u64 * PART);
            most = most.max(given - arrived);
        }
        let report = cog.finish().await.unwrap();
        structure::check(&bed.object("maps", "a.tif").unwrap(), &report);
        // Beside the parts: what is under way, with two rows of parts of overviews, and a batch of these.
        let bound = 6 * PART + 2 * under_way + 4 * MIB as u64;
        assert!(most <= bound, "{most} of {given}");
        assert!(report.peak_bytes <= bound, "{report:?}");
        assert!(report.peak_bytes >= most - under_way, "{most}: {report:?}");
        assert!(given > bound, "too small to tell");
    }
}

#[tokio::test]
async fn a_raster_without_a_place_is_written_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tif");
    let mut raster: Raster = raster(DataType::U8, 1, 70, 50);
    (raster.geobox.crs, raster.geobox.transform) = (None, None);
    let session = session();
    let report = writer::save(&session, &local(&path), &raster, &CogOptions::new())
        .await
        .unwrap();
    assert_eq!(report.overviews, []);
    let file = reader::open(&session, &local(&path), Backend::Cog)
        .await
        .unwrap();
    assert_eq!(file.profile().transform, None);
    let read = file.read(&ReadRequest::new()).await.unwrap();
    assert!(read.pixels == raster.pixels);
}
