//! Entries to columns and back, and what other tools find in the file.

use std::path::Path;

use proptest::prelude::*;
use rss_core::{
    Backend, Bbox, ColorInterp, Crs, DataType, Entry, ErrorKind, GeoTransform, Location, Session,
    Size,
    index::{Index, Select, Writer},
    reader::{self, BandProfile, Header, Image, Tiles, Version},
};
use serde_json::json;

use super::{entry, item, written};

fn side() -> impl Strategy<Value = Size> {
    (1..=u32::MAX, 1..=u32::MAX).prop_map(|(width, height)| Size { width, height })
}

fn tiles() -> impl Strategy<Value = Tiles> {
    prop::collection::vec((1_u64..1 << 60, 0_u64..1 << 30), 0..40).prop_map(|list| {
        let (offsets, sizes) = list
            .into_iter()
            .map(|(offset, size)| {
                if size % 4 == 0 {
                    (0, 0)
                } else {
                    (offset, size)
                }
            })
            .unzip();
        Tiles::new(offsets, sizes)
    })
}

fn image() -> impl Strategy<Value = Image> {
    let numbers = prop::array::uniform6(any::<u16>());
    let tables = prop::option::of(prop::collection::vec(any::<u8>(), 0..50));
    let flags = (any::<bool>(), any::<bool>());
    (
        side(),
        side(),
        any::<(u16, u16)>(),
        numbers,
        tables,
        flags,
        tiles(),
    )
        .prop_map(
            |(size, tile, (bits, format), numbers, tables, (planar, reversed), tiles)| {
                let mut image = Image::new(size, tile, bits, format, tiles);
                [
                    image.bands,
                    image.compression,
                    image.compression_option,
                    image.predictor,
                    image.photometric,
                    _,
                ] = numbers;
                image.planar = planar;
                image.bits_reversed = reversed;
                image.jpeg_tables = tables.map(Into::into);
                image
            },
        )
}

fn band() -> impl Strategy<Value = BandProfile> {
    let text = || prop::option::of(any::<String>());
    let number = || prop::option::of(-1e300..1e300);
    let color = prop::sample::select(vec![
        ColorInterp::Red,
        ColorInterp::Alpha,
        ColorInterp::Undefined,
    ]);
    (color, text(), number(), number(), text()).prop_map(
        |(color, description, scale, offset, unit)| {
            let mut band = BandProfile::default();
            band.color = color;
            (band.description, band.unit) = (description, unit);
            (band.scale, band.offset) = (scale, offset);
            band
        },
    )
}

