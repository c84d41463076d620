//! `rss index`: the headers of many files in one Parquet file.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Result, bail, ensure};
use indicatif::{HumanBytes, ProgressStyle};
use rss_core::{
    ErrorKind, Location, Session,
    index::{self, BuildReport, BuildSource, Builder, CheckOptions, CheckReport, Index, Info},
};
use serde_json::{Map, Value, json};

use super::{found, index_export};
use crate::{
    Found,
    args::{IndexAction, IndexArgs, IndexBuildArgs},
    output,
};

pub(crate) async fn run(args: &IndexArgs) -> Result<Found> {
    match &args.action {
        IndexAction::Build(args) => build(args).await,
        IndexAction::Info { index, json } => info(index, *json).await,
        IndexAction::Check {
            index,
            sample,
            update,
            concurrency,
            json,
        } => {
            let mut options = CheckOptions::new();
            (options.sample, options.update) = (*sample, *update);
            if let Some(files) = concurrency {
                ensure!(*files > 0, "--concurrency is 0, expected at least 1");
                options = options.with_concurrency(*files);
            }
            check(index, options, *json).await
        }
        IndexAction::Export(args) => index_export::run(args).await,
        IndexAction::Merge {
            indexes,
            output,
            json,
        } => {
            let info = index::merge(indexes, output).await?;
            print(&info, *json)?;
            Ok(Found::Something)
        }
    }
}

/// Returns the partial file of a build, from which it resumes after an interruption.
pub(crate) fn partial(args: &IndexArgs) -> Option<PathBuf> {
    match &args.action {
        IndexAction::Build(args) => {
            let mut name = args.output.as_os_str().to_owned();
            name.push(".partial");
            Some(name.into())
        }
        _ => None,
    }
}

async fn build(args: &IndexBuildArgs) -> Result<Found> {
    ensure!(
        args.concurrency > 0,
        "--concurrency is 0, expected at least 1"
    );
    let session = super::session::open()?;
    let _notes = output::Fallbacks(session.clone());
    let source = source(&session, args).await?;
    let bar = output::bar(0).with_style(ProgressStyle::with_template(
        "{bar:30} {pos}/{len} files, {msg} {elapsed}",
    )?);
    let shown = bar.clone();
    let mut builder = Builder::new(&session)
        .concurrency(args.concurrency)
        .progress(move |progress| {
            shown.set_length(progress.files_total as u64);
            shown.set_position(progress.files_done as u64);
            shown.set_message(format!(
                "{} requests, {}",
                progress.requests,
                HumanBytes(progress.bytes)
            ));
        });
    if !args.assets.is_empty() {
        builder = builder.assets(&args.assets);
    }
    if args.append && args.output.exists() {
        builder = builder.append_to(&args.output);
    }
    let start = Instant::now();
    let report = builder.build(source, &args.output).await;
    bar.finish_and_clear();
    let report = match report {
        // Without a location it is no missing file: the inputs hold nothing to index.
        Err(err) if err.kind() == ErrorKind::NotFound && err.location().is_none() => {
            output::say(err.message());
            return Ok(Found::Nothing);
        }
        report => report?,
    };
    let facts = facts(&report, start.elapsed().as_secs_f64());
    if args.json {
        output::json(&facts)?;
    } else {
        output::lines([format!(
            "{}: {} items, {} of {} files{}, {} requests, {}",
            report.output.display(),
            report.items,
            report.ok,
            report.files,
            match report.resumed {
                0 => String::new(),
                resumed => format!(" ({resumed} read before)"),
            },
            report.requests,
            HumanBytes(report.output_bytes)
        )])?;
    }
    for note in &report.notes {
        output::say(&format!("note: {note}"));
    }
    for one in &report.failed {
        output::error(&failure(&one.location, &one.error));
    }
    if args.parquet.is_some() && !args.trust_items && report.failed.iter().any(is_refused) {
        output::say(&format!(
            "note: {} names what items of a file may not; {}",
            args.parquet.as_deref().unwrap_or(Path::new("")).display(),
            found::TRUSTED
        ));
    }
    if !report.failed.is_empty() {
        let failed = report.failed.len();
        output::error(&format!(
            "{failed} of {} files were not indexed",
            report.files
        ));
        let errors = report.failed.iter().map(|one| &one.error);
        return Ok(Found::without(report.ok, errors));
    }
    Ok(Found::Something)
}

/// Returns true for a file that items may not name.
fn is_refused(one: &index::Failed) -> bool {
    one.error.kind() == ErrorKind::Denied && one.error.message().contains("may not name")
}

/// Formats a failure with the file's location once: most errors contain it.
fn failure(location: &str, error: &rss_core::Error) -> String {
    match error.location() {
        Some(_) => error.to_string(),
        None => format!("{location}: {error}"),
    }
}

fn facts(report: &BuildReport, wall_s: f64) -> Value {
    json!({
        "files": report.files,
        "ok": report.ok,
        "failed": failed(&report.failed),
        "items": report.items,
        "requests": report.requests,
        "bytes": report.bytes,
        "wall_s": wall_s,
        "output": report.output.to_string_lossy(),
        "output_bytes": report.output_bytes,
        "resumed": report.resumed,
        "notes": report.notes,
    })
}

