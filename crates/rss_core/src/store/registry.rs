//! From a location to the store that holds it: one store per bucket or host, shared by all reads.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use object_store::{
    BackoffConfig, ClientOptions, ObjectStore, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey},
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
    http::HttpBuilder,
    local::LocalFileSystem,
    path::Path,
};
use url::Url;

use super::{
    Meter, StoreOptions,
    wire::{Connector, Query},
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    products::Access,
};

/// How often and how long a request is tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Tries after the first.
    pub(crate) retries: u32,
    /// The time for all tries together.
    pub(crate) deadline: Duration,
}

/// The stores of a session.
pub struct Registry {
    options: StoreOptions,
    connector: Connector,
    patience: Patience,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    stores: HashMap<Holder, Arc<dyn ObjectStore>>,
    access: HashMap<Holder, Access>,
    queries: HashMap<Holder, Arc<dyn Query>>,
}

/// What one store serves: a bucket, a container, the objects of a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Holder {
    Local,
    S3(String),
    Gcs(String),
    Azure(String),
    /// An origin, the first path segment where a token is valid for it only, and the query string
    /// of a signed URL.
    Http(String),
}

impl Registry {
    pub(crate) fn new(
        options: StoreOptions,
        client: reqwest::Client,
        meter: Meter,
        patience: Patience,
    ) -> Self {
        Self {
            options,
            connector: Connector {
                client,
                meter,
                longest_pause: patience.deadline,
                query: None,
            },
            patience,
            state: Mutex::default(),
        }
    }

    /// Returns the options all stores start from.
    pub fn options(&self) -> &StoreOptions {
        &self.options
    }

    /// Says how the bucket (container, host) of `location` is reached from now on.
    pub fn set_access(&self, location: &Location, access: Access) {
        let holder = Holder::of(location);
        let mut state = self.state();
        if state.access.get(&holder) != Some(&access) {
            state.stores.remove(&holder);
            state.access.insert(holder, access);
        }
    }

