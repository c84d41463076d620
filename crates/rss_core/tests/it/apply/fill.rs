//! Whole pixels: where a mosaic or a reducer takes the first image, the bands of a pixel come from one.

use std::path::Path;

use ndarray::{Array3, Axis};
use rss_core::{
    Crs, DataType, GeoBox, GeoTransform, Location, Pixels, QueryResult, Raster, Session, Size,
    Trust,
    apply::{
        ApplyOptions, Block, Expression, ImageCube, ImageCubeOptions,
        mosaic::{Fill, Mosaic},
        reduce::Reducer,
        time::Grouping,
    },
    zarr::{Cube, CubeImage, CubeOptions, Layout, Use},
};
use serde_json::json;

const SIDE: u32 = 64;

/// Writes an image of one value below a number of rows without data.
fn image(path: &Path, dtype: DataType, value: u8, rows_without: usize) {
    let size = Size {
        width: SIDE,
        height: SIDE,
    };
    let shape = (1, SIDE as usize, SIDE as usize);
    let value = |(_, row, _): (usize, usize, usize)| match row < rows_without {
        true => 0,
        false => value,
    };
    let pixels = match dtype {
        DataType::U8 => Pixels::U8(Array3::from_shape_fn(shape, value)),
        _ => Pixels::U16(Array3::from_shape_fn(shape, |at| u16::from(value(at)))),
    };
    let raster = Raster {
        pixels,
        geobox: GeoBox {
            size,
            crs: Some(Crs::Epsg(32756)),
            transform: Some(GeoTransform([5e5, 10.0, 0.0, 7e6, 0.0, -10.0])),
        },
        nodata: Some(0.into()),
        sparse: Vec::new(),
    };
    raster.save(path).unwrap();
}

/// Two images of one day, three bands each; red of the first and nir of the second begin later than the others.
fn found(session: &Session, dir: &Path) -> QueryResult {
    let mut features = Vec::new();
    for (number, id) in [(1_u8, "one"), (2, "two")] {
        let mut assets = serde_json::Map::new();
        for (band, dtype, value, rows) in [
            ("red", DataType::U16, 10, if number == 1 { 8 } else { 0 }),
            ("nir", DataType::U16, 30, if number == 1 { 0 } else { 4 }),
            ("class", DataType::U8, 1, if number == 1 { 12 } else { 0 }),
        ] {
            let path = dir.join(format!("{id}-{band}.tif"));
            image(&path, dtype, value * number, rows);
            assets.insert(band.to_owned(), json!({"href": path.to_str().unwrap()}));
        }
        features.push(json!({
            "type": "Feature", "stac_version": "1.1.0", "id": id, "geometry": null, "links": [],
            "bbox": [153.0, -27.2, 153.01, -27.1], "assets": assets,
            "properties": {"datetime": format!("2021-01-03T00:0{number}:00Z")},
        }));
    }
    let items = json!({"type": "FeatureCollection", "features": features}).to_string();
    QueryResult::from_json(session, items.as_bytes(), Trust::User).unwrap()
}

/// The values of each band in rows 0, 4, 8 and 12: the first images begin or end there.
fn rows(samples: &Array3<f32>) -> Vec<[f32; 4]> {
    let band = |band: ndarray::ArrayView2<'_, f32>| [0, 4, 8, 12].map(|row| band[(row, 7)]);
    samples.axis_iter(Axis(0)).map(band).collect()
}

const NONE: f32 = -1.0;

fn shown(samples: Array3<f32>) -> Vec<[f32; 4]> {
    rows(&samples.mapv(|value| if value.is_nan() { NONE } else { value }))
}

#[tokio::test]
async fn the_bands_of_a_pixel_come_from_one_image_of_a_time_step() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::builder().cpu_threads(2).build().unwrap();
    let found = found(&session, dir.path()).with_bands(["red", "nir", "class"]);
    let made = async |options: ImageCubeOptions| {
        let cube = ImageCube::of(&found, &options).await.unwrap();
        let work = cube.apply(ApplyOptions::new(), |block: &Block<f32>| {
            Ok(block.data().index_axis(Axis(0), 0).to_owned())
        });
        let (raster, _) = work.raster().await.unwrap();
        shown(raster.pixels.view::<f32>().unwrap().to_owned())
    };
    // Rows 0 to 3: neither is whole, and the first has nir alone. Rows 4 to 11: the second is whole.
    assert_eq!(
        made(ImageCubeOptions::new()).await,
        [
            [NONE, 20.0, 20.0, 10.0],
            [30.0, 60.0, 60.0, 30.0],
            [NONE, 2.0, 2.0, 1.0]
        ]
    );
    assert_eq!(
        made(ImageCubeOptions::new().with_fill(Fill::Band)).await,
        [
            [20.0, 20.0, 10.0, 10.0],
            [30.0, 30.0, 30.0, 30.0],
            [2.0, 2.0, 2.0, 1.0]
        ]
    );
    // What is no choice of an image has no whole pixels.
    assert_eq!(
        made(ImageCubeOptions::new().with_mosaic(Mosaic::Max)).await[0],
        [20.0; 4]
    );
    // The first and the last of several time steps are whole pixels, too.
    let each = ImageCubeOptions::new().with_grouping(Grouping::Item);
    let reduced = async |fill: Fill, reducer: Reducer| {
        let cube = ImageCube::of(&found, &each.clone().with_fill(fill))
            .await
            .unwrap();
        let work = cube.reduce(reducer, ApplyOptions::new());
        let (raster, _) = work.raster().await.unwrap();
        shown(raster.pixels.view::<f32>().unwrap().to_owned())
    };
    assert_eq!(
        reduced(Fill::Pixel, Reducer::First).await,
        made(ImageCubeOptions::new()).await
    );
    assert_eq!(
        reduced(Fill::Band, Reducer::First).await,
        made(ImageCubeOptions::new().with_fill(Fill::Band)).await
    );
    assert_eq!(
        reduced(Fill::Pixel, Reducer::Last).await[1],
        [NONE, 60.0, 60.0, 60.0]
    );
}

