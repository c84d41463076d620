//! Builds the store of one bucket from the session's options and the bucket's access.
//!
//! Options come by `object_store`'s names; GDAL's names mean the same.

use std::sync::Arc;

use object_store::{
    ObjectStore,
    aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey},
    azure::{AzureConfigKey, MicrosoftAzure, MicrosoftAzureBuilder},
    gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey},
    signer::Signer,
};
use url::Url;

use super::{
    StoreOptions,
    keys::Keys,
    network::Network,
    wire::{Connector, RequestTarget},
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    products::Access,
};

const DEFAULT_REGION: &str = "us-east-1";

/// The store of one bucket.
#[derive(Debug)]
pub(super) enum Bucket {
    /// On Amazon S3, where a bucket has one region.
    Amazon(Arc<AmazonS3>),
    /// On another server with the S3 API.
    Endpoint(Arc<AmazonS3>),
    Google(Arc<GoogleCloudStorage>),
    Azure(Arc<MicrosoftAzure>),
}

impl Bucket {
    pub(super) fn store(&self) -> Arc<dyn ObjectStore> {
        match self {
            Self::Amazon(store) | Self::Endpoint(store) => Arc::clone(store) as _,
            Self::Google(store) => Arc::clone(store) as _,
            Self::Azure(store) => Arc::clone(store) as _,
        }
    }

    #[cfg(feature = "cog")]
    pub(super) fn multipart(&self) -> Arc<dyn object_store::multipart::MultipartStore> {
        match self {
            Self::Amazon(store) | Self::Endpoint(store) => Arc::clone(store) as _,
            Self::Google(store) => Arc::clone(store) as _,
            Self::Azure(store) => Arc::clone(store) as _,
        }
    }

    pub(super) fn signer(&self) -> &dyn Signer {
        match self {
            Self::Amazon(store) | Self::Endpoint(store) => store.as_ref(),
            Self::Google(store) => store.as_ref(),
            Self::Azure(store) => store.as_ref(),
        }
    }

    /// Returns true if a response may state that the bucket is in another region.
    pub(super) fn has_regions(&self) -> bool {
        matches!(self, Self::Amazon(_))
    }
}

/// Opens the store of `location`'s bucket. Makes no request.
pub(super) fn open(
    location: &Location,
    options: &StoreOptions,
    access: &Access,
    network: &Network,
) -> Result<Bucket> {
    let anonymous = is_anonymous(location, options, access);
    let wrong = |err: object_store::Error| {
        // The text may quote an option's value, which may be a secret.
        let name = match &err {
            object_store::Error::UnknownConfigurationKey { key, .. } => key.clone(),
            _ => "a store option".to_owned(),
        };
        Error::new(ErrorKind::InvalidInput, format!("{name} is not valid"))
    };
    let keys = Keys::default();
    match location {
        Location::S3 { bucket, .. } => {
            let mut builder = AmazonS3Builder::new();
            for (name, value) in options.iter() {
                if let Ok(key) = name.parse::<AmazonS3ConfigKey>()
                    && !is_ours(name)
                {
                    builder = builder.with_config(key, value);
                }
            }
            // Endpoint and hosting style are set together: their options have several names, whose order
            // `s3_endpoint` fixes.
            let endpoint = s3_endpoint(options)?;
            if let Some(endpoint) = &endpoint {
                let url = match endpoint.virtual_hosted {
                    Hosting::Composed => endpoint.with_bucket_in_host(bucket)?,
                    _ => endpoint.url.clone(),
                };
                let hosted = endpoint.virtual_hosted != Hosting::Path;
                builder = builder
                    .with_config(
                        AmazonS3ConfigKey::S3Endpoint,
                        url.as_str().trim_end_matches('/'),
                    )
                    .with_virtual_hosted_style_request(hosted);
            }
            let store = builder
                .with_bucket_name(bucket)
                .with_region(region(options, access))
                .with_skip_signature(anonymous)
                .with_request_payer(requester_pays(options, access))
                .with_retry(network.retry())
                .with_http_connector(Connector::new(
                    network,
                    RequestTarget::AsAsked(keys.clone()),
                )?)
                .build()
                .map_err(wrong)?;
            keys.set_amazon(store.credentials());
            let store = Arc::new(store);
            Ok(match endpoint {
                Some(_) => Bucket::Endpoint(store),
                None => Bucket::Amazon(store),
            })
        }
        Location::Gcs { bucket, .. } => {
            let mut builder = GoogleCloudStorageBuilder::new();
            for (name, value) in options.iter() {
                if let Ok(key) = name.parse::<GoogleConfigKey>()
                    && name.starts_with("google_")
                    && !is_ours(name)
                {
                    builder = builder.with_config(key, value);
                }
            }
            let store = builder
                .with_bucket_name(bucket)
                .with_skip_signature(anonymous)
                .with_retry(network.retry())
                .with_http_connector(Connector::new(
                    network,
                    RequestTarget::AsAsked(keys.clone()),
                )?)
                .build()
                .map_err(wrong)?;
            keys.set_google(store.credentials());
            Ok(Bucket::Google(Arc::new(store)))
        }
        Location::Azure { container, .. } => {
            let mut builder = MicrosoftAzureBuilder::new();
            for (name, value) in options.iter() {
                if let Ok(key) = name.parse::<AzureConfigKey>()
                    && name.starts_with("azure_")
                    && !is_ours(name)
                {
                    builder = builder.with_config(key, value);
                }
            }
            let store = builder
                .with_container_name(container)
                .with_skip_signature(anonymous)
                .with_retry(network.retry())
                .with_http_connector(Connector::new(
                    network,
                    RequestTarget::AsAsked(keys.clone()),
                )?)
                .build()
                .map_err(wrong)?;
            keys.set_azure(store.credentials());
            Ok(Bucket::Azure(Arc::new(store)))
        }
        Location::Http(_) | Location::Local(_) => Err(Error::new(
            ErrorKind::InvalidInput,
            "the location is in no bucket",
        )),
    }
}

