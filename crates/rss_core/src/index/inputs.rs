//! The inputs of a build (items, locations, a prefix of a bucket, or a stac-geoparquet file), and the plan: which
//! rows the index has, and which files are to be read.

use std::{
    collections::{BTreeSet, HashSet},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow_array::{Array, ListArray, RecordBatch, StringArray, StructArray, cast::AsArray};
use futures::TryStreamExt;
use sha2::{Digest, Sha256};
use stac::Item;

use super::{
    bare,
    journal::Name,
    open::{Index, href_column},
    schema::ASSETS,
    table::ParquetTable,
};
use crate::{
    error::{Error, ErrorKind, Result},
    location::{Location, Trust},
    session::Session,
    stac as catalogue, store,
};

/// Rows of a batch, as they are read and written: entries of large files take much memory.
pub(super) const ROWS_AT_ONCE: usize = 64;

/// The source of the items of a build.
#[derive(Clone, Debug)]
pub(super) enum Input {
    Items(Vec<Item>, Trust),
    Locations(Vec<Location>),
    Prefix(Location),
    /// With what is the user's own of the files of this machine; none: whatever it names.
    Parquet(PathBuf, Option<IsOwn>),
}

/// Tells of a file of this machine whether items that were handed over may name it.
#[derive(Clone)]
pub(super) struct IsOwn(pub(super) Arc<dyn Fn(&Path) -> bool + Send + Sync>);

impl fmt::Debug for IsOwn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IsOwn(..)")
    }
}

/// A header to read.
#[derive(Clone, Debug)]
pub(super) struct HeaderJob {
    pub(super) name: Name,
    pub(super) location: Location,
    pub(super) header_bytes: Option<u64>,
    pub(super) checksum: Option<String>,
}

/// One file of an item: item, collection and asset key.
struct ItemFile<'a> {
    item: &'a str,
    collection: Option<&'a str>,
    asset: &'a str,
}

/// The plan of a build.
pub(super) struct BuildPlan {
    pub(super) rows: IndexRows,
    /// The headers to read, each file once.
    pub(super) jobs: Vec<HeaderJob>,
    /// Files whose href is invalid or not allowed.
    pub(super) refused: Vec<(String, Error)>,
    /// Parameters of addresses that the index leaves out, and that nothing says to be secret.
    pub(super) left_out: BTreeSet<String>,
    /// The assets that get a column, sorted.
    pub(super) assets: Vec<String>,
    /// The digest of all files of the plan, which identifies its journal.
    pub(super) digest: [u8; 32],
}

/// The rows of the index, in order.
pub(super) enum IndexRows {
    Items(Vec<Item>, Trust),
    /// Locations without a catalogue, with the ids of their items.
    Bare(Vec<(String, Location)>),
    /// A table, and the rows of each of its row groups to copy.
    ParquetTable(Box<ParquetTable>, Vec<Vec<usize>>),
}

/// The files and items that an index to append to already holds.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Digests of collection, item, asset and file.
    files: HashSet<Name>,
    locations: HashSet<Name>,
    ids: HashSet<String>,
    assets: BTreeSet<String>,
}

impl Known {
    pub(super) fn of(index: &Index) -> Result<Self> {
        let mut known = Self {
            assets: index.keys().map(str::to_owned).collect(),
            ..Self::default()
        };
        index.each_file(|listed| {
            let name = Name::of(&listed.location);
            let file = ItemFile {
                item: listed.item,
                collection: listed.collection,
                asset: listed.asset,
            };
            known.files.insert(file.name(name));
            known.locations.insert(name);
            if !known.ids.contains(listed.item) {
                known.ids.insert(listed.item.to_owned());
            }
            Ok(())
        })?;
        Ok(known)
    }
}

impl ItemFile<'_> {
    fn name(&self, location: Name) -> Name {
        let mut hash = Sha256::new();
        // Lengths keep `a` + `bc` apart from `ab` + `c`.
        for part in [self.collection.unwrap_or_default(), self.item, self.asset] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update(location.bytes());
        Name::of_digest(hash)
    }
}

/// Which assets of items are indexed.
pub(super) struct Chosen<'a> {
    pub(super) keys: Option<&'a [String]>,
}

impl Chosen<'_> {
    /// Returns true if an asset is indexed: it is named, or none are named and it is a GeoTIFF.
    pub(super) fn takes<'a>(
        &self,
        key: &str,
        href: &str,
        media: Option<&str>,
        mut roles: impl Iterator<Item = &'a str>,
    ) -> bool {
        if let Some(keys) = self.keys {
            return keys.iter().any(|one| one == key);
        }
        if key == "thumbnail" || roles.any(|role| role == "thumbnail") {
            return false;
        }
        match media {
            Some(media) => media.to_ascii_lowercase().contains("tiff"),
            None => is_tiff(href),
        }
    }

    fn of_item<'a>(&self, item: &'a Item) -> impl Iterator<Item = (&'a str, &'a stac::Asset)> {
        item.assets
            .iter()
            .filter(|(key, asset)| {
                let roles = asset.roles.iter().map(String::as_str);
                self.takes(key, &asset.href, asset.r#type.as_deref(), roles)
            })
            .map(|(key, asset)| (key.as_str(), asset))
    }
}

