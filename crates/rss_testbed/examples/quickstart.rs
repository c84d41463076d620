//! From a query to pixels in ten lines, on a testbed: no network is needed.
//!
//! `cargo run -p rss_testbed --example quickstart`. Against Digital Earth Australia the same lines
//! start with `ImageQueryBuilder::new(DEA, ..)` and need no session.

#![expect(clippy::print_stdout, reason = "an example prints what it found")]

use rss_core::{
    Backend, Cmp, Collection, DEA, ImageQueryBuilder, Intersects, Location, ReadRequest, Session,
    Source, date,
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

    for item in &found.items().items {
        let red = session.open(
            &Location::parse(&item.assets["nbart_red"].href)?,
            Backend::Auto,
        )?;
        let block = red.read(&ReadRequest::new().with_window("0,0,512,512".parse()?))?;
        println!(
            "{}: {:?} {}",
            item.id,
            block.pixels.shape(),
            block.pixels.dtype()
        );
    }
    Ok(())
}
