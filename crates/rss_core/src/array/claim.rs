//! The claim of a writer on a hierarchy: who holds it may change objects, and nobody else.
//!
//! The journal is the claim: it names its writer, and is replaced by whoever takes the work over. In a folder its file
//! is compared under a lock before each rename; in a bucket every put is conditional, and what a condition refuses is
//! replaced only after the journal was found to be ours. So a writer that was paused while others went on changes
//! nothing. In an Icechunk repository the commit does all that. `docs/decisions/005-cube-journal.md` has the protocol.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion};
use serde_json::{Value, json};

use super::{
    JOURNAL, Storage,
    folder::{self, FolderClaim},
    parse, to_bytes,
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    store,
};

/// Attempts to put an object that others replace meanwhile, or whose response is lost.
const ATTEMPTS: usize = 8;

/// The process that writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    host: String,
    pid: u32,
    since: String,
    /// Different for each write.
    pub(super) token: String,
}

impl Writer {
    fn of_this_process() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default();
        let time: DateTime<Utc> = SystemTime::now().into();
        let pid = std::process::id();
        let random = RandomState::new().hash_one((pid, now));
        Self {
            host: host(),
            pid,
            since: time.to_rfc3339_opts(SecondsFormat::Secs, true),
            token: format!("{:x}-{random:016x}", now.as_nanos()),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({"host": self.host, "pid": self.pid, "since": self.since, "token": self.token})
    }

    pub(super) fn of_json(value: &Value) -> Option<Self> {
        let text = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
        Some(Self {
            host: text("host")?,
            pid: u32::try_from(value.get("pid")?.as_u64()?).ok()?,
            since: text("since")?,
            token: text("token")?,
        })
    }

    /// Returns true if it was a process of this machine that has ended.
    pub(crate) fn is_dead(&self) -> bool {
        let processes = Path::new("/proc");
        self.host == host()
            && processes.join("self").exists()
            && !processes.join(self.pid.to_string()).exists()
    }
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "process {} on {}, since {}",
            self.pid, self.host, self.since
        )
    }
}

/// Returns the name of this machine.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let name = name.unwrap_or_default().trim().to_owned();
    match name.is_empty() {
        true => "a host without a name".to_owned(),
        false => name,
    }
}

/// A journal as it was found.
#[derive(Clone, Debug)]
pub(crate) struct Journal {
    /// Null if it cannot be read.
    document: Value,
    pub(super) bytes: Bytes,
    version: Option<UpdateVersion>,
}

impl Journal {
    pub(crate) async fn read(storage: &Storage) -> Result<Option<Self>> {
        let found = storage.read_version(JOURNAL).await?;
        Ok(found.map(|(bytes, version)| Self {
            document: parse(&bytes).unwrap_or_default(),
            bytes,
            version,
        }))
    }

    /// Returns what is written: all but who writes, and the versions of the sources.
    pub(crate) fn plan(&self) -> Value {
        let mut plan = self.document.clone();
        if let Some(plan) = plan.as_object_mut() {
            plan.remove("writer");
            plan.remove("sources");
        }
        plan
    }

    /// Returns the versions of the sources when the write began.
    pub(crate) fn sources(&self) -> &Value {
        self.document.get("sources").unwrap_or(&Value::Null)
    }

    pub(crate) fn writer(&self) -> Option<Writer> {
        Writer::of_json(self.document.get("writer")?)
    }
}

/// What is expected to be at a key that is written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expected {
    Absent,
    /// An object of this version; none if that is not known.
    There(Option<UpdateVersion>),
}

/// What a writer intends, and what it has found.
pub(crate) struct Intent<'a> {
    /// The journal to write, without the writer.
    pub(crate) document: Value,
    pub(crate) journal: Option<&'a Journal>,
    /// The root's metadata.
    pub(crate) root: Option<&'a Bytes>,
    /// Whether the work of another that may be alive is taken over.
    pub(crate) take_over: bool,
}

/// The claim of a writer.
#[derive(Debug)]
pub(crate) struct Claim {
    storage: Storage,
    writer: Writer,
    held: Held,
    notes: Mutex<Vec<String>>,
}

#[derive(Debug)]
enum Held {
    Repository,
    Folder(Arc<FolderClaim>),
    Bucket {
        /// The version of the journal.
        journal: Mutex<UpdateVersion>,
        /// False where the store has no conditional puts.
        is_conditional: AtomicBool,
    },
}

fn overtaken(by: Option<&Writer>) -> Error {
    let by = by.map_or_else(
        || "which has ended the write".to_owned(),
        |by| format!("by {by}"),
    );
    let message = format!(
        "this writer was overtaken by another, {by}: it has changed nothing since, and what it had written is kept"
    );
    Error::new(ErrorKind::Changed, message)
}

