//! The module graph of `docs/ARCHITECTURE.md`, checked.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Each module, and the modules it may name. Lower rows name fewer.
const LAYERS: &[(&str, &[&str])] = &[
    ("error", &[]),
    ("geo", &["error"]),
    ("proj", &["error", "geo"]),
    ("location", &["error", "geo"]),
    ("raster", &["error", "geo"]),
    ("warp", &["error", "geo", "raster"]),
    ("stac", &["error", "geo", "location", "raster"]),
    ("products", &["error", "geo", "location", "raster", "stac"]),
    (
        "mask",
        &["error", "geo", "location", "raster", "stac", "products"],
    ),
    (
        "store",
        &["error", "geo", "location", "raster", "stac", "products"],
    ),
    (
        "session",
        &[
            "error", "geo", "proj", "location", "raster", "stac", "products", "store",
        ],
    ),
    (
        "query",
        &[
            "error", "geo", "location", "raster", "stac", "products", "store", "session",
        ],
    ),
    (
        "reader",
        &[
            "error", "geo", "location", "raster", "stac", "products", "store", "session",
        ],
    ),
    (
        "writer",
        &[
            "error", "geo", "location", "raster", "stac", "products", "store", "session",
        ],
    ),
    (
        "index",
        &[
            "error", "geo", "location", "raster", "stac", "products", "store", "session", "query",
            "reader",
        ],
    ),
    (
        "fetch",
        &[
            "error", "geo", "location", "raster", "stac", "products", "store", "session", "query",
            "reader",
        ],
    ),
    (
        "gather",
        &[
            "error", "geo", "location", "raster", "stac", "products", "store", "session", "reader",
        ],
    ),
    (
        "apply",
        &[
            "error", "geo", "location", "raster", "stac", "products", "mask", "store", "session",
            "query", "reader", "warp", "writer", "array",
        ],
    ),
    (
        "array",
        &[
            "error", "geo", "location", "raster", "stac", "products", "store", "session",
        ],
    ),
    (
        "cube",
        &[
            "error", "geo", "location", "raster", "stac", "products", "store", "session", "query",
            "reader", "array", "apply",
        ],
    ),
    ("zarr", &["array", "cube"]),
    (
        "blocking",
        &[
            "error", "geo", "location", "raster", "stac", "products", "store", "session", "query",
            "reader", "writer", "fetch", "gather", "index", "apply", "zarr",
        ],
    ),
];

/// Names that only one folder may use, or two parted by `|`: its path below `src`, and the names.
const ONLY_IN: &[(&str, &[&str])] = &[
    (
        "reader/cog",
        &["jpeg_decoder::", "lerc_reader::", "jxl_oxide::", "fax::"],
    ),
    (
        "index|apply/sample/save",
        &[
            "arrow_array::",
            "arrow_ipc::",
            "arrow_schema::",
            "parquet::",
        ],
    ),
    ("index", &["arrow_buffer::", "arrow_select::"]),
    ("array", &["lz4::", "crc32c::"]),
    ("reader/gdal|proj", &["use gdal::", "gdal_sys::"]),
    ("geo", &["proj4rs::", "crs_definitions::"]),
    ("array", &["icechunk::", "icechunk_storage::", "typetag::"]),
    ("session", &["env::var"]),
];

#[test]
fn modules_only_name_lower_modules() {
    let mut wrong = Vec::new();
    let entries = sources_of_both().map(|src| fs::read_dir(src).unwrap());
    for entry in entries.into_iter().flatten() {
        let path = entry.unwrap().path();
        let module = path.file_stem().unwrap().to_str().unwrap();
        if module == "lib" {
            continue;
        }
        let (_, allowed) = LAYERS
            .iter()
            .find(|(name, _)| *name == module)
            .unwrap_or_else(|| panic!("`{module}` has no row in LAYERS"));
        for text in sources(&path) {
            // A macro's path names no module.
            let paths = crate_paths(&text).into_iter();
            for name in paths.filter(|name| LAYERS.iter().any(|(module, _)| module == name)) {
                if name != module && !allowed.contains(&name.as_str()) {
                    wrong.push(format!("{module} names {name}"));
                }
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

/// The sources of rss_core, and of rss_raster below it.
fn sources_of_both() -> [PathBuf; 2] {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    [here.join("src"), here.join("../rss_raster/src")]
}

#[test]
fn foreign_names_stay_in_their_folder() {
    let mut wrong = Vec::new();
    let all =
        sources_of_both().map(|src| files(&src).into_iter().map(move |file| (src.clone(), file)));
    for (src, file) in all.into_iter().flatten() {
        let path = file.strip_prefix(&src).unwrap();
        let text = code(&fs::read_to_string(&file).unwrap());
        for (owner, names) in ONLY_IN {
            for name in *names {
                let is_here = owner.split('|').any(|owner| path.starts_with(owner));
                if !is_here && names_crate(&text, name) {
                    wrong.push(format!("{} names {name}", path.display()));
                }
            }
        }
        if path != Path::new("blocking/mod.rs") && text.contains("block_on(") {
            wrong.push(format!("{} blocks", path.display()));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

/// True if `name` stands in `text` as a path's start, and not as the end of another path.
fn names_crate(text: &str, name: &str) -> bool {
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':'))
}

fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        let is_source = path.extension().is_some_and(|ending| ending == "rs");
        return Vec::from_iter(is_source.then(|| path.to_owned()));
    }
    fs::read_dir(path)
        .unwrap()
        .flat_map(|entry| files(&entry.unwrap().path()))
        .collect()
}

/// A source without its comments and its tests.
fn code(text: &str) -> String {
    text.lines()
        .take_while(|line| !line.starts_with("#[cfg(test)]"))
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn sources(path: &Path) -> Vec<String> {
    files(path)
        .iter()
        .map(|file| code(&fs::read_to_string(file).unwrap()))
        .collect()
}

/// The first segments after `crate::`, in code and not in comments.
fn crate_paths(text: &str) -> Vec<String> {
    let code = text.replace('\n', " ");
    let mut names = Vec::new();
    for rest in code.split("crate::").skip(1) {
        let list = match rest.strip_prefix('{') {
            Some(list) => top_level_items(list),
            None => vec![rest],
        };
        for item in list {
            let name: String = item
                .trim()
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            if name.chars().next().is_some_and(char::is_lowercase) {
                names.push(name);
            }
        }
    }
    names
}

/// Splits `a::{b, c}, d }…` at the commas outside inner braces.
fn top_level_items(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut items) = (0, 0, Vec::new());
    for (i, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                items.push(&list[start..i]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(&list[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    items
}
