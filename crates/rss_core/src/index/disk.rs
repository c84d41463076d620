//! Work on files of an index: it runs where waiting is allowed, and stops when nobody waits for it.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::error::{Error, ErrorKind, Result};

/// Returns the journal's path.
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

/// Whether nobody waits any more for what is written.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if nobody waits: a thread cannot be ended from outside, so what writes
    /// asks, and clears up.
    pub(super) fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Unavailable, "nobody waits for it")),
            false => Ok(()),
        }
    }
}

/// Stops the work when the future that waits for it is dropped.
struct Waiting(Stop);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Runs what reads and writes files where waiting is allowed.
pub(super) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce(&Stop) -> Result<T> + Send + 'static,
) -> Result<T> {
    let stop = Stop::default();
    let _waiting = Waiting(stop.clone());
    tokio::task::spawn_blocking(move || work(&stop))
        .await
        .map_err(|_| Error::new(ErrorKind::Unavailable, "a task of the file system was lost"))?
}
