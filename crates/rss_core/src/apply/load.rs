//! Loading a block: planning its reads, fetching the pixels, and warping them onto the grid.
//!
//! The three steps are separate functions. Planning fetches headers only and counts the bytes, so that the caller
//! can take its share of the memory budget before any pixel is fetched. Fetching waits on the network. Warping,
//! compositing and masking run on the CPU pool and do no IO.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use ndarray::{Array2, Array3, Array4, ArrayViewMut3, Axis, Zip};
use rayon::prelude::*;

use super::{
    block::{Block, BlockSample},
    cube::{Inner, ItemImage},
    footprint::{Area, Touches},
    mosaic::{Mosaic, fill_gaps},
    options::OnFailure,
    reduce::reduce,
    report::{MissingInput, named, said_again},
    source::{BandSource, Opened, SourceWindow},
    source_mask::SourceMask,
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{GeoBox, Window},
    mask,
    raster::Number,
};

/// Concurrent opens or reads of one block. Each store limits the requests to its own host.
const READS: usize = 64;

/// The reads of a block, and the memory that it takes.
#[derive(Debug)]
pub(super) struct BlockPlan {
    /// The block without its halo.
    window: Window,
    /// The block with the halo that the caller requested.
    seen: Window,
    /// The block with the halo of the caller and that of the masks, in the masks' grid.
    masked: Window,
    reads: Vec<Read>,
    /// The masks of images whose own pixels are masked.
    source_masks: Vec<ImageMask>,
    /// Images, by time step and index in it, whose masks cannot be put on their grids.
    unmasked: Vec<(usize, usize)>,
    missing_inputs: Vec<MissingInput>,
    /// Peak bytes: the pixels as they are read, the block, and the buffers of the threads.
    pub(super) bytes: u64,
}

/// A mask on the grid of some bands of an image.
#[derive(Debug)]
struct ImageMask {
    step: usize,
    image: usize,
    bands: Vec<usize>,
    mask: SourceMask,
}

/// A window to read from one file.
#[derive(Clone, Copy, Debug)]
struct Read {
    at: At,
    window: Window,
}

/// The index of a source: time step, image within the time step, and band or mask of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    step: usize,
    image: usize,
    layer: Layer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    Band(usize),
    Mask(usize),
    /// A mask on an image's own grid: the index in the plan, and the mask's number.
    SourceMask(usize, usize),
}

/// The pixels that were read for a block, and the sources that are missing.
#[derive(Debug)]
pub(super) struct Loaded {
    plan: BlockPlan,
    /// By time step.
    parts: Vec<Vec<(At, SourceWindow)>>,
    /// Sources that could not be read.
    missing: Vec<At>,
}

/// The pixels that were read for one time step.
#[derive(Clone, Copy)]
pub(super) struct Date<'a> {
    pub(super) step: usize,
    plan: &'a BlockPlan,
    parts: &'a [(At, SourceWindow)],
    missing: &'a [At],
}

impl Date<'_> {
    /// Returns what was read of a layer of an image.
    fn part(&self, image: usize, layer: Layer) -> Option<&SourceWindow> {
        let wanted = At {
            step: self.step,
            image,
            layer,
        };
        let mut parts = self.parts.iter();
        parts.find(|(at, _)| *at == wanted).map(|(_, part)| part)
    }

    /// Returns what was read of a band of an image.
    pub(super) fn band(&self, image: usize, band: usize) -> Option<&SourceWindow> {
        self.part(image, Layer::Band(band))
    }

    /// Returns the window of the block, with its halo.
    pub(super) fn seen(&self) -> &Window {
        &self.plan.seen
    }
}

