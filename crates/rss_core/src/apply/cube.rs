//! A lazy cube: the images of a query on one grid, grouped into time steps. No pixel is read here.

use std::{collections::BTreeMap, sync::Arc};

use ::stac::{Asset, Item};
use futures::{StreamExt, future::join_all, stream};
use tokio::sync::OnceCell;

use super::{
    axes::{ImageCubeBand, Step, TimeBounds},
    bands::{FileBand, Files, Slot, location_of, of_choice, open_known, slots_of},
    block::place_of,
    footprint::{Area, Footprint, Touches},
    grid,
    notes::Notes,
    options::{ImageCubeOptions, MaskStage, OnFailure, Overviews},
    periods::Moment,
    provenance::SourceItem,
    report::{MissingInput, named},
    sample::Cover,
    source::{BandSource, Said},
    stated::{StatedGrids, agree},
    time::{self, GroupOptions, Grouped, LeftOut},
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{GeoBox, Size, Window},
    mask::{BandMask, MaskClasses},
    products::{BandValues, Kind, Manifest},
    query::{QueryResult, recorded_version},
    raster::Resampling,
    session::Session,
    stac::{self, Selection},
};

/// The files of a band that are tried, where the catalogue says what one of them would.
const TRIES: usize = 2;

/// Images of a query on one grid, (time, band, y, x), read block by block.
///
/// Cheap to clone: clones share their open files.
#[derive(Clone, Debug)]
pub struct ImageCube(pub(super) Arc<Inner>);

#[derive(Clone, Debug)]
pub(super) struct Inner {
    pub(super) session: Session,
    pub(super) grid: Arc<GeoBox>,
    /// The grid with a margin: mask cleanup (opening, dilation) needs the neighbours of its outer pixels.
    pub(super) mask_grid: Arc<GeoBox>,
    /// The pixels of the grid that are loaded; none for all. The others are nodata.
    pub(super) clip: Option<Arc<Cover>>,
    pub(super) notes: Vec<String>,
    pub(super) bands: Arc<[ImageCubeBand]>,
    pub(super) steps: Arc<[Step]>,
    /// Of each time step, when and where its images were taken.
    pub(super) moments: Vec<Vec<Moment>>,
    /// The images of each time step, in the order of the mosaic: of two valid pixels the first image's wins.
    pub(super) images: Vec<Vec<ItemImage>>,
    pub(super) left_out: Vec<String>,
    /// Assets that the items lack, known before anything is read.
    pub(super) missing_inputs: Vec<MissingInput>,
    /// The items of all time steps, in the order of the search.
    pub(super) sources: Arc<[SourceItem]>,
    pub(super) options: ImageCubeOptions,
    /// True if it is an error where a file states no nodata value and holds that of its band as a sample.
    pub(super) keeps_samples: bool,
    /// Of the files that are open so far.
    pub(super) of_inputs: Arc<Notes>,
}

/// The bands and masks of one item. Parts of a cube share its open files.
#[derive(Clone, Debug)]
pub(super) struct ItemImage {
    /// For each band of the cube, and then for each band that decides whether a pixel is whole without being loaded; none
    /// where the item lacks it.
    pub(super) bands: Vec<Option<Arc<BandSource>>>,
    pub(super) masks: Arc<[(BandSource, BandMask)]>,
    /// True if the item lacks a mask asset: then all pixels of the image are nodata.
    pub(super) hidden: bool,
    /// Where the item says that they lie.
    pub(super) footprint: Arc<Footprint>,
}

