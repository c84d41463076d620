//! `rss gather`: one tile from each of many files.

use std::{num::NonZeroUsize, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use indicatif::{HumanBytes, ProgressStyle};
#[cfg(feature = "index")]
use rss_core::index::Index;
use rss_core::{
    Backend, Bbox, Error, Location, NpyStack, Raster, Session, Size, TileIndex, Window,
    gather::{
        self, Concurrency, CostModel, File, OnChange, Options, Plan, Region, Report, Request,
        Spread,
    },
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::found;
#[cfg(feature = "index")]
use super::index_export;
use crate::{
    Found,
    args::{GatherArgs, OnChangeArg},
    output,
};

pub(crate) async fn run(args: &GatherArgs) -> Result<Found> {
    let backend: Backend = args.backend.parse()?;
    let region = region(args)?;
    let concurrency = match args.concurrency {
        None => None,
        Some(n) => Some(NonZeroUsize::new(n).context("--concurrency is 0, expected at least 1")?),
    };
    let mut builder = super::session::builder()?;
    if let Some(n) = concurrency {
        // Each GDAL thread reads one tile at a time, and the limit of requests per host must not be lower than the
        // requested concurrency.
        builder = builder
            .gdal_threads(n.get())
            .requests_per_host(n.get().max(256));
    }
    let session = builder.build()?;
    let _fallbacks = output::Fallbacks(session.clone());
    let mut options = Options::new()
        .with_backend(backend)
        .with_retries(args.retries)
        .with_on_change(match args.on_change {
            OnChangeArg::Report => OnChange::Report,
            OnChangeArg::Reindex => OnChange::Reindex,
        });
    options.concurrency = concurrency.map_or(Concurrency::Adaptive, Concurrency::Fixed);
    options.hedge = args.hedge;
    let prices = match &args.prices {
        Some(path) => CostModel::from_file(path)?,
        None => CostModel::default(),
    };

    let requests: Vec<Request> = files(args)?
        .into_iter()
        .map(|(file, band)| {
            let mut request = Request::new(file)
                .with_region(region)
                .with_level(args.level);
            request.bands = args.band.or(band).map(|band| vec![band]);
            request.padding = args.pad;
            request
        })
        .collect();
    if requests.is_empty() {
        output::say("no file to read");
        return Ok(Found::Nothing);
    }
    if args.explain {
        let plan = gather::explain(&session, &requests, &options).await?;
        return explain(&plan, &requests, &prices, args.json);
    }
    let stack = match &args.output {
        Some(path) => Some(NpyStack::create(path, requests.len())?),
        None => None,
    };
    let gathered = gather(&session, requests, options, stack).await?;
    print(&gathered, args)?;
    let failures = gathered.failed.len();
    for (location, err) in &gathered.failed {
        match err.location() {
            Some(_) => output::error(&err.to_string()),
            None => output::error(&format!("{location}: {err}")),
        }
    }
    if failures > 0 {
        let files = gathered.report.files;
        output::error(&format!("{failures} of {files} tiles were not read"));
        let errors = gathered.failed.iter().map(|(_, err)| err);
        return Ok(Found::without(files - failures, errors));
    }
    Ok(Found::Something)
}

/// The outcome of a gather, without the pixels.
struct Gathered {
    report: Report,
    failed: Vec<(Location, Error)>,
    cpu: Option<Duration>,
    sha256: String,
}

async fn gather(
    session: &Session,
    requests: Vec<Request>,
    options: Options,
    mut stack: Option<NpyStack>,
) -> Result<Gathered> {
    // Draws on stderr, and only if that is a terminal.
    let bar = output::bar(requests.len() as u64).with_style(ProgressStyle::with_template(
        "{bar:30} {pos}/{len} tiles {msg} {elapsed}",
    )?);
    let mut sums = Sums::default();
    let mut failed = Vec::new();
    let before = cpu_time(Of::Process);
    let mut rows = gather::gather(session, requests, options)?;
    while let Some(row) = rows.next().await {
        bar.inc(1);
        if !bar.is_hidden() {
            bar.set_message(HumanBytes(session.traffic().bytes).to_string());
        }
        let added = match (row.tile, &mut stack) {
            // A tile of another shape or dtype fails alone; an error of the output file ends the gather.
            (Ok(tile), Some(stack)) => match stack.add(&tile) {
                Ok(()) => Ok(tile),
                Err(err) if err.kind() == rss_core::ErrorKind::InvalidInput => Err(err),
                Err(err) => return Err(err.into()),
            },
            (Err(err), Some(stack)) => {
                // The array has a row for each file, so that rows match the list.
                stack.skip()?;
                Err(err)
            }
            (tile, None) => tile,
        };
        match added {
            Ok(tile) => sums.add(&tile),
            Err(err) => failed.push((row.location, err)),
        }
    }
    let cpu = cpu_time(Of::Process)
        .zip(before)
        .map(|(after, before)| after - before);
    bar.finish_and_clear();
    if let Some(stack) = stack
        && failed.len() < rows.report().files
    {
        stack.finish()?;
    }
    Ok(Gathered {
        report: rows.report(),
        failed,
        cpu: cpu.map(|cpu| cpu.saturating_sub(sums.spent)),
        sha256: sums.finish(),
    })
}

/// The digest of all tiles, and the CPU time it took, which is subtracted from that of the work.
#[derive(Default)]
struct Sums {
    digest: Sha256,
    spent: Duration,
}

impl Sums {
    /// Adds a tile. It runs on one thread without a suspension, so that the thread's CPU time is that of the digest.
    fn add(&mut self, tile: &Raster) {
        let before = cpu_time(Of::Thread);
        self.digest.update(tile.pixels.to_le_bytes());
        if let Some((after, before)) = cpu_time(Of::Thread).zip(before) {
            self.spent += after.saturating_sub(before);
        }
    }

    fn finish(self) -> String {
        let digest = self.digest.finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The clock of a CPU time.
enum Of {
    Process,
    Thread,
}

/// Returns the CPU time of this process or thread.
#[cfg(unix)]
fn cpu_time(of: Of) -> Option<Duration> {
    let time = rustix::time::clock_gettime(match of {
        Of::Process => rustix::time::ClockId::ProcessCPUTime,
        Of::Thread => rustix::time::ClockId::ThreadCPUTime,
    });
    Duration::try_from(time).ok()
}

#[cfg(not(unix))]
fn cpu_time(_: Of) -> Option<Duration> {
    None
}

fn print(gathered: &Gathered, args: &GatherArgs) -> Result<()> {
    let report = &gathered.report;
    let wall = report.wall.as_secs_f64();
    let ok = report.files - gathered.failed.len();
    let per_s = if wall > 0.0 { ok as f64 / wall } else { 0.0 };
    if args.json {
        let ms = |spread: &Spread| {
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            json!({
                "min": ms(spread.min),
                "median": ms(spread.median),
                "p90": ms(spread.p90),
                "p99": ms(spread.p99),
                "max": ms(spread.max),
            })
        };
        let failed: Vec<Value> = gathered
            .failed
            .iter()
            .map(|(location, err)| json!({ "location": location.to_string(), "error": err.message() }))
            .collect();
        return output::json(&json!({
            "files": report.files,
            "ok": ok,
            "failed": failed,
            "wall_s": wall,
            "cpu_s": gathered.cpu.map(|cpu| cpu.as_secs_f64()),
            "tiles_per_s": per_s,
            "peak_tiles_per_s": report.peak_tiles_per_s,
            "requests": report.requests,
            "bytes": report.bytes,
            "sha256": gathered.sha256,
            "open_ms": ms(&report.open),
            "read_ms": ms(&report.read),
            "total_ms": ms(&report.total),
            "planned": {
                "requests": report.planned.requests,
                "tile_bytes": report.planned.tile_bytes,
            },
            "concurrency": report.concurrency,
            "throttled": report.throttled,
            "retried": report.retried,
            "hedged": report.hedged,
            "reindexed": report.reindexed,
        }));
    }
    let spread = |spread: &Spread| {
        let [min, median, p90, p99, max] = [
            spread.min,
            spread.median,
            spread.p90,
            spread.p99,
            spread.max,
        ]
        .map(|t| t.as_secs_f64() * 1e3);
        format!("{median:.1} [{min:.1}..{max:.1}], 90 % {p90:.1}, 99 % {p99:.1} ms")
    };
    let cpu = gathered.cpu.map_or("-".to_owned(), |cpu| {
        let each = cpu.as_secs_f64() * 1e3 / ok.max(1) as f64;
        format!("{:.2} s, {each:.2} ms a tile", cpu.as_secs_f64())
    });
    output::lines([
        format!("tiles        {ok} of {}", report.files),
        format!(
            "wall         {wall:.2} s, {per_s:.0} tiles/s, at best {:.0}",
            report.peak_tiles_per_s
        ),
        format!("cpu          {cpu}"),
        format!(
            "requests     {}, planned {}",
            report.requests, report.planned.requests
        ),
        format!("bytes        {}", HumanBytes(report.bytes)),
        format!("open         {}", spread(&report.open)),
        format!("read         {}", spread(&report.read)),
        format!("total        {}", spread(&report.total)),
        format!("under way    {}", report.concurrency),
        format!("sha256       {}", gathered.sha256),
    ])
}

/// Says what a plan does not know: without an index nobody has told where tiles lie.
fn unknown(plan: &Plan) -> Vec<String> {
    let is_local = plan.hosts.keys().all(|host| host == "local");
    match (plan.guessed, plan.files.saturating_sub(plan.guessed)) {
        (0, _) => Vec::new(),
        _ if is_local => Vec::new(),
        (guessed, 0) => vec![format!(
            "of {guessed} files only headers are known: the bytes are without any tile, and each file is taken for two \
             requests; an index (`rss index build`, --index) makes both exact"
        )],
        (guessed, _) => vec![format!(
            "{guessed} files have no index entry: each is taken for two requests, a header, and the median tile of the others"
        )],
    }
}

fn explain(plan: &Plan, requests: &[Request], prices: &CostModel, as_json: bool) -> Result<Found> {
    let cost = plan.cost(prices);
    let notes = unknown(plan);
    for note in &notes {
        output::say(&format!("note: {note}"));
    }
    let at = |number: usize| {
        requests
            .get(number)
            .map(|request| request.file.location().to_string())
    };
    if as_json {
        let refused: Vec<Value> = plan
            .refused
            .iter()
            .map(|(number, err)| json!({ "location": at(*number), "error": err.message() }))
            .collect();
        let hosts: serde_json::Map<String, Value> = plan
            .hosts
            .iter()
            .map(|(host, plan)| {
                let both = json!({ "requests": plan.requests, "bytes": plan.bytes });
                (host.clone(), both)
            })
            .collect();
        output::json(&json!({
            "files": plan.files,
            "tiles": plan.tiles,
            "sparse_tiles": plan.sparse_tiles,
            "requests": plan.requests,
            "bytes": plan.bytes,
            "guessed": plan.guessed,
            "notes": notes,
            "hosts": hosts,
            "cost_usd": cost.map(|cost| json!({
                "internet": cost.internet_usd,
                "same_region": cost.same_region_usd,
            })),
            "refused": refused,
        }))?;
        return Ok(Found::Something);
    }
    let mut lines = vec![
        format!(
            "files        {}, {} of them without an index entry: their costs are estimates",
            plan.files, plan.guessed
        ),
        format!("requests     {}", plan.requests),
        format!("bytes        {}", HumanBytes(plan.bytes)),
    ];
    for (host, plan) in &plan.hosts {
        lines.push(format!(
            "  {host}  {} requests, {}",
            plan.requests,
            HumanBytes(plan.bytes)
        ));
    }
    lines.push(match cost {
        Some(cost) => format!(
            "cost         {:.4} USD to the internet, {:.4} USD within the region, for the payer of the requests",
            cost.internet_usd, cost.same_region_usd
        ),
        None => "cost         unknown: the cost model has none of the hosts".to_owned(),
    });
    for (_, err) in &plan.refused {
        lines.push(format!("refused      {err}"));
    }
    output::lines(lines)?;
    Ok(Found::Something)
}

/// Returns the files of the list, with their index entries; without a list, the files of the index.
/// Returns the files, each with the band that its asset was selected with, if any.
fn files(args: &GatherArgs) -> Result<Vec<(File, Option<usize>)>> {
    let listed = args.list.as_deref().map(found::locations).transpose()?;
    #[cfg(feature = "index")]
    if let Some(path) = &args.index {
        return indexed(listed, path, &args.assets);
    }
    let listed = listed.into_iter().flatten().map(File::Location);
    Ok(listed.map(|file| (file, None)).collect())
}

#[cfg(feature = "index")]
fn indexed(
    listed: Option<Vec<Location>>,
    path: &std::path::Path,
    assets: &[String],
) -> Result<Vec<(File, Option<usize>)>> {
    let index = Index::open(path)?;
    let Some(listed) = listed else {
        let known = index.info().assets;
        let is_known = |key: &str| known.iter().any(|asset| asset.key == key);
        // `image:4` is band 4 of the asset `image`.
        let chosen = assets.iter().map(|name| match name.rsplit_once(':') {
            Some((key, band)) if !is_known(name) && is_known(key) => {
                let number: Option<NonZeroUsize> = band.parse().ok();
                let number = number.with_context(|| {
                    format!("--assets `{name}`: a band is chosen by its number, as `{key}:1`")
                })?;
                Ok((key.to_owned(), Some(number.get())))
            }
            _ => Ok((name.clone(), None)),
        });
        let chosen = chosen.collect::<Result<Vec<(String, Option<usize>)>>>()?;
        let mut keys: Vec<String> = chosen.iter().map(|(key, _)| key.clone()).collect();
        keys.sort_unstable();
        keys.dedup();
        let select = index_export::select(&index, path, &keys)?;
        let mut files = Vec::new();
        for found in index.entries(&select)? {
            let found = found?;
            let of_asset = chosen.iter().filter(|(key, _)| *key == found.asset);
            let bands: Vec<Option<usize>> = of_asset.map(|(_, band)| *band).collect();
            if bands.is_empty() {
                files.push((File::Entry(found.entry), None));
                continue;
            }
            let entries = bands
                .into_iter()
                .map(|band| (File::Entry(found.entry.clone()), band));
            files.extend(entries);
        }
        return Ok(files);
    };
    let found = index.find(&listed)?;
    let missing = found.iter().filter(|entry| entry.is_none()).count();
    if missing > 0 {
        output::say(&format!(
            "note: {missing} of {} files are not in the index; each costs one more request",
            listed.len()
        ));
    }
    let files = listed.into_iter().zip(found);
    Ok(files
        .map(|(location, entry)| (entry.map_or(File::Location(location), File::Entry), None))
        .collect())
}

fn region(args: &GatherArgs) -> Result<Region> {
    if let Some(text) = &args.tile {
        let [col, row] = two(text, "--tile COL,ROW")?;
        return Ok(Region::Tile(TileIndex { col, row }));
    }
    if let Some(text) = &args.window {
        return Ok(Region::Window(text.parse::<Window>()?));
    }
    if let Some(text) = &args.bbox {
        return Ok(Region::Bbox(text.parse::<Bbox>()?));
    }
    let Some(text) = &args.point else {
        return Ok(Region::CentreTile);
    };
    let [lon, lat] = two(text, "--point LON,LAT")?;
    let Some(size) = &args.size else {
        return Ok(Region::TileAt { lon, lat });
    };
    let [width, height] = two(size, "--size WIDTH,HEIGHT")?;
    ensure!(
        width > 0 && height > 0,
        "--size is {size}, expected at least 1,1"
    );
    let size = Size { width, height };
    Ok(Region::Around { lon, lat, size })
}

/// Parses two numbers between commas.
fn two<T: std::str::FromStr>(text: &str, what: &str) -> Result<[T; 2]> {
    let numbers = text
        .split(',')
        .map(|part| part.trim().parse::<T>())
        .collect::<Result<Vec<_>, _>>();
    numbers
        .ok()
        .and_then(|numbers| <[T; 2]>::try_from(numbers).ok())
        .with_context(|| format!("`{text}` is not two numbers, expected {what}"))
}
