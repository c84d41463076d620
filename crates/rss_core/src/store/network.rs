//! The one way to the network: connections, redirects, limits by host, retries.
//!
//! Searches, tokens, objects, cubes, indexes and downloads send their requests here. The protocol (what is retried, where
//! a redirect may lead, who waits for whom) is in `docs/decisions/008-network.md`.

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, StatusCode, Uri, header::RETRY_AFTER};
use object_store::{
    RetryConfig,
    client::{HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService},
};
use tokio::sync::OwnedSemaphorePermit;

use super::{
    HostHeaders, Limits, Meter,
    body::Pace,
    fault::{Fault, MOST_REDIRECTS},
    host::{Host, Hosts},
    keys::Signing,
    redirect::{keep_harmless, redirect},
    resolve::{PrivateNames, Resolver, is_private_host},
    retry::{Patience, Remedy, WRONG_ANSWERS, words},
    tls,
    trace::RequestTrace,
};
use crate::error::{Error, ErrorKind, Result};

/// A request without an answer for so long is told to the user.
const TELL_AFTER: Duration = Duration::from_secs(10);

type Tell = dyn Fn(&str) + Send + Sync;

/// Where waits are told: one line each.
#[derive(Clone, Default)]
pub(crate) struct Notices(Option<Arc<Tell>>);

impl Notices {
    pub(crate) fn new(tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(tell)))
    }

    fn tell(&self, line: impl FnOnce() -> String) {
        if let Some(tell) = &self.0 {
            tell(&line());
        }
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Notices({})", self.0.is_some())
    }
}

/// The network state that all requests of a session share: connections, permits, pauses, counters.
#[derive(Clone, Debug)]
pub(crate) struct Network(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: Limits,
    meter: Meter,
    notices: Notices,
    headers: HostHeaders,
    /// The user's own client, for what is not `guarded`.
    own: Option<reqwest::Client>,
    private: PrivateNames,
    /// Shared by the clients: what the system trusts is read once.
    tls: OnceLock<rustls::ClientConfig>,
    client: OnceLock<reqwest::Client>,
    /// For hosts that others named: it connects to no private address.
    guarded: OnceLock<reqwest::Client>,
    hosts: Hosts,
    /// Hosts that a catalogue on the network named.
    named: Mutex<HashSet<String>>,
    has_named: AtomicBool,
}

/// A response whose body was not read yet. It holds a permit of its host.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) response: HttpResponse,
    /// The address that answered, after redirects.
    pub(crate) uri: Uri,
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

impl Network {
    pub(crate) fn new(
        limits: Limits,
        meter: Meter,
        notices: Notices,
        headers: HostHeaders,
        own: Option<reqwest::Client>,
    ) -> Self {
        let hosts = Hosts::new(limits.requests_per_host, limits.backoff);
        Self(Arc::new(Shared {
            limits,
            meter,
            notices,
            headers,
            own,
            private: PrivateNames::default(),
            tls: OnceLock::new(),
            client: OnceLock::new(),
            guarded: OnceLock::new(),
            hosts,
            named: Mutex::default(),
            has_named: AtomicBool::new(false),
        }))
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.0.limits
    }

    pub(super) fn meter(&self) -> &Meter {
        &self.0.meter
    }

    /// Returns the retry policy of `object_store`: it asks for the rest of a body that broke off. Whole requests are
    /// retried here, below it.
    pub(super) fn retry(&self) -> RetryConfig {
        let retries = self.0.limits.retries.unwrap_or(WRONG_ANSWERS);
        RetryConfig {
            max_retries: usize::try_from(retries).unwrap_or(usize::MAX),
            // An outage in the middle of a body may take any time.
            retry_timeout: Duration::from_secs(365 * 24 * 3600),
            ..RetryConfig::default()
        }
    }

    /// Records that a catalogue on the network named this host: it must not lead into a private network.
    pub(crate) fn named_by_others(&self, host: &str) {
        let mut named = self.0.named.lock().unwrap_or_else(PoisonError::into_inner);
        if !named.contains(host) {
            named.insert(host.to_ascii_lowercase());
            self.0.has_named.store(true, Ordering::Release);
        }
    }

    fn is_named_by_others(&self, uri: &Uri) -> bool {
        self.0.has_named.load(Ordering::Acquire)
            && uri.host().is_some_and(|host| {
                let named = self.0.named.lock().unwrap_or_else(PoisonError::into_inner);
                named.contains(&host.to_ascii_lowercase())
            })
    }

