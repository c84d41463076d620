//! The codec chain of a chunk.

use std::ops::Range;

use serde_json::{Value, json};

use super::{
    Codec, Compressor, Shuffle, blosc,
    lz::{self, Cname, Wrapping},
    shuffle,
};
use crate::{
    array::{
        extension::{self, Extension},
        shard::Sharding,
    },
    error::{Error, ErrorKind, Result},
};

/// The codecs of an array's chunks or shards.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    /// The transposition: axis `i` of the stored samples is axis `order[i]` of the array.
    order: Option<Vec<usize>>,
    samples: Samples,
    /// In the order in which they encode.
    steps: Vec<Step>,
}

/// How samples become bytes.
#[derive(Clone, Debug)]
enum Samples {
    Bytes { big_endian: bool },
    Shard(Box<Sharding>),
}

/// A bytes-to-bytes codec.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The settings to write with; decoding takes them from the frame.
    Blosc(blosc::Spec),
    Zstd {
        level: i32,
    },
    Gzip {
        level: i32,
    },
    Zlib,
    Crc32c,
    /// Byte shuffle of elements of so many bytes: a filter of its own, as files converted from HDF5 have it.
    Shuffle {
        size: usize,
    },
    /// Differences of neighbouring little-endian integers of so many bytes.
    Delta {
        size: usize,
    },
}

/// Buffers to decode or encode a chunk in, reused from one to the next.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    front: Vec<u8>,
    back: Vec<u8>,
    spare: Vec<u8>,
}

/// The shape of the samples that a chunk decodes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape<'a> {
    pub(crate) axes: &'a [usize],
    /// Bytes of one sample.
    pub(crate) sample: usize,
    /// Bytes whose order is reversed in big-endian data: half a complex sample, else a sample.
    pub(crate) word: usize,
    /// The fill value's bytes, little-endian.
    pub(crate) fill: &'a [u8],
}

impl Shape<'_> {
    /// Returns the bytes of all samples, or an error if they do not fit memory.
    pub(crate) fn bytes(&self) -> Result<usize> {
        self.axes
            .iter()
            .try_fold(self.sample, |bytes, &axis| bytes.checked_mul(axis))
            .filter(|&bytes| isize::try_from(bytes).is_ok())
            .ok_or_else(|| Error::new(ErrorKind::Corrupt, "a chunk that does not fit memory"))
    }
}

fn corrupt(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, what.into())
}

fn unsupported(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, what.into())
}

impl Chain {
    /// Makes the chain for a user's choice: compression, then a checksum of the compressed bytes.
    pub(crate) fn of(codec: Codec, sample: usize) -> Self {
        let compress = match codec {
            Codec::None => None,
            Codec::Zstd { level } => Some(Step::Zstd { level }),
            Codec::Gzip { level } => Some(Step::Gzip { level }),
            Codec::Auto => Some(Step::Blosc(blosc::Spec {
                cname: Cname::Zstd,
                level: None,
                shuffle: Shuffle::Auto,
                sample,
                block: blosc::SMALL_BLOCK,
            })),
            Codec::Blosc {
                compressor,
                level,
                shuffle,
            } => Some(Step::Blosc(blosc::Spec {
                cname: match compressor {
                    Compressor::Lz4 => Cname::Lz4,
                    Compressor::Zstd => Cname::Zstd,
                },
                level: Some(level),
                shuffle,
                sample,
                block: blosc::SMALL_BLOCK,
            })),
        };
        Self {
            order: None,
            samples: Samples::Bytes { big_endian: false },
            steps: compress.into_iter().chain([Step::Crc32c]).collect(),
        }
    }

    /// Makes the chain of an array whose objects are shards.
    pub(crate) fn of_shards(sharding: Sharding) -> Self {
        Self {
            order: None,
            samples: Samples::Shard(Box::new(sharding)),
            steps: Vec::new(),
        }
    }

