//! `rss apply` and `rss mosaic`: one picture of many images.

use std::{path::Path, time::Instant};

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use rss_core::{
    Crs, Format, Location, Manifest, Resolution, Session, SessionBuilder, Size,
    apply::{
        Apply, ApplyOptions, ApplyReport, Block, Cube, CubeOptions, Expression, Grid, Hole,
        OnFailure, mosaic::Mosaic, reduce::Reducer, time::Grouping,
    },
    mask::Cleanup,
    writer::CogOptions,
};
use serde_json::json;

use super::found;
use crate::{
    Found,
    args::{ApplyArgs, CubeArgs, MosaicArgs},
    output,
};

pub(crate) async fn run(args: &ApplyArgs) -> Result<Found> {
    let formulas: Vec<Expression> = args
        .formulas
        .iter()
        .map(|text| text.parse())
        .collect::<rss_core::Result<_>>()?;
    let reducer: Option<Reducer> = args.reduce.as_deref().map(str::parse).transpose()?;
    let options = options(&args.cube)?
        .with_grouping(args.by.parse()?)
        .with_mosaic(args.mosaic.parse()?);
    let mut bands: Vec<String> = Vec::new();
    for band in formulas.iter().flat_map(Expression::bands) {
        if !bands.contains(band) {
            bands.push(band.clone());
        }
    }
    make(&args.cube, options, &bands, |cube, options| {
        Ok(match (formulas.is_empty(), reducer) {
            (false, reducer) => cube.express(&formulas, reducer, options)?,
            (true, Some(reducer)) => cube.reduce(reducer, options),
            (true, None) => as_they_are(cube, options),
        })
    })
    .await
}

/// `rss mosaic`.
pub(crate) async fn mosaic(args: &MosaicArgs) -> Result<Found> {
    let options = options(&args.cube)?
        .with_grouping(Grouping::All)
        .with_mosaic(args.method.parse::<Mosaic>()?);
    make(&args.cube, options, &[], |cube, options| {
        Ok(cube.reduce(Reducer::First, options))
    })
    .await
}

/// Each date of each band as a band.
fn as_they_are(cube: &Cube, options: ApplyOptions) -> Apply<f32> {
    let dates = cube.steps().iter();
    let names = dates.flat_map(|step| {
        let bands = cube.bands().iter();
        bands.map(|band| format!("{} {}", band.name, step.label))
    });
    cube.apply(options.with_names(names), |block: &Block<f32>| {
        let data = block.data();
        let (times, bands, height, width) = data.dim();
        let mut flat = ndarray::Array3::zeros((times * bands, height, width));
        for (layer, mut out) in flat.outer_iter_mut().enumerate() {
            out.assign(&data.slice(ndarray::s![layer / bands, layer % bands, .., ..]));
        }
        Ok(flat)
    })
}

fn options(args: &CubeArgs) -> Result<CubeOptions> {
    let mut options = CubeOptions::new()
        .with_resampling(args.resampling.parse()?)
        .with_on_failure(match args.on_failure.as_str() {
            "fail" => OnFailure::Fail,
            "hole" => OnFailure::Hole,
            other => anyhow::bail!("--on-failure `{other}` is not one of fail, hole"),
        });
    if !args.raw {
        options = options.reflectance();
    }
    if let Some(classes) = &args.mask {
        let cleanup = Cleanup::default()
            .with_dilation(args.dilate)
            .with_opening(args.opening);
        options = options.with_mask(classes.parse()?, cleanup);
    }
    if let Some(side) = args.resolution {
        let resolution = Resolution::from(side);
        options = options.with_grid(match args.crs.as_deref() {
            None => Grid::Resolution(resolution),
            Some("utm") => Grid::Utm(resolution),
            Some(code) => {
                let digits = code.to_ascii_uppercase();
                let digits = digits.strip_prefix("EPSG:").unwrap_or(&digits).to_owned();
                let code = digits
                    .parse()
                    .with_context(|| format!("--crs `{code}` is not an EPSG code or utm"))?;
                Grid::Projected(Crs::Epsg(code), resolution)
            }
        });
    }
    if let Some(path) = &args.items.selection.manifest {
        options = options.with_manifest(Manifest::from_file(path)?);
    }
    if let (Some(edges), false) = (&args.items.selection.bbox, args.no_crop) {
        options = options.with_bbox(edges.parse()?);
    }
    Ok(options)
}

/// Where a result goes.
enum To {
    Cog(Location, CogOptions),
    File(std::path::PathBuf),
}

