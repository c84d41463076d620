//! `rss apply` and `rss mosaic`: one picture of the seed query's scenes.

use std::path::Path;

use rss_core::{Crs, GeoBox, GeoTransform, Pixels, Raster, Size};
use rss_testbed::{Band, Fault, Rule, Scene, Service};

use super::stage::{SEED, Stage};

fn args<'a>(command: &'a str, url: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&[command, url][..], SEED, more].concat()
}

/// Returns the samples of a `.bin` file of a type.
fn raw<T, const SIZE: usize>(stage: &Stage, name: &str, of: fn([u8; SIZE]) -> T) -> Vec<T> {
    let bytes = std::fs::read(stage.path(name)).unwrap();
    let (samples, rest) = bytes.as_chunks::<SIZE>();
    assert!(rest.is_empty(), "{name}");
    samples.iter().copied().map(of).collect()
}

/// The samples of a result in `.bin`, little-endian.
fn samples(stage: &Stage, name: &str) -> Vec<f32> {
    let bytes = std::fs::read(stage.path(name)).unwrap();
    let (numbers, _) = bytes.as_chunks::<4>();
    numbers
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect()
}

fn ndvi(scene: &Scene, col: u32, row: u32) -> Option<f32> {
    let class = scene.pixel(Band::Fmask, col / 2, row / 2);
    let (red, nir) = (
        scene.pixel(Band::Red, col, row),
        scene.pixel(Band::Nir, col, row),
    );
    let (red, nir) = (f32::from(red) / 1e4, f32::from(nir) / 1e4);
    (!matches!(class, 2 | 3) && red > -0.09).then(|| (nir - red) / (nir + red))
}

#[test]
fn a_cloud_free_index_is_made_of_a_query() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    let formula = "ndvi=(nir-red)/(nir+red)";
    let how = ["--expr", formula, "--mask", "clouds", "--reduce", "median"];
    stage
        .run(&args(
            "apply",
            &url,
            &[&how[..], &["-o", "ndvi.bin"]].concat(),
        ))
        .text();
    let made = samples(&stage, "ndvi.bin");
    assert_eq!(made.len(), 1200 * 1200);
    for (row, col) in [(0, 0), (511, 512), (700, 3), (1199, 1199), (640, 640)] {
        let scenes = stage.bed.scenes().iter();
        let mut valid: Vec<f32> = scenes.filter_map(|scene| ndvi(scene, col, row)).collect();
        valid.sort_by(f32::total_cmp);
        let middle = valid.len() / 2;
        let expected = match valid.len() {
            0 => f32::NAN,
            n if n % 2 == 1 => valid[middle],
            _ => f32::midpoint(valid[middle - 1], valid[middle]),
        };
        let got = made[(row * 1200 + col) as usize];
        assert!(
            (got - expected).abs() < 1e-5 || (got.is_nan() && expected.is_nan()),
            "{got}, {expected}"
        );
    }
    // As a COG, on a grid of twice the pixel, with its name.
    let coarse = [
        "--resolution",
        "20",
        "--resampling",
        "average",
        "-o",
        "ndvi.tif",
        "--json",
    ];
    let said = stage
        .run(&args("apply", &url, &[&how[..], &coarse].concat()))
        .json();
    assert_eq!(
        (&said["width"], &said["count"], &said["holes"]),
        (&600.into(), &1.into(), &serde_json::json!([]))
    );
    assert_eq!(said["steps"].as_array().unwrap().len(), 4);
    let info = stage.run(&["info", "ndvi.tif", "--json"]).json();
    assert_eq!(
        (&info["epsg"], &info["dtype"]),
        (&32756.into(), &"float32".into())
    );
    assert_eq!(info["transform"][1], 20.0);
    // Straight into a bucket.
    let there = "s3://dea-public-data/made/ndvi.tif";
    stage
        .run(&args("apply", &url, &[&how[..], &["-o", there]].concat()))
        .text();
    let info = stage.run(&["info", there, "--json"]).json();
    assert_eq!(
        info["overviews"],
        serde_json::json!([[600, 600], [300, 300]])
    );
}

