//! Sharded arrays: who writes, reads and cuts them fastest, and how small are they?
//!
//! The benchmark of zarrita beside WKW and zarr-python, with this library and the crate `zarrs` put beside
//! them. A volume as a microscope sees it, its labels, and a cube of images; each system is a process of
//! its own that is asked by lines of JSON, so what it costs is its own. What they read must be the same.

mod job;
mod report;
mod source;
mod system;
mod text;
mod worker;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rss_testbed::Volume;
use serde::Serialize;

use self::{
    job::{Cost, Cut, Job, Whole},
    report::Laps,
    system::{Process, WKW},
};
pub(crate) use self::{
    report::{Beside, Cutout, Finding, Measure, Measured, Report, Row, Verdict},
    source::Source,
    system::{OURS, OURS_LZ4, Peer, System},
    text::case_table,
    worker::worker,
};
use crate::{Origin, Program, Step, Watch};

/// The longest side of a volume: the seed's.
const MOST_SIDE: u32 = 1024;
/// The shortest one.
const LEAST_SIDE: u32 = 64;
/// The shortest side of an inner chunk.
const LEAST_INNER: u32 = 8;
/// Voxels a side of a cutout.
const CUTOUT: u64 = 32;
/// Pixels a side of a map.
const MAP: u64 = 512;
/// Pixels a side of a chunk of images, and dates of it.
const EO_CHUNK: (u64, u64) = (128, 8);
/// Times that a box is cut out, one after the other.
const TIMES: usize = 9;

/// What is compared.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Settings {
    /// Voxels a side of a volume; images have four times as many pixels.
    pub(crate) side: u32,
    /// Voxels a side of an inner chunk, one comparison for each.
    pub(crate) inner: Vec<u32>,
    /// Times that each system writes and reads; all have their turn before the next time.
    pub(crate) rounds: usize,
    /// The data sets.
    pub(crate) data: Vec<Volume>,
    /// The systems beside those in Rust.
    pub(crate) peers: Vec<Peer>,
    /// Where data and arrays lie, and stay. None is a temporary folder, which is removed.
    pub(crate) dir: Option<PathBuf>,
}

impl Settings {
    /// Says what cannot be run.
    ///
    /// # Errors
    ///
    /// The first number that is out of range, or a name that stands for two.
    pub(crate) fn check(&self) -> Result<()> {
        let side = self.side;
        ensure!(
            side.is_power_of_two() && (LEAST_SIDE..=MOST_SIDE).contains(&side),
            "--side is {side}, expected a power of two from {LEAST_SIDE} to {MOST_SIDE}"
        );
        ensure!(!self.inner.is_empty(), "--inner names no number");
        for &inner in &self.inner {
            ensure!(
                inner.is_power_of_two() && (LEAST_INNER..=side / 2).contains(&inner),
                "--inner is {inner}, expected a power of two from {LEAST_INNER} to {}, half of --side",
                side / 2
            );
        }
        let rounds = self.rounds;
        ensure!(
            (1..=100).contains(&rounds),
            "--rounds is {rounds}, expected 1 to 100"
        );
        ensure!(!self.data.is_empty(), "--data names none");
        System::check(&self.peers)?;
        if let Some(dir) = &self.dir {
            ensure!(
                dir.is_dir() || !dir.exists(),
                "--dir is {}, which is no folder",
                dir.display()
            );
        }
        Ok(())
    }

    /// Returns what is measured, in the order of the report.
    fn cases(&self) -> Vec<Case> {
        self.data
            .iter()
            .flat_map(|&data| {
                let inner: &[u32] = match data {
                    Volume::Color | Volume::Segmentation => &self.inner,
                    // Images are cut in their own way.
                    Volume::Eo => &[0],
                };
                inner.iter().map(move |&inner| (data, u64::from(inner)))
            })
            .map(|(data, inner)| Case::new(data, self.side, inner))
            .collect()
    }
}

/// A data set in chunks and shards of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Case {
    data: Volume,
    shape: Vec<u64>,
    chunk: Vec<u64>,
    shard: Vec<u64>,
}

