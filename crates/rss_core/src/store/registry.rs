//! The registry of stores: from a location to its store, one per bucket, shared by all reads.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use object_store::{
    ObjectStore, http::HttpBuilder, local::LocalFileSystem, path::Path, signer::Signer,
};
use url::Url;

use super::{
    StoreOptions,
    bucket::{self, Bucket, S3Endpoint},
    fault,
    network::Network,
    of_bucket::BucketOptions,
    sign::{ContainerUrl, SasTokens},
    watched::{Rebuild, Watched},
    wire::{Address, Connector, RequestTarget},
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    products::{self, Access, Sas},
};

/// The stores of a session.
pub struct Registry(Arc<Inner>);

struct Inner {
    options: StoreOptions,
    /// Those of buckets that have their own.
    of_buckets: BucketOptions,
    network: Network,
    tokens: SasTokens,
    access: Mutex<HashMap<String, Access>>,
    stores: Mutex<HashMap<String, Arc<dyn ObjectStore>>>,
    /// Stores of the user's own, by bucket, container or host.
    own: HashMap<String, Arc<dyn ObjectStore>>,
}

/// Stores of the user's own, and the place that each one stands for.
pub(crate) type OwnStores = Vec<(String, Arc<dyn ObjectStore>)>;

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stores = self.0.stores.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Registry")
            .field("options", &self.0.options)
            .field("stores", &stores.keys().collect::<Vec<_>>())
            .finish()
    }
}

impl Registry {
    /// Creates the registry.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if a store of the user's own stands for no bucket, container or host.
    pub(crate) fn new(
        options: StoreOptions,
        of_buckets: BucketOptions,
        network: Network,
        own: OwnStores,
    ) -> Result<Self> {
        let own = own
            .into_iter()
            .map(|(place, store)| Ok((own_place(&place)?, store)));
        let tokens = SasTokens::default();
        if let Some(key) = options.get("pc_sdk_subscription_key") {
            tokens.set_subscription_key(key);
        }
        Ok(Self(Arc::new(Inner {
            options,
            of_buckets,
            network,
            tokens,
            access: Mutex::default(),
            stores: Mutex::default(),
            own: own.collect::<Result<_>>()?,
        })))
    }

    /// Returns the one way to the network.
    pub(crate) fn network(&self) -> &Network {
        &self.0.network
    }

    /// Returns the options of all stores but those of buckets that have their own.
    pub fn options(&self) -> &StoreOptions {
        &self.0.options
    }

    /// Returns the options that hold for the bucket of `location`.
    pub(crate) fn options_of(&self, location: &Location) -> &StoreOptions {
        let own = bucket_of(location).and_then(|name| self.0.of_buckets.get(&name));
        own.unwrap_or(&self.0.options)
    }

    /// Returns true if the user says where the bucket of `location` is: a store or options of its own, or an endpoint for
    /// all of S3.
    pub(super) fn is_placed(&self, location: &Location) -> bool {
        let name = bucket_of(location).unwrap_or_default();
        self.0.own.contains_key(&name)
            || self.0.of_buckets.get(&name).is_some()
            || !matches!(bucket::s3_endpoint(&self.0.options), Ok(None))
    }

    /// Sets the access of the bucket (container, host) of `location` for later requests.
    pub fn set_access(&self, location: &Location, access: Access) {
        let Some(name) = bucket_of(location) else {
            return;
        };
        let old = lock(&self.0.access).insert(name.clone(), access.clone());
        // A store is built for one access: it is built again at its next use.
        if old.as_ref() != Some(&access) {
            lock(&self.0.stores).remove(&name);
        }
    }

