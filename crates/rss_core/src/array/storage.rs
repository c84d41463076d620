//! The storage of a hierarchy's objects: a local folder, a prefix of a bucket, or an Icechunk repository.

use std::{
    fs,
    io::{self, Write},
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::{GetRange, ObjectStore, PutPayload, UpdateVersion, path};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    icechunk::{Missing, Repository, Stopped, Turn as RepositoryTurn},
    root::Root,
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    raster::{ordinary_file, publish},
    session::Session,
    store::{self, Object},
};

/// The key of the journal of a write under way; see `docs/decisions/005-cube-journal.md`.
pub(crate) const JOURNAL: &str = ".rss-write.json";
/// The folder of files that are being written. It is below the hierarchy's own folder, so that both are on one file
/// system and a rename is atomic.
pub(super) const PARTIAL: &str = ".partial";

/// The limit on the bytes of a document of metadata.
const MOST_METADATA_BYTES: u64 = 16 << 20;
/// The limit on the bytes of another object that is read as a whole: a journal, a list of texts.
const MOST_OBJECT_BYTES: u64 = 256 << 20;

/// Objects of a bucket that are looked at to find out what it holds.
const LOOKED_AT: usize = 1000;

/// An object that is there.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) key: String,
    pub(crate) size: u64,
    /// None of a file.
    pub(crate) version: Option<UpdateVersion>,
}

/// A hierarchy's storage, and the session that reaches it.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    pub(crate) session: Session,
    pub(crate) base: Location,
    /// The Icechunk repository and the group in it, if the objects are not plain objects below `base`.
    repository: Option<(Repository, String)>,
}

/// A write under way. Without a repository it does nothing: each object is visible as soon as it is written.
#[derive(Debug)]
pub(crate) struct Turn(Option<RepositoryTurn>);

impl Turn {
    /// Commits, so that readers see everything that was written at once.
    pub(crate) async fn publish(&self, message: &str) -> Result<()> {
        match &self.0 {
            Some(turn) => turn.publish(message).await,
            None => Ok(()),
        }
    }
}

impl Storage {
    /// Opens a storage that exists. Costs requests only for a repository.
    pub(crate) async fn at(session: &Session, root: &Root) -> Result<Self> {
        Self::find(session, root, Missing::Fail).await
    }

    /// Opens a storage for writing; a repository that does not exist is created.
    pub(crate) async fn make(session: &Session, root: &Root) -> Result<Self> {
        Self::find(session, root, Missing::Make).await
    }

    async fn find(session: &Session, root: &Root, missing: Missing) -> Result<Self> {
        let repository = match root {
            Root::Objects(_) => None,
            Root::Icechunk(address) => {
                let opened = Repository::open(session, address, missing).await?;
                Some((opened, address.group().to_owned()))
            }
        };
        let base = match &repository {
            Some((_, group)) if !group.is_empty() => root.location().join(group),
            _ => root.location().clone(),
        };
        Ok(Self {
            session: session.clone(),
            base,
            repository,
        })
    }

    /// Begins a write that ignores the checkpoint of an interrupted one.
    pub(crate) async fn begin(&self) -> Result<Turn> {
        self.turn(Stopped::Leave).await
    }

    /// Begins a write, or resumes an interrupted one from its last checkpoint.
    pub(crate) async fn go_on(&self) -> Result<Turn> {
        self.turn(Stopped::GoOn).await
    }

    async fn turn(&self, stopped: Stopped) -> Result<Turn> {
        match &self.repository {
            Some((repository, _)) => Ok(Turn(Some(repository.begin(stopped).await?))),
            None => Ok(Turn(None)),
        }
    }

    /// Returns true if an array's metadata must be there before its chunks.
    pub(crate) fn wants_metadata_first(&self) -> bool {
        self.repository.is_some()
    }

    /// Returns the journal in the form this storage keeps. A repository keeps a digest: the journal is a property of
    /// a commit, and every reader fetches the list of commits.
    pub(crate) fn journal_of(&self, journal: Value) -> Value {
        match &self.repository {
            Some(_) => json!({"sha256": store::hex(&Sha256::digest(journal.to_string()))}),
            None => journal,
        }
    }

    /// Names what a user removes to discard an interrupted write.
    pub(crate) fn journal_name(&self) -> String {
        match &self.repository {
            Some((repository, _)) => format!("branch `{}`", repository.work_branch()),
            None => format!("its journal ({JOURNAL})"),
        }
    }

