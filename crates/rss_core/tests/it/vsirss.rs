//! `/vsirss/`: GDAL, told nothing but a path, reads through a session's stores.

use gdal::Dataset;
use rss_core::{
    Backend, DataType, ErrorKind, GdalReads, GeoBox, GetOptions, Location, OpenRaster, Origin,
    Pixels, Raster, ReadRequest, RemoteVariant, Session, SessionBuilder, Size, Window,
};
use rss_testbed::{BUCKET, Band, Fault, Rule, Scenes, Service, Testbed};

use super::download::of_hrefs;

struct Stage {
    bed: Testbed,
    session: Session,
}

impl Stage {
    fn new() -> Self {
        Self::with(|builder| builder)
    }

    fn with(settings: impl FnOnce(SessionBuilder) -> SessionBuilder) -> Self {
        let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
        let builder = Session::builder()
            .s3_endpoint(&bed.s3_endpoint())
            .gdal_reads(GdalReads::Stores)
            .retries(2);
        let session = settings(builder).build().unwrap();
        Self { bed, session }
    }

    fn scene(&self, band: Band) -> Location {
        let key = self.bed.scenes()[0].key(band);
        Location::parse(&format!("s3://{BUCKET}/{key}")).unwrap()
    }

    fn bytes(&self, band: Band) -> Vec<u8> {
        std::fs::read(self.bed.scenes()[0].file(band).unwrap()).unwrap()
    }

    fn open(&self, location: &Location) -> rss_core::Result<OpenRaster> {
        self.session.open(location, Backend::Gdal)
    }

    /// The path that is handed out for an href.
    fn path(&self, href: &str) -> String {
        let items = of_hrefs(&[href]);
        let found = self
            .session
            .get_remote(&items, &[], &Origin::default(), RemoteVariant::Stores)
            .unwrap();
        let asset = found.items[0].assets.values().next().unwrap();
        asset.href.clone()
    }

    /// The methods of the requests so far.
    fn requests(&self) -> Vec<String> {
        let log = self.bed.requests(Service::S3);
        log.into_iter().map(|request| request.method).collect()
    }

    fn truth(&self, band: Band, [col, row, width, height]: [u32; 4]) -> Vec<i16> {
        self.bed.scenes()[0].window(band, col, row, width, height)
    }
}

fn window(text: &str) -> ReadRequest {
    ReadRequest::new().with_window(text.parse::<Window>().unwrap())
}

/// Reads pixels with the `gdal` crate alone.
fn block(dataset: &Dataset, [col, row, width, height]: [usize; 4]) -> Vec<i16> {
    let band = dataset.rasterband(1).unwrap();
    let at = (isize::try_from(col).unwrap(), isize::try_from(row).unwrap());
    let size = (width, height);
    band.read_as::<i16>(at, size, size, None)
        .unwrap()
        .data()
        .to_vec()
}

#[test]
fn gdal_alone_opens_what_is_handed_out_in_two_requests() {
    let stage = Stage::new();
    let location = stage.scene(Band::Red);
    let path = stage.path(&location.to_href());
    assert!(path.starts_with("/vsirss/"), "{path}");
    assert_eq!(Location::parse(&path).unwrap(), location);
    assert_eq!(stage.requests(), [""; 0]);
    let dataset = Dataset::open(&path).unwrap();
    assert_eq!(
        block(&dataset, [512, 0, 512, 512]),
        stage.truth(Band::Red, [512, 0, 512, 512])
    );
    // No HEAD, no listing, no side-car file.
    assert_eq!(stage.requests(), ["GET", "GET"]);
    let log = stage.bed.requests(Service::S3);
    let is_tied: Vec<bool> = log.iter().map(|sent| sent.if_match.is_some()).collect();
    assert_eq!(is_tied, [false, true]);
}

