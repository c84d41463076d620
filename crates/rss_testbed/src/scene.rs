//! Synthetic scenes: what a month of Sentinel-2 over one tile looks like at Digital Earth Australia.
//!
//! Pixels come from a pure function of item, band, column and row, so a test knows the right value
//! of any pixel without decoding anything, and a wrong tile never looks right.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fs::{self},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use chrono::{Days, NaiveDate};
use rayon::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    cog::{self, Image},
    objects::hex,
};

/// The bucket that the items' hrefs name.
pub const BUCKET: &str = "dea-public-data";
/// The Sentinel-2 tile that the scenes cover.
pub const SCENE: &str = "56JNS";

/// Changes when the pixels or the files change, so that no stale file is served.
const VERSION: &str = "v1";
const EPSG: u16 = 32756;
/// The top left corner of tile 56JNS in EPSG:32756, in metres.
const ORIGIN: [f64; 2] = [499_980.0, 7_200_040.0];
/// The footprint of tile 56JNS in degrees.
const FOOTPRINT: [[f64; 2]; 5] = [
    [152.999_80, -25.313_71],
    [154.090_55, -25.309_43],
    [154.099_44, -26.300_47],
    [152.999_80, -26.304_94],
    [152.999_80, -25.313_71],
];

/// Which scenes a testbed has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scenes {
    /// None, and no item.
    None,
    /// Four scenes with so many pixels a side at 10 m, and items that the README's query leaves out.
    Sized(u32),
    /// A scene every five days from 3 January 2021 on, and no other items.
    Series {
        /// Pixels a side at 10 m.
        side: u32,
        /// How many scenes.
        dates: u8,
    },
}

impl Scenes {
    /// Returns scenes of 1200 x 1200 pixels: three by three tiles, cut at the edges.
    pub fn small() -> Self {
        Self::Sized(1200)
    }

    /// Returns scenes of 10980 x 10980 pixels, as Sentinel-2's: 2 GB of files, made once.
    pub fn full() -> Self {
        Self::Sized(10_980)
    }

    /// Makes the scenes' files, or finds them made.
    pub(crate) fn make(self) -> Result<Vec<Scene>> {
        match self {
            Self::None => Ok(Vec::new()),
            Self::Sized(side) => SEEDS.iter().map(|pass| Scene::make(pass, side)).collect(),
            Self::Series { side, dates } => (0..dates)
                .map(|number| Scene::make(&Pass::of_series(number)?, side))
                .collect(),
        }
    }

    /// Returns items without files that the README's query must leave out.
    pub(crate) fn others(self) -> Vec<Value> {
        let Self::Sized(side) = self else {
            return Vec::new();
        };
        let item = |pass: &Pass, tile: &str, shift: [f64; 2]| item(pass, tile, shift, side);
        let pass = |day, satellite, cloud| Pass {
            day: Cow::Borrowed(day),
            satellite,
            cloud,
        };
        let west = [-1.0, 0.0];
        let south = [0.0, -0.9];
        vec![
            item(&pass("2020-12-29", 'a', 4.2), SCENE, [0.0; 2]),
            item(&pass("2021-01-13", 'a', 85.3), SCENE, [0.0; 2]),
            item(&pass("2021-01-23", 'a', 30.0), SCENE, [0.0; 2]),
            item(&pass("2021-02-01", 'b', 64.0), SCENE, [0.0; 2]),
            item(&pass("2021-02-02", 'a', 1.0), SCENE, [0.0; 2]),
            item(&pass("2021-01-03", 'a', 2.0), "56JMS", west),
            item(&pass("2021-01-08", 'b', 3.0), "56JNR", south),
            landsat(),
        ]
    }
}

/// A satellite's pass: day, satellite, cloud cover in percent.
struct Pass {
    day: Cow<'static, str>,
    satellite: char,
    cloud: f64,
}

impl Pass {
    /// The satellites take turns.
    fn of_series(number: u8) -> Result<Self> {
        let first = NaiveDate::from_ymd_opt(2021, 1, 3).context("a date")?;
        let day = first + Days::new(5 * u64::from(number));
        Ok(Self {
            day: Cow::Owned(day.to_string()),
            satellite: if number.is_multiple_of(2) { 'a' } else { 'b' },
            cloud: 5.0 + f64::from(number % 20),
        })
    }
}

