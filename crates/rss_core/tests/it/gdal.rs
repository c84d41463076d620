//! The GDAL backend: pixels, requests, errors, and agreement with the COG backend.
//!
//! GDAL's settings and caches belong to the process, so these tests run one after the other. All run
//! twice: with GDAL's own file systems, and as `gdal_by_stores` with the session's stores.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use rss_core::{
    Backend, Crop, Crs, ErrorKind, Fetched, GdalReads, GetOptions, Location, Mode, Origin,
    ReadRequest, Session, Size, Window, reader,
};
use rss_testbed::{BUCKET, Band, Fault, Rule, Scenes, Service, Testbed};

use super::download::{files, of_hrefs};

/// How GDAL reaches the network in this module.
fn reads() -> GdalReads {
    match module_path!().ends_with("gdal_by_stores") {
        true => GdalReads::Stores,
        false => GdalReads::Vsi,
    }
}

/// A testbed, and a session that has read nothing of it.
struct Stage {
    bed: Testbed,
    session: Session,
    cache: tempfile::TempDir,
    dir: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Stage {
    fn new() -> Self {
        Self::with(|builder| builder)
    }

    fn with(settings: impl FnOnce(rss_core::SessionBuilder) -> rss_core::SessionBuilder) -> Self {
        let alone = super::alone();
        let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
        let cache = tempfile::tempdir().unwrap();
        let builder = Session::builder()
            .s3_endpoint(&bed.s3_endpoint())
            .cache_dir(cache.path())
            .gdal_reads(reads())
            .retries(2)
            .backoff(Duration::from_millis(20));
        let session = settings(builder).build().unwrap();
        session.clear_caches().unwrap();
        bed.clear_log();
        Self {
            bed,
            session,
            cache,
            dir: tempfile::tempdir().unwrap(),
            _alone: alone,
        }
    }

    fn scene(&self, band: Band) -> Location {
        let key = self.bed.scenes()[0].key(band);
        Location::parse(&format!("s3://{BUCKET}/{key}")).unwrap()
    }

    fn local(&self, band: Band) -> Location {
        let file = self.bed.scenes()[0].file(band).unwrap();
        Location::Local(file.to_path_buf())
    }

    fn open(&self, location: &Location) -> rss_core::Result<rss_core::OpenRaster> {
        self.session.open(location, Backend::Gdal)
    }

    fn get(&self, href: &str, options: &GetOptions) -> rss_core::Result<Fetched> {
        let (items, dir) = (of_hrefs(&[href]), self.dir.path());
        self.session
            .get(&items, &[], &Origin::default(), dir, options)
    }

    /// The requests to S3 so far: method, and whether it lists.
    fn requests(&self) -> Vec<String> {
        let log = self.bed.requests(Service::S3);
        log.iter()
            .map(|request| {
                let query = request.query.as_deref().unwrap_or_default();
                match query.contains("prefix=") || query.contains("list-type=") {
                    true => "LIST".to_owned(),
                    false => request.method.clone(),
                }
            })
            .collect()
    }
}

fn window(text: &str) -> ReadRequest {
    ReadRequest::new().with_window(text.parse::<Window>().unwrap())
}

#[test]
fn a_cold_block_costs_two_requests_and_no_listing() {
    let stage = Stage::new();
    let raster = stage.open(&stage.scene(Band::Red)).unwrap();
    let block = raster.read(&window("512,0,512,512")).unwrap();
    let truth = stage.bed.scenes()[0].window(Band::Red, 512, 0, 512, 512);
    assert!(block.pixels.view::<i16>().unwrap().iter().eq(&truth));
    assert_eq!(block.nodata, Some((-999.0).into()));
    assert_eq!(block.geobox.crs, Some(Crs::Epsg(32756)));
    assert_eq!(
        block.geobox.transform.unwrap().0,
        [505_100.0, 10.0, 0.0, 7_200_040.0, 0.0, -10.0]
    );
    assert_eq!(stage.requests(), ["GET", "GET"]);
    let log = stage.bed.requests(Service::S3);
    assert_eq!(stage.session.traffic().requests, 2);
    assert_eq!(
        stage.session.traffic().bytes,
        log.iter().map(|request| request.bytes).sum::<u64>()
    );
}

#[test]
fn the_users_options_are_gdals() {
    // What GDAL does by itself: it lists the folder first.
    let stage = Stage::with(|builder| builder.gdal_option("GDAL_DISABLE_READDIR_ON_OPEN", "NO"));
    let raster = stage.open(&stage.scene(Band::Red)).unwrap();
    raster.read(&window("0,0,512,512")).unwrap();
    match reads() {
        GdalReads::Vsi => assert_eq!(stage.requests(), ["LIST", "GET", "GET"]),
        // Nothing is listed: side-car files are looked for by name.
        _ => assert!(stage.requests().len() > 2 && stage.requests().iter().all(|one| one == "GET")),
    }
}

#[test]
fn a_second_read_of_an_open_file_costs_nothing_and_a_cold_one_all() {
    let stage = Stage::new();
    let location = stage.scene(Band::Nir);
    let raster = stage.open(&location).unwrap();
    let first = raster.read(&window("0,0,512,512")).unwrap();
    stage.bed.clear_log();
    assert_eq!(raster.read(&window("0,0,512,512")).unwrap(), first);
    assert_eq!(stage.requests(), [""; 0]);
    stage.session.clear_caches().unwrap();
    assert_eq!(raster.read(&window("0,0,512,512")).unwrap(), first);
    assert_eq!(stage.requests(), ["GET", "GET"]);
}

#[test]
fn both_backends_read_the_same_windows_of_every_level() {
    let stage = Stage::new();
    for band in [Band::Red, Band::Nir, Band::Fmask] {
        for location in [stage.scene(band), stage.local(band)] {
            let gdal = stage.open(&location).unwrap();
            let cog = stage.session.open(&location, Backend::Cog).unwrap();
            let (mut a, b) = (gdal.profile().clone(), cog.profile().clone());
            // GDAL states the predictor from 3.7 on.
            a.predictor = b.predictor;
            assert_eq!(a, b, "{location}");
            for level in 0..=a.overviews.len() {
                let size = a.level_size(level).unwrap();
                for window in windows(size) {
                    let request = ReadRequest::new().with_level(level).with_window(window);
                    assert_eq!(
                        gdal.read(&request).unwrap(),
                        cog.read(&request).unwrap(),
                        "{location} level {level} {window:?}"
                    );
                }
            }
        }
    }
}

/// The whole, a corner, and a piece in the middle that is aligned to nothing.
fn windows(size: Size) -> Vec<Window> {
    let part = |col: u32, row: u32, width: u32, height: u32| Window {
        col: col.min(size.width - 1),
        row: row.min(size.height - 1),
        width: width.min(size.width - col.min(size.width - 1)),
        height: height.min(size.height - row.min(size.height - 1)),
    };
    vec![
        Window::whole(size),
        part(size.width - 1, size.height - 1, 1, 1),
        part(size.width / 3, size.height / 3, 301, 7),
        part(500, 510, 20, 20),
    ]
}

#[test]
fn many_windows_come_in_the_order_asked() {
    let stage = Stage::new();
    let raster = stage.open(&stage.scene(Band::Red)).unwrap();
    let asked: Vec<ReadRequest> = (0..24)
        .map(|i| window(&format!("{},{},16,4", (i * 37) % 1100, (i * 91) % 1100)))
        .collect();
    let read = raster.read_many(&asked).unwrap();
    for (request, raster) in asked.iter().zip(&read) {
        let Window { col, row, .. } = request.window.unwrap();
        let truth = stage.bed.scenes()[0].window(Band::Red, col, row, 16, 4);
        assert!(raster.pixels.view::<i16>().unwrap().iter().eq(&truth));
    }
}

#[test]
fn what_does_not_exist_is_refused_before_any_request() {
    let stage = Stage::new();
    let raster = stage.open(&stage.local(Band::Red)).unwrap();
    for (request, text) in [
        (window("1100,0,512,512"), "window"),
        (ReadRequest::new().with_level(9), "level 9"),
        (ReadRequest::new().with_bands([2]), "band 2"),
        (ReadRequest::new().with_bands([0]), "band 0"),
    ] {
        let err = raster.read(&request).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
        assert!(err.to_string().contains(text), "{err}");
    }
}

#[test]
fn a_fault_has_the_kind_of_its_cause_and_names_the_file() {
    for (fault, kind) in [
        (Fault::status(404), ErrorKind::NotFound),
        (Fault::status(403), ErrorKind::Denied),
        (Fault::status(500), ErrorKind::Unavailable),
        (Fault::status(429), ErrorKind::Unavailable),
        (Fault::Html, ErrorKind::Corrupt),
    ] {
        let stage = Stage::with(|builder| builder.retries(0));
        stage.bed.fault(Rule::new(fault.clone()));
        let location = stage.scene(Band::Red);
        let err = stage.open(&location).unwrap_err();
        assert_eq!(err.kind(), kind, "{fault:?}: {err}");
        assert!(err.to_string().starts_with(&location.to_string()), "{err}");
        assert!(!err.to_string().contains('\n'), "{err}");
    }
}

#[test]
fn a_fault_that_happens_once_is_recovered() {
    for fault in [Fault::slow_down(), Fault::status(429), Fault::status(500)] {
        for skip in [0, 1] {
            let stage = Stage::new();
            stage
                .bed
                .fault(Rule::new(fault.clone()).skip(skip).times(1));
            let raster = stage.open(&stage.scene(Band::Red)).unwrap();
            let block = raster.read(&window("0,0,16,16")).unwrap();
            let truth = stage.bed.scenes()[0].window(Band::Red, 0, 0, 16, 16);
            assert!(block.pixels.view::<i16>().unwrap().iter().eq(&truth));
        }
    }
}

#[test]
fn a_missing_or_truncated_or_foreign_file_is_named() {
    let stage = Stage::new();
    let dir = stage.dir.path();
    let whole = std::fs::read(stage.bed.scenes()[0].file(Band::Red).unwrap()).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.join(name);
        std::fs::write(&path, bytes).unwrap();
        Location::Local(path)
    };
    let missing = Location::Local(dir.join("none.tif"));
    assert_eq!(
        stage.open(&missing).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let page = write("page.tif", b"<html>Please log in</html>");
    assert_eq!(stage.open(&page).unwrap_err().kind(), ErrorKind::Corrupt);
    let cut = write("cut.tif", &whole[..whole.len() / 2]);
    let err = stage
        .open(&cut)
        .and_then(|raster| raster.read(&ReadRequest::new()))
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Corrupt, "{err}");
    assert!(err.to_string().contains("cut.tif"), "{err}");
}

