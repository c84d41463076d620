//! Writing: encoding shards, each whole.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use ndarray::{ArrayD, ArrayViewD};
use rayon::prelude::*;

use super::{Array, region, shard, with_scratch};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::Sample,
};

impl Array {
    /// Writes a box that starts at `start`, in whole shards: it starts and ends where shards do, or at the
    /// array's end. Each shard is written once, whole; what holds the fill value alone is not stored.
    ///
    /// In an Icechunk repository it is one commit; writes of one array wait for each other.
    ///
    /// Shards are encoded by all CPU threads. Memory: what is compressed of the shards under way, at most
    /// one for each thread.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the box is not made of whole shards, or `T` is not the array's type;
    /// [`ErrorKind::Unsupported`] if others laid the array out as it is not laid out here; what the store
    /// answers.
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

    /// Stores an encoded shard; one without chunks is removed.
    pub(crate) async fn put(&self, key: &[u64], pieces: Option<Vec<Bytes>>) -> Result<()> {
        let name = self.key_of(key);
        self.kept().shards.remove(key);
        match pieces {
            Some(pieces) => self.0.storage.write(&name, pieces).await,
            None => self.0.storage.remove(&name).await,
        }
    }

    /// Returns the first shard of a box and how many it is on each axis.
    fn whole_shards(&self, start: &[u64], shape: &[usize]) -> Result<(Vec<u64>, Vec<u64>)> {
        let grid = &self.0.metadata.grid;
        let wrong = |what: String| Err(Error::new(ErrorKind::InvalidInput, what));
        if start.len() != grid.len() || shape.len() != grid.len() {
            return wrong(format!(
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
                return wrong(format!(
                    "samples {}..{end} of axis {axis} are not whole shards of {} of its {} samples",
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

    /// Encodes the samples of one shard, which may be fewer at the array's end. None if all are the fill
    /// value.
    pub(crate) fn encode<T>(&self, samples: &ArrayViewD<'_, T>) -> Result<Option<Vec<Bytes>>>
    where
        T: Sample + Send + Sync,
    {
        /// Bytes of samples that one task encodes.
        const TASK_BYTES: usize = 1 << 20;
        /// Of a shard's samples, this part is encoded in several ways before: so many bytes, of one chunk no
        /// more than a block.
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
        let empty: Vec<u8> = metadata.fill.iter().copied().cycle().take(bytes).collect();
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
            *buffer != empty
        };
        // What the codec leaves open is tried on chunks from all over the shard.
        let enough = (bytes * chunks.len() / PROBED_PART).clamp(LEAST_PROBE, MOST_PROBE);
        let part = bytes.clamp(1, enough.min(CHUNK_PROBE));
        let probes = (enough / part).clamp(1, 4).min(chunks.len());
        let mut found = Vec::with_capacity(probes);
        for probe in 0..probes {
            let mut buffer = Vec::new();
            let first = chunks.len() * probe / probes;
            let last = chunks.len() * (probe + 1) / probes;
            // From the middle on: the edges of images are empty more often.
            let (low, high) = chunks[first..last].split_at((last - first) / 2);
            let mut order = high.iter().chain(low);
            if order.any(|index| fill_chunk(index, &mut buffer)) {
                buffer.truncate(part / size * size);
                found.push(buffer);
            }
        }
        if found.is_empty() {
            // All chunks were looked at.
            return Ok(None);
        }
        let chain = chain.tuned(&found)?;
        drop(found);
        let task = (TASK_BYTES / bytes.max(1)).max(1);
        let encoded: Vec<(Vec<u8>, Vec<Option<u64>>)> = chunks
            .par_chunks(task)
            .map(|chunks| {
                // Room for the worst case, of which what is not used is not touched.
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

/// Says which samples were written.
fn message(start: &[u64], shape: &[usize]) -> String {
    let ranges: Vec<String> = start
        .iter()
        .zip(shape)
        .map(|(start, &length)| format!("{start}..{}", start + length as u64))
        .collect();
    format!("Write samples {}", ranges.join(", "))
}
