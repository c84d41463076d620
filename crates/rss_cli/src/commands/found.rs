//! From arguments to items: a search, or items of a file, a URL or stdin.

use std::{
    collections::BTreeSet,
    io::{IsTerminal, Read},
    path::{Path, PathBuf},
};

#[cfg(feature = "index")]
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
#[cfg(feature = "index")]
use rss_core::reader::KnownHeaders;
use rss_core::{
    Cmp, Collection, ImageQueryBuilder, Intersects, Location, Manifest, QueryResult, Session,
    Source, Trust, stac,
};

use crate::{
    Found,
    args::{Items, Selection},
    output,
};

/// Runs the search that the arguments describe.
pub(super) async fn search(session: &Session, args: &Selection) -> Result<QueryResult> {
    search_bands(session, args, &[]).await
}

/// Runs the search that the arguments describe. Where they name no bands, those of formulas are selected.
async fn search_bands(
    session: &Session,
    args: &Selection,
    formulas: &[String],
) -> Result<QueryResult> {
    let Some(source) = &args.source else {
        bail!("no SOURCE; name dea, element84, planetary-computer, or the URL of a STAC API");
    };
    let Some(collection) = &args.collection else {
        bail!("no COLLECTION; name sentinel2, landsat, .. or a collection's id");
    };
    let mut source: Source = source.parse()?;
    if let Some(other) = &args.like {
        source = source.like(&other.parse()?);
    }
    let collection: Collection = collection.parse()?;
    let intersects = match (&args.bbox, &args.geometry) {
        _ if !args.scene.is_empty() => Intersects::scenes(&args.scene),
        (Some(edges), _) => {
            let [west, south, east, north] = four(edges, "--bbox W,S,E,N")?;
            let width = if west > east {
                east + 360.0 - west
            } else {
                east - west
            };
            if width > 180.0 {
                output::say(&format!(
                    "note: --bbox {edges} is {width} degrees wide{}",
                    if west > east {
                        ": it goes east from its west edge across the antimeridian"
                    } else {
                        ""
                    }
                ));
            }
            Intersects::bbox(west, south, east, north)
        }
        (None, Some(path)) => Intersects::geometry(
            std::fs::read_to_string(path)
                .with_context(|| format!("--geometry {}", path.display()))?,
        ),
        (None, None) => Intersects::everywhere(),
    };
    let own = match &args.manifest {
        Some(path) => Some(Manifest::from_file(path)?),
        None => None,
    };
    let known = own
        .clone()
        .or_else(|| Manifest::builtin(&source, &collection));
    let mut query = ImageQueryBuilder::new(source, collection, intersects)
        .session(session.clone())
        .keep_partial()
        .bands(&args.bands)
        .canonical_bands(&args.canonical);
    // Without a manifest a formula has no canonical names, only bands of assets.
    query = match known.is_some() || !formulas.iter().all(|name| name.contains(':')) {
        true => query.canonical_bands(formulas),
        false => query.bands(formulas),
    };
    if let Some(own) = own {
        query = query.manifest(own);
    }
    if let Some(day) = &args.start {
        query = query.start_date(day);
    }
    if let Some(day) = &args.end {
        query = query.end_date(day);
    }
    if let Some(percent) = args.cloud_below {
        query = query.cloudcover((Cmp::Less, percent));
    }
    if let Some(platform) = &args.platform {
        query = query.platform(platform);
    }
    if let Some(limit) = args.limit {
        query = query.limit(limit);
    }
    let found = query.build()?.search_async().await?;
    if found.is_empty() {
        complete(&found)?;
    }
    notes(&found);
    Ok(found)
}

/// Fails if the search stopped early. Commands call it after their work: the items that were found are used, and
/// the exit code reports that others are missing.
pub(super) fn complete(found: &QueryResult) -> Result<()> {
    match &found.report().stopped {
        Some(reason) => bail!("the search stopped early: {reason}"),
        None => Ok(()),
    }
}

