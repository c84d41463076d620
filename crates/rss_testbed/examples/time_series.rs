//! The reflectance of one field over a month, on a testbed: no network is needed.
//!
//! `cargo run -p rss_testbed --example time_series`.

#![expect(clippy::print_stdout, reason = "an example prints what it found")]

use rss_core::{
    Cmp, Collection, DEA, ImageQueryBuilder, Intersects, Session, Source, Window,
    apply::ImageCubeOptions, date,
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

    let field = "153.005,-25.335,153.010,-25.330".parse()?;
    let options = ImageCubeOptions::new().reflectance().with_bbox(field);
    let cube = session.cube(&found, &options)?;
    let (block, _) = session.read_cube::<f32>(&cube, Window::whole(cube.grid().size))?;
    println!("{}", cube.grid());
    for (time, step) in cube.steps().iter().enumerate() {
        let mean = |band| -> anyhow::Result<f32> {
            let image = block.band(band)?;
            let valid: Vec<f32> = image
                .index_axis(ndarray::Axis(0), time)
                .iter()
                .copied()
                .filter(|v| !v.is_nan())
                .collect();
            Ok(valid.iter().sum::<f32>() / valid.len() as f32)
        };
        println!(
            "{} red {:.3} nir {:.3}",
            step.label,
            mean("red")?,
            mean("nir")?
        );
    }
    Ok(())
}
