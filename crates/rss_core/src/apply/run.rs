//! Computing a cube block by block: blocks are loaded while others are computed, and are returned in order.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
};

use futures::{Stream, StreamExt, TryStreamExt, stream};
use ndarray::{Array3, Axis, s};

use super::{
    block::{Block, BlockSample},
    cube::{ImageCube, Inner, blocks_of},
    load::{BlockPlan, Loaded},
    options::{ApplyOptions, ApplyProgress},
    periods::{Dated, Plans, join, names_of},
    reduce::{Geomedian, Reducer, reduce_f32},
    report::{ApplyReport, MissingInput},
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{Size, Window},
    raster::{Canvas, Number, Raster, Rest, Sample, Slot, Wanted},
    session::{Session, Share},
    store::{spawned, told},
};

/// The largest default side of a block, in pixels.
const LARGEST_BLOCK: u32 = 1024;
/// The smallest default side of a block, in pixels: the usual tile of a COG.
const LEAST_BLOCK: u32 = 512;
/// A block of at most so many bytes keeps the largest side, whatever the tiles are.
const SMALL_BYTES: u64 = 64 << 20;

pub(super) type Compute<O> =
    Arc<dyn Fn(&Inner, Loaded) -> Result<(Array3<O>, Vec<MissingInput>)> + Send + Sync>;
pub(super) type Planning = Arc<
    dyn Fn(Arc<Inner>, Window, u32) -> futures::future::BoxFuture<'static, Result<BlockPlan>>
        + Send
        + Sync,
>;

/// A lazy computation over a cube: nothing is read before a result is requested.
///
/// Dropping the future of a result cancels it.
#[must_use = "nothing is computed before a result is requested"]
pub struct Apply<O> {
    pub(super) cube: ImageCube,
    pub(super) options: ApplyOptions,
    /// The computation in words, such as `median`; none for a closure.
    pub(super) how: Option<String>,
    /// The variables and their time steps, if the bands of the result are these.
    pub(super) each_date: Option<Dated>,
    /// What is computed one after the other for each block: the cube itself, or its part of each period.
    pub(super) parts: Arc<[ImageCube]>,
    /// What a user should know of the computation.
    pub(super) notes: Vec<String>,
    /// Whether each band of the result holds classes; a band past the end does not.
    pub(super) classes: Vec<bool>,
    pub(super) plan: Planning,
    pub(super) compute: Compute<O>,
}

impl<O> fmt::Debug for Apply<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Apply")
            .field("cube", &self.cube)
            .field("options", &self.options)
            .field("how", &self.how)
            .field("each_date", &self.each_date)
            .field("notes", &self.notes)
            .finish_non_exhaustive()
    }
}

/// One block of a result.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Computed<O> {
    /// Its window in the cube's grid.
    pub window: Window,
    /// (band, y, x).
    pub samples: Array3<O>,
    /// The inputs that could not be read for it.
    pub missing_inputs: Vec<MissingInput>,
}

