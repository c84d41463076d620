//! One band of one image: where its file is, and how its pixels come onto the cube's grid.

use std::sync::Arc;

use ndarray::{Array2, ArrayViewMut2, Axis};
use tokio::sync::OnceCell;

use super::{block::BlockSample, options::Values};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{GeoBox, Window},
    location::Location,
    mask::BandMask,
    products::{BandValues, Scaling, ScalingOrigin},
    raster::{Pixels, Resampling},
    reader::{self, OpenOptions, RasterReader, ReadRequest},
    session::Session,
    warp::{self, Warp},
};

/// One band of an image, opened when it is first needed.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) item: String,
    /// The asset's key.
    pub(super) asset: String,
    pub(super) location: Location,
    pub(super) header_bytes: Option<u64>,
    /// What the catalogue says of the samples; none of classes and flags.
    pub(super) said: Option<BandValues>,
    pub(super) values: Values,
    pub(super) resampling: Resampling,
    pub(super) max_error_pixels: f64,
    pub(super) open: OnceCell<Result<Opened, Arc<Error>>>,
}

/// An open file, and the way from a level of it to the cube's grid.
#[derive(Debug)]
pub(super) struct Opened {
    reader: Arc<dyn RasterReader>,
    level: usize,
    warp: Warp,
    scaling: Scaling,
    pub(super) nodata: Option<f64>,
}

/// Pixels of a source that a block is made of.
#[derive(Debug)]
pub(super) struct Part {
    pixels: Pixels,
    window: Window,
}

impl Source {
    /// Opens the file, once. What fails stays failed: a file that is not there is not asked for again by
    /// each block.
    pub(super) async fn opened(&self, session: &Session, grid: &GeoBox) -> Result<&Opened> {
        let opened = self
            .open
            .get_or_init(|| async { self.open(session, grid).await.map_err(Arc::new) })
            .await;
        opened.as_ref().map_err(|err| {
            let again = Error::new(err.kind(), err.message());
            match err.location() {
                Some(location) => again.at(location),
                None => again,
            }
        })
    }

    async fn open(&self, session: &Session, grid: &GeoBox) -> Result<Opened> {
        let options = OpenOptions {
            header_bytes: self.header_bytes,
            ..OpenOptions::new()
        };
        let reader = reader::open(session, &self.location, options).await?;
        let profile = reader.profile();
        let at = |err: Error| err.at(&self.location);
        let whole = profile.level_geobox(0)?;
        let warp = Warp::new(&whole, grid, self.resampling, self.max_error_pixels).map_err(at)?;
        let sizes: Vec<_> = std::iter::once(profile.size)
            .chain(profile.overviews.iter().copied())
            .collect();
        let level = warp.level(&sizes);
        let warp = match level
            .checked_sub(1)
            .and_then(|overview| profile.overviews.get(overview))
        {
            Some(&size) => warp.on_level(size).map_err(at)?,
            None => warp,
        };
        let stated = profile.bands.first();
        let scaling = match (&self.said, self.values) {
            (None, _) | (_, Values::Raw) => Scaling::IDENTITY,
            (Some(said), Values::Physical) => match (said.origin, stated) {
                (ScalingOrigin::Unknown, Some(band)) => Scaling {
                    scale: band.scale.unwrap_or(1.0),
                    offset: band.offset.unwrap_or(0.0),
                },
                _ => said.scaling,
            },
        };
        let nodata = self.said.as_ref().and_then(|said| said.nodata);
        let nodata = nodata.filter(|&nodata| profile.dtype.holds(nodata));
        let nodata = nodata.or(profile.nodata);
        Ok(Opened {
            level,
            warp,
            scaling,
            nodata,
            reader,
        })
    }
}

impl Opened {
    /// Returns the pixels of the file that a window of the grid is made of; none where they do not touch.
    pub(super) fn window(&self, target: &Window) -> Option<Window> {
        self.warp.source_window(target)
    }

    /// Returns the bytes of these pixels.
    pub(super) fn bytes(&self, window: &Window) -> u64 {
        let sample = self.reader.profile().dtype.size() as u64;
        u64::from(window.width) * u64::from(window.height) * sample
    }

    /// Checks that samples can be loaded as `T`.
    pub(super) fn check<T: BlockSample>(&self) -> Result<()> {
        let dtype = self.reader.profile().dtype;
        if T::takes(dtype, self.scaling) {
            return Ok(());
        }
        let message = match T::DTYPE == dtype {
            true => format!(
                "physical values as {}: expected float32 or float64",
                T::DTYPE
            ),
            false => format!(
                "samples of {dtype} as {}: expected {dtype} or float32",
                T::DTYPE
            ),
        };
        Err(Error::new(ErrorKind::InvalidInput, message).at(self.reader.location()))
    }

    pub(super) async fn read(&self, window: Window) -> Result<Part> {
        let request = ReadRequest::new()
            .with_window(window)
            .with_level(self.level)
            .with_bands([1]);
        let raster = self.reader.read(&request).await?;
        Ok(Part {
            pixels: raster.pixels,
            window,
        })
    }

    /// Puts a part onto a window of the grid. Pixels without data are left as they are.
    pub(super) fn lay<T: BlockSample>(
        &self,
        part: &Part,
        target: &Window,
        out: ArrayViewMut2<'_, T>,
    ) -> Result<usize> {
        let made = T::of(&part.pixels, self.scaling, self.nodata);
        let (pixels, nodata) = match &made {
            // What is not valid is NaN.
            Some(made) => (made.view(), None),
            None => {
                let view = part.pixels.view::<T>().ok_or_else(|| {
                    Error::new(
                        ErrorKind::InvalidInput,
                        "samples of another type than the block's",
                    )
                })?;
                (view.index_axis_move(Axis(0), 0), self.nodata)
            }
        };
        let source = warp::Source {
            pixels,
            window: part.window,
            nodata,
            mask: None,
        };
        self.warp.resample(&source, target, out)
    }

    /// Returns which pixels of a window of the grid a mask leaves out: true, too, where it says nothing.
    pub(super) fn leave_out(
        &self,
        mask: &BandMask,
        part: Option<&Part>,
        target: &Window,
    ) -> Result<Array2<bool>> {
        let shape = (target.height as usize, target.width as usize);
        let Some(part) = part else {
            return Ok(Array2::from_elem(shape, true));
        };
        let bytes = mask.leave_out(&part.pixels, 0, self.nodata)?.mapv(u8::from);
        let source = warp::Source {
            pixels: bytes.view(),
            window: part.window,
            nodata: None,
            mask: None,
        };
        let mut out = Array2::from_elem(shape, 1_u8);
        self.warp.resample(&source, target, out.view_mut())?;
        Ok(out.mapv(|byte| byte != 0))
    }
}
