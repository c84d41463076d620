//! What a job costs this process.

use std::time::Duration;

use anyhow::{Context, Result};

/// Returns the time that processors have spent on this process, all its threads.
pub(crate) fn processor_time() -> Result<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Ok(Duration::try_from(time)?)
}

/// Returns the most memory that this process has held; none where Linux does not say it.
pub(crate) fn peak_bytes() -> Result<Option<u64>> {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else {
        return Ok(None);
    };
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next());
    let kilobytes: u64 = kilobytes.context("no VmHWM")?.parse()?;
    Ok(Some(kilobytes * 1024))
}

/// Returns a digest as text.
pub(crate) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
