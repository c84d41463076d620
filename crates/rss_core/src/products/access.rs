//! Access settings of one bucket or container.

/// Access settings of one bucket (or container).
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Access {
    /// The region of an S3 bucket.
    #[serde(default)]
    pub region: Option<String>,
    /// True if requests are not signed; with none the session's credentials decide.
    #[serde(default)]
    pub anonymous: Option<bool>,
    /// True if the requester pays.
    #[serde(default)]
    pub requester_pays: bool,
}