impl ImageCube {
    /// Creates a cube from the result of a search. Fetches headers only of images whose grid the catalogue does not
    /// state, and one for each band whose nodata value it does not state, and for each asset that may have several
    /// bands. All bands of an asset are taken; `key:2` or `key:red` in the selection chooses one.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if nothing was found, images share no grid and none is chosen, a mask
    /// class or a scale is not known, or an item lacks a band and [`OnFailure::Fail`] is chosen; errors of the
    /// files' stores.
    pub async fn of(found: &QueryResult, options: &ImageCubeOptions) -> Result<Self> {
        let Images {
            mut bands,
            grouped,
            mut images,
            missing_inputs,
            left_out,
            notes: of_inputs,
        } = Images::of(found, options).await?;
        let items = &found.items().items;
        let used: Vec<(&Item, &ItemImage)> = items
            .iter()
            .zip(&images)
            .filter_map(|(item, image)| Some((item, image.as_ref()?)))
            .collect();
        let sources = used.iter().map(|(item, image)| {
            let masks = image.masks.iter().map(|(source, _)| source.key.as_str());
            let keys = bands.iter().map(|band| band.asset.as_str());
            SourceItem::of(item, keys.chain(masks))
        });
        let sources = sources.collect();
        let (grid, mut notes) = grid_of(found, &used, &bands, options).await?;
        let whole = Area::of_window(&grid, &Window::whole(grid.size));
        notes.extend(note_of_elsewhere(&used, &whole));
        let clip = clip_of(options, &grid)?;
        let of_bands = (0..bands.len()).map(|index| {
            let of_band = |(_, image): &(&Item, &ItemImage)| image.bands.get(index)?.clone();
            let mut all: Vec<_> = used.iter().collect();
            // Those that lie on the grid come first: their headers are needed anyway.
            all.sort_by_key(|(_, image)| image.footprint.touches(&whole) != Touches::Yes);
            let sources: Vec<Arc<BandSource>> = all.into_iter().filter_map(of_band).collect();
            nodata_of(found.session(), &grid, sources)
        });
        let of_bands = join_all(of_bands).await;
        for (band, nodata) in bands.iter_mut().zip(of_bands) {
            band.nodata = nodata;
        }
        let moments = grouped.groups.iter().map(|group| {
            let moments = group.members.iter().map(|&m| Moment::of(&items[m]));
            moments.collect::<Result<Vec<_>>>()
        });
        let moments = moments.collect::<Result<Vec<_>>>()?;
        let steps = grouped.groups.iter().zip(&moments).map(|(group, moments)| {
            let bounds = moments.iter().map(|moment| moment.bounds);
            Step {
                label: group.label.clone(),
                time: group.time,
                bounds: bounds
                    .reduce(TimeBounds::and)
                    .unwrap_or(TimeBounds::at(group.time)),
                items: group.members.iter().map(|&m| items[m].id.clone()).collect(),
            }
        });
        let steps: Arc<[Step]> = steps.collect();
        let images = grouped
            .groups
            .iter()
            .map(|group| {
                group
                    .members
                    .iter()
                    .filter_map(|&m| images[m].take())
                    .collect()
            })
            .collect();
        let mask_halo = match options.mask {
            Some(_) => u32::try_from(options.cleanup.halo()).unwrap_or(u32::MAX),
            None => 0,
        };
        Ok(Self(Arc::new(Inner {
            session: found.session().clone(),
            mask_grid: Arc::new(grid.with_margin(mask_halo)?),
            clip,
            notes,
            grid: Arc::new(grid),
            bands: bands.into(),
            steps,
            moments,
            images,
            left_out,
            missing_inputs,
            sources,
            options: options.clone(),
            keeps_samples: false,
            of_inputs,
        })))
    }

    /// Returns notes on the files that are open so far: where one states another grid or nodata value than the catalogue,
    /// and which of them is taken.
    pub fn input_notes(&self) -> Vec<String> {
        self.0.of_inputs.all()
    }

    /// Returns the grid.
    pub fn grid(&self) -> &GeoBox {
        &self.0.grid
    }

    /// Returns the bands, in the order of the selection.
    pub fn bands(&self) -> &[ImageCubeBand] {
        &self.0.bands
    }

    /// Returns the time steps, in order.
    pub fn steps(&self) -> &[Step] {
        &self.0.steps
    }

    /// Returns what a user may not have meant: a grid of a few pixels, a resolution in metres in a CRS of degrees.
    pub fn notes(&self) -> &[String] {
        &self.0.notes
    }

    /// Returns the items that were left out as duplicates of others, and why.
    pub fn left_out(&self) -> &[String] {
        &self.0.left_out
    }
}

/// The images of a search, grouped into time steps.
pub(super) struct Images {
    pub(super) bands: Vec<ImageCubeBand>,
    pub(super) grouped: Grouped,
    /// For each item its image; none for a duplicate that was left out.
    pub(super) images: Vec<Option<ItemImage>>,
    pub(super) missing_inputs: Vec<MissingInput>,
    /// Items that were left out, and why.
    pub(super) left_out: Vec<String>,
    /// Grows while files are opened.
    pub(super) notes: Arc<Notes>,
}

