//! Shared access signatures (SAS): tokens of a service, one per container, renewed in time.
//!
//! The Planetary Computer grants read access to Azure containers for less than an hour. A token is
//! fetched once however many reads need it, and never printed.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use chrono::DateTime;
use http::{Uri, header::DATE};
use object_store::client::HttpRequestBody;
use serde::Deserialize;
use url::{Host, Url, form_urlencoded};

use super::{
    fault::Fault,
    network::{Network, Sent},
    retry::{Patience, later},
};
use crate::{
    error::{Error, ErrorKind, Result},
    products::Sas,
};

/// A token that expires within this time is renewed: it must outlive the request that it signs.
const MARGIN: Duration = Duration::from_secs(60);
/// Old tokens of a container that are recognised in hrefs, and replaced by the current one.
const REMEMBERED: usize = 8;
const LONGEST_TOKEN_BYTES: usize = 16 << 10;

/// The tokens of a session.
#[derive(Clone, Debug, Default)]
pub(super) struct SasTokens(Arc<Mutex<Containers>>);

#[derive(Debug, Default)]
struct Containers {
    slots: HashMap<ContainerUrl, Signature>,
    subscription_key: Option<Secret>,
}

/// A container's URL, and the URL of its token service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ContainerUrl {
    /// Scheme, host and container: the prefix of all its blobs' URLs.
    prefix: String,
    token_url: String,
}

impl ContainerUrl {
    /// Returns the container of a blob that the service can sign; none for other hosts, for URLs that
    /// carry a signature and for public accounts.
    ///
    /// A service on a loopback host signs URLs of that host in the emulator's style,
    /// `http://host/account/container/blob`.
    pub(super) fn of(url: &Url, sas: &Sas) -> Option<Self> {
        if is_signed(url) {
            return None;
        }
        let mut segments = url.path_segments()?;
        let host = url.host_str()?;
        let (account, container, depth) = match host.strip_suffix(sas.host_suffix.as_str()) {
            Some(account) => (account, segments.next()?, 1),
            None if is_emulator(url, &sas.token_url) => (segments.next()?, segments.next()?, 2),
            None => return None,
        };
        let is_name = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        };
        // Public accounts need no token.
        let is_public = sas.public_accounts.iter().any(|public| public == account);
        if is_public || !is_name(account) || !is_name(container) {
            return None;
        }
        let path: String = url
            .path_segments()?
            .take(depth)
            .flat_map(|segment| ["/", segment])
            .collect();
        Some(Self {
            prefix: format!("{}{path}", url.origin().ascii_serialization()),
            token_url: sas
                .token_url
                .replace("{account}", account)
                .replace("{container}", container),
        })
    }

    fn holds(&self, url: &Url) -> bool {
        let origin = url.origin().ascii_serialization();
        self.prefix
            .strip_prefix(&origin)
            .and_then(|path| url.path().strip_prefix(path))
            .is_some_and(|rest| rest.starts_with('/'))
    }
}

fn is_emulator(url: &Url, template: &str) -> bool {
    let loopback = match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    loopback && Url::parse(template).is_ok_and(|template| template.host() == url.host())
}

/// Returns true if the URL carries a signature of Azure, S3 or Google.
pub(crate) fn is_signed(url: &Url) -> bool {
    url.query_pairs().any(|(name, _)| {
        matches!(
            name.to_ascii_lowercase().as_str(),
            "sig" | "signature" | "x-amz-signature" | "x-goog-signature"
        )
    })
}

