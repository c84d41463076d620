//! How little is read: bytes are counted, not seconds.

use rss_core::index::{Index, Select};

use super::written;

#[test]
fn opening_reads_the_footer_and_an_entry_its_pages() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    written(&path, &vec![300; 10_000]);
    let index = Index::open(&path).unwrap();
    let all = index.info().bytes;
    let opened = index.bytes_read();
    assert!(opened < all / 50, "{opened} of {all}");
    assert_eq!(index.info().row_groups, 2);

    let entry = index.entry("item-009000", "red").unwrap().unwrap();
    assert_eq!(entry, super::entry("item-009000", "red", 300));
    let one = index.bytes_read() - opened;
    assert!(one < all / 10, "{one} of {all}");
    // Where pages and ids lie is remembered.
    let before = index.bytes_read();
    index.entry("item-009500", "red").unwrap().unwrap();
    let next = index.bytes_read() - before;
    assert!(next < 100_000, "{next} of {all}");
    let before = index.bytes_read();
    assert_eq!(index.entry("item-x", "red").unwrap(), None);
    assert!(index.bytes_read() - before < 100_000);
}

#[test]
fn a_file_of_very_many_tiles_does_not_burden_others() {
    let dir = tempfile::tempdir().unwrap();
    let bytes_of = |name: &str, tiles: &[u32], wanted: &str| {
        let path = dir.path().join(name);
        written(&path, tiles);
        let index = Index::open(&path).unwrap();
        // The places of the pages are read once.
        index.entry("item-000000", "red").unwrap().unwrap();
        let before = index.bytes_read();
        index.entry(wanted, "red").unwrap().unwrap();
        index.bytes_read() - before
    };
    for small in [2, 300] {
        let mut tiles = vec![small; 200];
        let alone = bytes_of("a.parquet", &tiles, "item-000101");
        tiles[100] = 100_000;
        for neighbour in ["item-000099", "item-000101"] {
            let beside = bytes_of("b.parquet", &tiles, neighbour);
            assert!(
                beside < alone + 2_000,
                "{small}: {beside} beside it, {alone} alone"
            );
        }
        let large = bytes_of("b.parquet", &tiles, "item-000100");
        assert!(large > 100_000, "{large}");
    }
}

#[test]
fn one_asset_is_read_without_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let like = super::item("like", &["red", "nir"]);
    let mut writer = rss_core::index::Writer::create(&path, [&like], ["red", "nir"]).unwrap();
    for number in 0..500 {
        let id = format!("item-{number:06}");
        let (red, nir) = (
            super::entry(&id, "red", 100),
            super::entry(&id, "nir", 1000),
        );
        let item = super::item(&id, &["red", "nir"]);
        writer.push(&item, &[("red", &red), ("nir", &nir)]).unwrap();
    }
    writer.finish().unwrap();
    let read = |assets: &[&str]| {
        let index = Index::open(&path).unwrap();
        let before = index.bytes_read();
        let select = Select::all().with_assets(assets.iter().copied());
        let count = index.entries(&select).unwrap().count();
        (count, index.bytes_read() - before)
    };
    let ((red, small), (nir, large)) = (read(&["red"]), read(&["nir"]));
    assert_eq!((red, nir), (500, 500));
    assert!(small * 4 < large, "{small} {large}");
}
