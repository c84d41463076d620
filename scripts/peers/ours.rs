//! One job of `scripts/peers/run` by this library: reads a job as JSON from standard input, reads the
//! pixels, and writes what they cost to standard output. Its siblings in Python do the same.

mod cost;

use std::{io::Read, path::PathBuf, time::Instant};

use anyhow::Result;
use rss_core::{Backend, Location, Pixels, ReadRequest, Session, Window, reader};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use self::cost::{hex, peak_bytes, processor_time};

#[derive(Deserialize)]
struct Job {
    /// `cog` or `gdal`.
    reader: String,
    endpoint: String,
    /// Addresses on S3, or paths.
    files: Vec<String>,
    /// Column, row, width, height; none is the whole.
    window: Option<[u32; 4]>,
    /// All files at once, or one after the other.
    at_once: bool,
}

fn main() -> Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let job: Job = serde_json::from_str(&text)?;
    let backend: Backend = job.reader.parse()?;
    let session = Session::builder()
        .s3_endpoint(&job.endpoint)
        .gdal_threads(job.files.len().max(4))
        .build()?;
    let files = job.files.iter().map(|file| match file.starts_with('/') {
        true => Ok(Location::Local(PathBuf::from(file))),
        false => Location::parse(file),
    });
    let files = files.collect::<Result<Vec<_>, _>>()?;
    let mut request = ReadRequest::new();
    if let Some([col, row, width, height]) = job.window {
        request = request.with_window(Window {
            col,
            row,
            width,
            height,
        });
    }
    let runtime = tokio::runtime::Runtime::new()?;
    let read = async |file: &Location| -> Result<Pixels> {
        let raster = reader::open(&session, file, backend).await?;
        Ok(raster.read(&request).await?.pixels)
    };
    let (wall, processor) = (Instant::now(), processor_time()?);
    let pixels: Vec<Pixels> = runtime.block_on(async {
        if job.at_once {
            return futures::future::try_join_all(files.iter().map(read)).await;
        }
        let mut all = Vec::new();
        for file in &files {
            all.push(read(file).await?);
        }
        anyhow::Ok(all)
    })?;
    let (wall, processor) = (wall.elapsed(), processor_time()? - processor);
    let peak = peak_bytes()?;
    let mut digest = Sha256::new();
    for pixels in &pixels {
        digest.update(pixels.to_le_bytes());
    }
    serde_json::to_writer(
        std::io::stdout(),
        &json!({
            "wall_s": wall.as_secs_f64(),
            "cpu_s": processor.as_secs_f64(),
            "peak_bytes": peak,
            "sha256": hex(&digest.finalize()),
            "version": env!("CARGO_PKG_VERSION"),
        }),
    )?;
    Ok(())
}
