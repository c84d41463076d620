//! The HTTP layer in front of all services: log, latency, bandwidth, faults.

use std::{
    collections::VecDeque,
    convert::Infallible,
    error::Error as StdError,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::Router;
use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt, Empty, Full, combinators::UnsyncBoxBody};
use hyper::body::{Body, Frame, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use s3s::service::S3Service;
use tokio::{net::TcpListener, time::Sleep};
use tower::ServiceExt;

use crate::{
    fault::{Fault, Rule},
    objects::Objects,
    plain,
    profile::{Line, Pace, Profile},
};

pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;
pub(crate) type BoxBody = UnsyncBoxBody<Bytes, BoxError>;
type Response = http::Response<BoxBody>;
type Incomings = http::Request<Incoming>;

/// Bytes that a hanging body sends first, at most half of it.
const BEFORE_HANGING: usize = 10;
/// Bytes that a too long body adds.
const SURPLUS: usize = 100;

/// Which of the testbed's services was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// The S3 server.
    S3,
    /// The plain HTTP server.
    Http,
    /// The STAC API.
    Stac,
}

/// One request that came in.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// Who was asked.
    pub service: Service,
    /// Time since the testbed started.
    pub time: Duration,
    /// The method, such as `GET`.
    pub method: String,
    /// The path, as sent.
    pub path: String,
    /// The query string, as sent.
    pub query: Option<String>,
    /// The `Range` header.
    pub range: Option<String>,
    /// The `If-Match` header.
    pub if_match: Option<String>,
    /// True if the request was signed, by header or in its query string.
    pub signed: bool,
    /// True if the one who asks pays.
    pub requester_pays: bool,
    /// All headers, as sent.
    pub headers: HeaderMap,
    /// The status of the answer; 0 while there is none.
    pub status: u16,
    /// Bytes of the body sent so far.
    pub bytes: u64,
}

#[derive(Debug)]
struct Entry {
    request: Request,
    status: AtomicU16,
    bytes: AtomicU64,
}

/// Requests that are not answered to the end yet.
#[derive(Debug, Default)]
struct UnderWay {
    now: AtomicUsize,
    peak: AtomicUsize,
}

/// One of them.
#[derive(Debug)]
struct Asked(Arc<UnderWay>);

