//! One tile from each of many files: counted requests, right pixels, and a row for every failure.

use std::{
    collections::BTreeSet,
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use ndarray::Array3;
use rss_core::{
    Backend, Crs, DataType, Entry, ErrorKind, GeoBox, GeoTransform, Location, Pixels, Raster,
    Session, Size, TileIndex,
    gather::{self, Concurrency, OnChange, Options, Region, Request, Row, RowOrder},
    reader::{self, Header, Image, ReadRequest, Tiles, Version},
};
use rss_testbed::{BUCKET, Band, Fault, Rule, Scenes, Service, Testbed};

/// Many files of a bucket, which are few contents under many keys.
struct Stage {
    bed: Testbed,
    locations: Vec<Location>,
}

const TILE: usize = 512 * 512 * 2;

impl Stage {
    fn new(files: usize) -> Self {
        let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
        let contents: Vec<Vec<u8>> = bed
            .scenes()
            .iter()
            .flat_map(|scene| [Band::Red, Band::Nir].map(|band| scene.file(band).unwrap()))
            .map(|path| std::fs::read(path).unwrap())
            .collect();
        let mut locations = Vec::new();
        for number in 0..files {
            let key = format!("many/{number:04}.tif");
            bed.put(BUCKET, &key, contents[number % contents.len()].clone());
            locations.push(Location::parse(&format!("s3://{BUCKET}/{key}")).unwrap());
        }
        Self { bed, locations }
    }

    fn session(&self) -> Session {
        let builder = Session::builder().s3_endpoint(&self.bed.s3_endpoint());
        builder
            .retries(1)
            .backoff(Duration::from_millis(1))
            .build()
            .unwrap()
    }

    async fn entries(&self) -> Vec<Entry> {
        let session = self.session();
        let mut entries = Vec::new();
        for location in &self.locations {
            let raster = reader::open(&session, location, Backend::Cog).await;
            entries.push(raster.unwrap().entry().await.unwrap());
        }
        self.bed.clear_log();
        entries
    }

    fn requests(&self) -> Vec<Request> {
        self.locations.iter().cloned().map(Request::new).collect()
    }

    /// The samples of the centre tile of a file.
    fn truth(&self, number: usize) -> Vec<i16> {
        let scene = &self.bed.scenes()[number / 2 % self.bed.scenes().len()];
        let band = [Band::Red, Band::Nir][number % 2];
        let first = scene.side.div_ceil(512) / 2 * 512;
        let side = (scene.side - first).min(512);
        scene.window(band, first, first, side, side)
    }

    fn check(&self, row: &Row) {
        let tile = row.tile.as_ref().unwrap();
        let samples = tile.pixels.view::<i16>().unwrap();
        assert!(
            samples.iter().eq(&self.truth(row.number)),
            "{}",
            row.location
        );
        assert_eq!(row.location, self.locations[row.number]);
    }
}

fn known(entries: &[Entry]) -> Vec<Request> {
    entries.iter().cloned().map(Request::new).collect()
}

async fn all(
    session: &Session,
    requests: Vec<Request>,
    options: Options,
) -> (Vec<Row>, gather::Report) {
    let mut rows = gather::gather(session, requests, options).unwrap();
    let mut all = Vec::new();
    while let Some(row) = rows.next().await {
        all.push(row);
    }
    (all, rows.report())
}

#[tokio::test]
async fn a_known_file_costs_one_request_and_an_unknown_one_two() {
    let stage = Stage::new(40);
    let entries = stage.entries().await;
    for (requests, each) in [(known(&entries), 1), (stage.requests(), 2)] {
        let session = stage.session();
        let options = Options::new().with_backend(Backend::Cog);
        let plan = gather::explain(&session, &requests, &options)
            .await
            .unwrap();
        assert_eq!(stage.bed.log().len(), 0, "a plan asks for nothing");
        let (rows, report) = all(&session, requests, options).await;
        let log = stage.bed.log();
        assert_eq!(log.len(), 40 * each);
        let sent: u64 = log.iter().map(|request| request.bytes).sum();
        assert_eq!((report.requests, report.bytes), (log.len() as u64, sent));
        assert_eq!((report.files, report.ok, report.failed), (40, 40, 0));
        assert_eq!((plan.files, plan.requests), (40, log.len() as u64));
        assert_eq!(report.planned.requests, plan.requests);
        assert_eq!(
            plan.hosts.values().map(|host| host.requests).sum::<u64>(),
            plan.requests
        );
        if each == 1 {
            assert_eq!((plan.bytes, plan.guessed), (sent, 0));
            assert!(log.iter().all(|request| request.if_match.is_some()));
        } else {
            assert_eq!(plan.guessed, 40);
        }
        for (number, row) in rows.iter().enumerate() {
            assert_eq!(row.number, number);
            stage.check(row);
        }
        stage.bed.clear_log();
    }
}

#[cfg(feature = "gdal")]
#[test]
fn gdal_gathers_the_same_pixels() {
    let _alone = crate::alone();
    let stage = Stage::new(10);
    let options = Options::new()
        .with_backend(Backend::Gdal)
        .with_order(RowOrder::Arrival);
    let session = stage.session();
    let mut rows = session.gather(stage.requests(), options).unwrap();
    assert_eq!(rows.by_ref().inspect(|row| stage.check(row)).count(), 10);
    assert_eq!(rows.report().ok, 10);
}

#[tokio::test]
async fn each_failure_has_its_row_and_the_rest_arrives() {
    let stage = Stage::new(30);
    let mut entries = stage.entries().await;
    let bytes = |number: usize| {
        let scene = &stage.bed.scenes()[number];
        std::fs::read(scene.file(Band::Red).unwrap()).unwrap()
    };
    let key = |number: usize| format!("many/{number:04}.tif");
    // Drifted; cut short; gone; forbidden; not where anything is.
    stage.bed.put(BUCKET, &key(3), bytes(1));
    let half = bytes(0);
    stage
        .bed
        .put(BUCKET, &key(7), half[..half.len() / 2].to_vec());
    entries[11].location = Location::parse(&format!("s3://{BUCKET}/gone.tif")).unwrap();
    let forbidden = Rule::new(Fault::status(403)).on(Service::S3);
    stage.bed.fault(forbidden.path(&key(15)));
    let mut requests = known(&entries);
    requests[20] = requests[20]
        .clone()
        .with_region(Region::Tile(TileIndex { col: 99, row: 0 }));
    let expected = [
        (3, ErrorKind::Changed),
        (7, ErrorKind::Changed),
        (11, ErrorKind::NotFound),
        (15, ErrorKind::Denied),
        (20, ErrorKind::InvalidInput),
    ];
    let session = stage.session();
    let (rows, report) = all(&session, requests.clone(), Options::new()).await;
    assert_eq!((report.ok, report.failed), (25, 5));
    for row in &rows {
        match expected.iter().find(|(number, _)| *number == row.number) {
            None => stage.check(row),
            Some((_, kind)) => {
                let err = row.tile.as_ref().unwrap_err();
                assert_eq!(err.kind(), *kind, "{err}");
                let place = row.location.to_string();
                assert_eq!(err.location(), Some(place.as_str()));
            }
        }
    }
    let plan = gather::explain(&session, &requests, &Options::new())
        .await
        .unwrap();
    let refused: Vec<usize> = plan.refused.iter().map(|(number, _)| *number).collect();
    assert_eq!(refused, [20]);

    // A file that is another one by now is read as what it is, where that is wanted.
    let options = Options::new().with_on_change(OnChange::Reindex);
    let (rows, report) = all(&session, requests, options).await;
    assert_eq!((report.ok, report.failed, report.reindexed), (26, 4, 1));
    let row = &rows[3];
    let samples = row.tile.as_ref().unwrap().pixels.view::<i16>().unwrap();
    assert!(samples.iter().eq(&stage.truth(2)));
    let entry = row.reindexed.clone().unwrap();
    let raster = reader::open(&session, &entry, Backend::Cog).await.unwrap();
    assert!(raster.read(&rss_core::ReadRequest::new()).await.is_ok());
    // Half a file's tiles are not there.
    assert_eq!(
        rows[7].tile.as_ref().unwrap_err().kind(),
        ErrorKind::Corrupt
    );
}

#[tokio::test]
async fn rows_come_as_they_arrive_or_in_order() {
    let stage = Stage::new(24);
    let entries = stage.entries().await;
    let slow = Rule::new(Fault::Drip(400_000)).on(Service::S3).times(1);
    stage.bed.fault(slow.path("many/0000.tif"));
    let options = Options::new().with_order(RowOrder::Arrival);
    let (rows, _) = all(&stage.session(), known(&entries), options).await;
    assert_ne!(rows[0].number, 0);
    let numbers: BTreeSet<usize> = rows.iter().map(|row| row.number).collect();
    assert_eq!(numbers, (0..24).collect());
    rows.iter().for_each(|row| stage.check(row));
}

#[tokio::test]
async fn what_is_not_taken_is_not_fetched() {
    let stage = Stage::new(40);
    let entries = stage.entries().await;
    for order in [RowOrder::Arrival, RowOrder::Requests] {
        let options = Options::new()
            .with_order(order)
            .with_buffer_bytes(5 * TILE as u64);
        let mut rows = gather::gather(&stage.session(), known(&entries), options).unwrap();
        let first = rows.next().await.unwrap();
        stage.check(&first);
        // All that may be under way comes to its end.
        while rows.report().files < 6 {
            tokio::task::yield_now().await;
        }
        for taken in 2..=40 {
            assert!(stage.bed.log().len() <= taken + 5, "{order:?}");
            stage.check(&rows.next().await.unwrap());
        }
        assert!(rows.next().await.is_none());
        assert_eq!(stage.bed.log().len(), 40);
        stage.bed.clear_log();
    }
}

#[tokio::test]
async fn a_gather_that_is_dropped_stops() {
    let stage = Stage::new(40);
    let entries = stage.entries().await;
    let options = Options::new().with_concurrency(Concurrency::Fixed(NonZeroUsize::MIN));
    let mut rows = gather::gather(&stage.session(), known(&entries), options).unwrap();
    rows.next().await.unwrap();
    drop(rows);
    let seen = stage.bed.log().len();
    assert!(seen < 40);
    // Another gather over the same bucket, to its end: nothing of the first one is among it.
    let (rows, _) = all(&stage.session(), known(&entries), Options::new()).await;
    assert_eq!(rows.len(), 40);
    assert!(stage.bed.log().len() <= seen + 2 + 40);
}

#[tokio::test]
async fn a_tile_that_takes_long_is_asked_for_again() {
    let stage = Stage::new(60);
    let entries = stage.entries().await;
    stage.bed.fault(
        Rule::new(Fault::Hang)
            .on(Service::S3)
            .path("many/0050.tif")
            .times(1),
    );
    let options = Options::new()
        .with_hedge(0.9)
        .with_concurrency(Concurrency::Fixed(NonZeroUsize::new(4).unwrap()));
    let (rows, report) = all(&stage.session(), known(&entries), options).await;
    assert!(rows[50].hedged);
    assert!(report.hedged >= 1 && report.ok == 60);
    assert!(report.requests <= 60 + report.hedged as u64);
    assert_eq!(report.planned.requests, 60, "a tile is planned once");
    rows.iter().for_each(|row| stage.check(row));
}

#[tokio::test]
async fn a_server_that_is_overloaded_is_asked_less() {
    let stage = Stage::new(200);
    let entries = stage.entries().await;
    let busy = Rule::new(Fault::status(503)).on(Service::S3).times(12);
    stage.bed.fault(busy);
    let session = Session::builder()
        .s3_endpoint(&stage.bed.s3_endpoint())
        .retries(4)
        .build()
        .unwrap();
    let (rows, report) = all(&session, known(&entries), Options::new()).await;
    assert_eq!((report.ok, report.throttled), (200, 12));
    rows.iter().for_each(|row| stage.check(row));
}

#[tokio::test]
async fn what_asks_no_server_does_not_say_how_many_to_have_under_way() {
    let session = Session::builder().build().unwrap();
    let side = Size {
        width: 512,
        height: 512,
    };
    let empty = Image::new(side, side, 16, 1, Tiles::new(vec![0], vec![0]));
    let entry = Entry::new(
        Location::parse("s3://bucket/empty.tif").unwrap(),
        Version::of_size(1000),
        Header::new(DataType::U16, vec![empty]),
    );
    let sparse = Request::new(entry);
    let outside = sparse
        .clone()
        .with_region(Region::Tile(TileIndex { col: 99, row: 0 }));
    for (request, ok) in [(sparse, 500), (outside, 0)] {
        let (rows, report) = all(&session, vec![request; 500], Options::new()).await;
        if ok > 0 {
            rows[0].tile.as_ref().unwrap();
        }
        assert_eq!((report.ok, report.requests), (ok, 0));
        assert_eq!(report.concurrency, 32, "as at the start");
    }
}

#[tokio::test]
async fn a_tile_whose_bytes_are_damaged_is_fetched_anew() {
    let stage = Stage::new(8);
    let entries = stage.entries().await;
    let session = Session::builder()
        .s3_endpoint(&stage.bed.s3_endpoint())
        .build()
        .unwrap();
    // By itself: `auto` would ask GDAL.
    let options = || Options::new().with_backend(Backend::Cog);
    let damaged = || {
        Rule::new(Fault::Garbage)
            .on(Service::S3)
            .path("many/0005.tif")
    };
    stage.bed.fault(damaged().times(1));
    let (rows, report) = all(&session, known(&entries), options()).await;
    assert_eq!((report.ok, report.retried, rows[5].tries), (8, 1, 2));
    assert_eq!(report.planned.requests, 8, "a tile is planned once");
    stage.bed.fault(damaged().times(1));
    let (rows, report) = all(&session, known(&entries), options().with_retries(0)).await;
    assert_eq!((report.ok, rows[5].tries), (7, 1));
}

#[tokio::test]
async fn a_server_that_fails_is_asked_no_more_often_by_a_gather_than_by_a_read() {
    let stage = Stage::new(1);
    let entries = stage.entries().await;
    stage
        .bed
        .fault(Rule::new(Fault::status(503)).on(Service::S3));
    let asked = |retries| {
        let session = Session::builder()
            .s3_endpoint(&stage.bed.s3_endpoint())
            .backoff(Duration::from_millis(1))
            .retries(5)
            .build()
            .unwrap();
        let (entries, bed) = (known(&entries), &stage.bed);
        async move {
            bed.clear_log();
            let options = Options::new().with_retries(retries);
            let (_, report) = all(&session, entries, options).await;
            assert_eq!(report.ok, 0);
            bed.log().len()
        }
    };
    assert_eq!((asked(0).await, asked(5).await), (6, 6));
}

#[tokio::test]
async fn tiles_of_one_shape_make_a_stack() {
    let stage = Stage::new(12);
    let mut requests = known(&stage.entries().await);
    requests[4] = requests[4].clone().with_level(9);
    requests[6] = requests[6]
        .clone()
        .with_region(Region::Window("0,0,100,100".parse().unwrap()));
    // The tile of another shape comes first; the first of the requests says how large all are.
    for number in (0..12).filter(|&number| number != 6) {
        let slow = Rule::new(Fault::Drip(1_000_000)).on(Service::S3).times(1);
        stage.bed.fault(slow.path(&format!("many/{number:04}.tif")));
    }
    let session = stage.session();
    let stack = gather::stack::<i16>(&session, requests.clone(), Options::new())
        .await
        .unwrap();
    let (_, bands, height, width) = stack.samples.dim();
    assert_eq!((stack.samples.dim().0, bands), (12, 1));
    for number in 0..12 {
        let tile = stack.samples.slice(ndarray::s![number, .., .., ..]);
        if [4, 6].contains(&number) {
            assert!(tile.iter().all(|&sample| sample == -999), "{number}");
            assert!(stack.grids[number].is_none());
        } else {
            assert!(tile.iter().eq(&stage.truth(number)), "{number}");
            assert_eq!(
                stack.grids[number].as_ref().unwrap().size,
                Size {
                    width: u32::try_from(width).unwrap(),
                    height: u32::try_from(height).unwrap(),
                }
            );
        }
    }
    let failed: Vec<usize> = stack.failed.iter().map(|(number, ..)| *number).collect();
    assert_eq!((failed, stack.nodata), (vec![4, 6], Some((-999.0).into())));
    let err = gather::stack::<u8>(&session, requests, Options::new())
        .await
        .unwrap_err();
    assert!(
        err.message()
            .contains("its samples are int16, expected uint8"),
        "{err}"
    );
    let err = gather::stack::<u8>(&session, Vec::new(), Options::new())
        .await
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn a_hedge_that_makes_no_sense_is_refused() {
    let session = Session::builder().build().unwrap();
    for part in [0.0, 1.0, -1.0, f64::NAN] {
        let options = Options::new().with_hedge(part);
        let err = gather::gather(&session, [], options).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
    }
}

/// Returns an entry of a file that is not there.
fn hollow(number: usize) -> Entry {
    let side = Size {
        width: 16,
        height: 16,
    };
    let image = Image::new(side, side, 8, 1, Tiles::new(vec![8], vec![256]));
    let header = Header::new(DataType::U8, vec![image]);
    let location = Location::parse(&format!("s3://{BUCKET}/{number}.tif")).unwrap();
    Entry::new(location, Version::of_size(264), header)
}

#[tokio::test]
async fn rows_of_failures_wait_within_bounds() {
    let session = Session::builder().build().unwrap();
    let started = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&started);
    let requests = (0..20_000).map(move |number| {
        count.fetch_add(1, Ordering::Relaxed);
        // There is no such level.
        Request::new(hollow(number)).with_level(9)
    });
    let options = Options::new()
        .with_order(RowOrder::Arrival)
        .with_buffer_bytes(1 << 20);
    let mut rows = gather::gather(&session, requests, options).unwrap();
    assert!(rows.next().await.unwrap().tile.is_err());
    let (mut before, mut same) = (0, 0);
    while same < 1000 {
        tokio::task::yield_now().await;
        let now = started.load(Ordering::Relaxed);
        same = if now == before { same + 1 } else { 0 };
        before = now;
    }
    assert!(before < 5_000, "{before} rows wait");
    let mut taken = 1;
    while rows.next().await.is_some() {
        taken += 1;
    }
    assert_eq!(taken, 20_000);
}

#[tokio::test]
async fn a_window_around_a_point_at_an_edge_is_padded_with_nodata() {
    let stage = Stage::new(2);
    let session = stage.session();
    let raster = reader::open(&session, &stage.locations[0], Backend::Cog)
        .await
        .unwrap();
    let grid = raster.profile().level_geobox(0).unwrap();
    let whole = raster.read(&ReadRequest::new()).await.unwrap();
    let bbox = grid.bbox().unwrap();
    // Near the north-western corner.
    let (lon, lat) = (bbox.west() + 1e-3, bbox.north() - 1e-3);
    let at = grid.pixel_at(lon, lat).unwrap().unwrap();
    let size = Size {
        width: 64 + 2 * at.col,
        height: 33,
    };
    let request = |location: &Location| {
        let region = Region::Around { lon, lat, size };
        Request::new(location.clone()).with_region(region)
    };
    let requests: Vec<Request> = stage.locations.iter().map(request).collect();
    let mut rows = gather::gather(&session, requests, Options::new()).unwrap();
    let tile = rows.next().await.unwrap().tile.unwrap();
    let [_, height, width] = tile.pixels.shape();
    assert_eq!((height, width), (size.height as usize, size.width as usize));
    let left = i64::from(at.col) - i64::from(size.width / 2);
    let top = i64::from(at.row) - i64::from(size.height / 2);
    assert!(left < 0, "{at:?}");
    let (here, there) = (tile.pixels.to_f64(), whole.pixels.to_f64());
    let [_, _, across] = whole.pixels.shape();
    for row in 0..height {
        for col in 0..width {
            let (x, y) = (
                left + i64::try_from(col).unwrap(),
                top + i64::try_from(row).unwrap(),
            );
            let expected = match (usize::try_from(x), usize::try_from(y)) {
                (Ok(x), Ok(y)) => there[y * across + x],
                _ => -999.0,
            };
            assert_eq!(here[row * width + col], expected, "{col},{row}");
        }
    }
    // Another sample, and one that the type has not.
    let padded = |sample: f64| {
        let request = request(&stage.locations[0]).with_padding(sample);
        gather::gather(&session, vec![request], Options::new()).unwrap()
    };
    let row = padded(-7.0).next().await.unwrap();
    assert_eq!(row.tile.unwrap().pixels.to_f64()[0], -7.0);
    let err = padded(0.5).next().await.unwrap().tile.unwrap_err();
    assert!(
        err.message()
            .ends_with("the padding 0.5 is not a value of int16"),
        "{err}"
    );
    // The grid says where it lies.
    let corner = tile.geobox.transform.unwrap().0;
    let of_file = grid.transform.unwrap().0;
    assert_eq!(
        corner[0],
        of_file[0] + f64::from(i32::try_from(left).unwrap()) * of_file[1]
    );
    assert_eq!(
        corner[3],
        of_file[3] + f64::from(i32::try_from(top).unwrap()) * of_file[5]
    );
}

#[tokio::test]
async fn a_bbox_at_both_ends_of_a_map_is_refused_and_its_parts_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("globe.tif");
    let columns = Array3::from_shape_fn((1, 20, 360), |(.., col)| u16::try_from(col).unwrap());
    let globe = Raster {
        pixels: Pixels::U16(columns),
        geobox: GeoBox {
            size: Size {
                width: 360,
                height: 20,
            },
            crs: Some(Crs::Epsg(4326)),
            transform: Some(GeoTransform([-180.0, 1.0, 0.0, 0.0, 0.0, -1.0])),
        },
        nodata: None,
        sparse: Vec::new(),
    };
    globe.save(&path).unwrap();
    let session = Session::builder().cpu_threads(1).build().unwrap();
    let boxes = ["177,-19,-178,-16", "177,-19,180,-16", "-180,-19,-178,-16"];
    let requests = boxes.map(|bbox| {
        let region = Region::Bbox(bbox.parse().unwrap());
        Request::new(Location::Local(path.clone())).with_region(region)
    });
    let rows = gather::gather(&session, requests, Options::new()).unwrap();
    let rows: Vec<Row> = rows.collect().await;
    let first = |row: &Row| {
        let tile = row.tile.as_ref();
        tile.map(|tile| tile.pixels.to_f64()[0])
            .map_err(|err| err.message().to_owned())
    };
    let refused = "bbox 177,-19,-178,-16 lies at both ends of the image: ask for each part";
    assert!(first(&rows[0]).unwrap_err().ends_with(refused));
    assert_eq!([first(&rows[1]), first(&rows[2])], [Ok(357.0), Ok(0.0)]);
}