/// Returns true for options that are read here and not passed on by name.
fn is_ours(name: &str) -> bool {
    name.ends_with("skip_signature")
        || name.ends_with("request_payer")
        || name.ends_with("allow_http")
        || name.ends_with("endpoint_url_s3")
        || name.ends_with("virtual_hosted_style_request")
        || matches!(
            name,
            "aws_bucket"
                | "aws_bucket_name"
                | "bucket"
                | "bucket_name"
                | "aws_endpoint"
                | "aws_endpoint_url"
                | "endpoint"
                | "endpoint_url"
                | "azure_container_name"
                | "google_bucket"
                | "google_bucket_name"
        )
}

/// Returns true if requests to this bucket are not signed: by its access or an option, or because the
/// options hold no credentials.
pub(super) fn is_anonymous(location: &Location, options: &StoreOptions, access: &Access) -> bool {
    if let Some(anonymous) = access.anonymous {
        return anonymous;
    }
    // An explicit option decides alone: with signing switched on, credentials may come from a source
    // that the options do not show, such as an instance's metadata service.
    let option = |names: &[&str]| options.first(names).map(|_| options.is_on(names));
    let has = |names: &[&str]| options.first(names).is_some();
    match location {
        Location::S3 { .. } => option(&["aws_skip_signature", "skip_signature"])
            .or_else(|| option(&["aws_no_sign_request"]))
            .unwrap_or_else(|| {
                !(has(&["aws_access_key_id", "access_key_id"])
                    || has(&["aws_web_identity_token_file"])
                    || has(&["aws_container_credentials_relative_uri"])
                    || has(&["aws_container_credentials_full_uri"])
                    || has(&["aws_metadata_endpoint", "metadata_endpoint"]))
            }),
        Location::Gcs { .. } => option(&["google_skip_signature"])
            .or_else(|| option(&["gs_no_sign_request"]))
            .unwrap_or_else(|| {
                !has(&[
                    "google_service_account",
                    "google_service_account_path",
                    "google_service_account_key",
                    "google_application_credentials",
                    "google_bearer_token",
                ])
            }),
        Location::Azure { .. } => option(&["azure_skip_signature"])
            .or_else(|| option(&["azure_no_sign_request"]))
            .unwrap_or_else(|| {
                !has(&[
                    "azure_storage_account_key",
                    "azure_storage_access_key",
                    "azure_storage_sas_key",
                    "azure_storage_sas_token",
                    "azure_storage_client_id",
                    "azure_client_id",
                    "azure_storage_token",
                    "azure_federated_token_file",
                    "azure_msi_endpoint",
                    "azure_identity_endpoint",
                ])
            }),
        Location::Http(_) | Location::Local(_) => true,
    }
}

/// Returns the region of a bucket: that of its access, else the option, else S3's default.
pub(super) fn region(options: &StoreOptions, access: &Access) -> String {
    access
        .region
        .as_deref()
        .or_else(|| {
            options.first(&[
                "aws_region",
                "region",
                "aws_default_region",
                "default_region",
            ])
        })
        .unwrap_or(DEFAULT_REGION)
        .to_owned()
}

