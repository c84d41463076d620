//! Sampling image by image: each file is opened once, and each tile that is needed is read once.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use chrono::{DateTime, Utc};
use futures::{StreamExt, TryStreamExt, future::join_all, stream};
use ndarray::{Array2, Axis};
use tokio::sync::OnceCell;

use super::{
    SampleOptions, SampleProgress,
    cells::{Cell, Tiles, pixels},
    masks::{self, Parts, Veil},
    shapes::{Samples, ShapeRows, Shapes},
};
use crate::{
    apply::{
        axes::ImageCubeBand,
        cube::{Images, ItemImage},
        footprint::{Area, Touches},
        options::OnFailure,
        provenance::SourceItem,
        report::{MissingInput, named},
        source::{BandSource, Meaning},
    },
    error::{Error, ErrorKind, Result},
    geo::{GeoBox, WorldToPixel},
    query::QueryResult,
    raster::{DataType, Pixels, with_type},
    reader::{RasterReader, ReadRequest},
    session::Session,
    store::spawned,
};

/// Images that are sampled concurrently, as far as the budget allows.
const IMAGES: usize = 64;
/// Cells of one image that are read concurrently.
const CELLS: usize = 16;
/// The most layouts in the cache: scenes of one tile share a grid, so each layout serves many images.
const LAYOUTS: usize = 16;

/// The samples of all images.
#[derive(Debug)]
pub(super) struct Sampled {
    /// Item and time of each image, in order.
    pub(super) images: Vec<(String, DateTime<Utc>)>,
    pub(super) bands: Vec<ImageCubeBand>,
    /// The samples of each image and band; none for a missing input.
    pub(super) rows: Vec<Vec<Option<ShapeRows>>>,
    pub(super) missing_inputs: Vec<MissingInput>,
    pub(super) left_out: Vec<String>,
    pub(super) notes: Vec<String>,
    /// The bands of which a file holds integers of 64 bits, by their indices.
    pub(super) wide: BTreeSet<usize>,
    /// The items, with the addresses of their bands and masks.
    pub(super) sources: Vec<SourceItem>,
}

/// Samples all images of a search at the shapes.
pub(super) async fn sample<S: Shapes>(
    found: &QueryResult,
    shapes: S,
    options: &SampleOptions,
) -> Result<Sampled> {
    let Images {
        bands,
        grouped,
        mut images,
        mut missing_inputs,
        left_out,
        notes,
    } = Images::of(found, &options.of_cube()).await?;
    let run = Arc::new(Run {
        session: found.session().clone(),
        area: shapes.area(),
        shapes: Arc::new(shapes),
        options: options.clone(),
        layouts: Mutex::new(Vec::new()),
    });
    let mut names = Vec::new();
    let mut kept = Vec::new();
    let mut sources = Vec::new();
    for group in &grouped.groups {
        for &member in &group.members {
            let image = images.get_mut(member).and_then(Option::take);
            if let (Some(item), Some(image)) = (found.items().items.get(member), image) {
                names.push((item.id.clone(), group.time));
                let masks = image.masks.iter().map(|(_, mask)| mask.asset());
                let keys = bands.iter().map(|band| band.asset.as_str());
                sources.push(SourceItem::of(item, keys.chain(masks)));
                kept.push(image);
            }
        }
    }
    let done = AtomicUsize::new(0);
    let all = kept.len();
    let taking = kept.into_iter().zip(&names).map(|(image, (item, _))| {
        let (run, done, images) = (Arc::clone(&run), &done, all);
        let item = item.clone();
        async move {
            let watch = run.options.watch.clone();
            // A task of its own: it holds a share of work. The image is moved in: its readers and their tile tables
            // are freed when it is done.
            let taken = spawned(async move { run.image(&item, &image).await }).await?;
            if let Some(watch) = &watch {
                let images_done = done.fetch_add(1, Ordering::Relaxed) + 1;
                watch(SampleProgress {
                    images_done,
                    images,
                });
            }
            Ok::<_, Error>(taken)
        }
    });
    let taking: Vec<_> = taking.collect();
    // `buffered` keeps the order of the images, on which the order of rows and missing inputs depends.
    let taken: Vec<Taken> = stream::iter(taking).buffered(IMAGES).try_collect().await?;
    let mut rows = Vec::with_capacity(taken.len());
    let mut wide = BTreeSet::new();
    for one in taken {
        wide.extend(one.wide);
        missing_inputs.extend(one.missing_inputs);
        rows.push(one.rows);
    }
    Ok(Sampled {
        images: names,
        bands,
        rows,
        missing_inputs,
        left_out,
        notes: notes.all(),
        wide,
        sources,
    })
}

