//! Profiles: the properties of a raster that its header states.

use std::collections::BTreeMap;

use crate::{
    error::{Error, ErrorKind, Result},
    geo::{Crs, GeoBox, GeoTransform, Size, TileIndex, Window},
    raster::{DataType, Number},
    reader::cog,
};

/// The properties of a file, from its header.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Profile {
    /// Width and height of level 0 in pixels.
    pub size: Size,
    /// The number of bands.
    pub count: usize,
    /// The type of the samples (all bands share it).
    pub dtype: DataType,
    /// The nodata value, if any; may be NaN.
    pub nodata: Option<Number>,
    /// The CRS, if the file names one.
    pub crs: Option<Crs>,
    /// The transform of level 0, if the file has one.
    pub transform: Option<GeoTransform>,
    /// The size of a tile (of a strip: the width of the image and the rows of a strip).
    pub tile: Size,
    /// GDAL's name of the compression (`DEFLATE`, `YCbCr JPEG`), none if the samples are not compressed.
    pub compression: Option<String>,
    /// The TIFF predictor, 2 or 3, if there is one.
    pub predictor: Option<u16>,
    /// Sizes of the overviews, largest first: levels 1, 2, ...
    pub overviews: Vec<Size>,
    /// Each band; as many as `count`.
    pub bands: Vec<BandProfile>,
    /// Red, green and blue of each sample value, where the first band's samples are palette indices.
    pub palette: Option<Vec<[u8; 3]>>,
    /// The source of the mask.
    pub masking: Masking,
    /// True if the file states that its coordinates are of pixel centres (`PixelIsPoint`). The transform
    /// is of pixel corners in either case.
    pub pixel_is_point: bool,
    /// GDAL's metadata of the dataset, in its default domain, without the fields above and without
    /// baseline TIFF tags.
    pub metadata: BTreeMap<String, String>,
    /// Ground control points, where they are all that georeferences the file: it has no transform then, and `crs` is
    /// none, for the CRS that it states is that of the points. 0 of a file that was opened by an index entry.
    pub gcps: usize,
    /// What is odd of the file and did not keep it from being opened, one sentence each. None of a file that was opened by
    /// an index entry: they are told where the index is built ([`Session::notes`](crate::Session::notes)).
    pub notes: Vec<String>,
}

/// Returns the nodata value that a file states, unless no sample of its type can be that: then none, and a note. GDAL
/// does so from version 3.10 on, but for fractions.
pub(super) fn nodata_of(
    dtype: DataType,
    stated: Option<Number>,
    notes: &mut Vec<String>,
) -> Option<Number> {
    let stated = stated.map(|nodata| dtype.rounded(nodata));
    if let Some(nodata) = stated.filter(|&nodata| !dtype.holds(nodata)) {
        let value = match nodata.as_integer() {
            Some(integer) => integer.to_string(),
            None => format!("{:?}", nodata.as_f64()),
        };
        notes.push(format!(
            "its nodata value {value} is none, for no sample of {} can be it",
            dtype.name()
        ));
        return None;
    }
    stated
}

/// Returns the note on a CRS with heights, of which only the horizontal part is known here.
pub(super) fn note_of_heights(what: Option<&str>) -> String {
    let what = what.map_or(String::new(), |what| format!(" ({what})"));
    format!("the heights of its CRS{what} are left out: the horizontal part counts")
}

/// Returns the note on a file that ground control points alone georeference.
pub(super) fn note_of_gcps(gcps: usize) -> Option<String> {
    (gcps > 0).then(|| {
        format!(
            "{gcps} ground control points and no transform: they are not fitted here, so the pixels have no place \
             (gdalwarp makes an image with a transform of it)"
        )
    })
}