/// The four passes that the README's query finds.
const SEEDS: [Pass; 4] = [
    Pass {
        day: Cow::Borrowed("2021-01-03"),
        satellite: 'a',
        cloud: 12.5,
    },
    Pass {
        day: Cow::Borrowed("2021-01-08"),
        satellite: 'b',
        cloud: 0.8,
    },
    Pass {
        day: Cow::Borrowed("2021-01-18"),
        satellite: 'b',
        cloud: 29.9,
    },
    Pass {
        day: Cow::Borrowed("2021-01-28"),
        satellite: 'b',
        cloud: 7.1,
    },
];

/// A band of a scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Band {
    /// `nbart_red`: int16, 10 m, nodata -999.
    Red,
    /// `nbart_nir_1`: int16, 10 m, nodata -999.
    Nir,
    /// `oa_fmask`: uint8 classes, 20 m, nodata 0.
    Fmask,
}

impl Band {
    const ALL: [Self; 3] = [Self::Red, Self::Nir, Self::Fmask];

    /// Returns the asset's key.
    pub fn asset(self) -> &'static str {
        match self {
            Self::Red => "nbart_red",
            Self::Nir => "nbart_nir_1",
            Self::Fmask => "oa_fmask",
        }
    }

    fn ending(self) -> &'static str {
        match self {
            Self::Red => "nbart_3-2-1_{}_band04.tif",
            Self::Nir => "nbart_3-2-1_{}_band08.tif",
            Self::Fmask => "oa_3-2-1_{}_fmask.tif",
        }
    }
}

/// One scene: its item, and its objects as files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Scene {
    /// The item's id.
    pub id: String,
    /// The item, as the STAC API sends it.
    pub item: Value,
    /// Pixels a side at 10 m.
    pub side: u32,
    /// Keys in [`BUCKET`], and the files behind them.
    pub files: BTreeMap<String, PathBuf>,
    seed: u64,
}

impl Scene {
    fn make(pass: &Pass, side: u32) -> Result<Self> {
        let seed = seed(&pass.day);
        let folder = cache_folder().join(format!("scenes-{VERSION}-{side}"));
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let mut files = BTreeMap::new();
        for band in Band::ALL {
            let key = key(pass, SCENE, band);
            let path = folder.join(format!("{}-{}.tif", pass.day, band.asset()));
            if !path.exists() {
                write_band(&path, seed, band, side).with_context(|| path.display().to_string())?;
            }
            files.insert(key, path);
        }
        Ok(Self {
            id: uuid(pass, SCENE),
            item: item(pass, SCENE, [0.0; 2], side),
            side,
            files,
            seed,
        })
    }

    /// Returns the key in [`BUCKET`] of a band's file.
    pub fn key(&self, band: Band) -> &str {
        let href = self.item["assets"][band.asset()]["href"]
            .as_str()
            .unwrap_or_default();
        href.strip_prefix("s3://")
            .and_then(|rest| rest.split_once('/'))
            .map_or("", |(_, key)| key)
    }

    /// Returns the file of a band.
    pub fn file(&self, band: Band) -> Option<&Path> {
        self.files.get(self.key(band)).map(PathBuf::as_path)
    }

    /// Returns the right value of a pixel at full resolution.
    pub fn pixel(&self, band: Band, col: u32, row: u32) -> i16 {
        pixel(self.seed, band, col, row)
    }

    /// Returns the right values of a window at full resolution, row by row.
    pub fn window(&self, band: Band, col: u32, row: u32, width: u32, height: u32) -> Vec<i16> {
        (row..row + height)
            .flat_map(|y| (col..col + width).map(move |x| self.pixel(band, x, y)))
            .collect()
    }
}