    /// Reads the `codecs` of an array or of a shard.
    pub(crate) fn parse(codecs: &Value, rank: usize, sample: usize) -> Result<Self> {
        let mut order: Option<Vec<usize>> = None;
        let mut samples = None;
        let mut steps = Vec::new();
        for codec in extension::list(codecs, "codecs")? {
            match (codec.name, &samples) {
                ("transpose", None) => {
                    let next = transposition(&codec, rank)?;
                    order = Some(match order {
                        Some(first) => next.iter().map(|&axis| first[axis]).collect(),
                        None => next,
                    });
                }
                ("bytes" | "endian", None) => {
                    let big_endian = match codec.text("endian") {
                        Some("big") => true,
                        Some("little") | None => false,
                        Some(other) => return Err(corrupt(format!("endian `{other}`"))),
                    };
                    samples = Some(Samples::Bytes { big_endian });
                }
                ("sharding_indexed", None) => {
                    let sharding = Sharding::parse(&codec, rank, sample)?;
                    samples = Some(Samples::Shard(Box::new(sharding)));
                }
                (_, Some(_)) => match Step::parse(&codec, sample) {
                    Err(err) if codec.is_optional && err.kind() == ErrorKind::Unsupported => {}
                    step => steps.push(step?),
                },
                (_, None) if codec.is_optional => {}
                (name, None) => {
                    return Err(unsupported(format!(
                        "codec `{name}`, which is not one of transpose, bytes, sharding_indexed"
                    )));
                }
            }
        }
        let samples = samples
            .ok_or_else(|| corrupt("`codecs` without an array-to-bytes codec, expected `bytes`"))?;
        Ok(Self {
            order,
            samples,
            steps,
        })
    }

