//! Safe file names for names from a catalogue, in the user's folder.
//!
//! An item's id and a file's name come from a catalogue. Each becomes one plain path component, so
//! that nothing is written outside the folder; two different names never become the same.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::select::Chosen;
use crate::{
    location::Location,
    store::{Mode, hex},
};

/// Bytes of the longest component that is left unchanged; most file systems allow 255.
const LONGEST: usize = 150;
const LONGEST_ENDING: usize = 12;

/// Returns `text` as one path component: unchanged if it is plain and short, else with other
/// characters replaced by `_`, and a hash of `text` that keeps it distinct.
pub(super) fn component(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|c| match c {
            '-' | '_' | '.' | '+' | '=' | '@' => c,
            c if c.is_alphanumeric() => c,
            _ => '_',
        })
        .collect();
    let is_fine = plain == text
        && !plain.is_empty()
        && plain.len() <= LONGEST
        && !plain.starts_with('.')
        && !plain.ends_with('.')
        && !is_device(&plain);
    if is_fine { plain } else { marked(&plain, text) }
}

/// Returns `name` with a hash of `distinct` before its extension.
pub(super) fn marked(name: &str, distinct: &str) -> String {
    let name = name.trim_matches('.');
    let (stem, ending) = match name.rsplit_once('.') {
        Some((stem, ending)) if !stem.is_empty() && ending.len() <= LONGEST_ENDING => {
            (stem, format!(".{ending}"))
        }
        _ => (name, String::new()),
    };
    let mut stem: String = stem.to_owned();
    while stem.len() > LONGEST - 40 {
        stem.pop();
    }
    if stem.is_empty() || is_device(&stem) {
        stem.insert(0, '_');
    }
    let mark = hex(&Sha256::digest(distinct.as_bytes()));
    let mark = mark.get(..12).unwrap_or(&mark);
    format!("{stem}-{mark}{ending}")
}

/// Returns true for names of devices on Windows, whatever their extension.
fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or(name).to_ascii_uppercase();
    let numbered = |prefix: &str| {
        stem.strip_prefix(prefix)
            .is_some_and(|rest| rest.len() == 1 && rest.chars().all(|c| c.is_ascii_digit()))
    };
    matches!(stem.as_str(), "CON" | "PRN" | "AUX" | "NUL") || numbered("COM") || numbered("LPT")
}

/// A path inside the user's folder: the item's directory, then the file's name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct TargetPath {
    pub(super) folder: String,
    pub(super) name: String,
}

