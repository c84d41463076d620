//! The search loop: requests pages, retries, halves the page size on failures, and checks the items.

use std::{
    collections::{HashSet, VecDeque},
    error::Error as _,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use futures::{Stream, StreamExt, stream::BoxStream};
use http::{HeaderMap, StatusCode};
use serde_json::{Map, Value};
use stac::{Item, ItemCollection};
use tokio::time::{Instant, sleep, timeout_at};
use url::Url;

use super::{
    builder::ImageQuery,
    check::Mismatch,
    filter::{Language, add_to},
    href::{Base, make_absolute},
    http::{Answer, Failure, later, send},
    paging::{Request, Walker, same_server},
    result::{QueryResult, SearchReport},
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::{Trust, redact},
    products::FilterLanguage,
    session::Session,
    stac::{Document, Items, Selection, Skipped, read_page},
    store::Patience,
};

/// The page size that is tried when a request without a page size fails.
const FALLBACK_PAGE: u64 = 50;
/// The limit on the items of one response.
const MOST_ITEMS: usize = 100_000;

impl ImageQuery {
    /// Searches, and fetches all pages.
    ///
    /// Costs one request per page, and one more for an API that is not a built-in source: its
    /// landing page declares what it supports. Dropping the future stops the search.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] if the server is overloaded or not reached after all retries;
    /// [`ErrorKind::Denied`] and [`ErrorKind::NotFound`] from the server's status;
    /// [`ErrorKind::Corrupt`] for a response that is not STAC, or pages in a cycle;
    /// [`ErrorKind::InvalidInput`] if the server refuses the query, or there are more pages than
    /// [`max_pages`](crate::ImageQueryBuilder::max_pages) allows.
    pub async fn search_async(&self) -> Result<QueryResult> {
        let mut pager = Pager::new(self.clone());
        let mut items = Vec::new();
        loop {
            match pager.next_page().await {
                Ok(Some(page)) => items.extend(page),
                Ok(None) => break,
                // If the first page fails there is nothing to return.
                Err(err) if self.keep_partial && pager.report.pages > 0 => {
                    pager.report.complete = false;
                    pager.report.stopped = Some(err.to_string());
                    break;
                }
                Err(err) => return Err(err),
            }
        }
        Ok(QueryResult {
            session: self.session.clone(),
            source: Some(self.source.clone()),
            trust: Trust::of_catalogue(&self.url),
            items: ItemCollection::from(items),
            selection: self.selection.clone(),
            manifest: self.manifest.clone(),
            report: pager.report,
        })
    }

    /// Searches, and yields the items of each page as it is received.
    ///
    /// An error ends the stream; the items before it are valid. The next page is requested after the
    /// items of the last one are consumed. [`ItemStream::matched`] is the total, where the API tells it.
    pub fn stream(&self) -> ItemStream {
        let report = Arc::<Mutex<SearchReport>>::default();
        let start = (Some(Pager::new(self.clone())), VecDeque::new());
        let told = Arc::clone(&report);
        let items = futures::stream::unfold(start, move |(mut pager, mut ready)| {
            let told = Arc::clone(&told);
            async move {
                loop {
                    if let Some(item) = ready.pop_front() {
                        return Some((Ok(item), (pager, ready)));
                    }
                    let pages = pager.as_mut()?;
                    let page = pages.next_page().await;
                    told.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .clone_from(&pages.report);
                    match page {
                        Ok(Some(page)) => ready.extend(page),
                        Ok(None) => return None,
                        Err(err) => return Some((Err(err), (None, ready))),
                    }
                }
            }
        });
        ItemStream {
            items: items.boxed(),
            report,
        }
    }
}

/// The items of a search as they come, page by page.
#[must_use = "a stream searches when it is polled"]
pub struct ItemStream {
    items: BoxStream<'static, Result<Item>>,
    report: Arc<Mutex<SearchReport>>,
}

impl ItemStream {
    /// Returns the number of matching items that the server reports; none before the first page, and of a server that
    /// does not report it. It may change from page to page, and a limit of the query does not count.
    pub fn matched(&self) -> Option<u64> {
        self.report().matched
    }

    /// Returns the report of the pages so far.
    pub fn report(&self) -> SearchReport {
        let report = self.report.lock();
        report.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Stream for ItemStream {
    type Item = Result<Item>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.items.poll_next_unpin(cx)
    }
}

impl std::fmt::Debug for ItemStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ItemStream")
            .field("report", &self.report())
            .finish_non_exhaustive()
    }
}

