//! Encoding and decoding chunks: the codecs of an array's metadata.
//!
//! [Zarr v3](https://zarr-specs.readthedocs.io/en/latest/v3/codecs/index.html) lists them in the order in
//! which they encode: a transposition, samples to bytes (or to a shard), then compression and checksums.

mod blosc;
mod chain;
mod choice;
mod lz;
mod shuffle;

pub(super) use self::chain::{Chain, Scratch, Shape, crc32c};
pub use self::choice::{Codec, Compressor, Shuffle};
