//! `rss search`: the items that a query finds.

use anyhow::Result;
use rss_core::{QueryResult, stac};

use super::found;
use crate::{Found, args::SearchArgs, output};

pub(crate) async fn run(args: &SearchArgs) -> Result<Found> {
    let session = super::session::open()?;
    let found = found::search(&session, &args.selection).await?;
    let is_named = !(args.selection.bands.is_empty() && args.selection.canonical.is_empty());
    let outcome = if found.is_empty() {
        Found::Nothing
    } else {
        Found::Something
    };
    if args.json {
        // Whoever reads them next does not know of which catalogue they are.
        let known = found.report().skipped.len();
        let allowed = found.clone().without_refused();
        for one in allowed.report().skipped.iter().skip(known).take(10) {
            output::say(&format!(
                "note: left out {} {}: {}",
                one.item.escape_debug(),
                one.asset.as_deref().unwrap_or_default().escape_debug(),
                one.reason
            ));
        }
        if let more @ 1.. = allowed.report().skipped.len().saturating_sub(known + 10) {
            output::say(&format!("note: left out {more} more assets"));
        }
        let found = allowed;
        let mut items = found.items().clone();
        if is_named {
            for (item, from) in items.items.iter_mut().zip(&found.items().items) {
                let kept: Vec<&str> = found.assets(from).iter().map(|(key, _)| *key).collect();
                item.assets.retain(|key, _| kept.contains(&key.as_str()));
            }
        }
        output::json(&items)?;
    } else if outcome == Found::Something {
        print(&found)?;
    }
    if outcome == Found::Nothing {
        output::say("nothing found");
    }
    found::complete(&found)?;
    Ok(outcome)
}

fn print(found: &QueryResult) -> Result<()> {
    let rows: Vec<Vec<String>> = found
        .items()
        .items
        .iter()
        .map(|item| {
            let keys: Vec<&str> = found.assets(item).iter().map(|(key, _)| *key).collect();
            vec![
                item.id.clone(),
                stac::datetime(item).map_or("-".to_owned(), |time| {
                    time.format("%Y-%m-%dT%H:%M:%SZ").to_string()
                }),
                stac::cloud_cover(item, "eo:cloud_cover")
                    .map_or("-".to_owned(), |percent| format!("{percent:.1}")),
                stac::text(item, "platform").unwrap_or_else(|| "-".to_owned()),
                keys.join(","),
            ]
        })
        .collect();
    output::table(&["id", "datetime", "cloud %", "platform", "bands"], &rows)
}