/// Fetches the pages of one search.
struct Pager {
    query: ImageQuery,
    walker: Option<Walker>,
    /// The language in which the conditions were sent; none if the server does not filter.
    language: Option<Language>,
    report: SearchReport,
    seen: HashSet<(Option<String>, String)>,
    kept: usize,
    /// Set at the first request.
    until: Option<Instant>,
    /// The error of a link that cannot be followed, returned after the items of its page.
    broken: Option<Error>,
    done: bool,
}

/// The capabilities of an API.
struct Api {
    search: Url,
    post: bool,
    language: Option<Language>,
}

impl Pager {
    fn new(query: ImageQuery) -> Self {
        let report = SearchReport {
            notes: query.notes.clone(),
            ..SearchReport::default()
        };
        Self {
            query,
            walker: None,
            language: None,
            report,
            seen: HashSet::new(),
            kept: 0,
            until: None,
            broken: None,
            done: false,
        }
    }

    /// Returns the items of the next page that match; none after the last page.
    async fn next_page(&mut self) -> Result<Option<Vec<Item>>> {
        if self.done {
            return Ok(None);
        }
        // An error ends the search; the flag is reset when the page has been received.
        self.done = true;
        if let Some(err) = self.broken.take() {
            return Err(err);
        }
        let deadline = self.query.deadline;
        let until = *self.until.get_or_insert_with(|| later(deadline));
        let mut walker = match self.walker.take() {
            Some(walker) => walker,
            None => Walker::new(self.first_request(until).await?),
        };
        if self.report.pages >= self.query.max_pages {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "the search has more than {} pages; narrow it, or allow more with `max_pages`",
                    self.query.max_pages
                ),
            )
            .at(redact(self.query.url.as_str())));
        }
        let (page, answered) = self.load(&mut walker, until).await?;
        let items = self.keep(page.items, &answered);
        self.report.pages += 1;
        self.report.matched = self.report.matched.or(page.matched);
        // Skipped assets of items that were left out are not reported.
        let here: HashSet<&str> = items.iter().map(|item| item.id.as_str()).collect();
        self.report.skipped.extend(
            page.skipped
                .into_iter()
                .filter(|one| one.asset.is_none() || here.contains(one.item.as_str())),
        );
        let enough = self.query.limit.is_some_and(|limit| self.kept >= limit);
        let more = !enough
            && walker.step(page.next, &answered).unwrap_or_else(|err| {
                self.broken = Some(err);
                true
            });
        if more {
            let mut next = walker.current().clone();
            // The key in the API's root URL is needed for each page, and the server's links lack it.
            next.keep_query(&self.query.url);
            walker.replace(next);
        }
        self.done = !more;
        self.report.complete = !more;
        if let Some(name) = walker.filter_lost() {
            self.report.ignore(format!(
                "`{name}`, which is missing from the request for the next page"
            ));
        }
        self.walker = Some(walker);
        Ok(Some(items))
    }

    /// Builds the first request; reads the landing page first if the API is not a built-in source.
    async fn first_request(&mut self, until: Instant) -> Result<Request> {
        let api = match self.query.source.dialect().filter {
            FilterLanguage::Cql2 => Api::known(&self.query.url, Language::Cql2),
            FilterLanguage::Query => Api::known(&self.query.url, Language::Query),
            FilterLanguage::Discover => self.discover(until).await?,
        };
        let conditions = &self.query.check.conditions;
        let mut body = self.query.body();
        match api.language {
            Some(language) => add_to(&mut body, conditions, language),
            None => self
                .report
                .filters_here
                .extend(conditions.iter().map(ToString::to_string)),
        }
        self.language = api.language;
        let wanted = self.query.limit.and_then(|limit| u64::try_from(limit).ok());
        let page = match (self.query.page_size, wanted) {
            // If the client filters, a page of `limit` items may hold few matches: the limit does not set
            // the page size.
            (Some(page), Some(limit)) if api.language.is_some() || conditions.is_empty() => {
                Some(page.min(limit))
            }
            (page, _) => page,
        };
        if let Some(page) = page {
            body.insert("limit".to_owned(), page.into());
        }
        let mut request = Request::Post(api.search, body);
        request.keep_query(&self.query.url);
        Ok(if api.post { request } else { request.to_get() })
    }

    /// Reads the landing page of an API.
    async fn discover(&mut self, until: Instant) -> Result<Api> {
        let mut walker = Walker::new(Request::Get(self.query.url.clone()));
        let (document, answered) = self.load_document(&mut walker, until).await?;
        let Document::Catalogue {
            links, conforms_to, ..
        } = document
        else {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "expected the landing page of a STAC API, got items; read them with `QueryResult::from_url`",
            )
            .at(redact(self.query.url.as_str())));
        };
        let searches: Vec<_> = links.iter().filter(|link| link.rel == "search").collect();
        let conforms = |end: &str| conforms_to.iter().any(|class| class.ends_with(end));
        if searches.is_empty() && !conforms("item-search") {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a catalogue that offers no search; read it with `QueryResult::from_url`",
            )
            .at(redact(self.query.url.as_str())));
        }
        let by_post = searches.iter().find(|link| {
            link.method
                .as_ref()
                .is_some_and(|method| method.eq_ignore_ascii_case("POST"))
        });
        let search = match by_post.or(searches.first()) {
            Some(link) => {
                let url = answered.join(link.href.as_str()).ok();
                // A landing page behind a proxy may link to an internal host that is not reachable.
                url.filter(|url| same_server(url, &answered))
                    .unwrap_or_else(|| below(&answered, "search"))
            }
            None => below(&answered, "search"),
        };
        // If no link states a method, POST is tried first; a server without it responds 405 or 501.
        let post = by_post.is_some() || searches.iter().all(|link| link.method.is_none());
        // CQL2 is preferred over the older `query` extension.
        let language = if conforms("item-search#filter") && conforms("cql2-json")
            || conforms("item-search#filter:item-search-filter") && conforms("cql2-json")
        {
            Some(Language::Cql2)
        } else if conforms("item-search#query") {
            Some(Language::Query)
        } else {
            None
        };
        Ok(Api {
            search,
            post,
            language,
        })
    }

    /// Loads the current page of the walker.
    async fn load(&mut self, walker: &mut Walker, until: Instant) -> Result<(Items, Url)> {
        match self.load_document(walker, until).await? {
            (Document::Items(page), url) => Ok((page, url)),
            (_, url) => Err(Error::new(
                ErrorKind::Corrupt,
                "expected a page of items, got another STAC document",
            )
            .at(redact(url.as_str()))),
        }
    }

    /// Loads a document, with retries and smaller pages.
    async fn load_document(
        &mut self,
        walker: &mut Walker,
        until: Instant,
    ) -> Result<(Document, Url)> {
        let session = self.query.session.clone();
        let network = session.network();
        let mut patience = Patience::new(network.limits()).until(until.into_std());
        let mut failed_500 = false;
        loop {
            self.report.requests += 1;
            let failure = match fetch(
                &session,
                walker.current(),
                walker.headers(),
                patience.deadline().into(),
                patience.failed() + 1,
            )
            .await
            {
                Ok((document, answer, bytes)) => {
                    self.report.bytes += bytes;
                    return Ok((document, answer));
                }
                Err(failure) => failure,
            };
            if let Some(other) = self.equivalent_request(walker.current(), &failure) {
                walker.replace(other);
                continue;
            }
            // Some servers respond 500 to a page that is too large, without a message, so a second 500 halves the page.
            let again_500 = failure.status == Some(StatusCode::INTERNAL_SERVER_ERROR);
            let smaller = failure.smaller || failed_500 && again_500;
            failed_500 = again_500;
            match smaller_page(walker.current()).filter(|_| smaller) {
                // Not a retry: it is another request.
                Some(request) => {
                    let wait = patience.breath();
                    if Instant::now() + wait >= patience.deadline().into() {
                        return Err(failure.error);
                    }
                    walker.replace(request);
                    sleep(wait).await;
                }
                None => {
                    let request = walker.current();
                    failure.wait(&session, request, &mut patience).await?;
                }
            }
        }
    }

    /// Returns an equivalent request for the first page that the server may accept: a GET if it has no
    /// POST, or one without the filter if it refuses that.
    fn equivalent_request(&mut self, request: &Request, failure: &Failure) -> Option<Request> {
        let Request::Post(url, body) = request else {
            return None;
        };
        // Later requests are the server's own links; only the first may have a form that it rejects.
        if self.report.pages > 0 {
            return None;
        }
        match failure.status?.as_u16() {
            405 | 501 => Some(request.to_get()),
            400 | 422 if self.language.is_some() && !self.query.check.conditions.is_empty() => {
                self.language = None;
                let without: Map<String, Value> = body
                    .iter()
                    .filter(|(name, _)| {
                        !["filter", "filter-lang", "query"].contains(&name.as_str())
                    })
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect();
                for condition in &self.query.check.conditions {
                    self.report.ignore(format!(
                        "{condition}; the server refused it: {}",
                        failure.error.message()
                    ));
                }
                Some(Request::Post(url.clone(), without))
            }
            _ => None,
        }
    }

    /// Returns the items that match, are new, and are within the limit.
    fn keep(&mut self, items: Vec<Item>, answered: &Url) -> Vec<Item> {
        self.report.returned += items.len();
        let base = Base::Url(answered.clone());
        let mut kept = Vec::new();
        for mut item in items {
            if self.query.limit.is_some_and(|limit| self.kept >= limit) {
                break;
            }
            if let Some(mismatch) = self.query.check.mismatch(&item) {
                self.leave_out(&mismatch);
                continue;
            }
            // Pages overlap if the catalogue changes during the search. Ids are unique within a collection only.
            if !self.seen.insert((item.collection.clone(), item.id.clone())) {
                self.report.duplicates += 1;
                continue;
            }
            make_absolute(&mut item, &base);
            self.report
                .skipped
                .extend(missing(&self.query.selection, &item));
            self.kept += 1;
            kept.push(item);
        }
        kept
    }

    /// Records an item that does not match, and the filter if the server should have applied it.
    fn leave_out(&mut self, mismatch: &Mismatch) {
        match mismatch {
            Mismatch::Member(name) => {
                self.report.drop_for(*name);
                self.report.ignore(*name);
            }
            // Paths and rows are separate conditions: the server cannot know which pairs were requested.
            Mismatch::Scene => self.report.drop_for("scene"),
            Mismatch::Condition(at) => {
                let condition = self.query.check.conditions.get(*at);
                let text = condition.map_or_else(String::new, ToString::to_string);
                if self.language.is_some() {
                    self.report.ignore(text.clone());
                }
                self.report.drop_for(text);
            }
        }
    }
}

