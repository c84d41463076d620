//! From a query to one picture: what is computed block by block is what the scenes' pixels say.

mod files;
#[cfg(all(feature = "expression", feature = "zarr"))]
mod fill;
mod grids;
mod masks;
#[cfg(feature = "expression")]
mod periods;
#[cfg(feature = "zarr")]
mod several;
mod stated;
mod waiting;

use std::sync::{Arc, Mutex};

use ndarray::{Array3, Axis, s};
use rss_core::{
    Collection, Crs, DEA, ErrorKind, GeoBox, GeoTransform, ImageQueryBuilder, Intersects, Location,
    QueryResult, Resampling, Resolution, Session, SessionBuilder, Size, Source, Window,
    apply::{
        Apply, ApplyOptions, Block, Grid, ImageCube, ImageCubeOptions, OnFailure, mosaic::Mosaic,
        reduce::Reducer, time::Grouping,
    },
    date,
    mask::Cleanup,
    writer::{CogOptions, Compression},
};
use rss_testbed::{Band, Fault, Rule, Scene, Scenes, Service, Testbed};

const SIDE: u32 = 1200;

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

    fn cube(&self, bands: &[&str], options: &ImageCubeOptions) -> ImageCube {
        self.session.cube(&self.found(bands), options).unwrap()
    }

    /// The scenes by date.
    fn scenes(&self) -> Vec<&Scene> {
        let mut scenes: Vec<&Scene> = self.bed.scenes().iter().collect();
        scenes.sort_by_key(|scene| scene.item["properties"]["datetime"].to_string());
        scenes
    }

    fn array<O: rss_core::Sample + Send + Sync + 'static>(&self, work: Apply<O>) -> Array3<O> {
        let (raster, report) = self.session.compute(work).unwrap();
        assert_eq!(report.missing_inputs, []);
        raster.pixels.view::<O>().unwrap().to_owned()
    }
}

fn ndvi(block: &Block<f32>) -> rss_core::Result<Array3<f32>> {
    let (red, nir) = (block.band("red")?, block.band("nir")?);
    Ok((&nir - &red) / (&nir + &red))
}

/// Each pixel of some places, spread over blocks and edges.
fn places() -> impl Iterator<Item = (u32, u32)> {
    let at = [0, 1, 63, 64, 511, 512, 513, 700, 1023, 1024, 1199];
    at.into_iter()
        .flat_map(move |row| at.into_iter().map(move |col| (row, col)))
}

fn close(got: f32, expected: f32, what: &str) {
    let same = (got.is_nan() && expected.is_nan())
        || (got - expected).abs() <= 1e-5 * expected.abs().max(1.0);
    assert!(same, "{what}: {got}, expected {expected}");
}

/// The value of a pixel as reflectance, NaN without data.
fn reflectance(scene: &Scene, band: Band, col: u32, row: u32) -> f32 {
    match scene.pixel(band, col, row) {
        -999 => f32::NAN,
        sample => f32::from(sample) / 10_000.0,
    }
}