/// Returns true if an address has the extension of a TIFF.
fn is_tiff(href: &str) -> bool {
    let path = href.split(['?', '#']).next().unwrap_or_default();
    let ending = path.rsplit_once('.').map(|(_, ending)| ending);
    ending.is_some_and(|ending| {
        ending.eq_ignore_ascii_case("tif") || ending.eq_ignore_ascii_case("tiff")
    })
}

/// Collects the files of a plan.
struct Planner<'a> {
    known: &'a Known,
    jobs: Vec<HeaderJob>,
    seen: HashSet<Name>,
    refused: Vec<(String, Error)>,
    left_out: BTreeSet<String>,
    assets: HashSet<String>,
    /// The assets of all items, and of the index to append to.
    there: BTreeSet<String>,
    hash: Sha256,
}

impl Planner<'_> {
    /// Adds a file; returns false if the index to append to already holds it.
    fn take(
        &mut self,
        file: &ItemFile<'_>,
        location: Location,
        more: Option<&stac::Asset>,
    ) -> bool {
        let name = Name::of(&location);
        if self.known.files.contains(&file.name(name)) {
            return false;
        }
        // Items of a plan may share a file: it is part of the digest for each, but read once.
        self.hash.update(file.name(name).bytes());
        if !self.assets.contains(file.asset) {
            self.assets.insert(file.asset.to_owned());
        }
        if let Location::Http(url) = &location {
            self.left_out.extend(store::left_out(url));
        }
        if self.seen.insert(name) {
            let checksum = more.and_then(|asset| {
                let text = asset.additional_fields.get("file:checksum")?.as_str()?;
                Some(text.to_owned())
            });
            self.jobs.push(HeaderJob {
                name,
                location,
                header_bytes: more.and_then(catalogue::header_bytes),
                checksum,
            });
        }
        true
    }

    fn refuse(&mut self, asset: &str, href: &str, err: Error) {
        self.assets.insert(asset.to_owned());
        self.refused.push((crate::location::redact(href), err));
    }
}

impl BuildPlan {
    /// Returns true if there is no item to write.
    pub(super) fn is_empty(&self) -> bool {
        match &self.rows {
            IndexRows::Items(items, _) => items.is_empty(),
            IndexRows::Bare(files) => files.is_empty(),
            IndexRows::ParquetTable(_, groups) => groups.iter().all(Vec::is_empty),
        }
    }

    /// Plans a build. A prefix costs a listing; the other inputs cost no request.
    ///
    /// # Errors
    ///
    /// Errors of the store for a listing; [`ErrorKind::Corrupt`] for a file that is not stac-geoparquet.
    pub(super) async fn of(
        session: &Session,
        input: Input,
        keys: Option<Vec<String>>,
        known: Known,
    ) -> Result<Self> {
        let input = match input {
            Input::Prefix(prefix) => Input::Locations(listed(session, &prefix).await?),
            other => other,
        };
        let session = session.clone();
        // On a blocking thread: it hashes the address of every file, which takes long for millions.
        let plan = move || Self::on_disk(&session, input, keys.as_deref(), &known);
        tokio::task::spawn_blocking(plan).await.map_err(|_| {
            Error::new(
                ErrorKind::Unavailable,
                "the plan's task panicked or was cancelled",
            )
        })?
    }

