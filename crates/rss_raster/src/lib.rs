//! Rasters in memory, their grids, and warps from one grid to another, in Rust and without GDAL.
//!
//! | module | is |
//! |---|---|
//! | [`geo`] | georeferencing: [`GeoBox`] (a grid: size, CRS, geotransform), [`Window`], [`Bbox`], [`Crs`], MGRS tiles, the footprint of a grid in degrees, [`geo::Transformer`] (pixels of one grid to those of another), [`geo::WorldToPixel`] (points and polygons of a CRS to a grid's pixels), [`geo::Ground`] (distances of pixels on the ground) |
//! | [`raster`] | samples (band, y, x) of twelve dtypes with their grid and nodata value: [`Raster`]; written as GeoTIFF, `.npy`, `.bin` or `.png` |
//! | [`warp`] | [gdalwarp](https://gdal.org/en/stable/programs/gdalwarp.html)'s rules: nearest, bilinear, cubic, average, mode, min, max; separable where both grids are axis-aligned in one CRS, else by an approximating transformer with a bounded error |
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
//!     nodata: Some(0.into()),
//!     sparse: Vec::new(),
//! };
//! // .. to Australian Albers, 20 m a pixel, as `gdalwarp -t_srs EPSG:3577 -tr 20 20 -r bilinear` does.
//! let bounds = utm.bbox()?;
//! let albers = GeoBox::of_bbox(&bounds, Crs::Epsg(3577), 20.0)?;
//! let warped = scene.warp(&albers, Resampling::Bilinear)?;
//! assert_eq!(warped.pixels.shape()[1], albers.size.height as usize);
//! // Each position projected exactly; gdalwarp's default interpolates to within an eighth of a pixel:
//! let exact = scene.warp(&albers, WarpOptions::from(Resampling::Bilinear).with_max_error_pixels(0.0))?;
//! assert_eq!(exact.geobox, warped.geobox);
//! # Ok::<_, rss_raster::Error>(())
//! ```
//!
//! CRSs are identified by EPSG code, or else by WKT, PROJJSON or a PROJ string. They are projected by `proj4rs`, codes
//! from the definitions of the crate `crs-definitions`; a program can lend PROJ for what that cannot evaluate
//! ([`geo::set_projection_engine`]). Codes whose datum needs a grid shift file, or whose definition there is wrong, are
//! refused by name: an error is better than misplaced pixels. The crate leaves out reading files, which `rss_core`
//! does, ground control points, and heights. It does no network IO and never blocks on anything but computation; work
//! runs on the threads of the rayon pool that it is called from.
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
        Complex, DataType, Format, NpyStack, Number, Pixels, Raster, Resampling, Sample, Sparse,
        Stretch,
    },
    warp::WarpOptions,
};
