//! The plan of a COG: its layout, checked and computed before any pixel is written.

use std::ops::Range;

use super::options::{Band, CogOptions, Compression, Overviews, Predictor};
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{GeoBox, Size, TileIndex, Window},
    raster::{DataType, Number, Resampling, check_overview, tiff::Form},
};

/// Tiles of all levels and bands: readers hold the offsets of all of them in memory.
const MOST_TILES: u64 = 1 << 24;
const MOST_SIDE: u32 = 4096;
const MOST_BANDS: usize = 65_535;

/// The predictor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Filter {
    None,
    Horizontal,
    Float,
}

impl Filter {
    /// Returns TIFF's value of the predictor (tag 317).
    pub(super) fn tag(self) -> usize {
        match self {
            Self::None => 1,
            Self::Horizontal => 2,
            Self::Float => 3,
        }
    }
}

impl From<Filter> for Predictor {
    fn from(filter: Filter) -> Self {
        match filter {
            Filter::None => Self::None,
            Filter::Horizontal => Self::Horizontal,
            Filter::Float => Self::Float,
        }
    }
}

/// The plan of a file. Its layout is planar (`PLANARCONFIG_SEPARATE`): one band is read without the bytes of the
/// others, and the tiles of all bands at one position are still adjacent in the file.
#[derive(Debug)]
pub(super) struct CogPlan {
    pub(super) grid: GeoBox,
    pub(super) dtype: DataType,
    pub(super) bands: usize,
    /// Pixels a side.
    pub(super) tile: usize,
    /// Full resolution first, which always exists.
    pub(super) levels: Vec<LevelPlan>,
    pub(super) form: Form,
    pub(super) compression: Compression,
    /// The usual predictor of the data type.
    pub(super) usual: Filter,
    /// The predictor that the options fix; none if the first block decides.
    pub(super) chosen: Option<Filter>,
    /// The resampling of overviews, by band.
    pub(super) resampling: Vec<Resampling>,
    pub(super) nodata: Option<Number>,
    pub(super) notes: Vec<Band>,
    /// Names and values of the file's metadata.
    pub(super) metadata: Vec<(String, String)>,
    pub(super) software: Option<String>,
    pub(super) statistics: bool,
    pub(super) sparse: bool,
    /// A bound of the compressed bytes of all tiles.
    pub(super) most_bytes: u64,
}

/// A side of fewer pixels is computed from the last level that has more: of so few pixels those that are covered in part
/// are too many for a mean of means to lie where it should.
const LEAST_SIDE: u32 = 16;

/// One level: its pixels, and its tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct LevelPlan {
    pub(super) size: Size,
    /// The pixels from which the next level is computed: those of this level, but of a side of fewer than [`LEAST_SIDE`]
    /// those of the last level with more.
    pub(super) source: Size,
    pub(super) cols: usize,
    pub(super) rows: usize,
}

/// A tile of one level and band.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub(super) band: usize,
    pub(super) col: usize,
    pub(super) row: usize,
}

impl Tile {
    /// Returns the tile of the next smaller level that covers this one.
    pub(super) fn above(self) -> Self {
        Self {
            band: self.band,
            col: self.col / 2,
            row: self.row / 2,
        }
    }
}

impl LevelPlan {
    /// Returns a level; `larger` is the level before.
    fn new(size: Size, larger: Option<&Self>, tile: u32) -> Self {
        let source = |side: u32, before: fn(&Size) -> u32| match larger {
            Some(larger) if side < LEAST_SIDE => before(&larger.source),
            _ => side,
        };
        Self {
            size,
            source: Size {
                width: source(size.width, |size| size.width),
                height: source(size.height, |size| size.height),
            },
            cols: size.width.div_ceil(tile) as usize,
            rows: size.height.div_ceil(tile) as usize,
        }
    }

    /// Returns the index of a tile in the tables of this level.
    pub(super) fn slot(&self, tile: Tile) -> usize {
        (tile.band * self.rows + tile.row) * self.cols + tile.col
    }

    /// Returns the tiles of one band.
    pub(super) fn tiles(&self) -> usize {
        self.cols * self.rows
    }

    /// Returns the columns and rows of [`source`](Self::source) in a tile.
    pub(super) fn source_in(&self, tile: Tile, side: usize) -> [Range<usize>; 2] {
        let range = |source: u32, size: u32, at: usize| match source == size {
            true => at * side..((at + 1) * side).min(size as usize),
            // Such a level has one tile in this direction.
            false => 0..source as usize,
        };
        [
            range(self.source.width, self.size.width, tile.col),
            range(self.source.height, self.size.height, tile.row),
        ]
    }
}

