//! Cubes and results of `apply`, on any grid, kept as Zarr: what is stored is what their blocks say.

use std::{fs, path::Path};

use ndarray::{Array3, Array4, Axis, s};
use rss_core::{
    Collection, Crs, DataType, ErrorKind, GeoBox, GeoTransform, ImageQueryBuilder, Intersects,
    Location, Pixels, QueryResult, Raster, Resampling, Scaling, Session, SessionBuilder, Size,
    Source, Trust, Window,
    apply::{
        self, ApplyOptions, Block, BlockSample, Grid, OnFailure, mosaic::Mosaic, reduce::Reducer,
        time::Grouping,
    },
    mask::Cleanup,
    zarr::{Arrangement, Cube, CubeImage, CubeOptions, Images, Layout, Use, Written},
};
use rss_testbed::{Band, Fault, Rule, Scene, Scenes, Service, Testbed};
use serde_json::json;

use super::{
    cubes::{contents, place, session},
    writers::ended,
};

/// Small chunks, several shards.
fn small() -> CubeOptions {
    CubeOptions::new().with_layout(layout("2,16,16", "2,64,64"))
}

fn layout(chunk: &str, shard: &str) -> Layout {
    Layout::new(Use::Balanced)
        .with_chunk(chunk.parse().unwrap())
        .with_shard(shard.parse().unwrap())
}

/// Images of two days on both sides of the boundary of UTM zones 55 and 56, by files in a folder.
fn two_zones(session: &Session, dir: &Path) -> QueryResult {
    // About 150 degrees east, 33 degrees south, in either zone.
    let zones = [
        (32755, 779_000.0, 6_345_000.0),
        (32756, 219_500.0, 6_345_000.0),
    ];
    let mut features = Vec::new();
    for day in [3, 8] {
        for (zone, (code, x, y)) in zones.into_iter().enumerate() {
            let shape = (1, 70, 80);
            let pixels = Array3::from_shape_fn(shape, |(_, row, col)| {
                let value = day * 1000 + zone * 300 + row * 3 + (col * col) % 97;
                match (row * 7 + col * 5) % 31 {
                    0 => -999,
                    _ => i16::try_from(value).unwrap(),
                }
            });
            let raster = Raster {
                pixels: Pixels::I16(pixels),
                geobox: GeoBox {
                    size: Size {
                        width: 80,
                        height: 70,
                    },
                    crs: Some(Crs::Epsg(code)),
                    transform: Some(GeoTransform([x, 30.0, 0.0, y, 0.0, -30.0])),
                },
                nodata: Some((-999.0).into()),
                sparse: Vec::new(),
            };
            let id = format!("day-{day}-zone-{code}");
            let path = dir.join(format!("{id}.tif"));
            raster.save(&path).unwrap();
            let west = [149.98, 150.0][zone];
            features.push(json!({
                "type": "Feature", "stac_version": "1.1.0", "id": id, "geometry": null, "links": [],
                "bbox": [west, -33.05, west + 0.02, -33.0],
                "properties": {"datetime": format!("2021-01-{day:02}T00:0{zone}:00.5Z")},
                "assets": {
                    "red": {"href": path.to_str().unwrap(),
                        "raster:bands": [{"nodata": -999, "scale": 0.0001, "offset": -0.1}]},
                },
            }));
        }
    }
    let items = json!({"type": "FeatureCollection", "features": features}).to_string();
    QueryResult::from_json(session, items.as_bytes(), Trust::User).unwrap()
}

/// What the items of [`two_zones`] state of their samples.
const STATED: Scaling = Scaling {
    scale: 0.0001,
    offset: -0.1,
};

fn albers() -> apply::ImageCubeOptions {
    apply::ImageCubeOptions::new()
        .with_grid(Grid::Projected(Crs::Epsg(3577), 25.0.into()))
        .with_resampling(Resampling::Bilinear)
}

async fn block<T: BlockSample>(cube: &apply::ImageCube) -> Array4<T> {
    let (block, missing_inputs) = cube
        .read::<T>(Window::whole(cube.grid().size))
        .await
        .unwrap();
    assert_eq!(missing_inputs, []);
    block.data().to_owned()
}

fn same(a: f32, b: f32) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}

