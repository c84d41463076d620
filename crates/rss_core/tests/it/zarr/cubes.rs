//! Cubes: images in, the same pixels out, in their places; what does not fit is refused by name.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use chrono::{DateTime, Utc};
use futures::{StreamExt, stream};
use ndarray::{Array3, s};
use rss_core::{
    Collection, Crs, ErrorKind, GeoBox, GeoTransform, ImageQueryBuilder, Intersects, Location,
    Pixels, Raster, Resampling, Session, Size, Source, Window,
    apply::time::Grouping,
    zarr::{Arrangement, Cube, CubeImage, CubeOptions, Layout, PixelIndex, TimeBounds, Use},
};
use rss_testbed::{Band, Scenes, Service, Testbed};

pub(super) fn session() -> Session {
    Session::builder().cpu_threads(2).build().unwrap()
}

pub(super) fn place(path: &Path) -> Location {
    Location::parse(path.to_str().unwrap()).unwrap()
}

pub(super) fn day(day: u32) -> DateTime<Utc> {
    format!("2021-01-{day:02}T23:50:00.024Z").parse().unwrap()
}

/// A raster of 30 m in EPSG:32755, `right` and `down` pixels from a corner, of one value but for a nodata
/// pixel at its top left.
pub(super) fn raster(value: i16, right: u32, down: u32, width: u32, height: u32) -> Raster {
    let mut pixels = Array3::from_elem((1, height as usize, width as usize), value);
    pixels[[0, 0, 0]] = -999;
    Raster {
        pixels: Pixels::I16(pixels),
        geobox: GeoBox {
            size: Size { width, height },
            crs: Some(Crs::Epsg(32755)),
            transform: Some(GeoTransform([
                600_000.0 + f64::from(right) * 30.0,
                30.0,
                0.0,
                6_000_000.0 - f64::from(down) * 30.0,
                0.0,
                -30.0,
            ])),
        },
        nodata: Some((-999.0).into()),
        sparse: Vec::new(),
    }
}

pub(super) fn image(number: u32, raster: Raster) -> CubeImage {
    CubeImage::new(format!("scene-{number:02}"), day(number)).with_band("red", raster)
}

pub(super) fn small() -> CubeOptions {
    let block = |text: &str| text.parse().unwrap();
    let layout = Layout::new(Use::Balanced)
        .with_chunk(block("2,16,16"))
        .with_shard(block("4,32,32"));
    CubeOptions::new().with_layout(layout)
}

#[tokio::test]
async fn a_band_is_named_data_unless_an_array_of_all_bands_is() {
    let dir = tempfile::tempdir().unwrap();
    let (session, location) = (session(), place(&dir.path().join("cube")));
    let images = || {
        let image = CubeImage::new("scene", day(1)).with_band("data", raster(4, 0, 0, 20, 20));
        vec![image]
    };
    Cube::create(&session, &location, images(), &small())
        .await
        .unwrap();
    let cube = Cube::open(&session, &location).await.unwrap();
    let read = cube.read::<i16>("data", 0..1, None, 0).await.unwrap();
    assert_eq!(read[(0, 3, 4)], 4);
    let layout = small().layout.with_arrangement(Arrangement::Stacked);
    let stacked = small().with_layout(layout);
    let other = place(&dir.path().join("stacked"));
    let err = Cube::create(&session, &other, images(), &stacked)
        .await
        .unwrap_err();
    assert_eq!(
        err.message(),
        "band `data` has the name of the array that holds all bands: choose an array for each"
    );
}

