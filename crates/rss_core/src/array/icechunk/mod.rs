//! [Icechunk](https://icechunk.io) repositories: a hierarchy with a history, in which a write is one commit.
//!
//! Everything above works on keys of an `ObjectStore`; here such a store is made of a version of a
//! repository (`keys`), and the repository's own objects go through the session's stores
//! (`objects`), with their credentials, retries and counts. Virtual chunks are left out: nothing
//! here writes them, and reading one is an error.

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

/// An Icechunk repository, and which of its versions is meant.
///
/// Needs the feature `icechunk`; without it every use is [`ErrorKind::Unsupported`](crate::ErrorKind).
///
/// A write goes to a branch of its own, `rss-write-` and the branch's name, and ends as one commit of the
/// branch that was named: readers see all of it or nothing. The branch is there until then; a write that
/// was stopped goes on from its last checkpoint. If the named branch moved meanwhile the write ends with
/// [`ErrorKind::Changed`](crate::ErrorKind), and what was written stays in its branch.
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
    /// The snapshot that it made.
    pub snapshot: String,
    /// When it was made.
    pub time: DateTime<Utc>,
    /// What it says of itself.
    pub message: String,
}

/// Whether a repository that is not there is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    Make,
    Fail,
}

/// Whether a write goes on with what a stopped one has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    GoOn,
    Leave,
}

impl Icechunk {
    /// Names the branch `main` of the repository in a folder, or below a prefix of a bucket.
    pub fn new(location: &Location) -> Self {
        Self {
            location: location.clone(),
            group: String::new(),
            version: Version::Branch("main".to_owned()),
        }
    }

    /// Names a branch.
    #[must_use]
    pub fn with_branch(mut self, name: impl Into<String>) -> Self {
        self.version = Version::Branch(name.into());
        self
    }

    /// Names a group, such as `ndvi/2021`: what is opened or written is there. Without one it is the root.
    #[must_use]
    pub fn with_group(mut self, path: &str) -> Self {
        path.trim_matches('/').clone_into(&mut self.group);
        self
    }

    /// Names a tag. It can be read, not written.
    #[must_use]
    pub fn with_tag(mut self, name: impl Into<String>) -> Self {
        self.version = Version::Tag(name.into());
        self
    }

    /// Names a snapshot by its id. It can be read, not written.
    #[must_use]
    pub fn with_snapshot(mut self, id: impl Into<String>) -> Self {
        self.version = Version::Snapshot(id.into());
        self
    }

    /// Returns where the repository is.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Returns the path of the group that is meant; empty for the root.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// Returns the commits that made this version, the latest first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`](crate::ErrorKind) if there is no such repository or version; what the store
    /// answers.
    pub async fn history(&self, session: &Session) -> Result<Vec<Commit>> {
        let repository = Repository::open(session, self, Missing::Fail).await?;
        repository.history().await
    }
}
