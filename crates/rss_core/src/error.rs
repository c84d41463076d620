//! The one error type of this crate.

use std::{error::Error as StdError, fmt, result};

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = result::Result<T, E>;

/// What went wrong, in terms a caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The item, asset or object does not exist.
    NotFound,
    /// The server refused the credentials, or wants some.
    Denied,
    /// The server is overloaded or unreachable; a later try may succeed.
    Unavailable,
    /// The bytes are not what the format promises.
    Corrupt,
    /// The object is no longer the version that an index, or an open reader, knows; opening it anew
    /// reads the version that is there now.
    Changed,
    /// The file is valid, but this build cannot read it.
    Unsupported,
    /// The caller asked for something that cannot exist.
    InvalidInput,
}

/// An error from any operation of this crate.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    location: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            location: None,
            source: None,
        }))
    }

    pub(crate) fn with_source(
        mut self,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Names the file or URL this error is about. The innermost name wins.
    pub(crate) fn at(mut self, location: impl fmt::Display) -> Self {
        self.0.location.get_or_insert_with(|| location.to_string());
        self
    }

    /// Says how often it was tried, if more than once.
    pub(crate) fn after(mut self, tries: u32) -> Self {
        if tries > 1 {
            self.0.message = format!("{}, after {tries} tries", self.0.message);
        }
        self
    }

    /// Returns the kind of this error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the message without the location.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the file or URL this error is about, without query string or credentials.
    pub fn location(&self) -> Option<&str> {
        self.0.location.as_deref()
    }

    /// Returns true if the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.0.kind == ErrorKind::Unavailable
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.location {
            Some(location) => write!(f, "{location}: {}", self.0.message),
            None => f.write_str(&self.0.message),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("location", &self.0.location)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_one_word() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }

    #[test]
    fn names_the_innermost_location() {
        let err = Error::new(ErrorKind::Corrupt, "IFD 2 loops")
            .at("s3://b/k.tif")
            .at("item X");
        assert_eq!(err.to_string(), "s3://b/k.tif: IFD 2 loops");
    }
}
