//! Sharded [Zarr v3](https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html): arrays in chunks, many
//! chunks in one object.
//!
//! A shard is the unit of writing: one object, encoded and written once. A chunk is the unit of reading: an open
//! array caches the indexes of its shards, and requests the byte ranges of the chunks that a read needs. An
//! [`Array`] holds samples; a [`Cube`] adds a time axis, bands and a grid.

pub use crate::{
    array::{
        Arrangement, Array, ArraySpec, Block, Codec, Commit, Compressor, Icechunk, Layout, Root,
        Shuffle, Use,
    },
    cube::{
        CheckDepth, CheckOptions, CheckReport, Cube, CubeBand, CubeImage, CubeOptions, Damage,
        Duplicate, Finding, Holds, ImageAsset, ImagePixels, Images, PixelIndex, Remake, TimeBounds,
        TimeStep, WriteProgress, Written,
    },
};

#[doc(hidden)]
#[deprecated(since = "0.1.0", note = "renamed to `CubeImage`")]
pub type Image = CubeImage;

#[doc(hidden)]
#[deprecated(since = "0.1.0", note = "renamed to `ImagePixels`")]
pub type Pixels = ImagePixels;
