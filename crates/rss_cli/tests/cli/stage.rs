//! A testbed, folders of its own, and the binary between them.

use std::{
    fmt, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use rss_core::{Crs, DataType, GeoBox, GeoTransform, Pixels, Raster, Size};
use rss_testbed::{Builder, Scenes, Service, Testbed};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const CANARY: &str = "CANARYSECRET";

/// The selection of the seed query after the source: four scenes.
pub(crate) const SEED: &[&str] = &[
    "sentinel2",
    "--like",
    "dea",
    "--scene",
    "56jns",
    "--start",
    "2021-01-01",
    "--end",
    "2021-02-01",
    "--cloud-below",
    "30",
];

pub(crate) struct Stage {
    pub(crate) bed: Testbed,
    pub(crate) dir: TempDir,
    home: TempDir,
}

/// What a run left: exit code, stdout, stderr.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Stage {
    /// Starts a testbed with the four small scenes.
    pub(crate) fn new() -> Self {
        Self::of(Testbed::builder().scenes(Scenes::small()))
    }

    pub(crate) fn of(builder: Builder) -> Self {
        Self {
            bed: builder.start().unwrap(),
            dir: tempfile::tempdir().unwrap(),
            home: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.home.path().join("cache")
    }

    /// Returns a path in the folder of this test.
    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Writes an image of so many pixels a side, whose samples compress a little: int16, nodata -999.
    pub(crate) fn image(&self, name: &str, side: u32, epsg: u32, transform: [f64; 6]) -> String {
        let size = Size {
            width: side,
            height: side,
        };
        let mut pixels = Pixels::zeros(DataType::I16, 1, size).unwrap();
        if let Pixels::I16(samples) = &mut pixels {
            let mut state = 7_u32;
            for sample in samples.iter_mut() {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *sample = i16::try_from(state >> 28).unwrap() + 100;
            }
        }
        let raster = Raster {
            pixels,
            geobox: GeoBox {
                size,
                crs: Some(Crs::Epsg(epsg)),
                transform: Some(GeoTransform(transform)),
            },
            nodata: Some((-999.0).into()),
            sparse: Vec::new(),
        };
        let path = self.path(name);
        raster.save(Path::new(&path)).unwrap();
        path
    }

    /// Returns the binary with nothing of this process's environment but the path.
    pub(crate) fn rss(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rss"));
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home.path())
            .env("RSS_CACHE_DIR", self.cache())
            .env("AWS_ENDPOINT_URL", self.bed.s3_endpoint())
            .env("AWS_NO_SIGN_REQUEST", "YES")
            // A server that is away stays so.
            .env("RSS_RETRY_FOR", "1s")
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.rss().args(args).output().unwrap())
    }

    /// Runs a command with a variable set.
    pub(crate) fn run_with(&self, variable: (&str, &str), args: &[&str]) -> Ran {
        let mut command = self.rss();
        command.env(variable.0, variable.1).args(args);
        Ran::of(command.output().unwrap())
    }

    /// Runs a command with bytes on its stdin.
    pub(crate) fn piped(&self, args: &[&str], stdin: &[u8]) -> Ran {
        let mut command = self.rss();
        let mut child = command.args(args).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(stdin).unwrap();
        Ran::of(child.wait_with_output().unwrap())
    }

    /// Runs a subcommand on the seed query: `rss <command> <url> sentinel2 .. <more>`.
    pub(crate) fn seed(&self, command: &str, more: &[&str]) -> Ran {
        let url = self.bed.stac_url();
        self.run(&[&[command, &url], SEED, more].concat())
    }

    /// Returns the ids of the seed query's items.
    pub(crate) fn ids(&self) -> Vec<String> {
        sorted(self.bed.scenes().iter().map(|scene| scene.id.clone()))
    }

    /// Returns how many requests the stores got so far.
    pub(crate) fn fetches(&self) -> usize {
        self.bed.requests(Service::S3).len() + self.bed.requests(Service::Http).len()
    }
}

