//! Points and zones of many images, beside what GDAL's tools tell of the same files.

mod nearest;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use rss_core::{
    Collection, Crs, DEA, ErrorKind, ImageQueryBuilder, Intersects, QueryResult, Session,
    SessionBuilder, Source, Trust,
    apply::{
        OnFailure,
        sample::{
            Coverage, GeoJsonOptions, Outside, Points, SampleOptions, SampleRow, Statistics, Table,
            Zones,
        },
    },
    date,
    mask::Cleanup,
};
use rss_testbed::{Band, Fault, Rule, Scene, Scenes, Service, Testbed};
use serde_json::{Value, json};

const SIDE: u32 = 1200;
/// The top left corner of the scenes in EPSG:32756, and the bottom right one, in metres.
const CORNERS: [&str; 4] = ["499980", "7188040", "511980", "7200040"];
const UTM: Crs = Crs::Epsg(32756);
const DEGREES: Crs = Crs::Epsg(4326);

struct Stage {
    bed: Testbed,
    session: Session,
}

impl Stage {
    fn new() -> Self {
        Self::with(|builder| builder)
    }

    fn with(settings: impl FnOnce(SessionBuilder) -> SessionBuilder) -> Self {
        let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
        let builder = Session::builder()
            .s3_endpoint(&bed.s3_endpoint())
            .cpu_threads(2)
            .retries(0);
        let session = settings(builder).build().unwrap();
        Self { bed, session }
    }

    fn found(&self, bands: &[&str]) -> QueryResult {
        let dea = Source::api(&self.bed.stac_url()).unwrap().like(&DEA);
        ImageQueryBuilder::new(dea, Collection::Sentinel2, Intersects::scene("56jns"))
            .session(self.session.clone())
            .canonical_bands(bands.iter().copied())
            .start_date(date(2021, 1, 1))
            .end_date(date(2021, 2, 1))
            .cloudcover((rss_core::Cmp::Less, 30))
            .build()
            .unwrap()
            .search()
            .unwrap()
    }

    /// The scenes by date.
    fn scenes(&self) -> Vec<&Scene> {
        let mut scenes: Vec<&Scene> = self.bed.scenes().iter().collect();
        scenes.sort_by_key(|scene| scene.item["properties"]["datetime"].to_string());
        scenes
    }

    fn points(&self, bands: &[&str], points: Points, options: &SampleOptions) -> Table {
        let found = self.found(bands);
        let (table, report) = self.session.sample_points(&found, points, options).unwrap();
        assert_eq!((report.images, report.missing_inputs), (4, vec![]));
        table
    }

    fn zones(&self, bands: &[&str], zones: &Value, wanted: &str, options: &SampleOptions) -> Table {
        let zones = Zones::from_geojson(&zones.to_string(), &GeoJsonOptions::new()).unwrap();
        let wanted = wanted.parse().unwrap();
        let found = self.found(bands);
        let made = self.session.sample_zones(&found, zones, &wanted, options);
        let (table, report) = made.unwrap();
        assert_eq!((report.images, report.missing_inputs), (4, vec![]));
        table
    }

    /// Checks that no byte of a file was sent twice but those of its header, and returns the requests by file.
    fn each_tile_once(&self) -> BTreeMap<String, usize> {
        let mut files: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
        for request in self.bed.requests(Service::S3) {
            let range = request.range.unwrap();
            let (start, end) = range
                .strip_prefix("bytes=")
                .unwrap()
                .split_once('-')
                .unwrap();
            let range = (start.parse().unwrap(), end.parse().unwrap());
            files.entry(request.path).or_default().push(range);
        }
        for (path, ranges) in &mut files {
            ranges.sort_unstable();
            assert_eq!(ranges[0].0, 0, "{path}");
            for pair in ranges[1..].windows(2) {
                assert!(pair[0].1 < pair[1].0, "{path}: {pair:?}");
            }
        }
        files
            .into_iter()
            .map(|(path, ranges)| (path, ranges.len()))
            .collect()
    }
}

/// Numbers from 0 to 1 that are spread well and always the same.
fn noise(seed: u32) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / f64::from(1_u32 << 24)
    }
}

/// Returns whether a tool of GDAL is there. CI must have it.
fn has(tool: &str) -> bool {
    let is_there = Command::new(tool).arg("--version").output().is_ok();
    assert!(
        is_there || std::env::var_os("CI").is_none(),
        "CI needs {tool}"
    );
    if !is_there {
        eprintln!("skipped: no {tool} to compare with");
    }
    is_there
}

