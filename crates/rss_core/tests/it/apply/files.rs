//! Of items that say little: the files' own grids and nodata values hold.

use std::path::Path;

use ndarray::{Array2, Array3, ArrayView3, s};
use rss_core::{
    Crs, DataType, ErrorKind, GeoBox, GeoTransform, Location, Manifest, Pixels, QueryResult,
    Raster, Resampling, Sample, Session, Size, Trust,
    apply::{
        ApplyOptions, Block, BlockSample, Grid, ImageCube, ImageCubeOptions, OnFailure, TypedApply,
        mosaic::Mosaic, reduce::Reducer, time::Grouping,
    },
    writer::CogOptions,
};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(super) const SIDE: usize = 64;

/// Files of one band on one lattice, and items that name nothing but them.
pub(super) struct Files {
    dir: TempDir,
    pub(super) items: Vec<Value>,
}

impl Files {
    pub(super) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            items: Vec::new(),
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// Adds the image of the next day.
    pub(super) fn add<T: Sample>(&mut self, samples: Array2<T>, nodata: Option<f64>) {
        self.add_on(samples, nodata, &Crs::Epsg(32756));
    }

    /// Adds the image of the next day in a CRS.
    pub(super) fn add_on<T: Sample>(&mut self, samples: Array2<T>, nodata: Option<f64>, crs: &Crs) {
        let path = self.path(&format!("{}.tif", self.items.len()));
        save_on(&path, samples, nodata, crs);
        self.name(&path);
    }

    /// Moves the file of an image away until what it returns is dropped.
    pub(super) fn hide(&self, number: usize) -> Hidden {
        let path = self.path(&format!("{number}.tif"));
        let away = path.with_extension("away");
        std::fs::rename(&path, &away).unwrap();
        Hidden { path, away }
    }

    fn name(&mut self, path: &Path) {
        let day = self.items.len() + 1;
        self.items.push(json!({
            "type": "Feature", "stac_version": "1.1.0", "id": format!("day-{day}"), "geometry": null,
            "bbox": [150.98, -27.13, 150.99, -27.12],
            "links": [], "assets": {"red": {"href": path}},
            "properties": {"datetime": format!("2021-01-{day:02}T12:00:00Z")},
        }));
    }

    pub(super) fn found(&self, session: &Session) -> QueryResult {
        let all = json!({"type": "FeatureCollection", "features": self.items});
        QueryResult::from_json(session, all.to_string().as_bytes(), Trust::User).unwrap()
    }

    pub(super) fn cube(&self, options: &ImageCubeOptions) -> rss_core::Result<ImageCube> {
        let session = session();
        session.cube(&self.found(&session), options)
    }
}

/// A file that is moved away.
pub(super) struct Hidden {
    path: std::path::PathBuf,
    away: std::path::PathBuf,
}

impl Drop for Hidden {
    fn drop(&mut self) {
        std::fs::rename(&self.away, &self.path).unwrap();
    }
}

pub(super) fn session() -> Session {
    Session::builder().cpu_threads(2).build().unwrap()
}

fn save<T: Sample>(path: &Path, samples: Array2<T>, nodata: Option<f64>) {
    save_on(path, samples, nodata, &Crs::Epsg(32756));
}

fn save_on<T: Sample>(path: &Path, samples: Array2<T>, nodata: Option<f64>, crs: &Crs) {
    let (height, width) = samples.dim();
    let size = Size {
        width: width.try_into().unwrap(),
        height: height.try_into().unwrap(),
    };
    let transform = GeoTransform([300_000.0, 10.0, 0.0, 7_000_000.0, 0.0, -10.0]);
    let raster = Raster {
        pixels: T::wrap(samples.insert_axis(ndarray::Axis(0))),
        geobox: GeoBox {
            size,
            crs: Some(crs.clone()),
            transform: Some(transform),
        },
        nodata: nodata.map(Into::into),
        sparse: Vec::new(),
    };
    raster.save(path).unwrap();
}

