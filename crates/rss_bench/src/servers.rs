//! Servers in a process of their own, so that the processor time of this process is the client's.
//!
//! The process is this program with other arguments. It is asked by lines on its standard input, which
//! it answers by lines of JSON, and ends with it: no server outlives its client.

use std::{
    io::{BufRead, BufReader as Lines, Write},
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use rss_testbed::{Service, Testbed};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::{
    gather,
    ranges::{
        self,
        files::{File, Image},
        network::Network,
    },
};

/// The bucket that holds the files.
pub(crate) const BUCKET: &str = "bench";

/// What the servers hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Stock {
    /// The files of a gather, behind one server.
    Gather { files: usize, latency_ms: u64 },
    /// A striped and a tiled file, behind each of these servers.
    Ranges { servers: Vec<(Network, Image)> },
}

/// What a server was asked since it was asked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
}

/// What is run to be the servers, or a system: a program that hands its last argument to [`serve`] or to
/// [`zarr::worker`](crate::zarr::worker).
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) args: Vec<String>,
}

impl Program {
    /// Returns the program that runs now, with other arguments.
    ///
    /// # Errors
    ///
    /// If the system does not say which program that is.
    pub(crate) fn this(args: &[&str]) -> Result<Self> {
        Ok(Self {
            path: std::env::current_exe()?,
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
        })
    }
}

/// The servers' process.
#[derive(Debug)]
pub(crate) struct Servers {
    /// Killed when it is dropped.
    _child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// One for each server.
    pub(crate) endpoints: Vec<String>,
}

impl Servers {
    /// Starts the servers with what they hold.
    pub(crate) async fn start(program: &Program, stock: &Stock) -> Result<Self> {
        let mut command = Command::new(&program.path);
        command
            .args(&program.args)
            .arg(serde_json::to_string(stock)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        // Ctrl-C is for the client; the servers end with it.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command
            .spawn()
            .with_context(|| program.path.display().to_string())?;
        let input = child.stdin.take().context("no input")?;
        let output = child.stdout.take().context("no output")?;
        let mut servers = Self {
            _child: child,
            input,
            output: BufReader::new(output),
            endpoints: Vec::new(),
        };
        servers.endpoints = servers.answer().await?;
        ensure!(!servers.endpoints.is_empty(), "no server was started");
        Ok(servers)
    }

    /// Returns what a server was asked since the last call.
    pub(crate) async fn asked(&mut self, server: usize) -> Result<Asked> {
        let ended = "the servers' process ended early";
        self.input
            .write_all(format!("{server}\n").as_bytes())
            .await
            .context(ended)?;
        self.input.flush().await.context(ended)?;
        self.answer().await
    }

    async fn answer<T: for<'de> Deserialize<'de>>(&mut self) -> Result<T> {
        let mut line = String::new();
        self.output.read_line(&mut line).await?;
        ensure!(!line.is_empty(), "the servers' process ended early");
        Ok(serde_json::from_str(&line)?)
    }
}

/// Allows this process as many open files as it may have: hundreds of connections are open at once,
/// and many systems start with 1,024.
pub(crate) fn open_many_files() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        let most = Rlimit {
            current: limit.maximum,
            ..limit
        };
        // Some systems refuse what they call their maximum; the limit stays then.
        let _ = setrlimit(Resource::Nofile, most);
    }
}

/// Is the servers until standard input ends.
///
/// # Errors
///
/// If `stock` is not what the client side of this module sends, or a port cannot be bound.
pub(crate) fn serve(stock: &str) -> Result<()> {
    let stock: Stock = serde_json::from_str(stock).context("not a stock of files")?;
    open_many_files();
    let beds = start(&stock)?;
    let endpoints: Vec<String> = beds.iter().map(Testbed::s3_endpoint).collect();
    say(&endpoints)?;
    for line in Lines::new(std::io::stdin()).lines() {
        let server: usize = line?.trim().parse()?;
        let Some(bed) = beds.get(server) else {
            bail!("no server {server}");
        };
        let log = bed.requests(Service::S3);
        bed.clear_log();
        say(&Asked {
            requests: log.len() as u64,
            bytes: log.iter().map(|request| request.bytes).sum(),
        })?;
    }
    Ok(())
}

fn say(answer: &impl Serialize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, answer)?;
    writeln!(out)?;
    Ok(out.flush()?)
}

fn start(stock: &Stock) -> Result<Vec<Testbed>> {
    match stock {
        &Stock::Gather { files, latency_ms } => {
            let bed = Testbed::builder()
                .latency(Duration::from_millis(latency_ms))
                .start()?;
            let contents = (0..gather::files::CONTENTS.min(files))
                .map(gather::files::content)
                .collect::<Result<Vec<Bytes>>>()?;
            let contents = contents.into_iter().enumerate();
            for (file, content) in contents {
                bed.put(BUCKET, &gather::files::key(file), content);
            }
            for file in gather::files::CONTENTS..files {
                let from = gather::files::key(file % gather::files::CONTENTS);
                bed.link(BUCKET, &from, &gather::files::key(file))?;
            }
            Ok(vec![bed])
        }
        Stock::Ranges { servers } => {
            let mut made: Vec<(Image, [Bytes; 2])> = Vec::new();
            let mut beds = Vec::new();
            for (network, image) in servers {
                let known = made.iter().find(|(other, _)| other == image);
                let files = match known {
                    Some((_, files)) => files.clone(),
                    None => {
                        let files = [
                            ranges::files::content(File::Striped, *image)?,
                            ranges::files::content(File::Tiled, *image)?,
                        ];
                        made.push((*image, files.clone()));
                        files
                    }
                };
                let bed = Testbed::builder().profile(network.profile()).start()?;
                for (file, content) in File::ALL.iter().zip(files) {
                    bed.put(BUCKET, file.key(), content);
                }
                beds.push(bed);
            }
            Ok(beds)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[tokio::test]
    async fn servers_that_are_gone_are_an_error_with_a_name() {
        let program = Program {
            path: "/bin/sh".into(),
            args: vec!["-c".to_owned(), "echo '[\"here\"]'".to_owned()],
        };
        let stock = Stock::Ranges {
            servers: Vec::new(),
        };
        let mut servers = Servers::start(&program, &stock).await.unwrap();
        servers._child.wait().await.unwrap();
        let err = servers.asked(0).await.unwrap_err();
        assert_eq!(err.to_string(), "the servers' process ended early");
    }
}
