//! Reading: planning the byte ranges of a region, fetching them, decoding them into the output.

use std::{collections::HashMap, ops::Range, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use ndarray::{ArrayD, ArrayViewMutD};
use rayon::prelude::*;

use super::{
    Array, Shard, chunk_name,
    codec::Shape,
    half,
    region::{self, ChunkProjection, Region},
    with_scratch,
};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::{DataType, Pixels, Sample, with_type},
    store::{Disk, Fetch, Merge, coalesce, spawned},
};

/// Attempts of a read whose shards an append replaces meanwhile.
const ATTEMPTS: usize = 64;
/// Reads of a local file that decode no more than this run on the caller's thread: waking another thread takes
/// longer.
const HERE_BYTES: usize = 512 << 10;
/// Bytes of a local file that one read takes, so that they are still in the CPU cache when they are decoded.
const DISK_BYTES: u64 = 512 << 10;

/// One merged byte range of a shard, and the parts of chunks in it.
struct Unit {
    shard: Arc<Shard>,
    fetch: Fetch,
    wanted: Vec<Wanted>,
}

/// The part of a chunk that is read, and the byte range of the chunk.
struct Wanted {
    range: Range<u64>,
    chunk: Vec<u64>,
    part: ChunkProjection,
}

/// A chunk's index within its shard, and the part of it that is read.
type Inside = (Vec<u64>, ChunkProjection);

impl Array {
    /// Reads a region: a range of samples for each axis. Samples that were never written are the fill value.
    ///
    /// Costs one request for each run of neighbouring chunks, and one for each shard whose index is not cached.
    /// Dropping the future cancels it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if a range is empty or ends outside of the array, or `T` is not its
    /// dtype; [`ErrorKind::Corrupt`], which names shard and chunk; errors of the store.
    pub async fn read<T>(&self, ranges: &[Range<u64>]) -> Result<ArrayD<T>>
    where
        T: Sample + Send + Sync + 'static,
    {
        let read = async {
            self.check_type::<T>()?;
            let region = Region::checked(ranges, self.shape())?;
            // A shard was replaced since its index was read: `read_region` has dropped the cached indexes, and the next
            // attempt reads the new ones. An append replaces many, each once.
            for _ in 1..ATTEMPTS {
                match self.read_region(&region).await {
                    Err(err) if err.kind() == ErrorKind::Changed => {}
                    done => return done,
                }
            }
            self.read_region(&region).await
        };
        read.await.map_err(|err| self.named(err))
    }

    /// Reads a region as [`Array::read`] does, in the array's own dtype, as (all axes before the last two flattened,
    /// rows, columns). An array of one axis becomes one row.
    ///
    /// # Errors
    ///
    /// As [`Array::read`].
    pub async fn read_pixels(&self, ranges: &[Range<u64>]) -> Result<Pixels> {
        with_type!(self.dtype(), T => {
            let samples = self.read::<T>(ranges).await?;
            let shape = match samples.shape() {
                [outer @ .., height, width] => (outer.iter().product(), *height, *width),
                [width] => (1, 1, *width),
                [] => (1, 1, 1),
            };
            let samples = samples.into_shape_with_order(shape).map_err(|err| {
                Error::new(ErrorKind::Corrupt, "samples of another shape").with_source(err)
            })?;
            Ok(T::wrap(samples))
        })
    }

    async fn read_region<T>(&self, region: &Region) -> Result<ArrayD<T>>
    where
        T: Sample + Send + Sync + 'static,
    {
        self.check_size(region)?;
        let mut fill = [T::of_number(0.0)];
        T::get_le(&mut fill, &self.0.metadata.fill_read());
        let output = region::filled(&region.shape, fill[0])?;
        let units = self.plan(region).await?;
        let chunk = self.chunk_in_memory()?;
        let here = units
            .iter()
            .map(|unit| unit.wanted.len())
            .try_fold(0_usize, usize::checked_add)
            .and_then(|chunks| chunks.checked_mul(chunk.iter().product::<usize>()))
            .and_then(|samples| samples.checked_mul(T::DTYPE.size()));
        let on_disk = units.iter().all(|unit| unit.shard.object.disk().is_some());
        let array = self.clone();
        if on_disk && here.is_some_and(|bytes| bytes <= HERE_BYTES) {
            let units = units.into_iter().map(|unit| (unit, None)).collect();
            return array.decode(units, output);
        }
        let session = &self.0.storage.session;
        if on_disk {
            let units = units.into_iter().map(|unit| (unit, None)).collect();
            return session.cpu(move || array.decode(units, output)).await?;
        }
        // A task of its own, which goes on whether or not the caller polls: what it has fetched holds shares of the byte
        // budget, and others may wait for them.
        spawned(async move { array.fetch(units, output).await }).await
    }

