//! The root of a Zarr hierarchy.

use super::icechunk::Icechunk;
use crate::location::Location;

/// Where an array or a cube is: a folder or prefix of its own, or an [Icechunk](Icechunk) repository.
///
/// Functions that take one also take a [`Location`] or an [`Icechunk`], by value or by reference.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Root {
    /// Objects below a location.
    Objects(Location),
    /// A group in a version of a repository.
    Icechunk(Icechunk),
}

impl Root {
    /// Returns the location of its objects.
    pub fn location(&self) -> &Location {
        match self {
            Self::Objects(location) => location,
            Self::Icechunk(repository) => repository.location(),
        }
    }
}

impl From<Location> for Root {
    fn from(location: Location) -> Self {
        Self::Objects(location)
    }
}

impl From<&Location> for Root {
    fn from(location: &Location) -> Self {
        Self::Objects(location.clone())
    }
}

impl From<Icechunk> for Root {
    fn from(repository: Icechunk) -> Self {
        Self::Icechunk(repository)
    }
}

impl From<&Icechunk> for Root {
    fn from(repository: &Icechunk) -> Self {
        Self::Icechunk(repository.clone())
    }
}

impl From<&Self> for Root {
    fn from(root: &Self) -> Self {
        root.clone()
    }
}