impl Case {
    fn new(data: Volume, side: u32, inner: u64) -> Self {
        let half = u64::from(side) / 2;
        let (chunk, shard) = match data {
            Volume::Color | Volume::Segmentation => (vec![inner; 3], vec![half; 3]),
            Volume::Eo => {
                // Sixteen shards for each band; at the seed's side they are 1024 pixels wide.
                let (wide, (across, dates)) = (2 * half, EO_CHUNK);
                let across = across.min(wide);
                (vec![dates, 1, across, across], vec![16, 1, wide, wide])
            }
        };
        Self {
            data,
            shape: data.shape(side),
            chunk,
            shard,
        }
    }

    /// Returns the boxes of a round: at other offsets than the rounds before, the same for all systems.
    fn cutouts(&self, round: usize) -> Vec<Cutout> {
        let shapes: &[(&'static str, &[u64])] = match self.data {
            Volume::Color | Volume::Segmentation => &[("cutout", &[CUTOUT; 3])],
            Volume::Eo => &[
                ("series", &[u64::MAX, u64::MAX, 1, 1]),
                ("map", &[1, 1, MAP, MAP]),
            ],
        };
        let cutouts = shapes.iter().map(|(name, shape)| {
            let shape: Vec<u64> = shape
                .iter()
                .zip(&self.shape)
                .map(|(&length, &of)| length.min(of))
                .collect();
            // Aligned to its own size: no more chunks than it needs.
            let offset = (0..).zip(shape.iter().zip(&self.shape));
            let offset = offset.map(|(axis, (length, of))| {
                let boxes = of / length;
                (round as u64 * 7 + 3 + axis * 5) * 2_654_435_761 % boxes * length
            });
            Cutout {
                name,
                offset: offset.collect(),
                shape,
            }
        });
        cutouts.collect()
    }
}

/// Runs the comparison.
///
/// # Errors
///
/// As [`Settings::check`]; if the data cannot be made, a system in Rust fails, or any system reads other
/// samples than were stored. What another system cannot do is said in its row.
pub(crate) async fn run(
    settings: &Settings,
    origin: Origin,
    program: &Program,
    watch: Watch<'_>,
) -> Result<Report> {
    settings.check()?;
    let start = Instant::now();
    let folder = Folder::new(settings.dir.as_deref())?;
    let mut lanes: Vec<Lane> = System::all(&settings.peers)
        .into_iter()
        .map(|system| Lane {
            system,
            process: None,
        })
        .collect();
    let cases = settings.cases();
    let of = cases.len() * settings.rounds * lanes.len();
    let mut done = 0;
    let mut sources: Vec<Source> = Vec::new();
    let mut rows = Vec::new();
    for case in &cases {
        let known = sources.iter().find(|source| source.data == case.data);
        let source = match known {
            Some(source) => source.clone(),
            None => {
                watch(Step {
                    done,
                    of,
                    now: &format!("making {}", case.data.name()),
                });
                // One at a time: the largest is 4 GB.
                if let Some(last) = sources.last() {
                    folder.forget(&last.path)?;
                }
                let (data, side, at) = (case.data, settings.side, folder.path.clone());
                let make = move || Source::make(data, side, &at);
                let made = tokio::task::spawn_blocking(make).await??;
                sources.push(made.clone());
                made
            }
        };
        let mut laps = vec![Laps::default(); lanes.len()];
        for round in 0..settings.rounds {
            // Side by side in time, so that a busy minute of the machine falls on all; another is first each round,
            // so that none is always the one that finds the machine as the last one left it.
            for turn in 0..lanes.len() {
                let number = (round + turn) % lanes.len();
                let (lane, laps) = (&mut lanes[number], &mut laps[number]);
                watch(Step {
                    done,
                    of,
                    now: &format!("{}, {}", case.name(), lane.system.name),
                });
                done += 1;
                if laps.error.is_some() {
                    continue;
                }
                match lane
                    .lap(case, round, &source, &folder, program, laps)
                    .await?
                {
                    Ok(()) => {}
                    Err(err) if lane.system.command.is_none() => {
                        let (name, case) = (&lane.system.name, case.name());
                        return Err(err.context(format!("{name} cannot store {case}")));
                    }
                    Err(err) => laps.error = Some(format!("{err:#}")),
                }
            }
        }
        for (lane, laps) in lanes.iter().zip(laps) {
            rows.push(laps.row(case, &lane.system.name));
        }
    }
    let systems = lanes.into_iter().map(|lane| lane.system).collect();
    Ok(Report::new(
        origin,
        settings.clone(),
        systems,
        sources,
        rows,
        start.elapsed(),
    ))
}

/// A system, and its process while it lives.
struct Lane {
    system: System,
    process: Option<Process>,
}

impl Lane {
    /// Writes, reads and cuts once. The outer error ends the comparison, the inner one is of this system.
    async fn lap(
        &mut self,
        case: &Case,
        round: usize,
        source: &Source,
        folder: &Folder,
        program: &Program,
        laps: &mut Laps,
    ) -> Result<Result<()>> {
        let array = folder.path.join(case.key()).join(self.system.key());
        let to = array.to_str().context("a folder whose name is no text")?;
        let from = to.to_owned();
        let name = &self.system.name;
        if self.process.as_ref().is_none_or(Process::is_gone) {
            match self.system.start(program).await {
                Ok((process, hello)) => {
                    self.process = Some(process);
                    self.system.version = Some(hello.version);
                    self.system.says = Some(hello.codec);
                }
                Err(err) => return Ok(Err(err)),
            }
        }
        let Some(process) = &mut self.process else {
            return Ok(Ok(()));
        };
        let path = source.path.to_str();
        let write = Job::Write {
            source: path.context("a folder whose name is no text")?.to_owned(),
            dtype: source.dtype.to_owned(),
            shape: case.shape.clone(),
            shard: case.shard.clone(),
            inner: case.chunk.clone(),
            to: to.to_owned(),
            codec: self.system.codec.clone(),
        };
        match process.ask::<Cost>(&write).await {
            Ok(cost) => laps.write.push(cost),
            Err(err) => return Ok(Err(err)),
        }
        laps.stored = Stored::of(&array)?;
        let read = Job::Read {
            from: from.clone(),
            dtype: source.dtype.to_owned(),
            shape: case.shape.clone(),
        };
        match process.ask::<Whole>(&read).await {
            Ok(whole) => {
                ensure!(
                    whole.crc32 == source.crc32,
                    "{name} reads other samples of {} than were stored: crc32 {:08x}, expected {:08x}",
                    case.name(),
                    whole.crc32,
                    source.crc32
                );
                laps.read.push(whole.cost);
            }
            Err(err) => return Ok(Err(err)),
        }
        let cutouts = case.cutouts(round);
        laps.cuts.resize_with(cutouts.len(), Default::default);
        for (one, cuts) in cutouts.iter().zip(&mut laps.cuts) {
            let expected = source.crc32_of(&one.offset, &one.shape)?;
            for (fresh, seconds) in [(true, &mut cuts.fresh), (false, &mut cuts.open)] {
                let cutout = Job::Cutout {
                    from: from.clone(),
                    offset: one.offset.clone(),
                    shape: one.shape.clone(),
                    times: TIMES,
                    fresh,
                };
                match process.ask::<Cut>(&cutout).await {
                    Ok(cut) => {
                        ensure!(
                            cut.crc32 == expected,
                            "{name} reads another {} of {} than was stored: crc32 {:08x}, expected {expected:08x}",
                            one.name,
                            case.name(),
                            cut.crc32
                        );
                        seconds.extend(cut.seconds);
                    }
                    Err(err) => return Ok(Err(err)),
                }
            }
        }
        folder.forget(&array)?;
        Ok(Ok(()))
    }
}

impl Case {
    /// Returns its name in the report.
    fn name(&self) -> String {
        report::case_name(self.data, &self.chunk)
    }

