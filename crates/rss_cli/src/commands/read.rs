//! `rss read`: pixels into a file or to stdout.

use std::{
    io::{self, Write},
    path::Path,
    time::Instant,
};

use anyhow::Result;
use rss_core::{Backend, Format, Location, ReadRequest, Window, reader};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{Found, args::ReadArgs, output};

pub(crate) async fn run(args: &ReadArgs) -> Result<Found> {
    anyhow::ensure!(
        !(args.json && args.output == "-"),
        "--json and -o - both want stdout; give a file to -o"
    );
    let session = super::session::open()?;
    let location = Location::parse(&args.location)?;
    let backend: Backend = args.backend.parse()?;
    let mut request = ReadRequest::new().with_level(args.level);
    if let Some(window) = &args.window {
        request = request.with_window(window.parse::<Window>()?);
    }
    if let Some(band) = args.band {
        request = request.with_bands([band]);
    }
    // Checked before any byte is fetched, so that a typing error costs nothing.
    let to_file = (args.output != "-").then(|| Path::new(&args.output));
    if let Some(path) = to_file {
        Format::of_path(path)?;
    }

    let start = Instant::now();
    let raster = reader::open(&session, &location, backend).await?;
    let pixels = raster.read(&request).await?;
    let wall = start.elapsed();
    output::fallback(raster.as_ref());
    let traffic = session.traffic();

    match to_file {
        Some(path) => pixels.save(path)?,
        None => output::stdout_by(|out| pixels.pixels.write_le(out))?,
    }
    if args.json {
        let [count, height, width] = pixels.pixels.shape();
        let mut digest = Digested(Sha256::new());
        pixels.pixels.write_le(&mut digest)?;
        let digest = digest.0.finalize();
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        output::json(&json!({
            "width": width,
            "height": height,
            "count": count,
            "dtype": pixels.pixels.dtype().name(),
            "requests": traffic.requests,
            "bytes": traffic.bytes,
            "wall_s": wall.as_secs_f64(),
            "sha256": hex,
            "backend": raster.backend().name(),
            "fallback": raster.fallback().map(|err| err.message().to_owned()),
            "sparse": pixels.sparse.len(),
        }))?;
    }
    Ok(Found::Something)
}

/// Takes bytes into a digest, and keeps none.
struct Digested(Sha256);

impl Write for Digested {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
