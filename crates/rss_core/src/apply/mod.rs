//! From many images to one raster: a cube of images on one grid, computed block by block.
//!
//! An [`ImageCube`] aligns the images of a search to one grid, in time steps ([`time`]), masked and scaled if wanted.
//! It is lazy: nothing is read yet. [`ImageCube::apply`] and [`ImageCube::reduce`] compute it in blocks: the pixels
//! of the next blocks are fetched while others are computed, within the session's memory budget. [`reduce`] and
//! [`mosaic`] hold the kernels. [`sample`] extracts points and zones from the images themselves, without a grid.
//! Left out are stored cubes, which `zarr` writes and reads.

mod axes;
mod bands;
mod block;
mod clip;
#[cfg(feature = "cog")]
mod cog;
mod cube;
#[cfg(feature = "expression")]
mod expression;
mod fill;
mod footprint;
mod grid;
#[cfg(feature = "cog")]
mod item;
mod load;
pub mod mosaic;
mod notes;
mod options;
#[cfg(feature = "zarr")]
mod part;
mod periods;
mod provenance;
pub mod reduce;
mod report;
mod run;
pub mod sample;
mod source;
mod source_mask;
pub(crate) mod stated;
pub mod time;
mod typed;

#[cfg(feature = "expression")]
pub use self::expression::Expression;
#[cfg(feature = "cog")]
pub use self::item::{MadeBand, MadeFile};
pub use self::{
    axes::{ImageCubeBand, Step, TimeBounds},
    block::{Block, BlockSample},
    cube::ImageCube,
    grid::Anchor,
    options::{
        ApplyOptions, ApplyProgress, Grid, ImageCubeOptions, MaskStage, OnFailure, Overviews,
        Values,
    },
    report::{ApplyReport, MissingInput},
    run::{Apply, Computed},
    typed::TypedApply,
};
#[cfg(feature = "zarr")]
pub(crate) use self::{
    bands::{is_class, of_choice},
    notes::Notes,
    part::Stored,
    provenance::{SOFTWARE, SourceItem, sources_json, time_json},
    source::{CHANGED, described},
    typed::each as each_type,
};

#[doc(hidden)]
#[deprecated(since = "0.1.0", note = "renamed to `ImageCube`")]
pub type Cube = ImageCube;

#[doc(hidden)]
#[deprecated(since = "0.1.0", note = "renamed to `ImageCubeBand`")]
pub type CubeBand = ImageCubeBand;

#[doc(hidden)]
#[deprecated(since = "0.1.0", note = "renamed to `ImageCubeOptions`")]
pub type CubeOptions = ImageCubeOptions;

#[doc(hidden)]
#[deprecated(since = "0.1.0", note = "renamed to `MissingInput`")]
pub type Hole = MissingInput;