impl Images {
    /// Groups the items and locates their files. Opens a file of each asset that may have several bands.
    ///
    /// # Errors
    ///
    /// As of [`ImageCube::of`], except those of grids and stores.
    pub(super) async fn of(found: &QueryResult, options: &ImageCubeOptions) -> Result<Self> {
        if let Some(share) = options
            .min_valid
            .filter(|share| !(0.0..=1.0).contains(share))
        {
            let message = format!("the least valid share is {share}, expected 0 to 1");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let items = &found.items().items;
        if items.is_empty() {
            let message = "the search found no items";
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let manifests: Vec<Option<&Manifest>> = items
            .iter()
            .map(
                |item| match options.manifest.as_ref().or(found.manifest.as_ref()) {
                    Some(manifest) => Some(manifest),
                    None => Manifest::of_item(item),
                },
            )
            .collect();
        let cloud_cover = manifests
            .iter()
            .flatten()
            .find_map(|m| m.cloud_cover.clone());
        let mut grouping = GroupOptions::new()
            .with_grouping(options.grouping)
            .with_clock(options.clock)
            .with_order(options.mosaic.order())
            .with_duplicates(options.duplicates);
        if let Some(property) = cloud_cover {
            grouping = grouping.with_cloud_cover(property);
        }
        let grouped = time::group(items, &grouping)?;
        let mut used: Vec<usize> = grouped
            .groups
            .iter()
            .flat_map(|g| g.members.clone())
            .collect();
        // In the order of the search, so that the first error and the list of missing inputs do not depend on groups.
        used.sort_unstable();
        let is_builtin = options.manifest.is_none() && found.manifest.is_none();
        let mut files = Files::default();
        if let Some(headers) = &options.headers {
            let mut known = Vec::new();
            for &index in &used {
                let item = &items[index];
                for choice in found.selection.choices(item) {
                    // A refused address is an error below, with its item and asset.
                    let location = choice.asset.map(|asset| location_of(found, item, asset));
                    if let Some(Ok(location)) = location {
                        known.push((location, files.of(index, choice.key)));
                    }
                }
            }
            open_known(found.session(), headers, known).await?;
        }
        let slots = slots_of(found, &manifests, is_builtin, &used, &mut files).await?;
        let of_slots: Vec<ImageCubeBand> = slots.iter().map(|slot| slot.band.clone()).collect();
        let mut resamplings = vec![None; slots.len()];
        for (name, resampling) in &options.band_resampling {
            resamplings[place_of(&of_slots, name)?] = Some(*resampling);
        }
        let mut builder = ImageBuilder {
            found,
            options,
            files,
            resamplings,
            masks: BTreeMap::new(),
            stated_grids: StatedGrids::default(),
            notes: Arc::default(),
            is_builtin,
        };
        let mut missing_inputs = Vec::new();
        let mut images: Vec<Option<ItemImage>> = items.iter().map(|_| None).collect();
        for &index in &used {
            let manifest = manifests[index];
            let (image, missing) = builder.image(index, &items[index], manifest, &slots)?;
            if let (OnFailure::Fail, Some(missing_input)) = (options.on_failure, missing.first()) {
                return Err(Error::new(missing_input.kind, missing_input.to_string()));
            }
            missing_inputs.extend(missing);
            images[index] = Some(image);
        }
        if let Some(headers) = &options.headers {
            let masks = images.iter().flatten().flat_map(|image| image.masks.iter());
            let masks = masks.map(|(mask, _)| (mask.location.clone(), Arc::clone(&mask.reader)));
            let masks: Vec<_> = masks.collect();
            if !masks.is_empty() {
                open_known(found.session(), headers, masks).await?;
            }
        }
        let reason = |one: &LeftOut| format!("item {}: {}", items[one.item].id, one.reason);
        let left_out = grouped.left_out.iter().map(reason).collect();
        Ok(Self {
            bands: slots.into_iter().map(|slot| slot.band).collect(),
            grouped,
            images,
            missing_inputs,
            left_out,
            notes: builder.notes,
        })
    }
}

/// Builds the images of items.
struct ImageBuilder<'a> {
    found: &'a QueryResult,
    options: &'a ImageCubeOptions,
    files: Files,
    notes: Arc<Notes>,
    /// True if the manifests are those of the library.
    is_builtin: bool,
    /// For each band the resampling that was chosen for it alone.
    resamplings: Vec<Option<Resampling>>,
    /// By source, product and platform: many items share them.
    masks: BTreeMap<[String; 3], Vec<BandMask>>,
    stated_grids: StatedGrids,
}

impl ImageBuilder<'_> {
    /// Returns an image, and the assets that the item lacks.
    fn image(
        &mut self,
        index: usize,
        item: &Item,
        manifest: Option<&Manifest>,
        slots: &[Slot],
    ) -> Result<(ItemImage, Vec<MissingInput>)> {
        let mut missing_inputs = Vec::new();
        let mut sources = Vec::with_capacity(slots.len());
        for slot in slots {
            let key = slot.band.asset.as_str();
            let Some(asset) = item.assets.get(key) else {
                // An optional band of the product that the user did not select by name is not an error.
                let is_usual = matches!(self.found.selection, Selection::Default(_))
                    && manifest
                        .and_then(|manifest| manifest.band(&slot.selected))
                        .is_some_and(|def| def.optional);
                if !is_usual {
                    missing_inputs.push(lacking(item, &slot.shown()));
                }
                sources.push(None);
                continue;
            };
            let stated = stac::band_names(item, asset);
            let band = slot.of(&stated).map_err(|err| {
                let message = format!("item {}, asset {key}: {}", item.id, err.message());
                Error::new(err.kind(), message)
            })?;
            let Some(band) = band else {
                let message = "the item names the asset's bands, and none of them so";
                let err = Error::new(ErrorKind::NotFound, message);
                missing_inputs.push(MissingInput::new(&item.id, &slot.shown(), None, &err));
                sources.push(None);
                continue;
            };
            let said_of = |index: usize| {
                match (
                    BandValues::of(item, key, index, manifest),
                    self.options.values,
                ) {
                    (Ok(said), _) => Ok(Some(said)),
                    // Raw samples need no scale, so a contradictory one is not an error.
                    (Err(_), super::options::Values::Raw) => Ok(None),
                    (Err(err), _) => Err(err),
                }
            };
            let (number, said) = match &band {
                FileBand::Number(number) => (*number, Said::Of(said_of(number - 1)?)),
                FileBand::Named { or, .. } => {
                    let each = (0..=stated.len()).map(said_of).collect::<Result<_>>()?;
                    (or.unwrap_or(1), Said::OfEach(each))
                }
            };
            let names = stated.get(number - 1);
            let def = manifest.and_then(|manifest| manifest.band_at(key, number, names));
            // Bits of a QA band are flags: interpolated ones mean nothing.
            let chosen = self.resamplings.get(sources.len()).copied().flatten();
            let resampling = match (chosen, def.map(|def| def.kind)) {
                (Some(chosen), _) => chosen,
                (None, Some(Kind::Qa)) => Resampling::Nearest,
                // Without a manifest the item says so, or the name of a usual band of classes.
                (None, None) if slot.band.is_class => Resampling::Nearest,
                (None, _) => self.options.resampling,
            };
            let nodata = match &said {
                Said::Of(Some(said)) => said.nodata,
                Said::Of(None) => def.and_then(|def| def.nodata),
                // Only the open file tells which band it is.
                Said::OfEach(_) => None,
            };
            let mut source = self.source((index, item), asset, key, band, resampling)?;
            source.asset = slot.shown();
            source.is_known = self.is_builtin && def.is_some();
            source.overrides = def.is_some_and(|def| def.nodata_overrides);
            (source.said, source.nodata, source.count) = (said, nodata, slot.count());
            source.min_valid = self.options.min_valid;
            sources.push(Some(Arc::new(source)));
        }
        let mut masks = Vec::new();
        let mut hidden = false;
        if let Some(classes) = &self.options.mask {
            let manifest = manifest.ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidInput,
                    format!(
                        "item {}: the mask {classes} needs a manifest that names its asset",
                        item.id
                    ),
                )
            })?;
            for mask in self.masks_of(classes, manifest, item)? {
                let (key, choice) = stac::split(item, mask.asset());
                match item.assets.get(key) {
                    Some(asset) => {
                        let band = match choice {
                            Some(choice) => of_choice(choice, &stac::band_names(item, asset))?,
                            None => FileBand::Number(1),
                        };
                        let at = (index, item);
                        let mut source = self.source(at, asset, key, band, Resampling::Nearest)?;
                        mask.asset().clone_into(&mut source.asset);
                        // Of a file with several bands the manifest says which: flags of another would mask at random.
                        source.count = choice.is_none().then_some(1);
                        masks.push((source, mask));
                    }
                    None => {
                        missing_inputs.push(lacking(item, mask.asset()));
                        hidden = true;
                    }
                }
            }
        }
        let of_bands = sources
            .iter()
            .flatten()
            .map(|source| source.stated.as_ref());
        let of_masks = masks.iter().map(|(source, _)| source.stated.as_ref());
        let image = ItemImage {
            footprint: Arc::new(Footprint::of(item, of_bands.chain(of_masks))),
            bands: sources,
            masks: masks.into(),
            hidden,
        };
        Ok((image, missing_inputs))
    }

    /// Returns the masks of an item, which all items of one product and platform share.
    fn masks_of(
        &mut self,
        classes: &MaskClasses,
        manifest: &Manifest,
        item: &Item,
    ) -> Result<Vec<BandMask>> {
        let stated = stac::text(item, "platform");
        let platform = manifest.platform.clone().or(stated).unwrap_or_default();
        let product = [
            manifest.source.clone(),
            manifest.collection.clone(),
            platform.to_lowercase(),
        ];
        // Platforms of one product may differ in their classes, so the platform is part of the key.
        if let Some(known) = self.masks.get(&product) {
            return Ok(known.clone());
        }
        let masks = classes.of_platform(manifest, Some(&platform))?;
        self.masks.insert(product, masks.clone());
        Ok(masks)
    }

    fn source(
        &mut self,
        (index, item): (usize, &Item),
        asset: &Asset,
        key: &str,
        band: FileBand,
        resampling: Resampling,
    ) -> Result<BandSource> {
        let location = location_of(self.found, item, asset)?;
        Ok(BandSource {
            item: item.id.clone(),
            key: key.to_owned(),
            asset: key.to_owned(),
            recorded: recorded_version(asset),
            band,
            count: None,
            location,
            header_bytes: stac::header_bytes(asset),
            said: Said::Of(None),
            nodata: None,
            overrides: false,
            is_known: false,
            stated: self.stated_grids.of(item, asset),
            notes: Arc::clone(&self.notes),
            values: self.options.values,
            resampling,
            max_error_pixels: self.options.max_error_pixels,
            overviews: match self.options.mask.is_some() {
                // Pixels of overviews mix masked and other ones.
                true if self.options.mask_stage == MaskStage::Source => Overviews::Never,
                _ => self.options.overviews,
            },
            min_valid: None,
            reader: self.files.of(index, key),
            open: OnceCell::new(),
        })
    }
}

