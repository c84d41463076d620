//! Grids of cubes: own pixels, boxes, polygons that clip, CRSs without an EPSG code.

use std::path::Path;

use ndarray::{Array2, Array3, ArrayView3};
use rss_core::{
    Backend, Crs, GeoBox, GeoTransform, Location, QueryResult, Raster, ReadRequest, Resampling,
    Sample, Session, Size, Trust,
    apply::{
        Anchor, ApplyOptions, Block, Grid, ImageCube, ImageCubeOptions, Overviews,
        sample::{Coverage, GeoJsonOptions, Zones},
        time::Grouping,
    },
    writer::CogOptions,
};
use serde_json::json;

fn session() -> Session {
    Session::builder().cpu_threads(2).build().unwrap()
}

fn save(path: &Path, samples: Array2<u16>, crs: &Crs, transform: [f64; 6]) {
    let (height, width) = samples.dim();
    let raster = Raster {
        pixels: u16::wrap(samples.insert_axis(ndarray::Axis(0))),
        geobox: GeoBox {
            size: Size {
                width: width.try_into().unwrap(),
                height: height.try_into().unwrap(),
            },
            crs: Some(crs.clone()),
            transform: Some(GeoTransform(transform)),
        },
        nodata: None,
        sparse: Vec::new(),
    };
    raster.save(path).unwrap();
}

fn found(session: &Session, paths: &[&Path]) -> QueryResult {
    let items = paths.iter().zip(1..).map(|(path, day)| {
        json!({
            "type": "Feature", "stac_version": "1.1.0", "id": format!("day-{day}"), "geometry": null,
            "bbox": [150.98, -27.13, 150.99, -27.12],
            "links": [], "assets": {"red": {"href": path}},
            "properties": {"datetime": format!("2021-01-{day:02}T12:00:00Z")},
        })
    });
    let all = json!({"type": "FeatureCollection", "features": items.collect::<Vec<_>>()});
    QueryResult::from_json(session, all.to_string().as_bytes(), Trust::User).unwrap()
}

fn all(session: &Session, cube: &ImageCube) -> Array3<f32> {
    let work = cube.apply(ApplyOptions::new(), |block: &Block<f32>| {
        Ok(block.band("red")?.to_owned())
    });
    let (raster, _) = session.compute(work).unwrap();
    let view: ArrayView3<'_, f32> = raster.pixels.view().unwrap();
    view.to_owned()
}

fn numbered(side: usize) -> Array2<u16> {
    Array2::from_shape_fn((side, side), |(row, col)| {
        u16::try_from(row * side + col).unwrap()
    })
}

const HERE: [f64; 6] = [500_000.0, 10.0, 0.0, 7_000_000.0, 0.0, -10.0];

#[test]
fn polygons_clip_by_the_rule_of_zones() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tif");
    save(&path, numbered(100), &Crs::Epsg(32756), HERE);
    let session = session();
    let found = found(&session, &[&path]);
    // A triangle, in the CRS of the image, with corners inside of pixels.
    let corners = [
        [500_203.0, 6_999_298.0],
        [500_707.0, 6_999_298.0],
        [500_203.0, 6_999_801.0],
    ];
    let ring = [corners[0], corners[1], corners[2], corners[0]];
    let polygon = json!({"type": "Polygon", "coordinates": [ring]}).to_string();
    let in_utm = GeoJsonOptions::new().with_crs(Crs::Epsg(32756));
    let zones = Zones::from_geojson(&polygon, &in_utm).unwrap();
    let inside = |x: f64, y: f64| {
        // The hypotenuse goes down to the right.
        x > 500_203.0
            && y > 6_999_298.0
            && (x - 500_203.0) / 504.0 + (y - 6_999_298.0) / 503.0 < 1.0
    };
    let mut counts = Vec::new();
    for coverage in [Coverage::Centre, Coverage::Touched] {
        let zones = zones.clone().with_coverage(coverage);
        let options = ImageCubeOptions::new().with_clip(zones);
        let cube = session.cube(&found, &options).unwrap();
        let made = all(&session, &cube);
        let [left, _, _, top] = cube.grid().bounds().unwrap();
        // Cropped to the box of the triangle, within a pixel or two.
        let Size { width, height } = cube.grid().size;
        assert!(
            (51..=54).contains(&width) && (51..=54).contains(&height),
            "{}",
            cube.grid()
        );
        let mut count = 0;
        for ((_, row, col), value) in made.indexed_iter() {
            let (x, y) = (left + col as f64 * 10.0, top - row as f64 * 10.0);
            let is_in = inside(x + 5.0, y - 5.0);
            match coverage {
                Coverage::Centre => assert_eq!(!value.is_nan(), is_in, "{col},{row}"),
                _ => assert!(!is_in || !value.is_nan(), "{col},{row}"),
            }
            if !value.is_nan() {
                count += 1;
                let (col, row) = ((x - HERE[0]) / 10.0, (HERE[3] - y) / 10.0);
                assert_eq!(f64::from(*value), row * 100.0 + col);
            }
        }
        counts.push(count);
    }
    // Half of 50.4 x 50.3 pixels, and those that its sides touch.
    assert!(
        (1240..=1295).contains(&counts[0]) && counts[1] > counts[0] + 50,
        "{counts:?}"
    );
    // A polygon on no pixel is an error that says so.
    let far = polygon.replace("500", "900");
    let zones = Zones::from_geojson(&far, &in_utm).unwrap();
    let options = ImageCubeOptions::new().with_clip(zones);
    assert!(session.cube(&found, &options).is_err());
}