pub(super) fn requester_pays(options: &StoreOptions, access: &Access) -> bool {
    let names = ["aws_request_payer", "request_payer"];
    access.requester_pays
        || options.is_on(&names)
        || options
            .first(&names)
            .is_some_and(|value| value.eq_ignore_ascii_case("requester"))
}

/// A server with the S3 API, and the position of the bucket's name in its URLs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct S3Endpoint {
    pub(crate) url: Url,
    pub(crate) virtual_hosted: Hosting,
}

/// The position of the bucket's name in a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hosting {
    /// In the path.
    Path,
    /// In the host; the endpoint already contains it (`object_store`'s convention).
    Given,
    /// In the host; it is prepended to the endpoint's host (GDAL's convention).
    Composed,
}

impl S3Endpoint {
    fn with_bucket_in_host(&self, bucket: &str) -> Result<Url> {
        let mut url = self.url.clone();
        let host = format!("{bucket}.{}", url.host_str().unwrap_or_default());
        url.set_host(Some(&host)).map_err(|_| {
            Error::new(
                ErrorKind::InvalidInput,
                "the endpoint's host cannot take a bucket's name as a prefix",
            )
        })?;
        Ok(url)
    }
}

/// Returns the S3 endpoint that replaces Amazon's, from `object_store`'s or GDAL's option.
pub(crate) fn s3_endpoint(options: &StoreOptions) -> Result<Option<S3Endpoint>> {
    let named = options.first(&[
        "aws_endpoint_url_s3",
        "aws_endpoint",
        "aws_endpoint_url",
        "endpoint",
        "endpoint_url",
    ]);
    let (text, hosting) = match (named, options.get("aws_s3_endpoint")) {
        (Some(text), _) => {
            if !text.contains("://") {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "the S3 endpoint has no scheme, expected http:// or https:// before the host",
                ));
            }
            let hosted = [
                "aws_virtual_hosted_style_request",
                "virtual_hosted_style_request",
            ];
            let hosting = if options.is_on(&hosted) {
                Hosting::Given
            } else {
                Hosting::Path
            };
            (text.to_owned(), hosting)
        }
        (None, Some(text)) => {
            let hosting = if options.is_on(&["aws_virtual_hosting"]) {
                Hosting::Composed
            } else {
                Hosting::Path
            };
            (with_scheme(text, options), hosting)
        }
        (None, None) => return Ok(None),
    };
    let url = Url::parse(&text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidInput,
                "the S3 endpoint is not a valid http or https URL",
            )
        })?;
    Ok(Some(S3Endpoint {
        url,
        virtual_hosted: hosting,
    }))
}

/// Returns the server of a location's bucket, where the options set it: a bucket of the same name on
/// another server is another bucket.
pub(super) fn authority(location: &Location, options: &StoreOptions) -> Option<String> {
    if location.as_s3().is_some() {
        let endpoint = s3_endpoint(options).ok().flatten()?;
        return Some(endpoint.url.as_str().trim_end_matches('/').to_owned());
    }
    match location {
        Location::Azure { .. } => {
            let names = ["azure_storage_account_name", "azure_storage_account"];
            options.first(&names).map(str::to_owned)
        }
        Location::Gcs { .. } => options.get("google_base_url").map(str::to_owned),
        _ => None,
    }
}

fn with_scheme(text: &str, options: &StoreOptions) -> String {
    if text.contains("://") {
        return text.to_owned();
    }
    let plain = options.get("aws_https").is_some() && !options.is_on(&["aws_https"]);
    format!("{}://{text}", if plain { "http" } else { "https" })
}

/// Returns the plain `https` URL of a location in a bucket; other locations unchanged.
pub(super) fn https_url(
    location: &Location,
    options: &StoreOptions,
    access: &Access,
) -> Result<Location> {
    let (mut url, parts) = match location {
        Location::S3 { bucket, key } => match s3_endpoint(options)? {
            Some(endpoint) => match endpoint.virtual_hosted {
                Hosting::Path => (endpoint.url, vec![bucket.as_str(), key]),
                Hosting::Given => (endpoint.url, vec![key.as_str()]),
                Hosting::Composed => (endpoint.with_bucket_in_host(bucket)?, vec![key.as_str()]),
            },
            None => {
                let region = region(options, access);
                // A wildcard certificate covers one label: not a bucket's name with a dot.
                if bucket.contains('.') {
                    let host = format!("https://s3.{region}.amazonaws.com/");
                    (parse(&host)?, vec![bucket.as_str(), key])
                } else {
                    let host = format!("https://{bucket}.s3.{region}.amazonaws.com/");
                    (parse(&host)?, vec![key.as_str()])
                }
            }
        },
        Location::Gcs { bucket, key } => (
            parse("https://storage.googleapis.com/")?,
            vec![bucket.as_str(), key],
        ),
        Location::Azure { container, key } => {
            let names = ["azure_storage_account_name", "azure_storage_account"];
            let account = options.first(&names).ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidInput,
                    "azure_storage_account_name is not set",
                )
            })?;
            let host = format!("https://{account}.blob.core.windows.net/");
            (parse(&host)?, vec![container.as_str(), key])
        }
        Location::Http(_) | Location::Local(_) => return Ok(location.clone()),
    };
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty();
        for part in parts {
            segments.extend(part.split('/'));
        }
    }
    Ok(Location::Http(url))
}