impl fmt::Debug for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stdout: String = String::from_utf8_lossy(&self.stdout)
            .chars()
            .take(500)
            .collect();
        write!(f, "{:?}\n{stdout}\n{}", self.code, self.stderr)
    }
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        let ran = Self {
            code: output.status.code().or(signal_of(output.status)),
            stdout: output.stdout,
            stderr: String::from_utf8(output.stderr).unwrap(),
        };
        // Whatever it did: no panic, nothing that steers a terminal.
        assert!(!ran.stderr.contains("panicked"), "{ran:?}");
        let steers = |c: char| c.is_control() && c != '\n';
        assert!(!ran.stderr.contains(steers), "{:?}", ran.stderr);
        ran
    }

    /// Returns stdout of a run that did what it was asked, without a word on stderr.
    #[track_caller]
    pub(crate) fn text(&self) -> &str {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        std::str::from_utf8(&self.stdout).unwrap()
    }

    /// Returns the one JSON document of a run that did what it was asked.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(self.text()).unwrap()
    }

    /// Returns the one line that a failed run printed.
    #[track_caller]
    pub(crate) fn error(&self) -> &str {
        assert!(matches!(self.code, Some(2 | 75 | 130 | 143)), "{self:?}");
        assert_eq!(self.stdout, b"", "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{}", self.stderr);
        assert!(self.stderr.starts_with("rss: "), "{}", self.stderr);
        assert!(self.stderr.ends_with('\n'));
        self.stderr.trim_end()
    }

    /// Checks that a run found nothing, and said so in one line.
    #[track_caller]
    pub(crate) fn nothing(&self) {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert_eq!(self.stderr, "rss: nothing found\n");
    }
}

/// Returns the items of an ItemCollection, by id.
pub(crate) fn items(collection: &Value) -> Vec<Value> {
    assert_eq!(collection["type"], "FeatureCollection");
    let mut items = collection["features"].as_array().unwrap().clone();
    items.sort_by_key(|item| item["id"].to_string());
    items
}

pub(crate) fn ids(collection: &Value) -> Vec<String> {
    let items = items(collection).into_iter();
    items
        .map(|item| item["id"].as_str().unwrap().to_owned())
        .collect()
}

/// Returns the keys of an item's assets, sorted.
pub(crate) fn assets(item: &Value) -> Vec<&str> {
    let assets = item["assets"].as_object().unwrap();
    sorted(assets.keys().map(String::as_str))
}

pub(crate) fn href<'a>(item: &'a Value, asset: &str) -> &'a str {
    item["assets"][asset]["href"].as_str().unwrap()
}

pub(crate) fn sorted<T: Ord>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort();
    values
}

/// Returns all files and links below a folder.
pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn wait_until(mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < until, "it never became so");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends Ctrl-C to a process, and waits for its end.
pub(crate) fn interrupt(child: Child) -> Ran {
    let ran = end_by(child, "-INT");
    assert_eq!(ran.code, Some(130), "{ran:?}");
    ran
}

/// Sends a signal to a process, and waits for its end.
pub(crate) fn end_by(mut child: Child, signal: &str) -> Ran {
    let killed = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(killed.unwrap().success());
    wait_until(|| child.try_wait().unwrap().is_some());
    Ran::of(child.wait_with_output().unwrap())
}

/// Returns the code that a shell gives a process which a signal has ended.
#[cfg(unix)]
fn signal_of(status: ExitStatus) -> Option<i32> {
    use std::os::unix::process::ExitStatusExt;

    Some(128 + status.signal()?)
}

#[cfg(not(unix))]
fn signal_of(_: ExitStatus) -> Option<i32> {
    None
}

/// The folder of the workspace.
#[cfg(any(feature = "index", feature = "zarr"))]
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs Python, with what others read our files by; none where it is not there, which CI does not allow.
/// Nothing is installed here: `scripts/test` does that before.
#[cfg(any(feature = "index", feature = "zarr"))]
pub(crate) fn python() -> Option<impl Fn(&[&str]) -> Output> {
    let run = |args: &[&str]| {
        Command::new(root().join("scripts/python-env"))
            .arg("--if-there")
            .args(args)
            .stdin(Stdio::null())
            .output()
    };
    match run(&[]) {
        Ok(done) if done.status.success() => Some(move |args: &[&str]| run(args).unwrap()),
        other => {
            let why = other.map(|done| String::from_utf8_lossy(&done.stderr).into_owned());
            assert!(
                std::env::var_os("CI").is_none(),
                "CI needs the Python environment: {why:?}"
            );
            eprintln!("skipped: no Python environment to read with what is written: {why:?}");
            None
        }
    }
}

/// Returns the bytes of memory of a process: a field of `/proc/PID/status`, such as `VmHWM:`; none where it has ended.
pub(crate) fn memory_of(child: &Child, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes * 1024)
}
