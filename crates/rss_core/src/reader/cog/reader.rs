//! One open COG: the header in memory, tiles on demand.

use std::{
    fmt,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use ndarray::Array3;

use super::{
    decode::{self, BandTarget, TileJob},
    directory::{Parts, Stop},
    index::{self, Index},
    last_word,
    level::{Compression, Level, Stored, Tables},
    locate::Source,
    plan::{self, Needed},
    samples::{self, Value},
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{TileIndex, Window},
    location::Location,
    raster::{Canvas, Raster, Rest, Sample, Sparse, Wanted, with_type},
    reader::{
        Backend, Entry, Masking, Profile, RasterReader, ReadPlan, ReadRequest, Resolved, Tiles,
        mask,
    },
    session::Session,
    store::{Disk, Fetch, Merge, Object, Version, coalesce, spawned},
};

/// Bytes of the TIFF header, which has the offset of the first directory.
const LEAST_BYTES: usize = 8;
/// The smallest further request for header bytes: the tables often follow the directory.
const READAHEAD_BYTES: u64 = 32 * 1024;
// Bounds of the first request, where the caller states the size of the header.
const LEAST_HEADER_BYTES: u64 = 1024;
const MOST_HEADER_BYTES: u64 = 4 << 20;
/// Rounds of requests for header bytes. A chain of directories needs one for each directory that is not
/// fetched yet, so a file could otherwise cost any number.
const MOST_HEADER_FETCHES: usize = 32;
/// Concurrent requests of one read.
const FETCHES_AT_ONCE: usize = 32;
/// Concurrent reads of one `read_many`.
const READS_AT_ONCE: usize = 16;
/// Decoded bytes of the tiles that one read decodes at once; one larger tile is decoded alone.
const BYTES_AT_ONCE: usize = 512 << 20;
/// Tiles of one image that an index may hold: those of a million by a million pixels in tiles of 512.
const MOST_INDEXED: u64 = 4 << 20;
/// Entries of tile tables that are read at once to fill an index.
const INDEXED_AT_ONCE: usize = 1 << 20;

/// Opens a file. A header that is damaged, or of a file that changed meanwhile, is fetched once more, unless `once`: it may
/// be damaged on the way only.
pub(crate) async fn open(
    session: &Session,
    location: &Location,
    header_bytes: Option<u64>,
    once: bool,
) -> Result<Arc<dyn RasterReader>> {
    let first = header_bytes
        .map(|bytes| bytes.clamp(LEAST_HEADER_BYTES, MOST_HEADER_BYTES))
        .unwrap_or_else(|| session.header_bytes(location));
    let opened = open_once(session, location, first).await;
    let is_damaged = match &opened {
        Ok(cog) => cog.0.index.is_cut,
        Err(err) => super::may_be_damaged(err),
    };
    let cog = match is_damaged && !once && location.as_local().is_none() {
        true => {
            tracing::debug!(target: "rss_core::retry", %location, "a damaged header: fetched once more");
            open_once(session, location, first).await?
        }
        false => opened?,
    };
    let index = &cog.0.index;
    // A header at the end of the file must not make the first request to its neighbours larger.
    if index.header_bytes <= MOST_HEADER_BYTES {
        session.learn_header(location, index.header_bytes);
    }
    Ok(Arc::new(cog))
}

async fn open_once(session: &Session, location: &Location, first: u64) -> Result<Cog> {
    let (object, bytes) = Object::open(session.stores(), location, first).await?;
    if bytes.len() < LEAST_BYTES {
        let why = format!("it has {} bytes", bytes.len());
        return Err(super::not_a_tiff(why, true).at(location));
    }
    let mut parts = Parts::default();
    parts.add(0, bytes);
    let index = complete(&object, &mut parts, |parts| {
        index::parse(parts, object.size())
    })
    .await
    .map_err(|err| err.at(location))?;
    Cog::new(session, location, object, index, parts)
}

/// Opens a file by its entry in an index, without a request.
pub(crate) async fn open_entry(session: &Session, entry: &Entry) -> Result<Arc<dyn RasterReader>> {
    let location = &entry.location;
    let index = Index::of_header(&entry.header).map_err(|err| err.at(location))?;
    let object = Object::known(session.stores(), location, &entry.version).await?;
    let cog = Cog::new(session, location, object, index, Parts::default())?;
    Ok(Arc::new(cog))
}

/// Runs `step` until the bytes it needs are fetched; several ranges are fetched in parallel.
async fn complete<T>(
    object: &Object,
    parts: &mut Parts,
    step: impl Fn(&Parts) -> Result<T, Stop>,
) -> Result<T> {
    for _ in 0..MOST_HEADER_FETCHES {
        let missing = match step(parts) {
            Ok(done) => return Ok(done),
            Err(Stop::Failed(err)) => return Err(err),
            Err(Stop::Missing(ranges)) => ranges,
        };
        if let Some(end) = missing
            .iter()
            .map(|range| range.end)
            .find(|&end| end > object.size())
        {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!(
                    "its header has offsets up to byte {end} of a file of {} bytes",
                    object.size()
                ),
            ));
        }
        let fetches = missing.into_iter().map(|range| async move {
            let end = range
                .end
                .max(range.start.saturating_add(READAHEAD_BYTES))
                .min(object.size());
            let bytes = object.fetch(range.start..end).await?;
            Ok::<_, Error>((range.start, bytes))
        });
        let mut fetched = stream::iter(fetches).buffered(FETCHES_AT_ONCE);
        while let Some((start, bytes)) = fetched.try_next().await? {
            parts.add(start, bytes);
        }
    }
    Err(last_word(
        ErrorKind::Unsupported,
        format!("its header takes more than {MOST_HEADER_FETCHES} requests"),
    ))
}

