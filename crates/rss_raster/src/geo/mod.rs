//! Georeferencing: bounding boxes in degrees, windows in pixels, and the conversions between them.
//!
//! Pure arithmetic: no module here does IO or depends on a file format.

pub mod antimeridian;
mod bbox;
mod covering;
mod crop;
mod crs;
mod definition;
mod engine;
mod footprint;
mod grid;
mod ground;
mod lattice;
mod mgrs;
mod outline;
pub(crate) mod parts;
mod projection;
mod transform;
mod transformer;
mod turn;
mod utm;
mod window;
mod world_to_pixel;

pub use self::{
    bbox::Bbox,
    crop::Crop,
    crs::Crs,
    grid::Resolution,
    transform::{GeoBox, GeoTransform},
    window::{Size, TileIndex, Window},
};

pub use self::{
    engine::{ForeignProjection, ProjectionEngine, set_projection_engine},
    ground::{Ground, GroundPlane, GroundPoint},
    lattice::{Extent, Lattice},
    mgrs::MgrsTile,
    transformer::Transformer,
    world_to_pixel::{Ring, WorldToPixel, degrees_round, is_degrees},
};
