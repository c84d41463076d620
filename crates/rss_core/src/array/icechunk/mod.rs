//! [Icechunk](https://icechunk.io) repositories: a hierarchy with a version history, in which a write is one commit.
//!
//! The modules above work on keys of an `ObjectStore`; `keys` provides such a store over a version of a
//! repository, and `objects` reads and writes the repository's own objects through the session's stores, with their
//! credentials, retries and counts. Virtual chunks are left out: nothing here writes them, and reading one is an
//! error.

#[cfg(not(feature = "icechunk"))]
#[path = "disabled.rs"]
mod backend;
#[cfg(feature = "icechunk")]
#[path = "repository.rs"]
mod backend;
#[cfg(feature = "icechunk")]
mod fault;
#[cfg(feature = "icechunk")]
mod keys;
#[cfg(feature = "icechunk")]
mod objects;

use chrono::{DateTime, Utc};

pub(super) use self::backend::{Repository, Turn};
use crate::{error::Result, location::Location, session::Session};

/// The address of an Icechunk repository, of a version (branch, tag or snapshot) and of a group in it.
///
/// Needs the feature `icechunk`; without it every use is [`ErrorKind::Unsupported`](crate::ErrorKind).
///
/// A write of a cube goes to a work branch, `rss-write-` and the branch's name, and ends as one commit of the
/// named branch: readers see all of it or nothing. The work branch exists until then; an interrupted write
/// resumes from its last checkpoint. If the named branch moved meanwhile the write ends with
/// [`ErrorKind::Changed`](crate::ErrorKind), and its data stays in the work branch.
///
/// ```
/// use rss_core::{Location, zarr::{Icechunk, Root}};
///
/// # fn main() -> rss_core::Result<()> {
/// let repository = Icechunk::new(&Location::parse("s3://bucket/cubes/one")?);
/// let published = repository.clone().with_tag("v1");
/// assert_eq!(Root::from(&published).location().to_href(), "s3://bucket/cubes/one");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Icechunk {
    location: Location,
    group: String,
    version: Version,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Version {
    Branch(String),
    Tag(String),
    Snapshot(String),
}

/// One commit of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Commit {
    /// The id of its snapshot.
    pub snapshot: String,
    /// When it was written.
    pub time: DateTime<Utc>,
    /// The commit message.
    pub message: String,
}

/// Whether a repository that does not exist is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Make,
    Fail,
}

/// Whether a write resumes from the checkpoint of an interrupted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    GoOn,
    Leave,
}

impl Icechunk {
    /// Makes the address of the branch `main` of the repository in a folder, or below a prefix of a bucket.
    pub fn new(location: &Location) -> Self {
        Self {
            location: location.clone(),
            group: String::new(),
            version: Version::Branch("main".to_owned()),
        }
    }

    /// Sets the branch.
    #[must_use]
    pub fn with_branch(mut self, name: impl Into<String>) -> Self {
        self.version = Version::Branch(name.into());
        self
    }

    /// Sets the group that is opened or written, such as `ndvi/2021`. Without one it is the root.
    #[must_use]
    pub fn with_group(mut self, path: &str) -> Self {
        path.trim_matches('/').clone_into(&mut self.group);
        self
    }

    /// Sets a tag, which can be read, not written.
    #[must_use]
    pub fn with_tag(mut self, name: impl Into<String>) -> Self {
        self.version = Version::Tag(name.into());
        self
    }

    /// Sets a snapshot by its id, which can be read, not written.
    #[must_use]
    pub fn with_snapshot(mut self, id: impl Into<String>) -> Self {
        self.version = Version::Snapshot(id.into());
        self
    }

    /// Returns the location of the repository.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Returns the path of the group; empty for the root.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the ancestry of this version: its commits, the latest first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](crate::ErrorKind) if there is no such repository or version; errors of the store.
    pub async fn history(&self, session: &Session) -> Result<Vec<Commit>> {
        let repository = Repository::open(session, self, Missing::Fail).await?;
        repository.history().await
    }
}