    /// Returns a client: HTTP/1.1 connections, pooled per host. Parallel range requests over one HTTP/2 connection would
    /// share one congestion window.
    fn client(&self, public_only: bool) -> Result<&reqwest::Client> {
        if let (Some(own), false) = (&self.0.own, public_only) {
            return Ok(own);
        }
        let slot = match public_only {
            true => &self.0.guarded,
            false => &self.0.client,
        };
        if let Some(client) = slot.get() {
            return Ok(client);
        }
        let limits = &self.0.limits;
        let resolver = Resolver {
            private: self.0.private.clone(),
            public_only,
        };
        let tls = match self.0.tls.get() {
            Some(tls) => tls,
            None => {
                let made = tls::config()?;
                self.0.tls.get_or_init(|| made)
            }
        };
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls.clone())
            .user_agent(concat!("rss_core/", env!("CARGO_PKG_VERSION")))
            .http1_only()
            .tcp_nodelay(true)
            .connect_timeout(limits.connect_timeout)
            .read_timeout(limits.read_timeout)
            .dns_resolver(Arc::new(resolver))
            .referer(false)
            // Followed here: what goes along, and where to, is decided by the request.
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|err| Error::new(ErrorKind::Unavailable, "no HTTP client").with_source(err))?;
        Ok(slot.get_or_init(|| client))
    }

    /// Builds the client.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if there is no TLS.
    pub(super) fn check(&self) -> Result<()> {
        self.client(false).map(|_| ())
    }

    /// Sends a request once, and follows redirects. `attempt` is 1 for the first time.
    ///
    /// # Errors
    ///
    /// What went wrong on the way, or what another request to a host that is away found.
    pub(crate) async fn send(
        &self,
        mut request: HttpRequest,
        attempt: u32,
    ) -> std::result::Result<Sent, HttpError> {
        let host = self.0.hosts.get(&host_of(request.uri()));
        let mut signing = request.extensions_mut().remove::<Signing>();
        if attempt > 1
            && let Some(signing) = &mut signing
        {
            signing.renew(&mut request).await.map_err(Fault::for_good)?;
        }
        let (turn, permit) = loop {
            // The wait comes before the permit, so that a sleeping request holds none.
            let turn = host.admit().await.map_err(Fault::again)?;
            let permit = host.permit().await;
            match &mut signing {
                // Neither the turn nor the permit is held meanwhile: the host that gives keys may be this one.
                Some(signing) if !signing.is_fresh() => {
                    drop((turn, permit));
                    signing.renew(&mut request).await.map_err(Fault::for_good)?;
                }
                _ => break (turn, permit),
            }
        };
        let trace = RequestTrace::begin(&request, host.name(), attempt);
        self.0.meter.add(1, 0);
        let answer = self.told(&host, self.exchange(request)).await;
        let (response, uri) = match answer {
            Ok(answer) => answer,
            Err(err) => {
                let fault = Fault::of_transport(&err);
                if fault.is_outage() {
                    turn.failed(&fault);
                }
                return Err(err);
            }
        };
        let status = response.status();
        let fault = Fault::Status {
            status: status.as_u16(),
            code: None,
        };
        if fault.is_outage() {
            turn.failed(&fault);
        } else if let Some(away) = turn.answered() {
            let name = host.name();
            self.0
                .notices
                .tell(|| format!("{name} answers again, after {}", words(away)));
        }
        if matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        ) {
            // The pause holds for all requests to the host: each of them would be refused too.
            self.0.meter.add_throttled();
        }
        if let Some(pause) = retry_after(response.headers(), SystemTime::now())
            && fault.remedy() != Remedy::Nothing
        {
            // A wait past the deadline cannot succeed: the caller learns it at once.
            if pause > self.0.limits.retry_for.min(self.0.limits.deadline) {
                return Err(Fault::Pause(pause).for_good());
            }
            host.pause(pause);
        }
        let response = match trace {
            Some(trace) => trace.response(response),
            None => response,
        };
        Ok(Sent {
            response,
            uri,
            permit,
        })
    }

    async fn exchange(
        &self,
        mut request: HttpRequest,
    ) -> std::result::Result<(HttpResponse, Uri), HttpError> {
        let mut public_only = self.is_named_by_others(request.uri());
        for _ in 0..=MOST_REDIRECTS {
            let uri = request.uri().clone();
            // An address is not looked up, so the resolver does not see it.
            if public_only && uri.host().is_none_or(is_private_host) {
                return Err(Fault::Private.for_good());
            }
            let client = self
                .client(public_only)
                .map_err(|err| Fault::Sign(err.kind(), err.message().to_owned()).for_good())?;
            let mut sent = request.clone();
            self.0.headers.apply(&uri, sent.headers_mut());
            let response = HttpService::call(client, sent).await?;
            let from_private = !public_only && self.0.private.holds(&uri);
            let status = response.status();
            let next = redirect(
                request.method(),
                &uri,
                from_private,
                status,
                response.headers(),
            );
            let Some(next) = next.map_err(Fault::for_good)? else {
                return Ok((response, uri));
            };
            if !next.same_origin {
                keep_harmless(request.headers_mut());
                public_only = !from_private;
            }
            *request.uri_mut() = next.to;
        }
        Err(Fault::Redirect(None).for_good())
    }

    /// Waits for an answer, and tells the user if that takes long.
    async fn told<T>(&self, host: &Host, answer: impl Future<Output = T>) -> T {
        let mut answer = std::pin::pin!(answer);
        match tokio::time::timeout(TELL_AFTER, answer.as_mut()).await {
            Ok(answer) => answer,
            Err(_) => {
                self.0.notices.tell(|| {
                    let most = self.0.limits.read_timeout;
                    format!(
                        "no answer from {} for {}; it is given {}",
                        host.name(),
                        words(TELL_AFTER),
                        words(most)
                    )
                });
                answer.await
            }
        }
    }

    /// Waits before a failed request is sent again. Returns false if it is given up.
    pub(crate) async fn rest(&self, uri: &Uri, patience: &mut Patience, fault: &Fault) -> bool {
        let host = self.0.hosts.get(&host_of(uri));
        let is_lost = fault.is_outage() && host.is_given_up();
        let pause = match is_lost {
            true => None,
            false => patience.next(fault.remedy()),
        };
        let Some(pause) = pause else {
            if fault.is_outage() {
                host.give_up();
            }
            return false;
        };
        tracing::debug!(
            target: "rss_core::retry",
            host = host.name(),
            ms = pause.as_secs_f64() * 1000.0,
            "{fault}: sent again"
        );
        if let Some(since) = host.to_tell() {
            self.0.notices.tell(|| {
                format!(
                    "waiting for {}: {fault}, for {}; given up after {}",
                    host.name(),
                    words(since),
                    words(self.0.limits.retry_for)
                )
            });
        }
        tokio::time::sleep(pause).await;
        true
    }

    /// Reads a body into memory, about so many bytes. The flag is true if that is all of it. A body that drips is given
    /// up.
    pub(crate) async fn read(
        &self,
        body: HttpResponseBody,
        most: usize,
    ) -> std::result::Result<(Vec<u8>, bool), HttpError> {
        let mut bytes = Vec::new();
        let mut chunks = self.chunks(body);
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk?;
            if bytes.len().saturating_add(chunk.len()) > most {
                return Ok((bytes, false));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok((bytes, true))
    }

    /// Returns the chunks of a body, counted, at no less than the least rate.
    pub(super) fn chunks(
        &self,
        body: HttpResponseBody,
    ) -> impl futures::Stream<Item = std::result::Result<Bytes, HttpError>> + Send + Unpin + use<>
    {
        let pace = Pace::new(self.0.limits.read_timeout);
        let state = (body.bytes_stream(), pace, self.0.meter.clone());
        let next = |(mut stream, mut pace, meter): (_, Pace, Meter)| async move {
            pace.waits();
            let chunk: Option<std::result::Result<Bytes, HttpError>> =
                StreamExt::next(&mut stream).await;
            let chunk = match chunk? {
                Ok(chunk) => {
                    let bytes = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
                    meter.add(0, bytes);
                    match pace.is_stalled(bytes) {
                        true => Err(Fault::Slow.again()),
                        false => Ok(chunk),
                    }
                }
                Err(err) => Err(Fault::of_body(&err).again()),
            };
            Some((chunk, (stream, pace, meter)))
        };
        futures::stream::unfold(state, next).boxed()
    }
}