#[tokio::test]
async fn images_of_one_lattice_become_one_cube() {
    let dir = tempfile::tempdir().unwrap();
    let (session, location) = (session(), place(&dir.path().join("cube")));
    // Out of order, beside each other, one with another nodata value.
    let mut odd = raster(7, 10, 20, 50, 40);
    odd.nodata = Some((-1.0).into());
    if let Pixels::I16(pixels) = &mut odd.pixels {
        pixels[[0, 3, 4]] = -1;
        pixels[[0, 0, 0]] = -1;
    }
    let images = vec![
        image(3, raster(3, 0, 0, 50, 40)),
        image(1, raster(1, 0, 0, 50, 40)),
        image(2, odd),
    ];
    let told = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&told);
    let options = small().with_progress(move |progress| listener.lock().unwrap().push(progress));
    let written = Cube::create(&session, &location, images, &options)
        .await
        .unwrap();
    assert_eq!((written.steps, written.shards, written.resumed), (3, 4, 0));
    assert_eq!(written.bytes, 3 * 60 * 60 * 2);
    let last = *told.lock().unwrap().last().unwrap();
    assert_eq!(
        (last.shards_done, last.shards, last.bytes),
        (4, 4, written.bytes)
    );

    let cube = Cube::open(&session, &location).await.unwrap();
    let (grid, bands) = (cube.grid(), cube.bands());
    assert_eq!(
        grid.size,
        Size {
            width: 60,
            height: 60
        }
    );
    assert_eq!(grid.crs, Some(Crs::Epsg(32755)));
    assert_eq!(
        grid.transform.unwrap().0,
        [600_000.0, 30.0, 0.0, 6_000_000.0, 0.0, -30.0]
    );
    assert_eq!(
        (bands[0].name.as_str(), bands[0].nodata),
        ("red", Some((-999.0).into()))
    );
    let said: Vec<_> = cube
        .steps()
        .iter()
        .map(|step| (step.time, step.items.join(",")))
        .collect();
    let expected = [1, 2, 3].map(|number| (day(number), format!("scene-{number:02}")));
    assert_eq!(said, expected);

    let all = cube.read::<i16>("red", 0..3, None, 0).await.unwrap();
    let mut truth = Array3::from_elem((3, 60, 60), -999_i16);
    truth.slice_mut(s![0, ..40, ..50]).fill(1);
    truth.slice_mut(s![1, 20.., 10..]).fill(7);
    truth.slice_mut(s![2, ..40, ..50]).fill(3);
    truth[[0, 0, 0]] = -999;
    truth[[2, 0, 0]] = -999;
    truth[[1, 23, 14]] = -999;
    truth[[1, 20, 10]] = -999;
    assert!(all == truth);
    let window = Window {
        col: 5,
        row: 30,
        width: 20,
        height: 25,
    };
    let part = cube
        .read_raster("red", 1..2, Some(window), 0)
        .await
        .unwrap();
    assert_eq!(part.geobox.transform.unwrap().0[0], 600_150.0);
    assert!(part.pixels.view::<i16>().unwrap() == truth.slice(s![1..2, 30..55, 5..25]));
    let pixels = [
        PixelIndex { col: 12, row: 25 },
        PixelIndex { col: 0, row: 1 },
    ];
    let series = cube.read_series::<i16>("red", &pixels).await.unwrap();
    assert_eq!(series, ndarray::array![[1, 7, 3], [1, -999, 3]]);
}

#[tokio::test]
async fn an_image_that_does_not_fit_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (session, location) = (session(), place(&dir.path().join("cube")));
    let other = |change: &dyn Fn(&mut Raster)| {
        let mut other = raster(2, 0, 0, 50, 40);
        change(&mut other);
        vec![image(1, raster(1, 0, 0, 50, 40)), image(2, other)]
    };
    let cases: [(Vec<CubeImage>, &str); 6] = [
        (
            other(&|raster| raster.geobox.crs = Some(Crs::Epsg(32756))),
            "image scene-02, band red: its CRS is EPSG:32756, expected EPSG:32755",
        ),
        (
            other(&|raster| raster.geobox.transform.as_mut().unwrap().0[0] += 10.0),
            "image scene-02, band red: its pixels are offset by 0.333 columns",
        ),
        (
            other(&|raster| raster.pixels = Pixels::U8(Array3::zeros((1, 40, 50)))),
            "image scene-02, band red: its samples are uint8, the cube's are int16",
        ),
        (Vec::new(), "no images to write"),
        (
            vec![CubeImage::new("a", day(1)).with_band("time", raster(1, 0, 0, 4, 4))],
            "band `time` has the name of a coordinate",
        ),
        (
            vec![CubeImage::new("a", day(1)).with_band("../red", raster(1, 0, 0, 4, 4))],
            "band `../red` cannot name an array",
        ),
    ];
    for (images, said) in cases {
        let err = Cube::create(&session, &location, images, &small())
            .await
            .unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
        assert!(err.message().contains(said), "{err}");
    }
    assert!(!dir.path().join("cube").exists(), "nothing was written");
    let err = Cube::open(&session, &location).await.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_day_is_one_date_and_its_first_image_shows() {
    let dir = tempfile::tempdir().unwrap();
    let (session, location) = (session(), place(&dir.path().join("cube")));
    let late = day(1) + Duration::from_secs(30 * 60);
    let images = vec![
        CubeImage::new("b", late).with_band("red", raster(2, 0, 20, 50, 40)),
        CubeImage::new("a", day(1)).with_band("red", raster(1, 0, 0, 50, 40)),
        CubeImage::new("c", day(3)).with_band("red", raster(3, 0, 0, 50, 40)),
    ];
    let options = small().with_grouping(Grouping::SolarDay);
    // One is of the next day in Greenwich; at 148 degrees east it is the same.
    Cube::create(&session, &location, images, &options)
        .await
        .unwrap();
    let cube = Cube::open(&session, &location).await.unwrap();
    let items: Vec<_> = cube.steps().iter().map(|step| step.items.clone()).collect();
    assert_eq!(
        items,
        [vec!["a".to_owned(), "b".to_owned()], vec!["c".to_owned()]]
    );
    let red = cube.read::<i16>("red", 0..1, None, 0).await.unwrap();
    assert_eq!(
        [red[[0, 39, 9]], red[[0, 40, 9]], red[[0, 0, 0]]],
        [1, 2, -999]
    );
    // Where the first has no data the second shows: its own top left lies under the first.
    assert_eq!(red[[0, 20, 0]], 1);
}

