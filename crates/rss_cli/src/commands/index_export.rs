//! `rss index export`: an index in the formats of others.

use anyhow::Result;
use rss_core::{
    ErrorKind,
    index::{self, Exported, Index, LeftOut, Select},
};
use serde_json::{Value, json};

use crate::{Found, args::IndexExportArgs, output};

pub(crate) fn run(args: &IndexExportArgs) -> Result<Found> {
    let index = Index::open(&args.index)?;
    let mut select = Select::all();
    if !args.assets.is_empty() {
        select = select.with_assets(&args.assets);
    }
    let exported = match index::export(index.entries(&select)?, args.format, &args.output) {
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

fn named(one: &LeftOut) -> String {
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