fn parse(text: &str) -> Result<Url> {
    Url::parse(text).map_err(|_| {
        Error::new(
            ErrorKind::InvalidInput,
            "the bucket's name is no valid host name",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> StoreOptions {
        let mut options = StoreOptions::default();
        for (name, value) in pairs {
            options.set(name, *value);
        }
        options
    }

    fn s3() -> Location {
        Location::parse("s3://b/k/a b.tif").unwrap()
    }

    #[test]
    fn an_endpoint_has_many_names() {
        for pairs in [
            &[("AWS_ENDPOINT_URL", "http://127.0.0.1:9")][..],
            &[("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")],
            &[("aws_endpoint", "http://127.0.0.1:9")],
            &[("AWS_S3_ENDPOINT", "127.0.0.1:9"), ("AWS_HTTPS", "NO")],
        ] {
            let url = https_url(&s3(), &options(pairs), &Access::default()).unwrap();
            assert_eq!(
                url.to_href(),
                "http://127.0.0.1:9/b/k/a%20b.tif",
                "{pairs:?}"
            );
        }
        let pairs = [
            ("AWS_S3_ENDPOINT", "store.example"),
            ("AWS_VIRTUAL_HOSTING", "TRUE"),
        ];
        let url = https_url(&s3(), &options(&pairs), &Access::default()).unwrap();
        assert_eq!(url.to_href(), "https://b.store.example/k/a%20b.tif");
    }

    #[test]
    fn a_wrong_endpoint_is_named_and_not_quoted() {
        let err = s3_endpoint(&options(&[("aws_endpoint", "ftp://CANARY")])).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
        assert!(!err.to_string().contains("CANARY"));
    }

    #[test]
    fn an_endpoint_without_a_scheme_is_an_error() {
        for name in ["aws_endpoint_url", "aws_endpoint", "aws_endpoint_url_s3"] {
            let err = s3_endpoint(&options(&[(name, "localhost:9000")])).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::InvalidInput);
            assert!(err.message().contains("has no scheme"), "{err}");
        }
    }

    #[test]
    fn requests_are_signed_where_credentials_are_known() {
        let anonymous =
            |pairs: &[(&str, &str)]| is_anonymous(&s3(), &options(pairs), &Access::default());
        assert!(anonymous(&[]));
        assert!(!anonymous(&[("AWS_ACCESS_KEY_ID", "k")]));
        assert!(anonymous(&[
            ("AWS_ACCESS_KEY_ID", "k"),
            ("AWS_NO_SIGN_REQUEST", "YES")
        ]));
        assert!(!anonymous(&[("AWS_SKIP_SIGNATURE", "false")]));
        let access = Access {
            anonymous: Some(true),
            ..Access::default()
        };
        assert!(is_anonymous(
            &s3(),
            &options(&[("aws_access_key_id", "k")]),
            &access
        ));
    }

    #[test]
    fn a_buckets_own_region_wins() {
        let access = Access {
            region: Some("ap-southeast-2".to_owned()),
            ..Access::default()
        };
        let set = options(&[("AWS_REGION", "eu-west-1")]);
        assert_eq!(region(&set, &access), "ap-southeast-2");
        assert_eq!(region(&set, &Access::default()), "eu-west-1");
        assert_eq!(region(&options(&[]), &Access::default()), "us-east-1");
        let url = https_url(&s3(), &set, &access).unwrap();
        assert_eq!(
            url.to_href(),
            "https://b.s3.ap-southeast-2.amazonaws.com/k/a%20b.tif"
        );
    }

    #[test]
    fn a_user_may_offer_to_pay() {
        let pays = |pairs: &[(&str, &str)]| requester_pays(&options(pairs), &Access::default());
        assert!(pays(&[("AWS_REQUEST_PAYER", "requester")]));
        assert!(!pays(&[]));
    }
}
