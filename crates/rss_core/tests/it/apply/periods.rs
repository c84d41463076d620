//! Reducing within months and other periods, and what is made one before a reducer sees it.

use ndarray::Array3;
use rss_core::{
    ErrorKind,
    apply::{
        Apply, ApplyOptions, Block, Expression, Grid, ImageCube, ImageCubeOptions,
        mosaic::Mosaic,
        reduce::{Geomedian, Reducer},
        time::Grouping,
    },
};
use rss_testbed::Band;

use super::{SIDE, Stage, close, ndvi, places, reflectance};

fn by(text: &str) -> Grouping {
    text.parse().unwrap()
}

fn formula() -> Expression {
    "ndvi=(nir-red)/(nir+red)".parse().unwrap()
}

#[test]
fn an_index_of_each_date_is_reduced_within_each_period() {
    let stage = Stage::new();
    let cube = stage.cube(&["red", "nir"], &ImageCubeOptions::new().reflectance());
    // 4, 9, 19 and 29 January: periods of ten days from the 4th have two, one and one.
    let monthly = |options: ApplyOptions| {
        let work = cube
            .express(&[formula()], Some(Reducer::Median), options)
            .unwrap();
        work.every(by("10d")).unwrap()
    };
    let work = monthly(ApplyOptions::new().with_block(512));
    assert_eq!(work.notes(), [] as [&str; 0]);
    let steps: Vec<_> = work.steps().unwrap().to_vec();
    let labels: Vec<&str> = steps.iter().map(|step| step.label.as_str()).collect();
    assert_eq!(labels, ["2021-01-04", "2021-01-14", "2021-01-24"]);
    assert_eq!(steps[0].items.len(), 2);
    assert_eq!(steps[1].time.to_rfc3339(), "2021-01-14T00:00:00+00:00");
    // The period, not its images, of which none is of its first day.
    let bounds = [steps[1].bounds.start, steps[1].bounds.end];
    assert_eq!(
        bounds.map(|end| end.to_rfc3339()),
        ["2021-01-14T00:00:00+00:00", "2021-01-24T00:00:00+00:00"]
    );
    let made = stage.array(work);
    assert_eq!(made.dim(), (3, SIDE as usize, SIDE as usize));
    let scenes = stage.scenes();
    for (period, of_period) in [&scenes[..2], &scenes[2..3], &scenes[3..]]
        .into_iter()
        .enumerate()
    {
        for (row, col) in places() {
            let indices = of_period.iter().map(|scene| {
                let (red, nir) = (
                    reflectance(scene, Band::Red, col, row),
                    reflectance(scene, Band::Nir, col, row),
                );
                (nir - red) / (nir + red)
            });
            let mut valid: Vec<f32> = indices.filter(|index| !index.is_nan()).collect();
            valid.sort_by(f32::total_cmp);
            let expected = match valid[..] {
                [] => f32::NAN,
                [one] => one,
                [a, b, ..] => f32::midpoint(a, b),
            };
            let got = made[(period, row as usize, col as usize)];
            close(got, expected, &format!("period {period}, {row}, {col}"));
        }
    }
    // Blocks of another size and more threads make the same bits.
    let other = Stage::with(|builder| builder.cpu_threads(4));
    let cube = other.cube(&["red", "nir"], &ImageCubeOptions::new().reflectance());
    let work = cube
        .express(
            &[formula()],
            Some(Reducer::Median),
            ApplyOptions::new().with_block(336),
        )
        .unwrap();
    let again = other.array(work.every(by("10d")).unwrap());
    let bits = |array: &Array3<f32>| array.mapv(f32::to_bits);
    assert_eq!(bits(&again), bits(&made));
}

#[test]
fn each_computation_runs_within_periods_and_names_its_bands() {
    let stage = Stage::new();
    let whole = stage.cube(&["red", "nir"], &ImageCubeOptions::new().reflectance());
    let grid = whole.grid().of_window(&"640,500,96,80".parse().unwrap());
    let options = ImageCubeOptions::new()
        .reflectance()
        .with_grid(Grid::Of(grid));
    let cube = stage.cube(&["red", "nir"], &options);
    let options = || ApplyOptions::new().with_block(64);
    type Work = fn(&ImageCube, ApplyOptions) -> Apply<f32>;
    let works: [Work; 2] = [
        |cube, options| cube.reduce(Reducer::Mean, options),
        |cube, options| cube.geomedian(Geomedian::default(), options),
    ];
    for work in works {
        // One period of all dates is what no periods are.
        let without = stage.array(work(&cube, options()));
        let month = stage.array(work(&cube, options()).every(Grouping::Month).unwrap());
        assert_eq!(month.mapv(f32::to_bits), without.mapv(f32::to_bits));
        // All periods of the first band come before those of the second; the last is a single date.
        let periods = stage.array(work(&cube, options()).every(by("10d")).unwrap());
        assert_eq!(periods.dim().0, 6);
        let last = stage.scenes()[3];
        for (row, col) in [(0, 0), (63, 64), (79, 95), (17, 80)] {
            let expected =
                [Band::Red, Band::Nir].map(|band| reflectance(last, band, 640 + col, 500 + row));
            for (layer, expected) in [2, 5].into_iter().zip(expected) {
                let got = periods[(layer, row as usize, col as usize)];
                close(got, expected, &format!("layer {layer}, {row}, {col}"));
            }
        }
    }
    // A closure without names runs in each period too.
    let counted = cube.apply(
        ApplyOptions::new().with_block(1200),
        |block: &Block<f32>| {
            let (times, _, height, width) = block.data().dim();
            Ok(Array3::from_elem((1, height, width), times as f32))
        },
    );
    let counted = stage.array(counted.every(by("10d")).unwrap());
    assert_eq!(
        [0, 1, 2].map(|period| counted[(period, 7, 7)]),
        [2.0, 1.0, 1.0]
    );
}

