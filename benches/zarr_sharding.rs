//! How fast is a sharded array written, read whole and cut, beside the crate `zarrs` as it comes?
//!
//! `cargo bench -p rss_core --features bench_testbed,zarr --bench zarr_sharding`. The volumes of
//! `rss-bench zarr`, which compares with more systems and asks each in a process of its own: uint8 as a
//! microscope sees cells, uint32 labels of them. 512 voxels a side, `RSS_ZARR_SIDE` names another; chunks
//! of 32 and 128 in shards of half the side. Files are in the page cache, threads as many as each takes by
//! itself. `zarrs` stores with blosc-zstd level 5, bytes of labels shuffled. Bytes per second are of samples.

#![expect(clippy::print_stdout, reason = "a bench reports")]

use std::{
    env, fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput};
use ndarray::ArrayD;
use rss_bench::harness::{is_test, must};
use rss_core::{
    Location, Sample, Session,
    zarr::{Array, ArraySpec, Codec},
};
use rss_testbed::Volume;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use zarrs::{
    array::{ArrayMetadata, ArraySubset, Element, ElementOwned},
    filesystem::FilesystemStore,
};

/// Voxels a side of a cutout.
const CUTOUT: u64 = 32;

fn main() -> Result<()> {
    let side: u32 = match env::var("RSS_ZARR_SIDE") {
        Ok(side) => side.parse().context("RSS_ZARR_SIDE")?,
        Err(_) if is_test() => 128,
        Err(_) => 512,
    };
    ensure!(
        side.is_power_of_two() && side >= 64,
        "RSS_ZARR_SIDE is {side}, expected a power of two of at least 64"
    );
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let bench = Bench {
        runtime: Runtime::new()?,
        session: Session::builder().build()?,
        dir: TempDir::new()?,
    };
    for &volume in &[Volume::Color, Volume::Segmentation] {
        let mut bytes = Vec::new();
        volume.write(side, &mut bytes)?;
        for inner in [32, 128] {
            // A shard is no smaller than a chunk.
            if inner > u64::from(side) / 2 {
                continue;
            }
            match volume {
                Volume::Color => bench.time(&mut criterion, volume, side, inner, bytes.clone())?,
                _ => {
                    let (words, _) = bytes.as_chunks();
                    let words = words.iter().map(|word| u32::from_le_bytes(*word));
                    bench.time(&mut criterion, volume, side, inner, words.collect())?;
                }
            }
        }
    }
    criterion.final_summary();
    Ok(())
}

struct Bench {
    runtime: Runtime,
    session: Session,
    dir: TempDir,
}

/// Who writes and reads.
#[derive(Clone, Copy, PartialEq)]
enum System {
    Ours(Codec),
    Zarrs,
}

