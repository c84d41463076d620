//! `rss sample`: samples at points and zonal statistics of many images, as a table.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs,
    io::IsTerminal,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result, bail, ensure};
use indicatif::ProgressStyle;
use rss_core::{
    Bbox, Crs, Location, Manifest, QueryResult, Session,
    apply::{
        OnFailure,
        sample::{
            self, Coverage, CsvOptions, GeoJsonOptions, Outside, Points, SampleOptions,
            SampleReport, Statistics, Table, TableFormat, Zones,
        },
    },
    mask::Cleanup,
};
use serde_json::json;

use super::{found, record};
use crate::{Found, args::SampleArgs, output};

pub(crate) async fn run(args: &SampleArgs) -> Result<Found> {
    // Arguments that can be checked without a request are checked before the first one.
    let shapes = Shapes::of(args)?;
    let to = to(&args.output)?;
    ensure!(
        to.is_some() || !args.record,
        "--record is for a table that is written to a file: -o OUT"
    );
    let options = options(args)?;
    let session = super::session::with_budget(args.budget)?;
    let _fallbacks = output::Fallbacks(session.clone());
    let found = items(&session, args, &shapes).await?;
    if found.is_empty() {
        output::say("nothing found");
        return Ok(Found::Nothing);
    }
    let start = Instant::now();
    let bar = output::bar(0);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} images [{elapsed}]") {
        bar.set_style(style);
    }
    let shown = bar.clone();
    let options = options.with_progress(move |progress| {
        shown.set_length(progress.images as u64);
        shown.set_position(progress.images_done as u64);
    });
    let made = shapes.sample(&found, &options).await;
    bar.finish_and_clear();
    let (table, report) = made?;
    if !args.json {
        say(&report);
    }
    if table.is_empty() || !args.keep_outside && is_nowhere(&table, &report) {
        found::complete(&found)?;
        let why = match report.missing_inputs.is_empty() {
            true => "no image holds a pixel of the points or zones",
            false => "no image that could be read holds a pixel of the points or zones",
        };
        output::say(&format!("nothing found: {why}"));
        return Ok(Found::Nothing);
    }
    let table = match &to {
        Some(path) => recorded(args, path, table, &report, &found)?,
        None => table,
    };
    write(args, to.as_deref(), &table)?;
    found::complete(&found)?;
    if args.json {
        let traffic = session.traffic();
        let missing_inputs: Vec<_> = report
            .missing_inputs
            .iter()
            .map(|input| json!({"item": input.item, "asset": input.asset, "error": input.message}))
            .collect();
        let columns = table.columns().iter().map(|column| &column.name);
        let mut document = json!({
            "location": args.output,
            "rows": table.len(),
            "columns": columns.collect::<Vec<_>>(),
            "images": report.images,
            "left_out": report.left_out,
            "nowhere": report.nowhere,
            "between": report.between,
            "notes": report.notes,
            "provenance": report.provenance,
            "missing_inputs": missing_inputs,
            // The former key, for programs that read it.
            "holes": missing_inputs,
            "requests": traffic.requests,
            "bytes": traffic.bytes,
            "wall_s": start.elapsed().as_secs_f64(),
        });
        if to.is_none() {
            document["rows"] = table.json().collect();
        }
        output::json(&document)?;
    } else if to.is_some() && args.items.recorded.is_none() {
        output::lines([format!(
            "{}: {} rows, from {} images, in {:.2} s",
            args.output,
            table.len(),
            report.images,
            start.elapsed().as_secs_f64()
        )])?;
    }
    Ok(found::whole(&args.on_failure, &report.missing_inputs))
}

/// The points or zones that are sampled.
enum Shapes {
    Points(Points),
    Zones(Zones, Statistics),
}