/// The layout of the shapes on one grid.
type Laid<L> = Arc<(L, Vec<Cell>)>;

/// A layout that is computed once.
struct Known<L> {
    grid: GeoBox,
    tiles: Tiles,
    laid: Arc<OnceCell<Laid<L>>>,
}

struct Run<S: Shapes> {
    session: Session,
    shapes: Arc<S>,
    /// Where the shapes lie.
    area: Area,
    options: SampleOptions,
    layouts: Mutex<Vec<Known<S::Layout>>>,
}

/// The samples of an image.
struct Taken {
    /// By band; none for a missing input.
    rows: Vec<Option<ShapeRows>>,
    /// The bands whose files hold integers of 64 bits.
    wide: Vec<usize>,
    missing_inputs: Vec<MissingInput>,
}

/// An open band.
struct OpenBand<'a, L> {
    source: &'a BandSource,
    reader: Arc<dyn RasterReader>,
    /// The band of the file, counted from 1.
    band: usize,
    meaning: Meaning,
    grid: GeoBox,
    laid: Laid<L>,
}

impl<L> OpenBand<'_, L> {
    fn cells(&self) -> &[Cell] {
        &self.laid.1
    }

    fn sample_bytes(&self) -> usize {
        self.reader.profile().dtype.size()
    }
}

/// Bands of one file, with their indices: their cells are read together, as a tile may hold all of them.
type Group<'a, L> = Vec<(usize, &'a OpenBand<'a, L>)>;

/// A cell of some bands of a file to read.
struct Step<'a, L> {
    group: &'a Group<'a, L>,
    /// The first of the group: the others have its cells.
    file: &'a OpenBand<'a, L>,
    veil: Option<&'a Arc<Veil>>,
    /// True if another cell of the bands could not be read: then they are missing, and this cell is not read.
    failed: &'a AtomicBool,
    /// The index of the cell.
    cell: usize,
}

impl<S: Shapes> Run<S> {
    /// Returns a failure as a missing input, or as the error that ends the work.
    fn missing_input(&self, source: &BandSource, err: &Error) -> Result<MissingInput> {
        match self.options.on_failure {
            OnFailure::Fail => Err(named(err, &source.item, &source.asset, None)),
            OnFailure::Skip => Ok(MissingInput::new(&source.item, &source.asset, None, err)),
        }
    }