    /// Reads the `codecs` of an array of texts after the first one, which makes bytes of them.
    pub(crate) fn of_texts<'a>(codecs: impl Iterator<Item = &'a Extension<'a>>) -> Result<Self> {
        let steps = codecs.map(|codec| Step::parse(codec, 1));
        Ok(Self {
            order: None,
            samples: Samples::Bytes { big_endian: false },
            steps: steps.collect::<Result<_>>()?,
        })
    }

    /// Makes the chain of an array of Zarr v2, whose samples have `sample` bytes; filters encode before the compressor.
    pub(crate) fn of_v2(
        filters: &[Value],
        compressor: &Value,
        big_endian: bool,
        fortran: bool,
        rank: usize,
        sample: usize,
    ) -> Result<Self> {
        let filters = filters.iter().map(|filter| {
            let name = filter.get("id").and_then(Value::as_str).unwrap_or_default();
            let text = |key: &str| filter.get(key).and_then(Value::as_str);
            let size = filter.get("elementsize").and_then(Value::as_u64);
            match name {
                "shuffle" => shuffled(size),
                "delta" if is_delta(text("dtype"), text("astype"), sample) => {
                    Ok(Step::Delta { size: sample })
                }
                _ => Err(unsupported(format!(
                    "filter `{name}` of Zarr v2, which is not one of shuffle, delta of integers"
                ))),
            }
        });
        let filters: Vec<Step> = filters.collect::<Result<_>>()?;
        let step = match compressor.get("id").and_then(Value::as_str) {
            None if compressor.is_null() => None,
            // Arrays of v2 are only read, and a frame holds its own settings.
            Some("blosc") => Some(Step::Blosc(blosc::Spec {
                cname: Cname::Lz4,
                level: None,
                shuffle: Shuffle::None,
                sample: 1,
                block: blosc::SMALL_BLOCK,
            })),
            Some("zstd") => Some(Step::Zstd { level: 1 }),
            Some("gzip") => Some(Step::Gzip { level: 1 }),
            Some("zlib") => Some(Step::Zlib),
            other => {
                let name = other.unwrap_or_default();
                return Err(unsupported(format!(
                    "compressor `{name}`, which is not one of blosc, zstd, gzip, zlib"
                )));
            }
        };
        Ok(Self {
            order: fortran.then(|| (0..rank).rev().collect()),
            samples: Samples::Bytes { big_endian },
            steps: filters.into_iter().chain(step).collect(),
        })
    }

    /// Undoes compression and checksums alone, of an object that is no block of samples; `most` bytes at most.
    pub(crate) fn undo(&self, bytes: &[u8], most: usize) -> Result<Vec<u8>> {
        let (mut front, mut back, mut spare) = (bytes.to_vec(), Vec::new(), Vec::new());
        for step in self.steps.iter().rev() {
            let length = match step {
                Step::Crc32c => checked(&front)?,
                step => {
                    let got = step.decode(&front, None, most, &(0..0), &mut back, &mut spare)?;
                    std::mem::swap(&mut front, &mut back);
                    got
                }
            };
            front.truncate(length);
        }
        Ok(front)
    }

    /// Returns the `codecs` of the metadata. Only for a chain made by [`Chain::of`] or [`Chain::of_shards`].
    pub(crate) fn to_json(&self) -> Value {
        let mut codecs = vec![match &self.samples {
            Samples::Bytes { .. } => {
                json!({"name": "bytes", "configuration": {"endian": "little"}})
            }
            Samples::Shard(sharding) => sharding.to_json(),
        }];
        codecs.extend(self.steps.iter().copied().map(Step::to_json));
        Value::Array(codecs)
    }

    /// Checks that [`Chain::encode`] writes this chain. Arrays of other writers may have another order of axes
    /// or bytes, or the index of a shard at its start.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] if it does not.
    pub(crate) fn check_writable(&self) -> Result<()> {
        let can = self.order.is_none()
            && match &self.samples {
                Samples::Bytes { big_endian } => {
                    !big_endian && self.steps.iter().all(Step::can_encode)
                }
                Samples::Shard(sharding) => {
                    let inner = &sharding.inner;
                    self.steps.is_empty()
                        && sharding.is_plain()
                        && matches!(inner.samples, Samples::Bytes { .. })
                        && inner.check_writable().is_ok()
                }
            };
        match can {
            true => Ok(()),
            false => Err(unsupported(
                "writing an array whose chunks are not little-endian samples in C order, or whose shards \
                 have no index with a checksum at their end",
            )),
        }
    }

    /// Returns the sharding where no other codec is around it: only then do the byte ranges of its index apply to the
    /// object, and a part of a shard can be read.
    pub(crate) fn as_shards(&self) -> Option<&Sharding> {
        match &self.samples {
            Samples::Shard(sharding) if self.order.is_none() && self.steps.is_empty() => {
                Some(sharding)
            }
            _ => None,
        }
    }

    /// Returns the chain with the settings that are left open (level, shuffle, block size) chosen for these chunks.
    pub(crate) fn tuned(&self, chunks: &[Vec<u8>]) -> Result<Self> {
        let mut tuned = self.clone();
        for step in &mut tuned.steps {
            if let Step::Blosc(spec) = step {
                *spec = suited(chunks, spec)?;
            }
        }
        Ok(tuned)
    }

    /// Appends the encoded bytes of a chunk to `out`. Only for a chain that passes [`Chain::check_writable`].
    pub(crate) fn encode(
        &self,
        samples: &[u8],
        out: &mut Vec<u8>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let start = out.len();
        let mut compressed = false;
        for step in &self.steps {
            match step {
                Step::Blosc(spec) => blosc::encode(samples, spec, out, &mut scratch.spare)?,
                Step::Zstd { level } => {
                    let most = zstd::zstd_safe::compress_bound(samples.len());
                    lz::with_room(most, |room| {
                        let length = lz::to_zstd(*level, samples, room)?;
                        out.extend_from_slice(room.get(..length).unwrap_or_default());
                        Ok(())
                    })?;
                }
                Step::Gzip { level } => lz::to_gzip(*level, samples, out)?,
                Step::Zlib => return Err(unsupported("writing zlib")),
                Step::Shuffle { .. } | Step::Delta { .. } => {
                    return Err(unsupported("writing filters of Zarr v2"));
                }
                Step::Crc32c => {
                    if !compressed {
                        out.extend_from_slice(samples);
                    }
                    let sum = crc32c(out.get(start..).unwrap_or_default());
                    out.extend_from_slice(&sum.to_le_bytes());
                }
            }
            compressed = true;
        }
        Ok(())
    }

    /// Decodes a chunk and returns its samples, little-endian, in C order. Outside of `wanted`, a range of bytes of
    /// the samples, they are undefined.
    pub(crate) fn decode<'a>(
        &self,
        bytes: &'a [u8],
        wanted: &Range<usize>,
        shape: &Shape<'_>,
        scratch: &'a mut Scratch,
    ) -> Result<&'a [u8]> {
        let length = shape.bytes()?;
        let plain = self.order.is_none();
        let whole = 0..length;
        let wanted = if plain { wanted } else { &whole };
        let is_shard = matches!(self.samples, Samples::Shard(_));
        // The data between two codecs may be longer than the samples, since codecs add headers; the limit keeps
        // damaged data from allocating without bound.
        let most = length.saturating_add(length / 8).saturating_add(1 << 16);
        let mut rest = bytes;
        let mut held = None;
        for (number, step) in self.steps.iter().enumerate().rev() {
            let exact = (number == 0 && !is_shard).then_some(length);
            let input = match held {
                Some(length) => scratch.front.get(..length).unwrap_or_default(),
                None => rest,
            };
            // A checksum is verified in place: it only shortens the input.
            if let Step::Crc32c = step {
                let inner = checked(input)?;
                match &mut held {
                    Some(length) => *length = inner,
                    None => rest = rest.get(..inner).unwrap_or_default(),
                }
                continue;
            }
            let got = step.decode(
                input,
                exact,
                most,
                wanted,
                &mut scratch.back,
                &mut scratch.spare,
            )?;
            std::mem::swap(&mut scratch.front, &mut scratch.back);
            held = Some(got);
        }
        let got = held.unwrap_or(rest.len());
        if !is_shard && got != length {
            return Err(corrupt(format!(
                "a chunk decodes to {got} bytes, expected {length}"
            )));
        }
        let stored: Vec<usize> = match &self.order {
            Some(order) => order
                .iter()
                .filter_map(|&axis| shape.axes.get(axis).copied())
                .collect(),
            None => shape.axes.to_vec(),
        };
        match &self.samples {
            Samples::Bytes { big_endian: true } if shape.word > 1 => {
                if held.is_none() {
                    replace(&mut scratch.front, rest);
                }
                let samples = scratch.front.get_mut(..length).unwrap_or_default();
                for word in samples.chunks_exact_mut(shape.word) {
                    word.reverse();
                }
                held = Some(length);
            }
            Samples::Bytes { .. } => {}
            Samples::Shard(sharding) => {
                let inside = Shape {
                    axes: &stored,
                    ..*shape
                };
                let input = match held {
                    Some(length) => scratch.front.get(..length).unwrap_or_default(),
                    None => rest,
                };
                let samples = sharding.decode_all(input, &inside)?;
                scratch.front = samples;
                held = Some(length);
            }
        }
        if let Some(order) = &self.order {
            if held.is_none() {
                replace(&mut scratch.front, rest);
            }
            let samples = scratch.front.get(..length).unwrap_or_default();
            if scratch.back.len() < length {
                scratch.back.resize(length, 0);
            }
            transpose(samples, &stored, order, shape, &mut scratch.back);
            std::mem::swap(&mut scratch.front, &mut scratch.back);
            held = Some(length);
        }
        Ok(match held {
            Some(length) => scratch.front.get(..length).unwrap_or_default(),
            None => rest,
        })
    }
}

