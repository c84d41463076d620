//! The nearest valid pixel within a distance of a point, beside a search of all pixels.

use ndarray::Array3;
use rss_core::{GeoBox, GeoTransform, Pixels, Raster, Size};

use super::*;

/// The scale of UTM at its central meridian: the scenes begin there, and it is the same to 1e-6 over all of them.
const SCALE: f64 = 0.9996;

/// What the search of all pixels about a point finds: value and distance in metres.
fn searched(
    [x, y]: [f64; 2],
    metres: f64,
    value: impl Fn(i64, i64) -> Option<f64>,
) -> Option<(f64, f64)> {
    let (col, row) = ((x - 499_980.0) / 10.0, (7_200_040.0 - y) / 10.0);
    let (own_col, own_row) = (col.floor() as i64, row.floor() as i64);
    if let Some(value) = value(own_col, own_row) {
        return Some((value, 0.0));
    }
    let reach = (metres / 10.0) as i64 + 2;
    let mut all = Vec::new();
    for row_at in own_row - reach..=own_row + reach {
        for col_at in own_col - reach..=own_col + reach {
            let apart = (col_at as f64 + 0.5 - col).hypot(row_at as f64 + 0.5 - row) * 10.0 / SCALE;
            if let (true, Some(value)) = (apart <= metres, value(col_at, row_at)) {
                all.push((apart, value));
            }
        }
    }
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all.first().map(|&(apart, value)| (value, apart))
}

#[test]
fn the_nearest_valid_pixel_is_that_of_a_search_of_all() {
    let stage = Stage::new();
    let mut noise = noise(11);
    // Some about the nodata corner, some about clouds, and some past an edge.
    let places: Vec<[f64; 2]> = (0..300)
        .map(|_| {
            [
                499_880.0 + 12_200.0 * noise(),
                7_187_940.0 + 12_200.0 * noise(),
            ]
        })
        .collect();
    for (mask, metres) in [(false, 60.0), (true, 60.0), (true, 435.0)] {
        let mut options = SampleOptions::new().with_nearest(metres);
        if mask {
            options = options.with_mask("clouds".parse().unwrap(), Cleanup::default());
        }
        let points = Points::new(places.clone(), UTM).unwrap();
        let table = stage.points(&["red"], points, &options);
        let mut replaced = 0;
        for scene in stage.scenes() {
            let value = |col: i64, row: i64| {
                let is_on = |at: i64| (0..i64::from(SIDE)).contains(&at);
                if !is_on(col) || !is_on(row) {
                    return None;
                }
                let (col, row) = (col as u32, row as u32);
                let sample = scene.pixel(Band::Red, col, row);
                let is_out = sample == -999 || mask && is_cloud(scene, col, row);
                (!is_out).then(|| f64::from(sample))
            };
            let rows: BTreeMap<String, SampleRow<'_>> = table
                .rows()
                .filter(|row| row.item == scene.id)
                .map(|row| (row.geometry.id.clone(), row))
                .collect();
            for (number, place) in places.iter().enumerate() {
                let expected = searched(*place, metres, value);
                let row = rows.get(&number.to_string());
                let found = row.and_then(|row| Some((row.get("value")?, row.get("distance")?)));
                match (expected, found) {
                    (Some((value, apart)), Some((found, distance))) => {
                        assert_eq!(found, value, "{place:?}");
                        assert!((distance - apart).abs() < 1e-2, "{distance} {apart}");
                        replaced += usize::from(apart > 0.0);
                    }
                    (expected, found) => assert_eq!(found, expected, "{place:?}"),
                }
                // A point on the image has a row, with a value or without.
                let is_on = |at: f64| (0.0..12_000.0).contains(&at);
                if is_on(place[0] - 499_980.0) && is_on(7_200_040.0 - place[1]) {
                    assert!(row.is_some(), "{place:?}");
                }
            }
        }
        assert!(replaced > 20, "{replaced}");
    }
}

#[test]
fn a_window_of_a_point_costs_its_tiles_once() {
    let stage = Stage::new();
    // At a corner of four tiles.
    let corner = [499_980.0 + 5120.0, 7_200_040.0 - 5120.0];
    let points = Points::new([corner, [corner[0] + 30.0, corner[1]]], UTM).unwrap();
    let options = SampleOptions::new().with_nearest(300.0);
    stage.points(&["red"], points, &options);
    for (path, requests) in stage.each_tile_once() {
        // The header, and two rows of two tiles.
        assert!(requests <= 3, "{path}: {requests}");
    }
}

/// Samples a file of its own at points.
fn of_raster(raster: &Raster, points: Points, options: &SampleOptions) -> Table {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.tif");
    raster.save(&path).unwrap();
    let item = json!({
        "type": "Feature", "stac_version": "1.0.0", "id": "one", "geometry": null, "links": [],
        "properties": {"datetime": "2021-01-01T00:00:00Z"},
        "assets": {"b": {"href": path, "roles": ["data"]}},
    });
    let session = Session::builder().build().unwrap();
    let items = json!({"type": "FeatureCollection", "features": [item]}).to_string();
    let found = QueryResult::from_json(&session, items.as_bytes(), Trust::User).unwrap();
    session.sample_points(&found, points, options).unwrap().0
}

