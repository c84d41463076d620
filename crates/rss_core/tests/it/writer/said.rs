//! What a file says of itself, as GDAL lists it.

use rss_core::{
    Backend, Crs, DataType, ErrorKind, GeoTransform, Number, Raster,
    writer::{Band, BandStatistics, CogOptions, Compression},
};
use serde_json::Value;

use super::{grid, local, raster, session};

/// Returns what `gdalinfo` lists.
fn info(path: &std::path::Path, arguments: &[&str]) -> Option<Value> {
    let mut all = vec!["-json"];
    all.extend(arguments);
    all.push(path.to_str().unwrap());
    let done = super::gdal("gdalinfo", &all)?;
    Some(serde_json::from_slice(&done.stdout).unwrap())
}

#[test]
fn gdal_lists_what_was_said() {
    let dir = tempfile::tempdir().unwrap();
    let (session, path) = (session(), dir.path().join("a.tif"));
    let options = CogOptions::new()
        .with_compression(Compression::Zstd(9))
        .with_bands([
            Band::named("red <1> & \"near\" Rödel")
                .with_scale(0.0001, -0.1)
                .with_unit("1"),
            Band::new(),
            Band::named("nir"),
        ]);
    let raster = raster(DataType::I16, 4, 1000, 700);
    session.save_cog(&local(&path), &raster, &options).unwrap();

    // The COG reader reads it too.
    let file = session.open(&local(&path), Backend::Cog).unwrap();
    let profile = file.profile();
    let [first, second, third, _] = &profile.bands[..] else {
        panic!("{} bands", profile.bands.len());
    };
    assert_eq!(
        first.description.as_deref(),
        Some("red <1> & \"near\" Rödel")
    );
    assert_eq!((first.scale, first.offset), (Some(0.0001), Some(-0.1)));
    assert_eq!(first.unit.as_deref(), Some("1"));
    assert_eq!(second.description, None);
    assert_eq!(third.description.as_deref(), Some("nir"));

    let Some(info) = info(&path, &[]) else { return };
    assert_eq!(info["size"], serde_json::json!([1000, 700]));
    assert_eq!(
        info["geoTransform"],
        serde_json::json!([499_980.0, 10.0, 0.0, 7_200_040.0, 0.0, -10.0])
    );
    let wkt = info["coordinateSystem"]["wkt"].as_str().unwrap();
    assert!(wkt.contains("ID[\"EPSG\",32756]"), "{wkt}");
    let structure = &info["metadata"]["IMAGE_STRUCTURE"];
    assert_eq!(structure["COMPRESSION"], "ZSTD");
    assert_eq!(structure["INTERLEAVE"], "BAND");
    let bands = info["bands"].as_array().unwrap();
    assert_eq!(bands.len(), 4);
    for band in bands {
        assert_eq!(band["block"], serde_json::json!([512, 512]));
        assert_eq!(band["noDataValue"], 77.0);
        assert_eq!(band["overviews"][0]["size"], serde_json::json!([500, 350]));
    }
    assert_eq!(bands[0]["description"], "red <1> & \"near\" Rödel");
    assert_eq!(bands[0]["scale"], 0.0001);
    assert_eq!(bands[0]["offset"], -0.1);
    assert_eq!(bands[0]["unit"], "1");
    assert_eq!(bands[2]["description"], "nir");
    for name in ["description", "scale", "unit"] {
        assert_eq!(bands[1].get(name), None, "{name}");
    }
}