/// The Blosc levels that are tried where none is chosen.
const FAST: i32 = 1;
const SMALL: i32 = 5;

/// Chooses the settings that are left open by encoding parts of the samples: shuffle, block size, and a higher level.
/// Settings that take longer to read or to write must save a stated percentage of the bytes.
fn suited(parts: &[Vec<u8>], spec: &blosc::Spec) -> Result<blosc::Spec> {
    let level = spec.level.unwrap_or(FAST);
    let shuffles: &[Shuffle] = match spec.shuffle {
        Shuffle::Auto if spec.sample == 1 => &[Shuffle::None],
        // LZ4 is chosen for its speed, which bit shuffle would cost.
        Shuffle::Auto if spec.cname == Cname::Lz4 => &[Shuffle::None, Shuffle::Byte],
        Shuffle::Auto => &[Shuffle::None, Shuffle::Byte, Shuffle::Bit],
        _ => std::slice::from_ref(&spec.shuffle),
    };
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let fast = cheapest(&parts, spec, level, shuffles)?;
    if spec.level.is_some() {
        return Ok(fast.spec);
    }
    // A higher level finds distant repetitions in unshuffled samples, so shuffling may no longer help.
    let mut shuffles = vec![fast.spec.shuffle];
    if spec.shuffle == Shuffle::Auto && fast.spec.shuffle != Shuffle::None {
        shuffles.push(Shuffle::None);
    }
    // A higher level takes long on incompressible samples: a small part shows whether it can pay off.
    let few = |part: &&[u8]| part.len().min(blosc::SMALL_BLOCK) / spec.sample * spec.sample;
    let first: Vec<&[u8]> = parts
        .iter()
        .take(1)
        .map(|part| &part[..few(part)])
        .collect();
    let quick = cheapest(&first, spec, level, &[fast.spec.shuffle])?;
    if !cheapest(&first, spec, SMALL, &shuffles)?.is_worth_it(&quick) {
        return Ok(fast.spec);
    }
    let small = cheapest(&parts, spec, SMALL, &shuffles)?;
    Ok(match small.is_worth_it(&fast) {
        true => small.spec,
        false => fast.spec,
    })
}

