//! Assets of several bands: all are read and named, each tile once, and one is chosen by number or name.

use std::path::Path;

use ndarray::{ArrayView3, Axis, s};
use rss_core::{
    Crs, ErrorKind, Location, Manifest, QueryResult, Session, Trust,
    apply::{
        ApplyOptions, Block, ImageCube, ImageCubeOptions, OnFailure,
        sample::{Points, SampleOptions},
        time::Grouping,
    },
    mask::Cleanup,
    zarr::{Cube, CubeImage, CubeOptions},
};
use rss_testbed::{Service, Testbed};
use serde_json::{Value, json};
use tempfile::TempDir;

const SIDE: usize = 96;

/// A sample that tells its band, column and row.
fn sample(band: usize, col: usize, row: usize) -> u16 {
    u16::try_from(1000 * (band + 1) + (row * 7 + col * 3) % 900).unwrap()
}

/// Writes a GeoTIFF of uint16 samples whose bands lie pixel by pixel, in strips of 32 rows.
fn chunky(
    path: &Path,
    bands: usize,
    descriptions: &[&str],
    value: impl Fn(usize, usize, usize) -> u16,
) {
    const ROWS: usize = 32;
    let count = SIDE.div_ceil(ROWS);
    let mut pixels = Vec::new();
    for row in 0..SIDE {
        for col in 0..SIDE {
            for band in 0..bands {
                pixels.extend(value(band, col, row).to_le_bytes());
            }
        }
    }
    let bytes = |shorts: &[u16]| {
        shorts
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let longs = |longs: &[u32]| {
        longs
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let doubles = |all: &[f64]| {
        all.iter()
            .flat_map(|v| v.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    let each = |value: u16| bytes(&vec![value; bands]);
    let strip = u32::try_from(ROWS * SIDE * bands * 2).unwrap();
    let side = u16::try_from(SIDE).unwrap();
    let offsets: Vec<u32> = (0..count)
        .map(|n| 8 + u32::try_from(n).unwrap() * strip)
        .collect();
    let items: String = descriptions
        .iter()
        .enumerate()
        .map(|(n, name)| {
            format!("<Item name=\"DESCRIPTION\" sample=\"{n}\" role=\"description\">{name}</Item>")
        })
        .collect();
    let text = format!("<GDALMetadata>{items}</GDALMetadata>\0").into_bytes();
    let mut tags: Vec<(u16, u16, u32, Vec<u8>)> = vec![
        (256, 3, 1, bytes(&[side])),
        (257, 3, 1, bytes(&[side])),
        (258, 3, u32::try_from(bands).unwrap(), each(16)),
        (259, 3, 1, bytes(&[1])),
        (262, 3, 1, bytes(&[1])),
        (273, 4, u32::try_from(count).unwrap(), longs(&offsets)),
        (277, 3, 1, bytes(&[u16::try_from(bands).unwrap()])),
        (278, 3, 1, bytes(&[32])),
        (
            279,
            4,
            u32::try_from(count).unwrap(),
            longs(&vec![strip; count]),
        ),
        (284, 3, 1, bytes(&[1])),
        (339, 3, u32::try_from(bands).unwrap(), each(1)),
        (33550, 12, 3, doubles(&[10.0, 10.0, 0.0])),
        (
            33922,
            12,
            6,
            doubles(&[0.0, 0.0, 0.0, 500_000.0, 7_000_000.0, 0.0]),
        ),
        (
            34735,
            3,
            16,
            bytes(&[1, 1, 0, 3, 1024, 0, 1, 1, 1025, 0, 1, 1, 3072, 0, 1, 32756]),
        ),
    ];
    if bands > 1 {
        let extra = u32::try_from(bands - 1).unwrap();
        tags.push((338, 3, extra, bytes(&vec![0; bands - 1])));
    }
    if !descriptions.is_empty() {
        tags.push((42112, 2, u32::try_from(text.len()).unwrap(), text));
    }
    tags.sort_by_key(|tag| tag.0);
    let ifd = 8 + pixels.len();
    let mut tail = ifd + 2 + 12 * tags.len() + 4;
    let mut head = Vec::new();
    let mut values = Vec::new();
    for (tag, kind, count, mut value) in tags {
        head.extend(tag.to_le_bytes());
        head.extend(kind.to_le_bytes());
        head.extend(count.to_le_bytes());
        if value.len() <= 4 {
            value.resize(4, 0);
            head.extend(value);
        } else {
            head.extend(u32::try_from(tail).unwrap().to_le_bytes());
            value.resize(value.len().next_multiple_of(2), 0);
            tail += value.len();
            values.extend(value);
        }
    }
    let mut file = b"II\x2a\0".to_vec();
    file.extend(u32::try_from(ifd).unwrap().to_le_bytes());
    file.extend(pixels);
    file.extend(u16::try_from(head.len() / 12).unwrap().to_le_bytes());
    file.extend(head);
    file.extend([0; 4]);
    file.extend(values);
    std::fs::write(path, file).unwrap();
}

/// Items of one asset each, and their files.
struct Files {
    dir: TempDir,
    items: Vec<Value>,
    session: Session,
}

impl Files {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            items: Vec::new(),
            session: Session::builder()
                .cpu_threads(2)
                .retries(0)
                .build()
                .unwrap(),
        }
    }

    /// Adds the image of the next day; `stated` are further fields of its asset.
    fn add(&mut self, key: &str, bands: usize, descriptions: &[&str], stated: Value) -> &mut Value {
        let path = self.dir.path().join(format!("{}.tif", self.items.len()));
        chunky(&path, bands, descriptions, sample);
        self.name(key, &path.to_string_lossy(), stated)
    }

    fn name(&mut self, key: &str, href: &str, mut stated: Value) -> &mut Value {
        let day = self.items.len() + 1;
        stated["href"] = json!(href);
        stated["type"] = json!("image/tiff; application=geotiff");
        self.items.push(json!({
            "type": "Feature", "stac_version": "1.0.0", "id": format!("day-{day}"), "geometry": null,
            "bbox": [153.0, -27.13, 153.01, -27.12], "links": [], "assets": {key: stated},
            "properties": {"datetime": format!("2021-01-{day:02}T12:00:00Z")},
        }));
        self.items.last_mut().unwrap()
    }

    fn found(&self) -> QueryResult {
        let all = json!({"type": "FeatureCollection", "features": self.items});
        QueryResult::from_json(&self.session, all.to_string().as_bytes(), Trust::User).unwrap()
    }

    fn selected(&self, names: &[&str]) -> QueryResult {
        self.found().with_bands(names.iter().copied())
    }

    fn cube(&self, names: &[&str]) -> rss_core::Result<ImageCube> {
        self.session
            .cube(&self.selected(names), &ImageCubeOptions::new())
    }
}

fn names(cube: &ImageCube) -> Vec<&str> {
    cube.bands().iter().map(|band| band.name.as_str()).collect()
}

/// The thousands of a pixel of each band, which tell its band in the file, for each date: 0 where it is missing.
fn bands_of(session: &Session, cube: &ImageCube) -> Vec<Vec<u16>> {
    let work = cube.apply(ApplyOptions::new(), |block: &Block<f32>| {
        let data = block.data();
        let (times, bands, height, width) = data.dim();
        let flat = data
            .to_owned()
            .into_shape_with_order((times * bands, height, width));
        flat.map_err(|err| rss_core::Error::new(ErrorKind::InvalidInput, err.to_string()))
    });
    let (raster, _) = session.compute(work).unwrap();
    let view: ArrayView3<'_, f32> = raster.pixels.view().unwrap();
    let thousands = |layer: usize| {
        let layer = view.index_axis(Axis(0), layer);
        let at = layer[(11, 5)];
        if at.is_nan() {
            return 0;
        }
        let band = (1..=9_u16).find(|band| f32::from(sample(usize::from(*band) - 1, 5, 11)) == at);
        let band = band.unwrap();
        for ((row, col), &value) in layer.indexed_iter() {
            assert_eq!(value, f32::from(sample(usize::from(band) - 1, col, row)));
        }
        band
    };
    let layers: Vec<u16> = (0..view.dim().0).map(thousands).collect();
    layers
        .chunks(cube.bands().len())
        .map(<[u16]>::to_vec)
        .collect()
}

/// As Planetary Computer states the bands of NAIP.
fn naip() -> Value {
    json!({"eo:bands": [{"name": "Red", "common_name": "red"}, {"name": "Green", "common_name": "green"},
        {"name": "Blue", "common_name": "blue"},
        {"name": "NIR", "common_name": "nir", "description": "near-infrared"}]})
}

#[test]
fn all_bands_of_an_asset_are_read_and_named() {
    for (stated, described, expected) in [
        (
            json!({}),
            &[][..],
            ["image:1", "image:2", "image:3", "image:4"],
        ),
        (
            naip(),
            &[],
            ["image:red", "image:green", "image:blue", "image:nir"],
        ),
        (
            json!({}),
            &["b", "g", "r", "n"],
            ["image:b", "image:g", "image:r", "image:n"],
        ),
        // A catalogue that lists fewer: the file decides.
        (
            json!({"raster:bands": [{"nodata": 0}]}),
            &[],
            ["image:1", "image:2", "image:3", "image:4"],
        ),
        (
            json!({"bands": [{"name": "vv"}, {"name": "vh"}, {"name": "angle"}]}),
            &[],
            ["image:vv", "image:vh", "image:angle", "image:4"],
        ),
    ] {
        let mut files = Files::new();
        files.add("image", 4, described, stated.clone());
        // Nothing is selected: what looks like data is.
        let cube = files
            .session
            .cube(&files.found(), &ImageCubeOptions::new())
            .unwrap();
        assert_eq!(names(&cube), expected, "{stated}");
        assert_eq!(bands_of(&files.session, &cube), [[1, 2, 3, 4]], "{stated}");
    }
    let mut files = Files::new();
    files.add("red", 1, &["something"], json!({}));
    let cube = files.cube(&["red"]).unwrap();
    assert_eq!(names(&cube), ["red"]);
}

#[test]
fn a_band_of_an_asset_is_chosen_by_its_number_or_a_name() {
    let mut files = Files::new();
    files.add("image", 4, &["", "", "", "Near Infrared"], naip());
    for (selected, expected) in [
        (&["image:2"][..], &[2][..]),
        (&["image:nir"], &[4]),
        (&["image:NIR", "image:Red"], &[4, 1]),
        (&["image:near-infrared"], &[4]),
        // By the file's own description.
        (&["image:near infrared"], &[4]),
        (&["image:2", "image:1", "image:2"], &[2, 1]),
    ] {
        let cube = files.cube(selected).unwrap();
        assert_eq!(bands_of(&files.session, &cube), [expected], "{selected:?}");
        let mut distinct = selected.to_vec();
        distinct.dedup();
        distinct.truncate(expected.len());
        assert_eq!(names(&cube), distinct, "{selected:?}");
    }
    // All of them, and one of them by another name.
    let cube = files.cube(&["image", "image:2"]).unwrap();
    assert_eq!(bands_of(&files.session, &cube)[0][..4], [1, 2, 3, 4]);
    let made = cube.apply(ApplyOptions::new(), |block: &Block<f32>| {
        let nir = block.band("image:nir")?;
        assert_eq!(block.band("image:4")?, nir);
        assert_eq!(block.band("image:NIR")?, nir);
        let err = block.band("image").unwrap_err();
        assert!(
            err.message()
                .starts_with("`image` has several bands, expected one of image:red"),
            "{err}"
        );
        assert!(block.band("image:5").is_err());
        Ok(nir.to_owned())
    });
    files.session.compute(made).unwrap();
    #[cfg(feature = "expression")]
    {
        // A formula names them the same.
        let ndvi = "d=image:nir-image:2".parse().unwrap();
        let cube = files.cube(&["image:nir", "image:2"]).unwrap();
        let work = cube.express(&[ndvi], None, ApplyOptions::new()).unwrap();
        let (raster, _) = files.session.compute(work).unwrap();
        assert!(
            raster
                .pixels
                .to_f64()
                .iter()
                .all(|&difference| difference == 2000.0)
        );
        for (name, said) in [
            ("image:5", "band 5 is not one of 1 to 4"),
            ("image:0", "bands are counted from 1"),
            ("image:swir", "band `swir` is not one of"),
        ] {
            let err = files.cube(&[name]).and_then(|cube| {
                let work = cube.apply(ApplyOptions::new(), |block: &Block<f32>| {
                    Ok(block.data().slice(s![0, .., .., ..]).to_owned())
                });
                files.session.compute(work).map(|_| ())
            });
            let err = err.unwrap_err();
            assert_eq!(err.kind(), ErrorKind::InvalidInput, "{err}");
            assert!(err.message().contains(said), "{name}: {err}");
            assert!(
                name == "image:0" || err.message().contains("day-1"),
                "{name}: {err}"
            );
        }
    }
}

#[test]
fn bands_of_other_items_are_found_by_their_names() {
    let mut files = Files::new();
    let list = |names: &[&str]| {
        let bands: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        json!({ "eo:bands": bands })
    };
    files.add("image", 3, &[], list(&["red", "green", "blue"]));
    files.add("image", 3, &[], list(&["blue", "green", "red"]));
    // More bands, and one fewer.
    files.add("image", 4, &[], list(&["red", "green", "blue", "nir"]));
    let cube = files.cube(&["image"]).unwrap_err();
    assert!(
        cube.message().contains("item day-1, asset image:nir"),
        "{cube}"
    );
    let skip = ImageCubeOptions::new()
        .with_on_failure(OnFailure::Skip)
        .with_grouping(Grouping::Item);
    let cube = files
        .session
        .cube(&files.selected(&["image"]), &skip)
        .unwrap();
    assert_eq!(
        names(&cube),
        ["image:red", "image:green", "image:blue", "image:nir"]
    );
    assert_eq!(
        bands_of(&files.session, &cube),
        [[1, 2, 3, 0], [3, 2, 1, 0], [1, 2, 3, 4]]
    );
}

#[test]
fn files_of_other_numbers_of_bands_are_an_error_or_a_missing_input() {
    let skip = ImageCubeOptions::new()
        .with_on_failure(OnFailure::Skip)
        .with_grouping(Grouping::Item);
    for (first, second, said, seen) in [
        (3, 2, "band 3 is not one of 1 to 2", [[1, 2, 3], [1, 2, 0]]),
        (
            3,
            4,
            "the file has 4 bands, expected 3",
            [[1, 2, 3], [0, 0, 0]],
        ),
    ] {
        let mut files = Files::new();
        files.add("image", first, &[], json!({}));
        files.add("image", second, &[], json!({}));
        let cube = files.cube(&["image"]).unwrap();
        let work = cube.apply(ApplyOptions::new(), |block: &Block<f32>| {
            Ok(block.data().slice(s![0, .., .., ..]).to_owned())
        });
        let err = files.session.compute(work).unwrap_err();
        assert!(err.message().contains("item day-2, asset image:"), "{err}");
        assert!(err.message().contains(said), "{err}");
        let cube = files
            .session
            .cube(&files.selected(&["image"]), &skip)
            .unwrap();
        assert_eq!(bands_of(&files.session, &cube), seen);
        let to = Location::parse(&files.dir.path().join("c.zarr").to_string_lossy()).unwrap();
        let images = CubeImage::of(&files.selected(&["image"])).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let options = CubeOptions::new();
        let err = runtime.block_on(Cube::create(&files.session, &to, images, &options));
        let err = err.unwrap_err();
        assert!(err.message().contains("image day-2, asset image"), "{err}");
    }
}

/// A bucket with one file of so many bands, and the item of it.
fn remote(bands: usize) -> (Testbed, Files) {
    let bed = Testbed::builder().start().unwrap();
    let mut files = Files::new();
    files.session = Session::builder()
        .s3_endpoint(&bed.s3_endpoint())
        .cpu_threads(2)
        .retries(0)
        .build()
        .unwrap();
    let path = files.dir.path().join("image.tif");
    chunky(&path, bands, &[], sample);
    bed.put_file("images", "image.tif", &path).unwrap();
    files.name("image", "s3://images/image.tif", json!({}));
    (bed, files)
}

#[test]
fn a_tile_that_holds_several_bands_is_fetched_once() {
    type Read<'a> = &'a dyn Fn(&Files, &str);
    let requests = |selected: &str, read: Read<'_>| {
        let (bed, files) = remote(8);
        read(&files, selected);
        bed.requests(Service::S3).len()
    };
    let apply = |files: &Files, selected: &str| {
        let cube = files.cube(&[selected]).unwrap();
        bands_of(&files.session, &cube);
    };
    let points = |files: &Files, selected: &str| {
        let at = [[500_100.0, 6_999_900.0], [500_500.0, 6_999_100.0]];
        let points = Points::new(at, Crs::Epsg(32756)).unwrap();
        let found = files.selected(&[selected]);
        let (table, _) = files
            .session
            .sample_points(&found, points, &SampleOptions::new())
            .unwrap();
        let bands: Vec<String> = table.rows().map(|row| row.band.to_owned()).collect();
        let count = bands.len() / 2;
        for (n, row) in table.rows().enumerate() {
            let (point, band) = (n / count, n % count);
            let (col, row_of) = [(10, 10), (50, 90)][point];
            assert_eq!(
                row.get("value"),
                Some(f64::from(sample(band, col, row_of))),
                "{n}"
            );
        }
    };
    let zarr = |files: &Files, selected: &str| {
        let to = Location::parse(&files.dir.path().join("c.zarr").to_string_lossy()).unwrap();
        let images = CubeImage::of(&files.selected(&[selected])).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            Cube::create(&files.session, &to, images, &CubeOptions::new())
                .await
                .unwrap();
            let cube = Cube::open(&files.session, &to).await.unwrap();
            if cube.bands().len() == 1 {
                return assert_eq!(cube.bands()[0].name, "image.1");
            }
            assert_eq!(cube.bands()[1].name, "image.2");
            let second = cube.read::<u16>("image:2", 0..1, None, 0).await.unwrap();
            for ((_, row, col), &value) in second.indexed_iter() {
                assert_eq!(value, sample(1, col, row));
            }
        });
    };
    let ways: [(&str, Read<'_>); 3] = [("apply", &apply), ("points", &points), ("zarr", &zarr)];
    for (name, read) in ways {
        let one = requests("image:1", read);
        assert!(one > 1, "{name}");
        assert_eq!(requests("image", read), one, "{name}");
    }
}

#[test]
fn a_manifest_names_bands_of_an_asset_and_the_band_of_a_mask() {
    let mut files = Files::new();
    let mut stated = naip();
    stated["raster:bands"] =
        json!([{"scale": 0.1}, {"scale": 0.5}, {}, {"scale": 0.001, "nodata": 4000}]);
    files.add("image", 4, &[], stated);
    // Classes of fmask in the second band: 2 is cloud.
    let qa = files.dir.path().join("qa.tif");
    chunky(&qa, 2, &[], |band, col, _| {
        u16::from(band == 1 && col < 48) + 1
    });
    files.items[0]["assets"]["qa"] = json!({"href": qa});
    let yaml = "source: mine\ncollection: naip\nstac_collections: [naip]\nbands:\n  \
        - {asset: \"image:4\", canonical: nir, resolution: 10, dtype: uint16, kind: reflectance}\n  \
        - {asset: \"image:Red\", canonical: red, resolution: 10, dtype: uint16, kind: reflectance}\n  \
        - {asset: image, canonical: all, resolution: 10, dtype: uint16, kind: reflectance}\n  \
        - {asset: \"qa:2\", canonical: fmask, resolution: 10, dtype: uint16, kind: qa}\n";
    let manifest = Manifest::from_yaml(yaml).unwrap();
    let options = ImageCubeOptions::new()
        .with_manifest(manifest.clone())
        .reflectance()
        .with_mask("qa:2:clouds".parse().unwrap(), Cleanup::default());
    let found = |names: &[&str]| {
        files
            .found()
            .with_canonical_bands(&manifest, names)
            .unwrap()
    };
    let cube = files
        .session
        .cube(&found(&["nir", "red", "all:2"]), &options)
        .unwrap();
    assert_eq!(names(&cube), ["nir", "red", "image:2"]);
    let work = cube.apply(ApplyOptions::new(), |block: &Block<f32>| {
        let (nir, red) = (block.band("nir")?, block.band("red")?);
        let mut both = nir.to_owned();
        both.append(Axis(0), red)
            .map_err(|err| rss_core::Error::new(ErrorKind::InvalidInput, err.to_string()))?;
        Ok(both)
    });
    let (raster, _) = files.session.compute(work).unwrap();
    let view: ArrayView3<'_, f32> = raster.pixels.view().unwrap();
    assert!(
        view[(0, 3, 20)].is_nan() && view[(1, 3, 20)].is_nan(),
        "cloud"
    );
    let near = |value: f32, expected: f64| (f64::from(value) - expected).abs() < 1e-4 * expected;
    assert!(near(view[(0, 3, 60)], f64::from(sample(3, 60, 3)) * 0.001));
    assert!(near(view[(1, 3, 60)], f64::from(sample(0, 60, 3)) * 0.1));
}