impl CogPlan {
    pub(super) fn new(
        grid: GeoBox,
        dtype: DataType,
        bands: usize,
        options: &CogOptions,
    ) -> Result<Self> {
        check(&grid, dtype, bands, options)?;
        let usual = match (options.compression, dtype) {
            (Compression::None, _) | (_, DataType::C64 | DataType::C128) => Filter::None,
            (_, DataType::F32 | DataType::F64) => Filter::Float,
            _ => Filter::Horizontal,
        };
        // None leaves the choice to the first block (`Work::choose`).
        let chosen = match options.predictor {
            Predictor::Auto if usual == Filter::None => Some(Filter::None),
            Predictor::Auto => None,
            Predictor::None => Some(Filter::None),
            Predictor::Horizontal if usual == Filter::Horizontal => Some(Filter::Horizontal),
            Predictor::Float if usual == Filter::Float => Some(Filter::Float),
            other => {
                return Err(invalid(format!(
                    "predictor {other:?} of {dtype} samples with {:?}: expected Auto",
                    options.compression
                )));
            }
        };
        let tile = options.tile;
        let mut levels = vec![LevelPlan::new(grid.size, None, tile)];
        // After this number of halvings (rounded up) the longer side has one pixel.
        let most = u32::BITS - (grid.size.width.max(grid.size.height) - 1).leading_zeros();
        let count = match options.overviews {
            Overviews::None => 0,
            Overviews::Count(count) if count > most as usize => {
                return Err(invalid(format!(
                    "{count} overviews of {} x {} pixels: expected {most} at most",
                    grid.size.width, grid.size.height
                )));
            }
            Overviews::Count(count) => count,
            Overviews::Auto => usize::MAX,
        };
        while let Some(last) = levels.last()
            && levels.len() <= count
            && (options.overviews != Overviews::Auto || last.tiles() > 1)
        {
            let half = Size {
                width: last.size.width.div_ceil(2),
                height: last.size.height.div_ceil(2),
            };
            levels.push(LevelPlan::new(half, Some(last), tile));
        }
        let resampling: Vec<Resampling> = (0..bands)
            .map(|band| options.overview_resampling_of(band))
            .collect();
        if levels.len() > 1 {
            resampling.iter().try_for_each(|&one| check_overview(one))?;
        }
        let tiles = levels
            .iter()
            .map(|level| level.tiles() as u64 * bands as u64)
            .fold(0, u64::saturating_add);
        if tiles > MOST_TILES {
            return Err(invalid(format!(
                "{tiles} tiles, expected {MOST_TILES} at most: use larger tiles"
            )));
        }
        let tile_bytes = u64::from(tile) * u64::from(tile) * dtype.size() as u64;
        let most_bytes = tiles * most_coded(options.compression, tile_bytes);
        // 64 bytes of tables for each tile, and 64 MiB for the directories, are far more than they take.
        let form = match most_bytes + 64 * tiles + (64 << 20) > u64::from(u32::MAX) {
            true => Form::Big,
            false => Form::Classic,
        };
        let is_complex = matches!(dtype, DataType::C64 | DataType::C128);
        Ok(Self {
            tile: tile as usize,
            levels,
            form,
            compression: options.compression,
            usual,
            chosen,
            resampling,
            nodata: options.nodata.map(|nodata| dtype.rounded(nodata)),
            notes: options.bands.clone(),
            metadata: options.metadata.clone(),
            software: options.software.clone(),
            // Complex values have no order, so no minimum and maximum.
            statistics: options.statistics && !is_complex,
            sparse: options.sparse,
            most_bytes,
            grid,
            dtype,
            bands,
        })
    }

    /// Returns the level of full resolution.
    pub(super) fn full(&self) -> LevelPlan {
        self.levels[0]
    }

    pub(super) fn has_overviews(&self) -> bool {
        self.levels.len() > 1
    }

    /// Returns the slots of a level in the order in which tiles are written: by position, then by band.
    pub(super) fn slots(&self, level: LevelPlan) -> impl Iterator<Item = usize> {
        let (tiles, bands) = (level.tiles(), self.bands);
        (0..tiles).flat_map(move |tile| (0..bands).map(move |band| band * tiles + tile))
    }

