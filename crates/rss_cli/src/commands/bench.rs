//! `rss bench`: hands its arguments to the program `rss-bench`.

use std::{
    ffi::OsString,
    io::{self, ErrorKind},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{Found, args::BenchArgs};

const PROGRAM: &str = "rss-bench";

/// Returns only where the program cannot be run.
pub(crate) fn run(args: &BenchArgs) -> Result<Found> {
    let err = become_it(Command::new(program()).args(&args.args));
    if err.kind() == ErrorKind::NotFound {
        bail!(
            "the comparisons are a program of their own, {PROGRAM}, which is neither beside rss nor on PATH; in the \
             repository: cargo install --path crates/rss_bench, or cargo run --release -p rss_bench -- gather .."
        );
    }
    Err(err).context(PROGRAM)
}

/// Returns the program beside this one; else its name, which the system looks for on PATH.
fn program() -> OsString {
    let name = format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX);
    match std::env::current_exe().map(|exe| exe.with_file_name(&name)) {
        Ok(beside) if beside.is_file() => beside.into(),
        _ => name.into(),
    }
}

/// Takes the program's place in this process: Ctrl-C and the exit code are its own.
#[cfg(unix)]
fn become_it(program: &mut Command) -> io::Error {
    std::os::unix::process::CommandExt::exec(program)
}

/// Runs the program, which hears Ctrl-C too, and ends as it ends.
#[cfg(not(unix))]
fn become_it(program: &mut Command) -> io::Error {
    match program.status() {
        Ok(status) => std::process::exit(status.code().unwrap_or(2)),
        Err(err) => err,
    }
}