    fn on_disk(
        session: &Session,
        input: Input,
        keys: Option<&[String]>,
        known: &Known,
    ) -> Result<Self> {
        let chosen = Chosen { keys };
        let mut planner = Planner {
            known,
            jobs: Vec::new(),
            seen: HashSet::new(),
            refused: Vec::new(),
            left_out: BTreeSet::new(),
            assets: HashSet::new(),
            there: known.assets.clone(),
            hash: Sha256::new(),
        };
        let rows = match input {
            Input::Items(items, trust) => planner.items(session, items, trust, &chosen),
            Input::Locations(locations) => planner.bare(locations),
            Input::Parquet(path, is_own) => {
                planner.table(ParquetTable::open(&path)?, &chosen, is_own.as_ref())?
            }
            Input::Prefix(_) => IndexRows::Bare(Vec::new()),
        };
        let lacking = |key: &&String| !planner.there.contains(key.as_str());
        // Of no item at all there is another word: nothing to index.
        if let Some(key) = keys.into_iter().flatten().find(lacking)
            && !planner.there.is_empty()
        {
            let known: Vec<&str> = planner.there.iter().map(String::as_str).take(100).collect();
            let message = format!(
                "no item has the asset `{}`; there are: {}",
                key.escape_debug(),
                known.join(", ").escape_debug()
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        // Named assets get a column even if no new item has them, so that queries on it do not fail.
        planner.assets.extend(keys.into_iter().flatten().cloned());
        let mut assets: Vec<String> = planner.assets.into_iter().collect();
        assets.sort();
        Ok(Self {
            rows,
            jobs: planner.jobs,
            refused: planner.refused,
            left_out: planner.left_out,
            assets,
            digest: planner.hash.finalize().into(),
        })
    }
}

impl Planner<'_> {
    fn items(
        &mut self,
        session: &Session,
        items: Vec<Item>,
        trust: Trust,
        chosen: &Chosen<'_>,
    ) -> IndexRows {
        let retained = items.into_iter().filter_map(|mut item| {
            for key in item.assets.keys() {
                if !self.there.contains(key) {
                    self.there.insert(key.clone());
                }
            }
            let (mut files, mut fresh) = (0, 0);
            for (key, asset) in chosen.of_item(&item) {
                files += 1;
                let location = Location::parse_from(&asset.href, trust);
                let stores = session.stores();
                match location.map(|named| stores.reach(&item, asset, named, trust, None)) {
                    Ok(location) => {
                        let file = ItemFile {
                            item: &item.id,
                            collection: item.collection.as_deref(),
                            asset: key,
                        };
                        fresh += usize::from(self.take(&file, location, Some(asset)));
                    }
                    Err(err) => {
                        fresh += 1;
                        self.refuse(key, &asset.href, err);
                    }
                }
            }
            // An item without files to index is added too, unless the index already holds it.
            let is_new = fresh > 0 || (files == 0 && !self.known.ids.contains(&item.id));
            // Who reads the index does not know whose items it holds: it names nothing that they may not.
            item.assets.retain(|_, asset| {
                let parsed = Location::parse_from(&asset.href, trust);
                !parsed.is_err_and(|err| err.kind() == ErrorKind::Denied)
            });
            is_new.then_some(item)
        });
        IndexRows::Items(retained.collect(), trust)
    }

    fn bare(&mut self, locations: Vec<Location>) -> IndexRows {
        let mut seen = HashSet::new();
        let fresh: Vec<Location> = locations
            .into_iter()
            .map(|location| match location {
                // A relative path would name another file when the index is read from another folder.
                Location::Local(path) => {
                    Location::Local(std::path::absolute(&path).unwrap_or(path))
                }
                other => other,
            })
            .filter(|location| {
                let name = Name::of(location);
                seen.insert(name) && !self.known.locations.contains(&name)
            })
            .collect();
        let known = self.known;
        let ids = bare::ids(&fresh, |id| known.ids.contains(id));
        let rows: Vec<(String, Location)> = ids.into_iter().zip(fresh).collect();
        self.assets.insert(bare::ASSET.to_owned());
        self.there.insert(bare::ASSET.to_owned());
        for (id, location) in &rows {
            let file = ItemFile {
                item: id,
                collection: None,
                asset: bare::ASSET,
            };
            self.take(&file, location.clone(), None);
        }
        IndexRows::Bare(rows)
    }

    fn table(
        &mut self,
        table: ParquetTable,
        chosen: &Chosen<'_>,
        is_own: Option<&IsOwn>,
    ) -> Result<IndexRows> {
        for column in [&["id"][..], &["geometry"]] {
            if table.leaf(column).is_none() {
                let message = format!(
                    "not stac-geoparquet: expected a column `{}`",
                    column.join(".")
                );
                return Err(Error::new(ErrorKind::Corrupt, message).at(table.path().display()));
            }
        }
        let mask = table.mask(&[&["id"], &["collection"], &[ASSETS]]);
        let mut retained = Vec::new();
        for group in 0..table.groups() {
            let mut rows = Vec::new();
            let mut start = 0;
            for batch in table.read(group, &mask, None, ROWS_AT_ONCE)? {
                let batch = batch?;
                for row in self.batch(&batch, chosen, is_own) {
                    rows.push(start + row);
                }
                start += batch.num_rows();
            }
            retained.push(rows);
        }
        Ok(IndexRows::ParquetTable(Box::new(table), retained))
    }

    /// Adds the files of a batch; returns the rows that are new.
    fn batch(
        &mut self,
        batch: &RecordBatch,
        chosen: &Chosen<'_>,
        is_own: Option<&IsOwn>,
    ) -> Vec<usize> {
        let texts = |name: &str| batch.column_by_name(name)?.as_string_opt::<i32>();
        let (ids, collections) = (texts("id"), texts("collection"));
        let columns = files_of(batch);
        for column in &columns {
            if !self.there.contains(column.key) {
                self.there.insert(column.key.to_owned());
            }
        }
        let mut retained = Vec::new();
        for row in 0..batch.num_rows() {
            let text = |column: Option<&'_ StringArray>| -> Option<String> {
                let column = column.filter(|column| column.is_valid(row))?;
                Some(column.value(row).to_owned())
            };
            let id = text(ids).unwrap_or_default();
            let collection = text(collections);
            let (mut files, mut fresh) = (0, 0);
            for column in &columns {
                let Some((href, location)) = column.file(row, chosen) else {
                    continue;
                };
                files += 1;
                let file = ItemFile {
                    item: &id,
                    collection: collection.as_deref(),
                    asset: column.key,
                };
                let location = match is_own {
                    Some(IsOwn(is_own)) => Location::parse_handed_over(href, |path| is_own(path)),
                    None => location,
                };
                match location {
                    Ok(location) => fresh += usize::from(self.take(&file, location, None)),
                    Err(err) => {
                        fresh += 1;
                        self.refuse(column.key, href, err);
                    }
                }
            }
            if fresh > 0 || (files == 0 && !self.known.ids.contains(&id)) {
                retained.push(row);
            }
        }
        retained
    }
}