/// All samples of a cube of one band, a date in each plane.
pub(super) fn all<T: BlockSample>(
    cube: &ImageCube,
    options: ApplyOptions,
) -> rss_core::Result<Array3<T>> {
    let work = cube.apply(options, |block: &Block<T>| {
        Ok(block.band("red")?.to_owned())
    });
    let (raster, _) = session().compute(work)?;
    let view: ArrayView3<'_, T> = raster.pixels.view().unwrap();
    Ok(view.to_owned())
}

/// Samples that differ, and one without data.
pub(super) fn noise(seed: i16, missing: i16) -> Array2<i16> {
    let mut samples = Array2::from_shape_fn((SIDE, SIDE), |(row, col)| {
        seed + i16::try_from(row * SIDE + col).unwrap() % 997
    });
    samples[(5, 9)] = missing;
    samples
}

#[test]
fn a_files_nodata_holds_where_the_catalogue_has_none() {
    let mut files = Files::new();
    let (whole, half) = (
        noise(100, -1),
        noise(2000, -1).slice(s![.., ..SIDE / 2]).to_owned(),
    );
    files.add(whole.clone(), Some(-1.0));
    files.add(half.clone(), Some(-1.0));
    let cube = files.cube(&ImageCubeOptions::new()).unwrap();
    assert_eq!(cube.bands()[0].nodata, Some((-1.0).into()));
    let made = all::<i16>(&cube, ApplyOptions::new()).unwrap();
    assert_eq!(made.slice(s![0, .., ..]), whole);
    assert_eq!(made.slice(s![1, .., ..SIDE / 2]), half);
    assert!(
        made.slice(s![1, .., SIDE / 2..])
            .iter()
            .all(|&red| red == -1)
    );
    let made = all::<f32>(&cube, ApplyOptions::new()).unwrap();
    let missing = made.iter().filter(|red| red.is_nan()).count();
    assert_eq!(missing, 2 + SIDE * SIDE / 2);
}

#[test]
fn whole_numbers_have_one_nodata_value_or_none() {
    let mut files = Files::new();
    files.add(noise(100, -1), Some(-1.0));
    files.add(noise(200, -2), Some(-2.0));
    let cube = files.cube(&ImageCubeOptions::new()).unwrap();
    let err = all::<i16>(&cube, ApplyOptions::new()).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
    let said =
        "item day-2, asset red: its nodata value is -2, that of the cube is -1: load float32";
    assert!(err.message().contains(said), "{err}");
    let made = all::<f32>(&cube, ApplyOptions::new()).unwrap();
    assert!(made[(0, 5, 9)].is_nan() && made[(1, 5, 9)].is_nan());
    assert_eq!(made.iter().filter(|red| red.is_nan()).count(), 2);

    // Without one all samples count, and there is no way to say that a pixel has none.
    let mut files = Files::new();
    files.add(noise(100, -1), None);
    files.add(noise(200, -2), None);
    let cube = files.cube(&ImageCubeOptions::new()).unwrap();
    assert_eq!(cube.bands()[0].nodata, None);
    let made = all::<i16>(&cube, ApplyOptions::new()).unwrap();
    assert_eq!((made[(0, 5, 9)], made[(1, 5, 9)]), (-1, -2));
    files.add(noise(300, -3).slice(s![..7, ..]).to_owned(), None);
    let cube = files.cube(&ImageCubeOptions::new()).unwrap();
    let err = all::<i16>(&cube, ApplyOptions::new()).unwrap_err();
    assert!(
        err.message().contains("band red has no nodata value"),
        "{err}"
    );
    let made = all::<f32>(&cube, ApplyOptions::new()).unwrap();
    assert_eq!((made[(2, 5, 9)], made[(2, 6, 0)]), (-3.0, 300.0 + 384.0));
    assert!(made[(2, 7, 0)].is_nan());
}

#[test]
fn doubles_hold_what_floats_would_round() {
    let mut files = Files::new();
    let exact = 16_777_217_i32;
    files.add(Array2::from_elem((SIDE, SIDE), exact), None);
    let cube = files.cube(&ImageCubeOptions::new()).unwrap();
    let made = all::<f64>(&cube, ApplyOptions::new()).unwrap();
    assert!(made.iter().all(|&red| red == f64::from(exact)));
    let rounded = all::<f32>(&cube, ApplyOptions::new()).unwrap();
    assert_eq!(rounded[(0, 0, 0)], 16_777_216.0);
}