#[tokio::test]
async fn images_become_dates_by_day_month_or_all_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let late = day(1) + Duration::from_secs(30 * 60);
    let next_month: DateTime<Utc> = "2021-02-03T00:00:00Z".parse().unwrap();
    let images = || {
        let image = |id: &str, time: DateTime<Utc>, value: i16| {
            CubeImage::new(id, time).with_band("red", raster(value, 0, 0, 20, 20))
        };
        vec![
            image("a", day(1), 1),
            image("b", late, 2),
            image("c", day(9), 3),
            image("d", next_month, 4),
        ]
    };
    // In Greenwich the second is of the next day; by the sun it is of the same.
    for (by, expected) in [
        (Grouping::Item, &["a", "b", "c", "d"][..]),
        (Grouping::Day, &["a", "b", "c", "d"]),
        (Grouping::SolarDay, &["a,b", "c", "d"]),
        (Grouping::Month, &["a,b,c", "d"]),
        (Grouping::Season, &["a,b,c,d"]),
        (Grouping::All, &["a,b,c,d"]),
    ] {
        let location = place(&dir.path().join(by.name()));
        let options = small().with_grouping(by);
        Cube::create(&session, &location, images(), &options)
            .await
            .unwrap();
        let cube = Cube::open(&session, &location).await.unwrap();
        let items: Vec<String> = cube
            .steps()
            .iter()
            .map(|step| step.items.join(","))
            .collect();
        assert_eq!(items, expected, "{by}");
        let last = match by {
            Grouping::Item => None,
            Grouping::Day => Some(day(1)),
            Grouping::SolarDay => Some(late),
            Grouping::Month => Some(day(9)),
            _ => Some(next_month),
        };
        let bounds = last.map(|last| TimeBounds::of(day(1), last));
        assert_eq!(cube.steps()[0].bounds, bounds, "{by}");
        assert_eq!(cube.steps()[0].time, day(1));
    }
}

/// CF: the bounds of `time` are (time, 2), beside it in each level.
#[tokio::test]
async fn bounds_of_groups_grow_with_the_cube() {
    let dir = tempfile::tempdir().unwrap();
    let (session, location) = (session(), place(&dir.path().join("cube")));
    let image = |id: &str, time: &str| {
        CubeImage::new(id, time.parse().unwrap()).with_band("red", raster(1, 0, 0, 20, 20))
    };
    let options = small()
        .with_grouping(Grouping::Month)
        .with_overviews(1, None);
    let first = vec![
        image("a", "2020-12-31T02:00:00Z"),
        // By the sun this is the first of January.
        image("b", "2020-12-31T23:50:00Z"),
        image("c", "2021-01-20T23:50:00Z"),
    ];
    Cube::create(&session, &location, first, &options)
        .await
        .unwrap();
    let later = vec![image("d", "2021-03-02T00:00:00Z")];
    Cube::append(&session, &location, later, &options)
        .await
        .unwrap();
    let cube = Cube::open(&session, &location).await.unwrap();
    let shown: Vec<[String; 3]> = cube
        .steps()
        .iter()
        .map(|step| {
            let bounds = step.bounds.unwrap();
            [step.time, bounds.start, bounds.end].map(|time| time.format("%m-%dT%H").to_string())
        })
        .collect();
    assert_eq!(
        shown,
        [
            ["12-31T02", "12-31T02", "12-31T02"],
            ["12-31T23", "12-31T23", "01-20T23"],
            ["03-02T00", "03-02T00", "03-02T00"],
        ]
    );
    for level in ["0", "1"] {
        let path = |name: &str| dir.path().join("cube").join(level).join(name);
        let read = |name: &str| -> serde_json::Value {
            serde_json::from_slice(&fs::read(path(name)).unwrap()).unwrap()
        };
        assert_eq!(read("time/zarr.json")["attributes"]["bounds"], "time_bnds");
        let bounds = read("time_bnds/zarr.json");
        assert_eq!(bounds["shape"], serde_json::json!([3, 2]));
        assert_eq!(read("zarr.json")["attributes"]["coordinates"], "time_bnds");
        let chunk = fs::read(path("time_bnds/c/0/0")).unwrap();
        assert_eq!(
            chunk.len(),
            1024 * 2 * 8,
            "of a fixed length, its end unused"
        );
    }
}

