//! `rss again`: a result that is made once more, by the record that it holds.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use rss_core::{
    Backend, Location,
    apply::sample::{Table, TableFormat},
    reader,
};
use serde_json::{Value, json};

use super::record::Again;
use crate::{Cli, Found, args::AgainArgs, output};

pub(crate) async fn run(args: &AgainArgs) -> Result<Found> {
    let records = records(&args.made, &Location::parse(&args.made)?).await?;
    // A document beside a result stands for it.
    let result = match args.made.ends_with(".json") {
        true => described(Path::new(&args.made))?,
        false => args.made.clone(),
    };
    let location = Location::parse(&result)?;
    let folder = tempfile::tempdir()?;
    let to = match &args.output {
        Some(path) => path.clone(),
        // Compared with what there is, and left out then.
        None => {
            ensure!(
                location.as_local().is_some(),
                "{location} is no local file to compare with: name an output by -o"
            );
            let name = location.file_name().to_owned();
            folder.path().join(name).display().to_string()
        }
    };
    for (record, items) in &records {
        let again = Again::of(record, items)?;
        let mut arguments = vec!["rss".to_owned()];
        arguments.extend(again.arguments.iter().cloned());
        let is_cube = again
            .arguments
            .first()
            .is_some_and(|command| command == "zarr");
        arguments.extend([
            if is_cube { "--to" } else { "--output" }.to_owned(),
            to.clone(),
        ]);
        let cli = Cli::try_parse_from(&arguments).map_err(|err| {
            let text = err.render().to_string();
            let line = text.lines().next().unwrap_or_default().to_owned();
            anyhow::anyhow!(
                "the record's arguments: {}",
                line.trim_start_matches("error: ")
            )
        })?;
        Box::pin(crate::run(&cli.command)).await?;
    }
    if args.output.is_some() {
        if args.json {
            output::json(&json!({"location": result, "made": to}))?;
        }
        return Ok(Found::Something);
    }
    let made = PathBuf::from(&to);
    let there = location.as_local().context("a local path")?;
    let different = different(there, &made)?;
    if args.json {
        output::json(
            &json!({"location": result, "same": different.is_none(), "different": different}),
        )?;
    }
    match different {
        None if args.json => Ok(Found::Something),
        None => {
            output::lines([format!("{result}: the same bytes")])?;
            Ok(Found::Something)
        }
        Some(what) => bail!("{result}: made again, {what} differs"),
    }
}

/// Reads the records of a result, one, or that of each write and append of a cube, each with the items of its provenance.
async fn records(made: &str, location: &Location) -> Result<Vec<(String, Value)>> {
    let none = || {
        format!(
            "{made} holds no record of how it was made: expected a COG, a cube, a table or a STAC Item of rss"
        )
    };
    if made.ends_with(".json") {
        let path = location
            .as_local()
            .context("a STAC Item: expected a local file")?;
        let item: Value = serde_json::from_slice(&fs::read(path).with_context(none)?)?;
        // A STAC Item has them among its properties, the file beside a table by themselves.
        let all = match &item["properties"]["rss:record"] {
            Value::Null => &item,
            _ => &item["properties"],
        };
        return Ok(vec![recorded_in(all).with_context(none)?]);
    }
    if let Some(path) = location.as_local()
        && TableFormat::of_path(path).is_ok()
    {
        return Ok(vec![of_table(path).with_context(none)?]);
    }
    let session = super::session::open()?;
    #[cfg(feature = "zarr")]
    if made.trim_end_matches('/').ends_with(".zarr") {
        let cube = rss_core::zarr::Cube::open(&session, location).await?;
        return of_attributes(cube.attributes(), none);
    }
    let file = reader::open(&session, location, Backend::Cog).await?;
    let packed = file.profile().metadata.get("RSS_RECORD").cloned();
    let items = file.profile().metadata.get("RSS_ITEMS");
    let items = items.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let items = items_of(&items.unwrap_or_default());
    Ok(vec![(
        rss_core::unpacked(&packed.with_context(none)?)?,
        items,
    )])
}