    /// Returns the size of the part of a tile that lies inside its level.
    pub(super) fn inside(&self, level: &LevelPlan, tile: Tile) -> Size {
        let most = u32::try_from(self.tile).unwrap_or(u32::MAX);
        let side = |size: u32, at: usize| {
            let start = u32::try_from(at * self.tile).unwrap_or(u32::MAX);
            size.saturating_sub(start).min(most)
        };
        Size {
            width: side(level.size.width, tile.col),
            height: side(level.size.height, tile.row),
        }
    }

    /// Returns the tiles of full resolution in a window.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if it is not aligned to tiles.
    pub(super) fn tiles_of(&self, window: &Window) -> Result<Vec<TileIndex>> {
        let size = self.grid.size;
        window.check_inside(size)?;
        let tile = u32::try_from(self.tile).unwrap_or(u32::MAX);
        let fits = |start: u32, length: u32, all: u32| {
            start.is_multiple_of(tile) && (length.is_multiple_of(tile) || start + length == all)
        };
        if !fits(window.col, window.width, size.width)
            || !fits(window.row, window.height, size.height)
        {
            return Err(invalid(format!(
                "window {window} is not aligned to tiles of {tile} x {tile} pixels"
            )));
        }
        let range = |start: u32, length: u32| start / tile..(start + length).div_ceil(tile);
        let rows = range(window.row, window.height);
        Ok(rows
            .flat_map(|row| range(window.col, window.width).map(move |col| TileIndex { col, row }))
            .collect())
    }
}

fn check(grid: &GeoBox, dtype: DataType, bands: usize, options: &CogOptions) -> Result<()> {
    let size = grid.size;
    if size.width == 0 || size.height == 0 {
        return Err(invalid(format!(
            "an image of {} x {} pixels, expected at least 1 x 1",
            size.width, size.height
        )));
    }
    if bands == 0 || bands > MOST_BANDS {
        return Err(invalid(format!(
            "{bands} bands, expected 1 to {MOST_BANDS}"
        )));
    }
    if options.bands.len() > bands {
        return Err(invalid(format!(
            "options for {} bands, expected at most {bands}",
            options.bands.len()
        )));
    }
    let tile = options.tile;
    if tile == 0 || !tile.is_multiple_of(16) || tile > MOST_SIDE {
        return Err(invalid(format!(
            "tiles of {tile} x {tile} pixels: expected a multiple of 16, up to {MOST_SIDE}"
        )));
    }
    let level = match options.compression {
        Compression::Deflate(level) => Some((level, 12)),
        Compression::Zstd(level) => Some((level, 22)),
        Compression::None | Compression::Lzw => None,
    };
    if let Some((level, most)) = level
        && !(1..=most).contains(&level)
    {
        return Err(invalid(format!(
            "{:?}: expected a level from 1 to {most}",
            options.compression
        )));
    }
    if let Some(nodata) = options.nodata
        && !dtype.holds(nodata)
    {
        return Err(invalid(format!(
            "nodata {nodata} is not a value of {dtype}"
        )));
    }
    for band in &options.bands {
        let numbers = [band.scale, band.offset];
        if !numbers.iter().flatten().all(|number| number.is_finite()) {
            return Err(invalid("a scale or an offset is not finite"));
        }
        let texts = [&band.name, &band.unit];
        if texts
            .into_iter()
            .flatten()
            .any(|text| text.contains(is_not_xml))
        {
            return Err(invalid("a name or a unit has a control character"));
        }
    }
    let texts = options
        .metadata
        .iter()
        .flat_map(|(name, value)| [name, value]);
    if let Some(text) = texts
        .chain(&options.software)
        .find(|text| text.contains(is_not_xml))
    {
        let text: String = text.chars().take(40).collect();
        return Err(invalid(format!(
            "the metadata `{}` has a control character",
            text.escape_debug()
        )));
    }
    if let Some(crs) = &grid.crs
        && !crs.has_geo_keys()
    {
        let crs: String = crs.to_string().chars().take(60).collect();
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the CRS {crs} cannot be written to a GeoTIFF, which has no keys for it: choose another"
            ),
        ));
    }
    Ok(())
}