fn moved_on() -> Error {
    let message = "another writer was here while this one prepared its work: try again";
    Error::new(ErrorKind::Changed, message)
}

impl Claim {
    /// Makes sure that nobody is known to be writing in a folder. Costs nothing in a bucket.
    pub(crate) async fn peek(storage: &Storage, take_over: bool) -> Result<()> {
        let Some(base) = storage.folder().filter(|_| !take_over) else {
            return Ok(());
        };
        let base = base.to_owned();
        let found = folder::on_files(move || folder::holder(&base)).await?;
        match found.map_err(|err| store::of_io(&err).at(&storage.base))? {
            Some(holder) => Err(folder::busy(holder.as_ref()).at(&storage.base)),
            None => Ok(()),
        }
    }

    /// Takes the claim: writes the journal where there is none, or replaces the one that was found.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if another process holds it; [`ErrorKind::Changed`] if journal or root are not what was
    /// found.
    pub(crate) async fn take(storage: &Storage, intent: Intent<'_>) -> Result<Self> {
        let mut document = intent.document;
        let writer = Writer::of_this_process();
        if storage.is_repository() {
            storage.write(JOURNAL, vec![to_bytes(&document)]).await?;
            return Ok(Self::of(storage, writer, Held::Repository));
        }
        document["writer"] = writer.to_json();
        let bytes = to_bytes(&document);
        let claim = match storage.folder() {
            Some(base) => {
                let (base, take_over) = (base.to_owned(), intent.take_over);
                let own = writer.clone();
                let taken = folder::on_files(move || FolderClaim::take(&base, &own, take_over));
                let taken = taken.await?.map_err(|err| store::of_io(&err));
                let (folder, note) = taken.flatten().map_err(|err| err.at(&storage.base))?;
                let claim = Self::of(storage, writer, Held::Folder(Arc::new(folder)));
                claim.notes().extend(note);
                // Under the lock, so that nobody writes between this look and the journal.
                let journal = storage.read(JOURNAL).await?;
                if journal.as_ref() != intent.journal.map(|found| &found.bytes)
                    || storage.read("zarr.json").await?.as_ref() != intent.root
                {
                    return Err(moved_on().at(&storage.base));
                }
                if let Held::Folder(folder) = &claim.held {
                    let folder = Arc::clone(folder);
                    folder::on_files(move || folder.begin(&bytes)).await??;
                }
                claim
            }
            None => Self::take_bucket(storage, writer, bytes, intent.journal).await?,
        };
        // A write may have begun and ended since the root was read.
        if storage.folder().is_none()
            && intent.journal.is_none()
            && storage.read("zarr.json").await?.as_ref() != intent.root
        {
            claim.release().await?;
            return Err(moved_on().at(&storage.base));
        }
        Ok(claim)
    }

    async fn take_bucket(
        storage: &Storage,
        writer: Writer,
        bytes: Bytes,
        found: Option<&Journal>,
    ) -> Result<Self> {
        let location = storage.locate(JOURNAL);
        let (objects, path) = storage.reach(JOURNAL)?;
        let mut mode = match found.map(|found| found.version.clone()) {
            Some(version) => PutMode::Update(version.unwrap_or(UpdateVersion {
                e_tag: None,
                version: None,
            })),
            None => PutMode::Create,
        };
        let mut notes = Vec::new();
        let mut is_conditional = true;
        let mut tried = 0;
        let journal = loop {
            let put = put(&*objects, &path, std::slice::from_ref(&bytes), mode.clone()).await;
            tried += 1;
            match put {
                Ok(version) => break version,
                Err(err) if has_no_conditions(&err) && is_conditional => {
                    is_conditional = false;
                    mode = PutMode::Overwrite;
                    let note = format!(
                        "{}: this store has no conditional writes, so that a second writer is not noticed: let only \
                         one write here",
                        storage.base
                    );
                    tracing::warn!("{note}");
                    notes.push(note);
                }
                Err(err) if is_refused(&err) => {
                    // An earlier attempt may have succeeded whose response was lost.
                    match storage.read_version(JOURNAL).await? {
                        Some((there, version)) if there == bytes => {
                            break version.unwrap_or(UpdateVersion {
                                e_tag: None,
                                version: None,
                            });
                        }
                        Some((there, _)) => {
                            let by = parse(&there).ok();
                            let by = by.and_then(|found| Writer::of_json(found.get("writer")?));
                            return Err(folder::busy(by.as_ref()).at(&storage.base));
                        }
                        None => return Err(moved_on().at(&storage.base)),
                    }
                }
                Err(err) => {
                    let err = store::error(&err, &location);
                    if !err.is_retryable() || tried >= ATTEMPTS {
                        return Err(err);
                    }
                }
            }
        };
        let journal = match journal.e_tag.is_none() && journal.version.is_none() {
            true => version_of(&*objects, &path)
                .await
                .map_err(|err| store::error(&err, &location))?
                .unwrap_or(journal),
            false => journal,
        };
        let held = Held::Bucket {
            journal: Mutex::new(journal),
            is_conditional: AtomicBool::new(is_conditional),
        };
        let claim = Self::of(storage, writer, held);
        claim.notes().extend(notes);
        Ok(claim)
    }