fn header() -> impl Strategy<Value = Header> {
    let crs = prop_oneof![
        Just(None),
        any::<u32>().prop_map(|code| Some(Crs::Epsg(code))),
        any::<String>().prop_map(|text| Some(Crs::Wkt(text))),
    ];
    let levels = prop::collection::vec((image(), prop::option::of(image())), 1..4);
    let texts = prop::collection::vec(any::<(String, String)>(), 0..3);
    let palette = prop::option::of(prop::collection::vec(any::<[u8; 3]>(), 0..5));
    let transform = prop::option::of(prop::array::uniform6(-1e9..1e9));
    let nodata = prop::option::of(prop_oneof![Just(f64::INFINITY), -1e300..1e300]);
    let small = (
        any::<(bool, bool)>(),
        0_u64..1 << 62,
        prop::sample::select(DataType::ALL.to_vec()),
    );
    let bands = prop::collection::vec(band(), 0..4);
    (crs, levels, texts, palette, transform, nodata, small, bands).prop_map(
        |(crs, levels, metadata, palette, transform, nodata, small, bands)| {
            let ((little, point), bytes, dtype) = small;
            let (levels, masks) = levels.into_iter().unzip();
            let mut header = Header::new(dtype, levels);
            header.masks = masks;
            (
                header.little_endian,
                header.pixel_is_point,
                header.header_bytes,
            ) = (little, point, bytes);
            header.crs = crs;
            header.nodata = nodata.map(Into::into);
            header.transform = transform.map(GeoTransform);
            (header.bands, header.palette, header.metadata) = (bands, palette, metadata);
            header
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_entry_comes_back(
        headers in prop::collection::vec((header(), any::<(u32, Option<String>, Option<String>)>(), prop::option::of(0_i64..1 << 42)), 1..5)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.parquet");
        let like = item("like", &["red"]);
        let mut writer = Writer::create(&path, [&like], ["red"]).unwrap();
        let mut entries = Vec::new();
        for (number, (header, (size, etag, checksum), time)) in headers.into_iter().enumerate() {
            let id = number.to_string();
            let time = time.map(|time| chrono::DateTime::from_timestamp_millis(time).unwrap());
            let version = Version::of_size(u64::from(size))
                .with_etag(etag)
                .with_checksum(checksum)
                .with_last_modified(time);
            let location = Location::parse(&format!("s3://bucket/{id}/red.tif")).unwrap();
            let entry = Entry::new(location, version, header);
            writer.push(&item(&id, &["red"]), &[("red", &entry)]).unwrap();
            entries.push(entry);
        }
        writer.finish().unwrap();
        let index = Index::open(&path).unwrap();
        for (number, entry) in entries.iter().enumerate() {
            let found = index.entry(&number.to_string(), "red").unwrap();
            prop_assert_eq!(found.as_ref(), Some(entry));
        }
        let all: Vec<Entry> = index.entries(&Select::all()).unwrap().map(|one| one.unwrap().entry).collect();
        prop_assert_eq!(all, entries);
    }
}

#[test]
fn nodata_that_is_no_number_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let mut one = entry("a", "red", 3);
    std::sync::Arc::make_mut(&mut one.header).nodata = Some(f64::NAN.into());
    let mut writer = Writer::create(&path, [&item("a", &["red"])], ["red"]).unwrap();
    writer.push(&item("a", &["red"]), &[("red", &one)]).unwrap();
    writer.finish().unwrap();
    let found = Index::open(&path)
        .unwrap()
        .entry("a", "red")
        .unwrap()
        .unwrap();
    assert!(found.header.nodata.unwrap().is_nan());
}

#[tokio::test]
async fn every_fixture_comes_back() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiff/files");
    let session = Session::builder().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let mut entries = Vec::new();
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    for file in files {
        let location = Location::parse(file.to_str().unwrap()).unwrap();
        let Ok(raster) = reader::open(&session, &location, Backend::Cog).await else {
            continue;
        };
        if let Ok(entry) = raster.entry().await {
            entries.push(entry);
        }
    }
    assert!(entries.len() > 50, "{}", entries.len());
    let item = |number: usize, entry: &Entry| {
        let mut item = item(&number.to_string(), &["red"]);
        item.assets["red"].href = entry.location.to_href();
        item
    };
    let mut writer = Writer::create(&path, [&item(0, &entries[0])], ["red"]).unwrap();
    for (number, entry) in entries.iter().enumerate() {
        writer
            .push(&item(number, entry), &[("red", entry)])
            .unwrap();
    }
    writer.finish().unwrap();
    let index = Index::open(&path).unwrap();
    let found = index.entries(&Select::all()).unwrap();
    for (found, entry) in found.zip(&entries) {
        let found = found.unwrap().entry;
        // NaN is not equal to itself: its text is.
        assert_eq!(
            format!("{found:?}"),
            format!("{entry:?}"),
            "{}",
            entry.location
        );
        let again = reader::open(&session, &found, Backend::Cog).await;
        assert!(again.is_ok(), "{}: {:?}", entry.location, again.err());
    }
}

