//! One open COG: the header in memory, tiles on demand.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use ndarray::{Array3, s};

use super::{
    decode::{self, BandOf, Job, Patch, Value},
    gather::Object,
    index::{self, Index, Level, Parts, Stop},
    plan::{self, Merge},
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{TileIndex, Window},
    location::Location,
    raster::{Pixels, Raster, Sample, with_type},
    reader::{Backend, Profile, RasterReader, ReadRequest, Resolved},
    session::Session,
};

/// Bytes of the first request: holds the header of a 10980 x 10980 COG several times over.
const HEADER_BYTES: u64 = 32 * 1024;
/// Bytes that a further request for header bytes brings along.
const READAHEAD_BYTES: u64 = 32 * 1024;
/// Requests for header bytes that one file may cost.
const MOST_HEADER_FETCHES: usize = 32;
/// Requests of one read that are under way at once.
const FETCHES_AT_ONCE: usize = 32;
/// Reads of one `read_many` that are under way at once.
const READS_AT_ONCE: usize = 16;
/// How tiles are merged into requests: a gap costs bandwidth, a request latency.
const MERGE: Merge = Merge {
    gap_bytes: 64 * 1024,
    fetch_bytes: 8 << 20,
};

pub(crate) async fn open(session: &Session, location: &Location) -> Result<Arc<dyn RasterReader>> {
    let (store, path) = session.stores().store(location)?;
    let (object, bytes) = Object::open(store, path, location.clone(), HEADER_BYTES).await?;
    let mut parts = Parts::default();
    parts.add(0, bytes);
    let index = complete(&object, &mut parts, index::parse)
        .await
        .map_err(|err| err.at(location))?;
    let profile = profile(&index)?;
    Ok(Arc::new(Cog(Arc::new(Inner {
        session: session.clone(),
        location: location.clone(),
        object,
        index,
        profile,
        parts: Mutex::new(parts),
    }))))
}

/// Runs `step` until the bytes it needs are there.
async fn complete<T>(
    object: &Object,
    parts: &mut Parts,
    step: impl Fn(&Parts) -> Result<T, Stop>,
) -> Result<T> {
    for _ in 0..MOST_HEADER_FETCHES {
        let missing = match step(parts) {
            Ok(done) => return Ok(done),
            Err(Stop::Failed(err)) => return Err(err),
            Err(Stop::Missing(range)) => range,
        };
        if missing.end > object.size() {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!(
                    "its header points to bytes up to {}, but it has {} bytes",
                    missing.end,
                    object.size()
                ),
            ));
        }
        let end = missing
            .end
            .max(missing.start + READAHEAD_BYTES)
            .min(object.size());
        let bytes = object.fetch(missing.start..end).await?;
        parts.add(missing.start, bytes);
    }
    Err(Error::new(
        ErrorKind::Unsupported,
        format!("its header lies in more than {MOST_HEADER_FETCHES} places"),
    ))
}

fn profile(index: &Index) -> Result<Profile> {
    let mut levels = index.levels.iter();
    let Some(full) = levels.next() else {
        return Err(Error::new(ErrorKind::Corrupt, "it has no image"));
    };
    Ok(Profile {
        size: full.size,
        count: full.bands,
        dtype: full.dtype,
        nodata: index.nodata,
        crs: index.crs.clone(),
        transform: index.transform,
        tile: full.tile,
        compression: full.compression.name().map(str::to_owned),
        predictor: (full.predictor > 1).then_some(full.predictor),
        overviews: levels.map(|level| level.size).collect(),
        scale: index.scale,
        offset: index.offset,
    })
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
        Backend::AsyncTiff
    }

    fn location(&self) -> &Location {
        &self.0.location
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
        let level = request.level;
        let pixels = with_type!(inner.profile.dtype, T => {
            Sample::wrap(self.samples::<T>(level, &resolved).await?)
        });
        Ok(Raster {
            pixels,
            geobox,
            nodata: inner.profile.nodata,
        })
    }

    async fn read_many(&self, requests: &[ReadRequest]) -> Result<Vec<Raster>> {
        stream::iter(requests.to_vec())
            .map(|request| async move { self.read(&request).await })
            .buffered(READS_AT_ONCE)
            .try_collect()
            .await
    }
}

/// A tile that is needed: which, and what of it.
#[derive(Clone, Debug)]
struct Needed {
    number: u64,
    at: TileIndex,
    job: Job,
}