    fn of(storage: &Storage, writer: Writer, held: Held) -> Self {
        Self {
            storage: storage.clone(),
            writer,
            held,
            notes: Mutex::default(),
        }
    }

    /// Replaces the journal by another one of this writer.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Changed`] if another writer has taken the work over; errors of the store.
    pub(crate) async fn restate(&self, mut document: Value) -> Result<()> {
        document["writer"] = self.writer.to_json();
        let bytes = to_bytes(&document);
        match &self.held {
            Held::Repository => self.storage.write(JOURNAL, vec![bytes]).await,
            Held::Folder(folder) => {
                let folder = Arc::clone(folder);
                let done = folder::on_files(move || folder.restate(&bytes)).await?;
                self.told(done?).await
            }
            Held::Bucket { journal, .. } => {
                let guarded = || journal.lock().unwrap_or_else(PoisonError::into_inner);
                let ours = guarded().clone();
                self.put(JOURNAL, vec![bytes], Expected::There(Some(ours)))
                    .await?;
                let (objects, path) = self.storage.reach(JOURNAL)?;
                let now = version_of(&*objects, &path).await;
                let now = now.map_err(|err| store::error(&err, &self.storage.locate(JOURNAL)))?;
                if let Some(now) = now {
                    *guarded() = now;
                }
                Ok(())
            }
        }
    }