impl Profile {
    /// Returns the size of a level in pixels; level 0 is full resolution.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if there is no such level.
    pub fn level_size(&self, level: usize) -> Result<Size> {
        match level.checked_sub(1) {
            None => Ok(self.size),
            Some(overview) => self.overviews.get(overview).copied().ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidInput,
                    format!("level {level} is not one of 0 to {}", self.overviews.len()),
                )
            }),
        }
    }

    /// Returns the window of one tile of a level, clipped to the level. Reading it fetches one tile and
    /// no more, if the level has tiles of the same size as level 0.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if there is no such level or tile.
    pub fn tile_window(&self, level: usize, tile: TileIndex) -> Result<Window> {
        let size = self.level_size(level)?;
        let (across, down) = (
            size.width.div_ceil(self.tile.width.max(1)),
            size.height.div_ceil(self.tile.height.max(1)),
        );
        if tile.col >= across || tile.row >= down {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "tile {},{} is outside {across} x {down} tiles",
                    tile.col, tile.row
                ),
            ));
        }
        let (col, row) = (tile.col * self.tile.width, tile.row * self.tile.height);
        Ok(Window {
            col,
            row,
            width: self.tile.width.min(size.width - col),
            height: self.tile.height.min(size.height - row),
        })
    }

    /// Returns the coarsest level whose pixels are no larger than `resolution`, in units of the CRS per
    /// pixel: the level to resample to that resolution from. 0 if the file has no transform.
    pub fn level_for_resolution(&self, resolution: f64) -> usize {
        let Some(transform) = self.transform else {
            return 0;
        };
        let side = |size: &Size| {
            let [_, a, b, _, c, d] = transform.of_level(self.size, *size).0;
            a.hypot(c).max(b.hypot(d))
        };
        // A tolerance of 0.1 %: sizes of levels are rounded up to whole pixels.
        let fits = |size: &Size| side(size) <= resolution * (1.0 + 1e-3);
        let finest = self.overviews.iter().take_while(|size| fits(size));
        finest.count()
    }

    /// Returns the grid of a level: size, CRS and transform.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if there is no such level.
    pub fn level_geobox(&self, level: usize) -> Result<GeoBox> {
        let size = self.level_size(level)?;
        Ok(self.geobox(size, &Window::whole(size)))
    }

    /// Returns the grid of a level, for work that needs its position.
    ///
    /// # Errors
    ///
    /// Those of [`level_geobox`](Self::level_geobox); [`ErrorKind::Unsupported`] if the file states a CRS that is not known.
    pub(crate) fn placed_geobox(&self, level: usize) -> Result<GeoBox> {
        match cog::unknown_crs(self) {
            None => self.level_geobox(level),
            Some(err) if cfg!(feature = "gdal") => Err(err),
            Some(err) => Err(Error::new(
                err.kind(),
                format!(
                    "{}; PROJ may know it, which the feature gdal brings",
                    err.message()
                ),
            )),
        }
    }

    /// Returns the grid of a window of a level.
    pub(crate) fn geobox(&self, level_size: Size, window: &Window) -> GeoBox {
        GeoBox {
            size: level_size,
            crs: self.crs.clone(),
            transform: self
                .transform
                .map(|transform| transform.of_level(self.size, level_size)),
        }
        .of_window(window)
    }
}

/// The properties of one band.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct BandProfile {
    /// The colour interpretation of the samples.
    pub color: ColorInterp,
    /// A name or a sentence, if the file states one.
    pub description: Option<String>,
    /// The scale, if the file states one: value = sample x scale + offset.
    pub scale: Option<f64>,
    /// The offset, if the file states one.
    pub offset: Option<f64>,
    /// The unit of the values, if the file states one.
    pub unit: Option<String>,
}

macro_rules! colors {
    ($($color:ident => $name:literal, $doc:literal;)*) => {
        /// The colour interpretation of a band, in
        /// [GDAL's terms](https://gdal.org/en/stable/user/raster_data_model.html#raster-band).
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ColorInterp {
            /// Not stated.
            #[default]
            Undefined,
            $(#[doc = $doc] $color,)*
        }

        impl ColorInterp {
            /// Returns GDAL's name in lower case.
            pub fn name(self) -> &'static str {
                match self {
                    Self::Undefined => "undefined",
                    $(Self::$color => $name,)*
                }
            }

            /// Returns the interpretation of one of GDAL's names, in any case.
            pub(crate) fn of_name(name: &str) -> Option<Self> {
                match name.to_ascii_lowercase().as_str() {
                    "undefined" => Some(Self::Undefined),
                    $($name => Some(Self::$color),)*
                    _ => None,
                }
            }
        }
    };
}
colors! {
    Gray => "gray", "Grey.";
    Palette => "palette", "Palette indices.";
    Red => "red", "Red.";
    Green => "green", "Green.";
    Blue => "blue", "Blue.";
    Alpha => "alpha", "Alpha: 0 is transparent.";
    Cyan => "cyan", "Cyan.";
    Magenta => "magenta", "Magenta.";
    Yellow => "yellow", "Yellow.";
    Black => "black", "Black.";
}

