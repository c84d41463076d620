//! Servers in a process of their own, so that what a bench counts of its own process is the client's.
//!
//! The process is the bench's own binary with another argument; it ends with its standard input.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use rss_testbed::{Scenes, Testbed};

const SERVE: &str = "serve-scenes-of";

/// The servers' process.
#[derive(Debug)]
pub struct Apart {
    child: Child,
    /// Where its objects are.
    pub s3_endpoint: String,
}

impl Apart {
    /// Starts the servers, at no latency, with scenes of so many pixels a side.
    ///
    /// # Errors
    ///
    /// If the process does not start, or says no address.
    pub fn start(side: u32) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([SERVE, &side.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut said = String::new();
        let output = child.stdout.take().context("no output")?;
        BufReader::new(output).read_line(&mut said)?;
        ensure!(said.starts_with("http"), "the servers did not start");
        Ok(Self {
            child,
            s3_endpoint: said.trim().to_owned(),
        })
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Is the servers, where the arguments ask for them, until standard input ends; returns whether it was. A bench that
/// calls [`Apart::start`] calls this first.
///
/// # Errors
///
/// If the servers cannot be started, or standard input or output fails.
pub fn serve_if_asked() -> Result<bool> {
    let args: Vec<String> = std::env::args().collect();
    let [_, what, side] = args.as_slice() else {
        return Ok(false);
    };
    if what != SERVE {
        return Ok(false);
    }
    let bed = Testbed::builder()
        .scenes(Scenes::Sized(side.parse()?))
        .start()?;
    let mut output = std::io::stdout();
    writeln!(output, "{}", bed.s3_endpoint())?;
    output.flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(true)
}
