//! Cloud Optimized GeoTIFFs written from blocks of pixels, in one pass.
//!
//! Tiles are compressed on the CPU pool as they are written, and overviews are computed from them. The
//! directories are first in the file, and their size is known before any pixel: nothing is written twice, there
//! is no temporary file of the size of the result, and a file and an object in a bucket get the same bytes.
//! Then follow the tiles of full resolution in the order in which they are written, the overviews from the
//! smallest to the largest, and last the first tile of full resolution: validators take the offset of a
//! level's first tile for the offset of the level, and expect smaller levels first.
//!
//! Palettes, masks, lossy compression and pixel-interleaved samples are not supported. The layout is planar, so
//! that one band is read without the others; the tiles of all bands at one position are adjacent in the file, so
//! that reading them all costs no more requests.

mod encode;
mod growing;
mod header;
mod options;
mod plan;
mod pyramid;
mod sink;
mod statistics;
mod tile_store;

use std::{collections::VecDeque, path::Path, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use ndarray::s;

use self::{
    header::{HeaderFacts, TileOffsets, header},
    plan::{CogPlan, Tile, invalid},
    pyramid::{Coded, TileInBlock, Work, work},
    sink::Sink,
    statistics::Moments,
    tile_store::{Gauge, TileStore},
};
pub use self::{
    options::{Band, CogOptions, Compression, Overviews, Predictor},
    statistics::BandStatistics,
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{GeoBox, Size, TileIndex, Window},
    location::Location,
    raster::{DataType, Pixels, Raster, Sample, tiff::Form, with_type},
    session::Session,
};

/// Compressed bytes of overviews that are passed to the sink at once.
const BATCH_BYTES: usize = 1 << 20;
/// Compressed overviews take up to a fourth of the session's `budget_bytes` in memory; they hold no share.
const KEPT_SHARE: u64 = 4;

/// Properties of a written COG.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CogReport {
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes before the first tile: the size of a reader's first request.
    pub header_bytes: u64,
    /// Tiles of all levels and bands, sparse ones included.
    pub tiles: u64,
    /// Sparse tiles: they hold no data and are not stored.
    pub sparse: u64,
    /// Sizes of the overviews, largest first.
    pub overviews: Vec<Size>,
    /// The predictor in the file, also if it was chosen automatically.
    pub predictor: Predictor,
    /// True if the file is a BigTIFF: it might have passed 4 GiB.
    pub is_bigtiff: bool,
    /// Statistics of each band, if they were requested; none if no sample is valid.
    pub statistics: Vec<Option<BandStatistics>>,
    /// The peak of bytes in memory: unfinished overview tiles, compressed tiles that are not written yet, and
    /// parts of an upload, with the header. The blocks passed to `write` are not counted.
    pub peak_bytes: u64,
    /// Bytes of overviews that were spilled to a temporary file, past their bound in memory.
    pub spilled_bytes: u64,
}

/// A COG that is being written.
///
/// Write all tiles of full resolution, each once, in any order, then [`finish`](Self::finish). Dropped before,
/// it leaves no file, and its upload is aborted.
///
/// Memory: when a write returns, two tiles for each CPU thread are still being compressed, with their blocks.
/// If blocks are written row by row, each overview holds a row of unfinished tiles; in random order, up to a
/// third of all pixels. Compressed overviews take a quarter of the session's `budget_bytes`, and a temporary
/// file beyond. An upload holds up to six parts of 8 MiB; parts are larger if the object may pass 75 GB.
#[derive(Debug)]
pub struct Cog {
    session: Session,
    location: Location,
    plan: Arc<CogPlan>,
    work: Arc<dyn Work>,
    sink: Option<Sink>,
    /// By level.
    tables: Vec<TileOffsets>,
    /// By slot of full resolution.
    moments: Vec<Moments>,
    /// By tile of full resolution.
    is_written: Vec<bool>,
    under_way: VecDeque<UnderWay>,
    /// The first stored tile of the first band, and its slot: it is written last.
    first: Option<(usize, Bytes)>,
    header_bytes: u64,
    position: u64,
    sparse: u64,
    gauge: Arc<Gauge>,
    /// True during a write, and after one that failed or was dropped: its tiles are marked as written, so it
    /// cannot be repeated.
    is_broken: bool,
}

