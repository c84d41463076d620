//! A cloud-free picture of a month as a COG, on a testbed: no network is needed.
//!
//! `cargo run -p rss_testbed --example median_composite -- median.tif`.

#![expect(clippy::print_stdout, reason = "an example prints what it found")]

use rss_core::{
    Cmp, Collection, DEA, ImageQueryBuilder, Intersects, Location, Session, Source,
    apply::{ApplyOptions, ImageCubeOptions, reduce::Reducer},
    date,
    mask::Cleanup,
    writer::CogOptions,
};
use rss_testbed::{Scenes, Testbed};

fn main() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let usual = dir.path().join("median.tif");
    let path = std::env::args().nth(1).map_or(usual, Into::into);
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

    let clear = Cleanup::default().with_dilation(3);
    let options = ImageCubeOptions::new()
        .reflectance()
        .with_mask("clouds".parse()?, clear);
    let cube = session.cube(&found, &options)?;
    let median = cube.reduce(Reducer::Median, ApplyOptions::new());
    let to = Location::parse(&path.to_string_lossy())?;
    let (written, report) = session.compute_cog(median, &to, &CogOptions::new())?;
    println!(
        "{}: {} dates of {}, {} bytes, {} missing_inputs",
        path.display(),
        cube.steps().len(),
        cube.grid(),
        written.bytes,
        report.missing_inputs.len()
    );
    Ok(())
}