/// Returns true for characters that XML does not allow, or that a parser changes (line breaks).
fn is_not_xml(c: char) -> bool {
    c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// Returns a bound of the compressed size of this number of bytes. LZW writes up to 12 bits for a byte; the
/// others store blocks that do not compress, with a few bytes around them.
fn most_coded(compression: Compression, bytes: u64) -> u64 {
    match compression {
        Compression::None => bytes,
        Compression::Deflate(_) | Compression::Zstd(_) => bytes + bytes / 128 + 1024,
        Compression::Lzw => bytes + bytes * 3 / 5 + 1024,
    }
}

pub(super) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(width: u32, height: u32, options: &CogOptions) -> Result<CogPlan> {
        let grid = GeoBox {
            size: Size { width, height },
            crs: None,
            transform: None,
        };
        CogPlan::new(grid, DataType::I16, 1, options)
    }

    fn sizes(plan: &CogPlan) -> Vec<[u32; 2]> {
        let size = |level: &LevelPlan| [level.size.width, level.size.height];
        plan.levels.iter().map(size).collect()
    }

    #[test]
    fn overviews_end_where_one_tile_holds_all() {
        let auto = CogOptions::new();
        for (width, height, expected) in [
            (512, 512, vec![[512, 512]]),
            (513, 1, vec![[513, 1], [257, 1]]),
            (1000, 700, vec![[1000, 700], [500, 350]]),
            (1025, 10, vec![[1025, 10], [513, 5], [257, 3]]),
        ] {
            assert_eq!(sizes(&plan(width, height, &auto).unwrap()), expected);
        }
        let with = |count| CogOptions::new().with_overviews(count, Resampling::Average);
        let three = plan(5, 3, &with(Overviews::Count(3))).unwrap();
        assert_eq!(sizes(&three), [[5, 3], [3, 2], [2, 1], [1, 1]]);
        let err = plan(5, 3, &with(Overviews::Count(4))).unwrap_err();
        assert_eq!(
            err.to_string(),
            "4 overviews of 5 x 3 pixels: expected 3 at most"
        );
        assert_eq!(
            sizes(&plan(1000, 10, &with(Overviews::None)).unwrap()),
            [[1000, 10]]
        );
    }

    #[test]
    fn a_file_that_may_pass_4_gib_is_a_bigtiff() {
        let options = CogOptions::new();
        let form = |side| plan(side, side, &options).unwrap().form;
        assert_eq!(form(10_980), Form::Classic);
        assert_eq!(form(38_400), Form::Classic);
        assert_eq!(form(40_960), Form::Big);
        let err = plan(u32::MAX, u32::MAX, &options).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
        assert!(err.message().contains("use larger tiles"), "{err}");
    }

    #[test]
    fn a_window_is_whole_tiles() {
        let plan = plan(1000, 700, &CogOptions::new()).unwrap();
        let tiles = |text: &str| plan.tiles_of(&text.parse().unwrap());
        let tile = |col, row| TileIndex { col, row };
        assert_eq!(tiles("512,0,488,512").unwrap(), [tile(1, 0)]);
        assert_eq!(tiles("0,512,1000,188").unwrap(), [tile(0, 1), tile(1, 1)]);
        for wrong in [
            "0,0,500,512",
            "16,0,512,512",
            "0,0,1000,188",
            "0,0,1001,512",
        ] {
            let err = tiles(wrong).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::InvalidInput);
            assert!(
                err.message().starts_with(&format!("window {wrong} is not")),
                "{err}"
            );
        }
    }

    #[test]
    fn what_cannot_be_written_is_refused_by_name() {
        let refuse = |options: CogOptions| {
            let err = plan(10, 10, &options).unwrap_err();
            err.message().to_owned()
        };
        let new = CogOptions::new;
        assert_eq!(
            refuse(new().with_tile(500)),
            "tiles of 500 x 500 pixels: expected a multiple of 16, up to 4096"
        );
        assert_eq!(
            refuse(new().with_overviews(Overviews::Count(1), Resampling::Cubic)),
            "overviews by cubic: expected nearest, bilinear, average, rms, mode, min or max"
        );
        assert_eq!(
            refuse(new().with_nodata(-40_000.0)),
            "nodata -40000 is not a value of int16"
        );
        assert_eq!(
            refuse(new().with_compression(Compression::Zstd(23))),
            "Zstd(23): expected a level from 1 to 22"
        );
        assert_eq!(
            refuse(new().with_predictor(Predictor::Float)),
            "predictor Float of int16 samples with Deflate(6): expected Auto"
        );
        assert_eq!(
            refuse(new().with_bands([Band::named("a"), Band::named("b")])),
            "options for 2 bands, expected at most 1"
        );
    }
}
