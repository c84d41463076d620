//! Writing: encoding complete shards.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use ndarray::{ArrayD, ArrayViewD};
use rayon::prelude::*;

use super::{Array, half, region, shard, with_scratch};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::Sample,
};

impl Array {
    /// Writes a region of complete shards at offset `start`: it starts and ends at shard boundaries, or at the
    /// array's end. Each shard is one object, written once; chunks and shards of nothing but the fill value are not
    /// stored.
    ///
    /// In an Icechunk repository it is one commit; writes of one array handle wait for each other.
    ///
    /// Shards are encoded by all CPU threads. Memory: the compressed bytes of the shards under way, at most
    /// one for each thread.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the region is not made of complete shards, or `T` is not the array's dtype;
    /// [`ErrorKind::Unsupported`] if the array was written by others with codecs that are not written here; errors
    /// of the store.
    pub async fn write<T>(&self, start: &[u64], samples: ArrayD<T>) -> Result<()>
    where
        T: Sample + Send + Sync + 'static,
    {
        self.write_region(start, samples)
            .await
            .map_err(|err| self.named(err))
    }

    async fn write_region<T>(&self, start: &[u64], samples: ArrayD<T>) -> Result<()>
    where
        T: Sample + Send + Sync + 'static,
    {
        self.check_type::<T>()?;
        self.0.metadata.chain.check_writable()?;
        let (first, counts) = self.whole_shards(start, samples.shape())?;
        let samples = Arc::new(samples);
        let session = &self.0.storage.session;
        let at_once = session.settings().cpu_threads.max(1);
        let message = message(start, samples.shape());
        let turn = self.0.storage.begin().await?;
        let shards: Vec<Vec<u64>> = region::indices(counts).collect();
        stream::iter(shards)
            .map(|index| {
                let (array, samples) = (self.clone(), Arc::clone(&samples));
                let key: Vec<u64> = index
                    .iter()
                    .zip(&first)
                    .map(|(at, first)| at + first)
                    .collect();
                async move {
                    let work = array.clone();
                    let pieces = session
                        .cpu(move || {
                            let shard = work.grid_in_memory()?;
                            let view = samples.view();
                            work.encode(&region::piece(&view, &index, &shard))
                        })
                        .await??;
                    array.put(&key, pieces).await
                }
            })
            .buffer_unordered(at_once)
            .try_collect::<()>()
            .await?;
        turn.publish(&message).await
    }

    /// Stores an encoded shard. One without chunks is removed, so that a shard of an earlier write cannot remain.
    async fn put(&self, key: &[u64], pieces: Option<Vec<Bytes>>) -> Result<()> {
        let name = self.key_of(key);
        self.forget_shard(key);
        match pieces {
            Some(pieces) => self.0.storage.write(&name, pieces).await,
            None => self.0.storage.remove(&name).await,
        }
    }

    /// Returns the index of a region's first shard, and the number of shards along each axis.
    fn whole_shards(&self, start: &[u64], shape: &[usize]) -> Result<(Vec<u64>, Vec<u64>)> {
        let grid = &self.0.metadata.grid;
        let invalid = |what: String| Err(Error::new(ErrorKind::InvalidInput, what));
        if start.len() != grid.len() || shape.len() != grid.len() {
            return invalid(format!(
                "samples of {} axes for an array of {}",
                shape.len(),
                grid.len()
            ));
        }
        for axis in 0..grid.len() {
            let end = start[axis].saturating_add(shape[axis] as u64);
            let whole = start[axis].is_multiple_of(grid[axis])
                && (end.is_multiple_of(grid[axis]) || end == self.shape()[axis])
                && end <= self.shape()[axis];
            if !whole || shape[axis] == 0 {
                return invalid(format!(
                    "samples {}..{end} of axis {axis} are not complete shards of {} of its {} samples",
                    start[axis],
                    grid[axis],
                    self.shape()[axis]
                ));
            }
        }
        let first = start
            .iter()
            .zip(grid)
            .map(|(at, length)| at / length)
            .collect();
        let counts = shape
            .iter()
            .zip(grid)
            .map(|(&length, grid)| (length as u64).div_ceil(*grid))
            .collect();
        Ok((first, counts))
    }

