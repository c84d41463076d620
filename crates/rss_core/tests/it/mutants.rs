//! Files that a rule damaged, each with what a careful reader owes its caller: `scripts/mutants` makes
//! them and runs this, alone in its process, because it measures memory.
//!
//! `RSS_MUTANTS` names the folder: `manifest.json` with `file`, `source`, `mutation`, `group` and
//! `expect` of each mutant, and `sources/` with the files they were made from. The pixels of those are
//! held to GDAL's by `corpora`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rss_core::{
    Backend, Error, ErrorKind, Location, OpenRaster, Raster, ReadRequest, Session, Size, Window,
};
use serde_json::Value;

/// No file may take longer.
const LONGEST: Duration = Duration::from_secs(10);
/// Memory that one file may take, beyond what was taken before.
const MOST_KIB: u64 = 512 << 10;
/// Damage of what lies beside the pixels: those must not change.
const BESIDE_PIXELS: &[&str] = &["nodata", "gdalmeta", "geo", "geokeys"];
/// Tiles of one file that are read one by one.
const MOST_TILES: usize = 64;

#[test]
fn mutants_are_read_right_or_refused() {
    let Some(folder) = std::env::var_os("RSS_MUTANTS").map(PathBuf::from) else {
        eprintln!("skipped: RSS_MUTANTS names no folder; scripts/mutants makes one");
        return;
    };
    let manifest = std::fs::read(folder.join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let session = Session::builder().read_bytes(64 << 20).build().unwrap();
    let mut all = Tally::default();
    // The manifest goes source by source.
    let mut source = String::new();
    let mut truth: Option<OpenRaster> = None;
    for mutant in manifest["files"].as_array().unwrap() {
        let text = |name: &str| mutant[name].as_str().unwrap();
        let path = folder.join(text("file"));
        if source != text("source") {
            text("source").clone_into(&mut source);
            // A file's own pixels, if it can be read at all.
            truth = open(&session, &folder.join("sources").join(&source))
                .ok()
                .filter(|raster| raster.read(&ReadRequest::new()).is_ok());
        }
        let before = Before::now();
        let outcome = look(&session, &path, truth.as_ref());
        before.check(text("file"), &mut all.wrong);
        all.judge(mutant, truth.is_some(), outcome);
    }
    for (mutation, files) in &all.others {
        let (number, first) = (files.len(), &files[0]);
        eprintln!("other pixels: {mutation}, {number} files, such as {first}");
    }
    eprintln!("longest {:?}", all.longest);
    for (class, outcomes) in &all.classes {
        eprintln!("{class}: {outcomes:?}");
    }
    assert_eq!(all.wrong, [""; 0]);
    assert!(!all.classes.is_empty());
}

/// Where a file failed, and how its pixels compare.
struct Outcome {
    opened: Result<(), Error>,
    /// Level 0, whole.
    read: Result<(), Error>,
    /// True if what was read is what the source has; true if nothing was.
    same: bool,
    /// Tiles that were read alone and are not the source's.
    other_tiles: usize,
    took: Duration,
}

fn open(session: &Session, path: &Path) -> Result<OpenRaster, Error> {
    session.open(&Location::Local(path.to_owned()), Backend::Cog)
}

fn look(session: &Session, path: &Path, truth: Option<&OpenRaster>) -> Outcome {
    let mut outcome = Outcome {
        opened: Ok(()),
        read: Ok(()),
        same: true,
        other_tiles: 0,
        took: Duration::ZERO,
    };
    let mut clock = Clock::default();
    match clock.of(|| open(session, path)) {
        Err(err) => outcome.opened = Err(err),
        Ok(raster) => {
            match clock.of(|| raster.read(&ReadRequest::new())) {
                Err(err) => outcome.read = Err(err),
                Ok(read) => {
                    outcome.same = truth.is_none_or(|truth| {
                        let right = truth.read(&ReadRequest::new()).unwrap();
                        is_same(&read, &right) || differs_in_fill(&read, &right)
                    });
                }
            }
            for level in 1..=raster.profile().overviews.len().min(3) {
                let request = ReadRequest::new().with_level(level);
                let _ = clock.of(|| raster.read(&request));
            }
            if let Some(truth) = truth {
                outcome.other_tiles = other_tiles(&raster, truth);
            }
        }
    }
    outcome.took = clock.0;
    outcome
}

/// What a damaged file took, without the comparison to its source.
#[derive(Default)]
struct Clock(Duration);

impl Clock {
    fn of<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let done = work();
        self.0 += started.elapsed();
        done
    }
}

/// Compares bytes: a NaN is not equal to itself.
fn is_same(a: &Raster, b: &Raster) -> bool {
    let of = |raster: &Raster| {
        (
            raster.pixels.shape(),
            raster.pixels.dtype(),
            raster.pixels.to_le_bytes(),
        )
    };
    of(a) == of(b)
}

