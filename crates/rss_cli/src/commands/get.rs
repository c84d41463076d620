//! `rss get`: files through the cache into a folder.

use anyhow::Result;
use indicatif::{HumanBytes, ProgressStyle};
use rss_core::{Crop, Delivery, Existing, GetOptions, Mode, Policy};

use super::found;
use crate::{
    Found,
    args::{GetArgs, ModeArg},
    output,
};

/// Steps of the progress bar.
const STEPS: u64 = 10_000;

pub(crate) async fn run(args: &GetArgs) -> Result<Found> {
    let session = super::session::open()?;
    let mut options = GetOptions::default().with_mode(match args.mode {
        ModeArg::Translate => Mode::Translate,
        ModeArg::Copy => Mode::Copy,
    });
    if let Some(edges) = &args.crop {
        let bounds = found::four(edges, "--crop W,S,E,N")?;
        options = options.with_crop(Crop::new(bounds, args.crop_epsg)?);
    }
    if let Some(files) = args.concurrency {
        anyhow::ensure!(files > 0, "--concurrency is 0, expected at least 1");
        options = options.with_concurrency(files);
    }
    if args.link {
        options = options.with_delivery(Delivery::Link);
    }
    if args.overwrite {
        options = options.with_existing(Existing::Overwrite);
    }
    if args.keep_going {
        options = options.with_policy(Policy::KeepGoing);
    }
    found::without_geometry(&args.items)?;
    let found = found::items(&session, &args.items).await?;
    found::unselected(&found);
    if found.is_empty() {
        if args.json {
            output::json(found.items())?;
        }
        output::say("nothing found");
        return Ok(Found::Nothing);
    }

    // Draws on stderr, and only if that is a terminal.
    let bar =
        output::bar(STEPS).with_style(ProgressStyle::with_template("{bar:30} {msg} {elapsed}")?);
    let shown = bar.clone();
    let options = options.with_progress(move |progress| {
        shown.set_position((progress.part_done * STEPS as f64) as u64);
        shown.set_message(format!(
            "{}/{} files, {}",
            progress.files_done,
            progress.files_total,
            HumanBytes(progress.bytes_done)
        ));
    });
    let fetched = found.get_with_async(&args.to, &options).await;
    bar.finish_and_clear();
    let fetched = fetched?;

    if args.json {
        output::json(&fetched.items)?;
    } else {
        let rows: Vec<Vec<String>> = fetched
            .assets
            .iter()
            .filter_map(|row| {
                let path = row.path.as_ref()?;
                Some(vec![
                    row.item.clone(),
                    row.asset.clone(),
                    row.bytes.to_string(),
                    if row.cached { "cached" } else { "fetched" }.to_owned(),
                    path.display().to_string(),
                ])
            })
            .collect();
        output::table(&["item", "asset", "bytes", "from", "path"], &rows)?;
    }
    for note in &fetched.notes {
        output::say(&format!("note: {note}"));
    }
    let mut failures = 0;
    for row in fetched.failed() {
        failures += 1;
        if let Some(err) = &row.error {
            output::error(&format!(
                "{} {}: {err}",
                row.item.escape_debug(),
                row.asset.escape_debug()
            ));
        }
    }
    if failures > 0 {
        let files = fetched.assets.len();
        output::error(&format!("{failures} of {files} files were not fetched"));
        let errors = fetched.failed().filter_map(|row| row.error.as_ref());
        return Ok(Found::without(files - failures, errors));
    }
    found::complete(&found)?;
    if fetched.assets.is_empty() {
        output::say("the items have no such assets");
        return Ok(Found::Nothing);
    }
    Ok(Found::Something)
}
