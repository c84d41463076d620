//! `rss zarr check`: whether a cube is as it was written, and its repair.

use anyhow::{Context, Result, bail};
use clap::Parser;
use rss_core::{
    Session,
    zarr::{CheckDepth, CheckOptions, CheckReport, Cube, Remake, Root},
};
use serde_json::Value;

use super::{
    again,
    record::{self, Again},
    session, zarr,
};
use crate::{
    Cli, Command, Found,
    args::{ZarrAction, ZarrCheckArgs},
    output,
};

/// Findings that are printed as lines.
const MOST_LINES: usize = 100;

pub(super) async fn run(args: &ZarrCheckArgs) -> Result<Found> {
    let root = zarr::root(&args.location, args.icechunk.as_deref())?;
    let session = session::with_budget(args.budget)?;
    let _fallbacks = output::Fallbacks(session.clone());
    let depth = match args.lengths {
        true => CheckDepth::Lengths,
        false => CheckDepth::Content,
    };
    let options = CheckOptions::new().with_depth(depth);
    let mut report = inspected(&session, &root, options.clone(), args.sources).await?;
    if args.repair && !report.findings.is_empty() {
        report.repair_metadata().await?;
        if report.has_shards_to_remake()
            && let Err(err) = remake(&session, &root, &mut report).await
        {
            let note = format!("no shard was made again: {err:#}");
            report.notes.push(note);
        }
        // What stood in the way of finding the stale ones is gone now.
        if args.sources && report.is_whole() && report.has_unchecked_sources() {
            let repaired = std::mem::take(&mut report.findings);
            report = inspected(&session, &root, options, true).await?;
            if report.has_shards_to_remake() {
                remake(&session, &root, &mut report).await?;
            }
            report.findings.splice(0..0, repaired);
        }
    }
    for note in &report.notes {
        output::say(&format!("note: {note}"));
    }
    let left = report
        .findings
        .iter()
        .filter(|finding| !finding.is_repaired);
    let (left, all) = (left.count(), report.findings.len());
    if args.json {
        output::json(&report.to_json())?;
    } else {
        output::lines(lines(&report, left))?;
    }
    match (left, all) {
        (0, _) => Ok(Found::Something),
        _ if args.repair && left < all => Ok(Found::Part),
        _ if args.repair => bail!("{}: {left} objects could not be repaired", args.location),
        _ => bail!(
            "{}: {left} objects are not as they were written: --repair puts them right",
            args.location
        ),
    }
}

/// Checks a cube; `asks` for its sources.
async fn inspected(
    session: &Session,
    root: &Root,
    options: CheckOptions,
    asks: bool,
) -> Result<CheckReport> {
    if !asks {
        return Ok(Cube::check(session, root, &options).await?);
    }
    // Which files of this machine have changed the records say, if the cube can be opened.
    let mut changed = Vec::new();
    if let Ok(cube) = Cube::open(session, root).await {
        let none = || "no record".to_owned();
        for (record, _) in again::of_attributes(cube.attributes(), none).unwrap_or_default() {
            changed.extend(record::changed_items(&record)?);
        }
    }
    let options = options.with_sources(changed);
    Ok(Cube::check(session, root, &options).await?)
}

/// Makes shards again by the records of the cube.
async fn remake(session: &Session, root: &Root, report: &mut CheckReport) -> Result<()> {
    let place = root.location().to_string();
    let none =
        || format!("{place} holds no record of how it was made: expected a cube of rss zarr write");
    let mut writes = Vec::new();
    for (text, items) in again::of_attributes(&report.attributes(), none)? {
        let again = Again::of(&text, &items)?;
        let mut arguments = vec!["rss".to_owned()];
        arguments.extend(again.arguments.iter().cloned());
        arguments.extend(["--to".to_owned(), place.clone()]);
        let cli = Cli::try_parse_from(&arguments);
        let Ok(Command::Zarr(args)) = cli.map(|cli| cli.command) else {
            bail!(
                "made by another command than rss zarr write: rss again makes it once more, elsewhere"
            );
        };
        let ZarrAction::Write(args) = args.action else {
            bail!("the record's arguments are not those of a write");
        };
        let source = zarr::Source::of(session, root, &args).await?;
        let source = source.context("the record names no items")?;
        let mut record: Value = serde_json::from_str(&text).context("the record")?;
        record["found"] = source.found.to_record();
        let packed = rss_core::packed(&record.to_string());
        let options = zarr::options(&args)?.with_note("rss:record", packed);
        writes.push(Remake::new(source.images()?, options));
    }
    Ok(report.remake(writes).await?)
}

fn lines(report: &CheckReport, left: usize) -> Vec<String> {
    let mut lines: Vec<String> = report
        .findings
        .iter()
        .take(MOST_LINES)
        .map(|finding| {
            let state = match finding.is_repaired {
                true => ", repaired",
                false => "",
            };
            let (damage, holds) = (finding.damage.name(), finding.holds.name());
            format!(
                "{damage} {holds} {}: {}{state}",
                finding.key, finding.reason
            )
        })
        .collect();
    if let Some(more) = report
        .findings
        .len()
        .checked_sub(MOST_LINES)
        .filter(|more| *more > 0)
    {
        lines.push(format!("and {more} more: --json lists all"));
    }
    lines.push(format!(
        "{} shards, {} objects of metadata: {}",
        report.shards,
        report.metadata,
        match (report.findings.len(), left) {
            (0, _) => "all as they were written".to_owned(),
            (all, 0) => format!("{all} repaired"),
            (all, left) if all > left => format!("{} repaired, {left} left", all - left),
            (all, _) => format!("{all} wrong"),
        }
    ));
    lines
}