impl Asked {
    fn new(all: &Arc<UnderWay>) -> Self {
        let now = all.now.fetch_add(1, Ordering::SeqCst) + 1;
        all.peak.fetch_max(now, Ordering::SeqCst);
        Self(Arc::clone(all))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The layer's state.
#[derive(Debug)]
pub(crate) struct Front {
    started: Instant,
    latency: AtomicU64,
    /// The latency in it counts at the start only.
    profile: Profile,
    line: Option<Arc<Line>>,
    dice: AtomicU64,
    log: Mutex<Vec<Arc<Entry>>>,
    under_way: Arc<UnderWay>,
    rules: Mutex<Vec<Rule>>,
    objects: Arc<Objects>,
}

impl Front {
    pub(crate) fn new(profile: Profile, objects: Arc<Objects>) -> Self {
        let front = Self {
            started: Instant::now(),
            latency: AtomicU64::new(0),
            profile,
            line: profile.line.map(|rate| Arc::new(Line::new(rate))),
            dice: AtomicU64::new(1),
            log: Mutex::default(),
            under_way: Arc::default(),
            rules: Mutex::default(),
            objects,
        };
        front.set_latency(profile.latency);
        front
    }

    pub(crate) fn set_latency(&self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.latency.store(micros, Ordering::Relaxed);
    }

    pub(crate) fn log(&self) -> Vec<Request> {
        locked(&self.log)
            .iter()
            .map(|entry| Request {
                status: entry.status.load(Ordering::Relaxed),
                bytes: entry.bytes.load(Ordering::Relaxed),
                ..entry.request.clone()
            })
            .collect()
    }

    /// Returns how many requests were under way at once, at most, since the log was cleared.
    pub(crate) fn peak(&self) -> usize {
        self.under_way.peak.load(Ordering::SeqCst)
    }

    pub(crate) fn clear_log(&self) {
        locked(&self.log).clear();
        let now = self.under_way.now.load(Ordering::SeqCst);
        self.under_way.peak.store(now, Ordering::SeqCst);
    }

    pub(crate) fn add_rule(&self, rule: Rule) {
        locked(&self.rules).push(rule);
    }

    pub(crate) fn clear_rules(&self) {
        locked(&self.rules).clear();
    }

    pub(crate) async fn serve_s3(self: Arc<Self>, listener: TcpListener, service: S3Service) {
        self.serve(listener, Service::S3, move |request| {
            let service = service.clone();
            async move {
                let answer = service.call(request.map(s3s::Body::from)).await;
                match answer {
                    Ok(answer) => answer.map(|body| body.map_err(BoxError::from).boxed_unsync()),
                    Err(_) => bare(StatusCode::INTERNAL_SERVER_ERROR),
                }
            }
            .boxed()
        })
        .await;
    }

    pub(crate) async fn serve_plain(self: Arc<Self>, listener: TcpListener) {
        let objects = Arc::clone(&self.objects);
        self.serve(listener, Service::Http, move |request| {
            let answer = plain::answer(&objects, &request);
            async move { answer }.boxed()
        })
        .await;
    }

    pub(crate) async fn serve_stac(self: Arc<Self>, listener: TcpListener, router: Router) {
        self.serve(listener, Service::Stac, move |request| {
            let router = router.clone();
            async move {
                let answer = router
                    .oneshot(request)
                    .await
                    .unwrap_or_else(|never| match never {});
                answer.map(|body| body.map_err(BoxError::from).boxed_unsync())
            }
            .boxed()
        })
        .await;
    }

    async fn serve<F>(self: Arc<Self>, listener: TcpListener, service: Service, inner: F)
    where
        F: Fn(Incomings) -> futures::future::BoxFuture<'static, Response> + Send + Sync + 'static,
    {
        let inner = Arc::new(inner);
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Where no file can be opened any more, the next try fails at once.
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            // Small answers must not wait for the other side's acknowledgement.
            let _ = stream.set_nodelay(true);
            let (front, inner) = (Arc::clone(&self), Arc::clone(&inner));
            tokio::spawn(async move {
                let is_new = Arc::new(AtomicBool::new(true));
                let handler = hyper::service::service_fn(move |request| {
                    let (front, inner) = (Arc::clone(&front), Arc::clone(&inner));
                    let is_new = Arc::clone(&is_new);
                    async move {
                        if is_new.swap(false, Ordering::Relaxed) {
                            tokio::time::sleep(front.profile.handshake).await;
                        }
                        Ok::<_, Infallible>(front.answer(service, request, &*inner).await)
                    }
                });
                // An error here is a connection that was cut, often by ourselves.
                let _ = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), handler)
                    .await;
            });
        }
    }

    async fn answer<F, Fut>(&self, service: Service, mut request: Incomings, inner: &F) -> Response
    where
        F: Fn(Incomings) -> Fut,
        Fut: Future<Output = Response>,
    {
        let entry = self.record(service, &request);
        let asked = Asked::new(&self.under_way);
        tokio::time::sleep(self.wait()).await;
        let path = request.uri().path().to_owned();
        let fault = locked(&self.rules)
            .iter_mut()
            .find_map(|rule| rule.take(service, request.method().as_str(), &path));
        if matches!(fault, Some(Fault::Hang)) {
            futures::future::pending::<()>().await;
        }
        if let Some(Fault::Replace(bytes)) = &fault
            && let Some((bucket, key)) = path.trim_start_matches('/').split_once('/')
        {
            self.objects.put(bucket, key, bytes.clone());
        }
        let head = request.method() == Method::HEAD;
        let answer = match fault.as_ref().and_then(instead) {
            Some(answer) => {
                // A connection with a body that nobody reads is cut: the client would not see the answer.
                let _ = request.into_body().collect().await;
                answer
            }
            None => {
                if let Some(fault) = &fault {
                    bend(request.headers_mut(), fault);
                }
                let answer = inner(request).await;
                match fault {
                    Some(fault) if !head => self.broken(answer, &fault).await,
                    _ => answer,
                }
            }
        };
        entry
            .status
            .store(answer.status().as_u16(), Ordering::Relaxed);
        let rate = match (self.profile.connection, &answer.extensions().get::<Rate>()) {
            (_, Some(Rate(rate))) => Some(*rate),
            (rate, None) => rate,
        };
        let pace = Pace::new(rate, self.line.clone());
        answer.map(|body| {
            Paced {
                body,
                entry,
                _asked: asked,
                pace,
                waiting: VecDeque::new(),
                sleep: None,
            }
            .boxed_unsync()
        })
    }

    fn record(&self, service: Service, request: &Incomings) -> Arc<Entry> {
        let headers = request.headers();
        let text = |name: &str| headers.get(name)?.to_str().ok().map(str::to_owned);
        let query = request.uri().query();
        let entry = Arc::new(Entry {
            request: Request {
                service,
                time: self.started.elapsed(),
                method: request.method().to_string(),
                path: request.uri().path().to_owned(),
                query: query.map(str::to_owned),
                range: text("range"),
                if_match: text("if-match"),
                signed: headers.contains_key(header::AUTHORIZATION)
                    || query.is_some_and(|q| q.contains("X-Amz-Signature=") || q.contains("sig=")),
                requester_pays: text("x-amz-request-payer").is_some(),
                headers: request.headers().clone(),
                status: 0,
                bytes: 0,
            },
            status: AtomicU16::new(0),
            bytes: AtomicU64::new(0),
        });
        locked(&self.log).push(Arc::clone(&entry));
        entry
    }

    /// Returns the latency of the next answer.
    fn wait(&self) -> Duration {
        let latency = Duration::from_micros(self.latency.load(Ordering::Relaxed));
        if self.profile.jitter.is_zero() {
            return latency;
        }
        // Weyl sequence: even spread, the same in each run.
        let roll = self
            .dice
            .fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let share = (roll >> 32) as f64 / f64::from(u32::MAX);
        latency + self.profile.jitter.mul_f64(share)
    }

    /// Breaks a right answer.
    async fn broken(&self, answer: Response, fault: &Fault) -> Response {
        let (mut parts, body) = answer.into_parts();
        let bytes = body
            .collect()
            .await
            .map(|body| body.to_bytes())
            .unwrap_or_default();
        let half = bytes.slice(..bytes.len() / 2);
        let whole = |bytes: Bytes| {
            Full::new(bytes)
                .map_err(|never| match never {})
                .boxed_unsync()
        };
        let body = match fault {
            Fault::HangInBody => Stuck {
                first: Some(half.slice(..half.len().min(BEFORE_HANGING))),
                length: bytes.len(),
                then: Then::Hang,
            }
            .boxed_unsync(),
            Fault::Cut => Stuck {
                first: Some(half),
                length: bytes.len(),
                then: Then::Drop,
            }
            .boxed_unsync(),
            Fault::Short => {
                parts
                    .headers
                    .insert(header::CONTENT_LENGTH, HeaderValue::from(half.len()));
                whole(half)
            }
            Fault::ShiftedHeader => {
                shift_range(&mut parts.headers, 1);
                whole(bytes)
            }
            Fault::Total(by) => {
                edit_range(&mut parts.headers, |first, last, total| {
                    (first, last, total.saturating_add_signed(*by))
                });
                whole(bytes)
            }
            Fault::NoContentRange => {
                parts.headers.remove(header::CONTENT_RANGE);
                whole(bytes)
            }
            Fault::Longer => {
                let mut longer = bytes.to_vec();
                longer.resize(bytes.len() + SURPLUS, 0);
                parts
                    .headers
                    .insert(header::CONTENT_LENGTH, HeaderValue::from(longer.len()));
                stretch_range(&mut parts.headers, SURPLUS as u64);
                whole(longer.into())
            }
            Fault::Garbage => {
                let garbage = bytes
                    .iter()
                    .enumerate()
                    .map(|(i, byte)| byte ^ (i as u8 | 1));
                whole(garbage.collect())
            }
            Fault::Drip(rate) => {
                parts.extensions.insert(Rate((*rate).max(1)));
                whole(bytes)
            }
            _ => whole(bytes),
        };
        Response::from_parts(parts, body)
    }
}

