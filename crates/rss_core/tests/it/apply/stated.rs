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

/// A CRS that no code names, as WKT 2 and as PROJJSON, beside the numbers of a grid.
#[test]
fn a_grid_is_that_of_an_item_whose_crs_has_no_code() {
    let albers = "+proj=aea +lat_1=-18 +lat_2=-36 +lat_0=-1 +lon_0=131 +datum=WGS84 +units=m";
    let crs = Crs::parse(albers).unwrap();
    let mut files = Files::new();
    files.add_on(noise(100, -1), Some(-1.0), &crs);
    files.add_on(noise(200, -1), Some(-1.0), &crs);
    let real = files.cube(&ImageCubeOptions::new()).unwrap().grid().clone();
    let Definitions {
        wkt2,
        projjson,
        moved,
    } = definitions();
    let state = |files: &mut Files, name: &str, value: &serde_json::Value, shift: f64| {
        for item in &mut files.items {
            let fields = json!({
                name: value, "proj:code": null, "proj:shape": [SIDE, SIDE],
                "proj:transform": [10, 0, 300_000.0 + shift, 0, -10, 7_000_000],
            });
            let red = item["assets"]["red"].as_object_mut().unwrap();
            red.retain(|key, _| key == "href");
            red.extend(fields.as_object().unwrap().clone());
        }
    };
    for (name, value) in [("proj:wkt2", json!(wkt2)), ("proj:projjson", projjson)] {
        state(&mut files, name, &value, 0.0);
        // The second file need not be there to plan: the first says that the catalogue is right.
        let hidden = files.hide(1);
        let cube = files.cube(&ImageCubeOptions::new()).unwrap();
        assert_eq!(cube.grid().size, real.size, "{name}");
        assert_eq!(cube.grid().transform, real.transform, "{name}");
        let same = cube.grid().crs.as_ref().unwrap().is_same(&crs);
        assert!(same, "{name}: {:?}", cube.grid().crs);
        assert_eq!(cube.input_notes(), [] as [&str; 0], "{name}");
        drop(hidden);
        let made = all::<i16>(&cube, ApplyOptions::new()).unwrap();
        assert_eq!(made[(1, 10, 10)], noise(200, -1)[(10, 10)], "{name}");
    }
    // Where item and file differ the file is right, and a note says so.
    for (value, shift) in [(&wkt2, 100.0), (&moved, 0.0)] {
        state(&mut files, "proj:wkt2", &json!(value), shift);
        let cube = files.cube(&ImageCubeOptions::new()).unwrap();
        assert_eq!(cube.grid().transform, real.transform);
        assert!(cube.grid().crs.as_ref().unwrap().is_same(&crs));
        all::<i16>(&cube, ApplyOptions::new()).unwrap();
        assert_eq!(cube.input_notes().len(), 1, "{:?}", cube.input_notes());
    }
}

struct Definitions {
    wkt2: String,
    projjson: serde_json::Value,
    /// With another central meridian.
    moved: String,
}

/// By PROJ: `projinfo -o WKT2:2019,PROJJSON "+proj=aea .. +type=crs"`.
fn definitions() -> Definitions {
    let wkt2 = r#"PROJCRS["unknown",BASEGEOGCRS["unknown",DATUM["World Geodetic System 1984",ELLIPSOID["WGS 84",6378137,298.257223563,LENGTHUNIT["metre",1]],ID["EPSG",6326]],PRIMEM["Greenwich",0,ANGLEUNIT["degree",0.0174532925199433],ID["EPSG",8901]]],CONVERSION["unknown",METHOD["Albers Equal Area",ID["EPSG",9822]],PARAMETER["Latitude of false origin",-1,ANGLEUNIT["degree",0.0174532925199433],ID["EPSG",8821]],PARAMETER["Longitude of false origin",131,ANGLEUNIT["degree",0.0174532925199433],ID["EPSG",8822]],PARAMETER["Latitude of 1st standard parallel",-18,ANGLEUNIT["degree",0.0174532925199433],ID["EPSG",8823]],PARAMETER["Latitude of 2nd standard parallel",-36,ANGLEUNIT["degree",0.0174532925199433],ID["EPSG",8824]],PARAMETER["Easting at false origin",0,LENGTHUNIT["metre",1],ID["EPSG",8826]],PARAMETER["Northing at false origin",0,LENGTHUNIT["metre",1],ID["EPSG",8827]]],CS[Cartesian,2],AXIS["(E)",east,ORDER[1],LENGTHUNIT["metre",1,ID["EPSG",9001]]],AXIS["(N)",north,ORDER[2],LENGTHUNIT["metre",1,ID["EPSG",9001]]]]"#;
    let parameter =
        |name: &str, value: f64, unit: &str| json!({"name": name, "value": value, "unit": unit});
    let projjson = json!({
        "$schema": "https://proj.org/schemas/v0.7/projjson.schema.json",
        "type": "ProjectedCRS", "name": "unknown",
        "base_crs": {"type": "GeographicCRS", "name": "unknown",
            "datum": {"type": "GeodeticReferenceFrame", "name": "World Geodetic System 1984",
                "ellipsoid": {"name": "WGS 84", "semi_major_axis": 6_378_137, "inverse_flattening": 298.257_223_563}},
            "coordinate_system": {"subtype": "ellipsoidal", "axis": [
                {"name": "Longitude", "abbreviation": "lon", "direction": "east", "unit": "degree"},
                {"name": "Latitude", "abbreviation": "lat", "direction": "north", "unit": "degree"}]}},
        "conversion": {"name": "unknown",
            "method": {"name": "Albers Equal Area", "id": {"authority": "EPSG", "code": 9822}},
            "parameters": [
                parameter("Latitude of false origin", -1.0, "degree"),
                parameter("Longitude of false origin", 131.0, "degree"),
                parameter("Latitude of 1st standard parallel", -18.0, "degree"),
                parameter("Latitude of 2nd standard parallel", -36.0, "degree"),
                parameter("Easting at false origin", 0.0, "metre"),
                parameter("Northing at false origin", 0.0, "metre")]},
        "coordinate_system": {"subtype": "Cartesian", "axis": [
            {"name": "Easting", "abbreviation": "E", "direction": "east", "unit": "metre"},
            {"name": "Northing", "abbreviation": "N", "direction": "north", "unit": "metre"}]},
    });
    Definitions {
        moved: wkt2.replace("false origin\",131", "false origin\",132"),
        wkt2: wkt2.to_owned(),
        projjson,
    }
}

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
