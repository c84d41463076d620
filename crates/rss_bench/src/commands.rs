//! Runs what the arguments name, and writes its report to files and stdout.

use std::{
    fmt::Display,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::{
    Origin, Program, Step,
    args::{Comparison, GatherArgs, RangesArgs, ReportArgs, ZarrArgs},
    gather, output, ranges, servers, zarr,
};

pub(crate) async fn run(comparison: &Comparison) -> Result<()> {
    match comparison {
        Comparison::Gather(args) => gather(args).await,
        Comparison::Ranges(args) => ranges(args).await,
        Comparison::Zarr(args) => zarr(args).await,
        Comparison::ZarrWorker { system } => {
            let system = system.clone();
            // As below; and it waits for the work of threads of its own.
            tokio::task::spawn_blocking(move || zarr::worker(&system)).await?
        }
        Comparison::Serve { stock } => {
            let stock = stock.clone();
            // It reads stdin, which would keep a thread of the runtime.
            tokio::task::spawn_blocking(move || servers::serve(&stock)).await?
        }
    }
}

async fn gather(args: &GatherArgs) -> Result<()> {
    let backends: Vec<gather::Backend> = named(&args.backends)?;
    let settings = gather::Settings {
        files: args.files,
        latency_ms: args.latency,
        concurrency: unique(&args.concurrency),
        backends: match backends.is_empty() {
            true => gather::Backend::built(),
            false => backends,
        },
        repeats: args.repeats,
        threads: match args.threads {
            Some(threads) => threads,
            None => std::thread::available_parallelism().map_or(4, usize::from),
        },
    };
    settings.check()?;
    let sheets = Sheets::new(&args.report)?;
    let bar = Bar::new();
    let program = Program::this(&["serve"])?;
    let report = gather::run(&settings, origin(), &program, &|step| bar.at(step)).await?;
    bar.finish();
    let html = sheets.html.is_some().then(|| report.html()).transpose()?;
    sheets.fill(&report, html)
}

async fn ranges(args: &RangesArgs) -> Result<()> {
    let settings = ranges::Settings {
        iterations: args.iterations,
        profiles: named(&args.profile)?,
        pieces: unique(&args.pieces),
        scale: args.scale,
    };
    settings.check()?;
    let sheets = Sheets::new(&args.report)?;
    let bar = Bar::new();
    let program = Program::this(&["serve"])?;
    let report = ranges::run(&settings, origin(), &program, &|step| bar.at(step)).await?;
    bar.finish();
    let html = sheets.html.is_some().then(|| report.html()).transpose()?;
    sheets.fill(&report, html)
}

async fn zarr(args: &ZarrArgs) -> Result<()> {
    let peers: Result<Vec<zarr::Peer>> = args.peer.iter().map(|peer| peer.parse()).collect();
    let settings = zarr::Settings {
        side: args.side,
        inner: unique(&args.inner),
        rounds: args.rounds,
        data: named(&args.data)?,
        peers: peers?,
        dir: args.dir.clone(),
    };
    settings.check()?;
    let sheets = Sheets::new(&args.report)?;
    let bar = Bar::new();
    let program = Program::this(&["zarr-worker"])?;
    let report = zarr::run(&settings, origin(), &program, &|step| bar.at(step)).await?;
    bar.finish();
    let html = sheets.html.is_some().then(|| report.html()).transpose()?;
    sheets.fill(&report, html)
}

/// Reads names; each counts once.
fn named<T: std::str::FromStr<Err = anyhow::Error> + PartialEq>(
    names: &[String],
) -> Result<Vec<T>> {
    let mut found = Vec::new();
    for name in names {
        let value = name.parse()?;
        if !found.contains(&value) {
            found.push(value);
        }
    }
    Ok(found)
}

/// Returns numbers sorted, each once.
fn unique<T: Ord + Copy>(numbers: &[T]) -> Vec<T> {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Notes what was typed, without the folder of the program.
fn origin() -> Origin {
    let args = std::env::args().skip(1);
    let words: Vec<String> = std::iter::once("rss-bench".to_owned())
        .chain(args)
        .collect();
    Origin::now(words.join(" "))
}

/// The files of a report. They are made beside their paths before the run, which may take long, and
/// renamed when they are whole.
struct Sheets {
    json: Option<Sheet>,
    json_on_stdout: bool,
    html: Option<Sheet>,
}

struct Sheet {
    file: NamedTempFile,
    path: PathBuf,
}

impl Sheets {
    fn new(args: &ReportArgs) -> Result<Self> {
        let json_on_stdout = args.json.as_deref() == Some("-");
        let json = args.json.as_deref().filter(|_| !json_on_stdout);
        Ok(Self {
            json: json.map(|path| Sheet::new(Path::new(path))).transpose()?,
            json_on_stdout,
            html: args.html.as_deref().map(Sheet::new).transpose()?,
        })
    }

    /// Writes the files, and the report to stdout.
    fn fill(self, report: &(impl Serialize + Display), html: Option<String>) -> Result<()> {
        if let Some(sheet) = self.json {
            sheet.fill(&serde_json::to_vec_pretty(report)?)?;
        }
        if let (Some(sheet), Some(html)) = (self.html, html) {
            sheet.fill(html.as_bytes())?;
        }
        match self.json_on_stdout {
            true => output::json(report),
            false => output::lines(&report.to_string()),
        }
    }
}

impl Sheet {
    fn new(path: &Path) -> Result<Self> {
        let named = || format!("cannot write {}", path.display());
        if let Ok(there) = path.metadata() {
            ensure!(!there.is_dir(), "{}: it is a folder", named());
            ensure!(there.is_file(), "{}: it is no regular file", named());
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        // A temporary file is its owner's alone; this one becomes an ordinary file.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        Ok(Self {
            file: builder.tempfile_in(folder).with_context(named)?,
            path: path.to_owned(),
        })
    }

    fn fill(mut self, bytes: &[u8]) -> Result<()> {
        let named = || format!("cannot write {}", self.path.display());
        self.file.write_all(bytes).with_context(named)?;
        self.file.as_file().sync_all().with_context(named)?;
        self.file.persist(&self.path).with_context(named)?;
        Ok(())
    }
}

/// Progress on stderr, where that is a terminal.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} [{elapsed}]") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(500));
        Self(bar)
    }

    fn at(&self, step: Step<'_>) {
        self.0.set_length(step.of as u64);
        self.0.set_position(step.done as u64);
        self.0.set_message(step.now.to_owned());
    }

    fn finish(&self) {
        self.0.finish_and_clear();
    }
}