#[test]
fn formulas_are_read_as_mathematics_writes_them() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    let formulas = [
        "--expr",
        "-1e-4*red^2",
        "--expr",
        "-red+nir",
        "--expr",
        "bright=where('red' > 0 and nir > red, min(nir, 1e9), -1)",
    ];
    let how = ["--raw", "--by", "item", "-o", "made.bin"];
    stage
        .run(&args("apply", &url, &[&formulas[..], &how].concat()))
        .text();
    let made = samples(&stage, "made.bin");
    let mut scenes: Vec<&Scene> = stage.bed.scenes().iter().collect();
    scenes.sort_by_key(|scene| scene.item["properties"]["datetime"].to_string());
    assert_eq!(made.len(), 3 * scenes.len() * 1200 * 1200);
    for (time, scene) in scenes.iter().enumerate() {
        for (row, col) in [(0, 0), (511, 512), (700, 3), (1199, 1199), (640, 640)] {
            let [red, nir] = [Band::Red, Band::Nir].map(|band| scene.pixel(band, col, row));
            let [red_value, nir_value] = [red, nir].map(f32::from);
            let bright = if red > 0 && nir > red {
                nir_value
            } else {
                -1.0
            };
            let expected = [
                -1e-4 * (red_value * red_value),
                nir_value - red_value,
                bright,
            ];
            for (number, expected) in expected.into_iter().enumerate() {
                let got = made
                    [(number * scenes.len() + time) * 1200 * 1200 + (row * 1200 + col) as usize];
                let is_missing = red == -999 || nir == -999 && number > 0;
                assert!(
                    got.is_nan() && is_missing
                        || (got - expected).abs() <= 1e-6 * expected.abs() && !is_missing,
                    "formula {number}, date {time}: {got}, {expected}"
                );
            }
        }
    }
}

#[test]
fn a_geomedian_takes_the_bands_together() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    let bands = ["--canonical", "red,nir", "--raw", "--resolution", "60"];
    let run = |more: &[&str]| {
        let all = [&bands[..], &more[1..]].concat();
        stage.run(&args(more[0], &url, &all)).text();
    };
    run(&["apply", "--reduce", "geomedian", "-o", "one.bin"]);
    run(&["mosaic", "--method", "geomedian", "-o", "two.bin"]);
    run(&["apply", "-o", "dates.bin"]);
    let made = samples(&stage, "one.bin");
    // What is not computed keeps the type of the files.
    let dates: Vec<f32> = raw(&stage, "dates.bin", i16::from_le_bytes)
        .into_iter()
        .map(|sample| {
            if sample == -999 {
                f32::NAN
            } else {
                sample.into()
            }
        })
        .collect();
    let pixels = made.len() / 2;
    let steps = dates.len() / made.len();
    assert_eq!(steps, 4);
    assert!((200 * 200..=201 * 201).contains(&pixels), "{pixels}");
    let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    assert!(made.iter().zip(&samples(&stage, "two.bin")).all(same));
    for pixel in (0..pixels).step_by(97) {
        let of_date = |step: usize| {
            [step, steps + step].map(|layer| f64::from(dates[layer * pixels + pixel]))
        };
        let all = (0..steps).map(of_date);
        let clear: Vec<[f64; 2]> = all
            .filter(|pair| pair.iter().all(|value| value.is_finite()))
            .collect();
        let found = [made[pixel], made[pixels + pixel]].map(f64::from);
        if clear.is_empty() {
            assert!(found.iter().all(|value| value.is_nan()));
            continue;
        }
        let cost = |[x, y]: [f64; 2]| -> f64 {
            let distances = clear.iter().map(|[red, nir]| (red - x).hypot(nir - y));
            distances.sum()
        };
        // No point around it, and none of the dates, is nearer to all.
        let [red, nir] = found;
        let around = [-1.0, -0.01, 0.01, 1.0].map(|step| [[red + step, nir], [red, nir + step]]);
        for other in around.into_iter().flatten().chain(clear.iter().copied()) {
            assert!(
                cost(found) <= cost(other) * (1.0 + 1e-7),
                "pixel {pixel}: {found:?} {other:?}"
            );
        }
    }
}