/// A mean of two classes is a third one.
#[tokio::test]
async fn overviews_of_classes_hold_classes_of_the_images() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let images = |number: u32| {
        let striped = |left: i16, right: i16| {
            let mut one = raster(left, 0, 0, 40, 40);
            if let Pixels::I16(pixels) = &mut one.pixels {
                pixels.slice_mut(s![.., .., 1..;2]).fill(right);
            }
            one
        };
        vec![
            image(number, striped(2, 6))
                .with_band("scl", striped(4, 8))
                .with_classes("scl"),
        ]
    };
    for (name, resampling, red, scl) in [
        ("auto", None, 4, 4),
        ("average", Some(Resampling::Average), 4, 6),
        ("max", Some(Resampling::Max), 6, 8),
    ] {
        let location = place(&dir.path().join(name));
        let options = small().with_overviews(1, resampling);
        Cube::create(&session, &location, images(1), &options)
            .await
            .unwrap();
        // An append goes on as the cube was begun.
        Cube::append(&session, &location, images(2), &small())
            .await
            .unwrap();
        let cube = Cube::open(&session, &location).await.unwrap();
        for (band, expected) in [("red", red), ("scl", scl)] {
            let coarse = cube.read::<i16>(band, 0..2, None, 1).await.unwrap();
            assert_eq!(
                [coarse[[0, 9, 9]], coarse[[1, 9, 9]]],
                [expected; 2],
                "{name}"
            );
        }
        let said = &cube.attributes()["multiscales"]["layout"][1]["resampling_method"];
        match resampling {
            None => assert!(said.is_null()),
            Some(one) => assert_eq!(said, one.name()),
        }
    }
}

/// Where no image lies there is no data, whether or not the files have a value for it.
#[tokio::test]
async fn pixels_that_no_image_covers_are_nan_or_noted() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let plain = |down: u32, is_float: bool| {
        let mut raster = raster(5, 0, down, 50, 40);
        raster.nodata = None;
        if is_float {
            raster.pixels = Pixels::F32(Array3::from_elem((1, 40, 50), 0.5));
        }
        raster
    };
    let images = |is_float: bool| {
        vec![
            CubeImage::new("a", day(1)).with_band("red", plain(0, is_float)),
            CubeImage::new("b", day(2)).with_band("red", plain(20, is_float)),
        ]
    };
    let location = place(&dir.path().join("float"));
    let written = Cube::create(&session, &location, images(true), &small())
        .await
        .unwrap();
    assert_eq!(written.notes, [] as [&str; 0]);
    let cube = Cube::open(&session, &location).await.unwrap();
    let red = cube.read::<f32>("red", 0..2, None, 0).await.unwrap();
    assert!(red[[0, 59, 0]].is_nan() && red[[1, 0, 0]].is_nan());
    assert_eq!([red[[0, 0, 0]], red[[1, 59, 0]]], [0.5; 2]);
    let location = place(&dir.path().join("integer"));
    let written = Cube::create(&session, &location, images(false), &small())
        .await
        .unwrap();
    assert!(
        written.notes[0].contains("band red has no nodata value"),
        "{written:?}"
    );
}

/// A valid sample that has the nodata value of the cube would be missing: it is an error, whichever way the value came.
#[tokio::test]
async fn a_valid_sample_that_would_be_missing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let of = |value: i16, nodata: Option<i16>| {
        let mut one = raster(value, 0, 0, 20, 20);
        if let Pixels::I16(pixels) = &mut one.pixels {
            pixels[[0, 0, 0]] = nodata.unwrap_or(value);
        }
        one.nodata = nodata.map(Into::into);
        one
    };
    let float = |value: f32, nodata: f32| {
        let mut one = of(0, None);
        one.pixels = Pixels::F32(Array3::from_elem((1, 20, 20), value));
        one.nodata = Some(nodata.into());
        one
    };
    let refused = async |name: &str, rasters: [Raster; 2], options: &CubeOptions, said: &str| {
        let [first, second] = rasters;
        let location = place(&dir.path().join(name));
        let both = vec![image(1, first.clone()), image(2, second.clone())];
        let err = Cube::create(&session, &location, both, options).await;
        let err = err.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput, "{name}");
        assert!(err.message().contains(said), "{name}: {err}");
        // An append is no way around it, unless the first alone is refused already.
        let location = place(&dir.path().join(format!("{name}-append")));
        if Cube::create(&session, &location, vec![image(1, first)], options)
            .await
            .is_ok()
        {
            let added = vec![image(2, second)];
            let err = Cube::append(&session, &location, added, &small()).await;
            assert!(err.unwrap_err().message().contains(said), "{name}");
            let cube = Cube::open(&session, &location).await.unwrap();
            assert_eq!(cube.steps().len(), 1, "{name}: the cube is as it was");
        }
    };
    let said = "image scene-02, band red: its nodata value is -1, and it has valid samples of -999";
    refused(
        "other",
        [of(5, Some(-999)), of(-999, Some(-1))],
        &small(),
        said,
    )
    .await;
    let said = "scene-02, band red: it states no nodata value, and it has valid samples of -999";
    refused(
        "unstated",
        [of(5, Some(-999)), of(-999, None)],
        &small(),
        said,
    )
    .await;
    let chosen = small().with_nodata(7);
    let said = "its nodata value is -999, and it has valid samples of 7";
    refused(
        "chosen",
        [of(5, Some(-999)), of(7, Some(-999))],
        &chosen,
        said,
    )
    .await;
    let said = "its nodata value is NaN, and it has valid samples of -9999";
    refused(
        "float",
        [float(1.0, -9999.0), float(-9999.0, f32::NAN)],
        &small(),
        said,
    )
    .await;
    // In a time step of several images and bands, where pixels are whole.
    let several =
        |number: u32, raster: Raster| image(number, raster).with_band("nir", of(4, Some(-999)));
    let both = vec![
        several(1, of(-999, Some(-999))),
        several(2, of(-999, Some(-1))),
    ];
    let location = place(&dir.path().join("several"));
    let by_month = small().with_grouping(Grouping::Month);
    let err = Cube::create(&session, &location, both, &by_month).await;
    assert!(err.unwrap_err().message().contains("valid samples of -999"));
    // What the user says of files that state nothing is no change; nor is a value that no image has.
    for (name, raster, options) in [
        ("said", of(7, None), small().with_nodata(7)),
        ("apart", of(7, Some(-1)), small().with_nodata(-2)),
    ] {
        let location = place(&dir.path().join(name));
        Cube::create(&session, &location, vec![image(1, raster)], &options)
            .await
            .unwrap();
    }
}