    async fn image(&self, item: &str, image: &ItemImage) -> Result<Taken> {
        let mut taken = Taken {
            rows: vec![None; image.bands.len()],
            wide: Vec::new(),
            missing_inputs: Vec::new(),
        };
        if image.hidden {
            return Ok(taken);
        }
        let touches = image.footprint.touches(&self.area);
        if touches == Touches::No {
            taken.rows = image.bands.iter().map(no_rows).collect();
            return Ok(taken);
        }
        let opening = image.bands.iter().map(|source| async move {
            let source = source.as_ref()?;
            Some((source, self.open(source).await))
        });
        let opening = join_all(opening).await;
        let has_cells = |file: &OpenBand<'_, _>| !file.cells().is_empty();
        let mut opened = opening.iter().flatten();
        let is_here = touches == Touches::Yes
            || opened.any(|(_, opened)| opened.as_ref().is_ok_and(has_cells));
        let mut files = Vec::new();
        for (band, opened) in opening.into_iter().enumerate() {
            files.push(match opened {
                // Nothing lies on the image: its bbox says so, and those of its files that can be read.
                Some((_, Err(_))) if !is_here => {
                    taken.rows[band] = Some(ShapeRows::default());
                    None
                }
                Some((_, Ok(file))) => Some(file),
                Some((source, Err(err))) => {
                    taken.missing_inputs.push(self.missing_input(source, &err)?);
                    None
                }
                None => None,
            });
        }
        let is_wide = |file: &OpenBand<'_, _>| {
            matches!(file.reader.profile().dtype, DataType::U64 | DataType::I64)
        };
        let bands = files.iter().enumerate();
        let wide = bands.filter(|(_, file)| file.as_ref().is_some_and(is_wide));
        taken.wide = wide.map(|(band, _)| band).collect();
        let masks = match self.masks(image, &files).await {
            Ok(masks) => masks,
            // Fail closed: without its masks, each pixel of the image might be cloud.
            Err((source, err)) => {
                taken.missing_inputs.push(self.missing_input(source, &err)?);
                return Ok(taken);
            }
        };
        // Bands of one file are read together as far as they fit the budget.
        let mut most = usize::MAX;
        let (groups, bytes, at_once) = loop {
            let groups = groups_of(&files, most);
            let longest = groups.iter().map(Vec::len).max().unwrap_or(0);
            match self.bytes(item, &groups, masks.as_ref()) {
                Ok((bytes, at_once)) => break (groups, bytes, at_once),
                Err(_) if longest > 1 => most = longest / 2,
                Err(err) => return Err(err),
            }
        };
        let share = self.session.share_of_work(bytes).await;
        let parts = match &masks {
            None => Parts::default(),
            Some(masks) => match masks.read().await {
                Ok(parts) => parts,
                Err((source, err)) => {
                    taken.missing_inputs.push(self.missing_input(source, &err)?);
                    return Ok(taken);
                }
            },
        };
        self.bands(&groups, masks.as_ref(), &parts, at_once, &mut taken)
            .await?;
        drop(share);
        Ok(taken)
    }

    /// Opens a band, and determines the cells that the shapes need.
    async fn open<'s>(&self, source: &'s BandSource) -> Result<OpenBand<'s, S::Layout>> {
        let reader = Arc::clone(source.reader(&self.session).await?);
        let profile = reader.profile();
        let at = |err: Error| err.at(&source.location);
        if matches!(profile.dtype, DataType::C64 | DataType::C128) {
            let message = format!("samples of {}: expected real numbers", profile.dtype);
            return Err(at(Error::new(ErrorKind::InvalidInput, message)));
        }
        let grid = source.whole(profile)?;
        let tiles = Tiles::of(profile, profile.size);
        let laid = self.layout(&grid, tiles).await.map_err(at)?;
        let band = source.number(profile)?;
        let meaning = source.meaning(profile, band)?;
        Ok(OpenBand {
            source,
            reader,
            band,
            meaning,
            grid,
            laid,
        })
    }

    /// Returns the layout of the shapes on a grid, from the cache if possible.
    async fn layout(&self, grid: &GeoBox, tiles: Tiles) -> Result<Laid<S::Layout>> {
        let laid = {
            let mut known = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
            let is_it = |one: &Known<S::Layout>| one.grid == *grid && one.tiles == tiles;
            let one = match known.iter().position(is_it) {
                Some(place) => known.remove(place),
                None => Known {
                    grid: grid.clone(),
                    tiles,
                    laid: Arc::default(),
                },
            };
            let laid = Arc::clone(&one.laid);
            known.push(one);
            let more = known.len().saturating_sub(LAYOUTS);
            known.drain(..more);
            laid
        };
        let make = || async {
            let (shapes, grid) = (Arc::clone(&self.shapes), grid.clone());
            let made = self.session.cpu(move || {
                let world_to_pixel = WorldToPixel::new(shapes.crs(), &grid)?;
                shapes.lay_out(&world_to_pixel, tiles)
            });
            made.await?.map(Arc::new)
        };
        laid.get_or_try_init(make).await.map(Arc::clone)
    }

    /// Opens the masks of an image, if any of its bands has pixels to mask.
    async fn masks<'i>(
        &self,
        image: &'i ItemImage,
        files: &[Option<OpenBand<'_, S::Layout>>],
    ) -> Result<Option<masks::MaskPlan<'i>>, masks::Failed<'i>> {
        let mut grids: Vec<(GeoBox, Vec<&[Cell]>)> = Vec::new();
        for file in files
            .iter()
            .flatten()
            .filter(|file| !file.cells().is_empty())
        {
            let cells = file.cells();
            match grids.iter_mut().find(|(grid, _)| *grid == file.grid) {
                // Bands of one layout have the same cells.
                Some((_, all)) if all.iter().any(|known| std::ptr::eq(*known, cells)) => {}
                Some((_, all)) => all.push(cells),
                None => grids.push((file.grid.clone(), vec![cells])),
            }
        }
        if image.masks.is_empty() || grids.is_empty() {
            return Ok(None);
        }
        let plan = masks::MaskPlan::of(&self.session, image, self.options.cleanup, &grids);
        plan.await.map(Some)
    }

    /// Returns the bytes that an image takes, and how many of its cells may be read concurrently.
    fn bytes(
        &self,
        item: &str,
        groups: &[Group<'_, S::Layout>],
        masks: Option<&masks::MaskPlan<'_>>,
    ) -> Result<(u64, usize)> {
        let mut always = masks.map_or(0, masks::MaskPlan::bytes);
        let mut largest_layout = 0;
        let mut cells = Vec::new();
        for group in groups {
            let Some((_, file)) = group.first() else {
                continue;
            };
            let bands = group.len() as u64;
            let layout = self.shapes.bytes(&file.laid.0, file.sample_bytes()) * bands;
            // Groups are read one after the other, so the largest counts.
            largest_layout = layout.max(largest_layout);
            let veil = masks.and_then(|masks| masks.on(&file.grid));
            cells.extend(file.cells().iter().map(|cell| {
                // The stored samples of all bands and the values of one are in memory at the same time.
                let each = file.sample_bytes() as u64 * bands + size_of::<f64>() as u64;
                pixels(&cell.window) * each
                    + cell.needed * self.shapes.bytes_per_pixel() * bands
                    + veil.map_or(0, |veil| veil.bytes(&cell.window))
            }));
        }
        always += largest_layout;
        cells.sort_unstable_by_key(|bytes| Reverse(*bytes));
        let bytes = |at_once: usize| always + cells.iter().take(at_once).sum::<u64>();
        let budget = self.session.settings().budget_bytes;
        let mut at_once = CELLS;
        while at_once > 1 && bytes(at_once) > budget {
            at_once /= 2;
        }
        if bytes(at_once) > budget {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "item {item}: sampling takes {} MB, more than the budget of {} MB: choose fewer or smaller \
                     zones, no percentiles, or a larger budget",
                    bytes(at_once).div_ceil(1_000_000),
                    budget / 1_000_000
                ),
            ));
        }
        Ok((bytes(at_once), at_once))
    }

    /// Reads all cells of all bands, file by file.
    async fn bands(
        &self,
        groups: &[Group<'_, S::Layout>],
        masks: Option<&masks::MaskPlan<'_>>,
        parts: &Parts,
        at_once: usize,
        taken: &mut Taken,
    ) -> Result<()> {
        let has_failed: Vec<AtomicBool> = groups.iter().map(|_| AtomicBool::new(false)).collect();
        let mut steps = Vec::new();
        for (group, failed) in groups.iter().zip(&has_failed) {
            let Some(&(_, file)) = group.first() else {
                continue;
            };
            for &(band, _) in group {
                if let (true, Some(rows)) = (file.cells().is_empty(), taken.rows.get_mut(band)) {
                    *rows = Some(self.shapes.rows(&file.laid.0, S::Whole::default()));
                }
            }
            let veil = masks.and_then(|masks| masks.on(&file.grid));
            steps.extend((0..file.cells().len()).map(|cell| Step {
                group,
                file,
                veil,
                failed,
                cell,
            }));
        }
        let reading = steps.into_iter().map(|step| async move {
            let part = match step.failed.load(Ordering::Relaxed) {
                true => Ok(None),
                false => self.cell(&step, parts).await.map(Some),
            };
            (step, part)
        });
        let reading: Vec<_> = reading.collect();
        let mut coming = stream::iter(reading).buffered(at_once);
        // Of each band of the group.
        let mut wholes: Vec<S::Whole> = Vec::new();
        let mut is_whole = true;
        while let Some((step, parts)) = coming.next().await {
            match parts {
                Ok(Some(parts)) if is_whole => {
                    let shapes = Arc::clone(&self.shapes);
                    let mut all = std::mem::take(&mut wholes);
                    let adding = self.session.cpu(move || {
                        all.resize_with(parts.len(), S::Whole::default);
                        for (whole, part) in all.iter_mut().zip(parts) {
                            shapes.add(whole, part);
                        }
                        all
                    });
                    wholes = adding.await?;
                }
                Ok(_) => {}
                Err(err) => {
                    // One missing input for a band, however many cells fail.
                    if is_whole {
                        for (_, file) in step.group {
                            let missing_input = self.missing_input(file.source, &err)?;
                            taken.missing_inputs.push(missing_input);
                        }
                    }
                    is_whole = false;
                    step.failed.store(true, Ordering::Relaxed);
                }
            }
            if step.cell + 1 == step.file.cells().len() {
                let all = std::mem::take(&mut wholes);
                for ((band, _), whole) in step.group.iter().zip(all) {
                    if let (true, Some(rows)) = (is_whole, taken.rows.get_mut(*band)) {
                        let (shapes, laid) =
                            (Arc::clone(&self.shapes), Arc::clone(&step.file.laid));
                        let making = self.session.cpu(move || shapes.rows(&laid.0, whole));
                        *rows = Some(making.await?);
                    }
                }
                is_whole = true;
            }
        }
        Ok(())
    }

    /// Reads a cell, and samples the shapes in it, for each band of its group.
    async fn cell(&self, step: &Step<'_, S::Layout>, parts: &Parts) -> Result<Vec<S::Part>> {
        let lost = || Error::new(ErrorKind::InvalidInput, "no such cell");
        let (file, number) = (step.file, step.cell);
        let window = file.cells().get(number).ok_or_else(lost)?.window;
        let bands: Vec<usize> = step.group.iter().map(|(_, file)| file.band).collect();
        let meanings: Vec<Meaning> = step.group.iter().map(|(_, file)| file.meaning).collect();
        let request = ReadRequest::new().with_window(window).with_bands(bands);
        let raster = file.reader.read(&request).await?;
        let (shapes, laid) = (Arc::clone(&self.shapes), Arc::clone(&file.laid));
        let (veil, parts) = (step.veil.cloned(), Arc::clone(parts));
        let location = file.reader.location();
        let taking = self.session.cpu(move || {
            let (layout, cells) = &*laid;
            let cell = cells.get(number).ok_or_else(lost)?;
            let left_out = match veil {
                Some(veil) => Some(veil.left_out(&window, &parts)?),
                None => None,
            };
            let mut samples = Samples {
                window,
                values: Array2::default((0, 0)),
                left_out,
            };
            let mut taken = Vec::with_capacity(meanings.len());
            for (band, meaning) in meanings.into_iter().enumerate() {
                samples.values = values(&raster.pixels, band, meaning)?;
                taken.push(shapes.take(layout, cell, &samples));
            }
            Ok(taken)
        });
        taking.await?.map_err(|err: Error| err.at(location))
    }
}

