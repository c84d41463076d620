//! The systems in Rust, each a process of its own: `rss_core`, and the crate `zarrs` as it comes.

use std::{
    fs::{self, File},
    io::{BufRead, Read, Write},
    path::Path,
    str::FromStr,
    sync::Arc,
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};
use ndarray::ArrayD;
use rss_core::{
    Location, Sample, Session,
    zarr::{Array, ArraySpec, Codec, Compressor, Shuffle},
};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use zarrs::{
    array::{ArrayMetadata, ArraySubset, Element, ElementOwned},
    filesystem::FilesystemStore,
};

use super::job::{Cost, Cut, Hello, Job, Refusal, Whole};
use crate::machine::cpu_time;

/// Bytes that are converted at once.
const PIECE_BYTES: usize = 1 << 20;

/// Is a system until standard input ends: `ours` or `zarrs`.
///
/// # Errors
///
/// If there is no such system, or standard input or output fails. A job that fails is an answer.
pub(crate) fn worker(system: &str) -> Result<()> {
    let system: System = system.parse()?;
    for line in std::io::stdin().lock().lines() {
        let answered = answer(&system, &line?).or_else(|err| {
            serde_json::to_value(Refusal {
                error: format!("{err:#}"),
            })
        });
        let mut out = std::io::stdout().lock();
        serde_json::to_writer(&mut out, &answered?)?;
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}

fn answer(system: &System, line: &str) -> Result<Value> {
    let job: Job = serde_json::from_str(line).context("not a job")?;
    let dtype = match &job {
        Job::Hello => return value(&system.hello()),
        Job::Write { dtype, .. } | Job::Read { dtype, .. } => dtype.clone(),
        Job::Cutout { from, .. } => dtype_of(Path::new(from))?,
    };
    match dtype.as_str() {
        "uint8" => done::<u8>(system, &job),
        "uint32" => done::<u32>(system, &job),
        "int16" => done::<i16>(system, &job),
        _ => bail!("samples of {dtype}, expected uint8, uint32 or int16"),
    }
}

fn value(answer: &impl Serialize) -> Result<Value> {
    Ok(serde_json::to_value(answer)?)
}

/// Returns the type of the samples of an array.
fn dtype_of(folder: &Path) -> Result<String> {
    let path = folder.join("zarr.json");
    let document = fs::read(&path).with_context(|| path.display().to_string())?;
    let document: Value = serde_json::from_slice(&document)?;
    let dtype = document.get("data_type").and_then(Value::as_str);
    Ok(dtype.context("an array without a type")?.to_owned())
}

fn done<T: Number>(system: &System, job: &Job) -> Result<Value> {
    match job {
        Job::Hello => value(&system.hello()),
        Job::Write {
            source,
            shape,
            shard,
            inner,
            to,
            codec,
            ..
        } => {
            let to = Path::new(to);
            if to.exists() {
                fs::remove_dir_all(to)?;
            }
            if let Some(folder) = to.parent() {
                fs::create_dir_all(folder)?;
            }
            let samples: ArrayD<T> = source_of(Path::new(source), shape)?;
            let grid = Grid {
                shape,
                shard,
                inner,
            };
            let (cost, ()) = system.write(to, &grid, codec, samples)?;
            value(&cost)
        }
        Job::Read { from, shape, .. } => {
            let (cost, array) = measured(|| {
                let array = system.open(Path::new(from))?;
                array.cut::<T>(&vec![0; shape.len()], shape)
            })?;
            let crc32 = crc32(&array);
            value(&Whole { cost, crc32 })
        }
        Job::Cutout {
            from,
            offset,
            shape,
            times,
            fresh,
        } => {
            ensure!(offset.len() == shape.len(), "a box without an end");
            let from = Path::new(from);
            let kept = match fresh {
                true => None,
                false => Some(system.open(from)?),
            };
            let mut seconds = Vec::with_capacity(*times);
            let mut last = None;
            for _ in 0..*times {
                let start = Instant::now();
                let array = match &kept {
                    Some(array) => array.cut::<T>(offset, shape)?,
                    None => system.open(from)?.cut::<T>(offset, shape)?,
                };
                seconds.push(start.elapsed().as_secs_f64());
                last = Some(array);
            }
            let crc32 = crc32(&last.context("a cutout of no times")?);
            value(&Cut { seconds, crc32 })
        }
    }
}

/// Where chunks and shards end.
struct Grid<'a> {
    shape: &'a [u64],
    shard: &'a [u64],
    inner: &'a [u64],
}

/// A system.
enum System {
    Ours { runtime: Runtime, session: Session },
    Zarrs,
}

impl FromStr for System {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "ours" => Ok(Self::Ours {
                runtime: Runtime::new()?,
                session: Session::builder().build()?,
            }),
            "zarrs" => Ok(Self::Zarrs),
            _ => bail!("system `{text}` is not one of ours, zarrs"),
        }
    }
}

