//! Masks before resampling, and the share of valid source pixels that a pixel needs.

use ndarray::{Array3, s};
use rss_core::{
    ErrorKind, GeoBox, GeoTransform, Resampling, Size,
    apply::{
        ApplyOptions, Block, Grid, ImageCube, ImageCubeOptions, MaskStage, OnFailure,
        reduce::Reducer,
    },
    mask::Cleanup,
};
use rss_testbed::{Band, Fault, Rule, Scene, Service};

use super::{SIDE, Stage, close};

/// Pixels of 40 m from the images' first corner, means of sixteen of theirs.
fn coarse(stage: &Stage) -> ImageCubeOptions {
    let own = stage.cube(&["red"], &ImageCubeOptions::new());
    let GeoTransform([x, _, _, y, ..]) = own.grid().transform.unwrap();
    let grid = GeoBox {
        size: Size {
            width: SIDE / 4,
            height: SIDE / 4,
        },
        crs: own.grid().crs.clone(),
        transform: Some(GeoTransform([x, 40.0, 0.0, y, 0.0, -40.0])),
    };
    ImageCubeOptions::new()
        .with_grid(Grid::Of(grid))
        .with_resampling(Resampling::Average)
}

fn masked(stage: &Stage, dilation: usize) -> ImageCubeOptions {
    let cleanup = Cleanup::default().with_dilation(dilation);
    coarse(stage)
        .with_mask("clouds".parse().unwrap(), cleanup)
        .with_mask_stage(MaskStage::Source)
}

/// The red of each date.
fn red(stage: &Stage, cube: &ImageCube, block: u32) -> Array3<f32> {
    let options = ApplyOptions::new().with_block(block);
    stage.array(cube.apply(options, |block: &Block<f32>| {
        Ok(block.band("red")?.to_owned())
    }))
}

fn is_cloud(scene: &Scene, row: i64, col: i64) -> bool {
    let inside = 0..i64::from(SIDE);
    inside.contains(&row)
        && inside.contains(&col)
        && matches!(
            scene.pixel(Band::Fmask, col as u32 / 2, row as u32 / 2),
            2 | 3
        )
}

/// The valid samples of the images below a coarse pixel.
fn below(scene: &Scene, row: u32, col: u32, dilation: i64) -> Vec<f32> {
    let pixels = (0..4).flat_map(|y| (0..4).map(move |x| (4 * row + y, 4 * col + x)));
    let is_out = |row: u32, col: u32| {
        (-dilation..=dilation).any(|y| {
            (-dilation..=dilation).any(|x| {
                x * x + y * y <= dilation * dilation
                    && is_cloud(scene, i64::from(row) + y, i64::from(col) + x)
            })
        })
    };
    let valid =
        pixels.filter(|&(row, col)| scene.pixel(Band::Red, col, row) != -999 && !is_out(row, col));
    valid
        .map(|(row, col)| f32::from(scene.pixel(Band::Red, col, row)))
        .collect()
}

#[test]
fn a_mean_of_masked_images_is_of_the_pixels_that_are_kept() {
    let stage = Stage::new();
    let (mut mixed, mut few) = (0, 0);
    for dilation in [0, 1, 3] {
        let options = masked(&stage, dilation);
        let made = red(&stage, &stage.cube(&["red"], &options), 512);
        let half = options.clone().with_min_valid(0.5);
        let at_least_half = red(&stage, &stage.cube(&["red"], &half), 512);
        let all = options.clone().with_min_valid(1.0);
        let only_whole = red(&stage, &stage.cube(&["red"], &all), 512);
        // What is masked afterwards is of masked pixels, too, at some places.
        let after = options.clone().with_mask_stage(MaskStage::Grid);
        let after = red(&stage, &stage.cube(&["red"], &after), 512);
        for (time, scene) in stage.scenes().into_iter().enumerate() {
            for (row, col) in (0..300)
                .step_by(7)
                .flat_map(|row| (0..300).step_by(11).map(move |col| (row, col)))
            {
                let valid = below(scene, row, col, dilation as i64);
                let mean = valid.iter().sum::<f32>() / valid.len() as f32;
                let at = (time, row as usize, col as usize);
                let what = format!("dilation {dilation}, date {time}, row {row}, column {col}");
                close(made[at], mean, &what);
                let expected = if valid.len() < 8 { f32::NAN } else { mean };
                close(at_least_half[at], expected, &what);
                let expected = if valid.len() < 16 { f32::NAN } else { mean };
                close(only_whole[at], expected, &what);
                few += usize::from((1..8).contains(&valid.len()));
                mixed += usize::from(!after[at].is_nan() && (after[at] - mean).abs() > 1.0);
            }
        }
        // Blocks of another size make the same bits.
        let small = red(&stage, &stage.cube(&["red"], &half), 64);
        assert_eq!(small.mapv(f32::to_bits), at_least_half.mapv(f32::to_bits));
    }
    assert!(few > 0 && mixed > 0, "{few}, {mixed}");
}

