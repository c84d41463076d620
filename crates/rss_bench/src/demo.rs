//! The whole way once, by every path, side by side: query, fetch, read the same pixels, compare.
//!
//! `rss-demo [--scenes small|full] [--latency MS] [--rounds N]` starts a STAC API and an S3 server on
//! loopback, runs one query, and prints what each path costs. `scripts/demo` builds it beside `rss`, and runs it.

#![expect(clippy::print_stdout, reason = "a demo talks")]

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use ndarray::Axis;
use rss_bench::site::{self, Site, agree, open_and_read};
use rss_core::{
    Backend, Location, Pixels, QueryResult, ReadRequest, RemoteVariant, Resampling, Session,
    apply::{
        ApplyOptions, Block, Grid, ImageCubeOptions,
        reduce::{Reducer, reduce_f32},
    },
    mask::Cleanup,
    writer::CogOptions,
};
use rss_testbed::{Request, Scenes};
use stac::ItemCollection;
use tempfile::TempDir;

/// Ways that have taken longer in all are not gone again.
const LONG: Duration = Duration::from_secs(5);

struct Args {
    scenes: Scenes,
    latency: Duration,
    rounds: usize,
}

impl Args {
    fn parse() -> Result<Self> {
        let mut args = Self {
            scenes: Scenes::full(),
            latency: Duration::from_millis(30),
            rounds: 3,
        };
        let mut given = std::env::args().skip(1);
        while let Some(name) = given.next() {
            let value = given
                .next()
                .with_context(|| format!("{name} wants a value"))?;
            match (name.as_str(), value.as_str()) {
                ("--scenes", "small") => args.scenes = Scenes::small(),
                ("--scenes", "full") => args.scenes = Scenes::full(),
                ("--latency", ms) => args.latency = Duration::from_millis(ms.parse()?),
                ("--rounds", rounds) => args.rounds = rounds.parse::<usize>()?.max(1),
                _ => {
                    bail!("{name} {value}: expected --scenes small|full, --latency MS, --rounds N")
                }
            }
        }
        Ok(args)
    }
}

fn main() -> Result<()> {
    let args = Args::parse()?;
    println!(
        "Starting a STAC API and an S3 server on loopback; the first time, scenes are made .."
    );
    let site = Site::testbed(args.scenes, args.latency)?;

    let cache = TempDir::new()?;
    let session = site.session(cache.path()).build()?;
    let start = Instant::now();
    let found = site.search(&session)?;
    site::check_report(found.report())?;
    println!(
        "\nQuery: DEA Sentinel-2, scene 56jns, nbart_red and nbart_nir_1, 2021-01-01 to 2021-02-01, \
         cloud below 30 %\n       {} items in {}, {} request(s); {} ms of latency per request",
        found.len(),
        shown(start.elapsed()),
        found.report().requests,
        args.latency.as_millis(),
    );

    let truth = found.items().items[0].id.clone();
    let mut rows: Vec<(Way, Vec<Cost>)> = Way::ALL.map(|way| (way, Vec::new())).into();
    let mut block: Option<Pixels> = None;
    for _ in 0..args.rounds {
        // Interleaved, so that a busy moment of the machine hits all alike.
        for (way, costs) in &mut rows {
            // What takes long is not repeated for the sake of milliseconds.
            let spent: Duration = costs.iter().map(|cost| cost.cold).sum();
            if spent > LONG {
                continue;
            }
            let (cost, read) = way.run(&site)?;
            match &block {
                None => site.check_truth(&truth, &read)?,
                Some(first) => agree(first, &read, way.name())?,
            }
            block.get_or_insert(read);
            costs.push(cost);
        }
    }
    println!(
        "\nFrom the query's items to one 512 x 512 block of the first file; fetching brings {} files.",
        found.len() * 2
    );
    println!(
        "Cold: nothing cached. Warm: the same again. Median of up to {} rounds (least to most).\n",
        args.rounds
    );
    println!(
        "{:<38} {:>8} {:>10}  {:<26} {:<26}",
        "path", "requests", "MB", "cold", "warm"
    );
    for (way, costs) in &rows {
        let first = costs.first().context("no round")?;
        println!(
            "{:<38} {:>8} {:>10.2}  {:<26} {:<26}",
            way.name(),
            first.requests,
            first.bytes as f64 / 1e6,
            spread(costs.iter().map(|cost| cost.cold)),
            spread(costs.iter().map(|cost| cost.warm)),
        );
    }
    println!(
        "\nThe pixels of all paths agree with each other and with what the scenes were made from."
    );

    options(&site, &found)?;
    picture(&session, &found)?;
    println!(
        "\nNext:\n  {} search --help\n    the command line\n  scripts/bench\n    the same measured by Criterion\n  \
         cargo bench -p rss_core --features bench_live --bench get_vs_get_remote\n    \
         the same against live Digital Earth Australia",
        rss()?
    );
    Ok(())
}

