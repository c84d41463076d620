//! `rss apply` and `rss mosaic`: one raster from many images.

use std::{path::Path, time::Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
#[cfg(feature = "zarr")]
use rss_core::zarr;
use rss_core::{
    Backend, Crs, Format, Location, Manifest, QueryResult, Resampling, Resolution, Session, Size,
    Stretch,
    apply::{
        ApplyOptions, Expression, Grid, ImageCube, ImageCubeOptions, MadeBand, MadeFile,
        MissingInput, OnFailure, Overviews, Step, TypedApply,
        mosaic::Mosaic,
        reduce::{Geomedian, Reducer},
        sample::{GeoJsonOptions, Zones},
        time::{Clock, Grouping},
    },
    mask::Cleanup,
    reader,
    writer::CogOptions,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{found, record, session};
use crate::{
    Found,
    args::{ApplyArgs, CubeArgs, GridArgs, MosaicArgs, Selection},
    output,
};

pub(crate) async fn run(args: &ApplyArgs) -> Result<Found> {
    let formulas = Expression::parse_all(&args.formulas)?;
    let reduction = args.reduce.as_deref().map(Reduction::parse).transpose()?;
    ensure!(
        formulas.is_empty() || reduction != Some(Reduction::Geomedian),
        "--reduce geomedian takes all bands together, and no --expr: write its bands, then compute a formula of those"
    );
    let every: Option<Grouping> = args.every.as_deref().map(str::parse).transpose()?;
    let by = match (args.by.as_deref(), args.clock.as_deref()) {
        (Some(by), _) => by.parse()?,
        (None, Some("utc")) => Grouping::Day,
        (None, _) => Grouping::SolarDay,
    };
    let steps = TimeSteps {
        by,
        clock: clock(args.clock.as_deref(), by)?,
        mosaic: args.mosaic.parse()?,
    };
    let mut bands: Vec<String> = Vec::new();
    for band in formulas.iter().flat_map(Expression::bands) {
        if !bands.contains(band) {
            bands.push(band.clone());
        }
    }
    make(&args.cube, &steps, &bands, async |cube, options| {
        let work = match (formulas.is_empty(), reduction) {
            (_, Some(Reduction::Geomedian)) => {
                cube.geomedian_typed(Geomedian::default(), options).await
            }
            (false, None) => cube.express_typed(&formulas, None, options).await?,
            (false, Some(Reduction::Each(reducer))) => {
                cube.express_typed(&formulas, Some(reducer), options)
                    .await?
            }
            (true, Some(Reduction::Each(reducer))) => cube.reduce_typed(reducer, options).await?,
            (true, None) => cube.layers(options).await?,
        };
        Ok(match every {
            Some(every) => work.every(every)?,
            None => work,
        })
    })
    .await
}

/// How time steps are reduced: each band by itself, or all bands of a pixel together.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Reduction {
    Each(Reducer),
    Geomedian,
}

impl Reduction {
    fn parse(text: &str) -> Result<Self> {
        match text {
            "geomedian" => Ok(Self::Geomedian),
            text => text
                .parse()
                .map(Self::Each)
                .map_err(|err: rss_core::Error| {
                    anyhow!("{err}; or geomedian, of all bands together")
                }),
        }
    }
}

/// Which images are a time step, and what is made of them.
struct TimeSteps {
    by: Grouping,
    clock: Clock,
    mosaic: Mosaic,
}

/// Returns the clock of the days; `by` may state it too.
pub(super) fn clock(text: Option<&str>, by: Grouping) -> Result<Clock> {
    let clock: Option<Clock> = text.map(str::parse).transpose()?;
    let of_days = match by {
        Grouping::Day => Some(Clock::Utc),
        Grouping::SolarDay => Some(Clock::Solar),
        _ => None,
    };
    match (clock, of_days) {
        (Some(clock), Some(other)) if clock != other => {
            bail!("--clock {clock} and --by {by}: these days are {other}")
        }
        (clock, of_days) => Ok(clock.or(of_days).unwrap_or_default()),
    }
}

/// `rss mosaic`.
pub(crate) async fn mosaic(args: &MosaicArgs) -> Result<Found> {
    if args.method == "geomedian" {
        // Of days: images of one pass overlap, and would count twice.
        let steps = TimeSteps {
            by: Grouping::SolarDay,
            clock: Clock::default(),
            mosaic: Mosaic::FirstValid,
        };
        return make(&args.cube, &steps, &[], async |cube, options| {
            let work = cube.geomedian_typed(Geomedian::default(), options);
            Ok(work.await)
        })
        .await;
    }
    let steps = TimeSteps {
        by: Grouping::All,
        clock: Clock::default(),
        mosaic: args.method.parse()?,
    };
    make(&args.cube, &steps, &[], async |cube, options| {
        Ok(cube.reduce_typed(Reducer::First, options).await?)
    })
    .await
}

/// Returns the options of putting images on one grid: grid, resampling, mask, failures.
pub(super) async fn on_grid(
    session: &Session,
    args: &GridArgs,
    selection: &Selection,
) -> Result<ImageCubeOptions> {
    let (resampling, of_bands) = resamplings(&args.resampling)?;
    let mut options = ImageCubeOptions::new()
        .with_resampling(resampling)
        .with_fill(args.fill.parse()?)
        .with_duplicates(args.duplicates.parse()?)
        .with_on_failure(match args.on_failure.as_str() {
            "fail" => OnFailure::Fail,
            // `hole` is the former name.
            "skip" | "hole" => OnFailure::Skip,
            other => bail!("--on-failure `{other}` is not one of fail, skip"),
        });
    if let Some(classes) = &args.mask {
        let cleanup = Cleanup::default()
            .with_dilation(args.dilate)
            .with_opening(args.opening);
        options = options
            .with_mask(classes.parse()?, cleanup)
            .with_mask_stage(args.mask_stage.parse()?);
    }
    for (band, resampling) in of_bands {
        options = options.with_band_resampling(band, resampling);
    }
    if let Some(share) = args.min_valid {
        options = options.with_min_valid(share);
    }
    if let Some(side) = args.resolution {
        let resolution = Resolution::from(side);
        options = options.with_grid(match args.crs.as_deref() {
            None => Grid::Resolution(resolution),
            Some("utm") => Grid::Utm(resolution),
            Some(text) => Grid::Projected(crs_of(text)?, resolution),
        });
    }
    if let Some(file) = &args.grid {
        let raster = reader::open(session, &Location::parse(file)?, Backend::Auto).await?;
        options = options.with_grid(Grid::Of(raster.profile().level_geobox(0)?));
    }
    if let Some(path) = &selection.manifest {
        options = options.with_manifest(Manifest::from_file(path)?);
    }
    if let Some(anchor) = &args.anchor {
        options = options.with_anchor(anchor.parse()?);
    }
    if args.no_overviews {
        options = options.with_overviews(Overviews::Never);
    }
    if let Some(edges) = &args.crop {
        options = options.with_bbox(edges.parse().context("--crop")?);
    } else if let Some(edges) = &args.extent {
        options = options.with_extent(found::four(edges, "--extent XMIN,YMIN,XMAX,YMAX")?);
    } else if let (Some(edges), false) = (&selection.bbox, args.no_crop) {
        options = options.with_bbox(edges.parse()?);
    }
    if let (Some(path), false) = (&selection.geometry, args.no_clip || args.no_crop) {
        options = clipped(options, path)?;
    }
    Ok(options)
}

/// Clips to the polygons of a file. One without polygons selects images only, which is said.
fn clipped(options: ImageCubeOptions, path: &Path) -> Result<ImageCubeOptions> {
    let what = || format!("--geometry {}", path.display());
    let text = std::fs::read_to_string(path).with_context(what)?;
    let document: Value = serde_json::from_str(&text).with_context(what)?;
    if !has_polygon(&document) {
        output::say(&format!(
            "note: {} has no polygon: images are not cropped to it",
            what()
        ));
        return Ok(options);
    }
    let zones = Zones::from_geojson(&text, &GeoJsonOptions::new()).with_context(what)?;
    Ok(options.with_clip(zones))
}

/// Returns true if GeoJSON holds a polygon.
fn has_polygon(value: &Value) -> bool {
    match value["type"].as_str() {
        Some("Polygon" | "MultiPolygon") => true,
        Some("Feature") => has_polygon(&value["geometry"]),
        Some("FeatureCollection") => value["features"]
            .as_array()
            .into_iter()
            .flatten()
            .any(has_polygon),
        Some("GeometryCollection") => value["geometries"]
            .as_array()
            .into_iter()
            .flatten()
            .any(has_polygon),
        _ => false,
    }
}

/// Returns true if `--crs` names a file.
pub(super) fn is_crs_file(text: &str) -> bool {
    !text.contains(['[', '{', '+']) && Path::new(text).is_file()
}

/// Reads a CRS: of a file, if there is one of that name.
pub(super) fn crs_of(text: &str) -> Result<Crs> {
    let read = match is_crs_file(text) {
        true => std::fs::read_to_string(text).with_context(|| format!("--crs `{text}`"))?,
        false => text.to_owned(),
    };
    read.parse::<Crs>()
        .with_context(|| format!("--crs `{text}`"))
}

/// Returns the resampling of all bands, and those of single ones, of `average,scl=mode`.
fn resamplings(text: &str) -> Result<(Resampling, Vec<(String, Resampling)>)> {
    let mut of_all = None;
    let mut of_bands = Vec::new();
    for part in text.split(',').map(str::trim) {
        match part.split_once('=') {
            Some((band, how)) => of_bands.push((band.trim().to_owned(), how.trim().parse()?)),
            None => {
                let earlier = of_all.replace(part.parse()?);
                ensure!(
                    earlier.is_none(),
                    "--resampling `{text}` has two for all bands: name a band as in scl=mode"
                );
            }
        }
    }
    Ok((of_all.unwrap_or_default(), of_bands))
}

/// The output of a result.
enum To {
    Cog(Location, CogOptions),
    #[cfg(feature = "zarr")]
    Zarr(Location),
    Look(std::path::PathBuf, Stretch),
    File(std::path::PathBuf),
}

impl To {
    fn of(args: &CubeArgs) -> Result<Self> {
        let location = Location::parse(&args.output)?;
        let is_look = args.output.to_ascii_lowercase().ends_with(".png");
        ensure!(
            args.range.is_none() || is_look,
            "--range is for a quicklook: -o FILE.png"
        );
        #[cfg(feature = "zarr")]
        if args.output.trim_end_matches('/').ends_with(".zarr") {
            return Ok(Self::Zarr(location));
        }
        let format = match location.as_local() {
            Some(path) => Format::of_path(path).map_err(|err| match cfg!(feature = "zarr") {
                true => anyhow!("{err}, or .zarr for a cube"),
                false => err.into(),
            })?,
            None => Format::GeoTiff,
        };
        Ok(match (format, location.as_local()) {
            (Format::GeoTiff, _) | (_, None) => {
                let options = CogOptions::new()
                    .with_compression(args.compress.parse()?)
                    .with_overview_resampling(&args.overview_resampling)?;
                Self::Cog(location, options)
            }
            (Format::Png, Some(path)) => Self::Look(Path::to_owned(path), stretch(args)?),
            (_, Some(path)) => Self::File(Path::to_owned(path)),
        })
    }
}

/// Returns the contrast stretch of a quicklook.
fn stretch(args: &CubeArgs) -> Result<Stretch> {
    let Some(text) = &args.range else {
        return Ok(Stretch::default());
    };
    let ends = text
        .split_once(',')
        .and_then(|(low, high)| Some((low.trim().parse().ok()?, high.trim().parse().ok()?)));
    let (black, white) =
        ends.with_context(|| format!("--range `{text}` is not LOW,HIGH, such as 0,0.4"))?;
    Ok(Stretch::Range { black, white })
}

/// The report of a write.
struct Made {
    blocks: u64,
    missing_inputs: Vec<MissingInput>,
    /// Bands, or arrays of a cube.
    count: usize,
    /// The values of black and white in each band of a quicklook.
    stretch: Vec<[f64; 2]>,
    /// The bands of a raster, with statistics.
    bands: Vec<MadeBand>,
}

/// Computes a result and writes it; `bands` are selected where the arguments select none.
async fn make(
    args: &CubeArgs,
    steps: &TimeSteps,
    bands: &[String],
    work: impl AsyncFnOnce(&ImageCube, ApplyOptions) -> Result<TypedApply>,
) -> Result<Found> {
    let mut to = To::of(args)?;
    if args.stac {
        place_beside(args)?;
    }
    let session = session::with_budget(args.budget)?;
    let _fallbacks = output::Fallbacks(session.clone());
    let mut options = on_grid(&session, &args.onto, &args.items.selection)
        .await?
        .with_grouping(steps.by)
        .with_clock(steps.clock)
        .with_mosaic(steps.mosaic);
    #[cfg(feature = "index")]
    if let Some(headers) = found::headers(&args.items, args.onto.index.as_deref())? {
        options = options.with_headers(headers);
    }
    if !args.raw {
        options = options.reflectance();
    }
    let found = match args.items.selection.bands.is_empty()
        && args.items.selection.canonical.is_empty()
        && !bands.is_empty()
    {
        true => found::items_of(&session, &args.items, bands).await?,
        false => found::items(&session, &args.items).await?,
    };
    if found.is_empty() {
        output::say("nothing found");
        return Ok(Found::Nothing);
    }
    let start = Instant::now();
    let cube = ImageCube::of(&found, &options).await?;
    let bar = output::bar(0);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} blocks [{elapsed}]") {
        bar.set_style(style);
    }
    let shown = bar.clone();
    let mut how = ApplyOptions::new().with_progress(move |progress| {
        shown.set_length(progress.blocks);
        shown.set_position(progress.blocks_done);
    });
    how.block = args.block;
    how.nodata = args.nodata;
    let work = work(&cube, how).await?;
    let dtype = work.dtype();
    let notes = [cube.notes(), work.notes()].concat();
    for note in &notes {
        output::say(&format!("note: {note}"));
    }
    let periods: Vec<_> = match work.steps() {
        Some(steps) if steps != cube.steps() => steps.iter().map(said_of_step).collect(),
        _ => Vec::new(),
    };
    if args.stac {
        // The first block would open them, too; open files tell their versions.
        cube.open_files().await;
    }
    let provenance = work.provenance();
    let record = record_of(&work, &mut to, args, &found).await?;
    let done = write(work, &to, &session, &bar, &record).await;
    bar.finish_and_clear();
    let made = done?;
    if args.stac {
        beside(args, &cube, &provenance, &made, &record)?;
    }
    let of_inputs = cube.input_notes();
    for note in &of_inputs {
        output::say(&format!("note: {note}"));
    }
    let notes = [notes, of_inputs].concat();
    if !args.json {
        say(&made.missing_inputs, cube.left_out());
    }
    found::complete(&found)?;
    let wall = start.elapsed().as_secs_f64();
    let Size { width, height } = cube.grid().size;
    if args.json {
        let traffic = session.traffic();
        let steps: Vec<_> = cube.steps().iter().map(said_of_step).collect();
        output::json(&json!({
            "location": args.output,
            "grid": cube.grid().to_string(),
            "width": width,
            "height": height,
            "count": made.count,
            "dtype": dtype.name(),
            "steps": steps,
            "periods": periods,
            "notes": notes,
            "left_out": cube.left_out(),
            "computed": provenance["computed"],
            "mask": provenance["mask"],
            "resampling": provenance["resampling"],
            "grouping": provenance["grouping"],
            "mosaic": provenance["mosaic"],
            "values": provenance["values"],
            "time": provenance["time"],
            "software": provenance["software"],
            "stretch": made.stretch,
            "blocks": made.blocks,
            "missing_inputs": said_of(&made.missing_inputs),
            // The former key, for programs that read it.
            "holes": said_of(&made.missing_inputs),
            "requests": traffic.requests,
            "bytes": traffic.bytes,
            "wall_s": wall,
        }))?;
    } else if args.items.recorded.is_none() {
        let mut lines = vec![format!(
            "{}: {} bands of {}, from {} dates, in {wall:.2} s",
            args.output,
            made.count,
            cube.grid(),
            cube.steps().len()
        )];
        let shades = made.stretch.iter();
        lines.extend(shades.map(|[black, white]| format!("black is {black}, white is {white}")));
        output::lines(lines)?;
    }
    Ok(found::whole(&args.onto.on_failure, &made.missing_inputs))
}

