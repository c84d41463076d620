//! The description of a new array.

use serde_json::Value;

use super::{
    codec::{Chain, Codec},
    metadata::{Metadata, Stored},
    region,
    shard::Sharding,
};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::{DataType, Number},
};

/// The description of a new array: shape, dtype, chunks, shards, codec, fill value, names and attributes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ArraySpec {
    /// The length of each axis in samples.
    pub shape: Vec<u64>,
    /// The dtype of the samples.
    pub dtype: DataType,
    /// Whether samples, of the dtype `float32`, are stored as `float16`: rounded to the nearest.
    pub is_float16: bool,
    /// The shape of a shard: a whole number of chunks along each axis. None makes each chunk an object of its own.
    pub shard: Option<Vec<u64>>,
    /// The shape of a chunk.
    pub chunk: Vec<u64>,
    /// How chunks are compressed.
    pub codec: Codec,
    /// The fill value: the value of samples that were never written.
    pub fill: Number,
    /// The name of each axis.
    pub dimensions: Vec<String>,
    /// Attributes of the array's metadata.
    pub attributes: serde_json::Map<String, Value>,
}

impl ArraySpec {
    /// Describes an array by its shape, its dtype and the shape of its chunks.
    pub fn new(shape: impl Into<Vec<u64>>, dtype: DataType, chunk: impl Into<Vec<u64>>) -> Self {
        let shape = shape.into();
        Self {
            dimensions: (0..shape.len()).map(|axis| format!("dim_{axis}")).collect(),
            shape,
            dtype,
            is_float16: false,
            shard: None,
            chunk: chunk.into(),
            codec: Codec::default(),
            fill: Number::ZERO,
            attributes: serde_json::Map::new(),
        }
    }

    /// Stores samples of `float32` as `float16`.
    #[must_use]
    pub fn with_float16(mut self) -> Self {
        self.is_float16 = true;
        self
    }

    /// Puts chunks into shards.
    #[must_use]
    pub fn with_shard(mut self, shard: impl Into<Vec<u64>>) -> Self {
        self.shard = Some(shard.into());
        self
    }

    /// Sets how chunks are compressed.
    #[must_use]
    pub fn with_codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self
    }

    /// Sets the fill value.
    #[must_use]
    pub fn with_fill(mut self, fill: impl Into<Number>) -> Self {
        self.fill = fill.into();
        self
    }

    /// Sets the names of the axes.
    #[must_use]
    pub fn with_dimensions(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.dimensions = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the attributes.
    #[must_use]
    pub fn with_attributes(mut self, attributes: serde_json::Map<String, Value>) -> Self {
        self.attributes = attributes;
        self
    }

    /// Checks the description.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`], which names the invalid value and states what was expected.
    pub(crate) fn check(&self) -> Result<()> {
        let invalid = |what: String| Err(Error::new(ErrorKind::InvalidInput, what));
        let rank = self.shape.len();
        let shard = self.shard.as_ref().unwrap_or(&self.chunk);
        for (what, lengths) in [("shard", shard), ("chunk", &self.chunk)] {
            if lengths.len() != rank {
                return invalid(format!(
                    "a {what} of {} axes for an array of {rank}",
                    lengths.len()
                ));
            }
            if lengths.contains(&0) {
                return invalid(format!("a {what} of length 0"));
            }
        }
        if self.dimensions.len() != rank {
            return invalid(format!(
                "{} names of axes for an array of {rank}",
                self.dimensions.len()
            ));
        }
        for (axis, (shard, chunk)) in shard.iter().zip(&self.chunk).enumerate() {
            if !shard.is_multiple_of(*chunk) {
                return invalid(format!(
                    "a shard of {shard} along axis {axis} is not a whole number of chunks of {chunk}"
                ));
            }
        }
        if !self.dtype.holds(self.fill) {
            return invalid(format!(
                "fill value {} is not a value of {}",
                self.fill, self.dtype
            ));
        }
        if self.is_float16 && self.dtype != DataType::F32 {
            return invalid(format!(
                "samples of {} stored as float16, expected float32",
                self.dtype
            ));
        }
        region::length_of(shard, self.dtype.size())?;
        self.codec.check()?;
        Ok(())
    }

    /// Returns the metadata as the JSON that is written.
    pub(crate) fn document(&self) -> Result<Value> {
        self.check()?;
        Ok(self.metadata().to_json())
    }

    pub(crate) fn metadata(&self) -> Metadata {
        let stored = Stored::new(self.dtype, self.is_float16);
        let chain = Chain::of(self.codec, stored.size());
        let (grid, chain) = match &self.shard {
            Some(shard) => {
                let sharding = Sharding::new(self.chunk.clone(), chain);
                (shard.clone(), Chain::of_shards(sharding))
            }
            None => (self.chunk.clone(), chain),
        };
        Metadata::new(
            self.shape.clone(),
            stored,
            grid,
            chain,
            self.fill,
            self.dimensions.clone(),
            self.attributes.clone(),
        )
    }
}
