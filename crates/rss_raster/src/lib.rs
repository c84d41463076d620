//! Rasters, grids, coordinate reference systems, and warps of one grid onto another, without GDAL.

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