#[test]
fn a_mosaic_shows_the_clearest_first() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    stage
        .run(&args(
            "mosaic",
            &url,
            &["--canonical", "red", "--raw", "-o", "red.bin"],
        ))
        .text();
    let made = raw(&stage, "red.bin", i16::from_le_bytes);
    let mut scenes: Vec<&Scene> = stage.bed.scenes().iter().collect();
    let cloud = |scene: &Scene| scene.item["properties"]["eo:cloud_cover"].as_f64().unwrap();
    scenes.sort_by(|a, b| cloud(a).total_cmp(&cloud(b)));
    for (row, col) in [(0, 0), (64, 700), (1199, 1199)] {
        let valid = scenes
            .iter()
            .map(|scene| scene.pixel(Band::Red, col, row))
            .find(|&red| red != -999);
        let got = made[(row * 1200 + col) as usize];
        assert_eq!(Some(got), valid);
    }
}

#[test]
fn a_look_says_what_is_black_and_white() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    let look = |more: &[&str]| {
        let how = ["--canonical", "red", "-o", "look.png", "--json"];
        let made = stage
            .run(&args("mosaic", &url, &[&how[..], more].concat()))
            .json();
        let bytes = std::fs::read(stage.path("look.png")).unwrap();
        assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
        made["stretch"].clone()
    };
    assert_eq!(
        look(&["--range", "-0.1,0.4"]),
        serde_json::json!([[-0.1, 0.4]])
    );
    // Without one it is the 2nd and the 98th percentile.
    stage
        .run(&args(
            "mosaic",
            &url,
            &["--canonical", "red", "-o", "red.bin"],
        ))
        .text();
    let mut valid: Vec<f32> = samples(&stage, "red.bin")
        .into_iter()
        .filter(|v| !v.is_nan())
        .collect();
    valid.sort_by(f32::total_cmp);
    let stretch = look(&[]);
    for (end, share) in [(0, 0.02), (1, 0.98)] {
        let place = ((valid.len() - 1) as f64 * share).round() as usize;
        assert_eq!(stretch[0][end].as_f64(), Some(f64::from(valid[place])));
    }
    for (range, output, said) in [
        ("0", "x.png", "--range `0` is not LOW,HIGH"),
        ("3,3", "x.png", "a stretch from 3 to 3"),
        ("0,1", "x.tif", "--range is for a quicklook"),
    ] {
        let how = ["--canonical", "red", "--range", range, "-o", output];
        let ran = stage.run(&args("mosaic", &url, &how));
        assert!(ran.error().contains(said), "{ran:?}");
        assert!(!Path::new(&stage.path(output)).exists());
    }
}

#[test]
fn what_cannot_be_made_is_one_clear_error() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    for (more, said) in [
        (&["--expr", "(nir-", "-o", "x.tif"][..], "formula `(nir-`"),
        (
            &["--expr", "a=red", "--expr", "a=nir", "-o", "x.tif"],
            "two formulas have the name `a`",
        ),
        (
            &["--expr", "rod", "-o", "x.tif"],
            "rod is not known in dea sentinel2",
        ),
        (
            &["--expr", "nir", "-o", "x.jpg"],
            match cfg!(feature = "zarr") {
                true => "must be one of .tif, .npy, .bin, .png, or .zarr for a cube",
                false => "must be one of .tif, .npy, .bin, .png",
            },
        ),
        (
            &["--expr", "nir", "--mask", "fog", "-o", "x.tif"],
            "mask class `fog` is unknown",
        ),
        (
            &["--expr", "nir", "--reduce", "mode", "-o", "x.tif"],
            "`mode`",
        ),
        (
            &["--expr", "nir", "--reduce", "geomedian", "-o", "x.tif"],
            "--reduce geomedian takes all bands together, and no --expr",
        ),
        (
            &["--expr", "nir", "--by", "fortnight", "-o", "x.tif"],
            "grouping `fortnight`",
        ),
        (
            &["--expr", "nir", "--resolution", "-1", "-o", "x.tif"],
            "resolution",
        ),
        (
            &["--expr", "nir", "--compress", "jpeg", "-o", "x.tif"],
            "compression `jpeg`",
        ),
        (
            &[
                "--expr",
                "nir",
                "--crs",
                "here",
                "--resolution",
                "10",
                "-o",
                "x.tif",
            ],
            "--crs `here`",
        ),
        (
            &["--expr", "nir", "--block", "500", "-o", "x.tif"],
            "a multiple of 16",
        ),
        (
            &["--expr", "nir", "--budget", "1", "-o", "x.tif"],
            "more than the budget of 1 MB",
        ),
        (&["--expr", "nir", "-o", "none/x.tif"], "none"),
    ] {
        let ran = stage.run(&args("apply", &url, more));
        assert!(ran.error().contains(said), "{said}: {ran:?}");
        assert!(!Path::new(&stage.path("x.tif")).exists(), "{more:?}");
    }
    let items = r#"{"type": "FeatureCollection", "features": [{"type": "Feature", "stac_version": "1.1.0",
        "id": "a-day", "geometry": null, "links": [], "assets": {"red": {"href": "red.tif"}},
        "properties": {"datetime": "2021-01-03T00:00:00Z"}}]}"#;
    let items = stage.write("items.json", items);
    let ran = stage.run(&["apply", "--items", &items, "--expr", "red", "-o", "x.tif"]);
    assert!(
        ran.error().contains("item a-day has no collection"),
        "{ran:?}"
    );
}

