//! How fast could it be at most: a tile must be inflated and its predictor undone, whoever reads it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use libdeflater::Decompressor;
use object_store::ObjectStoreExt;
use rss_core::{Backend, Location, Session, reader};
use serde::Serialize;

use super::{CENTRE, CONTENTS, TILE, href};
use crate::{Spread, ms};

/// Time that the measurement takes at least.
const LEAST: Duration = Duration::from_millis(400);
/// Rounds over all tiles.
const LEAST_ROUNDS: usize = 5;

/// What decoding alone allows on this machine.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct DecodeLimit {
    /// One thread: libdeflate and the predictor, mean of the distinct tiles, over rounds.
    pub ms_per_tile: Spread,
    /// Cores.
    pub cores: usize,
    /// All cores, if they were as fast together as one alone.
    pub tiles_per_s: f64,
}

/// Returns the centre tiles of the distinct files, as they are stored.
pub(super) async fn stored_tiles(endpoint: &str, files: usize) -> Result<Vec<Bytes>> {
    let session = Session::builder().s3_endpoint(endpoint).build()?;
    let mut tiles = Vec::new();
    for file in 0..CONTENTS.min(files) {
        let location = Location::parse(&href(file))?;
        let raster = reader::open(&session, &location, Backend::Cog).await?;
        let entry = raster.entry().await?;
        let level = entry.header.levels.first().context("no image")?;
        let at = (CENTRE * 3 + CENTRE) as usize;
        let range = level.tiles.range(at).context("no centre tile")?;
        let (store, key) = session.stores().store(&location)?;
        tiles.push(store.get_range(&key, range).await?);
    }
    Ok(tiles)
}

/// Decodes the tiles on one thread.
pub(super) async fn measure(tiles: Vec<Bytes>, cores: usize) -> Result<DecodeLimit> {
    tokio::task::spawn_blocking(move || {
        let mut inflater = Decompressor::new();
        let mut raw = vec![0; (TILE * TILE) as usize * 2];
        let mut samples = vec![0_i16; (TILE * TILE) as usize];
        let mut rounds = Vec::new();
        let start = Instant::now();
        while rounds.len() < LEAST_ROUNDS || start.elapsed() < LEAST {
            let round = Instant::now();
            for tile in &tiles {
                decode(&mut inflater, tile, TILE as usize, &mut raw, &mut samples)?;
                std::hint::black_box(&samples);
            }
            rounds.push(ms(round.elapsed()) / tiles.len().max(1) as f64);
        }
        let ms_per_tile = Spread::of(rounds);
        Ok(DecodeLimit {
            ms_per_tile,
            cores,
            tiles_per_s: cores as f64 / ms_per_tile.median * 1e3,
        })
    })
    .await?
}

/// Inflates a tile of rows so wide, and undoes predictor 2 row by row.
pub(crate) fn decode(
    inflater: &mut Decompressor,
    stored: &[u8],
    width: usize,
    raw: &mut [u8],
    samples: &mut [i16],
) -> Result<()> {
    let length = inflater.zlib_decompress(stored, raw)?;
    ensure!(length == raw.len(), "a tile of {length} bytes");
    let rows = raw
        .chunks_exact(width * 2)
        .zip(samples.chunks_exact_mut(width));
    for (row, samples) in rows {
        let mut sum = 0_i16;
        let (pairs, _) = row.as_chunks::<2>();
        for (pair, sample) in pairs.iter().zip(samples) {
            sum = sum.wrapping_add(i16::from_le_bytes(*pair));
            *sample = sum;
        }
    }
    Ok(())
}
