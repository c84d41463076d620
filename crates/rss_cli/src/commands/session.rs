//! The sessions of commands.

use anyhow::{Result, ensure};
use rss_core::{Session, SessionBuilder};

use crate::{args::NetworkArgs, output};

tokio::task_local! {
    /// The options of the network: those of the command that runs, whichever it is.
    static NETWORK: NetworkArgs;
}

/// Runs a command with options of the network.
pub(crate) async fn with_network<T>(args: NetworkArgs, command: impl Future<Output = T>) -> T {
    NETWORK.scope(args, command).await
}

/// Starts a session from the environment and the options of the network. Long waits are told on stderr.
pub(super) fn builder() -> Result<SessionBuilder> {
    let builder = SessionBuilder::from_env()?.notify(|line| output::say(&format!("note: {line}")));
    let retry_for = NETWORK.try_with(|args| args.retry_for);
    let builder = match retry_for.ok().flatten() {
        Some(time) => builder.retry_for(time),
        None => builder,
    };
    let gdal_reads = NETWORK.try_with(|args| args.gdal_reads);
    Ok(match gdal_reads.ok().flatten() {
        Some(reads) => builder.gdal_reads(reads),
        None => builder,
    })
}

/// Builds a session from the environment and the options of the network.
pub(super) fn open() -> Result<Session> {
    Ok(builder()?.build()?)
}

/// Builds a session with a budget in MB, if one is chosen.
pub(super) fn with_budget(megabytes: Option<u64>) -> Result<Session> {
    let mut builder = builder()?;
    if let Some(megabytes) = megabytes {
        ensure!(megabytes > 0, "--budget is 0, expected at least 1 MB");
        builder = builder.budget_bytes(megabytes.saturating_mul(1_000_000));
    }
    Ok(builder.build()?)
}