/// A tile that is being compressed.
struct UnderWay {
    slot: usize,
    done: BoxFuture<'static, Result<Result<Coded>>>,
}

impl std::fmt::Debug for UnderWay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UnderWay({})", self.slot)
    }
}

impl Cog {
    /// Begins a COG of `bands` bands on a grid: a local file, or an object in a bucket. Sends no request
    /// before 16 MiB are written, or the file is finished.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for options that contradict each other, an empty grid, a folder that does
    /// not exist, or a read-only URL; [`ErrorKind::Denied`] for a folder that cannot be written;
    /// [`ErrorKind::Unsupported`] for a CRS that GeoKeys cannot state, and for overviews by a method that they do not have.
    pub async fn create(
        session: &Session,
        location: &Location,
        grid: GeoBox,
        dtype: DataType,
        bands: usize,
        options: &CogOptions,
    ) -> Result<Self> {
        let at = |err: Error| err.at(location);
        let plan = Arc::new(CogPlan::new(grid, dtype, bands, options).map_err(at)?);
        let tables: Vec<TileOffsets> = plan
            .levels
            .iter()
            .map(|level| TileOffsets::new(level.tiles() * bands))
            .collect();
        // A header with empty tables and statistics has the size of the final one: tiles follow it.
        let empty = header(&plan, plan.usual, &tables, &HeaderFacts::Later).map_err(at)?;
        let header_bytes = empty.len() as u64;
        let gauge = Arc::new(Gauge::default());
        let folder = location.as_local().and_then(Path::parent);
        let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
        let kept = TileStore::new(
            tables.iter().skip(1).map(|table| table.offsets.len()),
            session.settings().budget_bytes / KEPT_SHARE,
            folder.map(Path::to_owned),
            Arc::clone(&gauge),
        );
        let sink = Sink::create(session, location, header_bytes, plan.most_bytes, &gauge);
        let full = plan.full();
        Ok(Self {
            session: session.clone(),
            location: location.clone(),
            work: work(&plan, kept, &gauge),
            sink: Some(sink.map_err(at)?),
            tables,
            moments: match plan.statistics {
                true => vec![Moments::default(); full.tiles() * bands],
                false => Vec::new(),
            },
            is_written: vec![false; full.tiles()],
            under_way: VecDeque::new(),
            first: None,
            header_bytes,
            position: header_bytes,
            sparse: 0,
            gauge,
            is_broken: false,
            plan,
        })
    }

    /// Writes a block: the pixels of a window that is aligned to tiles, or ends at the edge of the image.
    ///
    /// Returns when few enough tiles are being compressed, and not when the block is written. Larger blocks
    /// keep more CPU threads busy; a row of tiles is a good size. If the disk or the network is slow, the
    /// compressed tiles of a block wait in memory.
    ///
    /// A block that is refused leaves the file unchanged. After any other error, and if the future was dropped
    /// before its end, the file cannot be finished.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] for a window that is not aligned to tiles, a tile that was written
    /// before, pixels of another size, type or number of bands; [`ErrorKind::Unavailable`] or
    /// [`ErrorKind::Denied`] of the disk or the bucket.
    pub async fn write(&mut self, window: Window, pixels: impl Into<Arc<Pixels>>) -> Result<()> {
        let pixels = pixels.into();
        let tiles = self
            .check(&window, &pixels)
            .map_err(|err| err.at(&self.location))?;
        self.is_broken = true;
        let written = self.write_tiles(&window, &pixels, &tiles).await;
        written.map_err(|err| err.at(&self.location))?;
        self.is_broken = false;
        Ok(())
    }