/// Zero is a value like another where the files state no nodata.
#[tokio::test]
async fn without_nodata_every_pixel_of_the_first_image_shows() {
    let dir = tempfile::tempdir().unwrap();
    let (session, location) = (session(), place(&dir.path().join("cube")));
    let plain = |value: i16, down: u32| {
        let mut raster = raster(value, 0, down, 50, 40);
        raster.nodata = None;
        raster
    };
    let late = day(1) + Duration::from_secs(60);
    let images = vec![
        CubeImage::new("a", day(1)).with_band("red", plain(0, 0)),
        CubeImage::new("b", late).with_band("red", plain(5, 20)),
    ];
    let options = small().with_grouping(Grouping::SolarDay);
    Cube::create(&session, &location, images, &options)
        .await
        .unwrap();
    let cube = Cube::open(&session, &location).await.unwrap();
    assert_eq!(cube.bands()[0].nodata, None);
    let red = cube.read::<i16>("red", 0..1, None, 0).await.unwrap();
    let shown = [
        red[[0, 0, 0]],
        red[[0, 39, 9]],
        red[[0, 40, 9]],
        red[[0, 59, 49]],
    ];
    assert_eq!(shown, [-999, 0, 5, 5]);
}

#[tokio::test]
async fn bands_are_those_of_all_images_and_an_append_adds_none() {
    let dir = tempfile::tempdir().unwrap();
    let (session, location) = (session(), place(&dir.path().join("cube")));
    let images = vec![
        image(1, raster(1, 0, 0, 50, 40)),
        image(2, raster(2, 0, 0, 50, 40)).with_band("nir", raster(7, 0, 0, 50, 40)),
    ];
    Cube::create(&session, &location, images, &small())
        .await
        .unwrap();
    let cube = Cube::open(&session, &location).await.unwrap();
    let names: Vec<&str> = cube.bands().iter().map(|band| band.name.as_str()).collect();
    assert_eq!(names, ["red", "nir"]);
    let pixel = [PixelIndex { col: 9, row: 9 }];
    let nir = cube.read_series::<i16>("nir", &pixel).await.unwrap();
    assert_eq!(nir, ndarray::array![[-999, 7]]);
    let other = vec![image(3, raster(3, 0, 0, 50, 40)).with_band("blue", raster(1, 0, 0, 50, 40))];
    let err = Cube::append(&session, &location, other, &small())
        .await
        .unwrap_err();
    let said = "image scene-03 has a band `blue`, the cube has red, nir";
    assert!(err.message().contains(said), "{err}");
}