#[test]
fn items_are_found_by_id_place_and_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let place = |id: &str, west: f64, day: u32| {
        let mut item = item(id, &["red", "nir"]);
        let east = if west > 179.0 {
            west - 359.0
        } else {
            west + 1.0
        };
        item.bbox = Some(vec![west, 0.0, east, 1.0].try_into().unwrap());
        let time = format!("2021-01-{day:02}T00:00:00Z").parse().unwrap();
        item.properties.datetime = Some(time);
        item
    };
    let mut nowhere = item("nowhere", &["red"]);
    (nowhere.geometry, nowhere.bbox, nowhere.properties.datetime) = (None, None, None);
    let items = [
        place("a", 10.0, 1),
        place("b", 179.5, 2),
        nowhere,
        place("d", 30.0, 4),
    ];
    let mut writer = Writer::create(&path, &items, ["red", "nir"]).unwrap();
    for item in &items {
        let red = entry(&item.id, "red", 5);
        let nir = entry(&item.id, "nir", 7);
        let mut entries = vec![("red", &red)];
        if item.id == "a" {
            entries.push(("nir", &nir));
        }
        writer.push(item, &entries).unwrap();
    }
    writer.finish().unwrap();
    let index = Index::open(&path).unwrap();
    let found = |select: Select| -> Vec<String> {
        let found = index.entries(&select).unwrap().map(Result::unwrap);
        found
            .map(|one| format!("{}.{}", one.item, one.asset))
            .collect()
    };
    assert_eq!(
        found(Select::all()),
        ["a.nir", "a.red", "b.red", "nowhere.red", "d.red"]
    );
    assert_eq!(
        found(Select::all().with_ids(["d", "a", "x"]).with_assets(["red"])),
        ["a.red", "d.red"]
    );
    let bbox = Bbox::new(10.5, 0.5, 11.5, 0.6).unwrap();
    assert_eq!(found(Select::all().with_bbox(bbox)), ["a.nir", "a.red"]);
    let bbox = Bbox::new(179.0, 0.5, -179.0, 0.6).unwrap();
    assert_eq!(found(Select::all().with_bbox(bbox)), ["b.red"]);
    let day = |text: &str| Some(format!("2021-01-{text}T00:00:00Z").parse().unwrap());
    assert_eq!(
        found(Select::all().with_times(day("02"), day("04"))),
        ["b.red", "d.red"]
    );
    assert_eq!(found(Select::all().with_times(day("05"), None)), [""; 0]);
    assert_eq!(found(Select::all().with_assets(["swir"])), [""; 0]);
    assert_eq!(index.entry("a", "swir").unwrap(), None);
    assert_eq!(
        index.entry("nowhere", "red").unwrap(),
        Some(entry("nowhere", "red", 5))
    );

    let info = index.info();
    assert_eq!(
        (info.version, info.items, info.files, info.row_groups),
        (1, 4, 5, 1)
    );
    let assets: Vec<_> = info
        .assets
        .iter()
        .map(|asset| (asset.key.as_str(), asset.files, asset.tiles))
        .collect();
    assert_eq!(assets, [("nir", 1, 7), ("red", 4, 20)]);

    let at = |href: &str| Location::parse(href).unwrap();
    let found = index
        .find(&[
            at("https://bucket.s3.us-west-2.amazonaws.com/d/red.tif"),
            at("s3://bucket/x/red.tif"),
            at("/vsis3/bucket/a/nir.tif"),
            at("s3://bucket/a/red.tif"),
            at("s3://bucket/b/nir.tif"),
        ])
        .unwrap();
    let there: Vec<bool> = found.iter().map(Option::is_some).collect();
    assert_eq!(there, [true, false, true, true, false]);
    assert_eq!(found[2], Some(entry("a", "nir", 7)));
    assert_eq!(
        found[0].as_ref().unwrap().header,
        entry("d", "red", 5).header
    );
}

#[test]
fn what_does_not_belong_to_an_index_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let mut writer = Writer::create(&path, [&item("a", &["red"])], ["red"]).unwrap();
    let mut other = item("a", &["red"]);
    other
        .properties
        .additional_fields
        .insert("new".to_owned(), json!(1));
    let one = entry("a", "red", 1);
    let mut two = one.clone();
    let far = Tiles::new(vec![u64::MAX], vec![1]);
    std::sync::Arc::make_mut(&mut two.header).levels[0].tiles = far.into();
    for (item, entries, kind) in [
        (&other, ("red", &one), ErrorKind::InvalidInput),
        (&item("a", &["nir"]), ("red", &one), ErrorKind::InvalidInput),
        (&item("a", &["red"]), ("nir", &one), ErrorKind::InvalidInput),
        (&item("a", &["red"]), ("red", &two), ErrorKind::Unsupported),
    ] {
        assert_eq!(writer.push(item, &[entries]).unwrap_err().kind(), kind);
    }
    assert!(!path.exists(), "nothing is there before the end");
    drop(writer);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn no_secret_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let mut item = item("a", &["red"]);
    let signed = "https://h.example/a/red.tif?v=2&st=CANARY&sig=CANARY";
    item.assets["red"].href = signed.to_owned();
    let token = json!({"s": "https://me:CANARY@h.example/x", "l": ["https://h/x?token=CANARY"]});
    item.properties
        .additional_fields
        .insert("odd".to_owned(), token);
    let mut one = entry("a", "red", 1);
    one.location = Location::parse(signed).unwrap();
    let mut writer = Writer::create(&path, [&item], ["red"]).unwrap();
    writer.push(&item, &[("red", &one)]).unwrap();
    writer.finish().unwrap();
    let index = Index::open(&path).unwrap();
    let found = index.entry("a", "red").unwrap().unwrap();
    assert_eq!(found.location.to_href(), "https://h.example/a/red.tif?v=2");
    // The signed address finds it, and is what is read from then on.
    let found = index.find(std::slice::from_ref(&one.location)).unwrap();
    assert_eq!(found[0].as_ref(), Some(&one));
    let bytes = std::fs::read(&path).unwrap();
    assert!(!bytes.windows(6).any(|window| window == b"CANARY"));
}

#[test]
fn a_version_that_is_not_known_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    written(&path, &[1]);
    let bytes = std::fs::read(&path).unwrap();
    let at = bytes
        .windows(13)
        .rposition(|window| window == b"\"version\":1,\"")
        .unwrap();
    let mut other = bytes.clone();
    other[at + 10] = b'2';
    std::fs::write(&path, other).unwrap();
    let err = Index::open(&path).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Unsupported);
    assert!(err.message().contains("version 2, expected 1"), "{err}");
}