    async fn write_tiles(
        &mut self,
        window: &Window,
        pixels: &Arc<Pixels>,
        tiles: &[TileIndex],
    ) -> Result<()> {
        let full = self.plan.full();
        let (side, bands) = (self.plan.tile, self.plan.bands);
        let place = |tile: &TileIndex, band: usize| TileInBlock {
            tile: Tile {
                band,
                col: tile.col as usize,
                row: tile.row as usize,
            },
            x: tile.col as usize * side - window.col as usize,
            y: tile.row as usize * side - window.row as usize,
        };
        let places: Arc<[TileInBlock]> = tiles
            .iter()
            .flat_map(|tile| (0..bands).map(move |band| place(tile, band)))
            .collect();
        // The predictor is one for the file, so it is chosen before the first tile is compressed.
        if !self.work.has_chosen() {
            let (work, block) = (Arc::clone(&self.work), Arc::clone(pixels));
            let all = Arc::clone(&places);
            let choose = move || work.choose(&block, &all);
            self.session.cpu(choose).await??;
        }
        // Marked before anything is compressed: after an error `is_broken` keeps the file from being finished.
        for tile in tiles {
            let at = tile.row as usize * full.cols + tile.col as usize;
            if let Some(is_written) = self.is_written.get_mut(at) {
                *is_written = true;
            }
        }
        for &place in places.iter() {
            let (work, block) = (Arc::clone(&self.work), Arc::clone(pixels));
            let done = self.session.start(move || work.tile(&block, place))?;
            self.under_way.push_back(UnderWay {
                slot: full.slot(place.tile),
                done: done.boxed(),
            });
        }
        // Two tiles for each CPU thread stay queued: the threads are busy until the next block comes.
        let most = 2 * self.session.settings().cpu_threads + 2;
        while self.under_way.len() > most {
            self.settle().await?;
        }
        Ok(())
    }

    /// Checks a block, and returns its tiles.
    fn check(&self, window: &Window, pixels: &Pixels) -> Result<Vec<TileIndex>> {
        if self.is_broken {
            return Err(broken());
        }
        if pixels.dtype() != self.plan.dtype {
            return Err(invalid(format!(
                "a block of {} samples, expected {}",
                pixels.dtype(),
                self.plan.dtype
            )));
        }
        let expected = [
            self.plan.bands,
            window.height as usize,
            window.width as usize,
        ];
        if pixels.shape() != expected {
            let [bands, rows, cols] = pixels.shape();
            let [all, height, width] = expected;
            return Err(invalid(format!(
                "a block of {bands} bands of {cols} x {rows} pixels, expected {all} of {width} x {height}"
            )));
        }
        let tiles = self.plan.tiles_of(window)?;
        let full = self.plan.full();
        let at = |tile: &TileIndex| tile.row as usize * full.cols + tile.col as usize;
        match tiles
            .iter()
            .find(|&tile| self.is_written.get(at(tile)) == Some(&true))
        {
            Some(tile) => Err(invalid(format!(
                "tile {},{} was written before",
                tile.col, tile.row
            ))),
            None => Ok(tiles),
        }
    }

    /// Waits for the oldest tile in the queue, and writes it with the finished ones after it: tiles are stored
    /// in the order in which they were queued.
    async fn settle(&mut self) -> Result<()> {
        let Some(UnderWay { slot, done }) = self.under_way.pop_front() else {
            return Ok(());
        };
        let mut pieces = Vec::new();
        let coded = done.await??;
        self.place(slot, coded, &mut pieces);
        while let Some(next) = self.under_way.front_mut() {
            let Some(coded) = (&mut next.done).now_or_never() else {
                break;
            };
            let slot = next.slot;
            self.under_way.pop_front();
            self.place(slot, coded??, &mut pieces);
        }
        self.append(pieces).await
    }

    /// Appends a tile of full resolution to the file, or keeps it back if it is the first of its band.
    fn place(&mut self, slot: usize, coded: Coded, pieces: &mut Vec<Bytes>) {
        if let Some(moments) = self.moments.get_mut(slot) {
            *moments = coded.moments;
        }
        let Some(bytes) = coded.bytes else {
            self.sparse += 1;
            return;
        };
        // The tile of the smallest slot is the first of its level: a smaller one takes its position, and the
        // one that was kept is written.
        let is_first = match &self.first {
            Some((first, _)) => slot < *first,
            None => slot < self.plan.full().tiles(),
        };
        let next = match is_first && self.plan.has_overviews() {
            true => self.first.replace((slot, bytes)),
            false => Some((slot, bytes)),
        };
        if let Some((slot, bytes)) = next {
            self.push(0, slot, bytes, pieces);
        }
    }