#[track_caller]
fn run(tool: &str, args: &[&str]) {
    let ran = Command::new(tool).args(args).output().unwrap();
    assert!(
        ran.status.success(),
        "{tool} {args:?}: {}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

/// What gdallocationinfo tells of a file at places: a sample, or none outside of it.
fn located(file: &Path, how: &str, places: &[[f64; 2]]) -> Vec<Option<f64>> {
    let mut child = Command::new("gdallocationinfo")
        .args(["-valonly", how])
        .arg(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut text = String::new();
    for [x, y] in places {
        writeln!(text, "{x} {y}").unwrap();
    }
    // As many lines as a pipe holds, so that neither waits for the other.
    assert!(text.len() < 60_000);
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let found: Vec<Option<f64>> = lines.lines().map(|line| line.parse().ok()).collect();
    assert_eq!(found.len(), places.len());
    found
}

/// Places in and around the scenes, in degrees.
fn places(count: usize) -> Vec<[f64; 2]> {
    let mut noise = noise(7);
    let mut place = || [152.99 + 0.14 * noise(), -25.43 + 0.12 * noise()];
    (0..count).map(|_| place()).collect()
}

fn datetime(scene: &Scene) -> String {
    scene.item["properties"]["datetime"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn points_have_the_values_that_gdal_tells() {
    if !has("gdallocationinfo") {
        return;
    }
    let stage = Stage::new();
    let places = places(800);
    let points = Points::new(places.clone(), DEGREES).unwrap();
    let table = stage.points(&["red", "nir"], points, &SampleOptions::new());
    let mut rows = table.rows();
    let told: Vec<_> = stage
        .scenes()
        .into_iter()
        .flat_map(|scene| [(scene, Band::Red, "red"), (scene, Band::Nir, "nir")])
        .map(|(scene, band, name)| {
            (
                scene,
                name,
                located(scene.file(band).unwrap(), "-wgs84", &places),
            )
        })
        .collect();
    for (number, place) in places.iter().enumerate() {
        for (scene, band, told) in &told {
            let Some(value) = told[number] else { continue };
            let row = rows.next().unwrap();
            assert_eq!(
                (&row.geometry.id, row.geometry.place, row.item, row.band),
                (&number.to_string(), Some(*place), scene.id.as_str(), *band)
            );
            assert_eq!(
                row.time.to_rfc3339(),
                datetime(scene).replace("000Z", "+00:00")
            );
            assert_eq!(
                row.get("value"),
                (value != -999.0).then_some(value),
                "{place:?}"
            );
        }
    }
    assert!(rows.next().is_none());
    let without = table
        .rows()
        .filter(|row| row.get("value").is_none())
        .count();
    assert!(
        without > 20 && table.len() > 3000 && table.len() < 6400,
        "{without}"
    );
}

#[test]
fn a_point_on_an_edge_is_of_the_pixel_behind_it() {
    if !has("gdallocationinfo") {
        return;
    }
    let stage = Stage::new();
    let scene = stage.scenes()[0];
    let mut places = Vec::new();
    for x in [0.0, 10.0, 5120.0, 11_990.0, 12_000.0, 5.0] {
        for y in [0.0, 10.0, 5120.0, 11_990.0, 12_000.0, 5.0] {
            places.push([499_980.0 + x, 7_200_040.0 - y]);
        }
    }
    let points = Points::new(places.clone(), UTM).unwrap();
    let table = stage.points(
        &["red"],
        points,
        &SampleOptions::new().with_outside(Outside::Empty),
    );
    let told = located(scene.file(Band::Red).unwrap(), "-geoloc", &places);
    let first: Vec<SampleRow<'_>> = table.rows().filter(|row| row.item == scene.id).collect();
    assert_eq!(first.len(), 36);
    for ((row, told), [x, y]) in first.iter().zip(told).zip(&places) {
        let told = told.filter(|told| *told != -999.0);
        assert_eq!(row.get("value"), told, "{x} {y}");
    }
    // Eleven lie on the far sides.
    assert!(
        first
            .iter()
            .filter(|row| row.get("value").is_some())
            .count()
            >= 24
    );
}

#[test]
fn images_of_any_crs_are_sampled_on_their_own_grid() {
    if !has("gdallocationinfo") || !has("gdalwarp") {
        return;
    }
    let stage = Stage::new();
    let dir = tempfile::tempdir().unwrap();
    let source = stage.scenes()[0].file(Band::Red).unwrap().to_owned();
    let codes = [4326, 3857, 3577, 32755];
    let mut features = Vec::new();
    for (day, code) in (1..).zip(codes) {
        let path = dir.path().join(format!("{code}.tif"));
        let srs = format!("EPSG:{code}");
        run(
            "gdalwarp",
            &[
                "-q",
                "-r",
                "near",
                "-t_srs",
                &srs,
                source.to_str().unwrap(),
                path.to_str().unwrap(),
            ],
        );
        features.push(json!({
            "type": "Feature", "stac_version": "1.0.0", "id": srs, "geometry": null, "links": [],
            "properties": {"datetime": format!("2021-01-0{day}T00:00:00Z")},
            "assets": {"red": {"href": path, "roles": ["data"]}},
        }));
    }
    let items = json!({"type": "FeatureCollection", "features": features}).to_string();
    let found = QueryResult::from_json(&stage.session, items.as_bytes(), Trust::User).unwrap();
    let places = places(500);
    let points = Points::new(places.clone(), DEGREES).unwrap();
    let options = SampleOptions::new().with_outside(Outside::Empty);
    let (table, _) = stage
        .session
        .sample_points(&found, points, &options)
        .unwrap();
    assert_eq!(table.len(), 4 * 500);
    for code in codes {
        let told = located(&dir.path().join(format!("{code}.tif")), "-wgs84", &places);
        let item = format!("EPSG:{code}");
        let rows = table.rows().filter(|row| row.item == item);
        let mut there = 0;
        for ((row, told), place) in rows.zip(told).zip(&places) {
            assert_eq!(
                row.get("value"),
                told.filter(|told| *told != -999.0),
                "{code}, {place:?}"
            );
            there += usize::from(row.get("value").is_some());
        }
        assert!(there > 200, "{code}: {there}");
    }
}

#[test]
fn many_points_cost_each_tile_once() {
    let stage = Stage::new();
    let mut noise = noise(3);
    // All in the first tile, then all over.
    for (side, tile_rows) in [(5100.0, 1), (12_000.0, 3)] {
        let places = (0..300).map(|_| [499_980.0 + side * noise(), 7_200_040.0 - side * noise()]);
        let points = Points::new(places.collect::<Vec<_>>(), UTM).unwrap();
        let found = stage.found(&["red", "nir"]);
        stage.bed.clear_log();
        let options = SampleOptions::new().with_mask("clouds".parse().unwrap(), Cleanup::default());
        let (table, report) = stage
            .session
            .sample_points(&found, points, &options)
            .unwrap();
        assert_eq!((table.len(), report.missing_inputs.len()), (300 * 8, 0));
        let files = stage.each_tile_once();
        assert_eq!(files.len(), 12);
        for (path, requests) in files {
            // A header, and a request for each row of tiles; fmask has two rows of tiles at most.
            let expected = match path.contains("fmask") {
                true => tile_rows.min(2),
                false => tile_rows,
            };
            assert_eq!(requests, 1 + expected, "{path}");
        }
    }
}

/// A feature in degrees.
fn feature(id: &str, kind: &str, coordinates: &Value) -> Value {
    json!({"type": "Feature", "id": id, "properties": {"kind": id.len()},
        "geometry": {"type": kind, "coordinates": coordinates}})
}

/// Zones of all kinds: over one another, with a hole, in parts, over the edge, small, and nowhere.
fn zones() -> Vec<Value> {
    let ring = |points: &[[f64; 2]]| json!(points);
    let field = [
        [153.01, -25.33],
        [153.052, -25.325],
        [153.07, -25.36],
        [153.03, -25.372],
        [153.01, -25.33],
    ];
    let lake = [
        [153.03, -25.34],
        [153.04, -25.338],
        [153.041, -25.35],
        [153.03, -25.34],
    ];
    let bay = [
        [153.05, -25.40],
        [153.2, -25.39],
        [153.2, -25.5],
        [153.05, -25.40],
    ];
    let all = [
        [152.9, -25.2],
        [153.3, -25.2],
        [153.3, -25.5],
        [152.9, -25.5],
        [152.9, -25.2],
    ];
    let small = [
        [153.0205, -25.3502],
        [153.0215, -25.3503],
        [153.021, -25.351],
        [153.0205, -25.3502],
    ];
    let far = [[10.0, 50.0], [10.1, 50.0], [10.1, 50.1], [10.0, 50.0]];
    vec![
        feature("field", "Polygon", &json!([ring(&field), ring(&lake)])),
        feature("lake", "Polygon", &json!([ring(&lake)])),
        feature(
            "parts",
            "MultiPolygon",
            &json!([[ring(&lake)], [ring(&bay)]]),
        ),
        feature("all", "Polygon", &json!([ring(&all)])),
        feature("small", "Polygon", &json!([ring(&small)])),
        feature("far", "Polygon", &json!([ring(&far)])),
    ]
}

fn collection(features: &[Value]) -> Value {
    json!({"type": "FeatureCollection", "features": features})
}

/// The pixels of a zone as gdal_rasterize burns them, row by row.
fn burned(dir: &Path, feature: &Value, more: &[&str]) -> Vec<bool> {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let (json, projected, mask) = (path("zone.json"), path("zone.gpkg"), path("mask.bin"));
    std::fs::write(&json, feature.to_string()).unwrap();
    let _ = std::fs::remove_file(&projected);
    let _ = std::fs::remove_file(&mask);
    // Sides are straight in degrees.
    let straight = ["-segmentize", "0.001", "-t_srs", "EPSG:32756"];
    run(
        "ogr2ogr",
        &[
            &["-f", "GPKG", "-nln", "zone"],
            &straight[..],
            &[&projected, &json],
        ]
        .concat(),
    );
    let side = SIDE.to_string();
    let grid = [&["-te"], &CORNERS[..], &["-ts", &side, &side]].concat();
    let burn = [
        "-q", "-burn", "1", "-init", "0", "-ot", "Byte", "-of", "ENVI", "-l", "zone",
    ];
    run(
        "gdal_rasterize",
        &[&burn[..], more, &grid, &[&projected, &mask]].concat(),
    );
    let pixels = std::fs::read(&mask).unwrap();
    assert_eq!(pixels.len(), (SIDE * SIDE) as usize);
    pixels.into_iter().map(|pixel| pixel == 1).collect()
}

/// What numpy says of some numbers: count, mean, min, max, std, p10, median and p97.5, sum.
fn statistics(mut values: Vec<f64>) -> [f64; 9] {
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let percentile = |percent: f64| {
        let place = percent / 100.0 * (count - 1.0);
        let (low, high) = (
            values[place.floor() as usize],
            values[place.ceil() as usize],
        );
        low + (high - low) * place.fract()
    };
    [
        count,
        mean,
        values[0],
        values[values.len() - 1],
        (squares / count).sqrt(),
        percentile(10.0),
        percentile(50.0),
        percentile(97.5),
        mean * count,
    ]
}

const WANTED: &str = "count,mean,min,max,std,p10,median,p97.5,sum";

fn is_cloud(scene: &Scene, col: u32, row: u32) -> bool {
    matches!(scene.pixel(Band::Fmask, col / 2, row / 2), 2 | 3)
}

/// Checks a row beside the pixels of its zone.
fn check(
    row: &SampleRow<'_>,
    scene: &Scene,
    pixels: &[bool],
    scale: f64,
    masked: impl Fn(u32, u32) -> bool,
) {
    let (mut all, mut nodata, mut clouded) = (0.0, 0.0, 0.0);
    let mut values = Vec::new();
    for (place, _) in (0..SIDE * SIDE).zip(pixels).filter(|(_, is_in)| **is_in) {
        let (col, row) = (place % SIDE, place / SIDE);
        all += 1.0;
        match scene.pixel(Band::Red, col, row) {
            -999 => nodata += 1.0,
            _ if masked(col, row) => clouded += 1.0,
            sample => values.push(f64::from(sample) * scale),
        }
    }
    let what = format!("{} {}", row.geometry.id, row.item);
    let got = ["pixels", "nodata", "masked"].map(|name| row.get(name).unwrap());
    assert_eq!(got, [all, nodata, clouded], "{what}");
    if values.is_empty() {
        let numbers = WANTED.split(',').map(|name| row.get(name));
        assert!(
            numbers.eq([Some(0.0)].into_iter().chain([None; 8])),
            "{what}"
        );
        return;
    }
    for (name, expected) in WANTED.split(',').zip(statistics(values)) {
        let got = row.get(name).unwrap();
        let off = (got - expected).abs();
        assert!(
            off <= 1e-10 * expected.abs().max(1.0),
            "{what} {name}: {got}, {expected}"
        );
    }
}

#[test]
fn zones_have_the_pixels_that_gdal_rasterizes() {
    if !has("gdal_rasterize") || !has("ogr2ogr") {
        return;
    }
    let stage = Stage::new();
    let zones = zones();
    let dir = tempfile::tempdir().unwrap();
    let masks: Vec<Vec<bool>> = zones
        .iter()
        .map(|zone| burned(dir.path(), zone, &[]))
        .collect();
    let plain = SampleOptions::new();
    let clear = SampleOptions::new()
        .reflectance()
        .with_mask("clouds".parse().unwrap(), Cleanup::default());
    for (options, scale, is_masked) in [(plain, 1.0, false), (clear, 0.0001, true)] {
        let found = stage.found(&["red"]);
        stage.bed.clear_log();
        let shapes = Zones::from_geojson(&collection(&zones).to_string(), &GeoJsonOptions::new());
        let wanted = WANTED.parse().unwrap();
        let made = stage
            .session
            .sample_zones(&found, shapes.unwrap(), &wanted, &options);
        let (table, report) = made.unwrap();
        assert_eq!(report.nowhere, ["far"]);
        // A header each, and a request for each row of tiles, though zones lie over each other.
        let files = stage.each_tile_once();
        for (path, requests) in &files {
            let rows = if path.contains("fmask") { 2 } else { 3 };
            assert_eq!(*requests, 1 + rows, "{path}");
        }
        assert_eq!(files.len(), if is_masked { 8 } else { 4 });
        // Every zone has a row of every image: without pixels where it lies elsewhere.
        let far: Vec<_> = table
            .rows()
            .filter(|row| row.geometry.id == "far")
            .collect();
        assert_eq!(far.len(), stage.scenes().len());
        assert!(
            far.iter()
                .all(|row| row.get("count") == Some(0.0) && row.get("mean").is_none())
        );
        let mut rows = table.rows().filter(|row| row.geometry.id != "far");
        for (zone, pixels) in zones
            .iter()
            .zip(&masks)
            .filter(|(zone, _)| zone["id"] != "far")
        {
            for scene in stage.scenes() {
                let row = rows.next().unwrap();
                assert_eq!(
                    (json!(row.geometry.id), row.item),
                    (zone["id"].clone(), &*scene.id)
                );
                check(&row, scene, pixels, scale, |col, row| {
                    is_masked && is_cloud(scene, col, row)
                });
            }
        }
        assert!(rows.next().is_none());
    }
}

#[test]
fn touched_pixels_are_those_that_gdal_touches() {
    if !has("gdal_rasterize") || !has("ogr2ogr") {
        return;
    }
    let stage = Stage::new();
    let dir = tempfile::tempdir().unwrap();
    for zone in zones().iter().filter(|zone| zone["id"] != "far") {
        let burned = burned(dir.path(), zone, &["-at"]);
        let zones = Zones::from_geojson(&zone.to_string(), &GeoJsonOptions::new()).unwrap();
        let zones = zones.with_coverage(Coverage::Touched);
        let found = stage.found(&["red"]);
        let wanted = Statistics::default();
        let made = stage
            .session
            .sample_zones(&found, zones, &wanted, &SampleOptions::new());
        let (table, _) = made.unwrap();
        let expected = burned.iter().filter(|is_in| **is_in).count();
        let got = table.rows().next().unwrap().get("pixels").unwrap();
        // A side that comes within a millionth of a pixel's corner is not followed alike.
        let off = (got - expected as f64).abs();
        assert!(off <= 2.0, "{}: {got}, {expected}", zone["id"]);
    }
}

#[test]
fn coordinates_of_another_crs_are_the_same_places() {
    if !has("ogr2ogr") {
        return;
    }
    let stage = Stage::new();
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let zones = collection(&zones()[..3]);
    std::fs::write(path("degrees.json"), zones.to_string()).unwrap();
    let degrees = stage.zones(&["red"], &zones, "count,mean", &SampleOptions::new());
    for code in ["EPSG:32756", "EPSG:3577"] {
        // Older GeoJSON, which names its CRS.
        let to = [
            "-f",
            "GeoJSON",
            "-lco",
            "RFC7946=NO",
            "-segmentize",
            "0.0005",
            "-t_srs",
            code,
        ];
        let _ = std::fs::remove_file(path("other.json"));
        run(
            "ogr2ogr",
            &[&to[..], &[&path("other.json"), &path("degrees.json")]].concat(),
        );
        let text = std::fs::read_to_string(path("other.json")).unwrap();
        let said: Value = serde_json::from_str(&text).unwrap();
        assert!(
            said["crs"].to_string().contains("EPSG::"),
            "{}",
            said["crs"]
        );
        let other = stage.zones(&["red"], &said, "count,mean", &SampleOptions::new());
        assert_eq!(other.len(), 12);
        for (row, expected) in other.rows().zip(degrees.rows()) {
            assert_eq!(
                (&row.geometry.id, row.item),
                (&expected.geometry.id, expected.item)
            );
            let (got, expected) = (row.get("count").unwrap(), expected.get("count").unwrap());
            // Sides are straight in their own coordinates: a pixel here and there lies beside one.
            assert!(
                (got - expected).abs() <= 1e-4 * expected + 1.0,
                "{code}: {got}, {expected}"
            );
        }
    }
}

#[test]
fn masks_leave_out_pixels_and_what_is_near() {
    let stage = Stage::new();
    let at = [0, 1, 63, 64, 511, 512, 513, 700, 1023, 1024, 1199];
    let pixels: Vec<(u32, u32)> = at
        .into_iter()
        .flat_map(|row| at.into_iter().map(move |col| (row, col)))
        .collect();
    let centre = |&(row, col): &(u32, u32)| {
        [
            499_985.0 + 10.0 * f64::from(col),
            7_200_035.0 - 10.0 * f64::from(row),
        ]
    };
    let points = Points::new(pixels.iter().map(centre), UTM).unwrap();
    let cleanup = Cleanup::default().with_dilation(3);
    let options = SampleOptions::new().with_mask("clouds".parse().unwrap(), cleanup);
    let table = stage.points(&["red"], points, &options);
    let mut rows = table.rows();
    for &(row, col) in &pixels {
        for scene in stage.scenes() {
            let near = (-3_i64..=3).any(|y| {
                (-3_i64..=3).any(|x| {
                    let (row, col) = (i64::from(row) + y, i64::from(col) + x);
                    let is_inside = [row, col]
                        .iter()
                        .all(|at| (0..i64::from(SIDE)).contains(at));
                    is_inside && x * x + y * y <= 9 && is_cloud(scene, col as u32, row as u32)
                })
            });
            let sample = scene.pixel(Band::Red, col, row);
            let expected = (!near && sample != -999).then(|| f64::from(sample));
            assert_eq!(rows.next().unwrap().get("value"), expected, "{row} {col}");
        }
    }
}

#[test]
fn memory_is_bounded_and_changes_no_number() {
    let zones = collection(&zones()[..4]);
    let wanted = "mean,std,median,p90,count";
    let numbers = |table: &Table| -> Vec<Option<u64>> {
        let rows = table
            .rows()
            .flat_map(|row| row.numbers().collect::<Vec<_>>());
        rows.map(|number| number.map(f64::to_bits)).collect()
    };
    let expected = numbers(&Stage::new().zones(&["red"], &zones, wanted, &SampleOptions::new()));
    assert_eq!(expected.len(), 4 * 4 * 8);
    for (megabytes, threads) in [(64, 1), (1024, 4)] {
        let stage =
            Stage::with(|builder| builder.budget_bytes(megabytes << 20).cpu_threads(threads));
        let table = stage.zones(&["red"], &zones, wanted, &SampleOptions::new());
        assert_eq!(numbers(&table), expected, "{megabytes} MiB");
    }
    let stage = Stage::with(|builder| builder.budget_bytes(4 << 20));
    let zones = Zones::from_geojson(&zones.to_string(), &GeoJsonOptions::new()).unwrap();
    let found = stage.found(&["red"]);
    let wanted = wanted.parse().unwrap();
    let made = stage
        .session
        .sample_zones(&found, zones, &wanted, &SampleOptions::new());
    let err = made.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
    assert!(
        err.message().contains("more than the budget of 4 MB"),
        "{err}"
    );
}

#[test]
fn a_file_that_fails_ends_the_work_or_is_a_hole() {
    let stage = Stage::new();
    let scenes: Vec<Scene> = stage.scenes().into_iter().cloned().collect();
    let places: Vec<[f64; 2]> = (0..40_u32)
        .map(|step| {
            [
                500_000.0 + 290.0 * f64::from(step),
                7_200_000.0 - 290.0 * f64::from(step),
            ]
        })
        .collect();
    let points = Points::new(places, UTM).unwrap();
    let zones = Zones::from_geojson(&collection(&zones()).to_string(), &GeoJsonOptions::new());
    let (zones, wanted) = (zones.unwrap(), Statistics::default());
    stage.bed.fault(
        Rule::new(Fault::Garbage)
            .on(Service::S3)
            .path(scenes[1].key(Band::Nir)),
    );
    let found = stage.found(&["red", "nir"]);
    let plain = SampleOptions::new();
    let errs = [
        stage
            .session
            .sample_points(&found, points.clone(), &plain)
            .unwrap_err(),
        stage
            .session
            .sample_zones(&found, zones.clone(), &wanted, &plain)
            .unwrap_err(),
    ];
    for err in errs {
        assert_eq!(err.kind(), ErrorKind::Corrupt, "{err}");
        let named = format!("item {}, asset nbart_nir_1", scenes[1].id);
        assert!(err.to_string().contains(&named), "{err}");
    }
    let options = plain.with_on_failure(OnFailure::Skip);
    let made = [
        (
            stage
                .session
                .sample_points(&found, points.clone(), &options)
                .unwrap(),
            40,
        ),
        (
            stage
                .session
                .sample_zones(&found, zones, &wanted, &options)
                .unwrap(),
            6,
        ),
    ];
    for ((table, report), shapes) in made {
        assert_eq!(
            report.missing_inputs.len(),
            1,
            "{:?}",
            report.missing_inputs
        );
        assert_eq!(
            (
                &report.missing_inputs[0].item,
                report.missing_inputs[0].asset.as_str()
            ),
            (&scenes[1].id, "nbart_nir_1")
        );
        assert_eq!(table.len(), shapes * 7);
        let missing = table
            .rows()
            .find(|row| row.item == scenes[1].id && row.band == "nir");
        assert!(missing.is_none());
    }
    // A mask that cannot be read hides all bands of its item.
    stage.bed.fault(
        Rule::new(Fault::status(404))
            .on(Service::S3)
            .path(scenes[2].key(Band::Fmask)),
    );
    let options = options.with_mask("clouds".parse().unwrap(), Cleanup::default());
    let (table, report) = stage
        .session
        .sample_points(&found, points, &options)
        .unwrap();
    let missing_inputs: BTreeSet<_> = report
        .missing_inputs
        .iter()
        .map(|hole| hole.asset.as_str())
        .collect();
    assert_eq!(missing_inputs, BTreeSet::from(["nbart_nir_1", "oa_fmask"]));
    assert_eq!(table.len(), 40 * 5);
    assert!(table.rows().all(|row| row.item != scenes[2].id));
}

#[test]
fn a_tile_that_fails_takes_its_whole_file() {
    let stage = Stage::new();
    let scene = stage.scenes()[3].clone();
    // The header comes whole, the tiles do not.
    let key = scene.key(Band::Red).to_owned();
    stage.bed.fault(
        Rule::new(Fault::status(403))
            .on(Service::S3)
            .path(&key)
            .skip(1),
    );
    let found = stage.found(&["red"]);
    let zones = Zones::from_geojson(&collection(&zones()).to_string(), &GeoJsonOptions::new());
    let options = SampleOptions::new().with_on_failure(OnFailure::Skip);
    let made = stage
        .session
        .sample_zones(&found, zones.unwrap(), &Statistics::default(), &options);
    let (table, report) = made.unwrap();
    assert_eq!(
        report.missing_inputs.len(),
        1,
        "{:?}",
        report.missing_inputs
    );
    assert_eq!(
        (
            &report.missing_inputs[0].item,
            report.missing_inputs[0].kind
        ),
        (&scene.id, ErrorKind::Denied)
    );
    assert_eq!(table.len(), 6 * 3);
}

#[test]
fn what_lies_nowhere_is_listed() {
    let stage = Stage::new();
    let text = json!({"type": "FeatureCollection", "features": [
        feature("here", "Point", &json!([153.05, -25.35])),
        feature("both", "MultiPoint", &json!([[153.06, -25.36], [10.0, 50.0]])),
        feature("away", "MultiPoint", &json!([[11.0, 50.0], [12.0, 50.0]])),
    ]});
    let points = Points::from_geojson(&text.to_string(), &GeoJsonOptions::new().with_name("kind"));
    let points = points.unwrap();
    let found = stage.found(&["red"]);
    let plain = SampleOptions::new();
    let (table, report) = stage
        .session
        .sample_points(&found, points.clone(), &plain)
        .unwrap();
    assert_eq!(table.len(), 2 * 4);
    assert_eq!(report.nowhere, ["both", "away"]);
    assert!(
        table
            .rows()
            .all(|row| row.geometry.name.as_deref() == Some("4"))
    );
    let empty = plain.with_outside(Outside::Empty);
    let (table, _) = stage.session.sample_points(&found, points, &empty).unwrap();
    assert_eq!(table.len(), 5 * 4);
    // A box to search in.
    let bbox = Points::new([[499_985.0, 7_200_035.0], [511_975.0, 7_188_045.0]], UTM).unwrap();
    let [west, south, east, north] = bbox.bbox().unwrap().edges();
    assert!((152.995..153.0).contains(&west) && (153.119..153.125).contains(&east));
    assert!((-25.43..-25.42).contains(&south) && (-25.3165..-25.31).contains(&north));
}

/// A plot within one pixel, away from its centre.
#[test]
fn a_zone_without_a_centre_has_a_row_and_is_listed() {
    let stage = Stage::new();
    let (x, y) = (500_101.0, 7_199_983.0);
    let ring = json!([[[x, y], [x + 2.0, y], [x, y - 2.0], [x, y]]]);
    let plot = feature("plot", "Polygon", &ring).to_string();
    let utm = GeoJsonOptions::new().with_crs(UTM);
    let wanted: Statistics = "count,mean".parse().unwrap();
    let sample = |coverage: Coverage| {
        let zones = Zones::from_geojson(&plot, &utm)
            .unwrap()
            .with_coverage(coverage);
        let found = stage.found(&["red"]);
        let made = stage
            .session
            .sample_zones(&found, zones, &wanted, &SampleOptions::new());
        let (table, report) = made.unwrap();
        assert_eq!(report.nowhere, [""; 0]);
        assert_eq!(table.len(), stage.scenes().len());
        let row = table.rows().next().unwrap();
        (row.get("pixels").unwrap(), row.get("mean"), report.between)
    };
    assert_eq!(
        sample(Coverage::Centre),
        (0.0, None, vec!["plot".to_owned()])
    );
    let (pixels, mean, between) = sample(Coverage::Touched);
    assert_eq!((pixels, between.len()), (1.0, 0));
    // Half of two by two of a pixel of ten by ten metres.
    let (fraction, weighted, _) = sample(Coverage::Fraction);
    assert!((fraction - 0.02).abs() < 1e-9, "{fraction}");
    assert_eq!(weighted, mean);
}

#[tokio::test]
async fn integers_that_a_float_rounds_are_told_with_their_band() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::builder().cpu_threads(2).build().unwrap();
    let mut assets = serde_json::Map::new();
    for (name, sample) in [("large", (1_i64 << 53) + 1), ("small", 5)] {
        let raster = rss_core::Raster {
            pixels: rss_core::Pixels::I64(ndarray::Array3::from_elem((1, 4, 4), sample)),
            geobox: rss_core::GeoBox {
                size: rss_core::Size {
                    width: 4,
                    height: 4,
                },
                crs: Some(UTM),
                transform: Some(rss_core::GeoTransform([5e5, 10.0, 0.0, 7.2e6, 0.0, -10.0])),
            },
            nodata: None,
            sparse: Vec::new(),
        };
        let path = dir.path().join(format!("{name}.tif"));
        raster.save(&path).unwrap();
        assets.insert(name.to_owned(), json!({"href": path}));
    }
    let items = json!({"type": "FeatureCollection", "features": [{
        "type": "Feature", "stac_version": "1.1.0", "id": "a", "geometry": null, "links": [],
        "bbox": [152.99, -25.33, 153.01, -25.31], "assets": assets,
        "properties": {"datetime": "2021-01-01T12:00:00Z"},
    }]});
    let found =
        QueryResult::from_json(&session, items.to_string().as_bytes(), Trust::User).unwrap();
    let points = Points::new([[500_015.0, 7_199_985.0]], UTM).unwrap();
    let options = SampleOptions::new();
    let (_, report) = rss_core::apply::sample::points(&found, points, &options)
        .await
        .unwrap();
    assert_eq!(
        report.notes,
        ["band large: integers past 2^53 are rounded, as numbers of the table are float64"]
    );
}
