//! From a query to a vegetation index of each date, block by block, on a testbed: no network is needed.
//!
//! `cargo run -p rss_testbed --example ndvi -- ndvi.png`: the first three dates as red, green and blue, so that what
//! changes from one to the other has a colour. Any other ending that rasters have will do, and no file too.

#![expect(clippy::print_stdout, reason = "an example prints what it found")]

use std::path::Path;

use rss_core::{
    Cmp, Collection, DEA, ImageQueryBuilder, Intersects, Session, Source,
    apply::{ApplyOptions, Block, ImageCubeOptions},
    date,
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
        .cloudcover((Cmp::Less, 30))
        .build()?
        .search()?;

    let cube = session.cube(&found, &ImageCubeOptions::new().reflectance())?;
    let dates = cube
        .steps()
        .iter()
        .map(|step| format!("ndvi {}", step.label));
    let ndvi = cube.apply(
        ApplyOptions::new().with_names(dates),
        |block: &Block<f32>| {
            let (red, nir) = (block.band("red")?, block.band("nir")?);
            Ok((&nir - &red) / (&nir + &red))
        },
    );
    let (raster, report) = session.compute(ndvi)?;
    if let Some(path) = std::env::args().nth(1) {
        raster.save(Path::new(&path))?;
    }
    println!("{} blocks of {}", report.blocks, raster.geobox);
    for (step, samples) in cube
        .steps()
        .iter()
        .zip(raster.pixels.to_f64().chunks(1200 * 1200))
    {
        let valid: Vec<f64> = samples
            .iter()
            .copied()
            .filter(|value| value.is_finite())
            .collect();
        let mean = valid.iter().sum::<f64>() / valid.len() as f64;
        println!("{}: mean {mean:.3} of {} pixels", step.label, valid.len());
    }
    Ok(())
}
