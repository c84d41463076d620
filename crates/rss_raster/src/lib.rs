//! Rasters in memory, the grids they lie on, and warps from one grid onto another, in Rust and without GDAL.
//!
//! | module | is |
//! |---|---|
//! | [`geo`] | where pixels lie: [`GeoBox`] (a grid: size, CRS, transform), [`Window`], [`Bbox`], [`Crs`], MGRS tiles, the footprint of a grid in degrees, [`geo::Transformer`] (pixels of one grid in those of another), [`geo::WorldToPixel`] (points and polygons of a CRS in a grid's pixels) |
//! | [`raster`] | samples (band, y, x) of twelve types with their grid and nodata value: [`Raster`]; written as GeoTIFF, `.npy`, `.bin` or `.png` |
//! | [`warp`] | [gdalwarp](https://gdal.org/en/stable/programs/gdalwarp.html)'s rules: nearest, bilinear, cubic, average, mode, min, max; separable where the axes are the same, else by a mesh of exact places whose error is bounded |
//! | [`error`] | the one [`Error`] |
//!
//! ```
//! use ndarray::Array3;
//! use rss_raster::{Crs, GeoBox, Pixels, Raster, Resampling, Size, WarpOptions};
//!
//! // A scene in UTM zone 55 south, 10 m a pixel ..
//! let utm = GeoBox::of_bounds(Crs::Epsg(32755), [600_000.0, 6_090_000.0, 602_560.0, 6_092_560.0], 10.0)?;
//! assert_eq!(utm.size, Size { width: 256, height: 256 });
//! let scene = Raster {
//!     pixels: Pixels::U16(Array3::from_shape_fn((1, 256, 256), |(_, y, x)| (y + x) as u16)),
//!     geobox: utm.clone(),
//!     nodata: Some(0.0),
//!     sparse: Vec::new(),
//! };
//! // .. onto Australian Albers, 20 m a pixel, as `gdalwarp -t_srs EPSG:3577 -tr 20 20 -r bilinear` does.
//! let bounds = utm.bbox()?;
//! let albers = GeoBox::of_bbox(&bounds, Crs::Epsg(3577), 20.0)?;
//! let warped = scene.warp(&albers, Resampling::Bilinear)?;
//! assert_eq!(warped.pixels.shape()[1], albers.size.height as usize);
//! // Every place projected, where gdalwarp's default lies within an eighth of a pixel:
//! let exact = scene.warp(&albers, WarpOptions::from(Resampling::Bilinear).with_max_error_pixels(0.0))?;
//! assert_eq!(exact.geobox, warped.geobox);
//! # Ok::<_, rss_raster::Error>(())
//! ```
//!
//! CRSs are named by EPSG code. They are projected by `proj4rs` from the definitions of the crate
//! `crs-definitions`; codes whose datum needs grid shifts, or whose definition there is wrong, are refused by name:
//! a pixel in the wrong place is worse than none. Left out are reading files, which `rss_core` does, ground control
//! points, and heights. Nothing here waits or reads the network; work is spread over the threads of the rayon pool
//! that it is called from.
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `wkt` | no | [`Crs::to_wkt`] by EPSG code: the texts of the definitions, some megabytes |

pub mod error;
pub mod geo;
pub mod raster;
pub mod warp;

pub use self::{
    error::{Error, ErrorKind, Result},
    geo::{Bbox, Crop, Crs, GeoBox, GeoTransform, Resolution, Size, TileIndex, Window},
    raster::{
        Complex, DataType, Format, NpyStack, Pixels, Raster, Resampling, Sample, Sparse, Stretch,
    },
    warp::WarpOptions,
};
