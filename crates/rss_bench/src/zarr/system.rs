//! A system, and the process that is it.

use std::{path::Path, process::Stdio, str::FromStr, time::Duration};

use anyhow::{Context, Result, ensure};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    task::JoinHandle,
};

use super::job::{Hello, Job, Refusal};
use crate::Program;

/// A system beside ours: a name, and the command that speaks the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Peer {
    /// Its name in the report.
    pub(crate) name: String,
    /// What a shell is given to run.
    pub(crate) command: String,
}

impl FromStr for Peer {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, command) = text
            .split_once('=')
            .map(|(name, command)| (name.trim(), command.trim()))
            .filter(|(name, command)| !name.is_empty() && !command.is_empty())
            .with_context(|| format!("--peer is `{text}`, expected NAME=COMMAND"))?;
        Ok(Self {
            name: name.to_owned(),
            command: command.to_owned(),
        })
    }
}

/// What stores and reads arrays.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub(crate) struct System {
    /// Its name in the report.
    pub(crate) name: String,
    /// What the protocol calls the codec that it is told to use.
    pub(crate) codec: String,
    /// Its version, as it says; none where it never answered.
    pub(crate) version: Option<String>,
    /// How it stores what it is not told how to store, as it says.
    pub(crate) says: Option<String>,
    /// A command of the user's; none for the systems in Rust.
    pub(crate) command: Option<String>,
}

/// The systems in Rust: a name, the worker that is it, and its codec.
const IN_RUST: &[(&str, &str, &str)] = &[
    (OURS, "ours", "default"),
    (OURS_LZ4, "ours", "lz4"),
    ("zarrs", "zarrs", "blosc-zstd5"),
];

/// This library with the codec that it takes by itself.
pub(crate) const OURS: &str = "rss_core";
/// This library with LZ4, as WKW stores.
pub(crate) const OURS_LZ4: &str = "rss_core lz4";
/// The system that stores with LZ4, for speed rather than size.
pub(crate) const WKW: &str = "wkw";

impl System {
    /// Returns all, in the order of the report.
    pub(super) fn all(peers: &[Peer]) -> Vec<Self> {
        let in_rust = IN_RUST.iter().map(|&(name, _, codec)| (name, codec, None));
        let peers = peers
            .iter()
            .map(|peer| (peer.name.as_str(), "native", Some(peer.command.clone())));
        in_rust
            .chain(peers)
            .map(|(name, codec, command)| Self {
                name: name.to_owned(),
                codec: codec.to_owned(),
                version: None,
                says: None,
                command,
            })
            .collect()
    }

    /// Checks that no name stands for two.
    pub(super) fn check(peers: &[Peer]) -> Result<()> {
        let mut names: Vec<&str> = IN_RUST.iter().map(|(name, ..)| *name).collect();
        for peer in peers {
            ensure!(
                !names.contains(&peer.name.as_str()),
                "--peer names `{}`, which is another system's name",
                peer.name
            );
            names.push(&peer.name);
        }
        Ok(())
    }

    /// Starts its process.
    pub(super) async fn start(&self, program: &Program) -> Result<(Process, Hello)> {
        let mut command = match &self.command {
            Some(command) => shell(command),
            None => {
                let worker = IN_RUST.iter().find(|(name, ..)| *name == self.name);
                let (_, worker, _) = worker.context("no worker is it")?;
                let mut command = Command::new(&program.path);
                command.args(&program.args).arg(worker);
                command
            }
        };
        let mut process = Process::start(&mut command)?;
        let hello = process.ask(&Job::Hello).await?;
        Ok((process, hello))
    }
}

#[cfg(unix)]
fn shell(text: &str) -> Command {
    let mut command = Command::new("sh");
    // The program takes the shell's place, so that it is what ends with us.
    command.arg("-c").arg(format!("exec {text}"));
    command
}

#[cfg(not(unix))]
fn shell(text: &str) -> Command {
    let mut command = Command::new("cmd");
    command.arg("/C").arg(text);
    command
}

/// A process that answers lines by lines.
#[derive(Debug)]
pub(super) struct Process {
    /// Killed when it is dropped.
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The last line that it said beside its answers.
    said: Option<JoinHandle<String>>,
    is_gone: bool,
}

/// How long the last words of a process may take.
const LAST_WORDS: Duration = Duration::from_secs(1);

