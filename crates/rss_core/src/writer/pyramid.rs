//! The work on pixels: tiles of full resolution are compressed as they are written, and overviews are computed
//! from them.
//!
//! The thread that adds the last of the four children of an overview's tile compresses that tile and adds it to the
//! next overview. A tile depends on its pixels only, so the result does not depend on which thread that is.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use bytes::Bytes;
use ndarray::{Array2, Array3, ArrayView2, ArrayView3, Axis, s};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use super::{
    encode::Coder,
    plan::{CogPlan, Filter, Tile, invalid},
    statistics::Moments,
    tile_store::{Gauge, TileStore},
};
use crate::{
    error::Result,
    geo::Size,
    raster::{Pixels, Sample, halved, with_type},
};

// Rows of a tile, and tiles, that are compressed with and without the predictor to compare the sizes.
const TRIAL_ROWS: usize = 64;
const TRIAL_TILES: usize = 4;

/// A tile of full resolution, and the position of its pixels in a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct TileInBlock {
    pub(super) tile: Tile,
    /// The first pixel's column and row in the block.
    pub(super) x: usize,
    pub(super) y: usize,
}

/// A tile of full resolution as the file stores it.
#[derive(Debug)]
pub(super) struct Coded {
    /// None if the tile is sparse.
    pub(super) bytes: Option<Bytes>,
    pub(super) moments: Moments,
}

/// The work on pixels of one file, whatever their type.
pub(super) trait Work: Send + Sync + fmt::Debug {
    /// Returns true once the predictor is chosen.
    fn has_chosen(&self) -> bool;
    /// Chooses the predictor by some tiles of the first block.
    fn choose(&self, block: &Pixels, places: &[TileInBlock]) -> Result<()>;
    /// Compresses a tile, and the tiles of overviews that it completes.
    fn tile(&self, block: &Pixels, place: TileInBlock) -> Result<Coded>;
    /// Returns the chosen predictor.
    fn filter(&self) -> Filter;
    /// Takes compressed tiles of an overview, counted from 0.
    fn take(&self, overview: usize, slots: &[usize]) -> Result<Vec<Option<Bytes>>>;
    /// Returns the bytes spilled to a temporary file.
    fn spilled(&self) -> u64;
}

/// Returns the work on a plan's pixels.
pub(super) fn work(plan: &Arc<CogPlan>, kept: TileStore, gauge: &Arc<Gauge>) -> Arc<dyn Work> {
    with_type!(plan.dtype, T => Arc::new(Pyramid::<T>::new(plan, kept, gauge)))
}

struct Pyramid<T> {
    plan: Arc<CogPlan>,
    filter: OnceLock<Filter>,
    /// For each overview, its unfinished tiles by slot.
    growing: Vec<Mutex<HashMap<usize, Growing<T>>>>,
    kept: TileStore,
    coders: Mutex<Vec<Coder>>,
    gauge: Arc<Gauge>,
}

/// An unfinished tile of an overview, in quarters: top left, top right, bottom left, bottom right.
struct Growing<T> {
    parts: [Option<Array3<T>>; 4],
    missing: usize,
}

impl<T> fmt::Debug for Pyramid<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pyramid")
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

