//! Loading a block: which pixels of which files, fetching them, and putting them onto the grid.
//!
//! Planned first, so that memory is known before anything is fetched; then all that a block needs is
//! fetched at once; then it is computed on the CPU pool.

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use ndarray::{Array3, Array4, ArrayViewMut3, Axis, Zip};
use rayon::prelude::*;

use super::{
    block::{Block, BlockSample},
    cube::{Inner, ItemImage},
    mosaic::{Mosaic, fill_gaps},
    options::OnFailure,
    reduce::reduce,
    report::{MissingInput, named},
    source::{BandSource, Opened, SourceWindow},
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::Window,
    mask,
};

/// Reads of one block under way at once; the stores bound those of each host.
const READS: usize = 64;

/// What a block needs.
#[derive(Debug)]
pub(super) struct BlockPlan {
    /// Without the halo.
    window: Window,
    /// With the halo that the caller asked for.
    seen: Window,
    /// With that of masks too, in their grid.
    masked: Window,
    reads: Vec<Read>,
    missing_inputs: Vec<MissingInput>,
    /// Bytes of all of these pixels and of the block.
    pub(super) bytes: u64,
}

/// Pixels of a file.
#[derive(Clone, Copy, Debug)]
struct Read {
    at: At,
    window: Window,
}

/// Which source: of a date, an image of it, and a band or mask of that.
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
}

/// What was read for a block, and what is missing.
#[derive(Debug)]
pub(super) struct Loaded {
    plan: BlockPlan,
    /// Of each date.
    parts: Vec<Vec<(At, SourceWindow)>>,
    /// Sources that could not be read.
    missing: Vec<At>,
}

/// What was read of one date.
#[derive(Clone, Copy)]
struct Date<'a> {
    step: usize,
    plan: &'a BlockPlan,
    parts: &'a [(At, SourceWindow)],
    missing: &'a [At],
}