fn said_of_step(step: &Step) -> Value {
    json!({"label": step.label, "items": step.items})
}

/// The largest record that a COG holds: readers fetch the header with it.
const MOST_RECORD: usize = 1 << 20;

/// Returns the record of this command, packed, and puts it into the metadata of a COG.
async fn record_of(
    work: &TypedApply,
    to: &mut To,
    args: &CubeArgs,
    found: &QueryResult,
) -> Result<String> {
    let more = match to {
        // The order of tiles in the file depends on blocks, which depend on memory and threads.
        To::Cog(_, options) if args.block.is_none() => {
            let side = work.cog_block(options).await?;
            vec!["--block".to_owned(), side.to_string()]
        }
        _ => Vec::new(),
    };
    let record = rss_core::packed(&record::of(&args.items, found, &more)?);
    if let To::Cog(_, options) = to {
        match record.len() <= MOST_RECORD {
            true => *options = options.clone().with_metadata("RSS_RECORD", &record),
            false if args.stac => {}
            false => output::say(&format!(
                "note: the record of {} items is too large for the file; --stac keeps it beside",
                found.len()
            )),
        }
    }
    Ok(record)
}

/// Writes the STAC Item of the output beside it.
fn beside(
    args: &CubeArgs,
    cube: &ImageCube,
    provenance: &Value,
    made: &Made,
    record: &str,
) -> Result<()> {
    let location = Location::parse(&args.output)?;
    let path = location
        .as_local()
        .with_context(|| format!("--stac: {location} is no local file"))?;
    let name = location.file_name().to_owned();
    let stem = path
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned());
    let media_type = match path.extension().and_then(|ending| ending.to_str()) {
        Some("zarr") => "application/vnd+zarr",
        Some("png") => "image/png",
        Some("tif" | "tiff") => "image/tiff; application=geotiff; profile=cloud-optimized",
        _ => "application/octet-stream",
    };
    let mut file = MadeFile::new(stem.unwrap_or_default(), format!("./{name}"), media_type);
    file.bands.clone_from(&made.bands);
    file.properties
        .insert("rss:record".to_owned(), json!(record));
    if path.is_file() {
        let mut hash = Sha256::new();
        let mut from = std::fs::File::open(path)?;
        let bytes = std::io::copy(&mut from, &mut Hashing(&mut hash))?;
        file.bytes = Some(bytes);
        let hex = hash
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        file.sha256 = Some(hex);
    }
    let item = file.item(cube.grid(), provenance)?;
    let beside = place_beside(args)?;
    let text = serde_json::to_vec_pretty(&item)?;
    std::fs::write(&beside, text).with_context(|| beside.display().to_string())
}

