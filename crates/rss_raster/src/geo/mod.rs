//! Where pixels lie: boxes in degrees, windows in pixels, and what lies between.
//!
//! Pure arithmetic: nothing here reads a file or knows a format.

pub mod antimeridian;
mod bbox;
mod crop;
mod crs;
mod definition;
mod footprint;
mod grid;
mod lattice;
mod mgrs;
mod outline;
mod placing;
mod projection;
mod transform;
mod transformer;
mod utm;
mod window;

pub use self::{
    bbox::Bbox,
    crop::Crop,
    crs::Crs,
    grid::Resolution,
    transform::{GeoBox, GeoTransform},
    window::{Size, TileIndex, Window},
};

pub use self::{
    lattice::{Extent, Lattice},
    mgrs::MgrsTile,
    placing::{Placing, Ring, degrees_round, is_degrees},
    transformer::Transformer,
};