#[test]
fn a_polygon_in_degrees_crops_as_its_box_does() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.tif");
    save(&path, numbered(200), &Crs::Epsg(32756), HERE);
    let session = session();
    let found = found(&session, &[&path]);
    let ring = [
        [153.005, -27.132],
        [153.012, -27.132],
        [153.005, -27.124],
        [153.005, -27.132],
    ];
    let polygon = json!({"type": "Polygon", "coordinates": [ring]}).to_string();
    let zones = Zones::from_geojson(&polygon, &GeoJsonOptions::new()).unwrap();
    let bbox = "153.005,-27.132,153.012,-27.124".parse().unwrap();
    for grid in [Grid::Native, Grid::Projected(Crs::Epsg(3577), 10.0.into())] {
        let plain = ImageCubeOptions::new().with_grid(grid);
        let boxed = session
            .cube(&found, &plain.clone().with_bbox(bbox))
            .unwrap();
        let clipped = session
            .cube(&found, &plain.with_clip(zones.clone()))
            .unwrap();
        assert_eq!(boxed.grid(), clipped.grid());
        let (whole, part) = (all(&session, &boxed), all(&session, &clipped));
        let share = part.iter().filter(|value| !value.is_nan()).count() as f64
            / whole.iter().filter(|value| !value.is_nan()).count() as f64;
        // Half of the box, which lies askew in the grid.
        assert!((0.3..0.6).contains(&share), "{share}");
        for (a, b) in whole.iter().zip(&part) {
            assert!(b.is_nan() || a == b);
        }
    }
}

/// Where `gdaltransform` puts a point, to the pixel: values tell where they come from.
#[test]
fn an_image_without_a_code_is_warped_to_where_it_lies() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    for (words, centre) in [
        // MODIS: 133.2 E, 25.1 S.
        (
            "+proj=sinu +lon_0=0 +R=6371007.181 +units=m +no_defs",
            [13_412_543.320_640_5, -2_790_995.804_613_97],
        ),
        // `echo 133.2 -25.1 | gdaltransform -s_srs EPSG:4326 -t_srs ..`, GDAL 3.6.2.
        (
            "+proj=aea +lat_1=-18 +lat_2=-36 +lat_0=0 +lon_0=132 +ellps=GRS80",
            [119_648.879_500_547, -2_714_338.677_260_78],
        ),
    ] {
        let crs: Crs = words.parse().unwrap();
        let path = dir.path().join("own.tif");
        let [x, y] = centre;
        // 100 x 100 pixels of 500 m, the point at the middle of pixel 50,50.
        let transform = [x - 25_250.0, 500.0, 0.0, y + 25_250.0, 0.0, -500.0];
        save(&path, numbered(100), &crs, transform);
        let found = found(&session, &[&path]);
        let options = ImageCubeOptions::new()
            .with_grid(Grid::Projected(Crs::Epsg(4326), 0.001.into()))
            .with_bbox("133.19,-25.11,133.21,-25.09".parse().unwrap());
        let cube = session.cube(&found, &options).unwrap();
        let made = all(&session, &cube);
        let place = cube.grid().pixel_at(133.2001, -25.1001).unwrap().unwrap();
        let value = made[(0, place.row as usize, place.col as usize)];
        assert_eq!(value, 5050.0, "{words}");
        // The image's own CRS is written to a COG and read again.
        let options = ImageCubeOptions::new().with_grouping(Grouping::All);
        let cube = session.cube(&found, &options).unwrap();
        let out = Location::parse(dir.path().join("out.tif").to_str().unwrap()).unwrap();
        let work = cube.apply(ApplyOptions::new(), |block: &Block<f32>| {
            Ok(block.band("red")?.to_owned())
        });
        session.compute_cog(work, &out, &CogOptions::new()).unwrap();
        for backend in [Backend::Cog, Backend::Gdal] {
            let Ok(raster) = session.open(&out, backend) else {
                continue;
            };
            let grid = raster.profile().level_geobox(0).unwrap();
            assert!(
                grid.crs.as_ref().unwrap().is_same(&crs),
                "{backend:?}: {:?}",
                grid.crs
            );
            let pixel = grid.pixel_at(133.2, -25.1).unwrap();
            assert_eq!(pixel, Some("50,50,1,1".parse().unwrap()), "{backend:?}");
        }
        std::fs::remove_file(dir.path().join("out.tif")).unwrap();
    }
}