#[test]
fn missing_pixels_become_the_nodata_value_that_is_chosen() {
    let mut files = Files::new();
    files.add(noise(100, -1), Some(-1.0));
    let cube = files.cube(&ImageCubeOptions::new()).unwrap();
    let options = ApplyOptions::new().with_nodata(-9999.0);
    let made = all::<f32>(&cube, options.clone()).unwrap();
    assert_eq!(made[(0, 5, 9)], -9999.0);
    assert_eq!(made.iter().filter(|&&red| red == -9999.0).count(), 1);
    // Tiles that are larger than the blocks that would be chosen, and the nodata value of the file.
    let path = files.path("made.tif");
    let location = Location::parse(path.to_str().unwrap()).unwrap();
    let work = cube.apply(ApplyOptions::new(), |block: &Block<f32>| {
        Ok(block.band("red")?.to_owned())
    });
    let how = CogOptions::new().with_tile(2048).with_nodata(-9999.0);
    session().compute_cog(work, &location, &how).unwrap();
    let raster = session().open(&location, rss_core::Backend::Cog).unwrap();
    assert_eq!(raster.profile().nodata, Some((-9999.0).into()));
    let read = raster.read(&rss_core::ReadRequest::new()).unwrap();
    let Pixels::F32(samples) = read.pixels else {
        panic!("{:?}", read.pixels.dtype());
    };
    assert_eq!(samples, made);
}

#[test]
fn a_file_of_unknown_grid_that_is_missing_follows_the_policy() {
    let mut files = Files::new();
    files.add(noise(100, -1), Some(-1.0));
    files.name(&files.path("gone.tif"));
    let err = files.cube(&ImageCubeOptions::new()).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::NotFound);
    assert!(err.message().contains("item day-2, asset red"), "{err}");
    let options = ImageCubeOptions::new().with_on_failure(OnFailure::Skip);
    let cube = files.cube(&options).unwrap();
    let work = cube.apply(ApplyOptions::new(), |block: &Block<i16>| {
        Ok(block.band("red")?.to_owned())
    });
    let (raster, report) = session().compute(work).unwrap();
    let missing_inputs: Vec<_> = report
        .missing_inputs
        .iter()
        .map(|hole| hole.item.as_str())
        .collect();
    assert_eq!(missing_inputs, ["day-2"]);
    let view: ArrayView3<'_, i16> = raster.pixels.view().unwrap();
    assert_eq!(view.slice(s![0, .., ..]), noise(100, -1));
    assert!(view.slice(s![1, .., ..]).iter().all(|&red| red == -1));
    // Of files that are all missing there is no grid to put missing_inputs on.
    let mut files = Files::new();
    files.name(&files.path("gone.tif"));
    let err = files.cube(&options).unwrap_err();
    assert!(err.message().contains("item day-1, asset red"), "{err}");
}

#[test]
fn a_mosaic_of_all_images_counts_their_memory() {
    let mut files = Files::new();
    for day in 0..12 {
        files.add(Array2::from_elem((512, 512), 100_i16 + day), Some(-1.0));
    }
    // Twelve images of 1 MiB as float32, and what is read of them.
    let session = Session::builder()
        .cpu_threads(2)
        .budget_bytes(16 << 20)
        .build()
        .unwrap();
    let made = |mosaic| {
        let options = ImageCubeOptions::new()
            .with_grouping(Grouping::All)
            .with_mosaic(mosaic);
        let cube = session.cube(&files.found(&session), &options).unwrap();
        session.compute(cube.apply(ApplyOptions::new(), |block: &Block<f32>| {
            Ok(block.band("red")?.to_owned())
        }))
    };
    assert!(made(Mosaic::FirstValid).is_ok());
    let err = made(Mosaic::Median).unwrap_err();
    assert!(
        err.message().contains("more than the budget of 16 MB"),
        "{err}"
    );
}

