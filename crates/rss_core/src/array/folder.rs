//! The claim of a writer on a folder: a lock for as long as it lives, and one for moments round each change.
//!
//! Below `.partial/` are `lock`, which the writer holds until it ends, `turn`, which it holds while it compares the
//! journal and renames a file, and a folder of its own for files that are being written. Locks end with their process.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use serde_json::Value;

use super::{JOURNAL, claim::Writer, storage::PARTIAL};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::{ordinary_file, sync_folder},
    store,
};

/// How long to wait for the lock: a write of this process that was just dropped holds it until its threads have ended.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long to wait for the moment of another writer's rename.
const TURN_PATIENCE: Duration = Duration::from_secs(5);
/// Folders that are synced at once.
const AT_ONCE: usize = 8;

/// Runs file IO off the runtime's threads.
pub(super) async fn on_files<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R> {
    tokio::task::spawn_blocking(work).await.map_err(|_| {
        Error::new(
            ErrorKind::Unavailable,
            "a file system task panicked or was cancelled",
        )
    })
}

/// Returns the error of a second writer.
pub(super) fn busy(holder: Option<&Writer>) -> Error {
    let holder = holder.map_or_else(|| "another process".to_owned(), ToString::to_string);
    let message = format!(
        "this cube is being written by {holder}: wait for it, or, if it will never go on, take its work over \
         (--take-over)"
    );
    Error::new(ErrorKind::Unavailable, message)
}

/// Whether a change was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Yes,
    /// Another writer has taken the work over.
    Overtaken,
}

enum Taken {
    Locked(File),
    Busy(Option<Writer>),
    /// The file system has no locks.
    Unsupported,
}

#[derive(Debug)]
pub(super) struct FolderClaim {
    base: PathBuf,
    /// Of this writer, for files that are being written.
    own: PathBuf,
    /// The nearest folder above that was there before.
    above: PathBuf,
    /// Held until the claim ends; none where the file system has no locks.
    lock: Option<File>,
    /// Held for moments.
    turn: Mutex<Option<File>>,
    /// The journal of this writer. Open, so that no other file can have its number.
    journal: Mutex<Option<File>>,
    /// Folders with names that are not synced yet.
    unsynced: Mutex<BTreeSet<PathBuf>>,
}

/// Returns who holds the lock of a folder, if anybody does; inside none where that is not known.
pub(super) fn holder(base: &Path) -> io::Result<Option<Option<Writer>>> {
    let path = base.join(PARTIAL).join("lock");
    if !path.is_file() {
        return Ok(None);
    }
    match take(&path, PATIENCE) {
        Ok(Taken::Busy(holder)) => Ok(Some(holder)),
        Ok(_) => Ok(None),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(err),
    }
}

/// Takes the lock of a file, which is made if it does not exist.
fn take(path: &Path, patience: Duration) -> io::Result<Taken> {
    let start = Instant::now();
    loop {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path)?;
        match file.try_lock() {
            // A writer that ends removes the file while it holds the lock: then this one is of no use.
            Ok(()) if is_at(&file, path)? => return Ok(Taken::Locked(file)),
            Ok(()) => {}
            Err(TryLockError::WouldBlock) if start.elapsed() > patience => {
                let holder = fs::read(path).ok();
                let holder = holder.and_then(|bytes| serde_json::from_slice(&bytes).ok());
                return Ok(Taken::Busy(
                    holder.and_then(|holder: Value| Writer::of_json(&holder)),
                ));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
            Err(TryLockError::Error(err)) if is_unsupported(&err) => return Ok(Taken::Unsupported),
            Err(TryLockError::Error(err)) => return Err(err),
        }
    }
}

/// Returns true for the errors of file systems without locks: ENOLCK, ENOTSUP, ENOSYS.
fn is_unsupported(err: &io::Error) -> bool {
    err.kind() == io::ErrorKind::Unsupported || matches!(err.raw_os_error(), Some(37 | 38 | 95))
}

/// Returns true if a path leads to an open file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let ours = file.metadata()?;
    match fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(err) => Err(err),
    }
}

/// Returns true if a path leads to a file with the bytes of an open one.
#[cfg(not(unix))]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::io::{Read, Seek};
    let mut ours = Vec::new();
    let mut file = file;
    file.rewind()?;
    file.read_to_end(&mut ours)?;
    match fs::read(path) {
        Ok(there) => Ok(there == ours),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(err) => Err(err),
    }
}

