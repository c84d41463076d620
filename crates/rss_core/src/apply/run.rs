//! Computing a cube block by block: blocks are loaded while others are computed, and come in their order.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use futures::{Stream, StreamExt, TryStreamExt, stream};
use ndarray::{Array3, Axis, s};
use tokio::task::JoinHandle;

use super::{
    block::{Block, BlockSample},
    cube::{ImageCube, Inner, blocks_of},
    load::{BlockPlan, Loaded},
    options::{ApplyOptions, ApplyProgress},
    reduce::{Geomedian, Reducer, reduce_f32},
    report::{ApplyReport, MissingInput, said_again},
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{Size, Window},
    raster::{Canvas, Raster, Rest, Sample, Slot, Wanted},
    session::Share,
};

/// The largest side of a block that is not chosen.
const LARGEST_BLOCK: u32 = 1024;
/// The least one: a tile of a COG.
const LEAST_BLOCK: u32 = 512;
/// A block that takes no more is not too large, whatever the tiles are.
const SMALL_BYTES: u64 = 64 << 20;

pub(super) type Compute<O> =
    Arc<dyn Fn(&Inner, Loaded) -> Result<(Array3<O>, Vec<MissingInput>)> + Send + Sync>;
pub(super) type Planning = Arc<
    dyn Fn(Arc<Inner>, Window, u32) -> futures::future::BoxFuture<'static, Result<BlockPlan>>
        + Send
        + Sync,
>;

/// What is to be computed of a cube: nothing is read before it is asked for the result.
///
/// Dropping the future of a result cancels it.
#[must_use = "nothing is computed before a result is asked for"]
pub struct Apply<O> {
    pub(super) cube: ImageCube,
    pub(super) options: ApplyOptions,
    /// What computes it, in words; none of a closure.
    pub(super) how: Option<String>,
    /// What is made for each date, if that is what bands are.
    pub(super) each_date: Option<Vec<String>>,
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
            .finish_non_exhaustive()
    }
}

/// One block of a result.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Computed<O> {
    /// Where it lies in the cube's grid.
    pub window: Window,
    /// (band, y, x).
    pub samples: Array3<O>,
    /// Pixels of images that are missing in it.
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
    /// # use rss_core::{Cmp, Collection, DEA, ImageQueryBuilder, Intersects, Session, BandSource, date};
    /// use rss_core::apply::{ApplyOptions, Block, ImageCubeOptions};
    /// # let bed = rss_testbed::Testbed::builder().scenes(rss_testbed::Scenes::small()).start()?;
    /// # let session = Session::builder().s3_endpoint(&bed.s3_endpoint()).build()?;
    /// # let dea = BandSource::api(&bed.stac_url())?.like(&DEA);
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
    /// assert!(report.missing inputs.is_empty());
    /// # Ok::<_, anyhow::Error>(())
    /// ```
    pub fn apply<T, O, F>(&self, options: ApplyOptions, compute: F) -> Apply<O>
    where
        T: BlockSample,
        O: Sample + Send + Sync + 'static,
        F: Fn(&Block<T>) -> Result<Array3<O>> + Send + Sync + 'static,
    {
        // The samples of blocks that are done: new memory takes longer than what is written to it. No more than
        // there were blocks under way at once, which the budget counts.
        let spare: Mutex<Vec<Vec<T>>> = Mutex::default();
        Apply {
            cube: self.clone(),
            options,
            how: None,
            each_date: None,
            plan: Arc::new(|inner, window, halo| {
                Box::pin(async move { inner.plan::<T>(window, halo).await })
            }),
            compute: Arc::new(move |inner, loaded| {
                let taken = spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let (block, missing_inputs) =
                    inner.lay_out::<T>(loaded, taken.unwrap_or_default())?;
                let window = block.window();
                let named =
                    |err: Error| said_again(&err, format!("block {window}: {}", err.message()));
                let made = compute(&block)
                    .and_then(|made| cut(&block, made))
                    .map_err(named)?;
                let (room, _) = block.data.into_raw_vec_and_offset();
                spare
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(room);
                Ok((made, missing_inputs))
            }),
        }
    }

    /// Reduces all dates to one, each band by itself. Bands keep their names.
    pub fn reduce(&self, reducer: Reducer, options: ApplyOptions) -> Apply<f32> {
        let options = self.named(options);
        let work = self.apply(options, move |block: &Block<f32>| {
            let data = block.data();
            let (_, bands, height, width) = data.dim();
            let mut out = Array3::zeros((bands, height, width));
            for (band, mut out) in out.axis_iter_mut(Axis(0)).enumerate() {
                out.assign(&reduce_f32(data.index_axis(Axis(1), band), reducer)?);
            }
            Ok(out)
        });
        work.told(reducer.to_string())
    }

    /// Reduces all bands to one, each date by itself. The bands of the result are the dates, by their labels.
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

    /// Makes the geometric median of all dates: the bands of a pixel stay together. Bands keep their names.
    pub fn geomedian(&self, geomedian: Geomedian, options: ApplyOptions) -> Apply<f32> {
        let options = self.named(options);
        let work = self.apply(options, move |block: &Block<f32>| {
            geomedian.of(block.data())
        });
        work.told("geomedian".to_owned())
    }

    fn named(&self, mut options: ApplyOptions) -> ApplyOptions {
        if options.names.is_empty() {
            options.names = self.bands().iter().map(|band| band.name.clone()).collect();
        }
        options
    }

    /// Reads a window of the grid, (time, band, y, x).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the window is not in the grid, or samples cannot be had as `T`; what the
    /// files' stores answer.
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

    /// Returns the side of blocks: what was chosen, else 1024, or 512 where one of 1024 for each thread and one
    /// more are not thought to fit the budget. It is 512 too where tiles are no larger and the block is: memory
    /// that is written again and again is faster than new memory.
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
        let bytes = u64::from(LARGEST_BLOCK).pow(2) * layers * 8;
        let at_once = settings.cpu_threads.max(1) as u64 + 1;
        let fits = bytes.saturating_mul(at_once) <= settings.budget_bytes;
        let is_large = fits && (bytes <= SMALL_BYTES || self.0.tile_side().await > LEAST_BLOCK);
        Ok(if is_large { LARGEST_BLOCK } else { LEAST_BLOCK })
    }
}

