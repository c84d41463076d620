//! The index: entries come back as they were, and an index is whole or not there.

mod build;
mod catalogue;
mod check;
mod columns;
mod damage;
mod export;
mod files;
mod lazy;
mod splice;

use std::path::Path;

use rss_core::{Crs, DataType, GeoTransform};
use rss_core::{
    Entry, Location, Size, index,
    reader::{BandProfile, Header, Image, Tiles, Version},
};
use serde_json::json;
use stac::Item;

/// Returns an item with assets below `s3://bucket/<id>/`.
fn item(id: &str, assets: &[&str]) -> Item {
    let assets: serde_json::Map<_, _> = assets
        .iter()
        .map(|key| {
            let href = format!("s3://bucket/{id}/{key}.tif");
            (
                (*key).to_owned(),
                json!({"href": href, "type": "image/tiff"}),
            )
        })
        .collect();
    serde_json::from_value(json!({
        "type": "Feature", "stac_version": "1.1.0", "id": id, "collection": "c", "links": [],
        "geometry": {"type": "Point", "coordinates": [10.0, 20.0]},
        "bbox": [10.0, 20.0, 10.0, 20.0],
        "properties": {"datetime": "2021-01-01T00:00:00Z", "eo:cloud_cover": 1.5},
        "assets": assets,
    }))
    .unwrap()
}

/// Returns an entry of one level with so many tiles back to back.
fn entry(id: &str, asset: &str, tiles: u32) -> Entry {
    let size = Size {
        width: tiles * 16,
        height: 16,
    };
    let tile = Size {
        width: 16,
        height: 16,
    };
    let sizes: Vec<u64> = (0..u64::from(tiles))
        .map(|n| 300 + mixed(n) % 500_000)
        .collect();
    let mut at = 4096;
    let offsets = sizes
        .iter()
        .map(|size| {
            let here = at;
            at += size + 8;
            here
        })
        .collect();
    let image = Image::new(size, tile, 16, 1, Tiles::new(offsets, sizes));
    let mut header = Header::new(DataType::U16, vec![image]);
    header.crs = Some(Crs::Epsg(32756));
    header.transform = Some(GeoTransform([1.0, 10.0, 0.0, 2.0, 0.0, -10.0]));
    header.bands = vec![BandProfile::default()];
    let location = Location::parse(&format!("s3://bucket/{id}/{asset}.tif")).unwrap();
    let version = Version::of_size(at).with_etag(Some(format!("\"{id}-{asset}\"")));
    Entry::new(location, version, header)
}

/// Returns a number that compresses no better than chance, as sizes of tiles do.
fn mixed(number: u64) -> u64 {
    let number = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number ^ (number >> 27)
}

/// Writes an index of items with one asset, `red`, each with so many tiles.
fn written(path: &Path, tiles: &[u32]) {
    let like = item("like", &["red"]);
    let mut writer = index::Writer::create(path, [&like], ["red"]).unwrap();
    for (number, tiles) in tiles.iter().enumerate() {
        let id = format!("item-{number:06}");
        writer
            .push(&item(&id, &["red"]), &[("red", &entry(&id, "red", *tiles))])
            .unwrap();
    }
    writer.finish().unwrap();
}