/// Samples that tell their column and row, with nodata in some.
fn numbered(crs: Crs, transform: [f64; 6], size: [u32; 2], holes: &[(usize, usize)]) -> Raster {
    let [width, height] = size;
    let mut samples = Array3::from_shape_fn((1, height as usize, width as usize), |(_, y, x)| {
        (100 * y + x) as f32
    });
    for &(row, col) in holes {
        samples[(0, row, col)] = f32::NAN;
    }
    Raster {
        pixels: Pixels::F32(samples),
        geobox: GeoBox {
            size: Size { width, height },
            crs: Some(crs),
            transform: Some(GeoTransform(transform)),
        },
        nodata: None,
        sparse: Vec::new(),
    }
}

fn rows(table: &Table) -> Vec<(Option<f64>, Option<f64>)> {
    let round = |metres: f64| (metres * 10.0).round() / 10.0;
    table
        .rows()
        .map(|row| (row.get("value"), row.get("distance").map(round)))
        .collect()
}

#[test]
fn of_pixels_as_near_the_first_row_and_then_the_first_column_is_taken() {
    let transform = [500_000.0, 10.0, 0.0, 6_000_000.0, 0.0, -10.0];
    let utm = Crs::Epsg(32633);
    let raster = |holes: &[(usize, usize)]| numbered(utm.clone(), transform, [7, 7], holes);
    let centre = |col: f64, row: f64| [500_005.0 + col * 10.0, 5_999_995.0 - row * 10.0];
    let at = |places: Vec<[f64; 2]>| Points::new(places, utm.clone()).unwrap();
    let options = SampleOptions::new().with_nearest(25.0);
    let all = of_raster(
        &raster(&[(3, 3)]),
        at(vec![
            centre(3.0, 3.0),
            centre(2.0, 3.0),
            centre(-2.0, 1.0),
            centre(-4.0, 1.0),
        ]),
        &options,
    );
    assert_eq!(
        rows(&all),
        [
            (Some(203.0), Some(10.0)),
            (Some(302.0), Some(0.0)),
            (Some(100.0), Some(20.0))
        ]
    );
    let without_above = of_raster(
        &raster(&[(3, 3), (2, 3)]),
        at(vec![centre(3.0, 3.0)]),
        &options,
    );
    assert_eq!(rows(&without_above), [(Some(302.0), Some(10.0))]);
    let far: Vec<(usize, usize)> = (0..7).flat_map(|y| (0..7).map(move |x| (y, x))).collect();
    let none = of_raster(
        &raster(&far),
        at(vec![centre(3.0, 3.0), centre(-1.0, 0.0)]),
        &options,
    );
    assert_eq!(rows(&none), [(None, None), (None, None)]);
}

#[test]
fn a_distance_is_on_the_ground_in_any_crs() {
    // At 60 degrees a metre of this map is half a metre on the ground.
    let web = Crs::Epsg(3857);
    let transform = [1_000_000.0, 20.0, 0.0, 8_399_800.0, 0.0, -20.0];
    let raster = numbered(web.clone(), transform, [9, 9], &[(4, 4)]);
    let middle = Points::new([[1_000_090.0, 8_399_710.0]], web).unwrap();
    let found = |metres| {
        let options = SampleOptions::new().with_nearest(metres);
        rows(&of_raster(&raster, middle.clone(), &options))
    };
    assert_eq!(found(9.0), [(None, None)]);
    let (value, distance) = found(11.0)[0];
    let (value, distance) = (value.unwrap(), distance.unwrap());
    assert!((9.9..=10.1).contains(&distance), "{distance}");
    assert!([304.0, 403.0, 405.0, 504.0].contains(&value), "{value}");
    // Around the globe: the pixel on the other side of 180 is near.
    let globe = [-180.0, 1.0, 0.0, 90.0, 0.0, -1.0];
    let holes: Vec<(usize, usize)> = (355..360).map(|col| (90, col)).collect();
    let raster = numbered(DEGREES, globe, [360, 180], &holes);
    let east = Points::new([[179.9, -0.5]], DEGREES).unwrap();
    let table = of_raster(&raster, east, &SampleOptions::new().with_nearest(70_000.0));
    assert_eq!(table.rows().next().unwrap().get("value"), Some(9000.0));
}

#[test]
fn a_distance_is_of_points_and_positive() {
    let stage = Stage::new();
    let found = stage.found(&["red"]);
    for metres in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let points = Points::new([[500_000.0, 7_200_000.0]], UTM).unwrap();
        let options = SampleOptions::new().with_nearest(metres);
        let err = stage
            .session
            .sample_points(&found, points, &options)
            .unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
        assert!(err.message().contains("expected more than 0"), "{err}");
    }
    let zones = Zones::from_geojson(&collection(&zones()).to_string(), &GeoJsonOptions::new());
    let options = SampleOptions::new().with_nearest(5.0);
    let wanted = Statistics::default();
    let made = stage
        .session
        .sample_zones(&found, zones.unwrap(), &wanted, &options);
    assert_eq!(made.unwrap_err().kind(), ErrorKind::InvalidInput);
}
