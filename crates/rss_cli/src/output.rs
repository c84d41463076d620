//! Output: one JSON document or a table on stdout, diagnostics line by line on stderr.

use std::{
    fmt,
    io::{self, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use anyhow::Result;
use indicatif::ProgressBar;
use rss_core::{RasterReader, Session};
use serde::Serialize;
use serde_json::json;

/// Whether only errors are said, and whether lines on stderr are JSON.
static IS_QUIET: AtomicBool = AtomicBool::new(false);
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// Sets how lines on stderr are said.
pub(crate) fn set(is_quiet: bool, is_json: bool) {
    IS_QUIET.store(is_quiet, Ordering::Relaxed);
    IS_JSON.store(is_json, Ordering::Relaxed);
}

/// Returns a progress bar, which is drawn on a terminal only, and not among logs.
pub(crate) fn bar(length: u64) -> ProgressBar {
    match IS_QUIET.load(Ordering::Relaxed) || IS_JSON.load(Ordering::Relaxed) {
        true => ProgressBar::hidden(),
        false => ProgressBar::new(length),
    }
}

/// Prints one JSON document and nothing else.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(stdout(&text)?)
}

/// Writes to stdout and flushes it.
pub(crate) fn stdout(bytes: &[u8]) -> Result<(), Stdout> {
    stdout_by(|out| out.write_all(bytes))
}

/// Has `write` write to stdout, and flushes it.
pub(crate) fn stdout_by(
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Stdout> {
    let mut out = io::stdout().lock();
    let written = write(&mut out).and_then(|()| out.flush());
    written.map_err(Stdout)
}

/// Prints lines.
pub(crate) fn lines(lines: impl IntoIterator<Item = String>) -> Result<()> {
    let mut text = String::new();
    for line in lines {
        text += &printable(&line);
        text.push('\n');
    }
    Ok(stdout(text.as_bytes())?)
}

/// Prints rows in columns as wide as they need.
pub(crate) fn table(heads: &[&str], rows: &[Vec<String>]) -> Result<()> {
    let widths: Vec<usize> = heads
        .iter()
        .enumerate()
        .map(|(column, head)| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells
                .map(|cell| cell.chars().count())
                .chain([head.len()])
                .max()
                .unwrap_or(0)
        })
        .collect();
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}", width = *width))
            .collect();
        padded.join("  ").trim_end().to_owned()
    };
    let head = line(heads.to_vec());
    lines(
        std::iter::once(head).chain(
            rows.iter()
                .map(|row| line(row.iter().map(String::as_str).collect())),
        ),
    )
}

/// Files of which each is reported.
const MOST_FALLBACKS: usize = 5;

/// Reports on stderr, at the end of a command, which files GDAL read in place of the COG reader, and what is odd of those
/// that were opened.
pub(crate) struct Fallbacks(pub(crate) Session);

impl Drop for Fallbacks {
    fn drop(&mut self) {
        let all = self.0.fallbacks();
        for one in all.iter().take(MOST_FALLBACKS) {
            say(&format!("note: read with gdal: {one}"));
        }
        if let more @ 1.. = all.len().saturating_sub(MOST_FALLBACKS) {
            say(&format!("note: read with gdal: {more} more files"));
        }
        let notes = self.0.notes();
        for note in notes.iter().take(MOST_FALLBACKS) {
            say(&format!("note: {note}"));
        }
        if let more @ 1.. = notes.len().saturating_sub(MOST_FALLBACKS) {
            say(&format!("note: {more} more notes on files"));
        }
    }
}

/// Reports on stderr why GDAL reads a file in place of the COG reader, and what is odd of the file.
pub(crate) fn fallback(raster: &dyn RasterReader) {
    for note in &raster.profile().notes {
        say(&format!("note: {note}"));
    }
    if let Some(reason) = raster.fallback() {
        say(&format!(
            "reading with {}: {}",
            raster.backend(),
            reason.message()
        ));
    }
}

/// Prints one line on stderr, unless only errors are asked for.
pub(crate) fn say(line: &str) {
    if !IS_QUIET.load(Ordering::Relaxed) {
        print("WARN", line);
    }
}

/// Prints an error on stderr, in one line.
pub(crate) fn error(line: &str) {
    print("ERROR", line);
}

/// A closed stderr is ignored: there is no place to report it.
fn print(level: &str, line: &str) {
    let line = printable(&line.replace(['\n', '\r'], " "));
    let _ = match IS_JSON.load(Ordering::Relaxed) {
        true => {
            let now = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
            let line = json!({"timestamp": now, "level": level, "message": line, "target": "rss"});
            writeln!(io::stderr(), "{line}")
        }
        false => writeln!(io::stderr(), "rss: {line}"),
    };
}

/// Replaces control characters, and those that change the direction of the text around them: a name from a catalogue
/// must not send escape sequences to a terminal, nor show itself as another name.
fn printable(text: &str) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            || matches!(c, '\u{2028}' | '\u{2029}')
    };
    text.chars()
        .map(|c| if steers(c) { '\u{fffd}' } else { c })
        .collect()
}

/// Returns true if the error is a broken pipe of stdout: the program that reads it has ended, as `head` does.
pub(crate) fn is_broken_pipe(err: &anyhow::Error) -> bool {
    err.downcast_ref::<Stdout>()
        .is_some_and(|Stdout(err)| err.kind() == io::ErrorKind::BrokenPipe)
}

/// An error of stdout. A type of its own tells its broken pipe, which is no failure, from that of a socket.
#[derive(Debug)]
pub(crate) struct Stdout(io::Error);

impl fmt::Display for Stdout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stdout: {}", self.0)
    }
}

impl std::error::Error for Stdout {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stdout_may_go_away() {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(is_broken_pipe(&Stdout(gone()).into()));
        assert!(!is_broken_pipe(&gone().into()));
        let full = Stdout(io::ErrorKind::StorageFull.into());
        assert!(!is_broken_pipe(&full.into()));
    }

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb"), "a\u{fffd}[2Jb");
        assert_eq!(printable("a\u{202e}fit.b"), "a\u{fffd}fit.b");
    }
}
