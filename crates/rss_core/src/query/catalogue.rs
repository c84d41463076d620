//! Items from files and static catalogues, without an API.

use std::{
    collections::{BTreeSet, HashMap, HashSet, hash_map::Entry},
    path::{Path, PathBuf},
};

use futures::{StreamExt, TryStreamExt, stream};
use http::HeaderMap;
use object_store::ObjectStoreExt;
use stac::{Item, ItemCollection};
use tokio::io::AsyncReadExt;
use url::Url;

use super::{
    href::{Base, keep_allowed, make_absolute},
    paging::Request,
    result::{QueryResult, SearchReport},
    search::fetch,
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::{Location, Trust, redact},
    session::Session,
    stac::{Document, Selection, Skipped, read},
    store::{self, Patience},
};

/// The limit on documents of one catalogue.
const MAX_DOCUMENTS: usize = 20_000;
/// The concurrency limit of reads.
const AT_ONCE: usize = 8;
/// The limit on levels of children below the first document.
const MAX_DEPTH: usize = 64;
/// The limit on the size of a document, in bytes.
const MAX_BYTES: u64 = 512 << 20;

impl QueryResult {
    /// Creates a result from items in memory. `trust` is the trust in their author, which limits their
    /// hrefs; relative hrefs are not resolved.
    pub fn from_items(session: &Session, items: ItemCollection, trust: Trust) -> Self {
        let report = SearchReport {
            returned: items.items.len(),
            complete: true,
            ..SearchReport::default()
        };
        Self {
            session: session.clone(),
            source: None,
            trust,
            items,
            selection: Selection::Guess,
            manifest: None,
            report,
        }
    }

    /// Parses an item or an ItemCollection from JSON text, with the repairs of
    /// [`stac::read`](crate::stac::read).
    ///
    /// ```
    /// use rss_core::{QueryResult, Session, Trust};
    ///
    /// let json = br#"{"type": "FeatureCollection", "features": [{
    ///     "type": "Feature", "stac_version": "1.0.0", "id": "one", "geometry": null,
    ///     "properties": {"datetime": "2021-01-05T00:00:00Z"}, "links": [],
    ///     "assets": {"red": {"href": "s3://bucket/red.tif"}}
    /// }]}"#;
    /// let found = QueryResult::from_json(&Session::builder().build()?, json, Trust::User)?;
    /// assert_eq!(found.items().items[0].id, "one");
    /// assert_eq!(found.assets(&found.items().items[0])[0].0, "red");
    /// # Ok::<_, rss_core::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Corrupt`] if it is not STAC; [`ErrorKind::InvalidInput`] if it is a catalogue,
    /// whose links cannot be resolved without its location.
    pub fn from_json(session: &Session, json: &[u8], trust: Trust) -> Result<Self> {
        let mut found = Self::from_items(session, ItemCollection::from(Vec::new()), trust);
        let document = read(json)?;
        if matches!(document, Document::Catalogue { .. }) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a catalogue; read it from its file or URL, so that its links can be followed",
            ));
        }
        let mut walk = Walk::new(trust);
        walk.take(document, &Base::Unknown, trust, 0);
        walk.fill(&mut found);
        Ok(found)
    }

    /// Reads an item, an ItemCollection, or all items of a static catalogue from a file.
    ///
    /// Links to children and items are followed, each once, at most 20,000 documents and 64 levels
    /// deep; a child that cannot be read is listed in the report's `skipped`, and the report is not
    /// `complete`. Relative hrefs are resolved against the document that contains them.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if the file does not exist; [`ErrorKind::Corrupt`] if it is not STAC.
    pub async fn from_file_async(session: &Session, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        Self::walk(session, Location::Local(path)).await
    }

    /// Reads an item, an ItemCollection, or all items of a static catalogue from a URL: `https://`,
    /// `http://`, `s3://`, `gs://`, `az://` or `file://`.
    ///
    /// Like [`from_file_async`](Self::from_file_async). A catalogue on the network may not link to
    /// local files or private hosts. Of an API's response only the one page is read; the report is
    /// then not `complete`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if it is not such a URL; otherwise those of a search.
    pub async fn from_url_async(session: &Session, url: &str) -> Result<Self> {
        let location = Location::parse(url)?;
        Self::walk(session, location).await
    }

    async fn walk(session: &Session, root: Location) -> Result<Self> {
        let trust = trust_of(&root);
        let mut walk = Walk::new(trust);
        let mut seen = HashSet::from([name(&root)]);
        let (document, base) = load(session, root).await?;
        let mut level = walk.take(document, &base, trust, 0);
        for depth in 1.. {
            // Links may form cycles and diamonds: each document is read once.
            level.retain(|link| seen.insert(name(&link.location)));
            if level.is_empty() {
                break;
            }
            let remaining = MAX_DOCUMENTS.saturating_sub(walk.documents);
            if depth > MAX_DEPTH || remaining == 0 {
                walk.report.stopped = Some(format!(
                    "the catalogue has more than {MAX_DOCUMENTS} documents or {MAX_DEPTH} levels"
                ));
                break;
            }
            if level.len() > remaining {
                level.truncate(remaining);
                walk.report.stopped = Some(format!(
                    "the catalogue has more than {MAX_DOCUMENTS} documents"
                ));
            }
            let read = stream::iter(level.into_iter().map(|link| async move {
                let shown = link.location.to_string();
                session.stores().named_by(&link.location, link.trust);
                (shown, link.trust, load(session, link.location).await)
            }));
            // `buffered` preserves the order of the links, so the order of the items is deterministic.
            let mut read = read.buffered(AT_ONCE);
            let mut below = Vec::new();
            while let Some((shown, trust, loaded)) = read.next().await {
                match loaded {
                    Ok((document, base)) => below.extend(walk.take(document, &base, trust, depth)),
                    Err(err) => {
                        // A broken child does not end the walk; the first error is the reason in the report.
                        walk.report.stopped.get_or_insert_with(|| err.to_string());
                        walk.report.skipped.push(Skipped {
                            item: shown,
                            asset: None,
                            reason: err.message().to_owned(),
                        });
                    }
                }
            }
            drop(read);
            level = below;
        }
        let mut found = Self::from_items(session, ItemCollection::from(Vec::new()), trust);
        walk.fill(&mut found);
        Ok(found)
    }
}

