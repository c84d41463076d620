//! `rss sample`: points and zones of the seed query's scenes.

use std::path::Path;

use rss_testbed::{Band, Fault, Rule, Service};
use serde_json::{Value, json};

use super::stage::{SEED, Stage, files};

/// The centres of pixels, in EPSG:32756.
fn centre(col: u32, row: u32) -> [f64; 2] {
    [
        499_985.0 + 10.0 * f64::from(col),
        7_200_035.0 - 10.0 * f64::from(row),
    ]
}

fn points(pixels: &[(u32, u32)]) -> String {
    let features = pixels.iter().enumerate().map(|(number, &(col, row))| {
        json!({"type": "Feature", "id": format!("plot {number}"), "properties": {"crop": "wheat, \"hard\""},
            "geometry": {"type": "Point", "coordinates": centre(col, row)}})
    });
    json!({"type": "FeatureCollection", "features": features.collect::<Vec<_>>()}).to_string()
}

/// A square of pixels, in EPSG:32756.
fn zones(col: u32, row: u32, side: u32) -> String {
    let (left, top) = (
        499_980.0 + 10.0 * f64::from(col),
        7_200_040.0 - 10.0 * f64::from(row),
    );
    let (right, bottom) = (left + 10.0 * f64::from(side), top - 10.0 * f64::from(side));
    json!({"type": "Feature", "id": "field", "properties": {}, "geometry": {"type": "Polygon",
        "coordinates": [[[left, top], [right, top], [right, bottom], [left, bottom], [left, top]]]}})
    .to_string()
}

const PLACES: [(u32, u32); 4] = [(0, 0), (700, 3), (511, 512), (1199, 1199)];

#[test]
fn points_become_a_table() {
    let stage = Stage::new();
    stage.write("plots.json", points(&PLACES));
    let how = [
        "--canonical",
        "red,nir",
        "--points",
        "plots.json",
        "--crs",
        "32756",
        "--name",
        "crop",
    ];
    let ran = stage.seed("sample", &how);
    let mut lines = ran.text().lines();
    assert_eq!(lines.next(), Some("id,name,x,y,item,datetime,band,value"));
    let mut scenes: Vec<_> = stage.bed.scenes().iter().collect();
    scenes.sort_by_key(|scene| scene.item["properties"]["datetime"].to_string());
    for (number, (col, row)) in PLACES.into_iter().enumerate() {
        for scene in &scenes {
            for (band, name) in [(Band::Red, "red"), (Band::Nir, "nir")] {
                let line = lines.next().unwrap();
                let [x, y] = centre(col, row);
                let time = scene.item["properties"]["datetime"].as_str().unwrap();
                let time = time.replace("000Z", "Z");
                let key = format!(
                    "plot {number},\"wheat, \"\"hard\"\"\",{x},{y},{},{time},{name},",
                    scene.id
                );
                let value = line
                    .strip_prefix(&key)
                    .unwrap_or_else(|| panic!("{line}, {key}"));
                match scene.pixel(band, col, row) {
                    -999 => assert_eq!(value, ""),
                    sample => {
                        let value: f64 = value.parse().unwrap();
                        assert!((value - f64::from(sample) / 1e4).abs() < 1e-12, "{line}");
                    }
                }
            }
        }
    }
    assert_eq!(lines.next(), None);
    // As they are stored, as a file of each kind, and as one document.
    for name in ["plots.jsonl", "plots.csv", "plots.parquet", "plots.arrow"] {
        let ran = stage.seed("sample", &[&how[..], &["--raw", "-o", name]].concat());
        let is_of_columns = name.ends_with(".parquet") || name.ends_with(".arrow");
        if is_of_columns && !cfg!(feature = "arrow") {
            assert!(ran.error().contains("lacks the feature `arrow`"), "{ran:?}");
            continue;
        }
        assert!(
            ran.text()
                .starts_with(&format!("{name}: 32 rows, from 4 images, in ")),
            "{ran:?}"
        );
        assert!(std::fs::metadata(stage.path(name)).unwrap().len() > 500);
    }
    let rows = std::fs::read_to_string(stage.path("plots.jsonl")).unwrap();
    let rows: Vec<Value> = rows
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let said = stage
        .seed("sample", &[&how[..], &["--raw", "--json"]].concat())
        .json();
    assert_eq!(
        (said["rows"].as_array(), &said["images"]),
        (Some(&rows), &json!(4))
    );
    let sample = scenes[0].pixel(Band::Red, 0, 0);
    let expected = (sample != -999).then_some(f64::from(sample));
    assert_eq!(rows[0]["value"].as_f64(), expected);
}