    /// Returns true if the objects are in an Icechunk repository.
    pub(crate) fn is_repository(&self) -> bool {
        self.repository.is_some()
    }

    /// Returns true if the objects are files of this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.folder().is_some()
    }

    /// Returns the folder, if it is one of this machine.
    pub(super) fn folder(&self) -> Option<&Path> {
        self.file(&self.base)
    }

    /// Returns the store that holds a key, and the key's path there.
    pub(super) fn reach(&self, key: &str) -> Result<(Arc<dyn ObjectStore>, path::Path)> {
        let Some((repository, group)) = &self.repository else {
            return self.session.stores().store(&self.locate(key));
        };
        let key = match group.is_empty() {
            true => key.to_owned(),
            false => format!("{group}/{key}"),
        };
        let path = path::Path::parse(key.trim_end_matches('/')).map_err(|err| {
            Error::new(ErrorKind::InvalidInput, "not a valid object key").with_source(err)
        })?;
        Ok((repository.keys(), path))
    }

    /// Returns a location's path where its objects are files.
    fn file<'a>(&self, location: &'a Location) -> Option<&'a Path> {
        location.as_local().filter(|_| self.repository.is_none())
    }

    /// Returns the location of the object of a key.
    pub(crate) fn locate(&self, key: &str) -> Location {
        match key {
            "" => self.base.clone(),
            key => self.base.join(key),
        }
    }

    /// Reads a small object; none if it does not exist.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if it is larger than 16 MiB, or than 256 MiB where it is no metadata.
    pub(crate) async fn read(&self, key: &str) -> Result<Option<Bytes>> {
        Ok(self.read_version(key).await?.map(|(bytes, _)| bytes))
    }

    /// Reads a small object as [`read`](Self::read) does, with its version; none of that where it is a file.
    pub(crate) async fn read_version(
        &self,
        key: &str,
    ) -> Result<Option<(Bytes, Option<UpdateVersion>)>> {
        let location = self.locate(key);
        let name = key.rsplit('/').next().unwrap_or(key);
        let most = match name {
            "zarr.json" | ".zarray" | ".zattrs" | ".zgroup" => MOST_METADATA_BYTES,
            _ => MOST_OBJECT_BYTES,
        };
        let read = async {
            if let Some(path) = self.file(&location) {
                // Metadata is small: reading it here takes less time than a blocking task.
                return match read_file(path, most) {
                    Ok(bytes) => Ok(Some((bytes.into(), None))),
                    Err(err) if is_absent(&err) => Ok(None),
                    Err(err) => Err(store::of_io(&err)),
                };
            }
            let (store, path) = self.reach(key)?;
            let location = location.clone();
            store::spawned(async move {
                let options = object_store::GetOptions::default();
                match store.get_opts(&path, options).await {
                    Ok(found) => {
                        let version = UpdateVersion {
                            e_tag: found.meta.e_tag.clone(),
                            version: found.meta.version.clone(),
                        };
                        let bytes = store::read_at_most(found, most, &location).await?;
                        Ok(Some((bytes, Some(version))))
                    }
                    Err(object_store::Error::NotFound { .. }) => Ok(None),
                    Err(err) => Err(store::error(&err, &location)),
                }
            })
            .await
        };
        read.await.map_err(|err: Error| err.at(&location))
    }

    /// Opens an object and reads its first or last bytes with the same request; none if it does not exist.
    pub(crate) async fn open(
        &self,
        key: &str,
        length: u64,
        at_start: bool,
    ) -> Result<Option<(Object, Bytes)>> {
        let location = self.locate(key);
        // A key of a repository is no object of its own: it is read through the version's keys.
        if self.repository.is_some() {
            let (store, path) = self.reach(key)?;
            let range = match at_start {
                true => GetRange::Bounded(0..length),
                false => GetRange::Suffix(length),
            };
            return match Object::open_in(store, path, &location, range).await {
                Ok(opened) => Ok(Some(opened)),
                Err(err) if err.kind() == ErrorKind::NotFound => Ok(None),
                Err(err) => Err(err),
            };
        }
        let stores = self.session.stores();
        let opened = match at_start {
            true => Object::open(stores, &location, length).await,
            false => Object::open_end(stores, &location, length).await,
        };
        match opened {
            Ok(opened) => Ok(Some(opened)),
            Err(err) if err.kind() == ErrorKind::NotFound => Ok(None),
            Err(err) => Err(err),
        }
    }

    /// Writes an object atomically from consecutive pieces: a file is written below `.partial/` and renamed, an
    /// object is one PUT. Neither is conditional: the writes of a cube go through a [`Claim`](super::Claim).
    pub(crate) async fn write(&self, key: &str, pieces: Vec<Bytes>) -> Result<()> {
        let location = self.locate(key);
        let write = async {
            if let (Some(path), Some(base)) = (self.file(&location), self.file(&self.base)) {
                let (path, partial) = (path.to_owned(), base.join(PARTIAL));
                let write = move || write_file(&path, &partial, &pieces);
                return tokio::task::spawn_blocking(write)
                    .await
                    .map_err(|_| {
                        Error::new(
                            ErrorKind::Unavailable,
                            "a file system task panicked or was cancelled",
                        )
                    })?
                    .map_err(|err| store::of_io(&err));
            }
            let (store, path) = self.reach(key)?;
            let payload: PutPayload = pieces.into_iter().collect();
            store
                .put_opts(&path, payload, object_store::PutOptions::default())
                .await
                .map_err(|err| store::error(&err, &location))?;
            Ok(())
        };
        write.await.map_err(|err: Error| err.at(&location))
    }

    /// Returns the objects below a prefix.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<Listed>> {
        let location = self.locate(prefix);
        if let (Some(path), Some(base)) = (self.file(&location), self.file(&self.base)) {
            let mut keys = Vec::new();
            let (path, base) = (path.to_owned(), base.to_owned());
            let walk = move || {
                walk(&path, &base, &mut keys)?;
                Ok(keys)
            };
            return tokio::task::spawn_blocking(walk)
                .await
                .map_err(|_| {
                    Error::new(
                        ErrorKind::Unavailable,
                        "a file system task panicked or was cancelled",
                    )
                })?
                .map_err(|err: io::Error| store::of_io(&err).at(&location));
        }
        let (store, path) = self.reach(prefix)?;
        let (_, base) = self.reach("")?;
        store
            .list(Some(&path))
            .map_err(|err| store::error(&err, &location).at(&location))
            .try_filter_map(|found| {
                let key = relative(&found.location, &base);
                let version = UpdateVersion {
                    e_tag: found.e_tag,
                    version: found.version,
                };
                let is_known = version.e_tag.is_some() || version.version.is_some();
                std::future::ready(Ok(key.map(|key| Listed {
                    key,
                    size: found.size,
                    version: is_known.then_some(version),
                })))
            })
            .try_collect()
            .await
    }

    /// Returns the names directly below a path: of folders, or of prefixes.
    pub(crate) async fn children(&self, path: &str) -> Result<Vec<String>> {
        let location = self.locate(path);
        if let Some(folder) = self.file(&location) {
            let names = fs::read_dir(folder).and_then(|entries| {
                let folders = entries.filter(|entry| {
                    let kind = entry.as_ref().map(|entry| entry.path().is_dir());
                    kind.unwrap_or(true)
                });
                let names =
                    folders.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
                names.collect()
            });
            return names.map_err(|err: io::Error| store::of_io(&err).at(&location));
        }
        let prefixes: Vec<String> = if self.repository.is_some() {
            // Its keys are in memory, but they cannot be asked for by folder.
            let keys = self.list(path).await?;
            let start = match path {
                "" => String::new(),
                path => format!("{path}/"),
            };
            let below = keys.iter().filter_map(|one| one.key.strip_prefix(&start));
            let mut names: Vec<String> = below
                .filter_map(|rest| Some(rest.split_once('/')?.0.to_owned()))
                .collect();
            names.sort();
            names.dedup();
            names
        } else {
            let (store, path) = self.reach(path)?;
            let found = store.list_with_delimiter(Some(&path)).await;
            let found = found.map_err(|err| store::error(&err, &location).at(&location))?;
            let names = found.common_prefixes.iter();
            names
                .filter_map(|prefix| Some(prefix.filename()?.to_owned()))
                .collect()
        };
        Ok(prefixes)
    }

    /// Removes an object. It is no error if the object does not exist.
    pub(crate) async fn remove(&self, key: &str) -> Result<()> {
        use object_store::ObjectStoreExt;
        let location = self.locate(key);
        if let Some(path) = self.file(&location) {
            return match tokio::fs::remove_file(path).await {
                Err(err) if !is_absent(&err) => Err(store::of_io(&err).at(&location)),
                _ => Ok(()),
            };
        }
        let (store, path) = self.reach(key)?;
        match store.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(err) => Err(store::error(&err, &location).at(&location)),
        }
    }

    /// Checks that a new hierarchy can be made: there is nothing but what an interrupted write has left, or a hierarchy
    /// of Zarr 3, which the caller looks at.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`], which names what is there.
    pub(crate) async fn check_free(&self) -> Result<()> {
        let invalid = |what: String| Err(Error::new(ErrorKind::InvalidInput, what).at(&self.base));
        let names: Vec<String> = match self.folder() {
            _ if self.repository.is_some() => return Ok(()),
            Some(path) => match fs::read_dir(path) {
                Ok(entries) => {
                    let names = entries.map(|entry| {
                        entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
                    });
                    let names: io::Result<Vec<String>> = names.collect();
                    names.map_err(|err| store::of_io(&err).at(&self.base))?
                }
                Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(err) if err.kind() == io::ErrorKind::NotADirectory => {
                    return invalid(
                        "a file, or below one: expected a folder or a new name".to_owned(),
                    );
                }
                Err(err) => return Err(store::of_io(&err).at(&self.base)),
            },
            None => {
                let (objects, path) = self.reach("")?;
                // One page at most. A store that cannot list is one that is not looked at.
                let some = objects.list(Some(&path)).take(LOOKED_AT);
                let some: Vec<_> = some
                    .filter_map(|found| std::future::ready(found.ok()))
                    .collect()
                    .await;
                let names = some
                    .iter()
                    .filter_map(|found| relative(&found.location, &path));
                let first = |key: String| key.split('/').next().unwrap_or_default().to_owned();
                names.map(first).collect()
            }
        };
        for name in [".zgroup", ".zarray", ".zattrs"] {
            if names.iter().any(|there| there == name) {
                return invalid(format!(
                    "a hierarchy of Zarr 2 is there ({name}): choose another location"
                ));
            }
        }
        let of_cube = |name: &String| [JOURNAL, "zarr.json"].contains(&name.as_str());
        let foreign = names.iter().find(|name| *name != PARTIAL);
        let Some(foreign) = foreign.filter(|_| !names.iter().any(of_cube)) else {
            return Ok(());
        };
        // A bucket was not listed to its end.
        if self.folder().is_none()
            && (self.read("zarr.json").await?.is_some() || self.read(JOURNAL).await?.is_some())
        {
            return Ok(());
        }
        invalid(format!(
            "it is not empty and holds no cube ({foreign} is there): choose another location"
        ))
    }
}

