//! What every command takes: how much it tells of its work.

use std::path::PathBuf;

use clap::Args;

/// How much a command tells of its work.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Logs")]
pub(crate) struct Logging {
    /// Says on stderr what is repeated and dropped; -vv also what is asked of servers and found in a cache. RUST_LOG
    /// (rss_core=debug) refines it.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Says errors only: no notes, no progress.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Logs on stderr are JSON, one line each.
    #[arg(long, global = true)]
    pub(crate) log_json: bool,
    /// Writes one JSON line for each request: time, method, host, range, status, bytes, ms, attempt.
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
}