#[test]
fn zones_become_statistics() {
    let stage = Stage::new();
    stage.write("fields.json", zones(500, 490, 40));
    let how = [
        "--canonical",
        "red",
        "--zones",
        "fields.json",
        "--crs",
        "EPSG:32756",
        "--raw",
        "--json",
    ];
    let more = [
        "--stats",
        "count,mean,max",
        "--histogram=-999,500,3000",
        "--mask",
        "clouds",
    ];
    let said = stage.seed("sample", &[&how[..], &more].concat()).json();
    let columns = [
        "pixels",
        "nodata",
        "masked",
        "count",
        "mean",
        "max",
        "bin_-999_500",
        "bin_500_3000",
    ];
    assert_eq!(said["columns"], json!(columns));
    let rows = said["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        let scene = stage
            .bed
            .scenes()
            .iter()
            .find(|scene| row["item"] == scene.id.as_str());
        let scene = scene.unwrap();
        let (mut nodata, mut masked, mut values) = (0, 0, Vec::new());
        for (col, row) in (490..530).flat_map(|row| (500..540).map(move |col| (col, row))) {
            match scene.pixel(Band::Red, col, row) {
                -999 => nodata += 1,
                _ if matches!(scene.pixel(Band::Fmask, col / 2, row / 2), 2 | 3) => masked += 1,
                sample => values.push(f64::from(sample)),
            }
        }
        let count = values.len();
        assert_eq!(
            (
                &row["pixels"],
                &row["nodata"],
                &row["masked"],
                &row["count"]
            ),
            (&json!(1600), &json!(nodata), &json!(masked), &json!(count))
        );
        assert_eq!(row["max"].as_f64(), values.iter().copied().reduce(f64::max));
        if count > 0 {
            let mean = values.iter().sum::<f64>() / count as f64;
            assert!((row["mean"].as_f64().unwrap() - mean).abs() < 1e-9);
        }
        let low = values.iter().filter(|value| **value < 500.0).count();
        assert_eq!(row["bin_-999_500"], json!(low));
    }
    // The same square is touched by no more pixels; a third of a pixel beside it by more.
    let touched = stage
        .seed("sample", &[&how[..], &["--all-touched"]].concat())
        .json();
    assert_eq!(touched["rows"][0]["pixels"], 1600);
}

#[test]
fn a_point_beside_an_image_takes_its_nearest_pixel() {
    let stage = Stage::new();
    // Half a pixel off the left edge, beside the pixel 2,5 of each scene.
    let [x, y] = centre(0, 5);
    let point = format!("{},{y}", x - 10.0);
    let how = [
        "--canonical",
        "red",
        "--crs",
        "32756",
        "--raw",
        "--point",
        &point,
        "--nearest",
        "150",
        "--json",
    ];
    let said = stage.seed("sample", &how).json();
    assert_eq!(said["columns"], json!(["value", "distance"]));
    let rows = said["rows"].as_array().unwrap();
    for row in rows {
        let scene = stage
            .bed
            .scenes()
            .iter()
            .find(|scene| row["item"] == scene.id.as_str());
        let scene = scene.unwrap();
        // All pixels within the distance, by the distance on the map.
        let mut all = Vec::new();
        for (col, row) in (0..20).flat_map(|row| (0..20).map(move |col| (col, row))) {
            let sample = scene.pixel(Band::Red, col, row);
            let apart = (f64::from(col) + 1.0).hypot(f64::from(row) - 5.0);
            if sample != -999 {
                all.push(((apart * 1e6) as u64, row, col, sample));
            }
        }
        all.sort_unstable();
        let (apart, _, _, sample) = all[0];
        if apart as f64 * 1e-5 / 0.9996 <= 150.0 {
            assert_eq!(row["value"], json!(f64::from(sample)));
            let distance = row["distance"].as_f64().unwrap();
            assert!(
                (distance - apart as f64 * 1e-5 / 0.9996).abs() < 1e-2,
                "{distance}"
            );
        } else {
            assert_eq!(
                (&row["value"], &row["distance"]),
                (&Value::Null, &Value::Null)
            );
        }
    }
    assert_eq!(rows.len(), 4);
}

#[test]
fn a_point_just_off_the_images_finds_those_within_the_distance() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    let seed = SEED.iter().copied();
    let seed: Vec<&str> = seed
        .filter(|arg| !["--scene", "56jns"].contains(arg))
        .collect();
    // North of the scenes, and east of those of the next tile.
    let [x, y] = centre(1199, 0);
    let point = format!("{},{}", x + 500.0, y + 2000.0);
    let how = [
        "--canonical",
        "red",
        "--crs",
        "32756",
        "--raw",
        "--point",
        &point,
    ];
    let run = |metres: &str| {
        let more = ["--nearest", metres, "--json"];
        stage.run(&[&["sample", &url], &seed[..], &how, &more].concat())
    };
    let said = run("2100").json();
    assert_eq!(said["rows"].as_array().unwrap().len(), 4);
    assert!(
        said["rows"][0]["distance"].as_f64().unwrap() > 2050.0,
        "{said}"
    );
    run("1000").nothing();
}