#[test]
fn where_pixels_are_copied_both_stages_mask_alike() {
    let stage = Stage::new();
    let cleanup = Cleanup::default().with_opening(1).with_dilation(2);
    let made = |stage_of_mask: MaskStage| {
        let options = ImageCubeOptions::new()
            .with_mask("clouds".parse().unwrap(), cleanup)
            .with_mask_stage(stage_of_mask)
            .with_min_valid(0.7);
        let cube = stage.cube(&["red"], &options);
        let of_dates = red(&stage, &cube, 512);
        let least = cube.reduce(Reducer::Min, ApplyOptions::new().with_block(336));
        (of_dates, stage.array(least))
    };
    let (source, least_of_source) = made(MaskStage::Source);
    let (grid, least_of_grid) = made(MaskStage::Grid);
    assert_eq!(source.mapv(f32::to_bits), grid.mapv(f32::to_bits));
    assert_eq!(
        least_of_source.mapv(f32::to_bits),
        least_of_grid.mapv(f32::to_bits)
    );
}

#[test]
fn a_source_mask_that_cannot_be_read_hides_its_image() {
    let stage = Stage::new();
    let key = stage.scenes()[2].key(Band::Fmask);
    stage
        .bed
        .fault(Rule::new(Fault::status(404)).on(Service::S3).path(key));
    let err = {
        let cube = stage.cube(&["red"], &masked(&stage, 1));
        let work = cube.apply(ApplyOptions::new(), |block: &Block<f32>| {
            Ok(block.band("red")?.to_owned())
        });
        stage.session.compute(work).unwrap_err()
    };
    assert_eq!(err.kind(), ErrorKind::NotFound);
    assert!(err.message().contains("asset oa_fmask"), "{err}");
    let cube = stage.cube(
        &["red"],
        &masked(&stage, 1).with_on_failure(OnFailure::Skip),
    );
    let work = cube.apply(ApplyOptions::new(), |block: &Block<f32>| {
        Ok(block.band("red")?.to_owned())
    });
    let (raster, report) = stage.session.compute(work).unwrap();
    assert_eq!(report.missing_inputs.len(), 1);
    assert_eq!(report.missing_inputs[0].asset, "oa_fmask");
    let made = raster.pixels.view::<f32>().unwrap();
    assert!(made.slice(s![2, .., ..]).iter().all(|value| value.is_nan()));
    assert!(
        made.slice(s![1, .., ..])
            .iter()
            .any(|value| !value.is_nan())
    );
}

#[test]
fn a_band_has_its_own_resampling() {
    let stage = Stage::new();
    let bands = |options: &ImageCubeOptions| {
        let cube = stage.cube(&["red", "nir"], options);
        let work = cube.apply(ApplyOptions::new(), |block: &Block<f32>| {
            Ok(block.data().index_axis(ndarray::Axis(0), 0).to_owned())
        });
        stage.array(work)
    };
    // Not the pixels of an overview, which would be copied.
    let coarse = || {
        ImageCubeOptions::new()
            .with_grid(Grid::Resolution(50.0.into()))
            .with_resampling(Resampling::Average)
    };
    let average = bands(&coarse());
    let most = bands(&coarse().with_resampling(Resampling::Max));
    let both = bands(&coarse().with_band_resampling("nbart_nir_1", Resampling::Max));
    let bits = |array: ndarray::ArrayView2<'_, f32>| array.mapv(f32::to_bits);
    assert_eq!(
        bits(both.slice(s![0, .., ..])),
        bits(average.slice(s![0, .., ..]))
    );
    assert_eq!(
        bits(both.slice(s![1, .., ..])),
        bits(most.slice(s![1, .., ..]))
    );
    assert!(bits(both.slice(s![1, .., ..])) != bits(average.slice(s![1, .., ..])));
    let unknown = coarse().with_band_resampling("scl", Resampling::Mode);
    let err = stage
        .session
        .cube(&stage.found(&["red"]), &unknown)
        .unwrap_err();
    assert_eq!(err.message(), "band `scl` is not one of red");
}

#[test]
fn a_share_is_from_0_to_1() {
    let stage = Stage::new();
    for share in [-0.1, 1.1, f64::NAN] {
        let err = stage
            .session
            .cube(
                &stage.found(&["red"]),
                &coarse(&stage).with_min_valid(share),
            )
            .unwrap_err();
        assert_eq!(
            err.message(),
            format!("the least valid share is {share}, expected 0 to 1")
        );
    }
}