/// What GDAL computes from the pixels is what was counted while they were written.
#[test]
fn statistics_are_those_that_gdal_computes() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    for dtype in [
        DataType::U8,
        DataType::I16,
        DataType::U32,
        DataType::F32,
        DataType::F64,
    ] {
        let path = dir.path().join(format!("{dtype}.tif"));
        let mut raster = raster(dtype, 2, 700, 600);
        if let rss_core::Pixels::F32(samples) = &mut raster.pixels {
            samples
                .slice_mut(ndarray::s![.., 10..20, ..])
                .fill(f32::NAN);
        }
        let options = CogOptions::new().with_tile(256);
        let report = session.save_cog(&local(&path), &raster, &options).unwrap();
        let Some(said) = info(&path, &[]) else { return };
        // Nothing is said here, so it is computed.
        let options = options.without_statistics();
        let silent = session.save_cog(&local(&path), &raster, &options).unwrap();
        assert!(silent.statistics.is_empty());
        let nothing = info(&path, &[]).unwrap()["bands"][0]["metadata"][""].clone();
        assert_eq!(nothing, Value::Null);
        let computed = info(&path, &["-stats"]).unwrap();
        for band in 0..2 {
            let number = |list: &Value, name: &str| -> f64 {
                let text = &list["bands"][band]["metadata"][""][name];
                text.as_str()
                    .unwrap_or_else(|| panic!("{name} of {list}"))
                    .parse()
                    .unwrap()
            };
            let found: BandStatistics = report.statistics[band].unwrap();
            for (name, value, exactly) in [
                ("STATISTICS_MINIMUM", found.min, true),
                ("STATISTICS_MAXIMUM", found.max, true),
                ("STATISTICS_MEAN", found.mean, false),
                ("STATISTICS_STDDEV", found.stddev, false),
            ] {
                assert_eq!(number(&said, name), value, "{dtype} {name}");
                let other = number(&computed, name);
                let bound = if exactly { 1e-13 } else { 1e-9 } * other.abs().max(1.0);
                assert!(
                    (other - value).abs() <= bound,
                    "{dtype} {name}: {value}, {other}"
                );
            }
            let percent = found.valid_percent();
            let name = "STATISTICS_VALID_PERCENT";
            assert_eq!(number(&said, name), percent);
            // GDAL rounds it to four digits.
            assert!((number(&computed, name) - percent).abs() < 0.01, "{dtype}");
        }
    }
}

#[test]
fn an_image_without_data_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (session, path) = (session(), dir.path().join("a.tif"));
    let pixels = rss_core::Pixels::F32(ndarray::Array3::from_elem((1, 50, 50), f32::NAN));
    let raster = Raster {
        pixels,
        geobox: grid(50, 50),
        nodata: Some(f64::NAN.into()),
        sparse: Vec::new(),
    };
    let report = session
        .save_cog(&local(&path), &raster, &CogOptions::new())
        .unwrap();
    assert_eq!(report.statistics, [None]);
    let Some(info) = info(&path, &[]) else { return };
    let band = &info["bands"][0];
    assert_eq!(band["noDataValue"], "NaN");
    assert_eq!(
        band["metadata"][""],
        serde_json::json!({"STATISTICS_VALID_PERCENT": "0"})
    );
}

/// GDAL reads nodata of 64-bit samples as a whole number.
#[test]
fn nodata_of_64_bits_is_read_as_it_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let (session, path) = (session(), dir.path().join("a.tif"));
    let odd = (1_i64 << 53) + 1;
    for (dtype, nodata, expected) in [
        (DataType::I64, Number::from(1e13), "10000000000000"),
        (DataType::U64, 1e13.into(), "10000000000000"),
        // No float is this integer.
        (DataType::I64, odd.into(), "9007199254740993"),
        (DataType::U64, odd.into(), "9007199254740993"),
        (DataType::I64, i64::MIN.into(), "-9223372036854775808"),
        (DataType::I64, i64::MAX.into(), "9223372036854775807"),
        (DataType::U64, u64::MAX.into(), "18446744073709551615"),
    ] {
        let mut raster = raster(dtype, 1, 60, 40);
        raster.nodata = Some(nodata);
        for is_cog in [true, false] {
            if is_cog {
                let options = CogOptions::new();
                session.save_cog(&local(&path), &raster, &options).unwrap();
            } else {
                raster.save(&path).unwrap();
            }
            let backends = match cfg!(feature = "gdal") {
                true => &[Backend::Cog, Backend::Gdal][..],
                false => &[Backend::Cog],
            };
            for &backend in backends {
                let file = session.open(&local(&path), backend).unwrap();
                assert_eq!(file.profile().nodata, Some(nodata), "{backend}");
            }
            let Some(info) = info(&path, &[]) else { return };
            // What is past 63 bits is listed as text.
            let found = info["bands"][0]["noDataValue"].to_string();
            assert_eq!(found.trim_matches('"'), expected, "{dtype} {is_cog}");
        }
    }
}