impl ImageCube {
    /// Computes (band, y, x) of each block of (time, band, y, x) by a closure, which may fail. It runs on the
    /// CPU pool, for several blocks at once, and may return the block's size with or without the halo.
    ///
    /// Each file is opened once, and read block by block: what the next blocks need is fetched while others
    /// are computed, within the session's budget of memory. Results come in the order of the blocks, row by
    /// row, and do not depend on how many threads there are.
    ///
    /// ```
    /// # use rss_core::{Cmp, Collection, DEA, ImageQueryBuilder, Intersects, Session, Source, date};
    /// use rss_core::apply::{ApplyOptions, Block, ImageCubeOptions};
    /// # let bed = rss_testbed::Testbed::builder().scenes(rss_testbed::Scenes::small()).start()?;
    /// # let session = Session::builder().s3_endpoint(&bed.s3_endpoint()).build()?;
    /// # let dea = Source::api(&bed.stac_url())?.like(&DEA);
    /// # let found = ImageQueryBuilder::new(dea, Collection::Sentinel2, Intersects::scene("56jns"))
    /// #     .session(session.clone())
    /// #     .canonical_bands(["red", "nir"])
    /// #     .start_date(date(2021, 1, 1)).end_date(date(2021, 2, 1))
    /// #     .cloudcover((Cmp::Less, 30)).build()?.search()?;
    ///
    /// let cube = session.cube(&found, &ImageCubeOptions::new().reflectance())?;
    /// let ndvi = cube.apply(ApplyOptions::new(), |block: &Block<f32>| {
    ///     let (red, nir) = (block.band("red")?, block.band("nir")?); // (time, y, x)
    ///     Ok((&nir - &red) / (&nir + &red)) // a band for each date
    /// });
    /// let (raster, report) = session.compute(ndvi)?;
    /// assert_eq!(raster.pixels.shape()[0], cube.steps().len());
    /// assert!(report.missing_inputs.is_empty());
    /// # Ok::<_, anyhow::Error>(())
    /// ```
    pub fn apply<T, O, F>(&self, options: ApplyOptions, compute: F) -> Apply<O>
    where
        T: BlockSample,
        O: Sample + Send + Sync + 'static,
        F: Fn(&Block<T>) -> Result<Array3<O>> + Send + Sync + 'static,
    {
        // Buffers of blocks that are done, for reuse: new memory costs more time than the samples written to it.
        // There are never more of them than blocks were computed at once, and the budget counted those. An error of
        // the closure drops its buffer, but ends the computation as well.
        let spare: Mutex<Vec<Vec<T>>> = Mutex::default();
        Apply {
            cube: self.clone(),
            options,
            how: None,
            each_date: None,
            parts: [self.clone()].into(),
            notes: Vec::new(),
            classes: Vec::new(),
            plan: Arc::new(|inner, window, halo| {
                Box::pin(async move { inner.plan::<T>(window, halo).await })
            }),
            compute: Arc::new(move |inner, loaded| {
                let taken = spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let (block, missing_inputs) =
                    inner.lay_out::<T>(loaded, taken.unwrap_or_default())?;
                let window = block.window();
                let named = |err: Error| {
                    let message = format!("block {window}: {}", err.message());
                    err.with_message(message)
                };
                let made = told(|| compute(&block))
                    .and_then(|made| crop(&block, made))
                    .map_err(named)?;
                let (buffer, _) = block.data.into_raw_vec_and_offset();
                spare
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(buffer);
                Ok((made, missing_inputs))
            }),
        }
    }

    /// Reduces the time axis, band by band; with [`Fill::Pixel`](super::mosaic::Fill::Pixel) the first and last are
    /// whole pixels, whose bands come from one time step. Bands keep their names. [`Apply::every`] reduces within
    /// months or other periods.
    ///
    /// The result is `float32`, whatever the files hold; [`reduce_typed`](Self::reduce_typed) rounds no sample.
    pub fn reduce(&self, reducer: Reducer, options: ApplyOptions) -> Apply<f32> {
        self.reduce_as::<f32, f32>(reducer, self.named(options))
    }

    /// Returns whether each band still holds classes once the images of a time step are composited.
    pub fn classes(&self) -> Vec<bool> {
        let keeps = self.0.options.mosaic.keeps_type();
        let bands = self.bands().iter();
        bands.map(|band| band.is_class && keeps).collect()
    }

    /// Reduces the band axis, time step by time step. The bands of the result are the time steps, by their labels.
    pub fn reduce_bands(&self, reducer: Reducer, mut options: ApplyOptions) -> Apply<f32> {
        if options.names.is_empty() {
            options.names = self.steps().iter().map(|step| step.label.clone()).collect();
        }
        let work = self.apply(options, move |block: &Block<f32>| {
            let data = block.data();
            let (times, _, height, width) = data.dim();
            let mut out = Array3::zeros((times, height, width));
            for (time, mut out) in out.axis_iter_mut(Axis(0)).enumerate() {
                out.assign(&reduce_f32(data.index_axis(Axis(0), time), reducer)?);
            }
            Ok(out)
        });
        let work = work.told(format!("{reducer} of bands"));
        work.each_date([reducer.to_string()])
    }

