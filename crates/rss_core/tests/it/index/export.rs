//! Exports: what is written names the right bytes, and what cannot be said is left out with a reason.
//! `scripts/check_exports.py` reads the pixels.

use std::{fs, path::Path};

use rss_core::{
    Crs, Entry, GeoTransform, Location, Session, Size,
    index::{self, BuildSource, Builder, ExportFormat, Exported, Index, Select},
};
use serde_json::{Value, json};

use super::{entry, item};

/// Writes an index of items with one asset, `red`: id, time and entry of each.
fn index_of(path: &Path, items: &[(&str, &str, Entry)]) -> Index {
    let mut writer = index::Writer::create(path, [&item("like", &["red"])], ["red"]).unwrap();
    for (id, time, entry) in items {
        let mut item = item(id, &["red"]);
        item.properties.datetime = Some(time.parse().unwrap());
        writer.push(&item, &[("red", entry)]).unwrap();
    }
    writer.finish().unwrap();
    Index::open(path).unwrap()
}

fn exported(index: &Index, format: ExportFormat, out: &Path) -> (Exported, String) {
    let files = index.entries(&Select::all()).unwrap();
    let exported = index::export(files, format, out).unwrap();
    (exported, fs::read_to_string(out).unwrap())
}

/// Returns an entry like that of an id, with its header changed.
fn changed(id: &str, change: impl FnOnce(&mut rss_core::reader::Header)) -> Entry {
    let entry = entry(id, "red", 3);
    let mut header = (*entry.header).clone();
    change(&mut header);
    Entry::new(entry.location, entry.version, header)
}

/// Returns an entry whose grid begins so many metres further east.
fn moved(id: &str, by: f64) -> Entry {
    changed(id, |header| {
        header.transform = Some(GeoTransform([1.0 + by, 10.0, 0.0, 2.0, 0.0, -10.0]));
    })
}

fn compressed(header: &mut rss_core::reader::Header) {
    header.levels[0].compression = 8;
    header.levels[0].predictor = 2;
}

#[test]
fn a_file_is_a_group_and_a_tile_is_a_reference() {
    let dir = tempfile::tempdir().unwrap();
    let mut sparse = changed("a", |header| {
        compressed(header);
        header.nodata = Some(7.into());
    });
    let mut header = (*sparse.header).clone();
    let mut tiles = (*header.levels[0].tiles).clone();
    let stored = (tiles.offsets[2], tiles.byte_counts[2]);
    tiles.offsets[1] = 0;
    tiles.byte_counts[1] = 0;
    header.levels[0].tiles = tiles.into();
    sparse = Entry::new(sparse.location, sparse.version, header);
    let index = index_of(
        &dir.path().join("i.parquet"),
        &[("a", "2021-01-01T00:00:00Z", sparse)],
    );
    let (done, text) = exported(&index, ExportFormat::Kerchunk, &dir.path().join("out.json"));
    assert_eq!((done.written, done.left_out.len()), (1, 0));
    let refs: Value = serde_json::from_str(&text).unwrap();
    let refs = &refs["refs"];
    let array = |name: &str| -> Value {
        let text = refs[format!("a/red/0/red/{name}")].as_str().unwrap();
        serde_json::from_str(text).unwrap()
    };
    let zarray = array(".zarray");
    assert_eq!(
        (&zarray["shape"], &zarray["chunks"]),
        (&json!([16, 48]), &json!([16, 16]))
    );
    assert_eq!(
        (&zarray["dtype"], &zarray["fill_value"]),
        (&json!("<u2"), &json!(7))
    );
    assert_eq!(zarray["compressor"]["id"], "zlib");
    assert_eq!(zarray["filters"][0]["id"], "imagecodecs_delta");
    assert_eq!(zarray["filters"][0]["shape"], json!([16, 16]));
    assert_eq!(array(".zattrs")["_ARRAY_DIMENSIONS"], json!(["y", "x"]));
    assert_eq!(refs["a/red/0/red/0.1"], Value::Null, "not stored");
    assert_eq!(
        refs["a/red/0/red/0.2"],
        json!(["s3://bucket/a/red.tif", stored.0, stored.1])
    );
    let grid: Value =
        serde_json::from_str(refs["a/red/0/spatial_ref/.zattrs"].as_str().unwrap()).unwrap();
    assert_eq!(grid["spatial_ref"], "EPSG:32756");
    assert_eq!(grid["GeoTransform"], "1 10 0 2 0 -10");
}