/// A document to be read.
struct Child {
    location: Location,
    trust: Trust,
}

/// The state of a walk through a catalogue.
struct Walk {
    /// The trust in the root document.
    root: Trust,
    items: Vec<Item>,
    /// The files of each item, by collection and id.
    seen: HashMap<(Option<String>, String), BTreeSet<String>>,
    documents: usize,
    report: SearchReport,
}

impl Walk {
    fn new(root: Trust) -> Self {
        Self {
            root,
            items: Vec::new(),
            seen: HashMap::new(),
            documents: 0,
            report: SearchReport::default(),
        }
    }

    /// Collects the items of a document, and returns its children.
    fn take(&mut self, document: Document, base: &Base, trust: Trust, depth: usize) -> Vec<Child> {
        self.documents += 1;
        let items = match document {
            Document::Item(item, skipped) => {
                self.report.skipped.extend(skipped);
                vec![*item]
            }
            Document::Items(page) => {
                self.report.skipped.extend(page.skipped);
                self.report.matched = self.report.matched.or(page.matched);
                // The document is one page of an API's response; the other pages are not fetched.
                if page.next.is_some() {
                    self.report.stopped = Some("only the first page was read".to_owned());
                }
                page.items
            }
            Document::Catalogue { links, .. } => {
                return self.children(&links, base, trust);
            }
        };
        self.report.returned += items.len();
        for mut item in items {
            make_absolute(&mut item, base);
            // The result has the trust of the root document, so the hrefs of a less trusted child are checked here.
            if trust != self.root && depth > 0 {
                let allowed = |href: &str| Location::parse_from(href, trust);
                self.report.skipped.extend(keep_allowed(&mut item, allowed));
            }
            let hrefs = item.assets.values().map(|asset| redact(&asset.href));
            let files: BTreeSet<String> = hrefs.collect();
            match self.seen.entry((item.collection.clone(), item.id.clone())) {
                Entry::Vacant(new) => {
                    new.insert(files);
                    self.items.push(item);
                }
                Entry::Occupied(first) => {
                    self.report.duplicates += 1;
                    if *first.get() != files {
                        self.report.conflicts.push(item.id);
                    }
                }
            }
        }
        Vec::new()
    }

    fn children(&mut self, links: &[stac::Link], base: &Base, trust: Trust) -> Vec<Child> {
        let mut children = Vec::new();
        for link in links {
            if !matches!(link.rel.as_str(), "child" | "item") {
                continue;
            }
            let href = base.resolve(link.href.as_str());
            match Location::parse_from(&href, trust) {
                Ok(location) => children.push(Child {
                    // A document on the network never raises the trust in its children.
                    trust: match trust {
                        Trust::User => trust_of(&location),
                        less => less,
                    },
                    location,
                }),
                Err(err) => {
                    self.report.stopped.get_or_insert_with(|| err.to_string());
                    self.report.skipped.push(Skipped {
                        item: redact(&href),
                        asset: None,
                        reason: err.message().to_owned(),
                    });
                }
            }
        }
        children
    }