/// A way from items to pixels.
#[derive(Clone, Copy)]
enum Way {
    Download,
    Get,
    Remote,
    Cog,
}

impl Way {
    const ALL: [Self; 4] = [Self::Download, Self::Get, Self::Remote, Self::Cog];

    fn name(self) -> &'static str {
        match self {
            Self::Download => "download()    copy, then read the file",
            Self::Get => "get()         gdal_translate, then read",
            Self::Remote => "get_remote()  GDAL over /vsis3/",
            Self::Cog => "cog           over object_store",
        }
    }

    /// Goes the way twice: cold, then warm.
    fn run(self, site: &Site) -> Result<(Cost, Pixels)> {
        let (cache, dir) = (TempDir::new()?, TempDir::new()?);
        let session = site.session(cache.path()).build()?;
        let found = site.search(&session)?;
        session.clear_caches()?;
        site.clear_log();
        let start = Instant::now();
        let block = self.go(&session, &found, dir.path())?;
        let cold = start.elapsed();
        let log = site.log();
        let start = Instant::now();
        let again = self.go(&session, &found, dir.path())?;
        let warm = start.elapsed();
        agree(&block, &again, "a second read")?;
        let cost = Cost {
            requests: log.len(),
            bytes: log.iter().map(|request| request.bytes).sum(),
            cold,
            warm,
        };
        Ok((cost, block))
    }

    fn go(self, session: &Session, found: &QueryResult, dir: &Path) -> Result<Pixels> {
        let (items, backend): (ItemCollection, _) = match self {
            Self::Download => (found.download(dir)?, Backend::Gdal),
            Self::Get => (found.get(dir, None, None)?, Backend::Gdal),
            Self::Remote => (found.get_remote()?, Backend::Gdal),
            Self::Cog => (found.items().clone(), Backend::Cog),
        };
        open_and_read(session, &items, backend)
    }
}

/// What one way cost.
struct Cost {
    requests: usize,
    bytes: u64,
    cold: Duration,
    warm: Duration,
}

/// Shows what one cold block costs with each of GDAL's options, and without GDAL.
fn options(site: &Site, found: &QueryResult) -> Result<()> {
    /// A label, and GDAL's options.
    type Case = (&'static str, &'static [(&'static str, &'static str)]);
    const LIST: (&str, &str) = ("GDAL_DISABLE_READDIR_ON_OPEN", "FALSE");
    const CASES: &[Case] = &[
        ("GDAL's own defaults", &[LIST]),
        ("GDAL_DISABLE_READDIR_ON_OPEN=EMPTY_DIR", &[]),
        (
            "GDAL_DISABLE_READDIR_ON_OPEN=TRUE",
            &[("GDAL_DISABLE_READDIR_ON_OPEN", "TRUE")],
        ),
        (
            "CPL_VSIL_CURL_USE_HEAD=NO",
            &[LIST, ("CPL_VSIL_CURL_USE_HEAD", "NO")],
        ),
        (
            "CPL_S3_USE_LISTOBJECTSV2=YES",
            &[LIST, ("CPL_S3_USE_LISTOBJECTSV2", "YES")],
        ),
        ("VSI_CACHE=TRUE", &[LIST, ("VSI_CACHE", "TRUE")]),
        (
            "GDAL_INGESTED_BYTES_AT_OPEN=65536",
            &[LIST, ("GDAL_INGESTED_BYTES_AT_OPEN", "65536")],
        ),
        (
            "EMPTY_DIR + INGESTED_BYTES=65536",
            &[("GDAL_INGESTED_BYTES_AT_OPEN", "65536")],
        ),
    ];
    println!("\nRequests of one cold block of one file:\n");
    println!(
        "{:<50} {:>5} {:>5} {:>5} {:>6}  {:<8}",
        "", "list", "head", "get", "KB", "time"
    );
    let cache = TempDir::new()?;
    let show = |label: &str, session: &Session, location: &Location, backend| -> Result<()> {
        session.clear_caches()?;
        site.clear_log();
        let start = Instant::now();
        let raster = site::open(session, location, backend)?;
        site::read(&raster)?;
        let took = start.elapsed();
        let log = site.log();
        let count = |is: fn(&&Request) -> bool| log.iter().filter(is).count();
        let bytes: u64 = log.iter().map(|request| request.bytes).sum();
        println!(
            "{label:<50} {:>5} {:>5} {:>5} {:>6}  {:<8}",
            count(is_list),
            count(|request| request.method == "HEAD"),
            count(|request| request.method == "GET" && !is_list(request)),
            bytes / 1000,
            shown(took),
        );
        Ok(())
    };
    for (label, options) in CASES {
        let mut builder = site.session(cache.path());
        for (name, value) in *options {
            builder = builder.gdal_option(*name, *value);
        }
        let session = builder.build()?;
        let items = site.search(&session)?.get_remote()?;
        show(
            &format!("/vsis3/   {label}"),
            &session,
            &site::first_asset(&items)?,
            Backend::Gdal,
        )?;
    }
    let session = site.session(cache.path()).build()?;
    let found = site.search(&session).and_then(|again| {
        ensure!(again.len() == found.len(), "the query found something else");
        Ok(again)
    })?;
    let https = found.get_remote_as(RemoteVariant::Https)?;
    let https = site::first_asset(&https)?;
    show(
        "/vsicurl/ over the HTTP address",
        &session,
        &https,
        Backend::Gdal,
    )?;
    let s3 = site::first_asset(found.items())?;
    show("cog", &session, &s3, Backend::Cog)
}

