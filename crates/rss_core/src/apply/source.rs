//! One band of one image: the location of its file, which band of it, and the warp of its pixels onto the cube's grid.

use std::sync::Arc;

use ndarray::{Array2, ArrayViewMut2, Axis};
use tokio::sync::OnceCell;

use super::{
    bands::{FileBand, SharedReader},
    block::BlockSample,
    mosaic::Gap,
    notes::Notes,
    options::{Overviews, Values},
    report::said_again,
    stated::{self, note_of_dtype, note_of_grid, note_of_scaling},
};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{GeoBox, Window},
    location::Location,
    mask::{BandMask, Verdict},
    products::{BandValues, Scaling, ScalingOrigin},
    raster::{Number, Pixels, Resampling},
    reader::{self, OpenOptions, Profile, RasterReader, ReadRequest},
    session::Session,
    store::Version,
    warp::{self, Warp},
};

/// What a note says of a file that is not the recorded one.
pub(crate) const CHANGED: &str = "its file has changed since it was recorded";

/// One band of an image, opened when it is first needed.
#[derive(Debug)]
pub(super) struct BandSource {
    pub(super) item: String,
    /// The asset's key.
    pub(super) key: String,
    /// The asset's key, with the band where it has several.
    pub(super) asset: String,
    /// The version of its file that a record states.
    pub(super) recorded: Option<Version>,
    /// Which band of the file it is.
    pub(super) band: FileBand,
    /// The most bands that the file may have, where all of them are taken: one more would be left out.
    pub(super) count: Option<usize>,
    pub(super) location: Location,
    pub(super) header_bytes: Option<u64>,
    /// Scale, offset and nodata by the catalogue; none for masks, and where raw samples are loaded without them.
    pub(super) said: Said,
    /// The nodata value that the catalogue states, for files that state none.
    pub(super) nodata: Option<Number>,
    /// True if a product of the library describes the band: then no file is opened to plan a cube.
    pub(super) is_known: bool,
    /// True if the manifest says that its nodata value replaces the file's.
    pub(super) overrides: bool,
    pub(super) values: Values,
    pub(super) resampling: Resampling,
    pub(super) max_error_pixels: f64,
    pub(super) overviews: Overviews,
    /// The least share of the weight of its source pixels that must be valid in a valid pixel.
    pub(super) min_valid: Option<f64>,
    /// The file's, for all of its bands.
    pub(super) reader: SharedReader,
    pub(super) open: OnceCell<Result<Opened, Error>>,
    /// The grid that the catalogue states.
    pub(super) stated: Option<GeoBox>,
    pub(super) notes: Arc<Notes>,
}

/// What the catalogue says of the values of a band.
#[derive(Clone, Debug)]
pub(super) enum Said {
    Of(Option<BandValues>),
    /// Of each band of the file, and last of any other: only the open file tells which band it is.
    OfEach(Vec<Option<BandValues>>),
}

impl Said {
    /// Returns what is said of a band, counted from 1.
    pub(super) fn of(&self, number: usize) -> Option<&BandValues> {
        match self {
            Self::Of(said) => said.as_ref(),
            Self::OfEach(all) => {
                let said = number.checked_sub(1).and_then(|index| all.get(index));
                said.or(all.last())?.as_ref()
            }
        }
    }
}

/// Returns the descriptions of a file's bands.
pub(crate) fn described(profile: &Profile) -> Vec<Option<String>> {
    let bands = profile.bands.iter();
    bands.map(|band| band.description.clone()).collect()
}

/// An open file, and the warp from one of its levels to the cube's grid.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) reader: Arc<dyn RasterReader>,
    pub(super) level: usize,
    /// The band of the file, counted from 1.
    pub(super) band: usize,
    /// The grid of the level.
    pub(super) own: GeoBox,
    warp: Warp,
    /// How validity is resampled, and the least share that must be valid.
    share: Option<(Warp, f64)>,
    scaling: Scaling,
    pub(super) nodata: Option<Number>,
}

/// Scale, offset and nodata of the samples of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meaning {
    pub(super) scaling: Scaling,
    pub(super) nodata: Option<Number>,
}

/// Pixels that were read from a source, and their window in its level.
#[derive(Debug)]
pub(super) struct SourceWindow {
    /// Of all bands that were read of the file.
    pub(super) pixels: Arc<Pixels>,
    /// The source's band among them, counted from 0.
    pub(super) band: usize,
    pub(super) window: Window,
}