/// Takes a task down with the one that waits for it.
struct Held<T>(JoinHandle<T>);

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<O: Sample + Send + Sync + 'static> Apply<O> {
    /// Returns the cube that it is computed of.
    pub fn cube(&self) -> &ImageCube {
        &self.cube
    }

    /// Says that each of `names` is made for each date: the bands are all dates of the first, then all of the
    /// next. Bands without a name of their own are called so: `ndvi 2021-01-03`.
    ///
    /// A result that is written as Zarr is then an array (time, y, x) for each name, and not one of a single
    /// date for each band.
    pub fn each_date(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        if self.options.names.is_empty() {
            let steps = self.cube.steps();
            let of_name = |name: &String| {
                let labels = steps.iter().map(|step| format!("{name} {}", step.label));
                labels.collect::<Vec<_>>()
            };
            self.options.names = names.iter().flat_map(of_name).collect();
        }
        self.each_date = Some(names);
        self
    }

    /// Says what computes it.
    pub(super) fn told(mut self, how: String) -> Self {
        self.how = Some(how);
        self
    }

    /// Returns the nodata value of the result.
    pub fn nodata(&self) -> Option<f64> {
        let usual = O::DTYPE.is_float().then_some(f64::NAN);
        self.options.nodata.or(usual)
    }

    /// Returns the blocks, row by row. The memory of one is given back when the next is asked for.
    ///
    /// # Errors
    ///
    /// Of the first item: [`ErrorKind::InvalidInput`] if a block cannot be of this size; of each, what the
    /// closure or the files' stores answer, with block, item and asset.
    pub fn blocks(self) -> impl Stream<Item = Result<Computed<O>>> + Send {
        let blocks = async move {
            let side = self.cube.block_side(&self.options).await?;
            let windows = blocks_of(self.cube.grid().size, side);
            Ok::<_, Error>(self.each(windows, |_, block| Ok(block)))
        };
        stream::once(blocks).try_flatten()
    }

    /// Returns what `finish` makes of each block and its number, in their order. It runs where the block was
    /// computed.
    fn each<R: Send + 'static>(
        self,
        windows: Vec<Window>,
        finish: impl Fn(usize, Computed<O>) -> Result<R> + Send + Sync + 'static,
    ) -> impl Stream<Item = Result<R>> + Send {
        let finish = Arc::new(finish);
        let blocks = windows.len() as u64;
        let inner = Arc::clone(&self.cube.0);
        // One for each thread, and two that are fetched meanwhile.
        let at_once = inner.session.settings().cpu_threads.max(1) + 2;
        let nodata = self.gaps();
        let (plan, compute, halo) = (self.plan, self.compute, self.options.halo);
        let planned = stream::iter(windows.into_iter().enumerate()).then({
            let inner = Arc::clone(&inner);
            move |(number, window)| {
                let planning = plan(Arc::clone(&inner), window, halo);
                let session = inner.session.clone();
                async move {
                    let plan = planning.await?;
                    // In the order of the blocks: the one that is due never waits for one that comes later.
                    let budget = session.settings().budget_bytes;
                    if plan.bytes > budget {
                        return Err(too_large(&window, plan.bytes, budget));
                    }
                    let share = session.share_of_work(plan.bytes).await;
                    Ok((number, window, plan, share))
                }
            }
        });
        let watch = self.options.watch;
        let done = AtomicU64::new(0);
        planned
            .map(move |planned| {
                let (inner, compute) = (Arc::clone(&inner), Arc::clone(&compute));
                let finish = Arc::clone(&finish);
                let task = planned.map(|(number, window, plan, share)| {
                    // On its own: it goes on while the one before is written.
                    Held(tokio::spawn(async move {
                        let finish = move |computed| finish(number, computed);
                        let made = made_of(inner, window, plan, compute, nodata, finish).await?;
                        Ok::<_, Error>((made, share))
                    }))
                });
                async move {
                    let mut task = task?;
                    (&mut task.0).await.map_err(|err| {
                        Error::new(ErrorKind::Unavailable, "a block's task was lost")
                            .with_source(err)
                    })?
                }
            })
            .buffered(at_once)
            .map_ok(move |(made, share): (R, Option<Share>)| {
                let blocks_done = done.fetch_add(1, Ordering::Relaxed) + 1;
                if let Some(watch) = &watch {
                    watch(ApplyProgress {
                        blocks_done,
                        blocks,
                    });
                }
                drop(share);
                made
            })
    }

    /// Computes everything into memory.
    ///
    /// # Errors
    ///
    /// As of [`Apply::blocks`]; [`ErrorKind::InvalidInput`] if blocks differ in their number of bands, or the
    /// result does not fit memory.
    pub async fn raster(self) -> Result<(Raster, ApplyReport)> {
        let grid = self.cube.grid().clone();
        let nodata = self.nodata();
        let mut report = self.report();
        let side = self.cube.block_side(&self.options).await?;
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

    /// Returns what NaN becomes, if that is not what it stays.
    pub(super) fn gaps(&self) -> Option<f64> {
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

/// Loads what a block needs, computes it, and returns what `finish` makes of that. NaN becomes `nodata`.
pub(super) async fn made_of<O: Sample + Send + Sync + 'static, R: Send + 'static>(
    inner: Arc<Inner>,
    window: Window,
    plan: BlockPlan,
    compute: Compute<O>,
    nodata: Option<f64>,
    finish: impl FnOnce(Computed<O>) -> Result<R> + Send + 'static,
) -> Result<R> {
    let loaded = inner.load(plan).await?;
    let session = inner.session.clone();
    let made = session.cpu(move || {
        let (mut samples, missing_inputs) = compute(&inner, loaded)?;
        if let Some(nodata) = nodata {
            let nodata = O::of_number(nodata);
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

/// A result in memory. Each block is written into it where it was computed, in whatever order that is.
struct Whole<O> {
    size: Size,
    windows: Vec<Window>,
    /// Made when the first block is here: how many bands there are is not known before.
    begun: Mutex<Option<Begun<O>>>,
}

struct Begun<O> {
    rest: Rest<O>,
    bands: usize,
    /// Of each block, a place in each band.
    places: Vec<Vec<Slot<O>>>,
}

impl<O: Sample> Whole<O> {
    fn new(size: Size, windows: Vec<Window>) -> Self {
        Self {
            size,
            windows,
            begun: Mutex::default(),
        }
    }

    /// Writes a block, unless it has another number of bands than the first one that came.
    fn add(&self, number: usize, samples: &Array3<O>) -> Result<()> {
        let bands = samples.dim().0;
        let places = {
            let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
            let begun = match &mut *begun {
                Some(begun) => begun,
                none => none.insert(self.begin(bands)?),
            };
            match begun.places.get_mut(number) {
                Some(places) if begun.bands == bands => std::mem::take(places),
                _ => Vec::new(),
            }
        };
        for (mut place, plane) in places.into_iter().zip(samples.outer_iter()) {
            for (row, samples) in plane.rows().into_iter().enumerate() {
                let Some(out) = place.row(row) else { continue };
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
        let (rest, places) = canvas.split(&wanted)?;
        let mut places = places.into_iter();
        let of_blocks = self.windows.iter();
        let places = of_blocks.map(|_| places.by_ref().take(bands).collect());
        Ok(Begun {
            bands,
            places: places.collect(),
            rest,
        })
    }

    /// Returns all of it, (band, y, x).
    fn join(&self) -> Result<Array3<O>> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let Begun { rest, places, .. } = begun.take().ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidInput,
                "a grid without pixels: nothing was computed",
            )
        })?;
        drop(places);
        rest.join()
    }
}

fn too_large(window: &Window, bytes: u64, budget: u64) -> Error {
    Error::new(
        ErrorKind::InvalidInput,
        format!(
            "block {window} takes {} MB, more than the budget of {} MB: choose smaller blocks, fewer dates or \
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

/// Checks the size of what was made of a block, and cuts the halo off.
fn cut<T, O: Sample>(block: &Block<T>, made: Array3<O>) -> Result<Array3<O>> {
    let (_, rows, cols) = made.dim();
    let (window, seen) = (block.window, block.seen);
    if (rows, cols) == (window.height as usize, window.width as usize) {
        return Ok(made);
    }
    if (rows, cols) != (seen.height as usize, seen.width as usize) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "the closure made {rows} rows and {cols} columns, expected {} and {}",
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
