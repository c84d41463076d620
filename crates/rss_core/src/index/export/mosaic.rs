//! Files of an index on one grid: what virtual rasters and tile indexes of GDAL have in common.
//!
//! All files must be aligned to the grid of most files: same CRS, same pixel size, shifted by whole pixels.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write as _,
};

use chrono::{DateTime, Utc};

use super::{Exported, address, unsupported};
use crate::{
    error::Result,
    geo::{Crs, GeoTransform, Size},
    index::Indexed,
    raster::{DataType, Number},
    reader::{BandProfile, ColorInterp, Header},
};

/// The tolerance of alignment, in pixels.
pub(super) const SLACK: f64 = 1e-3;

/// The bands of a mosaic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bands {
    /// A band of an asset: a mosaic of all items.
    Mosaic,
    /// A band of a file.
    Stack,
    /// A band of an asset of which all files have the same bands.
    Tiles,
}

/// Files on one grid, in the order in which they are drawn: the newest comes last.
pub(super) struct Mosaic {
    pub(super) grid: Grid,
    pub(super) extent: Extent,
    pub(super) layers: Vec<Layer>,
}

/// Arranges files on the grid of most of them, and tells which are left out. None if no file is on a grid.
pub(super) fn arrange(
    files: impl Iterator<Item = Result<Indexed>>,
    bands: Bands,
) -> Result<(Exported, Option<Mosaic>)> {
    let mut exported = Exported::default();
    let mut sources = Vec::new();
    for file in files {
        let file = file?;
        match SimpleSource::of(&file, bands) {
            Ok(source) => sources.push((file, source)),
            Err(err) => exported.leave_out(&file, None, err),
        }
    }
    // GDAL draws sources in order, the last on top: the newest comes last, files without a time first.
    sources.sort_by_key(|(file, _)| file.datetime);
    let Some(grid) = most_common(sources.iter().map(|(_, source)| source)) else {
        return Ok((exported, None));
    };
    let mut layers: Vec<Layer> = Vec::new();
    let mut numbers: HashMap<(Option<String>, String, usize), usize> = HashMap::new();
    for (file, source) in sources {
        let name = (bands == Bands::Stack).then(|| file.item.clone());
        let layer_of = |band: usize| (name.clone(), file.asset.clone(), band);
        let fits = grid.place(&source).and_then(|place| {
            for band in 0..source.bands.len() {
                if let Some(layer) = numbers.get(&layer_of(band)).and_then(|at| layers.get(*at)) {
                    layer.check(bands, &source, band)?;
                }
            }
            Ok(place)
        });
        let place = match fits {
            Ok(place) => place,
            Err(err) => {
                exported.leave_out(&file, None, err);
                continue;
            }
        };
        for band in 0..source.bands.len() {
            let number = *numbers.entry(layer_of(band)).or_insert_with(|| {
                layers.push(Layer::new(&file, &source, band));
                layers.len() - 1
            });
            if let Some(layer) = layers.get_mut(number) {
                layer.placed.push(place.of(&source, band));
            }
        }
        exported.written += 1;
    }
    if bands != Bands::Stack {
        // Bands are sorted by asset key, whatever the times of their files.
        layers.sort_by(|a, b| (&a.asset, a.band).cmp(&(&b.asset, b.band)));
    }
    let extent = Extent::of(&layers)?;
    let mosaic = Mosaic {
        grid,
        extent,
        layers,
    };
    Ok((exported, Some(mosaic)))
}

/// A file as a source of a mosaic.
struct SimpleSource {
    path: String,
    crs: Crs,
    transform: GeoTransform,
    size: Size,
    tile: Size,
    dtype: DataType,
    nodata: Option<Number>,
    bands: Vec<BandProfile>,
    palette: Option<Vec<[u8; 3]>>,
    has_mask: bool,
    /// By how much its overviews are coarser.
    overviews: BTreeSet<u32>,
}

impl SimpleSource {
    fn of(file: &Indexed, bands: Bands) -> Result<Self> {
        let header: &Header = &file.entry.header;
        let image = header
            .levels
            .first()
            .ok_or_else(|| unsupported("no image"))?;
        let crs = header.crs.clone().ok_or_else(|| unsupported("no CRS"))?;
        let transform = header
            .transform
            .ok_or_else(|| unsupported("no transform"))?;
        if !transform.is_axis_aligned() {
            return Err(unsupported("a grid that is rotated, or no grid"));
        }
        let side = |side: u32| (1..=i32::MAX.unsigned_abs()).contains(&side);
        if !side(image.size.width) || !side(image.size.height) {
            return Err(unsupported("sizes that are zero or above 2^31"));
        }
        let has_mask = header.masks.first().is_some_and(Option::is_some);
        let nodata = header.nodata.filter(|&nodata| header.dtype.holds(nodata));
        let alpha = header
            .bands
            .iter()
            .any(|band| band.color == ColorInterp::Alpha);
        if bands != Bands::Stack
            && (nodata.is_some() || has_mask || alpha)
            && matches!(
                header.dtype,
                DataType::I64 | DataType::U64 | DataType::C64 | DataType::C128
            )
        {
            return Err(unsupported(format!(
                "{} with hidden pixels: GDAL would blend them as floats of 64 bits",
                header.dtype
            )));
        }
        Ok(Self {
            path: address::of_gdal(&file.entry.location)?,
            crs,
            transform,
            size: image.size,
            tile: image.tile,
            dtype: header.dtype,
            nodata,
            bands: header.bands.clone(),
            palette: header.palette.clone(),
            has_mask: has_mask || alpha,
            overviews: factors(header),
        })
    }

