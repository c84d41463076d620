//! The work on pixels: tiles of full resolution are compressed as they are written, and overviews are computed
//! from them.
//!
//! The thread that adds the last of the tiles that an overview's tile covers compresses that tile and adds it to the
//! next overview. A tile depends on its pixels only, so the result does not depend on which thread that is.
//!
//! Every overview covers the extent of the image. Where a side is odd its pixels cover source pixels in part, also
//! across the borders of tiles, so that tiles pass their last column and row on to those to the right and below.

use std::{
    collections::HashMap,
    fmt,
    ops::Range,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use bytes::Bytes;
use ndarray::{Array2, ArrayView2, ArrayView3, Axis, s};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use super::{
    encode::Coder,
    growing::{Growing, Parts, Step, TilePart, concatenated, overlap},
    plan::{CogPlan, Filter, LevelPlan, Tile, invalid},
    statistics::Moments,
    tile_store::{Gauge, TileStore},
};
use crate::{
    error::Result,
    raster::{
        LevelPart, Number, Pixels, Resampling, Sample, Shrink, nodata_sample, shrunk, with_type,
    },
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
        let nodata = self.plan.nodata.unwrap_or(Number::ZERO);
        if nodata.is_nan() {
            return pixels.iter().all(|one| one.number().is_nan());
        }
        let (mut fill, mut bytes) = ([0; 16], [0; 16]);
        let size = T::DTYPE.size();
        let empty = T::exact(nodata).unwrap_or(T::of_number(0.0));
        T::put_le([empty].iter(), &mut fill[..size]);
        pixels.iter().all(|one| {
            T::put_le([*one].iter(), &mut bytes[..size]);
            bytes == fill
        })
    }

    /// Returns the sample of a pixel without data: without a nodata value only floats can lack data, as NaN.
    fn fill(&self) -> T {
        crate::raster::fill(self.plan.nodata)
    }

    fn shrunk(
        &self,
        part: &LevelPart<'_, T>,
        axes: [Shrink; 2],
        pixels: [Range<usize>; 2],
        band: usize,
    ) -> Array2<T> {
        let resampling = self.resampling(band);
        let nodata = nodata_sample(self.plan.nodata);
        shrunk(part, axes, pixels, resampling, nodata, self.fill())
    }

    fn resampling(&self, band: usize) -> Resampling {
        let of_band = self.plan.resampling.get(band).copied();
        of_band.unwrap_or(Resampling::Average)
    }

    /// Adds a tile of full resolution to the overviews.
    fn add(&self, tile: Tile, pixels: ArrayView2<'_, T>) -> Result<()> {
        match self.resampling(tile.band) {
            Resampling::Nearest => self.pick(tile, pixels),
            _ => self.grow(0, tile, pixels),
        }
    }

    /// Copies the pixels of a tile of full resolution that are nearest to those of each overview.
    fn pick(&self, tile: Tile, pixels: ArrayView2<'_, T>) -> Result<()> {
        let full = self.plan.full();
        let [cols, rows] = full.source_in(tile, self.plan.tile);
        let overviews = self.plan.levels.iter().skip(1).zip(&self.growing);
        for (overview, (level, growing)) in overviews.enumerate() {
            let axis = |from: u32, to: u32| Shrink {
                from: from as usize,
                to: to as usize,
            };
            let across = axis(full.size.width, level.size.width);
            let down = axis(full.size.height, level.size.height);
            let (made_cols, made_rows) = (across.nearest_in(&cols), down.nearest_in(&rows));
            if made_cols.is_empty() || made_rows.is_empty() {
                continue;
            }
            let side = self.plan.tile;
            let tiles = |made: &Range<usize>| made.start / side..made.end.div_ceil(side);
            for row in tiles(&made_rows) {
                for col in tiles(&made_cols) {
                    let target = Tile {
                        band: tile.band,
                        col,
                        row,
                    };
                    let [inside_cols, inside_rows] = self.pixels_in(level, target);
                    let made_cols = overlap(&made_cols, &inside_cols);
                    let made_rows = overlap(&made_rows, &inside_rows);
                    let part = LevelPart {
                        samples: pixels,
                        col: cols.start,
                        row: rows.start,
                    };
                    let made = [made_cols.clone(), made_rows.clone()];
                    let part = self.shrunk(&part, [across, down], made, tile.band);
                    let slot = level.slot(target);
                    let whole = {
                        let mut growing = growing.lock().unwrap_or_else(PoisonError::into_inner);
                        let unfinished = growing.entry(slot).or_insert_with(|| {
                            let shape = (inside_rows.len(), inside_cols.len());
                            let pixels = Array2::from_elem(shape, self.fill());
                            self.gauge.add(pixels.len() * size_of::<T>());
                            let missing = pixels.len();
                            Growing::Picked { pixels, missing }
                        });
                        let Growing::Picked { pixels, missing } = unfinished else {
                            continue;
                        };
                        let at = |made: &Range<usize>, inside: &Range<usize>| {
                            made.start - inside.start..made.end - inside.start
                        };
                        let (x, y) = (at(&made_cols, &inside_cols), at(&made_rows, &inside_rows));
                        pixels.slice_mut(s![y, x]).assign(&part);
                        *missing = missing.saturating_sub(part.len());
                        match *missing {
                            0 => growing.remove(&slot),
                            _ => None,
                        }
                    };
                    if let Some(Growing::Picked { pixels, .. }) = whole {
                        self.gauge.remove(pixels.len() * size_of::<T>());
                        self.keep(overview, slot, pixels.view())?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the columns and rows of a level in a tile.
    fn pixels_in(&self, level: &LevelPlan, tile: Tile) -> [Range<usize>; 2] {
        let (side, size) = (self.plan.tile, self.plan.inside(level, tile));
        let range = |at: usize, length: u32| at * side..at * side + length as usize;
        [range(tile.col, size.width), range(tile.row, size.height)]
    }

    /// Compresses a tile of an overview.
    fn keep(&self, overview: usize, slot: usize, pixels: ArrayView2<'_, T>) -> Result<()> {
        match self.encode(pixels)? {
            Some(bytes) => self.kept.keep(overview, slot, bytes),
            None => Ok(()),
        }
    }

    /// Adds a tile to the overview above it, counted from 0, and the tiles it completes to the next ones. `pixels` are
    /// those of the tile in the level's `source`.
    fn grow(&self, overview: usize, tile: Tile, pixels: ArrayView2<'_, T>) -> Result<()> {
        let plan = &self.plan;
        let levels = (plan.levels.get(overview), plan.levels.get(overview + 1));
        let ((Some(below), Some(level)), Some(growing)) = (levels, self.growing.get(overview))
        else {
            return Ok(());
        };
        let step = Step::new(below, level);
        let mut complete = Vec::new();
        for (target, at, part) in self.parts(step, tile, pixels) {
            self.gauge.add(part.bytes());
            let slot = level.slot(target);
            let mut growing = growing.lock().unwrap_or_else(PoisonError::into_inner);
            let unfinished = growing.entry(slot).or_insert_with(|| Growing::Parts {
                parts: Box::default(),
                missing: step.parts_of(target),
            });
            let Growing::Parts { parts, missing } = unfinished else {
                continue;
            };
            parts[at[1]][at[0]] = Some(part);
            *missing = missing.saturating_sub(1);
            if *missing == 0
                && let Some(Growing::Parts { parts, .. }) = growing.remove(&slot)
            {
                complete.push((target, parts));
            }
        }
        // The lock is released here: only one thread gets a complete tile, and works on it alone.
        for (tile, parts) in complete {
            let pixels = self.join(step, tile, &parts);
            let (slot, source) = (level.slot(tile), pixels.view());
            // An idle thread can take one of the two: at the end of a file only overviews are left to compute.
            let (kept, grown) = rayon::join(
                || {
                    if level.source == level.size {
                        return self.keep(overview, slot, source);
                    }
                    let axes = [
                        (level.source.width, level.size.width),
                        (level.source.height, level.size.height),
                    ];
                    let axes = axes.map(|(from, to)| Shrink {
                        from: from as usize,
                        to: to as usize,
                    });
                    let [cols, rows] = level.source_in(tile, plan.tile);
                    let part = LevelPart {
                        samples: source,
                        col: cols.start,
                        row: rows.start,
                    };
                    let made = self.pixels_in(level, tile);
                    let pixels = self.shrunk(&part, axes, made, tile.band);
                    self.keep(overview, slot, pixels.view())
                },
                || self.grow(overview + 1, tile, source),
            );
            kept.and(grown)?;
        }
        Ok(())
    }

    /// Returns what a tile gives to tiles of the next level: to its own, and its last column and row to those to the
    /// right and below, where pixels lie across the border. With the column and row among the parts of that tile.
    fn parts(
        &self,
        step: Step<'_>,
        tile: Tile,
        pixels: ArrayView2<'_, T>,
    ) -> Vec<(Tile, [usize; 2], TilePart<T>)> {
        let source = step.below.source_in(tile, self.plan.tile);
        let part = LevelPart {
            samples: pixels,
            col: source[0].start,
            row: source[1].start,
        };
        let made = step.made_of(&source);
        let [is_odd_x, is_odd_y] = step.is_odd;
        let (height, width) = pixels.dim();
        let row = |rows: Range<usize>| pixels.slice(s![rows, ..]).to_owned();
        let col = |cols: Range<usize>| pixels.slice(s![.., cols]).to_owned();
        let mut own = TilePart {
            pixels: self.shrunk(&part, step.axes, made, tile.band),
            ..TilePart::empty()
        };
        if is_odd_x {
            own.first_cols = col(0..width.min(2));
            own.last_col = col(width.saturating_sub(1)..width);
        }
        if is_odd_y {
            own.first_rows = row(0..height.min(2));
            own.last_row = row(height.saturating_sub(1)..height);
        }
        let (above, at) = (tile.above(), [tile.col % 2 + 1, tile.row % 2 + 1]);
        let right = is_odd_x && at[0] == 2 && tile.col + 1 < step.below.cols;
        let under = is_odd_y && at[1] == 2 && tile.row + 1 < step.below.rows;
        let mut parts = Vec::with_capacity(4);
        let edge = |col: usize, row: usize| Tile {
            col: above.col + col,
            row: above.row + row,
            ..above
        };
        if right {
            let last_col = own.last_col.clone();
            let part = TilePart {
                last_col,
                ..TilePart::empty()
            };
            parts.push((edge(1, 0), [0, at[1]], part));
        }
        if under {
            let last_row = own.last_row.clone();
            let part = TilePart {
                last_row,
                ..TilePart::empty()
            };
            parts.push((edge(0, 1), [at[0], 0], part));
        }
        if right && under {
            let corner = pixels.slice(s![height - 1..height, width - 1..width]);
            let part = TilePart {
                last_row: corner.to_owned(),
                ..TilePart::empty()
            };
            parts.push((edge(1, 1), [0, 0], part));
        }
        parts.push((above, at, own));
        parts
    }

    /// Joins the parts of a tile, and computes its pixels that lie across the borders of tiles below.
    fn join(&self, step: Step<'_>, tile: Tile, parts: &Parts<T>) -> Array2<T> {
        let [cols, rows] = step.level.source_in(tile, self.plan.tile);
        let mut joined = Array2::from_elem((rows.len(), cols.len()), self.fill());
        let inside = |[x, y]: [Range<usize>; 2]| {
            s![
                y.start - rows.start..y.end - rows.start,
                x.start - cols.start..x.end - cols.start
            ]
        };
        for (y, x) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
            let Some(part) = &parts[y][x] else { continue };
            let child = Tile {
                band: tile.band,
                col: 2 * tile.col + x - 1,
                row: 2 * tile.row + y - 1,
            };
            let source = step.below.source_in(child, self.plan.tile);
            let made = step.made_of(&source);
            joined.slice_mut(inside(made.clone())).assign(&part.pixels);
            let is_behind = [0, 1].map(|axis| step.is_odd[axis] && source[axis].start > 0);
            let [left, above] = [
                parts[y][x - 1].as_ref().filter(|_| is_behind[0]),
                parts[y - 1][x].as_ref().filter(|_| is_behind[1]),
            ];
            if let Some(above) = above {
                let mut seam = concatenated(Axis(0), &above.last_row, &part.first_rows);
                let mut col = source[0].start;
                if let Some(left) = left {
                    let corner = parts[y - 1][x - 1].as_ref().and_then(TilePart::corner);
                    let corner = Array2::from_elem((1, 1), corner.unwrap_or(self.fill()));
                    let count = part.first_rows.nrows().min(left.last_col.nrows());
                    let beside = left.last_col.slice(s![..count, ..]).to_owned();
                    let beside = concatenated(Axis(0), &corner, &beside);
                    seam = concatenated(Axis(1), &beside, &seam);
                    col -= 1;
                }
                let seam = LevelPart {
                    samples: seam.view(),
                    col,
                    row: source[1].start - 1,
                };
                let first = [made[0].clone(), made[1].start..made[1].start + 1];
                let pixels = self.shrunk(&seam, step.axes, first.clone(), tile.band);
                joined.slice_mut(inside(first)).assign(&pixels);
            }
            if let Some(left) = left {
                let seam = concatenated(Axis(1), &left.last_col, &part.first_cols);
                let seam = LevelPart {
                    samples: seam.view(),
                    col: source[0].start - 1,
                    row: source[1].start,
                };
                // The first row is the seam above where there is one.
                let start = (made[1].start + usize::from(above.is_some())).min(made[1].end);
                let first = [made[0].start..made[0].start + 1, start..made[1].end];
                let pixels = self.shrunk(&seam, step.axes, first.clone(), tile.band);
                joined.slice_mut(inside(first)).assign(&pixels);
            }
        }
        for part in parts.iter().flatten().flatten() {
            self.gauge.remove(part.bytes());
        }
        joined
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
        let (coded, grown) = rayon::join(code, || self.add(place.tile, pixels));
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

impl<T: Sample> Pyramid<T> {
    fn wrong(&self, block: &Pixels) -> crate::error::Error {
        let (found, expected) = (block.dtype(), self.plan.dtype);
        invalid(format!("a block of {found} samples, expected {expected}"))
    }
}
