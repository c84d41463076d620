//! From items to files: downloads into the cache, files and links in the user's folder, and hrefs for remote
//! reads.

mod checksum;
mod copy;
mod folder;
mod origin;
mod partial;
mod progress;
mod remote;
mod select;
mod target;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use stac::ItemCollection;

pub(crate) use self::remote::remote;
use self::{
    checksum::{Checksum, Digests, Function, Stated},
    copy::{Expected, copy},
    folder::{Folder, read_all},
    progress::{FileProgress, Tally},
    select::{Chosen, choose},
    target::{TargetPath, targets},
};
pub use self::{
    folder::{Delivery, Existing},
    origin::Origin,
    progress::Progress,
    remote::RemoteVariant,
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::Crop,
    location::{Location, redact},
    query::QueryResult,
    reader::gdal,
    session::Session,
    stac::Selection,
    store::{self, CachedFile, FillRequest, Made, Mode, check_file, of_io},
};

/// How files are fetched.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct GetOptions {
    /// The bounding box that files are cropped to; none fetches them complete.
    pub crop: Option<Crop>,
    /// Through `gdal_translate`, or byte for byte.
    pub mode: Mode,
    /// Whether files are the user's own, or links into the cache.
    pub delivery: Delivery,
    /// Whether files that are there already are replaced.
    pub existing: Existing,
    /// How many files are fetched at once; none is the session's `downloads`.
    pub concurrency: Option<usize>,
    /// Whether the first failure ends the call.
    pub policy: Policy,
    /// The progress callback: called often, from any thread; it should return quickly.
    pub progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
}

impl GetOptions {
    /// Crops files to a bounding box.
    #[must_use]
    pub fn with_crop(mut self, crop: Crop) -> Self {
        self.crop = Some(crop);
        self
    }

    /// Sets how files are written: translated or copied.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets whether files are the user's own, or links into the cache.
    #[must_use]
    pub fn with_delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// Sets whether files that are there already are replaced.
    #[must_use]
    pub fn with_existing(mut self, existing: Existing) -> Self {
        self.existing = existing;
        self
    }

    /// Sets how many files are fetched at once, at least 1.
    #[must_use]
    pub fn with_concurrency(mut self, files: usize) -> Self {
        self.concurrency = Some(files.max(1));
        self
    }

    /// Sets whether the first failure ends the call.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets the progress callback.
    #[must_use]
    pub fn with_progress(mut self, progress: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(progress));
        self
    }
}

impl fmt::Debug for GetOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetOptions")
            .field("crop", &self.crop)
            .field("mode", &self.mode)
            .field("delivery", &self.delivery)
            .field("existing", &self.existing)
            .field("concurrency", &self.concurrency)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// Whether the first failure ends a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Policy {
    /// The first error ends the call and cancels the other downloads. Finished files stay cached.
    #[default]
    FailFast,
    /// Every file is tried; errors are listed.
    KeepGoing,
}

/// The result of a call that fetches files.
#[derive(Debug)]
#[non_exhaustive]
pub struct Fetched {
    /// The items, each with the assets that were fetched, their hrefs local paths.
    pub items: ItemCollection,
    /// One row per selected asset, in the order of items and assets.
    pub assets: Vec<AssetOutcome>,
    /// What the caller should know: checksums that could not be checked, a cache that is larger than its bound.
    pub notes: Vec<String>,
}

impl Fetched {
    /// Returns the rows of assets that could not be fetched.
    pub fn failed(&self) -> impl Iterator<Item = &AssetOutcome> {
        self.assets.iter().filter(|row| row.error.is_some())
    }
}

/// The outcome of one asset.
#[derive(Debug)]
#[non_exhaustive]
pub struct AssetOutcome {
    /// The item's id.
    pub item: String,
    /// The asset's key.
    pub asset: String,
    /// The source of the file, without query string.
    pub location: String,
    /// The file or link in the folder; none on failure.
    pub path: Option<PathBuf>,
    /// The length of the file in the cache.
    pub bytes: u64,
    /// True if it was in the cache and nothing was fetched.
    pub cached: bool,
    /// The error, if the asset could not be fetched.
    pub error: Option<Error>,
}