    /// Computes the geometric median over time: the bands of a pixel are reduced together, as one vector. Bands
    /// keep their names. [`geomedian_typed`](Self::geomedian_typed) does not round wide samples.
    pub fn geomedian(&self, geomedian: Geomedian, options: ApplyOptions) -> Apply<f32> {
        let options = self.named(options);
        let work = self.apply(options, move |block: &Block<f32>| {
            geomedian.of(block.data())
        });
        work.told("geomedian".to_owned())
            .noted(self.reduced("geomedian"))
    }

    pub(super) fn named(&self, mut options: ApplyOptions) -> ApplyOptions {
        if options.names.is_empty() {
            options.names = self.bands().iter().map(|band| band.name.clone()).collect();
        }
        options
    }

    /// Reads a window of the grid, (time, band, y, x).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the window is outside the grid, or samples cannot be loaded as `T`; errors of
    /// the files' stores.
    pub async fn read<T: BlockSample>(
        &self,
        window: Window,
    ) -> Result<(Block<T>, Vec<MissingInput>)> {
        window.check_inside(self.grid().size)?;
        let inner = Arc::clone(&self.0);
        let plan = inner.plan::<T>(window, 0).await?;
        let loaded = inner.load(plan).await?;
        let session = inner.session.clone();
        session
            .cpu(move || inner.lay_out::<T>(loaded, Vec::new()))
            .await?
    }

    /// Returns the side of blocks, in pixels: the option, else 1024 or 512. It is 512 where a block of 1024 for each
    /// thread and one more would exceed the budget, and where the block would be larger than [`SMALL_BYTES`] but the
    /// files' tiles are at most 512: writing to memory that is reused is faster than to new memory.
    pub(super) async fn block_side(&self, options: &ApplyOptions) -> Result<u32> {
        if let Some(side) = options.block {
            return match side > 0 && side.is_multiple_of(16) {
                true => Ok(side),
                false => Err(Error::new(
                    ErrorKind::InvalidInput,
                    format!("blocks of {side} pixels: expected a multiple of 16"),
                )),
            };
        }
        let settings = self.0.session.settings();
        let layers = self.steps().len() as u64 * self.bands().len() as u64;
        // An estimate before any file is opened: 8 bytes a sample.
        let bytes = u64::from(LARGEST_BLOCK).pow(2) * layers * 8;
        let at_once = settings.cpu_threads.max(1) as u64 + 1;
        let fits = bytes.saturating_mul(at_once) <= settings.budget_bytes;
        let is_large = fits && (bytes <= SMALL_BYTES || self.0.tile_side().await > LEAST_BLOCK);
        Ok(if is_large { LARGEST_BLOCK } else { LEAST_BLOCK })
    }
}

/// The blocks of one stream that are under way: begun, and not yet handed over.
#[derive(Clone, Debug, Default)]
struct UnderWay(Arc<AtomicU64>);

impl UnderWay {
    /// Waits for a share of the budget of work. The block that is due needs none: another stream that its caller does
    /// not poll may hold all of it, in blocks that are done, and would hold it for ever.
    async fn share(&self, session: &Session, bytes: u64) -> Option<Share> {
        let share = session.share_of_work(bytes);
        let mut share = std::pin::pin!(share);
        // Whoever takes a block polls the stream again, and with it this.
        std::future::poll_fn(|cx| match share.as_mut().poll(cx) {
            Poll::Pending if self.0.load(Ordering::Relaxed) == 0 => Poll::Ready(None),
            polled => polled,
        })
        .await
    }
}

