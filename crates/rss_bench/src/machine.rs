//! The machine that a report was made on.

use std::{fs, time::Duration};

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// What a reader must know of the machine to judge a number.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub(crate) struct Machine {
    /// Processor cores that this process may use.
    pub(crate) cores: usize,
    /// The processor's name, where the system says it.
    pub(crate) cpu: String,
    /// The system and its version.
    pub(crate) os: String,
    /// Memory in bytes, where the system says it.
    pub(crate) memory_bytes: Option<u64>,
}

impl Machine {
    /// Looks at this machine.
    pub(crate) fn here() -> Self {
        let first = |path: &str, key: &str| {
            let text = fs::read_to_string(path).ok()?;
            let line = text.lines().find(|line| line.starts_with(key))?;
            let (_, value) = line.split_once([':', '='])?;
            Some(value.trim().trim_matches('"').to_owned())
        };
        let memory = first("/proc/meminfo", "MemTotal").and_then(|text| {
            let kib: u64 = text.split_whitespace().next()?.parse().ok()?;
            Some(kib * 1024)
        });
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            cpu: first("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
            os: first("/etc/os-release", "PRETTY_NAME")
                .unwrap_or_else(|| std::env::consts::OS.to_owned())
                + ", "
                + std::env::consts::ARCH,
            memory_bytes: memory,
        }
    }
}

/// How a report was made: enough to make it again.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub(crate) struct Origin {
    /// The version of this crate.
    pub(crate) version: &'static str,
    /// The commit, where the build was told it by `RSS_COMMIT`.
    pub(crate) commit: Option<&'static str>,
    /// `debug` builds measure nothing worth keeping.
    pub(crate) build: &'static str,
    /// What was typed.
    pub(crate) command: String,
    /// When the run began, in UTC.
    pub(crate) date: String,
    /// Where.
    pub(crate) machine: Machine,
}

impl Origin {
    /// Notes the time and the machine.
    pub(crate) fn now(command: impl Into<String>) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("RSS_COMMIT"),
            build: match cfg!(debug_assertions) {
                true => "debug",
                false => "release",
            },
            command: command.into(),
            date: chrono::Utc::now().format("%Y-%m-%d %H:%M UTC").to_string(),
            machine: Machine::here(),
        }
    }

    /// Says what was run: the kind of build, the version and the commit.
    pub(crate) fn built(&self) -> String {
        let commit = self.commit.map(|commit| format!(", commit {commit}"));
        let commit = commit.unwrap_or_default();
        format!("{} build of version {}{commit}", self.build, self.version)
    }
}

/// Returns the time that processors have spent on this process, all its threads.
pub(crate) fn cpu_time() -> Result<Duration> {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).context("no processor time")
}
