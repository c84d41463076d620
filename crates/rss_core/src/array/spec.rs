//! What a new array is.

use serde_json::Value;

use super::{
    codec::{Chain, Codec},
    metadata::Metadata,
    region,
    shard::Sharding,
};
use crate::{
    error::{Error, ErrorKind, Result},
    raster::DataType,
};

/// What a new array is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ArraySpec {
    /// Samples of each axis.
    pub shape: Vec<u64>,
    /// The type of the samples.
    pub dtype: DataType,
    /// Samples of a shard, axis by axis: a whole number of chunks. None makes each chunk an object of
    /// its own.
    pub shard: Option<Vec<u64>>,
    /// Samples of a chunk, axis by axis.
    pub chunk: Vec<u64>,
    /// How chunks are compressed.
    pub codec: Codec,
    /// What a sample is that was never written.
    pub fill: f64,
    /// The name of each axis.
    pub dimensions: Vec<String>,
    /// What else is said of the array.
    pub attributes: serde_json::Map<String, Value>,
}

impl ArraySpec {
    /// Describes an array of a shape in chunks of another.
    pub fn new(shape: impl Into<Vec<u64>>, dtype: DataType, chunk: impl Into<Vec<u64>>) -> Self {
        let shape = shape.into();
        Self {
            dimensions: (0..shape.len()).map(|axis| format!("dim_{axis}")).collect(),
            shape,
            dtype,
            shard: None,
            chunk: chunk.into(),
            codec: Codec::default(),
            fill: 0.0,
            attributes: serde_json::Map::new(),
        }
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

    /// Sets what a sample is that was never written.
    #[must_use]
    pub fn with_fill(mut self, fill: f64) -> Self {
        self.fill = fill;
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

    /// Checks what was chosen.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`], which names the number that cannot be and says what can.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::new(ErrorKind::InvalidInput, what));
        let rank = self.shape.len();
        let shard = self.shard.as_ref().unwrap_or(&self.chunk);
        for (what, lengths) in [("shard", shard), ("chunk", &self.chunk)] {
            if lengths.len() != rank {
                return wrong(format!(
                    "a {what} of {} axes for an array of {rank}",
                    lengths.len()
                ));
            }
            if lengths.contains(&0) {
                return wrong(format!("a {what} of length 0"));
            }
        }
        if self.dimensions.len() != rank {
            return wrong(format!(
                "{} names of axes for an array of {rank}",
                self.dimensions.len()
            ));
        }
        for (axis, (shard, chunk)) in shard.iter().zip(&self.chunk).enumerate() {
            if !shard.is_multiple_of(*chunk) {
                return wrong(format!(
                    "a shard of {shard} along axis {axis} is no whole number of chunks of {chunk}"
                ));
            }
        }
        if !self.dtype.holds(self.fill) {
            return wrong(format!("fill value {} is no {}", self.fill, self.dtype));
        }
        region::length_of(shard, self.dtype.size())?;
        self.codec.check()?;
        Ok(())
    }

    /// Returns the metadata as it is written.
    pub(crate) fn document(&self) -> Result<Value> {
        self.check()?;
        Ok(self.metadata().to_json())
    }

    pub(crate) fn metadata(&self) -> Metadata {
        let chain = Chain::of(self.codec, self.dtype.size());
        let (grid, chain) = match &self.shard {
            Some(shard) => {
                let sharding = Sharding::new(self.chunk.clone(), chain);
                (shard.clone(), Chain::of_shards(sharding))
            }
            None => (self.chunk.clone(), chain),
        };
        Metadata::new(
            self.shape.clone(),
            self.dtype,
            grid,
            chain,
            self.fill,
            self.dimensions.clone(),
            self.attributes.clone(),
        )
    }
}
