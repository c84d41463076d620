//! The pixels of a file to read: by tile, by window, or by geographic coordinates.

use ndarray::{Array3, s};

use super::Request;
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{Bbox, GeoTransform, Size, TileIndex, Window},
    raster::{Number, Pixels, Raster, Sample, with_type},
    reader::{Profile, ReadRequest},
};

/// The pixels of a level to read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Region {
    /// The centre tile: half of the columns and half of the rows of tiles, rounded down, from the top left.
    #[default]
    CentreTile,
    /// A tile, by its column and row.
    Tile(TileIndex),
    /// A rectangle of pixels.
    Window(Window),
    /// The tile that holds a point, in degrees of WGS 84.
    TileAt {
        /// Degrees east.
        lon: f64,
        /// Degrees north.
        lat: f64,
    },
    /// A rectangle of pixels around a point, in degrees of WGS 84. The point's pixel is the centre; with an even
    /// size it is the first after the centre. The point must lie inside the image; pixels of the rectangle that do not
    /// are [`Request::padding`].
    Around {
        /// Degrees east.
        lon: f64,
        /// Degrees north.
        lat: f64,
        /// Width and height in pixels.
        size: Size,
    },
    /// The pixels in a bounding box in degrees of WGS 84, clipped to the image. One whose parts lie at both ends of a map of
    /// the globe is an error.
    Bbox(Bbox),
}

impl Request {
    /// Returns the read request for a file with this profile, and how its pixels are padded.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the region is outside the image, or the image is not georeferenced;
    /// [`ErrorKind::Unsupported`] for a CRS that has no transformation from WGS 84.
    pub(super) fn resolve(&self, profile: &Profile) -> Result<(ReadRequest, Option<Padding>)> {
        let mut padding = None;
        let level = self.level;
        let size = profile.level_size(level)?;
        let tile = |col: u32, row: u32| profile.tile_window(level, TileIndex { col, row });
        let side = |pixels: u32, tile: u32| pixels.div_ceil(tile.max(1));
        let (across, down) = (
            side(size.width, profile.tile.width),
            side(size.height, profile.tile.height),
        );
        let window = match self.region {
            Region::CentreTile => tile(across / 2, down / 2)?,
            Region::Tile(index) => tile(index.col, index.row)?,
            Region::Window(window) => window,
            Region::TileAt { lon, lat } => {
                let pixel = pixel(profile, level, lon, lat)?;
                let (width, height) = (profile.tile.width, profile.tile.height);
                tile(pixel.col / width.max(1), pixel.row / height.max(1))?
            }
            Region::Around {
                lon,
                lat,
                size: wanted,
            } => {
                let pixel = pixel(profile, level, lon, lat)?;
                let [cols, rows] = [
                    Span::of(pixel.col, wanted.width, size.width),
                    Span::of(pixel.row, wanted.height, size.height),
                ];
                // Never clipped: rows of one gather keep one shape, so that they can be stacked.
                if (cols.length, rows.length) != (wanted.width, wanted.height) {
                    let fill = self.fill(profile).map_err(|err| {
                        let message = format!(
                            "{} x {} pixels around {lon},{lat} extend beyond the image, {}",
                            wanted.width,
                            wanted.height,
                            err.message()
                        );
                        Error::new(ErrorKind::InvalidInput, message)
                    })?;
                    padding = Some(Padding {
                        col: cols.before,
                        row: rows.before,
                        size: wanted,
                        fill,
                    });
                }
                Window {
                    col: cols.start,
                    row: rows.start,
                    width: cols.length,
                    height: rows.length,
                }
            }
            Region::Bbox(bbox) => {
                let grid = profile.placed_geobox(level)?;
                let invalid = |why: &str| {
                    let message = format!("bbox {bbox} {why}");
                    Error::new(ErrorKind::InvalidInput, message)
                };
                let window = grid.window_of(&bbox)?;
                let window = window.ok_or_else(|| invalid("is outside the image"))?;
                // A window cannot go past the end of a map, and what lies between its ends was not asked for.
                if grid
                    .crop(&bbox)?
                    .is_some_and(|part| part.size.width < window.width)
                {
                    return Err(invalid("lies at both ends of the image: ask for each part"));
                }
                window
            }
        };
        let mut request = ReadRequest::new().with_level(level).with_window(window);
        request.bands = self.bands.clone();
        Ok((request, padding))
    }

