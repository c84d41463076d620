//! An open repository: reading a version, and writing through a work branch.
//!
//! Icechunk keeps the manifests of a session in memory until it commits, so a long write commits checkpoints to a
//! work branch: each amends the one before, so that the branch is always one commit ahead of where the write began.
//! At the end the named branch is moved to that commit, if it is still where the write began, and the work branch is
//! removed. Amended checkpoints leave small objects behind, which Icechunk's own garbage collection removes. See
//! `docs/decisions/005-cube-journal.md`.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::TryStreamExt;
use icechunk::{
    Store,
    format::{SnapshotId, format_constants::SpecVersionBin, snapshot::SnapshotProperties},
    refs::RefErrorKind,
    repository::{RepositoryErrorKind, VersionInfo},
    session::Session as Transaction,
};
use object_store::ObjectStore;
use tokio::sync::{Mutex as Queue, OwnedMutexGuard};

use super::{
    Commit, Icechunk, Missing, Stopped, Version,
    fault::{self, Moved},
    keys::Keys,
    objects::Objects,
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    session::Session,
};

/// The property of a checkpoint that holds the write's journal. The complete commit has none: that is how a resumed
/// write tells them apart.
const PROPERTY: &str = "rss-write";
/// Objects (shards or coordinates) after which a write makes a checkpoint.
const CHECKPOINT: usize = 32;

/// An open version of a repository. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Repository(Arc<Inner>);

struct Inner {
    repository: icechunk::Repository,
    location: Location,
    version: Version,
    store: Store,
    /// Held by the write under way, since there is one transaction: a second write of this handle waits.
    turn: Arc<Queue<()>>,
    write: Mutex<Option<Write>>,
}

/// A write under way.
#[derive(Clone, Debug)]
struct Write {
    /// The tip of the named branch when the write began.
    base: SnapshotId,
    /// The journal. Without one there are no checkpoints, and no work branch.
    journal: Option<String>,
    branch: Branch,
    /// Chunks since the last checkpoint.
    chunks: usize,
}

/// The state of the work branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Branch {
    None,
    /// It exists, and its tip is where the write began.
    Made,
    /// It is one commit ahead, a checkpoint.
    Ahead,
}

/// The lock of a write, until it is dropped. Changes that are not published by then are discarded; checkpoints stay.
#[derive(Debug)]
pub(crate) struct Turn {
    repository: Repository,
    _held: OwnedMutexGuard<()>,
}

impl fmt::Debug for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Repository")
            .field("location", &self.0.location)
            .field("version", &self.0.version)
            .finish_non_exhaustive()
    }
}

impl Repository {
    /// Opens a version for reading.
    pub(crate) async fn open(
        session: &Session,
        address: &Icechunk,
        missing: Missing,
    ) -> Result<Self> {
        let location = &address.location;
        let wrong = |err| fault::of_repository(&err, location);
        let storage = Arc::new(Objects::new(session, location)?);
        let repository = match missing {
            Missing::Make => {
                icechunk::Repository::open_or_create(storage)
                    .execute()
                    .await
            }
            Missing::Fail => icechunk::Repository::open(storage).execute().await,
        };
        let repository = repository.map_err(wrong)?;
        let version = named(&address.version).map_err(|err| err.at(location))?;
        let transaction = repository.readonly_session(&version).await;
        let transaction = Arc::new(tokio::sync::RwLock::new(transaction.map_err(wrong)?));
        Ok(Self(Arc::new(Inner {
            repository,
            location: location.clone(),
            version: address.version.clone(),
            store: Store::from_session(transaction).await,
            turn: Arc::default(),
            write: Mutex::default(),
        })))
    }

    /// Returns the version's keys as an object store.
    pub(crate) fn keys(&self) -> Arc<dyn ObjectStore> {
        Arc::new(Keys(self.clone()))
    }

    pub(super) fn store(&self) -> &Store {
        &self.0.store
    }

    pub(super) fn location(&self) -> &Location {
        &self.0.location
    }

    /// Begins a write on the tip of the branch, or resumes an interrupted one. Waits while another write of this
    /// handle is under way.
    pub(crate) async fn begin(&self, stopped: Stopped) -> Result<Turn> {
        let held = Arc::clone(&self.0.turn).lock_owned().await;
        let target = self.target()?;
        let mut write = Write {
            base: self.tip(target).await?,
            journal: None,
            branch: Branch::None,
            chunks: 0,
        };
        if stopped == Stopped::GoOn {
            if self.0.repository.spec_version() < SpecVersionBin::V2 {
                let message = "a repository of Icechunk's format 1: upgrade it before writing";
                return Err(self.named(Error::new(ErrorKind::Unsupported, message)));
            }
            self.find_stopped(&mut write).await?;
        }
        let on = match write.branch {
            Branch::None => target.to_owned(),
            Branch::Made | Branch::Ahead => self.work_branch(),
        };
        *self.0.store.session().write().await = self.writable(&on).await?;
        *self.write() = Some(write);
        Ok(Turn {
            repository: self.clone(),
            _held: held,
        })
    }

