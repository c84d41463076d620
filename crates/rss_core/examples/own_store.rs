//! A COG in a store that the program brings itself, and a closure that fails: no network, and no crates but this one and
//! tokio. `cargo run --example own_store`, in the published crate as in a clone.

#![expect(clippy::print_stdout, reason = "an example prints what it found")]

use std::sync::Arc;

use rss_core::{
    Crs, DataType, Error, GeoBox, Location, Pixels, QueryResult, Raster, Session, Trust,
    apply::{ApplyOptions, Block, ImageCube, ImageCubeOptions, time::Grouping},
    ndarray::{Array3, Axis},
    object_store::{ObjectStoreExt, memory::InMemory, path::Path},
    stac::{Asset, Item},
    writer::{self, CogOptions},
};

/// Returns a COG of 300 x 200 pixels of 10 m near Brisbane, all of them 1.
async fn cog() -> Result<Vec<u8>, Error> {
    let edges = [500_000.0, 6_960_000.0, 503_000.0, 6_962_000.0];
    let geobox = GeoBox::of_bounds(Crs::Epsg(32756), edges, 10.0)?;
    let mut pixels = Pixels::zeros(DataType::I16, 1, geobox.size)?;
    if let Some(mut samples) = pixels.view_mut::<i16>() {
        samples.fill(1);
    }
    let raster = Raster {
        pixels,
        geobox,
        nodata: None,
        sparse: Vec::new(),
    };
    let file = std::env::temp_dir().join(format!("own-store-{}.tif", std::process::id()));
    let to = Location::parse(&file.to_string_lossy())?;
    let session = Session::builder().build()?;
    writer::save(&session, &to, &raster, &CogOptions::new()).await?;
    let bytes = std::fs::read(&file).map_err(Error::other)?;
    std::fs::remove_file(&file).map_err(Error::other)?;
    Ok(bytes)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let store = Arc::new(InMemory::new());
    let key = Path::from("scenes/a.tif");
    let put = store.put(&key, cog().await?.into()).await;
    put.map_err(Error::other)?;
    let session = Session::builder().store("s3://mine", store).build()?;

    let mut item = Item::new("a");
    let red = Asset::new("s3://mine/scenes/a.tif");
    item.assets.insert("red".to_owned(), red);
    let found = QueryResult::from_items(&session, vec![item].into(), Trust::User);
    let options = ImageCubeOptions::new().with_grouping(Grouping::Item);
    let cube = ImageCube::of(&found.with_bands(["red"]), &options).await?;

    let double = |block: &Block<i16>| Ok(block.data().index_axis(Axis(0), 0).to_owned() * 2);
    let (raster, _) = cube.apply(ApplyOptions::new(), double).raster().await?;
    let sum: f64 = raster.pixels.to_f64().iter().sum();
    println!("{}, whose pixels sum up to {sum}", raster.geobox);

    let fails = |_: &Block<i16>| Err::<Array3<i16>, _>(Error::other("no rule for ones"));
    match cube.apply(ApplyOptions::new(), fails).raster().await {
        Ok(_) => Err(Error::other("the error of the closure was lost")),
        Err(err) => {
            println!("the closure said: {err}");
            Ok(())
        }
    }
}