    /// Returns the sample of pixels outside of the image.
    fn fill(&self, profile: &Profile) -> Result<Number> {
        let dtype = profile.dtype;
        if let Some(chosen) = self.padding {
            return match dtype.holds(chosen) {
                true => Ok(chosen),
                false => Err(Error::new(
                    ErrorKind::InvalidInput,
                    format!("and the padding {chosen} is not a value of {dtype}"),
                )),
            };
        }
        let nodata = profile.nodata.filter(|nodata| dtype.holds(*nodata));
        let nan = dtype.is_float().then(|| Number::from(f64::NAN));
        let lacks = "which has no nodata value for what is outside: choose a padding";
        nodata
            .or(nan)
            .ok_or_else(|| Error::new(ErrorKind::InvalidInput, lacks))
    }
}

/// The columns or rows of a rectangle that lie in an image.
struct Span {
    start: u32,
    length: u32,
    /// How many of them lie before the image.
    before: u32,
}

impl Span {
    /// Returns those of `length` around a pixel of an image of `limit` pixels.
    fn of(at: u32, length: u32, limit: u32) -> Self {
        let before = (length / 2).saturating_sub(at);
        let start = at.saturating_sub(length / 2);
        let end = at.saturating_add(length - length / 2).min(limit);
        Self {
            start,
            length: end.saturating_sub(start),
            before,
        }
    }
}

/// Pixels around those that were read, where a rectangle extends beyond the image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Padding {
    /// Columns and rows before the pixels that were read.
    col: u32,
    row: u32,
    /// The whole rectangle.
    size: Size,
    fill: Number,
}

impl Padding {
    /// Puts what was read into the rectangle.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the rectangle exceeds the address space.
    pub(super) fn around(&self, mut raster: Raster) -> Result<Raster> {
        let [bands, height, width] = raster.pixels.shape();
        let dtype = raster.pixels.dtype();
        let shape = Pixels::check_size(dtype, bands, self.size)?;
        let (row, col) = (self.row as usize, self.col as usize);
        let within = s![.., row..row + height, col..col + width];
        raster.pixels = with_type!(dtype, T => {
            let mut whole = filled::<T>(shape, self.fill);
            if let Some(view) = raster.pixels.view::<T>() {
                whole.slice_mut(within).assign(&view);
            }
            T::wrap(whole)
        });
        raster.geobox.size = self.size;
        if let Some(GeoTransform(t)) = &mut raster.geobox.transform {
            let (col, row) = (f64::from(self.col), f64::from(self.row));
            t[0] -= col * t[1] + row * t[2];
            t[3] -= col * t[4] + row * t[5];
        }
        for sparse in &mut raster.sparse {
            sparse.window.col += self.col;
            sparse.window.row += self.row;
        }
        Ok(raster)
    }
}

fn filled<T: Sample>(shape: (usize, usize, usize), fill: Number) -> Array3<T> {
    let fill = T::exact(fill).unwrap_or(T::of_number(fill.as_f64()));
    Array3::from_elem(shape, fill)
}

/// Returns the pixel of a level that holds a point.
fn pixel(profile: &Profile, level: usize, lon: f64, lat: f64) -> Result<Window> {
    let grid = profile.placed_geobox(level)?;
    grid.pixel_at(lon, lat)?.ok_or_else(|| {
        Error::new(
            ErrorKind::InvalidInput,
            format!("point {lon},{lat} is outside the image"),
        )
    })
}
