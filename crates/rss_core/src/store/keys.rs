//! Signatures of requests to buckets, made anew for each attempt.
//!
//! `object_store` signs a request once. A signature of S3 or Azure holds for 15 minutes, a token for an hour: a request
//! that is sent again in a long outage, or waited long for its host, is signed with the keys of then. Headers that were
//! added since, as the version that a retry must meet, are under the new signature.

use std::{
    fmt,
    sync::{Arc, OnceLock, Weak},
    time::{Duration, Instant},
};

use http::{
    HeaderName, HeaderValue,
    header::{ACCEPT_ENCODING, AUTHORIZATION},
};
use object_store::{
    CredentialProvider,
    aws::{AwsAuthorizer, AwsCredential},
    azure::{AzureAuthorizer, AzureCredential},
    client::HttpRequest,
    gcp::GcpCredential,
};

use super::fault::Fault;
use crate::error::ErrorKind;

/// A signature that is older is made anew before the request is sent.
const FRESH: Duration = Duration::from_secs(300);
const DIGEST: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// The keys of a bucket's store: none until it is built, and where it signs nothing.
// Weak, because what gives keys may send requests, and so holds the connector that holds this.
#[derive(Clone, Default)]
pub(super) struct Keys(Arc<OnceLock<Provider>>);

enum Provider {
    Amazon(Weak<dyn CredentialProvider<Credential = AwsCredential>>),
    Azure(Weak<dyn CredentialProvider<Credential = AzureCredential>>),
    Google(Weak<dyn CredentialProvider<Credential = GcpCredential>>),
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(..)")
    }
}

impl Keys {
    pub(super) fn set_amazon(
        &self,
        keys: &Arc<dyn CredentialProvider<Credential = AwsCredential>>,
    ) {
        let _ = self.0.set(Provider::Amazon(Arc::downgrade(keys)));
    }

    pub(super) fn set_azure(
        &self,
        keys: &Arc<dyn CredentialProvider<Credential = AzureCredential>>,
    ) {
        let _ = self.0.set(Provider::Azure(Arc::downgrade(keys)));
    }

    pub(super) fn set_google(
        &self,
        keys: &Arc<dyn CredentialProvider<Credential = GcpCredential>>,
    ) {
        let _ = self.0.set(Provider::Google(Arc::downgrade(keys)));
    }
}

/// A request's signature: who made it, and when. Travels in the request's extensions.
#[derive(Clone, Debug)]
pub(super) struct Signing {
    keys: Keys,
    since: Instant,
}

impl Signing {
    /// Records that a request was signed just now.
    pub(super) fn now(keys: &Keys) -> Self {
        Self {
            keys: keys.clone(),
            since: Instant::now(),
        }
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.since.elapsed() < FRESH
    }

    /// Signs a request again. One that has no such signature stays as it is: it is read anonymously, signed by its URL, or
    /// asks for the keys themselves.
    pub(super) async fn renew(&mut self, request: &mut HttpRequest) -> Result<(), Fault> {
        self.since = Instant::now();
        let old = request.headers().get(AUTHORIZATION);
        let Some(old) = old.and_then(|old| old.to_str().ok()).map(str::to_owned) else {
            return Ok(());
        };
        // What this library adds itself was not signed, and a proxy may change it.
        let encoding = request.headers_mut().remove(ACCEPT_ENCODING);
        let signed = match self.keys.0.get() {
            Some(Provider::Amazon(keys)) => by_amazon(keys, &old, request).await,
            Some(Provider::Azure(keys)) => by_azure(keys, &old, request).await,
            Some(Provider::Google(keys)) => by_google(keys, &old, request).await,
            None => Ok(()),
        };
        if let Some(encoding) = encoding {
            request.headers_mut().insert(ACCEPT_ENCODING, encoding);
        }
        signed.map_err(|_| {
            // The reason may quote a key.
            let message = "the request cannot be signed anew: there are no keys any more";
            Fault::Sign(ErrorKind::Unavailable, message.to_owned())
        })
    }
}