impl Shapes {
    fn of(args: &SampleArgs) -> Result<Self> {
        let crs = args.crs.as_deref().map(super::apply::crs_of).transpose()?;
        let mut reading = GeoJsonOptions::new();
        if let Some(crs) = &crs {
            reading = reading.with_crs(crs.clone());
        }
        if let Some(property) = &args.name {
            reading = reading.with_name(property);
        }
        let read = |path: &Path, what: &str| {
            let text = fs::read_to_string(path);
            text.with_context(|| format!("{what} {}", path.display()))
        };
        if let Some(path) = &args.points {
            let text = read(path, "--points")?;
            let points = match is_csv(path, &text) {
                true => Points::from_csv(&text, &of_csv(args, crs)?),
                false => {
                    ensure!(
                        args.columns.is_none(),
                        "--columns is for CSV: --points {} is GeoJSON",
                        path.display()
                    );
                    Points::from_geojson(&text, &reading)
                }
            };
            return Ok(Self::Points(
                points.with_context(|| format!("--points {}", path.display()))?,
            ));
        }
        if let Some(path) = &args.zones {
            let zones = Zones::from_geojson(&read(path, "--zones")?, &reading)
                .with_context(|| format!("--zones {}", path.display()))?
                .with_coverage(match (args.weights, args.all_touched) {
                    (true, _) => Coverage::Fraction,
                    (_, true) => Coverage::Touched,
                    _ => Coverage::Centre,
                });
            let mut statistics: Statistics = args.stats.parse()?;
            if let Some(edges) = &args.histogram {
                let numbers: Result<Vec<f64>, _> =
                    edges.split(',').map(|edge| edge.trim().parse()).collect();
                let message =
                    || format!("--histogram `{edges}` is not numbers separated by commas");
                statistics = statistics.with_histogram(numbers.with_context(message)?)?;
            }
            return Ok(Self::Zones(zones, statistics));
        }
        let coordinates: Vec<[f64; 2]> = args
            .point
            .iter()
            .map(|text| {
                let numbers: Option<Vec<f64>> = text
                    .split(',')
                    .map(|part| part.trim().parse().ok())
                    .collect();
                let point = numbers.and_then(|numbers| <[f64; 2]>::try_from(numbers).ok());
                point.with_context(|| format!("--point `{text}` is not two numbers LON,LAT"))
            })
            .collect::<Result<_>>()?;
        let points = Points::new(coordinates, crs.unwrap_or(Crs::Epsg(4326)));
        Ok(Self::Points(points.context("--point")?))
    }

    /// Returns the bounding box in degrees in which images are searched: all that is within a distance of points.
    fn bbox(&self, nearest: Option<f64>) -> rss_core::Result<Bbox> {
        match self {
            Self::Points(points) => Ok(points.bbox()?.within(nearest.unwrap_or(0.0))),
            Self::Zones(zones, _) => zones.bbox(),
        }
    }

    async fn sample(
        self,
        found: &QueryResult,
        options: &SampleOptions,
    ) -> rss_core::Result<(Table, SampleReport)> {
        match self {
            Self::Points(points) => sample::points(found, points, options).await,
            Self::Zones(zones, wanted) => sample::zones(found, zones, &wanted, options).await,
        }
    }
}

/// Returns true if a file of points is to be read as CSV: GeoJSON is an object, and is named so.
fn is_csv(path: &Path, text: &str) -> bool {
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
    let named = ["json", "geojson"];
    let is_json = named
        .iter()
        .any(|known| known.eq_ignore_ascii_case(extension));
    !is_json
        && !text
            .trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n'])
            .starts_with('{')
}

fn of_csv(args: &SampleArgs, crs: Option<Crs>) -> Result<CsvOptions> {
    let mut options = CsvOptions::new();
    if let Some(crs) = crs {
        options = options.with_crs(crs);
    }
    if let Some(name) = &args.name {
        options = options.with_name(name);
    }
    if let Some(text) = &args.columns {
        let columns = text.split_once(',').map(|(x, y)| (x.trim(), y.trim()));
        let (x, y) = columns
            .filter(|(_, y)| !y.contains(','))
            .with_context(|| format!("--columns `{text}` is not two names X,Y"))?;
        options = options.with_columns(x, y);
    }
    Ok(options)
}

/// Returns the file to write; none for stdout.
fn to(text: &str) -> Result<Option<PathBuf>> {
    if text == "-" {
        return Ok(None);
    }
    let location = Location::parse(text)?;
    let Some(path) = location.as_local() else {
        bail!("{location}: a table can only be written to a local file, or to stdout");
    };
    TableFormat::of_path(path)?;
    Ok(Some(path.to_owned()))
}

/// Finds items. A search without an area is limited to the bounding box of the points or zones.
async fn items(session: &Session, args: &SampleArgs, shapes: &Shapes) -> Result<QueryResult> {
    found::without_geometry(&args.items)?;
    let selection = &args.items.selection;
    let has_area = !selection.scene.is_empty()
        || selection.bbox.is_some()
        || selection.geometry.is_some()
        || args.items.items.is_some();
    if has_area || selection.source.is_none() {
        return found::items(session, &args.items).await;
    }
    let mut around = args.items.clone();
    around.selection.bbox = Some(shapes.bbox(args.nearest)?.to_string());
    found::items(session, &around).await
}