fn profile(index: &Index) -> Result<Profile> {
    let mut levels = index.levels.iter();
    let Some(full) = levels.next() else {
        return Err(Error::new(ErrorKind::Corrupt, "it has no image"));
    };
    let facts = &index.facts;
    let has_mask = index.masks.first().is_some_and(Option::is_some);
    Ok(Profile {
        size: full.size,
        count: full.bands,
        dtype: full.dtype,
        nodata: facts.nodata,
        crs: facts.crs.clone(),
        transform: facts.transform,
        tile: full.tile,
        compression: compression(full).map(str::to_owned),
        predictor: (full.predictor > 1).then_some(full.predictor),
        overviews: levels.map(|level| level.size).collect(),
        masking: Masking::of(has_mask, facts.nodata, full.dtype, &facts.bands),
        bands: facts.bands.clone(),
        palette: facts.palette.clone(),
        pixel_is_point: facts.is_point,
        metadata: facts.metadata.iter().cloned().collect(),
        gcps: facts.gcps,
        notes: index.notes.clone(),
    })
}

/// Returns GDAL's name of a compression.
fn compression(level: &Level) -> Option<&'static str> {
    match level.compression {
        Compression::Jpeg if level.photometric == 6 => Some("YCbCr JPEG"),
        compression => compression.name(),
    }
}

#[derive(Clone)]
struct Cog(Arc<Inner>);

struct Inner {
    session: Session,
    location: Location,
    object: Object,
    index: Index,
    profile: Profile,
    parts: Mutex<Parts>,
}