#[test]
fn an_index_of_each_date_is_that_of_its_pixels() {
    let stage = Stage::new();
    let cube = stage.cube(&["red", "nir"], &ImageCubeOptions::new().reflectance());
    let labels: Vec<&str> = cube
        .steps()
        .iter()
        .map(|step| step.label.as_str())
        .collect();
    assert_eq!(
        labels,
        ["2021-01-04", "2021-01-09", "2021-01-19", "2021-01-29"]
    );
    assert_eq!(
        (cube.grid().size.width, cube.grid().size.height),
        (SIDE, SIDE)
    );
    let before = stage.session.traffic().requests;
    let made = stage.array(cube.apply(ApplyOptions::new().with_block(512), ndvi));
    let requests = stage.session.traffic().requests - before;
    // Eight files of nine tiles: a header each, and one request for each tile of a block.
    assert_eq!(requests, 8 + 8 * 9);
    assert_eq!(made.dim(), (4, SIDE as usize, SIDE as usize));
    for (time, scene) in stage.scenes().into_iter().enumerate() {
        for (row, col) in places() {
            let (red, nir) = (
                reflectance(scene, Band::Red, col, row),
                reflectance(scene, Band::Nir, col, row),
            );
            let what = format!("date {time}, row {row}, column {col}");
            close(
                made[(time, row as usize, col as usize)],
                (nir - red) / (nir + red),
                &what,
            );
        }
    }
    // Blocks of another size, more threads and a halo make the same.
    let other = Stage::with(|builder| builder.cpu_threads(4));
    let cube = other.cube(&["red", "nir"], &ImageCubeOptions::new().reflectance());
    for options in [
        ApplyOptions::new(),
        ApplyOptions::new().with_block(336).with_halo(7),
    ] {
        let again = other.array(cube.apply(options, ndvi));
        assert!(
            again
                .iter()
                .zip(&made)
                .all(|(a, b)| a.to_bits() == b.to_bits() || a == b || (a.is_nan() && b.is_nan()))
        );
    }
}

#[test]
fn raw_samples_stay_as_they_are_stored() {
    let stage = Stage::new();
    let cube = stage.cube(&["red"], &ImageCubeOptions::new());
    let made = stage.array(cube.apply(ApplyOptions::new(), |block: &Block<i16>| {
        Ok(block.band("nbart_red")?.to_owned())
    }));
    for (time, scene) in stage.scenes().into_iter().enumerate() {
        for (row, col) in places() {
            assert_eq!(
                made[(time, row as usize, col as usize)],
                scene.pixel(Band::Red, col, row)
            );
        }
    }
    // Physical values are no whole numbers, and nobody rounds them unasked.
    let cube = stage.cube(&["red"], &ImageCubeOptions::new().reflectance());
    let work = cube.apply(ApplyOptions::new(), |block: &Block<i16>| {
        Ok(block.band("red")?.to_owned())
    });
    let err = stage.session.compute(work).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
    assert!(
        err.message()
            .contains("asset nbart_red: physical values as int16"),
        "{err}"
    );
}

#[test]
fn a_median_leaves_out_clouds_and_what_is_near() {
    let stage = Stage::new();
    let options = ImageCubeOptions::new()
        .reflectance()
        .with_mask("clouds".parse().unwrap(), Cleanup::default());
    let median = stage.array(
        stage
            .cube(&["red"], &options)
            .reduce(Reducer::Median, ApplyOptions::new().with_block(512)),
    );
    let wide = options.clone().with_mask(
        "clouds".parse().unwrap(),
        Cleanup::default().with_dilation(3),
    );
    let count = stage.array(
        stage
            .cube(&["red"], &wide)
            .reduce(Reducer::Count, ApplyOptions::new().with_block(512)),
    );
    let is_cloud = |scene: &Scene, row: u32, col: u32| {
        matches!(scene.pixel(Band::Fmask, col / 2, row / 2), 2 | 3)
    };
    for (row, col) in places() {
        let mut valid: Vec<f32> = stage
            .scenes()
            .into_iter()
            .filter(|scene| !is_cloud(scene, row, col))
            .map(|scene| reflectance(scene, Band::Red, col, row))
            .filter(|value| !value.is_nan())
            .collect();
        valid.sort_by(f32::total_cmp);
        let middle = valid.len() / 2;
        let expected = match valid.len() {
            0 => f32::NAN,
            n if n % 2 == 1 => valid[middle],
            _ => f32::midpoint(valid[middle - 1], valid[middle]),
        };
        close(
            median[(0, row as usize, col as usize)],
            expected,
            &format!("row {row}, column {col}"),
        );
        // Three pixels around, in a disk.
        let near = |scene: &Scene| {
            (-3_i64..=3).any(|y| {
                (-3_i64..=3).any(|x| {
                    let (row, col) = (i64::from(row) + y, i64::from(col) + x);
                    let inside =
                        (0..i64::from(SIDE)).contains(&row) && (0..i64::from(SIDE)).contains(&col);
                    inside && x * x + y * y <= 9 && is_cloud(scene, row as u32, col as u32)
                })
            })
        };
        let left = stage
            .scenes()
            .into_iter()
            .filter(|scene| !near(scene) && scene.pixel(Band::Red, col, row) != -999)
            .count();
        close(
            count[(0, row as usize, col as usize)],
            left as f32,
            &format!("count, row {row}, column {col}"),
        );
    }
    // On a grid that reaches beyond the scenes the same pixels are left: the edge of the data is no cloud.
    let beyond = wide.with_grid(Grid::Of(around(&stage, 20)));
    let larger = stage.array(
        stage
            .cube(&["red"], &beyond)
            .reduce(Reducer::Count, ApplyOptions::new().with_block(512)),
    );
    let side = SIDE as usize;
    let inner = larger.slice(s![.., 20..20 + side, 20..20 + side]);
    assert_eq!(inner, count);
    assert_eq!(larger.sum(), count.sum());
}