    /// Returns its name as a folder's.
    fn key(&self) -> String {
        let lengths: Vec<String> = self.chunk.iter().map(u64::to_string).collect();
        format!("{}-{}", self.data.name(), lengths.join("-"))
    }
}

impl System {
    /// Returns its name as a folder's.
    fn key(&self) -> String {
        let plain = |letter: char| match letter.is_ascii_alphanumeric() || letter == '-' {
            true => letter,
            false => '_',
        };
        self.name.chars().map(plain).collect()
    }
}

/// What an array takes on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stored {
    bytes: u64,
    files: u64,
    folders: u64,
}

impl Stored {
    fn of(folder: &Path) -> Result<Self> {
        let mut stored = Self {
            folders: 1,
            ..Self::default()
        };
        let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
        for entry in entries {
            let entry = entry?;
            let kind = entry.metadata()?;
            match kind.is_dir() {
                true => {
                    let below = Self::of(&entry.path())?;
                    stored.bytes += below.bytes;
                    stored.files += below.files;
                    stored.folders += below.folders;
                }
                false => {
                    stored.bytes += kind.len();
                    stored.files += 1;
                }
            }
        }
        Ok(stored)
    }
}

/// Where data and arrays lie.
struct Folder {
    path: PathBuf,
    /// Whether it stays.
    stays: bool,
}