impl fmt::Debug for Cog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cog")
            .field("location", &self.0.location)
            .field("profile", &self.0.profile)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl RasterReader for Cog {
    fn backend(&self) -> Backend {
        Backend::Cog
    }

    fn location(&self) -> &Location {
        &self.0.location
    }

    fn version(&self) -> Option<&Version> {
        Some(self.0.object.version())
    }

    fn profile(&self) -> &Profile {
        &self.0.profile
    }

    async fn read(&self, request: &ReadRequest) -> Result<Raster> {
        let inner = &self.0;
        let resolved = request
            .resolve(&inner.profile, inner.session.settings().read_bytes)
            .map_err(|err| err.at(&inner.location))?;
        let geobox = inner.profile.geobox(resolved.level_size, &resolved.window);
        let image = ImageRef::Level(request.level);
        let mut sparse = Vec::new();
        let pixels = with_type!(inner.profile.dtype, T => {
            Sample::wrap(self.samples::<T>(image, &resolved, request.once, &mut sparse).await?)
        });
        Ok(Raster {
            pixels,
            geobox,
            nodata: inner.profile.nodata,
            sparse,
        })
    }

    async fn read_mask(&self, request: &ReadRequest) -> Result<Raster> {
        let (profile, most) = (&self.0.profile, self.0.session.settings().read_bytes);
        let stored = async {
            let image = ImageRef::Mask(request.level);
            let mut resolved = request.resolve(profile, most)?;
            let level = self.0.image(image)?;
            // A mask has one band that all bands share, or one for each band.
            match level.bands {
                1 => resolved.bands = vec![0],
                _ => resolved.bands.truncate(1),
            }
            let mut sparse = Vec::new();
            let once = request.once;
            let mut mask = self
                .samples::<u8>(image, &resolved, once, &mut sparse)
                .await?;
            if level.stored == Stored::Bits(1) {
                mask.mapv_inplace(|bit| if bit == 0 { 0 } else { u8::MAX });
            }
            Ok(Raster {
                pixels: Sample::wrap(mask),
                geobox: profile.geobox(resolved.level_size, &resolved.window),
                nodata: None,
                sparse,
            })
        };
        let read = mask::read(self, request, most, stored).await;
        read.map_err(|err| err.at(&self.0.location))
    }

    fn plan(&self, request: &ReadRequest) -> Result<Option<ReadPlan>> {
        let inner = &self.0;
        let plan = || {
            let most_bytes = inner.session.settings().read_bytes;
            let resolved = request.resolve(&inner.profile, most_bytes)?;
            let level = inner.image(ImageRef::Level(request.level))?;
            let tile_bytes = decode::tile_bytes(level)?;
            let needed = plan::needed(level, &resolved)?;
            let numbers: Vec<u64> = needed.iter().map(|needed| needed.number).collect();
            let parts = self.parts().clone();
            // A plan sends no request: without the entries of the tables there is none.
            let ranges = match level.ranges(&numbers, inner.source(&parts)) {
                Ok(ranges) => ranges,
                Err(Stop::Missing(_)) => return Ok(None),
                Err(Stop::Failed(err)) => return Err(err),
            };
            let ranges = ranges
                .into_iter()
                .map(|range| stored(level, range, tile_bytes as u64))
                .collect::<Result<Vec<_>>>()?;
            let tiles = ranges.iter().filter(|range| !range.is_empty()).count() as u64;
            let sparse_tiles = ranges.len() as u64 - tiles;
            let fetches = match inner.object.disk() {
                Some(_) => Vec::new(),
                None => coalesce(&ranges, self.merge()),
            };
            let lengths = fetches
                .iter()
                .map(|fetch| fetch.range.end - fetch.range.start);
            Ok(Some(ReadPlan {
                tiles,
                sparse_tiles,
                requests: fetches.len() as u64,
                bytes: lengths.sum(),
            }))
        };
        plan().map_err(|err: Error| err.at(&inner.location))
    }

    async fn entry(&self) -> Result<Entry> {
        let inner = &self.0;
        let mut tiles = Vec::new();
        for level in inner.index.images() {
            tiles.push(self.tiles(level).await?);
        }
        let header = inner.index.header(tiles);
        let header = header.map_err(|err| err.at(&inner.location))?;
        let version = inner.object.version().clone();
        Ok(Entry::new(inner.location.clone(), version, header))
    }

    async fn read_many(&self, requests: &[ReadRequest]) -> Result<Vec<Raster>> {
        stream::iter(requests.to_vec())
            .map(|request| async move { self.read(&request).await })
            .buffered(READS_AT_ONCE)
            .try_collect()
            .await
    }
}

/// An image of the file.
#[derive(Clone, Copy, Debug)]
enum ImageRef {
    Level(usize),
    /// The mask of a level.
    Mask(usize),
}

impl Inner {
    /// Returns what the tables of tiles are read from.
    fn source<'a>(&self, parts: &'a Parts) -> Source<'a> {
        Source {
            little_endian: self.index.little_endian,
            file_bytes: self.object.size(),
            parts,
        }
    }

    /// Returns an image's layout.
    fn image(&self, image: ImageRef) -> Result<&Level> {
        let found = match image {
            ImageRef::Level(number) => self.index.levels.get(number),
            ImageRef::Mask(number) => self.index.masks.get(number).and_then(Option::as_ref),
        };
        found.ok_or_else(|| match image {
            ImageRef::Level(number) => {
                Error::new(ErrorKind::InvalidInput, format!("no level {number}"))
            }
            ImageRef::Mask(number) => Error::new(
                ErrorKind::Unsupported,
                format!("level {number} has no internal mask"),
            ),
        })
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Level(number) => write!(f, "level {number}"),
            Self::Mask(number) => write!(f, "the mask of level {number}"),
        }
    }
}

/// A tile to decode, and the slots of the output for its samples.
struct Task<T> {
    at: TileIndex,
    job: TileJob,
    targets: Vec<BandTarget<T>>,
}

/// One request, and the ranges of its response that are tiles.
struct Batch<T> {
    range: Range<u64>,
    tiles: Vec<(StoredTile<T>, Range<usize>)>,
}