impl<O: Sample + Send + Sync + 'static> Apply<O> {
    /// Returns the cube that it is computed from.
    pub fn cube(&self) -> &ImageCube {
        &self.cube
    }

    /// Returns the names of the result's bands; empty if they are numbered.
    pub fn band_names(&self) -> &[String] {
        &self.options.names
    }

    /// Declares that the result has a band for each of `names` and each time step: all time steps of the first
    /// name, then all of the next. Unless the options name the bands, they are named like `ndvi 2021-01-03`.
    ///
    /// Written as Zarr, such a result is an array (time, y, x) for each name, instead of an array of a single time
    /// step for each band.
    pub fn each_date(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        let steps = Arc::clone(&self.cube.0.steps);
        if self.options.names.is_empty() {
            self.options.names = names_of(&names, &steps);
        }
        self.each_date = Some(Dated { names, steps });
        self
    }

    /// Returns what a user should know of the computation: what the grouping into time steps leaves to a reducer.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Adds a note.
    pub(super) fn noted(mut self, note: Option<String>) -> Self {
        self.notes.extend(note);
        self
    }

    /// Declares which bands of the result hold classes or flags, which have no mean: overviews of a COG are not averaged.
    pub fn with_classes(mut self, classes: impl IntoIterator<Item = bool>) -> Self {
        self.classes = classes.into_iter().collect();
        self
    }

    /// Describes the computation, for the metadata of the result.
    pub(super) fn told(mut self, how: String) -> Self {
        self.how = Some(how);
        self
    }

    /// Returns the nodata value of the result.
    pub fn nodata(&self) -> Option<Number> {
        let usual = O::DTYPE.is_float().then_some(Number::NAN);
        self.options.nodata.or(usual)
    }

    /// Returns the blocks, row by row. A block's share of the budget is released when it is returned.
    ///
    /// # Errors
    ///
    /// In place of the first block: [`ErrorKind::InvalidInput`] if blocks cannot have this size. In place of any
    /// block: errors of the closure or of the files' stores, with block, item and asset.
    pub fn blocks(self) -> impl Stream<Item = Result<Computed<O>>> + Send {
        let blocks = async move {
            let side = self.block_side().await?;
            let windows = blocks_of(self.cube.grid().size, side);
            Ok::<_, Error>(self.each(windows, |_, block| Ok(block)))
        };
        stream::once(blocks).try_flatten()
    }

    /// Returns the result of `finish` for each block and its index, in order. `finish` runs on the CPU thread that
    /// computed the block.
    fn each<R: Send + 'static>(
        self,
        windows: Vec<Window>,
        finish: impl Fn(usize, Computed<O>) -> Result<R> + Send + Sync + 'static,
    ) -> impl Stream<Item = Result<R>> + Send {
        let finish = Arc::new(finish);
        let blocks = windows.len() as u64;
        let inner = Arc::clone(&self.cube.0);
        // One block for each thread, and two that are fetched meanwhile.
        let at_once = inner.session.settings().cpu_threads.max(1) + 2;
        let nodata = self.gaps();
        let watch = self.options.watch.clone();
        let compute = Arc::clone(&self.compute);
        let under_way = UnderWay::default();
        let planned = stream::iter(windows.into_iter().enumerate()).then({
            let under_way = under_way.clone();
            move |(number, window)| {
                let planning = self.plans(window);
                let session = inner.session.clone();
                let under_way = under_way.clone();
                async move {
                    let plan = planning.await?;
                    // Shares are taken in the order of the blocks (`then` runs one future at a time). Later blocks
                    // keep their share until they are returned, so the block that is due must have its own first.
                    let budget = session.settings().budget_bytes;
                    if plan.bytes > budget {
                        return Err(too_large(&window, plan.bytes, budget));
                    }
                    let share = under_way.share(&session, plan.bytes).await;
                    under_way.0.fetch_add(1, Ordering::Relaxed);
                    Ok((number, window, plan, share))
                }
            }
        });
        let done = AtomicU64::new(0);
        planned
            .map(move |planned| {
                let compute = Arc::clone(&compute);
                let finish = Arc::clone(&finish);
                let task = planned.map(|(number, window, plan, share)| {
                    // A task of its own is polled while the caller writes the block before.
                    spawned(async move {
                        let finish = move |computed| finish(number, computed);
                        let made = made_of(window, plan, compute, nodata, finish).await?;
                        Ok::<_, Error>((made, share))
                    })
                });
                async move { task?.await }
            })
            // The share is released here, when the block is handed over: until then its samples are in memory.
            .buffered(at_once)
            .map_ok(move |(made, share): (R, Option<Share>)| {
                let blocks_done = done.fetch_add(1, Ordering::Relaxed) + 1;
                if let Some(watch) = &watch {
                    watch(ApplyProgress {
                        blocks_done,
                        blocks,
                    });
                }
                under_way.0.fetch_sub(1, Ordering::Relaxed);
                drop(share);
                made
            })
    }

    /// Computes the complete result in memory.
    ///
    /// # Errors
    ///
    /// As of [`Apply::blocks`]; [`ErrorKind::InvalidInput`] if blocks differ in their number of bands, or the
    /// result does not fit in memory.
    pub async fn raster(self) -> Result<(Raster, ApplyReport)> {
        let grid = self.cube.grid().clone();
        let nodata = self.nodata();
        let mut report = self.report();
        let side = self.block_side().await?;
        let windows = blocks_of(grid.size, side);
        let whole = Arc::new(Whole::new(grid.size, windows.clone()));
        let mut expected = None;
        {
            let whole = Arc::clone(&whole);
            let blocks = self.each(windows, move |number, block| {
                let bands = block.samples.dim().0;
                whole.add(number, &block.samples)?;
                Ok((block.window, bands, block.missing_inputs))
            });
            let mut blocks = std::pin::pin!(blocks);
            while let Some((window, bands, missing_inputs)) = blocks.try_next().await? {
                check_bands(*expected.get_or_insert(bands), bands, &window)?;
                report.add(missing_inputs);
            }
        }
        let raster = Raster {
            pixels: O::wrap(whole.join()?),
            geobox: grid,
            nodata,
            sparse: Vec::new(),
        };
        Ok((raster, report))
    }

    /// Returns the value that replaces NaN, if there is one.
    pub(super) fn gaps(&self) -> Option<Number> {
        self.options.nodata.filter(|_| O::DTYPE.is_float())
    }

    pub(super) fn report(&self) -> ApplyReport {
        ApplyReport {
            blocks: 0,
            missing_inputs: self.cube.0.missing_inputs.clone(),
        }
    }
}