#[test]
fn a_tiff_that_is_a_vrt_opens_no_other_file() {
    let stage = Stage::new();
    let secret = stage.bed.scenes()[0].file(Band::Red).unwrap();
    let vrt = format!(
        r#"<VRTDataset rasterXSize="16" rasterYSize="16"><VRTRasterBand dataType="Int16" band="1">
        <SimpleSource><SourceFilename>{}</SourceFilename><SourceBand>1</SourceBand></SimpleSource>
        </VRTRasterBand></VRTDataset>"#,
        secret.display()
    );
    stage.bed.put("bucket", "a.tif", vrt.clone());
    let remote = Location::parse("s3://bucket/a.tif").unwrap();
    assert_eq!(stage.open(&remote).unwrap_err().kind(), ErrorKind::Corrupt);
    let local = stage.dir.path().join("a.tif");
    std::fs::write(&local, &vrt).unwrap();
    let err = stage.open(&Location::Local(local)).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Corrupt);
    // A user who names a VRT means one.
    let named = stage.dir.path().join("a.vrt");
    std::fs::write(&named, &vrt).unwrap();
    let raster = stage.open(&Location::Local(named)).unwrap();
    assert_eq!(raster.profile().size.width, 16);
}

#[test]
fn a_signed_address_is_in_no_error() {
    let stage = Stage::with(|builder| builder.retries(0));
    let url = format!(
        "{}?X-Amz-Signature=CANARYSECRET",
        stage.bed.http_url("bucket", "none.tif")
    );
    let err = stage.open(&Location::parse(&url).unwrap()).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::NotFound, "{err}");
    assert!(
        !format!("{err} {err:?}").contains("CANARYSECRET"),
        "{err:?}"
    );
}