fn is_absent(err: &io::Error) -> bool {
    matches!(
        err.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

fn read_file(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let meta = fs::metadata(path)?;
    if !meta.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "not an ordinary file",
        ));
    }
    if meta.len() > most {
        let message = format!("larger than the limit of {} MiB", most >> 20);
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    fs::read(path)
}

fn write_file(path: &Path, partial: &Path, pieces: &[Bytes]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::create_dir_all(partial)?;
    let mut file = ordinary_file().tempfile_in(partial)?;
    for piece in pieces {
        file.write_all(piece)?;
    }
    publish(file, path)
}

fn walk(folder: &Path, base: &Path, keys: &mut Vec<Listed>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(err) if is_absent(&err) => return Ok(()),
        Err(err) => return Err(err),
    };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            // Unfinished files are no keys: a resume must not take them for shards.
            if entry.file_name() != PARTIAL {
                walk(&path, base, keys)?;
            }
        } else if let Ok(key) = path.strip_prefix(base) {
            let parts: Vec<_> = key.iter().map(|part| part.to_string_lossy()).collect();
            keys.push(Listed {
                key: parts.join("/"),
                size: entry.metadata()?.len(),
                version: None,
            });
        }
    }
    Ok(())
}

fn relative(path: &path::Path, base: &path::Path) -> Option<String> {
    let parts: Vec<String> = path
        .prefix_match(base)?
        .map(|part| part.as_ref().to_owned())
        .collect();
    Some(parts.join("/"))
}
