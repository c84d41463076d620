//! GDAL's options of a bucket: the session's store options under GDAL's names, set per path.
//!
//! Path options belong to the process: where two sessions have different options for one bucket, the
//! one that opened it last decides. See
//! <https://gdal.org/en/stable/user/virtual_file_systems.html>.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use super::raw;
use crate::{
    error::Result,
    location::Location,
    session::Session,
    store::{Hosting, StoreOptions},
};

/// The options set last for each prefix. GDAL caches listings and file sizes by path, so its cache is
/// cleared when a prefix gets other options.
static SET: Mutex<Option<HashMap<String, Pairs>>> = Mutex::new(None);

/// Names and values.
type Pairs = Vec<(String, String)>;

/// Sets GDAL's options of the bucket of `location`, for the whole process.
pub(super) fn configure(session: &Session, location: &Location) -> Result<()> {
    let Some((prefix, options)) = path_options(session, location)? else {
        return Ok(());
    };
    let mut set = SET.lock().unwrap_or_else(PoisonError::into_inner);
    let set = set.get_or_insert_default();
    let old = set.get(&prefix);
    // Setting options again would clear GDAL's cache of the bucket for nothing.
    if old == Some(&options) {
        return Ok(());
    }
    let is_new = old.is_none();
    raw::set_path_options(&prefix, &options)?;
    if !is_new {
        raw::forget_remote(&prefix)?;
    }
    set.insert(prefix, options);
    Ok(())
}

/// Returns the prefix of the bucket's paths and the options that hold below it.
fn path_options(session: &Session, location: &Location) -> Result<Option<(String, Pairs)>> {
    let stores = session.stores();
    let store = stores.options_of(location);
    let mut set = Options(Vec::new());
    let anonymous = stores.is_anonymous(location);
    let prefix = match location {
        Location::S3 { bucket, .. } => {
            set.s3(session, store, location, bucket, anonymous)?;
            format!("/vsis3/{bucket}")
        }
        Location::Gcs { bucket, .. } => {
            set.flag("GS_NO_SIGN_REQUEST", anonymous);
            if !anonymous {
                set.copy(
                    store,
                    "GOOGLE_APPLICATION_CREDENTIALS",
                    &[
                        "google_application_credentials",
                        "google_service_account",
                        "google_service_account_path",
                    ],
                );
            }
            format!("/vsigs/{bucket}")
        }
        Location::Azure { container, .. } => {
            set.flag("AZURE_NO_SIGN_REQUEST", anonymous);
            set.copy(
                store,
                "AZURE_STORAGE_ACCOUNT",
                &["azure_storage_account_name", "azure_storage_account"],
            );
            if !anonymous {
                set.copy(
                    store,
                    "AZURE_STORAGE_ACCESS_KEY",
                    &["azure_storage_account_key", "azure_storage_access_key"],
                );
                set.copy(
                    store,
                    "AZURE_STORAGE_SAS_TOKEN",
                    &["azure_storage_sas_key", "azure_storage_sas_token"],
                );
            }
            format!("/vsiaz/{container}")
        }
        Location::Http(_) | Location::Local(_) => return Ok(None),
    };
    Ok(Some((prefix, set.0)))
}

struct Options(Pairs);

impl Options {
    fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.push((name.to_owned(), value.into()));
    }

    fn flag(&mut self, name: &str, on: bool) {
        self.set(name, if on { "YES" } else { "NO" });
    }

    fn copy(&mut self, store: &StoreOptions, name: &str, from: &[&str]) {
        if let Some(value) = store.first(from) {
            self.set(name, value);
        }
    }

    fn s3(
        &mut self,
        session: &Session,
        store: &StoreOptions,
        location: &Location,
        bucket: &str,
        anonymous: bool,
    ) -> Result<()> {
        let stores = session.stores();
        self.set("AWS_REGION", stores.region(location));
        self.flag("AWS_NO_SIGN_REQUEST", anonymous);
        if stores.requester_pays(location) {
            self.set("AWS_REQUEST_PAYER", "requester");
        }
        if let Some(endpoint) = stores.s3_endpoint(location)? {
            let url = &endpoint.url;
            let mut host = url.host_str().unwrap_or_default();
            // GDAL prepends the bucket to the host by itself.
            if endpoint.virtual_hosted == Hosting::Given {
                host = host
                    .strip_prefix(bucket)
                    .and_then(|rest| rest.strip_prefix('.'))
                    .unwrap_or(host);
            }
            let port = url
                .port()
                .map(|port| format!(":{port}"))
                .unwrap_or_default();
            let path = url.path().trim_end_matches('/');
            self.set("AWS_S3_ENDPOINT", format!("{host}{port}{path}"));
            self.flag("AWS_HTTPS", url.scheme() == "https");
            let hosted = endpoint.virtual_hosted != Hosting::Path;
            self.set("AWS_VIRTUAL_HOSTING", if hosted { "TRUE" } else { "FALSE" });
        }
        if !anonymous {
            self.copy(
                store,
                "AWS_ACCESS_KEY_ID",
                &["aws_access_key_id", "access_key_id"],
            );
            self.copy(
                store,
                "AWS_SECRET_ACCESS_KEY",
                &["aws_secret_access_key", "secret_access_key"],
            );
            self.copy(
                store,
                "AWS_SESSION_TOKEN",
                &["aws_session_token", "aws_token", "session_token", "token"],
            );
        }
        Ok(())
    }
}