/// The value of one pixel: a smooth field, noise that makes tiles compress as real ones do, and a
/// few blocks without data.
fn pixel(seed: u64, band: Band, col: u32, row: u32) -> i16 {
    let block = mix(seed ^ u64::from(col / 64) << 32 ^ u64::from(row / 64));
    match band {
        Band::Fmask => 1 + i16::try_from(block % 5).unwrap_or(0),
        // Both bands miss data in the same places, as one sensor does.
        _ if block.is_multiple_of(97) => -999,
        _ => {
            let wave = |value: u32, period: u32| {
                let phase = value % period;
                i32::try_from(phase.min(period - phase)).unwrap_or(0)
            };
            let smooth = wave(col, 1400) + wave(row, 1100);
            let shift = if band == Band::Nir { 900 } else { 0 };
            let key = seed ^ (band as u64) << 60 ^ u64::from(row) << 32 ^ u64::from(col);
            let noise = i32::try_from(mix(key) & 0x7FF).unwrap_or(0);
            i16::try_from(smooth + shift + noise - 20).unwrap_or(i16::MAX)
        }
    }
}

/// The finaliser of splitmix64: every bit of the key stirs every bit of the result.
fn mix(key: u64) -> u64 {
    let mut z = key.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn write_band(path: &Path, seed: u64, band: Band, side: u32) -> Result<()> {
    let folder = path.parent().context("a file in a folder")?;
    // A second process that makes the same file wins or loses by a rename, never half.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    let (side, metres) = match band {
        Band::Fmask => (side.div_ceil(2), 20.0),
        _ => (side, 10.0),
    };
    match band {
        Band::Fmask => {
            let samples = rows(side, |col, row| {
                u8::try_from(pixel(seed, band, col, row)).unwrap_or(0)
            });
            cog::write(image(samples, side, metres), file.as_file_mut())?;
        }
        _ => {
            let samples = rows(side, |col, row| pixel(seed, band, col, row));
            cog::write(image(samples, side, metres), file.as_file_mut())?;
        }
    }
    file.persist(path)?;
    Ok(())
}

fn rows<T: Send>(side: u32, value: impl Fn(u32, u32) -> T + Sync) -> Vec<T> {
    (0..side)
        .into_par_iter()
        .flat_map_iter(|row| {
            let value = &value;
            (0..side).map(move |col| value(col, row))
        })
        .collect()
}

fn image<T>(samples: Vec<T>, side: u32, pixel: f64) -> Image<T> {
    Image {
        samples,
        width: side as usize,
        height: side as usize,
        epsg: EPSG,
        origin: ORIGIN,
        pixel,
    }
}

/// Scenes are kept in the target folder, so that cleaning the build removes them.
fn cache_folder() -> PathBuf {
    let built = std::env::current_exe().ok();
    let target = built.as_deref().and_then(|exe| {
        exe.ancestors()
            .find(|folder| folder.join("CACHEDIR.TAG").exists())
            .map(Path::to_path_buf)
    });
    target
        .unwrap_or_else(std::env::temp_dir)
        .join("rss-testbed")
}

fn seed(text: &str) -> u64 {
    let digest = Sha256::digest(text);
    digest
        .iter()
        .take(8)
        .fold(0, |seed, &byte| seed << 8 | u64::from(byte))
}

fn product(pass: &Pass) -> String {
    format!("ga_s2{}m_ard_3", pass.satellite)
}

fn uuid(pass: &Pass, tile: &str) -> String {
    let digest = hex(&Sha256::digest(format!(
        "{}{}{tile}",
        pass.day, pass.satellite
    )));
    let part = |range: std::ops::Range<usize>| digest.get(range).unwrap_or_default().to_owned();
    [
        part(0..8),
        part(8..12),
        part(12..16),
        part(16..20),
        part(20..32),
    ]
    .join("-")
}

fn folder(pass: &Pass, tile: &str) -> String {
    let (zone, square) = tile.split_at(2);
    let day = pass.day.replace('-', "/");
    let stamp = pass.day.replace('-', "");
    format!(
        "baseline/{}/{zone}/{square}/{day}/{stamp}T012345",
        product(pass)
    )
}

fn key(pass: &Pass, tile: &str, band: Band) -> String {
    let name = band
        .ending()
        .replace("{}", &format!("{tile}_{}_final", pass.day));
    format!("{}/ga_s2{}m_{name}", folder(pass, tile), pass.satellite)
}

