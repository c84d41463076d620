//! What does an index cost: bytes for each file, time to write it, to open it, and to find one entry,
//! as it grows from ten thousand files to a million?
//!
//! Synthetic: one Sentinel-2 band for each item, as COGs of 10980 x 10980 pixels are: 5 levels, 655
//! tiles of random sizes, four bytes before and after each. `cargo bench` writes up to 2.5 GB into a
//! temporary folder and removes it; test mode writes little. `RSS_INDEX_FILES` names other sizes.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench")]

use std::time::{Duration, Instant};

use rss_bench::harness;
use rss_core::{
    Crs, DataType, Entry, GeoTransform, Location, Size,
    index::{Index, Writer},
    reader::{BandProfile, Header, Image, Tiles, Version},
};
use stac::Item;

/// Sides of the levels.
const SIDES: [u32; 5] = [10_980, 5_490, 2_745, 1_373, 687];

/// A xorshift generator: sizes of tiles that compress no better than chance.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn id(number: usize) -> String {
    let (tile, day) = (number % 1000, number / 1000);
    format!("S2A_{tile:03}ABC_{:08}_{day:04}_L2A", 20_150_101 + day)
}

fn item(number: usize) -> Item {
    let id = id(number);
    let (west, south) = (
        (number % 360) as f64 - 180.0,
        (number / 360 % 170) as f64 - 85.0,
    );
    let (east, north) = (west + 0.9, south + 0.9);
    serde_json::from_value(serde_json::json!({
        "type": "Feature", "stac_version": "1.1.0", "id": id, "collection": "sentinel-2-l2a",
        "bbox": [west, south, east, north],
        "geometry": {"type": "Polygon", "coordinates":
            [[[west, south], [east, south], [east, north], [west, north], [west, south]]]},
        "properties": {"datetime": "2021-01-03T23:59:59Z", "eo:cloud_cover": (number % 100) as f64,
            "platform": "sentinel-2a"},
        "links": [],
        "assets": {"red": {"href": format!("s3://sentinel-cogs/{id}/B04.tif"),
            "type": "image/tiff; application=geotiff; profile=cloud-optimized", "roles": ["data"]}},
    }))
    .unwrap()
}

fn entry(number: usize, random: &mut Random) -> Entry {
    let tile = Size {
        width: 512,
        height: 512,
    };
    let mut at = 16_384;
    // GDAL writes the smallest overview first.
    let mut levels: Vec<Image> = SIDES
        .iter()
        .rev()
        .map(|&side| {
            let count = side.div_ceil(512).pow(2);
            let sizes: Vec<u64> = (0..count)
                .map(|_| 100_000 + random.next() % 400_000)
                .collect();
            let offsets = sizes.iter().map(|size| {
                at += size + 8;
                at - size - 4
            });
            let tiles = Tiles::new(offsets.collect(), sizes.clone());
            let mut image = Image::new(
                Size {
                    width: side,
                    height: side,
                },
                tile,
                16,
                1,
                tiles,
            );
            (image.compression, image.predictor) = (8, 2);
            image
        })
        .collect();
    levels.reverse();
    let mut header = Header::new(DataType::U16, levels);
    header.header_bytes = 8_000;
    header.nodata = Some(0.into());
    header.crs = Some(Crs::Epsg(32_701 + u32::try_from(number % 60).unwrap()));
    let east = 300_000.0 + (number % 10) as f64 * 100_000.0;
    header.transform = Some(GeoTransform([east, 10.0, 0.0, 7_200_040.0, 0.0, -10.0]));
    header.bands = vec![BandProfile::default()];
    let etag = format!("\"{:016x}{:016x}\"", random.next(), random.next());
    let time = chrono::DateTime::from_timestamp(1_600_000_000 + i64::try_from(number).unwrap(), 0);
    let version = Version::of_size(at)
        .with_etag(Some(etag))
        .with_last_modified(time);
    let href = format!("s3://sentinel-cogs/{}/B04.tif", id(number));
    Entry::new(Location::parse(&href).unwrap(), version, header)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn measure(files: usize) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index.parquet");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut made = Duration::ZERO;
    let start = Instant::now();
    let mut writer = Writer::create(&path, [&item(0)], ["red"]).unwrap();
    for number in 0..files {
        let making = Instant::now();
        let (item, entry) = (item(number), entry(number, &mut random));
        made += making.elapsed();
        writer.push(&item, &[("red", &entry)]).unwrap();
    }
    let bytes = writer.finish().unwrap();
    let writing = start.elapsed() - made;

    // The system's cache holds what was just written: cold is a new Index, warm is one that has been asked.
    let (mut opens, mut colds, mut read) = (Vec::new(), Vec::new(), 0);
    let mut footer = 0;
    for round in 0..15 {
        let wanted = (round * 7919 + 13) * 65_537 % files;
        let start = Instant::now();
        let index = Index::open(&path).unwrap();
        opens.push(start.elapsed());
        footer = index.bytes_read();
        let entry = index.entry(&id(wanted), "red").unwrap().unwrap();
        colds.push(start.elapsed());
        read = index.bytes_read() - footer;
        assert_eq!(entry.header.levels.len(), 5);
    }
    let index = Index::open(&path).unwrap();
    let mut warms = Vec::new();
    for round in 0..60 {
        let wanted = (round * 7919 + 13) * 65_537 % files;
        // Twice: the first time finds where its pages lie.
        for warm in [false, true] {
            let start = Instant::now();
            index.entry(&id(wanted), "red").unwrap().unwrap();
            if warm {
                warms.push(start.elapsed());
            }
        }
    }
    println!(
        "{files} files: {:.0} bytes each, {} row groups, written at {:.0} a second; footer {footer} bytes, \
         open {:.2} ms, open and one entry {:.2} ms ({read} bytes), one entry warm {:.2} ms",
        bytes as f64 / files as f64,
        index.info().row_groups,
        files as f64 / writing.as_secs_f64(),
        median(opens).as_secs_f64() * 1e3,
        median(colds).as_secs_f64() * 1e3,
        median(warms).as_secs_f64() * 1e3,
    );
}

fn main() {
    let named = std::env::var("RSS_INDEX_FILES").ok();
    let sizes: Vec<usize> = match &named {
        Some(text) => text
            .split(',')
            .map(|size| size.trim().parse().unwrap())
            .collect(),
        None if harness::is_test() => vec![300],
        None => vec![10_000, 100_000, 1_000_000],
    };
    for files in sizes {
        measure(files);
    }
}