/// Returns a window grown by `halo` pixels on each side, clipped to the grid.
fn around(window: &Window, halo: u32, inner: &Inner) -> Window {
    let size = inner.grid.size;
    let (col, row) = (
        window.col.saturating_sub(halo),
        window.row.saturating_sub(halo),
    );
    let right = window
        .col
        .saturating_add(window.width)
        .saturating_add(halo)
        .min(size.width);
    let bottom = window
        .row
        .saturating_add(window.height)
        .saturating_add(halo)
        .min(size.height);
    Window {
        col,
        row,
        width: right - col,
        height: bottom - row,
    }
}

impl Inner {
    fn source(&self, at: At) -> Option<&BandSource> {
        let image = self.images.get(at.step)?.get(at.image)?;
        match at.layer {
            Layer::Band(band) => image.bands.get(band)?.as_deref(),
            Layer::Mask(mask) | Layer::SourceMask(_, mask) => {
                image.masks.get(mask).map(|(source, _)| source)
            }
        }
    }

    /// Opens a source, once, for the grid onto which it is warped.
    async fn opened<'a>(&self, at: At, source: &'a BandSource) -> Result<&'a Opened> {
        let grid = match at.layer {
            Layer::Band(_) => &self.grid,
            Layer::Mask(_) | Layer::SourceMask(..) => &self.mask_grid,
        };
        source.opened(&self.session, grid).await
    }

    /// Returns how many pixels the masks' grid extends beyond the cube's on each side.
    fn mask_halo(&self) -> u32 {
        (self.mask_grid.size.width - self.grid.size.width) / 2
    }

    /// Returns the index of each source of the cube that may touch an area, and true where its item says that it does.
    fn sources(&self, area: &Area) -> Vec<(At, bool)> {
        let mut all = Vec::new();
        for (step, images) in self.images.iter().enumerate() {
            // A single image wins each pixel, whole or not.
            let loaded = match images.len() {
                ..=1 => self.bands.len(),
                _ => usize::MAX,
            };
            for (image, of) in images.iter().enumerate() {
                let touches = of.footprint.touches(area);
                if touches == Touches::No {
                    continue;
                }
                let bands =
                    (0..of.bands.len().min(loaded)).filter(|&band| of.bands[band].is_some());
                let masks = (0..of.masks.len()).map(Layer::Mask);
                let layers = bands.map(Layer::Band).chain(masks);
                let is_sure = touches == Touches::Yes;
                all.extend(layers.map(|layer| (At { step, image, layer }, is_sure)));
            }
        }
        all
    }

    /// Opens the files that may touch a window of the masks' grid, and returns each with its result, and true where its
    /// item says that it does. A failure is cached as well: a later call does not try that file again.
    async fn open_touching(
        &self,
        window: &Window,
        most: usize,
    ) -> Vec<(At, bool, &BandSource, Result<&Opened>)> {
        let area = Area::of_window(&self.mask_grid, window);
        stream::iter(self.sources(&area).into_iter().take(most))
            .map(|(at, is_sure)| async move {
                let source = self.source(at)?;
                Some((at, is_sure, source, self.opened(at, source).await))
            })
            // `buffered` and not `buffer_unordered`: missing inputs are reported in the order of the sources.
            .buffered(READS)
            .filter_map(|one| async { one })
            .collect()
            .await
    }

    /// Opens the files of all images that may touch the grid, each once. A failure is kept for the block that needs the
    /// file.
    pub(super) async fn open_files(&self) {
        let whole = Window::whole(self.mask_grid.size);
        self.open_touching(&whole, usize::MAX).await;
    }

    /// Returns the longer side of the tiles of the first file that can be opened, in pixels; `u32::MAX` if none can. The
    /// other files are assumed to share its layout.
    pub(super) async fn tile_side(&self) -> u32 {
        // One file would do, but the plans of the first blocks open all of them anyway.
        let whole = Window::whole(self.mask_grid.size);
        let all = self.open_touching(&whole, READS).await;
        let first = all.into_iter().find_map(|(_, _, _, opened)| opened.ok());
        first.map_or(u32::MAX, Opened::tile_side)
    }

    /// Returns a failure as a missing input, or as the error that ends the work if the options demand that.
    fn missing_input(
        &self,
        source: &BandSource,
        window: Option<&Window>,
        err: &Error,
    ) -> Result<MissingInput> {
        match self.options.on_failure {
            OnFailure::Fail => Err(named(err, &source.item, &source.asset, window)),
            OnFailure::Skip => Ok(MissingInput::new(
                &source.item,
                &source.asset,
                window.copied(),
                err,
            )),
        }
    }

    /// Plans the reads of a block.
    ///
    /// Opens the files that may touch the block by what their items state: only a header tells the overviews and the
    /// dtype, from which the source window and its bytes follow. That is one request for each file in the usual case,
    /// [`READS`] at once, and the block waits for all of them. Files stay open: a later plan costs a request only for
    /// files that no earlier block may touch, and a pass over all sources of the cube.
    pub(super) async fn plan<T: BlockSample>(
        &self,
        window: Window,
        halo: u32,
    ) -> Result<BlockPlan> {
        let seen = around(&window, halo, self);
        let masked = Window {
            width: seen.width + 2 * self.mask_halo(),
            height: seen.height + 2 * self.mask_halo(),
            ..seen
        };
        let opened = self.open_touching(&masked, usize::MAX).await;
        let mosaic = self.options.mosaic;
        // A median or mean of integers need not be an integer.
        if !T::DTYPE.is_float() && !mosaic.keeps_type() {
            let message = format!("mosaic `{mosaic}` of {} samples: load float32", T::DTYPE);
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let mut plan = BlockPlan {
            window,
            seen,
            masked,
            reads: Vec::new(),
            source_masks: Vec::new(),
            unmasked: Vec::new(),
            missing_inputs: Vec::new(),
            bytes: 0,
        };
        let mut of_bands: Vec<(At, &Opened, Window)> = Vec::new();
        let mut doubtful = Vec::new();
        for (at, is_sure, source, opened) in opened {
            match opened {
                Ok(opened) => {
                    let target = match at.layer {
                        // Of a band that is not loaded only the gaps are of interest, whatever its samples are.
                        Layer::Band(band) if band >= self.bands.len() => &plan.seen,
                        Layer::Band(band) => {
                            let nodata = self.bands.get(band).and_then(|band| band.nodata);
                            opened
                                .check::<T>(nodata)
                                .map_err(|err| named(&err, &source.item, &source.asset, None))?;
                            &plan.seen
                        }
                        // Opened with the others, and read on the grids of the image's bands.
                        Layer::Mask(_) if self.masks_source() => continue,
                        Layer::Mask(_) | Layer::SourceMask(..) => &plan.masked,
                    };
                    // None where the image does not touch the block: no read, and no missing input.
                    if let Some(window) = opened.window(target) {
                        plan.bytes += opened.bytes(&window);
                        plan.reads.push(Read { at, window });
                        of_bands.push((at, opened, window));
                    }
                }
                Err(err) if !is_sure => doubtful.push((at, source, err)),
                Err(err) => {
                    plan.missing_inputs
                        .push(self.missing_input(source, Some(&window), &err)?)
                }
            }
        }
        // Of an image that lies elsewhere by its bbox a file is missing only if another of its files lies here.
        for (at, source, err) in doubtful {
            let is_here = |read: &Read| (read.at.step, read.at.image) == (at.step, at.image);
            if plan.reads.iter().any(is_here) {
                plan.missing_inputs
                    .push(self.missing_input(source, Some(&window), &err)?);
            }
        }
        if self.masks_source() {
            self.plan_source_masks(&mut plan, &of_bands).await?;
        }
        plan.bytes += self.block_bytes::<T>(&plan);
        Ok(plan)
    }

    /// Plans the masks of images whose own pixels are masked: one for all bands of the same pixels.
    async fn plan_source_masks(
        &self,
        plan: &mut BlockPlan,
        of_bands: &[(At, &Opened, Window)],
    ) -> Result<()> {
        let mut grids: Vec<&GeoBox> = Vec::new();
        for &(at, opened, target) in of_bands {
            let (Layer::Band(band), Some(image)) = (at.layer, self.image(at.step, at.image)) else {
                continue;
            };
            let is_same = |index: &usize| {
                let known = &plan.source_masks[*index];
                (known.step, known.image, known.mask.target()) == (at.step, at.image, target)
                    && *grids[*index] == opened.own
            };
            if let Some(index) = (0..grids.len()).rev().find(is_same) {
                plan.source_masks[index].bands.push(band);
                continue;
            }
            let mask = match SourceMask::plan(self, image, opened, target).await {
                Ok(mask) => mask,
                Err((number, err)) => {
                    // Once: the second band of the image fails alike. What could not be opened at all is listed.
                    let (source, _) = &image.masks[number];
                    let is_listed = matches!(source.open.get(), Some(Err(_)))
                        || plan.unmasked.contains(&(at.step, at.image));
                    if !is_listed {
                        let window = plan.window;
                        plan.missing_inputs.push(self.missing_input(
                            source,
                            Some(&window),
                            &err,
                        )?);
                    }
                    plan.unmasked.push((at.step, at.image));
                    continue;
                }
            };
            for (number, (opened, window)) in mask.masks.iter().enumerate() {
                if let Some(window) = *window {
                    let layer = Layer::SourceMask(plan.source_masks.len(), number);
                    plan.bytes += opened.bytes(&window);
                    plan.reads.push(Read {
                        at: At { layer, ..at },
                        window,
                    });
                }
            }
            plan.source_masks.push(ImageMask {
                step: at.step,
                image: at.image,
                bands: vec![band],
                mask,
            });
            grids.push(&opened.own);
        }
        Ok(())
    }

    fn image(&self, step: usize, image: usize) -> Option<&ItemImage> {
        self.images.get(step)?.get(image)
    }

    /// Returns which pixels of an image's own grid are kept, and for which of its bands.
    pub(super) fn kept<'a>(
        &self,
        date: Date<'a>,
        image: usize,
    ) -> Result<Vec<(&'a [usize], Array2<bool>)>> {
        let Some(of) = self.image(date.step, image) else {
            return Ok(Vec::new());
        };
        let masks = date.plan.source_masks.iter().enumerate();
        let own = masks.filter(|(_, known)| (known.step, known.image) == (date.step, image));
        own.map(|(index, known)| {
            let parts: Vec<Option<&SourceWindow>> = (0..of.masks.len())
                .map(|mask| date.part(image, Layer::SourceMask(index, mask)))
                .collect();
            let kept = known.mask.kept(of, &parts, self.options.cleanup)?;
            Ok((known.bands.as_slice(), kept))
        })
        .collect()
    }

    /// Returns the bytes that a block takes beside the pixels as they are read: all of its samples, and for each
    /// thread the buffers of one time step.
    fn block_bytes<T>(&self, plan: &BlockPlan) -> u64 {
        let sample = size_of::<T>() as u64;
        let pixels = |window: &Window| u64::from(window.width) * u64::from(window.height);
        let image = pixels(&plan.seen) * self.bands.len() as u64 * sample;
        let at_once = self
            .session
            .settings()
            .cpu_threads
            .clamp(1, self.steps.len().max(1)) as u64;
        // First-valid compositing warps one more image beside the result. A reducer needs the stack of all images
        // of the time step, and a copy of it band by band.
        let layers = match self.options.mosaic.takes_first() {
            true => 1,
            false => 2 * self.images.iter().map(Vec::len).max().unwrap_or(0) as u64,
        };
        let converted = plan
            .reads
            .iter()
            .map(|read| pixels(&read.window) * sample)
            .max();
        // Verdicts and booleans of one byte each, before and after resampling and cleanup.
        let mask = 8 * pixels(&plan.masked);
        // Which pixels are whole: five booleans, and the samples of a band that is not loaded.
        let mask = mask
            + if self.fills_pixels() {
                9 * pixels(&plan.seen)
            } else {
                0
            };
        let of_image = plan.source_masks.iter().map(|known| known.mask.bytes());
        let mask = mask + 2 * of_image.max().unwrap_or(0);
        // The share of valid samples: two floats, of the source and of the result.
        let share = match self.options.min_valid {
            Some(_) => 4 * converted.unwrap_or(0) / sample + 4 * pixels(&plan.seen),
            None => 0,
        };
        let of_step = image * layers + converted.unwrap_or(0) + mask + share;
        image * self.steps.len() as u64 + of_step * at_once
    }

    /// Returns the reads of a plan, those of bands of one file and window together: a tile may hold all of them.
    fn together(&self, reads: &[Read]) -> Vec<Vec<Read>> {
        let mut groups: Vec<Vec<Read>> = Vec::with_capacity(reads.len());
        let most = self.session.settings().read_bytes;
        let opened = |read: &Read| match read.at.layer {
            // Opened for the grid of an image, not of the cube.
            Layer::SourceMask(..) => None,
            _ => self.source(read.at)?.open.get()?.as_ref().ok(),
        };
        for read in reads {
            // The bands of an asset follow each other.
            let with_last = groups.last_mut().filter(|group| {
                let Some((first, other)) = group.first().and_then(opened).zip(opened(read)) else {
                    return false;
                };
                let is_one_file = Arc::ptr_eq(&first.reader, &other.reader)
                    && first.level == other.level
                    && group
                        .first()
                        .is_some_and(|first| first.window == read.window);
                is_one_file && first.bytes(&read.window) * (group.len() as u64 + 1) <= most
            });
            match with_last {
                Some(group) => group.push(*read),
                None => groups.push(vec![*read]),
            }
        }
        groups
    }

    /// Reads what is read together, and returns the result for each source.
    async fn read_group(
        &self,
        group: Vec<Read>,
        source_masks: &[ImageMask],
    ) -> Vec<(At, &BandSource, Result<SourceWindow>)> {
        let mut sources = Vec::with_capacity(group.len());
        let mut bands = Vec::with_capacity(group.len());
        let mut first = None;
        let mut failed = Vec::new();
        for read in &group {
            let Some(source) = self.source(read.at) else {
                continue;
            };
            if let Layer::SourceMask(index, mask) = read.at.layer {
                let of_image = source_masks.get(index);
                if let Some((opened, _)) = of_image.and_then(|known| known.mask.masks.get(mask)) {
                    failed.push((read.at, source, opened.read(read.window).await));
                }
                continue;
            }
            match self.opened(read.at, source).await {
                Ok(opened) => {
                    bands.push(opened.band);
                    sources.push((read.at, source));
                    first.get_or_insert((opened, read.window));
                }
                Err(err) => failed.push((read.at, source, Err(err))),
            }
        }
        let Some((opened, window)) = first else {
            return failed;
        };
        match opened.read_bands(window, &bands).await {
            Ok(parts) => {
                let read = sources.into_iter().zip(parts);
                failed.extend(read.map(|((at, source), part)| (at, source, Ok(part))));
            }
            Err(err) => failed.extend(
                sources
                    .into_iter()
                    .map(|(at, source)| (at, source, Err(said_again(&err, err.message())))),
            ),
        }
        failed
    }

    /// Fetches and decodes the pixels of a plan.
    pub(super) async fn load(&self, mut plan: BlockPlan) -> Result<Loaded> {
        let groups = self.together(&plan.reads);
        let source_masks = &plan.source_masks;
        let results: Vec<Vec<_>> = stream::iter(groups)
            .map(|group| self.read_group(group, source_masks))
            .buffered(READS)
            .map(|group| {
                let each = group.into_iter().map(|(at, source, part)| {
                    // With `OnFailure::Fail` the first error ends the stream, before the remaining reads start.
                    let part = match part {
                        Ok(part) => Ok(part),
                        Err(err) => Err(self.missing_input(source, Some(&plan.window), &err)?),
                    };
                    Ok::<_, Error>((at, part))
                });
                each.collect::<Result<Vec<_>>>()
            })
            .try_collect()
            .await?;
        let results = results.into_iter().flatten();
        let mut parts: Vec<_> = self.steps.iter().map(|_| Vec::new()).collect();
        let mut missing = Vec::new();
        for (at, part) in results {
            match part {
                Ok(part) => parts[at.step].push((at, part)),
                Err(missing_input) => {
                    missing.push(at);
                    plan.missing_inputs.push(missing_input);
                }
            }
        }
        Ok(Loaded {
            plan,
            parts,
            missing,
        })
    }

    /// Warps, composites and masks what was read. The samples are written into `buffer`, which may be empty or the
    /// memory of an earlier block. Runs on all threads of the pool it is called from.
    pub(super) fn lay_out<T: BlockSample>(
        &self,
        loaded: Loaded,
        mut buffer: Vec<T>,
    ) -> Result<(Block<T>, Vec<MissingInput>)> {
        let Loaded {
            plan,
            parts,
            missing,
        } = loaded;
        let seen = plan.seen;
        let shape = (
            self.steps.len(),
            self.bands.len(),
            seen.height as usize,
            seen.width as usize,
        );
        let fills: Vec<T> = self.nodata::<T>().into_iter().map(T::fill).collect();
        let samples = shape.0 * shape.1 * shape.2 * shape.3;
        // Samples of the earlier block may remain: each image that is warped overwrites or fills all of its plane.
        buffer.resize(samples, T::fill(None));
        let mut data = Array4::from_shape_vec(shape, buffer).map_err(|err| {
            Error::new(ErrorKind::InvalidInput, "a block of another shape").with_source(err)
        })?;
        // Time steps are independent and write disjoint planes, so they run in parallel without a lock.
        let dates: Vec<_> = data.axis_iter_mut(Axis(0)).zip(parts).enumerate().collect();
        dates
            .into_par_iter()
            .try_for_each(|(step, (mut out, parts))| {
                // `parts` is moved in: the source pixels of a time step are freed when it is done, not with all.
                let date = Date {
                    step,
                    plan: &plan,
                    parts: &parts,
                    missing: &missing,
                };
                self.lay_out_date(date, &fills, &mut out)
            })?;
        self.clip(&seen, &fills, &mut data)?;
        let block = Block {
            data,
            bands: Arc::clone(&self.bands),
            steps: Arc::clone(&self.steps),
            window: plan.window,
            seen,
            grid: Arc::clone(&self.grid),
        };
        Ok((block, plan.missing_inputs))
    }

    fn lay_out_date<T: BlockSample>(
        &self,
        date: Date<'_>,
        fills: &[T],
        out: &mut ArrayViewMut3<'_, T>,
    ) -> Result<()> {
        let images = self.images.get(date.step).map_or(&[][..], Vec::as_slice);
        let touching: Vec<usize> = (0..images.len())
            .filter(|&image| {
                let is_here = |at: &At| at.image == image && matches!(at.layer, Layer::Band(_));
                date.parts.iter().any(|(at, _)| is_here(at))
            })
            .collect();
        let mosaic = self.options.mosaic;
        // The count of no images is 0, which is data; every other mosaic of none is nodata.
        if touching.is_empty() && mosaic == Mosaic::Count {
            out.fill(T::of_number(0.0));
            return Ok(());
        }
        if touching.is_empty() {
            fill(out, fills);
            return (0..self.bands.len()).try_for_each(|band| self.check_gaps::<T>(band));
        }
        if self.fills_pixels() && touching.len() > 1 {
            return self.lay_out_pixels(date, &touching, fills, out);
        }
        if mosaic.takes_first() || (touching.len() == 1 && mosaic != Mosaic::Count) {
            let mut is_first = true;
            for image in touching {
                // The first image is warped into the block itself, without a copy.
                if is_first {
                    self.lay_out_image(date, image, fills, out)?;
                    is_first = false;
                    continue;
                }
                let mut below = Array3::from_elem(out.dim(), T::fill(None));
                self.lay_out_image(date, image, fills, &mut below.view_mut())?;
                let mut gaps = 0;
                for (band, nodata) in self.nodata::<T>().into_iter().enumerate() {
                    let range = band..band + 1;
                    gaps += fill_gaps(
                        out.slice_mut(ndarray::s![range.clone(), .., ..]),
                        below.slice(ndarray::s![range, .., ..]),
                        nodata,
                    );
                }
                // Images further down the order cannot win a pixel.
                if gaps == 0 {
                    break;
                }
            }
            return Ok(());
        }
        let (bands, height, width) = out.dim();
        let mut stack = Array4::from_elem((touching.len(), bands, height, width), T::fill(None));
        for (mut layer, image) in stack.axis_iter_mut(Axis(0)).zip(touching) {
            self.lay_out_image(date, image, fills, &mut layer)?;
        }
        for (band, nodata) in self.nodata::<T>().into_iter().enumerate() {
            let of_band = stack.index_axis(Axis(1), band).to_owned();
            let made = reduce(&T::wrap(of_band), nodata, mosaic.reducer())?;
            let mut plane = out.index_axis_mut(Axis(0), band);
            match made.view::<T>() {
                Some(view) => plane.assign(&view.index_axis(Axis(0), 0)),
                // The reducer returned another type: then `T` is a float, as `plan` checks.
                None => {
                    let values = made.to_f64().into_iter().map(T::of_number);
                    plane
                        .iter_mut()
                        .zip(values)
                        .for_each(|(sample, value)| *sample = value);
                }
            }
        }
        Ok(())
    }

    /// Returns the nodata value of each band in a block; none for floats, where it is NaN.
    pub(super) fn nodata<T: BlockSample>(&self) -> Vec<Option<Number>> {
        let can_be = |nodata: &Number| !T::DTYPE.is_float() && T::DTYPE.holds(*nodata);
        let bands = self.bands.iter();
        bands.map(|band| band.nodata.filter(can_be)).collect()
    }

    /// Checks that a band can have nodata pixels: an integer band without a nodata value cannot.
    pub(super) fn check_gaps<T: BlockSample>(&self, band: usize) -> Result<()> {
        let has_nodata =
            T::DTYPE.is_float() || self.nodata::<T>().get(band).is_some_and(Option::is_some);
        if has_nodata {
            return Ok(());
        }
        let name = self.bands.get(band).map_or("", |band| &band.name);
        Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "band {name} has no nodata value, so missing pixels cannot be marked in {}: load float32",
                T::DTYPE
            ),
        ))
    }

    /// Checks that a file which states no nodata value has no sample that would be missing.
    fn check_samples<T: BlockSample>(
        &self,
        band: usize,
        source: Option<&BandSource>,
        is_lost: bool,
        fill: T,
    ) -> Result<()> {
        let of_band = self.bands.get(band);
        let (Some(of_band), true) = (of_band.filter(|band| band.nodata.is_some()), is_lost) else {
            return Ok(());
        };
        let item = source.map_or("", |source| source.item.as_str());
        let (name, nodata) = (&of_band.name, fill.number());
        Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "item {item}, band {name}: its file states no nodata value, and has samples of {nodata}, the nodata value \
                 of the cube: choose another nodata value, or {nodata} to have them missing"
            ),
        ))
    }

    /// Warps one image onto the grid and applies its masks: masked pixels become nodata.
    pub(super) fn lay_out_image<T: BlockSample>(
        &self,
        date: Date<'_>,
        image: usize,
        fills: &[T],
        out: &mut ArrayViewMut3<'_, T>,
    ) -> Result<()> {
        let Some(of) = self
            .images
            .get(date.step)
            .and_then(|images| images.get(image))
        else {
            return Ok(());
        };
        let part_of = |layer: Layer| date.part(image, layer);
        let seen = &date.plan.seen;
        // Fail closed: without its mask, each pixel of the image might be cloud.
        let lacks_mask = of.hidden || lacks_mask(of, image, date);
        let masks_source = self.masks_source() && !of.masks.is_empty();
        let kept = match masks_source && !lacks_mask {
            true => self.kept(date, image)?,
            false => Vec::new(),
        };
        for (band, (source, &fill)) in of.bands.iter().zip(fills).enumerate() {
            let opened = source
                .as_ref()
                .and_then(|source| source.open.get()?.as_ref().ok());
            let mut plane = out.index_axis_mut(Axis(0), band);
            let pixels = plane.len();
            let valid = match (opened, part_of(Layer::Band(band))) {
                (Some(opened), Some(part)) if !lacks_mask => {
                    let kept = kept.iter().find(|(bands, _)| bands.contains(&band));
                    let kept = kept.map(|(_, kept)| kept);
                    let valid = opened.lay(part, kept, seen, fill, plane.view_mut())?;
                    if self.keeps_samples && opened.nodata.is_none() && !T::DTYPE.is_float() {
                        let data = plane
                            .iter()
                            .filter(|sample| sample.is_data(Some(fill)))
                            .count();
                        self.check_samples(band, source.as_deref(), valid > data, fill)?;
                    }
                    valid
                }
                _ => {
                    plane.fill(fill);
                    0
                }
            };
            // A mask may remove any pixel, whether or not it does so in this block.
            if valid < pixels || !of.masks.is_empty() {
                self.check_gaps::<T>(band)?;
            }
        }
        if lacks_mask || of.masks.is_empty() || masks_source {
            return Ok(());
        }
        let masked = &date.plan.masked;
        let shape = (masked.height as usize, masked.width as usize);
        let verdicts = of
            .masks
            .iter()
            .enumerate()
            .filter_map(|(number, (source, mask))| {
                let opened = source.open.get()?.as_ref().ok()?;
                Some(opened.verdicts(mask, part_of(Layer::Mask(number)), masked))
            });
        let left_out = mask::left_out(shape, verdicts, self.options.cleanup)?;
        // Opening and dilation look at neighbours: they ran on the larger window, which is cropped afterwards.
        let halo = self.mask_halo() as usize;
        let seen = ndarray::s![
            halo..halo + seen.height as usize,
            halo..halo + seen.width as usize
        ];
        let left_out = left_out.slice(seen);
        for (mut plane, &fill) in out.axis_iter_mut(Axis(0)).zip(fills) {
            Zip::from(&mut plane)
                .and(&left_out)
                .for_each(|sample, &is_out| {
                    if is_out {
                        *sample = fill;
                    }
                });
        }
        Ok(())
    }
}

/// Returns true if a mask of an image could not be opened or read.
fn lacks_mask(of: &ItemImage, image: usize, date: Date<'_>) -> bool {
    let failed = |mask: usize| {
        let at = At {
            step: date.step,
            image,
            layer: Layer::Mask(mask),
        };
        let is_open = matches!(of.masks[mask].0.open.get(), Some(Ok(_)));
        !is_open || date.missing.contains(&at)
    };
    let of_source = |at: &At| {
        (at.step, at.image) == (date.step, image) && matches!(at.layer, Layer::SourceMask(..))
    };
    (0..of.masks.len()).any(failed)
        || date.plan.unmasked.contains(&(date.step, image))
        || date.missing.iter().any(of_source)
}

fn fill<T: Copy>(out: &mut ArrayViewMut3<'_, T>, fills: &[T]) {
    for (mut plane, &sample) in out.axis_iter_mut(Axis(0)).zip(fills) {
        plane.fill(sample);
    }
}