impl<T: Sample + Send + Sync + 'static> Pyramid<T> {
    fn new(plan: &Arc<CogPlan>, kept: TileStore, gauge: &Arc<Gauge>) -> Self {
        let overviews = plan.levels.iter().skip(1);
        Self {
            plan: Arc::clone(plan),
            filter: plan.chosen.map(OnceLock::from).unwrap_or_default(),
            growing: overviews.map(|_| Mutex::default()).collect(),
            kept,
            coders: Mutex::default(),
            gauge: Arc::clone(gauge),
        }
    }

    /// Runs `work` with a coder of the pool, whose buffers are reused.
    fn with_coder<R>(&self, work: impl FnOnce(&mut Coder) -> Result<R>) -> Result<R> {
        let lock = || self.coders.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = lock().pop();
        let mut coder = match kept {
            Some(coder) => coder,
            None => Coder::new(self.plan.compression)?,
        };
        let done = work(&mut coder);
        lock().push(coder);
        done
    }

    /// Returns the pixels of a tile.
    fn pixels<'a>(
        &self,
        block: ArrayView3<'a, T>,
        place: &TileInBlock,
    ) -> Result<ArrayView2<'a, T>> {
        let size = self.plan.inside(&self.plan.full(), place.tile);
        let bottom = place.y + size.height as usize;
        let right = place.x + size.width as usize;
        let (bands, rows, cols) = block.dim();
        if place.tile.band >= bands || bottom > rows || right > cols {
            return Err(invalid("a block smaller than its window"));
        }
        let block = block.index_axis_move(Axis(0), place.tile.band);
        Ok(block.slice_move(s![place.y..bottom, place.x..right]))
    }

    /// Compresses the pixels of a tile; none if it is sparse.
    fn encode(&self, pixels: ArrayView2<'_, T>) -> Result<Option<Vec<u8>>> {
        if self.plan.sparse && self.is_empty(pixels) {
            return Ok(None);
        }
        let (side, filter) = (self.plan.tile, self.filter());
        self.with_coder(|coder| coder.encode(pixels, side, side, filter).map(Some))
    }

    /// Returns true if the tile can be sparse: readers fill the same pixels. Bytes are compared and not
    /// values, because -0.0 equals 0.0.
    fn is_empty(&self, pixels: ArrayView2<'_, T>) -> bool {
        let nodata = self.plan.nodata.unwrap_or(0.0);
        if nodata.is_nan() {
            return pixels.iter().all(|one| one.number().is_nan());
        }
        let (mut fill, mut bytes) = ([0; 16], [0; 16]);
        let size = T::DTYPE.size();
        T::put_le([T::of_number(nodata)].iter(), &mut fill[..size]);
        pixels.iter().all(|one| {
            T::put_le([*one].iter(), &mut bytes[..size]);
            bytes == fill
        })
    }

    /// Adds a tile to the overview above it, counted from 0, and the tiles it completes to the next ones.
    fn grow(&self, overview: usize, tile: Tile, pixels: ArrayView2<'_, T>) -> Result<()> {
        let plan = &self.plan;
        let levels = (plan.levels.get(overview), plan.levels.get(overview + 1));
        let ((Some(below), Some(level)), Some(growing)) = (levels, self.growing.get(overview))
        else {
            return Ok(());
        };
        let part = halved(pixels.insert_axis(Axis(0)), plan.resampling, plan.nodata)?;
        self.gauge.add(bytes_of(&part));
        let corner = tile.row % 2 * 2 + tile.col % 2;
        let tile = tile.above();
        let slot = level.slot(tile);
        let parts = |at: usize, all: usize| if 2 * at + 1 < all { 2 } else { 1 };
        let whole = {
            let mut growing = growing.lock().unwrap_or_else(PoisonError::into_inner);
            let whole = growing.entry(slot).or_insert_with(|| Growing {
                parts: [const { None }; 4],
                missing: parts(tile.col, below.cols) * parts(tile.row, below.rows),
            });
            whole.parts[corner] = Some(part);
            whole.missing = whole.missing.saturating_sub(1);
            match whole.missing {
                0 => growing.remove(&slot),
                _ => None,
            }
        };
        // The lock is released here: only one thread gets the complete tile, and works on it alone.
        let Some(whole) = whole else { return Ok(()) };
        let pixels = self.join(whole, plan.inside(level, tile));
        // An idle thread can take one of the two: at the end of a file only overviews are left to compute.
        let (kept, grown) = rayon::join(
            || match self.encode(pixels.view())? {
                Some(bytes) => self.kept.keep(overview, slot, bytes),
                None => Ok(()),
            },
            || self.grow(overview + 1, tile, pixels.view()),
        );
        kept.and(grown)
    }

    /// Joins the quarters of a tile.
    fn join(&self, tile: Growing<T>, size: Size) -> Array2<T> {
        let shape = (size.height as usize, size.width as usize);
        let mut pixels = Array2::from_elem(shape, T::of_number(0.0));
        let half = self.plan.tile / 2;
        for (corner, part) in tile.parts.into_iter().enumerate() {
            let Some(part) = part else { continue };
            self.gauge.remove(bytes_of(&part));
            let part = part.index_axis_move(Axis(0), 0);
            let (y, x) = (corner / 2 * half, corner % 2 * half);
            let (rows, cols) = part.dim();
            let mut to = pixels.slice_mut(s![y..y + rows, x..x + cols]);
            to.assign(&part);
        }
        pixels
    }
}