impl BandSource {
    /// Opens the file, once. A failure is cached too: otherwise each block would request a missing file again.
    pub(super) async fn opened(&self, session: &Session, grid: &GeoBox) -> Result<&Opened> {
        let opened = self
            .open
            .get_or_init(|| async { self.open(session, grid).await })
            .await;
        opened
            .as_ref()
            .map_err(|err| said_again(err, err.message()))
    }

    /// Opens the file's header, once. A failure is not cached here, so that a second call tries again.
    pub(super) async fn reader(&self, session: &Session) -> Result<&Arc<dyn RasterReader>> {
        let options = OpenOptions {
            header_bytes: self.header_bytes,
            ..OpenOptions::new()
        };
        let open = || reader::open(session, &self.location, options);
        self.reader.get_or_try_init(open).await
    }

    /// Returns the version of the file to record, where it is open and not on this machine.
    pub(super) fn version(&self) -> Option<&Version> {
        let opened = self.open.get()?.as_ref().ok()?;
        if self.location.as_local().is_some() {
            return None;
        }
        Version::to_record(self.recorded.as_ref(), opened.reader.version())
    }

    /// Returns the grid of an open file, and notes where the catalogue states another: the file's is taken.
    pub(super) fn whole(&self, profile: &Profile) -> Result<GeoBox> {
        let whole = profile.placed_geobox(0)?;
        let stated = self.stated.as_ref();
        if let Some(note) = stated.and_then(|stated| note_of_grid(&self.asset, stated, &whole)) {
            self.notes.add(note, &self.item);
        }
        Ok(whole)
    }

    /// Returns the grid of the file's full resolution, from its header.
    pub(super) async fn grid(&self, session: &Session) -> Result<GeoBox> {
        self.reader(session).await?.profile().placed_geobox(0)
    }

    /// Opens the file, and chooses the level to read and the warp for a grid.
    pub(super) async fn open(&self, session: &Session, grid: &GeoBox) -> Result<Opened> {
        let reader = Arc::clone(self.reader(session).await?);
        let profile = reader.profile();
        let at = |err: Error| err.at(&self.location);
        if let (Some(then), Some(now)) = (&self.recorded, reader.version())
            && then.differs(now)
        {
            let asset = &self.key;
            self.notes
                .add(format!("asset {asset}: {CHANGED}"), &self.item);
        }
        let whole = self.whole(profile)?;
        let warp = Warp::new(&whole, grid, self.resampling, self.max_error_pixels).map_err(at)?;
        let sizes: Vec<_> = std::iter::once(profile.size)
            .chain(profile.overviews.iter().copied())
            .collect();
        let level = match self.overviews {
            Overviews::Auto => warp.level(&sizes),
            Overviews::Never => 0,
        };
        let (own, warp) = match level
            .checked_sub(1)
            .and_then(|overview| profile.overviews.get(overview))
        {
            Some(&size) => (whole.of_level(size), warp.on_level(size).map_err(at)?),
            None => (whole, warp),
        };
        let by = match self.resampling {
            // One source pixel, which is valid or not.
            Resampling::Nearest => None,
            by if by.is_area() => Some(Resampling::Average),
            _ => Some(Resampling::Bilinear),
        };
        let share = match (self.min_valid, by) {
            (Some(least), Some(by)) => {
                let warp = Warp::new(&own, grid, by, self.max_error_pixels).map_err(at)?;
                Some((warp, least))
            }
            _ => None,
        };
        let band = self.number(profile)?;
        let Meaning { scaling, nodata } = self.meaning(profile, band)?;
        Ok(Opened {
            level,
            band,
            own,
            warp,
            share,
            scaling,
            nodata,
            reader,
        })
    }

    /// Returns which band of an open file it is, counted from 1.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the file has no such band, or bands that would be left out.
    pub(super) fn number(&self, profile: &Profile) -> Result<usize> {
        if let Some(most) = self.count.filter(|&most| profile.count > most) {
            let key = self.asset.split(':').next().unwrap_or_default();
            let message = format!(
                "the file has {} bands, expected {most}: choose bands, as `{key}:1`",
                profile.count
            );
            return Err(Error::new(ErrorKind::InvalidInput, message).at(&self.location));
        }
        let number = self.band.in_file(profile);
        number.map_err(|err| err.at(&self.location))
    }

