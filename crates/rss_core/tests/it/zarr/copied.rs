//! Copied cubes of images either side of longitude 180, and of catalogues that differ from their files.

use std::path::Path;

use ndarray::{Array3, s};
use rss_core::{
    Crs, GeoBox, GeoTransform, Pixels, QueryResult, Raster, Session, Size, Trust,
    apply::{ApplyOptions, Block, ImageCube, ImageCubeOptions},
    zarr::{Cube, CubeImage, CubeOptions},
};
use serde_json::{Value, json};

use super::cubes::{image, place, session, small};

/// A raster in degrees of `width` x 10 pixels of a quarter of a degree, whose samples are `first` and the next columns.
fn degrees(first: i16, west: f64, width: u32) -> Raster {
    let columns = width as usize;
    let pixels = Array3::from_shape_fn((1, 10, columns), |(_, _, col)| {
        first + i16::try_from(col).unwrap()
    });
    Raster {
        pixels: Pixels::I16(pixels),
        geobox: GeoBox {
            size: Size { width, height: 10 },
            crs: Some(Crs::Epsg(4326)),
            transform: Some(GeoTransform([west, 0.25, 0.0, -16.0, 0.0, -0.25])),
        },
        nodata: Some((-1).into()),
        sparse: Vec::new(),
    }
}

/// The first row of each time step.
async fn rows(cube: &Cube) -> Vec<Vec<i16>> {
    let all = cube.read::<i16>("red", 0..cube.steps().len(), None, 0);
    let all = all.await.unwrap();
    let rows = all.slice(s![.., 0, ..]);
    rows.outer_iter().map(|row| row.to_vec()).collect()
}

#[tokio::test]
async fn images_either_side_of_180_are_one_narrow_cube() {
    let dir = tempfile::tempdir().unwrap();
    let (session, location) = (session(), place(&dir.path().join("cube")));
    let east = image(1, degrees(0, 179.0, 4));
    let west = image(2, degrees(100, -180.0, 4));
    Cube::create(&session, &location, vec![east, west], &small())
        .await
        .unwrap();
    let cube = Cube::open(&session, &location).await.unwrap();
    assert_eq!(cube.grid().bounds(), Some([179.0, -18.5, 181.0, -16.0]));
    let first = [0, 1, 2, 3, -1, -1, -1, -1];
    let second = [-1, -1, -1, -1, 100, 101, 102, 103];
    assert_eq!(rows(&cube).await, [first, second]);
    // What is appended lies at any turn; a map of the globe at both ends.
    let far = image(3, degrees(200, 540.0, 2));
    let globe = image(4, degrees(0, -180.0, 1440));
    let more = vec![far, globe];
    Cube::append(&session, &location, more, &small())
        .await
        .unwrap();
    let cube = Cube::open(&session, &location).await.unwrap();
    assert_eq!(cube.grid().bounds(), Some([179.0, -18.5, 181.0, -16.0]));
    let third = [-1, -1, -1, -1, 200, 201, -1, -1];
    let fourth = [1436, 1437, 1438, 1439, 0, 1, 2, 3];
    assert_eq!(rows(&cube).await, [first, second, third, fourth]);
    // Onto a grid of the globe, and images that are not aligned a turn further.
    let location = place(&dir.path().join("globe"));
    let mut whole = small();
    whole.grid = Some(degrees(0, -180.0, 1440).geobox);
    let both = vec![image(1, degrees(0, 179.0, 8))];
    Cube::create(&session, &location, both, &whole)
        .await
        .unwrap();
    let cube = Cube::open(&session, &location).await.unwrap();
    let all = rows(&cube).await.remove(0);
    assert_eq!(
        (&all[..5], &all[1435..]),
        (&[4, 5, 6, 7, -1][..], &[-1, 0, 1, 2, 3][..])
    );
}

struct Files {
    dir: tempfile::TempDir,
    items: Vec<Value>,
}

impl Files {
    /// Adds an item of one file, which differs from what the item states of it by `asset`.
    fn add(&mut self, raster: &Raster, asset: &Value) {
        let day = self.items.len() + 1;
        let path = self.dir.path().join(format!("{day}.tif"));
        raster.save(&path).unwrap();
        let mut red = json!({"href": path});
        red.as_object_mut()
            .unwrap()
            .extend(asset.as_object().unwrap().clone());
        self.items.push(json!({
            "type": "Feature", "stac_version": "1.1.0", "id": format!("day-{day}"), "geometry": null,
            "bbox": [178, -18, 179, -16], "links": [], "assets": {"red": red},
            "properties": {"datetime": format!("2021-01-{day:02}T12:00:00Z")},
        }));
    }