#[test]
fn files_on_one_grid_are_a_cube_in_the_order_of_time() {
    let dir = tempfile::tempdir().unwrap();
    let index = index_of(
        &dir.path().join("i.parquet"),
        &[
            ("b", "2021-01-02T00:00:00Z", changed("b", compressed)),
            ("a", "2021-01-01T00:00:00Z", changed("a", compressed)),
            (
                "c",
                "2021-01-01T00:00:00Z",
                changed("c", |header| {
                    compressed(header);
                    header.nodata = Some(0.into());
                }),
            ),
        ],
    );
    let (done, text) = exported(
        &index,
        ExportFormat::KerchunkCube,
        &dir.path().join("out.json"),
    );
    assert_eq!((done.written, done.left_out.len()), (3, 0));
    let refs: Value = serde_json::from_str(&text).unwrap();
    let refs = &refs["refs"];
    let shape = |grid: usize| -> Value {
        let text = refs[format!("red/{grid}/0/red/.zarray")].as_str().unwrap();
        serde_json::from_str::<Value>(text).unwrap()["shape"].clone()
    };
    assert_eq!(
        (shape(0), shape(1)),
        (json!([2, 16, 48]), json!([1, 16, 48]))
    );
    for (key, url) in [
        ("red/0/0/red/0.0.1", "s3://bucket/a/red.tif"),
        ("red/0/0/red/1.0.1", "s3://bucket/b/red.tif"),
        ("red/1/0/red/0.0.1", "s3://bucket/c/red.tif"),
    ] {
        assert_eq!(refs[key][0], url);
    }
}

#[test]
fn a_mosaic_takes_files_of_one_grid_and_says_why_not_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let index = index_of(
        &dir.path().join("i.parquet"),
        &[
            ("new", "2021-03-01T00:00:00Z", moved("new", -160.0)),
            ("old", "2021-01-01T00:00:00Z", moved("old", 0.0)),
            ("half", "2021-01-02T00:00:00Z", moved("half", 5.0)),
            (
                "else<where>",
                "2021-01-03T00:00:00Z",
                changed("x", |header| header.crs = Some(Crs::Epsg(32755))),
            ),
            (
                "coarse",
                "2021-01-04T00:00:00Z",
                changed("x", |header| {
                    header.transform = Some(GeoTransform([1.0, 20.0, 0.0, 2.0, 0.0, -20.0]));
                }),
            ),
            (
                "nowhere",
                "2021-01-05T00:00:00Z",
                changed("x", |header| header.crs = None),
            ),
        ],
    );
    let (done, text) = exported(&index, ExportFormat::Vrt, &dir.path().join("out.vrt"));
    assert_eq!(done.written, 2);
    let mut reasons: Vec<(&str, &str)> = done
        .left_out
        .iter()
        .map(|one| (one.item.as_str(), one.error.message()))
        .collect();
    reasons.sort_unstable();
    assert_eq!(
        reasons,
        [
            (
                "coarse",
                "its pixels are 20 x -20, those of most files are 10 x -10"
            ),
            (
                "else<where>",
                "its CRS is EPSG:32755, that of most files is EPSG:32756"
            ),
            (
                "half",
                "its grid is shifted by 0.5 x 0 pixels from that of most files, expected integers"
            ),
            ("nowhere", "no CRS"),
        ]
    );
    assert!(
        text.contains(r#"rasterXSize="64" rasterYSize="16""#),
        "{text}"
    );
    let place = |name: &str| text.find(&format!("/vsis3/bucket/{name}/red.tif")).unwrap();
    assert!(place("old") < place("new"), "the newest on top: {text}");
    assert_eq!(text.matches("<VRTRasterBand ").count(), 1);
    assert!(!text.contains("<OverviewList"), "{text}");

    let (done, text) = exported(
        &index,
        ExportFormat::VrtStack,
        &dir.path().join("stack.vrt"),
    );
    assert_eq!(done.written, 2);
    assert!(text.contains("<Description>old</Description>"), "{text}");
    assert_eq!(text.matches("<VRTRasterBand ").count(), 2);
}