#[test]
fn a_corrupt_file_is_an_error_or_a_hole_that_is_listed() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    let scene = &stage.bed.scenes()[2];
    stage.bed.fault(
        Rule::new(Fault::Garbage)
            .on(Service::S3)
            .path(scene.key(Band::Nir)),
    );
    let how = ["--expr", "nir", "--reduce", "count", "-o", "count.tif"];
    let ran = stage.run(&args("apply", &url, &how));
    assert!(
        ran.error().contains(&scene.id) && ran.error().contains("nbart_nir_1"),
        "{ran:?}"
    );
    assert!(!Path::new(&stage.path("count.tif")).exists());
    let ran = stage.run(&args(
        "apply",
        &url,
        &[&how[..], &["--on-failure", "skip", "--json"]].concat(),
    ));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let said: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let missing = said["missing_inputs"].as_array().unwrap();
    assert!(!missing.is_empty());
    assert!(
        missing
            .iter()
            .all(|input| input["item"] == scene.id.as_str() && input["asset"] == "nbart_nir_1")
    );
    // The names that both had first.
    let old = [&how[..], &["--on-failure", "hole", "--json"]].concat();
    let old = stage.run(&args("apply", &url, &old)).json();
    assert_eq!(old["holes"], said["missing_inputs"]);
}

#[test]
fn periods_are_reduced_by_themselves_and_are_bands_or_time_steps() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    let how = ["--expr", "ndvi=(nir-red)/(nir+red)", "--reduce", "median"];
    let run = |more: &[&str]| stage.run(&args("apply", &url, &[&how[..], more].concat()));
    let said = run(&["--every", "10d", "-o", "ndvi.bin", "--json"]).json();
    let labels: Vec<&str> = said["periods"]
        .as_array()
        .unwrap()
        .iter()
        .map(|period| period["label"].as_str().unwrap())
        .collect();
    assert_eq!(labels, ["2021-01-04", "2021-01-14", "2021-01-24"]);
    assert_eq!(
        (&said["count"], &said["notes"]),
        (&3.into(), &serde_json::json!([]))
    );
    // A cube has them as time steps, with the same samples.
    run(&["--every", "10d", "-o", "ndvi.zarr"]).text();
    let info = stage.run(&["zarr", "info", "ndvi.zarr", "--json"]).json();
    assert_eq!(
        info["bands"][0]["shape"],
        serde_json::json!([3, 1200, 1200])
    );
    assert_eq!(info["times"][1]["time"], "2021-01-14T00:00:00Z");
    assert_eq!(
        info["made"]["computed"],
        "median of (nir-red)/(nir+red) every 10d"
    );
    let read = stage.run(&["zarr", "read", "ndvi.zarr", "-o", "-"]);
    assert_eq!(read.stdout, std::fs::read(stage.path("ndvi.bin")).unwrap());
    // A mosaic of a month's dates before the reducer is said.
    let said = run(&["--by", "month", "-o", "first.bin", "--json"]);
    assert!(said.stderr.contains("note: "), "{}", said.stderr);
    let said: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    let notes = &said["notes"];
    assert!(
        notes[0]
            .as_str()
            .unwrap()
            .contains("the mosaic `first` before `median`"),
        "{notes}"
    );
    // Nothing is reduced, or by days of another clock.
    for (more, message) in [
        (&["--every", "fortnight"][..], "grouping `fortnight`"),
        (
            &["--by", "solar_day", "--clock", "utc"],
            "--clock utc and --by solar_day: these days are solar",
        ),
        (
            &["--by", "month", "--every", "10d"],
            "has images of two periods",
        ),
    ] {
        let ran = run(&[more, &["-o", "no.bin"]].concat());
        assert_eq!(ran.code, Some(2));
        assert!(ran.stderr.contains(message), "{}", ran.stderr);
    }
}