#[test]
fn clouds_beyond_a_crop_grow_into_it() {
    let stage = Stage::new();
    let cleanup = Cleanup::default().with_opening(2).with_dilation(5);
    let options = ImageCubeOptions::new().with_mask("clouds".parse().unwrap(), cleanup);
    let count = |options: &ImageCubeOptions| {
        let cube = stage.cube(&["red"], options);
        stage.array(cube.reduce(Reducer::Count, ApplyOptions::new().with_block(512)))
    };
    let whole = count(&options);
    let grid = stage.cube(&["red"], &options).grid().clone();
    // Two whose edges clouds cross, and one at the edge of the data.
    for crop in ["301,203,64,48", "401,503,100,37", "0,97,33,31"] {
        let crop: Window = crop.parse().unwrap();
        let of_crop = count(&options.clone().with_grid(Grid::Of(grid.of_window(&crop))));
        let (row, col) = (crop.row as usize, crop.col as usize);
        let rows = row..row + crop.height as usize;
        let cols = col..col + crop.width as usize;
        assert_eq!(of_crop, whole.slice(s![.., rows, cols]), "{crop}");
    }
}

#[test]
fn a_grid_whose_masks_reach_beyond_the_pole_is_no_failure() {
    let stage = Stage::new();
    let cleanup = Cleanup::default().with_dilation(1);
    let options = ImageCubeOptions::new()
        .with_mask("clouds".parse().unwrap(), cleanup)
        .with_max_error_pixels(0.0);
    let count = |south: f64| {
        let bounds = [152.9, south, 153.2, -25.2];
        let grid = GeoBox::of_bounds(Crs::Epsg(4326), bounds, 0.01).unwrap();
        let cube = stage.cube(&["red"], &options.clone().with_grid(Grid::Of(grid)));
        stage.array(cube.reduce(Reducer::Count, ApplyOptions::new().with_block(512)))
    };
    let (near, far) = (count(-26.0), count(-90.0));
    assert!(near.sum() > 0.0);
    assert_eq!(far.slice(s![.., ..near.dim().1, ..]), near);
    assert_eq!(far.sum(), near.sum());
}

/// The scenes' grid, with a frame of so many pixels.
fn around(stage: &Stage, frame: u32) -> GeoBox {
    let grid = stage
        .cube(&["red"], &ImageCubeOptions::new())
        .grid()
        .clone();
    let GeoTransform([x, width, a, y, b, height]) = grid.transform.unwrap();
    let (x, y) = (x - f64::from(frame) * width, y - f64::from(frame) * height);
    let size = Size {
        width: grid.size.width + 2 * frame,
        height: grid.size.height + 2 * frame,
    };
    GeoBox {
        size,
        transform: Some(GeoTransform([x, width, a, y, b, height])),
        ..grid
    }
}

