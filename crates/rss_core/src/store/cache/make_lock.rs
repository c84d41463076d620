//! The lock of one file of the cache among all processes, and what a lock is worth where there is none.
//!
//! Which locks are taken in which order: `docs/decisions/004-file-cache.md`.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::of_io;
use crate::error::Result;

// Pauses between two attempts to take a lock that another process holds.
const FIRST_POLL: Duration = Duration::from_millis(10);
const SLOWEST_POLL: Duration = Duration::from_millis(200);

/// The lock of one key, among all processes: its holder writes the file.
#[derive(Debug)]
pub(super) struct MakeLock {
    path: PathBuf,
    _file: File,
}

impl MakeLock {
    /// Takes the lock if nobody has it. On a file system without locks nobody has.
    pub(super) fn try_take(dir: &Path, digest: &str) -> Option<Self> {
        let path = dir.join(digest);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true);
        let file = options.open(&path).ok()?;
        let is_free = match file.try_lock() {
            Ok(()) => is_same(&file, &path),
            Err(TryLockError::Error(err)) => err.kind() == io::ErrorKind::Unsupported,
            Err(TryLockError::WouldBlock) => false,
        };
        is_free.then_some(Self { path, _file: file })
    }

    /// Waits for the lock. Polls: a blocking `lock` would go on in its thread after the future is
    /// dropped.
    pub(super) async fn take(dir: &Path, digest: &str) -> Result<Self> {
        let path = dir.join(digest);
        let mut pause = FIRST_POLL;
        loop {
            let io_error = |err: &io::Error| of_io(err).at(path.display());
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)
                .map_err(|err| io_error(&err))?;
            match file.try_lock() {
                // The previous holder may have removed the file after this `open`: then the lock is on
                // a file without a name, and another process can lock a new one.
                Ok(()) if is_same(&file, &path) => return Ok(Self { path, _file: file }),
                Ok(()) => continue,
                Err(TryLockError::Error(err)) if err.kind() == io::ErrorKind::Unsupported => {
                    return Ok(Self { path, _file: file });
                }
                Err(TryLockError::Error(err)) => return Err(io_error(&err)),
                Err(TryLockError::WouldBlock) => {}
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(SLOWEST_POLL);
        }
    }
}

impl Drop for MakeLock {
    fn drop(&mut self) {
        // Removed before it is unlocked (fields drop after this). Windows refuses to remove an open file.
        if cfg!(unix) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(unix)]
pub(crate) fn is_same(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    match (file.metadata(), fs::metadata(path)) {
        (Ok(a), Ok(b)) => a.ino() == b.ino() && a.dev() == b.dev(),
        _ => false,
    }
}

#[cfg(not(unix))]
pub(crate) fn is_same(_: &File, _: &Path) -> bool {
    true
}

/// Accepts a file system without locks: processes that share a cache there are not protected from
/// each other (docs/decisions/004-file-cache.md, "File systems without locks").
pub(super) fn supported(locked: io::Result<()>) -> io::Result<()> {
    match locked {
        Err(err) if err.kind() == io::ErrorKind::Unsupported => Ok(()),
        locked => locked,
    }
}
