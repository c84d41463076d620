//! One window by ranged requests: one after another, side by side, in small pieces, or merged?
//!
//! A GeoTrellis decision record measured this from three places: a window of a Landsat band in pairs of
//! ranges, 64 KiB and the rest of some 2 MB, serially and in parallel pieces of at most 10 kB. Here the
//! networks are models of those places ([`rss_testbed::Profile`]), and the reads are real.

pub(crate) mod files;
mod lane;
mod layout;
pub(crate) mod network;
mod report;
mod text;

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use tokio::{sync::mpsc, task::JoinSet};

use self::files::Image;
pub(crate) use self::{
    files::File, lane::Lane, network::Network, report::Report, text::ranges_table,
};
use crate::{
    Origin, Program, Step, Watch,
    servers::{Servers, Stock, open_many_files},
};

/// Bytes of the first range of a pair.
const FIRST_BYTES: u64 = 64 << 10;
/// The scale over the slowest line: 12 MB over it would take half a minute each time.
const HOME_SCALE: f64 = 1.0 / 6.0;

/// How the window's bytes are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
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
    pub(crate) fn name(self) -> String {
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
pub(crate) struct Settings {
    /// Reads of each way after the first and the second one, which warm up.
    pub(crate) iterations: usize,
    /// The networks.
    pub(crate) profiles: Vec<Network>,
    /// The sizes of pieces, in bytes.
    pub(crate) pieces: Vec<u64>,
    /// The width of the window: 1 is six tiles, as many bytes as the document's window. None is 1, but
    /// a sixth for the home line, so that all ends in some two minutes.
    pub(crate) scale: Option<f64>,
}

impl Settings {
    /// Says what cannot be run.
    ///
    /// # Errors
    ///
    /// The first number that is out of range.
    pub(crate) fn check(&self) -> Result<()> {
        let iterations = self.iterations;
        ensure!(
            (1..=1000).contains(&iterations),
            "--iterations is {iterations}, expected 1 to 1000"
        );
        if let Some(scale) = self.scale {
            ensure!(
                scale > 0.0 && scale <= 2.0,
                "--scale is {scale}, expected more than 0 and at most 2"
            );
        }
        ensure!(!self.profiles.is_empty(), "--profile names none");
        for &bytes in &self.pieces {
            ensure!(
                (1000..=1 << 30).contains(&bytes),
                "--pieces is {bytes}, expected 1000 to 1073741824 bytes"
            );
        }
        Ok(())
    }

    /// Returns the images over a network.
    pub(crate) fn image(&self, network: Network) -> Image {
        Image::of(self.scale.unwrap_or(match network {
            Network::Home => HOME_SCALE,
            Network::OtherRegion | Network::SameRegion => 1.0,
        }))
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

/// Runs the comparison.
///
/// # Errors
///
/// As [`Settings::check`]; if a read fails, or two ways do not return the same pixels.
pub(crate) async fn run(
    settings: &Settings,
    origin: Origin,
    program: &Program,
    watch: Watch<'_>,
) -> Result<Report> {
    settings.check()?;
    open_many_files();
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
    let placed = |plan: &lane::Plan| (plan.network, settings.image(plan.network));
    let stock = Stock::Ranges {
        servers: plans.iter().map(placed).collect(),
    };
    let mut servers = Servers::start(program, &stock).await?;
    let readers = readers(settings, &plans, &servers.endpoints).await?;
    for server in 0..readers.len() {
        servers.asked(server).await?;
    }
    // Lines are slow and leave the machine idle, so the ways over them run side by side: those over slow
    // lines first, then the others, which need some of the machine.
    let (slow, fast): (Vec<_>, Vec<_>) = readers
        .into_iter()
        .partition(|reader| reader.plan.network.is_slow());
    let mut found: Vec<Lane> = Vec::with_capacity(plans.len());
    let mut done = 0;
    for side_by_side in [slow, fast] {
        let mut tasks = JoinSet::new();
        let (say, mut said) = mpsc::unbounded_channel();
        for reader in side_by_side {
            let lane::Plan { network, file, way } = reader.plan;
            let run = lane::run(reader, settings.iterations, say.clone());
            let named = move || format!("{network}, {}, {}", file.name(), way.name());
            tasks.spawn(async move { run.await.with_context(named) });
        }
        drop(say);
        while let Some(lane::Plan { network, file, way }) = said.recv().await {
            done += 1;
            watch(Step {
                done,
                of,
                now: &format!("{network}, {}, {}", file.name(), way.name()),
            });
        }
        while let Some(lane) = tasks.join_next().await {
            found.push(lane??);
        }
    }
    let mut lanes: Vec<Lane> = Vec::with_capacity(plans.len());
    let reads = (settings.iterations + lane::WARM_UP) as u64;
    for (server, plan) in plans.iter().enumerate() {
        let ran = |lane: &&Lane| {
            lane.network == plan.network && lane.file == plan.file && lane.way == plan.way
        };
        let mut lane = found.iter().find(ran).context("a way was not run")?.clone();
        let asked = servers.asked(server).await?;
        lane.requests = asked.requests as f64 / reads as f64;
        lane.bytes = asked.bytes / reads;
        lanes.push(lane);
    }
    check_pixels(&lanes)?;
    Ok(Report::new(
        origin,
        settings.clone(),
        lanes,
        start.elapsed(),
    ))
}

/// Returns what reads each lane. Each header is read once.
async fn readers(
    settings: &Settings,
    plans: &[lane::Plan],
    endpoints: &[String],
) -> Result<Vec<lane::Reader>> {
    let mut all: Vec<lane::Known> = Vec::new();
    let mut readers = Vec::with_capacity(plans.len());
    for (&plan, endpoint) in plans.iter().zip(endpoints) {
        let image = settings.image(plan.network);
        let known = match all.iter().find(|known| known.is_of(plan.file, image)) {
            Some(known) => known.clone(),
            None => {
                let known = lane::Known::of(plan.file, endpoint, image).await?;
                all.push(known.clone());
                known
            }
        };
        readers.push(lane::Reader::new(plan, endpoint, &known).await?);
    }
    Ok(readers)
}

/// Checks that all ways over a network returned the same pixels.
fn check_pixels(lanes: &[Lane]) -> Result<()> {
    for lane in lanes {
        let first = lanes.iter().find(|first| first.network == lane.network);
        if let Some(first) = first.filter(|first| first.sha256 != lane.sha256) {
            bail!(
                "{} of the {} file returns other pixels than {} of the {} file",
                lane.way.name(),
                lane.file.name(),
                first.way.name(),
                first.file.name()
            );
        }
    }
    Ok(())
}