#[tokio::test]
async fn a_cube_over_two_zones_is_what_its_blocks_say() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let found = two_zones(&session, dir.path());
    let cube = apply::ImageCube::of(&found, &albers()).await.unwrap();
    let truth = block::<i16>(&cube).await;
    // Both zones are there, and in between.
    assert!(truth.iter().any(|&sample| sample == -999));
    for (day, zone) in [(3000, 0), (3000, 300), (8000, 0), (8000, 300)] {
        let near = |&&sample: &&i16| (i32::from(sample) - day - zone - 150).abs() < 100;
        assert!(truth.iter().filter(near).count() > 500, "{day} {zone}");
    }
    for arrangement in [Arrangement::Bands, Arrangement::Stacked] {
        let location = place(&dir.path().join(format!("{arrangement:?}")));
        let options = small().with_overviews(1, Resampling::Nearest);
        let layout = options.layout.with_arrangement(arrangement);
        let options = options.with_layout(layout);
        let written = cube.zarr(&location, &options).await.unwrap();
        assert_eq!((written.steps, written.resumed), (2, 0));
        assert_eq!(written.missing_inputs, []);
        let stored = Cube::open(&session, &location).await.unwrap();
        assert_eq!(stored.grid(), cube.grid());
        let band = &stored.bands()[0];
        assert_eq!((band.name.as_str(), band.dtype), ("red", DataType::I16));
        assert_eq!(
            (band.nodata, band.scale),
            (Some((-999.0).into()), Some(STATED.scale))
        );
        for (step, expected) in stored.steps().iter().zip(cube.steps()) {
            assert_eq!((step.time, &step.items), (expected.time, &expected.items));
            assert_eq!(step.items.len(), 2);
        }
        let red = stored.read::<i16>("red", 0..2, None, 0).await.unwrap();
        assert!(red == truth.index_axis(Axis(1), 0));
        let coarse = stored.read::<i16>("red", 0..2, None, 1).await.unwrap();
        assert!(coarse == red.slice(s![.., ..;2, ..;2]));
        // The same again has nothing to do.
        let again = cube.zarr(&location, &options).await.unwrap();
        assert_eq!((again.steps, again.known, again.shards), (0, 4, 0));
    }
}

#[tokio::test]
async fn scaled_values_are_floats_and_what_is_missing_is_nan_or_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let found = two_zones(&session, dir.path());
    let cube = apply::ImageCube::of(&found, &albers().reflectance())
        .await
        .unwrap();
    let truth = block::<f32>(&cube).await;
    let location = place(&dir.path().join("nan"));
    cube.zarr(&location, &small()).await.unwrap();
    let stored = Cube::open(&session, &location).await.unwrap();
    let band = &stored.bands()[0];
    assert_eq!((band.dtype, band.scale), (DataType::F32, None));
    assert!(band.nodata.is_some_and(rss_core::Number::is_nan));
    let red = stored.read::<f32>("red", 0..2, None, 0).await.unwrap();
    assert!(red.iter().any(|sample| sample.is_nan()));
    assert!(red.iter().zip(truth.iter()).all(|(&a, &b)| same(a, b)));
    // 3150 of the first day, scaled.
    assert!(red.iter().any(|&sample| (sample - 0.215).abs() < 1e-3));

    let location = place(&dir.path().join("chosen"));
    cube.zarr(&location, &small().with_nodata(-9999.0))
        .await
        .unwrap();
    let stored = Cube::open(&session, &location).await.unwrap();
    assert_eq!(stored.bands()[0].nodata, Some((-9999.0).into()));
    let chosen = stored.read::<f32>("red", 0..2, None, 0).await.unwrap();
    for (&chosen, &truth) in chosen.iter().zip(truth.iter()) {
        let expected = if truth.is_nan() { -9999.0 } else { truth };
        assert_eq!(chosen, expected);
    }
}

/// A sample that has the nodata value of the cube would be missing.
#[tokio::test]
async fn a_computed_sample_that_would_be_missing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let found = two_zones(&session, dir.path());
    let cube = apply::ImageCube::of(&found, &albers().reflectance())
        .await
        .unwrap();
    let truth = block::<f32>(&cube).await;
    let some = *truth.iter().find(|sample| !sample.is_nan()).unwrap();
    let said = "which would be missing with that nodata value";
    let options = small().with_nodata(some);
    let err = cube.zarr(&place(&dir.path().join("cube")), &options).await;
    let err = err.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
    assert!(err.message().contains(said), "{err}");
    // Of a result too.
    let options = ApplyOptions::new().with_names(["red"]);
    let work = cube.apply(options, |block: &Block<f32>| {
        let data = block.data();
        let first = data.index_axis(Axis(0), 0);
        Ok(first.mapv(|sample| if sample.is_nan() { sample } else { 1.0 }))
    });
    let of_result = small().with_nodata(1);
    let err = work
        .zarr(&place(&dir.path().join("result")), &of_result)
        .await
        .unwrap_err();
    assert!(err.message().contains(said), "{err}");
    // A file that states no nodata value, among others that state one.
    let one = &found.items().items[1];
    let path = Location::parse(&one.assets["red"].href).unwrap();
    let path = path.as_local().unwrap();
    let reader = rss_core::reader::open(&session, &place(path), rss_core::Backend::Cog)
        .await
        .unwrap();
    let request = rss_core::ReadRequest::new();
    let mut raster = reader.read(&request).await.unwrap();
    raster.nodata = None;
    fs::remove_file(path).unwrap();
    raster.save(path).unwrap();
    let items = serde_json::to_string(found.items()).unwrap();
    let items = items
        .replace("\"nodata\":-999,", "")
        .replace("\"nodata\":-999.0,", "");
    let found = QueryResult::from_json(&session, items.as_bytes(), Trust::User).unwrap();
    let options = albers().with_resampling(Resampling::Nearest);
    let cube = apply::ImageCube::of(&found, &options).await.unwrap();
    let err = cube
        .zarr(&place(&dir.path().join("stated")), &small())
        .await;
    let err = err.unwrap_err();
    assert!(err.message().contains("states no nodata value"), "{err}");
    let written = cube
        .zarr(&place(&dir.path().join("raw")), &small().with_nodata(-999))
        .await;
    assert_eq!(written.unwrap().steps, 2, "the user says so of all files");
}