fn options(args: &SampleArgs) -> Result<SampleOptions> {
    let mut options = SampleOptions::new().with_on_failure(match args.on_failure.as_str() {
        "fail" => OnFailure::Fail,
        "skip" | "hole" => OnFailure::Skip,
        other => bail!("--on-failure `{other}` is not one of fail, skip"),
    });
    options = options.with_duplicates(args.duplicates.parse()?);
    if !args.raw {
        options = options.reflectance();
    }
    if let Some(metres) = args.nearest {
        ensure!(
            metres > 0.0 && metres <= 1e6,
            "--nearest {metres}: expected more than 0 and at most 1000000 m"
        );
        options = options.with_nearest(metres);
    }
    if args.keep_outside {
        options = options.with_outside(Outside::Empty);
    }
    if let Some(classes) = &args.mask {
        let cleanup = Cleanup::default()
            .with_dilation(args.dilate)
            .with_opening(args.opening);
        options = options.with_mask(classes.parse()?, cleanup);
    }
    if let Some(path) = &args.items.selection.manifest {
        options = options.with_manifest(Manifest::from_file(path)?);
    }
    #[cfg(feature = "index")]
    if let Some(headers) = super::found::headers(&args.items, args.index.as_deref())? {
        options = options.with_headers(headers);
    }
    Ok(options)
}

/// The largest record that a table holds: readers fetch its metadata as a whole.
const MOST_RECORD: usize = 1 << 20;

/// Puts the record into a table whose format has metadata, and beside one where it is asked for.
fn recorded(
    args: &SampleArgs,
    path: &Path,
    table: Table,
    report: &SampleReport,
    found: &QueryResult,
) -> Result<Table> {
    let format = TableFormat::of_path(path)?;
    let holds = !matches!(format, TableFormat::Csv | TableFormat::JsonLines);
    if !holds && !args.record {
        return Ok(table);
    }
    let record = match record::of(&args.items, found, &[]) {
        Ok(record) => rss_core::packed(&record),
        Err(err) if !args.record => {
            output::say(&format!("note: the table has no record: {err:#}"));
            return Ok(table);
        }
        Err(err) => return Err(err.context("--record")),
    };
    if args.record {
        let beside = record::beside(path);
        let document = json!({"rss:provenance": report.provenance, "rss:record": record});
        let text = serde_json::to_vec_pretty(&document)?;
        fs::write(&beside, text).with_context(|| beside.display().to_string())?;
    }
    Ok(match (holds, record.len() <= MOST_RECORD) {
        (true, true) => table.with_metadata("rss:record", record),
        (true, false) if !args.record => {
            output::say("note: the record is too large for the table; --record keeps it beside");
            table
        }
        _ => table,
    })
}

fn write(args: &SampleArgs, to: Option<&Path>, table: &Table) -> Result<()> {
    match to {
        Some(path) => table.save(path)?,
        // The JSON document holds the rows.
        None if args.json => {}
        None => {
            let mut text = Vec::new();
            table.write_as(&mut text, TableFormat::Csv)?;
            match std::io::stdout().is_terminal() {
                true => output::lines(String::from_utf8_lossy(&text).lines().map(str::to_owned))?,
                false => output::stdout(&text)?,
            }
        }
    }
    Ok(())
}

/// Reports missing inputs, items left out, and points or zones on no image, on stderr.
fn say(report: &SampleReport) {
    for input in &report.missing_inputs {
        output::say(&format!("missing: {input}"));
    }
    for one in &report.left_out {
        output::say(&format!("left out: {one}"));
    }
    for note in &report.notes {
        output::say(&format!("note: {note}"));
    }
    if !report.nowhere.is_empty() {
        output::say(&format!("note: on no image: {}", some(&report.nowhere)));
    }
    if !report.between.is_empty() {
        output::say(&format!(
            "note: no pixel's centre lies in {}: count 0; --all-touched takes the pixels that it overlaps, --weights \
             the fractions",
            some(&report.between)
        ));
    }
}

/// Returns true if all zones lie on no image.
fn is_nowhere(table: &Table, report: &SampleReport) -> bool {
    let nowhere: HashSet<&str> = report.nowhere.iter().map(String::as_str).collect();
    !nowhere.is_empty() && table.rows().all(|row| nowhere.contains(&*row.geometry.id))
}

/// Returns the first ten ids, and how many more there are.
fn some(ids: &[String]) -> String {
    let shown: Vec<&str> = ids.iter().take(10).map(String::as_str).collect();
    let more = match ids.len().saturating_sub(shown.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", shown.join(", "))
}