#[test]
fn samples_that_nobody_explains_are_no_reflectance() {
    let mut files = Files::new();
    files.add(noise(100, -1), Some(-1.0));
    let cube = files.cube(&ImageCubeOptions::new().reflectance()).unwrap();
    let err = all::<f32>(&cube, ApplyOptions::new()).unwrap_err();
    assert_eq!(err.kind(), ErrorKind::InvalidInput);
    let said = "no item, manifest or file states the scale of int16 samples";
    assert!(err.message().contains("item day-1, asset red"), "{err}");
    assert!(err.message().contains(said), "{err}");
    // Floats are values already.
    let mut files = Files::new();
    files.add(Array2::from_elem((SIDE, SIDE), 0.25_f32), None);
    let cube = files.cube(&ImageCubeOptions::new().reflectance()).unwrap();
    let made = all::<f32>(&cube, ApplyOptions::new()).unwrap();
    assert!(made.iter().all(|&red| red == 0.25));
}

#[test]
fn a_band_of_some_items_only_is_missing_where_nobody_named_it() {
    let mut files = Files::new();
    files.add(noise(100, -1), Some(-1.0));
    files.add(noise(300, -1), Some(-1.0));
    let nir = files.path("nir.tif");
    save(&nir, noise(700, -1), Some(-1.0));
    files.items[0]["assets"]["nir"] = json!({ "href": nir });
    let manifest = |is_optional: bool| {
        let bands = format!(
            "source: mine\ncollection: some\nstac_collections: [some]\nbands:\n  \
             - {{asset: red, canonical: red, resolution: 10, dtype: int16, nodata: -1, kind: reflectance}}\n  \
             - {{asset: nir, canonical: nir, resolution: 10, dtype: int16, nodata: -1, kind: reflectance, \
             optional: {is_optional}}}\n"
        );
        Manifest::from_yaml(&bands).unwrap()
    };
    let session = session();
    let made = |manifest: Manifest, names: &[&str], on_failure: OnFailure| {
        let found = files.found(&session);
        let found = found.with_canonical_bands(&manifest, names)?;
        let options = ImageCubeOptions::new()
            .with_manifest(manifest)
            .with_on_failure(on_failure);
        let cube = session.cube(&found, &options)?;
        let nir = cube.apply(ApplyOptions::new(), |block: &Block<f32>| {
            Ok(block.band("nir")?.to_owned())
        });
        let (raster, report) = session.compute(nir)?;
        let view: ArrayView3<'_, f32> = raster.pixels.view().unwrap();
        Ok::<_, rss_core::Error>((view.to_owned(), report.missing_inputs))
    };
    let (nir, missing_inputs) = made(manifest(true), &[], OnFailure::Fail).unwrap();
    assert!(missing_inputs.is_empty(), "{missing_inputs:?}");
    assert_eq!(nir[(0, 7, 3)], f32::from(noise(700, -1)[(7, 3)]));
    assert!(
        nir.index_axis(ndarray::Axis(0), 1)
            .iter()
            .all(|pixel| pixel.is_nan())
    );
    // Asked for by its name, or promised by the product, it is missed.
    for (is_optional, names) in [(true, &["red", "nir"][..]), (false, &[])] {
        let err = made(manifest(is_optional), names, OnFailure::Fail).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::NotFound);
        assert!(
            err.to_string().contains("day-2") && err.to_string().contains("nir"),
            "{err}"
        );
        let (_, missing_inputs) = made(manifest(is_optional), names, OnFailure::Skip).unwrap();
        let [hole] = &missing_inputs[..] else {
            panic!("{missing_inputs:?}")
        };
        assert_eq!((&*hole.item, &*hole.asset), ("day-2", "nir"));
    }
}

/// Reduces raw samples in the type that keeps them.
async fn typed(
    files: &Files,
    reducer: Reducer,
    options: ApplyOptions,
) -> rss_core::Result<TypedApply> {
    let found = files.found(&session());
    let cube = ImageCube::of(
        &found,
        &ImageCubeOptions::new().with_grouping(Grouping::Item),
    )
    .await?;
    cube.reduce_typed(reducer, options).await
}