#[test]
fn a_tile_index_lists_the_files_of_one_asset() {
    let dir = tempfile::tempdir().unwrap();
    let index = index_of(
        &dir.path().join("i.parquet"),
        &[
            ("a&b", "2021-03-01T00:00:00Z", moved("a&b", -160.0)),
            ("old", "2021-01-01T00:00:00Z", moved("old", 0.0)),
            ("half", "2021-01-02T00:00:00Z", moved("half", 5.0)),
        ],
    );
    let out = dir.path().join("out.gti");
    let (done, text) = exported(&index, ExportFormat::Gti, &out);
    assert_eq!((done.written, done.left_out.len()), (2, 1));
    for part in [
        "<MinX>-159</MinX>",
        "<MinY>-157.99</MinY>",
        "<MaxX>480.99</MaxX>",
        "<MaxY>2</MaxY>",
        "<ResX>10</ResX>",
        "<ResY>10</ResY>",
        "<SRS>EPSG:32756</SRS>",
        r#"<Band band="1" dataType="UInt16">"#,
        "<SortField>number</SortField>",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (_, table) = text.split_once("<IndexDataset>").unwrap();
    let (table, _) = table.split_once("</IndexDataset>").unwrap();
    assert!(!table.contains('<'), "{table}");
    let plain = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&amp;", "&"),
    ];
    let plain = plain
        .iter()
        .fold(table.to_owned(), |text, (from, to)| text.replace(from, to));
    let table: Value = serde_json::from_str(&plain).unwrap();
    let tile = |number: usize| &table["features"][number];
    assert_eq!(
        tile(1)["properties"],
        json!({"location": "/vsis3/bucket/a&b/red.tif", "number": 1}),
        "the newest on top"
    );
    assert_eq!(
        tile(0)["geometry"]["coordinates"][0],
        json!([
            [1.0, -158.0],
            [481.0, -158.0],
            [481.0, 2.0],
            [1.0, 2.0],
            [1.0, -158.0]
        ])
    );

    let two = dir.path().join("two.parquet");
    let like = item("a", &["nir", "red"]);
    let mut writer = index::Writer::create(&two, [&like], ["nir", "red"]).unwrap();
    let bands = [entry("a", "nir", 3), entry("a", "red", 3)];
    writer
        .push(&like, &[("nir", &bands[0]), ("red", &bands[1])])
        .unwrap();
    writer.finish().unwrap();
    let files = Index::open(&two).unwrap();
    let files = files.entries(&Select::all()).unwrap();
    let err = index::export(files, ExportFormat::Gti, &out).unwrap_err();
    assert_eq!(err.kind(), rss_core::ErrorKind::InvalidInput);
    assert_eq!(
        err.message(),
        "a tile index is of one asset; choose one of nir, red"
    );
}

