//! The plan of copied images: checked against one grid, in the order of their times.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, NaiveDate, Utc};
use futures::{StreamExt, TryStreamExt, stream};

use super::{
    describe::{self, CubeBand, TimeStep},
    images::{CubeImage, ImageAsset, ImagePixels, StatedFile, array_name},
    options::CubeOptions,
    samples::SourceFile,
};
use crate::{
    apply::{
        Notes, SourceItem, TimeBounds, described,
        mosaic::Fill,
        of_choice,
        stated::{self, note_of_dtype, note_of_grid, note_of_scaling},
        time::{Clock, Grouping},
    },
    error::{Error, ErrorKind, Result},
    geo::{Extent, GeoBox, Lattice, Window},
    location::Location,
    raster::{DataType, Number, Raster},
    reader::{self, Backend, OpenOptions, RasterReader},
    session::Session,
    stac,
    store::Version,
};

/// Open images that fit one cube.
#[derive(Debug)]
pub(super) struct CubePlan {
    pub(super) bands: Vec<CubeBand>,
    pub(super) steps: Vec<Step>,
    /// What fills the gaps of an image from the next of its time step.
    pub(super) fill: Fill,
    /// Where catalogue and files differ.
    pub(super) of_files: Vec<String>,
    lattice: Lattice,
    pub(super) extent: Extent,
    /// The columns after which the map repeats itself, if images may lie a turn of longitude from the cube.
    turn: Option<i64>,
}

/// One time step with its images.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) said: TimeStep,
    /// In the order of their times: where two cover a pixel, the first wins.
    pub(super) images: Vec<Bands>,
    /// Their times.
    times: Vec<DateTime<Utc>>,
}

/// For each band of the cube, an image's pixels; none where it lacks the band.
pub(super) type Bands = Vec<Option<ImageBand>>;

/// The pixels of one band of one image.
#[derive(Clone, Debug)]
pub(super) struct ImageBand {
    pub(super) pixels: Open,
    pub(super) nodata: Option<Number>,
    pub(super) extent: Extent,
    /// The version of its file that a record states.
    pub(super) recorded: Option<Version>,
}

impl ImageBand {
    /// Returns the reader of its file, if it is no raster in memory.
    pub(super) fn reader(&self) -> Option<&Arc<dyn RasterReader>> {
        match &self.pixels {
            Open::File { reader, .. } => Some(reader),
            Open::Memory(_) => None,
        }
    }

    /// Returns the version of its file to record, where that is not on this machine.
    fn version(&self) -> Option<&Version> {
        let reader = self
            .reader()
            .filter(|reader| reader.location().as_local().is_none())?;
        Version::to_record(self.recorded.as_ref(), reader.version())
    }

    /// Returns true if its file is not the one that was recorded.
    pub(super) fn has_changed(&self) -> bool {
        let now = self.reader().and_then(|reader| reader.version());
        match (&self.recorded, now) {
            (Some(then), Some(now)) => then.differs(now),
            _ => false,
        }
    }

