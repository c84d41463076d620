//! `rss index export`: an index as Kerchunk references or a virtual raster.

use std::path::Path;

use anyhow::{Result, bail};
use rss_core::{
    ErrorKind,
    index::{self, Exported, Index, Omitted, Select},
};
use serde_json::{Value, json};

use crate::{Found, args::IndexExportArgs, output};

pub(crate) async fn run(args: &IndexExportArgs) -> Result<Found> {
    let index = Index::open(&args.index)?;
    let select = select(&index, &args.index, &args.assets)?;
    let exported = index::export_index(index, select, args.format, &args.output).await;
    let exported = match exported {
        Err(err) if err.kind() == ErrorKind::NotFound && err.location().is_none() => {
            output::say(err.message());
            return Ok(Found::Nothing);
        }
        exported => exported?,
    };
    if args.json {
        output::json(&facts(args, &exported))?;
    } else {
        output::lines([format!(
            "{}: {} files, {} left out",
            args.output.display(),
            exported.written,
            exported.left_out.len()
        )])?;
    }
    for one in &exported.left_out {
        output::say(&format!("left out: {}", named(one)));
    }
    Ok(Found::Something)
}

/// Selects assets of an index, all if none is named.
pub(crate) fn select(index: &Index, path: &Path, assets: &[String]) -> Result<Select> {
    if assets.is_empty() {
        return Ok(Select::all());
    }
    let known = index.info().assets;
    let is_known = |key: &&String| known.iter().any(|asset| asset.key == **key);
    if let Some(key) = assets.iter().find(|key| !is_known(key)) {
        bail!("{}: the index has no asset `{key}`", path.display());
    }
    Ok(Select::all().with_assets(assets))
}

fn named(one: &Omitted) -> String {
    let reason = one.error.message();
    match one.level {
        Some(level) => format!("{}, level {level}: {reason}", one.location),
        None => format!("{}: {reason}", one.location),
    }
}

fn facts(args: &IndexExportArgs, exported: &Exported) -> Value {
    let left_out = exported.left_out.iter().map(|one| {
        json!({
            "item": one.item,
            "asset": one.asset,
            "level": one.level,
            "location": one.location.to_string(),
            "error": one.error.message(),
        })
    });
    json!({
        "output": args.output.to_string_lossy(),
        "format": args.format.name(),
        "written": exported.written,
        "left_out": left_out.collect::<Value>(),
    })
}