#[test]
fn mosaics_do_not_depend_on_blocks() {
    let stage = Stage::new();
    let grid = around(&stage, 600);
    for mosaic in [Mosaic::Count, Mosaic::Mean, Mosaic::Median, Mosaic::Min] {
        let options = ImageCubeOptions::new()
            .with_grouping(Grouping::All)
            .with_mosaic(mosaic)
            .with_grid(Grid::Of(grid.clone()));
        let cube = stage.cube(&["red"], &options);
        let made = |block: u32| {
            let options = ApplyOptions::new().with_block(block);
            stage.array(cube.apply(options, |block: &Block<f32>| {
                Ok(block.band("red")?.to_owned())
            }))
        };
        let (small, large) = (made(512), made(2400));
        let same = |(a, b): (&f32, &f32)| a == b || (a.is_nan() && b.is_nan());
        assert!(small.iter().zip(&large).all(same), "{mosaic}");
        for (row, col) in places() {
            let mut valid: Vec<f32> = stage
                .scenes()
                .into_iter()
                .map(|scene| f32::from(scene.pixel(Band::Red, col, row)))
                .filter(|&red| red != -999.0)
                .collect();
            valid.sort_by(f32::total_cmp);
            let count = valid.len();
            let expected = match (mosaic, count) {
                (Mosaic::Count, count) => count as f32,
                (_, 0) => f32::NAN,
                (Mosaic::Mean, _) => valid.iter().sum::<f32>() / count as f32,
                (Mosaic::Min, _) => valid[0],
                _ => f32::midpoint(valid[(count - 1) / 2], valid[count / 2]),
            };
            let at = (0, row as usize + 600, col as usize + 600);
            close(
                small[at],
                expected,
                &format!("{mosaic}, row {row}, column {col}"),
            );
        }
        // Far from all images.
        let none = if mosaic == Mosaic::Count {
            0.0
        } else {
            f32::NAN
        };
        close(small[(0, 3, 3)], none, "beyond");
    }
    let options = ImageCubeOptions::new()
        .with_grouping(Grouping::All)
        .with_mosaic(Mosaic::Median);
    let work = stage
        .cube(&["red"], &options)
        .apply(ApplyOptions::new(), |block: &Block<i16>| {
            Ok(block.band("red")?.to_owned())
        });
    let err = stage.session.compute(work).unwrap_err();
    assert!(
        err.message()
            .contains("mosaic `median` of int16 samples: load float32"),
        "{err}"
    );
}

#[test]
fn dates_are_grouped_and_mosaicked() {
    let stage = Stage::new();
    for (mosaic, expected) in [(Mosaic::FirstValid, 0), (Mosaic::LeastCloud, 1)] {
        let options = ImageCubeOptions::new()
            .with_grouping(Grouping::Month)
            .with_mosaic(mosaic);
        let cube = stage.cube(&["red"], &options);
        assert_eq!(cube.steps().len(), 1);
        assert_eq!(cube.steps()[0].label, "2021-01");
        let made = stage.array(cube.apply(ApplyOptions::new(), |block: &Block<i16>| {
            Ok(block.band("red")?.to_owned())
        }));
        let mut order = stage.scenes();
        if expected == 1 {
            let cloud =
                |scene: &&Scene| scene.item["properties"]["eo:cloud_cover"].as_f64().unwrap();
            order.sort_by(|a, b| cloud(a).total_cmp(&cloud(b)));
        }
        for (row, col) in places() {
            let samples = order.iter().map(|scene| scene.pixel(Band::Red, col, row));
            let first = samples
                .into_iter()
                .find(|&sample| sample != -999)
                .unwrap_or(-999);
            assert_eq!(
                made[(0, row as usize, col as usize)],
                first,
                "{mosaic}, row {row}, column {col}"
            );
        }
    }
    let options = ImageCubeOptions::new()
        .with_grouping(Grouping::All)
        .with_mosaic(Mosaic::Max);
    let made = stage.array(
        stage
            .cube(&["red"], &options)
            .apply(ApplyOptions::new(), |block: &Block<i16>| {
                Ok(block.band("red")?.to_owned())
            }),
    );
    for (row, col) in places() {
        let most = stage
            .scenes()
            .iter()
            .map(|scene| scene.pixel(Band::Red, col, row))
            .max();
        assert_eq!(Some(made[(0, row as usize, col as usize)]), most);
    }
}