impl ApplyReport {
    pub(super) fn add(&mut self, missing_inputs: Vec<MissingInput>) {
        self.blocks += 1;
        self.missing_inputs.extend(missing_inputs);
    }
}

/// Loads and computes a block, replaces NaN by `nodata`, and returns the result of `finish`.
pub(super) async fn made_of<O: Sample + Send + Sync + 'static, R: Send + 'static>(
    window: Window,
    plans: Plans,
    compute: Compute<O>,
    nodata: Option<Number>,
    finish: impl FnOnce(Computed<O>) -> Result<R> + Send + 'static,
) -> Result<R> {
    let parts = plans.of_parts.len();
    let mut plans = plans.of_parts;
    let none = || Error::new(ErrorKind::InvalidInput, "a computation over no time steps");
    let (cube, last) = plans.pop().ok_or_else(none)?;
    let session = cube.0.session.clone();
    let mut missing_inputs = Vec::new();
    let mut whole = None;
    // One part after the other, so that a block takes the memory of the largest.
    for (number, (cube, plan)) in plans.into_iter().enumerate() {
        let loaded = cube.0.load(plan).await?;
        let compute = Arc::clone(&compute);
        let made = session.cpu(move || {
            let (samples, missing_inputs) = compute(&cube.0, loaded)?;
            let joined = join(whole, samples, number, parts, &window)?;
            Ok::<_, Error>((joined, missing_inputs))
        });
        let (joined, more) = made.await??;
        whole = Some(joined);
        missing_inputs.extend(more);
    }
    let loaded = cube.0.load(last).await?;
    let made = session.cpu(move || {
        let (samples, more) = compute(&cube.0, loaded)?;
        missing_inputs.extend(more);
        let mut samples = match parts {
            1 => samples,
            _ => join(whole, samples, parts - 1, parts, &window)?,
        };
        cube.0.clip_result(&window, &mut samples);
        if let Some(nodata) = nodata {
            let nodata: O = crate::raster::fill(Some(nodata));
            let is_missing = |sample: &O| sample.number().is_nan();
            samples.mapv_inplace(|sample| match is_missing(&sample) {
                true => nodata,
                false => sample,
            });
        }
        finish(Computed {
            window,
            samples,
            missing_inputs,
        })
    });
    made.await?
}

