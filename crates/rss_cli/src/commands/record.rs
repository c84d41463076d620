//! The record of a command in what it writes: normalised arguments, the files that they name, and the items that were
//! found. `rss again` runs it once more.

#[cfg(feature = "zarr")]
use std::time::UNIX_EPOCH;
use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow};
#[cfg(feature = "zarr")]
use rss_core::Location;
use rss_core::{QueryResult, Session, Trust};
use serde_json::{Map, Value, json};

use crate::{args::Items, output};

/// Options with a value that say where to and how fast, and not what is made.
const LEFT_OUT: [&str; 14] = [
    "--output",
    "-o",
    "--to",
    "--items",
    "--recorded",
    "--budget",
    "--threads",
    "--trace",
    "--retry-for",
    "--gdal-reads",
    "--timeout",
    "--requests-per-host",
    "--index",
    "--stac-to",
];
/// The same without a value.
const FLAGS: [&str; 12] = [
    "--json",
    "--overwrite",
    "--take-over",
    "--quiet",
    "-q",
    "--verbose",
    "-v",
    "-vv",
    "--log-json",
    "--stac",
    "--record",
    "--trust-items",
];
/// Options that name a file of which the result depends, and whose content is recorded.
const FILES: [&str; 4] = ["--manifest", "--geometry", "--points", "--zones"];
/// The file beside a record with the versions of the files that were read.
const VERSIONS: &str = "versions.json";
/// Options whose value may be a file of the working folder.
const OF_PLACE: [&str; 2] = ["--crs", "--grid"];
/// The largest file that is recorded.
const MOST_BYTES: u64 = 16 << 20;

/// Returns the record of this process's command on items; that of a command that is run once more stays as it is.
/// `more` are arguments that the command chose by itself.
pub(super) fn of(args: &Items, found: &QueryResult, more: &[String]) -> Result<String> {
    if let Some(path) = &args.recorded {
        return fs::read_to_string(path).with_context(|| path.display().to_string());
    }
    let (mut arguments, files) = normalised(std::env::args().skip(1))?;
    arguments.extend(more.iter().cloned());
    let record = json!({
        "software": concat!("rss ", env!("CARGO_PKG_VERSION")),
        "arguments": arguments,
        "files": files,
        "found": found.to_record(),
    });
    Ok(record.to_string())
}

/// Returns the file beside a table that holds its record.
pub(super) fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".json");
    name.into()
}

/// Returns what was found as a record has it, and notes files that have changed since.
pub(super) fn found(session: &Session, path: &Path) -> Result<QueryResult> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let mut record: Value = serde_json::from_str(&text).context("the record")?;
    if let Ok(versions) = fs::read(path.with_file_name(VERSIONS)) {
        put_versions(&mut record, &serde_json::from_slice(&versions)?);
    }
    let (found, changed) = QueryResult::from_record(session, &record["found"], Trust::User)?;
    for one in &changed {
        output::say(&format!("note: changed since, or gone: {one}"));
    }
    Ok(found)
}

/// Returns the ids of the items of a record whose files on this machine have another size or time now.
#[cfg(feature = "zarr")]
pub(super) fn changed_items(record: &str) -> Result<Vec<String>> {
    let record: Value = serde_json::from_str(record).context("the record")?;
    let features = record["found"]["items"]["features"].as_array();
    let has_changed = |asset: &Value| {
        let then = &asset["rss:version"];
        let modified_ns = then["modified_ns"].as_u64()?;
        let location = Location::parse(asset["href"].as_str()?).ok()?;
        let Ok(now) = location.as_local()?.metadata() else {
            return Some(true);
        };
        let modified = now.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(
            (u128::from(modified_ns), then["bytes"].as_u64())
                != (modified.as_nanos(), Some(now.len())),
        )
    };
    let items = features.into_iter().flatten().filter(|item| {
        let mut assets = item["assets"].as_object().into_iter().flatten();
        assets.any(|(_, asset)| has_changed(asset) == Some(true))
    });
    Ok(items
        .filter_map(|item| item["id"].as_str().map(str::to_owned))
        .collect())
}