#[test]
fn a_translated_file_keeps_pixels_and_what_is_known_of_them() {
    let stage = Stage::new();
    let href = stage.scene(Band::Red).to_href();
    let fetched = stage.get(&href, &GetOptions::default()).unwrap();
    let path = fetched.assets[0].path.clone().unwrap();
    let local = Location::Local(path);
    let cog = stage.session.open(&local, Backend::Cog).unwrap();
    let source = stage.open(&stage.scene(Band::Red)).unwrap();
    let (new, old) = (cog.profile(), source.profile());
    assert_eq!(new.size, old.size);
    assert_eq!(new.tile, old.tile);
    assert_eq!(new.compression.as_deref(), Some("DEFLATE"));
    assert_eq!(new.predictor, Some(2));
    assert_eq!((new.nodata, &new.crs), (old.nodata, &old.crs));
    assert_eq!(new.transform, old.transform);
    let all = cog.read(&ReadRequest::new()).unwrap();
    assert_eq!(all, source.read(&ReadRequest::new()).unwrap());

    // The second call costs nothing.
    stage.bed.clear_log();
    let again = stage.get(&href, &GetOptions::default()).unwrap();
    assert!(again.assets[0].cached);
    assert_eq!(stage.requests(), [""; 0]);
}

fn crop(stage: &Stage, crop: Crop) -> rss_core::Result<rss_core::Raster> {
    let href = stage.scene(Band::Red).to_href();
    let fetched = stage.get(&href, &GetOptions::default().with_crop(crop))?;
    let path = fetched.assets[0].path.clone().unwrap();
    let raster = stage.session.open(&Location::Local(path), Backend::Cog)?;
    raster.read(&ReadRequest::new())
}

