//! Entries of an index: one request for a tile, and never a tile of another version.

use std::{path::Path, sync::Arc};

use rss_core::{
    Backend, Entry, ErrorKind, Location, ReadRequest, Session, Size, Window,
    reader::{self, Image, Tiles},
};
use rss_testbed::{BUCKET, Band, Fault, Rule, Scenes, Service, Testbed};

use crate::reading::tiff::Tiff;

fn session(bed: &Testbed) -> Session {
    let builder = Session::builder().s3_endpoint(&bed.s3_endpoint());
    builder.retries(1).build().unwrap()
}

async fn entry(bed: &Testbed, location: &Location) -> Entry {
    let raster = reader::open(&session(bed), location, Backend::Cog).await;
    let entry = raster.unwrap().entry().await.unwrap();
    bed.clear_log();
    entry
}

fn tile() -> ReadRequest {
    ReadRequest::new().with_window("512,0,512,512".parse().unwrap())
}

#[tokio::test]
async fn a_tile_of_a_known_file_costs_one_request() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let scene = &bed.scenes()[0];
    let location = Location::parse(&format!("s3://{BUCKET}/{}", scene.key(Band::Red))).unwrap();
    let entry = entry(&bed, &location).await;
    assert_eq!(entry.header.levels.len(), entry.header.masks.len());

    for backend in [Backend::Cog, Backend::Auto] {
        let session = session(&bed);
        let raster = reader::open(&session, &entry, backend).await.unwrap();
        assert_eq!(bed.log().len(), 0, "opening asks for nothing");
        let read = raster.read(&tile()).await.unwrap();
        let samples: Vec<i16> = read.pixels.view::<i16>().unwrap().iter().copied().collect();
        assert_eq!(samples, scene.window(Band::Red, 512, 0, 512, 512));
        let log = bed.log();
        assert_eq!(log.len(), 1);
        assert!(
            log[0].if_match.is_some(),
            "the version is checked in the same request"
        );
        assert_eq!(session.traffic().requests, 1);
        bed.clear_log();
    }
    let opened = reader::open(&session(&bed), &location, Backend::Cog)
        .await
        .unwrap();
    let known = reader::open(&session(&bed), &entry, Backend::Cog)
        .await
        .unwrap();
    assert_eq!(opened.profile(), known.profile());
    assert_eq!(known.entry().await.unwrap(), entry);
}

#[tokio::test]
async fn a_file_that_changed_is_never_decoded_by_its_old_entry() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let bytes = |scene: usize| std::fs::read(bed.scenes()[scene].file(Band::Red).unwrap()).unwrap();
    let (first, second) = (bytes(0), bytes(1));
    let half = first[..first.len() / 2].to_vec();
    bed.put("bucket", "a.tif", first);
    let at_s3 = Location::parse("s3://bucket/a.tif").unwrap();
    let at_http = Location::parse(&bed.http_url("bucket", "a.tif")).unwrap();
    let entries = [entry(&bed, &at_s3).await, entry(&bed, &at_http).await];
    for (bytes, what) in [(second, "replaced"), (half, "cut short")] {
        bed.put("bucket", "a.tif", bytes);
        for entry in &entries {
            let raster = reader::open(&session(&bed), entry, Backend::Auto)
                .await
                .unwrap();
            let err = raster.read(&tile()).await.unwrap_err();
            assert_eq!(err.kind(), ErrorKind::Changed, "{what}: {err}");
            let place = entry.location.to_string();
            assert_eq!(err.location(), Some(place.as_str()));
        }
    }
}

#[tokio::test]
async fn what_is_gone_or_refused_is_said_so() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let key = bed.scenes()[0].key(Band::Red).to_owned();
    let location = Location::parse(&format!("s3://{BUCKET}/{key}")).unwrap();
    let entry = entry(&bed, &location).await;
    let read = async || {
        let raster = reader::open(&session(&bed), &entry, Backend::Auto)
            .await
            .unwrap();
        raster.read(&tile()).await.unwrap_err().kind()
    };
    bed.fault(Rule::new(Fault::status(404)).on(Service::S3));
    assert_eq!(read().await, ErrorKind::NotFound);
    bed.clear_faults();
    bed.fault(Rule::new(Fault::status(403)).on(Service::S3));
    assert_eq!(read().await, ErrorKind::Denied);
}

#[tokio::test]
async fn a_local_file_is_checked_when_it_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tif");
    std::fs::write(&path, Tiff::new(64, 16).build()).unwrap();
    let session = Session::builder().build().unwrap();
    let location = Location::parse(path.to_str().unwrap()).unwrap();
    let raster = reader::open(&session, &location, Backend::Cog)
        .await
        .unwrap();
    let entry = raster.entry().await.unwrap();
    assert!(reader::open(&session, &entry, Backend::Cog).await.is_ok());
    std::fs::write(&path, Tiff::new(80, 16).build()).unwrap();
    let err = reader::open(&session, &entry, Backend::Cog)
        .await
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Changed);
}