#[tokio::test]
async fn dates_are_added_and_what_was_there_stays() {
    for layout in [Arrangement::Bands, Arrangement::Stacked] {
        let dir = tempfile::tempdir().unwrap();
        let (session, location) = (session(), place(&dir.path().join("cube")));
        let options = small().with_overviews(2, Resampling::Average);
        let options = CubeOptions::new()
            .with_overviews(2, Resampling::Average)
            .with_layout(options.layout.with_arrangement(layout));
        let images = |numbers: std::ops::RangeInclusive<u32>| {
            numbers
                .map(|number| {
                    let value = i16::try_from(number).unwrap();
                    image(number, raster(value, 0, 0, 50, 40))
                        .with_band("nir", raster(value + 100, 0, 0, 50, 40))
                })
                .collect::<Vec<_>>()
        };
        Cube::create(&session, &location, images(1..=3), &options)
            .await
            .unwrap();
        let before = Cube::open(&session, &location).await.unwrap();
        let written = Cube::append(&session, &location, images(3..=9), &options)
            .await
            .unwrap();
        assert_eq!((written.steps, written.known), (6, 1));
        let again = Cube::append(&session, &location, images(3..=9), &options)
            .await
            .unwrap();
        assert_eq!((again.steps, again.known, again.shards), (0, 7, 0));
        let cube = Cube::open(&session, &location).await.unwrap();
        assert_eq!((before.steps().len(), cube.steps().len()), (3, 9));
        for (band, add) in [("red", 0), ("nir", 100)] {
            let pixels = [PixelIndex { col: 49, row: 39 }];
            let series = cube.read_series::<i16>(band, &pixels).await.unwrap();
            assert!(
                series
                    .iter()
                    .copied()
                    .eq((1..=9).map(|number| number + add))
            );
            // A reader of before sees what it saw.
            let old = before.read::<i16>(band, 0..3, None, 0).await.unwrap();
            assert!(old == cube.read::<i16>(band, 0..3, None, 0).await.unwrap());
            let coarse = cube.read::<i16>(band, 0..9, None, 2).await.unwrap();
            assert_eq!(coarse.dim(), (9, 10, 13));
            assert_eq!(coarse[[8, 0, 0]], 9 + add);
        }
        let err = Cube::append(
            &session,
            &location,
            vec![image(30, raster(1, 0, 0, 50, 40))],
            &options,
        )
        .await
        .map(|_| ());
        // An image may lack a band.
        assert!(err.is_ok(), "{err:?}");
        let early = CubeImage::new("early", day(2)).with_band("red", raster(1, 0, 0, 50, 40));
        let err = Cube::append(&session, &location, vec![early], &options)
            .await
            .unwrap_err();
        assert!(
            err.message()
                .contains("image early of 2021-01-02 23:50:00.024 UTC is not after"),
            "{err}"
        );
        let err = Cube::create(&session, &location, images(1..=1), &options)
            .await
            .unwrap_err();
        assert!(
            err.message()
                .contains("append to it, or choose another location"),
            "{err}"
        );
    }
}