impl System {
    fn hello(&self) -> Hello {
        let (system, version, codec) = match self {
            Self::Ours { .. } => (
                "ours",
                env!("CARGO_PKG_VERSION"),
                Codec::default().to_string(),
            ),
            Self::Zarrs => (
                "zarrs",
                zarrs::version::version_str(),
                "blosc zstd 5".to_owned(),
            ),
        };
        Hello {
            system: system.to_owned(),
            version: version.to_owned(),
            codec: format!("sharding_indexed, bytes, {codec}"),
        }
    }

    fn write<T: Number>(
        &self,
        to: &Path,
        grid: &Grid<'_>,
        codec: &str,
        samples: ArrayD<T>,
    ) -> Result<(Cost, ())> {
        let size = size_of::<T>();
        match self {
            Self::Ours { runtime, session } => {
                let spec = ArraySpec::new(grid.shape, T::DTYPE, grid.inner)
                    .with_shard(grid.shard)
                    .with_codec(ours(codec, size)?);
                let location = Location::Local(to.to_owned());
                measured(|| {
                    runtime.block_on(async {
                        let array = Array::create(session, &location, &spec).await?;
                        let start = vec![0; grid.shape.len()];
                        Ok(array.write(&start, samples).await?)
                    })
                })
            }
            Self::Zarrs => {
                let document = document(grid, codec, &T::DTYPE.to_string(), size)?;
                measured(|| {
                    let metadata = ArrayMetadata::try_from(document.as_str())?;
                    let store = Arc::new(FilesystemStore::new(to)?);
                    let array = zarrs::array::Array::new_with_metadata(store, "/", metadata)?;
                    array.store_metadata()?;
                    let shards = ArraySubset::new_with_shape(array.chunk_grid_shape().to_vec());
                    Ok(array.store_chunks(&shards, samples)?)
                })
            }
        }
    }

    fn open(&self, from: &Path) -> Result<Open<'_>> {
        match self {
            Self::Ours { runtime, session } => {
                let location = Location::Local(from.to_owned());
                let array = runtime.block_on(Array::open(session, &location))?;
                Ok(Open::Ours(runtime, array))
            }
            Self::Zarrs => {
                let store = Arc::new(FilesystemStore::new(from)?);
                Ok(Open::Zarrs(zarrs::array::Array::open(store, "/")?))
            }
        }
    }
}

/// An open array.
#[expect(clippy::large_enum_variant, reason = "there is one")]
enum Open<'a> {
    Ours(&'a Runtime, Array),
    Zarrs(zarrs::array::Array<FilesystemStore>),
}

impl Open<'_> {
    fn cut<T: Number>(&self, offset: &[u64], shape: &[u64]) -> Result<ArrayD<T>> {
        let ranges: Vec<_> = offset
            .iter()
            .zip(shape)
            .map(|(&start, &length)| start..start + length)
            .collect();
        match self {
            Self::Ours(runtime, array) => Ok(runtime.block_on(array.read(&ranges))?),
            Self::Zarrs(array) => {
                Ok(array.retrieve_array_subset(&ArraySubset::new_with_ranges(&ranges))?)
            }
        }
    }
}

/// Returns a codec of the protocol, as `rss_core` names it.
fn ours(codec: &str, size: usize) -> Result<Codec> {
    let blosc = |compressor| Codec::Blosc {
        compressor,
        level: 5,
        shuffle: match size {
            1 => Shuffle::None,
            _ => Shuffle::Byte,
        },
    };
    Ok(match codec {
        "default" | "native" => Codec::default(),
        "lz4" => "blosc-lz4".parse()?,
        "blosc-lz4" => blosc(Compressor::Lz4),
        "blosc-zstd5" => blosc(Compressor::Zstd),
        "zstd1" => Codec::Zstd { level: 1 },
        _ => bail!("{codec} is not one of native, default, lz4, blosc-zstd5, blosc-lz4, zstd1"),
    })
}

/// Returns the metadata that `zarrs` is told to write.
fn document(grid: &Grid<'_>, codec: &str, dtype: &str, size: usize) -> Result<String> {
    let blosc = |name: &str| {
        let shuffle = match size {
            1 => "noshuffle",
            _ => "shuffle",
        };
        json!({"name": "blosc", "configuration":
            {"cname": name, "clevel": 5, "shuffle": shuffle, "typesize": size, "blocksize": 0}})
    };
    let packed = match codec {
        "blosc-zstd5" | "native" => blosc("zstd"),
        "blosc-lz4" => blosc("lz4"),
        "zstd1" => json!({"name": "zstd", "configuration": {"level": 1, "checksum": false}}),
        _ => bail!("{codec} is not one of native, blosc-zstd5, blosc-lz4, zstd1"),
    };
    let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let sharding = json!({
        "chunk_shape": grid.inner,
        "codecs": [bytes, packed],
        "index_codecs": [bytes, {"name": "crc32c"}],
        "index_location": "end",
    });
    let chunks = json!({"name": "regular", "configuration": {"chunk_shape": grid.shard}});
    let document = json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": grid.shape,
        "data_type": dtype,
        "chunk_grid": chunks,
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
        "fill_value": 0,
    });
    Ok(document.to_string())
}