/// Returns where the STAC Item beside the output goes.
///
/// # Errors
///
/// If the output is not on this machine, or another document is there, such as the items that are the input.
fn place_beside(args: &CubeArgs) -> Result<std::path::PathBuf> {
    let location = Location::parse(&args.output)?;
    let path = location
        .as_local()
        .with_context(|| format!("--stac: {location} is no local file"))?;
    let beside = path.with_extension("json");
    if let Ok(text) = std::fs::read(&beside) {
        let there: Value = serde_json::from_slice(&text).unwrap_or_default();
        ensure!(
            there["properties"].get("rss:provenance").is_some(),
            "--stac: {} is there already, and is no STAC Item of rss: choose another output",
            beside.display()
        );
    }
    Ok(beside)
}

/// A hash that is written to.
struct Hashing<'a>(&'a mut Sha256);

impl std::io::Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns the missing inputs as JSON.
pub(super) fn said_of(missing_inputs: &[MissingInput]) -> Vec<Value> {
    let entry = |input: &MissingInput| {
        json!({"item": input.item, "asset": input.asset,
            "window": input.window.map(|window| window.to_string()), "error": input.message})
    };
    missing_inputs.iter().map(entry).collect()
}

/// Reports missing inputs on stderr, each asset once, however many blocks lack it; and the items that were left out.
pub(super) fn say(missing_inputs: &[MissingInput], left_out: &[String]) {
    for (number, input) in missing_inputs.iter().enumerate() {
        let same =
            |other: &&MissingInput| (&other.item, &other.asset) == (&input.item, &input.asset);
        if missing_inputs[..number].iter().any(|other| same(&other)) {
            continue;
        }
        let blocks = missing_inputs.iter().filter(same).count();
        let more = match blocks {
            1 => String::new(),
            blocks => format!(" (and in {} more blocks)", blocks - 1),
        };
        output::say(&format!("missing: {input}{more}"));
    }
    for one in left_out {
        output::say(&format!("left out: {one}"));
    }
}

