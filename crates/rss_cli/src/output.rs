//! What goes to stdout: one JSON document, or a table; and to stderr: lines.

use std::io::{self, Write};

use anyhow::Result;
use rss_core::RasterReader;
use serde::Serialize;

/// Prints one JSON document and nothing else.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value).map_err(io::Error::from)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

/// Prints lines.
pub(crate) fn lines(lines: impl IntoIterator<Item = String>) -> Result<()> {
    let mut out = io::stdout().lock();
    for line in lines {
        writeln!(out, "{}", printable(&line))?;
    }
    out.flush()?;
    Ok(())
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

/// Says on stderr why GDAL reads what the COG reader would have read.
pub(crate) fn fallback(raster: &dyn RasterReader) {
    if let Some(reason) = raster.fallback() {
        say(&format!(
            "reading with {}: {}",
            raster.backend(),
            reason.message()
        ));
    }
}

/// Prints one line on stderr, where nobody may listen.
pub(crate) fn say(line: &str) {
    let line = line.replace(['\n', '\r'], " ");
    let _ = writeln!(io::stderr(), "rss: {}", printable(&line));
}

/// Replaces control characters: a name from a catalogue must not steer a terminal.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// Returns true if the reader of stdout has gone away.
pub(crate) fn is_broken_pipe(err: &anyhow::Error) -> bool {
    err.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|err| err.kind() == io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb"), "a\u{fffd}[2Jb");
    }
}