/// Returns the result that a document describes: the asset `data` of a STAC Item, beside it unless the item says
/// otherwise, or the table whose name precedes `.json`.
fn described(path: &Path) -> Result<String> {
    let text = fs::read(path).with_context(|| path.display().to_string())?;
    let document: Value = serde_json::from_slice(&text)?;
    let Some(href) = document["assets"]["data"]["href"].as_str() else {
        return Ok(path.with_extension("").display().to_string());
    };
    let is_relative = !href.contains("://") && Path::new(href).is_relative();
    Ok(match path.parent() {
        Some(folder) if is_relative => folder
            .join(href.strip_prefix("./").unwrap_or(href))
            .display()
            .to_string(),
        _ => href.to_owned(),
    })
}

/// Returns the records of the write and of each append of a cube, with the items of their provenance.
#[cfg(feature = "zarr")]
pub(super) fn of_attributes(
    attributes: &serde_json::Map<String, Value>,
    none: impl Fn() -> String,
) -> Result<Vec<(String, Value)>> {
    let records = attributes.get("rss:record").and_then(Value::as_array);
    let records = records.with_context(&none)?;
    let made = attributes.get("rss:provenance");
    // Those of an earlier version may be fewer.
    let made = made
        .and_then(Value::as_array)
        .filter(|made| made.len() == records.len());
    let text = |(number, one): (usize, &Value)| {
        let items = made.map_or(Value::Null, |made| items_of(&made[number]["items"]));
        Ok((
            rss_core::unpacked(one.as_str().with_context(&none)?)?,
            items,
        ))
    };
    records.iter().enumerate().map(text).collect()
}

/// Returns the items of provenance, where a long list is packed.
fn items_of(items: &Value) -> Value {
    let unpacked = |packed: &str| {
        let text = rss_core::unpacked(packed).ok()?;
        serde_json::from_str(&text).ok()
    };
    match items["packed"].as_str() {
        Some(packed) => unpacked(packed).unwrap_or_default(),
        None => items.clone(),
    }
}

/// Returns the record of a document, and the items of its provenance.
fn recorded_in(all: &Value) -> Result<(String, Value)> {
    let packed = all["rss:record"].as_str().context("no record")?;
    let items = items_of(&all["rss:provenance"]["items"]);
    Ok((rss_core::unpacked(packed)?, items))
}

/// Reads the record of a table: its own, else that of the file beside it.
fn of_table(path: &Path) -> Result<(String, Value)> {
    let own = Table::metadata_of(path).unwrap_or_default();
    if let Some(record) = own.get("rss:record") {
        let provenance = own.get("rss:provenance").map(String::as_str);
        let provenance: Value = serde_json::from_str(provenance.unwrap_or("null"))?;
        return recorded_in(&json!({"rss:record": record, "rss:provenance": provenance}));
    }
    let beside = super::record::beside(path);
    let text = fs::read(&beside).with_context(|| beside.display().to_string())?;
    recorded_in(&serde_json::from_slice(&text)?)
}

/// Returns the first file that differs; none if all are the same.
fn different(there: &Path, made: &Path) -> Result<Option<String>> {
    if there.is_dir() {
        let names = |folder: &Path| -> Result<Vec<_>> {
            let mut names: Vec<_> = fs::read_dir(folder)?
                .map(|entry| Ok(entry?.file_name()))
                .collect::<Result<_>>()?;
            names.sort();
            Ok(names)
        };
        let (old, new) = (names(there)?, names(made)?);
        if old != new {
            return Ok(Some(format!("the content of {}", there.display())));
        }
        for name in old {
            if let Some(what) = different(&there.join(&name), &made.join(&name))? {
                return Ok(Some(what));
            }
        }
        return Ok(None);
    }
    let read = |path: &Path| fs::read(path).with_context(|| path.display().to_string());
    Ok((read(there)? != read(made)?).then(|| there.display().to_string()))
}