/// Refuses `--geometry` beside `--items` where it would do nothing: no search is made, and no pixels are cropped.
pub(super) fn without_geometry(args: &Items) -> Result<()> {
    ensure!(
        args.items.is_none() || args.selection.geometry.is_none(),
        "--geometry cannot be used with --items here: it crops results of apply, mosaic and zarr write, and searches"
    );
    Ok(())
}

/// Reads items where the arguments name a source of them, else searches.
pub(super) async fn items(session: &Session, args: &Items) -> Result<QueryResult> {
    items_of(session, args, &[]).await
}

/// As [`items`], with the bands that formulas name where the arguments name none: by canonical names, or by the keys of
/// assets.
pub(super) async fn items_of(
    session: &Session,
    args: &Items,
    formulas: &[String],
) -> Result<QueryResult> {
    if let Some(path) = &args.recorded {
        return super::record::found(session, path);
    }
    // On a terminal a read of stdin would wait for the user to type items.
    let stdin_waits = || !std::io::stdin().is_terminal();
    let found = match args.items.as_deref() {
        None if args.selection.source.is_some() => {
            return search_bands(session, &args.selection, formulas).await;
        }
        None if stdin_waits() => read(session, "-", args.trust_items).await?,
        None => bail!("no SOURCE and no --items; name one of them, or pipe items in"),
        Some(text) => read(session, text, args.trust_items).await?,
    };
    notes(&found);
    let wanted = &args.selection;
    let own = match &wanted.manifest {
        Some(path) => Some(Manifest::from_file(path)?),
        None => None,
    };
    if let Some(own) = &own {
        unlisted(&found, own);
    }
    if !wanted.bands.is_empty() {
        return Ok(found.with_bands(&wanted.bands));
    }
    if wanted.canonical.is_empty() && formulas.is_empty() {
        return Ok(found);
    }
    let manifest = match own {
        Some(own) => Ok(own),
        None => manifest_of(&found),
    };
    if !wanted.canonical.is_empty() {
        return Ok(found.with_canonical_bands(&manifest?, &wanted.canonical)?);
    }
    let mut keys = Vec::with_capacity(formulas.len());
    for name in formulas {
        let manifest = manifest.as_ref();
        keys.push(match asset_of(&found, manifest.ok(), name) {
            Some(key) => key,
            None => {
                let manifest = manifest.map_err(|err| anyhow!("{err}"))?;
                let known = manifest.resolve_canonical(&[name])?;
                known.first().map_or(name.clone(), |def| def.asset.clone())
            }
        });
    }
    Ok(found.with_bands(keys))
}

/// Returns the band of an asset that a name in a formula stands for: `name:band`, where `name` is canonical in the
/// manifest, or the key of an asset of the items. None for other names, which must be canonical.
fn asset_of(found: &QueryResult, manifest: Option<&Manifest>, name: &str) -> Option<String> {
    let has = |key: &str| {
        found
            .items()
            .items
            .iter()
            .any(|item| item.assets.contains_key(key))
    };
    let canonical = |name: &str| {
        let found = manifest?.resolve_canonical(&[name]).ok()?;
        found.first().map(|def| def.asset.clone())
    };
    if canonical(name).is_some() {
        return None;
    }
    let (base, band) = name.rsplit_once(':')?;
    match canonical(base) {
        Some(key) => Some(format!("{key}:{band}")),
        None => (has(base) || has(name)).then(|| name.to_owned()),
    }
}

/// Notes on stderr that items are of collections which the user's manifest does not list.
fn unlisted(found: &QueryResult, own: &Manifest) {
    let mut others: Vec<String> = Vec::new();
    for collection in found.items().items.iter().filter_map(stac::collection) {
        if !own.stac_collections.contains(&collection) && !others.contains(&collection) {
            others.push(collection);
        }
    }
    if !others.is_empty() {
        output::say(&format!(
            "note: items are of {}, which the manifest does not list ({}): its bands, scales and masks are taken all \
             the same",
            others.join(", ").escape_debug(),
            own.stac_collections.join(", ")
        ));
    }
}