/// Puts the versions of files that provenance states beside the assets of a record. Of a copied cube they are by band, whose
/// name is the asset's key, or begins with it and a dot.
fn put_versions(record: &mut Value, versions: &Value) {
    let features = record["found"]["items"]["features"].as_array_mut();
    for feature in features.into_iter().flatten() {
        let Some(of_item) = feature["id"].as_str().and_then(|id| versions.get(id)) else {
            continue;
        };
        let named = |key: &str| {
            let all = of_item.as_object()?;
            let is_of = |band: &str| {
                band.strip_prefix(key)
                    .is_some_and(|rest| rest.starts_with('.'))
            };
            let of_band = || all.iter().find(|(band, _)| is_of(band)).map(|(_, one)| one);
            all.get(key).or_else(of_band)
        };
        let assets = feature["assets"].as_object_mut();
        for (key, asset) in assets.into_iter().flatten() {
            if let (Some(version), Some(asset)) = (named(key), asset.as_object_mut()) {
                asset
                    .entry("rss:version")
                    .or_insert_with(|| version.clone());
            }
        }
    }
}

/// Returns the arguments that decide what is made, and the content of files that they name.
fn normalised(
    arguments: impl Iterator<Item = String>,
) -> Result<(Vec<String>, Map<String, Value>)> {
    let (mut kept, mut files) = (Vec::new(), Map::new());
    let mut arguments = arguments.peekable();
    while let Some(argument) = arguments.next() {
        let (name, value) = match argument.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (argument.as_str(), None),
        };
        if FLAGS.contains(&name) {
            continue;
        }
        let is_short = name.starts_with("-o") && name.len() > 2 && !name.starts_with("--");
        if is_short {
            continue;
        }
        if LEFT_OUT.contains(&name) {
            if value.is_none() {
                arguments.next();
            }
            continue;
        }
        if FILES.contains(&name) {
            let path = match value {
                Some(path) => path,
                None => arguments.next().unwrap_or_default(),
            };
            let facts = fs::metadata(&path).with_context(|| format!("{name} {path}"))?;
            if facts.len() > MOST_BYTES {
                return Err(anyhow!(
                    "{name} {path} has {} bytes: expected at most {MOST_BYTES} to record it",
                    facts.len()
                ));
            }
            let text = fs::read_to_string(&path).with_context(|| format!("{name} {path}"))?;
            files.insert(name.trim_start_matches('-').to_owned(), json!(text));
            continue;
        }
        if OF_PLACE.contains(&name) {
            let text = match value {
                Some(text) => text,
                None => arguments.next().unwrap_or_default(),
            };
            kept.extend([name.to_owned(), placed(name, &text)?]);
            continue;
        }
        kept.push(without_secrets(&argument));
    }
    Ok((kept, files))
}

/// Returns the value of an option that may name a file of the working folder, so that it means the same elsewhere: a CRS as
/// the text of its file, the path of a grid from the root.
fn placed(name: &str, value: &str) -> Result<String> {
    let path = Path::new(value);
    if name == "--crs" {
        return match super::apply::is_crs_file(value) {
            true => Ok(fs::read_to_string(path)
                .with_context(|| format!("--crs {value}"))?
                .trim()
                .to_owned()),
            false => Ok(value.to_owned()),
        };
    }
    match value.contains("://") || value.starts_with("/vsi") {
        true => Ok(without_secrets(value)),
        false => Ok(std::path::absolute(path)?.display().to_string()),
    }
}