/// A median of integers need not be one: raw samples become floats, and what keeps their type keeps it.
#[tokio::test]
async fn raw_medians_means_and_counts_are_floats() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let found = two_zones(&session, dir.path());
    for (mosaic, dtype) in [
        (Mosaic::Median, DataType::F32),
        (Mosaic::Mean, DataType::F32),
        (Mosaic::Count, DataType::F32),
        (Mosaic::Max, DataType::I16),
    ] {
        let options = albers().with_grouping(Grouping::All).with_mosaic(mosaic);
        let cube = apply::ImageCube::of(&found, &options).await.unwrap();
        let location = place(&dir.path().join(mosaic.name()));
        cube.zarr(&location, &small()).await.unwrap();
        let stored = Cube::open(&session, &location).await.unwrap();
        let band = &stored.bands()[0];
        assert_eq!(band.dtype, dtype, "{mosaic}");
        if dtype == DataType::I16 {
            assert_eq!(band.nodata, Some((-999.0).into()));
            continue;
        }
        assert!(band.nodata.unwrap().is_nan());
        let samples = stored.read::<f32>("red", 0..1, None, 0).await.unwrap();
        let truth = block::<f32>(&cube).await;
        let truth = truth.index_axis(Axis(1), 0);
        assert!(
            samples.iter().zip(&truth).all(|(&a, &b)| same(a, b)),
            "{mosaic}"
        );
        assert!(samples.iter().any(|value| value.fract() != 0.0) == (mosaic != Mosaic::Count));
    }
}

#[tokio::test]
async fn a_computed_write_that_stops_goes_on_and_ends_with_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let found = two_zones(&session, dir.path());
    let cube = apply::ImageCube::of(&found, &albers().reflectance())
        .await
        .unwrap();
    let options = || small().with_overviews(1, Resampling::Average);
    let (whole, torn) = (dir.path().join("whole"), dir.path().join("torn"));
    cube.zarr(place(&whole), &options()).await.unwrap();
    let stop = async |cube: &apply::ImageCube, stop: u64| {
        let (enough, mut stopped) = tokio::sync::watch::channel(false);
        let options = options().with_progress(move |progress| {
            if progress.shards_done >= stop {
                let _ = enough.send(true);
            }
        });
        tokio::select! {
            biased;
            _ = stopped.wait_for(|enough| *enough) => None,
            written = cube.zarr(place(&torn), &options) => Some(written.unwrap()),
        }
    };
    for moment in [1, 3] {
        assert_eq!(stop(&cube, moment).await, None);
        let err = Cube::open(&session, place(&torn)).await.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::NotFound);
    }
    // Samples that are made in another way are not mixed with these.
    let other = albers().reflectance().with_resampling(Resampling::Cubic);
    let other = apply::ImageCube::of(&found, &other).await.unwrap();
    let err = other.zarr(place(&torn), &options()).await.unwrap_err();
    assert!(
        err.message()
            .contains("an interrupted write of other images or options"),
        "{err}"
    );
    let written = stop(&cube, u64::MAX).await.unwrap();
    assert!(written.resumed >= 3, "{written:?}");
    assert!(contents(&torn) == contents(&whole));
    // Nor is a cube that is whole taken for one of them.
    let err = other.zarr(place(&torn), &options()).await.unwrap_err();
    assert!(
        err.message().contains("a group or array exists already"),
        "{err}"
    );
}

