//! The one error type of these crates.
//!
//! Users can create one too, for failures of their own closures, readers and stores.

use std::{error::Error as StdError, fmt, result};

/// A result whose error is [`Error`].
pub type Result<T, E = Error> = result::Result<T, E>;

/// What went wrong, in terms a caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The item, asset or object does not exist.
    NotFound,
    /// The server refused the credentials, or requires some.
    Denied,
    /// The server is overloaded or unreachable; a later request may succeed.
    Unavailable,
    /// The bytes violate the format's specification.
    Corrupt,
    /// The object is not the version that an index, or an open reader, was made from; opening it again reads the
    /// current version.
    Changed,
    /// The file is valid, but this build cannot read it.
    Unsupported,
    /// The caller's input is invalid: a value out of range, or a combination that cannot be computed.
    InvalidInput,
    /// The caller's own code failed, such as a closure; the [`source`](StdError::source) is its error.
    Other,
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
    /// Creates an error of a kind. The message states what was wrong and what was expected, in lower case and without
    /// a full stop; it must not contain secrets.
    ///
    /// ```
    /// use rss_raster::{Error, ErrorKind};
    ///
    /// let err = Error::new(ErrorKind::InvalidInput, "3 bands; expected 2").at("scene.tif");
    /// assert_eq!(err.to_string(), "scene.tif: 3 bands; expected 2");
    /// assert_eq!(format!("{err:?}"), err.to_string());
    /// ```
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            location: None,
            source: None,
        }))
    }

    /// Wraps an error of the caller's own code: [`ErrorKind::Other`], with its text as the message and itself as the
    /// source. An [`Error`] of this crate is returned unchanged.
    ///
    /// ```
    /// use rss_raster::{Error, ErrorKind};
    ///
    /// fn parse(text: &str) -> rss_raster::Result<f64> {
    ///     text.parse().map_err(Error::other)
    /// }
    /// assert_eq!(parse("x").unwrap_err().kind(), ErrorKind::Other);
    /// assert_eq!(parse("x").unwrap_err().message(), "invalid float literal");
    /// ```
    pub fn other(err: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        match err.into().downcast::<Self>() {
            Ok(ours) => *ours,
            Err(other) => Self::new(ErrorKind::Other, other.to_string()).with_source(other),
        }
    }

    /// Replaces the message; kind, location and source stay.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.0.message = message.into();
        self
    }

    /// Sets the error that caused this one, for [`source`](StdError::source).
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Sets the file or URL this error is about, without query string or credentials. The innermost location wins.
    #[must_use]
    pub fn at(mut self, location: impl fmt::Display) -> Self {
        self.0.location.get_or_insert_with(|| location.to_string());
        self
    }

    /// Appends the number of tries to the message, if more than one.
    #[must_use]
    pub fn after(mut self, tries: u32) -> Self {
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

/// The same text as `Display`, because `fn main() -> rss_core::Result<()>` prints errors with `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Box<dyn StdError + Send + Sync>> for Error {
    fn from(err: Box<dyn StdError + Send + Sync>) -> Self {
        Self::other(err)
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
    fn errors_of_others_become_ours_and_ours_stay() {
        fn theirs() -> Result<()> {
            Err::<(), Box<dyn StdError + Send + Sync>>("the model is not there".into())?;
            Ok(())
        }
        let err = theirs().unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Other);
        assert_eq!(format!("{err:?}"), "the model is not there");
        assert!(!err.is_retryable());

        let ours = Error::new(ErrorKind::Unavailable, "busy").at("s3://b/k.tif");
        let boxed: Box<dyn StdError + Send + Sync> = Box::new(ours);
        let back = Error::from(boxed);
        assert_eq!(back.kind(), ErrorKind::Unavailable);
        assert_eq!(back.location(), Some("s3://b/k.tif"));
    }

    #[test]
    fn names_the_innermost_location() {
        let err = Error::new(ErrorKind::Corrupt, "IFD 2 loops")
            .at("s3://b/k.tif")
            .at("item X");
        assert_eq!(err.to_string(), "s3://b/k.tif: IFD 2 loops");
    }
}