#[test]
fn gdal_needs_as_few_requests_as_by_its_own_file_systems() {
    type Work = fn(&Session, &Location);
    let work: [(&str, Work); 3] = [
        ("tile", |session, location| {
            let raster = session.open(location, Backend::Gdal).unwrap();
            raster.read(&window("512,512,512,512")).unwrap();
        }),
        ("window", |session, location| {
            let raster = session.open(location, Backend::Gdal).unwrap();
            raster.read(&window("100,100,900,900")).unwrap();
        }),
        ("translate", |session, location| {
            let (items, dir) = (
                of_hrefs(&[&location.to_href()]),
                tempfile::tempdir().unwrap(),
            );
            let options = GetOptions::default();
            let got = session.get(&items, &[], &Origin::default(), dir.path(), &options);
            got.unwrap();
        }),
    ];
    let size = Size {
        width: 2048,
        height: 2048,
    };
    let mut pixels = Pixels::zeros(DataType::U8, 1, size).unwrap();
    if let Pixels::U8(samples) = &mut pixels {
        let mut state = 7_u32;
        for sample in samples.iter_mut() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *sample = state.to_be_bytes()[0];
        }
    }
    let strips = Raster {
        pixels,
        geobox: GeoBox {
            size,
            crs: None,
            transform: None,
        },
        nodata: None,
        sparse: Vec::new(),
    };
    let dir = tempfile::tempdir().unwrap();
    strips.save(&dir.path().join("strips.tif")).unwrap();
    let strips = std::fs::read(dir.path().join("strips.tif")).unwrap();
    let work = work.iter().flat_map(|work| [(work, false), (work, true)]);
    for ((name, work), is_in_strips) in work {
        let cost = |reads| {
            let _alone = super::alone();
            let cache = tempfile::tempdir().unwrap();
            let stage = Stage::with(|builder| builder.gdal_reads(reads).cache_dir(cache.path()));
            stage.session.clear_caches().unwrap();
            stage.bed.put("bucket", "strips.tif", strips.clone());
            match is_in_strips {
                true => work(
                    &stage.session,
                    &Location::parse("s3://bucket/strips.tif").unwrap(),
                ),
                false => work(&stage.session, &stage.scene(Band::Red)),
            }
            let log = stage.bed.requests(Service::S3);
            (log.len(), log.iter().map(|sent| sent.bytes).sum::<u64>())
        };
        let (ours, gdals) = (cost(GdalReads::Stores), cost(GdalReads::Vsi));
        // A translation reads a row of tiles at a time, exactly; GDAL reads ahead of what it asks for.
        assert!(
            ours.0 <= gdals.0 + usize::from(*name == "translate"),
            "{name} {is_in_strips}: {ours:?} and {gdals:?}"
        );
        // Gaps between tiles are fetched, as one request is cheaper than two, and some bytes ahead.
        assert!(
            ours.1 <= gdals.1 * 3 / 2 + 65_536,
            "{name} {is_in_strips}: {ours:?} and {gdals:?}"
        );
    }
}

#[test]
fn stores_are_gdals_way_unless_another_is_chosen() {
    assert_eq!(GdalReads::default(), GdalReads::Stores);
    assert_eq!("vsi".parse::<GdalReads>().unwrap(), GdalReads::Vsi);
    let err = "curl".parse::<GdalReads>().unwrap_err();
    assert_eq!(err.message(), "`curl` is not one of stores, vsi");
}

#[test]
fn a_second_dataset_of_an_open_file_shares_its_header() {
    let stage = Stage::new();
    let path = stage.path(&stage.scene(Band::Red).to_href());
    let first = Dataset::open(&path).unwrap();
    let second = Dataset::open(&path).unwrap();
    assert_eq!(stage.requests(), ["GET"]);
    drop((first, second));
    // Nobody has it open: it is asked for anew, and may be another file.
    let key = stage.bed.scenes()[0].key(Band::Red).to_owned();
    stage.bed.put(BUCKET, &key, stage.bytes(Band::Nir));
    let dataset = Dataset::open(&path).unwrap();
    assert_eq!(
        block(&dataset, [0, 0, 8, 8]),
        stage.truth(Band::Nir, [0, 0, 8, 8])
    );
    assert_eq!(stage.requests(), ["GET", "GET", "GET"]);
}

#[test]
fn a_window_of_many_tiles_costs_few_requests() {
    let stage = Stage::new();
    let gdal = stage.open(&stage.scene(Band::Red)).unwrap();
    let all = gdal.read(&ReadRequest::new()).unwrap();
    let requests = stage.requests().len();
    let cog = stage
        .session
        .open(&stage.scene(Band::Red), Backend::Cog)
        .unwrap();
    assert_eq!(all, cog.read(&ReadRequest::new()).unwrap());
    // The header, and no more than the COG backend asks for.
    assert!(requests <= stage.requests().len() - requests);
    assert!(requests <= 3, "{requests}");
}