#[test]
fn images_either_side_of_the_antimeridian_share_a_grid() {
    let dir = tempfile::tempdir().unwrap();
    let (west, east) = (dir.path().join("60.tif"), dir.path().join("01.tif"));
    save(
        &west,
        Array2::from_elem((60, 60), 7),
        &Crs::Epsg(32760),
        [798_000.0, 300.0, 0.0, 8_070_000.0, 0.0, -300.0],
    );
    save(
        &east,
        Array2::from_elem((60, 60), 9),
        &Crs::Epsg(32701),
        [184_000.0, 300.0, 0.0, 8_070_000.0, 0.0, -300.0],
    );
    let session = session();
    let found = found(&session, &[&west, &east]);
    let utm = Grid::Projected(Crs::Epsg(32760), 300.0.into());
    for grid in [
        utm,
        Grid::Utm(300.0.into()),
        Grid::Projected(Crs::Epsg(4326), 0.003.into()),
    ] {
        let options = ImageCubeOptions::new()
            .with_grid(grid.clone())
            .with_grouping(Grouping::All);
        let cube = session.cube(&found, &options).unwrap();
        let Size { width, height } = cube.grid().size;
        assert!(width < 150 && height < 80, "{}", cube.grid());
        let made = all(&session, &cube);
        let count = |wanted: f32| made.iter().filter(|value| **value == wanted).count();
        assert!(
            count(7.0) > 3000 && count(9.0) > 3000,
            "{grid:?}: {} {}",
            count(7.0),
            count(9.0)
        );
    }
}

#[test]
fn overviews_are_left_alone_where_that_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let flat = dir.path().join("flat.tif");
    // A checkerboard: its overview by average is flat.
    let board = Array2::from_shape_fn((1024, 1024), |(row, col)| {
        u16::from((row + col) % 2 == 0) * 100
    });
    save(&flat, board, &Crs::Epsg(32756), HERE);
    let cube = session
        .cube(&found(&session, &[&flat]), &ImageCubeOptions::new())
        .unwrap();
    let path = dir.path().join("cog.tif");
    let location = Location::parse(path.to_str().unwrap()).unwrap();
    let work = cube.apply(ApplyOptions::new(), |block: &Block<f32>| {
        Ok(block.band("red")?.to_owned())
    });
    session
        .compute_cog(work, &location, &CogOptions::new())
        .unwrap();
    let raster = session.open(&location, Backend::Cog).unwrap();
    assert!(!raster.profile().overviews.is_empty());
    raster.read(&ReadRequest::new().with_level(1)).unwrap();
    let found = found(&session, &[&path]);
    let options = ImageCubeOptions::new()
        .with_grid(Grid::Resolution(20.0.into()))
        .with_anchor(Anchor::Edge)
        .with_resampling(Resampling::Nearest);
    let of = |overviews| {
        let cube = session
            .cube(&found, &options.clone().with_overviews(overviews))
            .unwrap();
        let made = all(&session, &cube);
        made.iter().all(|value| *value == 0.0 || *value == 100.0)
    };
    assert!(of(Overviews::Never));
    assert!(!of(Overviews::Auto));
}