#[test]
fn points_of_csv_are_those_of_geojson() {
    let stage = Stage::new();
    stage.write("plots.json", points(&PLACES));
    let lines = PLACES.iter().enumerate().map(|(number, &(col, row))| {
        let [x, y] = centre(col, row);
        format!("plot {number};{x};{y};\"wheat, \"\"hard\"\"\"\n")
    });
    let table = format!("id;E;N;crop\n{}", lines.collect::<String>());
    stage.write("plots.csv", &table);
    let run = |file: &str, more: &[&str]| {
        let how = [
            "--canonical",
            "red",
            "--crs",
            "32756",
            "--name",
            "crop",
            "--points",
            file,
        ];
        stage.seed("sample", &[&how[..], more].concat())
    };
    let expected = run("plots.json", &[]).text().to_owned();
    assert_eq!(run("plots.csv", &["--columns", "E,N"]).text(), expected);
    let error = run("plots.csv", &[]).error().to_owned();
    assert!(
        error.contains("no columns lon and lat, or x and y, among id, E, N, crop"),
        "{error}"
    );
    stage.write("broken.csv", table.replace(";7", ";7x"));
    let error = run("broken.csv", &["--columns", "E,N"]).error().to_owned();
    assert!(
        error.contains("--points broken.csv: line 2, column N: `7x"),
        "{error}"
    );
    let error = run("plots.json", &["--columns", "E,N"]).error().to_owned();
    assert!(
        error.contains("--columns is for CSV: --points plots.json is GeoJSON"),
        "{error}"
    );
}

#[test]
fn without_an_area_the_search_is_around_the_shapes() {
    let stage = Stage::new();
    let url = stage.bed.stac_url();
    let seed: Vec<&str> = SEED
        .iter()
        .copied()
        .filter(|arg| !["--scene", "56jns"].contains(arg))
        .collect();
    let there = ["--canonical", "red", "--point", "153.11,-25.35"];
    let ran = stage.run(&[&["sample", &url], &seed[..], &there].concat());
    assert_eq!(ran.text().lines().count(), 1 + 4);
    let search = stage.bed.requests(Service::Stac).last().cloned();
    assert!(search.is_some());
    // Nobody has images there.
    let far = [
        "--canonical",
        "red",
        "--point",
        "10,50",
        "--point",
        "10.1,50",
    ];
    stage
        .run(&[&["sample", &url], &seed[..], &far].concat())
        .nothing();
    // Images of elsewhere, by name: a point that none of them holds.
    let ran = stage.seed("sample", &[&far[..], &["-o", "far.csv"]].concat());
    assert_eq!((ran.code, ran.stdout.len()), (Some(1), 0), "{ran:?}");
    assert!(ran.stderr.contains("note: on no image: 0, 1"), "{ran:?}");
    assert!(
        ran.stderr.contains("nothing found: no image holds a pixel"),
        "{ran:?}"
    );
    assert!(!Path::new(&stage.path("far.csv")).exists());
    let ran = stage.seed("sample", &[&far[..], &["--keep-outside"]].concat());
    let rows: Vec<&str> = std::str::from_utf8(&ran.stdout)
        .unwrap()
        .lines()
        .skip(1)
        .collect();
    assert_eq!((ran.code, rows.len()), (Some(0), 8), "{ran:?}");
    assert!(rows.iter().all(|row| row.ends_with(",red,")));
}