fn lacking(item: &Item, asset: &str) -> MissingInput {
    let message = "the item has no such asset";
    let err = Error::new(ErrorKind::NotFound, message);
    MissingInput::new(&item.id, asset, None, &err)
}

/// Returns a note on the images that lie outside of a grid by what their items state.
fn note_of_elsewhere(images: &[(&Item, &ItemImage)], whole: &Area) -> Option<String> {
    let elsewhere =
        |(_, image): &&(&Item, &ItemImage)| image.footprint.touches(whole) != Touches::Yes;
    let mut outside = images.iter().filter(elsewhere);
    let (first, _) = outside.next()?;
    Some(format!(
        "{} of {} images lie outside of the grid by the bboxes of their items (item {})",
        1 + outside.count(),
        images.len(),
        first.id
    ))
}

/// Returns the grid of a cube, and what a user may not have meant by it.
async fn grid_of(
    found: &QueryResult,
    images: &[(&Item, &ItemImage)],
    bands: &[ImageCubeBand],
    options: &ImageCubeOptions,
) -> Result<(GeoBox, Vec<String>)> {
    let part = grid::part_of(options)?;
    let grids = match grid::needs_images(options, part) {
        true => grids_of(found.session(), images, bands, options.on_failure).await?,
        false => Vec::new(),
    };
    let chosen = grid::chosen(options, part, &grids)?;
    let notes = grid::notes(options, &chosen, &grids);
    Ok((chosen, notes))
}

