//! `rss cache`: statistics and cleanup of the file cache.

use anyhow::{Context, Result};
use rss_core::Removed;
use serde_json::json;

use crate::{
    Found,
    args::{CacheAction, CacheArgs},
    output,
};

pub(crate) async fn run(args: &CacheArgs) -> Result<Found> {
    let session = super::session::open()?;
    let cache = session.cache().clone();
    match args.action {
        CacheAction::Info { json } => {
            let (root, stats) = blocking(move || {
                let root = cache.root()?.display().to_string();
                Ok((root, cache.stats()?))
            })
            .await?;
            let facts = json!({
                "path": root,
                "entries": stats.entries,
                "bytes": stats.bytes,
                "expired": stats.expired,
                "leftovers": stats.leftovers,
                "leftover_bytes": stats.leftover_bytes,
            });
            if json {
                output::json(&facts)?;
            } else {
                output::lines([
                    format!("path       {root}"),
                    format!("entries    {} ({} expired)", stats.entries, stats.expired),
                    format!("bytes      {}", stats.bytes),
                    format!(
                        "leftovers  {} ({} bytes)",
                        stats.leftovers, stats.leftover_bytes
                    ),
                ])?;
            }
        }
        CacheAction::Clean { json } => {
            report(&blocking(move || cache.cleanup()).await?, json)?;
        }
        CacheAction::Clear { json } => {
            report(&blocking(move || cache.clear()).await?, json)?;
        }
    }
    Ok(Found::Something)
}

fn report(removed: &Removed, json: bool) -> Result<()> {
    if json {
        return output::json(&json!({
            "removed": removed.entries,
            "leftovers": removed.leftovers,
            "bytes": removed.bytes,
            "in_use": removed.in_use,
            "linked": removed.linked,
            "over_bytes": removed.over_bytes,
        }));
    }
    if removed.linked > 0 {
        output::say(&format!(
            "note: {} files stay because links of `rss get --link` point to them",
            removed.linked
        ));
    }
    if removed.over_bytes > 0 {
        output::say(&format!(
            "note: the cache is {} bytes larger than its bound",
            removed.over_bytes
        ));
    }
    output::lines([format!(
        "removed {} files and {} leftovers, {} bytes; {} in use stay",
        removed.entries, removed.leftovers, removed.bytes, removed.in_use
    )])
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> rss_core::Result<T> + Send + 'static,
) -> Result<T> {
    Ok(tokio::task::spawn_blocking(work)
        .await
        .context("a task of the cache panicked")??)
}