/// Returns the host of a URI, with its port.
pub(super) fn host_of(uri: &Uri) -> String {
    uri.authority()
        .map(|authority| authority.as_str())
        .and_then(|authority| authority.rsplit('@').next())
        .unwrap_or_default()
        .to_ascii_lowercase()
}

/// Returns the pause of a `Retry-After` header, which states seconds or a date.
/// See <https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3>.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    // A number past all clocks is no date either, and means the same.
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::MAX);
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// Returns true for an error of the transport that says that nothing was sent.
pub(super) fn was_not_sent(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Transport(HttpErrorKind::Connect) | Fault::NoHost | Fault::Status { .. }
    )
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let mut headers = HeaderMap::new();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        assert_eq!(retry_after(&headers, now), None);
        let mut said = |text: &str| {
            headers.insert(RETRY_AFTER, HeaderValue::from_str(text).unwrap());
            retry_after(&headers, now)
        };
        assert_eq!(said("7"), Some(Duration::from_secs(7)));
        let date = |seconds| httpdate::fmt_http_date(now + Duration::from_secs(seconds));
        assert_eq!(said(&date(9)), Some(Duration::from_secs(9)));
        assert_eq!(
            said("18446744073709551615"),
            Some(Duration::from_secs(u64::MAX))
        );
        assert_eq!(said("99999999999999999999999"), Some(Duration::MAX));
        assert_eq!(
            said("Fri, 31 Dec 9999 23:59:59 GMT").unwrap().as_secs() >> 32,
            58
        );
        assert_eq!(said("soon"), None);
    }

    #[test]
    fn a_time_is_told_in_words() {
        let told = |seconds| words(Duration::from_secs(seconds));
        assert_eq!(
            (told(90), told(300), told(7200)),
            ("90 s".into(), "5 min".into(), "2 h".into())
        );
    }
}
