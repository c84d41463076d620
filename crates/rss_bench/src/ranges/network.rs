//! The networks between a reader and the bucket, slow and fast.

use std::{fmt, str::FromStr};

use anyhow::{Context, Result};
use rss_testbed::Profile;
use serde::{Deserialize, Serialize};

/// A line slower than this leaves the machine idle.
const SLOW_BYTES_PER_S: u64 = 8_000_000;

/// A network between reader and bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Network {
    /// A home line far away.
    Home,
    /// A machine in another region.
    OtherRegion,
    /// A machine in the bucket's region.
    SameRegion,
}

impl Network {
    /// All of them, slowest first.
    pub(crate) const ALL: &[Self] = &[Self::Home, Self::OtherRegion, Self::SameRegion];

    /// Returns the name that the command line uses.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::OtherRegion => "other-region",
            Self::SameRegion => "same-region",
        }
    }

    /// Returns its numbers.
    pub(crate) fn profile(self) -> Profile {
        match self {
            Self::Home => Profile::HOME,
            Self::OtherRegion => Profile::OTHER_REGION,
            Self::SameRegion => Profile::SAME_REGION,
        }
    }

    /// Returns its numbers in words.
    pub(crate) fn about(self) -> String {
        let profile = self.profile();
        let rate = |rate: Option<u64>| match rate {
            Some(rate) => format!("{:.2} MB/s", rate as f64 / 1e6),
            None => "any rate".to_owned(),
        };
        format!(
            "first byte after {} to {} ms, {} more on a new connection; {} per connection, {} in all",
            profile.latency.as_millis(),
            (profile.latency + profile.jitter).as_millis(),
            profile.handshake.as_millis(),
            rate(profile.connection),
            rate(profile.line)
        )
    }

    /// Returns whether its line leaves the machine idle.
    pub(super) fn is_slow(self) -> bool {
        self.profile()
            .line
            .is_some_and(|rate| rate < SLOW_BYTES_PER_S)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Network {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let names: Vec<&str> = Self::ALL.iter().map(|network| network.name()).collect();
        let named = |network: &&Self| network.name() == text;
        let found = Self::ALL.iter().find(named).copied();
        found.with_context(|| format!("profile `{text}` is not one of {}", names.join(", ")))
    }
}
