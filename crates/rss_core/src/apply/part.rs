//! Parts of a cube and of a result, for the Zarr writer, which computes shard by shard and not block by block.

use std::{ops::Range, sync::Arc};

use futures::{StreamExt, stream};
use ndarray::Array4;

use super::{
    axes::Step,
    block::BlockSample,
    cube::{ImageCube, Inner, ItemImage},
    mosaic::Mosaic,
    options::{OnFailure, Values},
    report::{MissingInput, named},
    run::{Apply, Computed, made_of},
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::Window,
    products::ScalingOrigin,
    raster::{DataType, Number, Sample},
    reader::RasterReader,
    session::Session,
};

/// Files that are opened concurrently. Each store limits the requests to its own host.
const OPENS: usize = 64;

/// The dtype, scale, offset and unit of a band, as its files state them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    pub(crate) dtype: DataType,
    pub(crate) scale: Option<f64>,
    pub(crate) offset: Option<f64>,
    pub(crate) unit: Option<String>,
    /// True if item or manifest state the scaling, and not the file.
    pub(crate) is_stated: bool,
}

impl ImageCube {
    pub(crate) fn session(&self) -> &Session {
        &self.0.session
    }

    /// Returns true if samples are physical values, which are floats whatever the files' dtype.
    pub(crate) fn is_physical(&self) -> bool {
        self.0.options.values == Values::Physical
    }

    /// Returns how the images of a time step are composited.
    pub(crate) fn mosaic(&self) -> Mosaic {
        self.0.options.mosaic
    }

    /// Returns true if time steps are groups of images, and not single ones.
    pub(crate) fn has_groups(&self) -> bool {
        self.0.options.grouping != super::time::Grouping::Item
    }

    /// Returns the open files of each time step: those of bands, and of masks.
    pub(crate) fn readers(&self) -> Vec<Vec<&Arc<dyn RasterReader>>> {
        let mut steps = Vec::with_capacity(self.0.images.len());
        for images in &self.0.images {
            let mut readers = Vec::new();
            for image in images {
                let masks = image.masks.iter().map(|(source, _)| source);
                let bands = image.bands.iter().flatten().map(AsRef::as_ref);
                readers.extend(bands.chain(masks).filter_map(|source| source.reader.get()));
            }
            steps.push(readers);
        }
        steps
    }

    /// Returns true if inputs that cannot be read are skipped.
    pub(crate) fn allows_holes(&self) -> bool {
        self.0.options.on_failure == OnFailure::Skip
    }

    /// Returns the inputs that are known to be missing before anything is read.
    pub(crate) fn known_holes(&self) -> Vec<MissingInput> {
        self.0.missing_inputs.clone()
    }

    /// Returns a cube of some of the time steps and bands of this one, which shares its open files.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if there is no such time step or band.
    pub(crate) fn part(&self, steps: Range<usize>, bands: &[usize]) -> Result<Self> {
        let all = &self.0;
        let none = || {
            let message = format!("time steps {steps:?} and bands {bands:?} are outside the cube");
            Error::new(ErrorKind::InvalidInput, message)
        };
        let picked: Option<Vec<_>> = bands
            .iter()
            .map(|&band| all.bands.get(band).cloned())
            .collect();
        // Whether a pixel is whole depends on the bands that are left out, too: they follow those of the cube, and only
        // their gaps are read.
        let others = (0..all.bands.len()).filter(|band| !bands.contains(band));
        let others: Vec<usize> = match all.fills_pixels() {
            true => others.collect(),
            false => Vec::new(),
        };
        let image = |image: &ItemImage| ItemImage {
            bands: bands
                .iter()
                .chain(&others)
                .map(|&band| image.bands.get(band).cloned().flatten())
                .collect(),
            masks: Arc::clone(&image.masks),
            hidden: image.hidden,
            footprint: Arc::clone(&image.footprint),
        };
        let images = all.images.get(steps.clone()).ok_or_else(none)?;
        let images = images.iter().map(|step| step.iter().map(image).collect());
        Ok(Self(Arc::new(Inner {
            bands: picked.ok_or_else(none)?.into(),
            steps: all.steps.get(steps.clone()).ok_or_else(none)?.into(),
            moments: all.moments.get(steps.clone()).ok_or_else(none)?.to_vec(),
            images: images.collect(),
            left_out: Vec::new(),
            missing_inputs: Vec::new(),
            ..Inner::clone(all)
        })))
    }