/// Returns the rows of a band of an image on which no shape lies; none if the item lacks the band.
fn no_rows(band: &Option<Arc<BandSource>>) -> Option<ShapeRows> {
    band.as_ref().map(|_| ShapeRows::default())
}

/// Groups the bands that one file holds, at most so many together.
fn groups_of<'a, L>(files: &'a [Option<OpenBand<'a, L>>], most: usize) -> Vec<Group<'a, L>> {
    let mut groups: Vec<Group<'a, L>> = Vec::new();
    for (band, file) in files.iter().enumerate() {
        let Some(file) = file else { continue };
        // The bands of an asset follow each other. Without its layout a band would have other cells.
        let with_last = groups.last_mut().filter(|group| {
            let is_one_file = |(_, first): &(usize, &OpenBand<'_, L>)| {
                Arc::ptr_eq(&first.reader, &file.reader) && Arc::ptr_eq(&first.laid, &file.laid)
            };
            group.len() < most && group.first().is_some_and(is_one_file)
        });
        match with_last {
            Some(group) => group.push((band, file)),
            None => groups.push(vec![(band, file)]),
        }
    }
    groups
}

/// Returns the values of a band, counted from 0, with NaN as nodata.
fn values(
    pixels: &Pixels,
    band: usize,
    Meaning { scaling, nodata }: Meaning,
) -> Result<Array2<f64>> {
    let found = with_type!(pixels.dtype(), T => {
        let view = pixels.view::<T>().filter(|view| view.dim().0 > band);
        view.map(|view| scaling.exact_values(view.index_axis_move(Axis(0), band), nodata))
    });
    found.ok_or_else(|| Error::new(ErrorKind::Corrupt, "the read returned no band"))
}