    /// Records the offset of a tile at the end of the file.
    fn push(&mut self, level: usize, slot: usize, bytes: Bytes, pieces: &mut Vec<Bytes>) {
        // A tile is far below 4 GiB: its side is bounded.
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if let Some(table) = self.tables.get_mut(level) {
            table.set(slot, self.position, length);
        }
        self.position += bytes.len() as u64;
        pieces.push(bytes);
    }

    async fn append(&mut self, pieces: Vec<Bytes>) -> Result<()> {
        match &mut self.sink {
            Some(sink) => sink.append(pieces).await,
            None => Ok(()),
        }
    }

    /// Writes the overviews and the header, and publishes the file: before, nobody sees it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] naming the first missing tile, and after a write that failed;
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::Denied`] of the disk or the bucket. Nothing is left behind.
    pub async fn finish(mut self) -> Result<CogReport> {
        let finished = self.complete().await;
        if finished.is_err()
            && let Some(sink) = self.sink.take()
        {
            // The first error is the cause: an error of the abort is dropped.
            let _ = sink.abort().await;
        }
        finished.map_err(|err| err.at(&self.location))
    }

    /// Aborts the write: removes the written bytes, and waits until an upload is aborted.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`] or [`ErrorKind::Denied`] of the bucket.
    pub async fn abort(mut self) -> Result<()> {
        match self.sink.take() {
            Some(sink) => sink.abort().await.map_err(|err| err.at(&self.location)),
            None => Ok(()),
        }
    }

    /// Finishes after success; else aborts, and returns the error once nothing is left behind.
    pub(crate) async fn end(self, written: Result<()>) -> Result<CogReport> {
        match written {
            Ok(()) => self.finish().await,
            Err(err) => {
                // The first error is the cause: an error of the abort is dropped.
                let _ = self.abort().await;
                Err(err)
            }
        }
    }

    async fn complete(&mut self) -> Result<CogReport> {
        if self.is_broken {
            return Err(broken());
        }
        let full = self.plan.full();
        let missing = self.is_written.iter().filter(|&&is_written| !is_written);
        if let Some(first) = self.is_written.iter().position(|&is_written| !is_written) {
            return Err(invalid(format!(
                "tile {},{} was not written; {} of {} are missing",
                first % full.cols,
                first / full.cols,
                missing.count(),
                self.is_written.len()
            )));
        }
        while !self.under_way.is_empty() {
            self.settle().await?;
        }
        for level in (1..self.plan.levels.len()).rev() {
            self.write_overview(level).await?;
        }
        if let Some((slot, bytes)) = self.first.take() {
            let mut pieces = Vec::new();
            self.push(0, slot, bytes, &mut pieces);
            self.append(pieces).await?;
        }
        let statistics = self.statistics();
        let filter = self.work.filter();
        let header = header(
            &self.plan,
            filter,
            &self.tables,
            &HeaderFacts::Now(&statistics),
        )?;
        if header.len() as u64 != self.header_bytes {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the header does not have the size that was reserved for it",
            ));
        }
        if let Some(sink) = self.sink.take() {
            self.gauge.add(header.len());
            sink.finish(header.into()).await?;
        }
        let tiles = self.tables.iter().map(|table| table.offsets.len() as u64);
        let overviews = self.plan.levels.iter().skip(1);
        Ok(CogReport {
            bytes: self.position,
            header_bytes: self.header_bytes,
            tiles: tiles.sum(),
            sparse: self.sparse,
            overviews: overviews.map(|level| level.size).collect(),
            predictor: filter.into(),
            is_bigtiff: self.plan.form == Form::Big,
            statistics,
            peak_bytes: self.gauge.peak(),
            spilled_bytes: self.work.spilled(),
        })
    }

    /// Writes all tiles of an overview.
    async fn write_overview(&mut self, level: usize) -> Result<()> {
        let Some(&shape) = self.plan.levels.get(level) else {
            return Ok(());
        };
        let most = self.plan.tile * self.plan.tile * self.plan.dtype.size();
        let at_once = (BATCH_BYTES / most.max(1)).max(1);
        let slots: Vec<usize> = self.plan.slots(shape).collect();
        for slots in slots.chunks(at_once) {
            let (work, wanted) = (Arc::clone(&self.work), slots.to_vec());
            let taken = self.session.cpu(move || work.take(level - 1, &wanted));
            let mut pieces = Vec::new();
            for (&slot, bytes) in slots.iter().zip(taken.await??) {
                match bytes {
                    None => self.sparse += 1,
                    Some(bytes) => {
                        self.gauge.add(bytes.len());
                        self.push(level, slot, bytes, &mut pieces);
                    }
                }
            }
            self.append(pieces).await?;
        }
        Ok(())
    }

    /// Returns the statistics of each band. Tiles are merged by slot and not in the order of writing, so that
    /// the rounding of the sums does not depend on that order.
    fn statistics(&self) -> Vec<Option<BandStatistics>> {
        let tiles = self.plan.full().tiles().max(1);
        let bands = self.moments.chunks(tiles).map(|tiles| {
            let mut all = Moments::default();
            tiles.iter().for_each(|tile| all.merge(tile));
            all.statistics()
        });
        bands.collect()
    }
}

