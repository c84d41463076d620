//! A GDAL virtual raster over the files of an index.
//!
//! All sources must be aligned to one grid, that of most files: same CRS, same pixel size, shifted by
//! whole pixels. Overviews that all sources have are overviews of the virtual raster; GDAL reads them from the sources. See the
//! [format](https://gdal.org/en/stable/drivers/raster/vrt.html).

use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write as _,
    io::{self, Write},
};

use chrono::{DateTime, Utc};

use super::{Exported, Failed, Out, address, unsupported};
use crate::{
    error::Result,
    geo::{Crs, GeoTransform, Size},
    index::Indexed,
    raster::{DataType, Number},
    reader::{BandProfile, ColorInterp, Header},
};

/// The tolerance of alignment, in pixels.
const SLACK: f64 = 1e-3;
/// The largest block side that a virtual raster states, in pixels.
const MOST_BLOCK: u32 = 4096;

/// The bands of the virtual raster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bands {
    /// A band of an asset: a mosaic of all items.
    Mosaic,
    /// A band of a file.
    Stack,
}

pub(super) fn write(
    files: impl Iterator<Item = Result<Indexed>>,
    bands: Bands,
    out: &mut Out<'_>,
) -> Result<Exported, Failed> {
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
        return Ok(exported);
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
    if bands == Bands::Mosaic {
        // Bands are sorted by asset key, whatever the times of their files.
        layers.sort_by(|a, b| (&a.asset, a.band).cmp(&(&b.asset, b.band)));
    }
    let one_asset = layers.windows(2).all(|pair| match pair {
        [a, b] => a.asset == b.asset,
        _ => true,
    });
    let extent = Extent::of(&layers)?;
    write_xml(out, &grid, &extent, &layers, bands, one_asset)?;
    Ok(exported)
}