/// Returns the pixels of the grid that lie in the polygons that the options clip to.
fn clip_of(options: &ImageCubeOptions, grid: &GeoBox) -> Result<Option<Arc<Cover>>> {
    let Some(zones) = &options.clip else {
        return Ok(None);
    };
    let cover = zones.cover(grid)?.ok_or_else(|| {
        let message =
            format!("no pixel of the grid, {grid}, lies in the polygons it is clipped to");
        Error::new(ErrorKind::InvalidInput, message)
    })?;
    Ok(Some(Arc::new(cover)))
}

/// Returns the distinct grids of the bands of all images, from the catalogue or else from the file's header. Of each
/// band that no product of the library describes the first file that can be opened is compared: where its grid is
/// another than the item states, those of all of its files are read.
async fn grids_of(
    session: &Session,
    images: &[(&Item, &ItemImage)],
    bands: &[ImageCubeBand],
    on_failure: OnFailure,
) -> Result<Vec<GeoBox>> {
    let mut grids: Vec<GeoBox> = Vec::new();
    let mut unknown: Vec<&BandSource> = Vec::new();
    let checks = (0..bands.len()).map(|index| async move {
        let sources = images
            .iter()
            .filter_map(|(_, image)| image.bands.get(index)?.as_deref());
        let checked = |source: &&BandSource| source.stated.is_some() && !source.is_known;
        for source in sources.filter(checked).take(TRIES) {
            if let (Ok(real), Some(stated)) = (source.grid(session).await, &source.stated) {
                return agree(stated, &real);
            }
        }
        true
    });
    let is_true: Vec<bool> = join_all(checks).await;
    for (_, image) in images {
        for (source, is_true) in image.bands.iter().zip(&is_true) {
            let Some(source) = source else { continue };
            match source.stated.as_ref().filter(|_| *is_true) {
                Some(grid) if !grids.contains(grid) => grids.push(grid.clone()),
                Some(_) => {}
                None => unknown.push(source),
            }
        }
    }
    let at_once = session.settings().requests_per_host.clamp(1, 64);
    let opening: Vec<_> = unknown.iter().map(|source| source.grid(session)).collect();
    let opened: Vec<Result<GeoBox>> = stream::iter(opening).buffered(at_once).collect().await;
    let mut failed = None;
    for (source, grid) in unknown.into_iter().zip(opened) {
        match (grid, on_failure) {
            (Ok(grid), _) if !grids.contains(&grid) => grids.push(grid),
            (Ok(_), _) => {}
            (Err(err), OnFailure::Fail) => {
                return Err(named(&err, &source.item, &source.asset, None));
            }
            // The plan of each block reports it as a missing input.
            (Err(err), OnFailure::Skip) => failed = Some((source, err)),
        }
    }
    match failed {
        Some((source, err)) if grids.is_empty() => {
            Err(named(&err, &source.item, &source.asset, None))
        }
        _ => Ok(grids),
    }
}

