//! From a query to a cube, and a time series out of it, on a testbed: no network is needed.
//!
//! `cargo run -p rss_testbed --example to_zarr`.

#![expect(clippy::print_stdout, reason = "an example prints what it found")]

use rss_core::{
    Collection, DEA, ImageQueryBuilder, Intersects, Location, Resampling, Session, Source, date,
    zarr::{CubeImage, CubeOptions, Layout, PixelIndex, Use},
};
use rss_testbed::{Scenes, Testbed};

fn main() -> anyhow::Result<()> {
    let bed = Testbed::builder().scenes(Scenes::small()).start()?;
    let session = Session::builder().s3_endpoint(&bed.s3_endpoint()).build()?;
    let dea = Source::api(&bed.stac_url())?.like(&DEA);

    let found = ImageQueryBuilder::new(dea, Collection::Sentinel2, Intersects::scene("56jns"))
        .session(session.clone())
        .canonical_bands(["red", "nir"])
        .start_date(date(2021, 1, 1))
        .end_date(date(2021, 2, 1))
        .build()?
        .search()?;

    let dir = tempfile::tempdir()?;
    let location = Location::parse(&dir.path().join("cube.zarr").to_string_lossy())?;
    let options = CubeOptions::new()
        .with_layout(Layout::new(Use::TimeSeries))
        .with_overviews(2, Resampling::Average);
    let written = session.create_cube(&location, CubeImage::of(&found)?, &options)?;
    println!("{} dates in {} shards", written.steps, written.shards);

    let cube = session.open_cube(&location)?;
    let pixel = PixelIndex { col: 300, row: 400 };
    let red = cube.read_series::<i16>("nbart_red", &[pixel])?;
    for (step, value) in cube.cube().steps().iter().zip(&red) {
        println!("{} {value}", step.time.date_naive());
    }
    Ok(())
}
