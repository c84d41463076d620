//! One job of `scripts/peers/apply` by this library: reads a job as JSON from standard input, does it, and
//! writes what it cost to standard output. Its sibling `apply_worker.py` does the same.

mod cost;

use std::{
    fs::File,
    io::{BufWriter, Read, Write},
    path::PathBuf,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use ndarray::Zip;
use rss_core::{
    Backend, Location, QueryResult, Raster, ReadRequest, Sample, Session,
    apply::{ApplyOptions, Block, ImageCubeOptions, reduce::Reducer},
    mask::Cleanup,
    writer::{CogOptions, Compression, Predictor},
};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use self::cost::{hex, peak_bytes, processor_time};

#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Job {
    /// The index of each date.
    Ndvi(Scenes),
    /// Each band's median of all dates.
    Median(Scenes),
    /// The same without clouds.
    Clear(Scenes),
    /// A file of the samples of another.
    Cog {
        from: PathBuf,
        /// `int16` as they are, or `float32` reflectance.
        dtype: String,
        to: PathBuf,
    },
}

#[derive(Deserialize)]
struct Scenes {
    endpoint: String,
    items: PathBuf,
    /// Where the samples go, when they have been timed.
    save: Option<PathBuf>,
}

fn main() -> Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    match serde_json::from_str(&text)? {
        Job::Ndvi(scenes) => apply(&scenes, Picture::Ndvi),
        Job::Median(scenes) => apply(&scenes, Picture::Median),
        Job::Clear(scenes) => apply(&scenes, Picture::Clear),
        Job::Cog { from, dtype, to } => cog(from, &dtype, to),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Picture {
    Ndvi,
    Median,
    Clear,
}

fn apply(scenes: &Scenes, picture: Picture) -> Result<()> {
    let (wall, processor) = (Instant::now(), processor_time()?);
    let session = Session::builder().s3_endpoint(&scenes.endpoint).build()?;
    let found =
        QueryResult::from_file(&session, &scenes.items)?.with_bands(["nbart_red", "nbart_nir_1"]);
    let mut options = ImageCubeOptions::new();
    if picture == Picture::Clear {
        options = options.with_mask("clouds".parse()?, Cleanup::default());
    }
    let cube = session.cube(&found, &options)?;
    let work = match picture {
        Picture::Ndvi => cube.apply(ApplyOptions::new(), |block: &Block<f32>| {
            let (red, nir) = (block.band("red")?, block.band("nir")?);
            let index = |&red: &f32, &nir: &f32| (nir - red) / (nir + red);
            Ok(Zip::from(red).and(nir).map_collect(index))
        }),
        _ => cube.reduce(Reducer::Median, ApplyOptions::new()),
    };
    let (raster, _) = session.compute(work)?;
    let (wall, processor) = (wall.elapsed(), processor_time()? - processor);
    let peak = peak_bytes()?;
    let samples = raster.pixels.view::<f32>().context("not float32")?;
    let mut digest = Sha256::new();
    let mut out = scenes
        .save
        .as_ref()
        .map(File::create)
        .transpose()?
        .map(BufWriter::new);
    for row in samples.rows() {
        let bytes: Vec<u8> = row.iter().flat_map(|&sample| canonical(sample)).collect();
        digest.update(&bytes);
        if let Some(out) = &mut out {
            out.write_all(&bytes)?;
        }
    }
    if let Some(mut out) = out {
        out.flush()?;
    }
    say(json!({
        "wall_s": wall.as_secs_f64(),
        "cpu_s": processor.as_secs_f64(),
        "peak_bytes": peak,
        "sha256": hex(&digest.finalize()),
        "shape": samples.shape(),
        "version": env!("CARGO_PKG_VERSION"),
    }))
}

/// A NaN has many patterns of bits, and means the same.
fn canonical(sample: f32) -> [u8; 4] {
    match sample.is_nan() {
        true => f32::NAN.to_le_bytes(),
        false => sample.to_le_bytes(),
    }
}

fn cog(from: PathBuf, dtype: &str, to: PathBuf) -> Result<()> {
    let session = Session::builder().build()?;
    let open = session.open(&Location::Local(from), Backend::Auto)?;
    let mut raster: Raster = open.read(&ReadRequest::new())?;
    let predictor = match dtype {
        "int16" => Predictor::Horizontal,
        "float32" => {
            let counts = raster.pixels.view::<i16>().context("not int16")?;
            raster.pixels = f32::wrap(counts.mapv(|count| match count {
                -999 => -999.0,
                count => f32::from(count) * 1e-4,
            }));
            Predictor::Float
        }
        other => bail!("samples of {other}: expected int16 or float32"),
    };
    let options = CogOptions::new()
        .with_compression(Compression::Deflate(6))
        .with_predictor(predictor)
        .without_statistics();
    let to = Location::Local(to);
    let (wall, processor) = (Instant::now(), processor_time()?);
    session.save_cog(&to, &raster, &options)?;
    let (wall, processor) = (wall.elapsed(), processor_time()? - processor);
    say(json!({
        "wall_s": wall.as_secs_f64(),
        "cpu_s": processor.as_secs_f64(),
        "peak_bytes": peak_bytes()?,
        "version": env!("CARGO_PKG_VERSION"),
    }))
}

fn say(cost: serde_json::Value) -> Result<()> {
    serde_json::to_writer(std::io::stdout(), &cost)?;
    Ok(())
}