#[test]
fn a_cube_lies_on_the_grid_that_is_chosen() {
    let stage = Stage::new();
    let coarse = ImageCubeOptions::new()
        .with_grid(Grid::Resolution(20.0.into()))
        .with_resampling(Resampling::Average);
    let cube = stage.cube(&["red"], &coarse);
    assert_eq!(cube.grid().size.width, 600, "{}", cube.grid());
    let made = stage.array(cube.apply(ApplyOptions::new(), |block: &Block<f32>| {
        Ok(block.band("red")?.to_owned())
    }));
    for (time, scene) in stage.scenes().into_iter().enumerate() {
        for (row, col) in [(0, 0), (255, 256), (256, 511), (599, 599), (300, 17)] {
            let four = [(0, 0), (0, 1), (1, 0), (1, 1)];
            let valid: Vec<f32> = four
                .iter()
                .map(|(y, x)| scene.pixel(Band::Red, 2 * col + x, 2 * row + y))
                .filter(|&red| red != -999)
                .map(f32::from)
                .collect();
            let mean = valid.iter().sum::<f32>() / valid.len() as f32;
            // The file's own overview holds whole numbers.
            let got = made[(time, row as usize, col as usize)];
            assert!(
                (got - mean).abs() < 1.0,
                "date {time}, row {row}, column {col}: {got}, expected {mean}"
            );
        }
    }
    let other =
        ImageCubeOptions::new().with_grid(Grid::Projected(Crs::Epsg(3577), Resolution::from(30.0)));
    let cube = stage.cube(&["red"], &other);
    assert_eq!(cube.grid().crs, Some(Crs::Epsg(3577)));
    let made = stage.array(cube.reduce(Reducer::Count, ApplyOptions::new()));
    let covered = made.iter().filter(|&&count| count > 0.0).count() as f64;
    // 12 km x 12 km in pixels of 30 m; Albers keeps areas.
    assert!((covered / 160_000.0 - 1.0).abs() < 0.01, "{covered}");
    let crop = ImageCubeOptions::new().with_bbox("153.0,-25.33,153.05,-25.32".parse().unwrap());
    let cube = stage.cube(&["red"], &crop);
    assert!(
        cube.grid().size.width < 600 && cube.grid().size.height < 140,
        "{}",
        cube.grid()
    );
    let whole = stage
        .cube(&["red"], &ImageCubeOptions::new())
        .grid()
        .clone();
    let (cut, whole) = (cube.grid().transform.unwrap().0, whole.transform.unwrap().0);
    let first = |at: usize| ((cut[at] - whole[at]) / whole[at / 3 * 4 + 1]).round() as u32;
    let (col, row) = (first(0), first(3));
    assert!(col > 0 && row > 0, "{col}, {row}");
    let made = stage.array(cube.apply(ApplyOptions::new(), |block: &Block<i16>| {
        Ok(block.band("red")?.to_owned())
    }));
    for (time, scene) in stage.scenes().into_iter().enumerate() {
        for (down, across) in [(0, 0), (1, 0), (63, 200), (100, 499)] {
            let place = (time, down as usize, across as usize);
            let sample = scene.pixel(Band::Red, col + across, row + down);
            assert_eq!(made[place], sample, "{place:?}");
        }
    }
    let far = ImageCubeOptions::new().with_bbox("10,50,11,51".parse().unwrap());
    let err = stage
        .session
        .cube(&stage.found(&["red"]), &far)
        .unwrap_err();
    assert!(
        err.message().contains("does not touch the images' grid"),
        "{err}"
    );
}