/// Returns the nodata value of a band: that of the first file that can be opened, or else of the catalogue. That of a
/// product of the library is known without a file.
async fn nodata_of(
    session: &Session,
    grid: &GeoBox,
    sources: Vec<Arc<BandSource>>,
) -> Option<crate::raster::Number> {
    let known = sources.iter().find(|source| source.is_known);
    if let Some(nodata) = known.and_then(|source| source.nodata) {
        return Some(nodata);
    }
    for (tried, source) in sources.iter().enumerate() {
        // The plan of each block reports a file that cannot be opened.
        if let Ok(opened) = source.opened(session, grid).await {
            return opened.nodata;
        }
        // Of a catalogue whose files are gone not each is tried.
        let stated = sources.iter().find_map(|source| source.nodata);
        if stated.is_some() && tried + 1 >= TRIES {
            return stated;
        }
    }
    sources.iter().find_map(|source| source.nodata)
}

/// Returns the windows of blocks of a grid, row by row.
pub(super) fn blocks_of(size: Size, side: u32) -> Vec<Window> {
    let mut windows = Vec::new();
    for row in (0..size.height).step_by(side as usize) {
        for col in (0..size.width).step_by(side as usize) {
            windows.push(Window {
                col,
                row,
                width: side.min(size.width - col),
                height: side.min(size.height - row),
            });
        }
    }
    windows
}