/// Returns a target for each asset that has a location; no two files share one.
pub(super) fn targets(
    chosen: &[(Chosen<'_>, Option<Location>)],
    mode: Mode,
) -> Vec<Option<TargetPath>> {
    let folders = folders(chosen);
    let mut targets: Vec<Option<TargetPath>> = chosen
        .iter()
        .map(|(chosen, location)| {
            let location = location.as_ref()?;
            Some(TargetPath {
                folder: folders.get(&chosen.index)?.clone(),
                name: component(&file_name(location, mode)),
            })
        })
        .collect();
    // Names that differ only in case are one name on the file systems of macOS and Windows.
    let mut seen: HashMap<(String, String), Vec<usize>> = HashMap::new();
    for (i, target) in targets.iter().enumerate() {
        if let Some(target) = target {
            let like = (target.folder.to_lowercase(), target.name.to_lowercase());
            seen.entry(like).or_default().push(i);
        }
    }
    for same in seen.into_values() {
        let locations: Vec<_> = same
            .iter()
            .filter_map(|&i| chosen.get(i)?.1.as_ref())
            .collect();
        if locations.windows(2).all(|pair| pair.first() == pair.last()) {
            continue;
        }
        for i in same {
            if let (Some(Some(target)), Some((chosen, _))) = (targets.get_mut(i), chosen.get(i)) {
                let name = format!("{}_{}", chosen.key, target.name);
                target.name = marked(&component(&name), &format!("{}\n{name}", chosen.key));
            }
        }
    }
    targets
}

/// Returns the folder of each item: its id, with a hash where two items of one call share the id.
fn folders(chosen: &[(Chosen<'_>, Option<Location>)]) -> HashMap<usize, String> {
    let mut by_id: HashMap<String, Vec<(usize, &stac::Item)>> = HashMap::new();
    for (chosen, _) in chosen {
        let like = component(&chosen.item.id).to_lowercase();
        let items = by_id.entry(like).or_default();
        if items.last().is_none_or(|(index, _)| *index != chosen.index) {
            items.push((chosen.index, chosen.item));
        }
    }
    let mut folders = HashMap::new();
    for items in by_id.into_values() {
        let is_alone = items.len() == 1;
        for (index, item) in items {
            let plain = component(&item.id);
            let folder = match is_alone {
                true => plain,
                false => {
                    // The hash is of the content, so that the same item, listed twice, has one folder.
                    let mut distinct = format!("{}\n{:?}", item.id, item.collection);
                    for asset in item.assets.values() {
                        distinct.push('\n');
                        distinct.push_str(&crate::location::redact(&asset.href));
                    }
                    marked(&plain, &distinct)
                }
            };
            folders.insert(index, folder);
        }
    }
    folders
}

fn file_name(location: &Location, mode: Mode) -> String {
    let name = location.file_name();
    match mode {
        Mode::Copy => name.to_owned(),
        // gdal_translate writes a GeoTIFF, whatever the format of the source.
        Mode::Translate => {
            let lower = name.to_ascii_lowercase();
            if lower.ends_with(".tif") || lower.ends_with(".tiff") {
                name.to_owned()
            } else {
                let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
                format!("{stem}.tif")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::stac::Selection;

    const HOSTILE: &[&str] = &[
        "",
        ".",
        "..",
        "../../etc/passwd",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "a\0b",
        "..\\..\\x",
        "C:\\x",
        "CON",
        "nul.tif",
        "COM1.tif",
        ".hidden",
        "trailing.",
        "a\nb",
        "~/x",
        "$HOME",
        "%2e%2e%2f",
        "\u{202e}fit.exe",
        "...",
        "-\u{7f}",
    ];

    #[test]
    fn a_component_is_one_plain_name() {
        let long = "x".repeat(5000) + ".tif";
        let wide = "\u{1f30d}\u{e9}".repeat(300);
        let mut seen = std::collections::HashMap::new();
        for text in HOSTILE.iter().copied().chain([&*long, &*wide]) {
            let name = component(text);
            let path = std::path::Path::new(&name);
            let parts: Vec<_> = path.components().collect();
            assert!(
                matches!(parts[..], [std::path::Component::Normal(_)]),
                "{text:?} -> {name:?}"
            );
            assert!(name.len() <= 160 && !name.starts_with('.'), "{name:?}");
            assert!(!name.contains(['\\', '\0', ':', '\n', '%']), "{name:?}");
            assert_eq!(seen.insert(name.clone(), text), None, "{name:?}");
        }
        for text in ["S2B_20EPT_20250731_0_L2A", "B04.tif", "a-b_c.d=e@f+g"] {
            assert_eq!(component(text), text);
        }
        assert!(component(&long).ends_with(".tif"));
    }

    fn item(id: &str, collection: &str, assets: &[(&str, &str)]) -> stac::Item {
        let assets: serde_json::Map<_, _> = assets
            .iter()
            .map(|(key, href)| ((*key).to_owned(), json!({"href": href, "roles": ["data"]})))
            .collect();
        serde_json::from_value(json!({
            "type": "Feature", "stac_version": "1.0.0", "id": id, "geometry": null,
            "collection": collection,
            "properties": {"datetime": "2020-01-01T00:00:00Z"}, "links": [], "assets": assets,
        }))
        .unwrap()
    }

    fn targets_of(items: Vec<stac::Item>, mode: Mode) -> Vec<TargetPath> {
        let items: stac::ItemCollection = items.into();
        let chosen: Vec<_> = super::super::select::choose(&items, &Selection::Guess)
            .into_iter()
            .map(|chosen| {
                let location = Location::parse(&chosen.asset.unwrap().href).unwrap();
                (chosen, Some(location))
            })
            .collect();
        targets(&chosen, mode).into_iter().flatten().collect()
    }

    #[test]
    fn two_assets_with_one_file_name_are_two_files() {
        let targets = targets_of(
            vec![item(
                "x",
                "c",
                &[
                    ("red", "s3://b/1/B04.tif"),
                    ("red-jp2", "s3://b/2/b04.TIF"),
                    ("nir", "s3://b/1/B08.tif"),
                    ("nir-again", "s3://b/1/B08.tif"),
                ],
            )],
            Mode::Copy,
        );
        assert!(targets[0].name.starts_with("red_B04-"), "{targets:?}");
        assert_ne!(
            targets[0].name.to_lowercase(),
            targets[1].name.to_lowercase()
        );
        assert_eq!(targets[2].name, "B08.tif");
        assert_eq!(targets[2], targets[3]);
    }

    #[test]
    fn two_items_with_one_id_are_two_folders() {
        let one = item("x", "c1", &[("red", "s3://b/1/B04.tif")]);
        let two = item("x", "c2", &[("red", "s3://b/2/B04.tif")]);
        let targets = targets_of(vec![one.clone(), two, one.clone()], Mode::Copy);
        assert_ne!(targets[0].folder, targets[1].folder);
        assert_eq!(targets[0], targets[2]);
        assert_eq!(targets_of(vec![one], Mode::Copy)[0].folder, "x");
    }

    #[test]
    fn a_translated_file_is_named_as_what_it_is() {
        let items = || vec![item("x", "c", &[("red", "s3://b/1/B04.jp2")])];
        assert_eq!(targets_of(items(), Mode::Translate)[0].name, "B04.tif");
        assert_eq!(targets_of(items(), Mode::Copy)[0].name, "B04.jp2");
    }
}
