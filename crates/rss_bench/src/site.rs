//! Where a bench reads: live Digital Earth Australia, or the same servers on loopback.
//!
//! The query is the same in both: Sentinel-2 scene 56jns, red and near infrared, January 2021, cloud
//! below 30 percent.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use rss_core::{
    Backend, Cmp, Collection, DEA, ImageQueryBuilder, Intersects, Location, OpenRaster, Pixels,
    QueryResult, ReadRequest, SearchReport, Session, SessionBuilder, Source, Window, date,
};
use rss_testbed::{Band, Request, Scenes, Service, Testbed};
use stac::ItemCollection;

use crate::harness;

/// One aligned tile in the top left corner.
pub const BLOCK: Window = Window {
    col: 0,
    row: 0,
    width: 512,
    height: 512,
};

/// What a build is told to measure, by its features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// `bench_testbed`: servers on loopback.
    Testbed,
    /// `bench_live`: live Digital Earth Australia.
    Live,
}

/// Returns the [`Site`](crate::site::Site) of a bench of this name, by the features of the crate that calls it: the testbed
/// where both are on, and none, which the bench then says, where neither is.
#[macro_export]
macro_rules! site {
    ($bench:literal) => {
        $crate::site::Site::of_build(
            $bench,
            if cfg!(feature = "bench_testbed") {
                Some($crate::site::Target::Testbed)
            } else if cfg!(feature = "bench_live") {
                Some($crate::site::Target::Live)
            } else {
                None
            },
        )
    };
}

/// Servers to measure against.
#[derive(Debug)]
pub struct Site {
    /// None is live Digital Earth Australia.
    pub bed: Option<Testbed>,
    /// The endpoint of the objects, where it is not that of live DEA.
    pub s3_endpoint: Option<String>,
}

impl Site {
    /// Live Digital Earth Australia.
    pub const LIVE: Self = Self {
        bed: None,
        s3_endpoint: None,
    };

    /// Returns what [`site!`](crate::site!) names: the testbed 30 ms away, or live DEA. Says that the bench skips where
    /// that is none. A test run is small, and waits for nothing.
    ///
    /// # Errors
    ///
    /// If the testbed cannot be started.
    #[expect(clippy::print_stdout, reason = "a bench reports")]
    pub fn of_build(bench: &str, target: Option<Target>) -> Result<Option<Self>> {
        match target {
            Some(Target::Testbed) => {
                let (scenes, latency) = match harness::is_test() {
                    false => (Scenes::full(), Duration::from_millis(30)),
                    true => (Scenes::small(), Duration::ZERO),
                };
                Self::testbed(scenes, latency).map(Some)
            }
            Some(Target::Live) => Ok(Some(Self::LIVE)),
            None => {
                println!(
                    "{bench}: skipped; --features bench_live measures live DEA, --features \
                     bench_testbed servers on loopback"
                );
                Ok(None)
            }
        }
    }

    /// Starts servers on loopback.
    ///
    /// # Errors
    ///
    /// If a port cannot be bound, or the scenes cannot be made.
    pub fn testbed(scenes: Scenes, latency: Duration) -> Result<Self> {
        let bed = Testbed::builder().scenes(scenes).latency(latency).start()?;
        let s3_endpoint = Some(bed.s3_endpoint());
        Ok(Self {
            bed: Some(bed),
            s3_endpoint,
        })
    }

    /// Returns its name, for reports.
    pub fn name(&self) -> &'static str {
        match self.bed {
            Some(_) => "testbed",
            None => "live DEA",
        }
    }

    /// Starts a session's builder, with a file cache of its own.
    pub fn session(&self, cache: &Path) -> SessionBuilder {
        let builder = Session::builder().cache_dir(cache);
        match &self.s3_endpoint {
            Some(url) => builder.s3_endpoint(url),
            None => builder,
        }
    }

    /// Searches.
    ///
    /// # Errors
    ///
    /// If the search fails, or finds nothing.
    pub fn search(&self, session: &Session) -> Result<QueryResult> {
        let source = match &self.bed {
            Some(bed) => Source::api(&bed.stac_url())?.like(&DEA),
            None => DEA,
        };
        let query =
            ImageQueryBuilder::new(source, Collection::Sentinel2, Intersects::scene("56jns"))
                .session(session.clone())
                .bands(["nbart_red", "nbart_nir_1"])
                .start_date(date(2021, 1, 1))
                .end_date(date(2021, 2, 1))
                .cloudcover((Cmp::Less, 30));
        let found = query.build()?.search()?;
        ensure!(!found.is_empty(), "{} returned no items", self.name());
        Ok(found)
    }

    /// Returns the requests to the objects so far; none where the log is not ours.
    pub fn log(&self) -> Vec<Request> {
        self.bed
            .as_ref()
            .map(|bed| bed.requests(Service::S3))
            .unwrap_or_default()
    }

    /// Forgets the requests so far.
    pub fn clear_log(&self) {
        if let Some(bed) = &self.bed {
            bed.clear_log();
        }
    }

    /// Checks the block of an item's red band against the values that it was made from; live, nothing.
    ///
    /// # Errors
    ///
    /// If a pixel differs.
    pub fn check_truth(&self, item: &str, block: &Pixels) -> Result<()> {
        let Some(bed) = &self.bed else {
            return Ok(());
        };
        let scene = bed.scenes().iter().find(|scene| scene.id == item);
        let scene = scene.with_context(|| format!("no scene {item}"))?;
        let truth = scene.window(Band::Red, BLOCK.col, BLOCK.row, BLOCK.width, BLOCK.height);
        let read = block.view::<i16>().context("not int16")?;
        ensure!(read.iter().eq(&truth), "pixels differ from the truth");
        Ok(())
    }
}

/// Checks that a search came to its end.
///
/// # Errors
///
/// If it did not.
pub fn check_report(report: &SearchReport) -> Result<()> {
    ensure!(report.complete, "the search is not complete: {report:?}");
    Ok(())
}

/// Returns the location of the first item's red band.
///
/// # Errors
///
/// If there is none.
pub fn first_asset(items: &ItemCollection) -> Result<Location> {
    let item = items.items.first().context("no items")?;
    let asset = item.assets.get("nbart_red").context("no red band")?;
    Ok(Location::parse(&asset.href)?)
}

/// Opens a file.
///
/// # Errors
///
/// As [`Session::open`].
pub fn open(session: &Session, location: &Location, backend: Backend) -> Result<OpenRaster> {
    Ok(session.open(location, backend)?)
}

/// Reads [`BLOCK`] of an open file.
///
/// # Errors
///
/// As [`OpenRaster::read`].
pub fn read(raster: &OpenRaster) -> Result<Pixels> {
    Ok(raster.read(&ReadRequest::new().with_window(BLOCK))?.pixels)
}

/// Opens the first asset and reads its block.
///
/// # Errors
///
/// As [`first_asset`], [`open`] and [`read`].
pub fn open_and_read(
    session: &Session,
    items: &ItemCollection,
    backend: Backend,
) -> Result<Pixels> {
    read(&open(session, &first_asset(items)?, backend)?)
}

/// Checks that two blocks hold the same pixels.
///
/// # Errors
///
/// If they do not: that `what`'s differ.
pub fn agree(a: &Pixels, b: &Pixels, what: &str) -> Result<()> {
    ensure!(a == b, "pixels of {what} differ");
    Ok(())
}
