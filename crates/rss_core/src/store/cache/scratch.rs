//! A session's folder for unfinished files, and how others find out that the session is dead.
//!
//! Each session has a folder of its own, and holds a lock on a file in it for as long as it lives.
//! The system releases the lock with the process, however it ends: a folder whose lock can be taken
//! is a leftover. The folder also names the entries that the session uses (pins), so that no one
//! evicts them. See `docs/decisions/004-file-cache.md`.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File, OpenOptions, TryLockError},
    io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

const ALIVE: &str = "alive";
const PINS: &str = "pins";

/// The folder of this session.
#[derive(Debug)]
pub(super) struct Scratch {
    dir: PathBuf,
    /// Locked while the session lives.
    _alive: File,
    made: AtomicU64,
    pins: Mutex<HashMap<String, usize>>,
}

impl Scratch {
    /// Creates the folder under `tmp`. The caller holds the cache's lock alone: between `create` and
    /// `try_lock` the folder looks like one of a dead session.
    pub(super) fn create(tmp: &Path) -> io::Result<Self> {
        fs::create_dir_all(tmp)?;
        let dir = tempfile::Builder::new().prefix("s").tempdir_in(tmp)?.keep();
        let alive = File::create(dir.join(ALIVE))?;
        match alive.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {}
            // On a file system without locks all sessions count as alive: leftovers stay.
            Err(TryLockError::Error(err)) if err.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(err)) => return Err(err),
        }
        fs::create_dir(dir.join(PINS))?;
        Ok(Self {
            dir,
            _alive: alive,
            made: AtomicU64::new(0),
            pins: Mutex::default(),
        })
    }

    /// Creates an empty folder for one unfinished file.
    pub(super) fn desk(&self) -> io::Result<Desk> {
        let n = self.made.fetch_add(1, Ordering::Relaxed);
        let dir = self.dir.join(format!("d{n}"));
        fs::create_dir(&dir)?;
        Ok(Desk(dir))
    }

    /// Pins an entry: it is not evicted until the pin is dropped. The caller holds the cache's
    /// lock, shared.
    pub(super) fn pin(self: &Arc<Self>, digest: &str) -> io::Result<Pin> {
        // Several calls of this session may use one entry: its pin file goes with the last of them.
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let count = pins.entry(digest.to_owned()).or_default();
        if *count == 0 {
            File::create(self.dir.join(PINS).join(digest))?;
        }
        *count += 1;
        Ok(Pin {
            scratch: Arc::clone(self),
            digest: digest.to_owned(),
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that cannot be removed now is removed by a later session: the lock ends with this
        // process.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A folder that is removed with its contents when this is dropped.
#[derive(Debug)]
pub(super) struct Desk(PathBuf);

impl Desk {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Returns true if the disk is full. Called while the unfinished file still takes its space.
    pub(super) fn disk_is_full(&self) -> bool {
        let is_full = |err: io::Error| {
            matches!(
                err.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            )
        };
        fs::write(self.0.join("probe"), vec![1; 256 << 10]).is_err_and(is_full)
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A pin: its entry is not evicted.
#[derive(Debug)]
pub(super) struct Pin {
    scratch: Arc<Scratch>,
    digest: String,
}

impl Pin {
    /// Returns the key of the entry.
    pub(super) fn digest(&self) -> &str {
        &self.digest
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut pins = self
            .scratch
            .pins
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = pins.get_mut(&self.digest) {
            *count -= 1;
            if *count == 0 {
                pins.remove(&self.digest);
                let _ = fs::remove_file(self.scratch.dir.join(PINS).join(&self.digest));
            }
        }
    }
}

/// The sessions found under `tmp`.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    /// Digests of the entries in use by live sessions.
    pub(super) pinned: HashSet<String>,
    /// Folders of dead sessions.
    pub(super) dead: Vec<PathBuf>,
}

/// Looks through the folders of all sessions. The caller holds the cache's lock.
pub(super) fn sessions(tmp: &Path) -> io::Result<Sessions> {
    let mut found = Sessions::default();
    let dirs = match fs::read_dir(tmp) {
        Ok(dirs) => dirs,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(err) => return Err(err),
    };
    for dir in dirs {
        let dir = dir?.path();
        if is_alive(&dir) {
            if let Ok(pins) = fs::read_dir(dir.join(PINS)) {
                found.pinned.extend(
                    pins.flatten()
                        .filter_map(|pin| pin.file_name().into_string().ok()),
                );
            }
        } else {
            found.dead.push(dir);
        }
    }
    Ok(found)
}

fn is_alive(dir: &Path) -> bool {
    match OpenOptions::new().write(true).open(dir.join(ALIVE)) {
        Ok(file) => match file.try_lock() {
            Ok(()) => false,
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(_)) => true,
        },
        // No permission to open it: another user's session, which may be alive.
        Err(err) => err.kind() != io::ErrorKind::NotFound && dir.is_dir(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_sessions_pins_count_and_a_dead_ones_do_not() {
        let tmp = tempfile::tempdir().unwrap();
        let scratch = Arc::new(Scratch::create(tmp.path()).unwrap());
        let one = scratch.pin("aa").unwrap();
        let two = scratch.pin("aa").unwrap();
        drop(one);
        assert!(sessions(tmp.path()).unwrap().pinned.contains("aa"));
        drop(two);
        assert!(sessions(tmp.path()).unwrap().pinned.is_empty());

        // A killed process leaves a folder, its files, and no lock.
        let dead = tmp.path().join("dead");
        fs::create_dir_all(dead.join(PINS)).unwrap();
        fs::write(dead.join(ALIVE), "").unwrap();
        fs::write(dead.join(PINS).join("bb"), "").unwrap();
        let found = sessions(tmp.path()).unwrap();
        assert!(found.pinned.is_empty());
        assert_eq!(found.dead, [dead]);
    }

    #[test]
    fn nothing_is_left_of_a_session_that_ends() {
        let tmp = tempfile::tempdir().unwrap();
        let scratch = Scratch::create(tmp.path()).unwrap();
        let desk = scratch.desk().unwrap();
        fs::write(desk.path().join("data"), "half").unwrap();
        drop(desk);
        drop(scratch);
        assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0);
    }
}