    /// Returns true if one file holds both bands, and the same part of it lies in any window.
    pub(super) fn shares_file(&self, other: &Self) -> bool {
        match (&self.pixels, &other.pixels) {
            (Open::File { reader: one, .. }, Open::File { reader: two, .. }) => {
                Arc::ptr_eq(one, two)
            }
            _ => false,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Open {
    File {
        reader: Arc<dyn RasterReader>,
        /// Counted from 1.
        band: usize,
    },
    Memory(Arc<Raster>),
}

/// The parts of a file's profile that a cube needs.
struct Facts {
    grid: GeoBox,
    band: CubeBand,
    /// True if item or manifest state the scaling, and not the file.
    is_stated: bool,
    /// The nodata value that the catalogue states, for a file that states none.
    nodata_of_catalogue: Option<Number>,
}

impl Facts {
    /// Notes where the catalogue states other things of the file than it does itself, in the words of `apply`.
    fn compare(&mut self, stated: &StatedFile, item: &str, notes: &Notes) {
        let StatedFile {
            asset,
            grid,
            of_band,
        } = stated;
        let CubeBand {
            dtype,
            nodata,
            scale,
            offset,
            ..
        } = self.band;
        let (taken, of_nodata) =
            stated::nodata_of(asset, dtype, nodata, of_band.nodata, of_band.overrides);
        match nodata.filter(|&nodata| dtype.holds(nodata)) {
            Some(_) => self.band.nodata = taken,
            None => self.nodata_of_catalogue = taken,
        }
        let grid = grid.as_deref();
        let differ = [
            grid.and_then(|grid| note_of_grid(asset, grid, &self.grid)),
            of_band
                .dtype
                .and_then(|stated| note_of_dtype(asset, stated, dtype)),
            of_band
                .scaling
                .and_then(|taken| note_of_scaling(asset, scale, offset, taken)),
            of_nodata,
        ];
        for note in differ.into_iter().flatten() {
            notes.add(note, item);
        }
    }
}

/// For each band of the cube, an image's open file and its facts.
type Files = Vec<Option<(Open, Facts)>>;

impl CubePlan {
    /// Opens all images and checks that they fit each other, and the grid and bands of an `existing` cube.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`], which names the image and the difference.
    pub(super) async fn new(
        session: &Session,
        images: Vec<CubeImage>,
        existing: Option<(&GeoBox, &[CubeBand])>,
        options: &CubeOptions,
    ) -> Result<Self> {
        if images.is_empty() {
            return Err(Error::new(ErrorKind::InvalidInput, "no images to write"));
        }
        let images = expanded(session, images).await?;
        let names = names_of(&images, existing.map(|(_, bands)| bands))?;
        check_names(&names)?;
        let at_once = session.settings().requests_per_host.clamp(1, 64);
        let notes = Notes::default();
        let mut opened: Vec<(CubeImage, Files)> = stream::iter(images)
            .map(|image| open(session, image, &names, &notes))
            .buffered(at_once)
            .try_collect()
            .await?;
        let mut bands: Vec<Option<CubeBand>> = match existing {
            Some((_, bands)) => bands.iter().cloned().map(Some).collect(),
            None => vec![None; names.len()],
        };
        let mut lattice = match existing {
            Some((grid, _)) => Some(Lattice::of(grid)?),
            None => options.grid.as_ref().map(Lattice::of).transpose()?,
        };
        let fixed = existing.map(|(grid, _)| grid).or(options.grid.as_ref());
        let mut extent: Option<Extent> = match (&lattice, fixed) {
            (Some(lattice), Some(grid)) => Some(lattice.extent(grid)?),
            _ => None,
        };
        let is_fixed = extent.is_some();
        if !is_fixed {
            put_side_by_side(&mut opened);
        }
        let mut placed = Vec::with_capacity(opened.len());
        for (image, files) in opened {
            let mut sources = Vec::with_capacity(files.len());
            let mut grid = None;
            for (number, file) in files.into_iter().enumerate() {
                let Some((pixels, mut facts)) = file else {
                    sources.push(None);
                    continue;
                };
                let fits = (|| {
                    let lattice = match &lattice {
                        Some(lattice) => lattice,
                        None => lattice.insert(Lattice::of(&facts.grid)?),
                    };
                    let lies = lattice.extent(&facts.grid)?;
                    if !is_fixed {
                        extent = Some(match &extent {
                            Some(known) => known.and(&lies)?,
                            None => lies,
                        });
                    }
                    // Cubes of before have no scaling that only a catalogue states, and stay so.
                    let follows = existing.is_some() && facts.is_stated;
                    let known = &mut bands[number];
                    // That of the catalogue is of files that state none, unless the user or the cube knows better.
                    let knows_better = options.nodata.is_some()
                        || existing.is_some()
                            && known.as_ref().is_some_and(|band| band.nodata.is_none());
                    let of_catalogue = facts.nodata_of_catalogue.filter(|_| !knows_better);
                    facts.band.nodata = facts.band.nodata.or(of_catalogue);
                    agree(known, &facts.band, follows, options)?;
                    Ok(lies)
                })();
                let lies = fits.map_err(|err: Error| {
                    let name = &names[number];
                    let message = format!("image {}, band {name}: {}", image.id, err.message());
                    Error::new(err.kind(), message)
                })?;
                grid.get_or_insert_with(|| facts.grid.clone());
                // What the user chooses is also said of files that state no nodata value.
                let dtype = facts.band.dtype;
                let stated = facts.band.nodata.filter(|&nodata| dtype.holds(nodata));
                let chosen = options.nodata.filter(|&nodata| dtype.holds(nodata));
                sources.push(Some(ImageBand {
                    pixels,
                    nodata: stated.or(chosen.filter(|&nodata| {
                        let known = bands[number].as_ref().and_then(|band| band.nodata);
                        known.is_some_and(|known| known == nodata)
                    })),
                    extent: lies,
                    recorded: image
                        .recorded
                        .iter()
                        .find(|(band, _)| *band == names[number])
                        .map(|(_, then)| then.clone()),
                }));
            }
            placed.push((image, sources, grid));
        }
        let (Some(lattice), Some(extent)) = (lattice, extent) else {
            let message = format!("none of the images has a band {}", names.join(", "));
            return Err(Error::new(ErrorKind::InvalidInput, message));
        };
        let bands = bands
            .into_iter()
            .zip(&names)
            .map(|(band, name)| {
                band.ok_or_else(|| {
                    Error::new(
                        ErrorKind::InvalidInput,
                        format!("none of the images has a band {name}"),
                    )
                })
            })
            .collect::<Result<_>>()?;
        let extents = placed
            .iter()
            .flat_map(|(_, sources, _)| sources.iter().flatten());
        let widest = extents.map(|source| source.extent.width).max();
        // One that is wider than a turn would lie on itself.
        let turn = lattice
            .turn()
            .filter(|&turn| widest.is_some_and(|widest| i64::from(widest) <= turn));
        Ok(Self {
            bands,
            steps: steps(placed, options.grouping, options.clock)?,
            fill: options.fill,
            of_files: notes.all(),
            lattice,
            extent,
            turn,
        })
    }

    /// Returns the cube's grid.
    pub(super) fn grid(&self) -> GeoBox {
        self.lattice.grid(&self.extent)
    }

    /// Returns true if a file holds several bands of the cube: they are best read together.
    pub(super) fn shares_files(&self) -> bool {
        let images = self.steps.iter().flat_map(|step| &step.images);
        images.into_iter().any(|bands| {
            let mut bands = bands.iter().flatten();
            let mut last = bands.next();
            bands.any(|band| {
                let shared = last.is_some_and(|last| last.shares_file(band));
                last = Some(band);
                shared
            })
        })
    }

    /// Returns the images with their times and the addresses of their files.
    pub(super) fn sources(&self) -> Vec<SourceItem> {
        let of_image = |id: &String, time: DateTime<Utc>, image: &Bands| {
            let named = || self.bands.iter().zip(image);
            let assets = named().filter_map(|(band, source)| {
                let reader = source.as_ref()?.reader()?;
                Some((band.name.clone(), reader.location().to_string()))
            });
            let versions = named().filter_map(|(band, source)| {
                let version = source.as_ref()?.version()?;
                Some((band.name.clone(), version.to_json()))
            });
            SourceItem::at(id, time, assets.collect(), versions.collect())
        };
        let of_step = |step: &Step| {
            let named = step.said.items.iter().zip(&step.times).zip(&step.images);
            let all = named.map(|((id, &time), image)| of_image(id, time, image));
            all.collect::<Vec<_>>()
        };
        self.steps.iter().flat_map(of_step).collect()
    }

    /// Returns the files of all time steps, with their versions as far as these are known.
    pub(super) fn files(&self) -> Vec<SourceFile> {
        let of_step = |(number, step): (usize, &Step)| {
            let bands = step.images.iter().flatten().flatten();
            SourceFile::all(number..number + 1, bands.filter_map(ImageBand::reader))
        };
        self.steps.iter().enumerate().flat_map(of_step).collect()
    }

    /// Returns the parts of a window in which an image has a band: the source, its window, and the offset of that in the
    /// requested window (row, column). One, but for an image that lies at both ends of the window, a turn of longitude
    /// apart.
    pub(super) fn parts<'a>(
        &'a self,
        image: &'a Bands,
        band: usize,
        window: &'a Window,
    ) -> impl Iterator<Item = (&'a ImageBand, Window, [usize; 2])> {
        let source = image.get(band).and_then(Option::as_ref);
        source.into_iter().flat_map(move |source| {
            let parts = self.extent.parts(window, &source.extent, self.turn);
            parts.map(move |(part, lies)| (source, part, lies))
        })
    }

    /// Returns true if all bands of a pixel must come from one image, and several images could give one.
    pub(super) fn fills_pixels(&self) -> bool {
        self.fill == Fill::Pixel && self.has_choice()
    }

    /// Returns true if images of one time step may give different bands of a pixel.
    pub(super) fn has_choice(&self) -> bool {
        self.bands.len() > 1 && self.steps.iter().any(|step| step.images.len() > 1)
    }
}

/// Moves the grids of images that lie either side of the end of a map of the globe to lie side by side, if they are
/// aligned there.
fn put_side_by_side(opened: &mut [(CubeImage, Files)]) {
    let files = opened.iter().flat_map(|(_, files)| files.iter().flatten());
    let grids: Vec<GeoBox> = files.map(|(_, facts)| facts.grid.clone()).collect();
    let Some(moved) = GeoBox::side_by_side(&grids) else {
        return;
    };
    let Some(Ok(lattice)) = moved.first().map(Lattice::of) else {
        return;
    };
    if moved.iter().all(|grid| lattice.extent(grid).is_ok()) {
        let files = opened
            .iter_mut()
            .flat_map(|(_, files)| files.iter_mut().flatten());
        for ((_, facts), grid) in files.zip(moved) {
            facts.grid = grid;
        }
    }
}

/// Returns the names of the cube's bands: those of all images, in the order of their first occurrence.
fn names_of(images: &[CubeImage], existing: Option<&[CubeBand]>) -> Result<Vec<String>> {
    let invalid = |what: String| Err(Error::new(ErrorKind::InvalidInput, what));
    let known = existing.unwrap_or_default().iter();
    let mut names: Vec<String> = known.map(|band| band.name.clone()).collect();
    for image in images {
        for (number, (name, _)) in image.bands.iter().enumerate() {
            if image.bands[..number].iter().any(|(other, _)| other == name) {
                return invalid(format!("image {}: two bands are named `{name}`", image.id));
            }
            if names.contains(name) {
                continue;
            }
            if existing.is_some() {
                return invalid(format!(
                    "image {} has a band `{name}`, the cube has {}",
                    image.id,
                    names.join(", ")
                ));
            }
            names.push(name.clone());
        }
    }
    Ok(names)
}

/// Checks the names of bands, which become names of arrays and therefore of folders and keys.
pub(super) fn check_names(names: &[String]) -> Result<()> {
    let invalid = |what: String| Err(Error::new(ErrorKind::InvalidInput, what));
    if names.is_empty() {
        return invalid("the images have no bands".to_owned());
    }
    for (number, name) in names.iter().enumerate() {
        if names[..number].contains(name) {
            return invalid(format!("two bands are named `{name}`"));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-.+".contains(c);
        let reserved = [
            "x",
            "y",
            "time",
            "band",
            describe::GRID,
            describe::ITEM,
            describe::TIME_BOUNDS,
        ];
        if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            return invalid(format!(
                "band `{name}` cannot name an array: expected letters, digits, `_`, `-`, `.`"
            ));
        }
        if reserved.contains(&name.as_str()) {
            return invalid(format!("band `{name}` has the name of a coordinate"));
        }
    }
    Ok(())
}

async fn open(
    session: &Session,
    image: CubeImage,
    names: &[String],
    notes: &Notes,
) -> Result<(CubeImage, Files)> {
    let mut files = Vec::with_capacity(names.len());
    for name in names {
        let found = image.bands.iter().find(|(band, _)| band == name);
        files.push(match found {
            Some((_, pixels)) => {
                let opened = open_band(session, name, pixels).await;
                let (open, mut facts) = opened.map_err(|err| match err.location() {
                    Some(_) => err,
                    None => err.at(&image.id),
                })?;
                if let Some((_, stated)) = image.stated.iter().find(|(band, _)| band == name) {
                    facts.compare(stated, &image.id, notes);
                }
                if let Some((_, scaling)) = image.scaling.iter().find(|(band, _)| band == name) {
                    let stated = Some(*scaling).filter(|scaling| !scaling.is_identity());
                    facts.band.scale = stated.map(|scaling| scaling.scale);
                    facts.band.offset = stated.map(|scaling| scaling.offset);
                    facts.is_stated = true;
                }
                facts.band.is_class = image.classes.contains(name) && !facts.band.dtype.is_float();
                Some((open, facts))
            }
            None => None,
        });
    }
    Ok((image, files))
}

async fn open_file(session: &Session, location: &Location) -> Result<Arc<dyn RasterReader>> {
    reader::open(session, location, Backend::Auto).await
}

/// Opens the assets of images, each file once, and puts their bands in their place.
///
/// # Errors
///
/// [`ErrorKind::InvalidInput`] if images have files of different numbers of bands for one asset, or a file lacks a band
/// that was selected.
async fn expanded(session: &Session, images: Vec<CubeImage>) -> Result<Vec<CubeImage>> {
    let at_once = session.settings().requests_per_host.clamp(1, 64);
    let opening = images.into_iter().map(|image| async move {
        let mut files: BTreeMap<String, Arc<dyn RasterReader>> = BTreeMap::new();
        for (_, pixels) in &image.bands {
            if let ImagePixels::Asset(asset) = pixels
                && !files.contains_key(&asset.key)
            {
                let options = OpenOptions {
                    header_bytes: asset.header_bytes,
                    ..OpenOptions::new()
                };
                let reader = reader::open(session, &asset.location, options).await?;
                files.insert(asset.key.clone(), reader);
            }
        }
        Ok::<_, Error>((image, files))
    });
    let opening: Vec<_> = opening.collect();
    let opened: Vec<_> = stream::iter(opening)
        .buffered(at_once)
        .try_collect()
        .await?;
    // The number of bands of each asset that is taken as a whole, and the first image that has it.
    let mut counts: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let mut images = Vec::with_capacity(opened.len());
    for (mut image, files) in opened {
        for (name, pixels) in std::mem::take(&mut image.bands) {
            let ImagePixels::Asset(asset) = &pixels else {
                image.bands.push((name, pixels));
                continue;
            };
            let Some(reader) = files.get(&asset.key) else {
                continue;
            };
            let id = image.id.clone();
            let invalid = |why: &str| {
                let message = format!("image {id}, asset {}: {why}", asset.key);
                Error::new(ErrorKind::InvalidInput, message).at(&asset.location)
            };
            let profile = reader.profile();
            if let Some(choice) = &asset.choice {
                let number =
                    of_choice(choice, &asset.stated).and_then(|band| band.in_file(profile));
                let number = number.map_err(|err| invalid(err.message()))?;
                let shown = format!("{}:{choice}", asset.key);
                asset.add_to(&mut image, name, shown, (reader, number));
                continue;
            }
            let known = counts
                .entry(asset.key.clone())
                .or_insert_with(|| (profile.count, id.clone()));
            if known.0 != profile.count {
                return Err(invalid(&format!(
                    "its file has {} bands, that of image {} has {}: choose bands, as `{}:1`",
                    profile.count, known.1, known.0, asset.key
                )));
            }
            if profile.count == 1 {
                asset.add_to(&mut image, name, asset.key.clone(), (reader, 1));
                continue;
            }
            let labels = stac::labels(&asset.stated, &described(profile));
            for (label, number) in labels.into_iter().zip(1..) {
                let name = array_name(&asset.key, Some(&label));
                // `visual,visual:2` names band 2 twice.
                if image.bands.iter().all(|(known, _)| *known != name) {
                    let shown = format!("{}:{label}", asset.key);
                    asset.add_to(&mut image, name, shown, (reader, number));
                }
            }
        }
        images.push(image);
    }
    Ok(images)
}

async fn open_band(session: &Session, name: &str, pixels: &ImagePixels) -> Result<(Open, Facts)> {
    let (reader, number) = match pixels {
        ImagePixels::File(location) => (open_file(session, location).await?, 1),
        ImagePixels::BandOf(location, number) => (open_file(session, location).await?, *number),
        ImagePixels::Open(reader, number) => (Arc::clone(reader), *number),
        ImagePixels::Asset(ImageAsset { location, .. }) => {
            let message = "an asset that was not opened";
            return Err(Error::new(ErrorKind::InvalidInput, message).at(location));
        }
        ImagePixels::Memory(raster) => {
            let band = CubeBand {
                name: name.to_owned(),
                dtype: raster.pixels.dtype(),
                nodata: raster.nodata,
                scale: None,
                offset: None,
                unit: None,
                is_class: false,
            };
            let facts = Facts {
                grid: raster.geobox.clone(),
                band,
                is_stated: false,
                nodata_of_catalogue: None,
            };
            return Ok((Open::Memory(Arc::clone(raster)), facts));
        }
    };
    let profile = reader.profile();
    let profile_band = number
        .checked_sub(1)
        .and_then(|index| profile.bands.get(index))
        .ok_or_else(|| {
            let message = format!("band {number} is not one of 1 to {}", profile.count);
            Error::new(ErrorKind::InvalidInput, message).at(reader.location())
        })?;
    let facts = Facts {
        grid: profile.placed_geobox(0)?,
        band: CubeBand {
            name: name.to_owned(),
            dtype: profile.dtype,
            nodata: profile.nodata,
            scale: profile_band.scale,
            offset: profile_band.offset,
            unit: profile_band.unit.clone(),
            is_class: false,
        },
        is_stated: false,
        nodata_of_catalogue: None,
    };
    let pixels = Open::File {
        reader,
        band: number,
    };
    Ok((pixels, facts))
}

/// Checks a band of an image against the cube's. The first image with the band decides it.
///
/// With `follows` a cube without scaling takes a band with one.
fn agree(
    known: &mut Option<CubeBand>,
    band: &CubeBand,
    follows: bool,
    options: &CubeOptions,
) -> Result<()> {
    let invalid = |what: String| Err(Error::new(ErrorKind::InvalidInput, what));
    let Some(known) = known else {
        let mut band = band.clone();
        if let Some(nodata) = options.nodata {
            if !band.dtype.holds(nodata) {
                return invalid(format!("nodata {nodata} is not a value of {}", band.dtype));
            }
            band.nodata = Some(nodata);
        }
        // A nodata value outside of the dtype's range masks no pixel, and Zarr could not store it as fill value.
        band.nodata = band.nodata.filter(|&nodata| band.dtype.holds(nodata));
        // Where no image lies, a float without a nodata value is NaN.
        if matches!(band.dtype, DataType::F32 | DataType::F64) {
            band.nodata = band.nodata.or(Some(Number::NAN));
        }
        *known = Some(band);
        return Ok(());
    };
    if band.dtype != known.dtype {
        return invalid(format!(
            "its samples are {}, the cube's are {}",
            band.dtype, known.dtype
        ));
    }
    // By bits, so that NaN equals NaN.
    let same = |a: Option<f64>, b: Option<f64>| a.map(f64::to_bits) == b.map(f64::to_bits);
    let follows = follows && known.scale.is_none() && known.offset.is_none();
    if !follows && (!same(band.scale, known.scale) || !same(band.offset, known.offset)) {
        return invalid(format!(
            "its values are samples x {} + {}, the cube's are samples x {} + {}: write physical values, or cubes apart",
            band.scale.unwrap_or(1.0),
            band.offset.unwrap_or(0.0),
            known.scale.unwrap_or(1.0),
            known.offset.unwrap_or(0.0)
        ));
    }
    if known.nodata.is_none() && band.nodata.is_some_and(|nodata| band.dtype.holds(nodata)) {
        return invalid(
            "it has a nodata value, the cube has none: choose one for the cube".to_owned(),
        );
    }
    Ok(())
}

/// An image, its bands on the cube's grid, and its own grid.
type Placed = (CubeImage, Bands, Option<GeoBox>);

/// Sorts images by time and groups them into time steps.
fn steps(mut placed: Vec<Placed>, by: Grouping, clock: Clock) -> Result<Vec<Step>> {
    // By id too: the mosaic of images of equal times must not depend on the order of the search, nor may a resumed
    // write differ from its journal.
    placed.sort_by(|(a, ..), (b, ..)| (a.time, &a.id).cmp(&(b.time, &b.id)));
    // Without pixels there is no grid, and no centre to take a solar day from: such an image is a time step by itself.
    let on_grid: Vec<usize> = (0..placed.len())
        .filter(|&index| placed[index].2.is_some())
        .collect();
    let times: Vec<_> = on_grid.iter().map(|&index| placed[index].0.time).collect();
    let starts = by.starts(clock, &times, |number| {
        let (image, _, grid) = &placed[on_grid[number]];
        image.middle(grid.as_ref())
    })?;
    let mut starts: BTreeMap<usize, Option<NaiveDate>> = on_grid.into_iter().zip(starts).collect();
    let mut groups: Vec<Vec<Placed>> = Vec::new();
    let mut days: BTreeMap<NaiveDate, usize> = BTreeMap::new();
    for (index, (image, sources, grid)) in placed.into_iter().enumerate() {
        let day = starts.remove(&index).flatten();
        let known = day.and_then(|day| days.get(&day).copied());
        match known.and_then(|known| groups.get_mut(known)) {
            Some(group) => group.push((image, sources, grid)),
            None => {
                if let Some(day) = day {
                    days.insert(day, groups.len());
                }
                groups.push(vec![(image, sources, grid)]);
            }
        }
    }
    Ok(groups
        .into_iter()
        .filter_map(|group| {
            let time = group.first()?.0.time;
            let span = group.iter().map(|(image, ..)| {
                let own = TimeBounds::at(image.time);
                image.bounds.unwrap_or(own)
            });
            let bounds = match by {
                Grouping::Item => group.first()?.0.bounds,
                _ => span.reduce(TimeBounds::and),
            };
            let said = TimeStep {
                time,
                bounds,
                items: group.iter().map(|(image, ..)| image.id.clone()).collect(),
            };
            let times = group.iter().map(|(image, ..)| image.time).collect();
            let images = group.into_iter().map(|(_, bands, _)| bands).collect();
            Some(Step {
                said,
                images,
                times,
            })
        })
        .collect())
}