    fn pixel(&self) -> [f64; 2] {
        [self.transform.0[1], self.transform.0[5]]
    }

    fn is_alike(&self, other: &Self) -> bool {
        self.crs == other.crs && has_pixels_of(self, other)
    }
}

/// Returns by how much the overviews of a file are coarser than its pixels, in whole numbers.
fn factors(header: &Header) -> BTreeSet<u32> {
    let mut levels = header.levels.iter().map(|level| level.size);
    let Some(full) = levels.next() else {
        return BTreeSet::new();
    };
    let factor = |level: Size| {
        let factor = full.width.checked_div(level.width)?;
        // The sides of an overview are rounded up by GDAL, down by others.
        let is_side =
            |full: u32, side: u32| (full / factor..=full.div_ceil(factor)).contains(&side);
        (factor > 1 && is_side(full.width, level.width) && is_side(full.height, level.height))
            .then_some(factor)
    };
    levels.filter_map(factor).collect()
}

/// Returns the overviews that all sources have.
pub(super) fn overviews(layers: &[Layer]) -> BTreeSet<u32> {
    let mut all = layers.iter().flat_map(|layer| &layer.placed);
    let Some(first) = all.next() else {
        return BTreeSet::new();
    };
    all.fold(first.overviews.clone(), |common, one| {
        &common & &one.overviews
    })
}

/// Returns true if pixel sizes differ so little that the far edge of the larger file is within the tolerance.
fn has_pixels_of(a: &SimpleSource, b: &SimpleSource) -> bool {
    let most = a
        .size
        .width
        .max(a.size.height)
        .max(b.size.width)
        .max(b.size.height);
    let pairs = a.pixel().into_iter().zip(b.pixel());
    pairs
        .into_iter()
        .all(|(a, b)| ((a - b) / b).abs() * f64::from(most) < SLACK)
}

/// The grid to which all files are aligned.
pub(super) struct Grid {
    pub(super) crs: Crs,
    pub(super) transform: GeoTransform,
    pub(super) size: Size,
}

/// Returns the grid of most sources; of equally common ones the first.
fn most_common<'a>(sources: impl Iterator<Item = &'a SimpleSource>) -> Option<Grid> {
    let mut kinds: Vec<(&SimpleSource, usize)> = Vec::new();
    for source in sources {
        match kinds.iter_mut().find(|(kind, _)| kind.is_alike(source)) {
            Some((_, count)) => *count += 1,
            None => kinds.push((source, 1)),
        }
    }
    let most = kinds.iter().map(|(_, count)| *count).max()?;
    let (source, _) = kinds.into_iter().find(|(_, count)| *count == most)?;
    Some(Grid {
        crs: source.crs.clone(),
        transform: source.transform,
        size: source.size,
    })
}

/// The position of a file, in pixels from the grid's origin.
#[derive(Clone, Copy)]
struct DstRect {
    col: i64,
    row: i64,
}

impl Grid {
    fn place(&self, source: &SimpleSource) -> Result<DstRect> {
        if source.crs != self.crs {
            return Err(unsupported(format!(
                "its CRS is {}, that of most files is {}",
                name(&source.crs),
                name(&self.crs)
            )));
        }
        let [width, height] = source.pixel();
        let (own_width, own_height) = (self.transform.0[1], self.transform.0[5]);
        let most = [self.size, source.size].map(|size| size.width.max(size.height));
        let most = f64::from(most.into_iter().max().unwrap_or(0));
        let differs = |a: f64, b: f64| ((a - b) / b).abs() * most >= SLACK;
        if differs(width, own_width) || differs(height, own_height) {
            return Err(unsupported(format!(
                "its pixels are {width} x {height}, those of most files are {own_width} x {own_height}"
            )));
        }
        // Adding zero turns -0 into 0, for the text.
        let cols = (source.transform.0[0] - self.transform.0[0]) / own_width + 0.0;
        let rows = (source.transform.0[3] - self.transform.0[3]) / own_height + 0.0;
        let whole = |pixels: f64| {
            let near =
                (pixels - pixels.round()).abs() < SLACK && pixels.abs() < f64::from(i32::MAX);
            #[expect(clippy::cast_possible_truncation, reason = "it is below 31 bits")]
            near.then(|| pixels.round() as i64)
        };
        match (whole(cols), whole(rows)) {
            (Some(col), Some(row)) => Ok(DstRect { col, row }),
            _ => Err(unsupported(format!(
                "its grid is shifted by {cols} x {rows} pixels from that of most files, expected integers"
            ))),
        }
    }
}

