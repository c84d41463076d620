//! From many images to one picture: a cube of images on one grid, computed block by block.
//!
//! A [`ImageCube`] puts what a search found on one grid, in groups of time ([`time`]), masked and scaled if wanted;
//! nothing is read yet. [`ImageCube::apply`] and [`ImageCube::reduce`] then go over it in blocks: what the next blocks need
//! is fetched while others are computed, within the session's budget of memory. [`reduce`] and [`mosaic`] hold
//! the kernels. [`sample`] takes points and zones of the images themselves, without a grid. Left out are cubes that are stored, which `zarr` writes and reads.

mod axes;
mod block;
#[cfg(feature = "cog")]
mod cog;
mod cube;
#[cfg(feature = "expression")]
mod expression;
mod load;
pub mod mosaic;
mod options;
#[cfg(feature = "zarr")]
mod part;
pub mod reduce;
mod report;
mod run;
pub mod sample;
mod source;
pub mod time;

#[cfg(feature = "expression")]
pub use self::expression::Expression;
#[cfg(feature = "zarr")]
pub(crate) use self::part::Stored;
pub use self::{
    axes::{ImageCubeBand, Step},
    block::{Block, BlockSample},
    cube::ImageCube,
    options::{ApplyOptions, ApplyProgress, Grid, ImageCubeOptions, OnFailure, Values},
    report::{ApplyReport, MissingInput},
    run::{Apply, Computed},
};

#[doc(hidden)]
#[deprecated(since = "0.2.0", note = "renamed to `ImageCube`")]
pub type Cube = ImageCube;

#[doc(hidden)]
#[deprecated(since = "0.2.0", note = "renamed to `ImageCubeBand`")]
pub type CubeBand = ImageCubeBand;

#[doc(hidden)]
#[deprecated(since = "0.2.0", note = "renamed to `ImageCubeOptions`")]
pub type CubeOptions = ImageCubeOptions;

#[doc(hidden)]
#[deprecated(since = "0.2.0", note = "renamed to `MissingInput`")]
pub type Hole = MissingInput;