impl Session {
    /// Fetches assets of `items` into the file cache and delivers them into `dir`, as `<item id>/<file name>`: as files of
    /// the user's own, or links ([`Delivery`]). At its end the cache is within its bound, but for what other calls use and
    /// links point to. `assets` are keys; none are those that look like
    /// measurements: with the role `data`, else rasters that are no quality band and no preview.
    ///
    /// Costs no request for cached files; else one request per file that is copied, and GDAL's requests
    /// for one that is translated. Dropping the future cancels the call: unfinished files are removed,
    /// finished ones stay cached.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] and [`ErrorKind::Denied`] for a folder that is a file or cannot be written, for a
    /// file of the user that is in the way ([`Existing`]), for a crop of a copy and for hrefs that their catalogue may
    /// not name. Under [`Policy::FailFast`] the first error of a file, but for hrefs of an unknown scheme, which are in
    /// the rows; under [`Policy::KeepGoing`] such errors are in the rows.
    pub async fn get_async(
        &self,
        items: &ItemCollection,
        assets: &[String],
        origin: &Origin,
        dir: &Path,
        options: &GetOptions,
    ) -> Result<Fetched> {
        get(
            self,
            origin,
            items,
            &Selection::of_keys(assets),
            dir,
            options,
        )
        .await
    }

    /// Returns the items with hrefs for remote reads; other assets are left out. `assets` are keys;
    /// none are those that look like measurements: with the role `data`, else rasters that are no
    /// quality band and no preview.
    ///
    /// Costs no request, except for tokens: one per container of the Planetary Computer.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] for an asset that no item has; [`ErrorKind::Denied`] and
    /// [`ErrorKind::InvalidInput`] for an href that its catalogue may not name; those of the token
    /// service.
    pub async fn get_remote_async(
        &self,
        items: &ItemCollection,
        assets: &[String],
        origin: &Origin,
        variant: RemoteVariant,
    ) -> Result<ItemCollection> {
        remote(self, origin, items, &Selection::of_keys(assets), variant).await
    }
}

impl QueryResult {
    /// Returns the origin of these items.
    fn origin(&self) -> Origin {
        match &self.source {
            Some(source) => Origin::of(source),
            None => Origin::new(self.trust),
        }
    }

    /// Translates the selected assets into the file cache, cropped to `crop` if it is set, and
    /// delivers them into `dir` as `<item id>/<file name>`; returns the items with local hrefs.
    ///
    /// `crop` is xmin, ymin, xmax, ymax in the units of `crop_epsg`, or of each file's own CRS; pixels
    /// that it touches are included. The files are tiled, compressed GeoTIFFs with nodata, scale, offset
    /// and metadata of their sources, without overviews.
    ///
    /// # Errors
    ///
    /// As [`Session::get_async`]: the first failure ends the call.
    pub async fn get_async(
        &self,
        dir: &Path,
        crop: Option<[f64; 4]>,
        crop_epsg: Option<u32>,
    ) -> Result<ItemCollection> {
        let crop = match (crop, crop_epsg) {
            (Some(bounds), epsg) => Some(Crop::new(bounds, epsg)?),
            (None, None) => None,
            (None, Some(epsg)) => {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    format!("`crop_epsg` is {epsg}, but `crop` is not set"),
                ));
            }
        };
        let options = GetOptions {
            crop,
            ..GetOptions::default()
        };
        Ok(self.get_with_async(dir, &options).await?.items)
    }

    /// Copies the selected assets byte for byte into the file cache and delivers them into `dir` as
    /// `<item id>/<file name>`; returns the items with local hrefs. Needs no GDAL.
    ///
    /// # Errors
    ///
    /// As [`Session::get_async`]: the first failure ends the call.
    pub async fn download_async(&self, dir: &Path) -> Result<ItemCollection> {
        let options = GetOptions::default().with_mode(Mode::Copy);
        Ok(self.get_with_async(dir, &options).await?.items)
    }

    /// Fetches the selected assets as `options` state; see [`Session::get_async`].
    ///
    /// # Errors
    ///
    /// As [`Session::get_async`].
    pub async fn get_with_async(&self, dir: &Path, options: &GetOptions) -> Result<Fetched> {
        let (session, origin) = (self.session(), self.origin());
        get(
            session,
            &origin,
            self.items(),
            &self.selection,
            dir,
            options,
        )
        .await
    }

    /// Returns the items with the selected assets' hrefs as GDAL's virtual file systems: `/vsis3/`,
    /// `/vsigs/`, `/vsiaz/`, `/vsicurl/`; other assets are left out. Sets GDAL's path-specific options of
    /// each bucket, for this process.
    ///
    /// # Errors
    ///
    /// As [`Session::get_remote_async`].
    pub async fn get_remote_async(&self) -> Result<ItemCollection> {
        self.get_remote_as_async(RemoteVariant::Vsi).await
    }

    /// Returns the items with the selected assets' hrefs for remote reads, in one of four forms.
    ///
    /// # Errors
    ///
    /// As [`Session::get_remote_async`].
    pub async fn get_remote_as_async(&self, variant: RemoteVariant) -> Result<ItemCollection> {
        let (session, origin) = (self.session(), self.origin());
        remote(session, &origin, self.items(), &self.selection, variant).await
    }
}