fn name(crs: &Crs) -> String {
    match crs {
        Crs::Epsg(_) => crs.to_string(),
        Crs::Wkt(text) => text
            .split([',', '"'])
            .nth(1)
            .unwrap_or("unnamed")
            .to_owned(),
    }
}

/// A band of the virtual raster.
pub(super) struct Layer {
    pub(super) item: String,
    pub(super) asset: String,
    pub(super) band: usize,
    pub(super) bands: usize,
    pub(super) datetime: Option<DateTime<Utc>>,
    pub(super) dtype: DataType,
    pub(super) nodata: Option<Number>,
    pub(super) tile: Size,
    pub(super) profile: BandProfile,
    pub(super) palette: Option<Vec<[u8; 3]>>,
    pub(super) placed: Vec<Placed>,
}

/// A band of a file, at its position.
pub(super) struct Placed {
    pub(super) path: String,
    pub(super) band: usize,
    pub(super) col: i64,
    pub(super) row: i64,
    pub(super) size: Size,
    pub(super) tile: Size,
    pub(super) dtype: DataType,
    pub(super) has_mask: bool,
    pub(super) overviews: BTreeSet<u32>,
}

impl DstRect {
    fn of(self, source: &SimpleSource, band: usize) -> Placed {
        Placed {
            path: source.path.clone(),
            band,
            col: self.col,
            row: self.row,
            size: source.size,
            tile: source.tile,
            dtype: source.dtype,
            has_mask: source.has_mask,
            overviews: source.overviews.clone(),
        }
    }
}

impl Layer {
    fn new(file: &Indexed, source: &SimpleSource, band: usize) -> Self {
        Self {
            item: file.item.clone(),
            asset: file.asset.clone(),
            band,
            bands: source.bands.len(),
            datetime: file.datetime,
            dtype: source.dtype,
            nodata: source.nodata,
            tile: source.tile,
            profile: source.bands.get(band).cloned().unwrap_or_default(),
            palette: source.palette.clone(),
            placed: Vec::new(),
        }
    }

    /// Checks that a file can be a source of this band.
    fn check(&self, bands: Bands, source: &SimpleSource, band: usize) -> Result<()> {
        if bands == Bands::Stack {
            return Err(unsupported("another item of the same id is there already"));
        }
        let bits = |number: Option<f64>| number.map(f64::to_bits);
        let profile = source.bands.get(band).cloned().unwrap_or_default();
        let differs = if bands == Bands::Tiles && self.bands != source.bands.len() {
            Some("number of bands")
        } else if self.dtype != source.dtype {
            Some("type")
        } else if self.nodata != source.nodata {
            Some("nodata value")
        } else if bits(self.profile.scale) != bits(profile.scale)
            || bits(self.profile.offset) != bits(profile.offset)
        {
            Some("scale or offset")
        } else if self.palette != source.palette {
            Some("palette")
        } else {
            None
        };
        match differs {
            Some(what) => Err(unsupported(format!(
                "its {what} is not that of the other files of `{}`",
                self.asset.escape_debug()
            ))),
            None => Ok(()),
        }
    }

    pub(super) fn description(&self, bands: Bands, one_asset: bool) -> String {
        let mut text = match (bands, one_asset) {
            (Bands::Mosaic | Bands::Tiles, _) => self.asset.clone(),
            (Bands::Stack, true) => self.item.clone(),
            (Bands::Stack, false) => format!("{} {}", self.item, self.asset),
        };
        if self.bands > 1 {
            let _ = write!(text, " {}", self.band + 1);
        }
        text
    }
}

impl Grid {
    /// Returns where a pixel's upper left corner is. At offset 0 the origin is as the first file states it: adding pixel sizes
    /// would change its last digits.
    #[expect(clippy::cast_precision_loss, reason = "both are below 33 bits")]
    pub(super) fn corner(&self, col: i64, row: i64) -> [f64; 2] {
        let g = self.transform.0;
        [g[0] + col as f64 * g[1], g[3] + row as f64 * g[5]]
    }
}

/// The bounding rectangle of all files, in pixels from the grid's origin.
pub(super) struct Extent {
    pub(super) col: i64,
    pub(super) row: i64,
    pub(super) size: Size,
}

impl Extent {
    fn of(layers: &[Layer]) -> Result<Self> {
        let placed = || layers.iter().flat_map(|layer| &layer.placed);
        let col = placed().map(|one| one.col).min().unwrap_or(0);
        let row = placed().map(|one| one.row).min().unwrap_or(0);
        let right = placed()
            .map(|one| one.col + i64::from(one.size.width))
            .max();
        let bottom = placed()
            .map(|one| one.row + i64::from(one.size.height))
            .max();
        let side = |end: Option<i64>, start: i64| {
            let side = end.unwrap_or(start) - start;
            let most = i64::from(i32::MAX);
            u32::try_from(side)
                .ok()
                .filter(|_| side <= most)
                .ok_or_else(|| {
                    unsupported(format!(
                        "a mosaic of {side} pixels a side, expected at most {most}"
                    ))
                })
        };
        Ok(Self {
            col,
            row,
            size: Size {
                width: side(right, col)?,
                height: side(bottom, row)?,
            },
        })
    }
}
