//! One window by ranged requests: one after another, side by side, in small pieces, or merged?
//!
//! A GeoTrellis decision record measured this from three places: a window of a Landsat band in pairs of
//! ranges, 64 KiB and the rest of some 2 MB, serially and in parallel pieces of at most 10 kB. Here the
//! networks are models of those places ([`rss_testbed::Profile`]), and the reads are real.

mod lane;
mod layout;
mod report;
mod text;

use std::{fmt, str::FromStr, time::Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use rss_testbed::Profile;
use serde::{Deserialize, Serialize};

pub(crate) use self::text::ranges_table;
pub use self::{
    lane::{Lane, Row},
    report::{Finding, Report, Verdict},
};
use crate::{
    Origin, Program, Step, Watch, gather,
    servers::{Servers, Stock},
};

/// Rows of a strip.
pub(crate) const STRIP: u32 = 64;
/// Pixels a side of a tile.
const TILE: u32 = 512;
/// Tiles of the window from top to bottom: each row of them is one pair of ranges.
const PAIRS: u32 = 5;
/// Tiles of the window from left to right at scale 1: 12 MB, as the document's window.
const FULL_COLS: f64 = 6.0;
/// Bytes of the first range of a pair.
const FIRST_BYTES: u64 = 64 << 10;
/// A line slower than this leaves the machine idle: what reads over such lines runs side by side.
const SLOW_BYTES_PER_S: u64 = 8_000_000;

/// A network between reader and bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// A home line far away.
    Home,
    /// A machine in another region.
    OtherRegion,
    /// A machine in the bucket's region.
    SameRegion,
}

impl Network {
    /// All of them, slowest first.
    pub const ALL: &[Self] = &[Self::Home, Self::OtherRegion, Self::SameRegion];

    /// Returns the name that the command line uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::OtherRegion => "other-region",
            Self::SameRegion => "same-region",
        }
    }

    /// Returns its numbers.
    pub fn profile(self) -> Profile {
        match self {
            Self::Home => Profile::HOME,
            Self::OtherRegion => Profile::OTHER_REGION,
            Self::SameRegion => Profile::SAME_REGION,
        }
    }

    /// Returns its numbers in words.
    pub fn about(self) -> String {
        let profile = self.profile();
        let rate = |rate: Option<u64>| match rate {
            Some(rate) => format!("{:.2} MB/s", rate as f64 / 1e6),
            None => "any rate".to_owned(),
        };
        format!(
            "first byte after {} to {} ms, {} more on a new connection; {} per connection, {} in all",
            profile.latency.as_millis(),
            (profile.latency + profile.jitter).as_millis(),
            profile.handshake.as_millis(),
            rate(profile.connection),
            rate(profile.line)
        )
    }

    fn is_slow(self) -> bool {
        self.profile()
            .line
            .is_some_and(|rate| rate < SLOW_BYTES_PER_S)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Network {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let names: Vec<&str> = Self::ALL.iter().map(|network| network.name()).collect();
        let named = |network: &&Self| network.name() == text;
        let found = Self::ALL.iter().find(named).copied();
        found.with_context(|| format!("profile `{text}` is not one of {}", names.join(", ")))
    }
}

/// A file with the window's pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum File {
    /// Strips as wide as the image.
    Striped,
    /// Tiles of 512 x 512.
    Tiled,
}

impl File {
    /// Both.
    pub const ALL: &[Self] = &[Self::Striped, Self::Tiled];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Striped => "striped",
            Self::Tiled => "tiled",
        }
    }

    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::Striped => "striped.tif",
            Self::Tiled => "tiled.tif",
        }
    }
}

/// How the window's bytes are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// One range after another.
    Serial,
    /// All ranges at once.
    Parallel,
    /// All at once, in pieces of at most so many bytes.
    Split(u64),
    /// As the COG reader of `rss_core` plans it: neighbours merged, long runs cut.
    Coalesced,
}

impl Way {
    /// Returns its name.
    pub fn name(self) -> String {
        match self {
            Self::Serial => "serial".to_owned(),
            Self::Parallel => "parallel".to_owned(),
            Self::Split(bytes) if bytes % 1024 == 0 => format!("split {} KiB", bytes / 1024),
            Self::Split(bytes) => format!("split {bytes} B"),
            Self::Coalesced => "coalesced".to_owned(),
        }
    }
}

impl Serialize for Way {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

/// What is compared.
#[derive(Clone, Debug, Serialize)]
pub struct Settings {
    /// Reads of each way after the first and the second one, which warm up.
    pub iterations: usize,
    /// The networks.
    pub profiles: Vec<Network>,
    /// The sizes of pieces, in bytes.
    pub pieces: Vec<u64>,
    /// The width of the window: 1 is six tiles, as many bytes as the document's window.
    pub scale: f64,
}

impl Settings {
    /// Says what cannot be run.
    ///
    /// # Errors
    ///
    /// The first number that is out of range.
    pub fn check(&self) -> Result<()> {
        let (iterations, scale) = (self.iterations, self.scale);
        ensure!(
            (1..=1000).contains(&iterations),
            "--iterations is {iterations}, expected 1 to 1000"
        );
        ensure!(
            scale > 0.0 && scale <= 2.0,
            "--scale is {scale}, expected more than 0 and at most 2"
        );
        ensure!(!self.profiles.is_empty(), "--profile names none");
        for &bytes in &self.pieces {
            ensure!(
                bytes >= 1000,
                "--pieces is {bytes}, expected at least 1000 bytes"
            );
        }
        Ok(())
    }