/// Removes query string and user name from addresses.
fn without_secrets(argument: &str) -> String {
    let Some((scheme, rest)) = argument.split_once("://") else {
        return argument.to_owned();
    };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

/// A record that is run once more: the arguments of the process, without its output.
pub(super) struct Again {
    pub(super) arguments: Vec<String>,
    /// The folder of the record and of the files that the arguments name; it goes with this.
    _folder: tempfile::TempDir,
}

impl Again {
    /// Reads a record, and writes what the command reads of it to a temporary folder. `items` are those of the provenance.
    pub(super) fn of(record: &str, items: &Value) -> Result<Self> {
        let parsed: Value = serde_json::from_str(record).context("the record")?;
        let arguments = parsed["arguments"]
            .as_array()
            .context("a record without arguments")?;
        let mut arguments: Vec<String> = arguments
            .iter()
            .map(|one| {
                one.as_str()
                    .map(str::to_owned)
                    .context("an argument that is no text")
            })
            .collect::<Result<_>>()?;
        let command = arguments.first().map(String::as_str);
        anyhow::ensure!(
            matches!(command, Some("apply" | "mosaic" | "zarr" | "sample")),
            "a record of the command `{}`: expected apply, mosaic, zarr or sample",
            command.unwrap_or_default().escape_debug()
        );
        let folder = tempfile::tempdir()?;
        let write = |name: &str, text: &str| -> Result<PathBuf> {
            let path = folder.path().join(name);
            fs::write(&path, text)?;
            Ok(path)
        };
        for (option, text) in parsed["files"].as_object().into_iter().flatten() {
            let flag = format!("--{option}");
            anyhow::ensure!(
                FILES.contains(&flag.as_str()),
                "a record of the file `{}`",
                option.escape_debug()
            );
            let path = write(&format!("{option}.file"), text.as_str().unwrap_or_default())?;
            arguments.extend([flag, path.display().to_string()]);
        }
        let recorded = write("record.json", record)?;
        let versions = items.as_array().into_iter().flatten().filter_map(|item| {
            let versions = item.get("versions")?.clone();
            Some((item.get("id")?.as_str()?.to_owned(), versions))
        });
        let versions: Map<String, Value> = versions.collect();
        write(VERSIONS, &Value::Object(versions).to_string())?;
        arguments.extend(["--recorded".to_owned(), recorded.display().to_string()]);
        Ok(Self {
            arguments,
            _folder: folder,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_working_folder_are_named_for_any_other() {
        let dir = tempfile::tempdir().unwrap();
        let crs = dir.path().join("albers.wkt");
        fs::write(&crs, "PROJCS[..]\n").unwrap();
        let crs = format!("--crs={}", crs.display());
        let given = ["apply", &crs, "--grid", "a/grid.tif"];
        let (kept, _) = normalised(given.iter().map(|&one| one.to_owned())).unwrap();
        assert_eq!(kept[..3], ["apply", "--crs", "PROJCS[..]"]);
        assert!(Path::new(&kept[4]).is_absolute(), "{kept:?}");
        let given = ["apply", "--crs", "EPSG:3577", "--grid=s3://b/g.tif"];
        let (kept, _) = normalised(given.iter().map(|&one| one.to_owned())).unwrap();
        assert_eq!(
            kept,
            ["apply", "--crs", "EPSG:3577", "--grid", "s3://b/g.tif"]
        );
    }

    #[test]
    fn arguments_lose_what_does_not_decide_the_result() {
        let given = [
            "apply",
            "https://user:pass@h/stac?token=1",
            "c",
            "-o",
            "x.tif",
            "--json",
            "--expr=nir",
            "--budget",
            "5",
            "--mask",
            "clouds",
            "--overwrite",
            "-oy.tif",
            "--output=z.tif",
        ];
        let (kept, files) = normalised(given.iter().map(|&one| one.to_owned())).unwrap();
        assert_eq!(
            kept,
            [
                "apply",
                "https://h/stac",
                "c",
                "--expr=nir",
                "--mask",
                "clouds"
            ]
        );
        assert!(files.is_empty());
    }
}