/// Grids: degrees or metres by the code and not by the numbers, turned ones, and none.
#[test]
fn grids_are_read_as_they_were_written() {
    let dir = tempfile::tempdir().unwrap();
    let (session, path) = (session(), dir.path().join("a.tif"));
    let near_zero = GeoTransform([10.0, 1.0, 0.0, 20.0, 0.0, -1.0]);
    for (code, transform, is_geographic) in [
        (
            Some(4326),
            GeoTransform([150.0, 0.001, 0.0, -30.0, 0.0, -0.001]),
            true,
        ),
        // Metres that might be degrees.
        (Some(3577), near_zero, false),
        (Some(32_756), near_zero, false),
        (
            Some(3857),
            GeoTransform([1e6, 30.0, 2.0, 2e6, 1.0, -30.0]),
            false,
        ),
        (Some(4283), near_zero, true),
        (None, GeoTransform([0.5, 2.0, 0.0, 9.0, 0.0, 3.0]), false),
    ] {
        let mut raster = raster(DataType::U8, 1, 60, 40);
        raster.geobox.crs = code.map(Crs::Epsg);
        raster.geobox.transform = Some(transform);
        session
            .save_cog(&local(&path), &raster, &CogOptions::new())
            .unwrap();
        let file = session.open(&local(&path), Backend::Cog).unwrap();
        assert_eq!(file.profile().crs, raster.geobox.crs);
        assert_eq!(file.profile().transform, Some(transform));
        let Some(info) = info(&path, &[]) else {
            continue;
        };
        let wkt = info["coordinateSystem"]["wkt"].as_str().unwrap_or_default();
        assert_eq!(wkt.starts_with("GEOGCRS"), is_geographic, "{wkt}");
        if let Some(code) = code {
            assert!(wkt.contains(&format!("ID[\"EPSG\",{code}]]")), "{wkt}");
        }
        let found: Vec<f64> = serde_json::from_value(info["geoTransform"].clone()).unwrap();
        assert_eq!(found, transform.0);
    }
}

/// A CRS is said where the pixels have no place in it yet: ground control points may come from elsewhere.
#[test]
fn a_crs_is_written_without_a_transform() {
    let dir = tempfile::tempdir().unwrap();
    let (session, path) = (session(), dir.path().join("a.tif"));
    for (code, start) in [(32_756, "PROJCRS"), (4326, "GEOGCRS")] {
        let mut raster = raster(DataType::U8, 1, 60, 40);
        raster.geobox.crs = Some(Crs::Epsg(code));
        raster.geobox.transform = None;
        for is_cog in [true, false] {
            if is_cog {
                let options = CogOptions::new();
                session.save_cog(&local(&path), &raster, &options).unwrap();
            } else {
                raster.save(&path).unwrap();
            }
            let file = session.open(&local(&path), Backend::Cog).unwrap();
            assert_eq!(file.profile().crs, raster.geobox.crs);
            assert_eq!(file.profile().transform, None);
            let Some(info) = info(&path, &[]) else {
                continue;
            };
            let wkt = info["coordinateSystem"]["wkt"].as_str().unwrap_or_default();
            assert!(wkt.starts_with(start), "{wkt}");
            assert!(wkt.contains(&format!("ID[\"EPSG\",{code}]]")), "{wkt}");
            assert_eq!(info.get("geoTransform"), None, "{is_cog}");
        }
    }
    // A code of no list, which may be in degrees or not.
    let mut raster = raster(DataType::U8, 1, 60, 40);
    raster.geobox.crs = Some(Crs::Epsg(1024));
    raster.geobox.transform = None;
    let saved = session.save_cog(&local(&path), &raster, &CogOptions::new());
    let err = saved.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::Unsupported);
    assert_eq!(
        err.message(),
        "EPSG:1024 is unknown, and without a geotransform it is undetermined whether its units are degrees"
    );
}
