//! `rss remote`: items with hrefs that are read in place.

use std::time::Duration;

use anyhow::Result;
use rss_core::{Location, RemoteVariant};

use super::found;
use crate::{
    Found,
    args::{RemoteArgs, VariantArg},
    output,
};

/// The validity of a presigned URL.
const EXPIRES: Duration = Duration::from_secs(3600);

pub(crate) async fn run(args: &RemoteArgs) -> Result<Found> {
    let session = super::session::open()?;
    found::without_geometry(&args.items)?;
    let found = found::items(&session, &args.items).await?;
    found::unselected(&found);
    let items = found
        .get_remote_as_async(match args.variant {
            VariantArg::Vsi => RemoteVariant::Vsi,
            VariantArg::Https => RemoteVariant::Https,
            VariantArg::Presigned => RemoteVariant::Presigned { expires: EXPIRES },
        })
        .await?;
    for (before, after) in found.items().items.iter().zip(&items.items) {
        for (key, asset) in found.assets(before) {
            if !after.assets.contains_key(key)
                && let Err(err) = Location::parse(&asset.href)
            {
                output::say(&format!(
                    "note: left out {} {}: {}",
                    before.id.escape_debug(),
                    key.escape_debug(),
                    err.message()
                ));
            }
        }
    }
    let rows: Vec<Vec<String>> = items
        .items
        .iter()
        .flat_map(|item| {
            item.assets
                .iter()
                .map(|(key, asset)| vec![item.id.clone(), key.clone(), asset.href.clone()])
        })
        .collect();
    if args.json {
        output::json(&items)?;
    } else if !rows.is_empty() {
        output::table(&["item", "asset", "href"], &rows)?;
    }
    if rows.is_empty() {
        output::say("nothing found");
        return Ok(Found::Nothing);
    }
    found::complete(&found)?;
    Ok(Found::Something)
}