/// The rate of one slow answer.
#[derive(Clone, Copy)]
struct Rate(u64);

/// Returns what is sent in place of an answer.
fn instead(fault: &Fault) -> Option<Response> {
    let page = |status: u16, kind: &'static str, body: String| {
        let mut answer = Response::new(
            Full::new(Bytes::from(body))
                .map_err(|never| match never {})
                .boxed_unsync(),
        );
        *answer.status_mut() =
            StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        answer
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        answer
    };
    match fault {
        Fault::Status {
            code,
            retry_after,
            body,
        } => {
            let kind = match body.trim_start().get(..1) {
                Some("<") if body.contains("<html") => "text/html",
                Some("<") => "application/xml",
                Some("{") => "application/json",
                _ => "text/plain",
            };
            let mut answer = page(*code, kind, body.clone());
            if let Some(value) = retry_after.as_ref().and_then(|text| text.parse().ok()) {
                answer.headers_mut().insert(header::RETRY_AFTER, value);
            }
            Some(answer)
        }
        Fault::ErrorInOk => Some(page(
            200,
            "application/xml",
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>InternalError</Code>\
             <Message>We encountered an internal error.</Message></Error>"
                .to_owned(),
        )),
        Fault::Html => Some(page(
            200,
            "text/html",
            "<!doctype html><html><body>Please log in</body></html>".to_owned(),
        )),
        Fault::Redirect {
            code,
            location,
            region,
        } => {
            let mut answer = page(*code, "text/plain", String::new());
            if let Some(value) = location.as_ref().and_then(|text| text.parse().ok()) {
                answer.headers_mut().insert(header::LOCATION, value);
            }
            if let Some(value) = region.as_ref().and_then(|text| text.parse().ok()) {
                answer.headers_mut().insert("x-amz-bucket-region", value);
            }
            Some(answer)
        }
        _ => None,
    }
}