    /// Reads the work branch that an interrupted write has left.
    async fn find_stopped(&self, write: &mut Write) -> Result<()> {
        let work = self.work_branch();
        let tip = match self.0.repository.lookup_branch(&work).await {
            Ok(tip) => tip,
            Err(err) => match &err.kind {
                RepositoryErrorKind::Ref(RefErrorKind::RefNotFound(_)) => return Ok(()),
                _ => return Err(fault::of_repository(&err, &self.0.location)),
            },
        };
        write.branch = Branch::Made;
        if tip == write.base {
            return Ok(());
        }
        let found = self.0.repository.lookup_snapshot(&tip).await;
        let found = found.map_err(|err| fault::of_repository(&err, &self.0.location))?;
        // A checkpoint on another base: the named branch moved after the write was interrupted.
        if found.parent_id.as_ref() != Some(&write.base) {
            return Err(self.moved());
        }
        match found.metadata.get(PROPERTY).and_then(|json| json.as_str()) {
            Some(journal) => {
                write.journal = Some(journal.to_owned());
                write.branch = Branch::Ahead;
            }
            // The complete commit: the crash came before the named branch was moved.
            None => {
                self.hand_over(&write.base, &tip).await?;
                write.base = tip;
                write.branch = Branch::None;
            }
        }
        Ok(())
    }

    /// Returns the name of the work branch.
    pub(crate) fn work_branch(&self) -> String {
        let (Version::Branch(name) | Version::Tag(name) | Version::Snapshot(name)) =
            &self.0.version;
        format!("rss-write-{name}")
    }

    /// Returns the journal of the write under way.
    pub(super) fn journal(&self) -> Option<String> {
        self.write().as_ref()?.journal.clone()
    }

    /// Sets the journal of the write under way, which every checkpoint stores. The first one creates the work branch.
    pub(super) async fn keep_journal(&self, journal: Option<String>) -> Result<()> {
        let Some(mut write) = self.write().clone() else {
            // The write is published: its commit holds no journal.
            return Ok(());
        };
        write.journal = journal;
        if write.journal.is_some() && write.branch == Branch::None {
            let work = self.work_branch();
            let made = self.0.repository.create_branch(&work, &write.base).await;
            made.map_err(|err| fault::of_repository(&err, &self.0.location))?;
            *self.0.store.session().write().await = self.writable(&work).await?;
            write.branch = Branch::Made;
        }
        let is_kept = write.journal.is_some();
        *self.write() = Some(write);
        match is_kept {
            true => self.checkpoint().await,
            false => Ok(()),
        }
    }

    /// Counts an object that was put, and commits a checkpoint after every [`CHECKPOINT`] of them.
    pub(super) async fn count_chunk(&self) -> Result<()> {
        let is_time = match self.write().as_mut() {
            Some(write) if write.journal.is_some() => {
                write.chunks += 1;
                write.chunks >= CHECKPOINT && {
                    write.chunks = 0;
                    true
                }
            }
            _ => false,
        };
        match is_time {
            true => self.checkpoint().await,
            false => Ok(()),
        }
    }

    async fn checkpoint(&self) -> Result<()> {
        let session = self.0.store.session();
        // Puts wait for this lock: the transaction ends with the commit and is replaced below.
        let mut transaction = session.write().await;
        let Some(write) = self.write().clone() else {
            return Ok(());
        };
        let properties = write
            .journal
            .map(|journal| SnapshotProperties::from([(PROPERTY.to_owned(), journal.into())]));
        let message = "A write that is under way";
        self.commit(&mut transaction, message, properties, write.branch)
            .await?;
        if let Some(write) = self.write().as_mut() {
            write.branch = Branch::Ahead;
        }
        *transaction = self.writable(&self.work_branch()).await?;
        // Without this check a conflict would only be found at the end of the write.
        match self.tip(self.target()?).await? == write.base {
            true => Ok(()),
            false => Err(self.moved()),
        }
    }