#[tokio::test]
async fn an_index_is_one_that_an_image_has() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::builder().cpu_threads(2).build().unwrap();
    let found = found(&session, dir.path()).with_bands(["red", "nir"]);
    let ndvi: Expression = "(nir-red)/(nir+red)".parse().unwrap();
    let cube = ImageCube::of(&found, &ImageCubeOptions::new())
        .await
        .unwrap();
    let work = cube.express(&[ndvi], None, ApplyOptions::new()).unwrap();
    let (raster, _) = work.raster().await.unwrap();
    let made = shown(raster.pixels.view::<f32>().unwrap().to_owned());
    assert_eq!(made, [[NONE, 0.5, 0.5, 0.5]]);
}

/// Bands of a stored cube are computed apart where their types differ, and still have whole pixels.
#[tokio::test]
async fn bands_of_other_types_decide_with_what_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::builder().cpu_threads(2).build().unwrap();
    let found = found(&session, dir.path()).with_bands(["red", "nir", "class"]);
    let location = Location::parse(dir.path().join("cube").to_str().unwrap()).unwrap();
    let cube = ImageCube::of(&found, &ImageCubeOptions::new())
        .await
        .unwrap();
    cube.zarr(&location, &CubeOptions::new()).await.unwrap();
    let stored = Cube::open(&session, &location).await.unwrap();
    let red = stored.read::<u16>("red", 0..1, None, 0).await.unwrap();
    let class = stored.read::<u8>("class", 0..1, None, 0).await.unwrap();
    assert_eq!([0, 4, 8, 12].map(|row| red[[0, row, 7]]), [0, 20, 20, 10]);
    assert_eq!([0, 4, 8, 12].map(|row| class[[0, row, 7]]), [0, 2, 2, 1]);
}

/// Images that are copied follow the rule of those that are computed, whatever shard a band lies in.
#[tokio::test]
async fn copied_cubes_have_whole_pixels() {
    let dir = tempfile::tempdir().unwrap();
    let session = Session::builder().cpu_threads(2).build().unwrap();
    let found = found(&session, dir.path()).with_bands(["red", "nir", "class"]);
    let layout = Layout::new(Use::Balanced)
        .with_chunk("1,16,16".parse().unwrap())
        .with_shard("1,32,32".parse().unwrap());
    let options = CubeOptions::new()
        .with_layout(layout)
        .with_grouping(Grouping::SolarDay);
    let rows = [0, 4, 8, 12];
    let none = 0;
    for (fill, red, nir, class) in [
        (
            Fill::Pixel,
            [none, 20, 20, 10],
            [30, 60, 60, 30],
            [0, 2, 2, 1],
        ),
        (Fill::Band, [20, 20, 10, 10], [30; 4], [2, 2, 2, 1]),
    ] {
        let location = Location::parse(dir.path().join(fill.name()).to_str().unwrap()).unwrap();
        let options = options.clone().with_fill(fill);
        let images = || CubeImage::of(&found).unwrap();
        Cube::create(&session, &location, images(), &options)
            .await
            .unwrap();
        let stored = Cube::open(&session, &location).await.unwrap();
        let found = stored.read::<u16>("red", 0..1, None, 0).await.unwrap();
        assert_eq!(rows.map(|row| found[[0, row, 40]]), red, "{fill}");
        let found = stored.read::<u16>("nir", 0..1, None, 0).await.unwrap();
        assert_eq!(rows.map(|row| found[[0, row, 40]]), nir, "{fill}");
        let found = stored.read::<u8>("class", 0..1, None, 0).await.unwrap();
        assert_eq!(rows.map(|row| found[[0, row, 40]]), class, "{fill}");
        // The same again has nothing to do; filled otherwise it is another cube.
        let again = Cube::create(&session, &location, images(), &options).await;
        assert_eq!(again.unwrap().known, 2);
        let other = match fill {
            Fill::Pixel => Fill::Band,
            _ => Fill::Pixel,
        };
        let other = options.clone().with_fill(other);
        let err = Cube::create(&session, &location, images(), &other).await;
        let err = err.unwrap_err();
        assert!(err.message().contains("exists already"), "{err}");
    }
}
