//! What goes to stdout: one JSON document, or lines; and to stderr: one line. As the program `rss` does it.

use std::{
    fmt,
    io::{self, Write},
};

use anyhow::Result;
use serde::Serialize;

/// Prints one JSON document and nothing else.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(stdout(&text)?)
}

/// Prints lines.
pub(crate) fn lines(text: &str) -> Result<()> {
    let lines: String = text.lines().map(|line| printable(line) + "\n").collect();
    Ok(stdout(lines.as_bytes())?)
}

/// Writes to stdout and flushes it.
fn stdout(bytes: &[u8]) -> Result<(), Stdout> {
    let mut out = io::stdout().lock();
    let written = out.write_all(bytes).and_then(|()| out.flush());
    written.map_err(Stdout)
}

/// Prints one line on stderr, where nobody may listen.
pub(crate) fn say(line: &str) {
    let line = line.replace(['\n', '\r'], " ");
    let _ = writeln!(io::stderr(), "rss-bench: {}", printable(&line));
}

/// Replaces control characters: a name from an argument or a peer must not steer a terminal.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// Returns true if the reader of stdout has gone away.
pub(crate) fn is_broken_pipe(err: &anyhow::Error) -> bool {
    err.downcast_ref::<Stdout>()
        .is_some_and(|Stdout(err)| err.kind() == io::ErrorKind::BrokenPipe)
}

/// What went wrong at stdout. Other pipes break too, and theirs is an error.
#[derive(Debug)]
struct Stdout(io::Error);

impl fmt::Display for Stdout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stdout: {}", self.0)
    }
}

impl std::error::Error for Stdout {}