    fn found(&self, session: &Session) -> QueryResult {
        let all = json!({"type": "FeatureCollection", "features": self.items});
        QueryResult::from_json(session, all.to_string().as_bytes(), Trust::User).unwrap()
    }

    async fn copied(&self, session: &Session, path: &Path) -> (Cube, Vec<String>) {
        let images = CubeImage::of(&self.found(session)).unwrap();
        let options = CubeOptions::new();
        let written = Cube::create(session, &place(path), images, &options)
            .await
            .unwrap();
        (
            Cube::open(session, &place(path)).await.unwrap(),
            written.notes,
        )
    }
}

#[tokio::test]
async fn what_item_and_file_state_otherwise_is_noted_as_by_apply() {
    let session = session();
    let mut files = Files {
        dir: tempfile::tempdir().unwrap(),
        items: Vec::new(),
    };
    let raster = degrees(0, 178.0, 4);
    let stated = json!({
        "proj:code": "EPSG:4326", "proj:shape": [10, 2], "proj:transform": [0.25, 0, 178, 0, -0.25, -16],
        "data_type": "uint8", "nodata": 3, "raster:scale": 0.5, "raster:offset": 1,
    });
    files.add(&raster, &stated);
    files.add(&raster, &stated);
    let path = files.dir.path().join("cube");
    let (cube, notes) = files.copied(&session, &path).await;
    assert_eq!(
        notes,
        [
            "asset red: the file states nodata -1, the catalogue 3: the file's is taken (item day-1, and 1 more)",
            "asset red: the item states EPSG:4326, 0.25 degrees, 2 x 10 from 178, -16, the file EPSG:4326, 0.25 degrees, 4 x 10 \
         from 178, -16: the file's grid is taken (item day-1, and 1 more)",
            "asset red: the item states samples of uint8, the file int16: the file's are taken (item day-1, and 1 more)",
        ]
    );
    assert_eq!(cube.grid().size.width, 4);
    assert_eq!(cube.bands()[0].nodata, Some((-1).into()));
    // The same words.
    let found = files.found(&session);
    let loaded = ImageCube::of(&found, &ImageCubeOptions::new())
        .await
        .unwrap();
    let work = loaded.apply(ApplyOptions::new(), |block: &Block<i16>| {
        Ok(block.band("red")?.to_owned())
    });
    work.raster().await.unwrap();
    assert_eq!(loaded.input_notes(), notes);
}

#[tokio::test]
async fn the_nodata_value_of_the_item_is_of_files_that_state_none() {
    let session = session();
    let mut files = Files {
        dir: tempfile::tempdir().unwrap(),
        items: Vec::new(),
    };
    let mut raster = degrees(0, 178.0, 4);
    raster.nodata = None;
    files.add(&raster, &json!({"nodata": 2}));
    let path = files.dir.path().join("cube");
    let (cube, notes) = files.copied(&session, &path).await;
    assert_eq!(cube.bands()[0].nodata, Some(2.into()));
    assert_eq!(notes, [""; 0]);
    // What the user says comes first.
    let images = CubeImage::of(&files.found(&session)).unwrap();
    let location = place(&files.dir.path().join("chosen"));
    let chosen = small().with_nodata(0);
    Cube::create(&session, &location, images, &chosen)
        .await
        .unwrap();
    let cube = Cube::open(&session, &location).await.unwrap();
    assert_eq!(cube.bands()[0].nodata, Some(0.into()));
    // A cube without one stays so.
    let plain = place(&files.dir.path().join("plain"));
    let before = "2020-12-31T00:00:00Z".parse().unwrap();
    let bare = CubeImage::new("bare", before).with_band("red", raster);
    Cube::create(&session, &plain, vec![bare], &small())
        .await
        .unwrap();
    let images = CubeImage::of(&files.found(&session)).unwrap();
    Cube::append(&session, &plain, images, &small())
        .await
        .unwrap();
    let cube = Cube::open(&session, &plain).await.unwrap();
    assert_eq!((cube.bands()[0].nodata, cube.steps().len()), (None, 2));
}
