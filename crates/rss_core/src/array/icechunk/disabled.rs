//! Stands in for Icechunk in builds without it.

use std::sync::Arc;

use object_store::ObjectStore;

use super::{Commit, Icechunk, Missing, Stopped};
use crate::{
    error::{Error, ErrorKind, Result},
    session::Session,
};

/// An uninhabited type: without the feature no repository can be opened.
#[derive(Clone, Debug)]
pub(crate) enum Repository {}

/// An uninhabited type: without the feature no write can begin.
#[derive(Debug)]
pub(crate) enum Turn {}

impl Repository {
    pub(crate) async fn open(
        _session: &Session,
        address: &Icechunk,
        _missing: Missing,
    ) -> Result<Self> {
        let message = "built without the `icechunk` feature";
        Err(Error::new(ErrorKind::Unsupported, message).at(&address.location))
    }

    pub(crate) fn keys(&self) -> Arc<dyn ObjectStore> {
        match *self {}
    }

    pub(crate) async fn begin(&self, _stopped: Stopped) -> Result<Turn> {
        match *self {}
    }

    pub(crate) fn work_branch(&self) -> String {
        match *self {}
    }

    pub(super) async fn history(&self) -> Result<Vec<Commit>> {
        match *self {}
    }
}

impl Turn {
    pub(crate) async fn publish(&self, _message: &str) -> Result<()> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{location::Location, zarr::Cube};

    #[tokio::test]
    async fn the_feature_is_named() {
        let session = Session::builder().build().unwrap();
        let address = Icechunk::new(&Location::parse("/nowhere").unwrap());
        let err = Cube::open(&session, &address).await.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Unsupported);
        assert!(err.message().contains("`icechunk` feature"), "{err}");
        let err = address.history(&session).await.unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Unsupported);
    }
}