/// Reads items from a file, a URL or stdin. Nobody knows who made those of a file and of stdin: they may name no file of
/// this machine but what lies beside or below the file, and what `rss get` made, unless the user trusts them.
pub(super) async fn read(session: &Session, text: &str, is_trusted: bool) -> Result<QueryResult> {
    let (found, folder) = match text {
        "-" => (from_stdin(session)?, None),
        url if url.contains("://") => return Ok(QueryResult::from_url_async(session, url).await?),
        path => {
            let found = from_path(session, path).await?;
            let path = std::path::absolute(path)?;
            (found, path.parent().map(Path::to_path_buf))
        }
    };
    if is_trusted {
        return Ok(found);
    }
    let (items, skipped) = (found.len(), found.report().skipped.len());
    let assets = |found: &QueryResult| -> usize {
        let items = found.items().items.iter();
        items.map(|item| item.assets.len()).sum()
    };
    let before = assets(&found);
    let found = found.as_handed_over(own_files(session, folder));
    if let Some(first) = found.report().skipped.get(skipped) {
        let hint = TRUSTED;
        ensure!(
            assets(&found) > 0,
            "{}, asset {}: {}; {hint}",
            first.item.escape_debug(),
            first.asset.as_deref().unwrap_or_default().escape_debug(),
            first.reason
        );
        output::say(&format!(
            "note: {} of {before} assets of {items} items name what items of a file or a pipe may not, and are skipped; \
             {hint}",
            before - assets(&found)
        ));
    }
    Ok(found)
}

/// Returns the headers that are known: those of `--index`, or of the index that the items are from.
///
/// # Errors
///
/// Those of opening an index; a file of items that is stac-geoparquet without headers is none.
#[cfg(feature = "index")]
pub(super) fn headers(
    items: &Items,
    index: Option<&Path>,
) -> Result<Option<Arc<dyn KnownHeaders>>> {
    use rss_core::index::{Index, is_index};
    let of_items = items.items.as_deref().map(Path::new);
    let path = match (index, of_items) {
        (Some(path), _) => path,
        (None, Some(path)) if is_parquet(path) && is_index(path)? => path,
        _ => return Ok(None),
    };
    Ok(Some(Arc::new(Index::open(path)?)))
}

/// Returns true for a file that begins as Parquet does.
#[cfg(feature = "index")]
fn is_parquet(path: &Path) -> bool {
    let mut start = [0; 4];
    let file = std::fs::File::open(path);
    file.is_ok_and(|mut file| file.read_exact(&mut start).is_ok()) && start == *b"PAR1"
}

/// Reads items of a file of this machine: STAC as JSON, or stac-geoparquet.
async fn from_path(session: &Session, path: &str) -> Result<QueryResult> {
    #[cfg(feature = "index")]
    if is_parquet(Path::new(path)) {
        let all = rss_core::index::Select::all();
        return Ok(QueryResult::from_parquet_async(session, path, &all).await?);
    }
    Ok(QueryResult::from_file_async(session, path).await?)
}

/// Says how to allow what items may not name.
pub(super) const TRUSTED: &str = "--trust-items allows it";

/// Tells which files of this machine items of a folder may name: those in it or below, and those that `rss get` made.
pub(super) fn own_files(
    session: &Session,
    folder: Option<PathBuf>,
) -> impl Fn(&Path) -> bool + Send + Sync + 'static {
    let cache = session.cache().clone();
    move |path| {
        folder
            .as_deref()
            .is_some_and(|folder| is_below(path, folder))
            || cache.has_given(path)
    }
}

/// Returns true if a path lies in a folder or below it, by name: `..` leads nowhere else.
fn is_below(path: &Path, folder: &Path) -> bool {
    let Ok(path) = std::path::absolute(path) else {
        return false;
    };
    path.components()
        .all(|part| part != std::path::Component::ParentDir)
        && path.starts_with(folder)
}

