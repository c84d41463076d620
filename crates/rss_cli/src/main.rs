//! The `rss` command line: search, get, remote, info, read, cache.
//!
//! Arguments in, exit code out: 0 done, 1 nothing found, 2 error. Everything else is in `rss_core`.

mod args;
mod commands;
mod output;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};

/// What a command found: 0 or 1 as exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Something,
    Nothing,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(err) => return failed(&err.into()),
    };
    let result = runtime.block_on(async {
        // The losing future is dropped, and what it had half done goes with it.
        tokio::select! {
            result = run(&cli.command) => result,
            _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        }
    });
    runtime.shutdown_background();
    match result {
        Ok(Found::Something) => ExitCode::SUCCESS,
        Ok(Found::Nothing) => ExitCode::from(1),
        Err(err) => failed(&err),
    }
}

async fn run(command: &Command) -> anyhow::Result<Found> {
    match command {
        Command::Search(args) => commands::search::run(args).await,
        Command::Get(args) => commands::get::run(args).await,
        Command::Remote(args) => commands::remote::run(args).await,
        Command::Info(args) => commands::info::run(args).await,
        Command::Read(args) => commands::read::run(args).await,
        Command::Cache(args) => commands::cache::run(args).await,
    }
}

/// Prints one line that says what went wrong; a reader that went away is nobody's error.
fn failed(err: &anyhow::Error) -> ExitCode {
    if output::is_broken_pipe(err) {
        return ExitCode::SUCCESS;
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
    eprintln!("rss: {}", line.replace('\n', " "));
    ExitCode::from(2)
}
