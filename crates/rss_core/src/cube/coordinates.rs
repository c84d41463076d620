//! Reading the time steps of a cube from its coordinates `time`, `item` and `time_bnds`.
//!
//! An append replaces their last chunks before the root's `zarr.json`, by chunks that begin with the same values. So a
//! chunk is read as far as the shape in the root says, and may go on behind that.

use chrono::{DateTime, Utc};
use futures::{StreamExt, TryStreamExt, stream};
use ndarray::ArrayD;
use serde_json::{Value, json};

use super::{
    TimeBounds, TimeStep,
    describe::{self, ITEM, TIME_BOUNDS},
};
use crate::{
    array::{Array, Storage, below, vlen},
    error::{Error, ErrorKind, Result},
};

/// Time steps in a chunk of the coordinates of a new cube.
pub(super) const STEPS_PER_CHUNK: usize = 1024;
/// Chunks of one coordinate: damaged metadata must not ask for more.
const MOST_CHUNKS: usize = 1 << 16;
/// Chunks of a coordinate that are read at once.
const AT_ONCE: usize = 16;

/// The chunks of a coordinate along its first axis.
struct Chunks {
    /// Values along the first axis.
    length: usize,
    per_chunk: usize,
}

impl Chunks {
    fn of(document: &Value) -> Option<Self> {
        let first = |pointer: &str| {
            let lengths = document.pointer(pointer)?.as_array()?;
            usize::try_from(lengths.first()?.as_u64()?).ok()
        };
        let chunks = Self {
            length: first("/shape")?,
            per_chunk: first("/chunk_grid/configuration/chunk_shape")?,
        };
        let is_sane =
            chunks.per_chunk > 0 && chunks.length.div_ceil(chunks.per_chunk) <= MOST_CHUNKS;
        is_sane.then_some(chunks)
    }

    /// Reads the chunks, and hands each with the number of its values to `decode`.
    async fn read<T>(
        &self,
        storage: &Storage,
        path: &str,
        axes: usize,
        decode: impl Fn(&[u8], usize) -> Option<Vec<T>>,
    ) -> Result<Vec<T>> {
        let rest = "/0".repeat(axes.saturating_sub(1));
        let keys = (0..self.length.div_ceil(self.per_chunk)).map(|number| {
            let count = self.per_chunk.min(self.length - number * self.per_chunk);
            (below(path, &format!("c/{number}{rest}")), count)
        });
        let decode = &decode;
        let read = |(key, count): (String, usize)| async move {
            let damaged =
                |what: &str| Error::new(ErrorKind::Corrupt, what).at(storage.locate(&key));
            let bytes = storage.read(&key).await?;
            let bytes = bytes.ok_or_else(|| damaged("a chunk of a coordinate does not exist"))?;
            let values = decode(&bytes, count).filter(|values| values.len() == count * axes);
            values
                .ok_or_else(|| damaged(&format!("a chunk of a coordinate without {count} values")))
        };
        let chunks: Vec<Vec<T>> = stream::iter(keys)
            .map(read)
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        Ok(chunks.into_iter().flatten().collect())
    }
}

/// Reads the time steps of a level from the root's consolidated metadata and the chunks of its coordinates. Returns
/// them, and how many are in a chunk.
pub(super) async fn read(
    storage: &Storage,
    level: &str,
    metadata: &Value,
) -> Result<(Vec<TimeStep>, usize)> {
    let find = |name: &str| metadata.get(below(level, name));
    let time = find("time").ok_or_else(|| {
        let message = "a group that is not a cube of this library: it has no array time";
        Error::new(ErrorKind::Unsupported, message)
    })?;
    let reading = async {
        let path = below(level, "time");
        let times = numbers(storage, &path, time, 1);
        let items = async {
            match find(ITEM) {
                Some(document) => texts(storage, &below(level, ITEM), document).await,
                None => Ok(Vec::new()),
            }
        };
        let bounds = async {
            match find(TIME_BOUNDS) {
                Some(document) => {
                    let path = below(level, TIME_BOUNDS);
                    Ok(Some(numbers(storage, &path, document, 2).await?))
                }
                None => Ok(None),
            }
        };
        futures::try_join!(times, items, bounds)
    };
    let (times, items, bounds) = reading.await?;
    let corrupt = |what: String| Error::new(ErrorKind::Corrupt, what).at(storage.locate(level));
    if let Some(bounds) = bounds.as_ref().filter(|all| all.len() != times.len() * 2) {
        let message = format!(
            "{} time bounds, expected those of {} time steps",
            bounds.len() / 2,
            times.len()
        );
        return Err(corrupt(message));
    }
    let instant = |millis: i64| {
        let time: Option<DateTime<Utc>> = DateTime::from_timestamp_millis(millis);
        time.ok_or_else(|| corrupt(format!("time {millis} ms is out of range")))
    };
    let mut steps = Vec::with_capacity(times.len());
    for (number, &millis) in times.iter().enumerate() {
        let pair = bounds
            .as_ref()
            .and_then(|all| all.get(number * 2..number * 2 + 2));
        let bounds = match pair {
            Some(&[start, end]) => Some(TimeBounds::of(instant(start)?, instant(end)?)),
            _ => None,
        };
        steps.push(TimeStep {
            time: instant(millis)?,
            bounds,
            items: items
                .get(number)
                .map(|text| describe::ids_of_text(text))
                .unwrap_or_default(),
        });
    }
    let per_chunk = Chunks::of(time).map_or(STEPS_PER_CHUNK, |chunks| chunks.per_chunk);
    Ok((steps, per_chunk))
}

/// Reads integers of one or two axes.
async fn numbers(storage: &Storage, path: &str, document: &Value, axes: usize) -> Result<Vec<i64>> {
    let array = Array::of_document(storage.clone(), path, document)?;
    let plain = json!([{"name": "bytes", "configuration": {"endian": "little"}}]);
    let is_plain = document.get("codecs") == Some(&plain)
        && document.get("data_type") == Some(&json!("int64"))
        && array.shape().get(1).is_none_or(|&length| length == 2)
        && array.chunk().get(1).is_none_or(|&length| length == 2)
        && array.shape().len() == axes;
    match Chunks::of(document).filter(|_| is_plain) {
        Some(chunks) => {
            let decode = |bytes: &[u8], count: usize| {
                let (words, _) = bytes.get(..count * axes * 8)?.as_chunks::<8>();
                Some(words.iter().copied().map(i64::from_le_bytes).collect())
            };
            chunks.read(storage, path, axes, decode).await
        }
        None => {
            let ranges: Vec<_> = array.shape().iter().map(|&length| 0..length).collect();
            let values: ArrayD<i64> = array.read(&ranges).await?;
            Ok(values.into_iter().collect())
        }
    }
}

/// Reads texts, which `Array` has no dtype for.
async fn texts(storage: &Storage, path: &str, document: &Value) -> Result<Vec<String>> {
    match Chunks::of(document) {
        Some(chunks) => chunks.read(storage, path, 1, vlen::decode).await,
        None => Ok(Vec::new()),
    }
}