async fn by_amazon(
    keys: &Weak<dyn CredentialProvider<Credential = AwsCredential>>,
    old: &str,
    request: &mut HttpRequest,
) -> object_store::Result<()> {
    let (Some(keys), Some(region)) = (keys.upgrade(), region_of(old)) else {
        return Ok(());
    };
    let headers = request.headers();
    let Some(payload) = headers
        .get(DIGEST)
        .and_then(|digest| Payload::of(digest.to_str().ok()?))
    else {
        return Ok(());
    };
    let key = keys.get_credential().await?;
    let signs = matches!(payload, Payload::Digest(_));
    let digest = match &payload {
        Payload::Digest(bytes) => Some(&bytes[..]),
        Payload::Unsigned => None,
    };
    // The token of older keys must not stay where the new ones have none.
    request.headers_mut().remove(TOKEN);
    AwsAuthorizer::new(&key, "s3", region)
        .with_sign_payload(signs)
        .try_authorize(request, digest)
}

/// Returns the region of a signature of
/// [version 4](https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-auth-using-authorization-header.html) for S3; none for
/// others, as those of S3 Express, whose keys are a session's.
fn region_of(header: &str) -> Option<&str> {
    let (_, rest) = header
        .strip_prefix("AWS4-HMAC-SHA256")?
        .split_once("Credential=")?;
    let mut parts = rest.split(',').next()?.trim().rsplit('/');
    match (parts.next()?, parts.next()?, parts.next()?) {
        ("aws4_request", "s3", region) => Some(region),
        _ => None,
    }
}

/// What a signature says of the body.
enum Payload {
    Unsigned,
    Digest([u8; 32]),
}

impl Payload {
    /// Parses the header of the digest; none for a body that is signed piece by piece.
    fn of(text: &str) -> Option<Self> {
        if text == "UNSIGNED-PAYLOAD" {
            return Some(Self::Unsigned);
        }
        let (digits, rest) = text.as_bytes().as_chunks::<2>();
        let mut bytes = [0; 32];
        if digits.len() != bytes.len() || !rest.is_empty() {
            return None;
        }
        for (byte, digits) in bytes.iter_mut().zip(digits) {
            *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self::Digest(bytes))
    }
}

async fn by_azure(
    keys: &Weak<dyn CredentialProvider<Credential = AzureCredential>>,
    old: &str,
    request: &mut HttpRequest,
) -> object_store::Result<()> {
    let Some(keys) = keys.upgrade() else {
        return Ok(());
    };
    // A bearer token needs no account.
    let account = old
        .strip_prefix("SharedKey ")
        .and_then(|signature| signature.split(':').next())
        .unwrap_or_default();
    let key = keys.get_credential().await?;
    // It appends a header, and does not replace one.
    request.headers_mut().remove(AUTHORIZATION);
    AzureAuthorizer::new(&key, account).try_authorize(request)
}

