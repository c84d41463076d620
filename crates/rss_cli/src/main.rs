//! The `rss` command line: search, get, remote, info, read, index, gather, zarr, apply, mosaic,
//! sample, cache, bench.
//!
//! Arguments in, exit code out: 0 done, 1 nothing found, 2 an error that comes again, 3 done in part, 75 an
//! error that may pass; Ctrl-C and SIGTERM end it as such. Everything else is in `rss_core`.

mod args;
mod commands;
mod log;
mod output;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::{Parser, error::ErrorKind};
use futures::FutureExt;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::args::{Cli, Command};

const DONE: u8 = 0;
const NOTHING: u8 = 1;
const ERROR: u8 = 2;
/// Done in part: what is missing was said.
const PART: u8 = 3;
/// An error that may pass: the same command, later.
const LATER: u8 = 75;

/// How long an interrupted command may take to clear up. One that is stuck in a write is left.
const GRACE: Duration = Duration::from_secs(1);

/// What a command found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Something,
    Nothing,
    /// A part of it; what is missing was said.
    Part,
    /// None of it could be read, which was said.
    Unread {
        /// True if the same command may read it later.
        later: bool,
    },
}

impl Found {
    /// Returns what it is if some of many things failed, for these reasons.
    fn without<'a>(done: usize, errors: impl IntoIterator<Item = &'a rss_core::Error>) -> Self {
        match done {
            0 => Self::Unread {
                later: errors.into_iter().all(rss_core::Error::is_retryable),
            },
            _ => Self::Part,
        }
    }
}

/// What ended a command before it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The number of a signal.
    Signal(i32),
    /// Its `--timeout`.
    Late,
}

/// Has threads share two of glibc's arenas, unless the user chose how many there are. Each thread would have its own,
/// where memory stays that other threads give back: blocks and shards are fetched by one thread, and given back by
/// another.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn share_arenas() {
    let is_chosen = |name| std::env::var_os(name).is_some();
    if is_chosen("MALLOC_ARENA_MAX") || is_chosen("GLIBC_TUNABLES") {
        return;
    }
    #[expect(unsafe_code, reason = "a C function")]
    // SAFETY: a number goes in; what is refused changes nothing.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn share_arenas() {}

fn main() -> ExitCode {
    share_arenas();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(err) => return ExitCode::from(not_parsed(&err)),
    };
    // Arguments name CRSs before there is a session.
    rss_core::use_proj();
    output::set(cli.logging.quiet, cli.logging.log_json);
    let summary = match log::start(&cli.logging) {
        Ok(summary) => summary,
        Err(err) => return ExitCode::from(failed(&err)),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(err) => return ExitCode::from(failed(&err.into())),
    };
    let partial = partial(&cli.command);
    let network = cli.network;
    let (result, stopped) = runtime.block_on(async {
        let mut signal = Box::pin(signal().fuse());
        // Listens from here on: the command may make files at once.
        let _ = futures::poll!(&mut signal);
        // A task of its own: what waits for stdin or stdout must not keep Ctrl-C from being heard.
        let command = async move { run(&cli.command).await };
        let mut task = tokio::spawn(commands::session::with_network(network, command));
        let stop = tokio::select! {
            done = &mut task => return (done.unwrap_or_else(|err| Err(err.into())), None),
            number = &mut signal => Stop::Signal(number),
            () = late(network.timeout) => Stop::Late,
        };
        // What is half done goes with the task.
        task.abort();
        let _ = tokio::time::timeout(GRACE, task).await;
        (Err(anyhow::Error::msg(stop.message(partial))), Some(stop))
    });
    match stopped {
        // What writes files sees that nobody waits, and removes them.
        Some(_) => runtime.shutdown_timeout(GRACE),
        None => runtime.shutdown_background(),
    }
    summary.say();
    let code = match result {
        Ok(Found::Something) => DONE,
        Ok(Found::Nothing) => NOTHING,
        Ok(Found::Part) => PART,
        Ok(Found::Unread { later: false }) => ERROR,
        Ok(Found::Unread { later: true }) => LATER,
        Err(err) => {
            let code = failed(&err);
            match stopped {
                Some(Stop::Signal(number)) => end_by(number),
                Some(Stop::Late) => LATER,
                None => code,
            }
        }
    };
    // GDAL's threads may still read or wait for a server. What they use must not be torn down under
    // them, as the destructors of C libraries do where a process ends in the usual way.
    signal_hook::low_level::exit(code.into())
}