/// Settings and their cost: compressed bytes, plus a percentage for those that take longer to read.
#[derive(Clone, Copy)]
struct Tried {
    spec: blosc::Spec,
    cost: usize,
}

impl Tried {
    /// Returns true if settings of a higher level save enough: 4 %.
    fn is_worth_it(&self, fast: &Self) -> bool {
        self.cost + self.cost * 4 / 100 < fast.cost
    }
}

/// Returns the cheapest settings with these shuffles and either block size.
fn cheapest(
    parts: &[&[u8]],
    spec: &blosc::Spec,
    level: i32,
    shuffles: &[Shuffle],
) -> Result<Tried> {
    let is_long = parts.iter().any(|part| part.len() > blosc::SMALL_BLOCK);
    let blocks: &[usize] = match is_long {
        true => &[blosc::SMALL_BLOCK, blosc::LARGE_BLOCK],
        false => &[blosc::SMALL_BLOCK],
    };
    let (mut out, mut spare) = (Vec::new(), Vec::new());
    let mut best = Tried {
        spec: *spec,
        cost: usize::MAX,
    };
    for &shuffle in shuffles {
        for &block in blocks {
            let spec = blosc::Spec {
                level: Some(level),
                shuffle,
                block,
                ..*spec
            };
            out.clear();
            for part in parts {
                blosc::encode(part, &spec, &mut out, &mut spare)?;
            }
            // Unshuffling takes time on every read, bit shuffle much more than byte shuffle; large blocks cost reads of
            // a part of a chunk.
            let hundredths = match shuffle {
                Shuffle::Bit => 16,
                Shuffle::Byte => 2,
                Shuffle::None | Shuffle::Auto => 0,
            } + if block > blosc::SMALL_BLOCK { 4 } else { 0 };
            let cost = out.len() + out.len() * hundredths / 100;
            if cost < best.cost {
                best = Tried { spec, cost };
            }
        }
    }
    Ok(best)
}

fn replace(buffer: &mut Vec<u8>, bytes: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(bytes);
}

/// Transposes samples from the stored order of axes to the array's.
fn transpose(from: &[u8], stored: &[usize], order: &[usize], shape: &Shape<'_>, to: &mut [u8]) {
    // Strides of the stored axes in the array's C order.
    let mut strides = vec![shape.sample; shape.axes.len()];
    for axis in (1..strides.len()).rev() {
        strides[axis - 1] = strides[axis] * shape.axes[axis];
    }
    let strides: Vec<usize> = order.iter().map(|&axis| strides[axis]).collect();
    let mut index = vec![0; stored.len()];
    let mut at = 0;
    for sample in from.chunks_exact(shape.sample) {
        to[at..at + shape.sample].copy_from_slice(sample);
        for axis in (0..stored.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < stored[axis] {
                break;
            }
            at -= strides[axis] * stored[axis];
            index[axis] = 0;
        }
    }
}