impl Bench {
    /// Checks that all systems read what they wrote, and times each.
    fn time<T: Number>(
        &self,
        criterion: &mut Criterion,
        volume: Volume,
        side: u32,
        inner: u64,
        samples: Vec<T>,
    ) -> Result<()> {
        let side = u64::from(side);
        let samples = ArrayD::from_shape_vec(vec![usize::try_from(side)?; 3], samples)?;
        let systems = [
            ("rss_core", System::Ours(Codec::default())),
            ("rss_core lz4", System::Ours("blosc-lz4".parse()?)),
            ("zarrs", System::Zarrs),
        ];
        let whole = vec![0..side; 3];
        // One chunk, whatever its size.
        let cutout = vec![side / 2..side / 2 + CUTOUT; 3];
        let slice = |ranges: &[Range<u64>]| {
            samples.slice_each_axis(|axis| {
                let range = &ranges[axis.axis.index()];
                ndarray::Slice::from(range.start as usize..range.end as usize)
            })
        };
        for (name, system) in systems {
            let path = self.path(name);
            self.write(system, &path, inner, samples.clone())?;
            for ranges in [&whole, &cutout] {
                let read: ArrayD<T> = self.read(system, &path, ranges)?;
                ensure!(read == slice(ranges), "{name} reads other samples");
            }
            println!(
                "{}, inner {inner}, {name}: {:.2} MB of {:.2} MB",
                volume.name(),
                stored(&path)? as f64 / 1e6,
                samples.len() as f64 * size_of::<T>() as f64 / 1e6
            );
        }

        let mut group = criterion.benchmark_group(format!("zarr/{}/{inner}", volume.name()));
        group.sampling_mode(SamplingMode::Flat);
        let bytes = |samples: u64| Throughput::Bytes(samples * size_of::<T>() as u64);
        group.throughput(bytes(side.pow(3)));
        for (name, system) in systems {
            group.bench_function(BenchmarkId::new("write", name), |bencher| {
                let path = self.dir.path().join("written");
                bencher.iter_custom(|times| {
                    let mut spent = Duration::ZERO;
                    for _ in 0..times {
                        // The samples are the writer's own; making them is not its work.
                        let samples = samples.clone();
                        let start = Instant::now();
                        must(self.write(system, &path, inner, samples));
                        spent += start.elapsed();
                        must(fs::remove_dir_all(&path));
                    }
                    spent
                });
            });
        }
        for (what, ranges) in [("read", &whole), ("cutout, fresh open", &cutout)] {
            group.throughput(bytes(ranges.iter().map(|r| r.end - r.start).product()));
            for (name, system) in systems {
                let path = self.path(name);
                group.bench_function(BenchmarkId::new(what, name), |bencher| {
                    bencher.iter(|| must(self.read::<T>(system, &path, ranges)));
                });
            }
        }
        for (name, system) in systems {
            let open = self.open(system, &self.path(name))?;
            group.bench_function(BenchmarkId::new("cutout, open array", name), |bencher| {
                bencher.iter(|| must(self.cut::<T>(&open, &cutout)));
            });
        }
        group.finish();
        for (name, _) in systems {
            fs::remove_dir_all(self.path(name))?;
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write<T: Number>(
        &self,
        system: System,
        path: &Path,
        inner: u64,
        samples: ArrayD<T>,
    ) -> Result<()> {
        let shape: Vec<u64> = samples.shape().iter().map(|&n| n as u64).collect();
        let shard: Vec<u64> = shape.iter().map(|length| length / 2).collect();
        match system {
            System::Ours(codec) => {
                let spec = ArraySpec::new(shape, T::DTYPE, vec![inner; 3])
                    .with_shard(shard)
                    .with_codec(codec);
                let location = Location::Local(path.to_owned());
                self.runtime.block_on(async {
                    let array = Array::create(&self.session, &location, &spec).await?;
                    Ok(array.write(&[0, 0, 0], samples).await?)
                })
            }
            System::Zarrs => {
                let metadata = metadata::<T>(&shape, &shard, inner)?;
                let store = Arc::new(FilesystemStore::new(path)?);
                let array = zarrs::array::Array::new_with_metadata(store, "/", metadata)?;
                array.store_metadata()?;
                let shards = ArraySubset::new_with_shape(array.chunk_grid_shape().to_vec());
                Ok(array.store_chunks(&shards, samples)?)
            }
        }
    }

    fn open(&self, system: System, path: &Path) -> Result<Open> {
        match system {
            System::Ours(_) => {
                let location = Location::Local(path.to_owned());
                let array = self.runtime.block_on(Array::open(&self.session, &location));
                Ok(Open::Ours(array?))
            }
            System::Zarrs => {
                let store = Arc::new(FilesystemStore::new(path)?);
                let array = zarrs::array::Array::open(store, "/")?;
                Ok(Open::Zarrs(Box::new(array)))
            }
        }
    }

    fn cut<T: Number>(&self, open: &Open, ranges: &[Range<u64>]) -> Result<ArrayD<T>> {
        match open {
            Open::Ours(array) => Ok(self.runtime.block_on(array.read(ranges))?),
            Open::Zarrs(array) => {
                Ok(array.retrieve_array_subset(&ArraySubset::new_with_ranges(ranges))?)
            }
        }
    }

    fn read<T: Number>(
        &self,
        system: System,
        path: &Path,
        ranges: &[Range<u64>],
    ) -> Result<ArrayD<T>> {
        self.cut(&self.open(system, path)?, ranges)
    }
}

/// An open array.
enum Open {
    Ours(Array),
    Zarrs(Box<zarrs::array::Array<FilesystemStore>>),
}

/// A sample that both libraries know.
trait Number: Sample + Element + ElementOwned + PartialEq + Send + Sync + 'static {}

impl Number for u8 {}
impl Number for u32 {}

/// Returns what `zarrs` is told to write.
fn metadata<T: Number>(shape: &[u64], shard: &[u64], inner: u64) -> Result<ArrayMetadata> {
    let size = size_of::<T>();
    let shuffle = match size {
        1 => "noshuffle",
        _ => "shuffle",
    };
    let bytes = serde_json::json!({"name": "bytes", "configuration": {"endian": "little"}});
    let blosc = serde_json::json!({"name": "blosc", "configuration":
        {"cname": "zstd", "clevel": 5, "shuffle": shuffle, "typesize": size, "blocksize": 0}});
    let sharding = serde_json::json!({"chunk_shape": [inner, inner, inner], "codecs": [bytes, blosc],
        "index_codecs": [bytes, {"name": "crc32c"}], "index_location": "end"});
    let document = serde_json::json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": T::DTYPE.to_string(),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shard}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "codecs": [{"name": "sharding_indexed", "configuration": sharding}], "fill_value": 0,
    });
    Ok(ArrayMetadata::try_from(document.to_string().as_str())?)
}

/// Returns the bytes of all files of a folder.
fn stored(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => stored(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(bytes)
}