/// Checks that two images of one value each are not changed, and their mean is that of `f64`.
async fn check_kept<T: Sample + PartialEq + std::fmt::Debug>(
    [first, second]: [T; 2],
    nodata: Option<f64>,
    mean: (DataType, f64),
) {
    let mut files = Files::new();
    for sample in [first, second] {
        files.add(Array2::from_elem((SIDE, SIDE), sample), nodata);
    }
    for (reducer, kept) in [(Reducer::First, first), (Reducer::Last, second)] {
        let work = typed(&files, reducer, ApplyOptions::new()).await.unwrap();
        assert_eq!((work.dtype(), work.notes().len()), (T::DTYPE, 0));
        let (raster, _) = work.raster().await.unwrap();
        let samples = raster.pixels.view::<T>().unwrap();
        assert!(samples.iter().all(|&sample| sample == kept), "{kept:?}");
    }
    let work = typed(&files, Reducer::Mean, ApplyOptions::new())
        .await
        .unwrap();
    assert_eq!(work.dtype(), mean.0);
    let (raster, _) = work.raster().await.unwrap();
    assert_eq!(raster.pixels.to_f64()[0], mean.1, "{}", T::DTYPE);
}

#[tokio::test]
async fn raw_samples_keep_type_and_value() {
    let (f32_, f64_) = (DataType::F32, DataType::F64);
    check_kept([7_u8, 8], Some(0.0), (f32_, 7.5)).await;
    check_kept([65_534_u16, 65_535], Some(0.0), (f32_, 65_534.5)).await;
    check_kept([-999_i16, 32_767], Some(-1.0), (f32_, 15_884.0)).await;
    check_kept(
        [20_210_103_i32, 20_210_104],
        Some(-1.0),
        (f64_, 20_210_103.5),
    )
    .await;
    check_kept(
        [4_294_967_285_u32, 4_294_967_284],
        None,
        (f64_, 4_294_967_284.5),
    )
    .await;
    check_kept(
        [(1_i64 << 53) + 1, 5],
        None,
        (f64_, 4_503_599_627_370_498.0),
    )
    .await;
    check_kept([u64::MAX, u64::MAX - 1], Some(0.0), (f64_, 2_f64.powi(64))).await;
    check_kept([0.1_f32, 0.3], None, (f32_, f64::from(0.2_f32))).await;
    check_kept(
        [123_456_789.123, 123_456_789.125],
        None,
        (f64_, 123_456_789.124),
    )
    .await;
}

#[tokio::test]
async fn where_a_type_cannot_be_kept_a_float_holds_every_sample_and_a_note_says_so() {
    let mut files = Files::new();
    files.add(Array2::from_elem((SIDE, SIDE), 20_210_103_i32), None);
    files.add(Array2::from_elem((SIDE, SIDE / 2), 20_210_104_i32), None);
    let work = typed(&files, Reducer::Last, ApplyOptions::new())
        .await
        .unwrap();
    assert_eq!(
        work.notes(),
        ["band red is int32 without a nodata value for pixels without data: written as float64"]
    );
    let (raster, _) = work.raster().await.unwrap();
    let samples = raster.pixels.to_f64();
    assert_eq!(
        [samples[0], samples[SIDE - 1]],
        [20_210_104.0, 20_210_103.0]
    );
    // A nodata value that is chosen keeps the type.
    let options = ApplyOptions::new().with_nodata(-1);
    let work = typed(&files, Reducer::Last, options).await.unwrap();
    assert_eq!(work.dtype(), DataType::I32);
    assert_eq!(
        work.notes(),
        ["files of red state no nodata value: samples that are -1 are without data in the result"]
    );
    let (raster, _) = work.raster().await.unwrap();
    assert_eq!(
        (raster.nodata, raster.pixels.to_f64()),
        (Some((-1).into()), samples)
    );
    let options = ApplyOptions::new().with_nodata(0.5);
    let err = typed(&files, Reducer::Last, options).await.unwrap_err();
    assert_eq!(err.message(), "nodata 0.5 is not a value of int32");
    let mut files = Files::new();
    files.add(Array2::from_elem((SIDE, SIDE), 5_i16), Some(-1.0));
    let options = ApplyOptions::new().with_nodata(7);
    let work = typed(&files, Reducer::First, options).await.unwrap();
    assert_eq!(
        work.notes(),
        [
            "nodata of files of band red is -1, of the result 7, which may be a sample of theirs: written as float32"
        ]
    );
    // No float holds integers of 64 bits.
    let mut files = Files::new();
    files.add(Array2::from_elem((SIDE, SIDE), 5_i64), Some(1.0));
    files.add(Array2::from_elem((SIDE, SIDE), 5_i64), Some(2.0));
    let err = typed(&files, Reducer::First, ApplyOptions::new())
        .await
        .unwrap_err();
    assert_eq!(
        err.message(),
        "nodata of files of band red is 2, of others 1, and no float holds integers of 64 bits: expected bands of one \
         type and nodata value"
    );
}