    /// Fetches units, and decodes them into the output.
    async fn fetch<T>(&self, units: Vec<Unit>, mut output: ArrayD<T>) -> Result<ArrayD<T>>
    where
        T: Sample + Send + Sync + 'static,
    {
        let session = &self.0.storage.session;
        // Later requests run while the bytes that have arrived are decoded. Each is a task too: the stream is not polled
        // during the decoding.
        let at_once = session.settings().requests_per_host.max(1);
        let mut arriving = stream::iter(units)
            .map(|unit| {
                let session = session.clone();
                let fetch = async move {
                    let length = unit.fetch.range.end - unit.fetch.range.start;
                    let share = session.share(length).await;
                    let bytes = unit.shard.object.fetch(unit.fetch.range.clone()).await?;
                    Ok::<_, Error>((unit, bytes, share))
                };
                spawned(fetch)
            })
            .buffer_unordered(at_once)
            .ready_chunks(at_once);
        while let Some(batch) = arriving.next().await {
            let batch: Vec<_> = match batch.into_iter().collect::<Result<_>>() {
                Ok(batch) => batch,
                Err(err) => {
                    if err.kind() == ErrorKind::Changed {
                        self.forget();
                    }
                    return Err(err);
                }
            };
            let array = self.clone();
            output = session
                .cpu(move || {
                    let (units, shares): (Vec<_>, Vec<_>) = batch
                        .into_iter()
                        .map(|(unit, bytes, share)| ((unit, Some(bytes)), share))
                        .unzip();
                    let done = array.decode(units, output);
                    drop(shares);
                    done
                })
                .await??;
        }
        Ok(output)
    }