#[test]
fn a_crop_has_the_pixels_it_touches_and_the_right_place() {
    let stage = Stage::new();
    // The scene starts at 499980, 7200040 and its pixels are 10 m wide: columns 100 to 150, rows 20
    // to 45, the edges a little inside the outer pixels.
    let raster = crop(
        &stage,
        Crop::new([500_981.0, 7_199_591.0, 501_479.0, 7_199_839.0], None).unwrap(),
    )
    .unwrap();
    assert_eq!(raster.pixels.shape(), [1, 25, 50]);
    assert_eq!(
        raster.geobox.transform.unwrap().0,
        [500_980.0, 10.0, 0.0, 7_199_840.0, 0.0, -10.0]
    );
    let truth = stage.bed.scenes()[0].window(Band::Red, 100, 20, 50, 25);
    assert!(raster.pixels.view::<i16>().unwrap().iter().eq(&truth));
}

#[test]
fn a_crop_in_degrees_covers_its_box() {
    let stage = Stage::new();
    // gdaltransform -s_srs EPSG:32756 -t_srs EPSG:4326 says that (501000, 7199800) is
    // (153.00994, -25.31836) and (501500, 7199500) is (153.01490, -25.32107).
    let bounds = [153.009_94, -25.321_07, 153.014_90, -25.318_36];
    let raster = crop(&stage, Crop::new(bounds, Some(4326)).unwrap()).unwrap();
    let g = raster.geobox.transform.unwrap().0;
    let [_, height, width] = raster.pixels.shape();
    let (left, top) = (g[0], g[3]);
    let (right, bottom) = (left + 10.0 * width as f64, top - 10.0 * height as f64);
    assert!(left <= 501_001.0 && right >= 501_490.0, "{left} {right}");
    assert!(
        top >= 7_199_790.0 && bottom <= 7_199_510.0,
        "{top} {bottom}"
    );
    assert!(width < 60 && height < 40, "{width} x {height}");
    let col = ((left - 499_980.0) / 10.0) as u32;
    let row = ((7_200_040.0 - top) / 10.0) as u32;
    let truth = stage.bed.scenes()[0].window(Band::Red, col, row, width as u32, height as u32);
    assert!(raster.pixels.view::<i16>().unwrap().iter().eq(&truth));
}

