//! A folder of its own, and the program in it.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

/// Few and small files.
pub(crate) const GATHER: &[&str] = &[
    "gather",
    "--files",
    "12",
    "--latency",
    "2",
    "--concurrency",
    "1,4",
    "--repeats",
    "2",
];

/// A narrow window.
pub(crate) const RANGES: &[&str] = &[
    "ranges",
    "--iterations",
    "2",
    "--profile",
    "same-region",
    "--scale",
    "0.1",
];

/// Small arrays.
pub(crate) const ZARR: &[&str] = &["zarr", "--side", "64", "--inner", "16,32", "--rounds", "2"];

/// The program starts servers of its own: all that a test sets up is where it runs.
pub(crate) struct Stage {
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
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            home: tempfile::tempdir().unwrap(),
        }
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

    /// Returns the program with nothing of this process's environment but the path.
    pub(crate) fn bench(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rss-bench"));
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home.path())
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.bench().args(args).output().unwrap())
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
            code: output.status.code(),
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
        assert_eq!(self.code, Some(2), "{self:?}");
        assert_eq!(self.stdout, b"", "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{}", self.stderr);
        assert!(self.stderr.starts_with("rss-bench: "), "{}", self.stderr);
        assert!(self.stderr.ends_with('\n'));
        self.stderr.trim_end()
    }
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
pub(crate) fn interrupt(mut child: Child) -> Ran {
    let killed = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(killed.unwrap().success());
    wait_until(|| child.try_wait().unwrap().is_some());
    Ran::of(child.wait_with_output().unwrap())
}
