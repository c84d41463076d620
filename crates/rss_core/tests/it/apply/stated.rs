//! Where the catalogue and the file state different grids or nodata values: the file is right, and a note says so.

use ndarray::Axis;
use rss_core::{
    Crs, Manifest,
    apply::{
        ApplyOptions, ImageCubeOptions,
        sample::{Points, SampleOptions},
    },
};
use serde_json::json;

use super::files::{Files, SIDE, all, noise, session};

#[test]
fn a_files_nodata_value_comes_before_that_of_item_and_manifest() {
    let mut files = Files::new();
    files.add(noise(100, -1), Some(-1.0));
    files.add(noise(200, -1), Some(-1.0));
    files.add(noise(300, -5), None);
    for item in &mut files.items {
        item["assets"]["red"]["raster:bands"] = json!([{"nodata": -5}]);
    }
    let options = ImageCubeOptions::new();
    let cube = files.cube(&options).unwrap();
    assert_eq!(cube.bands()[0].nodata, Some((-1.0).into()));
    let made = all::<f32>(&cube, ApplyOptions::new()).unwrap();
    let missing = |date: usize| {
        made.index_axis(Axis(0), date)
            .iter()
            .filter(|red| red.is_nan())
            .count()
    };
    // The third file states none: the item's holds.
    assert_eq!([missing(0), missing(1), missing(2)], [1, 1, 1]);
    let note = "asset red: the file states nodata -1, the catalogue -5: the file's is taken (item day-1, and 1 more)";
    assert_eq!(cube.input_notes(), [note]);

    // A manifest is a word of the catalogue too, unless it says that the files are wrong.
    let manifest = |overrides: &str| {
        let yaml = format!(
            "source: mine\ncollection: some\nstac_collections: [some]\nbands:\n  - {{asset: red, canonical: red, \
             resolution: 10, dtype: int16, nodata: 100, kind: reflectance{overrides}}}\n"
        );
        Manifest::from_yaml(&yaml).unwrap()
    };
    let mut files = Files::new();
    files.add(noise(100, -1), Some(-1.0));
    for (overrides, nodata, whose) in [
        ("", -1.0, "the file's"),
        (", nodata_overrides: true", 100.0, "the manifest's"),
    ] {
        let options = ImageCubeOptions::new().with_manifest(manifest(overrides));
        let cube = files.cube(&options).unwrap();
        assert_eq!(cube.bands()[0].nodata, Some(nodata.into()));
        let made = all::<f32>(&cube, ApplyOptions::new()).unwrap();
        assert_eq!(made[(0, 5, 9)].is_nan(), nodata == -1.0);
        assert_eq!(made[(0, 0, 0)].is_nan(), nodata == 100.0);
        let [note] = &cube.input_notes()[..] else {
            panic!("{:?}", cube.input_notes())
        };
        assert!(note.contains(&format!("{whose} is taken")), "{note}");
    }
}

#[test]
fn a_files_grid_comes_before_the_one_that_the_item_states() {
    let right = [10.0, 0.0, 300_000.0, 0.0, -10.0, 7_000_000.0];
    let shifted = [10.0, 0.0, 300_005.0, 0.0, -10.0, 7_000_000.0];
    for (shape, transform, is_right) in [
        ([SIDE, SIDE], right, true),
        ([SIDE / 2, SIDE / 2], right, false),
        ([SIDE, SIDE], shifted, false),
    ] {
        let mut files = Files::new();
        files.add(noise(100, -1), Some(-1.0));
        files.add(noise(200, -1), Some(-1.0));
        for item in &mut files.items {
            item["properties"]["proj:epsg"] = json!(32756);
            item["properties"]["proj:shape"] = json!(shape);
            item["properties"]["proj:transform"] = json!(transform);
        }
        let cube = files.cube(&ImageCubeOptions::new()).unwrap();
        assert_eq!(cube.grid().size.width as usize, SIDE, "{shape:?}");
        let made = all::<i16>(&cube, ApplyOptions::new()).unwrap();
        assert_eq!(made.index_axis(Axis(0), 1), noise(200, -1));
        let notes = cube.input_notes();
        assert_eq!(notes.is_empty(), is_right, "{notes:?}");
        for note in &notes {
            assert!(
                note.contains("the file's grid is taken (item day-1, and 1 more)"),
                "{note}"
            );
        }
        let session = session();
        let points = Points::new([[300_105.0, 6_999_895.0]], Crs::Epsg(32756)).unwrap();
        let sampled = session.sample_points(&files.found(&session), points, &SampleOptions::new());
        let (table, report) = sampled.unwrap();
        assert_eq!(report.notes, notes);
        let first = table.rows().next().unwrap().get("value");
        assert_eq!(first, Some(f64::from(noise(100, -1)[(10, 10)])));
    }
}