/// Returns the configuration options of this session's GDAL threads: defaults for remote files, then the
/// user's own, which override them.
pub(super) fn thread_options(session: &Session) -> Pairs {
    let settings = session.settings();
    let seconds = |time: std::time::Duration| format!("{}", time.as_secs().max(1));
    let mut options: Vec<(String, String)> = [
        // GDAL neither lists the bucket nor probes for side-car files: each would be a request.
        ("GDAL_DISABLE_READDIR_ON_OPEN", "EMPTY_DIR".to_owned()),
        ("CPL_VSIL_NETWORK_STATS_ENABLED", "YES".to_owned()),
        (
            "GDAL_HTTP_MAX_RETRY",
            settings.retries.unwrap_or(6).to_string(),
        ),
        (
            "GDAL_HTTP_RETRY_DELAY",
            format!("{}", settings.backoff.as_secs_f64()),
        ),
        (
            "GDAL_HTTP_CONNECTTIMEOUT",
            seconds(settings.connect_timeout),
        ),
        ("GDAL_HTTP_LOW_SPEED_TIME", seconds(settings.read_timeout)),
        ("GDAL_HTTP_LOW_SPEED_LIMIT", "1".to_owned()),
        (
            "GDAL_HTTP_USERAGENT",
            concat!("rss_core/", env!("CARGO_PKG_VERSION")).to_owned(),
        ),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    // GDAL keeps 5 % of the memory for blocks by default, whatever else runs. The option is read once, by the first
    // thread that reads, so the environment's choice stays.
    if gdal::config::get_config_option("GDAL_CACHEMAX", "").is_ok_and(|chosen| chosen.is_empty()) {
        options.push(("GDAL_CACHEMAX".to_owned(), "256".to_owned()));
    }
    // Last, so that the user's options override the session's.
    options.extend(settings.gdal_options.iter().cloned());
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Session;

    fn options(session: &Session, location: &str) -> Pairs {
        let location = Location::parse(location).unwrap();
        path_options(session, &location).unwrap().unwrap().1
    }

    fn has(options: &[(String, String)], name: &str, value: &str) -> bool {
        options.iter().any(|(n, v)| n == name && v == value)
    }

    #[test]
    fn an_endpoint_is_split_as_gdal_wants_it() {
        let session = Session::builder()
            .s3_endpoint("http://127.0.0.1:9000")
            .build()
            .unwrap();
        let found = options(&session, "s3://some-bucket/k.tif");
        for (name, value) in [
            ("AWS_S3_ENDPOINT", "127.0.0.1:9000"),
            ("AWS_HTTPS", "NO"),
            ("AWS_VIRTUAL_HOSTING", "FALSE"),
            ("AWS_NO_SIGN_REQUEST", "YES"),
        ] {
            assert!(has(&found, name, value), "{name} in {found:?}");
        }
    }

    #[test]
    fn a_key_is_passed_on_only_where_requests_are_signed() {
        let builder = || {
            Session::builder()
                .store_option("aws_access_key_id", "id")
                .store_option("aws_secret_access_key", "secret")
        };
        let found = options(&builder().build().unwrap(), "s3://some-bucket/k.tif");
        assert!(has(&found, "AWS_NO_SIGN_REQUEST", "NO"));
        assert!(has(&found, "AWS_SECRET_ACCESS_KEY", "secret"));
        let session = builder()
            .store_option("aws_skip_signature", "true")
            .build()
            .unwrap();
        let found = options(&session, "s3://some-bucket/k.tif");
        assert!(!found.iter().any(|(name, _)| name.contains("KEY")));
    }

    #[test]
    fn digital_earth_australia_is_read_without_keys_in_its_region() {
        let session = Session::builder().build().unwrap();
        let found = options(&session, "s3://dea-public-data/k.tif");
        assert!(has(&found, "AWS_REGION", "ap-southeast-2"), "{found:?}");
        assert!(has(&found, "AWS_NO_SIGN_REQUEST", "YES"));
    }
}