#[cfg(feature = "expression")]
#[tokio::test]
async fn formulas_of_wide_samples_are_computed_in_float64() {
    let mut files = Files::new();
    files.add(Array2::from_elem((SIDE, SIDE), 20_210_103_i32), Some(-1.0));
    let found = files.found(&session());
    let cube = ImageCube::of(&found, &ImageCubeOptions::new())
        .await
        .unwrap();
    let formula: rss_core::apply::Expression = "day=red-20210000".parse().unwrap();
    for reducer in [None, Some(Reducer::Median)] {
        let formulas = [formula.clone()];
        let work = cube.express_typed(&formulas, reducer, ApplyOptions::new());
        let work = work.await.unwrap();
        assert_eq!(work.dtype(), DataType::F64);
        let (raster, _) = work.raster().await.unwrap();
        assert_eq!(raster.pixels.to_f64()[0], 103.0);
    }
}

#[test]
fn typed_results_are_computed_without_async() {
    let mut files = Files::new();
    files.add(noise(100, -1), Some(-1.0));
    files.add(noise(200, -1), Some(-1.0));
    let session = session();
    let cube = files.cube(&ImageCubeOptions::new()).unwrap();
    let last = |options| session.reduce_typed(&cube, Reducer::Last, options).unwrap();
    let (raster, _) = session.compute_typed(last(ApplyOptions::new())).unwrap();
    let expected = noise(200, -1);
    let samples = raster.pixels.view::<i16>().unwrap();
    assert_eq!(samples[(0, 10, 10)], expected[(10, 10)]);
    let location = Location::parse(files.path("last.tif").to_str().unwrap()).unwrap();
    session
        .compute_typed_cog(last(ApplyOptions::new()), &location, &CogOptions::new())
        .unwrap();
    let layers = session.layers(&cube, ApplyOptions::new()).unwrap();
    assert_eq!(layers.dtype(), DataType::I16);
    let (raster, _) = session.compute_typed(layers).unwrap();
    assert_eq!(raster.pixels.shape()[0], 2);
}

#[test]
fn classes_are_resampled_by_nearest_without_a_manifest() {
    let mut files = Files::new();
    // Every other pixel is 4 or 8: their mean is no class.
    let classes = Array2::from_shape_fn((SIDE, SIDE), |(_, col)| 4 + 4 * (col as i16 % 2));
    files.add(classes, Some(0.0));
    let asset = files.items[0]["assets"]["red"].clone();
    let stated = json!([{"value": 4, "name": "plants"}, {"value": 8, "name": "cloud"}]);
    for (key, fields) in [
        ("scl", json!({})),
        ("ground", json!({"classification:classes": stated})),
        ("red", json!({})),
    ] {
        let mut asset = asset.clone();
        let all = asset.as_object_mut().unwrap();
        all.extend(fields.as_object().unwrap().clone());
        files.items[0]["assets"] = json!({key: asset});
        let resampled = |options: ImageCubeOptions| {
            let options = options
                .with_grid(Grid::Resolution(20.0.into()))
                .with_resampling(Resampling::Average);
            let session = session();
            let found = files.found(&session).with_bands([key]);
            let cube = session.cube(&found, &options).unwrap();
            let work = cube.reduce(Reducer::First, ApplyOptions::new());
            let (raster, _) = session.compute(work).unwrap();
            raster.pixels.view::<f32>().unwrap()[(0, 9, 9)]
        };
        let found = resampled(ImageCubeOptions::new());
        match key {
            "red" => assert_eq!(found, 6.0),
            _ => assert!([4.0, 8.0].contains(&found), "{key}: {found}"),
        }
        let named = ImageCubeOptions::new().with_band_resampling(key, Resampling::Average);
        assert_eq!(resampled(named), 6.0, "{key}");
    }
}