/// A result in memory. Each block is written into it by the thread that computed it, in any order.
struct Whole<O> {
    size: Size,
    windows: Vec<Window>,
    /// Allocated with the first block: the number of bands is not known before.
    begun: Mutex<Option<Begun<O>>>,
}

struct Begun<O> {
    rest: Rest<O>,
    bands: usize,
    /// For each block, its slot in each band; empty once it is taken.
    slots: Vec<Vec<Slot<O>>>,
}

impl<O: Sample> Whole<O> {
    fn new(size: Size, windows: Vec<Window>) -> Self {
        Self {
            size,
            windows,
            begun: Mutex::default(),
        }
    }

    /// Writes a block, unless its number of bands differs from that of the first one written.
    fn add(&self, number: usize, samples: &Array3<O>) -> Result<()> {
        let bands = samples.dim().0;
        // The lock is held only to take the slots. They do not overlap, so threads copy samples in parallel.
        let slots = {
            let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
            let begun = match &mut *begun {
                Some(begun) => begun,
                none => none.insert(self.begin(bands)?),
            };
            match begun.slots.get_mut(number) {
                Some(slots) if begun.bands == bands => std::mem::take(slots),
                // Nothing is lost: `check_bands` fails for such a block when the stream returns it.
                _ => Vec::new(),
            }
        };
        for (mut slot, plane) in slots.into_iter().zip(samples.outer_iter()) {
            for (row, samples) in plane.rows().into_iter().enumerate() {
                let Some(out) = slot.row(row) else { continue };
                match samples.to_slice() {
                    Some(samples) => out.copy_from_slice(samples),
                    None => out
                        .iter_mut()
                        .zip(samples)
                        .for_each(|(out, &sample)| *out = sample),
                }
            }
        }
        Ok(())
    }

    fn begin(&self, bands: usize) -> Result<Begun<O>> {
        let blocks = self.windows.iter();
        let wanted = |window: &Window| {
            let window = *window;
            (0..bands).map(move |band| Wanted { band, window })
        };
        let wanted: Vec<Wanted> = blocks.flat_map(wanted).collect();
        let canvas = Canvas::new(bands, Window::whole(self.size))?;
        let (rest, slots) = canvas.split(&wanted)?;
        let mut slots = slots.into_iter();
        let of_blocks = self.windows.iter();
        let slots = of_blocks.map(|_| slots.by_ref().take(bands).collect());
        Ok(Begun {
            bands,
            slots: slots.collect(),
            rest,
        })
    }

    /// Returns the complete array, (band, y, x).
    fn join(&self) -> Result<Array3<O>> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let Begun { rest, slots, .. } = begun.take().ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidInput,
                "the grid has no pixels: nothing was computed",
            )
        })?;
        // Slots share the memory of the canvas, which can be joined only when none is left.
        drop(slots);
        rest.join()
    }
}

fn too_large(window: &Window, bytes: u64, budget: u64) -> Error {
    Error::new(
        ErrorKind::InvalidInput,
        format!(
            "block {window} takes {} MB, more than the budget of {} MB: choose smaller blocks, fewer time steps or \
             bands, or a larger budget",
            bytes / 1_000_000,
            budget / 1_000_000
        ),
    )
}

pub(super) fn check_bands(expected: usize, found: usize, window: &Window) -> Result<()> {
    match expected == found {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::InvalidInput,
            format!("block {window} has {found} bands, the first had {expected}"),
        )),
    }
}

/// Checks the size of a closure's result, and crops the halo.
fn crop<T, O: Sample>(block: &Block<T>, made: Array3<O>) -> Result<Array3<O>> {
    let (_, rows, cols) = made.dim();
    let (window, seen) = (block.window, block.seen);
    // Without the halo already: a closure may crop it itself, with `Block::without_halo`.
    if (rows, cols) == (window.height as usize, window.width as usize) {
        return Ok(made);
    }
    if (rows, cols) != (seen.height as usize, seen.width as usize) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "the closure returned {rows} rows and {cols} columns, expected {} and {}",
                window.height, window.width
            ),
        ));
    }
    let [rows, cols] = block.inner();
    Ok(made
        .slice_move(s![.., rows.0..rows.1, cols.0..cols.1])
        .as_standard_layout()
        .into_owned())
}