    /// Opens all files, and returns dtype, scale, offset and unit of each band. An array has one of each, so all
    /// files of a band must agree in dtype, scale and offset.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if they do not agree; errors of opening a file, unless missing inputs are skipped.
    pub(crate) async fn stored(&self) -> Result<Vec<Stored>> {
        let all = &self.0;
        let mut sources = Vec::new();
        for image in all.images.iter().flatten() {
            for (band, source) in image.bands.iter().enumerate() {
                sources.extend(source.as_deref().map(|source| (band, source)));
            }
        }
        let opening: Vec<_> = sources
            .iter()
            .map(|(_, source)| source.opened(&all.session, &all.grid))
            .collect();
        let opened: Vec<_> = stream::iter(opening).buffered(OPENS).collect().await;
        let mut stored: Vec<Option<Stored>> = vec![None; all.bands.len()];
        for ((band, source), opened) in sources.into_iter().zip(opened) {
            let opened = match (opened, all.options.on_failure) {
                (Ok(opened), _) => opened,
                (Err(err), OnFailure::Fail) => {
                    return Err(named(&err, &source.item, &source.asset, None));
                }
                // The plan of each window reports it as a missing input.
                (Err(_), OnFailure::Skip) => continue,
            };
            let profile = opened.reader.profile();
            let stated = opened
                .band
                .checked_sub(1)
                .and_then(|index| profile.bands.get(index));
            let mut here = Stored {
                dtype: profile.dtype,
                scale: stated.and_then(|band| band.scale),
                offset: stated.and_then(|band| band.offset),
                unit: stated.and_then(|band| band.unit.clone()),
                is_stated: false,
            };
            // As of physical values, item and manifest come before the file.
            let said = source.said.of(opened.band);
            if let Some(said) = said.filter(|said| said.origin != ScalingOrigin::Unknown) {
                let scaling = Some(said.scaling).filter(|scaling| !scaling.is_identity());
                here.scale = scaling.map(|scaling| scaling.scale);
                here.offset = scaling.map(|scaling| scaling.offset);
                here.is_stated = true;
            }
            let Some(known) = stored.get_mut(band) else {
                continue;
            };
            match known {
                Some(known) => known.check(&here).map_err(|err| {
                    named(&err, &source.item, &source.asset, None).at(&source.location)
                })?,
                None => *known = Some(here),
            }
        }
        stored
            .into_iter()
            .zip(all.bands.iter())
            .map(|(stored, band)| {
                stored.ok_or_else(|| {
                    let message = format!("band {}: none of its files can be opened", band.name);
                    Error::new(ErrorKind::NotFound, message)
                })
            })
            .collect()
    }

    /// Returns the peak bytes of reading a window, including its samples. Opens files that are not open yet.
    pub(crate) async fn bytes<T: BlockSample>(&self, window: Window) -> Result<u64> {
        Ok(self.0.plan::<T>(window, 0).await?.bytes)
    }

    /// Reads a window, (time, band, y, x).
    pub(crate) async fn samples<T: BlockSample>(
        &self,
        window: Window,
    ) -> Result<(Array4<T>, Vec<MissingInput>)> {
        let (block, missing_inputs) = self.read::<T>(window).await?;
        Ok((block.data, missing_inputs))
    }
}

impl Stored {
    fn check(&self, other: &Self) -> Result<()> {
        let differs = |what: String| Err(Error::new(ErrorKind::InvalidInput, what));
        if other.dtype != self.dtype {
            return differs(format!(
                "its samples are {}, those of the first file {}: load physical values",
                other.dtype, self.dtype
            ));
        }
        if (other.scale, other.offset) != (self.scale, self.offset) {
            return differs(format!(
                "its values are samples x {} + {}, those of the first file samples x {} + {}: load physical values",
                other.scale.unwrap_or(1.0),
                other.offset.unwrap_or(0.0),
                self.scale.unwrap_or(1.0),
                self.offset.unwrap_or(0.0)
            ));
        }
        Ok(())
    }
}

impl<O: Sample + Send + Sync + 'static> Apply<O> {
    /// Returns the names of the result's bands.
    pub(crate) fn names(&self) -> &[String] {
        &self.options.names
    }

    /// Returns whether each band of the result holds classes, as far as is known; a band past the end does not.
    pub(crate) fn class_bands(&self) -> &[bool] {
        &self.classes
    }

    /// Returns the names of the variables and their time steps, if the bands of the result are these.
    pub(crate) fn dated(&self) -> Option<(&[String], &[Step])> {
        let dated = self.each_date.as_ref()?;
        Some((&dated.names, &dated.steps))
    }

    /// Sets the nodata value, if there is one to set.
    pub(crate) fn with_nodata(mut self, nodata: Option<Number>) -> Self {
        self.options.nodata = nodata.or(self.options.nodata);
        self
    }

    /// Returns the peak bytes of computing a window, without those of the result.
    pub(crate) async fn bytes(&self, window: Window) -> Result<u64> {
        Ok(self.plans(window).await?.bytes)
    }

    /// Computes a window, whose missing pixels are NaN in floats.
    pub(crate) async fn block(&self, window: Window) -> Result<Computed<O>> {
        let plans = self.plans(window).await?;
        let compute = Arc::clone(&self.compute);
        made_of(window, plans, compute, None, Ok).await
    }
}