    /// Returns what a user should know of the claim.
    pub(crate) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes())
    }

    fn notes(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that nobody has taken the work over.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Changed`] if somebody has.
    pub(crate) async fn check(&self) -> Result<()> {
        let is_ours = match &self.held {
            Held::Repository => true,
            Held::Folder(folder) => {
                let folder = Arc::clone(folder);
                folder::on_files(move || folder.is_ours()).await?
            }
            Held::Bucket { journal, .. } => {
                let (objects, path) = self.storage.reach(JOURNAL)?;
                let now = version_of(&*objects, &path).await;
                let now = now.map_err(|err| store::error(&err, &self.storage.locate(JOURNAL)))?;
                let ours = journal.lock().unwrap_or_else(PoisonError::into_inner);
                now.as_ref() == Some(&*ours)
            }
        };
        match is_ours {
            true => Ok(()),
            false => Err(self.overtaken().await),
        }
    }

    async fn overtaken(&self) -> Error {
        let now = Journal::read(&self.storage).await;
        let by = now.ok().flatten().and_then(|journal| journal.writer());
        overtaken(by.as_ref()).at(&self.storage.base)
    }

    /// Writes an object from consecutive pieces, atomically, if the claim is still ours.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Changed`] if another writer has taken the work over; errors of the store.
    pub(crate) async fn put(
        &self,
        key: &str,
        pieces: Vec<Bytes>,
        expected: Expected,
    ) -> Result<()> {
        let location = self.storage.locate(key);
        match &self.held {
            Held::Repository => self.storage.write(key, pieces).await,
            Held::Folder(folder) => {
                let folder = Arc::clone(folder);
                let path = self.path(&location)?;
                let put = folder::on_files(move || folder.put(&path, &pieces)).await?;
                self.told(put.map_err(|err| err.at(&location))?).await
            }
            Held::Bucket { is_conditional, .. } => {
                let is_conditional = is_conditional.load(Ordering::Relaxed);
                self.put_object(key, &pieces, expected, is_conditional)
                    .await
                    .map_err(|err| match err.location() {
                        Some(_) => err,
                        None => err.at(&location),
                    })
            }
        }
    }

    async fn put_object(
        &self,
        key: &str,
        pieces: &[Bytes],
        mut expected: Expected,
        is_conditional: bool,
    ) -> Result<()> {
        let location = self.storage.locate(key);
        let (objects, path) = self.storage.reach(key)?;
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let mode = match &expected {
                _ if !is_conditional => PutMode::Overwrite,
                Expected::Absent => PutMode::Create,
                Expected::There(Some(version)) => PutMode::Update(version.clone()),
                Expected::There(None) => {
                    expected = self.seen(&*objects, &path, &location).await?;
                    continue;
                }
            };
            match put(&*objects, &path, pieces, mode).await {
                Ok(_) => return Ok(()),
                Err(err) if is_refused(&err) => {
                    last = Some(overtaken(None));
                    expected = self.seen(&*objects, &path, &location).await?;
                }
                Err(err) => {
                    // A conditional put whose response was lost is not repeated by the store's client. Once more: if
                    // it had succeeded the condition refuses, and the same bytes are put in place of it.
                    let err = store::error(&err, &location);
                    if !err.is_retryable() {
                        return Err(err);
                    }
                    last = Some(err);
                }
            }
        }
        Err(last.unwrap_or_else(moved_on))
    }

    /// Returns what is at a key, if the claim is ours. The order matters: were the journal looked at first, another
    /// writer could take over, end, and its object be the one that is seen and then replaced.
    async fn seen(
        &self,
        objects: &dyn ObjectStore,
        path: &object_store::path::Path,
        location: &Location,
    ) -> Result<Expected> {
        let there = version_of(objects, path).await;
        let there = there.map_err(|err| store::error(&err, location))?;
        self.check().await?;
        Ok(match there {
            Some(version) => Expected::There(Some(version)),
            None => Expected::Absent,
        })
    }

    /// Removes an object that an earlier write has left.
    pub(crate) async fn remove(&self, key: &str) -> Result<()> {
        let Held::Folder(folder) = &self.held else {
            return self.storage.remove(key).await;
        };
        let (folder, path) = (Arc::clone(folder), self.path(&self.storage.locate(key))?);
        let removed = folder::on_files(move || folder.remove(&path)).await?;
        self.told(removed.map_err(|err| err.at(self.storage.locate(key)))?)
            .await
    }

    fn path(&self, location: &Location) -> Result<std::path::PathBuf> {
        let path = location.as_local().map(Path::to_owned);
        path.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "no file of this machine"))
    }

    async fn told(&self, done: folder::Done) -> Result<()> {
        match done {
            folder::Done::Yes => Ok(()),
            folder::Done::Overtaken => Err(self.overtaken().await),
        }
    }

    /// Makes the names of all objects that were put, and the removal of others, survive a power cut. The bytes of those do
    /// so already.
    pub(crate) async fn settle(&self) -> Result<()> {
        let Held::Folder(folder) = &self.held else {
            return Ok(());
        };
        let folder = Arc::clone(folder);
        folder::on_files(move || folder.settle()).await
    }

    /// Keeps an object that an earlier attempt has put: its name has to survive a power cut too.
    pub(crate) fn keep(&self, key: &str) {
        if let Held::Folder(folder) = &self.held
            && let Some(path) = self.storage.locate(key).as_local()
        {
            folder.remember(path);
        }
    }

    /// Gives the claim back: removes the journal.
    pub(crate) async fn release(&self) -> Result<()> {
        match &self.held {
            Held::Repository => self.storage.remove(JOURNAL).await,
            Held::Folder(folder) => {
                let folder = Arc::clone(folder);
                let released = folder::on_files(move || folder.release()).await?;
                self.told(released?).await
            }
            Held::Bucket { .. } => self.storage.remove(JOURNAL).await,
        }
    }

    /// Returns true if removing an object is safe: nobody else can be between a look at the journal and a change.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self.held, Held::Folder(_) | Held::Repository)
    }
}

async fn put(
    objects: &dyn ObjectStore,
    path: &object_store::path::Path,
    pieces: &[Bytes],
    mode: PutMode,
) -> object_store::Result<UpdateVersion> {
    let payload: PutPayload = pieces.iter().cloned().collect();
    let options = PutOptions {
        mode,
        ..PutOptions::default()
    };
    let put = objects.put_opts(path, payload, options).await?;
    Ok(put.into())
}

async fn version_of(
    objects: &dyn ObjectStore,
    path: &object_store::path::Path,
) -> object_store::Result<Option<UpdateVersion>> {
    match objects.head(path).await {
        Ok(meta) => Ok(Some(UpdateVersion {
            e_tag: meta.e_tag,
            version: meta.version,
        })),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(err) => Err(err),
    }
}

fn is_refused(err: &object_store::Error) -> bool {
    use object_store::Error as E;
    let is_conflict = store::status_of(err) == Some(409);
    matches!(
        err,
        E::AlreadyExists { .. } | E::Precondition { .. } | E::NotModified { .. }
    ) || is_conflict
}

fn has_no_conditions(err: &object_store::Error) -> bool {
    use object_store::Error as E;
    matches!(err, E::NotImplemented { .. } | E::NotSupported { .. })
        || store::status_of(err) == Some(501)
}
