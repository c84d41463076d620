//! How fast is each codec decoded on one thread?
//!
//! `cargo bench -p rss_core --features bench_testbed --bench decode`. Files of 4096 x 4096 pixels in tiles
//! of 512 x 512 that `gdal_translate` writes from a scene: int16 as it is, float32 as reflectance, RGB of
//! three bands in 8 bits. They are in the page cache. The COG reader and GDAL with one thread to decode
//! on, the crate async-tiff where it can, libdeflate alone on the same tiles where they are
//! DEFLATE, and a copy of the same bytes. Bytes per second are of decoded pixels.

#![expect(clippy::print_stdout, reason = "a bench reports")]

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use criterion::{Criterion, SamplingMode, Throughput};
use libdeflater::Decompressor;
use rss_bench::{
    harness::{self, must},
    site::{self, agree, open_and_read},
    tiles::Tiles,
    ways::Way,
};
use rss_core::{Backend, Location, Pixels, Session};
use rss_testbed::{Band, Testbed};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A name, the source of the pixels and GDAL's creation options.
type Case = (&'static str, Source, &'static [&'static str]);

const CASES: &[Case] = &[
    ("none", Source::Int16, &["COMPRESS=NONE"]),
    ("packbits", Source::Int16, &["COMPRESS=PACKBITS"]),
    ("deflate", Source::Int16, &["COMPRESS=DEFLATE"]),
    (
        "deflate, predictor 2",
        Source::Int16,
        &["COMPRESS=DEFLATE", "PREDICTOR=2"],
    ),
    (
        "lzw, predictor 2",
        Source::Int16,
        &["COMPRESS=LZW", "PREDICTOR=2"],
    ),
    (
        "zstd, predictor 2",
        Source::Int16,
        &["COMPRESS=ZSTD", "PREDICTOR=2"],
    ),
    ("lzma", Source::Int16, &["COMPRESS=LZMA"]),
    (
        "deflate, predictor 3",
        Source::Float32,
        &["COMPRESS=DEFLATE", "PREDICTOR=3"],
    ),
    (
        "zstd, predictor 3",
        Source::Float32,
        &["COMPRESS=ZSTD", "PREDICTOR=3"],
    ),
    ("jpeg", Source::Rgb, &["COMPRESS=JPEG", "PHOTOMETRIC=YCBCR"]),
    ("webp", Source::Rgb, &["COMPRESS=WEBP"]),
];

/// How far lossy pixels may lie apart: decoders round in their own ways.
const ROUNDING: u8 = 4;

#[derive(Clone, Copy, PartialEq)]
enum Source {
    Int16,
    Float32,
    Rgb,
}

fn main() -> Result<()> {
    let Some(site) = rss_bench::site!("decode")? else {
        return Ok(());
    };
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    let Some(bed) = &site.bed else {
        println!("decode: skipped; its files are written from the testbed's scenes");
        return Ok(());
    };
    let (cache, dir) = (TempDir::new()?, TempDir::new()?);
    site.clear_log();
    let session = site.session(cache.path()).build()?;
    let found = site.search(&session)?;
    site::check_report(found.report())?;
    let truth = open_and_read(&session, found.items(), Backend::Cog)?;
    site.check_truth(&found.items().items[0].id, &truth)?;
    println!(
        "{}: {} requests of all this bench",
        site.name(),
        site.log().len()
    );
    let sources = Sources::of(bed, dir.path())?;
    let runtime = Runtime::new()?;
    for (name, source, options) in CASES {
        let path = dir.path().join(format!("{name}.tif"));
        sources.write(*source, options, &path)?;
        time(&mut criterion, &runtime, name, &path).with_context(|| (*name).to_owned())?;
        std::fs::remove_file(&path)?;
    }
    criterion.final_summary();
    Ok(())
}

/// Checks that all ways read the same pixels of a file, and times each.
fn time(criterion: &mut Criterion, runtime: &Runtime, name: &str, path: &Path) -> Result<()> {
    let file = Location::Local(path.to_owned());
    let session = || {
        Session::builder()
            .cpu_threads(1)
            .gdal_option("GDAL_NUM_THREADS", "1")
            .build()
    };
    let gdal = Way::of("gdal", session()?, Backend::Gdal);
    let pixels = runtime.block_on(gdal.read(&file, None))?;
    let mut ways = vec![gdal];
    let others = [
        Way::of("cog", session()?, Backend::Cog),
        Way::of("async-tiff", session()?, Backend::AsyncTiff),
    ];
    for way in others {
        match runtime.block_on(way.read(&file, None)) {
            Ok(read) => {
                check(&pixels, &read, &way.name)?;
                ways.push(way);
            }
            Err(err) => println!("{name}: {} cannot: {err:#}", way.name),
        }
    }

    let mut group = criterion.benchmark_group(format!("decode/{name}"));
    group.sampling_mode(SamplingMode::Flat);
    let bytes = pixels.len() * pixels.dtype().size();
    group.throughput(Throughput::Bytes(bytes as u64));
    let tiles = Tiles::of(path)?;
    println!(
        "{name}: {:.1} MB hold {:.1} MB of pixels",
        tiles.stored_bytes() as f64 / 1e6,
        bytes as f64 / 1e6
    );
    if name.starts_with("deflate") {
        group.bench_function("libdeflate alone", |bencher| {
            let (mut inflater, mut out) = (Decompressor::new(), vec![0; tiles.bytes]);
            bencher.iter(|| must(tiles.inflate(&mut inflater, &mut out)));
        });
    }
    group.bench_function("a copy alone", |bencher| {
        let (from, mut to) = (vec![1; tiles.bytes], vec![0; tiles.bytes]);
        bencher.iter(|| tiles.copy(&from, &mut to));
    });
    let clock = Instant::now();
    for way in &ways {
        group.bench_function(&way.name, |bencher| {
            bencher.iter_custom(|times| {
                let work = async |way: &Way| way.read(&file, None).await;
                way.cold(runtime, times, || clock.elapsed(), work)
            });
        });
    }
    group.finish();
    Ok(())
}

/// Checks that pixels are the same; lossy ones, nearly.
fn check(a: &Pixels, b: &Pixels, what: &str) -> Result<()> {
    let (Pixels::U8(a), Pixels::U8(b)) = (a, b) else {
        return agree(a, b, what);
    };
    ensure!(a.shape() == b.shape(), "{what} has another shape");
    let far = a.iter().zip(b).map(|(a, b)| a.abs_diff(*b)).max();
    ensure!(
        far <= Some(ROUNDING),
        "pixels of {what} are {far:?} from GDAL's"
    );
    Ok(())
}

/// Files to translate from.
struct Sources {
    red: PathBuf,
    rgb: PathBuf,
    side: String,
}

impl Sources {
    /// Finds bands of a scene and of another day.
    fn of(bed: &Testbed, dir: &Path) -> Result<Self> {
        let band = |scene: usize, band: Band| -> Result<PathBuf> {
            let scene = bed.scenes().get(scene).context("one scene")?;
            Ok(scene.file(band).context("a band is missing")?.to_owned())
        };
        let red = band(0, Band::Red)?;
        let rgb = dir.join("rgb.vrt");
        run(Command::new("gdalbuildvrt")
            .args(["-q", "-separate"])
            .arg(&rgb)
            .args([&red, &band(0, Band::Nir)?, &band(1, Band::Red)?]))?;
        let side = match harness::is_test() {
            true => "600",
            false => "4096",
        };
        Ok(Self {
            red,
            rgb,
            side: side.to_owned(),
        })
    }

    fn write(&self, source: Source, options: &[&str], path: &Path) -> Result<()> {
        let mut command = Command::new("gdal_translate");
        command.args(["-q", "-srcwin", "0", "0", &self.side, &self.side]);
        for option in ["TILED=YES", "BLOCKXSIZE=512", "BLOCKYSIZE=512"] {
            command.args(["-co", option]);
        }
        for option in options {
            command.args(["-co", option]);
        }
        command.args(match source {
            Source::Int16 => [].as_slice(),
            Source::Float32 => &["-ot", "Float32", "-scale", "0", "10000", "0", "1"],
            Source::Rgb => &[
                "-ot",
                "Byte",
                "-a_nodata",
                "none",
                "-scale",
                "0",
                "4000",
                "0",
                "255",
            ],
        });
        let from = match source {
            Source::Rgb => &self.rgb,
            _ => &self.red,
        };
        run(command.arg(from).arg(path))
    }
}

fn run(command: &mut Command) -> Result<()> {
    let said = command
        .output()
        .with_context(|| format!("{:?}, of GDAL's programs", command.get_program()))?;
    ensure!(
        said.status.success(),
        "{}",
        String::from_utf8_lossy(&said.stderr)
    );
    Ok(())
}