/// Runs work on the clock. The processor's time is that of this process, user and system.
fn measured<R>(work: impl FnOnce() -> Result<R>) -> Result<(Cost, R)> {
    let (cpu, start) = (cpu_time()?, Instant::now());
    let done = work()?;
    let (wall, cpu) = (start.elapsed(), cpu_time()?.saturating_sub(cpu));
    let cost = Cost {
        wall_s: wall.as_secs_f64(),
        cpu_s: cpu.as_secs_f64(),
    };
    Ok((cost, done))
}

/// Reads raw samples.
fn source_of<T: Number>(path: &Path, shape: &[u64]) -> Result<ArrayD<T>> {
    let lengths: Vec<usize> = shape
        .iter()
        .map(|&length| usize::try_from(length))
        .collect::<Result<_, _>>()?;
    let count: usize = lengths.iter().product();
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    let mut samples: Vec<T> = Vec::with_capacity(count);
    let mut piece = vec![0; PIECE_BYTES];
    while samples.len() < count {
        let left = (count - samples.len()) * size_of::<T>();
        let piece = &mut piece[..left.min(PIECE_BYTES)];
        file.read_exact(piece)?;
        T::extend_le(piece, &mut samples);
    }
    Ok(ArrayD::from_shape_vec(lengths, samples)?)
}

/// Returns the digest of samples, little-endian in C order.
fn crc32<T: Number>(array: &ArrayD<T>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    let standard = array.as_standard_layout();
    let mut piece = Vec::with_capacity(PIECE_BYTES);
    for samples in standard
        .as_slice()
        .unwrap_or_default()
        .chunks(PIECE_BYTES / size_of::<T>())
    {
        piece.clear();
        T::append_le(samples, &mut piece);
        hasher.update(&piece);
    }
    hasher.finalize()
}

/// A sample that both libraries know.
trait Number: Sample + Element + ElementOwned + Send + Sync + 'static {
    fn extend_le(bytes: &[u8], samples: &mut Vec<Self>);
    fn append_le(samples: &[Self], bytes: &mut Vec<u8>);
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Number for $type {
            fn extend_le(bytes: &[u8], samples: &mut Vec<Self>) {
                let (words, _) = bytes.as_chunks();
                samples.extend(words.iter().map(|word| Self::from_le_bytes(*word)));
            }

            fn append_le(samples: &[Self], bytes: &mut Vec<u8>) {
                for sample in samples {
                    bytes.extend_from_slice(&sample.to_le_bytes());
                }
            }
        }
    )*};
}

numbers!(u8, u32, i16);

#[cfg(test)]
mod tests {
    use rss_testbed::Volume;

    use super::*;

    /// Returns what a system stores of a volume, as a share of its samples.
    fn share<T: Number>(system: &str, codec: &str, volume: Volume) -> f64 {
        let dir = tempfile::tempdir().unwrap();
        let (raw, to) = (dir.path().join("raw"), dir.path().join("array"));
        let (shape, half, inner) = ([128; 3], [64; 3], [32; 3]);
        let mut file = File::create(&raw).unwrap();
        volume.write(128, &mut file).unwrap();
        let job = Job::Write {
            source: raw.to_str().unwrap().to_owned(),
            dtype: volume.dtype().to_owned(),
            shape: shape.to_vec(),
            shard: half.to_vec(),
            inner: inner.to_vec(),
            to: to.to_str().unwrap().to_owned(),
            codec: codec.to_owned(),
        };
        done::<T>(&system.parse().unwrap(), &job).unwrap();
        let stored = super::super::Stored::of(&to).unwrap();
        stored.bytes as f64 / fs::metadata(&raw).unwrap().len() as f64
    }

    #[test]
    fn the_volumes_compress_as_those_of_the_seed() {
        // zarrita stores 845.80 of 1073.74 MB and 49.83 of 4294.97 MB; WKW 1072.11 and 227.50 MB.
        let color = share::<u8>("zarrs", "blosc-zstd5", Volume::Color);
        assert!((0.78..0.80).contains(&color), "{color}");
        let labels = share::<u32>("zarrs", "blosc-zstd5", Volume::Segmentation);
        assert!((0.01..0.03).contains(&labels), "{labels}");
        let fast = share::<u8>("ours", "lz4", Volume::Color);
        assert!((0.98..1.01).contains(&fast), "{fast}");
    }

    #[test]
    fn a_codec_or_a_type_that_is_not_known_is_an_answer() {
        let system = "zarrs".parse().unwrap();
        let job = |dtype: &str, codec: &str| {
            let job = json!({"do": "write", "source": "/dev/null", "dtype": dtype, "shape": [0],
                "shard": [1], "inner": [1], "to": "/nonexistent-folder/a", "codec": codec});
            answer(&system, &job.to_string()).unwrap_err().to_string()
        };
        assert!(job("float16", "zstd1").contains("samples of float16"));
        assert!(
            answer(&system, "{}")
                .unwrap_err()
                .to_string()
                .contains("not a job")
        );
        let grid = Grid {
            shape: &[1],
            shard: &[1],
            inner: &[1],
        };
        let err = document(&grid, "lzma", "uint8", 1).unwrap_err();
        assert!(err.to_string().contains("lzma is not one of"), "{err}");
        assert!(ours("lzma", 1).is_err());
    }
}
