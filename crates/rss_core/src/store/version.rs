//! The version of an object: size, ETag and time of its last change.

use chrono::{DateTime, SecondsFormat, SubsecRound, Utc};
use serde_json::{Value, json};

/// A version of an object, to check that tiles come from the object whose header was read.
///
/// A strong ETag makes the request for a tile a conditional one (`If-Match`). Without one the size and
/// the `Last-Modified` of the response are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Version {
    /// Bytes of the complete object.
    pub size: u64,
    /// The ETag as the server sent it, weak ones with their `W/`.
    pub etag: Option<String>,
    /// When the object was changed last, if that is known; whole milliseconds.
    pub last_modified: Option<DateTime<Utc>>,
    /// `file:checksum` of the STAC asset, if it has one. It is stored to be compared with the catalogue
    /// later; a range request cannot be checked by it.
    pub checksum: Option<String>,
}

impl Version {
    /// Returns the version of an object of which only the size is known.
    pub fn of_size(size: u64) -> Self {
        Self {
            size,
            ..Self::default()
        }
    }

    /// Sets the ETag.
    #[must_use]
    pub fn with_etag(mut self, etag: Option<String>) -> Self {
        self.etag = etag;
        self
    }

    /// Sets when the object was changed last.
    #[must_use]
    pub fn with_last_modified(mut self, time: Option<DateTime<Utc>>) -> Self {
        self.last_modified = time.map(|time| time.trunc_subsecs(3));
        self
    }

    /// Sets the asset's checksum.
    #[must_use]
    pub fn with_checksum(mut self, checksum: Option<String>) -> Self {
        self.checksum = checksum;
        self
    }

    /// Returns true if something tells the version besides the size.
    pub fn is_told(&self) -> bool {
        self.etag.as_ref().is_some_and(|etag| !etag.is_empty()) || self.last_modified.is_some()
    }

    /// Returns the ETag if it is a strong one: two bodies under it are equal byte for byte. See
    /// [RFC 9110](https://www.rfc-editor.org/rfc/rfc9110#section-8.8.1).
    pub fn strong_etag(&self) -> Option<&str> {
        self.etag
            .as_deref()
            .filter(|etag| !etag.starts_with("W/") && !etag.is_empty())
    }
}

impl Version {
    /// Returns the version of a store's response.
    pub(super) fn of_meta(meta: &object_store::ObjectMeta) -> Self {
        let known = meta.last_modified > DateTime::UNIX_EPOCH;
        Self::of_size(meta.size)
            .with_etag(meta.e_tag.clone())
            .with_last_modified(known.then_some(meta.last_modified))
    }

    /// Returns the version of a file of this machine.
    pub(crate) fn of_file(meta: &std::fs::Metadata) -> Self {
        Self::of_size(meta.len()).with_last_modified(meta.modified().ok().map(DateTime::from))
    }

    /// Returns the version as a record of provenance states it.
    pub(crate) fn to_json(&self) -> Value {
        let mut all = json!({"bytes": self.size});
        if let Some(etag) = &self.etag {
            all["etag"] = json!(etag);
        }
        if let Some(time) = self.last_modified {
            all["last_modified"] = json!(time.to_rfc3339_opts(SecondsFormat::Millis, true));
        }
        all
    }

    /// Reads [`to_json`](Self::to_json); none if it is something else.
    pub(crate) fn of_json(value: &Value) -> Option<Self> {
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let time = text("last_modified").and_then(|time| time.parse::<DateTime<Utc>>().ok());
        let etag = text("etag").map(str::to_owned);
        Some(
            Self::of_size(value.get("bytes")?.as_u64()?)
                .with_etag(etag)
                .with_last_modified(time),
        )
    }

    /// Returns the version to record of a file that was recorded before: that of then, as long as it is no other one, so
    /// that a result that is made once more states the same.
    pub(crate) fn to_record<'a>(then: Option<&'a Self>, now: Option<&'a Self>) -> Option<&'a Self> {
        match (then, now) {
            (Some(then), Some(now)) if then.differs(now) => Some(now),
            (Some(then), _) => Some(then),
            (None, now) => now,
        }
    }

    /// Returns true if `now` is this version but for its size: one of the two states a wrong one.
    #[cfg(any(feature = "cog", feature = "gdal"))]
    pub(super) fn differs_in_size_alone(&self, now: &Self) -> bool {
        let mut same = now.clone();
        same.size = self.size;
        self.size != now.size && now.is_told() && !self.differs(&same)
    }

    /// Returns true if `now` is another version. Times decide where not both have a strong ETag.
    pub(crate) fn differs(&self, now: &Self) -> bool {
        if self.size != now.size {
            return true;
        }
        match (self.strong_etag(), now.strong_etag()) {
            (Some(then), Some(now)) => then != now,
            _ => match (self.last_modified, now.last_modified) {
                (Some(then), Some(now)) => then != now,
                _ => false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_version_is_read_as_it_was() {
        let time = "2021-01-03T00:05:00.024Z".parse().unwrap();
        let full = Version::of_size(9)
            .with_etag(Some("W/\"a\"".to_owned()))
            .with_last_modified(Some(time));
        for version in [full, Version::of_size(7)] {
            assert_eq!(Version::of_json(&version.to_json()), Some(version));
        }
        assert_eq!(Version::of_json(&json!({"etag": "a"})), None);
    }

    #[test]
    fn the_strongest_mark_that_both_have_decides() {
        let at = |seconds| DateTime::from_timestamp(seconds, 0);
        let then = Version::of_size(9)
            .with_etag(Some("\"a\"".to_owned()))
            .with_last_modified(at(1));
        let touched = then.clone().with_last_modified(at(2));
        assert!(!then.differs(&touched), "the ETag says that it is the same");
        let weak = touched.clone().with_etag(Some("W/\"a\"".to_owned()));
        assert!(then.differs(&weak), "the time says that it is another");
        assert!(!then.differs(&Version::of_size(9)));
        assert!(then.differs(&Version::of_size(8)));
        let mut longer = then.clone();
        longer.size += 1;
        #[cfg(any(feature = "cog", feature = "gdal"))]
        {
            assert!(then.differs_in_size_alone(&longer) && !then.differs_in_size_alone(&then));
            let other = longer.clone().with_etag(Some("\"b\"".to_owned()));
            assert!(!then.differs_in_size_alone(&other));
            assert!(!then.differs_in_size_alone(&Version::of_size(8)));
        }
        assert_eq!(weak.strong_etag(), None);
    }
}
