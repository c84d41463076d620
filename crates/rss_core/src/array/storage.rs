//! Where the objects of a hierarchy lie: a folder of this machine, a prefix of a bucket, or a repository.

use std::{
    fs,
    io::{self, Write},
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::{GetRange, ObjectStore, PutPayload, path};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    icechunk::{Missing, Repository, Stopped, Turn as RepositoryTurn},
    root::Root,
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    raster::ordinary_file,
    session::Session,
    store::{self, Object},
};

/// Where a write that is under way says what it writes.
pub(crate) const JOURNAL: &str = ".rss-write.json";
/// The folder of files that are being written, below a hierarchy's own.
const PARTIAL: &str = ".partial";

/// A hierarchy's storage, and the session that reaches it.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    pub(crate) session: Session,
    pub(crate) base: Location,
    /// Who keeps the objects, if not the store that holds the base.
    repository: Option<(Repository, String)>,
}

/// A write that is under way. Without a repository it is nothing: each object is seen when it is written.
#[derive(Debug)]
pub(crate) struct Turn(Option<RepositoryTurn>);

impl Turn {
    /// Shows readers what was written, all at once.
    pub(crate) async fn publish(&self, message: &str) -> Result<()> {
        match &self.0 {
            Some(turn) => turn.publish(message).await,
            None => Ok(()),
        }
    }
}

impl Storage {
    /// Opens a place that is there. Costs no request but of a repository.
    pub(crate) async fn at(session: &Session, root: &Root) -> Result<Self> {
        Self::find(session, root, Missing::Fail).await
    }

    /// Opens a storage, making what has to be there before anything can be written.
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

    /// Begins a write that leaves alone what a stopped one has left.
    pub(crate) async fn begin(&self) -> Result<Turn> {
        self.turn(Stopped::Leave).await
    }

    /// Begins a write, or goes on with one that was stopped: what it has left can be read.
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

    /// Returns what a journal of this place says of a write: all of it, or a digest where it is kept in a
    /// list of commits that every reader fetches.
    pub(crate) fn journal_of(&self, said: Value) -> Value {
        match &self.repository {
            Some(_) => json!({"sha256": store::hex(&Sha256::digest(said.to_string()))}),
            None => said,
        }
    }

    /// Names what a user removes to forget a stopped write.
    pub(crate) fn journal_name(&self) -> String {
        match &self.repository {
            Some((repository, _)) => format!("branch `{}`", repository.work_branch()),
            None => format!("its journal ({JOURNAL})"),
        }
    }

    /// Returns the store that holds a key, and the key's path there.
    fn reach(&self, key: &str) -> Result<(Arc<dyn ObjectStore>, path::Path)> {
        let Some((repository, group)) = &self.repository else {
            return self.session.stores().store(&self.locate(key));
        };
        let key = match group.is_empty() {
            true => key.to_owned(),
            false => format!("{group}/{key}"),
        };
        let path = path::Path::parse(key.trim_end_matches('/')).map_err(|err| {
            Error::new(ErrorKind::InvalidInput, "a key that a store cannot name").with_source(err)
        })?;
        Ok((repository.keys(), path))
    }

    /// Returns a location's path where its objects are files.
    fn file<'a>(&self, location: &'a Location) -> Option<&'a Path> {
        location.as_local().filter(|_| self.repository.is_none())
    }

    /// Returns where the object of a key lies.
    pub(crate) fn locate(&self, key: &str) -> Location {
        match key {
            "" => self.base.clone(),
            key => self.base.join(key),
        }
    }

    /// Reads a small object; none where there is none.
    pub(crate) async fn read(&self, key: &str) -> Result<Option<Bytes>> {
        let location = self.locate(key);
        let read = async {
            if let Some(path) = self.file(&location) {
                // Metadata: shorter to read than to hand to another thread.
                return match fs::read(path) {
                    Ok(bytes) => Ok(Some(bytes.into())),
                    Err(err) if is_absent(&err) => Ok(None),
                    Err(err) => Err(store::of_io(&err)),
                };
            }
            let (store, path) = self.reach(key)?;
            match store
                .get_opts(&path, object_store::GetOptions::default())
                .await
            {
                Ok(found) => {
                    let bytes = found.bytes().await;
                    Ok(Some(bytes.map_err(|err| store::error(&err, &location))?))
                }
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(err) => Err(store::error(&err, &location)),
            }
        };
        read.await.map_err(|err: Error| err.at(&location))
    }

    /// Opens an object and reads its first or its last bytes; none where there is none.
    pub(crate) async fn open(
        &self,
        key: &str,
        length: u64,
        at_start: bool,
    ) -> Result<Option<(Object, Bytes)>> {
        let location = self.locate(key);
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

    /// Writes an object, whole or not at all, from pieces that lie one after the other.
    pub(crate) async fn write(&self, key: &str, pieces: Vec<Bytes>) -> Result<()> {
        let location = self.locate(key);
        let write = async {
            if let (Some(path), Some(base)) = (self.file(&location), self.file(&self.base)) {
                let (path, partial) = (path.to_owned(), base.join(PARTIAL));
                let write = move || write_file(&path, &partial, &pieces);
                return tokio::task::spawn_blocking(write)
                    .await
                    .map_err(|_| {
                        Error::new(ErrorKind::Unavailable, "a task of the file system was lost")
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

    /// Returns the keys below a prefix, with their sizes.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
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
                    Error::new(ErrorKind::Unavailable, "a task of the file system was lost")
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
                std::future::ready(Ok(key.map(|key| (key, found.size))))
            })
            .try_collect()
            .await
    }

    /// Removes an object; that there is none is no error.
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

    /// Removes what a write that was killed left of files that it had not finished.
    pub(crate) async fn clean(&self) -> Result<()> {
        let Some(base) = self.file(&self.base) else {
            return Ok(());
        };
        match tokio::fs::remove_dir_all(base.join(PARTIAL)).await {
            Err(err) if !is_absent(&err) => Err(store::of_io(&err).at(&self.base)),
            _ => Ok(()),
        }
    }
}

fn is_absent(err: &io::Error) -> bool {
    matches!(
        err.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
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
    file.persist(path)?;
    Ok(())
}

fn walk(folder: &Path, base: &Path, keys: &mut Vec<(String, u64)>) -> io::Result<()> {
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
            if entry.file_name() != PARTIAL {
                walk(&path, base, keys)?;
            }
        } else if let Ok(key) = path.strip_prefix(base) {
            let parts: Vec<_> = key.iter().map(|part| part.to_string_lossy()).collect();
            keys.push((parts.join("/"), entry.metadata()?.len()));
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
