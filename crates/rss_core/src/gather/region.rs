//! The pixels of a file to read: by tile, by window, or by geographic coordinates.

use super::Request;
use crate::{
    error::{Error, ErrorKind, Result},
    geo::{Bbox, Size, TileIndex, Window},
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
    /// size it is the first after the centre. The rectangle must lie inside the image.
    Around {
        /// Degrees east.
        lon: f64,
        /// Degrees north.
        lat: f64,
        /// Width and height in pixels.
        size: Size,
    },
    /// The pixels in a bounding box in degrees of WGS 84, clipped to the image.
    Bbox(Bbox),
}

impl Request {
    /// Returns the read request for a file with this profile.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if the region is outside the image, or the image is not georeferenced;
    /// [`ErrorKind::Unsupported`] for a CRS that has no transformation from WGS 84.
    pub(super) fn resolve(&self, profile: &Profile) -> Result<ReadRequest> {
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
                // Never clipped: rows of one gather keep one shape, so that they can be stacked.
                let start = |at: u32, length: u32, limit: u32| {
                    at.checked_sub(length / 2)
                        .filter(|start| start.checked_add(length).is_some_and(|end| end <= limit))
                };
                let col = start(pixel.col, wanted.width, size.width);
                let row = start(pixel.row, wanted.height, size.height);
                let (Some(col), Some(row)) = (col, row) else {
                    return Err(Error::new(
                        ErrorKind::InvalidInput,
                        format!(
                            "{} x {} pixels around {lon},{lat} extend beyond the image",
                            wanted.width, wanted.height
                        ),
                    ));
                };
                Window {
                    col,
                    row,
                    width: wanted.width,
                    height: wanted.height,
                }
            }
            Region::Bbox(bbox) => {
                let grid = profile.level_geobox(level)?;
                grid.window_of(&bbox)?.ok_or_else(|| {
                    Error::new(
                        ErrorKind::InvalidInput,
                        format!("bbox {bbox} is outside the image"),
                    )
                })?
            }
        };
        let mut request = ReadRequest::new().with_level(level).with_window(window);
        request.bands = self.bands.clone();
        Ok(request)
    }
}

/// Returns the pixel of a level that holds a point.
fn pixel(profile: &Profile, level: usize, lon: f64, lat: f64) -> Result<Window> {
    let grid = profile.level_geobox(level)?;
    grid.pixel_at(lon, lat)?.ok_or_else(|| {
        Error::new(
            ErrorKind::InvalidInput,
            format!("point {lon},{lat} is outside the image"),
        )
    })
}