/// What is computed of all dates is made anew as a whole, what is computed of each only where its file was replaced; and
/// so is what a file of another name has given.
#[tokio::test]
async fn computed_shards_of_a_file_that_was_replaced_are_made_anew() {
    for (is_result, is_renamed) in [(false, false), (true, false), (false, true)] {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let session = session();
        let found = two_zones(&session, dir.path());
        let options = || CubeOptions::new().with_layout(layout("1,16,16", "1,64,64"));
        let images = async |found: &QueryResult| -> Images {
            let cube = apply::ImageCube::of(found, &albers()).await.unwrap();
            let red = |block: &Block<f32>| Ok(block.band("red")?.to_owned());
            match is_result {
                true => cube
                    .apply(ApplyOptions::new(), red)
                    .each_date(["red"])
                    .into(),
                false => cube.into(),
            }
        };
        let (torn, whole) = (dir.path().join("torn"), dir.path().join("whole"));
        let (enough, mut stop) = tokio::sync::watch::channel(false);
        let until = options().with_progress(move |progress| {
            if progress.shards_done >= progress.shards * 3 / 4 {
                let _ = enough.send(true);
            }
        });
        let first = images(&found).await;
        tokio::select! {
            biased;
            _ = stop.wait_for(|enough| *enough) => {}
            written = Cube::create(&session, place(&torn), first, &until) => panic!("{written:?}"),
        }
        ended(&torn).await;
        // The second day gets the pixels of the first.
        let now = two_zones(&session, other.path());
        let names = ["day-3-zone-32755.tif", "day-8-zone-32755.tif"];
        let now = match is_renamed {
            true => now,
            false => {
                let [day3, day8] = names.map(|name| dir.path().join(name));
                let later = fs::metadata(&day8).unwrap().modified().unwrap();
                fs::copy(day3, &day8).unwrap();
                let later = later + std::time::Duration::from_secs(3);
                let file = fs::File::options().write(true).open(&day8).unwrap();
                file.set_modified(later).unwrap();
                found
            }
        };
        let written = Cube::create(&session, place(&torn), images(&now).await, &options()).await;
        let written = written.unwrap();
        let is_noted = written
            .notes
            .iter()
            .any(|note| note.contains("were replaced"));
        assert!(is_noted, "{written:?}");
        assert_eq!(
            written.resumed > 0,
            !is_result && !is_renamed,
            "{written:?}"
        );
        Cube::create(&session, place(&whole), images(&now).await, &options())
            .await
            .unwrap();
        let pixels = |cube: &Path| {
            let mut all = contents(cube);
            all.retain(|(name, _)| name.starts_with("red/"));
            all
        };
        assert!(pixels(&torn) == pixels(&whole), "{is_result} {is_renamed}");
    }
}

#[tokio::test]
async fn later_dates_are_added_if_they_are_made_alike() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let found = two_zones(&session, dir.path());
    let all = apply::ImageCube::of(&found, &albers()).await.unwrap();
    let fixed = albers().with_grid(Grid::Of(all.grid().clone()));
    let mut items = found.items().clone();
    let later = items.items.split_off(2);
    let first = QueryResult::from_items(&session, items.clone(), Trust::User);
    let first = apply::ImageCube::of(&first, &fixed).await.unwrap();
    let location = place(&dir.path().join("cube"));
    first.zarr(&location, &small()).await.unwrap();

    let refused = async |cube: Images, said: &str| {
        let err = Cube::append(&session, &location, cube, &small())
            .await
            .unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
        assert!(err.message().contains(said), "{err}");
    };
    let options = albers().with_grid(Grid::Projected(Crs::Epsg(3577), 50.0.into()));
    let other = apply::ImageCube::of(&found, &options).await.unwrap();
    refused(other.into(), "the cube is on").await;
    let options = fixed.clone().with_resampling(Resampling::Nearest);
    let other = apply::ImageCube::of(&found, &options).await.unwrap();
    refused(other.into(), "the cube's samples were computed by {").await;
    let other = apply::ImageCube::of(&found, &fixed.clone().reflectance())
        .await
        .unwrap();
    refused(other.into(), "the bands of the images are red (float32").await;
    // Of a date that is there only whole is the same.
    let options = fixed.clone().with_grouping(Grouping::All);
    let other = apply::ImageCube::of(&found, &options).await.unwrap();
    refused(other.into(), "a time step is written at once").await;
    let raster = Raster {
        pixels: Pixels::I16(Array3::zeros((1, 10, 10))),
        geobox: GeoBox {
            size: Size {
                width: 10,
                height: 10,
            },
            ..all.grid().clone()
        },
        nodata: Some((-999.0).into()),
        sparse: Vec::new(),
    };
    let copied =
        CubeImage::new("new", "2021-03-01T00:00:00Z".parse().unwrap()).with_band("red", raster);
    let copied = copied.with_scaling("red", STATED);
    refused(vec![copied].into(), "the cube's samples were computed by {").await;

    let all = apply::ImageCube::of(&found, &fixed).await.unwrap();
    let written = Cube::append(&session, &location, &all, &small())
        .await
        .unwrap();
    assert_eq!((written.steps, written.known), (1, 2));
    let again = Cube::append(&session, &location, &all, &small())
        .await
        .unwrap();
    assert_eq!((again.steps, again.known, again.shards), (0, 4, 0));
    let stored = Cube::open(&session, &location).await.unwrap();
    let red = stored.read::<i16>("red", 0..2, None, 0).await.unwrap();
    assert!(red == block::<i16>(&all).await.index_axis(Axis(1), 0));
    items.items = later;
    let later = QueryResult::from_items(&session, items, Trust::User);
    let later = apply::ImageCube::of(&later, &fixed).await.unwrap();
    let again = Cube::append(&session, &location, &later, &small())
        .await
        .unwrap();
    assert_eq!((again.steps, again.known), (0, 2));
}