impl Folder {
    fn new(dir: Option<&Path>) -> Result<Self> {
        match dir {
            Some(dir) => {
                fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
                Ok(Self {
                    // Systems may run in other folders.
                    path: fs::canonicalize(dir)?,
                    stays: true,
                })
            }
            None => Ok(Self {
                path: tempfile::Builder::new()
                    .prefix("rss-bench-")
                    .tempdir()?
                    .keep(),
                stays: false,
            }),
        }
    }

    /// Removes what is measured, where nothing stays.
    fn forget(&self, path: &Path) -> Result<()> {
        if self.stays || !path.exists() {
            return Ok(());
        }
        match path.is_dir() {
            true => fs::remove_dir_all(path)?,
            false => fs::remove_file(path)?,
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        // A process that was just killed may still be in the middle of a file.
        for _ in 0..20 {
            let _ = fs::remove_dir_all(&self.path);
            if !self.path.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            side: 1024,
            inner: vec![32, 64, 128],
            rounds: 3,
            data: Volume::ALL.to_vec(),
            peers: Vec::new(),
            dir: None,
        }
    }

    #[test]
    fn the_default_is_the_seeds_experiment() {
        let cases = settings().cases();
        assert_eq!(cases.len(), 7);
        assert_eq!(cases[0].shape, [1024; 3]);
        assert_eq!(cases[0].shard, [512; 3]);
        assert_eq!(cases[5].chunk, [128; 3]);
        assert_eq!(cases[6].shape, [16, 2, 4096, 4096]);
        assert_eq!(cases[6].chunk, [8, 1, 128, 128]);
        assert_eq!(cases[6].shard, [16, 1, 1024, 1024]);
    }

    #[test]
    fn every_box_lies_inside() {
        for side in [64, 128, 1024] {
            let settings = Settings {
                side,
                inner: vec![32],
                ..settings()
            };
            settings.check().unwrap();
            for case in settings.cases() {
                for one in (0..100).flat_map(|round| case.cutouts(round)) {
                    for (axis, of) in case.shape.iter().enumerate() {
                        assert!(one.offset[axis] + one.shape[axis] <= *of, "{one:?}");
                    }
                }
            }
        }
        let series = &settings().cases()[6].cutouts(1)[0];
        assert_eq!(series.shape, [16, 2, 1, 1]);
    }

    #[test]
    fn what_cannot_be_run_is_said() {
        let with = |change: &dyn Fn(&mut Settings)| {
            let mut settings = settings();
            change(&mut settings);
            settings.check().unwrap_err().to_string()
        };
        assert!(with(&|s| s.side = 100).contains("--side is 100"));
        assert!(with(&|s| s.side = 2048).contains("from 64 to 1024"));
        assert!(with(&|s| s.inner = vec![48]).contains("--inner is 48"));
        let small = with(&|s| s.side = 64);
        assert_eq!(
            small,
            "--inner is 64, expected a power of two from 8 to 32, half of --side"
        );
        assert!(with(&|s| s.rounds = 0).contains("--rounds is 0"));
        assert!(with(&|s| s.dir = Some("/dev/null".into())).contains("no folder"));
    }

    #[test]
    fn a_temporary_folder_goes_with_its_end() {
        let folder = Folder::new(None).unwrap();
        let path = folder.path.clone();
        fs::create_dir_all(path.join("a/b")).unwrap();
        fs::write(path.join("a/b/c"), b"1234").unwrap();
        let stored = Stored::of(&path).unwrap();
        assert_eq!((stored.bytes, stored.files, stored.folders), (4, 1, 3));
        drop(folder);
        assert!(!path.exists());
    }
}
