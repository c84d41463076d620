//! `rss bench`: comparisons on servers of its own, and their reports.

use std::{
    fmt::Display,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use rss_bench::{Origin, Program, Step, gather, ranges};
use serde::Serialize;
use tempfile::NamedTempFile;

use crate::{
    Found,
    args::{BenchArgs, BenchGatherArgs, BenchRangesArgs, Comparison, ReportArgs},
    output,
};

pub(crate) async fn run(args: &BenchArgs) -> Result<Found> {
    match &args.comparison {
        Comparison::Gather(args) => gather(args).await,
        Comparison::Ranges(args) => ranges(args).await,
        Comparison::Serve { stock } => {
            let stock = stock.clone();
            // It reads stdin, which would keep a thread of the runtime.
            tokio::task::spawn_blocking(move || rss_bench::serve(&stock)).await??;
            Ok(Found::Something)
        }
    }
}

async fn gather(args: &BenchGatherArgs) -> Result<Found> {
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
    let program = Program::this(&["bench", "serve"])?;
    let report = gather::run(&settings, origin(), &program, &|step| bar.at(step)).await?;
    bar.finish();
    let html = sheets.html.is_some().then(|| report.html()).transpose()?;
    sheets.fill(&report, html)
}

async fn ranges(args: &BenchRangesArgs) -> Result<Found> {
    let settings = ranges::Settings {
        iterations: args.iterations,
        profiles: named(&args.profile)?,
        pieces: unique(&args.pieces),
        scale: args.scale,
    };
    settings.check()?;
    let sheets = Sheets::new(&args.report)?;
    let bar = Bar::new();
    let program = Program::this(&["bench", "serve"])?;
    let report = ranges::run(&settings, origin(), &program, &|step| bar.at(step)).await?;
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
    let words: Vec<String> = std::iter::once("rss".to_owned()).chain(args).collect();
    Origin::now(words.join(" "))
}

/// The files of a report. They are made beside their places before the run, which may take long, and
/// moved there when they are whole.
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
    fn fill(self, report: &(impl Serialize + Display), html: Option<String>) -> Result<Found> {
        if let Some(sheet) = self.json {
            sheet.fill(&serde_json::to_vec_pretty(report)?)?;
        }
        if let (Some(sheet), Some(html)) = (self.html, html) {
            sheet.fill(html.as_bytes())?;
        }
        match self.json_on_stdout {
            true => output::json(report)?,
            false => output::lines(report.to_string().lines().map(str::to_owned))?,
        }
        Ok(Found::Something)
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