/// xarray and others make reflectance of samples by these attributes.
#[tokio::test]
async fn a_raw_cube_states_the_scale_that_items_state() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let found = two_zones(&session, dir.path());
    let scaling = async |location: &Location| {
        let cube = Cube::open(&session, location).await.unwrap();
        let band = &cube.bands()[0];
        (band.scale, band.offset)
    };
    let stated = (Some(STATED.scale), Some(STATED.offset));
    let on_grid = place(&dir.path().join("on-grid"));
    let raw = apply::ImageCube::of(&found, &albers()).await.unwrap();
    raw.zarr(&on_grid, &small()).await.unwrap();
    assert_eq!(scaling(&on_grid).await, stated);
    let stored = Cube::open(&session, &on_grid).await.unwrap();
    let red = stored.read::<i16>("red", 0..2, None, 0).await.unwrap();
    assert!(red == block::<i16>(&raw).await.index_axis(Axis(1), 0));
    let physical = place(&dir.path().join("physical"));
    let scaled = albers().reflectance();
    let scaled = apply::ImageCube::of(&found, &scaled).await.unwrap();
    scaled.zarr(&physical, &small()).await.unwrap();
    assert_eq!(scaling(&physical).await, (None, None));

    // Copied images of one zone; one cube as it was written before items were asked.
    let images: Vec<CubeImage> = CubeImage::of(&found)
        .unwrap()
        .into_iter()
        .filter(|image| image.id.ends_with("32755"))
        .collect();
    let [first, later] = [&images[..1], &images[1..]].map(<[CubeImage]>::to_vec);
    let file = place(&dir.path().join("day-3-zone-32755.tif"));
    let before = CubeImage::new(&first[0].id, first[0].time).with_band("red", file);
    let before = vec![before];
    for (name, first, expected) in [("copied", first, stated), ("before", before, (None, None))] {
        let location = place(&dir.path().join(name));
        Cube::create(&session, &location, first, &small())
            .await
            .unwrap();
        assert_eq!(scaling(&location).await, expected);
        Cube::append(&session, &location, later.clone(), &small())
            .await
            .unwrap();
        assert_eq!(scaling(&location).await, expected);
        let cube = Cube::open(&session, &location).await.unwrap();
        let said = cube.attributes()["rss:provenance"]
            .as_array()
            .unwrap()
            .clone();
        assert_eq!(said.len(), 2, "of the write and of the append");
        assert_eq!(said[0]["items"][0]["id"], "day-3-zone-32755");
        assert_eq!(said[1]["items"][0]["datetime"], "2021-01-08T00:00:00.500Z");
    }
    let without = Scaling {
        offset: 0.0,
        ..STATED
    };
    let other = vec![later[0].clone().with_scaling("red", without)];
    let location = place(&dir.path().join("copied-too"));
    let mixed = [images[..1].to_vec(), other].concat();
    let err = Cube::create(&session, &location, mixed, &small())
        .await
        .unwrap_err();
    assert!(
        err.message().contains("samples x 0.0001 + 0, the cube's"),
        "{err}"
    );
}

#[test]
fn a_typed_result_becomes_a_cube_without_async() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let found = two_zones(&session, dir.path());
    let grid = Grid::Projected(Crs::Epsg(32756), 30.0.into());
    let options = apply::ImageCubeOptions::new().with_grid(grid);
    let cube = session.cube(&found, &options).unwrap();
    let location = place(&dir.path().join("cube"));
    let work = session
        .reduce_typed(&cube, Reducer::Max, ApplyOptions::new())
        .unwrap();
    session.create_cube(&location, work, &small()).unwrap();
    let stored = session.open_cube(&location).unwrap();
    let stored = stored.cube();
    assert_eq!(stored.bands()[0].dtype, DataType::I16);
    // The span of all images.
    let [step] = stored.steps() else {
        panic!("{:?}", stored.steps())
    };
    let bounds = step.bounds.unwrap();
    assert_eq!(bounds.start, step.time);
    assert!(bounds.end > bounds.start);
}

