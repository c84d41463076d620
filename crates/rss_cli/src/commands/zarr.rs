//! `rss zarr`: cubes of images, and Zarr arrays of other writers.

use std::{
    io::Write,
    ops::Range,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use indicatif::{HumanBytes, ProgressStyle};
use rss_core::{
    ErrorKind, Format, GeoBox, Location, Number, QueryResult, Raster, Resampling, Session, Size,
    Window, apply,
    zarr::{
        Arrangement, Array, Cube, CubeImage, CubeOptions, Icechunk, Images, Layout, Root, Use,
        Written,
    },
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    apply::{clock, on_grid, said_of, say},
    found,
    info::number,
    record, session, zarr_check,
};
use crate::{
    Found,
    args::{ZarrAction, ZarrArgs, ZarrReadArgs, ZarrWriteArgs},
    output,
};

pub(crate) async fn run(args: &ZarrArgs) -> Result<Found> {
    match &args.action {
        ZarrAction::Write(args) => write(args).await,
        ZarrAction::Read(args) => read(args).await,
        ZarrAction::Check(args) => zarr_check::run(args).await,
        ZarrAction::Info {
            location,
            icechunk,
            json,
        } => info(&root(location, icechunk.as_deref())?, *json).await,
    }
}

/// Returns the folder of an interrupted write, which resumes from the shards in it.
pub(crate) fn partial(args: &ZarrArgs) -> Option<PathBuf> {
    match &args.action {
        ZarrAction::Write(args) => Location::parse(&args.to)
            .ok()?
            .as_local()
            .map(Path::to_owned),
        _ => None,
    }
}

/// Returns the root of a cube: a location, or a branch of the Icechunk repository at it.
pub(super) fn root(location: &str, branch: Option<&str>) -> Result<Root> {
    let location = Location::parse(location)?;
    Ok(match branch {
        Some(branch) => Icechunk::new(&location).with_branch(branch).into(),
        None => location.into(),
    })
}

async fn write(args: &ZarrWriteArgs) -> Result<Found> {
    let to = root(&args.to, args.icechunk.as_deref())?;
    let options = options(args)?;
    let session = session::with_budget(args.budget)?;
    let _fallbacks = output::Fallbacks(session.clone());
    let Some(source) = Source::of(&session, &to, args).await? else {
        output::say("nothing found");
        return Ok(Found::Nothing);
    };
    let images = source.images()?;
    let Source { found, computed } = source;
    let provenance = computed.as_ref().map(apply::ImageCube::provenance);
    let bar = output::bar(0);
    if let Ok(style) =
        ProgressStyle::with_template("{bar:30} {pos}/{len} shards, {msg} [{elapsed}]")
    {
        bar.set_style(style);
    }
    let shown = bar.clone();
    let record = rss_core::packed(&record::of(&args.items, &found, &[])?);
    let options = options.with_note("rss:record", record);
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
    let written = written.map_err(|err| hinted(err, computed.is_some()))?;
    let wall = start.elapsed().as_secs_f64();
    let traffic = session.traffic();
    found::complete(&found)?;
    let Written {
        steps,
        known,
        shards,
        resumed,
        bytes,
        missing_inputs,
        left_out: of_copied,
        notes: of_samples,
        ..
    } = written;
    let left_out = match &computed {
        Some(cube) => cube.left_out(),
        None => &of_copied,
    };
    let mut notes = computed
        .as_ref()
        .map(apply::ImageCube::input_notes)
        .unwrap_or_default();
    notes.extend(of_samples);
    for note in &notes {
        output::say(&format!("note: {note}"));
    }
    if args.json {
        output::json(&json!({
            "location": to.location().to_string(),
            "notes": notes,
            "steps": steps,
            "known": known,
            "shards": shards,
            "resumed": resumed,
            "bytes": bytes,
            "left_out": left_out,
            "mask": provenance.as_ref().map(|all| all["mask"].clone()),
            "resampling": provenance.as_ref().map(|all| all["resampling"].clone()),
            "mosaic": provenance.as_ref().map(|all| all["mosaic"].clone()),
            "missing_inputs": said_of(&missing_inputs),
            "holes": said_of(&missing_inputs),
            "requests": traffic.requests,
            "wall_s": wall,
        }))?;
    } else {
        say(&missing_inputs, left_out);
        if args.items.recorded.is_some() {
            return Ok(Found::Something);
        }
        let mut lines = vec![format!(
            "{}: {steps} dates in {shards} shards, {} in {wall:.2} s",
            to.location(),
            HumanBytes(bytes)
        )];
        if resumed > 0 {
            lines.push(format!(
                "{resumed} of the shards had been written before an interruption"
            ));
        }
        if known > 0 {
            lines.push(format!("{known} images were in the cube already"));
        }
        output::lines(lines)?;
    }
    Ok(found::whole(&args.onto.on_failure, &missing_inputs))
}

/// What a write is made of.
pub(super) struct Source {
    pub(super) found: QueryResult,
    /// The images on one grid, where they are not copied.
    computed: Option<apply::ImageCube>,
}

impl Source {
    /// Finds the images of a write, or of an append to the cube at a root; none if nothing is found.
    pub(super) async fn of(
        session: &Session,
        to: &Root,
        args: &ZarrWriteArgs,
    ) -> Result<Option<Self>> {
        // Checked before the search, so that a typing error costs nothing.
        let mut on_grid = on_grid(session, &args.onto, &args.items.selection)
            .await?
            .with_grouping(args.by.parse()?)
            .with_clock(clock(args.clock.as_deref(), args.by.parse()?)?)
            .with_mosaic(args.mosaic.parse()?);
        #[cfg(feature = "index")]
        if let Some(headers) = found::headers(&args.items, args.onto.index.as_deref())? {
            on_grid = on_grid.with_headers(headers);
        }
        if args.reflectance {
            on_grid = on_grid.reflectance();
        }
        let mut found = found::items(session, &args.items).await?;
        if found.is_empty() {
            return Ok(None);
        }
        let chosen = &args.items.selection;
        let is_chosen = !chosen.bands.is_empty() || !chosen.canonical.is_empty();
        if args.append && !is_chosen && args.items.recorded.is_none() {
            found = of_cube_bands(session, to, found).await?;
        }
        // A copy is of whole images: a part of them, and pixels that are left out, are computed.
        let is_part = on_grid.clip.is_some() || onto_part(args);
        let computed = match is_computed(args) || is_part {
            true => {
                if args.append {
                    on_grid = like_stored(session, to, on_grid).await?;
                }
                let cube = apply::ImageCube::of(&found, &on_grid).await?;
                for note in cube.notes() {
                    output::say(&format!("note: {note}"));
                }
                Some(cube)
            }
            false => {
                #[cfg(feature = "index")]
                if args.onto.index.is_some() {
                    output::say(
                        "note: --index is not used: it serves images that are put on one grid",
                    );
                }
                None
            }
        };
        Ok(Some(Self { found, computed }))
    }

    pub(super) fn images(&self) -> Result<Images> {
        Ok(match &self.computed {
            Some(cube) => cube.into(),
            None => CubeImage::of(&self.found)?.into(),
        })
    }
}

/// Returns true if images are put on one grid by `apply` before they are written, rather than copied.
fn is_computed(args: &ZarrWriteArgs) -> bool {
    let onto = &args.onto;
    onto.grid.is_some()
        || onto.resolution.is_some()
        || onto.mask.is_some()
        || args.reflectance
        || onto.resampling != "nearest"
        || onto.on_failure != "fail"
        || args.mosaic != "first"
        || onto.anchor.is_some()
        || onto.min_valid.is_some()
}

/// Returns true if a part of the images is asked for.
fn onto_part(args: &ZarrWriteArgs) -> bool {
    args.onto.crop.is_some() || args.onto.extent.is_some()
}

/// Selects the bands of the cube that is appended to, and says which others the items have. Items that lack one of them,
/// as where the cube's bands have canonical names, stay as they are.
async fn of_cube_bands(session: &Session, to: &Root, found: QueryResult) -> Result<QueryResult> {
    let cube = Cube::open(session, to).await?;
    let items = &found.items().items;
    let has = |key: &str| items.iter().any(|item| item.assets.contains_key(key));
    let selected = |name: &str| match name.split_once('.') {
        _ if has(name) => Some(name.to_owned()),
        // The array `key.red` is a band of an asset with several, which is selected as `key:red`.
        Some((key, band)) if has(key) => Some(format!("{key}:{band}")),
        _ => None,
    };
    let bands = cube.bands().iter().map(|band| selected(&band.name));
    let Some(bands) = bands.collect::<Option<Vec<String>>>() else {
        return Ok(found);
    };
    let is_of_cube = |key: &str| {
        let of_asset = format!("{key}:");
        bands
            .iter()
            .any(|band| band == key || band.starts_with(&of_asset))
    };
    let others = found.bands().iter().filter(|key| !is_of_cube(key));
    let others: Vec<&str> = others.map(String::as_str).collect();
    if !others.is_empty() {
        output::say(&format!(
            "note: the cube has no bands {}: they are left out",
            others.join(", ")
        ));
    } else if found.bands().is_empty() && items.iter().any(|item| item.assets.len() > bands.len()) {
        output::say(&format!(
            "note: of the items the bands of the cube are taken: {}",
            bands.join(", ")
        ));
    }
    Ok(found.with_bands(bands))
}

/// Returns options that put images on the grid of the existing cube.
async fn like_stored(
    session: &Session,
    to: &Root,
    mut options: apply::ImageCubeOptions,
) -> Result<apply::ImageCubeOptions> {
    let stored = Cube::open(session, to).await?;
    let grid = stored.grid();
    let differs = match &options.grid {
        apply::Grid::Of(other) => other != grid,
        apply::Grid::Projected(crs, side) => {
            grid.crs.as_ref().is_none_or(|own| !own.is_same(crs))
                || grid.resolution() != Some(*side)
        }
        apply::Grid::Resolution(side) | apply::Grid::Utm(side) => grid.resolution() != Some(*side),
        _ => false,
    };
    ensure!(!differs, "the cube is on {grid}, another grid is requested");
    // The extent of a cube is fixed at its creation.
    options.bbox = None;
    options.extent = None;
    Ok(options.with_grid(apply::Grid::Of(grid.clone())))
}

/// Adds a hint to the error of images on several grids: which options put them on one.
fn hinted(err: rss_core::Error, is_computed: bool) -> anyhow::Error {
    // The ends of the messages of `Lattice::extent`.
    let endings = ["reproject it first", "resample it first"];
    let is_misaligned = endings.iter().any(|ending| err.message().ends_with(ending));
    match is_misaligned && !is_computed {
        true => anyhow!("{err}; --resolution (with --crs) or --grid put images on one grid"),
        false => err.into(),
    }
}

pub(super) fn options(args: &ZarrWriteArgs) -> Result<CubeOptions> {
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
        .with_grouping(args.by.parse()?)
        .with_clock(clock(args.clock.as_deref(), args.by.parse()?)?)
        .with_duplicates(args.onto.duplicates.parse()?)
        .with_fill(args.onto.fill.parse()?)
        .with_overviews(
            args.overviews,
            overview_resampling(&args.overview_resampling)?,
        );
    if let Some(nodata) = args.nodata {
        options = options.with_nodata(nodata);
    }
    if args.take_over {
        options = options.take_over();
    }
    Ok(options)
}

/// Returns the resampling of overviews; none where it depends on the band.
fn overview_resampling(name: &str) -> Result<Option<Resampling>> {
    Ok(match name {
        "auto" => None,
        name => Some(name.parse()?),
    })
}

async fn read(args: &ZarrReadArgs) -> Result<Found> {
    ensure!(
        !(args.json && args.output == "-"),
        "--json and -o - both want stdout; give a file to -o"
    );
    let session = session::open()?;
    let root = root(&args.location, args.icechunk.as_deref())?;
    // Checked before any byte is fetched, so that a typing error costs nothing.
    let to_file = (args.output != "-").then(|| Path::new(&args.output));
    if let Some(path) = to_file {
        Format::of_path(path)?;
    }
    let ranges: Option<Vec<Range<u64>>> = match &args.ranges {
        // An array without axes has no range.
        Some(text) if text.trim().is_empty() => Some(Vec::new()),
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

/// Reads a region of an array as (all axes before the last two flattened, rows, columns).
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

/// Reads time steps of a band as the bands of a raster.
async fn of_cube(
    session: &Session,
    root: &Root,
    args: &ZarrReadArgs,
) -> Result<(Raster, Vec<u64>)> {
    let cube = match Cube::open(session, root).await {
        Err(err) if err.kind() == ErrorKind::Unsupported => {
            return Err(err).context("not a cube: name an array of it, and --ranges");
        }
        opened => opened?,
    };
    noted(&cube);
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

/// Says what a user should know of a cube of others.
fn noted(cube: &Cube) {
    for note in cube.notes() {
        output::say(&format!("note: {note}"));
    }
}

async fn info(root: &Root, as_json: bool) -> Result<Found> {
    let session = session::open()?;
    let document = match Cube::open(&session, root).await {
        Ok(cube) => {
            noted(&cube);
            said_of_cube(&cube)?
        }
        Err(err) if err.kind() == ErrorKind::Unsupported => {
            match Array::open(&session, root).await {
                Ok(array) => said_of_array(&array),
                // A group that is not a cube: the cube's error tells more than the array's.
                Err(_) => return Err(err.into()),
            }
        }
        Err(err) if err.kind() == ErrorKind::NotFound => {
            // Without `zarr.json` it may be an array of Zarr v2.
            said_of_array(&Array::open(&session, root).await?)
        }
        Err(err) => return Err(err.into()),
    };
    if as_json {
        output::json(&document)?;
        return Ok(Found::Something);
    }
    let lines = document
        .as_object()
        .into_iter()
        .flatten()
        .flat_map(|(key, value)| {
            let text = |value: &Value| match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            match value {
                // Said on stderr.
                Value::Array(_) if key == "notes" => Vec::new(),
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

/// Returns a sample as JSON; NaN and infinity, which JSON lacks, as text.
fn sample(value: Number) -> Value {
    match value.is_finite() {
        true => number(value),
        false => json!(value.to_string()),
    }
}

/// Returns the type in which samples are stored.
fn stored(array: &Array) -> &'static str {
    match array.is_float16() {
        true => "float16",
        false => array.dtype().name(),
    }
}

fn said_of_array(array: &Array) -> Value {
    json!({
        "kind": "array",
        "shape": array.shape(),
        "dtype": array.dtype().name(),
        "stored": stored(array),
        "chunk": array.chunk(),
        "shard": array.shard(),
        "fill": sample(array.fill()),
        "dimensions": array.dimensions(),
        "attributes": array.attributes(),
    })
}

fn said_of_cube(cube: &Cube) -> Result<Value> {
    let bands = cube
        .bands()
        .iter()
        .map(|band| {
            let levels = cube.levels_of(&band.name);
            let array = cube.array(levels.first().copied().unwrap_or(0), &band.name)?;
            Ok(json!({
                "name": band.name,
                "dtype": band.dtype.name(),
                "stored": stored(array),
                "levels": levels,
                "nodata": band.nodata.map(sample),
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
        .map(|step| {
            let mut said = json!({"time": step.time, "items": step.items});
            if let Some(bounds) = step.bounds {
                (said["start"], said["end"]) = (json!(bounds.start), json!(bounds.end));
            }
            said
        })
        .collect();
    let levels: Vec<[u32; 2]> = cube
        .levels()
        .iter()
        .map(|grid| [grid.size.width, grid.size.height])
        .collect();
    Ok(json!({
        "kind": "cube",
        "own": cube.is_own(),
        "notes": cube.notes(),
        "made": cube.attributes().get("rss:made"),
        "width": grid.size.width,
        "height": grid.size.height,
        "epsg": grid.crs.as_ref().and_then(rss_core::Crs::epsg),
        "transform": grid.transform.map(|transform| transform.0),
        "levels": levels,
        "bands": bands,
        "times": times,
    }))
}