/// Every file of others that the COG reader reads: the same pixels and masks of every level by its entry.
#[tokio::test]
async fn an_entry_holds_all_that_reading_needs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiff/files");
    let session = Session::builder().build().unwrap();
    let mut read = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let location = Location::parse(path.to_str().unwrap()).unwrap();
        let Ok(opened) = reader::open(&session, &location, Backend::Cog).await else {
            continue;
        };
        let Ok(entry) = opened.entry().await else {
            continue;
        };
        let known = reader::open(&session, &entry, Backend::Cog).await.unwrap();
        // NaN is nodata of some: no two are equal. An entry says nothing of what is odd of the file.
        let profiles = [&opened, &known].map(|raster| {
            let mut profile = raster.profile().clone();
            profile.gcps = 0;
            profile.notes.clear();
            format!("{profile:?}")
        });
        assert_eq!(profiles[0], profiles[1]);
        for level in 0..=opened.profile().overviews.len() {
            let request = ReadRequest::new().with_level(level);
            let (Ok(one), other) = (opened.read(&request).await, known.read(&request).await) else {
                continue;
            };
            let other = other.unwrap();
            assert_eq!(
                one.pixels.to_le_bytes(),
                other.pixels.to_le_bytes(),
                "{location}"
            );
            assert_eq!(one.sparse, other.sparse, "{location}");
            let masks = (
                opened.read_mask(&request).await,
                known.read_mask(&request).await,
            );
            if let (Ok(one), other) = masks {
                assert_eq!(
                    one.pixels.to_le_bytes(),
                    other.unwrap().pixels.to_le_bytes()
                );
            }
            read += 1;
        }
    }
    assert!(read >= 50, "{read}");
}

#[tokio::test]
async fn large_tables_are_read_whole_for_an_entry() {
    let bed = Testbed::builder().start().unwrap();
    // 90,000 tiles: tables of 720 KB each, which opening leaves alone.
    for (key, tiff) in [
        ("plain.tif", Tiff::new(4800, 16)),
        ("ghost.tif", Tiff::new(4800, 16).with_ghost()),
        ("sparse.tif", Tiff::new(4800, 16).with_only(301)),
    ] {
        bed.put("bucket", key, tiff.build());
        let location = Location::parse(&format!("s3://bucket/{key}")).unwrap();
        let entry = entry(&bed, &location).await;
        assert_eq!(entry.header.levels[0].tiles.len(), 90_000);
        let raster = reader::open(&session(&bed), &entry, Backend::Cog)
            .await
            .unwrap();
        // Tile 301 is the second of the second row.
        let window: Window = "16,16,16,16".parse().unwrap();
        let read = raster
            .read(&ReadRequest::new().with_window(window))
            .await
            .unwrap();
        let samples = read.pixels.view::<u8>().unwrap();
        assert!(
            samples.iter().all(|&sample| sample == Tiff::value(1, 1)),
            "{key}"
        );
        assert_eq!(bed.log().len(), 1);
        let corner = ReadRequest::new().with_window("0,0,16,16".parse().unwrap());
        let corner = raster.read(&corner).await.unwrap();
        assert_eq!(corner.sparse.len(), usize::from(key == "sparse.tif"));
        assert_eq!(bed.log().len(), if key == "sparse.tif" { 1 } else { 2 });
    }
}

#[tokio::test]
async fn an_entry_that_contradicts_itself_is_refused() {
    let session = Session::builder().build().unwrap();
    let location = Location::parse("s3://bucket/a.tif").unwrap();
    let side = |width| Size { width, height: 16 };
    let image = |tiles| Image::new(side(32), side(16), 8, 1, tiles);
    let good = image(Tiles::new(vec![100, 200], vec![50, 50]));
    let header = reader::Header::new(rss_core::DataType::U8, vec![good.clone()]);
    let at = |header| {
        Entry::new(
            location.clone(),
            reader::Version::of_size(1000),
            Arc::new(header),
        )
    };
    let open = async |header| {
        let opened = reader::open(&session, &at(header), Backend::Cog).await;
        opened.map(|_| ()).map_err(|err| err.kind())
    };
    assert_eq!(open(header.clone()).await, Ok(()));

    let mut short = header.clone();
    short.levels[0] = image(Tiles::new(vec![100], vec![50]));
    let mut uneven = header.clone();
    uneven.levels[0] = image(Tiles::new(vec![100, 200], vec![50]));
    let mut no_levels = header.clone();
    no_levels.levels.clear();
    let mut other_type = header.clone();
    other_type.dtype = rss_core::DataType::F64;
    let mut no_bands = header.clone();
    no_bands.bands.clear();
    let mut no_masks = header.clone();
    no_masks.masks.clear();
    for header in [short, uneven, no_levels, other_type, no_bands, no_masks] {
        assert_eq!(open(header).await, Err(ErrorKind::Corrupt));
    }
    let mut huge = header.clone();
    huge.levels[0].tile = side(0);
    assert_eq!(open(huge).await, Err(ErrorKind::Corrupt));
    let mut odd = header.clone();
    odd.levels[0].compression = 6;
    assert_eq!(open(odd).await, Err(ErrorKind::Unsupported));

    // A range past the object: nothing is asked for.
    let mut past = header;
    past.levels[0] = image(Tiles::new(vec![100, u64::MAX - 5], vec![50, 50]));
    let raster = reader::open(&session, &at(past), Backend::Cog)
        .await
        .unwrap();
    let err = raster.read(&ReadRequest::new()).await.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Corrupt);
    assert_eq!(session.traffic().requests, 0);
}