    async fn publish(&self, message: &str) -> Result<()> {
        let session = self.0.store.session();
        let mut transaction = session.write().await;
        let Some(write) = self.write().take() else {
            return Ok(());
        };
        if write.branch != Branch::None || transaction.has_uncommitted_changes() {
            let done = self
                .commit(&mut transaction, message, None, write.branch)
                .await?;
            if write.branch != Branch::None {
                self.hand_over(&write.base, &done).await?;
            }
        }
        let now = VersionInfo::BranchTipRef(self.target()?.to_owned());
        let reading = self.0.repository.readonly_session(&now).await;
        *transaction = reading.map_err(|err| fault::of_repository(&err, &self.0.location))?;
        Ok(())
    }

    async fn commit(
        &self,
        transaction: &mut Transaction,
        message: &str,
        properties: Option<SnapshotProperties>,
        branch: Branch,
    ) -> Result<SnapshotId> {
        let mut commit = transaction
            .commit(message)
            .properties(properties.unwrap_or_default())
            .allow_empty(true);
        if branch == Branch::Ahead {
            commit = commit.amend();
        }
        commit.execute().await.map_err(|err| match err.is_moved() {
            true => self.moved(),
            false => fault::of_session(&err, &self.0.location),
        })
    }

    /// Moves the named branch to the write's commit, if its tip is still `base`, and removes the work branch. A crash
    /// in between leaves both at the same snapshot, and the next write uses the work branch as a new one.
    async fn hand_over(&self, base: &SnapshotId, done: &SnapshotId) -> Result<()> {
        let (repository, target) = (&self.0.repository, self.target()?);
        let wrong = |err| match Moved::is_moved(&err) {
            true => self.moved(),
            false => fault::of_repository(&err, &self.0.location),
        };
        let moved = repository.reset_branch(target, done, Some(base)).await;
        moved.map_err(wrong)?;
        let removed = repository.delete_branch(&self.work_branch()).await;
        removed.map_err(wrong)
    }

    pub(super) async fn history(&self) -> Result<Vec<Commit>> {
        let wrong = |err| fault::of_repository(&err, &self.0.location);
        let version = named(&self.0.version).map_err(|err| self.named(err))?;
        let found = self.0.repository.ancestry(&version).await.map_err(wrong)?;
        let commit = |found: icechunk::format::snapshot::SnapshotInfo| Commit {
            snapshot: found.id.to_string(),
            time: found.flushed_at,
            message: found.message,
        };
        found.map_ok(commit).map_err(wrong).try_collect().await
    }

    fn target(&self) -> Result<&str> {
        match &self.0.version {
            Version::Branch(name) => Ok(name),
            Version::Tag(name) | Version::Snapshot(name) => Err(self.named(Error::new(
                ErrorKind::InvalidInput,
                format!("`{name}` is a tag or snapshot, which is read-only: expected a branch"),
            ))),
        }
    }

    async fn tip(&self, branch: &str) -> Result<SnapshotId> {
        let tip = self.0.repository.lookup_branch(branch).await;
        tip.map_err(|err| fault::of_repository(&err, &self.0.location))
    }

    async fn writable(&self, branch: &str) -> Result<Transaction> {
        let writable = self.0.repository.writable_session(branch).await;
        writable.map_err(|err| fault::of_repository(&err, &self.0.location))
    }

    fn moved(&self) -> Error {
        let target = self.target().unwrap_or_default();
        self.named(Error::new(
            ErrorKind::Changed,
            format!(
                "branch `{target}` moved since this write began: others have committed to it. The checkpoint of a \
                 cube's write is in branch `{}`; remove that branch to start over",
                self.work_branch()
            ),
        ))
    }

    fn named(&self, err: Error) -> Error {
        err.at(&self.0.location)
    }

    fn write(&self) -> MutexGuard<'_, Option<Write>> {
        self.0.write.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Commits the write to the named branch. Without changes there is no commit.
    pub(crate) async fn publish(&self, message: &str) -> Result<()> {
        self.repository.publish(message).await
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.repository.write().take();
        // Discard unpublished changes, so that reads through this handle do not see them. If a read holds the lock at
        // this moment they remain until the next write replaces the transaction.
        if let Ok(mut transaction) = self.repository.store().session().try_write() {
            // A read-only session has no changes, and refuses.
            let _ = transaction.discard_changes();
        }
    }
}

fn named(version: &Version) -> Result<VersionInfo> {
    Ok(match version {
        Version::Branch(name) => VersionInfo::BranchTipRef(name.clone()),
        Version::Tag(name) => VersionInfo::TagRef(name.clone()),
        Version::Snapshot(id) => {
            let id = SnapshotId::try_from(id.as_str()).map_err(|_| {
                Error::new(
                    ErrorKind::InvalidInput,
                    format!("`{id}` is not a snapshot id"),
                )
            })?;
            VersionInfo::SnapshotId(id)
        }
    })
}
