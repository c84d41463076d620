//! The images of a cube: each has a time, and a file or raster for each band.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::{
    apply::{TimeBounds, is_class, stated::StatedGrids, time::duplicates},
    error::{Error, ErrorKind, Result},
    geo::GeoBox,
    location::Location,
    products::{BandValues, Manifest, Scaling, ScalingOrigin},
    query::{QueryResult, recorded_version},
    raster::{DataType, Number, Raster},
    reader::RasterReader,
    stac::{self, BandNames},
    store::Version,
};

/// One image of a cube: its acquisition time, and the sources of its bands' pixels.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CubeImage {
    /// The id of its STAC item.
    pub id: String,
    /// The acquisition time.
    pub time: DateTime<Utc>,
    /// Its bands, by the names that they have in the cube.
    pub bands: Vec<(String, ImagePixels)>,
    /// The longitude of its centre in degrees, if known: it decides the solar day.
    pub longitude: Option<f64>,
    /// The better image of the same scene, if there is one.
    pub duplicate: Option<Duplicate>,
    /// The scaling of its bands by name, as item or manifest state it. It comes before that of the file.
    pub scaling: Vec<(String, Scaling)>,
    /// The first and the last instant, where the image is of more than one.
    pub bounds: Option<TimeBounds>,
    /// The names of bands of classes or flags, which have no mean: their overviews are nearest.
    pub classes: Vec<String>,
    /// The versions of the files of its bands by name, as a record states them.
    pub(super) recorded: Vec<(String, Version)>,
    /// What the catalogue states of the files of its bands, by name.
    pub(super) stated: Vec<(String, StatedFile)>,
}

/// What the catalogue states of the file of a band.
#[derive(Clone, Debug)]
pub(super) struct StatedFile {
    /// The asset's key, with the band where it has several.
    pub(super) asset: String,
    pub(super) grid: Option<Arc<GeoBox>>,
    pub(super) of_band: StatedBand,
}

/// What the catalogue states of one band of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StatedBand {
    pub(super) scaling: Option<Scaling>,
    pub(super) dtype: Option<DataType>,
    pub(super) nodata: Option<Number>,
    /// True if the manifest says that its nodata value replaces the file's.
    pub(super) overrides: bool,
}

/// Why an image is a duplicate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Duplicate {
    /// The id of the better image.
    pub of: String,
    /// The reason, a short sentence for reports.
    pub reason: String,
}

/// The source of a band's pixels.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ImagePixels {
    /// The first band of a file.
    File(Location),
    /// A band of a file, counted from 1.
    BandOf(Location, usize),
    /// All bands of a file, or the one that was selected: each is a band of the cube, `key.red` or `key.1` where the
    /// file has several.
    Asset(ImageAsset),
    /// A band of an open file, counted from 1.
    Open(Arc<dyn RasterReader>, usize),
    /// The first band of a raster in memory.
    Memory(Arc<Raster>),
}

/// An asset of an item, whose bands are known when its file is open.
#[derive(Clone, Debug)]
pub struct ImageAsset {
    pub(super) location: Location,
    pub(super) header_bytes: Option<u64>,
    pub(super) key: String,
    /// The band that was selected; none for all.
    pub(super) choice: Option<String>,
    /// The bands that the item states.
    pub(super) stated: Vec<BandNames>,
    /// What item or manifest state of each band, and last of any other.
    pub(super) of_bands: Vec<StatedBand>,
    /// The grid that the item states.
    pub(super) grid: Option<Arc<GeoBox>>,
    /// Whether its samples are classes or flags.
    pub(super) is_class: bool,
    /// The version of its file that a record states.
    pub(super) recorded: Option<Version>,
}

impl ImageAsset {
    /// Adds a band of its open file, counted from 1, to an image, under a name of the cube. `asset` is its name in notes.
    pub(super) fn add_to(
        &self,
        image: &mut CubeImage,
        name: String,
        asset: String,
        (reader, number): (&Arc<dyn RasterReader>, usize),
    ) {
        let of_band = number
            .checked_sub(1)
            .and_then(|index| self.of_bands.get(index));
        let of_band = of_band.or(self.of_bands.last()).copied();
        let of_band = of_band.unwrap_or_default();
        let of_name = |scaling| (name.clone(), scaling);
        image.scaling.extend(of_band.scaling.map(of_name));
        image.classes.extend(self.is_class.then(|| name.clone()));
        let recorded = self.recorded.clone();
        image
            .recorded
            .extend(recorded.map(|then| (name.clone(), then)));
        let stated = StatedFile {
            asset,
            grid: self.grid.clone(),
            of_band,
        };
        image.stated.push((name.clone(), stated));
        image
            .bands
            .push((name, ImagePixels::Open(Arc::clone(reader), number)));
    }
}

impl From<Location> for ImagePixels {
    fn from(location: Location) -> Self {
        Self::File(location)
    }
}

impl From<Raster> for ImagePixels {
    fn from(raster: Raster) -> Self {
        Self::Memory(Arc::new(raster))
    }
}