    /// Returns the access of the bucket of `location`: as set with [`Registry::set_access`], else that
    /// of the built-in sources, else the default.
    pub fn access(&self, location: &Location) -> Access {
        bucket_of(location)
            .and_then(|name| lock(&self.0.access).get(&name).cloned())
            .or_else(|| match location {
                Location::S3 { bucket, .. } => products::bucket_access(bucket),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// Returns the S3 endpoint that replaces Amazon's for the bucket of `location`, if the options set one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if it is not a URL.
    #[cfg_attr(not(feature = "gdal"), expect(dead_code, reason = "only GDAL is told"))]
    pub(crate) fn s3_endpoint(&self, location: &Location) -> Result<Option<S3Endpoint>> {
        bucket::s3_endpoint(self.options_of(location))
    }

    /// Returns the region of the bucket of `location`, as far as it is known.
    #[cfg_attr(not(feature = "gdal"), expect(dead_code, reason = "only GDAL is told"))]
    pub(crate) fn region(&self, location: &Location) -> String {
        bucket::region(self.options_of(location), &self.access(location))
    }

    /// Returns true if reads of the bucket of `location` are "requester pays".
    #[cfg_attr(not(feature = "gdal"), expect(dead_code, reason = "only GDAL is told"))]
    pub(crate) fn requester_pays(&self, location: &Location) -> bool {
        bucket::requester_pays(self.options_of(location), &self.access(location))
    }

    /// Returns true if requests to the bucket of `location` are unsigned: by its access or an option, or
    /// because there are no credentials.
    pub fn is_anonymous(&self, location: &Location) -> bool {
        bucket::is_anonymous(location, self.options_of(location), &self.access(location))
    }

    /// Returns the store that holds `location`, and its path in it. Costs no request.
    ///
    /// Stores of buckets are shared by all reads of the session; the store of an `http(s)` URL
    /// holds this one file, with its query string. Every store counts its traffic, retries within the
    /// session's limits, checks the length of bodies, and writes no secrets into its errors.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if an option is not valid or a key is not a valid object path.
    pub fn store(&self, location: &Location) -> Result<(Arc<dyn ObjectStore>, Path)> {
        self.find(location).map_err(|err| err.at(location))
    }

    fn find(&self, location: &Location) -> Result<(Arc<dyn ObjectStore>, Path)> {
        let own = bucket_of(location).and_then(|name| self.0.own.get(&name));
        let path = match location {
            Location::S3 { key, .. } | Location::Gcs { key, .. } | Location::Azure { key, .. } => {
                Path::parse(key)
            }
            Location::Http(url) if own.is_some() => Path::from_url_path(url.path()),
            Location::Http(url) => return self.http(url),
            Location::Local(path) => return local(path),
        };
        let path = path.map_err(|err| {
            Error::new(ErrorKind::InvalidInput, "the key is no valid object path").with_source(err)
        })?;
        if let Some(own) = own {
            return Ok((Arc::clone(own), path));
        }
        let name = bucket_of(location).unwrap_or_default();
        if let Some(store) = lock(&self.0.stores).get(&name) {
            return Ok((Arc::clone(store), path));
        }
        let bucket = self.bucket(location, None)?;
        let registry = Self(Arc::clone(&self.0));
        let again = location.clone();
        let rebuild: Option<Rebuild> = bucket.has_regions().then(|| {
            Box::new(move |region: &str| {
                let bucket = registry.bucket(&again, Some(region))?;
                // GDAL's paths are configured from this access: it needs the region too.
                let mut access = registry.access(&again);
                access.region = Some(region.to_owned());
                if let Some(name) = bucket_of(&again) {
                    lock(&registry.0.access).insert(name, access);
                }
                Ok(bucket.store())
            }) as Rebuild
        });
        let store: Arc<dyn ObjectStore> = Arc::new(Watched::new(bucket.store(), rebuild));
        // Another thread may have built the same store meanwhile: the first one is shared.
        let mut stores = lock(&self.0.stores);
        let store = stores.entry(name).or_insert(store);
        Ok((Arc::clone(store), path))
    }

    /// Returns the store for multipart uploads to the bucket of `location`. Costs no request.
    ///
    /// # Errors
    ///
    /// As [`Registry::store`], [`ErrorKind::InvalidInput`] for a location outside any bucket, and
    /// [`ErrorKind::Unsupported`] for a store of the user's own.
    #[cfg(feature = "cog")]
    pub(crate) fn multipart(
        &self,
        location: &Location,
    ) -> Result<Arc<dyn object_store::multipart::MultipartStore>> {
        if bucket_of(location).is_some_and(|name| self.0.own.contains_key(&name)) {
            // Their parts are in order, and a COG's header, which is its first part, is known last.
            let message =
                "a COG cannot be written to a store of one's own, expected a bucket or a path";
            return Err(Error::new(ErrorKind::Unsupported, message).at(location));
        }
        let bucket = self.bucket(location, None);
        Ok(bucket.map_err(|err| err.at(location))?.multipart())
    }

    fn bucket(&self, location: &Location, region: Option<&str>) -> Result<Bucket> {
        let mut access = self.access(location);
        if let Some(region) = region {
            access.region = Some(region.to_owned());
        }
        bucket::open(
            location,
            self.options_of(location),
            &access,
            &self.0.network,
        )
    }

    fn http(&self, url: &Url) -> Result<(Arc<dyn ObjectStore>, Path)> {
        let (signature, url) = match self.0.tokens.find(url) {
            Some((signature, url)) => (Some(signature), url),
            None => (None, url.clone()),
        };
        let mut plain = url.clone();
        plain.set_fragment(None);
        let uri = plain
            .as_str()
            .parse()
            .map_err(|_| Error::new(ErrorKind::InvalidInput, "not a valid HTTP URL"))?;
        let network = &self.0.network;
        let target = RequestTarget::Exactly(Address { uri, signature });
        // HttpStore drops the query string and encodes the path again: the target replaces its URL.
        let store = HttpBuilder::new()
            .with_url(url.origin().ascii_serialization())
            .with_retry(network.retry())
            .with_http_connector(Connector::new(network, target)?)
            .build()
            .map_err(|err| {
                Error::new(ErrorKind::InvalidInput, "not a valid HTTP URL").with_source(err)
            })?;
        let store: Arc<dyn ObjectStore> = Arc::new(Watched::new(Arc::new(store), None));
        Ok((store, Path::from(url.path())))
    }

    /// Makes later requests to `location`'s container signed with tokens of a service. Does nothing for
    /// a location that needs no token.
    pub(crate) fn sign_with(&self, location: &Location, sas: &Sas) {
        if let Location::Http(url) = location
            && let Some(container) = ContainerUrl::of(url, sas)
        {
            self.0.tokens.register(container);
        }
    }

    /// Returns `location` with a valid token, if its container is signed; else unchanged. Costs one
    /// request per container and lifetime of a token.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Denied`], [`ErrorKind::NotFound`], [`ErrorKind::Unavailable`] of the service.
    pub(crate) async fn signed(&self, location: &Location) -> Result<Location> {
        let Location::Http(url) = location else {
            return Ok(location.clone());
        };
        let Some((signature, url)) = self.0.tokens.find(url) else {
            return Ok(location.clone());
        };
        let token = signature.token(&self.0.network).await?;
        let invalid = || Error::new(ErrorKind::InvalidInput, "not a valid HTTP URL").at(location);
        let uri = url.as_str().parse().map_err(|_| invalid())?;
        let signed = token.sign(&uri)?.to_string();
        Url::parse(&signed)
            .map(Location::Http)
            .map_err(|_| invalid())
    }

    /// Returns an `https` URL that reads `location` without credentials for as long as `expires`:
    /// presigned, or the plain URL of a bucket that is read anonymously. Costs no request if the
    /// credentials are static or cached.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for options or an expiry the service does not allow;
    /// [`ErrorKind::Denied`] without credentials.
    pub(crate) async fn presigned(
        &self,
        location: &Location,
        expires: Duration,
    ) -> Result<Location> {
        if self.is_anonymous(location) || matches!(location, Location::Local(_)) {
            return self.https(location);
        }
        if matches!(location, Location::Http(_)) {
            return self.signed(location).await;
        }
        let bucket = self.bucket(location, None)?;
        let (_, path) = self.store(location)?;
        let signer: &dyn Signer = bucket.signer();
        let url = signer
            .signed_url(http::Method::GET, &path, expires)
            .await
            .map_err(|err| {
                let err = fault::error(err, location);
                Error::new(
                    ErrorKind::Denied,
                    format!("cannot sign the URL: {}", err.message()),
                )
                .at(location)
            })?;
        Ok(Location::Http(url))
    }

    /// Returns the plain `https` URL of a location in a bucket; other locations unchanged.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if an option is wrong.
    pub(crate) fn https(&self, location: &Location) -> Result<Location> {
        bucket::https_url(location, self.options_of(location), &self.access(location))
            .map_err(|err| err.at(location))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the key of a store of the user's own.
pub(super) fn own_place(place: &str) -> Result<String> {
    let wrong = || {
        let message = format!(
            "a store for `{place}`; expected s3://bucket, gs://bucket, az://container or https://host"
        );
        Error::new(ErrorKind::InvalidInput, message)
    };
    let bare = place.strip_suffix('/').unwrap_or(place);
    // A location names an object; one is made up here.
    let location = Location::parse(&format!("{bare}/object")).map_err(|_| wrong())?;
    let is_whole = match &location {
        Location::S3 { key, .. } | Location::Gcs { key, .. } | Location::Azure { key, .. } => {
            key == "object"
        }
        Location::Http(url) => url.path() == "/object",
        Location::Local(_) => false,
    };
    bucket_of(&location).filter(|_| is_whole).ok_or_else(wrong)
}

/// Returns the key of a location's store and access: its bucket, container or host.
fn bucket_of(location: &Location) -> Option<String> {
    match location {
        Location::S3 { bucket, .. } => Some(format!("s3://{bucket}")),
        Location::Gcs { bucket, .. } => Some(format!("gs://{bucket}")),
        Location::Azure { container, .. } => Some(format!("az://{container}")),
        Location::Http(url) => Some(url.origin().ascii_serialization()),
        Location::Local(_) => None,
    }
}

fn local(path: &std::path::Path) -> Result<(Arc<dyn ObjectStore>, Path)> {
    let absolute = path
        .canonicalize()
        .or_else(|_| std::path::absolute(path))
        .map_err(|err| fault::of_io(&err))?;
    let path = Path::from_absolute_path(&absolute).map_err(|err| {
        Error::new(ErrorKind::InvalidInput, "the path is no valid object path").with_source(err)
    })?;
    Ok((Arc::new(LocalFileSystem::new()), path))
}