    /// Returns scale, offset and nodata of the band, counted from 1. Those of the catalogue come first, then those of
    /// the file. Integers without a scale in either are refused as physical values: whether a DN is a reflectance is a
    /// guess.
    pub(super) fn meaning(&self, profile: &Profile, band: usize) -> Result<Meaning> {
        let of_file = band
            .checked_sub(1)
            .and_then(|index| profile.bands.get(index));
        let said = self.said.of(band);
        let mut noted = None;
        let scaling = match (said, self.values) {
            (None, _) | (_, Values::Raw) => Scaling::IDENTITY,
            (Some(said), Values::Physical) if said.origin == ScalingOrigin::Unknown => {
                let scale = of_file.and_then(|band| band.scale);
                let offset = of_file.and_then(|band| band.offset);
                if scale.or(offset).is_none() && !profile.dtype.is_float() {
                    let message = format!(
                        "no item, manifest or file states the scale of {} samples: give a manifest, or load raw ones",
                        profile.dtype
                    );
                    return Err(Error::new(ErrorKind::InvalidInput, message).at(&self.location));
                }
                Scaling {
                    scale: scale.unwrap_or(1.0),
                    offset: offset.unwrap_or(0.0),
                }
            }
            (Some(said), Values::Physical) => {
                noted = of_file.and_then(|band| {
                    note_of_scaling(&self.asset, band.scale, band.offset, said.scaling)
                });
                said.scaling
            }
        };
        let of_catalogue = match &self.said {
            Said::OfEach(_) => said.and_then(|said| said.nodata),
            Said::Of(_) => self.nodata,
        };
        let (nodata, note) = stated::nodata_of(
            &self.asset,
            profile.dtype,
            profile.nodata,
            of_catalogue,
            self.overrides,
        );
        let dtype = said.and_then(|said| said.dtype);
        let notes = [
            note,
            dtype.and_then(|dtype| note_of_dtype(&self.asset, dtype, profile.dtype)),
            noted,
        ];
        for note in notes.into_iter().flatten() {
            self.notes.add(note, &self.item);
        }
        Ok(Meaning { scaling, nodata })
    }
}

impl Opened {
    /// Returns the window of the level that a window of the grid is resampled from; none where they do not touch.
    pub(super) fn window(&self, target: &Window) -> Option<Window> {
        self.warp.source_window(target)
    }

    /// Returns the decoded bytes of a window of the level.
    pub(super) fn bytes(&self, window: &Window) -> u64 {
        let sample = self.reader.profile().dtype.size() as u64;
        u64::from(window.width) * u64::from(window.height) * sample
    }

    /// Returns the longer side of the file's tiles, in pixels.
    pub(super) fn tile_side(&self) -> u32 {
        let tile = self.reader.profile().tile;
        tile.width.max(tile.height)
    }

    /// Checks that samples can be loaded as `T` into a band with this nodata value.
    pub(super) fn check<T: BlockSample>(&self, nodata: Option<Number>) -> Result<()> {
        let dtype = self.reader.profile().dtype;
        let message = match (T::takes(dtype, self.scaling), T::DTYPE.is_float()) {
            (true, false) if self.nodata.is_some_and(|own| nodata != Some(own)) => format!(
                "its nodata value is {}, that of the cube is {}: load float32",
                shown(self.nodata),
                shown(nodata)
            ),
            (true, _) => return Ok(()),
            (false, true) => format!("samples of {dtype}: expected real numbers"),
            (false, false) if T::DTYPE == dtype => {
                format!("physical values as {dtype}: expected float32 or float64")
            }
            (false, false) => format!(
                "samples of {dtype} as {}: expected {dtype} or float32",
                T::DTYPE
            ),
        };
        Err(Error::new(ErrorKind::InvalidInput, message).at(self.reader.location()))
    }