impl CubeImage {
    /// Makes an image without bands.
    pub fn new(id: impl Into<String>, time: DateTime<Utc>) -> Self {
        Self {
            id: id.into(),
            time,
            bands: Vec::new(),
            longitude: None,
            scaling: Vec::new(),
            bounds: None,
            classes: Vec::new(),
            recorded: Vec::new(),
            stated: Vec::new(),
            duplicate: None,
        }
    }

    /// States what the samples of a band mean: a value is `sample * scale + offset`.
    #[must_use]
    pub fn with_scaling(mut self, band: impl Into<String>, scaling: Scaling) -> Self {
        self.scaling.push((band.into(), scaling));
        self
    }

    /// States that the samples of a band are classes or flags.
    #[must_use]
    pub fn with_classes(mut self, band: impl Into<String>) -> Self {
        self.classes.push(band.into());
        self
    }

    /// Adds a band.
    #[must_use]
    pub fn with_band(mut self, name: impl Into<String>, pixels: impl Into<ImagePixels>) -> Self {
        self.bands.push((name.into(), pixels.into()));
        self
    }

    /// Returns the images of a query: for each item the selected assets, by their keys. Of an asset with several bands
    /// each is a band: `key.red`, by the names that item or file give, or else `key.1`. Duplicates of a scene are marked,
    /// by the rules of [`time::group`](crate::apply::time::group); which are written
    /// [the options decide](crate::zarr::CubeOptions::with_duplicates).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if an item has no datetime, or an href is invalid, or if no bands are named and no asset
    /// looks like measurements.
    pub fn of(found: &QueryResult) -> Result<Vec<Self>> {
        found.check_guess()?;
        let stores = found.session().stores();
        let mut images: Vec<Self> = Vec::with_capacity(found.len());
        let mut grids = StatedGrids::default();
        for item in &found.items().items {
            let taken =
                stac::datetime(item).or_else(|| stac::interval(item).map(|(start, _)| start));
            let time = taken.ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidInput,
                    format!("item {} has no datetime", item.id),
                )
            })?;
            let mut image = Self::new(&item.id, time);
            image.longitude = stac::longitude(item);
            image.bounds = Some(TimeBounds::of_item(item, time)).filter(|one| !one.is_instant());
            for choice in found.selection.choices(item) {
                let Some(asset) = choice.asset else { continue };
                let named = Location::parse_from(&asset.href, found.trust)?;
                let manifest = found.manifest.as_ref().or_else(|| Manifest::of_item(item));
                let stated = stac::band_names(item, asset);
                let of_band = |band: usize| {
                    let names = stated.get(band);
                    let def = manifest.and_then(|all| all.band_at(choice.key, band + 1, names));
                    // Raw samples need no scale, so one that cannot be told is left out.
                    let said = BandValues::of(item, choice.key, band, manifest).ok();
                    let is_known = |said: &&BandValues| said.origin != ScalingOrigin::Unknown;
                    StatedBand {
                        scaling: said.as_ref().filter(is_known).map(|said| said.scaling),
                        dtype: said.as_ref().and_then(|said| said.dtype),
                        nodata: match &said {
                            Some(said) => said.nodata,
                            None => def.and_then(|def| def.nodata),
                        },
                        overrides: def.is_some_and(|def| def.nodata_overrides),
                    }
                };
                let of_asset = ImageAsset {
                    is_class: is_class(&choice, manifest),
                    recorded: recorded_version(asset),
                    of_bands: (0..=stated.len()).map(of_band).collect(),
                    grid: grids.of(item, asset).map(Arc::new),
                    location: stores.reach(item, asset, named, found.trust, None),
                    header_bytes: stac::header_bytes(asset),
                    key: choice.key.to_owned(),
                    choice: choice.band.map(str::to_owned),
                    stated,
                };
                let name = array_name(choice.key, choice.band);
                image.bands.push((name, ImagePixels::Asset(of_asset)));
            }
            images.push(image);
        }
        let times: Vec<_> = images.iter().map(|image| image.time).collect();
        for one in duplicates(&found.items().items, &times) {
            let of = found.items().items[one.kept].id.clone();
            let reason = one.reason;
            images[one.item].duplicate = Some(Duplicate { of, reason });
        }
        Ok(images)
    }

    /// Returns the longitude of the image's centre in degrees, computed from its grid if the item does not state it.
    pub(super) fn middle(&self, grid: Option<&GeoBox>) -> Result<f64> {
        if let Some(longitude) = self.longitude {
            return Ok(longitude);
        }
        let grid = grid.ok_or_else(|| {
            let message = format!("image {} has no position for its solar day", self.id);
            Error::new(ErrorKind::InvalidInput, message)
        })?;
        let bbox = grid.bbox()?;
        let east = match bbox.crosses_antimeridian() {
            true => bbox.east() + 360.0,
            false => bbox.east(),
        };
        Ok(f64::midpoint(bbox.west(), east))
    }
}

/// Returns the name of the array of an asset's band. Zarr recommends letters, digits, `_`, `-` and `.` for the names of
/// arrays, so it is `key.red` for what a selection names `key:red`.
pub(super) fn array_name(key: &str, band: Option<&str>) -> String {
    match band {
        Some(band) => format!("{key}.{band}"),
        None => key.to_owned(),
    }
}