#[tokio::test]
async fn what_cannot_be_stored_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let session = session();
    let found = two_zones(&session, dir.path());
    let location = place(&dir.path().join("cube"));
    let raw = apply::ImageCube::of(&found, &albers()).await.unwrap();
    let scaled = apply::ImageCube::of(&found, &albers().reflectance())
        .await
        .unwrap();
    let refused = async |cube: &apply::ImageCube, options: CubeOptions, said: &str| {
        let err = cube.zarr(&location, &options).await.unwrap_err();
        assert!(err.message().contains(said), "{err}");
        assert!(!dir.path().join("cube").exists(), "{said}");
    };
    refused(
        &raw,
        small().with_nodata(70_000.0),
        "band red: nodata 70000 is not a value of int16",
    )
    .await;
    refused(
        &raw,
        small().with_nodata(f64::NAN),
        "band red: nodata NaN is not a value of int16",
    )
    .await;
    refused(
        &scaled,
        small().with_nodata(1e300),
        "is not a value of float32",
    )
    .await;
    refused(
        &scaled,
        small().with_overviews(20, Resampling::Average),
        "of a single pixel",
    )
    .await;
    let grid = GeoBox {
        crs: None,
        ..raw.grid().clone()
    };
    let placeless = apply::ImageCube::of(
        &found,
        &apply::ImageCubeOptions::new().with_grid(Grid::Of(grid)),
    )
    .await;
    let err = match placeless {
        Ok(cube) => cube.zarr(&location, &small()).await.unwrap_err(),
        Err(err) => err,
    };
    assert!(err.message().contains("no CRS"), "{err}");
    let tight = Session::builder()
        .cpu_threads(2)
        .budget_bytes(50_000)
        .build()
        .unwrap();
    let found = two_zones(&tight, dir.path());
    let raw = apply::ImageCube::of(&found, &albers()).await.unwrap();
    refused(
        &raw,
        small(),
        "more than the budget of 0 MB: choose a smaller shard",
    )
    .await;

    // What a closure makes has no names but those that it is given.
    let work = || {
        let make = |block: &Block<f32>| Ok(block.band("red")?.to_owned());
        scaled.apply(ApplyOptions::new(), make)
    };
    let err = work().zarr(&location, &small()).await.unwrap_err();
    assert!(err.message().contains("ApplyOptions::with_names"), "{err}");
    let err = work()
        .each_date(["a b"])
        .zarr(&location, &small())
        .await
        .unwrap_err();
    assert!(
        err.message().contains("band `a b` cannot name an array"),
        "{err}"
    );
    let err = work()
        .each_date(["a", "a"])
        .zarr(&location, &small())
        .await
        .unwrap_err();
    assert!(err.message().contains("two bands are named `a`"), "{err}");
    assert!(!dir.path().join("cube").exists());
    let err = work()
        .each_date(["a", "b"])
        .zarr(&location, &small())
        .await
        .unwrap_err();
    assert!(
        err.message()
            .contains("has 2 bands, expected 4: 2 names of 2 dates"),
        "{err}"
    );
}

struct Stage {
    bed: Testbed,
    session: Session,
}

impl Stage {
    fn new(settings: impl FnOnce(SessionBuilder) -> SessionBuilder) -> Self {
        let bed = Testbed::builder().scenes(Scenes::small()).start().unwrap();
        let builder = Session::builder()
            .s3_endpoint(&bed.s3_endpoint())
            .cpu_threads(2)
            .retries(0);
        let session = settings(builder).build().unwrap();
        Self { bed, session }
    }

    async fn found(&self, bands: &[&str]) -> QueryResult {
        let dea = Source::api(&self.bed.stac_url())
            .unwrap()
            .like(&rss_core::DEA);
        ImageQueryBuilder::new(dea, Collection::Sentinel2, Intersects::scene("56jns"))
            .session(self.session.clone())
            .canonical_bands(bands.iter().copied())
            .start_date(rss_core::date(2021, 1, 1))
            .end_date(rss_core::date(2021, 2, 1))
            .cloudcover((rss_core::Cmp::Less, 30))
            .build()
            .unwrap()
            .search_async()
            .await
            .unwrap()
    }