impl Api {
    fn known(root: &Url, language: Language) -> Self {
        Self {
            search: below(root, "search"),
            post: true,
            language: Some(language),
        }
    }
}

/// Returns the URL of a path below an API's root; a query string of the root is retained.
fn below(root: &Url, name: &str) -> Url {
    let mut url = root.clone();
    let path = format!("{}/{name}", root.path().trim_end_matches('/'));
    url.set_path(&path);
    url
}

/// Returns the same request for half as many items; none if the page size is 1.
fn smaller_page(request: &Request) -> Option<Request> {
    let size = match request.limit() {
        Some(1) => return None,
        Some(limit) => limit / 2,
        // A GET without a query string is the landing page.
        None if matches!(request, Request::Get(url) if url.query().is_none()) => return None,
        None => FALLBACK_PAGE,
    };
    let mut smaller = request.clone();
    smaller.set_limit(size.max(1));
    Some(smaller)
}

/// Sends a request once and reads the document.
pub(super) async fn fetch(
    session: &Session,
    request: &Request,
    headers: &HeaderMap,
    until: Instant,
    attempt: u32,
) -> std::result::Result<(Document, Url, u64), Failure> {
    let late = |_| {
        let error = Error::new(ErrorKind::Unavailable, "no response before the deadline");
        Failure::last(error.at(redact(request.url().as_str())))
    };
    let left = until.saturating_duration_since(Instant::now());
    let Answer { url, body } = timeout_at(until, send(session, request, headers, left, attempt))
        .await
        .map_err(late)??;
    let bytes = u64::try_from(body.len()).unwrap_or(u64::MAX);
    // Some servers send more than they were asked for, but none sends many times as much.
    let most = request.limit().map_or(MOST_ITEMS, |limit| {
        usize::try_from(limit.saturating_mul(8))
            .map_or(MOST_ITEMS, |n| n.clamp(MOST_ITEMS / 5, MOST_ITEMS))
    });
    // Pages of many MiB are parsed on the CPU pool, so that they do not block the runtime.
    let parsed = session
        .cpu(move || read_page(&body, most))
        .await
        .and_then(|parsed| parsed);
    match parsed {
        Ok(document) => Ok((document, url, bytes)),
        // A proxy may truncate a response without a transport error; other syntax errors would repeat.
        Err(err) if ends_early(&err) => {
            let cut = Failure::corrupt(&url, "the response ends in the middle of the JSON");
            Err(cut.worth_another_try())
        }
        Err(err) => Err(Failure::last(err.at(redact(url.as_str())))),
    }
}

fn ends_early(err: &Error) -> bool {
    err.source()
        .and_then(|source| source.downcast_ref::<serde_json::Error>())
        .is_some_and(serde_json::Error::is_eof)
}

/// Returns the bands that the user named and that an item lacks.
fn missing(selection: &Selection, item: &Item) -> Vec<Skipped> {
    let asked = selection.of(item).into_iter();
    asked
        .filter(|(_, asset)| asset.is_none())
        .map(|(key, _)| Skipped {
            item: item.id.clone(),
            asset: Some(key.to_owned()),
            reason: "the item has no such asset".to_owned(),
        })
        .collect()
}