/// True if nodata is another, and so is what fills the tiles that are not stored, and no more.
fn differs_in_fill(a: &Raster, b: &Raster) -> bool {
    let nodata = |raster: &Raster| raster.nodata;
    let same_shape = a.pixels.shape() == b.pixels.shape() && a.pixels.dtype() == b.pixels.dtype();
    let (x, y) = (a.pixels.to_le_bytes(), b.pixels.to_le_bytes());
    let size = a.pixels.dtype().size();
    let mut pairs = x.chunks_exact(size).zip(y.chunks_exact(size));
    let first = pairs.clone().find(|(x, y)| x != y);
    same_shape
        && nodata(a) != nodata(b)
        && pairs.all(|pair| pair.0 == pair.1 || Some(pair) == first)
}

/// Counts the tiles that can be read alone and are not the source's.
fn other_tiles(raster: &OpenRaster, truth: &OpenRaster) -> usize {
    let (Size { width, height }, tile) = (raster.profile().size, raster.profile().tile);
    if raster.profile().size != truth.profile().size {
        return 0;
    }
    let places = (0..height).step_by(tile.height as usize).flat_map(|row| {
        let columns = (0..width).step_by(tile.width as usize);
        columns.map(move |col| Window {
            col,
            row,
            width: tile.width.min(width - col),
            height: tile.height.min(height - row),
        })
    });
    let requests = places.map(|window| ReadRequest::new().with_window(window));
    requests
        .take(MOST_TILES)
        .filter(|request| {
            let read = raster.read(request);
            read.is_ok_and(|read| !is_same(&read, &truth.read(request).unwrap()))
        })
        .count()
}

/// How mutants came out.
#[derive(Debug, Default)]
struct Tally {
    /// By class, then by outcome.
    classes: BTreeMap<String, BTreeMap<&'static str, usize>>,
    /// By mutation: files whose pixels are others, which some damage cannot but cause.
    others: BTreeMap<String, Vec<String>>,
    longest: (Duration, String),
    wrong: Vec<String>,
}

impl Tally {
    /// Holds one file to its class.
    fn judge(&mut self, mutant: &Value, has_truth: bool, outcome: Outcome) {
        let text = |name: &str| mutant[name].as_str().unwrap();
        let (file, class) = (text("file"), text("expect"));
        let name = match (&outcome.opened, &outcome.read) {
            (Err(_), _) => "refused at open",
            (_, Err(_)) => "refused at read",
            _ if outcome.same => "same pixels",
            _ => "other pixels",
        };
        let names = self.classes.entry(class.to_owned()).or_default();
        *names.entry(name).or_default() += 1;
        if !outcome.same {
            let others = self.others.entry(text("mutation").to_owned());
            others.or_default().push(file.to_owned());
        }

        let mut fail = |why: &str| self.wrong.push(format!("{file} ({class}): {why}"));
        for err in [&outcome.opened, &outcome.read]
            .into_iter()
            .filter_map(|outcome| outcome.as_ref().err())
        {
            // A panic on a thread of the pool would be `Unavailable`.
            if !matches!(
                err.kind(),
                ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::InvalidInput
            ) {
                fail(&format!("{err:?}"));
            }
        }
        if outcome.took > LONGEST {
            fail(&format!("took {:?}", outcome.took));
        }
        let failed = outcome.opened.is_err() || outcome.read.is_err();
        match class {
            "same" if has_truth && (failed || !outcome.same) => fail(name),
            "open_err" if outcome.opened.is_ok() => fail(name),
            "chunk_err" if has_truth && !failed => fail(name),
            "chunk_err" if outcome.other_tiles > 0 => fail("a tile has wrong pixels"),
            _ if BESIDE_PIXELS.contains(&text("group")) && !outcome.same => fail("pixels changed"),
            _ => {}
        }
        if outcome.took > self.longest.0 {
            self.longest = (outcome.took, file.to_owned());
        }
    }
}

/// Memory in use before a file is read, in KiB.
struct Before(Option<u64>);

impl Before {
    /// Forgets the peak so far, where the system can.
    fn now() -> Self {
        let forgotten = std::fs::write("/proc/self/clear_refs", "5");
        Self(forgotten.ok().and_then(|()| status("VmRSS:")))
    }

    fn check(&self, file: &str, wrong: &mut Vec<String>) {
        let (Some(before), Some(peak)) = (self.0, status("VmHWM:")) else {
            return;
        };
        let taken = peak.saturating_sub(before);
        if taken > MOST_KIB {
            wrong.push(format!("{file}: took {} MiB", taken >> 10));
        }
    }
}

fn status(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