/// A file as a `SimpleSource` of a virtual raster.
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
        if bands == Bands::Mosaic
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
fn overviews(layers: &[Layer]) -> BTreeSet<u32> {
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
struct Grid {
    crs: Crs,
    transform: GeoTransform,
    size: Size,
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
struct Layer {
    item: String,
    asset: String,
    band: usize,
    bands: usize,
    datetime: Option<DateTime<Utc>>,
    dtype: DataType,
    nodata: Option<Number>,
    tile: Size,
    profile: BandProfile,
    palette: Option<Vec<[u8; 3]>>,
    placed: Vec<Placed>,
}

/// A band of a file, at its position.
struct Placed {
    path: String,
    band: usize,
    col: i64,
    row: i64,
    size: Size,
    tile: Size,
    dtype: DataType,
    has_mask: bool,
    overviews: BTreeSet<u32>,
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
        let differs = if self.dtype != source.dtype {
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

    fn description(&self, bands: Bands, one_asset: bool) -> String {
        let mut text = match (bands, one_asset) {
            (Bands::Mosaic, _) => self.asset.clone(),
            (Bands::Stack, true) => self.item.clone(),
            (Bands::Stack, false) => format!("{} {}", self.item, self.asset),
        };
        if self.bands > 1 {
            let _ = write!(text, " {}", self.band + 1);
        }
        text
    }
}

/// The bounding rectangle of all files, in pixels from the grid's origin.
struct Extent {
    col: i64,
    row: i64,
    size: Size,
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

fn write_xml(
    out: &mut Out<'_>,
    grid: &Grid,
    extent: &Extent,
    layers: &[Layer],
    bands: Bands,
    one_asset: bool,
) -> io::Result<()> {
    let Size { width, height } = extent.size;
    writeln!(
        out,
        r#"<VRTDataset rasterXSize="{width}" rasterYSize="{height}">"#
    )?;
    writeln!(out, "  <SRS>{}</SRS>", escaped(&grid.crs.to_string()))?;
    let g = grid.transform.0;
    // At offset 0 the origin is written as the first file states it: adding pixel sizes would change its last digits.
    #[expect(clippy::cast_precision_loss, reason = "both are below 32 bits")]
    let origin = [
        g[0] + extent.col as f64 * g[1],
        g[3] + extent.row as f64 * g[5],
    ];
    let numbers = [origin[0], g[1], 0.0, origin[1], 0.0, g[5]].map(|number| number.to_string());
    writeln!(out, "  <GeoTransform>{}</GeoTransform>", numbers.join(", "))?;
    let overviews: Vec<String> = overviews(layers).iter().map(u32::to_string).collect();
    if !overviews.is_empty() {
        // Nearest where an overview of the mosaic is not exactly one of the sources: nothing is averaged that may be a class.
        let factors = overviews.join(" ");
        writeln!(
            out,
            r#"  <OverviewList resampling="nearest">{factors}</OverviewList>"#
        )?;
    }
    for (number, layer) in layers.iter().enumerate() {
        let dtype = gdal_type(layer.dtype);
        write!(
            out,
            r#"  <VRTRasterBand dataType="{dtype}" band="{}""#,
            number + 1
        )?;
        if layer.tile.width <= MOST_BLOCK && layer.tile.height <= MOST_BLOCK {
            let width = layer.tile.width.min(extent.size.width);
            let height = layer.tile.height.min(extent.size.height);
            write!(out, r#" blockXSize="{width}" blockYSize="{height}""#)?;
        }
        writeln!(out, ">")?;
        let description = layer.description(bands, one_asset);
        writeln!(
            out,
            "    <Description>{}</Description>",
            escaped(&description)
        )?;
        if bands == Bands::Stack {
            writeln!(out, "    <Metadata>")?;
            say(out, "item", &layer.item)?;
            say(out, "asset", &layer.asset)?;
            if let Some(time) = layer.datetime {
                say(out, "datetime", &time.to_rfc3339())?;
            }
            writeln!(out, "    </Metadata>")?;
        }
        if let Some(nodata) = layer.nodata {
            let nodata = crate::raster::tiff::nodata(layer.dtype, layer.dtype.rounded(nodata));
            writeln!(out, "    <NoDataValue>{nodata}</NoDataValue>")?;
        }
        if let Some(unit) = &layer.profile.unit {
            writeln!(out, "    <UnitType>{}</UnitType>", escaped(unit))?;
        }
        if let Some(offset) = layer.profile.offset {
            writeln!(out, "    <Offset>{}</Offset>", number_of(offset))?;
        }
        if let Some(scale) = layer.profile.scale {
            writeln!(out, "    <Scale>{}</Scale>", number_of(scale))?;
        }
        let color = color_of(layer.profile.color);
        writeln!(out, "    <ColorInterp>{color}</ColorInterp>")?;
        if let Some(palette) = layer.palette.as_ref().filter(|_| color == "Palette") {
            writeln!(out, "    <ColorTable>")?;
            for [red, green, blue] in palette {
                writeln!(
                    out,
                    r#"      <Entry c1="{red}" c2="{green}" c3="{blue}" c4="255"/>"#
                )?;
            }
            writeln!(out, "    </ColorTable>")?;
        }
        for placed in &layer.placed {
            write_source(out, extent, layer, placed, bands)?;
        }
        writeln!(out, "  </VRTRasterBand>")?;
    }
    writeln!(out, "</VRTDataset>")
}

fn write_source(
    out: &mut Out<'_>,
    extent: &Extent,
    layer: &Layer,
    placed: &Placed,
    bands: Bands,
) -> io::Result<()> {
    let hides = bands == Bands::Mosaic && (layer.nodata.is_some() || placed.has_mask);
    let element = if hides {
        "ComplexSource"
    } else {
        "SimpleSource"
    };
    let Size { width, height } = placed.size;
    let (col, row) = (placed.col - extent.col, placed.row - extent.row);
    writeln!(out, "    <{element}>")?;
    writeln!(
        out,
        r#"      <SourceFilename relativeToVRT="0" shared="0">{}</SourceFilename>"#,
        escaped(&placed.path)
    )?;
    writeln!(out, "      <SourceBand>{}</SourceBand>", placed.band + 1)?;
    writeln!(
        out,
        r#"      <SourceProperties RasterXSize="{width}" RasterYSize="{height}" DataType="{}" BlockXSize="{}" BlockYSize="{}"/>"#,
        gdal_type(placed.dtype),
        placed.tile.width,
        placed.tile.height
    )?;
    writeln!(
        out,
        r#"      <SrcRect xOff="0" yOff="0" xSize="{width}" ySize="{height}"/>"#
    )?;
    writeln!(
        out,
        r#"      <DstRect xOff="{col}" yOff="{row}" xSize="{width}" ySize="{height}"/>"#
    )?;
    // A mask takes precedence over a nodata value.
    if hides && placed.has_mask {
        writeln!(out, "      <UseMaskBand>true</UseMaskBand>")?;
    } else if let Some(nodata) = layer.nodata.filter(|_| hides) {
        let nodata = crate::raster::tiff::nodata(layer.dtype, layer.dtype.rounded(nodata));
        writeln!(out, "      <NODATA>{nodata}</NODATA>")?;
    }
    writeln!(out, "    </{element}>")
}

fn say(out: &mut Out<'_>, key: &str, value: &str) -> io::Result<()> {
    writeln!(out, r#"      <MDI key="{key}">{}</MDI>"#, escaped(value))
}

/// Returns a number in GDAL's syntax.
fn number_of(value: f64) -> String {
    if value.is_nan() {
        "nan".to_owned()
    } else if value.is_infinite() {
        (if value > 0.0 { "inf" } else { "-inf" }).to_owned()
    } else {
        value.to_string()
    }
}

/// `Int8` needs GDAL 3.7 or later.
fn gdal_type(dtype: DataType) -> &'static str {
    match dtype {
        DataType::U8 => "Byte",
        DataType::I8 => "Int8",
        DataType::U16 => "UInt16",
        DataType::I16 => "Int16",
        DataType::U32 => "UInt32",
        DataType::I32 => "Int32",
        DataType::U64 => "UInt64",
        DataType::I64 => "Int64",
        DataType::F32 => "Float32",
        DataType::F64 => "Float64",
        DataType::C64 => "CFloat32",
        DataType::C128 => "CFloat64",
    }
}

fn color_of(color: ColorInterp) -> String {
    let name = color.name();
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

/// Escapes text as the content of an XML element; characters that XML cannot represent are removed.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}