/// Fetches the chosen assets; see [`Session::get_async`].
pub(crate) async fn get(
    session: &Session,
    origin: &Origin,
    items: &ItemCollection,
    assets: &Selection,
    dir: &Path,
    options: &GetOptions,
) -> Result<Fetched> {
    let fetched = fetch(session, origin, items, assets, dir, options).await;
    // What the call used is free now, also where it failed: the bound of the cache holds from here on.
    let cache = session.cache().clone();
    let fitted = blocking(move || cache.fit()).await;
    let mut fetched = fetched?;
    match fitted {
        Ok(fitted) if fitted.over_bytes > 0 => fetched.notes.push(format!(
            "the cache is {} bytes larger than its bound: links point to {} of its files, and {} are in use",
            fitted.over_bytes, fitted.linked, fitted.in_use
        )),
        Ok(_) => {}
        Err(err) => {
            let note = format!("the bound of the cache could not be enforced: {err}");
            fetched.notes.push(note);
        }
    }
    Ok(fetched)
}

async fn fetch(
    session: &Session,
    origin: &Origin,
    items: &ItemCollection,
    assets: &Selection,
    dir: &Path,
    options: &GetOptions,
) -> Result<Fetched> {
    if let Some(crop) = &options.crop {
        Crop::new(crop.bounds, crop.epsg)?;
        if options.mode == Mode::Copy {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a copy cannot be cropped; use the translate mode",
            ));
        }
    }
    // Both folders are checked before the first request.
    session.cache().root()?;
    let folder = open_folder(dir, options).await?;

    let mut errors = Vec::new();
    let mut chosen = Vec::new();
    for one in choose(items, assets) {
        match one.locate(session, origin) {
            Ok(location) => {
                chosen.push((one, Some(location)));
                errors.push(None);
            }
            // An href of a scheme that nothing here reads ends no other download.
            Err(err)
                if options.policy == Policy::FailFast && err.kind() != ErrorKind::InvalidInput =>
            {
                return Err(err);
            }
            Err(err) => {
                chosen.push((one, None));
                errors.push(Some(err));
            }
        }
    }
    if options.policy == Policy::FailFast && errors.iter().all(Option::is_some) {
        // None of them can be fetched.
        if let Some(err) = errors.iter_mut().find_map(Option::take) {
            return Err(err);
        }
    }
    let targets = targets(&chosen, options.mode);
    let tally = Tally::new(chosen.len(), options);

    let mut work: Vec<BoxFuture<'_, (usize, Result<Delivered>)>> = Vec::with_capacity(chosen.len());
    for (i, (((one, location), target), error)) in
        chosen.iter().zip(&targets).zip(errors).enumerate()
    {
        let file = location.as_ref().map(|location| FileToFetch {
            session,
            location,
            expected: one.asset.map(Expected::of).unwrap_or_default(),
            options,
        });
        let (tally, folder) = (&tally, &folder);
        // Boxed: the compiler cannot prove that an unnamed future over these borrows is `Send`.
        work.push(
            async move {
                let done = match (file, target, error) {
                    (Some(file), Some(target), None) => {
                        file.fetch(folder, target, &tally.part(i)).await
                    }
                    (_, _, Some(err)) => Err(err),
                    _ => Err(Error::new(ErrorKind::InvalidInput, "the asset has no file")),
                };
                tally.finish(i);
                (i, done)
            }
            .boxed(),
        );
    }
    let at_once = options.concurrency.unwrap_or(session.settings().downloads);
    let mut running = stream::iter(work).buffer_unordered(at_once.max(1));
    let mut outcomes: Vec<Option<Result<Delivered>>> = Vec::new();
    outcomes.resize_with(chosen.len(), || None);
    while let Some((i, done)) = running.next().await {
        let has_location = chosen
            .get(i)
            .is_some_and(|(_, location)| location.is_some());
        if options.policy == Policy::FailFast
            && has_location
            && let Err(err) = done
        {
            // Returning drops the stream, which cancels the others.
            return Err(err);
        }
        if let Some(slot) = outcomes.get_mut(i) {
            *slot = Some(done);
        }
    }
    drop(running);
    let mut fetched = assemble(items, &chosen, outcomes);
    fetched.notes.extend(unchecked(&chosen, options));
    for item in &mut fetched.items.items {
        share(item);
    }
    Ok(fetched)
}