#[test]
fn what_cannot_be_sampled_is_one_clear_error() {
    let stage = Stage::new();
    stage.write("plots.json", points(&PLACES));
    stage.write("fields.json", zones(0, 0, 10));
    stage.write("bad.json", "{\"type\": \"Feature\"");
    let before = files(stage.dir.path());
    for (more, said) in [
        (&["--points", "none.json"][..], "--points none.json: "),
        (&["--points", "bad.json"], "--points bad.json: not GeoJSON"),
        (&["--points", "plots.json"], "which is not on the globe"),
        (
            &["--points", "fields.json", "--crs", "32756"],
            "feature field is a Polygon, expected a Point",
        ),
        (
            &["--zones", "plots.json", "--crs", "32756"],
            "is a Point, expected a Polygon",
        ),
        (
            &["--points", "plots.json", "--crs", "here"],
            "--crs `here`: `here` is not a CRS; expected an EPSG code",
        ),
        (
            &["--points", "plots.json", "--crs", "32756", "--name", "soil"],
            "no feature has the property `soil`",
        ),
        (
            &["--point", "153"],
            "--point `153` is not two numbers LON,LAT",
        ),
        (&["--point", "-25,153"], "which is not on the globe"),
        (&[], "the following required arguments were not provided"),
        (
            &["--point", "1,2", "--zones", "fields.json"],
            "cannot be used with",
        ),
        (
            &["--point", "1,2", "--stats", "mean"],
            "cannot be used with",
        ),
        (
            &[
                "--zones",
                "fields.json",
                "--crs",
                "32756",
                "--stats",
                "mode",
            ],
            "`mode` is not one of",
        ),
        (
            &[
                "--zones",
                "fields.json",
                "--crs",
                "32756",
                "--histogram",
                "1",
            ],
            "a histogram of 1 edges",
        ),
        (
            &[
                "--zones",
                "fields.json",
                "--crs",
                "32756",
                "--histogram",
                "a,b",
            ],
            "--histogram `a,b`",
        ),
        (
            &["--point", "153.05,-25.35", "-o", "out.xlsx"],
            "the ending of a table is one of",
        ),
        (
            &["--point", "153.05,-25.35", "-o", "s3://bucket/out.csv"],
            "a local file",
        ),
        (
            &["--point", "153.05,-25.35", "-o", "none/out.csv"],
            "the folder does not exist",
        ),
        (
            &["--zones", "fields.json", "--crs", "32756", "--nearest", "9"],
            "cannot be used with",
        ),
        (
            &["--point", "153.05,-25.35", "--nearest", "-9"],
            "--nearest -9: expected more than 0",
        ),
        (
            &["--point", "153.05,-25.35", "--mask", "fog"],
            "mask class `fog` is unknown",
        ),
        (
            &["--point", "153.05,-25.35", "--on-failure", "guess"],
            "--on-failure `guess`",
        ),
        (
            &["--zones", "fields.json", "--crs", "999999"],
            "EPSG:999999 cannot be converted to degrees",
        ),
    ] {
        let ran = stage.seed("sample", &[&["--canonical", "red"], more].concat());
        assert!(ran.error().contains(said), "{said}: {ran:?}");
        assert_eq!(files(stage.dir.path()), before, "{more:?}");
    }
}

#[test]
fn a_corrupt_file_is_an_error_or_a_hole_that_is_listed() {
    let stage = Stage::new();
    let scene = &stage.bed.scenes()[2];
    stage.bed.fault(
        Rule::new(Fault::Garbage)
            .on(Service::S3)
            .path(scene.key(Band::Nir)),
    );
    let how = [
        "--canonical",
        "red,nir",
        "--point",
        "153.05,-25.35",
        "-o",
        "out.csv",
    ];
    let ran = stage.seed("sample", &how);
    let said = ran.error();
    assert!(
        said.contains(&scene.id) && said.contains("nbart_nir_1"),
        "{ran:?}"
    );
    assert!(!Path::new(&stage.path("out.csv")).exists());
    let hole = [&how[..], &["--on-failure", "hole"]].concat();
    let ran = stage.seed("sample", &hole);
    assert_eq!(
        (ran.code, ran.stderr.lines().count()),
        (Some(0), 1),
        "{ran:?}"
    );
    assert!(
        ran.stderr.contains("missing: item ") && ran.stderr.contains("nbart_nir_1"),
        "{ran:?}"
    );
    let said = stage
        .seed("sample", &[&hole[..], &["--json"]].concat())
        .json();
    assert_eq!(said["rows"], 7);
    assert_eq!(said["holes"].as_array().unwrap().len(), 1);
    assert_eq!(said["holes"][0]["item"], scene.id.as_str());
}

/// Arguments are read before there is a session.
#[test]
#[cfg(feature = "gdal")]
fn points_are_in_any_crs_that_proj_knows() {
    let stage = Stage::new();
    for (crs, place) in [
        ("OGC:CRS84", [153.05, -25.35]),
        ("ESRI:54030", [14_057_600.0, -2_711_000.0]),
    ] {
        let point = json!({"type": "Feature", "id": "a", "properties": {},
            "geometry": {"type": "Point", "coordinates": place}});
        stage.write("point.json", point.to_string());
        let how = [
            "--canonical",
            "red",
            "--points",
            "point.json",
            "--crs",
            crs,
            "--json",
            "--keep-outside",
        ];
        let said = stage.seed("sample", &how).json();
        assert_eq!(said["images"], 4, "{crs}");
    }
}
