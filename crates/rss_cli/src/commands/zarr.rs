//! `rss zarr`: cubes of images, and arrays of others.

use std::{
    io::Write,
    ops::Range,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use rss_core::{
    ErrorKind, Format, GeoBox, Location, Raster, Resampling, Session, SessionBuilder, Size, Window,
    apply::time::Grouping,
    zarr::{Arrangement, Array, Cube, CubeOptions, Icechunk, Image, Layout, Root, Use, Written},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::found;
use crate::{
    Found,
    args::{ZarrAction, ZarrArgs, ZarrReadArgs, ZarrWriteArgs},
    output,
};

pub(crate) async fn run(args: &ZarrArgs) -> Result<Found> {
    match &args.action {
        ZarrAction::Write(args) => write(args).await,
        ZarrAction::Read(args) => read(args).await,
        ZarrAction::Info {
            location,
            icechunk,
            json,
        } => info(&root(location, icechunk.as_deref())?, *json).await,
    }
}

/// Returns where the shards of a write are kept, if that is a folder.
pub(crate) fn partial(args: &ZarrArgs) -> Option<PathBuf> {
    match &args.action {
        ZarrAction::Write(args) => Location::parse(&args.to)
            .ok()?
            .as_local()
            .map(Path::to_owned),
        _ => None,
    }
}

/// Returns where a cube is: below a location, or in a branch of the repository there.
fn root(location: &str, branch: Option<&str>) -> Result<Root> {
    let location = Location::parse(location)?;
    Ok(match branch {
        Some(branch) => Icechunk::new(&location).with_branch(branch).into(),
        None => location.into(),
    })
}

async fn write(args: &ZarrWriteArgs) -> Result<Found> {
    let to = root(&args.to, args.icechunk.as_deref())?;
    let options = options(args)?;
    let mut builder = SessionBuilder::from_env()?;
    if let Some(megabytes) = args.budget {
        ensure!(megabytes > 0, "--budget is 0, expected at least 1 MB");
        builder = builder.budget_bytes(megabytes.saturating_mul(1_000_000));
    }
    let session = builder.build()?;
    let found = found::items(&session, &args.items).await?;
    if found.is_empty() {
        output::say("nothing found");
        return Ok(Found::Nothing);
    }
    let images = Image::of(&found)?;
    let bar = ProgressBar::new(0);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:30} {pos}/{len} shards, {msg} [{elapsed}]")
    {
        bar.set_style(style);
    }
    let shown = bar.clone();
    let options = options.with_progress(move |progress| {
        shown.set_length(progress.shards);
        shown.set_position(progress.shards_done);
        shown.set_message(HumanBytes(progress.bytes).to_string());
    });
    let start = Instant::now();
    let written = match args.append {
        true => Cube::append(&session, &to, images, &options).await,
        false => Cube::create(&session, &to, images, &options).await,
    };
    bar.finish_and_clear();
    let written = written?;
    let wall = start.elapsed().as_secs_f64();
    let traffic = session.traffic();
    found::complete(&found)?;
    let Written {
        steps,
        known,
        shards,
        resumed,
        bytes,
        ..
    } = written;
    if args.json {
        output::json(&json!({
            "location": to.location().to_string(),
            "steps": steps,
            "known": known,
            "shards": shards,
            "resumed": resumed,
            "bytes": bytes,
            "requests": traffic.requests,
            "wall_s": wall,
        }))?;
    } else {
        let mut lines = vec![format!(
            "{}: {steps} dates in {shards} shards, {} in {wall:.2} s",
            to.location(),
            HumanBytes(bytes)
        )];
        if resumed > 0 {
            lines.push(format!(
                "{resumed} of the shards were there from a write that had been stopped"
            ));
        }
        if known > 0 {
            lines.push(format!("{known} images were in the cube already"));
        }
        output::lines(lines)?;
    }
    Ok(Found::Something)
}

fn options(args: &ZarrWriteArgs) -> Result<CubeOptions> {
    let mut layout = Layout::new(args.for_use.parse::<Use>()?).with_codec(args.codec.parse()?);
    if args.stack {
        layout = layout.with_arrangement(Arrangement::Stacked);
    }
    if let Some(chunk) = &args.chunk {
        layout = layout.with_chunk(chunk.parse().context("--chunk")?);
    }
    if let Some(shard) = &args.shard {
        layout = layout.with_shard(shard.parse().context("--shard")?);
    }
    let mut options = CubeOptions::new()
        .with_layout(layout)
        .with_overviews(args.overviews, args.resampling.parse::<Resampling>()?);
    if args.solar_days {
        options = options.with_grouping(Grouping::SolarDay);
    }
    if let Some(nodata) = args.nodata {
        options = options.with_nodata(nodata);
    }
    Ok(options)
}

async fn read(args: &ZarrReadArgs) -> Result<Found> {
    ensure!(
        !(args.json && args.output == "-"),
        "--json and -o - both want stdout; give a file to -o"
    );
    let session = Session::from_env()?;
    let root = root(&args.location, args.icechunk.as_deref())?;
    // Known before any byte is fetched, so that a typing error costs nothing.
    let to_file = (args.output != "-").then(|| Path::new(&args.output));
    if let Some(path) = to_file {
        Format::of_path(path)?;
    }
    let ranges: Option<Vec<Range<u64>>> = match &args.ranges {
        Some(text) => Some(text.split(',').map(range).collect::<Result<_>>()?),
        None => None,
    };
    let start = Instant::now();
    let (raster, shape) = match ranges {
        Some(ranges) => of_array(&session, &root, &ranges).await?,
        None => of_cube(&session, &root, args).await?,
    };
    let wall = start.elapsed();
    let traffic = session.traffic();
    match to_file {
        Some(path) => raster.save(path)?,
        None => {
            let mut out = std::io::stdout().lock();
            out.write_all(&raster.pixels.to_le_bytes())?;
            out.flush()?;
        }
    }
    if args.json {
        let digest = Sha256::digest(raster.pixels.to_le_bytes());
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        output::json(&json!({
            "shape": shape,
            "dtype": raster.pixels.dtype().name(),
            "requests": traffic.requests,
            "bytes": traffic.bytes,
            "wall_s": wall.as_secs_f64(),
            "sha256": hex,
        }))?;
    }
    Ok(Found::Something)
}

fn range(text: &str) -> Result<Range<u64>> {
    let ends = text
        .split_once(':')
        .and_then(|(start, end)| Some(start.trim().parse().ok()?..end.trim().parse().ok()?));
    ends.with_context(|| format!("`{text}` is not START:END, as in 0:3,0:512,0:512"))
}

/// Reads a box of an array as (all axes before the last two, rows, columns).
async fn of_array(
    session: &Session,
    root: &Root,
    ranges: &[Range<u64>],
) -> Result<(Raster, Vec<u64>)> {
    let array = Array::open(session, root).await?;
    let pixels = array.read_pixels(ranges).await?;
    let [_, height, width] = pixels.shape();
    let size = Size {
        width: u32::try_from(width)?,
        height: u32::try_from(height)?,
    };
    let raster = Raster {
        pixels,
        geobox: GeoBox {
            size,
            crs: None,
            transform: None,
        },
        nodata: None,
        sparse: Vec::new(),
    };
    let shape = ranges.iter().map(|range| range.end - range.start).collect();
    Ok((raster, shape))
}

/// Reads some dates of a band as the bands of a raster.
async fn of_cube(
    session: &Session,
    root: &Root,
    args: &ZarrReadArgs,
) -> Result<(Raster, Vec<u64>)> {
    let cube = match Cube::open(session, root).await {
        Err(err) if err.kind() == ErrorKind::Unsupported => {
            return Err(err).context("no cube; name an array of it, and --ranges");
        }
        opened => opened?,
    };
    let band = match (&args.band, cube.bands()) {
        (Some(band), _) => band.clone(),
        (None, [only]) => only.name.clone(),
        (None, bands) => {
            let names: Vec<&str> = bands.iter().map(|band| band.name.as_str()).collect();
            bail!("--band is missing: the cube has {}", names.join(", "));
        }
    };
    let all = cube.steps().len();
    let times = match &args.time {
        None => 0..all,
        Some(text) => match text.split_once(':') {
            Some(_) => {
                let Range { start, end } = range(text)?;
                usize::try_from(start)?..usize::try_from(end)?
            }
            None => {
                let number: usize = text
                    .parse()
                    .with_context(|| format!("--time `{text}` is not a number, or START:END"))?;
                number..number.saturating_add(1)
            }
        },
    };
    let window = args
        .window
        .as_deref()
        .map(str::parse::<Window>)
        .transpose()?;
    let raster = cube.read_raster(&band, times, window, args.level).await?;
    let shape = raster.pixels.shape().map(|length| length as u64).to_vec();
    Ok((raster, shape))
}

async fn info(root: &Root, as_json: bool) -> Result<Found> {
    let session = Session::from_env()?;
    let said = match Cube::open(&session, root).await {
        Ok(cube) => said_of_cube(&cube)?,
        Err(err) if err.kind() == ErrorKind::Unsupported => {
            match Array::open(&session, root).await {
                Ok(array) => said_of_array(&array),
                // Of a group the cube's words say more.
                Err(_) => return Err(err.into()),
            }
        }
        Err(err) if err.kind() == ErrorKind::NotFound => {
            // Perhaps an array of Zarr v2.
            said_of_array(&Array::open(&session, root).await?)
        }
        Err(err) => return Err(err.into()),
    };
    if as_json {
        output::json(&said)?;
        return Ok(Found::Something);
    }
    let lines = said
        .as_object()
        .into_iter()
        .flatten()
        .flat_map(|(key, value)| {
            let text = |value: &Value| match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            match value {
                Value::Array(values) if key == "bands" || key == "times" => {
                    let lines = values.iter().map(text);
                    lines
                        .map(|line| format!("{key:<12} {line}"))
                        .collect::<Vec<_>>()
                }
                value => vec![format!("{key:<12} {}", text(value))],
            }
        });
    output::lines(lines.collect::<Vec<_>>())?;
    Ok(Found::Something)
}

fn said_of_array(array: &Array) -> Value {
    json!({
        "kind": "array",
        "shape": array.shape(),
        "dtype": array.dtype().name(),
        "chunk": array.chunk(),
        "shard": array.shard(),
        "fill": number(Some(array.fill())),
        "dimensions": array.dimensions(),
        "attributes": array.attributes(),
    })
}

fn said_of_cube(cube: &Cube) -> Result<Value> {
    let bands = cube
        .bands()
        .iter()
        .map(|band| {
            let array = cube.array(0, &band.name)?;
            Ok(json!({
                "name": band.name,
                "dtype": band.dtype.name(),
                "nodata": number(band.nodata),
                "scale": band.scale,
                "offset": band.offset,
                "unit": band.unit,
                "shape": array.shape(),
                "chunk": array.chunk(),
                "shard": array.shard(),
            }))
        })
        .collect::<Result<Vec<_>>>()?;
    let grid = cube.grid();
    let times: Vec<Value> = cube
        .steps()
        .iter()
        .map(|step| json!({"time": step.time, "items": step.items}))
        .collect();
    let levels: Vec<[u32; 2]> = cube
        .levels()
        .iter()
        .map(|grid| [grid.size.width, grid.size.height])
        .collect();
    Ok(json!({
        "kind": "cube",
        "width": grid.size.width,
        "height": grid.size.height,
        "epsg": grid.crs.as_ref().and_then(rss_core::Crs::epsg),
        "transform": grid.transform.map(|transform| transform.0),
        "levels": levels,
        "bands": bands,
        "times": times,
    }))
}

/// JSON has no word for what is no number.
fn number(value: Option<f64>) -> Value {
    match value {
        Some(value) if value.is_finite() => json!(value),
        Some(value) => json!(value.to_string()),
        None => Value::Null,
    }
}