#[test]
fn a_crop_never_answers_for_another() {
    let stage = Stage::new();
    let one = Crop::new([500_980.0, 7_199_590.0, 501_480.0, 7_199_840.0], None).unwrap();
    let other = Crop::new([500_980.0, 7_199_590.0, 501_580.0, 7_199_840.0], None).unwrap();
    assert_eq!(crop(&stage, one).unwrap().pixels.shape(), [1, 25, 50]);
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage { dir, ..stage };
    assert_eq!(crop(&stage, other).unwrap().pixels.shape(), [1, 25, 60]);
}

#[test]
fn a_crop_outside_the_file_is_one_clear_error_and_leaves_nothing() {
    let stage = Stage::new();
    let err = crop(&stage, Crop::new([0.0, 0.0, 10.0, 10.0], None).unwrap()).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
    assert!(err.message().contains("is outside the file"), "{err}");
    let err = crop(&stage, Crop::new([0.0, 0.0, 1.0, 1.0], Some(1)).unwrap()).unwrap_err();
    assert!(err.message().contains("EPSG:1 is not known"), "{err}");
    assert_no_data(stage.cache.path());
    assert_eq!(files(stage.dir.path()), Vec::<PathBuf>::new());
}

fn assert_no_data(cache: &Path) {
    let left: Vec<PathBuf> = files(cache)
        .into_iter()
        .filter(|path| path.metadata().is_ok_and(|meta| meta.len() > 0))
        .filter(|path| {
            path.extension()
                .is_some_and(|end| end == "tif" || end == "part")
        })
        .collect();
    assert_eq!(left, Vec::<PathBuf>::new());
}

#[test]
fn a_source_that_breaks_in_mid_translation_leaves_nothing() {
    let stage = Stage::with(|builder| builder.retries(0));
    // The header is read, then the tiles fail.
    stage.bed.fault(Rule::new(Fault::status(403)).skip(1));
    let href = stage.scene(Band::Red).to_href();
    let err = stage.get(&href, &GetOptions::default()).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Denied, "{err}");
    assert_no_data(stage.cache.path());
    assert_eq!(files(stage.dir.path()), Vec::<PathBuf>::new());
}

#[test]
fn progress_of_a_translation_reaches_its_end() {
    let stage = Stage::new();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&seen);
    let href = stage.local(Band::Red).to_href();
    let options = GetOptions::default()
        .with_mode(Mode::Translate)
        .with_progress(move |progress| tell.lock().unwrap().push(progress));
    stage.get(&href, &options).unwrap();
    let seen = seen.lock().unwrap();
    let last = seen.last().unwrap();
    assert_eq!((last.files_done, last.files_total), (1, 1));
    assert!((last.part_done - 1.0).abs() < 1e-9);
    assert!(last.bytes_done > 0);
    assert!(seen.is_sorted_by(|a, b| a.part_done <= b.part_done + 1e-9));
}