#[test]
fn a_file_that_fails_ends_the_work_or_is_a_hole() {
    let stage = Stage::new();
    let scenes: Vec<Scene> = stage.scenes().into_iter().cloned().collect();
    stage.bed.fault(
        Rule::new(Fault::status(404))
            .on(Service::S3)
            .path(scenes[1].key(Band::Nir)),
    );
    let cube = stage.cube(&["red", "nir"], &ImageCubeOptions::new().reflectance());
    let err = stage
        .session
        .compute(cube.apply(ApplyOptions::new(), ndvi))
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::NotFound);
    let said = err.to_string();
    assert!(
        said.contains(&scenes[1].id) && said.contains("asset nbart_nir_1"),
        "{said}"
    );
    let options = ImageCubeOptions::new()
        .reflectance()
        .with_on_failure(OnFailure::Skip);
    let cube = stage.cube(&["red", "nir"], &options);
    let before = stage.session.traffic().requests;
    let (raster, report) = stage
        .session
        .compute(cube.apply(ApplyOptions::new().with_block(512), ndvi))
        .unwrap();
    // The missing file is asked for once, not by each block.
    assert_eq!(stage.session.traffic().requests - before, 8 + 7 * 9);
    assert_eq!(report.blocks, 9);
    assert_eq!(report.missing_inputs.len(), 9);
    assert!(
        report
            .missing_inputs
            .iter()
            .all(|hole| hole.item == scenes[1].id && hole.asset == "nbart_nir_1")
    );
    let made = raster.pixels.view::<f32>().unwrap();
    assert!(
        made.index_axis(Axis(0), 1)
            .iter()
            .all(|value| value.is_nan())
    );
    assert!(
        made.index_axis(Axis(0), 0)
            .iter()
            .any(|value| !value.is_nan())
    );
    // A mask that cannot be read hides all of its image: nothing cloudy shows.
    stage.bed.fault(
        Rule::new(Fault::status(404))
            .on(Service::S3)
            .path(scenes[2].key(Band::Fmask)),
    );
    let options = options.with_mask("clouds".parse().unwrap(), Cleanup::default());
    let cube = stage.cube(&["red"], &options);
    let work = cube.apply(ApplyOptions::new(), |block: &Block<f32>| {
        Ok(block.band("red")?.to_owned())
    });
    let (raster, report) = stage.session.compute(work).unwrap();
    assert!(
        !report.missing_inputs.is_empty()
            && report
                .missing_inputs
                .iter()
                .all(|hole| hole.asset == "oa_fmask")
    );
    let made = raster.pixels.view::<f32>().unwrap();
    assert!(
        made.index_axis(Axis(0), 2)
            .iter()
            .all(|value| value.is_nan())
    );
    assert!(
        made.index_axis(Axis(0), 3)
            .iter()
            .any(|value| !value.is_nan())
    );
}

#[test]
fn a_closure_may_fail_and_its_size_is_checked() {
    let stage = Stage::new();
    let cube = stage.cube(&["red"], &ImageCubeOptions::new());
    let said = |work: Apply<f32>| stage.session.compute(work).unwrap_err().to_string();
    let err = said(cube.apply(ApplyOptions::new(), |block: &Block<f32>| {
        Ok(block.band("blue")?.to_owned())
    }));
    assert!(
        err.contains("block 0,0,1024,1024: band `blue` is not one of red"),
        "{err}"
    );
    let err = said(cube.apply(ApplyOptions::new(), |_: &Block<f32>| {
        Ok(Array3::zeros((1, 2, 3)))
    }));
    assert!(
        err.contains("the closure returned 2 rows and 3 columns, expected 1024 and 1024"),
        "{err}"
    );
    let err = said(cube.apply(ApplyOptions::new().with_block(100), ndvi));
    assert!(
        err.contains("blocks of 100 pixels: expected a multiple of 16"),
        "{err}"
    );
    let small = Stage::with(|builder| builder.budget_bytes(1 << 20));
    let cube = small.cube(&["red"], &ImageCubeOptions::new());
    let err = small
        .session
        .compute(cube.apply(ApplyOptions::new(), ndvi))
        .unwrap_err();
    assert!(
        err.message().contains("more than the budget of 1 MB"),
        "{err}"
    );
}

