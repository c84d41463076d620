//! Sharded [Zarr v3](https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html): arrays in chunks, many
//! chunks in one object.
//!
//! A shard is the unit of work: it is encoded and written once, whole. A chunk is the unit of reading: an
//! open array knows where each lies, and asks for nothing else. An [`Array`] is samples; a [`Cube`] adds dates, bands
//! and a grid.

pub use crate::{
    array::{
        Arrangement, Array, ArraySpec, Block, Codec, Commit, Compressor, Icechunk, Layout, Root,
        Shuffle, Use,
    },
    cube::{
        Cube, CubeBand, CubeImage, CubeOptions, ImagePixels, Images, PixelIndex, TimeStep,
        WriteProgress, Written,
    },
};

#[doc(hidden)]
#[deprecated(since = "0.2.0", note = "renamed to `CubeImage`")]
pub type Image = CubeImage;

#[doc(hidden)]
#[deprecated(since = "0.2.0", note = "renamed to `ImagePixels`")]
pub type Pixels = ImagePixels;