/// Writes a result.
#[cfg_attr(
    not(feature = "zarr"),
    expect(unused_variables, reason = "only a cube reports progress by itself")
)]
async fn write(
    work: TypedApply,
    to: &To,
    session: &Session,
    bar: &ProgressBar,
    record: &str,
) -> Result<Made> {
    let (dtype, nodata) = (work.dtype(), work.nodata());
    let mut bands: Vec<MadeBand> = work.band_names().iter().map(MadeBand::new).collect();
    for band in &mut bands {
        (band.dtype, band.nodata) = (Some(dtype), nodata);
    }
    let (report, count, stretch) = match to {
        To::Cog(location, options) => {
            let (written, report) = work.cog(location, options).await?;
            for (band, statistics) in bands.iter_mut().zip(&written.statistics) {
                band.statistics = *statistics;
            }
            (report, written.statistics.len(), Vec::new())
        }
        #[cfg(feature = "zarr")]
        To::Zarr(location) => return write_cube(work, location, session, bar, record).await,
        To::Look(path, stretch) => {
            let (raster, report) = work.raster().await?;
            let shades = raster.save_png(path, *stretch)?;
            (report, raster.pixels.shape()[0], shades)
        }
        To::File(path) => {
            let (raster, report) = work.raster().await?;
            raster.save(path)?;
            (report, raster.pixels.shape()[0], Vec::new())
        }
    };
    Ok(Made {
        blocks: report.blocks,
        missing_inputs: report.missing_inputs,
        count,
        stretch,
        bands,
    })
}

/// Writes a result as a stored cube.
#[cfg(feature = "zarr")]
async fn write_cube(
    work: TypedApply,
    location: &Location,
    session: &Session,
    bar: &ProgressBar,
    record: &str,
) -> Result<Made> {
    let shown = bar.clone();
    let options = zarr::CubeOptions::new().with_note("rss:record", record);
    let options = options.with_progress(move |progress| {
        shown.set_length(progress.shards);
        shown.set_position(progress.shards_done);
    });
    let written = work.zarr(location, &options).await?;
    let stored = zarr::Cube::open(session, location).await?;
    Ok(Made {
        blocks: written.shards,
        missing_inputs: written.missing_inputs,
        count: stored.bands().len(),
        stretch: Vec::new(),
        bands: stored
            .bands()
            .iter()
            .map(|band| {
                let mut made = MadeBand::new(&band.name);
                (made.dtype, made.nodata) = (Some(band.dtype), band.nodata);
                made
            })
            .collect(),
    })
}