/// Writes a raster as a COG. Its nodata value is used if the options state none.
///
/// ```
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// use rss_core::{
///     Crs, DataType, GeoBox, GeoTransform, Location, Pixels, Raster, Session, Size,
///     writer::{self, Band, CogOptions},
/// };
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("ndvi.tif");
/// let size = Size { width: 600, height: 400 };
/// let raster = Raster {
///     pixels: Pixels::zeros(DataType::F32, 1, size)?,
///     geobox: GeoBox {
///         size,
///         crs: Some(Crs::Epsg(32756)),
///         transform: Some(GeoTransform([500_000.0, 10.0, 0.0, 7_000_000.0, 0.0, -10.0])),
///     },
///     nodata: Some(f64::NAN.into()),
///     sparse: Vec::new(),
/// };
/// let session = Session::builder().build()?;
/// let location = Location::parse(&path.to_string_lossy())?;
/// let options = CogOptions::new().with_bands([Band::named("ndvi")]);
/// let report = writer::save(&session, &location, &raster, &options).await?;
/// assert_eq!(report.overviews, [Size { width: 300, height: 200 }]);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// As [`Cog::create`], [`Cog::write`] and [`Cog::finish`]. Nothing is left behind: an upload is aborted before
/// the error is returned.
pub async fn save(
    session: &Session,
    location: &Location,
    raster: &Raster,
    options: &CogOptions,
) -> Result<CogReport> {
    let [bands, height, width] = raster.pixels.shape();
    let size = raster.geobox.size;
    if (size.height as usize, size.width as usize) != (height, width) {
        let message = format!(
            "{width} x {height} pixels on a grid of {} x {}",
            size.width, size.height
        );
        return Err(invalid(message).at(location));
    }
    let mut options = options.clone();
    let (grid, dtype) = (raster.geobox.clone(), raster.pixels.dtype());
    // A source may state a nodata value that its data type cannot hold: then no sample has it.
    let nodata = raster.nodata.filter(|&nodata| dtype.holds(nodata));
    options.nodata = options.nodata.or(nodata);
    let mut cog = Cog::create(session, location, grid, dtype, bands, &options).await?;
    let written = write_rows(&mut cog, &raster.pixels, size, options.tile).await;
    cog.end(written).await
}

/// Writes all pixels, a row of tiles at a time.
async fn write_rows(cog: &mut Cog, pixels: &Pixels, size: Size, tile: u32) -> Result<()> {
    for row in (0..size.height).step_by(tile as usize) {
        let window = Window {
            col: 0,
            row,
            width: size.width,
            height: tile.min(size.height - row),
        };
        cog.write(window, rows(pixels, &window)?).await?;
    }
    Ok(())
}

/// Copies some rows of pixels.
fn rows(pixels: &Pixels, window: &Window) -> Result<Pixels> {
    let (start, rows) = (window.row as usize, window.height as usize);
    with_type!(pixels.dtype(), T => {
        let view = T::view(pixels).ok_or_else(|| invalid("pixels of another type"))?;
        Ok(T::wrap(view.slice(s![.., start..start + rows, ..]).to_owned()))
    })
}

fn broken() -> Error {
    invalid("an earlier write of this file failed or was interrupted")
}

#[doc(hidden)]
#[deprecated(since = "0.1.0", note = "renamed to `BandStatistics`")]
pub type Statistics = BandStatistics;