impl To {
    fn of(args: &CubeArgs) -> Result<Self> {
        let location = Location::parse(&args.output)?;
        let format = match location.as_local() {
            Some(path) => Format::of_path(path)?,
            None => Format::GeoTiff,
        };
        Ok(match (format, location.as_local()) {
            (Format::GeoTiff, _) | (_, None) => {
                let options = CogOptions::new().with_compression(args.compress.parse()?);
                Self::Cog(location, options)
            }
            (_, Some(path)) => Self::File(Path::to_owned(path)),
        })
    }
}

/// Makes a result and writes it. `bands` are those that are needed, where none is selected.
async fn make(
    args: &CubeArgs,
    options: CubeOptions,
    bands: &[String],
    work: impl FnOnce(&Cube, ApplyOptions) -> Result<Apply<f32>>,
) -> Result<Found> {
    let to = To::of(args)?;
    let session = session(args)?;
    let found = match args.items.selection.bands.is_empty()
        && args.items.selection.canonical.is_empty()
        && !bands.is_empty()
    {
        true => found::items_with(&session, &args.items, bands).await?,
        false => found::items(&session, &args.items).await?,
    };
    if found.is_empty() {
        output::say("nothing found");
        return Ok(Found::Nothing);
    }
    let start = Instant::now();
    let cube = Cube::of(&found, &options).await?;
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} blocks [{elapsed}]") {
        bar.set_style(style);
    }
    let shown = bar.clone();
    let mut how = ApplyOptions::new().with_progress(move |progress| {
        shown.set_length(progress.blocks);
        shown.set_position(progress.blocks_done);
    });
    how.block = args.block;
    let work = work(&cube, how)?;
    let done = write(work, &to).await;
    bar.finish_and_clear();
    let (report, count) = done?;
    if !args.json {
        say(&report, &cube);
    }
    found::complete(&found)?;
    let wall = start.elapsed().as_secs_f64();
    let Size { width, height } = cube.grid().size;
    if args.json {
        let traffic = session.traffic();
        let holes: Vec<_> = report
            .holes
            .iter()
            .map(|hole| {
                json!({"item": hole.item, "asset": hole.asset,
                    "window": hole.window.map(|window| window.to_string()), "error": hole.message})
            })
            .collect();
        let steps: Vec<_> = cube
            .steps()
            .iter()
            .map(|step| json!({"label": step.label, "items": step.items}))
            .collect();
        output::json(&json!({
            "location": args.output,
            "grid": cube.grid().to_string(),
            "width": width,
            "height": height,
            "count": count,
            "dtype": "float32",
            "steps": steps,
            "left_out": cube.left_out(),
            "blocks": report.blocks,
            "holes": holes,
            "requests": traffic.requests,
            "bytes": traffic.bytes,
            "wall_s": wall,
        }))?;
    } else {
        output::lines([format!(
            "{}: {count} bands of {}, from {} dates, in {wall:.2} s",
            args.output,
            cube.grid(),
            cube.steps().len()
        )])?;
    }
    Ok(Found::Something)
}

/// Says what is missing: each asset once, however many blocks lack it.
fn say(report: &ApplyReport, cube: &Cube) {
    for (number, hole) in report.holes.iter().enumerate() {
        let same = |other: &&Hole| (&other.item, &other.asset) == (&hole.item, &hole.asset);
        if report.holes[..number].iter().any(|other| same(&other)) {
            continue;
        }
        let blocks = report.holes.iter().filter(same).count();
        let more = match blocks {
            1 => String::new(),
            blocks => format!(" (and in {} more blocks)", blocks - 1),
        };
        output::say(&format!("missing: {hole}{more}"));
    }
    for one in cube.left_out() {
        output::say(&format!("left out: {one}"));
    }
}

/// Writes a result, and returns how many bands it has.
async fn write(work: Apply<f32>, to: &To) -> Result<(ApplyReport, usize)> {
    Ok(match to {
        To::Cog(location, options) => {
            let (written, report) = work.cog(location, options).await?;
            (report, written.statistics.len())
        }
        To::File(path) => {
            let (raster, report) = work.raster().await?;
            raster.save(path)?;
            (report, raster.pixels.shape()[0])
        }
    })
}

fn session(args: &CubeArgs) -> Result<Session> {
    let mut builder = SessionBuilder::from_env()?;
    if let Some(megabytes) = args.budget {
        ensure!(megabytes > 0, "--budget is 0, expected at least 1 MB");
        builder = builder.budget_bytes(megabytes.saturating_mul(1_000_000));
    }
    Ok(builder.build()?)
}
