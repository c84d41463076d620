//! How one bucket or container is reached.

/// How one bucket (or container) is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Access {
    /// The region of an S3 bucket.
    #[serde(default)]
    pub region: Option<String>,
    /// True if requests are not signed; none lets the session's credentials decide.
    #[serde(default)]
    pub anonymous: Option<bool>,
    /// True if the one who asks pays.
    #[serde(default)]
    pub requester_pays: bool,
}