/// Writes an image of three bands of 10, 20 and 30, and an item of it as its asset `visual`.
fn visual(stage: &Stage, stated: &serde_json::Value) {
    let size = Size {
        width: 64,
        height: 64,
    };
    let samples = ndarray::Array3::from_shape_fn((3, 64, 64), |(band, ..)| [10_u16, 20, 30][band]);
    let raster = Raster {
        pixels: Pixels::U16(samples),
        geobox: GeoBox {
            size,
            crs: Some(Crs::Epsg(32756)),
            transform: Some(GeoTransform([5e5, 10.0, 0.0, 7e6, 0.0, -10.0])),
        },
        nodata: None,
        sparse: Vec::new(),
    };
    let path = stage.path("visual.tif");
    raster.save(Path::new(&path)).unwrap();
    let mut asset = stated.clone();
    asset["href"] = path.into();
    let item = serde_json::json!({
        "type": "Feature", "stac_version": "1.0.0", "id": "a", "geometry": null, "links": [],
        "bbox": [153.0, -27.13, 153.01, -27.12], "properties": {"datetime": "2021-01-01T00:00:00Z"},
        "assets": {"visual": asset},
    });
    stage.write("item.json", item.to_string());
}

#[test]
fn all_bands_of_an_asset_are_taken_unless_one_is_chosen() {
    let stage = Stage::new();
    let named =
        serde_json::json!({"eo:bands": [{"name": "red"}, {"name": "green"}, {"name": "blue"}]});
    for (stated, names) in [
        (serde_json::json!({}), ["visual:1", "visual:2", "visual:3"]),
        (named, ["visual:red", "visual:green", "visual:blue"]),
    ] {
        visual(&stage, &stated);
        let run = |command: &[&str], more: &[&str]| {
            let items = ["--items", "item.json", "--raw"];
            stage.run(&[command, &items, more].concat())
        };
        for command in [&["apply"][..], &["mosaic"]] {
            let out = format!("{}-{}.bin", command[0], names[0].replace(':', "-"));
            let said = run(command, &["--bands", "visual", "-o", &out, "--json"]).json();
            assert_eq!(said["count"], 3, "{said}");
            let made = raw(&stage, &out, u16::from_le_bytes);
            let [first, second, third] = [made[0], made[64 * 64], made[2 * 64 * 64]];
            assert_eq!([first, second, third], [10, 20, 30]);
        }
        for one in ["visual:2", names[1]] {
            let out = format!("one-{}.bin", one.replace(':', "-"));
            let said = run(&["apply"], &["--bands", one, "-o", &out, "--json"]).json();
            assert_eq!(
                (&said["count"], raw(&stage, &out, u16::from_le_bytes)[0]),
                (&1.into(), 20)
            );
        }
        let point = ["--point", "500100,6999900", "--crs", "32756"];
        let table = run(&["sample"], &[&["--bands", "visual"][..], &point].concat());
        let rows: Vec<String> = table.text().lines().skip(1).map(str::to_owned).collect();
        assert_eq!(rows.len(), 3, "{rows:?}");
        for (row, (name, value)) in rows.iter().zip(names.iter().zip(["10", "20", "30"])) {
            assert!(row.contains(name) && row.contains(value), "{row}");
        }
        let cube = format!("{}.zarr", names[0].replace(':', "-"));
        stage
            .run(&[
                "zarr",
                "write",
                "--items",
                "item.json",
                "--bands",
                "visual",
                "--to",
                &cube,
            ])
            .text();
        let out = format!("{}.read.bin", names[1].replace(':', "-"));
        stage
            .run(&["zarr", "read", &cube, "--band", names[1], "-o", &out])
            .text();
        assert_eq!(std::fs::read(stage.path(&out)).unwrap()[..2], [20, 0]);
    }
    let error = stage.run(&[
        "apply",
        "--items",
        "item.json",
        "--raw",
        "--bands",
        "visual:4",
        "-o",
        "x.bin",
    ]);
    assert!(
        error.error().contains("band 4 is not one of 1 to 3"),
        "{}",
        error.stderr
    );
}