    /// Checks the size of a read against the session's limit: neither a typing error nor metadata that claims a huge
    /// shape may exhaust the memory.
    fn check_size(&self, region: &Region) -> Result<()> {
        /// The most chunks of one read.
        const MOST_CHUNKS: u64 = 1 << 24;
        let most = self.0.storage.session.settings().read_bytes;
        let size = self.dtype().size() as u64;
        let bytes = |shape: &[u64]| {
            shape
                .iter()
                .try_fold(size, |bytes, n| bytes.checked_mul(*n))
        };
        for (what, shape) in [
            ("a read", region.shape.as_slice()),
            ("a chunk", self.chunk()),
        ] {
            if bytes(shape).is_none_or(|bytes| bytes > most) {
                let shape: Vec<String> = shape.iter().map(u64::to_string).collect();
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    format!(
                        "{what} of {} {} samples exceeds the session's limit of {most} bytes",
                        shape.join(" x "),
                        self.dtype()
                    ),
                ));
            }
        }
        let chunks = region.shape.iter().zip(self.chunk());
        let chunks = chunks.map(|(length, chunk)| length / chunk.max(&1) + 2);
        let chunks = chunks.fold(1_u64, u64::saturating_mul);
        if chunks > MOST_CHUNKS {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "a read of up to {chunks} chunks, expected at most {MOST_CHUNKS}: read a smaller region"
                ),
            ));
        }
        Ok(())
    }

    /// Finds the byte ranges that a region needs, and merges neighbours.
    async fn plan(&self, region: &Region) -> Result<Vec<Unit>> {
        let metadata = &self.0.metadata;
        let sharding = metadata.chain.as_shards();
        let counts = match sharding {
            Some(sharding) => sharding.counts(&metadata.grid)?,
            None => vec![1; metadata.grid.len()],
        };
        let mut by_shard: Vec<(Vec<u64>, Vec<Inside>)> = Vec::new();
        let mut known: HashMap<Vec<u64>, usize> = HashMap::new();
        for (chunk, part) in region.parts(self.chunk()) {
            let key: Vec<u64> = chunk.iter().zip(&counts).map(|(at, n)| at / n).collect();
            let inside = chunk.iter().zip(&counts).map(|(at, n)| at % n).collect();
            let position = *known.entry(key.clone()).or_insert_with(|| {
                by_shard.push((key, Vec::new()));
                by_shard.len() - 1
            });
            if let Some((_, chunks)) = by_shard.get_mut(position) {
                chunks.push((inside, part));
            }
        }
        // Shards are opened concurrently; those with a cached index cost no request.
        let mut opened = Vec::with_capacity(by_shard.len());
        if let [(key, _)] = by_shard.as_slice() {
            opened.push(self.shard_at(key, sharding, &counts).await?);
        } else {
            let at_once = self.0.storage.session.settings().requests_per_host.max(1);
            let keys: Vec<_> = by_shard.iter().map(|(key, _)| key.clone()).collect();
            opened = stream::iter(keys)
                .map(|key| {
                    let counts = counts.clone();
                    async move { self.shard_at(&key, sharding, &counts).await }
                })
                .buffered(at_once)
                .try_collect()
                .await?;
        }
        let settings = self.0.storage.session.settings();
        let mut units = Vec::new();
        for ((_, chunks), shard) in by_shard.into_iter().zip(opened) {
            let Some(shard) = shard else { continue };
            let mut wanted: Vec<Wanted> = chunks
                .into_iter()
                .filter_map(|(chunk, part)| {
                    let range = shard.index.find(&chunk)?;
                    Some(Wanted { range, chunk, part })
                })
                .collect();
            wanted.sort_by_key(|one| one.range.start);
            let ranges: Vec<_> = wanted.iter().map(|one| one.range.clone()).collect();
            let merge = match shard.object.disk() {
                Some(_) => Merge {
                    gap_bytes: 0,
                    fetch_bytes: DISK_BYTES,
                },
                None => Merge {
                    gap_bytes: settings.gap_bytes,
                    fetch_bytes: settings.fetch_bytes,
                },
            };
            let mut rest = wanted.into_iter();
            for fetch in coalesce(&ranges, merge) {
                let wanted = rest.by_ref().take(fetch.wanted.len()).collect();
                units.push(Unit {
                    shard: Arc::clone(&shard),
                    fetch,
                    wanted,
                });
            }
        }
        Ok(units)
    }

    /// Decodes units into the output. Units without bytes are read from the local file.
    fn decode<T>(
        &self,
        units: Vec<(Unit, Option<Bytes>)>,
        mut output: ArrayD<T>,
    ) -> Result<ArrayD<T>>
    where
        T: Sample + Send + Sync,
    {
        let chunk = self.chunk_in_memory()?;
        let parts: Vec<&ChunkProjection> = units
            .iter()
            .flat_map(|(unit, _)| unit.wanted.iter().map(|one| &one.part))
            .collect();
        let mut positions = region::cut(output.view_mut(), &parts)?.into_iter();
        let mut work: Vec<_> = units
            .iter()
            .map(|(unit, bytes)| {
                let positions: Vec<_> = positions.by_ref().take(unit.wanted.len()).collect();
                (unit, bytes, positions)
            })
            .collect();
        let decode = |(unit, bytes, positions): &mut (&Unit, &Option<Bytes>, Vec<_>)| {
            let positions = std::mem::take(positions);
            match bytes {
                Some(bytes) => self.decode_unit(unit, bytes, positions, &chunk),
                None => {
                    let disk: Option<&Disk> = unit.shard.object.disk();
                    let disk = disk.ok_or_else(|| {
                        Error::new(
                            ErrorKind::Unavailable,
                            "the bytes of a chunk were not fetched",
                        )
                    })?;
                    disk.with(&unit.fetch.range, |bytes| {
                        self.decode_unit(unit, bytes, positions, &chunk)
                    })
                }
            }
        };
        match work.as_mut_slice() {
            [one] => decode(one)?,
            _ if rayon::current_thread_index().is_none() => {
                work.iter_mut().try_for_each(decode)?;
            }
            _ => work.par_iter_mut().try_for_each(decode)?,
        }
        drop(work);
        Ok(output)
    }

    fn decode_unit<T: Sample>(
        &self,
        unit: &Unit,
        bytes: &[u8],
        positions: Vec<ArrayViewMutD<'_, T>>,
        chunk: &[usize],
    ) -> Result<()> {
        let metadata = &self.0.metadata;
        let chain = match metadata.chain.as_shards() {
            Some(sharding) => &sharding.inner,
            None => &metadata.chain,
        };
        let size = metadata.stored_size();
        let shape = Shape {
            axes: chunk,
            sample: size,
            word: match metadata.dtype {
                DataType::C64 | DataType::C128 => size / 2,
                _ => size,
            },
            fill: &metadata.fill,
        };
        with_scratch(|scratch| {
            for (one, position) in unit.wanted.iter().zip(positions) {
                let from = one.range.start - unit.fetch.range.start;
                let to = one.range.end - unit.fetch.range.start;
                let packed = usize::try_from(from)
                    .ok()
                    .zip(usize::try_from(to).ok())
                    .and_then(|(from, to)| bytes.get(from..to))
                    .unwrap_or_default();
                let span = one.part.span(chunk);
                let span = span.start * size..span.end * size;
                let pasted = chain
                    .decode(packed, &span, &shape, scratch)
                    .and_then(|samples| match metadata.is_half {
                        true => {
                            let wide = half::widen(samples);
                            region::paste(position, &wide, chunk, &one.part.from)
                        }
                        false => region::paste(position, samples, chunk, &one.part.from),
                    });
                pasted.map_err(|err| {
                    let message = format!("chunk {}: {}", chunk_name(&one.chunk), err.message());
                    Error::new(err.kind(), message).at(unit.shard.object.location())
                })?;
            }
            Ok(())
        })
    }
}