#[test]
fn an_export_of_nothing_leaves_what_was_there() {
    let dir = tempfile::tempdir().unwrap();
    let fax = changed("a", |header| {
        header.levels[0].compression = 4;
        header.levels[0].bits = 1;
        header.dtype = rss_core::DataType::U8;
    });
    let index = index_of(
        &dir.path().join("i.parquet"),
        &[("a", "2021-01-01T00:00:00Z", fax)],
    );
    let out = dir.path().join("out.json");
    fs::write(&out, "before").unwrap();
    let files = index.entries(&Select::all()).unwrap();
    let err = index::export(files, ExportFormat::Kerchunk, &out).unwrap_err();
    assert_eq!(err.kind(), rss_core::ErrorKind::Unsupported);
    assert_eq!(
        err.message(),
        "none of 1 files can be exported: no Zarr codec decodes CCITT compression exactly"
    );
    assert_eq!(fs::read_to_string(&out).unwrap(), "before");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn plain_strips_are_cut_so_that_chunks_are_of_one_size() {
    let dir = tempfile::tempdir().unwrap();
    let strips = |counts: Vec<u64>, compression: u16| {
        changed("a", |header| {
            let image = &mut header.levels[0];
            image.size = Size {
                width: 10,
                height: 20,
            };
            image.tile = Size {
                width: 10,
                height: 8,
            };
            image.compression = compression;
            image.tiles = rss_core::reader::Tiles::new(vec![100, 260, 420], counts).into();
        })
    };
    let index = index_of(
        &dir.path().join("i.parquet"),
        &[
            (
                "plain",
                "2021-01-01T00:00:00Z",
                strips(vec![160, 160, 80], 1),
            ),
            (
                "packed",
                "2021-01-01T00:00:00Z",
                strips(vec![150, 150, 70], 8),
            ),
            ("cut", "2021-01-01T00:00:00Z", strips(vec![160, 159, 80], 1)),
        ],
    );
    let (done, text) = exported(&index, ExportFormat::Kerchunk, &dir.path().join("out.json"));
    let reasons: Vec<_> = done
        .left_out
        .iter()
        .map(|one| one.error.message())
        .collect();
    assert_eq!(
        reasons,
        [
            "compressed strips of which the last is short",
            "tile 1 has 159 bytes, fewer than its samples"
        ]
    );
    let refs: Value = serde_json::from_str(&text).unwrap();
    let chunks: Vec<&Value> = (0..6)
        .map(|row| &refs["refs"][format!("plain/red/0/red/{row}.0")])
        .collect();
    let url = "s3://bucket/plain/red.tif";
    let expected = [100, 180, 260, 340, 420].map(|offset| json!([url, offset, 80]));
    assert_eq!(chunks[..5], expected.iter().collect::<Vec<_>>());
    assert!(chunks[5].is_null());
}

#[tokio::test]
async fn all_but_fax_of_the_small_files_can_be_said() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tiff/files");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    paths.sort();
    let locations = paths.into_iter().map(Location::Local).collect::<Vec<_>>();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("i.parquet");
    let session = Session::builder().build().unwrap();
    let report = Builder::new(&session)
        .build(BuildSource::locations(locations), &path)
        .await
        .unwrap();
    let index = Index::open(&path).unwrap();
    let (done, _) = exported(&index, ExportFormat::Kerchunk, &dir.path().join("out.json"));
    assert_eq!(done.written + done.left_out.len(), report.ok);
    // Tiles without a byte count are a reader's to judge: Zarr has chunks that are stored, and others that are fill.
    let without_count = "tile 0 has an offset without a byte count";
    let (odd, fax): (Vec<_>, Vec<_>) = done
        .left_out
        .iter()
        .partition(|one| one.error.message().starts_with(without_count));
    for one in &fax {
        assert_eq!(
            one.error.message(),
            "no Zarr codec decodes CCITT compression exactly",
            "{one:?}"
        );
    }
    let odd: Vec<&str> = odd.iter().map(|one| one.item.as_str()).collect();
    assert_eq!(
        (odd, fax.len()),
        (
            vec![
                "gdal--cog_strile_arrays_zeroified_when_possible-1c845103",
                "gdal--minimum_tiff_tags_with_warning-a7fb6c20",
            ],
            5
        )
    );
}

#[test]
fn a_cube_makes_no_axes_of_absurd_length() {
    let dir = tempfile::tempdir().unwrap();
    let wide = changed("wide", |header| {
        let image = &mut header.levels[0];
        image.size.width = 1 << 25;
        image.tile.width = 1 << 25;
        image.compression = 8;
        image.tiles = rss_core::reader::Tiles::new(vec![8], vec![9]).into();
    });
    let long = "a".repeat(5000);
    let index = index_of(
        &dir.path().join("i.parquet"),
        &[
            ("wide", "2021-01-01T00:00:00Z", wide),
            (&long, "2021-01-01T00:00:00Z", changed(&long, compressed)),
        ],
    );
    let (done, text) = exported(
        &index,
        ExportFormat::KerchunkCube,
        &dir.path().join("out.json"),
    );
    assert_eq!((done.written, done.left_out.len()), (1, 1));
    assert_eq!(
        done.left_out[0].error.message(),
        "its id has 5000 characters, expected at most 1024"
    );
    let refs: Value = serde_json::from_str(&text).unwrap();
    assert!(refs["refs"]["red/0/0/y/0"].is_null() && refs["refs"]["red/0/0/time/0"].is_string());
}

#[test]
fn strips_that_would_be_very_many_chunks_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let rows = 1 << 22;
    let strips = changed("a", |header| {
        let image = &mut header.levels[0];
        image.size = Size {
            width: 1,
            height: 2 * rows - 1,
        };
        image.tile = Size {
            width: 1,
            height: rows,
        };
        let bytes = u64::from(rows) * 2;
        let tiles = rss_core::reader::Tiles::new(vec![8, 8 + bytes], vec![bytes, bytes - 2]);
        image.tiles = tiles.into();
    });
    let index = index_of(
        &dir.path().join("i.parquet"),
        &[("a", "2021-01-01T00:00:00Z", strips)],
    );
    let files = index.entries(&Select::all()).unwrap();
    let err =
        index::export(files, ExportFormat::Kerchunk, dir.path().join("out.json")).unwrap_err();
    assert_eq!(
        err.message(),
        "none of 1 files can be exported: strips that would need more than 1048576 chunks"
    );
}