/// Changes a request so that the service itself gives the wrong answer.
fn bend(headers: &mut HeaderMap, fault: &Fault) {
    match fault {
        Fault::WholeObject => {
            headers.remove(header::RANGE);
        }
        Fault::ShiftedBody => {
            let range = headers
                .get(header::RANGE)
                .and_then(|range| range.to_str().ok());
            let shifted = range.and_then(|range| {
                let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
                let first: u64 = first.parse().ok()?;
                let last = match last.parse::<u64>() {
                    Ok(last) => (last + 1).to_string(),
                    Err(_) => String::new(),
                };
                format!("bytes={}-{last}", first + 1).parse().ok()
            });
            if let Some(shifted) = shifted {
                headers.insert(header::RANGE, shifted);
            }
        }
        _ => {}
    }
}

fn shift_range(headers: &mut HeaderMap, by: u64) {
    edit_range(headers, |first, last, total| (first + by, last + by, total));
}

fn stretch_range(headers: &mut HeaderMap, by: u64) {
    edit_range(headers, |first, last, total| (first, last + by, total + by));
}

fn edit_range(headers: &mut HeaderMap, edit: impl FnOnce(u64, u64, u64) -> (u64, u64, u64)) {
    let text = headers
        .get(header::CONTENT_RANGE)
        .and_then(|range| range.to_str().ok());
    let edited = text.and_then(|range| {
        let (span, total) = range.strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = span.split_once('-')?;
        let (first, last, total) =
            edit(first.parse().ok()?, last.parse().ok()?, total.parse().ok()?);
        format!("bytes {first}-{last}/{total}").parse().ok()
    });
    if let Some(edited) = edited {
        headers.insert(header::CONTENT_RANGE, edited);
    }
}

/// Returns an answer without a body.
pub(crate) fn bare(status: StatusCode) -> Response {
    let mut answer = Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = status;
    answer
}

enum Then {
    Hang,
    Drop,
}

/// A body that sends a part of what it promised.
struct Stuck {
    first: Option<Bytes>,
    length: usize,
    then: Then,
}

impl Body for Stuck {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match (self.first.take(), &self.then) {
            (Some(bytes), _) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            (None, Then::Hang) => Poll::Pending,
            (None, Then::Drop) => Poll::Ready(Some(Err("cut by a rule".into()))),
        }
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.length as u64)
    }
}

/// A body that is counted, and leaves no faster than its pace.
struct Paced {
    body: BoxBody,
    /// Counts until the last byte is sent.
    _asked: Asked,
    entry: Arc<Entry>,
    pace: Option<Pace>,
    waiting: VecDeque<Bytes>,
    /// Until the piece at the front has gone through the line.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Body for Paced {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            if let Some(sleep) = &mut self.sleep {
                if sleep.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.sleep = None;
                let piece = self.waiting.pop_front().unwrap_or_default();
                return Poll::Ready(Some(Ok(self.send(piece))));
            }
            let next = self.waiting.front().map(Bytes::len);
            let this = &mut *self;
            if let (Some(length), Some(pace)) = (next, &mut this.pace) {
                let until = pace.reserve(length);
                this.sleep = Some(Box::pin(tokio::time::sleep_until(until)));
                continue;
            }
            match Pin::new(&mut this.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match (frame.into_data(), &this.pace) {
                    (Ok(mut rest), Some(pace)) => {
                        while rest.len() > pace.piece_bytes() {
                            let piece = rest.split_to(pace.piece_bytes());
                            this.waiting.push_back(piece);
                        }
                        this.waiting.push_back(rest);
                    }
                    (Ok(bytes), None) => return Poll::Ready(Some(Ok(self.send(bytes)))),
                    (Err(frame), _) => return Poll::Ready(Some(Ok(frame))),
                },
                other => return other,
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.waiting.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

impl Paced {
    fn send(&self, bytes: Bytes) -> Frame<Bytes> {
        self.entry
            .bytes
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Frame::data(bytes)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