    fn masked() -> apply::ImageCubeOptions {
        apply::ImageCubeOptions::new()
            .reflectance()
            .with_mask("clouds".parse().unwrap(), Cleanup::default())
    }

    fn scene(&self, items: &[String]) -> &Scene {
        let mut scenes = self.bed.scenes().iter();
        scenes.find(|scene| items == [scene.id.clone()]).unwrap()
    }
}

/// What a pixel is without clouds.
fn clear(scene: &Scene, band: Band, col: u32, row: u32) -> f32 {
    match (
        scene.pixel(Band::Fmask, col / 2, row / 2),
        scene.pixel(band, col, row),
    ) {
        (2 | 3, _) | (_, -999) => f32::NAN,
        (_, sample) => f32::from(sample) / 10_000.0,
    }
}

#[tokio::test]
async fn masked_pixels_are_missing_and_bands_share_the_mask() {
    let stage = Stage::new(|builder| builder);
    let dir = tempfile::tempdir().unwrap();
    let options = CubeOptions::new().with_layout(layout("2,128,128", "4,512,512"));
    let mut asked = Vec::new();
    for bands in [&["red"][..], &["red", "nir"]] {
        let found = stage.found(bands).await;
        let cube = apply::ImageCube::of(&found, &Stage::masked())
            .await
            .unwrap();
        stage.bed.clear_log();
        let location = place(&dir.path().join(bands.join("-")));
        let written = cube.zarr(&location, &options).await.unwrap();
        assert_eq!(written.shards, 9 * bands.len() as u64);
        let log = stage.bed.requests(Service::S3).into_iter();
        asked.push(log.filter(|request| request.path.contains("fmask")).count());
        let stored = Cube::open(&stage.session, &location).await.unwrap();
        for (name, band) in bands.iter().zip([Band::Red, Band::Nir]) {
            let samples = stored.read::<f32>(name, 0..4, None, 0).await.unwrap();
            for (time, step) in stored.steps().iter().enumerate() {
                let scene = stage.scene(&step.items);
                let mut missing = 0;
                for row in (0..1200).step_by(37) {
                    for col in (0..1200).step_by(41) {
                        let expected = clear(scene, band, col, row);
                        let found = samples[(time, row as usize, col as usize)];
                        let close = (found - expected).abs() < 1e-6;
                        assert!(
                            close || (found.is_nan() && expected.is_nan()),
                            "{found} {expected}"
                        );
                        missing += usize::from(expected.is_nan());
                    }
                }
                assert!(missing > 0 || time > 0);
            }
        }
    }
    assert!(asked[0] > 0);
    assert_eq!(asked[0], asked[1]);
}

#[tokio::test]
async fn a_result_is_a_cube_of_one_date_or_of_all() {
    let stage = Stage::new(|builder| builder);
    let dir = tempfile::tempdir().unwrap();
    let options = CubeOptions::new().with_layout(layout("1,64,64", "2,256,256"));
    let found = stage.found(&["red", "nir"]).await;
    let cube = apply::ImageCube::of(&found, &Stage::masked())
        .await
        .unwrap();
    let median = || cube.reduce(Reducer::Median, ApplyOptions::new());
    let (truth, _) = median().raster().await.unwrap();
    let truth = truth.pixels.view::<f32>().unwrap();
    let location = place(&dir.path().join("median"));
    let written = median().zarr(&location, &options).await.unwrap();
    assert_eq!((written.steps, written.shards), (1, 25 * 2));
    let stored = Cube::open(&stage.session, &location).await.unwrap();
    let step = &stored.steps()[0];
    assert_eq!((step.time, step.items.len()), (cube.steps()[0].time, 4));
    for (number, band) in ["red", "nir"].into_iter().enumerate() {
        let samples = stored.read::<f32>(band, 0..1, None, 0).await.unwrap();
        let expected = truth.index_axis(Axis(0), number);
        assert!(
            samples.iter().zip(&expected).all(|(&a, &b)| same(a, b)),
            "{band}"
        );
    }
    // A closure that makes a band for each date, with a halo that it does not need.
    let ndvi = |block: &Block<f32>| {
        let (red, nir) = (block.band("red")?, block.band("nir")?);
        Ok((&nir - &red) / (&nir + &red))
    };
    let work = || {
        let halo = ApplyOptions::new().with_halo(5);
        cube.apply(halo, ndvi).each_date(["ndvi"])
    };
    let (truth, _) = work().raster().await.unwrap();
    let location = place(&dir.path().join("ndvi"));
    let written = work()
        .zarr(&location, &options.clone().with_nodata(-2.0))
        .await
        .unwrap();
    assert_eq!((written.steps, written.shards), (4, 25 * 2));
    let stored = Cube::open(&stage.session, &location).await.unwrap();
    assert_eq!(stored.bands()[0].nodata, Some((-2.0).into()));
    let samples = stored.read::<f32>("ndvi", 0..4, None, 0).await.unwrap();
    let truth = truth.pixels.view::<f32>().unwrap();
    for (&found, &expected) in samples.iter().zip(truth.iter()) {
        let expected = if expected.is_nan() { -2.0 } else { expected };
        assert_eq!(found, expected);
    }
    for (step, expected) in stored.steps().iter().zip(cube.steps()) {
        assert_eq!((step.time, &step.items), (expected.time, &expected.items));
    }
    let count = cube.reduce_bands(Reducer::Count, ApplyOptions::new());
    let location = place(&dir.path().join("count"));
    count.zarr(&location, &options).await.unwrap();
    let stored = Cube::open(&stage.session, &location).await.unwrap();
    assert_eq!(
        (stored.bands()[0].name.as_str(), stored.steps().len()),
        ("count", 4)
    );
}

