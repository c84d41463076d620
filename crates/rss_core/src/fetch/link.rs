//! Safe file names for names from a catalogue, and links from the user's folder into the cache.
//!
//! An item's id and a file's name come from a catalogue. Each becomes one plain path component, so
//! that nothing is written outside the folder; two different names never become the same.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::select::Chosen;
use crate::{
    error::{Error, ErrorKind, Result},
    location::Location,
    store::{Mode, hex, of_io},
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
fn marked(name: &str, distinct: &str) -> String {
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
pub(super) struct LinkPath {
    pub(super) folder: String,
    pub(super) name: String,
}

/// Returns a target for each asset that has a location; no two files share one.
pub(super) fn targets(
    chosen: &[(Chosen<'_>, Option<Location>)],
    mode: Mode,
) -> Vec<Option<LinkPath>> {
    let folders = folders(chosen);
    let mut targets: Vec<Option<LinkPath>> = chosen
        .iter()
        .map(|(chosen, location)| {
            let location = location.as_ref()?;
            Some(LinkPath {
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

/// The user's folder.
#[derive(Clone, Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Creates the folder if it does not exist, and checks that it can be written.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if it is a file; [`ErrorKind::Denied`] if it cannot be written.
    pub(super) fn open(dir: &Path) -> Result<Self> {
        let wrong = |err: io::Error| match err.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                Error::new(ErrorKind::InvalidInput, "a file, expected a directory")
                    .at(dir.display())
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Error::new(ErrorKind::Denied, "the directory cannot be written").at(dir.display())
            }
            io::ErrorKind::NotFound => {
                Error::new(ErrorKind::NotFound, "cannot create the directory").at(dir.display())
            }
            _ => of_io(&err).at(dir.display()),
        };
        let dir = std::path::absolute(dir).map_err(wrong)?;
        fs::create_dir_all(&dir).map_err(wrong)?;
        // Permission bits do not show read-only mounts or root's rights: a file is written to find out.
        tempfile::tempfile_in(&dir).map_err(wrong)?;
        Ok(Self(dir))
    }

    /// Checks that a link can be created at its path, before the file is fetched.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidInput`] if a file that is not a link has the path.
    pub(super) fn check(&self, target: &LinkPath) -> Result<()> {
        let folder = self.0.join(&target.folder);
        match fs::symlink_metadata(&folder) {
            Ok(meta) if !meta.is_dir() => {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    "a file or link, expected the item's directory",
                )
                .at(folder.display()));
            }
            _ => {}
        }
        let path = folder.join(&target.name);
        match fs::symlink_metadata(&path) {
            Ok(meta) if !meta.is_symlink() => Err(in_the_way(&path)),
            _ => Ok(()),
        }
    }

    /// Links `target` to a file in the cache, replacing an older link atomically.
    ///
    /// # Errors
    ///
    /// As [`Folder::check`]; [`ErrorKind::Denied`], [`ErrorKind::Unavailable`] for the directory.
    pub(super) fn link(&self, target: &LinkPath, file: &Path) -> Result<PathBuf> {
        self.check(target)?;
        let folder = self.0.join(&target.folder);
        let path = folder.join(&target.name);
        let wrong = |err: io::Error| of_io(&err).at(path.display());
        let made = match fs::create_dir(&folder) {
            Ok(()) => true,
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => false,
            Err(err) => return Err(wrong(err)),
        };
        let linked = self.place(&folder, target, &path, file);
        if linked.is_err() && made {
            // Only an empty directory is removed: another task may have linked a file there.
            let _ = fs::remove_dir(&folder);
        }
        linked.map_err(|err| match err.kind() {
            io::ErrorKind::AlreadyExists => in_the_way(&path),
            _ => wrong(err),
        })?;
        Ok(path)
    }

    fn place(&self, folder: &Path, target: &LinkPath, path: &Path, file: &Path) -> io::Result<()> {
        match fs::read_link(path) {
            Ok(old) if old == file => Ok(()),
            // `symlink` fails if the name exists meanwhile: a file of the user is never replaced.
            Err(err) if err.kind() == io::ErrorKind::NotFound => symlink(file, path),
            Err(err) => Err(err),
            Ok(_) => {
                // A rename replaces the old link in one step: a reader always finds one of the two.
                let aside = folder.join(format!(".{}.link", marked("new", &target.name)));
                match fs::remove_file(&aside) {
                    Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
                    _ => {}
                }
                symlink(file, &aside)?;
                fs::rename(&aside, path)
            }
        }
    }
}

fn in_the_way(path: &Path) -> Error {
    Error::new(
        ErrorKind::InvalidInput,
        "a file that is not a link has this name; it is not overwritten",
    )
    .at(path.display())
}

#[cfg(unix)]
fn symlink(file: &Path, link: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(file, link)
}

/// Symbolic links need a privilege on Windows: a hard link, else a copy.
#[cfg(not(unix))]
fn symlink(file: &Path, link: &Path) -> io::Result<()> {
    fs::hard_link(file, link).or_else(|_| fs::copy(file, link).map(|_| ()))
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
            let path = Path::new(&name);
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

    fn targets_of(items: Vec<stac::Item>, mode: Mode) -> Vec<LinkPath> {
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

    #[test]
    fn a_file_of_the_user_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let target = LinkPath {
            folder: "x".to_owned(),
            name: "a.tif".to_owned(),
        };
        fs::create_dir(dir.path().join("x")).unwrap();
        fs::write(dir.path().join("x/a.tif"), "mine").unwrap();
        let err = folder.link(&target, Path::new("/cache/1")).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
        assert_eq!(fs::read(dir.path().join("x/a.tif")).unwrap(), b"mine");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_replaced_and_a_linked_folder_is_not_entered() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let target = |folder: &str| LinkPath {
            folder: folder.to_owned(),
            name: "a.tif".to_owned(),
        };
        for file in ["/cache/gone", "/cache/2", "/cache/2"] {
            let path = folder.link(&target("x"), Path::new(file)).unwrap();
            assert_eq!(fs::read_link(path).unwrap(), Path::new(file));
        }
        assert_eq!(fs::read_dir(dir.path().join("x")).unwrap().count(), 1);

        let outside = tempfile::tempdir().unwrap();
        symlink(outside.path(), &dir.path().join("y")).unwrap();
        let err = folder
            .link(&target("y"), Path::new("/cache/1"))
            .unwrap_err();
        assert_eq!(err.kind(), ErrorKind::InvalidInput);
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_is_a_file_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("below")] {
            let err = Folder::open(&path).unwrap_err();
            assert_eq!(err.kind(), ErrorKind::InvalidInput, "{err}");
            assert!(err.to_string().contains("expected a directory"), "{err}");
        }
    }
}