/// Returns the length of the data before its checksum, if the checksum matches.
fn checked(bytes: &[u8]) -> Result<usize> {
    let Some((inner, sum)) = bytes.split_last_chunk::<4>() else {
        return Err(corrupt("its checksum (crc32c) is truncated"));
    };
    if crc32c(inner) != u32::from_le_bytes(*sum) {
        return Err(corrupt("its checksum (crc32c) does not match"));
    }
    Ok(inner.len())
}

/// Returns the checksum of bytes, [RFC 3720](https://www.rfc-editor.org/rfc/rfc3720#section-12.1).
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

fn transposition(codec: &Extension<'_>, rank: usize) -> Result<Vec<usize>> {
    let order = codec.configuration.get("order");
    let order: Option<Vec<usize>> = match order {
        Some(Value::String(order)) if order == "C" => Some((0..rank).collect()),
        Some(Value::String(order)) if order == "F" => Some((0..rank).rev().collect()),
        Some(Value::Array(axes)) => axes
            .iter()
            .map(|axis| axis.as_u64().and_then(|axis| usize::try_from(axis).ok()))
            .collect(),
        _ => None,
    };
    order
        .filter(|order| {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            sorted.into_iter().eq(0..rank)
        })
        .ok_or_else(|| corrupt(format!("`order` is not a permutation of {rank} axes")))
}

impl Step {
    fn can_encode(&self) -> bool {
        match self {
            Self::Blosc(spec) => matches!(spec.cname, Cname::Lz4 | Cname::Zstd),
            Self::Zlib | Self::Shuffle { .. } | Self::Delta { .. } => false,
            Self::Zstd { .. } | Self::Gzip { .. } | Self::Crc32c => true,
        }
    }

    fn parse(codec: &Extension<'_>, sample: usize) -> Result<Self> {
        Ok(match codec.name {
            // numcodecs' names of the same frames.
            "blosc" | "numcodecs.blosc" => Self::Blosc(blosc::Spec {
                cname: match codec.text("cname") {
                    Some("zstd") => Cname::Zstd,
                    Some("blosclz") => Cname::BloscLz,
                    Some("snappy") => Cname::Snappy,
                    Some("zlib") => Cname::Zlib,
                    _ => Cname::Lz4,
                },
                level: Some(codec.level("clevel", FAST)),
                shuffle: match codec.text("shuffle") {
                    Some("shuffle") => Shuffle::Byte,
                    Some("bitshuffle") => Shuffle::Bit,
                    _ => Shuffle::None,
                },
                sample,
                block: blosc::SMALL_BLOCK,
            }),
            "zstd" | "numcodecs.zstd" => Self::Zstd {
                level: codec.level("level", 1),
            },
            "gzip" | "numcodecs.gzip" => Self::Gzip {
                level: codec.level("level", 6),
            },
            "numcodecs.zlib" | "zlib" => Self::Zlib,
            "crc32c" => Self::Crc32c,
            "numcodecs.shuffle" => {
                let size = codec.configuration.get("elementsize");
                shuffled(size.and_then(Value::as_u64))?
            }
            name => {
                return Err(unsupported(format!(
                    "codec `{name}`, which is not one of blosc, zstd, gzip, zlib, crc32c"
                )));
            }
        })
    }

    fn to_json(self) -> Value {
        match self {
            Self::Blosc(spec) => {
                let inside = match spec.cname {
                    Cname::Zstd => "zstd",
                    _ => "lz4",
                };
                let shuffle = match spec.shuffle {
                    Shuffle::None => "noshuffle",
                    Shuffle::Bit => "bitshuffle",
                    Shuffle::Auto if spec.sample == 1 => "noshuffle",
                    Shuffle::Auto | Shuffle::Byte => "shuffle",
                };
                json!({"name": "blosc", "configuration": {
                    "cname": inside, "clevel": spec.level.unwrap_or(SMALL), "shuffle": shuffle,
                    "typesize": spec.sample, "blocksize": 0,
                }})
            }
            Self::Zstd { level } => {
                json!({"name": "zstd", "configuration": {"level": level, "checksum": false}})
            }
            Self::Gzip { level } => json!({"name": "gzip", "configuration": {"level": level}}),
            Self::Zlib => json!({"name": "numcodecs.zlib", "configuration": {"level": 1}}),
            Self::Crc32c => json!({"name": "crc32c"}),
            Self::Shuffle { size } => {
                json!({"name": "numcodecs.shuffle", "configuration": {"elementsize": size}})
            }
            Self::Delta { .. } => json!({"name": "numcodecs.delta"}),
        }
    }