async fn run(command: &Command) -> anyhow::Result<Found> {
    match command {
        Command::Search(args) => commands::search::run(args).await,
        Command::Get(args) => commands::get::run(args).await,
        Command::Remote(args) => commands::remote::run(args).await,
        Command::Info(args) => commands::info::run(args).await,
        Command::Read(args) => commands::read::run(args).await,
        Command::Gather(args) => commands::gather::run(args).await,
        #[cfg(feature = "index")]
        Command::Index(args) => commands::index::run(args).await,
        #[cfg(feature = "zarr")]
        Command::Zarr(args) => commands::zarr::run(args).await,
        Command::Apply(args) => commands::apply::run(args).await,
        Command::Mosaic(args) => commands::apply::mosaic(args).await,
        Command::Sample(args) => commands::sample::run(args).await,
        Command::Again(args) => commands::again::run(args).await,
        Command::Cache(args) => commands::cache::run(args).await,
        Command::Bench(args) => commands::bench::run(args),
    }
}

/// Returns where a command keeps what it has read, if it goes on from there after an interruption.
fn partial(command: &Command) -> Option<PathBuf> {
    match command {
        #[cfg(feature = "index")]
        Command::Index(args) => commands::index::partial(args),
        #[cfg(feature = "zarr")]
        Command::Zarr(args) => commands::zarr::partial(args),
        _ => None,
    }
}

/// Ends when a command's time is over.
async fn late(timeout: Option<Duration>) {
    match timeout {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Waits for Ctrl-C or SIGTERM, as of systemd, Kubernetes and `timeout`; returns its number.
#[cfg(unix)]
async fn signal() -> i32 {
    use tokio::signal::unix::{SignalKind, signal};

    let heard = async |kind: SignalKind| match signal(kind) {
        Ok(mut signals) => {
            signals.recv().await;
        }
        // Then it ends the process as if nobody listened.
        Err(_) => std::future::pending().await,
    };
    tokio::select! {
        () = heard(SignalKind::interrupt()) => SIGINT,
        () = heard(SignalKind::terminate()) => SIGTERM,
    }
}

#[cfg(not(unix))]
async fn signal() -> i32 {
    match tokio::signal::ctrl_c().await {
        Ok(()) => SIGINT,
        Err(_) => std::future::pending().await,
    }
}

/// Ends the process by a signal, so that a loop of a shell ends too. Returns a code where that is not possible.
fn end_by(number: i32) -> u8 {
    #[cfg(unix)]
    let _ = signal_hook::low_level::emulate_default_handler(number);
    u8::try_from(number).map_or(ERROR, |number| number.saturating_add(128))
}

impl Stop {
    /// Returns what is said of it, and how to go on.
    fn message(self, partial: Option<PathBuf>) -> String {
        let what = match self {
            Self::Signal(SIGTERM) => "terminated",
            Self::Signal(_) => "interrupted",
            Self::Late => "not done before its --timeout",
        };
        match partial.filter(|path| path.exists()) {
            Some(path) => format!(
                "{what}; what is done is in {}: the same command goes on from there",
                path.display()
            ),
            None => what.to_owned(),
        }
    }
}

/// Prints help where it was asked for, else one line that says which argument is wrong.
fn not_parsed(err: &clap::Error) -> u8 {
    match err.kind() {
        ErrorKind::DisplayHelp
        | ErrorKind::DisplayVersion
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            // A reader that went away is nobody's error.
            let _ = err.print();
            return match err.use_stderr() {
                true => ERROR,
                false => DONE,
            };
        }
        _ => {}
    }
    let text = err.render().to_string();
    let said: Vec<&str> = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .collect();
    let said = said.join(" ");
    output::error(said.strip_prefix("error: ").unwrap_or(&said));
    ERROR
}

/// Prints one line that says what went wrong; a reader that went away is nobody's error.
fn failed(err: &anyhow::Error) -> u8 {
    if output::is_broken_pipe(err) {
        return DONE;
    }
    let mut line = err.to_string();
    let mut source = err.source();
    while let Some(err) = source {
        let text = err.to_string();
        if !line.contains(&text) {
            line = format!("{line}: {text}");
        }
        source = err.source();
    }
    output::error(&line);
    let mut errors = err
        .chain()
        .filter_map(|err| err.downcast_ref::<rss_core::Error>());
    match errors.any(rss_core::Error::is_retryable) {
        true => LATER,
        false => ERROR,
    }
}
