//! What the COG reader makes of CRSs that files describe in parts, beside GDAL's reading of them.

use std::{collections::BTreeMap, path::Path};

use gdal::{
    Dataset, DriverManager,
    raster::RasterCreationOptions,
    spatial_ref::{AxisMappingStrategy, CoordTransform, SpatialRef},
};
use rss_core::{Backend, Crs, Location, Session};
use serde_json::Value;

use super::corpora::folders;

/// Files whose CRS differs from GDAL's by design: the end of the name, and the reason.
const AGREED: &[(&str, &str)] = &[];

/// How the files of a folder state their CRS.
#[derive(Debug, Default)]
struct Tally {
    /// With WKT of ours that GDAL reads as it reads the file.
    same: usize,
    /// Without a CRS, though GDAL names one.
    silent: Vec<String>,
    wrong: Vec<String>,
}

#[test]
fn a_crs_in_parts_is_the_one_that_gdal_reads() {
    let _alone = super::alone();
    for folder in folders() {
        let tally = compare_all(&folder);
        eprintln!(
            "{}: {} files with WKT, {} without a CRS that GDAL names: {:#?}",
            folder.display(),
            tally.same,
            tally.silent.len(),
            tally.silent
        );
        assert!(tally.wrong.is_empty(), "{}", tally.wrong.join("\n"));
        if folder.ends_with("shared/corpora") {
            assert!(tally.same >= 31, "{} files with WKT", tally.same);
            assert!(tally.silent.len() <= 3, "{:?}", tally.silent);
        }
    }
}

/// What GDAL is told to write, in PROJ's words: every method, and bases and units of many kinds.
const WRITTEN: &[&str] = &[
    "+proj=utm +zone=33 +ellps=GRS80",
    "+proj=utm +zone=33 +south +ellps=intl",
    "+proj=tmerc +lat_0=49 +lon_0=-2 +k=0.9996012717 +x_0=400000 +y_0=-100000 +ellps=airy",
    "+proj=tmerc +axis=wsu +lat_0=0 +lon_0=29 +k=1 +ellps=WGS84",
    "+proj=merc +lon_0=110 +k=0.997 +x_0=3900000 +y_0=900000 +ellps=bessel",
    "+proj=merc +lon_0=51 +lat_ts=42 +ellps=krass",
    "+proj=lcc +lat_1=33 +lat_2=45 +lat_0=23 +lon_0=-96 +x_0=10 +y_0=20 +datum=NAD83",
    "+proj=lcc +lat_1=33 +lat_2=45 +lat_0=23 +lon_0=-96 +x_0=609601.219202438 +datum=NAD27 +units=us-ft",
    "+proj=lcc +lat_1=18 +lat_0=18 +lon_0=-77 +k_0=0.9999 +x_0=250000 +y_0=150000 +ellps=clrk66",
    "+proj=laea +lat_0=52 +lon_0=10 +x_0=4321000 +y_0=3210000 +ellps=GRS80",
    "+proj=aea +lat_1=-18 +lat_2=-36 +lat_0=0 +lon_0=132 +ellps=GRS80 +towgs84=1,2,3,0,0,0,0",
    "+proj=aeqd +lat_0=49 +lon_0=2 +datum=WGS84",
    "+proj=eqdc +lat_1=20 +lat_2=60 +lat_0=40 +lon_0=-96 +datum=NAD83",
    "+proj=stere +lat_0=40 +lon_0=5 +k=0.9 +ellps=WGS84",
    "+proj=stere +lat_0=90 +lat_ts=70 +lon_0=-45 +datum=WGS84",
    "+proj=stere +lat_0=-90 +lat_ts=-90 +lon_0=0 +k=0.994 +x_0=2000000 +y_0=2000000 +datum=WGS84",
    "+proj=sterea +lat_0=52 +lon_0=5 +k=0.9999079 +x_0=155000 +y_0=463000 +ellps=bessel",
    "+proj=eqc +lat_ts=30 +lat_0=0 +lon_0=10 +datum=WGS84",
    "+proj=cass +lat_0=10 +lon_0=-61 +x_0=86501 +y_0=65379 +ellps=WGS84",
    "+proj=gnom +lat_0=10 +lon_0=20 +a=6371000 +b=6371000",
    "+proj=mill +lon_0=20 +a=6371000 +b=6371000",
    "+proj=ortho +lat_0=10 +lon_0=20 +a=6371000 +b=6371000",
    "+proj=poly +lat_0=0 +lon_0=-54 +x_0=5000000 +y_0=10000000 +ellps=GRS80",
    "+proj=robin +lon_0=20 +datum=WGS84",
    "+proj=sinu +lon_0=20 +a=6371007.181 +b=6371007.181",
    "+proj=vandg +lon_0=20 +a=6371000 +b=6371000",
    "+proj=cea +lat_ts=30 +lon_0=0 +datum=WGS84",
    "+proj=geos +lon_0=140.7 +h=35785863 +a=6378137 +b=6356752.3",
    "+proj=longlat +ellps=bessel",
    "+proj=longlat +a=3396190 +b=3376200",
    "+proj=longlat +ellps=clrk80ign +pm=2.5",
    "+proj=laea +lat_0=52 +lon_0=10 +ellps=GRS80 +units=ft",
];

