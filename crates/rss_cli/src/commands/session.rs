//! The session of a command with a memory budget.

use anyhow::{Result, ensure};
use rss_core::{Session, SessionBuilder};

/// Builds a session from the environment, with a budget in MB if one is chosen.
pub(super) fn with_budget(megabytes: Option<u64>) -> Result<Session> {
    let mut builder = SessionBuilder::from_env()?;
    if let Some(megabytes) = megabytes {
        ensure!(megabytes > 0, "--budget is 0, expected at least 1 MB");
        builder = builder.budget_bytes(megabytes.saturating_mul(1_000_000));
    }
    Ok(builder.build()?)
}