async fn by_google(
    keys: &Weak<dyn CredentialProvider<Credential = GcpCredential>>,
    old: &str,
    request: &mut HttpRequest,
) -> object_store::Result<()> {
    let (Some(keys), Some(_)) = (keys.upgrade(), old.strip_prefix("Bearer ")) else {
        return Ok(());
    };
    let key = keys.get_credential().await?;
    if let Ok(mut value) = HeaderValue::from_str(&format!("Bearer {}", key.bearer)) {
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use object_store::{StaticCredentialProvider, azure::AzureAccessKey};

    use super::*;

    type Amazon = Arc<dyn CredentialProvider<Credential = AwsCredential>>;
    type Azure = Arc<dyn CredentialProvider<Credential = AzureCredential>>;
    type Google = Arc<dyn CredentialProvider<Credential = GcpCredential>>;

    fn request(headers: &[(&'static str, &str)]) -> HttpRequest {
        let mut request = http::Request::get("https://h.example/bucket/a%20b.tif")
            .body(Vec::new().into())
            .unwrap();
        for (name, value) in headers {
            let value = HeaderValue::from_str(value).unwrap();
            request.headers_mut().insert(*name, value);
        }
        request
    }

    fn key(id: &str, token: Option<&str>) -> AwsCredential {
        AwsCredential {
            key_id: id.to_owned(),
            secret_key: "secret".to_owned(),
            token: token.map(str::to_owned),
        }
    }

    fn header<'a>(request: &'a HttpRequest, name: &str) -> &'a str {
        let value = request.headers().get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    #[tokio::test]
    async fn a_request_to_s3_is_signed_with_the_keys_of_now() {
        const OLD: &str = "20200101T000000Z";
        for (token, signs) in [(None, true), (Some("new"), false)] {
            let mut asked = request(&[("range", "bytes=0-9")]);
            let old = key("old/id", Some("old"));
            AwsAuthorizer::new(&old, "s3", "eu-west-3")
                .with_sign_payload(signs)
                .try_authorize(&mut asked, None)
                .unwrap();
            let headers = asked.headers_mut();
            headers.insert("x-amz-date", HeaderValue::from_static(OLD));
            headers.insert("if-match", HeaderValue::from_static("\"e\""));
            headers.insert("accept-encoding", HeaderValue::from_static("identity"));
            let keys = Keys::default();
            let now: Amazon = Arc::new(StaticCredentialProvider::new(key("now", token)));
            keys.set_amazon(&now);
            let mut signing = Signing::now(&keys);
            signing.renew(&mut asked).await.unwrap();
            assert!(header(&asked, "x-amz-date") > OLD);
            assert_eq!(header(&asked, "x-amz-security-token"), token.unwrap_or(""));
            assert_eq!(header(&asked, "accept-encoding"), "identity");
            // As a request that is signed for the first time.
            let mut other = request(&[("range", "bytes=0-9"), ("if-match", "\"e\"")]);
            AwsAuthorizer::new(&key("now", token), "s3", "eu-west-3")
                .with_sign_payload(signs)
                .try_authorize(&mut other, None)
                .unwrap();
            if header(&asked, "x-amz-date") == header(&other, "x-amz-date") {
                assert_eq!(
                    header(&asked, "authorization"),
                    header(&other, "authorization")
                );
            }
            assert_eq!(
                header(&asked, "x-amz-content-sha256"),
                header(&other, "x-amz-content-sha256")
            );
            let signed = header(&asked, "authorization");
            assert!(signed.contains("Credential=now/") && signed.contains("/eu-west-3/s3/"));
            assert!(signed.contains("if-match") && !signed.contains("accept-encoding"));
        }
    }

    #[tokio::test]
    async fn a_request_to_azure_has_one_signature_with_its_version_under_it() {
        let key = AzureAccessKey::try_new("a2V5").unwrap();
        let key = || AzureCredential::AccessKey(key.clone());
        let mut asked = request(&[("date", "Wed, 01 Jan 2020 00:00:00 GMT")]);
        asked
            .headers_mut()
            .insert(AUTHORIZATION, HeaderValue::from_static("SharedKey me:old"));
        let keys = Keys::default();
        let now: Azure = Arc::new(StaticCredentialProvider::new(key()));
        keys.set_azure(&now);
        let if_match = HeaderValue::from_static("\"e\"");
        asked.headers_mut().insert("if-match", if_match);
        Signing::now(&keys).renew(&mut asked).await.unwrap();
        assert_eq!(asked.headers().get_all(AUTHORIZATION).iter().count(), 1);
        let mut other = request(&[("if-match", "\"e\"")]);
        AzureAuthorizer::new(&key(), "me")
            .try_authorize(&mut other)
            .unwrap();
        if header(&asked, "date") == header(&other, "date") {
            assert_eq!(
                header(&asked, "authorization"),
                header(&other, "authorization")
            );
        }
        assert!(header(&asked, "authorization").starts_with("SharedKey me:"));
        assert!(!header(&asked, "date").contains("2020 00:00:00"));
    }

    #[tokio::test]
    async fn a_token_of_google_is_that_of_now_and_what_is_not_signed_stays_so() {
        let keys = Keys::default();
        let now: Google = Arc::new(StaticCredentialProvider::new(GcpCredential {
            bearer: "now".to_owned(),
        }));
        keys.set_google(&now);
        let mut asked = request(&[("authorization", "Bearer old")]);
        Signing::now(&keys).renew(&mut asked).await.unwrap();
        assert_eq!(header(&asked, "authorization"), "Bearer now");
        let mut plain = request(&[]);
        Signing::now(&keys).renew(&mut plain).await.unwrap();
        assert!(plain.headers().is_empty());
    }
}