#[test]
fn what_gdal_writes_in_parts_is_read_as_gdal_reads_it() {
    let _alone = super::alone();
    let dir = tempfile::tempdir().unwrap();
    let session = Session::builder().build().unwrap();
    let mut wrong = Vec::new();
    for (n, written) in WRITTEN.iter().enumerate() {
        let path = dir.path().join(format!("{n}.tif"));
        let driver = DriverManager::get_driver_by_name("GTiff").unwrap();
        let mut made = driver
            .create_with_band_type::<u8, _>(&path, 2, 2, 1)
            .unwrap();
        let crs = SpatialRef::from_proj4(written).unwrap();
        made.set_spatial_ref(&crs).unwrap();
        made.set_geo_transform(&[0.0, 1.0, 0.0, 0.0, 0.0, -1.0])
            .unwrap();
        drop(made);
        let raster = session
            .open(&Location::Local(path.clone()), Backend::Cog)
            .unwrap();
        let theirs = Dataset::open(&path).unwrap().spatial_ref().ok();
        match &raster.profile().crs {
            Some(Crs::Wkt(wkt)) => {
                let how = difference(wkt, theirs);
                wrong.extend(how.map(|how| format!("{written}: {how}")));
            }
            Some(Crs::Epsg(code)) => {
                let wkt = SpatialRef::from_epsg(*code).unwrap().to_wkt().unwrap();
                let how = difference(&wkt, theirs);
                wrong.extend(how.map(|how| format!("{written}: {how}")));
            }
            other => wrong.push(format!("{written}: {other:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Oblique projections that GDAL writes as methods which the COG reader does not know.
#[test]
fn gdal_reads_a_file_whose_projection_is_not_known_here() {
    let _alone = super::alone();
    let dir = tempfile::tempdir().unwrap();
    for (n, written) in [
        "+proj=omerc +lat_0=4 +lonc=115 +alpha=53 +gamma=53 +k=0.99984 +x_0=590476 +y_0=442857 +ellps=WGS84",
        "+proj=omerc +no_uoff +lat_0=57 +lonc=-133 +alpha=323 +gamma=323 +k=0.9999 +x_0=5e6 +y_0=-5e6 +ellps=GRS80",
        "+proj=somerc +lat_0=46.95 +lon_0=7.43 +k_0=1 +x_0=2600000 +y_0=1200000 +ellps=bessel",
    ]
    .into_iter()
    .enumerate()
    {
        let path = dir.path().join(format!("{n}.tif"));
        let driver = DriverManager::get_driver_by_name("GTiff").unwrap();
        let mut made = driver
            .create_with_band_type::<u8, _>(&path, 2, 2, 1)
            .unwrap();
        made.set_spatial_ref(&SpatialRef::from_proj4(written).unwrap())
            .unwrap();
        made.set_geo_transform(&[6e5, 1.0, 0.0, 4e5, 0.0, -1.0])
            .unwrap();
        drop(made);
        let session = Session::builder().build().unwrap();
        let location = Location::Local(path);
        let read = session.open(&location, Backend::Auto).unwrap();
        assert!(read.profile().crs.is_some(), "{written}");
        let why = read.fallback().unwrap().message().to_owned();
        assert!(
            why.starts_with("it states a CRS that the COG reader does not know: the projection method"),
            "{why}"
        );
        // The COG reader alone reads the pixels, and says that it has no position for them.
        let alone = session.open(&location, Backend::Cog).unwrap();
        assert_eq!((&alone.profile().crs, &alone.profile().notes[..]), (&None, &[why][..]));
    }
}

/// CRSs that GDAL has no GeoKeys for: both read back what is written.
#[test]
fn a_crs_without_keys_is_written_as_text() {
    let _alone = super::alone();
    let dir = tempfile::tempdir().unwrap();
    rss_core::use_proj();
    for (n, written) in [
        "+proj=eck4 +lon_0=10 +datum=WGS84",
        "+proj=igh +datum=WGS84",
        "+proj=wintri +lat_1=50.467 +datum=WGS84",
        "+proj=bonne +lat_1=60 +lon_0=10 +datum=WGS84",
        "+proj=goode +datum=WGS84",
        "+proj=geos +sweep=x +lon_0=-75 +h=35786023 +a=6378169 +rf=295.488065897",
        "+proj=omerc +lat_0=4 +lonc=115 +alpha=53 +gamma=53 +k=0.99984 +x_0=590476 +y_0=442857 +ellps=WGS84",
    ]
    .into_iter()
    .enumerate()
    {
        let crs: Crs = written.parse().unwrap();
        let raster = rss_core::Raster {
            pixels: rss_core::Pixels::U8(ndarray::Array3::zeros((1, 2, 2))),
            geobox: rss_core::GeoBox {
                size: rss_core::Size { width: 2, height: 2 },
                crs: Some(crs.clone()),
                transform: Some(rss_core::GeoTransform([1e6, 10.0, 0.0, 2e6, 0.0, -10.0])),
            },
            nodata: None,
            sparse: Vec::new(),
        };
        let path = dir.path().join(format!("{n}.tif"));
        raster.save(&path).unwrap();
        // The same place in degrees, by the definition and by what GDAL reads of the file.
        let place = |mut crs: SpatialRef| {
            let mut degrees = crs.geog_cs().unwrap();
            for one in [&mut crs, &mut degrees] {
                one.set_axis_mapping_strategy(AxisMappingStrategy::TraditionalGisOrder);
            }
            let (mut x, mut y) = ([1e6], [2e6]);
            let convert = CoordTransform::new(&crs, &degrees).unwrap();
            convert.transform_coords(&mut x, &mut y, &mut []).unwrap();
            [x[0], y[0]]
        };
        let stated = place(SpatialRef::from_proj4(written).unwrap());
        let read = place(Dataset::open(&path).unwrap().spatial_ref().unwrap());
        let is_near = stated.iter().zip(read).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(is_near, "{written}: {read:?}, expected {stated:?}");
        let session = Session::builder().build().unwrap();
        let read = session.open(&Location::Local(path), Backend::Cog).unwrap();
        let read = read.profile().crs.clone().unwrap();
        assert!(read.is_same(&crs), "{written}: {read} is not {crs}");
    }
}

#[test]
fn a_moved_projection_is_told_apart() {
    let of = |written| SpatialRef::from_proj4(written).unwrap();
    let ours = |written| of(written).to_wkt().unwrap();
    let here = "+proj=laea +lat_0=52 +lon_0=10 +ellps=GRS80";
    assert_eq!(difference(&ours(here), Some(of(here))), None);
    for other in [
        "+proj=laea +lat_0=52 +lon_0=10.00001 +ellps=GRS80",
        "+proj=laea +lat_0=52 +lon_0=10 +ellps=intl",
        "+proj=laea +lat_0=52 +lon_0=10 +ellps=GRS80 +units=ft",
        "+proj=aeqd +lat_0=52 +lon_0=10 +ellps=GRS80",
    ] {
        assert!(
            difference(&ours(other), Some(of(here))).is_some(),
            "{other}"
        );
    }
}

/// Files whose corners lie elsewhere than GDAL's by design: the end of the name, and the reason.
const ELSEWHERE: &[(&str, &str)] = &[(
    "gdal--inconsistent_invflattening-9a0241ab.tif",
    "a code, and an ellipsoid that is not the code's: the code counts; GDAL then knows no datum shift",
)];

#[test]
fn corners_of_every_file_lie_where_gdal_puts_them() {
    let _alone = super::alone();
    for folder in folders() {
        let manifest = std::fs::read(folder.join("manifest.json")).unwrap();
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        let session = Session::builder().build().unwrap();
        let (mut same, mut wrong) = (0, Vec::new());
        for file in manifest["files"].as_array().unwrap() {
            let name = file["file"].as_str().unwrap();
            let path = folder.join(name);
            let theirs = Dataset::open(&path).ok().and_then(|data| {
                let grid = data.geo_transform().ok()?;
                Some((
                    corners(&data.spatial_ref().ok()?, grid, data.raster_size())?,
                    grid,
                ))
            });
            let Some((theirs, grid)) = theirs else {
                continue;
            };
            for backend in [Backend::Cog, Backend::AsyncTiff, Backend::Gdal] {
                let location = Location::Local(path.clone());
                let Ok(raster) = session.open(&location, backend) else {
                    continue;
                };
                let profile = raster.profile();
                let (Some(crs), Some(transform)) = (&profile.crs, profile.transform) else {
                    continue;
                };
                if transform.0 != grid {
                    continue;
                }
                let own = SpatialRef::from_definition(&crs.to_string()).unwrap();
                let size = (profile.size.width as usize, profile.size.height as usize);
                let Some(ours) = corners(&own, grid, size) else {
                    wrong.push(format!("{name} by {backend:?}: {crs} has no corners"));
                    continue;
                };
                let apart = ours.iter().zip(&theirs).map(|(a, b)| {
                    let wraps = (a[0] - b[0]) / 360.0;
                    let lon = (wraps - wraps.round()) * 360.0 * a[1].to_radians().cos();
                    lon.hypot(a[1] - b[1]) * 111_195.0
                });
                let apart = apart.fold(0.0, f64::max);
                let is_agreed = ELSEWHERE.iter().any(|(end, _)| name.ends_with(end));
                if apart > 1.0 && !is_agreed {
                    wrong.push(format!("{name} by {backend:?}: {apart} m, {crs}"));
                } else {
                    same += 1;
                }
            }
        }
        eprintln!(
            "{}: {same} files lie where GDAL puts them",
            folder.display()
        );
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

/// Returns longitude and latitude of the four corners; none outside the domain of the projection.
fn corners(
    crs: &SpatialRef,
    g: [f64; 6],
    (width, height): (usize, usize),
) -> Option<[[f64; 2]; 4]> {
    let mut own = crs.clone();
    let mut degrees = SpatialRef::from_epsg(4326).ok()?;
    own.set_axis_mapping_strategy(AxisMappingStrategy::TraditionalGisOrder);
    degrees.set_axis_mapping_strategy(AxisMappingStrategy::TraditionalGisOrder);
    let to = CoordTransform::new(&own, &degrees).ok()?;
    let (right, bottom) = (width as f64, height as f64);
    let mut found = [[0.0; 2]; 4];
    let all = [[0.0, 0.0], [right, 0.0], [right, bottom], [0.0, bottom]];
    for (place, [col, row]) in found.iter_mut().zip(all) {
        let mut x = [g[0] + col * g[1] + row * g[2]];
        let mut y = [g[3] + col * g[4] + row * g[5]];
        to.transform_coords(&mut x, &mut y, &mut []).ok()?;
        *place = [x[0], y[0]];
    }
    Some(found)
}

#[test]
fn a_unit_of_the_file_is_honoured_by_every_backend() {
    let _alone = super::alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("feet.tif");
    // A State Plane file as ERDAS IMAGINE writes it: the code of metres, and coordinates in feet. GDAL writes its own
    // unit beside a code, so a file of metres is changed in place.
    let driver = DriverManager::get_driver_by_name("GTiff").unwrap();
    let mut made = driver
        .create_with_band_type_with_options::<u8, _>(
            &path,
            64,
            64,
            1,
            // async-tiff reads tiles only.
            &RasterCreationOptions::from_iter(["TILED=YES", "BLOCKXSIZE=64", "BLOCKYSIZE=64"]),
        )
        .unwrap();
    made.set_spatial_ref(&SpatialRef::from_epsg(2853).unwrap())
        .unwrap();
    made.set_geo_transform(&[11_850_000.0, 10.0, 0.0, 6_970_000.0, 0.0, -10.0])
        .unwrap();
    drop(made);
    let mut bytes = std::fs::read(&path).unwrap();
    // Key 3076, one short, 9001.
    let key: Vec<u8> = [3076_u16, 0, 1, 9001]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let at = bytes.windows(8).position(|window| window == key).unwrap();
    bytes[at + 6..at + 8].copy_from_slice(&9003_u16.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let session = Session::builder().build().unwrap();
    let expected = {
        let data = Dataset::open(&path).unwrap();
        let grid = data.geo_transform().unwrap();
        corners(&data.spatial_ref().unwrap(), grid, data.raster_size()).unwrap()[0]
    };
    assert!((expected[0] - -77.2).abs() < 1.0 && (expected[1] - 38.8).abs() < 1.0);
    let mut backends = vec![Backend::Cog, Backend::Gdal, Backend::Auto];
    if cfg!(feature = "async-tiff") {
        backends.push(Backend::AsyncTiff);
    }
    for backend in backends {
        let location = Location::Local(path.clone());
        let raster = session.open(&location, backend).unwrap();
        let grid = raster.profile().level_geobox(0).unwrap();
        assert_eq!(grid.crs.as_ref().unwrap().epsg(), None, "{backend:?}");
        // The centre of its first pixel, which is ten feet wide: PROJ's ways from HARN to WGS 84 differ by a metre.
        let [lon, lat] = expected;
        let first = grid.pixel_at(lon + 1.75e-5, lat - 1.4e-5).unwrap();
        assert_eq!(first, Some("0,0,1,1".parse().unwrap()), "{backend:?}");
    }
}

fn compare_all(folder: &Path) -> Tally {
    let manifest = std::fs::read(folder.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let session = Session::builder().build().unwrap();
    let mut tally = Tally::default();
    for file in manifest["files"].as_array().unwrap() {
        let name = file["file"].as_str().unwrap();
        let path = folder.join(name);
        let location = Location::Local(path.clone());
        let Ok(raster) = session.open(&location, Backend::Cog) else {
            continue;
        };
        let theirs = Dataset::open(&path)
            .ok()
            .and_then(|data| data.spatial_ref().ok());
        match (&raster.profile().crs, theirs) {
            // Parts that are those of a code are the code.
            (Some(Crs::Epsg(_)), Some(theirs)) if theirs.auth_code().is_err() => tally.same += 1,
            (Some(Crs::Wkt(wkt)), theirs) => {
                let differs = difference(wkt, theirs);
                let is_agreed = AGREED.iter().any(|(end, _)| name.ends_with(end));
                match differs {
                    Some(how) if !is_agreed => tally.wrong.push(format!("{name}: {how}")),
                    _ => tally.same += 1,
                }
            }
            (None, Some(_)) => tally.silent.push(name.to_owned()),
            _ => {}
        }
    }
    tally
}

/// Returns in what WKT of ours differs from GDAL's reading of the file, if in anything.
fn difference(ours: &str, theirs: Option<SpatialRef>) -> Option<String> {
    let Ok(mut parsed) = SpatialRef::from_wkt(ours) else {
        return Some(format!("GDAL does not read {ours}"));
    };
    let Some(mut theirs) = theirs else {
        return Some(format!("GDAL names no CRS, we {ours}"));
    };
    parsed.set_axis_mapping_strategy(AxisMappingStrategy::TraditionalGisOrder);
    theirs.set_axis_mapping_strategy(AxisMappingStrategy::TraditionalGisOrder);
    if parsed == theirs {
        return None;
    }
    let said = |crs: &SpatialRef| crs.to_proj4().unwrap_or_default();
    let (a, b) = (said(&parsed), said(&theirs));
    // Names and codes of parts are not where a pixel lies.
    (a.is_empty() || !is_near(&a, &b)).then(|| {
        let wkt = theirs.to_wkt().unwrap_or_default();
        format!("{a}, GDAL says {b}\n  ours {ours}\n  GDAL {wkt}")
    })
}

/// Returns true for PROJ strings of the same words, and of numbers that differ by rounding only.
fn is_near(a: &str, b: &str) -> bool {
    let words = |text: &str| -> BTreeMap<String, String> {
        let pairs = text.split_whitespace().map(|word| {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            (name.to_owned(), value.to_owned())
        });
        pairs.collect()
    };
    let (a, b) = (words(a), words(b));
    let same = |(a, b): (&String, &String)| match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() <= 1e-9 * b.abs().max(1.0),
        _ => a == b,
    };
    a.keys().eq(b.keys()) && a.values().zip(b.values()).all(same)
}