    /// Encodes the samples of one shard, which may be fewer at the array's end. None if all samples are the fill
    /// value.
    pub(crate) fn encode<T>(&self, samples: &ArrayViewD<'_, T>) -> Result<Option<Vec<Bytes>>>
    where
        T: Sample + Send + Sync,
    {
        /// Bytes of samples that one rayon task encodes.
        const TASK_BYTES: usize = 1 << 20;
        /// The part of a shard's samples that is encoded beforehand with several settings, to choose among them; its
        /// limits in bytes, in all and of one chunk.
        const PROBED_PART: usize = 64;
        const LEAST_PROBE: usize = 128 << 10;
        const MOST_PROBE: usize = 512 << 10;
        const CHUNK_PROBE: usize = 256 << 10;
        let metadata = &self.0.metadata;
        let (chain, counts) = match metadata.chain.as_shards() {
            Some(sharding) => (&sharding.inner, sharding.counts(&metadata.grid)?),
            None => (&metadata.chain, vec![1; metadata.grid.len()]),
        };
        let chunk = self.chunk_in_memory()?;
        let size = metadata.dtype.size();
        let bytes = chunk.iter().product::<usize>() * size;
        let fill = metadata.fill_read();
        let empty: Vec<u8> = fill.iter().copied().cycle().take(bytes).collect();
        let chunks: Vec<Vec<u64>> = region::indices(counts).collect();
        let fill_chunk = |index: &[u64], buffer: &mut Vec<u8>| {
            let part = region::piece(samples, index, &chunk);
            if part.is_empty() {
                return false;
            }
            if part.shape() != chunk || buffer.len() != bytes {
                buffer.clone_from(&empty);
            }
            region::collect(&part, &chunk, buffer);
            let has_data = *buffer != empty;
            // The buffer is of another length then, and is filled anew by the next chunk.
            if metadata.is_half && has_data {
                *buffer = half::narrow(buffer);
            }
            has_data
        };
        // Settings that the codec leaves open are tried on chunks from all over the shard.
        let enough = (bytes * chunks.len() / PROBED_PART).clamp(LEAST_PROBE, MOST_PROBE);
        let part = bytes.clamp(1, enough.min(CHUNK_PROBE));
        let probes = (enough / part).clamp(1, 4).min(chunks.len());
        let mut found = Vec::with_capacity(probes);
        for probe in 0..probes {
            let mut buffer = Vec::new();
            let first = chunks.len() * probe / probes;
            let last = chunks.len() * (probe + 1) / probes;
            // Start in the middle of each stretch: chunks at the edges of images are more often empty.
            let (low, high) = chunks[first..last].split_at((last - first) / 2);
            let mut order = high.iter().chain(low);
            if order.any(|index| fill_chunk(index, &mut buffer)) {
                buffer.truncate(part / size * size);
                found.push(buffer);
            }
        }
        if found.is_empty() {
            // No chunk holds anything but the fill value: the stretches cover all chunks.
            return Ok(None);
        }
        let chain = chain.tuned(&found)?;
        drop(found);
        let task = (TASK_BYTES / bytes.max(1)).max(1);
        let encoded: Vec<(Vec<u8>, Vec<Option<u64>>)> = chunks
            .par_chunks(task)
            .map(|chunks| {
                // Capacity for the worst case: pages that are never written take no memory.
                let mut out = Vec::with_capacity((bytes + bytes / 64 + 64) * chunks.len());
                let mut lengths = Vec::with_capacity(chunks.len());
                let mut buffer = Vec::new();
                with_scratch(|scratch| {
                    for index in chunks {
                        if !fill_chunk(index, &mut buffer) {
                            lengths.push(None);
                            continue;
                        }
                        let start = out.len();
                        chain.encode(&buffer, &mut out, scratch)?;
                        lengths.push(Some((out.len() - start) as u64));
                    }
                    Ok(())
                })?;
                Ok((out, lengths))
            })
            .collect::<Result<_>>()?;
        let mut pieces = Vec::with_capacity(encoded.len() + 1);
        let mut lengths = Vec::with_capacity(chunks.len());
        for (piece, some) in encoded {
            pieces.push(Bytes::from(piece));
            lengths.extend(some);
        }
        if metadata.chain.as_shards().is_some() {
            pieces.push(shard::write_index(&lengths).into());
        }
        Ok(Some(pieces))
    }
}

/// Returns the commit message: which samples were written.
fn message(start: &[u64], shape: &[usize]) -> String {
    let ranges: Vec<String> = start
        .iter()
        .zip(shape)
        .map(|(start, &length)| format!("{start}..{}", start + length as u64))
        .collect();
    format!("Write samples {}", ranges.join(", "))
}