impl SasTokens {
    fn with<T>(&self, look: impl FnOnce(&mut Containers) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set_subscription_key(&self, key: &str) {
        self.with(|containers| containers.subscription_key = Some(Secret::new(key)));
    }

    /// Makes later requests for blobs of this container signed ones.
    pub(super) fn register(&self, container: ContainerUrl) -> Signature {
        self.with(|containers| {
            let key = containers.subscription_key.clone();
            containers
                .slots
                .entry(container.clone())
                .or_insert_with(|| {
                    Signature(Arc::new(Slot {
                        container,
                        subscription_key: key,
                        current: tokio::sync::Mutex::default(),
                        issued: Mutex::default(),
                    }))
                })
                .clone()
        })
    }

    /// Returns the signature of `url`'s container, and the URL without a token of this session. None if
    /// the container is not known, or the URL carries a signature of someone else, which is left as it is.
    pub(super) fn find(&self, url: &Url) -> Option<(Signature, Url)> {
        let signature = self.with(|containers| {
            containers
                .slots
                .values()
                .find(|signature| signature.0.container.holds(url))
                .cloned()
        })?;
        if !is_signed(url) {
            return Some((signature, url.clone()));
        }
        // An href that this session signed earlier (`get_remote`) gets a new token; one that is signed by
        // someone else must stay as it is.
        let query = url.query()?;
        let ours = signature
            .issued(|issued| issued.iter().find(|old| query.ends_with(&*old.0)).cloned())?;
        let mut bare = url.clone();
        let kept = query.strip_suffix(&*ours.0)?.trim_end_matches('&');
        bare.set_query((!kept.is_empty()).then_some(kept));
        Some((signature, bare))
    }
}

/// The tokens of one container.
#[derive(Clone, Debug)]
pub(super) struct Signature(Arc<Slot>);

#[derive(Debug)]
struct Slot {
    container: ContainerUrl,
    subscription_key: Option<Secret>,
    /// Locked while a token is requested, so that one request serves all waiting reads.
    current: tokio::sync::Mutex<Option<Token>>,
    issued: Mutex<VecDeque<Secret>>,
}

/// Text that is never printed.
#[derive(Clone, PartialEq, Eq)]
struct Secret(Arc<str>);

impl Secret {
    fn new(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A token, and when to request the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    query: Secret,
    renew_at: Instant,
}

impl Token {
    /// Returns `uri` with this token.
    pub(super) fn sign(&self, uri: &Uri) -> Result<Uri> {
        let joint = if uri.query().is_some() { '&' } else { '?' };
        format!("{uri}{joint}{}", self.query.0)
            .parse()
            .map_err(|_| Error::new(ErrorKind::Corrupt, "the token is not a valid query string"))
    }
}

#[derive(Deserialize)]
struct Answer {
    token: String,
}

impl Signature {
    fn issued<T>(&self, look: impl FnOnce(&mut VecDeque<Secret>) -> T) -> T {
        look(&mut self.0.issued.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns a token that is valid for at least a minute. Costs one request per container and
    /// lifetime of a token.
    pub(super) async fn token(&self, network: &Network) -> Result<Token> {
        let mut current = self.0.current.lock().await;
        if let Some(token) = current.as_ref()
            && Instant::now() < token.renew_at
        {
            return Ok(token.clone());
        }
        let token = self
            .ask(network)
            .await
            .map_err(|err| err.at(&self.0.container.token_url))?;
        self.issued(|issued| {
            issued.push_front(token.query.clone());
            issued.truncate(REMEMBERED);
        });
        *current = Some(token.clone());
        Ok(token)
    }

    /// Discards `token`, which a server refused.
    pub(super) async fn renounce(&self, token: &Token) {
        let mut current = self.0.current.lock().await;
        // Another read may have renewed it already: then its new token stays.
        if current.as_ref() == Some(token) {
            *current = None;
        }
    }

    async fn ask(&self, network: &Network) -> Result<Token> {
        let invalid = || {
            Error::new(
                ErrorKind::InvalidInput,
                "the token service is not a valid URL",
            )
        };
        let uri: Uri = self.0.container.token_url.parse().map_err(|_| invalid())?;
        let mut patience = Patience::new(network.limits());
        loop {
            let mut request = http::Request::get(uri.clone());
            if let Some(key) = &self.0.subscription_key {
                request = request.header("Ocp-Apim-Subscription-Key", &*key.0);
            }
            let request = request
                .body(HttpRequestBody::from(Bytes::new()))
                .map_err(|_| invalid())?;
            let fault = match network.send(request, patience.failed() + 1).await {
                Ok(sent) => match self.read(network, sent).await {
                    Ok(token) => return Ok(token),
                    Err(fault) => fault,
                },
                Err(err) => Fault::of_transport(&err),
            };
            if !network.rest(&uri, &mut patience, &fault).await {
                let kind = match fault {
                    Fault::Answer(_) => ErrorKind::Unavailable,
                    _ => fault.kind(),
                };
                return Err(Error::new(kind, format!("the token service: {fault}")));
            }
        }
    }

    async fn read(&self, network: &Network, sent: Sent) -> std::result::Result<Token, Fault> {
        let (parts, body) = sent.response.into_parts();
        let headers = parts.headers;
        if !parts.status.is_success() {
            return Err(Fault::Status {
                status: parts.status.as_u16(),
                code: None,
            });
        }
        // A token's lifetime is counted on the clock of its service: that of this machine may be wrong.
        let now = headers
            .get(DATE)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| httpdate::parse_http_date(text).ok())
            .unwrap_or_else(SystemTime::now);
        let body = network
            .read(body, LONGEST_TOKEN_BYTES)
            .await
            .map_err(|err| Fault::of_transport(&err))?;
        let unreadable = Fault::Answer("no valid token");
        let (body, is_whole) = body;
        let answer: Option<Answer> = serde_json::from_slice(&body).ok().filter(|_| is_whole);
        let answer = answer.ok_or_else(|| unreadable.clone())?;
        let query = answer.token.trim_start_matches('?');
        let life = life_of(query, now).ok_or(unreadable)?;
        let left = life
            .checked_sub(MARGIN)
            .ok_or(Fault::Answer("an expired token"))?;
        Ok(Token {
            query: Secret::new(query),
            renew_at: later(left),
        })
    }
}

/// Returns how long a token is valid from `now`: zero if it is expired or not valid yet, none if it
/// states no expiry.
fn life_of(query: &str, now: SystemTime) -> Option<Duration> {
    let time_of = |wanted: &str| {
        form_urlencoded::parse(query.as_bytes())
            .find(|(name, _)| name == wanted)
            .and_then(|(_, value)| DateTime::parse_from_rfc3339(&value).ok())
            .map(SystemTime::from)
    };
    let end = time_of("se")?;
    // The clocks of the service's machines may differ by seconds.
    if time_of("st").is_some_and(|start| start > now + MARGIN) {
        return Some(Duration::ZERO);
    }
    Some(end.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: &str = "https://pc.example/api/sas/v1/token/{account}/{container}";

    fn container(url: &str) -> Option<ContainerUrl> {
        let sas = Sas {
            token_url: TEMPLATE.to_owned(),
            host_suffix: ".blob.core.windows.net".to_owned(),
            public_accounts: vec!["ai4edatasetspublicassets".to_owned()],
        };
        ContainerUrl::of(&Url::parse(url).unwrap(), &sas)
    }

    #[test]
    fn a_blob_is_signed_for_its_account_and_container() {
        let found = container("https://acc1.blob.core.windows.net/sentinel2-l2/60/a.tif").unwrap();
        assert_eq!(
            found.prefix,
            "https://acc1.blob.core.windows.net/sentinel2-l2"
        );
        assert_eq!(
            found.token_url,
            "https://pc.example/api/sas/v1/token/acc1/sentinel2-l2"
        );
    }

    #[test]
    fn other_hosts_signed_urls_and_public_accounts_are_left_alone() {
        for url in [
            "https://h/c/a.tif",
            "https://acc.blob.core.windows.net.evil.example/c/a.tif",
            "https://acc.blob.core.windows.net/c/a.tif?se=2020&sp=r&sig=x",
            "https://ai4edatasetspublicassets.blob.core.windows.net/c/a.tif",
            "https://acc.blob.core.windows.net/c%2Fd/a.tif",
            "http://127.0.0.1:1/acc/c/a.tif",
        ] {
            assert_eq!(container(url), None, "{url}");
        }
    }

    #[test]
    fn a_container_does_not_hold_one_whose_name_begins_alike() {
        let found = container("https://acc.blob.core.windows.net/c/a.tif").unwrap();
        let holds = |url: &str| found.holds(&Url::parse(url).unwrap());
        assert!(holds("https://acc.blob.core.windows.net/c/b/d.tif"));
        assert!(!holds("https://acc.blob.core.windows.net/c2/b.tif"));
        assert!(!holds("https://acc.blob.core.windows.net.x/c/b.tif"));
    }

    #[test]
    fn a_tokens_life_is_counted_from_the_servers_clock() {
        let now = SystemTime::from(DateTime::parse_from_rfc3339("2025-11-01T10:00:00Z").unwrap());
        let minutes = |n: u64| Some(Duration::from_secs(n * 60));
        let life = |query: &str| life_of(query, now);
        assert_eq!(
            life("st=2025-11-01T09%3A00%3A00Z&se=2025-11-01T10%3A45%3A00Z&sig=x"),
            minutes(45)
        );
        assert_eq!(life("se=2025-11-01T09%3A59%3A00Z&sig=x"), minutes(0));
        assert_eq!(
            life("st=2025-11-01T11%3A00%3A00Z&se=2025-11-01T12%3A00%3A00Z"),
            minutes(0)
        );
        assert_eq!(life("sig=x"), None);
    }

    #[test]
    fn a_token_is_never_printed() {
        let token = Token {
            query: Secret::new("sig=CANARY"),
            renew_at: Instant::now(),
        };
        assert!(!format!("{token:?}").contains("CANARY"));
        let signed = token.sign(&"https://h/a.tif".parse().unwrap()).unwrap();
        assert_eq!(signed, "https://h/a.tif?sig=CANARY");
    }
}