    fn fill(self, found: &mut QueryResult) {
        found.items = ItemCollection::from(self.items);
        found.report = self.report;
        found.report.pages = self.documents;
        found.report.complete = found.report.stopped.is_none();
    }
}

/// Items that are parsed piece by piece, as if all stood in one file of the user.
#[cfg(feature = "index")]
pub(crate) struct ParsedItems {
    walk: Walk,
    base: Base,
}

#[cfg(feature = "index")]
impl ParsedItems {
    pub(crate) fn of_file(path: &Path) -> Self {
        let base = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self {
            walk: Walk::new(Trust::User),
            base: Base::File(base),
        }
    }

    /// Adds an ItemCollection, of JSON text.
    pub(crate) fn add(&mut self, json: &[u8]) -> Result<()> {
        let document = read(json)?;
        self.walk.take(document, &self.base, Trust::User, 0);
        self.walk.documents = 1;
        Ok(())
    }

    pub(crate) fn into_result(self, session: &Session) -> QueryResult {
        let none = ItemCollection::from(Vec::new());
        let mut found = QueryResult::from_items(session, none, Trust::User);
        self.walk.fill(&mut found);
        found
    }
}

/// Returns the trust in a document that the user named.
fn trust_of(location: &Location) -> Trust {
    match location {
        Location::Local(_) => Trust::User,
        Location::Http(url) => Trust::of_catalogue(url),
        _ => Trust::Network,
    }
}

/// Returns a key that is the same for two hrefs of one document.
fn name(location: &Location) -> String {
    let mut href = location.to_href();
    // A fragment does not select another document.
    if matches!(location, Location::Http(_))
        && let Some(end) = href.find('#')
    {
        href.truncate(end);
    }
    href
}

async fn load(session: &Session, location: Location) -> Result<(Document, Base)> {
    let (bytes, base) = match &location {
        Location::Http(url) => {
            let (document, url) = over_http(session, url).await?;
            return Ok((document, Base::Url(url)));
        }
        Location::Local(path) => {
            let bytes = read_file(path).await.map_err(|err| err.at(&location))?;
            let base = match std::path::absolute(path) {
                Ok(path) => path,
                Err(_) => path.clone(),
            };
            (bytes, Base::File(base))
        }
        remote => {
            let (objects, path) = session.stores().store(remote)?;
            let response = objects
                .get(&path)
                .await
                .map_err(|err| store::error(&err, &location))?;
            // Checked before the body is read.
            if response.meta.size > MAX_BYTES {
                return Err(too_large().at(&location));
            }
            let bytes = response
                .into_stream()
                .map_ok(|chunk| chunk.to_vec())
                .try_concat()
                .await
                .map_err(|err| store::error(&err, &location))?;
            let base = match Url::parse(&remote.to_href()) {
                Ok(url) => Base::Url(url),
                Err(_) => Base::Unknown,
            };
            (bytes, base)
        }
    };
    let document = session.cpu(move || read(&bytes)).await?;
    Ok((document.map_err(|err| err.at(&location))?, base))
}

async fn over_http(session: &Session, url: &Url) -> Result<(Document, Url)> {
    let request = Request::Get(url.clone());
    let mut patience = Patience::new(session.network().limits());
    let headers = HeaderMap::new();
    loop {
        let until = patience.deadline().into();
        match fetch(session, &request, &headers, until, patience.failed() + 1).await {
            Ok((document, url, _)) => return Ok((document, url)),
            Err(failure) => failure.wait(session, &request, &mut patience).await?,
        }
    }
}

async fn read_file(path: &PathBuf) -> Result<Vec<u8>> {
    let unreadable = |err: std::io::Error| {
        let (kind, message) = match err.kind() {
            std::io::ErrorKind::NotFound => (ErrorKind::NotFound, "no such file"),
            std::io::ErrorKind::PermissionDenied => (ErrorKind::Denied, "no permission to read"),
            _ => (ErrorKind::InvalidInput, "the file cannot be read"),
        };
        Error::new(kind, message).with_source(err)
    };
    let file = tokio::fs::File::open(path).await.map_err(unreadable)?;
    let mut bytes = Vec::new();
    // One byte more than the limit distinguishes a file at the limit from a larger one.
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .await
        .map_err(unreadable)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_BYTES {
        return Err(too_large());
    }
    Ok(bytes)
}

fn too_large() -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("a STAC document larger than {} MiB", MAX_BYTES >> 20),
    )
}