impl Process {
    fn start(command: &mut Command) -> Result<Self> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        // Ctrl-C is for the comparison; the systems end with it.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn().with_context(|| {
            let program = command.as_std().get_program();
            format!("{} cannot be run", Path::new(program).display())
        })?;
        let input = child.stdin.take().context("no input")?;
        let output = child.stdout.take().context("no output")?;
        let errors = child.stderr.take().context("no standard error")?;
        let said = tokio::spawn(async move {
            let mut lines = BufReader::new(errors);
            let (mut last, mut line) = (String::new(), Vec::new());
            while lines
                .read_until(b'\n', &mut line)
                .await
                .is_ok_and(|n| n > 0)
            {
                let text = String::from_utf8_lossy(&line);
                if !text.trim().is_empty() {
                    text.trim().clone_into(&mut last);
                }
                line.clear();
            }
            last
        });
        Ok(Self {
            child,
            input,
            output: BufReader::new(output),
            said: Some(said),
            is_gone: false,
        })
    }

    /// Returns whether it ended, or answered what cannot be understood.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Has a job done. What it cannot do is an error, and it goes on.
    pub(super) async fn ask<T: DeserializeOwned>(&mut self, job: &Job) -> Result<T> {
        let line = serde_json::to_string(job)? + "\n";
        let mut answer = String::new();
        let asked = async {
            self.input.write_all(line.as_bytes()).await?;
            self.input.flush().await
        };
        // A process that ended hears nothing, but may have said something before: that comes first.
        let _ = asked.await;
        if !matches!(self.output.read_line(&mut answer).await, Ok(1..)) {
            self.is_gone = true;
            anyhow::bail!(self.last_words().await);
        }
        let understood = || {
            let value: Value = serde_json::from_str(&answer).ok()?;
            if let Ok(refusal) = Refusal::deserialize_from(&value) {
                return Some(Err(anyhow::Error::msg(one_line(&refusal.error))));
            }
            Some(Ok(serde_json::from_value(value).ok()?))
        };
        let Some(answered) = understood() else {
            self.is_gone = true;
            anyhow::bail!("it answered `{}`", one_line(&answer));
        };
        answered
    }

    /// Says how it ended.
    async fn last_words(&mut self) -> String {
        let ended = tokio::time::timeout(LAST_WORDS, self.child.wait()).await;
        let how = match ended {
            Ok(Ok(status)) => format!("it ended ({status})"),
            _ => "it answers no more".to_owned(),
        };
        let said = match self.said.take() {
            Some(said) => tokio::time::timeout(LAST_WORDS, said).await,
            None => return how,
        };
        match said {
            Ok(Ok(said)) if !said.is_empty() => format!("{how}: {}", one_line(&said)),
            _ => how,
        }
    }
}

impl Refusal {
    fn deserialize_from(value: &Value) -> Result<Self, serde_json::Error> {
        serde::Deserialize::deserialize(value)
    }
}

/// Returns the first of some words.
fn one_line(text: &str) -> String {
    const MOST: usize = 200;
    let line = text.trim().lines().next().unwrap_or_default();
    match line.chars().count() > MOST {
        true => line.chars().take(MOST).collect::<String>() + "..",
        false => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_name_and_a_command() {
        let peer: Peer = "wkw=python w.py --a=b".parse().unwrap();
        assert_eq!(peer.name, "wkw");
        assert_eq!(peer.command, "python w.py --a=b");
        for text in ["", "wkw", "=python", "wkw= "] {
            let err = text.parse::<Peer>().unwrap_err();
            assert!(err.to_string().contains("NAME=COMMAND"), "{err}");
        }
        let zarrs: Peer = "zarrs=x".parse().unwrap();
        assert!(System::check(std::slice::from_ref(&zarrs)).is_err());
        assert!(System::check(&[peer.clone(), peer.clone()]).is_err());
        assert!(System::check(&[peer]).is_ok());
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_process_that_ends_says_why() {
        for (command, said) in [
            ("false", "it ended (exit status: 1)"),
            ("sh -c 'echo no such module >&2; exit 3'", "no such module"),
            ("echo hello", "it answered `hello`"),
            ("/absent/peer", "it ended (exit status: 127)"),
        ] {
            let peer: Peer = format!("x={command}").parse().unwrap();
            let system = System::all(&[peer]).pop().unwrap();
            let program = Program::this(&[]).unwrap();
            let err = system.start(&program).await.unwrap_err();
            assert!(err.to_string().contains(said), "{command}: {err}");
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn an_error_is_an_answer_and_the_process_goes_on() {
        let answer = r#"{"error": "not of 4 axes"}"#;
        let mut command = shell(&format!("sh -c 'while read x; do echo {answer:?}; done'"));
        let mut process = Process::start(&mut command).unwrap();
        for _ in 0..2 {
            let err = process.ask::<Hello>(&Job::Hello).await.unwrap_err();
            assert_eq!(err.to_string(), "not of 4 axes");
            assert!(!process.is_gone());
        }
    }
}