#[test]
fn what_is_no_period_of_time_steps_is_refused() {
    let stage = Stage::new();
    let cube = stage.cube(&["red", "nir"], &ImageCubeOptions::new());
    let err = cube
        .apply(ApplyOptions::new(), ndvi)
        .each_date(["ndvi"])
        .every(Grouping::Month)
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
    assert_eq!(
        err.message(),
        "each time step is a band: no reducer combines those of a month"
    );
    let median = |grouping: Grouping, every: Grouping| {
        let options = ImageCubeOptions::new().with_grouping(grouping);
        let cube = stage.cube(&["red"], &options);
        cube.reduce(Reducer::Median, ApplyOptions::new())
            .every(every)
    };
    let err = median(Grouping::Month, by("10d")).unwrap_err();
    assert_eq!(
        err.message(),
        "time step 2021-01 has images of two periods, 2021-01-04 and 2021-01-14: group images by less than a 10d"
    );
    let err = median(Grouping::Item, Grouping::Item).unwrap_err();
    assert_eq!(
        err.message(),
        "periods of single items: expected one such as month"
    );
    assert!(median(Grouping::Item, Grouping::SolarDay).is_ok());
}

#[test]
fn a_reducer_says_which_dates_it_does_not_see() {
    let stage = Stage::new();
    let notes = |grouping: Grouping, mosaic: Mosaic, reducer: Reducer| {
        let options = ImageCubeOptions::new()
            .with_grouping(grouping)
            .with_mosaic(mosaic);
        let cube = stage.cube(&["red", "nir"], &options);
        let of_bands = cube.reduce(reducer, ApplyOptions::new());
        let of_index = cube
            .express(&[formula()], Some(reducer), ApplyOptions::new())
            .unwrap();
        assert_eq!(of_bands.notes(), of_index.notes());
        of_bands.notes().to_vec()
    };
    assert_eq!(
        notes(Grouping::Month, Mosaic::FirstValid, Reducer::Median),
        [
            "images of several days were made one time step (by month) by the mosaic `first` before `median`, which gets \
          one image of each: to reduce all dates group by solar_day and reduce every month"
        ]
    );
    assert_eq!(
        notes(Grouping::All, Mosaic::Mean, Reducer::Std),
        [
            "images of several days were made one time step (by all) by the mosaic `mean` before `std`, which gets one \
          value of each: to reduce all dates group by solar_day"
        ]
    );
    // The first of the first is the first; and a time step of one day hides none.
    for (grouping, mosaic, reducer) in [
        (Grouping::All, Mosaic::LeastCloud, Reducer::First),
        (Grouping::Month, Mosaic::Max, Reducer::Max),
        // As `rss mosaic` does: the first of one mosaic is the mosaic.
        (Grouping::All, Mosaic::Median, Reducer::First),
        (Grouping::SolarDay, Mosaic::FirstValid, Reducer::Median),
        (by("2d"), Mosaic::FirstValid, Reducer::Median),
    ] {
        assert_eq!(notes(grouping, mosaic, reducer), [] as [&str; 0]);
    }
}

#[test]
fn a_block_takes_the_memory_of_the_largest_period() {
    let grid = {
        let stage = Stage::new();
        let cube = stage.cube(&["red"], &ImageCubeOptions::new());
        cube.grid().of_window(&"0,0,1024,1024".parse().unwrap())
    };
    // Returns the least budget, in MB, with which the index is made.
    let least = |every: &str| {
        let made = (5..20_u64).map(|number| 8 * number).find(|megabytes| {
            let stage = Stage::with(|builder| builder.budget_bytes(megabytes * 1_000_000));
            let options = ImageCubeOptions::new().with_grid(Grid::Of(grid.clone()));
            let cube = stage.cube(&["red", "nir"], &options);
            let block = ApplyOptions::new().with_block(1024);
            let work = cube
                .express(&[formula()], Some(Reducer::Min), block)
                .unwrap();
            stage
                .session
                .compute(work.every(by(every)).unwrap())
                .is_ok()
        });
        made.unwrap()
    };
    // Four dates, or two periods of two.
    let (month, halves) = (least("month"), least("18d@2020-12-25"));
    assert!(halves < month, "{halves} MB, {month} MB");
}
