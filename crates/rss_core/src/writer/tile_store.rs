//! Compressed tiles of overviews, stored until those of full resolution are written: in memory up to a bound,
//! then in a temporary file.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;

use crate::{error::Result, raster};

/// Bytes that a write has in memory, current and peak.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    now: AtomicU64,
    peak: AtomicU64,
}

impl Gauge {
    pub(super) fn add(&self, bytes: usize) {
        let bytes = bytes as u64;
        let now = self.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(now, Ordering::Relaxed);
    }

    pub(super) fn remove(&self, bytes: usize) {
        self.now.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }
}

/// The store of compressed tiles.
#[derive(Debug)]
pub(super) struct TileStore {
    tiles: Mutex<Tiles>,
    most_bytes: u64,
    /// The folder of the temporary file; none is the system's.
    folder: Option<PathBuf>,
    gauge: Arc<Gauge>,
}

#[derive(Debug)]
struct Tiles {
    /// By level, the first overview first, then by slot.
    levels: Vec<Vec<Tile>>,
    bytes: u64,
    file: Option<File>,
    /// The end of the file.
    end: u64,
}

#[derive(Clone, Debug, Default)]
enum Tile {
    /// Not finished yet, or sparse.
    #[default]
    None,
    Memory(Bytes),
    File {
        at: u64,
        length: usize,
    },
}

impl TileStore {
    /// Returns a store for this number of tiles of each overview.
    pub(super) fn new(
        tiles: impl IntoIterator<Item = usize>,
        most_bytes: u64,
        folder: Option<PathBuf>,
        gauge: Arc<Gauge>,
    ) -> Self {
        let levels = tiles.into_iter().map(|tiles| vec![Tile::None; tiles]);
        Self {
            tiles: Mutex::new(Tiles {
                levels: levels.collect(),
                bytes: 0,
                file: None,
                end: 0,
            }),
            most_bytes,
            folder,
            gauge,
        }
    }

    /// Stores a tile of an overview, counted from 0.
    pub(super) fn keep(&self, overview: usize, slot: usize, bytes: Vec<u8>) -> Result<()> {
        let mut tiles = self.tiles.lock().unwrap_or_else(PoisonError::into_inner);
        let tile = if tiles.bytes + bytes.len() as u64 <= self.most_bytes {
            tiles.bytes += bytes.len() as u64;
            self.gauge.add(bytes.len());
            Tile::Memory(bytes.into())
        } else {
            self.spill(&mut tiles, &bytes).map_err(raster::io_error)?
        };
        let level = tiles.levels.get_mut(overview);
        if let Some(stored) = level.and_then(|level| level.get_mut(slot)) {
            *stored = tile;
        }
        Ok(())
    }

    fn spill(&self, tiles: &mut Tiles, bytes: &[u8]) -> io::Result<Tile> {
        let at = tiles.end;
        let file = match &mut tiles.file {
            Some(file) => file,
            // It has no name, so that the system removes it with its last handle, also after a crash.
            none => none.insert(match &self.folder {
                Some(folder) => tempfile::tempfile_in(folder)?,
                None => tempfile::tempfile()?,
            }),
        };
        file.seek(SeekFrom::Start(at))?;
        file.write_all(bytes)?;
        tiles.end += bytes.len() as u64;
        Ok(Tile::File {
            at,
            length: bytes.len(),
        })
    }

    /// Takes tiles out, in the order of `slots`; none for a sparse tile.
    pub(super) fn take(&self, overview: usize, slots: &[usize]) -> Result<Vec<Option<Bytes>>> {
        let mut tiles = self.tiles.lock().unwrap_or_else(PoisonError::into_inner);
        let take = |&slot: &usize| {
            let level = tiles.levels.get_mut(overview);
            let stored = level.and_then(|level| level.get_mut(slot));
            match stored.map(std::mem::take).unwrap_or_default() {
                Tile::None => Ok(None),
                Tile::Memory(bytes) => {
                    tiles.bytes -= bytes.len() as u64;
                    self.gauge.remove(bytes.len());
                    Ok(Some(bytes))
                }
                Tile::File { at, length } => {
                    let mut bytes = vec![0; length];
                    if let Some(file) = &mut tiles.file {
                        file.seek(SeekFrom::Start(at))?;
                        file.read_exact(&mut bytes)?;
                    }
                    Ok(Some(bytes.into()))
                }
            }
        };
        let taken: io::Result<Vec<_>> = slots.iter().map(take).collect();
        taken.map_err(raster::io_error)
    }

    /// Returns the bytes spilled to the temporary file.
    pub(super) fn spilled(&self) -> u64 {
        self.tiles
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_memory_comes_back_from_a_file() {
        let gauge = Arc::new(Gauge::default());
        let kept = TileStore::new([4, 1], 10, None, Arc::clone(&gauge));
        kept.keep(0, 2, vec![1; 6]).unwrap();
        kept.keep(0, 0, vec![2; 5]).unwrap();
        kept.keep(1, 0, vec![3; 7]).unwrap();
        kept.keep(0, 3, vec![4; 4]).unwrap();
        assert_eq!(kept.spilled(), 12);
        assert_eq!(gauge.peak(), 10);
        let taken = kept.take(0, &[0, 1, 2, 3]).unwrap();
        let expected = [
            Some(Bytes::from(vec![2; 5])),
            None,
            Some(vec![1; 6].into()),
            Some(vec![4; 4].into()),
        ];
        assert_eq!(taken, expected);
        assert_eq!(kept.take(1, &[0]).unwrap(), [Some(vec![3; 7].into())]);
        // Each tile can be taken once.
        assert_eq!(kept.take(1, &[0]).unwrap(), [None]);
    }
}