fn item(pass: &Pass, tile: &str, shift: [f64; 2], side: u32) -> Value {
    let id = uuid(pass, tile);
    let title = format!("{}-2-1_{tile}_{}_final", product(pass), pass.day);
    let ring: Vec<[f64; 2]> = FOOTPRINT
        .iter()
        .map(|[lon, lat]| [lon + shift[0], lat + shift[1]])
        .collect();
    let edge = |axis: usize, pick: fn(f64, f64) -> f64| {
        ring.iter()
            .map(|point| point[axis])
            .fold(ring[0][axis], pick)
    };
    let bbox = [
        edge(0, f64::min),
        edge(1, f64::min),
        edge(0, f64::max),
        edge(1, f64::max),
    ];
    let transform =
        |pixel: f64| json!([pixel, 0.0, ORIGIN[0], 0.0, -pixel, ORIGIN[1], 0.0, 0.0, 1.0]);
    let mut assets = serde_json::Map::new();
    for band in Band::ALL {
        let (side, pixel) = match band {
            Band::Fmask => (side.div_ceil(2), 20.0),
            _ => (side, 10.0),
        };
        assets.insert(
            band.asset().to_owned(),
            json!({
                "href": format!("s3://{BUCKET}/{}", key(pass, tile, band)),
                "type": "image/tiff; application=geotiff; profile=cloud-optimized",
                "title": band.asset(),
                "eo:bands": [{"name": band.asset()}],
                "proj:epsg": EPSG,
                "proj:shape": [side, side],
                "proj:transform": transform(pixel),
                "roles": ["data"],
            }),
        );
    }
    assets.insert(
        "checksum:sha1".to_owned(),
        json!({
            "href": format!("s3://{BUCKET}/{}/{title}.sha1", folder(pass, tile)),
            "type": "text/plain",
            "roles": ["metadata"],
        }),
    );
    json!({
        "type": "Feature",
        "stac_version": "1.0.0",
        "stac_extensions": [
            "https://stac-extensions.github.io/eo/v1.0.0/schema.json",
            "https://stac-extensions.github.io/projection/v1.0.0/schema.json",
            "https://stac-extensions.github.io/view/v1.0.0/schema.json",
        ],
        "id": id,
        "collection": product(pass),
        "geometry": {"type": "Polygon", "coordinates": [ring]},
        "bbox": bbox,
        "properties": {
            "title": title,
            "datetime": format!("{}T23:56:39.027000Z", pass.day),
            "created": "2022-08-29T12:31:16.877709Z",
            "platform": format!("sentinel-2{}", pass.satellite),
            "constellation": "sentinel-2",
            "instruments": ["msi"],
            "gsd": 10.0,
            "eo:cloud_cover": pass.cloud,
            "dea:dataset_maturity": "final",
            "dea:product_maturity": "stable",
            "odc:dataset_version": "3.2.1",
            "odc:file_format": "GeoTIFF",
            "odc:producer": "ga.gov.au",
            "odc:product": product(pass),
            "odc:product_family": "ard",
            "odc:region_code": tile,
            "gqa:cep90": "NaN",
            "proj:epsg": EPSG,
            "proj:shape": [side, side],
            "proj:transform": transform(10.0),
            "testbed:synthetic": true,
        },
        "links": [],
        "assets": assets,
    })
}

/// A Landsat item over the same place.
fn landsat() -> Value {
    let mut item = item(
        &Pass {
            day: Cow::Borrowed("2021-01-11"),
            satellite: 'x',
            cloud: 3.0,
        },
        SCENE,
        [0.0; 2],
        100,
    );
    item["collection"] = json!("ga_ls8c_ard_3");
    item["properties"]["platform"] = json!("landsat-8");
    item["properties"]["odc:product"] = json!("ga_ls8c_ard_3");
    item["properties"]["odc:region_code"] = json!("089078");
    item["properties"]["landsat:wrs_path"] = json!(89);
    item["properties"]["landsat:wrs_row"] = json!(78);
    item
}