    /// Reads a window of the level.
    pub(super) async fn read(&self, window: Window) -> Result<SourceWindow> {
        let mut parts = self.read_bands(window, &[self.band]).await?;
        parts.pop().ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, "the read returned no band").at(self.reader.location())
        })
    }

    /// Reads a window of the level of several bands of the file, counted from 1: each tile that holds all of them is
    /// fetched and decoded once. Returns a part for each.
    pub(super) async fn read_bands(
        &self,
        window: Window,
        bands: &[usize],
    ) -> Result<Vec<SourceWindow>> {
        let request = ReadRequest::new()
            .with_window(window)
            .with_level(self.level)
            .with_bands(bands);
        let pixels = Arc::new(self.reader.read(&request).await?.pixels);
        let [count, ..] = pixels.shape();
        if count != bands.len() {
            let message = format!("the read returned {count} bands, expected {}", bands.len());
            return Err(Error::new(ErrorKind::Corrupt, message).at(self.reader.location()));
        }
        let parts = (0..count).map(|band| SourceWindow {
            pixels: Arc::clone(&pixels),
            band,
            window,
        });
        Ok(parts.collect())
    }

    /// Warps a part onto a window of the grid, with `fill` as nodata, and returns the number of valid pixels. `kept` is
    /// false at pixels of the part that are masked.
    pub(super) fn lay<T: BlockSample>(
        &self,
        part: &SourceWindow,
        kept: Option<&Array2<bool>>,
        target: &Window,
        fill: T,
        mut out: ArrayViewMut2<'_, T>,
    ) -> Result<usize> {
        let copied = self.warp.copied(target);
        let is_copied = copied.is_some();
        if let Some((window, [row, col])) = copied
            && window == part.window
            && kept.is_none()
        {
            // The grids are aligned: samples are converted straight into the block, without an array in between.
            let rows = row..row + window.height as usize;
            let cols = col..col + window.width as usize;
            if out.dim() != (rows.len(), cols.len()) {
                out.fill(fill);
            }
            let out = out.slice_mut(ndarray::s![rows, cols]);
            if let Some(count) = T::put(&part.pixels, part.band, self.scaling, self.nodata, out) {
                return Ok(count);
            }
        }
        out.fill(fill);
        let made = T::of(&part.pixels, part.band, self.scaling, self.nodata);
        let (pixels, nodata) = match &made {
            // Conversion made nodata NaN.
            Some(made) => (made.view(), None),
            None => {
                let view = part.pixels.view::<T>().ok_or_else(|| {
                    Error::new(
                        ErrorKind::InvalidInput,
                        "the samples have another dtype than the block",
                    )
                })?;
                (view.index_axis_move(Axis(0), part.band), self.nodata)
            }
        };
        let source = warp::SourcePixels {
            pixels,
            window: part.window,
            nodata,
            mask: kept.map(|kept| kept.view()),
        };
        let valid = self.warp.resample(&source, target, out.view_mut())?;
        match &self.share {
            Some((warp, least)) if !is_copied => {
                let removed = too_few(warp, *least, &source, target, fill, out)?;
                Ok(valid.saturating_sub(removed))
            }
            _ => Ok(valid),
        }
    }

    /// Returns the verdicts of a mask on the pixels of a window of the grid; no data where `part` is none.
    pub(super) fn verdicts(
        &self,
        mask: &BandMask,
        part: Option<&SourceWindow>,
        target: &Window,
    ) -> Result<Array2<Verdict>> {
        let shape = (target.height as usize, target.width as usize);
        let Some(part) = part else {
            return Ok(Array2::from_elem(shape, Verdict::NoData));
        };
        // Bits are decoded before the warp, and the verdicts resampled by nearest.
        let verdicts = mask.verdicts(&part.pixels, part.band, self.nodata)?;
        let bytes = verdicts.mapv(|verdict| verdict as u8);
        let source = warp::SourcePixels {
            pixels: bytes.view(),
            window: part.window,
            nodata: None,
            mask: None,
        };
        let mut out = Array2::from_elem(shape, Verdict::NoData as u8);
        self.warp.resample(&source, target, out.view_mut())?;
        Ok(out.mapv(|byte| match byte {
            0 => Verdict::Kept,
            1 => Verdict::LeftOut,
            _ => Verdict::NoData,
        }))
    }
}

/// Fills the pixels of which less than a share of the source's weight is valid, and returns how many they are.
fn too_few<T: BlockSample>(
    warp: &Warp,
    least: f64,
    source: &warp::SourcePixels<'_, T>,
    target: &Window,
    fill: T,
    mut out: ArrayViewMut2<'_, T>,
) -> Result<usize> {
    let gap = Gap::<T>::of(source.nodata);
    let mut valid = source
        .pixels
        .mapv(|sample| if gap.is(sample) { 0.0 } else { 1.0_f32 });
    if let Some(kept) = &source.mask {
        valid.zip_mut_with(kept, |valid, &kept| {
            *valid = if kept { *valid } else { 0.0 }
        });
    }
    let valid = warp::SourcePixels {
        pixels: valid.view(),
        window: source.window,
        nodata: None,
        mask: None,
    };
    let mut shares = Array2::from_elem(out.dim(), 0.0_f32);
    warp.resample(&valid, target, shares.view_mut())?;
    let mut removed = 0;
    out.zip_mut_with(&shares, |sample, &share| {
        // Weights are sums of floats: exactly half of them may come out as a little less.
        if f64::from(share) + SHARE_ERROR < least {
            removed += usize::from(sample.is_data(Some(fill)));
            *sample = fill;
        }
    });
    Ok(removed)
}

/// The rounding error of a share of weights.
const SHARE_ERROR: f64 = 1e-5;

fn shown(nodata: Option<Number>) -> String {
    nodata.map_or("none".to_owned(), |nodata| nodata.to_string())
}