/// The upload is aborted when the error is returned, and not some time after.
#[test]
fn a_block_that_fails_leaves_no_upload() {
    let stage = Stage::new();
    stage.bed.add_bucket("maps");
    let cube = stage.cube(&["red"], &ImageCubeOptions::new().reflectance());
    let location = Location::parse("s3://maps/a.tif").unwrap();
    // 21 MB of the first block, as they are: two parts of the object.
    let work = cube.apply(ApplyOptions::new().with_block(512), |block: &Block<f32>| {
        if block.window().row >= 1024 {
            block.band("none")?;
        }
        let (_, _, height, width) = block.data().dim();
        Ok(Array3::from_elem((20, height, width), 1.5_f32))
    });
    let options = CogOptions::new().with_compression(Compression::None);
    stage.bed.clear_log();
    // What is spawned and not waited for does not run once the future is done.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let err = runtime.block_on(work.cog(&location, &options)).unwrap_err();
    assert_eq!(stage.bed.uploads("maps"), []);
    assert!(err.message().contains("none"), "{err}");
    let log = stage.bed.requests(Service::S3);
    let of_maps = log.iter().filter(|one| one.path.contains("maps"));
    let methods: Vec<&str> = of_maps.map(|one| one.method.as_str()).collect();
    assert!(methods.contains(&"POST"), "{methods:?}");
    // A part that was under way may reach the server's log after it.
    assert!(methods.contains(&"DELETE"), "{methods:?}");
}

#[test]
fn a_result_goes_straight_into_a_cog() {
    let stage = Stage::new();
    let cube = stage.cube(&["red", "nir"], &ImageCubeOptions::new().reflectance());
    let dir = tempfile::tempdir().unwrap();
    let location = Location::parse(dir.path().join("median.tif").to_str().unwrap()).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&seen);
    let options = ApplyOptions::new()
        .with_block(512)
        .with_progress(move |progress| told.lock().unwrap().push(progress.blocks_done));
    let expected = stage.array(cube.reduce(Reducer::Median, ApplyOptions::new()));
    let (written, report) = stage
        .session
        .compute_cog(
            cube.reduce(Reducer::Median, options),
            &location,
            &CogOptions::new(),
        )
        .unwrap();
    assert_eq!(*seen.lock().unwrap(), (1..=9).collect::<Vec<u64>>());
    assert_eq!((report.blocks, written.overviews.len()), (9, 2));
    let raster = stage
        .session
        .open(&location, rss_core::Backend::Auto)
        .unwrap();
    let profile = raster.profile().clone();
    assert_eq!(profile.level_geobox(0).unwrap(), *cube.grid());
    let names: Vec<_> = profile
        .bands
        .iter()
        .map(|band| band.description.clone().unwrap())
        .collect();
    assert_eq!(names, ["red", "nir"]);
    assert!(profile.nodata.is_some_and(rss_core::Number::is_nan));
    let read = raster.read(&rss_core::ReadRequest::new()).unwrap();
    let read = read.pixels.view::<f32>().unwrap().to_owned();
    assert!(
        read.iter()
            .zip(&expected)
            .all(|(a, b)| a == b || (a.is_nan() && b.is_nan()))
    );
}
