//! How fast could it be at most: a tile must be inflated and its predictor undone, whoever reads it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use libdeflater::Decompressor;
use object_store::ObjectStoreExt;
use rss_core::{Backend, Location, Session, reader};
use serde::Serialize;

use super::{
    files::{CENTRE, CONTENTS, TILE, TILES},
    href,
};
use crate::{Spread, codec::decode, ms};

/// Time that the measurement takes at least.
const LEAST: Duration = Duration::from_millis(400);
/// Rounds over all tiles.
const LEAST_ROUNDS: usize = 5;

/// What decoding alone allows on this machine.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub(crate) struct DecodeLimit {
    /// One thread: libdeflate and the predictor, mean of the distinct tiles, over rounds.
    pub(crate) ms_per_tile: Spread,
    /// Cores.
    pub(crate) cores: usize,
    /// All cores, if they were as fast together as one alone.
    pub(crate) tiles_per_s: f64,
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
        let at = (CENTRE * TILES + CENTRE) as usize;
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
