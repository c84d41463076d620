//! Options that hold for one bucket: another server with the S3 API, another set of keys.

use std::{collections::BTreeMap, fmt};

use super::{StoreOptions, lines, registry::own_place};
use crate::error::{Error, ErrorKind, Result};

/// Store options by bucket or container. They stand in place of the session's, so that the keys of one server are not sent
/// to another one.
#[derive(Clone, Default)]
pub(crate) struct BucketOptions(BTreeMap<String, StoreOptions>);

impl fmt::Debug for BucketOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(&self.0).finish()
    }
}

impl BucketOptions {
    /// Sets an option of a bucket, such as `s3://bucket`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`], without the value, if that is no bucket.
    pub(crate) fn set(&mut self, bucket: &str, name: &str, value: &str) -> Result<()> {
        let place = own_place(bucket)
            .ok()
            .filter(|place| !place.starts_with("http"));
        let place = place.ok_or_else(|| {
            let bucket = crate::location::redact(bucket);
            let message = format!(
                "options for `{bucket}`, expected s3://bucket, gs://bucket or az://container"
            );
            Error::new(ErrorKind::InvalidInput, message)
        })?;
        self.0.entry(place).or_default().set(name, value);
        Ok(())
    }

    /// Reads a file with an option on each line: `s3://bucket aws_endpoint=https://s3.example.org`. Empty lines and those
    /// that begin with `#` are left out.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] naming the line, without the value.
    pub(crate) fn set_lines(&mut self, text: &str) -> Result<()> {
        let example = "s3://bucket aws_endpoint=https://s3.example.org";
        lines::each(text, '=', example, |bucket, name, value| {
            self.set(bucket, name, value)
        })
    }

    /// Returns the options of a bucket, by its name in the registry.
    pub(super) fn get(&self, bucket: &str) -> Option<&StoreOptions> {
        self.0.get(bucket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_by_bucket_and_never_shown() {
        let mut options = BucketOptions::default();
        let text = "# Copernicus\n\n s3://eodata aws_endpoint=https://s3.example.org\n\
                    s3://eodata\tAWS_SECRET_ACCESS_KEY=a=b\naz://box azure_storage_account_name=me\n";
        options.set_lines(text).unwrap();
        let eodata = options.get("s3://eodata").unwrap();
        assert_eq!(eodata.get("aws_endpoint"), Some("https://s3.example.org"));
        assert_eq!(eodata.get("aws_secret_access_key"), Some("a=b"));
        assert!(options.get("s3://other").is_none());
        assert!(!format!("{options:?}").contains("a=b"));
        for (text, said) in [
            ("s3://a", "line 1: expected such as"),
            ("\ns3://a key value", "line 2: expected such as"),
            (
                "eodata aws_region=x",
                "options for `eodata`, expected s3://bucket",
            ),
            ("https://h.org aws_region=x", "expected s3://bucket"),
            ("s3://a/b secret=canary", "options for `s3://a/b`"),
        ] {
            let err = BucketOptions::default().set_lines(text).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::InvalidInput);
            assert!(err.message().contains(said), "{text}: {err}");
            assert!(!err.message().contains("canary"), "{err}");
        }
    }
}
