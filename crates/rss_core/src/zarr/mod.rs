//! Sharded [Zarr v3](https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html): arrays in chunks, many
//! chunks in one object.
//!
//! A shard is the unit of work: it is encoded and written once, whole. A chunk is the unit of reading: an
//! open array knows where each lies, and asks for nothing else.

mod array;
mod codec;
mod cube;
mod extension;
mod icechunk;
mod layout;
mod metadata;
mod place;
mod region;
mod root;
mod shard;

pub use self::{
    array::{Array, ArraySpec},
    codec::{Codec, Compressor, Shuffle},
    cube::{
        Cube, CubeBand, CubeOptions, Image, Images, PixelIndex, Pixels, TimeStep, WriteProgress,
        Written,
    },
    icechunk::{Commit, Icechunk},
    layout::{Arrangement, Block, Layout, Use},
    root::Root,
};