impl Cog {
    /// Reads one window: fetches run at once, and each tile is decoded as it arrives.
    async fn samples<T: Value>(&self, level: usize, resolved: &Resolved) -> Result<Array3<T>> {
        let inner = &self.0;
        let number = level;
        let level = inner
            .index
            .levels
            .get(level)
            .ok_or_else(|| Error::new(ErrorKind::InvalidInput, format!("no level {level}")))?;
        decode::tile_bytes(level).map_err(|err| err.at(&inner.location))?;
        let window = resolved.window;
        let mut output = Pixels::zeros(T::DTYPE, resolved.bands.len(), window.size())
            .map(|_| {
                let shape = (
                    resolved.bands.len(),
                    window.height as usize,
                    window.width as usize,
                );
                Array3::from_elem(shape, decode::fill::<T>(inner.index.nodata))
            })
            .map_err(|err| err.at(&inner.location))?;

        let needed = needed(level, resolved);
        let numbers: Vec<u64> = needed.iter().map(|needed| needed.number).collect();
        let ranges = self.ranges(level, &numbers).await?;
        let fetches = plan::coalesce(&ranges, MERGE);
        let mut patches = stream::iter(fetches)
            .map(|fetch| {
                let (needed, ranges) = (&needed, &ranges);
                async move {
                    let bytes = inner.object.fetch(fetch.range.clone()).await?;
                    let tiles: Vec<(Needed, Bytes)> = fetch
                        .wanted
                        .iter()
                        .filter_map(|&i| {
                            let (needed, range) = (needed.get(i)?, ranges.get(i)?);
                            let from = usize::try_from(range.start - fetch.range.start).ok()?;
                            let to = usize::try_from(range.end - fetch.range.start).ok()?;
                            Some((needed.clone(), bytes.slice(from..to)))
                        })
                        .collect();
                    Ok::<_, Error>(tiles)
                }
            })
            .buffer_unordered(FETCHES_AT_ONCE)
            .map_ok(|tiles| stream::iter(tiles.into_iter().map(Ok::<_, Error>)))
            .try_flatten()
            .map_ok(|(needed, bytes)| self.decoded::<T>(number, needed, bytes))
            .try_buffer_unordered(
                inner
                    .session
                    .settings()
                    .cpu_threads
                    .saturating_mul(2)
                    .max(1),
            );
        while let Some(tile) = patches.try_next().await? {
            for patch in tile {
                place(&mut output, &window, patch)?;
            }
        }
        Ok(output)
    }

    /// Decodes one tile on the CPU pool.
    async fn decoded<T: Value>(
        &self,
        level: usize,
        needed: Needed,
        bytes: Bytes,
    ) -> Result<Vec<Patch<T>>> {
        let inner = Arc::clone(&self.0);
        let at = needed.at;
        let patches = self
            .0
            .session
            .cpu(move || match inner.index.levels.get(level) {
                Some(level) => {
                    decode::decode::<T>(level, inner.index.little_endian, &bytes, &needed.job)
                }
                None => Err(Error::new(ErrorKind::InvalidInput, "no such level")),
            });
        patches.await?.map_err(|err| {
            Error::new(
                err.kind(),
                format!(
                    "tile {},{} of level {level}: {}",
                    at.col,
                    at.row,
                    err.message()
                ),
            )
            .with_source(err)
            .at(&self.0.location)
        })
    }

    /// Returns the byte ranges of tiles, fetching parts of the tile tables that are not there yet.
    async fn ranges(&self, level: &Level, numbers: &[u64]) -> Result<Vec<std::ops::Range<u64>>> {
        let inner = &self.0;
        let step = |parts: &Parts| level.ranges(numbers, inner.index.little_endian, parts);
        let mut parts = self.parts().clone();
        let known = match step(&parts) {
            Ok(ranges) => return Ok(ranges),
            Err(_) => complete(&inner.object, &mut parts, step).await,
        };
        let ranges = known.map_err(|err| err.at(&inner.location))?;
        *self.parts() = parts;
        Ok(ranges)
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.0.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lists the tiles under a window.
fn needed(level: &Level, resolved: &Resolved) -> Vec<Needed> {
    let (columns, rows) = plan::tiles(&resolved.window, level.tile);
    let planes: Vec<(usize, Vec<BandOf>)> = if level.planar {
        let each = resolved.bands.iter().enumerate();
        each.map(|(in_output, &plane)| {
            (
                plane,
                vec![BandOf {
                    in_tile: 0,
                    in_output,
                }],
            )
        })
        .collect()
    } else {
        let bands = resolved.bands.iter().enumerate();
        let all = bands
            .map(|(in_output, &in_tile)| BandOf { in_tile, in_output })
            .collect();
        vec![(0, all)]
    };
    let mut needed = Vec::new();
    for (plane, bands) in planes {
        for row in rows.clone() {
            for col in columns.clone() {
                let tile = Window {
                    col: col * level.tile.width,
                    row: row * level.tile.height,
                    width: level.tile.width,
                    height: level.tile.height,
                };
                needed.push(Needed {
                    number: level.number(col, row, plane),
                    at: TileIndex { col, row },
                    job: Job {
                        tile,
                        wanted: overlap(&tile, &resolved.window),
                        bands: bands.clone(),
                    },
                });
            }
        }
    }
    needed
}

/// Returns what two windows share; they share something.
fn overlap(a: &Window, b: &Window) -> Window {
    let span = |a: u32, a_length: u32, b: u32, b_length: u32| {
        let start = a.max(b);
        let end = (u64::from(a) + u64::from(a_length)).min(u64::from(b) + u64::from(b_length));
        let length = end.saturating_sub(u64::from(start));
        (start, u32::try_from(length).unwrap_or(0))
    };
    let (col, width) = span(a.col, a.width, b.col, b.width);
    let (row, height) = span(a.row, a.height, b.row, b.height);
    Window {
        col,
        row,
        width,
        height,
    }
}

/// Copies a patch to its place in the output.
fn place<T: Value>(output: &mut Array3<T>, window: &Window, patch: Patch<T>) -> Result<()> {
    let wrong = || {
        Error::new(
            ErrorKind::Corrupt,
            "a decoded tile has another size than its place",
        )
    };
    let top = (patch.window.row - window.row) as usize;
    let left = (patch.window.col - window.col) as usize;
    let (height, width) = (patch.window.height as usize, patch.window.width as usize);
    let samples = ndarray::ArrayView2::from_shape((height, width), &patch.samples)
        .map_err(|err| wrong().with_source(err))?;
    if patch.band >= output.dim().0 {
        return Err(wrong());
    }
    output
        .slice_mut(s![patch.band, top..top + height, left..left + width])
        .assign(&samples);
    Ok(())
}