    /// Decodes into the first bytes of `out` and returns how many. `exact` is the expected number, where it is
    /// known; `most` the upper limit.
    fn decode(
        &self,
        bytes: &[u8],
        exact: Option<usize>,
        most: usize,
        wanted: &Range<usize>,
        out: &mut Vec<u8>,
        spare: &mut Vec<u8>,
    ) -> Result<usize> {
        let mut reserve = |length: usize| {
            if out.len() < length {
                out.resize(length, 0);
            }
        };
        match self {
            Self::Blosc(_) => {
                let length = blosc::decoded_length(bytes)?;
                if let Some(exact) = exact.filter(|&exact| exact != length) {
                    return Err(corrupt(format!(
                        "a Blosc frame holds {length} bytes, expected {exact}"
                    )));
                }
                if length > most {
                    return Err(corrupt(format!(
                        "a Blosc frame holds {length} bytes, expected at most {most}"
                    )));
                }
                reserve(length);
                let whole = 0..length;
                let wanted = if exact.is_some() { wanted } else { &whole };
                blosc::decode(bytes, wanted, &mut out[..length], spare)?;
                Ok(length)
            }
            Self::Zstd { .. } => {
                let length = exact.unwrap_or(most);
                reserve(length);
                lz::unzstd(bytes, &mut out[..length])
            }
            Self::Gzip { .. } | Self::Zlib => {
                let wrapping = match self {
                    Self::Zlib => Wrapping::Zlib,
                    _ => Wrapping::Gzip,
                };
                let length = exact.unwrap_or(most);
                reserve(length);
                lz::inflate(bytes, &mut out[..length], wrapping)?
                    .ok_or_else(|| corrupt(format!("DEFLATE data of more than {length} bytes")))
            }
            Self::Shuffle { size } => {
                reserve(bytes.len());
                // What does not fill an element is stored as it is.
                let whole = bytes.len() / size * size;
                shuffle::unshuffle(&bytes[..whole], &mut out[..whole], *size);
                out[whole..bytes.len()].copy_from_slice(&bytes[whole..]);
                Ok(bytes.len())
            }
            Self::Delta { size } => {
                reserve(bytes.len());
                out[..bytes.len()].copy_from_slice(bytes);
                let mut sum = 0_u64;
                for word in out[..bytes.len()].chunks_exact_mut(*size) {
                    let mut wide = [0; 8];
                    wide[..*size].copy_from_slice(word);
                    // Sums wrap, as those of the narrower integers do in their lower bytes.
                    sum = sum.wrapping_add(u64::from_le_bytes(wide));
                    word.copy_from_slice(&sum.to_le_bytes()[..*size]);
                }
                Ok(bytes.len())
            }
            Self::Crc32c => Ok(0),
        }
    }
}

/// Makes the filter that undoes byte shuffle.
fn shuffled(size: Option<u64>) -> Result<Step> {
    let size = size.unwrap_or(4);
    match usize::try_from(size) {
        Ok(size) if (1..=64).contains(&size) => Ok(Step::Shuffle { size }),
        _ => Err(corrupt(format!(
            "`elementsize` of `shuffle` is {size}, expected 1 to 64"
        ))),
    }
}

/// Returns true if differences are of little-endian integers of `sample` bytes, stored as such.
fn is_delta(dtype: Option<&str>, stored: Option<&str>, sample: usize) -> bool {
    let is_integer = |dtype: &str| {
        matches!(dtype.split_at_checked(1), Some(("<" | "|", name))
            if name.strip_prefix(['i', 'u']) == Some(sample.to_string().as_str()))
    };
    sample <= 8
        && dtype.is_some_and(is_integer)
        && stored.is_none_or(|stored| Some(stored) == dtype)
}