fn from_stdin(session: &Session) -> Result<QueryResult> {
    let mut json = Vec::new();
    std::io::stdin().lock().read_to_end(&mut json)?;
    ensure!(!json.is_empty(), "stdin is empty, expected STAC items");
    QueryResult::from_json(session, &json, Trust::User).context("stdin")
}

/// Finds the built-in manifest of items.
fn manifest_of(found: &QueryResult) -> Result<Manifest> {
    let Some(item) = found.items().items.first() else {
        bail!("no items to take canonical names from");
    };
    Manifest::of_item(item).cloned().with_context(|| {
        let whose = match &item.collection {
            Some(collection) => format!("collection `{collection}` has"),
            None => format!("item {} has no collection, so it has", item.id),
        };
        format!("{whose} no canonical names; name assets with --bands, or give a --manifest")
    })
}

/// Reports on stderr the filters that the server ignored, and the items that were skipped.
pub(super) fn notes(found: &QueryResult) {
    let report = found.report();
    if let Some(ids) = conflicts(found) {
        output::say(&format!(
            "note: items of one id and collection have other files, the first of each is used: {ids}"
        ));
    }
    for note in &report.notes {
        output::say(&format!("note: {note}"));
    }
    for filter in &report.filters_ignored {
        output::say(&format!(
            "note: the server did not apply {filter}; it was applied here"
        ));
    }
    for one in report.skipped.iter().take(10) {
        let asset = one.asset.as_deref().map(|key| format!(" {key}"));
        output::say(&format!(
            "note: skipped {}{}: {}",
            one.item.escape_debug(),
            asset.unwrap_or_default().escape_debug(),
            one.reason
        ));
    }
    if report.skipped.len() > 10 {
        output::say(&format!("note: skipped {} more", report.skipped.len() - 10));
    }
}

/// Returns the ids of items that stand for others with other files.
pub(super) fn conflicts(found: &QueryResult) -> Option<String> {
    let ids: BTreeSet<&str> = found
        .report()
        .conflicts
        .iter()
        .map(String::as_str)
        .collect();
    let mut shown: Vec<String> = ids
        .iter()
        .take(10)
        .map(|id| id.escape_debug().to_string())
        .collect();
    if ids.len() > shown.len() {
        shown.push(format!("{} more", ids.len() - shown.len()));
    }
    (!shown.is_empty()).then(|| shown.join(", "))
}

/// Notes on stderr which assets are left out for want of a role.
pub(super) fn unselected(found: &QueryResult) {
    for note in found.unselected().iter().take(10) {
        output::say(&format!("note: {note}; --bands selects it"));
    }
}

/// Reads a list of locations, one a line; `-` is stdin. Empty lines and those that begin with `#` are ignored.
pub(super) fn locations(list: &str) -> Result<Vec<Location>> {
    let text = match list {
        "-" => {
            let mut text = String::new();
            std::io::stdin()
                .lock()
                .read_to_string(&mut text)
                .context("stdin")?;
            text
        }
        path => std::fs::read_to_string(path).with_context(|| path.to_owned())?,
    };
    let lines = text.lines().map(str::trim).zip(1..);
    lines
        .filter(|(line, _)| !line.is_empty() && !line.starts_with('#'))
        .map(|(line, number)| {
            Location::parse(line).with_context(|| format!("line {number} of {list}"))
        })
        .collect()
}

/// Parses four numbers between commas.
pub(super) fn four(text: &str, what: &str) -> Result<[f64; 4]> {
    let numbers = text
        .split(',')
        .map(|part| part.trim().parse::<f64>())
        .collect::<Result<Vec<_>, _>>();
    numbers
        .ok()
        .and_then(|numbers| <[f64; 4]>::try_from(numbers).ok())
        .with_context(|| format!("`{text}` is not four numbers, expected {what}"))
}

/// Returns what a command found whose inputs may be missing where `--on-failure` is `skip`: a part, if any is.
pub(super) fn whole<T>(on_failure: &str, missing_inputs: &[T]) -> Found {
    match on_failure == "skip" && !missing_inputs.is_empty() {
        true => Found::Part,
        false => Found::Something,
    }
}