/// Returns a note on the checksums of a catalogue that nothing here can compute.
fn unchecked(chosen: &[(Chosen<'_>, Option<Location>)], options: &GetOptions) -> Option<String> {
    if options.mode != Mode::Copy {
        return None;
    }
    let stated = chosen
        .iter()
        .filter_map(|(one, _)| match Stated::of(one.asset?) {
            Stated::Unknown(text) => Some(text),
            Stated::Nothing | Stated::Checksum(_) => None,
        });
    let unknown: Vec<String> = stated.collect();
    let first = unknown.first()?;
    let first: String = first.chars().take(40).collect();
    Some(format!(
        "the checksums of {} files are no multihash of a known function and are not checked: `{}`",
        unknown.len(),
        first.escape_debug()
    ))
}

/// Removes what may be a secret from an item whose files are local now: its links and alternates still hold the addresses
/// by which they were found.
fn share(item: &mut stac::Item) {
    let Ok(mut json) = serde_json::to_value(&*item) else {
        return;
    };
    store::shareable_json(&mut json);
    // What has lost a field that it needs stays as it was: no catalogue has one by such a name.
    if let Ok(shared) = serde_json::from_value(json) {
        *item = shared;
    }
}

/// Returns the outcomes in the order of the selected assets.
fn assemble(
    items: &ItemCollection,
    chosen: &[(Chosen<'_>, Option<Location>)],
    outcomes: Vec<Option<Result<Delivered>>>,
) -> Fetched {
    let mut local = items.clone();
    for item in &mut local.items {
        item.assets.clear();
    }
    let mut rows = Vec::with_capacity(chosen.len());
    for ((one, location), outcome) in chosen.iter().zip(outcomes) {
        let named = || one.asset.map(|asset| redact(&asset.href));
        let mut row = AssetOutcome {
            item: one.item.id.clone(),
            asset: one.key.clone(),
            location: location
                .as_ref()
                .map(Location::to_string)
                .or_else(named)
                .unwrap_or_default(),
            path: None,
            bytes: 0,
            cached: false,
            error: None,
        };
        match outcome {
            Some(Ok(delivered)) => {
                if let (Some(asset), Some(item)) = (one.asset, local.items.get_mut(one.index)) {
                    let mut asset = asset.clone();
                    asset.href = delivered.path.to_string_lossy().into_owned();
                    item.assets.insert(one.key.clone(), asset);
                }
                row.bytes = delivered.file.bytes;
                row.cached = delivered.file.hit;
                row.path = Some(delivered.path);
            }
            Some(Err(err)) => row.error = Some(err),
            None => {}
        }
        rows.push(row);
    }
    Fetched {
        items: local,
        assets: rows,
        notes: Vec::new(),
    }
}

async fn open_folder(dir: &Path, options: &GetOptions) -> Result<Folder> {
    let (dir, delivery, existing) = (dir.to_owned(), options.delivery, options.existing);
    blocking(move || Folder::open(&dir, delivery, existing)).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|_| Error::new(ErrorKind::Unavailable, "a task of the file system was lost"))?
}

/// A file in the cache, and the file or link of the user. The one in the cache is not evicted while this is held.
#[derive(Debug)]
struct Delivered {
    path: PathBuf,
    file: CachedFile,
}

/// One file to fetch.
struct FileToFetch<'a> {
    session: &'a Session,
    location: &'a Location,
    expected: Expected,
    options: &'a GetOptions,
}

impl FileToFetch<'_> {
    async fn fetch(
        &self,
        folder: &Folder,
        target: &TargetPath,
        part: &FileProgress<'_>,
    ) -> Result<Delivered> {
        // Before the download, so that a file of the user that has the name costs no transfer.
        let (check, its, cache) = (folder.clone(), target.clone(), self.session.cache().clone());
        blocking(move || check.check(&its, &cache)).await?;
        let file = self.cached(part).await?;
        let (folder, target) = (folder.clone(), target.clone());
        let cache = self.session.cache().clone();
        // On a thread of its own, with the pin: what is begun ends even if nobody waits any more.
        let (path, file) = blocking(move || {
            let path = folder.deliver(&target, &cache, &file)?;
            Ok((path, file))
        })
        .await?;
        if file.hit {
            part.arrived(file.bytes);
        }
        Ok(Delivered { path, file })
    }

    async fn cached(&self, part: &FileProgress<'_>) -> Result<CachedFile> {
        let cache = self.session.cache();
        let key = cache.key(self.location, self.options.crop.as_ref(), self.options.mode);
        let file = cache
            .get_or_make(&key, |order| self.make(order, part))
            .await?;
        // Another checksum than the catalogue's: the file was replaced since it was cached. This is the
        // one removal in spite of pins (docs/decisions/004-file-cache.md).
        if self.options.mode == Mode::Copy
            && file.hit
            && let Some(wanted) = self.expected.checksum.checksum()
            && !agrees(&file, wanted).await?
        {
            drop(file);
            let (cache, old) = (cache.clone(), key.clone());
            blocking(move || cache.forget(&old)).await?;
            return self
                .session
                .cache()
                .get_or_make(&key, |order| self.make(order, part))
                .await;
        }
        Ok(file)
    }

    async fn make(&self, order: FillRequest, part: &FileProgress<'_>) -> Result<Made> {
        // A named pipe would be waited for.
        if let Some(path) = self.location.as_local()
            && let Ok(meta) = tokio::fs::metadata(path).await
        {
            check_file(&meta).map_err(|err| err.at(self.location))?;
        }
        match self.options.mode {
            Mode::Copy => {
                part.expect(self.expected.bytes);
                let arrived = |bytes| part.arrived(bytes);
                copy(
                    self.session,
                    self.location,
                    &order,
                    &self.expected,
                    &arrived,
                )
                .await
            }
            Mode::Translate => {
                let location = self.session.stores().signed(self.location).await?;
                gdal::configure_path(self.session, &location)?;
                let progress = |done: f64| part.reached(done);
                gdal::translate(
                    self.session,
                    &location,
                    &order.path,
                    self.options.crop.as_ref(),
                    &progress,
                )
                .await?;
                let path = order.path.clone();
                let bytes =
                    blocking(move || Ok(path.metadata().map_or(0, |meta| meta.len()))).await?;
                part.arrived(bytes);
                Ok(Made::Written {
                    etag: None,
                    sha256: None,
                    checked: None,
                })
            }
        }
    }
}

/// Returns true if a file of the cache has a checksum. Reads it where the checksum is of another function than those that it
/// had to agree with when it was fetched.
async fn agrees(file: &CachedFile, wanted: &Checksum) -> Result<bool> {
    if wanted.function == Function::Sha256 {
        return Ok(file.sha256 == wanted.digest);
    }
    if file.checked.as_ref() == Some(&wanted.text()) {
        return Ok(true);
    }
    let (path, wanted) = (file.path.clone(), wanted.clone());
    blocking(move || {
        let mut digests = Digests::for_checksum(Some(&wanted));
        read_all(&path, |bytes| digests.update(bytes))
            .map_err(|err| of_io(&err).at(path.display()))?;
        Ok(digests.finish().agrees(&wanted))
    })
    .await
}