/// The columns of one asset in a batch of stac-geoparquet.
pub(super) struct Files<'a> {
    pub(super) key: &'a str,
    href: &'a StringArray,
    media: Option<&'a StringArray>,
    roles: Option<&'a ListArray>,
}

impl<'a> Files<'a> {
    /// Returns the file of a row, if it has one to index.
    pub(super) fn file(
        &self,
        row: usize,
        chosen: &Chosen<'_>,
    ) -> Option<(&'a str, Result<Location>)> {
        if self.href.is_null(row) {
            return None;
        }
        let href = self.href.value(row);
        let media = self.media.filter(|media| media.is_valid(row));
        let roles = self.roles.filter(|roles| roles.is_valid(row));
        let roles = roles.map(|roles| roles.value(row));
        let roles = roles
            .as_ref()
            .and_then(|roles| roles.as_string_opt::<i32>());
        let roles = roles.into_iter().flatten().flatten();
        let media = media.map(|media| media.value(row));
        let meant = chosen.takes(self.key, href, media, roles);
        meant.then(|| (href, Location::parse_from(href, Trust::User)))
    }
}

/// Returns the assets of a batch.
pub(super) fn files_of(batch: &RecordBatch) -> Vec<Files<'_>> {
    let assets = batch
        .column_by_name(ASSETS)
        .and_then(|column| column.as_struct_opt());
    let Some(assets) = assets else {
        return Vec::new();
    };
    let column =
        |key: &'_ str| -> Option<&StructArray> { assets.column_by_name(key)?.as_struct_opt() };
    let keys = assets.column_names().into_iter();
    keys.filter_map(|key| {
        let column = column(key)?;
        Some(Files {
            key,
            href: href_column(batch, key)?,
            media: column
                .column_by_name("type")
                .and_then(|part| part.as_string_opt()),
            roles: column
                .column_by_name("roles")
                .and_then(|part| part.as_list_opt()),
        })
    })
    .collect()
}

/// Lists the TIFFs below a prefix of a bucket.
async fn listed(session: &Session, prefix: &Location) -> Result<Vec<Location>> {
    if matches!(prefix, Location::Http(_)) {
        let message = "HTTP has no listing: expected s3://, gs://, az:// or a folder";
        return Err(Error::new(ErrorKind::InvalidInput, message).at(prefix));
    }
    let (store, path) = session.stores().store(prefix)?;
    let found: Vec<object_store::ObjectMeta> = store
        .list(Some(&path))
        .try_filter(|meta| std::future::ready(is_tiff(meta.location.as_ref())))
        .try_collect()
        .await
        .map_err(|err| store::error(&err, prefix))?;
    let mut found: Vec<Location> = found
        .into_iter()
        .map(|meta| {
            let key = meta.location.to_string();
            match prefix.clone() {
                Location::S3 { bucket, .. } => Location::S3 { bucket, key },
                Location::Gcs { bucket, .. } => Location::Gcs { bucket, key },
                Location::Azure { container, .. } => Location::Azure { container, key },
                _ => Location::Local(PathBuf::from(format!("/{key}"))),
            }
        })
        .collect();
    // Stores list in different orders; a sorted plan has the same digest when the build is resumed.
    found.sort_by_key(Location::to_href);
    Ok(found)
}