fn guarded<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FolderClaim {
    /// Takes the lock of a folder, and removes what dead writers have left. The second is a note for the user.
    pub(super) fn take(
        base: &Path,
        writer: &Writer,
        take_over: bool,
    ) -> io::Result<Result<(Self, Option<String>)>> {
        let partial = base.join(PARTIAL);
        let mut above = base.ancestors().skip(1);
        let above = above.find(|folder| folder.as_os_str().is_empty() || folder.is_dir());
        let above = above.unwrap_or(base).to_owned();
        let mut note = None;
        let (mut lock, mut tries) = (None, 0);
        while lock.is_none() && note.is_none() {
            fs::create_dir_all(&partial)?;
            let path = partial.join("lock");
            tries += 1;
            let patience = if take_over { Duration::ZERO } else { PATIENCE };
            match take(&path, patience) {
                Ok(Taken::Locked(mut file)) => {
                    file.set_len(0)?;
                    file.write_all(writer.to_json().to_string().as_bytes())?;
                    lock = Some(file);
                }
                // The file of one that lives: its lock is of no more use to it, as its journal is replaced.
                Ok(Taken::Busy(_)) if take_over && tries < 100 => fs::remove_file(&path)?,
                Ok(Taken::Busy(holder)) => return Ok(Err(busy(holder.as_ref()))),
                Ok(Taken::Unsupported) => {
                    let text = format!(
                        "{}: this file system has no locks, so that a second writer is noticed late: let only one \
                         write here",
                        base.display()
                    );
                    tracing::warn!("{text}");
                    note = Some(text);
                }
                // Another writer ends at this moment and removes the folder.
                Err(err) if err.kind() == io::ErrorKind::NotFound && tries < 100 => {}
                Err(err) => return Err(err),
            }
        }
        let own = partial.join(&writer.token);
        let turn = match &lock {
            Some(_) => {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create(true).truncate(false);
                Some(options.open(partial.join("turn"))?)
            }
            None => None,
        };
        // With the lock nobody else is alive here, or it was taken over.
        for entry in fs::read_dir(&partial)?.filter(|_| lock.is_some()) {
            let path = entry?.path();
            let is_kept = ["lock", "turn"]
                .map(|name| partial.join(name))
                .contains(&path);
            if !is_kept {
                let _ = match path.is_dir() {
                    true => fs::remove_dir_all(&path),
                    false => fs::remove_file(&path),
                };
            }
        }
        fs::create_dir_all(&own)?;
        let claim = Self {
            base: base.to_owned(),
            above,
            own,
            lock,
            turn: Mutex::new(turn),
            journal: Mutex::default(),
            unsynced: Mutex::default(),
        };
        Ok(Ok((claim, note)))
    }

    /// Writes the journal: from now on the claim is that of this writer.
    pub(super) fn begin(&self, journal: &Bytes) -> Result<()> {
        let at = |err: io::Error| store::of_io(&err).at(self.base.join(JOURNAL).display());
        let path = self.base.join(JOURNAL);
        let file = self.written(std::slice::from_ref(journal)).map_err(at)?;
        let kept = file.as_file().try_clone().map_err(at)?;
        let _turn = self.turn()?;
        file.persist(&path).map_err(|err| at(err.error))?;
        *guarded(&self.journal) = Some(kept);
        for folder in self.base.ancestors() {
            sync_folder(folder);
            if folder == self.above {
                break;
            }
        }
        Ok(())
    }

    /// Replaces the journal, if it is still that of this writer.
    pub(super) fn restate(&self, journal: &Bytes) -> Result<Done> {
        match self.is_ours() {
            true => match self.begin(journal) {
                Err(_) if self.is_removed() => Ok(Done::Overtaken),
                begun => begun.map(|()| Done::Yes),
            },
            false => Ok(Done::Overtaken),
        }
    }

    /// Returns true if nobody has taken the work over.
    pub(super) fn is_ours(&self) -> bool {
        let journal = guarded(&self.journal);
        let at = |journal: &File| is_at(journal, &self.base.join(JOURNAL)).unwrap_or(false);
        journal.as_ref().is_some_and(at)
    }

    /// Returns true if the folder of this writer is gone: whoever takes over removes those of others before its own journal
    /// is there.
    fn is_removed(&self) -> bool {
        !self.own.is_dir()
    }

    /// Waits for the moment to change something.
    fn turn(&self) -> Result<Moment<'_>> {
        let held = guarded(&self.turn);
        let start = Instant::now();
        while let Some(file) = &*held {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if start.elapsed() < TURN_PATIENCE => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(TryLockError::WouldBlock) => {
                    let message = "another writer was stopped while it replaced a file: end that process first";
                    return Err(Error::new(ErrorKind::Unavailable, message));
                }
                Err(TryLockError::Error(err)) => return Err(store::of_io(&err)),
            }
        }
        Ok(Moment(held))
    }

    /// Writes a file and syncs its bytes.
    fn written(&self, pieces: &[Bytes]) -> io::Result<tempfile::NamedTempFile> {
        let mut file = ordinary_file().tempfile_in(&self.own)?;
        for piece in pieces {
            file.write_all(piece)?;
        }
        file.as_file().sync_data()?;
        Ok(file)
    }

    /// Writes a file, and gives it its name if the claim is still ours.
    pub(super) fn put(&self, path: &Path, pieces: &[Bytes]) -> Result<Done> {
        let parent = path.parent().unwrap_or(&self.base);
        let file = fs::create_dir_all(parent).and_then(|()| self.written(pieces));
        let _turn = self.turn()?;
        // First of all: whoever takes over removes the files of others, which is no error of the file system.
        if !self.is_ours() {
            return Ok(Done::Overtaken);
        }
        let named = file.and_then(|file| file.persist(path).map_err(|err| err.error));
        match named {
            Err(_) if self.is_removed() => return Ok(Done::Overtaken),
            named => named.map_err(|err| store::of_io(&err))?,
        };
        self.remember(path);
        Ok(Done::Yes)
    }

    /// Remembers to sync the folders of a file that was named or removed.
    pub(super) fn remember(&self, path: &Path) {
        let mut unsynced = guarded(&self.unsynced);
        for folder in path.ancestors().skip(1) {
            if !unsynced.insert(folder.to_owned()) || folder == self.base {
                break;
            }
        }
    }

    /// Removes a file if the claim is still ours.
    pub(super) fn remove(&self, path: &Path) -> Result<Done> {
        let _turn = self.turn()?;
        if !self.is_ours() {
            return Ok(Done::Overtaken);
        }
        match fs::remove_file(path) {
            Ok(()) => self.remember(path),
            Err(err) if err.kind() == io::ErrorKind::NotFound => {}
            Err(err) => return Err(store::of_io(&err)),
        }
        Ok(Done::Yes)
    }

    /// Syncs the folders of files that were named or removed, those of earlier attempts too.
    pub(super) fn settle(&self) {
        let folders: Vec<PathBuf> = std::mem::take(&mut *guarded(&self.unsynced))
            .into_iter()
            .collect();
        let part = folders.len().div_ceil(AT_ONCE).max(1);
        std::thread::scope(|scope| {
            for folders in folders.chunks(part) {
                scope.spawn(move || folders.iter().for_each(|folder| sync_folder(folder)));
            }
        });
    }

    /// Removes the journal, then the locks.
    pub(super) fn release(&self) -> Result<Done> {
        let at = |err: io::Error| store::of_io(&err).at(self.base.join(JOURNAL).display());
        let turn = self.turn()?;
        if !self.is_ours() {
            return Ok(Done::Overtaken);
        }
        fs::remove_file(self.base.join(JOURNAL)).map_err(at)?;
        *guarded(&self.journal) = None;
        drop(turn);
        sync_folder(&self.base);
        self.tidy();
        Ok(Done::Yes)
    }

    /// Removes this writer's files below `.partial/`, and all of it where no write is under way.
    fn tidy(&self) {
        let partial = self.base.join(PARTIAL);
        let _ = fs::remove_dir_all(&self.own);
        let path = partial.join("lock");
        let is_held = match &self.lock {
            Some(lock) => is_at(lock, &path).unwrap_or(false),
            None => true,
        };
        if is_held && !self.base.join(JOURNAL).exists() {
            let _ = fs::remove_file(partial.join("turn"));
            let _ = fs::remove_file(path);
            // Fails where others have files in it.
            let _ = fs::remove_dir(partial);
        }
    }
}

impl Drop for FolderClaim {
    fn drop(&mut self) {
        self.tidy();
    }
}

/// The moment of one writer, until it is dropped.
struct Moment<'a>(MutexGuard<'a, Option<File>>);

impl Drop for Moment<'_> {
    fn drop(&mut self) {
        if let Some(file) = &*self.0 {
            let _ = file.unlock();
        }
    }
}