/// A tile to decode, and its range of the file.
type StoredTile<T> = (Task<T>, Range<u64>);

/// A tile that could not be decoded, and may be from other bytes.
struct Undecoded<T> {
    task: Task<T>,
    err: Error,
}

impl Cog {
    fn new(
        session: &Session,
        location: &Location,
        object: Object,
        index: Index,
        parts: Parts,
    ) -> Result<Self> {
        let profile = profile(&index).map_err(|err| err.at(location))?;
        // Tiles past the limit are refused when the file is opened, so that `Auto` falls back to GDAL then.
        for level in &index.levels {
            decode::tile_bytes(level).map_err(|err| err.at(location))?;
        }
        Ok(Self(Arc::new(Inner {
            session: session.clone(),
            location: location.clone(),
            object,
            index,
            profile,
            parts: Mutex::new(parts),
        })))
    }

    /// Returns offsets and byte counts of all tiles of an image.
    async fn tiles(&self, level: &Level) -> Result<Tiles> {
        if let Tables::Known(tiles) = &level.tables {
            return Ok(Tiles::clone(tiles));
        }
        let count = level.tiles();
        if count > MOST_INDEXED {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("an image of {count} tiles, past the limit of {MOST_INDEXED} of an index"),
            )
            .at(&self.0.location));
        }
        let mut tiles = Tiles::default();
        let numbers: Vec<u64> = (0..count).collect();
        // In chunks: one read of a table is bounded, and so are the parts of it in memory.
        for numbers in numbers.chunks(INDEXED_AT_ONCE) {
            let step = |parts: &Parts| level.tiles_of(numbers, self.0.source(parts));
            let more = self.in_tables(step).await?;
            tiles.offsets.extend(more.offsets);
            tiles.byte_counts.extend(more.byte_counts);
        }
        Ok(tiles)
    }

    /// Reads one window: requests run in parallel, and each tile is decoded as it arrives. Sparse tiles
    /// are filled and added to `sparse`. With `once` a damaged tile is not fetched once more.
    async fn samples<T: Value>(
        &self,
        image: ImageRef,
        resolved: &Resolved,
        once: bool,
        sparse: &mut Vec<Sparse>,
    ) -> Result<Array3<T>> {
        let inner = &self.0;
        let at_file = |err: Error| err.at(&inner.location);
        let level = inner.image(image).map_err(at_file)?;
        let tile_bytes = decode::tile_bytes(level).map_err(at_file)?;

        let needed = plan::needed(level, resolved).map_err(at_file)?;
        let numbers: Vec<u64> = needed.iter().map(|needed| needed.number).collect();
        let ranges = self.ranges(level, &numbers).await?;
        let ranges: Vec<Range<u64>> = ranges
            .into_iter()
            .map(|range| stored(level, range, tile_bytes as u64))
            .collect::<Result<_>>()
            .map_err(at_file)?;
        // The output is allocated after the ranges are checked, and before any tile is fetched.
        let (rest, tasks) = self.tasks::<T>(resolved, &needed).map_err(at_file)?;
        let mut tasks: Vec<Option<Task<T>>> = tasks.into_iter().map(Some).collect();
        for ((task, range), needed) in tasks.iter_mut().zip(&ranges).zip(&needed) {
            // A sparse tile: it is not stored, so it is filled and not fetched.
            if range.is_empty()
                && let Some(task) = task.take()
            {
                let value = samples::fill::<T>(match image {
                    ImageRef::Level(_) => inner.index.facts.nodata,
                    // Sparse tiles of a mask are 0: masked.
                    ImageRef::Mask(_) => None,
                });
                for mut target in task.targets {
                    target.slot.fill(value);
                }
                let window = Window {
                    col: needed.job.wanted.col - resolved.window.col,
                    row: needed.job.wanted.row - resolved.window.row,
                    ..needed.job.wanted
                };
                sparse.extend(needed.bands.iter().map(|band| Sparse {
                    band: band.in_output,
                    window,
                }));
            }
        }
        let stored: Vec<StoredTile<T>> = tasks
            .into_iter()
            .zip(ranges)
            .filter_map(|(task, range)| Some((task?, range)))
            .collect();
        match inner.object.disk() {
            Some(disk) => self.read_disk(image, disk, stored, tile_bytes).await?,
            None => {
                // Its requests hold permits and shares.
                let reader = self.clone();
                let reading =
                    async move { reader.read_network(image, stored, tile_bytes, once).await };
                spawned(reading).await?;
            }
        }
        rest.join().map_err(at_file)
    }

    /// Reads tiles of a local file, each on the thread that decodes it. They take no share of the budget
    /// of fetched bytes: there are no more of them in memory than threads.
    async fn read_disk<T: Value>(
        &self,
        image: ImageRef,
        disk: &Disk,
        stored: Vec<StoredTile<T>>,
        tile_bytes: usize,
    ) -> Result<()> {
        for (_, range) in &stored {
            self.0.object.check(range)?;
        }
        let jobs = stored.into_iter().map(|(task, range)| {
            let disk = disk.clone();
            async move {
                let decoding = self.on_cpu(image, task, move |decode| disk.with(&range, decode));
                decoding.await?.map_err(|undecoded| undecoded.err)
            }
        });
        stream::iter(jobs)
            .buffer_unordered(self.jobs_at_once(tile_bytes))
            .try_collect()
            .await
    }

    /// Fetches tiles, adjacent ones in one request, and decodes each as it arrives. Tiles whose bytes are damaged are fetched
    /// once more, unless `once`: they may be damaged on the way only.
    async fn read_network<T: Value>(
        &self,
        image: ImageRef,
        stored: Vec<StoredTile<T>>,
        tile_bytes: usize,
        once: bool,
    ) -> Result<()> {
        let inner = &self.0;
        let (tasks, ranges): (Vec<Task<T>>, Vec<Range<u64>>) = stored.into_iter().unzip();
        let mut tasks: Vec<Option<Task<T>>> = tasks.into_iter().map(Some).collect();
        let batches: Vec<Batch<T>> = coalesce(&ranges, self.merge())
            .into_iter()
            .map(|Fetch { range, wanted }| {
                let tiles = wanted.into_iter().filter_map(|i| {
                    let task = tasks.get_mut(i)?.take()?;
                    let stored = ranges.get(i)?;
                    let from = usize::try_from(stored.start - range.start).ok()?;
                    let to = usize::try_from(stored.end - range.start).ok()?;
                    Some(((task, stored.clone()), from..to))
                });
                let tiles = tiles.collect();
                Batch { range, tiles }
            })
            .collect();
        let mut damaged = Vec::new();
        let mut done = stream::iter(batches)
            .map(|Batch { range, tiles }| {
                let arriving = async move {
                    // The share is taken before the permit of the host, which the store takes, and held
                    // until the last tile of the request is decoded: its bytes stay in memory that long.
                    // See docs/decisions/003-byte-budget.md.
                    let share = inner.session.share(range.end - range.start).await;
                    let share = Arc::new(share);
                    let parts = inner.object.fetch_parts(range, tiles);
                    Ok::<_, Error>(parts.map_ok(move |(tile, bytes)| (tile, bytes, share.clone())))
                };
                stream::once(arriving).try_flatten().boxed()
            })
            // A slow response must not hold up tiles of the others, so no order is kept: slots are disjoint.
            .flatten_unordered(FETCHES_AT_ONCE)
            .map_ok(|((task, range), bytes, share)| async move {
                let decoding = self.on_cpu(image, task, move |decode| {
                    let decoded = decode(&bytes);
                    // On the CPU thread: the bytes are in memory until here, though the read may be dropped before.
                    drop(share);
                    decoded
                });
                Ok(decoding.await?.err().map(|undecoded| (undecoded, range)))
            })
            .try_buffer_unordered(self.jobs_at_once(tile_bytes));
        while let Some(failed) = done.try_next().await? {
            match failed {
                Some((undecoded, _)) if once || undecoded.err.kind() != ErrorKind::Corrupt => {
                    return Err(undecoded.err);
                }
                failed => damaged.extend(failed),
            }
        }
        // After the others, so that no share and no permit of theirs is waited for.
        for (Undecoded { task, err }, range) in damaged {
            tracing::debug!(target: "rss_core::retry", "{err}: fetched once more");
            let share = inner.session.share(range.end - range.start).await;
            let bytes = inner.object.fetch(range).await?;
            let decoding = self.on_cpu(image, task, move |decode| decode(&bytes));
            decoding.await?.map_err(|undecoded| undecoded.err)?;
            drop(share);
        }
        Ok(())
    }

    /// Returns how byte ranges are merged into requests.
    fn merge(&self) -> Merge {
        let settings = self.0.session.settings();
        Merge {
            gap_bytes: settings.gap_bytes,
            fetch_bytes: settings.fetch_bytes,
        }
    }

    /// Returns the number of tiles that are decoded or wait for a CPU thread at once: two for each thread,
    /// so that none is idle, within [`BYTES_AT_ONCE`].
    fn jobs_at_once(&self, tile_bytes: usize) -> usize {
        let threads = self.0.session.settings().cpu_threads;
        let most = BYTES_AT_ONCE / tile_bytes.max(1);
        threads.saturating_mul(2).min(most).max(1)
    }

    /// Splits the output into slots for the tiles, which threads write without a lock.
    fn tasks<T: Value>(
        &self,
        resolved: &Resolved,
        needed: &[Needed],
    ) -> Result<(Rest<T>, Vec<Task<T>>)> {
        let wanted: Vec<Wanted> = needed
            .iter()
            .flat_map(|tile| {
                tile.bands.iter().map(|band| Wanted {
                    band: band.in_output,
                    window: tile.job.wanted,
                })
            })
            .collect();
        let canvas = Canvas::<T>::new(resolved.bands.len(), resolved.window)?.in_large_pages();
        let (rest, slots) = canvas.split(&wanted)?;
        let mut slots = slots.into_iter();
        let tasks = needed
            .iter()
            .map(|tile| {
                let bands = tile.bands.iter();
                let targets = bands.zip(slots.by_ref()).map(|(band, slot)| BandTarget {
                    in_tile: band.in_tile,
                    slot,
                });
                Task {
                    at: tile.at,
                    job: tile.job,
                    targets: targets.collect(),
                }
            })
            .collect();
        Ok((rest, tasks))
    }

    /// Decodes one tile on the CPU pool, with the bytes that `give` passes to its argument there. A tile that cannot be decoded
    /// is given back.
    async fn on_cpu<T: Value>(
        &self,
        image: ImageRef,
        task: Task<T>,
        give: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> + Send + 'static,
    ) -> Result<std::result::Result<(), Undecoded<T>>> {
        let inner = Arc::clone(&self.0);
        let Task {
            at,
            job,
            mut targets,
        } = task;
        let decoding = self.0.session.cpu(move || {
            let little_endian = inner.index.little_endian;
            let decoded = inner.image(image).and_then(|level| {
                give(&mut |bytes| decode::decode(level, little_endian, bytes, &job, &mut targets))
            });
            (decoded, targets)
        });
        let (decoded, targets) = decoding.await?;
        Ok(decoded.map_err(|err| Undecoded {
            task: Task { at, job, targets },
            err: Error::new(
                err.kind(),
                format!("tile {},{} of {image}: {}", at.col, at.row, err.message()),
            )
            .with_source(err)
            .at(&self.0.location),
        }))
    }

    /// Returns the byte ranges of tiles, fetching the parts of the tile tables that were not read yet.
    async fn ranges(&self, level: &Level, numbers: &[u64]) -> Result<Vec<Range<u64>>> {
        self.in_tables(|parts| level.ranges(numbers, self.0.source(parts)))
            .await
    }

    /// Runs `step` on the tile tables, fetching the parts of them that it misses.
    async fn in_tables<T>(&self, step: impl Fn(&Parts) -> Result<T, Stop>) -> Result<T> {
        let inner = &self.0;
        // A copy (of references): the lock is not held over a request. Of two concurrent reads the last
        // one wins, and parts that only the other one fetched are fetched again when they are needed.
        let mut parts = self.parts().clone();
        let known = match step(&parts) {
            Ok(known) => return Ok(known),
            Err(Stop::Failed(err)) => Err(err),
            Err(Stop::Missing(_)) => complete(&inner.object, &mut parts, step).await,
        };
        let known = known.map_err(|err| err.at(&inner.location))?;
        *self.parts() = parts;
        Ok(known)
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.0.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the byte range of a tile, bounded: a byte count in a file must not decide how much memory a
/// read takes.
fn stored(level: &Level, range: Range<u64>, tile_bytes: u64) -> Result<Range<u64>> {
    // Bytes past the samples of an uncompressed tile are not fetched.
    if level.compression == Compression::None {
        let end = range.start.saturating_add(tile_bytes).min(range.end);
        return Ok(range.start..end);
    }
    let most = level.most_stored_bytes();
    if range.end - range.start > most {
        return Err(last_word(
            ErrorKind::Corrupt,
            format!(
                "a tile of {tile_bytes} bytes has {} compressed bytes, more than any codec makes of it",
                range.end - range.start
            ),
        ));
    }
    Ok(range)
}
