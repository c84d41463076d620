//! Where the objects of a hierarchy lie: a folder of this machine, or a prefix of a bucket.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::{PutPayload, path};

use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    session::Session,
    store::{self, Object},
};

/// The folder of files that are being written, below a hierarchy's own.
const PARTIAL: &str = ".partial";

/// A hierarchy's place, and the session that reaches it.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) session: Session,
    pub(super) base: Location,
}

impl Place {
    pub(super) fn new(session: &Session, base: &Location) -> Self {
        Self {
            session: session.clone(),
            base: base.clone(),
        }
    }

    /// Returns where the object of a key lies.
    pub(super) fn locate(&self, key: &str) -> Location {
        match key {
            "" => self.base.clone(),
            key => self.base.join(key),
        }
    }

    /// Reads a small object; none where there is none.
    pub(super) async fn read(&self, key: &str) -> Result<Option<Bytes>> {
        let location = self.locate(key);
        let read = async {
            if let Some(path) = location.as_local() {
                // Metadata: shorter to read than to hand to another thread.
                return match fs::read(path) {
                    Ok(bytes) => Ok(Some(bytes.into())),
                    Err(err) if is_absent(&err) => Ok(None),
                    Err(err) => Err(store::of_io(&err)),
                };
            }
            let (store, path) = self.session.stores().store(&location)?;
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
    pub(super) async fn open(
        &self,
        key: &str,
        length: u64,
        at_start: bool,
    ) -> Result<Option<(Object, Bytes)>> {
        let location = self.locate(key);
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
    pub(super) async fn write(&self, key: &str, pieces: Vec<Bytes>) -> Result<()> {
        let location = self.locate(key);
        let write = async {
            if let (Some(path), Some(base)) = (location.as_local(), self.base.as_local()) {
                let (path, partial) = (path.to_owned(), base.join(PARTIAL));
                let write = move || write_file(&path, &partial, &pieces);
                return tokio::task::spawn_blocking(write)
                    .await
                    .map_err(|_| {
                        Error::new(ErrorKind::Unavailable, "a task of the file system was lost")
                    })?
                    .map_err(|err| store::of_io(&err));
            }
            let (store, path) = self.session.stores().store(&location)?;
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
    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>> {
        let location = self.locate(prefix);
        if let (Some(path), Some(base)) = (location.as_local(), self.base.as_local()) {
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
        let (store, path) = self.session.stores().store(&location)?;
        let (_, base) = self.session.stores().store(&self.base)?;
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
    pub(super) async fn remove(&self, key: &str) -> Result<()> {
        use object_store::ObjectStoreExt;
        let location = self.locate(key);
        if let Some(path) = location.as_local() {
            return match tokio::fs::remove_file(path).await {
                Err(err) if !is_absent(&err) => Err(store::of_io(&err).at(&location)),
                _ => Ok(()),
            };
        }
        let (store, path) = self.session.stores().store(&location)?;
        match store.delete(&path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(err) => Err(store::error(&err, &location).at(&location)),
        }
    }

    /// Removes what a write that was killed left of files that it had not finished.
    pub(super) async fn clean(&self) -> Result<()> {
        let Some(base) = self.base.as_local() else {
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
    let mut file = loop {
        fs::create_dir_all(partial)?;
        match tempfile::Builder::new()
            .permissions_of_new_files()
            .tempfile_in(partial)
        {
            // Another write has just ended, and removed the folder.
            Err(err) if err.kind() == io::ErrorKind::NotFound => {}
            made => break made?,
        }
    };
    for piece in pieces {
        file.write_all(piece)?;
    }
    file.persist(path)?;
    // It stays while others write.
    let _ = fs::remove_dir(partial);
    Ok(())
}

trait NewFile {
    /// A temporary file is its owner's alone; what it becomes is as any new file.
    fn permissions_of_new_files(&mut self) -> &mut Self;
}

impl NewFile for tempfile::Builder<'_, '_> {
    #[cfg(unix)]
    fn permissions_of_new_files(&mut self) -> &mut Self {
        use std::os::unix::fs::PermissionsExt;
        self.permissions(fs::Permissions::from_mode(0o666))
    }

    #[cfg(not(unix))]
    fn permissions_of_new_files(&mut self) -> &mut Self {
        self
    }
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