/// Every file of a folder, with its bytes.
pub(super) fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path
                    .strip_prefix(folder)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                found.push((name, fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn a_write_that_stops_goes_on_and_ends_with_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let images = |numbers: std::ops::RangeInclusive<u32>| {
        let raster = |number: u32| raster(i16::try_from(number).unwrap(), 0, 0, 90, 70);
        numbers
            .map(|number| image(number, raster(number)))
            .collect::<Vec<_>>()
    };
    let options = || small().with_overviews(1, Resampling::Nearest);
    let whole = place(&dir.path().join("whole"));
    let session = session();
    Cube::create(&session, &whole, images(1..=6), &options())
        .await
        .unwrap();
    Cube::append(&session, &whole, images(7..=9), &options())
        .await
        .unwrap();
    let torn = place(&dir.path().join("torn"));
    for (append, numbers) in [(false, 1..=6), (true, 7..=9)] {
        let mut resumed = 0;
        for stop in [1, 3, 8, 14, u64::MAX] {
            // The future is dropped after some shards: what is under way is lost.
            let (enough, stopped) = tokio::sync::watch::channel(false);
            let options = options().with_progress(move |progress| {
                if progress.shards_done >= stop {
                    let _ = enough.send(true);
                }
            });
            let images = images(numbers.clone());
            let write = async {
                match append {
                    false => Cube::create(&session, &torn, images, &options).await,
                    true => Cube::append(&session, &torn, images, &options).await,
                }
            };
            let mut stopped = stopped;
            tokio::select! {
                biased;
                _ = stopped.wait_for(|enough| *enough) => {
                    let seen = Cube::open(&session, &torn).await;
                    match append {
                        false => assert_eq!(seen.unwrap_err().kind(), ErrorKind::NotFound),
                        true => assert_eq!(seen.unwrap().steps().len(), 6),
                    }
                }
                written = write => resumed = written.unwrap().resumed,
            }
        }
        assert!(resumed > 0);
    }
    assert!(contents(&dir.path().join("torn")) == contents(&dir.path().join("whole")));
}

#[tokio::test]
async fn a_stopped_write_is_not_gone_on_with_by_other_images() {
    let dir = tempfile::tempdir().unwrap();
    let (session, location) = (session(), place(&dir.path().join("cube")));
    let images = |value| vec![image(1, raster(value, 0, 0, 90, 70))];
    {
        let (enough, mut stopped) = tokio::sync::watch::channel(false);
        let options = small().with_progress(move |progress| {
            let _ = enough.send(progress.shards_done > 0);
        });
        tokio::select! {
            biased;
            _ = stopped.wait_for(|enough| *enough) => {}
            _ = Cube::create(&session, &location, images(1), &options) => {}
        }
    }
    let other = vec![image(2, raster(1, 0, 0, 90, 70))];
    let err = Cube::create(&session, &location, other, &small())
        .await
        .unwrap_err();
    assert!(
        err.message()
            .contains("an interrupted write of other images"),
        "{err}"
    );
    Cube::create(&session, &location, images(1), &small())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_choice_that_cannot_be_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let location = place(&dir.path().join("cube"));
    let tight = Session::builder().budget_bytes(2_000).build().unwrap();
    let images = vec![image(1, raster(1, 0, 0, 90, 70))];
    let err = Cube::create(&tight, &location, images.clone(), &small())
        .await
        .unwrap_err();
    assert!(err.message().contains("more than the budget"), "{err}");
    let options = small().with_nodata(70_000.0);
    let err = Cube::create(&session(), &location, images.clone(), &options)
        .await
        .unwrap_err();
    let expected = "nodata 70000 is not a value of int16";
    assert!(err.message().contains(expected), "{err}");
    let options = small().with_overviews(9, Resampling::Average);
    let err = Cube::create(&session(), &location, images, &options)
        .await
        .unwrap_err();
    assert!(
        err.message().contains("overview 8 of a single pixel"),
        "{err}"
    );
    assert!(!dir.path().join("cube").exists());
}

#[tokio::test]
async fn a_query_becomes_a_cube() {
    let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
    let session = Session::builder()
        .s3_endpoint(&bed.s3_endpoint())
        .build()
        .unwrap();
    let source = Source::api(&bed.stac_url()).unwrap().like(&rss_core::DEA);
    let found = ImageQueryBuilder::new(source, Collection::Sentinel2, Intersects::scene("56jns"))
        .session(session.clone())
        .canonical_bands(["red", "nir"])
        .start_date(rss_core::date(2021, 1, 1))
        .end_date(rss_core::date(2021, 2, 1))
        .cloudcover((rss_core::Cmp::Less, 30))
        .build()
        .unwrap()
        .search_async()
        .await
        .unwrap();
    let images = CubeImage::of(&found).unwrap();
    assert_eq!(images.len(), 4);
    let dir = tempfile::tempdir().unwrap();
    let location = place(&dir.path().join("cube"));
    Cube::create(&session, &location, images, &CubeOptions::new())
        .await
        .unwrap();
    let cube = Cube::open(&session, &location).await.unwrap();
    let names: Vec<&str> = cube.bands().iter().map(|band| band.name.as_str()).collect();
    assert_eq!(names, ["nbart_red", "nbart_nir_1"]);
    for (number, step) in cube.steps().iter().enumerate() {
        let scene = bed
            .scenes()
            .iter()
            .find(|scene| step.items == [scene.id.clone()])
            .unwrap();
        let size = cube.grid().size;
        let truth = scene.window(Band::Red, 0, 0, size.width, size.height);
        let red = cube
            .read::<i16>("nbart_red", number..number + 1, None, 0)
            .await
            .unwrap();
        assert!(red.iter().eq(&truth), "{}", scene.id);
    }
}

#[tokio::test]
async fn a_cube_in_a_bucket_costs_two_requests_a_cutout_and_one_when_it_is_open() {
    let bed = Testbed::builder().start().unwrap();
    let session = || {
        let builder = Session::builder().s3_endpoint(&bed.s3_endpoint());
        builder.retries(0).build().unwrap()
    };
    bed.put("cubes", "here", "a bucket");
    let location = Location::parse("s3://cubes/some/cube.zarr").unwrap();
    let images: Vec<CubeImage> = (1..=6)
        .map(|number| image(number, raster(i16::try_from(number).unwrap(), 0, 0, 90, 70)))
        .collect();
    let (first, later) = images.split_at(4);
    let written = Cube::create(&session(), &location, first.to_vec(), &small())
        .await
        .unwrap();
    let puts = |key: &str| {
        let log = bed.requests(Service::S3).into_iter();
        log.filter(|request| request.method == "PUT" && request.path.contains(key))
            .count()
    };
    // Each shard once, whole.
    assert_eq!((written.shards, puts("/red/c/")), (9, 9));
    Cube::append(&session(), &location, later.to_vec(), &small())
        .await
        .unwrap();

    let session = session();
    let cube = Cube::open(&session, &location).await.unwrap();
    assert_eq!(cube.steps().len(), 6);
    let array = cube.array(0, "red").unwrap();
    let requests = || bed.requests(Service::S3).len();
    bed.clear_log();
    // Inside of one chunk.
    let read = array.read::<i16>(&[0..2, 3..10, 3..10]).await.unwrap();
    assert!(read.iter().take(49).all(|&sample| sample == 1));
    assert_eq!(requests(), 2, "the shard's index, and the chunk");
    bed.clear_log();
    array.read::<i16>(&[2..4, 17..20, 17..20]).await.unwrap();
    assert_eq!(requests(), 1, "another chunk of a shard that is known");
    bed.clear_log();
    let all = array.read::<i16>(&[0..4, 0..32, 0..32]).await.unwrap();
    assert_eq!(all.len(), 4 * 32 * 32);
    assert_eq!(requests(), 1, "neighbouring chunks come together");
    // What is not there is asked for once, and is the fill value.
    let err = Cube::open(&session, &Location::parse("s3://cubes/none").unwrap())
        .await
        .unwrap_err();
    assert_eq!(err.kind(), ErrorKind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_of_an_array_that_nobody_polls_keep_no_share_from_others() {
    let bed = Testbed::builder().start().unwrap();
    bed.put("cubes", "here", "a bucket");
    let session = Session::builder()
        .s3_endpoint(&bed.s3_endpoint())
        .cpu_threads(1)
        .requests_per_host(1)
        .budget_bytes(1)
        .build()
        .unwrap();
    let location = Location::parse("s3://cubes/cube.zarr").unwrap();
    let images: Vec<CubeImage> = (1..=4)
        .map(|number| image(number, raster(i16::try_from(number).unwrap(), 0, 0, 90, 70)))
        .collect();
    let writer = Session::builder().s3_endpoint(&bed.s3_endpoint());
    Cube::create(&writer.build().unwrap(), &location, images, &small())
        .await
        .unwrap();
    let cube = Cube::open(&session, &location).await.unwrap();
    let array = cube.array(0, "red").unwrap();
    let read = || array.read::<i16>(&[0..4, 0..70, 0..90]);
    // The reads of the buffer are begun, and left alone while another one runs.
    let in_turns = async {
        let mut begun = std::pin::pin!(stream::iter(0..3).map(|_| read()).buffered(3));
        let mut done = 0;
        while let Some(one) = begun.next().await {
            assert_eq!(one.unwrap(), read().await.unwrap());
            done += 1;
        }
        done
    };
    let done = tokio::time::timeout(Duration::from_secs(60), in_turns).await;
    // An error: they wait for ever.
    assert_eq!(done.unwrap(), 3);
}

/// An append replaces the last shard of dates: a reader that knows the old one notices, and reads the new.
#[tokio::test]
async fn a_shard_that_is_replaced_under_a_reader_is_read_anew() {
    let bed = Testbed::builder().start().unwrap();
    bed.put("cubes", "here", "a bucket");
    let session = Session::builder()
        .s3_endpoint(&bed.s3_endpoint())
        .build()
        .unwrap();
    let location = Location::parse("s3://cubes/cube.zarr").unwrap();
    let images: Vec<CubeImage> = (1..=4)
        .map(|number| image(number, raster(i16::try_from(number).unwrap(), 0, 0, 30, 30)))
        .collect();
    let (first, later) = images.split_at(3);
    Cube::create(&session, &location, first.to_vec(), &small())
        .await
        .unwrap();
    let old = Cube::open(&session, &location).await.unwrap();
    let pixel = [PixelIndex { col: 9, row: 9 }];
    assert_eq!(
        old.read_series::<i16>("red", &pixel).await.unwrap(),
        ndarray::array![[1, 2, 3]]
    );
    Cube::append(&session, &location, later.to_vec(), &small())
        .await
        .unwrap();
    assert_eq!(
        old.read_series::<i16>("red", &pixel).await.unwrap(),
        ndarray::array![[1, 2, 3]]
    );
    let new = Cube::open(&session, &location).await.unwrap();
    assert_eq!(
        new.read_series::<i16>("red", &pixel).await.unwrap(),
        ndarray::array![[1, 2, 3, 4]]
    );
}

/// 2^53 + 1 has no `f64`: as one it would be 2^53, a valid sample.
#[tokio::test]
async fn nodata_of_64_bits_is_an_integer_from_the_file_to_the_cube() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let valid = 1_i64 << 53;
    for nodata in [valid + 1, i64::MAX, i64::MIN] {
        let mut wide = raster(0, 0, 0, 40, 40);
        let mut samples = Array3::from_elem((1, 40, 40), valid);
        samples[[0, 1, 2]] = nodata;
        wide.pixels = Pixels::I64(samples.clone());
        wide.nodata = Some(nodata.into());
        let file = dir.path().join(format!("{nodata}.tif"));
        wide.save(&file).unwrap();
        let location = place(&dir.path().join(format!("{nodata}.zarr")));
        let image = CubeImage::new("a", day(1)).with_band("red", place(&file));
        Cube::create(&session, &location, vec![image], &small())
            .await
            .unwrap();
        let cube = Cube::open(&session, &location).await.unwrap();
        assert_eq!(cube.bands()[0].nodata, Some(nodata.into()));
        let array = cube.array(0, "red").unwrap();
        assert_eq!(array.fill(), rss_core::Number::from(nodata));
        let document = fs::read_to_string(dir.path().join(format!("{nodata}.zarr/red/zarr.json")));
        let document: serde_json::Value = serde_json::from_str(&document.unwrap()).unwrap();
        assert_eq!(document["fill_value"].as_i64(), Some(nodata));
        assert_eq!(document["attributes"]["_FillValue"].as_i64(), Some(nodata));
        let all = cube.read::<i64>("red", 0..1, None, 0).await.unwrap();
        assert_eq!(all, samples);
    }
}
