//! Errors of Icechunk as errors of ours.

use std::{error::Error as StdError, io};

use icechunk::{
    format::IcechunkFormatErrorKind,
    refs::RefErrorKind,
    repository::{RepositoryError, RepositoryErrorKind},
    session::{SessionError, SessionErrorKind},
    storage::StorageErrorKind,
    store::{StoreError, StoreErrorKind},
};

use crate::{
    error::{Error, ErrorKind},
    location::Location,
    store,
};

/// Tells whether an error is a commit conflict: the branch is no longer at the snapshot that the caller read.
pub(super) trait Moved {
    fn is_moved(&self) -> bool;
}

impl Moved for RepositoryError {
    fn is_moved(&self) -> bool {
        matches!(self.kind, RepositoryErrorKind::Conflict { .. })
    }
}

impl Moved for SessionError {
    fn is_moved(&self) -> bool {
        match &self.kind {
            SessionErrorKind::Conflict { .. } => true,
            SessionErrorKind::RepositoryError(err) => {
                matches!(err, RepositoryErrorKind::Conflict { .. })
            }
            _ => false,
        }
    }
}

pub(super) fn of_repository(err: &RepositoryError, at: &Location) -> Error {
    repository(&err.kind, at)
}

pub(super) fn of_session(err: &SessionError, at: &Location) -> Error {
    session(&err.kind, at)
}

/// Converts an error of reading or writing `key` into one of an object store.
pub(super) fn of_store(err: &StoreError, key: &str, at: &Location) -> object_store::Error {
    let is_absent = match &err.kind {
        StoreErrorKind::NotFound(_) => true,
        StoreErrorKind::SessionError(err) => matches!(
            err,
            SessionErrorKind::NodeNotFound { .. } | SessionErrorKind::InvalidIndex { .. }
        ),
        _ => false,
    };
    if is_absent {
        return absent(key);
    }
    let err = match &err.kind {
        StoreErrorKind::SessionError(err) => session(err, at),
        StoreErrorKind::RepositoryError(err) => repository(err, at),
        StoreErrorKind::InvalidKey { .. } | StoreErrorKind::BadKeyPrefix { .. } => Error::new(
            ErrorKind::InvalidInput,
            "not a valid key of an Icechunk store",
        ),
        err => other(err, at),
    };
    carried(err)
}

pub(super) fn absent(key: &str) -> object_store::Error {
    object_store::Error::NotFound {
        path: key.to_owned(),
        source: "no such key in this version".into(),
    }
}

/// Wraps an error of ours in one of a store; [`store::error`] unwraps it.
pub(super) fn carried(err: Error) -> object_store::Error {
    object_store::Error::Generic {
        store: "Icechunk",
        source: Box::new(err),
    }
}

fn session(err: &SessionErrorKind, at: &Location) -> Error {
    match err {
        SessionErrorKind::RepositoryError(err) => repository(err, at),
        SessionErrorKind::StorageError(err) => storage(err, at),
        SessionErrorKind::FormatError(err) => format(err, at),
        SessionErrorKind::RefError(err) => of_ref(err, at),
        err => other(err, at),
    }
}

fn repository(err: &RepositoryErrorKind, at: &Location) -> Error {
    match err {
        RepositoryErrorKind::RepositoryDoesntExist => Error::new(
            ErrorKind::NotFound,
            "no Icechunk repository at this location",
        )
        .at(at),
        RepositoryErrorKind::ParentDirectoryNotClean => {
            let message = "the location holds other files: a new repository needs an empty one";
            Error::new(ErrorKind::InvalidInput, message).at(at)
        }
        RepositoryErrorKind::EmptyPrefixCreation => {
            let message = "a repository cannot begin at the root of a bucket";
            Error::new(ErrorKind::InvalidInput, message).at(at)
        }
        RepositoryErrorKind::SnapshotNotFound { id } => {
            Error::new(ErrorKind::NotFound, format!("no snapshot {id}")).at(at)
        }
        RepositoryErrorKind::BadRepoVersion { .. } => {
            let message = "a repository of Icechunk's format 1: upgrade it before writing";
            Error::new(ErrorKind::Unsupported, message).at(at)
        }
        RepositoryErrorKind::ReadonlyStorage(_) | RepositoryErrorKind::ReadonlyRepository(_) => {
            Error::new(ErrorKind::Denied, "the repository is read-only").at(at)
        }
        RepositoryErrorKind::RepoUpdateAttemptsLimit(_) => {
            let message = "too many concurrent updates of the repository";
            Error::new(ErrorKind::Unavailable, message).at(at)
        }
        RepositoryErrorKind::StorageError(err) => storage(err, at),
        RepositoryErrorKind::FormatError(err) => format(err, at),
        RepositoryErrorKind::Ref(err) => of_ref(err, at),
        err => other(err, at),
    }
}

fn of_ref(err: &RefErrorKind, at: &Location) -> Error {
    match err {
        RefErrorKind::RefNotFound(name) => {
            Error::new(ErrorKind::NotFound, format!("no branch or tag `{name}`")).at(at)
        }
        RefErrorKind::InvalidRefName(name) => {
            let message = format!("`{name}` is not a valid name of a branch or tag");
            Error::new(ErrorKind::InvalidInput, message).at(at)
        }
        RefErrorKind::Storage(err) => storage(err, at),
        err => other(err, at),
    }
}

fn format(err: &IcechunkFormatErrorKind, at: &Location) -> Error {
    match err {
        IcechunkFormatErrorKind::SnapshotIdNotFound { snapshot_id } => {
            Error::new(ErrorKind::NotFound, format!("no snapshot {snapshot_id}")).at(at)
        }
        IcechunkFormatErrorKind::BranchNotFound { branch } => {
            Error::new(ErrorKind::NotFound, format!("no branch `{branch}`")).at(at)
        }
        IcechunkFormatErrorKind::TagNotFound { tag } => {
            Error::new(ErrorKind::NotFound, format!("no tag `{tag}`")).at(at)
        }
        err => other(err, at),
    }
}

fn storage(err: &StorageErrorKind, at: &Location) -> Error {
    match err {
        StorageErrorKind::ObjectNotFound => {
            let message =
                "an object of the repository is missing: it was removed, or never written";
            Error::new(ErrorKind::NotFound, message).at(at)
        }
        err => other(err, at),
    }
}

/// Looks for an error of a store among the sources. Its text may hold a URL with a signature, which [`store::error`]
/// strips.
fn other(err: &(dyn StdError + 'static), at: &Location) -> Error {
    let mut source = Some(err);
    while let Some(err) = source {
        if let Some(err) = err.downcast_ref::<object_store::Error>() {
            return store::error(err, at);
        }
        if let Some(err) = err.downcast_ref::<io::Error>() {
            // A response body that ends early arrives as an `io::Error` around the store's error.
            let inner = err.get_ref().map(|err| err as &(dyn StdError + 'static));
            match inner {
                Some(inner) => return other(inner, at),
                None => return store::of_io(err).at(at),
            }
        }
        source = err.source();
    }
    Error::new(ErrorKind::Corrupt, format!("Icechunk: {err}")).at(at)
}