#[test]
fn a_file_that_changes_is_an_error_and_never_mixed_pixels() {
    let stage = Stage::new();
    let location = stage.scene(Band::Red);
    let first = stage.open(&location).unwrap();
    first.read(&window("0,0,16,16")).unwrap();
    let key = stage.bed.scenes()[0].key(Band::Red).to_owned();
    stage.bed.put(BUCKET, &key, stage.bytes(Band::Nir));
    let requests: Vec<ReadRequest> = (0..8).map(|_| window("600,600,16,16")).collect();
    for _ in 0..2 {
        // On whatever thread: a reader stays with the file it opened.
        let err = first.read_many(&requests).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Changed, "{err}");
        assert!(err.message().contains("changed"), "{err}");
        assert_eq!(err.location(), Some(&*location.to_string()));
    }
    let second = stage.open(&location).unwrap();
    let pixels = second.read(&requests[0]).unwrap().pixels;
    let truth = stage.truth(Band::Nir, [600, 600, 16, 16]);
    assert!(pixels.view::<i16>().unwrap().iter().eq(&truth));
}

#[test]
fn a_handed_out_path_recovers_from_a_change() {
    let stage = Stage::new();
    let path = stage.path(&stage.scene(Band::Red).to_href());
    let old = Dataset::open(&path).unwrap();
    let key = stage.bed.scenes()[0].key(Band::Red).to_owned();
    stage.bed.put(BUCKET, &key, stage.bytes(Band::Nir));
    let band = old.rasterband(1).unwrap();
    let read = band.read_as::<i16>((600, 600), (16, 16), (16, 16), None);
    assert!(read.is_err());
    // The old dataset is still open; one who opens the path now gets the new file.
    let new = Dataset::open(&path).unwrap();
    assert_eq!(
        block(&new, [600, 600, 16, 16]),
        stage.truth(Band::Nir, [600, 600, 16, 16])
    );
}

#[test]
fn an_answer_that_breaks_off_is_asked_for_again() {
    for fault in [Fault::slow_down(), Fault::Short, Fault::Cut] {
        for skip in [0, 1] {
            let stage = Stage::new();
            let rule = Rule::new(fault.clone()).skip(skip).times(1);
            stage.bed.fault(rule);
            let raster = stage.open(&stage.scene(Band::Red)).unwrap();
            let pixels = raster.read(&window("512,0,512,512")).unwrap().pixels;
            let truth = stage.truth(Band::Red, [512, 0, 512, 512]);
            assert!(pixels.view::<i16>().unwrap().iter().eq(&truth), "{fault:?}");
            assert_eq!(stage.requests().len(), 3, "{fault:?} {skip}");
        }
    }
}

#[test]
fn a_missing_file_is_not_found_in_one_request() {
    let stage = Stage::new();
    let location = Location::parse(&format!("s3://{BUCKET}/none.tif")).unwrap();
    let err = stage.open(&location).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::NotFound, "{err}");
    assert_eq!(err.location(), Some(&*location.to_string()));
    assert_eq!(stage.requests(), ["GET"]);
}

#[test]
fn gdal_alone_says_what_went_wrong() {
    let stage = Stage::with(|builder| builder.retries(0));
    let missing = stage.path(&format!("s3://{BUCKET}/none.tif"));
    let err = Dataset::open(missing).unwrap_err().to_string();
    let said = format!("NotFound: no such file (HTTP 404, NoSuchKey) [s3://{BUCKET}/none.tif]");
    assert!(err.contains(&said), "{err}");
    stage.bed.fault(Rule::new(Fault::status(403)));
    let denied = stage.path(&stage.scene(Band::Red).to_href());
    let err = Dataset::open(denied).unwrap_err().to_string();
    assert!(
        err.contains("Denied: the server refused access (HTTP 403)"),
        "{err}"
    );
    let url = stage.bed.http_url(BUCKET, "none.tif");
    let signed = stage.path(&format!("{url}?X-Amz-Signature=CANARYSECRET"));
    let err = Dataset::open(signed).unwrap_err().to_string();
    assert!(err.contains(&url) && !err.contains("CANARY"), "{err}");
}

