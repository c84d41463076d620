//! `rss-bench`: ways to the same pixels, side by side, and a report.
//!
//! [`gather`] reads one tile from each of many files, by several readers and at several concurrencies.
//! [`ranges`] reads one window by ranged requests, in several manners and over several networks. Both
//! start servers on loopback in another process. [`zarr`] writes, reads and cuts sharded arrays, by this
//! library and by others, each in a process of its own. All check that all ways return the same samples,
//! and give a report: text, JSON, or one HTML page that needs nothing else.
//!
//! Arguments in, exit code out: 0 done, 2 error. What is measured elsewhere is not here: `/benches` has the Criterion
//! benches of the library, which share nothing with these modules but the crate.

mod args;
mod codec;
mod commands;
mod digest;
mod gather;
mod machine;
mod noise;
mod output;
mod page;
mod ranges;
mod servers;
mod spread;
mod step;
mod table;
mod zarr;

use std::{process::ExitCode, time::Duration};

use clap::{Parser, error::ErrorKind};
use futures::FutureExt;

use self::{
    args::Cli,
    machine::Origin,
    servers::Program,
    spread::{Spread, ms},
    step::{Step, Watch},
};

const DONE: u8 = 0;
const ERROR: u8 = 2;

/// How long an interrupted comparison may take to clear up. One that is stuck in a write is left.
const GRACE: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(err) => return ExitCode::from(not_parsed(&err)),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(err) => return ExitCode::from(failed(&err.into())),
    };
    let (result, is_interrupted) = runtime.block_on(async {
        let mut interrupt = Box::pin(tokio::signal::ctrl_c().fuse());
        // Listens from here on: the comparison may make files at once.
        let _ = futures::poll!(&mut interrupt);
        // A task of its own: what waits for stdin or stdout must not keep Ctrl-C from being heard.
        let mut task = tokio::spawn(async move { commands::run(&cli.comparison).await });
        tokio::select! {
            done = &mut task => (done.unwrap_or_else(|err| Err(err.into())), false),
            _ = &mut interrupt => {
                // What is half done goes with the task.
                task.abort();
                let _ = tokio::time::timeout(GRACE, task).await;
                (Err(anyhow::Error::msg("interrupted")), true)
            }
        }
    });
    match is_interrupted {
        // What writes files sees that nobody waits, and removes them.
        true => runtime.shutdown_timeout(GRACE),
        false => runtime.shutdown_background(),
    }
    let code = match result {
        Ok(()) => DONE,
        Err(err) => failed(&err),
    };
    // GDAL's threads may still read or wait for a server. What they use must not be torn down under
    // them, as the destructors of C libraries do where a process ends in the usual way.
    signal_hook::low_level::exit(code.into())
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
    output::say(said.strip_prefix("error: ").unwrap_or(&said));
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
    output::say(&line);
    ERROR
}