fn failed(failed: &[index::Failed]) -> Vec<Value> {
    let one =
        |one: &index::Failed| json!({ "location": one.location, "error": one.error.message() });
    failed.iter().map(one).collect()
}

async fn source(session: &Session, args: &IndexBuildArgs) -> Result<BuildSource> {
    if let Some(list) = &args.list {
        return Ok(BuildSource::locations(found::locations(list)?));
    }
    if let Some(items) = &args.items {
        let found = found::read(session, items, args.trust_items).await?;
        // An index finds a file by its item: which of the two was meant, nobody could tell.
        if let Some(ids) = found::conflicts(&found) {
            bail!(
                "items of one id and collection have other files: {ids}; give them ids of their own"
            );
        }
        found::notes(&found);
        found::complete(&found)?;
        return Ok(BuildSource::from(&found));
    }
    if let Some(prefix) = &args.prefix {
        return Ok(BuildSource::prefix(Location::parse_prefix(prefix)?));
    }
    match &args.parquet {
        Some(path) if args.trust_items => Ok(BuildSource::parquet(path)),
        Some(path) => {
            let folder = std::path::absolute(path)?.parent().map(Path::to_path_buf);
            let is_own = found::own_files(session, folder);
            Ok(BuildSource::parquet_of_others(path, is_own))
        }
        None => bail!("nothing to index; name a LIST, --items, --prefix or --parquet"),
    }
}

async fn info(index: &Path, json: bool) -> Result<Found> {
    let index = Index::open(index)?;
    print(&index.info(), json)?;
    Ok(Found::Something)
}

fn print(info: &Info, json: bool) -> Result<()> {
    if json {
        let assets: Map<String, Value> = info
            .assets
            .iter()
            .map(|asset| {
                let facts = json!({ "files": asset.files, "tiles": asset.tiles });
                (asset.key.clone(), facts)
            })
            .collect();
        return output::json(&json!({
            "version": info.version,
            "items": info.items,
            "files": info.files,
            "assets": assets,
            "bytes": info.bytes,
            "row_groups": info.row_groups,
        }));
    }
    output::lines([format!(
        "version {}, {} items, {} files, {}, {} row groups",
        info.version,
        info.items,
        info.files,
        HumanBytes(info.bytes),
        info.row_groups
    )])?;
    let rows: Vec<Vec<String>> = info
        .assets
        .iter()
        .map(|asset| {
            vec![
                asset.key.clone(),
                asset.files.to_string(),
                asset.tiles.to_string(),
            ]
        })
        .collect();
    output::table(&["asset", "files", "tiles"], &rows)
}

async fn check(path: &Path, options: CheckOptions, json: bool) -> Result<Found> {
    let session = super::session::open()?;
    let bar = output::bar(0).with_style(ProgressStyle::with_template(
        "{bar:30} {pos}/{len} files {elapsed}",
    )?);
    let shown = bar.clone();
    let options = options.with_progress(move |done, total| {
        shown.set_length(total as u64);
        shown.set_position(done as u64);
    });
    let report = index::check(&session, path, &options).await;
    bar.finish_and_clear();
    let report = report?;
    if json {
        output::json(&found_of(&report))?;
    } else {
        let rows_of = |state: &str, files: &[Location]| -> Vec<Vec<String>> {
            let row = |file: &Location| vec![state.to_owned(), file.to_string()];
            files.iter().map(row).collect()
        };
        let rows = [
            rows_of("changed", &report.changed),
            rows_of("missing", &report.missing),
        ];
        if !rows.concat().is_empty() {
            output::table(&["state", "file"], &rows.concat())?;
        }
        output::lines([format!(
            "{} checked, {} ok, {} changed, {} missing, {} failed, {} updated",
            report.checked,
            report.ok,
            report.changed.len(),
            report.missing.len(),
            report.failed.len(),
            report.updated
        )])?;
    }
    for one in &report.failed {
        output::error(&failure(&one.location, &one.error));
    }
    // Not the sum of the lists: a changed file whose header cannot be read is both changed and failed.
    let wrong = report.checked.saturating_sub(report.ok + report.updated);
    if wrong == 0 {
        return Ok(Found::Something);
    }
    if report.missing.is_empty() && report.changed.len() == report.updated {
        let checked = report.checked;
        output::error(&format!("{wrong} of {checked} files could not be checked"));
        let errors = report.failed.iter().map(|one| &one.error);
        return Ok(Found::without(report.ok + report.updated, errors));
    }
    bail!("{wrong} of {} files differ from the index", report.checked);
}

fn found_of(report: &CheckReport) -> Value {
    let hrefs =
        |files: &[Location]| -> Vec<String> { files.iter().map(ToString::to_string).collect() };
    json!({
        "checked": report.checked,
        "ok": report.ok,
        "changed": hrefs(&report.changed),
        "missing": hrefs(&report.missing),
        "failed": failed(&report.failed),
        "updated": report.updated,
    })
}