/// Returns what starts the command line: its program, where `scripts/demo` left it beside this one, else cargo.
fn rss() -> Result<String> {
    let exe = std::env::current_exe()?;
    let rss = exe.with_file_name(format!("rss{}", std::env::consts::EXE_SUFFIX));
    if !rss.is_file() {
        return Ok("cargo run --release -p rss_cli --".to_owned());
    }
    let here = std::env::current_dir()?;
    Ok(rss
        .strip_prefix(&here)
        .unwrap_or(&rss)
        .display()
        .to_string())
}

/// Makes a cloud-free vegetation index of all dates: a COG, and a look at it.
fn picture(session: &Session, found: &QueryResult) -> Result<()> {
    let exe = std::env::current_exe()?;
    let target = exe.ancestors().nth(2).context("a target folder")?;
    let folder = target.join("demo");
    std::fs::create_dir_all(&folder)?;
    let options = ImageCubeOptions::new()
        .reflectance()
        .with_mask("clouds".parse()?, Cleanup::default().with_dilation(2))
        .with_grid(Grid::Resolution(20.0.into()))
        .with_resampling(Resampling::Average);
    let start = Instant::now();
    let cube = session.cube(found, &options)?;
    let ndvi = cube.apply(
        ApplyOptions::new().with_names(["ndvi"]),
        |block: &Block<f32>| {
            let (red, nir) = (block.band("red")?, block.band("nir")?);
            let ndvi = (&nir - &red) / (&nir + &red);
            Ok(reduce_f32(ndvi.view(), Reducer::Median)?.insert_axis(Axis(0)))
        },
    );
    let (cog, look) = (folder.join("ndvi.tif"), folder.join("ndvi.png"));
    let to = Location::parse(&cog.to_string_lossy())?;
    let (written, report) = session.compute_cog(ndvi, &to, &CogOptions::new())?;
    ensure!(
        report.missing_inputs.is_empty(),
        "pixels are missing: {:?}",
        report.missing_inputs
    );
    let raster = site::open(session, &to, Backend::Cog)?;
    let level = raster.profile().overviews.len().min(1);
    raster
        .read(&ReadRequest::new().with_level(level))?
        .save(&look)?;
    println!(
        "\nA cloud-free median of the vegetation index, {} dates on {}: {:.1} MB in {}\n  {}\n  {}",
        cube.steps().len(),
        cube.grid(),
        written.bytes as f64 / 1e6,
        shown(start.elapsed()),
        cog.display(),
        look.display()
    );
    Ok(())
}

fn is_list(request: &&Request) -> bool {
    let query = request.query.as_deref().unwrap_or_default();
    request.method == "GET" && (query.contains("prefix=") || query.contains("list-type="))
}

fn shown(time: Duration) -> String {
    match time.as_secs_f64() {
        s if s >= 1.0 => format!("{s:.2} s"),
        s => format!("{:.1} ms", s * 1e3),
    }
}

/// Returns the median, the least and the most.
fn spread(times: impl Iterator<Item = Duration>) -> String {
    let mut times: Vec<Duration> = times.collect();
    times.sort();
    match (times.first(), times.get(times.len() / 2), times.last()) {
        (Some(once), ..) if times.len() == 1 => format!("{} (once)", shown(*once)),
        (Some(least), Some(median), Some(most)) => {
            format!("{} ({} to {})", shown(*median), shown(*least), shown(*most))
        }
        _ => String::new(),
    }
}