impl<T: Sample + Send + Sync + 'static> Work for Pyramid<T> {
    fn has_chosen(&self) -> bool {
        self.filter.get().is_some()
    }

    fn choose(&self, block: &Pixels, places: &[TileInBlock]) -> Result<()> {
        let view = T::view(block).ok_or_else(|| self.wrong(block))?;
        let step = places.len().div_ceil(TRIAL_TILES).max(1);
        let places: Vec<&TileInBlock> = places.iter().step_by(step).collect();
        let lengths = |place: &&TileInBlock| -> Result<[usize; 2]> {
            let pixels = self.pixels(view, place)?;
            let rows = pixels.nrows().min(TRIAL_ROWS);
            let start = (pixels.nrows() - rows) / 2;
            let pixels = pixels.slice(s![start..start + rows, ..]);
            let side = self.plan.tile;
            self.with_coder(|coder| {
                let with = coder.encode(pixels, side, rows, self.plan.usual)?;
                let without = coder.encode(pixels, side, rows, Filter::None)?;
                Ok([with.len(), without.len()])
            })
        };
        let add = |a: [usize; 2], b: [usize; 2]| Ok([a[0] + b[0], a[1] + b[1]]);
        let lengths = places.par_iter().map(lengths);
        let [with, without] = lengths.try_reduce(|| [0; 2], add)?;
        // The usual predictor stays unless it costs more than 1 %: the sample is small.
        let filter = match without + without / 100 < with {
            true => Filter::None,
            false => self.plan.usual,
        };
        self.filter.get_or_init(|| filter);
        Ok(())
    }

    fn tile(&self, block: &Pixels, place: TileInBlock) -> Result<Coded> {
        let view = T::view(block).ok_or_else(|| self.wrong(block))?;
        let pixels = self.pixels(view, &place)?;
        let code = || -> Result<Coded> {
            let bytes = self.encode(pixels)?.map(Bytes::from);
            self.gauge.add(bytes.as_ref().map_or(0, Bytes::len));
            let moments = match self.plan.statistics {
                true => Moments::of(pixels, self.plan.nodata),
                false => Moments::default(),
            };
            Ok(Coded { bytes, moments })
        };
        let (coded, grown) = rayon::join(code, || self.grow(0, place.tile, pixels));
        grown?;
        coded
    }

    fn filter(&self) -> Filter {
        self.filter.get().copied().unwrap_or(self.plan.usual)
    }

    fn take(&self, overview: usize, slots: &[usize]) -> Result<Vec<Option<Bytes>>> {
        self.kept.take(overview, slots)
    }

    fn spilled(&self) -> u64 {
        self.kept.spilled()
    }
}

fn bytes_of<T>(samples: &Array3<T>) -> usize {
    samples.len() * size_of::<T>()
}

impl<T: Sample> Pyramid<T> {
    fn wrong(&self, block: &Pixels) -> crate::error::Error {
        let (found, expected) = (block.dtype(), self.plan.dtype);
        invalid(format!("a block of {found} samples, expected {expected}"))
    }
}