    /// Returns how the bucket of `location` is reached: what was said with
    /// [`Registry::set_access`], else what a built-in source says of the bucket, else nothing.
    pub fn access(&self, location: &Location) -> Access {
        self.state()
            .access
            .get(&Holder::of(location))
            .cloned()
            .or_else(|| match location {
                Location::S3 { bucket, .. } => crate::products::bucket_access(bucket),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// Returns true if requests to the bucket of `location` go out unsigned: it is said so, or there
    /// is nothing to sign with.
    pub fn is_anonymous(&self, location: &Location) -> bool {
        let options = &self.options;
        if options.is_on(&["aws_no_sign_request", "aws_skip_signature"]) {
            return true;
        }
        let has_key = options
            .first(&[
                "aws_access_key_id",
                "aws_web_identity_token_file",
                "aws_container_credentials_relative_uri",
                "aws_container_credentials_full_uri",
            ])
            .is_some();
        self.access(location).anonymous.unwrap_or(!has_key)
    }

    /// Adds a query string, asked for anew at each request, to the requests for `location`'s holder.
    pub(crate) fn set_query(&self, location: &Location, query: Arc<dyn Query>) {
        let holder = Holder::of(location);
        let mut state = self.state();
        state.stores.remove(&holder);
        state.queries.insert(holder, query);
    }

    /// Returns the store that holds `location`, and its path in it. Costs no request.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if an option or the object's key is not valid.
    pub fn store(&self, location: &Location) -> Result<(Arc<dyn ObjectStore>, Path)> {
        let path = object_path(location)?;
        let holder = Holder::of(location);
        if let Some(store) = self.state().stores.get(&holder) {
            return Ok((Arc::clone(store), path));
        }
        let store = self.build(location, &holder)?;
        let mut state = self.state();
        let store = state.stores.entry(holder).or_insert(store);
        Ok((Arc::clone(store), path))
    }

    /// Returns the S3 store of a bucket, for signing.
    pub(crate) fn s3(&self, location: &Location, bucket: &str) -> Result<AmazonS3> {
        let wrong = |err: object_store::Error| {
            Error::new(
                ErrorKind::InvalidInput,
                format!("the options of S3 do not fit: {err}"),
            )
        };
        let options = &self.options;
        let mut builder = AmazonS3Builder::new();
        for (name, value) in options.iter().filter(|(name, _)| name.starts_with("aws_")) {
            if let Ok(key) = name.parse::<AmazonS3ConfigKey>() {
                builder = builder.with_config(key, value);
            }
        }
        if let Some(endpoint) = self.s3_endpoint() {
            builder = builder
                .with_allow_http(endpoint.starts_with("http://"))
                .with_endpoint(endpoint)
                .with_virtual_hosted_style_request(false);
        }
        let access = self.access(location);
        if let Some(region) = access.region {
            builder = builder.with_region(region);
        } else if options
            .first(&["aws_region", "aws_default_region"])
            .is_none()
        {
            builder = builder.with_region("us-east-1");
        }
        if self.is_anonymous(location) {
            builder = builder.with_skip_signature(true);
        }
        if access.requester_pays || self.options.get("aws_request_payer") == Some("requester") {
            builder = builder.with_request_payer(true);
        }
        builder
            .with_bucket_name(bucket)
            .with_retry(self.retry())
            .with_http_connector(self.connector.clone())
            .build()
            .map_err(wrong)
    }

    /// Returns the S3 endpoint that the options name, with its scheme, in any of the spellings of
    /// `object_store`, the AWS tools and GDAL.
    pub(crate) fn s3_endpoint(&self) -> Option<String> {
        let named = self
            .options
            .first(&["aws_endpoint", "aws_endpoint_url_s3", "aws_endpoint_url"])
            .map(str::to_owned);
        named
            .or_else(|| {
                let host = self.options.get("aws_s3_endpoint")?;
                if host.contains("://") {
                    return Some(host.to_owned());
                }
                let plain = self.options.get("aws_https").is_some_and(|value| {
                    matches!(
                        value.to_ascii_lowercase().as_str(),
                        "no" | "false" | "off" | "0"
                    )
                });
                let scheme = if plain { "http" } else { "https" };
                Some(format!("{scheme}://{host}"))
            })
            .map(|endpoint| endpoint.trim_end_matches('/').to_owned())
    }

    fn build(&self, location: &Location, holder: &Holder) -> Result<Arc<dyn ObjectStore>> {
        let wrong = |err: object_store::Error| {
            // The builder's text names the option, not its value.
            Error::new(
                ErrorKind::InvalidInput,
                format!("the store's options do not fit: {err}"),
            )
            .at(location)
        };
        Ok(match location {
            Location::Local(_) => Arc::new(LocalFileSystem::new()),
            Location::S3 { bucket, .. } => {
                Arc::new(self.s3(location, bucket).map_err(|err| err.at(location))?)
            }
            Location::Gcs { bucket, .. } => {
                let mut builder = GoogleCloudStorageBuilder::new();
                for (name, value) in self.options.iter() {
                    if let Ok(key) = name.parse::<GoogleConfigKey>()
                        && name.starts_with("google_")
                    {
                        builder = builder.with_config(key, value);
                    }
                }
                let has_key = self
                    .options
                    .iter()
                    .any(|(name, _)| name.starts_with("google_"));
                Arc::new(
                    builder
                        .with_bucket_name(bucket)
                        .with_skip_signature(!has_key)
                        .with_retry(self.retry())
                        .with_http_connector(self.connector.clone())
                        .build()
                        .map_err(wrong)?,
                )
            }
            Location::Azure { container, .. } => {
                let mut builder = MicrosoftAzureBuilder::new();
                for (name, value) in self.options.iter() {
                    if let Ok(key) = name.parse::<AzureConfigKey>()
                        && name.starts_with("azure_")
                    {
                        builder = builder.with_config(key, value);
                    }
                }
                let has_key = self
                    .options
                    .first(&[
                        "azure_storage_account_key",
                        "azure_storage_access_key",
                        "azure_storage_sas_token",
                        "azure_storage_sas_key",
                        "azure_client_id",
                        "azure_storage_client_id",
                    ])
                    .is_some();
                Arc::new(
                    builder
                        .with_container_name(container)
                        .with_skip_signature(!has_key)
                        .with_retry(self.retry())
                        .with_http_connector(self.connector.clone())
                        .build()
                        .map_err(wrong)?,
                )
            }
            Location::Http(url) => {
                let query = self.state().queries.get(holder).cloned();
                let query = query.or_else(|| {
                    let fixed = FixedQuery(url.query()?.to_owned());
                    Some(Arc::new(fixed) as Arc<dyn Query>)
                });
                let connector = Connector {
                    query,
                    ..self.connector.clone()
                };
                let client = ClientOptions::new().with_allow_http(url.scheme() == "http");
                Arc::new(
                    HttpBuilder::new()
                        .with_url(origin(url))
                        .with_client_options(client)
                        .with_retry(self.retry())
                        .with_http_connector(connector)
                        .build()
                        .map_err(wrong)?,
                )
            }
        })
    }

    fn retry(&self) -> RetryConfig {
        RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: usize::try_from(self.patience.retries).unwrap_or(usize::MAX),
            retry_timeout: self.patience.deadline,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The maps are whole whoever panicked: each change is one insert.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("options", &self.options)
            .field("stores", &self.state().stores.len())
            .finish_non_exhaustive()
    }
}

impl Holder {
    fn of(location: &Location) -> Self {
        match location {
            Location::Local(_) => Self::Local,
            Location::S3 { bucket, .. } => Self::S3(bucket.clone()),
            Location::Gcs { bucket, .. } => Self::Gcs(bucket.clone()),
            Location::Azure { container, .. } => Self::Azure(container.clone()),
            Location::Http(url) => {
                let origin = origin(url);
                match url.query() {
                    Some(query) => Self::Http(format!("{origin}?{query}")),
                    // A token is valid for one container: the first segment.
                    None if is_blob_host(url) => {
                        let container = url.path_segments().and_then(|mut path| path.next());
                        Self::Http(format!("{origin}/{}", container.unwrap_or_default()))
                    }
                    None => Self::Http(origin),
                }
            }
        }
    }
}

fn is_blob_host(url: &Url) -> bool {
    url.host_str()
        .is_some_and(|host| host.ends_with(".blob.core.windows.net"))
}

fn origin(url: &Url) -> String {
    let mut origin = url.clone();
    origin.set_path("");
    origin.set_query(None);
    origin.set_fragment(None);
    origin.to_string()
}

fn object_path(location: &Location) -> Result<Path> {
    let wrong = || Error::new(ErrorKind::InvalidInput, "not a valid object key").at(location);
    match location {
        Location::Local(path) => {
            // Resolved first: a store's path has no `..` in it.
            let whole = std::fs::canonicalize(path).map_err(|err| match err.kind() {
                std::io::ErrorKind::NotFound => {
                    Error::new(ErrorKind::NotFound, "not found").at(location)
                }
                _ => wrong().with_source(err),
            })?;
            Path::from_absolute_path(whole).map_err(|_| wrong())
        }
        Location::S3 { key, .. } | Location::Gcs { key, .. } | Location::Azure { key, .. } => {
            Path::parse(key).map_err(|_| wrong())
        }
        Location::Http(url) => Path::from_url_path(url.path()).map_err(|_| wrong()),
    }
}

/// The query string of a URL that came signed.
struct FixedQuery(String);

impl fmt::Debug for FixedQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FixedQuery")
    }
}

#[async_trait::async_trait]
impl Query for FixedQuery {
    async fn query(&self) -> Result<String> {
        Ok(self.0.clone())
    }
}