#[test]
fn a_dropped_translation_stops_and_leaves_nothing() {
    let stage = Stage::new();
    let href = stage.scene(Band::Red).to_href();
    stage.bed.fault(Rule::new(Fault::Hang).skip(1).times(1));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let list = of_hrefs(&[&href]);
        let (origin, options) = (Origin::default(), GetOptions::default());
        let call = stage
            .session
            .get_async(&list, &[], &origin, stage.dir.path(), &options);
        assert!(
            tokio::time::timeout(Duration::from_millis(300), call)
                .await
                .is_err()
        );
    });
    assert_eq!(files(stage.dir.path()), Vec::<PathBuf>::new());
}

#[test]
fn the_first_lines_of_a_users_program_work() {
    use rss_core::{Cmp, Collection, DEA, ImageQueryBuilder, Intersects, Source, date};

    let stage = Stage::new();
    let dea = Source::api(&stage.bed.stac_url()).unwrap().like(&DEA);
    let found = ImageQueryBuilder::new(dea, Collection::Sentinel2, Intersects::scene("56jns"))
        .session(stage.session.clone())
        .canonical_bands(["red", "nir"])
        .start_date(date(2021, 1, 1))
        .end_date(date(2021, 2, 1))
        .cloudcover((Cmp::Less, 30))
        .build()
        .unwrap()
        .search()
        .unwrap();
    let local = found.get(stage.dir.path(), None, None).unwrap();
    let remote = found.get_remote().unwrap();
    assert_eq!((local.items.len(), remote.items.len()), (4, 4));
    for (a, b) in local.items.iter().zip(&remote.items) {
        assert_eq!(a.id, b.id);
        let keys: Vec<&str> = a.assets.keys().map(String::as_str).collect();
        assert_eq!(keys, ["nbart_red", "nbart_nir_1"]);
        for key in keys {
            let path = PathBuf::from(&a.assets[key].href);
            assert!(path.starts_with(stage.dir.path().join(&a.id)), "{path:?}");
            assert!(b.assets[key].href.starts_with("/vsis3/dea-public-data/"));
            let block = |href: &str| {
                let raster = stage.open(&Location::parse(href).unwrap()).unwrap();
                raster.read(&window("500,500,40,40")).unwrap()
            };
            assert_eq!(block(&a.assets[key].href), block(&b.assets[key].href));
        }
    }
    // The CRS of a crop without a crop is a mistake.
    let err = found.get(stage.dir.path(), None, Some(4326)).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_closed_reader_lets_go_of_its_file() {
    let stage = Stage::new();
    let path = stage.dir.path().join("a.tif");
    std::fs::copy(stage.bed.scenes()[0].file(Band::Red).unwrap(), &path).unwrap();
    let location = Location::Local(path.clone());
    let first = stage.open(&location).unwrap();
    let before = first.read(&window("0,0,8,8")).unwrap();
    drop(first);
    // Another file takes its place: a new reader sees it.
    std::fs::remove_file(&path).unwrap();
    std::fs::copy(stage.bed.scenes()[0].file(Band::Nir).unwrap(), &path).unwrap();
    let after = stage
        .open(&location)
        .unwrap()
        .read(&window("0,0,8,8"))
        .unwrap();
    assert_ne!(before.pixels, after.pixels);
    let truth = stage.bed.scenes()[0].window(Band::Nir, 0, 0, 8, 8);
    assert!(after.pixels.view::<i16>().unwrap().iter().eq(&truth));
}

#[test]
fn one_reader_serves_many_tasks() {
    let stage = Stage::new();
    let location = stage.scene(Band::Red);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let raster = reader::open(&stage.session, &location, Backend::Gdal)
            .await
            .unwrap();
        let reads = (0..16u32).map(|i| {
            let raster = Arc::clone(&raster);
            tokio::spawn(async move {
                let request = window(&format!("{},{},32,32", i * 70, i * 70));
                (i, raster.read(&request).await.unwrap())
            })
        });
        for read in futures::future::join_all(reads).await {
            let (i, block) = read.unwrap();
            let truth = stage.bed.scenes()[0].window(Band::Red, i * 70, i * 70, 32, 32);
            assert!(block.pixels.view::<i16>().unwrap().iter().eq(&truth));
        }
    });
}