#[test]
fn what_was_not_handed_out_is_not_there_and_costs_nothing() {
    let stage = Stage::new();
    let path = stage.path(&stage.scene(Band::Red).to_href());
    for other in [
        format!("{path}.ovr"),
        path.replace("band04", "band08"),
        "/vsirss/".to_owned(),
        "/vsirss/x/s3/b/k.tif".to_owned(),
    ] {
        assert!(Dataset::open(&other).is_err(), "{other}");
    }
    assert_eq!(stage.requests(), [""; 0]);
}

#[test]
fn side_files_are_found_where_gdal_is_to_look_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let save = |name: &str, side: u32| {
        let size = Size {
            width: side,
            height: side,
        };
        let raster = Raster {
            pixels: Pixels::zeros(DataType::U8, 1, size).unwrap(),
            geobox: GeoBox {
                size,
                crs: None,
                transform: None,
            },
            nodata: None,
            sparse: Vec::new(),
        };
        let path = dir.path().join(name);
        raster.save(&path).unwrap();
        std::fs::read(path).unwrap()
    };
    for (option, overviews) in [("EMPTY_DIR", 0), ("TRUE", 1), ("NO", 1)] {
        let stage =
            Stage::with(|builder| builder.gdal_option("GDAL_DISABLE_READDIR_ON_OPEN", option));
        stage.bed.put("bucket", "x.tif", save("x.tif", 64));
        stage.bed.put("bucket", "x.tif.ovr", save("ovr.tif", 32));
        let location = Location::parse("s3://bucket/x.tif").unwrap();
        let raster = stage.open(&location).unwrap();
        assert_eq!(raster.profile().overviews.len(), overviews, "{option}");
        if overviews == 0 {
            assert_eq!(stage.requests(), ["GET"]);
        } else {
            let level = raster.read(&ReadRequest::new().with_level(1)).unwrap();
            assert_eq!(level.pixels.shape(), [1, 32, 32]);
        }
    }
}

#[test]
fn a_path_outlives_its_session_as_an_error() {
    let stage = Stage::new();
    let path = stage.path(&stage.scene(Band::Red).to_href());
    let dataset = Dataset::open(&path).unwrap();
    let Stage { bed, session } = stage;
    drop(session);
    // An open dataset keeps what it needs.
    let truth = bed.scenes()[0].window(Band::Red, 0, 0, 8, 8);
    assert_eq!(block(&dataset, [0, 0, 8, 8]), truth);
    drop(dataset);
    let err = Dataset::open(&path).unwrap_err().to_string();
    assert!(err.contains("was dropped: keep it while"), "{err}");
}

#[test]
fn two_sessions_with_one_bucket_name_do_not_meet() {
    let (a, b) = (Stage::new(), Stage::new());
    let location = a.scene(Band::Red);
    let key = b.bed.scenes()[0].key(Band::Red).to_owned();
    b.bed.put(BUCKET, &key, b.bytes(Band::Nir));
    let (path_a, path_b) = (a.path(&location.to_href()), b.path(&location.to_href()));
    assert_ne!(path_a, path_b);
    let (in_a, in_b) = (
        Dataset::open(&path_a).unwrap(),
        Dataset::open(&path_b).unwrap(),
    );
    let (red, nir) = (
        a.truth(Band::Red, [300, 300, 9, 9]),
        a.truth(Band::Nir, [300, 300, 9, 9]),
    );
    assert_ne!(red, nir);
    for _ in 0..2 {
        assert_eq!(block(&in_a, [300, 300, 9, 9]), red);
        assert_eq!(block(&in_b, [300, 300, 9, 9]), nir);
    }
}

#[test]
fn a_signed_address_is_opened_and_not_shown() {
    let stage = Stage::new();
    let key = stage.bed.scenes()[0].key(Band::Red).to_owned();
    let url = stage.bed.http_url(BUCKET, &key);
    let path = stage.path(&format!("{url}?X-Amz-Signature=CANARYSECRET"));
    assert!(!path.contains("CANARY"), "{path}");
    let dataset = Dataset::open(&path).unwrap();
    assert_eq!(
        block(&dataset, [0, 0, 8, 8]),
        stage.truth(Band::Red, [0, 0, 8, 8])
    );
    let err = Location::parse(&path).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
}