#[tokio::test]
async fn what_cannot_be_read_is_listed_and_missing() {
    let stage = Stage::new(|builder| builder);
    let dir = tempfile::tempdir().unwrap();
    let broken = stage.bed.scenes()[1].clone();
    stage.bed.fault(
        Rule::new(Fault::status(404))
            .on(Service::S3)
            .path(broken.key(Band::Nir)),
    );
    let found = stage.found(&["red", "nir"]).await;
    let location = || place(&dir.path().join("cube"));
    let options = CubeOptions::new().with_layout(layout("1,128,128", "2,512,512"));
    let failing = apply::ImageCube::of(&found, &apply::ImageCubeOptions::new())
        .await
        .unwrap();
    let err = failing.zarr(location(), &options).await.unwrap_err();
    assert_eq!(err.kind(), ErrorKind::NotFound);
    assert!(err.to_string().contains(&broken.id), "{err}");
    assert!(!dir.path().join("cube").exists());

    let with_holes = apply::ImageCubeOptions::new().with_on_failure(OnFailure::Skip);
    let cube = apply::ImageCube::of(&found, &with_holes).await.unwrap();
    let listed = |written: &Written| {
        let right =
            |hole: &apply::MissingInput| hole.item == broken.id && hole.asset == "nbart_nir_1";
        assert!(
            written.missing_inputs.iter().all(right),
            "{:?}",
            written.missing_inputs
        );
        // Of each shard of one of two pairs of dates.
        assert_eq!(written.missing_inputs.len(), 9);
    };
    {
        let (enough, mut stopped) = tokio::sync::watch::channel(false);
        let options = options.clone().with_progress(move |progress| {
            let _ = enough.send(progress.shards_done > 4);
        });
        tokio::select! {
            biased;
            _ = stopped.wait_for(|enough| *enough) => {}
            _ = cube.zarr(location(), &options) => unreachable!("it is stopped before"),
        }
    }
    // All is made again, so that all that is missing is told.
    let written = cube.zarr(location(), &options).await.unwrap();
    assert_eq!(written.resumed, 0);
    listed(&written);
    let stored = Cube::open(&stage.session, location()).await.unwrap();
    for (time, step) in stored.steps().iter().enumerate() {
        let nir = stored
            .read::<i16>("nir", time..time + 1, None, 0)
            .await
            .unwrap();
        let scene = stage.scene(&step.items);
        if scene.id == broken.id {
            assert!(nir.iter().all(|&sample| sample == -999));
        } else {
            assert!(nir.iter().eq(&scene.window(Band::Nir, 0, 0, 1200, 1200)));
        }
    }
}

#[tokio::test]
async fn a_computed_cube_goes_into_a_bucket() {
    let stage = Stage::new(|builder| builder.budget_bytes(60 << 20));
    stage.bed.add_bucket("cubes");
    let found = stage.found(&["red"]).await;
    let options = apply::ImageCubeOptions::new()
        .with_grid(Grid::Resolution(20.0.into()))
        .with_resampling(Resampling::Average);
    let cube = apply::ImageCube::of(&found, &options).await.unwrap();
    let location = Location::parse("s3://cubes/some/cube.zarr").unwrap();
    cube.zarr(&location, &small()).await.unwrap();
    let stored = Cube::open(&stage.session, &location).await.unwrap();
    let red = stored.read::<i16>("red", 0..4, None, 0).await.unwrap();
    assert_eq!(red.dim(), (4, 600, 600));
    assert!(red == block::<i16>(&cube).await.index_axis(Axis(1), 0));
    let left = stage.bed.keys("cubes", "some/cube.zarr/.rss-");
    assert_eq!(left, [""; 0]);
}