/// Returns a window with `halo` more pixels around it, as far as the grid goes.
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
            Layer::Mask(mask) => image.masks.get(mask).map(|(source, _)| source),
        }
    }

    /// Opens a source, once, for the grid on which it is read.
    async fn opened<'a>(&self, at: At, source: &'a BandSource) -> Result<&'a Opened> {
        let grid = match at.layer {
            Layer::Band(_) => &self.grid,
            Layer::Mask(_) => &self.mask_grid,
        };
        source.opened(&self.session, grid).await
    }

    /// Returns how many pixels the masks' grid has more on each side.
    fn mask_halo(&self) -> u32 {
        (self.mask_grid.size.width - self.grid.size.width) / 2
    }

    /// Returns all sources.
    fn sources(&self) -> Vec<At> {
        let mut all = Vec::new();
        for (step, images) in self.images.iter().enumerate() {
            for (image, of) in images.iter().enumerate() {
                let bands = (0..of.bands.len()).filter(|&band| of.bands[band].is_some());
                let masks = (0..of.masks.len()).map(Layer::Mask);
                let layers = bands.map(Layer::Band).chain(masks);
                all.extend(layers.map(|layer| At { step, image, layer }));
            }
        }
        all
    }

    /// Opens all files that were not opened before, and returns each with what that gave.
    async fn open_all(&self) -> Vec<(At, &BandSource, Result<&Opened>)> {
        stream::iter(self.sources())
            .map(|at| async move {
                let source = self.source(at)?;
                Some((at, source, self.opened(at, source).await))
            })
            .buffered(READS)
            .filter_map(|one| async { one })
            .collect()
            .await
    }

    /// Returns the longer side of the tiles of the first file, which the others are thought to share; of none that
    /// can be opened, the largest. All files are opened for it: soon they will be needed.
    pub(super) async fn tile_side(&self) -> u32 {
        let all = self.open_all().await;
        let first = all
            .into_iter()
            .next()
            .and_then(|(_, _, opened)| opened.ok());
        first.map_or(u32::MAX, Opened::tile_side)
    }

    /// Returns a failure as a missing input, or as the error that ends the work.
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

    /// Returns what a block needs. Opens files that were not opened before.
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
        let opened = self.open_all().await;
        let mosaic = self.options.mosaic;
        if !T::DTYPE.is_float() && !mosaic.keeps_type() {
            let message = format!("a mosaic by {mosaic} of {}: load float32", T::DTYPE);
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let mut plan = BlockPlan {
            window,
            seen,
            masked,
            reads: Vec::new(),
            missing_inputs: Vec::new(),
            bytes: 0,
        };
        for (at, source, opened) in opened {
            match opened {
                Ok(opened) => {
                    let target = match at.layer {
                        Layer::Band(band) => {
                            let nodata = self.bands.get(band).and_then(|band| band.nodata);
                            opened
                                .check::<T>(nodata)
                                .map_err(|err| named(&err, &source.item, &source.asset, None))?;
                            &plan.seen
                        }
                        Layer::Mask(_) => &plan.masked,
                    };
                    if let Some(window) = opened.window(target) {
                        plan.bytes += opened.bytes(&window);
                        plan.reads.push(Read { at, window });
                    }
                }
                Err(err) => {
                    plan.missing_inputs
                        .push(self.missing_input(source, Some(&window), &err)?)
                }
            }
        }
        plan.bytes += self.bytes_laid_out::<T>(&plan);
        Ok(plan)
    }

    /// Returns the bytes that a block takes when it is laid out, beside what is read: all of its samples, and
    /// for each thread what one date is made of.
    fn bytes_laid_out<T>(&self, plan: &BlockPlan) -> u64 {
        let sample = size_of::<T>() as u64;
        let pixels = |window: &Window| u64::from(window.width) * u64::from(window.height);
        let image = pixels(&plan.seen) * self.bands.len() as u64 * sample;
        let at_once = self
            .session
            .settings()
            .cpu_threads
            .clamp(1, self.steps.len().max(1)) as u64;
        // An image that lies under another is made beside it; a mosaic of all wants all, and a copy of a band.
        let layers = match self.options.mosaic.takes_first() {
            true => 1,
            false => 2 * self.images.iter().map(Vec::len).max().unwrap_or(0) as u64,
        };
        let converted = plan
            .reads
            .iter()
            .map(|read| pixels(&read.window) * sample)
            .max();
        // Bytes and booleans, before and after.
        let mask = 8 * pixels(&plan.masked);
        let of_a_date = image * layers + converted.unwrap_or(0) + mask;
        image * self.steps.len() as u64 + of_a_date * at_once
    }

    /// Fetches and decodes what a plan needs.
    pub(super) async fn load(&self, mut plan: BlockPlan) -> Result<Loaded> {
        let read = |read: Read| async move {
            let Some(source) = self.source(read.at) else {
                return Ok(None);
            };
            let part = match self.opened(read.at, source).await {
                Ok(opened) => opened.read(read.window).await,
                Err(err) => Err(err),
            };
            Ok::<_, Error>(Some((read.at, source, part)))
        };
        let results: Vec<_> = stream::iter(plan.reads.clone())
            .map(read)
            .buffered(READS)
            .try_filter_map(|one| async { Ok(one) })
            .map(|one| {
                let (at, source, part) = one?;
                // The first failure ends it, before the rest is fetched.
                let part = match part {
                    Ok(part) => Ok(part),
                    Err(err) => Err(self.missing_input(source, Some(&plan.window), &err)?),
                };
                Ok::<_, Error>((at, part))
            })
            .try_collect()
            .await?;
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

    /// Puts what was read onto the grid, in `room`, which may be empty or what an earlier block left. Runs on all
    /// threads of the pool it is called from.
    pub(super) fn lay_out<T: BlockSample>(
        &self,
        loaded: Loaded,
        mut room: Vec<T>,
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
        room.resize(samples, T::fill(None));
        let mut data = Array4::from_shape_vec(shape, room).map_err(|err| {
            Error::new(ErrorKind::InvalidInput, "a block of another size").with_source(err)
        })?;
        let dates: Vec<_> = data.axis_iter_mut(Axis(0)).zip(parts).enumerate().collect();
        dates
            .into_par_iter()
            .try_for_each(|(step, (mut out, parts))| {
                // Given back when they are laid out, not with those of all dates.
                let date = Date {
                    step,
                    plan: &plan,
                    parts: &parts,
                    missing: &missing,
                };
                self.lay_out_date(date, &fills, &mut out)
            })?;
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
        if touching.is_empty() && mosaic == Mosaic::Count {
            out.fill(T::of_number(0.0));
            return Ok(());
        }
        if touching.is_empty() {
            fill(out, fills);
            return (0..self.bands.len()).try_for_each(|band| self.check_gaps::<T>(band));
        }
        if mosaic.takes_first() || (touching.len() == 1 && mosaic != Mosaic::Count) {
            let mut is_first = true;
            for image in touching {
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
                // Floats alone are asked for where the type is not kept, as `plan` checks.
                None => {
                    let numbers = made.to_f64().into_iter().map(T::of_number);
                    plane
                        .iter_mut()
                        .zip(numbers)
                        .for_each(|(sample, number)| *sample = number);
                }
            }
        }
        Ok(())
    }

    /// Returns the nodata value of each band in a block; none of floats, where it is NaN.
    fn nodata<T: BlockSample>(&self) -> Vec<Option<f64>> {
        let can_be = |nodata: &f64| !T::DTYPE.is_float() && T::DTYPE.holds(*nodata);
        let bands = self.bands.iter();
        bands.map(|band| band.nodata.filter(can_be)).collect()
    }

    /// Refuses to leave pixels without data where no sample can say so.
    fn check_gaps<T: BlockSample>(&self, band: usize) -> Result<()> {
        let is_told =
            T::DTYPE.is_float() || self.nodata::<T>().get(band).is_some_and(Option::is_some);
        if is_told {
            return Ok(());
        }
        let name = self.bands.get(band).map_or("", |band| &band.name);
        Err(Error::new(
            ErrorKind::InvalidInput,
            format!(
                "band {name} has no nodata value, so pixels without data cannot be told as {}: load float32",
                T::DTYPE
            ),
        ))
    }

    /// Puts one image onto the grid, and takes away what its masks leave out.
    fn lay_out_image<T: BlockSample>(
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
        let part_of = |layer: Layer| {
            let wanted = At {
                step: date.step,
                image,
                layer,
            };
            date.parts
                .iter()
                .find(|(at, _)| *at == wanted)
                .map(|(_, part)| part)
        };
        let seen = &date.plan.seen;
        let is_hidden = of.hidden || hides(of, image, date);
        for (band, (source, &fill)) in of.bands.iter().zip(fills).enumerate() {
            let opened = source
                .as_ref()
                .and_then(|source| source.open.get()?.as_ref().ok());
            let mut plane = out.index_axis_mut(Axis(0), band);
            let pixels = plane.len();
            let laid = match (opened, part_of(Layer::Band(band))) {
                (Some(opened), Some(part)) if !is_hidden => {
                    opened.lay(part, seen, fill, plane.view_mut())?
                }
                _ => {
                    plane.fill(fill);
                    0
                }
            };
            if laid < pixels || !of.masks.is_empty() {
                self.check_gaps::<T>(band)?;
            }
        }
        if is_hidden || of.masks.is_empty() {
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

/// Returns true if a mask of an image could not be read: what it would hide is not known.
fn hides(of: &ItemImage, image: usize, date: Date<'_>) -> bool {
    let failed = |mask: usize| {
        let at = At {
            step: date.step,
            image,
            layer: Layer::Mask(mask),
        };
        let is_open = matches!(of.masks[mask].0.open.get(), Some(Ok(_)));
        !is_open || date.missing.contains(&at)
    };
    (0..of.masks.len()).any(failed)
}

fn fill<T: Copy>(out: &mut ArrayViewMut3<'_, T>, fills: &[T]) {
    for (mut plane, &sample) in out.axis_iter_mut(Axis(0)).zip(fills) {
        plane.fill(sample);
    }
}