/// The source of a file's mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Masking {
    /// No mask: all pixels are valid.
    #[default]
    None,
    /// The nodata value.
    Nodata,
    /// The alpha band, which is the last.
    Alpha,
    /// A mask that the file stores beside each level.
    Internal,
}

impl Masking {
    /// Returns the source of a file's mask: the first of its stored mask, its nodata value, its alpha
    /// band.
    pub(crate) fn of(
        has_mask: bool,
        nodata: Option<Number>,
        dtype: DataType,
        bands: &[BandProfile],
    ) -> Self {
        let last = bands.last().map(|band| band.color);
        if has_mask {
            Self::Internal
        } else if nodata.is_some_and(|nodata| dtype.holds(nodata)) {
            Self::Nodata
        // GDAL's rule for alpha (GMF_ALPHA): gray or RGB with alpha last, of 8 or 16 bits.
        } else if matches!(bands.len(), 2 | 4)
            && last == Some(ColorInterp::Alpha)
            && matches!(dtype, DataType::U8 | DataType::U16)
        {
            Self::Alpha
        } else {
            Self::None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        let size = |width| Size {
            width,
            height: width,
        };
        Profile {
            size: size(1001),
            count: 1,
            dtype: DataType::U8,
            nodata: None,
            crs: None,
            transform: Some(GeoTransform([0.0, 10.0, 0.0, 0.0, 0.0, -10.0])),
            tile: size(256),
            compression: None,
            predictor: None,
            overviews: vec![size(501), size(251)],
            bands: vec![BandProfile::default()],
            palette: None,
            masking: Masking::None,
            pixel_is_point: false,
            metadata: BTreeMap::new(),
            gcps: 0,
            notes: Vec::new(),
        }
    }

    #[test]
    #[cfg(feature = "cog")]
    fn a_file_with_a_crs_that_is_not_known_has_no_position_and_the_error_names_it() {
        let mut profile = profile();
        profile.placed_geobox(0).unwrap();
        let note = "it states a CRS that the COG reader does not know: the projection method 3";
        profile.notes.push(note.to_owned());
        let err = profile.placed_geobox(0).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::Unsupported);
        assert!(err.message().starts_with(note), "{err}");
        let has_hint = err.message().ends_with("which the feature gdal brings");
        assert_eq!(has_hint, !cfg!(feature = "gdal"));
        profile.level_geobox(0).unwrap();
    }

    #[test]
    fn a_resolution_chooses_the_coarsest_level_that_has_it() {
        let profile = profile();
        let levels =
            [1.0, 10.0, 19.0, 20.0, 39.9, 40.0, 1e6].map(|r| profile.level_for_resolution(r));
        assert_eq!(levels, [0, 0, 0, 1, 2, 2, 2]);
        let nowhere = Profile {
            transform: None,
            ..profile
        };
        assert_eq!(nowhere.level_for_resolution(40.0), 0);
    }

    #[test]
    fn a_tile_at_the_edge_is_cut() {
        let profile = profile();
        let window = |level, col, row| {
            let tile = TileIndex { col, row };
            profile
                .tile_window(level, tile)
                .map(|window| window.to_string())
        };
        assert_eq!(window(0, 1, 0).unwrap(), "256,0,256,256");
        assert_eq!(window(0, 3, 3).unwrap(), "768,768,233,233");
        assert_eq!(window(2, 0, 0).unwrap(), "0,0,251,251");
        let err = window(0, 4, 0).unwrap_err();
        assert_eq!(err.message(), "tile 4,0 is outside 4 x 4 tiles");
        assert!(window(3, 0, 0).is_err());
    }

    #[test]
    fn colours_have_one_name() {
        assert_eq!(ColorInterp::of_name("Gray"), Some(ColorInterp::Gray));
        assert_eq!(ColorInterp::of_name("Hue"), None);
    }
}
