//! Where pixels lie: boxes in degrees, windows in pixels, and the transform between.
//!
//! Pure arithmetic: nothing here reads a file or knows a format.

mod bbox;
mod crs;
mod transform;
mod window;

pub use self::{
    bbox::Bbox,
    crs::Crs,
    transform::{GeoBox, GeoTransform},
    window::{Size, TileIndex, Window},
};
