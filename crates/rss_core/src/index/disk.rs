//! Blocking work on files of an index: it runs on tokio's blocking threads, and stops when its future is dropped.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::error::{Error, ErrorKind, Result};

/// Returns the path of the journal of an index.
pub(super) fn partial_of(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".partial");
    PathBuf::from(name)
}

pub(super) fn folder_of(output: &Path) -> &Path {
    match output.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// A flag that tells blocking work that its future was dropped.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Checks the flag. A blocking thread cannot be aborted from outside, so a writer checks it between batches, and
    /// removes its temporary file.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the future was dropped.
    pub(super) fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(Error::new(
                ErrorKind::Unavailable,
                "the write was cancelled",
            )),
            false => Ok(()),
        }
    }
}

/// Sets the flag when the future that waits for the work is dropped.
struct SetOnDrop(Stop);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Runs work that reads and writes files on a blocking thread.
pub(super) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce(&Stop) -> Result<T> + Send + 'static,
) -> Result<T> {
    let stop = Stop::default();
    let _guard = SetOnDrop(stop.clone());
    tokio::task::spawn_blocking(move || work(&stop))
        .await
        .map_err(|_| {
            Error::new(
                ErrorKind::Unavailable,
                "a blocking task panicked or was cancelled",
            )
        })?
}