    fn ways(&self) -> Vec<Way> {
        let split = self.pieces.iter().map(|&bytes| Way::Split(bytes));
        [Way::Serial, Way::Parallel]
            .into_iter()
            .chain(split)
            .chain([Way::Coalesced])
            .collect()
    }
}

/// The images that hold the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// Of the window in pixels; the tiled image has one more column of tiles.
    pub(crate) width: u32,
    /// The window begins at the second row of tiles.
    pub(crate) height: u32,
}

impl Image {
    pub(crate) fn of(scale: f64) -> Self {
        let cols = (FULL_COLS * scale).round().max(1.0) as u32;
        Self {
            width: cols * TILE,
            height: (PAIRS + 1) * TILE,
        }
    }
}

/// Returns a pixel. Each row of tiles compresses to another size, as real ones do.
pub(crate) fn pixel(col: u32, row: u32) -> i16 {
    let amplitude = [2048, 2048, 1450, 1024, 700, 512];
    let amplitude = amplitude.get((row / TILE) as usize).copied().unwrap_or(512);
    gather::noisy(77, amplitude, col, row)
}

/// Runs the comparison.
///
/// # Errors
///
/// As [`Settings::check`]; if a read fails, or two ways do not return the same pixels.
pub async fn run(
    settings: &Settings,
    origin: Origin,
    program: &Program,
    watch: Watch<'_>,
) -> Result<Report> {
    settings.check()?;
    let start = Instant::now();
    let mut plans = Vec::new();
    for &network in &settings.profiles {
        for &file in File::ALL {
            for way in settings.ways() {
                plans.push(lane::Plan { network, file, way });
            }
        }
    }
    let of = plans.len() * settings.iterations;
    watch(Step {
        done: 0,
        of,
        now: "making files",
    });
    // A server of its own for each: lines are not shared.
    let servers = plans.iter().map(|plan| plan.network).collect();
    let stock = Stock::Ranges {
        scale: settings.scale,
        servers,
    };
    let mut servers = Servers::start(program, &stock).await?;
    let image = Image::of(settings.scale);
    // The last server gives the headers: networks are named slowest first.
    let quick = servers.endpoints.len().saturating_sub(1);
    let endpoint = servers.endpoints.get(quick).cloned().unwrap_or_default();
    let striped = lane::Known::of(File::Striped, &endpoint, image).await?;
    let tiled = lane::Known::of(File::Tiled, &endpoint, image).await?;
    servers.asked(quick).await?;
    let done = std::sync::atomic::AtomicUsize::new(0);
    let step = |plan: &lane::Plan| {
        let done = done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        let now = format!(
            "{}, {}, {}",
            plan.network,
            plan.file.name(),
            plan.way.name()
        );
        watch(Step {
            done,
            of,
            now: &now,
        });
    };
    let named: Vec<_> = plans.iter().zip(servers.endpoints.clone()).collect();
    let (slow, fast): (Vec<_>, Vec<_>) = named
        .into_iter()
        .partition(|(plan, _)| plan.network.is_slow());
    let run = |(plan, endpoint): (&lane::Plan, String)| {
        let (plan, step) = (*plan, &step);
        let known = match plan.file {
            File::Striped => &striped,
            File::Tiled => &tiled,
        };
        async move {
            let done = || step(&plan);
            lane::run(plan, known, &endpoint, image, settings.iterations, done).await
        }
    };
    let fast: Vec<Lane> = stream::iter(fast.into_iter().map(run))
        .buffered(1)
        .try_collect()
        .await?;
    let at_once = slow.len().max(1);
    let slow: Vec<Lane> = stream::iter(slow.into_iter().map(run))
        .buffered(at_once)
        .try_collect()
        .await?;
    let mut lanes: Vec<Lane> = Vec::with_capacity(plans.len());
    let reads = (settings.iterations + lane::WARM_UP) as f64;
    for (server, plan) in plans.iter().enumerate() {
        let ran = |lane: &&Lane| {
            lane.network == plan.network && lane.file == plan.file && lane.way == plan.way
        };
        let found = slow.iter().chain(&fast).find(ran);
        let mut lane = found.context("a way was not run")?.clone();
        lane.requests = servers.asked(server).await?.requests as f64 / reads;
        lanes.push(lane);
    }
    if let Some(first) = lanes.first() {
        for lane in &lanes {
            if lane.sha256 != first.sha256 {
                bail!(
                    "{} of the {} file returns other pixels than {}",
                    lane.way.name(),
                    lane.file.name(),
                    first.way.name()
                );
            }
        }
    }
    Ok(Report::new(
        origin,
        settings.clone(),
        image,
        lanes,
        start.elapsed(),
    ))
}
